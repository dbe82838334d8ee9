"""Where in event time: windows of fixed lengths, of calendars, of sessions, and users' own (semantics, section 2).

A window is a half-open interval ``[start, end)`` of event time (Dataflow paper, section 2.2). These are what users
configure; executors assign and merge. The calendar of a time zone serves windows, and timestamps that are truncated.
"""

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from enum import StrEnum
from functools import cached_property, singledispatch
from numbers import Integral
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from headrace.errors import PipelineError
from headrace.model import time as model_time
from headrace.model.arguments import (
    MIDNIGHT,
    REQUIRED,
    Arguments,
    Length,
    Suggesting,
    Weekday,
    after_midnight,
    check_keywords,
    day_beginning,
    register_word,
    week_beginning,
    year_beginning,
)
from headrace.model.expressions.columns import require_expression
from headrace.model.expressions.expr import Expr, render
from headrace.model.expressions.methods import TimeUnit


class Window(NamedTuple):
    """``[start, end)`` in granules. Ordered by (start, end).

    >>> hr.Window(0, 60).max_timestamp
    59
    """

    start: model_time.Instant
    end: model_time.Instant

    @property
    def max_timestamp(self) -> model_time.Instant:
        """Largest timestamp inside: one granule before the end (semantics 1.4)."""
        return model_time.Instant(self.end - 1)


GLOBAL_WINDOW = Window(model_time.MIN_INSTANT, model_time.GLOBAL_WINDOW_END)


class WindowFn(Suggesting):
    """What all window functions share.

    >>> isinstance(hr.Sessions("30m"), hr.WindowFn)
    True
    """

    @property
    def merges(self) -> bool:
        """Whether windows of a key can merge."""
        return False


@singledispatch
def describe_windows(where: WindowFn) -> str:
    """The windows of ``where`` in one line."""
    return f"windows of your own: {where!r}"


@singledispatch
def window_at(where: WindowFn, timestamp: model_time.Instant) -> Window | None:
    """The (newest) window of an element at ``timestamp``, as an example; None where that is none."""
    return None


@singledispatch
def touching(where: WindowFn, span: Window) -> Window | None:
    """The event times of elements in windows of ``where`` that touch ``span``, or some more; None if nobody can say."""
    return None


def shift_instant(moment: model_time.Instant, granules: int) -> model_time.Instant:
    """``moment`` and ``granules`` more, if it is not one of the ends of time; within them."""
    if not model_time.is_finite(moment):
        return moment
    return model_time.Instant(min(max(moment + granules, model_time.MIN_INSTANT), model_time.GLOBAL_WINDOW_END))


def _align_down(moment: model_time.Instant, period: int, offset: int) -> model_time.Instant:
    """The last of the moments ``offset`` + n * ``period`` that is not after ``moment``."""
    return model_time.Instant(moment - (moment - offset) % period) if model_time.is_finite(moment) else moment


def _window_from_start(start: int, size: int) -> Window:
    return Window(model_time.Instant(start), model_time.Instant(start + size))


@register_word("fixed", size=REQUIRED, offset=0, phase=None)
@check_keywords
@dataclass(frozen=True, init=False)
class FixedWindows(WindowFn):
    """Windows of ``size`` one after another; ``offset`` (modulo size) shifts their starts from 1970-01-01T00:00 UTC.

    ``phase`` shifts them further, key by key, so that not all keys fire at once (semantics 2.2). It is an int in
    microseconds over the columns of the key, such as ``col("user").crc32() % 3600 * 1_000_000``. NULL does not shift.

    >>> hr.FixedWindows("1h", offset="15m")
    FixedWindows(size='1h', offset='15m', phase=None)
    """

    size: model_time.Duration
    offset: model_time.Duration
    phase: Expr | None

    def __init__(self, size: Length, offset: Length = "0s", phase: Expr | None = None) -> None:
        arguments, set_ = Arguments("FixedWindows"), object.__setattr__
        length = arguments.duration("size", size, least=1, most=model_time.LONGEST_WINDOW)
        set_(self, "size", length)
        set_(self, "offset", model_time.Duration(arguments.duration("offset", offset, least=None) % length))
        set_(self, "phase", None if phase is None else require_expression(arguments, "phase", phase))


