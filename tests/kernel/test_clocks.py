"""Parts of timestamps and truncation in time zones, over columns: as the reference, above all where clocks are set."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import numpy as np
import pytest

from headrace.errors import PipelineError
from headrace.kernel.expressions.casts import calendar_windows
from headrace.kernel.expressions.evaluation import evaluate_column
from headrace.model.expressions.data_types import DataType
from headrace.model.expressions.expr import Expr, col, render
from headrace.model.expressions.methods import TimeUnit
from headrace.model.expressions.typing import is_same_expression
from headrace.model.time import Instant, to_instant
from headrace.model.time import render as rendered
from headrace.model.windows import CalendarWindows
from headrace_lab.reference import evaluate
from tests.kernel.columns import arrow, python

TIME = col("at")
SCHEMA = {"at": DataType.TIMESTAMP}
YEARS = (1847, 1893, 1972, 2011, 2018, 2040, 9998)
ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/Sao_Paulo",  # set at midnight
    "Australia/Lord_Howe",  # by half an hour
    "Africa/Monrovia",  # by seconds
    "Pacific/Apia",  # over a whole day
    "Asia/Kolkata",
    *(pytest.param(zone, marks=pytest.mark.slow) for zone in sorted(available_timezones())[::100]),
)
QUARTER_HOUR, DAY = timedelta(minutes=15), timedelta(days=1)


@cache
def instants(zone: str) -> list[int]:
    """A day around every change of the offset in these years, and when the years begin."""
    clock = ZoneInfo(zone)
    days = [datetime(year, 1, 1, tzinfo=UTC) + n * DAY for year in YEARS for n in range(365)]
    changes = [
        day
        for day in days
        if clock.utcoffset(day.replace(tzinfo=None)) != clock.utcoffset(day.replace(tzinfo=None) + DAY)
    ]
    moments = [day + n * QUARTER_HOUR for day in changes for n in range(-8, 104)]
    return sorted({to_instant(moment) + odd for moment in (*moments, *days[::365]) for odd in (-1, 0)})


def evaluate_at(expr: Expr, times: Sequence[int | None]) -> list[int | None]:
    return python(evaluate_column(expr, {"at": arrow(times, DataType.TIMESTAMP)}, SCHEMA, len(times)))


@pytest.mark.parametrize("zone", ZONES)
def test_clocks_show_what_the_reference_shows(zone: str) -> None:
    moments = instants(zone)
    for part in (
        TIME.year(zone),
        TIME.month(zone),
        TIME.day(zone),
        TIME.weekday(zone),
        TIME.hour(zone),
        TIME.minute(zone),
        TIME.second(zone),
    ):
        assert evaluate_at(part, moments) == [evaluate(part, {"at": each}, SCHEMA) for each in moments]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("unit", list(TimeUnit))
def test_truncation_is_that_of_the_reference(unit: TimeUnit, zone: str) -> None:
    moments = instants(zone)
    start = evaluate_at(TIME.truncate(unit, zone), moments)
    assert start == [evaluate(TIME.truncate(unit, zone), {"at": each}, SCHEMA) for each in moments]
    begun_array = np.array(start)
    assert (begun_array <= moments).all()
    assert (np.diff(begun_array) >= 0).all()
    assert evaluate_at(TIME.truncate(unit, zone), start) == start


BEGINNINGS: list[tuple[TimeUnit, dict[str, Any]]] = [
    (TimeUnit.DAY, {"day_begins": "06:00"}),
    (TimeUnit.DAY, {"day_begins": "02:30"}),  # which clocks skip in spring
    (TimeUnit.DAY, {"day_begins": "23:59"}),
    (TimeUnit.WEEK, {"week_begins": "sunday"}),
    (TimeUnit.WEEK, {"day_begins": "06:00", "week_begins": "saturday"}),
    (TimeUnit.MONTH, {"day_begins": "06:00", "year_begins": 4}),
    (TimeUnit.QUARTER, {"year_begins": 2}),
    (TimeUnit.YEAR, {"year_begins": 4, "day_begins": "02:30"}),
]
WINDOWS = {
    TimeUnit.DAY: ("day", 1),
    TimeUnit.WEEK: ("week", 1),
    TimeUnit.MONTH: ("month", 1),
    TimeUnit.QUARTER: ("month", 3),
    TimeUnit.YEAR: ("month", 12),
}


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(("unit", "begins"), BEGINNINGS, ids=str)
def test_what_begins_elsewhere_begins_as_windows_do(unit: TimeUnit, begins: dict[str, Any], zone: str) -> None:
    moments = instants(zone)[::5]
    expr = TIME.truncate(unit, zone, **begins)
    start = evaluate_at(expr, moments)
    assert start == [evaluate(expr, {"at": each}, SCHEMA) for each in moments]
    name, count = WINDOWS[unit]
    starts, _ = calendar_windows(CalendarWindows(name, zone, count, **begins), np.array(moments))
    assert start == starts.tolist()
    assert start != evaluate_at(TIME.truncate(unit, zone), moments)


def test_what_begins_as_ever_is_written_as_ever() -> None:
    usual = TIME.truncate("week", "UTC", day_begins="00:00", week_begins="monday", year_begins=1)
    assert is_same_expression(usual, TIME.truncate("week"))
    assert render(usual) == "at.truncate('week', 'UTC')"


@pytest.mark.parametrize(
    ("unit", "begins", "why"),
    [
        ("hour", {"day_begins": "06:00"}, "about days"),
        ("day", {"week_begins": "sunday"}, "about weeks"),
        ("week", {"year_begins": 4}, "about months"),
        ("year", {"year_begins": 13}, "1 to 12"),
    ],
)
def test_a_beginning_that_says_nothing_of_a_unit_is_refused(unit: str, begins: dict[str, Any], why: str) -> None:
    with pytest.raises(PipelineError, match=f"truncate.*{why}"):
        TIME.truncate(unit, **begins)


@pytest.mark.parametrize("zone", ZONES)
def test_local_times_are_moments_as_the_reference_says(zone: str) -> None:
    shown_moments = instants(zone)
    for ambiguous, missing in (("first", "later"), ("second", "null"), ("null", "later")):
        moments = TIME.local_to_utc(zone, ambiguous, missing)
        values = evaluate_at(moments, shown_moments)
        assert values == [evaluate(moments, {"at": each}, SCHEMA) for each in shown_moments]


def test_what_clocks_show_twice_or_never_is_what_was_asked_for() -> None:
    def utc(text: str, **options: str) -> str | None:
        moment = to_instant(datetime.fromisoformat(f"{text}+00:00"))
        (instant,) = evaluate_at(TIME.local_to_utc("Europe/Berlin", **options), [moment])
        return None if instant is None else rendered(Instant(instant))

    assert utc("2025-07-01T12:00:00") == "2025-07-01T10:00:00Z"
    assert utc("2025-10-26T02:30:00") == "2025-10-26T00:30:00Z"
    assert utc("2025-10-26T02:30:00", twice="second") == "2025-10-26T01:30:00Z"
    assert utc("2025-10-26T02:30:00", twice="null") is None
    assert utc("2025-10-26T03:00:00", twice="null") == "2025-10-26T02:00:00Z"
    assert utc("2025-03-30T02:30:00") == "2025-03-30T01:30:00Z"  # when clocks show 03:30
    assert utc("2025-03-30T02:30:00", skipped="null") is None
    assert utc("2025-03-30T03:00:00", skipped="null") == "2025-03-30T01:00:00Z"


FIRST, LAST, HOUR = -62_135_596_800_000_000, 253_402_300_799_999_999, 3_600_000_000
EDGES = [
    *[
        edge + shift
        for edge in (FIRST, LAST)
        for shift in (-1, 0, 1, -HOUR, HOUR, -12 * HOUR, 12 * HOUR, -15 * 24 * HOUR)
    ],
    *[FIRST + 40 * 24 * HOUR, LAST - 400 * 24 * HOUR, 2**61 - 1000, 2**62, -(2**62), 2**63 - 1, -(2**63), None],
]


@pytest.mark.parametrize("zone", ZONES[:8])
def test_what_is_far_away_is_what_the_reference_says(zone: str) -> None:
    for expr in (
        TIME.local_to_utc(zone),
        TIME.year(zone),
        TIME.weekday(zone),
        TIME.hour(zone),
        *[TIME.truncate(unit, zone) for unit in TimeUnit],
        *[TIME.truncate(unit, zone, **begins) for unit, begins in BEGINNINGS],
    ):
        assert evaluate_at(expr, EDGES) == [evaluate(expr, {"at": each}, SCHEMA) for each in EDGES]
