"""One epoch of one stage: the delta meets the state, windows merge and fire, and what changed is written.

``step`` is a pure function of Arrow tables: no I/O, no clock. The program of ``program.firing`` runs over a row for
each window: its state, merged where windows merged, and what the delta brings (semantics 3.5, 12.8).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.kernel.aggregates.ordering import extreme_value, fold
from headrace.kernel.columns import ARROW_TYPES, Groups, Ints, as_numpy, timestamps, to_lists
from headrace.kernel.expressions.evaluation import column
from headrace.kernel.firing import Emission, Fired, FiringProgram, beside_live, emit
from headrace.kernel.stage import LISTED, PLACE, CompiledStage
from headrace.kernel.state import Matched, Sides, hearing, match, no_rows, together
from headrace.kernel.windows import output_times
from headrace.model.accumulation import WINDOW_END, WINDOW_START, TimestampCombiner, Timing
from headrace.model.time import MIN_INSTANT, NEVER, Instant
from headrace.model.triggers import Signal
from headrace.program import columns as c
from headrace.program.firing import FiringClocks
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
        start = as_numpy(self.sides.state.column(c.WINDOW_START))[rows]
        end = as_numpy(self.sides.state.column(c.WINDOW_END))[rows]
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
        rows[c.COUNT] = pa.array(self.new.reduce(np.add, as_numpy(self._of(self.new, c.COUNT)), 0))
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
            place = as_numpy(items.field(PLACE))
            items = items.field(LISTED).take(pa.array(np.lexsort((place, groups.of_row))))
        return to_lists(items, groups)

    def _held(self) -> pa.Array:
        """What the elements of a merged window give its pane (semantics 6.1, 6.2)."""
        stage, latest = self.stage, self.stage.how.timestamp is TimestampCombiner.LATEST
        assert stage.custom is not None
        times, groups = self.new.flattened(self._of(self.new, c.TIMES))
        start, end = (side[groups.of_row] for side in (self.matched.start, self.matched.end))
        stamps = output_times(stage.custom, as_numpy(times), start, end) + stage.output_shift
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
            starts, ends = as_numpy(panes.field(WINDOW_START)), as_numpy(panes.field(WINDOW_END))
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


@dataclass(frozen=True)
class Counts:
    """What became of the windows of an epoch. ``dropped`` counts elements and retractions of closed windows, of which
    ``dropped_retractions`` are retractions.
    """

    early: int = 0
    on_time: int = 0
    late: int = 0
    retractions: int = 0
    dropped: int = 0
    dropped_retractions: int = 0

    @classmethod
    def of_all(cls, counts: "Iterable[Counts | None]") -> "Counts | None":
        """Add up what counts some windows; None if nothing does."""
        counted = [vars(count) for count in counts if count is not None]
        return cls(**{kind: sum(count[kind] for count in counted) for kind in counted[0]}) if counted else None


@dataclass(frozen=True)
class Emitted:
    """Panes as ``elements`` of the next stage: the columns of ``Stage.pane_schema`` with ``_event_time`` (granules) and
    ``_sign``. ``order``: columns by which they are in the order in which they are emitted: by moment, window and key
    (semantics 3.2, 12.1).
    """

    elements: Mapping[str, pa.Array]
    order: Mapping[str, pa.Array]


@dataclass(frozen=True)
class StageResult:
    """What an epoch did to a stage. ``changes`` are state rows in the order of (hash, window), with the status DELETED
    for windows that are gone; ``rows`` the windows that the epoch looked at, by which ``emission`` goes.
    """

    stage: CompiledStage
    epoch: int
    rows: Mapping[str, pa.Array]
    touched: "np.ndarray[tuple[int], np.dtype[np.bool_]]"
    emission: Emission
    changes: pa.RecordBatch
    counts: Counts
    last_moment: int

    def panes(self) -> pa.RecordBatch:
        """The panes of the epoch: keys, aggregates, pane columns (``headrace.model.accumulation``)."""
        stage, emission = self.stage, self.emission
        columns = {name: self.rows[name].take(pa.array(emission.row)) for name in stage.keys}
        values = list(stage.stage.value_types)
        fields = {field.name: emission.panes.field(field.name) for field in stage.pane_type}
        columns |= {name: fields[name] for name in values}
        columns |= {name: column for name, column in fields.items() if name not in values}
        for name in ("window_start", "window_end", "pane_time"):
            columns[name] = timestamps(columns[name])
        columns["is_retraction"] = pa.array(emission.is_retraction)
        columns["epoch"] = pa.array(np.full(len(emission.row), self.epoch, np.int64))
        columns["sequence"] = pa.array(emission.sequence)
        return pa.RecordBatch.from_pydict(columns, schema=stage.pane_schema)

    def emitted(self) -> Emitted:
        """The panes of the epoch as elements of the next stage, in no order."""
        return Emitted(self._elements(), self._order())

    def _elements(self) -> dict[str, pa.Array]:
        emission, rows = self.emission, pa.array(self.emission.row)
        columns = {name: self.rows[name].take(rows) for name in self.stage.keys}
        for name in self.stage.stage.pane_schema:
            if name not in columns:
                values = emission.panes.field(name)
                columns[name] = timestamps(values) if name in ("window_start", "window_end") else values
        columns[c.EVENT_TIME] = emission.panes.field("pane_time")
        columns[c.SIGN] = pa.array(np.where(emission.is_retraction, -1, 1))
        return columns

    def _order(self) -> dict[str, pa.Array]:
        emission, rows = self.emission, pa.array(self.emission.row)
        by = {c.MOMENT: pa.array(self._moments())}
        by |= {name: self.rows[name].take(rows) for name in (c.WINDOW_END, c.WINDOW_START, *self.stage.keys)}
        return {**by, c.SEQUENCE: pa.array(emission.sequence)}

    def _moments(self) -> Ints:
        """When in the epoch each record was emitted: with the bundle, at a deadline, at a signal, or at the watermark
        step."""
        emission, last = self.emission, self.last_moment
        first = np.where(self.touched[emission.row], 0, 1)
        return np.where(emission.moment == last, 3, np.where(emission.moment == 0, first, 2))


def in_emitted_order(emitted: Sequence[Emitted]) -> Emitted:
    """All that is ``emitted``, of other keys each, as one bundle."""
    names = [(name, "ascending") for name in emitted[0].order]
    by = {name: pa.concat_arrays([part.order[name] for part in emitted]) for name in emitted[0].order}
    order = pc.sort_indices(pa.table(by), sort_keys=names)
    elements = {
        name: pa.concat_arrays([part.elements[name] for part in emitted]).take(order) for name in emitted[0].elements
    }
    return Emitted(elements, {name: values.take(order) for name, values in by.items()})


def step(
    stage: CompiledStage,
    state: pa.RecordBatch,
    delta: pa.RecordBatch | None,
    clocks: FiringClocks,
    epoch: int,
    *,
    output_watermark: Instant = MIN_INSTANT,
    signals: Sequence[Signal] = (),
    is_batch: bool = False,
) -> StageResult | None:
    """One epoch (semantics 12.1): ``delta`` under the old watermark, due deadlines, ``signals``, then the watermark
    step; of a batch only that. ``state`` are the rows that ``state.lookup`` found. None if there is nothing to look at.
    """
    if delta is None and not state.num_rows:
        return None
    combined = combine(stage, Sides(state, no_rows(stage.delta_schema) if delta is None else delta), output_watermark)
    rows = dict(combined.rows)
    if stage.how.elide_unchanged:
        rows |= beside_live(stage, rows)
    heard = {name: pa.array(hearing(stage, rows, name, signals)) for name in stage.trigger.signals}
    outcome = stage.batch_firing if is_batch else stage.firing
    fired = FiringProgram(stage, outcome).run(rows, clocks, heard)
    changed = fired.flags(outcome.changed)
    if not changed.any():
        return None
    emission = emit(stage, rows, fired)
    changes = together(
        stage.state_schema, [_stored(stage, rows, fired, emission, epoch), _tombstones(stage, combined.gone, epoch)]
    )
    return StageResult(
        stage=stage,
        epoch=epoch,
        rows=rows,
        touched=fired.flags(outcome.touched),
        emission=emission,
        changes=in_order(changes),
        counts=_counts(fired, emission),
        last_moment=len(outcome.panes) - 1,
    )


def _stored(
    stage: CompiledStage, rows: Mapping[str, pa.Array], fired: Fired, emission: Emission, epoch: int
) -> pa.RecordBatch:
    """The new state of changed windows; a window that came and went within the epoch was never there."""
    outcome, schema = fired.outcome, stage.state_schema
    status = as_numpy(fired.of(outcome.state[c.STATUS], pa.int32()))
    is_gone, is_open = status == c.DELETED, status == c.OPEN
    stored = as_numpy(rows[c.STORED])
    kept = np.flatnonzero(fired.flags(outcome.changed) & (~is_gone | stored))
    taken = pa.array(kept)
    cleared = pa.array(kept, mask=fired.flags(outcome.cleared)[kept])
    parts = {part.name for part in stage.parts}
    columns = {}
    for field in schema:
        name = field.name
        if name == c.EPOCH:
            columns[name] = pa.array(np.full(len(kept), epoch, np.int64))
        elif name == c.LIVE:
            columns[name] = _live_of_open(emission.live, kept, is_open) if emission.live is not None else None
        elif name in parts:
            columns[name] = rows[name].take(cleared)
        elif name in outcome.state:
            columns[name] = fired.of(outcome.state[name], field.type).take(taken)
        else:
            columns[name] = rows[name].take(taken)
    return pa.RecordBatch.from_pydict(columns, schema=schema)


def _live_of_open(live: pa.Array, kept: Ints, is_open: NDArray[np.bool_]) -> pa.Array:
    """What is ``live`` of the rows ``kept``, nothing of those that are closed. (Arrow's if_else is slow at lists.)"""
    nothing = pa.array([[]], live.type)
    return pa.concat_arrays([live, nothing]).take(pa.array(np.where(is_open[kept], kept, len(live))))


def _tombstones(stage: CompiledStage, gone: pa.RecordBatch, epoch: int) -> pa.RecordBatch:
    """The state rows of windows that became part of another one."""
    count = gone.num_rows
    known = {
        c.STATUS: pa.repeat(pa.scalar(c.DELETED, pa.int32()), count),
        c.EPOCH: pa.repeat(pa.scalar(epoch, pa.int64()), count),
        c.DUE_EVENT: pa.repeat(pa.scalar(int(NEVER), pa.int64()), count),
        c.DUE_TIME: pa.repeat(pa.scalar(int(NEVER), pa.int64()), count),
    }
    known |= {name: gone.column(name) for name in (c.HASH, *stage.identity)}
    columns = [known[f.name] if f.name in known else pa.nulls(count, f.type) for f in stage.state_schema]
    return pa.RecordBatch.from_arrays(columns, schema=stage.state_schema)


def in_order(rows: pa.RecordBatch) -> pa.RecordBatch:
    """State rows in the order of (hash, window)."""
    by = [as_numpy(rows.column(name)) for name in (c.WINDOW_END, c.WINDOW_START, c.HASH)]
    order = np.lexsort(by)
    return rows if (np.diff(order) == 1).all() else rows.take(pa.array(order))


def _counts(fired: Fired, emission: Emission) -> Counts:
    outcome = fired.outcome
    timing = emission.panes.field("timing").filter(pa.array(~emission.is_retraction))
    counts = {row["values"]: row["counts"] for row in pc.value_counts(timing).to_pylist()}
    return Counts(
        early=counts.get(Timing.EARLY.value, 0),
        on_time=counts.get(Timing.ON_TIME.value, 0),
        late=counts.get(Timing.LATE.value, 0),
        retractions=int(emission.is_retraction.sum()),
        dropped=pc.sum(fired.of(outcome.dropped_closed)).as_py() or 0,
        dropped_retractions=pc.sum(fired.of(outcome.dropped_retractions)).as_py() or 0,
    )
