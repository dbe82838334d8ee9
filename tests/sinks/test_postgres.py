"""What is about PostgreSQL alone; that a table holds what readers see says the kit."""

import json
from pathlib import Path

import pytest

import headrace as hr
from headrace import DataType
from headrace.errors import MissingConnectionError, UnknownSinkError
from headrace.ext.sinks import ChangeSource, SinkRefusedError, SinkUnreachableError, UndeliverableError
from headrace.testing.connectors.worlds import SinkDeployment, order
from tests.sinks.warehouse import Warehouse

pytestmark = pytest.mark.slow


@pytest.fixture
def deployment(warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SinkDeployment:
    monkeypatch.setenv("HEADRACE_CONN_WAREHOUSE", warehouse.uri)
    return SinkDeployment(warehouse.world, tmp_path)


def test_rows_whose_values_stay_are_not_touched(warehouse: Warehouse, deployment: SinkDeployment) -> None:
    sales = deployment.sales()
    deployment.land("1", order("ann", 5), order("bob", 10))
    deployment.handle(sales).run()
    deployment.deliver(sales)
    rows_before = dict(warehouse.rows('"user", xmin'))
    deployment.land("2", order("bob", 15))
    deployment.handle(sales).run()
    deployment.deliver(sales)
    rows_after = dict(warehouse.rows('"user", xmin'))
    assert rows_after["ann"] == rows_before["ann"]
    assert rows_after["bob"] != rows_before["bob"]


def test_columns_of_others_stay_where_ours_change(warehouse: Warehouse, deployment: SinkDeployment) -> None:
    sales = deployment.sales()
    deployment.land("1", order("ann", 5, 10), order("bob", 10, 20))
    deployment.handle(sales).run()
    deployment.deliver(sales)
    warehouse.server.rows(f"alter table {warehouse.schema}.sales add column note text default 'theirs'")
    changed_sales = deployment.sales(what={"spent": hr.col("price").sum(), "most": hr.col("price").max()})
    deployment.handle(changed_sales).backfill(promote=True)
    assert deployment.deliver(changed_sales).source is ChangeSource.ALL_ROWS
    assert deployment.held(changed_sales) == deployment.published(changed_sales)
    assert warehouse.rows("note") == [("theirs",), ("theirs",)]


def test_a_table_that_no_delivery_made(warehouse: Warehouse, deployment: SinkDeployment) -> None:
    sales = deployment.sales()
    deployment.land("1", order("ann", 5))
    deployment.handle(sales).run()
    warehouse.server.rows(f"create table {warehouse.schema}.sales (theirs int)")
    with pytest.raises(SinkRefusedError, match="no delivery made it"):
        deployment.deliver(sales)
    warehouse.server.rows(f"drop table {warehouse.schema}.sales")
    deployment.deliver(sales)


def test_pairs_are_json(warehouse: Warehouse, deployment: SinkDeployment) -> None:
    nasty = ['"', "\\", "\x00", "\U0001f409", None]
    own_pipeline = deployment.values(DataType.STRING, value=hr.col("number").pairs(hr.col("value")))
    deployment.land_values(DataType.STRING, nasty)
    deployment.handle(own_pipeline).run()
    deployment.deliver(own_pipeline)
    (rows,) = zip(*warehouse.server.rows(f"select value from {warehouse.schema}.sales order by number"), strict=True)
    assert [json.loads(text) for text in rows] == [
        [{"left": number, "right": text}] if text is not None else [] for number, text in enumerate(nasty)
    ]
    assert all(text.isascii() for text in rows)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("alter column spent type text", "spent is text, and was bigint"),
        ("drop column spent", "spent is gone"),
        ('rename column "user" to who', "user is gone"),
    ],
)
def test_columns_that_others_have_changed_are_named(
    warehouse: Warehouse, deployment: SinkDeployment, change: str, why: str
) -> None:
    sales = deployment.sales()
    deployment.land("1", order("ann", 5))
    deployment.handle(sales).run()
    deployment.deliver(sales)
    deployment.land("2", order("ann", 7))
    deployment.handle(sales).run()
    warehouse.server.rows(f"alter table {warehouse.schema}.sales {change}")
    with pytest.raises(SinkRefusedError, match=rf"table \S+sales of .* were changed: {why}\. Put them back"):
        deployment.deliver(sales)
    warehouse.server.rows(f"drop table {warehouse.schema}.sales")
    warehouse.server.rows(f"delete from {warehouse.schema}.headrace_deliveries")
    deployment.deliver(sales)
    assert deployment.held(sales) == deployment.published(sales)


