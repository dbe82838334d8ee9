"""The types of columns, of constants and of values of panes; schemas as users write them.

Decimals have 38 digits, 9 of them after the point, and lie between -10^29 and 10^29. They add, subtract and leave
remainders exactly; products, quotients and means are rounded to the 9th digit, half to even. What does not fit is an
error. All of it is arithmetic of whole numbers: of billionths.

A schema has a Python type, or a DataType, for each column. A column may hold several values: lists, structs and maps,
whose keys are text and ascend. Values of panes have the types of columns, or are lists, which few expressions read.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from math import isfinite
from types import GenericAlias
from typing import Any, Final, Union

from headrace.errors import FixConfigError
from headrace.model.arguments import REQUIRED, Arguments, check_keywords, register_word


class DataType(StrEnum):
    """The types of columns. Integers are 64-bit, floats are doubles, timestamps are microseconds UTC; dates are days of
    the years 1 to 9999; decimals have 38 digits, 9 of them after the point.

    >>> hr.json("landing", {"price": hr.DataType.DECIMAL}).schema["price"].value
    'decimal'
    """

    STRING = "string"
    INT = "int"
    FLOAT = "float"
    BOOL = "bool"
    TIMESTAMP = "timestamp"
    DATE = "date"
    BYTES = "bytes"
    DECIMAL = "decimal"


NUMERIC = (DataType.INT, DataType.FLOAT, DataType.DECIMAL)

IN_JSON = (DataType.STRING, DataType.INT, DataType.FLOAT, DataType.BOOL)
"""What a value in JSON can be read as."""

Schema = Mapping[str, Union[DataType, "ListType", "StructType", "MapType"]]
"""Types of columns by name. Columns may be nested, which few expressions read (``typing.type_of``)."""

Scalar = str | int | float | bool | date | bytes | Decimal | None
"""A constant; a timestamp is an int, its Instant."""


_NOT_FINITE_TEXTS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def replace_non_finite(value: Any) -> Any:
    """``value``, also inside, with text for floats that JSON has no form for: "NaN", "Infinity", "-Infinity"."""
    match value:
        case list() | tuple():
            return [replace_non_finite(item) for item in value]
        case dict():
            return {name: replace_non_finite(part) for name, part in value.items()}
        case float() if not isfinite(value):
            return _NOT_FINITE_TEXTS[str(value)]
    return value


def is_text(value: str) -> bool:
    """Whether ``value`` has characters alone: no half of a surrogate pair, which no file can hold."""
    return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)


PRECISION, SCALE = 38, 9
DIGITS = f"{PRECISION} digits, {SCALE} of them after the point"

_BILLIONTHS_LIMIT: int = 10**PRECISION


def to_billionths(value: Decimal | int) -> int | None:
    """``value`` in billionths; None unless they say it exactly, and it fits."""
    if not (value := Decimal(value)).is_finite():
        return None
    sign, digits, exponent = value.as_tuple()
    whole = int("".join(map(str, digits)))
    shift = int(exponent) + SCALE
    if not whole:
        return 0
    if shift > PRECISION or -shift > len(digits):
        return None
    units, rest = divmod(whole * 10 ** max(shift, 0), 10 ** max(-shift, 0))
    return None if rest or not fits_decimal(units) else (-units if sign else units)


def fits_decimal(billionths: int) -> bool:
    return abs(billionths) < _BILLIONTHS_LIMIT


def of_billionths(number: int) -> Decimal:
    """The decimal of so many billionths, without trailing zeros."""
    digits = str(abs(number))
    significant_digits = digits.rstrip("0") or "0"
    exponent = 0 if significant_digits == "0" else len(digits) - len(significant_digits) - SCALE
    return Decimal((number < 0, tuple(map(int, significant_digits)), exponent))


def decimal_text(value: Decimal) -> str:
    """``value`` in digits, without trailing zeros: ``-12.5``."""
    text = f"{value:f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("-0", "") else text


DeclaredColumns = Mapping[str, type | DataType]
"""Types of columns by name."""

WrittenSchema = Mapping[str, "WrittenType"]
"""Types of columns by name, which may be nested, as users write them."""

PYTHON_TYPES: Mapping[type, DataType] = {
    str: DataType.STRING,
    int: DataType.INT,
    float: DataType.FLOAT,
    bool: DataType.BOOL,
    datetime: DataType.TIMESTAMP,
    date: DataType.DATE,
    bytes: DataType.BYTES,
    Decimal: DataType.DECIMAL,
}


def nested_schema(arguments: Arguments, name: str, value: object) -> dict[str, "ColumnType"]:
    """The columns of ``value``, some of which may be nested, in order. Raises PipelineError."""
    if not isinstance(value, Mapping) or not value:
        raise arguments.refusal(name, value, 'name the columns and their types, such as {"origin": str, "delay": int}')
    for column, kind in value.items():
        column_name(arguments, name, column, kind)
    return {column: column_type(arguments, f"{name}[{column!r}]", kind) for column, kind in value.items()}


def column_name(arguments: Arguments, name: str, column: object, kind: object, advice: str = "") -> str:
    """``column``, the name of a column of ``name`` that holds ``kind``. Raises PipelineError, which says with
    ``advice`` what to write instead of a name that belongs to Headrace.
    """
    text = arguments.text(f"a column of {name}", column, "origin")
    if not is_text(text):
        raise arguments.refusal(f"{name}[{text!r}]", kind, "half of a surrogate pair is not a character")
    if text.startswith("_"):
        why = "names that start with _ belong to Headrace"
        raise arguments.refusal(f"{name}[{text!r}]", kind, f"{why}; {advice}" if advice else why)
    return text


def data_type(arguments: Arguments, name: str, kind: object) -> DataType:
    """The type ``kind`` of a column. Raises PipelineError."""
    if isinstance(kind, DataType):
        return kind
    if isinstance(kind, type) and kind in PYTHON_TYPES:
        return PYTHON_TYPES[kind]
    possible = ", ".join(python_type.__name__ for python_type in PYTHON_TYPES)
    raise arguments.refusal(name, kind, f"write one of {possible}, or a DataType")


@register_word("list", item=REQUIRED)
@check_keywords
@dataclass(frozen=True)
class ListType:
    """The type of a list of values, or of structs, maps or lists. Few expressions read it, and it is no key.

    >>> hr.ListType(hr.DataType.INT).item.value
    'int'
    """

    item: "ColumnType"

    def __post_init__(self) -> None:
        arguments = Arguments("ListType")
        if not isinstance(self.item, NestedType):
            object.__setattr__(self, "item", data_type(arguments, "item", self.item))
        check_depth(arguments, "item", self)


@register_word("struct", fields=REQUIRED)
@dataclass(frozen=True)
class StructType:
    """The type of an object with ``fields``, each with a name and a type. Written as a dict, ``{"city": str}``."""

    fields: tuple[tuple[str, "ColumnType"], ...]


@register_word("map", value=REQUIRED)
@dataclass(frozen=True)
class MapType:
    """The type of an object whose names are data, and whose values have one type. Written ``dict[str, int]``."""

    value: "ColumnType"


@dataclass(frozen=True)
class PairsType:
    """The type of a pane value that is a list of pairs, both parts of which may be NULL; no expression reads it."""

    left: "ColumnType"
    right: "ColumnType"


NestedType = ListType | StructType | MapType
"""The types of columns that hold several values."""

ColumnType = DataType | NestedType
"""What a column of records holds."""

ValueType = ColumnType | PairsType
_LIST: Final = "list of "
_MAP: Final = "map of string to "
_STRUCT: Final = "struct of "
_PAIRS: Final = "pairs of "
_AND: Final = " and "


def in_words(kind: ValueType) -> str:
    """The type as text: "int", "list of int", "map of string to int", 'struct of {"city": "string"}'."""
    match kind:
        case StructType():
            return f"{_STRUCT}{json.dumps(_field_words(kind), ensure_ascii=False)}"
        case MapType(value):
            return f"{_MAP}{in_words(value)}"
        case ListType(item):
            return f"{_LIST}{in_words(item)}"
        case PairsType(left, right):
            return f"{_LIST}{_PAIRS}{in_words(left)}{_AND}{in_words(right)}"
    return kind.value


def from_words(text: str) -> ValueType:
    """The type that ``in_words`` made a text of."""
    if text.startswith(_STRUCT):
        return _struct_from_words(json.loads(text.removeprefix(_STRUCT)))
    if text.startswith(_MAP):
        return MapType(_column_from_words(text.removeprefix(_MAP)))
    item, is_list = text.removeprefix(_LIST), text.startswith(_LIST)
    if not is_list:
        return DataType(text)
    if not item.startswith(_PAIRS):
        return ListType(_column_from_words(item))
    words = item.removeprefix(_PAIRS)
    end = _end_of_type(words)
    return PairsType(_column_from_words(words[:end]), _column_from_words(words[end + len(_AND) :]))


def _end_of_type(words: str) -> int:
    """Where the first type in ``words`` ends. Names of fields may have any words in them."""
    begin = 0
    while outer := next((outer for outer in (_LIST, _MAP) if words.startswith(outer, begin)), ""):
        begin += len(outer)
    if words.startswith(_STRUCT, begin):
        return json.JSONDecoder().raw_decode(words, begin + len(_STRUCT))[1]
    return words.index(_AND, begin)


def _column_from_words(text: str) -> "ColumnType":
    kind = from_words(text)
    assert not isinstance(kind, PairsType)
    return kind


def _field_words(kind: StructType) -> dict[str, Any]:
    """The types of fields in words; a struct among them has those of its own fields."""
    return {name: _field_words(own) if isinstance(own, StructType) else in_words(own) for name, own in kind.fields}


def _struct_from_words(words: Mapping[str, Any]) -> StructType:
    kinds = {name: _struct_from_words(own) if isinstance(own, dict) else from_words(own) for name, own in words.items()}
    return StructType(tuple((name, kind) for name, kind in kinds.items() if not isinstance(kind, PairsType)))


def parts_of(kind: ColumnType) -> Iterator[DataType]:
    """The types of the values that a column of ``kind`` holds, however deep."""
    match kind:
        case ListType(item):
            yield from parts_of(item)
        case StructType(fields):
            for _, own in fields:
                yield from parts_of(own)
        case MapType(value):
            yield DataType.STRING
            yield from parts_of(value)
        case _:
            yield kind


def is_list_of_values(kind: ValueType) -> bool:
    """Whether a column of ``kind`` holds lists of values, none of which is nested or a pair."""
    return isinstance(kind, ListType) and isinstance(kind.item, DataType)


def levels_of(kind: ColumnType) -> int:
    """How many levels deep a column of ``kind`` is nested; a list of values is one, as a value is."""
    match kind:
        case ListType(item):
            return 1 if isinstance(item, DataType) else 1 + levels_of(item)
        case StructType(fields):
            return 1 + max(levels_of(own) for _, own in fields)
        case MapType(value):
            return 1 + levels_of(value)
    return 1


def check_depth(arguments: Arguments, name: str, kind: ColumnType) -> None:
    """Raise the error of ``arguments`` if a column of ``kind`` is nested too deep."""
    if levels_of(kind) > DEEPEST_TYPE:
        raise _too_deep(arguments, name, kind)


def _too_deep(arguments: Arguments, name: str, kind: object) -> FixConfigError:
    return arguments.refusal(name, kind, f"it is nested deeper than {DEEPEST_TYPE} levels; read the rest of it as text")


StoredType = type | DataType | ListType | GenericAlias
"""The type of what an object of the user's keeps: one of a column, or a list of these (``list[int]``)."""


