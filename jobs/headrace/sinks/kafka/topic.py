"""A topic that gets what happened to ``current``, change by change.

What a delivery sends is one transaction, and in it what the topic holds then: a record of a topic beside it,
``headrace.deliveries.TOPIC``, whose newest record counts. The transactions of all deliveries to a topic have one id. So
who begins one ends what another one has begun and not committed, and that one can commit nothing any more.

Topics have one of their own, since nobody reads what stands behind a transaction that is open: one that was killed
would hide for minutes what others hold.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from aiokafka import AIOKafkaProducer
from aiokafka import errors as kafka_errors
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.partitioner import DefaultPartitioner

from headrace.connections import Connection
from headrace.ext.sinks import (
    EPOCH,
    SIGN,
    ChangeRecords,
    Intervention,
    OpenChangeLog,
    SinkMovedError,
    SinkRefusedError,
    SinkState,
    StoredRecords,
)
from headrace.formats.fields import as_json
from headrace.model.accumulation import WINDOW_END
from headrace.model.expressions.data_types import ValueType
from headrace.sinks.kafka.stored_changes import stored_changes
from headrace.sinks.kafka.transaction import Patience, started, transaction
from headrace.sources.kafka import client
from headrace.sources.kafka.client import KafkaClient, Partition, Topic, settings_of
from headrace.sources.kafka.errors import UnknownTopicError
from headrace.sources.kafka.fetching import records as fetched_records
from headrace.sources.kafka.offsets import OffsetRange

if TYPE_CHECKING:
    import pyarrow as pa

DELIVERIES: Final = "headrace.deliveries."
"""With this before its name: the topic of what a topic holds."""

_AT_ONCE: Final = 10_000
"""So many records are on their way before their answers are waited for."""

_COPIES: Final = 3
"""Copies of what topics hold, if there are so many brokers."""

_LOOKED_AT: Final = 1_000
"""So many offsets are looked at first, for a record that counts."""

_OF_ALL: Final = b"{}"
"""The key of a record that is about all keys."""

_PARTITIONS: Final = "partitions"
"""Of what a topic holds: how many it had at first."""

_BY_KEY: Final = DefaultPartitioner()
"""Where a key belongs, as Kafka's own producers say it."""

_EXISTS: Final = kafka_errors.TopicAlreadyExistsError.errno


