"""Which event times a range of results depends on: those of the elements in windows that touch the range."""

from headrace.model.calendar import calendar_window
from headrace.model.time import GLOBAL_WINDOW_END, MIN_INSTANT, Instant, is_finite
from headrace.model.windows import (
    GLOBAL_WINDOW,
    CalendarWindows,
    FixedWindows,
    GlobalWindows,
    Sessions,
    ShiftedOutputTime,
    SlidingWindows,
    Window,
    WindowFn,
)
from headrace.pipeline.pipeline import Pipeline


def reach(pipeline: Pipeline, span: Window) -> Window | None:
    """Event times of records, without which no window of the last stage that touches ``span`` is whole; None if nobody
    can say how far windows reach (a window function of a user's own).

    A session that touches the span reaches back by one gap; what it had before that belongs to it as well.
    """
    last, *others = (stage.aggregation.where for stage in reversed(pipeline.stages))
    found = _reach(last, span)
    for where in others:
        if found is None:
            return None
        # its panes are elements of the stage after it, at a time in their window or, where it is shifted, later
        found = _reach(where, Window(_moved(found.start, -_shift(where)), found.end))
    return found


def _reach(where: WindowFn, span: Window) -> Window | None:  # noqa: PLR0911 (one case for each window function)
    """The event times of elements in windows of ``where`` that touch ``span``, or some more."""
    match where:
        case FixedWindows(size, _, phase) if phase is not None:
            return Window(_moved(span.start, 1 - size), _moved(span.end, size - 1))
        case FixedWindows(size, offset):
            start, last = _aligned(span.start, size, offset), _aligned(_moved(span.end, -1), size, offset)
            return Window(start, _moved(last, size))
        case SlidingWindows(size, period, offset):
            first = _moved(_aligned(_moved(span.start, -size), period, offset), period)
            last = _aligned(_moved(span.end, -1), period, offset)
            return Window(first, _moved(last, size)) if first <= last else span  # else it is between two windows
        case Sessions(gap):
            return Window(_moved(span.start, -gap), span.end)
        case CalendarWindows():
            start = calendar_window(where, span.start).start if is_finite(span.start) else span.start
            last = _moved(span.end, -1)
            return Window(start, calendar_window(where, last).end if is_finite(last) else last)
        case GlobalWindows():
            return GLOBAL_WINDOW
        case ShiftedOutputTime(inner):
            return _reach(inner, span)
    return None


def _shift(where: WindowFn) -> int:
    return where.shift + _shift(where.inner) if isinstance(where, ShiftedOutputTime) else 0


def _aligned(moment: Instant, period: int, offset: int) -> Instant:
    """The last of the moments ``offset`` + n * ``period`` that is not after ``moment``."""
    return Instant(moment - (moment - offset) % period) if is_finite(moment) else moment


def _moved(moment: Instant, by: int) -> Instant:
    """``moment`` and ``by`` more, if it is not one of the ends of time; within them."""
    return Instant(min(max(moment + by, MIN_INSTANT), GLOBAL_WINDOW_END)) if is_finite(moment) else moment
