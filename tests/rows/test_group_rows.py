"""Rows of a group that leave: the newest, the first few, the distinct; what readers see of them, run by run."""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.errors import ChangedPipelineError, LimitExceededError, PipelineError
from headrace.testing import rows, run, together, watermark
from tests.rows.orders import CHANGES, ORDERS, Orders, minute, order
from tests.rows.test_delivered_rows import Table
from tests.sinks.given_target import delivering_to

HOUR = hr.FixedWindows("1h")


@pytest.fixture
def orders(tmp_path: Path) -> Orders:
    return Orders(tmp_path)


def taking(take: Any, rows: Any = ("id", "price"), **more: Any) -> hr.Pipeline:
    """Rows of each shop."""
    parts = {"key": "shop", "executor": "local", **more}
    return hr.Pipeline("orders", parts.pop("source", ORDERS), rows=rows, take=take, **parts)


def standing_rows(orders: Orders, pipeline: hr.Pipeline) -> list[tuple[Any, ...]]:
    """The id and price of each row that stands, by id."""
    rows = orders.handle(pipeline).current(columns=["id", "price"]).to_json()
    return sorted((row["id"], row["price"]) for row in rows)


def test_the_newest_row_of_a_key_is_one_that_was(orders: Orders) -> None:
    newest = taking(hr.newest())
    orders.run(newest, order("a", 1, 10), order("b", None, 20))
    assert standing_rows(orders, newest) == [("b", None)]
    orders.run(newest, order("late", 3, 15))
    assert standing_rows(orders, newest) == [("b", None)]
    orders.run(newest, order("c", 2, 30))
    panes = orders.handle(newest).panes(where="epoch = 2", columns=["id", "is_retraction"]).to_json()
    assert panes == [{"id": "b", "is_retraction": True}, {"id": "c", "is_retraction": False}]


def test_the_order_decides_before_event_time_and_null_is_lowest(orders: Orders) -> None:
    newest = taking(hr.newest("price"))
    orders.run(newest, order("a", None, 50), order("b", 5, 10), order("c", 5, 20), order("d", 1, 59))
    assert standing_rows(orders, newest) == [("c", 5)]


def test_all_columns_of_records_are_those_of_rows_unless_they_are_named(orders: Orders) -> None:
    newest = hr.Pipeline("orders", ORDERS, key={"name": col("shop").upper()}, take=hr.newest(), executor="local")
    assert [*newest.value_types] == ["name", "id", "shop", "price", "at"]
    orders.run(newest, order("a", 1), order("b", 2, 1, shop="One"), order("c", 3, shop="two"))
    rows = orders.handle(newest).current(columns=["name", "id"]).to_json()
    assert sorted((row["name"], row["id"]) for row in rows) == [("ONE", "b"), ("TWO", "c")]


def test_what_is_deleted_does_not_come_back_with_an_older_row(orders: Orders) -> None:
    newest = taking(hr.newest(deleted=col("price") < 0), key="id", rows=["price"])
    orders.run(newest, order("a", 1, 10), order("b", 2, 10))
    orders.run(newest, order("a", -1, 20))
    assert standing_rows(orders, newest) == [("b", 2)]
    orders.run(newest, order("a", 5, 15))
    assert standing_rows(orders, newest) == [("b", 2)]
    orders.run(newest, order("a", 7, 30))
    assert standing_rows(orders, newest) == [("a", 7), ("b", 2)]


def test_the_top_rows_of_each_window_say_their_window(orders: Orders) -> None:
    top = taking(hr.top(2, by="price"), where=HOUR, when=hr.on_update(), how=hr.retracting("1d"))
    orders.run(top, order("a", 1), order("b", 3, 5), order("c", 2, 6), order("d", 9, 60))
    assert standing_rows(orders, top) == [("b", 3), ("c", 2), ("d", 9)]
    orders.run(top, order("late", 5, 7))
    assert standing_rows(orders, top) == [("b", 3), ("d", 9), ("late", 5)]
    (row,) = orders.handle(top).current(where="id = 'late'", columns=["window_start", "window_end"]).to_json()
    assert row == {"window_start": "2026-05-01T00:00:00Z", "window_end": "2026-05-01T01:00:00Z"}


