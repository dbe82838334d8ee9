"""What is computed: aggregates (semantics, section 8). An aggregate names a combiner and the expression it reads.

NULL inputs are left out, as in SQL. An aggregate of nothing is its combiner's identity: 0 for those that count or sum,
an empty list for those that give lists, NULL for the others (semantics 5.1). Values are ordered as in SQL, with NaN
above every number. Integers compare exactly and a sum that leaves 64 bits is an error, never a wrap (semantics 12.4).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NoReturn

from headrace.errors import PipelineError
from headrace.model.custom_combiners import CustomCombiner, check_combiner, result_type
from headrace.model.expressions.expr import NUMERIC, DataType, Expr, Schema, render
from headrace.model.expressions.typing import type_of
from headrace.model.expressions.value_types import ListType, PairsType, ValueType
from headrace.model.suggestions import keywords


class Combiner(StrEnum):
    """The combiners of both executors; ``model.expressions.aggregate_methods`` says what each one means."""

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


def _refused(operator: str) -> Callable[..., NoReturn]:
    """An operator that no aggregate can have: an error that says what to write."""

    def refuse(self: "Aggregate", *_: object) -> NoReturn:
        mean = "for a mean write .mean(); otherwise " if operator == "/" else ""
        raise PipelineError(
            f"{operator} does not work on an aggregate ({self.describe()}): {mean}name it in what=, and compute with "
            'hr.col("its name") in a further aggregation (then=), or in the SQL of readers'
        )

    return refuse


@keywords
@dataclass(frozen=True)
class Aggregate:
    """``combiner`` over ``input``; ``input`` None (only for count) counts elements.

    ``k`` is how many values TOP keeps, ``q`` (0 to 1) which quantile QUANTILE gives; PAIRS pairs ``input`` with
    ``other``, and with NULL as ``outer`` says. ``custom`` is the combiner that a user wrote (CUSTOM).

    >>> what = {"worst": hr.col("delay").max(), "flights": hr.count()}
    >>> what["worst"].describe()
    'max of delay'
    """

    combiner: Combiner
    input: Expr | None = None
    k: int | None = None
    q: float | None = None
    other: Expr | None = None
    outer: Outer | None = None
    custom: CustomCombiner | None = None

    __add__ = __radd__ = _refused("+")
    __sub__ = __rsub__ = _refused("-")
    __mul__ = __rmul__ = _refused("*")
    __truediv__ = __rtruediv__ = _refused("/")
    __floordiv__ = __rfloordiv__ = _refused("//")
    __mod__ = __rmod__ = _refused("%")
    __neg__ = _refused("-")
    __lt__ = _refused("<")
    __le__ = _refused("<=")
    __gt__ = _refused(">")
    __ge__ = _refused(">=")

    def __post_init__(self) -> None:
        if self.combiner is Combiner.CUSTOM:
            check_combiner(self.custom)

    def describe(self) -> str:
        """The aggregate in words: ``sum of amount``."""
        return self.combiner.value + ("" if self.input is None else f" of {render(self.input)}")

    @property
    def invertible(self) -> bool:
        """Whether a value can be taken out of the accumulator again (semantics 9.7). The other combiners keep the bag
        of their values where retractions reach them (12.5)."""
        if self.custom is not None:
            return self.custom.invertible
        return self.combiner in _INVERTIBLE

    @property
    def inputs(self) -> tuple[Expr, ...]:
        """The expressions that it reads of each element."""
        return tuple(expr for expr in (self.input, self.other) if expr is not None)

    def output_type(self, schema: Schema) -> ValueType:
        """Type of the result over elements of ``schema``. Raises PipelineError if the input does not fit."""
        if self.combiner is Combiner.COUNT and self.input is None:
            return DataType.INT
        kind = self.input_type(schema)
        if self.custom is not None:
            return result_type(self.custom)
        if self.combiner is Combiner.PAIRS:
            return PairsType(kind, _type(self.combiner, self.other, schema))
        if self.combiner in _NUMERIC and kind not in NUMERIC:
            read = "" if self.input is None else render(self.input)
            raise PipelineError(f"{self.combiner}({read}) needs a number, found {kind}")
        if self.combiner in _COUNTING:
            return DataType.INT
        if self.combiner is Combiner.VARIANCE and kind is DataType.DECIMAL:
            raise PipelineError("the variance of decimals does not fit a decimal; cast them to float")
        if self.combiner in _FRACTIONAL:
            return kind if kind is DataType.DECIMAL else DataType.FLOAT
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


@keywords
def count() -> Aggregate:
    """Number of elements. ``col("v").count()`` is the number of those where ``v`` is not NULL.

    >>> hr.count().describe()
    'count'
    """
    return Aggregate(Combiner.COUNT)
