"""A topic as a sink: it gets what happens to ``current``, change by change, and says what it holds.

A delivery sends one transaction, and in it what the topic holds then. That is a record of a topic beside it,
``headrace.deliveries.TOPIC``, whose newest record counts. The transactions of all deliveries to a topic have one id. So
a delivery that begins one ends what another has begun and not committed, and the other can commit nothing any more.

Each topic has such a topic of its own, since nobody reads what stands behind a transaction that is open. In one for
all, a transaction of a killed delivery would hide for minutes what other topics hold.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import pyarrow as pa
from aiokafka import AIOKafkaProducer
from aiokafka import errors as kafka_errors
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.partitioner import DefaultPartitioner

from headrace.connections import Connection
from headrace.connectors.kafka import client
from headrace.connectors.kafka.client import KafkaClient, Partition, Topic, settings_of
from headrace.connectors.kafka.client import read_records as fetched_records
from headrace.connectors.kafka.definition import KafkaUnreachableError, UnknownTopicError
from headrace.connectors.kafka.offsets import OffsetRange
from headrace.ext import sinks as sink_ports
from headrace.formats.fields import as_json
from headrace.model.expressions import data_types as types
from headrace.read.diff.target_comparison import ComparedColumnsError, text_as
from headrace.read.views.arrow_types import schema_of
from headrace.read.views.database import sql_identifier, sql_literal, sql_types, without_rows
from headrace.this_process import Size

if TYPE_CHECKING:
    import duckdb


_FIRST_OFFSETS: Final = 100
"""So many offsets are read at first; then by the length of what came."""

_BYTES: Final = 2**24
"""About so many bytes of records become columns at once."""

MOST_OFFSETS: Final = Size(50_000)


def stored_changes(
    client: KafkaClient, topic: Topic, partitions: Mapping[int, Partition], columns: Mapping[str, types.ValueType]
) -> pa.RecordBatchReader:
    """All records of ``partitions`` that were committed, with ``columns`` and what StoredRecords says of each. Records
    that the topic deletes meanwhile are left out. They come as columns, a part of a partition at a time, and Python
    sees no record. Raises ComparedColumnsError for lists of pairs.
    """
    record_columns = {
        sink_ports.RECORD_PLACE: types.DataType.INT,
        sink_ports.RECORD_AT: types.DataType.INT,
        sink_ports.RECORD_MISREAD: types.DataType.BOOL,
    }
    schema = schema_of(
        {sink_ports.NUMBER: types.DataType.INT, sink_ports.SIGN: types.DataType.INT, **columns, **record_columns}
    )
    query = _values_query({sink_ports.NUMBER: types.DataType.INT, sink_ports.SIGN: types.DataType.INT, **columns})

    def read_batches() -> Iterator[pa.RecordBatch]:
        with without_rows() as connection:
            for number, partition in partitions.items():
                for records in _fetch_records(client, topic, number, partition):
                    yield from _run_query(connection, records, query).cast(schema).to_batches()

    return pa.RecordBatchReader.from_batches(schema, read_batches())


def _fetch_records(client: KafkaClient, topic: Topic, number: int, partition: Partition) -> Iterator[pa.Table]:
    """The records of a partition, in parts of about one size."""
    offset, many = partition.first, _FIRST_OFFSETS
    while offset < partition.end:
        end = min(offset + many, partition.end)
        records = fetched_records(client, topic, OffsetRange(number, offset, end), skips_lost=True)
        if records.num_rows:
            yield records
        by_offset = max(1, records.nbytes // (end - offset))
        # the records behind may be longer than those that came, so what is read grows step by step
        many = max(1, min(_BYTES // by_offset, 4 * many, MOST_OFFSETS.value))
        offset = end


def _run_query(connection: "duckdb.DuckDBPyConnection", records: pa.Table, query: str) -> pa.Table:
    connection.register("fetched", records.select(["partition", "offset", "value"]))
    try:
        return connection.sql(query).to_arrow_table()
    finally:
        connection.unregister("fetched")


def _values_query(columns: Mapping[str, types.ValueType]) -> str:
    """SQL: values of ``columns`` in the objects that were ``fetched``, and whether one is none of its type."""
    names = [*columns]
    texts = [f"text_{number}" for number in range(len(names))]
    members = ", ".join(f"{_in_object(name, columns[name])} as {text}" for name, text in zip(names, texts, strict=True))
    values = {name: _value_expression(name, columns[name], text) for name, text in zip(names, texts, strict=True)}
    misread = " or ".join(
        [
            "object is null",
            *(f"({text} is not null and {value} is null)" for text, value in zip(texts, values.values(), strict=True)),
        ]
    )
    selected_columns = ", ".join(f"{value} as {sql_identifier(name)}" for name, value in values.items())
    return (
        f"select {selected_columns}, partition as {sink_ports.RECORD_PLACE}, offset_ as {sink_ports.RECORD_AT}, "
        f"{misread} as {sink_ports.RECORD_MISREAD} from "
        f"(select partition, offset_, object, {members} from (select partition, offset_, "
        "case when json_valid(text) and json_type(text) = 'OBJECT' then text end as object from "
        '(select partition, "offset" as offset_, try(decode("value")) as text from fetched)))'
    )


def _in_object(name: str, kind: types.ValueType) -> str:
    """SQL: what an object has under a name: text, or a list of texts."""
    pointer = sql_literal("/" + name.replace("~", "~0").replace("/", "~1"))
    match kind:
        case (
            types.PairsType()
            | types.StructType()
            | types.MapType()
            | types.ListType(types.ListType() | types.StructType() | types.MapType())
        ):
            raise ComparedColumnsError(f"column {name!r} is a {types.in_words(kind)}, which is not read from a topic")
        case types.ListType():
            return f"try(cast(json_extract(object, {pointer}) as varchar[]))"
    return f"json_extract_string(object, {pointer})"


def _value_expression(name: str, kind: types.ValueType, text: str) -> str:
    """SQL: a text as a value of a ``kind``; NULL if it is none."""
    if isinstance(kind, types.ListType):
        item = _value_expression(name, kind.item, "item")
        return f"[{item} for item in {text}]"
    assert isinstance(kind, types.DataType)
    sql_type = sql_types({name: kind})[name]
    match kind:
        case types.DataType.STRING:
            return text
        case types.DataType.BYTES:
            return f"try(from_base64({text}))"
        case types.DataType.INT:  # a cast rounds
            return f"case when regexp_full_match({text}, '-?[0-9]+') then try_cast({text} as {sql_type}) end"
    return f"try_cast({text_as(text, kind)} as {sql_type})"


PATIENCE: Final = Size(60.0)
"""For so many seconds a cluster may acknowledge nothing at all."""

_TRANSACTION_MS: Final = 900_000
"""A transaction may take so long: what brokers allow at most, unless they are told otherwise."""

END_SECONDS: Final = Size(5.0)
"""So long a producer has to end."""

Result = TypeVar("Result")


class Patience:
    """How long a cluster is waited for, which a ``connection`` names. The producer of aiokafka tries again without end
    while a broker is away. It does so for its id, for each batch, for the end of a transaction, and for all of them
    once more as it stops.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def wait_for(self, step: Awaitable[Result]) -> Result:
        """What ``step`` gives. Raises KafkaUnreachableError if that takes too long."""
        try:
            async with asyncio.timeout(PATIENCE.value):
                return await step
        except TimeoutError:
            raise KafkaUnreachableError(
                f"{self._connection}: it has acknowledged nothing for {PATIENCE.value:g} seconds. Nothing was "
                "delivered, or all of it if the last answer was lost"
            ) from None

    async def wait_for_acks(self, records: Sequence[asyncio.Future[Any]]) -> None:
        """Wait for all ``records`` that were sent. Raises KafkaUnreachableError if one comes too late after another."""
        for record in records:
            if not record.done():
                await self.wait_for(asyncio.wait([record]))
            record.result()


