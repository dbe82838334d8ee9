"""Where in event time, on columns: the windows of each row, by assignment or by slices that windows share.

Elements of a key that are in the same sliding windows are aggregated once, and the result counts in each of these
windows. These are the paired windows of Krishnamurthy, Wu and Franklin (SIGMOD 2006). Late is judged by window, so all
elements of a slice are late for the same ones. Windows of a key may become one together (semantics, section 2).
"""

from dataclasses import dataclass, replace

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.errors import PipelineError
from headrace.kernel.aggregates.ordering import fold
from headrace.kernel.columns import Groups, Ints, as_numpy, run_begins, valid_mask, with_first
from headrace.kernel.custom_objects import assigned_windows, custom_output_times, merged_custom
from headrace.kernel.expressions.casts import calendar_windows
from headrace.kernel.expressions.evaluation import RowColumns, evaluate_column
from headrace.kernel.keys import group_by_key, in_order_of_hashes
from headrace.kernel.stage import CompiledStage
from headrace.model import windows as model_windows
from headrace.model.accumulation import TimestampCombiner
from headrace.model.expressions.columns import coalesce
from headrace.model.expressions.data_types import Schema
from headrace.model.expressions.expr import Literal
from headrace.model.time import GLOBAL_WINDOW_END, MIN_INSTANT, Instant
from headrace.program import columns as c
from headrace.program.triggers.node import ColumnMerge

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class AssignedRows:
    """Rows in their windows, in the order of rows and of each one's windows; rows in no window are missing.

    ``stamp`` is the timestamp that a row gives its pane there; None: its event time.
    """

    row: Ints
    start: Ints
    end: Ints
    is_first: Flags
    stamp: Ints | None = None

    def where(self, is_chosen: Flags) -> "AssignedRows":
        stamp = None if self.stamp is None else self.stamp[is_chosen]
        return AssignedRows(
            self.row[is_chosen], self.start[is_chosen], self.end[is_chosen], self.is_first[is_chosen], stamp
        )


def assign_windows(
    where: model_windows.WindowFn, times: pa.Array, keys: RowColumns, key_types: Schema, records: pa.Array | None = None
) -> AssignedRows:
    """The windows of rows at ``times`` (int64, granules; NULL takes no part). A phase reads the ``keys``, a user's own
    function the ``records``: structs whose timestamps are Instants.
    """
    match where:
        case model_windows.ShiftedOutputTime(inner, shift):
            windows = assign_windows(inner, times, keys, key_types, records)
            stamp = as_numpy(times.fill_null(0))[windows.row] if windows.stamp is None else windows.stamp
            return replace(windows, stamp=stamp + int(shift))
        case model_windows.CustomWindows():
            counts, start, end, stamp = assigned_windows(where, times, records)
            row = np.repeat(np.arange(len(times), dtype=np.int64), counts)
            return AssignedRows(row, start, end, run_begins(row), stamp)
    row = np.flatnonzero(valid_mask(times))
    instants = as_numpy(times.fill_null(0))[row] if times.null_count else as_numpy(times)
    if isinstance(where, model_windows.SlidingWindows):
        return _sliding_windows(where, row, instants)
    if isinstance(where, model_windows.FixedWindows):
        start, end = _fixed_windows(where, instants, _phase_shift(where, keys, key_types, row, len(times)))
    else:
        start, end = _only_by_time(where, instants)
    return AssignedRows(row, start, end, np.ones(len(row), np.bool_))


def _only_by_time(where: model_windows.WindowFn, instants: Ints) -> tuple[Ints, Ints]:
    match where:
        case model_windows.Sessions(gap):
            return instants, instants + int(gap)
        case model_windows.CalendarWindows():
            return calendar_windows(where, instants)
        case model_windows.GlobalWindows():
            return np.full(len(instants), int(MIN_INSTANT)), np.full(len(instants), int(GLOBAL_WINDOW_END))
    raise PipelineError(f"{where!r} is not a window function")


