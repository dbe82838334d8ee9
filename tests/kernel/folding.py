"""What the kernel and the reference make of the same elements, for the tests of aggregates."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.errors import ValueOverflowError
from headrace.kernel.aggregates.accumulators import Accumulator, compile_aggregates
from headrace.kernel.aggregates.sums import AccumulatorPart, Elements
from headrace.kernel.columns import ARROW_TYPES, TIMESTAMP, Groups, of_ids
from headrace.kernel.expressions.evaluation import evaluate_column
from headrace.model.expressions.data_types import DataType
from headrace.model.expressions.expr import Aggregate
from headrace.model.expressions.typing import columns_of, input_type
from headrace.model.time import Instant, to_instant
from headrace_lab.reference import Contents, combine
from headrace_lab.reference import read as kept

SCHEMA = {
    "i": DataType.INT,
    "x": DataType.FLOAT,
    "s": DataType.STRING,
    "b": DataType.BOOL,
    "t": DataType.TIMESTAMP,
    "d": DataType.DATE,
    "y": DataType.BYTES,
    "m": DataType.DECIMAL,
    "j": DataType.INT,
}


@dataclass(frozen=True)
class Row:
    """An element: its group, columns, event time and sign."""

    group: int
    record: Mapping[str, Any]
    at: int = 0
    sign: int = 1


def expected(aggregate: Aggregate, rows: Sequence[Row], groups: int) -> list[Any]:
    """What the reference makes of each group: a value, or an error."""
    contents = [Contents() for _ in range(groups)]
    for row in rows:
        contents[row.group].add(kept(aggregate, row.record, SCHEMA, Instant(row.at)), row.sign)
    return [_combine_reference(aggregate, one) for one in contents]


def _combine_reference(aggregate: Aggregate, contents: Contents) -> Any:
    try:
        kind = None if aggregate.input is None else input_type(aggregate, SCHEMA)
        return combine(aggregate, contents.net, kind)
    except ValueOverflowError as error:
        return error


def accumulator(aggregate: Aggregate, *, withdrawable: bool = False, all_kept: bool = False) -> Accumulator:
    """The accumulator of one aggregate."""
    return compile_aggregates({"v": aggregate}, SCHEMA, withdrawable=withdrawable, all_kept=all_kept)["v"]


def elements(part: AccumulatorPart, rows: Sequence[Row], groups: int, *, withdrawable: bool) -> tuple[Elements, Groups]:
    """Elements for ``part``, arranged."""
    arranged_rows = sorted(rows, key=lambda row: row.group)
    value = None
    if part.input is not None:
        read = {name: _column(name, arranged_rows) for name in columns_of(part.input)}
        value = evaluate_column(part.input, read, SCHEMA, len(arranged_rows))
    times = pa.array([row.at for row in arranged_rows], pa.int64())
    sign = pa.array([row.sign for row in arranged_rows], pa.int64()) if withdrawable else None
    return Elements(value, times, sign), of_ids(np.array([row.group for row in arranged_rows], np.int64), groups)


def _column(name: str, rows: Sequence[Row]) -> pa.Array:
    kind = ARROW_TYPES[SCHEMA[name]]
    values = [row.record.get(name) for row in rows]
    return pa.array(values, pa.int64()).cast(kind) if kind == TIMESTAMP else pa.array(values, kind)


def fold_rows(part: AccumulatorPart, rows: Sequence[Row], groups: int, *, withdrawable: bool = False) -> pa.Array:
    """The part of each group."""
    array = part.fold(*elements(part, rows, groups, withdrawable=withdrawable))
    assert array.type == part.type
    assert len(array) == groups
    return array


def gather_parts(part: AccumulatorPart, bundles: Sequence[pa.Array], groups: int) -> pa.Array:
    """Parts of several bundles as one."""
    rows = pa.concat_arrays(bundles)
    order = np.argsort(np.tile(np.arange(groups), len(bundles)), kind="stable")
    array = part.gather(rows.take(pa.array(order)), Groups(np.arange(groups + 1) * len(bundles)))
    assert array.type == part.type
    array.validate(full=True)
    return array


def over_bundles(
    part: AccumulatorPart, rows: Sequence[Row], groups: int, rng: Random, *, withdrawable: bool
) -> pa.Array:
    """The part of each group, made of random bundles that are gathered in random order."""
    number = rng.randint(1, 4)
    of_row = sorted(rng.randrange(number) for _ in rows)
    bundles = [
        fold_rows(
            part, [row for row, b in zip(rows, of_row, strict=True) if b == bundle], groups, withdrawable=withdrawable
        )
        for bundle in range(number)
    ]
    while len(bundles) > 1:
        start = rng.randrange(len(bundles) - 1)
        upto = rng.randint(start + 2, len(bundles))
        bundles[start:upto] = [gather_parts(part, bundles[start:upto], groups)]
    return bundles[0]


def results(made_accumulator: Accumulator, parts: Mapping[str, pa.Array]) -> list[Any]:
    """The result of each group: a value, or an error."""
    try:
        return plain(made_accumulator.result(parts))
    except ValueOverflowError as error:
        groups = len(next(iter(parts.values())))
        if groups == 1:
            return [error]
        group_parts = [{name: part.slice(i, 1) for name, part in parts.items()} for i in range(groups)]
        return [result for one in group_parts for result in results(made_accumulator, one)]


def plain(column: pa.Array) -> list[Any]:
    """Values as the reference has them: Instants for timestamps, tuples for lists."""
    column.validate(full=True)
    return [_plain(value) for value in column.to_pylist()]


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return to_instant(value)
    if isinstance(value, dict):
        return _plain(value["left"]), _plain(value["right"])
    return tuple(map(_plain, value)) if isinstance(value, list) else value


def same(actual: Any, expected: Any, scale: float = 0.0) -> bool:
    """Whether two results are equal, floats nearly so; ``scale`` is the size of what was added up."""
    if isinstance(expected, ValueOverflowError) or isinstance(actual, ValueOverflowError):
        return str(actual) == str(expected)
    if isinstance(expected, tuple):
        return (
            isinstance(actual, tuple)
            and len(actual) == len(expected)
            and all(same(a, b, scale) for a, b in zip(actual, expected, strict=True))
        )
    if isinstance(expected, float) and actual is not None:
        if math.isnan(expected):
            return math.isnan(actual)
        return math.isclose(actual, expected, rel_tol=1e-9, abs_tol=1e-9 * scale)
    return bool(actual == expected) and isinstance(actual, bool) == isinstance(expected, bool)