@asynccontextmanager
async def start_producer(
    connection: Connection, transactional_id: str, patience: Patience
) -> AsyncIterator[AIOKafkaProducer]:
    """A producer; from here on no other one of its id commits. Raises KafkaUnreachableError, KafkaRefusedError, and
    errors of Kafka's.
    """
    producer = AIOKafkaProducer(
        **settings_of(connection),
        transactional_id=transactional_id,
        transaction_timeout_ms=_TRANSACTION_MS,
        request_timeout_ms=client.REQUEST_MS.value,
    )
    try:
        await patience.wait_for(producer.start())
        yield producer
    finally:
        await _stop_producer(producer)


@asynccontextmanager
async def transaction(producer: AIOKafkaProducer, patience: Patience) -> AsyncIterator[None]:
    """What is sent inside is committed at its end, or aborted if something is raised. Where the cluster does not answer
    the next producer of the id aborts it, or the cluster does.
    """
    open_one = producer.transaction()
    await patience.wait_for(open_one.__aenter__())
    try:
        yield
    # to abort it would wait for the same cluster; the next producer of the id does
    except KafkaUnreachableError:
        raise
    except BaseException as error:
        await patience.wait_for(open_one.__aexit__(type(error), error, error.__traceback__))
        raise
    await patience.wait_for(open_one.__aexit__(None, None, None))