def test_of_rows_with_the_same_largest_value_a_further_one_decides(orders: Orders) -> None:
    top = taking(hr.top(2, by=["price", -col("id").length()]))
    orders.run(top, order("aaa", 2), order("bb", 2), order("c", 1), order("dddd", 2, 9))
    assert standing_rows(orders, top) == [("aaa", 2), ("bb", 2)]
    assert "the 2 rows with the largest price, then -id.length()" in [
        *chain(*(part.lines for part in hr.check(top).pipelines[0].parts))
    ]
    with pytest.raises(PipelineError, match='write "price", or several'):
        hr.top(2, by=[])


def test_equal_rows_count_as_often_as_they_came(orders: Orders) -> None:
    top = taking(hr.top(3, by="price"))
    orders.run(top, order("a", 2), order("a", 2), order("b", 1), order("c", 0))
    assert standing_rows(orders, top) == [("a", 2), ("a", 2), ("b", 1)]


def test_distinct_rows_have_the_event_time_of_the_first(orders: Orders) -> None:
    distinct = taking(hr.distinct())
    orders.run(distinct, order("a", 1, 10), order("a", 1, 20), order("b", 1))
    assert orders.current(distinct) == Counter({("one", "a", 1, minute(10)): 1, ("one", "b", 1, minute(0)): 1})
    orders.run(distinct, order("a", 1, 5))
    assert orders.current(distinct) == Counter({("one", "a", 1, minute(5)): 1, ("one", "b", 1, minute(0)): 1})


def test_what_stays_does_not_leave_again(orders: Orders) -> None:
    top = taking(hr.top(2, by="price"))
    orders.run(top, order("a", 1), order("b", 3))
    orders.run(top, order("c", 2))
    assert orders.handle(top).panes(where="epoch = 1").count() == 2
    orders.run(top, order("d", 0))
    assert orders.handle(top).panes(where="epoch = 2").count() == 0


@pytest.mark.parametrize(
    ("take", "first", "next_steps"),
    [
        (hr.newest(), [("c", 1)], [("b", 3)]),
        (hr.top(2, by="price"), [("a", 5), ("b", 3)], [("a", 5), ("b", 3)]),
        (hr.distinct(), [("a", 5), ("b", 3), ("c", 1)], [("a", 5), ("b", 3)]),
    ],
    ids=["newest", "top", "distinct"],
)
def test_what_is_withdrawn_gives_back_what_it_hid(
    orders: Orders, take: Any, first: list[Any], next_steps: list[Any]
) -> None:
    pipeline = taking(take, source=CHANGES)
    orders.run(pipeline, order("a", 5, 1, sign=1), order("b", 3, 2, sign=1), order("c", 1, 3, sign=1))
    assert standing_rows(orders, pipeline) == first
    orders.run(pipeline, order("c", 1, 3, sign=-1))
    assert standing_rows(orders, pipeline) == next_steps
    orders.run(pipeline, order("a", 5, 1, sign=-1), order("b", 3, 2, sign=-1))
    assert standing_rows(orders, pipeline) == []


def test_a_withdrawal_may_come_before_its_row(orders: Orders) -> None:
    newest = taking(hr.newest(), source=CHANGES)
    orders.run(newest, order("a", 1, 1, sign=1), order("b", 2, 2, sign=-1))
    orders.run(newest, order("b", 2, 2, sign=1))
    assert standing_rows(orders, newest) == [("a", 1)]


