"""Rows that a function of a user's own, or SQL, makes of those of a group: what readers see of them, run by run."""

from collections import Counter
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.errors import PipelineError, RetryError
from headrace.kernel.aggregates.group_rows import GroupFunctionError
from headrace.pipeline.loading.code_digests import code_of
from headrace.pipeline.loading.registry import resolve_pipeline
from headrace.pipeline.queries import GroupQueryError
from headrace.runs.options import RunOptions
from headrace.runs.restore import ChangedPipelineError
from tests.process.executors import ExecutorUnderTest, on_spark
from tests.reading import read
from tests.rows import group_functions
from tests.rows.orders import CHANGES, ORDERS, Orders, minute, order

HOUR = hr.FixedWindows("1h")
ON_UPDATE: Mapping[str, Any] = {"where": HOUR, "when": hr.on_update(), "how": hr.retracting("1d")}
RUNNING = "select *, sum(price) over (order by event_time) as spent from rows"


@pytest.fixture
def orders(tmp_path: Path) -> Orders:
    return Orders(tmp_path)


def of_query(sql: str, rows: Any = ("id", "price"), **more: Any) -> hr.Pipeline:
    """What a query makes of the orders of each shop."""
    return taking(hr.query(sql), rows, **more)


def of_function(name: str, returns: Any, rows: Any = ("id", "price"), **more: Any) -> hr.Pipeline:
    """What a function makes of them."""
    return taking(hr.function(f"tests.rows.group_functions:{name}", returns), rows, **more)


def taking(take: Any, rows: Any, **more: Any) -> hr.Pipeline:
    parts = {"key": "shop", "executor": "local", **more}
    return hr.Pipeline("orders", parts.pop("source", ORDERS), rows=rows, take=take, **parts)


def standing_rows(orders: Orders, pipeline: hr.Pipeline, *columns: str) -> list[tuple[Any, ...]]:
    """Columns of each row that stands."""
    rows = orders.handle(pipeline).current(columns=[*columns]).to_json()
    return sorted(tuple(row[name] for name in columns) for row in rows)


def test_a_late_row_moves_a_running_sum(orders: Orders) -> None:
    running = of_query(RUNNING)
    assert {name: str(kind) for name, kind in running.value_types.items()} == {
        "shop": "string", "id": "string", "price": "int", "spent": "int",
    }  # fmt: skip
    orders.run(running, order("a", 1), order("b", 3, 5), order("x", 7, 6, shop="two"))
    assert standing_rows(orders, running, "id", "spent") == [("a", 1), ("b", 4), ("x", 7)]
    orders.run(running, order("late", 10, 2))
    assert standing_rows(orders, running, "id", "spent") == [("a", 1), ("b", 14), ("late", 11), ("x", 7)]
    left = orders.handle(running).panes(where="epoch = 1", columns=["id", "spent", "is_retraction"]).to_json()
    assert sorted((row["id"], row["spent"], row["is_retraction"]) for row in left) == [
        ("b", 4, True), ("b", 14, False), ("late", 11, False),
    ]  # fmt: skip


def test_a_query_is_of_its_group_alone(orders: Orders) -> None:
    share = of_query("select id, price * 100 // sum(price) over () as share, event_time from rows")
    orders.run(share, order("a", 1), order("b", 3), order("x", 5, shop="two"))
    assert standing_rows(orders, share, "shop", "id", "share") == [
        ("one", "a", 25),
        ("one", "b", 75),
        ("two", "x", 100),
    ]


def test_rows_of_a_window_have_its_end_unless_they_say_their_time(orders: Orders) -> None:
    total = of_query("select sum(price) as total from rows", **ON_UPDATE)
    orders.run(total, order("a", 1), order("b", 3, 5), order("c", 5, 60))
    end = datetime(2026, 5, 1, 0, 59, 59, 999999)
    event_times = {(row[1], row[-1]) for row in orders.current(total)}
    assert event_times == {(4, end), (5, end.replace(hour=1))}
    last = of_query("select sum(price) as total, max(event_time) as event_time from rows", **ON_UPDATE)
    elsewhere = Orders(orders.folder / "again")
    elsewhere.run(last, order("a", 1), order("b", 3, 5))
    assert {row[-1] for row in elsewhere.current(last)} == {minute(5)}


