"""An epoch's records, aggregated per (key, window) before they meet the state.

One pass over the judged records gives both the delta and its accounting: records that take no part (rejected,
filtered, late, in no window) are counted in groups of their own, whose key is NULL and whose "window" is a code, so
that the largest event time of the epoch and all counts come out of the same shuffle as the data.
"""

from dataclasses import dataclass
from enum import IntEnum

from pyspark.sql import functions as f

from headrace.engine.expressions import by_reference, compile_expr
from headrace.engine.kept import KEPT_AT, KEPT_PLACE, KEPT_VALUE, KeptPart
from headrace.engine.parts import Elements, Part
from headrace.engine.plan import Plan
from headrace.engine.types import DataFrame, SparkColumn
from headrace.engine.windowing import FIRST, in_windows
from headrace.model.accumulation import TimestampCombiner
from headrace.model.time import MIN_INSTANT, Instant
from headrace.model.windows import Sessions
from headrace.program import columns as c
from headrace.program.firing import expiry
from headrace.program.triggers import Fold, Measure
from headrace.program.triggers.custom import AT, RECORD

EVENT_TIME = c.EVENT_TIME
_MIN_TS, _MAX_TS, _ELEMENTS = "_min_ts", "_max_ts", "_elements"


class Fate(IntEnum):
    """What became of a record (of a record in one window); also the code of its accounting group.

    FORGOTTEN: it is so late that its id would be forgotten already, had it come before (semantics 12.10).
    """

    ACCEPTED = 0
    REJECTED = 1
    FILTERED = 2
    LATE = 3
    NOWHERE = 4
    LATE_RETRACTION = 5
    DUPLICATE = 6
    FORGOTTEN = 7


@dataclass(frozen=True)
class Accounting:
    """Counts of one epoch. ``rows`` counts records per fate, ``late`` and ``late_retractions`` drops (a record in each
    of its windows); times in granules.
    """

    rows: dict[Fate, int]
    late: int
    late_retractions: int
    max_event_time: Instant | None
    min_accepted: Instant | None
    max_accepted: Instant | None


def assigned(plan: Plan, judged: DataFrame, watermark: Instant) -> DataFrame:
    """Judged records in their windows, one row per (record, window), with ``_fate``; late is judged by the own window
    (3.1a).
    """
    windowed = in_windows(plan, judged)
    expires = compile_expr(expiry(plan.how))
    late = (
        f.when(f.col(c.SIGN) < 0, Fate.LATE_RETRACTION).otherwise(Fate.LATE) if plan.stage.withdrawable else Fate.LATE
    )
    fate = f.when(f.col(c.REJECT).isNotNull(), Fate.REJECTED).when(
        ~f.coalesce(f.col(c.ADMITTED), f.lit(False)) | f.col(EVENT_TIME).isNull(), Fate.FILTERED
    )
    if c.SEEN in judged.columns:
        fate = fate.when(f.col(c.SEEN).isNotNull(), f.col(c.SEEN))
    fate = (
        fate.when(f.col(c.WINDOW_START).isNull(), Fate.NOWHERE)
        .when(by_reference(watermark, EVENT_TIME) > expires, late)
        .otherwise(Fate.ACCEPTED)
    )
    return windowed.withColumn("_fate", fate.cast("int"))


def aggregate(plan: Plan, records: DataFrame, partitions: int, output_watermark: Instant = MIN_INSTANT) -> DataFrame:
    """The delta: one row per (key, window) of accepted records and one per fate of the others.

    Columns: keys, ``_ws``, ``_we``, ``_n`` (elements), accumulator parts, ``Plan.carried``, and the accounting.
    Partitioned as the state is.
    """
    accepted = f.col("_fate") == int(Fate.ACCEPTED)
    code = f.lit(int(MIN_INSTANT)) - f.col("_fate").cast("long")
    where = plan.where
    start = f.col(c.WINDOW_START)
    if isinstance(where, Sessions):
        # elements of one gap-aligned bucket are less than one gap apart, so they are one session already
        start = f.col(EVENT_TIME) - f.pmod(f.col(EVENT_TIME), f.lit(int(where.gap)))
        end = start
    else:
        end = f.col(c.WINDOW_END)
    keys = [f.when(accepted, f.col(k)).alias(k) for k in plan.keys]
    marks = [*([c.SIGN] if plan.stage.withdrawable else []), *([c.ORDER] if plan.is_ordered else [])]
    marks += [c.RECORD] if plan.lists_elements else []
    marks += [c.STAMP] if plan.custom and plan.stamps_elements else []
    inputs = [f.when(accepted, f.col(name)).alias(name) for name in (*[name for name, _ in plan.inputs], *marks)]
    event_time = f.when(f.col("_fate") != int(Fate.REJECTED), f.col(EVENT_TIME)).alias(EVENT_TIME)
    rows = records.select(
        *keys,
        f.when(accepted, start).otherwise(code).alias(c.WINDOW_START),
        f.when(accepted, end).otherwise(code).alias(c.WINDOW_END),
        event_time,
        f.col(FIRST),
        *inputs,
    )
    if plan.merging:
        rows = rows.repartition(partitions, *plan.keys)
    grouped = rows.groupBy(*plan.identity).agg(
        f.count(f.lit(1)).alias(c.COUNT),
        f.sum(FIRST).alias(_ELEMENTS),
        f.min(EVENT_TIME).alias(_MIN_TS),
        f.max(EVENT_TIME).alias(_MAX_TS),
        *[_partial(plan, part) for part in plan.parts],
        *[_measured(plan, measure) for measure in plan.trigger.measures],
        *_stamps(plan, output_watermark),
        *([f.count(f.when(f.col(c.SIGN) < 0, 1)).alias(c.RETRACTED)] if plan.stage.withdrawable else []),
    )
    if not isinstance(where, Sessions):
        return grouped
    is_data = f.col(plan.keys[0]).isNotNull()
    return grouped.withColumns(
        {
            c.WINDOW_START: f.when(is_data, f.col(_MIN_TS)).otherwise(f.col(c.WINDOW_START)),
            c.WINDOW_END: f.when(is_data, f.col(_MAX_TS) + f.lit(int(where.gap))).otherwise(f.col(c.WINDOW_END)),
        }
    )


