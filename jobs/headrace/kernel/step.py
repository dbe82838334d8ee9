"""One epoch of one stage: the delta meets the state, windows merge and fire, and what changed is written.

``step_stage`` is a pure function of Arrow tables: no I/O, no clock. The program of ``program.firing`` runs over a row
for each window: its state, merged where windows merged, and what the delta brings (semantics 3.5, 12.8).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.kernel.aggregates.ordering import extreme_value, fold
from headrace.kernel.columns import ARROW_TYPES, Groups, Ints, as_numpy, to_lists, to_timestamps
from headrace.kernel.expressions.evaluation import evaluate_column
from headrace.kernel.firing import Emission, FiringProgram, FiringResult, beside_live, emit_panes
from headrace.kernel.stage import LISTED_ITEM, PLACE, CompiledStage
from headrace.kernel.state import MatchedWindows, Sides, concat_rows, match_rows, no_rows, windows_with_signal
from headrace.kernel.windows import output_times
from headrace.model.accumulation import WINDOW_END, WINDOW_START, TimestampCombiner, Timing
from headrace.model.time import MIN_INSTANT, NEVER, Instant
from headrace.model.triggers import Signal
from headrace.program import columns as c
from headrace.program.firing import FiringClocks
from headrace.program.triggers.node import ColumnMerge, Measure


class CombinedWindows(msgspec.Struct, frozen=True):
    """A row for each window that an epoch may change. ``gone_rows``: state of open ones that became part of another."""

    rows: Mapping[str, pa.Array]
    gone_rows: pa.RecordBatch

    def __len__(self) -> int:
        return len(self.rows[c.WINDOW_START])


def combine_sides(stage: CompiledStage, sides: Sides, output_watermark: Instant) -> CombinedWindows:
    """State and delta, put together by window."""
    return _Combining(stage, sides, match_rows(stage, sides), output_watermark).combine_windows()


class _Combining:
    """Columns of a group out of columns of its rows."""

    def __init__(self, stage: CompiledStage, sides: Sides, matches: MatchedWindows, output_watermark: Instant) -> None:
        self.stage, self.sides, self.matches = stage, sides, matches
        self.output_watermark = output_watermark
        groups = matches.groups
        order = np.arange(len(sides.is_open)) if groups.order is None else groups.order
        self.open = _rows_of(groups, order, sides.is_open[order])
        # rows of the delta are numbered behind those of the state
        self.new = _rows_of(groups, order - sides.state.num_rows, sides.is_new[order])
        self.has = self.open.sizes > 0
        is_closed = sides.is_closed[order]
        self.was_closed = groups.reduce(np.maximum, is_closed.astype(np.int8), 0) > 0
        self.itself = self._result_windows()

    def _result_windows(self) -> Ints:
        """The open window of each group that is its result, -1 if none is."""
        rows = self.open.order
        assert rows is not None
        group = self.open.of_row
        start = as_numpy(self.sides.state.column(c.WINDOW_START))[rows]
        end = as_numpy(self.sides.state.column(c.WINDOW_END))[rows]
        same = (start == self.matches.start[group]) & (end == self.matches.end[group])
        places = np.full(len(self.open), -1, np.int64)
        places[group[same]] = rows[same]
        return places

    def combine_windows(self) -> CombinedWindows:
        stage, sides = self.stage, self.sides
        first = pa.array(self.matches.groups.first_rows)
        itself = self.itself >= 0
        rows: dict[str, pa.Array] = {c.HASH: sides.shared_column(c.HASH).take(first)}
        rows |= {name: sides.shared_column(name).take(first) for name in stage.keys}
        rows |= {c.WINDOW_START: pa.array(self.matches.start), c.WINDOW_END: pa.array(self.matches.end)}
        rows |= {c.HAS_STATE: pa.array(self.has), c.WAS_CLOSED: pa.array(self.was_closed)}
        rows[c.IS_STORED] = pa.array(self.was_closed | itself)
        rows[c.COUNT] = pa.array(self.new.reduce(np.add, as_numpy(self._arranged_column(self.new, c.COUNT)), 0))
        rows |= self._counter_columns() | self._trigger_state() | self._carried_columns() | self._content_columns()
        if stage.merging:
            rows[c.WAS_MERGED] = pa.array(self.has & ~((self.open.sizes == 1) & itself))
        if stage.remembers:
            rows[c.LIVE] = self._live_panes()
        return CombinedWindows(rows, self._gone_windows())

    def _gone_windows(self) -> pa.RecordBatch:
        open_rows = self.open.order
        assert open_rows is not None
        if not self.stage.merging:
            return self.sides.state.slice(0, 0)
        return self.sides.state.take(pa.array(np.setdiff1d(open_rows, self.itself)))

    def _arranged_column(self, groups: Groups, name: str) -> pa.Array:
        """A column of the state or of the delta, arranged by group."""
        side = self.sides.state if groups is self.open else self.sides.delta
        return groups.arrange_column(side.column(name))

    def _fold(self, how: ColumnMerge, groups: Groups, name: str) -> pa.Array:
        values = self._arranged_column(groups, name)
        return _single_values(values, groups) if groups.sizes.max(initial=0) <= 1 else fold(how, values, groups)

    def _or_initial(self, values: pa.Array, initial: object) -> pa.Array:
        return pc.if_else(pa.array(self.has), values, pa.scalar(initial, values.type))

    def _counter_columns(self) -> dict[str, pa.Array]:
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
        merged_fields = {}
        for field in trigger.fields:
            folded_field = self._fold(field.fold, self.open, field.name)
            initial = evaluate_column(field.initial, {}, {}, len(folded_field)).cast(ARROW_TYPES[field.type])
            merged_fields[field.name] = pc.if_else(pa.array(self.has), folded_field, initial)
        for sources in trigger.sources:
            columns = {
                name: self._arranged_column(self.open, stored_name) for name, stored_name in sources.fields.items()
            }
            items = pa.StructArray.from_arrays(list(columns.values()), names=list(columns))
            merged_fields[sources.name] = to_lists(items, self.open)
        return merged_fields

    def _carried_columns(self) -> dict[str, pa.Array]:
        stage = self.stage
        carried_columns = {measure.name: self._measure_column(measure) for measure in stage.trigger.measures}
        if c.HELD_TIME in stage.carried_columns:
            latest = stage.how.timestamp is TimestampCombiner.LATEST
            carried_columns[c.HELD_TIME] = self._fold(
                ColumnMerge.MAX if latest else ColumnMerge.MIN, self.new, c.HELD_TIME
            )
        if c.TIMES in stage.carried_columns:
            carried_columns[c.HELD_TIME] = self._held_timestamps()
        if c.RETRACTION_COUNT in stage.carried_columns:
            carried_columns[c.RETRACTION_COUNT] = self._fold(ColumnMerge.SUM, self.new, c.RETRACTION_COUNT).fill_null(0)
        return carried_columns

    def _measure_column(self, measure: Measure) -> pa.Array:
        if measure.fold is not ColumnMerge.LIST:
            return self._fold(measure.fold, self.new, measure.name)
        items, groups = self.new.flatten_lists(self._arranged_column(self.new, measure.name))
        if self.stage.merging:
            # what merges comes part by part, and its elements arrived in another order
            place = as_numpy(items.field(PLACE))
            items = items.field(LISTED_ITEM).take(pa.array(np.lexsort((place, groups.of_row))))
        return to_lists(items, groups)

    def _held_timestamps(self) -> pa.Array:
        """What the elements of a merged window give its pane (semantics 6.1, 6.2)."""
        stage, latest = self.stage, self.stage.how.timestamp is TimestampCombiner.LATEST
        assert stage.custom is not None
        times, groups = self.new.flatten_lists(self._arranged_column(self.new, c.TIMES))
        start, end = (side[groups.of_row] for side in (self.matches.start, self.matches.end))
        stamps = output_times(stage.custom, as_numpy(times), start, end) + stage.output_shift
        open_stamps = pa.array(stamps, mask=stamps < int(self.output_watermark))
        return extreme_value(open_stamps, groups, latest=latest)

    def _content_columns(self) -> dict[str, pa.Array]:
        """Parts of the contents: those of open windows, then those of the delta."""
        groups = self.matches.groups
        # most epochs merge nothing, and then no part has to be gathered
        if groups.sizes.max(initial=0) <= 1:
            return {part.name: groups.arrange_column(self.sides.shared_column(part.name)) for part in self.stage.parts}
        return {
            part.name: part.gather(groups.arrange_column(self.sides.shared_column(part.name)), groups)
            for part in self.stage.parts
        }

    def _live_panes(self) -> pa.Array:
        """Live panes of the sources of a window, by the windows that they were emitted for (9.1)."""
        panes, groups = self.open.flatten_lists(self._arranged_column(self.open, c.LIVE))
        if groups.sizes.max(initial=0) > 1:
            starts, ends = as_numpy(panes.field(WINDOW_START)), as_numpy(panes.field(WINDOW_END))
            panes = panes.take(pa.array(np.lexsort((ends, starts, groups.of_row))))
        return to_lists(panes, groups)


def _rows_of(groups: Groups, rows: Ints, which: NDArray[np.bool_]) -> Groups:
    """Groups of those ``rows``, which stand in the order of ``groups``, that ``which`` says."""
    sizes = groups.reduce(np.add, which.astype(np.int64), 0)
    return Groups(np.concatenate([[0], np.cumsum(sizes)]), rows[which])


def _single_values(values: pa.Array, groups: Groups) -> pa.Array:
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
        counters = [vars(count) for count in counts if count is not None]
        return cls(**{kind: sum(count[kind] for count in counters) for kind in counters[0]}) if counters else None


class EmittedPanes(msgspec.Struct, frozen=True):
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
    is_touched: "np.ndarray[tuple[int], np.dtype[np.bool_]]"
    emission: Emission
    changes: pa.RecordBatch
    counts: Counts
    last_moment: int

    def pane_rows(self) -> pa.RecordBatch:
        """The panes of the epoch: keys, aggregates, pane columns (``headrace.model.accumulation``)."""
        stage, emission = self.stage, self.emission
        columns = {name: self.rows[name].take(pa.array(emission.row)) for name in stage.keys}
        values = list(stage.stage.value_types)
        fields = {field.name: emission.panes.field(field.name) for field in stage.pane_type}
        columns |= {name: fields[name] for name in values}
        columns |= {name: column for name, column in fields.items() if name not in values}
        for name in ("window_start", "window_end", "pane_time"):
            columns[name] = to_timestamps(columns[name])
        columns["is_retraction"] = pa.array(emission.is_retraction)
        columns["epoch"] = pa.array(np.full(len(emission.row), self.epoch, np.int64))
        columns["sequence"] = pa.array(emission.sequence)
        return pa.RecordBatch.from_pydict(columns, schema=stage.pane_schema)

    def emitted_elements(self) -> EmittedPanes:
        """The panes of the epoch as elements of the next stage, in no order."""
        return EmittedPanes(self._element_columns(), self._order_columns())

    def _element_columns(self) -> dict[str, pa.Array]:
        emission, rows = self.emission, pa.array(self.emission.row)
        columns = {name: self.rows[name].take(rows) for name in self.stage.keys}
        for name in self.stage.stage.pane_schema:
            if name not in columns:
                values = emission.panes.field(name)
                columns[name] = to_timestamps(values) if name in ("window_start", "window_end") else values
        columns[c.EVENT_TIME] = emission.panes.field("pane_time")
        columns[c.SIGN] = pa.array(np.where(emission.is_retraction, -1, 1))
        return columns

    def _order_columns(self) -> dict[str, pa.Array]:
        emission, rows = self.emission, pa.array(self.emission.row)
        sort_columns = {c.MOMENT: pa.array(self._emission_moments())}
        sort_columns |= {name: self.rows[name].take(rows) for name in (c.WINDOW_END, c.WINDOW_START, *self.stage.keys)}
        return {**sort_columns, c.SEQUENCE: pa.array(emission.sequence)}

    def _emission_moments(self) -> Ints:
        """When in the epoch each record was emitted: with the bundle, at a deadline, at a signal, or at the watermark
        step."""
        emission, last = self.emission, self.last_moment
        first = np.where(self.is_touched[emission.row], 0, 1)
        return np.where(emission.moment == last, 3, np.where(emission.moment == 0, first, 2))


def in_emitted_order(emissions: Sequence[EmittedPanes]) -> EmittedPanes:
    """All that is ``emissions``, of other keys each, as one bundle."""
    names = [(name, "ascending") for name in emissions[0].order]
    sort_columns = {name: pa.concat_arrays([part.order[name] for part in emissions]) for name in emissions[0].order}
    order = pc.sort_indices(pa.table(sort_columns), sort_keys=names)
    elements = {
        name: pa.concat_arrays([part.elements[name] for part in emissions]).take(order)
        for name in emissions[0].elements
    }
    return EmittedPanes(elements, {name: values.take(order) for name, values in sort_columns.items()})


def step_stage(
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
    step; a batch has only the watermark step. ``state`` are the rows that ``state.lookup`` found. None if there is
    nothing to look at.
    """
    if delta is None and not state.num_rows:
        return None
    combined_sides = combine_sides(
        stage, Sides(state, no_rows(stage.delta_schema) if delta is None else delta), output_watermark
    )
    rows = dict(combined_sides.rows)
    if stage.how.elide_unchanged:
        rows |= beside_live(stage, rows)
    received_signals = {
        name: pa.array(windows_with_signal(stage, rows, name, signals)) for name in stage.trigger.signals
    }
    outcome = stage.batch_firing if is_batch else stage.firing
    firing = FiringProgram(stage, outcome).run(rows, clocks, received_signals)
    is_changed = firing.result_flags(outcome.is_changed)
    if not is_changed.any():
        return None
    emission = emit_panes(stage, rows, firing)
    changes = concat_rows(
        stage.state_schema,
        [_state_rows(stage, rows, firing, emission, epoch), _gone_state_rows(stage, combined_sides.gone_rows, epoch)],
    )
    return StageResult(
        stage=stage,
        epoch=epoch,
        rows=rows,
        is_touched=firing.result_flags(outcome.is_touched),
        emission=emission,
        changes=in_order(changes),
        counts=_pane_counts(firing, emission),
        last_moment=len(outcome.panes) - 1,
    )


