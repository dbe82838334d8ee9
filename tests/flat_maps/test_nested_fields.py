"""Nested fields of the objects of an exploded list: structs, lists, maps and lists of objects, each by its place."""

import json
from collections import Counter
from datetime import date
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from types import GenericAlias
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.errors import PipelineError
from headrace.read.views.arrow_types import python_rows
from headrace.testing import rows as given_rows
from headrace.testing import run
from tests.process.executors import ExecutorUnderTest, on_both
from tests.reading import read
from tests.reference.strategies import examples
from tests.rows.test_nested import as_text, expected_value

OF_ITEMS: dict[str, Any] = {
    "place": {"city": str, "at": {"day": date, "x": float}},
    "tags": list[str],
    "marks": GenericAlias(dict, (str, {"points": Decimal})),
    "lines": GenericAlias(list, ({"n": int, "grid": list[list[float]]},)),
    "bulk": list[float],
}
DEEP = "inner"
"""The column whose field lies in an object of each item, and the list in an object of the record."""
NAMES = ["id", *OF_ITEMS, DEEP]
SCHEMA: dict[str, Any] = {
    "id": int,
    **{name: hr.field(f"order.items.{name}", kind) for name, kind in OF_ITEMS.items()},
    DEEP: hr.field("order.items.box.marks", dict[str, int]),
    "at": hr.field("t", str),
}
TIME = "2026-05-01T00:00:00Z"
LOCAL = ExecutorUnderTest("local")


def exploded_source(source: Any = hr.json, **more: Any) -> Any:
    return source("landing", {**SCHEMA, "at": hr.field("t", hr.DataType.TIMESTAMP)}, explode="order.items", **more)


def item_rows(source: Any = None, **more: Any) -> hr.Pipeline:
    timed_input = (exploded_source() if source is None else source).event_time("at", bound="0s")
    return hr.Pipeline("made", timed_input, rows=NAMES, executor="local", **more)


_FLOATS = st.sampled_from([None, 0.0, -1.5])
_MARKS = st.none() | st.dictionaries(st.sampled_from("ab"), st.none() | st.integers(0, 2), max_size=2)
_ITEM = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "place": st.none()
        | st.fixed_dictionaries(
            {},
            optional={
                "city": st.sampled_from([None, "Oslo", "é"]),
                "at": st.none()
                | st.fixed_dictionaries({"x": _FLOATS}, optional={"day": st.sampled_from([None, "2026-05-01"])}),
            },
        ),
        "tags": st.none() | st.lists(st.sampled_from([None, "a", ""]), max_size=2),
        "marks": st.none()
        | st.dictionaries(
            st.sampled_from("ab"),
            st.none() | st.fixed_dictionaries({}, optional={"points": st.sampled_from([None, 1, "2.5"])}),
            max_size=2,
        ),
        "lines": st.none()
        | st.lists(
            st.none()
            | st.fixed_dictionaries(
                {},
                optional={
                    "n": st.none() | st.integers(0, 2),
                    "grid": st.none() | st.lists(st.none() | st.lists(_FLOATS, max_size=2), max_size=2),
                },
            ),
            max_size=2,
        ),
        "bulk": st.none() | st.lists(_FLOATS, max_size=2),
        "box": st.none() | st.fixed_dictionaries({}, optional={"marks": _MARKS}),
        "other": st.just({"a": [1]}),
    },
)
_ORDERS = st.lists(
    st.none() | st.fixed_dictionaries({}, optional={"items": st.none() | st.lists(_ITEM, max_size=3)}), max_size=6
)


def expected_item(one: dict[str, Any] | None, number: int) -> dict[str, Any]:
    """What a row of one object has, by the names of columns; a day as text."""
    own = one or {}
    fields = {name: expected_value(kind, own.get(name)) for name, kind in OF_ITEMS.items()}
    return {"id": number, **fields, DEEP: expected_value(dict[str, int], (own.get("box") or {}).get("marks"))}


def expected_texts(orders: list[dict[str, Any] | None]) -> Counter[str]:
    items = [(number, item) for number, one in enumerate(orders) for item in (one or {}).get("items") or ()]
    return Counter(as_text(expected_item(item, number), NAMES) for number, item in items)


