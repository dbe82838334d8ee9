"""SQL over the rows of a group: what it may say, which columns it gives, and how DuckDB is asked.

A query sees one table, ``rows``: no other table, no file, no clock, no setting and no chance. So it gives the same of
the same rows, in every process and at every time. It is asked for one group after the other; or for many in one
statement, as a lateral join, where SQL itself leaves nothing open. So the result for a group cannot depend on other
groups.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import PipelineError
from headrace.model.accumulation import EVENT_TIME
from headrace.model.arguments import Arguments
from headrace.model.expressions import data_types
from headrace.model.expressions.data_types import ColumnType, DataType

if TYPE_CHECKING:
    import duckdb

Kinds = Mapping[str, ColumnType]

GROUP: Final = "_group"
"""The column that says of which group a row is."""

SQL_TYPES: Final = {
    DataType.STRING: "VARCHAR",
    DataType.INT: "BIGINT",
    DataType.FLOAT: "DOUBLE",
    DataType.BOOL: "BOOLEAN",
    DataType.TIMESTAMP: "TIMESTAMP WITH TIME ZONE",
    DataType.DATE: "DATE",
    DataType.BYTES: "BLOB",
    DataType.DECIMAL: f"DECIMAL({data_types.PRECISION},{data_types.SCALE})",
}
"""Types as DuckDB writes them."""


def sql_type(kind: data_types.ValueType) -> str:
    """The type ``kind`` as DuckDB writes it."""
    match kind:
        case data_types.ListType(item):
            return f"{sql_type(item)}[]"
        case data_types.PairsType(left, right):
            return f'STRUCT("left" {sql_type(left)}, "right" {sql_type(right)})[]'
        case data_types.StructType(fields):
            return f"STRUCT({', '.join(f'{_quote_name(name)} {sql_type(own)}' for name, own in fields)})"
        case data_types.MapType(value):
            return f"MAP(VARCHAR, {sql_type(value)})"
    return SQL_TYPES[kind]


_FURTHER_TYPES: Final = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "HUGEINT"), DataType.INT),
    **dict.fromkeys(("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"), DataType.INT),
    "FLOAT": DataType.FLOAT,
    "TIMESTAMP": DataType.TIMESTAMP,
    "JSON": DataType.STRING,
}
"""What a result of other types becomes; an integer or a decimal that does not fit is an error of its group."""

_CONFIG: Final[dict[str, str | bool | int | float | list[str]]] = {
    "enable_external_access": "false",
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "python_enable_replacements": "false",
    "threads": "1",
}

_CLOCKS: Final = frozenset({"current_date", "current_time", "current_timestamp", "localtime", "localtimestamp"})
_REFUSED_FUNCTIONS: Final = frozenset(
    {"current_localtime", "current_localtimestamp", "current_setting", "getvariable", "reservoir_quantile", "version"}
)
"""Functions that one version of DuckDB or another calls consistent, and that are not."""
_RAISING_FUNCTION: Final = "error"
_TABLE_FUNCTIONS: Final = frozenset({"range", "generate_series", "unnest", "repeat", "json_each", "json_tree"})
"""Functions that make a table of their arguments alone."""
_CHANGES_TEXT: Final = "gives something else each time"
_ADVICE_WITHOUT: Final = "go by event_time, and by other columns of rows"
_ONE_TABLE: Final = "a query reads one table, which is called rows"


class GroupQueryError(PipelineError, code="config.group_query"):
    """SQL of a group that is no query over its rows, may give something else each time, or fails for a group."""


@dataclass(frozen=True)
class ParsedQuery:
    """A query that gives the same of the same rows; ``tree`` is what DuckDB understands by its ``text``."""

    text: str
    tree: Mapping[str, Any]


@lru_cache(maxsize=256)
def parse_query(text: str) -> ParsedQuery:
    """``text``, looked through. Raises GroupQueryError."""
    arguments = Arguments("query", GroupQueryError)
    with open_sandbox() as connection:
        answer = _parse_tree(connection, text)
        if answer["error"]:
            is_other = answer["error_type"] == "not implemented"  # a statement, but no SELECT
            problem = "it is no SELECT, or one whose columns depend on rows" if is_other else answer["error_message"]
            raise arguments.refusal("sql", text, f"{problem}; {_QUERY_FORM}")
        if len(answer["statements"]) != 1:
            raise arguments.refusal(
                "sql", text, f"it is {len(answer['statements'])} statements, and must be one; {_QUERY_FORM}"
            )
        for problem in _Purity(connection).find_problems(answer["statements"][0]["node"]):
            raise arguments.refusal("sql", text, problem)
    return ParsedQuery(text.strip().removesuffix(";"), answer)


_QUERY_FORM: Final = 'write a SELECT, such as "select *, rank() over (order by price desc) as place from rows"'


def _parse_tree(connection: "duckdb.DuckDBPyConnection", text: str) -> dict[str, Any]:
    ((answer,),) = connection.execute("select json_serialize_sql(?)", [text]).fetchall()
    tree: dict[str, Any] = json.loads(answer)
    return tree


@contextmanager
def open_sandbox() -> "Iterator[duckdb.DuckDBPyConnection]":
    """A database in memory that opens nothing else, has one thread, and takes no settings any more; with tables of its
    own. A process has one, since making another takes as long as asking ten thousand groups.
    """
    with _of_process(os.getpid()).cursor() as connection:
        yield connection


@cache
def _of_process(_process: int) -> "duckdb.DuckDBPyConnection":
    import duckdb

    connection = duckdb.connect(config=_CONFIG)
    connection.execute("set global TimeZone = 'UTC'")
    connection.execute("set lock_configuration = true")
    return left_open_in_a_fork(connection)


def left_open_in_a_fork(connection: "duckdb.DuckDBPyConnection") -> "duckdb.DuckDBPyConnection":
    """``connection``, which a process that is forked from this one never closes: it would crash at its end."""
    import ctypes  # here, since it takes longer than all that only looks at snapshots

    held_connection = ctypes.py_object(connection)
    os.register_at_fork(after_in_child=lambda: ctypes.pythonapi.Py_IncRef(held_connection))
    return connection


@dataclass(frozen=True)
class _Purity:
    """Looks for what a query may not say."""

    connection: "duckdb.DuckDBPyConnection"

    def find_problems(self, tree: Any, *, macro: str = "") -> Iterator[str]:
        """What is wrong with a syntax ``tree``, each with what to write; ``macro``: the macro whose tree it is."""
        tables = {"rows", *(entry["key"].lower() for node in _walk_nodes(tree) for entry in _common_tables(node))}
        for node in _walk_nodes(tree):
            yield from self._of_node(node, tables, macro)

    def _of_node(self, node: Mapping[str, Any], tables: set[str], macro_name: str) -> Iterator[str]:
        kind, name = node.get("class"), str(node.get("function_name", "")).lower()
        if node.get("sample") is not None:
            yield "a sample is another one each time; choose rows by their values"
        if kind in ("FUNCTION", "WINDOW"):
            yield from self._of_function(name, node, macro_name)
        elif kind == "COLUMN_REF" and _is_clock(node):
            yield f"{macro_name or node['column_names'][0]} {_CHANGES_TEXT}: {_ADVICE_WITHOUT}"
        elif kind == "PARAMETER":
            yield "it has a parameter, which nobody gives; write the value itself"
        elif kind is None and node.get("type") == "BASE_TABLE":
            path = [part for part in (node.get("catalog_name"), node.get("schema_name")) if part]
            if path or node["table_name"].lower() not in tables:
                yield f"it reads {'.'.join((*path, node['table_name']))}, and {_ONE_TABLE}"
        elif kind is None and node.get("type") in ("SHOW_REF", "PIVOT"):
            yield f"{_ONE_TABLE}, and the columns that it gives are known beforehand; {_QUERY_FORM}"
        elif kind is None and node.get("type") == "TABLE_FUNCTION":
            name = str(node["function"].get("function_name", "")).lower()
            if name not in _TABLE_FUNCTIONS:
                yield f"it reads {name}(...), and {_ONE_TABLE}"

    def _of_function(self, name: str, node: Mapping[str, Any], macro_name: str) -> Iterator[str]:
        arguments = node.get("arguments") or node.get("children") or ()
        is_age_of_now = name == "age" and len(arguments) == 1
        if name in _REFUSED_FUNCTIONS or is_age_of_now or self._is_volatile(name):
            advice = {"age": "write age(later, earlier)", "reservoir_quantile": "write quantile_cont(...)"}
            yield f"{macro_name or name}(...) {_CHANGES_TEXT}: {advice.get(name, _ADVICE_WITHOUT)}"
        for macro in self._macro_definitions(name) if name != macro_name else ():
            yield from self.find_problems(
                _parse_tree(self.connection, f"select {macro}").get("statements"), macro=macro_name or name
            )

    def _is_volatile(self, name: str) -> bool:
        query = (
            "select count(*) from duckdb_functions() where function_name = ? and function_type = 'scalar' "
            "and stability <> 'CONSISTENT'"
        )
        ((number,),) = self.connection.execute(query, [name]).fetchall()
        return bool(number) and name != _RAISING_FUNCTION

    def _macro_definitions(self, name: str) -> list[str]:
        query = "select macro_definition from duckdb_functions() where function_name = ? and function_type = 'macro'"
        return [definition for (definition,) in self.connection.execute(query, [name]).fetchall()]


def _is_clock(node: Mapping[str, Any]) -> bool:
    names = node["column_names"]
    return len(names) == 1 and names[0].lower() in _CLOCKS


def _common_tables(node: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    common_tables: Sequence[Mapping[str, Any]] = (node.get("cte_map") or {}).get("map", ())
    return [*common_tables, {"key": node["cte_name"]}] if "cte_name" in node else common_tables


def _walk_nodes(tree: Any, *, stop: str | None = None) -> Iterator[dict[str, Any]]:
    """The nodes of a ``tree``, from above; nodes of the type ``stop``, and all below them, are left out."""
    if isinstance(tree, dict):
        if stop is not None and tree.get("type") == stop:
            return
        yield tree
        tree = [*tree.values()]
    if isinstance(tree, list):
        for part in tree:
            yield from _walk_nodes(part, stop=stop)


@dataclass(frozen=True)
class BoundQuery:
    """A query over rows of known columns. ``text`` gives the ``columns``; ``is_settled``: SQL leaves nothing of what it
    gives open, so it can be asked for many groups at once.
    """

    text: str
    row_kinds: Kinds
    columns: Kinds
    is_settled: bool

    @property
    def _casts(self) -> str:
        return ", ".join(f"{_quote_name(name)}::{sql_type(kind)}" for name, kind in self.columns.items())

    @property
    def _own_rows(self) -> str:
        return f"with rows as (select {_quote_names(self.row_kinds)} from _given given where given.{GROUP} = "

    @contextmanager
    def open_answers(self, rows: Any) -> "Iterator[Answers]":
        """A database with the rows ``rows``, an Arrow table of the columns and ``GROUP``."""
        with open_sandbox() as connection:
            answers = Answers.of_nothing(self, connection)
            connection.register("_arrow", rows)
            connection.execute(f"insert into _given select {_quote_names([GROUP, *self.row_kinds])} from _arrow")
            yield answers

    def is_lateral(self, connection: "duckdb.DuckDBPyConnection") -> bool:
        """Whether DuckDB can ask it for many groups at once."""
        import duckdb

        try:
            Answers.of_nothing(self, connection).of_all()
        except duckdb.Error:
            return False
        return True


@dataclass(frozen=True)
class Answers:
    """What a ``query`` gives of groups, whose rows are in the database."""

    query: BoundQuery
    connection: "duckdb.DuckDBPyConnection"

    @classmethod
    def of_nothing(cls, query: BoundQuery, connection: "duckdb.DuckDBPyConnection") -> "Answers":
        """No rows yet."""
        connection.execute(
            f"create temp table _given ({_column_declarations({GROUP: DataType.INT, **query.row_kinds})})"
        )
        connection.execute(f"create temp table _made ({_column_declarations({GROUP: DataType.INT, **query.columns})})")
        return cls(query, connection)

    def answer_groups(self, groups: Sequence[int], group_error: Callable[[int, Exception], Exception]) -> Any:
        """An Arrow table of what it gives of the ``groups``. Raises what ``group_error`` makes of an error of one."""
        import duckdb

        if self.query.is_settled:
            try:
                self.of_all()
                return self._read_answer()
            except duckdb.Error:  # which does not say of which group; one by one they do
                self.connection.execute("delete from _made")
        self._one_by_one(groups, group_error)
        return self._read_answer()

    def of_all(self) -> None:
        """Ask for all groups in one statement. Raises an error of DuckDB's."""
        query = self.query
        self.connection.execute(
            f"insert into _made select groups.{GROUP}, {query._casts} from (select distinct {GROUP} from _given) "
            f"groups, lateral ({query._own_rows}groups.{GROUP}) select * from ({query.text}\n)) made"
        )

    def _one_by_one(self, groups: Sequence[int], failure: Callable[[int, Exception], Exception]) -> None:
        import duckdb

        query = self.query
        self.connection.execute(
            f"prepare _asked as insert into _made select $1, {query._casts} from "
            f"({query._own_rows}$1) select * from ({query.text}\n)) made"
        )
        for group in groups:
            try:
                self.connection.execute(f"execute _asked({group})")
            except duckdb.Error as error:
                raise failure(group, error) from error

    def _read_answer(self) -> Any:
        return self.connection.sql(f"select * from _made order by {GROUP}").to_arrow_table()


