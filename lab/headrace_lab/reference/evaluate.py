"""Expressions over one record: what every node of ``headrace.model.expressions.expr`` means, with SQL's NULL (None).

Values are Python's: int for 64-bit integers, float, str, bool, date, bytes, Decimal, and Instants (microseconds) for
timestamps; the schema tells timestamps from integers where it matters.
"""

import json
import math
import re
import zlib
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache, partial
from hashlib import md5, sha256
from typing import Any
from warnings import catch_warnings

from headrace.errors import OPERANDS, DateOverflowError, DecimalOverflowError, IntegerOverflowError, ValueOverflowError
from headrace.model.expressions import data_types
from headrace.model.expressions.data_types import DataType, Schema, of_billionths
from headrace.model.expressions.expr import Binary, Column, Expr, Function, Literal, render
from headrace.model.expressions.methods import TimeUnit
from headrace.model.expressions.typing import kind_of, type_of
from headrace.model.time import MONTHS, Instant, format_parts, is_finite, to_instant
from headrace_lab.reference.billionths import ONE, divide_rounded
from headrace_lab.reference.clocks_shown import local_time, moment_shown, truncate_time

Record = Mapping[str, Any]


class OverflowsInRecordError(Exception):
    """What is read of one record leaves its type, which makes it a dead letter (12.4): ``what`` it is, and ``why``."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what}: {why}")
        self.what = what


class _TooManyDaysError(Exception):
    """So many days are more microseconds than 64 bits hold."""


_INTEGER = re.compile(r"([+-]?)0*(\d{1,19})", re.ASCII)
_FLOAT = re.compile(r"[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf(inity)?|nan)", re.ASCII | re.IGNORECASE)
_DECIMAL = re.compile(r"([+-]?)(?=\.?\d)(\d*)\.?(\d*)(?:e([+-]?\d+))?", re.ASCII | re.IGNORECASE)
_ZONE = r"(?:(?: [+-]00:?00)? ?(?:UTC|GMT|[Zz])| ?(?P<zone>[+-]\d\d(?::?[0-5]\d)?))"
_FRACTION = r"(?:[.,](?P<fraction>\d+))?"
_INSTANTS = [
    re.compile(pattern, re.ASCII)
    for pattern in (
        r"(?P<day>\d{4}-\d\d-\d\d)"
        rf"(?:[Tt ](?P<hour>\d\d)(?::(?P<minute>\d\d)(?::(?P<second>\d\d){_FRACTION})?)?{_ZONE}?)?",
        r"(?P<day>\d{8})[Tt](?P<hour>\d\d)"
        rf"(?:(?P<minute>\d\d)(?:(?P<second>\d\d){_FRACTION})?)?{_ZONE}?",
    )
]
_ISO = re.compile(r"\d{4}-\d\d-\d\d([T ](?!24)\d\d(:\d\d(:\d\d(\.\d+)?)?)?(Z|[+-]\d\d(:?[0-5]\d)?)?)?", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_END = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\$", re.DOTALL)
"""The ``$`` of a pattern, and before it all that may have the character in it."""
_FIRST_DAY, _DAY = date(1970, 1, 1), 86_400_000_000
_TRUE, _FALSE = frozenset({"t", "true", "y", "yes", "1"}), frozenset({"f", "false", "n", "no", "0"})


def evaluate(expr: Expr, record: Record, schema: Schema) -> Any:  # noqa: PLR0911 (a line for each node)
    """The value of ``expr`` over ``record``; a column that the record lacks is NULL.

    Raises ValueOverflowError when a value leaves what its type holds.
    """
    match expr:
        case Column(name):
            return record.get(name)
        case Literal(value, _):
            return value
        case Binary(op, left, right):
            operands = evaluate(left, record, schema), evaluate(right, record, schema)
            return _logic(op, *operands) if op in Binary.BOOLEAN else _binary(expr, op, *operands)
        case Function(name, args):
            values = [evaluate(a, record, schema) for a in args]
            if name in _OF_PARTS:
                values[0] = _as_object(values[0], kind_of(args[0], schema))
            if name.startswith("cast_"):
                return _cast(values[0], type_of(args[0], schema), DataType(name.removeprefix("cast_")))
            try:
                result = _FUNCTIONS[name](*values)
            except OverflowError:
                raise DateOverflowError(f"{render(expr)} leaves the years 1 to 9999") from None
            except _TooManyDaysError:
                raise IntegerOverflowError(f"{render(expr)} leaves 64 bits{OPERANDS}") from None
            if result is None:
                return None
            match kind_of(expr, schema):  # if(c, 1, 2.5) is a float whichever branch is taken
                case DataType.FLOAT:
                    return float(result)
                case DataType.DECIMAL:
                    return fitting(data_types.to_billionths(result), render(expr))
            return _whole(expr, result)
    raise TypeError(type(expr).__name__)


def evaluate_of(what: str, expr: Expr, record: Record, schema: Schema) -> Any:
    """``evaluate``. Raises OverflowsInRecordError, saying ``what`` the value is."""
    try:
        return evaluate(expr, record, schema)
    except ValueOverflowError as error:
        raise OverflowsInRecordError(what, str(error).removesuffix(OPERANDS)) from None


def whole(value: int, what: str) -> int:
    """``value`` if it fits 64 bits. Raises IntegerOverflowError naming ``what``."""
    if not fits(value):
        raise IntegerOverflowError(f"{what} is {value}, which leaves 64 bits")
    return value


def fitting(number: int | None, what: str, ways_out: str = OPERANDS) -> Decimal:
    """The decimal of so many billionths. Raises DecimalOverflowError naming ``what`` if it does not fit (None)."""
    if number is None or not data_types.fits_decimal(number):
        raise DecimalOverflowError(f"{what} leaves {data_types.DIGITS}{ways_out}")
    return of_billionths(number)


def billionths(value: Decimal | int) -> int:
    """A decimal, or an integer beside one, in billionths."""
    number = data_types.to_billionths(value)
    assert number is not None
    return number


def _whole(expr: Expr, value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and not fits(value):
        raise IntegerOverflowError(f"{render(expr)} leaves 64 bits{OPERANDS}")
    return value


def fits(value: int) -> bool:
    """Whether 64 bits hold ``value``."""
    return -(2**63) <= value < 2**63


def _logic(op: str, left: bool | None, right: bool | None) -> bool | None:
    """Three-valued: FALSE decides an ``and``, TRUE an ``or``; else NULL if an operand is."""
    decisive = op == "or"
    if left is decisive or right is decisive:
        return decisive
    return None if left is None or right is None else not decisive


def _binary(expr: Expr, op: str, left: Any, right: Any) -> Any:
    if left is None or right is None:
        return None
    if isinstance(left, dict | list | tuple):  # NULL in it is a value like others
        return (nulls_first(identity_key(left)) == nulls_first(identity_key(right))) is (op == "==")
    if isinstance(left, Decimal) or isinstance(right, Decimal):
        return _of_decimals(expr, op, billionths(left), billionths(right))
    if op == "/" or isinstance(left, float) or isinstance(right, float):
        left, right = float(left), float(right)
    if op in Binary.COMPARISON:
        return _COMPARISONS[op](sort_key(left), sort_key(right))
    return _whole(expr, _ARITHMETIC[op](left, right))


def _of_decimals(expr: Expr, op: str, left: int, right: int) -> Any:
    """``op`` of billionths."""
    if op in Binary.COMPARISON:
        return _COMPARISONS[op](left, right)
    if op in "/%" and not right:
        return None
    results = {"+": left + right, "-": left - right, "*": divide_rounded(left * right, ONE)}
    if right:
        results |= {"/": divide_rounded(left * ONE, right), "%": left % right}
    return fitting(results[op], render(expr))


def sort_key(value: Any) -> Any:
    """A sort key for values of one type: NaN equals itself and lies above every number, as in Spark; integers and
    floats may meet."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return value
    return (math.isnan(value), 0.0 if math.isnan(value) else value)


