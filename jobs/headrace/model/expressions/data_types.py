"""The types of columns, of constants and of values of panes; schemas as users write them.

Decimals: numbers of 38 digits, 9 of them after the point, between -10^29 and 10^29.

They add, subtract and leave remainders exactly; products, quotients and means are rounded to the 9th digit, half to
even. What does not fit is an error. All of it is arithmetic of whole numbers: of billionths.

Schemas as users write them: a Python type, or a DataType, for each column.

Types of the values of panes: those of columns, and lists, which no expression reads.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from types import GenericAlias
from typing import Final, Union

from headrace.model.arguments import REQUIRED, Arguments, keywords, word


class DataType(StrEnum):
    """The types of columns. Integers are 64-bit, floats are doubles, timestamps are microseconds UTC; dates are days of
    the years 1 to 9999; decimals have 38 digits, 9 of them after the point (``model.expressions.decimals``).

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

Schema = Mapping[str, Union[DataType, "ListType"]]
"""Types of columns by name. Columns of a source may be lists, which few expressions read (``typing.type_of``)."""

Scalar = str | int | float | bool | date | bytes | Decimal | None
"""A constant; a timestamp is an int, its Instant."""


def is_text(value: str) -> bool:
    """Whether ``value`` has characters alone: no half of a surrogate pair, which no file can hold."""
    return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)


PRECISION, SCALE = 38, 9
DIGITS = f"{PRECISION} digits, {SCALE} of them after the point"

_LIMIT: int = 10**PRECISION


def billionths(value: Decimal | int) -> int | None:
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
    return None if rest or not fits(units) else (-units if sign else units)


def fits(billionths: int) -> bool:
    """Whether a decimal holds that."""
    return abs(billionths) < _LIMIT


def of_billionths(number: int) -> Decimal:
    """The decimal of so many billionths, without trailing zeros."""
    digits = str(abs(number))
    kept = digits.rstrip("0") or "0"
    exponent = 0 if kept == "0" else len(digits) - len(kept) - SCALE
    return Decimal((number < 0, tuple(map(int, kept)), exponent))


def spelled(value: Decimal) -> str:
    """``value`` in digits, without trailing zeros: ``-12.5``."""
    text = f"{value:f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("-0", "") else text


Columns = Mapping[str, type | DataType]
"""Types of columns by name."""

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


def schema_of(given: Arguments, name: str, value: object) -> dict[str, DataType]:
    """The columns of ``value``, in order. Raises PipelineError."""
    kinds = _named_kinds(given, name, value)
    return {column: data_type(given, f"{name}[{column!r}]", kind) for column, kind in kinds.items()}


def stored_schema(given: Arguments, name: str, value: object) -> dict[str, Union[DataType, "ListType"]]:
    """The columns of ``value``, some of which may be lists, in order. Raises PipelineError."""
    kinds = _named_kinds(given, name, value)
    return {column: stored_type(given, f"{name}[{column!r}]", kind) for column, kind in kinds.items()}


def _named_kinds(given: Arguments, name: str, value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping) or not value:
        raise given.wrong(name, value, 'name the columns and their types, such as {"origin": str, "delay": int}')
    for column, kind in value.items():
        column_name(given, name, column, kind)
    return value


def column_name(given: Arguments, name: str, column: object, kind: object, instead: str = "") -> str:
    """``column``, the name of a column of ``name`` that holds ``kind``. Raises PipelineError, which says what to write
    ``instead`` of a name that belongs to Headrace.
    """
    text = given.text(f"a column of {name}", column, "origin")
    if not is_text(text):
        raise given.wrong(f"{name}[{text!r}]", kind, "half of a surrogate pair is not a character")
    if text.startswith("_"):
        why = "names that start with _ belong to Headrace"
        raise given.wrong(f"{name}[{text!r}]", kind, f"{why}; {instead}" if instead else why)
    return text


def data_type(given: Arguments, name: str, kind: object) -> DataType:
    """The type ``kind`` of a column. Raises PipelineError."""
    if isinstance(kind, DataType):
        return kind
    if isinstance(kind, type) and kind in PYTHON_TYPES:
        return PYTHON_TYPES[kind]
    possible = ", ".join(python_type.__name__ for python_type in PYTHON_TYPES)
    raise given.wrong(name, kind, f"write one of {possible}, or a DataType")


@word("list", item=REQUIRED)
@keywords
@dataclass(frozen=True)
class ListType:
    """The type of a pane value that is a list; no expression reads it.

    >>> hr.ListType(hr.DataType.INT).item.value
    'int'
    """

    item: DataType

    def __post_init__(self) -> None:
        object.__setattr__(self, "item", data_type(Arguments("ListType"), "item", self.item))


@dataclass(frozen=True)
class PairsType:
    """The type of a pane value that is a list of pairs, both parts of which may be NULL; no expression reads it."""

    left: DataType
    right: DataType


ValueType = DataType | ListType | PairsType
_LIST: Final = "list of "
_PAIRS: Final = "pairs of "
_AND: Final = " and "


def in_words(kind: ValueType) -> str:
    """The type as text: "int", "list of int"."""
    match kind:
        case ListType(item):
            return f"{_LIST}{item.value}"
        case PairsType(left, right):
            return f"{_LIST}{_PAIRS}{left.value}{_AND}{right.value}"
    return kind.value


def from_words(text: str) -> ValueType:
    """The type that ``in_words`` made a text of."""
    item, is_list = text.removeprefix(_LIST), text.startswith(_LIST)
    if not is_list:
        return DataType(text)
    if not item.startswith(_PAIRS):
        return ListType(DataType(item))
    left, _, right = item.removeprefix(_PAIRS).partition(_AND)
    return PairsType(DataType(left), DataType(right))


StoredType = type | DataType | ListType | GenericAlias
"""The type of what an object of the user's keeps: one of a column, or a list of these (``list[int]``)."""


def stored_type(given: Arguments, name: str, kind: object) -> DataType | ListType:
    """The type ``kind`` of a value or a list. Raises PipelineError."""
    if isinstance(kind, ListType):
        return kind
    if isinstance(kind, GenericAlias) and kind.__origin__ is list:
        return ListType(data_type(given, name, kind.__args__[0]))
    return data_type(given, name, kind)
