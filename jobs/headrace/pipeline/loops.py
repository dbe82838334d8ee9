"""Loops (semantics 13): a value for each vertex of a graph, which goes round over its edges.

A loop has one result, however its rounds are cut, if its step is monotone and never makes a value better. Otherwise a
value would become better around a circle for ever. Nobody can tell that of any expression; everybody can tell it of a
few forms.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from functools import cached_property

from headrace.errors import PipelineError
from headrace.model.arguments import REQUIRED, Arguments, Suggesting, check_keywords, locate_errors, register_word
from headrace.model.expressions.columns import require_expression
from headrace.model.expressions.data_types import DataType, Schema
from headrace.model.expressions.expr import Binary, Column, Expr, Function, Literal, render
from headrace.model.expressions.typing import columns_of, too_large, type_of

VALUE = "value"
"""The column of the value of a vertex, in ``step`` and in panes."""

_FORMS = (
    "a step is value, or that plus or minus what the record says, or least(...) or greatest(...) of such values and "
    "what the record says"
)


class LoopError(PipelineError, code="config.loop"):
    """A loop that would have no result, or more than one."""


@dataclass(frozen=True)
class StepTerm:
    """What a step reads of a record: ``expr``, kept by the edge as column ``name``. It must be at least zero where
    ``sign`` is 1, at most zero where it is -1.
    """

    name: str
    expr: Expr
    sign: int

    @property
    def of_null(self) -> str:
        """Why a record is a dead letter whose term is NULL."""
        return f"the step of the loop is null: {render(self.expr)}"

    @property
    def of_wrong_sign(self) -> str:
        """Why a record is a dead letter that makes values better on the way."""
        return f"the step of the loop descends: {render(self.expr)}"


@dataclass(frozen=True)
class EdgeStep:
    """A step as ``expr`` over the value and the ``terms`` of an edge."""

    expr: Expr
    terms: tuple[StepTerm, ...]


def step_of(step: Expr, *, descends_upwards: bool) -> EdgeStep:
    """``step``, taken apart. ``descends_upwards``: greater values are better. Raises LoopError if it is of no form that
    is known to be monotone.
    """
    if VALUE not in columns_of(step):
        raise LoopError(f"{render(step)} does not read the value: write an expression over col({VALUE!r}); {_FORMS}")
    terms = _Terms(-1 if descends_upwards else 1)
    return EdgeStep(terms.replace_terms(step), tuple(terms.step_terms))


class _Terms:
    """The terms of a step as they are met. ``worse_sign``: the sign of what makes a value worse."""

    def __init__(self, worse_sign: int) -> None:
        self.worse_sign = worse_sign
        self.step_terms: list[StepTerm] = []

    def replace_terms(self, expr: Expr) -> Expr:
        """``expr``, which reads the value, with terms in place of what it reads of the record."""
        match expr:
            case Column():
                return expr
            case Binary("+", left, right) if not _all_read_value(left, right):
                if _reads_value(left):
                    return Binary("+", self.replace_terms(left), self.make_term(right, self.worse_sign))
                return Binary("+", self.make_term(left, self.worse_sign), self.replace_terms(right))
            case Binary("-", left, right) if not _reads_value(right):
                return Binary("-", self.replace_terms(left), self.make_term(right, -self.worse_sign))
            case Function("plus_us" | "plus_days" as name, (time, amount)) if not _reads_value(amount):
                return Function(name, (self.replace_terms(time), self.make_term(amount, self.worse_sign)))
            case Function("least" | "greatest" as name, args):
                parts = (self.replace_terms(one) if _reads_value(one) else self.make_term(one, 0) for one in args)
                return Function(name, tuple(parts))
        raise LoopError(f"{render(expr)}: {_refusal_reason(expr)}; {_FORMS}")

    def make_term(self, expr: Expr, sign: int) -> Expr:
        """``expr``, which does not read the value, as the edge has it."""
        if isinstance(expr, Literal):
            return self._constant_term(expr, sign)
        name = f"_e{len(self.step_terms)}"
        self.step_terms.append(StepTerm(name, expr, sign))
        return Column(name)

    def _constant_term(self, literal: Literal, sign: int) -> Expr:
        if literal.value is None:
            raise LoopError("it is always NULL, so nothing would ever arrive: leave NULL out of it")
        value = literal.value  # what is no number has the wrong type, which is said later
        if sign and isinstance(value, int | float | Decimal) and value * sign < 0:
            better = "smaller" if self.worse_sign > 0 else "greater"
            raise LoopError(
                f"{render(literal)} makes the value better, which is {better} here, at every step: around a circle it "
                "would never end"
            )
        return literal


def _reads_value(expr: Expr) -> bool:
    return VALUE in columns_of(expr)


def _all_read_value(*parts: Expr) -> bool:
    return all(map(_reads_value, parts))


def _refusal_reason(expr: Expr) -> str:
    match expr:
        case Function("negate") | Binary("-"):
            return "it turns the order of values round: what is better at one end would be worse at the other"
        case Binary("+", left, right) if _all_read_value(left, right):
            return "nobody can tell whether the value plus itself is better or worse"
    return "it is not known to keep the order of values"


def terms_named(terms: Sequence[StepTerm]) -> dict[str, Expr]:
    """What edges keep of their records, by column."""
    return {term.name: term.expr for term in terms}


VERTEX = "vertex"
"""The column of a vertex, in ``start`` and in panes."""


class Combine(StrEnum):
    """Which of several values a vertex keeps."""

    LEAST = "least"
    GREATEST = "greatest"


@register_word("loop", start=REQUIRED, step=REQUIRED, combine=REQUIRED, both_ways=False)
@check_keywords
@dataclass(frozen=True, init=False)
class Loop(Suggesting):
    """Gives each vertex of a graph a value, which goes round over its edges until nothing changes. Records are the
    edges; the two columns of the output's ``key`` are their ends (semantics 13).

    ``start`` is the value that a vertex has by itself, an expression over ``vertex``; NULL: none. ``step`` is the value
    at the other end of an edge, given the one at its first end. It is an expression over ``value`` and the columns of
    the record. It never turns the order of values round, and never makes them better. ``combine`` says which of several
    values a vertex keeps: "least" or "greatest". ``both_ways``: edges have no direction. ``rounds``: how far a change
    goes in one epoch; what is in flight then is part of the snapshot, and the next epoch takes it up first. None: until
    nothing changes.

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
        arguments = Arguments("Loop", LoopError)
        set_ = object.__setattr__
        for name, value in (("start", start), ("step", step)):
            expr = require_expression(arguments, name, value)
            if why := too_large(expr):
                raise LoopError(f"Loop({name}): {why}")
            set_(self, name, expr)
        set_(self, "combine", arguments.choice("combine", combine, Combine))
        set_(self, "both_ways", arguments.flag("both_ways", both_ways))
        set_(self, "rounds", None if rounds is None else arguments.whole_number("rounds", rounds, least=1))
        if others := sorted(columns_of(self.start) - {VERTEX}):
            why = f"it reads {others[0]!r}; a vertex has the column {VERTEX!r} alone, whatever its edges"
            raise arguments.refusal("start", start, why)
        self.compiled_step  # noqa: B018 - which says what is wrong with it

    @property
    def keeps_least(self) -> bool:
        """Whether a smaller value is a better one."""
        return self.combine is Combine.LEAST

    @cached_property
    def compiled_step(self) -> EdgeStep:
        """``step`` over the value and what edges keep of their records. Raises LoopError if it is not monotone."""
        with locate_errors("Loop(step)", LoopError):
            return step_of(self.step, descends_upwards=not self.keeps_least)