class ChangeTopic(OpenChangeLog):
    """A topic of changes, read by a ``reader``."""

    def __init__(self, reader: KafkaClient, connection: Connection, topic: str) -> None:
        self._reader, self._connection, self._topic = reader, connection, topic
        self._deliveries = f"{DELIVERIES}{topic}"
        self._noted_partitions: int | None = None
        self._partitions = 0
        """Keys are spread over so many: those that it had as what it holds began, so they stay if it gets more."""
        if topic.startswith(DELIVERIES):
            raise SinkRefusedError(f"topic {topic} says what another topic holds: name another one")

    def held(self) -> SinkState | None:
        try:
            topic = self._reader.topic(self._deliveries)
        except UnknownTopicError:
            return None
        newest = None
        for number, there in self._reader.partitions(topic).items():
            table = fetched_records(self._reader, topic, OffsetRange(number, there.first, there.end))
            for key, value in zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True):
                newest = value if key == self._topic.encode() and value is not None else newest
        if newest is None:
            return None
        noted = json.loads(newest)
        self._noted_partitions = noted.pop(_PARTITIONS, None)
        return SinkState(**noted)

    def intervention(self, held: SinkState) -> Intervention | None:
        """Records that others have sent to it cannot be seen."""
        if held.identity is None:
            return None
        try:
            topic = self._reader.topic(self._topic)
        except UnknownTopicError:
            return Intervention("was dropped")
        return None if topic.id == held.identity else Intervention("was made again")

    def unknown_records(self) -> int:
        """Each record has taken an offset of its partition, and so have those of deliveries that were killed: a topic
        in which nothing was committed has none.
        """
        try:
            topic = self._reader.topic(self._topic)
        except UnknownTopicError:
            return 0
        partitions = self._reader.partitions(topic)
        has_some = any(self._has_records(topic, number, there) for number, there in partitions.items())
        return sum(there.end for there in partitions.values()) if has_some else 0

    def _has_records(self, topic: Topic, number: int, there: Partition) -> bool:
        """Whether a partition has a record of a transaction that was committed; the newest are looked at first."""
        end, many = there.end, _LOOKED_AT
        while end > there.first:
            begin = max(there.first, end - many)
            if fetched_records(self._reader, topic, OffsetRange(number, begin, end)).num_rows:
                return True
            end, many = begin, 2 * many
        return False

    @contextmanager
    def records(self, columns: Mapping[str, ValueType]) -> Iterator[StoredRecords]:
        topic = self._reader.topic(self._topic)
        partitions = self._reader.partitions(topic)
        begins = {number: there.first for number, there in partitions.items() if there.first}
        yield StoredRecords(stored_changes(self._reader, topic, partitions, columns), begins, is_compacted=True)

    def append(self, records: ChangeRecords, before: SinkState | None, after: SinkState) -> None:
        try:
            topic = self._reader.topic(self._topic)
        except UnknownTopicError as error:
            raise SinkRefusedError(
                f"{error}. Make it, with the partitions and the retention that it is to have (kafka-topics --create)"
            ) from None
        begins = records.restarts or before is None or self._noted_partitions is None
        self._partitions = len(topic.leaders) if begins else self._noted_partitions or 0
        asyncio.run(self._append(records, before, replace(after, identity=topic.id)))

    async def _append(self, records: ChangeRecords, before: SinkState | None, after: SinkState) -> None:
        patience = Patience(self._connection)
        if before is None:
            await patience.of(_make(self._deliveries, settings_of(self._connection)))
        async with started(self._connection, f"headrace.{self._topic}", patience) as producer:
            if (now := await asyncio.to_thread(self.held)) != before:
                holds = "nothing" if now is None else f"snapshot {now.snapshot} of {now.pipeline}"
                raise SinkMovedError(
                    f"topic {self._topic} of {self._connection} holds {holds}, and did not when this delivery began: "
                    "another one came between. Nothing was changed; the next delivery continues from there"
                )
            if (await asyncio.to_thread(self._reader.topic, self._topic)).id != after.identity:
                raise SinkMovedError(
                    f"topic {self._topic} of {self._connection} was made again while it was delivered to. Nothing was "
                    "changed; the next delivery fills it again"
                )
            async with transaction(producer, patience):
                await self._send_all(producer, records, patience)
                held = await patience.of(producer.send(self._deliveries, self._as_text(after), self._topic.encode()))
                await patience.of(held)

    async def _send_all(self, producer: AIOKafkaProducer, records: ChangeRecords, patience: Patience) -> None:
        for batch in records.batches():
            sent: list[asyncio.Future[Any]] = []
            partitions = await patience.of(producer.partitions_for(self._topic))
            for send in self._sends(producer, batch, partitions):
                record = await send()  # which has a time limit of its own
                record.add_done_callback(_looked_at)
                sent.append(record)
                if len(sent) == _AT_ONCE:
                    await patience.acknowledged(sent)
                    sent = []
            await patience.acknowledged(sent)

    def _sends(
        self, producer: AIOKafkaProducer, batch: "pa.RecordBatch", partitions: set[int]
    ) -> Iterator[Callable[[], Awaitable[asyncio.Future[Any]]]]:
        """A call for each record of ``batch``, in order. One that says that all before it is void goes everywhere."""
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        every = np.arange(batch.num_rows)
        values = as_json(columns, every, for_all=True).to_pylist()
        names = [*columns]
        identity = names[names.index(EPOCH) + 1 : names.index(WINDOW_END) + 1] if WINDOW_END in names else []
        keys = as_json({name: columns[name] for name in identity}, every, for_all=True).to_pylist() or [_OF_ALL]
        places = [*range(self._partitions)]
        for key, value, sign in zip(keys, values, columns[SIGN].to_pylist(), strict=True):
            if sign:
                yield partial(producer.send, self._topic, value, key, _BY_KEY(key, places, places))
            else:
                for place in sorted(partitions):
                    yield partial(producer.send, self._topic, value, _OF_ALL, place)

    def _as_text(self, held: SinkState) -> bytes:
        return json.dumps({**asdict(held), _PARTITIONS: self._partitions}).encode()


def _looked_at(record: asyncio.Future[Any]) -> None:
    """Say that somebody knows how it ended: of many that fail, the first is told."""
    if not record.cancelled():
        record.exception()


async def _make(deliveries: str, settings: Mapping[str, Any]) -> None:
    """Make the topic of what a topic holds, if there is none."""
    admin = AIOKafkaAdminClient(**settings, request_timeout_ms=client.REQUEST_MS)
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
