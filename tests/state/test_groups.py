"""Key groups: each hash is of exactly one part, and a part finds its rows by binary search."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.state.chunks import GROUPS, WHOLE, groups_of, key_group_ranges, part_of

HASHES = st.lists(st.integers(0, 2**64 - 1), min_size=1).map(lambda hashes: np.sort(np.array(hashes, np.uint64)))


@given(HASHES, st.integers(1, 9))
def test_the_parts_hold_each_hash_once(hashes: np.ndarray, number: int) -> None:
    own = part_of(hashes, number)
    for index, part in enumerate(key_group_ranges(number)):
        assert (hashes[part.row_slice(hashes)] == hashes[own == index]).all()
    assert sum(len(hashes[part.row_slice(hashes)]) for part in key_group_ranges(number)) == len(hashes)


@given(HASHES, st.integers(1, 9))
def test_a_part_overlaps_the_files_that_have_rows_of_it(hashes: np.ndarray, number: int) -> None:
    for part in key_group_ranges(number):
        has_rows = len(hashes[part.row_slice(hashes)]) > 0
        assert part.overlaps(groups_of(hashes)) or not has_rows
        assert not part.contains(groups_of(hashes)) or len(hashes[part.row_slice(hashes)]) == len(hashes)


@pytest.mark.parametrize("number", [1, 2, 3, 7, 200])
def test_parts_are_all_groups_in_a_row(number: int) -> None:
    ranges = key_group_ranges(number)
    assert (ranges[0].first, ranges[-1].last) == (WHOLE.first, WHOLE.last) == (0, GROUPS - 1)
    assert all(left.last + 1 == right.first for left, right in pairwise(ranges))
