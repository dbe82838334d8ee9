"""Integers that may leave 64 bits: sums of values and of their squares, exact, many at once.

They are stored as decimals of Arrow (two's complement of 128 or 256 bits). Where they fit 64 bits, as they nearly
always do, all is done in these; beyond that comes arithmetic of eight limbs of 32 bits, modulo 2^256, which holds any
sum of fewer than 2^63 squares.
"""

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.errors import IntegerOverflowError
from headrace.kernel.columns import Groups, Ints
from headrace.kernel.expressions.decimals import words_of

TOTAL = pa.decimal128(38, 0)
"""Sums of integers."""

SQUARES = pa.decimal256(76, 0)
"""Sums of their squares."""

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_LIMBS, _BITS = 8, 32
_FLOAT_STEP = 2.0**12  # further than a float of 64 bits is from the integer that it stands for
_MASK = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(_BITS)


class Wide(msgspec.Struct, frozen=True):
    """Integers modulo 2^256: unsigned limbs of 32 bits, the least first, a column for each number."""

    limbs: NDArray[np.uint64]

    def __add__(self, other: "Wide") -> "Wide":
        return _propagate_carries(self.limbs + other.limbs)

    def __neg__(self) -> "Wide":
        complement = self.limbs ^ _MASK
        complement[0] += np.uint64(1)
        return _propagate_carries(complement)

    def __sub__(self, other: "Wide") -> "Wide":
        return self + -other

    def __mul__(self, other: "Wide") -> "Wide":
        result = np.zeros_like(self.limbs)
        for i in range(_LIMBS):
            for j in range(_LIMBS - i):
                product = self.limbs[i] * other.limbs[j]
                result[i + j] += product & _MASK
                if i + j + 1 < _LIMBS:
                    result[i + j + 1] += product >> _SHIFT
        return _propagate_carries(result)

    def shift_left(self, limbs: int) -> "Wide":
        """Times 2^32 to the power of ``limbs``."""
        limbs_moved = np.zeros_like(self.limbs)
        limbs_moved[limbs:] = self.limbs[: _LIMBS - limbs]
        return Wide(limbs_moved)

    @property
    def is_negative(self) -> Bools:
        """Which are below zero."""
        negative: Bools = self.limbs[-1] >> np.uint64(31) == 1
        return negative

    def to_float(self) -> Floats:
        """The nearest floats, up to the last bit."""
        negative = self.is_negative
        size = np.where(negative, (-self).limbs, self.limbs).astype(np.float64)
        total = np.zeros(size.shape[1])
        for limb in size[::-1]:
            total = total * 2.0**_BITS + limb
        return np.where(negative, -total, total)


def _propagate_carries(sums: NDArray[np.uint64]) -> Wide:
    """Limbs of 32 bits out of sums of them."""
    limbs, carry = np.empty_like(sums), np.zeros(sums.shape[1], np.uint64)
    for i in range(_LIMBS):
        total = sums[i] + carry
        limbs[i], carry = total & _MASK, total >> _SHIFT
    return Wide(limbs)


def to_wide(values: Ints) -> Wide:
    limbs = np.empty((_LIMBS, len(values)), np.uint64)
    limbs[:] = (values >> 63).view(np.uint64) & _MASK
    limbs[0] = values.view(np.uint64) & _MASK
    limbs[1] = values.view(np.uint64) >> _SHIFT
    return Wide(limbs)


def as_wide(values: Ints | Wide) -> Wide:
    """Integers as wide ones, if they are not."""
    return values if isinstance(values, Wide) else to_wide(values)


def wide_of(stored_integers: pa.Array) -> Wide:
    """Stored integers as wide ones; NULL is 0."""
    words = words_of(stored_integers)
    limbs = np.empty((_LIMBS, len(words)), np.uint64)
    limbs[:] = (words[:, -1] >> 63).view(np.uint64) & _MASK
    for i in range(words.shape[1]):
        word = np.ascontiguousarray(words[:, i]).view(np.uint64)
        limbs[2 * i], limbs[2 * i + 1] = word & _MASK, word >> _SHIFT
    return Wide(limbs)


def to_stored_column(values: Ints | Wide, kind: pa.DataType, groups: Groups) -> pa.Array:
    """Integers as a column of ``kind``, one for each group, NULL for those without rows."""
    if isinstance(values, Wide):
        number, width = values.limbs.shape[1], kind.bit_width // 64
        words = np.empty((number, width), np.uint64)
        for i in range(width):
            words[:, i] = values.limbs[2 * i] | values.limbs[2 * i + 1] << _SHIFT
    else:
        number, width = len(values), kind.bit_width // 64
        words = np.empty((number, width), np.uint64)
        words[:] = (values >> 63).view(np.uint64)[:, None]
        words[:, 0] = values.view(np.uint64)
    has_rows = groups.sizes > 0
    validity = None if has_rows.all() else pa.py_buffer(np.packbits(has_rows, bitorder="little"))
    return pa.Array.from_buffers(kind, number, [validity, pa.py_buffer(words)])


def to_small_integers(column: pa.Array) -> Ints | None:
    """Stored integers as 64-bit ones, NULL as 0; None unless all fit."""
    words = words_of(column)
    low = np.ascontiguousarray(words[:, 0])
    return low if bool((words[:, 1:] == (low >> 63)[:, None]).all()) else None


