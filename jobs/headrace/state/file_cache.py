"""Data files on their way: the cache of their working form on a local disk, and rows of a layer put into the store.

The working form is uncompressed Arrow on the local disk, mapped into memory where it is looked at. A file in the format
of Arrow IPC has one record batch of one row: the rows of the run as a list of structs. Beside them are sorted columns
of what is dear to compute from many rows: when they want activations, and what they hold. Prefixes of hashes say which
keys the file does not have. A column that has one value in all rows is there as that value alone
(``state.sorted_file``).

``LayerCache`` may lose anything: the truth is the store. A file of the cache is named by the checksum of the content
that it was made of, so it is never stale; what enters was verified, or has just been written. Any number of processes
share a folder, and nobody waits for anybody. A file gets its name in one step when it is whole; one that is missing,
cut off or another's is made again. Once the files together pass the limit, the least recently used ones go; a process
that has one mapped keeps it. A folder that somebody removes is made again.

A file that is verified says of which object, and what that object's ETag was. While that is the same, ``check`` need
not read the object again. Files are of one boot of the machine, after which nobody knows whether all of them had
reached the disk. (So writing one waits for no disk.)

A cache also gives room for what an epoch sends between its tasks and memory should not hold: a ``ScratchFile``.

``put_run`` and ``put_runs`` put rows of a layer piece by piece, as files that any number of tasks can cut up again.
"""

import errno
import json
import mmap
import os
import shutil
import tempfile
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Final, Protocol

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import FixConfigError
from headrace.kernel.columns import as_numpy
from headrace.program import columns as c
from headrace.state.chunks import Hashes
from headrace.state.files import decode_parquet, decode_state, encode_parquet
from headrace.state.sorted_file import (
    DEADLINE_COLUMNS,
    DeadlineIndex,
    Deadlines,
    HashPrefixes,
    SortedFile,
    release_pages,
    repeat_value,
)
from headrace.this_process import Size
from headrace_snapshots.datafiles import info_of, read_verified
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.store import ObjectInfo, ObjectStore
from headrace_snapshots.store.local import sweep_folder, unnamed_file

FORM = 3
"""Changes with whatever would be read as something else."""

_ROWS, _NAMES, _VALUE, _PREFIXES = "rows", "names", "value of ", "hash_prefixes"
_SHIFT = "prefix_shift"

PREFIX_ROWS: Final = Size(1 << 12)
"""A file with fewer rows has no prefixes of its hashes: to search its rows takes no longer."""


def write_run(path: Path, run: SortedFile, notes: Mapping[str, str]) -> None:
    """Write ``run`` to the file ``path``, with some ``notes``."""
    rows = run.rows
    constant = _constant_values(rows, run.constant)
    # as many as there are rows tell their number
    varying = [name for name in rows.schema.names if name not in constant] or rows.schema.names[:1]
    varying_rows = rows.select(varying)
    fields = list(varying_rows.schema)
    columns = {_ROWS: _as_single_row(pa.StructArray.from_arrays(varying_rows.columns, fields=fields))}
    columns |= {f"{_VALUE}{name}": pa.repeat(value, 1) for name, value in constant.items() if name not in varying}
    if c.DUE_EVENT in rows.schema.names:
        for name, column in DEADLINE_COLUMNS.items():
            if column not in constant:
                index: DeadlineIndex = getattr(run.deadlines, name)
                columns |= {
                    f"{name}_times": _as_single_row(pa.array(index.times)),
                    f"{name}_rows": _as_single_row(pa.array(index.rows)),
                }
    if c.HASH in rows.schema.names and rows.num_rows >= PREFIX_ROWS.value and _is_ascending(run.hashes):
        prefixes = HashPrefixes.from_hashes(run.hashes)
        columns |= {_PREFIXES: _as_single_row(pa.array(prefixes.bits)), _SHIFT: pa.array(np.array([prefixes.shift]))}
    metadata = {**notes, _NAMES: json.dumps(rows.schema.names)}
    batch = pa.RecordBatch.from_pydict(columns).replace_schema_metadata(metadata)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)


def _is_ascending(hashes: Hashes) -> bool:
    """Whether rows can be looked up. What is only read as a whole may stand in another order."""
    return bool((hashes[1:] >= hashes[:-1]).all())


