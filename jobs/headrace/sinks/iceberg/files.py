"""Data files of an Iceberg table: their rows, and new ones that a commit names, or that go if it does not."""

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError, ValidationException
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, _dataframe_to_data_files, schema_to_pyarrow

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask, Table, Transaction

_CHUNK_ROWS: Final = 500_000
"""How many rows are in memory at a time; each day of these is a file."""

_REFUSED: Final = (CommitFailedException, TableAlreadyExistsError, ValidationException)
"""What a catalog raises that has not taken a commit. Of others nobody knows."""


def rows_of(table: "Table", task: "FileScanTask", columns: Sequence[str] = ("*",)) -> pa.Table:
    """The rows of one file, without those that other engines have marked as deleted."""
    schema = table.schema() if tuple(columns) == ("*",) else table.schema().select(*columns)
    return ArrowScan(table.metadata, table.io, schema, AlwaysTrue()).to_table([task])


class WrittenFiles:
    """Files of new rows. They are removed if it is certain that no commit names them: ``is_committing`` says that one
    may.
    """

    def __init__(self, transaction: "Transaction") -> None:
        self.files: list[DataFile] = []
        self.is_committing = False
        self._metadata = transaction.table_metadata
        self._io = transaction._table.io
        self._schema = schema_to_pyarrow(self._metadata.schema(), include_field_ids=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: TracebackType | None) -> None:
        if error is not None and (not self.is_committing or isinstance(error, _REFUSED)):
            for file in self.files:
                self._io.delete(file.file_path)

    def add(self, batches: Iterable[pa.RecordBatch]) -> int:
        """Write rows, with NULL in columns that they do not have. How many these are."""
        number, chunk, size = 0, [], 0
        for batch in batches:
            chunk.append(batch)
            size += batch.num_rows
            number += batch.num_rows
            if size >= _CHUNK_ROWS:
                self._write(chunk)
                chunk, size = [], 0
        if size:
            self._write(chunk)
        return number

    def _write(self, chunk: Sequence[pa.RecordBatch]) -> None:
        rows = pa.Table.from_batches(chunk)
        arrays = [
            rows.column(field.name).cast(field.type)
            if field.name in rows.column_names
            else pa.nulls(rows.num_rows, field.type)
            for field in self._schema
        ]
        whole = pa.Table.from_arrays(arrays, schema=self._schema)
        self.files.extend(_dataframe_to_data_files(self._metadata, whole, self._io))