def to_int64(column: pa.Array) -> Ints:
    """Stored sums as 64-bit integers, NULL as 0. Raises IntegerOverflowError if one does not fit."""
    small_column = to_small_integers(column)
    if small_column is None:
        words = words_of(column)
        row = int(np.flatnonzero((words[:, 1:] != (words[:, :1] >> 63)).any(axis=1))[0])
        value = int.from_bytes(words[row].tobytes(), "little", signed=True)
        raise IntegerOverflowError(f"a sum is {value}, which leaves 64 bits")
    return small_column


def to_float(column: pa.Array) -> Floats:
    """Stored integers as floats, NULL as 0."""
    small_column = to_small_integers(column)
    return wide_of(column).to_float() if small_column is None else small_column.astype(np.float64)


def sums_fit(values: Ints, groups: Groups) -> bool:
    """Whether no sum of a group leaves 64 bits, for sure."""
    return _largest_magnitude(values) * _largest_group_size(groups) < 2**63


def sum_groups(values: Ints, groups: Groups) -> Ints | Wide:
    if sums_fit(values, groups):
        return groups.reduce(np.add, values, 0)
    low, high = values & 0xFFFFFFFF, values >> _BITS
    return _sum_limbs([low, high], groups)


def total_of_stored(column: pa.Array, groups: Groups) -> Ints | Wide:
    """The sum of the stored integers of each group; none is NULL."""
    small_column = to_small_integers(column)
    if small_column is not None:
        return sum_groups(small_column, groups)
    limbs = wide_of(column).limbs.view(np.int64)
    # the limb with the sign stands for all above it
    width = column.type.bit_width // _BITS
    top = limbs[width - 1] - ((limbs[width - 1] >> (_BITS - 1)) << _BITS)
    return _sum_limbs([*limbs[: width - 1], top], groups)


def total_of_squares(values: Ints, sign: Ints | None, groups: Groups) -> Ints | Wide:
    """The sum of the squares of each group, each with its sign."""
    if _largest_magnitude(values) ** 2 * _largest_group_size(groups) < 2**63:
        squares = values * values
        return groups.reduce(np.add, squares if sign is None else squares * sign, 0)
    size = np.where(values < 0, -values.view(np.uint64), values.view(np.uint64))
    high, low = size >> _SHIFT, size & _MASK
    limbs = [np.zeros(len(values), np.int64) for _ in range(4)]
    for limb, product, times in ((0, low * low, 1), (1, low * high, 2), (2, high * high, 1)):
        limbs[limb] += (product & _MASK).view(np.int64) * times
        limbs[limb + 1] += (product >> _SHIFT).view(np.int64) * times
    return _sum_limbs(limbs if sign is None else [limb * sign for limb in limbs], groups)


def _sum_limbs(limbs: list[Ints], groups: Groups) -> Wide:
    """The sum of each group of numbers in signed limbs (of fewer than 34 bits, and 2^29 rows: no sum of them wraps)."""
    total = to_wide(groups.reduce(np.add, limbs[0], 0))
    for i, limb in enumerate(limbs[1:], start=1):
        total += to_wide(groups.reduce(np.add, np.ascontiguousarray(limb), 0)).shift_left(i)
    return total


def population_variance(number: Ints, sums: pa.Array, squares: pa.Array) -> Floats:
    """Population variance of integers, of how many they are (not 0), their sum and the sum of their squares.

    Distances from a whole number near the mean are exact, and small: nothing is lost where the mean is large and the
    variance small.
    """
    pivot = _round_to_integers(to_float(sums) / number)
    s, q = to_small_integers(sums), to_small_integers(squares)
    if s is not None and q is not None and _variance_fits(pivot, number, s, q):
        sum_from_pivot = s - pivot * number
        squares_from_pivot = q - pivot * (s + sum_from_pivot)
        return _from_moments(squares_from_pivot.astype(np.float64), sum_from_pivot.astype(np.float64), number)
    n, wide_sums, wide_near = to_wide(number), wide_of(sums), to_wide(pivot)
    # beyond 2^53 the float of the mean is not near enough
    wide_near = to_wide(pivot + _round_to_integers((wide_sums - wide_near * n).to_float() / number, _FLOAT_STEP))
    wide_around = wide_sums - wide_near * n
    wide_apart = wide_of(squares) - wide_near * (wide_sums + wide_around)
    return _from_moments(wide_apart.to_float(), wide_around.to_float(), number)


def _variance_fits(pivot: Ints, number: Ints, sums: Ints, squares: Ints) -> bool:
    """Whether nothing leaves 64 bits on the way to a variance."""
    product = _largest_magnitude(pivot) * (
        _largest_magnitude(sums) + _largest_magnitude(pivot) * _largest_magnitude(number)
    )
    return product < 2**59 and _largest_magnitude(squares) < 2**62


def _from_moments(squares_from_pivot: Floats, sum_from_pivot: Floats, number: Ints) -> Floats:
    """The variance, of the sums of squared and of simple distances from a number near the mean."""
    mean_distance = sum_from_pivot / number
    squares: Floats = squares_from_pivot / number - mean_distance * mean_distance
    return squares


def _round_to_integers(values: Floats, bound: float = 2.0**63 - 2 * _FLOAT_STEP) -> Ints:
    """The nearest integers up to a bound."""
    return np.clip(np.rint(values), -bound, bound).astype(np.int64)


def _largest_magnitude(values: Ints) -> int:
    return max(-int(values.min()), int(values.max())) if len(values) else 0


def _largest_group_size(groups: Groups) -> int:
    return int(groups.sizes.max(initial=1))
