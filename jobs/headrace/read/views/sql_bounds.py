"""What a condition in SQL says of single columns (``pruning.Said``), by DuckDB's own syntax tree of it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from functools import reduce
from typing import Any, Final

from headrace.model.expressions.data_types import DataType
from headrace.model.expressions.value_types import ValueType
from headrace.read.views.database import literal, without_rows
from headrace.read.views.pruning import TURNED, ColumnBounds, among, compared, either, fitting

_OPERATORS: Final = {
    "COMPARE_EQUAL": "==",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
}
_TIMES: Final = {"date", "timestamp", "timestamptz", "timestamp with time zone"}
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]*)?")

Tree = Mapping[str, Any]


def said_in(tree: Tree, columns: Mapping[str, ValueType]) -> Iterator[ColumnBounds]:
    """What the condition ``tree`` says of single ``columns``, whatever the others are."""
    kinds = {name.lower(): (name, kind) for name, kind in columns.items()}
    yield from _said(tree, kinds)


_Kinds = Mapping[str, tuple[str, ValueType]]


def _said(tree: Tree, kinds: _Kinds) -> Iterator[ColumnBounds]:
    match tree:
        case {"type": "CONJUNCTION_AND", "children": children}:
            for child in children:
                yield from _said(child, kinds)
        case {"type": "CONJUNCTION_OR", "children": children}:
            yield from reduce(lambda one, other: [*either(one, other)], [[*_said(child, kinds)] for child in children])
        case {"class": "COMPARISON", "type": kind, "left": left, "right": right} if kind in _OPERATORS:
            op = _OPERATORS[kind]
            for column, constant, operator in ((left, right, op), (right, left, TURNED[op])):
                for name, value_kind in _column(column, kinds):
                    yield from compared(name, operator, _value(constant, value_kind))
        case {"type": "COMPARE_BETWEEN", "input": column, "lower": lower, "upper": upper}:
            for name, value_kind in _column(column, kinds):
                low, high = _value(lower, value_kind), _value(upper, value_kind)
                if low is not None and high is not None:
                    yield ColumnBounds(name, (low, high), is_range=True)
        case {"type": "COMPARE_IN", "children": [column, *constants]}:
            for name, value_kind in _column(column, kinds):
                yield from among(name, [_value(constant, value_kind) for constant in constants])


def _column(tree: Tree, kinds: _Kinds) -> Sequence[tuple[str, ValueType]]:
    """The column that ``tree`` is, and its type; nothing if it is none."""
    match tree:
        case {"class": "COLUMN_REF", "column_names": [name]} if name.lower() in kinds:
            return [kinds[name.lower()]]
    return []


def _value(tree: Tree, kind: ValueType) -> Any | None:
    """The constant that ``tree`` is, as a value of that ``kind``; None if it is not surely one."""
    value = None
    match kind, tree:
        case (DataType.TIMESTAMP | DataType.DATE, _):
            value = _time(tree, kind)
        case (DataType.STRING, {"class": "CONSTANT", "literal": {"kind": "STRING", "text": text}}):
            value = fitting(text, kind)
        case (DataType.BOOL, {"class": "CONSTANT", "literal": {"kind": "BOOLEAN", "text": text}}):
            value = {"true": True, "false": False}.get(text)
        case (_, {"class": "CONSTANT", "literal": {"kind": "INTEGER", "text": text}}) if _NUMBER.fullmatch(text):
            value = fitting(int(text), kind)
        case (DataType.DECIMAL, {"class": "CONSTANT", "literal": {"kind": "NUMERIC", "text": text}}):
            value = fitting(Decimal(text), kind) if _NUMBER.fullmatch(text) else None
    return value


def _time(tree: Tree, kind: DataType) -> Any | None:
    match tree:
        case {"class": "CONSTANT", "literal": {"kind": "STRING", "text": text}}:
            written = f"{literal(text)}::{'date' if kind is DataType.DATE else 'timestamptz'}"
        case {
            "class": "CAST",
            "child": {"class": "CONSTANT", "literal": {"kind": "STRING", "text": text}},
            "type_expr": {"type_name": name},
        } if name.lower() in ({"date"} if kind is DataType.DATE else _TIMES):
            written = f"{literal(text)}::{name}"
        case _:
            return None
    return _asked(written if kind is DataType.DATE else f"epoch_us({written}::timestamptz)")


def _asked(constant: str) -> Any | None:
    """What DuckDB takes ``constant`` for; None if it takes it for nothing that it knows."""
    import duckdb

    with without_rows() as connection:
        try:
            ((answer,),) = connection.execute(f"select {constant}").fetchall()
        except duckdb.Error:
            return None  # the condition itself says what is wrong with it, when it is applied
    return answer
