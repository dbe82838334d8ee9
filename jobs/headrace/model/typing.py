"""Types of expressions: what type an expression has over a schema, and what is wrong with it if it has none."""

from headrace.errors import PipelineError
from headrace.model.expr import NUMERIC, Binary, Column, DataType, Expr, Function, Literal, Schema, render

_B, _I, _F, _S, _T = DataType.BOOL, DataType.INT, DataType.FLOAT, DataType.STRING, DataType.TIMESTAMP


def type_of(expr: Expr, schema: Schema) -> DataType | None:
    """The type of ``expr`` over columns of ``schema``; None for an untyped NULL.

    Raises PipelineError for an unknown column or operands that do not fit.
    """
    match expr:
        case Column(name):
            if name not in schema:
                raise PipelineError(f"there is no column {name!r}; the columns are {', '.join(sorted(schema))}")
            return schema[name]
        case Literal(value, declared):
            return declared or _literal_type(value)
        case Binary(op, left, right):
            return _binary_type(expr, op, type_of(left, schema), type_of(right, schema))
        case Function(name, args):
            return _function_type(expr, name, [type_of(a, schema) for a in args])
    raise PipelineError(f"{expr!r} is not an expression")


def _literal_type(value: object) -> DataType | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return _B
    if isinstance(value, int):
        return _I
    if isinstance(value, float):
        return _F
    return _S


def _bad(expr: Expr, why: str) -> PipelineError:
    return PipelineError(f"in {render(expr)}: {why}")


def _unify(expr: Expr, types: list[DataType | None]) -> DataType | None:
    known = {t for t in types if t is not None}
    if not known:
        return None
    if known == {_I, _F}:
        return _F
    if len(known) > 1:
        raise _bad(expr, f"the operands have different types: {', '.join(sorted(known))}")
    return known.pop()


def _binary_type(expr: Expr, op: str, left: DataType | None, right: DataType | None) -> DataType:
    if op in Binary.BOOLEAN:
        if {left, right} - {_B, None}:
            raise _bad(expr, f"{op} needs booleans, found {left} and {right}")
        return _B
    if op in Binary.COMPARISON:
        _unify(expr, [left, right])
        return _B
    if op not in Binary.ARITHMETIC:
        raise _bad(expr, f"unknown operator {op!r}")
    if {left, right} - {_I, _F, None}:
        raise _bad(expr, f"{op} needs numbers, found {left} and {right}")
    if op == "/":
        return _F
    return _unify(expr, [left, right]) or _I


def _function_type(expr: Expr, name: str, args: list[DataType | None]) -> DataType | None:
    if name.startswith("cast_"):
        return DataType(name.removeprefix("cast_"))
    if name in {"coalesce", "least", "greatest"}:
        return _unify(expr, args)
    if name == "is_null":
        return _B
    if name == "if":
        if args[0] not in (_B, None):
            raise _bad(expr, f"the condition is {args[0]}, not bool")
        return _unify(expr, args[1:])
    expected: dict[str, tuple[tuple[DataType, ...], DataType | None]] = {
        "not": ((_B,), _B),
        "abs": (NUMERIC, args[0] if args else None),
        "lower": ((_S,), _S),
        "upper": ((_S,), _S),
        "concat": ((_S,), _S),
        "crc32": ((_S,), _I),
        "plus_us": ((_T, _I), _T),
    }
    if name not in expected:
        raise _bad(expr, f"unknown function {name!r}")
    accepted, result = expected[name]
    for arg in args:
        if arg is not None and arg not in accepted:
            raise _bad(expr, f"{name} takes {' or '.join(accepted)}, found {arg}")
    return result