def open_run(path: Path, schema: pa.Schema) -> tuple[SortedFile, Mapping[str, str]] | None:
    """The run in the file ``path``, mapped, and its notes; None if it holds no run of rows of ``schema``."""
    with suppress(OSError, ValueError, KeyError, pa.ArrowException):
        with pa.memory_map(str(path)) as source:  # what is mapped stays mapped as long as somebody looks at it
            batch = pa.ipc.open_file(source).get_batch(0)
            # the buffer has to be all of the file: its pages are let go by it
            source.seek(0)
            file = source.read_buffer()
        notes = {name.decode(): text.decode() for name, text in (batch.schema.metadata or {}).items()}
        rows, constant = _rows_of_batch(batch, json.loads(notes.pop(_NAMES)))
        if rows.schema == schema:
            run = _sorted_file_from_batch(batch, rows, constant, file)
            if c.HASH in rows.schema.names:
                _ = run.hash_bounds  # read once, before the pages go
            release_pages(file)
            return run, notes
    return None


def stored_rows(path: Path) -> pa.RecordBatch | None:
    """The rows of the run in the file ``path``, whatever their schema; None if it holds none."""
    with suppress(OSError, ValueError, KeyError, pa.ArrowException), pa.memory_map(str(path)) as source:
        batch = pa.ipc.open_file(source).get_batch(0)
        return _rows_of_batch(batch, json.loads(batch.schema.metadata[_NAMES.encode()]))[0]
    return None


def _rows_of_batch(batch: pa.RecordBatch, names: Sequence[str]) -> tuple[pa.RecordBatch, dict[str, pa.Scalar]]:
    """The rows of a file, with the columns ``names``, and the values of those that have one in all rows."""
    values = batch.column(_ROWS).values
    varying = dict(zip((field.name for field in values.type), values.flatten(), strict=True))
    constant = {name: batch.column(f"{_VALUE}{name}")[0] for name in names if name not in varying}
    columns = [varying[name] if name in varying else repeat_value(constant[name], len(values)) for name in names]
    schema = pa.schema([(name, column.type) for name, column in zip(names, columns, strict=True)])
    return pa.RecordBatch.from_arrays(columns, schema=schema), constant


def _sorted_file_from_batch(
    batch: pa.RecordBatch, rows: pa.RecordBatch, constant: Mapping[str, pa.Scalar], file: pa.Buffer
) -> SortedFile:
    deadlines, prefixes = None, None
    if _PREFIXES in batch.schema.names:
        first, shift = rows.column(c.HASH)[0].as_py(), batch.column(_SHIFT)[0].as_py()
        bits = as_numpy(batch.column(_PREFIXES).values)
        prefixes = HashPrefixes(np.uint64(first), np.uint64(shift), bits)
    if c.DUE_EVENT in rows.schema.names:
        indexes = (
            DeadlineIndex.from_value(constant[column].as_py(), rows.num_rows)
            if column in constant
            else _deadline_index(batch, name, rows.num_rows)
            for name, column in DEADLINE_COLUMNS.items()
        )
        deadlines = Deadlines(*indexes)
    return SortedFile(rows, deadlines, file, constant, prefixes)


def _deadline_index(batch: pa.RecordBatch, name: str, length: int) -> DeadlineIndex:
    times, rows = (as_numpy(batch.column(f"{name}_{what}").values) for what in ("times", "rows"))
    return DeadlineIndex(times, rows, 0, length)


def _constant_values(rows: pa.RecordBatch, known_values: Mapping[str, pa.Scalar]) -> dict[str, pa.Scalar]:
    """The values of those columns of whole numbers, times and truths that have one in all ``rows``, if there are
    several. ``known_values``: some that are known to be.
    """
    if rows.num_rows < 2:
        return {}
    return {
        field.name: rows.column(field.name)[0]
        for field in rows.schema
        if field.name in known_values or (_is_exact(field.type) and _is_one(rows.column(field.name)))
    }


def _is_exact(kind: pa.DataType) -> bool:
    """Whether equal values are the same ones, and of one size: 0.0 and -0.0 are equal, and not the same."""
    return bool(pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_temporal(kind))


def _is_one(column: pa.Array) -> bool:
    if column.null_count:
        return bool(column.null_count == len(column))
    first = column[0]
    return bool(column[-1] == first and pc.all(pc.equal(column, first)).as_py())


