"""Topics of Kafka: what a definition says of one, as a source and as a sink.

How the values of a topic are written in Avro: what a definition says of it.

What can be wrong with a topic, or with the registry of its schemas.
"""

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final, TypedDict, Unpack

from headrace.errors import FixConfigError, FixDataError, RetryError
from headrace.model.arguments import Arguments, keywords
from headrace.model.changelog import Changelog, WrittenChangelog, changelog_of
from headrace.model.expressions import columns as expression_columns
from headrace.model.expressions.data_types import DataType, ListType, in_words
from headrace.model.expressions.expr import col
from headrace.pipeline.endpoints import (
    OwnFunction,
    Sink,
    Source,
    connection_name,
    exploded_column,
    own_function,
    sink_name,
)


@dataclass(frozen=True)
class AvroValues:
    """What ``avro`` gives: the connection ``registry`` says with which schema a value was written, or all were written
    with ``schema``, which is text of JSON.
    """

    registry: str | None = None
    schema: str | None = None


@keywords
def avro(*, registry: str | None = None, schema: str | Mapping[str, Any] | None = None) -> AvroValues:
    """Values of a topic that are Avro: ``hr.kafka(..., values=hr.avro(registry="schemas"))``.

    ``registry`` is the name of a connection to a schema registry (``https://user:password@host:8081``), whose number
    for the schema stands before each value, as Confluent's serializers write it. Without one all values were written
    with the ``schema``, and nothing stands before them. Columns are fields of the schema with which a value was
    written. One that an older schema does not have is NULL. Raises PipelineError.

    >>> hr.avro(registry="schemas").registry
    'schemas'
    """
    given = Arguments("avro")
    if (registry is None) == (schema is None):
        raise given.wrong("registry", registry, "give either the connection of a registry, or the schema of all values")
    if registry is not None:
        return AvroValues(registry=connection_name(given, registry))
    try:
        written = json.loads(schema) if isinstance(schema, str) else schema
        text = json.dumps(written, sort_keys=True)
    except (ValueError, TypeError) as error:
        raise given.wrong("schema", schema, f"it is no JSON ({error})") from None
    if not isinstance(written, Mapping) or written.get("type") != "record":
        raise given.wrong(
            "schema", schema, 'columns are fields of a record: {"type": "record", "name": ..., "fields": [...]}'
        )
    return AvroValues(schema=text)


METADATA: Final[Mapping[str, tuple[expression_columns.ColumnType, ...]]] = {
    "kafka_partition": (DataType.INT,),
    "kafka_offset": (DataType.INT,),
    "kafka_timestamp": (DataType.TIMESTAMP,),
    "kafka_key": (DataType.STRING, DataType.BYTES),
    "kafka_headers": (ListType(DataType.STRING),),
}
"""Columns that Kafka itself says of a record, and what each may hold."""

_PARTITION: Final = "kafka_partition"


class KafkaReading(TypedDict, total=False):
    """How a topic is read: the arguments of ``kafka`` beside topic, schema and connection."""

    land: str
    on_lost: str
    max_files: int
    max_bytes: int
    max_rejected: int | None
    transform: OwnFunction | None
    explode: str | None
    values: AvroValues | None
    changelog: WrittenChangelog | None


