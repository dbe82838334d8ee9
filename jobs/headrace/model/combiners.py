"""What is computed: aggregates (semantics, section 8). An aggregate names a combiner and the expression it reads.

NULL inputs are left out, as in SQL. An aggregate of nothing is its combiner's identity: 0 for ``count`` and ``sum``,
NULL for the others (semantics 5.1).
Integers compare exactly and a sum that leaves 64 bits is an error, never a wrap (semantics 12.4).
"""

from dataclasses import dataclass
from enum import StrEnum

from headrace.errors import PipelineError
from headrace.model.expr import NUMERIC, DataType, Expr, Schema, render
from headrace.model.typing import type_of


class Combiner(StrEnum):
    """The combiners of both executors."""

    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    MEAN = "mean"
    COLLECT = "collect"


@dataclass(frozen=True)
class ListType:
    """The type of a pane value that is a list; no expression reads it."""

    item: DataType


ValueType = DataType | ListType


@dataclass(frozen=True)
class Aggregate:
    """``combiner`` over ``input``; ``input`` None (only for count) counts elements."""

    combiner: Combiner
    input: Expr | None = None

    def output_type(self, schema: Schema) -> ValueType:
        """Type of the result over elements of ``schema``. Raises PipelineError if the input does not fit."""
        if self.combiner is Combiner.COUNT:
            if self.input is not None:
                type_of(self.input, schema)
            return DataType.INT
        kind = self.input_type(schema)
        if self.combiner in (Combiner.SUM, Combiner.MEAN) and kind not in NUMERIC:
            raise PipelineError(f"{self.combiner}({render(self._input)}) needs a number, found {kind}")
        if self.combiner is Combiner.COLLECT:
            return ListType(kind)
        return DataType.FLOAT if self.combiner is Combiner.MEAN else kind

    def input_type(self, schema: Schema) -> DataType:
        """Type of the input expression over ``schema``."""
        kind = type_of(self._input, schema)
        if kind is None:
            raise PipelineError(f"{self.combiner} of a bare NULL has no type; name a column")
        return kind

    @property
    def _input(self) -> Expr:
        if self.input is None:
            raise PipelineError(f"{self.combiner} needs an expression to read")
        return self.input


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


def collect_of(value: Expr) -> Aggregate:
    """Every ``value`` that is not NULL, as a sorted list: a bag, since the model promises no order (semantics 8.2)."""
    return Aggregate(Combiner.COLLECT, value)
