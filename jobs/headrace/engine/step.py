"""One epoch of the aggregation: the delta meets the state, windows merge and fire, and what changed becomes a new
layer.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Window
from pyspark.sql import functions as f
from pyspark.sql import types as t

from headrace.engine import columns as c
from headrace.engine.accumulators import Fold as PartFold
from headrace.engine.delta import data_rows
from headrace.engine.expressions import compile_expr
from headrace.engine.firing import Clocks, Outcome, PaneColumns, compile_firing, contents
from headrace.engine.plan import Plan
from headrace.engine.program import substitute
from headrace.engine.state import StateLayer, lookup, newest, union
from headrace.engine.triggers import Fold
from headrace.engine.types import SPARK_TYPES, DataFrame, SparkColumn
from headrace.model.expr import Column, Expr, col
from headrace.model.panes import PANE_COLUMNS, Timing
from headrace.model.time import GLOBAL_WINDOW_END, MIN_INSTANT, NEVER
from headrace.model.windows import Sessions

_EMITS = "_emits"
_SOURCES = "_sources"
_STATE = "_state"
_DROPPED = "_dropped_closed"
_DELTA_EPOCH = 2**62
_MOMENT = (c.WATERMARK_BEFORE, c.WATERMARK_AFTER, c.PROCESSING_TIME, c.THIS_EPOCH)


@dataclass(frozen=True)
class Step:
    """The changed windows of one epoch: new state, panes, tombstones of merged-away windows."""

    plan: Plan
    epoch: int
    rows: DataFrame

    def state(self) -> DataFrame:
        """Rows of the epoch's state layer."""
        names = self.plan.state_schema.names
        rows = self.rows.select(*names)
        if not self.plan.merging:
            return rows
        gone = self.rows.select(*self.plan.keys, f.explode(_SOURCES).alias("_gone"))
        blank = {c.STATUS: f.lit(c.DELETED), c.DUE_EVENT: f.lit(2**62), c.DUE_TIME: f.lit(2**62)}
        window = {c.WINDOW_START: f.col("_gone.ws"), c.WINDOW_END: f.col("_gone.we"), c.EPOCH: f.lit(self.epoch)}
        tombstones = gone.select(
            *[
                (
                    {**blank, **window}.get(
                        field.name, f.col(field.name) if field.name in self.plan.keys else f.lit(None)
                    )
                )
                .cast(field.dataType)
                .alias(field.name)
                for field in self.plan.state_schema.fields
            ]
        )
        return rows.union(tombstones)

    def panes(self) -> DataFrame:
        """The panes of the epoch: keys, aggregates, pane columns (``headrace.model.panes``)."""
        plan = self.plan
        rows = self.rows.where(f.size(_EMITS) > 0).select(*plan.keys, f.posexplode(_EMITS).alias("sequence", "p"))
        values = [f.col(f"p.{name}").alias(name) for name in plan.pipeline.value_types]
        info = {name: f.col(f"p.{name}") for name in PANE_COLUMNS if name not in ("epoch", "sequence")}
        info["window_start"] = _timestamp(f.col("p.window_start"))
        info["window_end"] = _timestamp(f.col("p.window_end"))
        info["pane_time"] = _timestamp(f.col("p.pane_time"))
        info["epoch"] = f.lit(self.epoch).cast("long")
        info["sequence"] = f.col("sequence").cast("long")
        return rows.select(*plan.keys, *values, *[info[name].alias(name) for name in PANE_COLUMNS])

    def summary(self) -> DataFrame:
        """One row: counts of changed rows, panes by timing, retractions, closed drops, and the earliest activations
        wanted.
        """
        emits = f.col(_EMITS)
        counted = {timing.lower(): f.sum(f.size(f.filter(emits, _has_timing(timing)))) for timing in Timing}
        sources = f.sum(f.size(_SOURCES)) if self.plan.merging else f.lit(0)
        return self.rows.agg(
            f.count(f.lit(1)).alias("rows"),
            sources.alias("tombstones"),
            *[column.alias(name) for name, column in counted.items()],
            f.sum(f.size(f.filter(emits, lambda p: p["is_retraction"]))).alias("retractions"),
            f.sum(_DROPPED).alias("dropped_closed"),
            f.min(c.DUE_EVENT).alias("due_event"),
            f.min(c.DUE_TIME).alias("due_time"),
        )


