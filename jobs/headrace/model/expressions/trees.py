"""Trees of expressions: going through one, how large it is, and what identifies it.

Going through an expression: its operands, all below it, the columns that it reads.

How large a tree is: what looks at one, node by node, must come to an end, and within Python's stack.

What identifies an expression: a JSON value, of which fingerprints are made. Its words never change.
"""

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from decimal import Decimal
from typing import Any, NamedTuple, TypeVar

from headrace.model.expressions.data_types import spelled
from headrace.model.expressions.expr import Binary, Column, Expr, Function, Literal


def children(expr: Expr) -> Iterator[Expr]:
    """The direct operands of ``expr``."""
    match expr:
        case Binary(_, left, right):
            yield left
            yield right
        case Function(_, args):
            yield from args


def walk(expr: Expr) -> Iterator[Expr]:
    """``expr`` and all below it."""
    left = [expr]
    while left:
        yield (node := left.pop())
        left += children(node)


def columns_of(expr: Expr) -> frozenset[str]:
    """Names of all columns that ``expr`` reads."""
    own = frozenset({expr.name}) if isinstance(expr, Column) else frozenset()
    return own.union(*(columns_of(child) for child in children(expr)))


MOST_NODES = 10_000
"""Operators, functions, columns and constants in one expression; what stands in it twice counts twice."""

DEEPEST = 150
"""How deep expressions may be nested. Some libraries go down into them a few calls a level."""

T = TypeVar("T")


class Extent(NamedTuple):
    """``nodes`` in all, of which what is there twice counts twice, and how many levels deep they are."""

    nodes: int
    depth: int


def extent(root: T, below: Callable[[T], Iterable[T]]) -> Extent:
    """The extent of the tree under ``root``; ``below`` gives the children of a node. Looks once at each node, however
    often it stands in the tree, and calls nothing of its own again.
    """
    known: dict[int, Extent] = {}
    left = [root]
    while left:
        node = left[-1]
        inner = [*below(node)]
        unknown = [child for child in inner if id(child) not in known]
        if unknown:
            left += unknown
            continue
        parts = [known[id(child)] for child in inner]
        depth = 1 + max((part.depth for part in parts), default=0)
        known[id(node)] = Extent(1 + sum(part.nodes for part in parts), depth)
        left.pop()
    return known[id(root)]


def too_large(expr: Expr) -> str | None:
    """Why ``expr`` is more than can be computed, and what to write instead; None if it is not."""
    size = extent(expr, children)
    if size.depth > DEEPEST:
        return (
            f"the expression is {size.depth:,} levels deep, and may be {DEEPEST}: add up or choose in groups, use "
            "is_in, least, greatest or coalesce, which take many values, or compute the column before it lands"
        )
    if size.nodes > MOST_NODES:
        return (
            f"the expression has {size.nodes:,} parts, and may have {MOST_NODES:,} (a part that is used twice counts "
            "twice): compute some of it before it lands, or in an aggregation of its own"
        )
    return None


def same(left: Expr, right: Expr) -> bool:
    """Structural equality (``==`` builds an expression instead)."""
    return to_json(left) == to_json(right)


def to_json(expr: Expr) -> list[Any]:
    """A JSON value that identifies ``expr``. Fingerprints are made of it: its words never change."""
    match expr:
        case Column(name):
            return ["column", name]
        case Literal(value, kind):
            return ["literal", constant_to_json(value), None if kind is None else kind.value]
        case Binary(op, left, right):
            return ["binary", op, to_json(left), to_json(right)]
        case Function(name, args):
            return ["function", name, *map(to_json, args)]
    raise TypeError(type(expr).__name__)


def constant_to_json(value: Any) -> Any:
    """A constant as JSON has it: days, bytes and decimals are texts."""
    match value:
        case date():
            return value.isoformat()
        case bytes():
            return b64encode(value).decode()
        case Decimal():
            return spelled(value)
    return value
