"""Data files as DuckDB can open them: where they are if the root is local; else copies, or of the rows that are needed.

Each is held against its length and checksum first.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from headrace.read.views.database import check_room
from headrace.read.views.parquet_sql import is_pattern
from headrace.read.views.pruning import ALL, Needed
from headrace_snapshots.datafiles import local_copy
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.store import LocalStore, ObjectStore

_SMALL: Final = 2**18
"""Bytes of a file that is read with one request, whatever is needed of it."""

_AT_ONCE, _SMALL_AT_ONCE = 4, 16
"""Files on their way at a time: each of up to 128 MB is held in memory until it is on the disk."""

Result = TypeVar("Result")


def brought(store: ObjectStore, files: Sequence[DataFile], folder: Path, needed: Needed = ALL) -> list[Path]:
    """Where each of ``files`` can be read, verified: the file itself if ``store`` is local, else a copy in ``folder``.
    Of a large one that says where its rows are, a copy of those which are ``needed``; of one whose path DuckDB would
    take for a pattern, a link.

    Raises BrokenObjectError, and ReadResourcesError where there is no room for copies.
    """
    copies = [folder / f"{number:06}.parquet" for number in range(len(files))]
    parts = [] if needed.is_all else [pair for pair in zip(files, copies, strict=True) if has_parts(pair[0])]
    cut = {path for path in _at_once(store, partial(_cut, store, needed), parts) if path is not None}
    whole = [(file, path) for file, path in zip(files, copies, strict=True) if path not in cut]
    if whole and not isinstance(store, LocalStore):
        check_room(sum(file.bytes for file, _ in whole), folder)
    paths = dict(zip(copies, copies, strict=True))
    read = _at_once(store, partial(_whole, store), whole)
    paths.update(zip((path for _, path in whole), read, strict=True))
    return [*paths.values()]


def _at_once(
    store: ObjectStore, function: Callable[[tuple[DataFile, Path]], Result], pairs: Sequence[tuple[DataFile, Path]]
) -> Iterable[Result]:
    """What ``function`` gives for each of ``pairs``: in threads, unless there is little to wait for."""
    if little_to_wait_for(store, [file for file, _ in pairs]):
        return [*map(function, pairs)]
    threads = _SMALL_AT_ONCE if all(file.bytes < _SMALL for file, _ in pairs) else _AT_ONCE
    with ThreadPoolExecutor(threads, thread_name_prefix="read") as pool:
        return [*pool.map(function, pairs)]


def _whole(store: ObjectStore, pair: tuple[DataFile, Path]) -> Path:
    file, path = pair
    own = local_copy(store, file, path)
    if own != path and is_pattern(own):
        path.symlink_to(own)  # of files that it may open, DuckDB knows no patterns
        return path
    return own


def little_to_wait_for(store: ObjectStore, files: Iterable[DataFile]) -> bool:
    """Whether ``files`` are read as fast one after another: they are small, and on this machine."""
    return isinstance(store, LocalStore) and all(file.bytes < _SMALL for file in files)


def has_parts(file: DataFile) -> bool:
    """Whether ``file`` says where its rows are, and is too large to be read whole for some of them."""
    return file.footer is not None and file.bytes >= _SMALL


def _cut(store: ObjectStore, needed: Needed, pair: tuple[DataFile, Path]) -> Path | None:
    """The path, where the rows of the file that are ``needed`` can be read; None if it is as well to read all of it.

    Raises BrokenObjectError.
    """
    import pyarrow.parquet as pq

    from headrace.state.datafiles.chunks import some_rows

    file, path = pair
    rows = some_rows(store, file, needed.may_be_in)
    if rows is None:
        return None
    pq.write_table(rows, path, compression="none")
    return path
