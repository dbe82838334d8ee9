"""Rows without a key that wait for the watermark."""

import pickle
from collections import Counter
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.errors import ChangedPipelineError, ExplainError, PipelineError
from tests.rows.orders import CHANGES, COLUMNS, ORDERS, SCHEMA, Orders, minute, order, rows

A_DAY_LATE: dict[str, Any] = {"how": hr.retracting(allowed_lateness="1d")}


@pytest.fixture
def orders(tmp_path: Path) -> Orders:
    return Orders(tmp_path)


def waiting(source: Any = ORDERS, **parts: Any) -> hr.Pipeline:
    common = {"rows": COLUMNS, "when": hr.on_window_close(), "executor": "local"}
    return hr.Pipeline("orders", source, **{**common, **parts})


def standing_ids(orders: Orders, pipeline: hr.Pipeline) -> list[str]:
    return sorted(row["id"] for row in orders.handle(pipeline).current(columns=["id"]).to_json())


def test_a_row_leaves_once_the_watermark_has_passed_it_and_stays(orders: Orders) -> None:
    orders.run(waiting(), order("a", 1), order("b", 2, 10), order("b", 2, 10), order("c", minute=70))
    assert orders.current(waiting()) == Counter({("a", "ONE", 2, minute(0)): 1})
    held_rows = orders.handle(waiting()).state(columns=["_rows_taken", "window_start"]).to_json()
    assert [(window["_rows_taken"], window["window_start"]) for window in held_rows] == [
        (2, "2026-05-01T00:10:00Z"),
        (1, "2026-05-01T01:10:00Z"),
    ]
    orders.run(waiting(), order("d", minute=100))
    assert orders.current(waiting()) == Counter({("a", "ONE", 2, minute(0)): 1, ("b", "ONE", 4, minute(10)): 2})
    orders.run(waiting(), order("late", minute=20))
    assert standing_ids(orders, waiting()) == ["a", "b", "b"]
    (late,) = orders.handle(waiting()).late().to_json()
    assert (late["event_time"], late["window_start"], late["window_end"]) == ("2026-05-01T00:20:00Z", None, None)
    assert {row["timing"] for row in orders.handle(waiting()).panes().to_json()} == {"ON_TIME"}
    with pytest.raises(ExplainError, match="waits for the watermark by itself"):
        orders.handle(waiting()).explain()


def test_what_comes_within_the_lateness_leaves_at_once(orders: Orders) -> None:
    late = waiting(**A_DAY_LATE)
    orders.run(late, order("a", minute=300))
    orders.run(late, order("b", minute=10), order("c", minute=290))
    assert [(row["id"], row["timing"]) for row in orders.handle(late).panes().to_json()] == [("b", "LATE")]
    assert not late.stages[0].withdraws


def test_a_row_that_is_withdrawn_while_it_waits_never_leaves(orders: Orders) -> None:
    pipeline = waiting(CHANGES)
    orders.run(pipeline, order("a", sign=1), order("b", minute=20, sign=1), order("x", minute=60, sign=1))
    orders.run(pipeline, order("b", minute=20, sign=-1), order("never", minute=30, sign=-1))
    orders.run(pipeline, order("d", minute=300, sign=1))
    assert standing_ids(orders, pipeline) == ["a", "x"]
    orders.run(pipeline, order("x", minute=60, sign=-1))
    assert standing_ids(orders, pipeline) == ["a", "x"]
    assert orders.handle(pipeline).panes(where="is_retraction").count() == 0
    assert [row["reason"] for row in orders.handle(pipeline).late().to_json()] == ["withdrawal: window expired"]


def test_within_the_lateness_a_withdrawal_withdraws_what_has_left(orders: Orders) -> None:
    pipeline = waiting(CHANGES, **A_DAY_LATE)
    orders.run(pipeline, order("a", sign=1), order("b", minute=20, sign=1), order("x", minute=300, sign=1))
    assert standing_ids(orders, pipeline) == ["a", "b"]
    orders.run(pipeline, order("a", sign=-1))
    assert standing_ids(orders, pipeline) == ["b"]


def test_rows_that_stay_feed_sessions_and_sinks_of_final_rows(orders: Orders) -> None:
    rows_ = hr.Rows(COLUMNS, when=hr.on_window_close(), id="id", sinks=[hr.final_rows("mail:send")])
    visits = hr.Output(of="rows", key="shop", what={"n": hr.count()}, where=hr.Sessions("30m"))
    pipeline = hr.Pipeline("orders", CHANGES, outputs={"rows": rows_, "visits": visits}, executor="local")
    orders.run(pipeline, order("a", sign=1), order("b", minute=20, sign=1), order("z", minute=500, sign=1))
    assert [row["n"] for row in orders.handle(pipeline)["visits"].current().to_json()] == [2]


