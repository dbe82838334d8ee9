"""Expressions over rows of which some have a value that its type does not hold: which ones, and why.

A record is judged by itself: what overflows in one says nothing of the others. Whole columns are tried first, so this
costs nothing where all is well.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.errors import OPERANDS, ValueOverflowError
from headrace.kernel.expressions.casts import Datum, broadcast
from headrace.kernel.expressions.evaluation import Rows, applied, evaluate, in_type, operands_of
from headrace.model.expressions.data_types import Schema
from headrace.model.expressions.expr import Binary, Expr

_LEAST, _LIMIT = -(2**63), 2**63
_MARGIN = 2.0**12
"""Products of 64-bit integers as doubles are wrong by less, where they are near 2^63."""


@dataclass(frozen=True)
class Overflow:
    """The ``rows`` in which an expression leaves its type; ``why`` says which part of it, and ``error`` what it is."""

    rows: NDArray[np.bool_]
    why: str
    error: type[ValueOverflowError]

    def among(self, rows: NDArray[np.bool_]) -> int | None:
        """The first of these ``rows`` in which it overflows."""
        both = np.flatnonzero(self.rows & rows)
        return int(both[0]) if len(both) else None


class RowOverflowsError(Exception):
    """A value that counts overflows in row ``row``: the caller, who knows where that is from, raises ``error``."""

    def __init__(self, row: int, error: ValueOverflowError) -> None:
        super().__init__(row, error)
        self.row, self.error = row, error


def column_apart(expr: Expr, rows: Rows, schema: Schema, length: int) -> tuple[pa.Array, tuple[Overflow, ...]]:
    """``expr`` as ``evaluation.column`` gives it, NULL in rows where it overflows; and which these are."""
    values, overflows = _evaluated(expr, rows, length)
    values = in_type(expr, values, schema, length)
    if overflows:
        values = pc.if_else(pa.array(~_any(overflows, length)), values, pa.scalar(None, values.type))
    return values, overflows


def _evaluated(expr: Expr, rows: Rows, length: int) -> tuple[Datum, tuple[Overflow, ...]]:
    try:
        return evaluate(expr, rows), ()
    except ValueOverflowError:
        parts = [_evaluated(operand, rows, length) for operand in operands_of(expr)]
    overflows = tuple(overflow for _, of_part in parts for overflow in of_part)
    operands = _without([value for value, _ in parts], overflows, length)
    try:
        return applied(expr, operands), overflows
    except ValueOverflowError as error:
        if all(isinstance(operand, pa.Scalar) for operand in operands):  # of constants: no record is to blame
            raise
        overflow = Overflow(_wrong(expr, operands, length), str(error).removesuffix(OPERANDS), type(error))
        return applied(expr, _without(operands, (overflow,), length)), (*overflows, overflow)


def _without(operands: Sequence[Datum], overflows: Iterable[Overflow], length: int) -> list[Datum]:
    """``operands``, NULL in rows that overflow."""
    if not (wrong := _any(overflows, length)).any():
        return [*operands]
    keep = pa.array(~wrong)
    return [
        value if isinstance(value, pa.Scalar) else pc.if_else(keep, value, pa.scalar(None, value.type))
        for value in operands
    ]


def _any(overflows: Iterable[Overflow], length: int) -> NDArray[np.bool_]:
    wrong = np.zeros(length, np.bool_)
    for overflow in overflows:
        wrong |= overflow.rows
    return wrong


def _wrong(expr: Expr, operands: Sequence[Datum], length: int) -> NDArray[np.bool_]:
    """The rows in which the node ``expr`` of ``operands`` overflows."""
    if isinstance(expr, Binary) and expr.op in _INTEGERS and all(value.type == pa.int64() for value in operands):
        columns = broadcast([*operands])
        left, right = (value.fill_null(0).to_numpy() for value in columns)
        with np.errstate(over="ignore"):
            wrong = _INTEGERS[expr.op](left, right)
        for values in columns:
            wrong = wrong & values.is_valid().to_numpy(zero_copy_only=False)
        return wrong
    return _halved(expr, operands, length)


def _halved(expr: Expr, operands: Sequence[Datum], length: int) -> NDArray[np.bool_]:
    """The same of any node, by trying ever smaller parts."""
    wrong = np.zeros(length, np.bool_)
    parts = [(0, length)]
    while parts:
        first, many = parts.pop()
        part = [value if isinstance(value, pa.Scalar) else value.slice(first, many) for value in operands]
        try:
            applied(expr, part)
        except ValueOverflowError:
            if many == 1:
                wrong[first] = True
            else:
                parts += [(first, many // 2), (first + many // 2, many - many // 2)]
    return wrong


def _sums(left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.bool_]:
    total = left + right
    return ((left ^ total) & (right ^ total)) < 0


def _differences(left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.bool_]:
    return ((left ^ right) & (left ^ (left - right))) < 0


def _products(left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.bool_]:
    size = np.abs(left.astype(np.float64) * right)
    wrong: NDArray[np.bool_] = size > _LIMIT
    for row in np.flatnonzero(np.abs(size - _LIMIT) <= _MARGIN):  # a double does not tell: hardly any row is so near
        wrong[row] = not _LEAST <= int(left[row]) * int(right[row]) < _LIMIT
    return wrong


_INTEGERS = {"+": _sums, "-": _differences, "*": _products}
