"""Topics of a real broker for tests: made, written, compacted and emptied by aiokafka's own producer and admin."""

import asyncio
import json
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.structs import TopicPartition

from headrace.connections import Connection
from headrace.connectors.kafka.client import KafkaClient, read_records
from headrace.connectors.kafka.offsets import OffsetRange

Result = TypeVar("Result")
Message = tuple[bytes | None, bytes | None]
"""A key and a value."""


@dataclass(frozen=True)
class Topics:
    """Topics of the broker at ``address``."""

    address: str

    def make(self, name: str, partitions: int = 1, **settings: str) -> None:
        """A topic, which is there when this returns."""
        configs = {key.replace("_", "."): value for key, value in settings.items()}
        self._admin(lambda admin: admin.create_topics([NewTopic(name, partitions, 1, topic_configs=configs)]))

    def remove(self, name: str) -> None:
        self._admin(lambda admin: admin.delete_topics([name]))

    def divide(self, name: str, partitions: int) -> None:
        """From now on it has so many partitions."""
        self._admin(lambda admin: admin.create_partitions({name: NewPartitions(partitions)}))

    def delete_before(self, name: str, partition: int, offset: int) -> None:
        """Delete records, as retention does."""
        deletions = {TopicPartition(name, partition): RecordsToDelete(before_offset=offset)}
        self._admin(lambda admin: admin.delete_records(deletions))

    def send(self, name: str, messages: Sequence[Message], partition: int | None = None, **more: Any) -> None:
        """Send messages in order; ``more`` goes to the producer (``compression_type``)."""

        async def all_of(producer: AIOKafkaProducer) -> None:
            deliveries = [await producer.send(name, value, key, partition) for key, value in messages]
            await asyncio.gather(*deliveries)

        self.produce(all_of, **more)

    def send_json(self, name: str, records: Sequence[Mapping[str, Any]], partition: int | None = None) -> None:
        self.send(name, [(None, json.dumps(record).encode()) for record in records], partition)

    def committed_records(self, name: str, *, patience: float = 5) -> list[tuple[int, bytes | None, bytes | None]]:
        """Partition, key and value of each record that a consumer sees which waits for transactions. A broker ends
        them a little after it has said so, which is waited for, for ``patience`` seconds at most.
        """
        with KafkaClient(Connection("events", "kafka", *_host_and_port(self.address))) as client:
            topic = client.find_topic(name)
            ends = self._ends(name, [*client.partitions(topic)])
            deadline = time.monotonic() + patience
            while any(offsets.end < ends.get(number, 0) for number, offsets in client.partitions(topic).items()):
                if time.monotonic() > deadline:
                    break
            tables = {
                number: read_records(client, topic, OffsetRange(number, offsets.first, offsets.end))
                for number, offsets in client.partitions(topic).items()
            }
        return [
            (number, key, value)
            for number, table in tables.items()
            for key, value in zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)
        ]

    def _ends(self, name: str, partitions: Sequence[int]) -> dict[int, int]:
        """How far each partition is written, in open transactions, too."""

        async def run() -> dict[int, int]:
            async with AIOKafkaConsumer(bootstrap_servers=self.address) as consumer:
                ends = await consumer.end_offsets([TopicPartition(name, number) for number in partitions])
                return {place.partition: end for place, end in ends.items()}

        return asyncio.run(run())

    def produce(self, act: Callable[[AIOKafkaProducer], Coroutine[Any, Any, Result]], **more: Any) -> Result:
        """What ``act`` does with a producer."""

        async def run() -> Result:
            async with AIOKafkaProducer(bootstrap_servers=self.address, **more) as producer:
                return await act(producer)

        return asyncio.run(run())

    def _admin(self, act: Callable[[AIOKafkaAdminClient], Coroutine[Any, Any, Any]]) -> None:
        async def run() -> None:
            admin = AIOKafkaAdminClient(bootstrap_servers=self.address)
            await admin.start()
            try:
                await act(admin)
            finally:
                await admin.close()

        asyncio.run(run())


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.partition(":")
    return host, int(port)
