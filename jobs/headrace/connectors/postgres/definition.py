"""PostgreSQL as a sink: what a definition says of a table."""

import re
from dataclasses import dataclass
from typing import ClassVar, Final

from headrace.model.arguments import Arguments, keywords
from headrace.pipeline.sink import Sink, connection_name, sink_name

_MOST_BYTES: Final = 63
"""Of a name in PostgreSQL, which cuts longer ones without a word."""
_TABLE = re.compile(r"([^.\x00]{1,63}\.)?[^.\x00]{1,63}")


@dataclass(frozen=True)
class PostgresSink(Sink):
    """A ``table`` of rows or of ``changes``, of a PostgreSQL database, with its schema if it is not in the first one of
    the search path.
    """

    kind: ClassVar[str] = "postgres"

    table: str
    changes: bool = False

    @property
    def table_of_rows(self) -> str | None:
        return None if self.changes else self.table

    def refuses_column(self, name: str) -> str | None:
        size = len(name.encode())
        if size <= _MOST_BYTES:
            return None
        return f"PostgreSQL cuts names at {_MOST_BYTES} bytes, and it has {size}"


@keywords
def postgres(table: str, *, connection: str, changes: bool = False, name: str | None = None) -> PostgresSink:
    """A table of a PostgreSQL database (15 or newer) that holds what readers see: key, window and values.

    ``table`` may begin with a schema (``reports.sales``). ``connection`` is a name; the environment says what it is
    (``HEADRACE_CONN_{NAME}``), or Airflow does. ``name`` is what the sink is called, by default as the table.

    With ``changes`` it is a table of what happened, to which rows are only added: each pane and each retraction of what
    is published, in order, with a number (``_change``), a sign (``_sign``: 1, or -1 for what is withdrawn), and the
    epoch (``_epoch``). Where ``published`` goes back, the rows that differ are withdrawn and put in place.

    >>> hr.postgres("reports.sales", connection="warehouse").name
    'reports.sales'
    """
    given = Arguments("postgres")
    is_named = _TABLE.fullmatch(given.text("table", table, "reports.sales"))
    if not is_named or any(len(part.encode()) > _MOST_BYTES for part in table.split(".")):
        raise given.wrong(
            "table", table, f"write a table, or schema.table, with names of at most {_MOST_BYTES} bytes in UTF-8"
        )
    return PostgresSink(
        sink_name(given, name, table),
        connection_name(given, connection),
        table,
        changes=given.flag("changes", changes),
    )
