"""Expressions on Arrow columns: what each node does, and over which rows a value leaves its type.

Nodes are those of ``headrace.model.expressions.expr``, in one table; values are those of
``headrace_lab.reference.evaluate``, to the last bit. Both branches of an ``if`` are evaluated. Types come from the
columns: an int that meets a float is one. Constants stay scalars, so what only clocks decide is cheap.

A record is judged by itself: what overflows in one says nothing of the others. Whole columns are tried first, so this
costs nothing where all is well.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from hashlib import md5, sha256

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.errors import OPERANDS, DateOverflowError, IntegerOverflowError, ValueOverflowError
from headrace.kernel.columns import (
    ARROW_TYPES,
    DATE,
    DECIMAL,
    TIMESTAMP,
    arrow_type,
    as_numpy,
    holders,
    items_at,
    sliced,
    truths,
)
from headrace.kernel.custom_objects import TriggerBatches
from headrace.kernel.expressions import casts, decimals
from headrace.kernel.expressions.decimals import round_floats_to
from headrace.kernel.expressions.local_time import PARTS, local_to_utc, part, read_format, spell, truncate
from headrace.kernel.expressions.string_bytes import crc32, hashed, json_values, walked
from headrace.model.expressions.data_types import IN_JSON, DataType, Schema
from headrace.model.expressions.expr import Binary, Column, Expr, Function, Literal, render
from headrace.model.expressions.regex import to_captures, to_re2
from headrace.model.expressions.typing import kind_of
from headrace.program import columns as program
from headrace.program.columns import FROM, Call

Rows = Mapping[str, casts.Datum]

_CASTS = ("cast_", FROM)  # either way the column knows what it is cast from
_DAY = 86_400_000_000
_INT, _FLOAT, _BOOL, _STRING = (ARROW_TYPES[k] for k in (DataType.INT, DataType.FLOAT, DataType.BOOL, DataType.STRING))


def evaluate(expr: Expr, rows: Rows) -> casts.Datum:
    """``expr`` over ``rows``, which have every column that it reads (KeyError); a scalar if it reads only scalars.

    Raises ValueOverflowError when a value leaves what its type holds.
    """
    match expr:
        case Column(name):
            return rows[name]
        case Literal(value, kind):
            return pa.scalar(value, pa.null() if kind is None else ARROW_TYPES[kind])
        case Binary() | Function():
            return applied(expr, [evaluate(operand, rows) for operand in operands_of(expr)])
    raise TypeError(type(expr).__name__)


def operands_of(expr: Expr) -> tuple[Expr, ...]:
    """What a node is made of; nothing of columns and constants."""
    match expr:
        case Binary(_, left, right):
            return left, right
        case Function(_, args):
            return tuple(args)
    return ()


def applied(expr: Expr, operands: list[casts.Datum]) -> casts.Datum:
    """The node ``expr`` of ``operands``, which are values. Raises ValueOverflowError."""
    match expr:
        case Binary(op):
            return _applied(expr, _OPERATORS[op], operands)
        case Call(name):
            return getattr(TriggerBatches(expr.owner), name)(*casts.broadcast(operands))
        case Function(name) if name.startswith(_CASTS):
            return casts.cast(operands[0], DataType(name.rpartition("_")[2]))
        case Function(name):
            return _applied(expr, _FUNCTIONS[name], operands)
    raise TypeError(type(expr).__name__)


def column(expr: Expr, rows: Rows, schema: Schema, length: int) -> pa.Array:
    """``expr`` as a column of ``length`` rows, of the type that it has over ``schema``."""
    return in_type(expr, evaluate(expr, rows), schema, length)


def in_type(expr: Expr, values: casts.Datum, schema: Schema, length: int) -> pa.Array:
    """``values`` of ``expr`` as a column of ``length`` rows, of the type that it has over ``schema``."""
    target = arrow_type_of(expr, schema) or values.type
    if values.type != target:
        values = _as_float(values) if target == _FLOAT else values.cast(target)
    return pa.repeat(values, length) if isinstance(values, pa.Scalar) else values


def arrow_type_of(expr: Expr, schema: Schema) -> pa.DataType | None:
    """The type of ``expr`` over ``schema``; None for a NULL of no type."""
    match expr:
        case Function(program.BOTH, parts):
            kinds = [arrow_type_of(part, schema) for part in parts]
            return pa.struct([*zip((program.BY, program.VALUE), kinds, strict=True)])
        case Function(program.ROW, parts):
            return pa.struct([(str(place), arrow_type_of(part, schema)) for place, part in enumerate(parts)])
    kind = kind_of(expr, schema)
    return None if kind is None else arrow_type(kind)


def _applied(expr: Expr, function: Callable[..., casts.Datum], operands: list[casts.Datum]) -> casts.Datum:
    try:
        return function(*operands)
    except OverflowError:
        raise DateOverflowError(f"{render(expr)} leaves the years 1 to 9999") from None
    except pa.ArrowInvalid as error:
        with decimals.overflowing(render(expr)):
            if "overflow" not in str(error):
                raise
        raise IntegerOverflowError(f"{render(expr)} leaves 64 bits{OPERANDS}") from None


# --- NULL and types


def _as_float(value: casts.Datum) -> casts.Datum:
    return value if value.type == _FLOAT else pc.cast(value, _FLOAT, safe=False)  # 2^53 + 1 is 2^53 there


def _unified(values: tuple[casts.Datum, ...]) -> list[casts.Datum]:
    """``values`` of one type: floats where an int meets one; a NULL of no type takes that of the others."""
    known = {v.type for v in values} - {pa.null()}
    if known == {_INT, _FLOAT}:
        return [_as_float(v) for v in values]
    if known == {_INT, DECIMAL}:
        return [v if v.type == DECIMAL else v.cast(DECIMAL) for v in values]
    if len(known) == 1:
        (kind,) = known
        return [v if v.type == kind else v.cast(kind) for v in values]
    return list(values)


def _numbers(
    function: Callable[[casts.Datum, casts.Datum], casts.Datum],
) -> Callable[[casts.Datum, casts.Datum], casts.Datum]:
    """``function`` of two numbers of one type."""

    def over(left: casts.Datum, right: casts.Datum) -> casts.Datum:
        left, right = _unified((left, right))
        if left.type == pa.null():
            left, right = left.cast(_INT), right.cast(_INT)
        return function(left, right)

    return over


def _arithmetic(
    function: Callable[[casts.Datum, casts.Datum], casts.Datum],
    of_decimals: Callable[[casts.Datum, casts.Datum], casts.Datum],
) -> Callable[[casts.Datum, casts.Datum], casts.Datum]:
    return _numbers(lambda left, right: (of_decimals if left.type == DECIMAL else function)(left, right))


def _typed(kind: pa.DataType, function: Callable[..., casts.Datum]) -> Callable[..., casts.Datum]:
    """``function`` of operands of ``kind``, of which some may be a NULL of no type."""
    return lambda *values: function(*[v.cast(kind) if v.type == pa.null() else v for v in values])


def _has_null(value: casts.Datum) -> bool:
    return not value.is_valid if isinstance(value, pa.Scalar) else value.null_count > 0


def _true(condition: casts.Datum) -> casts.Datum:
    """Whether ``condition`` is TRUE."""
    return pc.fill_null(condition, False) if _has_null(condition) else condition


# --- arithmetic


_difference = _arithmetic(pc.subtract_checked, decimals.subtract)


def _divide(left: casts.Datum, right: casts.Datum) -> casts.Datum:
    if DECIMAL in (left.type, right.type):
        return casts.each(decimals.divide)(*_unified((left, right)))
    left, right = (_as_float(v.cast(_FLOAT) if v.type == pa.null() else v) for v in (left, right))
    if isinstance(right, pa.Scalar) and right.as_py():
        return pc.divide(left, right)
    return pc.if_else(_true(pc.not_equal(right, 0.0)), pc.divide(left, right), pa.scalar(None, _FLOAT))


def _floor_mod(left: pa.Array, right: pa.Array) -> pa.Array:
    valid = pc.and_(pc.and_(left.is_valid(), right.is_valid()), pc.not_equal(right, 0).fill_null(False))
    a, b = (as_numpy(v.fill_null(1)) for v in (left, right))
    with np.errstate(all="ignore"):
        rest = np.remainder(a, np.where(b == 0, b.dtype.type(1), b))
        if rest.dtype == np.float64:
            rest = np.where(np.isinf(a), np.nan, rest)
    return pa.array(rest, mask=as_numpy(pc.invert(valid)))


def _subtract(left: casts.Datum, right: casts.Datum) -> casts.Datum:
    left, right = _unified((left, right))
    return pc.subtract(casts.days_of(left), casts.days_of(right)) if left.type == DATE else _difference(left, right)


def _plus_us(time: casts.Datum, microseconds: casts.Datum) -> casts.Datum:
    time = time.cast(ARROW_TYPES[DataType.TIMESTAMP]) if time.type == pa.null() else time
    return pc.add_checked(time.cast(_INT), microseconds.cast(_INT)).cast(time.type)


def _plus_days(moment: casts.Datum, days: casts.Datum) -> casts.Datum:
    if moment.type == pa.null():
        return moment
    if moment.type != DATE:
        known = pc.if_else(pc.is_valid(moment), days.cast(_INT), pa.scalar(None, _INT))
        return _plus_us(moment, pc.multiply_checked(known, _DAY))
    return casts.plus_days(moment, days.cast(_INT))


# --- order


def _nans(value: casts.Datum) -> casts.Datum | None:
    """Where ``value`` is NaN; None if it is nowhere."""
    if value.type != _FLOAT:
        return None
    nans = pc.is_nan(value)
    return nans if pc.any(nans).as_py() else None


def _either(left: casts.Datum, right: casts.Datum | None) -> casts.Datum:
    return left if right is None else pc.or_(left, right)


def _equal(left: casts.Datum, right: casts.Datum) -> casts.Datum:
    nan, other = _nans(left), _nans(right)
    return _either(pc.equal(left, right), None if nan is None or other is None else pc.and_(nan, other))


def _less(left: casts.Datum, right: casts.Datum) -> casts.Datum:
    other, less = _nans(right), pc.less(left, right)
    return less if other is None else pc.or_(less, pc.and_(other, pc.invert(pc.is_nan(left))))


def _less_equal(left: casts.Datum, right: casts.Datum) -> casts.Datum:
    return _either(pc.less_equal(left, right), _nans(right))


def _unequal(left: casts.Datum, right: casts.Datum) -> casts.Datum:
    return pc.invert(_equal(left, right))


def _extreme(comes_first: Callable[[casts.Datum, casts.Datum], casts.Datum]) -> Callable[..., casts.Datum]:
    """A function to the first of values that are not NULL; of equal ones, the one named first."""

    def of_two(best: casts.Datum, other: casts.Datum) -> casts.Datum:
        better = comes_first(other, best)
        return _if(pc.or_kleene(pc.is_null(best), better) if _has_null(best) else better, other, best)

    def over(*values: casts.Datum) -> casts.Datum:
        first, *rest = _unified(values)
        return first if first.type == pa.null() else reduce(of_two, rest, first)

    return over


# --- with constants


def _with_constants(function: Callable[..., casts.Datum]) -> Callable[..., casts.Datum]:
    """``function`` of a column and Python's constants."""
    return lambda value, *constants: function(value, *(constant.as_py() for constant in constants))