def identity_key(value: Any) -> Any:
    """``value`` as it is found again among others: NaN is no other than itself only where it is the same object, and
    only tuples are. A struct is the tuple of its fields, a map that of its entries.
    """
    if isinstance(value, dict):
        return tuple(map(identity_key, value.values()))
    if isinstance(value, list | tuple):
        return tuple(map(identity_key, value))
    return math.nan if isinstance(value, float) and math.isnan(value) else value


def nulls_first(value: Any) -> Any:
    """A sort key for values of one type, also nested ones, as tuples: NULL is below every value (15.5)."""
    if isinstance(value, tuple):
        return 1, tuple(map(nulls_first, value))
    return (0,) if value is None else (1, sort_key(value))


def same(left: Any, right: Any) -> bool:
    """Whether two values, or lists of them, are equal; NaN equals itself."""
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(sort_key(left) == sort_key(right))


def _floor_mod(left: Any, right: Any) -> Any:
    if right == 0:
        return None
    if isinstance(left, float) and math.isinf(left):
        return math.nan
    return left % right


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda a, b: bool(a == b),
    "!=": lambda a, b: bool(a != b),
    "<": lambda a, b: bool(a < b),
    "<=": lambda a, b: bool(a <= b),
    ">": lambda a, b: bool(a > b),
    ">=": lambda a, b: bool(a >= b),
}
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: (a - b).days if isinstance(a, date) else a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b if b != 0 else None,
    "%": _floor_mod,
}