def _fixed_windows(where: model_windows.FixedWindows, instants: Ints, shift: int | Ints) -> tuple[Ints, Ints]:
    size = int(where.size)
    start: Ints = (
        instants - shift
    ) // size * size + shift  # numpy divides several times faster than it takes remainders
    return start, start + size


def _phase_shift(
    where: model_windows.FixedWindows, keys: RowColumns, key_types: Schema, row: Ints, length: int
) -> int | Ints:
    """How far the windows of the key of each ``row`` are shifted (2.2)."""
    if where.phase is None:
        return int(where.offset)
    phase = coalesce(where.phase, Literal(0))
    shifts: Ints = as_numpy(evaluate_column(phase, keys, key_types, length))[row]
    return (shifts % int(where.size) + int(where.offset)) % int(where.size)


def count_windows(where: model_windows.WindowFn, times: Ints) -> Ints:
    """How many windows an element at each time is in; a user's own window function alone can say that of its own."""
    match where:
        case model_windows.ShiftedOutputTime(inner):
            return count_windows(inner, times)
        case model_windows.SlidingWindows():
            return _sliding_reach(where, times)[1]
        case model_windows.CustomWindows():
            raise PipelineError(f"{where!r} is a window function of its own")
    return np.ones(len(times), np.int64)


def _sliding_reach(where: model_windows.SlidingWindows, instants: Ints) -> tuple[Ints, Ints]:
    """How long before each time the last window starts, and how many windows reach it. The last starts at the last
    multiple of the period; earlier ones reach the time while ``size`` allows (2.3).
    """
    size, period = int(where.size), int(where.period)
    time_since_start = (instants - int(where.offset)) % period
    counts = (size - time_since_start + period - 1) // period
    return time_since_start, counts


def _sliding_windows(where: model_windows.SlidingWindows, row: Ints, instants: Ints) -> AssignedRows:
    size, period = int(where.size), int(where.period)
    time_since_start, counts = _sliding_reach(where, instants)
    row, first = np.repeat(row, counts), np.repeat(instants - time_since_start - (counts - 1) * period, counts)
    place = np.arange(len(row), dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)
    start = first + place * period
    return AssignedRows(row, start, start + size, place == 0)


def slice_starts(where: model_windows.SlidingWindows, times: Ints) -> Ints:
    """Where the slice of each time begins. Times of one slice are in the same windows, and so is its start: a slice
    ends where a window begins or ends.
    """
    period, rest = int(where.period), int(where.size) % int(where.period)
    time_since_start = (times - int(where.offset)) % period
    return times - time_since_start + np.where(time_since_start < rest, 0, rest)


def output_times(where: model_windows.WindowFn, times: Ints, start: Ints, end: Ints) -> Ints:
    """The timestamps that elements at ``times`` give the panes of their windows."""
    match where:
        case model_windows.CustomWindows():
            return custom_output_times(where, times, start, end)
        case model_windows.ShiftedOutputTime(inner, shift):
            return output_times(inner, times, start, end) + int(shift)
    return times


def merged_windows(
    where: model_windows.WindowFn, key: Ints, start: Ints, end: Ints, is_new: Flags
) -> tuple[Ints, Ints]:
    """What the window of each row becomes among the open and new ones of its ``key`` (2.4, 2.6, 3.5): itself where it
    merges with none. Nothing merges in a key of which no row ``is_new``.
    """
    if isinstance(where, model_windows.ShiftedOutputTime):
        return merged_windows(where.inner, key, start, end, is_new)
    # stored windows of a key were merged with each other when they were stored
    has_new = np.zeros(int(key.max(initial=-1)) + 1, np.bool_)
    has_new[key[is_new]] = True
    rows = np.flatnonzero(has_new[key])
    order = group_by_key(key[rows].view(np.uint64), [], start[rows], end[rows]).order
    rows = rows if order is None else rows[order]
    result = start.copy(), end.copy()
    if isinstance(where, model_windows.Sessions):
        result[0][rows], result[1][rows] = _merged_sessions(where, key[rows], start[rows], end[rows])
    elif isinstance(where, model_windows.CustomWindows) and where.merges:
        result[0][rows], result[1][rows] = merged_custom(where, key[rows], start[rows], end[rows])
    return result


