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


class Putting:
    """Rows, in any order, that become files of about FILE_BYTES in ``store``, called ``name`` and a number, while more
    of them come: what is held is what they take in Parquet. Files say that their key groups are ``groups``.
    """

    def __init__(self, store: ObjectStore, name: str, groups: tuple[int, int] | None = None) -> None:
        self._store, self._name, self._groups = store, name, groups
        self._files: list[DataFile] = []
        self._open: _Parquet | None = None

    def add(self, rows: pa.RecordBatch) -> None:
        """These, too; no rows are fine."""
        for at in range(0, rows.num_rows, _BATCH_ROWS):
            self._open = self._open or _Parquet(rows.schema)
            self._open.add(rows.slice(at, _BATCH_ROWS))
            if self._open.size >= FILE_BYTES:
                self._put()

    def done(self) -> tuple[DataFile, ...]:
        """All files; none for no rows."""
        self._put()
        return tuple(self._files)

    def _put(self) -> None:
        if self._open is None:
            return
        data, count = self._open.content(), self._open.rows
        self._open = None
        path = f"{self._name}-{len(self._files)}.parquet"
        self._store.write(path, data)
        self._files.append(DataFile(path, count, len(data), checksum(data), self._groups))


def put_rows(
    store: ObjectStore, name: str, rows: Iterable[pa.RecordBatch], groups: tuple[int, int] | None = None
) -> tuple[DataFile, ...]:
    """``rows`` as ``Putting`` stores them."""
    putting = Putting(store, name, groups)
    for some in rows:
        putting.add(some)
    return putting.done()


def parquet(rows: pa.RecordBatch) -> bytes:
    """A Parquet file of ``rows``."""
    made = _Parquet(rows.schema)
    made.add(rows)
    return made.content()


class _Parquet:
    """A Parquet file in memory."""

    def __init__(self, schema: pa.Schema) -> None:
        self.rows = 0
        self._buffer = io.BytesIO()
        self._writer = pq.ParquetWriter(
            self._buffer, schema, compression="zstd", write_page_checksum=True, **_encodings(schema)
        )

    @property
    def size(self) -> int:
        return self._buffer.tell()

    def add(self, rows: pa.RecordBatch) -> None:
        self._writer.write_batch(rows)
        self.rows += rows.num_rows

    def content(self) -> bytes:
        """Once, at the end."""
        self._writer.close()
        return self._buffer.getvalue()


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
