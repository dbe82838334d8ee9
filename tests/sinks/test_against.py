"""What readers see beside tables of all kinds: what is equal is called so, and what is not is found."""

import json
import math
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import headrace as hr
from headrace import DataType
from headrace.cli.main import app
from headrace.errors import ComparedColumnsError, ComparedTableError, MissingConnectionError
from headrace.ext.sinks import Sink, SinkRefusedError, SinkUnreachableError, UndeliverableError
from headrace.ext.stores import open_store
from headrace.testing.connectors.worlds import VALUES, SinkDeployment, order
from tests.sinks.warehouse import Warehouse
from tests.sinks.worlds import DeltaWorld, IcebergWorld, PostgresWorld

pytestmark = pytest.mark.slow
ORDERS = (order("ann", 5, 10), order("bob", 10, 20), order("ann", 70, 30))


@dataclass(frozen=True)
class Table:
    """A table that a delivery has filled, as ``--against`` names it."""

    deployment: SinkDeployment
    name: str
    connection: str | None

    def compare(self, pipeline: hr.Pipeline, **options: Any) -> Any:
        return self.deployment.handle(pipeline).compare_with(self.name, connection=self.connection, **options)


def name_of(sink: Sink) -> str:
    return f"{sink.kind}:{getattr(sink, 'table', None) or sink.path}"  # type: ignore[attr-defined]


