"""The types of columns, and of constants in expressions."""

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    from headrace.model.expressions.value_types import ListType


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

Schema = Mapping[str, Union[DataType, "ListType"]]
"""Types of columns by name. Columns of a source may be lists, which few expressions read (``typing.type_of``)."""

Scalar = str | int | float | bool | date | bytes | Decimal | None
"""A constant; a timestamp is an int, its Instant."""


def is_text(value: str) -> bool:
    """Whether ``value`` has characters alone: no half of a surrogate pair, which no file can hold."""
    return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)
