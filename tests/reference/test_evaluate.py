"""Expressions: SQL's NULL, exact integers, and casts."""

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from headrace.model.expressions.columns import coalesce, concat, greatest, if_else, least
from headrace.model.expressions.data_types import DataType
from headrace.model.expressions.expr import Expr, Literal, col, lit
from headrace.model.time import to_instant
from headrace_lab.reference import IntegerOverflowError, evaluate

NOON = to_instant(datetime(2013, 1, 1, 12, tzinfo=UTC))
SCHEMA = {
    "i": DataType.INT,
    "x": DataType.FLOAT,
    "s": DataType.STRING,
    "t": DataType.TIMESTAMP,
    "b": DataType.BOOL,
    "none": DataType.INT,
    "unknown": DataType.BOOL,
}
RECORD = {"i": 7, "x": 2.5, "s": " 12 ", "t": NOON, "b": True}
NULL, YES, NO = col("unknown"), lit(True), lit(False)


def value(expr: Expr, **record: Any) -> Any:
    return evaluate(expr, {**RECORD, **record}, SCHEMA)


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (YES & YES, True),
        (YES & NULL, None),
        (NO & NULL, False),
        (NULL & NO, False),
        (NO | NULL, None),
        (YES | NULL, True),
        (NULL | NULL, None),
        (~NULL, None),
        (NULL.is_null(), True),
        (NULL.is_not_null(), False),
        (col("i") == col("none"), None),
        (col("none") == col("none"), None),
        (if_else(NULL, 1, 2), 2),
        (coalesce(col("none"), col("i")), 7),
        (coalesce(col("none"), col("none")), None),
        (least(col("none"), 3, col("i")), 3),
        (greatest(col("none"), 3, col("i")), 7),
        (greatest(col("none"), col("none")), None),
        (concat("a", col("s")), "a 12 "),
        (concat("a", Literal(None, DataType.STRING)), None),
    ],
)
def test_null_is_that_of_sql(expr: Expr, expected: Any) -> None:
    assert value(expr) is expected or value(expr) == expected
    assert type(value(expr)) is type(expected)


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (col("i") + 1, 8),
        (col("i") * col("x"), 17.5),
        (col("i") / 2, 3.5),
        (col("i") / 0, None),
        (col("i") % 4, 3),
        ((col("i") - 14) % 4, 1),
        (col("i") % lit(-4), -1),
        (col("x") % 2, 0.5),
        (col("i") % 0, None),
        ((col("i") - 10).abs(), 3),
        (col("i") > 2.5, True),
        (col("s") < "2", True),
        (col("t").plus(hours=1, seconds=col("i")) == datetime(2013, 1, 1, 13, 0, 7, tzinfo=UTC), True),
        (if_else(col("b"), 1, 2.5), 1.0),
        (lit("Ab").lower(), "ab"),
        (lit("Ab").upper(), "AB"),
    ],
)
def test_arithmetic(expr: Expr, expected: Any) -> None:
    assert value(expr) == expected
    assert type(value(expr)) is type(expected)


def test_nan_equals_itself_and_is_above_all() -> None:
    nan = {"x": math.nan}
    assert value(col("x") == col("x"), **nan) is True
    assert value(col("x") > 1e308, **nan) is True
    assert math.isnan(value(greatest(col("x"), 1.0), **nan))
    assert value(least(col("x"), 1.0), **nan) == 1.0