@pytest.fixture(params=["postgres", "delta", "iceberg"])
def table(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    (tmp_path / "lake").mkdir()
    worlds: dict[str, Callable[[], PostgresWorld | DeltaWorld | IcebergWorld]] = {
        "postgres": lambda: request.getfixturevalue("warehouse").world,
        "delta": lambda: DeltaWorld(str(tmp_path / "lake")),
        "iceberg": lambda: IcebergWorld(f"sqlite://{tmp_path}/catalog.db?warehouse={(tmp_path / 'lake').as_uri()}"),
    }
    world = worlds[request.param]()
    for name, value in world.environment.items():
        monkeypatch.setenv(name, value)
    return Table(SinkDeployment(world, tmp_path), name_of(world.sink), world.sink.connection)


def counts(comparison: Any) -> tuple[int, ...]:
    return comparison.only_ours, comparison.only_theirs, comparison.different, comparison.twice, comparison.unreadable


def test_a_table_that_follows_is_equal_until_readers_see_more(table: Table) -> None:
    deployment = table.deployment
    sales = deployment.sales()
    deployment.land("1", *ORDERS)
    deployment.handle(sales).run()
    deployment.deliver(sales)
    same = table.compare(sales)
    assert (same.ours, same.theirs, same.is_equal, counts(same)) == (3, 3, True, (0, 0, 0, 0, 0))
    deployment.land("2", order("bob", 15, 5), order("cyd", 80, 1))
    deployment.handle(sales).run()
    comparison = table.compare(sales)
    assert (comparison.ours, comparison.theirs, comparison.is_equal) == (4, 3, False)
    assert counts(comparison) == (1, 0, 1, 0, 0)
    (different, only_ours) = comparison.first
    assert (different["ours"]["spent"], different["theirs"]["spent"]) == (25, 20)
    assert (only_ours["ours"]["user"], only_ours["theirs"]) == ("cyd", None)
    assert table.compare(sales, without=["spent", "orders"]).different == 0
    deployment.handle(sales).rollback(to="beginning", message="all")
    with pytest.raises(ComparedTableError, match="see nothing"):
        table.compare(sales)


@pytest.mark.parametrize("kind", [*VALUES])
def test_values_of_every_type_are_compared(table: Table, kind: DataType) -> None:
    own_pipeline = table.deployment.values(kind)
    table.deployment.land_values(kind, [*VALUES[kind], None])
    table.deployment.handle(own_pipeline).run()
    table.deployment.deliver(own_pipeline)
    assert table.compare(own_pipeline).is_equal
    table.deployment.land_values(kind, [*reversed(VALUES[kind]), None], "2")
    table.deployment.handle(own_pipeline).run()
    assert table.compare(own_pipeline).different > 0


def test_tables_and_columns_that_are_not_there_are_named(table: Table) -> None:
    sales = table.deployment.sales()
    table.deployment.land("1", *ORDERS)
    table.deployment.handle(sales).run()
    with pytest.raises((SinkRefusedError, SinkUnreachableError)):
        table.compare(sales)
    table.deployment.deliver(sales)
    with pytest.raises(SinkRefusedError, match="has no column 'nowhere'; it has user"):
        table.compare(sales, columns={"spent": "nowhere"})
    with pytest.raises(ComparedColumnsError, match="there is no column 'nowhere'"):
        table.compare(sales, without=["nowhere"])
    with pytest.raises(ComparedColumnsError, match="part of the key"):
        table.compare(sales, without=["user"])


@pytest.fixture
def of_a_lambda(warehouse: Warehouse, tmp_path: Path) -> Iterator[Table]:
    """A table such as a batch layer leaves: other names, other types, no end of windows."""
    deployment = SinkDeployment(warehouse.world, tmp_path)
    warehouse.server.rows(
        f'create table {warehouse.schema}.hourly (customer varchar(20), hour timestamp, "number" numeric, '
        "revenue double precision)"
    )
    yield Table(deployment, f"postgres:{warehouse.schema}.hourly", "warehouse")


LAMBDA = {"user": "customer", "window_start": "hour", "orders": "number", "spent": "revenue"}


def fill(warehouse: Warehouse, *rows: str) -> None:
    warehouse.server.rows(f"truncate {warehouse.schema}.hourly")
    warehouse.server.rows(f"insert into {warehouse.schema}.hourly values {', '.join(rows)}")


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (["('ann', '2026-05-01 00:00', 1, 10)", "('bob', '2026-05-01 00:00', 1.00, 20)"], (0, 0, 0, 0, 0)),
        (["('ann', '2026-05-01 00:00', 1, 10)"], (1, 0, 0, 0, 0)),
        (["('ann', '2026-05-01 00:00', 1, 10.5)", "('bob', '2026-05-01 00:00', 1, 20)"], (0, 0, 1, 0, 0)),
        (["('ann', '2026-05-01 00:00', 1.5, 10)", "('bob', '2026-05-01 00:00', 1, 20)"], (0, 0, 1, 0, 0)),
        (["('ann', '2026-05-01 00:00', 1, 10)"] * 2 + ["('bob', '2026-05-01 00:00', 1, 20)"], (0, 0, 0, 1, 0)),
        (
            ["('ann', '2026-05-01 00:00', 1, 10)", "('bob', '2026-05-01 00:00', 1, 20)", "('cyd', 'infinity', 1, 1)"],
            (0, 1, 0, 0, 0),
        ),
        (
            ["('ann', '2026-05-01 00:00', 'NaN', 10)", "('bob', '2026-05-01 00:00', 1, 20)"],
            (0, 0, 1, 0, 1),
        ),
    ],
)
def test_a_table_of_somebody_else(
    of_a_lambda: Table, warehouse: Warehouse, rows: Sequence[str], expected: tuple[int, ...]
) -> None:
    sales = of_a_lambda.deployment.sales(what={"orders": hr.count(), "spent": hr.col("price").mean()})
    of_a_lambda.deployment.land("1", *ORDERS[:2])
    of_a_lambda.deployment.handle(sales).run()
    fill(warehouse, *rows)
    assert counts(of_a_lambda.compare(sales, columns=LAMBDA, without=["window_end"])) == expected


def test_floats_within_a_tolerance_and_a_table_without_rows(of_a_lambda: Table, warehouse: Warehouse) -> None:
    sales = of_a_lambda.deployment.sales(what={"orders": hr.count(), "spent": hr.col("price").mean()})
    of_a_lambda.deployment.land("1", ORDERS[0])
    of_a_lambda.deployment.handle(sales).run()
    options: dict[str, Any] = {"columns": LAMBDA, "without": ["window_end"]}
    assert counts(of_a_lambda.compare(sales, **options)) == (1, 0, 0, 0, 0)
    fill(warehouse, "('ann', '2026-05-01 00:00', 1, 10.0000000001)")
    assert counts(of_a_lambda.compare(sales, **options)) == (0, 0, 1, 0, 0)
    assert of_a_lambda.compare(sales, **options, tolerance=1e-9).is_equal
    assert not of_a_lambda.compare(sales, **options, tolerance=1e-12).is_equal


_MIDNIGHT = datetime(2026, 5, 1)
_SECONDS = int(_MIDNIGHT.replace(tzinfo=UTC).timestamp())
_OF_30_DIGITS = pa.decimal128(38, 30)


