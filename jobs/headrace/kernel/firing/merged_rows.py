"""The rows that the program of ``program.firing`` runs over: for each window its state, merged where windows merged,
and what the delta brings (semantics 3.5, 12.8).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.kernel.aggregates.ordering import extreme_value, fold
from headrace.kernel.expressions.evaluation import column
from headrace.kernel.grouping import Groups, Ints, to_lists
from headrace.kernel.stage import LISTED, PLACE, CompiledStage
from headrace.kernel.state import Matched, Sides, match
from headrace.kernel.types import ARROW_TYPES
from headrace.kernel.windows.assignment import output_times
from headrace.model.accumulation import WINDOW_END, WINDOW_START, TimestampCombiner
from headrace.model.time import NEVER, Instant
from headrace.program import columns as c
from headrace.program.triggers import ColumnMerge, Measure


@dataclass(frozen=True)
class Combined:
    """A row for each window that an epoch may change. ``gone`` are the state rows of open windows that became part of
    another one.
    """

    rows: Mapping[str, pa.Array]
    gone: pa.RecordBatch

    def __len__(self) -> int:
        return len(self.rows[c.WINDOW_START])


def combine(stage: CompiledStage, sides: Sides, output_watermark: Instant) -> Combined:
    """State and delta, put together by window."""
    return _Combining(stage, sides, match(stage, sides), output_watermark).combined()


class _Combining:
    """Columns of a group out of columns of its rows."""

    def __init__(self, stage: CompiledStage, sides: Sides, matched: Matched, output_watermark: Instant) -> None:
        self.stage, self.sides, self.matched = stage, sides, matched
        self.behind = output_watermark
        groups = matched.groups
        order = np.arange(len(sides.is_open)) if groups.order is None else groups.order
        self.open = _rows_of(groups, order, sides.is_open[order])
        self.new = _rows_of(groups, order - sides.state.num_rows, sides.is_new[order])
        self.has = self.open.sizes > 0
        closed = sides.is_closed[order]
        self.was_closed = groups.reduce(np.maximum, closed.astype(np.int8), 0) > 0
        self.itself = self._itself()

    def _itself(self) -> Ints:
        """The open window of each group that is its result, -1 if none is."""
        rows = self.open.order
        assert rows is not None
        group = self.open.of_row
        start = self.sides.state.column(c.WINDOW_START).to_numpy()[rows]
        end = self.sides.state.column(c.WINDOW_END).to_numpy()[rows]
        same = (start == self.matched.start[group]) & (end == self.matched.end[group])
        places = np.full(len(self.open), -1, np.int64)
        places[group[same]] = rows[same]
        return places

    def combined(self) -> Combined:
        stage, sides = self.stage, self.sides
        first = pa.array(self.matched.groups.first_rows)
        itself = self.itself >= 0
        rows: dict[str, pa.Array] = {c.HASH: sides.both(c.HASH).take(first)}
        rows |= {name: sides.both(name).take(first) for name in stage.keys}
        rows |= {c.WINDOW_START: pa.array(self.matched.start), c.WINDOW_END: pa.array(self.matched.end)}
        rows |= {c.HAS_STATE: pa.array(self.has), c.WAS_CLOSED: pa.array(self.was_closed)}
        rows[c.STORED] = pa.array(self.was_closed | itself)
        rows[c.COUNT] = pa.array(self.new.reduce(np.add, self._of(self.new, c.COUNT).to_numpy(), 0))
        rows |= self._counters() | self._trigger_state() | self._carried() | self._contents()
        if stage.merging:
            rows[c.MERGED] = pa.array(self.has & ~((self.open.sizes == 1) & itself))
        if stage.remembers:
            rows[c.LIVE] = self._live()
        return Combined(rows, self._gone())

    def _gone(self) -> pa.RecordBatch:
        open_rows = self.open.order
        assert open_rows is not None
        if not self.stage.merging:
            return self.sides.state.slice(0, 0)
        return self.sides.state.take(pa.array(np.setdiff1d(open_rows, self.itself)))

    def _of(self, groups: Groups, name: str) -> pa.Array:
        """A column of the state or of the delta, arranged by group."""
        side = self.sides.state if groups is self.open else self.sides.delta
        return groups.arranged(side.column(name))

    def _fold(self, how: ColumnMerge, groups: Groups, name: str) -> pa.Array:
        values = self._of(groups, name)
        return _single(values, groups) if groups.sizes.max(initial=0) <= 1 else fold(how, values, groups)

    def _or_initial(self, values: pa.Array, initial: object) -> pa.Array:
        return pc.if_else(pa.array(self.has), values, pa.scalar(initial, values.type))

    def _counters(self) -> dict[str, pa.Array]:
        """Counts, holds and dues of open windows folded; pane counters survive only in a window that is a source."""
        latest = self.stage.how.timestamp is TimestampCombiner.LATEST
        counters = {
            c.NEW: self._or_initial(self._fold(ColumnMerge.SUM, self.open, c.NEW), 0),
            c.HOLD: self._fold(ColumnMerge.MAX if latest else ColumnMerge.MIN, self.open, c.HOLD),
        }
        for name in (c.DUE_EVENT, c.DUE_TIME):
            counters[name] = self._or_initial(self._fold(ColumnMerge.MIN, self.open, name), int(NEVER))
        itself = pa.array(self.itself, mask=self.itself < 0)
        for name in (c.INDEX, c.NONSPECULATIVE):
            counters[name] = self.sides.state.column(name).take(itself).fill_null(0)
        return counters

    def _trigger_state(self) -> dict[str, pa.Array]:
        trigger = self.stage.trigger
        merged = {}
        for field in trigger.fields:
            folded = self._fold(field.fold, self.open, field.name)
            initial = column(field.initial, {}, {}, len(folded)).cast(ARROW_TYPES[field.type])
            merged[field.name] = pc.if_else(pa.array(self.has), folded, initial)
        for sources in trigger.sources:
            columns = {name: self._of(self.open, stored) for name, stored in sources.fields.items()}
            items = pa.StructArray.from_arrays(list(columns.values()), names=list(columns))
            merged[sources.name] = to_lists(items, self.open)
        return merged

    def _carried(self) -> dict[str, pa.Array]:
        stage = self.stage
        carried = {measure.name: self._measure(measure) for measure in stage.trigger.measures}
        if c.HELD in stage.carried:
            latest = stage.how.timestamp is TimestampCombiner.LATEST
            carried[c.HELD] = self._fold(ColumnMerge.MAX if latest else ColumnMerge.MIN, self.new, c.HELD)
        if c.TIMES in stage.carried:
            carried[c.HELD] = self._held()
        if c.RETRACTED in stage.carried:
            carried[c.RETRACTED] = self._fold(ColumnMerge.SUM, self.new, c.RETRACTED).fill_null(0)
        return carried

    def _measure(self, measure: Measure) -> pa.Array:
        if measure.fold is not ColumnMerge.LIST:
            return self._fold(measure.fold, self.new, measure.name)
        items, groups = self.new.flattened(self._of(self.new, measure.name))
        if self.stage.merging:
            place = items.field(PLACE).to_numpy()
            items = items.field(LISTED).take(pa.array(np.lexsort((place, groups.of_row))))
        return to_lists(items, groups)

    def _held(self) -> pa.Array:
        """What the elements of a merged window give its pane (semantics 6.1, 6.2)."""
        stage, latest = self.stage, self.stage.how.timestamp is TimestampCombiner.LATEST
        assert stage.custom is not None
        times, groups = self.new.flattened(self._of(self.new, c.TIMES))
        start, end = (side[groups.of_row] for side in (self.matched.start, self.matched.end))
        stamps = output_times(stage.custom, times.to_numpy(), start, end) + stage.output_shift
        ahead = pa.array(stamps, mask=stamps < int(self.behind))
        return extreme_value(ahead, groups, latest=latest)

    def _contents(self) -> dict[str, pa.Array]:
        """Parts of the contents: those of open windows, then those of the delta."""
        groups = self.matched.groups
        if groups.sizes.max(initial=0) <= 1:
            return {part.name: groups.arranged(self.sides.both(part.name)) for part in self.stage.parts}
        return {
            part.name: part.gather(groups.arranged(self.sides.both(part.name)), groups) for part in self.stage.parts
        }

    def _live(self) -> pa.Array:
        """Live panes of the sources of a window, by the windows that they were emitted for (9.1)."""
        panes, groups = self.open.flattened(self._of(self.open, c.LIVE))
        if groups.sizes.max(initial=0) > 1:
            starts, ends = panes.field(WINDOW_START).to_numpy(), panes.field(WINDOW_END).to_numpy()
            panes = panes.take(pa.array(np.lexsort((ends, starts, groups.of_row))))
        return to_lists(panes, groups)


def _rows_of(groups: Groups, rows: Ints, which: NDArray[np.bool_]) -> Groups:
    """Groups of those ``rows``, which stand in the order of ``groups``, that ``which`` says."""
    sizes = groups.reduce(np.add, which.astype(np.int64), 0)
    return Groups(np.concatenate([[0], np.cumsum(sizes)]), rows[which])


def _single(values: pa.Array, groups: Groups) -> pa.Array:
    """The value of each group, none of which has more than one row; NULL where it has none."""
    if len(values) == len(groups):
        return values
    return values.take(pa.array(groups.offsets[:-1], mask=groups.sizes == 0))
