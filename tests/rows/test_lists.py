"""Lists as columns of rows: they go again, are told from each other, and are read of panes and rows above."""

import math
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.errors import AuditFailedError, QueryError
from tests.reading import zoneless_rows
from tests.rows.orders import Orders, order
from tests.rows.test_delivered_rows import Log, Table
from tests.sinks.given_target import delivering_to
from tests.sinks.worlds import DeltaWorld

SCHEMA = {"id": str, "tags": list[str], "weights": list[float], "sign": int, "at": datetime}
SIGNED_SOURCE = hr.json("landing/orders", SCHEMA, changelog=col("sign")).event_time("at", bound="1h")
PLAIN = hr.json("landing/orders", SCHEMA).event_time("at", bound="1h")


@pytest.fixture
def orders(tmp_path: Path) -> Orders:
    return Orders(tmp_path)


def tagged_rows(**more: Any) -> hr.Pipeline:
    """Rows with lists, which can be withdrawn."""
    return hr.Pipeline("orders", SIGNED_SOURCE, rows=["id", "tags", "weights"], executor="local", **more)


def put(id: str, tags: Any, weights: Any = None, sign: int = 1, minute: int = 0) -> dict[str, Any]:  # noqa: A002
    return order(id, 1, minute, tags=tags, weights=weights, sign=sign)


def standing(orders: Orders, pipeline: hr.Pipeline, *names: str, **options: Any) -> Counter[str]:
    """What stands, as text, by these columns."""
    rows = zoneless_rows(orders.handle(pipeline).current(columns=[*names], **options).to_arrow())
    return Counter(str([row[name] for name in names]) for row in rows)


LISTS: list[Any] = [None, [], [None], ["x"], ["x", None], ["x", "y"], ["y"]]


def test_a_row_with_a_list_goes_as_it_came(orders: Orders) -> None:
    orders.run(tagged_rows(), *[put("a", tags) for tags in LISTS for _ in range(2)])
    orders.run(tagged_rows(), *[put("a", tags, sign=-1) for tags in LISTS], put("a", ["y"], sign=-1))
    expected = Counter(str(["a", tags]) for tags in LISTS if tags != ["y"])
    assert standing(orders, tagged_rows(), "id", "tags") == expected
    assert orders.handle(tagged_rows()).current().count() == len(LISTS) - 1


def test_lists_of_floats_are_the_same_where_floats_are(orders: Orders) -> None:
    source = hr.json("landing/orders", SCHEMA, changelog=col("sign")).event_time("at", bound="1h")
    columns = {"id": col("id"), "weights": col("weights")}
    pipeline = hr.Pipeline("orders", source, rows=columns, executor="local")
    orders.run(pipeline, put("a", [], [0.0, 1.5]), put("b", [], [2.0]))
    orders.run(pipeline, put("a", [], [-0.0, 1.5], sign=-1))
    assert standing(orders, pipeline, "id", "weights") == Counter({str(["b", [2.0]]): 1})


def test_many_epochs_of_lists_are_folded_and_differ(orders: Orders) -> None:
    expected: Counter[str] = Counter()
    for number in range(30):
        tags, sign = LISTS[number % 7], -1 if number % 3 == 2 else 1
        orders.run(tagged_rows(), put("a", tags, sign=sign))
        expected[str(["a", tags])] += sign
    assert standing(orders, tagged_rows(), "id", "tags") == +expected
    handle = orders.handle(tagged_rows())
    first, last = (handle.snapshots().to_json()[place]["snapshot"] for place in (0, -1))
    expected_left = +expected
    assert sum(expected_left.values()) == handle.current().count()
    difference = handle.diff(first, last)
    assert difference.output.rows.added - difference.output.rows.removed == sum(expected_left.values()) - 1


@pytest.mark.parametrize("source", [PLAIN, SIGNED_SOURCE], ids=["appended", "signed"])
@pytest.mark.parametrize(
    ("take", "expected"),
    [
        (hr.newest(), [["y"]]),
        (hr.top(3, by="id"), [["y"], ["y"], ["x", "y"]]),
        (hr.distinct(), LISTS),
    ],
    ids=["newest", "top", "distinct"],
)
def test_rows_of_a_group_go_by_their_lists_at_last(orders: Orders, source: Any, take: Any, expected: list[Any]) -> None:
    taking = hr.Pipeline("orders", source, key="id", rows=["tags"], take=take, executor="local")
    for tags in LISTS[::2] + LISTS[1::2] + LISTS:
        orders.run(taking, put("a", tags))
    assert standing(orders, taking, "id", "tags") == Counter(str(["a", tags]) for tags in expected)


