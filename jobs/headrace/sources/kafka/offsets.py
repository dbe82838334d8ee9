"""Offsets of a topic: how far it was read, and the ranges that come next, partitions in turns."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from headrace.sources.connector import SourceSplit


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
class TopicPosition:
    """How far a topic was read: its id, empty at the beginning, and the offset that comes next by partition."""

    topic_id: str = ""
    next: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, mark: str) -> Self:
        """The inverse of ``mark``. Raises ValueError."""
        if not mark:
            return cls()
        written = json.loads(mark)
        return cls(str(written["topic_id"]), {int(number): int(offset) for number, offset in written["next"].items()})

    @property
    def mark(self) -> str:
        """The position as text."""
        written = {"topic_id": self.topic_id, "next": {str(number): self.next[number] for number in sorted(self.next)}}
        return json.dumps(written, sort_keys=True, separators=(",", ":"))

    def passed(self, splits: Sequence[SourceSplit]) -> "TopicPosition":
        """The position once ``splits`` have been read."""
        ranges = [OffsetRange.of(split) for split in splits]
        return replace(self, topic_id=splits[-1].etag, next={**self.next, **{one.partition: one.end for one in ranges}})


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
