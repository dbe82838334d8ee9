"""Names files: Parquet with a row for each file of an input that was read, sorted by the bytes of the name."""

import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.ext.sources import SourceSplit
from headrace.ext.stores import sort_key
from headrace.kernel.columns import as_numpy
from headrace.sources.progress import KnownVersion, hash_text
from headrace.this_process import Size
from headrace_snapshots.store import ObjectInfo

SCHEMA = pa.schema([("path", pa.binary()), ("size", pa.int64()), ("etag", pa.uint64()), ("digest", pa.uint64())])
ROWS: Final = Size(32_768)
"""Rows of one group: so many are decoded at a time, and a listing is cut where they end."""


class NamesLookup:
    """Looks up in names files, oldest first, what is asked for in ascending order; where it does not ascend, the files
    are read from their beginning again.
    """

    def __init__(self, files: Sequence[bytes]) -> None:
        self._files = files
        self._last = b""
        self._cursors = [_Cursor(data) for data in files]

    def find_news(self, infos: Sequence[ObjectInfo]) -> tuple[set[str], dict[str, KnownVersion]]:
        """Which of ``infos`` are in no file, and what those were that are listed otherwise now, by name."""
        listed_objects = _ListedObjects(infos)
        if listed_objects.first <= self._last:
            self._cursors = [_Cursor(data) for data in self._files]
        self._last = listed_objects.last
        for cursor in self._cursors:  # the newest comes last, and counts
            cursor.look_up(listed_objects)
        names = [info.path for info in listed_objects.infos]
        unknown = {names[row] for row in np.flatnonzero(listed_objects.is_unknown).tolist()}
        return unknown, {names[row]: version for row, version in listed_objects.changed_versions.items()}


class _ListedObjects:
    """Objects of a listing in the order of their names, and what was found of each."""

    def __init__(self, infos: Sequence[ObjectInfo]) -> None:
        by_path = {sort_key(info.path): info for info in infos}
        paths = sorted(by_path)
        self.infos = infos = [by_path[path] for path in paths]
        self.first, self.last = paths[0], paths[-1]
        self.paths = pa.array(paths, pa.binary())
        self.sizes = np.fromiter((info.size for info in infos), np.int64, len(infos))
        self.etags = np.fromiter((hash_text(info.etag) for info in infos), np.uint64, len(infos))
        self.is_unknown = np.ones(len(infos), bool)
        self.changed_versions: dict[int, KnownVersion] = {}

    def match_rows(self, rows: pa.RecordBatch) -> None:
        """Take in what ``rows`` of a names file say."""
        place = pc.index_in(rows.column("path"), value_set=self.paths)
        rows, rows_here = rows.filter(place.is_valid()), as_numpy(place.drop_null())
        if not len(rows_here):
            return
        is_same = (as_numpy(rows.column("size")) == self.sizes[rows_here]) & (
            as_numpy(rows.column("etag")) == self.etags[rows_here]
        )
        self.is_unknown[rows_here] = False
        if self.changed_versions:
            for row in rows_here[is_same].tolist():
                self.changed_versions.pop(row, None)
        if not is_same.all():
            others = rows.filter(pa.array(~is_same))
            columns = [others.column(name).to_pylist() for name in ("size", "etag", "digest")]
            versions = (KnownVersion(*version) for version in zip(*columns, strict=True))
            self.changed_versions |= dict(zip(rows_here[~is_same].tolist(), versions, strict=True))


class _Cursor:
    """Reads a names file from its beginning to its end, as far as names are looked up."""

    def __init__(self, data: bytes) -> None:
        self._batches = _row_batches(data)
        self._batch = next(self._batches, None)

    def look_up(self, objects: _ListedObjects) -> None:
        """Match all rows up to the last of ``objects``."""
        while self._batch is not None:
            paths = self._batch.column("path")
            if paths[0].as_py() > objects.last:
                return
            if paths[len(paths) - 1].as_py() >= objects.first:
                objects.match_rows(self._batch)
            if paths[len(paths) - 1].as_py() > objects.last:
                return
            self._batch = next(self._batches, None)


def names_table(files: Iterable[SourceSplit]) -> pa.Table:
    """The rows of ``files``, sorted; the last row of a name counts."""
    last = {sort_key(file.path): KnownVersion.from_file(file) for file in files}
    paths = sorted(last)
    versions = [last[path] for path in paths]
    columns = [paths, *([version[number] for version in versions] for number in range(3))]
    return pa.table([pa.array(column, kind.type) for column, kind in zip(columns, SCHEMA, strict=True)], SCHEMA)


def merge_tables(tables: Sequence[pa.Table]) -> pa.Table:
    """All rows of ``tables``, oldest first; the newest row of a name counts."""
    full = [table for table in tables if table.num_rows]
    if len(full) < 2:
        return full[0] if full else tables[0]
    aged = [table.append_column("age", pa.array(np.full(len(table), age))) for age, table in enumerate(full)]
    rows = pa.concat_tables(aged).sort_by([("path", "ascending"), ("age", "descending")]).combine_chunks()
    paths = rows.column("path").combine_chunks()
    first = pc.not_equal(paths[1:], paths[:-1])
    return rows.filter(pa.concat_arrays([pa.array([True]), first])).drop_columns(["age"])


def to_bytes(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    encodings = {"path": "DELTA_BYTE_ARRAY", "size": "PLAIN", "etag": "PLAIN", "digest": "PLAIN"}
    pq.write_table(
        table, sink, row_group_size=ROWS.value, compression="zstd", use_dictionary=False, column_encoding=encodings
    )
    return sink.getvalue()


def table_of(data: bytes) -> pa.Table:
    return pq.read_table(pa.BufferReader(data), schema=SCHEMA)


def group_bounds(data: bytes) -> list[str]:
    """The last name of each group of rows but the last."""
    metadata = pq.ParquetFile(pa.BufferReader(data)).metadata
    statistics = (metadata.row_group(group).column(0).statistics for group in range(metadata.num_row_groups - 1))
    return [one.max.decode("utf-8", "surrogateescape") for one in statistics if one is not None and one.has_min_max]


def _row_batches(data: bytes) -> Iterator[pa.RecordBatch]:
    for batch in pq.ParquetFile(pa.BufferReader(data)).iter_batches(ROWS.value):
        if batch.num_rows:
            yield batch
