"""Aggregates as columns: what an accumulator stores, how two merge, and what it yields (semantics, section 8).

An accumulator is one or more nullable columns (parts); NULL is the identity, so merging needs no special case for
absent sides. Combiners that cannot take a value back keep a bag of the values with their multiplicities where values
can be withdrawn (semantics 12.5), ``collect`` keeps it always: a map column, merged without Python.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from pyspark.sql import functions as f
from pyspark.sql import types as t

from headrace.engine.types import SPARK_TYPES, SparkColumn
from headrace.errors import PipelineError
from headrace.model.combiners import Aggregate, Combiner
from headrace.model.expr import Expr, Schema

KEPT_PLACE, KEPT_VALUE = "place", "kept"
"""Fields of an element where the order of arrival counts."""

Parts = Mapping[str, SparkColumn]


@dataclass(frozen=True)
class Part(ABC):
    """One stored column of an accumulator; ``input`` None counts elements instead of values."""

    name: str
    type: t.DataType
    input: Expr | None

    @abstractmethod
    def fold(self, value: SparkColumn, sign: SparkColumn | None) -> SparkColumn:
        """The aggregate function that makes one part of elements; ``sign`` -1 withdraws one (None: none do)."""

    @abstractmethod
    def merge(self, left: SparkColumn, right: SparkColumn) -> SparkColumn:
        """Two parts as one."""

    @abstractmethod
    def gather(self, part: SparkColumn) -> SparkColumn:
        """The aggregate function that makes one part of several."""

    def of(self, values: SparkColumn) -> SparkColumn:
        """The part that an array of values makes (of elements, if it counts these)."""
        raise PipelineError(f"the Spark engine does not run the aggregate of {self.name} with keep_last yet")


class Fold(StrEnum):
    """How values become one value that is no larger."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"
    COUNT = "count"


@dataclass(frozen=True)
class FoldPart(Part):
    """A sum, smallest or largest value, or a count."""

    how: Fold

    def fold(self, value: SparkColumn, sign: SparkColumn | None) -> SparkColumn:
        match self.how:
            case Fold.COUNT:
                if sign is None:
                    return f.count(value)
                return f.coalesce(f.sum(f.when(value.isNotNull(), sign)), f.lit(0).cast("long"))
            case Fold.SUM:
                return f.sum(value if sign is None else value * sign).cast(self.type)
            case Fold.MIN:
                return f.min(value)
            case Fold.MAX:
                return f.max(value)

    def merge(self, left: SparkColumn, right: SparkColumn) -> SparkColumn:
        if self.how is Fold.MIN:
            return f.least(left, right)
        if self.how is Fold.MAX:
            return f.greatest(left, right)
        return f.coalesce(left + right, left, right)

    def gather(self, part: SparkColumn) -> SparkColumn:
        functions = {Fold.SUM: f.sum, Fold.COUNT: f.sum, Fold.MIN: f.min, Fold.MAX: f.max}
        return functions[self.how](part).cast(self.type)

    def of(self, values: SparkColumn) -> SparkColumn:
        match self.how:
            case Fold.COUNT:
                return f.size(f.filter(values, lambda value: value.isNotNull())).cast(self.type)
            case Fold.SUM:
                return f.aggregate(values, f.lit(None).cast(self.type), self.merge)
            case Fold.MIN:
                return f.array_min(values)
            case Fold.MAX:
                return f.array_max(values)


@dataclass(frozen=True)
class BagPart(Part):
    """Values with their multiplicities, a map; a withdrawn value that has not come yet has a negative one."""

    def fold(self, value: SparkColumn, sign: SparkColumn | None) -> SparkColumn:
        if sign is None:
            return _runs(f.collect_list(value))
        added = _runs(f.collect_list(f.when(sign > 0, value)))
        return _pruned(_zip(added, _runs(f.collect_list(f.when(sign < 0, value))), lambda a, b: a - b))

    def merge(self, left: SparkColumn, right: SparkColumn) -> SparkColumn:
        both = _pruned(_zip(left, right, lambda a, b: a + b))
        return f.when(left.isNull(), right).when(right.isNull(), left).otherwise(both)

    def gather(self, part: SparkColumn) -> SparkColumn:
        nothing = f.map_from_arrays(f.array(), f.array()).cast(self.type)
        return _pruned(f.aggregate(f.collect_list(part), nothing, lambda a, b: _zip(a, b, lambda x, y: x + y)))

    def of(self, values: SparkColumn) -> SparkColumn:
        return _runs(f.filter(values, lambda value: value.isNotNull()))


@dataclass(frozen=True)
class KeptPart(Part):
    """The last ``number`` elements in order of arrival (``How.keep_last``): an array of what aggregates read."""

    number: int

    def fold(self, value: SparkColumn, sign: SparkColumn | None) -> SparkColumn:
        """``value`` is a struct of an element's place in the order of arrival and of what is kept of it."""
        assert sign is None, "keep_last does not stand behind retractions"
        return f.transform(self._last(f.array_sort(f.collect_list(value))), lambda element: element[KEPT_VALUE])

    def merge(self, left: SparkColumn, right: SparkColumn) -> SparkColumn:
        return f.coalesce(self._last(f.concat(left, right)), left, right)

    def gather(self, part: SparkColumn) -> SparkColumn:
        raise PipelineError("keep_last needs the order of arrival, which windows that merge do not have")

    def _last(self, elements: SparkColumn) -> SparkColumn:
        return f.slice(elements, f.greatest(f.size(elements) - self.number, f.lit(0)) + 1, self.number)


