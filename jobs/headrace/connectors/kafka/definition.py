"""Topics of Kafka as a source and as a sink: what a definition says of one, and what can be wrong with it.

``AvroValues`` says how the values of a topic are written in Avro. Errors are about a topic, or about the registry of
its schemas.
"""

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final, TypedDict, Unpack

from headrace.errors import FixConfigError, FixDataError, RetryError
from headrace.model.arguments import Arguments, check_keywords
from headrace.model.changelog import Changelog, Versions, WrittenChangelog, changelog_of, versions_of
from headrace.model.expressions import columns as expression_columns
from headrace.model.expressions.data_types import DataType, ListType, in_words
from headrace.model.expressions.expr import Expr, col
from headrace.model.expressions.typing import columns_of
from headrace.pipeline.endpoints import (
    OwnFunction,
    Sink,
    Source,
    connection_name,
    exploded_column,
    own_function,
    sink_name,
    with_objects,
)


@dataclass(frozen=True)
class AvroValues:
    """What ``avro`` gives: the connection ``registry`` says with which schema a value was written, or all were written
    with ``schema``, which is text of JSON.
    """

    registry: str | None = None
    schema: str | None = None


@check_keywords
def avro(*, registry: str | None = None, schema: str | Mapping[str, Any] | None = None) -> AvroValues:
    """Values of a topic that are Avro: ``hr.kafka(..., values=hr.avro(registry="schemas"))``.

    ``registry`` is the name of a connection to a schema registry (``https://user:password@host:8081``). The number that
    the registry has for the schema stands before each value, as Confluent's serializers write it. Without one all
    values were written with the ``schema``, and nothing stands before them. Columns are fields of the schema with which
    a value was written. One that an older schema does not have is NULL. Raises PipelineError.

    >>> hr.avro(registry="schemas").registry
    'schemas'
    """
    arguments = Arguments("avro")
    if (registry is None) == (schema is None):
        raise arguments.refusal(
            "registry", registry, "give either the connection of a registry, or the schema of all values"
        )
    if registry is not None:
        return AvroValues(registry=connection_name(arguments, registry))
    try:
        schema_value = json.loads(schema) if isinstance(schema, str) else schema
        text = json.dumps(schema_value, sort_keys=True)
    except (ValueError, TypeError) as error:
        raise arguments.refusal("schema", schema, f"it is no JSON ({error})") from None
    if not isinstance(schema_value, Mapping) or schema_value.get("type") != "record":
        raise arguments.refusal(
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
_OFFSET: Final = "kafka_offset"


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
    versions: Versions | None


@dataclass(frozen=True)
class KafkaSource(Source):
    """A ``topic`` of the cluster that the ``connection`` names. Written as ``kafka(...)``.

    ``land`` "always": each run writes what is new to the folder of its pipeline first; "never": the topic keeps its
    records for as long as snapshots live, and is read where it is. ``on_lost`` "skip": what the topic has lost before
    it was read is given up. ``values``: how they are written; None: each is a JSON object. ``changelog``: how they say
    whether they add a row or withdraw one. ``versions``: how they are versions of rows.
    """

    kind: ClassVar[str] = "kafka"
    is_watched = True
    plans_alike = False  # ranges end where a partition ended when they were planned
    has_keyed_messages: ClassVar[bool] = True

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
    versions: Versions | None = None

    def __post_init__(self) -> None:
        arguments = Arguments("kafka")
        arguments.text("topic", self.topic, "orders")
        connection_name(arguments, self.connection)
        columns = expression_columns.columns_of_source(arguments, "schema", self.schema)
        changelog = changelog_of(arguments, self.changelog)
        object.__setattr__(self, "changelog", changelog)
        object.__setattr__(self, "versions", versions_of(arguments, self.versions, changelog, self.position))
        own = [_PARTITION, *([_OFFSET] if self.goes_by_offset else [])]
        object.__setattr__(self, "schema", {**columns, **{name: DataType.INT for name in own if name not in columns}})
        for name, value, choices in (
            ("land", self.land, ("always", "never")),
            ("on_lost", self.on_lost, ("fail", "skip")),
        ):
            if value not in choices:
                raise arguments.refusal(name, value, f'write "{choices[0]}" or "{choices[1]}"')
        for name in ("max_files", "max_bytes"):
            arguments.whole_number(name, getattr(self, name), least=1)
        if self.max_rejected is not None:
            arguments.whole_number("max_rejected", self.max_rejected, least=0)
        exploded_column(arguments, self.explode, self.schema, own_function(arguments, self.transform))
        instead_hint = "" if self.values is None else "of JSON they are"
        object.__setattr__(self, "schema", with_objects(arguments, self.explode, self.schema, instead_hint))
        if self.values is not None:
            arguments.instance("values", self.values, AvroValues, 'hr.avro(registry="schemas")')
        for name, kind in self.metadata.items():
            if kind not in METADATA[name]:
                kinds = " or ".join(map(in_words, METADATA[name]))
                raise arguments.refusal(
                    f"schema[{name!r}]",
                    in_words(kind),
                    f"Kafka says it as {kinds}; a field of the value that has "
                    f'this name is another column: {{"mine": field({name!r}, ...)}}',
                )
        if changelog is not None:
            changelog.check(arguments, self.in_records)
        if self.goes_by_offset:
            self._check_offsets(arguments)

    def _check_offsets(self, arguments: Arguments) -> None:
        """Raise PipelineError if offsets would not order versions."""
        if _OFFSET not in self.metadata:
            why = f"they go by the offset, and {_OFFSET} is a field of the value: rename that"
            raise arguments.refusal("versions", self.versions, why)
        if self.skips_lost:
            raise arguments.refusal(
                "on_lost",
                self.on_lost,
                "versions go by the offset, which begins again in a topic that replaces this one. What is lost may "
                'be the last version of a row: leave it out, or name another order, upserts("id", order="version")',
            )

    @property
    def goes_by_offset(self) -> bool:
        """Whether offsets say which version of a row counts."""
        order = None if self.versions is None else self.versions.order
        return order is not None and _OFFSET in columns_of(order)

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
    def position(self) -> Expr:
        """The offset."""
        return col(_OFFSET)

    @property
    def own_split(self) -> expression_columns.Read:
        """The partition."""
        return col(_PARTITION).cast(str)


@check_keywords
def kafka(
    topic: str, schema: expression_columns.WrittenColumns, *, connection: str, **reading: Unpack[KafkaReading]
) -> KafkaSource:
    """The records of a ``topic`` of Kafka, whose values are JSON objects, one each, or ``values=hr.avro(...)``.

    ``connection`` is a name; the environment says what it is (``HEADRACE_CONN_{NAME}``), or Airflow does:
    ``kafka://user:password@host:9092?tls=true``. ``schema`` names columns of the values, and of what Kafka says of each
    record. The latter are ``kafka_partition`` and ``kafka_offset`` (int), ``kafka_timestamp``, ``kafka_key`` (str or
    bytes) and ``kafka_headers`` (``list[str]``, each as name=value). The watermark is the least of all partitions,
    unless ``event_time`` gets another ``split``.

    ``land`` "always": each run first writes what is new to its pipeline's folder, and reads it from there. So records
    can still be read again after the topic has deleted them. "never" is for topics that keep their records for as long
    as snapshots live. ``on_lost``: records that are gone before they were read, or a topic that was replaced, fail the
    run; "skip": it goes on without them, and says so. Transactions that were aborted are left out. ``changelog`` is
    ``debezium_envelope()``, whose rows then have the ``schema``, or an expression: 1 where a record adds a row, -1
    where it withdraws one. A tombstone behind an envelope says nothing. ``versions``: records are versions of rows,
    ``upserts("id")`` or ``debezium_versions()``; a message without a value deletes the row that its key names. The
    other arguments of ``reading`` are those of ``FileSource``.

    >>> hr.kafka("orders", {"user": str, "at": datetime, "kafka_offset": int}, connection="events").place
    'events/orders'
    """
    return KafkaSource(topic, connection, schema, **reading)  # type: ignore[arg-type] # made columns by __post_init__


@dataclass(frozen=True)
class KafkaSink(Sink):
    """A ``topic`` of changes of a cluster of Kafka."""

    kind: ClassVar[str] = "kafka"

    topic: str


_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,200}")


