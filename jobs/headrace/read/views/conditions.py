"""Which rows of a view a reader wants, and which files these need.

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

Conditions and orders that users write in DuckDB's SQL: parsed before they become part of a statement.

Words of SQL may also be names of columns (``at``, ``end``, ``order``). Where one cannot be the word, it is the column.

Which rows of a view a reader wants: a condition in SQL, or an expression of Headrace.

Only for an expression are Arrow and the kernel imported: reading takes half the time to start without them.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from functools import cached_property, reduce
from hashlib import sha256
from inspect import Parameter, Signature
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, Final, Protocol

from headrace.errors import FixConfigError, HeadraceError, PipelineError
from headrace.model.accumulation import WINDOW_END, WINDOW_START
from headrace.model.arguments import shown
from headrace.model.expressions.data_types import SCALE, DataType, ValueType
from headrace.model.expressions.expr import Binary, Column, Expr, Function, Literal, render
from headrace.model.expressions.typing import columns_of, to_json, too_large, type_of
from headrace.read.views.database import literal, quoted, without_rows

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa


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


def needed(
    stated: Iterable[ColumnBounds],
    keys: Mapping[str, DataType],
    extent: tuple[str, str] = (WINDOW_START, WINDOW_END),
) -> Needed:
    """Where rows are for which all ``stated`` bounds hold; ``keys`` are the columns of the key, in order, ``extent``
    those that say where in event time a row is.
    """
    bounds = list(stated)
    windows = [_interval(bound) for bound in bounds if bound.column in extent]
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

    from headrace.kernel.columns import ARROW_TYPES
    from headrace.kernel.keys import hashes
    from headrace.state.chunks import group_of

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


class QueryError(FixConfigError, code="config.query"):
    """A condition, an order, or columns that do not fit what is read."""


_QUERY: Final = "select * from view "
_EMPTY: Final[Any] = (None, [], {"map": []}, "STANDARD_HANDLING")
_WORD: Final = re.compile(rb"[\w\x80-\xff]+")


@dataclass(frozen=True)
class _Form:
    """What text has to be: ``keyword`` comes before it, ``part`` of the parsed statement is all that it may fill."""

    name: str
    keyword: str
    part: str


_CONDITION: Final = _Form("where", "where", "where_clause")
_ORDER: Final = _Form("order", "order by", "modifiers")


@dataclass(frozen=True)
class ParsedCondition:
    """A condition: ``sql`` stands for itself in any statement, ``tree`` is what DuckDB understands by it."""

    sql: str
    tree: Mapping[str, Any]


def condition(text: str, columns: Sequence[str]) -> ParsedCondition:
    """``text``, parsed. Raises QueryError if it is not a condition."""
    clause, tree = _parsed(text, columns, _CONDITION)
    return ParsedCondition(f"({clause}\n)", tree)


def order_by(text: str, columns: Sequence[str]) -> str:
    """``text`` as one or several expressions to order by. Raises QueryError if it is anything else, or more."""
    return f"{_parsed(text, columns, _ORDER)[0]}\n"


def _parsed(text: str, columns: Sequence[str], form: _Form) -> tuple[str, Any]:
    """``text``, names of columns quoted where DuckDB would take them for words of its language, and its syntax tree."""
    asked = f"{form.name}={shown(text)}"
    try:
        encoded = text.encode()
    except UnicodeEncodeError as error:
        raise QueryError(f"{asked} is not text: some of it is no Unicode ({error.reason})") from error
    there = {name.lower() for name in columns}
    problem = ""
    with without_rows() as connection:
        while True:
            statement = f"{_QUERY}{form.keyword} ".encode()
            ((answer,),) = connection.execute(
                "select json_serialize_sql(?)", [(statement + encoded + b"\n").decode()]
            ).fetchall()
            parsed = json.loads(answer)
            if not parsed["error"]:
                break
            problem = problem or parsed["error_message"]
            at = int(parsed.get("position", 0)) - len(statement)
            names = [word for word in _bare(encoded) if word.start() <= at and word.group().decode().lower() in there]
            if not names:
                raise QueryError(f"{asked}: {problem}; the columns are {', '.join(columns)}")
            begin, end = names[-1].span()
            encoded = b'%b"%b"%b' % (encoded[:begin], encoded[begin:end], encoded[end:])
    if not _is_only(parsed["statements"], form):
        raise QueryError(
            f"{asked} must be one {'condition' if form is _CONDITION else 'order'} and nothing more; the columns are "
            f"{', '.join(columns)}"
        )
    return encoded.decode(), parsed["statements"][0]["node"][form.part]


def _bare(text: bytes) -> "Iterator[re.Match[bytes]]":
    """The words of ``text`` that are neither quoted nor in a comment."""
    import duckdb

    for begin, kind in duckdb.tokenize(text.decode()):
        word = _WORD.match(text, begin)
        if word is not None and kind in (duckdb.token_type.keyword, duckdb.token_type.identifier):
            yield word


def _is_only(statements: Sequence[dict[str, Any]], form: _Form) -> bool:
    """Whether there is one statement, which has nothing beside what was asked for."""
    node = statements[0]["node"]
    own = {"type", "select_list", "from_table", form.part}
    if len(statements) > 1 or node["type"] != "SELECT_NODE" or not node[form.part]:
        return False
    if form is _ORDER and [modifier["type"] for modifier in node["modifiers"]] != ["ORDER_MODIFIER"]:
        return False
    return all(value in _EMPTY for name, value in node.items() if name not in own)


class RowSchema(Protocol):
    """The columns of the rows that a condition is about."""

    @property
    def column_names(self) -> Sequence[str]:
        """Names of the columns, in order."""

    @property
    def columns(self) -> "pa.Schema":
        """What each row has."""

    def no_rows(self, connection: "duckdb.DuckDBPyConnection") -> "duckdb.DuckDBPyRelation":
        """The columns without any row."""


@dataclass(frozen=True)
class RowCondition:
    """``where`` over the rows of ``source``: text is an SQL condition of DuckDB's; an expression keeps the rows for
    which it is TRUE.

    An expression is evaluated as pipelines evaluate it, to the last bit.
    """

    where: str | Expr | None
    source: RowSchema
    _failures: list[HeadraceError] = field(default_factory=list)

    def check(self) -> None:
        """Raise QueryError if ``where`` does not fit the columns."""
        if self.where is None:
            return
        if isinstance(self.where, Expr):
            self._check_expression(self.where)
        elif not isinstance(self.where, str) or not self.where.strip():
            raise QueryError(
                f"where={self.where!r} is not a condition: write SQL such as 'flights > 30', or an expression such as "
                'col("flights") > 30'
            )
        else:
            with (
                without_rows() as connection,
                explained(self.source.column_names, asked=f"where={shown(self.where)}"),
            ):
                self.applied(connection, self.source.no_rows(connection)).fetchall()

    def applied(
        self, connection: "duckdb.DuckDBPyConnection", rows: "duckdb.DuckDBPyRelation"
    ) -> "duckdb.DuckDBPyRelation":
        """The ``rows``, a relation of ``connection``, that fulfil the condition. For an expression the connection
        gets a function, one however often it is asked for.
        """
        if self.where is None:
            return rows
        if isinstance(self.where, str):
            return rows.filter(self._parsed.sql)
        import duckdb
        from duckdb.func import FunctionNullHandling, PythonUDFType

        names = self.read_columns
        kinds = dict(zip(rows.columns, rows.types, strict=True))
        asked = [to_json(self.where), [[name, str(kinds[name])] for name in names]]
        function = f"headrace_where_{sha256(json.dumps(asked).encode()).hexdigest()[:32]}"
        with suppress(duckdb.NotImplementedException):  # there it is already, and the same
            connection.create_function(
                function,
                _of_so_many(self._called, len(names)),
                [kinds[name] for name in names],
                "BOOLEAN",
                type=PythonUDFType.ARROW,
                null_handling=FunctionNullHandling.SPECIAL,
            )
        return rows.filter(f"{function}({quoted(names)})")

    def said(self, columns: Mapping[str, ValueType]) -> Sequence[ColumnBounds]:
        """What it says of single ``columns``, by which files can be left out that have no such rows."""
        if self.where is None:
            return ()
        if isinstance(self.where, str):
            return [*said_in(self._parsed.tree, columns)]
        return [*said_by(self.where, columns)]

    @cached_property
    def _parsed(self) -> ParsedCondition:
        assert isinstance(self.where, str)
        return condition(self.where, self.source.column_names)

    @property
    def read_columns(self) -> Sequence[str]:
        """The columns that an expression reads; if it reads none, some column, which says how many rows there are."""
        assert isinstance(self.where, Expr)
        return sorted(columns_of(self.where)) or self.source.column_names[:1]

    def _called(self, *arguments: "pa.ChunkedArray | pa.Array") -> "pa.Array":
        from headrace.distribute.views import fulfilling

        assert isinstance(self.where, Expr)
        rows = dict(zip(self.read_columns, map(_whole, arguments), strict=True))
        try:
            return fulfilling(self.where, self.source.columns, rows, len(arguments[0]))
        except HeadraceError as error:
            self._failures.append(error)
            raise

    @contextmanager
    def explained(self, order: str | None = None) -> Iterator[None]:
        """Turn what DuckDB raises while it reads, in that ``order``, into a QueryError, or into what the expression
        raised itself.
        """
        asked = {"where": self.where, "order": order}
        text = ", ".join(f"{name}={shown(value)}" for name, value in asked.items() if value is not None)
        with explained(self.source.column_names, self._failures, asked=text):
            yield

    def _check_expression(self, where: Expr) -> None:
        from headrace.distribute.views import scalar_columns

        if why := too_large(where):
            raise QueryError(f"where: {why}")
        try:
            kind = type_of(where, scalar_columns(self.source.columns))
        except PipelineError as error:
            raise QueryError(f"where={render(where)} does not fit: {error}") from error
        if kind not in (DataType.BOOL, None):
            raise QueryError(f"where={render(where)} gives {kind}, not a condition: compare it with something")


@contextmanager
def explained(columns: Sequence[str], failures: Sequence[HeadraceError] = (), *, asked: str) -> Iterator[None]:
    """Turn an error of DuckDB's about what was ``asked`` for into a QueryError that names the columns."""
    import duckdb

    try:
        yield
    except (duckdb.OutOfMemoryException, duckdb.IOException):
        raise
    except duckdb.Error as error:
        if failures:
            raise failures[-1] from None
        raise QueryError(f"{asked}: {str(error).splitlines()[0]}; the columns are {', '.join(columns)}") from error


def _of_so_many(function: "Callable[..., pa.Array]", number: int) -> "Callable[..., pa.Array]":
    """``function``, which takes any number of columns, as one that says that it takes so many: DuckDB counts them."""

    def called(*columns: "pa.ChunkedArray | pa.Array") -> "pa.Array":
        return function(*columns)

    parameters = [Parameter(f"column_{i}", Parameter.POSITIONAL_ONLY) for i in range(number)]
    called.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return called


def _whole(column: "pa.ChunkedArray | pa.Array") -> "pa.Array":
    import pyarrow as pa

    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
