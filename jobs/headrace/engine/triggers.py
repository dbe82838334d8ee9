"""Trigger trees as column programs: each node's state is a few columns, each of its rules a column expression.

The rules are the table of semantics 4.2; merging is 12.8: every state column folds over all merged open windows at once
(``Fold``), then ``after_merge`` walks from the root down and resets what the table says. Nodes never look at each
other's columns, so a new node is one class here and one line in ``compile_trigger``.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from headrace.engine.program import FALSE, TRUE, Program, all_of, any_of, choose, negate
from headrace.errors import PipelineError
from headrace.model.expr import Column, DataType, Expr, Literal, least
from headrace.model.time import NEVER
from headrace.model.triggers import AfterCount, AfterProcessingTime, AfterWatermark, Default, Repeatedly, Trigger

NO_DEADLINE = Literal(None, DataType.INT)


class Fold(StrEnum):
    """How a state column of several merged windows becomes one."""

    SUM = "sum"
    MIN = "min"
    ANY = "any"
    ALL = "all"


@dataclass(frozen=True)
class Field:
    """A state column: its type, its value in a fresh window, and how it merges."""

    name: str
    type: DataType
    initial: Literal
    fold: Fold
    is_deadline: bool = False


State = Mapping[str, Expr]


@dataclass(frozen=True)
class Moment:
    """What an evaluation may look at: whether the watermark passed the window's end, and the processing-time clock."""

    passed_end: Expr
    now: Expr


class Node(ABC):
    """One node: pure functions from state (column -> expression) to state."""

    def __init__(self, path: str, children: "tuple[Node, ...]" = ()) -> None:
        self.path = path
        self.children = children

    own: tuple[Field, ...] = ()

    @property
    def fields(self) -> tuple[Field, ...]:
        """State columns of the whole subtree."""
        return (*self.own, *(f for child in self.children for f in child.fields))

    def finished(self, state: State) -> Expr:
        """Whether the node has finished."""
        return FALSE

    def reset(self, state: State, when: Expr) -> State:
        """The subtree as in a fresh window, where ``when`` holds."""
        changed = {f.name: choose(when, f.initial, state[f.name]) for f in self.fields}
        return {**state, **changed}

    @abstractmethod
    def on_element(self, state: State, count: Expr, when: Expr, moment: Moment) -> State:
        """``count`` elements of one bundle came, where ``when`` holds."""

    @abstractmethod
    def ready(self, program: Program, state: State, moment: Moment) -> Expr:
        """Whether the node fires if it is asked now."""

    @abstractmethod
    def on_fire(self, program: Program, state: State, when: Expr, moment: Moment) -> State:
        """The node fires, where ``when`` (which implies ready) holds."""

    def after_merge(self, program: Program, state: State, passed_end: Expr) -> State:
        """Folded columns made right from the root down; ``passed_end`` is that of the merged window."""
        for child in self.children:
            state = child.after_merge(program, state, passed_end)
        return state


class DefaultNode(Node):
    """Ready whenever the watermark is past the end; never finishes."""

    def on_element(self, state: State, count: Expr, when: Expr, moment: Moment) -> State:
        return state

    def ready(self, program: Program, state: State, moment: Moment) -> Expr:
        return moment.passed_end

    def on_fire(self, program: Program, state: State, when: Expr, moment: Moment) -> State:
        return state


class CountNode(Node):
    """AfterCount: elements since the last reset."""

    def __init__(self, path: str, count: int) -> None:
        super().__init__(path)
        self.threshold = Literal(count)
        self._count = f"{path}_count"
        self._done = f"{path}_done"
        self.own = (
            Field(self._count, DataType.INT, Literal(0), Fold.SUM),
            Field(self._done, DataType.BOOL, FALSE, Fold.ANY),
        )

    def finished(self, state: State) -> Expr:
        return state[self._done]

    def on_element(self, state: State, count: Expr, when: Expr, moment: Moment) -> State:
        return {**state, self._count: choose(when, state[self._count] + count, state[self._count])}

    def ready(self, program: Program, state: State, moment: Moment) -> Expr:
        return state[self._count] >= self.threshold

    def on_fire(self, program: Program, state: State, when: Expr, moment: Moment) -> State:
        count = choose(when, 0, state[self._count])
        return {**state, self._count: count, self._done: any_of(state[self._done], when)}


