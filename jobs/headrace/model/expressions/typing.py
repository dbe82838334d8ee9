"""Trees of expressions looked into: going through one, what identifies it, and what types it has over a schema.

A tree must end within Python's stack when it is looked at, node by node, so its size has limits. What identifies it is
a JSON value, of which fingerprints are made: its words never change. It has a type over a schema, or an error that says
what is wrong.
"""

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any, NamedTuple, TypeVar

from headrace.errors import PipelineError
from headrace.model.arguments import did_you_mean, locate_errors
from headrace.model.combiners import BY_ANOTHER, TRAITS, Combiner, ResultType, result_type
from headrace.model.expressions import data_types
from headrace.model.expressions.expr import Aggregate, Binary, Column, Expr, Function, Literal, render


def child_expressions(expr: Expr) -> Sequence[Expr]:
    """The direct operands of ``expr``."""
    match expr:
        case Binary(_, left, right):
            return left, right
        case Function(_, args):
            return args
    return ()


def walk(expr: Expr) -> Iterator[Expr]:
    """``expr`` and all below it."""
    left = [expr]
    while left:
        yield (node := left.pop())
        left += child_expressions(node)


def columns_of(expr: Expr) -> frozenset[str]:
    """Names of all columns that ``expr`` reads."""
    return frozenset([node.name for node in walk(expr) if isinstance(node, Column)])


MOST_NODES = 10_000
"""Operators, functions, columns and constants in one expression; what stands in it twice counts twice."""

DEEPEST = 150
"""How deep expressions may be nested. Some libraries go down into them a few calls a level."""

T = TypeVar("T")


class Extent(NamedTuple):
    """``nodes`` in all, of which what is there twice counts twice, and how many levels deep they are."""

    nodes: int
    depth: int


def tree_extent(root: T, children_of: Callable[[T], Iterable[T]]) -> Extent:
    """The extent of the tree under ``root``; ``children_of`` gives the children of a node. Looks once at each node,
    however often it stands in the tree, and calls nothing of its own again.
    """
    extents: dict[int, Extent] = {}
    left = [root]
    while left:
        node = left[-1]
        inner = [*children_of(node)]
        unknown = [child for child in inner if id(child) not in extents]
        if unknown:
            left += unknown
            continue
        parts = [extents[id(child)] for child in inner]
        depth = 1 + max((part.depth for part in parts), default=0)
        extents[id(node)] = Extent(1 + sum(part.nodes for part in parts), depth)
        left.pop()
    return extents[id(root)]


def too_large(expr: Expr) -> str | None:
    """Why ``expr`` is more than can be computed, and what to write instead; None if it is not."""
    size = tree_extent(expr, child_expressions)
    if size.depth > DEEPEST:
        return (
            f"the expression is {size.depth:,} levels deep, and may be {DEEPEST}. Add up or choose in groups, use "
            "is_in, least, greatest or coalesce, which take many values, or compute the column before it lands"
        )
    if size.nodes > MOST_NODES:
        return (
            f"the expression has {size.nodes:,} parts, and may have {MOST_NODES:,} (a part that is used twice counts "
            "twice). Compute some of it before it lands, or in an aggregation of its own"
        )
    return None


def is_same_expression(left: Expr, right: Expr) -> bool:
    """Structural equality (``==`` builds an expression instead)."""
    return to_json(left) == to_json(right)


def to_json(expr: Expr) -> list[Any]:
    """A JSON value that identifies ``expr``. Fingerprints are made of it: its words never change."""
    match expr:
        case Column(name):
            return ["column", name]
        case Literal(value, kind):
            return ["literal", constant_to_json(value), None if kind is None else kind.value]
        case Binary(op, left, right):
            return ["binary", op, to_json(left), to_json(right)]
        case Function(name, args):
            return ["function", name, *map(to_json, args)]
    raise TypeError(type(expr).__name__)


def constant_to_json(value: Any) -> Any:
    """A constant as JSON has it: days, bytes and decimals are texts."""
    match value:
        case date():
            return value.isoformat()
        case bytes():
            return b64encode(value).decode()
        case Decimal():
            return data_types.decimal_text(value)
    return value


