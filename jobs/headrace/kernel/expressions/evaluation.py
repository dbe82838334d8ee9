"""Expressions on Arrow columns: what each node does, and over which rows a value leaves its type.

Nodes are those of ``headrace.model.expressions.expr``, in one table; values are those of
``headrace_lab.reference.evaluate``, to the last bit. Both branches of an ``if`` are evaluated. Types come from the
columns: an int that meets a float is one. Constants stay scalars, so what only clocks decide is cheap.

A record is judged by itself: what overflows in one says nothing of the others. Whole columns are tried first, so this
costs nothing where all is well.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, reduce
from hashlib import md5, sha256

import msgspec
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
    arrow_scalar,
    arrow_type,
    as_numpy,
    entries_of,
    equal_mask,
    is_nested,
    items_at,
    keys_of,
    list_numbers,
    slice_lists,
    true_mask,
    valid_mask,
    values_of_key,
)
from headrace.kernel.custom_objects import TriggerBatches
from headrace.kernel.expressions import casts, decimals
from headrace.kernel.expressions.decimals import round_floats_to
from headrace.kernel.expressions.local_time import (
    PARTS,
    clock_part,
    format_time,
    local_to_utc,
    read_format,
    truncate_time,
)
from headrace.kernel.expressions.string_bytes import crc32, hash_strings, json_values, walk_automata
from headrace.kernel.keys import hash_keys
from headrace.model.expressions.data_types import IN_JSON, DataType, Schema
from headrace.model.expressions.expr import Binary, Column, Expr, Function, Literal, render
from headrace.model.expressions.regex import to_captures, to_re2
from headrace.model.expressions.typing import child_expressions, kind_of
from headrace.program import columns as program
from headrace.program.columns import CAST_FROM_PREFIX, Call

RowColumns = Mapping[str, casts.Datum]

_CAST_PREFIXES = ("cast_", CAST_FROM_PREFIX)  # either way the column knows what it is cast from
_DAY_MICROSECONDS = 86_400_000_000
_INT, _FLOAT, _BOOL, _STRING = (ARROW_TYPES[k] for k in (DataType.INT, DataType.FLOAT, DataType.BOOL, DataType.STRING))


def evaluate(expr: Expr, rows: RowColumns) -> casts.Datum:
    """``expr`` over ``rows``, which have every column that it reads (KeyError); a scalar if it reads only scalars.

    Raises ValueOverflowError when a value leaves what its type holds.
    """
    match expr:
        case Column(name):
            return rows[name]
        case Literal(value, kind):
            return pa.scalar(value, pa.null() if kind is None else ARROW_TYPES[kind])
        case Binary() | Function():
            return apply_node(expr, [evaluate(operand, rows) for operand in child_expressions(expr)])
    raise TypeError(type(expr).__name__)


def apply_node(expr: Expr, operands: list[casts.Datum]) -> casts.Datum:
    """The node ``expr`` of ``operands``, which are values. Raises ValueOverflowError."""
    match expr:
        case Binary(op):
            return _apply_function(expr, _OPERATORS[op], operands)
        case Call(name):
            return getattr(TriggerBatches(expr.owner), name)(*casts.broadcast_columns(operands))
        case Function(name) if name.startswith(_CAST_PREFIXES):
            return casts.cast_value(operands[0], DataType(name.rpartition("_")[2]))
        case Function(name):
            return _apply_function(expr, _FUNCTIONS[name], operands)
    raise TypeError(type(expr).__name__)


def evaluate_column(expr: Expr, rows: RowColumns, schema: Schema, length: int) -> pa.Array:
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
            return pa.struct([*zip((program.ORDER_VALUE, program.VALUE), kinds, strict=True)])
        case Function(program.ROW, parts):
            return pa.struct([(str(place), arrow_type_of(part, schema)) for place, part in enumerate(parts)])
    kind = kind_of(expr, schema)
    return None if kind is None else arrow_type(kind)


def _apply_function(expr: Expr, function: Callable[..., casts.Datum], operands: list[casts.Datum]) -> casts.Datum:
    try:
        return function(*operands)
    except OverflowError:
        raise DateOverflowError(f"{render(expr)} leaves the years 1 to 9999") from None
    except pa.ArrowInvalid as error:
        with decimals.translate_overflow(render(expr)):
            if "overflow" not in str(error):
                raise
        raise IntegerOverflowError(f"{render(expr)} leaves 64 bits{OPERANDS}") from None


# --- NULL and types


def _as_float(value: casts.Datum) -> casts.Datum:
    return value if value.type == _FLOAT else pc.cast(value, _FLOAT, safe=False)  # 2^53 + 1 is 2^53 there


def _unify_types(values: tuple[casts.Datum, ...]) -> list[casts.Datum]:
    """``values`` of one type: floats where an int meets one; a NULL of no type takes that of the others."""
    known_types = {v.type for v in values} - {pa.null()}
    if known_types == {_INT, _FLOAT}:
        return [_as_float(v) for v in values]
    if known_types == {_INT, DECIMAL}:
        return [v if v.type == DECIMAL else v.cast(DECIMAL) for v in values]
    if len(known_types) == 1:
        (kind,) = known_types
        return [v if v.type == kind else v.cast(kind) for v in values]
    return list(values)


def _with_unified_types(function: "Comparison") -> "Comparison":
    """``function`` of two numbers of one type."""

    def apply_unified(left: casts.Datum, right: casts.Datum) -> casts.Datum:
        left, right = _unify_types((left, right))
        if left.type == pa.null():
            left, right = left.cast(_INT), right.cast(_INT)
        return function(left, right)

    return apply_unified


def _make_arithmetic(
    function: Callable[[casts.Datum, casts.Datum], casts.Datum],
    of_decimals: Callable[[casts.Datum, casts.Datum], casts.Datum],
) -> Callable[[casts.Datum, casts.Datum], casts.Datum]:
    return _with_unified_types(lambda left, right: (of_decimals if left.type == DECIMAL else function)(left, right))


def _with_typed_nulls(kind: pa.DataType, function: Callable[..., casts.Datum]) -> Callable[..., casts.Datum]:
    """``function`` of operands of ``kind``, of which some may be a NULL of no type."""
    return lambda *values: function(*[v.cast(kind) if v.type == pa.null() else v for v in values])


def _has_null(value: casts.Datum) -> bool:
    return not value.is_valid if isinstance(value, pa.Scalar) else value.null_count > 0


def _is_true(condition: casts.Datum) -> casts.Datum:
    return pc.fill_null(condition, False) if _has_null(condition) else condition


# --- arithmetic


_difference = _make_arithmetic(pc.subtract_checked, decimals.subtract)


def _divide(left: casts.Datum, right: casts.Datum) -> casts.Datum:
    if DECIMAL in (left.type, right.type):
        return casts.accept_scalars(decimals.divide)(*_unify_types((left, right)))
    left, right = (_as_float(v.cast(_FLOAT) if v.type == pa.null() else v) for v in (left, right))
    if isinstance(right, pa.Scalar) and right.as_py():
        return pc.divide(left, right)
    return pc.if_else(_is_true(pc.not_equal(right, arrow_scalar(0.0))), pc.divide(left, right), pa.scalar(None, _FLOAT))


def _floor_mod(left: pa.Array, right: pa.Array) -> pa.Array:
    valid = pc.and_(pc.and_(left.is_valid(), right.is_valid()), pc.not_equal(right, arrow_scalar(0)).fill_null(False))
    a, b = (as_numpy(v.fill_null(1)) for v in (left, right))
    with np.errstate(all="ignore"):
        rest = np.remainder(a, np.where(b == 0, b.dtype.type(1), b))
        if rest.dtype == np.float64:
            rest = np.where(np.isinf(a), np.nan, rest)
    return pa.array(rest, mask=as_numpy(pc.invert(valid)))


def _subtract(left: casts.Datum, right: casts.Datum) -> casts.Datum:
    left, right = _unify_types((left, right))
    return pc.subtract(casts.days_of(left), casts.days_of(right)) if left.type == DATE else _difference(left, right)


def _plus_us(time: casts.Datum, microseconds: casts.Datum) -> casts.Datum:
    time = time.cast(ARROW_TYPES[DataType.TIMESTAMP]) if time.type == pa.null() else time
    return pc.add_checked(time.cast(_INT), microseconds.cast(_INT)).cast(time.type)


def _plus_days(moment: casts.Datum, days: casts.Datum) -> casts.Datum:
    if moment.type == pa.null():
        return moment
    if moment.type != DATE:
        # days beside no moment make no result, and so must not overflow
        known_days = pc.if_else(pc.is_valid(moment), days.cast(_INT), pa.scalar(None, _INT))
        return _plus_us(moment, pc.multiply_checked(known_days, _DAY_MICROSECONDS))
    return casts.plus_days(moment, days.cast(_INT))


# --- order


def _nan_mask(value: casts.Datum) -> casts.Datum | None:
    """Where ``value`` is NaN; None if it is nowhere."""
    if value.type != _FLOAT:
        return None
    nans = pc.is_nan(value)
    return nans if pc.any(nans).as_py() else None


def _or_optional(left: casts.Datum, right: casts.Datum | None) -> casts.Datum:
    return left if right is None else pc.or_(left, right)


def _is_equal(left: casts.Datum, right: casts.Datum) -> casts.Datum:
    nan, other = _nan_mask(left), _nan_mask(right)
    return _or_optional(pc.equal(left, right), None if nan is None or other is None else pc.and_(nan, other))


Comparison = Callable[[casts.Datum, casts.Datum], casts.Datum]


def _or_of_nested(function: Comparison, of_nested: Comparison) -> Comparison:
    """``function`` of two values; if they are columns of structs, maps or lists, ``of_nested``."""

    def apply_either(left: casts.Datum, right: casts.Datum) -> casts.Datum:
        if not (is_nested(left.type) or is_nested(right.type)):
            return function(left, right)
        return pa.scalar(None, pa.bool_()) if pa.null() in (left.type, right.type) else of_nested(left, right)

    return apply_either


def _are_nested_equal(left: pa.Array, right: pa.Array) -> pa.Array:
    """Whether both are equal as values of columns are: NULL in them equals NULL. NULL where one is NULL itself."""
    return pa.array(equal_mask(left, right), mask=~(valid_mask(left) & valid_mask(right)))


def _is_less(left: casts.Datum, right: casts.Datum) -> casts.Datum:
    other, less = _nan_mask(right), pc.less(left, right)
    return less if other is None else pc.or_(less, pc.and_(other, pc.invert(pc.is_nan(left))))


def _less_equal(left: casts.Datum, right: casts.Datum) -> casts.Datum:
    return _or_optional(pc.less_equal(left, right), _nan_mask(right))


def _is_unequal(left: casts.Datum, right: casts.Datum) -> casts.Datum:
    return pc.invert(_is_equal(left, right))


def _make_extreme(comes_first: Callable[[casts.Datum, casts.Datum], casts.Datum]) -> Callable[..., casts.Datum]:
    """A function to the first of values that are not NULL; the one named first if several are equal."""

    def of_two(best: casts.Datum, other: casts.Datum) -> casts.Datum:
        better = comes_first(other, best)
        return _if_else(pc.or_kleene(pc.is_null(best), better) if _has_null(best) else better, other, best)

    def first_of_values(*values: casts.Datum) -> casts.Datum:
        first, *rest = _unify_types(values)
        return first if first.type == pa.null() else reduce(of_two, rest, first)

    return first_of_values


# --- with constants


def _with_constants(function: Callable[..., casts.Datum]) -> Callable[..., casts.Datum]:
    """``function`` of a column and Python's constants."""
    return lambda value, *constants: function(value, *(constant.as_py() for constant in constants))


