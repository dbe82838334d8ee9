"""As ``test_differential``, for the triggers and windows that look further than counts and clocks."""

import json
import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.engine.delta import aggregate, assigned
from headrace.engine.elements import judge
from headrace.engine.errors import ArithmeticDataError, spark_errors
from headrace.engine.plan import Plan
from headrace.engine.source_reading import open_batch, read_batches
from headrace.engine.state import union
from headrace.engine.step import StepProgram
from headrace.engine.types import SparkSession
from headrace.engine.values import element_rows
from headrace.engine.windowing import in_windows
from headrace.errors import PipelineError
from headrace.model.calendar import calendar_window
from headrace.model.expr import crc32, if_
from headrace.model.time import Instant, instant
from headrace.model.triggers import AfterAny, AfterEach, AfterPattern, AfterSignal, DataDriven, OrFinally, Signal
from headrace.model.windows import CalendarWindows, CustomWindows, MergeGroup, ShiftedOutputTime, Window
from headrace.pipeline import (
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    Aggregation,
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
    collect_of,
    count,
    discarding,
    max_of,
    mean_of,
    min_of,
    retracting,
    sum_of,
)
from headrace.program import columns as c
from headrace.program.firing import Clocks
from headrace.reference import Epoch, run_pipeline
from headrace.sources.planning import Offsets, discover
from headrace_snapshots.store import open_store
from tests.engine.differential import by_window, run_on_spark
from tests.own_windows import Validity
from tests.process.test_plans import plan_of

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
RISE = AfterPattern("ab*c", {"a": VALUE < 10, "b": VALUE > 5, "c": VALUE > 25})
PAIR = AfterPattern("w.?w|[^wn]{2}", {"w": WORD == "x", "n": WORD.is_null()})
GO, STOP = AfterSignal("go"), AfterSignal("stop")
NEVER_NULL = DataDriven({"most": max_of(if_(VALUE > 30, VALUE, None))}, col("most").is_null())


@dataclass(frozen=True)
class Growing(Validity):
    """Whatever is merged grows, so that one merge too many shows."""

    def merge(self, windows: Collection[Window]) -> Iterable[MergeGroup]:
        start, end = min(w.start for w in windows), max(w.end for w in windows)
        yield MergeGroup(frozenset(windows), Window(start, Instant(end + 1)))