def test_another_pipeline_reads_lists_of_rows_and_goes_back_with_them(orders: Orders) -> None:
    read = hr.published("orders", {"id": str, "tags": list[str]})
    pipeline_below = hr.Pipeline("below", read, rows={"tags": col("tags"), "n": col("tags").length()}, executor="local")
    orders.run(tagged_rows(), put("a", ["x"]), put("b", ["x", None]), put("c", None))
    first = orders.handle(tagged_rows()).catalog.head().refs["published"]
    orders.run(pipeline_below)
    orders.run(tagged_rows(), put("b", ["x", None], sign=-1), put("d", []))
    orders.run(pipeline_below)
    now = Counter({str([["x"], 1]): 1, str([None, None]): 1, str([[], 0]): 1})
    assert standing(orders, pipeline_below, "tags", "n") == now
    orders.handle(tagged_rows()).rollback(to=first)
    orders.run(pipeline_below)
    assert standing(orders, pipeline_below, "tags", "n") == now - Counter([str([[], 0])]) + Counter(
        [str([["x", None], 2])]
    )


def test_a_reader_of_all_columns_of_another_pipeline_names_lists_itself() -> None:
    source = hr.published("orders", tagged_rows()).source
    assert "id" in source.schema and "tags" not in source.schema  # a definition of an older version stays what it was


def test_conditions_of_readers_read_lists(orders: Orders) -> None:
    orders.run(tagged_rows(), *[put(f"{number}", tags) for number, tags in enumerate(LISTS)])
    view = orders.handle(tagged_rows()).current
    assert {row["id"] for row in view(where=col("tags").length() > 1).to_json()} == {"4", "5"}
    assert view(where="len(tags) > 1").count() == 2
    assert view(where=col("tags").contains("y")).count() == 2
    with pytest.raises(QueryError, match="list of string and string are not compared"):
        view(where=col("tags") == "x")


def test_lists_of_panes_are_read_below_and_in_results(orders: Orders) -> None:
    daily: dict[str, Any] = {"where": hr.FixedWindows("1d"), "when": hr.on_update(), "how": hr.retracting("2d")}
    collected_columns: dict[str, Any] = {"ids": col("id").collect(), "most": col("ids").length()}
    outputs: dict[str, Any] = {
        "days": hr.Output(what=collected_columns, having=col("ids").length() > 1, **daily),
        "rows": hr.Rows({"ids": col("ids"), "first": col("ids").item(0)}, of="days"),
        "again": hr.Rows(of="rows", key="first", take=hr.newest()),
        "known": hr.Output(of="rows", what={"n": hr.count(), "a": col("ids").contains("a").bool_and()}, **daily),
    }
    pipeline = hr.Pipeline("orders", SIGNED_SOURCE, outputs=outputs, executor="local")
    orders.run(pipeline, put("a", []))
    orders.run(pipeline, put("b", []), put("c", [], minute=1500))
    orders.run(pipeline, put("d", []))
    handle = orders.handle(pipeline)
    assert [row["most"] for row in handle["days"].current().to_json()] == [3]
    assert [(row["ids"], row["first"]) for row in handle["rows"].current().to_json()] == [(["a", "b", "d"], "a")]
    assert [row["ids"] for row in handle["again"].current().to_json()] == [["a", "b", "d"]]
    assert [(row["n"], row["a"]) for row in handle["known"].current().to_json()] == [(1, True)]


def test_united_outputs_have_the_lists_that_all_have(orders: Orders) -> None:
    outputs: dict[str, Any] = {
        "one": hr.Rows(["id", "tags", "weights"]),
        "two": hr.Rows({"id": col("id"), "tags": col("tags").slice(0, 1)}),
        "both": hr.Rows(["id", "tags"], of=["one", "two"]),
    }
    pipeline = hr.Pipeline("orders", SIGNED_SOURCE, outputs=outputs, executor="local")
    orders.run(pipeline, put("a", ["x", "y"]), put("b", None))
    rows = orders.handle(pipeline)["both"].current().to_json()
    assert Counter(str(row["tags"]) for row in rows) == Counter(map(str, [["x", "y"], ["x"], None, None]))
    outputs["both"] = hr.Rows(["weights"], of=["one", "two"])
    with pytest.raises(hr.errors.PipelineError, match="there is no column 'weights'"):
        hr.Pipeline("orders", SIGNED_SOURCE, outputs=outputs, executor="local")


