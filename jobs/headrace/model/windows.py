"""Where in event time: window functions (semantics, section 2; Dataflow paper, section 2.2).

A window is a half-open interval ``[start, end)`` of event time. These are what users configure; executors assign and
merge.
"""

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, NamedTuple

from headrace.model.arguments import Arguments, Length, Suggesting, keywords
from headrace.model.expressions.expr import Expr, render
from headrace.model.expressions.functions import expression
from headrace.model.time import (
    GLOBAL_WINDOW_END,
    LONGEST_WINDOW,
    MIN_INSTANT,
    Duration,
    Instant,
    is_finite,
    render_duration,
)
from headrace.model.vocabulary import REQUIRED, word


class Window(NamedTuple):
    """``[start, end)`` in granules. Ordered by (start, end).

    >>> hr.Window(0, 60).max_timestamp
    59
    """

    start: Instant
    end: Instant

    @property
    def max_timestamp(self) -> Instant:
        """Largest timestamp inside: one granule before the end (semantics 1.4)."""
        return Instant(self.end - 1)


GLOBAL_WINDOW = Window(MIN_INSTANT, GLOBAL_WINDOW_END)


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
def window_at(where: WindowFn, timestamp: Instant) -> Window | None:
    """The (newest) window of an element at ``timestamp``, as an example; None where that is none."""
    return None


@singledispatch
def touching(where: WindowFn, span: Window) -> Window | None:
    """The event times of elements in windows of ``where`` that touch ``span``, or some more; None if nobody can say."""
    return None


def moved(moment: Instant, by: int) -> Instant:
    """``moment`` and ``by`` more, if it is not one of the ends of time; within them."""
    return Instant(min(max(moment + by, MIN_INSTANT), GLOBAL_WINDOW_END)) if is_finite(moment) else moment


def _aligned(moment: Instant, period: int, offset: int) -> Instant:
    """The last of the moments ``offset`` + n * ``period`` that is not after ``moment``."""
    return Instant(moment - (moment - offset) % period) if is_finite(moment) else moment


def _starting(start: int, size: int) -> Window:
    return Window(Instant(start), Instant(start + size))


@word("fixed", size=REQUIRED, offset=0, phase=None)
@keywords
@dataclass(frozen=True, init=False)
class FixedWindows(WindowFn):
    """Windows of ``size`` one after another; ``offset`` (modulo size) shifts their starts from 1970-01-01T00:00 UTC.

    ``phase`` shifts them further, key by key: an int in microseconds over the columns of the key, so that not all keys
    fire at once (semantics 2.2), such as ``col("user").crc32() % 3600 * 1_000_000``. NULL does not shift.

    >>> hr.FixedWindows("1h", offset="15m")
    FixedWindows(size='1h', offset='15m', phase=None)
    """

    size: Duration
    offset: Duration
    phase: Expr | None

    def __init__(self, size: Length, offset: Length = "0s", phase: Expr | None = None) -> None:
        given = Arguments("FixedWindows")
        length = given.duration("size", size, least=1, most=LONGEST_WINDOW)
        object.__setattr__(self, "size", length)
        object.__setattr__(self, "offset", Duration(given.duration("offset", offset, least=None) % length))
        object.__setattr__(self, "phase", None if phase is None else expression(given, "phase", phase))


@describe_windows.register(FixedWindows)
def _(where: FixedWindows) -> str:
    shifts = [f"shifted by {render_duration(where.offset)}"] if where.offset else []
    shifts += [f"each key's by {render(where.phase)} microseconds"] if where.phase is not None else []
    return ", ".join([f"fixed windows of {render_duration(where.size)}", *shifts])


@window_at.register(FixedWindows)
def _(where: FixedWindows, timestamp: Instant) -> Window:
    return _starting(_aligned(timestamp, where.size, where.offset), where.size)


@touching.register(FixedWindows)
def _(where: FixedWindows, span: Window) -> Window:
    if where.phase is not None:
        return Window(moved(span.start, 1 - where.size), moved(span.end, where.size - 1))
    start, last = (_aligned(at, where.size, where.offset) for at in (span.start, moved(span.end, -1)))
    return Window(start, moved(last, where.size))


MOST_WINDOWS = 100_000
"""In how many sliding windows one record may be: there is a row of state for each window of each key."""