class ProcessingTimeNode(Node):
    """AfterProcessingTime: a deadline set by the first element since the last reset; merged, the earliest wins."""

    def __init__(self, path: str, trigger: AfterProcessingTime) -> None:
        super().__init__(path)
        self.trigger = trigger
        self._deadline = f"{path}_deadline"
        self._done = f"{path}_done"
        self.own = (
            Field(self._deadline, DataType.INT, NO_DEADLINE, Fold.MIN, is_deadline=True),
            Field(self._done, DataType.BOOL, FALSE, Fold.ANY),
        )

    def finished(self, state: State) -> Expr:
        return state[self._done]

    def _deadline_from(self, now: Expr) -> Expr:
        due = now + self.trigger.delay
        if self.trigger.align is None:
            return due
        return due + ((Literal(self.trigger.align_offset) - due) % self.trigger.align)

    def on_element(self, state: State, count: Expr, when: Expr, moment: Moment) -> State:
        old = state[self._deadline]
        starts = all_of(when, count > 0, old.is_null(), negate(state[self._done]))
        return {**state, self._deadline: choose(starts, self._deadline_from(moment.now), old)}

    def ready(self, program: Program, state: State, moment: Moment) -> Expr:
        deadline = state[self._deadline]
        return all_of(deadline.is_not_null(), moment.now >= deadline)

    def on_fire(self, program: Program, state: State, when: Expr, moment: Moment) -> State:
        deadline = choose(when, NO_DEADLINE, state[self._deadline])
        return {**state, self._deadline: deadline, self._done: any_of(state[self._done], when)}

    def after_merge(self, program: Program, state: State, passed_end: Expr) -> State:
        return {**state, self._deadline: choose(state[self._done], NO_DEADLINE, state[self._deadline])}


class RepeatedlyNode(Node):
    """Fires its child and starts it again when it finishes."""

    def on_element(self, state: State, count: Expr, when: Expr, moment: Moment) -> State:
        return self.children[0].on_element(state, count, when, moment)

    def ready(self, program: Program, state: State, moment: Moment) -> Expr:
        return self.children[0].ready(program, state, moment)

    def on_fire(self, program: Program, state: State, when: Expr, moment: Moment) -> State:
        child = self.children[0]
        fired = child.on_fire(program, state, when, moment)
        done = program.let("restart", all_of(when, child.finished(fired)))
        return child.reset(fired, done)


