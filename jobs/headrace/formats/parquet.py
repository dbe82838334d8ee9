"""Parquet: a record is one row (docs/judging.md).

What a Parquet file says about itself more than once: how many rows it has.

What the headers of Parquet's pages say: how many values each has. Arrow reads as many as the footer says of a
column, whatever lies in its pages.

A header is a struct in Thrift's compact protocol, of which a page's sizes and counts are read and the rest is skipped.
"""

import io
import json
import struct
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.formats import file_format
from headrace.formats.compression import what_is
from headrace.formats.fields import as_json
from headrace.kernel.columns import ARROW_TYPES, DATE, TIMESTAMP, Ints, arrow_type, as_numpy, constant, with_items
from headrace.kernel.expressions.casts import in_calendar
from headrace.kernel.expressions.decimals import stored_decimals
from headrace.kernel.expressions.string_bytes import are_text
from headrace.model.expressions.columns import ColumnType, SourceField, SourceFields, in_objects
from headrace.model.expressions.data_types import DataType, ListType, in_words
from headrace.model.time import parse

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
    at = begin
    while at < end:
        begin_of_header = at
        try:
            header, at = _struct(data, at)
            size, kind = _number(header, 3), _number(header, 1)
            page = header[5 if kind == _DATA_PAGE else 8] if kind in (_DATA_PAGE, _DATA_PAGE_V2) else None
            at += size
            if size < 0 or at > len(data):
                raise ValueError(f"a page of {size} bytes ends at byte {at}")
            if page is not None:
                yield DataPage(_number(page, 1), _number(page, 3) if kind == _DATA_PAGE_V2 else None, at)
        except (IndexError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"no page header at byte {begin_of_header}") from error


def _number(fields: dict[int, Any], name: int) -> int:
    number = fields[name]
    if type(number) is not int:
        raise TypeError
    return number


def _struct(data: bytes, at: int) -> tuple[dict[int, Any], int]:
    fields: dict[int, Any] = {}
    number = 0
    while (head := data[at]) & 0xF != _STOP:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _zigzag(data, at)
        fields[number], at = _value(data, at, head & 0xF)
    return fields, at + 1


