"""Values of single columns, as files write them, and what they are: of the types that the other corpora do not have."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from headrace.model.expressions.data_types import DataType

BAD = object()
"""What no value of the column's type is."""


@dataclass(frozen=True)
class WrittenValue:
    """A value as JSON and CSV write it (None: not in that format), and what it is: a value, None for NULL, or BAD."""

    json: str | None
    csv: str | None
    value: Any


def number(written_text: str, value: str | object) -> WrittenValue:
    """A decimal that is a number in JSON."""
    return WrittenValue(written_text, written_text, Decimal(value) if isinstance(value, str) else value)


def text(value_text: str, value: Any) -> WrittenValue:
    """A value that is a string in JSON."""
    return WrittenValue(f'"{value_text}"', value_text, value)


DAY = date(2013, 1, 1)
TEXTS: Mapping[DataType, tuple[WrittenValue, ...]] = {
    DataType.DATE: (
        WrittenValue("null", "", None),
        text("2013-01-01", DAY),
        text(" 2013-01-01 ", DAY),
        text("0001-01-01", date.min),
        text("9999-12-31", date.max),
        text("2012-02-29", date(2012, 2, 29)),
        *(text(f"2013-0{month}-28", date(2013, month, 28)) for month in range(1, 10)),
        *(
            text(written_text, BAD)
            for written_text in (
                "2013-02-29",
                "0000-01-01",
                "10000-01-01",
                "-001-01-01",
                "2013-1-1",
                "2013-13-01",
                "20130101",
                "2013-01",
                "2013",
                "2013-01-01T00:00:00",
                "2013-01-01 00:00",
                "2013-01-01Z",
                "2013-W01-1",
                "01.01.2013",
                "today",
                "\u0662\u0660\u0661\u0663-01-01",
            )
        ),
        WrittenValue('""', None, BAD),
        WrittenValue("15706", "15706", BAD),
        WrittenValue("true", None, BAD),
        WrittenValue('["2013-01-01"]', None, BAD),
    ),
    DataType.BYTES: (
        WrittenValue("null", "", None),
        WrittenValue('""', None, b""),
        text("YQ==", b"a"),
        text(" YWI= ", b"ab"),
        text("YWJj", b"abc"),
        text("/+7/", b"\xff\xee\xff"),
        text("AAAAAAAA", bytes(6)),
        *(text(base64.b64encode(bytes(range(n))).decode(), bytes(range(n))) for n in range(1, 40)),
        *(
            text(written_text, BAD)
            for written_text in (
                "YQ",
                "YQ=",
                "YR==",
                "YWJ=",
                "YW=j",
                "YQ==YQ==",
                "=",
                "====",
                "YWJj=",
                "_-7_",
                "YW Jj",
                "YWJ\u00e9",
                "a",
                "0x6162",
            )
        ),
        WrittenValue("97", None, BAD),
        WrittenValue("true", None, BAD),
        WrittenValue("[97]", None, BAD),
    ),
    DataType.DECIMAL: (
        WrittenValue("null", "", None),
        number("0", "0"),
        number("-0", "0"),
        number("19.99", "19.99"),
        number("-0.01", "-0.01"),
        number("0.1", "0.1"),
        number("1e3", "1000"),
        number("1.5E-7", "0.00000015"),
        number("1e-9", "0.000000001"),
        number("1.10000000000000000000", "1.1"),
        number("0.1234567890", "0.123456789"),
        number("10E-10", "0.000000001"),
        number("0e99", "0"),
        number("0.00e-99999999999999999999", "0"),
        number("12345678901234567890.123456789", "12345678901234567890.123456789"),
        number("99999999999999999999999999999.999999999", "99999999999999999999999999999.999999999"),
        number("-99999999999999999999999999999.999999999", "-99999999999999999999999999999.999999999"),
        number(f"0.{'0' * 50}15e49", "0.015"),
        number("9007199254740993", "9007199254740993"),
        *(
            number(written_text, BAD)
            for written_text in ("100000000000000000000000000000", "1e29", "-1e29", "1e400", "1e-10")
        ),
        *(
            number(written_text, BAD)
            for written_text in ("0.1234567891", "1.0000000001", "-0.0000000005", "9e-1000000000000")
        ),
        *(number("9" * digits, BAD) for digits in (*range(30, 60), 76, 77, 78, 100, 300)),
        *(number(f"{first}e{power}", BAD) for first in (1, 3, 7, 17, 99) for power in range(29, 80, 3)),
        *(number(f"1{'0' * digits}.5", BAD) for digits in range(29, 60)),
        *(
            WrittenValue(f'"{escaped_text}"', None, BAD)
            for escaped_text in (r"\u0039" * 42, r"\u0031\u0065\u0034\u0032")
        ),
        WrittenValue(r'"1\u00309.5"', None, Decimal("109.5")),
        text("19.99", Decimal("19.99")),
        text(" 19.99 ", Decimal("19.99")),
        text("+19.99", Decimal("19.99")),
        text(".5", Decimal("0.5")),
        text("5.", Decimal(5)),
        text("007", Decimal(7)),
        *(
            text(written_text, BAD)
            for written_text in ("nan", "inf", "1_0", "0x1", "1e", "e1", ".", "-", "1.2.3", "12 EUR")
        ),
        *(text(written_text, BAD) for written_text in ("\u0661", "--1", "1e1.5", "100000000000000000000000000000")),
        WrittenValue('"1,5"', '"1,5"', BAD),
        WrittenValue('""', None, BAD),
        WrittenValue("true", None, BAD),
        WrittenValue("[1]", None, BAD),
        WrittenValue('{"a": 1}', None, BAD),
    ),
}
_LARGEST = Decimal("99999999999999999999999999999.999999999")