def test_a_function_gets_a_table_and_gives_one(orders: Orders) -> None:
    group_functions.calls.clear()
    total = of_function("note_rows", {"total": int}, **ON_UPDATE)
    orders.run(total, order("b", 3, 5), order("a", 1, 5), order("c", None, 0), order("x", 5, shop="two"))
    assert standing_rows(orders, total, "shop", "total") == [("one", 4), ("two", 5)]
    given_table = next(table for table in group_functions.calls if table.num_rows == 3)
    assert given_table.column_names == ["shop", "id", "price", "event_time"]
    assert given_table.column("id").to_pylist() == ["c", "a", "b"]  # by event time, then by their columns


def test_a_function_may_give_the_key_back_and_a_time(orders: Orders) -> None:
    gaps = of_function("gaps", {"gap": int, "event_time": datetime})
    orders.run(gaps, order("a", 1), order("b", 3, 5), order("x", 1, shop="two"))
    assert orders.current(gaps) == Counter(
        {("one", None, minute(0)): 1, ("one", 300_000_000, minute(5)): 1, ("two", None, minute(0)): 1}
    )


def test_a_function_may_give_several_rows_of_one_or_none(orders: Orders) -> None:
    double_pipeline = of_function("double_rows", {"price": int}, **ON_UPDATE)
    orders.run(double_pipeline, order("a", 1), order("b", -1, 60), order("c", 2, 61))
    assert standing_rows(orders, double_pipeline, "price") == [(1,), (1,), (2,), (2,)]
    nothing = of_function("nothing", {"total": int}, **ON_UPDATE)
    elsewhere = Orders(orders.folder / "again")
    elsewhere.run(nothing, order("a", 1))
    assert standing_rows(elsewhere, nothing, "total") == []


@pytest.mark.parametrize(
    "pipeline",
    [of_query(RUNNING, source=CHANGES), of_function("sum_rows", {"total": int}, source=CHANGES, **ON_UPDATE)],
    ids=["query", "function"],
)
def test_what_is_withdrawn_counts_no_more(orders: Orders, pipeline: hr.Pipeline) -> None:
    column = [*pipeline.value_types][1 if "total" in pipeline.value_types else 3]
    orders.run(pipeline, order("a", 5, 1, sign=1), order("b", 3, 2, sign=1), order("never", 9, 3, sign=-1))
    assert max(standing_rows(orders, pipeline, column)) == (8,)
    orders.run(pipeline, order("a", 5, 1, sign=-1), order("never", 9, 3, sign=1))
    assert standing_rows(orders, pipeline, column) == [(3,)]
    orders.run(pipeline, order("b", 3, 2, sign=-1))
    assert standing_rows(orders, pipeline, column) == []


