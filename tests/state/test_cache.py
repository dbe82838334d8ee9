"""The cache of data files: the rows that were stored, or they are read again, and never anything else; bounded."""

import dataclasses
import errno
import gc
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from headrace.errors import FixConfigError
from headrace.state.file_cache import LayerCache, default_cache, put_runs, write_run
from headrace.state.sorted_file import SortedFile
from headrace_lab.sizes import set_sizes
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.store import LocalStore, ObjectStore
from headrace_snapshots.store.local import MemoryStore
from tests.state.rows import STAGE, Row, batch

SCHEMA = STAGE.state_schema
ROWS = batch([Row(f"key {number}", number % 3, due_event=number % 7, hold=number) for number in range(100)])
LARGE = 10**9


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def cache(tmp_path: Path) -> LayerCache:
    return LayerCache(tmp_path / "cache", LARGE)


def put(store: ObjectStore, cache: LayerCache, rows: pa.RecordBatch = ROWS, name: str = "state") -> DataFile:
    (sorted_file,) = put_runs(store, cache, name, [rows])
    return sorted_file.file


def gets(store: ObjectStore, action: Callable[[], object]) -> int:
    requests_before = store.requests.snapshot()
    action()
    return store.requests.since(requests_before)["get"]


def files(cache: LayerCache) -> list[Path]:
    return sorted(cache.folder.glob("*.arrow"))


def reopen_cache(cache: LayerCache) -> LayerCache:
    """What the next process has."""
    return LayerCache(cache.folder, cache.limit_bytes)


def same(run: SortedFile) -> bool:
    """Whether it is what was stored, deadlines too."""
    deadlines, expected = run.deadlines, SortedFile(ROWS).deadlines
    indexes = [(deadlines.event, expected.event), (deadlines.time, expected.time), (deadlines.hold, expected.hold)]
    return run.rows.equals(ROWS) and all((a.times == b.times).all() and (a.rows == b.rows).all() for a, b in indexes)


def test_what_was_stored_is_not_read_again(store: MemoryStore, cache: LayerCache) -> None:
    file = put(store, cache)
    for reader in (cache, reopen_cache(cache)):
        assert gets(store, lambda reader=reader: reader.load_file(store, file, SCHEMA)) == 0
        run = reader.load_file(store, file, SCHEMA)
        assert same(run)
        assert run.known_deadlines is not None


def test_an_object_is_read_once(store: MemoryStore, cache: LayerCache, tmp_path: Path) -> None:
    file = put(store, cache)
    other = LayerCache(tmp_path / "other", LARGE)
    assert gets(store, lambda: other.load_file(store, file, SCHEMA)) == 1
    assert same(other.load_file(store, file, SCHEMA))
    assert gets(store, lambda: reopen_cache(other).load_file(store, file, SCHEMA)) == 0


def cut_off(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 100)


def half(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def empty(file: Path) -> None:
    os.truncate(file, 0)


def foreign(file: Path) -> None:
    file.write_bytes(b"ARROW1\0\0 not at all")


def another_schema(file: Path) -> None:
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, pa.schema([("a", pa.int64())])) as writer:
        writer.write(pa.record_batch({"a": [1]}))


def without_rows(file: Path) -> None:
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, SCHEMA):
        pass


@pytest.mark.parametrize("damage", [cut_off, half, empty, foreign, another_schema, without_rows, Path.unlink])
def test_a_file_that_is_no_run_is_made_again(
    store: MemoryStore, cache: LayerCache, damage: Callable[[Path], None]
) -> None:
    file = put(store, cache)
    damage(files(cache)[0])
    fresh = reopen_cache(cache)
    assert same(fresh.load_file(store, file, SCHEMA))
    assert gets(store, lambda: reopen_cache(cache).load_file(store, file, SCHEMA)) == 0


def test_the_rows_of_another_file_are_not_taken(store: MemoryStore, cache: LayerCache) -> None:
    file, other = put(store, cache), put(store, cache, ROWS.slice(0, 10), "other")
    (mine,) = (path for path in files(cache) if file.sha256 in path.name)
    (others,) = (path for path in files(cache) if other.sha256 in path.name)
    mine.write_bytes(others.read_bytes())
    assert same(reopen_cache(cache).load_file(store, file, SCHEMA))


