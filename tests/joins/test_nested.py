"""Structs, maps and lists as columns of joins, and joins by parts of them: as the reference says, and run by run."""

import json
from collections import Counter
from datetime import datetime
from pathlib import Path
from types import GenericAlias
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.errors import PipelineError
from headrace.testing import rows, run
from tests.reference.strategies import examples
from tests.rows.orders import Orders
from tests.rows.test_nested import PLAIN, SIGNED_SOURCE, as_text, put, records

INFO: dict[str, Any] = {
    "id": str,
    "place": {"city": str, "seen": datetime},
    "marks": dict[str, int],
    "names": list[str],
    "lines": GenericAlias(list, ({"sku": str, "marks": dict[str, int]},)),
}
SCHEMA: dict[str, Any] = {**INFO, "sign": int, "at": datetime}
INFOS = hr.json("landing/infos", SCHEMA).event_time("at", bound="1h").named("infos")
SIGNED_INFOS = hr.json("landing/infos", SCHEMA, changelog=col("sign")).event_time("at", bound="1h").named("infos")
RIGHT_NAMES = ["place", "marks", "names", "lines"]
CITY = col("address").field("city")


def info(id: str, sign: int = 1, minute: int = 0, **values: Any) -> dict[str, Any]:  # noqa: A002
    values = {**dict.fromkeys(RIGHT_NAMES), **values}
    return {"id": id, **values, "sign": sign, "at": f"2026-05-01T00:{minute:02}:00Z"}


def join_orders(source: Any, *join: Any, **parts: Any) -> hr.Pipeline:
    return hr.Pipeline("orders", source, join=join, executor="local", **parts)


JOINS: dict[str, Any] = {
    "the version that held": lambda right: hr.as_of(right, "id", columns=RIGHT_NAMES, outer=True),
    "all of an interval": lambda right: hr.within(right, "id", between=("-1m", "1m"), columns=RIGHT_NAMES),
    "by a part": lambda right: hr.within(
        right,
        {CITY: col("place").field("city")},
        between=("-1m", "1m"),
        columns={"a": col("marks").item("a"), "place": "place", "names": "names", "marks": "marks", "lines": "lines"},
        where=col("marks").length() > 0,
        outer=True,
    ),
    "the next, which comes first by a part": lambda right: hr.next_event(
        right, "id", within="1m", order=col("marks").item("b"), columns=RIGHT_NAMES, outer=True, spread=3
    ),
    "in a window": lambda right: hr.same_window(
        right, {"id": col("names").item(0)}, window=hr.FixedWindows("1m"), columns=RIGHT_NAMES
    ),
}
PARTS_BEHIND: dict[str, Any] = {
    "rows": {"rows": {"id": col("id"), "tags": col("tags"), "place": col("place"), "lines": col("lines")}},
    "parts": {
        "rows": {
            "sku": col("lines").item(0).field("sku"),
            "city": col("place").field("city"),
            "b": col("marks").item("b"),
            "n": col("names").length(),
        }
    },
    "sums": {
        "key": {"city": col("place").field("city")},
        "what": {"n": hr.count(), "b": col("marks").item("b").sum(), "x": col("tags").item("a").sum()},
        "where": hr.FixedWindows("1h"),
        "null_keys": True,
    },
    "groups": {"key": "id", "rows": ["address", "place", "marks", "lines"], "take": hr.distinct()},
}
_MARKS = st.none() | st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from([None, 1, 2]), max_size=2)
_PLACES = st.none() | st.fixed_dictionaries({"city": st.sampled_from(["Oslo", None])})
_NAMES = st.none() | st.lists(st.sampled_from(["a", "b", None]), max_size=2)
_LINES = st.none() | st.lists(
    st.none() | st.fixed_dictionaries({}, optional={"sku": st.sampled_from(["s", None]), "marks": _MARKS}), max_size=2
)


@st.composite
def infos(draw: st.DrawFn) -> list[dict[str, Any]]:
    return [
        info(
            draw(st.sampled_from(["a", "b"])),
            draw(st.sampled_from([1, 1, -1])),
            draw(st.integers(0, 1)),
            place=draw(_PLACES),
            marks=draw(_MARKS),
            names=draw(_NAMES),
            lines=draw(_LINES),
        )
        for _ in range(draw(st.integers(1, 4)))
    ]


@pytest.mark.parametrize("name", JOINS)
@given(
    left=records(),
    right=infos(),
    order=st.integers(0, 3),
    parts_behind=st.sampled_from([*PARTS_BEHIND]),
    sides=st.tuples(st.sampled_from([PLAIN, SIGNED_SOURCE]), st.sampled_from([INFOS, SIGNED_INFOS])),
)
@settings(examples(60, fewest=4), suppress_health_check=list(HealthCheck))
def test_joined_rows_are_those_of_the_reference(  # noqa: PLR0917 - drawn by name
    name: str, left: Any, right: Any, order: int, parts_behind: str, sides: tuple[Any, hr.Input]
) -> None:
    pipeline = join_orders(sides[0], JOINS[name](sides[1]), **PARTS_BEHIND[parts_behind])
    compare_with_reference(pipeline, left, right, order)


