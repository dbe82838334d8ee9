"""Cases with a loop (semantics 13): ``loop`` of a case says what goes round, and its elements are edges.

``{"start": "vertex", "step": "value", "combine": "least", "both_ways": true, "rounds": 1}``: ``start`` is the vertex
itself, or an object with the value of each vertex that has one; ``step`` is the value, or with the edge's weight its
``sum``, ``least`` or ``greatest``. Without ``rounds`` there is no bound. An edge is
``{"from": "a", "to": "b", "weight": 3, "ts": 1}``; without a weight it has 0. A pane has the vertex as ``key``, the
value as ``result``.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from headrace import json
from headrace.errors import PipelineError
from headrace.model.expressions.columns import greatest, if_else, least
from headrace.model.expressions.expr import Expr, col
from headrace.pipeline.loops import VALUE, VERTEX, Combine, Loop
from headrace.pipeline.pipeline import Pipeline
from headrace_lab.conformance.cases import CaseElement, CaseStage, Json
from headrace_lab.conformance.fields import (
    CaseFormatError,
    an_object,
    field,
    flag,
    integer,
    member_of,
    one_of,
    text_or_integer,
)

ENDS = ("from", "to")
WEIGHT = "weight"
LOOP_FIELDS = frozenset({"start", "step", "combine", "both_ways", "rounds"})
EDGE_FIELDS = frozenset({*ENDS, WEIGHT, "ts"})

_STEPS: Mapping[str, Expr] = {
    "value": col(VALUE),
    "sum": col(VALUE) + col(WEIGHT),
    "least": least(col(VALUE), col(WEIGHT)),
    "greatest": greatest(col(VALUE), col(WEIGHT)),
}


def read_loop(raw: Any) -> Loop:
    """What goes round in a case."""
    return Loop(
        start=field(an_object(raw), "start", _start),
        step=_STEPS[field(raw, "step", one_of(*_STEPS))],
        combine=field(raw, "combine", member_of(Combine)),
        both_ways=field(raw, "both_ways", flag, False),
        rounds=field(raw, "rounds", integer, None),
    )


def _start(raw: Any) -> Expr:
    if raw == VERTEX:
        return col(VERTEX)
    value: Expr | None = None
    for vertex in an_object(raw):
        value = if_else(col(VERTEX) == vertex, field(raw, vertex, integer), value)
    if value is None:
        raise CaseFormatError(f'a start is "{VERTEX}", or says the value of at least one vertex')
    return value


def read_edge(raw: Json, timestamp: Any) -> CaseElement:
    """An edge at ``timestamp``."""
    start, end = (str(field(raw, end, text_or_integer)) for end in ENDS)
    weight = field(raw, WEIGHT, integer, 0)
    return CaseElement(f"{start} -> {end}", weight, timestamp, edge={ENDS[0]: start, ENDS[1]: end, WEIGHT: weight})


def loop_pipeline(stage: CaseStage) -> Pipeline:
    """The pipeline with the loop of ``stage``. Raises CaseFormatError if there can be none."""
    edges = json("elements", {ENDS[0]: str, ENDS[1]: str, WEIGHT: int, "at": datetime}).event_time("at", bound="0s")
    try:
        return Pipeline(
            "conformance", edges, key=[*ENDS], loop=stage.loop, where=stage.where, when=stage.when, how=stage.how
        )
    except PipelineError as error:
        raise CaseFormatError(str(error)) from error
