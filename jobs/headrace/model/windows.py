"""Where in event time: window functions (semantics, section 2; Dataflow paper, section 2.2).

A window is a half-open interval ``[start, end)`` of event time. These are what users configure; executors assign and
merge.
"""

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from headrace.errors import PipelineError
from headrace.model.expr import Expr
from headrace.model.time import GLOBAL_WINDOW_END, MIN_INSTANT, Duration, Instant, duration


class Window(NamedTuple):
    """``[start, end)`` in granules. Ordered by (start, end)."""

    start: Instant
    end: Instant

    @property
    def max_timestamp(self) -> Instant:
        """Largest timestamp inside: one granule before the end (semantics 1.4)."""
        return Instant(self.end - 1)


GLOBAL_WINDOW = Window(MIN_INSTANT, GLOBAL_WINDOW_END)


class WindowFn:
    """What all window functions share."""

    @property
    def merges(self) -> bool:
        """Whether windows of a key can merge."""
        return False


def _positive(name: str, value: timedelta | int) -> Duration:
    granules = duration(value) if isinstance(value, timedelta) else Duration(value)
    if granules <= 0:
        raise PipelineError(f"{name} must be longer than zero, not {value}")
    return granules


def _granules(value: timedelta | int) -> Duration:
    return duration(value) if isinstance(value, timedelta) else Duration(value)


@dataclass(frozen=True, init=False)
class FixedWindows(WindowFn):
    """Windows of ``size`` one after another; ``offset`` (modulo size) shifts their starts from 1970-01-01T00:00 UTC.

    ``phase`` shifts them further, key by key: an int in microseconds over the columns of the key, so that not all keys
    fire at once (semantics 2.2), such as ``crc32(col("user")) % 3600 * 1_000_000``. NULL does not shift.
    """

    size: Duration
    offset: Duration
    phase: Expr | None

    def __init__(self, size: timedelta | int, offset: timedelta | int = 0, phase: Expr | None = None) -> None:
        granules = _positive("the size of fixed windows", size)
        object.__setattr__(self, "size", granules)
        object.__setattr__(self, "offset", Duration(_granules(offset) % granules))
        object.__setattr__(self, "phase", phase)


@dataclass(frozen=True, init=False)
class SlidingWindows(WindowFn):
    """A window of ``size`` starts every ``period``. With period > size some elements fall in no window (2.3)."""

    size: Duration
    period: Duration
    offset: Duration

    def __init__(self, size: timedelta | int, period: timedelta | int, offset: timedelta | int = 0) -> None:
        step = _positive("the period of sliding windows", period)
        object.__setattr__(self, "size", _positive("the size of sliding windows", size))
        object.__setattr__(self, "period", step)
        object.__setattr__(self, "offset", Duration(_granules(offset) % step))


@dataclass(frozen=True, init=False)
class Sessions(WindowFn):
    """Periods of activity of a key, closed by a ``gap``. Events exactly one gap apart are two sessions, unless
    ``touching_merges`` (semantics 2.4)."""

    gap: Duration
    touching_merges: bool

    def __init__(self, gap: timedelta | int, touching_merges: bool = False) -> None:
        object.__setattr__(self, "gap", _positive("the gap of sessions", gap))
        object.__setattr__(self, "touching_merges", touching_merges)

    @property
    def merges(self) -> bool:
        return True


class CalendarUnit(StrEnum):
    """Periods of a calendar. Weeks start on Monday."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"


@dataclass(frozen=True, init=False)
class CalendarWindows(WindowFn):
    """Days, weeks or months of local time in ``zone``, ``count`` of them each, counted from 1970 (weeks from Monday,
    1969-12-29): ``CalendarWindows("month", "Europe/Berlin", 3)`` are quarters.

    A window starts at local midnight, or at the first moment of a day without one, and ends where the next one starts:
    daylight saving makes some windows longer and some shorter. Midnight is the earlier one if it comes twice.
    """

    unit: CalendarUnit
    zone: str
    count: int

    def __init__(self, unit: CalendarUnit | str, zone: str = "UTC", count: int = 1) -> None:
        if unit not in list(CalendarUnit):
            raise PipelineError(f"calendar windows are of {', '.join(CalendarUnit)}, not {unit!r}")
        if count < 1:
            raise PipelineError(f"a calendar window is at least 1 {unit} long, not {count}")
        try:
            ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError):
            raise PipelineError(f"there is no time zone {zone!r}; name one like Europe/Berlin") from None
        object.__setattr__(self, "unit", CalendarUnit(unit))
        object.__setattr__(self, "zone", zone)
        object.__setattr__(self, "count", count)


@dataclass(frozen=True)
class GlobalWindows(WindowFn):
    """One window for all of time."""


class MergeGroup(NamedTuple):
    """Windows of one key that become ``result`` together."""

    sources: frozenset[Window]
    result: Window


class CustomWindows(WindowFn):
    """A user's own window function: subclass it as a frozen dataclass, and override ``merges`` if windows can merge.

    Its methods are pure functions of their arguments and the fields: a retraction finds its windows by assigning again.
    """

    @abstractmethod
    def assign(self, timestamp: Instant, record: Mapping[str, Any]) -> Iterable[Window]:
        """The windows of one element, each once. None at all is legal: the element vanishes."""

    def merge(self, windows: Collection[Window]) -> Iterable[MergeGroup]:
        """Which of the open and new ``windows`` of a key merge, and into what; windows in no group stay as they are.

        Each window is a source of at most one group. A result is one of its sources, or a window that is not open; it
        may be smaller than its sources (semantics 2.6).
        """
        del windows
        return ()

    def output_time(self, timestamp: Instant, window: Window) -> Instant:
        """The timestamp that an element of ``window`` lends its pane; the element's own unless a subclass moves it."""
        del window
        return timestamp


@dataclass(frozen=True, init=False)
class ShiftedOutputTime(WindowFn):
    """``inner`` windows whose elements lend their panes a timestamp ``shift`` later than theirs, beyond the window if
    need be (Beam's transformed output time). It counts for EARLIEST and LATEST (semantics 6.1)."""

    inner: WindowFn
    shift: Duration

    def __init__(self, inner: WindowFn, shift: timedelta | int) -> None:
        if _granules(shift) < 0:
            raise PipelineError(f"the shift of an output time must not be negative: {shift}")
        object.__setattr__(self, "inner", inner)
        object.__setattr__(self, "shift", _granules(shift))

    @property
    def merges(self) -> bool:
        return self.inner.merges