def _has_timing(timing: Timing) -> Callable[[SparkColumn], SparkColumn]:
    return lambda pane: ~pane["is_retraction"] & (pane["timing"] == timing.value)


def _timestamp(granules: SparkColumn) -> SparkColumn:
    finite = (granules > int(MIN_INSTANT)) & (granules < int(GLOBAL_WINDOW_END) - 1)
    return f.when(finite, f.timestamp_micros(granules))


def build(plan: Plan, epoch: int, layers: list[StateLayer], delta: DataFrame | None, clocks: Clocks) -> Step | None:
    """The step of ``epoch``; None when nothing is touched and nothing is due."""
    touched = None if delta is None else data_rows(plan, delta)
    found = lookup(plan, layers, touched, clocks)
    if touched is None and found is None:
        return None
    now = {
        c.WATERMARK_BEFORE: clocks.watermark_before,
        c.WATERMARK_AFTER: clocks.watermark_after,
        c.PROCESSING_TIME: clocks.processing_time,
        c.THIS_EPOCH: epoch,
    }
    moment = [f.lit(int(value)).cast("long").alias(name) for name, value in now.items()]
    combine = _merged if plan.merging else _matched
    combined = combine(plan, found, touched, moment)
    outcome = compile_firing(plan.trigger, plan.pipeline.how, plan.merging)
    return Step(plan, epoch, _apply(plan, combined, outcome))


def _absent(plan: Plan, names: list[str]) -> list[SparkColumn]:
    return [f.lit(None).cast(plan.bookkeeping[name].dataType).alias(name) for name in names]


def _initial(plan: Plan) -> dict[str, SparkColumn]:
    """Values of the bookkeeping columns in a fresh window."""
    initial: dict[str, SparkColumn] = {name: f.lit(0).cast("long") for name in (c.NEW, c.INDEX, c.NONSPECULATIVE)}
    initial[c.ON_TIME] = f.lit(False)
    initial[c.DUE_EVENT] = initial[c.DUE_TIME] = f.lit(int(NEVER)).cast("long")
    for field in plan.trigger.fields:
        initial[field.name] = compile_expr(field.initial).cast(SPARK_TYPES[field.type])
    for part in plan.parts:
        initial[part.name] = f.lit(None).cast(SPARK_TYPES[part.type])
    if plan.retracting:
        initial[c.LIVE] = f.array().cast(t.ArrayType(plan.pane_type))
    return initial


def _matched(plan: Plan, found: DataFrame | None, touched: DataFrame | None, moment: list[SparkColumn]) -> DataFrame:
    """Windows that never merge: the newest state row and the delta row of each (key, window) side by side."""
    book = plan.bookkeeping.names
    parts = [p.name for p in plan.parts]
    sides = []
    if found is not None:
        state = f.struct(*book).alias(_STATE)
        nothing = [f.lit(0).cast("long").alias(c.COUNT), *[_null(plan, p) for p in parts]]
        sides.append(found.select(*plan.identity, c.EPOCH, *moment, state, *nothing))
    if touched is not None:
        absent = f.lit(None).cast(plan.bookkeeping).alias(_STATE)
        epoch = f.lit(_DELTA_EPOCH).cast("long").alias(c.EPOCH)
        sides.append(touched.select(*plan.identity, epoch, *moment, absent, c.COUNT, *parts))
    order = Window.partitionBy(*plan.identity).orderBy(f.col(c.EPOCH).desc())
    is_delta = f.col(c.EPOCH) == _DELTA_EPOCH
    rows = union(sides)
    if len(sides) == 2:
        below = f.lead(_STATE).over(order)
        rows = rows.withColumns({"_rank": f.row_number().over(order), "_below": below})
        rows = rows.where(f.col("_rank") == 1).withColumn(
            _STATE, f.when(is_delta, f.col("_below")).otherwise(f.col(_STATE))
        )
    elif found is not None:
        rows = newest(plan, rows)
    status = f.col(f"{_STATE}.{c.STATUS}")
    has = f.coalesce(status == c.OPEN, f.lit(False))
    restored = {
        name: f.when(f.col(c.HAS_STATE), f.col(f"{_STATE}.{name}")).otherwise(fresh).alias(name)
        for name, fresh in _initial(plan).items()
    }
    for part in plan.parts:
        state_part = f.when(f.col(c.HAS_STATE), f.col(f"{_STATE}.{part.name}")).alias(part.name)
        restored[part.name] = state_part
    rows = rows.withColumns({c.HAS_STATE: has, c.WAS_CLOSED: f.coalesce(status == c.CLOSED, f.lit(False))})
    deltas = {part.name: f"_d{part.name}" for part in plan.parts}
    rows = rows.select(
        *plan.identity,
        *_MOMENT,
        c.HAS_STATE,
        c.WAS_CLOSED,
        f.col(c.COUNT),
        *[f.col(name).alias(renamed) for name, renamed in deltas.items()],
        *restored.values(),
    )
    merged = {p.name: compile_expr(p.merge(Column(p.name), Column(deltas[p.name]))) for p in plan.parts}
    return rows.withColumns(merged).drop(*deltas.values())


