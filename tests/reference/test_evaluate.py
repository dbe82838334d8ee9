"""Expressions: SQL's NULL, exact integers, and casts."""

import math
from datetime import UTC, datetime
from typing import Any

import pytest

from headrace.model.expr import (
    DataType,
    Expr,
    Literal,
    abs_,
    cast,
    coalesce,
    col,
    concat,
    greatest,
    if_,
    least,
    lit,
    lower,
    upper,
)
from headrace.model.time import instant
from headrace.reference import IntegerOverflowError, evaluate

NOON = instant(datetime(2013, 1, 1, 12, tzinfo=UTC))
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
    ("expr", "wanted"),
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
        (if_(NULL, 1, 2), 2),
        (coalesce(col("none"), col("i")), 7),
        (coalesce(col("none"), col("none")), None),
        (least(col("none"), 3, col("i")), 3),
        (greatest(col("none"), 3, col("i")), 7),
        (greatest(col("none"), col("none")), None),
        (concat("a", col("s")), "a 12 "),
        (concat("a", Literal(None, DataType.STRING)), None),
    ],
)
def test_null_is_that_of_sql(expr: Expr, wanted: Any) -> None:
    assert value(expr) is wanted or value(expr) == wanted
    assert type(value(expr)) is type(wanted)


@pytest.mark.parametrize(
    ("expr", "wanted"),
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
        (abs_(col("i") - 10), 3),
        (col("i") > 2.5, True),
        (col("s") < "2", True),
        (col("t").plus(hours=1, seconds=col("i")) == datetime(2013, 1, 1, 13, 0, 7, tzinfo=UTC), True),
        (if_(col("b"), 1, 2.5), 1.0),
        (lower(lit("Ab")), "ab"),
        (upper(lit("Ab")), "AB"),
    ],
)
def test_arithmetic(expr: Expr, wanted: Any) -> None:
    assert value(expr) == wanted
    assert type(value(expr)) is type(wanted)


def test_nan_equals_itself_and_is_above_all() -> None:
    nan = {"x": math.nan}
    assert value(col("x") == col("x"), **nan) is True
    assert value(col("x") > 1e308, **nan) is True
    assert math.isnan(value(greatest(col("x"), 1.0), **nan))
    assert value(least(col("x"), 1.0), **nan) == 1.0


@pytest.mark.parametrize("expr", [col("i") + 1, col("i") * 2, abs_(lit(-1) - col("i") + -1), col("i") - lit(-1)])
def test_integers_never_wrap(expr: Expr) -> None:
    with pytest.raises(IntegerOverflowError, match="64 bits"):
        value(expr, i=2**63 - 1)


@pytest.mark.parametrize(
    ("expr", "wanted"),
    [
        (cast(col("s"), DataType.INT), 12),
        (cast(lit("1.5"), DataType.INT), None),
        (cast(lit("99999999999999999999"), DataType.INT), None),
        (cast(lit("1_0"), DataType.INT), None),
        (cast(lit("1.5e3"), DataType.FLOAT), 1500.0),
        (cast(lit("1_0.5"), DataType.FLOAT), None),
        (cast(lit("Yes"), DataType.BOOL), True),
        (cast(lit("maybe"), DataType.BOOL), None),
        (cast(lit("2013-01-01T12:00:00Z"), DataType.TIMESTAMP), NOON),
        (cast(lit("2013-01-01 13:00:00+01:00"), DataType.TIMESTAMP), NOON),
        (cast(lit("noon"), DataType.TIMESTAMP), None),
        (cast(col("t"), DataType.STRING), "2013-01-01 12:00:00"),
        (cast(col("t").plus(seconds=1), DataType.INT), NOON + 1_000_000),
        (cast(col("t"), DataType.FLOAT), float(NOON)),
        (cast(cast(col("t"), DataType.INT), DataType.TIMESTAMP), NOON),
        (cast(col("i"), DataType.TIMESTAMP), 7),
        (cast(lit(-2.9), DataType.INT), -2),
        (cast(lit(1e30), DataType.INT), None),
        (cast(lit(math.inf), DataType.INT), None),
        (cast(col("i"), DataType.STRING), "7"),
        (cast(col("b"), DataType.STRING), "true"),
        (cast(col("b"), DataType.INT), 1),
        (cast(lit(0), DataType.BOOL), False),
        (cast(lit(2.0), DataType.STRING), "2.0"),
        (cast(lit(12345678.9), DataType.STRING), "1.23456789E7"),
        (cast(lit(-1e-5), DataType.STRING), "-1.0E-5"),
        (cast(lit(1e7), DataType.STRING), "1.0E7"),
        (cast(lit(-math.inf), DataType.STRING), "-Infinity"),
        (cast(col("none"), DataType.STRING), None),
    ],
)
def test_casts(expr: Expr, wanted: Any) -> None:
    assert value(expr) == wanted
    assert type(value(expr)) is type(wanted)


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
    assert value(cast(lit(text), kind)) is None


def test_early_years_have_four_digits_in_texts() -> None:
    moment = instant(datetime(33, 4, 3, 12, tzinfo=UTC))
    assert value(cast(col("t"), DataType.STRING), t=moment) == "0033-04-03 12:00:00"
