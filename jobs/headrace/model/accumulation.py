"""What a window emits, panes with the names of their columns; and how refinements relate (semantics 3 and 5).

A pane's column has the same name in every sink. ``How`` is accumulation, lateness, and the behaviours at the end of a
window.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypedDict, Unpack

from headrace.model.arguments import REQUIRED, Arguments, Length, Suggesting, check_keywords, register_word
from headrace.model.time import Duration


class Timing(StrEnum):
    """Where a pane stands to the watermark's passing of the window's end."""

    EARLY = "EARLY"
    ON_TIME = "ON_TIME"
    LATE = "LATE"


WINDOW_START = "window_start"
WINDOW_END = "window_end"
PANE_COLUMNS: tuple[str, ...] = (
    WINDOW_START,
    WINDOW_END,
    "pane_time",
    "timing",
    "pane_index",
    "nonspeculative_index",
    "is_first",
    "is_last",
    "is_retraction",
    "epoch",
    "sequence",
)
"""Columns of every pane, after the key's and the aggregates'. Timestamps are in UTC (NULL for the global window's
ends). ``epoch`` is the micro-batch that emitted the pane, ``sequence`` its order within (epoch, key).
"""

FIRING_COLUMNS: tuple[str, ...] = tuple(
    name for name in PANE_COLUMNS if name not in (WINDOW_START, WINDOW_END, "is_retraction", "sequence")
)
"""Columns of a pane that a row of ``current`` has, too: those about the firing that made it."""

EVENT_TIME = "event_time"
ROW_COLUMNS: tuple[str, ...] = (EVENT_TIME, "timing", "is_retraction", "epoch", "sequence")
"""Columns of every row of an output of rows, after its own: the instant that it is of, in UTC; whether it came behind
the watermark (LATE); ``epoch`` and ``sequence`` as of panes."""

LATE_COLUMNS: tuple[str, ...] = (EVENT_TIME, "reason", "input", "file", "raw")
"""Columns of every late record, after the key's, that are not pane columns."""


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


@register_word(
    "how",
    accumulation=REQUIRED,
    allowed_lateness=0,
    on_time=Firing.ALWAYS,
    closing=Firing.IF_NON_EMPTY,
    timestamp=TimestampCombiner.END_OF_WINDOW,
    keep_last=None,
    elide_unchanged=False,
)
@check_keywords
@dataclass(frozen=True, init=False)
class How(Suggesting):
    """One of the model's four questions: how refinements of a result relate.

    ``accumulation`` is "discarding", "accumulating" or "retracting". ``allowed_lateness`` is how long a window stays
    after the watermark has passed its end ("2d"); None means that it never expires. ``timestamp`` is which event time a
    pane gets. ``on_time`` decides whether the ON_TIME pane is emitted
    without new elements, ``closing`` whether the last one is. With ``keep_last`` n a window holds no more than its last
    n elements in order of arrival (sliding count windows).

    ``elide_unchanged``, when retracting: a pane is not emitted if it has the window, values and timestamp of the only
    one that it would withdraw. Nor is that one withdrawn. It holds whatever its timing and whatever ``on_time`` and
    ``closing`` say (semantics 9.1). For the trigger it is a firing like any other, but it has no index, and what is out
    stays out.

    >>> hr.How("retracting", "2d") == hr.retracting("2d")
    True
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
        allowed_lateness: Length | None = "0s",
        on_time: Firing | str = Firing.ALWAYS,
        closing: Firing | str = Firing.IF_NON_EMPTY,
        timestamp: TimestampCombiner | str = TimestampCombiner.END_OF_WINDOW,
        *,
        keep_last: int | None = None,
        elide_unchanged: bool = False,
    ) -> None:
        kind = Arguments("How").choice("accumulation", accumulation, Accumulation)
        arguments = Arguments(kind.name.lower())  # the function that users write
        lateness = None
        if allowed_lateness is not None:
            lateness = arguments.duration("allowed_lateness", allowed_lateness, is_capped=True)
        kept_count = None if keep_last is None else arguments.whole_number("keep_last", keep_last, least=1)
        object.__setattr__(self, "accumulation", kind)
        object.__setattr__(self, "allowed_lateness", lateness)
        object.__setattr__(self, "on_time", arguments.choice("on_time", on_time, Firing))
        object.__setattr__(self, "closing", arguments.choice("closing", closing, Firing))
        object.__setattr__(self, "timestamp", arguments.choice("timestamp", timestamp, TimestampCombiner))
        object.__setattr__(self, "keep_last", kept_count)
        object.__setattr__(self, "elide_unchanged", arguments.flag("elide_unchanged", elide_unchanged))
        if elide_unchanged and kind is not Accumulation.RETRACTING:
            raise arguments.refusal(
                "elide_unchanged", elide_unchanged, "it leaves out retractions: write retracting(...)"
            )


def with_upstream_lateness(upstream: How, how: How) -> How:
    """``how`` of an aggregation downstream of ``upstream``: its allowed lateness is no less than that (semantics
    5.2).
    """
    lateness = None
    if how.allowed_lateness is not None and upstream.allowed_lateness is not None:
        lateness = max(how.allowed_lateness, upstream.allowed_lateness)
    return replace(how, allowed_lateness=lateness)


class Behaviour(TypedDict, total=False):
    """The rest of ``How``, by name."""

    on_time: Firing | str
    closing: Firing | str
    timestamp: TimestampCombiner | str
    keep_last: int | None


@check_keywords
def discarding(allowed_lateness: Length | None = "0s", **behaviour: Unpack[Behaviour]) -> How:
    """Each pane holds only what came since the last one.

    ``allowed_lateness`` and the further arguments (``behaviour``) are those of ``How``.

    >>> hr.discarding("2d").accumulation.value
    'DISCARDING'
    """
    return How(Accumulation.DISCARDING, allowed_lateness, **behaviour)


@check_keywords
def accumulating(allowed_lateness: Length | None = "0s", **behaviour: Unpack[Behaviour]) -> How:
    """Each pane holds everything so far.

    ``allowed_lateness`` and the further arguments (``behaviour``) are those of ``How``.

    >>> hr.accumulating("2d").accumulation.value
    'ACCUMULATING'
    """
    return How(Accumulation.ACCUMULATING, allowed_lateness, **behaviour)


@check_keywords
def retracting(
    allowed_lateness: Length | None = "0s", *, elide_unchanged: bool = False, **behaviour: Unpack[Behaviour]
) -> How:
    """Each pane holds everything so far, after the panes it replaces are withdrawn (Dataflow paper, section 2.3).

    ``allowed_lateness``, ``elide_unchanged`` and the further arguments (``behaviour``) are those of ``How``.

    >>> hr.retracting("2d").accumulation.value
    'RETRACTING'
    """
    return How(Accumulation.RETRACTING, allowed_lateness, elide_unchanged=elide_unchanged, **behaviour)
