"""Databases, roles and environments that say otherwise what texts and values mean: what arrives is what readers see, or
it is refused with its column and value.
"""

import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

import headrace as hr
from headrace import DataType
from headrace.errors import PipelineError
from headrace.ext.sinks import SinkRefusedError, UndeliverableError
from headrace.testing.connectors.worlds import VALUES, SinkDeployment, order
from tests.sinks.warehouse import Warehouse
from tests.sinks.worlds import PostgresWorld

pytestmark = pytest.mark.slow

HOSTILE = {
    "array_nulls": "off",
    "bytea_output": "'escape'",
    "client_encoding": "'LATIN1'",
    "datestyle": "'SQL, DMY'",
    "default_transaction_isolation": "'serializable'",
    "extra_float_digits": "-15",
    "intervalstyle": "'sql_standard'",
    "quote_all_identifiers": "on",
    "standard_conforming_strings": "off",
    "timezone": "'Asia/Kolkata'",
    "transform_null_equals": "on",
}
"""Settings of a role, each of which changes what some client means or reads."""


@pytest.fixture
def deployment(warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SinkDeployment:
    monkeypatch.setenv("HEADRACE_CONN_WAREHOUSE", warehouse.uri)
    return SinkDeployment(warehouse.world, tmp_path)


@pytest.fixture
def database(
    warehouse: Warehouse, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SinkDeployment]:
    """A database of another encoding."""
    name = f"d{secrets.token_hex(4)}"
    warehouse.server.rows(
        f"create database {name} encoding '{request.param}' template template0 lc_collate 'C' lc_ctype 'C'"
    )
    uri = f"{warehouse.uri.rpartition('/')[0]}/{name}"
    with psycopg.connect(uri, autocommit=True) as connection:
        connection.execute("create schema reports")
    monkeypatch.setenv("HEADRACE_CONN_WAREHOUSE", uri)
    monkeypatch.setenv("PGCLIENTENCODING", "UTF8")  # of the test's own clients
    yield SinkDeployment(PostgresWorld(uri, "reports"), tmp_path)
    warehouse.server.rows(f"drop database {name} with (force)")


def run(deployment: SinkDeployment, pipeline: hr.Pipeline) -> None:
    deployment.handle(pipeline).run()


def land_texts(deployment: SinkDeployment, *texts: str | None) -> hr.Pipeline:
    deployment.land_values(DataType.STRING, texts)
    own_pipeline = deployment.values(DataType.STRING)
    run(deployment, own_pipeline)
    return own_pipeline


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII", "EUC_JP", "no such encoding"])
def test_texts_are_what_they_are_whatever_the_environment_calls_them(
    warehouse: Warehouse, deployment: SinkDeployment, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", encoding)
    own_pipeline = land_texts(deployment, "Tromsø", "東京")
    deployment.deliver(own_pipeline)
    table = f"postgres:{warehouse.schema}.sales"
    assert deployment.handle(own_pipeline).compare_with(table, connection="warehouse").is_equal
    monkeypatch.delenv("PGCLIENTENCODING")
    assert [value for (value,) in warehouse.rows("value")] == ["Tromsø", "東京"]
    warehouse.server.rows(f"update {warehouse.schema}.sales set value = 'Troms\u00c3\u00b8' where value = 'Tromsø'")
    monkeypatch.setenv("PGCLIENTENCODING", encoding)
    assert not deployment.handle(own_pipeline).compare_with(table, connection="warehouse").is_equal
    monkeypatch.delenv("PGCLIENTENCODING")  # of the test's own clients


@pytest.mark.parametrize("database", ["SQL_ASCII"], indirect=True)
def test_a_text_that_is_not_utf_8_is_no_text_of_ours(database: SinkDeployment) -> None:
    """A database that keeps any bytes has got some from somebody else."""
    own_pipeline = land_texts(database, "Tromsø")
    database.deliver(own_pipeline)
    with psycopg.connect(database.world.environment["HEADRACE_CONN_WAREHOUSE"]) as connection:
        connection.execute(b"set client_encoding to 'SQL_ASCII'")
        connection.execute(b"update reports.sales set value = 'Troms\xf8'")
    with pytest.raises(SinkRefusedError, match="not UTF-8"):
        database.handle(own_pipeline).compare_with("postgres:reports.sales", connection="warehouse")


@pytest.mark.parametrize(
    ("database", "texts"),
    [("LATIN1", ["Tromsø", "ÿ"]), ("EUC_JP", ["東京", "a\uff5eb"]), ("SQL_ASCII", ["Tromsø", "Łódź 東京 🜁"])],
    indirect=["database"],
)
def test_a_database_of_another_encoding_holds_what_it_has_characters_for(
    database: SinkDeployment, texts: list[str]
) -> None:
    own_pipeline = land_texts(database, *texts, None)
    database.deliver(own_pipeline)
    assert database.held(own_pipeline) == database.published(own_pipeline)
    assert database.handle(own_pipeline).compare_with("postgres:reports.sales", connection="warehouse").is_equal


@pytest.mark.parametrize(
    ("database", "text"),
    [("LATIN1", "Łódź"), ("EUC_JP", "a\u301cb"), ("EUC_JP", "🜁")],  # EUC_JP has one wave, which comes back as another
    indirect=["database"],
)
def test_what_a_database_has_no_character_for_is_refused_with_its_column(database: SinkDeployment, text: str) -> None:
    own_pipeline = land_texts(database, "plain")
    database.deliver(own_pipeline)
    database.land_values(DataType.STRING, ["plain", *(str(n) for n in range(50)), text, "other"], "2")
    run(database, own_pipeline)
    rows_before = database.held(own_pipeline)
    with pytest.raises(UndeliverableError, match=f"column 'value' has '{text}'.*its encoding is "):
        database.deliver(own_pipeline)
    assert database.held(own_pipeline) == rows_before
    listed_pipeline = database.values(DataType.STRING, value=hr.col("value").collect())
    with pytest.raises(UndeliverableError, match=f"column 'value' has '{text}'"):
        database.handle(listed_pipeline).backfill(promote=True)
        database.deliver(listed_pipeline)


@pytest.mark.parametrize("database", ["LATIN1"], indirect=True)
def test_a_name_that_a_database_has_no_character_for_is_refused(database: SinkDeployment) -> None:
    sales = database.sales(what={"größe": hr.count()})
    database.land("1", order("ann", 5))
    run(database, sales)
    database.deliver(sales)
    assert database.held(sales) == database.published(sales)
    other = database.sales(what={"łódź": hr.count()})
    database.handle(other).backfill(promote=True)
    with pytest.raises(UndeliverableError, match="the name of a column has 'łódź'"):
        database.deliver(other)


def test_text_with_nothing_in_it_is_refused_with_its_column(deployment: SinkDeployment) -> None:
    own_pipeline = land_texts(deployment, "a\x00b")
    with pytest.raises(UndeliverableError, match=r"column 'value' has 'a\\x00b'"):
        deployment.deliver(own_pipeline)


@pytest.mark.parametrize("kind", [DataType.STRING, DataType.FLOAT, DataType.TIMESTAMP, DataType.BYTES])
def test_what_a_role_has_set_changes_no_value(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: DataType
) -> None:
    """Also what the process has: its zone, and options for libpq."""
    role, password = f"r{secrets.token_hex(4)}", secrets.token_hex(8)
    server, schema = warehouse.server, warehouse.schema
    server.rows(f"create role {role} login password '{password}'")
    server.rows(f"grant all on schema {schema} to {role}")
    for name, value in HOSTILE.items():
        server.rows(f"alter role {role} set {name} to {value}")
    address = warehouse.uri.partition("@")[2]
    monkeypatch.setenv("HEADRACE_CONN_WAREHOUSE", f"postgresql://{role}:{password}@{address}?client_encoding=latin1")
    monkeypatch.setenv("TZ", "America/St_Johns")
    time.tzset()
    try:
        deployment = SinkDeployment(warehouse.world, tmp_path)
        own_pipeline = deployment.values(
            kind,
            value=hr.col("value").max(),
            all=hr.col("value").collect() if kind is not DataType.BOOL else hr.count(),
        )
        for name, values in enumerate((VALUES[kind], [*reversed(VALUES[kind])])):
            deployment.land_values(kind, [*values, None], str(name))
            run(deployment, own_pipeline)
            deployment.deliver(own_pipeline)
            assert deployment.held(own_pipeline) == deployment.published(own_pipeline)
            comparison = deployment.handle(own_pipeline).compare_with(
                f"postgres:{schema}.sales", connection="warehouse", without=["all"]
            )
            assert comparison.is_equal
    finally:
        monkeypatch.undo()
        time.tzset()
        server.rows(f"drop owned by {role} cascade")
        server.rows(f"drop role {role}")


def test_a_server_that_the_environment_names_is_not_the_one_of_the_connection(
    deployment: SinkDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGHOSTADDR", "127.0.0.99")
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("PGDATABASE", "elsewhere")
    sales = deployment.sales()
    deployment.land("1", order("ann", 5))
    run(deployment, sales)
    deployment.deliver(sales)
    monkeypatch.delenv("PGHOSTADDR")
    assert deployment.held(sales) == deployment.published(sales)


def test_rows_that_a_policy_hides_are_not_passed_over(
    warehouse: Warehouse, deployment: SinkDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    sales = deployment.sales()
    deployment.land("1", order("ann", 5), order("bob", 5))
    run(deployment, sales)
    deployment.deliver(sales)
    role, password = f"r{secrets.token_hex(4)}", secrets.token_hex(8)
    server, table = warehouse.server, f"{warehouse.schema}.sales"
    server.rows(f"create role {role} login password '{password}'")
    server.rows(f"grant usage on schema {warehouse.schema} to {role}")
    server.rows(f"grant select on {table} to {role}")
    server.rows(f"alter table {table} enable row level security")
    server.rows(f"""create policy own on {table} using ("user" = 'ann')""")
    address = warehouse.uri.partition("@")[2]
    monkeypatch.setenv("HEADRACE_CONN_ANALYST", f"postgresql://{role}:{quote(password)}@{address}")
    with pytest.raises(SinkRefusedError, match="row-level security"):
        deployment.handle(sales).compare_with(f"postgres:{table}", connection="analyst")
    server.rows(f"drop owned by {role} cascade")
    server.rows(f"drop role {role}")


@pytest.mark.parametrize("name", ["x" * 64, "ø" * 32, "東" * 22])
def test_names_that_postgresql_cuts_are_refused_as_the_sink_is_built(deployment: SinkDeployment, name: str) -> None:
    shorter = name[:-1]
    for parts in ({"what": {shorter: hr.count()}}, {"key": {shorter: hr.col("user")}}):
        deployment.sales(**parts)
    for wrong in ({"what": {name: hr.count()}}, {"key": {name: hr.col("user")}}):
        with pytest.raises(PipelineError, match=rf"sink \S+ has no column '{name}'.*63 bytes"):
            deployment.sales(**wrong)
    with pytest.raises(PipelineError, match="63 bytes"):
        hr.postgres(f"reports.{name}", connection="warehouse")


def test_names_of_outputs_are_looked_at_as_well(deployment: SinkDeployment) -> None:
    sales = deployment.sales(sinks=())
    parts: dict[str, Any] = {"key": "user", "where": sales.where, "how": sales.how, "when": sales.when}
    output = hr.Output(what={"x" * 64: hr.count()}, sinks=[hr.postgres("sales", connection="warehouse")], **parts)
    with pytest.raises(PipelineError, match=r"output by_user .*63 bytes"):
        hr.Pipeline("sales", sales.input, outputs={"by_user": output})
