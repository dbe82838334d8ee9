"""Every combiner equals the reference in operators: merged over epochs and sessions, with values withdrawn again."""

import math
import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from headrace import (
    AfterCount,
    AfterWatermark,
    Aggregate,
    Aggregation,
    DataType,
    FileSource,
    FixedWindows,
    Input,
    Pipeline,
    Sessions,
    col,
    count,
    retracting,
)
from headrace.model.event_time import BoundedOutOfOrderness, EventTime
from headrace.model.time import Instant
from headrace.model.windows import WindowFn
from headrace_lab.reference import Epoch, EpochResult, run_pipeline
from headrace_lab.reference.elements import Pane
from tests.kernel.differential import EpochOutcome, run_on_kernel
from tests.own_combiners import Bins, Longest, Nearness, Span, UntilCombiner
from tests.panes import same

pytestmark = pytest.mark.slow

EARLY = AfterWatermark(early=AfterCount(1), late=AfterCount(1))


def every(whole: str, fraction: str, text: str) -> dict[str, Aggregate]:
    """Every combiner over an int, a float and a string column."""
    w, x, s = col(whole), col(fraction), col(text)
    return {
        "n": count(),
        "known": w.count(),
        "total": w.sum(),
        "weight": x.sum(),
        "low": w.min(),
        "high": s.max(),
        "mean": w.mean(),
        "spread": w.variance(),
        "spread_float": x.variance(),
        "first": s.first(),
        "last": w.last(),
        "all": w.collect(),
        "names": s.collect(),
        "best": w.top(2),
        "different": s.distinct(),
        "about": s.approx_distinct(),
        "median": w.quantile(0.5),
        "p90": x.quantile(0.9),
        "both quantiles": w.quantiles([0.5, 1.0]),
        "heaviest": s.max_by(x),
        "lightest": w.min_by(x),
        "early names": s.list_agg(2, w),
        "most often": s.mode(),
        "weights": s.map_agg(x),
        "all positive": (w > 0).bool_and(),
        "one positive": (w > 0).bool_or(),
        "pairs": w.pairs(s, "both"),
        "span": w.combine(Span()),
        "bins": w.combine(Bins(4)),
        "nearness": x.combine(Nearness()),
        "longest": s.combine(Longest()),
    }


def pipeline(
    where: WindowFn, what: dict[str, Aggregate], *aggregations: Aggregation, keep_last: int | None = None
) -> Pipeline:
    columns = {"user": DataType.STRING, "at": DataType.TIMESTAMP, "v": DataType.INT, "x": DataType.FLOAT}
    return Pipeline(
        name="combiners",
        input=Input(
            FileSource("none", "json", {**columns, "s": DataType.STRING}),
            EventTime(col("at"), BoundedOutOfOrderness(timedelta(microseconds=8))),
        ),
        key={"user": col("user")},
        where=where,
        when=EARLY,
        how=retracting("20us", keep_last=keep_last),
        what=what,
        then=aggregations,
    )


def epochs(seed: int) -> list[Epoch]:
    rng = random.Random(seed)
    made_epochs = []
    for number in range(5):
        records: list[dict[str, Any]] = []
        for _ in range(60):
            record: dict[str, Any] = {"user": f"u{rng.randint(0, 9)}", "at": Instant(number * 9 + rng.randint(0, 12))}
            record["v"] = rng.choice([None, 3, 3, 10**12 + rng.randint(0, 5), -7])
            record["x"] = rng.choice([None, 0.25, 1e9 + rng.random(), -3.5])
            record["s"] = rng.choice([None, "a", "bc", "ü"])
            records.append(record)
        made_epochs.append(Epoch(Instant(number), records))
    made_epochs.append(Epoch(Instant(9), (), is_last=True))
    return made_epochs


def assert_same(panes: list[Pane], expected: list[Pane]) -> None:
    def key(pane: Pane) -> Any:
        return pane.key, pane.window, pane.index, pane.is_retraction

    assert sorted(map(key, panes)) == sorted(map(key, expected))
    for left, right in zip(sorted(panes, key=key), sorted(expected, key=key), strict=True):
        different = [i for i, (a, b) in enumerate(zip(left.values, right.values, strict=True)) if not same(a, b, 1e-6)]
        assert not different, (left, right, different)


def assert_all_same(outcomes: Sequence[EpochOutcome], expected: Sequence[EpochResult]) -> None:
    for ours, reference in zip(outcomes, expected, strict=True):
        assert_same(ours.panes, list(reference.panes))


STAGES = {
    "merged over epochs": pipeline(FixedWindows("10us"), every("v", "x", "s")),
    "of the last elements": pipeline(FixedWindows("20us"), every("v", "x", "s"), keep_last=3),
    "merged over sessions": pipeline(Sessions("2us"), every("v", "x", "s")),
    "withdrawn": pipeline(
        FixedWindows("5us"),
        {"v": col("v").sum(), "x": col("x").sum(), "s": col("s").max()},
        Aggregation(
            key={"s": col("s")},
            where=FixedWindows("20us"),
            when=EARLY,
            how=retracting("40us"),
            what=every("v", "x", "user"),
        ),
    ),
}


@pytest.mark.parametrize("name", STAGES)
def test_combiners_equal_the_reference(name: str) -> None:
    tested_pipeline, given_epochs = STAGES[name], epochs(len(name))
    expected = run_pipeline(tested_pipeline, given_epochs)
    results = run_on_kernel(tested_pipeline, given_epochs)
    assert sum(len(result.panes) for result in expected) > 50
    assert_all_same(results, expected)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_can_be_withdrawn(value: float) -> None:
    what = {"x": col("x").sum(), "v": col("v").max()}
    totals = {"weight": col("x").sum(), "mean": col("x").mean()}
    tested_pipeline = pipeline(
        FixedWindows("5us"),
        what,
        Aggregation(key={"v": col("v")}, where=FixedWindows("20us"), when=EARLY, how=retracting("40us"), what=totals),
    )

    def element(user: str, x: float, v: int) -> dict[str, Any]:
        return {"user": user, "at": Instant(1), "x": x, "v": v, "s": None}

    # the second epoch withdraws the pane of u, which goes on in another group
    rounds = [[element("u", value, 1), element("w", 2.5, 1)], [element("u", 1.0, 2)], [element("w", 4.0, 1)]]
    given_epochs = [Epoch(Instant(number), records) for number, records in enumerate(rounds)]
    expected = run_pipeline(tested_pipeline, given_epochs)
    assert [pane.values for pane in expected[2].panes if not pane.is_retraction] == [(6.5, 6.5)]
    results = run_on_kernel(tested_pipeline, given_epochs)
    assert_all_same(results[2:], expected[2:])


def test_timestamps_are_instants_to_a_users_combiner() -> None:
    tested_pipeline = pipeline(FixedWindows("200us"), {"until": col("at").combine(UntilCombiner(100))})
    given_epochs = [Epoch(Instant(0), [{"user": "u", "at": Instant(time)} for time in (7, 40, 12)], is_last=True)]
    assert [pane.values for pane in run_on_kernel(tested_pipeline, given_epochs)[0].panes] == [(60,)]
