"""Pruning: which files a condition needs, by what it says of single columns.

Pruning: a condition's comparisons of keys, windows and epochs with constants say which files and chunks can have
rows for which it is true. No others are read.

It must never leave out a row that would be found. So a comparison counts only if all rows must fulfil it (it stands
alone, or between ANDs), and only if the constant is of the type of the column, where equal values have equal hashes.
Whatever else a condition says is not looked at here: it is applied to all rows that were read.

``current`` is folded from records, of which the newest of a key and window counts. All records of a key and window have
the same key and the same window: what leaves out one of them by these leaves out all. The epoch is another matter: a
record of a later epoch may replace or withdraw an earlier one. So no record is left out of ``current`` because it is
newer than what is asked for; one that is older cannot be found, and hides nothing.

What a condition in SQL says of single columns (``pruning.Said``), by DuckDB's own syntax tree of it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import reduce
from itertools import product
from math import prod
from typing import Any, Final

from headrace.model.accumulation import WINDOW_END, WINDOW_START
from headrace.model.expressions.data_types import SCALE, DataType, ValueType
from headrace.model.expressions.expr import Binary, Column, Expr, Function, Literal
from headrace.read.views.database import literal, without_rows

MOST_KEYS = 256
"""Keys that are looked for one by one; of more, no file is left out for its keys."""

Pair = tuple[int, int]
_LEAST, _GREATEST = -(2**63), 2**63 - 1
_ANY: Final[Pair] = (_LEAST, _GREATEST)
_EPOCH = "epoch"
_DECIMALS = 10**27
"""Decimals that are nearer to zero need no rounding to be compared."""


@dataclass(frozen=True)
class ColumnBounds:
    """What a comparison says of a column: its value is one of ``values``, or lies between the first and the last."""

    column: str
    values: tuple[Any, ...]
    is_range: bool = False


@dataclass(frozen=True)
class Needed:
    """Where the rows that are asked for can be: their key groups (None: any), an interval that the first or the last
    instant of their windows lies in, in granules, and their epochs; the last two inclusive.
    """

    groups: frozenset[int] | None = None
    windows: Pair = _ANY
    epochs: Pair = _ANY

    @property
    def is_all(self) -> bool:
        """Whether any file may have some."""
        return self == Needed()

    @property
    def before(self) -> int | None:
        """The last epoch whose rows none of them can be, of those before all of theirs; None if there is none."""
        return self.epochs[0] - 1 if self.epochs[0] > 0 else None

    def may_be_in(self, groups: Pair | None, windows: Pair | None) -> bool:
        """Whether some may be in a file or chunk of these ``groups`` and ``windows`` (None: of nobody knows which)."""
        if windows is not None and not _meet(windows, self.windows):
            return False
        if groups is None or self.groups is None:
            return True
        first, last = groups
        return any(first <= group <= last for group in self.groups)

    def may_be_of(self, first: int, last: int, *, is_folded: bool) -> bool:
        """Whether some may be among records of epochs ``first`` to ``last``, or be withdrawn by some of them."""
        return last >= self.epochs[0] and (is_folded or first <= self.epochs[1])


ALL: Final = Needed()


def needed(stated: Iterable[ColumnBounds], keys: Mapping[str, DataType]) -> Needed:
    """Where rows are for which all ``stated`` bounds hold; ``keys`` are the columns of the key, in order."""
    bounds = list(stated)
    windows = [_interval(bound) for bound in bounds if bound.column in (WINDOW_START, WINDOW_END)]
    epochs = [_interval(bound) for bound in bounds if bound.column == _EPOCH]
    return Needed(_groups(bounds, keys), reduce(_narrower, windows, _ANY), reduce(_narrower, epochs, _ANY))


def _groups(bounds: Sequence[ColumnBounds], keys: Mapping[str, DataType]) -> frozenset[int] | None:
    values = [
        min((bound.values for bound in bounds if bound.column == name and not bound.is_range), key=len, default=None)
        for name in keys
    ]
    known = [of_column for of_column in values if of_column is not None]
    if not keys or len(known) < len(keys) or prod(map(len, known)) > MOST_KEYS:
        return None
    import pyarrow as pa

    from headrace.kernel.keys import hashes
    from headrace.kernel.types import ARROW_TYPES
    from headrace.state.key_groups import group_of

    rows = list(product(*known))
    if not rows:
        return frozenset()
    columns = [
        pa.array(column, ARROW_TYPES[kind]) for column, kind in zip(zip(*rows, strict=True), keys.values(), strict=True)
    ]
    return frozenset(group_of(hashes(columns)).tolist())


def _interval(bounds: ColumnBounds) -> Pair:
    if not bounds.values:
        return _GREATEST, _LEAST
    low, high = (bounds.values[0], bounds.values[-1]) if bounds.is_range else (min(bounds.values), max(bounds.values))
    return _LEAST if low is None else low, _GREATEST if high is None else high


def _narrower(one: Pair, other: Pair) -> Pair:
    return max(one[0], other[0]), min(one[1], other[1])


def _meet(one: Pair, other: Pair) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


def fitting(value: Any, kind: ValueType | None) -> Any | None:
    """``value`` as a value of a column of that ``kind``, which is none of floats: they are no keys. None if it is not
    surely one.
    """
    fitted: Any | None = None
    match kind, value:
        case (DataType.INT, int()) if not isinstance(value, bool) and _LEAST <= value <= _GREATEST:
            fitted = value
        case (DataType.STRING, str()) | (DataType.BOOL, bool()) | (DataType.BYTES, bytes()):
            fitted = value
        case (DataType.DATE, date()) if type(value) is date:
            fitted = value
        case (DataType.DECIMAL, int()) if not isinstance(value, bool) and abs(value) < _DECIMALS:
            fitted = Decimal(value)
        case (DataType.DECIMAL, Decimal()) if value.is_finite() and abs(value) < _DECIMALS:
            fitted = value if int(value.as_tuple().exponent) >= -SCALE else None
    return fitted


# --- expressions

TURNED: Final = {"==": "==", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""What each comparison is when its sides change places."""


