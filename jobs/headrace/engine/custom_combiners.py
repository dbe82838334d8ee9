"""A user's own combiner as a part of accumulators (semantics 8.1, 9.7), in Arrow batches."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
from pyspark.sql import functions as f
from pyspark.sql import types as t

from headrace.engine.parts import Elements, Part
from headrace.engine.types import SparkColumn
from headrace.engine.vectorised import from_own, own_type, to_own, vectorised
from headrace.kernel.aggregates.custom import CombinerBatches
from headrace.model.custom_combiners import CustomCombiner
from headrace.model.expr import DataType


@dataclass(frozen=True)
class CombinerCalls:
    """The methods of ``combiner`` as columns; ``kind`` is the type of its values."""

    combiner: CustomCombiner
    kind: DataType

    @cached_property
    def type(self) -> t.StructType:
        """The type of a stored accumulator."""
        return t.StructType([t.StructField(n, own_type(k)) for n, k in self.combiner.accumulator_types.items()])

    def accumulator(self, function: Callable[..., pa.Array], *columns: SparkColumn) -> SparkColumn:
        """The accumulators that a function of ``in_tasks`` makes."""
        return vectorised(self.combiner, function, self.type)(*columns)

    @property
    def in_tasks(self) -> CombinerBatches:
        """Functions over Arrow batches."""
        return CombinerBatches(self.combiner)

    def extract(self, accumulator: SparkColumn) -> SparkColumn:
        """The result of an accumulator."""
        return self._result(self.in_tasks.extract, accumulator)

    def extract_of(self, values: SparkColumn) -> SparkColumn:
        """The result of an array of values."""
        return self._result(self.in_tasks.extract_of, f.transform(values, lambda value: to_own(value, self.kind)))

    def _result(self, function: Callable[..., pa.Array], column: SparkColumn) -> SparkColumn:
        kind = self.combiner.result_type
        return from_own(vectorised(self.combiner, function, own_type(kind))(column), kind)


@dataclass(frozen=True)
class CustomPart(Part):
    """A user's own accumulator. It takes values back if the combiner does."""

    calls: CombinerCalls

    def fold(self, elements: Elements) -> SparkColumn:
        calls, sign = self.calls, elements.sign
        value = to_own(elements.value, calls.kind)
        if sign is None:
            return calls.accumulator(calls.in_tasks.fold, f.collect_list(value))
        came, went = (f.collect_list(f.when(one, value)) for one in (sign > 0, sign < 0))
        return calls.accumulator(calls.in_tasks.fold_both, came, went)

    def merge(self, left: SparkColumn, right: SparkColumn) -> SparkColumn:
        return self.calls.accumulator(self.calls.in_tasks.merge, left, right)

    def gather(self, part: SparkColumn) -> SparkColumn:
        return self.calls.accumulator(self.calls.in_tasks.gather, f.collect_list(part))

    def of(self, values: SparkColumn, times: SparkColumn | None) -> SparkColumn:
        known = f.filter(values, lambda value: value.isNotNull())
        own = f.transform(known, lambda value: to_own(value, self.calls.kind))
        return self.calls.accumulator(self.calls.in_tasks.fold, own)
