"""One small typed expression tree for event times, keys, filters, aggregate inputs and predicates.

Both executors compile it, so a pipeline file needs neither Spark nor Python lambdas. NULL follows SQL: an operator with
a NULL operand gives NULL, ``and``/``or`` use three-valued logic, a filter keeps only TRUE.
Write expressions with ``col("delay") > 15`` and friends; ``==`` builds an expression, so compare nodes with ``same``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, ClassVar

from headrace.errors import PipelineError
from headrace.model.time import instant


class DataType(StrEnum):
    """The types of columns. Integers are 64-bit, floats are doubles, timestamps are microseconds UTC."""

    STRING = "string"
    INT = "int"
    FLOAT = "float"
    BOOL = "bool"
    TIMESTAMP = "timestamp"


NUMERIC = (DataType.INT, DataType.FLOAT)
type_names = ", ".join(t.value for t in DataType)
Schema = Mapping[str, DataType]
Scalar = str | int | float | bool | None


class Expr:
    """A node of the tree. Immutable; safe to share between pipelines."""

    def _binary(self, op: str, other: "Expr | Scalar | datetime") -> "Binary":
        return Binary(op, self, lift(other))

    def __add__(self, other: "Expr | Scalar") -> "Expr":
        return self._binary("+", other)

    def __sub__(self, other: "Expr | Scalar") -> "Expr":
        return self._binary("-", other)

    def __mul__(self, other: "Expr | Scalar") -> "Expr":
        return self._binary("*", other)

    def __truediv__(self, other: "Expr | Scalar") -> "Expr":
        """Division of floats (integers are widened); NULL when the divisor is zero."""
        return self._binary("/", other)

    def __mod__(self, other: "Expr | Scalar") -> "Expr":
        """Remainder with the sign of the divisor (floor_mod); NULL when the divisor is zero."""
        return self._binary("%", other)

    def __eq__(self, other: object) -> "Expr":  # type: ignore[override]
        return self._binary("==", other)  # type: ignore[arg-type]

    def __ne__(self, other: object) -> "Expr":  # type: ignore[override]
        return self._binary("!=", other)  # type: ignore[arg-type]

    def __lt__(self, other: "Expr | Scalar | datetime") -> "Expr":
        return self._binary("<", other)

    def __le__(self, other: "Expr | Scalar | datetime") -> "Expr":
        return self._binary("<=", other)

    def __gt__(self, other: "Expr | Scalar | datetime") -> "Expr":
        return self._binary(">", other)

    def __ge__(self, other: "Expr | Scalar | datetime") -> "Expr":
        return self._binary(">=", other)

    def __and__(self, other: "Expr | Scalar") -> "Expr":
        return self._binary("and", other)

    def __or__(self, other: "Expr | Scalar") -> "Expr":
        return self._binary("or", other)

    def __invert__(self) -> "Expr":
        return Function("not", (self,))

    def __hash__(self) -> int:
        return hash(repr(self))

    def __bool__(self) -> bool:
        raise TypeError("an expression has no truth value in Python: write & | ~ instead of and, or, not")

    def is_null(self) -> "Expr":
        """TRUE where this is NULL, FALSE elsewhere; never NULL."""
        return Function("is_null", (self,))

    def is_not_null(self) -> "Expr":
        """FALSE where this is NULL, TRUE elsewhere; never NULL."""
        return Function("not", (self.is_null(),))

    def plus(self, **units: "Expr | int") -> "Expr":
        """This timestamp moved forward: ``col("hour").plus(minutes=col("minute"))``; also days, hours, seconds."""
        result: Expr = self
        for unit, amount in units.items():
            if unit not in UNITS:
                raise PipelineError(f"plus() knows the units {', '.join(UNITS)}, not {unit!r}")
            result = Function("plus_us", (result, Binary("*", lift(amount), Literal(UNITS[unit]))))
        return result


UNITS: dict[str, int] = {"days": 86_400_000_000, "hours": 3_600_000_000, "minutes": 60_000_000, "seconds": 1_000_000}


@dataclass(frozen=True, eq=False)
class Column(Expr):
    """A column of the record at hand."""

    name: str


@dataclass(frozen=True, eq=False)
class Literal(Expr):
    """A constant. ``type`` is given only for a NULL and for a timestamp (whose value is an Instant)."""

    value: Scalar
    type: DataType | None = None


@dataclass(frozen=True, eq=False)
class Binary(Expr):
    """An operator between two expressions: + - * / % == != < <= > >= and or."""

    op: str
    left: Expr
    right: Expr

    ARITHMETIC: ClassVar[frozenset[str]] = frozenset({"+", "-", "*", "/", "%"})
    COMPARISON: ClassVar[frozenset[str]] = frozenset({"==", "!=", "<", "<=", ">", ">="})
    BOOLEAN: ClassVar[frozenset[str]] = frozenset({"and", "or"})


@dataclass(frozen=True, eq=False)
class Function(Expr):
    """A named function: not, is_null, coalesce, if, least, greatest, abs, lower, upper, concat, crc32, cast_*, plus_us.

    ``least`` and ``greatest`` ignore NULLs (NULL only if all are), as in Spark.
    """

    name: str
    args: tuple[Expr, ...]


def col(name: str) -> Column:
    """The column called ``name``."""
    return Column(name)


def lit(value: Scalar | datetime) -> Literal:
    """A constant; an aware datetime becomes a timestamp."""
    if isinstance(value, datetime):
        return Literal(instant(value), DataType.TIMESTAMP)
    return Literal(value)


def lift(value: "Expr | Scalar | datetime | timedelta") -> Expr:
    """``value`` itself if it is an expression, else a literal of it."""
    if isinstance(value, Expr):
        return value
    if value is None or isinstance(value, str | int | float | bool | datetime):
        return lit(value)
    raise PipelineError(
        f"{value!r} cannot stand in an expression; use a column, a string, a number, a bool or a datetime"
    )


def coalesce(*args: Expr | Scalar) -> Expr:
    """The first argument that is not NULL."""
    return Function("coalesce", tuple(lift(a) for a in args))


def if_(condition: Expr, then: Expr | Scalar, otherwise: Expr | Scalar) -> Expr:
    """``then`` where ``condition`` is TRUE, ``otherwise`` where it is FALSE or NULL."""
    return Function("if", (condition, lift(then), lift(otherwise)))


def least(*args: Expr | Scalar) -> Expr:
    """The smallest argument that is not NULL."""
    return Function("least", tuple(lift(a) for a in args))


def greatest(*args: Expr | Scalar) -> Expr:
    """The largest argument that is not NULL."""
    return Function("greatest", tuple(lift(a) for a in args))


def abs_(value: Expr) -> Expr:
    """Absolute value of a number."""
    return Function("abs", (value,))


def lower(value: Expr) -> Expr:
    """``value`` in lower case."""
    return Function("lower", (value,))


def upper(value: Expr) -> Expr:
    """``value`` in upper case."""
    return Function("upper", (value,))


def concat(*args: Expr | Scalar) -> Expr:
    """The strings one after another; NULL if one is NULL."""
    return Function("concat", tuple(lift(a) for a in args))


def crc32(value: Expr) -> Expr:
    """CRC-32 of a string in UTF-8, an int from 0 to 2^32 - 1: a hash that every executor computes alike."""
    return Function("crc32", (value,))


def cast(value: Expr, to: DataType) -> Expr:
    """``value`` as type ``to``; a string that does not read as one gives NULL.

    A timestamp as a number, and a number as a timestamp, is microseconds since 1970 UTC: ``cast(col("ms") * 1000,
    DataType.TIMESTAMP)``.
    """
    return Function(f"cast_{to.value}", (value,))


def children(expr: Expr) -> Iterator[Expr]:
    """The direct operands of ``expr``."""
    match expr:
        case Binary(_, left, right):
            yield left
            yield right
        case Function(_, args):
            yield from args


def columns_of(expr: Expr) -> frozenset[str]:
    """Names of all columns that ``expr`` reads."""
    own = frozenset({expr.name}) if isinstance(expr, Column) else frozenset()
    return own.union(*(columns_of(child) for child in children(expr)))


def same(left: Expr, right: Expr) -> bool:
    """Structural equality (``==`` builds an expression instead)."""
    return to_json(left) == to_json(right)


def to_json(expr: Expr) -> list[Any]:
    """A JSON value that identifies ``expr``; fingerprints are made of it."""
    values = [getattr(expr, f.name) for f in fields(expr)]  # type: ignore[arg-type]
    return [type(expr).__name__, *[_json_value(v) for v in values]]


def _json_value(value: Any) -> Any:
    if isinstance(value, Expr):
        return to_json(value)
    if isinstance(value, tuple):
        return [_json_value(v) for v in value]
    return value


def render(expr: Expr) -> str:
    """``expr`` for people, as it would be written."""
    match expr:
        case Column(name):
            return name
        case Literal(value, _):
            return repr(value)
        case Binary(op, left, right):
            return f"({render(left)} {op} {render(right)})"
        case Function(name, args):
            return f"{name}({', '.join(render(a) for a in args)})"
    raise TypeError(type(expr).__name__)
