"""Which rows of a view a reader wants, by a condition in SQL or an expression, and which files these need.

``needed_parts`` prunes: a condition's comparisons of keys, windows and epochs with constants say which files and chunks
can have rows for which it is true. No others are read. Pruning must never leave out a row that would be found. So a
comparison counts only if all rows must fulfil it: it stands alone, or between ANDs. The constant must be of the type of
the column, where equal values have equal hashes. Whatever else a condition says is not looked at there: it is applied
to all rows that were read.

``current`` is folded from records, of which the newest of a key and window counts. All records of a key and window have
the same key and the same window. What leaves out one of them by these leaves out all. The epoch is another matter: a
record of a later epoch may replace or withdraw an earlier one. So no record is left out of ``current`` because it is
newer than what is asked for; one that is older cannot be found, and hides nothing.

``said_in`` finds what a condition in SQL says of single columns, by DuckDB's own syntax tree of it. ``parse_condition``
and ``order_by`` parse what users write in DuckDB's SQL before it becomes part of a statement. Words of SQL may also be
names of columns (``at``, ``end``, ``order``). Where one cannot be the word, it is the column.

``RowCondition`` imports Arrow and the kernel only for an expression: reading takes half the time to start without them.
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
from headrace.model.arguments import short_repr
from headrace.model.expressions.data_types import SCALE, DataType, ValueType
from headrace.model.expressions.expr import Binary, Column, Expr, Function, Literal, lit, render
from headrace.model.expressions.typing import columns_of, to_json, too_large, type_of
from headrace.read.views.database import sql_columns, sql_literal, without_rows

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa


MOST_KEYS = 256
"""Keys that are looked for one by one; with more keys, no file is left out for its keys."""

Interval = tuple[int, int]
_LEAST_INT, _GREATEST_INT = -(2**63), 2**63 - 1
_ANY_NUMBERS: Final[Interval] = (_LEAST_INT, _GREATEST_INT)
_EPOCH_COLUMN = "epoch"
_DECIMALS = 10**27
"""Decimals that are nearer to zero need no rounding to be compared."""


@dataclass(frozen=True)
class ColumnBounds:
    """What a comparison says of a column: it is one of ``values``, maybe NULL, or between the first and the last."""

    column: str
    values: tuple[Any, ...]
    is_range: bool = False


@dataclass(frozen=True)
class NeededRows:
    """Where the rows that are asked for can be: their key groups (None: any), ``windows``, and their epochs. The first
    or last instant of their windows lies in the interval ``windows``, in granules. Both intervals are inclusive.
    """

    groups: frozenset[int] | None = None
    windows: Interval = _ANY_NUMBERS
    epochs: Interval = _ANY_NUMBERS

    @property
    def is_all(self) -> bool:
        """Whether any file may have some."""
        return self == NeededRows()

    @property
    def last_epoch_before(self) -> int | None:
        """The last epoch whose rows none of them can be, of those before all of theirs; None if there is none."""
        return self.epochs[0] - 1 if self.epochs[0] > 0 else None

    def may_be_in(self, groups: Interval | None, windows: Interval | None) -> bool:
        """Whether some may be in a file or chunk of these ``groups`` and ``windows`` (None: of nobody knows which)."""
        if windows is not None and not _intervals_overlap(windows, self.windows):
            return False
        if groups is None or self.groups is None:
            return True
        first, last = groups
        return any(first <= group <= last for group in self.groups)

    def may_be_of(self, first: int, last: int, *, is_folded: bool) -> bool:
        """Whether some may be among records of epochs ``first`` to ``last``, or be withdrawn by some of them."""
        return last >= self.epochs[0] and (is_folded or first <= self.epochs[1])


ALL: Final = NeededRows()


def needed_parts(
    stated_bounds: Iterable[ColumnBounds],
    keys: Mapping[str, DataType],
    extent: tuple[str, str] = (WINDOW_START, WINDOW_END),
) -> NeededRows:
    """Where rows are for which all ``stated_bounds`` hold; ``keys`` are the columns of the key, in order, ``extent``
    those that say where in event time a row is.
    """
    bounds = list(stated_bounds)
    windows = [_bounds_interval(bound) for bound in bounds if bound.column in extent]
    epochs = [_bounds_interval(bound) for bound in bounds if bound.column == _EPOCH_COLUMN]
    return NeededRows(
        _key_groups(bounds, keys), reduce(_intersect, windows, _ANY_NUMBERS), reduce(_intersect, epochs, _ANY_NUMBERS)
    )


def _key_groups(bounds: Sequence[ColumnBounds], keys: Mapping[str, DataType]) -> frozenset[int] | None:
    values = [
        min((bound.values for bound in bounds if bound.column == name and not bound.is_range), key=len, default=None)
        for name in keys
    ]
    known_values = [of_column for of_column in values if of_column is not None]
    if not keys or len(known_values) < len(keys) or prod(map(len, known_values)) > MOST_KEYS:
        return None
    import pyarrow as pa

    from headrace.kernel.columns import ARROW_TYPES
    from headrace.kernel.keys import hash_keys
    from headrace.state.chunks import group_of

    rows = list(product(*known_values))
    if not rows:
        return frozenset()
    columns = [
        pa.array(column, ARROW_TYPES[kind]) for column, kind in zip(zip(*rows, strict=True), keys.values(), strict=True)
    ]
    return frozenset(group_of(hash_keys(columns)).tolist())


def _bounds_interval(bounds: ColumnBounds) -> Interval:
    if not bounds.values:
        return _GREATEST_INT, _LEAST_INT
    if None in bounds.values and not bounds.is_range:
        return _ANY_NUMBERS  # a time that is NULL is without end
    low, high = (bounds.values[0], bounds.values[-1]) if bounds.is_range else (min(bounds.values), max(bounds.values))
    return _LEAST_INT if low is None else low, _GREATEST_INT if high is None else high


def _intersect(one: Interval, other: Interval) -> Interval:
    return max(one[0], other[0]), min(one[1], other[1])


def _intervals_overlap(one: Interval, other: Interval) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


def fitting_value(value: Any, kind: ValueType | None) -> Any | None:
    """``value`` in a column of that ``kind``, never a float, as those are no keys; None if it is not surely one."""
    fitting: Any | None = None
    match kind, value:
        case (DataType.INT, int()) if not isinstance(value, bool) and _LEAST_INT <= value <= _GREATEST_INT:
            fitting = value
        case (DataType.STRING, str()) | (DataType.BOOL, bool()) | (DataType.BYTES, bytes()):
            fitting = value
        case (DataType.DATE, date()) if type(value) is date:
            fitting = value
        case (DataType.DECIMAL, int()) if not isinstance(value, bool) and abs(value) < _DECIMALS:
            fitting = Decimal(value)
        case (DataType.DECIMAL, Decimal()) if value.is_finite() and abs(value) < _DECIMALS:
            fitting = value if int(value.as_tuple().exponent) >= -SCALE else None
    return fitting


# --- expressions


def of_key(key: Mapping[str, Any]) -> list[Expr]:
    """Conditions that rows of the ``key`` alone fulfil all."""
    return [Column(name).is_null() if value is None else Column(name) == lit(value) for name, value in key.items()]


TURNED_OPERATORS: Final = {"==": "==", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""What each comparison is when its sides change places."""