def _text_length(value: casts.Datum) -> casts.Datum:
    if pa.types.is_map(value.type):
        return casts.accept_scalars(lambda maps: pc.list_value_length(entries_of(maps)).cast(_INT))(value)
    return (pc.list_value_length if pa.types.is_list(value.type) else pc.utf8_length)(value).cast(_INT)


def _contains(value: casts.Datum, item: casts.Datum) -> casts.Datum:
    if pa.types.is_map(value.type):
        return casts.accept_scalars(lambda maps: _lists_contain(keys_of(maps), item))(value)
    if not pa.types.is_list(value.type):
        return pc.match_substring(value, item.as_py())
    return casts.accept_scalars(lambda lists: _lists_contain(lists, item))(value)


def _lists_contain(lists: pa.Array, item: casts.Datum) -> pa.Array:
    equal = true_mask(_with_unified_types(_is_equal)(pc.list_flatten(lists), item))
    holds = np.bincount(list_numbers(lists)[equal], minlength=len(lists)).astype(np.bool_)
    return pa.array(holds, mask=as_numpy(lists.is_null()))


def _substring(text: casts.Datum, start: int, length: int | None = None) -> casts.Datum:
    rest = pc.utf8_slice_codeunits(text, start)
    return rest if length is None else pc.utf8_slice_codeunits(rest, 0, length)


