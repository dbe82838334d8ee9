"""What is about Delta alone; that a table holds what readers see says the kit."""

import secrets
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import headrace as hr
from headrace import DataType
from headrace.connectors.delta.table import _id_of, _version_of
from headrace.ext.sinks import ChangeSource, SinkMovedError, SinkRefusedError, SinkUnreachableError, UndeliverableError
from headrace.testing.connectors.worlds import SinkDeployment, order
from headrace_lab.sink_plans import act_meanwhile
from tests.sinks.worlds import DeltaWorld

pytestmark = pytest.mark.slow
TABLE = "lake/reports/sales"


@pytest.fixture
def deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SinkDeployment:
    monkeypatch.setenv("HEADRACE_CONN_LAKE", (tmp_path / "lake").as_uri())
    return SinkDeployment(DeltaWorld(str(tmp_path / "lake")), tmp_path)


def deliver_sales(deployment: SinkDeployment, *more: int) -> hr.Pipeline:
    """Sales that are delivered, and some ``more`` that are not."""
    sales = deployment.sales()
    deployment.land("1", order("ann", 5), order("bob", 10))
    deployment.handle(sales).run()
    deployment.deliver(sales)
    for minute in more:
        deployment.land(f"more-{minute}", order("ann", minute))
        deployment.handle(sales).run()
    return sales


@pytest.mark.parametrize("snapshot", ["0000000000000001", "7fffffffffffffff", "8000000000000000", "ffffffffffffffff"])
def test_an_id_is_a_version_of_a_transaction(snapshot: str) -> None:
    version = _version_of(snapshot)
    assert -(2**63) <= version < 2**63
    assert _id_of(version) == snapshot


def test_what_it_holds_is_known_after_upkeep(deployment: SinkDeployment, tmp_path: Path) -> None:
    sales = deliver_sales(deployment, 20, 80)
    table = DeltaTable(tmp_path / TABLE)
    table.optimize.compact()
    table.create_checkpoint()
    table.cleanup_metadata()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert deployment.deliver(sales).source is ChangeSource.PANES
    assert deployment.held(sales) == deployment.published(sales)


def test_a_table_that_was_taken_back_is_filled_again(deployment: SinkDeployment, tmp_path: Path) -> None:
    sales = deliver_sales(deployment, 80)
    deployment.deliver(sales)
    DeltaTable(tmp_path / TABLE).restore(0)
    assert len(deployment.world.rows()) == 2
    assert deployment.deliver(sales).source is ChangeSource.ALL_ROWS
    assert deployment.held(sales) == deployment.published(sales)
    assert deployment.deliver(sales).source is None


def test_columns_of_others_stay(deployment: SinkDeployment, tmp_path: Path) -> None:
    sales = deliver_sales(deployment, 80)
    write_deltalake(tmp_path / TABLE, pa.table({"note": pa.array([], pa.string())}), mode="append", schema_mode="merge")
    for _ in range(2):
        deployment.deliver(sales)
        assert deployment.held(sales) == deployment.published(sales)
        assert {row["note"] for row in deployment.world.rows()} == {None}
        deployment.handle(sales).backfill(promote=True)


def test_a_column_that_somebody_changed_is_named(deployment: SinkDeployment, tmp_path: Path) -> None:
    sales = deliver_sales(deployment, 80)
    table = DeltaTable(tmp_path / TABLE)
    schema = pa.schema(table.schema().to_arrow())
    other = schema.remove(schema.get_field_index("spent"))
    write_deltalake(tmp_path / TABLE, pa.Table.from_pylist([], other), mode="overwrite", schema_mode="overwrite")
    with pytest.raises(SinkRefusedError, match=r"column spent of table reports/sales .* is there no more"):
        deployment.deliver(sales)


def test_a_table_that_only_appends_is_refused_for_good(deployment: SinkDeployment, tmp_path: Path) -> None:
    """As long as rows have to go, no other commit helps. Once they may, the delivery goes on."""
    sales = deliver_sales(deployment, 15)
    rows_before = deployment.held(sales)
    table = DeltaTable(tmp_path / TABLE)
    table.alter.set_table_properties({"delta.appendOnly": "true"})
    with pytest.raises(SinkRefusedError, match=r"append-only.* Nothing was delivered: set its property"):
        deployment.deliver(sales)
    assert deployment.held(sales) == rows_before
    table.alter.set_table_properties({"delta.appendOnly": "false"})
    deployment.deliver(sales)
    assert deployment.held(sales) == deployment.published(sales) != rows_before


def test_a_table_that_no_delivery_made(deployment: SinkDeployment, tmp_path: Path) -> None:
    sales = deployment.sales()
    deployment.land("1", order("ann", 5))
    deployment.handle(sales).run()
    write_deltalake(tmp_path / TABLE, pa.table({"theirs": [1]}))
    with pytest.raises(SinkRefusedError, match="no delivery made it"):
        deployment.deliver(sales)
    assert deployment.world.rows() == [{"theirs": 1}]


def test_an_addition_of_others_that_comes_between_is_not_gone_over(deployment: SinkDeployment, tmp_path: Path) -> None:
    """Also where the delivery sets a property first, as in a table of an older version."""
    sales = deployment.sales(what={"mean": hr.col("price").mean()})
    deployment.land("1", order("ann", 5, 10))
    deployment.handle(sales).run()
    deployment.deliver(sales)
    deployment.land("2", order("bob", 80, 20))
    deployment.handle(sales).run()
    DeltaTable(tmp_path / TABLE).alter.set_table_properties({"delta.dataSkippingStatsColumns": "user,mean"})

    def append() -> None:
        table = DeltaTable(tmp_path / TABLE)
        write_deltalake(table, table.to_pyarrow_table(), mode="append")

    with act_meanwhile("delta", "apply", append), pytest.raises(SinkMovedError, match="set a property of it"):
        deployment.attempt(sales)
    assert deployment.deliver(sales).source is ChangeSource.ALL_ROWS
    assert deployment.held(sales) == deployment.published(sales)


