"""As ``plain_scenarios``, for the triggers and windows that look further than counts and clocks."""

import random
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from headrace import (
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    Aggregation,
    DataType,
    Default,
    FileSource,
    FixedWindows,
    GlobalWindows,
    How,
    Input,
    Pipeline,
    Repeatedly,
    Sessions,
    SlidingWindows,
    Trigger,
    accumulating,
    col,
    count,
    discarding,
    retracting,
)
from headrace.model.accumulation import TimestampCombiner
from headrace.model.event_time import BoundedOutOfOrderness, EventTime
from headrace.model.expressions.columns import if_else
from headrace.model.time import Instant
from headrace.model.triggers import Signal
from headrace.model.triggers.composites import AfterAny, AfterEach, OrFinally
from headrace.model.triggers.data_driven import AfterPattern, DataDriven
from headrace.model.triggers.elementary import AfterSignal
from headrace.model.windows import CustomWindows, MergeGroup, ShiftedOutputTime, Window, WindowFn
from headrace_lab.reference import Epoch
from tests.own_windows import Validity

VALUE, SHARE, WORD = col("value"), col("share"), col("word")
TOTAL = DataDriven({"total": VALUE.sum(), "n": VALUE.count(), "all": count()}, (col("total") > 40) & (col("n") >= 2))
SPREAD = DataDriven(
    {"low": SHARE.min(), "high": SHARE.max(), "mean": VALUE.mean(), "share": SHARE.sum()},
    (col("high") - col("low") > 2.0) | (col("mean") > 30) | (col("share") == 1.5),
)
WORDS = DataDriven(
    {"first": WORD.min(), "last": WORD.max(), "from": col("at").min()},
    (col("first") != col("last"))
    & (col("first").cast(DataType.INT) < 5)
    & (col("from") > datetime(1970, 1, 1, tzinfo=UTC)),
)
RISE = AfterPattern("ab*c", {"a": VALUE < 10, "b": VALUE > 5, "c": VALUE > 25})
PAIR = AfterPattern("w.?w|[^wn]{2}", {"w": WORD == "x", "n": WORD.is_null()})
GO, STOP = AfterSignal("go"), AfterSignal("stop")
NEVER_NULL = DataDriven({"most": if_else(VALUE > 30, VALUE, None).max()}, col("most").is_null())


@dataclass(frozen=True)
class Growing(Validity):
    """Whatever is merged grows, so that one merge too many shows."""

    def merge(self, windows: Collection[Window]) -> Iterable[MergeGroup]:
        start, end = min(w.start for w in windows), max(w.end for w in windows)
        yield MergeGroup(frozenset(windows), Window(start, Instant(end + 1)))


@dataclass(frozen=True)
class WeighedWindows(CustomWindows):
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
class StampedValidity(Validity):
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
    "total": VALUE.sum(),
    "least": VALUE.min(),
    "mean": VALUE.mean(),
    "words": WORD.collect(),
}