LOOP_EXAMPLE = 'Loop(start=col("vertex"), step=col("value"), combine="least", both_ways=True)'

OF_PANES = (
    "it reads panes of other outputs, which are withdrawn or replaced. Values on a circle keep each other up when what "
    "they came from is withdrawn: give the loop to an output that reads records"
)

_COMPARABLE_TYPES = frozenset(DataType) - {DataType.FLOAT, DataType.BYTES}


def element_schema(loop: Loop, ends: Mapping[str, Expr], schema: Schema) -> Schema:
    """What a loop gives of records of ``schema`` with these ``ends``: each a vertex and its value.

    Raises LoopError if a type does not fit.
    """
    kinds = {name: type_of(expr, schema) for name, expr in ends.items()}
    kind, *others = kinds.values()
    if kind is None or others != [kind]:
        types_in_words = " and ".join(f"{name} is {kind}" for name, kind in kinds.items())
        raise LoopError(
            f"key: {types_in_words}: the ends of an edge are of one type, for both are vertices; cast one of them"
        )
    if VALUE in schema:
        raise LoopError(
            f"records have a column {VALUE!r}, which in the step of a loop is the value of a vertex. Give the column "
            "another name in the source's schema"
        )
    with locate_errors("Loop(start)", LoopError):
        value = type_of(loop.start, {VERTEX: kind})
    if value not in _COMPARABLE_TYPES:
        why = {None: "always NULL", DataType.FLOAT: "a float, which does not compare exactly"}.get(value, str(value))
        raise LoopError(f"Loop(start): it is {why}; give values that can be compared, such as ints or decimals")
    with locate_errors("Loop(step)", LoopError):
        step = type_of(loop.step, {**schema, VALUE: value})
    for term in loop.compiled_step.terms:
        if type_of(term.expr, schema) is None:
            raise LoopError(f"Loop(step): {render(term.expr)} is always NULL, so nothing would ever arrive")
    if step is not value:
        raise LoopError(f"Loop(step): it is {step}, and the value that comes to an edge is {value}; cast what it reads")
    return {VERTEX: kind, VALUE: value}
