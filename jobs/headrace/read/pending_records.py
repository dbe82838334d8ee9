"""Whether a topic of Kafka has records that no run has read, seen from outside: what landers have claimed says how far
they have come, and the topic how far it goes.
"""

from collections.abc import Callable
from dataclasses import dataclass

from headrace.connections import Connection
from headrace.model.expressions.data_types import DataType
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.systems.kafka import KafkaSource
from headrace.read.pending_splits import count_unread
from headrace.sources.connector import Offsets, OpenSource
from headrace.sources.kafka.topic import TopicEnumerator, TopicReader
from headrace.sources.landed.ranges import LandingPlace
from headrace_snapshots.store import ObjectStore


@dataclass(frozen=True)
class WatchedTopic:
    """A topic, the name of the connection that reaches it, and how it is read, as its source says."""

    topic: str
    connection: str
    land: str = "always"
    on_lost: str = "fail"


def watched_topics(pipeline: Pipeline) -> dict[str, WatchedTopic]:
    """The inputs of ``pipeline`` that are topics, by name."""
    sources = {one.name: one.source for one in pipeline.inputs}
    return {
        name: WatchedTopic(source.topic, source.connection, source.land, source.on_lost)
        for name, source in sources.items()
        if isinstance(source, KafkaSource)
    }


class TopicWatch:
    """Looks how much of the topic that input ``name`` of ``pipeline`` is was not read; ``reached`` gives its
    connection. A look connects to the cluster and asks where partitions end.
    """

    def __init__(
        self, store: ObjectStore, pipeline: str, name: str, watched: WatchedTopic, reached: Callable[[str], Connection]
    ) -> None:
        columns, land, on_lost = {"kafka_offset": DataType.INT}, watched.land, watched.on_lost
        self._source = KafkaSource(watched.topic, watched.connection, columns, land=land, on_lost=on_lost)
        self._place = LandingPlace(store, pipeline, name)
        self._reached = reached

    def unread(self, position: Offsets) -> int:
        """How many offsets a run would read that continues from ``position``; where a lander was killed at least 1.
        Raises TopicReplacedError, RecordsLostError, SplitGoneError; KafkaRefusedError, KafkaUnreachableError,
        MissingConnectionError.
        """
        topic = TopicEnumerator(self._source, self._reached(self._source.connection))
        opened = OpenSource(topic, TopicReader(self._source))
        return count_unread(self._source, opened, self._place, position, topic.count)
