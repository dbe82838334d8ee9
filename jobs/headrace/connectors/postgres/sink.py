"""Tables of PostgreSQL as a sink: what a definition says of one, how a server is reached, and what its errors mean."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from headrace.connections import Connection, variable_name
from headrace.ext.sinks import OpenTarget, SinkConnector, SinkRefusedError
from headrace.installed import require_extra
from headrace.model.arguments import Arguments, check_keywords
from headrace.pipeline.endpoints import Sink, connection_name, sink_name
from headrace.sinks.failures import sink_error

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa


_MOST_NAME_BYTES: Final = 63
"""Bytes of the longest name in PostgreSQL, which cuts longer ones without a word."""
_TABLE_NAME = re.compile(r"([^.\x00]{1,63}\.)?[^.\x00]{1,63}")


@dataclass(frozen=True)
class PostgresSink(Sink):
    """A ``table`` of rows or of ``changes`` in a PostgreSQL database. Its name has the schema, unless that is the first
    one of the search path.
    """

    kind: ClassVar[str] = "postgres"

    table: str
    changes: bool = False

    @property
    def table_of_rows(self) -> str | None:
        return None if self.changes else self.table

    def refuses_column(self, name: str) -> str | None:
        size = len(name.encode())
        if size <= _MOST_NAME_BYTES:
            return None
        return f"PostgreSQL cuts names at {_MOST_NAME_BYTES} bytes, and it has {size}"


@check_keywords
def postgres(table: str, *, connection: str, changes: bool = False, name: str | None = None) -> PostgresSink:
    """A table of a PostgreSQL database (15 or newer) that holds what readers see: key, window and values.

    ``table`` may begin with a schema (``reports.sales``). ``connection`` is a name; the environment says what it is
    (``HEADRACE_CONN_{NAME}``), or Airflow does. ``name`` is what the sink is called, by default as the table.

    With ``changes`` the table is a log, to which rows are only added: each pane and each retraction that is published,
    in order. A row has a number (``_change``), a sign (``_sign``: 1, or -1 for what is withdrawn), and the epoch
    (``_epoch``). Where ``published`` goes back, the rows that differ are withdrawn and put in place.

    >>> hr.postgres("reports.sales", connection="warehouse").name
    'reports.sales'
    """
    arguments = Arguments("postgres")
    is_named = _TABLE_NAME.fullmatch(arguments.text("table", table, "reports.sales"))
    if not is_named or any(len(part.encode()) > _MOST_NAME_BYTES for part in table.split(".")):
        raise arguments.refusal(
            "table", table, f"write a table, or schema.table, with names of at most {_MOST_NAME_BYTES} bytes in UTF-8"
        )
    return PostgresSink(
        sink_name(arguments, name, table),
        connection_name(arguments, connection),
        table,
        changes=arguments.flag("changes", changes),
    )


_SCHEMES: Final = ("postgresql", "postgres")
_LEAST_VERSION: Final = 150_000


class Postgres(SinkConnector):
    """Tables of PostgreSQL, from 15 on (NULL in a unique index as a value like others)."""

    @contextmanager
    def open(self, sink: Sink, connection: Connection) -> Iterator[OpenTarget]:
        require_extra("postgres", f"sink {sink.name}")
        from headrace.connectors.postgres.tables import PostgresChanges, PostgresTable

        assert isinstance(sink, PostgresSink)
        if connection.scheme not in _SCHEMES:
            raise SinkRefusedError(
                f"{variable_name(connection.name)} is a URI of {connection.scheme}; sink {sink.name} needs "
                "postgresql://..."
            )
        with translate_errors(connection), _connect_server(connection) as server:
            if server.info.server_version < _LEAST_VERSION:
                raise SinkRefusedError(
                    f"{connection} is PostgreSQL {server.info.server_version // 10_000}; sinks need 15 or newer"
                )
            kind = PostgresChanges if sink.changes else PostgresTable
            yield kind(server, sink.table, str(connection))

    @contextmanager
    def read(self, table: str, columns: Sequence[str], connection: Connection) -> "Iterator[pa.RecordBatchReader]":
        require_extra("postgres", f"the comparison with {table}")
        from psycopg.errors import CharacterNotInRepertoire

        from headrace.connectors.postgres.tables import rows_as_text

        with translate_errors(connection), _connect_server(connection) as server:
            try:
                with rows_as_text(server, table, columns) as rows:
                    yield rows
            except CharacterNotInRepertoire as error:  # of a database whose encoding is SQL_ASCII: any bytes
                raise SinkRefusedError(
                    f"table {table} of {connection} has a text that is not UTF-8, so it cannot be compared: {error}"
                ) from None


POSTGRES = Postgres()


@contextmanager
def _connect_server(connection: Connection) -> "Iterator[psycopg.Connection]":
    """A connection, for as long as its server answers."""
    from headrace.connectors.postgres.target import connect
    from headrace.sinks.postgres_watch import watch_servers

    connect_again = partial(connect, connection)
    with connect_again() as server, watch_servers(lambda: [server], connect_again, str(connection)):
        yield server


@contextmanager
def translate_errors(connection: Connection) -> Iterator[None]:
    """Errors of PostgreSQL become those of sinks, by what the caller should do, without secrets."""
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        words = connection.without_secrets(str(error).strip())
        raise sink_error(f"{connection}: {words}", error, connection) from None
