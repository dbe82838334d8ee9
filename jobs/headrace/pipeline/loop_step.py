"""The step of a loop taken apart: what of it is the value, and what each edge keeps of its record.

A loop has one result, however its rounds are cut, if its step is monotone and never makes a value better: around a
circle a value would become better for ever. Nobody can tell that of any expression; of a few forms everybody can.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from headrace.errors import PipelineError
from headrace.model.expressions.expr import Binary, Column, Expr, Function, Literal, render
from headrace.model.expressions.trees import columns_of

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
    return EdgeStep(terms.moved(step), tuple(terms.taken))


class _Terms:
    """The terms of a step as they are met. ``away``: the sign of what makes a value worse."""

    def __init__(self, away: int) -> None:
        self.away = away
        self.taken: list[StepTerm] = []

    def moved(self, expr: Expr) -> Expr:
        """``expr``, which reads the value, with terms in place of what it reads of the record."""
        match expr:
            case Column():
                return expr
            case Binary("+", left, right) if not _both(left, right):
                if _reads(left):
                    return Binary("+", self.moved(left), self.term(right, self.away))
                return Binary("+", self.term(left, self.away), self.moved(right))
            case Binary("-", left, right) if not _reads(right):
                return Binary("-", self.moved(left), self.term(right, -self.away))
            case Function("plus_us" | "plus_days" as name, (time, amount)) if not _reads(amount):
                return Function(name, (self.moved(time), self.term(amount, self.away)))
            case Function("least" | "greatest" as name, args):
                return Function(name, tuple(self.moved(part) if _reads(part) else self.term(part, 0) for part in args))
        raise LoopError(f"{render(expr)}: {_reason(expr)}; {_FORMS}")

    def term(self, expr: Expr, sign: int) -> Expr:
        """``expr``, which does not read the value, as the edge has it."""
        if isinstance(expr, Literal):
            return self._constant(expr, sign)
        name = f"_e{len(self.taken)}"
        self.taken.append(StepTerm(name, expr, sign))
        return Column(name)

    def _constant(self, literal: Literal, sign: int) -> Expr:
        if literal.value is None:
            raise LoopError("it is always NULL, so nothing would ever arrive: leave NULL out of it")
        value = literal.value  # what is no number has the wrong type, which is said later
        if sign and isinstance(value, int | float | Decimal) and value * sign < 0:
            better = "smaller" if self.away > 0 else "greater"
            raise LoopError(
                f"{render(literal)} makes the value better, which is {better} here, at every step: around a circle it "
                "would never end"
            )
        return literal


def _reads(expr: Expr) -> bool:
    return VALUE in columns_of(expr)


def _both(*parts: Expr) -> bool:
    return all(map(_reads, parts))


def _reason(expr: Expr) -> str:
    """Why a step of that form is refused."""
    match expr:
        case Function("negate") | Binary("-"):
            return "it turns the order of values round: what is better at one end would be worse at the other"
        case Binary("+", left, right) if _both(left, right):
            return "nobody can tell whether the value plus itself is better or worse"
    return "it is not known to keep the order of values"


def terms_named(terms: Sequence[StepTerm]) -> dict[str, Expr]:
    """What edges keep of their records, by column."""
    return {term.name: term.expr for term in terms}