def _as_single_row(values: pa.Array) -> pa.Array:
    """A column of one row that holds all ``values``."""
    return pa.LargeListArray.from_arrays(pa.array(np.array([0, len(values)])), values)


FOLDER_VARIABLE, BYTES_VARIABLE = "HEADRACE_CACHE", "HEADRACE_CACHE_BYTES"
DEFAULT_BYTES = 20 * 10**9
MAX_FILES = 10_000
"""The most files that are looked through in milliseconds."""
LOOK_SECONDS: Final = Size(60)
"""How long a process that begins relies on a look that another one had. All may exceed the limit by a hundredth each,
so they are few within this time.
"""

_FREE_SHARE = 4
_MOST_OPEN_FILES = 2048
_MOST_DECODED = 2
"""Objects that are decoded at a time, each in about 100 MB of memory; more may be on their way."""

_ENDING = ".arrow"
_UNNAMED_FOLDER, _LOOKED_THROUGH = "unnamed", "looked-through"
_NO_ROOM: Final = {errno.ENOSPC, errno.EDQUOT}
_CHECKSUM, _OBJECT, _ETAG = "sha256", "object", "etag"


class CacheFolderError(FixConfigError, code="config.cache_folder"):
    """The folder of the cache, or its limit, cannot be used."""


class RowCache(Protocol):
    """Where the rows of data files are, once somebody has read or written them."""

    def load_file(self, store: ObjectStore, file: DataFile, schema: pa.Schema) -> SortedFile:
        """The rows of ``file``, as ``schema`` says."""

    def add_file(self, store: ObjectStore, file: DataFile, run: SortedFile, info: ObjectInfo) -> SortedFile:
        """``run``, which was stored as ``file`` just now; ``info`` is what the store said of it."""

    def scratch_file(self) -> "ScratchFile":
        """A new file for what is soon read again. Raises CacheFolderError."""


class ScratchFile:
    """A file without a name in ``folder``, for threads of this process. It is gone once nobody holds it, or with the
    process. What it appends and reads are spans of bytes.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._lock, self._end = folder, threading.Lock(), 0
        with _folder_errors(folder):
            # what a full disk does not take is not tried once more when the file is closed
            self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 (it lives as long as this does)
        weakref.finalize(self, self._file.close)

    def append(self, content: pa.Buffer) -> slice:
        """Where ``content`` stands from now on. Raises CacheFolderError if the disk has no room."""
        with self._lock:
            span = slice(self._end, self._end + content.size)
            self._end = span.stop
        rest = memoryview(content)
        with _folder_errors(self._folder):
            while rest:
                rest = rest[os.pwrite(self._file.fileno(), rest, span.stop - len(rest)) :]
        return span

    def read_span(self, span: slice) -> pa.Buffer:
        """What was appended there, in memory that goes back to the system with it. Raises CacheFolderError."""
        # a mapping of the file has a descriptor of its own: a task reads more spans than a process may have open files
        memory = mmap.mmap(-1, span.stop - span.start, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        rest = memoryview(memory)
        with _folder_errors(self._folder):
            while rest:
                count = os.preadv(self._file.fileno(), [rest], span.stop - len(rest))
                if not count:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                rest = rest[count:]
        return pa.py_buffer(memory)


class RowsInMemory:
    """The rows of data files in this process's memory, all of them: for runs over little data that leave no files."""

    def __init__(self) -> None:
        self._runs: dict[str, SortedFile] = {}

    def load_file(self, store: ObjectStore, file: DataFile, schema: pa.Schema) -> SortedFile:
        """The rows of ``file``, as ``schema`` says. Raises BrokenObjectError."""
        cached_run = self._runs.get(file.path)
        if cached_run is None:
            cached_run = self._runs[file.path] = SortedFile(decode_parquet(read_verified(store, file), schema))
        return cached_run

    def add_file(self, store: ObjectStore, file: DataFile, run: SortedFile, info: ObjectInfo) -> SortedFile:
        """``run``, which was stored as ``file`` just now."""
        del store, info
        self._runs[file.path] = run
        return run

    def scratch_file(self) -> ScratchFile:
        """A new file for what is soon read again, in the folder for temporary files."""
        return ScratchFile(Path(tempfile.gettempdir()))