@check_keywords
def kafka_sink(topic: str, *, connection: str, name: str | None = None) -> KafkaSink:
    """A topic of Kafka that gets what happens to what readers see, as JSON: each pane and each retraction, in order.

    A record is an object with a number (``_change``), a sign (``_sign``: 1, or -1 for what is withdrawn), and the epoch
    (``_epoch``). It also has key, window and values; its own key is that of the row. Where ``published`` goes back, the
    rows that differ are withdrawn and put in place. What a delivery sends is one transaction. ``connection`` is a name;
    the environment says what it is, as for ``kafka``. The ``topic`` is there already, with the partitions and the
    retention that it is to have. ``name`` is what the sink is called, by default as the topic.

    >>> hr.kafka_sink("reports.sales", connection="events").name
    'reports.sales'
    """
    arguments = Arguments("kafka_sink")
    if not _TOPIC.fullmatch(arguments.text("topic", topic, "reports.sales")):
        raise arguments.refusal("topic", topic, "write letters, digits, ., - and _, at most 200")
    return KafkaSink(sink_name(arguments, name, topic[:100]), connection_name(arguments, connection), topic)


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


class PartitionsAddedError(FixDataError, code="data.partitions_added"):
    """A topic has more partitions than were read before, and versions of rows in it go by their offsets."""


class RegistryRefusedError(FixConfigError, code="config.schema_registry"):
    """A registry of schemas does not answer as one, or does not let in."""


class RegistryUnreachableError(RetryError, code="retry.schema_registry"):
    """A registry of schemas does not answer."""


def raise_or_log_loss(what: str, error: type[FixDataError], *, skips_lost: bool) -> None:
    """Raise the ``error``, which says ``what`` is lost, unless a source is to go on without; then that is logged."""
    if not skips_lost:
        raise error(f'{what}. on_lost="skip" of the source goes on without') from None
    _logger.warning("%s; it goes on without", what)
