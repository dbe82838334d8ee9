"""Triggers: what all share, and those without children that look at clocks, signals, and how much has come.

A trigger registers by its class, where it is defined, what it reads of elements, if it looks into them. It also
registers its words for people: what it waits for, its panes, and what an open window still lacks. (Annotations would be
evaluated at each start.) Signals are what happened outside, which triggers may wait for (semantics 9.3).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, NamedTuple

from headrace.model.arguments import REQUIRED, Arguments, Length, Suggesting, check_keywords, register_word
from headrace.model.expressions.data_types import Schema
from headrace.model.expressions.expr import Expr
from headrace.model.expressions.typing import constant_to_json
from headrace.model.time import GLOBAL_WINDOW_END, Duration, Instant, render, render_duration
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


@check_keywords
@dataclass(frozen=True)
class Signal:
    """Something that happened outside, called ``name``: a step like one of processing time. It is for every open
    window, or those of one ``key``, or one ``window``.

    >>> hr.Signal("close", key=("EWR",)).is_for(("EWR",), hr.Window(0, 60))
    True
    """

    name: str
    key: tuple[Any, ...] | None = None
    window: Window | None = None

    def __post_init__(self) -> None:
        arguments = Arguments("Signal")
        arguments.text("name", self.name, "close")
        if self.key is not None:
            arguments.instance("key", self.key, tuple, 'the values of a key, such as ("EWR",)')
        if self.window is not None:
            arguments.instance("window", self.window, Window, "a Window")

    def is_for(self, key: tuple[Any, ...], window: Window) -> bool:
        """Whether it is for that window of that key."""
        return self.written_key in (None, _key_to_json(key)) and self.window in (None, window)

    @property
    def written_key(self) -> list[Any] | None:
        """The key as JSON has it: days, bytes and decimals are text."""
        return None if self.key is None else _key_to_json(self.key)


def _key_to_json(key: tuple[Any, ...]) -> list[Any]:
    return [constant_to_json(part) for part in key]


WATERMARK_PASSES = "the watermark passes the end of the window"
WINDOW_CLOSES = "the window is closed then, and drops what comes later"
WAITS_FOR_ELEMENT = "another element: the trigger is ready, and the next epoch that brings one gives a pane"


@singledispatch
def condition(trigger: Trigger) -> str:
    """What ``trigger`` waits for, as the rest of a sentence that begins with whenever."""
    return repr(trigger)


@singledispatch
def panes(trigger: Trigger) -> list[str]:
    """A line for each kind of pane that a window gives."""
    closing = f"; {WINDOW_CLOSES}" if trigger.may_finish else ""
    return [f"{'once' if trigger.may_finish else 'whenever'} {condition(trigger)}{closing}"]


class TriggerProgress(NamedTuple):
    """What is known of a trigger's node in a window that ends at ``end``: its ``state`` by name, and the clocks.
    ``totals`` is what a data-driven trigger has seen. ``holder_text``: who holds the watermark back, in words.
    """

    state: Mapping[str, Any]
    totals: Mapping[str, Any]
    end: Instant
    watermark: Instant
    processing_time: Instant
    percentiles: Mapping[float, Instant]
    holder_text: str = ""

    def describe_wait(self, watermark: str, stands: Instant) -> str:
        """What is missing until ``watermark``, which ``stands`` there, has passed the window."""
        position = f"it stands at {render(stands)}{self.holder_text}"
        if self.end >= GLOBAL_WINDOW_END:
            return f"{watermark} to come to the end of the input ({position})"
        return f"{watermark} to pass {render(self.end)} ({position})"

    def percentile_watermark(self, q: float) -> Instant:
        """The watermark of the fastest ``q`` %, which is never below the watermark."""
        return Instant(max(self.percentiles.get(q, self.watermark), self.watermark))


@singledispatch
def missing(trigger: Trigger, progress: TriggerProgress) -> str:
    """What a trigger that is not ready waits for; its children are asked for themselves."""
    del progress
    return condition(trigger)


class _Endless(Trigger):
    """A trigger that never finishes, and that is ready only once the watermark has passed the end of the window."""

    may_finish = False
    waits_for_the_end = True


class ElementTrigger(Trigger):
    """A trigger that elements make ready: any further element continues it downstream (semantics 4.7)."""

    @property
    def continuation(self) -> Trigger:
        return AfterCount(1)


@register_word("default")
@check_keywords
@dataclass(frozen=True)
class Default(_Endless):
    """Fires when the watermark passes the end of the window and for every later bundle; never finishes.

    >>> hr.Default() == hr.on_window_close()
    True
    """


@condition.register(Default)
def _(trigger: Default) -> str:
    return f"{WATERMARK_PASSES}, and in every later epoch that brings elements"


@panes.register(Default)
def _(trigger: Default) -> list[str]:
    return [f"on time: once {WATERMARK_PASSES}", "late: in every epoch that brings more elements after that"]


@missing.register(Default)
def _(trigger: Default, progress: TriggerProgress) -> str:
    return progress.describe_wait("the watermark", progress.watermark)


@register_word("never")
@check_keywords
@dataclass(frozen=True)
class Never(_Endless):
    """Never fires; what the window holds is emitted when it expires.

    >>> hr.Never().may_finish
    False
    """


@condition.register(Never)
def _(trigger: Never) -> str:
    return "never"


@panes.register(Never)
def _(trigger: Never) -> list[str]:
    return ["never by itself: what the window holds is emitted when it expires"]


@missing.register(Never)
def _(trigger: Never, progress: TriggerProgress) -> str:
    return "nothing: what the window holds is emitted when it expires"


@register_word("always")
@check_keywords
@dataclass(frozen=True)
class Always(Trigger):
    """Fires whenever it is asked: for every bundle, and when the watermark passes the end of the window.

    >>> hr.Always().may_finish
    False
    """

    may_finish = False


@condition.register(Always)
def _(trigger: Always) -> str:
    return f"an epoch brings elements, and when {WATERMARK_PASSES}"


@missing.register(Always)
def _(trigger: Always, progress: TriggerProgress) -> str:
    return WAITS_FOR_ELEMENT


@register_word("after count", count=REQUIRED)
@check_keywords
@dataclass(frozen=True)
class AfterCount(ElementTrigger):
    """Fires once ``count`` elements have arrived since its last reset. Bundles are atomic: a pane may hold more.

    >>> hr.AfterWatermark(early=hr.AfterCount(100)).early
    AfterCount(count=100)
    """

    count: int

    def __post_init__(self) -> None:
        Arguments("AfterCount").whole_number("count", self.count, least=1)


@condition.register(AfterCount)
def _(trigger: AfterCount) -> str:
    return "an epoch brings an element" if trigger.count == 1 else f"{trigger.count:,} elements have arrived"


@missing.register(AfterCount)
def _(trigger: AfterCount, progress: TriggerProgress) -> str:
    total = progress.state["total"]
    more = trigger.count - total
    return f"{more:,} more element{'s' if more > 1 else ''} ({total:,} of {trigger.count:,} so far)"


@register_word("after bytes", size=REQUIRED)
@check_keywords
@dataclass(frozen=True)
class AfterBytes(ElementTrigger):
    """Fires once elements of ``size`` bytes in all have arrived since its last reset (semantics 9.5).

    >>> hr.Repeatedly(hr.AfterBytes(64 * 1024 * 1024))
    Repeatedly(trigger=AfterBytes(size=67108864))
    """

    size: int

    def __post_init__(self) -> None:
        Arguments("AfterBytes").whole_number("size", self.size, least=1)


@condition.register(AfterBytes)
def _(trigger: AfterBytes) -> str:
    return f"elements of {trigger.size:,} bytes have arrived"


@missing.register(AfterBytes)
def _(trigger: AfterBytes, progress: TriggerProgress) -> str:
    total = progress.state["total"]
    return f"elements of {trigger.size - total:,} more bytes ({total:,} of {trigger.size:,} so far)"


@register_word("after processing time", delay=0, align=None, align_offset=0)
@check_keywords
@dataclass(frozen=True, init=False)
class AfterProcessingTime(Trigger):
    """Fires once the processing-time clock reaches the first element's time plus ``delay``. With ``align``, that time
    is rounded up to the next multiple of it, shifted by ``align_offset``. Its precision is the schedule's interval.

    >>> hr.AfterProcessingTime("1m") == hr.AfterProcessingTime(timedelta(minutes=1))
    True
    """

    delay: Duration
    align: Duration | None
    align_offset: Duration

    def __init__(self, delay: Length = "0s", align: Length | None = None, align_offset: Length = "0s") -> None:
        arguments = Arguments("AfterProcessingTime")
        step = None if align is None else arguments.duration("align", align, least=1)
        object.__setattr__(self, "delay", arguments.duration("delay", delay))
        object.__setattr__(self, "align", step)
        object.__setattr__(self, "align_offset", arguments.duration("align_offset", align_offset, least=None))

    @property
    def continuation(self) -> Trigger:
        return AfterSynchronizedProcessingTime()


@condition.register(AfterProcessingTime)
def _(trigger: AfterProcessingTime) -> str:
    if trigger.delay:
        moment_text = f"{render_duration(trigger.delay)} after its first element arrived"
    else:
        moment_text = "an element has arrived"
    if trigger.align is None:
        return f"the clock is {moment_text}" if trigger.delay else moment_text
    offset = f" and {render_duration(trigger.align_offset)}" if trigger.align_offset else ""
    return f"the clock shows a multiple of {render_duration(trigger.align)}{offset}, {moment_text}"


@missing.register(AfterProcessingTime)
def _(trigger: AfterProcessingTime, progress: TriggerProgress) -> str:
    deadline = progress.state["deadline"]
    if deadline is None:
        return f"an element (none has arrived since the last firing), and then that {condition(trigger)}"
    ran = f"the newest epoch ran at {render(progress.processing_time)}, and the first run from then on looks again"
    return f"processing time {render(Instant(deadline))} ({ran})"


@register_word("after synchronized processing time")
@check_keywords
@dataclass(frozen=True)
class AfterSynchronizedProcessingTime(Trigger):
    """Fires once all that was in flight upstream when the first element arrived has arrived too (semantics 4.6).

    >>> hr.AfterProcessingTime("1m").continuation
    AfterSynchronizedProcessingTime()
    """


@condition.register(AfterSynchronizedProcessingTime)
def _(trigger: AfterSynchronizedProcessingTime) -> str:
    return "what was in flight upstream when the first element arrived has arrived too"


@missing.register(AfterSynchronizedProcessingTime)
def _(trigger: AfterSynchronizedProcessingTime, progress: TriggerProgress) -> str:
    return "an element"


@register_word("after signal", name=REQUIRED)
@check_keywords
@dataclass(frozen=True)
class AfterSignal(ElementTrigger):
    """Fires once a ``Signal`` of this ``name`` came while the window was open, since its last reset (semantics 9.3).

    >>> hr.AfterWatermark(early=hr.AfterSignal("close")).early.signals
    ('close',)
    """

    name: str

    def __post_init__(self) -> None:
        Arguments("AfterSignal").text("name", self.name, "close")

    @property
    def signals(self) -> Collection[str]:
        return (self.name,)


@condition.register(AfterSignal)
def _(trigger: AfterSignal) -> str:
    return f"the signal {trigger.name!r} comes"


@missing.register(AfterSignal)
def _(trigger: AfterSignal, progress: TriggerProgress) -> str:
    return f"the signal {trigger.name!r} (headrace run --signal {trigger.name})"


@register_word("after percentile watermark", percentile=REQUIRED)
@check_keywords
@dataclass(frozen=True)
class AfterPercentileWatermark(Trigger):
    """Fires once when the watermark of the fastest ``percentile`` % of the input passes the end of the window (9.2).

    Its pane is EARLY until the watermark itself has passed.

    >>> hr.AfterWatermark(early=hr.AfterPercentileWatermark(95))
    AfterWatermark(early=AfterPercentileWatermark(percentile=95), late=None)
    """

    percentile: float

    def __post_init__(self) -> None:
        Arguments("AfterPercentileWatermark").number("percentile", self.percentile, above=0, most=100)


@condition.register(AfterPercentileWatermark)
def _(trigger: AfterPercentileWatermark) -> str:
    return f"the watermark of the fastest {trigger.percentile:g} % of the input passes the end of the window"


@missing.register(AfterPercentileWatermark)
def _(trigger: AfterPercentileWatermark, progress: TriggerProgress) -> str:
    watermark = f"the watermark of the fastest {trigger.percentile:g} % of the input"
    return progress.describe_wait(watermark, progress.percentile_watermark(trigger.percentile))
