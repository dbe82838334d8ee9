"""Whole structs, maps and lists are compared by ``==`` and ``!=`` as the reference and DuckDB compare them."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import col, lit
from headrace.distribute.spark.application import SparkSession
from headrace.errors import PipelineError
from headrace.pipeline.queries import sql_type
from headrace.runs.options import RunOptions
from headrace.runs.process import process
from headrace.testing import rows, run
from tests.reference.strategies import examples
from tests.rows.orders import Orders
from tests.rows.test_nested import _ADDRESSES, _ITEMS, _KEYS, _PRICES, NESTED_COLUMNS, SCHEMA, expected_value, put

TYPES: dict[str, Any] = {name: SCHEMA[name] for name in NESTED_COLUMNS}
OTHERS = {f"other_{name}": kind for name, kind in TYPES.items()}
SOURCE = hr.json("landing/orders", {**SCHEMA, **OTHERS}).event_time("at", bound="1h")
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "address": _ADDRESSES,
    "tags": st.none() | st.dictionaries(_KEYS, st.sampled_from([None, 1]), max_size=2),
    "prices": st.none() | st.dictionaries(_KEYS, _PRICES, max_size=1),
    "items": st.none() | st.lists(_ITEMS, max_size=1),
}
EQUAL = {f"same_{name}": col(name) == col(f"other_{name}") for name in NESTED_COLUMNS}
UNEQUAL = {f"not_{name}": col(name) != col(f"other_{name}") for name in NESTED_COLUMNS}
EQUALITY_PIPELINE = hr.Pipeline("orders", SOURCE, rows={"id": col("id"), **EQUAL, **UNEQUAL}, executor="local")


@st.composite
def pairs_of_values(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Orders with two values of each column, which are often equal."""
    orders = []
    for number in range(draw(st.integers(1, 4))):
        values = {name: draw(strategy) for name, strategy in VALUES.items()}
        others = {
            f"other_{name}": values[name] if draw(st.booleans()) else draw(strategy)
            for name, strategy in VALUES.items()
        }
        orders.append(put(str(number), **values, **others))
    return orders


def plain_rows(result: Any) -> list[dict[str, Any]]:
    return sorted(result.current.only("id", *EQUAL, *UNEQUAL), key=lambda row: str(row["id"]))


