"""What is stored of an aggregate: how elements become a part, and how several parts become one (semantics, section 8).

A part is a nullable column of a plain Arrow type, NULL its identity. Rows stand arranged by group (``Groups.order`` is
not looked at), those of one group in their order of arrival; a group may be empty. State and delta become one by
``gather`` over the rows of both.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.kernel.grouping import Groups, Ints, valid
from headrace.model.expressions.expr import Expr


@dataclass(frozen=True)
class Elements:
    """Elements of a bundle: the values that a part reads (None: it counts elements), event times in granules, and 1 or
    -1 for an element that is withdrawn (None: none can be).
    """

    value: pa.Array | None
    at: pa.Array
    sign: pa.Array | None

    def known(self, groups: Groups) -> "Known":
        """Elements whose value is not NULL."""
        assert self.value is not None
        value, sign = self.value, None if self.sign is None else self.sign.to_numpy()
        if not value.null_count:
            return Known(value, sign, Groups(groups.offsets), self.at)
        chosen = valid(value)
        sign = None if sign is None else sign[chosen]
        return Known(value.drop_null(), sign, groups.within(chosen), self.at, chosen)


@dataclass(frozen=True)
class Known:
    """Elements whose value is not NULL, arranged by ``groups``: the ``chosen`` ones (None: all)."""

    value: pa.Array
    sign: Ints | None
    groups: Groups
    all_times: pa.Array
    chosen: NDArray[np.bool_] | None = None

    @cached_property
    def at(self) -> pa.Array:
        """Their event times."""
        return self.all_times if self.chosen is None else self.all_times.filter(pa.array(self.chosen))

    @cached_property
    def timed(self) -> pa.Array:
        """Each value with its event time, which decides order."""
        return pa.StructArray.from_arrays([self.at, self.value], names=["at", "value"])


@dataclass(frozen=True)
class AccumulatorPart(ABC):
    """One stored column of an accumulator; ``input`` None counts elements instead of values. ``condenses``: of many
    elements it is smaller than they are.
    """

    condenses: ClassVar[bool] = True

    name: str
    type: pa.DataType
    input: Expr | None

    def fold(self, elements: Elements, groups: Groups) -> pa.Array:
        """The part that the elements of each group make; unless overridden, each value is a part."""
        return self.gathered(*groups.without_nulls(elements.value))

    def gather(self, parts: pa.Array, groups: Groups) -> pa.Array:
        """The parts of each group as one, in their order."""
        known, inner = groups.without_nulls(parts)
        if inner.sizes.max(initial=0) <= 1:
            return _spread(known, inner)
        return self.gathered(known, inner)

    @abstractmethod
    def gathered(self, parts: pa.Array, groups: Groups) -> pa.Array:
        """The same of parts that are not NULL."""


@dataclass(frozen=True)
class PlainPart(AccumulatorPart):
    """A part whose type its class says, ``STORED``."""

    STORED: ClassVar[pa.DataType]

    @classmethod
    def of(cls, name: str, value: Expr | None) -> Self:
        """A part of ``value``; None: of elements."""
        return cls(name, cls.STORED, value)


def nullable(values: NDArray[Any], groups: Groups, kind: pa.DataType | None = None) -> pa.Array:
    """A value for each group, NULL for those without rows."""
    empty = groups.sizes == 0
    return pa.array(values, kind, mask=empty if empty.any() else None)


def _spread(values: pa.Array, groups: Groups) -> pa.Array:
    """The one value of each group, NULL where there is none."""
    if len(values) == len(groups):
        return values
    return values.take(nullable(groups.offsets[:-1], groups))