@pytest.mark.parametrize(
    ("kind", "ours", "theirs", "tolerance", "expected"),
    [
        (DataType.FLOAT, math.nan, pa.array([1.0]), 1e-9, (1, 0)),
        (DataType.FLOAT, math.inf, pa.array([1.0]), 1e-9, (1, 0)),
        (DataType.FLOAT, math.inf, pa.array([-math.inf]), 1e-9, (1, 0)),
        (DataType.FLOAT, 1.0, pa.array([math.inf]), 1.0, (1, 0)),
        (DataType.FLOAT, math.nan, pa.array([math.nan]), 1e-9, (0, 0)),
        (DataType.FLOAT, -0.0, pa.array([0.0]), 0.0, (0, 0)),
        (DataType.FLOAT, math.inf, pa.array([math.inf]), 0.0, (0, 0)),
        (DataType.FLOAT, 1.5, pa.array([Decimal("1.5000001")]), 1e-6, (0, 0)),
        (DataType.DATE, _MIDNIGHT.date(), pa.array([_MIDNIGHT.replace(hour=13)]), 0.0, (1, 0)),
        (DataType.DATE, _MIDNIGHT.date(), pa.array(["2026-05-01 13:00:00"]), 0.0, (1, 0)),
        (DataType.DATE, _MIDNIGHT.date(), pa.array([_MIDNIGHT]), 0.0, (0, 0)),
        (DataType.DATE, _MIDNIGHT.date(), pa.array(["2026-05-01"]), 0.0, (0, 0)),
        (DataType.TIMESTAMP, _MIDNIGHT, pa.array(["2026-05-01T02:00:00+02:00"]), 0.0, (0, 0)),
        (DataType.BYTES, b"\xab", pa.array(["zzab"]), 0.0, (1, 1)),
        (DataType.BYTES, b"\xab", pa.array([r"\xqq"]), 0.0, (1, 1)),
        (DataType.BYTES, b"\xab", pa.array([r"\xab"]), 0.0, (0, 0)),
        (DataType.INT, 2**53 + 1, pa.array([float(2**53)]), 0.0, (1, 0)),
        (DataType.INT, 1, pa.array(["1.0000000001"]), 0.0, (1, 1)),
        (DataType.INT, 1, pa.array(["1.00000000000"]), 0.0, (0, 0)),
        (DataType.INT, 1, pa.array(["a"]).dictionary_encode(), 0.0, (1, 1)),
        (DataType.DECIMAL, Decimal(1), pa.array(["1.0000000001"]), 0.0, (1, 1)),
        (DataType.DECIMAL, Decimal(0), pa.array(["1E-10"]), 0.0, (1, 1)),
        (DataType.DECIMAL, Decimal(0), pa.array(["0E-10"]), 0.0, (0, 0)),
        (DataType.DECIMAL, Decimal("0.000000001"), pa.array(["10.0e-10"]), 0.0, (0, 0)),
        (DataType.DECIMAL, Decimal("0.000000001"), pa.array(["+.1e-8"]), 0.0, (0, 0)),
        (DataType.DECIMAL, Decimal("0.000000012"), pa.array(["1.23e-8"]), 0.0, (1, 1)),
        (DataType.INT, 0, pa.array(["1e-12"]), 0.0, (1, 1)),
        (DataType.INT, 1200, pa.array(["1.2E+3"]), 0.0, (0, 0)),
        (DataType.INT, 1, pa.array(["100000000001e-11"]), 0.0, (1, 1)),
        (DataType.INT, 10, pa.array(["1E1"]), 0.0, (0, 0)),
        (DataType.DECIMAL, Decimal(10**17) + Decimal("0.5"), pa.array([1e17]), 0.0, (1, 0)),
        (DataType.DECIMAL, Decimal("0.1"), pa.array([0.1]), 0.0, (0, 0)),
        (DataType.TIMESTAMP, _MIDNIGHT, pa.array([_SECONDS * 10**9 + 1], pa.timestamp("ns", "UTC")), 0.0, (1, 1)),
        (DataType.TIMESTAMP, _MIDNIGHT, pa.array([_SECONDS * 10**9], pa.timestamp("ns", "Asia/Tokyo")), 0.0, (0, 0)),
        (DataType.TIMESTAMP, _MIDNIGHT, pa.array(["2026-05-01 00:00:00.0000001"]), 0.0, (1, 1)),
        (DataType.DATE, _MIDNIGHT.date(), pa.array(["2026-05-01 00:00:00.0000001"]), 0.0, (1, 1)),
        (DataType.BOOL, True, pa.array([5]), 0.0, (1, 0)),
        (DataType.BOOL, True, pa.array([1]), 0.0, (0, 0)),
    ],
)
def test_values_that_a_cast_or_a_float_would_make_equal(
    tmp_path: Path, kind: DataType, *, ours: Any, theirs: pa.Array, tolerance: float, expected: tuple[int, int]
) -> None:
    comparison = compare_values(tmp_path, kind, ours, theirs, tolerance=tolerance)
    assert (comparison.different, comparison.unreadable) == expected
    assert comparison.is_equal is (expected == (0, 0))


