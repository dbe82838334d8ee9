"""Mapped files of state take memory while they are looked at, and none afterwards."""

import re
from pathlib import Path

import pytest

from headrace.model.time import Instant
from headrace.program.firing import FiringClocks
from headrace.state.datafiles.cache import LayerCache
from headrace.state.datafiles.writer import put_runs
from headrace.state.layers import Layers
from headrace.state.merge import merge_layers
from headrace.state.open_layer import StateLayer
from headrace_snapshots.store.memory import MemoryStore
from tests.state.rows import COUNTS, many

pytestmark = pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="only Linux tells")
EARLY, LATE = Instant(-(2**62)), Instant(2**62)


def in_memory(cache: LayerCache) -> int:
    """Bytes of mapped files of the cache that this process has in memory."""
    regions = Path("/proc/self/smaps").read_text().split("VmFlags:")
    sizes = [re.search(r"^Rss: +(\d+) kB$", region, re.MULTILINE) for region in regions if str(cache.folder) in region]
    return sum(int(size[1]) * 1024 for size in sizes if size)


def test_what_was_looked_at_takes_no_memory_afterwards(tmp_path: Path) -> None:
    store, cache = MemoryStore(), LayerCache(tmp_path / "cache", 10**9)
    pieces = [many(first, first + 4000) for first in (0, 4000, 0)]
    files = [each.file for number, piece in enumerate(pieces) for each in put_runs(store, cache, str(number), [piece])]
    runs = [cache.run(store, file, COUNTS.state_schema) for file in files]
    assert [run.rows for run in runs] == pieces
    assert in_memory(cache) > 1_000_000
    layers = Layers(COUNTS, tuple(StateLayer((run,), epoch, epoch) for epoch, run in enumerate(runs)))

    assert layers.lookup(runs[2].hashes[:100].copy(), FiringClocks(EARLY, EARLY, EARLY, EARLY)).num_rows == 100
    assert in_memory(cache) == 0
    assert layers.earliest_hold(LATE) < LATE
    assert layers.next_due(EARLY, EARLY)[0] < LATE
    assert in_memory(cache) == 0
    (merged,) = put_runs(store, cache, "merged", merge_layers(COUNTS, layers.layers, is_lowest=True))
    assert in_memory(cache) == 0
    assert merged.run.rows.num_rows == 8000
    assert layers.runs[0].rows == pieces[0]
