"""As ``test_differential``, for the triggers and windows that look further than counts and clocks."""

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from headrace.engine import columns as c
from headrace.engine.plan import Plan
from headrace.engine.state import union
from headrace.engine.types import SparkSession
from headrace.engine.windowing import in_windows
from headrace.model.expr import crc32, if_
from headrace.model.time import Instant, instant
from headrace.model.triggers import AfterAny, AfterEach, DataDriven, OrFinally
from headrace.model.windows import CalendarWindows, ShiftedOutputTime
from headrace.pipeline import (
    AfterCount,
    AfterWatermark,
    BoundedOutOfOrderness,
    DataType,
    Default,
    EventTime,
    FileFormat,
    FileSource,
    FixedWindows,
    GlobalWindows,
    How,
    Pipeline,
    Repeatedly,
    Sessions,
    SlidingWindows,
    TimestampCombiner,
    Trigger,
    WindowFn,
    accumulating,
    cast,
    col,
    count,
    discarding,
    max_of,
    mean_of,
    min_of,
    retracting,
    sum_of,
)
from headrace.reference import Epoch, run_pipeline
from headrace.reference.calendar import calendar_window
from tests.engine.differential import run_on_spark
from tests.engine.test_differential import by_window

pytestmark = pytest.mark.spark

VALUE, SHARE, WORD = col("value"), col("share"), col("word")
TOTAL = DataDriven({"total": sum_of(VALUE), "n": count(VALUE), "all": count()}, (col("total") > 40) & (col("n") >= 2))
SPREAD = DataDriven(
    {"low": min_of(SHARE), "high": max_of(SHARE), "mean": mean_of(VALUE), "share": sum_of(SHARE)},
    (col("high") - col("low") > 2.0) | (col("mean") > 30) | (col("share") == 1.5),
)
WORDS = DataDriven(
    {"first": min_of(WORD), "last": max_of(WORD), "from": min_of(col("at"))},
    (col("first") != col("last"))
    & (cast(col("first"), DataType.INT) < 5)
    & (col("from") > datetime(1970, 1, 1, tzinfo=UTC)),
)
NEVER_NULL = DataDriven({"most": max_of(if_(VALUE > 30, VALUE, None))}, col("most").is_null())

SCENARIOS: dict[str, tuple[WindowFn, Trigger, How]] = {
    "data_fixed": (FixedWindows(15), AfterWatermark(early=TOTAL, late=NEVER_NULL), retracting(25)),
    "data_sessions": (Sessions(6), OrFinally(Repeatedly(SPREAD), TOTAL), accumulating(20)),
    "data_sliding": (SlidingWindows(12, 6), AfterEach(SPREAD, TOTAL, AfterWatermark()), accumulating(20)),
    "data_global": (GlobalWindows(), Repeatedly(AfterAny(WORDS, AfterCount(6))), discarding(0)),
    "data_sessions_each": (Sessions(5), AfterEach(TOTAL, WORDS, AfterWatermark()), retracting(20)),
    "phase": (FixedWindows(10, 3, crc32(col("user")) % 7), AfterWatermark(late=AfterCount(1)), accumulating(20)),
    "phase_stamped": (
        ShiftedOutputTime(FixedWindows(10, 3, if_(col("user") == "u3", None, crc32(col("user")) - 2**31)), 4),
        Default(),
        discarding(20, timestamp=TimestampCombiner.LATEST),
    ),
}


def build(where: WindowFn, when: Trigger, how: How, bound: int = 6) -> Pipeline:
    columns = {"user": DataType.STRING, "value": DataType.INT, "at": DataType.TIMESTAMP, "bot": DataType.BOOL}
    columns |= {"share": DataType.FLOAT, "word": DataType.STRING}
    return Pipeline(
        name="differential",
        source=FileSource("none", FileFormat.JSON, columns),
        event_time=EventTime(col("at"), BoundedOutOfOrderness(timedelta(microseconds=bound))),
        key={"user": col("user")},
        filter=col("bot").is_null(),
        where=where,
        when=when,
        how=how,
        what={"elements": count(), "total": sum_of(VALUE), "least": min_of(VALUE), "mean": mean_of(VALUE)},
        allow_finishing=True,
    )


def random_epochs(seed: int, epochs: int = 4, keys: int = 60) -> list[Epoch]:
    """Elements around a moving front of event time: some early, some within the bound, some beyond any lateness."""
    rng = random.Random(seed)
    front, clock, result = 0, 0, []
    for number in range(epochs):
        front += rng.choice([3, 8, 14])
        clock += rng.choice([0, 5, 40])
        records = [_record(rng, key, front) for key in range(keys) for _ in range(rng.choice([0, 1, 1, 2, 4]))]
        rng.shuffle(records)
        result.append(Epoch(Instant(clock), records, is_last=number == epochs - 1 and rng.random() < 0.5))
    return result


