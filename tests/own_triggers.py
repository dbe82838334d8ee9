"""Triggers as users write them, for the tests of both executors."""

from collections.abc import Sequence
from dataclasses import dataclass

from headrace import CustomTrigger, DataType, Progress, TriggerElement, TriggerMoment
from headrace.model.time import Instant
from headrace.model.triggers.custom import State


@dataclass(frozen=True)
class Jump(CustomTrigger):
    """Fires once a value lies more than ``by`` above or below the one before it, in order of arrival."""

    by: int
    column: str = "value"
    state_types = {"last": DataType.INT, "jumped": DataType.BOOL}

    def create(self) -> State:
        return {"last": 0, "jumped": False}

    def on_element(self, state: State, element: TriggerElement, moment: TriggerMoment) -> State:
        value = element.record[self.column]
        far = None not in (value, state["last"]) and abs(value - state["last"]) > self.by
        return {"last": value, "jumped": state["jumped"] or far}

    def ready(self, state: State, moment: TriggerMoment) -> bool:
        return bool(state["jumped"])

    def on_merge(self, sources: Sequence[Progress], moment: TriggerMoment) -> Progress:
        has_jumped = any(source.state["jumped"] for source in sources)
        return Progress({"last": sources[-1].state["last"], "jumped": has_jumped}, all(s.finished for s in sources))


@dataclass(frozen=True)
class Reminder(CustomTrigger):
    """Fires again and again, at the earliest processing time that an element asks for: its value, in granules."""

    extra: int = 0
    column: str = "value"
    may_finish = False
    state_types = {"at": DataType.TIMESTAMP}

    def create(self) -> State:
        return {"at": None}

    def on_element(self, state: State, element: TriggerElement, moment: TriggerMoment) -> State:
        value = element.record[self.column]
        if value is None:
            return state
        deadline = moment.processing_time + abs(value) + self.extra
        return {"at": deadline if state["at"] is None else min(deadline, state["at"])}

    def deadline(self, state: State) -> Instant | None:
        return state["at"]

    def ready(self, state: State, moment: TriggerMoment) -> bool:
        return state["at"] is not None and moment.processing_time >= state["at"]

    def on_merge(self, sources: Sequence[Progress], moment: TriggerMoment) -> Progress:
        deadlines = [source.state["at"] for source in sources if source.state["at"] is not None]
        return Progress({"at": min(deadlines, default=None)})


@dataclass(frozen=True)
class Rising(CustomTrigger):
    """Fires when event times rose ``times`` times, or the last share was above 2 past the end of a window that does not
    begin at 0; the latest event time outlives a firing, and it finishes at the second one. It has no ``on_merge``."""

    times: int
    state_types = {
        "latest": DataType.TIMESTAMP,
        "rises": DataType.INT,
        "share": DataType.FLOAT,
        "seen": DataType.STRING,
    }

    def create(self) -> State:
        return {"latest": -1000, "rises": 0, "share": 0.5, "seen": ""}

    def on_element(self, state: State, element: TriggerElement, moment: TriggerMoment) -> State:
        rises = state["rises"] + (element.timestamp > state["latest"])
        latest = max(element.timestamp, state["latest"])
        return {"latest": latest, "rises": rises, "share": element.record["share"], "seen": state["seen"]}

    def ready(self, state: State, moment: TriggerMoment) -> bool:
        has_ended = moment.passed_end and moment.window.start != 0 and (state["share"] or 0.0) > 2.0
        return bool(state["rises"] >= self.times or has_ended)

    def on_fire(self, state: State, moment: TriggerMoment) -> Progress:
        return Progress({**self.clear(state), "seen": state["seen"] + "x"}, len(state["seen"]) > 0)

    def clear(self, state: State) -> State:
        return {**state, "rises": 0}


@dataclass(frozen=True)
class Poll(CustomTrigger):
    """Fires at "go" if at least ``least`` elements came since its last reset. "stop" takes that back, and has it fire
    five granules of processing time later."""

    least: int
    signals = ("stop", "go")
    state_types = {"n": DataType.INT, "go": DataType.BOOL, "at": DataType.TIMESTAMP}

    def create(self) -> State:
        return {"n": 0, "go": False, "at": None}

    def on_element(self, state: State, element: TriggerElement, moment: TriggerMoment) -> State:
        return {**state, "n": state["n"] + 1}

    def on_signal(self, state: State, name: str, moment: TriggerMoment) -> State:
        if name == "go":
            return {**state, "go": state["n"] >= self.least}
        return {**state, "go": False, "at": moment.processing_time + 5}

    def deadline(self, state: State) -> Instant | None:
        return state["at"]

    def ready(self, state: State, moment: TriggerMoment) -> bool:
        return state["go"] or (state["at"] is not None and moment.processing_time >= state["at"])

    def on_merge(self, sources: Sequence[Progress], moment: TriggerMoment) -> Progress:
        states = [source.state for source in sources]
        deadline = min((state["at"] for state in states if state["at"] is not None), default=None)
        new_state = {
            "n": sum(state["n"] for state in states),
            "go": any(state["go"] for state in states),
            "at": deadline,
        }
        return Progress(new_state, all(source.finished for source in sources))


@dataclass(frozen=True)
class Refusing(Jump):
    """Its code fails on the value 13."""

    def on_element(self, state: State, element: TriggerElement, moment: TriggerMoment) -> State:
        if element.record[self.column] == 13:
            raise ValueError("bad luck")
        return super().on_element(state, element, moment)