def _null(plan: Plan, part: str) -> SparkColumn:
    return f.lit(None).cast(plan.bookkeeping[part].dataType).alias(part)


def _merged(plan: Plan, found: DataFrame | None, touched: DataFrame | None, moment: list[SparkColumn]) -> DataFrame:
    """Sessions: open windows and new ones of a key, merged where they overlap (semantics 2.4, 3.5, 12.8)."""
    book = plan.bookkeeping.names
    sides = []
    markers = None
    if found is not None:
        state = newest(plan, found)
        opened = state.where(f.col(c.STATUS) == c.OPEN)
        sides.append(opened.select(*plan.identity, *moment, f.lit(0).cast("long").alias(c.COUNT), *book))
        if plan.pipeline.when.may_finish:
            markers = state.where(f.col(c.STATUS) == c.CLOSED).select(*plan.identity, *moment, *book)
    if touched is not None:
        parts = {p.name for p in plan.parts}
        fields = [f.col(n) if n in parts else f.lit(None).cast(plan.bookkeeping[n].dataType).alias(n) for n in book]
        sides.append(touched.select(*plan.identity, *moment, c.COUNT, *fields))
    groups = _group_sessions(plan, union(sides))
    rows = _after_grouping(plan, groups)
    return rows if markers is None else _mark_closed(plan, rows, markers)


def _group_sessions(plan: Plan, rows: DataFrame) -> DataFrame:
    where = plan.pipeline.where
    assert isinstance(where, Sessions)
    order = Window.partitionBy(*plan.keys).orderBy(c.WINDOW_START, c.WINDOW_END)
    reach = f.max(c.WINDOW_END).over(order.rowsBetween(Window.unboundedPreceding, -1))
    start = f.col(c.WINDOW_START)
    apart = start > f.col("_reach") if where.touching_merges else start >= f.col("_reach")
    rows = rows.withColumn("_reach", reach)
    rows = rows.withColumn("_starts", f.when(f.col("_reach").isNull() | apart, 1).otherwise(0))
    rows = rows.withColumn("_group", f.sum("_starts").over(order.rowsBetween(Window.unboundedPreceding, 0)))
    is_state = f.col(c.STATUS).isNotNull()
    source = f.struct(
        f.col(c.WINDOW_START).alias("ws"),
        f.col(c.WINDOW_END).alias("we"),
        f.col(c.INDEX).alias("index"),
        f.col(c.NONSPECULATIVE).alias("nonspec"),
    )
    folds = {Fold.SUM: f.sum, Fold.MIN: f.min, Fold.ANY: f.max, Fold.ALL: f.min}
    part_folds = {PartFold.SUM: f.sum, PartFold.COUNT: f.sum, PartFold.MIN: f.min, PartFold.MAX: f.max}
    live = [f.array_sort(f.flatten(f.collect_list(c.LIVE))).alias(c.LIVE)] if plan.retracting else []
    return rows.groupBy(*plan.keys, "_group").agg(
        f.min(c.WINDOW_START).alias(c.WINDOW_START),
        f.max(c.WINDOW_END).alias(c.WINDOW_END),
        *[f.max(name).alias(name) for name in _MOMENT],
        f.sum(c.COUNT).alias(c.COUNT),
        f.collect_list(f.when(is_state, source)).alias(_SOURCES),
        f.coalesce(f.sum(c.NEW), f.lit(0).cast("long")).alias(c.NEW),
        f.coalesce(f.max(c.ON_TIME), f.lit(False)).alias(c.ON_TIME),
        *[f.coalesce(f.min(name), f.lit(int(NEVER))).alias(name) for name in (c.DUE_EVENT, c.DUE_TIME)],
        *[folds[field.fold](field.name).alias(field.name) for field in plan.trigger.fields],
        *[part_folds[p.fold](p.name).cast(SPARK_TYPES[p.type]).alias(p.name) for p in plan.parts],
        *live,
    )