def _state_rows(
    stage: CompiledStage, rows: Mapping[str, pa.Array], firing: FiringResult, emission: Emission, epoch: int
) -> pa.RecordBatch:
    """The new state of changed windows; a window that came and went within the epoch was never there."""
    outcome, schema = firing.outcome, stage.state_schema
    status = as_numpy(firing.result_column(outcome.state[c.STATUS], pa.int32()))
    is_gone, is_open = status == c.STATUS_GONE, status == c.STATUS_OPEN
    is_stored = as_numpy(rows[c.IS_STORED])
    kept_rows = np.flatnonzero(firing.result_flags(outcome.is_changed) & (~is_gone | is_stored))
    indices = pa.array(kept_rows)
    contents_indices = pa.array(kept_rows, mask=firing.result_flags(outcome.is_cleared)[kept_rows])
    parts = {part.name for part in stage.parts}
    columns = {}
    for field in schema:
        name = field.name
        if name == c.EPOCH:
            columns[name] = pa.array(np.full(len(kept_rows), epoch, np.int64))
        elif name == c.LIVE:
            columns[name] = _live_of_open(emission.live, kept_rows, is_open) if emission.live is not None else None
        elif name in parts:
            columns[name] = rows[name].take(contents_indices)
        elif name in outcome.state:
            columns[name] = firing.result_column(outcome.state[name], field.type).take(indices)
        else:
            columns[name] = rows[name].take(indices)
    return pa.RecordBatch.from_pydict(columns, schema=schema)