def rows_of_duckdb(orders: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What DuckDB says of values that are written alike."""
    types = {**TYPES, **OTHERS}
    kinds = {name: SOURCE.source.columns[name] for name in types}
    columns = ", ".join(f"(r->'{name}')::{sql_type(kind)} as \"{name}\"" for name, kind in kinds.items())
    order_rows = [
        {name: expected_value(kind, one[name]) for name, kind in types.items()} | {"id": one["id"]} for one in orders
    ]
    comparisons = [
        f"{name} = other_{name} as same_{name}, {name} <> other_{name} as not_{name}" for name in NESTED_COLUMNS
    ]
    with duckdb.connect() as connection:
        connection.execute(
            f"create table orders as select r->>'id' as id, {columns} from (select unnest(?::JSON[]) as r)",
            [[json.dumps(one, default=str) for one in order_rows]],
        )
        cursor = connection.execute(f"select id, {', '.join(comparisons)} from orders order by id")
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


@given(pairs_of_values())
@settings(examples(80, fewest=10), suppress_health_check=list(HealthCheck))
def test_they_are_compared_as_the_reference_and_duckdb_do(orders: list[dict[str, Any]]) -> None:
    local, reference = (
        run(EQUALITY_PIPELINE, [rows(*orders)], executor=executor) for executor in ("local", "reference")
    )
    assert plain_rows(local) == plain_rows(reference)
    assert plain_rows(local) == [{name: row[name] for name in plain_rows(local)[0]} for row in rows_of_duckdb(orders)]


ZERO = {"x": -0.0, "seen": None, "names": None}
CASES: list[tuple[Any, Any, bool | None]] = [
    (None, None, None),
    (None, {}, None),
    ({}, {"city": None}, True),
    ({"city": "Oslo"}, {"city": "Oslo", "place": None}, True),
    ({"city": "Oslo"}, {"city": None}, False),
    ({"place": {}}, {"place": None}, False),
    ({"place": ZERO}, {"place": {"x": 0.0}}, True),
    ({"place": {"names": ["a", None]}}, {"place": {"names": ["a", None]}}, True),
    ({"place": {"names": [None]}}, {"place": {"names": []}}, False),
]


@pytest.mark.parametrize(("left", "right", "is_equal"), CASES)
def test_null_inside_is_equal_to_null(left: Any, right: Any, is_equal: bool | None) -> None:
    order = put("a", address=left, **dict.fromkeys(OTHERS)) | {"other_address": right}
    for executor in ("local", "reference"):
        (row,) = run(EQUALITY_PIPELINE, [rows(order)], executor=executor).current
        assert (row["same_address"], row["not_address"]) == (is_equal, None if is_equal is None else not is_equal)


ORDERS = [
    put("a", address={"city": "Oslo"}, tags={"x": 1, "y": None}, other_tags={"y": None, "x": 1}),
    put("b", address={"city": "Oslo"}, other_address={"place": {}}, items=[{"sku": "s"}], other_items=[{}, None]),
    put("c", items=[None, {}], other_items=[None, {"x": None}], address={}, other_address={"city": None}),
]
FILTER = (col("tags") == col("other_tags")) | (col("items") == col("other_items"))


def test_a_filter_an_aggregate_and_a_reader_compare_them(tmp_path: Path) -> None:
    counting = hr.Pipeline(
        "orders", SOURCE, key=None, where=hr.FixedWindows("1h"), when=hr.on_update(),
        what={"n": hr.count(), "places": hr.count().where(col("address") == col("other_address"))},
        how=hr.retracting("1d"), filter=FILTER, executor="local",
    )  # fmt: skip
    for executor in ("local", "reference"):
        assert run(counting, [rows(*ORDERS)], executor=executor).current.only("n", "places") == [{"n": 2, "places": 1}]
    orders = Orders(tmp_path)
    whole = hr.Pipeline("orders", SOURCE, rows=["id", *TYPES, *OTHERS], executor="local")
    orders.run(whole, *ORDERS)
    handle = orders.handle(whole)
    assert sorted(row["id"] for row in handle.current(where=FILTER).to_json()) == ["a", "c"]
    assert [row["id"] for row in handle.current(where="address <> other_address").to_json()] == ["b"]
    parts = col("address").field("place") == col("other_address").field("place")
    assert [row["id"] for row in handle.current(where=parts).to_json()] == []
    assert handle.current(where=(col("tags") == lit(None)).is_null()).count() == 3


LISTS = hr.json("landing/orders", {"id": str, "at": datetime, "tags": list[str]}).event_time("at", bound="1h")


def split(text: str) -> hr.Expr:
    """A list of constants."""
    return lit(text).split(",")


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (split("a,b") == col("tags"), [True, False, False, None]),
        (col("tags") == split("a,b"), [True, False, False, None]),
        (col("tags") != split("a,b"), [False, True, True, None]),
        (split("a,b") == split("a,b"), [True] * 4),
        (split("a,b") != split("b"), [True] * 4),
        (split("a,b") == lit(None), [None] * 4),
    ],
)
def test_a_list_of_constants_is_compared(condition: hr.Expr, expected: list[bool | None]) -> None:
    lists = [["a", "b"], ["a"], [], None]
    records = [{"id": str(i), "at": "2026-01-01T00:00:00Z", "tags": one} for i, one in enumerate(lists)]
    pipeline = hr.Pipeline("orders", LISTS, rows={"id": col("id"), "same": condition}, executor="local")
    for executor in ("local", "reference"):
        current = run(pipeline, [rows(*records)], executor=executor).current.only("id", "same")
        assert [row["same"] for row in sorted(current, key=lambda row: str(row["id"]))] == expected


@pytest.mark.spark
def test_a_filter_on_spark_compares_them(tmp_path: Path, spark: SparkSession) -> None:
    orders, pipeline = Orders(tmp_path), hr.Pipeline("orders", SOURCE, rows=["id"], filter=FILTER, executor="local")
    orders.land("1", *ORDERS)
    process(pipeline, orders.root, RunOptions("1", executor="spark"), spark=spark)
    assert sorted(row["id"] for row in orders.handle(pipeline).current(at="main").to_json()) == ["a", "c"]


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (col("address") < col("other_address"), "a struct of .* has no order, only == and != compare it"),
        (col("tags") >= col("other_tags"), "a map of string to int has no order"),
        (lit(None) > col("items"), "a list of struct of .* has no order"),
        (col("address") == col("tags"), "struct of .* and map of string to int are not compared, only two of one type"),
        (col("address") == col("address").field("place"), "are not compared, only two of one type"),
        (col("address") != "Oslo", "struct of .* and string are not compared, only two of one type"),
        (col("address").is_in(["Oslo"]), "is_in does not take a struct"),
    ],
)
def test_what_is_not_compared_is_refused(condition: hr.Expr, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        hr.Pipeline("orders", SOURCE, rows=["id"], filter=condition)
