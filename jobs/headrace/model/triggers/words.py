"""What people read of triggers: what each waits for, the panes that it gives, and what an open window still lacks.

Each trigger registers its words where it is defined, by its class: annotations would be evaluated at each start.
"""

from collections.abc import Mapping
from functools import singledispatch
from typing import Any, NamedTuple

from headrace.model.time import GLOBAL_WINDOW_END, Instant, render
from headrace.model.triggers.trigger import Trigger

PASSED = "the watermark passes the end of the window"
CLOSED = "the window is closed then, and drops what comes later"
ASKED = "another element: the trigger is ready, and the next epoch that brings one gives a pane"


@singledispatch
def condition(trigger: Trigger) -> str:
    """What ``trigger`` waits for, as the rest of a sentence that begins with whenever."""
    return repr(trigger)


@singledispatch
def panes(trigger: Trigger) -> list[str]:
    """A line for each kind of pane that a window gives."""
    closing = f"; {CLOSED}" if trigger.may_finish else ""
    return [f"{'once' if trigger.may_finish else 'whenever'} {condition(trigger)}{closing}"]


class TriggerProgress(NamedTuple):
    """What is known of a node of a trigger in a window that ends at ``end``: its state by name, what a data-driven one
    has seen (``totals``), and the clocks. ``held``: who holds the watermark back, in words.
    """

    state: Mapping[str, Any]
    totals: Mapping[str, Any]
    end: Instant
    watermark: Instant
    processing_time: Instant
    percentiles: Mapping[float, Instant]
    held: str = ""

    def passing(self, watermark: str, stands: Instant) -> str:
        """What is missing until ``watermark``, which ``stands`` there, has passed the window."""
        at = f"it stands at {render(stands)}{self.held}"
        if self.end >= GLOBAL_WINDOW_END:
            return f"{watermark} to come to the end of the input ({at})"
        return f"{watermark} to pass {render(self.end)} ({at})"

    def percentile(self, q: float) -> Instant:
        """The watermark of the fastest ``q`` %, which is never below the watermark."""
        return Instant(max(self.percentiles.get(q, self.watermark), self.watermark))


@singledispatch
def missing(trigger: Trigger, progress: TriggerProgress) -> str:
    """What a trigger that is not ready waits for; its children are asked for themselves."""
    del progress
    return condition(trigger)
