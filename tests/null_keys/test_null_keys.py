"""Records whose key is NULL are a group of their own, in whatever is computed of them and wherever it is looked at."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace import col
from headrace.errors import PipelineError
from headrace.observe.pane_history import PaneHistory
from headrace.pipeline.identity import fingerprint
from headrace.read.views.arrow_types import ExplainError
from headrace.testing import assert_current, assert_rejected, rows, run
from tests.joins.trades import TRADES, Trades, as_of, rate, trade
from tests.rows.orders import ORDERS, Orders, order
from tests.sinks.worlds import DeltaWorld

HOURLY = hr.FixedWindows("1h")
TOTALS: dict[str, Any] = {"orders": hr.count(), "spent": col("price").sum()}


def shops(**parts: Any) -> hr.Pipeline:
    """Orders by shop and hour, of which NULL is one."""
    definition = hr.Pipeline(
        "orders",
        ORDERS,
        key="shop",
        what=TOTALS,
        where=HOURLY,
        when=hr.on_update(),
        how=hr.retracting(allowed_lateness="30d"),
        executor="local",
        null_keys=True,
    )
    return replace(definition, **parts) if parts else definition


def order_of(shop: str | None, price: int = 1, minute: int = 0) -> dict[str, Any]:
    return {**order(f"{shop} {price} {minute}", price, minute), "shop": shop}


def standing(orders: Orders, pipeline: hr.Pipeline, *columns: str, **options: Any) -> list[tuple[Any, ...]]:
    """What readers see."""
    names = columns or ("shop", "orders", "spent")
    table = orders.handle(pipeline).current(columns=[*names], **options).to_arrow()
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


@pytest.fixture
def orders(tmp_path: Path) -> Orders:
    return Orders(tmp_path)


# --- what is computed


def test_without_it_a_record_without_a_key_is_a_dead_letter_and_with_it_a_group() -> None:
    given_rows = rows(
        {"id": "a", "shop": None, "price": 3, "at": "2026-05-01T00:01Z"},
        {"id": "b", "shop": "x", "price": 4, "at": "2026-05-01T00:02Z"},
    )
    refused_result = run(shops(null_keys=False), [given_rows])
    assert_rejected(refused_result, [{"reason": "key is null: shop"}])
    result = run(shops(), [given_rows])
    assert_rejected(result, [])
    assert_current(result, [{"shop": "x", "spent": 4}, {"shop": None, "spent": 3}])


def test_the_group_of_null_goes_on_over_epochs_and_is_corrected(orders: Orders) -> None:
    orders.run(shops(), order_of(None, 1), order_of("", 2), order_of("one", 4))
    assert standing(orders, shops()) == [("", 1, 2), ("one", 1, 4), (None, 1, 1)]
    orders.run(shops(), order_of(None, 8), order_of(None, 16, minute=70))
    assert standing(orders, shops()) == [("", 1, 2), ("one", 1, 4), (None, 1, 16), (None, 2, 9)]
    panes = (
        orders.handle(shops()).panes(where="shop is null and window_end = '2026-05-01 01:00Z'").to_arrow().to_pylist()
    )
    assert [(pane["spent"], pane["is_retraction"], pane["epoch"]) for pane in panes] == [
        (1, False, 0),
        (1, True, 1),
        (9, False, 1),
    ]


def test_a_key_of_several_columns_has_a_group_for_each_of_them_that_is_null() -> None:
    definition = shops(key=["shop", "id"])
    keys: list[tuple[Any, Any]] = [(None, None), (None, "a"), ("a", None), ("a", "a"), ("", None), (None, "")]
    given_records = [{"id": id_, "shop": shop, "price": 1, "at": "2026-05-01T00:01Z"} for shop, id_ in keys * 2]
    result = run(definition, [rows(*given_records)])
    assert Counter((row["shop"], row["id"], row["orders"]) for row in result.current) == Counter(
        (shop, id_, 2) for shop, id_ in keys
    )


def test_sessions_of_null_merge_and_touch_no_others(orders: Orders) -> None:
    definition = shops(where=hr.Sessions("10m"), how=hr.retracting(allowed_lateness="30d"))
    orders.run(definition, order_of(None, 1, 0), order_of(None, 2, 16), order_of("one", 4, 8))
    assert standing(orders, definition) == [("one", 1, 4), (None, 1, 1), (None, 1, 2)]
    orders.run(definition, order_of(None, 8, 8))
    assert standing(orders, definition) == [("one", 1, 4), (None, 3, 11)]


def test_further_aggregations_and_outputs_have_the_group_if_they_say_so(orders: Orders) -> None:
    daily = {"key": "shop", "what": {"day": col("spent").sum()}, "where": hr.FixedWindows("1d"), "when": hr.on_update()}
    first = hr.Output(key="shop", what=TOTALS, where=HOURLY, when=hr.on_update(), how=hr.retracting(), null_keys=True)
    definition = hr.Pipeline(
        "orders",
        ORDERS,
        outputs={
            "hourly": first,
            "chained": replace(first, then=[hr.Aggregation(**daily)]),
            "named": hr.Output(of="hourly", **daily),
            "daily": hr.Output(of="hourly", **daily, null_keys=True),
        },
        executor="local",
    )
    orders.run(definition, order_of(None, 1), order_of(None, 2, 70), order_of("one", 4))
    orders.run(definition, order_of(None, 8, 70))
    for name, more in (("named", []), ("chained", [(None, 11)]), ("daily", [(None, 11)])):
        table = orders.handle(definition)[name].current(columns=["shop", "day"]).to_arrow()
        assert Counter(tuple(row.values()) for row in table.to_pylist()) == Counter([("one", 4), *more])
    letters = orders.handle(definition)["named"].rejected().to_arrow().to_pylist()
    assert {letter["reason"] for letter in letters} == {"key is null: shop"}


def test_outputs_that_lack_the_column_of_a_key_are_united_under_null(orders: Orders) -> None:
    updated_parts: dict[str, Any] = {"when": hr.on_update(), "how": hr.retracting()}
    spent_parts = {"what": {"spent": col("price").sum()}, "where": HOURLY, **updated_parts}
    definition = hr.Pipeline(
        "orders",
        ORDERS,
        outputs={
            "shops": hr.Output(key="shop", null_keys=True, **spent_parts),
            "ids": hr.Output(key={"order": col("id")}, **spent_parts),
            "both": hr.Output(
                of=("shops", "ids"),
                key="shop",
                what={"all": col("spent").sum()},
                where=hr.FixedWindows("1d"),
                null_keys=True,
                **updated_parts,
            ),
        },
        executor="local",
    )
    orders.run(definition, order_of(None, 1), order_of("one", 2))
    orders.run(definition, order_of(None, 4), order_of("two", 8))
    table = orders.handle(definition)["both"].current(columns=["shop", "all"]).to_arrow()
    assert Counter(tuple(row.values()) for row in table.to_pylist()) == Counter(
        [("one", 2), ("two", 8), (None, 5 + 15)]
    )


def test_records_that_meet_nothing_are_a_group_by_what_they_lack(tmp_path: Path) -> None:
    trades = Trades(tmp_path)
    definition = hr.Pipeline(
        "rated",
        TRADES,
        join=[as_of(outer=True)],
        key="rate",
        what={"amount": col("amount").sum()},
        where=hr.FixedWindows("1d"),
        when=hr.on_update(),
        how=hr.retracting(allowed_lateness="1h"),
        executor="local",
        null_keys=True,
    )
    trades.run(definition, trades=[trade("a", 10), trade("b", 20, None), trade("c", 30)], rates=[rate(25, 3)])
    assert trades.current(definition) == Counter([(None, 20), (3, 10)])
    trades.run(definition, rates=[rate(5, 2)])  # late: a trade that met nothing goes to another group
    assert trades.current(definition) == Counter([(None, 10), (2, 10), (3, 10)])


def test_rows_of_a_group_whose_key_is_null(orders: Orders) -> None:
    definition = hr.Pipeline(
        "orders",
        ORDERS,
        key="shop",
        take=hr.newest(),
        rows=["id", "price"],
        id="shop",
        executor="local",
        null_keys=True,
    )
    orders.run(definition, order_of(None, 1, 5), order_of("one", 2, 6))
    orders.run(definition, order_of(None, 4, 3), order_of(None, 8, 9))
    assert standing(orders, definition, "shop", "price") == [("one", 2), (None, 8)]


def test_a_query_is_asked_of_the_group_of_null(orders: Orders) -> None:
    running = "select id, price, sum(price) over (order by price) as running, event_time from rows"
    definition = hr.Pipeline("orders", ORDERS, key="shop", take=hr.query(running), executor="local", null_keys=True)
    orders.run(definition, order_of(None, 1), order_of(None, 2), order_of("one", 4), order_of("", 8))
    orders.run(definition, order_of(None, 16))
    found_counts = Counter(standing(orders, definition, "shop", "price", "running"))
    assert found_counts == Counter([(None, 1, 1), (None, 2, 3), (None, 16, 19), ("one", 4, 4), ("", 8, 8)])


def test_many_records_of_few_keys_are_those_of_duckdb(orders: Orders) -> None:
    """So many that keys get numbers, and several times so many groups that layers merge."""
    definition = hr.Pipeline(
        "orders",
        hr.parquet("landing/orders", {"a": str, "b": int, "at": datetime}).event_time("at", bound="0s"),
        key=["a", "b"],
        what={"n": hr.count(), "total": col("b").sum()},
        where=HOURLY,
        when=hr.on_update(),
        how=hr.retracting(allowed_lateness="30d"),
        executor="local",
        null_keys=True,
    )
    chance = np.random.default_rng(43)
    landing = orders.folder / "landing/orders"
    landing.mkdir(parents=True)
    for epoch, number in enumerate((100_000, 500, 30_000, 70_000)):
        texts = np.array([None, "", "x", "y"], object)[chance.integers(0, 4, number)]
        numbers = np.array([None, 0, 1, *range(7)], object)[chance.integers(0, 10, number)]
        moments = 1_777_600_000_000_000 + chance.integers(0, 5 * 3_600_000_000, number)
        table = pa.table(
            {
                "a": pa.array(texts, pa.string()),
                "b": pa.array(numbers, pa.int64()),
                "at": pa.array(moments, pa.timestamp("us", "UTC")),
            }
        )
        pq.write_table(table, landing / f"{epoch}.parquet")
    orders.handle(definition).run(files_per_epoch=1)
    expected = duckdb.sql(
        'select a, b, time_bucket(interval 1 hour, "at") as t, count(*) as n, coalesce(sum(b), 0)::bigint as total '
        f"from '{landing}/*.parquet' group by all"
    )
    table = orders.handle(definition).current(columns=["a", "b", "window_start", "n", "total"]).to_arrow()
    found_rows = Counter(tuple(row.values()) for row in table.to_pylist())
    assert found_rows == Counter((a, b, t.astimezone(UTC), n, total) for a, b, t, n, total in expected.fetchall())


def test_a_signal_can_be_for_the_key_that_is_null(orders: Orders) -> None:
    definition = shops(when=hr.OrFinally(hr.Repeatedly(hr.AfterSignal("go")), hr.Never()), allow_finishing=True)
    orders.run(definition, order_of(None, 1), order_of("one", 2))
    orders.run(definition, signals=[hr.Signal("go", key=(None,))])
    assert standing(orders, definition) == [(None, 1, 1)]


# --- where it is looked at


def test_conditions_find_the_group_of_null(orders: Orders) -> None:
    orders.run(shops(), order_of(None, 1), order_of("one", 2), order_of("", 4))
    for condition in ("shop is null", "shop is not distinct from null", "shop is null and spent = 1"):
        assert standing(orders, shops(), where=condition) == [(None, 1, 1)]
    assert standing(orders, shops(), where=col("shop").is_null()) == [(None, 1, 1)]
    assert standing(orders, shops(), where="shop is null or shop = ''") == [("", 1, 4), (None, 1, 1)]
    assert standing(orders, shops(), where="shop is not null") == [("", 1, 4), ("one", 1, 2)]
    assert standing(orders, shops(), where="shop = null") == []


@pytest.mark.parametrize("key", [{"shop": None}, [None], '{"shop": null}', ['{"shop": null}']])
def test_what_its_windows_wait_for_is_explained(orders: Orders, key: Any) -> None:
    orders.run(shops(), order_of(None, 1), order_of(None, 2), order_of("one", 4))
    explanation = str(orders.handle(shops()).explain(key, pipeline=shops()))
    assert "aggregation 1: shop = NULL" in explanation
    assert "holds orders = 2, spent = 3" in explanation
    assert "pane 0, early, of epoch 0: orders = 2, spent = 3" in explanation


def test_a_key_that_is_null_is_none_where_it_is_no_group(orders: Orders) -> None:
    definition = shops(null_keys=False)
    orders.run(definition, order_of("one"))
    with pytest.raises(ExplainError, match="NULL is no key"):
        orders.handle(definition).explain([None], pipeline=definition)
    assert "no element with this key" in str(orders.handle(definition).explain("null", pipeline=definition))


def test_its_panes_are_drawn(orders: Orders) -> None:
    orders.run(shops(), order_of(None, 1), order_of("null", 2))
    catalog = orders.handle(shops()).catalog
    history = PaneHistory(catalog, catalog.manifest(catalog.head().refs["main"]), 10)
    known_keys = history.newest_keys(10)
    assert known_keys.keys == (('{"shop": null}', "NULL"), ('{"shop": "null"}', "null"))
    assert [[pane.values["spent"] for pane in history.of_key(key, 10).panes] for key, _ in known_keys.keys] == [
        [1],
        [2],
    ]


def test_a_diff_and_a_patch_are_of_the_group_of_null(orders: Orders) -> None:
    definition = shops(how=hr.retracting())
    orders.run(definition, order_of(None, 1), order_of("one", 2))
    orders.run(definition, order_of("one", 2, 400))
    result_before = orders.run(definition, order_of(None, 8)).snapshot  # late
    assert [row["shop"] for row in orders.handle(definition).late().to_arrow().to_pylist()] == [None]
    handle = orders.handle(definition)
    handle.backfill(patch=True)
    assert (None, 2, 9) in standing(orders, definition)
    (change,) = handle.diff(result_before, "main").output.first
    assert (change.key["shop"], change.kind) == (None, "changed")


def test_late_records_and_open_windows_of_it_are_found(orders: Orders) -> None:
    definition = shops(how=hr.retracting())
    orders.run(definition, order_of("one", 2, 400), order_of(None, 4, 400))
    orders.run(definition, order_of(None, 8), order_of("one", 16))
    handle = orders.handle(definition)
    assert handle.late(where="shop is null", columns=["shop", "reason"]).to_arrow().to_pylist() == [
        {"shop": None, "reason": "window expired"}
    ]
    (window,) = handle.state(where="shop is null").to_arrow().to_pylist()
    assert (window["shop"], window["spent"]) == (None, 4)


def test_a_target_is_held_to_it_row_by_row(orders: Orders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = DeltaWorld(str(tmp_path / "lake"))
    for name, value in world.environment.items():
        monkeypatch.setenv(name, value)
    definition = shops(sinks=[world.sink])
    handle = orders.handle(definition)
    for records in ([order_of(None, 1), order_of("one", 2)], [order_of(None, 4), order_of("", 8)]):
        orders.run(definition, *records)
        handle.deliver(dry_run=False)
        (check,) = handle.check_sinks()
        assert check.is_right, check
    assert Counter((row["shop"], row["spent"]) for row in world.rows()) == Counter([(None, 5), ("one", 2), ("", 8)])


def test_it_is_computed_again_and_promoted(orders: Orders) -> None:
    pipeline_before = shops(null_keys=False)
    orders.run(pipeline_before, order_of(None, 1), order_of("one", 2))
    plan = orders.handle(shops()).plan()
    assert "null_keys (NULL as a group) is new" in str(plan)
    assert "backfill" in str(plan)
    orders.handle(shops()).backfill(promote=True)
    assert standing(orders, shops()) == [("one", 1, 2), (None, 1, 1)]
    orders.run(shops(), order_of(None, 4))
    assert standing(orders, shops()) == [("one", 1, 2), (None, 2, 5)]


def test_another_pipeline_reads_the_group_and_its_withdrawals(orders: Orders) -> None:
    pipeline_below = hr.Pipeline(
        "days",
        hr.published("orders", {"shop": str, "spent": int}),
        key="shop",
        what={"day": col("spent").sum()},
        where=hr.FixedWindows("1d"),
        when=hr.on_update(),
        how=hr.retracting(),
        executor="local",
        null_keys=True,
    )
    orders.run(shops(), order_of(None, 1), order_of("one", 2))
    orders.run(pipeline_below)
    orders.run(shops(), order_of(None, 4))
    orders.run(pipeline_below)
    assert standing(orders, pipeline_below, "shop", "day") == [("one", 2), (None, 5)]


def test_expectations_see_null_in_the_key(orders: Orders) -> None:
    definition = shops(expectations=[hr.expect("column_values_to_not_be_null", column="shop")])
    orders.run(definition, order_of("one", 1))
    with pytest.raises(hr.errors.HeadraceError, match="shop"):
        orders.run(definition, order_of(None, 1))
    assert standing(orders, definition) == [("one", 1, 1)]


def test_a_file_without_the_column_of_the_key_is_of_the_group(orders: Orders) -> None:
    source = hr.csv("landing/orders", {"id": str, "shop": str, "price": int, "at": datetime}, missing="null")
    definition = shops(input=source.event_time("at", bound="1h"))
    landing = orders.folder / "landing/orders"
    landing.mkdir(parents=True)
    (landing / "1.csv").write_text("id,price,at\na,3,2026-05-01T00:00:00Z\n")
    orders.handle(definition).run()
    assert standing(orders, definition) == [(None, 1, 3)]


# --- what it means for a definition


def test_a_fingerprint_has_it_where_it_is_used() -> None:
    assert fingerprint(shops()) != fingerprint(shops(null_keys=False))
    assert fingerprint(shops(key=None, null_keys=False)) not in (
        fingerprint(shops()),
        fingerprint(shops(null_keys=False)),
    )


@pytest.mark.parametrize(
    ("build_refused", "why"),
    [
        (lambda: shops(key=None), "there is no key that could be NULL"),
        (lambda: shops(null_keys=1), "null_keys"),
        (lambda: hr.Rows(["id"], null_keys=True), "null_keys"),
        (lambda: hr.Pipeline("orders", ORDERS, rows=["id"], null_keys=True), "null_keys"),
        (lambda: hr.Pipeline("orders", ORDERS, outputs={"a": hr.Rows(["id"])}, null_keys=True), "null_keys"),
        (
            lambda: hr.Pipeline(
                "links",
                hr.json("landing/links", {"a": int, "b": int, "at": datetime}).event_time("at", bound="0s"),
                key=["a", "b"],
                loop=hr.Loop(start=col("vertex"), step=col("value"), combine="least"),
                where=HOURLY,
                null_keys=True,
            ),
            "NULL is no vertex",
        ),
    ],
)
def test_what_it_cannot_be_given_to_is_refused(build_refused: Any, why: str) -> None:
    with pytest.raises(PipelineError, match=why):
        build_refused()
