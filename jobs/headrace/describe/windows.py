"""Where in words: the windows, and one of them as an example with the times at which it fires and expires."""

from datetime import UTC, datetime
from functools import singledispatch

from headrace.model.accumulation import How
from headrace.model.calendar import calendar_window
from headrace.model.expressions.expr import render as render_expr
from headrace.model.time import END_OF_CALENDAR, Duration, Instant, instant, render, render_duration
from headrace.model.watermarks import BoundedOutOfOrderness, Monotonic, WatermarkStrategy
from headrace.model.windows import (
    CalendarWindows,
    FixedWindows,
    GlobalWindows,
    Sessions,
    ShiftedOutputTime,
    SlidingWindows,
    Window,
    WindowFn,
)

_EXAMPLE = instant(datetime(2026, 1, 1, tzinfo=UTC))


@singledispatch
def windows(where: WindowFn) -> str:
    """The windows of ``where`` in one line."""
    return f"windows of your own: {where!r}"


@windows.register
def _(where: FixedWindows) -> str:
    shifts = [f"shifted by {render_duration(where.offset)}"] if where.offset else []
    shifts += [f"each key's by {render_expr(where.phase)} microseconds"] if where.phase is not None else []
    return ", ".join([f"fixed windows of {render_duration(where.size)}", *shifts])


@windows.register
def _(where: SlidingWindows) -> str:
    shift = f", shifted by {render_duration(where.offset)}" if where.offset else ""
    return f"sliding windows of {render_duration(where.size)}, a new one every {render_duration(where.period)}{shift}"


@windows.register
def _(where: Sessions) -> str:
    exactly = "one session" if where.touching_merges else "two"
    return f"sessions, closed by a gap of {render_duration(where.gap)}; elements exactly that far apart are {exactly}"


@windows.register
def _(where: CalendarWindows) -> str:
    plural = "" if where.count == 1 else "s"
    return f"windows of {where.count} calendar {where.unit}{plural}, of local time in {where.zone}"


@windows.register
def _(where: GlobalWindows) -> str:
    return "one window for all of time"


@windows.register
def _(where: ShiftedOutputTime) -> str:
    return f"{windows(where.inner)}; panes are dated {render_duration(where.shift)} later than their elements"


def example_window(where: WindowFn) -> Window | None:
    """The (newest) window of an element of 2026-01-01T00:00:00Z; None where that is no example."""
    match where:
        case FixedWindows(size, offset, _):
            start = (_EXAMPLE - offset) // size * size + offset
            return Window(Instant(start), Instant(start + size))
        case SlidingWindows(size, period, offset):
            start = (_EXAMPLE - offset) // period * period + offset
            return Window(Instant(start), Instant(start + size))
        case Sessions(gap, _):
            return Window(_EXAMPLE, Instant(_EXAMPLE + gap))
        case CalendarWindows():
            return calendar_window(where, _EXAMPLE)
        case ShiftedOutputTime(inner, _):
            return example_window(inner)
    return None


def life(where: WindowFn, how: How, watermarks: list[WatermarkStrategy]) -> list[str]:
    """When an example of the windows is on time, and when it expires."""
    window = example_window(where)
    if window is None:
        return []
    lines = [f"example: [{render(window.start)}, {render(window.end)})"]
    on_time = f"on time when the watermark passes {render(window.end)}"
    bound = _bound(watermarks)
    if bound is not None:
        on_time += f": once a record of {render(Instant(window.end + bound))} or later has been read"
    lines.append(f"  {on_time}")
    if how.allowed_lateness is None:
        return [*lines, "  never expires: its state is kept for good"]
    if window.end + how.allowed_lateness > END_OF_CALENDAR:
        return [*lines, f"  expires {render_duration(how.allowed_lateness)} after that"]
    end = render(Instant(window.end + how.allowed_lateness))
    return [*lines, f"  expires when the watermark passes {end}; what comes for it after that is dropped as late"]


def _bound(watermarks: list[WatermarkStrategy]) -> Duration | None:
    """How far the watermark is behind the newest record, if it is the only one and that is all that it follows."""
    match watermarks:
        case [BoundedOutOfOrderness() as strategy]:
            return strategy.bound
        case [Monotonic()]:
            return Duration(0)
    return None
