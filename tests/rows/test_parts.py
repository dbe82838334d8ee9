"""Fields of structs, values of maps and items of lists wherever an expression may stand, on the kernel and the
reference.
"""

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.errors import QueryError
from headrace.testing import rows, run
from tests.reference.strategies import examples
from tests.rows.orders import Orders
from tests.rows.test_nested import OSLO, PLAIN, SCHEMA, SIGNED_SOURCE, STEPS, as_text, nested_rows, orders, put, records

__all__ = ["orders"]

ADDRESS, TAGS, PRICES = col("address"), col("tags"), col("prices")
CITY, PLACE = ADDRESS.field("city"), ADDRESS.field("place")
X, SEEN_AT, FIRST = PLACE.field("x"), PLACE.field("seen"), PLACE.field("names").item(0)
PRICE = PRICES.item("a")
ITEMS = col("items")
EXPLODING_SOURCE = hr.json("landing/orders", SCHEMA, changelog=col("sign"), explode="items").event_time(
    "at", bound="1h"
)
AMOUNT, BY_KEY = PRICE.field("amount"), PRICE.field("by").item("é")
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
HOUR, ALL_TIME = hr.FixedWindows("1h"), hr.GlobalWindows()


def pipeline(source: Any, **parts: Any) -> hr.Pipeline:
    return hr.Pipeline("orders", source, executor="local", **parts)


PIPELINES: dict[str, Any] = {
    "columns": lambda: pipeline(
        SIGNED_SOURCE,
        rows={"id": col("id"), "city": CITY.upper(), "place": PLACE, "x": X * 2, "seen": SEEN_AT, "price": PRICE},
        filter=TAGS.length().is_null() | (TAGS.length() < 3),
    ),
    "filter": lambda: pipeline(SIGNED_SOURCE, rows=["id", "tags"], filter=(TAGS.item("a") == 1) | PRICES.contains("b")),
    "aggregates": lambda: pipeline(
        SIGNED_SOURCE,
        key={"city": CITY},
        null_keys=True,
        what={
            "n": hr.count().where(SEEN_AT > MOMENT),
            "first": FIRST.mode(),
            "tags": TAGS.item("a").sum(),
            "most": AMOUNT.max(),
            "by": BY_KEY.collect(),
            "when": X.max_by(TAGS.item("b")),
        },
        where=HOUR,
    ),
    "items": lambda: pipeline(
        SIGNED_SOURCE,
        rows={
            "id": col("id"),
            "n": ITEMS.length(),
            "last": ITEMS.item(-1),
            "sku": ITEMS.item(0).field("sku"),
            "mark": ITEMS.item(0).field("marks").item("a"),
            "cell": ITEMS.item(0).field("grid").item(0).item(0),
            "row": ITEMS.item(1).field("grid").item(-1),
            "rest": ITEMS.slice(1),
        },
        filter=ITEMS.is_null() | ITEMS.item(0).is_not_null(),
    ),
    "exploded": lambda: pipeline(EXPLODING_SOURCE, rows=["id", "items", "tags"]),
    "sums of exploded": lambda: pipeline(
        EXPLODING_SOURCE,
        key={"sku": ITEMS.field("sku")},
        null_keys=True,
        what={"n": hr.count(), "x": ITEMS.field("x").sum(), "mark": ITEMS.field("marks").item("b").max()},
        where=HOUR,
    ),
    "trigger": lambda: pipeline(
        PLAIN, key="id", what={"n": hr.count()}, where=ALL_TIME, when=hr.Repeatedly(hr.AfterPunctuation(CITY == "Oslo"))
    ),
    "newest": lambda: pipeline(
        PLAIN, key={"city": CITY}, null_keys=True, rows=["id", "tags"], take=hr.newest(TAGS.item("a"))
    ),
    "top": lambda: pipeline(SIGNED_SOURCE, key="id", rows={"price": PRICE}, take=hr.top(1, by=hr.coalesce(AMOUNT, 0))),
    "ids": lambda: pipeline(PLAIN, rows=["id", "tags"], deduplicate=hr.Deduplicate(FIRST, "1d")),
}