ARRIVING = hr.json("landing/infos", SCHEMA).arrival_time().named("infos")
LOOKUPS: dict[str, Any] = {
    "what is known": lambda: hr.lookup(ARRIVING, "id", columns=RIGHT_NAMES, outer=True),
    "by a part": lambda: hr.lookup(
        ARRIVING,
        {CITY: col("place").field("city")},
        order=col("marks").item("b"),
        deleted=col("marks").contains("a") & (col("marks").item("a") == 2),
        columns=RIGHT_NAMES,
        outer=True,
        spread=3,
    ),
}


@pytest.mark.parametrize("name", LOOKUPS)
@given(left=records(), right=infos(), order=st.integers(0, 3), parts_behind=st.sampled_from([*PARTS_BEHIND]))
@settings(examples(60, fewest=4), suppress_health_check=list(HealthCheck))
def test_what_is_looked_up_is_as_the_reference_says(
    name: str, left: Any, right: Any, order: int, parts_behind: str
) -> None:
    compare_with_reference(join_orders(PLAIN, LOOKUPS[name](), **PARTS_BEHIND[parts_behind]), left, right, order)


def compare_with_reference(pipeline: hr.Pipeline, left: Any, right: Any, order: int) -> None:
    steps = [rows(*left[:2]), rows(*right[:2], of="infos"), rows(*left[2:]), rows(*right[2:], of="infos")]
    steps = [*steps[order:], *steps[:order]]
    standing_rows = []
    for executor in ("local", "reference"):
        result = run(pipeline, steps, executor=executor)
        standing = [{**row.key, **row.values} for row in result.current]
        standing_rows.append(Counter(as_text(row, sorted(row)) for row in standing))
    assert standing_rows[0] == standing_rows[1]


LINES: list[Any] = [{"marks": {"y": None, "x": 1}}, None]
LANDED_RECORDS = [
    ([put("a", tags={"x": 1}), put("b", address={"city": "Oslo"})], [info("a", place={"city": "Rome"}, names=["n"])]),
    ([put("c"), put("a", -1, tags={"x": 1})], [info("b", marks={"b": 1, "a": None}), info("c", names=[], lines=LINES)]),
    ([], [info("b", -1, marks={"a": None, "b": 1}), info("b", minute=0, marks={"a": 2})]),
]
STANDING = {
    ("b", '{"city": "Oslo", "place": null}', "null", '{"a": 2}', "null", "null"),
    ("c", "null", "null", "null", "[]", '[{"sku": null, "marks": {"x": 1, "y": null}}, null]'),
}


def land(orders: Orders, number: int) -> None:
    left, right = LANDED_RECORDS[number]
    folder = orders.folder / "landing/infos"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{number}.json").write_text("".join(json.dumps(one) + "\n" for one in right))
    if left:
        orders.land(str(number), *left)


def standing(orders: Orders, pipeline: hr.Pipeline, **options: Any) -> set[tuple[str, ...]]:
    current_rows = orders.handle(pipeline).current(columns=["id", *NAMES], **options).to_json()
    return {(row["id"], *(json.dumps(row[name]) for name in NAMES)) for row in current_rows}


NAMES = ("address", "place", "marks", "names", "lines")


def versions() -> hr.Pipeline:
    return join_orders(
        SIGNED_SOURCE, hr.as_of(SIGNED_INFOS, "id", columns=RIGHT_NAMES, outer=True), rows=["id", *NAMES]
    )


def test_runs_keep_both_sides(tmp_path: Path) -> None:
    orders, pipeline = Orders(tmp_path), versions()
    for number in range(len(LANDED_RECORDS)):
        land(orders, number)
        orders.run(pipeline)
    assert standing(orders, pipeline) == STANDING
    (explained_join,) = orders.handle(pipeline).explain(key={"id": "b"}).to_json()["joins"]
    (row,) = explained_join["rows"]
    assert row["values"]["address"] == {"city": "Oslo", "place": None}
    assert [partner["values"]["marks"] for partner in row["partners"]] == [{"a": 2}]


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_runs_on_spark_keep_both_sides(tmp_path: Path) -> None:
    orders, pipeline = Orders(tmp_path), versions()
    for number in range(len(LANDED_RECORDS)):
        land(orders, number)
        hr.open(orders.root)[pipeline].run(executor="spark", publish=False)
    assert standing(orders, pipeline, at="main") == STANDING


def test_all_that_is_not_compared_comes_along() -> None:
    right = hr.json("landing/infos", {**INFO, "at": datetime}).event_time("at", bound="1h").named("infos")
    assert [*join_orders(PLAIN, hr.as_of(right, "id"), rows=["id", *RIGHT_NAMES]).join[0].columns] == RIGHT_NAMES


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: hr.as_of(INFOS, {"id": "marks"}, columns=["place"]), "a map of string to int is no value"),
        (lambda: hr.as_of(INFOS, {"tags": "id"}, columns=["place"]), "'tags' is map of string to int on the left"),
        (lambda: hr.as_of(INFOS, {col("address"): "id"}, columns=["place"]), "'address' is struct of"),
        (lambda: hr.as_of(INFOS, "id", order="marks", columns=["place"]), "it has no order"),
        (lambda: hr.as_of(INFOS, "id", columns={"x": col("place").field("town")}), "there is no field 'town'"),
    ],
)
def test_what_is_no_value_is_refused(wrong: Any, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        join_orders(PLAIN, wrong(), rows=["id"])