@set_sizes(cache_look_seconds=0)
def test_the_least_recently_used_go_first_and_stay_readable_while_mapped(store: MemoryStore, cache: LayerCache) -> None:
    stored_files = [put(store, cache, ROWS.slice(number, 50), str(number)) for number in range(6)]
    sizes = [path.stat().st_size for path in files(cache)]
    held_files = [cache.load_file(store, file, SCHEMA) for file in stored_files]
    for age, file in enumerate([*stored_files[1:], stored_files[0]]):
        (path,) = (path for path in files(cache) if file.sha256 in path.name)
        os.utime(path, ns=(age, age))
    small = LayerCache(cache.folder, sum(sizes) * 7 // 12)
    put(store, small, ROWS.slice(40, 50), "one more")
    left = {path.name.split("-")[0] for path in files(cache)}
    assert len(left) == 4
    assert stored_files[0].sha256 in left  # used last
    assert not left & {file.sha256 for file in stored_files[1:4]}
    assert all(run.rows.equals(ROWS.slice(number, 50)) for number, run in enumerate(held_files))
    assert gets(store, lambda: small.load_file(store, stored_files[1], SCHEMA)) == 1


@pytest.mark.slow
def test_what_others_removed_is_let_go(store: MemoryStore, cache: LayerCache) -> None:
    """A file that is mapped takes room on the disk whether it has a name or not."""
    cache.limit_bytes = 0
    put(store, cache)
    (gone_file,) = files(cache)
    gone_file.unlink()

    def is_mapped() -> bool:
        return str(gone_file) in Path("/proc/self/maps").read_text()

    assert is_mapped()
    put(store, cache, ROWS.slice(0, 10), "another")
    gc.collect()
    assert not is_mapped()


def test_a_folder_that_is_removed_is_made_again(
    store: MemoryStore, cache: LayerCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = put(store, cache)
    held_file = cache.load_file(store, file, SCHEMA)
    shutil.rmtree(cache.folder)
    other = put(store, cache, ROWS.slice(0, 10), "other")
    assert len(files(cache)) == 1
    assert same(held_file)
    assert same(cache.load_file(store, file, SCHEMA))
    assert same(reopen_cache(cache).load_file(store, file, SCHEMA))
    assert gets(store, lambda: reopen_cache(cache).load_file(store, other, SCHEMA)) == 0
    removals = []

    def write_then_remove_folder(path: Path, run: SortedFile, notes: Mapping[str, str]) -> None:
        write_run(path, run, notes)
        if not removals:
            shutil.rmtree(cache.folder)
            removals.append(path)

    monkeypatch.setattr("headrace.state.file_cache.write_run", write_then_remove_folder)
    put(store, cache, ROWS.slice(0, 20), "another")
    assert removals
    assert len(files(cache)) == 1


def test_using_a_file_keeps_it(store: MemoryStore, cache: LayerCache) -> None:
    file = put(store, cache)
    (path,) = files(cache)
    os.utime(path, ns=(0, 0))
    cache.load_file(store, file, SCHEMA)
    assert path.stat().st_mtime_ns > 0


def test_a_process_that_begins_relies_on_a_look_that_another_just_had(store: MemoryStore, cache: LayerCache) -> None:
    put(store, cache)
    put(store, LayerCache(cache.folder, 1), ROWS.slice(0, 10), "other")
    assert len(files(cache)) == 2
    with set_sizes(cache_look_seconds=0):
        put(store, LayerCache(cache.folder, 1), ROWS.slice(0, 20), "another")
    assert len(files(cache)) == 1, "what is longest unused goes before the first file"


def test_a_process_that_begins_makes_room_where_the_disk_got_full_since_another_looked(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        put(store, LayerCache(tmp_path / "cache", None), ROWS.slice(0, 50 + number), str(number))
    cache = LayerCache(tmp_path / "cache", None)

    def write_if_there_is_room(path: Path, run: SortedFile, notes: Mapping[str, str]) -> None:
        if len(files(cache)) == 5:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_run(path, run, notes)

    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=0))
    monkeypatch.setattr("headrace.state.file_cache.write_run", write_if_there_is_room)
    put(store, cache, ROWS.slice(0, 60), "last")
    assert len(files(cache)) == 2, "a quarter of the five, and the new one"


def test_a_process_looks_once_it_brought_a_hundredth_of_the_limit(store: MemoryStore, cache: LayerCache) -> None:
    put(store, cache)
    small = LayerCache(cache.folder, 1)
    for number in range(3):
        put(store, small, ROWS.slice(0, 10 + number), str(number))
        assert len(files(cache)) == 2 if number == 0 else 1


@pytest.mark.slow
def test_its_size_is_bounded_however_much_enters(store: MemoryStore, cache: LayerCache) -> None:
    put(store, cache)
    limit = 10 * files(cache)[0].stat().st_size
    small = LayerCache(cache.folder, limit)
    for number in range(60):
        put(store, small, ROWS.slice(number % 40, 60), str(number))
        assert sum(path.stat().st_size for path in files(small)) < 1.2 * limit


@pytest.mark.slow
def test_no_file_stays_open(store: MemoryStore, cache: LayerCache) -> None:
    number_before = len(list(Path("/proc/self/fd").iterdir()))
    held_files = [cache.load_file(store, put(store, cache, ROWS.slice(n, 5), str(n)), SCHEMA) for n in range(20)]
    held_files += [
        reopen_cache(cache).load_file(store, put(store, cache, ROWS.slice(n, 5), str(n)), SCHEMA) for n in range(20)
    ]
    assert len(list(Path("/proc/self/fd").iterdir())) == number_before
    assert all(run.rows.num_rows == 5 for run in held_files)


# --- room for what tasks send each other


@contextmanager
def limit_resource(resource_: int, most: int) -> Iterator[None]:
    """Inside, this process may have no more of a resource."""
    limits_before = resource.getrlimit(resource_)
    resource.setrlimit(resource_, (most, limits_before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource_, limits_before)


def test_more_spans_are_read_than_files_may_be_open(cache: LayerCache) -> None:
    file = cache.scratch_file()
    spans = [file.append(pa.py_buffer(b"%d" % number * 9)) for number in range(300)]
    with limit_resource(resource.RLIMIT_NOFILE, len(list(Path("/proc/self/fd").iterdir())) + 20):
        contents = [file.read_span(span) for span in spans]
    assert [content.to_pybytes() for content in contents] == [b"%d" % number * 9 for number in range(300)]


def test_what_a_full_disk_did_not_take_is_told_and_the_rest_stays(cache: LayerCache) -> None:
    unraisable_errors: list[sys.UnraisableHookArgs] = []
    with pytest.MonkeyPatch.context() as patch, limit_resource(resource.RLIMIT_FSIZE, 10_000):
        patch.setattr("sys.unraisablehook", unraisable_errors.append)
        file = cache.scratch_file()
        spans = [file.append(pa.py_buffer(b"x" * 9_001))]
        for _ in range(2):
            with pytest.raises(FixConfigError, match="set HEADRACE_CACHE to a folder"):
                file.append(pa.py_buffer(b"y" * 5_000))
        assert [file.read_span(span).to_pybytes() for span in spans] == [b"x" * 9_001]
        del file
        gc.collect()
    assert not unraisable_errors


# --- objects that are checked before a run continues from them


@pytest.fixture(params=["memory", "local"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "root")


def requests(store: ObjectStore, action: Callable[[], object]) -> dict[str, int]:
    requests_before = store.requests.snapshot()
    action()
    return {kind: count for kind, count in store.requests.since(requests_before).items() if count}


def test_an_object_that_is_as_it_was_written_or_verified_costs_a_stat(
    any_store: ObjectStore, cache: LayerCache
) -> None:
    file = put(any_store, cache)
    assert requests(any_store, lambda: reopen_cache(cache).check(any_store, file, SCHEMA)) == {"stat": 1}
    files(cache)[0].unlink()
    assert requests(any_store, lambda: reopen_cache(cache).check(any_store, file, SCHEMA)) == {"stat": 1, "get": 1}
    assert requests(any_store, lambda: reopen_cache(cache).check(any_store, file, SCHEMA)) == {"stat": 1}
    assert requests(any_store, lambda: reopen_cache(cache).load_file(any_store, file, SCHEMA)) == {}


def flip(store: ObjectStore, path: str) -> None:
    data = bytearray(store.read(path))
    data[len(data) // 2] ^= 1
    store.write(path, bytes(data))


def shorten(store: ObjectStore, path: str) -> None:
    store.write(path, store.read(path)[:-1])


def remove(store: ObjectStore, path: str) -> None:
    store.delete(path)


@pytest.mark.parametrize("damage", [flip, shorten, remove])
@pytest.mark.parametrize("is_cached", [True, False])
def test_an_object_that_is_not_what_was_written_is_found_whatever_the_cache_holds(
    any_store: ObjectStore, cache: LayerCache, damage: Callable[[ObjectStore, str], None], is_cached: bool
) -> None:
    file = put(any_store, cache)
    damage(any_store, file.path)
    if not is_cached:
        files(cache)[0].unlink()
    with pytest.raises(BrokenObjectError, match=r"state-0\.parquet"):
        reopen_cache(cache).check(any_store, file, SCHEMA)


def test_a_copy_of_a_root_is_verified_once(cache: LayerCache, tmp_path: Path) -> None:
    store, copy = LocalStore(tmp_path / "root"), LocalStore(tmp_path / "copy")
    file = put(store, cache)
    copy.write(file.path, store.read(file.path))
    assert requests(copy, lambda: reopen_cache(cache).check(copy, file, SCHEMA)) == {"stat": 1, "get": 1}
    assert requests(copy, lambda: reopen_cache(cache).check(copy, file, SCHEMA)) == {"stat": 1}


def test_what_is_read_without_a_check_is_verified_too(store: MemoryStore, cache: LayerCache) -> None:
    file = put(store, cache)
    flip(store, file.path)
    files(cache)[0].unlink()
    with pytest.raises(BrokenObjectError):
        reopen_cache(cache).load_file(store, file, SCHEMA)
    assert files(cache) == []


# --- several processes, and folders

SHARING = """
import sys
from pathlib import Path
from headrace.state.file_cache import LayerCache
from headrace_snapshots.store import LocalStore
from tests.state.test_cache import ROWS, SCHEMA, put
folder, root, limit = Path(sys.argv[1]), LocalStore(Path(sys.argv[2])), int(sys.argv[3])
for number in range(30):
    cache = LayerCache(folder, limit)
    rows = ROWS.slice(number % 10, 50)
    file = put(root, cache, rows, f"{sys.argv[4]}-{number}")
    for reader in (cache, LayerCache(folder, limit)):
        assert reader.load_file(root, file, SCHEMA).rows.equals(rows)
"""


@pytest.mark.slow
def test_processes_share_a_folder(cache: LayerCache, tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "root")
    put(store, cache)
    limit = str(4 * files(cache)[0].stat().st_size)
    command = [sys.executable, "-c", SHARING, str(cache.folder), str(store.root), limit]
    processes = [subprocess.Popen([*command, name]) for name in ("one", "two", "three")]
    assert [process.wait(timeout=120) for process in processes] == [0, 0, 0]
    assert list((cache.folder / "unnamed").iterdir()) == []


DYING = """
import os, sys
from pathlib import Path
from headrace.state import file_cache as caches
from headrace_snapshots.store.local import MemoryStore
from tests.state.test_cache import LARGE, put
caches.write_run = lambda path, *_: os._exit(9)
put(MemoryStore(), caches.LayerCache(Path(sys.argv[1]), LARGE))
"""


@pytest.mark.slow
def test_what_a_process_left_that_died_goes(store: MemoryStore, cache: LayerCache) -> None:
    result = subprocess.run([sys.executable, "-c", DYING, str(cache.folder)], check=False, timeout=120)
    assert result.returncode == 9
    assert len(list((cache.folder / "unnamed").iterdir())) == 1
    put(store, cache)
    assert list((cache.folder / "unnamed").iterdir()) == []


def test_the_folder_is_the_users_own_and_made_where_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEADRACE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache = default_cache.__wrapped__()
    assert cache.folder == tmp_path / "headrace/state"
    assert cache.folder.stat().st_mode & 0o777 == 0o700


def test_without_a_limit_it_takes_a_quarter_of_what_the_disk_has_free_for_it(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bytes_free(free: int) -> None:
        monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free))

    def reopen() -> LayerCache:
        return LayerCache(tmp_path / "cache", None)

    with set_sizes(cache_look_seconds=0):
        bytes_free(10**9)
        for number in range(5):
            put(store, reopen(), ROWS.slice(0, 50 + number), str(number))
        assert len(files(reopen())) == 5
        bytes_free(0)
        put(store, reopen(), ROWS.slice(0, 60), "last")
        assert len(files(reopen())) == 2, "a quarter of the five, and the new one"


def test_the_environment_names_folder_and_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "here"))
    monkeypatch.setenv("HEADRACE_CACHE_BYTES", "1000")
    cache = default_cache.__wrapped__()
    assert (cache.folder, cache.limit_bytes) == (tmp_path / "here", 1000)
    monkeypatch.setenv("HEADRACE_CACHE_BYTES", "1 GB")
    with pytest.raises(FixConfigError, match="HEADRACE_CACHE_BYTES is '1 GB'"):
        default_cache.__wrapped__()


def test_a_folder_that_cannot_be_written_is_told(store: MemoryStore, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FixConfigError, match="set HEADRACE_CACHE to a folder"):
        LayerCache(tmp_path / "file/cache", LARGE)
    cache = LayerCache(tmp_path / "cache", LARGE)
    (cache.folder / "unnamed").rmdir()
    (cache.folder / "unnamed").touch()
    with pytest.raises(FixConfigError, match="set HEADRACE_CACHE to a folder"):
        put(store, cache)


def test_columns_of_one_value_are_what_they_were(store: MemoryStore, cache: LayerCache) -> None:
    """A lookup does not read them row by row. Zeros of both signs are equal, and stay what they are."""
    hashes = np.arange(0, 4000, 2, dtype=np.uint64)
    count = len(hashes)
    columns = {
        "_h": pa.array(hashes),
        "same": pa.repeat(7, count),
        "none": pa.nulls(count, pa.int64()),
        "ends": pa.array([1, *([2] * (count - 2)), 1], pa.int64()),
        "some": pa.array([5, None, *([5] * (count - 2))], pa.int64()),
        "zeros": pa.array([0.0, *([-0.0] * (count - 1))]),
        "text": pa.repeat("a", count),
        "truth": pa.repeat(True, count),
        "at": pa.repeat(pa.scalar(0, pa.timestamp("us", "UTC")), count),
    }
    rows = pa.RecordBatch.from_pydict(columns)
    file = put(store, cache, rows)
    for reader in (cache, reopen_cache(cache), LayerCache(cache.folder.parent / "empty", LARGE)):
        run = reader.load_file(store, file, rows.schema)
        assert {*run.constant} == {"same", "none", "truth", "at"}
        wanted_array = np.array([0, 1, 2, 600, 601, 3998, 5000], np.uint64)
        expected = rows.take(pa.array([0, 1, 300, 1999]))
        assert run.rows_of(wanted_array).equals(expected)
        assert str(run.rows_of(wanted_array, ["_h", "zeros"]).to_pylist()) == str(
            expected.select(["_h", "zeros"]).to_pylist()
        )
        part = dataclasses.replace(run, rows=run.rows.slice(300, 10))
        assert part.rows_of(wanted_array, ["_h", "same", "at"]).equals(rows.select(["_h", "same", "at"]).slice(300, 1))
