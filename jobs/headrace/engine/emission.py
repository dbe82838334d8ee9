"""The program of ``firing`` run over rows: what the changed windows emit, and their new state."""

from collections.abc import Mapping
from functools import cached_property, reduce
from operator import add

from pyspark.sql import functions as f
from pyspark.sql import types as t

from headrace.engine.expressions import compile_expr
from headrace.engine.merging import BARRIER, GONE, SOURCES
from headrace.engine.parts import Part
from headrace.engine.plan import Plan
from headrace.engine.prepared import Selection
from headrace.engine.types import DataFrame, SparkColumn
from headrace.model.expr import DataType, Expr, Literal, col
from headrace.model.panes import Timing
from headrace.program import columns as c
from headrace.program.firing import Outcome, PaneColumns, compile_firing

EMITS = "_emits"
"""Column of what a window emits in an epoch: an array of panes and retractions, in order."""

COUNTS: Mapping[Timing | None, str] = {
    Timing.EARLY: "_early",
    Timing.ON_TIME: "_on_time",
    Timing.LATE: "_late",
    None: "_withdrawn",
}
"""Columns that count them: panes by timing, and retractions. Counting them in the array would be interpreted by Spark,
element by element."""

KEPT = "_kept"
"""Column of whether a row belongs in the state: a window that came and went within the epoch was never there."""

DROPPED, DROPPED_RETRACTIONS = "_dropped_closed", "_dropped_retractions"
_TOUCHED, _CHANGED, _CLEARED, _BARRIER = "_touched", "_changed", "_cleared", "_barrier"
_BUNDLE, _DEADLINE, _SIGNAL, _WATERMARK = range(4)

_UPTO = "_upto"
"""Columns of how many records were emitted up to the end of each moment but the last."""

_NONE = Literal(None, DataType.BOOL)


