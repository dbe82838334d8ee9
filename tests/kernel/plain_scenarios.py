"""Pipelines of plain windows under counts and clocks, and random input for them: elements, keys, cuts and clocks."""

import random
from datetime import timedelta
from typing import Any

from headrace import (
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
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
from headrace.model.accumulation import Firing
from headrace.model.event_time import BoundedOutOfOrderness, EventTime
from headrace.model.time import Instant
from headrace.model.windows import WindowFn
from headrace_lab.reference import Epoch

EARLY_LATE = AfterWatermark(early=AfterCount(2), late=AfterCount(1))
SCENARIOS: dict[str, tuple[WindowFn, Trigger, How]] = {
    "fixed_retracting": (FixedWindows("10us", "3us"), EARLY_LATE, retracting("25us")),
    "fixed_eliding": (FixedWindows("10us", "3us"), EARLY_LATE, retracting("25us", elide_unchanged=True)),
    "fixed_discarding_default": (FixedWindows("7us"), Default(), discarding("10us", closing=Firing.ALWAYS)),
    "fixed_finishing": (FixedWindows("12us"), AfterCount(2), accumulating("30us")),
    "fixed_processing_time": (
        FixedWindows("15us"),
        AfterWatermark(early=AfterProcessingTime("30us", align="20us"), late=AfterProcessingTime("10us")),
        discarding("20us", on_time=Firing.IF_NON_EMPTY),
    ),
    "sliding_accumulating": (
        SlidingWindows("12us", "5us", "1us"),
        AfterWatermark(early=AfterCount(3)),
        accumulating("0s"),
    ),
    "sliding_gaps": (SlidingWindows("3us", "5us"), AfterWatermark(late=AfterCount(2)), retracting("15us")),
    "sessions_retracting": (Sessions("6us"), EARLY_LATE, retracting("20us")),
    "sessions_finishing": (Sessions("5us"), AfterWatermark(early=AfterCount(2)), accumulating("25us")),
    "sessions_touching": (Sessions("4us", touching_merges=True), Default(), discarding("8us")),
    "sessions_count": (Sessions("6us"), AfterCount(3), retracting("15us")),
    "sessions_processing_time": (Sessions("6us"), Repeatedly(AfterProcessingTime("25us")), retracting("10us")),
    "global_count": (GlobalWindows(), Repeatedly(AfterCount(4)), discarding("0s")),
}


def build(where: WindowFn, when: Trigger, how: How) -> Pipeline:
    value = col("value")
    return Pipeline(
        name="differential",
        input=Input(
            FileSource(
                "none",
                "json",
                {"user": DataType.STRING, "value": DataType.INT, "at": DataType.TIMESTAMP, "bot": DataType.BOOL},
            ),
            EventTime(col("at"), BoundedOutOfOrderness(timedelta(microseconds=6))),
        ),
        key={"user": col("user")},
        filter=col("bot").is_null(),
        where=where,
        when=when,
        how=how,
        what={
            "elements": count(),
            "total": value.sum(),
            "least": value.min(),
            "most": value.max(),
            "mean": value.mean(),
        },
        allow_finishing=True,
    )


def random_epochs(seed: int, epochs: int = 6, keys: int = 40) -> list[Epoch]:
    """Elements around a moving front of event time: some early, some within the bound, some beyond any lateness."""
    rng = random.Random(seed)
    front, clock, result = 0, 0, []
    for _ in range(epochs):
        front += rng.choice([0, 3, 8, 14])
        clock += rng.choice([0, 5, 12, 40])
        records: list[dict[str, Any]] = []
        for key in range(keys):
            for _ in range(rng.choice([0, 0, 1, 1, 2, 4])):
                lag = rng.choice([0, 1, 2, 4, 6, 9, 15, 30, 45])
                record: dict[str, Any] = {"user": f"u{key}", "at": Instant(front - lag), "value": rng.randint(-5, 50)}
                if rng.random() < 0.1:
                    record["bot"] = True
                if rng.random() < 0.1:
                    record["value"] = None
                if rng.random() < 0.03:
                    record["user"] = None
                records.append(record)
        rng.shuffle(records)
        result.append(Epoch(Instant(clock), records if rng.random() < 0.9 else []))
    return result