def _after_grouping(plan: Plan, groups: DataFrame) -> DataFrame:
    """Pane counters survive only in a window that is one of its sources; the other sources leave tombstones."""

    def is_result(source: SparkColumn) -> SparkColumn:
        return (source["ws"] == f.col(c.WINDOW_START)) & (source["we"] == f.col(c.WINDOW_END))

    itself = f.try_element_at(f.filter(_SOURCES, is_result), f.lit(1))
    has = f.size(_SOURCES) > 0
    initial = _initial(plan)
    rows = groups.withColumn("_itself", itself)
    rows = rows.withColumns(
        {
            c.INDEX: f.coalesce(f.col("_itself.index"), f.lit(0).cast("long")),
            c.NONSPECULATIVE: f.coalesce(f.col("_itself.nonspec"), f.lit(0).cast("long")),
            c.HAS_STATE: has,
            c.WAS_CLOSED: f.lit(False),
            c.MERGED: has & ~((f.size(_SOURCES) == 1) & f.col("_itself").isNotNull()),
            _SOURCES: f.filter(_SOURCES, lambda s: ~is_result(s)),
            **{field.name: f.coalesce(f.col(field.name), initial[field.name]) for field in plan.trigger.fields},
        }
    )
    return rows.drop("_itself", "_group")


def _mark_closed(plan: Plan, rows: DataFrame, markers: DataFrame) -> DataFrame:
    """Windows that come out exactly as a closed one are closed; markers alone come along to expire."""
    initial = {**_initial(plan), c.COUNT: f.lit(0).cast("long"), c.HAS_STATE: f.lit(False), c.MERGED: f.lit(False)}
    initial[c.WAS_CLOSED] = f.lit(True)
    initial[_SOURCES] = f.array().cast(rows.schema[_SOURCES].dataType)
    kept = {c.INDEX, c.NONSPECULATIVE, *_MOMENT}
    alone = markers.select(
        *[f.col(name) if name in plan.identity or name in kept else initial[name].alias(name) for name in rows.columns]
    )
    order = Window.partitionBy(*plan.identity).orderBy(c.WAS_CLOSED)
    both = rows.union(alone)
    below = f.coalesce(f.lead(c.WAS_CLOSED).over(order), f.lit(False))
    both = both.withColumns({"_rank": f.row_number().over(order), "_below": below})
    both = both.where(f.col("_rank") == 1)
    closed = f.col("_below")
    return both.withColumns(
        {
            c.WAS_CLOSED: f.col(c.WAS_CLOSED) | closed,
            # the elements are dropped, and open windows that they would have bridged stay as they are
            c.HAS_STATE: f.col(c.HAS_STATE) & ~closed,
            c.MERGED: f.col(c.MERGED) & ~closed,
            _SOURCES: f.when(closed, initial[_SOURCES]).otherwise(f.col(_SOURCES)),
        }
    ).drop("_rank", "_below")


