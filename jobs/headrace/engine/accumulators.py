"""Aggregates as columns: which parts an accumulator stores, and what it yields (semantics, section 8).

Combiners that cannot take a value back keep a bag of the values where values can be withdrawn (12.5).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pyspark.sql import functions as f
from pyspark.sql import types as t

from headrace.engine.bags import BagPart, copies, distinct_values, once, variance
from headrace.engine.custom_combiners import CombinerCalls, CustomPart
from headrace.engine.parts import (
    DistinctSketchPart,
    Fold,
    FoldPart,
    MomentsPart,
    Part,
    QuantileSketchPart,
    SquaresPart,
    TimedPart,
    TopPart,
)
from headrace.engine.types import SPARK_TYPES, SparkColumn
from headrace.model.combiners import Aggregate, Combiner, Outer
from headrace.model.expr import DataType, Schema, if_
from headrace.model.value_types import ListType, PairsType, ValueType

Parts = Mapping[str, SparkColumn]

_LONG = t.LongType()
_EXACT = t.DecimalType(38, 0)


@dataclass(frozen=True)
class Accumulator:
    """The stored parts of one aggregate, and its result over them."""

    parts: tuple[Part, ...]
    result: Callable[[Parts], SparkColumn]
    result_type: t.DataType


def spark_type(kind: ValueType) -> t.DataType:
    """The Spark type of a pane value."""
    match kind:
        case ListType(item):
            return t.ArrayType(SPARK_TYPES[item])
        case PairsType(left, right):
            fields = [t.StructField("left", SPARK_TYPES[left]), t.StructField("right", SPARK_TYPES[right])]
            return t.ArrayType(t.StructType(fields))
    return SPARK_TYPES[kind]


def compile_aggregates(
    what: Mapping[str, Aggregate], schema: Schema, *, withdrawable: bool, all_kept: bool
) -> dict[str, Accumulator]:
    """Accumulators by aggregate name, their parts named ``_a{i}_...``; ``withdrawable``: elements can be withdrawn;
    ``all_kept``: parts are made of all elements whenever a result is wanted (``Part.of``).
    """
    aggregates = enumerate(what.items())
    return {name: _Compiler(f"_a{i}", a, schema, withdrawable, all_kept).accumulator for i, (name, a) in aggregates}


class _Compiler:
    """One aggregate on its way to an accumulator."""

    def __init__(self, prefix: str, aggregate: Aggregate, schema: Schema, withdrawable: bool, all_kept: bool) -> None:
        self.prefix, self.aggregate, self.schema, self.withdrawable = prefix, aggregate, schema, withdrawable
        self.takes_all = withdrawable or all_kept
        self.result_type = spark_type(aggregate.output_type(schema))

    @property
    def kind(self) -> DataType:
        return self.aggregate.input_type(self.schema)

    @property
    def accumulator(self) -> Accumulator:  # noqa: PLR0911 (a line for each combiner)
        match self.aggregate.combiner:
            case Combiner.COUNT:
                return self._of(self._count, lambda part: f.coalesce(part, f.lit(0).cast("long")))
            case Combiner.SUM:
                parts, total = self._total
                return self._made(parts, lambda p: f.coalesce(total(p), f.lit(0).cast(self.result_type)))
            case Combiner.MEAN:
                (parts, total), number = self._total, self._count
                return self._made((*parts, number), lambda p: _ratio(total(p).cast("double"), p[number.name]))
            case Combiner.VARIANCE:
                return self._variance()
            case Combiner.COLLECT:
                return self._of(self._bag(), lambda bag: f.coalesce(copies(bag), self._nothing))
            case Combiner.DISTINCT:
                return self._distinct()
            case Combiner.PAIRS:
                return self._pairs()
            case Combiner.CUSTOM:
                return self._custom()
        return self._from_bag() if self.takes_all else self._bounded()

    # --- parts

    @property
    def _count(self) -> FoldPart:
        return FoldPart(f"{self.prefix}_count", _LONG, self.aggregate.input, Fold.COUNT)

    @property
    def _sum(self) -> FoldPart:
        return FoldPart(f"{self.prefix}_sum", SPARK_TYPES[self.kind], self.aggregate.input, Fold.SUM)

    @property
    def _total(self) -> tuple[tuple[Part, ...], Callable[[Parts], SparkColumn]]:
        """A sum: its parts, and what they come to. Floats that are not finite cannot be taken back from a sum, which
        would be NaN for good: where values can be withdrawn, it has the finite ones, and the others are counted.
        """
        finite, value = self._sum, self.aggregate.input
        if not self.withdrawable or self.kind is not DataType.FLOAT or value is None:
            return (finite,), lambda parts: parts[finite.name]
        finite = replace(finite, input=if_(value - value == 0.0, value, None))
        others = {"nan": value > math.inf, "above": value == math.inf, "below": value == -math.inf}
        counts = [
            FoldPart(f"{self.prefix}_{name}", _LONG, if_(is_it, value, None), Fold.COUNT)
            for name, is_it in others.items()
        ]

        def total(parts: Parts) -> SparkColumn:
            found = f.coalesce(parts[finite.name], f.lit(0.0))
            for count, other in zip(counts, (math.nan, math.inf, -math.inf), strict=True):
                found = found + f.when(parts[count.name] != 0, parts[count.name] * f.lit(other)).otherwise(0.0)
            return found

        return (finite, *counts), total

    @property
    def _timed_type(self) -> t.StructType:
        return t.StructType([t.StructField("at", _LONG), t.StructField("value", SPARK_TYPES[self.kind])])

    def _bag(self, *, is_timed: bool = False) -> BagPart:
        key = self._timed_type if is_timed else SPARK_TYPES[self.kind]
        return BagPart(f"{self.prefix}_bag", t.MapType(key, _LONG), self.aggregate.input, is_timed)

    @property
    def _nothing(self) -> SparkColumn:
        return f.array().cast(self.result_type)

    def _made(self, parts: tuple[Part, ...], result: Callable[[Parts], SparkColumn]) -> Accumulator:
        return Accumulator(parts, result, self.result_type)

    def _of(self, part: Part, result: Callable[[SparkColumn], SparkColumn]) -> Accumulator:
        return self._made((part,), lambda parts: result(parts[part.name]))

    # --- combiners

    def _variance(self) -> Accumulator:
        if self.kind is DataType.FLOAT:
            if self.takes_all:
                return self._of(self._bag(), variance)
            fields = [t.StructField("n", _LONG), *[t.StructField(n, t.DoubleType()) for n in ("mean", "m2")]]
            part = MomentsPart(f"{self.prefix}_moments", t.StructType(fields), self.aggregate.input)
            return self._of(part, lambda moments: moments["m2"] / moments["n"])
        total = FoldPart(f"{self.prefix}_total", _EXACT, self.aggregate.input, Fold.SUM)
        squares = SquaresPart(f"{self.prefix}_squares", _EXACT, self.aggregate.input, Fold.SUM)
        count = self._count

        def exact(parts: Parts) -> SparkColumn:
            number = f.when(parts[count.name] != 0, parts[count.name])
            # distances from a whole number near the mean are exact, and small
            near = f.round(parts[total.name].cast("double") / number).cast("decimal(19,0)")
            around = parts[total.name] - near * number
            apart = parts[squares.name] - near * (parts[total.name] + around)
            off = around.cast("double") / number
            return apart.cast("double") / number - off * off

        return self._made((count, total, squares), exact)

    def _distinct(self) -> Accumulator:
        return self._of(self._bag(), lambda bag: f.coalesce(f.size(distinct_values(bag)), f.lit(0)).cast("long"))

    def _pairs(self) -> Accumulator:
        left, right = self.aggregate.input, self.aggregate.other
        assert left is not None
        assert right is not None
        kinds = self.aggregate.output_type(self.schema)
        assert isinstance(kinds, PairsType)
        bags = tuple(
            BagPart(f"{self.prefix}_{side}", t.MapType(SPARK_TYPES[kind], _LONG), expr)
            for side, kind, expr in (("left", kinds.left, left), ("right", kinds.right, right))
        )

        def result(parts: Parts) -> SparkColumn:
            lefts, rights = (_side(bag, parts[bag.name]) for bag in bags)
            sides = f.struct(lefts.alias("lefts"), rights.alias("rights"))
            return once(sides, lambda both: _all_pairs(both, self.aggregate.outer))

        return self._made(bags, result)

    def _custom(self) -> Accumulator:
        assert self.aggregate.custom is not None
        calls = CombinerCalls(self.aggregate.custom, self.kind)
        if self.withdrawable and not self.aggregate.invertible:
            return self._of(self._bag(), lambda bag: calls.extract_of(copies(bag)))
        part = CustomPart(f"{self.prefix}_own", calls.type, self.aggregate.input, calls)
        return self._of(part, calls.extract)

    def _from_bag(self) -> Accumulator:  # noqa: PLR0911 (a line for each combiner)
        """Combiners that order values, over all of them."""
        aggregate = self.aggregate
        ordered = self._bag(is_timed=aggregate.combiner in (Combiner.FIRST, Combiner.LAST))
        match aggregate.combiner:
            case Combiner.MIN:
                return self._of(ordered, lambda bag: f.array_min(distinct_values(bag)))
            case Combiner.MAX:
                return self._of(ordered, lambda bag: f.array_max(distinct_values(bag)))
            case Combiner.FIRST:
                return self._of(ordered, lambda bag: f.array_min(distinct_values(bag))["value"])
            case Combiner.LAST:
                return self._of(ordered, lambda bag: f.array_max(distinct_values(bag))["value"])
            case Combiner.TOP:
                k = aggregate.k or 1
                return self._of(ordered, lambda bag: f.coalesce(f.slice(f.reverse(copies(bag)), 1, k), self._nothing))
            case Combiner.APPROX_DISTINCT:
                return self._distinct()
            case Combiner.QUANTILE:
                return self._of(ordered, lambda bag: _nearest_rank(copies(bag), aggregate.q or 0.0))
        raise AssertionError(aggregate.combiner)

    def _bounded(self) -> Accumulator:
        """The same where nothing is withdrawn and nothing kept: no more is stored than the result needs."""
        aggregate, kind, prefix = self.aggregate, SPARK_TYPES[self.kind], self.prefix
        source = aggregate.input
        match aggregate.combiner:
            case Combiner.MIN | Combiner.MAX:
                how = Fold.MIN if aggregate.combiner is Combiner.MIN else Fold.MAX
                return self._of(FoldPart(f"{prefix}_{how}", kind, source, how), lambda part: part)
            case Combiner.FIRST | Combiner.LAST:
                earliest = aggregate.combiner is Combiner.FIRST
                return self._of(TimedPart(f"{prefix}_timed", self._timed_type, source, earliest), lambda p: p["value"])
            case Combiner.TOP:
                part = TopPart(f"{prefix}_top", t.ArrayType(kind), source, aggregate.k or 1)
                return self._of(part, lambda values: f.coalesce(values, self._nothing))
            case Combiner.APPROX_DISTINCT:
                sketch = DistinctSketchPart(f"{prefix}_hll", t.BinaryType(), source)
                return self._of(sketch, lambda s: f.coalesce(f.hll_sketch_estimate(s), f.lit(0).cast("long")))
            case Combiner.QUANTILE:
                integer = self.kind is DataType.INT
                get = f.kll_sketch_get_quantile_bigint if integer else f.kll_sketch_get_quantile_double
                quantiles = QuantileSketchPart(f"{prefix}_kll", t.BinaryType(), source, integer)
                return self._of(quantiles, lambda s: get(s, f.lit(aggregate.q)))
        raise AssertionError(aggregate.combiner)


def _side(bag: BagPart, content: SparkColumn) -> SparkColumn:
    """The values of one side of a join."""
    assert isinstance(bag.type, t.MapType)
    return f.coalesce(copies(content), f.array().cast(t.ArrayType(bag.type.keyType)))


def _all_pairs(sides: SparkColumn, outer: Outer | None) -> SparkColumn:
    lefts, rights = sides["lefts"], sides["rights"]
    no_left, no_right = f.size(lefts) == 0, f.size(rights) == 0
    # a single NULL stands for a side without values, if there are values on the other
    if outer in (Outer.RIGHT, Outer.BOTH):
        lefts = f.when(no_left & ~no_right, f.array(f.lit(None))).otherwise(lefts)
    if outer in (Outer.LEFT, Outer.BOTH):
        rights = f.when(no_right & ~no_left, f.array(f.lit(None))).otherwise(rights)

    def with_all(a: SparkColumn) -> SparkColumn:
        return f.transform(rights, lambda b: f.struct(a.alias("left"), b.alias("right")))

    return f.flatten(f.transform(lefts, with_all))


def _ratio(total: SparkColumn, number: SparkColumn) -> SparkColumn:
    return f.when(number != 0, total / number)


def _nearest_rank(ordered: SparkColumn, q: float) -> SparkColumn:
    """The smallest value with a part ``q`` of all at or below it."""
    at = f.greatest(f.ceil(f.size(ordered) * f.lit(str(q)).cast("decimal(20,18)")).cast("int"), f.lit(1))
    return f.when(f.size(ordered) > 0, f.element_at(ordered, at))
