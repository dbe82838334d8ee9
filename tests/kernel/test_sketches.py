"""Sketches are right to their error, in whatever order and parts values come; what keeps all of them is exact."""

import math
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.kernel.aggregates.sketches import CAPACITY, HASHES, REGISTERS
from headrace.kernel.aggregates.sums import AccumulatorPart, Elements
from headrace.kernel.columns import Groups
from headrace.model.combiners import DISTINCT_ERROR, RANK_ERROR
from headrace.model.expressions.expr import col
from tests.kernel.folding import accumulator, gather_parts

pytestmark = pytest.mark.slow

N = 60_000
ORDERS = {
    "random": np.random.default_rng(1).normal(size=N),
    "ascending": np.arange(N, dtype=np.float64),
    "descending": -np.arange(N, dtype=np.float64),
    "alternating": np.arange(N) * np.where(np.arange(N) % 2, 1.0, -1.0),
    "few": np.random.default_rng(2).integers(0, 9, N).astype(np.float64),
}


def fold(part: AccumulatorPart, values: Any, groups: Groups | None = None) -> pa.Array:
    times = pa.nulls(len(values), pa.int64())
    return part.fold(Elements(pa.array(values), times, None), groups or Groups(np.array([0, len(values)])))


def one_after_another(part: AccumulatorPart, bundles: list[pa.Array]) -> pa.Array:
    found_bundle = bundles[0]
    for bundle in bundles[1:]:
        found_bundle = gather_parts(part, [found_bundle, bundle], 1)
    return found_bundle


def two_by_two(part: AccumulatorPart, bundles: list[pa.Array]) -> pa.Array:
    while len(bundles) > 1:
        bundles = [gather_parts(part, bundles[i : i + 2], 1) for i in range(0, len(bundles), 2)]
    return bundles[0]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("merge", [one_after_another, two_by_two])
def test_quantiles_are_right_to_their_rank_error(order: str, merge: Any) -> None:
    values = ORDERS[order]
    made_accumulator = accumulator(col("x").quantile(0.5))
    (part,) = made_accumulator.parts
    sketch = merge(part, [fold(part, bundle) for bundle in np.array_split(values, 80)])
    assert len(sketch[0]) < CAPACITY * (1 + math.log2(N / CAPACITY))
    assert sum(2 ** item["level"] for item in sketch[0].as_py()) == N  # no value is lost
    ascending = np.sort(values)
    for q in (0.0, 0.01, 0.25, 0.5, 0.9, 0.99, 1.0):
        (value,) = accumulator(col("x").quantile(q)).result({part.name: sketch}).to_pylist()
        least, most = np.searchsorted(ascending, value, "left"), np.searchsorted(ascending, value, "right")
        assert least - RANK_ERROR * N <= q * N <= most + RANK_ERROR * N, (q, value)


def test_quantiles_of_as_many_values_as_are_kept_are_exact() -> None:
    values = np.random.default_rng(3).permutation(CAPACITY)
    for q in (0.0, 0.123, 0.5, 1.0):
        made_accumulator = accumulator(col("i").quantile(q))
        (part,) = made_accumulator.parts
        sketch = one_after_another(part, [fold(part, some) for some in np.array_split(values, 4)])
        assert made_accumulator.result({part.name: sketch}).to_pylist() == [max(math.ceil(q * CAPACITY), 1) - 1]


def test_sketches_of_many_groups_are_those_of_each() -> None:
    rng = np.random.default_rng(4)
    sizes = np.array([0, 3, 5000, 1, CAPACITY + 1, 0])
    groups = Groups(np.append(0, np.cumsum(sizes)))
    values = rng.integers(0, 10**6, sizes.sum())
    for aggregate in (col("i").quantile(0.3), col("i").approx_distinct()):
        (part,) = accumulator(aggregate).parts
        arrays = [fold(part, values[a:b]) for a, b in zip(groups.offsets, groups.offsets[1:], strict=False)]
        assert fold(part, values, groups).equals(pa.concat_arrays(arrays))


@pytest.mark.parametrize("number", [1, 10, HASHES, HASHES + 1, 1000, 5000, 12_000, 40_000])
@pytest.mark.parametrize("make", [int, float, str])
def test_distinct_counts_are_right_to_their_error(number: int, make: Any) -> None:
    made_accumulator = accumulator(col({int: "i", float: "x", str: "s"}[make]).approx_distinct())
    (part,) = made_accumulator.parts
    values = [make(i) for i in range(number)]
    Random(5).shuffle(values)
    bundles = [fold(part, values[i : i + 4000] * 2) for i in range(0, number, 4000)]
    sketch = one_after_another(part, bundles)
    assert sketch.equals(fold(part, values))  # nothing depends on the bundles
    (value,) = made_accumulator.result({part.name: sketch}).to_pylist()
    assert len(sketch[0]) <= REGISTERS
    assert abs(value - number) <= (DISTINCT_ERROR * number if number > HASHES else 0)
