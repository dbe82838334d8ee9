"""What a Parquet file says about itself more than once: how many rows it has.

The headers of Parquet's pages say how many values each has. Arrow reads as many as the footer says of a column,
whatever lies in its pages. A header is a struct in Thrift's compact protocol: a page's sizes and counts are read, the
rest is skipped.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.formats import file_format
from headrace.kernel.columns import Ints

_DATA_PAGE, _DATA_PAGE_V2 = 0, 3
_MOST_HEADER: Final = 1 << 20
"""How long a header may be: it may have the least and the greatest value of its page."""

_STOP, _TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(13)


@dataclass(frozen=True)
class DataPage:
    """A page of values: how many, NULLs and empty lists included, and where it ends. ``rows``: None if it says none."""

    values: int
    rows: int | None
    end: int


def data_pages(data: bytes, begin: int, end: int) -> Iterator[DataPage]:
    """The data pages between two places, as far as there are headers. Raises ValueError where there is none."""
    position = begin
    while position < end:
        begin_of_header = position
        try:
            header, position = _read_struct(data, position)
            size, kind = _field_number(header, 3), _field_number(header, 1)
            page = header[5 if kind == _DATA_PAGE else 8] if kind in (_DATA_PAGE, _DATA_PAGE_V2) else None
            position += size
            if size < 0 or position > len(data):
                raise ValueError(f"a page of {size} bytes ends at byte {position}")
            if page is not None:
                yield DataPage(
                    _field_number(page, 1), _field_number(page, 3) if kind == _DATA_PAGE_V2 else None, position
                )
        except (IndexError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"no page header at byte {begin_of_header}") from error


def _field_number(fields: dict[int, Any], name: int) -> int:
    number = fields[name]
    if type(number) is not int:
        raise TypeError
    return number


def _read_struct(data: bytes, position: int) -> tuple[dict[int, Any], int]:
    fields: dict[int, Any] = {}
    number = 0
    while (head := data[position]) & 0xF != _STOP:
        position += 1
        if head >> 4:
            number += head >> 4
        else:
            number, position = _read_zigzag(data, position)
        fields[number], position = _read_value(data, position, head & 0xF)
    return fields, position + 1


def _read_value(data: bytes, position: int, kind: int) -> tuple[Any, int]:
    if kind in (_TRUE, _FALSE):
        return kind == _TRUE, position
    if kind in (_I16, _I32, _I64):
        return _read_zigzag(data, position)
    if kind == _STRUCT:
        return _read_struct(data, position)
    if kind == _BINARY:
        length, position = _read_varint(data, position)
        if length > _MOST_HEADER:
            raise IndexError
        return None, position + length
    if kind in (_BYTE, _DOUBLE):
        return None, position + (1 if kind == _BYTE else 8)
    raise KeyError(kind)  # no header has lists or maps


def _read_zigzag(data: bytes, position: int) -> tuple[int, int]:
    number = data[position]
    if number & 0x80:  # most have one byte
        number, position = _read_varint(data, position)
    else:
        position += 1
    return (number >> 1) ^ -(number & 1), position


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while (octet := data[position]) & 0x80:
        number |= (octet & 0x7F) << shift
        shift, position = shift + 7, position + 1
        if shift > 63:
            raise IndexError
    return number | octet << shift, position + 1


def bounds_of_groups(file: pq.ParquetFile, path: str) -> Ints:
    """The first row of each row group, and behind them the number of all rows. Raises UnreadableFileError if the footer
    has another number.
    """
    metadata = file.metadata
    counts = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    bounds = np.array([0, *accumulate(counts)], np.int64)
    if metadata.num_rows != bounds[-1] or min(counts, default=0) < 0:
        raise file_format.UnreadableFileError(
            path, f"its footer says that it has {metadata.num_rows} rows, and its row groups have {bounds[-1]}"
        )
    return bounds


def check_chunks(data: bytes, file: pq.ParquetFile, groups: Iterable[int], columns: Sequence[str], path: str) -> None:
    """Raise UnreadableFileError if ``columns`` of the ``file`` with the content ``data`` are damaged in some of the row
    ``groups``. A column must have one value for each row (where something repeats, at least one), and pages with the
    numbers that the footer says. The columns have been read before. Arrow ends the process if a chunk with some kinds
    of damage is asked for its counts; reading it raises an error.
    """
    leaves = [file.schema.column(number) for number in range(file.metadata.num_columns)]
    starts = tuple(f"{place}." for place in columns)
    read = [number for number, leaf in enumerate(leaves) if f"{leaf.path}.".startswith(starts)]
    for group in groups:
        group_metadata = file.metadata.row_group(group)
        for number in read:
            chunk, leaf = group_metadata.column(number), leaves[number]
            values = chunk.num_values
            if values < group_metadata.num_rows or (values > group_metadata.num_rows and not leaf.max_repetition_level):
                raise file_format.UnreadableFileError(
                    path, f"its column {leaf.path} has {values} values in a row group of {group_metadata.num_rows} rows"
                )
            if (wrong := _wrong_pages(data, chunk, group_metadata.num_rows)) is not None:
                raise file_format.UnreadableFileError(path, f"the pages of its column {leaf.path} have {wrong}")


def _wrong_pages(data: bytes, chunk: pq.ColumnChunkMetaData, rows: int) -> str | None:
    """How the pages of a chunk differ from what the footer says. Where no header can be read, nothing is said: Arrow
    finds that, or needs none.
    """
    begin = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < begin:
        begin = chunk.dictionary_page_offset
    values, counted_rows, is_whole, has_rows = 0, 0, True, True
    try:
        for page in data_pages(data, begin, begin + chunk.total_compressed_size):
            values += page.values
            counted_rows += page.rows or 0
            has_rows = has_rows and page.rows is not None
    except ValueError:
        is_whole = False
    if values > chunk.num_values or (is_whole and values < chunk.num_values):
        return f"{values} values, and its footer says {chunk.num_values}"
    return (
        f"{counted_rows} rows, and its footer says {rows}" if is_whole and has_rows and counted_rows != rows else None
    )


def check_table(table: pa.Table, rows: int, path: str) -> None:
    """Raise UnreadableFileError if a column of ``table`` does not have so many ``rows``."""
    for name, column in zip(table.column_names, table.columns, strict=True):
        if len(column) != rows:
            raise file_format.UnreadableFileError(
                path, f"the pages of its column {name} have {len(column)} values for {rows} rows"
            )
