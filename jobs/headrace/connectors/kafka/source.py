"""Topics of Kafka as a source: a split is a range of offsets of one partition, a position what comes next in each."""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from statistics import mean
from typing import TYPE_CHECKING, ClassVar, Final, Literal, TypeVar

from headrace.connections import Connection, connection
from headrace.connectors.kafka import definition
from headrace.connectors.kafka.offsets import NewPartitions, OffsetRange, TopicPosition, in_turns, sample_ranges
from headrace.errors import FixDataError
from headrace.ext import sources as source_ports
from headrace.installed import require_extra
from headrace.model.time import MAX_INSTANT, MIN_INSTANT, Instant
from headrace.pipeline.endpoints import Source
from headrace.this_process import Size, Staying
from headrace_snapshots.store import ObjectStore

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.connectors.kafka.client import KafkaClient, Partition, Topic
    from headrace.formats.file_format import RequiredColumns, ScannedRecords


class KeptClients:
    """The clients of this process, one for each connection, for all of its threads. They stay connected as long as
    something lasts that asks a cluster often: a run, a task.
    """

    def __init__(self) -> None:
        self._forget_clients()

    def _forget_clients(self) -> None:
        """Know no client: also in a process that was forked, where those of the other one have no thread."""
        self._staying = Staying()
        self._clients: list[tuple[Connection, KafkaClient]] = []

    def keep_clients(self) -> AbstractContextManager[None]:
        """While this lasts, somewhere, clients stay; then they are closed. Nothing is connected before it is asked."""
        return self._staying.keep_open()

    @contextmanager
    def borrow_client(self, connection: Connection) -> "Iterator[KafkaClient]":
        """A client of ``connection``: the one that is kept, or one of its own. Raises what KafkaClient raises."""
        from headrace.connectors.kafka.client import KafkaClient

        with self._staying.shared_exit_stack() as exit_stack:
            kept_client = None
            if exit_stack is not None:
                kept_client = self._find_client(connection) or self._open_client(exit_stack, connection)
        if kept_client is not None:
            yield kept_client
            return
        with KafkaClient(connection) as client:
            yield client

    def _find_client(self, connection: Connection) -> "KafkaClient | None":
        return next((client for known_connection, client in self._clients if known_connection == connection), None)

    def _open_client(self, exit_stack: ExitStack, connection: Connection) -> "KafkaClient":
        from headrace.connectors.kafka.client import KafkaClient

        client = exit_stack.enter_context(KafkaClient(connection))
        self._clients.append((connection, client))
        exit_stack.callback(self._clients.remove, (connection, client))
        return client


CLIENTS: Final = KeptClients()
os.register_at_fork(after_in_child=CLIENTS._forget_clients)


T = TypeVar("T")

RULES: Final = 1
"""The number of the rules of messages: those of lines of JSON (``formats.json_lines``), which planning does without."""

MOST_OFFSETS: Final = Size(100_000)
"""So many offsets a split has at most, fewer where records are long."""

MOST_BYTES: Final = 2**25
"""So many bytes its records have, as far as samples of a topic tell; a longer record is a split of its own."""

_FEW_RECORDS: Final = 32
"""So many new records are a split whatever they have: a broker takes a megabyte for one, unless it is told to."""

_RECORD_BYTES: Final = 100
"""A record has about so many bytes, where too few are new to look."""

_PLACES: Final = 8
"""In at most so many places of a topic records are looked at, one more for each so many of them:"""

_RECORDS_BETWEEN_SAMPLES: Final = 1_000


@contextmanager
def open_client(source: definition.KafkaSource) -> "Iterator[KafkaClient]":
    """A client of the cluster. Raises MissingConnectionError, KafkaRefusedError, KafkaUnreachableError."""
    require_extra("kafka", str(source))
    kafka_connection = connection(source.connection, kind="kafka")
    if kafka_connection.scheme != "kafka":
        raise definition.KafkaRefusedError(f"{kafka_connection}: a source of Kafka needs kafka://host:port")
    with CLIENTS.borrow_client(kafka_connection) as client:
        yield client


