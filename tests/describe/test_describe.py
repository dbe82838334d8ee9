"""Pipelines in words: every window function and trigger has some, and the example's times are those of the model."""

import math
from datetime import UTC, datetime, timedelta

import pytest

import headrace as hr
from headrace import col
from headrace.describe.pipeline import draw_graph, example_window_lines, pipeline_notes, pipeline_sections
from headrace.model.event_time import BoundedOutOfOrderness
from headrace.model.time import Instant, parse_instant, to_instant
from headrace.model.triggers.elementary import condition, panes
from headrace.model.windows import describe_windows, window_at
from headrace.pipeline.stages import TRIGGER_KINDS
from headrace_lab.reference.windows import assign
from tests.own_triggers import Jump

NEW_YEAR = to_instant(datetime(2026, 1, 1, tzinfo=UTC))


CONDITIONS = {
    hr.AfterCount(1): "an epoch brings an element",
    hr.AfterCount(1000): "1,000 elements have arrived",
    hr.AfterBytes(1000): "elements of 1,000 bytes have arrived",
    hr.AfterProcessingTime("5m"): "the clock is 5m after its first element arrived",
    hr.AfterProcessingTime("5m", align="1h"): "the clock shows a multiple of 1h, 5m after its first element arrived",
    hr.AfterSynchronizedProcessingTime(): "what was in flight upstream when the first element arrived has arrived too",
    hr.AfterPunctuation(col("v") > 9): "an element has arrived for which (v > 9)",
    hr.DataDriven({"n": hr.count()}, col("n") > 3): "(n > 3) (n = count())",
    hr.AfterPattern("aa", {"a": col("v") > 9}): "elements in their order of arrival match 'aa' (a: (v > 9))",
    hr.AfterSignal("go"): "the signal 'go' comes",
    hr.AfterPercentileWatermark(90): "the watermark of the fastest 90 % of the input passes the end of the window",
    hr.AfterWatermark(): "the watermark passes the end of the window",
    hr.Default(): "the watermark passes the end of the window, and in every later epoch that brings elements",
    hr.Always(): "an epoch brings elements, and when the watermark passes the end of the window",
    hr.Never(): "never",
    hr.Repeatedly(hr.AfterCount(2)): "again and again 2 elements have arrived",
    hr.AfterAny(hr.AfterCount(2), hr.AfterSignal("go")): "2 elements have arrived, or the signal 'go' comes",
    hr.AfterAll(
        hr.AfterCount(2), hr.AfterSignal("go")
    ): "at the same time 2 elements have arrived, and the signal 'go' comes",
    hr.AfterEach(hr.AfterCount(2), hr.AfterSignal("go")): "first 2 elements have arrived, then the signal 'go' comes",
    hr.OrFinally(hr.AfterCount(2), hr.AfterSignal("go")): (
        "2 elements have arrived, and for the last time when the signal 'go' comes"
    ),
    Jump(5): "Jump(by=5, column='value'), a trigger of your own, is ready",
}


@pytest.mark.parametrize("trigger", CONDITIONS, ids=lambda trigger: type(trigger).__name__)
def test_a_trigger_in_words(trigger: hr.Trigger) -> None:
    assert condition(trigger) == CONDITIONS[trigger]
    assert panes(trigger)


def test_every_trigger_has_words() -> None:
    kinds = {type(trigger) for trigger in CONDITIONS} - {Jump}
    assert kinds | {hr.CustomTrigger} == {*TRIGGER_KINDS}


def test_a_trigger_that_finishes_says_that_it_drops() -> None:
    assert panes(hr.AfterWatermark())[-1].startswith("late: never; the window is closed then")
    assert "drops what comes later" in panes(hr.AfterCount(3))[0]
    assert "drops" not in panes(hr.Repeatedly(hr.AfterCount(3)))[0]