def _matches_regex(text: casts.Datum, regex: str) -> casts.Datum:
    return pc.match_substring_regex(text, to_re2(regex))


def _regexp_extract(text: casts.Datum, regex: str, group: int) -> casts.Datum:
    return pc.struct_field(pc.extract_regex(text, f"(?P<g0>{to_captures(regex).re2})"), f"g{group}")


def _regexp_replace(text: casts.Datum, regex: str, new: str) -> casts.Datum:
    return pc.replace_substring_regex(text, to_captures(regex).re2, new)


def _json_field(kind: pa.DataType, text: casts.Datum, *path: str | int) -> casts.Datum:
    return casts.accept_scalars(partial(json_values, path=path, kind=kind))(text)


def _of_lists(function: Callable[..., pa.Array]) -> Callable[..., casts.Datum]:
    """``function`` of a column of lists and Python's constants."""

    def apply_to_lists(value: casts.Datum, *constants: pa.Scalar) -> casts.Datum:
        python_constants = [constant.as_py() for constant in constants]
        return (
            value
            if value.type == pa.null()
            else casts.accept_scalars(lambda lists: function(lists, *python_constants))(value)
        )

    return apply_to_lists


def _part_at(values: pa.Array, place: int | str) -> pa.Array:
    return values_of_key(values, place) if isinstance(place, str) else items_at(values, place)


