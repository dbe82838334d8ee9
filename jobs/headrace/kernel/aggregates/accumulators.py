"""Aggregates on Arrow: which parts an accumulator stores, and what it yields (semantics, section 8).

Combiners that cannot take a value back keep a bag of the values where values can be withdrawn (12.5).
"""

from collections.abc import Callable, Mapping

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernel.aggregates import integers, sums
from headrace.kernel.aggregates import sums as aggregates_sums
from headrace.kernel.aggregates.bags import Bag, BagPart, CustomPart, read_bags, result_of_bag, sorted_pairs
from headrace.kernel.aggregates.integers import Bools, Floats
from headrace.kernel.aggregates.ordering import ByPart, ExtremePart, TimedPart, TopPart, nearest_rank
from headrace.kernel.aggregates.sketches import (
    DistinctSketchPart,
    QuantileSketchPart,
    estimate_distinct,
    sketch_quantile,
)
from headrace.kernel.columns import Groups, Ints, arrow_type, as_numpy, of_lists, side_by_side, to_lists
from headrace.kernel.expressions.evaluation import arrow_type_of
from headrace.model.combiners import BY_ANOTHER, Combiner
from headrace.model.expressions.data_types import DataType, PairsType, Schema
from headrace.model.expressions.expr import Aggregate
from headrace.model.expressions.typing import input_type, output_type
from headrace.program.columns import pair_values

Columns = Mapping[str, pa.Array]


