"""A window function of users' own."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.model.time import NEVER, Instant
from headrace.model.windows import CustomWindows, MergeGroup, Window


@dataclass(frozen=True)
class Validity(CustomWindows):
    """Values hold for ``length`` at most, or until the next one comes."""

    length: int

    @property
    def merges(self) -> bool:
        return True

    def assign(self, timestamp: Instant, record: Mapping[str, Any]) -> Iterable[Window]:
        yield Window(timestamp, Instant(timestamp + self.length))

    def merge(self, windows: Collection[Window]) -> Iterable[MergeGroup]:
        starts = sorted({window.start for window in windows})
        for start, following in zip(starts, [*starts[1:], NEVER], strict=True):
            same = frozenset(window for window in windows if window.start == start)
            yield MergeGroup(same, Window(start, min(*(window.end for window in same), following)))
