"""A user's own combiner (semantics 8.1, 9.7)."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from headrace.errors import PipelineError
from headrace.model.arguments import Arguments
from headrace.model.custom import check_fields, check_frozen, user_code
from headrace.model.expressions.data_types import DataType
from headrace.model.expressions.value_types import ListType, StoredType, stored_type

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
        """The accumulator of the values of both."""

    @abstractmethod
    def extract(self, accumulator: Accumulator) -> Any:
        """The result; None is NULL. It is also asked for no values, when a pane is empty."""

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
    check_frozen(combiner)
    types = accumulator_types(combiner)
    if not types:
        raise PipelineError(f"{combiner!r} declares no field of its accumulator; it needs at least one")
    result_type(combiner)
    with user_code(combiner, "give a result for no values"):
        empty = combiner.create()
        check_fields(combiner, "an accumulator", empty, types)
        combiner.extract(empty)


def accumulator_types(combiner: CustomCombiner) -> dict[str, DataType | ListType]:
    """The types that it declares for its accumulator. Raises PipelineError."""
    given = Arguments(type(combiner).__name__)
    types = combiner.accumulator_types
    return {name: stored_type(given, f"accumulator_types[{name!r}]", kind) for name, kind in types.items()}


def result_type(combiner: CustomCombiner) -> DataType | ListType:
    """The type that it declares for its result. Raises PipelineError."""
    return stored_type(Arguments(type(combiner).__name__), "result_type", combiner.result_type)