def _length(value: casts.Datum) -> casts.Datum:
    return (pc.list_value_length if pa.types.is_list(value.type) else pc.utf8_length)(value).cast(_INT)


def _contains(value: casts.Datum, wanted: casts.Datum) -> casts.Datum:
    if not pa.types.is_list(value.type):
        return pc.match_substring(value, wanted.as_py())
    return casts.each(lambda lists: _hold(lists, wanted))(value)


def _hold(lists: pa.Array, wanted: casts.Datum) -> pa.Array:
    equal = truths(_numbers(_equal)(pc.list_flatten(lists), wanted))
    holds = np.bincount(holders(lists)[equal], minlength=len(lists)).astype(np.bool_)
    return pa.array(holds, mask=as_numpy(lists.is_null()))


def _substring(text: casts.Datum, start: int, length: int | None = None) -> casts.Datum:
    rest = pc.utf8_slice_codeunits(text, start)
    return rest if length is None else pc.utf8_slice_codeunits(rest, 0, length)


def _matches(text: casts.Datum, regex: str) -> casts.Datum:
    return pc.match_substring_regex(text, to_re2(regex))


def _regexp_extract(text: casts.Datum, regex: str, group: int) -> casts.Datum:
    return pc.struct_field(pc.extract_regex(text, f"(?P<g0>{to_captures(regex).re2})"), f"g{group}")


