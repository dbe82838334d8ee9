"""Mapped files of state take memory while they are looked at, and none afterwards."""

import gc
import re
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.model.time import Instant
from headrace.program.firing import FiringClocks
from headrace.state import sorted_file
from headrace.state.file_cache import LayerCache, put_runs
from headrace.state.layers import Layers
from headrace.state.migration import merge_layers
from headrace.state.sorted_file import RESIDENT, Resident, SortedFile, StateLayer
from headrace_snapshots.store.local import MemoryStore
from tests.state.rows import COUNTS, many

pytestmark = pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="only Linux tells")
EARLY, LATE = Instant(-(2**62)), Instant(2**62)


def in_memory(folder: Path) -> int:
    """Bytes of mapped files in ``folder`` that this process has in memory."""
    regions = Path("/proc/self/smaps").read_text().split("VmFlags:")
    sizes = [re.search(r"^Rss: +(\d+) kB$", region, re.MULTILINE) for region in regions if str(folder) in region]
    return sum(int(size[1]) * 1024 for size in sizes if size)


@pytest.fixture(autouse=True)
def nothing_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of this process may have let it be otherwise."""
    monkeypatch.setattr(RESIDENT, "limit", 0)


def test_what_was_looked_at_takes_no_memory_afterwards(tmp_path: Path) -> None:
    store, cache = MemoryStore(), LayerCache(tmp_path / "cache", 10**9)
    pieces = [many(first, first + 4000) for first in (0, 4000, 0)]
    files = [each.file for number, piece in enumerate(pieces) for each in put_runs(store, cache, str(number), [piece])]
    runs = [cache.load_file(store, file, COUNTS.state_schema) for file in files]
    assert [run.rows for run in runs] == pieces
    assert in_memory(cache.folder) > 500_000
    layers = Layers(COUNTS, tuple(StateLayer((run,), epoch, epoch) for epoch, run in enumerate(runs)))

    assert layers.affected_rows(runs[2].hashes[:100].copy(), FiringClocks(EARLY, EARLY, EARLY, EARLY)).num_rows == 100
    assert in_memory(cache.folder) == 0
    assert layers.earliest_hold(LATE) < LATE
    assert layers.next_due(EARLY, EARLY)[0] < LATE
    assert in_memory(cache.folder) == 0
    (merged_file,) = put_runs(store, cache, "merged", merge_layers(COUNTS, layers.layers, is_lowest=True))
    assert in_memory(cache.folder) == 0
    assert merged_file.run.rows.num_rows == 8000
    assert layers.runs[0].rows == pieces[0]


def test_where_a_process_has_room_files_stay_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One in four that come later takes the place of one that has been there for longest."""
    store, cache = MemoryStore(), LayerCache(tmp_path / "cache", 10**9)
    pieces = [many(first, first + 4000) for first in range(0, 40_000, 4000)]
    files = [each.file for number, piece in enumerate(pieces) for each in put_runs(store, cache, str(number), [piece])]
    runs = [cache.load_file(store, file, COUNTS.state_schema) for file in files]
    assert runs[0].file is not None
    resident = Resident(3 * runs[0].file.size + 1)  # without files of other tests
    monkeypatch.setattr(sorted_file, "RESIDENT", resident)

    def used(run: SortedFile, piece: pa.RecordBatch) -> int:
        """The bytes in memory after all rows were looked at."""
        assert run.rows == piece
        run.let_go()
        return in_memory(tmp_path)

    sizes = [used(run, piece) for run, piece in zip(runs, pieces, strict=True)]
    assert sizes[0] < sizes[1] < sizes[2]
    assert max(sizes) < sizes[2] + sizes[0] // 2
    assert resident.kept_bytes <= resident.limit
    second_sizes = [used(run, piece) for run, piece in zip(runs, pieces, strict=True)]
    assert min(second_sizes) > sizes[1]

    size = sum(run.file.size for run in runs[:3] if run.file is not None)
    kept_bytes = resident.kept_bytes
    del runs, cache
    gc.collect()
    assert resident.kept_bytes < kept_bytes - size * 9 // 10
