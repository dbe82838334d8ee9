"""Windows that never merge: the state and the delta of each (key, window) side by side, one row for each."""

from functools import cached_property

from pyspark.sql import Window
from pyspark.sql import functions as f
from pyspark.sql import types as t

from headrace.engine.expressions import compile_expr
from headrace.engine.plan import Plan
from headrace.engine.prepared import Selection
from headrace.engine.state import newest, union
from headrace.engine.types import SPARK_TYPES, DataFrame, SparkColumn
from headrace.model.time import NEVER
from headrace.program import columns as c

STATE = "_state"
_DELTA_EPOCH = 2**62


def initial(plan: Plan) -> dict[str, SparkColumn]:
    """Values of the bookkeeping columns in a fresh window."""
    values: dict[str, SparkColumn] = {name: f.lit(0).cast("long") for name in (c.NEW, c.INDEX, c.NONSPECULATIVE)}
    values[c.HOLD] = f.lit(None).cast("long")
    values[c.DUE_EVENT] = values[c.DUE_TIME] = f.lit(int(NEVER)).cast("long")
    for field in plan.trigger.fields:
        values[field.name] = compile_expr(field.initial).cast(SPARK_TYPES[field.type])
    for part in plan.parts:
        values[part.name] = f.lit(None).cast(part.type)
    if plan.retracting:
        values[c.LIVE] = f.array().cast(t.ArrayType(plan.record_type))
    return values


def null(plan: Plan, name: str) -> SparkColumn:
    """A bookkeeping column without a value."""
    return f.lit(None).cast(plan.bookkeeping[name].dataType).alias(name)


class Matching:
    """Columns of the query, made once for all epochs of an application: making them costs more than running them."""

    def __init__(self, plan: Plan, clocks: list[str]) -> None:
        self.plan, self.clocks = plan, clocks

    def combine(self, found: DataFrame | None, touched: DataFrame | None, moment: list[SparkColumn]) -> DataFrame:
        """Rows for the program of ``firing``: state (initial where there is none), what the delta brings, clocks."""
        plan = self.plan
        sides = []
        if found is not None:
            sides.append(self._from_state.of(found.select("*", *moment)))
        if touched is not None:
            sides.append(self._from_delta.of(touched.select("*", *moment)))
        rows = union(sides)
        if len(sides) == 2:
            rows = self._beside.of(self._ranked.of(rows).where(self._is_newest))
        elif found is not None:
            rows = newest(plan, rows)
        return self._restored.of(self._judged.of(rows))

    @cached_property
    def _brings(self) -> list[str]:
        return [c.COUNT, *self.plan.carried]

    @cached_property
    def _parts(self) -> list[str]:
        return [part.name for part in self.plan.parts]

    @cached_property
    def _from_state(self) -> Selection:
        nothing = [f.lit(None).cast(kind).alias(name) for name, kind in self.plan.carried.items()]
        state = f.struct(*self.plan.bookkeeping.names).alias(STATE)
        nothing += [null(self.plan, name) for name in self._parts]
        return Selection(
            [*self.plan.identity, c.EPOCH, *self.clocks, state, f.lit(0).cast("long").alias(c.COUNT), *nothing]
        )

    @cached_property
    def _from_delta(self) -> Selection:
        absent = f.lit(None).cast(self.plan.bookkeeping).alias(STATE)
        epoch = f.lit(_DELTA_EPOCH).cast("long").alias(c.EPOCH)
        return Selection([*self.plan.identity, epoch, *self.clocks, absent, *self._brings, *self._parts])

    @cached_property
    def _is_newest(self) -> SparkColumn:
        return f.col("_rank") == 1

    @cached_property
    def _ranked(self) -> Selection:
        order = Window.partitionBy(*self.plan.identity).orderBy(f.col(c.EPOCH).desc())
        return Selection(["*", f.row_number().over(order).alias("_rank"), f.lead(STATE).over(order).alias("_below")])

    @cached_property
    def _beside(self) -> Selection:
        is_delta = f.col(c.EPOCH) == _DELTA_EPOCH
        state = f.when(is_delta, f.col("_below")).otherwise(f.col(STATE)).alias(STATE)
        return Selection([*self.plan.identity, *self.clocks, state, *self._brings, *self._parts])

    @cached_property
    def _judged(self) -> Selection:
        status = f.col(f"{STATE}.{c.STATUS}")
        has = f.coalesce(status == c.OPEN, f.lit(False)).alias(c.HAS_STATE)
        closed = f.coalesce(status == c.CLOSED, f.lit(False)).alias(c.WAS_CLOSED)
        stored = f.coalesce(status != c.DELETED, f.lit(False)).alias(c.STORED)
        known = (*self.plan.identity, *self.clocks, STATE, *self._brings, *self._parts)
        return Selection([*known, has, closed, stored])

    @cached_property
    def _restored(self) -> Selection:
        parts = {part.name: part for part in self.plan.parts}
        values = []
        for name, fresh in initial(self.plan).items():
            stored = f.when(f.col(c.HAS_STATE), f.col(f"{STATE}.{name}")).otherwise(fresh)
            values.append((parts[name].merge(stored, f.col(name)) if name in parts else stored).alias(name))
        known = (*self.plan.identity, *self.clocks, c.HAS_STATE, c.WAS_CLOSED, c.STORED, *self._brings)
        return Selection([*known, *values])