def _is_in(*operands: casts.Datum) -> casts.Datum:
    value, *values = _unify_types(operands)
    if value.type == TIMESTAMP:
        # Python has no datetime for instants outside the years 1 to 9999
        value, values = value.cast(_INT), [v.cast(_INT) for v in values]
    constants, kind = [v.as_py() for v in values], value.type
    members = _is_float_in(value, constants) if kind == _FLOAT else pc.is_in(value, value_set=pa.array(constants, kind))
    return pc.if_else(pc.is_valid(value), members, pa.scalar(None, _BOOL))


def _is_float_in(value: casts.Datum, constants: list[float]) -> casts.Datum:
    """0.0 and -0.0 are equal, and so is every NaN."""
    members = pc.is_in(pc.add(value, arrow_scalar(0.0)), value_set=pa.array([v + 0.0 for v in constants], _FLOAT))
    return pc.or_(members, pc.is_nan(value)) if any(map(math.isnan, constants)) else members


def _time_part(name: str, time: casts.Datum, zone: str) -> casts.Datum:
    return clock_part(name, time.cast(TIMESTAMP), "UTC") if time.type == DATE else clock_part(name, time, zone)


def _strftime(time: casts.Datum, text: str, zone: str) -> casts.Datum:
    return format_time(time.cast(TIMESTAMP), text, "UTC") if time.type == DATE else format_time(time, text, zone)


def _strptime(strings: casts.Datum, text: str) -> casts.Datum:
    return casts.accept_scalars(partial(read_format, text=text))(strings)


