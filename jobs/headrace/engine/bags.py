"""Bags: values with their multiplicities in a map column (semantics 12.5), for combiners that need all values, or that
cannot take one back otherwise.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import functions as f

from headrace.engine.parts import Elements, Part, timed
from headrace.engine.types import SparkColumn


@dataclass(frozen=True)
class BagPart(Part):
    """Values with their multiplicities; a withdrawn value that has not come yet has a negative one. ``is_timed``: a
    value goes with its event time.
    """

    is_timed: bool = False

    def fold(self, elements: Elements) -> SparkColumn:
        value, sign = elements.value, elements.sign
        if self.is_timed:
            value = f.when(value.isNotNull(), timed(elements))
        if sign is None:
            return _runs(f.collect_list(value))
        added = _runs(f.collect_list(f.when(sign > 0, value)))
        return _pruned(_zip(added, _runs(f.collect_list(f.when(sign < 0, value))), lambda a, b: a - b))

    def merge(self, left: SparkColumn, right: SparkColumn) -> SparkColumn:
        return self._either(left, right, _pruned(_zip(left, right, lambda a, b: a + b)))

    def gather(self, part: SparkColumn) -> SparkColumn:
        nothing = f.map_from_arrays(f.array(), f.array()).cast(self.type)
        return _pruned(f.aggregate(f.collect_list(part), nothing, lambda a, b: _zip(a, b, lambda x, y: x + y)))

    def of(self, values: SparkColumn, times: SparkColumn | None) -> SparkColumn:
        if self.is_timed:
            assert times is not None
            values = f.zip_with(
                values, times, lambda value, at: f.when(value.isNotNull(), timed(Elements(value, at, None)))
            )
        return _runs(f.filter(values, lambda value: value.isNotNull()))


def _runs(values: SparkColumn) -> SparkColumn:
    """An array as a map from its distinct values to how often each is there, in O(n log n)."""

    def of(ordered: SparkColumn) -> SparkColumn:
        number = f.size(ordered)

        def begins(i: SparkColumn) -> SparkColumn:
            return (i == 1) | (f.element_at(ordered, i) != f.element_at(ordered, f.greatest(i - 1, f.lit(1))))

        starts = f.when(number > 0, f.filter(f.sequence(f.lit(1), number), begins)).otherwise(
            f.array().cast("array<int>")
        )
        ends = f.concat(f.slice(starts, 2, number), f.array(number + 1))
        keys = f.transform(starts, lambda i: f.element_at(ordered, i))
        counts = f.zip_with(starts, f.slice(ends, 1, f.size(starts)), lambda a, b: (b - a).cast("long"))
        return f.map_from_arrays(keys, counts)

    return once(f.array_sort(values), of)


def once(value: SparkColumn, use: Callable[[SparkColumn], SparkColumn]) -> SparkColumn:
    """``use`` of a value that is computed once, however often ``use`` names it: as the variable of a lambda."""
    return f.element_at(f.transform(f.array(value), use), 1)


def _zip(left: SparkColumn, right: SparkColumn, join: Callable[[SparkColumn, SparkColumn], SparkColumn]) -> SparkColumn:
    zero = f.lit(0).cast("long")
    return f.map_zip_with(left, right, lambda _, a, b: join(f.coalesce(a, zero), f.coalesce(b, zero)))


def _pruned(bag: SparkColumn) -> SparkColumn:
    return f.map_filter(bag, lambda _, times: times != 0)


def distinct_values(bag: SparkColumn) -> SparkColumn:
    """The distinct values of a bag that are there, sorted."""
    return f.array_sort(f.map_keys(f.map_filter(bag, lambda _, times: times > 0)))


def copies(bag: SparkColumn) -> SparkColumn:
    """The values of a bag as a sorted array, each as often as it is there."""
    there = f.map_entries(f.map_filter(bag, lambda _, times: times > 0))
    return f.array_sort(f.flatten(f.transform(there, lambda e: f.array_repeat(e["key"], e["value"].cast("int")))))


def variance(bag: SparkColumn) -> SparkColumn:
    """Population variance of the values of a bag, in two passes; multiplicities may be negative for a while."""
    entries = f.map_entries(bag)
    zero = f.lit(0.0)
    number = f.aggregate(entries, zero, lambda total, e: total + e["value"])
    mean = f.aggregate(entries, zero, lambda total, e: total + e["key"].cast("double") * e["value"]) / number

    def squares(mean: SparkColumn) -> SparkColumn:
        def add(total: SparkColumn, e: SparkColumn) -> SparkColumn:
            apart = e["key"].cast("double") - mean
            return total + apart * apart * e["value"]

        return f.aggregate(entries, zero, add)

    return f.when(number != 0, once(mean, squares) / number)
