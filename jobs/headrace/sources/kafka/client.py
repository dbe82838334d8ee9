"""A connection to a Kafka cluster: what a topic has, and its batches. No consumer group, and nothing is committed.

Requests run on a loop of their own in a thread, for as many callers as there are.
"""

import asyncio
import logging
import ssl
import threading
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar

import tenacity
from aiokafka import errors as kafka_errors
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import create_conn
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.offset import OffsetRequest

from headrace.connections import Connection, variable
from headrace.sources.kafka.answers import passes
from headrace.sources.kafka.errors import (
    KafkaRefusedError,
    KafkaUnreachableError,
    TopicReplacedError,
    UnknownTopicError,
)
from headrace.sources.kafka.protocol import TopicRequest

logging.getLogger("aiokafka.conn").setLevel(logging.INFO)  # when it debugs it logs requests, with passwords

_CONSUMER, _COMMITTED = -1, 1
_EARLIEST, _LATEST = -2, -1
_UNKNOWN_TOPIC, _OUT_OF_RANGE = 3, 1
MOST_BYTES: Final = 2**24
_WAIT_MS: Final = 500
REQUEST_MS: Final = 20_000
"""So long one request has."""

_PATIENCE: Final = 30.0
"""For so many seconds a leader that moves, or a broker that starts again, is waited for."""

_PATIENCE_AT_FIRST: Final = 10.0
"""For so many seconds one that cannot be reached at all, which may be a mistake."""

_OPTIONS: Final = ("tls", "cafile", "certfile", "keyfile", "mechanism", "bootstrap")
_YES, _NO = ("true", "1", "yes"), ("false", "0", "no")
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

Result = TypeVar("Result")


@dataclass(frozen=True)
class Partition:
    """Offsets that a partition has: from ``first`` on, before ``end``, up to which all transactions are over."""

    first: int
    end: int


@dataclass(frozen=True)
class Topic:
    """A topic: its ``id``, which no other one ever has, also of its name; the ``leaders`` of its partitions."""

    name: str
    id: str
    leaders: Mapping[int, int]


@dataclass(frozen=True)
class Fetched:
    """Batches from an offset on, as they are stored; ``aborted``: transactions that count for nothing, by producer, and
    the first offset of each.
    """

    data: bytes
    aborted: tuple[tuple[int, int], ...]


class OffsetGoneError(Exception):
    """A partition does not have an offset (any more)."""


