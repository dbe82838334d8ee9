"""Requests to a Kafka cluster: a connection, what brokers answer, and the records of a range of offsets.

A connection tells what a topic has, and fetches its batches, without records of transactions that were aborted. There
is no consumer group, and nothing is committed. Requests run on a loop of their own in a thread, for as many callers as
there are. One is ours, since aiokafka lacks it: what a topic is, with the id that no other of its name has. Errors are
told apart by whether a cluster may say something else soon.
"""

import asyncio
import logging
import ssl
import struct
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any, ClassVar, Final, Self, TypeVar

import pyarrow as pa
import tenacity
from aiokafka import errors as kafka_errors
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import create_conn
from aiokafka.protocol import types
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.offset import OffsetRequest

from headrace.connections import Connection, variable_name
from headrace.connectors.kafka import definition
from headrace.connectors.kafka.offsets import SCHEMA, OffsetRange, RecordBatch, as_table, batches_of
from headrace.this_process import Size

_PASSING: Final = (
    kafka_errors.BrokerNotAvailableError,
    kafka_errors.ConcurrentTransactions,
    kafka_errors.CorruptRecordException,
    kafka_errors.DuplicateSequenceNumber,
    kafka_errors.InvalidMessageError,  # its checksum says so: it was changed on the way
    kafka_errors.InvalidProducerIdMapping,  # it has forgotten the producer, and the next one gets another id
    kafka_errors.InvalidTxnState,
    kafka_errors.KafkaConnectionError,
    kafka_errors.KafkaTimeoutError,
    kafka_errors.KafkaUnavailableError,
    kafka_errors.ListenerNotFound,
    kafka_errors.LogDirNotFound,
    kafka_errors.NodeNotReadyError,
    kafka_errors.OperationNotAttempted,
    kafka_errors.OutOfOrderSequenceNumber,
    kafka_errors.ProducerClosed,
    kafka_errors.ReassignmentInProgress,
    kafka_errors.RebalanceInProgressError,
    kafka_errors.ReplicaNotAvailableError,
    kafka_errors.StaleControllerEpochError,
    kafka_errors.StaleLeaderEpochCodeError,
    kafka_errors.StaleMetadata,
    kafka_errors.UnknownError,
    kafka_errors.UnknownProducerId,
)
"""Errors that pass, beside those that the client calls retriable. Others recur: rights, logins, settings, versions."""

OVERTAKEN: Final = (
    kafka_errors.InvalidProducerEpoch,
    kafka_errors.ProducerFenced,
    kafka_errors.TransactionCoordinatorFenced,
)
"""A newer producer of the same transactional id has begun."""

UNANSWERED_ERRORS: Final = (kafka_errors.UnknownError,)
"""A broker that is asked to end one transaction by two producers at once may not know how it ended."""

TOO_LARGE: Final = (
    kafka_errors.MessageSizeTooLargeError,
    kafka_errors.RecordListTooLargeError,
    kafka_errors.RecordTooLargeError,
)
"""A record that the cluster does not take."""


def is_retriable(error: BaseException) -> bool:
    """Whether another try may succeed. One without its own kind says nothing: a broken producer raises copies."""
    says_nothing = type(error) is kafka_errors.KafkaError
    return says_nothing or bool(getattr(error, "retriable", False)) or isinstance(error, _PASSING)


_KEY = 3
NO_ID = bytes(16)


class _Uuid(types.AbstractType[bytes]):
    @classmethod
    def encode(cls, value: bytes) -> bytes:
        return value

    @classmethod
    def decode(cls, data: BytesIO) -> bytes:
        return data.read(16)


_KafkaString = types.CompactString("utf-8")


class TopicResponse(Response):
    """Version 10 of the answer."""

    API_KEY = _KEY
    API_VERSION = 10
    SCHEMA = types.Schema(
        ("throttle_time_ms", types.Int32),
        (
            "brokers",
            types.CompactArray(
                ("node_id", types.Int32),
                ("host", _KafkaString),
                ("port", types.Int32),
                ("rack", _KafkaString),
                ("tags", types.TaggedFields),
            ),
        ),
        ("cluster_id", _KafkaString),
        ("controller_id", types.Int32),
        (
            "topics",
            types.CompactArray(
                ("error_code", types.Int16),
                ("name", _KafkaString),
                ("topic_id", _Uuid),
                ("is_internal", types.Boolean),
                (
                    "partitions",
                    types.CompactArray(
                        ("error_code", types.Int16),
                        ("partition", types.Int32),
                        ("leader", types.Int32),
                        ("leader_epoch", types.Int32),
                        ("replicas", types.CompactArray(types.Int32)),
                        ("isr", types.CompactArray(types.Int32)),
                        ("offline", types.CompactArray(types.Int32)),
                        ("tags", types.TaggedFields),
                    ),
                ),
                ("operations", types.Int32),
                ("tags", types.TaggedFields),
            ),
        ),
        ("operations", types.Int32),
        ("tags", types.TaggedFields),
    )


