"""What is computed: aggregates (semantics, section 8). An aggregate names a combiner and the expression it reads.

NULL inputs are left out, as in SQL. An aggregate of nothing is its combiner's identity: 0 for those that count or sum,
an empty list for those that give lists, NULL for the others (semantics 5.1). Values are ordered as in SQL, with NaN
above every number. Integers compare exactly and a sum that leaves 64 bits is an error, never a wrap (semantics 12.4).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from headrace.errors import PipelineError
from headrace.model.custom_combiners import CustomCombiner, check_combiner
from headrace.model.expr import NUMERIC, DataType, Expr, Schema, render
from headrace.model.typing import type_of
from headrace.model.value_types import ListType, PairsType, ValueType


class Combiner(StrEnum):
    """The combiners of both executors; the functions below say what each one means."""

    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    MEAN = "mean"
    VARIANCE = "variance"
    FIRST = "first"
    LAST = "last"
    COLLECT = "collect"
    TOP = "top"
    DISTINCT = "distinct"
    APPROX_DISTINCT = "approx_distinct"
    QUANTILE = "quantile"
    PAIRS = "pairs"
    CUSTOM = "custom"


class Outer(StrEnum):
    """Which values without a partner a join keeps, paired with NULL."""

    NONE = "none"
    LEFT = "left"
    RIGHT = "right"
    BOTH = "both"


DISTINCT_ERROR = 0.05
"""An approximate distinct count is right to this relative error (an HLL sketch of 2^12 registers, three sigma)."""

RANK_ERROR = 0.02
"""An approximate quantile is a value whose rank is right to this part of all values (a KLL sketch with k = 200)."""

_INVERTIBLE = frozenset({Combiner.COUNT, Combiner.SUM, Combiner.MEAN, Combiner.VARIANCE})
_COUNTING = frozenset({Combiner.COUNT, Combiner.DISTINCT, Combiner.APPROX_DISTINCT})
_FRACTIONAL = frozenset({Combiner.MEAN, Combiner.VARIANCE})
_NUMERIC = frozenset({Combiner.SUM, Combiner.MEAN, Combiner.VARIANCE, Combiner.QUANTILE})
_LISTS = frozenset({Combiner.COLLECT, Combiner.TOP})


@dataclass(frozen=True)
class Aggregate:
    """``combiner`` over ``input``; ``input`` None (only for count) counts elements.

    ``k`` is how many values TOP keeps, ``q`` (0 to 1) which quantile QUANTILE gives; PAIRS pairs ``input`` with
    ``other``, and with NULL as ``outer`` says. ``custom`` is the combiner that a user wrote (CUSTOM).
    """

    combiner: Combiner
    input: Expr | None = None
    k: int | None = None
    q: float | None = None
    other: Expr | None = None
    outer: Outer | None = None
    custom: CustomCombiner | None = None

    def __post_init__(self) -> None:
        if self.combiner is Combiner.TOP and (self.k is None or self.k < 1):
            raise PipelineError(f"top_of keeps at least 1 value, not {self.k}")
        if self.combiner is Combiner.QUANTILE and (self.q is None or not 0 <= self.q <= 1):
            raise PipelineError(f"the q of quantile_of lies between 0 and 1, not at {self.q}")
        if self.combiner is Combiner.CUSTOM:
            check_combiner(self.custom)

    @property
    def invertible(self) -> bool:
        """Whether a value can be taken out of the accumulator again (semantics 9.7). The other combiners keep the bag
        of their values where retractions reach them (12.5)."""
        if self.custom is not None:
            return self.custom.invertible
        return self.combiner in _INVERTIBLE

    def output_type(self, schema: Schema) -> ValueType:
        """Type of the result over elements of ``schema``. Raises PipelineError if the input does not fit."""
        if self.combiner is Combiner.COUNT and self.input is None:
            return DataType.INT
        kind = self.input_type(schema)
        if self.custom is not None:
            return self.custom.result_type
        if self.combiner is Combiner.PAIRS:
            return PairsType(kind, _type(self.combiner, self.other, schema))
        if self.combiner in _NUMERIC and kind not in NUMERIC:
            read = "" if self.input is None else render(self.input)
            raise PipelineError(f"{self.combiner}({read}) needs a number, found {kind}")
        if self.combiner in _COUNTING:
            return DataType.INT
        if self.combiner in _FRACTIONAL:
            return DataType.FLOAT
        return ListType(kind) if self.combiner in _LISTS else kind

    def input_type(self, schema: Schema) -> DataType:
        """Type of the input expression over ``schema``."""
        return _type(self.combiner, self.input, schema)


def _type(combiner: Combiner, expr: Expr | None, schema: Schema) -> DataType:
    if expr is None:
        raise PipelineError(f"{combiner} needs an expression to read")
    kind = type_of(expr, schema)
    if kind is None:
        raise PipelineError(f"{combiner} of a bare NULL has no type; name a column")
    return kind


def readable_types(what: Mapping[str, Aggregate], schema: Schema) -> Schema:
    """Types of the results of ``what`` over elements of ``schema``, without the lists, which no expression reads."""
    kinds = {name: aggregate.output_type(schema) for name, aggregate in what.items()}
    return {name: kind for name, kind in kinds.items() if isinstance(kind, DataType)}


def count(value: Expr | None = None) -> Aggregate:
    """Number of elements, or of those where ``value`` is not NULL."""
    return Aggregate(Combiner.COUNT, value)


def sum_of(value: Expr) -> Aggregate:
    """Sum of ``value``."""
    return Aggregate(Combiner.SUM, value)


def min_of(value: Expr) -> Aggregate:
    """Smallest ``value``."""
    return Aggregate(Combiner.MIN, value)


def max_of(value: Expr) -> Aggregate:
    """Largest ``value``."""
    return Aggregate(Combiner.MAX, value)


def mean_of(value: Expr) -> Aggregate:
    """Arithmetic mean of ``value``, a float."""
    return Aggregate(Combiner.MEAN, value)


def variance_of(value: Expr) -> Aggregate:
    """Population variance of ``value`` (the mean square distance from the mean), a float."""
    return Aggregate(Combiner.VARIANCE, value)


def first_of(value: Expr) -> Aggregate:
    """The ``value`` of the earliest event time, in whatever order elements arrive; of several the smallest."""
    return Aggregate(Combiner.FIRST, value)


def last_of(value: Expr) -> Aggregate:
    """The ``value`` of the latest event time, in whatever order elements arrive; of several the largest."""
    return Aggregate(Combiner.LAST, value)


def collect_of(value: Expr) -> Aggregate:
    """Every ``value`` that is not NULL, as a sorted list: a bag, since the model promises no order (semantics 8.2)."""
    return Aggregate(Combiner.COLLECT, value)


def top_of(value: Expr, k: int) -> Aggregate:
    """The ``k`` largest of ``value`` as a list, largest first, equal ones as often as they came."""
    return Aggregate(Combiner.TOP, value, k=k)


def distinct_of(value: Expr) -> Aggregate:
    """How many different ``value`` there are, exactly."""
    return Aggregate(Combiner.DISTINCT, value)


def approx_distinct_of(value: Expr) -> Aggregate:
    """How many different ``value`` there are, to a relative error of ``DISTINCT_ERROR``, in bounded state."""
    return Aggregate(Combiner.APPROX_DISTINCT, value)


def quantile_of(value: Expr, q: float) -> Aggregate:
    """A ``value`` below or at which a part ``q`` (0 to 1) of all values lies, to a rank error of ``RANK_ERROR``.

    It is one of the values (nearest rank), so integers give an integer.
    """
    return Aggregate(Combiner.QUANTILE, value, q=q)


def pairs_of(left: Expr, right: Expr, outer: Outer | str = Outer.NONE) -> Aggregate:
    """Every ``left`` with every ``right`` of the key and window, as a sorted list of pairs: a windowed join (12.9).

    An element has the one or the other, NULL being no value: unite two inputs, give each a column of its own, and group
    by what they are joined on. ``outer`` keeps the values of a side whose other side is empty, paired with NULL.
    """
    return Aggregate(Combiner.PAIRS, left, other=right, outer=Outer(outer))


def custom_of(combiner: CustomCombiner, value: Expr) -> Aggregate:
    """``combiner``, one of your own, over every ``value`` that is not NULL."""
    return Aggregate(Combiner.CUSTOM, value, custom=combiner)