def stored_type(arguments: Arguments, name: str, kind: object) -> DataType | ListType:
    """The type ``kind`` of a value, or a list of values. Raises PipelineError."""
    if isinstance(kind, ListType):
        return ListType(data_type(arguments, name, kind.item))
    if isinstance(kind, GenericAlias) and kind.__origin__ is list:
        return ListType(data_type(arguments, name, kind.__args__[0]))
    return data_type(arguments, name, kind)


WrittenType = StoredType | StructType | MapType | Mapping[str, Any]
"""The type of a column of records as users write it. A struct is a dict of its fields, a map ``dict[str, int]``, a list
``list[str]`` or ``list[{"sku": str}]``.
"""

DEEPEST_TYPE: Final = 20
_OTHER_KEYS: Final = "the keys of a map are text, as in JSON: write dict[str, ...]"


def column_type(arguments: Arguments, name: str, kind: object) -> ColumnType:
    """The type ``kind`` of a column of records. Raises PipelineError."""
    own_type = _column_type(arguments, name, kind, 1)
    check_depth(arguments, name, own_type)
    return own_type


def _column_type(arguments: Arguments, name: str, kind: object, depth: int) -> ColumnType:
    if depth > DEEPEST_TYPE:
        raise _too_deep(arguments, name, kind)
    if isinstance(kind, NestedType):
        return kind
    if isinstance(kind, GenericAlias) and kind.__origin__ is dict:
        key, value = kind.__args__
        if key not in (str, DataType.STRING):
            raise arguments.refusal(name, kind, _OTHER_KEYS)
        return MapType(_column_type(arguments, name, value, depth + 1))
    if isinstance(kind, Mapping):
        return StructType(tuple(_struct_fields(arguments, name, kind, depth)))
    if isinstance(kind, GenericAlias) and kind.__origin__ is list:
        (item,) = kind.__args__
        if isinstance(item, GenericAlias | Mapping | NestedType):
            return ListType(_column_type(arguments, name, item, depth + 1))
    return stored_type(arguments, name, kind)


def _struct_fields(
    arguments: Arguments, name: str, fields: Mapping[Any, Any], depth: int
) -> Iterator[tuple[str, ColumnType]]:
    if not fields:
        raise arguments.refusal(name, fields, 'name the fields and their types, such as {"city": str}')
    names_by_casefold: dict[str, str] = {}
    for field, kind in fields.items():
        if not isinstance(field, str) or not field or not is_text(field) or "\0" in field:
            raise arguments.refusal(name, fields, f"{field!r} is no name of a field: write a text, without NUL")
        if (other := names_by_casefold.setdefault(field.casefold(), field)) != field:
            raise arguments.refusal(
                name, fields, f"{other!r} and {field!r} differ in case alone, which tables do not see"
            )
        yield field, _column_type(arguments, f"{name}[{field!r}]", kind, depth + 1)
