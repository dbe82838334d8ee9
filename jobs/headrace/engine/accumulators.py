"""Aggregates as columns: what an accumulator stores, how two merge, and what it yields (semantics, section 8).

An accumulator is one or two nullable columns; NULL is the identity, so merging needs no special case for absent sides.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from headrace.model.combiners import Aggregate, Combiner
from headrace.model.expr import Column, DataType, Expr, Literal, Schema, coalesce, greatest, least


class Fold(StrEnum):
    """How inputs (and parts of several accumulators) become one part."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"
    COUNT = "count"  # counts inputs; its parts are summed


@dataclass(frozen=True)
class Part:
    """One stored column of an accumulator; ``input`` None counts elements instead of values."""

    name: str
    type: DataType
    fold: Fold
    input: Expr | None

    def merge(self, left: Expr, right: Expr) -> Expr:
        """Two partial values as one; NULL is the identity."""
        if self.fold is Fold.MIN:
            return least(left, right)
        if self.fold is Fold.MAX:
            return greatest(left, right)
        return coalesce(left + right, left, right)


@dataclass(frozen=True)
class Accumulator:
    """The stored parts of one aggregate and its result over them."""

    parts: tuple[Part, ...]
    result: Expr
    result_type: DataType


def compile_aggregates(what: Mapping[str, Aggregate], schema: Schema) -> dict[str, Accumulator]:
    """Accumulators by aggregate name, their parts named ``_a{i}_{fold}``."""
    return {name: _compile(f"_a{i}", aggregate, schema) for i, (name, aggregate) in enumerate(what.items())}


def _compile(prefix: str, aggregate: Aggregate, schema: Schema) -> Accumulator:
    kind = aggregate.output_type(schema)
    source = aggregate.input
    match aggregate.combiner:
        case Combiner.COUNT:
            part = Part(f"{prefix}_count", DataType.INT, Fold.COUNT, source)
            return Accumulator((part,), coalesce(Column(part.name), 0), kind)
        case Combiner.SUM:
            part = Part(f"{prefix}_sum", kind, Fold.SUM, source)
            zero = Literal(0.0) if kind is DataType.FLOAT else Literal(0)
            return Accumulator((part,), coalesce(Column(part.name), zero), kind)
        case Combiner.MIN | Combiner.MAX:
            fold = Fold.MIN if aggregate.combiner is Combiner.MIN else Fold.MAX
            part = Part(f"{prefix}_{fold}", kind, fold, source)
            return Accumulator((part,), Column(part.name), kind)
        case Combiner.MEAN:
            total = Part(f"{prefix}_sum", aggregate.input_type(schema), Fold.SUM, source)
            number = Part(f"{prefix}_count", DataType.INT, Fold.COUNT, source)
            return Accumulator((total, number), Column(total.name) / Column(number.name), kind)
    raise AssertionError(aggregate.combiner)
