"""Where in event time, on columns: the windows of each row, and what the windows of a key become together (semantics,
section 2).
"""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.errors import PipelineError
from headrace.kernel.custom_objects import assigned_windows, custom_output_times, merged_custom
from headrace.kernel.expressions.dates import calendar_windows
from headrace.kernel.expressions.evaluation import Rows, column
from headrace.kernel.grouping import Ints, run_begins, with_first
from headrace.kernel.keys import grouped
from headrace.model.calendar import CalendarWindows
from headrace.model.expressions.data_types import Schema
from headrace.model.expressions.expr import Literal
from headrace.model.expressions.functions import coalesce
from headrace.model.time import GLOBAL_WINDOW_END, MIN_INSTANT
from headrace.model.windows import (
    CustomWindows,
    FixedWindows,
    GlobalWindows,
    Sessions,
    ShiftedOutputTime,
    SlidingWindows,
    WindowFn,
)

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Assigned:
    """Rows in their windows, in the order of rows and of each one's windows; those that are in none are missing.

    ``stamp`` is the timestamp that a row gives its pane there; None: its event time.
    """

    row: Ints
    start: Ints
    end: Ints
    is_first: Flags
    stamp: Ints | None = None

    def where(self, chosen: Flags) -> "Assigned":
        """The ``chosen`` ones."""
        stamp = None if self.stamp is None else self.stamp[chosen]
        return Assigned(self.row[chosen], self.start[chosen], self.end[chosen], self.is_first[chosen], stamp)


def assigned(
    where: WindowFn, times: pa.Array, keys: Rows, key_types: Schema, records: pa.Array | None = None
) -> Assigned:
    """The windows of rows at ``times`` (int64, granules; NULL takes no part). A phase reads the ``keys``, a user's own
    function the ``records``: structs whose timestamps are Instants.
    """
    match where:
        case ShiftedOutputTime(inner, shift):
            windows = assigned(inner, times, keys, key_types, records)
            stamp = times.fill_null(0).to_numpy()[windows.row] if windows.stamp is None else windows.stamp
            return replace(windows, stamp=stamp + int(shift))
        case CustomWindows():
            counts, start, end, stamp = assigned_windows(where, times, records)
            row = np.repeat(np.arange(len(times), dtype=np.int64), counts)
            return Assigned(row, start, end, run_begins(row), stamp)
    row = np.flatnonzero(np.asarray(times.is_valid()))
    at = times.fill_null(0).to_numpy()[row] if times.null_count else times.to_numpy()
    if isinstance(where, SlidingWindows):
        return _sliding(where, row, at)
    if isinstance(where, FixedWindows):
        start, end = _fixed(where, at, _shift(where, keys, key_types, row, len(times)))
    else:
        start, end = _only_by_time(where, at)
    return Assigned(row, start, end, np.ones(len(row), np.bool_))


def _only_by_time(where: WindowFn, at: Ints) -> tuple[Ints, Ints]:
    match where:
        case Sessions(gap):
            return at, at + int(gap)
        case CalendarWindows():
            return calendar_windows(where, at)
        case GlobalWindows():
            return np.full(len(at), int(MIN_INSTANT)), np.full(len(at), int(GLOBAL_WINDOW_END))
    raise PipelineError(f"{where!r} is not a window function")


def _fixed(where: FixedWindows, at: Ints, shift: int | Ints) -> tuple[Ints, Ints]:
    start: Ints = at - (at - shift) % int(where.size)
    return start, start + int(where.size)


def _shift(where: FixedWindows, keys: Rows, key_types: Schema, row: Ints, length: int) -> int | Ints:
    """How far the windows of the key of each ``row`` are shifted (2.2)."""
    if where.phase is None:
        return int(where.offset)
    phase = coalesce(where.phase, Literal(0))
    shifts: Ints = column(phase, keys, key_types, length).to_numpy()[row]
    return (shifts % int(where.size) + int(where.offset)) % int(where.size)


