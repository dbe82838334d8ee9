"""Parts of which accumulators are made; and counts, sums and moments, which take values back.

A part says how elements become what is stored, and how several become one (semantics, section 8). It is a nullable
column of a plain Arrow type, NULL its identity. Rows stand arranged by group (``Groups.order`` is not looked at), those
of one group in their order of arrival; a group may be empty. State and delta become one by ``gather`` over the rows of
both.

Sums of floats are without any rounding: what is added can be taken back, whatever came between. A sum is kept as an
expansion: a few floats whose exact sum it is, the nearest one first. (Shewchuk, "Adaptive Precision Floating-Point
Arithmetic", 1997, section 2, has them.) It follows from the sum alone, in whatever order this came about. Floats are
added in fixed point, whose unit is the least float: digits of 32 bits, as many as the floats at hand need.

Moments are the number, mean and sum of squared distances from the mean of floats (Chan, Golub and LeVeque, 1979).
Combining several loses no precision where the mean is large and the variance small.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final, Self

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.kernel.aggregates import integers
from headrace.kernel.aggregates.integers import Floats
from headrace.kernel.columns import Groups, Ints, NumberedGroups, as_numpy, of_ids, of_lists, to_lists, valid_mask
from headrace.kernel.expressions import decimals
from headrace.model.expressions.expr import Expr


class Elements(msgspec.Struct, frozen=True):
    """Elements of a bundle. ``value`` is what a part reads (None: it counts elements), ``event_times`` in granules.
    ``sign`` is 1, or -1 for an element that is withdrawn (None: none can be).
    """

    value: pa.Array | None
    event_times: pa.Array
    sign: pa.Array | None

    def non_null(self, groups: Groups) -> "KnownValues":
        """Elements whose value is not NULL."""
        assert self.value is not None
        value, sign = self.value, None if self.sign is None else as_numpy(self.sign)
        if not value.null_count:
            return KnownValues(value, sign, Groups(groups.offsets), self.event_times)
        is_valid = valid_mask(value)
        sign = None if sign is None else sign[is_valid]
        return KnownValues(value.drop_null(), sign, groups.filter_rows(is_valid), self.event_times, is_valid)


@dataclass(frozen=True)
class KnownValues:
    """Elements whose value is not NULL, arranged by ``groups``: the ``is_chosen`` ones (None: all)."""

    value: pa.Array
    sign: Ints | None
    groups: Groups
    all_times: pa.Array
    is_chosen: NDArray[np.bool_] | None = None

    @cached_property
    def event_times(self) -> pa.Array:
        return self.all_times if self.is_chosen is None else self.all_times.filter(pa.array(self.is_chosen))

    @cached_property
    def values_with_times(self) -> pa.Array:
        """Each value with its event time, which decides order."""
        return pa.StructArray.from_arrays([self.event_times, self.value], names=["at", "value"])


@dataclass(frozen=True)
class AccumulatorPart(ABC):
    """One column of an accumulator; ``input`` None counts elements. ``condenses``: it is smaller than many elements."""

    condenses: ClassVar[bool] = True

    name: str
    type: pa.DataType
    input: Expr | None

    def fold(self, elements: Elements, groups: Groups) -> pa.Array:
        """The part that the elements of each group make; unless overridden, each value is a part."""
        return self.gather_valid(*groups.without_nulls(elements.value))

    def fold_numbered(self, value: pa.Array | None, groups: NumberedGroups) -> pa.Array | None:
        """What ``fold`` gives of elements that none withdraws, and that stand in no order; None: it needs one."""
        del value, groups
        return None

    def gather(self, parts: pa.Array, groups: Groups) -> pa.Array:
        """The parts of each group as one, in their order."""
        non_null, inner = groups.without_nulls(parts)
        if inner.sizes.max(initial=0) <= 1:
            return _value_per_group(non_null, inner)
        return self.gather_valid(non_null, inner)

    @abstractmethod
    def gather_valid(self, parts: pa.Array, groups: Groups) -> pa.Array:
        """The same of parts that are not NULL."""


@dataclass(frozen=True)
class PlainPart(AccumulatorPart):
    """A part whose type its class says, ``STORED_TYPE``."""

    STORED_TYPE: ClassVar[pa.DataType]

    @classmethod
    def from_value(cls, name: str, value: Expr | None) -> Self:
        """A part of ``value``; None: of elements."""
        return cls(name, cls.STORED_TYPE, value)


def null_if_empty(values: NDArray[Any], groups: Groups, kind: pa.DataType | None = None) -> pa.Array:
    """A value for each group, NULL for those without rows."""
    empty = groups.sizes == 0
    return pa.array(values, kind, mask=empty if empty.any() else None)


def _value_per_group(values: pa.Array, groups: Groups) -> pa.Array:
    """The one value of each group, NULL where there is none."""
    if len(values) == len(groups):
        return values
    return values.take(null_if_empty(groups.offsets[:-1], groups))


_LEAST_EXPONENT: Final = -1074
"""The exponent of the least float."""
_BITS: Final = 32
_DIGIT_MASK: Final = 2**_BITS - 1
_MANTISSA: Final = 53
_ROWS: Final = 1 << 14
_LARGEST_FLOAT: Final = float(np.finfo(np.float64).max)


def exact_sum(values: Floats, groups: Groups) -> tuple[Floats, pa.Array]:
    """The sum of the finite ``values`` of each group: the nearest float, and a list of what is left; NULL: nothing."""
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
        first, *rest = _expansion_components(numbers, summands[offsets[begin] : offsets[end]], len(places))
        nearest[places] = first[1]
        rows += [places[one] for one, _ in rest]
        items += [component for _, component in rest]
    of_group, left = np.concatenate(rows), np.concatenate(items)
    order = np.argsort(of_group, kind="stable")
    return nearest, to_lists(pa.array(left[order]), of_ids(of_group[order], len(groups)), empty_is_null=True)


def _is_exact(values: Floats, groups: Groups) -> NDArray[np.bool_]:
    """Groups whose floats add up without rounding in any order: all are multiples of one that is not too small."""
    whole, exponent = _integer_mantissas(values)
    unit = np.where(whole == 0, np.inf, np.ldexp((whole & -whole).astype(np.float64), exponent))
    with np.errstate(over="ignore"):
        # up to 2^52 units each sum on the way is a whole number of them, which a float holds
        most = groups.reduce(np.add, np.abs(values), 0.0)
        return most * 2.0 ** (1 - _MANTISSA) <= groups.reduce(np.minimum, unit, np.inf)


def _integer_mantissas(values: Floats) -> tuple[Ints, Ints]:
    """The ``values`` without their signs, as integers of 53 bits times powers of two."""
    mantissa, exponent = np.frexp(np.abs(values))
    return np.ldexp(mantissa, _MANTISSA).astype(np.int64), exponent.astype(np.int64) - _MANTISSA


def _expansion_components(rows: Ints, values: Floats, number: int) -> Iterator[tuple[Ints, Floats]]:
    """The expansions of ``number`` sums of ``values``, whose sums the ``rows`` say: first components of all, then
    second ones, and the row of each.
    """
    digits, lowest = _in_fixed_point(rows, values, number)
    sum_rows = np.arange(number)
    while True:
        component = _nearest_floats(digits, lowest)
        yield sum_rows, component
        _add_to_digits(digits, np.arange(len(digits)), -component, lowest)
        _carry_digits(digits)
        left = digits.any(axis=1)
        if not left.any():
            return
        digits, sum_rows = digits[left], sum_rows[left]


def _in_fixed_point(rows: Ints, values: Floats, number: int) -> tuple[Ints, int]:
    """Sums as digits, lowest first, the last with the sign; which digit the lowest is. Not all ``values`` are 0."""
    _, exponent = np.frexp(values[values != 0.0])
    places = np.maximum(exponent - _MANTISSA - _LEAST_EXPONENT, 0) // _BITS
    lowest, highest = int(places.min()), int(places.max())
    # a float reaches over three digits; above them is room for what is carried, and the sign
    digits = np.zeros((number, highest - lowest + 5), np.int64)
    _add_to_digits(digits, rows, values, lowest)
    _carry_digits(digits)
    return digits, lowest


def _add_to_digits(digits: Ints, rows: Ints, values: Floats, lowest: int) -> None:
    """Add the ``values`` to the sums of these ``rows``, of at most 2^30 each; then ``_carry_digits``."""
    is_there = values != 0.0
    rows, values = rows[is_there], values[is_there]
    whole, exponent = _integer_mantissas(values)
    bit_position = exponent - _LEAST_EXPONENT
    whole >>= np.maximum(-bit_position, 0)  # of the least floats these bits are 0
    place, shift = np.divmod(np.maximum(bit_position, 0), _BITS)
    place -= lowest
    sign = np.where(values < 0.0, -1, 1)
    low, high = (whole & _DIGIT_MASK) << shift, (whole >> _BITS) << shift
    for distance, part in enumerate((low & _DIGIT_MASK, (low >> _BITS) + (high & _DIGIT_MASK), high >> _BITS)):
        np.add.at(digits, (rows, place + distance), sign * part)


def _carry_digits(digits: Ints) -> None:
    """Have all digits but the last between 0 and 2^32."""
    for place in range(digits.shape[1] - 1):
        digits[:, place + 1] += digits[:, place] >> _BITS
        digits[:, place] &= _DIGIT_MASK


def _nearest_floats(digits: Ints, lowest: int) -> Floats:
    """A float next to each sum, as near as two roundings leave it; the largest one where it is larger."""
    negative = digits[:, -1] < 0
    size = np.where(negative[:, None], -digits, digits)
    _carry_digits(size)
    width = size.shape[1]
    top = np.maximum(width - 1 - np.argmax(size[:, ::-1] != 0, axis=1), 2)
    rows = np.arange(len(size))
    total = sum(size[rows, top - 2 + i].astype(np.float64) * 2.0 ** (_BITS * i) for i in (2, 1, 0))
    with np.errstate(over="ignore"):
        nearest = np.minimum(np.ldexp(total, (top - 2 + lowest) * _BITS + _LEAST_EXPONENT), _LARGEST_FLOAT)
    signed_values: Floats = np.where(negative, -nearest, nearest)
    return signed_values


_LONG, _DOUBLE = pa.int64(), pa.float64()
_NOT_FINITE = {"nan": np.nan, "above": np.inf, "below": -np.inf}
_UNSUMMED_FIELD = "rest"


@dataclass(frozen=True)
class CountPart(PlainPart):
    """How many elements, or values, there are."""

    STORED_TYPE = _LONG

    def fold(self, elements: Elements, groups: Groups) -> pa.Array:
        if elements.value is None:
            sign = None if elements.sign is None else as_numpy(elements.sign)
        else:
            non_null = elements.non_null(groups)
            sign, groups = non_null.sign, non_null.groups
        return null_if_empty(groups.sizes if sign is None else groups.reduce(np.add, sign, 0), groups)

    def fold_numbered(self, value: pa.Array | None, groups: NumberedGroups) -> pa.Array | None:
        return pa.array(groups.arranged_groups.sizes) if value is None or not value.null_count else None

    def gather_valid(self, parts: pa.Array, groups: Groups) -> pa.Array:
        return null_if_empty(groups.reduce(np.add, as_numpy(parts), 0), groups)


@dataclass(frozen=True)
class IntegerSumPart(AccumulatorPart):
    """The sum of integers, exact also where it leaves 64 bits; the sum of their squares if ``is_squared``."""

    is_squared: bool = False

    @classmethod
    def from_value(cls, name: str, value: Expr | None, *, is_squared: bool = False) -> "IntegerSumPart":
        return cls(name, integers.SQUARES if is_squared else integers.TOTAL, value, is_squared)

    def fold(self, elements: Elements, groups: Groups) -> pa.Array:
        non_null = elements.non_null(groups)
        values = as_numpy(non_null.value)
        if self.is_squared:
            return self._stored_total(
                integers.total_of_squares(values, non_null.sign, non_null.groups), non_null.groups
            )
        if non_null.sign is None:
            return self._stored_total(integers.sum_groups(values, non_null.groups), non_null.groups)
        return self._stored_total(self._signed_sum(values, non_null.sign, non_null.groups), non_null.groups)

    def fold_numbered(self, value: pa.Array | None, groups: NumberedGroups) -> pa.Array | None:
        assert value is not None
        if self.is_squared or value.null_count or not integers.sums_fit(as_numpy(value), groups.arranged_groups):
            return None
        return self._stored_total(groups.reduce(np.add, as_numpy(value)), groups.arranged_groups)

    def _signed_sum(self, values: Ints, sign: Ints, groups: Groups) -> Ints | integers.Wide:
        if not len(values) or values.min() > np.iinfo(np.int64).min:
            return integers.sum_groups(values * sign, groups)
        # the smallest integer has no opposite
        arrived_sum, withdrawn = (
            integers.sum_groups(np.where(has_sign, values, 0), groups) for has_sign in (sign > 0, sign < 0)
        )
        return integers.as_wide(arrived_sum) - integers.as_wide(withdrawn)

    def gather_valid(self, parts: pa.Array, groups: Groups) -> pa.Array:
        return self._stored_total(integers.total_of_stored(parts, groups), groups)

    def _stored_total(self, total: Ints | integers.Wide, groups: Groups) -> pa.Array:
        return integers.to_stored_column(total, self.type, groups)


@dataclass(frozen=True)
class DecimalSumPart(PlainPart):
    """The sum of decimals, exact also where it leaves 38 digits."""

    STORED_TYPE = decimals.SUM

    def fold(self, elements: Elements, groups: Groups) -> pa.Array:
        non_null = elements.non_null(groups)
        if non_null.sign is None:
            return self.gather_valid(non_null.value, non_null.groups)
        nothing = pa.scalar(0, non_null.value.type)
        arrived_sum, withdrawn = (
            integers.total_of_stored(pc.if_else(pa.array(is_chosen), non_null.value, nothing), non_null.groups)
            for is_chosen in (non_null.sign > 0, non_null.sign < 0)
        )
        return integers.to_stored_column(
            integers.as_wide(arrived_sum) - integers.as_wide(withdrawn), self.type, non_null.groups
        )

    def gather_valid(self, parts: pa.Array, groups: Groups) -> pa.Array:
        return integers.to_stored_column(integers.total_of_stored(parts, groups), self.type, groups)


def decimal_sum(part: pa.Array) -> pa.Array:
    """What the values of a ``DecimalSumPart`` come to; NULL is 0. Raises DecimalOverflowError."""
    with decimals.translate_overflow("a sum", ""):
        return decimals.to_decimals(part.fill_null(0))


def decimal_mean(part: pa.Array, number: pa.Array) -> pa.Array:
    """The same over how many they are, half to even; NULL of nothing. Raises DecimalOverflowError."""
    with decimals.translate_overflow("a mean", ""):
        return decimals.divide_sum(part.fill_null(0), decimals.of_ints(number.fill_null(0)))


@dataclass(frozen=True)
class FloatSumPart(PlainPart):
    """The sum of floats, in the order of rows."""

    STORED_TYPE = _DOUBLE

    def gather_valid(self, parts: pa.Array, groups: Groups) -> pa.Array:
        return null_if_empty(sum_floats(as_numpy(parts), groups), groups)


@dataclass(frozen=True)
class SettledSumPart(AccumulatorPart):
    """A sum of floats that can be withdrawn: what is left is as if they had never come. It is exact: ``finite`` is a
    float next to it, ``rest`` what that lacks (NULL: nothing). Floats that are not finite cannot be taken back from a
    sum, which would be NaN for good: they are counted.
    """

    @classmethod
    def from_value(cls, name: str, value: Expr | None) -> "SettledSumPart":
        counts = [(other, _LONG) for other in _NOT_FINITE]
        return cls(name, pa.struct([("finite", _DOUBLE), *counts, (_UNSUMMED_FIELD, pa.list_(_DOUBLE))]), value)

    def fold(self, elements: Elements, groups: Groups) -> pa.Array:
        non_null = elements.non_null(groups)
        values = as_numpy(non_null.value)
        sign = np.ones(len(values), np.int64) if non_null.sign is None else non_null.sign
        finite = np.isfinite(values)
        counts = [np.where(is_it, sign, 0) for is_it in (np.isnan(values), values == np.inf, values == -np.inf)]
        exact_sums = exact_sum(np.where(finite, values, 0.0) * sign, non_null.groups)
        return self._make_sums(*exact_sums, counts, non_null.groups)

    def gather_valid(self, parts: pa.Array, groups: Groups) -> pa.Array:
        finite, *counts = (as_numpy(parts.field(i)) for i in range(1 + len(_NOT_FINITE)))
        rest, of_part = of_lists(parts.field(_UNSUMMED_FIELD))
        rows = np.concatenate([groups.of_row, groups.of_row[of_part.of_row]])
        order = np.argsort(rows, kind="stable")
        values = np.concatenate([finite, as_numpy(rest)])[order]
        return self._make_sums(*_as_far_as_finite(values, of_ids(rows[order], len(groups))), counts, groups)

    def _make_sums(self, finite: Floats, rest: pa.Array, counts: list[Ints], groups: Groups) -> pa.Array:
        count_columns = [pa.array(groups.reduce(np.add, count, 0)) for count in counts]
        columns = [pa.array(finite), *count_columns, rest]
        return pa.StructArray.from_arrays(columns, fields=list(self.type), mask=pa.array(groups.sizes == 0))


def _as_far_as_finite(values: Floats, groups: Groups) -> tuple[Floats, pa.Array]:
    """``exact_sum``; a stored sum that was too large once, before sums were exact, stays what it is."""
    is_finite = np.isfinite(values)
    if is_finite.all():
        return exact_sum(values, groups)
    finite, rest = exact_sum(np.where(is_finite, values, 0.0), groups)
    return finite + sum_floats(np.where(is_finite, 0.0, values), groups), rest


def settle_sums(part: pa.Array) -> Floats:
    """What the values of a ``SettledSumPart`` come to; NULL is 0."""
    rest, groups = of_lists(part.field(_UNSUMMED_FIELD))
    with np.errstate(over="ignore"):
        total: Floats = as_numpy(part.field(0).fill_null(0.0)) + sum_floats(as_numpy(rest), groups)
    for i, other in enumerate(_NOT_FINITE.values(), start=1):
        count = as_numpy(part.field(i).fill_null(0))
        with np.errstate(invalid="ignore"):
            total = total + np.where(count != 0, count * other, 0.0)
    return total


def sum_floats(values: Floats, groups: Groups) -> Floats:
    with np.errstate(invalid="ignore", over="ignore"):
        return groups.reduce(np.add, values, 0.0)


_TYPE = pa.struct([("n", pa.int64()), ("mean", pa.float64()), ("m2", pa.float64())])


@dataclass(frozen=True)
class MomentsPart(PlainPart):
    """What a variance is made of, where no value can be withdrawn."""

    STORED_TYPE = _TYPE

    def fold(self, elements: Elements, groups: Groups) -> pa.Array:
        values, valid_groups = groups.without_nulls(elements.value)
        numbers = as_numpy(values)
        return _merge_moments(np.ones(len(numbers), np.int64), numbers, np.zeros(len(numbers)), valid_groups)

    def gather_valid(self, parts: pa.Array, groups: Groups) -> pa.Array:
        number, mean, squared_distances = (as_numpy(parts.field(i)) for i in range(3))
        return _merge_moments(number, mean, squared_distances, groups)


def _merge_moments(number: Ints, mean: Floats, squared_distances: Floats, groups: Groups) -> pa.Array:
    """One of several: of each how many values there are, their mean and the sum of squared distances from it."""
    numbers = groups.reduce(np.add, number, 0)
    empty = groups.sizes == 0
    with np.errstate(invalid="ignore", over="ignore"):
        first = np.zeros(len(groups))
        first[~empty] = mean[groups.offsets[:-1][~empty]]
        # distances from one of the means are small, and sums of large means would lose what tells them apart
        mean_distance = sum_floats((mean - np.repeat(first, groups.sizes)) * number, groups) / np.where(
            empty, 1, numbers
        )
        means = first + mean_distance
        distance = mean - np.repeat(means, groups.sizes)
        squares = sum_floats(squared_distances + distance * distance * number, groups)
    fields = [pa.array(column) for column in (numbers, means, squares)]
    return pa.StructArray.from_arrays(fields, fields=list(_TYPE), mask=pa.array(empty))


def variance(part: pa.Array) -> pa.Array:
    """Population variance; NULL of nothing."""
    number, squared_distances = as_numpy(part.field(0).fill_null(0)), as_numpy(part.field(2).fill_null(0.0))
    empty = number == 0
    return pa.array(squared_distances / np.where(empty, 1, number), mask=empty)
