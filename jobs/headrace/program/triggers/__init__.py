"""Trigger trees as column programs: a class for each node of the model, and ``compile_trigger`` from one to the other.

A new trigger is one class and one line in ``compile_trigger``.
"""

from headrace.errors import PipelineError
from headrace.model.custom_triggers import CustomTrigger
from headrace.model.expressions.expr import Column, Expr, Function, Literal, Schema, coalesce, least
from headrace.model.time import NEVER
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
from headrace.program import columns as c
from headrace.program.lets import choose
from headrace.program.triggers.composites import (
    AllNode,
    AnyNode,
    EachNode,
    EarlyLateNode,
    OrFinallyNode,
    RepeatedlyNode,
)
from headrace.program.triggers.custom import CustomNode
from headrace.program.triggers.leaves import (
    AlwaysNode,
    DataNode,
    DefaultNode,
    NeverNode,
    PatternNode,
    PercentileNode,
    ProcessingTimeNode,
    SignalNode,
    ThresholdNode,
    WatermarkNode,
)
from headrace.program.triggers.node import (
    Bundle,
    ColumnMerge,
    Field,
    Measure,
    Moment,
    Node,
    Sources,
    State,
    columns,
    fresh,
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
    "columns",
    "compile_trigger",
    "fresh",
    "next_deadline",
]


def compile_trigger(  # noqa: PLR0911, PLR0912 (a table)
    trigger: Trigger, merging: bool, schema: Schema, path: str = "_t"
) -> Node:
    """The node of ``trigger`` over elements of ``schema``. ``merging`` says whether the window function merges
    (semantics, below table 4.2).
    """
    match trigger:
        case Default():
            return DefaultNode(path)
        case Never():
            return NeverNode(path)
        case Always():
            return AlwaysNode(path)
        case AfterCount(count):
            return ThresholdNode(path, count)
        case AfterBytes(size):
            return ThresholdNode(path, size, Column(c.SIZE))
        case AfterPunctuation(predicate):
            return ThresholdNode(path, 1, Function("if", (coalesce(predicate, False), Literal(1), Literal(0))))
        case DataDriven():
            return DataNode(path, trigger, schema)
        case AfterPattern():
            return PatternNode(path, trigger)
        case CustomTrigger():
            return CustomNode(path, trigger)
        case AfterSignal(name):
            return SignalNode(path, name)
        case AfterProcessingTime():
            return ProcessingTimeNode(path, trigger)
        case AfterSynchronizedProcessingTime():
            # what was in flight upstream of a bundle has arrived when the bundle has
            return ProcessingTimeNode(path, AfterProcessingTime())
        case AfterWatermark(None, None):
            return WatermarkNode(path)
        case AfterPercentileWatermark(percentile):
            return PercentileNode(path, percentile)
        case AfterWatermark(early, late):
            first = None if early is None else compile_trigger(early, merging, schema, f"{path}e")
            second = None if late is None else compile_trigger(late, merging, schema, f"{path}l")
            return EarlyLateNode(path, first, second, merging)
        case Repeatedly(child):
            return RepeatedlyNode(path, (compile_trigger(child, merging, schema, f"{path}r"),))
        case AfterAny(triggers):
            return AnyNode(path, _compile_all(triggers, merging, schema, path))
        case AfterAll(triggers):
            return AllNode(path, _compile_all(triggers, merging, schema, path))
        case AfterEach(triggers):
            return EachNode(path, _compile_all(triggers, merging, schema, path), merging)
        case OrFinally(main, until):
            return OrFinallyNode(path, _compile_all((main, until), merging, schema, path))
    raise PipelineError(f"{trigger!r} is not a trigger that has a program")


def _compile_all(triggers: tuple[Trigger, ...], merging: bool, schema: Schema, path: str) -> tuple[Node, ...]:
    return tuple(compile_trigger(trigger, merging, schema, f"{path}{i}") for i, trigger in enumerate(triggers))


def next_deadline(node: Node, state: State, now: Expr) -> Expr:
    """The earliest processing-time deadline of the tree after ``now``, NEVER if there is none.

    A deadline that has passed without its node firing (it waits for another) is not asked about again (semantics 4.1).
    """
    deadlines = [state[f.name] for f in node.fields if f.is_deadline]
    pending = [choose(deadline > now, deadline, NEVER) for deadline in deadlines]
    return least(*pending, Literal(NEVER)) if pending else Literal(NEVER)