@dataclass(frozen=True)
class Weighed(CustomWindows):
    """None, one or two windows, as the value says; panes are stamped a bit later than their elements."""

    def assign(self, timestamp: Instant, record: Mapping[str, Any]) -> Iterable[Window]:
        value, start = record["value"], Instant(record["at"] // 12 * 12)
        if value is not None:
            yield Window(start, Instant(start + 12))
            if value % 2:
                yield Window(Instant(start - 6), Instant(start + 12))

    def output_time(self, timestamp: Instant, window: Window) -> Instant:
        return Instant(min(timestamp + 3, window.max_timestamp))


@dataclass(frozen=True)
class Stamped(Validity):
    """The time that elements lend their panes depends on what the window has become; it may lie beyond the end."""

    def output_time(self, timestamp: Instant, window: Window) -> Instant:
        return Instant(min(timestamp + timestamp % 5, window.end + 2) - 2)


@dataclass(frozen=True)
class Greedy(Validity):
    """Breaks the contract: it merges a window into another that is none of its sources."""

    def merge(self, windows: Collection[Window]) -> Iterable[MergeGroup]:
        first, *rest = sorted(windows)
        return [MergeGroup(frozenset({window}), first) for window in rest]


WHAT = {
    "elements": count(),
    "total": sum_of(VALUE),
    "least": min_of(VALUE),
    "mean": mean_of(VALUE),
    "words": collect_of(WORD),
}

SCENARIOS: dict[str, tuple[WindowFn, Trigger, How]] = {
    "data_fixed": (FixedWindows(15), AfterWatermark(early=TOTAL, late=NEVER_NULL), retracting(25)),
    "data_sessions": (Sessions(6), OrFinally(Repeatedly(SPREAD), TOTAL), accumulating(20)),
    "data_sliding": (SlidingWindows(12, 6), AfterEach(SPREAD, TOTAL, AfterWatermark()), accumulating(20)),
    "data_global": (GlobalWindows(), Repeatedly(AfterAny(WORDS, AfterCount(6))), discarding(0)),
    "data_sessions_each": (Sessions(5), AfterEach(TOTAL, WORDS, AfterWatermark()), retracting(20)),
    "pattern_fixed": (FixedWindows(15), AfterWatermark(early=RISE, late=AfterCount(2)), retracting(25)),
    "pattern_sessions": (Sessions(6), Repeatedly(PAIR), accumulating(20)),
    "pattern_each": (SlidingWindows(20, 10), AfterEach(PAIR, RISE, AfterWatermark()), discarding(30)),
    "kept_global": (GlobalWindows(), Repeatedly(AfterCount(2)), accumulating(keep_last=4)),
    "kept_fixed": (FixedWindows(20), AfterWatermark(AfterCount(2), PAIR), retracting(25, keep_last=3)),
    "signal_sessions": (Sessions(6), OrFinally(Repeatedly(AfterAny(GO, AfterCount(3))), STOP), retracting(20)),
    "signal_each": (
        FixedWindows(20),
        AfterEach(GO, AfterCount(2), AfterWatermark(early=GO, late=STOP)),
        discarding(30),
    ),
    "custom_merging": (Validity(10), AfterWatermark(early=AfterCount(2), late=AfterCount(1)), retracting(20)),
    "custom_finishing": (Validity(15), OrFinally(Repeatedly(AfterCount(2)), TOTAL), accumulating(30)),
    "custom_growing": (Growing(8), Repeatedly(AfterAny(GO, AfterProcessingTime(5))), accumulating(25)),
    "custom_records": (
        Weighed(),
        AfterWatermark(late=AfterCount(2)),
        discarding(20, timestamp=TimestampCombiner.EARLIEST),
    ),
    "custom_stamped": (
        Stamped(10),
        AfterWatermark(early=AfterCount(2), late=AfterCount(1)),
        retracting(20, timestamp=TimestampCombiner.EARLIEST),
    ),
    "custom_stamped_latest": (
        ShiftedOutputTime(Stamped(8), 3),
        OrFinally(Repeatedly(AfterCount(2)), TOTAL),
        accumulating(30, timestamp=TimestampCombiner.LATEST),
    ),
    "phase": (FixedWindows(10, 3, crc32(col("user")) % 7), AfterWatermark(late=AfterCount(1)), accumulating(20)),
    "phase_stamped": (
        ShiftedOutputTime(FixedWindows(10, 3, if_(col("user") == "u3", None, crc32(col("user")) - 2**31)), 4),
        Default(),
        discarding(20, timestamp=TimestampCombiner.LATEST),
    ),
}


SIGNALS = [
    Signal("go", ("u1",)),
    Signal("go", window=Window(Instant(0), Instant(20))),
    Signal("stop", ("u2",)),
    Signal("stop", window=Window(Instant(-20), Instant(0))),
    Signal("go", (3,)),
    Signal("other"),
    *(Signal("go", (f"u{number}",)) for number in range(10, 40, 3)),
]


def build(where: WindowFn, when: Trigger, how: How, bound: int = 6, then: tuple[Aggregation, ...] = ()) -> Pipeline:
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
        what=WHAT,
        allow_finishing=True,
        then=then,
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
        signals = [signal for signal in SIGNALS if rng.random() < 0.4]
        if number == 2 and rng.random() < 0.5:
            records, signals = [], [*signals, Signal("go")]
        result.append(Epoch(Instant(clock), records, number == epochs - 1 and rng.random() < 0.5, signals))
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


@pytest.fixture(autouse=True, scope="module")
def interpreted(spark: SparkSession) -> Iterator[None]:
    """Many queries over few rows, each run once: compiling them would cost more than interpreting them."""
    settings = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name in settings:
        spark.conf.unset(name)


def _behind(when: Trigger, how: How) -> Aggregation:
    return Aggregation(
        key={"group": crc32(col("user")) % 5},
        where=FixedWindows(40),
        when=when,
        how=how,
        what={"panes": count(), "total": sum_of(col("total")), "most": max_of(col("elements"))},
    )


GROWTH = AfterPattern("ab*c", {"a": col("total") < 20, "b": col("elements") == 1, "c": col("total") > 20})
CHAINS = {
    "elided": (
        build(
            FixedWindows(10),
            AfterWatermark(AfterCount(1), AfterCount(1)),
            retracting(25, elide_unchanged=True, timestamp=TimestampCombiner.LATEST),
            then=(
                replace(
                    _behind(Repeatedly(AfterCount(2)), retracting(25, elide_unchanged=True)),
                    what={"most": max_of(col("elements"))},
                ),
            ),
        ),
    ),
    "kept": (
        build(
            FixedWindows(5),
            AfterWatermark(AfterCount(2), AfterCount(1)),
            discarding(25),
            then=(_behind(Repeatedly(AfterCount(3)), accumulating(25, keep_last=4)),),
        ),
    ),
    "pattern": (
        build(
            FixedWindows(10),
            AfterWatermark(AfterProcessingTime(5), AfterCount(1)),
            retracting(25),
            then=(_behind(Repeatedly(GROWTH), accumulating(25)),),
        ),
    ),
}


@pytest.mark.parametrize("name", CHAINS)
def test_panes_arrive_in_the_order_of_their_emission(spark: SparkSession, name: str) -> None:
    check(spark, CHAINS[name][0], random_epochs(11), name)


@pytest.mark.parametrize("kind", [FileFormat.JSON, FileFormat.PARQUET])
def test_records_arrive_by_file_block_and_row(spark: SparkSession, tmp_path: Path, kind: FileFormat) -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [{"user": f"u{number}", "value": number, "at": at} for number in range(300)]
    suffix = kind.value
    for number, name in enumerate(["a-1", "a", "b"]):
        part = rows[number * 100 : number * 100 + 100]
        if kind is FileFormat.JSON:
            (tmp_path / f"{name}.{suffix}").write_text(
                "".join(json.dumps(row | {"at": at.isoformat()}) + "\n\n" for row in part)
            )
        else:
            pq.write_table(pa.Table.from_pylist(part), tmp_path / f"{name}.{suffix}", row_group_size=10)
    pipeline = build(*SCENARIOS["kept_global"])
    pipeline = replace(pipeline, source=replace(pipeline.source, format=kind, suffixes=()), key={"v": VALUE})
    store = open_store(tmp_path.as_uri())
    files = discover(store, "", Offsets(), pipeline.source)
    spark.conf.set("spark.sql.files.maxPartitionBytes", 700)
    try:
        batch = open_batch(spark, pipeline, pipeline.inputs[0], files, store.uri)
        judged = read_batches(spark, pipeline, Plan(pipeline.stages[0]), [batch])
        assert judged.rdd.getNumPartitions() > 3
        found = [row["v"] for row in judged.orderBy(c.ORDER).select("v").collect()]
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
    assert len(files) == 3
    assert found == list(range(300))


def test_custom_windows_that_break_their_contract_are_refused(spark: SparkSession) -> None:
    pipeline = build(Greedy(10), Default(), discarding(20))
    with pytest.raises(PipelineError, match="another window of the key"), spark_errors():
        run_on_spark(spark, pipeline, random_epochs(1, epochs=1, keys=5))


def test_sums_that_leave_64_bits_are_errors_of_the_data(spark: SparkSession) -> None:
    pipeline = build(*SCENARIOS["data_fixed"])
    records = [{"user": "u1", "at": Instant(1), "value": 2**62} for _ in range(2)]
    with pytest.raises(ArithmeticDataError, match="64 bits"), spark_errors():
        run_on_spark(spark, pipeline, [Epoch(Instant(0), records)])


@pytest.mark.parametrize(
    "name", ["data_sessions", "pattern_sessions", "pattern_each", "kept_fixed", "signal_each", "phase", "calendar"]
)
def test_what_is_built_in_runs_no_python(spark: SparkSession, name: str) -> None:
    calendar = (CalendarWindows("month", "Europe/Berlin"), Default(), discarding())
    stage = build(*(calendar if name == "calendar" else SCENARIOS[name])).stages[0]
    plan = Plan(stage)
    rows = judge(plan, element_rows(spark, stage.schema, [({"user": "u1", "value": 1}, Instant(0), 1)]))
    delta = aggregate(plan, assigned(plan, rows, Instant(0)), 2)
    step = StepProgram(plan).build(1, [], delta, Clocks(Instant(0), Instant(9), Instant(0), Instant(0)))
    assert step is not None
    for found in (delta, step.rows, step.panes()):
        assert "Python" not in plan_of(found)
        assert "ArrowEval" not in plan_of(found)


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
        near = [after + minutes * 60_000_000 + shift for minutes in (-61, -31, 0, 1, 31, 61) for shift in (-1, 0)]
        found += [Instant(moment) for moment in [*near, after - day, after + day, after + rng.randrange(day)]]
    return found


def test_calendar_windows(spark: SparkSession) -> None:
    """Days, weeks and months are those of the reference in every zone, also around each change of its clocks."""
    expected, parts = {}, []
    for number, zone in enumerate(ZONES):
        moments = _moments(zone, number)
        rows = spark.createDataFrame(pa.table({c.EVENT_TIME: moments})).selectExpr("*", "cast(null as string) _reject")
        for unit, length in CALENDARS:
            where = CalendarWindows(unit, zone, length)
            plan = Plan(build(where, Default(), discarding()).stages[0])
            label = f"'{zone} {unit} {length}' as label"
            parts.append(in_windows(plan, rows).selectExpr(label, c.EVENT_TIME, c.WINDOW_START, c.WINDOW_END))
            expected |= {(f"{zone} {unit} {length}", at): calendar_window(where, at) for at in moments}
    table = union(parts).toArrow().to_pydict()
    found = {(label, at): (start, end) for label, at, start, end in zip(*table.values(), strict=True)}
    different = [(place, found[place], expected[place]) for place in expected if found[place] != expected[place]]
    assert different == []
    assert all(start <= at < end for (_, at), (start, end) in found.items())
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
