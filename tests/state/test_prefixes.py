"""Prefixes of hashes say which keys a file does not have: no key that it has is ever among them."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.kernel.keys import hash_keys
from headrace.model.time import Instant
from headrace.program import columns as c
from headrace.program.firing import FiringClocks
from headrace.state.chunks import KeyGroupRange
from headrace.state.file_cache import LayerCache, put_runs
from headrace.state.layers import Layers
from headrace.state.sorted_file import HashPrefixes, SortedFile, StateLayer
from headrace_lab.sizes import set_sizes
from headrace_snapshots.store.local import MemoryStore
from tests.reference.strategies import examples
from tests.state.rows import COUNTS, many

LARGE = 10**9
EARLY = Instant(-(2**62))
NOTHING_IS_DUE = FiringClocks(EARLY, EARLY, EARLY, EARLY)
HASH = st.one_of(
    st.integers(0, 2**64 - 1),
    st.integers(0, 40),
    st.integers(2**64 - 40, 2**64 - 1),
    st.integers(2**63 - 20, 2**63 + 20),
)


def ascending(hashes: list[int]) -> np.ndarray:
    return np.sort(np.array(hashes, np.uint64))


HASHES = st.lists(HASH, min_size=1, max_size=60).map(ascending)


@given(HASHES, st.lists(HASH).map(ascending))
@examples(500)
def test_what_is_there_is_never_left_out(hashes: np.ndarray, other_hashes: np.ndarray) -> None:
    prefixes = HashPrefixes.from_hashes(hashes)
    sought_hashes = np.unique(np.concatenate([hashes, other_hashes]))
    sought_hashes = sought_hashes[(sought_hashes >= hashes[0]) & (sought_hashes <= hashes[-1])]
    possible_hashes = prefixes.filter_hashes(sought_hashes)
    assert {*hashes.tolist()} <= {*possible_hashes.tolist()} <= {*sought_hashes.tolist()}
    assert (possible_hashes[1:] > possible_hashes[:-1]).all()
    assert len(prefixes.bits) <= 2 * len(hashes) + 1


def test_most_of_what_is_not_there_is_left_out() -> None:
    own_hashes, other_hashes = (np.sort(hash_keys([pa.array(range(first, first + 50_000))])) for first in (0, 50_000))
    other_hashes = other_hashes[(other_hashes >= own_hashes[0]) & (other_hashes <= own_hashes[-1])]
    possible_hashes = HashPrefixes.from_hashes(own_hashes).filter_hashes(other_hashes)
    assert len(possible_hashes) < len(other_hashes) / 7


@given(
    hashes=HASHES,
    sought_hashes=st.lists(HASH, max_size=30).map(ascending),
    places=st.lists(st.integers(0, 59), max_size=30),
    bounds=st.lists(st.integers(0, 2**16 - 1), min_size=2, max_size=2).map(sorted),
)
@examples(200)
def test_rows_are_found_in_a_file_as_without_it(
    tmp_path_factory: pytest.TempPathFactory,
    hashes: np.ndarray,
    sought_hashes: np.ndarray,
    places: list[int],
    bounds: list[int],
) -> None:
    """All of it, and a part of the keys."""
    store, rows = MemoryStore(), pa.RecordBatch.from_pydict({c.HASH: hashes, "number": range(len(hashes))})
    with set_sizes(prefix_rows=1):
        cache = LayerCache(tmp_path_factory.mktemp("cache"), LARGE)
        (stored_run,) = put_runs(store, cache, "state", [rows])
    run = cache.load_file(store, stored_run.file, rows.schema)
    assert run.prefixes is not None
    sought_hashes = np.unique(np.concatenate([sought_hashes, hashes[[place % len(hashes) for place in places]]]))
    part = KeyGroupRange(*bounds)
    expected = [row for row in rows.to_pylist() if row[c.HASH] in sought_hashes]
    assert run.rows_of(sought_hashes).to_pylist() == expected
    in_part = [row for row in expected if part.first <= row[c.HASH] >> 48 <= part.last]
    assert run.slice_keys(part).rows_of(sought_hashes).to_pylist() == in_part
    assert run.overlaps(part) or not run.slice_keys(part).rows.num_rows
    assert run.may_have(sought_hashes) or not expected


def test_rows_in_another_order_have_none(tmp_path: Path) -> None:
    """What is in flight in a loop is read as a whole, and stands as it came."""
    rows = pa.RecordBatch.from_pydict({c.HASH: pa.array([5, 2**64 - 1, 0], pa.uint64()), "number": range(3)})
    with set_sizes(prefix_rows=1):
        cache = LayerCache(tmp_path, LARGE)
        (stored_run,) = put_runs(MemoryStore(), cache, "flight", [rows])
    assert stored_run.run.prefixes is None
    assert stored_run.run.rows == rows


def test_an_epoch_finds_the_newest_rows_of_many_files(tmp_path: Path) -> None:
    """Layers of other keys, of which each has few of those that are touched; looked up in parts as well."""
    store, cache = MemoryStore(), LayerCache(tmp_path, LARGE)
    pieces = [many(0, 30_000), many(5, 30_000, 3, epoch=1), many(40_000, 60_000, epoch=2), many(7, 30_000, 50, epoch=3)]
    with set_sizes(run_bytes=400_000, prefix_rows=1000):
        runs = [put_runs(store, cache, str(number), [piece]) for number, piece in enumerate(pieces)]
    assert min(len(stored_runs) for stored_runs in runs[:3]) > 2
    layers = Layers(
        COUNTS, tuple(StateLayer(tuple(one.run for one in stored_runs), n, n) for n, stored_runs in enumerate(runs))
    )
    in_memory = Layers(COUNTS, tuple(StateLayer((SortedFile(rows),), n, n) for n, rows in enumerate(pieces)))
    touched_hashes = np.sort(hash_keys([pa.array(np.arange(0, 70_000, 11))]))

    expected = in_memory.affected_rows(touched_hashes, NOTHING_IS_DUE)
    assert expected.num_rows > 4000
    assert layers.affected_rows(touched_hashes, NOTHING_IS_DUE) == expected
    parts = [layers.slice_keys(part) for part in KeyGroupRange(0, 2**16 - 1).split_evenly(7)]
    assert all(len(part.runs) < len(layers.runs) for part in parts)
    rows_by_part = [part.affected_rows(touched_hashes, NOTHING_IS_DUE) for part in parts]
    assert pa.concat_batches(rows_by_part) == expected
