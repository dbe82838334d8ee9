"""Functions and queries of groups, and functions of batches, that take and give lists, structs and maps."""

from collections import Counter
from datetime import date, datetime
from pathlib import Path
from types import GenericAlias
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.errors import PipelineError
from headrace.kernel.aggregates.group_rows import GroupFunctionError
from headrace.model.expressions.data_types import in_words
from headrace.read.views.arrow_types import python_rows
from headrace.runs.options import RunOptions
from headrace.runs.process import process
from headrace.sources.flat_maps import BatchFunctionError
from headrace.testing import rows, run
from tests.reference.strategies import examples
from tests.rows.orders import Orders
from tests.rows.test_nested import ADDRESS, NESTED_COLUMNS, OSLO, PLAIN, SCHEMA, SIGNED_SOURCE, as_text, put, records

_TAGS: dict[str, Any] = {"n": int, "zero": float}
GROUP_COLUMNS: dict[str, Any] = {
    "cities": list[str],
    "tags": GenericAlias(dict, (str, _TAGS)),
    "all": GenericAlias(list, (GenericAlias(dict, (str, _TAGS)),)),
    "first": ADDRESS,
    "event_time": datetime,
}
ON_UPDATE: dict[str, Any] = {"where": hr.FixedWindows("1h"), "when": hr.on_update(), "how": hr.retracting("1d")}


def by_function(name: str, returns: Any, source: Any = PLAIN, **parts: Any) -> hr.Pipeline:
    take = hr.function(f"tests.rows.group_functions:{name}", returns)
    return hr.Pipeline("orders", source, key="id", rows=NESTED_COLUMNS, take=take, executor="local", **parts)


def by_query(sql: str, source: Any = PLAIN, **parts: Any) -> hr.Pipeline:
    return hr.Pipeline("orders", source, key="id", rows=NESTED_COLUMNS, take=hr.query(sql), executor="local", **parts)


PIPELINES: dict[str, Any] = {
    "function": lambda source: by_function("nested_summary", GROUP_COLUMNS, source),
    "windows": lambda source: by_function("nested_summary", GROUP_COLUMNS, source, **ON_UPDATE),
    "all": lambda source: by_query("select *, tags['a'] as a, address.place as place from rows", source),
    "one": lambda source: by_query(
        "select count(*) as n, list(address.city order by address.city) as cities, "
        "map {'b': sum(tags['b']), 'a': 0} as sums, {'x': -0.0, 'n': [max(tags['a'])]} as most, "
        "list({'s': items[1].sku, 'm': map {'z': -0.0, 'y': len(items)}} order by id, len(items)) as lists, "
        "max(event_time) as event_time from rows",
        source,
    ),
    "windows of a query": lambda source: by_query(
        "select min(prices) as prices, max(address) as address from rows", source, **ON_UPDATE
    ),
}


def standing_rows(result: Any) -> Counter[str]:
    return Counter(as_text({**row.key, **row.values}, sorted({*row.key, *row.values})) for row in result.current)


@pytest.mark.parametrize("name", PIPELINES)
@given(landed_orders=records(), cut=st.integers(0, 5), source=st.sampled_from([PLAIN, SIGNED_SOURCE]))
@settings(examples(40, fewest=4), suppress_health_check=list(HealthCheck))
def test_what_is_made_of_a_group_is_what_the_reference_makes(
    name: str, landed_orders: list[dict[str, Any]], cut: int, source: Any
) -> None:
    steps = [rows(*part) for part in (landed_orders[:cut], landed_orders[cut:]) if part]
    local, reference = (run(PIPELINES[name](source), steps, executor=one) for one in ("local", "reference"))
    assert standing_rows(local) == standing_rows(reference)


def test_runs_take_back_what_a_function_gave(tmp_path: Path) -> None:
    orders, pipeline = Orders(tmp_path), by_function("nested_summary", GROUP_COLUMNS)
    orders.run(pipeline, put("a", address=OSLO, tags={"y": 1, "x": None}))
    orders.run(pipeline, put("a", minute=1, tags={"z": 2}), put("b"))
    shown_rows = python_rows(orders.handle(pipeline).current(columns=["id", "cities", "tags", "all"]).to_arrow())
    expected_tags = {"x": {"n": None, "zero": 0.0}, "y": {"n": 1, "zero": 0.0}, "z": {"n": 2, "zero": 0.0}}
    all_tags = [row.pop("all") for row in shown_rows]
    assert all_tags == [[row["tags"], None, {}] for row in shown_rows]
    assert sorted(shown_rows, key=lambda row: row["id"]) == [
        {"id": "a", "cities": ["Oslo"], "tags": expected_tags},
        {"id": "b", "cities": [], "tags": {}},
    ]
    assert all(list(row["tags"]) == sorted(row["tags"]) for row in shown_rows)
    assert "-0.0" not in str(shown_rows)


