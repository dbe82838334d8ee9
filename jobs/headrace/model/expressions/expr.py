"""One small typed expression tree for event times, keys, filters and predicates, and the aggregates that read it.

Both executors compile it, so a pipeline file needs neither Spark nor Python lambdas. NULL follows SQL: an operator with
a NULL operand gives NULL, ``and``/``or`` use three-valued logic, a filter keeps only TRUE.
Write expressions with ``col("delay") > 15`` and friends; ``==`` builds an expression, so compare nodes with ``same``.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, ClassVar, NoReturn

from headrace.errors import PipelineError
from headrace.model.arguments import (
    REQUIRED,
    Arguments,
    Suggesting,
    as_expression,
    check_keywords,
    did_you_mean,
    method_keywords,
    register_word,
    require_call,
    short_repr,
)
from headrace.model.combiners import BY_ANOTHER, TRAITS, Combiner, CustomCombiner, Outer, check_combiner
from headrace.model.expressions import data_types
from headrace.model.expressions.methods import (
    Aggregations,
    NumberMethods,
    TextMethods,
    TimeMethods,
    checked_place,
    part_bounds,
)
from headrace.model.time import LONGEST, UNITS, to_instant


def _refuse_method(what: str, write: str) -> Callable[..., NoReturn]:
    """A method of Python's that no expression can have: an error that says what to write."""

    def refuse(self: "Expr", *_: object) -> NoReturn:
        raise PipelineError(f"{what} an expression, {render(self)}: write {write}")

    return refuse


