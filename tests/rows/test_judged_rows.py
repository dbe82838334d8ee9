"""Rows beside limits, and beside history: what is held back until a person releases it."""

from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.errors import LimitExceededError, UnusualDataError
from tests.rows.orders import CHANGES, COLUMNS, ORDERS, Orders, order

EARLY: dict[str, Any] = {"min_versions": 2, "min_rows": 5}
JUDGING_PARTS: dict[str, Any] = {
    "usual": (
        hr.usual_volume(within=4, min_versions=2),
        hr.usual_nulls("price", points=10, **EARLY),
        hr.usual_distribution("shop", distance=0.2, view="panes", **EARLY),
    ),
    "limits": hr.Limits(rejected="10%"),
    "executor": "local",
}
HOURLY: dict[str, Any] = {"where": hr.FixedWindows("1h"), "when": hr.on_update(), "how": hr.retracting("1d")}
PIPELINES = {
    "appended": hr.Pipeline("orders", ORDERS, rows=["id", "shop", "price"], **JUDGING_PARTS),
    "signed": hr.Pipeline("orders", CHANGES, rows=["id", "shop", "price"], **JUDGING_PARTS),
    "groups": hr.Pipeline(
        "orders", ORDERS, rows=["shop", "price"], key="id", take=hr.newest(), **HOURLY, **JUDGING_PARTS
    ),
}


@pytest.fixture(params=PIPELINES)
def pipeline(request: pytest.FixtureRequest) -> hr.Pipeline:
    return PIPELINES[request.param]


def hours(orders: Orders, pipeline: hr.Pipeline, first: int, number: int, **other: Any) -> Any:
    """Hours of ten orders each, a version for each; ``other``: what they have instead of the usual."""
    for hour in range(first, first + number):
        records = [order(f"{one}", one + 1, 60 * hour + one, sign=1) | other for one in range(10)]
        result = orders.run(pipeline, *records)
    return result


def test_rows_are_held_against_what_was_usual(tmp_path: Path, pipeline: hr.Pipeline) -> None:
    orders = Orders(tmp_path)
    result = hours(orders, pipeline, 0, 4)
    assert [finding.is_judged for finding in result.usual] == [True, True, True]
    published_snapshot = orders.handle(pipeline).catalog.head().refs["published"]
    with pytest.raises(UnusualDataError, match=r"share of NULL in price \(current\): 100.00%, usually 0.00%"):
        hours(orders, pipeline, 4, 1, price=None)
    head = orders.handle(pipeline).catalog.head()
    assert head.refs["published"] == published_snapshot != head.refs["main"]
    orders.handle(pipeline).release("main", message="ada: they are free today")
    second_hours = hours(orders, pipeline, 5, 1)
    assert second_hours.published == orders.handle(pipeline).catalog.head().refs["main"]
    with pytest.raises(UnusualDataError, match=r"distribution of shop \(panes\)"):
        hours(orders, pipeline, 6, 1, shop="two")
    assert orders.handle(pipeline).current().count() == 60


def test_records_that_give_no_rows_count_beside_the_limit(tmp_path: Path, pipeline: hr.Pipeline) -> None:
    orders = Orders(tmp_path)
    hours(orders, pipeline, 0, 1)
    broken_records = [order("a", 1, 60 + number, sign=1) | {"at": "nonsense"} for number in range(2)]
    with pytest.raises(LimitExceededError, match=r"2 of 12 records \(16.67%\); the limit is 10%"):
        orders.run(pipeline, *broken_records, *(order(f"{number}", 1, 61, sign=1) for number in range(10)))


def test_a_column_that_cannot_be_given_counts_beside_the_limit(tmp_path: Path) -> None:
    pipeline = hr.Pipeline("orders", ORDERS, rows=COLUMNS, filter=col("price") > 0, **{**JUDGING_PARTS, "usual": ()})
    orders = Orders(tmp_path)
    orders.run(pipeline, *(order(f"{number}") for number in range(9)), order("too large", 2**62))
    with pytest.raises(LimitExceededError, match="1 of 3 records"):
        orders.run(pipeline, order("a"), order("too large", 2**62), order("left out", -(2**62)))