COLUMNS: Mapping[DataType, tuple[tuple[pa.Array, list[Any]], ...]] = {
    DataType.DATE: (
        (pa.array([DAY, None, date.min, date.max]), [DAY, None, date.min, date.max]),
        (pa.array([DAY, None], pa.date64()), [DAY, None]),
        (pa.array([2**31 - 1, -(2**31), -719_163, 2_932_897, 0], pa.date32()), [BAD, BAD, BAD, BAD, date(1970, 1, 1)]),
        (pa.array([DAY, None, DAY]).dictionary_encode(), [DAY, None, DAY]),
        (pa.nulls(2), [None, None]),
    ),
    DataType.BYTES: (
        (pa.array([b"a\xff", None, b""]), [b"a\xff", None, b""]),
        (pa.array([b"a\xff", None, b""], pa.large_binary()), [b"a\xff", None, b""]),
        (pa.array([b"ab", None], pa.binary(2)), [b"ab", None]),
        (pa.array([b"ab", None, b"ab"]).dictionary_encode(), [b"ab", None, b"ab"]),
    ),
    DataType.DECIMAL: (
        (pa.array([Decimal("19.99"), None], pa.decimal128(9, 2)), [Decimal("19.99"), None]),
        (pa.array([_LARGEST, _LARGEST.copy_negate()], pa.decimal128(38, 9)), [_LARGEST, _LARGEST.copy_negate()]),
        (pa.array([Decimal("1.5"), Decimal("1e-10")], pa.decimal128(20, 12)), [Decimal("1.5"), BAD]),
        (pa.array([Decimal(10) ** 29, Decimal(10) ** 28], pa.decimal128(38, 0)), [BAD, Decimal(10) ** 28]),
        (
            pa.array([Decimal(10) ** 29, -(Decimal(10) ** 29), Decimal("1e28"), Decimal("0.5")], pa.decimal256(76, 40)),
            [BAD, BAD, Decimal("1e28"), Decimal("0.5")],
        ),
        (pa.array([Decimal("0.1"), Decimal("1e-40")], pa.decimal256(76, 76)), [Decimal("0.1"), BAD]),
        (pa.array([2**63 - 1, None, -7]), [Decimal(2**63 - 1), None, Decimal(-7)]),
        (pa.array([2**64 - 1], pa.uint64()), [Decimal(2**64 - 1)]),
    ),
}
"""Columns of Parquet files and their values."""

OTHERS: Mapping[DataType, tuple[pa.Array, ...]] = {
    DataType.DATE: (
        pa.array([datetime(2013, 1, 1, tzinfo=UTC)]),
        pa.array(["2013-01-01"]),
        pa.array([15706]),
        pa.array([15706], pa.time64("us")),
    ),
    DataType.BYTES: (pa.array(["YQ=="]), pa.array([97])),
    DataType.DECIMAL: (pa.array([1.5]), pa.array(["1.5"]), pa.array([True])),
}
"""Columns of Parquet files that are of another type."""