def test_what_fires_once_is_appended(orders: Orders) -> None:
    top = taking(hr.top(1, by="price"), where=HOUR, when=hr.on_window_close())
    assert not top.stages[0].withdraws
    assert taking(hr.top(1, by="price"), where=HOUR, how=hr.retracting("1h")).stages[0].withdraws
    assert taking(hr.top(1, by="price"), where=HOUR, source=CHANGES).stages[0].withdraws
    orders.run(top, order("a", 1), order("b", 3, 5))
    assert standing_rows(orders, top) == []
    orders.run(top, order("c", 1, 200))
    assert standing_rows(orders, top) == [("b", 3)]
    assert orders.handle(top).panes().count() == 1


def test_discarding_gives_the_rows_of_what_came_since_the_last_pane(orders: Orders) -> None:
    top = taking(hr.top(1, by="price"), how=hr.discarding())
    orders.run(top, order("a", 5))
    orders.run(top, order("b", 3))
    assert standing_rows(orders, top) == [("a", 5), ("b", 3)]
    assert orders.handle(top).panes(where="is_retraction").count() == 0


@pytest.mark.parametrize("executor", ["local", "reference"])
def test_a_row_that_panes_of_one_epoch_give_again_has_the_timing_of_the_last(executor: Any) -> None:
    """So many rows that numpy sorts them by another way than a few."""
    orders = hr.json("landing/orders", {"id": int, "at": datetime}).event_time("at", bound="0s")
    pipeline = hr.Pipeline("orders", orders, key=None, take=hr.distinct(), where=HOUR, when=hr.on_update())
    records = [{"id": number, "at": "13:05"} for number in range(100)]
    steps = [rows(*records), together(rows({"id": 100, "at": "13:05"}), watermark("14:00"))]
    result = run(pipeline, steps, executor=executor)
    timings = Counter((step, pane.timing) for step in (0, 1) for pane in result.steps[step].panes)
    assert timings == {(0, "EARLY"): 100, (1, "ON_TIME"): 1}
    result_at_once = run(pipeline, [together(rows(*records), watermark("14:00"))], executor=executor)
    assert Counter(pane.timing for pane in result_at_once.panes) == {"ON_TIME": 100}


def test_sessions_that_become_one_have_one_newest_row(orders: Orders) -> None:
    newest = taking(hr.newest(), where=hr.Sessions("10m"), when=hr.on_update(), how=hr.retracting("1d"))
    orders.run(newest, order("a", 1, 0), order("c", 3, 18))
    assert standing_rows(orders, newest) == [("a", 1), ("c", 3)]
    orders.run(newest, order("b", 2, 9))
    (row,) = orders.handle(newest).current(columns=["id", "window_start", "window_end"]).to_json()
    assert row == {"id": "c", "window_start": "2026-05-01T00:00:00Z", "window_end": "2026-05-01T00:28:00Z"}


def test_rows_of_panes_and_panes_of_rows(orders: Orders) -> None:
    outputs: Mapping[str, Any] = {
        "hourly": hr.Output(
            key="shop", what={"n": hr.count()}, where=HOUR, when=hr.on_update(), how=hr.retracting("1d")
        ),
        "busiest": hr.Rows(["window_start", "n"], of="hourly", key="shop", take=hr.top(1, by="n")),
        "newest": hr.Rows(key="id", take=hr.newest()),
        "worth": hr.Output(
            of="newest", what={"total": col("price").sum()}, where=hr.GlobalWindows(), when=hr.on_update()
        ),
    }
    pipeline = hr.Pipeline("orders", ORDERS, outputs=outputs, executor="local")
    orders.run(pipeline, order("a", 1), order("b", 2, 1), order("a", 5, 60))
    handle = orders.handle(pipeline)
    assert handle["busiest"].current(columns=["n"]).to_json() == [{"n": 2}]
    assert handle["worth"].current(columns=["total"]).to_json() == [{"total": 7}]
    orders.run(pipeline, order("c", 1, 61), order("d", 1, 62), order("a", 6, 63))
    assert handle["busiest"].current(columns=["n", "window_start"]).to_json() == [
        {"n": 4, "window_start": "2026-05-01T01:00:00Z"}
    ]
    assert handle["worth"].current(columns=["total"]).to_json() == [{"total": 10}]


