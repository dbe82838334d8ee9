"""Data files of snapshots: rows as Parquet, each file put once, with its length and checksum known.

``WrittenState`` has the files that one epoch stored: the same for every executor.
"""

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.kernel.columns import Names, as_now, as_numpy
from headrace.kernel.state import concat_rows
from headrace.program import columns as c
from headrace.state.chunks import CHUNK_ROWS, KEY, Chunk, Hashes, chunk_at, enclosing_range, encode_chunks, in_order
from headrace.state.sorted_file import repeat_value
from headrace.this_process import Size
from headrace_snapshots.datafiles import read_verified
from headrace_snapshots.format.codec import checksum
from headrace_snapshots.format.files import DataFile, Footer, Layer, UnfinishedMerge
from headrace_snapshots.store import ObjectStore


@dataclass(frozen=True)
class WrittenState:
    """What is stored of one epoch. ``tables``: the layers of each table of state after it; ``logs``: files of the epoch
    by the log that they go to, none where there were no rows. ``requests`` were not made through this process's stores.
    ``merges`` go on with the next epoch, by table.
    """

    tables: Mapping[str, tuple[Layer, ...]]
    logs: Mapping[str, tuple[DataFile, ...]]
    requests: Mapping[str, int] = field(default_factory=dict)
    merges: Mapping[str, tuple[UnfinishedMerge, ...]] = field(default_factory=dict)


FILE_BYTES: Final = Size(128 * 1024 * 1024)
BATCH_ROWS: Final = Size(512 * 1024)
_SOME_ROWS = 64 * 1024
_MANY_ROWS, _OF_ONE_TIME = 1024, 16
"""A dictionary of times pays from so many rows on, of each time."""

_OWN_NAMES: Names = {}

Hashing = Callable[[pa.RecordBatch], Hashes]
"""The hashes of the keys of rows."""


class ParquetWriter:
    """Rows, in any order, that become files of about FILE_BYTES in ``store``, called ``name`` and a number, while more
    rows come. Memory holds what they take in Parquet. ``hashing`` gives the hashes of their keys, by which each batch
    is put in order; files say their key groups then.
    """

    def __init__(self, store: ObjectStore, name: str, hashing: Hashing | None = None) -> None:
        self._store, self._name, self._hashing = store, name, hashing
        self._files: list[DataFile] = []
        self._open: _Parquet | None = None

    def add_rows(self, rows: pa.RecordBatch) -> None:
        """These, too; no rows are fine."""
        for start in range(0, rows.num_rows, BATCH_ROWS.value):
            self._open = self._open or _Parquet(rows, self._hashing)
            self._open.add(rows.slice(start, BATCH_ROWS.value))
            if self._open.size >= FILE_BYTES.value:
                self._put_file()

    def finish(self) -> tuple[DataFile, ...]:
        """All files; none for no rows."""
        self._put_file()
        return tuple(self._files)

    def _put_file(self) -> None:
        if self._open is None:
            return
        encoded_file = self._open.finish()
        self._open = None
        path = f"{self._name}-{len(self._files)}.parquet"
        self._store.write(path, encoded_file.data)
        self._files.append(encoded_file.data_file(path))


def put_rows(
    store: ObjectStore, name: str, rows: Iterable[pa.RecordBatch], hashing: Hashing | None = None
) -> tuple[DataFile, ...]:
    """``rows`` as ``ParquetWriter`` stores them."""
    putting = ParquetWriter(store, name, hashing)
    for batch in rows:
        putting.add_rows(batch)
    return putting.finish()


def encode_parquet(rows: pa.RecordBatch) -> "EncodedFile":
    """A Parquet file of ``rows``; rows that have a hash stand in its order."""
    parquet = _Parquet(rows, _stored_hash if c.HASH in rows.schema.names else None)
    parquet.add(rows)
    return parquet.finish()


def _stored_hash(rows: pa.RecordBatch) -> Hashes:
    hashes: Hashes = as_numpy(rows.column(c.HASH))
    return hashes


