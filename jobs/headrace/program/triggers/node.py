"""What trigger nodes have in common: state as columns, what evaluations may look at; and how triggers compile to them.

A node's state is a few columns and each of its rules a column expression (the table of semantics 4.2). Merging is 12.8:
every state column folds over all merged open windows at once (``ColumnMerge``). Then ``after_merge`` walks from the
root down and resets what the table says. Nodes never look at each other's columns.

``compile_trigger`` goes from a trigger to its node. Each node registers how its triggers compile where it is defined.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import singledispatch
from typing import Any, NamedTuple

import msgspec

from headrace.errors import PipelineError
from headrace.model.expressions.columns import least
from headrace.model.expressions.data_types import DataType, Schema
from headrace.model.expressions.expr import Column, Expr, Literal
from headrace.model.time import NEVER
from headrace.model.triggers import Trigger
from headrace.program.columns import FALSE, Program, all_of, choose

State = Mapping[str, Expr]


class ColumnMerge(StrEnum):
    """How a state column of several merged windows becomes one (LIST is only of measures)."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"
    ANY = "any"
    ALL = "all"
    LIST = "list"


class Field(msgspec.Struct, frozen=True):
    """A state column: its type, its value in a fresh window, and how it merges."""

    name: str
    type: DataType
    initial: Literal
    fold: ColumnMerge
    is_deadline: bool = False


class Measure(msgspec.Struct, frozen=True):
    """A column of the delta that a node wants. It is ``input`` over the elements of a bundle, folded (SUM, MIN or MAX),
    or an array in order of arrival (LIST). Without ``type`` and ``input`` it is a LIST of the elements themselves, with
    their records and event times (``custom_triggers``).
    """

    name: str
    type: DataType | None
    input: Expr | None
    fold: ColumnMerge


class Sources(msgspec.Struct, frozen=True):
    """A column of what a node's state is in each of the open windows that merge: an array of structs, in order of
    windows; ``fields`` maps their fields to state columns.
    """

    name: str
    fields: Mapping[str, str]


class Moment(msgspec.Struct, frozen=True):
    """What an evaluation may look at: whether the watermark passed the window's end, the processing-time clock, and
    whether each percentile watermark passed the end.
    """

    passed_end: Expr
    now: Expr
    percentiles: Mapping[float, Expr] = msgspec.field(default_factory=dict)


class Bundle(msgspec.Struct, frozen=True):
    """What one epoch brings to a window. It is ``count`` elements, where ``has_arrived`` is TRUE (measures are columns
    of the row), or ``signals``: the name of each, and where it came.
    """

    count: Expr
    has_arrived: Expr
    signals: Mapping[str, Expr] = msgspec.field(default_factory=dict)

    def where(self, condition: Expr) -> "Bundle":
        """The bundle for a child that learns of it only where ``condition`` holds."""
        signals_received = {name: all_of(where, condition) for name, where in self.signals.items()}
        return Bundle(self.count, all_of(self.has_arrived, condition), signals_received)


class Node(ABC):
    """One node: pure functions from state (column -> expression) to state."""

    own: tuple[Field, ...] = ()
    own_measures: tuple[Measure, ...] = ()
    own_percentiles: tuple[float, ...] = ()
    own_signals: tuple[str, ...] = ()
    own_sources: tuple[Sources, ...] = ()

    def __init__(self, path: str, children: "tuple[Node, ...]" = ()) -> None:
        self.path = path
        self.children = children

    @property
    def fields(self) -> tuple[Field, ...]:
        """State columns of the whole subtree."""
        return (*self.own, *(f for child in self.children for f in child.fields))

    @property
    def measures(self) -> tuple[Measure, ...]:
        """What the subtree wants of the elements besides their number."""
        return (*self.own_measures, *(m for child in self.children for m in child.measures))

    @property
    def sources(self) -> tuple[Sources, ...]:
        """What the subtree wants of windows that merge, besides its state columns folded."""
        return (*self.own_sources, *(s for child in self.children for s in child.sources))

    @property
    def percentiles(self) -> frozenset[float]:
        """Percentile watermarks that the subtree looks at."""
        return frozenset(self.own_percentiles).union(*(child.percentiles for child in self.children))

    @property
    def signals(self) -> frozenset[str]:
        """Signals that the subtree waits for."""
        return frozenset(self.own_signals).union(*(child.signals for child in self.children))

    @property
    def ready_past_end(self) -> bool:
        """Whether a fresh node is ready whenever the watermark is past the end, whatever came before."""
        return False

    def state_values(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The values of its own state columns in a row of state, by their names without the path."""
        return {f.name.removeprefix(f"{self.path}_"): row[f.name] for f in self.own}

    def is_finished(self, state: State) -> Expr:
        return FALSE

    def reset(self, state: State, when: Expr) -> State:
        """The subtree as in a fresh window, where ``when`` holds."""
        initial_values = {f.name: choose(when, f.initial, state[f.name]) for f in self.fields}
        return {**state, **initial_values}

    def clear(self, program: Program, state: State, when: Expr) -> State:
        """Forget all progress where ``when`` holds; what has finished stays so."""
        for child in self.children:
            state = child.clear(program, state, when)
        return state

    def on_element(self, program: Program, state: State, bundle: Bundle, moment: Moment) -> State:
        """Elements or signals came; by default every child learns of them."""
        for child in self.children:
            state = child.on_element(program, state, bundle, moment)
        return state

    @abstractmethod
    def is_ready(self, program: Program, state: State, moment: Moment) -> Expr:
        """Whether the node fires if it is asked now."""

    @abstractmethod
    def on_fire(self, program: Program, state: State, when: Expr, moment: Moment) -> State:
        """The node fires, where ``when`` (which implies ready) holds."""

    def after_merge(self, program: Program, state: State, moment: Moment) -> State:
        """Folded columns made right from the root down; ``moment`` is that of the merged window."""
        for child in self.children:
            state = child.after_merge(program, state, moment)
        return state


def fresh_state(node: Node) -> dict[str, Expr]:
    """The state of a new window."""
    return {f.name: f.initial for f in node.fields}


def columns(node: Node) -> dict[str, Expr]:
    """The state as the columns of a row."""
    return {f.name: Column(f.name) for f in node.fields}


def next_deadline(node: Node, state: State, now: Expr) -> Expr:
    """The earliest processing-time deadline of the tree after ``now``, NEVER if there is none.

    A deadline that has passed without its node firing (it waits for another) is not asked about again (semantics 4.1).
    """
    deadlines = [state[f.name] for f in node.fields if f.is_deadline]
    pending = [choose(deadline > now, deadline, NEVER) for deadline in deadlines]
    return least(*pending, Literal(NEVER)) if pending else Literal(NEVER)


class TriggerPlace(NamedTuple):
    """Where a trigger stands: whether the windows merge (semantics, below table 4.2), and the types of the elements'
    columns. Its ``path`` from the root is how its state columns begin.
    """

    merging: bool
    schema: Schema
    path: str = "_t"

    def child_place(self, step: str) -> "TriggerPlace":
        return self._replace(path=self.path + step)


@singledispatch
def compile_trigger(trigger: Trigger, place: TriggerPlace) -> Node:
    """The node of ``trigger``. Raises PipelineError if it has none."""
    raise PipelineError(f"{trigger!r} is not a trigger that has a program")


def compile_children(triggers: Sequence[Trigger], place: TriggerPlace) -> tuple[Node, ...]:
    """The nodes of the children of a trigger, which are numbered."""
    return tuple(compile_trigger(trigger, place.child_place(str(i))) for i, trigger in enumerate(triggers))
