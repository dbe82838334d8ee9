"""Structs, maps and lists as values of panes: aggregates of whole columns, as the reference and DuckDB give them.

They go through retractions, runs, views, readers and sinks.
"""

import json
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.distribute.spark.application import SparkSession
from headrace.errors import PipelineError
from headrace.model.expressions.data_types import in_words
from headrace.pipeline.queries import sql_type
from headrace.read.views.arrow_types import python_rows
from headrace.runs.options import RunOptions
from headrace.runs.process import process
from headrace.testing import rows, run
from tests.process.executors import SparkStandIn
from tests.reference.strategies import examples
from tests.rows.orders import Orders
from tests.rows.test_delivered_rows import Table
from tests.rows.test_nested import (
    ITEMS,
    NESTED_COLUMNS,
    OSLO,
    PLAIN,
    SCHEMA,
    SIGNED_SOURCE,
    as_text,
    expected_value,
    put,
    records,
)
from tests.sinks.given_target import delivering_to
from tests.sinks.worlds import DeltaWorld

ADDRESS, TAGS, PRICES, LINES = (col(name) for name in NESTED_COLUMNS)
PLACE = ADDRESS.field("place")
WHAT: dict[str, hr.Aggregate] = {
    "n": ADDRESS.count(),
    "first": ADDRESS.first(),
    "last": PRICES.last(),
    "lines": LINES.last(),
    "most": TAGS.max_by(PLACE.field("x")),
    "least": LINES.min_by(TAGS.item("a")),
    "place": PLACE.max_by(TAGS.length()),
    "names": PLACE.field("names").first(),
    "usual": ADDRESS.mode(),
    "all": TAGS.collect(),
    "some": LINES.list_agg(2, by=TAGS.length()),
    "different": PRICES.distinct(),
    "both": ADDRESS.pairs(TAGS),
    "all_of_both": PLACE.field("names").pairs(LINES, "both"),
    "by_city": ADDRESS.field("city").map_agg(PRICES),
    "by_x": PLACE.field("x").map_agg(LINES),
}
PAIRS = ("both", "all_of_both", "by_city", "by_x")
NAMES = ["id", *WHAT]
WHENS: dict[str, Any] = {
    "retracting": (SIGNED_SOURCE, {"when": hr.on_update(), "how": hr.retracting("1d")}),
    "without what stays": (PLAIN, {"when": hr.on_update(), "how": hr.retracting("1d", elide_unchanged=True)}),
    "discarding": (PLAIN, {"when": hr.on_update(), "how": hr.discarding("1d")}),
    "the last two": (PLAIN, {"when": hr.on_update(), "how": hr.accumulating("1d", keep_last=2)}),
    "sessions": (PLAIN, {"where": hr.Sessions("1m"), "when": hr.on_update(), "how": hr.retracting("1d")}),
}


def aggregate_orders(source: Any = SIGNED_SOURCE, **parts: Any) -> hr.Pipeline:
    """The newest, the usual, and others of each id and hour."""
    parts = {"where": hr.FixedWindows("1h"), "when": hr.on_update(), "how": hr.retracting("1d"), **parts}
    return hr.Pipeline("orders", source, key="id", what=WHAT, executor="local", **parts)


def texts(panes: Any) -> list[str]:
    return [as_text(pane.row, sorted(pane.row)) for pane in panes]


@pytest.mark.parametrize("name", WHENS)
@given(landed_orders=records(), cut=st.integers(0, 5))
@settings(examples(40, fewest=4), suppress_health_check=list(HealthCheck))
def test_panes_are_those_of_the_reference(name: str, landed_orders: list[dict[str, Any]], cut: int) -> None:
    source, parts = WHENS[name]
    steps = [rows(*part) for part in (landed_orders[:cut], landed_orders[cut:]) if part]
    local, reference = (run(aggregate_orders(source, **parts), steps, executor=one) for one in ("local", "reference"))
    assert Counter(texts(local.panes)) == Counter(texts(reference.panes))


