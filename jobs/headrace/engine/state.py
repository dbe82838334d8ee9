"""What earlier epochs left: layers of state rows, of which the newest per (key, window) counts.

Every layer is an immutable DataFrame that is materialised once and partitioned as the delta is, so that looking up
the touched windows moves no state between partitions. An epoch adds one layer; layers of similar size are merged now
and then.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import Window
from pyspark.sql import functions as f

from headrace.engine.dues import LIMIT, UNKNOWN, Dues
from headrace.engine.expressions import by_reference, compile_expr, named
from headrace.engine.layers import Layer
from headrace.engine.plan import Plan
from headrace.engine.types import DataFrame, SparkColumn
from headrace.model.expr import DataType, Literal
from headrace.model.time import GLOBAL_WINDOW_END, MIN_INSTANT, NEVER, Instant
from headrace.model.triggers import Signal
from headrace.program import columns as c
from headrace.program.firing import Clocks


@dataclass(frozen=True)
class StateLayer(Layer):
    """State rows, the activations that they want in event time and in processing time, and a lower bound of their
    holds.
    """

    event_dues: Dues = UNKNOWN
    time_dues: Dues = UNKNOWN
    hold: Instant = MIN_INSTANT

    def is_due(self, clocks: Clocks) -> bool:
        """Whether some row may want an activation under ``clocks`` (a newer layer may know better)."""
        steps = [(clocks.watermark_before, clocks.watermark_after), *clocks.percentiles.values()]
        if any(self.event_dues.may_lie_in(before, after) for before, after in steps):
            return True
        low, high = clocks.previous_processing_time + 1, clocks.processing_time + 1
        return self.time_dues.may_lie_in(Instant(low), Instant(high))


def due_columns(plan: Plan) -> list[SparkColumn]:
    """Aggregates ``event_dues`` and ``time_dues``: the earliest activations that rows want, for ``Dues.of``."""
    return [
        _earliest(f.col(c.DUE_EVENT) - f.pmod(c.DUE_EVENT, f.lit(plan.grain))).alias("event_dues"),
        _earliest(f.col(c.DUE_TIME)).alias("time_dues"),
    ]


def _earliest(due: SparkColumn) -> SparkColumn:
    known = f.collect_set(f.when(due < int(GLOBAL_WINDOW_END), due))
    return f.slice(f.array_sort(known), 1, LIMIT + 1)


def union(frames: Sequence[DataFrame]) -> DataFrame:
    """All rows of frames of one schema; keeps a partitioning that they share."""
    return reduce(DataFrame.union, frames)


def newest(plan: Plan, rows: DataFrame) -> DataFrame:
    """Of the rows of one (key, window) the one of the newest epoch."""
    order = Window.partitionBy(*plan.identity).orderBy(f.col(c.EPOCH).desc())
    return rows.withColumn("_rank", f.row_number().over(order)).where(f.col("_rank") == 1).drop("_rank")


def look_ahead(plan: Plan, layers: Sequence[StateLayer], clocks: Clocks) -> list[StateLayer]:
    """The layers with what they want after ``clocks``: a Spark job for each of which too little is known."""
    return [_looked_up(plan, layer, clocks) if _is_exhausted(layer, clocks) else layer for layer in layers]


def _is_exhausted(layer: StateLayer, clocks: Clocks) -> bool:
    furthest = max([clocks.watermark_after, *(after for _, after in clocks.percentiles.values())])
    return layer.event_dues.floor < furthest or layer.time_dues.floor <= clocks.processing_time


def _looked_up(plan: Plan, layer: StateLayer, clocks: Clocks) -> StateLayer:
    event, time = f.col(c.DUE_EVENT), f.col(c.DUE_TIME)
    pending = layer.rows.select(
        f.when(event >= by_reference(clocks.watermark_after, c.DUE_EVENT), event).alias(c.DUE_EVENT),
        f.when(time > by_reference(clocks.processing_time, c.DUE_TIME), time).alias(c.DUE_TIME),
    )
    found = pending.agg(*due_columns(plan)).collect()[0]
    return replace(layer, event_dues=Dues.of(found[0], plan.grain), time_dues=Dues.of(found[1], 1))


def next_due(layers: Sequence[StateLayer], watermark: Instant, now: Instant) -> tuple[Instant, Instant]:
    """Lower bounds of the next watermark and the next processing time at which some window wants an activation, given
    those of now.
    """
    return (
        Instant(min((layer.event_dues.next_after(Instant(watermark - 1)) for layer in layers), default=NEVER)),
        Instant(min((layer.time_dues.next_after(now) for layer in layers), default=NEVER)),
    )


def hearing(plan: Plan, name: str, signals: Sequence[Signal]) -> SparkColumn | None:
    """Whether a window hears one of ``signals`` of that ``name``; None if none of them can be for a window of ``plan``
    (semantics 9.3).
    """
    found = [_is_for(plan, signal) for signal in signals if signal.name == name]
    known = [condition for condition in found if condition is not None]
    return reduce(lambda a, b: a | b, known) if known else None


_KEY_PARTS = {DataType.STRING: str, DataType.INT: int, DataType.BOOL: bool, DataType.TIMESTAMP: int}


def _is_for(plan: Plan, signal: Signal) -> SparkColumn | None:
    condition = f.lit(True)
    if signal.key is not None:
        kinds = plan.stage.key_types
        if [type(part) for part in signal.key] != [_KEY_PARTS.get(kind) for kind in kinds.values()]:
            return None
        for part, (name, kind) in zip(signal.key, kinds.items(), strict=True):
            condition = condition & (named(name) == compile_expr(Literal(part, kind)))
    if signal.window is not None:
        start, end = signal.window
        condition = condition & (f.col(c.WINDOW_START) == int(start)) & (f.col(c.WINDOW_END) == int(end))
    return condition


def lookup(
    plan: Plan,
    layers: Sequence[StateLayer],
    touched: DataFrame | None,
    clocks: Clocks,
    told: Sequence[SparkColumn] = (),
) -> DataFrame | None:
    """Every version of the state rows that this epoch may change: of touched keys, of rows with a due activation, and
    of open windows that are ``told`` of a signal.

    ``touched`` is the data of the delta. None when there is nothing to look up.
    """
    wanted = [] if touched is None else [touched.select(*plan.partitioning)]
    # what was due before was activated then, and a newer layer holds what became of it
    # (until the watermark has passed its end, the next event-time activation of an open window is its end)
    time, event = f.col(c.DUE_TIME), f.col(c.DUE_EVENT)
    due = (time > by_reference(clocks.previous_processing_time, c.DUE_TIME)) & (
        time <= by_reference(clocks.processing_time, c.DUE_TIME)
    )
    for before, after in [(clocks.watermark_before, clocks.watermark_after), *clocks.percentiles.values()]:
        due = due | ((event >= by_reference(before, c.DUE_EVENT)) & (event < by_reference(after, c.DUE_EVENT)))
    wanted += [layer.rows.where(due).select(*plan.partitioning) for layer in layers if layer.is_due(clocks)]
    for condition in told:
        heard = (f.col(c.STATUS) == c.OPEN) & condition
        wanted += [layer.rows.where(heard).select(*plan.partitioning) for layer in layers]
    if not layers or not wanted:
        return None
    rows = union([layer.rows for layer in layers])
    return rows.join(union(wanted).hint("shuffle_hash"), plan.partitioning, "left_semi")


def earliest_hold(plan: Plan, layers: Sequence[StateLayer], watermark: Instant) -> Instant:
    """The earliest hold of an open window, or ``watermark`` if none is earlier (semantics 7.1): a Spark job if some
    layer may have one.
    """
    if not any(layer.hold < watermark for layer in layers):
        return watermark
    rows = union([layer.rows for layer in layers])
    holding = union(
        [
            layer.rows.where(f.col(c.HOLD) < by_reference(watermark, c.HOLD)).select(*plan.partitioning)
            for layer in layers
        ]
    )
    found = newest(plan, rows.join(holding.hint("shuffle_hash"), plan.partitioning, "left_semi"))
    earliest = found.where(f.col(c.STATUS) == c.OPEN).agg(f.min(c.HOLD)).collect()[0][0]
    return watermark if earliest is None else Instant(min(earliest, watermark))


def merge(plan: Plan, layers: Sequence[StateLayer], drop_deleted: bool) -> DataFrame:
    """One layer's rows out of several; tombstones go only when nothing older is left below (``drop_deleted``)."""
    rows = newest(plan, union([layer.rows for layer in layers]))
    return rows.where(f.col(c.STATUS) != c.DELETED) if drop_deleted else rows


def load(plan: Plan, stored: DataFrame, partitions: int) -> DataFrame:
    """``stored`` state rows, partitioned as the delta is: the only shuffle that state ever sees."""
    return stored.repartition(partitions, *plan.partitioning).localCheckpoint(eager=False)