def _value(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind in (_TRUE, _FALSE):
        return kind == _TRUE, at
    if kind in (_I16, _I32, _I64):
        return _zigzag(data, at)
    if kind == _STRUCT:
        return _struct(data, at)
    if kind == _BINARY:
        length, at = _varint(data, at)
        if length > _MOST_HEADER:
            raise IndexError
        return None, at + length
    if kind in (_BYTE, _DOUBLE):
        return None, at + (1 if kind == _BYTE else 8)
    raise KeyError(kind)  # no header has lists or maps


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    number, at = _varint(data, at)
    return (number >> 1) ^ -(number & 1), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while (octet := data[at]) & 0x80:
        number |= (octet & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if shift > 63:
            raise IndexError
    return number | octet << shift, at + 1


def bounds_of_groups(file: pq.ParquetFile, path: str) -> Ints:
    """The first row of each row group, and behind them the number of all rows. Raises UnreadableFileError if the footer
    has another number.
    """
    stored = file.metadata
    bounds = np.cumsum([0, *(stored.row_group(number).num_rows for number in range(stored.num_row_groups))])
    if stored.num_rows != bounds[-1] or (np.diff(bounds) < 0).any():
        raise file_format.UnreadableFileError(
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
                raise file_format.UnreadableFileError(
                    path, f"its column {leaf.path} has {values} values in a row group of {stored.num_rows} rows"
                )
            if (wrong := _wrong_pages(data, chunk, stored.num_rows)) is not None:
                raise file_format.UnreadableFileError(path, f"the pages of its column {leaf.path} have {wrong}")


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
            raise file_format.UnreadableFileError(
                path, f"the pages of its column {name} have {len(column)} values for {rows} rows"
            )


_MAGIC = b"PAR1"

_FITS: Mapping[DataType, Callable[[pa.DataType], bool]] = {
    DataType.STRING: lambda t: pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_string_view(t),
    DataType.INT: lambda t: pa.types.is_integer(t) and t != pa.uint64(),
    DataType.FLOAT: lambda t: (
        pa.types.is_float32(t) or pa.types.is_float64(t) or (pa.types.is_integer(t) and t != pa.uint64())
    ),
    DataType.BOOL: pa.types.is_boolean,
    DataType.TIMESTAMP: lambda t: pa.types.is_timestamp(t) or pa.types.is_date(t),
    DataType.DATE: pa.types.is_date,
    DataType.BYTES: lambda t: (
        pa.types.is_binary(t)
        or pa.types.is_large_binary(t)
        or pa.types.is_binary_view(t)
        or pa.types.is_fixed_size_binary(t)
    ),
    DataType.DECIMAL: lambda t: pa.types.is_decimal(t) or pa.types.is_integer(t),
}


@dataclass(frozen=True)
class ParquetRows(file_format.FileFormat):
    """Parquet. A record of which somebody asks the bytes is a line of JSON with the columns of the schema. Files are
    held to what they say of themselves, but where ``is_checked`` is not so.
    """

    name, suffix, keeps_bytes, rules = "Parquet", ".parquet", False, 1
    is_checked: bool = True

    def by_rules(self, rules: int) -> "ParquetRows":
        """Up to 0.1.2 the footer's count of rows was taken for true."""
        return replace(self, is_checked=False)

    def read(
        self,
        data: bytes,
        fields: SourceFields,
        required: file_format.RequiredColumns,
        path: str,
        span: file_format.Span,
    ) -> file_format.ScannedRecords:
        """The rows in the ``span`` of a file as records. Raises FileColumnsError also if it holds a column otherwise
        than the schema says.
        """
        return _records(data, fields, required, path, span, is_checked=self.is_checked)

    def is_divisible(self, path: str) -> bool:
        """Always: a piece has row groups of its own, or rows."""
        return True

    def copied(self, records: Sequence[bytes], fields: SourceFields, header: bytes | None) -> bytes:
        """A file with ``fields``."""
        rows = [json.loads(record) for record in records]
        return _file(
            fields,
            {
                name: pa.array([_from_json(row[name], field.type) for row in rows], arrow_type(field.type))
                for name, field in fields.items()
            },
        )

    def written(self, records: Sequence[Mapping[str, Any] | str], fields: SourceFields) -> bytes:
        """A file with ``fields``, whose types the values have."""
        rows: list[Mapping[str, Any]] = []
        for record in records:
            if isinstance(record, str):
                raise ValueError("a Parquet file has no lines: write a dict of values by column")
            rows.append(record)
        return _file(
            fields, {name: _column(name, f.type, [row.get(name) for row in rows]) for name, f in fields.items()}
        )


PARQUET: Final = ParquetRows()


def _records(
    data: bytes,
    fields: SourceFields,
    required: file_format.RequiredColumns,
    path: str,
    span: file_format.Span,
    *,
    is_checked: bool,
) -> file_format.ScannedRecords:
    file = _open(data, path, is_checked=is_checked)
    stored = stored_columns(file.schema_arrow, fields, path)
    required.check([*places(file.schema_arrow, fields)], stored, path, "schema")
    try:
        columns_there = [fields[name].place for name in stored]
        read = _rows if is_checked else _rows_as_before
        table, first = read(data, file, columns_there, span, path)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise file_format.UnreadableFileError(path, f"its pages are broken ({error})") from error
    rows = table.num_rows
    position = np.arange(first, first + rows)
    columns, unparsed = {}, pa.nulls(rows, pa.string())
    for name, field in fields.items():
        if name not in stored:
            columns[name] = pa.nulls(rows, arrow_type(field.type))
            continue
        outermost, *inner = field.path
        column = table.column(outermost)
        values = pa.concat_arrays(column.chunks) if rows else pa.nulls(0, column.type)
        values, bad = values_as(pc.struct_field(values, inner) if inner else values, field.type)
        if bad is not None:
            is_text = DataType.STRING in (field.type, getattr(field.type, "item", None))
            reason = (
                f"column {field.named(name)}: {file_format.NOT_UTF8}" if is_text else file_format.misfit(name, field)
            )
            unparsed = pc.if_else(pc.and_(bad, unparsed.is_null()), reason, unparsed)
        columns[name] = values
    if unparsed.null_count < rows:
        parses = unparsed.is_null()
        held = columns
        columns = {n: pc.if_else(parses, v, pa.scalar(None, v.type)) for n, v in columns.items()}
        return file_format.ScannedRecords(columns, unparsed, position, lambda chosen: as_json(held, chosen))
    return file_format.ScannedRecords(columns, unparsed, position, lambda chosen: as_json(columns, chosen))


def _rows(
    data: bytes, file: pq.ParquetFile, columns: list[str], span: file_format.Span, path: str
) -> tuple[pa.Table, int]:
    """The rows of a ``span``, and the number of the first: whole row groups, if there are enough of them. Raises
    UnreadableFileError for counts that disagree.
    """
    bounds = bounds_of_groups(file, path)
    groups, begin, end = _span_of(bounds, int(bounds[-1]), span)
    table = file.read_row_groups(groups.tolist(), columns=columns, use_threads=False, use_pandas_metadata=False)
    check_chunks(data, file, groups.tolist(), columns, path)
    check_table(table, int((bounds[groups + 1] - bounds[groups]).sum()), path)
    first = int(bounds[groups[0]]) if len(groups) else 0
    return table.slice(begin - first, end - begin), begin


def _rows_as_before(
    data: bytes, file: pq.ParquetFile, columns: list[str], span: file_format.Span, path: str
) -> tuple[pa.Table, int]:
    """What ``_rows`` gives, by the count in the footer, with nothing checked."""
    stored = file.metadata
    bounds = np.cumsum([0, *(stored.row_group(number).num_rows for number in range(stored.num_row_groups))])
    groups, begin, end = _span_of(bounds, stored.num_rows, span)
    table = file.read_row_groups(groups.tolist(), columns=columns, use_threads=False, use_pandas_metadata=False)
    first = int(bounds[groups[0]]) if len(groups) else 0
    return table.slice(begin - first, end - begin), begin


def _span_of(bounds: Ints, total: int, span: file_format.Span) -> tuple[Ints, int, int]:
    """The row groups of a ``span`` of ``total`` rows, and its first row and the one behind it."""
    begin, end = span.bounds(total)
    if span.is_whole or len(bounds) > span.of:
        middles = (bounds[:-1] + bounds[1:]) // 2
        groups = np.flatnonzero((begin <= middles) & (middles < end))
        begin, end = (int(bounds[groups[0]]), int(bounds[groups[-1] + 1])) if len(groups) else (0, 0)
    else:
        groups = np.flatnonzero((bounds[:-1] < end) & (begin < bounds[1:]))
    return groups, begin, end


def _open(data: bytes, path: str, *, is_checked: bool) -> pq.ParquetFile:
    if len(data) < 12 or data[-4:] != _MAGIC:
        other = what_is(data)
        raise file_format.UnreadableFileError(
            path, f"it has no Parquet footer{'' if other is None else f': it is {other}'}"
        )
    if struct.unpack("<I", data[-8:-4])[0] + 8 > len(data) - 4:
        raise file_format.UnreadableFileError(path, "its Parquet footer is longer than the file")
    try:
        # Timestamps of 96 bits, as Spark writes them: nanoseconds do not hold what is before 1678 or after 2261.
        stored = pa.BufferReader(data)
        file = pq.ParquetFile(stored, coerce_int96_timestamp_unit="us", page_checksum_verification=is_checked)
        _ = file.schema_arrow
    except UnicodeDecodeError as error:
        raise file_format.UnreadableFileError(path, "a column of it has a name that is not UTF-8") from error
    except (pa.ArrowException, OSError) as error:
        raise file_format.UnreadableFileError(path, f"its Parquet footer is broken ({error})") from error
    return file


def stored_columns(file_schema: pa.Schema, fields: SourceFields, path: str) -> list[str]:
    """The columns of ``fields`` that a file has. Raises FileColumnsError for one of another type."""
    stored = []
    for name, field in fields.items():
        own = type_there(file_schema, field, path)
        if own is None or pa.types.is_null(own):  # without any value: as good as missing
            continue
        if not is_read(own, field.type):
            raise file_format.FileColumnsError(
                path, f"its column {field.place} is {own}, and the source says {in_words(field.type)}"
            )
        stored.append(name)
    return stored


def type_there(file_schema: pa.Schema, field: SourceField, path: str) -> pa.DataType | None:
    """The type of a field in a file; None if the file does not have it."""
    own: pa.Schema | pa.DataType = file_schema
    for depth, part in enumerate(field.path):
        place = ".".join(field.path[:depth])
        if depth and pa.types.is_null(own):
            return own
        if depth and not pa.types.is_struct(own):
            raise file_format.FileColumnsError(
                path, f"its column {place} is {own}, and the source says that {part} is in it"
            )
        if not (count := own.names.count(part)):
            return None
        if count > 1:
            raise file_format.FileColumnsError(
                path, f"its schema names column {place}{'.' if place else ''}{part} {count} times"
            )
        own = own.field(own.names.index(part)).type
    return own


def places(file_schema: pa.Schema, fields: SourceFields) -> Iterator[str]:
    """The places of a file's columns, and of what is in the objects where some of ``fields`` would be."""
    objects = {field.path[:depth] for field in fields.values() for depth in range(1, len(field.path))}

    def members_of(members: pa.Schema | pa.DataType, outer: tuple[str, ...]) -> Iterator[str]:
        for number, name in enumerate(members.names):
            path = (*outer, name)
            yield ".".join(path)
            if path in objects and pa.types.is_struct(kind := members.field(number).type):
                yield from members_of(kind, path)

    return members_of(file_schema, ())


def is_read(own: pa.DataType, kind: ColumnType) -> bool:
    """Whether a stored type is one of ``kind``."""
    if isinstance(kind, ListType):
        if not (pa.types.is_list(own) or pa.types.is_large_list(own) or pa.types.is_fixed_size_list(own)):
            return False
        return pa.types.is_null(own.value_type) or is_read(own.value_type, kind.item)
    return _FITS[kind](own.value_type if pa.types.is_dictionary(own) else own)


def values_as(values: pa.Array, kind: ColumnType) -> tuple[pa.Array, pa.Array | None]:
    """A stored column as one of ``kind``, and which values do not fit it: strings that are not text, times that 64 bits
    do not hold in microseconds, dates beyond the calendar, decimals with more digits; lists with such a value.
    """
    if not isinstance(kind, ListType):
        return _scalars(values, kind)
    if not pa.types.is_list(values.type):
        values = values.cast(pa.list_(values.type.value_type))
    if pa.types.is_null(values.type.value_type):
        return values.cast(arrow_type(kind)), None
    lists = with_items(values, lambda items: _without_misfits(*_scalars(items, kind.item)))
    bad = pc.and_(values.is_valid(), lists.is_null())
    return lists, bad if pc.any(bad).as_py() else None


def _without_misfits(values: pa.Array, bad: pa.Array | None) -> pa.Array:
    return values if bad is None else pc.if_else(bad, pa.scalar(None, values.type), values)


def _scalars(values: pa.Array, kind: DataType) -> tuple[pa.Array, pa.Array | None]:
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if kind is DataType.TIMESTAMP:
        return _timestamps(values)
    if kind is DataType.STRING:
        return _texts(values.cast(pa.string()))
    if kind is DataType.DATE:
        return _dates(values.cast(DATE, safe=False))
    if pa.types.is_decimal(values.type):
        return _decimals(values)
    return values.cast(ARROW_TYPES[kind], safe=False), None  # of large integers the nearest float


_DAY = 86_400_000_000
_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1}
_MOST = 2**63 - 1


def _timestamps(values: pa.Array) -> tuple[pa.Array, pa.Array | None]:
    """To the microsecond, cut downwards; dates begin at midnight, and without a zone it is UTC."""
    if pa.types.is_date(values.type):
        stored, factor = values.cast(pa.date32()).cast(pa.int32()).cast(pa.int64()), _DAY
    elif values.type.unit == "ns":
        nanoseconds = values.cast(pa.int64())
        whole = pa.array(as_numpy(nanoseconds.fill_null(0)) // 1000, mask=as_numpy(values.is_null()))
        return whole.cast(TIMESTAMP), None
    else:
        stored, factor = values.cast(pa.int64()), _MICROSECONDS[values.type.unit]
    limit = _MOST // factor
    beyond = pc.or_(pc.greater(stored, constant(limit)), pc.less(stored, constant(-limit))).fill_null(False)
    if not pc.any(beyond).as_py():
        return pc.multiply(stored, constant(factor)).cast(TIMESTAMP), None
    within = pc.if_else(beyond, pa.scalar(None, pa.int64()), stored)
    return pc.multiply(within, constant(factor)).cast(TIMESTAMP), beyond


def _dates(values: pa.Array) -> tuple[pa.Array, pa.Array | None]:
    return _as_far_as(values, in_calendar(values))


def _decimals(values: pa.Array) -> tuple[pa.Array, pa.Array | None]:
    return _as_far_as(values, stored_decimals(values))


def _as_far_as(values: pa.Array, held: pa.Array) -> tuple[pa.Array, pa.Array | None]:
    """What is ``held`` of ``values``, and which of them are not."""
    beyond = pc.and_(values.is_valid(), held.is_null())
    return held, beyond if pc.any(beyond).as_py() else None


def _texts(values: pa.Array) -> tuple[pa.Array, pa.Array | None]:
    try:
        values.validate(full=True)
    except (pa.ArrowInvalid, UnicodeDecodeError):
        known = pa.array(are_text(values.cast(pa.binary())))
        return pc.if_else(known, values, pa.scalar(None, values.type)), pc.invert(known)
    return values, None


# --- files of records that land again, and of unit tests

_FROM_JSON: Mapping[DataType, Callable[[Any], Any]] = {
    DataType.FLOAT: float,
    DataType.TIMESTAMP: parse,
    DataType.DATE: date.fromisoformat,
    DataType.BYTES: b64decode,
    DataType.DECIMAL: Decimal,
}
"""How values come back that JSON has no form for; floats: "NaN", "Infinity"."""


def _from_json(value: Any, kind: ColumnType) -> Any:
    if value is None:
        return None
    if isinstance(kind, ListType):
        return [_from_json(item, kind.item) for item in value]
    return _FROM_JSON[kind](value) if kind in _FROM_JSON else value


def _file(fields: SourceFields, columns: Mapping[str, pa.Array]) -> bytes:
    """A file with ``columns``, each in its field."""
    buffer = io.BytesIO()
    pq.write_table(pa.table({name: _as_object(inside) for name, inside in in_objects(columns, fields).items()}), buffer)
    return buffer.getvalue()


def _as_object(values: Any) -> pa.Array:
    if not isinstance(values, dict):
        return values
    return pa.StructArray.from_arrays([_as_object(inside) for inside in values.values()], names=[*values])


def _column(name: str, kind: ColumnType, values: Sequence[Any]) -> pa.Array:
    stored = arrow_type(kind)
    try:
        is_time = DataType.TIMESTAMP in (kind, getattr(kind, "item", None))
        return pa.array([_moment(value) for value in values] if is_time else values, stored)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        what = f"column {name}: a Parquet file of this source holds {stored}"
        raise ValueError(f"{what}, not that ({error})") from error


def _moment(value: Any) -> Any:
    """A time that is written as text, in UTC unless it says otherwise; or a list of them."""
    if isinstance(value, list):
        return [_moment(item) for item in value]
    if not isinstance(value, str):
        return value
    read = datetime.fromisoformat(value.strip())
    return read if read.tzinfo else read.replace(tzinfo=UTC)
