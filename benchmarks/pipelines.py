"""The workloads as pipelines of ours.

Results come out when they change, as in Structured Streaming's update mode: ours does not repeat an unchanged one
when its window ends (``on_time="if_non_empty"``).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from benchmarks.payments import PAYMENTS
from benchmarks.workloads import (
    BEFORE,
    BOUND,
    BUSY,
    GAP,
    GROUPS,
    JOINS,
    LATENESS,
    LEFT,
    PERIOD,
    REGIONS,
    RIGHT,
    SIZE,
    STAYING,
    Side,
    Workload,
)
from headrace import (
    Aggregation,
    Default,
    FixedWindows,
    How,
    Pipeline,
    Sessions,
    SlidingWindows,
    accumulating,
    as_of,
    col,
    count,
    lit,
    newest,
    parquet,
    retracting,
    within,
)


def pipeline(workload: Workload, against: Side, source: Path) -> Pipeline:
    """Our pipeline over the Parquet files of a folder.

    Against Structured Streaming every epoch gives early panes of what it touched, which retract their predecessors for
    sessions. Against a query over all files, which gives one result per window, so does the pipeline.
    """
    if workload in JOINS:
        return _joined(workload, source)
    made = _PIPELINES[workload](_reading(source))
    if not against.is_batch:
        return made
    return replace(made, when=Default(), then=tuple(replace(stage, when=Default()) for stage in made.then))


def _joined(workload: Workload, source: Path) -> Pipeline:
    """Payments with what their user paid before, as rows."""
    columns = {"id": int, "user": int, "at": datetime, "amount": int}
    left, right = (parquet(f"file://{source}/{side}", columns).event_time("at", bound=BOUND) for side in (LEFT, RIGHT))
    other, carried = right.named(RIGHT), {"before": "amount"}
    if workload is Workload.AS_OF:
        join = as_of(other, "user", columns=carried, lateness=STAYING)
    else:
        join = within(other, "user", between=(-BEFORE, "0s"), columns=carried, lateness=STAYING)
    return Pipeline("benchmark", left, join=[join], rows=["id", "amount", "before"])


def _reading(source: Path) -> Pipeline:
    """Payments of a folder per user and day."""
    files = replace(PAYMENTS.source, path=f"file://{source}")
    return replace(PAYMENTS, name="benchmark", input=files.event_time("at", bound=BOUND))


def _updating(how: Callable[..., How]) -> How:
    """Results when they change, and only then."""
    return how(allowed_lateness=LATENESS, on_time="if_non_empty")


def _fixed(daily: Pipeline) -> Pipeline:
    return replace(daily, where=FixedWindows(SIZE), how=_updating(accumulating))


def _sliding(daily: Pipeline) -> Pipeline:
    return replace(_fixed(daily), where=SlidingWindows(SIZE, PERIOD))


def _sessions(daily: Pipeline) -> Pipeline:
    return replace(_fixed(daily), where=Sessions(GAP), how=_updating(retracting))


def _two_stage(daily: Pipeline) -> Pipeline:
    busy = Aggregation(
        key={"all": lit("all")},
        where=FixedWindows(SIZE),
        when=daily.when,
        how=_updating(accumulating),
        what={"users": count()},
        filter=col("payments") > lit(BUSY),
    )
    return replace(_fixed(daily), how=_updating(retracting), then=(busy,))


def _shuffles(daily: Pipeline) -> Pipeline:
    groups, regions = (
        Aggregation(
            key={name: col(above) % lit(number)},
            where=FixedWindows(SIZE),
            when=Default(),
            how=_updating(retracting),
            what={"payments": col("payments").sum(), "amount": col("amount").sum()},
        )
        for name, above, number in (("group", "user", GROUPS), ("region", "group", REGIONS))
    )
    return replace(_fixed(daily), when=Default(), how=_updating(retracting), then=(groups, regions))


def _newest(daily: Pipeline) -> Pipeline:
    return Pipeline(daily.name, daily.input, rows=["amount"], key="user", take=newest(), executor=daily.executor)


_PIPELINES: Mapping[Workload, Callable[[Pipeline], Pipeline]] = {
    Workload.TUMBLING: _fixed,
    Workload.SLIDING: _sliding,
    Workload.SESSIONS: _sessions,
    Workload.TWO_STAGE: _two_stage,
    Workload.LIVE_KEYS: lambda daily: daily,
    Workload.SHUFFLES: _shuffles,
    Workload.NEWEST: _newest,
}