def said_by(where: Expr, columns: Mapping[str, ValueType]) -> Iterator[ColumnBounds]:
    """What ``where`` says of single ``columns``, whatever the others are."""
    match where:
        case Binary("and", left, right):
            yield from said_by(left, columns)
            yield from said_by(right, columns)
        case Binary("or", left, right):
            yield from bounds_of_either([*said_by(left, columns)], [*said_by(right, columns)])
        case Binary(op, Column(name), Literal(value, kind)) if op in TURNED_OPERATORS:
            yield from bounds_of_comparison(name, op, _comparable_value(value, kind, columns.get(name)))
        case Binary(op, Literal(value, kind), Column(name)) if op in TURNED_OPERATORS:
            yield from bounds_of_comparison(
                name, TURNED_OPERATORS[op], _comparable_value(value, kind, columns.get(name))
            )
        case Function("is_null", (Column(name),)):
            yield ColumnBounds(name, (None,))
        case Function("is_in", (Column(name), *constants)):
            yield from bounds_among(name, [_constant_value(constant, columns.get(name)) for constant in constants])


def _constant_value(expr: Expr, column: ValueType | None) -> Any | None:
    match expr:
        case Literal(value, kind):
            return _comparable_value(value, kind, column)
    return None


def _comparable_value(value: Any, kind: DataType | None, column: ValueType | None) -> Any | None:
    if DataType.TIMESTAMP in (kind, column):
        return int(value) if kind is column else None
    return fitting_value(value, column)


