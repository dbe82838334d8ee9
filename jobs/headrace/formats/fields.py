"""Columns of text read as what the schema says, and records as the text that dead letters show.

JSON is read value by value: what one text holds, whether a column takes it, and as what. It never goes by way of a
double.
"""

import json
import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.file_format import misfit
from headrace.kernel import columns as kernel_columns
from headrace.kernel.expressions.casts import read_text
from headrace.kernel.expressions.decimals import spell_decimals
from headrace.model.expressions import data_types
from headrace.model.expressions.columns import ColumnType, SourceField, SourceFields
from headrace.model.time import iso_8601

FROM_TEXT = (data_types.DataType.TIMESTAMP, data_types.DataType.DATE, data_types.DataType.BYTES)
"""Types that JSON has as strings, which are read later."""

DEEPEST = 600
"""How deep a record may be nested: its parser takes more, others do not."""

_STORED_TYPES = {**kernel_columns.ARROW_TYPES, **dict.fromkeys(FROM_TEXT, pa.string())}
_INT_LIMIT = 2**63
_LONGEST_INTEGER = 300
"""So many characters are an integer that a double can be near to."""

_WHOLE_PAIR = re.compile(r"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_HALF = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_STRING = re.compile(rb'"(\\.|[^"\\])*"')


def stored_type(kind: ColumnType) -> pa.DataType:
    """The Arrow type of a column as JSON has it: what it has no form for is text."""
    return kernel_columns.arrow_type(kind, _STORED_TYPES)


def field_of(values: pa.Array, field: SourceField) -> pa.Array:
    """The values of a ``field`` in its outermost object, NULL where an object that would hold it is; in a list of
    objects the list of them.
    """
    if not field.through:
        return pc.struct_field(values, field.path[1:]) if field.path[1:] else values
    lists = lists_of_objects(values, field)
    items = pc.struct_field(pc.list_flatten(lists), field.path[field.through :])
    return kernel_columns.having_items(lists, items, lists.is_null())


def lists_of_objects(values: pa.Array, field: SourceField) -> pa.Array:
    """The lists of objects that ``field`` is in, of the ``values`` of its outermost object."""
    outer_path = field.path[1 : field.through]
    lists = pc.struct_field(values, outer_path) if outer_path else values
    return lists if pa.types.is_list(lists.type) else lists.cast(pa.list_(lists.type.value_type))


def has_lone_surrogate(text: str) -> bool:
    """Whether half of a pair of surrogates is written in ``text``."""
    return "\\u" in text and _HALF.search(_WHOLE_PAIR.sub(" ", text)) is not None


def parse_json(text: str) -> Any:
    """The value that ``text`` is. Raises ValueError if it is none."""
    brackets = text.count("[") + text.count("{")
    if brackets > DEEPEST and _nesting_depth(text.encode()) > DEEPEST:
        raise ValueError(f"it is nested deeper than {DEEPEST}")
    return json.loads(
        text,
        parse_constant=_no_constant,
        parse_float=_Float,
        parse_int=_parse_integer,
        object_pairs_hook=_Object,
    )


class _Object(dict[str, Any]):
    """An object, and whether a name stands twice in it; then the last one counts, but in a map."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.repeats_names = len(pairs) > len(self)


def fits_type(value: Any, kind: ColumnType) -> bool:
    """Whether a column of ``kind`` takes a parsed ``value``."""
    if value is None:
        return True
    match kind:
        case data_types.ListType(item):
            return isinstance(value, list) and all(fits_type(one, item) for one in value)
        case data_types.StructType(fields):
            return isinstance(value, dict) and all(fits_type(value.get(name), own) for name, own in fields)
        case data_types.MapType(own):
            return (
                isinstance(value, _Object)
                and not value.repeats_names
                and all(fits_type(one, own) for one in value.values())
            )
    return _VALUE_FITS[kind](value)


def stored_value(value: Any, kind: ColumnType) -> Any:
    """A ``value`` that fits, as one of ``stored_type``."""
    return map_parsed(value, kind, _stored_leaf)


def _stored_leaf(value: Any, kind: data_types.DataType) -> Any:
    if kind is data_types.DataType.DECIMAL:
        return _decimal_of(value)
    return float(value.written) if kind is data_types.DataType.FLOAT else value


def map_parsed(value: Any, kind: ColumnType, read: Callable[[Any, data_types.DataType], Any]) -> Any:
    """A Python ``value`` of a column of ``kind`` with what ``read`` makes of the values in it; None stays, what a
    struct lacks is None, and a map is its entries, as Arrow takes one.
    """
    if value is None:
        return None
    match kind:
        case data_types.ListType(item):
            return [map_parsed(one, item, read) for one in value]
        case data_types.StructType(fields):
            return {name: map_parsed(value.get(name), own, read) for name, own in fields}
        case data_types.MapType(own):
            return [(name, map_parsed(one, own, read)) for name, one in value.items()]
    return read(value, kind)


def _parse_nested(text: str | None, kind: data_types.NestedType) -> Any:
    """A ``text``, an array or an object of JSON, as one of the ``stored_type`` of ``kind``; None if it is none."""
    if text is None or has_lone_surrogate(text):
        return None
    try:
        value = parse_json(text)
    except ValueError:
        return None
    return stored_value(value, kind) if fits_type(value, kind) else None


class _Float(float):
    """A number with a fraction, or with more digits than doubles have, and how it is written."""

    def __init__(self, text: str) -> None:
        self.written = text


class _Int(int):
    """An integer, and how it is written: ``-0`` is a float with a sign."""

    def __init__(self, text: str) -> None:
        self.written = text


def _parse_integer(number_text: str) -> _Int | _Float:
    """An integer; one that no column of integers holds is a float at once."""
    return _Int(number_text) if len(number_text) <= _LONGEST_INTEGER else _Float(number_text)


def _nesting_depth(line: bytes) -> int:
    """How deep the brackets of a line are nested, those in strings left out."""
    octets = np.frombuffer(_STRING.sub(b"", line), np.uint8)
    opens, closes = np.isin(octets, [ord("["), ord("{")]), np.isin(octets, [ord("]"), ord("}")])
    return int(np.cumsum(opens.astype(np.int64) - closes).max(initial=0))


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _decimal_of(value: Any) -> Decimal | None:
    text = value if isinstance(value, str) else value.written
    decimal: Decimal | None = read_text(pa.array([text]), data_types.DataType.DECIMAL)[0].as_py()
    return decimal


_VALUE_FITS: dict[data_types.DataType, Callable[[Any], bool]] = {
    data_types.DataType.INT: lambda value: (
        _is_number(value) and isinstance(value, int) and -_INT_LIMIT <= value < _INT_LIMIT
    ),
    data_types.DataType.FLOAT: _is_number,
    data_types.DataType.BOOL: lambda value: isinstance(value, bool),
    data_types.DataType.DECIMAL: lambda value: (
        (_is_number(value) or isinstance(value, str)) and _decimal_of(value) is not None
    ),
    **dict.fromkeys((data_types.DataType.STRING, *FROM_TEXT), lambda value: isinstance(value, str)),
}


def as_json(columns: Mapping[str, pa.Array], rows: kernel_columns.Ints, *, for_all: bool = False) -> pa.Array:
    """Some rows as JSON: NULLs included, lists as arrays, timestamps to the microsecond, decimals as text, bytes in
    base64. ``for_all``: so that every reader of JSON takes them, with NaN and infinities as text.
    """
    names = list(columns)
    values_of = _plain_for_all if for_all else _plain_values
    value_lists = [values_of(columns[name].take(pa.array(rows))) for name in names]
    objects = [
        json.dumps(dict(zip(names, values, strict=True)), ensure_ascii=False)
        for values in zip(*value_lists, strict=True)
    ]
    return pa.array([text.encode(errors="replace") for text in objects], pa.binary())


def with_json(table: pa.Table) -> pa.Table:
    """``table`` with JSON where it has lists, structs and maps."""
    for place, field in enumerate(table.schema):
        if kernel_columns.is_nested(field.type):
            texts = json_texts(table.column(place).combine_chunks())
            table = table.set_column(place, field.name, texts)
    return table


def json_texts(values: pa.Array) -> pa.Array:
    """Each of ``values`` as JSON that every reader takes, in ASCII; NULL where it is NULL."""
    texts = [None if value is None else json.dumps(value) for value in _plain_for_all(values)]
    return pa.array(texts, pa.string())


def _plain_for_all(values: pa.Array) -> list[Any]:
    plain = _plain_values(values)
    if not kernel_columns.holds_type(values.type, pa.types.is_floating):
        return plain
    return [data_types.replace_non_finite(value) for value in plain]


def _plain_values(values: pa.Array) -> list[Any]:  # noqa: PLR0911 (a line for each type)
    if pa.types.is_list(values.type):
        items = iter(_plain_values(pc.list_flatten(values)))
        lengths = pc.list_value_length(values).to_pylist()
        return [None if length is None else [next(items) for _ in range(length)] for length in lengths]
    if pa.types.is_struct(values.type):
        names = [field.name for field in values.type]
        rows = zip(*map(_plain_values, values.flatten()), strict=True)
        validity = values.is_valid().to_pylist()
        return [
            dict(zip(names, parts, strict=True)) if is_there else None
            for parts, is_there in zip(rows, validity, strict=True)
        ]
    if pa.types.is_map(values.type):
        return [
            None if entries is None else {entry["key"]: entry["value"] for entry in entries}
            for entries in _plain_values(kernel_columns.entries_of(values))
        ]
    if values.type == kernel_columns.TIMESTAMP:
        return [None if time is None else iso_8601(time) for time in values.cast(pa.int64()).to_pylist()]
    if values.type == kernel_columns.DATE:
        return list(values.cast(pa.string()).to_pylist())
    if values.type == kernel_columns.DECIMAL:
        return list(spell_decimals(values).to_pylist())
    if values.type == pa.binary():
        return [None if octets is None else b64encode(octets).decode() for octets in values.to_pylist()]
    return list(values.to_pylist())


_BASE64_ALPHABET = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
_BASE64 = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$"
"""What one value has one text of: bits that mean nothing are zero."""

_BASE64_CODES = np.zeros(256, np.uint32)
_BASE64_CODES[_BASE64_ALPHABET] = np.arange(64)


def typed(
    columns: Mapping[str, pa.Array],
    unparsed: pa.Array,
    fields: SourceFields,
    from_text: Sequence[data_types.DataType],
    *,
    is_iso_alone: bool = False,
) -> tuple[dict[str, pa.Array], pa.Array]:
    """Read columns of text as what the schema says. It raises nothing.

    :param columns: a column for each field; what is nested is JSON where its column is text.
    :param unparsed: why records do not parse, NULL of those that do so far.
    :param fields: what each column holds.
    :param from_text: the types that are read from text; columns of others are taken as they are.
    :param is_iso_alone: timestamps are ISO 8601, and nothing that tools write beside it.
    :returns: the columns, which are NULL in a record that does not parse; and why records do not, the first reason.
    """
    read = dict(columns)
    for name, field in fields.items():
        read[name] = _to_column_type(columns[name], field.type, from_text, is_iso_alone)
        if read[name].null_count > columns[name].null_count:
            misread = pc.and_(pc.and_(columns[name].is_valid(), read[name].is_null()), unparsed.is_null())
            unparsed = pc.if_else(misread, kernel_columns.arrow_scalar(misfit(name, field)), unparsed)
    if unparsed.null_count < len(unparsed):
        parses = unparsed.is_null()
        nothing = {name: pa.scalar(None, kernel_columns.arrow_type(field.type)) for name, field in fields.items()}
        read = {name: pc.if_else(parses, values, nothing[name]) for name, values in read.items()}
    return read, unparsed


def _to_column_type(
    values: pa.Array, kind: ColumnType, from_text: Sequence[data_types.DataType], is_iso_alone: bool
) -> pa.Array:
    if isinstance(kind, data_types.NestedType):
        if pa.types.is_string(values.type):
            values = pa.array([_parse_nested(text, kind) for text in values.to_pylist()], stored_type(kind))
        if values.type != kernel_columns.arrow_type(kind):
            values = kernel_columns.map_leaves(
                values, kind, partial(_read_leaves, from_text=FROM_TEXT, is_iso_alone=is_iso_alone)
            )
        return kernel_columns.canonical_values(values, kind)
    return _read_leaves(values, kind, from_text, is_iso_alone)


def _read_leaves(
    values: pa.Array, kind: data_types.DataType, from_text: Sequence[data_types.DataType], is_iso_alone: bool
) -> pa.Array:
    if kind is data_types.DataType.STRING or kind not in from_text:
        return values
    return (
        decode_base64(values)
        if kind is data_types.DataType.BYTES
        else read_text(values, kind, is_iso_alone=is_iso_alone)
    )


def decode_base64(text: pa.Array) -> pa.Array:
    """The bytes of each text in base64 (RFC 4648, with padding), without blanks around it; NULL of one that is none."""
    text = pc.ascii_trim_whitespace(text)
    valid_text = pc.if_else(pc.match_substring_regex(text, _BASE64), text, pa.scalar(None, pa.string()))
    whole = pc.binary_join_element_wise(
        valid_text.fill_null(""), kernel_columns.arrow_scalar(""), kernel_columns.arrow_scalar("")
    )  # in memory of its own
    ends = np.frombuffer(whole.buffers()[1], np.int32)[whole.offset : whole.offset + len(whole) + 1].astype(np.int64)
    octets = np.frombuffer(whole.buffers()[2], np.uint8)[ends[0] : ends[-1]] if ends[-1] else np.zeros(0, np.uint8)
    quads = _BASE64_CODES[octets].reshape(-1, 4)
    threes = quads[:, 0] << 18 | quads[:, 1] << 12 | quads[:, 2] << 6 | quads[:, 3]
    decoded_bytes = np.stack([threes >> 16, threes >> 8, threes], axis=1).astype(np.uint8)
    is_padded = (octets == ord("=")).reshape(-1, 4)[:, 1:]
    bytes_before = np.append(0, np.cumsum(~is_padded.reshape(-1)))
    offsets = bytes_before[(ends - ends[0]) // 4 * 3].astype(np.int32)
    data = decoded_bytes.reshape(-1)[~is_padded.reshape(-1)]
    octets_of_texts = pa.Array.from_buffers(pa.binary(), len(text), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    return pc.if_else(valid_text.is_valid(), octets_of_texts, pa.scalar(None, pa.binary()))
