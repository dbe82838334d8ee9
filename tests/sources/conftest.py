"""Servers for the tests of a process: topics of Kafka, a registry of schemas, PostgreSQL."""

from collections.abc import Iterator

import pytest

from scripts.schema_registry import SchemaRegistry, find_folder
from tests.needed import lacks
from tests.sinks.conftest import server, topics

__all__ = ["server", "topics"]

_SERVERS = {"broker", "registry", "server"}


def pytest_itemcollected(item: pytest.Item) -> None:
    """What needs a server is a test of ``make test-connectors``."""
    if not _SERVERS.isdisjoint(getattr(item, "fixturenames", ())):
        item.add_marker(pytest.mark.connectors)


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchemaRegistry]:
    if not find_folder().is_dir():
        lacks("no registry of schemas (python -m scripts.schema_registry path)")
    with SchemaRegistry(tmp_path_factory.mktemp("registry")) as started_server:
        yield started_server


@pytest.fixture
def schemas(registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch) -> SchemaRegistry:
    """The registry, which is the connection ``schemas``."""
    monkeypatch.setenv("HEADRACE_CONN_SCHEMAS", registry.uri)
    return registry