def _round_to_int(function: Callable[[pa.Array], pa.Array]) -> Callable[[pa.Array], pa.Array]:
    def round_values(values: pa.Array) -> pa.Array:
        if values.type == DECIMAL:
            return decimals.to_ints(function(decimals.null_if_huge(values)))
        return casts.truncate_to_ints(function(values)) if values.type == _FLOAT else values

    return round_values


def _round_to(value: casts.Datum, digits: int) -> casts.Datum:
    if value.type == DECIMAL:
        return casts.accept_scalars(partial(decimals.round_to, digits=digits))(value)
    return casts.accept_scalars(partial(round_floats_to, digits=digits))(value) if value.type == _FLOAT else value


def _to_float(value: casts.Datum) -> casts.Datum:
    return casts.cast_value(value, DataType.FLOAT)


def _of_float(
    function: Callable[[casts.Datum], casts.Datum], has_none: Callable[[casts.Datum], casts.Datum]
) -> Callable[[casts.Datum], casts.Datum]:
    """``function`` of a number as a float; NULL where ``has_none`` of it."""

    def apply_to_float(value: casts.Datum) -> casts.Datum:
        number = _to_float(value)
        return pc.if_else(has_none(number), pa.scalar(None, _FLOAT), function(number))

    return apply_to_float


def _power(base: casts.Datum, exponent: casts.Datum) -> casts.Datum:
    base, exponent = _to_float(base), _to_float(exponent)
    is_part = pc.and_(pc.is_finite(exponent), pc.not_equal(pc.floor(exponent), exponent))
    has_none = pc.or_(pc.and_(pc.equal(base, 0.0), pc.less(exponent, 0.0)), pc.and_(pc.less(base, 0.0), is_part))
    return pc.if_else(has_none, pa.scalar(None, _FLOAT), pc.power(base, exponent))


def _log(value: casts.Datum, base: casts.Datum) -> casts.Datum:
    number, base = _to_float(value), _to_float(base)
    has_none = pc.or_(pc.or_(pc.less_equal(number, 0.0), pc.less_equal(base, 0.0)), pc.equal(base, 1.0))
    quotient = pc.divide(pc.ln(number), pc.ln(base))
    exact = pc.if_else(pc.equal(base, 2.0), pc.log2(number), pc.log10(number))  # log(8, 2) is 3
    of_base = pc.if_else(pc.or_(pc.equal(base, 2.0), pc.equal(base, 10.0)), exact, quotient)
    return pc.if_else(has_none, pa.scalar(None, _FLOAT), of_base)


# --- choices


def _if_else(condition: casts.Datum, value_if_true: casts.Datum, value_if_false: casts.Datum) -> casts.Datum:
    value_if_true, value_if_false = _unify_types((value_if_true, value_if_false))
    if isinstance(condition, pa.Scalar):
        return value_if_true if condition.as_py() else value_if_false
    return pc.if_else(_is_true(condition), value_if_true, value_if_false)


def _coalesce(*values: casts.Datum) -> casts.Datum:
    first, *rest = _unify_types(values)
    return first if not rest or not _has_null(first) else pc.coalesce(first, *rest)


def _pair_values(orders: pa.Array, value: pa.Array) -> pa.Array:
    lacks = pc.or_(orders.is_null(), value.is_null())
    return pa.StructArray.from_arrays([orders, value], names=[program.ORDER_VALUE, program.VALUE], mask=lacks)


def _row_struct(*values: pa.Array) -> pa.Array:
    """A struct of ``values``, in which equal floats look alike."""
    fields = [_normalize_floats(value) if pa.types.is_floating(value.type) else value for value in values]
    return pa.StructArray.from_arrays(fields, names=[str(place) for place in range(len(fields))])


def _normalize_floats(floats: pa.Array) -> pa.Array:
    positive_zeros = pc.add(floats, arrow_scalar(0.0))  # -0.0 is 0.0
    return pc.if_else(pc.is_nan(positive_zeros), arrow_scalar(math.nan), positive_zeros)


