"""Putting the rows of a layer into the store, piece by piece, as files that any number of tasks can cut up again."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from headrace.state.datafiles.cache import RowCache
from headrace.state.datafiles.files import parquet
from headrace.state.datafiles.sorted_file import SortedFile
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.store import ObjectStore

RUN_BYTES = 32 * 1024 * 1024
"""What the rows of one file take in memory: three times as much is held while it is written, or read."""


@dataclass(frozen=True)
class StoredRun:
    """A file of a layer, and its rows, mapped."""

    file: DataFile
    run: SortedFile


class RunWriter:
    """Rows that come in the order of their hashes and become files of about RUN_BYTES, called ``name`` and a number,
    while more of them come. The files say their key groups, and each enters the cache once it is stored.
    """

    def __init__(self, store: ObjectStore, cache: RowCache, name: str) -> None:
        self._store, self._cache, self._name = store, cache, name
        self._stored: list[StoredRun] = []
        self._held: list[pa.RecordBatch] = []
        self._size = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """These, too; no rows are fine."""
        for part in _cut(rows):
            if self._held and self._size + part.nbytes > RUN_BYTES:
                self._put()
            self._held.append(part)
            self._size += part.nbytes

    def done(self) -> tuple[StoredRun, ...]:
        """All files; none for no rows."""
        if self._held:
            self._put()
        return tuple(self._stored)

    def _put(self) -> None:
        rows = self._held[0] if len(self._held) == 1 else pa.concat_batches(self._held)
        self._held, self._size = [], 0
        path = f"{self._name}-{len(self._stored)}.parquet"
        self._stored.append(put_run(self._store, self._cache, path, rows))


def put_run(store: ObjectStore, cache: RowCache, path: str, rows: pa.RecordBatch) -> StoredRun:
    """Store rows in the order of their hashes as one file, which enters the cache."""
    written = parquet(rows)
    info = store.write(path, written.data)
    file = written.file(path)
    return StoredRun(file, cache.enter(store, file, SortedFile(rows), info))


def put_runs(store: ObjectStore, cache: RowCache, name: str, pieces: Iterable[pa.RecordBatch]) -> tuple[StoredRun, ...]:
    """``pieces`` as ``RunWriter`` stores them."""
    writer = RunWriter(store, cache, name)
    for rows in pieces:
        writer.add(rows)
    return writer.done()


def _cut(piece: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    rows = max(1, int(RUN_BYTES * piece.num_rows / max(piece.nbytes, 1)))
    return (piece.slice(begin, rows) for begin in range(0, piece.num_rows, rows))