X, XS, N = col("x"), col("xs"), col("n")
OF_ZEROS: dict[str, hr.Aggregate] = {
    "sum": X.sum(), "mean": X.mean(), "min": X.min(), "max": X.max(), "first": X.first(), "last": X.last(),
    "mode": X.mode(), "by": X.max_by(N), "all": X.collect(), "top": X.top(2), "some": X.list_agg(2, by=N),
    "median": X.quantile(0.5), "ends": X.quantiles([0.1, 0.9]), "pairs": X.pairs(N), "map": N.map_agg(X),
    "of_x": X.map_agg(N), "list": XS.last(), "least": XS.min_by(N), "usual": XS.mode(), "lists": XS.collect(),
    "item": XS.item(0).max(),
}  # fmt: skip
ZEROS = st.sampled_from([0.0, -0.0, None, -5e-324, 5e-324, 1.5])


@given(
    values=st.lists(st.tuples(ZEROS, st.none() | st.lists(ZEROS, max_size=2), st.integers(0, 2)), max_size=6),
    cut=st.integers(0, 6),
    withdrawn=st.integers(0, 3),
)
@settings(examples(40), suppress_health_check=list(HealthCheck))
def test_zeros_have_no_sign(values: list[tuple[Any, Any, int]], cut: int, withdrawn: int) -> None:
    schema = {"x": float, "xs": list[float], "n": int, "sign": int, "at": datetime}
    records = [{"x": x, "xs": xs, "n": n, "sign": 1, "at": "2026-05-01T00:00:00Z"} for x, xs, n in values]
    taken_back = [{**one, "sign": -1} for one in records[:withdrawn]]
    steps = [rows(*part) for part in (records[:cut], records[cut:], taken_back) if part]
    for changelog in [None, col("sign")] if not taken_back else [col("sign")]:
        source = hr.json("landing/zeros", schema, changelog=changelog).event_time("at", bound="1h")
        pipeline = hr.Pipeline(
            "zeros", source, key=None, what=OF_ZEROS, where=hr.FixedWindows("1h"), when=hr.on_update(),
            how=hr.retracting("1d"), executor="local",
        )  # fmt: skip
        local, reference = (run(pipeline, steps, executor=one) for one in ("local", "reference"))
        assert Counter(texts(local.panes)) == Counter(texts(reference.panes))
        assert "-0.0" not in str(texts(local.panes))


def test_a_query_over_all_records_gives_the_same() -> None:
    """DuckDB orders NULL in structs otherwise, so no two values go by the same here."""
    times = iter(range(60))
    orders_given = [
        put(id_, minute=next(times), address=address, tags=tags, items=items)
        for id_ in "ab"
        for address in (OSLO, {}, None, {"city": "Rome", "place": {"x": 2.0}})
        for tags, items in (({"a": next(times) * 7 % 20, "b": None}, ITEMS), ({}, []), (None, None))
    ]
    panes = run(aggregate_orders(PLAIN), [rows(*orders_given[:9]), rows(*orders_given[9:])], executor="local").current
    kinds = {name: PLAIN.source.columns[name] for name in ("id", "address", "tags", "items", "at")}
    with duckdb.connect() as connection:
        columns = ", ".join(
            f"(r{'->' if name in NESTED_COLUMNS else '->>'}'{name}')::{sql_type(kind)} as \"{name}\""
            for name, kind in kinds.items()
        )
        connection.execute(
            f"create table orders as select {columns} from (select unnest(?::JSON[]) as r)",
            [[json.dumps({name: expected_value(SCHEMA[name], one[name]) for name in kinds}) for one in orders_given]],
        )
        table = connection.sql(
            "select id, count(address) as n, "
            'first(address order by "at") filter (address is not null) as first, '
            'last(items order by "at") filter (items is not null) as lines, '
            "last(items order by -tags['a']) filter (items is not null and tags['a'] is not null) as least, "
            'first(address.place.names order by "at") filter (address.place.names is not null) as names '
            "from orders group by id"
        ).to_arrow_table()
    rows_by_id = {row["id"]: row for row in python_rows(table)}
    assert len(rows_by_id) == 2
    for pane in panes:
        for name in ("n", "first", "lines", "least", "names"):
            assert as_text({name: pane.values[name]}, [name]) == as_text(rows_by_id[pane.key["id"]], [name])


