"""An aggregation as the engine sees it: the names, types and compiled parts that every step of it needs."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import functions as f
from pyspark.sql import types as t

from headrace.engine.accumulators import Accumulator, compile_aggregates
from headrace.engine.bags import BagPart
from headrace.engine.custom_windows import moves_output_times
from headrace.engine.kept import KEPT_AT, KeptPart
from headrace.engine.parts import Fold, FoldPart, Part
from headrace.engine.types import SPARK_TYPES, SparkColumn
from headrace.engine.vectorised import own_type
from headrace.model.accumulation import Accumulation, How, TimestampCombiner
from headrace.model.expr import Column, DataType, Expr, to_json
from headrace.model.time import GLOBAL_WINDOW_END, MIN_INSTANT, NEVER, Instant
from headrace.model.typing import type_of
from headrace.model.windows import CustomWindows, Sessions, ShiftedOutputTime, WindowFn
from headrace.pipeline.graph import Stage
from headrace.program import columns as c
from headrace.program import triggers
from headrace.program.triggers import Node, compile_trigger
from headrace.program.triggers.custom import AT, RECORD

_LONG, _BOOL, _INT = t.LongType(), t.BooleanType(), t.IntegerType()


@dataclass(frozen=True)
class Plan:
    """Compiled parts of one stage of a pipeline."""

    stage: Stage

    @cached_property
    def keys(self) -> list[str]:
        """Key columns, in order."""
        return list(self.stage.key_types)

    @property
    def how(self) -> How:
        """Accumulation, lateness and behaviours."""
        return self.stage.aggregation.how

    @cached_property
    def where(self) -> WindowFn:
        """The window function, without the shift of output times."""
        where = self.stage.aggregation.where
        return where.inner if isinstance(where, ShiftedOutputTime) else where

    @cached_property
    def output_shift(self) -> int:
        """How much later than its own an element's stamp is, for EARLIEST and LATEST."""
        where = self.stage.aggregation.where
        return int(where.shift) if isinstance(where, ShiftedOutputTime) else 0

    @cached_property
    def merging(self) -> bool:
        """Whether windows of a key can merge."""
        return self.where.merges

    @cached_property
    def grain(self) -> int:
        """To what ends of windows are rounded so that there are few of them (``Dues``): those of sessions are many."""
        return max(int(self.where.gap) // 16, 1) if isinstance(self.where, Sessions) else 1

    def expiry(self, end: Instant | None) -> Instant:
        """The watermark that must be exceeded for windows that end up to ``end`` to have expired (semantics 5.2), None:
        no window; NEVER where it is not known.
        """
        lateness = self.how.allowed_lateness
        if end is None:
            return MIN_INSTANT
        if lateness is None:
            return NEVER
        return Instant(min(end + lateness - 1, GLOBAL_WINDOW_END - 1))

    @property
    def may_finish(self) -> bool:
        """Whether the trigger can close a window before it expires."""
        return self.stage.when.may_finish

    @cached_property
    def partitioning(self) -> list[str]:
        """Columns whose hash decides the partition of state: windows that never meet need not share one."""
        return self.keys if self.merging else [*self.keys, c.WINDOW_START, c.WINDOW_END]

    @cached_property
    def identity(self) -> list[str]:
        """Columns that identify a state row."""
        return [*self.keys, c.WINDOW_START, c.WINDOW_END]

    @cached_property
    def trigger(self) -> Node:
        """The compiled trigger tree."""
        return compile_trigger(self.stage.when, self.merging, self.stage.schema)

    @cached_property
    def accumulators(self) -> Mapping[str, Accumulator]:
        """Accumulators by aggregate."""
        stage, all_kept = self.stage, self.how.keep_last is not None
        return compile_aggregates(
            stage.aggregation.what, stage.schema, withdrawable=stage.withdrawable, all_kept=all_kept
        )

    @cached_property
    def _aggregated(self) -> list[Part]:
        return [part for accumulator in self.accumulators.values() for part in accumulator.parts]

    @cached_property
    def parts(self) -> list[Part]:
        """Stored columns of the contents, in order: parts of accumulators, or the last elements that they are made of
        if a window keeps no more.
        """
        if self.how.keep_last is not None:
            fields = [t.StructField(name, self._type(expr)) for name, expr in self.kept_inputs]
            fields += [t.StructField(KEPT_AT, _LONG)] if self.keeps_times else []
            kept = t.ArrayType(t.StructType([t.StructField("_", _BOOL), *fields]))
            return [KeptPart(c.KEPT, kept, None, self.how.keep_last)]
        parts = self._aggregated
        return [*parts, FoldPart(c.NET, _LONG, None, Fold.COUNT)] if self.counts_net else parts

    @cached_property
    def inputs(self) -> list[tuple[str, Expr]]:
        """Distinct expressions that aggregates and triggers read, with the names of their columns in judged records."""
        wanted = [part.input for part in self._aggregated] + [measure.input for measure in self.trigger.measures]
        return _named(wanted)

    @property
    def kept_inputs(self) -> list[tuple[str, Expr]]:
        """Those of ``inputs`` that aggregates read."""
        return _named([part.input for part in self._aggregated])

    @cached_property
    def keeps_times(self) -> bool:
        """Whether event times belong to what is kept of the last elements."""
        return any(isinstance(part, BagPart) and part.is_timed for part in self._aggregated)

    def unpacked(self, contents: Mapping[str, SparkColumn]) -> Mapping[str, SparkColumn]:
        """The parts of accumulators in stored contents."""
        if self.how.keep_last is None:
            return contents
        kept, found = contents[c.KEPT], {}
        times = f.transform(kept, _reading(KEPT_AT)) if self.keeps_times else None
        for part in self._aggregated:
            name = "_" if part.input is None else self.input_column(part.input)
            found[part.name] = part.of(f.transform(kept, _reading(name)), times)
        return found

    @cached_property
    def custom(self) -> CustomWindows | None:
        """The window function if it is a user's own."""
        return self.where if isinstance(self.where, CustomWindows) else None

    @cached_property
    def lists_elements(self) -> bool:
        """Whether a trigger wants elements with their records (``_record``)."""
        return any(measure.input is None for measure in self.trigger.measures)

    @property
    def reads_records(self) -> bool:
        """Whether a user's own object looks at whole records."""
        return self.custom is not None or self.lists_elements

    @cached_property
    def is_ordered(self) -> bool:
        """Whether the order of arrival counts (``_order``)."""
        lists = any(measure.fold is triggers.Fold.LIST for measure in self.trigger.measures)
        return lists or self.how.keep_last is not None

    def _type(self, expr: Expr) -> t.DataType:
        return SPARK_TYPES[type_of(expr, {**self.stage.schema, c.SIZE: DataType.INT}) or DataType.BOOL]

    def input_column(self, expr: Expr) -> str:
        """The judged column that holds ``expr``."""
        return next(name for name, other in self.inputs if to_json(other) == to_json(expr))

    @cached_property
    def reads_size(self) -> bool:
        """Whether a trigger wants the size of elements."""
        return any(isinstance(expr, Column) and expr.name == c.SIZE for _, expr in self.inputs)

    @property
    def retracting(self) -> bool:
        """Whether emitted panes are remembered and withdrawn."""
        return self.how.accumulation is Accumulation.RETRACTING

    @property
    def counts_net(self) -> bool:
        """Whether a window of which every element was withdrawn must be told from others (semantics 9.1)."""
        return self.retracting and self.stage.withdrawable

    @property
    def stamps_elements(self) -> bool:
        """Whether panes get their timestamps from elements, not from their window."""
        return self.how.timestamp is not TimestampCombiner.END_OF_WINDOW

    @cached_property
    def stamps_merged(self) -> bool:
        """Whether a user's own function says which timestamps elements lend their pane, once windows have merged."""
        custom = self.custom if self.merging and self.stamps_elements else None
        return custom is not None and moves_output_times(custom)

    @cached_property
    def carried(self) -> Mapping[str, t.DataType]:
        """Delta columns that the program reads as they are, and their types: what triggers measure, stamps of elements,
        retractions.
        """
        names: dict[str, t.DataType] = {}
        record = t.StructType([t.StructField(n, own_type(kind)) for n, kind in self.stage.schema.items()])
        element = t.StructType([t.StructField(AT, _LONG), t.StructField(RECORD, record)])
        for measure in self.trigger.measures:
            kind = element if measure.type is None else SPARK_TYPES[measure.type]
            names[measure.name] = t.ArrayType(kind) if measure.fold is triggers.Fold.LIST else kind
        if self.stamps_elements:
            names |= {c.TIMES: t.ArrayType(_LONG), c.BEHIND: _LONG} if self.stamps_merged else {c.HELD: _LONG}
        return {**names, c.RETRACTED: _LONG} if self.stage.withdrawable else names

    @cached_property
    def pane_type(self) -> t.StructType:
        """A pane as it is remembered: window in granules, aggregates, pane info."""
        fields = [t.StructField("window_start", _LONG), t.StructField("window_end", _LONG)]
        fields += [t.StructField(name, a.result_type) for name, a in self.accumulators.items()]
        fields += [
            t.StructField("pane_time", _LONG),
            t.StructField("timing", t.StringType()),
            t.StructField("pane_index", _LONG),
            t.StructField("nonspeculative_index", _LONG),
            t.StructField("is_first", _BOOL),
            t.StructField("is_last", _BOOL),
        ]
        return t.StructType(fields)

    @cached_property
    def record_type(self) -> t.StructType:
        """What is emitted: a pane, or the retraction of one."""
        return t.StructType([*self.pane_type.fields, t.StructField("is_retraction", _BOOL)])

    @cached_property
    def pane_schema(self) -> t.StructType:
        """A pane as readers see it: keys, aggregates, pane columns (``headrace.model.panes``)."""
        stamps = {"window_start", "window_end", "pane_time"}
        fields = [t.StructField(k, SPARK_TYPES[kind]) for k, kind in self.stage.key_types.items()]
        inner = {field.name: t.TimestampType() if field.name in stamps else field.dataType for field in self.pane_type}
        fields += [t.StructField(name, inner[name]) for name in self.accumulators]
        fields += [t.StructField(name, kind) for name, kind in inner.items() if name not in self.accumulators]
        fields += [
            t.StructField("is_retraction", _BOOL),
            t.StructField("epoch", _LONG),
            t.StructField("sequence", _LONG),
        ]
        return t.StructType(fields)

    @cached_property
    def bookkeeping(self) -> t.StructType:
        """State columns besides key, window and epoch."""
        fields = [
            t.StructField(c.STATUS, _INT),
            t.StructField(c.DUE_EVENT, _LONG),
            t.StructField(c.DUE_TIME, _LONG),
            t.StructField(c.NEW, _LONG),
            t.StructField(c.HOLD, _LONG),
            t.StructField(c.INDEX, _LONG),
            t.StructField(c.NONSPECULATIVE, _LONG),
        ]
        fields += [t.StructField(field.name, SPARK_TYPES[field.type]) for field in self.trigger.fields]
        fields += [t.StructField(p.name, p.type) for p in self.parts]
        if self.retracting:
            fields.append(t.StructField(c.LIVE, t.ArrayType(self.record_type)))
        return t.StructType(fields)

    @cached_property
    def state_schema(self) -> t.StructType:
        """A state row, as it is stored."""
        fields = [t.StructField(k, SPARK_TYPES[kind]) for k, kind in self.stage.key_types.items()]
        fields += [t.StructField(name, _LONG) for name in (c.WINDOW_START, c.WINDOW_END, c.EPOCH)]
        return t.StructType([*fields, *self.bookkeeping.fields])


def _named(wanted: Iterable[Expr | None]) -> list[tuple[str, Expr]]:
    """The distinct expressions of ``wanted``, named in order."""
    distinct: dict[str, Expr] = {}
    for expr in wanted:
        if expr is not None:
            distinct.setdefault(str(to_json(expr)), expr)
    return [(f"_in_{i}", expr) for i, expr in enumerate(distinct.values())]


def _reading(name: str) -> Callable[[SparkColumn], SparkColumn]:
    return lambda element: element[name]
