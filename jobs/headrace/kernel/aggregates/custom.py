"""A user's own combiner as a part of accumulators (semantics 8.1, 9.7), in Arrow batches. The only Python per value."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa

from headrace.kernel.aggregates.bags import Bag
from headrace.kernel.aggregates.parts import AccumulatorPart, Elements
from headrace.kernel.grouping import Groups, to_lists
from headrace.kernel.types import TIMESTAMP, own_arrow_type
from headrace.model.combiners import Accumulator, CustomCombiner, accumulator_types, result_type
from headrace.model.expressions.data_types import DataType, ListType
from headrace.model.expressions.expr import Expr
from headrace.model.vocabulary import check_fields, user_code


@dataclass(frozen=True)
class CombinerBatches:
    """The methods of ``combiner``, a row for each accumulator. NULL stands for the accumulator of no values."""

    combiner: CustomCombiner

    def fold(self, values: pa.Array) -> pa.Array:
        """Accumulators of lists of values."""
        with user_code(self.combiner, "add values"):
            return self._accumulators(self._add(None, several.values) for several in values)

    def fold_both(self, values: pa.Array, withdrawn: pa.Array) -> pa.Array:
        """Accumulators of lists of values, and of lists of those that are taken out of them."""
        with user_code(self.combiner, "add and remove values"):
            pairs = zip(values, withdrawn, strict=True)
            return self._accumulators(self._remove(self._add(None, a.values), b.values) for a, b in pairs)

    def merge(self, left: pa.Array, right: pa.Array) -> pa.Array:
        """Accumulators of two each."""
        with user_code(self.combiner, "merge accumulators"):
            pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
            return self._accumulators(self._merge(a, b) for a, b in pairs)

    def gather(self, accumulators: pa.Array) -> pa.Array:
        """Accumulators of lists of them."""
        with user_code(self.combiner, "merge accumulators"):
            return self._accumulators(reduce(self._merge, several or [], None) for several in accumulators.to_pylist())

    def extract(self, accumulators: pa.Array) -> pa.Array:
        """Results of accumulators."""
        with user_code(self.combiner, "give a result"):
            return self._results(accumulators.to_pylist())

    def extract_of(self, values: pa.Array) -> pa.Array:
        """Results of lists of values."""
        with user_code(self.combiner, "give a result of values"):
            return self._results(self._add(None, several.values) for several in values)

    def _add(self, accumulator: Accumulator | None, values: pa.Array | None) -> Accumulator | None:
        if values is None or not len(values):
            return accumulator
        return self.combiner.add_all(self._known(accumulator), values)

    def _remove(self, accumulator: Accumulator | None, values: pa.Array | None) -> Accumulator | None:
        for value in [] if values is None else values.to_pylist():
            accumulator = self.combiner.remove(self._known(accumulator), value)
        return accumulator

    def _merge(self, left: Accumulator | None, right: Accumulator | None) -> Accumulator | None:
        if left is None or right is None:
            return right if left is None else left
        return self.combiner.merge(left, right)

    def _accumulators(self, accumulators: Iterable[Accumulator | None]) -> pa.Array:
        types = self.combiner.accumulator_types
        rows = list(accumulators)
        for row in rows:
            if row is not None:
                check_fields(self.combiner, "an accumulator", row, types)
        return pa.array(rows, stored_type(self.combiner))

    def _known(self, accumulator: Accumulator | None) -> Accumulator:
        return self.combiner.create() if accumulator is None else accumulator

    def _results(self, accumulators: Iterable[Accumulator | None]) -> pa.Array:
        results = [self.combiner.extract(self._known(accumulator)) for accumulator in accumulators]
        return pa.array(results, own_arrow_type(result_type(self.combiner)))


def stored_type(combiner: CustomCombiner) -> pa.StructType:
    """The type of a stored accumulator."""
    return pa.struct([(name, own_arrow_type(kind)) for name, kind in accumulator_types(combiner).items()])


@dataclass(frozen=True)
class CustomPart(AccumulatorPart):
    """A user's own accumulator. It takes values back if the combiner does."""

    calls: CombinerBatches

    @classmethod
    def of(cls, name: str, value: Expr | None, combiner: CustomCombiner) -> "CustomPart":
        """The accumulator of ``combiner`` over ``value``."""
        return cls(name, stored_type(combiner), value, CombinerBatches(combiner))

    def fold(self, elements: Elements, groups: Groups) -> pa.Array:
        known = elements.known(groups)
        values = _to_own(known.value)
        if known.sign is None:
            return self.calls.fold(to_lists(values, known.groups))
        arrived, withdrawn = (
            to_lists(values.filter(pa.array(chosen)), known.groups.within(chosen))
            for chosen in (known.sign > 0, known.sign < 0)
        )
        return self.calls.fold_both(arrived, withdrawn)

    def gathered(self, parts: pa.Array, groups: Groups) -> pa.Array:
        return self.calls.gather(to_lists(parts, groups))

    def result(self, part: pa.Array) -> pa.Array:
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
