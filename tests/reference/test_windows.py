"""Calendar windows through daylight saving, windows shifted key by key, and count windows."""

import os
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo, available_timezones
from zoneinfo._zoneinfo import ZoneInfo as Zone  # in Python, and so tells when its clocks change

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import (
    Aggregation,
    CalendarWindows,
    DataType,
    Default,
    FileSource,
    Pipeline,
    Sessions,
    accumulating,
    col,
    count,
    count_windows,
    discarding,
    retracting,
    sliding_count_windows,
)
from headrace.errors import PipelineError
from headrace.model.event_time import BoundedOutOfOrderness, EventTime
from headrace.model.time import Instant, to_datetime, to_instant
from headrace.model.windows import FixedWindows, ShiftedOutputTime, Window
from headrace_lab.reference import Epoch, evaluate, run_pipeline
from headrace_lab.reference.windows import assign
from tests.building import pipeline
from tests.reference.strategies import examples

ALL = os.environ.get("HEADRACE_INTERLEAVINGS") == "all"


def instant_of(text: str, zone: str) -> Instant:
    return to_instant(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)))


def window_of(unit: str, zone: str, text: str, count: int = 1) -> tuple[str, str, float]:
    """Start and end in local time, and the length in hours, of the window of a local time."""
    (only_window,) = assign(CalendarWindows(unit, zone, count), instant_of(text, zone))
    start, end = (_local(moment, zone) for moment in only_window)
    return start, end, (only_window.end - only_window.start) / 3_600_000_000