def _bucket(*values: pa.Array) -> pa.Array:
    """A number that equal rows share: a hash of ``values``, but for lists."""
    hashes = hash_keys([value for value in values if value.type in _HASHED_TYPES], len(values[0]))
    return pa.array((hashes >> np.uint64(1)).astype(np.int64))


_HASHED_TYPES = frozenset(ARROW_TYPES.values())


def _struct_field(value: casts.Datum, name: pa.Scalar) -> casts.Datum:
    return value if value.type == pa.null() else pc.struct_field(value, [value.type.get_field_index(name.as_py())])


def _walk_automaton(state: casts.Datum, codes: casts.Datum, table: pa.Scalar, width: pa.Scalar) -> pa.Array:
    state, codes = casts.broadcast_columns([state, codes])
    moves = np.array(table.as_py().split(","), np.int64).reshape(-1, width.as_py())
    return walk_automata(state, codes, moves)


_OPERATORS: dict[str, Callable[[casts.Datum, casts.Datum], casts.Datum]] = {
    "+": _make_arithmetic(pc.add_checked, decimals.add),
    "-": _subtract,
    "*": _make_arithmetic(pc.multiply_checked, casts.accept_scalars(decimals.multiply)),
    "/": _divide,
    "%": _make_arithmetic(casts.accept_scalars(_floor_mod), casts.accept_scalars(decimals.remainder)),
    "==": _or_of_nested(_with_unified_types(_is_equal), casts.accept_scalars(_are_nested_equal)),
    "!=": _or_of_nested(
        _with_unified_types(_is_unequal),
        casts.accept_scalars(lambda left, right: pc.invert(_are_nested_equal(left, right))),
    ),
    "<": _with_unified_types(_is_less),
    "<=": _with_unified_types(_less_equal),
    ">": _with_unified_types(lambda left, right: _is_less(right, left)),
    ">=": _with_unified_types(lambda left, right: _less_equal(right, left)),
    "and": _with_typed_nulls(_BOOL, pc.and_kleene),
    "or": _with_typed_nulls(_BOOL, pc.or_kleene),
}