@dataclass(frozen=True)
class TopicEnumerator(source_ports.SplitEnumerator):
    """Finds the ranges of offsets of a topic that were not read."""

    counts: ClassVar[Literal["splits", "records"]] = "records"

    source: definition.KafkaSource

    def unread(
        self, position: source_ports.SourcePosition, read: Collection[str] | None = None
    ) -> Iterator[source_ports.SourceSplit]:
        """Ranges after the position, up to what each partition has now. A new partition is read from its beginning on.
        Where partitions are new, the first split says which.

        Raises TopicReplacedError, RecordsLostError unless the source goes on without what is lost; and
        PartitionsAddedError where versions of a row could lie in two partitions since.
        """
        with open_client(self.source) as client:
            topic = client.find_topic(self.source.topic)
            topic_position = self._position_in_topic(topic, position)
            partitions = client.partitions(topic)
            unread_ranges = [*self._unread_ranges(topic_position, partitions)]
            unread = [one for one in unread_ranges if one.begin < one.end]
            record_bytes = _bytes_of_record(client, topic, unread)
        partition_count = max(partitions, default=-1) + 1
        if partition_count > topic_position.partitions > 0 and self.source.goes_by_offset:
            raise definition.PartitionsAddedError(
                f"{self.source}: it has {partition_count} partitions, and had {topic_position.partitions}. Versions "
                "of a row may lie in "
                "two of them since, whose offsets say nothing of each other. Name in versions= what orders them in all "
                'partitions, upserts("id", order="kafka_timestamp") or debezium_versions(..., order="source.lsn"), and '
                "compute the pipeline again, by `headrace backfill --promote`"
            )
        if unread and partition_count > topic_position.partitions:
            begins = {
                one.partition: one.begin
                for one in unread_ranges
                if one.partition >= topic_position.partitions and one.begin
            }
            lost_partitions = dict.fromkeys(
                range(partition_count, self._parse_position(position).partitions), 0
            )  # of a topic that was replaced
            new = NewPartitions(topic_position.partitions, partition_count, begins | lost_partitions)
            yield source_ports.SourceSplit(new.split_path(topic.name), _RECORD_BYTES, topic.id)
        for one in in_turns(unread, max(1, min(MOST_OFFSETS.value, MOST_BYTES // record_bytes))):
            yield source_ports.SourceSplit(one.split_path(topic.name), record_bytes * (one.end - one.begin), topic.id)

    def count_unread(self, position: source_ports.SourcePosition) -> int:
        """How many offsets are after the position. Raises what ``unread`` raises."""
        with open_client(self.source) as client:
            topic = client.find_topic(self.source.topic)
            topic_position = self._position_in_topic(topic, position)
            return sum(one.end - one.begin for one in self._unread_ranges(topic_position, client.partitions(topic)))

    def _position_in_topic(self, topic: "Topic", position: source_ports.SourcePosition) -> TopicPosition:
        """The position, in this very ``topic``."""
        topic_position = self._parse_position(position)
        if topic_position.topic_id in ("", topic.id):
            return topic_position
        return self._without_lost(
            TopicPosition(),
            definition.TopicReplacedError,
            f"it was replaced: it is another topic than {topic_position.topic_id}, which was read, and its offsets "
            "begin again",
        )

    def _unread_ranges(
        self, topic_position: TopicPosition, partitions: "Mapping[int, Partition]"
    ) -> Iterator[OffsetRange]:
        """What each partition has that was not read, perhaps nothing. One that came since is read from offset 0 on: of
        what is before its first record nobody has read any.
        """
        for number, partition in partitions.items():
            came_since = 0 < topic_position.partitions <= number
            begin = topic_position.next.get(number, 0 if came_since else partition.first)
            if begin < partition.first:
                begin = self._without_lost(
                    partition.first,
                    definition.RecordsLostError,
                    f"offsets {begin} to {partition.first - 1} of partition {number} were deleted before they were "
                    "read: let the topic keep records for longer than runs may be apart",
                )
            if begin > partition.end:
                begin = self._without_lost(
                    partition.end,
                    definition.RecordsLostError,
                    f"partition {number} was read up to offset {begin}, and ends at {partition.end}. The cluster has "
                    "lost records that it had given, as after an unclean election of a leader",
                )
            yield OffsetRange(number, begin, partition.end)

    def _without_lost(self, rest: T, error: type[FixDataError], what: str) -> T:
        """The ``rest``, if the source is to go on without what is lost; else it raises the ``error``."""
        definition.raise_or_log_loss(f"{self.source}: {what}", error, skips_lost=self.source.skips_lost)
        return rest

    def after(
        self, position: source_ports.SourcePosition, splits: Sequence[source_ports.SourceSplit]
    ) -> source_ports.SourcePosition:
        """What comes next in each partition."""
        if not splits:
            return position
        return position.passed(self._parse_position(position).with_splits_read(splits).mark, splits)

    def _parse_position(self, position: source_ports.SourcePosition) -> TopicPosition:
        try:
            return TopicPosition.parse(position.mark)
        except (ValueError, KeyError, AttributeError) as error:
            raise definition.TopicReplacedError(
                f"{self.source}: {position.mark!r} is no position of a topic"
            ) from error

    def is_same(self, was: source_ports.SourceSplit, now: source_ports.SourceSplit) -> bool:
        """Whether they are of the same topic: its records never change."""
        return was.etag == now.etag

    def missing(self, splits: Iterable[source_ports.SourceSplit]) -> Iterator[tuple[source_ports.SourceSplit, str]]:
        """Ranges that are gone, at least in part, or are of a topic that was replaced."""
        if not (wanted_splits := [*splits]):
            return
        with open_client(self.source) as client:
            topic = client.find_topic(self.source.topic)
            partitions = client.partitions(topic)
        for split in wanted_splits:
            if split.etag != topic.id:
                yield split, "has changed: the topic was replaced"
                continue
            if NewPartitions.from_split(split) is not None:
                continue
            one = OffsetRange.from_split(split)
            partition = partitions.get(one.partition)
            if partition is None or one.begin < partition.first or one.end > partition.end:
                yield split, "is gone"

    def watermarks(self, split: source_ports.SourceSplit) -> Mapping[str, Instant]:
        """New partitions are at the beginning of time, so the watermark waits for their first records. Partitions that
        are gone are at the end of time.
        """
        new = NewPartitions.from_split(split)
        if new is None:
            return source_ports.NOTHING
        return {str(number): MIN_INSTANT for number in range(new.first, new.end)} | {
            str(number): MAX_INSTANT for number in new.gone_partitions
        }

    def explain(self) -> str:
        """How many partitions there are, without any record."""
        with open_client(self.source) as client:
            partitions = client.partitions(client.find_topic(self.source.topic))
        return f"{self.source} has {len(partitions)} partitions, and no record in them"


def _bytes_of_record(client: "KafkaClient", topic: "Topic", unread: Sequence[OffsetRange]) -> int:
    """How many bytes a record has on the average, as samples from all over ``unread`` tell: the first may be small."""
    new = sum(one.end - one.begin for one in unread)
    if new <= _FEW_RECORDS:
        return _RECORD_BYTES
    from headrace.connectors.kafka.client import first_records

    places = sample_ranges(unread, min(_PLACES, 1 + new // _RECORDS_BETWEEN_SAMPLES))
    samples = [sample for place in places if len(sample := first_records(client, topic, place))]
    return max(1, int(mean(sample.nbytes / len(sample) for sample in samples))) if samples else _RECORD_BYTES


@dataclass(frozen=True)
class TopicReader(source_ports.FetchingReader):
    """Reads ranges of a topic, with a ``client`` where many are fetched."""

    source: definition.KafkaSource
    client: "KafkaClient | None" = None
    of_rules: int = RULES

    @property
    def rules(self) -> int:
        """The number of today."""
        return RULES

    def by_rules(self, rules: int | None) -> "TopicReader":
        """Messages of JSON as an older version read them."""
        return self if rules is None else replace(self, of_rules=rules)

    @contextmanager
    def connected(self) -> "Iterator[TopicReader]":
        """A reader with one connection for many splits."""
        with open_client(self.source) as client:
            yield replace(self, client=client)

    def fetch(self, split: source_ports.SourceSplit) -> "pa.Table":
        """The records of a range of offsets. Raises RecordsLostError, TopicReplacedError."""
        if self.client is None:
            with self.connected() as reader:
                return reader.fetch(split)
        from headrace.connectors.kafka.client import read_records
        from headrace.connectors.kafka.offsets import SCHEMA

        topic = self.client.find_topic(self.source.topic)
        if topic.id != split.etag:
            what = f"{self.source}: {split.path}, which was to be read, is of a topic that was replaced by another"
            definition.raise_or_log_loss(what, definition.TopicReplacedError, skips_lost=self.source.skips_lost)
            return SCHEMA.empty_table()
        if NewPartitions.from_split(split) is not None:
            return SCHEMA.empty_table()
        records = read_records(self.client, topic, OffsetRange.from_split(split), skips_lost=self.source.skips_lost)
        if self.source.values is None or self.source.values.registry is None:
            return records
        from headrace.connectors.kafka.messages import with_schemas

        return with_schemas(records, self.source.values.registry, of_keys=self.source.versions is not None)

    def scanned(self, fetched: "pa.Table", required: "RequiredColumns", path: str) -> "ScannedRecords":
        """The columns of values and metadata; a value is judged as a line of JSON, or a row of Parquet."""
        from headrace.connectors.kafka.messages import scan_messages

        return scan_messages(fetched, self.source, required, path, self.of_rules)


class KafkaConnector(source_ports.SourceConnector):
    """Topics of Kafka."""

    def open(self, source: Source, root: ObjectStore) -> source_ports.OpenSource:
        """The topic of ``source``; nothing is asked of the cluster yet."""
        assert isinstance(source, definition.KafkaSource)
        return source_ports.OpenSource(TopicEnumerator(source), TopicReader(source))

    @contextmanager
    def staying_connected(self) -> Iterator[None]:
        """One client for each connection, and not one for each split."""
        with CLIENTS.keep_clients():
            yield


KAFKA: Final = KafkaConnector()