def _regexp_replace(text: casts.Datum, regex: str, new: str) -> casts.Datum:
    return pc.replace_substring_regex(text, to_captures(regex).re2, new)


def _json_field(kind: pa.DataType, text: casts.Datum, *path: str | int) -> casts.Datum:
    return casts.each(partial(json_values, path=path, kind=kind))(text)


def _of_lists(function: Callable[..., pa.Array]) -> Callable[..., casts.Datum]:
    """``function`` of a column of lists and Python's constants."""

    def over(value: casts.Datum, *constants: pa.Scalar) -> casts.Datum:
        given = [constant.as_py() for constant in constants]
        return value if value.type == pa.null() else casts.each(lambda lists: function(lists, *given))(value)

    return over


def _is_in(*operands: casts.Datum) -> casts.Datum:
    value, *values = _unified(operands)
    if value.type == TIMESTAMP:
        value, values = value.cast(_INT), [v.cast(_INT) for v in values]
    known, kind = [v.as_py() for v in values], value.type
    members = _is_float_in(value, known) if kind == _FLOAT else pc.is_in(value, value_set=pa.array(known, kind))
    return pc.if_else(pc.is_valid(value), members, pa.scalar(None, _BOOL))


def _is_float_in(value: casts.Datum, known: list[float]) -> casts.Datum:
    """0.0 and -0.0 are equal, and so is every NaN."""
    members = pc.is_in(pc.add(value, 0.0), value_set=pa.array([v + 0.0 for v in known]))
    return pc.or_(members, pc.is_nan(value)) if any(map(math.isnan, known)) else members