class KafkaClient:
    """Once entered, it is connected. Raises KafkaUnreachableError, KafkaRefusedError."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kafka", daemon=True)
        self._client: AIOKafkaClient | None = None
        self._known: dict[str, Topic] = {}
        """Topics whose leaders have moved."""

    def __str__(self) -> str:
        return str(self._connection)

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._client = self._patient(self._connected, _PATIENCE_AT_FIRST)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        client = self._client
        assert client is not None
        try:
            self._run(client.close)
        finally:
            self._stop()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def topic(self, name: str) -> Topic:
        """What a topic is."""
        return self._patient(lambda: self._topic(name))

    def partitions(self, topic: Topic) -> dict[int, Partition]:
        """What its partitions have, by number."""
        first = self._patient(lambda: self._offsets(topic.name, _EARLIEST))
        end = self._patient(lambda: self._offsets(topic.name, _LATEST))
        return {number: Partition(first[number], max(first[number], end[number])) for number in sorted(first)}

    def fetch(self, topic: Topic, partition: int, offset: int, most: int = MOST_BYTES) -> Fetched:
        """Batches from ``offset`` on, about ``most`` bytes, perhaps none. Raises OffsetGoneError, and
        TopicReplacedError if it is another topic by now.
        """

        async def from_leader() -> Fetched:
            try:
                return await self._fetch(self._known.get(topic.name, topic), partition, offset, most)
            except kafka_errors.KafkaError:
                self._known[topic.name] = await self._topic(topic.name)
                raise

        fetched = self._patient(from_leader)
        if self._known.get(topic.name, topic).id != topic.id:
            raise TopicReplacedError(
                f"{self._connection}: topic {topic.name} was replaced by another of its name while it was read"
            )
        return fetched

    # --- in the loop

    async def _connected(self) -> AIOKafkaClient:
        client = AIOKafkaClient(**settings_of(self._connection), request_timeout_ms=REQUEST_MS)
        try:
            await client.bootstrap()
        except kafka_errors.KafkaConnectionError:
            await client.close()
            await self._say_why(client.hosts)
            raise
        return client

    async def _say_why(self, hosts: Any) -> None:
        """Raise what stands against the first of ``hosts``, which the client only logs."""
        settings = settings_of(self._connection)
        del settings["bootstrap_servers"]
        host, port, _ = hosts[0]
        connection = await create_conn(host, port, **settings, request_timeout_ms=REQUEST_MS)
        connection.close()

    async def _topic(self, name: str) -> Topic:
        assert self._client is not None
        response = await self._client.send(self._client.get_random_node(), TopicRequest(name))
        code, _, topic_id, _, partitions, *_ = response.topics[0]
        if code == _UNKNOWN_TOPIC:
            raise UnknownTopicError(f"{self._connection}: there is no topic {name}")
        _check(code)
        return Topic(name, topic_id.hex(), {number: leader for _, number, leader, *_ in partitions})

    async def _offsets(self, name: str, which: int) -> dict[int, int]:
        assert self._client is not None
        by_leader: dict[int, list[int]] = {}
        for number, leader in (await self._topic(name)).leaders.items():
            by_leader.setdefault(leader, []).append(number)
        offsets: dict[int, int] = {}
        for leader, numbers in by_leader.items():
            request = OffsetRequest(_CONSUMER, _COMMITTED, [(name, [(number, which) for number in numbers])])
            response = await self._client.send(leader, request)
            for _, partitions in response.topics:
                for number, code, _, offset in partitions:
                    _check(code)
                    offsets[number] = offset
        return offsets

    async def _fetch(self, topic: Topic, partition: int, offset: int, most: int) -> Fetched:
        assert self._client is not None
        request = FetchRequest(_WAIT_MS, 1, most, _COMMITTED, [(topic.name, [(partition, offset, most)])])
        response = await self._client.send(topic.leaders[partition], request)
        ((_, (answer,)),) = response.topics
        code, aborted, data = answer[1], answer[5], answer[-1]
        if code == _OUT_OF_RANGE:
            raise OffsetGoneError
        _check(code)
        return Fetched(data or b"", tuple((producer, first) for producer, first in aborted or ()))

    # --- from other threads

    def _patient(self, request: Callable[[], Coroutine[Any, Any, Result]], seconds: float | None = None) -> Result:
        """What ``request`` gives, tried again while leaders move or brokers start again."""
        for attempt in tenacity.Retrying(
            stop=tenacity.stop_after_delay(_PATIENCE if seconds is None else seconds),
            wait=tenacity.wait_exponential(0.05, max=2),
            retry=tenacity.retry_if_exception_type(KafkaUnreachableError),
            reraise=True,
        ):
            with attempt:
                return self._run(request)
        raise AssertionError("unreachable")

    def _run(self, request: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """What ``request`` gives in the loop; errors of Kafka become those of sources, without secrets."""
        try:
            return asyncio.run_coroutine_threadsafe(request(), self._loop).result()
        except kafka_errors.KafkaError as error:
            if passes(error):
                raise KafkaUnreachableError(f"{self._told(error)}. Nothing was read; try again") from None
            raise KafkaRefusedError(f"{self._told(error)}. Is {variable(self._connection.name)} right?") from None
        except (ssl.SSLCertVerificationError, FileNotFoundError, PermissionError) as error:
            raise KafkaRefusedError(f"{self._told(error)}. Is {variable(self._connection.name)} right?") from None
        except (OSError, TimeoutError) as error:
            raise KafkaUnreachableError(f"{self._told(error)}. Nothing was read; try again") from None

    def _told(self, error: BaseException) -> str:
        text = str(error) or type(error).__name__
        return f"{self._connection}: {self._connection.without_secrets(text)}"


def settings_of(connection: Connection) -> dict[str, Any]:
    """What a client of aiokafka's is told of ``connection``. Raises KafkaRefusedError."""
    options, tls = connection.options, _with_tls(connection)
    servers = [f"{connection.host}:{connection.port or 9092}", *filter(None, options.get("bootstrap", "").split(","))]
    settings: dict[str, Any] = {"bootstrap_servers": servers, "client_id": "headrace"}
    settings["security_protocol"] = f"{'SASL_' if connection.user else ''}{'SSL' if tls else 'PLAINTEXT'}"
    if tls:
        context = ssl.create_default_context(cafile=options.get("cafile"))
        if certificate := options.get("certfile"):
            context.load_cert_chain(certificate, options.get("keyfile"))
        settings["ssl_context"] = context
    if connection.user:
        settings["sasl_mechanism"] = options.get("mechanism", "PLAIN")
        settings |= {"sasl_plain_username": connection.user, "sasl_plain_password": connection.password}
    return settings


def _with_tls(connection: Connection) -> bool:
    """Whether to encrypt. An option that is misspelled would send passwords in clear text. Raises KafkaRefusedError."""
    options = connection.options
    for name in options:
        if name not in _OPTIONS:
            raise KafkaRefusedError(f"{connection}: option {name!r} is not known; it takes {', '.join(_OPTIONS)}")
    written = options.get("tls", "false").lower()
    if written not in (*_YES, *_NO):
        raise KafkaRefusedError(f"{connection}: tls is {written!r}: write true or false")
    certificates = [name for name in options if name.endswith("file")]
    if certificates and written in _NO:
        raise KafkaRefusedError(f"{connection}: {certificates[0]} is for tls=true, which it does not say")
    if (mechanism := options.get("mechanism", "PLAIN")) not in _MECHANISMS:
        raise KafkaRefusedError(f"{connection}: mechanism is {mechanism!r}: write one of {', '.join(_MECHANISMS)}")
    return written in _YES


def _check(code: int) -> None:
    """Raise the error of that code, if it is one."""
    error = kafka_errors.for_code(code)
    if error is not kafka_errors.NoError:
        raise error
