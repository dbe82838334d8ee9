"""Where: the windows of judged rows, as columns (semantics, section 2)."""

from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from zoneinfo import ZoneInfo

from pyspark.sql import functions as f

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
from headrace.program import columns as c

FIRST = "_first"
"""Column of the windows of a record: 1 in its first one, 0 in the others."""

_MONDAY = -3  # 1969-12-29, in days since 1970
_WEEK = 7
_DAY_BITS = 17
"""The seconds of a day are fewer than 2 to the power of this."""
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
    taken = f.when(f.col(c.REJECT).isNull() & f.col(c.ADMITTED), f.col(c.EVENT_TIME))
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
    accepted = f.when(f.col(c.REJECT).isNull(), f.col(c.EVENT_TIME))
    first, step = _period(where, f.to_date(f.from_utc_timestamp(f.timestamp_micros(accepted), where.zone)))
    dated = judged.withColumns({_BOUND: first}).withColumns(
        {f"{_BOUND}{i}": _midnight(where, f.col(_BOUND) + i * step) for i in range(3)}
    )
    begun = f.col(c.EVENT_TIME) >= f.col(f"{_BOUND}1")
    start = f.when(begun, f.col(f"{_BOUND}1")).otherwise(f.col(f"{_BOUND}0"))
    end = f.when(begun, f.col(f"{_BOUND}2")).otherwise(f.col(f"{_BOUND}1"))
    return _single(dated, start, end).drop(_BOUND, *[f"{_BOUND}{i}" for i in range(3)])


def _period(where: CalendarWindows, local: SparkColumn) -> tuple[SparkColumn, int]:
    """Where the window of a local date begins, and how far the next one is from there: in months or days since 1970."""
    if where.unit is CalendarUnit.MONTH:
        months = (f.year(local) - 1970) * 12 + f.month(local) - 1
        return months - f.pmod(months, f.lit(where.count)), where.count
    weekly = where.unit is CalendarUnit.WEEK
    step = where.count * (_WEEK if weekly else 1)
    days = f.unix_date(local)
    return days - f.pmod(days - (_MONDAY if weekly else 0), f.lit(step)), step


def _midnight(where: CalendarWindows, begin: SparkColumn) -> SparkColumn:
    """The first moment of a window in granules: midnight, the first of two, or when the clocks skip it."""
    if where.unit is CalendarUnit.MONTH:
        first = f.add_months(f.lit("1970-01-01").cast("date"), begin)
    else:
        first = f.date_from_unix_date(begin)
    midnight = f.to_utc_timestamp(first.cast("timestamp"), where.zone)
    return _change(where.zone, first, midnight) if _skips_from_before(where.zone) else f.unix_micros(midnight)


def _change(zone: str, first: SparkColumn, midnight: SparkColumn) -> SparkColumn:
    """``midnight`` of the date ``first`` in granules; if it was skipped, the moment at which the clocks changed.

    Spark takes a skipped midnight with the offset before, so there clocks show as much later as they skipped.
    """
    skipped = f.unix_seconds(f.from_utc_timestamp(midnight, zone)) - f.unix_seconds(first.cast("timestamp"))
    before = f.unix_seconds(midnight) - skipped

    def is_behind(seconds: SparkColumn) -> SparkColumn:
        return f.to_date(f.from_utc_timestamp(f.timestamp_seconds(before + seconds), zone)) < first

    # bit by bit the most seconds after which clocks show a date before
    bits = f.array(*[f.lit(1 << bit).cast("long") for bit in reversed(range(_DAY_BITS))])
    most = f.aggregate(
        bits, f.lit(0).cast("long"), lambda sure, bit: f.when(is_behind(sure + bit), sure + bit).otherwise(sure)
    )
    return f.when(skipped == 0, f.unix_seconds(midnight)).otherwise(before + most + 1) * f.lit(1_000_000).cast("long")


@cache
def _skips_from_before(zone: str) -> bool:
    """Whether clocks in ``zone`` ever went forward over midnight from before it, as in Toronto in 1919, from 23:30.

    Few did, and others are spared the search, for which Spark compiles no code.
    """
    tz = ZoneInfo(zone)
    for day in range(date(1900, 1, 1).toordinal(), date(2100, 1, 1).toordinal()):
        midnight = datetime.combine(date.fromordinal(day), time(), tz)
        if midnight.utcoffset() != midnight.replace(fold=1).utcoffset():
            just_before = (midnight.astimezone(UTC) - timedelta(microseconds=1)).astimezone(tz)
            if just_before.date() >= midnight.date():
                return True
    return False