STEPS: list[list[dict[str, Any]]] = [
    [put("a", address=OSLO, tags={"y": 1, "x": None}), put("b", prices={"p": {"amount": 1}}, items=ITEMS)],
    [
        put("a", minute=1, address={}, tags={"a": 2}, items=[]),
        put("b", -1, prices={"p": {"amount": "1.0"}}, items=ITEMS),
    ],
    [put("a", -1, minute=1, address={}, tags={"a": 2}, items=[]), put("b", minute=2, address={"city": "Rome"})],
]


def values_in_memory() -> dict[str, str]:
    """What stands after all steps, as text."""
    current = run(aggregate_orders(), [rows(*step) for step in STEPS], executor="reference").current
    return {pane.key["id"]: as_text({**pane.key, **as_objects(pane.values)}, NAMES) for pane in current}


def as_objects(values: Any) -> dict[str, Any]:
    """The values of a pane with pairs as tables have them."""
    pairs = {name: [{"left": left, "right": right} for left, right in values[name]] for name in PAIRS}
    return {**values, **pairs}


def standing_values(orders: Orders, pipeline: hr.Pipeline, **options: Any) -> dict[str, str]:
    table = orders.handle(pipeline).current(columns=NAMES, **options).to_arrow()
    return {row["id"]: as_text(row, NAMES) for row in python_rows(table)}


def test_runs_keep_and_withdraw_them(tmp_path: Path) -> None:
    orders, pipeline = Orders(tmp_path), aggregate_orders()
    handle = orders.handle(pipeline)
    for step in STEPS:
        orders.run(pipeline, *step)
    assert standing_values(orders, pipeline) == values_in_memory()
    withdrawn_panes = [row for row in python_rows(handle.panes().to_arrow()) if row["is_retraction"]]
    assert next(row["lines"] for row in withdrawn_panes if row["id"] == "b") == [
        {"sku": "s", "x": None, "marks": {"a": None, "b": 1.0}, "grid": [[0.0], None, []]},
        None,
        dict.fromkeys(("sku", "x", "marks", "grid")),
    ]
    snapshots = [one["snapshot"] for one in handle.snapshots().to_json()]
    assert handle.diff(snapshots[0], snapshots[-1]).output.rows.changed == 1
    assert handle.diff(snapshots[-1], snapshots[-1]).output.rows.changed == 0
    oslo = handle.current(where=col("first").field("city") == "Oslo").to_json()
    assert [row["id"] for row in oslo] == ["a"]
    assert [row["id"] for row in handle.current(where="usual.city = 'Rome'").to_json()] == ["b"]


def test_a_replay_and_a_batch_give_the_same(tmp_path: Path) -> None:
    orders, pipeline = Orders(tmp_path), aggregate_orders()
    for step in STEPS:
        orders.run(pipeline, *step)
    orders.handle(pipeline).backfill(branch="again")
    assert standing_values(orders, pipeline, at="again") == values_in_memory()


def test_what_reads_panes_reads_their_parts(tmp_path: Path) -> None:
    results = {
        "last": ADDRESS.last(),
        "tags": TAGS.last(),
        "lines": LINES.last(),
        "city": col("last").field("city"),
        "y": col("tags").item("y"),
        "sku": col("lines").item(0).field("sku"),
    }
    by_city = hr.Aggregation(
        key="city", where=hr.FixedWindows("1h"),
        what={"n": hr.count(), "place": col("last").field("place").last(), "y": col("y").sum()},
        when=hr.on_update(), how=hr.retracting("1d"),
    )  # fmt: skip
    pipeline = hr.Pipeline(
        "orders", SIGNED_SOURCE, key="id", what=results, where=hr.FixedWindows("1h"), when=hr.on_update(),
        how=hr.retracting("1d"), then=[by_city], having=col("last").field("city") == "Oslo", executor="local",
    )  # fmt: skip
    steps = [rows(*step) for step in STEPS]
    local, reference = (run(pipeline, steps, executor=one) for one in ("local", "reference"))
    assert texts(local.panes) == texts(reference.panes)
    assert local.current.only("city", "n", "y") == [{"city": "Oslo", "n": 1, "y": 1}]


