"""Days, weeks and months of local time as windows (CalendarWindows)."""

from bisect import bisect_left
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from headrace.model.time import Instant, duration, instant, to_datetime
from headrace.model.windows import CalendarUnit, CalendarWindows, Window

_MONDAY = date(1969, 12, 29)
_FIRST = date(1970, 1, 1)


def calendar_window(where: CalendarWindows, timestamp: Instant) -> Window:
    """The window that ``timestamp`` is in."""
    moment = to_datetime(timestamp)
    if moment is None:
        raise ValueError("an infinite instant is in no calendar window")
    number = number_of(where, moment.astimezone(ZoneInfo(where.zone)).date())
    window = Window(start_of(where, number), start_of(where, number + 1))
    if timestamp < window.end:
        return window
    # Clocks that were set back over midnight show the old date again, but the next window has begun.
    return Window(window.end, start_of(where, number + 2))


def number_of(where: CalendarWindows, day: date) -> int:
    """Which window the local date ``day`` is in, counted from 1970."""
    match where.unit:
        case CalendarUnit.DAY:
            periods = (day - _FIRST).days
        case CalendarUnit.WEEK:
            periods = (day - _MONDAY).days // 7
        case CalendarUnit.MONTH:
            periods = (day.year - _FIRST.year) * 12 + day.month - 1
    return periods // where.count


def start_of(where: CalendarWindows, number: int) -> Instant:
    """The first moment of window ``number``: when its first day begins."""
    periods = number * where.count
    match where.unit:
        case CalendarUnit.DAY:
            day = _FIRST + timedelta(days=periods)
        case CalendarUnit.WEEK:
            day = _MONDAY + timedelta(weeks=periods)
        case CalendarUnit.MONTH:
            day = date(_FIRST.year + periods // 12, periods % 12 + 1, 1)
    return _begin(day, ZoneInfo(where.zone))


def _begin(day: date, zone: ZoneInfo) -> Instant:
    """When ``day`` begins: at midnight, at the first of two; where the clocks skip midnight, when they do."""
    midnight = instant(datetime.combine(day, time(), zone))
    shown = _local(midnight, zone)
    if (shown.date(), shown.time()) == (day, time()):
        return midnight
    # Midnight is in a gap, so the clocks show it with the offset before: as long after the gap begins as it is inside.
    before = midnight - duration(shown - datetime.combine(day, time()))
    return Instant(before + bisect_left(range(before, midnight), day, key=lambda at: _local(Instant(at), zone).date()))


def _local(moment: Instant, zone: ZoneInfo) -> datetime:
    """What clocks in ``zone`` show at ``moment``."""
    found = to_datetime(moment)
    assert found is not None
    return found.astimezone(zone).replace(tzinfo=None)
