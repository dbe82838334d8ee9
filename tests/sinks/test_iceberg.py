"""What is about Iceberg alone; that a table holds what readers see says the kit."""

import os
import secrets
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import quote, urlencode
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog, SqlCatalogBaseTable
from pyiceberg.expressions import GreaterThan
from pyiceberg.table import Table
from sqlalchemy import create_engine, event

import headrace as hr
from headrace import DataType
from headrace.connections import connection
from headrace.connectors.iceberg.sink import ICEBERG, catalog_properties
from headrace.ext.sinks import ChangeSource, SinkMovedError, SinkRefusedError, SinkUnreachableError, UndeliverableError
from headrace.testing.connectors.worlds import SinkDeployment, order
from headrace_lab.sink_plans import act_meanwhile
from scripts.iceberg_rest import IcebergRest
from tests.sinks.signed_catalog import Key, signed_by
from tests.sinks.test_delta import pairs
from tests.sinks.worlds import IcebergWorld

pytestmark = pytest.mark.slow


@pytest.fixture
def world(tmp_path: Path) -> IcebergWorld:
    (tmp_path / "lake").mkdir()
    return IcebergWorld(f"sqlite://{tmp_path}/catalog.db?warehouse={(tmp_path / 'lake').as_uri()}")


@pytest.fixture
def deployment(world: IcebergWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SinkDeployment:
    monkeypatch.setenv("HEADRACE_CONN_LAKE", world.uri)
    return SinkDeployment(world, tmp_path)


def deliver_sales(deployment: SinkDeployment, *more: int) -> hr.Pipeline:
    """Sales of two days that are delivered, and some ``more`` that are not."""
    sales = deployment.sales()
    deployment.land("1", order("ann", 5), order("bob", 10), order("ann", 1500))
    deployment.handle(sales).run()
    deployment.deliver(sales)
    for minute in more:
        deployment.land(f"more-{minute}", order("ann", minute))
        deployment.handle(sales).run()
    return sales


def paths(table: Table) -> set[str]:
    return {task.file.file_path for task in table.scan().plan_files()}


def test_files_of_other_days_stay(deployment: SinkDeployment, world: IcebergWorld) -> None:
    sales = deliver_sales(deployment, 1510)
    with world.catalog() as catalog:
        table = catalog.load_table("reports.sales")
        paths_before = paths(table)
        deployment.deliver(sales)
        paths_after = paths(table.refresh())
        assert len(paths_before & paths_after) == 1
        assert "window_start_day=2026-05-01" in next(iter(paths_before & paths_after))
        assert deployment.held(sales) == deployment.published(sales)


def test_a_file_without_a_row_that_changes_stays(deployment: SinkDeployment, world: IcebergWorld) -> None:
    sales = deliver_sales(deployment, 70)  # a new hour of a day that is there
    with world.catalog() as catalog:
        table = catalog.load_table("reports.sales")
        paths_before = paths(table)
        deployment.deliver(sales)
        assert paths_before < paths(table.refresh())


def test_each_version_has_a_tag(deployment: SinkDeployment, world: IcebergWorld) -> None:
    sales = deliver_sales(deployment)
    first = deployment.published(sales)
    snapshot = deployment.handle(sales).show("published").snapshot_id
    deployment.land("2", order("ann", 6), order("cyd", 70))
    deployment.handle(sales).run()
    deployment.deliver(sales)
    with world.catalog() as catalog:
        table = catalog.load_table("reports.sales")
        tagged_snapshot = table.snapshot_by_name(f"headrace-{snapshot}")
        assert tagged_snapshot is not None
        assert table.scan(snapshot_id=tagged_snapshot.snapshot_id).to_arrow().num_rows == len(first)
        assert len([name for name in table.refs() if name.startswith("headrace-")]) == 2
        assert len(table.snapshots()) == 2  # one for each delivery
    deployment.handle(sales).rollback(to=str(snapshot), message="back")
    deployment.deliver(sales)
    assert deployment.held(sales) == first


def test_a_table_that_was_taken_back_goes_forward_again(deployment: SinkDeployment, world: IcebergWorld) -> None:
    sales = deliver_sales(deployment, 70)
    with world.catalog() as catalog:
        first = catalog.load_table("reports.sales").current_snapshot()
        assert first is not None
        deployment.deliver(sales)
        table = catalog.load_table("reports.sales")
        table.manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
    assert len(deployment.world.rows()) == 3
    assert deployment.deliver(sales).source is ChangeSource.PANES
    assert deployment.held(sales) == deployment.published(sales)


def test_what_others_append_or_forget_does_not_confuse_it(deployment: SinkDeployment, world: IcebergWorld) -> None:
    sales = deliver_sales(deployment, 70)
    with world.catalog() as catalog:
        table = catalog.load_table("reports.sales")
        table.append(table.schema().as_arrow().empty_table())  # a snapshot that is none of ours
    assert deployment.deliver(sales).source is ChangeSource.PANES
    with world.catalog() as catalog:
        table = catalog.load_table("reports.sales")
        with table.manage_snapshots() as references:
            for name in [name for name in table.refs() if name.startswith("headrace-")]:
                references.remove_tag(name)
        table.append(table.schema().as_arrow().empty_table())
        current = table.refresh().current_snapshot()
        assert current is not None
        ours = [snapshot.snapshot_id for snapshot in table.snapshots() if snapshot.snapshot_id != current.snapshot_id]
        table.maintenance.expire_snapshots().by_ids(ours).commit()
    delivery = deployment.deliver(sales)
    assert (delivery.source, delivery.before) == (ChangeSource.ALL_ROWS, None)
    assert deployment.held(sales) == deployment.published(sales)


def test_a_commit_that_comes_between_is_not_gone_over(deployment: SinkDeployment, world: IcebergWorld) -> None:
    """pyiceberg would try again from there; what was looked at would be another table."""
    sales = deliver_sales(deployment, 70)
    files: set[str] = set()

    def append() -> None:
        with world.catalog() as catalog:
            table = catalog.load_table("reports.sales")
            table.append(table.schema().as_arrow().empty_table())
        files.update(map(str, (deployment.folder / "lake").rglob("*.parquet")))

    with act_meanwhile("iceberg", "apply", append), pytest.raises(SinkMovedError):
        deployment.attempt(sales)
    # what was written for it is gone
    assert set(map(str, (deployment.folder / "lake").rglob("*.parquet"))) == files
    deployment.deliver(sales)
    assert deployment.held(sales) == deployment.published(sales)


def test_columns_of_others_stay(deployment: SinkDeployment, world: IcebergWorld) -> None:
    from pyiceberg.types import StringType

    sales = deliver_sales(deployment, 80)
    with world.catalog() as catalog, catalog.load_table("reports.sales").update_schema() as update:
        update.add_column("note", StringType())
    for _ in range(2):
        deployment.deliver(sales)
        assert deployment.held(sales) == deployment.published(sales)
        assert {row["note"] for row in deployment.world.rows()} == {None}
        deployment.handle(sales).backfill(promote=True)


def test_values_of_others_stay_in_rows_that_do_not_change(deployment: SinkDeployment, world: IcebergWorld) -> None:
    """Also those of types that Headrace does not have."""
    from pyiceberg.types import UUIDType

    sales = deliver_sales(deployment, 6)
    note = UUID(int=5)
    with world.catalog() as catalog:
        with catalog.load_table("reports.sales").update_schema() as update:
            update.add_column("note", UUIDType())
        table = catalog.load_table("reports.sales")
        rows = table.scan().to_arrow()
        notes = pa.array([note.bytes] * len(rows), pa.binary(16))
        table.overwrite(rows.set_column(rows.schema.get_field_index("note"), "note", notes.cast(pa.uuid())))
    deployment.deliver(sales)
    assert deployment.held(sales) == deployment.published(sales)
    notes_of = {(row["user"], row["orders"]): row["note"] for row in deployment.world.rows()}
    assert notes_of == {("ann", 2): None, ("bob", 1): note, ("ann", 1): note}


def test_a_column_that_somebody_changed_is_named(deployment: SinkDeployment, world: IcebergWorld) -> None:
    sales = deliver_sales(deployment, 80)
    with world.catalog() as catalog, catalog.load_table("reports.sales").update_schema() as update:
        update.rename_column("spent", "paid")
    with pytest.raises(SinkRefusedError, match=r"column spent of table reports\.sales .* is there no more"):
        deployment.deliver(sales)


def test_null_in_a_column_that_is_required_now_is_undeliverable(
    deployment: SinkDeployment, world: IcebergWorld
) -> None:
    """Once the column is optional again, the delivery goes on."""
    sales = deployment.sales(what={"most": hr.col("price").max()})
    deployment.land("1", order("ann", 5))
    deployment.handle(sales).run()
    deployment.deliver(sales)
    rows_before = deployment.held(sales)
    with world.catalog() as catalog:
        table = catalog.load_table("reports.sales")
        with table.update_schema(allow_incompatible_changes=True) as update:
            update.update_column("most", required=True)
    deployment.land("none", {**order("cyd", 20), "price": None})
    deployment.handle(sales).run()
    with pytest.raises(UndeliverableError, match="column 'most' has NULL, and the table says that it is required"):
        deployment.deliver(sales)
    assert deployment.held(sales) == rows_before
    with world.catalog() as catalog, catalog.load_table("reports.sales").update_schema() as update:
        update.update_column("most", required=False)
    deployment.deliver(sales)
    assert deployment.held(sales) == deployment.published(sales) != rows_before


def test_a_column_of_another_type(deployment: SinkDeployment) -> None:
    sales = deliver_sales(deployment)
    rows_before = deployment.held(sales)
    changed_sales = deployment.sales(what={"orders": hr.count(), "spent": hr.col("price").mean()})
    deployment.handle(changed_sales).backfill(promote=True)
    deployment.deliver(changed_sales)
    assert deployment.held(changed_sales) == deployment.published(changed_sales) != rows_before


def test_a_table_that_was_taken_back_to_before_its_columns_changed(
    deployment: SinkDeployment, world: IcebergWorld
) -> None:
    """Its rows are old then, and its columns are not."""
    deliver_sales(deployment)
    with world.catalog() as catalog:
        old = catalog.load_table("reports.sales").metadata.current_snapshot_id
    changed_sales = deployment.sales(what={"orders": hr.count(), "mean": hr.col("price").mean()})
    deployment.handle(changed_sales).backfill(promote=True)
    deployment.deliver(changed_sales)
    assert old is not None
    with world.catalog() as catalog:
        catalog.load_table("reports.sales").manage_snapshots().rollback_to_snapshot(old).commit()
    deployment.deliver(changed_sales)
    assert deployment.held(changed_sales) == deployment.published(changed_sales)
    assert [*deployment.world.rows()[0]] == ["user", "window_start", "window_end", "orders", "mean"]


def test_a_column_that_somebody_took_away_comes_again_with_all_rows(
    deployment: SinkDeployment, world: IcebergWorld
) -> None:
    sales = deliver_sales(deployment)
    with world.catalog() as catalog, catalog.load_table("reports.sales").update_schema() as update:
        update.delete_column("spent")
    deployment.handle(sales).rollback(to="beginning", message="all")
    deployment.deliver(sales)
    deployment.handle(sales).run()
    deployment.deliver(sales)
    assert deployment.held(sales) == deployment.published(sales)


def test_a_table_that_no_delivery_made(deployment: SinkDeployment, world: IcebergWorld) -> None:
    sales = deployment.sales()
    deployment.land("1", order("ann", 5))
    deployment.handle(sales).run()
    with world.catalog() as catalog:
        catalog.create_namespace("reports")
        catalog.create_table("reports.sales", pa.schema([("theirs", pa.int64())]))
    with pytest.raises(SinkRefusedError, match="no delivery made it"):
        deployment.deliver(sales)


@pytest.mark.parametrize("unit", ["year", "month", "hour", None])
def test_other_partitions(deployment: SinkDeployment, world: IcebergWorld, unit: str | None) -> None:
    sales = deployment.sales(sinks=[hr.iceberg("reports.sales", connection="lake", partition_by=unit)])
    deployment.land("1", order("ann", 5), order("bob", 10), order("ann", 1500))
    deployment.handle(sales).run()
    deployment.deliver(sales)
    deployment.land("2", order("ann", 6))
    deployment.handle(sales).run()
    deployment.deliver(sales)
    assert deployment.held(sales) == deployment.published(sales)
    with world.catalog() as catalog:
        names = [field.name for field in catalog.load_table("reports.sales").spec().fields]
    assert names == ([f"window_start_{unit}"] if unit else [])


def test_pairs_are_structs(deployment: SinkDeployment) -> None:
    pairs(deployment)


def test_texts_have_no_upper_bound_where_it_would_be_a_surrogate(
    deployment: SinkDeployment, world: IcebergWorld
) -> None:
    own_pipeline = deployment.values(DataType.STRING)
    deployment.land_values(DataType.STRING, ["\ud7ff" * 17, "a"])
    deployment.handle(own_pipeline).run()
    deployment.deliver(own_pipeline)
    assert deployment.held(own_pipeline) == deployment.published(own_pipeline)
    with world.catalog() as catalog:
        table = catalog.load_table("reports.sales")
        assert table.scan(row_filter=GreaterThan("value", "b")).to_arrow().num_rows == 1
        (file,) = table.inspect.files().to_pylist()
    assert file["readable_metrics"]["value"]["upper_bound"] is None
    assert file["readable_metrics"]["number"]["upper_bound"] == 1


def test_an_answer_that_was_lost_removes_no_file(
    deployment: SinkDeployment, world: IcebergWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.exceptions import CommitStateUnknownException

    sales = deliver_sales(deployment, 70)
    commit = SqlCatalog.commit_table

    def lose_answer(*arguments: Any) -> Any:
        commit(*arguments)
        raise CommitStateUnknownException("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, "commit_table", lose_answer)
        with pytest.raises(SinkUnreachableError):
            deployment.deliver(sales)
    assert deployment.held(sales) == deployment.published(sales)
    assert deployment.deliver(sales).source is None


def test_errors_say_what_to_do_and_no_secret(deployment: SinkDeployment, monkeypatch: pytest.MonkeyPatch) -> None:
    sales = deployment.sales()
    deployment.land("1", order("ann", 5))
    deployment.handle(sales).run()
    for uri, error in (
        ("http://nobody:planted-secret@127.0.0.1:1/catalog", SinkUnreachableError),
        ("http://127.0.0.1:1/catalog?token=planted-secret", SinkUnreachableError),
        ("postgresql://nobody:planted-secret@127.0.0.1:1/x?warehouse=file:///tmp", SinkUnreachableError),
        ("s3://nobody:planted-secret@bucket", SinkRefusedError),
    ):
        monkeypatch.setenv("HEADRACE_CONN_LAKE", uri)
        with pytest.raises(error) as error_info:
            deployment.deliver(sales)
        assert "planted-secret" not in str(error_info.value)
        assert "LAKE" in str(error_info.value).upper()


@pytest.mark.s3
def test_a_table_in_a_bucket(tmp_path: Path, minio: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {
        "warehouse": f"s3://tests/{secrets.token_hex(4)}",
        "s3.endpoint": minio,
        "s3.region": "us-east-1",
        "s3.access-key-id": os.environ["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": os.environ["AWS_SECRET_ACCESS_KEY"],
    }
    world = IcebergWorld(f"sqlite://{tmp_path}/catalog.db?{urlencode(options)}")
    monkeypatch.setenv("HEADRACE_CONN_LAKE", world.uri)
    deployment = SinkDeployment(world, tmp_path)
    sales = deliver_sales(deployment, 20)
    assert deployment.deliver(sales).source is ChangeSource.PANES
    assert deployment.held(sales) == deployment.published(sales)
    handle = deployment.handle(sales)
    assert handle.compare_with("iceberg:reports.sales", connection="lake").is_equal
    handle.rollback(to="beginning", message="all of it")
    deployment.deliver(sales)
    assert deployment.held(sales) == []
    for wrong in ({"s3.secret-access-key": "planted-secret"}, {"s3.endpoint": "http://127.0.0.1:1"}):
        uri = f"sqlite://{tmp_path}/catalog.db?{urlencode({**options, **wrong})}"
        monkeypatch.setenv("HEADRACE_CONN_LAKE", uri)
        handle.run()
        with pytest.raises((SinkRefusedError, SinkUnreachableError)) as error:
            deployment.deliver(sales)
        assert "planted-secret" not in str(error.value)


ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "somebody",
    "AWS_SECRET_ACCESS_KEY": "else",
    "AWS_SESSION_TOKEN": "theirs",
    **dict.fromkeys(("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL_STS"), "http://127.0.0.1:1"),
    **dict.fromkeys(("AWS_REGION", "AWS_DEFAULT_REGION"), "eu-north-9"),
    **dict.fromkeys(("AWS_PROFILE", "AWS_DEFAULT_PROFILE"), "theirs"),
    "AWS_CA_BUNDLE": "/nowhere.pem",
    "AWS_ROLE_ARN": "arn:aws:iam::1:role/theirs",
    "AWS_WEB_IDENTITY_TOKEN_FILE": "/nowhere",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://127.0.0.1:1/keys",
    **dict.fromkeys(
        ("AWS_USE_FIPS_ENDPOINT", "AWS_USE_DUALSTACK_ENDPOINT", "AWS_VIRTUAL_HOSTED_STYLE_REQUEST"), "true"
    ),
    **dict.fromkeys(("AWS_SKIP_SIGNATURE", "AWS_NO_SIGN_REQUEST"), "true"),
    "PYICEBERG_CATALOG__LAKE__TYPE": "rest",
    "PYICEBERG_CATALOG__LAKE__WAREHOUSE": "s3://theirs",
    "PYICEBERG_CATALOG__LAKE__S3__SESSION_TOKEN": "theirs",
    "PYICEBERG_CATALOG__LAKE__S3__ROLE_ARN": "arn:aws:iam::1:role/theirs",
    "PYICEBERG_CATALOG__LAKE__S3__ANONYMOUS": "true",
}
"""What a machine may have for other programs."""
PROFILES = """[profile theirs]
region = eu-north-9
endpoint_url = http://127.0.0.1:1
s3 =
  addressing_style = virtual
"""
DELIVERS = """import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from headrace.testing.connectors.worlds import SinkDeployment
from tests.sinks.worlds import IcebergWorld
deployment = SinkDeployment(IcebergWorld(sys.argv[1], sys.argv[2]), Path(sys.argv[3]))
print(deployment.deliver(deployment.sales()).written)
"""


@pytest.mark.s3
@pytest.mark.parametrize("catalog", ["sqlite", "rest"])
def test_what_the_environment_says_of_another_store_does_not_count(
    catalog: str, minio: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """The connection says whose key it is, where, and how; what AWS's tools and pyiceberg go by is of others."""
    options = {
        "warehouse": f"s3://tests/{secrets.token_hex(4)}",
        "s3.endpoint": minio,
        "s3.region": "us-east-1",
        "s3.access-key-id": os.environ["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": os.environ["AWS_SECRET_ACCESS_KEY"],
    }
    place = request.getfixturevalue("iceberg_rest").uri if catalog == "rest" else f"sqlite://{tmp_path}/catalog.db"
    world = IcebergWorld(f"{place}?{urlencode(options)}", f"n{secrets.token_hex(4)}")
    monkeypatch.setenv("HEADRACE_CONN_LAKE", world.uri)
    deployment = SinkDeployment(world, tmp_path)
    sales = deployment.sales()
    deployment.land("1", order("ann", 5))
    deployment.handle(sales).run()
    (tmp_path / "config").write_text(PROFILES)
    (tmp_path / "keys").write_text("[theirs]\naws_access_key_id = somebody\naws_secret_access_key = else\n")
    files = {"AWS_CONFIG_FILE": str(tmp_path / "config"), "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "keys")}
    result = subprocess.run(
        [sys.executable, "-c", DELIVERS, world.uri, world.namespace, str(tmp_path)],
        env={**os.environ, **ENVIRONMENT, **files},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.stdout.strip(), result.returncode) == ("1", 0), result.stderr
    assert deployment.held(sales) == deployment.published(sales)


def test_a_namespace_that_somebody_makes_meanwhile(deployment: SinkDeployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two first deliveries, the second one makes it after the first one has looked."""
    sales = deployment.sales()
    deployment.land("1", order("ann", 5))
    deployment.handle(sales).run()
    looked_namespace_exists = SqlCatalog.namespace_exists

    def overtaken(catalog: SqlCatalog, namespace: Any) -> bool:
        monkeypatch.setattr(SqlCatalog, "namespace_exists", looked_namespace_exists)
        exists = looked_namespace_exists(catalog, namespace)
        catalog.create_namespace(namespace)
        return exists

    monkeypatch.setattr(SqlCatalog, "namespace_exists", overtaken)
    assert deployment.deliver(sales).written == 1
    assert deployment.held(sales) == deployment.published(sales)


@pytest.mark.parametrize("user", ["AKID:se%2Fcret@", ""])
def test_requests_to_catalogs_of_aws_are_signed(user: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What pyiceberg signs with is the user and the password, and nobody asks for a token."""
    uri = f"https://{user}glue.eu-west-1.amazonaws.com/iceberg?rest.sigv4-enabled=true&rest.signing-name=glue"
    lake_connection = connection("lake", {"HEADRACE_CONN_LAKE": uri})
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(SinkRefusedError, match=r"connection lake .*needs boto3: pip install") as error:
        catalog_properties(lake_connection)
    assert "cret" not in str(error.value)
    module = ModuleType("boto3")
    module.__spec__ = ModuleSpec("boto3", None)
    monkeypatch.setitem(sys.modules, "boto3", module)
    properties = catalog_properties(lake_connection)
    key = {"client.access-key-id": "AKID", "client.secret-access-key": "se/cret"} if user else {}
    assert {name: value for name, value in properties.items() if name.startswith("client.")} == key
    assert not {"credential", "oauth2-server-uri"} & properties.keys()
    assert properties["rest.signing-name"] == "glue"


def test_a_catalog_that_checks_signatures_takes_ours_and_refuses_those_of_others(
    iceberg_rest: IcebergRest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = Key("AKID", f"odd/Secret+{secrets.token_hex(8)}", "eu-west-1", "glue")
    with signed_by(key, iceberg_rest.uri) as gate:
        host = gate.endpoint.removeprefix("http://")
        right, wrong = (
            f"http://{key.id}:{quote(secret, safe='')}@{host}?{key.options()}" for secret in (key.secret, "another")
        )
        # in a path a byte stands between levels: it is encoded, and once more to be signed
        deployment = SinkDeployment(IcebergWorld(iceberg_rest.uri, f"of.n{secrets.token_hex(4)}"), tmp_path)
        monkeypatch.setenv("HEADRACE_CONN_LAKE", right)
        sales = deliver_sales(deployment, 1510)
        deployment.deliver(sales)
        deployment.land("late", order("cyd", 1520))
        deployment.handle(sales).run()
        held_rows = deployment.held(sales)
        assert {method for method, _, _ in gate.requests_seen} >= {"GET", "POST"}
        monkeypatch.setenv("HEADRACE_CONN_LAKE", wrong)
        with pytest.raises(SinkRefusedError, match="HEADRACE_CONN_LAKE") as error:
            deployment.deliver(sales)
        assert "another" not in str(error.value)
        assert deployment.held(sales) == held_rows
        monkeypatch.setenv("HEADRACE_CONN_LAKE", right)
        deployment.deliver(sales)
        assert deployment.held(sales) == deployment.published(sales) != held_rows


@pytest.mark.parametrize("tables", [1, 2])
def test_a_catalog_that_another_begins_meanwhile_is_opened(tables: int, deployment: SinkDeployment) -> None:
    """The other creates some of its tables after it was looked which there are."""
    properties = catalog_properties(connection("lake"))
    metadata = SqlCatalogBaseTable.metadata
    others = [metadata.sorted_tables[number] for number in range(tables)]

    def create_object(*_: object, **__: object) -> None:
        if others:
            engine = create_engine(properties["uri"])
            others.pop(0).create(engine)
            engine.dispose()

    event.listen(metadata, "before_create", create_object)
    try:
        with ICEBERG.open(hr.iceberg("reports.sales", connection="lake"), connection("lake")) as target:
            assert target.held() is None
    finally:
        event.remove(metadata, "before_create", create_object)
    assert not others, "each came in between"
