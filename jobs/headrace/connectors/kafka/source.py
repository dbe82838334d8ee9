"""Clients that stay connected as long as something lasts which asks a cluster often: a run, a task.

Topics of Kafka as a source: a split is a range of offsets of one partition, a position what comes next in each.
"""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from statistics import mean
from typing import TYPE_CHECKING, ClassVar, Final, Literal, TypeVar

from headrace.connections import Connection, connection
from headrace.connectors.kafka import definition
from headrace.connectors.kafka.offsets import NewPartitions, OffsetRange, TopicPosition, in_turns, spread
from headrace.errors import FixDataError
from headrace.ext import sources as source_ports
from headrace.installed import require
from headrace.model.time import MAX_INSTANT, MIN_INSTANT, Instant
from headrace.pipeline.endpoints import Source
from headrace.this_process import Staying
from headrace_snapshots.store import ObjectStore

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.connectors.kafka.client import KafkaClient, Partition, Topic
    from headrace.formats.file_format import RequiredColumns, ScannedRecords


class KeptClients:
    """The clients of this process, one for each connection, for all of its threads."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        """Know no client: also in a process that was forked, where those of the other one have no thread."""
        self._staying = Staying()
        self._clients: list[tuple[Connection, KafkaClient]] = []

    def kept(self) -> AbstractContextManager[None]:
        """While this lasts, somewhere, clients stay; then they are closed. Nothing is connected before it is asked."""
        return self._staying.kept()

    @contextmanager
    def client(self, connection: Connection) -> "Iterator[KafkaClient]":
        """A client of ``connection``: the one that is kept, or one of its own. Raises what KafkaClient raises."""
        from headrace.connectors.kafka.client import KafkaClient

        with self._staying.entered() as over:
            kept = None if over is None else self._known(connection) or self._entered(over, connection)
        if kept is not None:
            yield kept
            return
        with KafkaClient(connection) as client:
            yield client

    def _known(self, connection: Connection) -> "KafkaClient | None":
        return next((client for known, client in self._clients if known == connection), None)

    def _entered(self, over: ExitStack, connection: Connection) -> "KafkaClient":
        from headrace.connectors.kafka.client import KafkaClient

        client = over.enter_context(KafkaClient(connection))
        self._clients.append((connection, client))
        over.callback(self._clients.remove, (connection, client))
        return client


CLIENTS: Final = KeptClients()
os.register_at_fork(after_in_child=CLIENTS._begin)


T = TypeVar("T")

RULES: Final = 1
"""The number of the rules of messages: those of lines of JSON (``formats.json_lines``), which planning does without."""

MOST_OFFSETS: Final = 100_000
"""So many offsets a split has at most, fewer where records are long."""

MOST_BYTES: Final = 2**25
"""So many bytes its records have, as far as samples of a topic tell; a longer record is a split of its own."""

_FEW: Final = 32
"""So many new records are a split whatever they have: a broker takes a megabyte for one, unless it is told to."""

_ABOUT: Final = 100
"""A record has about so many bytes, where too few are new to look."""

_PLACES: Final = 8
"""In at most so many places of a topic records are looked at, one more for each so many of them:"""

_APART: Final = 1_000


@contextmanager
def connected(source: definition.KafkaSource) -> "Iterator[KafkaClient]":
    """A client of the cluster. Raises MissingConnectionError, KafkaRefusedError, KafkaUnreachableError."""
    require("kafka", str(source))
    given = connection(source.connection, kind="kafka")
    if given.scheme != "kafka":
        raise definition.KafkaRefusedError(f"{given}: a source of Kafka needs kafka://host:port")
    with CLIENTS.client(given) as client:
        yield client


@dataclass(frozen=True)
class TopicEnumerator(source_ports.SplitEnumerator):
    """Finds the ranges of offsets of a topic that were not read."""

    counts: ClassVar[Literal["splits", "records"]] = "records"

    source: definition.KafkaSource

    def unread(
        self, position: source_ports.SourcePosition, read: Collection[str] | None = None
    ) -> Iterator[source_ports.SourceSplit]:
        """Ranges after the position, up to what each partition has now; of one that is new from its beginning on. Where
        partitions are new, the first split says which.

        Raises TopicReplacedError, RecordsLostError unless the source goes on without what is lost.
        """
        with connected(self.source) as client:
            topic = client.topic(self.source.topic)
            known = self._known(topic, position)
            partitions = client.partitions(topic)
            behind = [*self._behind(known, partitions)]
            unread = [one for one in behind if one.begin < one.end]
            about = _bytes_of_record(client, topic, unread)
        there = max(partitions, default=-1) + 1
        if unread and there > known.partitions:
            begins = {one.partition: one.begin for one in behind if one.partition >= known.partitions and one.begin}
            gone = dict.fromkeys(range(there, self._position(position).partitions), 0)  # of a topic that was replaced
            new = NewPartitions(known.partitions, there, begins | gone)
            yield source_ports.SourceSplit(new.path(topic.name), _ABOUT, topic.id)
        for one in in_turns(unread, max(1, min(MOST_OFFSETS, MOST_BYTES // about))):
            yield source_ports.SourceSplit(one.path(topic.name), about * (one.end - one.begin), topic.id)

    def count_unread(self, position: source_ports.SourcePosition) -> int:
        """How many offsets are after the position. Raises what ``unread`` raises."""
        with connected(self.source) as client:
            topic = client.topic(self.source.topic)
            known = self._known(topic, position)
            return sum(one.end - one.begin for one in self._behind(known, client.partitions(topic)))

    def _known(self, topic: "Topic", position: source_ports.SourcePosition) -> TopicPosition:
        """The position, in this very ``topic``."""
        known = self._position(position)
        if known.topic_id in ("", topic.id):
            return known
        return self._without_lost(
            TopicPosition(),
            definition.TopicReplacedError,
            f"it was replaced: it is another topic than {known.topic_id}, which was read, and its offsets begin again",
        )

    def _behind(self, known: TopicPosition, partitions: "Mapping[int, Partition]") -> Iterator[OffsetRange]:
        """What each partition has that was not read, perhaps nothing. One that came since is read from offset 0 on: of
        what is before its first record nobody has read any.
        """
        for number, there in partitions.items():
            came_since = 0 < known.partitions <= number
            begin = known.next.get(number, 0 if came_since else there.first)
            if begin < there.first:
                begin = self._without_lost(
                    there.first,
                    definition.RecordsLostError,
                    f"offsets {begin} to {there.first - 1} of partition {number} were deleted before they were read: "
                    "let the topic keep records for longer than runs may be apart",
                )
            if begin > there.end:
                begin = self._without_lost(
                    there.end,
                    definition.RecordsLostError,
                    f"partition {number} was read up to offset {begin}, and ends at {there.end}: the cluster has lost "
                    "records that it had given, as after an unclean election of a leader",
                )
            yield OffsetRange(number, begin, there.end)

    def _without_lost(self, rest: T, error: type[FixDataError], what: str) -> T:
        """The ``rest``, if the source is to go on without what is lost; else it raises the ``error``."""
        definition.lose(f"{self.source}: {what}", error, skips_lost=self.source.skips_lost)
        return rest

    def after(
        self, position: source_ports.SourcePosition, splits: Sequence[source_ports.SourceSplit]
    ) -> source_ports.SourcePosition:
        """What comes next in each partition."""
        return position.passed(self._position(position).passed(splits).mark, splits) if splits else position

    def _position(self, position: source_ports.SourcePosition) -> TopicPosition:
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
        if not (wanted := [*splits]):
            return
        with connected(self.source) as client:
            topic = client.topic(self.source.topic)
            partitions = client.partitions(topic)
        for split in wanted:
            if split.etag != topic.id:
                yield split, "has changed: the topic was replaced"
                continue
            if NewPartitions.of(split) is not None:
                continue
            one = OffsetRange.of(split)
            there = partitions.get(one.partition)
            if there is None or one.begin < there.first or one.end > there.end:
                yield split, "is gone"

    def watermarks(self, split: source_ports.SourceSplit) -> Mapping[str, Instant]:
        """New partitions are at the beginning of time, so the watermark waits for what they will have first, and those
        that are gone at its end.
        """
        new = NewPartitions.of(split)
        if new is None:
            return source_ports.NOTHING
        return {str(number): MIN_INSTANT for number in range(new.first, new.end)} | {
            str(number): MAX_INSTANT for number in new.gone
        }

    def explain(self) -> str:
        """How many partitions there are, without any record."""
        with connected(self.source) as client:
            partitions = client.partitions(client.topic(self.source.topic))
        return f"{self.source} has {len(partitions)} partitions, and no record in them"


def _bytes_of_record(client: "KafkaClient", topic: "Topic", unread: Sequence[OffsetRange]) -> int:
    """How many bytes a record has on the average, as samples from all over ``unread`` tell: the first may be small."""
    new = sum(one.end - one.begin for one in unread)
    if new <= _FEW:
        return _ABOUT
    from headrace.connectors.kafka.client import first_records

    places = spread(unread, min(_PLACES, 1 + new // _APART))
    samples = [sample for place in places if len(sample := first_records(client, topic, place))]
    return max(1, int(mean(sample.nbytes / len(sample) for sample in samples))) if samples else _ABOUT


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
        with connected(self.source) as client:
            yield replace(self, client=client)

    def fetch(self, split: source_ports.SourceSplit) -> "pa.Table":
        """The records of a range of offsets. Raises RecordsLostError, TopicReplacedError."""
        if self.client is None:
            with self.connected() as reader:
                return reader.fetch(split)
        from headrace.connectors.kafka.client import records
        from headrace.connectors.kafka.offsets import SCHEMA

        topic = self.client.topic(self.source.topic)
        if topic.id != split.etag:
            what = f"{self.source}: {split.path}, which was to be read, is of a topic that was replaced by another"
            definition.lose(what, definition.TopicReplacedError, skips_lost=self.source.skips_lost)
            return SCHEMA.empty_table()
        if NewPartitions.of(split) is not None:
            return SCHEMA.empty_table()
        fetched = records(self.client, topic, OffsetRange.of(split), skips_lost=self.source.skips_lost)
        if self.source.values is None or self.source.values.registry is None:
            return fetched
        from headrace.connectors.kafka.messages import with_schemas

        return with_schemas(fetched, self.source.values.registry)

    def scanned(self, fetched: "pa.Table", required: "RequiredColumns", path: str) -> "ScannedRecords":
        """The columns of values and metadata; a value is judged as a line of JSON, or a row of Parquet."""
        from headrace.connectors.kafka.messages import scanned

        return scanned(fetched, self.source, required, path, self.of_rules)


class KafkaConnector(source_ports.SourceConnector):
    """Topics of Kafka."""

    def open(self, source: Source, root: ObjectStore) -> source_ports.OpenSource:
        """The topic of ``source``; nothing is asked of the cluster yet."""
        assert isinstance(source, definition.KafkaSource)
        return source_ports.OpenSource(TopicEnumerator(source), TopicReader(source))

    @contextmanager
    def staying_connected(self) -> Iterator[None]:
        """One client for each connection, and not one for each split."""
        with CLIENTS.kept():
            yield


KAFKA: Final = KafkaConnector()
