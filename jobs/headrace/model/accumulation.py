"""How refinements relate: accumulation, lateness and the behaviours at the end of a window (semantics, section 5)."""

from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import TypedDict, Unpack

from headrace.errors import PipelineError
from headrace.model.time import MAX_INSTANT, Duration, duration


class Accumulation(StrEnum):
    """What a pane holds: what came since the last pane, everything, or everything after withdrawing the last pane."""

    DISCARDING = "DISCARDING"
    ACCUMULATING = "ACCUMULATING"
    RETRACTING = "RETRACTING"


class Firing(StrEnum):
    """Whether a pane without new elements is emitted."""

    ALWAYS = "FIRE_ALWAYS"
    IF_NON_EMPTY = "FIRE_IF_NON_EMPTY"


class TimestampCombiner(StrEnum):
    """Which timestamp a pane gets from its on-time elements (semantics 6.1)."""

    END_OF_WINDOW = "END_OF_WINDOW"
    EARLIEST = "EARLIEST"
    LATEST = "LATEST"


@dataclass(frozen=True, init=False)
class How:
    """One of the model's four questions: how do refinements of a result relate.

    ``allowed_lateness`` None means that a window never expires. ``on_time`` decides whether the ON_TIME pane is emitted
    without new elements, ``closing`` whether the last one is. With ``keep_last`` n a window holds no more than its last
    n elements in order of arrival (sliding count windows).

    ``elide_unchanged``, when retracting: a pane with the window, values and timestamp of the only one that it would
    withdraw is not emitted, nor is that one withdrawn, whatever its timing and whatever ``on_time`` and ``closing`` say
    (semantics 9.1). For the trigger it is a firing like any other, but it has no index, and what is out stays out.
    """

    accumulation: Accumulation
    allowed_lateness: Duration | None
    on_time: Firing
    closing: Firing
    timestamp: TimestampCombiner
    keep_last: int | None
    elide_unchanged: bool

    def __init__(
        self,
        accumulation: Accumulation,
        allowed_lateness: timedelta | int | None = 0,
        on_time: Firing = Firing.ALWAYS,
        closing: Firing = Firing.IF_NON_EMPTY,
        timestamp: TimestampCombiner = TimestampCombiner.END_OF_WINDOW,
        *,
        keep_last: int | None = None,
        elide_unchanged: bool = False,
    ) -> None:
        lateness = duration(allowed_lateness) if isinstance(allowed_lateness, timedelta) else allowed_lateness
        if lateness is not None and lateness < 0:
            raise PipelineError(f"allowed_lateness must not be negative: {allowed_lateness}")
        if keep_last is not None and keep_last < 1:
            raise PipelineError(f"keep_last keeps at least 1 element, not {keep_last}")
        if elide_unchanged and accumulation is not Accumulation.RETRACTING:
            raise PipelineError("elide_unchanged leaves out retractions and their panes: it needs retracting(...)")
        object.__setattr__(self, "accumulation", accumulation)
        # past the end of time all are alike, and sums with it must not wrap
        lateness = None if lateness is None else Duration(min(lateness, MAX_INSTANT))
        object.__setattr__(self, "allowed_lateness", lateness)
        object.__setattr__(self, "on_time", on_time)
        object.__setattr__(self, "closing", closing)
        object.__setattr__(self, "timestamp", timestamp)
        object.__setattr__(self, "keep_last", keep_last)
        object.__setattr__(self, "elide_unchanged", elide_unchanged)


def behind(above: How, how: How) -> How:
    """``how`` of an aggregation behind one of ``above``: its allowed lateness is no less than that (semantics 5.2)."""
    lateness = None
    if how.allowed_lateness is not None and above.allowed_lateness is not None:
        lateness = max(how.allowed_lateness, above.allowed_lateness)
    return replace(how, allowed_lateness=lateness)


class Behaviour(TypedDict, total=False):
    """The rest of ``How``, by name."""

    on_time: Firing
    closing: Firing
    timestamp: TimestampCombiner
    keep_last: int | None


def discarding(allowed_lateness: timedelta | int | None = 0, **behaviour: Unpack[Behaviour]) -> How:
    """Each pane holds only what came since the last one."""
    return How(Accumulation.DISCARDING, allowed_lateness, **behaviour)


def accumulating(allowed_lateness: timedelta | int | None = 0, **behaviour: Unpack[Behaviour]) -> How:
    """Each pane holds everything so far."""
    return How(Accumulation.ACCUMULATING, allowed_lateness, **behaviour)


def retracting(
    allowed_lateness: timedelta | int | None = 0, *, elide_unchanged: bool = False, **behaviour: Unpack[Behaviour]
) -> How:
    """Each pane holds everything so far, after the panes it replaces are withdrawn (Dataflow paper, section 2.3)."""
    return How(Accumulation.RETRACTING, allowed_lateness, elide_unchanged=elide_unchanged, **behaviour)
