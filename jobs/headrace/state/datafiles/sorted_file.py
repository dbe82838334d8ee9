"""Runs: rows in the order of their hashes, as one data file holds them, and what they want next."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.kernel.grouping import Ints
from headrace.kernel.state import rows_of
from headrace.model.time import GLOBAL_WINDOW_END, NEVER, Instant
from headrace.program import columns as c
from headrace.program.firing import FiringClocks
from headrace.state.datafiles.resident import RESIDENT, release
from headrace.state.key_groups import Hashes, KeyGroupRange

Rows = NDArray[np.uint32]


@dataclass(frozen=True)
class DeadlineIndex:
    """Times of rows in their order: ascending ``times``, and the row of each, ``begin`` the first one that counts and
    ``length`` how many do. What is said of times alone holds for all rows, so for some it is a bound.
    """

    times: Ints
    rows: Rows
    begin: int
    length: int

    @classmethod
    def of(cls, dues: Ints) -> "DeadlineIndex":
        """Indexes a column of times, NEVER where a row has none."""
        rows = np.flatnonzero(dues < NEVER)
        order = rows[_order(dues[rows])]
        return cls(dues[order], order.astype(np.uint32), 0, len(dues))

    def within(self, begin: int, length: int) -> "DeadlineIndex":
        """The index of ``length`` rows from ``begin`` on, numbered from there."""
        return DeadlineIndex(self.times, self.rows, self.begin + begin, length)

    def rows_in(self, low: int, high: int) -> Ints:
        """The rows whose time is in [low, high)."""
        return self.rows_at(*np.searchsorted(self.times, [low, high]).tolist())

    def rows_at(self, first: int, after: int) -> Ints:
        """The rows of the times from place ``first`` to before ``after``."""
        rows = self.rows[first:after].astype(np.int64) - self.begin
        own: Ints = rows[(rows >= 0) & (rows < self.length)]
        return own

    def most_in(self, low: int, high: int) -> int:
        """An upper bound of how many rows have a time in [low, high)."""
        first, after = np.searchsorted(self.times, [low, high])
        return max(int(after) - int(first), 0)

    def next_from(self, at: int) -> Instant:
        """A lower bound of the first time at ``at`` or later, NEVER if there is none before the end of time."""
        index = int(np.searchsorted(self.times, at))
        first = int(self.times[index]) if index < len(self.times) else int(NEVER)
        return Instant(first) if first < GLOBAL_WINDOW_END else NEVER


@dataclass(frozen=True)
class Deadlines:
    """What the rows of a run want and hold: watermarks and processing times at which they want an activation, holds."""

    event: DeadlineIndex
    time: DeadlineIndex
    hold: DeadlineIndex

    @classmethod
    def of(cls, rows: pa.RecordBatch) -> "Deadlines":
        """Indexes the times of state rows."""
        columns = (rows.column(name).fill_null(int(NEVER)) for name in (c.DUE_EVENT, c.DUE_TIME, c.HOLD))
        return cls(*(DeadlineIndex.of(column.to_numpy()) for column in columns))

    def within(self, begin: int, length: int) -> "Deadlines":
        """The deadlines of ``length`` rows from ``begin`` on."""
        return Deadlines(*(index.within(begin, length) for index in (self.event, self.time, self.hold)))


@dataclass(frozen=True)
class SortedFile:
    """Rows in the order of (hash, window). ``known``: their deadlines, where these were worked out before.
    ``file``: the mapped file that both are in, if they are in one. ``constant``: what is known to have one value in all
    rows.
    """

    rows: pa.RecordBatch
    known: Deadlines | None = None
    file: pa.Buffer | None = None
    constant: Mapping[str, pa.Scalar] = field(default_factory=dict)

    @cached_property
    def deadlines(self) -> Deadlines:
        """Deadlines of state rows; other rows have none."""
        return Deadlines.of(self.rows) if self.known is None else self.known

    @cached_property
    def hashes(self) -> Hashes:
        """The hash of each row."""
        values: Hashes = self.rows.column(c.HASH).to_numpy()
        return values

    def cut(self, part: KeyGroupRange) -> "SortedFile":
        """Its rows of ``part``, without a copy."""
        span = part.span(self.hashes)
        begin, length = span.start, span.stop - span.start
        known = self.known and self.known.within(begin, length)
        return replace(self, rows=self.rows.slice(begin, length), known=known)

    def rows_of(self, wanted: Hashes, names: Sequence[str] | None = None) -> pa.RecordBatch:
        """The rows whose hash is one of ``wanted``, which ascend: of the columns ``names``, or all."""
        return rows_of(self.rows if names is None else self.rows.select(names), wanted, self.constant)

    def let_go(self) -> None:
        """Say that a mapped file is not used for now: pages that were read may go, as far as ``RESIDENT`` has no room.
        The next access loads them again.
        """
        if self.file is not None:
            RESIDENT.let_go(self.file)

    def release(self) -> None:
        """Release the memory of all pages that were read: soon the file is superseded."""
        if self.file is not None:
            release(self.file)

    def due(self, clocks: FiringClocks) -> Hashes:
        """The hashes of rows that want an activation under ``clocks``: what was due before was activated then, and a
        newer run holds what became of it. (Until the watermark has passed its end, the next event-time activation of an
        open window is its end.)
        """
        steps = [(clocks.watermark_before, clocks.watermark_after), *clocks.percentiles.values()]
        places = [self.deadlines.event.rows_in(before, after) for before, after in steps]
        places.append(self.deadlines.time.rows_in(clocks.previous_processing_time + 1, clocks.processing_time + 1))
        wanted: Hashes = self.hashes[np.concatenate(places)]
        return wanted

    def most_due(self, clocks: FiringClocks) -> int:
        """An upper bound of how many rows want an activation under ``clocks`` (a newer run may know better)."""
        steps = [(clocks.watermark_before, clocks.watermark_after), *clocks.percentiles.values()]
        by_time = self.deadlines.time.most_in(clocks.previous_processing_time + 1, clocks.processing_time + 1)
        return by_time + sum(self.deadlines.event.most_in(before, after) for before, after in steps)


def in_turn(runs: Iterable[SortedFile]) -> Iterator[SortedFile]:
    """The ``runs``, each let go once the next one is asked for: an epoch that touches a few keys everywhere would have
    nearly every page of a large state in memory at its end.
    """
    for run in runs:
        yield run
        run.let_go()


def _order(values: Ints) -> Ints:
    """The places of ``values`` in ascending order, equal ones in their own.

    A place is packed after its value where both fit, for numpy sorts numbers several times faster than places.
    """
    if not len(values):
        return np.zeros(0, np.int64)
    least, bits = int(values.min()), len(values).bit_length()
    if (int(values.max()) - least).bit_length() + bits > 64:
        return np.argsort(values, kind="stable")
    packed = ((values - least).view(np.uint64) << np.uint64(bits)) | np.arange(len(values), dtype=np.uint64)
    packed.sort()
    return (packed & np.uint64((1 << bits) - 1)).view(np.int64)
