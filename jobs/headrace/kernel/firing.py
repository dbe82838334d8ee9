"""What windows emit in an epoch: a program is run, and its moments become the values of panes and retractions.

A pane comes after the retractions of what it replaces (semantics 3.4, 4.3, 9.1, 12.1). Its values are those of the
aggregates over the contents of its window, and what is computed of them; ``having`` says whether it leaves (semantics
8.4, 9.10). A value that its type does not hold names its window and key, and says what a person can do about it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.errors import ValueOverflowError
from headrace.kernel.aggregates.accumulators import Accumulator
from headrace.kernel.aggregates.bags import unpack_parts
from headrace.kernel.aggregates.group_rows import GroupFailedError
from headrace.kernel.columns import (
    Groups,
    Ints,
    arrow_scalar,
    as_numpy,
    equal_mask,
    of_lists,
    to_lists,
    to_timestamps,
    true_mask,
)
from headrace.kernel.expressions.evaluation import evaluate, evaluate_column
from headrace.kernel.stage import CompiledStage
from headrace.model.accumulation import WINDOW_END, WINDOW_START
from headrace.model.expressions.columns import in_order
from headrace.model.expressions.expr import Expr
from headrace.model.expressions.typing import columns_of
from headrace.model.time import Instant, render
from headrace.program import columns as c
from headrace.program.firing import FiringClocks, FiringPlan, PaneColumns

ResultFunction = Callable[[Mapping[str, pa.Array]], pa.Array]
"""Makes a column of results of columns that have a row for each."""

WAYS_OUT = (
    "give it a wider type (a sum of integers as .cast(Decimal), any as .cast(float), which rounds), filter such "
    "records out, or correct them"
)


def result_of(
    name: str, accumulator: Accumulator, contents: Mapping[str, pa.Array], rows: Mapping[str, pa.Array], which: Ints
) -> pa.Array:
    """The aggregate ``name`` of the windows of ``rows`` that ``which`` names, whose ``contents`` these are.

    Raises ValueOverflowError, saying of which key and window, for the first result that its type does not hold; and
    GroupFunctionError or GroupQueryError for a group of which a function or query of a user's own makes no rows.
    """
    try:
        return compute_with_place(f"aggregate {name!r}", accumulator.result, contents, rows, which)
    except GroupFailedError as failure:
        raise failure.to_pipeline_error(_describe_window(rows, int(which[failure.group]))) from failure.__cause__


def compute_with_place(
    what: str, result: ResultFunction, columns: Mapping[str, pa.Array], rows: Mapping[str, pa.Array], which: Ints
) -> pa.Array:
    """``result`` of the ``columns`` of those windows. Raises ValueOverflowError as ``result_of`` does, of ``what``."""
    try:
        return result(columns)
    except ValueOverflowError:
        overflow_row = _first_overflow(result, columns, len(which))
    try:
        return result(_slice_columns(columns, overflow_row, 1))  # which says its own value
    except ValueOverflowError as error:
        place = _describe_window(rows, int(which[overflow_row]))
        raise type(error)(
            f"{what} of {place}: {error}. Nothing of this epoch is committed: {WAYS_OUT}. A pipeline whose "
            "aggregates or filter change computes their history again with a backfill"
        ) from None


def _first_overflow(result: ResultFunction, columns: Mapping[str, pa.Array], length: int) -> int:
    """The position of the first of ``length`` results that does not fit, found by halving."""
    first = 0
    while length > 1:
        half = length // 2
        try:
            result(_slice_columns(columns, first, half))
        except ValueOverflowError:
            length = half
        else:
            first, length = first + half, length - half
    return first


def _slice_columns(columns: Mapping[str, pa.Array], first: int, length: int) -> dict[str, pa.Array]:
    indices = pa.array(range(first, first + length))
    return {name: values.take(indices) for name, values in columns.items()}


def _describe_window(rows: Mapping[str, pa.Array], row: int) -> str:
    names: Sequence[str] = [name for name in rows if not name.startswith("_")]
    key = ", ".join(f"{name}={rows[name][row].as_py()!r}" for name in names)
    start, end = (render(Instant(rows[name][row].as_py())) for name in (c.WINDOW_START, c.WINDOW_END))
    return f"{f'key {key}' if key else 'all records'} in the window from {start} to {end}"


Columns = Mapping[str, pa.Array]


def columns_of_results(stage: CompiledStage, aggregates: Columns, rows: Columns, which: Ints) -> dict[str, pa.Array]:
    """What is computed of the ``aggregates`` of those windows of ``rows`` that ``which`` names.

    Raises ValueOverflowError for a value that its type does not hold.
    """
    results = stage.stage.aggregation.results
    window = [rows[name].take(pa.array(which)) for name in (c.WINDOW_START, c.WINDOW_END)]
    values = {name: aggregate.cast(stage.pane_type.field(name).type) for name, aggregate in aggregates.items()}
    rows_of_results = _ResultRows.from_values(
        stage, rows, which, {**values, WINDOW_START: window[0], WINDOW_END: window[1]}
    )
    for name, expr in in_order(results).items():
        rows_of_results.row[name] = rows_of_results.compute_column(f"column {name!r}", expr)
    return {name: rows_of_results.row[name] for name in results}


def lets_out(stage: CompiledStage, panes: pa.StructArray, rows: Columns, which: Ints) -> NDArray[np.bool_]:
    """Whether ``having`` is TRUE of each of ``panes``, of those windows of ``rows``: of one pane always the same."""
    condition = stage.stage.aggregation.having
    assert condition is not None
    values = {name: panes.field(name) for name in (*stage.stage.value_types, WINDOW_START, WINDOW_END)}
    return true_mask(_ResultRows.from_values(stage, rows, which, values).compute_column("having", condition))


class _ResultRows(msgspec.Struct, frozen=True):
    """Rows of results, one for each of ``windows`` that ``which`` names: the columns that expressions read."""

    stage: CompiledStage
    windows: Columns
    which: Ints
    row: dict[str, pa.Array]

    @classmethod
    def from_values(cls, stage: CompiledStage, windows: Columns, which: Ints, values: Columns) -> "_ResultRows":
        """Rows of these ``values``, with the ends of a window in granules."""
        keys = {name: windows[name].take(pa.array(which)) for name in stage.keys}
        ends = {name: to_timestamps(values[name]) for name in (WINDOW_START, WINDOW_END)}
        return cls(stage, windows, which, {**keys, **values, **ends})

    def compute_column(self, what: str, expr: Expr) -> pa.Array:
        """``expr`` over each row. Raises ValueOverflowError, of ``what``."""
        read = {name: self.row[name] for name in columns_of(expr) | {WINDOW_START}}  # which each row has
        windows = {name: self.windows[name] for name in self.stage.identity}
        return compute_with_place(what, lambda columns: self._evaluate_column(expr, columns), read, windows, self.which)

    def _evaluate_column(self, expr: Expr, columns: Columns) -> pa.Array:
        return evaluate_column(expr, columns, self.stage.stage.pane_schema, len(columns[WINDOW_START]))


def aggregate_results(
    stage: CompiledStage, rows: Mapping[str, pa.Array], which: Ints, is_cleared: NDArray[np.bool_]
) -> dict[str, pa.Array]:
    """The aggregates of those windows of ``rows`` that ``which`` names; they are of nothing where ``is_cleared``."""
    # ``which`` ascends, so as many as there are windows are all of them, and nothing is copied
    indices = None if len(which) == len(rows[c.WINDOW_START]) else pa.array(which)
    empty = pa.array(is_cleared) if is_cleared.any() else None
    contents = {}
    for part in stage.parts:
        stored_part = rows[part.name] if indices is None else rows[part.name].take(indices)
        contents[part.name] = (
            stored_part if empty is None else pc.if_else(empty, pa.scalar(None, stored_part.type), stored_part)
        )
    if stage.how.keep_last is not None:
        contents = unpack_parts(contents[c.LAST_ELEMENTS], stage.result_parts, stage.input_column)
    identity_columns = {column: rows[column] for column in stage.identity if column in rows}
    values = {
        name: result_of(name, accumulator, contents, identity_columns, which)
        for name, accumulator in stage.accumulators.items()
    }
    return values | columns_of_results(stage, values, rows, which) if stage.stage.aggregation.results else values


def beside_live(stage: CompiledStage, rows: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
    """Where unchanged panes are elided: whether the only live pane of a window is what a pane would be now, and its
    timestamp (semantics 9.1). A retracting window holds the same throughout an epoch.
    """
    live = rows[c.LIVE]
    has_one_pane = true_mask(pc.equal(pc.list_value_length(live), arrow_scalar(1)))
    which = np.flatnonzero(has_one_pane)
    panes, _ = of_lists(live.take(pa.array(which)))
    now = aggregate_results(stage, rows, which, np.zeros(len(which), np.bool_))
    equal = np.ones(len(which), np.bool_)
    for own, name in ((c.WINDOW_START, WINDOW_START), (c.WINDOW_END, WINDOW_END)):
        equal &= as_numpy(rows[own])[which] == as_numpy(panes.field(name))
    for name, values in now.items():
        equal &= equal_mask(values.cast(stage.pane_type.field(name).type), panes.field(name))
    is_same, time = np.zeros(len(live), np.bool_), np.zeros(len(live), np.int64)
    is_same[which], time[which] = equal, as_numpy(panes.field("pane_time"))
    return {c.SAME: pa.array(is_same), c.LIVE_TIME: pa.array(time, mask=~has_one_pane)}


Datum = Any
"""A column, or a scalar that stands for a column of equal values."""


class FiringProgram(msgspec.Struct, frozen=True):
    """The program ``outcome`` of ``stage``, with what its results need of it."""

    stage: CompiledStage
    outcome: FiringPlan

    def run(self, rows: Mapping[str, pa.Array], clocks: FiringClocks, signals: Mapping[str, Datum]) -> "FiringResult":
        """The program over ``rows``; ``signals`` says of each signal of the trigger which windows it is for."""
        columns: dict[str, Datum] = {**rows, **_clock_values(clocks)}
        columns |= {f"{c.SIGNAL_PREFIX}{i}": signals[name] for i, name in enumerate(sorted(self.stage.trigger.signals))}
        for name, expr, last_reads in self.outcome.steps_to_run:
            columns[name] = evaluate(expr, columns)
            # nothing reads these again, so their memory goes before the next column is made
            for read in last_reads:
                del columns[read]
        return FiringResult(self.stage, self.outcome, columns, len(rows[c.WINDOW_START]))


def _clock_values(clocks: FiringClocks) -> dict[str, Datum]:
    values = {
        c.WATERMARK_BEFORE: clocks.watermark_before,
        c.WATERMARK_AFTER: clocks.watermark_after,
        c.PROCESSING_TIME: clocks.processing_time,
    }
    for i, q in enumerate(sorted(clocks.percentiles)):
        values[f"{c.PERCENTILE_BEFORE}{i}"], values[f"{c.PERCENTILE_AFTER}{i}"] = clocks.percentiles[q]
    return {name: pa.scalar(int(value), pa.int64()) for name, value in values.items()}


class FiringResult(msgspec.Struct, frozen=True):
    """What the program found, for each of ``length`` windows."""

    stage: CompiledStage
    outcome: FiringPlan
    known_values: Mapping[str, Datum]
    length: int

    def result_column(self, expr: Expr, kind: pa.DataType | None = None) -> pa.Array:
        """A result of the program as a column."""
        values = evaluate(expr, self.known_values)
        if isinstance(values, pa.Scalar):
            values = pa.repeat(values, self.length)
        return values if kind is None or values.type == kind else values.cast(kind)

    def result_flags(self, expr: Expr) -> Any:
        """A result as a numpy array of booleans; NULL is FALSE."""
        values = self.result_column(expr, pa.bool_())
        return true_mask(values)

    @property
    def panes(self) -> tuple[PaneColumns, ...]:
        """The possible panes, in the order of their moments."""
        return self.outcome.panes


_LIVE_IN_STATE, _NONE_LIVE = -1, -2
"""Where the live panes of a window are: those of the state, or none; else the moment whose pane is live."""


class Emission(msgspec.Struct, frozen=True):
    """Emitted records in order. ``row`` is the window that emitted a record, ``moment`` when in the epoch, ``sequence``
    its place among the records of the window; ``panes`` are structs of ``CompiledStage.pane_type``.
    ``live``, where panes are remembered, has the live panes of each window after the epoch.
    """

    row: Ints
    moment: Ints
    sequence: Ints
    is_retraction: NDArray[np.bool_]
    panes: pa.StructArray
    live: pa.Array | None = None
    counts: Mapping[str, int] = msgspec.field(default_factory=dict)


def emit_panes(stage: CompiledStage, rows: Mapping[str, pa.Array], firing: FiringResult) -> Emission:
    """What the windows of ``rows`` emit."""
    return _Emitting(stage, rows, firing).make_emission()


class _Emitting:
    """Records of one moment after the other."""

    def __init__(self, stage: CompiledStage, rows: Mapping[str, pa.Array], firing: FiringResult) -> None:
        self.stage, self.rows, self.firing = stage, rows, firing
        self.emitted_records: list[_Records] = []
        self.panes: list[_Records] = []
        self.live_at = np.full(firing.length, _LIVE_IN_STATE, np.int64)

    def make_emission(self) -> Emission:
        for moment, pane in enumerate(self.firing.panes):
            emits, exists = self.firing.result_flags(pane.is_emitted), self.firing.result_flags(pane.exists)
            panes = self._panes_of_moment(moment, pane, np.flatnonzero(exists))
            if self.stage.remembers:
                self.emitted_records += self._retractions_of_moment(moment, np.flatnonzero(emits))
                # a moment may only withdraw, so a window that emits has no live pane unless a new one exists
                self.live_at[emits] = _NONE_LIVE
                self.live_at[exists] = moment
            self.emitted_records.append(panes)
            self.panes.append(panes)
        records = _join_records(self.emitted_records, self.stage)
        order = np.lexsort((records.place, records.moment, records.row))
        if self.stage.stage.aggregation.having is not None:
            order = order[self._leaving_records(records)[order]]
        return Emission(
            row=records.row[order],
            moment=records.moment[order],
            sequence=_places_in_row(records.row[order]),
            is_retraction=records.is_retraction[order],
            panes=records.panes.take(pa.array(order)),
            live=self._live_panes() if self.stage.remembers else None,
        )

    def _leaving_records(self, records: "_JoinedRecords") -> NDArray[np.bool_]:
        """Which records leave: those that ``having`` lets out. Where a pane does not withdraw the one that it replaces,
        that one is withdrawn if the pane stays (semantics 9.10).
        """
        leaves = lets_out(self.stage, records.panes, self.rows, records.row)
        if self.stage.retracting or not self.stage.remembers:
            return leaves
        place = records.row * len(self.firing.panes) + records.moment
        stays = place[~records.is_retraction & ~leaves]
        return leaves & (~records.is_retraction | np.isin(place, stays))

    def _panes_of_moment(self, moment: int, pane: PaneColumns, rows: Ints) -> "_Records":
        """The panes of a moment."""
        indices = pa.array(rows)
        index = self.firing.result_column(pane.index).take(indices)
        columns = {
            "window_start": self.rows[c.WINDOW_START].take(indices),
            "window_end": self.rows[c.WINDOW_END].take(indices),
            **aggregate_results(self.stage, self.rows, rows, self.firing.result_flags(pane.is_empty)[rows]),
            "pane_time": self.firing.result_column(pane.time).take(indices),
            "timing": self.firing.result_column(pane.timing).take(indices),
            "pane_index": index,
            "nonspeculative_index": self.firing.result_column(pane.nonspeculative_index).take(indices),
            "is_first": pc.equal(index, arrow_scalar(0)),
            "is_last": self.firing.result_column(pane.is_last).take(indices).fill_null(False),
        }
        fields = list(self.stage.pane_type)
        panes = pa.StructArray.from_arrays([columns[f.name].cast(f.type) for f in fields], fields=fields)
        # after all retractions of its moment
        return _Records(rows, moment, np.full(len(rows), np.iinfo(np.int64).max), panes, is_retraction=False)

    def _retractions_of_moment(self, moment: int, rows: Ints) -> "list[_Records]":
        """The retractions of what windows that emit at a moment emitted before."""
        withdrawn = []
        emitted_before = rows[self.live_at[rows] == _LIVE_IN_STATE]
        if len(emitted_before):
            panes, groups = of_lists(self.rows[c.LIVE].take(pa.array(emitted_before)))
            row = emitted_before[groups.of_row]
            withdrawn.append(_Records(row, moment, np.arange(len(row)), panes, is_retraction=True))
        for earlier, panes_of_moment in enumerate(self.panes):
            rows_again = rows[self.live_at[rows] == earlier]
            if len(rows_again):
                # the windows of a moment ascend, so each has one place
                panes = panes_of_moment.panes.take(pa.array(np.searchsorted(panes_of_moment.row, rows_again)))
                withdrawn.append(
                    _Records(rows_again, moment, np.zeros(len(rows_again), np.int64), panes, is_retraction=True)
                )
        return withdrawn

    def _live_panes(self) -> pa.Array:
        """The live panes of each window."""
        panes, groups = of_lists(self.rows[c.LIVE])
        stays = (self.live_at == _LIVE_IN_STATE)[groups.of_row]
        items = [panes.filter(pa.array(stays))]
        rows = [groups.of_row[stays]]
        for moment, panes_of_moment in enumerate(self.panes):
            is_live = self.live_at[panes_of_moment.row] == moment
            items.append(panes_of_moment.panes.filter(pa.array(is_live)))
            rows.append(panes_of_moment.row[is_live])
        row = np.concatenate(rows)
        order = np.argsort(row, kind="stable")
        offsets = np.searchsorted(row[order], np.arange(self.firing.length + 1))
        return to_lists(pa.concat_arrays(items).take(pa.array(order)), Groups(offsets.astype(np.int64)))


class _Records(msgspec.Struct, frozen=True):
    """Records of one moment; ``place`` orders those of a window."""

    row: Ints
    moment: int
    place: Ints
    panes: pa.StructArray
    is_retraction: bool


class _JoinedRecords(msgspec.Struct, frozen=True):
    row: Ints
    moment: Ints
    place: Ints
    is_retraction: NDArray[np.bool_]
    panes: pa.StructArray


def _join_records(records: "list[_Records]", stage: CompiledStage) -> _JoinedRecords:
    sizes = [len(part.row) for part in records]
    return _JoinedRecords(
        row=np.concatenate([part.row for part in records]),
        moment=np.repeat([part.moment for part in records], sizes),
        place=np.concatenate([part.place for part in records]),
        is_retraction=np.repeat([part.is_retraction for part in records], sizes),
        panes=pa.concat_arrays([part.panes.cast(stage.pane_type) for part in records]),
    )


def _places_in_row(row: Ints) -> Ints:
    """The place of each record among those of its row, which stand together."""
    if not len(row):
        return row
    begins = np.flatnonzero(np.diff(row, prepend=row[0] - 1))
    return np.arange(len(row)) - np.repeat(begins, np.diff(np.append(begins, len(row))))