def _part(name: str, time: casts.Datum, zone: str) -> casts.Datum:
    return part(name, time.cast(TIMESTAMP), "UTC") if time.type == DATE else part(name, time, zone)


def _strftime(time: casts.Datum, text: str, zone: str) -> casts.Datum:
    return spell(time.cast(TIMESTAMP), text, "UTC") if time.type == DATE else spell(time, text, zone)


def _strptime(strings: casts.Datum, text: str) -> casts.Datum:
    return casts.each(partial(read_format, text=text))(strings)


def _rounded(function: Callable[[pa.Array], pa.Array]) -> Callable[[pa.Array], pa.Array]:
    def over(values: pa.Array) -> pa.Array:
        if values.type == DECIMAL:
            return decimals.to_ints(function(decimals.moderate(values)))
        return casts.whole(function(values)) if values.type == _FLOAT else values

    return over


def _round_to(value: casts.Datum, digits: int) -> casts.Datum:
    if value.type == DECIMAL:
        return casts.each(partial(decimals.round_to, digits=digits))(value)
    return casts.each(partial(round_floats_to, digits=digits))(value) if value.type == _FLOAT else value


def _to_float(value: casts.Datum) -> casts.Datum:
    return casts.cast(value, DataType.FLOAT)


def _of_float(
    function: Callable[[casts.Datum], casts.Datum], has_none: Callable[[casts.Datum], casts.Datum]
) -> Callable[[casts.Datum], casts.Datum]:
    """``function`` of a number as a float; NULL where ``has_none`` of it."""

    def over(value: casts.Datum) -> casts.Datum:
        number = _to_float(value)
        return pc.if_else(has_none(number), pa.scalar(None, _FLOAT), function(number))

    return over