_KEEPING_OUT = """create function {0}.keep() returns trigger language plpgsql as $$ begin
if {1} then return null; end if; return coalesce(new, old); end $$;
create trigger keep before {2} on {0}.sales for each row execute function {0}.keep()"""


@pytest.mark.parametrize("refill", [False, True])
@pytest.mark.parametrize(
    ("statement", "why"),
    [
        (_KEEPING_OUT.format("{0}", "new.spent > 90", "insert"), r"1 of \d rows out"),
        (_KEEPING_OUT.format("{0}", "old.\"user\" = 'bob'", "delete"), r"\d rows from being deleted"),
        ("create rule keep as on delete to {0}.sales do instead nothing", r"\d rows from being deleted"),
    ],
)
def test_a_trigger_that_keeps_rows_out_or_in_is_refused(
    warehouse: Warehouse, deployment: SinkDeployment, statement: str, why: str, refill: bool
) -> None:
    sales = deployment.sales()
    deployment.land("1", order("ann", 5))
    deployment.handle(sales).run()
    deployment.handle(sales).tag("ann")
    deployment.land("2", order("bob", 10))
    deployment.handle(sales).run()
    deployment.deliver(sales)
    rows_before = deployment.held(sales)
    warehouse.server.rows(statement.format(warehouse.schema))
    deployment.handle(sales).rollback(to="ann", message="without bob")
    deployment.land("3", order("cyd", 15, 100))
    if "insert" in statement:
        deployment.handle(sales).run()
    with pytest.raises(SinkRefusedError, match=f"has a trigger or a rule that kept {why}"):
        deployment.handle(sales).deliver(refill=refill)
    assert deployment.held(sales) == rows_before
    undo = "drop function if exists {0}.keep cascade; drop rule if exists keep on {0}.sales"
    warehouse.server.rows(undo.format(warehouse.schema))
    deployment.deliver(sales)
    assert deployment.held(sales) == deployment.published(sales)


def test_a_trigger_that_takes_every_row_is_let_be(warehouse: Warehouse, deployment: SinkDeployment) -> None:
    sales = deployment.sales()
    deployment.land("1", order("ann", 5), order("bob", 10))
    deployment.handle(sales).run()
    deployment.handle(sales).tag("first")
    deployment.deliver(sales)
    warehouse.server.rows(_KEEPING_OUT.format(warehouse.schema, "false", "insert or update or delete"))
    deployment.land("2", order("ann", 6), order("cyd", 15))
    deployment.handle(sales).run()
    deployment.deliver(sales)
    assert deployment.held(sales) == deployment.published(sales)
    deployment.handle(sales).rollback(to="first", message="as it was")
    deployment.deliver(sales)
    assert deployment.held(sales) == deployment.published(sales)


def test_a_trigger_that_leaves_out_what_is_there_is_let_be(warehouse: Warehouse, deployment: SinkDeployment) -> None:
    """PostgreSQL's own, on a table in which somebody has put a row right before a delivery did."""
    sales = deployment.sales()
    deployment.land("1", order("ann", 5), order("bob", 10))
    deployment.handle(sales).run()
    deployment.deliver(sales)
    warehouse.server.rows(
        f"create trigger alike before update on {warehouse.schema}.sales for each row "
        "execute function suppress_redundant_updates_trigger();"
        f"update {warehouse.schema}.sales set orders = 2, spent = 2 * spent where \"user\" = 'ann'"
    )
    deployment.land("2", order("ann", 6), order("bob", 15))
    deployment.handle(sales).run()
    deployment.deliver(sales)
    assert deployment.held(sales) == deployment.published(sales)


