"""Servers for the tests of a process: PostgreSQL, with a schema of its own for each, a catalog of Iceberg; topics."""

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scripts.iceberg_rest import IcebergRest, jars
from scripts.kafka import Kafka
from scripts.postgres_server import Postgres, binaries
from tests.needed import lacks
from tests.sinks.warehouse import Warehouse
from tests.sources.kafka_topics import Topics

if TYPE_CHECKING:
    from tests.sinks.worlds import IcebergWorld

_SERVERS = {"broker", "server", "iceberg_rest", "minio"}


def pytest_itemcollected(item: pytest.Item) -> None:
    """What needs a server is a test of ``make test-connectors``."""
    if not _SERVERS.isdisjoint(getattr(item, "fixturenames", ())):
        item.add_marker(pytest.mark.connectors)


@pytest.fixture(scope="session")
def server() -> Iterator[Postgres]:
    if binaries() is None:
        lacks("no PostgreSQL (on Debian: apt install postgresql)")
    with Postgres(secrets.token_hex(16)) as started_server:
        yield started_server


@pytest.fixture(scope="session")
def iceberg_rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergRest]:
    if not jars().is_dir():
        lacks("no jars of Iceberg's REST catalog (python -m scripts.iceberg_rest path)")
    with IcebergRest(tmp_path_factory.mktemp("iceberg")) as started_server:
        yield started_server


@pytest.fixture
def topics(broker: Kafka, monkeypatch: pytest.MonkeyPatch) -> Topics:
    """Topics of the broker, which is the connection ``events``."""
    monkeypatch.setenv("HEADRACE_CONN_EVENTS", f"kafka://{broker.address}")
    return Topics(broker.address)


@pytest.fixture
def warehouse(server: Postgres, monkeypatch: pytest.MonkeyPatch) -> Iterator[Warehouse]:
    made_warehouse = Warehouse(server, f"s{secrets.token_hex(4)}")
    monkeypatch.setenv("HEADRACE_CONN_WAREHOUSE", made_warehouse.uri)
    server.rows(f"create schema {made_warehouse.schema}")
    yield made_warehouse
    server.rows(f"drop schema {made_warehouse.schema} cascade")


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "IcebergWorld":
    """A catalog of Iceberg of its own, as connection ``lake``."""
    from tests.sinks.worlds import IcebergWorld  # with pyiceberg, which few tests need

    (tmp_path / "lake").mkdir()
    world = IcebergWorld(f"sqlite://{tmp_path}/catalog.db?warehouse={(tmp_path / 'lake').as_uri()}")
    monkeypatch.setenv("HEADRACE_CONN_LAKE", world.uri)
    return world
