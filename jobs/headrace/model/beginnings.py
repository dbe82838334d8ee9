"""Where days, weeks and years begin, if not as in the calendar: options of windows and of truncated times."""

import re
from datetime import timedelta
from enum import StrEnum

from headrace.model.arguments import Arguments


class Weekday(StrEnum):
    """The days of a week."""

    MONDAY = "monday"
    TUESDAY = "tuesday"
    WEDNESDAY = "wednesday"
    THURSDAY = "thursday"
    FRIDAY = "friday"
    SATURDAY = "saturday"
    SUNDAY = "sunday"


MIDNIGHT = "00:00"
_CLOCK = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]")


def day_beginning(given: Arguments, clock: str) -> str:
    """The time of clocks at which days begin. Raises PipelineError."""
    if not isinstance(clock, str) or not _CLOCK.fullmatch(clock):
        raise given.wrong("day_begins", clock, 'write a time of clocks such as "06:00"')
    return clock


def week_beginning(given: Arguments, day: Weekday | str, unit: str) -> Weekday:
    """The day with which weeks begin. Raises PipelineError, also where another ``unit`` has no use for it."""
    weekday = given.choice("week_begins", day, Weekday)
    if weekday is not Weekday.MONDAY and unit != "week":
        raise given.wrong("week_begins", day, f"it is about weeks, and these are {unit}s")
    return weekday


def year_beginning(given: Arguments, month: int, unit: str, *, is_of_months: bool) -> int:
    """The month with which years begin. Raises PipelineError, also where a ``unit`` is not made of months."""
    first_month = given.whole("year_begins", month, least=1)
    if first_month > 12:
        raise given.wrong("year_begins", month, "write the number of a month, 1 to 12")
    if first_month > 1 and not is_of_months:
        raise given.wrong("year_begins", month, f"it is about months, and these are {unit}s")
    return first_month


def after_midnight(clock: str) -> timedelta:
    """How long after midnight clocks show ``clock``."""
    hours, minutes = map(int, clock.split(":"))
    return timedelta(hours=hours, minutes=minutes)