@pytest.mark.parametrize(
    ("name", "returns", "message"),
    [
        ("keyed_twice", {"tags": dict[str, int]}, "gave a map in which a key stands twice in column tags .*'a'"),
        ("far_ahead", {"tags": {"at": datetime}}, "gave a time outside of the years 1 to 9999 in column tags"),
        ("keyed_twice", {"tags": dict[str, str]}, "declares column tags as map of string to string, which is map"),
    ],
)
def test_what_no_column_holds_is_an_error_of_its_group(tmp_path: Path, name: str, returns: Any, message: str) -> None:
    with pytest.raises(GroupFunctionError, match=message):
        Orders(tmp_path).run(by_function(name, {**returns, "event_time": datetime}), put("a"))


@pytest.mark.parametrize("executor", ["local", "reference"])
@pytest.mark.parametrize(
    "value", ["{'at': 'infinity'::timestamp}", "['-infinity'::date]", "map {'a': [{'at': 'infinity'::timestamptz}]}"]
)
def test_a_time_that_no_calendar_has_is_an_error_of_its_group(value: str, executor: Any) -> None:
    pipeline = by_query(f"select {value} as x, event_time from rows")
    with pytest.raises(PipelineError, match="gave a time outside of the years 1 to 9999"):
        run(pipeline, [rows(put("a"))], executor=executor)


@pytest.mark.parametrize("executor", ["local", "reference"])
def test_the_last_moment_of_the_calendar_is_a_time(executor: Any) -> None:
    pipeline = by_query("select {'at': '9999-12-31 23:59:59.999999'::timestamp} as x, event_time from rows")
    (row,) = run(pipeline, [rows(put("a"))], executor=executor).current
    assert row["x"]["at"].replace(tzinfo=None) == datetime.max


def test_columns_of_a_query_are_nested_as_deep_as_others() -> None:
    def value_of_depth(levels: int) -> str:
        return "1" if levels == 1 else f"[{{'a': {value_of_depth(levels - 2)}}}]" if levels > 2 else "{'a': 1}"

    assert by_query(f"select {value_of_depth(20)} as x, event_time from rows").value_types["x"]
    with pytest.raises(PipelineError, match="column 'x' is nested deeper than 20 levels"):
        by_query(f"select {value_of_depth(21)} as x, event_time from rows")


def test_maps_are_equal_in_any_order_of_their_keys(tmp_path: Path) -> None:
    orders, pipeline = Orders(tmp_path), by_function("turn_maps", {"tags": dict[str, int], "event_time": datetime})
    orders.run(pipeline, put("a"), put("b"))
    shown_rows = python_rows(orders.handle(pipeline).current(columns=["tags"]).to_arrow())
    assert [row["tags"] for row in shown_rows] == [{"a": 1, "b": 2}] * 2


def test_a_query_names_the_columns_that_it_makes() -> None:
    pipeline = PIPELINES["one"](PLAIN)
    assert {name: in_words(kind) for name, kind in pipeline.value_types.items()} == {
        "id": "string",
        "n": "int",
        "cities": "list of string",
        "sums": "map of string to int",
        "most": 'struct of {"x": "decimal", "n": "list of int"}',
        "lists": 'list of struct of {"s": "string", "m": "map of string to decimal"}',
    }
    with pytest.raises(PipelineError, match=r"it gives column 'id' as struct of .*, and that is the key"):
        by_query("select {'a': 1} as id, event_time from rows")


# --- functions of batches