@word("sliding", size=REQUIRED, period=REQUIRED, offset=0)
@keywords
@dataclass(frozen=True, init=False)
class SlidingWindows(WindowFn):
    """A window of ``size`` starts every ``period``. With period > size some elements fall in no window (2.3).

    >>> hr.SlidingWindows("1h", period="10m")
    SlidingWindows(size='1h', period='10m', offset='0s')
    """

    size: Duration
    period: Duration
    offset: Duration

    def __init__(self, size: Length, period: Length, offset: Length = "0s") -> None:
        given = Arguments("SlidingWindows")
        step = given.duration("period", period, least=1, most=LONGEST_WINDOW)
        length = given.duration("size", size, least=1, most=LONGEST_WINDOW)
        if (number := -(-length // step)) > MOST_WINDOWS:
            why = f"every record would be in {number:,} windows, and it may be in {MOST_WINDOWS:,}; write a longer one"
            raise given.wrong("period", period, why)
        object.__setattr__(self, "size", length)
        object.__setattr__(self, "period", step)
        object.__setattr__(self, "offset", Duration(given.duration("offset", offset, least=None) % step))


@describe_windows.register(SlidingWindows)
def _(where: SlidingWindows) -> str:
    shift = f", shifted by {render_duration(where.offset)}" if where.offset else ""
    return f"sliding windows of {render_duration(where.size)}, a new one every {render_duration(where.period)}{shift}"


@window_at.register(SlidingWindows)
def _(where: SlidingWindows, timestamp: Instant) -> Window:
    return _starting(_aligned(timestamp, where.period, where.offset), where.size)


@touching.register(SlidingWindows)
def _(where: SlidingWindows, span: Window) -> Window:
    first = moved(_aligned(moved(span.start, -where.size), where.period, where.offset), where.period)
    last = _aligned(moved(span.end, -1), where.period, where.offset)
    return Window(first, moved(last, where.size)) if first <= last else span  # else it is between two windows


@word("sessions", gap=REQUIRED, touching_merges=False)
@keywords
@dataclass(frozen=True, init=False)
class Sessions(WindowFn):
    """Periods of activity of a key, closed by a ``gap``. Events exactly one gap apart are two sessions, unless
    ``touching_merges`` (semantics 2.4).

    >>> hr.Sessions("30m") == hr.Sessions(timedelta(minutes=30))
    True
    """

    gap: Duration
    touching_merges: bool

    def __init__(self, gap: Length, touching_merges: bool = False) -> None:
        given = Arguments("Sessions")
        object.__setattr__(self, "gap", given.duration("gap", gap, least=1, most=LONGEST_WINDOW))
        object.__setattr__(self, "touching_merges", given.flag("touching_merges", touching_merges))

    @property
    def merges(self) -> bool:
        return True


@describe_windows.register(Sessions)
def _(where: Sessions) -> str:
    exactly = "one session" if where.touching_merges else "two"
    return f"sessions, closed by a gap of {render_duration(where.gap)}; elements exactly that far apart are {exactly}"


@window_at.register(Sessions)
def _(where: Sessions, timestamp: Instant) -> Window:
    return _starting(timestamp, where.gap)


@touching.register(Sessions)
def _(where: Sessions, span: Window) -> Window:
    return Window(moved(span.start, -where.gap), span.end)


@word("global")
@keywords
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
        """The timestamp that an element of ``window`` gives its pane; the element's own unless a subclass moves it."""
        del window
        return timestamp


@word("shifted output time", inner=REQUIRED, shift=REQUIRED)
@keywords
@dataclass(frozen=True, init=False)
class ShiftedOutputTime(WindowFn):
    """``inner`` windows whose elements give their panes a timestamp ``shift`` later than theirs, beyond the window if
    need be (Beam's transformed output time). It counts for EARLIEST and LATEST (semantics 6.1).

    >>> hr.ShiftedOutputTime(hr.FixedWindows("1h"), "5m").merges
    False
    """

    inner: WindowFn
    shift: Duration

    def __init__(self, inner: WindowFn, shift: Length) -> None:
        given = Arguments("ShiftedOutputTime")
        object.__setattr__(
            self, "inner", given.instance("inner", inner, WindowFn, 'windows such as FixedWindows("1h")')
        )
        object.__setattr__(self, "shift", given.duration("shift", shift, most=LONGEST_WINDOW))

    @property
    def merges(self) -> bool:
        return self.inner.merges


@describe_windows.register(ShiftedOutputTime)
def _(where: ShiftedOutputTime) -> str:
    shift = render_duration(where.shift)
    return f"{describe_windows(where.inner)}; panes are dated {shift} later than their elements"


@window_at.register(ShiftedOutputTime)
def _(where: ShiftedOutputTime, timestamp: Instant) -> Window | None:
    return window_at(where.inner, timestamp)


@touching.register(ShiftedOutputTime)
def _(where: ShiftedOutputTime, span: Window) -> Window | None:
    return touching(where.inner, span)