@pytest.mark.parametrize("expr", [col("i") + 1, col("i") * 2, (lit(-1) - col("i") + -1).abs(), col("i") - lit(-1)])
def test_integers_never_wrap(expr: Expr) -> None:
    with pytest.raises(IntegerOverflowError, match="64 bits"):
        value(expr, i=2**63 - 1)


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (col("s").cast(DataType.INT), 12),
        (lit("1.5").cast(DataType.INT), None),
        (lit("99999999999999999999").cast(DataType.INT), None),
        (lit("1_0").cast(DataType.INT), None),
        (lit("1.5e3").cast(DataType.FLOAT), 1500.0),
        (lit("1_0.5").cast(DataType.FLOAT), None),
        (lit("Yes").cast(DataType.BOOL), True),
        (lit("maybe").cast(DataType.BOOL), None),
        (lit("2013-01-01T12:00:00Z").cast(DataType.TIMESTAMP), NOON),
        (lit("2013-01-01 13:00:00+01:00").cast(DataType.TIMESTAMP), NOON),
        (lit("noon").cast(DataType.TIMESTAMP), None),
        (col("t").cast(DataType.STRING), "2013-01-01 12:00:00"),
        (col("t").plus(seconds=1).cast(DataType.INT), NOON + 1_000_000),
        (col("t").cast(DataType.FLOAT), float(NOON)),
        (col("t").cast(DataType.INT).cast(DataType.TIMESTAMP), NOON),
        (col("i").cast(DataType.TIMESTAMP), 7),
        (lit(-2.9).cast(DataType.INT), -2),
        (lit(1e30).cast(DataType.INT), None),
        (lit(math.inf).cast(DataType.INT), None),
        (col("i").cast(DataType.STRING), "7"),
        (col("b").cast(DataType.STRING), "true"),
        (col("b").cast(DataType.INT), 1),
        (lit(0).cast(DataType.BOOL), False),
        (lit(2.0).cast(DataType.STRING), "2.0"),
        (lit(12345678.9).cast(DataType.STRING), "1.23456789E7"),
        (lit(-1e-5).cast(DataType.STRING), "-1.0E-5"),
        (lit(1e7).cast(DataType.STRING), "1.0E7"),
        (lit(-math.inf).cast(DataType.STRING), "-Infinity"),
        (col("none").cast(DataType.STRING), None),
    ],
)
def test_casts(expr: Expr, expected: Any) -> None:
    assert value(expr) == expected
    assert type(value(expr)) is type(expected)


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (lit(" a b\n").strip(), "a b"),
        (lit("\u2003a\x1f").strip(), "a"),
        (lit("stra\u00dfe").upper(), "STRASSE"),
        (lit("\u0130").lower(), "i\u0307"),
        (lit("\u039f\u03a3").lower(), "\u03bf\u03c2"),
        (lit("e\u0301\U0001f600").length(), 3),
        (lit("abcd").substring(1), "bcd"),
        (lit("abcd").substring(1, 2), "bc"),
        (lit("abcd").substring(-3, 2), "bc"),
        (lit("ab").substring(-3, 2), "ab"),
        (lit("ab").substring(2), ""),
        (lit("\U0001f600b").substring(1), "b"),
        (lit("abc").contains("bc"), True),
        (lit("abc").contains("B"), False),
        (lit("abc").starts_with("bc"), False),
        (lit("abc").ends_with("bc"), True),
        (lit("UA123").matches("^[A-Z]{2}[0-9]+$"), True),
        (lit("UA123\n").matches("[0-9]$"), False),
        (lit("a\u0663").matches(r"\d"), False),
        (lit("aaa").replace("aa", "b"), "ba"),
        (lit("a.b").replace(".", "\\1"), "a\\1b"),
        (col("i").is_in([1, 7]), True),
        (col("i").is_in([1, 7.5]), False),
        (lit(-0.0).is_in([0]), True),
        (lit(math.nan).is_in([math.nan]), True),
        (col("i").between(7, 7), True),
        (col("t").between(datetime(2013, 1, 1, tzinfo=UTC), datetime(2013, 1, 1, 11, tzinfo=UTC)), False),
        (col("x").round(), 2),
        ((col("x") + 1).round(), 4),
        ((-col("x")).floor(), -3),
        ((-col("x")).ceil(), -2),
        (col("i").round(), 7),
        (lit(1e19).round(), None),
        (lit(2.675).round(2), 2.67),
        (lit(0.125).round(2), 0.12),
        (lit(0.375).round(2), 0.38),
        (lit(2.5).round(0), 2.0),
        (lit(math.inf).round(3), math.inf),
        (col("i").round(2), 7),
        (lit(Decimal("2.675")).round(2), Decimal("2.68")),
        (lit(Decimal("-2.665")).round(2), Decimal("-2.66")),
        (lit(Decimal("1.5")).round(0), Decimal(2)),
        (lit(Decimal("1e-9")).round(15), Decimal("1e-9")),
        (lit(date(2024, 3, 1)) - date(2024, 2, 1), 29),
        (date(2024, 2, 1) - lit(date(2024, 3, 1)), -29),
        (lit(date.max) - date.min, 3652058),
        (lit(math.nan).floor(), None),
        (-col("x"), -2.5),
        (24 * col("i"), 168),
        (1 - col("x"), -1.5),
        (10 / col("x"), 4.0),
        (100 % col("i"), 2),
        (False & NULL, False),
        (col("none").round(), None),
        (col("none").is_in([1]), None),
    ],
)
def test_functions_of_texts_and_numbers(expr: Expr, expected: Any) -> None:
    assert value(expr) == expected
    assert type(value(expr)) is type(expected)


def instant_of(text: str) -> int:
    return to_instant(datetime.fromisoformat(text))