@method_keywords
class Expr(
    Aggregations["Expr", "Aggregate"],
    NumberMethods["Expr"],
    TextMethods["Expr"],
    TimeMethods["Expr"],
    Suggesting,
):
    """A node of the tree. Immutable; safe to share between pipelines.

    Operators take expressions and constants on either side: ``24 * col("x")``, ``col("at") + timedelta(hours=1)``.

    >>> ((hr.col("price") + 1) * hr.col("number")).sum().describe()
    'sum of ((price + 1) * number)'
    """

    def __add__(self, other: "Operand | timedelta") -> "Expr":
        """The sum of two numbers, or a timestamp that much later."""
        return _shift_time(self, other, 1) if isinstance(other, timedelta) else _make_binary("+", self, other)

    def __radd__(self, other: "data_types.Scalar | timedelta") -> "Expr":
        return _shift_time(self, other, 1) if isinstance(other, timedelta) else _make_binary("+", other, self)

    def __sub__(self, other: "Operand | timedelta") -> "Expr":
        """The difference of two numbers, the days between two dates (an int), or a timestamp that much earlier."""
        return _shift_time(self, other, -1) if isinstance(other, timedelta) else _make_binary("-", self, other)

    def __rsub__(self, other: "Operand") -> "Expr":
        return _make_binary("-", other, self)

    def __mul__(self, other: "Operand") -> "Expr":
        return _make_binary("*", self, other)

    def __rmul__(self, other: "Operand") -> "Expr":
        return _make_binary("*", other, self)

    def __truediv__(self, other: "Operand") -> "Expr":
        """Division of floats (integers are widened), or of decimals, half to even; NULL when the divisor is zero."""
        return _make_binary("/", self, other)

    def __rtruediv__(self, other: "Operand") -> "Expr":
        return _make_binary("/", other, self)

    def __mod__(self, other: "Operand") -> "Expr":
        """Remainder with the sign of the divisor (floor_mod); NULL when the divisor is zero."""
        return _make_binary("%", self, other)

    def __rmod__(self, other: "Operand") -> "Expr":
        return _make_binary("%", other, self)

    def __neg__(self) -> "Expr":
        return Function("negate", (self,))

    def __pos__(self) -> "Expr":
        return self

    def __eq__(self, other: object) -> "Expr":  # type: ignore[override]
        return _make_binary("==", self, other)

    def __ne__(self, other: object) -> "Expr":  # type: ignore[override]
        return _make_binary("!=", self, other)

    def __lt__(self, other: "Operand") -> "Expr":
        return _make_binary("<", self, other)

    def __le__(self, other: "Operand") -> "Expr":
        return _make_binary("<=", self, other)

    def __gt__(self, other: "Operand") -> "Expr":
        return _make_binary(">", self, other)

    def __ge__(self, other: "Operand") -> "Expr":
        return _make_binary(">=", self, other)

    def __and__(self, other: "Operand") -> "Expr":
        return _make_binary("and", self, other)

    def __rand__(self, other: "Operand") -> "Expr":
        return _make_binary("and", other, self)

    def __or__(self, other: "Operand") -> "Expr":
        return _make_binary("or", self, other)

    def __ror__(self, other: "Operand") -> "Expr":
        return _make_binary("or", other, self)

    def __invert__(self) -> "Expr":
        return Function("not", (self,))

    def __hash__(self) -> int:
        return hash(repr(self))

    def __str__(self) -> str:
        return render(self)

    __bool__ = _refuse_method(
        "Python cannot tell the truth of",
        "& | ~ instead of and, or, not, with parentheses around each comparison; hr.if_else() instead of if; .is_in() "
        "instead of in; .between() instead of a < b < c",
    )
    __contains__ = _refuse_method("in cannot look into", '.contains("text")')
    __iter__ = _refuse_method("Python cannot go through", "a method of it, such as .is_in() or .substring()")
    __getitem__ = _refuse_method(
        "[] cannot look into",
        ".field(name) of a struct, .item(key) of a map, .item(place) of a list, .substring(start, length) of text",
    )
    __floordiv__ = _refuse_method("// does not work on", "(a / b).floor()")
    __rfloordiv__ = __floordiv__
    __pow__ = _refuse_method("** does not work on", "a product, a * a, or .power(2), which is a float")
    __rpow__ = __pow__
    __abs__ = _refuse_method("abs() does not work on", ".abs()")
    __round__ = _refuse_method("round() does not work on", ".round()")
    __floor__ = _refuse_method("math.floor() does not work on", ".floor()")
    __ceil__ = _refuse_method("math.ceil() does not work on", ".ceil()")
    __len__ = _refuse_method("len() does not work on", ".length()")
    __int__ = _refuse_method("int() does not work on", ".cast(int)")
    __float__ = _refuse_method("float() does not work on", ".cast(float)")

    def is_null(self) -> "Expr":
        """TRUE where this is NULL, FALSE elsewhere; never NULL. ``col("n").is_null()`` of ``None`` is ``True``."""
        return Function("is_null", (self,))

    def is_not_null(self) -> "Expr":
        """FALSE where this is NULL, TRUE elsewhere; never NULL. ``col("n").is_not_null()`` of ``None`` is ``False``."""
        return Function("not", (self.is_null(),))

    def cast(self, to: data_types.DataType | type) -> "Expr":
        """This as type ``to`` (``int``, ``datetime`` or a DataType); a string that does not read as one gives NULL.

        A timestamp in a string is ISO 8601 with dashes and colons; ``to_timestamp`` reads what else tools write.

        A timestamp as a number, and a number as a timestamp, is microseconds since 1970 UTC: ``(col("ms") *
        1000).cast(datetime)``. The date of a timestamp is its day in UTC, and a date as a timestamp its midnight. Bytes
        and strings are each other's UTF-8. A float as a decimal is the number that it is written as, rounded half to
        even; a string must say a decimal exactly. A float or a decimal that ``to`` does not hold gives NULL.
        ``col("text").cast(int)`` of ``"12"`` is ``12``.
        """
        return Function(f"cast_{data_types.data_type(Arguments('cast'), 'to', to).value}", (self,))

    def is_in(self, values: "Iterable[data_types.Scalar | datetime]") -> "Expr":
        """Whether this is one of ``values``, which are constants: ``col("origin").is_in(["EWR", "JFK"])``.
        ``col("text").is_in(["EWR", "JFK"])`` of ``"JFK"`` is ``True``.
        """
        if isinstance(values, str | bytes | Mapping | Expr) or not isinstance(values, Iterable):
            raise Arguments("is_in").refusal("values", values, 'write a list of constants, ["EWR", "JFK"]')
        constants = [lit(value) for value in values]
        if not constants or any(constant.value is None for constant in constants):
            raise Arguments("is_in").refusal(
                "values", values, "write at least one value, and .is_null() for a missing one"
            )
        return Function("is_in", (self, *constants))

    def between(self, low: "Operand", high: "Operand") -> "Expr":
        """Whether this is from ``low`` to ``high``, both included. ``col("n").between(1, 3)`` of ``3`` is ``True``."""
        ends = to_expression(low), to_expression(high)
        if is_empty_range(*ends):
            raise Arguments("between").refusal(
                "high", high, f"it is below low={short_repr(low)}, so nothing is between them; swap them"
            )
        return (self >= low) & (self <= high)

    def plus(self, **units: "Expr | int") -> "Expr":
        """This timestamp moved forward by ``units``: ``col("hour").plus(minutes=col("minute"))``; also days, hours,
        seconds, milliseconds, microseconds. A date moves by days.
        ``col("at").plus(days=1)`` of ``"2026-03-01T10:30:00Z"`` is ``"2026-03-02T10:30:00Z"``.
        """
        if not units:
            raise PipelineError("plus(): say how much later, plus(minutes=15)")
        result: Expr = self
        for unit, amount in units.items():
            if unit not in UNITS:
                raise Arguments("plus").refusal(
                    unit, amount, f"{did_you_mean(unit, UNITS)}write one of the units {', '.join(UNITS)}"
                )
            if isinstance(amount, bool) or not isinstance(amount, Expr | int):
                raise Arguments("plus").refusal(unit, amount, "write a whole number, or an expression of one")
            if isinstance(amount, int) and abs(amount) * UNITS[unit] > LONGEST:
                raise Arguments("plus").refusal(unit, amount, "it is longer than 70,000 years")
            if unit == "days":
                result = Function("plus_days", (result, to_expression(amount)))
            else:
                result = Function("plus_us", (result, Binary("*", to_expression(amount), Literal(UNITS[unit]))))
        return result

    def date(self) -> "Expr":
        """The day of this timestamp in UTC. ``col("at").date()`` of ``"2026-03-01T10:30:00Z"`` is ``"2026-03-01"``."""
        return Function("cast_date", (self,))

    def field(self, name: str) -> "Expr":
        """The field ``name`` of this struct, of the type that it has there; NULL where the struct is.
        ``col("place").field("city")`` of ``{"city": "Oslo"}`` is ``"Oslo"``.
        """
        return self._apply_function("field", Arguments("field").text("name", name, "city"))

    def item(self, place: int | str) -> "Expr":
        """The item at ``place`` of this list, from 0 on, or from the end if that is negative (-1: the last); the value
        of this key of a map. NULL where there is none.
        ``col("words").item(-1)`` of ``["a", "b"]`` is ``"b"``, ``col("marks").item("art")`` of ``{"art": 1}`` is ``1``.
        """
        is_key = isinstance(place, str)
        return self._apply_function(
            "item", place if is_key else checked_place(Arguments("item"), "place", place, "item")
        )

    def slice(self, start: int, length: int | None = None) -> "Expr":
        """The list of ``length`` items from place ``start`` on, or all, as ``substring`` takes characters.
        ``col("words").slice(1)`` of ``["a", "b", "c"]`` is ``["b", "c"]``.
        """
        return self._apply_function("slice", *part_bounds(Arguments("slice"), start, length, "item"))

    def _apply_function(self, name: str, *constants: data_types.Scalar) -> "Expr":
        return Function(name, (self, *map(lit, constants)))

    def _apply_binary(self, name: str, operand: "Operand") -> "Expr":
        return Function(name, (self, to_expression(operand)))

    def _make_aggregate(self, combiner: Combiner, **options: Any) -> "Aggregate":
        return Aggregate(combiner, self, **options)

    def _where_true(self, value: "Operand") -> "Expr":
        return Function("if", (self, to_expression(value), to_expression(None)))