def _power(base: casts.Datum, exponent: casts.Datum) -> casts.Datum:
    base, exponent = _to_float(base), _to_float(exponent)
    is_part = pc.and_(pc.is_finite(exponent), pc.not_equal(pc.floor(exponent), exponent))
    has_none = pc.or_(pc.and_(pc.equal(base, 0.0), pc.less(exponent, 0.0)), pc.and_(pc.less(base, 0.0), is_part))
    return pc.if_else(has_none, pa.scalar(None, _FLOAT), pc.power(base, exponent))


# --- choices


def _if(condition: casts.Datum, then: casts.Datum, otherwise: casts.Datum) -> casts.Datum:
    then, otherwise = _unified((then, otherwise))
    if isinstance(condition, pa.Scalar):
        return then if condition.as_py() else otherwise
    return pc.if_else(_true(condition), then, otherwise)


def _coalesce(*values: casts.Datum) -> casts.Datum:
    first, *rest = _unified(values)
    return first if not rest or not _has_null(first) else pc.coalesce(first, *rest)


def _both(by: pa.Array, value: pa.Array) -> pa.Array:
    lacks = pc.or_(by.is_null(), value.is_null())
    return pa.StructArray.from_arrays([by, value], names=[program.BY, program.VALUE], mask=lacks)


def _row(*values: pa.Array) -> pa.Array:
    """A struct of ``values``, in which equal floats look alike."""
    fields = [_alike(value) if pa.types.is_floating(value.type) else value for value in values]
    return pa.StructArray.from_arrays(fields, names=[str(place) for place in range(len(fields))])


def _alike(floats: pa.Array) -> pa.Array:
    known = pc.add(floats, 0.0)  # -0.0 is 0.0
    return pc.if_else(pc.is_nan(known), pa.scalar(math.nan), known)


def _field(value: casts.Datum, name: pa.Scalar) -> casts.Datum:
    return pc.struct_field(value, name.as_py())


def _walk(state: casts.Datum, codes: casts.Datum, table: pa.Scalar, width: pa.Scalar) -> pa.Array:
    state, codes = casts.broadcast([state, codes])
    moves = np.array(table.as_py().split(","), np.int64).reshape(-1, width.as_py())
    return walked(state, codes, moves)


_OPERATORS: dict[str, Callable[[casts.Datum, casts.Datum], casts.Datum]] = {
    "+": _arithmetic(pc.add_checked, decimals.add),
    "-": _subtract,
    "*": _arithmetic(pc.multiply_checked, casts.each(decimals.multiply)),
    "/": _divide,
    "%": _arithmetic(casts.each(_floor_mod), casts.each(decimals.remainder)),
    "==": _numbers(_equal),
    "!=": _numbers(_unequal),
    "<": _numbers(_less),
    "<=": _numbers(_less_equal),
    ">": _numbers(lambda left, right: _less(right, left)),
    ">=": _numbers(lambda left, right: _less_equal(right, left)),
    "and": _typed(_BOOL, pc.and_kleene),
    "or": _typed(_BOOL, pc.or_kleene),
}

