"""Triggers made of other triggers."""

from dataclasses import dataclass

from headrace.errors import PipelineError
from headrace.model.arguments import REQUIRED, Arguments, check_keywords, register_word
from headrace.model.triggers import elementary


@register_word("after watermark", early=None, late=None)
@check_keywords
@dataclass(frozen=True)
class AfterWatermark(elementary.Trigger):
    """Fires once when the watermark passes the end of the window.

    ``early`` fires before it and ``late`` after it, each implicitly repeated; with ``late`` it never finishes.

    >>> hr.AfterWatermark(early=hr.AfterCount(100), late=hr.AfterCount(1)).may_finish
    False
    """

    early: elementary.Trigger | None = None
    late: elementary.Trigger | None = None

    may_finish_early = False

    def __post_init__(self) -> None:
        for name, trigger in (("early", self.early), ("late", self.late)):
            if trigger is not None:
                _check_trigger("AfterWatermark", name, trigger)

    @property
    def children(self) -> tuple[elementary.Trigger, ...]:
        return tuple(t for t in (self.early, self.late) if t is not None)

    @property
    def may_finish(self) -> bool:
        return self.late is None

    @property
    def continuation(self) -> elementary.Trigger:
        return AfterWatermark(_continuation_trigger(self.early), _continuation_trigger(self.late))

    @property
    def waits_for_the_end(self) -> bool:
        return self.early is None or self.early.waits_for_the_end


@elementary.condition.register(AfterWatermark)
def _(trigger: AfterWatermark) -> str:
    return f"({'; '.join(elementary.panes(trigger))})" if trigger.children else elementary.WATERMARK_PASSES


@elementary.panes.register(AfterWatermark)
def _(trigger: AfterWatermark) -> list[str]:
    early = [] if trigger.early is None else [f"early: whenever {elementary.condition(trigger.early)}"]
    late = (
        f"never; {elementary.WINDOW_CLOSES}"
        if trigger.late is None
        else f"whenever {elementary.condition(trigger.late)}"
    )
    return [*early, f"on time: once {elementary.WATERMARK_PASSES}", f"late: {late}"]


@elementary.missing.register(AfterWatermark)
def _(trigger: AfterWatermark, progress: elementary.TriggerProgress) -> str:
    return progress.describe_wait("the watermark", progress.watermark)


@check_keywords
def on_update() -> elementary.Trigger:
    """Fire whenever a window changes, and once when the watermark passes its end: SQL's ``EMIT ON UPDATE``.

    Short for ``AfterWatermark(early=AfterCount(1), late=AfterCount(1))``.

    >>> hr.on_update() == hr.AfterWatermark(early=hr.AfterCount(1), late=hr.AfterCount(1))
    True
    """
    return AfterWatermark(early=elementary.AfterCount(1), late=elementary.AfterCount(1))


@check_keywords
def on_window_close() -> elementary.Trigger:
    """Fire when the watermark passes the end of the window, and for late data: SQL's ``EMIT ON WINDOW CLOSE``.

    Short for ``Default()``, the trigger of a pipeline that names none.

    >>> hr.on_window_close()
    Default()
    """
    return elementary.Default()


@register_word("repeatedly", trigger=REQUIRED)
@check_keywords
@dataclass(frozen=True)
class Repeatedly(elementary.Trigger):
    """Fires whenever ``trigger`` fires and starts it again when it finishes; never finishes itself.

    >>> hr.Repeatedly(hr.AfterCount(100)).may_finish
    False
    """

    trigger: elementary.Trigger

    may_finish = False

    def __post_init__(self) -> None:
        _check_trigger("Repeatedly", "trigger", self.trigger)

    @property
    def children(self) -> tuple[elementary.Trigger, ...]:
        return (self.trigger,)

    @property
    def continuation(self) -> elementary.Trigger:
        return Repeatedly(self.trigger.continuation)

    @property
    def waits_for_the_end(self) -> bool:
        return self.trigger.waits_for_the_end


@elementary.condition.register(Repeatedly)
def _(trigger: Repeatedly) -> str:
    return f"again and again {elementary.condition(trigger.trigger)}"


@elementary.panes.register(Repeatedly)
def _(trigger: Repeatedly) -> list[str]:
    return [f"whenever {elementary.condition(trigger.trigger)}"]