_B, _I, _F, _S, _T = (
    data_types.DataType.BOOL,
    data_types.DataType.INT,
    data_types.DataType.FLOAT,
    data_types.DataType.STRING,
    data_types.DataType.TIMESTAMP,
)
_D, _Y, _M = data_types.DataType.DATE, data_types.DataType.BYTES, data_types.DataType.DECIMAL
Kind = data_types.DataType | None
AnyKind = Kind | data_types.NestedType

_ALLOWED_CASTS: Mapping[data_types.DataType, frozenset[data_types.DataType]] = {
    _B: frozenset({_I, _F, _S, _T}),
    **dict.fromkeys((_I, _F), frozenset({_B, _I, _F, _S, _T, _M})),
    _T: frozenset({_B, _I, _F, _S, _D}),
    _S: frozenset(data_types.DataType),
    _D: frozenset({_S, _T}),
    _Y: frozenset({_S}),
    _M: frozenset({_I, _F, _S}),
}
"""Besides itself, what a value of each type can be cast to."""


def type_of(expr: Expr, schema: data_types.Schema) -> data_types.DataType | None:
    """The type of ``expr`` over columns of ``schema``; None for an untyped NULL.

    Raises PipelineError for an unknown column, operands that do not fit, or what is nested, which is no value.
    """
    kind = kind_of(expr, schema)
    if isinstance(kind, data_types.NestedType):
        raise _type_error(expr, f"a {data_types.in_words(kind)} is no value; {_what_reads(kind)}")
    return kind


def kind_of(expr: Expr, schema: data_types.Schema) -> AnyKind:
    """The same of an operand, which may be nested, and read by a function. Raises PipelineError."""
    match expr:
        case Column(name):
            if name not in schema:
                raise PipelineError(
                    f"there is no column {name!r}; {did_you_mean(name, schema)}the columns are "
                    f"{', '.join(sorted(schema))}"
                )
            return schema[name]
        case Literal(_, kind):
            return kind
        case Binary(op, left, right) if op in Binary.COMPARISON:
            return _type_of_comparison(expr, op, kind_of(left, schema), kind_of(right, schema))
        case Binary(op, left, right):
            return _binary_type(expr, op, type_of(left, schema), type_of(right, schema))
        case Function("bucket", values):
            for value in values:  # each of any type
                kind_of(value, schema)
            return _I
        case Function(name, values) if values:
            return _kind_of_function(expr, name, values, schema)
    raise PipelineError(f"{expr!r} is not an expression")


def _kind_of_function(expr: Expr, name: str, values: Sequence[Expr], schema: data_types.Schema) -> AnyKind:
    first, *others = values
    own, kinds = kind_of(first, schema), [type_of(other, schema) for other in others]
    match own:
        case data_types.ListType():
            return _type_over_list(expr, name, own, kinds)
        case data_types.StructType():
            return _type_over_struct(expr, name, own, others)
        case data_types.MapType():
            return _type_over_map(expr, name, own, kinds)
    return _function_type(expr, name, [own, *kinds])


def row_type(name: str, expr: Expr, schema: data_types.Schema) -> data_types.ColumnType:
    """The type of ``expr`` as the column ``name`` of rows, which may be nested. Raises PipelineError, also for an
    untyped NULL.
    """
    with locate_errors(f"rows[{name!r}]"):
        kind = kind_of(expr, schema)
        if kind is None:
            raise PipelineError(f"{expr!s} is always NULL; cast it, or leave it out")
        return kind


def _what_reads(kind: data_types.NestedType) -> str:
    match kind:
        case data_types.StructType():
            return _READS_STRUCTS
        case data_types.MapType():
            return _READS_MAPS
        case data_types.ListType(item) if isinstance(item, data_types.NestedType):
            return _READS_LISTS_OF_NESTED
    return _READS_LISTS


_READS_STRUCTS = "field and is_null read a struct, and rows take it along"
_READS_MAPS = "item, contains, length and is_null read a map, and rows take it along"
_READS_LISTS_OF_NESTED = "length, item, slice and is_null read it, rows take it along, and explode makes records of it"
_READS_LISTS = "length, contains, item, slice and is_null read a list, and so does a transform, which may explode it"