async def _stop_producer(producer: AIOKafkaProducer) -> None:
    """Stop it, though its cluster may not answer: what it has not sent then is of a transaction that has failed."""
    try:
        async with asyncio.timeout(END_SECONDS.value):
            await producer.stop()
    except TimeoutError:
        await producer.client.close()


DELIVERIES: Final = "headrace.deliveries."
"""With this before its name: the topic of what a topic holds."""

_RECORDS_UNDERWAY: Final = 10_000
"""So many records are on their way before their answers are waited for."""

_COPIES: Final = 3
"""Copies of what topics hold, if there are so many brokers."""

_OFFSETS_LOOKED_AT: Final = 1_000
"""So many offsets are looked at first, for a record that counts."""

_OF_ALL: Final = b"{}"
"""The key of a record that is about all keys."""

_PARTITIONS_HELD: Final = "partitions"
"""What is stored of a topic: the number of partitions that it had at first."""

_BY_KEY: Final = DefaultPartitioner()
"""Where a key belongs, as Kafka's own producers say it."""

_EXISTS: Final = kafka_errors.TopicAlreadyExistsError.errno


class ChangeTopic(sink_ports.OpenChangeLog):
    """A topic of changes, read by a ``reader``."""

    def __init__(self, reader: KafkaClient, connection: Connection, topic: str) -> None:
        self._reader, self._connection, self._topic = reader, connection, topic
        self._deliveries = f"{DELIVERIES}{topic}"
        self._noted_partitions: int | None = None
        self._partitions = 0
        """Keys are spread over so many: those that it had as what it holds began, so they stay if it gets more."""
        if topic.startswith(DELIVERIES):
            raise sink_ports.SinkRefusedError(
                f"topic {topic} says what another topic holds: Headrace keeps all topics {DELIVERIES}... for that. "
                "Name another one"
            )

    def held(self) -> sink_ports.SinkState | None:
        try:
            topic = self._reader.find_topic(self._deliveries)
        except UnknownTopicError:
            return None
        newest = None
        for number, partition in self._reader.partitions(topic).items():
            table = fetched_records(self._reader, topic, OffsetRange(number, partition.first, partition.end))
            for key, value in zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True):
                newest = value if key == self._topic.encode() and value is not None else newest
        if newest is None:
            return None
        state_fields = json.loads(newest)
        self._noted_partitions = state_fields.pop(_PARTITIONS_HELD, None)
        return sink_ports.SinkState(**state_fields)

    def intervention(self, held: sink_ports.SinkState) -> sink_ports.Intervention | None:
        """Records that others have sent to it cannot be seen."""
        if held.identity is None:
            return None
        try:
            topic = self._reader.find_topic(self._topic)
        except UnknownTopicError:
            return sink_ports.Intervention("was dropped")
        return None if topic.id == held.identity else sink_ports.Intervention("was made again")

    def unknown_records(self) -> int:
        """The end offsets of all partitions, since each record has taken an offset, also in deliveries that were
        killed. A topic in which nothing was committed has none.
        """
        try:
            topic = self._reader.find_topic(self._topic)
        except UnknownTopicError:
            return 0
        partitions = self._reader.partitions(topic)
        has_some = any(self._has_records(topic, number, partition) for number, partition in partitions.items())
        return sum(partition.end for partition in partitions.values()) if has_some else 0

    def _has_records(self, topic: Topic, number: int, partition: Partition) -> bool:
        """Whether a partition has a record of a transaction that was committed; the newest are looked at first."""
        end, many = partition.end, _OFFSETS_LOOKED_AT
        while end > partition.first:
            begin = max(partition.first, end - many)
            if fetched_records(self._reader, topic, OffsetRange(number, begin, end)).num_rows:
                return True
            end, many = begin, 2 * many
        return False

    @contextmanager
    def records(self, columns: Mapping[str, types.ValueType]) -> Iterator[sink_ports.StoredRecords]:
        topic = self._reader.find_topic(self._topic)
        partitions = self._reader.partitions(topic)
        begins = {number: partition.first for number, partition in partitions.items() if partition.first}
        yield sink_ports.StoredRecords(
            stored_changes(self._reader, topic, partitions, columns), begins, is_compacted=True
        )

    def append(
        self, records: sink_ports.ChangeRecords, before: sink_ports.SinkState | None, after: sink_ports.SinkState
    ) -> None:
        try:
            topic = self._reader.find_topic(self._topic)
        except UnknownTopicError as error:
            raise sink_ports.SinkRefusedError(
                f"{error}. Make it, with the partitions and the retention that it is to have (kafka-topics --create)"
            ) from None
        begins = records.restarts or before is None or self._noted_partitions is None
        self._partitions = len(topic.leaders) if begins else self._noted_partitions or 0
        asyncio.run(self._append(records, before, replace(after, identity=topic.id)))

    async def _append(
        self, records: sink_ports.ChangeRecords, old_state: sink_ports.SinkState | None, new_state: sink_ports.SinkState
    ) -> None:
        patience = Patience(self._connection)
        if old_state is None:
            await patience.wait_for(_create_topic(self._deliveries, settings_of(self._connection)))
        async with start_producer(self._connection, f"headrace.{self._topic}", patience) as producer:
            # only now: since its producer has started, no other delivery to this topic commits
            if (now := await asyncio.to_thread(self.held)) != old_state:
                holds = "nothing" if now is None else f"snapshot {now.snapshot} of {now.pipeline}"
                raise sink_ports.SinkMovedError(
                    f"topic {self._topic} of {self._connection} holds {holds}, and did not when this delivery began: "
                    "another one came between. Nothing was changed; the next delivery continues from there"
                )
            if (await asyncio.to_thread(self._reader.find_topic, self._topic)).id != new_state.identity:
                raise sink_ports.SinkMovedError(
                    f"topic {self._topic} of {self._connection} was made again while it was delivered to. Nothing was "
                    "changed; the next delivery fills it again"
                )
            async with transaction(producer, patience):
                await self._send_all(producer, records, patience)
                # in the same transaction, so that the topic and what is said of it change together
                send_future = await patience.wait_for(
                    producer.send(self._deliveries, self._as_text(new_state), self._topic.encode())
                )
                await patience.wait_for(send_future)

    async def _send_all(
        self, producer: AIOKafkaProducer, records: sink_ports.ChangeRecords, patience: Patience
    ) -> None:
        for batch in records.batches():
            pending: list[asyncio.Future[Any]] = []
            partitions = await patience.wait_for(producer.partitions_for(self._topic))
            for send in self._send_calls(producer, batch, records.identity, partitions):
                record = await send()  # which has a time limit of its own
                record.add_done_callback(_looked_at)
                pending.append(record)
                if len(pending) == _RECORDS_UNDERWAY:
                    await patience.wait_for_acks(pending)
                    pending = []
            await patience.wait_for_acks(pending)

    def _send_calls(
        self, producer: AIOKafkaProducer, batch: "pa.RecordBatch", identity: Sequence[str], partitions: set[int]
    ) -> Iterator[Callable[[], Awaitable[asyncio.Future[Any]]]]:
        """A call for each record of ``batch``, in order. One that says that all before it is void goes everywhere."""
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        every = np.arange(batch.num_rows)
        values = as_json(columns, every, for_all=True).to_pylist()
        key_names = [name for name in identity if name in columns]
        keys = as_json({name: columns[name] for name in key_names}, every, for_all=True).to_pylist() or [_OF_ALL]
        places = [*range(self._partitions)]
        for key, value, sign in zip(keys, values, columns[sink_ports.SIGN].to_pylist(), strict=True):
            if sign:
                yield partial(producer.send, self._topic, value, key, _BY_KEY(key, places, places))
            else:
                for place in sorted(partitions):
                    yield partial(producer.send, self._topic, value, _OF_ALL, place)

    def _as_text(self, sink_state: sink_ports.SinkState) -> bytes:
        return json.dumps({**asdict(sink_state), _PARTITIONS_HELD: self._partitions}).encode()


def _looked_at(record: asyncio.Future[Any]) -> None:
    """Say that somebody knows how it ended: of many that fail, the first is told."""
    if not record.cancelled():
        record.exception()


async def _create_topic(deliveries: str, settings: Mapping[str, Any]) -> None:
    """Make the topic of what a topic holds, if there is none."""
    admin = AIOKafkaAdminClient(**settings, request_timeout_ms=client.REQUEST_MS.value)
    try:
        await admin.start()
        brokers = (await admin.describe_cluster())["brokers"]
        copies = min(_COPIES, len(brokers))
        answer = await admin.create_topics(
            [NewTopic(deliveries, 1, copies, topic_configs={"cleanup.policy": "compact"})]
        )
    finally:
        await admin.close()
    for _, code, *_ in answer.topic_errors:
        if code not in (0, _EXISTS):
            raise kafka_errors.for_code(code)(f"topic {deliveries} cannot be made")
