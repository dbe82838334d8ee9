"""Sums of floats that can be withdrawn are exact: what is left is as if the others had never come (semantics 9.7)."""

import math
from fractions import Fraction
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.kernel.aggregates.sums import exact_sum
from headrace.kernel.columns import Groups, as_now
from headrace.model.expressions.expr import col
from tests.kernel.folding import Row, accumulator, fold_rows, gather_parts, over_bundles, results
from tests.reference.strategies import examples

LARGEST = float(np.finfo(np.float64).max)
SCALES = [5e-324, 1e-310, 1e-300, 0.1, 0.3, 1.0, 1e16, 1e17, 1e300, LARGEST / 4]
FLOATS = st.one_of(
    st.sampled_from([sign * scale for scale in SCALES for sign in (1, -1)]),
    st.floats(allow_nan=False, allow_infinity=False, min_value=-LARGEST / 64, max_value=LARGEST / 64),
)


def group_values(values: list[list[float]]) -> tuple[np.ndarray, Groups]:
    offsets = np.cumsum([0, *map(len, values)])
    return np.array([value for group in values for value in group], np.float64), Groups(offsets)


@given(values=st.lists(st.lists(FLOATS, max_size=8), max_size=6), rng=st.randoms())
@examples(200)
def test_a_sum_is_what_exact_fractions_come_to_in_any_order(values: list[list[float]], rng: Random) -> None:
    nearest, rest = exact_sum(*group_values(values))
    for group, first, others in zip(values, nearest, rest.to_pylist(), strict=True):
        exact = sum(map(Fraction, group), Fraction(0))
        assert sum(map(Fraction, [first, *(others or [])]), Fraction(0)) == exact
        if abs(exact) <= LARGEST:
            assert abs(first - float(exact)) <= math.ulp(float(exact))
    for group in values:
        rng.shuffle(group)
    second_sum = exact_sum(*group_values(values))
    assert second_sum[0].tolist() == nearest.tolist()
    assert second_sum[1].equals(rest)


@given(values=st.lists(FLOATS, max_size=6), others=st.lists(FLOATS, max_size=8), seed=st.integers(0, 2**32))
@examples(150)
def test_what_is_withdrawn_leaves_nothing(values: list[float], others: list[float], seed: int) -> None:
    rng = Random(seed)
    rows = [Row(0, {"x": value}) for value in values]
    passing = [Row(0, {"x": value}, sign=sign) for value in others for sign in (1, -1)]
    mixed_rows = [*rows, *passing]
    rng.shuffle(mixed_rows)
    for aggregate in (col("x").sum(), col("x").mean()):
        made_accumulator = accumulator(aggregate, withdrawable=True)
        found_by_name = {
            part.name: over_bundles(part, mixed_rows, 1, rng, withdrawable=True) for part in made_accumulator.parts
        }
        parts = {part.name: fold_rows(part, rows, 1, withdrawable=True) for part in made_accumulator.parts}
        assert list(map(repr, results(made_accumulator, found_by_name))) == list(
            map(repr, results(made_accumulator, parts))
        )


@pytest.mark.parametrize(
    ("values", "left"),
    [([1e17, 1.0], 1.0), ([LARGEST, LARGEST, 1.5], LARGEST + 1.5), ([0.1, 0.2], 0.2)],
    ids=["beside a larger one", "too large for a while", "fractions"],
)
def test_the_first_one_is_withdrawn(values: list[float], left: float) -> None:
    made_accumulator = accumulator(col("x").sum(), withdrawable=True)
    (part,) = made_accumulator.parts
    addition = fold_rows(part, [Row(0, {"x": value}) for value in values], 1, withdrawable=True)
    goes = fold_rows(part, [Row(0, {"x": values[0]}, sign=-1)], 1, withdrawable=True)
    assert results(made_accumulator, {part.name: gather_parts(part, [addition, goes], 1)}) == [left]


@pytest.mark.parametrize("finite", [0.75, math.inf])
def test_a_sum_that_was_stored_before_sums_were_exact_goes_on(finite: float) -> None:
    made_accumulator = accumulator(col("x").sum(), withdrawable=True)
    (part,) = made_accumulator.parts
    stored_table = pa.table({part.name: [{"finite": finite, "nan": 0, "above": 0, "below": 0}]})
    now = as_now(stored_table, pa.schema([(part.name, part.type)]), {})
    more = fold_rows(part, [Row(0, {"x": 0.5})], 1, withdrawable=True)
    assert results(made_accumulator, {part.name: gather_parts(part, [now.column(0).combine_chunks(), more], 1)}) == [
        finite + 0.5
    ]