def test_other_pipelines_read_rows_of_groups_with_their_windows(orders: Orders) -> None:
    top = taking(hr.top(1, by="price"), where=HOUR, when=hr.on_update(), how=hr.retracting("1d"))
    orders.run(top, order("a", 1), order("b", 2, 60))
    columns = {"id": str, "window_start": datetime}
    reader = hr.Pipeline("reader", hr.published("orders", columns), rows=[*columns], executor="local")
    handle = hr.open(orders.root, create=True)[reader]
    handle.run()
    orders.run(top, order("c", 3, 1))
    handle.run()
    found_rows = {row["id"]: row["window_start"] for row in handle.current(columns=[*columns]).to_json()}
    assert found_rows == {"b": "2026-05-01T01:00:00Z", "c": "2026-05-01T00:00:00Z"}


def test_many_epochs_stand_as_all_at_once(orders: Orders) -> None:
    pipeline = taking(hr.top(2, by="price"), key=None, rows=["id", "price"])
    for number in range(40):
        orders.run(pipeline, order(f"{number:02}", number * 7 % 40, number))
    rows_before = standing_rows(orders, pipeline)
    assert {price for _, price in rows_before} == {38, 39}
    orders.handle(pipeline).backfill(promote=True)
    assert standing_rows(orders, pipeline) == rows_before


def test_ids_of_rows_of_groups_are_audited(orders: Orders) -> None:
    top = taking(hr.top(2, by="price"), id="shop")
    orders.run(top, order("a", 1))
    with pytest.raises(LimitExceededError, match="1 id has more than one row"):
        orders.run(top, order("b", 2))


def test_a_target_has_the_newest_row_of_each_id(orders: Orders) -> None:
    sink = hr.postgres("orders", connection="nowhere")
    newest = taking(hr.newest("price"), ["shop", "price"], key="id", id="id", sinks=[sink])
    target = Table()
    for records in ([order("a", 1), order("b", 1)], [order("a", 3, 1), order("c", 1)], [order("a", 2, 2)]):
        orders.run(newest, *records)
        with delivering_to(target):
            orders.handle(newest).deliver()
    assert {key: row["price"] for (key,), row in target.there.items()} == {"a": 3, "b": 1, "c": 1}


def test_groups_are_explained_and_what_waits_is_shown(orders: Orders) -> None:
    top = taking(hr.top(2, by="price"), where=HOUR, how=hr.retracting("1d"))
    orders.run(top, order("a", 1), order("b", 3, 5), order("c", 2, 6))
    (window,) = orders.handle(top).state(columns=["shop", "_rows_taken", "_panes"]).to_json()
    assert window == {"shop": "one", "_rows_taken": 2, "_panes": 0}
    orders.run(top, order("later", 1, 200))
    explanation = str(orders.handle(top).explain("one", window="2026-05-01T00:00:00Z"))
    assert "row, on time, of epoch 1: shop = one, id = b, price = 3" in explanation


@pytest.mark.parametrize(
    "changed_pipeline",
    [
        taking(hr.newest("price")),
        taking(hr.newest(), ["id"]),
        taking(hr.newest(), ["id", "price", "at"]),
        taking(hr.newest(), key="id", rows=["price"]),
    ],
    ids=["take", "a column less", "a column more", "key"],
)
def test_another_definition_is_a_replay(orders: Orders, changed_pipeline: hr.Pipeline) -> None:
    orders.run(taking(hr.newest()), order("a", 1))
    orders.land("more", order("b", 2))
    with pytest.raises(ChangedPipelineError):
        orders.handle(changed_pipeline).run(allow_new_aggregates=True)


def test_a_column_may_be_renamed(orders: Orders) -> None:
    orders.run(taking(hr.newest()), order("a", 1), order("x", 5, shop="two"))
    renamed_pipeline = taking(hr.newest(), {"order": col("id"), "price": col("price")}, renamed={"id": "order"})
    orders.run(renamed_pipeline, order("b", 2, 1))
    rows = orders.handle(renamed_pipeline).current(columns=["order", "price"]).to_json()
    assert sorted((row["order"], row["price"]) for row in rows) == [("b", 2), ("x", 5)]