def _runs(values: SparkColumn) -> SparkColumn:
    """An array as a map from its distinct values to how often each is there, in O(n log n)."""
    ordered = f.array_sort(values)

    def of(sorted_values: SparkColumn) -> SparkColumn:
        number = f.size(sorted_values)
        at = f.filter(
            f.sequence(f.lit(1), number),
            lambda i: (
                (i == 1) | (f.element_at(sorted_values, i) != f.element_at(sorted_values, f.greatest(i - 1, f.lit(1))))
            ),
        )
        starts = f.when(number > 0, at).otherwise(f.array().cast("array<int>"))
        ends = f.concat(f.slice(starts, 2, number), f.array(number + 1))
        keys = f.transform(starts, lambda i: f.element_at(sorted_values, i))
        counts = f.zip_with(starts, f.slice(ends, 1, f.size(starts)), lambda a, b: (b - a).cast("long"))
        return f.map_from_arrays(keys, counts)

    return f.element_at(f.transform(f.array(ordered), of), 1)


def _zip(left: SparkColumn, right: SparkColumn, join: Callable[[SparkColumn, SparkColumn], SparkColumn]) -> SparkColumn:
    zero = f.lit(0).cast("long")
    return f.map_zip_with(left, right, lambda _, a, b: join(f.coalesce(a, zero), f.coalesce(b, zero)))


def _pruned(bag: SparkColumn) -> SparkColumn:
    return f.map_filter(bag, lambda _, times: times != 0)


def _values(bag: SparkColumn) -> SparkColumn:
    """The distinct values of a bag that are there, sorted."""
    return f.array_sort(f.map_keys(f.map_filter(bag, lambda _, times: times > 0)))


def _copies(bag: SparkColumn) -> SparkColumn:
    """The values of a bag as a sorted array, each as often as it is there."""
    there = f.map_entries(f.map_filter(bag, lambda _, times: times > 0))
    return f.array_sort(f.flatten(f.transform(there, lambda e: f.array_repeat(e["key"], e["value"].cast("int")))))


@dataclass(frozen=True)
class Accumulator:
    """The stored parts of one aggregate, and its result over them."""

    parts: tuple[Part, ...]
    result: Callable[[Parts], SparkColumn]
    result_type: t.DataType


def compile_aggregates(what: Mapping[str, Aggregate], schema: Schema, withdrawable: bool) -> dict[str, Accumulator]:
    """Accumulators by aggregate name, their parts named ``_a{i}_...``; ``withdrawable``: elements can be withdrawn."""
    return {name: _compile(f"_a{i}", a, schema, withdrawable) for i, (name, a) in enumerate(what.items())}


def _compile(prefix: str, aggregate: Aggregate, schema: Schema, withdrawable: bool) -> Accumulator:
    source, combiner = aggregate.input, aggregate.combiner
    count = FoldPart(f"{prefix}_count", t.LongType(), source, Fold.COUNT)
    if combiner is Combiner.COUNT:
        return Accumulator((count,), lambda parts: f.coalesce(parts[count.name], f.lit(0).cast("long")), t.LongType())
    kind = SPARK_TYPES[aggregate.input_type(schema)]
    total = FoldPart(f"{prefix}_sum", kind, source, Fold.SUM)
    bag = BagPart(f"{prefix}_bag", t.MapType(kind, t.LongType()), source)
    match combiner:
        case Combiner.SUM:
            return Accumulator((total,), lambda parts: f.coalesce(parts[total.name], f.lit(0).cast(kind)), kind)
        case Combiner.MEAN:
            return Accumulator(
                (total, count), lambda parts: _mean(parts[total.name], parts[count.name]), t.DoubleType()
            )
        case Combiner.MIN | Combiner.MAX if withdrawable:
            pick = f.array_min if combiner is Combiner.MIN else f.array_max
            return Accumulator((bag,), lambda parts: pick(_values(parts[bag.name])), kind)
        case Combiner.MIN | Combiner.MAX:
            how = Fold.MIN if combiner is Combiner.MIN else Fold.MAX
            part = FoldPart(f"{prefix}_{how}", kind, source, how)
            return Accumulator((part,), lambda parts: parts[part.name], kind)
        case Combiner.COLLECT:
            none = f.array().cast(t.ArrayType(kind))
            return Accumulator((bag,), lambda parts: f.coalesce(_copies(parts[bag.name]), none), t.ArrayType(kind))
    raise AssertionError(combiner)


def _mean(total: SparkColumn, number: SparkColumn) -> SparkColumn:
    return f.when(number != 0, total.cast("double") / number)
