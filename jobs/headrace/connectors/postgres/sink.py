"""The kind of sink ``postgres``: how a server is reached, and what its errors mean."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from headrace.connections import Connection, variable
from headrace.connectors.postgres.definition import PostgresSink
from headrace.ext.sinks import OpenTarget, SinkConnector, SinkRefusedError
from headrace.extras import require
from headrace.pipeline.sink import Sink
from headrace.sinks.failures import refusal

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa


_SCHEMES: Final = ("postgresql", "postgres")
_LEAST_VERSION: Final = 150_000


class Postgres(SinkConnector):
    """Tables of PostgreSQL, from 15 on (NULL in a unique index as a value like others)."""

    @contextmanager
    def open(self, sink: Sink, connection: Connection) -> Iterator[OpenTarget]:
        require("postgres", f"sink {sink.name}")
        from headrace.connectors.postgres.tables import PostgresChanges, PostgresTable

        assert isinstance(sink, PostgresSink)
        if connection.scheme not in _SCHEMES:
            raise SinkRefusedError(
                f"{variable(connection.name)} is a URI of {connection.scheme}; sink {sink.name} needs postgresql://..."
            )
        with translated(connection), _connected(connection) as server:
            if server.info.server_version < _LEAST_VERSION:
                raise SinkRefusedError(
                    f"{connection} is PostgreSQL {server.info.server_version // 10_000}; sinks need 15 or newer"
                )
            kind = PostgresChanges if sink.changes else PostgresTable
            yield kind(server, sink.table, str(connection))

    @contextmanager
    def read(self, table: str, columns: Sequence[str], connection: Connection) -> "Iterator[pa.RecordBatchReader]":
        require("postgres", f"the comparison with {table}")
        from psycopg.errors import CharacterNotInRepertoire

        from headrace.connectors.postgres.tables import rows_as_text

        with translated(connection), _connected(connection) as server:
            try:
                with rows_as_text(server, table, columns) as rows:
                    yield rows
            except CharacterNotInRepertoire as error:  # of a database whose encoding is SQL_ASCII: any bytes
                raise SinkRefusedError(
                    f"table {table} of {connection} has a text that is not UTF-8, so it cannot be compared: {error}"
                ) from None


POSTGRES = Postgres()


@contextmanager
def _connected(connection: Connection) -> "Iterator[psycopg.Connection]":
    """A connection, for as long as its server answers."""
    from headrace.connectors.postgres.target import connect
    from headrace.sinks.postgres_watch import watched

    again = partial(connect, connection)
    with again() as server, watched(lambda: [server], again, str(connection)):
        yield server


@contextmanager
def translated(connection: Connection) -> Iterator[None]:
    """Errors of PostgreSQL become those of sinks, by what the caller should do, without secrets."""
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        words = connection.without_secrets(str(error).strip())
        raise refusal(f"{connection}: {words}", error, connection) from None
