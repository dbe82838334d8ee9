"""Airflow's connections as Headrace reads them, of each kind of sink, and of sources."""

from collections.abc import Mapping
from typing import Any

import pytest

from headrace.connections import connection, variable_name
from headrace.connectors.delta.sink import store_location
from headrace.connectors.iceberg.sink import catalog_properties
from headrace.ext.sinks import SINKS

ODD = "a/b+c=d e@f:g%h"
OF_AIRFLOW: Mapping[str, dict[str, Any]] = {
    "postgres": {"conn_type": "postgres", "host": "db", "port": 5432, "schema": "reports", "login": "ann"},
    "delta": {"conn_type": "aws", "host": "bucket", "schema": "a/lake", "login": "ann"},
    "iceberg": {"conn_type": "iceberg", "host": "https://lake.example.com:8181/api/catalog", "login": "ann"},
    "final_rows": {"conn_type": "smtp", "host": "mail", "port": 587, "login": "ann"},
    "kafka": {"conn_type": "kafka", "host": "broker", "port": 9093, "login": "ann"},
    "spark": {"conn_type": "jdbc", "host": "db", "port": 1521, "login": "ann"},
}


def uri_of(**fields: Any) -> str:
    """The URI of a connection of Airflow's, which is not imported while tests are collected."""
    from airflow.sdk import Connection

    from headrace_airflow import connection

    return connection.uri_of(Connection(conn_id="lake", **fields))


@pytest.mark.parametrize("kind", SINKS.built_in)
def test_a_connection_keeps_its_parts_and_its_odd_password(kind: str) -> None:
    uri = uri_of(password=ODD, **OF_AIRFLOW[kind])
    read = connection("lake", {variable_name("lake"): uri})
    assert (read.user, read.password) == ("ann", ODD)
    assert ODD not in str(read)


def test_a_cluster_of_kafka() -> None:
    of_airflow = {"conn_type": "kafka", "host": "broker", "port": 9093, "login": "ann"}
    extra = '{"tls": "true", "mechanism": "SCRAM-SHA-512", "bootstrap": "b2:9093,b3:9093"}'
    read = connection("events", {variable_name("events"): uri_of(password=ODD, extra=extra, **of_airflow)})
    assert (read.scheme, read.host, read.port, read.user, read.password) == ("kafka", "broker", 9093, "ann", ODD)
    assert read.options == {"tls": "true", "mechanism": "SCRAM-SHA-512", "bootstrap": "b2:9093,b3:9093"}


@pytest.mark.parametrize(
    "address",
    [
        {"host": "https://registry.example.com/apis/v7", "port": 8081},
        {"host": "registry.example.com", "port": 8081, "schema": "https"},
    ],
)
def test_a_registry_of_schemas(address: Mapping[str, Any]) -> None:
    read = connection("lake", {variable_name("lake"): uri_of(conn_type="http", login="ann", password=ODD, **address)})
    assert (read.scheme, read.host, read.port, read.user) == ("https", "registry.example.com", 8081, "ann")
    assert read.password == ODD
    assert read.database == ("apis/v7" if "://" in address["host"] else "")


def test_a_place_on_s3() -> None:
    extra = '{"endpoint_url": "http://127.0.0.1:9000", "region_name": "eu-west-1", "aws_session_token": "t"}'
    uri = uri_of(password=ODD, extra=extra, **OF_AIRFLOW["delta"])
    place, options = store_location(connection("lake", {variable_name("lake"): uri}))
    assert place == "s3://bucket/a/lake"
    expected_options = {
        "aws_access_key_id": "ann",
        "aws_secret_access_key": ODD,
        "aws_session_token": "t",
        "aws_endpoint": "http://127.0.0.1:9000",
        "aws_region": "eu-west-1",
        "aws_allow_http": "true",
    }
    assert expected_options.items() <= options.items()


def test_a_rest_catalog() -> None:
    uri = uri_of(password=ODD, extra='{"warehouse": "sales"}', **OF_AIRFLOW["iceberg"])
    properties = catalog_properties(connection("lake", {variable_name("lake"): uri}))
    assert properties["py-catalog-impl"].endswith(".PatientRestCatalog")
    assert properties["uri"] == "https://lake.example.com:8181/api/catalog"
    assert properties["credential"] == f"ann:{ODD}"
    assert properties["warehouse"] == "sales"


def test_an_sql_catalog() -> None:
    extra = '{"warehouse": "s3://bucket/lake", "catalog": "other"}'
    uri = uri_of(password=ODD, extra=extra, **OF_AIRFLOW["postgres"])
    properties = catalog_properties(connection("lake", {variable_name("lake"): uri}))
    login = "ann:a%2Fb%2Bc%3Dd%20e%40f%3Ag%25h"
    assert properties["uri"] == f"postgresql+psycopg://{login}@db:5432/reports?connect_timeout=10&client_encoding=utf8"
    assert properties["warehouse"] == "s3://bucket/lake"
    assert "catalog" not in properties
