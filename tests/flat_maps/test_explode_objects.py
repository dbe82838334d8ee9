"""A record for each object of a list, with its fields as columns, run by run."""

import json
from collections import Counter
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.errors import ChangedPipelineError, FileColumnsError, PipelineError
from headrace.testing import rows as given_rows
from headrace.testing import run
from tests.process.executors import ExecutorUnderTest, on_both
from tests.reading import read
from tests.reference.strategies import examples

SCHEMA: dict[str, Any] = {
    "id": int,
    "sku": hr.field("items.sku", str),
    "amount": hr.field("items.price.amount", Decimal),
    "since": hr.field("items.since", datetime),
    "at": datetime,
}
TIME = "2026-05-01T00:00:00Z"
LOCAL = ExecutorUnderTest("local")
SOURCE = hr.json("landing", SCHEMA, explode="items")


def rows(source: hr.FileSource = SOURCE, **more: Any) -> hr.Pipeline:
    timed_input = source.event_time("at", bound="0s")
    return hr.Pipeline("made", timed_input, rows=["id", "sku", "amount", "since"], executor="local", **more)


def item(sku: Any, amount: Any = None, moment: Any = None) -> dict[str, Any]:
    return {
        "sku": sku,
        "price": None if amount is None else {"amount": amount, "unit": "NOK"},
        "since": moment,
        "x": [1],
    }


def land(root: Path, name: str, *records: Any) -> None:
    (root / "landing").mkdir(exist_ok=True)
    lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
    (root / f"landing/{name}.json").write_text("".join(f"{line}\n" for line in lines))


def order(id: int, items: Any, **more: Any) -> dict[str, Any]:  # noqa: A002
    return {"id": id, "items": items, "at": TIME, **more}


def current(pipeline: hr.Pipeline, root: Path, *columns: str) -> Counter[tuple[Any, ...]]:
    table = read(pipeline, root.as_uri(), "current", "main")
    return Counter(tuple(row[name] for name in columns) for row in table.to_pylist())


@on_both
def test_each_object_is_a_record_with_its_fields(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    land(
        tmp_path,
        "1",
        order(1, [item("a", 1.5, TIME), item("b"), None, {}]),
        "torn",
        order(2, []),
        order(3, None),
        {"id": 4, "at": TIME},
        order(5, [item("a", "0.000000001")]),
    )
    executor.run(rows(), tmp_path.as_uri(), publish=False)
    moment_since = datetime.fromisoformat(TIME)
    assert current(rows(), tmp_path, "id", "sku", "amount", "since") == Counter(
        {
            (1, "a", Decimal("1.5"), moment_since): 1,
            (1, "b", None, None): 1,
            (1, None, None, None): 2,
            (5, "a", Decimal("0.000000001"), None): 1,
        }
    )
    (dead,) = read(rows(), tmp_path.as_uri(), "rejected", "main").to_pylist()
    assert (dead["position"], dead["reason"]) == (1, "not a JSON object")


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        ({"sku": "a"}, "column sku (items.sku): items is not a list of objects"),
        (["a"], "column sku (items.sku): items is not a list of objects"),
        ([item("a"), item(7)], "column sku (items.sku): not a list of string"),
        ([{"sku": "a", "price": 3}], "column amount (items.price.amount): items.price is not an object"),
        ([item("a", "much")], "column amount (items.price.amount): not a list of decimal"),
        ([item("a", 1, "soon")], "column since (items.since): not a list of timestamp"),
    ],
)
def test_an_object_that_does_not_fit_makes_its_record_a_dead_letter(tmp_path: Path, items: Any, reason: str) -> None:
    land(tmp_path, "1", order(1, [item("good")]), order(2, items), order(3, [item("z")]))
    LOCAL.run(rows(), tmp_path.as_uri(), publish=False)
    assert current(rows(), tmp_path, "id", "sku") == Counter([(1, "good"), (3, "z")])
    (dead,) = read(rows(), tmp_path.as_uri(), "rejected", "main").to_pylist()
    assert (dead["position"], dead["reason"]) == (1, reason)