class EncodedFile(msgspec.Struct, frozen=True):
    """The content of a data file, and what a manifest says of it."""

    data: bytes
    rows: int
    groups: tuple[int, int] | None
    windows: tuple[int, int] | None
    footer: Footer | None

    def data_file(self, path: str) -> DataFile:
        return DataFile(path, self.rows, len(self.data), checksum(self.data), self.groups, self.windows, self.footer)


class _Parquet:
    """A Parquet file in memory; ``first`` are the first rows that it gets."""

    def __init__(self, first: pa.RecordBatch, hashing: Hashing | None) -> None:
        self._hashing = hashing
        self._rows = 0
        self._chunks: list[Chunk] = []
        self._buffer = io.BytesIO()
        self._writer = pq.ParquetWriter(
            self._buffer,
            first.schema,
            compression="zstd",
            write_page_checksum=True,
            write_statistics=_bounded_columns(first.schema),
            **_column_encodings(first[: CHUNK_ROWS.value]),
        )

    @property
    def size(self) -> int:
        return self._buffer.tell()

    def add(self, rows: pa.RecordBatch) -> None:
        hashes = None
        if self._hashing is not None:
            rows, hashes = in_order(rows, self._hashing(rows))
        for start in range(0, rows.num_rows, CHUNK_ROWS.value):
            chunk = slice(start, start + CHUNK_ROWS.value)
            self._add_chunk(rows[chunk], None if hashes is None else hashes[chunk])
        self._rows += rows.num_rows

    def _add_chunk(self, rows: pa.RecordBatch, hashes: Hashes | None) -> None:
        start = self.size
        self._writer.write_batch(rows)
        # both views end here, also if a profiler that samples frames holds what they were given to
        with self._buffer.getbuffer() as content, content[start:] as chunk:
            self._chunks.append(chunk_at(start, chunk, rows, hashes))

    def finish(self) -> EncodedFile:
        """Once, at the end."""
        end, chunks = self.size, self._chunks
        # of one chunk a reader takes the whole file, so it is listed nowhere
        if len(chunks) > 1:
            self._writer.add_key_value_metadata({KEY: encode_chunks(chunks)})
        self._writer.close()
        data = self._buffer.getvalue()
        footer = Footer(len(data) - end, checksum(memoryview(data)[end:])) if len(chunks) > 1 else None
        groups = enclosing_range(chunk.groups for chunk in chunks)
        return EncodedFile(data, self._rows, groups, enclosing_range(chunk.windows for chunk in chunks), footer)


def _bounded_columns(schema: pa.Schema) -> bool | list[str]:
    """The columns of which files state the least and the greatest value.

    Floats are none: NaN would be left out, and readers go by the greatest value.
    """
    if not any(may_hold_nan(field.type) for field in schema):
        return True
    return [field.name for field in schema if not may_hold_nan(field.type)]


def may_hold_nan(kind: pa.DataType) -> bool:
    """Whether values of this type are floats, or have some in them."""
    return pa.types.is_floating(kind) or any(may_hold_nan(kind.field(place).type) for place in range(kind.num_fields))


def _column_encodings(rows: pa.RecordBatch) -> dict[str, Any]:
    """Numbers and times as differences, which takes a third of the time of a dictionary, and less room; but for times
    of which ``rows`` have few different ones, as ends of windows are.
    """
    schema = rows.schema
    few = {field.name for field in schema if pa.types.is_timestamp(field.type) and _is_few(rows.column(field.name))}
    texts = [field.name for field in schema if pa.types.is_string(field.type) or pa.types.is_binary(field.type)]
    numbers = [field.name for field in schema if pa.types.is_int64(field.type) or pa.types.is_timestamp(field.type)]
    return {
        "use_dictionary": [*texts, *(name for name in numbers if name in few)],
        "column_encoding": {name: "DELTA_BINARY_PACKED" for name in numbers if name not in few},
    }


def _is_few(times: pa.Array) -> bool:
    return bool(len(times) >= _MANY_ROWS and pc.count_distinct(times).as_py() * _OF_ONE_TIME <= len(times))


