"""Counts and sums. They take values back."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernel.aggregates import integers
from headrace.kernel.aggregates.exact_floats import exact_sum
from headrace.kernel.aggregates.integers import Floats
from headrace.kernel.aggregates.parts import AccumulatorPart, Elements, PlainPart, nullable
from headrace.kernel.expressions import decimals
from headrace.kernel.grouping import Groups, Ints, of_ids, of_lists
from headrace.model.expressions.expr import Expr

_LONG, _DOUBLE = pa.int64(), pa.float64()
_NOT_FINITE = {"nan": np.nan, "above": np.inf, "below": -np.inf}
_REST = "rest"


@dataclass(frozen=True)
class CountPart(PlainPart):
    """How many elements, or values, there are."""

    STORED = _LONG

    def fold(self, elements: Elements, groups: Groups) -> pa.Array:
        if elements.value is None:
            sign = None if elements.sign is None else elements.sign.to_numpy()
        else:
            known = elements.known(groups)
            sign, groups = known.sign, known.groups
        return nullable(groups.sizes if sign is None else groups.reduce(np.add, sign, 0), groups)

    def gathered(self, parts: pa.Array, groups: Groups) -> pa.Array:
        return nullable(groups.reduce(np.add, parts.to_numpy(), 0), groups)


@dataclass(frozen=True)
class IntegerSumPart(AccumulatorPart):
    """The sum of integers, exact also where it leaves 64 bits; of their squares if ``squared``."""

    squared: bool = False

    @classmethod
    def of(cls, name: str, value: Expr | None, *, squared: bool = False) -> "IntegerSumPart":
        """A sum of ``value``."""
        return cls(name, integers.SQUARES if squared else integers.TOTAL, value, squared)

    def fold(self, elements: Elements, groups: Groups) -> pa.Array:
        known = elements.known(groups)
        values = known.value.to_numpy()
        if self.squared:
            return self._stored(integers.total_of_squares(values, known.sign, known.groups), known.groups)
        if known.sign is None:
            return self._stored(integers.total(values, known.groups), known.groups)
        return self._stored(self._signed(values, known.sign, known.groups), known.groups)

    def _signed(self, values: Ints, sign: Ints, groups: Groups) -> Ints | integers.Wide:
        if not len(values) or values.min() > np.iinfo(np.int64).min:
            return integers.total(values * sign, groups)
        # the smallest integer has no opposite
        arrived, withdrawn = (
            integers.total(np.where(has_sign, values, 0), groups) for has_sign in (sign > 0, sign < 0)
        )
        return integers.as_wide(arrived) - integers.as_wide(withdrawn)

    def gathered(self, parts: pa.Array, groups: Groups) -> pa.Array:
        return self._stored(integers.total_of_stored(parts, groups), groups)

    def _stored(self, total: Ints | integers.Wide, groups: Groups) -> pa.Array:
        return integers.stored(total, self.type, groups)


@dataclass(frozen=True)
class DecimalSumPart(PlainPart):
    """The sum of decimals, exact also where it leaves 38 digits."""

    STORED = decimals.SUM

    def fold(self, elements: Elements, groups: Groups) -> pa.Array:
        known = elements.known(groups)
        if known.sign is None:
            return self.gathered(known.value, known.groups)
        nothing = pa.scalar(0, known.value.type)
        arrived, withdrawn = (
            integers.total_of_stored(pc.if_else(pa.array(chosen), known.value, nothing), known.groups)
            for chosen in (known.sign > 0, known.sign < 0)
        )
        return integers.stored(integers.as_wide(arrived) - integers.as_wide(withdrawn), self.type, known.groups)

    def gathered(self, parts: pa.Array, groups: Groups) -> pa.Array:
        return integers.stored(integers.total_of_stored(parts, groups), self.type, groups)


def decimal_sum(part: pa.Array) -> pa.Array:
    """What the values of a ``DecimalSumPart`` come to; NULL is 0. Raises DecimalOverflowError."""
    with decimals.overflowing("a sum", ""):
        return decimals.fitting(part.fill_null(0))


def decimal_mean(part: pa.Array, number: pa.Array) -> pa.Array:
    """The same over how many they are, half to even; NULL of nothing. Raises DecimalOverflowError."""
    with decimals.overflowing("a mean", ""):
        return decimals.quotient(part.fill_null(0), decimals.of_ints(number.fill_null(0)))


@dataclass(frozen=True)
class FloatSumPart(PlainPart):
    """The sum of floats, in the order of rows."""

    STORED = _DOUBLE

    def fold(self, elements: Elements, groups: Groups) -> pa.Array:
        return self.gathered(*groups.without_nulls(elements.value))

    def gathered(self, parts: pa.Array, groups: Groups) -> pa.Array:
        return nullable(add(parts.to_numpy(), groups), groups)


@dataclass(frozen=True)
class SettledSumPart(AccumulatorPart):
    """A sum of floats that can be withdrawn: what is left is as if they had never come. It is exact: ``finite`` is a
    float next to it, ``rest`` what that lacks (NULL: nothing). Floats that are not finite cannot be taken back from a
    sum, which would be NaN for good: they are counted.
    """

    @classmethod
    def of(cls, name: str, value: Expr | None) -> "SettledSumPart":
        """A sum of ``value``."""
        counts = [(other, _LONG) for other in _NOT_FINITE]
        return cls(name, pa.struct([("finite", _DOUBLE), *counts, (_REST, pa.list_(_DOUBLE))]), value)

    def fold(self, elements: Elements, groups: Groups) -> pa.Array:
        known = elements.known(groups)
        values = known.value.to_numpy()
        sign = np.ones(len(values), np.int64) if known.sign is None else known.sign
        finite = np.isfinite(values)
        counts = [np.where(is_it, sign, 0) for is_it in (np.isnan(values), values == np.inf, values == -np.inf)]
        summed = exact_sum(np.where(finite, values, 0.0) * sign, known.groups)
        return self._made(*summed, counts, known.groups)

    def gathered(self, parts: pa.Array, groups: Groups) -> pa.Array:
        finite, *counts = (parts.field(i).to_numpy() for i in range(1 + len(_NOT_FINITE)))
        rest, of_part = of_lists(parts.field(_REST))
        rows = np.concatenate([groups.of_row, groups.of_row[of_part.of_row]])
        order = np.argsort(rows, kind="stable")
        values = np.concatenate([finite, rest.to_numpy()])[order]
        return self._made(*_as_far_as_finite(values, of_ids(rows[order], len(groups))), counts, groups)

    def _made(self, finite: Floats, rest: pa.Array, counts: list[Ints], groups: Groups) -> pa.Array:
        reduced = [pa.array(groups.reduce(np.add, count, 0)) for count in counts]
        columns = [pa.array(finite), *reduced, rest]
        return pa.StructArray.from_arrays(columns, fields=list(self.type), mask=pa.array(groups.sizes == 0))


def _as_far_as_finite(values: Floats, groups: Groups) -> tuple[Floats, pa.Array]:
    """``exact_sum``; a stored sum that was too large once, before sums were exact, stays what it is."""
    is_finite = np.isfinite(values)
    if is_finite.all():
        return exact_sum(values, groups)
    finite, rest = exact_sum(np.where(is_finite, values, 0.0), groups)
    return finite + add(np.where(is_finite, 0.0, values), groups), rest


def settled(part: pa.Array) -> Floats:
    """What the values of a ``SettledSumPart`` come to; NULL is 0."""
    rest, groups = of_lists(part.field(_REST))
    with np.errstate(over="ignore"):
        total: Floats = part.field(0).fill_null(0.0).to_numpy() + add(rest.to_numpy(), groups)
    for i, other in enumerate(_NOT_FINITE.values(), start=1):
        count = part.field(i).fill_null(0).to_numpy()
        with np.errstate(invalid="ignore"):
            total = total + np.where(count != 0, count * other, 0.0)
    return total


def add(values: Floats, groups: Groups) -> Floats:
    """The sum of the floats of each group."""
    with np.errstate(invalid="ignore", over="ignore"):
        return groups.reduce(np.add, values, 0.0)