def bind_query(text: str, rows: Kinds) -> BoundQuery:
    """The query ``text`` over ``rows``, of which event time is one column. Raises GroupQueryError."""
    return _bind_rows(text, tuple(rows.items()))


@lru_cache(maxsize=256)
def _bind_rows(text: str, rows: tuple[tuple[str, ColumnType], ...]) -> BoundQuery:
    query, schema = parse_query(text), dict(rows)
    with open_sandbox() as connection:
        connection.execute(f"create temp table rows ({_column_declarations(schema)})")
        columns = _query_columns(connection, query.text, schema)
        as_it_is = BoundQuery(query.text, schema, columns, is_settled=False)
        order = [EVENT_TIME, *(name for name in schema if name != EVENT_TIME)]
        tree, windows = _in_order(query.tree, order)
        ordered_text = _tree_to_sql(connection, tree, schema)
        if ordered_text is None or _query_columns(connection, ordered_text, schema) != columns:
            return as_it_is
        bound_query = BoundQuery(ordered_text, schema, columns, is_settled=False)
        is_settled = _is_settled(connection, ordered_text, order, windows) and bound_query.is_lateral(connection)
        return replace(bound_query, is_settled=is_settled)


def _query_columns(connection: "duckdb.DuckDBPyConnection", text: str, rows: Kinds) -> dict[str, ColumnType]:
    """The columns that the query ``text`` gives. Raises GroupQueryError."""
    import duckdb

    arguments = Arguments("query", GroupQueryError)
    try:
        relation = connection.sql(text)
        names, kinds = relation.columns, relation.types
        connection.sql(f"select {_quote_names(names)} from ({text}\n)")
    except duckdb.Error as error:
        problem = str(error).splitlines()[0]
        raise arguments.refusal("sql", text, f"{problem} The columns of rows are {', '.join(rows)}") from None
    columns: dict[str, ColumnType] = {}
    for name, kind in zip(names, kinds, strict=True):
        if name in columns:
            raise arguments.refusal("sql", text, f"it gives column {name!r} twice; rename one of them with as")
        if _levels_of(kind) > data_types.DEEPEST_TYPE:
            deepest = data_types.DEEPEST_TYPE
            raise arguments.refusal("sql", text, f"column {name!r} is nested deeper than {deepest} levels")
        if (own := _column_type(kind)) is None:
            column_types = ", ".join(SQL_TYPES.values())
            raise arguments.refusal(
                "sql",
                text,
                f"column {name!r} is {kind}, which columns of results are not; cast it to one of {column_types}, to a "
                "list, a STRUCT or a MAP(VARCHAR, ...) of these",
            )
        columns[name] = own
    return columns


