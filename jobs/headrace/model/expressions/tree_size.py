"""How large a tree is: what looks at one, node by node, must come to an end, and within Python's stack."""

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

from headrace.model.expressions.expr import Expr
from headrace.model.expressions.traversal import children

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
