"""Aggregates on Arrow: which parts an accumulator stores, and what it yields (semantics, section 8).

Combiners that cannot take a value back keep a bag of the values where values can be withdrawn (12.5).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernel.aggregates import integers, sums
from headrace.kernel.aggregates import sums as aggregates_sums
from headrace.kernel.aggregates.bags import Bag, BagPart, CustomPart, bag, pairs, result_of_bag
from headrace.kernel.aggregates.integers import Bools, Floats
from headrace.kernel.aggregates.ordering import ByPart, ExtremePart, TimedPart, TopPart, nearest_rank
from headrace.kernel.aggregates.sketches import DistinctSketchPart, QuantileSketchPart, estimate, quantile
from headrace.kernel.columns import ARROW_TYPES, Groups, Ints, arrow_type, as_numpy, of_lists, side_by_side, to_lists
from headrace.kernel.expressions.evaluation import arrow_type_of
from headrace.model.combiners import BY_ANOTHER, Aggregate, Combiner
from headrace.model.expressions.data_types import DataType, PairsType, Schema
from headrace.model.expressions.typing import input_type, output_type
from headrace.program.columns import both

Columns = Mapping[str, pa.Array]


@dataclass(frozen=True)
class Accumulator:
    """The stored parts of one aggregate, and its result over them, by name."""

    parts: tuple[aggregates_sums.AccumulatorPart, ...]
    result: Callable[[Columns], pa.Array]


def compile_aggregates(
    what: Mapping[str, Aggregate], schema: Schema, *, withdrawable: bool, all_kept: bool
) -> dict[str, Accumulator]:
    """Accumulators by aggregate name, their parts named ``_a{i}_...``; ``withdrawable``: elements can be withdrawn;
    ``all_kept``: parts are made of all elements whenever a result is wanted (``unpacked``).
    """
    aggregates = enumerate(what.items())
    return {name: _Compiler(f"_a{i}", a, schema, withdrawable, all_kept).accumulator for i, (name, a) in aggregates}


class _Compiler:
    """One aggregate on its way to an accumulator."""

    def __init__(self, prefix: str, aggregate: Aggregate, schema: Schema, withdrawable: bool, all_kept: bool) -> None:
        self.prefix, self.aggregate, self.schema, self.withdrawable = prefix, aggregate, schema, withdrawable
        self.takes_all = withdrawable or all_kept
        self.input = aggregate.input
        if aggregate.combiner in BY_ANOTHER and aggregate.input is not None and aggregate.other is not None:
            self.input = both(aggregate.other, aggregate.input)
        elif aggregate.combiner is Combiner.MAP_AGG and aggregate.input is not None and aggregate.other is not None:
            self.input = both(aggregate.input, aggregate.other)
        self.result_type = arrow_type(output_type(aggregate, schema))

    @property
    def kind(self) -> DataType:
        return input_type(self.aggregate, self.schema)

    @property
    def part_type(self) -> pa.DataType:
        """The type of the values that a part reads."""
        assert self.input is not None
        return arrow_type_of(self.input, self.schema)

    @property
    def accumulator(self) -> Accumulator:  # noqa: PLR0911 (a line for each combiner)
        match self.aggregate.combiner:
            case Combiner.COUNT:
                return _of(self._count, lambda part: part.fill_null(0))
            case Combiner.SUM:
                return self._sum()
            case Combiner.MEAN:
                return self._mean()
            case Combiner.VARIANCE:
                return self._variance()
            case Combiner.PAIRS:
                return self._pairs()
            case Combiner.CUSTOM:
                return self._custom()
            case Combiner.MAP_AGG:
                return self._of_bag(lambda bag: bag.last_pairs(self.result_type))
            case Combiner.MODE:
                return self._of_bag(lambda bag: bag.mode)
            case Combiner.COLLECT:
                return self._of_bag(lambda bag: to_lists(*bag.copies))
            case Combiner.DISTINCT:
                return self._distinct()
        return self._from_bag() if self.takes_all else self._bounded()

    # --- parts

    @property
    def _count(self) -> aggregates_sums.CountPart:
        return aggregates_sums.CountPart.of(f"{self.prefix}_count", self.input)

    @property
    def _total(self) -> tuple[aggregates_sums.AccumulatorPart, Callable[[pa.Array], Floats]]:
        """A sum, and how it is read as floats."""
        name = f"{self.prefix}_sum"
        if self.kind is DataType.INT:
            return aggregates_sums.IntegerSumPart.of(name, self.input), integers.to_float
        if self.withdrawable:
            return aggregates_sums.SettledSumPart.of(name, self.input), aggregates_sums.settled
        return aggregates_sums.FloatSumPart.of(name, self.input), lambda part: as_numpy(part.fill_null(0.0))

    def _bag(self, *, is_timed: bool = False) -> BagPart:
        return BagPart.of(f"{self.prefix}_bag", self.input, self.part_type, is_timed=is_timed)

    def _of_bag(self, result: Callable[[Bag], pa.Array], *, is_timed: bool = False) -> Accumulator:
        return _of(self._bag(is_timed=is_timed), lambda part: result(bag(part)))

    # --- combiners

    def _sum(self) -> Accumulator:
        if self.kind is DataType.DECIMAL:
            return _of(self._decimal_total, aggregates_sums.decimal_sum)
        part, read = self._total
        if self.kind is DataType.INT:
            return _of(part, lambda total: pa.array(integers.to_int64(total)))
        return _of(part, lambda total: pa.array(read(total) + 0.0))  # -0.0 is 0.0

    @property
    def _decimal_total(self) -> aggregates_sums.DecimalSumPart:
        return aggregates_sums.DecimalSumPart.of(f"{self.prefix}_sum", self.input)

    def _mean(self) -> Accumulator:
        if self.kind is DataType.DECIMAL:
            exact, number_of = self._decimal_total, self._count
            return Accumulator(
                (exact, number_of), lambda parts: aggregates_sums.decimal_mean(parts[exact.name], parts[number_of.name])
            )
        (part, read), count = self._total, self._count

        def ratio(parts: Columns) -> pa.Array:
            number, empty = _number(parts[count.name])
            return pa.array(read(parts[part.name]) / number, mask=empty)

        return Accumulator((part, count), ratio)

    def _variance(self) -> Accumulator:
        if self.kind is DataType.FLOAT:
            if self.takes_all:
                return self._of_bag(lambda bag: bag.variance)
            return _of(sums.MomentsPart.of(f"{self.prefix}_moments", self.input), sums.variance)
        total = aggregates_sums.IntegerSumPart.of(f"{self.prefix}_sum", self.input)
        squares = aggregates_sums.IntegerSumPart.of(f"{self.prefix}_squares", self.input, squared=True)
        count = self._count

        def exact(parts: Columns) -> pa.Array:
            number, empty = _number(parts[count.name])
            return pa.array(integers.variance(number, parts[total.name], parts[squares.name]), mask=empty)

        return Accumulator((count, total, squares), exact)

    def _distinct(self) -> Accumulator:
        return self._of_bag(lambda bag: pa.array(bag.there.groups.sizes))

    def _pairs(self) -> Accumulator:
        aggregate = self.aggregate
        kinds = output_type(aggregate, self.schema)
        assert isinstance(kinds, PairsType)
        left = BagPart.of(f"{self.prefix}_left", aggregate.input, ARROW_TYPES[kinds.left])
        right = BagPart.of(f"{self.prefix}_right", aggregate.other, ARROW_TYPES[kinds.right])
        outer, kind = aggregate.outer, self.result_type
        return Accumulator((left, right), lambda p: pairs(bag(p[left.name]), bag(p[right.name]), outer, kind))

    def _custom(self) -> Accumulator:
        combiner = self.aggregate.custom
        assert combiner is not None
        if self.withdrawable and not self.aggregate.invertible:
            return self._of_bag(lambda bag: result_of_bag(combiner, bag))
        part = CustomPart.of(f"{self.prefix}_own", self.input, combiner)
        return _of(part, part.result)

    def _from_bag(self) -> Accumulator:  # noqa: PLR0911 (a line for each combiner)
        """Combiners that order values, over all of them."""
        aggregate = self.aggregate
        match aggregate.combiner:
            case kind if kind in _EXTREMES:
                return self._of_bag(lambda bag: bag.end(is_last=_EXTREMES[kind]))
            case Combiner.MAX_BY | Combiner.MIN_BY:
                return self._of_bag(lambda bag: bag.end(is_last=aggregate.combiner is Combiner.MAX_BY))
            case Combiner.FIRST | Combiner.LAST:
                return self._of_bag(lambda bag: bag.end(is_last=aggregate.combiner is Combiner.LAST), is_timed=True)
            case Combiner.TOP:
                return self._of_bag(lambda bag: to_lists(*bag.extremes(aggregate.k or 1, are_largest=True)))
            case Combiner.LIST_AGG:
                return self._of_bag(lambda bag: _values(*bag.extremes(aggregate.k or 1, are_largest=False)))
            case Combiner.APPROX_DISTINCT:
                return self._distinct()
            case Combiner.QUANTILE:
                return self._of_bag(lambda bag: _nearest(bag.there, aggregate.q or 0.0))
            case Combiner.QUANTILES:
                return self._of_bag(lambda bag: side_by_side([_nearest(bag.there, q) for q in aggregate.qs or ()]))
        raise AssertionError(aggregate.combiner)

    def _bounded(self) -> Accumulator:  # noqa: PLR0911 (a line for each combiner)
        """The same where nothing is withdrawn and nothing kept: no more is stored than the result needs."""
        aggregate, kind, prefix = self.aggregate, self.part_type, self.prefix
        match aggregate.combiner:
            case combiner if combiner in _EXTREMES:
                return _of(ExtremePart(f"{prefix}_{combiner}", kind, self.input, _EXTREMES[combiner]), lambda p: p)
            case Combiner.MAX_BY | Combiner.MIN_BY:
                is_largest = aggregate.combiner is Combiner.MAX_BY
                return _of(ByPart(f"{prefix}_by", kind, self.input, is_largest), lambda p: pc.struct_field(p, 1))
            case Combiner.FIRST | Combiner.LAST:
                is_latest = aggregate.combiner is Combiner.LAST
                timed = pa.struct([("at", pa.int64()), ("value", kind)])
                return _of(TimedPart(f"{prefix}_timed", timed, self.input, is_latest), lambda p: pc.struct_field(p, 1))
            case Combiner.TOP:
                k = aggregate.k or 1
                top = TopPart(f"{prefix}_top", pa.list_(kind), self.input, k, are_largest=True)
                return _of(top, lambda p: pc.coalesce(p, pa.scalar([], p.type)) if p.null_count else p)
            case Combiner.LIST_AGG:
                first = TopPart(f"{prefix}_first", pa.list_(kind), self.input, aggregate.k or 1, are_largest=False)
                return _of(first, lambda p: _values(*of_lists(p)))
            case Combiner.APPROX_DISTINCT:
                return _of(DistinctSketchPart.of(f"{prefix}_hll", self.input), estimate)
            case Combiner.QUANTILE:
                sketch = QuantileSketchPart.of(f"{prefix}_sketch", self.input, kind)
                return _of(sketch, lambda p: quantile(p, aggregate.q or 0.0))
            case Combiner.QUANTILES:
                sketch = QuantileSketchPart.of(f"{prefix}_sketch", self.input, kind)
                return _of(sketch, lambda p: side_by_side([quantile(p, q) for q in aggregate.qs or ()]))
        raise AssertionError(aggregate.combiner)


_EXTREMES = {
    **dict.fromkeys((Combiner.MIN, Combiner.BOOL_AND), False),
    **dict.fromkeys((Combiner.MAX, Combiner.BOOL_OR), True),
}
"""Combiners that give one end of all values; whether that is the largest."""


def _values(entries: pa.Array, groups: Groups) -> pa.Array:
    """Lists of values, of entries that go by another."""
    return to_lists(entries.field(1), groups)


def _of(part: aggregates_sums.AccumulatorPart, result: Callable[[pa.Array], pa.Array]) -> Accumulator:
    return Accumulator((part,), lambda parts: result(parts[part.name]))


def _number(count: pa.Array) -> tuple[Ints, Bools]:
    """How many values there are, or 1 where there are none, and where that is."""
    number = as_numpy(count.fill_null(0))
    return np.where(number == 0, 1, number), number == 0


def _nearest(there: Bag, q: float) -> pa.Array:
    rows = nearest_rank(there.times, there.groups, q)
    return there.values.take(pa.array(rows, mask=there.groups.sizes == 0))
