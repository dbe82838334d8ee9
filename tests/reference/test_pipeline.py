"""``run_pipeline``: clocks inside an epoch, splits, filters, rejects, late drops, and the ``current`` view."""

from typing import Any

import pytest

from headrace import (
    AfterBytes,
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    DataType,
    FileSource,
    FixedWindows,
    Pipeline,
    Repeatedly,
    Sessions,
    coalesce,
    col,
    count,
    discarding,
    retracting,
)
from headrace.model.accumulation import Timing
from headrace.model.event_time import BoundedOutOfOrderness, EventTime
from headrace.model.time import MAX_INSTANT, MIN_INSTANT, Instant
from headrace.model.windows import Window
from headrace_lab.reference import DropCause, Epoch, IntegerOverflowError, element_size, fold_current, run_pipeline
from headrace_lab.reference.elements import Pane
from tests.building import pipeline

SCHEMA = {
    "user": DataType.STRING,
    "site": DataType.STRING,
    "at": DataType.TIMESTAMP,
    "amount": DataType.INT,
    "bot": DataType.BOOL,
}


def build(**changes: Any) -> Pipeline:
    parts: dict[str, Any] = {
        "name": "clicks",
        "source": FileSource("nowhere", "json", SCHEMA),
        "event_time": EventTime(col("at"), BoundedOutOfOrderness("5us")),
        "key": {"user": col("user")},
        "where": FixedWindows("10us"),
        "when": AfterWatermark(early=AfterCount(2), late=AfterCount(1)),
        "how": retracting("10us"),
        "what": {"n": count(), "total": col("amount").sum()},
    }
    return pipeline(**{**parts, **changes})


def row(time: int | None, amount: int | None = 1, user: str | None = "ann", **more: Any) -> dict[str, Any]:
    return {"at": time, "amount": amount, "user": user, **more}


def epoch(time: int, *records: dict[str, Any], is_last: bool = False) -> Epoch:
    return Epoch(Instant(time), records, is_last)


def brief(panes: tuple[Pane, ...]) -> list[tuple[Any, ...]]:
    return [(p.window.start, p.values, p.timing.value, "-" if p.is_retraction else "+") for p in panes]


def test_an_epoch_is_evaluated_under_the_watermark_that_the_last_one_left() -> None:
    first, second, third = run_pipeline(
        build(), [epoch(0, row(1), row(30)), epoch(1, row(2, 5)), epoch(2, row(3), is_last=True)]
    )
    assert first.watermark == 25
    assert brief(first.panes) == [(0, (1, 1), "ON_TIME", "+")]
    assert not first.drops, "1 is far behind 30, but in the same epoch"
    assert brief(second.panes) == []
    assert [(drop.element.record["amount"], drop.window, drop.cause) for drop in second.drops] == [
        (5, Window(Instant(0), Instant(10)), DropCause.LATE)
    ]
    assert third.watermark == MAX_INSTANT
    assert brief(third.panes) == [(30, (1, 1), "ON_TIME", "+")]


def test_a_window_may_fire_twice_in_one_epoch() -> None:
    (result,) = run_pipeline(build(), [epoch(0, row(1), row(2, 4), row(3, 2, user="bob"), row(16))])
    assert brief(result.panes) == [
        (0, (2, 5), "EARLY", "+"),
        (0, (2, 5), "EARLY", "-"),
        (0, (2, 5), "ON_TIME", "+"),
        (0, (1, 2), "ON_TIME", "+"),
    ]


def test_late_panes_replace_what_came_on_time() -> None:
    results = run_pipeline(build(), [epoch(0, row(1), row(16)), epoch(1, row(2, 5)), epoch(2, row(40))])
    assert brief(results[1].panes) == [(0, (1, 1), "ON_TIME", "-"), (0, (2, 6), "LATE", "+")]
    current = fold_current(pane for result in results for pane in result.panes)
    assert {place[1].start: pane.values for place, pane in current.items()} == {0: (2, 6), 10: (1, 1)}


def test_current_drops_what_was_merged_away() -> None:
    sessions = build(where=Sessions("10us"), when=AfterWatermark(early=AfterCount(1), late=AfterCount(1)))
    results = run_pipeline(sessions, [epoch(0, row(1)), epoch(1, row(15)), epoch(2, row(8))])
    current = fold_current(pane for result in results for pane in result.panes)
    assert {place[1]: pane.values for place, pane in current.items()} == {Window(Instant(1), Instant(25)): (3, 3)}


