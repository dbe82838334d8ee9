"""The expression tree as Spark columns (``headrace.model.expr`` says what each node means)."""

from collections.abc import Callable

from pyspark.sql import functions as f

from headrace.engine.types import SPARK_TYPES, SparkColumn
from headrace.model.expr import Binary, Column, DataType, Expr, Function, Literal
from headrace.model.time import Instant, to_datetime


def compile_expr(expr: Expr) -> SparkColumn:
    """The Spark column that computes ``expr`` over columns of the same names."""
    match expr:
        case Column(name):
            return f.col(f"`{name}`")
        case Literal(value, kind):
            return _literal(value, kind)
        case Binary(op, left, right):
            return _OPERATORS[op](compile_expr(left), compile_expr(right))
        case Function(name, args):
            return _function(name, [compile_expr(a) for a in args])
    raise TypeError(type(expr).__name__)


def _literal(value: object, kind: DataType | None) -> SparkColumn:
    if kind is DataType.TIMESTAMP and isinstance(value, int):
        return f.lit(to_datetime(Instant(value)))
    column = f.lit(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return column.cast("long")
    return column.cast(SPARK_TYPES[kind]) if kind is not None else column


def _divide(left: SparkColumn, right: SparkColumn) -> SparkColumn:
    divisor = right.cast("double")
    return f.when(divisor != 0, left.cast("double") / divisor)


def _floor_mod(left: SparkColumn, right: SparkColumn) -> SparkColumn:
    remainder = f.when(right != 0, left % right)
    return f.when((remainder != 0) & ((remainder < 0) != (right < 0)), remainder + right).otherwise(remainder)


_OPERATORS: dict[str, Callable[[SparkColumn, SparkColumn], SparkColumn]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": _divide,
    "%": _floor_mod,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
}


def _function(name: str, args: list[SparkColumn]) -> SparkColumn:
    if name.startswith("cast_"):
        return args[0].try_cast(SPARK_TYPES[DataType(name.removeprefix("cast_"))])
    if name == "plus_us":
        return f.timestamp_micros(f.unix_micros(args[0]) + args[1])
    if name == "if":
        return f.when(args[0], args[1]).otherwise(args[2])
    simple: dict[str, Callable[..., SparkColumn]] = {
        "not": lambda a: ~a,
        "is_null": lambda a: a.isNull(),
        "coalesce": f.coalesce,
        "least": f.least,
        "greatest": f.greatest,
        "abs": f.abs,
        "lower": f.lower,
        "upper": f.upper,
        "concat": f.concat,
    }
    return simple[name](*args)