_FUNCTIONS: dict[str, Callable[..., casts.Datum]] = {
    "not": _with_typed_nulls(_BOOL, pc.invert),
    "is_null": pc.is_null,
    "coalesce": _coalesce,
    "if": _if_else,
    "least": _make_extreme(_is_less),
    "greatest": _make_extreme(lambda left, right: _is_less(right, left)),
    "negate": _with_typed_nulls(_INT, pc.negate_checked),
    "abs": _with_typed_nulls(_INT, pc.abs_checked),
    "lower": _with_typed_nulls(_STRING, casts.accept_scalars(casts.change_case(str.lower, pc.ascii_lower))),
    "upper": _with_typed_nulls(_STRING, casts.accept_scalars(casts.change_case(str.upper, pc.ascii_upper))),
    "concat": _with_typed_nulls(_STRING, lambda *values: pc.binary_join_element_wise(*values, arrow_scalar(""))),
    "crc32": _with_typed_nulls(_STRING, casts.accept_scalars(crc32)),
    "strip": _with_typed_nulls(_STRING, lambda text: pc.utf8_trim(text, characters=casts.BLANKS)),
    "length": _with_typed_nulls(_STRING, _text_length),
    "substring": _with_typed_nulls(_STRING, _with_constants(_substring)),
    "contains": _with_typed_nulls(_STRING, _contains),
    "starts_with": _with_typed_nulls(_STRING, _with_constants(pc.starts_with)),
    "ends_with": _with_typed_nulls(_STRING, _with_constants(pc.ends_with)),
    "matches": _with_typed_nulls(_STRING, _with_constants(_matches_regex)),
    "regexp_extract": _with_typed_nulls(_STRING, _with_constants(_regexp_extract)),
    "regexp_replace": _with_typed_nulls(_STRING, _with_constants(_regexp_replace)),
    **{
        f"json_{kind.value}": _with_typed_nulls(_STRING, _with_constants(partial(_json_field, ARROW_TYPES[kind])))
        for kind in IN_JSON
    },
    "split": _with_typed_nulls(_STRING, _with_constants(pc.split_pattern)),
    "item": _of_lists(_part_at),
    "slice": _of_lists(slice_lists),
    "replace": _with_typed_nulls(_STRING, _with_constants(pc.replace_substring)),
    "is_in": _is_in,
    "round": _with_typed_nulls(_INT, casts.accept_scalars(_round_to_int(partial(pc.round, round_mode="half_to_even")))),
    "round_to": _with_typed_nulls(_INT, _with_constants(_round_to)),
    "floor": _with_typed_nulls(_INT, casts.accept_scalars(_round_to_int(pc.floor))),
    "ceil": _with_typed_nulls(_INT, casts.accept_scalars(_round_to_int(pc.ceil))),
    "sqrt": _of_float(pc.sqrt, lambda number: pc.less(number, arrow_scalar(0.0))),
    "ln": _of_float(pc.ln, lambda number: pc.less_equal(number, arrow_scalar(0.0))),
    "log10": _of_float(pc.log10, lambda number: pc.less_equal(number, arrow_scalar(0.0))),
    "exp": lambda value: pc.exp(_to_float(value)),
    "log": _log,
    "power": _power,
    "bit_and": _with_typed_nulls(_INT, pc.bit_wise_and),
    "bit_or": _with_typed_nulls(_INT, pc.bit_wise_or),
    "bit_xor": _with_typed_nulls(_INT, pc.bit_wise_xor),
    "shift_left": _with_typed_nulls(_INT, pc.shift_left),
    "shift_right": _with_typed_nulls(_INT, pc.shift_right),
    "md5": _with_typed_nulls(_STRING, casts.accept_scalars(partial(hash_strings, algorithm=md5))),
    "sha256": _with_typed_nulls(_STRING, casts.accept_scalars(partial(hash_strings, algorithm=sha256))),
    "plus_us": _plus_us,
    "strftime": _with_typed_nulls(TIMESTAMP, _with_constants(_strftime)),
    "strptime": _with_typed_nulls(_STRING, _with_constants(_strptime)),
    "truncate": _with_typed_nulls(TIMESTAMP, _with_constants(truncate_time)),
    "to_timestamp": _with_typed_nulls(_STRING, casts.accept_scalars(partial(casts.read_text, kind=DataType.TIMESTAMP))),
    "local_to_utc": _with_typed_nulls(TIMESTAMP, _with_constants(local_to_utc)),
    **{name: _with_typed_nulls(TIMESTAMP, _with_constants(partial(_time_part, name))) for name in PARTS},
    "plus_days": _plus_days,
    program.BOTH: casts.accept_scalars(_pair_values),
    "bucket": casts.accept_scalars(_bucket),
    program.ROW: casts.accept_scalars(_row_struct),
    "field": _struct_field,
    "walk": _walk_automaton,
}


_LEAST, _LIMIT = -(2**63), 2**63
_MARGIN = 2.0**12
"""Products of 64-bit integers as doubles are wrong by less, where they are near 2^63."""


class Overflow(msgspec.Struct, frozen=True):
    """The ``rows`` in which an expression leaves its type; ``why`` says which part of it, and ``error`` what it is."""

    rows: NDArray[np.bool_]
    why: str
    error: type[ValueOverflowError]

    def first_row_in(self, rows: NDArray[np.bool_]) -> int | None:
        """The first of these ``rows`` in which it overflows."""
        both = np.flatnonzero(self.rows & rows)
        return int(both[0]) if len(both) else None


class RowOverflowsError(Exception):
    """A value that counts overflows in row ``row``: the caller, who knows where that is from, raises ``error``."""

    def __init__(self, row: int, error: ValueOverflowError) -> None:
        super().__init__(row, error)
        self.row, self.error = row, error