def test_a_collation_that_takes_two_keys_for_one_is_refused(warehouse: Warehouse, deployment: SinkDeployment) -> None:
    sales = deployment.sales()
    deployment.land("1", order("ann", 5))
    deployment.handle(sales).run()
    deployment.deliver(sales)
    rows_before = deployment.held(sales)
    warehouse.server.rows(
        f"create collation {warehouse.schema}.caseless (provider = icu, locale = 'und-u-ks-level2', "
        f'deterministic = false); alter table {warehouse.schema}.sales alter "user" type text '
        f"collate {warehouse.schema}.caseless"
    )
    deployment.land("2", order("Ann", 7))
    deployment.handle(sales).run()
    with pytest.raises(SinkRefusedError, match="user is text collate caseless, and was text"):
        deployment.deliver(sales)
    assert deployment.held(sales) == rows_before
    warehouse.server.rows(f'alter table {warehouse.schema}.sales alter "user" type text collate "C"')
    deployment.deliver(sales)
    assert deployment.held(sales) == deployment.published(sales)


def test_a_caseless_collation_of_a_value_is_let_be(warehouse: Warehouse, deployment: SinkDeployment) -> None:
    """Only keys take the place of one another."""
    sales = deployment.sales(what={"spent": hr.col("price").sum(), "buyer": hr.col("user").max()})
    deployment.land("1", order("ann", 5))
    deployment.handle(sales).run()
    deployment.deliver(sales)
    warehouse.server.rows(
        f"create collation {warehouse.schema}.caseless (provider = icu, locale = 'und-u-ks-level2', "
        f"deterministic = false); alter table {warehouse.schema}.sales alter buyer type text "
        f"collate {warehouse.schema}.caseless"
    )
    deployment.land("2", order("ann", 7), order("Ann", 7))
    deployment.handle(sales).run()
    deployment.deliver(sales)
    assert deployment.held(sales) == deployment.published(sales)


def test_a_table_that_was_renamed_is_named(warehouse: Warehouse, deployment: SinkDeployment) -> None:
    """Its index goes with it, and keeps its name."""
    sales = deployment.sales()
    deployment.land("1", order("ann", 5))
    deployment.handle(sales).run()
    deployment.deliver(sales)
    schema = warehouse.schema
    warehouse.server.rows(f"alter table {schema}.sales rename to kept")
    with pytest.raises(
        SinkRefusedError, match=rf"is at table {schema}\.kept, .* drop {schema}\.kept, or give its index"
    ):
        deployment.deliver(sales)
    warehouse.server.rows(
        f"create table {schema}.sales (like {schema}.kept) partition by list (spent);"
        f"alter table {schema}.sales attach partition {schema}.kept default"
    )
    with pytest.raises(SinkRefusedError, match="is another one than was delivered to"):
        deployment.deliver(sales)
    warehouse.server.rows(f"drop table {schema}.sales")
    deployment.deliver(sales)
    assert deployment.held(sales) == deployment.published(sales)


def test_what_postgresql_cannot_hold_is_refused_and_nothing_changes(deployment: SinkDeployment) -> None:
    own_pipeline = deployment.values(DataType.STRING)
    deployment.land_values(DataType.STRING, ["a", "b"])
    deployment.handle(own_pipeline).run()
    deployment.deliver(own_pipeline)
    rows_before = deployment.held(own_pipeline)
    deployment.land_values(DataType.STRING, ["z\x00", "y"], "2")
    deployment.handle(own_pipeline).run()
    with pytest.raises(UndeliverableError, match="0x00"):
        deployment.deliver(own_pipeline)
    assert deployment.held(own_pipeline) == rows_before