def with_lengths(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The tags of each order with the length of its id, keys descending; and the name of its city in a struct."""
    tags = [
        sorted([*(one or ()), ("length", len(id_))], reverse=True)
        for one, id_ in zip(batch.column("tags").to_pylist(), batch.column("id").to_pylist(), strict=True)
    ]
    cities = [one and one["city"] for one in batch.column("address").to_pylist()]
    place = pa.struct([("city", pa.string()), ("names", pa.list_(pa.string()))])
    maps = pa.map_(pa.string(), pa.int64())
    columns = {
        "_row": batch.column("_row"),
        "id": batch.column("id"),
        "place": pa.array([{"city": city, "names": [city]} for city in cities], place),
        "tags": pa.array(tags, maps),
        "all": pa.array([[one, None] for one in tags], pa.list_(maps)),
        "at": batch.column("at"),
    }
    return pa.RecordBatch.from_pydict(columns)


def with_key_twice(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Maps in which a key stands twice."""
    lengths = with_lengths(batch)
    tags = pa.array([[("a", 1), ("a", 1)]] * batch.num_rows, pa.map_(pa.string(), pa.int64()))
    return lengths.set_column(3, "tags", tags)


BATCH_COLUMNS: dict[str, Any] = {
    "id": str,
    "place": {"city": str, "names": list[str]},
    "tags": dict[str, int],
    "all": list[dict[str, int]],
    "at": datetime,
}


def by_batch(name: str) -> hr.Pipeline:
    function = hr.BatchFunction(f"tests.rows.test_nested_functions:{name}", BATCH_COLUMNS, deterministic=True)
    schema = {name: SCHEMA[name] for name in ("id", "address", "tags", "at")}
    source = hr.json("landing/orders", schema, transform=function).event_time("at", bound="1h")
    city = hr.col("place").field("city")
    return hr.Pipeline(
        "orders",
        source,
        rows={"id": hr.col("id"), "city": city, "tags": hr.col("all").item(0), "all": hr.col("all")},
        executor="local",
    )


LANDED_ORDERS = [put("a", address={"city": "Oslo"}, tags={"z": 1, "b": None}), put("bb")]
MOVED_ROWS = [
    {"id": "a", "city": "Oslo", "tags": {"b": None, "length": 1, "z": 1}},
    {"id": "bb", "city": None, "tags": {"length": 2}},
]


def moved_rows(orders: Orders, pipeline: hr.Pipeline, **options: Any) -> list[dict[str, Any]]:
    table = orders.handle(pipeline).current(columns=["id", "city", "tags"], **options).to_arrow()
    shown_rows = sorted(python_rows(table), key=lambda row: str(row["id"]))
    assert [[*row["tags"]] for row in shown_rows] == [sorted(row["tags"]) for row in shown_rows]
    return shown_rows


def test_a_function_of_batches_gives_structs_and_maps(tmp_path: Path) -> None:
    orders, pipeline = Orders(tmp_path), by_batch("with_lengths")
    orders.run(pipeline, *LANDED_ORDERS)
    assert moved_rows(orders, pipeline) == MOVED_ROWS
    steps = [rows(*({name: one[name] for name in ("id", "address", "tags", "at")} for one in LANDED_ORDERS))]
    assert run(pipeline, steps, executor="reference").current.only("id", "city", "tags") == MOVED_ROWS


@pytest.mark.spark
def test_on_spark_it_gives_the_same(tmp_path: Path, spark: Any) -> None:
    orders, pipeline = Orders(tmp_path), by_batch("with_lengths")
    orders.land("1", *LANDED_ORDERS)
    process(pipeline, orders.root, RunOptions("1", executor="spark"), spark=spark)
    assert moved_rows(orders, pipeline, at="main") == MOVED_ROWS


def test_a_map_with_a_key_twice_is_an_error_of_the_function(tmp_path: Path) -> None:
    with pytest.raises(BatchFunctionError, match="gave a map in which a key stands twice in column tags"):
        Orders(tmp_path).run(by_batch("with_key_twice"), *LANDED_ORDERS)


def with_day(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A day of a year that no calendar has."""
    return batch.append_column("day", pa.array([10**7] * batch.num_rows, pa.int32()).cast(pa.date32()))


def with_days(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A list of such days."""
    batch = with_day(batch)
    lists = pa.ListArray.from_arrays(pa.array(range(batch.num_rows + 1), pa.int32()), batch.column("day"))
    return batch.drop_columns(["day"]).append_column("days", lists)


@pytest.mark.parametrize(("name", "kind"), [("day", date), ("days", list[date])])
def test_a_day_of_no_calendar_is_an_error_of_the_function(name: str, kind: Any, tmp_path: Path) -> None:
    """Readers could not show it: Python has no such date."""
    columns = {"id": str, "at": datetime, name: kind}
    function = hr.BatchFunction(f"tests.rows.test_nested_functions:with_{name}", columns, deterministic=True)
    source = hr.json("landing/orders", {"id": str, "at": datetime}, transform=function).event_time("at", bound="1h")
    pipeline = hr.Pipeline("orders", source, rows=["id", name], executor="local")
    with pytest.raises(BatchFunctionError, match=f"gave a time outside of the years 1 to 9999 in column {name}"):
        Orders(tmp_path).run(pipeline, {"id": "a", "at": "2026-01-01T00:00:00Z"})
