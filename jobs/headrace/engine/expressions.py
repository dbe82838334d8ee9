"""The expression tree as Spark columns (``headrace.model.expr`` says what each node means).

Only column expressions, never Python. Results equal those of ``headrace.reference.evaluate``; in particular no value
depends on the day or the machine on which it is computed (Spark itself would read ``10:30`` as a time of today).
"""

from collections.abc import Callable, Mapping

from pyspark.sql import functions as f

from headrace.engine.custom_triggers import TriggerCalls
from headrace.engine.types import SPARK_TYPES, SparkColumn
from headrace.model.expr import Binary, Column, DataType, Expr, Function, Literal, Schema
from headrace.model.time import Instant, to_datetime
from headrace.model.typing import type_of
from headrace.program.lets import FROM, Call

Named = Callable[[str], SparkColumn]

_NO_SCHEMA: Mapping[str, DataType] = {}


def named(name: str) -> SparkColumn:
    """The column called ``name``, whatever characters it has."""
    return f.col(f"`{name.replace('`', '``')}`")


def compile_expr(expr: Expr, schema: Schema = _NO_SCHEMA, column: Named = named) -> SparkColumn:
    """The Spark column that computes ``expr``; ``column`` finds the columns that it reads.

    ``schema`` gives their types. It is needed where ``expr`` casts, since a string is read by rules of its own.
    """
    match expr:
        case Column(name):
            return column(name)
        case Literal(value, kind):
            return _literal(value, kind)
        case Binary(op, left, right):
            return _OPERATORS[op](compile_expr(left, schema, column), compile_expr(right, schema, column))
        case Function(name, args):
            operands = [compile_expr(a, schema, column) for a in args]
            if isinstance(expr, Call):
                return TriggerCalls(expr.owner).method(name)(*operands)
            how, _, to = name.rpartition("_")
            if how == "cast" or how.startswith(FROM):
                source = type_of(args[0], schema) if how == "cast" else DataType(how.removeprefix(FROM))
                return _cast(operands[0], source, DataType(to))
            return _FUNCTIONS[name](*operands)
    raise TypeError(type(expr).__name__)


def by_reference(value: int, row: str) -> SparkColumn:
    """``value`` as something that generated code refers to, instead of text in it: a clock that is another one in every
    epoch would make every epoch's code new, to be compiled again. ``row`` is SQL for any integer that is not constant.
    """
    # at an index that Spark cannot know, whatever it knows of the row; as text, since each call of Py4J costs
    return f.expr(f"get(array({int(value)}L, {int(value)}L), cast(coalesce({row} & 1, 0) as int))")


def read_text(text: SparkColumn, kind: DataType) -> SparkColumn:
    """The string ``text`` as ``kind``, NULL where it does not read as one. Blanks around it do not matter.

    Integers are digits with a sign; floats may have a fraction, an exponent, or be inf or nan; booleans are t, true, y,
    yes, 1 and f, false, n, no, 0 in any case; timestamps are ISO 8601: a date with or without a time, UTC unless they
    name another zone.
    """
    trimmed = f.trim(text)
    match kind:
        case DataType.STRING:
            return text
        case DataType.TIMESTAMP:
            return f.when(_starts_with_a_date(trimmed), trimmed.try_cast("timestamp"))
        case DataType.FLOAT:
            # Java also reads 1d and 2f, which are no numbers anywhere else.
            lowered = f.lower(trimmed)
            suffixed = f.substring(lowered, -1, 1).isin("d", "f") & ~lowered.isin("inf", "+inf", "-inf")
            return f.when(~suffixed, trimmed.try_cast("double"))
    return trimmed.try_cast(SPARK_TYPES[kind])


def _starts_with_a_date(text: SparkColumn) -> SparkColumn:
    """Whether ``text`` looks like yyyy-mm-dd...; a year or a time alone does not."""
    # No regular expression: this runs for every record.
    return (f.length(text) >= 10) & (f.substring(text, 5, 1) == "-") & (f.substring(text, 8, 1) == "-")


def _cast(value: SparkColumn, source: DataType | None, to: DataType) -> SparkColumn:
    match source, to:
        case DataType.STRING, _:
            return read_text(value, to)
        case DataType.TIMESTAMP, DataType.INT | DataType.FLOAT:
            return f.unix_micros(value).cast(SPARK_TYPES[to])
        case DataType.INT | DataType.FLOAT, DataType.TIMESTAMP:
            return f.timestamp_micros(value.try_cast("bigint"))
    return value.try_cast(SPARK_TYPES[to])


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


def _of_several(pick: Callable[..., SparkColumn]) -> Callable[..., SparkColumn]:
    return lambda *args: pick(*args) if len(args) > 1 else args[0]


def _walk(state: SparkColumn, codes: SparkColumn, table: SparkColumn, width: SparkColumn) -> SparkColumn:
    """Where an automaton is that was at ``state`` and saw ``codes``; its ``table`` (text, row by row, each of ``width``
    codes) says where each code leads.
    """
    moves = f.split(table, ",").cast("array<bigint>")  # of a constant: Spark computes it once
    return f.aggregate(codes, state, lambda at, code: f.get(moves, (at * width + code).cast("int")))


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

_FUNCTIONS: dict[str, Callable[..., SparkColumn]] = {
    "not": lambda a: ~a,
    "is_null": lambda a: a.isNull(),
    "coalesce": f.coalesce,
    "if": lambda condition, then, otherwise: f.when(condition, then).otherwise(otherwise),
    "least": _of_several(f.least),
    "greatest": _of_several(f.greatest),
    "abs": f.abs,
    "lower": f.lower,
    "upper": f.upper,
    "concat": f.concat,
    "crc32": f.crc32,
    "walk": _walk,
    "field": lambda value, name: value[name],
    "plus_us": lambda time, microseconds: f.timestamp_micros(f.unix_micros(time) + microseconds),
}
