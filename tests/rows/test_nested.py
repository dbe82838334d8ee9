"""Structs and maps as columns of rows: they go again, are told from each other, and pass through whole."""

import json
from collections import Counter
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from types import GenericAlias
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.audit.store import AuditFailedError
from headrace.distribute.spark.application import SparkSession
from headrace.errors import PipelineError
from headrace.model.expressions.data_types import DataType, PairsType, ValueType
from headrace.read.views.arrow_types import python_rows
from headrace.runs.options import RunOptions
from headrace.runs.process import process
from headrace.testing import rows, run
from tests.reference.strategies import examples
from tests.rows.orders import Orders
from tests.rows.test_delivered_rows import Table
from tests.sinks.given_target import delivering_to
from tests.sinks.worlds import DeltaWorld

ADDRESS: dict[str, Any] = {"city": str, "place": {"x": float, "seen": datetime, "names": list[str]}}
SCHEMA: dict[str, Any] = {
    "id": str,
    "address": ADDRESS,
    "tags": dict[str, int],
    "prices": GenericAlias(dict, (str, {"amount": Decimal, "by": dict[str, float]})),
    "items": GenericAlias(list, ({"sku": str, "x": float, "marks": dict[str, float], "grid": list[list[float]]},)),
    "sign": int,
    "at": datetime,
}
NESTED_COLUMNS = ["address", "tags", "prices", "items"]


def nested_type(levels: int) -> Any:
    """A type so many levels deep."""
    kind: Any = int
    for level in range(levels - 1):
        kind = GenericAlias(list, ({"a": kind},)) if level % 2 else {"a": kind}
    return kind


PLAIN = hr.json("landing/orders", SCHEMA).event_time("at", bound="1h")
SIGNED_SOURCE = hr.json("landing/orders", SCHEMA, changelog=col("sign")).event_time("at", bound="1h")


@pytest.fixture
def orders(tmp_path: Path) -> Orders:
    return Orders(tmp_path)


def nested_rows(source: Any = SIGNED_SOURCE, **more: Any) -> hr.Pipeline:
    """Rows with structs and maps."""
    return hr.Pipeline("orders", source, rows=["id", *NESTED_COLUMNS], executor="local", **more)


_FLOATS = st.sampled_from([None, 0.0, -0.0, 1.5])
_KEYS = st.sampled_from(["a", "b", "é", ""])
_PLACES = st.none() | st.fixed_dictionaries(
    {"x": _FLOATS},
    optional={
        "seen": st.sampled_from([None, "2026-05-01T00:00:00Z"]),
        "names": st.none() | st.lists(st.sampled_from(["n", None]), max_size=2),
    },
)
_ADDRESSES = st.none() | st.fixed_dictionaries({}, optional={"city": st.sampled_from(["Oslo", None]), "place": _PLACES})
_PRICES = st.none() | st.fixed_dictionaries(
    {"amount": st.sampled_from([None, 1, "2.5"])}, optional={"by": st.none() | st.dictionaries(_KEYS, _FLOATS)}
)
_LISTS = st.none() | st.lists(_FLOATS, max_size=2)
_ITEMS = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "sku": st.sampled_from([None, "s", "t"]),
        "x": _FLOATS,
        "marks": st.none() | st.dictionaries(_KEYS, _FLOATS, max_size=2),
        "grid": st.none() | st.lists(_LISTS, max_size=2),
    },
)