def test_what_was_emitted_is_withdrawn_whatever_the_code_says_now(
    orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    total = of_function("summed_unless_told", {"total": int}, **ON_UPDATE)
    orders.run(total, order("a", 1))
    monkeypatch.setenv("SUM_NOTHING", "1")
    orders.run(total, order("b", 2))
    assert standing_rows(orders, total, "total") == []
    assert orders.handle(total).panes(where="is_retraction", columns=["total"]).to_json() == [{"total": 1}]


def test_other_outputs_and_ids_go_by_what_is_computed(orders: Orders) -> None:
    outputs: Mapping[str, Any] = {
        "running": hr.Rows(["id", "price"], key="shop", take=hr.query(RUNNING), id="id"),
        "most": hr.Rows(["id", "spent"], of="running", key="shop", take=hr.top(1, by="spent")),
        "places": hr.Rows(
            ["spent"], of="running", key="shop",
            take=hr.function("tests.rows.group_functions:rank_rows",
                             {"spent": int, "place": int, "event_time": datetime}),
        ),
    }  # fmt: skip
    pipeline = hr.Pipeline("orders", ORDERS, outputs=outputs, executor="local")
    orders.run(pipeline, order("a", 1), order("b", 2, 1))
    orders.run(pipeline, order("late", 5, 0))
    handle = orders.handle(pipeline)
    assert handle["most"].current(columns=["id", "spent"]).to_json() == [{"id": "b", "spent": 8}]
    rows = handle["places"].current(columns=["spent", "place"]).to_json()
    assert sorted((row["place"], row["spent"]) for row in rows) == [(0, 6), (1, 6), (2, 8)]


def test_the_event_time_that_a_query_gives_may_be_an_id(orders: Orders) -> None:
    last = of_query("select max(event_time) as event_time from rows", id=["shop", "event_time"])
    orders.run(last, order("a", 1), order("b", 3, 5), order("x", 3, 5, shop="two"))
    assert orders.current(last) == Counter({("one", minute(5)): 1, ("two", minute(5)): 1})


def test_a_query_reads_rows_that_were_joined(orders: Orders) -> None:
    rates = hr.json("landing/rates", {"shop": str, "rate": int, "at": datetime}).event_time("at", bound="1h")
    worth = of_query(
        "select id, sum(price * rate) over (order by event_time) as worth, event_time from rows",
        ["id", "price", "rate"],
        join=[hr.as_of(rates.named("rates"), on="shop", columns=["rate"])],
        how=hr.retracting("1d"),
    )
    (orders.folder / "landing/rates").mkdir(parents=True)
    rate = '{"shop": "one", "rate": %d, "at": "2026-05-01T00:%02d:00Z"}\n'
    (orders.folder / "landing/rates/1.json").write_text(rate % (2, 0))
    orders.run(worth, order("a", 1, 1), order("b", 3, 9))
    assert standing_rows(orders, worth, "id", "worth") == [("a", 2), ("b", 8)]
    (orders.folder / "landing/rates/2.json").write_text(rate % (10, 5))
    orders.run(worth)
    assert standing_rows(orders, worth, "id", "worth") == [("a", 2), ("b", 32)]


def test_batch_and_micro_batches_give_the_same(orders: Orders) -> None:
    running = of_query(RUNNING)
    for number in range(12):
        orders.run(running, order(f"{number:02}", number, number * 7 % 12))
    first_rows = standing_rows(orders, running, "id", "spent")
    assert first_rows[-1] == ("11", sum(n for n in range(12) if n * 7 % 12 <= 5))
    orders.handle(running).backfill(promote=True)
    assert standing_rows(orders, running, "id", "spent") == first_rows


def test_rows_that_an_order_leaves_equal_stay_in_their_order(orders: Orders) -> None:
    places = of_query("select *, row_number() over (order by price) as place from rows")
    records = [order(f"{number:02}", 1, number // 4) for number in (7, 3, 11, 0, 5, 9, 2, 1)]
    orders.run(places, *records[:3])
    orders.run(places, *records[3:])
    assert [id_ for _, id_ in standing_rows(orders, places, "place", "id")] == sorted(
        record["id"] for record in records
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fails", "failed: ValueError: 2 rows are too many"),
        ("text", "gave str, and must give a pyarrow.Table"),
        ("small", "declares column total as int, which is int64 in Arrow, and gave int32: cast it"),
        ("double", "gave column total twice"),
        ("rank_rows", "declares column total, and did not give it"),
        ("move_shop", "gave another shop than that of its group"),
        ("timeless", "gave column event_time, which it does not declare"),
        ("counting", "at first, and {'total': "),
        ("roll_dice", "It may keep nothing between two calls"),
    ],
)
def test_a_function_that_is_wrong_is_named_with_its_group(orders: Orders, name: str, message: str) -> None:
    with pytest.raises(GroupFunctionError) as failure:
        orders.run(of_function(name, {"total": int}, **ON_UPDATE), order("a", 1), order("b", 2))
    assert message in str(failure.value)
    assert f"function of a group tests.rows.group_functions:{name} " in str(failure.value)
    assert "key shop='one' in the window from 2026-05-01" in str(failure.value)
    assert failure.value.code == "config.group_function"


@pytest.mark.parametrize(
    ("name", "returns", "message"),
    [
        ("timeless", {"total": int, "event_time": datetime}, "gave NULL as event_time"),
        ("ancient", {"total": int, "event_time": datetime}, "gave a time outside of the years 1900 to 9998"),
        ("endless", {"day": date}, "gave a time outside of the years 1 to 9999 as day"),
        ("move_shop", {"total": int, "shop": str}, "gave shop elsewhere: rows have the key by themselves"),
        ("nowhere", {"total": int}, "has no function nowhere"),
        ("not_callable", {"total": int}, "has no function not_callable"),
    ],
)
def test_times_and_keys_of_a_function_are_looked_at(orders: Orders, name: str, returns: Any, message: str) -> None:
    with pytest.raises(GroupFunctionError, match=message):
        orders.run(of_function(name, returns, **ON_UPDATE), order("a", 1))


def test_a_function_may_ask_for_another_try(orders: Orders) -> None:
    with pytest.raises(RetryError, match="busy"):
        orders.run(of_function("waits", {"total": int}, **ON_UPDATE), order("a", 1))


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("select id::int as number, event_time from rows", "Could not convert string 'b'"),
        ("select sum(price) * 9223372036854775807 as much, max(event_time) as event_time from rows", "out of range"),
        ("select price, null::timestamptz as event_time from rows", "gave NULL as event_time"),
        ("select upper(shop) as shop, event_time from rows", "gave shop ONE: rows have the key by themselves"),
        ("select 'infinity'::date as day, event_time from rows", "outside of the years 1 to 9999"),
    ],
)
def test_a_query_that_fails_is_named_with_its_group(orders: Orders, sql: str, message: str) -> None:
    with pytest.raises(GroupQueryError) as failure:
        orders.run(of_query(sql, filter=col("price") > 0), order("b", 2), order("1", 0, shop="zero"))
    assert message in str(failure.value)
    assert "(key shop='one' in the window from " in str(failure.value)
    assert failure.value.code == "config.group_query"