SCENARIOS: dict[str, tuple[WindowFn, Trigger, How]] = {
    "data_fixed": (FixedWindows("15us"), AfterWatermark(early=TOTAL, late=NEVER_NULL), retracting("25us")),
    "data_sessions": (Sessions("6us"), OrFinally(Repeatedly(SPREAD), TOTAL), accumulating("20us")),
    "data_sliding": (SlidingWindows("12us", "6us"), AfterEach(SPREAD, TOTAL, AfterWatermark()), accumulating("20us")),
    "data_global": (GlobalWindows(), Repeatedly(AfterAny(WORDS, AfterCount(6))), discarding("0s")),
    "data_sessions_each": (Sessions("5us"), AfterEach(TOTAL, WORDS, AfterWatermark()), retracting("20us")),
    "pattern_fixed": (FixedWindows("15us"), AfterWatermark(early=RISE, late=AfterCount(2)), retracting("25us")),
    "pattern_sessions": (Sessions("6us"), Repeatedly(PAIR), accumulating("20us")),
    "pattern_each": (SlidingWindows("20us", "10us"), AfterEach(PAIR, RISE, AfterWatermark()), discarding("30us")),
    "kept_global": (GlobalWindows(), Repeatedly(AfterCount(2)), accumulating(keep_last=4)),
    "kept_fixed": (FixedWindows("20us"), AfterWatermark(AfterCount(2), PAIR), retracting("25us", keep_last=3)),
    "signal_sessions": (Sessions("6us"), OrFinally(Repeatedly(AfterAny(GO, AfterCount(3))), STOP), retracting("20us")),
    "signal_each": (
        FixedWindows("20us"),
        AfterEach(GO, AfterCount(2), AfterWatermark(early=GO, late=STOP)),
        discarding("30us"),
    ),
    "custom_merging": (Validity(10), AfterWatermark(early=AfterCount(2), late=AfterCount(1)), retracting("20us")),
    "custom_finishing": (Validity(15), OrFinally(Repeatedly(AfterCount(2)), TOTAL), accumulating("30us")),
    "custom_growing": (Growing(8), Repeatedly(AfterAny(GO, AfterProcessingTime("5us"))), accumulating("25us")),
    "custom_records": (
        WeighedWindows(),
        AfterWatermark(late=AfterCount(2)),
        discarding("20us", timestamp=TimestampCombiner.EARLIEST),
    ),
    "custom_stamped": (
        StampedValidity(10),
        AfterWatermark(early=AfterCount(2), late=AfterCount(1)),
        retracting("20us", timestamp=TimestampCombiner.EARLIEST),
    ),
    "custom_stamped_latest": (
        ShiftedOutputTime(StampedValidity(8), "3us"),
        OrFinally(Repeatedly(AfterCount(2)), TOTAL),
        accumulating("30us", timestamp=TimestampCombiner.LATEST),
    ),
    "phase": (
        FixedWindows("10us", "3us", col("user").crc32() % 7),
        AfterWatermark(late=AfterCount(1)),
        accumulating("20us"),
    ),
    "phase_stamped": (
        ShiftedOutputTime(
            FixedWindows("10us", "3us", if_else(col("user") == "u3", None, col("user").crc32() - 2**31)), "4us"
        ),
        Default(),
        discarding("20us", timestamp=TimestampCombiner.LATEST),
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


def build(
    where: WindowFn, when: Trigger, how: How, bound: int = 6, aggregations: tuple[Aggregation, ...] = ()
) -> Pipeline:
    columns = {"user": DataType.STRING, "value": DataType.INT, "at": DataType.TIMESTAMP, "bot": DataType.BOOL}
    columns |= {"share": DataType.FLOAT, "word": DataType.STRING}
    return Pipeline(
        name="differential",
        input=Input(
            FileSource("none", "json", columns),
            EventTime(col("at"), BoundedOutOfOrderness(timedelta(microseconds=bound))),
        ),
        key={"user": col("user")},
        filter=col("bot").is_null(),
        where=where,
        when=when,
        how=how,
        what=WHAT,
        allow_finishing=True,
        then=aggregations,
    )


def random_epochs(seed: int, epochs: int = 4, keys: int = 60) -> list[Epoch]:
    """Elements around a moving front of event time: some early, some within the bound, some beyond any lateness."""
    rng = random.Random(seed)
    front, clock, result = 0, 0, []
    for number in range(epochs):
        front += rng.choice([3, 8, 14])
        clock += rng.choice([0, 5, 40])
        records = [random_record(rng, key, front) for key in range(keys) for _ in range(rng.choice([0, 1, 1, 2, 4]))]
        rng.shuffle(records)
        signals = [signal for signal in SIGNALS if rng.random() < 0.4]
        if number == 2 and rng.random() < 0.5:
            records, signals = [], [*signals, Signal("go")]
        result.append(Epoch(Instant(clock), records, number == epochs - 1 and rng.random() < 0.5, signals))
    return result


def random_record(rng: random.Random, key: int, front: int) -> dict[str, Any]:
    lag = rng.choice([0, 1, 2, 4, 6, 9, 15, 30, 45])
    record: dict[str, Any] = {"user": f"u{key}", "at": Instant(front - lag)}
    record["value"] = rng.choice([None, *range(-5, 50, 3)])
    record["share"] = rng.choice([None, *(number / 4 for number in range(12))])
    record["word"] = rng.choice([None, "3", " 4", "7", "x"])
    if rng.random() < 0.1:
        record["bot"] = True
    return record


def downstream(when: Trigger, how: How) -> Aggregation:
    return Aggregation(
        key={"group": col("user").crc32() % 5},
        where=FixedWindows("40us"),
        when=when,
        how=how,
        what={"panes": count(), "total": col("total").sum(), "most": col("elements").max()},
    )


GROWTH = AfterPattern("ab*c", {"a": col("total") < 20, "b": col("elements") == 1, "c": col("total") > 20})
CHAINS = {
    "elided": build(
        FixedWindows("10us"),
        AfterWatermark(AfterCount(1), AfterCount(1)),
        retracting("25us", elide_unchanged=True, timestamp=TimestampCombiner.LATEST),
        aggregations=(
            replace(
                downstream(Repeatedly(AfterCount(2)), retracting("25us", elide_unchanged=True)),
                what={"most": col("elements").max()},
            ),
        ),
    ),
    "kept": build(
        FixedWindows("5us"),
        AfterWatermark(AfterCount(2), AfterCount(1)),
        discarding("25us"),
        aggregations=(downstream(Repeatedly(AfterCount(3)), accumulating("25us", keep_last=4)),),
    ),
    "pattern": build(
        FixedWindows("10us"),
        AfterWatermark(AfterProcessingTime("5us"), AfterCount(1)),
        retracting("25us"),
        aggregations=(downstream(Repeatedly(GROWTH), accumulating("25us")),),
    ),
}