def bounds_of_comparison(name: str, op: str, value: Any | None) -> Iterator[ColumnBounds]:
    """What ``name op value`` says; nothing for a value that does not fit."""
    if value is not None:
        match op:
            case "==":
                yield ColumnBounds(name, (value,))
            case "<" | "<=":
                yield ColumnBounds(name, (None, value), is_range=True)
            case ">" | ">=":
                yield ColumnBounds(name, (value, None), is_range=True)


def bounds_among(name: str, values: Sequence[Any | None]) -> Iterator[ColumnBounds]:
    """What it says that a column is one of ``values``; nothing if one of them does not fit."""
    if all(value is not None for value in values):
        yield ColumnBounds(name, tuple(values))


def bounds_of_either(left: Sequence[ColumnBounds], right: Sequence[ColumnBounds]) -> Iterator[ColumnBounds]:
    """What is true where one of both is, each of which says one thing: that a column is one of some values."""
    if len(left) == len(right) == 1:
        (one,), (other,) = left, right
        if one.column == other.column and not (one.is_range or other.is_range):
            yield ColumnBounds(one.column, (*one.values, *other.values))


_SQL_OPERATORS: Final = {
    "COMPARE_EQUAL": "==",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
}
_SQL_TIME_TYPES: Final = {"date", "timestamp", "timestamptz", "timestamp with time zone"}
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]*)?")

Tree = Mapping[str, Any]


def said_in(tree: Tree, columns: Mapping[str, ValueType]) -> Iterator[ColumnBounds]:
    """What the condition ``tree`` says of single ``columns``, whatever the others are."""
    kinds = {name.lower(): (name, kind) for name, kind in columns.items()}
    yield from _bounds_in_tree(tree, kinds)


_Kinds = Mapping[str, tuple[str, ValueType]]


def _bounds_in_tree(tree: Tree, kinds: _Kinds) -> Iterator[ColumnBounds]:
    match tree:
        case {"type": "CONJUNCTION_AND", "children": children}:
            for child in children:
                yield from _bounds_in_tree(child, kinds)
        case {"type": "CONJUNCTION_OR", "children": children}:
            yield from reduce(
                lambda one, other: [*bounds_of_either(one, other)],
                [[*_bounds_in_tree(child, kinds)] for child in children],
            )
        case {"class": "COMPARISON", "type": kind, "left": left, "right": right} if kind in _SQL_OPERATORS:
            op = _SQL_OPERATORS[kind]
            for column, constant, operator in ((left, right, op), (right, left, TURNED_OPERATORS[op])):
                for name, value_kind in _column_of_tree(column, kinds):
                    yield from bounds_of_comparison(name, operator, _literal_value(constant, value_kind))
        case {"type": "COMPARE_BETWEEN", "input": column, "lower": lower, "upper": upper}:
            for name, value_kind in _column_of_tree(column, kinds):
                low, high = _literal_value(lower, value_kind), _literal_value(upper, value_kind)
                if low is not None and high is not None:
                    yield ColumnBounds(name, (low, high), is_range=True)
        case {"type": "OPERATOR_IS_NULL", "children": [column]}:
            yield from (ColumnBounds(name, (None,)) for name, _ in _column_of_tree(column, kinds))
        case {"type": "COMPARE_IN", "children": [column, *constants]}:
            for name, value_kind in _column_of_tree(column, kinds):
                yield from bounds_among(name, [_literal_value(constant, value_kind) for constant in constants])


def _column_of_tree(tree: Tree, kinds: _Kinds) -> Sequence[tuple[str, ValueType]]:
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
            value = _time_constant(tree, kind)
        case (DataType.STRING, {"class": "CONSTANT", "literal": {"kind": "STRING", "text": text}}):
            value = fitting_value(text, kind)
        case (DataType.BOOL, {"class": "CONSTANT", "literal": {"kind": "BOOLEAN", "text": text}}):
            value = {"true": True, "false": False}.get(text)
        case (_, {"class": "CONSTANT", "literal": {"kind": "INTEGER", "text": text}}) if _NUMBER.fullmatch(text):
            value = fitting_value(int(text), kind)
        case (DataType.DECIMAL, {"class": "CONSTANT", "literal": {"kind": "NUMERIC", "text": text}}):
            value = fitting_value(Decimal(text), kind) if _NUMBER.fullmatch(text) else None
    return value