class TopicRequestStruct(RequestStruct):
    """Version 10 of the request."""

    FLEXIBLE_VERSION = True
    API_KEY = _KEY
    API_VERSION = 10
    RESPONSE_TYPE = TopicResponse
    SCHEMA: ClassVar[types.Schema] = types.Schema(
        ("topics", types.CompactArray(("topic_id", _Uuid), ("name", _KafkaString), ("tags", types.TaggedFields))),
        ("allow_auto_topic_creation", types.Boolean),
        ("include_cluster_authorized_operations", types.Boolean),
        ("include_topic_authorized_operations", types.Boolean),
        ("tags", types.TaggedFields),
    )


class TopicRequest(Request[TopicRequestStruct]):
    """Asks what a topic is; it is not made if there is none."""

    API_KEY = _KEY

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def build(self, request_struct_class: type[TopicRequestStruct]) -> TopicRequestStruct:
        """The request as it is sent."""
        topics: list[Any] = [(NO_ID, self._topic, {})]
        return request_struct_class(topics, False, False, False, {})


logging.getLogger("aiokafka.conn").setLevel(logging.INFO)  # when it debugs it logs requests, with passwords

_CONSUMER, _READ_COMMITTED = -1, 1
_EARLIEST, _LATEST = -2, -1
_UNKNOWN_TOPIC, _OUT_OF_RANGE = 3, 1
MOST_BYTES: Final = 2**24
_WAIT_MS: Final = 500
REQUEST_MS: Final = Size(20_000)
"""So long one request has."""

PATIENCE: Final = Size(30.0)
"""For so many seconds a leader that moves, or a broker that starts again, is waited for."""

PATIENCE_AT_FIRST: Final = Size(10.0)
"""For so many seconds one that cannot be reached at all, which may be a mistake."""

