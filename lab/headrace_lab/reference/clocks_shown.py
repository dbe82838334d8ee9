"""What clocks of a time zone show, when they show it, and when the units of their time began."""

from bisect import bisect_left
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from headrace.model.expressions.methods import Skipped, TimeUnit, Twice
from headrace.model.time import (
    BEGIN_OF_CALENDAR,
    END_OF_CALENDAR,
    Instant,
    is_finite,
    to_datetime,
    to_duration,
    to_instant,
)
from headrace.model.windows import CalendarWindows, number_of, periods_of_unit, start_of

_OF_A_CLOCK = (TimeUnit.HOUR, TimeUnit.MINUTE)


def local_time(moment: Instant, zone: str) -> datetime | None:
    """What clocks in ``zone`` show at ``moment``; None outside the years 1 to 9999."""
    try:
        return _local(moment, _zone(zone)) if is_finite(moment) else None
    except OverflowError:
        return None


def moment_shown(shown_instant: Instant, zone: str, text_twice: str, skipped_text: str) -> Instant | None:
    """When clocks in ``zone`` show what UTC shows at ``shown_instant``; None outside the years 1 to 9999."""
    in_utc = to_datetime(shown_instant) if BEGIN_OF_CALENDAR <= shown_instant <= END_OF_CALENDAR else None
    if in_utc is None:
        return None
    clock = in_utc.replace(tzinfo=None)
    first, second = (to_instant(clock.replace(tzinfo=_zone(zone), fold=fold)) for fold in (0, 1))
    try:
        if first == second:
            moment: Instant | None = first
        elif _local(first, _zone(zone)) == clock:
            moment = {Twice.FIRST: first, Twice.SECOND: second}.get(Twice(text_twice))
        else:  # with the offset before, which shows it as much later as clocks are set forward
            moment = first if skipped_text == Skipped.LATER else None
    except OverflowError:
        return None
    return moment if moment is not None and BEGIN_OF_CALENDAR <= moment <= END_OF_CALENDAR else None


def truncate_time(moment: Instant, unit: TimeUnit, zone: str, *beginnings: Any) -> Instant | None:
    """When the ``unit`` of ``moment`` began; None outside the years 1 to 9999. ``beginnings``: as in ``periods``."""
    local_moment = local_time(moment, zone)
    if local_moment is None:
        return None
    try:
        if unit not in _OF_A_CLOCK:
            where = periods_of_unit(unit, zone, *beginnings)
            return _period_start(where, moment, (local_moment - where.day_shift).date())
        return _clock_start(moment, local_moment, unit, zone)
    except (ValueError, OverflowError):
        return None


def _period_start(where: CalendarWindows, moment: Instant, day: date) -> Instant:
    number = number_of(where, day)
    try:
        following = start_of(where, number + 1)
    except (ValueError, OverflowError):
        return start_of(where, number)
    # Clocks that were set back over midnight show the old date again, but the next day has begun.
    return following if following <= moment else start_of(where, number)


def _clock_start(moment: Instant, local: datetime, unit: TimeUnit, zone: str) -> Instant:
    since_start = timedelta(minutes=local.minute if unit is TimeUnit.HOUR else 0, seconds=local.second)
    start = moment - to_duration(since_start) - local.microsecond

    def offset(instant: int) -> int:
        return to_instant(_local(Instant(instant), _zone(zone)).replace(tzinfo=UTC)) - instant

    if offset(start) == offset(moment):
        return Instant(start)
    # Clocks were set within the unit: it began when they were.
    return Instant(
        start + bisect_left(range(start, moment), True, key=lambda instant: offset(instant) == offset(moment))
    )


def _zone(name: str) -> tzinfo:
    return UTC if name == "UTC" else ZoneInfo(name)


def _local(moment: Instant, zone: tzinfo) -> datetime:
    in_utc = to_datetime(moment)
    assert in_utc is not None
    return in_utc.astimezone(zone).replace(tzinfo=None)