def column_apart(expr: Expr, rows: RowColumns, schema: Schema, length: int) -> tuple[pa.Array, tuple[Overflow, ...]]:
    """``expr`` as ``evaluation.column`` gives it, NULL in rows where it overflows; and which these are."""
    values, overflows = _evaluate_with_overflows(expr, rows, length)
    values = in_type(expr, values, schema, length)
    if overflows:
        values = pc.if_else(pa.array(~_any_overflow(overflows, length)), values, pa.scalar(None, values.type))
    return values, overflows


def _evaluate_with_overflows(expr: Expr, rows: RowColumns, length: int) -> tuple[casts.Datum, tuple[Overflow, ...]]:
    try:
        return evaluate(expr, rows), ()
    except ValueOverflowError:
        parts = [_evaluate_with_overflows(operand, rows, length) for operand in child_expressions(expr)]
    overflows = tuple(overflow for _, of_part in parts for overflow in of_part)
    operands = _null_overflows([value for value, _ in parts], overflows, length)
    try:
        return apply_node(expr, operands), overflows
    except ValueOverflowError as error:
        if all(isinstance(operand, pa.Scalar) for operand in operands):  # of constants: no record is to blame
            raise
        overflow = Overflow(_overflow_rows(expr, operands, length), str(error).removesuffix(OPERANDS), type(error))
        return apply_node(expr, _null_overflows(operands, (overflow,), length)), (*overflows, overflow)


def _null_overflows(operands: Sequence[casts.Datum], overflows: Iterable[Overflow], length: int) -> list[casts.Datum]:
    """``operands``, NULL in rows that overflow."""
    if not (wrong := _any_overflow(overflows, length)).any():
        return [*operands]
    keep = pa.array(~wrong)
    return [
        value if isinstance(value, pa.Scalar) else pc.if_else(keep, value, pa.scalar(None, value.type))
        for value in operands
    ]


def _any_overflow(overflows: Iterable[Overflow], length: int) -> NDArray[np.bool_]:
    wrong = np.zeros(length, np.bool_)
    for overflow in overflows:
        wrong |= overflow.rows
    return wrong


def _overflow_rows(expr: Expr, operands: Sequence[casts.Datum], length: int) -> NDArray[np.bool_]:
    """The rows in which the node ``expr`` of ``operands`` overflows."""
    if isinstance(expr, Binary) and expr.op in _INTEGERS and all(value.type == pa.int64() for value in operands):
        columns = casts.broadcast_columns([*operands])
        left, right = (as_numpy(value.fill_null(0)) for value in columns)
        with np.errstate(over="ignore"):
            wrong = _INTEGERS[expr.op](left, right)
        for values in columns:
            wrong = wrong & as_numpy(values.is_valid())
        return wrong
    return _overflows_by_halving(expr, operands, length)


def _overflows_by_halving(expr: Expr, operands: Sequence[casts.Datum], length: int) -> NDArray[np.bool_]:
    """The same of any node, by trying ever smaller parts."""
    wrong = np.zeros(length, np.bool_)
    parts = [(0, length)]
    while parts:
        first, many = parts.pop()
        part = [value if isinstance(value, pa.Scalar) else value.slice(first, many) for value in operands]
        try:
            apply_node(expr, part)
        except ValueOverflowError:
            if many == 1:
                wrong[first] = True
            else:
                parts += [(first, many // 2), (first + many // 2, many - many // 2)]
    return wrong


def _sum_overflows(left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.bool_]:
    total = left + right
    return ((left ^ total) & (right ^ total)) < 0


def _difference_overflows(left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.bool_]:
    return ((left ^ right) & (left ^ (left - right))) < 0


def _product_overflows(left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.bool_]:
    size = np.abs(left.astype(np.float64) * right)
    wrong: NDArray[np.bool_] = size > _LIMIT
    for row in np.flatnonzero(np.abs(size - _LIMIT) <= _MARGIN):  # a double does not tell: hardly any row is so near
        wrong[row] = not _LEAST <= int(left[row]) * int(right[row]) < _LIMIT
    return wrong


_INTEGERS = {"+": _sum_overflows, "-": _difference_overflows, "*": _product_overflows}
