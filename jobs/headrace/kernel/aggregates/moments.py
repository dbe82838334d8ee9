"""Number, mean and sum of squared distances from the mean of floats (Chan, Golub and LeVeque, 1979): making one of
several loses no precision where the mean is large and the variance small.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.kernel.aggregates.integers import Floats
from headrace.kernel.aggregates.parts import Elements, PlainPart
from headrace.kernel.aggregates.sums import add
from headrace.kernel.grouping import Groups, Ints

_TYPE = pa.struct([("n", pa.int64()), ("mean", pa.float64()), ("m2", pa.float64())])


@dataclass(frozen=True)
class MomentsPart(PlainPart):
    """What a variance is made of, where no value can be withdrawn."""

    STORED = _TYPE

    def fold(self, elements: Elements, groups: Groups) -> pa.Array:
        values, known = groups.without_nulls(elements.value)
        numbers = values.to_numpy()
        return _moments(np.ones(len(numbers), np.int64), numbers, np.zeros(len(numbers)), known)

    def gathered(self, parts: pa.Array, groups: Groups) -> pa.Array:
        number, mean, apart = (parts.field(i).to_numpy() for i in range(3))
        return _moments(number, mean, apart, groups)


def _moments(number: Ints, mean: Floats, apart: Floats, groups: Groups) -> pa.Array:
    """One of several: of each how many values there are, their mean and the sum of squared distances from it."""
    numbers = groups.reduce(np.add, number, 0)
    empty = groups.sizes == 0
    with np.errstate(invalid="ignore", over="ignore"):
        first = np.zeros(len(groups))
        first[~empty] = mean[groups.offsets[:-1][~empty]]
        off = add((mean - np.repeat(first, groups.sizes)) * number, groups) / np.where(empty, 1, numbers)
        means = first + off
        distance = mean - np.repeat(means, groups.sizes)
        squares = add(apart + distance * distance * number, groups)
    fields = [pa.array(column) for column in (numbers, means, squares)]
    return pa.StructArray.from_arrays(fields, fields=list(_TYPE), mask=pa.array(empty))


def variance(part: pa.Array) -> pa.Array:
    """Population variance; NULL of nothing."""
    number, apart = part.field(0).fill_null(0).to_numpy(), part.field(2).fill_null(0.0).to_numpy()
    empty = number == 0
    return pa.array(apart / np.where(empty, 1, number), mask=empty)