def _local(moment: Instant, zone: str) -> str:
    utc = to_datetime(moment)
    assert utc is not None
    return utc.astimezone(ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M")


@pytest.mark.parametrize(
    ("unit", "zone", "text", "count", "expected"),
    [
        ("day", "Europe/Berlin", "2026-11-20 15:00", 1, ("2026-11-20 00:00", "2026-11-21 00:00", 24)),
        ("day", "Europe/Berlin", "2026-03-29 23:59", 1, ("2026-03-29 00:00", "2026-03-30 00:00", 23)),
        ("day", "Europe/Berlin", "2026-10-25 02:30", 1, ("2026-10-25 00:00", "2026-10-26 00:00", 25)),
        ("week", "Europe/Berlin", "2026-03-29 12:00", 1, ("2026-03-23 00:00", "2026-03-30 00:00", 167)),
        ("week", "UTC", "1970-01-01 00:00", 1, ("1969-12-29 00:00", "1970-01-05 00:00", 168)),
        ("week", "UTC", "1970-01-06 00:00", 2, ("1969-12-29 00:00", "1970-01-12 00:00", 336)),
        ("month", "America/New_York", "2026-02-28 23:00", 1, ("2026-02-01 00:00", "2026-03-01 00:00", 672)),
        ("month", "UTC", "2026-11-20 00:00", 3, ("2026-10-01 00:00", "2027-01-01 00:00", 92 * 24)),
        ("month", "UTC", "1969-12-31 23:00", 12, ("1969-01-01 00:00", "1970-01-01 00:00", 365 * 24)),
        # the day on which midnight did not exist, and one on which it came twice
        ("day", "America/Sao_Paulo", "2018-11-04 12:00", 1, ("2018-11-04 01:00", "2018-11-05 00:00", 23)),
        ("day", "America/Havana", "2025-11-02 12:00", 1, ("2025-11-02 00:00", "2025-11-03 00:00", 25)),
    ],
)
def test_calendar_windows(unit: str, zone: str, text: str, count: int, expected: tuple[str, str, float]) -> None:
    assert window_of(unit, zone, text, count) == expected


ZONES = ["UTC", "Europe/Berlin", "America/Havana", "America/Sao_Paulo", "America/St_Johns", "Asia/Kathmandu"]


@examples(300)
@given(
    st.sampled_from(["day", "week", "month"]),
    st.sampled_from(ZONES),
    st.integers(1, 5),
    st.datetimes(datetime(1960, 1, 1), datetime(2035, 1, 1)),
)
def test_calendar_windows_lie_one_behind_another(unit: str, zone: str, count: int, moment: datetime) -> None:
    where, timestamp = CalendarWindows(unit, zone, count), to_instant(moment.replace(tzinfo=UTC))
    (window,) = assign(where, timestamp)
    assert window.start <= timestamp < window.end
    for instant in (window.start, window.max_timestamp):
        assert assign(where, instant) == [window]
    assert assign(where, window.end)[0].start == window.end


def test_clocks_set_back_over_midnight_do_not_reopen_the_day() -> None:
    """St. John's set its clocks back at 00:01, to 23:01 of the day before."""
    where = CalendarWindows("day", "America/St_Johns")
    second_evening = to_instant(datetime(2006, 10, 29, 2, 45, tzinfo=UTC))
    assert _local(second_evening, where.zone) == "2006-10-28 23:15"
    (window,) = assign(where, second_evening)
    assert (_local(window.start, where.zone), window.end - window.start) == ("2006-10-29 00:00", 25 * 3_600_000_000)


def test_a_day_begins_when_the_clocks_skip_its_midnight() -> None:
    """Toronto set its clocks forward at 23:30, to half past midnight."""
    where = CalendarWindows("day", "America/Toronto")
    change = to_instant(datetime(1919, 3, 31, 4, 30, tzinfo=UTC))
    sides = [Instant(change + shift) for shift in (-1, 0)]
    assert [_local(side, where.zone) for side in sides] == ["1919-03-30 23:29", "1919-03-31 00:30"]
    (day_before,), (day_after,) = (assign(where, side) for side in sides)
    assert day_before.end == day_after.start == change


def _changes() -> dict[tuple[int, ...], str]:
    """Zones by the moments (in seconds) at which their clocks change; one zone for each list of moments."""
    return {tuple(Zone(name)._trans_utc): name for name in sorted(available_timezones())}


@pytest.mark.slow
def test_windows_tile_time_and_hold_their_elements_in_every_zone_at_every_change_of_its_clocks() -> None:
    """``make exhaustive`` looks at every change, CI at a quarter of them, in every zone."""
    hour, zones = 3_600_000_000, _changes()
    assert len(zones) > 200
    for number, (moments, zone) in enumerate(zones.items()):
        day, week, month = (CalendarWindows(unit, zone) for unit in ("day", "week", "month"))
        changes = [Instant(second * 1_000_000) for second in moments if second > -(2**33)]
        for change in changes if ALL else changes[number % 4 :: 4] or changes[:1]:
            shifts = (-hour, -1, 0, hour // 2 - 1, hour, 12 * hour, 24 * hour)
            for where, instant in [
                *((day, Instant(change + shift)) for shift in shifts),
                (week, change),
                (month, change),
            ]:
                (window,) = assign(where, instant)
                assert window.start <= instant < window.end, (zone, instant)
                assert assign(where, window.start) == assign(where, window.max_timestamp) == [window], (zone, instant)
                assert assign(where, window.end)[0].start == window.end, (zone, instant)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("hour",), 'write one of "day", "week", "month"'),
        (("day", "Mars/Olympus"), "no such time zone"),
        (("day", "UTC", 0), "at least"),
        ({"unit": "day", "day_begins": "24:00"}, "write a time of clocks"),
        ({"unit": "day", "day_begins": "6:00"}, "write a time of clocks"),
        ({"unit": "day", "week_begins": "sunday"}, "it is about weeks, and these are days"),
        ({"unit": "week", "week_begins": "sun"}, 'write one of "monday"'),
        ({"unit": "week", "year_begins": 4}, "it is about months, and these are weeks"),
        ({"unit": "month", "year_begins": 13}, "1 to 12"),
    ],
)
def test_calendars_that_there_are_not(arguments: tuple[Any, ...] | dict[str, Any], message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        CalendarWindows(**arguments) if isinstance(arguments, dict) else CalendarWindows(*arguments)


@pytest.mark.parametrize(
    ("begins", "text", "start", "end"),
    [
        ({"unit": "day", "day_begins": "06:00"}, "2025-01-02T05:59", "2025-01-01T06:00", "2025-01-02T06:00"),
        ({"unit": "day", "day_begins": "06:00"}, "2025-01-02T06:00", "2025-01-02T06:00", "2025-01-03T06:00"),
        (
            {"unit": "day", "day_begins": "06:00"},
            "2025-03-30T05:00",
            "2025-03-29T06:00",
            "2025-03-30T06:00",
        ),  # 23 hours
        ({"unit": "day", "day_begins": "02:30"}, "2025-03-30T12:00", "2025-03-30T03:00", "2025-03-31T02:30"),  # skipped
        ({"unit": "week", "week_begins": "sunday"}, "2025-01-04T23:59", "2024-12-29T00:00", "2025-01-05T00:00"),
        ({"unit": "week", "week_begins": "sunday"}, "2025-01-05T00:00", "2025-01-05T00:00", "2025-01-12T00:00"),
        ({"unit": "week", "week_begins": "thursday"}, "1970-01-01T00:00", "1970-01-01T00:00", "1970-01-08T00:00"),
        ({"unit": "month", "count": 12, "year_begins": 4}, "2025-03-31T23:59", "2024-04-01T00:00", "2025-04-01T00:00"),
        ({"unit": "month", "count": 12, "year_begins": 4}, "2025-04-01T00:00", "2025-04-01T00:00", "2026-04-01T00:00"),
        ({"unit": "month", "count": 3, "year_begins": 2}, "2025-01-31T12:00", "2024-11-01T00:00", "2025-02-01T00:00"),
        (
            {"unit": "month", "year_begins": 4, "day_begins": "06:00"},
            "2025-04-01T05:00",
            "2025-03-01T06:00",
            "2025-04-01T06:00",
        ),
    ],
)
def test_calendars_that_begin_elsewhere(begins: dict[str, Any], text: str, start: str, end: str) -> None:
    zone = "Europe/Berlin"
    (window,) = assign(CalendarWindows(zone=zone, **begins), instant_of(text, zone))
    assert (window.start, window.end) == (instant_of(start, zone), instant_of(end, zone))


def test_of_a_begin_that_comes_twice_the_first_counts() -> None:
    where = CalendarWindows("day", "Europe/Berlin", day_begins="02:30")
    first = to_instant(datetime(2025, 10, 26, 0, 30, tzinfo=UTC))
    for minutes in (0, 29, 30, 59, 60):  # clocks show 02:00 again, and it is the new day
        (window,) = assign(where, Instant(first + minutes * 60_000_000))
        assert window.start == first
    assert assign(where, Instant(first - 1))[0].end == first


SCHEMA = {"user": DataType.STRING, "number": DataType.INT, "at": DataType.TIMESTAMP}


def build(**changes: Any) -> Pipeline:
    parts: dict[str, Any] = {
        "name": "windows",
        "source": FileSource("nowhere", "json", SCHEMA),
        "event_time": EventTime(col("at"), BoundedOutOfOrderness("5us")),
        "key": {"user": col("user"), "shift": col("number") * 3},
        "where": FixedWindows("10us"),
        "when": Default(),
        "how": discarding("0s"),
        "what": {"times": col("at").collect()},
    }
    return pipeline(**{**parts, **changes})


@pytest.mark.parametrize("is_shifted", [False, True])
def test_a_phase_shifts_the_windows_of_each_key(is_shifted: bool) -> None:
    fixed_windows = FixedWindows("10us", "1us", phase=col("shift") + 1)
    pipeline = build(where=ShiftedOutputTime(fixed_windows, "1us") if is_shifted else fixed_windows)
    rows = [{"user": "ann", "number": number, "at": time} for number in (0, 1, 3) for time in (4, 6, 13)]
    (result,) = run_pipeline(pipeline, [Epoch(Instant(0), rows, is_last=True)])
    assert {(pane.key[1], tuple(pane.window)): pane.values[0] for pane in result.panes} == {
        (0, (2, 12)): (4, 6),
        (0, (12, 22)): (13,),
        (3, (-5, 5)): (4,),
        (3, (5, 15)): (6, 13),
        (9, (1, 11)): (4, 6),
        (9, (11, 21)): (13,),
    }


def test_a_phase_reads_the_key_and_is_an_int() -> None:
    with pytest.raises(PipelineError, match="no column 'number'"):
        build(where=FixedWindows("10us", phase=col("number")))
    with pytest.raises(PipelineError, match="is string, and must be int"):
        build(where=ShiftedOutputTime(FixedWindows("10us", phase=col("user")), "1us"))
    build(where=FixedWindows(timedelta(hours=1), phase=col("user").crc32() % 3600 * 1_000_000))


def test_crc32_is_the_usual_one() -> None:
    assert evaluate(col("user").crc32(), {"user": "123456789"}, SCHEMA) == 0xCBF43926
    assert evaluate(col("user").crc32(), {"user": None}, SCHEMA) is None
    with pytest.raises(PipelineError, match="takes string"):
        build(key={"hash": col("number").crc32()})


def test_sliding_count_windows_hold_the_last_elements_to_arrive() -> None:
    pipeline = build(key={"user": col("user")}, what={"all": col("number").collect()}, **sliding_count_windows(3, 2))
    numbers = [[9], [1], [8], [2], [7, 3, 6, 4], [5]]
    epochs = [
        Epoch(Instant(i), [{"user": "ann", "number": number, "at": -number} for number in some], is_last=i == 5)
        for i, some in enumerate(numbers)
    ]
    panes = [[pane.values[0] for pane in result.panes] for result in run_pipeline(pipeline, epochs)]
    assert panes == [[], [(1, 9)], [], [(1, 2, 8)], [(3, 4, 6)], [(4, 5, 6)]]


def test_the_last_elements_are_those_of_a_window_with_an_order_of_arrival() -> None:
    with pytest.raises(PipelineError, match="windows that merge"):
        build(where=Sessions("5us"), how=discarding("0s", keep_last=3))
    with pytest.raises(PipelineError, match="at least 1"):
        discarding("0s", keep_last=0)
    aggregation_behind = Aggregation(
        key={"user": col("user")},
        where=FixedWindows("10us"),
        when=None,
        how=accumulating(keep_last=2),
        what={"n": count()},
    )
    with pytest.raises(PipelineError, match="may have forgotten these panes"):
        build(how=retracting(), then=(aggregation_behind,))


def test_count_windows_hold_n_elements_or_what_a_bundle_adds_to_them() -> None:
    pipeline = build(key={"user": col("user")}, what={"n": count(), "sum": col("number").sum()}, **count_windows(3))
    rows = [{"user": "ann", "number": number, "at": 0} for number in range(8)]
    results = run_pipeline(
        pipeline,
        [
            Epoch(Instant(0), rows[:2]),
            Epoch(Instant(1), rows[2:3]),
            Epoch(Instant(2), rows[3:7]),
            Epoch(Instant(3), rows[7:], is_last=True),
        ],
    )
    assert [[pane.values for pane in result.panes] for result in results] == [[], [(3, 3)], [(4, 18)], [(1, 7)]]
    assert assign(pipeline.where, Instant(5)) == [Window(*results[1].panes[0].window)]