def _time_constant(tree: Tree, kind: DataType) -> Any | None:
    match tree:
        case {"class": "CONSTANT", "literal": {"kind": "STRING", "text": text}}:
            literal = f"{sql_literal(text)}::{'date' if kind is DataType.DATE else 'timestamptz'}"
        case {
            "class": "CAST",
            "child": {"class": "CONSTANT", "literal": {"kind": "STRING", "text": text}},
            "type_expr": {"type_name": name},
        } if name.lower() in ({"date"} if kind is DataType.DATE else _SQL_TIME_TYPES):
            literal = f"{sql_literal(text)}::{name}"
        case _:
            return None
    return _ask_duckdb(literal if kind is DataType.DATE else f"epoch_us({literal}::timestamptz)")


def _ask_duckdb(constant: str) -> Any | None:
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
_EMPTY_VALUES: Final[Any] = (None, [], {"map": []}, "STANDARD_HANDLING")
_WORD: Final = re.compile(rb"[\w\x80-\xff]+")


@dataclass(frozen=True)
class _Form:
    """What text has to be: ``keyword`` comes before it, ``part`` of the parsed statement is all that it may fill."""

    name: str
    keyword: str
    part: str


_WHERE_FORM: Final = _Form("where", "where", "where_clause")
_ORDER_FORM: Final = _Form("order", "order by", "modifiers")


@dataclass(frozen=True)
class ParsedCondition:
    """A condition: ``sql`` stands for itself in any statement, ``tree`` is what DuckDB understands by it."""

    sql: str
    tree: Mapping[str, Any]


def parse_condition(text: str, columns: Sequence[str]) -> ParsedCondition:
    """``text``, parsed. Raises QueryError if it is not a condition."""
    clause, tree = _parse_clause(text, columns, _WHERE_FORM)
    return ParsedCondition(f"({clause}\n)", tree)


def order_by(text: str, columns: Sequence[str]) -> str:
    """``text`` as one or several expressions to order by. Raises QueryError if it is anything else, or more."""
    return f"{_parse_clause(text, columns, _ORDER_FORM)[0]}\n"


def _parse_clause(text: str, columns: Sequence[str], form: _Form) -> tuple[str, Any]:
    """``text``, names of columns quoted where DuckDB would take them for words of its language, and its syntax tree."""
    clause_text = f"{form.name}={short_repr(text)}"
    try:
        encoded_text = text.encode()
    except UnicodeEncodeError as error:
        raise QueryError(f"{clause_text} is not text: some of it is no Unicode ({error.reason})") from error
    lower_names = {name.lower() for name in columns}
    problem = ""
    with without_rows() as connection:
        while True:
            statement = f"{_QUERY}{form.keyword} ".encode()
            ((answer,),) = connection.execute(
                "select json_serialize_sql(?)", [(statement + encoded_text + b"\n").decode()]
            ).fetchall()
            parse_result = json.loads(answer)
            if not parse_result["error"]:
                break
            problem = problem or parse_result["error_message"]
            error_position = int(parse_result.get("position", 0)) - len(statement)
            names = [
                word
                for word in _unquoted_words(encoded_text)
                if word.start() <= error_position and word.group().decode().lower() in lower_names
            ]
            if not names:
                raise QueryError(f"{clause_text}: {problem}; the columns are {', '.join(columns)}")
            begin, end = names[-1].span()
            encoded_text = b'%b"%b"%b' % (encoded_text[:begin], encoded_text[begin:end], encoded_text[end:])
    if not _is_only(parse_result["statements"], form):
        raise QueryError(
            f"{clause_text} must be one {'condition' if form is _WHERE_FORM else 'order'} and nothing more; the "
            f"columns are {', '.join(columns)}"
        )
    return encoded_text.decode(), parse_result["statements"][0]["node"][form.part]


