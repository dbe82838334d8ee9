"""An SQL catalog of Iceberg, in PostgreSQL or SQLite, that two may begin at once, and that does not wait for ever.

PostgreSQL that stops answering inside a statement is given up.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any

import tenacity
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError

if TYPE_CHECKING:
    import psycopg

_open_connections: "ContextVar[list[psycopg.Connection] | None]" = ContextVar("opened", default=None)
"""The connections of catalogs, where these are watched."""


class PatientSqlCatalog(SqlCatalog):  # type: ignore[misc] # pyiceberg's types say Any
    """The same, whose connections are known from the first one on, and whose tables another may create meanwhile."""

    def _init_catalog(self) -> None:
        event.listen(
            self.engine, "connect", _note_connection, insert=True
        )  # before the dialect asks what the server is
        super()._init_catalog()

    # It looks which of its two tables there are, then creates the others: each of them can come in between.
    @tenacity.retry(
        retry=tenacity.retry_if_exception_type(DBAPIError), stop=tenacity.stop_after_attempt(3), reraise=True
    )
    def create_tables(self) -> None:
        super().create_tables()


def _note_connection(connection: Any, _: object) -> None:
    if (connections := _open_connections.get()) is not None:
        connections.append(connection)


@contextmanager
def watched_catalog(uri: str, place: str) -> Iterator[None]:
    """Catalogs loaded inside are given up once the server at ``uri`` is silent. Raises SinkUnreachableError."""
    import psycopg  # catalogs in SQLite do without

    from headrace.sinks.postgres_watch import watch_servers

    connections: list[psycopg.Connection] = []
    token = _open_connections.set(connections)
    try:
        with watch_servers(lambda: connections, partial(psycopg.connect, uri.replace("+psycopg", "", 1)), place):
            yield
    finally:
        _open_connections.reset(token)
