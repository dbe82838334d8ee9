"""Where: the windows of judged rows, as columns (semantics, section 2)."""

from pyspark.sql import functions as f

from headrace.engine import columns as c
from headrace.engine.custom_windows import END, STAMP, START, assigned_windows
from headrace.engine.expressions import compile_expr
from headrace.engine.plan import Plan
from headrace.engine.types import DataFrame, SparkColumn
from headrace.errors import PipelineError
from headrace.model.expr import Expr
from headrace.model.time import GLOBAL_WINDOW_END, MIN_INSTANT
from headrace.model.windows import (
    CalendarUnit,
    CalendarWindows,
    CustomWindows,
    FixedWindows,
    GlobalWindows,
    Sessions,
    SlidingWindows,
)

FIRST = "_first"
"""Column of the windows of a record: 1 in its first one, 0 in the others."""

_MONDAY = -3  # 1969-12-29, in days since 1970
_WEEK = 7
_BOUND = "_bound"


def in_windows(plan: Plan, judged: DataFrame) -> DataFrame:
    """``judged`` rows with ``_ws``, ``_we`` and ``FIRST``, one for each of their windows; NULL if there is none."""
    ts = f.col(c.EVENT_TIME)
    match plan.where:
        case FixedWindows(size, offset, phase):
            shift = f.lit(int(offset)) if phase is None else f.lit(int(offset)) + _phase(plan, phase)
            start = ts - f.pmod(ts - shift, f.lit(int(size)))
            return _single(judged, start, start + f.lit(int(size)))
        case CalendarWindows():
            return _calendar(judged, plan.where)
        case Sessions(gap):
            return _single(judged, ts, ts + f.lit(int(gap)))
        case GlobalWindows():
            return _single(judged, f.lit(int(MIN_INSTANT)), f.lit(int(GLOBAL_WINDOW_END)))
        case SlidingWindows(size, period, offset):
            return _sliding(judged, int(size), int(period), int(offset))
        case CustomWindows():
            found = _custom(judged, plan.where)
            return found if plan.lists_elements else found.drop(c.RECORD)
    raise PipelineError(f"the Spark engine does not run the window function {plan.where!r} yet")


def _single(judged: DataFrame, start: SparkColumn, end: SparkColumn) -> DataFrame:
    return judged.withColumns({c.WINDOW_START: start, c.WINDOW_END: end, FIRST: f.lit(1).cast("long")})


def _phase(plan: Plan, phase: Expr) -> SparkColumn:
    """How far the windows of a row's key are shifted (2.2)."""
    return f.coalesce(compile_expr(phase, plan.stage.key_types), f.lit(0)).cast("long")


def _sliding(judged: DataFrame, size: int, period: int, offset: int) -> DataFrame:
    ts = f.col(c.EVENT_TIME)
    last = ts - f.pmod(ts - f.lit(offset), f.lit(period))
    lowest = ts - f.lit(size - 1)
    starts = f.when(last >= lowest, f.sequence(last, lowest, f.lit(-period).cast("long")))
    exploded = judged.select("*", f.posexplode_outer(starts).alias("_position", c.WINDOW_START))
    first = f.when(f.coalesce(f.col("_position"), f.lit(0)) == 0, 1).otherwise(0).cast("long")
    return exploded.withColumns({c.WINDOW_END: f.col(c.WINDOW_START) + f.lit(size), FIRST: first}).drop("_position")


def _custom(judged: DataFrame, where: CustomWindows) -> DataFrame:
    """The windows that a user's own function gives the elements that take part."""
    taken = f.when(f.col("_reject").isNull() & f.col("_kept"), f.col(c.EVENT_TIME))
    found = assigned_windows(where, taken, f.col(c.RECORD))
    exploded = judged.withColumn("_windows", found).select("*", f.posexplode_outer("_windows").alias("_position", "_w"))
    first = f.when(f.coalesce(f.col("_position"), f.lit(0)) == 0, 1).otherwise(0).cast("long")
    windows = {c.WINDOW_START: f.col(f"_w.{START}"), c.WINDOW_END: f.col(f"_w.{END}"), c.STAMP: f.col(f"_w.{STAMP}")}
    return exploded.withColumns({**windows, FIRST: first}).drop("_windows", "_position", "_w")


# --- days, weeks and months of local time


def _calendar(judged: DataFrame, where: CalendarWindows) -> DataFrame:
    """The window of a row's local date. Clocks that were set back over midnight show the old date again, but the next
    window has begun: there it is the window behind.
    """
    accepted = f.when(f.col("_reject").isNull(), f.col(c.EVENT_TIME))
    first, step = _period(where, f.to_date(f.from_utc_timestamp(f.timestamp_micros(accepted), where.zone)))
    dated = judged.withColumns({_BOUND: first}).withColumns(
        {f"{_BOUND}{i}": _midnight(where, f.col(_BOUND) + i * step) for i in range(3)}
    )
    begun = f.col(c.EVENT_TIME) >= f.col(f"{_BOUND}1")
    start = f.when(begun, f.col(f"{_BOUND}1")).otherwise(f.col(f"{_BOUND}0"))
    end = f.when(begun, f.col(f"{_BOUND}2")).otherwise(f.col(f"{_BOUND}1"))
    return _single(dated, start, end).drop(_BOUND, *[f"{_BOUND}{i}" for i in range(3)])


def _period(where: CalendarWindows, date: SparkColumn) -> tuple[SparkColumn, int]:
    """Where the window of a local date begins, and how far the next one is from there: in months or days since 1970."""
    if where.unit is CalendarUnit.MONTH:
        months = (f.year(date) - 1970) * 12 + f.month(date) - 1
        return months - f.pmod(months, f.lit(where.count)), where.count
    weekly = where.unit is CalendarUnit.WEEK
    step = where.count * (_WEEK if weekly else 1)
    days = f.unix_date(date)
    return days - f.pmod(days - (_MONDAY if weekly else 0), f.lit(step)), step


def _midnight(where: CalendarWindows, begin: SparkColumn) -> SparkColumn:
    """The first moment of a window in granules. Of two midnights it is the first; one that the clocks skip is as long
    after the last midnight as it would be without them.
    """
    if where.unit is CalendarUnit.MONTH:
        date = f.add_months(f.lit("1970-01-01").cast("date"), begin)
    else:
        date = f.date_from_unix_date(begin)
    return f.unix_micros(f.to_utc_timestamp(date.cast("timestamp"), where.zone))
