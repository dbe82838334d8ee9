"""Expressions on Spark: equal to the reference's evaluation, node by node, with SQL's NULL."""

import math
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import types as t

from headrace.engine.errors import ArithmeticDataError, spark_errors
from headrace.engine.expressions import compile_expr
from headrace.engine.types import SPARK_TYPES, SparkSession
from headrace.model.expr import (
    DataType,
    Expr,
    Function,
    abs_,
    cast,
    coalesce,
    col,
    concat,
    crc32,
    greatest,
    if_,
    least,
    lit,
    lower,
    render,
    upper,
)
from headrace.model.time import instant
from headrace.model.typing import type_of
from headrace.reference.evaluate import evaluate

pytestmark = pytest.mark.spark

SCHEMA = {
    "i": DataType.INT,
    "j": DataType.INT,
    "x": DataType.FLOAT,
    "s": DataType.STRING,
    "u": DataType.STRING,
    "b": DataType.BOOL,
    "c": DataType.BOOL,
    "t": DataType.TIMESTAMP,
    "odd `name`.x": DataType.INT,
}

T0 = datetime(2013, 3, 10, 7, 30, 0, 250_000, tzinfo=UTC)
ROWS: list[dict[str, Any]] = [
    {"i": 7, "j": 3, "x": 2.5, "s": "Éa", "u": "b", "b": True, "c": False, "t": T0, "odd `name`.x": 1},
    {"i": -7, "j": 3, "x": -0.5, "s": "", "u": "", "b": False, "c": None, "t": datetime(1955, 1, 1, tzinfo=UTC)},
    {"i": 7, "j": -3, "x": math.nan, "s": " 12 ", "u": "a", "b": None, "c": True, "t": None},
    {"i": -7, "j": -3, "x": math.inf, "s": "1.5", "u": None, "b": None, "c": False, "t": T0},
    {"i": 5, "j": 0, "x": 0.0, "s": "2013-01-01T05:00:00Z", "u": "x", "b": None, "c": None, "t": T0},
    {"i": None, "j": None, "x": None, "s": None, "u": None, "b": True, "c": None, "t": None},
    {"i": 2**62, "j": 1, "x": 1e300, "s": "true", "u": "TRUE", "b": True, "c": True, "t": T0},
    {"i": 0, "j": 5, "x": -1e-5, "s": "10:30", "u": "2013", "b": False, "c": True, "t": T0},
    {"i": 0, "j": 5, "x": 3.0, "s": "2013-01-01 05:00:00.123+02:00", "u": "No", "b": False, "c": False, "t": T0},
    {"i": 0, "j": 5, "x": 3.0, "s": "2013-02-30", "u": "99999999999999999999", "b": True, "c": False, "t": T0},
    {"i": 0, "j": 5, "x": 3.0, "s": "2013-02-28", "u": "1d", "b": True, "c": False, "t": T0},
    {"i": 0, "j": 5, "x": 3.0, "s": "1e3", "u": "-inf", "b": True, "c": False, "t": T0},
]

EXPRESSIONS: list[Expr] = [
    col("j") + 1,
    col("i") - col("x"),
    col("j") * 2,
    col("i") / col("j"),
    col("x") / col("x"),
    col("i") % col("j"),
    col("x") % col("j"),
    col("i") % 2.5,
    col("i") > col("x"),
    col("i") == col("j"),
    col("x") == col("x"),
    col("s") < col("u"),
    col("t") >= lit(T0),
    col("b") & col("c"),
    col("b") | col("c"),
    ~col("b"),
    col("s").is_null(),
    col("s").is_not_null(),
    coalesce(col("i"), 0),
    coalesce(col("i"), col("x")),
    if_(col("b"), col("i"), 2.5),
    if_(col("b"), col("s"), None),
    least(col("i"), col("j")),
    greatest(col("i"), col("x")),
    greatest(col("i")),
    abs_(col("j")),
    abs_(col("x")),
    lower(col("s")),
    upper(col("s")),
    crc32(col("s")),
    concat(col("s"), "-", col("u")),
    col("t").plus(minutes=col("j"), days=1),
    col("odd `name`.x") + 1,
    *[cast(col(name), kind) for name in ("s", "u") for kind in DataType],
    cast(col("x"), DataType.INT),
    cast(col("i"), DataType.FLOAT),
    cast(col("j"), DataType.BOOL),
    cast(col("b"), DataType.INT),
    cast(col("b"), DataType.STRING),
    cast(col("i"), DataType.STRING),
    cast(col("x"), DataType.STRING),
    cast(col("t"), DataType.STRING),
    cast(col("t"), DataType.INT),
    cast(col("t"), DataType.FLOAT),
    cast(col("j"), DataType.TIMESTAMP),
    cast(col("x") + 0.25, DataType.TIMESTAMP),
]


def rows(spark: SparkSession) -> Any:
    fields = [t.StructField(name, SPARK_TYPES[kind]) for name, kind in SCHEMA.items()]
    data = [tuple(row.get(name) for name in SCHEMA) for row in ROWS]
    return spark.createDataFrame(data, t.StructType([*fields]))


def for_reference(row: dict[str, Any]) -> dict[str, Any]:
    return {name: instant(value) if isinstance(value, datetime) else value for name, value in row.items()}


def for_comparison(value: Any) -> Any:
    if isinstance(value, datetime):
        return instant(value.replace(tzinfo=UTC))
    return "nan" if isinstance(value, float) and math.isnan(value) else value


@pytest.fixture(scope="module")
def computed(spark: SparkSession) -> list[Any]:
    """All expressions over all rows, in one job."""
    from pyspark.sql import functions as f

    # as microseconds where they are timestamps: collecting one would go through the local time zone of Python
    compiled = []
    for n, expr in enumerate(EXPRESSIONS):
        column = compile_expr(expr, SCHEMA)
        is_time = type_of(expr, SCHEMA) is DataType.TIMESTAMP
        compiled.append((f.unix_micros(column) if is_time else column).alias(f"e{n}"))
    return list(rows(spark).coalesce(1).select(*compiled).collect())


@pytest.mark.parametrize("number", range(len(EXPRESSIONS)), ids=[render(expr) for expr in EXPRESSIONS])
def test_spark_and_the_reference_agree(computed: list[Any], number: int) -> None:
    expr = EXPRESSIONS[number]
    expected = [for_comparison(evaluate(expr, for_reference(row), SCHEMA)) for row in ROWS]
    assert [for_comparison(row[number]) for row in computed] == expected


def test_a_time_without_a_date_is_no_timestamp(spark: SparkSession) -> None:
    column = compile_expr(cast(lit("10:30"), DataType.TIMESTAMP))
    assert spark.range(1).select(column).collect() == [(None,)]


def test_integers_that_leave_64_bits_are_a_typed_error(spark: SparkSession) -> None:
    overflow = compile_expr(col("i") * 4, SCHEMA)
    with pytest.raises(ArithmeticDataError, match="leaves 64 bits"), spark_errors():
        rows(spark).select(overflow).collect()


def test_every_function_of_the_model_is_compiled(spark: SparkSession) -> None:
    def functions(expr: Expr) -> set[str]:
        from headrace.model.expr import children

        own = {expr.name} if isinstance(expr, Function) else set()
        return own.union(*(functions(child) for child in children(expr)))

    from headrace.engine.expressions import _FUNCTIONS

    tried = set().union(*(functions(expr) for expr in EXPRESSIONS))
    engines_own = {"walk", "field"}  # of patterns and own triggers, which are held to the reference
    assert set(_FUNCTIONS) - engines_own <= tried