@dataclass(frozen=True)
class KafkaSource(Source):
    """A ``topic`` of the cluster that the ``connection`` names. Written as ``kafka(...)``.

    ``land`` "always": each run writes what is new to the folder of its pipeline first; "never": the topic keeps its
    records for as long as snapshots live, and is read where it is. ``on_lost`` "skip": what the topic has lost before
    it was read is given up. ``values``: how they are written; None: each is a JSON object. ``changelog``: how they say
    whether they add a row or withdraw one.
    """

    kind: ClassVar[str] = "kafka"

    topic: str
    connection: str
    schema: expression_columns.SourceColumns
    land: str = "always"
    on_lost: str = "fail"
    max_files: int = 256
    max_bytes: int = 512 * 1024 * 1024
    max_rejected: int | None = None
    transform: OwnFunction | None = None
    explode: str | None = None
    values: AvroValues | None = None
    changelog: Changelog | None = None

    def __post_init__(self) -> None:
        given = Arguments("kafka")
        given.text("topic", self.topic, "orders")
        connection_name(given, self.connection)
        columns = expression_columns.columns_of_source(given, "schema", self.schema)
        object.__setattr__(self, "schema", {**columns, **({} if _PARTITION in columns else {_PARTITION: DataType.INT})})
        for name, value, choices in (
            ("land", self.land, ("always", "never")),
            ("on_lost", self.on_lost, ("fail", "skip")),
        ):
            if value not in choices:
                raise given.wrong(name, value, f'write "{choices[0]}" or "{choices[1]}"')
        for name in ("max_files", "max_bytes"):
            given.whole(name, getattr(self, name), least=1)
        if self.max_rejected is not None:
            given.whole("max_rejected", self.max_rejected, least=0)
        exploded_column(given, self.explode, self.schema, own_function(given, self.transform))
        if self.values is not None:
            given.instance("values", self.values, AvroValues, 'hr.avro(registry="schemas")')
        for name, kind in self.metadata.items():
            if kind not in METADATA[name]:
                kinds = " or ".join(map(in_words, METADATA[name]))
                raise given.wrong(
                    f"schema[{name!r}]",
                    in_words(kind),
                    f"Kafka says it as {kinds}; a field of the value that has "
                    f'this name is another column: {{"mine": field({name!r}, ...)}}',
                )
        changelog = changelog_of(given, self.changelog)
        object.__setattr__(self, "changelog", changelog)
        if changelog is not None:
            changelog.check(given, self.in_records)

    @cached_property
    def metadata(self) -> Mapping[str, expression_columns.ColumnType]:
        """The columns that Kafka says, by name."""
        return {
            name: column
            for name, column in self.schema.items()
            if name in METADATA and not isinstance(column, expression_columns.SourceField)
        }

    @property
    def place(self) -> str:
        """The connection and the topic."""
        return f"{self.connection}/{self.topic}"

    @property
    def is_durable(self) -> bool:
        """Whether it is read where it is."""
        return self.land == "never"

    @property
    def connections(self) -> tuple[str, ...]:
        """The connection to the cluster, and that to a registry of schemas."""
        registry = None if self.values is None else self.values.registry
        return (self.connection, *(() if registry is None else (registry,)))

    @property
    def plans_alike(self) -> bool:
        """Ranges end where a partition ended when they were planned."""
        return False

    @property
    def is_watched(self) -> bool:
        """A watcher asks where partitions end."""
        return True

    def watched_fields(self) -> dict[str, Any]:
        """What tells where partitions end: values, and what they mean, are for runs."""
        return {"topic": self.topic, "connection": self.connection, "land": self.land, "on_lost": self.on_lost}

    @property
    def skips_lost(self) -> bool:
        """Whether runs go on without what the topic has lost."""
        return self.on_lost == "skip"

    def __str__(self) -> str:
        return f"topic {self.topic} of connection {self.connection}"

    @property
    def own_split(self) -> expression_columns.Read:
        """The partition."""
        return col(_PARTITION).cast(str)


@keywords
def kafka(
    topic: str, schema: expression_columns.WrittenColumns, *, connection: str, **reading: Unpack[KafkaReading]
) -> KafkaSource:
    """The records of a ``topic`` of Kafka, whose values are JSON objects, one each, or ``values=hr.avro(...)``.

    ``connection`` is a name; the environment says what it is (``HEADRACE_CONN_{NAME}``), or Airflow does:
    ``kafka://user:password@host:9092?tls=true``. ``schema`` names columns of the values, and of what Kafka says of each
    record: ``kafka_partition`` and ``kafka_offset`` (int), ``kafka_timestamp``, ``kafka_key`` (str or bytes) and
    ``kafka_headers`` (``list[str]``, each as name=value). The watermark is the least of all partitions, unless
    ``event_time`` gets another ``split``.

    ``land`` "always": each run writes what is new to the folder of its pipeline first, and reads it from there, so what
    the topic deletes can still be read again. "never" is for topics that keep their records for as long as snapshots
    live. ``on_lost``: records that are gone before they were read, or a topic that was replaced, fail the run;
    "skip": it goes on without them, and says so. Transactions that were aborted are left out. ``changelog``:
    ``debezium_envelope()``, whose rows then have the ``schema``, or an expression that is 1 of a record which adds a
    row and -1 of one which withdraws it. A tombstone behind an envelope says nothing.

    >>> hr.kafka("orders", {"user": str, "at": datetime, "kafka_offset": int}, connection="events").place
    'events/orders'
    """
    return KafkaSource(topic, connection, schema, **reading)  # type: ignore[arg-type] # made columns by __post_init__


_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,200}")


@dataclass(frozen=True)
class KafkaSink(Sink):
    """A ``topic`` of changes of a cluster of Kafka."""

    kind: ClassVar[str] = "kafka"

    topic: str


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


_logger = logging.getLogger(__name__)


class KafkaRefusedError(FixConfigError, code="config.kafka_refused"):
    """The cluster does not let us in, or does not have the topic."""


class UnknownTopicError(KafkaRefusedError):
    """The cluster has no topic of that name."""


class KafkaUnreachableError(RetryError, code="retry.kafka_unreachable"):
    """The cluster does not answer, or has nobody who leads a partition."""


class TopicReplacedError(FixDataError, code="data.topic_replaced"):
    """Under the name of a topic there is another one: its offsets are not those that were read."""


class RecordsLostError(FixDataError, code="data.records_lost"):
    """Records are gone from a topic before anybody has read them."""


class RegistryRefusedError(FixConfigError, code="config.schema_registry"):
    """A registry of schemas does not answer as one, or does not let in."""


class RegistryUnreachableError(RetryError, code="retry.schema_registry"):
    """A registry of schemas does not answer."""


def lose(what: str, error: type[FixDataError], *, skips_lost: bool) -> None:
    """Raise the ``error``, which says ``what`` is lost, unless a source is to go on without; then that is logged."""
    if not skips_lost:
        raise error(f'{what}. on_lost="skip" of the source goes on without') from None
    _logger.warning("%s; it goes on without", what)