@pytest.mark.parametrize(
    ("kind", "ours", "theirs"),
    [
        (DataType.TIMESTAMP, _MIDNIGHT, pa.array([5])),
        (DataType.INT, 10**18, pa.array([Decimal(1)], _OF_30_DIGITS)),
        (DataType.INT, 1, pa.array([_MIDNIGHT])),
        (DataType.DECIMAL, Decimal(1), pa.array([Decimal(1)], pa.decimal256(60, 20))),
    ],
)
def test_types_that_do_not_compare_are_named(tmp_path: Path, kind: DataType, ours: Any, theirs: pa.Array) -> None:
    with pytest.raises(ComparedColumnsError, match=r"a type that does not compare.* value \w+ \(.*--without"):
        compare_values(tmp_path, kind, ours, theirs)


@pytest.mark.parametrize(
    "kind", [DataType.STRING, DataType.TIMESTAMP, DataType.FLOAT, DataType.DECIMAL, DataType.BYTES]
)
@pytest.mark.parametrize("what", [hr.col("value").top(3), hr.col("number").pairs(hr.col("value"))])
def test_lists_are_compared_with_lists_of_the_same(table: Table, kind: DataType, what: Any) -> None:
    own_pipeline = table.deployment.values(kind, value=what)
    table.deployment.land_values(kind, [*VALUES[kind], None])
    table.deployment.handle(own_pipeline).run()
    if table.name.startswith("postgres"):
        with pytest.raises((ComparedColumnsError, UndeliverableError, SinkRefusedError)):
            table.deployment.deliver(own_pipeline)
            table.compare(own_pipeline)
        return
    table.deployment.deliver(own_pipeline)
    assert table.compare(own_pipeline).is_equal
    table.deployment.land_values(kind, [*reversed(VALUES[kind])], "2")
    table.deployment.handle(own_pipeline).run()
    assert table.compare(own_pipeline).different > 0


@pytest.mark.parametrize("theirs", [pa.array([[1.0]]), pa.array([[1]], pa.list_(pa.int32())), pa.array(["{1}"])])
def test_a_list_of_another_type_is_not_compared(tmp_path: Path, theirs: pa.Array) -> None:
    with pytest.raises(ComparedColumnsError, match="'value' is a list of int, which is not compared with"):
        compare_values(tmp_path, DataType.INT, 1, theirs, what=hr.col("value").top(1))


def compare_values(folder: Path, kind: DataType, ours: Any, theirs: pa.Array, what: Any = None, **options: Any) -> Any:
    """A pipeline with the one value ``ours`` compared with a file of ``theirs``."""
    deployment = SinkDeployment(DeltaWorld(str(folder / "lake")), folder)
    own_pipeline = deployment.values(kind, **({} if what is None else {"value": what}))
    deployment.land_values(kind, [ours])
    deployment.handle(own_pipeline).run()
    nothing = pa.nulls(1, pa.timestamp("us"))
    columns = {"number": pa.array([0]), "window_start": nothing, "window_end": nothing, "value": theirs}
    pq.write_table(pa.table(columns), folder / "theirs.parquet")
    return deployment.handle(own_pipeline).compare_with(f"parquet:{folder}/theirs.parquet", **options)


