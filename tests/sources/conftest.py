"""Servers for the tests of a process: a broker of Kafka, a registry of schemas, PostgreSQL."""

from collections.abc import Iterator

import pytest

from scripts.kafka import Kafka, jars
from scripts.schema_registry import SchemaRegistry, unpacked
from tests.needed import lacks
from tests.sinks.conftest import server
from tests.sources.kafka_topics import Topics

__all__ = ["server"]

_SERVERS = {"broker", "registry", "server"}


def pytest_itemcollected(item: pytest.Item) -> None:
    """What needs a server is a test of ``make test-connectors``."""
    if not _SERVERS.isdisjoint(getattr(item, "fixturenames", ())):
        item.add_marker(pytest.mark.connectors)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    if not jars().is_dir():
        lacks("no jars of Kafka (python -m scripts.kafka path)")
    with Kafka(tmp_path_factory.mktemp("kafka")) as started:
        yield started


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchemaRegistry]:
    if not unpacked().is_dir():
        lacks("no registry of schemas (python -m scripts.schema_registry path)")
    with SchemaRegistry(tmp_path_factory.mktemp("registry")) as started:
        yield started


@pytest.fixture
def schemas(registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch) -> SchemaRegistry:
    """The registry, which is the connection ``schemas``."""
    monkeypatch.setenv("HEADRACE_CONN_SCHEMAS", registry.uri)
    return registry


@pytest.fixture
def topics(broker: Kafka, monkeypatch: pytest.MonkeyPatch) -> Topics:
    """Topics of the broker, which is the connection ``events``."""
    monkeypatch.setenv("HEADRACE_CONN_EVENTS", f"kafka://{broker.address}")
    return Topics(broker.address)