@dataclass(frozen=True, eq=False)
class Column(Expr):
    """A column of the record at hand."""

    name: str


@dataclass(frozen=True, eq=False)
class Literal(Expr):
    """A constant. ``type`` need only be given of a NULL, whose type is None otherwise, and of a timestamp, whose value
    is an Instant.
    """

    value: data_types.Scalar
    type: data_types.DataType | None = None

    def __post_init__(self) -> None:
        if self.type is None and self.value is not None:
            object.__setattr__(
                self, "type", next(kind for kind, python_type in _CONSTANTS if isinstance(self.value, python_type))
            )


_CONSTANTS = (
    (data_types.DataType.BOOL, bool),
    (data_types.DataType.INT, int),
    (data_types.DataType.FLOAT, float),
    (data_types.DataType.STRING, str),
    (data_types.DataType.DATE, date),
    (data_types.DataType.BYTES, bytes),
    (data_types.DataType.DECIMAL, Decimal),
)


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
    """A named function (``model.expressions.typing`` lists them) of expressions, of which some must be constants."""

    name: str
    args: tuple[Expr, ...]


Operand = Expr | data_types.Scalar | datetime
"""What may stand beside an operator."""

NAME_IT = 'name it in what=, and write an expression over hr.col("its name") beside it, under a name of its own'
"""What to write in place of an aggregate in an expression."""


