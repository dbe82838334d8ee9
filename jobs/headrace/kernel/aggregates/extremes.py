"""Smallest and largest values, also by event time, and the k largest, where no value can be withdrawn."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.kernel.aggregates.ordering import LAST, coded, sorted_codes
from headrace.kernel.aggregates.parts import AccumulatorPart, Elements, nullable
from headrace.kernel.grouping import Groups, Ints, to_lists


@dataclass(frozen=True)
class ExtremePart(AccumulatorPart):
    """The largest value, or the smallest."""

    is_largest: bool

    def fold(self, elements: Elements, groups: Groups) -> pa.Array:
        return self.gathered(*groups.without_nulls(elements.value))

    def gathered(self, parts: pa.Array, groups: Groups) -> pa.Array:
        return extreme(parts, groups, is_largest=self.is_largest)


def extreme(values: pa.Array, groups: Groups, *, is_largest: bool) -> pa.Array:
    """The largest or smallest value of each group, NULL of none; no value is NULL. NaN is largest, and -0.0 is 0.0."""
    if pa.types.is_floating(values.type):
        numbers = groups.reduce(np.maximum if is_largest else np.fmin, values.to_numpy(), 0.0)
        return nullable(numbers + 0.0, groups)
    codes = coded(values)
    return codes.values(_extreme(codes.codes, groups, is_largest), groups.sizes == 0)


@dataclass(frozen=True)
class TimedPart(AccumulatorPart):
    """The value of the latest event time, or of the earliest; of several the largest or smallest."""

    is_latest: bool

    def fold(self, elements: Elements, groups: Groups) -> pa.Array:
        known = elements.known(groups)
        return self._made(known.at, known.value, known.groups)

    def gathered(self, parts: pa.Array, groups: Groups) -> pa.Array:
        return self._made(parts.field(0), parts.field(1), groups)

    def _made(self, at: pa.Array, value: pa.Array, groups: Groups) -> pa.Array:
        times, coded_values = at.to_numpy(), coded(value)
        chosen = _extreme(times, groups, self.is_latest)
        others = -LAST - 1 if self.is_latest else LAST
        codes = np.where(times == np.repeat(chosen, groups.sizes), coded_values.codes, others)
        empty = groups.sizes == 0
        fields = [pa.array(chosen), coded_values.values(_extreme(codes, groups, self.is_latest), empty)]
        return pa.StructArray.from_arrays(fields, fields=list(self.type), mask=pa.array(empty))


def _extreme(codes: Ints, groups: Groups, is_largest: bool) -> Ints:
    return groups.reduce(np.maximum if is_largest else np.minimum, codes, 0)


@dataclass(frozen=True)
class TopPart(AccumulatorPart):
    """The k largest values, descending."""

    k: int

    def fold(self, elements: Elements, groups: Groups) -> pa.Array:
        return self._made(*groups.without_nulls(elements.value))

    def gathered(self, parts: pa.Array, groups: Groups) -> pa.Array:
        return self._made(*groups.flattened(parts))

    def _made(self, values: pa.Array, groups: Groups) -> pa.Array:
        coded_values = coded(values)
        top = Groups(np.append(0, np.cumsum(np.minimum(groups.sizes, self.k))))
        # the largest of a group stand at its end
        place = np.arange(top.offsets[-1]) - np.repeat(top.offsets[:-1], top.sizes)
        rows = np.repeat(groups.offsets[1:] - 1, top.sizes) - place
        return to_lists(coded_values.values(sorted_codes(coded_values.codes, groups)[rows]), top, empty_is_null=True)
