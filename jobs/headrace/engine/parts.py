"""Stored columns of accumulators: how elements become a part, how two parts become one (semantics, section 8).

A part is a nullable column, NULL its identity, so that merging needs no special case for absent sides. Everything is a
Spark expression: no Python sees a value.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum

from pyspark.sql import functions as f
from pyspark.sql import types as t

from headrace.engine.types import SparkColumn
from headrace.model.expr import Expr


@dataclass(frozen=True)
class Elements:
    """Columns of the elements of a bundle: the values that a part reads, event times (granules), and 1 or -1 for an
    element that is withdrawn (None: none can be).
    """

    value: SparkColumn
    at: SparkColumn
    sign: SparkColumn | None


@dataclass(frozen=True)
class Part(ABC):
    """One stored column of an accumulator; ``input`` None counts elements instead of values."""

    name: str
    type: t.DataType
    input: Expr | None

    @abstractmethod
    def fold(self, elements: Elements) -> SparkColumn:
        """The aggregate function that makes one part of elements."""

    @abstractmethod
    def merge(self, left: SparkColumn, right: SparkColumn) -> SparkColumn:
        """Two parts as one."""

    @abstractmethod
    def gather(self, part: SparkColumn) -> SparkColumn:
        """The aggregate function that makes one part of several."""

    def of(self, values: SparkColumn, times: SparkColumn | None) -> SparkColumn:
        """The part that an array of values makes (of elements, if it counts these), with an array of their event times
        if there are such parts. Only those parts are asked that ``keep_last`` needs: bags and what they cannot give.
        """
        raise AssertionError(self)

    def _either(self, left: SparkColumn, right: SparkColumn, both: SparkColumn) -> SparkColumn:
        return f.when(left.isNull(), right).when(right.isNull(), left).otherwise(both)


class Fold(StrEnum):
    """How values become one value that is no larger."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"
    COUNT = "count"


@dataclass(frozen=True)
class FoldPart(Part):
    """A sum, smallest or largest value, or a count. Sums and counts take values back."""

    how: Fold

    def fold(self, elements: Elements) -> SparkColumn:
        value, sign = elements.value, elements.sign
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
        return f.coalesce((left + right).cast(self.type), left, right)

    def gather(self, part: SparkColumn) -> SparkColumn:
        functions = {Fold.SUM: f.sum, Fold.COUNT: f.sum, Fold.MIN: f.min, Fold.MAX: f.max}
        return functions[self.how](part).cast(self.type)

    def of(self, values: SparkColumn, times: SparkColumn | None) -> SparkColumn:
        match self.how:
            case Fold.COUNT:
                return f.size(f.filter(values, lambda value: value.isNotNull())).cast(self.type)
            case Fold.SUM:
                typed = f.transform(values, lambda value: value.cast(self.type))
                return f.aggregate(typed, f.lit(None).cast(self.type), self.merge)
            case Fold.MIN:
                return f.array_min(values)
            case Fold.MAX:
                return f.array_max(values)


@dataclass(frozen=True)
class SquaresPart(FoldPart):
    """The sum of the squares of integers, exact in decimals."""

    def of(self, values: SparkColumn, times: SparkColumn | None) -> SparkColumn:
        return super().of(f.transform(values, lambda value: value.cast(self.type) * value.cast(self.type)), times)

    def fold(self, elements: Elements) -> SparkColumn:
        value = elements.value.cast(self.type)
        square = value * value if elements.sign is None else value * value * elements.sign.cast("decimal(1,0)")
        return f.sum(square.cast(self.type)).cast(self.type)


@dataclass(frozen=True)
class MomentsPart(Part):
    """Number, mean and sum of squared distances from the mean of floats (Chan, Golub and LeVeque, 1979): merging them
    loses no precision where the mean is large and the variance small.
    """

    def fold(self, elements: Elements) -> SparkColumn:
        value = elements.value
        number = f.count(value)
        moments = f.struct(number.alias("n"), f.avg(value).alias("mean"), (f.var_pop(value) * number).alias("m2"))
        return f.when(number > 0, moments)

    def merge(self, left: SparkColumn, right: SparkColumn) -> SparkColumn:
        n = left["n"] + right["n"]
        apart = right["mean"] - left["mean"]
        mean = left["mean"] + apart * right["n"] / n
        m2 = left["m2"] + right["m2"] + apart * apart * left["n"] * right["n"] / n
        return self._either(left, right, f.struct(n.alias("n"), mean.alias("mean"), m2.alias("m2")))

    def gather(self, part: SparkColumn) -> SparkColumn:
        return f.aggregate(f.collect_list(part), f.lit(None).cast(self.type), self.merge)


@dataclass(frozen=True)
class TimedPart(Part):
    """The value of the earliest or latest event time; of several the smallest or largest."""

    earliest: bool

    def fold(self, elements: Elements) -> SparkColumn:
        return self._pick(f.when(elements.value.isNotNull(), timed(elements)))

    def merge(self, left: SparkColumn, right: SparkColumn) -> SparkColumn:
        return f.least(left, right) if self.earliest else f.greatest(left, right)

    def gather(self, part: SparkColumn) -> SparkColumn:
        return self._pick(part)

    def _pick(self, part: SparkColumn) -> SparkColumn:
        return f.min(part) if self.earliest else f.max(part)


def timed(elements: Elements) -> SparkColumn:
    """A value with its event time, which decides order."""
    return f.struct(elements.at.alias("at"), elements.value.alias("value"))


@dataclass(frozen=True)
class TopPart(Part):
    """The k largest values, descending."""

    k: int

    def fold(self, elements: Elements) -> SparkColumn:
        return self._largest(f.collect_list(elements.value))

    def merge(self, left: SparkColumn, right: SparkColumn) -> SparkColumn:
        return self._either(left, right, self._largest(f.concat(left, right)))

    def gather(self, part: SparkColumn) -> SparkColumn:
        return self._largest(f.flatten(f.collect_list(part)))

    def _largest(self, values: SparkColumn) -> SparkColumn:
        return f.slice(f.sort_array(values, asc=False), 1, self.k)


@dataclass(frozen=True)
class DistinctSketchPart(Part):
    """An HLL sketch of 2^12 registers."""

    def fold(self, elements: Elements) -> SparkColumn:
        return f.hll_sketch_agg(elements.value.cast("string"), f.lit(12))

    def merge(self, left: SparkColumn, right: SparkColumn) -> SparkColumn:
        return self._either(left, right, f.hll_union(left, right))

    def gather(self, part: SparkColumn) -> SparkColumn:
        return f.hll_union_agg(part)


@dataclass(frozen=True)
class QuantileSketchPart(Part):
    """A KLL sketch with k = 200."""

    integer: bool

    def fold(self, elements: Elements) -> SparkColumn:
        sketch = f.kll_sketch_agg_bigint if self.integer else f.kll_sketch_agg_double
        return f.when(f.count(elements.value) > 0, sketch(elements.value, f.lit(200)))

    def merge(self, left: SparkColumn, right: SparkColumn) -> SparkColumn:
        both = f.kll_sketch_merge_bigint if self.integer else f.kll_sketch_merge_double
        return self._either(left, right, both(left, right))

    def gather(self, part: SparkColumn) -> SparkColumn:
        merge = f.kll_merge_agg_bigint if self.integer else f.kll_merge_agg_double
        return f.when(f.count(part) > 0, merge(part))