def _refuse_operator(operator: str) -> Callable[..., NoReturn]:
    """An operator that no aggregate can have: an error that says what to write."""

    def refuse(self: "Aggregate", *_: object) -> NoReturn:
        mean = "for a mean write .mean(); otherwise " if operator == "/" else ""
        raise PipelineError(f"{operator} does not work on an aggregate ({self.describe()}): {mean}{NAME_IT}")

    return refuse


@register_word(
    "aggregate",
    combiner=REQUIRED,
    input=None,
    k=None,
    q=None,
    qs=None,
    other=None,
    outer=(None, Outer.NONE),
    custom=None,
)
@check_keywords
@dataclass(frozen=True)
class Aggregate(Suggesting):
    """``combiner`` over ``input``; ``input`` None (only for count) counts elements.

    ``k`` is how many values TOP and LIST_AGG keep, ``q`` (0 to 1) which quantile QUANTILE gives, ``qs`` which QUANTILES
    does; PAIRS pairs ``input`` with ``other``, and with NULL as ``outer`` says, MAP_AGG gives one pair for each
    ``input``; combiners ``BY_ANOTHER`` go by ``other``. ``custom`` is the combiner that a user wrote (CUSTOM).

    >>> what = {"worst": hr.col("delay").max(), "flights": hr.count()}
    >>> what["worst"].describe()
    'max of delay'
    """

    combiner: Combiner
    input: Expr | None = None
    k: int | None = None
    q: float | None = None
    other: Expr | None = None
    outer: Outer | None = None
    custom: CustomCombiner | None = None
    qs: tuple[float, ...] | None = None

    __add__ = __radd__ = _refuse_operator("+")
    __sub__ = __rsub__ = _refuse_operator("-")
    __mul__ = __rmul__ = _refuse_operator("*")
    __truediv__ = __rtruediv__ = _refuse_operator("/")
    __floordiv__ = __rfloordiv__ = _refuse_operator("//")
    __mod__ = __rmod__ = _refuse_operator("%")
    __neg__ = _refuse_operator("-")
    __lt__ = _refuse_operator("<")
    __le__ = _refuse_operator("<=")
    __gt__ = _refuse_operator(">")
    __ge__ = _refuse_operator(">=")

    def __post_init__(self) -> None:
        if self.combiner is Combiner.CUSTOM:
            check_combiner(self.custom)

    def describe(self) -> str:
        """The aggregate in words: ``sum of amount``."""
        order_in_words = f" by {self.other!s}" if self.combiner in BY_ANOTHER else ""
        return self.combiner.value + ("" if self.input is None else f" of {self.input!s}") + order_in_words

    @check_keywords
    def where(self, condition: Expr) -> "Aggregate":
        """The aggregate of those elements alone of which ``condition`` is TRUE, as by SQL's ``FILTER (WHERE ...)``. A
        count of none is 0. What it reads is computed of all elements.

        >>> hr.count().where(hr.col("status") == "paid").describe()
        "count of if_else((status == 'paid'), True, None)"
        >>> paid = hr.col("amount").sum().where(hr.col("status") == "paid")
        """
        arguments = Arguments("where")
        if not hasattr(condition, "_where_true"):
            raise arguments.refusal("condition", condition, f"not an expression; write {as_expression(condition)}")
        read = condition._where_true(True if self.input is None else self.input)
        return replace(self, input=read, other=None if self.other is None else condition._where_true(self.other))

    @property
    def invertible(self) -> bool:
        """Whether a value can be taken out of the accumulator again (semantics 9.7). The other combiners keep the bag
        of their values where retractions reach them (12.5)."""
        if self.custom is not None:
            return self.custom.invertible
        return TRAITS[self.combiner].invertible

    @property
    def inputs(self) -> tuple[Expr, ...]:
        """The expressions that it reads of each element."""
        return tuple(expr for expr in (self.input, self.other) if expr is not None)


