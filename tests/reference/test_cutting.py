"""Whole pipelines: the same answer for every cut into epochs and every arrival order within the bound (12.2)."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import (
    AfterCount,
    AfterWatermark,
    DataType,
    Default,
    FileSource,
    FixedWindows,
    How,
    Input,
    Pipeline,
    Sessions,
    SlidingWindows,
    Trigger,
    accumulating,
    col,
    count,
    discarding,
    retracting,
)
from headrace.model.accumulation import Timing
from headrace.model.event_time import BoundedOutOfOrderness, EventTime
from headrace.model.time import MAX_INSTANT, Duration, Instant
from headrace.model.windows import Window, WindowFn
from headrace_lab.reference import Epoch, EpochResult, fold_current, run_pipeline
from tests.building import lengths
from tests.reference.strategies import examples

BOUND = Duration(15)
Row = dict[str, Any]


def pipeline(where: WindowFn, when: Trigger, how: How) -> Pipeline:
    return Pipeline(
        name="cutting",
        input=Input(
            FileSource("nowhere", "json", {"user": DataType.STRING, "at": DataType.TIMESTAMP, "amount": DataType.INT}),
            EventTime(col("at"), BoundedOutOfOrderness(BOUND)),
        ),
        key={"user": col("user")},
        where=where,
        when=when,
        how=how,
        what={
            "n": count(),
            "known": col("amount").count(),
            "total": col("amount").sum(),
            "low": col("amount").min(),
            "high": col("amount").max(),
            "mean": col("amount").mean(),
        },
        allow_finishing=True,
    )


def naive(values: Sequence[int | None]) -> tuple[Any, ...]:
    known_values = [v for v in values if v is not None]
    mean = sum(known_values) / len(known_values) if known_values else None
    return (
        len(values),
        len(known_values),
        sum(known_values),
        min(known_values, default=None),
        max(known_values, default=None),
        mean,
    )


@dataclass(frozen=True)
class Where:
    """A window function, and its windows over all rows of a key, computed without it."""

    where: WindowFn
    windows: Callable[[list[Row]], dict[Window, list[Row]]]


def _scan(width: int, starts_at: Callable[[int], bool]) -> Callable[[list[Row]], dict[Window, list[Row]]]:
    """Every start in a wide range is tried against every row."""

    def windows(rows: list[Row]) -> dict[Window, list[Row]]:
        rows_by_window = {}
        for start in filter(starts_at, range(-100, 200)):
            rows_inside = [row for row in rows if start <= row["at"] < start + width]
            if rows_inside:
                rows_by_window[Window(Instant(start), Instant(start + width))] = rows_inside
        return rows_by_window

    return windows


def _sessions(gap: int) -> Callable[[list[Row]], dict[Window, list[Row]]]:
    def windows(rows: list[Row]) -> dict[Window, list[Row]]:
        times = sorted(row["at"] for row in rows)
        cuts = [times[0], *(next_time for earlier, next_time in pairwise(times) if next_time - earlier >= gap)]
        rows_by_window = {}
        for start, following in zip(cuts, [*cuts[1:], 10**6], strict=True):
            rows_inside = [row for row in rows if start <= row["at"] < following]
            rows_by_window[Window(Instant(start), Instant(max(row["at"] for row in rows_inside) + gap))] = rows_inside
        return rows_by_window

    return windows


WHERES = {
    "fixed": Where(FixedWindows("10us", "3us"), _scan(10, lambda start: start % 10 == 3)),
    "sliding": Where(SlidingWindows("12us", "5us", "1us"), _scan(12, lambda start: start % 5 == 1)),
    "sliding with gaps": Where(SlidingWindows("3us", "7us"), _scan(3, lambda start: start % 7 == 0)),
    "sessions": Where(Sessions("8us"), _sessions(8)),
}


def expected(where: Where, rows: list[Row]) -> dict[tuple[tuple[str], Window], tuple[Any, ...]]:
    by_user: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_user[row["user"]].append(row)
    return {
        ((user,), window): naive([row["amount"] for row in rows])
        for user, own in by_user.items()
        for window, rows in where.windows(own).items()
    }


ROWS = st.fixed_dictionaries(
    {"user": st.sampled_from("ab"), "at": st.integers(-40, 80), "amount": st.none() | st.integers(-50, 50)}
)
DELAYED_ROWS = st.lists(st.tuples(ROWS, st.integers(0, BOUND)), max_size=12)


@st.composite
def arrivals(draw: st.DrawFn) -> list[Epoch]:
    """Rows that arrive at most BOUND late, cut into epochs anywhere; the last epoch ends the input."""
    rows = draw(DELAYED_ROWS)
    ordered_rows = [r for r, _ in sorted(rows, key=lambda pair: pair[0]["at"] + pair[1])]
    cuts = sorted(draw(st.lists(st.integers(0, len(ordered_rows)), max_size=6)))
    parts = [ordered_rows[a:b] for a, b in pairwise([0, *cuts, len(ordered_rows)])]
    return [Epoch(Instant(i), part, is_last=i == len(parts) - 1) for i, part in enumerate(parts)]


def rows_of(epochs: list[Epoch]) -> list[Row]:
    return [dict(row) for epoch in epochs for row in epoch.records]


def panes_of(results: list[EpochResult]) -> list[Any]:
    return [pane for result in results for pane in result.panes]


PURE = st.sampled_from([Default(), AfterWatermark(), AfterWatermark(late=AfterCount(1))])
HOWS = st.builds(
    lambda how, lateness: how(lateness),
    st.sampled_from([discarding, accumulating, retracting]),
    st.none() | lengths(0, 40),
)


@pytest.mark.parametrize("name", WHERES)
@examples(60)
@given(PURE, HOWS, arrivals())
def test_pure_watermark_panes_are_those_of_a_batch(name: str, when: Trigger, how: How, epochs: list[Epoch]) -> None:
    results = run_pipeline(pipeline(WHERES[name].where, when, how), epochs)
    panes = panes_of(results)
    assert all(pane.timing is Timing.ON_TIME and pane.index == 0 and not pane.is_retraction for pane in panes)
    assert {(pane.key, pane.window): pane.values for pane in panes} == expected(WHERES[name], rows_of(epochs))
    assert len(panes) == len({(pane.key, pane.window) for pane in panes})
    assert not any(result.drops for result in results)
    assert results[-1].watermark == MAX_INSTANT


@pytest.mark.parametrize("name", WHERES)
@examples(40)
@given(st.integers(1, 3), arrivals())
def test_current_is_the_batch_answer_with_early_panes_too(name: str, early: int, epochs: list[Epoch]) -> None:
    when = AfterWatermark(early=AfterCount(early), late=AfterCount(1))
    results = run_pipeline(pipeline(WHERES[name].where, when, retracting("40us")), epochs)
    current = {place: pane.values for place, pane in fold_current(panes_of(results)).items()}
    assert current == expected(WHERES[name], rows_of(epochs))