def test_another_pipeline_reads_them(tmp_path: Path) -> None:
    orders, pipeline = Orders(tmp_path), aggregate_orders()
    columns = {"id": str, "first": SCHEMA["address"], "last": SCHEMA["prices"], "lines": SCHEMA["items"]}
    reader_pipeline = hr.Pipeline("below", hr.published("orders", columns), rows=[*columns], executor="local")
    for step in STEPS:
        orders.run(pipeline, *step)
        orders.run(reader_pipeline)
    reader_rows = python_rows(orders.handle(reader_pipeline).current(columns=[*columns]).to_arrow())
    upper_rows = python_rows(orders.handle(pipeline).current(columns=[*columns]).to_arrow())
    assert Counter(as_text(row, [*columns]) for row in reader_rows) == Counter(
        as_text(row, [*columns]) for row in upper_rows
    )


def test_a_table_holds_them(tmp_path: Path) -> None:
    orders, table, pipeline = (
        Orders(tmp_path),
        Table(),
        aggregate_orders(sinks=[hr.postgres("orders", connection="nowhere")]),
    )
    for step in STEPS:
        orders.run(pipeline, *step)
        with delivering_to(table):
            orders.handle(pipeline).deliver()
    assert {row["id"]: as_text(dict(row), NAMES) for row in table.rows()} == values_in_memory()


@pytest.mark.slow
def test_a_delta_table_holds_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    orders, world = Orders(tmp_path), DeltaWorld(str(tmp_path / "lake"))
    monkeypatch.setenv("HEADRACE_CONN_LAKE", (tmp_path / "lake").as_uri())
    pipeline = aggregate_orders(sinks=[world.sink])
    for step in STEPS:
        orders.run(pipeline, *step)
        orders.handle(pipeline).deliver()
        (sink_check,) = orders.handle(pipeline).check_sinks()
        assert sink_check.comparison is not None and sink_check.comparison.is_equal
    assert len(world.rows()) == 2


def test_runs_over_an_exchange_give_the_same(tmp_path: Path) -> None:
    orders, pipeline = Orders(tmp_path), aggregate_orders()
    with SparkStandIn.stand_in() as starts:
        for step in STEPS:
            orders.run(pipeline, *step, executor="spark")
        assert standing_values(orders, pipeline) == values_in_memory()
    assert starts


@pytest.mark.spark
def test_runs_on_spark_give_the_same(tmp_path: Path, spark: SparkSession) -> None:
    orders, pipeline = Orders(tmp_path), aggregate_orders()
    for number, step in enumerate(STEPS):
        orders.land(str(number), *step)
        process(pipeline, orders.root, RunOptions(str(number), executor="spark"), spark=spark)
    assert standing_values(orders, pipeline, at="main") == values_in_memory()


def test_each_has_the_type_of_what_it_is_of() -> None:
    kinds = {name: in_words(kind) for name, kind in aggregate_orders().value_types.items()}
    assert (kinds["n"], kinds["different"], kinds["names"]) == ("int", "int", "list of string")
    assert kinds["most"] == "map of string to int"
    assert kinds["all"] == "list of map of string to int"
    assert kinds["usual"] == kinds["first"] == in_words(PLAIN.source.columns["address"])


@pytest.mark.parametrize(
    ("make_aggregate", "message"),
    [
        (ADDRESS.max, "a struct of .* is no value"),
        (lambda: TAGS.top(2), "a map of string to int is no value"),
        (LINES.sum, "a list of struct of .* is no value"),
        (ADDRESS.approx_distinct, "a struct of .* is no value"),
        (lambda: TAGS.map_agg(col("id")), "a map of string to int is no value"),
        (lambda: col("id").max_by(TAGS), "a map of string to int is no value"),
    ],
)
def test_aggregates_that_take_values_alone_say_so(make_aggregate: Any, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        hr.Pipeline(
            "orders", PLAIN, key="id", what={"x": make_aggregate()}, where=hr.FixedWindows("1h"), executor="local"
        )