def test_the_command_ends_with_1_if_a_file_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = SinkDeployment(DeltaWorld(str(tmp_path / "lake")), tmp_path)
    sales = deployment.sales(sinks=())
    deployment.land("1", *ORDERS)
    deployment.handle(sales).run()
    file = tmp_path / "sales.parquet"
    rows = deployment.handle(sales).current().to_arrow()
    pq.write_table(rows, file)
    words = ["diff", "sales", "--root", tmp_path.as_uri(), "--against", f"parquet:{file}"]
    result = CliRunner().invoke(app, words)
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (0, "They are equal"), result.output
    pq.write_table(rows.slice(1), file)
    result = CliRunner().invoke(app, [*words, "--format", "json"])
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert (document["only_ours"], document["is_equal"]) == (1, False)
    text_table = CliRunner().invoke(app, words).stdout
    assert json.dumps(document["first"][0]["ours"]) in text_table
    assert "datetime" not in text_table
    for wrong, words_of_error in (
        (["--against", "parquet"], "names no table"),
        (["--against", "parquet:nowhere"], "there is no file"),
        (["--against", "delta:x"], "--connection"),
        (["--against", "nothing:x", "--connection", "x"], "no kind of sink"),
        (["--against", f"parquet:{file}", "--column", "x"], "OURS=THEIRS"),
        ([], "give two snapshots"),
    ):
        result = CliRunner().invoke(app, ["diff", "sales", "--root", tmp_path.as_uri(), *wrong])
        assert result.exit_code not in (0, 1), result.output
        assert words_of_error in result.stderr.replace("\n", " "), result.output
    monkeypatch.delenv("HEADRACE_CONN_NOBODY", raising=False)
    with pytest.raises(MissingConnectionError):
        deployment.handle(sales).compare_with("delta:x", connection="nobody")


@pytest.mark.s3
def test_parquet_in_a_store(tmp_path: Path, minio: str) -> None:
    deployment = SinkDeployment(DeltaWorld(str(tmp_path / "lake")), tmp_path)
    sales = deployment.sales(sinks=())
    deployment.land("1", *ORDERS)
    deployment.handle(sales).run()
    rows = deployment.handle(sales).current().to_arrow()
    address = f"tests/{secrets.token_hex(4)}"
    store = open_store(f"s3://{address}")
    for name, part in (("sales/1.parquet", rows.slice(0, 2)), ("sales/day=1/2.parquet", rows.slice(2))):
        sink = pa.BufferOutputStream()
        pq.write_table(part, sink)
        store.write(name, sink.getvalue().to_pybytes())
    store.write("sales/_SUCCESS", b"")
    store.write("sales.parquet.old", b"")
    handle = deployment.handle(sales)
    assert handle.compare_with(f"parquet:s3://{address}/sales").is_equal
    assert handle.compare_with(f"parquet:s3://{address}/sales/").is_equal
    assert counts(handle.compare_with(f"parquet:s3://{address}/sales/1.parquet")) == (1, 0, 0, 0, 0)
    with pytest.raises(ComparedTableError, match="no file or folder"):
        handle.compare_with(f"parquet:s3://{address}/sale")
    pq.write_to_dataset(rows.drop_columns([name for name in rows.schema.names if name[0] == "_"]), tmp_path / "hive",
                        partition_cols=["user", "window_start"])  # fmt: skip
    for file in (tmp_path / "hive").rglob("*.parquet"):
        store.write(file.relative_to(tmp_path).as_posix(), file.read_bytes())
    assert handle.compare_with(f"parquet:s3://{address}/hive").is_equal


def test_more_rows_than_memory_has_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """600,000 rows on either side, which take more than 150 MB in a database."""
    from datetime import timedelta

    number = 600_000
    landing = tmp_path / "landing" / "values"
    landing.mkdir(parents=True)
    begin = datetime(2026, 5, 1)
    columns = {
        "number": pa.array(range(number)),
        "value": pa.array([f"{row:0100}" for row in range(number)]),
        "at": pa.array([begin + timedelta(seconds=row % 3600) for row in range(number)], pa.timestamp("us", "UTC")),
    }
    pq.write_table(pa.table(columns), landing / "1.parquet")
    deployment = SinkDeployment(DeltaWorld(str(tmp_path / "lake")), tmp_path)
    own_pipeline = deployment.values(DataType.STRING)
    deployment.handle(own_pipeline).run()
    file = tmp_path / "theirs.parquet"
    with duckdb.connect() as database:
        source = landing / "1.parquet"
        query = f"select number, null::timestamp as window_start, null::timestamp as window_end, value from '{source}'"
        database.execute(f"copy ({query} where number <> 7) to '{file}' (format parquet)")
    monkeypatch.setenv("HEADRACE_READ_MEMORY", "150MB")
    comparison = deployment.handle(own_pipeline).compare_with(f"parquet:{file}")
    assert (comparison.ours, comparison.theirs, counts(comparison)) == (number, number - 1, (1, 0, 0, 0, 0))
