"""A topic that gets what happened to ``current``, change by change.

What a delivery sends is one transaction, and in it what the topic holds then: a record of a topic beside it,
``headrace.deliveries``, whose newest record of a key counts. The transactions of all deliveries to a topic have one id.
So who begins one ends what another one has begun and not committed, and that one can commit nothing any more.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from aiokafka import AIOKafkaProducer
from aiokafka import errors as kafka_errors
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from headrace.connections import Connection
from headrace.model.panes import WINDOW_END
from headrace.read.diff.change_records import ChangeRecords
from headrace.read.diff.changes import EPOCH, SIGN
from headrace.sinks.open_sink import Held, OpenChangeLog, SinkMovedError, SinkRefusedError
from headrace.sources.formats.json_text import as_json
from headrace.sources.kafka.client import KafkaClient, settings_of
from headrace.sources.kafka.errors import UnknownTopicError
from headrace.sources.kafka.fetching import records as fetched_records
from headrace.sources.kafka.offsets import OffsetRange

if TYPE_CHECKING:
    import pyarrow as pa

DELIVERIES: Final = "headrace.deliveries"
"""The topic of what each topic holds."""

_TRANSACTION_MS: Final = 900_000
"""A delivery may take so long: what brokers allow at most, unless they are told otherwise."""

_AT_ONCE: Final = 10_000
"""So many records are on their way before their answers are waited for."""

_COPIES: Final = 3
"""Copies of what topics hold, if there are so many brokers."""

_OF_ALL: Final = b"{}"
"""The key of a record that is about all keys."""

_EXISTS: Final = kafka_errors.TopicAlreadyExistsError.errno


class ChangeTopic(OpenChangeLog):
    """A topic of changes, read by a ``client``."""

    def __init__(self, client: KafkaClient, connection: Connection, topic: str) -> None:
        self._client, self._connection, self._topic = client, connection, topic
        if topic == DELIVERIES:
            raise SinkRefusedError(f"topic {topic} says what other topics hold: name another one")

    def held(self) -> Held | None:
        try:
            topic = self._client.topic(DELIVERIES)
        except UnknownTopicError:
            return None
        newest = None
        for number, there in self._client.partitions(topic).items():
            table = fetched_records(self._client, topic, OffsetRange(number, there.first, there.end))
            for key, value in zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True):
                newest = value if key == self._topic.encode() and value is not None else newest
        return None if newest is None else Held(**json.loads(newest))

    def append(self, records: ChangeRecords, before: Held | None, after: Held) -> None:
        try:
            self._client.topic(self._topic)
        except UnknownTopicError as error:
            raise SinkRefusedError(
                f"{error}. Make it, with the partitions and the retention that it is to have (kafka-topics --create)"
            ) from None
        asyncio.run(self._append(records, before, after))

    async def _append(self, records: ChangeRecords, before: Held | None, after: Held) -> None:
        settings = settings_of(self._connection)
        if before is None:
            await _make_deliveries(settings)
        producer = AIOKafkaProducer(
            **settings, transactional_id=f"headrace.{self._topic}", transaction_timeout_ms=_TRANSACTION_MS
        )
        await producer.start()  # from here on, no other delivery commits
        try:
            if (now := await asyncio.to_thread(self.held)) != before:
                holds = "nothing" if now is None else f"snapshot {now.snapshot} of {now.pipeline}"
                raise SinkMovedError(
                    f"topic {self._topic} of {self._connection} holds {holds}, and did not when this delivery began: "
                    "another one came between. Nothing was changed; the next delivery continues from there"
                )
            async with producer.transaction():
                await self._send_all(producer, records)
                await producer.send_and_wait(DELIVERIES, _as_text(after), self._topic.encode())
        finally:
            await producer.stop()

    async def _send_all(self, producer: AIOKafkaProducer, records: ChangeRecords) -> None:
        for batch in records.batches():
            sent: list[Awaitable[Any]] = []
            for send in self._sends(producer, batch, await producer.partitions_for(self._topic)):
                sent.append(await send())
                if len(sent) == _AT_ONCE:
                    await asyncio.gather(*sent)
                    sent = []
            await asyncio.gather(*sent)

    def _sends(
        self, producer: AIOKafkaProducer, batch: "pa.RecordBatch", partitions: set[int]
    ) -> Iterator[Callable[[], Awaitable[Awaitable[Any]]]]:
        """A call for each record of ``batch``, in order. One that says that all before it is void goes everywhere."""
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        every = np.arange(batch.num_rows)
        values = as_json(columns, every, for_all=True).to_pylist()
        names = [*columns]
        identity = names[names.index(EPOCH) + 1 : names.index(WINDOW_END) + 1] if WINDOW_END in names else []
        keys = as_json({name: columns[name] for name in identity}, every, for_all=True).to_pylist() or [_OF_ALL]
        for key, value, sign in zip(keys, values, columns[SIGN].to_pylist(), strict=True):
            if sign:
                yield partial(producer.send, self._topic, value, key)
            else:
                for place in sorted(partitions):
                    yield partial(producer.send, self._topic, value, _OF_ALL, place)


def _as_text(held: Held) -> bytes:
    fields = {"root": held.root, "pipeline": held.pipeline, "output": held.output, "snapshot": held.snapshot}
    return json.dumps({**fields, "columns": dict(held.columns), "number": held.number}).encode()


async def _make_deliveries(settings: Mapping[str, Any]) -> None:
    """Make the topic of what topics hold, if there is none."""
    admin = AIOKafkaAdminClient(**settings)
    await admin.start()
    try:
        brokers = (await admin.describe_cluster())["brokers"]
        copies = min(_COPIES, len(brokers))
        wanted = NewTopic(DELIVERIES, 1, copies, topic_configs={"cleanup.policy": "compact"})
        answer = await admin.create_topics([wanted])
    finally:
        await admin.close()
    for _, code, *_ in answer.topic_errors:
        if code not in (0, _EXISTS):
            raise kafka_errors.for_code(code)(f"topic {DELIVERIES} cannot be made")
