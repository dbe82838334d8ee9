"""What all triggers share: what they read of elements, signals, and words for people.

What triggers read of elements. Those that look into elements register it where they are defined.

Signals: what happened outside, which triggers may wait for (semantics 9.3).

What people read of triggers: what each waits for, the panes that it gives, and what an open window still lacks.

Each trigger registers its words where it is defined, by its class: annotations would be evaluated at each start.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, NamedTuple

from headrace.model.arguments import Arguments, Suggesting, keywords
from headrace.model.expressions.data_types import Schema
from headrace.model.expressions.expr import Expr
from headrace.model.expressions.trees import constant_to_json
from headrace.model.time import GLOBAL_WINDOW_END, Instant, render
from headrace.model.windows import Window


class Trigger(Suggesting):
    """A node of a trigger tree.

    >>> isinstance(hr.AfterCount(1), hr.Trigger)
    True
    """

    @property
    def children(self) -> tuple["Trigger", ...]:
        """Direct sub-triggers, in order."""
        return ()

    @property
    def may_finish(self) -> bool:
        """Whether this node can finish; a finished root closes its window and later elements are dropped."""
        return True

    @property
    def signals(self) -> Collection[str]:
        """Names of the signals that this node itself waits for (semantics 9.3)."""
        return ()

    @property
    def continuation(self) -> "Trigger":
        """The trigger that continues this one in an aggregation downstream (semantics 4.7)."""
        return self

    @property
    def waits_for_the_end(self) -> bool:
        """Whether it can be ready only once the watermark has passed the end of the window."""
        return False

    @property
    def may_finish_early(self) -> bool:
        """Whether it can finish before the watermark has passed the end of the window."""
        return self.may_finish


class TriggerPredicate(NamedTuple):
    """A predicate of a trigger: what errors call it, and the types of the columns that it reads."""

    name: str
    predicate: Expr
    schema: Schema


@singledispatch
def inputs(trigger: Trigger) -> Sequence[Expr]:
    """What ``trigger`` itself computes of each element."""
    return ()


@singledispatch
def predicates(trigger: Trigger, schema: Schema) -> Iterable[TriggerPredicate]:
    """What decides whether ``trigger`` itself is ready, over elements of ``schema``: expressions that must be bool.

    Raises PipelineError if they read what there is not.
    """
    return ()


@keywords
@dataclass(frozen=True)
class Signal:
    """Something that happened outside: a step like one of processing time. It is for every open window, or those of one
    ``key``, or one ``window``.

    >>> hr.Signal("close", key=("EWR",)).is_for(("EWR",), hr.Window(0, 60))
    True
    """

    name: str
    key: tuple[Any, ...] | None = None
    window: Window | None = None

    def __post_init__(self) -> None:
        given = Arguments("Signal")
        given.text("name", self.name, "close")
        if self.key is not None:
            given.instance("key", self.key, tuple, 'the values of a key, such as ("EWR",)')
        if self.window is not None:
            given.instance("window", self.window, Window, "a Window")

    def is_for(self, key: tuple[Any, ...], window: Window) -> bool:
        """Whether it is for that window of that key."""
        return self.written_key in (None, _written(key)) and self.window in (None, window)

    @property
    def written_key(self) -> list[Any] | None:
        """The key as JSON has it: days, bytes and decimals are text."""
        return None if self.key is None else _written(self.key)


def _written(key: tuple[Any, ...]) -> list[Any]:
    return [constant_to_json(part) for part in key]


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
