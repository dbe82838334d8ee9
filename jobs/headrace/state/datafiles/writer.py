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


def put_runs(store: ObjectStore, cache: RowCache, name: str, pieces: Iterable[pa.RecordBatch]) -> Iterator[StoredRun]:
    """Store rows that come in the order of their hashes as files of about RUN_BYTES, which say their key groups, called
    ``name`` and a number. Each enters the cache once it is stored.
    """
    for number, rows in enumerate(collected(pieces)):
        written = parquet(rows)
        path = f"{name}-{number}.parquet"
        info = store.write(path, written.data)
        file = written.file(path)
        yield StoredRun(file, cache.enter(store, file, SortedFile(rows), info))


def collected(pieces: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in pieces of about RUN_BYTES."""
    held: list[pa.RecordBatch] = []
    size = 0
    for piece in pieces:
        for part in _cut(piece):
            if held and size + part.nbytes > RUN_BYTES:
                yield _together(held)
                held, size = [], 0
            held.append(part)
            size += part.nbytes
    if held:
        yield _together(held)


def _cut(piece: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    rows = max(1, int(RUN_BYTES * piece.num_rows / max(piece.nbytes, 1)))
    return (piece.slice(begin, rows) for begin in range(0, piece.num_rows, rows))


def _together(pieces: list[pa.RecordBatch]) -> pa.RecordBatch:
    return pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces)