@pytest.mark.parametrize(
    ("moment", "zone", "expected"),
    [
        ("2013-06-30T22:30:05.9+00:00", "UTC", [2013, 6, 30, 7, 22, 30, 5]),
        ("2013-06-30T22:30:05.9+00:00", "Europe/Berlin", [2013, 7, 1, 1, 0, 30, 5]),
        ("2013-12-31T23:30:00+00:00", "Europe/Berlin", [2014, 1, 1, 3, 0, 30, 0]),
        ("2013-03-31T00:59:59+00:00", "Europe/Berlin", [2013, 3, 31, 7, 1, 59, 59]),
        ("2013-03-31T01:00:00+00:00", "Europe/Berlin", [2013, 3, 31, 7, 3, 0, 0]),
        ("2050-07-01T12:00:00+00:00", "America/New_York", [2050, 7, 1, 5, 8, 0, 0]),
        ("1969-12-31T23:59:59.999999+00:00", "UTC", [1969, 12, 31, 3, 23, 59, 59]),
        ("1800-01-01T00:00:00+00:00", "America/New_York", [1799, 12, 31, 2, 19, 3, 58]),
        ("0001-01-01T00:00:00+00:00", "UTC", [1, 1, 1, 1, 0, 0, 0]),
        ("0001-01-01T00:00:00+00:00", "America/New_York", [None] * 7),
        ("9999-12-31T23:59:59.999999+00:00", "UTC", [9999, 12, 31, 5, 23, 59, 59]),
        ("9999-12-31T23:59:59.999999+00:00", "Asia/Tokyo", [None] * 7),
    ],
)
def test_parts_are_those_that_clocks_show(moment: str, zone: str, expected: list[int | None]) -> None:
    t = col("t")
    parts = [t.year(zone), t.month(zone), t.day(zone), t.weekday(zone), t.hour(zone), t.minute(zone), t.second(zone)]
    assert [value(part, t=instant_of(moment)) for part in parts] == expected


@pytest.mark.parametrize("far", [2**62, -(2**62), 2**63 - 1, 253_402_300_800_000_000, -62_135_596_800_000_001])
def test_outside_the_years_1_to_9999_there_are_no_parts(far: int) -> None:
    for expr in (
        col("t").year(),
        col("t").hour("Europe/Berlin"),
        col("t").truncate("minute"),
        col("t").truncate("year"),
    ):
        assert value(expr, t=far) is None


@pytest.mark.parametrize(
    ("unit", "zone", "expected"),
    [
        ("minute", "UTC", "2013-08-14T22:47:00+00:00"),
        ("hour", "UTC", "2013-08-14T22:00:00+00:00"),
        ("hour", "Asia/Kolkata", "2013-08-15T04:00:00+05:30"),
        ("day", "UTC", "2013-08-14T00:00:00+00:00"),
        ("day", "Europe/Berlin", "2013-08-15T00:00:00+02:00"),
        ("week", "UTC", "2013-08-12T00:00:00+00:00"),
        ("month", "Europe/Berlin", "2013-08-01T00:00:00+02:00"),
        ("quarter", "UTC", "2013-07-01T00:00:00+00:00"),
        ("year", "Europe/Berlin", "2013-01-01T00:00:00+01:00"),
    ],
)
def test_truncation(unit: str, zone: str, expected: str) -> None:
    assert value(col("t").truncate(unit, zone), t=instant_of("2013-08-14T22:47:31.5+00:00")) == instant_of(expected)


@pytest.mark.parametrize(
    ("unit", "zone", "moment", "expected"),
    [
        ("hour", "Europe/Berlin", "2013-10-27T00:30:00+00:00", "2013-10-27T00:00:00+00:00"),  # the first 02:30
        ("hour", "Europe/Berlin", "2013-10-27T01:30:00+00:00", "2013-10-27T01:00:00+00:00"),  # the second
        ("hour", "Australia/Lord_Howe", "2013-10-05T15:40:00+00:00", "2013-10-05T15:30:00+00:00"),  # 02:30 after 02:00
        ("day", "America/Sao_Paulo", "2018-11-04T12:00:00+00:00", "2018-11-04T03:00:00+00:00"),  # begins at 01:00
        ("day", "America/Sao_Paulo", "2018-02-18T02:30:00+00:00", "2018-02-17T02:00:00+00:00"),  # 23:30 again
    ],
)
def test_truncation_where_clocks_are_set(unit: str, zone: str, moment: str, expected: str) -> None:
    assert value(col("t").truncate(unit, zone), t=instant_of(moment)) == instant_of(expected)


def test_lengths_of_time_move_timestamps() -> None:
    assert value(col("t") + timedelta(hours=1)) == NOON + 3_600_000_000
    assert value(timedelta(hours=1) + col("t")) == NOON + 3_600_000_000
    assert value(col("t") - timedelta(days=1)) == NOON - 86_400_000_000
    assert value(col("t").plus(milliseconds=col("i"))) == NOON + 7_000


def test_a_column_that_the_record_lacks_is_null() -> None:
    assert evaluate(col("i"), {}, SCHEMA) is None


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("\u0663", DataType.INT),
        ("9" * 5000, DataType.INT),
        ("\u0661.5", DataType.FLOAT),
        ("\u0131nf", DataType.FLOAT),
        ("2013-W01-1", DataType.TIMESTAMP),
        ("20130101", DataType.TIMESTAMP),
        ("2013-01-01T05+02:75", DataType.TIMESTAMP),
    ],
)
def test_texts_that_only_python_would_read_are_null(text: str, kind: DataType) -> None:
    assert value(lit(text).cast(kind)) is None


def test_early_years_have_four_digits_in_texts() -> None:
    moment = to_instant(datetime(33, 4, 3, 12, tzinfo=UTC))
    assert value(col("t").cast(DataType.STRING), t=moment) == "0033-04-03 12:00:00"