def test_many_epochs_stand_as_all_at_once(orders: Orders) -> None:
    pipeline = waiting()
    for number in range(30):
        orders.run(pipeline, *(order(f"{number}-{one}", number, number * 7 % 50 + 20 * number) for one in range(2)))
    rows_before = orders.current(pipeline)
    assert rows_before.total() > 30
    orders.handle(pipeline).backfill(promote=True)
    assert orders.current(pipeline) == rows_before


def test_what_is_over_is_patched(orders: Orders) -> None:
    pipeline = waiting()
    files = {"0000": [order("a", 5), order("c", minute=70)]}
    orders.run(pipeline, order("a", 1), order("c", minute=70))
    orders.run(pipeline, order("d", minute=300))
    orders.backfill_corrected(pipeline, files)
    orders.handle(pipeline).promote("fix", patch=True)
    assert orders.current(pipeline) == Counter({("a", "ONE", 10, minute(0)): 1, ("c", "ONE", 2, minute(70)): 1})


def test_lists_may_wait_and_columns_be_renamed(orders: Orders) -> None:
    pipeline = waiting(rows=[{"words": col("id").split(" ")}, "id", "shop"])
    orders.run(pipeline, order("a b"), order("a b"), order("a c"), order("x", minute=30))
    renamed_pipeline = waiting(rows=[{"parts": col("id").split(" ")}, "id", "shop"], renamed={"words": "parts"})
    orders.run(renamed_pipeline, order("y", minute=300))
    found_rows = sorted(row["parts"] for row in orders.handle(renamed_pipeline).current(columns=["parts"]).to_json())
    assert found_rows == [["a", "b"], ["a", "b"], ["a", "c"], ["x"]]


def test_rows_of_constants_wait(orders: Orders) -> None:
    pipeline = waiting(CHANGES, rows={"one": hr.lit(1), "two": hr.lit("x")})
    orders.run(pipeline, order("a", sign=1), order("b", sign=1), order("c", minute=50, sign=1))
    orders.run(pipeline, order("a", sign=-1), order("z", minute=300, sign=1))
    assert orders.current(pipeline) == Counter({(1, "x", minute(0)): 1, (1, "x", minute(50)): 1})


def test_versions_of_rows_wait_each_by_itself(orders: Orders) -> None:
    versions = hr.json("landing/orders", {**SCHEMA, "v": int}, versions=hr.upserts("id", order="v"))
    pipeline = waiting(versions.event_time("at", bound="1h"))
    orders.run(pipeline, order("a", v=1), order("a", v=2), order("z", minute=300, v=3))
    assert standing_ids(orders, pipeline) == ["a", "a"]


def test_a_filtered_record_is_no_dead_letter(orders: Orders) -> None:
    pipeline = waiting(filter=col("price") < 10)
    orders.run(pipeline, order("a", 2**62), order("b", 1), order("z", minute=300))
    assert orders.handle(pipeline).rejected().count() == 0
    assert standing_ids(orders, pipeline) == ["b"]


def test_copies_are_the_same_and_a_trigger_that_nobody_wrote_is_none(orders: Orders) -> None:
    copied_pipeline = replace(pickle.loads(pickle.dumps(waiting())), description="copied")
    assert copied_pipeline.stages[0].aggregation.takes_each
    at_once = replace(pickle.loads(pickle.dumps(rows())), description="copied")
    assert at_once.stages[0].is_stateless
    orders.run(rows(), order("a"))
    with pytest.raises(ChangedPipelineError):
        orders.run(waiting(), order("b"))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"when": hr.on_update()}, "a row without a key leaves with its epoch"),
        ({"key": "shop"}, "rows= gives each record as a row"),
        ({"where": hr.FixedWindows("1h")}, "rows= gives each record as a row"),
        ({"null_keys": True}, "rows= gives each record as a row"),
        ({"how": hr.accumulating()}, "a row that counts no more is withdrawn by retracting"),
        ({"how": hr.discarding(keep_last=3)}, "keep_last= is of groups"),
        ({"source": CHANGES, **A_DAY_LATE, "sinks": [hr.final_rows("mail:send")]}, "can be withdrawn at any time"),
    ],
)
def test_mistakes_say_what_to_write(parts: dict[str, Any], message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        waiting(**parts)


def test_other_pipelines_read_rows_that_waited(orders: Orders) -> None:
    orders.run(waiting(), order("a"), order("b", minute=90), order("c", minute=300))
    pipeline_below = hr.Pipeline(
        "below", hr.published("orders", {"id": str, "event_time": datetime}), rows=["id"], executor="local"
    )
    orders.run(pipeline_below)
    assert standing_ids(orders, pipeline_below) == ["a", "b"]