def land(root: Path, orders: list[dict[str, Any] | None]) -> None:
    (root / "landing").mkdir(exist_ok=True)
    lines = [json.dumps({"id": number, "order": one, "t": TIME}) for number, one in enumerate(orders)]
    (root / "landing/1.json").write_text("".join(f"{line}\n" for line in lines))


def current_texts(pipeline: hr.Pipeline, root: Path) -> Counter[str]:
    return Counter(as_text(row, NAMES) for row in python_rows(read(pipeline, root.as_uri(), "current", "main")))


@given(_ORDERS)
@settings(examples(40), suppress_health_check=list(HealthCheck))
def test_random_objects_are_read_one_by_one(orders: list[dict[str, Any] | None]) -> None:
    with TemporaryDirectory() as folder:
        root = Path(folder)
        land(root, orders)
        LOCAL.run(item_rows(), root.as_uri(), publish=False)
        assert (current_texts(item_rows(), root) if orders else Counter()) == expected_texts(orders)


ORDERS: list[dict[str, Any] | None] = [
    {
        "items": [
            {
                "place": {"city": "Oslo", "at": {"x": -0.0, "day": "2026-05-01"}},
                "tags": ["a", None],
                "marks": {"b": {"points": "2.5"}, "a": None},
                "lines": [{"n": 1, "grid": [[0.0, None], None]}, None, {}],
                "bulk": [1.5, None],
                "box": {"marks": {"a": 1}},
            },
            None,
            {"place": {}, "tags": [], "marks": {}, "lines": [], "box": {}},
        ]
    },
    {"items": []},
    None,
    {"items": [{"tags": ["z"]}]},
]


@on_both
def test_both_executors_read_them_of_json_and_of_parquet(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    of_json, of_parquet = tmp_path / "json", tmp_path / "parquet"
    for root in (of_json, of_parquet):
        root.mkdir()
    land(of_json, ORDERS)
    executor.run(item_rows(), of_json.as_uri(), publish=False)
    assert current_texts(item_rows(), of_json) == expected_texts(ORDERS)

    grid = pa.list_(pa.list_(pa.float32()))
    at_type = pa.struct([("x", pa.float64()), ("day", pa.date32())])
    kind = pa.struct(
        [
            ("place", pa.struct([("at", at_type), ("city", pa.string())])),
            ("tags", pa.large_list(pa.string())),
            ("marks", pa.map_(pa.string(), pa.struct([("points", pa.decimal128(5, 1))]))),
            ("lines", pa.list_(pa.struct([("grid", grid), ("n", pa.int32())]))),
            ("bulk", pa.list_(pa.float32())),
            ("box", pa.struct([("marks", pa.map_(pa.string(), pa.int64()))])),
        ]
    )

    def stored_item(one: dict[str, Any] | None) -> dict[str, Any] | None:
        if one is None:
            return None
        item: dict[str, Any] = json.loads(json.dumps(one))
        if (item.get("place") or {}).get("at"):
            item["place"]["at"]["day"] = date(2026, 5, 1)
        if item.get("marks") is not None:
            item["marks"] = [
                (k, None if v is None else {"points": Decimal(v["points"])}) for k, v in item["marks"].items()
            ]
        if (item.get("box") or {}).get("marks") is not None:
            item["box"]["marks"] = [*item["box"]["marks"].items()]
        return item

    stored_orders = [None if one is None else {"items": [*map(stored_item, one["items"])]} for one in ORDERS]
    (of_parquet / "landing").mkdir()
    columns = {
        "order": pa.array(stored_orders, pa.struct([("items", pa.list_(kind))])),
        "id": pa.array(range(len(ORDERS))),
        "t": pa.array([TIME] * len(ORDERS)).cast(pa.timestamp("us", "UTC")),
    }
    pq.write_table(pa.table(columns), of_parquet / "landing/1.parquet")
    pipeline = item_rows(exploded_source(hr.parquet))
    executor.run(pipeline, of_parquet.as_uri(), publish=False)
    assert current_texts(pipeline, of_parquet) == expected_texts(ORDERS)


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ({"place": 1}, "column place (order.items.place): not a list of struct of"),
        ({"place": {"at": {"day": "soon"}}}, "column place (order.items.place): not a list of struct of"),
        ({"tags": "a"}, "column tags (order.items.tags): not a list of list of string"),
        ({"lines": [[1]]}, "column lines (order.items.lines): not a list of list of struct of"),
        ({"box": 3}, "column inner (order.items.box.marks): order.items.box is not an object"),
        ('{"marks": {"a": null, "a": null}}', "column marks (order.items.marks): not a list of map of string to"),
    ],
)
def test_one_that_does_not_fit_makes_its_record_a_dead_letter(tmp_path: Path, item: Any, reason: str) -> None:
    land(tmp_path, [{"items": [{"tags": ["good"]}]}])
    text = item if isinstance(item, str) else json.dumps(item)
    with (tmp_path / "landing/1.json").open("a") as file:
        file.write(f'{{"id": 1, "order": {{"items": [{{}}, {text}]}}, "t": "{TIME}"}}\n')
    LOCAL.run(item_rows(), tmp_path.as_uri(), publish=False)
    assert sum(current_texts(item_rows(), tmp_path).values()) == 1
    (dead,) = read(item_rows(), tmp_path.as_uri(), "rejected", "main").to_pylist()
    assert dead["position"] == 1
    assert dead["reason"].startswith(reason)