_OURS: Final = {**_FURTHER_TYPES, **{kind: own for own, kind in SQL_TYPES.items()}}


def _levels_of(kind: Any) -> int:
    """How many levels deep DuckDB's type ``kind`` is, as ``data_types.levels_of`` counts."""
    if kind.id not in ("list", "struct", "map"):
        return 1
    deepest = max((_levels_of(own) for _, own in kind.children), default=0)
    return deepest if kind.id == "list" and deepest == 1 else 1 + deepest


def _column_type(kind: Any) -> ColumnType | None:
    """What a column of DuckDB's type ``kind`` becomes; None if it is none of a result."""
    match kind.id:
        case "list":
            item = _column_type(kind.children[0][1])
            return None if item is None else data_types.ListType(item)
        case "struct":
            fields = [(name, _column_type(own)) for name, own in kind.children]
            readable = tuple((name, own) for name, own in fields if own is not None)
            return data_types.StructType(readable) if 0 < len(readable) == len(fields) else None
        case "map":
            key, value = (_column_type(own) for _, own in kind.children)
            return data_types.MapType(value) if key is DataType.STRING and value is not None else None
    text = str(kind)
    if text.startswith("DECIMAL(") and int(text.removesuffix(")").partition(",")[2]) <= data_types.SCALE:
        return DataType.DECIMAL
    return _OURS.get(text)


