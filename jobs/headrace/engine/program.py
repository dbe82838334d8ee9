"""Column programs: straight-line code over the columns of one row, built once and run by Spark (or evaluated in a
test).

Every ``let`` names an intermediate result, so that a value used twice is computed once: expressions stay small where
nested substitution would grow exponentially. ``phases`` groups the lets by depth; each phase becomes one projection.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from headrace.model.expr import Column, Expr, Function, Literal, columns_of, lift

TRUE = Literal(True)
FALSE = Literal(False)


def is_literal(expr: Expr, value: object) -> bool:
    """Whether ``expr`` is the constant ``value``."""
    return isinstance(expr, Literal) and expr.value is value


def all_of(*terms: Expr) -> Expr:
    """Conjunction, with constants folded away."""
    kept = [t for t in terms if not is_literal(t, True)]
    if any(is_literal(t, False) for t in kept):
        return FALSE
    return _fold("and", kept, TRUE)


def any_of(*terms: Expr) -> Expr:
    """Disjunction, with constants folded away."""
    kept = [t for t in terms if not is_literal(t, False)]
    if any(is_literal(t, True) for t in kept):
        return TRUE
    return _fold("or", kept, FALSE)


def _fold(op: str, terms: list[Expr], empty: Expr) -> Expr:
    if not terms:
        return empty
    result = terms[0]
    for term in terms[1:]:
        result = result & term if op == "and" else result | term
    return result


def negate(term: Expr) -> Expr:
    """Negation, with constants folded away."""
    if is_literal(term, True):
        return FALSE
    if is_literal(term, False):
        return TRUE
    return Function("not", (term,))


def choose(condition: Expr, then: Expr | int | bool | None, otherwise: Expr | int | bool | None) -> Expr:
    """``then`` where the condition is TRUE, else ``otherwise``; a constant condition is folded away."""
    yes, no = lift(then), lift(otherwise)
    if is_literal(condition, True):
        return yes
    if is_literal(condition, False):
        return no
    if yes is no:
        return yes
    return Function("if", (condition, yes, no))


@dataclass
class Program:
    """A growing list of named expressions over the input columns ``inputs``."""

    inputs: frozenset[str]
    prefix: str = "_v"
    lets: list[tuple[str, Expr]] = field(default_factory=list)
    _depth: dict[str, int] = field(default_factory=dict)

    def let(self, hint: str, expr: Expr) -> Expr:
        """Name ``expr``; what comes back stands for its value. Columns and constants need no name."""
        if isinstance(expr, Column | Literal):
            return expr
        name = f"{self.prefix}{len(self.lets)}_{hint}"
        self.lets.append((name, expr))
        self._depth[name] = 1 + self._level(columns_of(expr))
        return Column(name)

    def _level(self, names: Iterable[str]) -> int:
        return max((self._depth.get(name, 0) for name in names), default=0)

    def phases(self) -> list[dict[str, Expr]]:
        """The lets grouped by depth: each phase reads only the inputs and earlier phases."""
        grouped: dict[int, dict[str, Expr]] = {}
        for name, expr in self.lets:
            grouped.setdefault(self._depth[name], {})[name] = expr
        return [grouped[level] for level in sorted(grouped)]