class Emission:
    """Columns of the query, made once for all epochs of an application: making them costs more than running them."""

    def __init__(self, plan: Plan, is_batch: bool) -> None:
        self.plan, self.is_batch = plan, is_batch

    def apply(self, rows: DataFrame) -> DataFrame:
        """Of ``rows`` those that changed: state columns, ``EMITS`` and ``COUNTS``, drops, the sources that vanished."""
        for phase in [*self._compared, *self._phases]:
            rows = phase.of(rows)
        # without the barrier Spark would push the filter below all phases and put the whole program into it
        return self._emitted.of(rows.where(self._is_changed))

    @cached_property
    def _is_changed(self) -> SparkColumn:
        return f.col(_CHANGED) & (f.col(_BARRIER) >= 0)

    @cached_property
    def _outcome(self) -> Outcome:
        plan = self.plan
        withdrawable = plan.stage.withdrawable
        return compile_firing(plan.trigger, plan.how, plan.merging, withdrawable, is_batch=self.is_batch)

    @cached_property
    def _through(self) -> list[str]:
        """Columns that the program does not touch."""
        live = [c.LIVE] if self.plan.retracting else []
        values = [_value(name) for name in self._values] if self.plan.how.elide_unchanged else []
        known = [*self.plan.identity, c.THIS_EPOCH, c.STORED, *live, *values]
        return [*known, *([SOURCES, GONE] if self.plan.merging else [])]

    @cached_property
    def _values(self) -> dict[str, t.DataType]:
        return {name: accumulator.result_type for name, accumulator in self.plan.accumulators.items()}

    @cached_property
    def _compared(self) -> list[Selection]:
        """Where unchanged panes are elided, the values of a pane beside the only live one: a retracting window holds
        the same throughout an epoch (semantics 9.1).
        """
        if not self.plan.how.elide_unchanged:
            return []
        results = self._results({part.name: f.col(part.name) for part in self.plan.parts})
        values = [results[name].cast(kind).alias(_value(name)) for name, kind in self._values.items()]
        live = f.get(c.LIVE, f.lit(0))
        same = (f.size(c.LIVE) == 1) & (live["window_start"] == f.col(c.WINDOW_START))
        same = same & (live["window_end"] == f.col(c.WINDOW_END))
        for name in self._values:
            same = same & live[name].eqNullSafe(f.col(_value(name)))
        compared = [f.coalesce(same, f.lit(False)).alias(c.SAME), live["pane_time"].alias(c.LIVE_TIME)]
        return [Selection(["*", *values]), Selection(["*", *compared])]

    @cached_property
    def _phases(self) -> list[Selection]:
        outcome, parts = self._outcome, self.plan.parts
        outputs: dict[str, Expr] = {
            **outcome.state,
            DROPPED: outcome.dropped_closed,
            DROPPED_RETRACTIONS: outcome.dropped_retractions,
            _TOUCHED: outcome.touched,
            _CHANGED: outcome.changed,
            _CLEARED: outcome.cleared,
        }
        for i, pane in enumerate(outcome.panes):
            outputs |= {f"_emitted{i}": pane.emitted, f"_exists{i}": pane.exists, f"_cleared{i}": pane.cleared}
            outputs |= {_field(i, name): expr for name, expr in _pane_info(pane).items()}
        phases, final = outcome.program.compile(outputs)
        through = [*self._through, *[part.name for part in parts], *([BARRIER] if self.plan.merging else [])]
        selects = []
        for phase in phases:
            carried = map(f.col, [*through, *sorted(phase.carries - set(through))])
            selects.append([*carried, *[compile_expr(expr).alias(name) for name, expr in phase.computes.items()]])
        barrier = f.monotonically_increasing_id()
        if self.plan.merging:
            barrier = barrier + f.col(BARRIER)
        flags = [f"{flag}{i}" for flag in ("_emitted", "_exists") for i in range(len(outcome.panes))]
        flags += [DROPPED, DROPPED_RETRACTIONS, _TOUCHED, _CHANGED]
        selects.append(
            [
                *map(f.col, self._through),
                *[compile_expr(final[name]).alias(f"_new{name}") for name in outcome.state],
                *[_left(part, final[_CLEARED]).alias(f"_new{part.name}") for part in parts],
                *[compile_expr(final[name]).alias(name) for name in flags],
                *[column for i in range(len(outcome.panes)) for column in self._pane(i, final)],
                barrier.alias(_BARRIER),
            ]
        )
        return [Selection(select) for select in selects]

    def _pane(self, i: int, final: dict[str, Expr]) -> list[SparkColumn]:
        """The fields of the pane of moment ``i``, flat: Spark makes an object of every struct and of all that is in it,
        and most rows emit one pane at most.
        """
        plan = self.plan
        values = self._contained(final[f"_cleared{i}"])
        fields = [
            values[field.name] if field.name in values else compile_expr(final.get(_field(i, field.name), _NONE))
            for field in plan.pane_type
        ]
        typed = zip(fields, plan.pane_type, strict=True)
        return [value.cast(field.dataType).alias(_field(i, field.name)) for value, field in typed]

    def _contained(self, cleared: Expr) -> dict[str, SparkColumn]:
        """What the aggregates of a pane are, of contents that may be cleared."""
        if self.plan.how.elide_unchanged:
            return {name: f.col(_value(name)) for name in self._values}
        return self._results({part.name: _left(part, cleared) for part in self.plan.parts})

    def _results(self, contents: Mapping[str, SparkColumn]) -> dict[str, SparkColumn]:
        parts = self.plan.unpacked(contents)
        return {name: accumulator.result(parts) for name, accumulator in self.plan.accumulators.items()}

    @cached_property
    def _emitted(self) -> Selection:
        """Panes in order, each after the retractions of what it replaces, and the live panes that result (9.1)."""
        plan = self.plan
        nothing = f.array().cast(t.ArrayType(plan.record_type))
        live = f.col(c.LIVE) if plan.retracting else nothing
        emits: list[SparkColumn] = []
        counts: dict[Timing | None, list[SparkColumn]] = {of: [] for of in COUNTS}
        ends: list[SparkColumn] = []
        for i in range(len(self._outcome.panes)):
            emitted, exists = f.col(f"_emitted{i}"), f.col(f"_exists{i}")
            record = f.array(_record(plan, i, is_retraction=False))
            if plan.counts_net:
                record = f.when(exists, record).otherwise(nothing)
            for timing in Timing:
                counts[timing].append(f.when(exists & (f.col(_field(i, "timing")) == timing.value), 1).otherwise(0))
            size = f.when(exists, 1).otherwise(0)
            if plan.retracting:
                record = f.concat(live, record)
                withdrawn = f.when(emitted, f.size(live)).otherwise(0)
                counts[None].append(withdrawn)
                size = size + withdrawn
                replaced = f.array(_record(plan, i, is_retraction=True))
                live = f.when(emitted, f.when(exists, replaced).otherwise(nothing)).otherwise(live)
            emits.append(f.when(emitted, record).otherwise(nothing))
            ends.append(ends[-1] + size if ends else size)
        stored: dict[str, SparkColumn] = {c.EPOCH: f.col(c.THIS_EPOCH)}
        if plan.retracting:
            stored[c.LIVE] = f.when(f.col(f"_new{c.STATUS}") == c.OPEN, live).otherwise(nothing)
        fields = [
            f.col(field.name)
            if field.name in plan.identity
            else stored.get(field.name, f.col(f"_new{field.name}")).cast(field.dataType).alias(field.name)
            for field in plan.state_schema.fields
        ]
        dropped = [f.col(name).cast("long").alias(name) for name in (DROPPED, DROPPED_RETRACTIONS)]
        counted = [reduce(add, counts[of], f.lit(0)).alias(name) for of, name in COUNTS.items()]
        kept = ((f.col(f"_new{c.STATUS}") != c.DELETED) | f.col(c.STORED)).alias(KEPT)
        upto = [end.alias(f"{_UPTO}{i}") for i, end in enumerate(ends[:-1])]
        sources = [f.col(SOURCES), f.col(GONE)] if plan.merging else []
        emitted = f.concat(*emits).alias(EMITS)
        return Selection([*fields, emitted, *counted, *dropped, kept, f.col(_TOUCHED), *upto, *sources])

    def moment(self, sequence: SparkColumn) -> SparkColumn:
        """At which moment of the epoch (semantics 12.1) the record at ``sequence`` in ``EMITS`` was emitted: numbers in
        order. For rows that ``apply`` gave.
        """
        if self.is_batch:
            return f.lit(_WATERMARK)
        bundle = f.when(f.col(_TOUCHED), _BUNDLE).otherwise(_DEADLINE)
        found = f.when(sequence < f.col(f"{_UPTO}0"), bundle)
        for i in range(1, len(self._outcome.panes) - 1):
            found = found.when(sequence < f.col(f"{_UPTO}{i}"), _SIGNAL)
        return found.otherwise(_WATERMARK)


def _value(name: str) -> str:
    """The column of an aggregate that is computed once."""
    return f"_value_{name}"


def _left(part: Part, cleared: Expr) -> SparkColumn:
    """A part of the contents, or its identity where they were cleared."""
    return f.when(~compile_expr(cleared), f.col(part.name))


def _pane_info(pane: PaneColumns) -> dict[str, Expr]:
    """What a pane says besides its aggregates."""
    return {
        "window_start": col(c.WINDOW_START),
        "window_end": col(c.WINDOW_END),
        "pane_time": pane.time,
        "timing": pane.timing,
        "pane_index": pane.index,
        "nonspeculative_index": pane.nonspeculative_index,
        "is_first": pane.index == 0,
        "is_last": pane.is_last,
    }


def _field(i: int, name: str) -> str:
    """The column of a field of the pane of moment ``i``."""
    return f"_pane{i}_{name}"


def _record(plan: Plan, i: int, *, is_retraction: bool) -> SparkColumn:
    fields = [f.col(f"`{_field(i, name)}`").alias(name) for name in plan.pane_type.names]
    return f.struct(*fields, f.lit(is_retraction).alias("is_retraction"))