class Accumulator(msgspec.Struct, frozen=True):
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
            self.input = pair_values(aggregate.other, aggregate.input)
        elif aggregate.combiner is Combiner.MAP_AGG and aggregate.input is not None and aggregate.other is not None:
            self.input = pair_values(aggregate.input, aggregate.other)
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
                return _single_part_accumulator(self._count, lambda part: part.fill_null(0))
            case Combiner.SUM:
                return self._sum_accumulator()
            case Combiner.MEAN:
                return self._mean_accumulator()
            case Combiner.VARIANCE:
                return self._variance_accumulator()
            case Combiner.PAIRS:
                return self._pairs_accumulator()
            case Combiner.CUSTOM:
                return self._custom_accumulator()
            case Combiner.MAP_AGG:
                return self._of_bag(lambda bag: bag.last_pairs(self.result_type))
            case Combiner.MODE:
                return self._of_bag(lambda bag: bag.mode)
            case Combiner.COLLECT:
                return self._of_bag(lambda bag: to_lists(*bag.copies))
            case Combiner.DISTINCT:
                return self._distinct_accumulator()
        return self._from_bag() if self.takes_all else self._bounded_accumulator()

    # --- parts

    @property
    def _count(self) -> aggregates_sums.CountPart:
        return aggregates_sums.CountPart.from_value(f"{self.prefix}_count", self.input)

    @property
    def _total(self) -> tuple[aggregates_sums.AccumulatorPart, Callable[[pa.Array], Floats]]:
        """A sum, and how it is read as floats."""
        name = f"{self.prefix}_sum"
        if self.kind is DataType.INT:
            return aggregates_sums.IntegerSumPart.from_value(name, self.input), integers.to_float
        if self.withdrawable:
            return aggregates_sums.SettledSumPart.from_value(name, self.input), aggregates_sums.settle_sums
        return aggregates_sums.FloatSumPart.from_value(name, self.input), lambda part: as_numpy(part.fill_null(0.0))

    @property
    def _distinct_sketch(self) -> DistinctSketchPart:
        return DistinctSketchPart.from_value(f"{self.prefix}_hll", self.input)

    @property
    def _quantile_sketch(self) -> QuantileSketchPart:
        return QuantileSketchPart.from_value(f"{self.prefix}_sketch", self.input, self.part_type)

    def _bag_part(self, *, is_timed: bool = False) -> BagPart:
        return BagPart.from_value(f"{self.prefix}_bag", self.input, self.part_type, is_timed=is_timed)

    def _of_bag(self, result: Callable[[Bag], pa.Array], *, is_timed: bool = False) -> Accumulator:
        return _single_part_accumulator(self._bag_part(is_timed=is_timed), lambda part: result(read_bags(part)))

    # --- combiners

    def _sum_accumulator(self) -> Accumulator:
        if self.kind is DataType.DECIMAL:
            return _single_part_accumulator(self._decimal_total, aggregates_sums.decimal_sum)
        part, read = self._total
        if self.kind is DataType.INT:
            return _single_part_accumulator(part, lambda total: pa.array(integers.to_int64(total)))
        return _single_part_accumulator(part, lambda total: pa.array(read(total) + 0.0))  # -0.0 is 0.0

    @property
    def _decimal_total(self) -> aggregates_sums.DecimalSumPart:
        return aggregates_sums.DecimalSumPart.from_value(f"{self.prefix}_sum", self.input)

    def _mean_accumulator(self) -> Accumulator:
        if self.kind is DataType.DECIMAL:
            exact, number_of = self._decimal_total, self._count
            return Accumulator(
                (exact, number_of), lambda parts: aggregates_sums.decimal_mean(parts[exact.name], parts[number_of.name])
            )
        (part, read), count = self._total, self._count

        def mean_of_parts(parts: Columns) -> pa.Array:
            number, empty = _divisor_and_empty(parts[count.name])
            return pa.array(read(parts[part.name]) / number + 0.0, mask=empty)  # -0.0 is 0.0

        return Accumulator((part, count), mean_of_parts)

    def _variance_accumulator(self) -> Accumulator:
        if self.kind is DataType.FLOAT:
            if self.takes_all:
                return self._of_bag(lambda bag: bag.variance)
            return _single_part_accumulator(
                sums.MomentsPart.from_value(f"{self.prefix}_moments", self.input), sums.variance
            )
        total = aggregates_sums.IntegerSumPart.from_value(f"{self.prefix}_sum", self.input)
        squares = aggregates_sums.IntegerSumPart.from_value(f"{self.prefix}_squares", self.input, is_squared=True)
        count = self._count

        def exact_variance(parts: Columns) -> pa.Array:
            number, empty = _divisor_and_empty(parts[count.name])
            return pa.array(integers.population_variance(number, parts[total.name], parts[squares.name]), mask=empty)

        return Accumulator((count, total, squares), exact_variance)

    def _distinct_accumulator(self) -> Accumulator:
        return self._of_bag(lambda bag: pa.array(bag.without_withdrawn.groups.sizes))

    def _pairs_accumulator(self) -> Accumulator:
        aggregate = self.aggregate
        kinds = output_type(aggregate, self.schema)
        assert isinstance(kinds, PairsType)
        left = BagPart.from_value(f"{self.prefix}_left", aggregate.input, arrow_type(kinds.left))
        right = BagPart.from_value(f"{self.prefix}_right", aggregate.other, arrow_type(kinds.right))
        outer, kind = aggregate.outer, self.result_type
        return Accumulator(
            (left, right), lambda p: sorted_pairs(read_bags(p[left.name]), read_bags(p[right.name]), outer, kind)
        )

    def _custom_accumulator(self) -> Accumulator:
        combiner = self.aggregate.custom
        assert combiner is not None
        if self.withdrawable and not self.aggregate.invertible:
            return self._of_bag(lambda bag: result_of_bag(combiner, bag))
        part = CustomPart.from_combiner(f"{self.prefix}_own", self.input, combiner)
        return _single_part_accumulator(part, part.extract_results)

    def _from_bag(self) -> Accumulator:  # noqa: PLR0911 (a line for each combiner)
        """Combiners that order values, over all of them."""
        aggregate = self.aggregate
        match aggregate.combiner:
            case kind if kind in _EXTREMES:
                return self._of_bag(lambda bag: bag.end_value(is_last=_EXTREMES[kind]))
            case Combiner.MAX_BY | Combiner.MIN_BY:
                return self._of_bag(lambda bag: bag.end_value(is_last=aggregate.combiner is Combiner.MAX_BY))
            case Combiner.FIRST | Combiner.LAST:
                return self._of_bag(
                    lambda bag: bag.end_value(is_last=aggregate.combiner is Combiner.LAST), is_timed=True
                )
            case Combiner.TOP:
                return self._of_bag(lambda bag: to_lists(*bag.extreme_copies(aggregate.k or 1, are_largest=True)))
            case Combiner.LIST_AGG:
                return self._of_bag(lambda bag: _value_lists(*bag.extreme_copies(aggregate.k or 1, are_largest=False)))
            case Combiner.APPROX_DISTINCT:
                return self._distinct_accumulator()
            case Combiner.DISTINCT_SKETCH:
                from headrace.kernel.aggregates.sketches import distinct_bytes  # which few pipelines need

                sketch_part = self._distinct_sketch
                return self._of_bag(lambda bag: distinct_bytes(sketch_part.of_values(*bag.copies)))
            case Combiner.QUANTILE_SKETCH:
                from headrace.kernel.aggregates.sketches import quantile_bytes

                sketch = self._quantile_sketch
                return self._of_bag(lambda bag: quantile_bytes(sketch.of_values(*bag.copies)))
            case Combiner.QUANTILE:
                return self._of_bag(lambda bag: _quantile_values(bag.without_withdrawn, aggregate.q or 0.0))
            case Combiner.QUANTILES:
                return self._of_bag(
                    lambda bag: side_by_side([_quantile_values(bag.without_withdrawn, q) for q in aggregate.qs or ()])
                )
        raise AssertionError(aggregate.combiner)

    def _bounded_accumulator(self) -> Accumulator:  # noqa: PLR0911 (a line for each combiner)
        """The same where nothing is withdrawn and nothing kept: no more is stored than the result needs."""
        aggregate, kind, prefix = self.aggregate, self.part_type, self.prefix
        match aggregate.combiner:
            case combiner if combiner in _EXTREMES:
                return _single_part_accumulator(
                    ExtremePart(f"{prefix}_{combiner}", kind, self.input, _EXTREMES[combiner]), lambda p: p
                )
            case Combiner.MAX_BY | Combiner.MIN_BY:
                is_largest = aggregate.combiner is Combiner.MAX_BY
                return _single_part_accumulator(
                    ByPart(f"{prefix}_by", kind, self.input, is_largest), lambda p: pc.struct_field(p, 1)
                )
            case Combiner.FIRST | Combiner.LAST:
                is_latest = aggregate.combiner is Combiner.LAST
                timed_type = pa.struct([("at", pa.int64()), ("value", kind)])
                return _single_part_accumulator(
                    TimedPart(f"{prefix}_timed", timed_type, self.input, is_latest), lambda p: pc.struct_field(p, 1)
                )
            case Combiner.TOP:
                k = aggregate.k or 1
                top = TopPart(f"{prefix}_top", pa.list_(kind), self.input, k, are_largest=True)
                return _single_part_accumulator(
                    top, lambda p: pc.coalesce(p, pa.scalar([], p.type)) if p.null_count else p
                )
            case Combiner.LIST_AGG:
                first = TopPart(f"{prefix}_first", pa.list_(kind), self.input, aggregate.k or 1, are_largest=False)
                return _single_part_accumulator(first, lambda p: _value_lists(*of_lists(p)))
            case Combiner.APPROX_DISTINCT:
                return _single_part_accumulator(self._distinct_sketch, estimate_distinct)
            case Combiner.DISTINCT_SKETCH:
                from headrace.kernel.aggregates.sketches import distinct_bytes

                return _single_part_accumulator(self._distinct_sketch, distinct_bytes)
            case Combiner.QUANTILE_SKETCH:
                from headrace.kernel.aggregates.sketches import quantile_bytes

                return _single_part_accumulator(self._quantile_sketch, quantile_bytes)
            case Combiner.QUANTILE:
                return _single_part_accumulator(self._quantile_sketch, lambda p: sketch_quantile(p, aggregate.q or 0.0))
            case Combiner.QUANTILES:
                return _single_part_accumulator(
                    self._quantile_sketch, lambda p: side_by_side([sketch_quantile(p, q) for q in aggregate.qs or ()])
                )
        raise AssertionError(aggregate.combiner)


_EXTREMES = {
    **dict.fromkeys((Combiner.MIN, Combiner.BOOL_AND), False),
    **dict.fromkeys((Combiner.MAX, Combiner.BOOL_OR), True),
}
"""Combiners that give one end of all values; whether that is the largest."""


def _value_lists(entries: pa.Array, groups: Groups) -> pa.Array:
    """Lists of values, of entries that go by another."""
    return to_lists(entries.field(1), groups)


def _single_part_accumulator(
    part: aggregates_sums.AccumulatorPart, result: Callable[[pa.Array], pa.Array]
) -> Accumulator:
    return Accumulator((part,), lambda parts: result(parts[part.name]))


def _divisor_and_empty(count: pa.Array) -> tuple[Ints, Bools]:
    """How many values there are, or 1 where there are none, and where that is."""
    number = as_numpy(count.fill_null(0))
    return np.where(number == 0, 1, number), number == 0


def _quantile_values(bag: Bag, q: float) -> pa.Array:
    rows = nearest_rank(bag.times, bag.groups, q)
    return bag.values.take(pa.array(rows, mask=bag.groups.sizes == 0))