@describe_windows.register(FixedWindows)
def _(where: FixedWindows) -> str:
    shifts = [f"shifted by {model_time.render_duration(where.offset)}"] if where.offset else []
    shifts += [f"each key's by {render(where.phase)} microseconds"] if where.phase is not None else []
    return ", ".join([f"fixed windows of {model_time.render_duration(where.size)}", *shifts])


@window_at.register(FixedWindows)
def _(where: FixedWindows, timestamp: model_time.Instant) -> Window:
    return _window_from_start(_align_down(timestamp, where.size, where.offset), where.size)


@touching.register(FixedWindows)
def _(where: FixedWindows, span: Window) -> Window:
    if where.phase is not None:
        return Window(shift_instant(span.start, 1 - where.size), shift_instant(span.end, where.size - 1))
    start, last = (
        _align_down(instant, where.size, where.offset) for instant in (span.start, shift_instant(span.end, -1))
    )
    return Window(start, shift_instant(last, where.size))


MOST_WINDOWS = 100_000
"""In how many sliding windows one record may be: there is a row of state for each window of each key."""


@register_word("sliding", size=REQUIRED, period=REQUIRED, offset=0)
@check_keywords
@dataclass(frozen=True, init=False)
class SlidingWindows(WindowFn):
    """A window of ``size`` starts every ``period``. With period > size some elements fall in no window (2.3).

    >>> hr.SlidingWindows("1h", period="10m")
    SlidingWindows(size='1h', period='10m', offset='0s')
    """

    size: model_time.Duration
    period: model_time.Duration
    offset: model_time.Duration

    def __init__(self, size: Length, period: Length, offset: Length = "0s") -> None:
        arguments = Arguments("SlidingWindows")
        step = arguments.duration("period", period, least=1, most=model_time.LONGEST_WINDOW)
        length = arguments.duration("size", size, least=1, most=model_time.LONGEST_WINDOW)
        if (number := -(-length // step)) > MOST_WINDOWS:
            why = f"every record would be in {number:,} windows, and it may be in {MOST_WINDOWS:,}; write a longer one"
            raise arguments.refusal("period", period, why)
        object.__setattr__(self, "size", length)
        object.__setattr__(self, "period", step)
        object.__setattr__(self, "offset", model_time.Duration(arguments.duration("offset", offset, least=None) % step))


@describe_windows.register(SlidingWindows)
def _(where: SlidingWindows) -> str:
    shift = f", shifted by {model_time.render_duration(where.offset)}" if where.offset else ""
    size, period = map(model_time.render_duration, (where.size, where.period))
    return f"sliding windows of {size}, a new one every {period}{shift}"


@window_at.register(SlidingWindows)
def _(where: SlidingWindows, timestamp: model_time.Instant) -> Window:
    return _window_from_start(_align_down(timestamp, where.period, where.offset), where.size)


@touching.register(SlidingWindows)
def _(where: SlidingWindows, span: Window) -> Window:
    first = shift_instant(_align_down(shift_instant(span.start, -where.size), where.period, where.offset), where.period)
    last = _align_down(shift_instant(span.end, -1), where.period, where.offset)
    return Window(first, shift_instant(last, where.size)) if first <= last else span  # else it is between two windows


@register_word("sessions", gap=REQUIRED, touching_merges=False)
@check_keywords
@dataclass(frozen=True, init=False)
class Sessions(WindowFn):
    """Periods of activity of a key, closed by a ``gap``. Events exactly one gap apart are two sessions, unless
    ``touching_merges`` (semantics 2.4).

    >>> hr.Sessions("30m") == hr.Sessions(timedelta(minutes=30))
    True
    """

    gap: model_time.Duration
    touching_merges: bool

    merges = True

    def __init__(self, gap: Length, touching_merges: bool = False) -> None:
        arguments = Arguments("Sessions")
        object.__setattr__(self, "gap", arguments.duration("gap", gap, least=1, most=model_time.LONGEST_WINDOW))
        object.__setattr__(self, "touching_merges", arguments.flag("touching_merges", touching_merges))


@describe_windows.register(Sessions)
def _(where: Sessions) -> str:
    exactly = "one session" if where.touching_merges else "two"
    gap = model_time.render_duration(where.gap)
    return f"sessions, closed by a gap of {gap}; elements exactly that far apart are {exactly}"


@window_at.register(Sessions)
def _(where: Sessions, timestamp: model_time.Instant) -> Window:
    return _window_from_start(timestamp, where.gap)


@touching.register(Sessions)
def _(where: Sessions, span: Window) -> Window:
    return Window(shift_instant(span.start, -where.gap), span.end)


@register_word("global")
@check_keywords
@dataclass(frozen=True)
class GlobalWindows(WindowFn):
    """One window for all of time.

    >>> hr.GlobalWindows().merges
    False
    """


@describe_windows.register(GlobalWindows)
def _(where: GlobalWindows) -> str:
    return "one window for all of time"


@touching.register(GlobalWindows)
def _(where: GlobalWindows, span: Window) -> Window:
    return GLOBAL_WINDOW


class MergeGroup(NamedTuple):
    """Windows of one key that become ``result`` together.

    >>> open_ones = frozenset({hr.Window(0, 5), hr.Window(4, 9)})
    >>> hr.MergeGroup(open_ones, hr.Window(0, 9)).result
    Window(start=0, end=9)
    """

    sources: frozenset[Window]
    result: Window


class CustomWindows(WindowFn):
    """A user's own window function: subclass it as a frozen dataclass, and override ``merges`` if windows can merge.

    Its methods are pure functions of their arguments and the fields: a retraction finds its windows by assigning again.

    >>> @dataclass(frozen=True)
    ... class Odd(hr.CustomWindows):
    ...     def assign(self, timestamp, record):
    ...         return [hr.Window(timestamp, timestamp + 1)] if timestamp % 2 else []
    >>> list(Odd().assign(3, {}))
    [Window(start=3, end=4)]
    """

    @abstractmethod
    def assign(self, timestamp: model_time.Instant, record: Mapping[str, Any]) -> Iterable[Window]:
        """The windows of one element, each once. None at all is legal: the element vanishes.

        ``timestamp`` is its event time in microseconds since 1970 UTC, ``record`` its values by column.
        """

    def merge(self, windows: Collection[Window]) -> Iterable[MergeGroup]:
        """Which of the open and new ``windows`` of a key merge, and into what; windows in no group stay as they are.

        Each window is a source of at most one group. A result is one of its sources, or a window that is not open; it
        may be smaller than its sources (semantics 2.6).
        """
        del windows
        return ()

    def output_time(self, timestamp: model_time.Instant, window: Window) -> model_time.Instant:
        """The timestamp that an element of ``window`` gives its pane; the element's own unless a subclass moves it."""
        del window
        return timestamp


def require_interval(where: CustomWindows, window: Any) -> Window:
    """The ``window`` that a user's own function gave. Raises PipelineError if it is no interval in time (2.6)."""
    if isinstance(window, Window) and all(map(_is_instant, window)) and window.start <= window.end:
        return window
    raise PipelineError(
        f"{where!r} gave {window!r}: a window is hr.Window(start, end), of whole microseconds since 1970, and does not "
        "end before it starts"
    )


def require_instant(where: CustomWindows, timestamp: Any) -> model_time.Instant:
    """The output time that a user's own function gave. Raises PipelineError if it is no instant (2.6)."""
    if _is_instant(timestamp):
        return model_time.Instant(timestamp)
    raise PipelineError(
        f"{where!r} gave the output time {timestamp!r}: an output time is whole microseconds since 1970"
    )


def _is_instant(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and abs(int(value)) <= model_time.NEVER


@register_word("shifted output time", inner=REQUIRED, shift=REQUIRED)
@check_keywords
@dataclass(frozen=True, init=False)
class ShiftedOutputTime(WindowFn):
    """``inner`` windows whose elements give their panes a timestamp ``shift`` later than theirs, beyond the window if
    need be (Beam's transformed output time). It counts for EARLIEST and LATEST (semantics 6.1).

    >>> hr.ShiftedOutputTime(hr.FixedWindows("1h"), "5m").merges
    False
    """

    inner: WindowFn
    shift: model_time.Duration

    def __init__(self, inner: WindowFn, shift: Length) -> None:
        arguments, set_ = Arguments("ShiftedOutputTime"), object.__setattr__
        set_(self, "inner", arguments.instance("inner", inner, WindowFn, 'windows such as FixedWindows("1h")'))
        set_(self, "shift", arguments.duration("shift", shift, most=model_time.LONGEST_WINDOW))

    @property
    def merges(self) -> bool:
        return self.inner.merges


def unshift_windows(where: WindowFn) -> WindowFn:
    """``where``, without the shift of output times that may stand around it."""
    return where.inner if isinstance(where, ShiftedOutputTime) else where


@describe_windows.register(ShiftedOutputTime)
def _(where: ShiftedOutputTime) -> str:
    shift = model_time.render_duration(where.shift)
    return f"{describe_windows(where.inner)}; panes are dated {shift} later than their elements"


@window_at.register(ShiftedOutputTime)
def _(where: ShiftedOutputTime, timestamp: model_time.Instant) -> Window | None:
    return window_at(where.inner, timestamp)


@touching.register(ShiftedOutputTime)
def _(where: ShiftedOutputTime, span: Window) -> Window | None:
    return touching(where.inner, span)


class CalendarUnit(StrEnum):
    """Periods of a calendar."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"


_MOST_PERIODS = {CalendarUnit.DAY: 365_242, CalendarUnit.WEEK: 52_177, CalendarUnit.MONTH: 12_000}
"""How many of each are a thousand years."""


@register_word(
    "calendar", unit=REQUIRED, zone=REQUIRED, count=1, day_begins="00:00", week_begins="monday", year_begins=1
)
@check_keywords
@dataclass(frozen=True, init=False)
class CalendarWindows(WindowFn):
    """Days, weeks or months of local time in ``zone``, ``count`` of them each, counted from 1970 (weeks from Monday,
    1969-12-29): ``CalendarWindows("month", "Europe/Berlin", 3)`` are quarters. ``unit`` is "day", "week" or "month".

    A window starts at local midnight, or at the first moment of a day without one, and ends where the next one starts.
    Daylight saving makes some windows longer and some shorter. Midnight is the earlier one if it comes twice.

    ``day_begins`` is the time of clocks at which days begin in place of midnight ("06:00"), also the first day of weeks
    and months; ``week_begins`` is the day with which weeks begin ("sunday"). ``year_begins`` is the number of the month
    from which months are counted (4: ``CalendarWindows("month", count=12, year_begins=4)`` are years from April on).

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
        arguments = Arguments("CalendarWindows")
        object.__setattr__(self, "unit", arguments.choice("unit", unit, CalendarUnit))
        object.__setattr__(self, "zone", arguments.time_zone("zone", zone))
        number = arguments.whole_number("count", count, least=1)
        if number > _MOST_PERIODS[self.unit]:
            raise arguments.refusal("count", count, "windows of more than 1,000 years")
        object.__setattr__(self, "count", number)
        object.__setattr__(self, "day_begins", day_beginning(arguments, day_begins))
        object.__setattr__(self, "week_begins", week_beginning(arguments, week_begins, self.unit))
        month = year_beginning(arguments, year_begins, self.unit, is_of_months=self.unit is CalendarUnit.MONTH)
        object.__setattr__(self, "year_begins", month)

    @cached_property
    def day_shift(self) -> timedelta:
        """How long after midnight days begin."""
        return after_midnight(self.day_begins)

    @cached_property
    def first_week(self) -> date:
        """The first day of the week that 1970 begins in."""
        return _FIRST_DATE - timedelta(days=(_FIRST_DATE.weekday() - [*Weekday].index(self.week_begins)) % 7)


_FIRST_DATE = date(1970, 1, 1)
_LAST_DAY_BUT_ONE = model_time.Instant(model_time.END_OF_CALENDAR - model_time.UNITS["days"])
"""The last moment that clocks of all zones can show."""


def calendar_window(where: CalendarWindows, timestamp: model_time.Instant) -> Window:
    """The window that ``timestamp`` is in. The last window begins in the year 9999 or before, and ends with time
    itself. It is also the window of panes that are dated beyond it (``ShiftedOutputTime`` of a global window).
    """
    moment = model_time.to_datetime(min(timestamp, _LAST_DAY_BUT_ONE))
    if moment is None:
        raise ValueError("an infinite instant is in no calendar window")
    clock_time = moment.astimezone(_time_zone(where.zone)).replace(tzinfo=None)
    number = number_of(where, (clock_time - where.day_shift).date())
    window = Window(start_of(where, number), _start_or_end(where, number + 1))
    if timestamp < window.end or window.end == model_time.GLOBAL_WINDOW_END:
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
    start = calendar_window(where, span.start).start if model_time.is_finite(span.start) else span.start
    last = shift_instant(span.end, -1)
    return Window(start, calendar_window(where, last).end if model_time.is_finite(last) else last)


def _start_or_end(where: CalendarWindows, number: int) -> model_time.Instant:
    """The first moment of a window, or if it is beyond the calendar, the end of time."""
    try:
        return start_of(where, number)
    except (ValueError, OverflowError):
        return model_time.GLOBAL_WINDOW_END


def number_of(where: CalendarWindows, day: date) -> int:
    """Which window the ``day`` is in, counted from 1970; it is named by the local date on which it begins."""
    match where.unit:
        case CalendarUnit.DAY:
            periods = (day - _FIRST_DATE).days
        case CalendarUnit.WEEK:
            periods = (day - where.first_week).days // 7
        case CalendarUnit.MONTH:
            periods = (day.year - _FIRST_DATE.year) * 12 + day.month - where.year_begins
    return periods // where.count


def start_of(where: CalendarWindows, number: int) -> model_time.Instant:
    """The first moment of window ``number``: when its first day begins."""
    periods = number * where.count
    match where.unit:
        case CalendarUnit.DAY:
            day = _FIRST_DATE + timedelta(days=periods)
        case CalendarUnit.WEEK:
            day = where.first_week + timedelta(weeks=periods)
        case CalendarUnit.MONTH:
            months = periods + where.year_begins - 1
            day = date(_FIRST_DATE.year + months // 12, months % 12 + 1, 1)
    return _day_begin(datetime.combine(day, time()) + where.day_shift, _time_zone(where.zone))


def _day_begin(clock: datetime, zone: tzinfo) -> model_time.Instant:
    """When clocks show ``clock``, with which a day begins: the first of two moments; if they skip it, when they do."""
    begin = model_time.to_instant(clock.replace(tzinfo=zone))
    local_time = _to_local_time(begin, zone)
    if local_time == clock:
        return begin
    # It is in a gap, so the clocks show it with the offset before: as long after the gap begins as it is inside.
    lower_bound = begin - model_time.to_duration(local_time - clock)
    return model_time.Instant(
        lower_bound
        + bisect_left(
            range(lower_bound, begin),
            True,
            key=lambda instant: _to_local_time(model_time.Instant(instant), zone) >= clock,
        )
    )


_PERIODS = {
    TimeUnit.DAY: (CalendarUnit.DAY, 1),
    TimeUnit.WEEK: (CalendarUnit.WEEK, 1),
    TimeUnit.MONTH: (CalendarUnit.MONTH, 1),
    TimeUnit.QUARTER: (CalendarUnit.MONTH, 3),
    TimeUnit.YEAR: (CalendarUnit.MONTH, 12),
}


def periods_of_unit(
    unit: TimeUnit,
    zone: str,
    day_begins: str = MIDNIGHT,
    week_begins: str = Weekday.MONDAY,
    year_begins: int = 1,
) -> CalendarWindows:
    """The windows whose starts are the moments that ``unit``, a day or more, is truncated to."""
    window_unit, count = _PERIODS[unit]
    return CalendarWindows(
        window_unit, zone, count, day_begins=day_begins, week_begins=week_begins, year_begins=year_begins
    )


def _time_zone(name: str) -> tzinfo:
    return UTC if name == "UTC" else ZoneInfo(name)


def _to_local_time(moment: model_time.Instant, zone: tzinfo) -> datetime:
    """What clocks in ``zone`` show at ``moment``."""
    in_utc = model_time.to_datetime(moment)
    assert in_utc is not None
    return in_utc.astimezone(zone).replace(tzinfo=None)
