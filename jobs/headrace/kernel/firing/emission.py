"""What windows emit in an epoch: a program is run, and its moments become panes and retractions.

The program of ``program.firing`` run over the rows of an epoch.

What windows emit in an epoch: panes at its moments, each after the retractions of what it replaces (semantics 3.4,
4.3, 9.1, 12.1), and the panes that stay live.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.kernel.expressions.evaluation import evaluate
from headrace.kernel.firing.pane_values import lets_out, results
from headrace.kernel.grouping import Groups, Ints, of_lists, to_lists
from headrace.kernel.stage import CompiledStage
from headrace.model.expressions.expr import Expr
from headrace.program import columns as c
from headrace.program.firing import FiringClocks, FiringPlan, PaneColumns

Datum = Any
"""A column, or a scalar that stands for a column of equal values."""


@dataclass(frozen=True)
class FiringProgram:
    """The program ``outcome`` of ``stage``, with what its results need of it."""

    stage: CompiledStage
    outcome: FiringPlan

    def run(self, rows: Mapping[str, pa.Array], clocks: FiringClocks, heard: Mapping[str, Datum]) -> "Fired":
        """The program over ``rows``; ``heard`` says of each signal of the trigger which windows it is for."""
        known: dict[str, Datum] = {**rows, **_clock_values(clocks)}
        known |= {f"{c.HEARD}{i}": heard[name] for i, name in enumerate(sorted(self.stage.trigger.signals))}
        for name, expr, done in self.outcome.needed:
            known[name] = evaluate(expr, known)
            for read in done:
                del known[read]
        return Fired(self.stage, self.outcome, known, len(rows[c.WINDOW_START]))


def _clock_values(clocks: FiringClocks) -> dict[str, Datum]:
    values = {
        c.WATERMARK_BEFORE: clocks.watermark_before,
        c.WATERMARK_AFTER: clocks.watermark_after,
        c.PROCESSING_TIME: clocks.processing_time,
    }
    for i, q in enumerate(sorted(clocks.percentiles)):
        values[f"{c.PERCENTILE_BEFORE}{i}"], values[f"{c.PERCENTILE_AFTER}{i}"] = clocks.percentiles[q]
    return {name: pa.scalar(int(value), pa.int64()) for name, value in values.items()}


@dataclass(frozen=True)
class Fired:
    """What the program found, for each of ``length`` windows."""

    stage: CompiledStage
    outcome: FiringPlan
    known: Mapping[str, Datum]
    length: int

    def of(self, expr: Expr, kind: pa.DataType | None = None) -> pa.Array:
        """A result of the program as a column."""
        values = evaluate(expr, self.known)
        if isinstance(values, pa.Scalar):
            values = pa.repeat(values, self.length)
        return values if kind is None or values.type == kind else values.cast(kind)

    def flags(self, expr: Expr) -> Any:
        """A result as a numpy array of booleans; NULL is FALSE."""
        values = self.of(expr, pa.bool_())
        return (values.fill_null(False) if values.null_count else values).to_numpy(zero_copy_only=False)

    @property
    def panes(self) -> tuple[PaneColumns, ...]:
        """The possible panes, in the order of their moments."""
        return self.outcome.panes


_LIVE, _NOTHING = -1, -2
"""Where the live panes of a window are: those of the state, or none; else the moment whose pane is live."""


@dataclass(frozen=True)
class Emission:
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
    counts: Mapping[str, int] = field(default_factory=dict)


def emit(stage: CompiledStage, rows: Mapping[str, pa.Array], fired: Fired) -> Emission:
    """What the windows of ``rows`` emit."""
    return _Emitting(stage, rows, fired).emission()


class _Emitting:
    """Records of one moment after the other."""

    def __init__(self, stage: CompiledStage, rows: Mapping[str, pa.Array], fired: Fired) -> None:
        self.stage, self.rows, self.fired = stage, rows, fired
        self.emitted: list[_Records] = []
        self.panes: list[_Records] = []
        self.live_at = np.full(fired.length, _LIVE, np.int64)

    def emission(self) -> Emission:
        for moment, pane in enumerate(self.fired.panes):
            emitted, exists = self.fired.flags(pane.emitted), self.fired.flags(pane.exists)
            made = self._made(moment, pane, np.flatnonzero(exists))
            if self.stage.remembers:
                self.emitted += self._withdrawn(moment, np.flatnonzero(emitted))
                self.live_at[emitted] = _NOTHING
                self.live_at[exists] = moment
            self.emitted.append(made)
            self.panes.append(made)
        records = _joined(self.emitted, self.stage)
        order = np.lexsort((records.place, records.moment, records.row))
        if self.stage.stage.aggregation.having is not None:
            order = order[self._leaves(records)[order]]
        return Emission(
            row=records.row[order],
            moment=records.moment[order],
            sequence=_numbered(records.row[order]),
            is_retraction=records.is_retraction[order],
            panes=records.panes.take(pa.array(order)),
            live=self._live() if self.stage.remembers else None,
        )

    def _leaves(self, records: "_Joined") -> NDArray[np.bool_]:
        """Which records leave: those that ``having`` lets out. Where a pane does not withdraw the one that it replaces,
        that one is withdrawn if the pane stays (semantics 9.10).
        """
        leaves = lets_out(self.stage, records.panes, self.rows, records.row)
        if self.stage.retracting or not self.stage.remembers:
            return leaves
        place = records.row * len(self.fired.panes) + records.moment
        stays = place[~records.is_retraction & ~leaves]
        return leaves & (~records.is_retraction | np.isin(place, stays))

    def _made(self, moment: int, pane: PaneColumns, rows: Ints) -> "_Records":
        """The panes of a moment."""
        taken = pa.array(rows)
        index = self.fired.of(pane.index).take(taken)
        columns = {
            "window_start": self.rows[c.WINDOW_START].take(taken),
            "window_end": self.rows[c.WINDOW_END].take(taken),
            **results(self.stage, self.rows, rows, self.fired.flags(pane.cleared)[rows]),
            "pane_time": self.fired.of(pane.time).take(taken),
            "timing": self.fired.of(pane.timing).take(taken),
            "pane_index": index,
            "nonspeculative_index": self.fired.of(pane.nonspeculative_index).take(taken),
            "is_first": pc.equal(index, 0),
            "is_last": self.fired.of(pane.is_last).take(taken).fill_null(False),
        }
        fields = list(self.stage.pane_type)
        made = pa.StructArray.from_arrays([columns[f.name].cast(f.type) for f in fields], fields=fields)
        # after all retractions of its moment
        return _Records(rows, moment, np.full(len(rows), np.iinfo(np.int64).max), made, is_retraction=False)

    def _withdrawn(self, moment: int, rows: Ints) -> "list[_Records]":
        """The retractions of what windows that emit at a moment emitted before."""
        withdrawn = []
        before = rows[self.live_at[rows] == _LIVE]
        if len(before):
            panes, groups = of_lists(self.rows[c.LIVE].take(pa.array(before)))
            row = before[groups.of_row]
            withdrawn.append(_Records(row, moment, np.arange(len(row)), panes, is_retraction=True))
        for earlier, made in enumerate(self.panes):
            again = rows[self.live_at[rows] == earlier]
            if len(again):
                panes = made.panes.take(pa.array(np.searchsorted(made.row, again)))
                withdrawn.append(_Records(again, moment, np.zeros(len(again), np.int64), panes, is_retraction=True))
        return withdrawn

    def _live(self) -> pa.Array:
        """The live panes of each window."""
        panes, groups = of_lists(self.rows[c.LIVE])
        stays = (self.live_at == _LIVE)[groups.of_row]
        items = [panes.filter(pa.array(stays))]
        rows = [groups.of_row[stays]]
        for moment, made in enumerate(self.panes):
            here = self.live_at[made.row] == moment
            items.append(made.panes.filter(pa.array(here)))
            rows.append(made.row[here])
        row = np.concatenate(rows)
        order = np.argsort(row, kind="stable")
        offsets = np.searchsorted(row[order], np.arange(self.fired.length + 1))
        return to_lists(pa.concat_arrays(items).take(pa.array(order)), Groups(offsets.astype(np.int64)))


@dataclass(frozen=True)
class _Records:
    """Records of one moment; ``place`` orders those of a window."""

    row: Ints
    moment: int
    place: Ints
    panes: pa.StructArray
    is_retraction: bool


@dataclass(frozen=True)
class _Joined:
    row: Ints
    moment: Ints
    place: Ints
    is_retraction: NDArray[np.bool_]
    panes: pa.StructArray


def _joined(records: "list[_Records]", stage: CompiledStage) -> _Joined:
    sizes = [len(part.row) for part in records]
    return _Joined(
        row=np.concatenate([part.row for part in records]),
        moment=np.repeat([part.moment for part in records], sizes),
        place=np.concatenate([part.place for part in records]),
        is_retraction=np.repeat([part.is_retraction for part in records], sizes),
        panes=pa.concat_arrays([part.panes.cast(stage.pane_type) for part in records]),
    )


def _numbered(row: Ints) -> Ints:
    """The place of each record among those of its row, which stand together."""
    if not len(row):
        return row
    begins = np.flatnonzero(np.diff(row, prepend=row[0] - 1))
    return np.arange(len(row)) - np.repeat(begins, np.diff(np.append(begins, len(row))))