WINDOWS = {
    hr.FixedWindows("1h"): "fixed windows of 1h",
    hr.FixedWindows("1d", offset="6h"): "fixed windows of 1d, shifted by 6h",
    hr.SlidingWindows("1h", "5m"): "sliding windows of 1h, a new one every 5m",
    hr.Sessions("30m"): "sessions, closed by a gap of 30m; elements exactly that far apart are two",
    hr.CalendarWindows("month", "Europe/Berlin", 3): "windows of 3 calendar months, of local time in Europe/Berlin",
    hr.CalendarWindows("week", day_begins="06:00", week_begins="sunday"): (
        "windows of 1 calendar week, of local time in UTC, days begin at 06:00, weeks begin on Sunday"
    ),
    hr.GlobalWindows(): "one window for all of time",
    hr.ShiftedOutputTime(hr.FixedWindows("1h"), "2h"): (
        "fixed windows of 1h; panes are dated 2h later than their elements"
    ),
}


@pytest.mark.parametrize("where", WINDOWS, ids=lambda where: type(where).__name__)
def test_a_window_function_in_words_with_a_window_that_it_assigns(where: hr.WindowFn) -> None:
    assert describe_windows(where) == WINDOWS[where]
    example = window_at(where, NEW_YEAR)
    if isinstance(where, hr.GlobalWindows):
        assert example is None
    else:
        assert example in assign(where, NEW_YEAR, {})


def test_the_example_says_when_a_window_is_on_time_and_when_it_expires() -> None:
    strategy = BoundedOutOfOrderness(hr.FixedWindows("4h").size)
    _, on_time, expires = example_window_lines(hr.FixedWindows("1h"), hr.retracting("2d"), [strategy])
    end = NEW_YEAR + timedelta(hours=1) // timedelta(microseconds=1)
    assert parse_instant(on_time.split("once a record of ")[1].split(" ")[0]) - end == strategy.bound
    assert strategy.lower_bound(parse_instant("2026-01-01T05:00:00Z")) == Instant(end)
    assert expires.strip().startswith("expires when the watermark passes 2026-01-03T01:00:00Z;")
    assert "never expires" in example_window_lines(hr.FixedWindows("1h"), hr.retracting(None), [])[-1]
    assert example_window_lines(hr.FixedWindows("1h"), hr.retracting("3000000d"), [])[-1].endswith("after that")


def pipeline(**more: object) -> hr.Pipeline:
    orders = hr.json("landing/orders", {"id": str, "at": datetime, "shop": str, "cents": int})
    parts: dict[str, object] = {
        "key": "shop",
        "what": {"orders": hr.count(), "most": col("cents").max()},
        "where": hr.FixedWindows("1h"),
        **more,
    }
    return hr.Pipeline("orders", orders.event_time("at", bound="10m", split="shop"), **parts)  # type: ignore[arg-type]


def test_a_pipeline_in_the_order_of_the_models_questions() -> None:
    texts_by_heading = {
        part.heading: " / ".join(part.lines) for part in pipeline_sections(pipeline(filter=col("cents") > 0))
    }
    assert list(texts_by_heading) == ["input source", "what", "where", "when", "how"]
    assert "watermark: 10m behind the latest event time" in texts_by_heading["input source"]
    assert "splits: by shop" in texts_by_heading["input source"]
    assert texts_by_heading["what"] == "orders = count() / most = max(cents) / of what passes (cents > 0) / per shop"
    assert texts_by_heading["how"].startswith("retracting: ")


def test_the_graph_shows_every_step_in_order() -> None:
    refunds = hr.csv("landing/refunds", {"at": datetime, "shop": str, "id": str}).event_time("at", bound="0s")
    own_pipeline = pipeline(
        union=[refunds.named("refunds")],
        deduplicate=hr.Deduplicate("id", "1d"),
        filter=col("shop").is_not_null(),
        then=[hr.Aggregation(key="shop", what={"busiest": col("orders").max()}, where=hr.FixedWindows("1d"))],
    )
    lines = [line for line in draw_graph(own_pipeline) if line.strip() not in "│▼"]
    assert lines == [
        "source: landing/orders (json)",
        "refunds: landing/refunds (csv)",
        "filter shop.is_not_null()",
        "one of each id",
        "orders, most per shop: fixed windows of 1h",
        "busiest per shop: fixed windows of 1d",
        "panes, current   (beside them: late, rejected)",
    ]


