"""Sliding windows by slices of event time: elements of a key that are in the same windows are aggregated once, and what
they come to counts in each of these (the paired windows of Krishnamurthy, Wu and Franklin, SIGMOD 2006).

Late is judged by window, so all elements of a slice are late for the same ones.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.kernel.aggregates.ordering import fold
from headrace.kernel.grouping import Groups, Ints
from headrace.kernel.keys import grouped
from headrace.kernel.stage import CompiledStage
from headrace.kernel.windows.assignment import Assigned, assigned, slice_starts
from headrace.model.accumulation import TimestampCombiner
from headrace.model.time import Instant
from headrace.model.windows import SlidingWindows
from headrace.program import columns as c
from headrace.program.triggers import ColumnMerge

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class InWindows:
    """The rows of a bundle in their ``windows``, whose ``row`` is that of the bundle, which has so many ``rows``."""

    windows: Assigned
    rows: int

    def number(self, chosen: Flags) -> NDArray[np.bool_] | Ints:
        """How many of the ``chosen`` rows stand in each of the windows."""
        return chosen[self.windows.row]

    def standing(self, which: Flags | None) -> Flags:
        """The rows that are in any of those windows; None: of all."""
        flags = np.zeros(self.rows, np.bool_)
        flags[self.windows.row if which is None else self.windows.row[which]] = True
        return flags

    def each(self, which: Flags) -> Assigned:
        """Rows in those windows."""
        return self.windows.where(which)


@dataclass(frozen=True)
class InSlices:
    """The rows of a bundle by slice: ``windows`` are those of slices, in the order of their ``starts``, and ``place``
    says the slice of each row; a row that takes no part has one behind the last.
    """

    windows: Assigned
    starts: Ints
    place: Ints

    @classmethod
    def of(cls, where: SlidingWindows, times: pa.Array) -> "InSlices":
        """Rows at ``times`` (int64, granules; NULL takes no part)."""
        known = np.asarray(times.is_valid())
        begins = slice_starts(where, times.fill_null(0).to_numpy())
        encoded = pa.array(begins, mask=~known).dictionary_encode()
        starts = encoded.dictionary.to_numpy()
        place = encoded.indices.fill_null(len(starts)).to_numpy()
        return cls(assigned(where, encoded.dictionary, {}, {}), starts, place)

    def number(self, chosen: Flags) -> NDArray[np.bool_] | Ints:
        """How many of the ``chosen`` rows stand in each of the windows."""
        return np.bincount(self.place[chosen], minlength=len(self.starts) + 1)[self.windows.row]

    def standing(self, which: Flags | None) -> Flags:
        """The rows that are in any of those windows; None: of all."""
        flags = np.zeros(len(self.starts) + 1, np.bool_)
        flags[self.windows.row if which is None else self.windows.row[which]] = True
        return flags[self.place]

    def each(self, which: Flags) -> Assigned:
        """Rows in those windows."""
        chosen = self.windows.where(which)
        sizes = np.bincount(chosen.row, minlength=len(self.starts) + 1)
        first = np.cumsum(sizes) - sizes
        counts = sizes[self.place]
        row = np.repeat(np.arange(len(self.place)), counts)
        behind = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
        window = np.repeat(first[self.place], counts) + behind
        return Assigned(row, chosen.start[window], chosen.end[window], chosen.is_first[window])

    def in_one_each(self, which: Flags) -> Assigned:
        """The rows that are in any of those windows, in their slice as if it were a window."""
        row = np.flatnonzero(self.standing(which))
        start = self.starts[self.place[row]]
        return Assigned(row, start, start, np.ones(len(row), np.bool_))


def in_windows(stage: CompiledStage, delta: pa.RecordBatch, watermark: Instant) -> pa.RecordBatch:
    """A ``delta`` of slices, whose starts are its ``_ws``, as one of windows: those that have not expired at
    ``watermark``.
    """
    windows = assigned(stage.where, delta.column(c.WINDOW_START), {}, {})
    windows = windows.where(~stage.expired(windows.end, watermark))
    row = pa.array(windows.row)
    keys = [delta.column(name).take(row) for name in stage.keys]
    keyed = grouped(delta.column(c.HASH).to_numpy()[windows.row], keys, windows.start, windows.end)
    first = keyed.first_rows
    groups = Groups(keyed.offsets, windows.row if keyed.order is None else windows.row[keyed.order])
    columns = {name: groups.first(delta.column(name)) for name in (c.HASH, *stage.keys)}
    columns |= {c.WINDOW_START: pa.array(windows.start[first]), c.WINDOW_END: pa.array(windows.end[first])}
    for part in stage.parts:
        columns[part.name] = part.gather(groups.arranged(delta.column(part.name)), groups)
    for name, how in _folds(stage).items():
        columns[name] = fold(how, groups.arranged(delta.column(name)), groups)
    return pa.RecordBatch.from_pydict(columns, schema=stage.delta_schema)


def _folds(stage: CompiledStage) -> dict[str, ColumnMerge]:
    """How what a delta has besides parts becomes one."""
    latest = stage.how.timestamp is TimestampCombiner.LATEST
    measures = {measure.name: measure.fold for measure in stage.trigger.measures}
    others = {
        c.COUNT: ColumnMerge.SUM,
        c.HELD: ColumnMerge.MAX if latest else ColumnMerge.MIN,
        c.RETRACTED: ColumnMerge.SUM,
    }
    return {name: how for name, how in {**others, **measures}.items() if name in (c.COUNT, *stage.carried)}
