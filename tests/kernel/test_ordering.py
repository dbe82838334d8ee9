"""Rows in order, however wide what they are ordered by is."""

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.kernel.aggregates.ordering import in_order
from tests.reference.strategies import examples

WIDE = st.sampled_from([0, 1, 2, 3, 2**40, 2**40 + 1, 2**62, 2**63 - 1, 2**63 - 2, -(2**63), -(2**63) + 1, -1])


@given(st.lists(st.tuples(st.one_of(WIDE, st.integers(0, 5)), st.one_of(WIDE, st.integers(-5, 5))), max_size=30))
@examples(200)
def test_rows_in_order(rows: list[tuple[int, int]]) -> None:
    major, minor = (np.array([row[i] for row in rows], np.int64) for i in range(2))
    order = in_order(major, minor)
    assert [rows[i] for i in order] == sorted(rows)
    assert sorted(order) == list(range(len(rows)))


def test_rows_that_differ_only_in_what_does_not_fit_beside_their_group() -> None:
    rng = Random(1)
    rows = [(rng.randrange(2**20), rng.choice([-1, 1]) * 2**62 + rng.randrange(3)) for _ in range(2000)]
    major, minor = (np.array([row[i] for row in rows], np.int64) for i in range(2))
    assert [rows[i] for i in in_order(major, minor)] == sorted(rows)
