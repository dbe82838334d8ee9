"""Which event times a range of results depends on, against windows as the reference assigns and merges them."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import (
    Aggregation,
    CalendarWindows,
    GlobalWindows,
    Output,
    Pipeline,
    Sessions,
    SlidingWindows,
    col,
    count,
    discarding,
)
from headrace.model.time import Duration, Instant, to_instant
from headrace.model.windows import FixedWindows, ShiftedOutputTime, Window, WindowFn
from headrace.runs.backfill.branches import needed_event_times
from headrace_lab.reference.windows import assign
from tests.building import change_pipeline
from tests.own_windows import Validity
from tests.process.clicks import clicks

HOUR = 3_600_000_000
lengths = st.integers(1, 12).map(Duration)
windows = st.one_of(
    st.builds(FixedWindows, lengths, lengths),
    st.builds(SlidingWindows, lengths, lengths, lengths),
    st.builds(Sessions, lengths, st.booleans()),
)
spans = st.tuples(st.integers(-30, 30), st.integers(1, 20)).map(lambda s: Window(Instant(s[0]), Instant(s[0] + s[1])))


def touches(window: Window, span: Window) -> bool:
    return window.start < span.end and window.end > span.start


@given(windows, spans)
def test_every_element_of_a_window_that_touches_the_range_is_within_reach(where: WindowFn, span: Window) -> None:
    found_span = needed_event_times(clicks(where), span)
    assert found_span is not None
    for time in range(-80, 80):
        if any(touches(window, span) for window in assign(where, Instant(time))):
            assert found_span.start <= time < found_span.end


@given(
    st.one_of(st.builds(FixedWindows, lengths, lengths), st.builds(SlidingWindows, lengths, lengths, lengths)), spans
)
def test_the_reach_ends_where_windows_that_touch_the_range_do(where: WindowFn, span: Window) -> None:
    found_span = needed_event_times(clicks(where), span)
    touching = {w for time in range(-80, 80) for w in assign(where, Instant(time)) if touches(w, span)}
    if touching:
        assert found_span == Window(min(w.start for w in touching), max(w.end for w in touching))


@given(windows, windows, spans, st.integers(0, 9))
def test_panes_of_a_first_stage_are_elements_of_the_second(
    first: WindowFn, second: WindowFn, span: Window, shift: int
) -> None:
    second_aggregation = Aggregation(key="user", what={"clicks": col("clicks").sum()}, where=second)
    shifted_output_time = ShiftedOutputTime(first, Duration(shift))
    found_span = needed_event_times(
        change_pipeline(clicks(shifted_output_time), how=discarding(), then=[second_aggregation]), span
    )
    assert found_span is not None
    touching_times = {time for time in range(-120, 120) if any(touches(w, span) for w in assign(second, Instant(time)))}
    for time in range(-80, 80):
        for window in assign(first, Instant(time)):
            if touching_times.intersection(
                range(window.start, window.end + shift)
            ):  # whatever its panes are stamped with
                assert found_span.start <= time < found_span.end


def test_outputs_of_several_reach_as_far_as_the_one_that_reaches_furthest() -> None:
    how, what = discarding(), {"clicks": col("clicks").sum()}
    own = {"key": "user", "how": how, "what": {"clicks": count()}}
    outputs = {
        "minutes": Output(where=FixedWindows(Duration(10)), **own),
        "shifted": Output(where=ShiftedOutputTime(FixedWindows(Duration(10)), Duration(30)), **own),
        "below": Output(of="shifted", key="user", what=what, where=FixedWindows(Duration(20)), how=how),
    }
    one = clicks(FixedWindows(Duration(1)))
    shop = Pipeline("shop", one.input, outputs=outputs)
    span = Window(Instant(100), Instant(105))
    assert needed_event_times(shop, span, ["minutes"]) == Window(Instant(100), Instant(110))
    assert needed_event_times(shop, span, ["below"]) == Window(Instant(70), Instant(120))
    assert (
        needed_event_times(shop, span, ["minutes", "below"])
        == needed_event_times(shop, span)
        == Window(Instant(70), Instant(120))
    )
    own_windows = {**outputs, "validity": Output(where=Validity(5), **own)}
    assert needed_event_times(Pipeline("shop", one.input, outputs=own_windows), span) is None
    assert needed_event_times(Pipeline("shop", one.input, outputs=own_windows), span, ["below"]) is not None


def test_a_window_whose_start_depends_on_the_key_may_be_any_that_is_near() -> None:
    where = FixedWindows(Duration(10), phase=col("user").crc32() % 10)
    assert needed_event_times(clicks(where), Window(Instant(100), Instant(105))) == Window(Instant(91), Instant(114))


def test_days_of_a_calendar_are_whole() -> None:
    span = Window(to_instant(datetime(2026, 3, 29, 5, tzinfo=UTC)), to_instant(datetime(2026, 3, 29, 6, tzinfo=UTC)))
    found_span = needed_event_times(clicks(CalendarWindows("day", "Europe/Berlin")), span)
    assert found_span is not None
    assert found_span.start == to_instant(datetime(2026, 3, 28, 23, tzinfo=UTC))
    assert found_span.end - found_span.start == 23 * HOUR, "clocks are set forward"


def test_a_range_may_be_open() -> None:
    everything = needed_event_times(clicks(GlobalWindows()), Window(Instant(0), Instant(1)))
    assert everything is not None
    for where in (FixedWindows("1h"), SlidingWindows("2h", "1h"), Sessions("1h"), CalendarWindows("day")):
        assert needed_event_times(clicks(where), everything) == everything


@pytest.mark.parametrize("has_second_stage", [False, True])
def test_windows_of_a_users_own_reach_nobody_knows_where(has_second_stage: bool) -> None:
    own = clicks(Validity(5))
    aggregation_later = Aggregation(key="user", what={"clicks": col("clicks").sum()}, where=FixedWindows("1h"))
    assert (
        needed_event_times(
            change_pipeline(own, then=[aggregation_later]) if has_second_stage else own, Window(Instant(0), Instant(1))
        )
        is None
    )
