"""Going through an expression: its operands, all below it, the columns that it reads."""

from collections.abc import Iterator

from headrace.model.expressions.expr import Binary, Column, Expr, Function


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