def _partial(plan: Plan, part: Part) -> SparkColumn:
    if isinstance(part, KeptPart):
        read = [f.col(name) for name, _ in plan.kept_inputs]
        read += [f.col(EVENT_TIME).alias(KEPT_AT)] if plan.keeps_times else []
        placed = _placed(f.struct(f.lit(True).alias("_"), *read))
        return part.fold(Elements(placed, f.col(EVENT_TIME), None)).alias(part.name)
    value = f.lit(1) if part.input is None else f.col(plan.input_column(part.input))
    sign = f.col(c.SIGN) if plan.stage.withdrawable else None
    return part.fold(Elements(value, f.col(EVENT_TIME), sign)).alias(part.name)


def _measured(plan: Plan, measure: Measure) -> SparkColumn:
    if measure.input is None:
        value = f.struct(f.col(EVENT_TIME).alias(AT), f.col(c.RECORD).alias(RECORD))
    else:
        value = f.col(plan.input_column(measure.input))
    if measure.fold is Fold.LIST:
        found = f.array_sort(f.collect_list(_placed(value)))
        # where windows merge, the order counts again (``Merging``)
        return (found if plan.merging else in_order(found)).alias(measure.name)
    folds = {Fold.SUM: f.sum, Fold.MIN: f.min, Fold.MAX: f.max}
    folded = folds[measure.fold](value)
    return folded.cast(plan.carried[measure.name]).alias(measure.name)


def _placed(value: SparkColumn) -> SparkColumn:
    """``value`` of an accepted element, with its place in the order of arrival; NULL for others."""
    placed = f.struct(f.col(c.ORDER).alias(KEPT_PLACE), value.alias(KEPT_VALUE))
    return f.when(f.col(c.ORDER).isNotNull(), placed)


def in_order(placed: SparkColumn) -> SparkColumn:
    """The values of a sorted array of places and values."""
    return f.transform(placed, lambda element: element[KEPT_VALUE])


def _stamps(plan: Plan, output_watermark: Instant) -> list[SparkColumn]:
    """The timestamp that elements lend their pane; those behind the output watermark lend none (semantics 6.1, 6.2)."""
    if not plan.stamps_elements:
        return []
    if plan.stamps_merged:  # no window is the one that it will be
        times = f.collect_set(f.when(f.col(plan.keys[0]).isNotNull(), f.col(EVENT_TIME)))
        behind = f.max(by_reference(output_watermark, EVENT_TIME))
        return [times.alias(c.TIMES), behind.alias(c.BEHIND)]
    stamp = f.col(c.STAMP if plan.custom else EVENT_TIME) + f.lit(plan.output_shift)
    held = f.when(stamp >= by_reference(output_watermark, EVENT_TIME), stamp)
    return [(f.min if plan.how.timestamp is TimestampCombiner.EARLIEST else f.max)(held).cast("long").alias(c.HELD)]


def data_rows(plan: Plan, delta: DataFrame) -> DataFrame:
    """The rows of the delta that are data."""
    return delta.where(f.col(plan.keys[0]).isNotNull())


def account(plan: Plan, delta: DataFrame) -> Accounting:
    """Run the delta (one Spark job) and bring its accounting to the driver."""
    is_data = f.col(plan.keys[0]).isNotNull()
    code = f.when(is_data, int(Fate.ACCEPTED)).otherwise(f.lit(int(MIN_INSTANT)) - f.col(c.WINDOW_START)).cast("int")
    found = (
        delta.groupBy(code.alias("fate"))
        .agg(
            f.sum(_ELEMENTS).alias("elements"),
            f.sum(c.COUNT).alias("pairs"),
            f.min(_MIN_TS).alias("low"),
            f.max(_MAX_TS).alias("high"),
        )
        .collect()
    )
    by_fate = {Fate(row["fate"]): row for row in found}
    accepted = by_fate.get(Fate.ACCEPTED)
    pairs = {fate: row["pairs"] for fate, row in by_fate.items()}
    highs = [row["high"] for row in found if row["high"] is not None]
    return Accounting(
        rows={fate: row["elements"] for fate, row in by_fate.items()},
        late=pairs.get(Fate.LATE, 0),
        late_retractions=pairs.get(Fate.LATE_RETRACTION, 0),
        max_event_time=Instant(max(highs)) if highs else None,
        min_accepted=Instant(accepted["low"]) if accepted else None,
        max_accepted=Instant(accepted["high"]) if accepted else None,
    )
