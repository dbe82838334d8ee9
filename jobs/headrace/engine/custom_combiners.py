"""A user's own combiner as a part of accumulators (semantics 8.1, 9.7), in Arrow batches."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, reduce

import pyarrow as pa
from pyspark.sql import functions as f
from pyspark.sql import types as t

from headrace.engine.parts import Elements, Part
from headrace.engine.types import SparkColumn
from headrace.engine.vectorised import from_own, own_type, to_own, vectorised
from headrace.kernel.types import own_arrow_type
from headrace.model.custom import check_fields, user_code
from headrace.model.custom_combiners import Accumulator, CustomCombiner
from headrace.model.expr import DataType


@dataclass(frozen=True)
class _InTasks:
    """What tasks do for ``combiner`` with a batch of rows. NULL stands for the accumulator of no values."""

    combiner: CustomCombiner

    def fold(self, values: pa.Array) -> pa.Array:
        with user_code(self.combiner, "add values"):
            return self._accumulators(self._add(None, several.values) for several in values)

    def fold_both(self, values: pa.Array, withdrawn: pa.Array) -> pa.Array:
        with user_code(self.combiner, "add and remove values"):
            pairs = zip(values, withdrawn, strict=True)
            return self._accumulators(self._remove(self._add(None, a.values), b.values) for a, b in pairs)

    def merge(self, left: pa.Array, right: pa.Array) -> pa.Array:
        with user_code(self.combiner, "merge accumulators"):
            pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
            return self._accumulators(self._merge(a, b) for a, b in pairs)

    def gather(self, accumulators: pa.Array) -> pa.Array:
        with user_code(self.combiner, "merge accumulators"):
            return self._accumulators(reduce(self._merge, several, None) for several in accumulators.to_pylist())

    def extract(self, accumulators: pa.Array) -> pa.Array:
        with user_code(self.combiner, "give a result"):
            return self._results(accumulators.to_pylist())

    def extract_of(self, values: pa.Array) -> pa.Array:
        with user_code(self.combiner, "give a result of values"):
            return self._results(self._add(None, several.values) for several in values)

    def _add(self, accumulator: Accumulator | None, values: pa.Array | None) -> Accumulator | None:
        if values is None or not len(values):
            return accumulator
        return self.combiner.add_all(self._known(accumulator), values)

    def _remove(self, accumulator: Accumulator | None, values: pa.Array | None) -> Accumulator | None:
        for value in [] if values is None else values.to_pylist():
            accumulator = self.combiner.remove(self._known(accumulator), value)
        return accumulator

    def _merge(self, left: Accumulator | None, right: Accumulator | None) -> Accumulator | None:
        if left is None or right is None:
            return right if left is None else left
        return self.combiner.merge(left, right)

    def _accumulators(self, found: Iterable[Accumulator | None]) -> pa.Array:
        types = self.combiner.accumulator_types
        rows = list(found)
        for row in rows:
            if row is not None:
                check_fields(self.combiner, "an accumulator", row, types)
        return pa.array(rows, pa.struct([(name, own_arrow_type(kind)) for name, kind in types.items()]))

    def _known(self, accumulator: Accumulator | None) -> Accumulator:
        return self.combiner.create() if accumulator is None else accumulator

    def _results(self, accumulators: Iterable[Accumulator | None]) -> pa.Array:
        found = [self.combiner.extract(self._known(accumulator)) for accumulator in accumulators]
        return pa.array(found, own_arrow_type(self.combiner.result_type))


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
    def in_tasks(self) -> _InTasks:
        """Functions over Arrow batches."""
        return _InTasks(self.combiner)

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