def read_rows(
    store: ObjectStore, files: Sequence[DataFile], schema: pa.Schema, names: Names = _OWN_NAMES
) -> pa.RecordBatch:
    """The rows of ``files``, one below the other, as ``schema`` says; ``names``: what they call columns, if not by
    their name. Raises BrokenObjectError for a damaged one.
    """
    return concat_rows(schema, [decode_parquet(read_verified(store, file), schema, names) for file in files])


def read_some(
    store: ObjectStore, file: DataFile, schema: pa.Schema, names: Names = _OWN_NAMES
) -> Iterator[pa.RecordBatch]:
    """Reads one file as ``read_rows`` does, some rows at a time."""
    parquet_file = pq.ParquetFile(pa.BufferReader(read_verified(store, file)))
    for batch in parquet_file.iter_batches(_SOME_ROWS, use_threads=False):
        yield concat_rows(schema, as_now(pa.Table.from_batches([batch]), schema, names).to_batches())


def decode_parquet(data: bytes, schema: pa.Schema, names: Names = _OWN_NAMES) -> pa.RecordBatch:
    """The rows of a Parquet file, as ``schema`` says; ``names``: what it calls columns, if not by their name."""
    return as_stored(decode_table(data), schema, names)


def decode_state(data: bytes, schema: pa.Schema) -> tuple[pa.RecordBatch, Mapping[str, pa.Scalar]]:
    """The rows of a Parquet file that was verified, as ``schema`` says, and what ``stated_constants`` says of its
    columns. Columns with one value are not decoded.
    """
    parquet_file = pq.ParquetFile(pa.BufferReader(data))
    constant = stated_constants(parquet_file, schema)
    names = parquet_file.schema_arrow.names
    if len(constant) == len(names):
        return decode_parquet(data, schema), {}
    table = parquet_file.read([name for name in names if name not in constant], use_threads=False)
    for name, value in constant.items():
        table = table.append_column(name, repeat_value(value, table.num_rows))
    return as_stored(table, schema), constant


def as_stored(rows: pa.Table, schema: pa.Schema, names: Names = _OWN_NAMES) -> pa.RecordBatch:
    """``rows`` of a file, as ``schema`` says; ``names``: what it calls columns, if not by their name."""
    return concat_rows(schema, as_now(rows, schema, names).to_batches())


def decode_table(data: bytes) -> pa.Table:
    """The rows of a Parquet file, with the columns that it has."""
    return pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False)


def stated_constants(parquet_file: pq.ParquetFile, schema: pa.Schema) -> dict[str, pa.Scalar]:
    """The values of columns that have one in all rows, as the statistics of a file say that was verified. Only whole
    numbers and truths are looked at, if they are stored as ``schema`` says.
    """
    metadata, stored_schema = parquet_file.metadata, parquet_file.schema_arrow
    # a column of structs or lists is several of Parquet's; the field b of a struct a is called as a column "a.b"
    paths = [metadata.schema.column(place).path for place in range(metadata.num_columns)]
    places = {path: place for place, path in enumerate(paths) if paths.count(path) == 1}
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    values: dict[str, pa.Scalar] = {}
    for name, kind in zip(schema.names, schema.types, strict=True):
        place = places.get(name)
        if place is None or not (pa.types.is_signed_integer(kind) or pa.types.is_boolean(kind)):
            continue
        if groups and stored_schema.field(name).type == kind:
            is_one, value = _stated_value([group.column(place) for group in groups])
            if is_one:
                values[name] = pa.scalar(value, kind)
    return values


def _stated_value(chunks: Sequence[Any]) -> tuple[bool, Any]:
    """Whether all ``chunks`` of a column have one value, and that; None if it is NULL."""
    values: set[Any] = set()
    for chunk in chunks:
        statistics = chunk.statistics
        if statistics is None or not statistics.has_null_count:
            return False, None
        if statistics.null_count == chunk.num_values:
            values.add(None)
        elif statistics.null_count or not statistics.has_min_max:
            return False, None
        else:
            values |= {statistics.min, statistics.max}
        if len(values) > 1:
            return False, None
    return len(values) == 1, next(iter(values), None)