def _type_over_list(expr: Expr, name: str, kind: data_types.ListType, others: list[Kind]) -> AnyKind:
    match name:
        case "length":
            return _I
        case "is_null":
            return _B
        case "contains":
            if not isinstance(kind.item, data_types.DataType):
                raise _does_not_take(expr, name, kind)
            _unify_types(expr, [kind.item, *others])
            return _B
        case "item":
            if others != [_I]:
                raise _type_error(
                    expr, "the items of a list have places, not names: item(0) is the first, item(-1) the last"
                )
            return kind.item
        case "slice":
            return kind
    raise _does_not_take(expr, name, kind)


def _type_over_struct(expr: Expr, name: str, kind: data_types.StructType, others: Sequence[Expr]) -> AnyKind:
    match name, others:
        case "is_null", _:
            return _B
        case "field", [Literal(wanted)]:
            fields = dict(kind.fields)
            if wanted not in fields:
                hint = did_you_mean(str(wanted), fields)
                raise _type_error(expr, f"there is no field {wanted!r}; {hint}the fields are {', '.join(fields)}")
            return fields[str(wanted)]
    raise _does_not_take(expr, name, kind)


def _type_over_map(expr: Expr, name: str, kind: data_types.MapType, others: list[Kind]) -> AnyKind:
    if name in {"item", "contains"} and others != [_S]:
        raise _type_error(expr, f'the keys of a map are text: write {name}("a key"), found {others[0] or "NULL"}')
    match name:
        case "length":
            return _I
        case "is_null" | "contains":
            return _B
        case "item":
            return kind.value
    raise _does_not_take(expr, name, kind)


def _does_not_take(expr: Expr, name: str, kind: data_types.NestedType) -> PipelineError:
    return _type_error(expr, f"{name} does not take a {data_types.in_words(kind)}; {_what_reads(kind)}")


def _type_error(expr: Expr, why: str) -> PipelineError:
    return PipelineError(f"in {render(expr)}: {why}")


def _unify_types(expr: Expr, types: list[Kind]) -> Kind:
    known_types = {t for t in types if t is not None}
    if not known_types:
        return None
    if known_types == {_I, _F}:
        return _F
    if known_types == {_I, _M}:
        return _M
    if len(known_types) > 1:
        raise _type_error(
            expr,
            "the operands have different types: "
            f"{', '.join(sorted(known_types))}{_operand_hint('compare', known_types)}",
        )
    return known_types.pop()


def _type_of_comparison(expr: Expr, op: str, left: AnyKind, right: AnyKind) -> Kind:
    sides = (left, right)
    nested_kind = next((kind for kind in sides if isinstance(kind, data_types.NestedType)), None)
    if nested_kind is None:
        _unify_types(expr, [kind for kind in sides if not isinstance(kind, data_types.NestedType)])
    elif op not in ("==", "!="):
        raise _type_error(
            expr,
            f"a {data_types.in_words(nested_kind)} has no order, only == and != compare it; {_what_reads(nested_kind)}",
        )
    elif not {left, right} <= {nested_kind, None}:
        words = " and ".join("NULL" if kind is None else data_types.in_words(kind) for kind in sides)
        raise _type_error(expr, f"{words} are not compared, only two of one type; {_what_reads(nested_kind)}")
    return _B


def _binary_type(expr: Expr, op: str, left: Kind, right: Kind) -> data_types.DataType:
    if op in Binary.BOOLEAN:
        if {left, right} - {_B, None}:
            sign = "&" if op == "and" else "|"
            raise _type_error(
                expr,
                f"{op} needs booleans, found {left} and {right}; put each comparison beside {sign} in parentheses",
            )
        return _B
    if op not in Binary.ARITHMETIC:
        raise _type_error(expr, f"unknown operator {op!r}")
    if op == "-" and _D in {left, right} and not {left, right} - {_D, None}:
        return _I
    if {left, right} - {*data_types.NUMERIC, None}:
        raise _type_error(expr, f"{op} needs numbers, found {left} and {right}{_operand_hint(op, {left, right})}")
    common_type = _unify_types(expr, [left, right]) or _I
    return _F if op == "/" and common_type is _I else common_type