def test_records_without_event_time_or_key_are_rejected_and_move_no_clock() -> None:
    missing = [row(None), row(500, user=None)]
    (result,) = run_pipeline(build(), [epoch(0, *missing, row(7))])
    assert [(r.record, r.column) for r in result.rejected] == [(missing[0], "event_time"), (missing[1], "user")]
    assert result.watermark == 2


def test_filtered_records_move_the_watermark_and_nothing_else() -> None:
    pipeline = build(filter=~coalesce(col("bot"), False))
    (result,) = run_pipeline(pipeline, [epoch(0, row(1), row(99, bot=True), row(2, 4, bot=None))])
    assert result.watermark == 94
    assert brief(result.panes)[-1] == (0, (2, 5), "ON_TIME", "+")
    assert not result.drops
    (none_kept,) = run_pipeline(build(filter=col("bot")), [epoch(0, row(1, bot=None), row(2, bot=False))])
    assert (none_kept.panes, none_kept.rejected, none_kept.watermark) == ((), (), -3)


def test_the_slowest_split_is_the_watermark_and_it_never_goes_back() -> None:
    split = build(event_time=EventTime(col("at"), BoundedOutOfOrderness("5us"), split=col("site")))
    results = run_pipeline(
        split,
        [
            epoch(0),
            epoch(1, row(50, site="x")),
            epoch(2, row(12, site="y")),
            epoch(3, row(30, site="y"), row(20, site="x")),
        ],
    )
    assert [result.watermark for result in results] == [MIN_INSTANT, 45, 45, 45]
    both = run_pipeline(split, [epoch(0, row(50, site="x"), row(12, site="y")), epoch(1, row(60, site=None))])
    assert [result.watermark for result in both] == [7, 7]


def test_processing_time_fires_untouched_windows_in_a_later_epoch() -> None:
    timer_pipeline = build(when=Repeatedly(AfterProcessingTime("10us")), how=discarding("0s"))
    results = run_pipeline(timer_pipeline, [epoch(100, row(1)), epoch(109), epoch(110), epoch(120)])
    assert [brief(result.panes) for result in results] == [[], [], [(0, (1, 1), "EARLY", "+")], []]


def test_missing_columns_are_null_and_a_sum_of_nothing_is_zero() -> None:
    record = {"at": 1, "user": "ann"}
    (result,) = run_pipeline(build(), [epoch(0, record, is_last=True)])
    assert brief(result.panes) == [(0, (1, 0), "ON_TIME", "+")]


def test_panes_say_what_they_are() -> None:
    (result,) = run_pipeline(build(how=discarding("0s")), [epoch(0, row(3, 7), is_last=True)])
    assert result.panes == (
        Pane(
            key=("ann",),
            window=Window(Instant(0), Instant(10)),
            values=(1, 7),
            timestamp=Instant(9),
            timing=Timing.ON_TIME,
            index=0,
            nonspeculative_index=0,
            is_first=True,
            is_last=True,
        ),
    )


def test_a_sum_that_leaves_64_bits_is_an_error() -> None:
    big = row(1, 2**62)
    with pytest.raises(IntegerOverflowError, match="64 bits"):
        run_pipeline(build(), [epoch(0, big, big)])
    (fits,) = run_pipeline(build(), [epoch(0, big, row(2, 2**62 - 1))])
    assert fits.panes[0].values == (2, 2**63 - 1)


def test_the_size_of_an_element_is_that_of_its_columns() -> None:
    assert element_size({"user": "añn", "at": 1, "amount": None, "bot": True, "unread": "x"}, SCHEMA) == 4 + 8 + 1
    size_pipeline = build(when=Repeatedly(AfterBytes(40)), how=discarding("0s"))
    results = run_pipeline(size_pipeline, [epoch(0, row(1)), epoch(1, row(2)), epoch(2, row(3, user="bob"))])
    assert [brief(result.panes) for result in results] == [[], [], []], "19 bytes each"
    (last,) = run_pipeline(size_pipeline, [epoch(0, row(1), row(2, user="ann"), row(3))])
    assert brief(last.panes) == [(0, (3, 3), "EARLY", "+")]
