"""A transaction of Kafka that waits for no broker for ever.

The producer of aiokafka tries again without end while a broker is away: for its id, for each batch, for the end of a
transaction, and for all of them once more as it stops.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from aiokafka import AIOKafkaProducer

from headrace.connections import Connection
from headrace.sources.kafka import client
from headrace.sources.kafka.client import settings_of
from headrace.sources.kafka.errors import KafkaUnreachableError

PATIENCE: Final = 60.0
"""For so many seconds a cluster may acknowledge nothing at all."""

_TRANSACTION_MS: Final = 900_000
"""A transaction may take so long: what brokers allow at most, unless they are told otherwise."""

_END_SECONDS: Final = 5.0
"""So long a producer has to end."""

Result = TypeVar("Result")


class Patience:
    """How long a cluster is waited for, which a ``connection`` names."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def of(self, step: Awaitable[Result]) -> Result:
        """What ``step`` gives. Raises KafkaUnreachableError if that takes too long."""
        try:
            async with asyncio.timeout(PATIENCE):
                return await step
        except TimeoutError:
            raise KafkaUnreachableError(
                f"{self._connection}: it has acknowledged nothing for {PATIENCE:g} seconds. Nothing was delivered, or "
                "all of it if the last answer was lost"
            ) from None

    async def acknowledged(self, records: Sequence[asyncio.Future[Any]]) -> None:
        """Wait for all ``records`` that were sent. Raises KafkaUnreachableError if one comes too late after another."""
        for record in records:
            if not record.done():
                await self.of(asyncio.wait([record]))
            record.result()


@asynccontextmanager
async def started(connection: Connection, transactional_id: str, patience: Patience) -> AsyncIterator[AIOKafkaProducer]:
    """A producer; from here on no other one of its id commits. Raises KafkaUnreachableError, KafkaRefusedError, and
    errors of Kafka's.
    """
    producer = AIOKafkaProducer(
        **settings_of(connection),
        transactional_id=transactional_id,
        transaction_timeout_ms=_TRANSACTION_MS,
        request_timeout_ms=client.REQUEST_MS,
    )
    try:
        await patience.of(producer.start())
        yield producer
    finally:
        await _ended(producer)


@asynccontextmanager
async def transaction(producer: AIOKafkaProducer, patience: Patience) -> AsyncIterator[None]:
    """What is sent inside is committed at its end, or aborted if something is raised. Where the cluster does not answer
    the next producer of the id aborts it, or the cluster does.
    """
    open_one = producer.transaction()
    await patience.of(open_one.__aenter__())
    try:
        yield
    except KafkaUnreachableError:
        raise
    except BaseException as error:
        await patience.of(open_one.__aexit__(type(error), error, error.__traceback__))
        raise
    await patience.of(open_one.__aexit__(None, None, None))


async def _ended(producer: AIOKafkaProducer) -> None:
    """Stop it, though its cluster may not answer: what it has not sent then is of a transaction that has failed."""
    try:
        async with asyncio.timeout(_END_SECONDS):
            await producer.stop()
    except TimeoutError:
        await producer.client.close()
