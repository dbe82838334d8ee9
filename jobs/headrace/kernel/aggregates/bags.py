"""Aggregates that see each value: bags, the last elements of a window, pairs of a join, and users' own combiners.

A bag has values with their multiplicities (semantics 12.5), for combiners that need all values, or that cannot take one
back otherwise. The last elements of a window stand in order of arrival (``How.keep_last``): sliding count windows. A
windowed join (semantics 12.9) gives every value of the left with every one of the right. A user's own combiner
(semantics 8.1, 9.7) is called in Arrow batches: the only Python per value.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import reduce
from typing import ClassVar

import msgspec
import numpy as np
import pyarrow as pa

from headrace.errors import PipelineError
from headrace.kernel.aggregates.integers import Floats
from headrace.kernel.aggregates.ordering import changed_rows, code_values, in_order
from headrace.kernel.aggregates.sums import AccumulatorPart, Elements, sum_floats
from headrace.kernel.columns import TIMESTAMP, Groups, Ints, as_numpy, of_ids, of_lists, own_arrow_type, to_lists
from headrace.model.arguments import check_fields, user_code
from headrace.model.combiners import Accumulator, CustomCombiner, Outer, accumulator_types, result_type
from headrace.model.expressions.data_types import DataType, ListType
from headrace.model.expressions.expr import Expr

VALUE, TIMES = "value", "times"
"""Fields of an entry."""


@dataclass(frozen=True)
class BagPart(AccumulatorPart):
    """Distinct values in order, with how often each is there: never 0, and less than that of a value that is withdrawn
    before it came. ``is_timed``: a value goes with its event time.
    """

    condenses: ClassVar[bool] = False

    is_timed: bool = False

    @classmethod
    def from_value(cls, name: str, value: Expr | None, kind: pa.DataType, *, is_timed: bool = False) -> "BagPart":
        """A bag of ``value``, which is of type ``kind``."""
        kind = pa.struct([("at", pa.int64()), (VALUE, kind)]) if is_timed else kind
        return cls(name, pa.list_(pa.struct([(VALUE, kind), (TIMES, pa.int64())])), value, is_timed)

    def fold(self, elements: Elements, groups: Groups) -> pa.Array:
        non_null = elements.non_null(groups)
        return self._make_bags(
            non_null.values_with_times if self.is_timed else non_null.value, non_null.sign, non_null.groups
        )

    def gather_valid(self, parts: pa.Array, groups: Groups) -> pa.Array:
        entries, inner = groups.flatten_lists(parts)
        return self._make_bags(entries.field(0), as_numpy(entries.field(1)), inner)

    def _make_bags(self, values: pa.Array, times: Ints | None, groups: Groups) -> pa.Array:
        """A bag of the values of each group, ``times`` each (None: once)."""
        coded_values = code_values(values)
        order = in_order(groups.of_row, coded_values.codes)
        ids, codes = groups.of_row[order], coded_values.codes[order]
        starts = np.flatnonzero(changed_rows(ids, codes))
        if times is None:
            totals = np.diff(np.append(starts, len(codes)))
        else:
            totals = np.add.reduceat(times[order], starts) if len(starts) else starts
            starts, totals = starts[totals != 0], totals[totals != 0]
        fields = [coded_values.decode_values(codes[starts]).cast(self.type.value_type[0].type), pa.array(totals)]
        entries = pa.StructArray.from_arrays(fields, fields=list(self.type.value_type))
        return to_lists(entries, of_ids(ids[starts], len(groups)), empty_is_null=True)


@dataclass(frozen=True)
class Bag:
    """Bags as read: the entries of all of them."""

    values: pa.Array
    times: Ints
    groups: Groups

    @property
    def without_withdrawn(self) -> "Bag":
        """Without values that are withdrawn and have not come."""
        is_there = self.times > 0
        if is_there.all():
            return self
        return Bag(self.values.filter(pa.array(is_there)), self.times[is_there], self.groups.filter_rows(is_there))

    @property
    def copies(self) -> tuple[pa.Array, Groups]:
        """The values that are there in order, each as often as it is."""
        bag = self.without_withdrawn
        if (bag.times == 1).all():
            return bag.values, bag.groups
        rows = np.repeat(np.arange(len(bag.times)), bag.times)
        ends = np.append(0, np.cumsum(bag.times))
        return bag.values.take(pa.array(rows)), Groups(ends[bag.groups.offsets])

    def end_value(self, *, is_last: bool) -> pa.Array:
        """The smallest value that is there, or the largest; without its event time."""
        bag = self.without_withdrawn
        rows = bag.groups.offsets[1:] - 1 if is_last else bag.groups.offsets[:-1]
        values = bag.values.field(1) if pa.types.is_struct(bag.values.type) else bag.values
        return values.take(pa.array(rows, mask=bag.groups.sizes == 0))

    @property
    def variance(self) -> pa.Array:
        """Population variance of floats, in two passes; multiplicities may be negative for a while."""
        number = self.groups.reduce(np.add, self.times, 0)
        empty = number == 0
        divisor = np.where(empty, 1, number)
        values: Floats = as_numpy(self.values)
        with np.errstate(invalid="ignore", over="ignore"):
            mean = sum_floats(values * self.times, self.groups) / divisor
            if not np.isfinite(mean).all():
                mean = np.where(np.isfinite(mean), mean, self._mean_of_large(values, divisor))
            deviations = values - np.repeat(mean, self.groups.sizes)
            return pa.array(sum_floats(deviations * deviations * self.times, self.groups) / divisor, mask=empty)

    def _mean_of_large(self, values: Floats, divisor: Ints) -> Floats:
        """Means where a sum is infinite: by how far values are from the first one."""
        first = np.zeros(len(self.groups))
        first[self.groups.sizes > 0] = values[self.groups.offsets[:-1][self.groups.sizes > 0]]
        first_values = np.repeat(first, self.groups.sizes)
        mean: Floats = first + sum_floats((values - first_values) * self.times, self.groups) / divisor
        return mean

    def extreme_copies(self, k: int, *, are_largest: bool) -> tuple[pa.Array, Groups]:
        """The ``k`` largest copies, descending, or the smallest, ascending."""
        # further copies of one value would be made for nothing: ``k`` fill the list
        values, groups = replace(self, times=np.minimum(self.times, k)).copies
        rows, extremes = groups.end_rows(k, are_last=are_largest)
        return values.take(pa.array(rows)), extremes

    def last_pairs(self, kind: pa.ListType) -> pa.Array:
        """The largest pair with each first part, as lists of type ``kind``."""
        bag = self.without_withdrawn
        first = code_values(bag.values.field(0)).codes
        is_last = np.append(changed_rows(bag.groups.of_row, first)[1:], np.ones(min(len(first), 1), np.bool_))
        sides = [bag.values.field(i).filter(pa.array(is_last)) for i in range(2)]
        return to_lists(
            pa.StructArray.from_arrays(sides, fields=list(kind.value_type)), bag.groups.filter_rows(is_last)
        )

    @property
    def mode(self) -> pa.Array:
        """The value that is there most often; the smallest one if there are several."""
        bag = self.without_withdrawn
        most = bag.groups.reduce(np.maximum, bag.times, 0)
        is_most = bag.times == np.repeat(most, bag.groups.sizes)
        rows = np.where(is_most, np.arange(len(bag.times)), len(bag.times))
        return bag.values.take(pa.array(bag.groups.reduce(np.minimum, rows, 0), mask=bag.groups.sizes == 0))


def read_bags(part: pa.Array) -> Bag:
    """The bags that ``part`` stores; NULL is one without values."""
    entries, groups = of_lists(part)
    return Bag(entries.field(0), as_numpy(entries.field(1)), groups)


KEPT_AT = "_at"
"""Field of what is kept of an element: its event time, if an aggregate reads it."""


@dataclass(frozen=True)
class KeptPart(AccumulatorPart):
    """The last ``number`` elements: a list of structs of what aggregates read."""

    number: int

    def fold(self, elements: Elements, groups: Groups) -> pa.Array:
        """Values are structs of what is kept of an element."""
        if elements.sign is not None:
            raise PipelineError("keep_last cannot be used downstream of retractions")
        return self._last_elements(elements.value, groups)

    def gather_valid(self, parts: pa.Array, groups: Groups) -> pa.Array:
        return self._last_elements(*groups.flatten_lists(parts))

    def _last_elements(self, elements: pa.Array, groups: Groups) -> pa.Array:
        sizes = np.minimum(groups.sizes, self.number)
        if (sizes == groups.sizes).all():
            return to_lists(elements, groups, empty_is_null=True)
        last = Groups(np.append(0, np.cumsum(sizes)))
        rows = np.arange(last.offsets[-1]) + np.repeat(groups.offsets[1:] - last.offsets[1:], sizes)
        return to_lists(elements.take(pa.array(rows)), last, empty_is_null=True)


def unpack_parts(
    elements_by_group: pa.Array, parts: Iterable[AccumulatorPart], field_of: Callable[[Expr], str]
) -> dict[str, pa.Array]:
    """The parts that the elements of a ``KeptPart`` make, by name; ``field_of`` says where an input is kept."""
    elements, groups = of_lists(elements_by_group)
    has_times = elements.type.get_field_index(KEPT_AT) >= 0
    times = elements.field(KEPT_AT) if has_times else pa.nulls(len(elements), pa.int64())
    fields = {}
    for part in parts:
        value = None if part.input is None else elements.field(field_of(part.input))
        fields[part.name] = part.fold(Elements(value, times, None), groups)
    return fields


def sorted_pairs(left: Bag, right: Bag, outer: Outer | None, kind: pa.ListType) -> pa.Array:
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
    pairs = Groups(np.append(0, np.cumsum(number_left * number_right)))
    group = pairs.of_row
    place = np.arange(len(group)) - pairs.offsets[group]
    i, j = np.divmod(place, number_right[group]) if len(group) else (place, place)
    sides = [
        values.take(pa.array(groups.offsets[group] + item, mask=nobody[group]))
        for values, groups, item, nobody in ((lefts, of_left, i, no_left), (rights, of_right, j, no_right))
    ]
    return to_lists(pa.StructArray.from_arrays(sides, fields=list(kind.value_type)), pairs)


class CombinerBatches(msgspec.Struct, frozen=True):
    """The methods of ``combiner``, a row for each accumulator. NULL stands for the accumulator of no values."""

    combiner: CustomCombiner

    def fold(self, values: pa.Array) -> pa.Array:
        """Accumulators of lists of values."""
        with user_code(self.combiner, "add values"):
            return self._accumulator_array(self._add(None, several.values) for several in values)

    def fold_both(self, values: pa.Array, withdrawn: pa.Array) -> pa.Array:
        """Accumulators of lists of values, and of lists of those that are taken out of them."""
        with user_code(self.combiner, "add and remove values"):
            pairs = zip(values, withdrawn, strict=True)
            return self._accumulator_array(self._remove(self._add(None, a.values), b.values) for a, b in pairs)

    def merge(self, left: pa.Array, right: pa.Array) -> pa.Array:
        """Accumulators of two each."""
        with user_code(self.combiner, "merge accumulators"):
            pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
            return self._accumulator_array(self._merge_pair(a, b) for a, b in pairs)

    def gather(self, accumulators: pa.Array) -> pa.Array:
        """Accumulators of lists of them."""
        with user_code(self.combiner, "merge accumulators"):
            return self._accumulator_array(
                reduce(self._merge_pair, several or [], None) for several in accumulators.to_pylist()
            )

    def extract(self, accumulators: pa.Array) -> pa.Array:
        """Results of accumulators."""
        with user_code(self.combiner, "give a result"):
            return self._result_array(accumulators.to_pylist())

    def extract_of(self, values: pa.Array) -> pa.Array:
        """Results of lists of values."""
        with user_code(self.combiner, "give a result of values"):
            return self._result_array(self._add(None, several.values) for several in values)

    def _add(self, accumulator: Accumulator | None, values: pa.Array | None) -> Accumulator | None:
        if values is None or not len(values):
            return accumulator
        return self.combiner.add_all(self._existing_or_new(accumulator), values)

    def _remove(self, accumulator: Accumulator | None, values: pa.Array | None) -> Accumulator | None:
        for value in [] if values is None else values.to_pylist():
            accumulator = self.combiner.remove(self._existing_or_new(accumulator), value)
        return accumulator

    def _merge_pair(self, left: Accumulator | None, right: Accumulator | None) -> Accumulator | None:
        if left is None or right is None:
            return right if left is None else left
        return self.combiner.merge(left, right)

    def _accumulator_array(self, accumulators: Iterable[Accumulator | None]) -> pa.Array:
        types = self.combiner.accumulator_types
        rows = list(accumulators)
        for row in rows:
            if row is not None:
                check_fields(self.combiner, "an accumulator", row, types)
        return pa.array(rows, stored_type(self.combiner))

    def _existing_or_new(self, accumulator: Accumulator | None) -> Accumulator:
        return self.combiner.create() if accumulator is None else accumulator

    def _result_array(self, accumulators: Iterable[Accumulator | None]) -> pa.Array:
        results = [self.combiner.extract(self._existing_or_new(accumulator)) for accumulator in accumulators]
        return pa.array(results, own_arrow_type(result_type(self.combiner)))


def stored_type(combiner: CustomCombiner) -> pa.StructType:
    """The type of a stored accumulator."""
    return pa.struct([(name, own_arrow_type(kind)) for name, kind in accumulator_types(combiner).items()])


@dataclass(frozen=True)
class CustomPart(AccumulatorPart):
    """A user's own accumulator. It takes values back if the combiner does."""

    calls: CombinerBatches

    @classmethod
    def from_combiner(cls, name: str, value: Expr | None, combiner: CustomCombiner) -> "CustomPart":
        """The accumulator of ``combiner`` over ``value``."""
        return cls(name, stored_type(combiner), value, CombinerBatches(combiner))

    def fold(self, elements: Elements, groups: Groups) -> pa.Array:
        non_null = elements.non_null(groups)
        values = _to_own(non_null.value)
        if non_null.sign is None:
            return self.calls.fold(to_lists(values, non_null.groups))
        arrivals, withdrawn = (
            to_lists(values.filter(pa.array(is_chosen)), non_null.groups.filter_rows(is_chosen))
            for is_chosen in (non_null.sign > 0, non_null.sign < 0)
        )
        return self.calls.fold_both(arrivals, withdrawn)

    def gather_valid(self, parts: pa.Array, groups: Groups) -> pa.Array:
        return self.calls.gather(to_lists(parts, groups))

    def extract_results(self, part: pa.Array) -> pa.Array:
        """What the combiner makes of its accumulators."""
        return _from_own(self.calls.extract(part), result_type(self.calls.combiner))


def result_of_bag(combiner: CustomCombiner, bag: Bag) -> pa.Array:
    """What ``combiner``, which cannot take values back, makes of those that are there."""
    values, groups = bag.copies
    results = CombinerBatches(combiner).extract_of(to_lists(_to_own(values), groups))
    return _from_own(results, result_type(combiner))


def _to_own(values: pa.Array) -> pa.Array:
    """Values as users' own objects see them."""
    return values.view(pa.int64()) if values.type == TIMESTAMP else values


def _from_own(values: pa.Array, kind: DataType | ListType) -> pa.Array:
    """Values, or lists, that a user's own object gave."""
    if kind is DataType.TIMESTAMP:
        return values.cast(TIMESTAMP)
    if isinstance(kind, ListType) and kind.item is DataType.TIMESTAMP:
        return values.cast(pa.list_(TIMESTAMP))
    return values