@check_keywords
def count() -> Aggregate:
    """Number of elements. ``col("v").count()`` is the number of those where ``v`` is not NULL.

    >>> hr.count().describe()
    'count'
    """
    return Aggregate(Combiner.COUNT)


def render_aggregate(aggregate: Aggregate) -> str:
    """``aggregate`` for people, as a function: ``top(amount, k=3)``."""
    name = aggregate.combiner.value if aggregate.custom is None else repr(aggregate.custom)
    options = {
        "k": aggregate.k,
        "q": aggregate.q,
        "qs": aggregate.qs,
        "outer": None if aggregate.outer is None else str(aggregate.outer),
    }
    shown_options = [f"{option}={value}" for option, value in options.items() if value not in (None, "none")]
    return f"{name}({', '.join([*map(str, aggregate.inputs), *shown_options])})"


@require_call
@check_keywords
def col(name: str) -> Column:
    """The column called ``name``.

    >>> (hr.col("delay") / 60).max().describe()
    'max of (delay / 60)'
    """
    if not isinstance(name, str) or not name:
        raise PipelineError(f'col({short_repr(name)}): write the name of a column, col("delay")')
    return Column(str(name))


@check_keywords
def lit(value: object) -> Literal:
    """A constant; an aware datetime becomes a timestamp.

    >>> hr.lit(datetime(2026, 1, 1, tzinfo=UTC)).type.value
    'timestamp'
    """
    match value:
        case None:
            return Literal(None)
        case datetime():
            try:
                return Literal(to_instant(value), data_types.DataType.TIMESTAMP)
            except ValueError:
                raise PipelineError(f"{value!r} has no time zone: write datetime(..., tzinfo=UTC)") from None
        case bool() | float() | date() | bytes():
            return Literal(value)
        case Decimal():
            number = data_types.to_billionths(value)
            if number is None:
                raise PipelineError(f"{value} does not fit a decimal of {data_types.DIGITS}: round it")
            return Literal(data_types.of_billionths(number))
        case int():
            if not -(2**63) <= value < 2**63:
                raise PipelineError(f"{value} leaves 64 bits: write a smaller int, or a float")
            return Literal(int(value))
        case timedelta():
            raise PipelineError(f"{value!r} is a length of time: it can be added to a timestamp, or taken from one")
        case str():
            if not data_types.is_text(value):
                raise PipelineError(f"{value!r} has half of a surrogate pair, which is not a character")
            return Literal(str.__str__(value))
    write = NAME_IT if isinstance(value, Aggregate) else f"write {_OPERANDS}"
    raise PipelineError(f"{short_repr(value)} cannot stand in an expression: {write}")


