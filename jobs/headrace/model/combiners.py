"""Combiners, built in and users' own, and what is so of each on every executor (semantics 8, 9.7).

NULL inputs are left out, as in SQL. The identity of a combiner is what it gives of nothing (semantics 5.1). It is 0 for
those that count or sum, an empty list for those that give lists, NULL for the others. Values are ordered as in SQL,
with NaN above every number. Integers compare exactly and a sum that leaves 64 bits is an error, never a wrap (semantics
12.4).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from headrace.errors import PipelineError
from headrace.model import arguments
from headrace.model.expressions.data_types import DataType, ListType, StoredType, stored_type

Accumulator = Mapping[str, Any]
"""A value for each field of ``CustomCombiner.accumulator_types``."""


class CustomCombiner(ABC):
    """A user's own combiner: subclass it as a frozen dataclass, and use it as ``col("v").combine(Spread())``.

    Its methods are pure functions of their arguments and the fields; they return a new accumulator. Accumulators hold
    plain values (int, float, str, bool, date, bytes, Decimal, Instants for timestamps), lists of these, or None. A
    result may depend neither on the order of values nor on how they were split into accumulators (8.3). They are
    never given NULL.

    >>> @dataclass(frozen=True)
    ... class Product(hr.CustomCombiner):
    ...     accumulator_types = {"product": int}
    ...     result_type = int
    ...     def create(self):
    ...         return {"product": 1}
    ...     def add(self, accumulator, value):
    ...         return {"product": accumulator["product"] * value}
    ...     def merge(self, left, right):
    ...         return {"product": left["product"] * right["product"]}
    ...     def extract(self, accumulator):
    ...         return accumulator["product"]
    >>> hr.col("v").combine(Product()).custom
    Product()
    """

    @property
    @abstractmethod
    def accumulator_types(self) -> Mapping[str, StoredType]:
        """Names and types of the fields of an accumulator: ``{"total": int, "seen": list[str]}``."""

    @property
    @abstractmethod
    def result_type(self) -> StoredType:
        """Type of what ``extract`` gives."""

    @abstractmethod
    def create(self) -> Accumulator:
        """The accumulator for no values."""

    @abstractmethod
    def add(self, accumulator: Accumulator, value: Any) -> Accumulator:
        """``accumulator`` with one more ``value``."""

    @abstractmethod
    def merge(self, left: Accumulator, right: Accumulator) -> Accumulator:
        """The accumulator of the values of both ``left`` and ``right``."""

    @abstractmethod
    def extract(self, accumulator: Accumulator) -> Any:
        """The result of ``accumulator``; None is NULL. It is also asked for no values, when a pane is empty."""

    def remove(self, accumulator: Accumulator, value: Any) -> Accumulator:
        """``accumulator`` without ``value``: ``remove(add(a, v), v)`` is ``a``. Leave it out if that cannot be; then
        all values of a window are kept where retractions reach it (12.5).

        What is removed may not have come yet (9.7): ``add`` and ``merge`` then settle it.
        """
        raise NotImplementedError

    def add_all(self, accumulator: Accumulator, values: Any) -> Accumulator:
        """``accumulator`` with all of ``values``, a pyarrow array without NULLs (timestamps are integers).

        It adds one after another; a subclass may do it at once, with the same result.
        """
        for value in values.to_pylist():
            accumulator = self.add(accumulator, value)
        return accumulator

    @property
    def invertible(self) -> bool:
        """Whether it has a ``remove``."""
        return type(self).remove is not CustomCombiner.remove


def check_combiner(combiner: object) -> None:
    """Raise PipelineError if ``combiner`` is not one that executors can run."""
    if not isinstance(combiner, CustomCombiner):
        raise PipelineError(
            f"{combiner!r} is not a combiner of your own; subclass CustomCombiner as a frozen dataclass"
        )
    arguments.check_frozen(combiner)
    types = accumulator_types(combiner)
    if not types:
        raise PipelineError(f"{combiner!r} declares no field of its accumulator; it needs at least one")
    result_type(combiner)
    with arguments.user_code(combiner, "give a result for no values"):
        empty = combiner.create()
        arguments.check_fields(combiner, "an accumulator", empty, types)
        combiner.extract(empty)


def accumulator_types(combiner: CustomCombiner) -> dict[str, DataType | ListType]:
    """The types that it declares for its accumulator. Raises PipelineError."""
    call_arguments = arguments.Arguments(type(combiner).__name__)
    types = combiner.accumulator_types
    return {name: stored_type(call_arguments, f"accumulator_types[{name!r}]", kind) for name, kind in types.items()}


def result_type(combiner: CustomCombiner) -> DataType | ListType:
    """The type that it declares for its result. Raises PipelineError."""
    return stored_type(arguments.Arguments(type(combiner).__name__), "result_type", combiner.result_type)


class Combiner(StrEnum):
    """The combiners of both executors; ``model.expressions.methods.aggregates`` says what each one means."""

    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    MEAN = "mean"
    VARIANCE = "variance"
    FIRST = "first"
    LAST = "last"
    MAX_BY = "max_by"
    MIN_BY = "min_by"
    BOOL_AND = "bool_and"
    BOOL_OR = "bool_or"
    MODE = "mode"
    QUANTILES = "quantiles"
    LIST_AGG = "list_agg"
    MAP_AGG = "map_agg"
    COLLECT = "collect"
    TOP = "top"
    DISTINCT_SKETCH = "distinct_sketch"
    QUANTILE_SKETCH = "quantile_sketch"
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


class ResultType(StrEnum):
    """The type of what a combiner gives, beside that of its input."""

    INT = "int"
    BYTES = "bytes"
    INPUT = "that of the input"
    FRACTION = "float, or decimal of decimals"
    FLOAT = "float, and not of decimals"
    LIST = "a list of the input"
    PAIRS = "a list of pairs of two inputs"
    DECLARED = "what the user's combiner declares"


class CombinerTraits(NamedTuple):
    """What is so of a combiner on every executor. ``gives``: the type of its result; ``numeric``: it takes numbers
    alone; ``boolean``: booleans alone; ``takes_nested``: structs, maps and lists, too; ``takes_nested_other``: so does
    its ``other``; ``invertible``: a value can be taken out of its accumulator again (semantics 9.7); ``timed``: it
    looks at the event times of values; ``options``: fields of ``Aggregate`` that it needs besides its input.
    """

    gives: ResultType
    numeric: bool = False
    invertible: bool = False
    timed: bool = False
    options: tuple[str, ...] = ()
    boolean: bool = False
    takes_nested: bool = False
    takes_nested_other: bool = False


TRAITS: Mapping[Combiner, CombinerTraits] = {
    Combiner.COUNT: CombinerTraits(ResultType.INT, invertible=True, takes_nested=True),
    Combiner.SUM: CombinerTraits(ResultType.INPUT, numeric=True, invertible=True),
    Combiner.MIN: CombinerTraits(ResultType.INPUT),
    Combiner.MAX: CombinerTraits(ResultType.INPUT),
    Combiner.MEAN: CombinerTraits(ResultType.FRACTION, numeric=True, invertible=True),
    Combiner.VARIANCE: CombinerTraits(ResultType.FLOAT, numeric=True, invertible=True),
    Combiner.FIRST: CombinerTraits(ResultType.INPUT, timed=True, takes_nested=True),
    Combiner.LAST: CombinerTraits(ResultType.INPUT, timed=True, takes_nested=True),
    Combiner.MAX_BY: CombinerTraits(ResultType.INPUT, options=("other",), takes_nested=True),
    Combiner.MIN_BY: CombinerTraits(ResultType.INPUT, options=("other",), takes_nested=True),
    Combiner.BOOL_AND: CombinerTraits(ResultType.INPUT, boolean=True),
    Combiner.BOOL_OR: CombinerTraits(ResultType.INPUT, boolean=True),
    Combiner.MODE: CombinerTraits(ResultType.INPUT, takes_nested=True),
    Combiner.QUANTILES: CombinerTraits(ResultType.LIST, numeric=True, options=("qs",)),
    Combiner.LIST_AGG: CombinerTraits(ResultType.LIST, options=("other", "k"), takes_nested=True),
    Combiner.MAP_AGG: CombinerTraits(ResultType.PAIRS, options=("other",), takes_nested_other=True),
    Combiner.COLLECT: CombinerTraits(ResultType.LIST, takes_nested=True),
    Combiner.TOP: CombinerTraits(ResultType.LIST, options=("k",)),
    Combiner.DISTINCT_SKETCH: CombinerTraits(ResultType.BYTES),
    Combiner.QUANTILE_SKETCH: CombinerTraits(ResultType.BYTES, numeric=True),
    Combiner.DISTINCT: CombinerTraits(ResultType.INT, takes_nested=True),
    Combiner.APPROX_DISTINCT: CombinerTraits(ResultType.INT),
    Combiner.QUANTILE: CombinerTraits(ResultType.INPUT, numeric=True, options=("q",)),
    Combiner.PAIRS: CombinerTraits(
        ResultType.PAIRS, options=("other", "outer"), takes_nested=True, takes_nested_other=True
    ),
    Combiner.CUSTOM: CombinerTraits(ResultType.DECLARED, options=("custom",)),
}
"""All combiners; the word of each in fingerprints and conformance cases is its value."""


BY_ANOTHER = frozenset({Combiner.MAX_BY, Combiner.MIN_BY, Combiner.LIST_AGG})
"""Combiners whose values are in the order of another expression; an element that lacks either is left out."""
