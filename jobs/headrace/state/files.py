"""Data files of snapshots: rows as Parquet, each file put once, with its length and checksum known."""

import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.kernel.renamed import Names, as_now
from headrace.kernel.state import together
from headrace_snapshots.datafiles import verify
from headrace_snapshots.format.codec import checksum
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.store import ObjectStore

FILE_BYTES = 128 * 1024 * 1024
_BATCH_ROWS = 512 * 1024
_SOME_ROWS = 64 * 1024
_OWN: Names = {}


def put_rows(
    store: ObjectStore, name: str, rows: Iterable[pa.RecordBatch], groups: tuple[int, int] | None = None
) -> tuple[DataFile, ...]:
    """``rows``, in any order, as files of about FILE_BYTES, called ``name`` and a number; no file for no rows. They say
    that their key groups are ``groups``.
    """
    files: list[DataFile] = []
    batches = (piece.slice(at, _BATCH_ROWS) for piece in rows for at in range(0, piece.num_rows, _BATCH_ROWS))
    for part, data, count in parquet_files(batches):
        path = f"{name}-{part}.parquet"
        store.write(path, data)
        files.append(DataFile(path, count, len(data), checksum(data), groups))
    return tuple(files)


def parquet_files(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, bytes, int]]:
    """Parquet files of about FILE_BYTES: number, content, rows. None for no rows."""
    part, buffer, writer, count = 0, io.BytesIO(), None, 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        if writer is None:
            writer = pq.ParquetWriter(
                buffer, batch.schema, compression="zstd", write_page_checksum=True, **_encodings(batch.schema)
            )
        writer.write_batch(batch)
        count += batch.num_rows
        if buffer.tell() >= FILE_BYTES:
            writer.close()
            yield part, buffer.getvalue(), count
            part, buffer, writer, count = part + 1, io.BytesIO(), None, 0
    if writer is not None:
        writer.close()
        yield part, buffer.getvalue(), count


def _encodings(schema: pa.Schema) -> dict[str, Any]:
    """Numbers and times as differences, which takes a third of the time of a dictionary, and less room."""
    differences = [field.name for field in schema if pa.types.is_int64(field.type) or pa.types.is_timestamp(field.type)]
    return {
        "use_dictionary": [field.name for field in schema if _has_dictionary(field.type)],
        "column_encoding": dict.fromkeys(differences, "DELTA_BINARY_PACKED"),
    }


def _has_dictionary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def read_rows(store: ObjectStore, files: Sequence[DataFile], schema: pa.Schema, names: Names = _OWN) -> pa.RecordBatch:
    """The rows of ``files``, one below the other, as ``schema`` says; ``names``: what they call columns, if not by
    their name. Raises BrokenObjectError for a damaged one.
    """
    return together(schema, [decoded(verify(store, file), schema, names) for file in files])


def read_some(store: ObjectStore, file: DataFile, schema: pa.Schema, names: Names = _OWN) -> Iterator[pa.RecordBatch]:
    """As ``read_rows``, of one file, some rows at a time."""
    opened = pq.ParquetFile(pa.BufferReader(verify(store, file)))
    for batch in opened.iter_batches(_SOME_ROWS, use_threads=False):
        yield together(schema, as_now(pa.Table.from_batches([batch]), schema, names).to_batches())


def decoded(data: bytes, schema: pa.Schema, names: Names = _OWN) -> pa.RecordBatch:
    """The rows of a Parquet file, as ``schema`` says; ``names``: what it calls columns, if not by their name."""
    return together(schema, as_now(stored(data), schema, names).to_batches())


def stored(data: bytes) -> pa.Table:
    """The rows of a Parquet file, with the columns that it has."""
    return pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False)