_FUNCTIONS: dict[str, Callable[..., casts.Datum]] = {
    "not": _typed(_BOOL, pc.invert),
    "is_null": pc.is_null,
    "coalesce": _coalesce,
    "if": _if,
    "least": _extreme(_less),
    "greatest": _extreme(lambda left, right: _less(right, left)),
    "negate": _typed(_INT, pc.negate_checked),
    "abs": _typed(_INT, pc.abs_checked),
    "lower": _typed(_STRING, casts.each(casts.cased(str.lower, pc.ascii_lower))),
    "upper": _typed(_STRING, casts.each(casts.cased(str.upper, pc.ascii_upper))),
    "concat": _typed(_STRING, lambda *values: pc.binary_join_element_wise(*values, "")),
    "crc32": _typed(_STRING, casts.each(crc32)),
    "strip": _typed(_STRING, lambda text: pc.utf8_trim(text, characters=casts.BLANKS)),
    "length": _typed(_STRING, _length),
    "substring": _typed(_STRING, _with_constants(_substring)),
    "contains": _typed(_STRING, _contains),
    "starts_with": _typed(_STRING, _with_constants(pc.starts_with)),
    "ends_with": _typed(_STRING, _with_constants(pc.ends_with)),
    "matches": _typed(_STRING, _with_constants(_matches)),
    "regexp_extract": _typed(_STRING, _with_constants(_regexp_extract)),
    "regexp_replace": _typed(_STRING, _with_constants(_regexp_replace)),
    **{
        f"json_{kind.value}": _typed(_STRING, _with_constants(partial(_json_field, ARROW_TYPES[kind])))
        for kind in IN_JSON
    },
    "split": _typed(_STRING, _with_constants(pc.split_pattern)),
    "item": _of_lists(items_at),
    "slice": _of_lists(sliced),
    "replace": _typed(_STRING, _with_constants(pc.replace_substring)),
    "is_in": _is_in,
    "round": _typed(_INT, casts.each(_rounded(partial(pc.round, round_mode="half_to_even")))),
    "round_to": _typed(_INT, _with_constants(_round_to)),
    "floor": _typed(_INT, casts.each(_rounded(pc.floor))),
    "ceil": _typed(_INT, casts.each(_rounded(pc.ceil))),
    "sqrt": _of_float(pc.sqrt, lambda number: pc.less(number, 0.0)),
    "ln": _of_float(pc.ln, lambda number: pc.less_equal(number, 0.0)),
    "log10": _of_float(pc.log10, lambda number: pc.less_equal(number, 0.0)),
    "exp": lambda value: pc.exp(_to_float(value)),
    "power": _power,
    "bit_and": _typed(_INT, pc.bit_wise_and),
    "bit_or": _typed(_INT, pc.bit_wise_or),
    "bit_xor": _typed(_INT, pc.bit_wise_xor),
    "shift_left": _typed(_INT, pc.shift_left),
    "shift_right": _typed(_INT, pc.shift_right),
    "md5": _typed(_STRING, casts.each(partial(hashed, algorithm=md5))),
    "sha256": _typed(_STRING, casts.each(partial(hashed, algorithm=sha256))),
    "plus_us": _plus_us,
    "strftime": _typed(TIMESTAMP, _with_constants(_strftime)),
    "strptime": _typed(_STRING, _with_constants(_strptime)),
    "truncate": _typed(TIMESTAMP, _with_constants(truncate)),
    "to_timestamp": _typed(_STRING, casts.each(partial(casts.read_text, kind=DataType.TIMESTAMP))),
    "local_to_utc": _typed(TIMESTAMP, _with_constants(local_to_utc)),
    **{name: _typed(TIMESTAMP, _with_constants(partial(_part, name))) for name in PARTS},
    "plus_days": _plus_days,
    program.BOTH: casts.each(_both),
    program.ROW: casts.each(_row),
    "field": _field,
    "walk": _walk,
}


_LEAST, _LIMIT = -(2**63), 2**63
_MARGIN = 2.0**12
"""Products of 64-bit integers as doubles are wrong by less, where they are near 2^63."""


@dataclass(frozen=True)
class Overflow:
    """The ``rows`` in which an expression leaves its type; ``why`` says which part of it, and ``error`` what it is."""

    rows: NDArray[np.bool_]
    why: str
    error: type[ValueOverflowError]

    def among(self, rows: NDArray[np.bool_]) -> int | None:
        """The first of these ``rows`` in which it overflows."""
        both = np.flatnonzero(self.rows & rows)
        return int(both[0]) if len(both) else None


class RowOverflowsError(Exception):
    """A value that counts overflows in row ``row``: the caller, who knows where that is from, raises ``error``."""

    def __init__(self, row: int, error: ValueOverflowError) -> None:
        super().__init__(row, error)
        self.row, self.error = row, error