def _record(rng: random.Random, key: int, front: int) -> dict[str, Any]:
    lag = rng.choice([0, 1, 2, 4, 6, 9, 15, 30, 45])
    record: dict[str, Any] = {"user": f"u{key}", "at": Instant(front - lag)}
    record["value"] = rng.choice([None, *range(-5, 50, 3)])
    record["share"] = rng.choice([None, *(number / 4 for number in range(12))])
    record["word"] = rng.choice([None, "3", " 4", "7", "x"])
    if rng.random() < 0.1:
        record["bot"] = True
    return record


def check(spark: SparkSession, pipeline: Pipeline, epochs: Sequence[Epoch], where: str) -> None:
    expected = run_pipeline(pipeline, epochs)
    found = run_on_spark(spark, pipeline, epochs)
    assert any(result.panes for result in expected), "the scenario must emit something"
    for number, (reference, (panes, late)) in enumerate(zip(expected, found, strict=True)):
        assert by_window(panes) == by_window(list(reference.panes)), f"{where}, epoch {number}"
        assert late == sum(drop.cause == "late" for drop in reference.drops), f"{where}, epoch {number}"


@pytest.mark.parametrize("name", SCENARIOS)
def test_engine_equals_reference(spark: SparkSession, name: str) -> None:
    seed = sum(name.encode())
    check(spark, build(*SCENARIOS[name]), random_epochs(seed), f"{name}, seed {seed}")


CALENDARS = [("day", 1), ("day", 3), ("week", 1), ("week", 2), ("month", 1), ("month", 5)]
ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/Sao_Paulo",  # clocks went forward at midnight: days without one
    "America/St_Johns",  # clocks went back at 00:01: some days have two midnights
    "America/Toronto",  # in 1919 clocks went forward at 23:30
    "Asia/Beirut",
    "Asia/Kathmandu",
    "Africa/Cairo",
    "America/Havana",
    "Australia/Lord_Howe",
    "Pacific/Apia",  # no 2011-12-30
    "Pacific/Kiritimati",
]


def _moments(zone: str, seed: int) -> list[Instant]:
    """Moments around all changes of the clocks from 1900 to 2040, and some of any year."""
    rng, tz, day = random.Random(seed), ZoneInfo(zone), 86_400_000_000
    low, high = instant(datetime(1900, 1, 2, tzinfo=UTC)), instant(datetime(2040, 1, 1, tzinfo=UTC))
    end = instant(datetime(9998, 1, 1, tzinfo=UTC))

    def offset(at: int) -> timedelta | None:
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at)).astimezone(tz).utcoffset()

    found = [Instant(rng.randrange(low, end)) for _ in range(200)]
    for at in range(low, high, 7 * day):
        if offset(at) == offset(at + 7 * day):
            continue
        before, after = at, at + 7 * day
        while after - before > 1:
            middle = (before + after) // 2
            before, after = (middle, after) if offset(middle) == offset(at) else (before, middle)
        near = [
            after + minutes * 60_000_000 + shift
            for minutes in (-61, -31, -1, 0, 1, 29, 31, 59, 61)
            for shift in (-1, 0)
        ]
        found += [Instant(moment) for moment in [*near, after - day, after + day, after + rng.randrange(day)]]
    return found


def test_calendar_windows(spark: SparkSession) -> None:
    """Days, weeks and months are those of the reference in every zone, also around each change of its clocks."""
    expected, parts = {}, []
    for number, zone in enumerate(ZONES):
        moments = _moments(zone, number)
        rows = spark.createDataFrame([(int(at),) for at in moments], f"{c.EVENT_TIME} long").selectExpr(
            "*", "cast(null as string) _reject"
        )
        for unit, length in CALENDARS:
            where = CalendarWindows(unit, zone, length)
            plan = Plan(build(where, Default(), discarding()).stages[0])
            label = f"'{zone} {unit} {length}' as label"
            parts.append(in_windows(plan, rows).selectExpr(label, c.EVENT_TIME, c.WINDOW_START, c.WINDOW_END))
            expected |= {(f"{zone} {unit} {length}", at): calendar_window(where, at) for at in moments}
    found = {(label, at): (start, end) for label, at, start, end in union(parts).collect()}
    different = [(place, found[place], expected[place]) for place in expected if found[place] != expected[place]]
    assert different == []
    assert len(expected) > 10_000


def test_calendar_windows_fire(spark: SparkSession) -> None:
    hour = 3_600_000_000
    start = instant(datetime(2018, 11, 3, tzinfo=UTC))  # clocks go forward at midnight of November 4
    rng = random.Random(5)
    epochs = []
    for number in range(3):
        records = [_record(rng, key, 0) | {"at": Instant(start + rng.randrange(40 * hour))} for key in range(30)]
        epochs.append(Epoch(Instant(number), records, is_last=number == 2))
    where = CalendarWindows("day", "America/Sao_Paulo")
    check(
        spark, build(where, AfterWatermark(late=AfterCount(1)), accumulating(8 * hour), 20 * hour), epochs, "calendar"
    )