def _of_known(pick: Callable[..., Any]) -> Callable[..., Any]:
    def pick_value(*values: Any) -> Any:
        non_null_values = [v for v in values if v is not None]
        return pick(non_null_values, key=sort_key) if non_null_values else None

    return pick_value


def _strict(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *values: None if None in values else function(*values)


def _substring(text: Any, start: int, length: int | None = None) -> Any:
    begin = max(len(text) + start, 0) if start < 0 else start
    return text[begin:] if length is None else text[begin : begin + length]


def _matches(text: str, regex: str) -> bool:
    return _compile_regex(regex).search(text) is not None


def _regexp_extract(text: str, regex: str, group: int) -> str | None:
    where = _compile_regex(regex).search(text)
    return None if where is None else where[group] or ""  # nothing, where the group took no part


def _regexp_replace(text: str, regex: str, new: str) -> str:
    parts = re.findall(r"\\(.)|([^\\]+)", new, re.DOTALL)
    return _compile_regex(regex).sub(
        lambda where: "".join(plain or (sign if sign == "\\" else where[int(sign)] or "") for sign, plain in parts),
        text,
    )


def _json_field(kind: DataType, text: str, *path: str | int) -> Any:  # noqa: PLR0911 (a line for each type)
    if _count_levels(text) > 500:
        return None
    try:
        value = json.loads(text, parse_constant=_refuse, parse_int=_number)
    except ValueError:
        return None
    for step in path:
        is_there = isinstance(value, dict) and step in value if isinstance(step, str) else _has_item(value, step)
        value = value[step] if is_there else None
    match kind, value:
        case (DataType.BOOL, bool()) | (DataType.STRING, str()):
            return value if isinstance(value, bool) or data_types.is_text(value) else None
        case (DataType.INT | DataType.FLOAT, bool()):
            return None
        case DataType.INT, int():
            return value if fits(value) else None
        case DataType.FLOAT, int() | float():
            return value + 0.0 if math.isfinite(value) else None
    return None


def _has_item(value: Any, place: int) -> bool:
    return isinstance(value, list) and -len(value) <= place < len(value)


def _number(digits: str) -> int | float:
    return float(digits) if len(digits) > 300 else int(digits)


def _refuse(name: str) -> None:
    raise ValueError(name)


def _count_levels(text: str) -> int:
    """How many levels of objects and lists ``text`` has, if it is JSON."""
    depth = deepest = 0
    for sign in re.sub(r'"(\\.|[^"\\])*"', "", text, flags=re.DOTALL):
        depth += (sign in "[{") - (sign in "]}")
        deepest = max(deepest, depth)
    return deepest


_OF_PARTS = frozenset({"field", "item", "length", "contains"})
"""Functions that look into structs and maps."""


def _as_object(value: Any, kind: Any) -> Any:
    """A struct, or a map, as a dict: of the values of its fields, or of pairs. Others as they are."""
    if value is None or isinstance(value, Mapping):
        return value
    match kind:
        case data_types.StructType(fields):
            return dict(zip((name for name, _ in fields), value, strict=True))
        case data_types.MapType():
            return dict(value)
    return value


def _item(items: list[Any] | Mapping[str, Any], place: Any) -> Any:
    if isinstance(items, Mapping):
        return items.get(place)
    return items[place] if -len(items) <= place < len(items) else None


@lru_cache(maxsize=1024)
def _compile_regex(regex: str) -> re.Pattern[str]:
    """``regex`` as Python reads it. All that a pattern may have means there what it should, but ``$``: that also
    matches before a last newline.
    """
    with catch_warnings(action="ignore", category=FutureWarning):  # a class such as [&&] may mean more one day
        return re.compile(_END.sub(lambda part: r"\Z" if part[0] == "$" else part[0], regex), re.ASCII)


def _contains(value: str | list[Any] | Mapping[str, Any], expected: Any) -> bool:
    if isinstance(value, str | Mapping):
        return expected in value
    return any(_is_in(item, expected) for item in value if item is not None)


def _is_in(*operands: Any) -> bool:
    if any(isinstance(operand, float) for operand in operands):
        operands = tuple(map(float, operands))
    value, *values = operands
    return any(same(value, other) for other in values)


def _round_with(to_int: Callable[[float], int]) -> Callable[[float], int | None]:
    return lambda value: _truncate(to_int(value)) if math.isfinite(value) else None


def _round_to(number: int | float | Decimal, digits: int) -> int | float | Decimal:
    if isinstance(number, Decimal):
        unit = 10 ** max(data_types.SCALE - digits, 0)
        return of_billionths(divide_rounded(billionths(number), unit) * unit)
    return round(number, digits)


def _exp(number: float | Decimal) -> float:
    try:
        return math.exp(number)
    except OverflowError:
        return math.inf


def _power(base: float | Decimal, exponent: float | Decimal) -> float | None:
    base, exponent = float(base), float(exponent)
    is_whole = not math.isfinite(exponent) or exponent.is_integer()
    if (base == 0 and exponent < 0) or (base < 0 and not is_whole):
        return None
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and exponent % 2 else math.inf


def _log(value: float | Decimal, radix: float | Decimal) -> float | None:
    number, base = float(value), float(radix)
    if number <= 0 or base <= 0 or base == 1:
        return None
    if base in (2, 10):
        return math.log2(number) if base == 2 else math.log10(number)
    number_log, base_log = math.log(number), math.log(base)
    return number_log / base_log


def _hexadecimal(algorithm: Callable[..., Any], value: str | bytes) -> str:
    digest: str = algorithm(value.encode() if isinstance(value, str) else value).hexdigest()
    return digest


def _part(name: str) -> Callable[[Instant | date, str], int | None]:
    def extract_part(time: Instant | date, zone: str) -> int | None:
        shown_time = time if isinstance(time, date) else local_time(time, zone)
        component = getattr(shown_time, name, None)
        return component() if callable(component) else component

    return extract_part


def _strftime(time: Instant | date, text: str, zone: str) -> str | None:
    local_moment = datetime.combine(time, datetime.min.time()) if isinstance(time, date) else local_time(time, zone)
    if local_moment is None:
        return None
    values = {
        "%Y": f"{local_moment.year:04}",
        "%b": MONTHS[local_moment.month - 1],
        "%f": f"{local_moment.microsecond:06}",
    }
    twos = {
        "%m": local_moment.month,
        "%d": local_moment.day,
        "%H": local_moment.hour,
        "%M": local_moment.minute,
        "%S": local_moment.second,
    }
    twos |= {"%y": local_moment.year % 100, "%I": local_moment.hour % 12 or 12}
    values |= {part: f"{value:02}" for part, value in twos.items()}
    values |= {"%p": "AM" if local_moment.hour < 12 else "PM", "%j": f"{local_moment.timetuple().tm_yday:03}"}
    return "".join(values.get(part, part) for part in format_parts(text))


def _strptime(text: str, written_text: str) -> Instant | None:
    pattern = "".join(_DIRECTIVES.get(part, re.escape(part)) for part in format_parts(written_text))
    where = re.fullmatch(pattern, text, re.ASCII)
    if where is None:
        return None
    read = {"m": "1", "d": "1", "H": "0", "M": "0", "S": "0", "f": "0", "z": "Z", **where.groupdict()}
    if "y" in read:
        read["Y"] = f"{'20' if int(read['y']) < 69 else '19'}{read['y']}"
    if "I" in read:
        if not 1 <= int(read["I"]) <= 12:
            return None
        read["H"] = str(int(read["I"]) % 12 + 12 * (read["p"].lower() == "pm"))
    if "j" in read:
        days = (datetime(int(read["Y"]), 12, 31) - datetime(int(read["Y"]), 1, 1)).days + 1 if int(read["Y"]) else 0
        if not 1 <= int(read["j"]) <= days:
            return None
        day = date(int(read["Y"]), 1, 1) + timedelta(int(read["j"]) - 1)
        read |= {"m": str(day.month), "d": str(day.day)}
    name = read.get("b", MONTHS[0]).capitalize()
    month = int(read["m"]) if "b" not in read else MONTHS.index(name) + 1 if name in MONTHS else 0
    hour, minute, second, micros = (
        int(digits) for digits in (read["H"], read["M"], read["S"], read["f"][:6].ljust(6, "0"))
    )
    sign, hours, minutes = re.fullmatch(r"(?:Z|([+-])(\d\d):?(\d\d))", read["z"]).groups("0")  # type: ignore[union-attr]
    try:
        shown_moment = datetime(int(read["Y"]), month, int(read["d"]), hour, minute, second, micros, UTC)
    except ValueError:
        return None
    if int(hours) > 23 or int(minutes) > 59:
        return None
    offset = (int(hours) * 60 + int(minutes)) * 60_000_000
    moment = Instant(to_instant(shown_moment) + (offset if sign == "-" else -offset))
    return None if local_time(moment, "UTC") is None else moment


_DIRECTIVES = {
    "%Y": r"(?P<Y>\d{4})",
    "%y": r"(?P<y>\d{2})",
    **{f"%{part}": rf"(?P<{part}>\d{{1,2}})" for part in "mdHIMS"},
    "%j": r"(?P<j>\d{1,3})",
    "%p": "(?P<p>[AaPp][Mm])",
    "%f": r"(?P<f>\d{1,9})",
    "%b": "(?P<b>[A-Za-z]{3})",
    "%z": r"(?P<z>Z|[+-]\d\d:?\d\d)",
}


def _plus_days(moment: date | Instant, days: int) -> date | int:
    if isinstance(moment, date):
        return moment + timedelta(days)
    if not fits(days * _DAY):
        raise _TooManyDaysError
    return moment + days * _DAY


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "is_null": lambda value: value is None,
    "coalesce": lambda *values: next((v for v in values if v is not None), None),
    "if": lambda condition, value, alternative: value if condition is True else alternative,
    "least": _of_known(min),
    "greatest": _of_known(max),
    "bucket": lambda *values: 0,  # whatever equal rows share
    "not": _strict(lambda value: not value),
    "negate": _strict(lambda number: number.copy_negate() if isinstance(number, Decimal) else -number),
    "abs": _strict(lambda number: number.copy_abs() if isinstance(number, Decimal) else abs(number)),
    "lower": _strict(str.lower),
    "upper": _strict(str.upper),
    "concat": _strict(lambda *values: "".join(values)),
    "crc32": _strict(lambda text: zlib.crc32(text.encode())),
    "strip": _strict(str.strip),
    "length": _strict(len),
    "substring": _strict(_substring),
    "contains": _strict(_contains),
    "starts_with": _strict(str.startswith),
    "ends_with": _strict(str.endswith),
    "matches": _strict(_matches),
    "replace": _strict(str.replace),
    "regexp_extract": _strict(_regexp_extract),
    "regexp_replace": _strict(_regexp_replace),
    **{f"json_{kind.value}": _strict(partial(_json_field, kind)) for kind in data_types.IN_JSON},
    "split": _strict(str.split),
    "field": _strict(lambda struct, name: struct.get(name)),
    "item": _strict(_item),
    "slice": _strict(_substring),
    "is_in": _strict(_is_in),
    "round": _strict(_round_with(round)),
    "round_to": _strict(_round_to),
    "floor": _strict(_round_with(math.floor)),
    "ceil": _strict(_round_with(math.ceil)),
    "sqrt": _strict(lambda number: None if number < 0 else math.sqrt(number)),
    "ln": _strict(lambda number: None if number <= 0 else math.log(float(number))),
    "log10": _strict(lambda number: None if number <= 0 else math.log10(float(number))),
    "exp": _strict(_exp),
    "log": _strict(_log),
    "power": _strict(_power),
    "bit_and": _strict(int.__and__),
    "bit_or": _strict(int.__or__),
    "bit_xor": _strict(int.__xor__),
    "shift_left": _strict(lambda number, bits: (number * 2**bits + 2**63) % 2**64 - 2**63),
    "shift_right": _strict(int.__rshift__),
    "md5": _strict(lambda value: _hexadecimal(md5, value)),
    "sha256": _strict(lambda value: _hexadecimal(sha256, value)),
    "plus_us": _strict(lambda time, microseconds: time + microseconds),
    "to_timestamp": _strict(lambda text: _parse_timestamp(text.strip())),
    "local_to_utc": _strict(moment_shown),
    "strftime": _strict(_strftime),
    "strptime": _strict(lambda text, pattern: _strptime(text.strip(), pattern)),
    "truncate": _strict(lambda time, unit, *where: truncate_time(time, TimeUnit(unit), *where)),
    **{name: _strict(_part(name)) for name in ("year", "month", "day", "hour", "minute", "second")},
    "weekday": _strict(_part("isoweekday")),
    "plus_days": _strict(_plus_days),
}