def _merged_sessions(where: model_windows.Sessions, key: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Sessions in order of (key, window), merged: one after the ends of all before it of its key begins another."""
    same_key = key[1:] == key[:-1]
    reach = _running_maximum(end, same_key)
    is_apart = start[1:] > reach[:-1] if where.touching_merges else start[1:] >= reach[:-1]
    begins = with_first(is_apart | ~same_key, len(key))
    first = np.flatnonzero(begins)
    group = np.cumsum(begins) - 1
    return start[first][group], np.maximum.reduceat(end, first)[group] if len(first) else end


def _running_maximum(ends: Ints, same_key: Flags) -> Ints:
    """The largest end among those of a key so far: of twice as many rows in every round, until nothing changes."""
    reach, same_key_nearby, distance = ends.copy(), same_key, 1
    while len(same_key_nearby):
        reach_before = np.where(same_key_nearby, reach[:-distance], reach[distance:])
        if (reach_before <= reach[distance:]).all():
            return reach
        reach[distance:] = np.maximum(reach[distance:], reach_before)
        same_key_nearby = same_key_nearby[distance:] & same_key_nearby[:-distance]
        distance *= 2
    return reach


class InWindows(msgspec.Struct, frozen=True):
    """The rows of a bundle in their ``windows``, whose ``row`` is that of the bundle, which has so many ``rows``."""

    windows: AssignedRows
    rows: int

    def count_per_window(self, is_chosen: Flags) -> NDArray[np.bool_] | Ints:
        """How many of the rows that ``is_chosen`` marks stand in each of the windows."""
        return is_chosen[self.windows.row]

    def rows_in_windows(self, which: Flags | None) -> Flags:
        """The rows that are in any of those windows; None: of all."""
        flags = np.zeros(self.rows, np.bool_)
        flags[self.windows.row if which is None else self.windows.row[which]] = True
        return flags

    def select_windows(self, which: Flags) -> AssignedRows:
        """Rows in those windows."""
        return self.windows.where(which)


class InSlices(msgspec.Struct, frozen=True):
    """The rows of a bundle by slice. ``windows`` are those of slices, in the order of their ``starts``. ``place`` says
    the slice of each row; a row that takes no part has one behind the last.
    """

    windows: AssignedRows
    starts: Ints
    place: Ints

    @classmethod
    def from_times(cls, where: model_windows.SlidingWindows, times: pa.Array) -> "InSlices":
        """Rows at ``times`` (int64, granules; NULL takes no part)."""
        is_known = valid_mask(times)
        begins = slice_starts(where, as_numpy(times.fill_null(0)))
        dictionary_array = pa.array(begins, mask=~is_known).dictionary_encode()
        starts = as_numpy(dictionary_array.dictionary)
        place = as_numpy(dictionary_array.indices.fill_null(len(starts)))
        return cls(assign_windows(where, dictionary_array.dictionary, {}, {}), starts, place)

    def count_per_window(self, is_chosen: Flags) -> NDArray[np.bool_] | Ints:
        """How many of the rows that ``is_chosen`` marks stand in each of the windows."""
        return np.bincount(self.place[is_chosen], minlength=len(self.starts) + 1)[self.windows.row]

    def rows_in_windows(self, which: Flags | None) -> Flags:
        """The rows that are in any of those windows; None: of all."""
        flags = np.zeros(len(self.starts) + 1, np.bool_)
        flags[self.windows.row if which is None else self.windows.row[which]] = True
        return flags[self.place]

    def select_windows(self, which: Flags) -> AssignedRows:
        """Rows in those windows."""
        selection = self.windows.where(which)
        sizes = np.bincount(selection.row, minlength=len(self.starts) + 1)
        first = np.cumsum(sizes) - sizes
        counts = sizes[self.place]
        row = np.repeat(np.arange(len(self.place)), counts)
        number_within = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
        window = np.repeat(first[self.place], counts) + number_within
        return AssignedRows(row, selection.start[window], selection.end[window], selection.is_first[window])

    def in_one_each(self, which: Flags) -> AssignedRows:
        """The rows that are in any of those windows, in their slice as if it were a window."""
        row = np.flatnonzero(self.rows_in_windows(which))
        start = self.starts[self.place[row]]
        return AssignedRows(row, start, start, np.ones(len(row), np.bool_))


def in_windows(stage: CompiledStage, delta: pa.RecordBatch, watermark: Instant) -> pa.RecordBatch:
    """A ``delta`` of slices (``_ws``: starts) as one of windows: those that have not expired at ``watermark``."""
    windows = assign_windows(stage.where, delta.column(c.WINDOW_START), {}, {})
    windows = windows.where(~stage.expired_mask(windows.end, watermark))
    return _fold_windows(stage, delta, windows)


def fold_delta(stage: CompiledStage, delta: pa.RecordBatch) -> pa.RecordBatch:
    """A ``delta``, in any order, with one row for each (key, window), in the order of (hash, window); it stays as it is
    where windows merge or elements are listed.
    """
    if stage.merging or stage.lists or not {*stage.carried_columns} <= {*_column_merges(stage)}:
        return delta.take(pa.array(in_order_of_hashes(as_numpy(delta.column(c.HASH)))))
    start, end = (as_numpy(delta.column(name)) for name in (c.WINDOW_START, c.WINDOW_END))
    rows = np.arange(delta.num_rows)
    return _fold_windows(stage, delta, AssignedRows(rows, start, end, np.ones(len(rows), np.bool_)))


def _fold_windows(stage: CompiledStage, delta: pa.RecordBatch, windows: AssignedRows) -> pa.RecordBatch:
    """Rows of a ``delta`` as those of ``windows``, one for each (key, window)."""
    row = pa.array(windows.row)
    keys = [delta.column(name).take(row) for name in stage.keys]
    groups_by_window = group_by_key(as_numpy(delta.column(c.HASH))[windows.row], keys, windows.start, windows.end)
    first = groups_by_window.first_rows
    groups = Groups(
        groups_by_window.offsets, windows.row if groups_by_window.order is None else windows.row[groups_by_window.order]
    )
    columns = {name: groups.first_values(delta.column(name)) for name in (c.HASH, *stage.keys)}
    columns |= {c.WINDOW_START: pa.array(windows.start[first]), c.WINDOW_END: pa.array(windows.end[first])}
    for part in stage.parts:
        columns[part.name] = part.gather(groups.arrange_column(delta.column(part.name)), groups)
    for name, how in _column_merges(stage).items():
        columns[name] = fold(how, groups.arrange_column(delta.column(name)), groups)
    return pa.RecordBatch.from_pydict(columns, schema=stage.delta_schema)


def _column_merges(stage: CompiledStage) -> dict[str, ColumnMerge]:
    """How what a delta has besides parts becomes one."""
    latest = stage.how.timestamp is TimestampCombiner.LATEST
    measures = {measure.name: measure.fold for measure in stage.trigger.measures}
    others = {
        c.COUNT: ColumnMerge.SUM,
        c.HELD_TIME: ColumnMerge.MAX if latest else ColumnMerge.MIN,
        c.RETRACTION_COUNT: ColumnMerge.SUM,
    }
    return {name: how for name, how in {**others, **measures}.items() if name in (c.COUNT, *stage.carried_columns)}