def column_apart(expr: Expr, rows: Rows, schema: Schema, length: int) -> tuple[pa.Array, tuple[Overflow, ...]]:
    """``expr`` as ``evaluation.column`` gives it, NULL in rows where it overflows; and which these are."""
    values, overflows = _evaluated(expr, rows, length)
    values = in_type(expr, values, schema, length)
    if overflows:
        values = pc.if_else(pa.array(~_any(overflows, length)), values, pa.scalar(None, values.type))
    return values, overflows


def _evaluated(expr: Expr, rows: Rows, length: int) -> tuple[casts.Datum, tuple[Overflow, ...]]:
    try:
        return evaluate(expr, rows), ()
    except ValueOverflowError:
        parts = [_evaluated(operand, rows, length) for operand in operands_of(expr)]
    overflows = tuple(overflow for _, of_part in parts for overflow in of_part)
    operands = _without([value for value, _ in parts], overflows, length)
    try:
        return applied(expr, operands), overflows
    except ValueOverflowError as error:
        if all(isinstance(operand, pa.Scalar) for operand in operands):  # of constants: no record is to blame
            raise
        overflow = Overflow(_wrong(expr, operands, length), str(error).removesuffix(OPERANDS), type(error))
        return applied(expr, _without(operands, (overflow,), length)), (*overflows, overflow)


def _without(operands: Sequence[casts.Datum], overflows: Iterable[Overflow], length: int) -> list[casts.Datum]:
    """``operands``, NULL in rows that overflow."""
    if not (wrong := _any(overflows, length)).any():
        return [*operands]
    keep = pa.array(~wrong)
    return [
        value if isinstance(value, pa.Scalar) else pc.if_else(keep, value, pa.scalar(None, value.type))
        for value in operands
    ]


def _any(overflows: Iterable[Overflow], length: int) -> NDArray[np.bool_]:
    wrong = np.zeros(length, np.bool_)
    for overflow in overflows:
        wrong |= overflow.rows
    return wrong


def _wrong(expr: Expr, operands: Sequence[casts.Datum], length: int) -> NDArray[np.bool_]:
    """The rows in which the node ``expr`` of ``operands`` overflows."""
    if isinstance(expr, Binary) and expr.op in _INTEGERS and all(value.type == pa.int64() for value in operands):
        columns = casts.broadcast([*operands])
        left, right = (as_numpy(value.fill_null(0)) for value in columns)
        with np.errstate(over="ignore"):
            wrong = _INTEGERS[expr.op](left, right)
        for values in columns:
            wrong = wrong & as_numpy(values.is_valid())
        return wrong
    return _halved(expr, operands, length)


def _halved(expr: Expr, operands: Sequence[casts.Datum], length: int) -> NDArray[np.bool_]:
    """The same of any node, by trying ever smaller parts."""
    wrong = np.zeros(length, np.bool_)
    parts = [(0, length)]
    while parts:
        first, many = parts.pop()
        part = [value if isinstance(value, pa.Scalar) else value.slice(first, many) for value in operands]
        try:
            applied(expr, part)
        except ValueOverflowError:
            if many == 1:
                wrong[first] = True
            else:
                parts += [(first, many // 2), (first + many // 2, many - many // 2)]
    return wrong


def _sums(left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.bool_]:
    total = left + right
    return ((left ^ total) & (right ^ total)) < 0


def _differences(left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.bool_]:
    return ((left ^ right) & (left ^ (left - right))) < 0


def _products(left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.bool_]:
    size = np.abs(left.astype(np.float64) * right)
    wrong: NDArray[np.bool_] = size > _LIMIT
    for row in np.flatnonzero(np.abs(size - _LIMIT) <= _MARGIN):  # a double does not tell: hardly any row is so near
        wrong[row] = not _LEAST <= int(left[row]) * int(right[row]) < _LIMIT
    return wrong


_INTEGERS = {"+": _sums, "-": _differences, "*": _products}