@pytest.mark.parametrize("name", ["a b", "a,b", "a=b"])
def test_names_that_readers_of_delta_do_not_take(deployment: SinkDeployment, name: str) -> None:
    sales = deployment.sales(what={name: hr.count()})
    deployment.land("1", order("ann", 5))
    deployment.handle(sales).run()
    with pytest.raises(UndeliverableError, match="has a name that Delta does not take"):
        deployment.deliver(sales)
    assert deployment.world.rows() == []


def test_pairs_are_structs(deployment: SinkDeployment) -> None:
    pairs(deployment)


def pairs(deployment: SinkDeployment) -> None:
    """Lists of pairs arrive as they are."""
    own_pipeline = deployment.values(DataType.BYTES, value=hr.col("number").pairs(hr.col("value")))
    deployment.land_values(DataType.BYTES, [b"\x00", b"", None])
    deployment.handle(own_pipeline).run()
    deployment.deliver(own_pipeline)
    assert deployment.held(own_pipeline) == deployment.published(own_pipeline)


@pytest.mark.s3
def test_errors_say_what_to_do_and_no_secret(
    deployment: SinkDeployment, minio: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sales = deployment.sales()
    deployment.land("1", order("ann", 5))
    deployment.handle(sales).run()
    options = "region=us-east-1&retry_timeout=1s&max_retries=1&endpoint_url="
    cases: list[tuple[str, type[Exception]]] = [
        (f"s3://nobody:planted-secret@tests/lake?{options}{minio}", SinkRefusedError),
        (f"s3://nobody:planted-secret@tests/lake?{options}http://127.0.0.1:1", SinkUnreachableError),
        ("postgresql://nobody:planted-secret@127.0.0.1/x", SinkRefusedError),
    ]
    for uri, error in cases:
        monkeypatch.setenv("HEADRACE_CONN_LAKE", uri)
        with pytest.raises(error) as error_info:
            deployment.deliver(sales)
        assert "planted-secret" not in str(error_info.value)
        assert "LAKE" in str(error_info.value).upper()


@pytest.mark.parametrize("option", ["connect_timeout=5 parsecs", "max_retries=many", "aws_conditional_put=maybe"])
def test_an_option_that_makes_no_sense_is_not_tried_again(
    deployment: SinkDeployment, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    sales = deployment.sales()
    monkeypatch.setenv("HEADRACE_CONN_LAKE", f"s3://nobody:planted@tests/lake?endpoint_url=http://127.0.0.1:1&{option}")
    with pytest.raises(SinkRefusedError, match=r"parse(.|\n)*Is HEADRACE_CONN_LAKE right"):
        deployment.deliver(sales)


def test_rows_that_came_and_went_between_two_deliveries(deployment: SinkDeployment) -> None:
    """There is nothing to remove, and the table holds another snapshot all the same."""
    sales_once = deployment.sales(having=hr.col("orders") == 1)
    deployment.land("1", order("ann", 5))
    deployment.handle(sales_once).run()
    deployment.deliver(sales_once)
    for name in "23":
        deployment.land(name, order("bob", 10))
        deployment.handle(sales_once).run()
    delivery = deployment.deliver(sales_once)
    assert (delivery.source, delivery.written, delivery.removed) == (ChangeSource.PANES, 0, 0)
    assert deployment.held(sales_once) == deployment.published(sales_once)
    assert deployment.deliver(sales_once).source is None


def test_of_two_first_deliveries_the_slower_tries_again(deployment: SinkDeployment) -> None:
    sales = deployment.sales()
    deployment.land("1", order("ann", 5))
    deployment.handle(sales).run()
    interruption = act_meanwhile("delta", "apply", lambda: deployment.deliver(sales))
    with interruption, pytest.raises(SinkMovedError, match="another one came between"):
        deployment.attempt(sales)
    assert deployment.deliver(sales).source is None
    assert deployment.held(sales) == deployment.published(sales)


@pytest.mark.s3
def test_what_the_environment_says_of_another_store_does_not_count(
    minio: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection says whose key it is, where, and how."""
    world = DeltaWorld(f"tests/{secrets.token_hex(4)}", minio)
    deployment = SinkDeployment(world, tmp_path)
    sales = deployment.sales()
    deployment.land("1", order("ann", 5))
    deployment.handle(sales).run()
    with monkeypatch.context() as theirs:
        for name, value in world.environment.items():
            theirs.setenv(name, value)
        for name, value in {
            "AWS_ACCESS_KEY_ID": "somebody",
            "AWS_SECRET_ACCESS_KEY": "else",
            "AWS_SESSION_TOKEN": "theirs",
            "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
            "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1",
            "AWS_REGION": "eu-north-9",
            "AWS_SKIP_SIGNATURE": "true",
            "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true",
            "AWS_S3_LOCKING_PROVIDER": "dynamodb",
            "AWS_COPY_IF_NOT_EXISTS": "header: x: y",
        }.items():
            theirs.setenv(name, value)
        deployment.deliver(sales)
    assert deployment.held(sales) == deployment.published(sales)