def given_records(orders: list[dict[str, Any] | None]) -> list[dict[str, Any]]:
    """The records as a unit test writes them: a column is the list of what its field is in each object."""
    records = []
    for number, one in enumerate(orders):
        items = (one or {}).get("items")
        columns: dict[str, Any] = dict.fromkeys((*OF_ITEMS, DEEP))
        if items is not None:
            columns = {name: [(item or {}).get(name) for item in items] for name in OF_ITEMS}
            columns[DEEP] = [((item or {}).get("box") or {}).get("marks") for item in items]
        records.append({"id": number, **columns, "at": TIME})
    return records


PLACE, TAGS, LINES = col("place"), col("tags"), col("lines")
READERS = {
    "rows": item_rows(filter=(PLACE.field("city") != "é") | TAGS.contains("a") | PLACE.is_null()),
    "parts": hr.Pipeline(
        "made",
        exploded_source().event_time("at", bound="0s"),
        rows={
            "x": PLACE.field("at").field("x"), "first": TAGS.item(0), "n": LINES.item(-1).field("n"),
            "points": col("marks").item("a").field("points"), "inner": col(DEEP).length(),
            "same": TAGS.slice(0, 1) == TAGS,
        },
        executor="local",
    ),
    "panes": hr.Pipeline(
        "made",
        exploded_source().event_time("at", bound="0s"),
        key={"city": hr.coalesce(PLACE.field("city"), "nowhere")},
        what={"n": hr.count(), "all": LINES.collect(), "most": col("marks").max_by(col("id")), "tags": TAGS.distinct(),
              "bulk": col("bulk").last(), "sum": col(DEEP).item("a").sum()},
        where=hr.FixedWindows("1h"), when=hr.on_update(), how=hr.retracting("1d"), executor="local",
    ),
    "groups": hr.Pipeline(
        "made", exploded_source().event_time("at", bound="0s"), key="id", rows=[*OF_ITEMS, DEEP], take=hr.distinct(),
        executor="local",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", READERS)
@given(orders=_ORDERS, cut=st.integers(0, 6))
@settings(examples(30, fewest=4), suppress_health_check=list(HealthCheck))
def test_what_reads_them_gives_what_the_reference_gives(
    name: str, orders: list[dict[str, Any] | None], cut: int
) -> None:
    records = given_records(orders)
    steps = [given_rows(*part) for part in (records[:cut], records[cut:]) if part]
    local, reference = (
        Counter(as_text(pane.row, sorted(pane.row)) for pane in run(READERS[name], steps, executor=one).panes)
        for one in ("local", "reference")
    )
    assert local == reference


def test_the_deepest_one_is_an_item_itself() -> None:
    def source(levels: int) -> hr.FileSource:
        return hr.json("landing", {"a": hr.field("items.a", objects(levels))}, explode="items")

    assert source(19).columns["a"] == hr.json("landing", {"a": objects(19)}).columns["a"]
    with pytest.raises(PipelineError, match="nested deeper than 20 levels"):
        source(20)


def objects(levels: int) -> Any:
    """An object in an object, so many levels deep."""
    kind: Any = int
    for _ in range(levels - 1):
        kind = {"a": kind}
    return kind