class LayerCache:
    """Data files in ``folder``, of about ``limit_bytes`` together. None: 20 GB, but no more than a quarter of what the
    disk has free for them. Safe for many threads and processes.
    """

    def __init__(self, folder: Path, limit_bytes: int | None) -> None:
        self.folder, self.limit_bytes = folder, limit_bytes
        self._unnamed_folder = folder / _UNNAMED_FOLDER
        self._open: OrderedDict[str, tuple[SortedFile, Mapping[str, str]]] = OrderedDict()
        self._lock = threading.Lock()
        self._decoding = threading.BoundedSemaphore(_MOST_DECODED)
        self._grown_bytes: int | None = None
        self._look_bytes = 0
        with _folder_errors(folder):
            self._make_folders()

    def load_file(self, store: ObjectStore, file: DataFile, schema: pa.Schema) -> SortedFile:
        """The rows of ``file``, as ``schema`` says: mapped, or read from ``store`` first.

        Raises BrokenObjectError for an object that is not what was written.
        """
        cached_run = self._open_cached(file, schema)
        return self._read_from_store(store, file, schema, None) if cached_run is None else cached_run

    def check(self, store: ObjectStore, file: DataFile, schema: pa.Schema, info: ObjectInfo | None = None) -> None:
        """Make sure that the object of ``file`` is what was written, and that its rows are here.

        A stat, or nothing where a listing has said what there is (``info``), if the same object was verified when they
        came here; else it is read. Raises BrokenObjectError.
        """
        info = info_of(store, file) if info is None else info
        notes = _cache_notes(store, file, info.etag)
        if info.size != file.bytes or not self._has_rows(file, schema, notes):
            self._read_from_store(store, file, schema, info.etag)

    def add_file(self, store: ObjectStore, file: DataFile, run: SortedFile, info: ObjectInfo) -> SortedFile:
        """``run``, which was stored as ``file`` just now, mapped; ``info`` is what the store said of it."""
        return self._write_and_open(file, run, _cache_notes(store, file, info.etag))

    def scratch_file(self) -> ScratchFile:
        """A new file for what is soon read again, in the folder of the cache. Raises CacheFolderError."""
        with _folder_errors(self.folder):
            self._make_folders()  # which somebody may have removed
        return ScratchFile(self._unnamed_folder)

    def object_content(self, file: DataFile) -> bytes | None:
        """What an object with the checksum of ``file`` holds, if its rows are here: they are written as they were then.

        The caller compares checksums before storing it: another version of Arrow may write the same rows otherwise.
        """
        rows = stored_rows(self._cache_path(file))
        return None if rows is None else encode_parquet(rows).data

    def _has_rows(self, file: DataFile, schema: pa.Schema, notes: Mapping[str, str]) -> bool:
        """Whether the rows of ``file`` are here with these ``notes``: mapped by this process, or else in the folder."""
        with self._lock:
            open_run_and_notes = self._open.get(self._cache_path(file).name)
        if (
            open_run_and_notes is not None
            and open_run_and_notes[1] == notes
            and open_run_and_notes[0].rows.schema == schema
        ):
            return True
        run_and_notes = open_run(self._cache_path(file), schema)
        if run_and_notes is None or run_and_notes[1] != notes:
            return False
        self._keep_open(file, *run_and_notes)
        return True

    def _read_from_store(self, store: ObjectStore, file: DataFile, schema: pa.Schema, etag: str | None) -> SortedFile:
        data = read_verified(store, file)
        with self._decoding:
            rows, constant = decode_state(data, schema)
            run = SortedFile(rows, constant=constant)
            return self._write_and_open(file, run, _cache_notes(store, file, etag))

    def _write_and_open(self, file: DataFile, run: SortedFile, notes: dict[str, str]) -> SortedFile:
        with _folder_errors(self.folder):
            try:
                written_run = self._write_file(file, run, notes)
            except FileNotFoundError:  # somebody has removed the folder: nothing in it is missed
                self._make_folders()
                written_run = self._write_file(file, run, notes)
            except OSError as error:
                if error.errno not in _NO_ROOM:
                    raise
                self._look_through()  # the disk got full since the last look
                written_run = self._write_file(file, run, notes)
        self._keep_open(file, written_run, notes)
        return written_run

    def _make_folders(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._unnamed_folder.mkdir(exist_ok=True)

    def _write_file(self, file: DataFile, run: SortedFile, notes: dict[str, str]) -> SortedFile:
        self._make_room()
        with unnamed_file(self._unnamed_folder) as (path, content):
            write_run(path, run, notes)
            # a name that does not tell the boot outlives a power cut, and so must the content
            if not _BOOT:
                os.fsync(content.fileno())
            self._grown_bytes = (self._grown_bytes or 0) + path.stat().st_size
            # before it has its name: from then on another process may remove it to make room
            run_and_notes = open_run(path, run.rows.schema)
            path.replace(self._cache_path(file))  # raises if it was removed meanwhile
        assert run_and_notes is not None
        return run_and_notes[0]

    def _open_cached(self, file: DataFile, schema: pa.Schema) -> SortedFile | None:
        path = self._cache_path(file)
        with self._lock:
            run_and_notes = self._open.get(path.name)
            if run_and_notes is not None:
                self._open.move_to_end(path.name)
        if run_and_notes is None or run_and_notes[0].rows.schema != schema:
            run_and_notes = open_run(path, schema)
            if run_and_notes is None or run_and_notes[1].get(_CHECKSUM) != file.sha256:
                return None
            self._keep_open(file, *run_and_notes)
        with suppress(OSError):  # evicted meanwhile
            os.utime(path)
        return run_and_notes[0]

    def _keep_open(self, file: DataFile, run: SortedFile, notes: Mapping[str, str]) -> None:
        with self._lock:
            self._open[self._cache_path(file).name] = run, notes
            while len(self._open) > _MOST_OPEN_FILES:
                self._open.popitem(last=False)

    def _cache_path(self, file: DataFile) -> Path:
        return self.folder / f"{file.sha256}-{FORM}{_BOOT}{_ENDING}"

    def _make_room(self) -> None:
        """Remove what is longest unused: before the first file, and after each hundredth of the limit that came. The
        first time another process may just have done so: one of many short runs would spend a tenth of its CPU on it.
        """
        with self._lock:
            if self._grown_bytes is not None and self._grown_bytes <= self._look_bytes:
                return
            is_first, self._grown_bytes = self._grown_bytes is None, 0
        if is_first:
            sweep_folder(self._unnamed_folder)
            self._look_bytes = self._limit_beside(0) // 100
            if self._is_just_looked_through():
                return
        self._look_through()

    def _look_through(self) -> None:
        """Remove what is longest unused, as far as there is more than the limit."""
        with suppress(OSError):  # another user's, or the disk is full
            (self.folder / _LOOKED_THROUGH).touch()
        files = sorted(_cached_files(self.folder), reverse=True)
        limit = self._limit_beside(sum(size for _, size, _ in files))
        self._look_bytes = limit // 100
        left: set[str] = set()
        total = 0
        for _, size, name in files:
            total += size
            if total <= limit and len(left) < MAX_FILES:
                left.add(name)
            else:
                (self.folder / name).unlink(missing_ok=True)
        with self._lock:  # the disk gets room back when nobody has a file mapped
            for name in self._open.keys() - left:
                del self._open[name]

    def _is_just_looked_through(self) -> bool:
        try:
            os.utime(self._unnamed_folder)
            looked_at = (self.folder / _LOOKED_THROUGH).stat().st_mtime_ns
            # both by the clock of the file system
            return 0 <= self._unnamed_folder.stat().st_mtime_ns - looked_at < LOOK_SECONDS.value * 10**9
        except OSError:
            return False

    def _limit_beside(self, cached_bytes: int) -> int:
        """How many bytes there may be, where the cache has ``cached_bytes`` now."""
        if self.limit_bytes is not None:
            return self.limit_bytes
        return min(DEFAULT_BYTES, (shutil.disk_usage(self.folder).free + cached_bytes) // _FREE_SHARE)


@cache
def default_cache() -> LayerCache:
    """The cache of this process, in the folder HEADRACE_CACHE (default:
    ``${XDG_CACHE_HOME:-~/.cache}/headrace/state``). Its limit is HEADRACE_CACHE_BYTES (20 GB, but no more than a
    quarter of what the disk has free for it).
    """
    return LayerCache(_cache_folder(), _set_limit())


def _cache_folder() -> Path:
    if setting := os.environ.get(FOLDER_VARIABLE):
        return Path(setting)
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "headrace" / "state"
    try:
        return Path.home() / ".cache" / "headrace" / "state"
    except RuntimeError as error:
        raise CacheFolderError(
            f"this user has no home folder for the cache of state: set {FOLDER_VARIABLE} to a folder on a local disk"
        ) from error


def _set_limit() -> int | None:
    setting = os.environ.get(BYTES_VARIABLE)
    if setting is not None and not setting.isdecimal():
        raise CacheFolderError(f"{BYTES_VARIABLE} is {setting!r}: give a number of bytes, or leave it out")
    return None if setting is None else int(setting)


def _cached_files(folder: Path) -> Iterator[tuple[int, int, str]]:
    """When each file of the cache was used last, its size and its name."""
    with os.scandir(folder) as scan:
        for entry in scan:
            if entry.name.endswith(_ENDING):
                with suppress(FileNotFoundError):  # another process was faster
                    status = entry.stat()
                    yield status.st_mtime_ns, status.st_size, entry.name


def _cache_notes(store: ObjectStore, file: DataFile, etag: str | None) -> dict[str, str]:
    """What a file of the cache says of itself: the content that it is made of, and the object that was verified."""
    object_notes = {} if etag is None else {_OBJECT: f"{store.uri}/{file.path}", _ETAG: etag}
    return {_CHECKSUM: file.sha256, **object_notes}


def _boot_suffix() -> str:
    with suppress(OSError):
        return "-" + Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


_BOOT = _boot_suffix()
"""Which boot of the machine this is; empty where nobody says."""


@contextmanager
def _folder_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CacheFolderError(
            f"{error.filename or folder} cannot be used as the cache of state: {error.strerror or error}; set "
            f"{FOLDER_VARIABLE} to a folder on a local disk that can be written, {BYTES_VARIABLE} to what it may hold"
        ) from error


RUN_BYTES: Final = Size(32 * 1024 * 1024)
"""What the rows of one file take in memory: three times as much is held while it is written, or read."""


class StoredRun(msgspec.Struct, frozen=True):
    """A file of a layer, and its rows, mapped."""

    file: DataFile
    run: SortedFile


class RunWriter:
    """Rows that come in the order of their hashes and become files of about RUN_BYTES, called ``name`` and a number,
    while more of them come. The files say their key groups, and each enters the cache once it is stored.
    """

    def __init__(self, store: ObjectStore, cache: RowCache, name: str) -> None:
        self._store, self._cache, self._name = store, cache, name
        self._stored_runs: list[StoredRun] = []
        self._held_batches: list[pa.RecordBatch] = []
        self._size = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """These, too; no rows are fine."""
        for part in _split_by_size(rows):
            if self._held_batches and self._size + part.nbytes > RUN_BYTES.value:
                self._put_file()
            self._held_batches.append(part)
            self._size += part.nbytes

    def finish(self) -> tuple[StoredRun, ...]:
        """All files; none for no rows."""
        if self._held_batches:
            self._put_file()
        return tuple(self._stored_runs)

    def _put_file(self) -> None:
        rows = self._held_batches[0] if len(self._held_batches) == 1 else pa.concat_batches(self._held_batches)
        self._held_batches, self._size = [], 0
        path = f"{self._name}-{len(self._stored_runs)}.parquet"
        self._stored_runs.append(put_run(self._store, self._cache, path, rows))


def put_run(store: ObjectStore, cache: RowCache, path: str, rows: pa.RecordBatch) -> StoredRun:
    """Store rows in the order of their hashes as one file, which enters the cache."""
    encoded_file = encode_parquet(rows)
    info = store.write(path, encoded_file.data)
    file = encoded_file.data_file(path)
    return StoredRun(file, cache.add_file(store, file, SortedFile(rows), info))


def put_runs(store: ObjectStore, cache: RowCache, name: str, pieces: Iterable[pa.RecordBatch]) -> tuple[StoredRun, ...]:
    """``pieces`` as ``RunWriter`` stores them."""
    writer = RunWriter(store, cache, name)
    for rows in pieces:
        writer.add(rows)
    return writer.finish()


def _split_by_size(piece: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    rows = max(1, int(RUN_BYTES.value * piece.num_rows / max(piece.nbytes, 1)))
    return (piece.slice(begin, rows) for begin in range(0, piece.num_rows, rows))
