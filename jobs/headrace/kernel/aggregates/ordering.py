"""Values in order: every type that sorts as 64-bit integers, and rows sorted within their groups by them.

NaN equals itself and lies above every number, -0.0 is 0.0, strings are ordered by code point, bytes by
byte.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.kernel.aggregates.integers import small
from headrace.kernel.expressions.dates import days_of, to_dates
from headrace.kernel.expressions.decimals import of_billionths
from headrace.kernel.grouping import Groups, Ints
from headrace.kernel.types import DATE, DECIMAL

Bools = NDArray[np.bool_]

LAST = np.iinfo(np.int64).max
"""No smaller than any code."""


@dataclass(frozen=True)
class Coded:
    """Values of ``type`` as integers that are in the same order, and equal where the values are.

    ``alphabet`` has the distinct values in order, if codes are places in it; codes of numbers need none.
    """

    codes: Ints
    type: pa.DataType
    alphabet: pa.Array | None = None

    def values(self, codes: Ints, absent: Bools | None = None) -> pa.Array:
        """The values of some ``codes``, NULL where they are ``absent``."""
        absent = absent if absent is not None and absent.any() else None
        if self.alphabet is not None:
            return self.alphabet.take(pa.array(codes, mask=absent))
        if pa.types.is_floating(self.type):
            return pa.array(_flipped(codes).view(np.float64), mask=absent)
        if pa.types.is_boolean(self.type):
            return pa.array(codes != 0, mask=absent)
        if self.type == DECIMAL:
            return of_billionths(codes, absent)
        if self.type == DATE:
            return to_dates(pa.array(codes, mask=absent))
        return pa.array(codes, mask=absent).view(self.type)


def coded(values: pa.Array) -> Coded:  # noqa: PLR0911 (a line for each type)
    """``values``, none of which is NULL, of any type of a column, or structs of them."""
    kind = values.type
    if pa.types.is_struct(kind):
        return _pairs(values)
    if kind == DECIMAL:
        return _decimals(values)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _ranked(values)
    if pa.types.is_floating(kind):
        numbers = values.to_numpy() + 0.0  # -0.0 is 0.0
        numbers[np.isnan(numbers)] = np.nan
        return Coded(_flipped(numbers.view(np.int64)), kind)
    if pa.types.is_boolean(kind):
        return Coded(values.to_numpy(zero_copy_only=False).astype(np.int64), kind)
    if kind == DATE:
        return Coded(days_of(values).to_numpy(), kind)
    return Coded(values.view(pa.int64()).to_numpy(), kind)


def _flipped(bits: Ints) -> Ints:
    """Bits of floats as integers in the same order, and back."""
    return np.where(bits < 0, bits ^ LAST, bits)


def _decimals(values: pa.Array) -> Coded:
    """Billionths; of numbers that need more than 64 bits for them places among the distinct ones."""
    numbers = small(values)
    return _ranked(values) if numbers is None else Coded(numbers, DECIMAL)


def _ranked(values: pa.Array) -> Coded:
    encoded = values.dictionary_encode()
    order = pc.array_sort_indices(encoded.dictionary)
    ranks = np.empty(len(order), np.int64)
    ranks[order.to_numpy()] = np.arange(len(order))
    return Coded(ranks[encoded.indices.to_numpy()], values.type, encoded.dictionary.take(order))


def _pairs(values: pa.Array) -> Coded:
    """Structs of two fields, ordered by the first, then the second."""
    first, second = (coded(values.field(i)) for i in range(2))
    codes, order, starts = distinct(first.codes, second.codes)
    fields = [one.values(one.codes[order[starts]]) for one in (first, second)]
    return Coded(codes, values.type, pa.StructArray.from_arrays(fields, fields=list(values.type)))


def distinct(first: Ints, second: Ints) -> tuple[Ints, Ints, Ints]:
    """Places of pairs of codes among the distinct ones, the rows in order, and where in it each distinct one begins."""
    order = in_order(first, second)
    begins = changes(first[order], second[order])
    codes = np.empty(len(order), np.int64)
    codes[order] = np.cumsum(begins) - 1
    return codes, order, np.flatnonzero(begins)


def changes(*columns: Ints) -> Bools:
    """Which rows differ from the one before; the first does."""
    changed = np.ones(len(columns[0]), np.bool_)
    changed[1:] = False
    for column in columns:
        changed[1:] |= column[1:] != column[:-1]
    return changed


def in_order(major: Ints, minor: Ints) -> Ints:
    """The rows in the order of ``major``, then of ``minor``."""
    if _is_ordered(major, minor):
        return np.arange(len(major))
    packed, is_whole = _packed(major, minor)
    order = np.argsort(packed)
    return order if is_whole else _settled(order, packed[order], minor)


def _is_ordered(major: Ints, minor: Ints) -> bool:
    before, after = major[:-1], major[1:]
    return bool(((before < after) | ((before == after) & (minor[:-1] <= minor[1:]))).all())


def _packed(major: Ints, minor: Ints) -> tuple[NDArray[np.uint64], bool]:
    """Both as one integer in the same order, with as much of ``minor`` as there is room for; whether that is all."""
    low, first = minor.min(), major.min()
    above = minor.view(np.uint64) - np.uint64(int(low) % 2**64)
    needed = (int(minor.max()) - int(low)).bit_length()
    room = min(64 - (int(major.max()) - int(first)).bit_length(), 63)
    kept = min(room, needed)
    packed = (major - first).view(np.uint64) << np.uint64(kept) | above >> np.uint64(needed - kept)
    return packed, kept == needed


def _settled(order: Ints, packed: NDArray[np.uint64], minor: Ints) -> Ints:
    """``order`` where what did not fit decides too."""
    alike = packed[1:] == packed[:-1]
    if not (alike & (minor[order][1:] < minor[order][:-1])).any():
        return order
    tied = np.flatnonzero(np.append(alike, False) | np.insert(alike, 0, False))
    rows = order[tied]
    order[tied] = rows[np.lexsort((minor[rows], packed[tied]))]
    return order


def sorted_codes(codes: Ints, groups: Groups) -> Ints:
    """The codes of each group in order."""
    return codes[in_order(groups.of_row, codes)]
