"""When: the state of a trigger tree in one window, node by node as in the table of semantics 4.2.

``start(trigger, merging)`` gives the state of a fresh window. An operator tells it of elements, asks once whether it is
ready, and tells it when its window fires. Progress is counted since that node's last reset (12.7).
"""

from collections.abc import Sequence
from typing import Self

from headrace.model.triggers import Trigger
from headrace.model.triggers.composites import AfterAll, AfterAny, AfterEach, AfterWatermark, OrFinally, Repeatedly
from headrace.model.triggers.custom import CustomTrigger
from headrace.model.triggers.elementary import Never
from headrace_lab.reference.custom_trigger import OwnNode
from headrace_lab.reference.trigger_leaves import OncePastEnd
from headrace_lab.reference.trigger_node import Moment, Node, start

__all__ = ["start"]


class _EarlyAndLate(Node):
    """after_watermark(early, late): phase 1 until the window fires with its end passed, then phase 2; both repeat."""

    def __init__(self, early: Trigger | None, late: Trigger | None, merging: bool) -> None:
        self._early = start(early or Never(), merging)
        self._late = start(late or Never(), merging)
        super().__init__([self._early, self._late])
        self._has_late = late is not None
        self._merging = merging
        self._past_end = False

    @property
    def hearing(self) -> Sequence[Node]:
        return self.children if self._merging else [self._late if self._past_end else self._early]

    def ready(self, moment: Moment) -> bool:
        if self._past_end:
            return self._late.ready(moment)
        return self._early.ready(moment) or moment.passed_end

    def on_fire(self, moment: Moment) -> None:
        if self._past_end:
            self._late.on_fire(moment)
            self._late.reset()
        elif moment.passed_end:
            self._early.reset()
            self._late.reset()
            self._past_end = True
            self.finished = not self._has_late
        else:
            self._early.on_fire(moment)
            self._early.reset()

    def on_merge(self, moment: Moment, sources: Sequence[Self]) -> None:
        self._past_end = all(source._past_end for source in sources) and moment.passed_end
        active = 1 if self._past_end else 0
        self.children[active].on_merge(moment, [source.children[active] for source in sources])
        self.finished = self._past_end and not self._has_late

    def reset(self) -> None:
        super().reset()
        self._past_end = False


@start.register
def _(trigger: AfterWatermark, merging: bool) -> Node:
    return _EarlyAndLate(trigger.early, trigger.late, merging) if trigger.children else OncePastEnd()


class _Repeatedly(Node):
    """repeatedly(t): fires as t does and restarts it when it finishes."""

    def ready(self, moment: Moment) -> bool:
        return self.children[0].ready(moment)

    def on_fire(self, moment: Moment) -> None:
        (child,) = self.children
        child.on_fire(moment)
        if child.finished:
            child.reset()


@start.register
def _(trigger: Repeatedly, merging: bool) -> Node:
    return _Repeatedly([start(trigger.trigger, merging)])


class _Any(Node):
    """after_any: fires the ready ones, clears the others."""

    def ready(self, moment: Moment) -> bool:
        return any(child.finished or child.ready(moment) for child in self.children)

    def on_fire(self, moment: Moment) -> None:
        for child in self.children:
            if child.ready(moment):
                child.on_fire(moment)
            else:
                child.clear()
        self.finished = True

    def on_merge(self, moment: Moment, sources: Sequence[Self]) -> None:
        self._merge_children(moment, sources)
        self.finished = any(child.finished for child in self.children)


@start.register
def _(trigger: AfterAny, merging: bool) -> Node:
    return _Any([start(t, merging) for t in trigger.triggers])


class _All(Node):
    """after_all: fires when every child is ready or finished at the same evaluation."""

    def ready(self, moment: Moment) -> bool:
        return all(child.finished or child.ready(moment) for child in self.children)

    def on_fire(self, moment: Moment) -> None:
        for child in self.children:
            if not child.finished:
                child.on_fire(moment)
        self.finished = True

    def on_merge(self, moment: Moment, sources: Sequence[Self]) -> None:
        self._merge_children(moment, sources)
        self.finished = all(child.finished for child in self.children)


@start.register
def _(trigger: AfterAll, merging: bool) -> Node:
    return _All([start(t, merging) for t in trigger.triggers])


class _Each(Node):
    """after_each: its position is the first unfinished child; a merge may move it back."""

    def __init__(self, triggers: Sequence[Trigger], merging: bool) -> None:
        super().__init__([start(trigger, merging) for trigger in triggers])
        self._merging = merging

    @property
    def _current(self) -> Node | None:
        return next((child for child in self.children if not child.finished), None)

    @property
    def hearing(self) -> Sequence[Node]:
        # Where windows merge, a finished child may be revived, and a later one may become current: all keep up.
        return self.children if self._merging else [c for c in [self._current] if c is not None]

    def ready(self, moment: Moment) -> bool:
        return self._current is not None and self._current.ready(moment)

    def on_fire(self, moment: Moment) -> None:
        current = self._current
        if current is None:
            raise AssertionError("a finished after_each fired")
        current.on_fire(moment)
        for child in self.children:
            if child is not current:
                child.clear()
        self.finished = self._current is None

    def on_merge(self, moment: Moment, sources: Sequence[Self]) -> None:
        for i, child in enumerate(self.children):
            child.on_merge(moment, [source.children[i] for source in sources])
            if not child.finished:
                break  # the rest stays fresh
        self.finished = self._current is None


@start.register
def _(trigger: AfterEach, merging: bool) -> Node:
    return _Each(trigger.triggers, merging)


class _OrFinally(Node):
    """or_finally(main, until): until keeps its progress while main fires."""

    def ready(self, moment: Moment) -> bool:
        return any(child.ready(moment) for child in self.children)

    def on_fire(self, moment: Moment) -> None:
        main_trigger, until_trigger = self.children
        if until_trigger.ready(moment):
            until_trigger.on_fire(moment)
            main_trigger.clear()
        else:
            main_trigger.on_fire(moment)
        self.finished = main_trigger.finished or until_trigger.finished

    def on_merge(self, moment: Moment, sources: Sequence[Self]) -> None:
        self._merge_children(moment, sources)
        self.finished = any(child.finished for child in self.children)


@start.register
def _(trigger: OrFinally, merging: bool) -> Node:
    return _OrFinally([start(trigger.main, merging), start(trigger.until, merging)])


@start.register
def _(trigger: CustomTrigger, merging: bool) -> Node:
    return OwnNode(trigger)
