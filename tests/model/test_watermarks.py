"""Watermark strategies as functions of what is known of splits (semantics 9.2, 12.11)."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import PipelineError
from headrace.model.event_time import (
    LAG_BUCKETS,
    BoundedOutOfOrderness,
    Ingestion,
    Monotonic,
    Punctuated,
    Split,
    SplitFacts,
    SplitStrategy,
    update_splits,
)
from headrace.model.expressions.expr import col
from headrace.model.expressions.typing import is_same_expression
from headrace.model.time import MIN_INSTANT, NEVER, Duration, Instant
from headrace_lab.reference.source_clock import lag_bucket
from tests.reference.strategies import examples


def split(mark: int | None, time: int = 0, lags: dict[int, int] | None = None) -> Split:
    return Split(None if mark is None else Instant(mark), Instant(time), Instant(time), lags or {})


def watermark_of(strategy: SplitStrategy, now: int, previous: int = MIN_INSTANT, **splits: Split) -> Instant:
    return strategy.watermark_after(splits, Instant(now), Instant(previous))


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [(BoundedOutOfOrderness("5us"), 35), (Monotonic(), 40), (Punctuated(col("until")), 40)],
)
def test_the_slowest_split_counts_and_nothing_goes_back(strategy: SplitStrategy, expected: int) -> None:
    assert watermark_of(strategy, 0, x=split(70), y=split(40)) == expected
    assert watermark_of(strategy, 0, 60, x=split(70), y=split(40)) == 60
    assert watermark_of(strategy, 0) == MIN_INSTANT
    assert watermark_of(strategy, 0, 7) == 7
    assert watermark_of(strategy, 0, x=split(70), y=split(None)) == MIN_INSTANT, "y has said nothing yet"
    assert strategy.slowest({"x": split(70), "y": split(40)}, Instant(0)) == "y"
    assert strategy.slowest({}, Instant(0)) is None


@pytest.mark.parametrize(
    "strategy",
    [BoundedOutOfOrderness("0s", "10us"), Monotonic("10us"), Punctuated(col("until"), timedelta(microseconds=10))],
)
def test_a_silent_split_is_left_out_until_it_speaks_again(strategy: SplitStrategy) -> None:
    splits = update_splits({}, {"x": SplitFacts(Instant(70)), "y": SplitFacts(Instant(40))}, Instant(100))
    splits = update_splits(splits, {"x": SplitFacts(Instant(80))}, Instant(105))
    assert strategy.idle_deadline(splits, Instant(105)) == 110
    assert [strategy.is_idle(splits, Instant(time)) for time in (110, 114, 115)] == [False, False, True]
    assert not strategy.is_idle({}, Instant(10**9)), "what never spoke is not idle"
    assert (watermark_of(strategy, 109, **splits), strategy.slowest(splits, Instant(109))) == (40, "y")
    assert (watermark_of(strategy, 110, **splits), strategy.slowest(splits, Instant(110))) == (80, "x")
    assert strategy.idle_deadline(splits, Instant(110)) == 115
    assert watermark_of(strategy, 115, 80, **splits) == 80, "nobody speaks: it stays"
    assert strategy.idle_deadline(splits, Instant(115)) == NEVER
    later_splits = update_splits(splits, {"y": SplitFacts(Instant(50))}, Instant(114))
    assert watermark_of(strategy, 114, 0, **later_splits) == 50
    assert watermark_of(strategy, 114, 80, **later_splits) == 80


def test_a_split_that_was_named_and_says_nothing_holds_the_watermark_back_until_it_is_idle() -> None:
    strategy = BoundedOutOfOrderness("0s", "10us")
    splits = update_splits({}, {"0": SplitFacts(Instant(50)), "1": SplitFacts(None)}, Instant(100))
    assert strategy.watermark_after(splits, Instant(100), MIN_INSTANT) == MIN_INSTANT
    assert strategy.slowest(splits, Instant(100)) == "1"
    assert strategy.idle_deadline(splits, Instant(100)) == 110
    splits = update_splits(splits, {"0": SplitFacts(Instant(60))}, Instant(110))
    assert strategy.watermark_after(splits, Instant(110), MIN_INSTANT) == 60


def test_no_timeout_means_never_idle() -> None:
    assert BoundedOutOfOrderness("5us").idle_deadline({"x": split(1)}, Instant(0)) == NEVER
    assert watermark_of(Monotonic(), 10**15, x=split(1), y=split(2)) == 1


def test_what_is_heard_of_a_split_adds_up() -> None:
    splits = update_splits({}, {"x": SplitFacts(Instant(70), {0: 1})}, Instant(1))
    splits = update_splits(splits, {"x": SplitFacts(Instant(60), {0: 2, 5: 1}), "y": SplitFacts(None)}, Instant(2))
    assert splits == {
        "x": Split(Instant(70), Instant(2), Instant(1), {0: 3, 5: 1}),
        "y": Split(None, Instant(2), Instant(2)),
    }
    assert update_splits(splits, {"x": SplitFacts(Instant(71))}, Instant(3))["x"].since == 3
    assert update_splits(splits, {"x": SplitFacts(None)}, Instant(3))["x"] == Split(
        Instant(70), Instant(3), Instant(1), {0: 3, 5: 1}
    )


def test_arrival_is_a_perfect_watermark() -> None:
    assert Ingestion().watermark_after({}, Instant(50), MIN_INSTANT) == 50
    assert Ingestion().watermark_after({}, Instant(40), Instant(50)) == 50


def test_what_the_mark_is() -> None:
    assert is_same_expression(BoundedOutOfOrderness("5us").mark(col("at")), col("at"))
    assert is_same_expression(Monotonic().mark(col("at")), col("at"))
    assert is_same_expression(Punctuated(col("until")).mark(col("at")), col("until"))


def percentile(q: float, bound: int, lags: Sequence[int], mark: int = 0) -> int:
    strategy = BoundedOutOfOrderness(Duration(bound))
    counts: dict[int, int] = {}
    for lag in lags:
        bucket = lag_bucket(strategy, lag)
        counts[bucket] = counts.get(bucket, 0) + 1
    return strategy.percentile_after(q, {"x": split(mark, 0, counts)}, Instant(0), MIN_INSTANT)


def test_the_fastest_part_of_the_input_has_a_watermark_of_its_own() -> None:
    lags = [0] * 80 + [250] * 15 + [999] * 4 + [5000]
    assert percentile(80, 1000, lags) == -10
    assert percentile(81, 1000, lags) == -260
    assert percentile(95, 1000, lags) == -260
    assert percentile(99, 1000, lags) == -1000
    assert percentile(100, 1000, lags) == -1000
    assert percentile(50, 1000, []) == -1000, "nothing is known of lags"
    assert percentile(50, 0, [0, 3]) == 0


def test_percentile_watermarks_take_the_slowest_split_and_do_not_go_back() -> None:
    strategy = BoundedOutOfOrderness("100us", idle_timeout="10us")
    splits = {"x": split(70, 0, {0: 9, LAG_BUCKETS: 1}), "y": split(40, 5, {50: 1})}
    assert strategy.percentile_after(90, splits, Instant(0), MIN_INSTANT) == 40 - 51
    assert strategy.percentile_after(90, splits, Instant(0), Instant(50)) == 50
    assert strategy.percentile_after(90, {**splits, "y": split(None)}, Instant(0), MIN_INSTANT) == MIN_INSTANT
    assert strategy.percentile_after(90, {**splits, "y": split(40, -10)}, Instant(0), MIN_INSTANT) == 69


@examples(200)
@given(st.integers(0, 5000), st.floats(0.5, 100), st.lists(st.integers(-10, 6000), max_size=20))
def test_a_percentile_watermark_lets_its_part_pass_and_is_never_behind_the_watermark(
    bound: int, q: float, lags: list[int]
) -> None:
    percentile_watermark = percentile(q, bound, lags)
    assert -bound <= percentile_watermark <= 0
    passed_count = sum(-max(lag, 0) >= percentile_watermark for lag in lags)
    assert passed_count * 100 >= q * len(lags) or percentile_watermark == -bound


@pytest.mark.parametrize(
    "build",
    [
        lambda: BoundedOutOfOrderness("-1us"),
        lambda: Monotonic("0s"),
        lambda: Punctuated(col("x"), timedelta(seconds=-1)),
    ],
)
def test_what_cannot_be_meant_is_refused(build: object) -> None:
    with pytest.raises(PipelineError, match="must"):
        build()  # type: ignore[operator]
