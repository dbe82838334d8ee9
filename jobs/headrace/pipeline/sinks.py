"""Sinks: systems beside the root that follow what readers see. What they are is no part of what a pipeline means."""

import re
from dataclasses import dataclass, field
from typing import ClassVar, Final

from headrace.model.arguments import Arguments
from headrace.model.suggestions import keywords
from headrace.moved import moved
from headrace.pipeline import sink
from headrace.pipeline.loading.folders import current
from headrace.pipeline.sink import connection_name, function_name, sink_name

__getattr__ = moved(__name__)

_MOST_BYTES: Final = 63
"""Of a name in PostgreSQL, which cuts longer ones without a word."""
_TABLE = re.compile(r"([^.\x00]{1,63}\.)?[^.\x00]{1,63}")
_ICEBERG_TABLE = re.compile(r"[A-Za-z0-9_-]{1,100}(\.[A-Za-z0-9_-]{1,100})+")
_PARTITIONS: Final = ("year", "month", "day", "hour")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,200}")
_PATH = re.compile(r"(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9_.=-]*(/[A-Za-z0-9_][A-Za-z0-9_.=-]*)*")


@dataclass(frozen=True)
class PostgresSink(sink.Sink):
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


@dataclass(frozen=True)
class DeltaSink(sink.Sink):
    """A Delta table at ``path``, below the place that the connection names."""

    kind: ClassVar[str] = "delta"

    path: str

    @property
    def table_of_rows(self) -> str | None:
        return self.path


@dataclass(frozen=True)
class IcebergSink(sink.Sink):
    """A ``table`` of an Iceberg catalog, with its namespace; ``partition_by`` is how it is partitioned when it is made:
    by the year, month, day or hour in which a window begins, or not at all.
    """

    kind: ClassVar[str] = "iceberg"

    table: str
    partition_by: str | None

    @property
    def table_of_rows(self) -> str | None:
        return self.table


@dataclass(frozen=True)
class KafkaSink(sink.Sink):
    """A ``topic`` of changes of a cluster of Kafka."""

    kind: ClassVar[str] = "kafka"

    topic: str


@dataclass(frozen=True)
class _FunctionSink(sink.Sink):
    """A ``function`` (``module:function``) of the user's. ``package`` says which folder the module lies in, if it lies
    beside the pipeline's file.
    """

    function: str
    package: str | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class FinalRowsSink(_FunctionSink):
    """A function that gets final rows."""

    kind: ClassVar[str] = "final_rows"


@dataclass(frozen=True)
class SparkSink(_FunctionSink):
    """A function that gives a target of Spark's."""

    kind: ClassVar[str] = "spark"


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


@keywords
def delta(path: str, *, connection: str, name: str | None = None) -> DeltaSink:
    """A Delta table that holds what readers see: key, window and values.

    ``path`` is where it is below the place of the ``connection``, whose URI is ``s3://key:secret@bucket/prefix`` or
    ``file:///folder`` (``HEADRACE_CONN_{NAME}``, or a connection of Airflow's). ``name`` is what the sink is called, by
    default as the path, with dots.

    >>> hr.delta("reports/sales", connection="lake").name
    'reports.sales'
    """
    given = Arguments("delta")
    if not _PATH.fullmatch(given.text("path", path, "reports/sales")):
        raise given.wrong(
            "path", path, "write folders below the connection's, as in reports/sales: no .. and no scheme"
        )
    return DeltaSink(sink_name(given, name, path.replace("/", ".")), connection_name(given, connection), path)


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


@keywords
def kafka_sink(topic: str, *, connection: str, name: str | None = None) -> KafkaSink:
    """A topic of Kafka that gets what happens to what readers see, as JSON: each pane and each retraction, in order.

    A record is an object with a number (``_change``), a sign (``_sign``: 1, or -1 for what is withdrawn), the epoch
    (``_epoch``), key, window and values; its own key is that of the row. Where ``published`` goes back, the rows that
    differ are withdrawn and put in place. What a delivery sends is one transaction. ``connection`` is a name; the
    environment says what it is, as for ``kafka``. The ``topic`` is there already, with the partitions and the retention
    that it is to have. ``name`` is what the sink is called, by default as the topic.

    >>> hr.kafka_sink("reports.sales", connection="events").name
    'reports.sales'
    """
    given = Arguments("kafka_sink")
    if not _TOPIC.fullmatch(given.text("topic", topic, "reports.sales")):
        raise given.wrong("topic", topic, "write letters, digits, ., - and _, at most 200")
    return KafkaSink(sink_name(given, name, topic[:100]), connection_name(given, connection), topic)


@keywords
def final_rows(function: str, *, connection: str | None = None, name: str | None = None) -> FinalRowsSink:
    """A function of yours that sends what nobody can take back (mail, a bill): it gets each row once it is final.

    ``function`` is ``module:function``; the module lies beside the pipeline's file, or is installed. It gets a
    ``FinalRows``: rows whose windows have expired, each with a column ``_id``, which stays the same if the row comes
    again. It may come again if a delivery is killed or fails, and never less than once. From the first row on, nothing
    goes back below what was handed over, unless a person says ``--give-up-delivered``. ``connection`` is the name of
    one that the function needs, if any (``rows.connection``). ``name`` is what the sink is called, by default as the
    function.

    >>> hr.final_rows("billing:send").name
    'send'
    """
    given = Arguments("final_rows")
    called = function_name(given, function, "billing:send")
    reached = "" if connection is None else connection_name(given, connection)
    return FinalRowsSink(sink_name(given, name, called), reached, function, package=current())


@keywords
def spark_sink(function: str, *, connection: str | None = None, name: str | None = None) -> SparkSink:
    """A target that Spark reaches and Headrace does not know (Snowflake, BigQuery, a JDBC database), as a class.

    ``function`` is ``module:function``, as a rule a class; the module lies beside the pipeline's file, or is installed.
    It is called with a session, which has ``spark`` (started when it is first used) and ``connection``, and gives an
    object with two methods. ``held()`` reads the text from the target that says which snapshot it holds, or gives None.
    ``apply(changes, before, after, replaces=...)`` writes a DataFrame of changes, and stores the text ``after`` in the
    same transaction, unless the target does not hold the text ``before``. ``connection`` is the name of one. ``name``
    is what the sink is called, by default as the function.

    >>> hr.spark_sink("targets:Reports", connection="oracle").name
    'Reports'
    """
    given = Arguments("spark_sink")
    called = function_name(given, function, "targets:Reports")
    reached = "" if connection is None else connection_name(given, connection)
    return SparkSink(sink_name(given, name, called), reached, function, package=current())
