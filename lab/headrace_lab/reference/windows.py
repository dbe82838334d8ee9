"""Where: assigning windows to an element and merging the windows of a key (semantics, section 2)."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from headrace.errors import PipelineError
from headrace.model.expressions.data_types import Schema
from headrace.model.expressions.expr import Expr
from headrace.model.time import Instant
from headrace.model.windows import (
    GLOBAL_WINDOW,
    CalendarWindows,
    CustomWindows,
    FixedWindows,
    GlobalWindows,
    MergeGroup,
    Sessions,
    ShiftedOutputTime,
    SlidingWindows,
    Window,
    WindowFn,
    calendar_window,
    require_instant,
    require_interval,
)
from headrace_lab.reference.evaluate import Record, evaluate


def assign(  # noqa: PLR0911 (one line for each window function)
    where: WindowFn, timestamp: Instant, record: Mapping[str, Any] | None = None, phase: int = 0
) -> list[Window]:
    """The windows of an element, earliest first; none at all if it falls between sliding windows (2.3).

    ``phase`` is what ``phase_of`` gives for its key.
    """
    match where:
        case FixedWindows(size, offset):
            return [_starting(timestamp - (timestamp - offset - phase) % size, size)]
        case CalendarWindows():
            return [calendar_window(where, timestamp)]
        case SlidingWindows(size, period, offset):
            last = timestamp - (timestamp - offset) % period
            return [_starting(start, size) for start in range(last, timestamp - size, -period)][::-1]
        case Sessions(gap):
            return [_starting(timestamp, gap)]
        case GlobalWindows():
            return [GLOBAL_WINDOW]
        case CustomWindows():
            return sorted({require_interval(where, window) for window in where.assign(timestamp, record or {})})
        case ShiftedOutputTime(inner):
            return assign(inner, timestamp, record, phase)
    raise PipelineError(f"{where!r} is not a window function")


def phase_of(where: WindowFn, key: Record, types: Schema) -> int:
    """How far the windows of ``key`` are shifted; 0 unless the window function has a phase (2.2)."""
    match where:
        case ShiftedOutputTime(inner):
            return phase_of(inner, key, types)
        case FixedWindows(phase=Expr() as phase):
            return evaluate(phase, key, types) or 0
    return 0


def _starting(start: int, size: int) -> Window:
    return Window(Instant(start), Instant(start + size))


def last_unpassed(window: Window) -> Instant:
    """The last watermark that has not passed ``window`` (1.4). Plus infinity passes each, also beyond all time."""
    return Instant(min(window.max_timestamp, GLOBAL_WINDOW.max_timestamp))


def merge(where: WindowFn, windows: Collection[Window]) -> list[MergeGroup]:
    """The groups of ``windows`` (open and new ones of a key) that become another window; the others stay as they are.

    A group of one window whose result is that window is left out: nothing happens to it (3.5).
    Raises PipelineError if a custom window function breaks its contract (2.6).
    """
    match where:
        case Sessions():
            groups = [MergeGroup(frozenset(group), _span(group)) for group in _overlapping(where, windows)]
        case CustomWindows() if where.merges:
            groups = list(where.merge(windows))
            _check_contract(where, windows, groups)
        case ShiftedOutputTime(inner):
            groups = merge(inner, windows)
        case _:
            groups = []
    return [group for group in groups if group.sources != {group.result}]


def _overlapping(where: Sessions, windows: Collection[Window]) -> Iterator[list[Window]]:
    """Transitive unions of windows that overlap; windows that only touch stay apart unless ``touching_merges``
    (2.4).
    """
    group: list[Window] = []
    for window in sorted(windows):
        end = max((w.end for w in group), default=window.start)
        if group and (window.start > end or (window.start == end and not where.touching_merges)):
            yield group
            group = []
        group.append(window)
    if group:
        yield group


def _span(windows: Collection[Window]) -> Window:
    return Window(min(w.start for w in windows), max(w.end for w in windows))


def _check_contract(where: CustomWindows, windows: Collection[Window], groups: list[MergeGroup]) -> None:
    used: set[Window] = set()
    for sources, result in groups:
        require_interval(where, result)
        if sources & used or not sources <= set(windows):
            raise PipelineError(f"{where!r} merged a window twice, or one that it was not given: {sorted(sources)}")
        if result in windows and result not in sources:
            raise PipelineError(f"{where!r} merged {sorted(sources)} into {result}, another window of the key")
        used |= sources


def output_time(where: WindowFn, timestamp: Instant, window: Window) -> Instant:
    """The timestamp that an element lends its pane (EARLIEST, LATEST): its own, unless the window function moves it."""
    match where:
        case CustomWindows():
            return require_instant(where, where.output_time(timestamp, window))
        case ShiftedOutputTime(inner, shift):
            return Instant(output_time(inner, timestamp, window) + shift)
    return timestamp
