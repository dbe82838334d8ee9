"""One value of a group out of several: sums, smallest and largest values, any and all. NULLs count for nothing; what is
folded of no value is NULL.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.errors import OPERANDS, IntegerOverflowError
from headrace.kernel.aggregates import extremes, integers
from headrace.kernel.expressions import decimals
from headrace.kernel.grouping import Groups, valid
from headrace.kernel.types import DECIMAL
from headrace.program.triggers import ColumnMerge


def fold(how: ColumnMerge, values: pa.Array, groups: Groups) -> pa.Array:
    """``values``, arranged by group, folded for each group. Raises IntegerOverflowError if a sum leaves 64 bits."""
    if len(values) == len(groups) and bool((groups.sizes == 1).all()):
        return values
    match how:
        case ColumnMerge.SUM:
            return _sum(values, groups)
        case ColumnMerge.MIN | ColumnMerge.ALL:
            return extreme(values, groups, latest=False)
        case ColumnMerge.MAX | ColumnMerge.ANY:
            return extreme(values, groups, latest=True)
    raise AssertionError(how)


def _sum(values: pa.Array, groups: Groups) -> pa.Array:
    empty = _without_values(values, groups)
    if values.type == DECIMAL:
        total = integers.stored(integers.total_of_stored(values.fill_null(0), groups), decimals.SUM, groups)
        with decimals.overflowing("a sum that a trigger looks at"):
            return pc.if_else(pa.array(empty), pa.scalar(None, DECIMAL), decimals.fitting(total))
    known = values.fill_null(0).to_numpy(zero_copy_only=False) if values.null_count else values.to_numpy()
    if pa.types.is_integer(values.type) and len(known):
        most = max(abs(int(known.min())), abs(int(known.max())))
        if most * int(groups.sizes.max(initial=0)) >= 2**63:
            low, high = known & 0xFFFFFFFF, known >> 32
            lows, highs = groups.reduce(np.add, low, 0), groups.reduce(np.add, high, 0)
            highs = highs + (lows >> 32)
            if ((highs < -(2**31)) | (highs >= 2**31)).any():
                raise IntegerOverflowError(f"a sum that a trigger looks at leaves 64 bits{OPERANDS}")
    total = groups.reduce(np.add, known, 0)
    return pa.array(total, values.type, mask=empty)


def extreme(values: pa.Array, groups: Groups, *, latest: bool) -> pa.Array:
    """The largest or smallest value of each group; NaN lies above every number."""
    return extremes.extreme(*groups.without_nulls(values), is_largest=latest)


def _without_values(values: pa.Array, groups: Groups) -> NDArray[np.bool_]:
    """Which groups have no value that is not NULL."""
    if not values.null_count:
        return np.equal(groups.sizes, 0)
    known = valid(values).astype(np.int64)
    return np.equal(groups.reduce(np.add, known, 0), 0)
