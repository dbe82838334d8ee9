"""A pipeline as the engine sees it: the names, types and compiled parts that every step of its aggregation needs."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import types as t

from headrace.engine import columns as c
from headrace.engine.accumulators import Accumulator, Part, compile_aggregates
from headrace.engine.triggers import Node, compile_trigger
from headrace.engine.types import SPARK_TYPES
from headrace.model.accumulation import Accumulation
from headrace.model.expr import Expr, to_json
from headrace.pipeline.graph import Pipeline

_LONG, _BOOL, _INT = t.LongType(), t.BooleanType(), t.IntegerType()


@dataclass(frozen=True)
class Plan:
    """Compiled parts of one pipeline."""

    pipeline: Pipeline

    @cached_property
    def keys(self) -> list[str]:
        """Key columns, in order."""
        return list(self.pipeline.key)

    @cached_property
    def merging(self) -> bool:
        """Whether windows of a key can merge."""
        return self.pipeline.where.merges

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
        return compile_trigger(self.pipeline.when, self.merging)

    @cached_property
    def accumulators(self) -> Mapping[str, Accumulator]:
        """Accumulators by aggregate."""
        return compile_aggregates(self.pipeline.what, self.pipeline.schema)

    @cached_property
    def parts(self) -> list[Part]:
        """Stored accumulator columns, in order."""
        return [part for accumulator in self.accumulators.values() for part in accumulator.parts]

    @cached_property
    def inputs(self) -> list[tuple[str, Expr]]:
        """Distinct expressions that aggregates read, with the names of their columns in judged records."""
        distinct: dict[str, Expr] = {}
        for part in self.parts:
            if part.input is not None:
                distinct.setdefault(str(to_json(part.input)), part.input)
        return [(f"_in_{i}", expr) for i, expr in enumerate(distinct.values())]

    def input_column(self, expr: Expr) -> str:
        """The judged column that holds ``expr``."""
        return next(name for name, other in self.inputs if to_json(other) == to_json(expr))

    @property
    def retracting(self) -> bool:
        """Whether emitted panes are remembered and withdrawn."""
        return self.pipeline.how.accumulation is Accumulation.RETRACTING

    @cached_property
    def pane_type(self) -> t.StructType:
        """A pane as it is remembered: window in granules, aggregates, pane info."""
        fields = [t.StructField("window_start", _LONG), t.StructField("window_end", _LONG)]
        fields += [t.StructField(name, SPARK_TYPES[kind]) for name, kind in self.pipeline.value_types.items()]
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
    def bookkeeping(self) -> t.StructType:
        """State columns besides key, window and epoch."""
        fields = [
            t.StructField(c.STATUS, _INT),
            t.StructField(c.DUE_EVENT, _LONG),
            t.StructField(c.DUE_TIME, _LONG),
            t.StructField(c.NEW, _LONG),
            t.StructField(c.ON_TIME, _BOOL),
            t.StructField(c.INDEX, _LONG),
            t.StructField(c.NONSPECULATIVE, _LONG),
        ]
        fields += [t.StructField(f.name, SPARK_TYPES[f.type]) for f in self.trigger.fields]
        fields += [t.StructField(p.name, SPARK_TYPES[p.type]) for p in self.parts]
        if self.retracting:
            fields.append(t.StructField(c.LIVE, t.ArrayType(self.pane_type)))
        return t.StructType(fields)

    @cached_property
    def state_schema(self) -> t.StructType:
        """A state row, as it is stored."""
        fields = [t.StructField(k, SPARK_TYPES[kind]) for k, kind in self.pipeline.key_types.items()]
        fields += [t.StructField(name, _LONG) for name in (c.WINDOW_START, c.WINDOW_END, c.EPOCH)]
        return t.StructType([*fields, *self.bookkeeping.fields])
