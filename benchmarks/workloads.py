"""What the benchmarks compute, in one place for both sides: numbers first, then the pipelines.

Results come out when they change, as in Structured Streaming's update mode: ours does not repeat an unchanged one
when its window ends (``Firing.IF_NON_EMPTY``).

Event time lags by ``BOUND`` and windows live on for ``LATENESS``; so nothing of the data is dropped, and what arrives
ten minutes late refines results that were out already. Structured Streaming has one number for both: its watermark
delay is their sum, so that both sides keep a window for as long and end with the same results.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum
from pathlib import Path

from headrace.model.accumulation import How
from headrace.pipeline import (
    AfterCount,
    AfterWatermark,
    BoundedOutOfOrderness,
    DataType,
    Default,
    EventTime,
    FileFormat,
    FileSource,
    Firing,
    FixedWindows,
    Pipeline,
    Sessions,
    SlidingWindows,
    accumulating,
    col,
    count,
    lit,
    retracting,
    sum_of,
)
from headrace.pipeline.graph import Aggregation

BOUND = timedelta(seconds=10)
LATENESS = timedelta(minutes=15)
SIZE = timedelta(minutes=10)
PERIOD = timedelta(minutes=5)
GAP = timedelta(minutes=10)
BUSY = 5
"""Users with more payments than this in a window are counted by ``two_stage``."""


class Workload(StrEnum):
    """What is computed per user: sums per fixed window, per sliding window, per session; or, per window, busy users."""

    TUMBLING = "tumbling"
    SLIDING = "sliding"
    SESSIONS = "sessions"
    TWO_STAGE = "two_stage"
    LIVE_KEYS = "live_keys"


class Side(StrEnum):
    """Who computes it."""

    OURS = "ours"
    STRUCTURED_STREAMING = "structured_streaming"
    SPARK_BATCH = "spark_batch"
    DUCKDB = "duckdb"

    @property
    def is_batch(self) -> bool:
        """It takes all files as one input, and gives one result per window."""
        return self in (Side.SPARK_BATCH, Side.DUCKDB)


RESULTS: Mapping[Workload, tuple[str, ...]] = {
    Workload.TWO_STAGE: ("window_start", "window_end", "users"),
    **{
        workload: ("user", "window_start", "window_end", "payments", "amount")
        for workload in Workload
        if workload is not Workload.TWO_STAGE
    },
}
"""Columns of the results by which both sides are compared."""

_EARLY_AND_LATE = AfterWatermark(early=AfterCount(1), late=AfterCount(1))


def pipeline(workload: Workload, against: Side, source: Path) -> Pipeline:
    """Our pipeline over the Parquet files of a folder.

    Against Structured Streaming every epoch gives early panes of what it touched, which retract their predecessors for
    sessions. Against a query over all files, which gives one result per window, so does the pipeline.
    """
    made = _PIPELINES[workload](source)
    if not against.is_batch:
        return made
    return replace(made, when=Default(), then=tuple(replace(stage, when=Default()) for stage in made.then))


def _updating(how: Callable[..., How], lateness: timedelta = LATENESS) -> How:
    """Results when they change, and only then."""
    return how(allowed_lateness=lateness, on_time=Firing.IF_NON_EMPTY)


def _fixed(source: Path) -> Pipeline:
    return Pipeline(
        name="benchmark",
        source=FileSource(
            f"file://{source}",
            FileFormat.PARQUET,
            {"user": DataType.INT, "at": DataType.TIMESTAMP, "amount": DataType.INT},
            max_files=1,
            max_bytes=2**40,
        ),
        event_time=EventTime(col("at"), BoundedOutOfOrderness(BOUND)),
        key={"user": col("user")},
        where=FixedWindows(SIZE),
        when=_EARLY_AND_LATE,
        how=_updating(accumulating),
        what={"payments": count(), "amount": sum_of(col("amount"))},
    )


def _sliding(source: Path) -> Pipeline:
    return replace(_fixed(source), where=SlidingWindows(SIZE, PERIOD))


def _sessions(source: Path) -> Pipeline:
    return replace(_fixed(source), where=Sessions(GAP), how=_updating(retracting))


def _two_stage(source: Path) -> Pipeline:
    busy = Aggregation(
        key={"all": lit("all")},
        where=FixedWindows(SIZE),
        when=_EARLY_AND_LATE,
        how=_updating(accumulating),
        what={"users": count()},
        filter=col("payments") > lit(BUSY),
    )
    return replace(_fixed(source), how=_updating(retracting), then=(busy,))


def _live_keys(source: Path) -> Pipeline:
    day = timedelta(days=1)
    return replace(_fixed(source), where=FixedWindows(day), how=_updating(accumulating, day))


_PIPELINES: Mapping[Workload, Callable[[Path], Pipeline]] = {
    Workload.TUMBLING: _fixed,
    Workload.SLIDING: _sliding,
    Workload.SESSIONS: _sessions,
    Workload.TWO_STAGE: _two_stage,
    Workload.LIVE_KEYS: _live_keys,
}