def test_a_table_and_a_log_hold_lists(orders: Orders) -> None:
    table, log = Table(), Log()
    pipeline = tagged_rows(sinks=[hr.postgres("orders", connection="nowhere")])
    steps = [
        [put("a", tags) for tags in LISTS],
        [put("a", ["x"], sign=-1), put("b", ["x"])],
        [put("a", None, sign=-1), put("a", [], sign=-1)],
    ]
    for records in steps:
        orders.run(pipeline, *records)
        with delivering_to(table):
            orders.handle(pipeline).deliver()
        held_rows = Counter(str([row["id"], row["tags"]]) for row in table.rows())
        assert held_rows == standing(orders, pipeline, "id", "tags")
    assert log.number == 0


@pytest.mark.slow
def test_a_delta_table_holds_lists(tmp_path: Path, orders: Orders, monkeypatch: pytest.MonkeyPatch) -> None:
    world = DeltaWorld(str(tmp_path / "lake"))
    monkeypatch.setenv("HEADRACE_CONN_LAKE", (tmp_path / "lake").as_uri())
    pipeline = tagged_rows(sinks=[world.sink])
    for records in ([put("a", tags) for tags in LISTS], [put("a", ["x", None], sign=-1), put("c", ["z"], [math.pi])]):
        orders.run(pipeline, *records)
        orders.handle(pipeline).deliver()
        held_rows = Counter(str([row["id"], row["tags"]]) for row in world.rows())
        assert held_rows == standing(orders, pipeline, "id", "tags")
        (sink_check,) = orders.handle(pipeline).check_sinks()
        assert sink_check.comparison is not None and sink_check.comparison.is_equal


def test_a_list_is_no_id() -> None:
    with pytest.raises(hr.errors.PipelineError, match="id: 'tags' is a list of string, and few targets know rows"):
        tagged_rows(id="tags")


def expecting(source: Any = SIGNED_SOURCE) -> hr.Pipeline:
    """Rows of which the tags are held to JSON."""
    held_values: dict[str, Any] = {"value_set": ['["x"]', '["x", null]', "[]"]}
    expectations = [hr.expect("column_values_to_be_in_set", column="tags", **held_values)]
    rows = ["id", "tags", "weights"]
    return hr.Pipeline("orders", source, rows=rows, expectations=expectations, executor="local")


@pytest.mark.parametrize("source", [PLAIN, SIGNED_SOURCE], ids=["appended", "signed"])
def test_expectations_see_lists_as_json(orders: Orders, source: Any) -> None:
    orders.run(expecting(source), put("a", ["x"], [1.5]), put("b", ["x", None]), put("c", []), put("d", None))
    with pytest.raises(AuditFailedError):
        orders.run(expecting(source), put("e", ["y"]))


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_expectations_see_lists_as_json_on_spark(orders: Orders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_AUDIT_BYTES", "0")
    orders.land("0", put("a", ["x"], [1.5]), put("b", ["x", None]), put("c", []), put("d", None))
    hr.open(orders.root)[expecting()].run(executor="spark")
    orders.land("1", put("e", ["y"]))
    with pytest.raises(AuditFailedError):
        hr.open(orders.root)[expecting()].run(executor="spark")


@pytest.mark.spark
def test_lists_are_folded_and_read_on_spark(orders: Orders, spark: Any) -> None:
    steps = [
        [put("a", tags, [0.0]) for tags in LISTS],
        [put("a", ["x", None], [-0.0], sign=-1), put("a", [], [0.0], sign=-1)],
    ]
    for number, records in enumerate(steps):
        orders.land(str(number), *records)
        hr.open(orders.root)[tagged_rows()].run(executor="spark", publish=False)
    expected = Counter(str(["a", tags]) for tags in LISTS if tags not in (["x", None], []))
    assert standing(orders, tagged_rows(), "id", "tags", at="main") == expected
    rows = orders.handle(tagged_rows()).current(at="main").to_spark(spark).collect()
    assert Counter(str([row["id"], row["tags"]]) for row in rows) == expected