# --- what SQL leaves open -------------------------------------------------------------------------------------------

_BY_PLACE: Final = frozenset({"WINDOW_ROW_NUMBER", "WINDOW_NTILE", "WINDOW_LEAD", "WINDOW_LAG", "WINDOW_FIRST_VALUE"})
"""Windows that tell rows apart which their order leaves equal."""
_BY_PEERS: Final = frozenset({"WINDOW_RANK", "WINDOW_RANK_DENSE", "WINDOW_PERCENT_RANK", "WINDOW_CUME_DIST"})


def _in_order(tree: Mapping[str, Any], columns: Sequence[str]) -> tuple[dict[str, Any], int]:
    """A copy of a syntax ``tree``, and how many windows were changed in it. Windows over ``rows`` itself that go by the
    place of a row, and leave some rows equal, also go by all ``columns`` there. So such rows stay in their order.
    """
    number = 0
    copy: dict[str, Any] = json.loads(json.dumps(tree))
    names = [entry["key"].lower() for node in _walk_nodes(copy) for entry in _common_tables(node)]
    for select in _walk_nodes(copy) if "rows" not in names else ():
        table = select.get("from_table") or {}
        if select.get("type") != "SELECT_NODE" or table.get("type") != "BASE_TABLE" or select["group_expressions"]:
            continue
        if table["table_name"].lower() != "rows":
            continue
        clauses = [select[part] for part in ("select_list", "qualify", "modifiers")]
        for window in _walk_nodes(clauses, stop="SELECT_NODE"):
            if window.get("class") == "WINDOW" and _goes_by_place(window):
                window["orders"] += [_order_term(table["alias"] or table["table_name"], name) for name in columns]
                number += 1
    return copy, number