_CONNECTION_OPTIONS: Final = ("tls", "cafile", "certfile", "keyfile", "mechanism", "bootstrap")
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
class FetchedBatches:
    """Batches from an offset on, as stored; ``aborted``: void transactions, by producer with the first offset."""

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
        self._topics_by_name: dict[str, Topic] = {}
        """Topics whose leaders have moved."""

    def __str__(self) -> str:
        return str(self._connection)

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._client = self._run_with_retries(self._connect_client, PATIENCE_AT_FIRST.value)
        except BaseException:
            self._stop_loop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        client = self._client
        assert client is not None
        try:
            self._run_in_loop(client.close)
        finally:
            self._stop_loop()

    def _stop_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def find_topic(self, name: str) -> Topic:
        """What a topic is."""
        return self._run_with_retries(lambda: self._request_topic(name))

    def partitions(self, topic: Topic) -> dict[int, Partition]:
        """What its partitions have, by number."""
        first = self._run_with_retries(lambda: self._request_offsets(topic.name, _EARLIEST))
        end = self._run_with_retries(lambda: self._request_offsets(topic.name, _LATEST))
        return {number: Partition(first[number], max(first[number], end[number])) for number in sorted(first)}

    def fetch(self, topic: Topic, partition: int, offset: int, most: int = MOST_BYTES) -> FetchedBatches:
        """Batches from ``offset`` on, about ``most`` bytes, perhaps none. Raises OffsetGoneError, and
        TopicReplacedError if it is another topic by now.
        """

        async def from_leader() -> FetchedBatches:
            try:
                return await self._request_batches(self._topics_by_name.get(topic.name, topic), partition, offset, most)
            except kafka_errors.KafkaError:
                # its leader may have moved: the next attempt asks the one that it has now
                self._topics_by_name[topic.name] = await self._request_topic(topic.name)
                raise

        batches = self._run_with_retries(from_leader)
        if self._topics_by_name.get(topic.name, topic).id != topic.id:
            raise definition.TopicReplacedError(
                f"{self._connection}: topic {topic.name} was replaced by another of its name while it was read"
            )
        return batches

    # --- in the loop

    async def _connect_client(self) -> AIOKafkaClient:
        client = AIOKafkaClient(**settings_of(self._connection), request_timeout_ms=REQUEST_MS.value)
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
        connection = await create_conn(host, port, **settings, request_timeout_ms=REQUEST_MS.value)
        connection.close()

    async def _request_topic(self, name: str) -> Topic:
        assert self._client is not None
        response = await self._client.send(self._client.get_random_node(), TopicRequest(name))
        code, _, topic_id, _, partitions, *_ = response.topics[0]
        if code == _UNKNOWN_TOPIC:
            raise definition.UnknownTopicError(f"{self._connection}: there is no topic {name}")
        _raise_for_code(code)
        return Topic(name, topic_id.hex(), {number: leader for _, number, leader, *_ in partitions})

    async def _request_offsets(self, name: str, which: int) -> dict[int, int]:
        assert self._client is not None
        by_leader: dict[int, list[int]] = {}
        for number, leader in (await self._request_topic(name)).leaders.items():
            by_leader.setdefault(leader, []).append(number)
        offsets: dict[int, int] = {}
        for leader, numbers in by_leader.items():
            request = OffsetRequest(_CONSUMER, _READ_COMMITTED, [(name, [(number, which) for number in numbers])])
            response = await self._client.send(leader, request)
            for _, partitions in response.topics:
                for number, code, _, offset in partitions:
                    _raise_for_code(code)
                    offsets[number] = offset
        return offsets

    async def _request_batches(self, topic: Topic, partition: int, offset: int, most: int) -> FetchedBatches:
        assert self._client is not None
        request = FetchRequest(_WAIT_MS, 1, most, _READ_COMMITTED, [(topic.name, [(partition, offset, most)])])
        response = await self._client.send(topic.leaders[partition], request)
        ((_, (answer,)),) = response.topics
        code, aborted_transactions, data = answer[1], answer[5], answer[-1]
        if code == _OUT_OF_RANGE:
            raise OffsetGoneError
        _raise_for_code(code)
        return FetchedBatches(data or b"", tuple((producer, first) for producer, first in aborted_transactions or ()))

    # --- from other threads

    def _run_with_retries(
        self, request: Callable[[], Coroutine[Any, Any, Result]], seconds: float | None = None
    ) -> Result:
        """What ``request`` gives, tried again while leaders move or brokers start again."""
        for attempt in tenacity.Retrying(
            stop=tenacity.stop_after_delay(PATIENCE.value if seconds is None else seconds),
            wait=tenacity.wait_exponential(0.05, max=2),
            retry=tenacity.retry_if_exception_type(definition.KafkaUnreachableError),
            reraise=True,
        ):
            with attempt:
                return self._run_in_loop(request)
        raise AssertionError("unreachable")

    def _run_in_loop(self, request: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """What ``request`` gives in the loop; errors of Kafka become those of sources, without secrets."""
        try:
            return asyncio.run_coroutine_threadsafe(request(), self._loop).result()
        except kafka_errors.KafkaError as error:
            if is_retriable(error):
                raise definition.KafkaUnreachableError(
                    f"{self._error_text(error)}. Nothing was read; try again"
                ) from None
            raise definition.KafkaRefusedError(
                f"{self._error_text(error)}. Is {variable_name(self._connection.name)} right?"
            ) from None
        except (ssl.SSLCertVerificationError, FileNotFoundError, PermissionError) as error:
            raise definition.KafkaRefusedError(
                f"{self._error_text(error)}. Is {variable_name(self._connection.name)} right?"
            ) from None
        except (OSError, TimeoutError) as error:
            raise definition.KafkaUnreachableError(f"{self._error_text(error)}. Nothing was read; try again") from None

    def _error_text(self, error: BaseException) -> str:
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
        if name not in _CONNECTION_OPTIONS:
            raise definition.KafkaRefusedError(
                f"{connection}: option {name!r} is not known; it takes {', '.join(_CONNECTION_OPTIONS)}"
            )
    tls_option = options.get("tls", "false").lower()
    if tls_option not in (*_YES, *_NO):
        raise definition.KafkaRefusedError(f"{connection}: tls is {tls_option!r}: write true or false")
    certificates = [name for name in options if name.endswith("file")]
    if certificates and tls_option in _NO:
        raise definition.KafkaRefusedError(f"{connection}: {certificates[0]} is for tls=true, which it does not say")
    if (mechanism := options.get("mechanism", "PLAIN")) not in _MECHANISMS:
        raise definition.KafkaRefusedError(
            f"{connection}: mechanism is {mechanism!r}: write one of {', '.join(_MECHANISMS)}"
        )
    return tls_option in _YES


def _raise_for_code(code: int) -> None:
    """Raise the error of that code, if it is one."""
    error = kafka_errors.for_code(code)
    if error is not kafka_errors.NoError:
        raise error


_BATCH_BYTES: Final = 2**25
"""So many bytes of batches become columns at once."""

_FIRST_FETCH_BYTES: Final = 2**19
"""So many bytes are asked for at first; then what the rest of the range may have, by the length of what came."""

_SAMPLE_BYTES: Final = 2**18

_MOST_EMPTY_ANSWERS: Final = 120
"""So many answers without any record mean that the broker has none, where it should."""


def read_records(client: KafkaClient, topic: Topic, offset_range: OffsetRange, *, skips_lost: bool = False) -> pa.Table:
    """The records of a range, in order; fewer than it has offsets, where others were compacted away.

    Raises RecordsLostError if some are gone, unless ``skips_lost``; KafkaUnreachableError, UnreadableBatchError.
    """
    where = _partition_label(client, topic, offset_range)
    tables: list[pa.Table] = []
    batches: list[RecordBatch] = []
    begin = offset = offset_range.begin
    size, empty, most = 0, 0, _FIRST_FETCH_BYTES
    while offset < offset_range.end:
        try:
            batches_fetched = client.fetch(topic, offset_range.partition, offset, most)
        except OffsetGoneError:
            lost_offsets = _lost_range(
                client, topic, OffsetRange(offset_range.partition, offset, offset_range.end), where
            )
            what = f"{where}: offsets {lost_offsets.begin} to {lost_offsets.end - 1} are gone, and nobody has read them"
            definition.raise_or_log_loss(what, definition.RecordsLostError, skips_lost=skips_lost)
            tables.append(as_table(batches, offset_range.partition, begin, offset, where))
            batches, size = [], 0
            begin = offset = lost_offsets.end  # the broker gives the whole batch that has this one
            continue
        # a broker gives whole batches, so the first one may begin before the offset, or end before it
        new = [batch for batch in batches_of(batches_fetched.data, where) if batch.last >= offset]
        empty = 0 if new else empty + 1
        if empty == _MOST_EMPTY_ANSWERS:
            raise definition.KafkaUnreachableError(
                f"{where}: no record comes after offset {offset}, and it should have {offset_range.end - 1}"
            )
        if new:
            length = len(batches_fetched.data) / (new[-1].last + 1 - offset)
            offset = new[-1].last + 1
            most = max(_FIRST_FETCH_BYTES, min(MOST_BYTES, int(length * (offset_range.end - offset))))
            batches += _committed_batches(new, batches_fetched.aborted, where)
            size += len(batches_fetched.data)
        if size >= _BATCH_BYTES:
            tables.append(as_table(batches, offset_range.partition, begin, offset_range.end, where))
            batches, size = [], 0
    tables.append(as_table(batches, offset_range.partition, begin, offset_range.end, where))
    return pa.concat_tables(tables)


def _lost_range(client: KafkaClient, topic: Topic, rest: OffsetRange, where: str) -> OffsetRange:
    """What is gone of the ``rest`` of a range, whose first record nobody has. Raises KafkaUnreachableError."""
    partition = client.partitions(topic)[rest.partition]
    if partition.first <= rest.begin < partition.end:
        raise definition.KafkaUnreachableError(f"{where}: its leader does not have offset {rest.begin} yet")
    return replace(rest, end=min(partition.first, rest.end)) if rest.begin < partition.first else rest


def first_records(client: KafkaClient, topic: Topic, offset_range: OffsetRange) -> pa.Table:
    """Some of the first records of a range, perhaps none."""
    where = _partition_label(client, topic, offset_range)
    try:
        batches_fetched = client.fetch(topic, offset_range.partition, offset_range.begin, most=_SAMPLE_BYTES)
    except OffsetGoneError:
        return SCHEMA.empty_table()
    return as_table(
        batches_of(batches_fetched.data, where), offset_range.partition, offset_range.begin, offset_range.end, where
    )


def _committed_batches(
    batches: Iterable[RecordBatch], aborted_transactions: Sequence[tuple[int, int]], where: str
) -> Iterable[RecordBatch]:
    """``batches`` without those of ``aborted_transactions`` (producer, first offset), and without what ends one."""
    waiting = sorted(aborted_transactions, key=lambda one: one[1], reverse=True)
    open_: set[int] = set()
    for batch in batches:
        # a transaction is open from its first offset on, until a control batch of its producer ends it
        while waiting and waiting[-1][1] <= batch.last:
            open_.add(waiting.pop()[0])
        if batch.is_control:
            if _is_abort(batch, where):
                open_.discard(batch.producer)
        elif not (batch.is_transactional and batch.producer in open_):
            yield batch


def _is_abort(batch: RecordBatch, where: str) -> bool:
    """Whether a control batch says that its producer has aborted."""
    keys = as_table([batch], 0, batch.base, batch.last + 1, where)["key"].to_pylist()
    return bool(keys) and struct.unpack_from(">hh", keys[0])[1] == 0


def _partition_label(client: KafkaClient, topic: Topic, offsets: OffsetRange) -> str:
    return f"{client}: topic {topic.name}, partition {offsets.partition}"
