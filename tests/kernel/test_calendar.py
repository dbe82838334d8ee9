"""Days, weeks and months of columns are those of the model in every zone, also around each change of its clocks."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from headrace.kernel.windows import assign_windows
from headrace.model.time import END_OF_CALENDAR, GLOBAL_WINDOW_END, Instant, to_instant
from headrace.model.windows import CalendarWindows, calendar_window

LENGTHS = [("day", 1), ("day", 3), ("week", 1), ("week", 2), ("month", 1), ("month", 5)]
OTHERS: list[tuple[str, int, dict[str, Any]]] = [
    ("day", 1, {"day_begins": "06:00"}),
    ("day", 1, {"day_begins": "02:30"}),
    ("day", 2, {"day_begins": "23:59"}),
    ("week", 1, {"week_begins": "sunday"}),
    ("week", 3, {"week_begins": "saturday", "day_begins": "00:30"}),
    ("month", 12, {"year_begins": 4}),
    ("month", 3, {"year_begins": 12, "day_begins": "18:00"}),
]
"""Calendars that begin elsewhere."""
ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/Sao_Paulo",  # clocks went forward at midnight: days without one
    "America/St_Johns",  # clocks went back at 00:01: some days have two midnights
    "America/Toronto",  # in 1919 clocks went forward at 23:30
    "Asia/Beirut",
    "Asia/Kathmandu",
    "Africa/Cairo",
    "America/Havana",
    "Australia/Lord_Howe",
    "Pacific/Apia",  # no 2011-12-30
    "Pacific/Kiritimati",
]


def moments(zone: str) -> list[Instant]:
    """Moments around all changes of the clocks from 1900 to 2040, and some of any year."""
    rng, tz, day = random.Random(zone), ZoneInfo(zone), 86_400_000_000
    low, high = to_instant(datetime(1900, 1, 2, tzinfo=UTC)), to_instant(datetime(2040, 1, 1, tzinfo=UTC))
    end = to_instant(datetime(9998, 1, 1, tzinfo=UTC))

    def offset(microseconds: int) -> timedelta | None:
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)).astimezone(tz).utcoffset()

    found_moments = [Instant(rng.randrange(low, end)) for _ in range(200)]
    for instant in range(low, high, 7 * day):
        if offset(instant) == offset(instant + 7 * day):
            continue
        left, right = instant, instant + 7 * day
        while right - left > 1:
            middle = (left + right) // 2
            left, right = (middle, right) if offset(middle) == offset(instant) else (left, middle)
        moments_near = [
            right + minutes * 60_000_000 + shift for minutes in (-61, -31, 0, 1, 31, 61) for shift in (-1, 0)
        ]
        found_moments += [
            Instant(moment) for moment in [*moments_near, right - day, right + day, right + rng.randrange(day)]
        ]
    return found_moments


def plain(zone: str) -> list[CalendarWindows]:
    return [CalendarWindows(unit, zone, length) for unit, length in LENGTHS]


def others(zone: str) -> list[CalendarWindows]:
    return [CalendarWindows(unit, zone, length, **begins) for unit, length, begins in OTHERS]


@pytest.mark.slow
@pytest.mark.parametrize("zone", ZONES)
def test_windows_of_a_calendar(zone: str) -> None:
    times = moments(zone)
    for where in [*plain(zone), *others(zone)]:
        windows = assign_windows(where, pa.array(times, pa.int64()), {}, {})
        pairs = list(zip(windows.start.tolist(), windows.end.tolist(), strict=True))
        wrong = [(time, one) for time, one in zip(times, pairs, strict=True) if one != calendar_window(where, time)]
        assert wrong == []
        assert all(start <= time < end for time, (start, end) in zip(times, pairs, strict=True))


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(
    ("unit", "length", "begins"), [*((*one, {}) for one in [*LENGTHS, ("month", 12_000), ("day", 400)]), *OTHERS]
)
def test_the_last_window_of_a_calendar_ends_with_time(
    zone: str, unit: str, length: int, begins: dict[str, Any]
) -> None:
    where, day = CalendarWindows(unit, zone, length, **begins), 86_400_000_000
    far = [END_OF_CALENDAR + shift for shift in (-400 * day, -2 * day, -day, -1, 0, 1, day, 10**6 * day)]
    times = [Instant(time) for time in [*far, GLOBAL_WINDOW_END - 1, GLOBAL_WINDOW_END, GLOBAL_WINDOW_END + 7]]
    windows = assign_windows(where, pa.array(times, pa.int64()), {}, {})
    pairs = list(zip(windows.start.tolist(), windows.end.tolist(), strict=True))
    assert pairs == [calendar_window(where, time) for time in times]
    assert all(start <= time < end for time, (start, end) in zip(times[:-2], pairs, strict=False))
    # what panes of a global window are dated beyond it is in the last one, too
    assert pairs[-3][1] == GLOBAL_WINDOW_END
    assert pairs[-3] == pairs[-2] == pairs[-1]
    assert [assign_windows(where, pa.array([time], pa.int64()), {}, {}).start[0] for time in times] == [
        start for start, _ in pairs
    ]
