"""Values that systems like to change on the way: extremes, empty ones, and what looks like syntax."""

import math
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

from headrace import DataType

_AT: Final = datetime(2026, 5, 1, tzinfo=UTC)

VALUES: Final[Mapping[DataType, list[Any]]] = {
    DataType.STRING: [
        *("", " ", "NULL", "\\N", 'a"b', "a'b", "a,b", "a\nb", "a\r\nb", "a\\b", "{}", "{a,b}"),
        *("œ🜁\u202e", "x" * 5000),
        *("a", "A", "a ", "ss", "ß", "\u00e9", "e\u0301"),  # one to collations that do not compare characters
    ],
    DataType.INT: [0, -1, 2**63 - 1, -(2**63)],
    DataType.FLOAT: [0.0, -0.0, 0.1, 5e-324, 1.7976931348623157e308, math.nan, math.inf, -math.inf, 1 / 3],
    DataType.BOOL: [True, False],
    DataType.TIMESTAMP: [
        _AT,
        _AT.replace(microsecond=1),
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
    ],
    DataType.DATE: [date(1, 1, 1), date(1970, 1, 1), date(9999, 12, 31)],
    DataType.BYTES: [b"", b"\x00", b"\xff\xfe", b"\\x41"],
    DataType.DECIMAL: [
        Decimal("0.000000001"),
        Decimal("-99999999999999999999999999999.999999999"),
        Decimal(0),
        Decimal("1.5"),
    ],
}


def plain(value: Any) -> Any:
    """``value`` such that two are equal if readers take them for one: with its type, times in UTC, NaN like NaN."""
    match value:
        case datetime():
            parts: Any = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        case float():
            parts = repr(value)
        case Decimal():
            parts = str(value.normalize())
        case bytes() | bytearray() | memoryview():
            return "bytes", bytes(value)
        case list() | tuple():
            return "list", *map(plain, value)
        case dict():
            parts = tuple(map(plain, value.values()))
        case _:
            parts = value
    return type(value).__name__, parts
