"""A user's own trigger as a leaf of trigger trees (semantics 9.3)."""

from collections.abc import Iterator, Sequence
from typing import Self

from headrace.model.arguments import user_code
from headrace.model.time import Instant
from headrace.model.triggers.custom import (
    CustomTrigger,
    Progress,
    TriggerElement,
    TriggerMoment,
    checked_progress,
    checked_state,
)
from headrace_lab.reference.trigger_node import Arrival, Moment, Node


class OwnNode(Node):
    """The state that ``trigger`` made of what came so far."""

    def __init__(self, trigger: CustomTrigger) -> None:
        super().__init__()
        self._trigger = trigger
        self._state = trigger.create()

    def on_element(self, moment: Moment, element: Arrival) -> None:
        record = {name: element.record.get(name) for name in moment.schema}
        trigger_element = TriggerElement(record, element.timestamp)
        with user_code(self._trigger, "look at an element"):
            self._state = checked_state(
                self._trigger, self._trigger.on_element(self._state, trigger_element, _visible(moment))
            )

    def on_signal(self, moment: Moment, name: str) -> None:
        if name in self._trigger.signals:
            with user_code(self._trigger, "take a signal"):
                state = self._trigger.on_signal(self._state, name, _visible(moment))
                self._state = checked_state(self._trigger, state)

    def ready(self, moment: Moment) -> bool:
        with user_code(self._trigger, "say whether it is ready"):
            return bool(self._trigger.ready(self._state, _visible(moment)))

    def on_fire(self, moment: Moment) -> None:
        with user_code(self._trigger, "fire"):
            self._continue(self._trigger.on_fire(self._state, _visible(moment)))

    def on_merge(self, moment: Moment, sources: Sequence[Self]) -> None:
        with user_code(self._trigger, "merge"):
            known_progress = [Progress(source._state, source.finished) for source in sources]
            self._continue(self._trigger.on_merge(known_progress, _visible(moment)))

    def _continue(self, progress: Progress) -> None:
        self._state, self.finished = checked_progress(self._trigger, progress)

    def clear(self) -> None:
        with user_code(self._trigger, "clear its state"):
            self._state = checked_state(self._trigger, self._trigger.clear(self._state))

    def reset(self) -> None:
        self._state, self.finished = self._trigger.create(), False

    @property
    def deadlines(self) -> Iterator[Instant]:
        with user_code(self._trigger, "name a deadline"):
            deadline = self._trigger.deadline(self._state)
        if deadline is not None:
            yield deadline

    @property
    def signals(self) -> Iterator[str]:
        yield from self._trigger.signals


def _visible(moment: Moment) -> TriggerMoment:
    return TriggerMoment(moment.window, moment.clocks.processing_time, moment.passed_end)