@pytest.mark.parametrize("shop", ["one", "two", "three"])
def test_the_group_of_which_a_query_fails_is_found_among_others(orders: Orders, shop: str) -> None:
    records = [order(str(number), 1, shop=name) for number, name in enumerate(("one", "two", "three"))]
    numbers = of_query("select id::int as number, event_time from rows")
    with pytest.raises(GroupQueryError, match=f"key shop='{shop}'"):
        orders.run(numbers, *records, order("b", 2, shop=shop))


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("select random() as n, * from rows", "random"),
        ("select * from rows where event_time < now()", "now"),
        ("select *, current_date as today from rows", "current_date"),
        ("select *, localtimestamp as today from rows", "localtimestamp"),
        ("select *, ago(interval 1 hour) as before from rows", "ago"),
        ("select *, age(event_time)::varchar as old from rows", "write age\\(later, earlier\\)"),
        ("select uuid() as id, * from rows", "uuid"),
        ("select nextval('s') as id, * from rows", "nextval"),
        ("select current_setting('threads') as n, * from rows", "current_setting"),
        ("select reservoir_quantile(price, 0.5) as n from rows", "write quantile_cont"),
        ("select * from rows using sample 10%", "a sample is another one each time"),
        ("select * from 'landing/orders/0000.json'", "a query reads one table"),
        ("select * from read_text('/etc/hostname')", "a query reads one table"),
        ("with a as (select * from orders) select * from a", "a query reads one table"),
        ("select * from rows where price in (select threads from duckdb_settings())", "a query reads one table"),
        ("select * from information_schema.tables", "a query reads one table"),
        ("select * from rows where price > $1", "it has a parameter"),
        ("describe rows", "a query reads one table"),
        ("pivot rows on shop using sum(price)", "it is no SELECT"),
        ("insert into rows select * from rows", "it is no SELECT"),
        ("copy rows to 'elsewhere.csv'", "it is no SELECT"),
        ("set threads = 4", "it is no SELECT"),
        ("select 1; select 2", "it is 2 statements"),
        ("select from where", "syntax error"),
        ("", "write text"),
        (3, "write text"),
    ],
)
def test_a_query_that_may_give_something_else_is_refused(sql: Any, message: str) -> None:
    with pytest.raises(PipelineError, match=message) as failure:
        hr.query(sql)
    assert sql in ("", 3) or isinstance(failure.value, GroupQueryError)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sql": "select cost, event_time from rows"}, '"cost" not found.*columns of rows are shop, id, price, event'),
        ({"sql": "select id, id, event_time from rows"}, "it gives column 'id' twice"),
        (
            {"sql": "select list(interval 1 day) as x, max(event_time) as event_time from rows"},
            "cast it to one of VARCHAR",
        ),
        ({"sql": "select (price * 1.5)::decimal(20, 12) as x, event_time from rows"}, "cast it to one of VARCHAR"),
        (
            {"sql": "select map([price], [id]) as x, event_time from rows"},
            r"to a list, a STRUCT or a MAP.VARCHAR, \.\.\..",
        ),
        ({"sql": "select row(price, id) as x, event_time from rows"}, "cast it to one of VARCHAR"),
        ({"sql": "select null as x, event_time from rows"}, "cast it to one of VARCHAR"),
        ({"sql": "select {'a': {}} as x, event_time from rows"}, r"is STRUCT.a STRUCT., which columns of results"),
        ({"sql": "select sum(price) as total from rows"}, "gives no column event_time"),
        ({"sql": "select price as event_time from rows"}, "it gives event_time as int, and that is a timestamp"),
        ({"sql": "select 1 as shop, event_time from rows"}, "gives column 'shop' as int, and that is the key"),
        ({"sql": "select id as timing, event_time from rows"}, "is a column of every row"),
        ({"sql": "select id as _id, event_time from rows"}, "names that start with _"),
        ({"sql": "select id, price as ID, event_time from rows"}, "differ only in case"),
        ({"sql": RUNNING, "rows": ["at"]}, '"price" not found'),
        ({"sql": RUNNING, "renamed": {"old": "spent"}}, "columns are called what take= calls them"),
        ({"sql": RUNNING, "id": "nothing"}, "id='nothing': there is no such column; rows have shop, id, price, spent"),
    ],
)
def test_mistakes_of_a_query_say_what_to_write(arguments: dict[str, Any], message: str) -> None:
    parts = {"rows": ["id", "price"], **arguments}
    with pytest.raises(PipelineError, match=message):
        of_query(parts.pop("sql"), parts.pop("rows"), **parts)