def _cast(value: Any, source: DataType | None, target_type: DataType) -> Any:  # noqa: PLR0911 (a line for each type)
    """``value`` as ``target``; NULL for a string that does not read as one, or a number that does not fit."""
    if value is None or source is target_type:
        return value
    if source is DataType.STRING:
        return value.encode() if target_type is DataType.BYTES else _parse(value.strip(), target_type)
    if isinstance(value, date) and target_type is DataType.TIMESTAMP:
        return Instant((value - _FIRST_DAY).days * _DAY)
    match target_type:
        case DataType.STRING:
            return _spell(value, source)
        case DataType.DATE:
            return _day_of(value)
        case DataType.BOOL:
            return value != 0
        case DataType.FLOAT:
            return float(value)
        case DataType.DECIMAL:
            return _nearest_decimal(value)
        case DataType.INT | DataType.TIMESTAMP:  # numbers are microseconds, as instants are
            return _truncate(value)


def _nearest_decimal(value: float) -> Decimal | None:
    """The decimal nearest to the number that ``value`` is written as."""
    if not math.isfinite(value):
        return None
    written_fraction = Fraction(repr(value)) * ONE
    number = divide_rounded(written_fraction.numerator, written_fraction.denominator)
    return of_billionths(number) if data_types.fits_decimal(number) else None