_OPERANDS = (
    "an expression like col(...), a string, a number, a bool, a Decimal, a date, a datetime with a time zone, or bytes"
)


def to_expression(value: object) -> Expr:
    """``value`` itself if it is an expression, else a literal of it."""
    return value if isinstance(value, Expr) else lit(value)


def _make_binary(op: str, left: object, right: object) -> Binary:
    if left is None or right is None:
        other_operand = right if left is None else left
        operand_text = render(other_operand) if isinstance(other_operand, Expr) else repr(other_operand)
        test = ".is_not_null()" if op == "!=" else ".is_null()"
        raise PipelineError(
            f"{op} with None is never true nor false: to ask for what is missing, write {operand_text}{test}"
        )
    return Binary(op, to_expression(left), to_expression(right))


def is_empty_range(low: Expr, high: Expr) -> bool:
    """Whether these are constants of one type, of which ``low`` is above ``high``."""
    if not isinstance(low, Literal) or not isinstance(high, Literal) or None in (low.value, high.value):
        return False
    are_comparable = low.type is high.type or {low.type, high.type} <= {
        data_types.DataType.INT,
        data_types.DataType.FLOAT,
    }
    return are_comparable and bool(low.value > high.value)  # type: ignore[operator]


def _shift_time(time: Expr, distance: timedelta, sign: int) -> Expr:
    microseconds = distance // timedelta(microseconds=1) * sign
    if abs(microseconds) > LONGEST:
        raise PipelineError(f"{distance!r} beside {render(time)} is longer than 70,000 years")
    if not distance % timedelta(days=1):
        return Function("plus_days", (time, Literal(distance.days * sign)))
    return Function("plus_us", (time, Literal(microseconds)))


_OF_SEVERAL = {**{name: name for name in ("coalesce", "least", "greatest", "concat")}, "if": "if_else"}


def render(expr: Expr) -> str:
    """``expr`` for people, as it would be written."""
    match expr:
        case Column(name):
            return name
        case Literal(value, _):
            return repr(value)
        case Binary(op, left, right):
            return f"({render(left)} {op} {render(right)})"
        case Function():
            return _render_function(expr)
    raise TypeError(type(expr).__name__)


def _render_function(expr: Function) -> str:  # noqa: PLR0911 (a line for each form)
    match expr.name, expr.args:
        case "not", (Function("is_null", (value,)),):
            return f"{render(value)}.is_not_null()"
        case "not" | "negate", (value,):
            return f"{'~' if expr.name == 'not' else '-'}{render(value)}"
        case "round_to", (value, digits):
            return f"{render(value)}.round({render(digits)})"
        case name, (value, *path) if name.startswith("json_"):
            return f"{render(value)}.json_field([{', '.join(map(render, path))}], {name.removeprefix('json_')})"
        case "plus_us", (value, amount):
            return f"{render(value)}.plus(microseconds={render(amount)})"
        case name, args if name in _OF_SEVERAL:
            return f"{_OF_SEVERAL[name]}({', '.join(map(render, args))})"
    value, *constants = expr.args
    method, _, target_type = expr.name.partition("_") if expr.name.startswith("cast_") else (expr.name, "", "")
    return f"{render(value)}.{method}({', '.join([*([target_type] if target_type else []), *map(render, constants)])})"