def _live_of_open(live: pa.Array, kept_rows: Ints, is_open: NDArray[np.bool_]) -> pa.Array:
    """What is ``live`` of ``kept_rows``, nothing of those that are closed. (Arrow's if_else is slow at lists.)"""
    nothing = pa.array([[]], live.type)
    return pa.concat_arrays([live, nothing]).take(pa.array(np.where(is_open[kept_rows], kept_rows, len(live))))


def _gone_state_rows(stage: CompiledStage, absorbed_rows: pa.RecordBatch, epoch: int) -> pa.RecordBatch:
    """The state rows of windows that became part of another one."""
    count = absorbed_rows.num_rows
    gone_columns = {
        c.STATUS: pa.repeat(pa.scalar(c.STATUS_GONE, pa.int32()), count),
        c.EPOCH: pa.repeat(pa.scalar(epoch, pa.int64()), count),
        c.DUE_EVENT: pa.repeat(pa.scalar(int(NEVER), pa.int64()), count),
        c.DUE_TIME: pa.repeat(pa.scalar(int(NEVER), pa.int64()), count),
    }
    gone_columns |= {name: absorbed_rows.column(name) for name in (c.HASH, *stage.identity)}
    columns = [gone_columns[f.name] if f.name in gone_columns else pa.nulls(count, f.type) for f in stage.state_schema]
    return pa.RecordBatch.from_arrays(columns, schema=stage.state_schema)


def in_order(rows: pa.RecordBatch) -> pa.RecordBatch:
    """State rows in the order of (hash, window)."""
    sort_columns = [as_numpy(rows.column(name)) for name in (c.WINDOW_END, c.WINDOW_START, c.HASH)]
    order = np.lexsort(sort_columns)
    return rows if (np.diff(order) == 1).all() else rows.take(pa.array(order))


def _pane_counts(firing: FiringResult, emission: Emission) -> Counts:
    outcome = firing.outcome
    timing = emission.panes.field("timing").filter(pa.array(~emission.is_retraction))
    counts = {row["values"]: row["counts"] for row in pc.value_counts(timing).to_pylist()}
    return Counts(
        early=counts.get(Timing.EARLY.value, 0),
        on_time=counts.get(Timing.ON_TIME.value, 0),
        late=counts.get(Timing.LATE.value, 0),
        retractions=int(emission.is_retraction.sum()),
        dropped=pc.sum(firing.result_column(outcome.dropped_closed)).as_py() or 0,
        dropped_retractions=pc.sum(firing.result_column(outcome.dropped_retractions)).as_py() or 0,
    )
