"""Pipelines of plain windows under counts and clocks, and random input for them: elements, keys, cuts and clocks."""

import random
from datetime import timedelta
from typing import Any

from headrace.model.time import Instant
from headrace.pipeline import (
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    BoundedOutOfOrderness,
    DataType,
    Default,
    EventTime,
    FileFormat,
    FileSource,
    Firing,
    FixedWindows,
    GlobalWindows,
    How,
    Pipeline,
    Repeatedly,
    Sessions,
    SlidingWindows,
    Trigger,
    WindowFn,
    accumulating,
    col,
    count,
    discarding,
    max_of,
    mean_of,
    min_of,
    retracting,
    sum_of,
)
from headrace.reference import Epoch

EARLY_LATE = AfterWatermark(early=AfterCount(2), late=AfterCount(1))
SCENARIOS: dict[str, tuple[WindowFn, Trigger, How]] = {
    "fixed_retracting": (FixedWindows(10, 3), EARLY_LATE, retracting(25)),
    "fixed_eliding": (FixedWindows(10, 3), EARLY_LATE, retracting(25, elide_unchanged=True)),
    "fixed_discarding_default": (FixedWindows(7), Default(), discarding(10, closing=Firing.ALWAYS)),
    "fixed_finishing": (FixedWindows(12), AfterCount(2), accumulating(30)),
    "fixed_processing_time": (
        FixedWindows(15),
        AfterWatermark(early=AfterProcessingTime(30, align=20), late=AfterProcessingTime(10)),
        discarding(20, on_time=Firing.IF_NON_EMPTY),
    ),
    "sliding_accumulating": (SlidingWindows(12, 5, 1), AfterWatermark(early=AfterCount(3)), accumulating(0)),
    "sliding_gaps": (SlidingWindows(3, 5), AfterWatermark(late=AfterCount(2)), retracting(15)),
    "sessions_retracting": (Sessions(6), EARLY_LATE, retracting(20)),
    "sessions_finishing": (Sessions(5), AfterWatermark(early=AfterCount(2)), accumulating(25)),
    "sessions_touching": (Sessions(4, touching_merges=True), Default(), discarding(8)),
    "sessions_count": (Sessions(6), AfterCount(3), retracting(15)),
    "sessions_processing_time": (Sessions(6), Repeatedly(AfterProcessingTime(25)), retracting(10)),
    "global_count": (GlobalWindows(), Repeatedly(AfterCount(4)), discarding(0)),
}


def build(where: WindowFn, when: Trigger, how: How) -> Pipeline:
    value = col("value")
    return Pipeline(
        name="differential",
        source=FileSource(
            "none",
            FileFormat.JSON,
            {"user": DataType.STRING, "value": DataType.INT, "at": DataType.TIMESTAMP, "bot": DataType.BOOL},
        ),
        event_time=EventTime(col("at"), BoundedOutOfOrderness(timedelta(microseconds=6))),
        key={"user": col("user")},
        filter=col("bot").is_null(),
        where=where,
        when=when,
        how=how,
        what={
            "elements": count(),
            "total": sum_of(value),
            "least": min_of(value),
            "most": max_of(value),
            "mean": mean_of(value),
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