def _day_of(instant: Instant) -> date | None:
    try:
        return _FIRST_DAY + timedelta(instant // _DAY)
    except OverflowError:
        return None


def _truncate(value: float) -> int | None:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    number = math.trunc(value)
    return number if -(2**63) <= number < 2**63 else None


def _parse(text: str, target: DataType) -> Any:
    match target:
        case DataType.INT:
            digits = _INTEGER.fullmatch(text)
            return _truncate(int(digits[1] + digits[2])) if digits else None
        case DataType.FLOAT:
            return float(text) if _FLOAT.fullmatch(text) else None
        case DataType.BOOL:
            return True if text.lower() in _TRUE else False if text.lower() in _FALSE else None
        case DataType.DATE:
            return _parse_date(text)
        case DataType.DECIMAL:
            return _parse_decimal(text)
        case _:
            return _parse_timestamp(text) if _ISO.fullmatch(text) else None


def _parse_decimal(text: str) -> Decimal | None:
    """The decimal that ``text`` says exactly."""
    if not (parts := _DECIMAL.fullmatch(text)):
        return None
    sign, whole, fraction, power = parts.groups("")
    digits = (whole + fraction).lstrip("0")
    kept_text = digits.rstrip("0")
    if not kept_text:
        return Decimal(0)
    if len(power.lstrip("+-0")) > 9:
        return None
    exponent = int(power or "0") - len(fraction) + len(digits) - len(kept_text)
    if exponent < -data_types.SCALE or len(kept_text) + exponent > data_types.PRECISION - data_types.SCALE:
        return None
    return of_billionths(int(sign + kept_text) * 10 ** (exponent + data_types.SCALE))


def _parse_date(text: str) -> date | None:
    try:
        return date.fromisoformat(text) if _DATE.fullmatch(text) else None
    except ValueError:
        return None


def _parse_timestamp(text: str) -> Instant | None:
    match = _INSTANTS[0].fullmatch(text) or _INSTANTS[1].fullmatch(text)
    if match is None:
        return None
    hour, minute, second = (int(match[part] or 0) for part in ("hour", "minute", "second"))
    micros = int((match["fraction"] or "")[:6].ljust(6, "0"))
    ends_a_day = hour == 24 and not (minute or second or int(match["fraction"] or 0))
    try:
        begin = datetime.fromisoformat(f"{date.fromisoformat(match['day'])}T00:00:00{match['zone'] or 'Z'}")
        if ends_a_day:
            return to_instant(begin + timedelta(days=1))
        return to_instant(begin.replace(hour=hour, minute=minute, second=second, microsecond=micros))
    except (ValueError, OverflowError):
        return None


def _spell(value: Any, source: DataType | None) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _spell_float(value)
    if isinstance(value, Decimal):
        return data_types.decimal_text(value)
    if isinstance(value, bytes):
        return _decode_text(value)
    if source is DataType.TIMESTAMP:
        return _spell_instant(value)
    return str(value)


def _spell_instant(value: Instant) -> str | None:
    if not is_finite(value):
        return ""
    moment = local_time(value, "UTC")
    return None if moment is None else moment.isoformat(" ", "microseconds").rstrip("0").rstrip(".")


def _decode_text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _spell_float(value: float) -> str:
    """Spells a double as the JVM does: plain from 0.001 to 10,000,000, scientific (``1.0E7``) elsewhere."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    exact = Decimal(repr(value))
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value) if "e" not in repr(value) else f"{exact:f}"
    sign, digits, exponent = exact.normalize().as_tuple()
    first, *rest = map(str, digits)
    power = int(exponent) + len(digits) - 1
    return f"{'-' if sign else ''}{first}.{''.join(rest) or '0'}E{power}"
