"""Columns of text read as what the schema says, and records as the text that dead letters show.

Records that never were text, as text: what dead letters and late records show of them.

Columns of text read as what the schema says: one that does not read makes its record unparsed.

JSON, value by value: what one text holds, whether a column takes it, and as what. Never by way of a double.
"""

import json
import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from math import isfinite
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.file_format import misfit
from headrace.kernel.columns import ARROW_TYPES, DATE, DECIMAL, TIMESTAMP, Ints, arrow_type, constant, with_items
from headrace.kernel.expressions.casts import read_text
from headrace.kernel.expressions.decimals import spelled
from headrace.model.expressions.columns import ColumnType, SourceFields
from headrace.model.expressions.data_types import DataType, ListType
from headrace.model.time import iso_8601

FROM_TEXT = (DataType.TIMESTAMP, DataType.DATE, DataType.BYTES)
"""Types that JSON has as strings, which are read later."""

DEEPEST = 600
"""How deep a record may be nested: its parser takes more, others do not."""

_STORED = {**ARROW_TYPES, **dict.fromkeys(FROM_TEXT, pa.string())}
_LIMIT = 2**63
_LONGEST = 300
"""So many characters are an integer that a double can be near to."""

_WHOLE = re.compile(r"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_HALF = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_STRING = re.compile(rb'"(\\.|[^"\\])*"')


def stored_type(kind: ColumnType) -> pa.DataType:
    """The Arrow type of a column as JSON has it: what it has no form for is text."""
    return pa.list_(_STORED[kind.item]) if isinstance(kind, ListType) else _STORED[kind]


def has_lone_surrogate(text: str) -> bool:
    """Whether half of a pair of surrogates is written in ``text``."""
    return _HALF.search(_WHOLE.sub(" ", text)) is not None


def parsed(text: str) -> Any:
    """The value that ``text`` is. Raises ValueError if it is none."""
    if _depth(text.encode()) > DEEPEST:
        raise ValueError(f"it is nested deeper than {DEEPEST}")
    return json.loads(text, parse_constant=_no_constant, parse_float=_fraction, parse_int=_integer)


def fits(value: Any, kind: ColumnType) -> bool:
    """Whether a column of ``kind`` takes a parsed ``value``."""
    if isinstance(kind, ListType):
        return value is None or (isinstance(value, list) and all(fits(item, kind.item) for item in value))
    return _FITS[kind](value)


def stored_value(value: Any, kind: ColumnType) -> Any:
    """A ``value`` that fits, as one of ``stored_type``."""
    if value is None:
        return None
    if isinstance(kind, ListType):
        return [stored_value(item, kind.item) for item in value]
    if kind is DataType.DECIMAL:
        return _decimal_of(value)
    return float(value.written) if kind is DataType.FLOAT else value


def lists_of_text(texts: pa.Array, kind: ListType) -> pa.Array:
    """Each text, an array of JSON, as a list of the ``stored_type`` of ``kind``; NULL if it is none."""
    return pa.array([_list(text, kind) for text in texts.to_pylist()], stored_type(kind))


def _list(text: str | None, kind: ListType) -> list[Any] | None:
    if text is None or has_lone_surrogate(text):
        return None
    try:
        value = parsed(text)
    except ValueError:
        return None
    return stored_value(value, kind) if isinstance(value, list) and fits(value, kind) else None


class _Float(float):
    """A number with a fraction, or with more digits than doubles have, and how it is written."""

    written: str


class _Int(int):
    """An integer, and how it is written: ``-0`` is a float with a sign."""

    written: str


_Number = TypeVar("_Number", _Float, _Int)


def _number(kind: type[_Number], written: str) -> _Number:
    number = kind(written)
    number.written = written
    return number


def _fraction(written: str) -> _Float:
    return _number(_Float, written)


def _integer(written: str) -> _Int | _Float:
    """An integer; one that no column of integers holds is a float at once."""
    return _number(_Int, written) if len(written) <= _LONGEST else _number(_Float, written)


def _depth(line: bytes) -> int:
    """How deep the brackets of a line are nested, those in strings left out."""
    octets = np.frombuffer(_STRING.sub(b"", line), np.uint8)
    opens, closes = np.isin(octets, [ord("["), ord("{")]), np.isin(octets, [ord("]"), ord("}")])
    return int(np.cumsum(opens.astype(np.int64) - closes).max(initial=0))


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_int(value: Any) -> bool:
    return _is_number(value) and isinstance(value, int) and -_LIMIT <= value < _LIMIT


def _decimal_of(value: Any) -> Decimal | None:
    """The decimal that a number, or a string, says."""
    text = value if isinstance(value, str) else value.written
    decimal: Decimal | None = read_text(pa.array([text]), DataType.DECIMAL)[0].as_py()
    return decimal


def _is_decimal(value: Any) -> bool:
    return (_is_number(value) or isinstance(value, str)) and _decimal_of(value) is not None


def _or_null(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or fits(value)


_FITS: dict[DataType, Callable[[Any], bool]] = {
    DataType.STRING: _or_null(lambda value: isinstance(value, str)),
    DataType.INT: _or_null(_is_int),
    DataType.FLOAT: _or_null(_is_number),
    DataType.BOOL: _or_null(lambda value: isinstance(value, bool)),
    DataType.DECIMAL: _or_null(_is_decimal),
    **dict.fromkeys(FROM_TEXT, _or_null(lambda value: isinstance(value, str))),
}


def as_json(columns: Mapping[str, pa.Array], rows: Ints, *, for_all: bool = False) -> pa.Array:
    """Some rows as JSON: NULLs included, lists as arrays, timestamps to the microsecond, decimals as text, bytes in
    base64. ``for_all``: so that every reader of JSON takes them, with NaN and infinities as text.
    """
    names = list(columns)
    taken = [_plain(columns[name].take(pa.array(rows))) for name in names]
    if for_all:
        taken = [
            _finite(values) if _has_floats(columns[name].type) else values
            for name, values in zip(names, taken, strict=True)
        ]
    objects = [
        json.dumps(dict(zip(names, values, strict=True)), ensure_ascii=False) for values in zip(*taken, strict=True)
    ]
    return pa.array([text.encode(errors="replace") for text in objects], pa.binary())


def _has_floats(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind.value_type if pa.types.is_list(kind) else kind))


def _finite(values: list[Any]) -> list[Any]:
    return [
        _finite(one) if isinstance(one, list) else one if one is None or isfinite(one) else _WORDS[str(one)]
        for one in values
    ]


_WORDS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _plain(values: pa.Array) -> list[Any]:
    if pa.types.is_list(values.type):
        items = iter(_plain(pc.list_flatten(values)))
        lengths = pc.list_value_length(values).to_pylist()
        return [None if length is None else [next(items) for _ in range(length)] for length in lengths]
    if values.type == TIMESTAMP:
        return [None if at is None else iso_8601(at) for at in values.cast(pa.int64()).to_pylist()]
    if values.type == DATE:
        return list(values.cast(pa.string()).to_pylist())
    if values.type == DECIMAL:
        return list(spelled(values).to_pylist())
    if values.type == pa.binary():
        return [None if octets is None else b64encode(octets).decode() for octets in values.to_pylist()]
    return list(values.to_pylist())


_ALPHABET = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
_BASE64 = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$"
"""What one value has one text of: bits that mean nothing are zero."""

_CODES = np.zeros(256, np.uint32)
_CODES[_ALPHABET] = np.arange(64)


def typed(
    columns: Mapping[str, pa.Array],
    unparsed: pa.Array,
    fields: SourceFields,
    from_text: Sequence[DataType],
    *,
    is_iso_alone: bool = False,
) -> tuple[dict[str, pa.Array], pa.Array]:
    """Read columns of text as what the schema says. It raises nothing.

    :param columns: a column for each field; a list is an array of JSON where its column is text.
    :param unparsed: why records do not parse, NULL of those that do so far.
    :param fields: what each column holds.
    :param from_text: the types that are read from text; columns of others are taken as they are.
    :param is_iso_alone: timestamps are ISO 8601, and nothing that tools write beside it.
    :returns: the columns, which are NULL in a record that does not parse; and why records do not, the first reason.
    """
    read = dict(columns)
    for name, field in fields.items():
        read[name] = _typed(columns[name], field.type, from_text, is_iso_alone)
        if read[name].null_count > columns[name].null_count:
            misread = pc.and_(pc.and_(columns[name].is_valid(), read[name].is_null()), unparsed.is_null())
            unparsed = pc.if_else(misread, constant(misfit(name, field)), unparsed)
    if unparsed.null_count < len(unparsed):
        parses = unparsed.is_null()
        nothing = {name: pa.scalar(None, arrow_type(field.type)) for name, field in fields.items()}
        read = {name: pc.if_else(parses, values, nothing[name]) for name, values in read.items()}
    return read, unparsed


def _typed(values: pa.Array, kind: ColumnType, from_text: Sequence[DataType], is_iso_alone: bool) -> pa.Array:
    if isinstance(kind, ListType):
        if pa.types.is_string(values.type):
            values = lists_of_text(values, kind)
        return (
            values
            if values.type == arrow_type(kind)
            else with_items(values, partial(_read, kind=kind.item, is_iso_alone=is_iso_alone))
        )
    return _read(values, kind, is_iso_alone) if kind in from_text else values


def _read(text: pa.Array, kind: DataType, is_iso_alone: bool) -> pa.Array:
    if kind is DataType.STRING:
        return text
    return decoded(text) if kind is DataType.BYTES else read_text(text, kind, is_iso_alone=is_iso_alone)


def decoded(text: pa.Array) -> pa.Array:
    """The bytes of each text in base64 (RFC 4648, with padding), without blanks around it; NULL of one that is none."""
    text = pc.ascii_trim_whitespace(text)
    known = pc.if_else(pc.match_substring_regex(text, _BASE64), text, pa.scalar(None, pa.string()))
    whole = pc.binary_join_element_wise(known.fill_null(""), constant(""), constant(""))  # in memory of its own
    ends = np.frombuffer(whole.buffers()[1], np.int32)[whole.offset : whole.offset + len(whole) + 1].astype(np.int64)
    octets = np.frombuffer(whole.buffers()[2], np.uint8)[ends[0] : ends[-1]] if ends[-1] else np.zeros(0, np.uint8)
    quads = _CODES[octets].reshape(-1, 4)
    threes = quads[:, 0] << 18 | quads[:, 1] << 12 | quads[:, 2] << 6 | quads[:, 3]
    made = np.stack([threes >> 16, threes >> 8, threes], axis=1).astype(np.uint8)
    is_padded = (octets == ord("=")).reshape(-1, 4)[:, 1:]
    before = np.append(0, np.cumsum(~is_padded.reshape(-1)))
    offsets = before[(ends - ends[0]) // 4 * 3].astype(np.int32)
    data = made.reshape(-1)[~is_padded.reshape(-1)]
    octets_of_texts = pa.Array.from_buffers(pa.binary(), len(text), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    return pc.if_else(known.is_valid(), octets_of_texts, pa.scalar(None, pa.binary()))
