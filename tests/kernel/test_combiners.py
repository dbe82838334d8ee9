"""Every combiner equals the reference in operators: merged over epochs and sessions, with values withdrawn again."""

import math
import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from headrace.model.panes import Pane
from headrace.model.time import Instant
from headrace.pipeline import (
    AfterCount,
    AfterWatermark,
    Aggregate,
    Aggregation,
    BoundedOutOfOrderness,
    DataType,
    EventTime,
    FileFormat,
    FileSource,
    FixedWindows,
    Pipeline,
    Sessions,
    WindowFn,
    approx_distinct_of,
    col,
    collect_of,
    count,
    custom_of,
    distinct_of,
    first_of,
    last_of,
    max_of,
    mean_of,
    min_of,
    pairs_of,
    quantile_of,
    retracting,
    sum_of,
    top_of,
    variance_of,
)
from headrace.reference import Epoch, EpochResult, run_pipeline
from tests.kernel.differential import Found, run_on_kernel
from tests.own_combiners import Bins, Longest, Nearness, Span, Until
from tests.panes import same

pytestmark = pytest.mark.slow

EARLY = AfterWatermark(early=AfterCount(1), late=AfterCount(1))


def every(whole: str, fraction: str, text: str) -> dict[str, Aggregate]:
    """Every combiner over an int, a float and a string column."""
    w, x, s = col(whole), col(fraction), col(text)
    return {
        "n": count(),
        "known": count(w),
        "total": sum_of(w),
        "weight": sum_of(x),
        "low": min_of(w),
        "high": max_of(s),
        "mean": mean_of(w),
        "spread": variance_of(w),
        "spread_float": variance_of(x),
        "first": first_of(s),
        "last": last_of(w),
        "all": collect_of(w),
        "names": collect_of(s),
        "best": top_of(w, 2),
        "different": distinct_of(s),
        "about": approx_distinct_of(s),
        "median": quantile_of(w, 0.5),
        "p90": quantile_of(x, 0.9),
        "pairs": pairs_of(w, s, "both"),
        "span": custom_of(Span(), w),
        "bins": custom_of(Bins(4), w),
        "nearness": custom_of(Nearness(), x),
        "longest": custom_of(Longest(), s),
    }


def pipeline(where: WindowFn, what: dict[str, Aggregate], *then: Aggregation, keep_last: int | None = None) -> Pipeline:
    columns = {"user": DataType.STRING, "at": DataType.TIMESTAMP, "v": DataType.INT, "x": DataType.FLOAT}
    return Pipeline(
        name="combiners",
        source=FileSource("none", FileFormat.JSON, {**columns, "s": DataType.STRING}),
        event_time=EventTime(col("at"), BoundedOutOfOrderness(timedelta(microseconds=8))),
        key={"user": col("user")},
        where=where,
        when=EARLY,
        how=retracting(20, keep_last=keep_last),
        what=what,
        then=then,
    )


def epochs(seed: int) -> list[Epoch]:
    rng = random.Random(seed)
    made = []
    for number in range(5):
        records: list[dict[str, Any]] = []
        for _ in range(60):
            record: dict[str, Any] = {"user": f"u{rng.randint(0, 9)}", "at": Instant(number * 9 + rng.randint(0, 12))}
            record["v"] = rng.choice([None, 3, 3, 10**12 + rng.randint(0, 5), -7])
            record["x"] = rng.choice([None, 0.25, 1e9 + rng.random(), -3.5])
            record["s"] = rng.choice([None, "a", "bc", "ü"])
            records.append(record)
        made.append(Epoch(Instant(number), records))
    made.append(Epoch(Instant(9), (), is_last=True))
    return made


def assert_same(found: list[Pane], expected: list[Pane]) -> None:
    def key(pane: Pane) -> Any:
        return pane.key, pane.window, pane.index, pane.is_retraction

    assert sorted(map(key, found)) == sorted(map(key, expected))
    for left, right in zip(sorted(found, key=key), sorted(expected, key=key), strict=True):
        different = [i for i, (a, b) in enumerate(zip(left.values, right.values, strict=True)) if not same(a, b, 1e-6)]
        assert not different, (left, right, different)


def assert_all_same(found: Sequence[Found], expected: Sequence[EpochResult]) -> None:
    for ours, reference in zip(found, expected, strict=True):
        assert_same(ours.panes, list(reference.panes))


STAGES = {
    "merged over epochs": pipeline(FixedWindows(10), every("v", "x", "s")),
    "of the last elements": pipeline(FixedWindows(20), every("v", "x", "s"), keep_last=3),
    "merged over sessions": pipeline(Sessions(2), every("v", "x", "s")),
    "withdrawn": pipeline(
        FixedWindows(5),
        {"v": sum_of(col("v")), "x": sum_of(col("x")), "s": max_of(col("s"))},
        Aggregation({"s": col("s")}, FixedWindows(20), EARLY, retracting(40), every("v", "x", "user")),
    ),
}


@pytest.mark.parametrize("name", STAGES)
def test_combiners_equal_the_reference(name: str) -> None:
    tested, given = STAGES[name], epochs(len(name))
    expected = run_pipeline(tested, given)
    found = run_on_kernel(tested, given)
    assert sum(len(result.panes) for result in expected) > 50
    assert_all_same(found, expected)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_can_be_withdrawn(value: float) -> None:
    what = {"x": sum_of(col("x")), "v": max_of(col("v"))}
    totals = {"weight": sum_of(col("x")), "mean": mean_of(col("x"))}
    tested = pipeline(
        FixedWindows(5), what, Aggregation({"v": col("v")}, FixedWindows(20), EARLY, retracting(40), totals)
    )

    def element(user: str, x: float, v: int) -> dict[str, Any]:
        return {"user": user, "at": Instant(1), "x": x, "v": v, "s": None}

    # the second epoch withdraws the pane of u, which goes on in another group
    rounds = [[element("u", value, 1), element("w", 2.5, 1)], [element("u", 1.0, 2)], [element("w", 4.0, 1)]]
    given = [Epoch(Instant(number), records) for number, records in enumerate(rounds)]
    expected = run_pipeline(tested, given)
    assert [pane.values for pane in expected[2].panes if not pane.is_retraction] == [(6.5, 6.5)]
    found = run_on_kernel(tested, given)
    assert_all_same(found[2:], expected[2:])


def test_timestamps_are_instants_to_a_users_combiner() -> None:
    tested = pipeline(FixedWindows(200), {"until": custom_of(Until(100), col("at"))})
    given = [Epoch(Instant(0), [{"user": "u", "at": Instant(at)} for at in (7, 40, 12)], is_last=True)]
    assert [pane.values for pane in run_on_kernel(tested, given)[0].panes] == [(60,)]