@pytest.mark.parametrize(
    ("name", "returns", "message"),
    [
        ("sum_rows", {"total": int}, "gives no column event_time"),
        ("sum_rows", {}, "name the columns and their types"),
        ("sum_rows", {"total": dict[int, int]}, "the keys of a map are text"),
        ("sum_rows", {"total": list[int], "event_time": list[datetime]}, "gives event_time as list of timestamp"),
        ("sum_rows", {"_total": int, "event_time": datetime}, "names that start with _"),
        ("", {"total": int}, "write module:function"),
    ],
)
def test_mistakes_of_a_function_say_what_to_write(name: str, returns: Any, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        of_function(name, returns)


def test_an_error_of_a_query_keeps_its_code_in_a_pipeline() -> None:
    with pytest.raises(GroupQueryError, match="pipeline orders: query"):
        of_query("select cost from rows")


@pytest.mark.parametrize(
    "changed_pipeline",
    [
        of_query("select *, sum(price) over (order by event_time desc) as spent from rows"),
        of_query(RUNNING, ["id", "price", "at"]),
        taking(hr.newest(), ["id", "price"]),
    ],
    ids=["text", "a column more", "take"],
)
def test_another_query_is_a_replay(orders: Orders, changed_pipeline: hr.Pipeline) -> None:
    orders.run(of_query(RUNNING), order("a", 1))
    orders.land("more", order("b", 2))
    with pytest.raises(ChangedPipelineError):
        orders.handle(changed_pipeline).run(allow_new_aggregates=True)


def test_the_code_of_a_function_is_recorded() -> None:
    (name,) = code_of(of_function("sum_rows", {"total": int}, **ON_UPDATE))
    assert name == "tests.rows.group_functions:sum_rows"


def test_a_state_view_says_how_many_rows_leave(orders: Orders) -> None:
    best = of_query("select * from rows where price > 1", where=HOUR, how=hr.retracting("1d"))
    orders.run(best, order("a", 1), order("b", 3, 5), order("c", 2, 6))
    (window,) = orders.handle(best).state(columns=["shop", "_rows_taken"]).to_json()
    assert window == {"shop": "one", "_rows_taken": 2}


def test_results_of_a_query_have_types_of_columns(orders: Orders) -> None:
    sql = (
        "select sum(price * 1.5) as worth, count(*)::tinyint as small, sum(price) as large, avg(price)::float as mean, "
        "max(event_time)::timestamp as newest, to_json(max(id)) as written, max(event_time) as event_time from rows"
    )
    definition = of_query(sql)
    assert {name: str(kind) for name, kind in definition.value_types.items()} == {
        "shop": "string", "worth": "decimal", "small": "int", "large": "int", "mean": "float", "newest": "timestamp",
        "written": "string",
    }  # fmt: skip
    orders.run(definition, order("a", 1), order("b", 2, 5))
    (row,) = orders.current(definition)
    assert row == ("one", Decimal("4.5"), 2, 3, 1.5, minute(5), '"b"', minute(5))


def test_rows_of_a_query_are_explained(orders: Orders) -> None:
    running = of_query(RUNNING, **ON_UPDATE)
    orders.run(running, order("a", 1), order("b", 3, 5), order("x", 9, 6, shop="two"))
    explanation = str(orders.handle(running).explain("one", window="2026-05-01T00:00:00Z"))
    assert "of epoch 0: shop = one, id = b, price = 3, spent = 4" in explanation
    assert "id = x" not in explanation


def test_a_module_beside_the_file_is_found_and_its_digest_told(orders: Orders) -> None:
    folder = orders.folder
    (folder / "beside.py").write_text(
        "import pyarrow as pa\n\n\ndef total(rows):\n"
        "    return pa.table({'n': pa.array([rows.num_rows], pa.int64())})\n"
    )
    (folder / "shops.py").write_text(
        "from datetime import datetime\n\nimport headrace as hr\n\n"
        "orders = hr.json('landing/orders', {'id': str, 'shop': str, 'at': datetime}).event_time('at', bound='1h')\n"
        "shops = hr.Pipeline('shops', orders, key='shop', rows=['id'], where=hr.FixedWindows('1h'), executor='local',\n"
        "                    when=hr.on_update(), take=hr.function('beside:total', {'n': int}))\n"
    )
    orders.land("1", order("a"), order("b"))
    shops = resolve_pipeline(str(folder / "shops.py"))
    orders.run(shops)
    assert standing_rows(orders, shops, "n") == [(2,)]
    (digest,) = code_of(shops).items()
    (folder / "beside.py").write_text((folder / "beside.py").read_text().replace("rows.num_rows", "-rows.num_rows"))
    changed_pipeline = resolve_pipeline(str(folder / "shops.py"))
    ((name, other),) = code_of(changed_pipeline).items()
    assert name == digest[0] == "beside:total" and other != digest[1]


def test_all_types_go_through_a_query_and_a_function(orders: Orders) -> None:
    columns: Mapping[str, Any] = {
        "price": col("price"), "half": col("price").cast(float) / 2, "cents": col("price").cast(Decimal) / 100,
        "is_dear": col("price") > 1, "at": col("at"), "day": col("at").cast(date), "octets": col("id").cast(bytes),
    }  # fmt: skip
    definition = of_query("select * from rows", columns)
    given_types = dict(definition.stages[0].given_types)
    assert {**definition.stages[0].computed_types} == given_types
    assert definition.value_types == {name: kind for name, kind in given_types.items() if name != "event_time"}
    orders.run(definition, order("a", 3), order("a", None))
    first_rows = orders.current(definition)
    assert len(first_rows) == 2
    own = {**given_types, "place": int}
    second_pipeline = of_function("rank_rows", own, columns)
    elsewhere = Orders(orders.folder / "again")
    elsewhere.run(second_pipeline, order("a", 3), order("a", None))
    assert Counter((*row[:-2], row[-1]) for row in elsewhere.current(second_pipeline)) == first_rows


@on_spark
def test_functions_and_queries_run_on_spark(executor: ExecutorUnderTest, orders: Orders) -> None:
    outputs: Mapping[str, Any] = {
        "running": hr.Rows(["id", "price"], key="shop", take=hr.query(RUNNING)),
        "total": hr.Rows(["price"],
            key="shop", take=hr.function("tests.rows.group_functions:sum_rows", {"total": int}), **ON_UPDATE
        ),
    }  # fmt: skip
    pipeline = hr.Pipeline("orders", CHANGES, outputs=outputs)
    orders.land("1", order("a", 1, 1, sign=1), order("b", 3, 5, sign=1), order("x", 7, 6, shop="two", sign=1))
    orders.land("2", order("a", 1, 1, sign=-1), order("c", 2, 7, sign=1))
    executor.process(pipeline, orders.root, RunOptions("run", files_per_epoch=1))
    running = read(pipeline, orders.root, "current", "main", "running").to_pylist()
    assert sorted((row["id"], row["spent"]) for row in running) == [("b", 3), ("c", 5), ("x", 7)]
    total = read(pipeline, orders.root, "current", "main", "total").to_pylist()
    assert sorted((row["shop"], row["total"]) for row in total) == [("one", 5), ("two", 7)]


@on_spark
def test_a_function_that_cannot_travel_is_said_so(executor: ExecutorUnderTest, orders: Orders) -> None:
    orders.land("1", order("a", 1))
    locked_pipeline = of_function("hold_lock", {"total": int}, **ON_UPDATE)
    with pytest.raises(GroupFunctionError, match=r"group_functions:hold_lock cannot travel to Spark's workers .*lock"):
        executor.process(locked_pipeline, orders.root, RunOptions("run"))
    assert orders.run(locked_pipeline).counts["panes"] == 1
