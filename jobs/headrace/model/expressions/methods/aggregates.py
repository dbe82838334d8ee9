"""The aggregates of an expression, as its methods: ``col("delay").max()`` (semantics, section 8).

NULL values are left out, as in SQL.
"""

from typing import TYPE_CHECKING, Any, cast

from headrace.model.arguments import Arguments
from headrace.model.combiners import Aggregate, Combiner, Outer
from headrace.model.custom_combiners import CustomCombiner
from headrace.model.suggestions import as_expression, method_keywords

if TYPE_CHECKING:
    from headrace.model.expressions.expr import Expr


@method_keywords
class Aggregations:
    """What every expression can be asked for over the elements of a key and window."""

    def count(self) -> Aggregate:
        """How many values there are."""
        return _aggregate(self, Combiner.COUNT)

    def sum(self) -> Aggregate:
        """The sum of the values; 0 if there are none. A sum that leaves its type (64 bits, 38 digits) is an error."""
        return _aggregate(self, Combiner.SUM)

    def min(self) -> Aggregate:
        """The smallest value."""
        return _aggregate(self, Combiner.MIN)

    def max(self) -> Aggregate:
        """The largest value."""
        return _aggregate(self, Combiner.MAX)

    def mean(self) -> Aggregate:
        """The arithmetic mean, a float; of decimals a decimal, rounded half to even."""
        return _aggregate(self, Combiner.MEAN)

    def variance(self) -> Aggregate:
        """The population variance (the mean square distance from the mean), a float."""
        return _aggregate(self, Combiner.VARIANCE)

    def first(self) -> Aggregate:
        """The value of the earliest event time, in whatever order elements arrive; of several the smallest."""
        return _aggregate(self, Combiner.FIRST)

    def last(self) -> Aggregate:
        """The value of the latest event time, in whatever order elements arrive; of several the largest."""
        return _aggregate(self, Combiner.LAST)

    def collect(self) -> Aggregate:
        """Every value, as a sorted list: a bag, since the model promises no order (semantics 8.2)."""
        return _aggregate(self, Combiner.COLLECT)

    def top(self, k: int) -> Aggregate:
        """The ``k`` largest values as a list, largest first, equal ones as often as they came."""
        return _aggregate(self, Combiner.TOP, k=Arguments("top").whole("k", k, least=1))

    def distinct(self) -> Aggregate:
        """How many different values there are, exactly."""
        return _aggregate(self, Combiner.DISTINCT)

    def approx_distinct(self) -> Aggregate:
        """How many different values there are, to a relative error of 5 %, in bounded state."""
        return _aggregate(self, Combiner.APPROX_DISTINCT)

    def quantile(self, q: float) -> Aggregate:
        """A value at or below which a part ``q`` (0 to 1) of all values lies, to a rank error of 2 %.

        It is one of the values (nearest rank), so integers give an integer.
        """
        return _aggregate(self, Combiner.QUANTILE, q=Arguments("quantile").number("q", q, most=1))

    def pairs(self, other: "Expr", outer: Outer | str = "none") -> Aggregate:
        """Every value with every value of ``other`` of the key and window, as a sorted list of pairs: a windowed join
        (semantics 12.9).

        An element has the one or the other, and NULL does not count as a value: unite two inputs, give each a
        column of its own, and group by what they are joined on. ``outer`` ("left", "right", "both") keeps the values
        of a side whose other side is empty, paired with NULL.
        """
        given = Arguments("pairs")
        if not isinstance(other, Aggregations):
            raise given.wrong("other", other, f"not an expression; write {as_expression(other)}")
        return _aggregate(self, Combiner.PAIRS, other=other, outer=given.choice("outer", outer, Outer))

    def combine(self, combiner: CustomCombiner) -> Aggregate:
        """``combiner``, an object of your own class, over every value."""
        given = Arguments("combine")
        write = "an object of your own: subclass CustomCombiner as a frozen dataclass"
        custom = given.instance("combiner", combiner, CustomCombiner, write)  # type: ignore[type-abstract]
        return _aggregate(self, Combiner.CUSTOM, custom=custom)


def _aggregate(value: Aggregations, combiner: Combiner, **options: Any) -> Aggregate:
    return Aggregate(combiner, cast("Expr", value), **options)
