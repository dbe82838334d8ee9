"""Windowed joins (semantics 12.9): every value of the left with every one of the right."""

import numpy as np
import pyarrow as pa

from headrace.kernel.aggregates.bags import Bag
from headrace.kernel.grouping import Groups, to_lists
from headrace.model.combiners import Outer


def pairs(left: Bag, right: Bag, outer: Outer | None, kind: pa.ListType) -> pa.Array:
    """Sorted lists of pairs, one for each bag; with NULL for a side without values, as ``outer`` says."""
    lefts, of_left = left.copies
    rights, of_right = right.copies
    no_left, no_right = of_left.sizes == 0, of_right.sizes == 0
    # a single NULL stands for a side without values, if there are values on the other
    number_left, number_right = of_left.sizes, of_right.sizes
    if outer in (Outer.RIGHT, Outer.BOTH):
        number_left = np.where(no_left & ~no_right, 1, number_left)
    if outer in (Outer.LEFT, Outer.BOTH):
        number_right = np.where(no_right & ~no_left, 1, number_right)
    paired = Groups(np.append(0, np.cumsum(number_left * number_right)))
    group = paired.of_row
    place = np.arange(len(group)) - paired.offsets[group]
    i, j = np.divmod(place, number_right[group]) if len(group) else (place, place)
    sides = [
        values.take(pa.array(groups.offsets[group] + at, mask=nobody[group]))
        for values, groups, at, nobody in ((lefts, of_left, i, no_left), (rights, of_right, j, no_right))
    ]
    return to_lists(pa.StructArray.from_arrays(sides, fields=list(kind.value_type)), paired)