def count_windows(where: WindowFn, at: Ints) -> Ints:
    """How many windows an element at each time is in; a user's own window function alone can say that of its own."""
    match where:
        case ShiftedOutputTime(inner):
            return count_windows(inner, at)
        case SlidingWindows():
            return _reaching(where, at)[1]
        case CustomWindows():
            raise PipelineError(f"{where!r} is a window function of its own")
    return np.ones(len(at), np.int64)


def _reaching(where: SlidingWindows, at: Ints) -> tuple[Ints, Ints]:
    """How long before each time the last window starts, and how many reach it: the last starts at the last multiple of
    the period, those before it reach the time for as long as ``size`` goes (2.3).
    """
    size, period = int(where.size), int(where.period)
    since = (at - int(where.offset)) % period
    counts = (size - since + period - 1) // period
    return since, counts


def _sliding(where: SlidingWindows, row: Ints, at: Ints) -> Assigned:
    size, period = int(where.size), int(where.period)
    since, counts = _reaching(where, at)
    row, first = np.repeat(row, counts), np.repeat(at - since - (counts - 1) * period, counts)
    place = np.arange(len(row), dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)
    start = first + place * period
    return Assigned(row, start, start + size, place == 0)


def slice_starts(where: SlidingWindows, at: Ints) -> Ints:
    """Where the slice of each time begins. Times of one slice are in the same windows, and so is its start: a slice
    ends where a window begins or ends.
    """
    period, rest = int(where.period), int(where.size) % int(where.period)
    since = (at - int(where.offset)) % period
    return at - since + np.where(since < rest, 0, rest)


def output_times(where: WindowFn, times: Ints, start: Ints, end: Ints) -> Ints:
    """The timestamps that elements at ``times`` give the panes of their windows."""
    match where:
        case CustomWindows():
            return custom_output_times(where, times, start, end)
        case ShiftedOutputTime(inner, shift):
            return output_times(inner, times, start, end) + int(shift)
    return times


def merged_windows(where: WindowFn, key: Ints, start: Ints, end: Ints, is_new: Flags) -> tuple[Ints, Ints]:
    """What the window of each row becomes among the open and new ones of its ``key`` (2.4, 2.6, 3.5): itself where it
    merges with none. Nothing merges in a key of which no row ``is_new``.
    """
    if isinstance(where, ShiftedOutputTime):
        return merged_windows(where.inner, key, start, end, is_new)
    touched = np.zeros(int(key.max(initial=-1)) + 1, np.bool_)
    touched[key[is_new]] = True
    rows = np.flatnonzero(touched[key])
    order = grouped(key[rows].view(np.uint64), [], start[rows], end[rows]).order
    rows = rows if order is None else rows[order]
    result = start.copy(), end.copy()
    if isinstance(where, Sessions):
        result[0][rows], result[1][rows] = _merged_sessions(where, key[rows], start[rows], end[rows])
    elif isinstance(where, CustomWindows) and where.merges:
        result[0][rows], result[1][rows] = merged_custom(where, key[rows], start[rows], end[rows])
    return result


def _merged_sessions(where: Sessions, key: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """What sessions in the order of (key, window) become: one that begins after the ends of all before it of its key
    begins another.
    """
    same_key = key[1:] == key[:-1]
    reach = _reach(end, same_key)
    apart = start[1:] > reach[:-1] if where.touching_merges else start[1:] >= reach[:-1]
    begins = with_first(apart | ~same_key, len(key))
    first = np.flatnonzero(begins)
    group = np.cumsum(begins) - 1
    return start[first][group], np.maximum.reduceat(end, first)[group] if len(first) else end


def _reach(ends: Ints, same_key: Flags) -> Ints:
    """The largest end among those of a key so far: of twice as many rows in every round, until nothing changes."""
    reach, near, distance = ends.copy(), same_key, 1
    while len(near):
        before = np.where(near, reach[:-distance], reach[distance:])
        if (before <= reach[distance:]).all():
            return reach
        reach[distance:] = np.maximum(reach[distance:], before)
        near = near[distance:] & near[:-distance]
        distance *= 2
    return reach
