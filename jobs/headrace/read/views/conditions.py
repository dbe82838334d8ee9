"""Which rows of a view a reader wants: conditions and orders in SQL, or expressions of Headrace.

Conditions and orders that users write in DuckDB's SQL: parsed before they become part of a statement.

Words of SQL may also be names of columns (``at``, ``end``, ``order``). Where one cannot be the word, it is the column.

Only for an expression are Arrow and the kernel imported: reading takes half the time to start without them.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any, Final, Protocol

from headrace.errors import FixConfigError, HeadraceError, PipelineError
from headrace.model.arguments import shown
from headrace.model.expressions.data_types import DataType, ValueType
from headrace.model.expressions.expr import Expr, render
from headrace.model.expressions.trees import columns_of, to_json, too_large
from headrace.model.expressions.typing import type_of
from headrace.read.views.database import quoted, without_rows
from headrace.read.views.pruning import ColumnBounds, said_by

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa


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
            from headrace.read.views.pruning import said_in

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
