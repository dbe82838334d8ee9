"""Days, weeks and months of local time: as windows (CalendarWindows), and as what a timestamp is truncated to."""

from bisect import bisect_left
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from enum import StrEnum
from functools import cached_property
from zoneinfo import ZoneInfo

from headrace.model.arguments import Arguments, keywords
from headrace.model.beginnings import MIDNIGHT, Weekday, after_midnight, day_beginning, week_beginning, year_beginning
from headrace.model.expressions.methods import TimeUnit
from headrace.model.time import (
    END_OF_CALENDAR,
    GLOBAL_WINDOW_END,
    UNITS,
    Instant,
    duration,
    instant,
    is_finite,
    to_datetime,
)
from headrace.model.vocabulary import REQUIRED, word
from headrace.model.windows import Window, WindowFn, describe_windows, moved, touching, window_at


class CalendarUnit(StrEnum):
    """Periods of a calendar."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"


_MOST = {CalendarUnit.DAY: 365_242, CalendarUnit.WEEK: 52_177, CalendarUnit.MONTH: 12_000}
"""How many of each are a thousand years."""


@word("calendar", unit=REQUIRED, zone=REQUIRED, count=1, day_begins="00:00", week_begins="monday", year_begins=1)
@keywords
@dataclass(frozen=True, init=False)
class CalendarWindows(WindowFn):
    """Days, weeks or months of local time in ``zone``, ``count`` of them each, counted from 1970 (weeks from Monday,
    1969-12-29): ``CalendarWindows("month", "Europe/Berlin", 3)`` are quarters.

    A window starts at local midnight, or at the first moment of a day without one, and ends where the next one starts:
    daylight saving makes some windows longer and some shorter. Midnight is the earlier one if it comes twice.

    ``day_begins`` is the time of clocks at which days begin in place of midnight ("06:00"), also the first day of weeks
    and months; ``week_begins`` the day with which weeks begin ("sunday"), ``year_begins`` the number of the month from
    which months are counted (4: ``CalendarWindows("month", count=12, year_begins=4)`` are years from April on).

    >>> quarters = hr.CalendarWindows("month", "Europe/Berlin", 3)
    >>> quarters.count
    3
    """

    unit: CalendarUnit
    zone: str
    count: int
    day_begins: str
    week_begins: Weekday
    year_begins: int

    def __init__(
        self,
        unit: CalendarUnit | str,
        zone: str = "UTC",
        count: int = 1,
        *,
        day_begins: str = "00:00",
        week_begins: Weekday | str = Weekday.MONDAY,
        year_begins: int = 1,
    ) -> None:
        given = Arguments("CalendarWindows")
        object.__setattr__(self, "unit", given.choice("unit", unit, CalendarUnit))
        object.__setattr__(self, "zone", given.zone("zone", zone))
        number = given.whole("count", count, least=1)
        if number > _MOST[self.unit]:
            raise given.wrong("count", count, "windows of more than 1,000 years")
        object.__setattr__(self, "count", number)
        object.__setattr__(self, "day_begins", day_beginning(given, day_begins))
        object.__setattr__(self, "week_begins", week_beginning(given, week_begins, self.unit))
        month = year_beginning(given, year_begins, self.unit, is_of_months=self.unit is CalendarUnit.MONTH)
        object.__setattr__(self, "year_begins", month)

    @cached_property
    def day_shift(self) -> timedelta:
        """How long after midnight days begin."""
        return after_midnight(self.day_begins)

    @cached_property
    def first_week(self) -> date:
        """The first day of the week that 1970 begins in."""
        return _FIRST - timedelta(days=(_FIRST.weekday() - [*Weekday].index(self.week_begins)) % 7)


_FIRST = date(1970, 1, 1)
_LAST_DAY_BUT_ONE = Instant(END_OF_CALENDAR - UNITS["days"])
"""The last moment that clocks of all zones can show."""


def calendar_window(where: CalendarWindows, timestamp: Instant) -> Window:
    """The window that ``timestamp`` is in. The last one that begins in the year 9999 or before has no end but that of
    time, and is also that of panes which are dated beyond it (``ShiftedOutputTime`` of a global window).
    """
    moment = to_datetime(min(timestamp, _LAST_DAY_BUT_ONE))
    if moment is None:
        raise ValueError("an infinite instant is in no calendar window")
    shown = moment.astimezone(_zone(where.zone)).replace(tzinfo=None)
    number = number_of(where, (shown - where.day_shift).date())
    window = Window(start_of(where, number), _start_or_end(where, number + 1))
    if timestamp < window.end or window.end == GLOBAL_WINDOW_END:
        return window
    # Clocks that were set back over the begin of a day show the old one again, but the next window has begun.
    return Window(window.end, _start_or_end(where, number + 2))


@describe_windows.register(CalendarWindows)
def _(where: CalendarWindows) -> str:
    plural = "" if where.count == 1 else "s"
    parts = [f"windows of {where.count} calendar {where.unit}{plural}, of local time in {where.zone}"]
    if where.day_begins != MIDNIGHT:
        parts.append(f"days begin at {where.day_begins}")
    if where.week_begins is not Weekday.MONDAY:
        parts.append(f"weeks begin on {where.week_begins.title()}")
    if where.year_begins != 1:
        parts.append(f"counted from month {where.year_begins} on")
    return ", ".join(parts)


window_at.register(CalendarWindows, calendar_window)


@touching.register(CalendarWindows)
def _(where: CalendarWindows, span: Window) -> Window:
    start = calendar_window(where, span.start).start if is_finite(span.start) else span.start
    last = moved(span.end, -1)
    return Window(start, calendar_window(where, last).end if is_finite(last) else last)


def _start_or_end(where: CalendarWindows, number: int) -> Instant:
    """The first moment of a window, or if it is beyond the calendar, the end of time."""
    try:
        return start_of(where, number)
    except (ValueError, OverflowError):
        return GLOBAL_WINDOW_END


def number_of(where: CalendarWindows, day: date) -> int:
    """Which window the ``day`` is in, counted from 1970; it is named by the local date on which it begins."""
    match where.unit:
        case CalendarUnit.DAY:
            periods = (day - _FIRST).days
        case CalendarUnit.WEEK:
            periods = (day - where.first_week).days // 7
        case CalendarUnit.MONTH:
            periods = (day.year - _FIRST.year) * 12 + day.month - where.year_begins
    return periods // where.count


def start_of(where: CalendarWindows, number: int) -> Instant:
    """The first moment of window ``number``: when its first day begins."""
    periods = number * where.count
    match where.unit:
        case CalendarUnit.DAY:
            day = _FIRST + timedelta(days=periods)
        case CalendarUnit.WEEK:
            day = where.first_week + timedelta(weeks=periods)
        case CalendarUnit.MONTH:
            months = periods + where.year_begins - 1
            day = date(_FIRST.year + months // 12, months % 12 + 1, 1)
    return _begin(datetime.combine(day, time()) + where.day_shift, _zone(where.zone))


def _begin(clock: datetime, zone: tzinfo) -> Instant:
    """When clocks show ``clock``, with which a day begins: the first of two moments; if they skip it, when they do."""
    begin = instant(clock.replace(tzinfo=zone))
    shown = _local(begin, zone)
    if shown == clock:
        return begin
    # It is in a gap, so the clocks show it with the offset before: as long after the gap begins as it is inside.
    before = begin - duration(shown - clock)
    return Instant(before + bisect_left(range(before, begin), True, key=lambda at: _local(Instant(at), zone) >= clock))


_PERIODS = {
    TimeUnit.DAY: (CalendarUnit.DAY, 1),
    TimeUnit.WEEK: (CalendarUnit.WEEK, 1),
    TimeUnit.MONTH: (CalendarUnit.MONTH, 1),
    TimeUnit.QUARTER: (CalendarUnit.MONTH, 3),
    TimeUnit.YEAR: (CalendarUnit.MONTH, 12),
}


def periods(
    unit: TimeUnit, zone: str, day_begins: str = MIDNIGHT, week_begins: str = Weekday.MONDAY, year_begins: int = 1
) -> CalendarWindows:
    """The windows whose starts are the moments that ``unit``, a day or more, is truncated to."""
    of, count = _PERIODS[unit]
    return CalendarWindows(of, zone, count, day_begins=day_begins, week_begins=week_begins, year_begins=year_begins)


def _zone(name: str) -> tzinfo:
    return UTC if name == "UTC" else ZoneInfo(name)


def _local(moment: Instant, zone: tzinfo) -> datetime:
    """What clocks in ``zone`` show at ``moment``."""
    in_utc = to_datetime(moment)
    assert in_utc is not None
    return in_utc.astimezone(zone).replace(tzinfo=None)