@check_keywords
@dataclass(frozen=True, init=False)
class _Several(elementary.Trigger):
    """A trigger made of others: ``AfterAny(AfterCount(100), AfterWatermark())``."""

    triggers: tuple[elementary.Trigger, ...]

    def __init__(self, *triggers: elementary.Trigger) -> None:
        if not triggers:
            raise PipelineError(f"{type(self).__name__} needs at least one trigger")
        for number, trigger in enumerate(triggers, start=1):
            _check_trigger(type(self).__name__, f"trigger {number}", trigger)
        object.__setattr__(self, "triggers", triggers)

    @property
    def children(self) -> tuple[elementary.Trigger, ...]:
        return self.triggers

    @property
    def may_finish_early(self) -> bool:
        return not self.waits_for_the_end

    @property
    def continuation(self) -> elementary.Trigger:
        return type(self)(*self._continuations)

    @property
    def _continuations(self) -> list[elementary.Trigger]:
        return [trigger.continuation for trigger in self.triggers]


@register_word("after any", triggers=REQUIRED)
class AfterAny(_Several):
    """Fires once when one of ``triggers`` fires.

    >>> hr.Repeatedly(hr.AfterAny(hr.AfterCount(100), hr.AfterProcessingTime("1m"))).may_finish
    False
    """

    @property
    def waits_for_the_end(self) -> bool:
        return all(trigger.waits_for_the_end for trigger in self.triggers)


@elementary.condition.register(AfterAny)
def _(trigger: AfterAny) -> str:
    return ", or ".join(map(elementary.condition, trigger.triggers))


@register_word("after all", triggers=REQUIRED)
class AfterAll(_Several):
    """Fires once when all of ``triggers`` are ready at the same evaluation.

    >>> hr.AfterAll(hr.AfterCount(10), hr.AfterWatermark()).may_finish
    True
    """

    @property
    def waits_for_the_end(self) -> bool:
        return any(trigger.waits_for_the_end for trigger in self.triggers)


@elementary.condition.register(AfterAll)
def _(trigger: AfterAll) -> str:
    return f"at the same time {', and '.join(map(elementary.condition, trigger.triggers))}"


@register_word("after each", triggers=REQUIRED)
class AfterEach(_Several):
    """Fires as its first unfinished trigger does and moves on to the next when that finishes.

    >>> hr.AfterEach(hr.AfterCount(1), hr.Repeatedly(hr.AfterCount(100))).may_finish
    False
    """

    @property
    def may_finish(self) -> bool:
        return all(trigger.may_finish for trigger in self.triggers)

    @property
    def continuation(self) -> elementary.Trigger:
        return Repeatedly(AfterAny(*self._continuations))

    @property
    def waits_for_the_end(self) -> bool:
        return self.triggers[0].waits_for_the_end

    @property
    def may_finish_early(self) -> bool:
        return all(trigger.may_finish_early for trigger in self.triggers)


@elementary.condition.register(AfterEach)
def _(trigger: AfterEach) -> str:
    return f"first {', then '.join(map(elementary.condition, trigger.triggers))}"


@register_word("or finally", main=REQUIRED, until=REQUIRED)
@check_keywords
@dataclass(frozen=True)
class OrFinally(elementary.Trigger):
    """Fires as ``main`` does until ``until`` fires; ``until`` keeps its progress across the panes of ``main``.

    >>> hr.OrFinally(hr.Repeatedly(hr.AfterCount(100)), until=hr.AfterWatermark()).may_finish
    True
    """

    main: elementary.Trigger
    until: elementary.Trigger

    def __post_init__(self) -> None:
        _check_trigger("OrFinally", "main", self.main)
        _check_trigger("OrFinally", "until", self.until)

    @property
    def children(self) -> tuple[elementary.Trigger, ...]:
        return (self.main, self.until)

    @property
    def may_finish(self) -> bool:
        return self.main.may_finish or self.until.may_finish

    @property
    def continuation(self) -> elementary.Trigger:
        return Repeatedly(OrFinally(self.main.continuation, self.until.continuation))

    @property
    def waits_for_the_end(self) -> bool:
        return self.main.waits_for_the_end and self.until.waits_for_the_end

    @property
    def may_finish_early(self) -> bool:
        return self.main.may_finish_early or self.until.may_finish_early


@elementary.condition.register(OrFinally)
def _(trigger: OrFinally) -> str:
    return f"{elementary.condition(trigger.main)}, and for the last time when {elementary.condition(trigger.until)}"


def _continuation_trigger(trigger: elementary.Trigger | None) -> elementary.Trigger | None:
    return None if trigger is None else trigger.continuation


def _check_trigger(owner: str, name: str, value: object) -> None:
    Arguments(owner).instance(name, value, elementary.Trigger, "a trigger such as AfterCount(100)")