def _goes_by_place(window: Mapping[str, Any]) -> bool:
    """Whether another order of rows that its own leaves equal is another result, and one that is as right."""
    if window.get("arg_orders") or window.get("exclude_clause") != "NO_OTHER":
        return False
    if window["type"] == "WINDOW_FIRST_VALUE":
        return bool(window["start"] == "UNBOUNDED_PRECEDING")
    return window["type"] in _BY_PLACE or "_ROWS" in f"{window['start']} {window['end']}"


def _order_term(table: str, column: str) -> dict[str, Any]:
    column_node = {"class": "COLUMN_REF", "type": "COLUMN_REF", "alias": "", "column_names": [table, column]}
    return {"type": "ASCENDING", "null_order": "NULLS FIRST", "expression": column_node}


def _tree_to_sql(connection: "duckdb.DuckDBPyConnection", tree: Mapping[str, Any], rows: Kinds) -> str | None:
    """A syntax ``tree`` as SQL that DuckDB takes over ``rows``; None if it does not."""
    import duckdb

    try:
        ((text,),) = connection.execute("select json_deserialize_sql(?::json)", [json.dumps(tree)]).fetchall()
        _query_columns(connection, text, rows)
    except (duckdb.Error, GroupQueryError):  # its own text stands as it is then
        return None
    return str(text)