def test_notes_name_what_may_not_be_meant() -> None:
    assert "no idle=" in " ".join(pipeline_notes(pipeline()))
    assert "never expire" in " ".join(pipeline_notes(pipeline(how=hr.retracting(None))))
    waits = hr.AfterWatermark(early=hr.AfterProcessingTime("5m"), late=hr.AfterCount(1))
    assert "without a schedule=" in " ".join(pipeline_notes(pipeline(when=waits)))
    assert "without a schedule=" not in " ".join(pipeline_notes(pipeline(when=waits, schedule="@hourly")))


PARTS_BY_NOTE = {
    "the trigger Never waits for its end": {"where": hr.GlobalWindows(), "when": hr.Never(), "allow_finishing": True},
    "the trigger AfterWatermark waits": {
        "where": hr.GlobalWindows(),
        "when": hr.AfterWatermark(),
        "allow_finishing": True,
    },
    "(cents > nan) in the filter is never true": {"filter": (col("cents") > math.nan) | (col("shop") == "x")},  # noqa: PLW0177
    "(cents <= nan) in aggregate n is always true": {"what": {"n": (col("cents") <= math.nan).count()}},  # noqa: PLW0177
    "an id is forgotten as soon as": {"deduplicate": hr.Deduplicate("id", "0s")},
    "keeps up to 1,000,000,000 values": {"what": {"most": col("cents").top(10**9)}},
    "every record is in 43,200 sliding windows": {"where": hr.SlidingWindows("30d", "1m")},
    "do not end before the input does": {
        "where": hr.GlobalWindows(),
        "when": hr.Repeatedly(hr.AfterCount(1)),
        "then": [hr.Aggregation(key="shop", what={"n": hr.count()}, where=hr.FixedWindows("1h"))],
    },
}


@pytest.mark.parametrize("note", PARTS_BY_NOTE)
def test_what_is_allowed_and_hardly_meant_is_noted(note: str) -> None:
    assert note in " ".join(pipeline_notes(pipeline(**PARTS_BY_NOTE[note])))
    assert note not in " ".join(pipeline_notes(pipeline()))


def test_a_loop_says_what_goes_round() -> None:
    loop = hr.Loop(
        start=hr.if_else(col("vertex") == "oslo", 0, None), step=col("value") + col("cents"), combine="least"
    )
    parts = {"key": {"shop": col("shop"), "to": col("id")}, "loop": loop, "what": {}, "how": hr.retracting("1d")}
    own_pipeline = pipeline(filter=col("cents") > 0, **parts)
    lines_by_heading = {part.heading: part.lines for part in pipeline_sections(own_pipeline)}
    assert list(lines_by_heading) == ["input source", "loop", "what", "where", "when", "how"]
    assert lines_by_heading["loop"] == [
        "a record is an edge from shop to to = id",
        "of what passes (cents > 0)",
        "a vertex has by itself: if_else((vertex == 'oslo'), 0, None)",
        "over an edge its value becomes: (value + cents)",
        "an edge is a dead letter if cents is below zero or missing",
        "of several values it keeps the least",
        "an epoch turns at most 64 rounds; what is in flight then goes on in the next epoch",
    ]
    lines = [line for line in draw_graph(own_pipeline) if line.strip() not in "│▼"]
    assert lines[1:4] == [
        "filter (cents > 0)",
        "loop over shop -> to: the least of (value + cents)",
        "value per vertex: fixed windows of 1h",
    ]
    both = hr.Loop(start=col("vertex"), step=col("value"), combine="least", both_ways=True, rounds=None)
    lines_by_heading = {part.heading: part.lines for part in pipeline_sections(pipeline(**{**parts, "loop": both}))}
    assert lines_by_heading["loop"][0] == "a record is an edge between shop and to = id, in both directions"
    assert lines_by_heading["loop"][-1] == "an epoch turns rounds until nothing changes"
