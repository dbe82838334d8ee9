"""Queries over the rows of a group: in one statement, one by one, and by DuckDB over the rows of a group alone."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from headrace.model.expressions.data_types import DataType
from headrace.pipeline.queries import GROUP, SQL_TYPES, BoundQuery, bind_query
from tests.reference.strategies import examples

ROWS = {
    "shop": DataType.STRING,
    "price": DataType.INT,
    "half": DataType.FLOAT,
    "event_time": DataType.TIMESTAMP,
}
SCHEMA = pa.schema(
    [
        (GROUP, pa.int64()), ("shop", pa.string()), ("price", pa.int64()), ("half", pa.float64()),
        ("event_time", pa.timestamp("us", tz="UTC")),
    ]
)  # fmt: skip

_VALUES = st.sampled_from(["price", "coalesce(price, 0)", "shop", "event_time", "half", "length(shop)", "price % 3"])
_AGGREGATES = st.sampled_from(
    ["count(*)", "sum(price)", "min(half)", "max(shop)", "avg(price)", "count(distinct price)", "bool_and(price > 1)"]
)
_WHERE = st.sampled_from(["", "", "where price > 1", "where half is not null", "where false"])
_ORDER = st.lists(
    st.builds(str.__add__, _VALUES, st.sampled_from(["", " desc", " nulls first", " desc nulls last"])),
    min_size=1,
    max_size=2,
).map(lambda terms: f"order by {', '.join(terms)}")


@st.composite
def windows(draw: st.DrawFn) -> str:
    """A function over a window."""
    part = draw(st.one_of(st.just(""), _VALUES.map(lambda value: f"partition by {value} ")))
    order = draw(_ORDER)
    function = draw(
        st.one_of(
            st.sampled_from(["rank()", "row_number()", "dense_rank()", "ntile(2)", "percent_rank()"]),
            st.builds("{}({}, {})".format, st.sampled_from(["lag", "lead"]), _VALUES, st.integers(1, 2)),
            st.builds("first_value({})".format, _VALUES),
            _AGGREGATES,
        )
    )
    frame = ""
    if "(" in function and function.startswith(("count(*)", "sum", "min", "max", "avg")):
        frame = draw(st.sampled_from(["", "", "rows 2 preceding", "rows between 1 preceding and 1 following"]))
    return f"{function} over ({part}{order} {frame})"


@st.composite
def queries(draw: st.DrawFn) -> str:
    """A query of which SQL leaves nothing open."""
    where, value = draw(_WHERE), draw(_VALUES)
    match draw(st.integers(0, 4)):
        case 0:
            return f"select *, {draw(windows())} as a, {draw(windows())} as b from rows {where}"
        case 1:
            return f"select {draw(_AGGREGATES)} as a, {draw(_AGGREGATES)} as b from rows {where}"
        case 2:
            return f"select {value} as a, {draw(_AGGREGATES)} as b from rows {where} group by 1 having count(*) > 1"
        case 3:
            return f"select * from rows r {where} qualify {draw(windows())} is not null"
    return (
        f"with a as (select *, {draw(windows())} as w from rows {where}), b as (select *, count(w) over "
        f"(order by event_time) as s from a) select {value} as v, min(s) as low, count(*) as n from b group by 1"
    )


_ROW = st.tuples(
    st.sampled_from([None, "a", "b", "ab"]),
    st.sampled_from([None, 0, 1, 2, 3, 2**59]),
    st.sampled_from([None, 0.1, 0.2, -0.0, 0.0, math.nan, 1e300]),
    st.sampled_from([None, 0, 1_000_000, 2_000_000]),
)
_GROUPS = st.lists(st.lists(_ROW, min_size=1, max_size=9), min_size=1, max_size=5)


def table(groups: Sequence[Sequence[tuple[Any, ...]]]) -> pa.Table:
    """The rows of ``groups``."""
    rows = [(number, *row) for number, group in enumerate(groups) for row in group]
    columns = [pa.array(column) for column in zip(*rows, strict=True)]
    return pa.Table.from_arrays(
        [column.cast(field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def query_groups(query: BoundQuery, rows: pa.Table) -> Counter[str]:
    """What ``query`` gives of all groups of ``rows``."""
    with query.open_answers(rows) as answers:
        return rows_as_text(answers.answer_groups(sorted({*rows.column(GROUP).to_pylist()}), lambda _, error: error))


def rows_as_text(rows: pa.Table) -> Counter[str]:
    """Rows as text, in which NaN equals itself and zero its opposite."""
    return Counter(
        str([value + 0.0 if isinstance(value, float) else value for value in row.values()]) for row in rows.to_pylist()
    )


def query_each_group(query: BoundQuery, rows: pa.Table) -> Counter[str]:
    """What DuckDB gives of each group by itself."""
    total: Counter[str] = Counter()
    for number in sorted({*rows.column(GROUP).to_pylist()}):
        own = rows.filter(pc.equal(rows.column(GROUP), number)).drop_columns([GROUP])
        with duckdb.connect(config={"threads": "1"}) as connection:
            connection.execute("set TimeZone = 'UTC'")
            connection.register("given", own)
            connection.execute("create table rows as select * from given")
            casts = ", ".join(f'"{name}"::{SQL_TYPES[kind]}' for name, kind in query.columns.items())
            answer = connection.sql(f"select {number}::bigint as {GROUP}, {casts} from ({query.text})")
            total += rows_as_text(answer.to_arrow_table())
    return total


@pytest.mark.slow
@given(queries(), _GROUPS, st.randoms())
@examples(100)
def test_one_statement_gives_what_each_group_gives_alone(text: str, groups: Any, random: Any) -> None:
    note(text)
    query = bind_query(text, ROWS)
    assert query.is_settled
    rows = table(groups)
    at_once = query_groups(query, rows)
    assert query_groups(replace(query, is_settled=False), rows) == at_once
    assert query_each_group(query, rows) == at_once
    order = [*range(rows.num_rows)]
    random.shuffle(order)
    assert query_groups(query, rows.take(order)) == at_once


@pytest.mark.parametrize(
    "text",
    [
        "select *, sum(half) over (order by event_time) as s from rows",
        "select *, sum(half) over (order by event_time rows 2 preceding) as s from rows",
        "select *, string_agg(shop, ',') over (order by event_time rows 2 preceding) as s from rows",
        "select *, sum(price) over (order by event_time rows 2 preceding exclude ties) as s from rows",
        "select avg(half) as a from rows",
        "select * from rows limit 1",
        "select * from rows order by price limit 1",
        "select distinct on (shop) * from rows",
        "select string_agg(shop, ',') as s from rows",
        "select *, last_value(price) over (order by event_time) as s from rows",
        "select *, string_agg(shop, ',') over (order by event_time) as s from rows",
        "select any_value(price) as s from rows",
        "select arg_max(price, event_time) as s from rows",
        "select *, row_number() over (order by price) as s from (select * from rows where price > 1)",
        "select min(shop collate nocase) as s from rows",
        "select approx_count_distinct(price) as s from rows",
        "select a.price from rows a join rows b using (price)",
        "select median(half) as s from rows",
    ],
)
def test_what_sql_leaves_open_is_asked_one_by_one(text: str) -> None:
    assert not bind_query(text, ROWS).is_settled


def test_ties_go_by_the_order_of_the_rows() -> None:
    query = bind_query("select price, row_number() over (order by shop) as place from rows", ROWS)
    rows = table([[("a", price, None, price * 10) for price in (3, 1, 2)], [("a", 2, None, 0), ("a", 1, None, 0)]])
    assert query_groups(query, rows) == Counter(["[0, 1, 1]", "[0, 2, 2]", "[0, 3, 3]", "[1, 1, 1]", "[1, 2, 2]"])