def _operand_hint(op: str, kinds: set[data_types.DataType] | set[Kind]) -> str:  # noqa: PLR0911 (a line for each mistake)
    """What to write for operands of ``kinds`` that do not fit."""
    if op == "compare" and kinds == {_S, _T}:
        return '; write the time as a datetime with a time zone, or lit("2013-01-01T00:00:00Z").cast(datetime)'
    if op == "compare" and kinds == {_S, _D}:
        return "; write the day as a date, date(2013, 1, 1)"
    if op == "compare" and kinds == {_F, _M}:
        return "; a decimal is exact and a float is not: write Decimal('1.1') in place of 1.1, or cast one of them"
    if op == "+" and _S in kinds:
        return "; write concat(a, b) for one text after another"
    if op == "-" and kinds == {_D, _T}:
        return "; write .date() after the timestamp for the days between them"
    if op in "+-" and _D in kinds:
        return "; write a timedelta of days, or .plus(days=...)"
    if op in "+-" and _T in kinds:
        if kinds == {_T}:
            return "; cast both to int for the microseconds between them"
        return "; write a timedelta, or .plus(minutes=...)"
    return ""


def _function_type(expr: Expr, name: str, args: list[Kind]) -> AnyKind:
    if name.startswith("cast_"):
        return _cast_type(expr, args[0], data_types.DataType(name.removeprefix("cast_")))
    if name in {"coalesce", "least", "greatest"}:
        return _unify_types(expr, args)
    if name == "is_null":
        return _B
    if name == "if":
        if args[0] not in (_B, None):
            raise _type_error(expr, f"the condition is {args[0]}, not bool")
        return _unify_types(expr, args[1:])
    if name == "is_in":
        _unify_types(expr, args)
        return _B
    if name not in _SIGNATURES:
        raise _type_error(expr, f"unknown function {name!r}")
    accepted_types, result = _SIGNATURES[name]
    # What else there is are constants, checked when it is written; but contains also takes items of lists.
    for arg in args if name in _OF_OPERANDS else args[:1]:
        if arg is not None and arg not in accepted_types:
            raise _type_error(expr, f"{name} takes {' or '.join(accepted_types) or _PART_OPERANDS[name]}, found {arg}")
    if name in ("plus_us", "plus_days") and args[1] not in (_I, None):
        raise _type_error(expr, f"a {args[0] or _T} moves by an int, found {args[1]}")
    return result or args[0]


def _cast_type(expr: Expr, source: Kind, target: data_types.DataType) -> data_types.DataType:
    if source is None or source is target or target in _ALLOWED_CASTS[source]:
        return target
    raise _type_error(
        expr, f"a {source} cannot be cast to {target}, only to {', '.join(sorted(_ALLOWED_CASTS[source]))}"
    )


_OF_OPERANDS = frozenset({"concat", "contains", "power", "log", "bit_and", "bit_or", "bit_xor"})
"""Functions whose other arguments are of the types of the first. The types of all other functions are checked when they
are written.
"""

_PART_OPERANDS = {"field": "a struct", "item": "a list or a map", "slice": "a list"}
"""What those take that take no value."""

_SIGNATURES: dict[str, tuple[tuple[data_types.DataType, ...], AnyKind]] = {
    "not": ((_B,), _B),
    "concat": ((_S,), _S),
    **dict.fromkeys(("negate", "abs", "round_to"), (data_types.NUMERIC, None)),
    **dict.fromkeys(("round", "floor", "ceil"), (data_types.NUMERIC, _I)),
    **dict.fromkeys(("lower", "upper", "strip", "substring", "replace"), ((_S,), _S)),
    **dict.fromkeys(("contains", "starts_with", "ends_with", "matches"), ((_S,), _B)),
    **dict.fromkeys(("length", "crc32"), ((_S,), _I)),
    **dict.fromkeys(("year", "month", "day", "weekday"), ((_T, _D), _I)),
    **dict.fromkeys(("hour", "minute", "second"), ((_T,), _I)),
    **dict.fromkeys(("truncate", "local_to_utc"), ((_T,), _T)),
    "to_timestamp": ((_S,), _T),
    "plus_us": ((_T,), _T),
    "plus_days": ((_T, _D), None),
    **dict.fromkeys(("regexp_extract", "regexp_replace"), ((_S,), _S)),
    "split": ((_S,), data_types.ListType(_S)),
    **dict.fromkeys(("field", "item", "slice"), ((), None)),
    **dict.fromkeys(("sqrt", "ln", "log10", "log", "exp", "power"), (data_types.NUMERIC, _F)),
    **dict.fromkeys(("bit_and", "bit_or", "bit_xor", "shift_left", "shift_right"), ((_I,), _I)),
    **dict.fromkeys(("md5", "sha256"), ((_S, _Y), _S)),
    **{f"json_{kind.value}": ((_S,), kind) for kind in data_types.IN_JSON},
    "strftime": ((_T, _D), _S),
    "strptime": ((_S,), _T),
}
"""What each function takes, and gives; None is the type of its first argument."""