def _apply(plan: Plan, rows: DataFrame, outcome: Outcome) -> DataFrame:
    """Run the program and keep what changed: state columns, ``_emits``, ``_dropped_closed``, vanished sources."""
    through = [
        *plan.identity,
        c.THIS_EPOCH,
        *([c.LIVE] if plan.retracting else []),
        *([_SOURCES] if plan.merging else []),
    ]
    panes = [_pane_fields(plan, pane) for pane in outcome.panes]
    outputs: dict[str, Expr] = {
        **outcome.state,
        **{part.name: contents(outcome.cleared, part.name) for part in plan.parts},
        _DROPPED: outcome.dropped_closed,
        "_changed": outcome.changed,
    }
    for i, pane in enumerate(outcome.panes):
        outputs[f"_emitted{i}"] = pane.emitted
        outputs |= {f"_pane{i}_{name}": expr for name, expr in panes[i].items()}
    phases, final = outcome.program.compile(outputs)
    for phase in phases:
        carried = [*through, *sorted(phase.carries - set(through))]
        rows = rows.select(*carried, *[compile_expr(expr).alias(name) for name, expr in phase.computes.items()])
    structs = [
        f.struct(*[compile_expr(final[f"_pane{i}_{k.name}"]).cast(k.dataType).alias(k.name) for k in plan.pane_type])
        for i in range(len(panes))
    ]
    rows = rows.select(
        *through,
        *[compile_expr(final[name]).alias(f"_new{name}") for name in (*outcome.state, *(p.name for p in plan.parts))],
        *[compile_expr(final[name]).alias(name) for name in ("_emitted0", "_emitted1", _DROPPED, "_changed")],
        *[struct.alias(f"_pane{i}") for i, struct in enumerate(structs)],
        f.monotonically_increasing_id().alias("_barrier"),
    )
    # without the barrier Spark would push the filter below all phases and put the whole program into it
    return _emit(plan, rows.where(f.col("_changed") & (f.col("_barrier") >= 0)))


def _emit(plan: Plan, rows: DataFrame) -> DataFrame:
    """Panes in order, each after the retractions of what it replaces, and the list of live panes that results (9.1)."""
    pane_array = t.ArrayType(plan.pane_type)
    emitted_type = t.ArrayType(t.StructType([*plan.pane_type.fields, t.StructField("is_retraction", t.BooleanType())]))
    none, no_panes = f.array().cast(emitted_type), f.array().cast(pane_array)
    live = f.col(c.LIVE) if plan.retracting else no_panes
    emits: list[SparkColumn] = []
    for i in (0, 1):
        emitted, pane = f.col(f"_emitted{i}"), f.col(f"_pane{i}")
        record = f.array(_flagged(plan, pane, retraction=False))
        if plan.retracting:
            withdrawn = f.transform(live, lambda p: _flagged(plan, p, retraction=True))
            record = f.concat(withdrawn, record)
            live = f.when(emitted, f.array(pane)).otherwise(live)
        emits.append(f.when(emitted, record).otherwise(none))
    stored: dict[str, SparkColumn] = {c.EPOCH: f.col(c.THIS_EPOCH)}
    if plan.retracting:
        stored[c.LIVE] = f.when(f.col(f"_new{c.STATUS}") == c.OPEN, live).otherwise(no_panes)
    fields = [
        f.col(field.name)
        if field.name in plan.identity
        else stored.get(field.name, f.col(f"_new{field.name}")).cast(field.dataType).alias(field.name)
        for field in plan.state_schema.fields
    ]
    extra = [f.col(_SOURCES)] if plan.merging else []
    return rows.select(*fields, f.concat(*emits).alias(_EMITS), f.col(_DROPPED).cast("long").alias(_DROPPED), *extra)


def _pane_fields(plan: Plan, pane: PaneColumns) -> dict[str, Expr]:
    cleared = {p.name: contents(pane.cleared, p.name) for p in plan.parts}
    return {
        "window_start": col(c.WINDOW_START),
        "window_end": col(c.WINDOW_END),
        **{name: substitute(a.result, cleared) for name, a in plan.accumulators.items()},
        "pane_time": col(c.WINDOW_END) - 1,
        "timing": pane.timing,
        "pane_index": pane.index,
        "nonspeculative_index": pane.nonspeculative_index,
        "is_first": pane.index == 0,
        "is_last": pane.is_last,
    }


def _flagged(plan: Plan, pane: SparkColumn, *, retraction: bool) -> SparkColumn:
    fields = [pane[name].alias(name) for name in plan.pane_type.names]
    return f.struct(*fields, f.lit(retraction).alias("is_retraction"))
