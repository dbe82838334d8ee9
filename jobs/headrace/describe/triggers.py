"""When in words: what has to happen for a window to give a pane."""

from functools import singledispatch

from headrace.model.combiners import Aggregate
from headrace.model.custom_triggers import CustomTrigger
from headrace.model.expressions.expr import render
from headrace.model.time import render_duration
from headrace.model.triggers import (
    AfterAll,
    AfterAny,
    AfterBytes,
    AfterCount,
    AfterEach,
    AfterPattern,
    AfterPercentileWatermark,
    AfterProcessingTime,
    AfterPunctuation,
    AfterSignal,
    AfterSynchronizedProcessingTime,
    AfterWatermark,
    Always,
    DataDriven,
    Default,
    Never,
    OrFinally,
    Repeatedly,
    Trigger,
)

PASSED = "the watermark passes the end of the window"


def panes(trigger: Trigger) -> list[str]:
    """A line for each kind of pane that a window gives."""
    match trigger:
        case Default():
            return [f"on time: once {PASSED}", "late: in every epoch that brings more elements after that"]
        case AfterWatermark(early, late):
            lines = [f"on time: once {PASSED}"]
            if early is not None:
                lines.insert(0, f"early: whenever {condition(early)}")
            if late is not None:
                return [*lines, f"late: whenever {condition(late)}"]
            return [*lines, "late: never; the window is closed then, and drops what comes later"]
        case Never():
            return ["never by itself: what the window holds is emitted when it expires"]
        case Repeatedly(inner):
            return [f"whenever {condition(inner)}"]
    closing = "; the window is closed then, and drops what comes later" if trigger.may_finish else ""
    return [f"{'once' if trigger.may_finish else 'whenever'} {condition(trigger)}{closing}"]


@singledispatch
def condition(trigger: Trigger) -> str:
    """What ``trigger`` waits for, as the rest of a sentence that begins with whenever."""
    return repr(trigger)


@condition.register
def _(trigger: AfterCount) -> str:
    return "an epoch brings an element" if trigger.count == 1 else f"{trigger.count:,} elements have arrived"


@condition.register
def _(trigger: AfterBytes) -> str:
    return f"elements of {trigger.size:,} bytes have arrived"


@condition.register
def _(trigger: AfterProcessingTime) -> str:
    after = (
        f"{render_duration(trigger.delay)} after its first element arrived"
        if trigger.delay
        else "an element has arrived"
    )
    if trigger.align is None:
        return f"the clock is {after}" if trigger.delay else after
    offset = f" and {render_duration(trigger.align_offset)}" if trigger.align_offset else ""
    return f"the clock shows a multiple of {render_duration(trigger.align)}{offset}, {after}"


@condition.register
def _(trigger: AfterSynchronizedProcessingTime) -> str:
    return "what was in flight upstream when the first element arrived has arrived too"


@condition.register
def _(trigger: AfterPunctuation) -> str:
    return f"an element has arrived for which {render(trigger.predicate)}"


@condition.register
def _(trigger: AfterPattern) -> str:
    letters = ", ".join(f"{letter}: {render(each)}" for letter, each in trigger.predicates.items())
    return f"elements in their order of arrival match {trigger.pattern!r} ({letters})"


@condition.register
def _(trigger: DataDriven) -> str:
    names = ", ".join(f"{name} = {aggregate(each)}" for name, each in trigger.what.items())
    return f"{render(trigger.ready_if)} ({names})"


@condition.register
def _(trigger: AfterSignal) -> str:
    return f"the signal {trigger.name!r} comes"


@condition.register
def _(trigger: AfterPercentileWatermark) -> str:
    return f"the watermark of the fastest {trigger.percentile:g} % of the input passes the end of the window"


@condition.register
def _(trigger: CustomTrigger) -> str:
    return f"{trigger!r}, a trigger of your own, is ready"


@condition.register
def _(trigger: Default) -> str:
    return f"{PASSED}, and in every later epoch that brings elements"


@condition.register
def _(trigger: AfterWatermark) -> str:
    return f"({'; '.join(panes(trigger))})" if trigger.children else PASSED


@condition.register
def _(trigger: Always) -> str:
    return f"an epoch brings elements, and when {PASSED}"


@condition.register
def _(trigger: Never) -> str:
    return "never"


@condition.register
def _(trigger: Repeatedly) -> str:
    return f"again and again {condition(trigger.trigger)}"


@condition.register
def _(trigger: AfterAny) -> str:
    return ", or ".join(map(condition, trigger.triggers))


@condition.register
def _(trigger: AfterAll) -> str:
    return f"at the same time {', and '.join(map(condition, trigger.triggers))}"


@condition.register
def _(trigger: AfterEach) -> str:
    return f"first {', then '.join(map(condition, trigger.triggers))}"


@condition.register
def _(trigger: OrFinally) -> str:
    return f"{condition(trigger.main)}, and for the last time when {condition(trigger.until)}"


def aggregate(value: Aggregate) -> str:
    """What an aggregate computes, as ``sum(amount)``."""
    name = value.combiner.value if value.custom is None else repr(value.custom)
    read = [] if value.input is None else [render(value.input)]
    read += [] if value.other is None else [render(value.other)]
    options = {"k": value.k, "q": value.q, "outer": None if value.outer is None else str(value.outer)}
    read += [f"{option}={given}" for option, given in options.items() if given not in (None, "none")]
    return f"{name}({', '.join(read)})"
