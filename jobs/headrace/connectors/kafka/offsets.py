"""Offsets of a topic: how far it was read, and the ranges that come next, partitions in turns."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from headrace.ext.sources import SourceSplit


@dataclass(frozen=True)
class OffsetRange:
    """Offsets of a partition from ``begin`` to before ``end``."""

    partition: int
    begin: int
    end: int

    def path(self, topic: str) -> str:
        """Its name, as that of a split."""
        return f"{topic}/{self.partition}/{self.begin}-{self.end}"

    @classmethod
    def of(cls, split: SourceSplit) -> Self:
        """The range that a split is."""
        _, partition, offsets = split.path.rsplit("/", 2)
        begin, _, end = offsets.partition("-")
        return cls(int(partition), int(begin), int(end))


@dataclass(frozen=True)
class NewPartitions:
    """Partitions from ``first`` to before ``end``, which a topic has had since it was looked at last: a split without
    records, which comes before any of theirs. ``begins``: the offset from which one is read, where that is not 0; None
    in splits of 0.1.0, which do not say it. Numbers from ``end`` on are those of partitions that are gone, since the
    topic was replaced.
    """

    first: int
    end: int
    begins: Mapping[int, int] | None = None

    def path(self, topic: str) -> str:
        """Its name, as that of a split; no partition is called so. 0.1.0 takes what is before ``/partitions`` for the
        topic, and so can read those that say where partitions begin.
        """
        known = [] if self.begins is None else ["begins", *(f"{one}={at}" for one, at in sorted(self.begins.items()))]
        return "/".join([topic, *known, "partitions", f"{self.first}-{self.end}"])

    @classmethod
    def of(cls, split: SourceSplit) -> Self | None:
        """The partitions that the split says are new; None if it is a range of offsets."""
        match = _NEW_PARTITIONS.fullmatch(split.path)
        if match is None:
            return None
        written = match["begins"]
        begins = None if written is None else {int(number): int(at) for number, at in _BEGIN.findall(written)}
        return cls(int(match["first"]), int(match["end"]), begins)

    @property
    def gone(self) -> list[int]:
        """The partitions that the topic has no more."""
        return [number for number in self.begins or () if number >= self.end]

    def next(self) -> dict[int, int]:
        """The offset that comes next in each of them, before any of their records; empty if the split does not say."""
        if self.begins is None:
            return {}
        return {number: self.begins.get(number, 0) for number in range(self.first, self.end)}


_NEW_PARTITIONS = re.compile(
    r"[^/]*(?:/begins(?P<begins>(?:/\d+=\d+)*))?/partitions/(?P<first>\d+)-(?P<end>\d+)"  # no topic has a slash
)
_BEGIN = re.compile(r"(\d+)=(\d+)")


@dataclass(frozen=True)
class TopicPosition:
    """How far a topic was read: its id, empty at the beginning, the offset that comes next by partition, and how many
    ``partitions`` are known.
    """

    topic_id: str = ""
    next: Mapping[int, int] = field(default_factory=dict)
    partitions: int = 0

    @classmethod
    def parse(cls, mark: str) -> Self:
        """The inverse of ``mark``. Raises ValueError."""
        if not mark:
            return cls()
        written = json.loads(mark)
        next_offsets = {int(number): int(offset) for number, offset in written["next"].items()}
        return cls(str(written["topic_id"]), next_offsets, int(written.get("partitions", 0)))

    @property
    def mark(self) -> str:
        """The position as text."""
        next_offsets = {str(number): self.next[number] for number in sorted(self.next)}
        written = {"topic_id": self.topic_id, "next": next_offsets, "partitions": self.partitions}
        return json.dumps(written, sort_keys=True, separators=(",", ":"))

    def passed(self, splits: Sequence[SourceSplit]) -> "TopicPosition":
        """The position once ``splits`` have been read; where they are of another topic, nothing of this one is left."""
        topic_id = splits[-1].etag
        known = self if self.topic_id in ("", topic_id) else TopicPosition()
        next_offsets, partitions = {**known.next}, known.partitions
        for split in splits:
            new = NewPartitions.of(split)
            if new is not None:
                partitions = max(partitions, new.end)
                next_offsets = {**new.next(), **next_offsets}
            else:
                one = OffsetRange.of(split)
                next_offsets[one.partition] = one.end
        return TopicPosition(topic_id, next_offsets, partitions)


def in_turns(unread: Sequence[OffsetRange], most: int) -> Iterator[OffsetRange]:
    """``unread``, one range of each partition, in pieces of at most ``most`` offsets: in each turn every partition goes
    on by the same part of what it has, so none is ahead of the others by more than that.
    """
    turns = max((-(-(one.end - one.begin) // most) for one in unread), default=0)
    for turn in range(turns):
        for one in unread:
            lag = one.end - one.begin
            begin, end = (one.begin + lag * number // turns for number in (turn, turn + 1))
            if begin < end:
                yield OffsetRange(one.partition, begin, end)


def spread(unread: Sequence[OffsetRange], places: int) -> Iterator[OffsetRange]:
    """What comes behind so many places in ``unread``, each of another partition and further on in it, as far as there
    are partitions; those that have most.
    """
    largest = sorted(unread, key=lambda one: one.begin - one.end)[:places]
    for number in range(places):
        one = largest[number % len(largest)]
        yield replace(one, begin=one.begin + (one.end - one.begin) * number // places)
