"""What a Parquet file says about itself more than once: how many rows it has."""

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.formats.errors import UnreadableFileError
from headrace.formats.parquet_pages import data_pages
from headrace.kernel.grouping import Ints


def bounds_of_groups(file: pq.ParquetFile, path: str) -> Ints:
    """The first row of each row group, and behind them the number of all rows. Raises UnreadableFileError if the footer
    has another number.
    """
    stored = file.metadata
    bounds = np.cumsum([0, *(stored.row_group(number).num_rows for number in range(stored.num_row_groups))])
    if stored.num_rows != bounds[-1] or (np.diff(bounds) < 0).any():
        raise UnreadableFileError(
            path, f"its footer says that it has {stored.num_rows} rows, and its row groups have {bounds[-1]}"
        )
    return bounds


def check_chunks(data: bytes, file: pq.ParquetFile, groups: Iterable[int], columns: Sequence[str], path: str) -> None:
    """Raise UnreadableFileError if ``columns`` of the ``file`` with the content ``data`` have other numbers of values
    in some of the row ``groups`` than those have rows (one for each row; where something repeats, one at least), or
    their pages have other numbers than the footer says. They have been read before: Arrow ends the process if a chunk
    with some kinds of damage is asked for its counts, and raises an error if it is read.
    """
    leaves = [file.schema.column(number) for number in range(file.metadata.num_columns)]
    starts = tuple(f"{place}." for place in columns)
    read = [number for number, leaf in enumerate(leaves) if f"{leaf.path}.".startswith(starts)]
    for group in groups:
        stored = file.metadata.row_group(group)
        for number in read:
            chunk, leaf = stored.column(number), leaves[number]
            values = chunk.num_values
            if values < stored.num_rows or (values > stored.num_rows and not leaf.max_repetition_level):
                raise UnreadableFileError(
                    path, f"its column {leaf.path} has {values} values in a row group of {stored.num_rows} rows"
                )
            if (wrong := _wrong_pages(data, chunk, stored.num_rows)) is not None:
                raise UnreadableFileError(path, f"the pages of its column {leaf.path} have {wrong}")


def _wrong_pages(data: bytes, chunk: pq.ColumnChunkMetaData, rows: int) -> str | None:
    """How the pages of a chunk differ from what the footer says. Where no header can be read, nothing is said: Arrow
    finds that, or needs none.
    """
    begin = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < begin:
        begin = chunk.dictionary_page_offset
    values, counted, is_whole, has_rows = 0, 0, True, True
    try:
        for page in data_pages(data, begin, begin + chunk.total_compressed_size):
            values += page.values
            counted += page.rows or 0
            has_rows = has_rows and page.rows is not None
    except ValueError:
        is_whole = False
    if values > chunk.num_values or (is_whole and values < chunk.num_values):
        return f"{values} values, and its footer says {chunk.num_values}"
    return f"{counted} rows, and its footer says {rows}" if is_whole and has_rows and counted != rows else None


def check_table(table: pa.Table, rows: int, path: str) -> None:
    """Raise UnreadableFileError if a column of ``table`` does not have so many ``rows``."""
    for name, column in zip(table.column_names, table.columns, strict=True):
        if len(column) != rows:
            raise UnreadableFileError(path, f"the pages of its column {name} have {len(column)} values for {rows} rows")
