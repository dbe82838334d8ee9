"""Tables of an Iceberg catalog as a sink: what a definition says of one."""

import re
from dataclasses import dataclass
from typing import ClassVar, Final

from headrace.model.arguments import Arguments, keywords
from headrace.pipeline.sink import Sink, connection_name, sink_name

_ICEBERG_TABLE = re.compile(r"[A-Za-z0-9_-]{1,100}(\.[A-Za-z0-9_-]{1,100})+")
_PARTITIONS: Final = ("year", "month", "day", "hour")


@dataclass(frozen=True)
class IcebergSink(Sink):
    """A ``table`` of an Iceberg catalog, with its namespace; ``partition_by`` is how it is partitioned when it is made:
    by the year, month, day or hour in which a window begins, or not at all.
    """

    kind: ClassVar[str] = "iceberg"

    table: str
    partition_by: str | None

    @property
    def table_of_rows(self) -> str | None:
        return self.table


@keywords
def iceberg(table: str, *, connection: str, partition_by: str | None = "day", name: str | None = None) -> IcebergSink:
    """A table of an Iceberg catalog that holds what readers see: key, window and values.

    ``table`` has its namespace before it (``reports.sales``). ``connection`` is a name, and what the catalog is called.
    The environment says what it is (``HEADRACE_CONN_{NAME}``), or Airflow does:
    ``https://client:secret@host/path?warehouse=NAME`` for a REST catalog, ``postgresql://user:password@host/database?
    warehouse=s3://bucket/prefix`` for an SQL catalog. A new table is partitioned by the ``"year"``, ``"month"``,
    ``"day"`` or ``"hour"`` in which windows begin, or (None) not at all: a delivery rewrites files that have rows which
    change. ``name`` is what the sink is called, by default as the table.

    >>> hr.iceberg("reports.sales", connection="lake").name
    'reports.sales'
    """
    given = Arguments("iceberg")
    if not _ICEBERG_TABLE.fullmatch(given.text("table", table, "reports.sales")):
        raise given.wrong("table", table, "write namespace.table, with letters, digits, - and _")
    if partition_by is not None and not (isinstance(partition_by, str) and partition_by in _PARTITIONS):
        raise given.wrong("partition_by", partition_by, 'write "year", "month", "day", "hour" or None')
    return IcebergSink(
        sink_name(given, name, table), connection_name(given, connection), table, partition_by=partition_by
    )
