"""JSON, value by value: what one text holds, whether a column takes it, and as what. Never by way of a double."""

import json
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from headrace.kernel.expressions.casts import read_text
from headrace.kernel.types import ARROW_TYPES
from headrace.model.expressions.columns import ColumnType
from headrace.model.expressions.data_types import DataType, ListType

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