_STEPS: Final = frozenset(
    {
        "GET",
        "PROJECTION",
        "FILTER",
        "WINDOW",
        "AGGREGATE_AND_GROUP_BY",
        "DUMMY_SCAN",
        "ORDER_BY",
        "MATERIALIZED_CTE",
        "CTE_REF",
    }
)
_ROW_NODES: Final = frozenset(
    {"REF", "COLUMN_REF", "CONSTANT", "FUNCTION", "OPERATOR", "CASE", "CAST", "COMPARISON", "CONJUNCTION", "BETWEEN"}
)
_EXACT: Final = frozenset({"count", "count_star", "count_if", "min", "max", "bool_and", "bool_or"})
_SUMS: Final = frozenset({"sum", "sum_no_overflow", "avg", "mean"})
_INEXACT: Final = frozenset({"DOUBLE", "FLOAT"})


def _is_settled(connection: "duckdb.DuckDBPyConnection", text: str, columns: Sequence[str], windows: int) -> bool:
    """Whether SQL alone decides the result of the query ``text``, as DuckDB understands it. Then nothing goes by the
    order of rows that SQL leaves equal, and no floats are added up. So many ``windows`` go by all ``columns``. What is
    not known here may be left open.
    """
    ((answer,),) = connection.execute("select json_serialize_plan(?)", [text]).fetchall()
    plan = json.loads(answer)
    if plan["error"] or "COLLATE" in text.upper():
        return False
    nodes = [*_walk_nodes(plan["plans"])]
    steps = [node for node in nodes if str(node.get("type", "")).startswith("LOGICAL_")]
    expressions = [node for node in nodes if "expression_class" in node]
    by_place = [node for node in expressions if node["expression_class"] == "BOUND_WINDOW" and _goes_by_place(node)]
    return (
        bool(steps)
        and all(map(_is_known, steps))
        and all(map(_is_exact, expressions))
        and len(by_place) <= windows
        and all(_last_orders(node, len(columns)) == [*columns] for node in by_place)
    )


def _is_known(step: Mapping[str, Any]) -> bool:
    """Whether a step gives the same rows, in whatever order others come."""
    name = step["type"].removeprefix("LOGICAL_")
    return name in _STEPS or (name == "DISTINCT" and step.get("distinct_type") == "DISTINCT")


def _is_exact(node: Mapping[str, Any]) -> bool:
    """Whether an expression is the same of the same rows, in whatever order those come that it leaves equal; for
    expressions that go by the place of rows, that is checked elsewhere.
    """
    kind = node["expression_class"].removeprefix("BOUND_")
    if kind == "WINDOW":
        is_plain = not node.get("arg_orders") and node.get("exclude_clause") == "NO_OTHER"
        by_place = node["type"] in _BY_PLACE and _goes_by_place(node)
        return is_plain and (node["type"] in _BY_PEERS or by_place or _is_exact_aggregate(node))
    return _is_exact_aggregate(node) if kind == "AGGREGATE" else kind in _ROW_NODES


def _is_exact_aggregate(node: Mapping[str, Any]) -> bool:
    if "qname" not in node:
        return False
    name, kinds = node["qname"]["path"][-1], [kind["id"] for kind in node["arguments"]]
    return len(kinds) <= 1 and (name in _EXACT or (name in _SUMS and not _INEXACT & {*kinds}))


def _last_orders(window: Mapping[str, Any], number: int) -> list[str]:
    return [order["expression"].get("alias", "") for order in window["orders"][-number:]]


def _column_declarations(kinds: Kinds) -> str:
    return ", ".join(f"{_quote_name(name)} {sql_type(kind)}" for name, kind in kinds.items())


def _quote_names(names: Sequence[str] | Kinds) -> str:
    return ", ".join(map(_quote_name, names))


def _quote_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
