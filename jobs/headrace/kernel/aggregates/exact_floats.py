"""Sums of floats without any rounding: what is added can be taken back, whatever came between.

A sum is kept as an expansion: a few floats whose exact sum it is, the nearest one first (Shewchuk, "Adaptive Precision
Floating-Point Arithmetic", 1997, section 2). It follows from the sum alone, in whatever order this came about. Floats
are added in fixed point, whose unit is the least float: digits of 32 bits, as many as the floats at hand need.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.kernel.aggregates.integers import Floats
from headrace.kernel.grouping import Groups, Ints, of_ids, to_lists

_LEAST: Final = -1074
"""The exponent of the least float."""
_BITS: Final = 32
_DIGIT: Final = 2**_BITS - 1
_MANTISSA: Final = 53
_ROWS: Final = 1 << 14
_LARGEST: Final = float(np.finfo(np.float64).max)


def exact_sum(values: Floats, groups: Groups) -> tuple[Floats, pa.Array]:
    """The sum of the finite ``values`` of each group: the float next to it, and a list of what is left; NULL is nothing
    more.
    """
    with np.errstate(over="ignore"):
        nearest = groups.reduce(np.add, values, 0.0)
    is_exact = _is_exact(values, groups)
    inexact = np.flatnonzero(~is_exact)
    sizes, summands = groups.sizes[inexact], values[~is_exact[groups.of_row]]
    offsets = np.append(0, np.cumsum(sizes))
    rows, items = [np.zeros(0, np.int64)], [np.zeros(0)]
    for begin in range(0, len(inexact), _ROWS):
        places = inexact[begin : begin + _ROWS]
        end = begin + len(places)
        numbers = np.repeat(np.arange(len(places)), sizes[begin:end])
        first, *rest = _components(numbers, summands[offsets[begin] : offsets[end]], len(places))
        nearest[places] = first[1]
        rows += [places[one] for one, _ in rest]
        items += [component for _, component in rest]
    of_group, left = np.concatenate(rows), np.concatenate(items)
    order = np.argsort(of_group, kind="stable")
    return nearest, to_lists(pa.array(left[order]), of_ids(of_group[order], len(groups)), empty_is_null=True)


def _is_exact(values: Floats, groups: Groups) -> NDArray[np.bool_]:
    """Groups whose floats add up without rounding in any order: all are multiples of one that is not too small."""
    whole, exponent = _whole(values)
    unit = np.where(whole == 0, np.inf, np.ldexp((whole & -whole).astype(np.float64), exponent))
    with np.errstate(over="ignore"):
        most = groups.reduce(np.add, np.abs(values), 0.0)
        return most * 2.0 ** (1 - _MANTISSA) <= groups.reduce(np.minimum, unit, np.inf)


def _whole(values: Floats) -> tuple[Ints, Ints]:
    """The ``values`` without their signs, as integers of 53 bits times powers of two."""
    mantissa, exponent = np.frexp(np.abs(values))
    return np.ldexp(mantissa, _MANTISSA).astype(np.int64), exponent.astype(np.int64) - _MANTISSA


def _components(rows: Ints, values: Floats, number: int) -> Iterator[tuple[Ints, Floats]]:
    """The expansions of ``number`` sums of ``values``, whose sums the ``rows`` say: first components of all, then
    second ones, and the row of each.
    """
    digits, lowest = _in_fixed_point(rows, values, number)
    there = np.arange(number)
    while True:
        component = _nearest(digits, lowest)
        yield there, component
        _add(digits, np.arange(len(digits)), -component, lowest)
        _carry(digits)
        left = digits.any(axis=1)
        if not left.any():
            return
        digits, there = digits[left], there[left]


def _in_fixed_point(rows: Ints, values: Floats, number: int) -> tuple[Ints, int]:
    """Sums as digits, the lowest first, the last one with the sign; and which digit the lowest is. Not all ``values``
    are 0.
    """
    _, exponent = np.frexp(values[values != 0.0])
    places = np.maximum(exponent - _MANTISSA - _LEAST, 0) // _BITS
    lowest, highest = int(places.min()), int(places.max())
    digits = np.zeros((number, highest - lowest + 5), np.int64)
    _add(digits, rows, values, lowest)
    _carry(digits)
    return digits, lowest


def _add(digits: Ints, rows: Ints, values: Floats, lowest: int) -> None:
    """Add the ``values`` to the sums of these ``rows``, of at most 2^30 each; then ``_carry``."""
    is_there = values != 0.0
    rows, values = rows[is_there], values[is_there]
    whole, exponent = _whole(values)
    at = exponent - _LEAST
    whole >>= np.maximum(-at, 0)  # of the least floats these bits are 0
    place, shift = np.divmod(np.maximum(at, 0), _BITS)
    place -= lowest
    sign = np.where(values < 0.0, -1, 1)
    low, high = (whole & _DIGIT) << shift, (whole >> _BITS) << shift
    for distance, part in enumerate((low & _DIGIT, (low >> _BITS) + (high & _DIGIT), high >> _BITS)):
        np.add.at(digits, (rows, place + distance), sign * part)


def _carry(digits: Ints) -> None:
    """Have all digits but the last between 0 and 2^32."""
    for place in range(digits.shape[1] - 1):
        digits[:, place + 1] += digits[:, place] >> _BITS
        digits[:, place] &= _DIGIT


def _nearest(digits: Ints, lowest: int) -> Floats:
    """A float next to each sum, as near as two roundings leave it; the largest one where it is larger."""
    negative = digits[:, -1] < 0
    size = np.where(negative[:, None], -digits, digits)
    _carry(size)
    width = size.shape[1]
    top = np.maximum(width - 1 - np.argmax(size[:, ::-1] != 0, axis=1), 2)
    rows = np.arange(len(size))
    total = sum(size[rows, top - 2 + i].astype(np.float64) * 2.0 ** (_BITS * i) for i in (2, 1, 0))
    with np.errstate(over="ignore"):
        nearest = np.minimum(np.ldexp(total, (top - 2 + lowest) * _BITS + _LEAST), _LARGEST)
    signed: Floats = np.where(negative, -nearest, nearest)
    return signed