def count_standing_texts(result: Any) -> Counter[str]:
    """What stands: panes, or rows."""
    standing = [{**row.key, **row.values} for row in result.current]
    return Counter(as_text(row, sorted(row)) for row in standing)


@pytest.mark.parametrize("name", PIPELINES)
@given(landed_orders=records(), cut=st.integers(0, 5))
@settings(examples(40, fewest=3), suppress_health_check=list(HealthCheck))
def test_the_kernel_reads_what_the_reference_reads(name: str, landed_orders: list[dict[str, Any]], cut: int) -> None:
    steps = [rows(*part) for part in (landed_orders[:cut], landed_orders[cut:]) if part]
    local, reference = (run(PIPELINES[name](), steps, executor=executor) for executor in ("local", "reference"))
    assert count_standing_texts(local) == count_standing_texts(reference)
    assert [row["reason"] for row in local.rejected] == [row["reason"] for row in reference.rejected]


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        (CITY == "Oslo", ["a"]),
        (SEEN_AT.is_null() & TAGS.contains("y"), ["a"]),
        (TAGS.item("y") == 1, ["a"]),
        (TAGS.length() == 0, ["b"]),
        (PRICE.is_null() & ADDRESS.is_null(), ["b", "c"]),
        (FIRST == "a", ["a"]),
        (ITEMS.item(0).field("sku") == "s", ["c"]),
        (ITEMS.item(0).field("grid").length() == 3, ["c"]),
        (ITEMS.length() == 3, ["c"]),
    ],
)
def test_a_condition_of_a_reader(orders: Orders, where: hr.Expr, ids: list[str]) -> None:
    orders.run(nested_rows(), *STEPS[0])
    assert sorted(row["id"] for row in orders.handle(nested_rows()).current(where=where).to_json()) == ids


def test_a_condition_that_does_not_fit(orders: Orders) -> None:
    orders.run(nested_rows(), *STEPS[0])
    with pytest.raises(QueryError, match=r"there is no field 'cty'; did you mean 'city'. the fields are city, place"):
        orders.handle(nested_rows()).current(where=ADDRESS.field("cty") == "Oslo").count()


def test_another_pipeline_reads_parts(orders: Orders) -> None:
    read = hr.published("orders", {"address": SCHEMA["address"], "tags": SCHEMA["tags"]})
    reader_below = hr.Pipeline(
        "below", read, key={"city": CITY}, what={"y": TAGS.item("y").sum()}, where=ALL_TIME, when=hr.on_update(),
        null_keys=True, executor="local",
    )  # fmt: skip
    orders.run(nested_rows(), *STEPS[0])
    orders.run(reader_below)
    y_by_city = {row["city"]: row["y"] for row in orders.handle(reader_below).current().to_json()}
    assert y_by_city == {"Oslo": 1, None: 0}


def test_an_expectation_of_a_part(orders: Orders) -> None:
    checked_pipeline = pipeline(
        PLAIN, rows={"city": CITY}, expectations=[hr.expect("column_values_to_not_be_null", column="city")]
    )
    orders.run(checked_pipeline, put("a", address=OSLO))
    with pytest.raises(hr.errors.FixDataError):
        orders.run(checked_pipeline, put("b", address={}))


def test_what_overflows_in_a_part_is_a_dead_letter() -> None:
    wide = pipeline(PLAIN, rows={"id": col("id"), "tags": TAGS.item("a") * 2**62})
    for executor in ("local", "reference"):
        result = run(wide, [rows(put("a", tags={"a": 2}), put("b", tags={"b": 2}))], executor=executor)
        assert [row["id"] for row in result.current] == ["b"]
        (letter,) = result.rejected
        assert letter["reason"] == f"column tags: (tags.item('a') * {2**62}) leaves 64 bits"
