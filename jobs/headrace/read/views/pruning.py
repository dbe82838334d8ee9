"""Pruning: a condition's comparisons of keys, windows and epochs with constants say which files and chunks can have
rows for which it is true. No others are read.

It must never leave out a row that would be found. So a comparison counts only if all rows must fulfil it (it stands
alone, or between ANDs), and only if the constant is of the type of the column, where equal values have equal hashes.
Whatever else a condition says is not looked at here: it is applied to all rows that were read.

``current`` is folded from records, of which the newest of a key and window counts. All records of a key and window have
the same key and the same window: what leaves out one of them by these leaves out all. The epoch is another matter: a
record of a later epoch may replace or withdraw an earlier one. So no record is left out of ``current`` because it is
newer than what is asked for; one that is older cannot be found, and hides nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import reduce
from itertools import product
from math import prod
from typing import Any, Final

from headrace.model.expressions.data_types import DataType
from headrace.model.expressions.decimals import SCALE
from headrace.model.expressions.expr import Binary, Column, Expr, Function, Literal
from headrace.model.expressions.value_types import ValueType
from headrace.model.panes import WINDOW_END, WINDOW_START

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
