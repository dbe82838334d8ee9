"""A loop in words."""

from collections.abc import Iterator

from headrace.model.expressions.expr import render
from headrace.pipeline.loops.loop import VERTEX, Loop
from headrace.pipeline.pipeline import Pipeline

_WRONG = {1: "below zero or missing", 0: "missing", -1: "above zero or missing"}


def loop_lines(pipeline: Pipeline, loop: Loop) -> Iterator[str]:
    """What goes round over the edges of a ``pipeline`` with a ``loop``."""
    begin, end = (name if render(expr) == name else f"{name} = {render(expr)}" for name, expr in pipeline.key.items())
    directions = f"between {begin} and {end}, in both directions" if loop.both_ways else f"from {begin} to {end}"
    yield f"a record is an edge {directions}"
    if pipeline.filter is not None:
        yield f"of what passes {render(pipeline.filter)}"
    yield f"a {VERTEX} has by itself: {render(loop.start)}"
    yield f"over an edge its value becomes: {render(loop.step)}"
    for term in loop.compiled_step.terms:
        yield f"an edge is a dead letter if {render(term.expr)} is {_WRONG[term.sign]}"
    yield f"of several values it keeps the {loop.combine}"
    if loop.rounds is None:
        yield "an epoch turns rounds until nothing changes"
    else:
        rounds = "one round" if loop.rounds == 1 else f"{loop.rounds:,} rounds"
        yield f"an epoch turns at most {rounds}; what is in flight then goes on in the next epoch"


def loop_step(pipeline: Pipeline, loop: Loop) -> str:
    """The same in the graph of the pipeline."""
    arrow = "<->" if loop.both_ways else "->"
    return f"loop over {f' {arrow} '.join(pipeline.key)}: the {loop.combine} of {render(loop.step)}"
