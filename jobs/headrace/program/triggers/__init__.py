"""Trigger trees as column programs: a class for each node of the model, to which ``compile_trigger`` leads."""

from headrace.model.expressions.columns import least
from headrace.model.expressions.expr import Expr, Literal
from headrace.model.time import NEVER
from headrace.program.columns import choose
from headrace.program.triggers import composites, leaves
from headrace.program.triggers.node import (
    Bundle,
    ColumnMerge,
    Field,
    Measure,
    Moment,
    Node,
    Sources,
    State,
    TriggerPlace,
    columns,
    compile_trigger,
    fresh_state,
)

__all__ = [
    "Bundle",
    "ColumnMerge",
    "Field",
    "Measure",
    "Moment",
    "Node",
    "Sources",
    "State",
    "TriggerPlace",
    "columns",
    "compile_trigger",
    "composites",
    "custom",
    "fresh_state",
    "leaves",
    "next_deadline",
]


def next_deadline(node: Node, state: State, now: Expr) -> Expr:
    """The earliest processing-time deadline of the tree after ``now``, NEVER if there is none.

    A deadline that has passed without its node firing (it waits for another) is not asked about again (semantics 4.1).
    """
    deadlines = [state[f.name] for f in node.fields if f.is_deadline]
    pending = [choose(deadline > now, deadline, NEVER) for deadline in deadlines]
    return least(*pending, Literal(NEVER)) if pending else Literal(NEVER)
