"""Values in order: rows sorted within groups, quantiles by rank, extremes, and one value of a group out of several.

Every type sorts as 64-bit integers (``CodedValues``), and rows are sorted within their groups by them. NaN equals
itself and lies above every number, -0.0 is 0.0, strings are ordered by code point, bytes by byte.

A quantile is by nearest rank: the smallest value with a part ``q`` of all values at or below it (``nearest_rank``).

Extremes are the smallest and largest values, also by event time, and the k largest, where no value can be withdrawn
(from ``ExtremePart`` on).

``fold`` makes one value of a group out of several: sums, smallest and largest values, any and all. NULLs count for
nothing; what is folded of no value is NULL.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.errors import OPERANDS, IntegerOverflowError
from headrace.kernel import columns as kernel_columns
from headrace.kernel.aggregates import integers
from headrace.kernel.aggregates.integers import to_small_integers
from headrace.kernel.aggregates.sums import AccumulatorPart, Elements, null_if_empty
from headrace.kernel.columns import DATE, DECIMAL, Groups, Ints, as_numpy, to_lists, valid_mask
from headrace.kernel.expressions import decimals
from headrace.kernel.expressions.casts import days_of, to_dates
from headrace.kernel.expressions.decimals import of_billionths
from headrace.program.triggers.node import ColumnMerge

Bools = NDArray[np.bool_]

LAST = np.iinfo(np.int64).max
"""No smaller than any code."""

_SIGN: Final = np.uint64(1 << 63)


class CodedValues(msgspec.Struct, frozen=True):
    """Values of ``type`` as integers that are in the same order, and equal where the values are.

    ``alphabet`` has the distinct values in order, if codes are places in it; codes of numbers need none.
    """

    codes: Ints
    type: pa.DataType
    alphabet: pa.Array | None = None

    def decode_values(self, codes: Ints, absent: Bools | None = None) -> pa.Array:
        """The values of some ``codes``, NULL where they are ``absent``."""
        absent = absent if absent is not None and absent.any() else None
        if self.alphabet is not None:
            return self.alphabet.take(pa.array(codes, mask=absent))
        if pa.types.is_floating(self.type):
            return pa.array(_flip_float_bits(codes).view(np.float64), mask=absent)
        if pa.types.is_boolean(self.type):
            return pa.array(codes != 0, mask=absent)
        if self.type == DECIMAL:
            return of_billionths(codes, absent)
        if self.type == DATE:
            return to_dates(pa.array(codes, mask=absent))
        return pa.array(codes, mask=absent).view(self.type)


def code_values(values: pa.Array) -> CodedValues:  # noqa: PLR0911 (a line for each type)
    """``values``, none of which is NULL, of any type of a column, or pairs of them in structs."""
    kind = values.type
    if pa.types.is_struct(kind) and kind.num_fields == 2 and not any(part.null_count for part in values.flatten()):
        return _code_pairs(values)
    if kernel_columns.is_nested(kind):
        return _code_nested(values)
    if kind == DECIMAL:
        return _code_decimals(values)
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _code_by_rank(values)
    if pa.types.is_floating(kind):
        numbers = as_numpy(values) + 0.0  # -0.0 is 0.0
        numbers[np.isnan(numbers)] = np.nan
        return CodedValues(_flip_float_bits(numbers.view(np.int64)), kind)
    if pa.types.is_boolean(kind):
        return CodedValues(as_numpy(values).astype(np.int64), kind)
    if kind == DATE:
        return CodedValues(as_numpy(days_of(values)), kind)
    return CodedValues(as_numpy(values.view(pa.int64())), kind)


def _flip_float_bits(bits: Ints) -> Ints:
    """Bits of floats as integers in the same order, and back."""
    # of negative floats the larger one has the smaller bits
    return np.where(bits < 0, bits ^ LAST, bits)


def _code_decimals(values: pa.Array) -> CodedValues:
    """Billionths; places among the distinct values, if numbers need more than 64 bits."""
    numbers = to_small_integers(values)
    return _code_by_rank(values) if numbers is None else CodedValues(numbers, DECIMAL)


def _code_by_rank(values: pa.Array) -> CodedValues:
    dictionary = values.dictionary_encode()
    order = pc.array_sort_indices(dictionary.dictionary)
    ranks = np.empty(len(order), np.int64)
    ranks[as_numpy(order)] = np.arange(len(order))
    return CodedValues(ranks[as_numpy(dictionary.indices)], values.type, dictionary.dictionary.take(order))


def _code_nested(values: pa.Array) -> CodedValues:
    """Places among the distinct ones, of which lists of floats are without the sign of zeros."""
    _, first_rows, codes = np.unique(_rank_values(values), return_index=True, return_inverse=True)
    alphabet = values.take(pa.array(first_rows))
    if pa.types.is_list(values.type) and pa.types.is_floating(values.type.value_type):
        alphabet = kernel_columns.having_items(
            alphabet, pc.add(pc.list_flatten(alphabet), kernel_columns.arrow_scalar(0.0)), alphabet.is_null()
        )
    return CodedValues(codes.astype(np.int64), values.type, alphabet)


def _code_pairs(values: pa.Array) -> CodedValues:
    """Structs of two fields, ordered by the first, then the second."""
    first, second = (code_values(values.field(i)) for i in range(2))
    codes, order, starts = distinct_pairs(first.codes, second.codes)
    fields = [one.decode_values(one.codes[order[starts]]) for one in (first, second)]
    return CodedValues(codes, values.type, pa.StructArray.from_arrays(fields, fields=list(values.type)))


def rank_rows(columns: Sequence[pa.Array], length: int) -> Ints:
    """Integers that are in the order of rows of ``columns``, and equal where these are."""
    codes = np.zeros(length, np.int64)
    for number, column in enumerate(columns):
        own = _rank_values(column)
        codes = own if number == 0 else distinct_pairs(codes, own)[0]
    return codes


def to_comparable(column: pa.Array) -> pa.Array:
    """``column``, or if its values are nested, integers that are equal where these are."""
    return pa.array(_rank_values(column)) if kernel_columns.is_nested(column.type) else column


def _rank_values(column: pa.Array) -> Ints:
    """Integers in the order of values. Lists go by their first items, structs by their first fields, and maps as lists
    of keys with their values; NULL is below all of them.
    """
    if pa.types.is_map(column.type):
        column = kernel_columns.entries_of(column)
    if pa.types.is_struct(column.type):
        has_value = valid_mask(column)
        column = pa.array(rank_rows(column.flatten(), len(column)), mask=~has_value)
    if pa.types.is_list(column.type):
        column = _sortable_bytes(column)
    if not column.null_count:
        return code_values(column).codes
    ranks = np.zeros(len(column), np.int64)
    ranks[valid_mask(column)] = np.unique(code_values(column.drop_null()).codes, return_inverse=True)[1] + 1
    return ranks


def _sortable_bytes(lists: pa.Array) -> pa.Array:
    """Bytes in the order of ``lists``: the ranks of their items, eight bytes each, the highest first."""
    items, groups = kernel_columns.of_lists(lists)
    # with the sign bit flipped and the highest byte first, bytes are in the order of the numbers
    digits = (_rank_values(items).view(np.uint64) ^ _SIGN).astype(">u8")
    offsets = pa.py_buffer(groups.offsets * digits.itemsize)
    sort_keys = pa.Array.from_buffers(pa.large_binary(), len(lists), [None, offsets, pa.py_buffer(digits)])
    return pc.if_else(lists.is_valid(), sort_keys, pa.scalar(None, pa.large_binary()))


def distinct_pairs(first: Ints, second: Ints) -> tuple[Ints, Ints, Ints]:
    """Places of pairs of codes among the distinct ones, the rows in order, and where in it each distinct one begins."""
    order = in_order(first, second)
    begins = changed_rows(first[order], second[order])
    codes = np.empty(len(order), np.int64)
    codes[order] = np.cumsum(begins) - 1
    return codes, order, np.flatnonzero(begins)


def changed_rows(*columns: Ints) -> Bools:
    """Which rows differ from the one before; the first does."""
    is_changed = np.ones(len(columns[0]), np.bool_)
    is_changed[1:] = False
    for column in columns:
        is_changed[1:] |= column[1:] != column[:-1]
    return is_changed


def in_order(major: Ints, minor: Ints) -> Ints:
    """The rows in the order of ``major``, then of ``minor``. Rows with both equal come in any order."""
    if _is_ordered(major, minor):
        return np.arange(len(major))
    keys, is_whole = _pack_keys(major, minor)
    order = np.argsort(keys)
    return order if is_whole else _settle_ties(order, keys[order], minor)


def _is_ordered(major: Ints, minor: Ints) -> bool:
    earlier, following = major[:-1], major[1:]
    return bool(((earlier < following) | ((earlier == following) & (minor[:-1] <= minor[1:]))).all())


def _pack_keys(major: Ints, minor: Ints) -> tuple[NDArray[np.uint64], bool]:
    """Both as one integer in the same order, with as much of ``minor`` as there is room for; whether that is all."""
    low, first = minor.min(), major.min()
    minor_from_low = minor.view(np.uint64) - np.uint64(int(low) % 2**64)
    bits_needed = (int(minor.max()) - int(low)).bit_length()
    room = min(64 - (int(major.max()) - int(first)).bit_length(), 63)
    bits_kept = min(room, bits_needed)
    keys = (major - first).view(np.uint64) << np.uint64(bits_kept) | minor_from_low >> np.uint64(
        bits_needed - bits_kept
    )
    return keys, bits_kept == bits_needed


def _settle_ties(order: Ints, keys: NDArray[np.uint64], minor: Ints) -> Ints:
    """``order`` where what did not fit decides too."""
    is_tie = keys[1:] == keys[:-1]
    if not (is_tie & (minor[order][1:] < minor[order][:-1])).any():
        return order
    tied = np.flatnonzero(np.append(is_tie, False) | np.insert(is_tie, 0, False))
    rows = order[tied]
    order[tied] = rows[np.lexsort((minor[rows], keys[tied]))]
    return order


def sorted_codes(codes: Ints, groups: Groups) -> Ints:
    return codes[in_order(groups.of_row, codes)]


def nearest_rank(weights: Ints, groups: Groups, q: float) -> Ints:
    """The row of each group at rank ``q``; rows in order stand for ``weights`` values. Without rows: any number."""
    weight_sums = np.append(0, np.cumsum(weights))
    starts, ends = weight_sums[groups.offsets[:-1]], weight_sums[groups.offsets[1:]]
    return np.searchsorted(weight_sums[1:], starts + _nearest_ranks(ends - starts, q) - 1, side="right")


def _nearest_ranks(sizes: Ints, q: float) -> Ints:
    """``q`` is the decimal as it is written. Groups of n rows in all have fewer than sqrt(2n) different sizes."""
    part = Fraction(repr(float(q)))
    different, place = np.unique(sizes, return_inverse=True)
    ranks = [max(math.ceil(part * int(size)), 1) for size in different]
    return np.array(ranks, np.int64)[place] if ranks else sizes


@dataclass(frozen=True)
class ExtremePart(AccumulatorPart):
    """The largest value, or the smallest."""

    is_largest: bool

    def gather_valid(self, parts: pa.Array, groups: Groups) -> pa.Array:
        return extreme_values(parts, groups, is_largest=self.is_largest)


def extreme_values(values: pa.Array, groups: Groups, *, is_largest: bool) -> pa.Array:
    """The largest or smallest value of each group, NULL of none; no value is NULL. NaN is largest, and -0.0 is 0.0."""
    if pa.types.is_floating(values.type):
        # maximum gives NaN where there is one; fmin only where there is nothing else
        numbers = groups.reduce(np.maximum if is_largest else np.fmin, as_numpy(values), 0.0)
        return null_if_empty(numbers + 0.0, groups)
    codes = code_values(values)
    return codes.decode_values(_extreme_codes(codes.codes, groups, is_largest), groups.sizes == 0)


@dataclass(frozen=True)
class ByPart(AccumulatorPart):
    """The value that goes by the largest of something, or the smallest, with that; the largest or smallest if there are
    several. Values are structs of both.
    """

    is_largest: bool

    def gather_valid(self, parts: pa.Array, groups: Groups) -> pa.Array:
        return self._extreme_entries(parts.field(0), parts.field(1), groups)

    def _extreme_entries(self, orders: pa.Array, value: pa.Array, groups: Groups) -> pa.Array:
        coded_by, coded_values = code_values(orders), code_values(value)
        # only values that go by that one take part: others get a code that loses to any
        extreme_codes = _extreme_codes(coded_by.codes, groups, self.is_largest)
        others = -LAST - 1 if self.is_largest else LAST
        codes = np.where(coded_by.codes == np.repeat(extreme_codes, groups.sizes), coded_values.codes, others)
        empty = groups.sizes == 0
        fields = [
            coded_by.decode_values(extreme_codes, empty),
            coded_values.decode_values(_extreme_codes(codes, groups, self.is_largest), empty),
        ]
        return pa.StructArray.from_arrays(fields, fields=list(self.type), mask=pa.array(empty))


@dataclass(frozen=True)
class TimedPart(ByPart):
    """The value of the latest event time, or of the earliest; the largest or smallest if there are several."""

    def fold(self, elements: Elements, groups: Groups) -> pa.Array:
        non_null = elements.non_null(groups)
        return self._extreme_entries(non_null.event_times, non_null.value, non_null.groups)


def _extreme_codes(codes: Ints, groups: Groups, is_largest: bool) -> Ints:
    return groups.reduce(np.maximum if is_largest else np.minimum, codes, 0)


@dataclass(frozen=True)
class TopPart(AccumulatorPart):
    """The k largest values, descending, or the smallest, ascending."""

    k: int
    are_largest: bool

    def fold(self, elements: Elements, groups: Groups) -> pa.Array:
        return self._top_lists(*groups.without_nulls(elements.value))

    def gather_valid(self, parts: pa.Array, groups: Groups) -> pa.Array:
        return self._top_lists(*groups.flatten_lists(parts))

    def _top_lists(self, values: pa.Array, groups: Groups) -> pa.Array:
        coded_values = code_values(values)
        rows, top = groups.end_rows(self.k, are_last=self.are_largest)  # once they are in order
        return to_lists(
            coded_values.decode_values(sorted_codes(coded_values.codes, groups)[rows]), top, empty_is_null=True
        )


def fold(how: ColumnMerge, values: pa.Array, groups: Groups) -> pa.Array:
    """``values``, arranged by group, folded for each group. Raises IntegerOverflowError if a sum leaves 64 bits."""
    if len(values) == len(groups) and bool((groups.sizes == 1).all()):
        return values
    match how:
        case ColumnMerge.SUM:
            return _sum_groups(values, groups)
        case ColumnMerge.MIN | ColumnMerge.ALL:
            return extreme_value(values, groups, latest=False)
        case ColumnMerge.MAX | ColumnMerge.ANY:
            return extreme_value(values, groups, latest=True)
    raise AssertionError(how)


def _sum_groups(values: pa.Array, groups: Groups) -> pa.Array:
    empty = _without_values(values, groups)
    if values.type == DECIMAL:
        total = integers.to_stored_column(integers.total_of_stored(values.fill_null(0), groups), decimals.SUM, groups)
        with decimals.translate_overflow("a sum that a trigger looks at"):
            return pc.if_else(pa.array(empty), pa.scalar(None, DECIMAL), decimals.to_decimals(total))
    numbers = as_numpy(values.fill_null(0) if values.null_count else values)
    if pa.types.is_integer(values.type) and len(numbers):
        most = max(abs(int(numbers.min())), abs(int(numbers.max())))
        if most * int(groups.sizes.max(initial=0)) >= 2**63:
            # sums of halves stay inside 64 bits, and tell whether the whole does
            low, high = numbers & 0xFFFFFFFF, numbers >> 32
            lows, highs = groups.reduce(np.add, low, 0), groups.reduce(np.add, high, 0)
            highs = highs + (lows >> 32)
            if ((highs < -(2**31)) | (highs >= 2**31)).any():
                raise IntegerOverflowError(f"a sum that a trigger looks at leaves 64 bits{OPERANDS}")
    total = groups.reduce(np.add, numbers, 0)
    return pa.array(total, values.type, mask=empty)


def extreme_value(values: pa.Array, groups: Groups, *, latest: bool) -> pa.Array:
    """The largest or smallest value of each group; NaN lies above every number."""
    return extreme_values(*groups.without_nulls(values), is_largest=latest)


def _without_values(values: pa.Array, groups: Groups) -> NDArray[np.bool_]:
    """Which groups have no value that is not NULL."""
    if not values.null_count:
        return np.equal(groups.sizes, 0)
    validity = valid_mask(values).astype(np.int64)
    return np.equal(groups.reduce(np.add, validity, 0), 0)