def test_a_server_that_breaks_off_in_the_middle(warehouse: Warehouse, deployment: SinkDeployment) -> None:
    sales = deployment.sales()
    handle = deployment.handle(sales)
    deployment.land("1", order("ann", 5))
    handle.run()
    deployment.deliver(sales)
    rows_before = deployment.held(sales)
    deployment.land("2", order("ann", 6), order("cyd", 70))
    handle.run()
    table = f"{warehouse.schema}.sales"
    end = "begin perform pg_terminate_backend(pg_backend_pid()); return null; end"
    warehouse.server.rows(f"create function {warehouse.schema}.end_it() returns trigger language plpgsql as $${end}$$")
    warehouse.server.rows(f"create trigger end_it after insert on {table} execute function {warehouse.schema}.end_it()")
    with pytest.raises(SinkUnreachableError, match="the next delivery tries again"):
        deployment.deliver(sales)
    warehouse.server.rows(f"drop trigger end_it on {table}")
    assert deployment.held(sales) == rows_before
    deployment.deliver(sales)
    assert deployment.held(sales) == deployment.published(sales)


def test_errors_say_what_to_do_and_no_secret(
    warehouse: Warehouse, deployment: SinkDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    sales = deployment.sales()
    deployment.land("1", order("ann", 5))
    deployment.handle(sales).run()
    with pytest.raises(UnknownSinkError, match="it has"):
        deployment.deliver(sales, sinks=["sails"])
    monkeypatch.delenv("HEADRACE_CONN_WAREHOUSE")
    with pytest.raises(MissingConnectionError, match="HEADRACE_CONN_WAREHOUSE"):
        deployment.deliver(sales)
    refused_text = warehouse.uri.replace("airflow:", "airflow:planted-secret")
    for uri, error in (
        ("postgresql//planted-secret", MissingConnectionError),
        ("file:planted-secret", MissingConnectionError),
        ("postgresql://ann:planted-secret@127.0.0.1:1/reports", SinkUnreachableError),
        (refused_text, SinkRefusedError),
        (f"{warehouse.uri}?nonsense=planted-secret", SinkRefusedError),
        ("s3://ann:planted-secret@bucket", SinkRefusedError),
    ):
        monkeypatch.setenv("HEADRACE_CONN_WAREHOUSE", uri)
        with pytest.raises(error) as error_info:
            deployment.deliver(sales)
        assert "planted-secret" not in str(error_info.value)


def test_deliveries_that_an_older_version_noted(warehouse: Warehouse, deployment: SinkDeployment) -> None:
    """Its table has no column for numbers of changes."""
    sales = deployment.sales()
    deployment.land("1", order("ann", 5))
    deployment.handle(sales).run()
    deployment.deliver(sales)
    warehouse.server.rows(f"alter table {warehouse.schema}.headrace_deliveries drop column number")
    assert deployment.deliver(sales).source is None
    changes = hr.postgres(f"{warehouse.schema}.happened", connection="warehouse", changes=True)
    both = deployment.sales(sinks=(*sales.sinks, changes))
    deployment.land("2", order("ann", 6))
    deployment.handle(both).run()
    assert [delivery.written for delivery in deployment.handle(both).deliver()] == [1, 1]
    with pytest.raises(SinkRefusedError, match="holds changes, and is to hold rows"):
        deployment.deliver(deployment.sales(sinks=(hr.postgres(changes.table, connection="warehouse"),)))
    assert warehouse.rows("_change, _sign, orders", "happened") == [(1, 1, 2)]


def test_a_name_with_a_percent_sign(warehouse: Warehouse, deployment: SinkDeployment) -> None:
    """It is no place for a value."""
    schema = f"we%ird{warehouse.schema}"
    warehouse.server.rows(f'create schema "{schema}"')
    rows = hr.postgres(f"{schema}.sa%sles", connection="warehouse")
    changes = hr.postgres(f"{schema}.100%", connection="warehouse", changes=True)
    sales = deployment.sales(what={"50%s": hr.count()}, sinks=(rows, changes))
    for minute in (5, 6):
        deployment.land(str(minute), order("ann", minute))
        deployment.handle(sales).run()
        assert [delivery.written for delivery in deployment.handle(sales).deliver()] == [1, 1]
    assert warehouse.server.rows(f'select "50%s" from "{schema}"."sa%sles"') == [(2,)]
    assert all(check.is_right is not False for check in deployment.handle(sales).check_sinks())
    warehouse.server.rows(f'drop schema "{schema}" cascade')