_ITEMS = st.lists(
    st.none()
    | st.fixed_dictionaries(
        {},
        optional={
            "sku": st.none() | st.text(max_size=2) | st.just(7),
            "price": st.none() | st.fixed_dictionaries({}, optional={"amount": st.none() | st.integers(-2, 2)}),
        },
    ),
    max_size=3,
)


@given(st.lists(st.none() | _ITEMS, max_size=8))
@settings(examples(40), suppress_health_check=list(HealthCheck))
def test_random_objects_are_read_one_by_one(several: list[list[dict[str, Any] | None] | None]) -> None:
    expected: Counter[tuple[Any, ...]] = Counter()
    for number, items in enumerate(several):
        found_items = [((one or {}).get("sku"), ((one or {}).get("price") or {}).get("amount")) for one in items or ()]
        if not any(sku == 7 for sku, _ in found_items):
            expected.update((number, sku, None if amount is None else Decimal(amount)) for sku, amount in found_items)
    with TemporaryDirectory() as folder:
        root = Path(folder)
        land(root, "1", *[order(number, items) for number, items in enumerate(several)])
        LOCAL.run(rows(), root.as_uri(), publish=False)
        assert (current(rows(), root, "id", "sku", "amount") if several else Counter()) == expected


@on_both
def test_parquet_is_read_as_json_is(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    records = [
        order(1, [item("a", 1.5, TIME), item("b")]),
        order(2, []),
        order(3, None),
        order(4, [None, item(None, 2)]),
    ]
    price = pa.struct([("unit", pa.string()), ("amount", pa.decimal128(20, 3))])
    kind = pa.struct(
        [("x", pa.list_(pa.int64())), ("sku", pa.string()), ("price", price), ("since", pa.timestamp("ms"))]
    )

    def stored_item(one: dict[str, Any] | None) -> dict[str, Any] | None:
        if one is None:
            return None
        moment_since = None if one["since"] is None else datetime.fromisoformat(one["since"])
        paid_price = None if one["price"] is None else {"unit": "NOK", "amount": Decimal(str(one["price"]["amount"]))}
        return {**one, "since": moment_since, "price": paid_price}

    values = [None if record["items"] is None else [*map(stored_item, record["items"])] for record in records]
    columns = {
        "items": pa.array(values, pa.large_list(kind)),
        "id": pa.array([record["id"] for record in records]),
        "at": pa.array([datetime.fromisoformat(TIME)] * len(records), pa.timestamp("us", "UTC")),
    }
    (tmp_path / "landing").mkdir()
    pq.write_table(pa.table(columns), tmp_path / "landing/1.parquet")
    of_parquet = rows(hr.parquet("landing", SCHEMA, explode="items"))
    executor.run(of_parquet, tmp_path.as_uri(), publish=False)
    found_rows = current(of_parquet, tmp_path, "id", "sku", "amount", "since")
    other = tmp_path / "json"
    other.mkdir()
    land(other, "1", *records)
    LOCAL.run(rows(), other.as_uri(), publish=False)
    assert found_rows == current(rows(), other, "id", "sku", "amount", "since")
    assert sum(found_rows.values()) == 4


@pytest.mark.parametrize("names", [("a", "tags"), ("tags", "a"), ("tags",)])
def test_a_field_that_no_object_of_a_parquet_file_has_is_null_in_each(tmp_path: Path, names: tuple[str, ...]) -> None:
    items = pa.array([[{"a": 1}, None], None, [], [{"a": 2}]], pa.list_(pa.struct([("a", pa.int64())])))
    columns = {"items": items, "id": pa.array(range(4)), "at": pa.array([datetime.fromisoformat(TIME)] * 4)}
    (tmp_path / "landing").mkdir()
    pq.write_table(pa.table(columns), tmp_path / "landing/1.parquet")
    fields = {"a": hr.field("items.a", int), "tags": hr.field("items.tags", str)}
    schema = {"id": int, **{name: fields[name] for name in names}, "at": datetime}
    source = hr.parquet("landing", schema, explode="items", missing="null")
    pipeline = hr.Pipeline("made", source.event_time("at", bound="0s"), rows=["id", *names], executor="local")
    LOCAL.run(pipeline, tmp_path.as_uri(), publish=False)
    expected = [{"id": 0, "a": 1, "tags": None}, {"id": 0, "a": None, "tags": None}, {"id": 3, "a": 2, "tags": None}]
    assert current(pipeline, tmp_path, "id", *names) == Counter(
        tuple(row[name] for name in ("id", *names)) for row in expected
    )


def test_a_column_that_is_no_list_of_objects_ends_the_run_of_parquet(tmp_path: Path) -> None:
    (tmp_path / "landing").mkdir()
    columns = {"items": pa.array([["a"]]), "id": pa.array([1]), "at": pa.array([datetime.fromisoformat(TIME)])}
    pq.write_table(pa.table(columns), tmp_path / "landing/1.parquet")
    of_parquet = rows(hr.parquet("landing", SCHEMA, explode="items"))
    with pytest.raises(FileColumnsError, match="its column items is string, and the source says that sku is in it"):
        LOCAL.run(of_parquet, tmp_path.as_uri(), publish=False)


def test_a_row_of_an_envelope_goes_with_its_objects(tmp_path: Path) -> None:
    one, other = order(1, [item("a", 1), item("b", 2)]), order(1, [item("b", 2)])
    land(tmp_path, "1", {"op": "c", "before": None, "after": one}, {"op": "u", "before": one, "after": other})
    signed_rows = rows(hr.json("landing", SCHEMA, explode="items", changelog=hr.debezium_envelope()))
    LOCAL.run(signed_rows, tmp_path.as_uri(), publish=False)
    assert current(signed_rows, tmp_path, "sku", "amount") == Counter([("b", Decimal(2))])


def test_objects_are_grouped_by_their_fields(tmp_path: Path) -> None:
    definition = hr.Pipeline(
        "made",
        SOURCE.event_time("since", bound="0s"),
        key="sku",
        what={"n": hr.count(), "amount": col("amount").sum()},
        where=hr.FixedWindows("1h"),
        when=hr.on_update(),
        filter=col("amount") > 0,
        executor="local",
    )
    land(tmp_path, "1", order(1, [item("a", 1, TIME), item("b", 2, TIME), item("a", 3, TIME), item("c", -1, TIME)]))
    LOCAL.run(definition, tmp_path.as_uri(), publish=False)
    assert current(definition, tmp_path, "sku", "n", "amount") == Counter([("a", 2, Decimal(4)), ("b", 1, Decimal(2))])


@pytest.mark.parametrize("source", [SOURCE, hr.parquet("landing", SCHEMA, explode="items")], ids=["json", "parquet"])
def test_unit_tests_write_fields_as_lists(source: hr.FileSource) -> None:
    record = {"id": 1, "sku": ["a", None], "amount": [Decimal(1), Decimal(2)], "since": None, "at": TIME}
    result = run(rows(source), [given_rows({**record, "since": [None, None]})])
    assert sorted(row.values["sku"] or "" for row in result.panes) == ["", "a"]


@pytest.mark.parametrize(
    ("build_source", "why"),
    [
        (lambda: hr.csv("landing", SCHEMA, explode="items"), "lists of objects are not read; land JSON or Parquet"),
        (lambda: hr.json("landing", SCHEMA, explode="things"), "the schema has no such column"),
        (lambda: hr.published("orders", {"a": hr.field("items.a", int)}, explode="items"), "panes have none"),
        (
            lambda: hr.spark_source("orders:Orders", {"a": hr.field("items.a", int)}, explode="items"),
            "give a row of each",
        ),
    ],
)
def test_what_is_refused(build_source: Any, why: str) -> None:
    with pytest.raises(PipelineError, match=why):
        build_source()


def test_a_list_of_objects_is_another_definition_than_an_object(tmp_path: Path) -> None:
    land(tmp_path, "1", order(1, [item("a")]))
    LOCAL.run(rows(), tmp_path.as_uri())
    with pytest.raises(ChangedPipelineError):
        LOCAL.run(rows(hr.json("landing", SCHEMA)), tmp_path.as_uri())
    assert rows().schema["amount"] is hr.DataType.DECIMAL
