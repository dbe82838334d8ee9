"""Days, weeks and months of local time as windows (CalendarWindows)."""

from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from headrace.model.time import Instant, instant, to_datetime
from headrace.model.windows import CalendarUnit, CalendarWindows, Window

_MONDAY = date(1969, 12, 29)
_FIRST = date(1970, 1, 1)


def calendar_window(where: CalendarWindows, timestamp: Instant) -> Window:
    """The window that ``timestamp`` is in."""
    moment = to_datetime(timestamp)
    if moment is None:
        raise ValueError("an infinite instant is in no calendar window")
    number = _number(where, moment.astimezone(ZoneInfo(where.zone)).date())
    window = Window(_start(where, number), _start(where, number + 1))
    if timestamp < window.end:
        return window
    # Clocks that were set back over midnight show the old date again, but the next window has begun.
    return Window(window.end, _start(where, number + 2))


def _number(where: CalendarWindows, day: date) -> int:
    """Which window ``day`` is in, counted from 1970."""
    match where.unit:
        case CalendarUnit.DAY:
            periods = (day - _FIRST).days
        case CalendarUnit.WEEK:
            periods = (day - _MONDAY).days // 7
        case CalendarUnit.MONTH:
            periods = (day.year - _FIRST.year) * 12 + day.month - 1
    return periods // where.count


def _start(where: CalendarWindows, number: int) -> Instant:
    """The first moment of window ``number``: midnight where it begins. Of two midnights the first; a midnight that the
    clocks skip is the moment at which they do."""
    periods = number * where.count
    match where.unit:
        case CalendarUnit.DAY:
            day = _FIRST + timedelta(days=periods)
        case CalendarUnit.WEEK:
            day = _MONDAY + timedelta(weeks=periods)
        case CalendarUnit.MONTH:
            day = date(_FIRST.year + periods // 12, periods % 12 + 1, 1)
    return instant(datetime.combine(day, time(), ZoneInfo(where.zone)))
