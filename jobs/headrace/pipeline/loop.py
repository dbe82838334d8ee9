"""A loop as users write it (semantics 13), and the aggregations that it stands for: of records grouped as edges, and of
the values that it gives to vertices, the first of its output.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

from headrace.errors import PipelineError
from headrace.model.arguments import Arguments, Suggesting, keywords
from headrace.model.combiners import Aggregate, count
from headrace.model.expressions.data_types import DataType, Schema
from headrace.model.expressions.expr import Column, Expr, render
from headrace.model.expressions.functions import Key, expression, key_columns
from headrace.model.expressions.trees import columns_of, too_large
from headrace.model.expressions.typing import type_of
from headrace.model.triggers.leaves import Default
from headrace.model.vocabulary import REQUIRED, word
from headrace.pipeline.aggregation import Aggregation
from headrace.pipeline.loop_step import VALUE, EdgeStep, LoopError, step_of, terms_named

VERTEX = "vertex"
"""The column of a vertex, in ``start`` and in panes."""


class Combine(StrEnum):
    """Which of several values a vertex keeps."""

    LEAST = "least"
    GREATEST = "greatest"


@word("loop", start=REQUIRED, step=REQUIRED, combine=REQUIRED, both_ways=False)
@keywords
@dataclass(frozen=True, init=False)
class Loop(Suggesting):
    """Gives each vertex of a graph a value, which goes round over its edges until nothing changes. Records are the
    edges; the two columns of the output's ``key`` are their ends (semantics 13).

    ``start`` is the value that a vertex has by itself, an expression over ``vertex``; NULL: none. ``step`` is what the
    value at the first end of an edge is at its other end: an expression over ``value`` and the columns of the record
    that never turns the order of values round, and never makes them better. ``combine`` says which of several values a
    vertex keeps: "least" or "greatest". ``both_ways``: edges have no direction. ``rounds``: how far a change goes in
    one epoch; what is in flight then is part of the snapshot, and the next epoch takes it up first. None: until nothing
    changes.

    Panes have the columns ``vertex`` and ``value``. Connected components, then distances from one vertex:

    >>> components = hr.Loop(start=hr.col("vertex"), step=hr.col("value"), combine="least", both_ways=True)
    >>> components.rounds
    64
    >>> at_the_start = hr.if_else(hr.col("vertex") == "FRA", 0, None)
    >>> hr.Loop(start=at_the_start, step=hr.col("value") + hr.col("minutes"), combine="least").combine.value
    'least'
    """

    start: Expr
    step: Expr
    combine: Combine
    both_ways: bool
    rounds: int | None

    def __init__(
        self,
        *,
        start: Expr,
        step: Expr,
        combine: Combine | str,
        both_ways: bool = False,
        rounds: int | None = 64,
    ) -> None:
        given = Arguments("Loop", LoopError)
        set_ = object.__setattr__
        for name, value in (("start", start), ("step", step)):
            expr = expression(given, name, value)
            if why := too_large(expr):
                raise LoopError(f"Loop({name}): {why}")
            set_(self, name, expr)
        set_(self, "combine", given.choice("combine", combine, Combine))
        set_(self, "both_ways", given.flag("both_ways", both_ways))
        set_(self, "rounds", None if rounds is None else given.whole("rounds", rounds, least=1))
        if others := sorted(columns_of(self.start) - {VERTEX}):
            raise given.wrong(
                "start", start, f"it reads {others[0]!r}; a vertex has the column {VERTEX!r} alone, whatever its edges"
            )
        self.compiled_step  # noqa: B018 - which says what is wrong with it

    @property
    def keeps_least(self) -> bool:
        """Whether a smaller value is a better one."""
        return self.combine is Combine.LEAST

    @cached_property
    def compiled_step(self) -> EdgeStep:
        """``step`` over the value and what edges keep of their records. Raises LoopError if it is not monotone."""
        try:
            return step_of(self.step, descends_upwards=not self.keeps_least)
        except PipelineError as error:
            raise LoopError(f"Loop(step): {error}") from None


LOOP_EXAMPLE = 'Loop(start=col("vertex"), step=col("value"), combine="least", both_ways=True)'

OF_PANES = (
    "it reads panes of other outputs, which are withdrawn or replaced, and values that go round a circle keep each "
    "other up when what they came from is withdrawn: give the loop to an output that reads records"
)

_ENDS = 2
_COMPARED = frozenset(DataType) - {DataType.FLOAT, DataType.BYTES}
_WRITTEN = ("key", "what", "where", "when", "how", "filter", "having", "renamed")


@dataclass(frozen=True)
class Grouping:
    """The ``first`` aggregation; with a ``loop`` what makes its elements, and records grouped as ``edges``."""

    first: Aggregation
    loop: Loop | None = None
    edges: Aggregation | None = None

    @property
    def fields(self) -> Mapping[str, Any]:
        """The fields of who has it: the parts as the user wrote them are there by themselves. Key and filter are those
        of records, and the value of a loop is not named.
        """
        parts = {name: getattr(self.first, name) for name in _WRITTEN}
        if self.edges is not None:
            ends = dict([*self.edges.key.items()][:_ENDS])
            parts |= {"key": ends, "filter": self.edges.filter, "what": self.first.results}
        return {**parts, "first": self.first, "loop": self.loop}


def grouping(
    given: Arguments,
    loop: object,
    *,
    key: Key,
    what: Mapping[str, Aggregate | Expr],
    filter: Expr | None,  # noqa: A002 (the word of the domain)
    **questions: Any,
) -> Grouping:
    """The first aggregation of what was ``given``. Raises PipelineError for an argument that is wrong."""
    owner = given.owner
    if loop is None:
        return Grouping(Aggregation(key=key, what=what, filter=filter, **questions, _owner=owner))
    made = given.instance("loop", loop, Loop, LOOP_EXAMPLE)
    return _looped(Arguments(owner, LoopError), made, questions, key=key, what=what, condition=filter)


def _looped(
    given: Arguments,
    loop: Loop,
    questions: Mapping[str, Any],
    *,
    key: Key,
    what: Mapping[str, Aggregate | Expr],
    condition: Expr | None,
) -> Grouping:
    ends = key_columns(given, "key", key)
    if len(ends) != _ENDS:
        raise given.wrong("key", key, 'a loop goes over edges: name the columns of their two ends, key=["a", "b"]')
    write = '{"distance": col("value")}'
    columns: dict[str, Aggregate | Expr] = given.mapping("what", what, (Aggregate, Expr), write, least=0)  # type: ignore[arg-type]
    for name, made in columns.items():
        if isinstance(made, Aggregate):
            raise given.wrong(
                f"what[{name!r}]", made, f"what a loop computes is {VALUE!r}; expressions over it may stand here"
            )
    keys: dict[str, Expr] = {**ends, **terms_named(loop.compiled_step.terms)}
    edges = Aggregation(
        key=keys,
        what={"edges": count()},
        when=Default(),  # which nothing asks: edges do not fire
        where=questions["where"],
        how=questions["how"],
        filter=condition,
        _owner=given.owner,
    )
    value = Column(VALUE).min() if loop.keeps_least else Column(VALUE).max()
    first = Aggregation(key=VERTEX, what={VALUE: value, **columns}, **questions, _owner=given.owner)
    return Grouping(first, loop, edges)


def element_schema(loop: Loop, ends: Mapping[str, Expr], schema: Schema) -> Schema:
    """What a loop gives of records of ``schema`` with these ``ends``: each a vertex and its value.

    Raises LoopError if a type does not fit.
    """
    kinds = {name: type_of(expr, schema) for name, expr in ends.items()}
    kind, *others = kinds.values()
    if kind is None or others != [kind]:
        written = " and ".join(f"{name} is {kind}" for name, kind in kinds.items())
        raise LoopError(f"key: {written}: the ends of an edge are of one type, for both are vertices; cast one of them")
    if VALUE in schema:
        raise LoopError(
            f"records have a column {VALUE!r}, which in the step of a loop is the value of a vertex: give the column "
            "another name in the source's schema"
        )
    try:
        value = type_of(loop.start, {VERTEX: kind})
    except PipelineError as error:
        raise LoopError(f"Loop(start): {error}") from None
    if value not in _COMPARED:
        why = {None: "always NULL", DataType.FLOAT: "a float, which does not compare exactly"}.get(value, str(value))
        raise LoopError(f"Loop(start): it is {why}; give values that can be compared, such as ints or decimals")
    try:
        step = type_of(loop.step, {**schema, VALUE: value})
    except PipelineError as error:
        raise LoopError(f"Loop(step): {error}") from None
    for term in loop.compiled_step.terms:
        if type_of(term.expr, schema) is None:
            raise LoopError(f"Loop(step): {render(term.expr)} is always NULL, so nothing would ever arrive")
    if step is not value:
        raise LoopError(f"Loop(step): it is {step}, and the value that comes to an edge is {value}; cast what it reads")
    return {VERTEX: kind, VALUE: value}
