"""Payments per user and day: a user's file with a pipeline, as ``headrace run`` takes it. The benchmarks' pipelines are
made of it.
"""

from datetime import timedelta

from headrace.pipeline import (
    AfterCount,
    AfterWatermark,
    BoundedOutOfOrderness,
    DataType,
    EventTime,
    FileFormat,
    FileSource,
    Firing,
    FixedWindows,
    Pipeline,
    accumulating,
    col,
    count,
    sum_of,
)

DAY = timedelta(days=1)

PAYMENTS = Pipeline(
    name="payments",
    source=FileSource(
        "landing",
        FileFormat.PARQUET,
        {"user": DataType.INT, "at": DataType.TIMESTAMP, "amount": DataType.INT},
        max_files=1,
        max_bytes=2**40,
    ),
    event_time=EventTime(col("at"), BoundedOutOfOrderness(timedelta(seconds=10))),
    key={"user": col("user")},
    where=FixedWindows(DAY),
    when=AfterWatermark(early=AfterCount(1), late=AfterCount(1)),
    how=accumulating(allowed_lateness=DAY, on_time=Firing.IF_NON_EMPTY),
    what={"payments": count(), "amount": sum_of(col("amount"))},
)
