"""Watermark strategies in whole pipelines: arrival time, punctuation, idle splits, percentiles."""

from datetime import datetime
from typing import Any

import pytest

from headrace import (
    AfterPercentileWatermark,
    AfterWatermark,
    DataType,
    Default,
    FileSource,
    FixedWindows,
    Pipeline,
    Punctuated,
    col,
    count,
    discarding,
    json,
    retracting,
)
from headrace.errors import PipelineError
from headrace.model.event_time import BoundedOutOfOrderness, EventTime, Ingestion, Monotonic
from headrace.model.time import Duration, Instant
from headrace_lab.reference import Epoch, RejectedRecord, run_pipeline
from tests.building import pipeline

SCHEMA = {
    "user": DataType.STRING,
    "site": DataType.STRING,
    "at": DataType.TIMESTAMP,
    "until": DataType.TIMESTAMP,
}


def build(event_time: EventTime, **changes: Any) -> Pipeline:
    parts: dict[str, Any] = {
        "name": "clocks",
        "source": FileSource("nowhere", "json", SCHEMA),
        "event_time": event_time,
        "key": {"user": col("user")},
        "where": FixedWindows("10us"),
        "when": Default(),
        "how": discarding("0s"),
        "what": {"n": count()},
    }
    return pipeline(**{**parts, **changes})


def row(time: int | None, **more: Any) -> dict[str, Any]:
    return {"at": time, "user": "ann", **more}


def epoch(time: int, *records: dict[str, Any]) -> Epoch:
    return Epoch(Instant(time), records)


def test_arrival_time_as_event_time() -> None:
    results = run_pipeline(
        build(EventTime(None, Ingestion())),
        [epoch(3, row(500), row(None)), epoch(9, row(1)), epoch(5, row(2)), epoch(10, row(3)), epoch(20)],
    )
    assert [result.watermark for result in results] == [3, 9, 9, 10, 20]
    panes = [[(pane.window.start, pane.values) for pane in result.panes] for result in results]
    assert panes == [[], [], [], [(0, (4,))], [(10, (1,))]]
    assert not any(result.drops or result.rejected for result in results)


DAY = Duration(86_400_000_000)


def test_a_record_far_ahead_is_accepted_and_moves_no_watermark() -> None:
    bounded_event_time = EventTime(col("at"), BoundedOutOfOrderness("10us"))
    wild = row(300 * 365 * DAY)
    results = run_pipeline(
        build(bounded_event_time), [epoch(0, row(5), wild), epoch(1, row(15), row(DAY + 2)), epoch(2, row(31))]
    )
    assert [result.watermark for result in results] == [-5, 5, 21]
    assert [result.ahead for result in results] == [(wild,), (row(DAY + 2),), ()]
    assert not any(result.drops or result.rejected for result in results)
    (last,) = run_pipeline(build(bounded_event_time), [Epoch(Instant(0), [row(5), wild], is_last=True)])
    assert [pane.values for pane in last.panes] == [(1,), (1,)]


def test_schedules_may_lie_ahead_as_far_as_they_like() -> None:
    (result,) = run_pipeline(build(EventTime(col("at"), Monotonic(), max_ahead=None)), [epoch(0, row(300 * DAY))])
    assert (result.watermark, result.ahead) == (300 * DAY, ())


def test_a_split_that_is_only_known_from_far_ahead_holds_nothing_back() -> None:
    results = run_pipeline(
        build(EventTime(col("at"), Monotonic(), col("site"), max_ahead=Duration(100))),
        [epoch(0, row(5, site="x"), row(101, site="y")), epoch(1, row(101, site="y"), row(102, site="x"))],
    )
    assert [result.watermark for result in results] == [5, 5]
    assert [len(result.ahead) for result in results] == [1, 1]
    with pytest.raises(PipelineError, match="max_ahead"):
        json("landing", {"at": datetime}).event_time("at", bound="0s", max_ahead="-1us")


def test_records_assert_the_watermark() -> None:
    control = {"until": 12}
    results = run_pipeline(
        build(EventTime(col("at"), Punctuated(col("until")))),
        [epoch(0, row(5), row(99)), epoch(1, control, row(6)), epoch(2, row(None)), epoch(3, row(15, until=30))],
    )
    assert [result.watermark for result in results] == [-(2**61), 12, 12, 30]
    assert [[pane.values for pane in result.panes] for result in results] == [[], [(2,)], [], [(1,)]]
    assert [result.rejected for result in results] == [(), (), (RejectedRecord(row(None), "event_time"),), ()]


def test_an_idle_split_is_left_out_and_its_late_words_are_judged_like_others() -> None:
    event_time = EventTime(col("at"), Monotonic(idle_timeout="10us"), split=col("site"))
    results = run_pipeline(
        build(event_time),
        [
            epoch(0, row(5, site="x"), row(1, site="y")),
            epoch(9, row(25, site="x")),
            epoch(10),
            epoch(11, row(7, site="y")),
            epoch(12, row(30, site="x")),
        ],
    )
    assert [result.watermark for result in results] == [1, 1, 25, 25, 25]
    assert [[pane.values for pane in result.panes] for result in results] == [[], [], [(2,)], [], []]
    assert [drop.element.timestamp for drop in results[3].drops] == [7]


def test_a_percentile_pane_comes_before_the_watermark_and_the_stragglers_later() -> None:
    strategy = BoundedOutOfOrderness("100us")
    when = AfterWatermark(early=AfterPercentileWatermark(75))
    pipeline = build(EventTime(col("at"), strategy), when=when, how=retracting("0s"))
    results = run_pipeline(
        pipeline,
        [
            epoch(0, row(20)),
            epoch(1, row(20), row(20), row(21), row(4)),
            epoch(2, row(21), row(22)),
            epoch(3, row(120)),
        ],
    )
    panes_by_epoch = [
        [(p.window.start, p.values[0], p.timing.value, p.is_retraction) for p in r.panes] for r in results
    ]
    assert panes_by_epoch[:3] == [[], [(0, 1, "EARLY", False)], []], (
        "W_75 is at 20 when 21 is the mark: three of four had no lag"
    )
    assert panes_by_epoch[3] == [
        (0, 1, "EARLY", True),
        (0, 1, "ON_TIME", False),
        (20, 6, "EARLY", False),
    ]


def test_the_lag_of_a_record_is_how_far_it_is_behind_the_mark_before_its_epoch() -> None:
    when = AfterWatermark(early=AfterPercentileWatermark(75))
    pipeline = build(EventTime(col("at"), BoundedOutOfOrderness("100us")), when=when)
    results = run_pipeline(
        pipeline, [epoch(0, row(20)), epoch(1, row(20), row(20), row(10), row(0)), epoch(2, row(21))]
    )
    panes_by_epoch = [[(pane.window.start, pane.values) for pane in result.panes] for result in results]
    assert panes_by_epoch == [[], [], [(0, (1,))]], "W_75 is 20 - 11, then 21 - 11"


@pytest.mark.parametrize(
    ("event_time", "message"),
    [
        (EventTime(None, Monotonic()), "every other strategy needs an expression"),
        (EventTime(col("at"), Ingestion()), "takes the time of arrival"),
        (EventTime(col("at"), Punctuated(col("user"))), "asserts is string"),
        (EventTime(col("at"), "slow"), "not a watermark strategy"),  # type: ignore[arg-type]
    ],
)
def test_event_times_and_strategies_must_fit(event_time: EventTime, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        build(event_time)
