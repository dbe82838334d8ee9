"""Memory does not grow with state, nor with what an epoch sends or copies: what may be allocated is limited."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

MEGABYTE = 1024 * 1024
SCALE = int(os.environ.get("HEADRACE_SCALE", "1"))
"""8: files and ranges of their real size."""

ROWS = 1_300_000 * SCALE
MOST_BYTES = 22 * SCALE * MEGABYTE

WRITE = """
import pickle, sys
from pathlib import Path
from headrace.state import file_cache as writer
from headrace.state.file_cache import LayerCache
from headrace.state.file_cache import put_runs
from headrace_snapshots.format.files import Layer
from headrace_snapshots.store import LocalStore
from tests.state.rows import many

folder, rows, scale = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
writer.RUN_BYTES.value = writer.RUN_BYTES.value * scale // 8
store, cache = LocalStore(folder / "root"), LayerCache(folder / "written", 10**12)
layers = []
for epoch in range(4):  # the first has all keys, those behind it every eighth
    step = 8 if epoch else 1
    pieces = (many(first, min(first + rows // 8, rows), step, epoch) for first in range(epoch, rows, rows // 8))
    files = []
    for number, piece in enumerate(pieces):
        files += [each.file for each in put_runs(store, cache, f"{epoch}-{number}", [piece])]
    layers.append(Layer.from_files(tuple(files), epoch, epoch))
(folder / "layers").write_bytes(pickle.dumps(layers))
"""
"""Files of a layer cover all hashes each here, so that a merge has all of them open at once."""

WORK = """
import pickle, resource, sys
from pathlib import Path
import numpy as np
import pyarrow as pa
from headrace.kernel.keys import hash_keys
from headrace.model.time import Instant
from headrace.program import columns as c
from headrace.program.firing import FiringClocks
from headrace.state import migration
from headrace.state import file_cache as writer
from headrace.state.file_cache import LayerCache
from headrace.state.chunks import WHOLE
from headrace.state.layers import Layers
from headrace.state.migration import merge_layers
from headrace.state.layers import open_rows
from headrace.state.file_cache import put_runs
from headrace_snapshots.store import LocalStore
from headrace_snapshots.store.local import MemoryStore
from tests.state.rows import COUNTS, many

folder, rows, scale, allowed = Path(sys.argv[1]), *map(int, sys.argv[2:])
writer.RUN_BYTES.value = writer.RUN_BYTES.value * scale // 8
migration.RANGE_BYTES.value = migration.RANGE_BYTES.value * scale // 8
store, cache = LocalStore(folder / "root"), LayerCache(folder / "working", 10**12)
stored = pickle.loads((folder / "layers").read_bytes())


def allocated():
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmData"].split()[0]) * 1024


# what libraries allocate once: threads, buffers, modules
warm, written = MemoryStore(), LayerCache(folder / "warm", 10**12)
(few,) = put_runs(warm, written, "few", [many(0, 1000)])
LayerCache(folder / "warmer", 10**12).load_file(warm, few.file, COUNTS.state_schema)

before = allocated()
resource.setrlimit(resource.RLIMIT_DATA, (before + allowed, before + allowed))
layers = Layers(COUNTS, tuple(open_rows(cache, store, COUNTS.state_schema, layer, WHOLE) for layer in stored))
size = sum(run.rows.nbytes for run in layers.runs)
assert size > 10 * allowed, size
touched = hash_keys([pa.array(np.arange(0, rows, rows // 1000))])
found = layers.affected_rows(touched, FiringClocks(Instant(0), Instant(0), Instant(0), Instant(0)))
assert found.num_rows >= 1000
merged = [each.file for each in put_runs(store, cache, "merged", merge_layers(COUNTS, layers.layers, is_lowest=True))]
assert sum(file.rows for file in merged) == rows, merged
print(size // 2**20, (allocated() - before) // 2**20)
try:
    np.ones(allowed, np.uint8)
except MemoryError:
    print("limited")
"""


MERGE = """
import resource, sys
from datetime import datetime
from pathlib import Path
import numpy as np
import pyarrow as pa
import headrace as hr
from headrace.kernel.joins.sides import CompiledJoin, in_order
from headrace.kernel.joins.merge import merge_side
from headrace.model.expressions.data_types import DataType
from headrace.model.time import Instant
from headrace.program import columns as c
from headrace.state import file_cache as writer
from headrace.state import migration
from headrace.state.chunks import WHOLE
from headrace.state.file_cache import LayerCache, put_runs
from headrace.state.layers import open_rows
from headrace.state.migration import sorted_ranges
from headrace_snapshots.format.files import Layer
from headrace_snapshots.store import LocalStore

folder, rows, scale, allowed = Path(sys.argv[1]), *map(int, sys.argv[2:])
writer.RUN_BYTES.value = writer.RUN_BYTES.value * scale // 8
migration.RANGE_BYTES.value = migration.RANGE_BYTES.value * scale // 8
store, cache = LocalStore(folder / "root"), LayerCache(folder / "cache", 10**12)
right = hr.json("landing/right", {"k": int, "v": int, "at": datetime}).event_time("at", bound="0s").named("right")
declared = hr.as_of(right, "k", columns=["v"], lateness="0s")
join = CompiledJoin(0, declared, {"k": DataType.INT}, declared.lateness, has_signed_left=False)


def versions(times):
    # every other one of key 0, one each moment
    keys = np.where(times % 2 == 0, 0, times)
    ones = pa.array(np.ones(len(times), np.int64))
    batch = join.right_rows(pa.array(times), {"_k0": pa.array(keys), "_c0": pa.array(times)}, ones)
    hashed, at = (batch.column(name).to_numpy() for name in (c.HASH, c.EVENT_TIME))
    return batch.take(pa.array(in_order(hashed, at)))


def layer_of(epoch, times):
    files = put_runs(store, cache, f"{epoch}-{len(times)}", [versions(times)])
    return Layer.from_files(tuple(each.file for each in files), epoch, epoch)


def merged(name, stored, watermark):
    opened = [open_rows(cache, store, join.right_schema, layer, WHOLE) for layer in stored]
    files = put_runs(store, cache, name, merge_side(join, sorted_ranges(opened, c.EVENT_TIME), watermark))
    return sum(each.file.rows for each in files)


def allocated():
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmData"].split()[0]) * 1024


layers = [layer_of(epoch, np.arange(epoch, rows, 4, np.int64)) for epoch in range(4)]
merged("warm", [layer_of(4, np.arange(1000))], Instant(10))
before = allocated()
resource.setrlimit(resource.RLIMIT_DATA, (before + allowed, before + allowed))
assert merged("all", layers, Instant(0)) == rows
assert merged("newest", layers, Instant(rows)) == rows // 2 + 1
print(8 * 5 * rows // 2**20, (allocated() - before) // 2**20)
"""
"""Half of the rows are of one key: one merge keeps them all, the other the newest alone."""


EPOCH = """
import os, resource, sys
from datetime import datetime
from pathlib import Path
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import headrace as hr
from headrace_lab.sizes import set_sizes

folder, rows, allowed = Path(sys.argv[1]), *map(int, sys.argv[2:])
landing, one = folder / "landing", folder / "one"
landing.mkdir()
one.mkdir()
for number in range(16):
    keys = pa.array(np.random.default_rng(number).permutation(rows).astype(np.int64))
    at = pa.array(np.full(rows, 1_700_000_000_000_000), pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"k": keys, "at": at}), landing / f"{number:02}.parquet")
os.link(landing / "00.parquet", one / "0.parquet")


COUNT, EACH = {"n": hr.count()}, hr.Repeatedly(hr.AfterCount(1))


def counted(source, output):
    clicks = hr.parquet(source, {"k": int, "at": datetime}, max_files=100).event_time("at", bound="0s")
    return hr.Pipeline(output, clicks, key="k", where=hr.FixedWindows("1h"), what=COUNT, when=EACH, executor="local")


def allocated():
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmData"].split()[0]) * 1024


# the first run is for what libraries allocate once
with set_sizes(most_of_a_share=2**17, most_of_a_part=2**18, held_bytes=2**20, task_bytes=2**17, slice_rows=2**12):
    root = hr.open(folder.as_uri())
    root[counted("one", "warm")].run()
    before = allocated()
    resource.setrlimit(resource.RLIMIT_DATA, (before + allowed, resource.RLIM_INFINITY))
    clicks = root[counted("landing", "clicks")]
    clicks.run()
resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
counts = clicks.read().to_arrow().column("n").to_numpy()
assert len(counts) == rows and (counts == 16).all()
"""
"""Each of sixteen files has all keys, so that an epoch sends sixteen times what it keeps."""


JOIN_PROGRAM = """
import resource, sys
from datetime import datetime
from pathlib import Path
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import headrace as hr
from headrace.runs.options import RunOptions
from headrace.runs.process import process

folder, rows, allowed = Path(sys.argv[1]), *map(int, sys.argv[2:])
HOUR = 3_600_000_000


def land(side, name, count):
    (folder / side).mkdir(parents=True, exist_ok=True)
    numbers = np.arange(count)
    at = pa.array(numbers * HOUR // max(count, 1)).cast(pa.timestamp("us", "UTC"))
    table = pa.table({"k": numbers % 1000 + 1000 * (count > 1000), "at": at, "v": numbers})
    pq.write_table(table, folder / side / name, row_group_size=1 << 16)


columns = {"k": int, "at": datetime, "v": int}
both = (hr.parquet(f"file://{folder}/{side}", columns) for side in ("left", "right"))
left, right = (side.event_time("at", bound="0s") for side in both)
join = hr.within(right.named("right"), "k", between=("0s", "0s"), columns={"w": "v"}, lateness="2h")
pipeline = hr.Pipeline("pairs", left, join=[join], rows=["v", "w"])
run = lambda: process(pipeline, (folder / "root").as_uri(), RunOptions("run", executor="local", publish=True))


def allocated():
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmData"].split()[0]) * 1024


for side in ("left", "right"):  # what libraries allocate once
    land(side, "0.parquet", 1000)
run()
land("right", "1.parquet", rows)
before = allocated()
resource.setrlimit(resource.RLIMIT_DATA, (before + allowed, before + allowed))
run()
land("left", "2.parquet", rows)
assert run().counts["panes"] == rows, "a left row meets one right row"
print("done")
"""
"""An epoch of right rows, then one of left rows that each meet one. What came is let go once it is in order."""


def run(program: str, folder: Path, *arguments: int) -> str:
    # what is free is given back, so that the limit is on what is in use
    malloc = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "65536", "ARROW_DEFAULT_MEMORY_POOL": "system"}
    # a thread that starts late takes 8 MB for its stack: one of each kind, which what is done first has started
    threads = {"OMP_NUM_THREADS": "1", "ARROW_IO_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    ours = {"HEADRACE_TASKS": "2", "HEADRACE_CACHE": str(folder / "cache")}
    environment = {**os.environ, **malloc, **threads, **ours}
    command = [sys.executable, "-c", program, str(folder), *map(str, arguments)]
    result = subprocess.run(command, check=False, timeout=600, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-4000:]
    return result.stdout


def test_a_state_of_ten_times_what_may_be_allocated_is_opened_looked_up_and_merged(tmp_path: Path) -> None:
    try:
        run(WRITE, tmp_path, ROWS, SCALE)
        shutil.rmtree(tmp_path / "written")
        assert "limited" in run(WORK, tmp_path, ROWS, SCALE, MOST_BYTES)
    finally:
        shutil.rmtree(tmp_path)


def test_a_key_with_more_rows_than_may_be_allocated_is_merged(tmp_path: Path) -> None:
    try:
        run(MERGE, tmp_path, ROWS // 4, SCALE, MOST_BYTES)
    finally:
        shutil.rmtree(tmp_path)


def test_an_epoch_sends_more_between_its_tasks_than_may_be_allocated(tmp_path: Path) -> None:
    try:
        run(EPOCH, tmp_path, 100_000, 40 * MEGABYTE)
    finally:
        shutil.rmtree(tmp_path)


def test_an_epoch_of_a_join_takes_no_copies_of_its_rows(tmp_path: Path) -> None:
    try:
        run(JOIN_PROGRAM, tmp_path, 400_000, 108 * MEGABYTE)
    finally:
        shutil.rmtree(tmp_path)