def said_by(where: Expr, columns: Mapping[str, ValueType]) -> Iterator[ColumnBounds]:
    """What ``where`` says of single ``columns``, whatever the others are."""
    match where:
        case Binary("and", left, right):
            yield from said_by(left, columns)
            yield from said_by(right, columns)
        case Binary("or", left, right):
            yield from either([*said_by(left, columns)], [*said_by(right, columns)])
        case Binary(op, Column(name), Literal(value, kind)) if op in TURNED:
            yield from compared(name, op, _value(value, kind, columns.get(name)))
        case Binary(op, Literal(value, kind), Column(name)) if op in TURNED:
            yield from compared(name, TURNED[op], _value(value, kind, columns.get(name)))
        case Function("is_in", (Column(name), *constants)):
            yield from among(name, [_constant(constant, columns.get(name)) for constant in constants])


def _constant(expr: Expr, column: ValueType | None) -> Any | None:
    match expr:
        case Literal(value, kind):
            return _value(value, kind, column)
    return None


def _value(value: Any, kind: DataType | None, column: ValueType | None) -> Any | None:
    if DataType.TIMESTAMP in (kind, column):
        return int(value) if kind is column else None
    return fitting(value, column)


def compared(name: str, op: str, value: Any | None) -> Iterator[ColumnBounds]:
    """What ``name op value`` says; nothing for a value that does not fit."""
    if value is not None:
        match op:
            case "==":
                yield ColumnBounds(name, (value,))
            case "<" | "<=":
                yield ColumnBounds(name, (None, value), is_range=True)
            case ">" | ">=":
                yield ColumnBounds(name, (value, None), is_range=True)


def among(name: str, values: Sequence[Any | None]) -> Iterator[ColumnBounds]:
    """What it says that a column is one of ``values``; nothing if one of them does not fit."""
    if all(value is not None for value in values):
        yield ColumnBounds(name, tuple(values))


def either(left: Sequence[ColumnBounds], right: Sequence[ColumnBounds]) -> Iterator[ColumnBounds]:
    """What is true where one of both is, each of which says one thing: that a column is one of some values."""
    if len(left) == len(right) == 1:
        (one,), (other,) = left, right
        if one.column == other.column and not (one.is_range or other.is_range):
            yield ColumnBounds(one.column, (*one.values, *other.values))


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
                    yield from compared(name, operator, _literal_value(constant, value_kind))
        case {"type": "COMPARE_BETWEEN", "input": column, "lower": lower, "upper": upper}:
            for name, value_kind in _column(column, kinds):
                low, high = _literal_value(lower, value_kind), _literal_value(upper, value_kind)
                if low is not None and high is not None:
                    yield ColumnBounds(name, (low, high), is_range=True)
        case {"type": "COMPARE_IN", "children": [column, *constants]}:
            for name, value_kind in _column(column, kinds):
                yield from among(name, [_literal_value(constant, value_kind) for constant in constants])


def _column(tree: Tree, kinds: _Kinds) -> Sequence[tuple[str, ValueType]]:
    """The column that ``tree`` is, and its type; nothing if it is none."""
    match tree:
        case {"class": "COLUMN_REF", "column_names": [name]} if name.lower() in kinds:
            return [kinds[name.lower()]]
    return []


def _literal_value(tree: Tree, kind: ValueType) -> Any | None:
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
