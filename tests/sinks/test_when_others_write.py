"""What somebody else does to a target: made again, emptied, changed. Where it can be seen the next delivery fills it
again and says why; where it cannot, nobody is told that it holds what readers see, and a check finds it.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, write_deltalake

import headrace as hr
from headrace.cli.main import app
from headrace.ext.sinks import ChangeSource, FillReason, SinkRefusedError
from headrace.testing.connectors.worlds import SinkDeployment
from headrace_lab.sink_plans import act_meanwhile
from tests.sinks.delivered import DeliveredSales, deliver_sales
from tests.sinks.warehouse import Warehouse
from tests.sinks.worlds import DeltaWorld, IcebergWorld

pytestmark = pytest.mark.slow


# --- PostgreSQL -------------------------------------------------------------------------------------------------------


@pytest.fixture
def of_postgres(warehouse: Warehouse, tmp_path: Path) -> DeliveredSales:
    return deliver_sales(SinkDeployment(warehouse.world, tmp_path))


@pytest.mark.parametrize("more", [False, True])
@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("drop table {0}.sales", "was dropped"),
        ("truncate {0}.sales", "was emptied"),
        ("create table {0}.other (like {0}.sales including all); drop table {0}.sales", "was dropped"),
    ],
)
def test_a_table_that_was_dropped_or_emptied_is_filled_again(
    warehouse: Warehouse, of_postgres: DeliveredSales, statement: str, words: str, more: bool
) -> None:
    if more:
        of_postgres.more()
    warehouse.server.rows(statement.format(warehouse.schema))
    assert not of_postgres.is_right()
    of_postgres.expect_refill(words)


def test_a_table_that_a_dump_brought_back_is_filled_again(warehouse: Warehouse, of_postgres: DeliveredSales) -> None:
    """It has our index, and lacks rows that came after the dump."""
    schema = warehouse.schema
    names = warehouse.server.rows(
        f"select indexname from pg_indexes where tablename = 'sales' and schemaname = '{schema}'"
    )
    ((name,),) = names
    warehouse.server.rows(f"create table {schema}.dumped as select * from {schema}.sales where orders > 1")
    warehouse.server.rows(f"drop table {schema}.sales")
    warehouse.server.rows(f"alter table {schema}.dumped rename to sales")
    with pytest.raises(SinkRefusedError, match="another one than was delivered to"):
        of_postgres.deployment.deliver(of_postgres.sales)
    warehouse.server.rows(
        f'create unique index {name} on {schema}.sales ("user", window_start, window_end) nulls not distinct'
    )
    of_postgres.expect_refill("was made again")


def test_what_others_do_to_rows_of_postgresql_is_not_called_what_readers_see(
    warehouse: Warehouse, of_postgres: DeliveredSales
) -> None:
    warehouse.server.rows(f"""delete from {warehouse.schema}.sales where "user" = 'bob'""")
    delivery = of_postgres.deployment.deliver(of_postgres.sales)
    assert delivery.source is None
    text = delivery.describe()
    assert f"was last written by us at {delivery.at} with {delivery.after}" in text
    assert " holds " not in text
    check = of_postgres.check()
    assert (check.is_right, check.comparison.only_ours, check.at) == (False, 1, delivery.at)
    refilled_delivery = of_postgres.deployment.deliver(of_postgres.sales, refill=True)
    assert (refilled_delivery.source, refilled_delivery.reason, refilled_delivery.written) == (
        ChangeSource.ALL_ROWS,
        FillReason.REFILL,
        3,
    )
    assert of_postgres.is_right()
    assert of_postgres.check().is_right


def test_a_table_that_is_emptied_while_it_is_delivered_to(warehouse: Warehouse, of_postgres: DeliveredSales) -> None:
    from headrace.ext.sinks import SinkMovedError

    of_postgres.more()
    truncation = act_meanwhile("postgres", "apply", lambda: warehouse.server.rows(f"truncate {warehouse.schema}.sales"))
    with truncation, pytest.raises(SinkMovedError, match="was emptied"):
        of_postgres.deployment.attempt(of_postgres.sales)
    of_postgres.expect_refill("was emptied")


def test_a_table_of_changes_that_was_made_anew_says_that_all_before_is_void(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    changes = hr.postgres(f"{warehouse.schema}.sales", connection="warehouse", changes=True)
    held_delivery = deliver_sales(SinkDeployment(warehouse.world, tmp_path), sinks=(changes,))
    warehouse.server.rows(f"truncate {warehouse.schema}.sales")
    delivery = held_delivery.deployment.deliver(held_delivery.sales)
    assert delivery.reason is FillReason.CHANGED
    assert [*warehouse.rows("_change, _sign")] == [(4, 0), (5, 1), (6, 1), (7, 1)]
    assert held_delivery.deployment.deliver(held_delivery.sales).source is None


@pytest.mark.parametrize("changes", [False, True])
def test_what_an_older_version_noted_gets_an_identity_with_the_next_delivery(
    warehouse: Warehouse, tmp_path: Path, changes: bool
) -> None:
    sink = hr.postgres(f"{warehouse.schema}.sales", connection="warehouse", changes=changes)
    held_delivery = deliver_sales(SinkDeployment(warehouse.world, tmp_path), sinks=(sink,))
    warehouse.server.rows(f"alter table {warehouse.schema}.headrace_deliveries drop column identity")
    assert held_delivery.deployment.deliver(held_delivery.sales).source is None
    held_delivery.more()
    assert held_delivery.deployment.deliver(held_delivery.sales).source is ChangeSource.PANES
    ((identity,),) = warehouse.rows("identity", "headrace_deliveries")
    ((now,),) = warehouse.server.rows(
        f"select oid || '/' || pg_relation_filenode(oid) from pg_class where oid = '{warehouse.schema}.sales'::regclass"
    )
    assert identity == now


# --- Delta, Iceberg ---------------------------------------------------------------------------------------------------


@pytest.fixture
def of_delta(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DeliveredSales:
    monkeypatch.setenv("HEADRACE_CONN_LAKE", (tmp_path / "lake").as_uri())
    return deliver_sales(SinkDeployment(DeltaWorld(str(tmp_path / "lake")), tmp_path))


@pytest.fixture
def of_iceberg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DeliveredSales:
    (tmp_path / "lake").mkdir()
    world = IcebergWorld(f"sqlite://{tmp_path}/catalog.db?warehouse={(tmp_path / 'lake').as_uri()}")
    monkeypatch.setenv("HEADRACE_CONN_LAKE", world.uri)
    return deliver_sales(SinkDeployment(world, tmp_path))


def table_of(delivery: DeliveredSales) -> DeltaTable:
    world = delivery.deployment.world
    assert isinstance(world, DeltaWorld)
    return DeltaTable(f"{world.place}/reports/sales")


@pytest.mark.parametrize("more", [False, True])
@pytest.mark.parametrize(
    ("change", "operation"),
    [
        (lambda table: table.delete("user = 'bob'"), "DELETE"),
        (lambda table: table.update(updates={"orders": "7"}, predicate="user = 'ann'"), "UPDATE"),
        (lambda table: write_deltalake(table, table.to_pyarrow_table(), mode="append"), "WRITE"),
        (lambda table: write_deltalake(table, table.to_pyarrow_table().slice(0, 0), mode="overwrite"), "WRITE"),
    ],
)
def test_commits_of_others_to_a_delta_table_are_seen(
    of_delta: DeliveredSales, change: Callable[[DeltaTable], object], operation: str, more: bool
) -> None:
    change(table_of(of_delta))
    assert not of_delta.is_right()
    if more:
        of_delta.more()
        table_of(of_delta).optimize.compact()
    of_delta.expect_refill(f"got a commit of others ({operation} at ")


def test_values_that_others_put_into_columns_of_theirs_stay_and_are_told(of_delta: DeliveredSales) -> None:
    """To fill the table again would lose them."""
    nothing = pa.table({"note": pa.array([], pa.string())})
    write_deltalake(table_of(of_delta), nothing, mode="append", schema_mode="merge")
    table_of(of_delta).update(updates={"note": "'theirs'"})
    table_of(of_delta).delete("user = 'cyd'")
    of_delta.more()
    delivery = of_delta.deployment.deliver(of_delta.sales)
    assert delivery.source is ChangeSource.PANES
    assert "It got 3 commits of others, the last one (DELETE at " in delivery.describe()
    assert "--refill" in delivery.describe()
    assert {row["note"] for row in of_delta.deployment.world.rows()} == {"theirs"}
    assert of_delta.check().is_right is False
    of_delta.deployment.deliver(of_delta.sales, refill=True)
    assert of_delta.is_right()


def test_snapshots_of_others_in_an_iceberg_table_are_seen(of_iceberg: DeliveredSales) -> None:
    world = of_iceberg.deployment.world
    assert isinstance(world, IcebergWorld)
    with world.catalog() as catalog:
        catalog.load_table("reports.sales").delete("user == 'bob'")
    assert not of_iceberg.is_right()
    of_iceberg.expect_refill("got a snapshot of others (overwrite at ")
    of_iceberg.more()
    with world.catalog() as catalog:
        table = catalog.load_table("reports.sales")
        table.append(table.scan().to_arrow())
        table.append(table.scan().to_arrow())
    of_iceberg.expect_refill("got 2 snapshots of others, the last one (append at ")
    assert of_iceberg.check().is_right


def test_a_table_that_somebody_has_made_in_place_of_ours_is_left_alone(of_delta: DeliveredSales) -> None:
    write_deltalake(table_of(of_delta), pa.table({"theirs": [1]}), mode="overwrite", schema_mode="overwrite")
    of_delta.more()
    with pytest.raises(SinkRefusedError, match="no delivery made it"):
        of_delta.deployment.deliver(of_delta.sales)


# --- of all kinds -----------------------------------------------------------------------------------------------------


def test_the_command_checks_and_fills_again(of_delta: DeliveredSales, tmp_path: Path) -> None:
    (tmp_path / "sales.py").write_text(
        "import headrace as hr\nfrom datetime import datetime\n"
        "from headrace.testing.connectors.worlds import SinkDeployment\n"
        "from tests.sinks.worlds import DeltaWorld\nfrom pathlib import Path\n"
        f"sales = SinkDeployment(DeltaWorld({str(tmp_path / 'lake')!r}), Path({str(tmp_path)!r})).sales()\n"
    )
    command = [str(tmp_path / "sales.py"), "--root", tmp_path.as_uri()]
    right = CliRunner().invoke(app, ["deliver", *command, "--check"])
    assert right.exit_code == 0, right.output
    assert "it holds these 3 rows" in right.output
    table_of(of_delta).delete("user = 'bob'")
    wrong = CliRunner().invoke(app, ["deliver", *command, "--check", "--format", "json"])
    assert wrong.exit_code == 1
    (document,) = json.loads(wrong.output)
    assert (document["is_right"], document["comparison"]["only_ours"]) == (False, 1)
    assert "DELETE" in document["others"]
    assert "1 rows are missing" in CliRunner().invoke(app, ["deliver", *command, "--check"]).output
    assert CliRunner().invoke(app, ["deliver", *command, "--check", "--refill"]).exit_code == 2
    assert CliRunner().invoke(app, ["deliver", *command, "--refill"]).exit_code == 0
    assert of_delta.check().is_right