def _unquoted_words(text: bytes) -> "Iterator[re.Match[bytes]]":
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
    if form is _ORDER_FORM and [modifier["type"] for modifier in node["modifiers"]] != ["ORDER_MODIFIER"]:
        return False
    return all(value in _EMPTY_VALUES for name, value in node.items() if name not in own)


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
    """``where`` over the rows of ``source``: text is DuckDB's SQL; an expression keeps the rows for which it is TRUE.

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
                explain_duckdb_errors(self.source.column_names, request=f"where={short_repr(self.where)}"),
            ):
                self.apply_to(connection, self.source.no_rows(connection)).fetchall()

    def apply_to(
        self, connection: "duckdb.DuckDBPyConnection", rows: "duckdb.DuckDBPyRelation"
    ) -> "duckdb.DuckDBPyRelation":
        """The ``rows``, a relation of ``connection``, that fulfil the condition. For an expression the connection
        gets a function, one however often it is asked for.
        """
        if self.where is None:
            return rows
        if isinstance(self.where, str):
            return rows.filter(self._parsed_condition.sql)
        import duckdb
        from duckdb.func import FunctionNullHandling, PythonUDFType

        names = self.read_columns
        kinds = dict(zip(rows.columns, rows.types, strict=True))
        signature_parts = [to_json(self.where), [[name, str(kinds[name])] for name in names]]
        function = f"headrace_where_{sha256(json.dumps(signature_parts).encode()).hexdigest()[:32]}"
        with suppress(duckdb.NotImplementedException):  # there it is already, and the same
            connection.create_function(
                function,
                _of_so_many(self._evaluate_where, len(names)),
                [kinds[name] for name in names],
                "BOOLEAN",
                type=PythonUDFType.ARROW,
                null_handling=FunctionNullHandling.SPECIAL,
            )
        return rows.filter(f"{function}({sql_columns(names)})")

    def column_bounds(self, columns: Mapping[str, ValueType]) -> Sequence[ColumnBounds]:
        """What it says of single ``columns``, by which files can be left out that have no such rows."""
        if self.where is None:
            return ()
        if isinstance(self.where, str):
            return [*said_in(self._parsed_condition.tree, columns)]
        return [*said_by(self.where, columns)]

    @cached_property
    def _parsed_condition(self) -> ParsedCondition:
        assert isinstance(self.where, str)
        return parse_condition(self.where, self.source.column_names)

    @property
    def read_columns(self) -> Sequence[str]:
        """The columns that an expression reads; if it reads none, some column, which says how many rows there are."""
        assert isinstance(self.where, Expr)
        return sorted(columns_of(self.where)) or self.source.column_names[:1]

    def _evaluate_where(self, *arguments: "pa.ChunkedArray | pa.Array") -> "pa.Array":
        from headrace.distribute.views import condition_mask

        assert isinstance(self.where, Expr)
        rows = dict(zip(self.read_columns, map(_combine_chunks, arguments), strict=True))
        try:
            return condition_mask(self.where, self.source.columns, rows, len(arguments[0]))
        except HeadraceError as error:
            self._failures.append(error)
            raise

    @contextmanager
    def explain_errors(self, order: str | None = None) -> Iterator[None]:
        """Turn what DuckDB raises, in that ``order``, into a QueryError, or into what the expression raised."""
        clauses = {"where": self.where, "order": order}
        text = ", ".join(f"{name}={short_repr(value)}" for name, value in clauses.items() if value is not None)
        with explain_duckdb_errors(self.source.column_names, self._failures, request=text):
            yield

    def _check_expression(self, where: Expr) -> None:
        from headrace.distribute.views import readable_columns

        if why := too_large(where):
            raise QueryError(f"where: {why}")
        try:
            kind = type_of(where, readable_columns(self.source.columns))
        except PipelineError as error:
            raise QueryError(f"where={render(where)} does not fit: {error}") from error
        if kind not in (DataType.BOOL, None):
            raise QueryError(f"where={render(where)} gives {kind}, not a condition: compare it with something")


@contextmanager
def explain_duckdb_errors(
    columns: Sequence[str], failures: Sequence[HeadraceError] = (), *, request: str
) -> Iterator[None]:
    """Turn an error of DuckDB's about what was ``request`` for into a QueryError that names the columns."""
    import duckdb

    try:
        yield
    except (duckdb.OutOfMemoryException, duckdb.IOException):
        raise
    except duckdb.Error as error:
        if failures:
            raise failures[-1] from None
        raise QueryError(f"{request}: {str(error).splitlines()[0]}; the columns are {', '.join(columns)}") from error


def _of_so_many(function: "Callable[..., pa.Array]", number: int) -> "Callable[..., pa.Array]":
    """``function``, which takes any number of columns, as one that says that it takes so many: DuckDB counts them."""

    def call_with_columns(*columns: "pa.ChunkedArray | pa.Array") -> "pa.Array":
        return function(*columns)

    parameters = [Parameter(f"column_{i}", Parameter.POSITIONAL_ONLY) for i in range(number)]
    call_with_columns.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return call_with_columns


def _combine_chunks(column: "pa.ChunkedArray | pa.Array") -> "pa.Array":
    import pyarrow as pa

    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