@pytest.mark.parametrize("take", [hr.newest(), hr.top(2, by="price"), hr.distinct()], ids=["newest", "top", "distinct"])
def test_what_rows_hid_is_known_after_a_renaming(orders: Orders, take: Any) -> None:
    pipeline_before = taking(take, source=CHANGES)
    orders.run(pipeline_before, order("a", 1, 10, sign=1), order("b", 2, 20, sign=1), order("c", 3, 30, sign=1))
    columns = {"branch": col("shop")}, {"order": col("id"), "price": col("price")}
    renamed_pipeline = taking(
        take, columns[1], source=CHANGES, key=columns[0], renamed={"id": "order", "shop": "branch"}
    )
    orders.run(renamed_pipeline, order("c", 3, 30, sign=-1), order("b", 2, 20, sign=-1))
    rows = orders.handle(renamed_pipeline).current(columns=["branch", "order", "price"]).to_json()
    assert rows == [{"branch": "one", "order": "a", "price": 1}]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"take": "newest"}, "write newest"),
        ({"take": hr.newest("nothing")}, "nothing"),
        ({"take": hr.newest(), "rows": {"shop": col("id")}}, "'shop' is the key, which rows have by itself"),
        ({"take": hr.newest(), "what": {"n": hr.count()}}, "take= gives rows of a group"),
        ({"take": hr.newest(), "how": hr.accumulating()}, "a row that counts no more is withdrawn by retracting"),
        ({"take": hr.newest(), "where": HOUR, "rows": {"window_start": col("at")}}, "is a column of every row"),
        ({"take": hr.newest(), "id": "nothing"}, "there is no column 'nothing'"),
        ({"take": hr.newest(col("id").split("-"))}, "which has no order"),
        (
            {"take": hr.newest(), "how": hr.discarding(), "source": CHANGES},
            "can be withdrawn",
        ),
        ({"take": hr.newest(), "source": CHANGES.source.arrival_time()}, "would have another event time"),
        ({"take": hr.newest(), "source": CHANGES, "rows": ()}, "they have 'sign', which tells a row"),
        ({"take": None, "key": None, "source": CHANGES, "rows": ["id", "sign"]}, "they have 'sign', which tells a row"),
    ],
)
def test_mistakes_say_what_to_write(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        taking(**arguments)


@pytest.mark.parametrize("number", [0, "2"])
def test_a_number_of_rows_is_at_least_one(number: Any) -> None:
    with pytest.raises(PipelineError, match="number"):
        hr.top(number, by="price")


def test_rows_of_all_time_have_no_event_time_that_a_calendar_lacks(orders: Orders) -> None:
    outputs: Mapping[str, Any] = {
        "shops": hr.Output(key="shop", what={"n": hr.count()}, where=hr.GlobalWindows(), when=hr.on_update()),
        "rows": hr.Rows(["shop", "n"], of="shops"),
        "most": hr.Rows(["shop"], of="rows", take=hr.newest("n")),
    }
    pipeline = hr.Pipeline("orders", ORDERS, outputs=outputs, executor="local")
    orders.run(pipeline, order("a"), order("b"))
    orders.run(pipeline, order("c", shop="two"), order("d"))
    assert orders.current(pipeline, "rows") == Counter({("one", 3, None): 1, ("two", 1, None): 1})
    assert orders.current(pipeline, "most") == Counter({("one", None): 1})
    reader = hr.Pipeline(
        "reader",
        hr.published("orders.rows", {"n": int}),
        what={"total": col("n").sum()},
        where=hr.GlobalWindows(),
        when=hr.on_update(),
        executor="local",
    )
    handle = hr.open(orders.root, create=True)[reader]
    handle.run()
    assert handle.current(columns=["total"]).to_json() == [{"total": 4}]