@st.composite
def records(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Orders of both signs, few of whose values differ."""
    return [
        put(
            draw(st.sampled_from(["a", "b"])),
            draw(st.sampled_from([1, 1, -1])),
            draw(st.integers(0, 1)),
            address=draw(_ADDRESSES),
            tags=draw(st.none() | st.dictionaries(_KEYS, st.sampled_from([None, 1, 2]), max_size=3)),
            prices=draw(st.none() | st.dictionaries(_KEYS, _PRICES, max_size=2)),
            items=draw(st.none() | st.lists(_ITEMS, max_size=2)),
        )
        for _ in range(draw(st.integers(1, 6)))
    ]


def expected_value(kind: Any, value: Any) -> Any:
    """What a value of JSON is for readers: all fields are there, in order, and keys ascend."""
    if value is None:
        return None
    if isinstance(kind, dict):
        return {name: expected_value(own, value.get(name)) for name, own in kind.items()}
    if getattr(kind, "__origin__", None) is list:
        return [expected_value(kind.__args__[0], one) for one in value]
    if getattr(kind, "__origin__", None) is dict:
        return {name: expected_value(kind.__args__[1], value[name]) for name in sorted(value)}
    if kind is float:
        return value + 0.0
    return Decimal(value) if kind is Decimal else value


def as_text(row: dict[str, Any], names: list[str]) -> str:
    """What can be counted of a row; a decimal has no zeros at its end, a time is as JSON has it."""

    def plain(value: Any) -> str:
        if isinstance(value, datetime):
            return f"{value:%Y-%m-%dT%H:%M:%SZ}"
        return str(value.normalize() if isinstance(value, Decimal) else value)

    return json.dumps([row[name] for name in names], default=plain)


def expected_rows(records: list[dict[str, Any]], names: list[str]) -> Counter[str]:
    counts: Counter[tuple[str, str]] = Counter()
    for one in records:  # a withdrawal has the event time of its row
        text = as_text({name: expected_value(SCHEMA[name], one[name]) for name in names}, names)
        counts[one["at"], text] += one["sign"]
    standing_rows: Counter[str] = Counter()
    for (_, text), count in (+counts).items():
        standing_rows[text] += count
    return standing_rows


def standing(orders: Orders, pipeline: hr.Pipeline, *names: str, **options: Any) -> Counter[str]:
    """What stands, as text, by these columns."""
    table = orders.handle(pipeline).current(columns=[*names], **options).to_arrow()
    return Counter(as_text(row, [*names]) for row in python_rows(table))


def put(id: str, sign: int = 1, minute: int = 0, **values: Any) -> dict[str, Any]:  # noqa: A002
    moment = f"2026-05-01T00:{minute:02}:00Z"
    return {"id": id, **dict.fromkeys(NESTED_COLUMNS), **values, "sign": sign, "at": moment}


OSLO = {"city": "Oslo", "place": {"x": 1.0, "names": ["a", None]}}
ITEMS: list[Any] = [{"sku": "s", "marks": {"b": 1.0, "a": None}, "grid": [[0.0], None, []]}, None, {}]
STEPS: list[list[dict[str, Any]]] = [
    [put("a", address=OSLO, tags={"y": 1, "x": None}), put("a", address={}), put("b", tags={}), put("c", items=ITEMS)],
    [put("a", -1, address={"city": None}), put("b", prices={"p": {"amount": "1.50", "by": {"z": 0.0}}})],
    [
        put("a", -1, address=OSLO, tags={"x": None, "y": 1}),
        put("b", -1, prices={"p": {"amount": 1.5, "by": {"z": -0.0}}}),
    ],
]
ALL = [one for step in STEPS for one in step]


@given(records(), st.integers(0, 5))
@settings(examples(4, fewest=4), suppress_health_check=list(HealthCheck))
def test_what_stands_is_the_sum_of_signs_on_the_kernel_and_the_reference(
    records: list[dict[str, Any]], cut: int
) -> None:
    steps = [rows(*part) for part in (records[:cut], records[cut:]) if part]
    for executor in ("local", "reference"):
        shown_result = run(nested_rows(), steps, executor=executor).current.only("id", *NESTED_COLUMNS)
        assert Counter(as_text(row, ["id", *NESTED_COLUMNS]) for row in shown_result) == expected_rows(
            records, ["id", *NESTED_COLUMNS]
        )


@given(
    records(),
    st.sampled_from([hr.newest(), hr.top(2, by="id"), hr.distinct(), hr.newest("id")]),
    st.sampled_from([PLAIN, SIGNED_SOURCE]),
)
@settings(examples(4, fewest=4), suppress_health_check=list(HealthCheck))
def test_rows_of_groups_are_those_of_the_reference(records: list[dict[str, Any]], take: Any, source: Any) -> None:
    taking = hr.Pipeline("orders", source, key="id", rows=NESTED_COLUMNS, take=take, executor="local")
    steps = [rows(*part) for part in (records[:3], records[3:]) if part]
    local, reference = (
        Counter(
            as_text(row, ["id", *NESTED_COLUMNS])
            for row in run(taking, steps, executor=executor).current.only("id", *NESTED_COLUMNS)
        )
        for executor in ("local", "reference")
    )
    assert local == reference


def test_rows_with_structs_and_maps_go_as_they_came(orders: Orders) -> None:
    handle = orders.handle(nested_rows())
    for step in STEPS:
        orders.run(nested_rows(), *step)
    assert standing(orders, nested_rows(), "id", *NESTED_COLUMNS) == expected_rows(ALL, ["id", *NESTED_COLUMNS])
    snapshots = [one["snapshot"] for one in handle.snapshots().to_json()]
    difference = handle.diff(snapshots[0], snapshots[-1])
    assert difference.output.rows.removed - difference.output.rows.added == 2


def test_a_condition_of_sql_reads_what_is_inside(orders: Orders) -> None:
    orders.run(nested_rows(), *STEPS[0])
    view = orders.handle(nested_rows()).current
    assert [row["id"] for row in view(where="address.city = 'Oslo'").to_json()] == ["a"]
    assert [row["id"] for row in view(where="tags['y'] = 1").to_json()] == ["a"]
    assert view(where=col("tags").is_null()).count() == 2


def test_another_pipeline_reads_them(orders: Orders) -> None:
    read = hr.published("orders", {"id": str, **{name: SCHEMA[name] for name in NESTED_COLUMNS}})
    pipeline_below = hr.Pipeline("below", read, rows=["id", *NESTED_COLUMNS], executor="local")
    for step in STEPS:
        orders.run(nested_rows(), *step)
        orders.run(pipeline_below)
    assert standing(orders, pipeline_below, "id", *NESTED_COLUMNS) == expected_rows(ALL, ["id", *NESTED_COLUMNS])


def test_a_table_holds_them_as_json(orders: Orders) -> None:
    table, pipeline = Table(), nested_rows(sinks=[hr.postgres("orders", connection="nowhere")])
    for step in STEPS:
        orders.run(pipeline, *step)
        with delivering_to(table):
            orders.handle(pipeline).deliver()
    assert Counter(as_text(row, ["id", *NESTED_COLUMNS]) for row in table.rows()) == expected_rows(
        ALL, ["id", *NESTED_COLUMNS]
    )


@pytest.mark.slow
def test_a_delta_table_holds_them(tmp_path: Path, orders: Orders, monkeypatch: pytest.MonkeyPatch) -> None:
    world = DeltaWorld(str(tmp_path / "lake"))
    monkeypatch.setenv("HEADRACE_CONN_LAKE", (tmp_path / "lake").as_uri())
    pipeline = nested_rows(sinks=[world.sink])
    for step in STEPS:
        orders.run(pipeline, *step)
        orders.handle(pipeline).deliver()
        (sink_check,) = orders.handle(pipeline).check_sinks()
        assert sink_check.comparison is not None and sink_check.comparison.is_equal
    assert len(world.rows()) == sum(expected_rows(ALL, ["id", *NESTED_COLUMNS]).values())


def test_expectations_see_them_as_json(orders: Orders) -> None:
    held_values: dict[str, Any] = {"value_set": ['{"x": null, "y": 1}', "{}"]}
    held_tags = nested_rows(expectations=[hr.expect("column_values_to_be_in_set", column="tags", **held_values)])
    orders.run(held_tags, *STEPS[0])
    with pytest.raises(AuditFailedError):
        orders.run(held_tags, put("d", tags={"x": 1}))


def test_files_of_parquet_have_them(orders: Orders) -> None:
    keys = pa.map_(pa.string(), pa.int32())
    line = pa.struct([("qty", pa.int16()), ("sku", pa.string()), ("marks", keys)])
    lines = [
        [{"qty": 1, "sku": "s", "marks": [("b", 1), ("a", None)]}, None, {"qty": None, "sku": None, "marks": None}],
        [],
        None,
        [],
        [{"qty": 1, "sku": "s", "marks": [("a", 1), ("a", 2)]}],
    ]
    columns = {
        "id": pa.array(["a", "b", "c", "d", "e"]),
        "address": pa.array([{"zip": 1, "city": "Oslo"}, None, {"zip": 2, "city": None}, None, None]),
        "tags": pa.array([[("b", 1), ("a", None)], [], None, [("a", 1), ("a", 1)], None], keys),
        "lines": pa.array(lines, pa.large_list(line)),
        "at": pa.array([datetime(2026, 5, 1)] * 5, pa.timestamp("us")),
    }
    landing = orders.folder / "landing/orders"
    landing.mkdir(parents=True)
    pq.write_table(pa.table(columns), landing / "1.parquet")
    line_type: Any = {"sku": str, "marks": dict[str, int], "absent": list[list[int]]}
    schema: dict[str, Any] = {
        "id": str,
        "address": {"city": str, "street": str},
        "tags": dict[str, int],
        "lines": GenericAlias(list, (line_type,)),
        "at": datetime,
    }
    source = hr.parquet("landing/orders", schema).event_time("at", bound="1h")
    pipeline = hr.Pipeline("orders", source, rows=["id", "address", "tags", "lines"], executor="local")
    orders.run(pipeline)
    rows_by_id = {row["id"]: row for row in python_rows(orders.handle(pipeline).current().to_arrow())}
    assert rows_by_id["a"]["address"] == {"city": "Oslo", "street": None} and rows_by_id["c"]["address"]["city"] is None
    assert [*rows_by_id["a"]["tags"].items()] == [("a", None), ("b", 1)] and rows_by_id["b"]["tags"] == {}
    assert rows_by_id["a"]["lines"] == [
        {"sku": "s", "marks": {"a": None, "b": 1}, "absent": None},
        None,
        {"sku": None, "marks": None, "absent": None},
    ]
    assert rows_by_id["b"]["lines"] == [] and rows_by_id["c"]["lines"] is None
    no_map, no_lines = orders.handle(pipeline).rejected().to_json()
    assert no_map["reason"] == "column tags: not a map of string to int that has each key once"
    assert no_lines["reason"].startswith("column lines: not a list of struct of")


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ('"tags": {"a": 1, "a": 1}', "column tags: not a map of string to int that has each key once"),
        ('"tags": {"a": "x"}', "column tags: not a map of string to int that has each key once"),
        ('"tags": [1]', "column tags: not a map of string to int that has each key once"),
        ('"address": {"place": {"seen": "soon"}}', "column address: not a struct of"),
        ('"address": "Oslo"', "column address: not a struct of"),
    ],
)
def test_what_is_none_is_a_dead_letter(record: str, reason: str) -> None:
    line = f'{{"id": "a", "at": "2026-05-01T00:00:00Z", {record}}}'
    (letter,) = run(nested_rows(PLAIN), [rows(line)], executor="local").rejected
    assert letter["reason"].startswith(reason)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: hr.json("l", {"a": dict[int, str]}), "the keys of a map are text"),
        (lambda: hr.json("l", {"a": {}}), "name the fields and their types"),
        (lambda: hr.json("l", {"a": {"b": str, "B": str}}), "differ in case alone"),
        (
            lambda: nested_rows(key="tags", take=hr.newest()),
            "a map of string to int is no value; item, contains, length and is_null read",
        ),
        (lambda: nested_rows(id="address"), "id: 'address' is a struct of"),
        (
            lambda: nested_rows(filter=col("address") == "x"),
            "struct of .* and string are not compared, only two of one type",
        ),
        (
            lambda: nested_rows(filter=col("address").field("cty") == "x"),
            "there is no field 'cty'; did you mean 'city'. the fields are city, place",
        ),
        (lambda: nested_rows(filter=col("address").field("city") == 1), "different types: int, string"),
        (
            lambda: nested_rows(filter=col("address").field("place").field("x").field("y") == 1),
            "takes a struct, found float",
        ),
        (lambda: nested_rows(filter=col("address").item("city") == 1), "item does not take a struct"),
        (lambda: nested_rows(filter=col("tags").field("x") == 1), "field does not take a map of string to int; item, "),
        (lambda: nested_rows(filter=col("tags").item(0) == 1), "the keys of a map are text"),
        (lambda: nested_rows(filter=col("tags").contains(1)), "the keys of a map are text"),
        (lambda: nested_rows(filter=col("address").length() > 1), "length does not take a struct"),
        (lambda: nested_rows(filter=col("items").contains("s")), "contains does not take a list of struct"),
        (lambda: nested_rows(filter=col("items").item(0).field("cty") == "s"), "there is no field 'cty'"),
        (
            lambda: nested_rows(filter=col("items").item(0) == "s"),
            "are not compared, only two of one type; field and is_null read",
        ),
        (
            lambda: nested_rows(filter=col("items") == "s"),
            "and string are not compared, only two of one type; length, item",
        ),
        (lambda: nested_rows(key="items", take=hr.newest()), "is no value; length, item, slice and is_null read it"),
        (lambda: nested_rows(id="items"), "id: 'items' is a list of struct of"),
        (lambda: hr.json("l", {"a": nested_type(21)}), "it is nested deeper than 20 levels"),
        (
            lambda: hr.json("l", {"a": {"b": GenericAlias(list, (nested_type(19),))}}),
            "it is nested deeper than 20 levels",
        ),
        (lambda: col("address").field(""), "write text such as 'city'"),
        (lambda: col("tags").item(True), "write a whole number"),
        (lambda: col("address")["city"], r"write .field.name. of a struct, .item.key. of a map"),
    ],
)
def test_what_they_cannot_be_is_refused(wrong: Any, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        wrong()


def test_a_field_that_is_added_is_another_definition(orders: Orders) -> None:
    orders.run(nested_rows(), *STEPS[0])
    schema = {**SCHEMA, "address": {**ADDRESS, "street": str}}
    wider = hr.json("landing/orders", schema, changelog=col("sign")).event_time("at", bound="1h")
    with pytest.raises(hr.errors.FixConfigError, match="replay"):
        orders.run(nested_rows(wider), put("e"))


@pytest.mark.spark
def test_they_are_folded_and_read_on_spark(orders: Orders, spark: SparkSession) -> None:
    for number, step in enumerate(STEPS):
        orders.land(str(number), *step)
        process(nested_rows(), orders.root, RunOptions(str(number), executor="spark"), spark=spark)
    expected = expected_rows(ALL, ["id", *NESTED_COLUMNS])
    assert standing(orders, nested_rows(), "id", *NESTED_COLUMNS, at="main") == expected
    assert orders.handle(nested_rows()).current(at="main").to_spark(spark).count() == sum(expected.values())


def test_a_table_of_iceberg_has_the_same_types() -> None:
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    from headrace.connectors.iceberg.table import iceberg_schema, iceberg_type, is_same
    from headrace.read.views.arrow_types import schema_of

    columns: dict[str, ValueType] = {name: nested_rows().value_types[name] for name in NESTED_COLUMNS}
    address, tags = nested_rows().value_types["address"], nested_rows().value_types["tags"]
    assert not isinstance(address, PairsType) and not isinstance(tags, PairsType)
    columns |= {"both": PairsType(address, tags), "by_id": PairsType(DataType.STRING, address)}
    schema = iceberg_schema(columns)
    numbers = [*schema._lazy_id_to_field]
    assert len(numbers) == len({*numbers}) == 4 + 1 + 3 + 1 + 7 + 1 + 9 + 1 + (3 + 6 + 2 + 1) + (3 + 6 + 1)
    plain = pa.table({name: pa.nulls(0, kind) for name, kind in zip(columns, schema_of(columns).types, strict=True)})
    assert plain.cast(schema_to_pyarrow(schema, include_field_ids=False)).num_rows == 0
    assert all(is_same(schema.find_field(name).field_type, iceberg_type(kind)) for name, kind in columns.items())
