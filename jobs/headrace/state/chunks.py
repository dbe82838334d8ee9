"""Parts of the rows of a table: groups of keys by their hash, and chunks of files with checksums of their own.

A key group is the top bits of a key's hash. A part of the keys is a run of groups. So any number of parts finds its own
rows in what any other number of parts has stored.

A chunk has some thousand rows, so that a reader of a few rows reads and verifies these, and not all of a file. It is a
row group of Parquet. The footer of the file lists its chunks (in the metadata under ``KEY``): where each is, what it
holds, its SHA-256. The manifest has the length and the SHA-256 of the footer. A reader that trusts the manifest
compares the footer with it, and a chunk with the footer; then it can trust both. Readers of whole files compare one
checksum.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from headrace.kernel.columns import Ints
from headrace.model.accumulation import EVENT_TIME, ROW_COLUMNS, WINDOW_END, WINDOW_START
from headrace.this_process import Size
from headrace_snapshots.datafiles import verified_range
from headrace_snapshots.format.codec import JsonRecord, checksum
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.store import ObjectStore

GROUPS = 1 << 16
_GROUP_SHIFT = np.uint64(48)

Hashes = NDArray[np.uint64]


@dataclass(frozen=True)
class KeyGroupRange:
    """The key groups ``first`` to ``last``, inclusive."""

    first: int
    last: int

    def overlaps(self, groups: tuple[int, int] | None) -> bool:
        """Whether some of ``groups`` (first, last; None: of nobody knows which) may be among its own."""
        return groups is None or (groups[0] <= self.last and self.first <= groups[1])

    def contains(self, groups: tuple[int, int] | None) -> bool:
        """Whether all of ``groups`` are among its own."""
        return groups is not None and self.first <= groups[0] and groups[1] <= self.last

    def split_evenly(self, number: int) -> "tuple[KeyGroupRange, ...]":
        """Itself in ``number`` parts of nearly one size, or in as many as it has groups."""
        size = self.last + 1 - self.first
        bounds = [self.first + index * size // min(number, size) for index in range(min(number, size) + 1)]
        return tuple(KeyGroupRange(first, end - 1) for first, end in pairwise(bounds))

    def row_slice(self, hashes: Hashes) -> slice:
        """Where its rows stand in ascending ``hashes``."""
        low = np.uint64(self.first) << _GROUP_SHIFT
        high = (np.uint64(self.last) << _GROUP_SHIFT) | np.uint64((1 << 48) - 1)
        begin, end = np.searchsorted(hashes, low, "left"), np.searchsorted(hashes, high, "right")
        return slice(int(begin), int(end))


WHOLE = KeyGroupRange(0, GROUPS - 1)


def key_group_ranges(number: int) -> tuple[KeyGroupRange, ...]:
    """All key groups in ``number`` parts of nearly one size."""
    bounds = [-(-index * GROUPS // number) for index in range(number + 1)]
    return tuple(KeyGroupRange(first, end - 1) for first, end in pairwise(bounds))


def part_of(hashes: Hashes, number: int) -> Ints:
    numbers: Ints = group_of(hashes) * number // GROUPS
    return numbers


def group_of(hashes: Hashes) -> Ints:
    groups: Ints = (hashes >> _GROUP_SHIFT).astype(np.int64)
    return groups


def groups_of(hashes: Hashes) -> tuple[int, int] | None:
    """The first and the last group of ascending ``hashes``, None if there are none."""
    if not len(hashes):
        return None
    return int(hashes[0] >> _GROUP_SHIFT), int(hashes[-1] >> _GROUP_SHIFT)


CHUNK_ROWS: Final = Size(1 << 14)
LEAST_FOOTERS: Final = Size(4)
"""So many times as long as its footer is a file whose footer is read first."""
MOST_OF_A_FILE: Final = Size(0.5)
"""Where more of it is needed, a file is read whole, with one request."""
KEY = b"headrace.chunks"

Interval = tuple[int, int]


class Chunk(JsonRecord, frozen=True, array_like=True):
    """Where a chunk is in its file, and what it holds: ``groups`` and ``windows`` as those of a data file."""

    start: int
    bytes: int
    sha256: str
    groups: Interval | None
    windows: Interval | None


def encode_chunks(chunks: Iterable[Chunk]) -> bytes:
    """What the footer says of ``chunks``."""
    return json.dumps([chunk.to_json() for chunk in chunks], separators=(",", ":")).encode()


def enclosing_range(pairs: Iterable[Interval | None]) -> Interval | None:
    """The least span that all of ``pairs`` lie in; None if that of some is not known."""
    known_pairs = list(pairs)
    if not known_pairs or None in known_pairs:
        return None
    return min(pair[0] for pair in known_pairs if pair), max(pair[1] for pair in known_pairs if pair)


_WINDOW, _INSTANT = (WINDOW_START, WINDOW_END), (EVENT_TIME,)


def windows_of(rows: pa.RecordBatch) -> Interval | None:
    """When the first window of ``rows`` begins and the last one ends, of rows without windows their first and last
    instant; None where no window is finite.
    """
    column_names = rows.schema.names
    are_rows = (
        tuple(column_names[-len(ROW_COLUMNS) :]) == ROW_COLUMNS
    )  # whose own columns may be called as ends of windows
    names = _INSTANT if are_rows else next((names for names in (_WINDOW, _INSTANT) if {*names} <= {*column_names}), ())
    ends = [pc.min_max(rows.column(name).cast(pa.int64())) for name in names]
    known_bounds = [extremes[end].as_py() for extremes in ends for end in ("min", "max") if extremes[end].is_valid]
    return (min(known_bounds), max(known_bounds)) if known_bounds else None


def in_order(rows: pa.RecordBatch, hashes: Hashes) -> tuple[pa.RecordBatch, Hashes]:
    """``rows`` and their hashes by ascending hash; rows of one hash as they stand."""
    if (hashes[1:] >= hashes[:-1]).all():
        return rows, hashes
    order = np.argsort(hashes, kind="stable")
    return rows.take(pa.array(order)), hashes[order]


def chunk_at(start: int, data: memoryview, rows: pa.RecordBatch, hashes: Hashes | None) -> Chunk:
    """The chunk of ``rows``, of ascending hashes, whose ``data`` begin at ``start`` of the file."""
    groups = None if hashes is None else groups_of(hashes)
    return Chunk(start, len(data), checksum(data), groups, windows_of(rows))


def some_rows(
    store: ObjectStore, file: DataFile, is_wanted: Callable[[Interval | None, Interval | None], bool]
) -> pa.Table | None:
    """The rows of those chunks of ``file`` that are wanted by their ``groups`` and ``windows``, verified; None if it is
    as well to read all of the file. Raises BrokenObjectError.
    """
    footer = file.footer
    if footer is None or file.bytes < LEAST_FOOTERS.value * footer.bytes:
        return None
    # the manifest vouches for the footer, and the footer for each chunk
    start = file.bytes - footer.bytes
    tail = verified_range(store, file, [(start, footer.bytes, footer.sha256)])
    content = np.zeros(file.bytes, np.uint8)  # of which no page is there until it is written to
    content[start:] = np.frombuffer(tail, np.uint8)
    parquet_file = pq.ParquetFile(pa.BufferReader(pa.py_buffer(content)))
    chunks = [Chunk.from_json(chunk) for chunk in json.loads(parquet_file.metadata.metadata[KEY])]
    wanted_chunks = [number for number, chunk in enumerate(chunks) if is_wanted(chunk.groups, chunk.windows)]
    # one request for all costs less than several for the most of it
    if sum(chunks[number].bytes for number in wanted_chunks) > MOST_OF_A_FILE.value * file.bytes:
        return None
    for run in _consecutive_runs(wanted_chunks):
        parts = [(chunks[number].start, chunks[number].bytes, chunks[number].sha256) for number in run]
        data = verified_range(store, file, parts)
        content[parts[0][0] :][: len(data)] = np.frombuffer(data, np.uint8)
    return parquet_file.read_row_groups(wanted_chunks, use_threads=False)


def _consecutive_runs(numbers: Sequence[int]) -> list[list[int]]:
    """``numbers``, which ascend, in runs of those that follow each other."""
    runs = groupby(enumerate(numbers), key=lambda place: place[1] - place[0])
    return [[number for _, number in run] for _, run in runs]


def in_part(part: KeyGroupRange) -> Callable[[Interval | None, Interval | None], bool]:
    """What ``some_rows`` wants for the keys of ``part``."""
    return lambda groups, _windows: part.overlaps(groups)