def output_type(aggregate: Aggregate, schema: data_types.Schema) -> data_types.ValueType:  # noqa: PLR0911, PLR0912 (a line for each kind of result)
    """Type of the result of ``aggregate`` over elements of ``schema``. Raises PipelineError if its input does not
    fit.
    """
    combiner, traits = aggregate.combiner, TRAITS[aggregate.combiner]
    if combiner is Combiner.COUNT and aggregate.input is None:
        return data_types.DataType.INT
    kind = operand_type(aggregate, schema)
    if traits.numeric and kind not in data_types.NUMERIC:
        raise PipelineError(f"{combiner}({aggregate.input!s}) needs a number, found {kind}")
    if traits.boolean and kind is not _B:
        raise PipelineError(f"{combiner}({aggregate.input!s}) needs a boolean, found {kind}; write a comparison")
    if combiner in BY_ANOTHER:
        _value_type(combiner, aggregate.other, schema)
    match traits.gives:
        case ResultType.INT:
            return data_types.DataType.INT
        case ResultType.BYTES:
            return data_types.DataType.BYTES
        case ResultType.INPUT:
            return kind
        case ResultType.FRACTION:
            return kind if kind is data_types.DataType.DECIMAL else data_types.DataType.FLOAT
        case ResultType.FLOAT:
            if kind is data_types.DataType.DECIMAL:
                raise PipelineError(f"the {combiner} of decimals does not fit a decimal; cast them to float")
            return data_types.DataType.FLOAT
        case ResultType.LIST:
            return data_types.ListType(kind)
        case ResultType.PAIRS:
            other = _operand_type(combiner, aggregate.other, schema, may_be_nested=traits.takes_nested_other)
            return data_types.PairsType(kind, other)
        case ResultType.DECLARED:
            assert aggregate.custom is not None
            return result_type(aggregate.custom)


def input_type(aggregate: Aggregate, schema: data_types.Schema) -> data_types.DataType:
    """Type of the values that ``aggregate`` takes over ``schema``. Raises PipelineError if it takes none, or others."""
    return _value_type(aggregate.combiner, aggregate.input, schema)


def operand_type(aggregate: Aggregate, schema: data_types.Schema) -> data_types.ColumnType:
    """The same of one that may take structs, maps and lists."""
    may_be_nested = TRAITS[aggregate.combiner].takes_nested
    return _operand_type(aggregate.combiner, aggregate.input, schema, may_be_nested=may_be_nested)


def _operand_type(
    combiner: Combiner, expr: Expr | None, schema: data_types.Schema, *, may_be_nested: bool
) -> data_types.ColumnType:
    if expr is None or not may_be_nested:
        return _value_type(combiner, expr, schema)
    kind = kind_of(expr, schema)
    return _value_type(combiner, expr, schema) if kind is None else kind


def _value_type(combiner: Combiner, expr: Expr | None, schema: data_types.Schema) -> data_types.DataType:
    if expr is None:
        raise PipelineError(f"{combiner} needs an expression to read")
    kind = type_of(expr, schema)
    if kind is None:
        raise PipelineError(f"{combiner} of a bare NULL has no type; name a column")
    return kind


def readable_types(what: Mapping[str, Aggregate], schema: data_types.Schema) -> data_types.Schema:
    """Types of the results of ``what`` over elements of ``schema``, without lists of pairs, which no expression
    reads.
    """
    kinds = {name: output_type(aggregate, schema) for name, aggregate in what.items()}
    return {name: kind for name, kind in kinds.items() if not isinstance(kind, data_types.PairsType)}