class WatermarkNode(Node):
    """AfterWatermark without early or late: fires once when the watermark passes the end."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._done = f"{path}_done"
        self.own = (Field(self._done, DataType.BOOL, FALSE, Fold.ALL),)

    def finished(self, state: State) -> Expr:
        return state[self._done]

    def on_element(self, state: State, count: Expr, when: Expr, moment: Moment) -> State:
        return state

    def ready(self, program: Program, state: State, moment: Moment) -> Expr:
        return moment.passed_end

    def on_fire(self, program: Program, state: State, when: Expr, moment: Moment) -> State:
        return {**state, self._done: any_of(state[self._done], when)}

    def after_merge(self, program: Program, state: State, passed_end: Expr) -> State:
        return {**state, self._done: program.let("done", all_of(state[self._done], passed_end))}


class EarlyLateNode(Node):
    """AfterWatermark with early and/or late: early until the end of the window, then once, then late."""

    def __init__(self, path: str, early: Node | None, late: Node | None, merging: bool) -> None:
        super().__init__(path, tuple(n for n in (early, late) if n is not None))
        self.early, self.late, self.merging = early, late, merging
        self._late_phase = f"{path}_late_phase"
        self.own = (Field(self._late_phase, DataType.BOOL, FALSE, Fold.ALL),)

    def finished(self, state: State) -> Expr:
        return FALSE if self.late else state[self._late_phase]

    def on_element(self, state: State, count: Expr, when: Expr, moment: Moment) -> State:
        late = state[self._late_phase]
        if self.early:
            active = TRUE if self.merging else negate(late)
            state = self.early.on_element(state, count, all_of(when, active), moment)
        if self.late:
            active = TRUE if self.merging else late
            state = self.late.on_element(state, count, all_of(when, active), moment)
        return state

    def ready(self, program: Program, state: State, moment: Moment) -> Expr:
        early = self.early.ready(program, state, moment) if self.early else FALSE
        late = self.late.ready(program, state, moment) if self.late else FALSE
        first = any_of(early, moment.passed_end)
        return program.let("ready", choose(state[self._late_phase], late, first))

    def on_fire(self, program: Program, state: State, when: Expr, moment: Moment) -> State:
        late_phase = state[self._late_phase]
        ends = program.let("ends", all_of(when, negate(late_phase), moment.passed_end))
        result = state
        if self.early:
            speculative = program.let("speculative", all_of(when, negate(late_phase), negate(moment.passed_end)))
            result = self.early.reset(self.early.on_fire(program, result, speculative, moment), ends)
        if self.late:
            again = program.let("again", all_of(when, late_phase))
            result = self.late.reset(self.late.on_fire(program, result, again, moment), ends)
        return {**result, self._late_phase: any_of(late_phase, ends)}

    def after_merge(self, program: Program, state: State, passed_end: Expr) -> State:
        late_phase = program.let("late_phase", all_of(state[self._late_phase], passed_end))
        state = super().after_merge(program, state, passed_end)
        if self.early:
            state = self.early.reset(state, late_phase)
        if self.late:
            state = self.late.reset(state, negate(late_phase))
        return {**state, self._late_phase: late_phase}


def compile_trigger(trigger: Trigger, merging: bool, path: str = "_t") -> Node:
    """The node of ``trigger``. ``merging`` says whether the window function merges (semantics, below table 4.2)."""
    match trigger:
        case Default():
            return DefaultNode(path)
        case AfterCount(count):
            return CountNode(path, count)
        case AfterProcessingTime():
            return ProcessingTimeNode(path, trigger)
        case AfterWatermark(None, None):
            return WatermarkNode(path)
        case AfterWatermark(early, late):
            return EarlyLateNode(
                path, _repeated(early, merging, f"{path}e"), _repeated(late, merging, f"{path}l"), merging
            )
        case Repeatedly(child):
            return RepeatedlyNode(path, (compile_trigger(child, merging, f"{path}r"),))
    raise PipelineError(f"the Spark engine does not run the trigger {trigger!r} yet")


def _repeated(trigger: Trigger | None, merging: bool, path: str) -> Node | None:
    if trigger is None:
        return None
    return RepeatedlyNode(path, (compile_trigger(trigger, merging, f"{path}r"),))


def next_deadline(node: Node, state: State, now: Expr) -> Expr:
    """The earliest processing-time deadline of the tree after ``now``, NEVER if there is none.

    A deadline that has passed without its node firing (it waits for another) is not asked about again (semantics 4.1).
    """
    deadlines = [state[f.name] for f in node.fields if f.is_deadline]
    pending = [choose(deadline > now, deadline, NEVER) for deadline in deadlines]
    return least(*pending, Literal(NEVER)) if pending else Literal(NEVER)


def fresh(node: Node) -> dict[str, Expr]:
    """The state of a new window."""
    return {f.name: f.initial for f in node.fields}


def columns(node: Node) -> dict[str, Expr]:
    """The state as the columns of a row."""
    return {f.name: Column(f.name) for f in node.fields}
