"""What readers see beside Parquet files whose folders say values of columns, as Hive's do."""

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace import DataType
from headrace.errors import ComparedColumnsError, ComparedTableError
from headrace.ext.sinks import SinkRefusedError
from headrace.testing.connectors.worlds import VALUES, SinkDeployment, order
from tests.sinks.worlds import DeltaWorld

TEXTS = ("007", "7", "a/b c=%41", "é", "+1", "__x")
COLUMNS = ["user", "window_start", "window_end", "orders", "spent"]
IN_FOLDERS = [kind for kind in VALUES if kind is not DataType.BYTES]  # nobody writes these into names


def deployment_in(folder: Path) -> SinkDeployment:
    return SinkDeployment(DeltaWorld(str(folder / "lake")), folder)


@pytest.fixture
def sales(tmp_path: Path) -> hr.types.PipelineHandle:
    deployment = deployment_in(tmp_path)
    handle = deployment.handle(deployment.sales(sinks=()))
    deployment.land("1", *(order(user, 70 * number) for number, user in enumerate(TEXTS)))
    handle.run()
    return handle


def hive(handle: hr.types.PipelineHandle, folder: Path, *columns: str) -> Path:
    """What readers see, as pyarrow writes it into folders of ``columns``."""
    pq.write_to_dataset(handle.current(columns=COLUMNS).to_arrow(), folder, partition_cols=[*columns])
    return folder


@pytest.mark.parametrize("columns", [("user",), ("window_start", "user", "orders"), ("spent",)], ids="/".join)
def test_folders_say_values(sales: hr.types.PipelineHandle, tmp_path: Path, columns: tuple[str, ...]) -> None:
    table = hive(sales, tmp_path / "hive", *columns)
    pq.write_table(pa.table({"x": [1]}), table / "_metadata")
    for address in (f"parquet:{table}", f"parquet:{table}/", f"parquet:{table.as_uri()}"):
        assert sales.compare_with(address).is_equal


def test_a_relative_folder(sales: hr.types.PipelineHandle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hive(sales, tmp_path / "day=1" / "hive", "user")
    monkeypatch.chdir(tmp_path / "day=1")
    assert sales.compare_with("parquet:hive").is_equal
    assert sales.compare_with("parquet:./hive").is_equal


@pytest.mark.parametrize("kind", IN_FOLDERS)
def test_values_of_every_type_in_folders(kind: DataType, tmp_path: Path) -> None:
    """As DuckDB writes them, with NULL."""
    deployment = deployment_in(tmp_path)
    values = [value for value in VALUES[kind] if len(str(value)) < 200]
    deployment.land_values(kind, [*values, None])
    handle = deployment.handle(deployment.values(kind))
    handle.run()
    rows = handle.current(columns=["number", "window_start", "window_end", "value"]).to_arrow()  # noqa: F841
    with duckdb.connect() as database:
        database.execute("set timezone = 'UTC'")
        database.execute(f"copy (from rows) to '{tmp_path}/hive' (format parquet, partition_by (value))")
    comparison = handle.compare_with(f"parquet:{tmp_path}/hive")
    assert comparison.is_equal, comparison.first


def test_what_files_have_counts_and_what_nobody_asks_for_does_not(
    sales: hr.types.PipelineHandle, tmp_path: Path
) -> None:
    """A folder may be called like a column of its files, and by no column at all."""
    table = tmp_path / "day=2026-05-01"
    (table / "user=nobody" / "part=x").mkdir(parents=True)
    pq.write_table(sales.current(columns=COLUMNS).to_arrow(), table / "user=nobody" / "part=x" / "1.parquet")
    assert sales.compare_with(f"parquet:{table}").is_equal
    with pytest.raises(SinkRefusedError, match=r"has no column 'day'; it has .*spent, part"):
        sales.compare_with(f"parquet:{table}", columns={"orders": "day"})


def test_columns_of_folders_have_names_of_their_own(sales: hr.types.PipelineHandle, tmp_path: Path) -> None:
    table = sales.current(columns=COLUMNS).to_arrow().rename_columns(["the user", *COLUMNS[1:]])
    pq.write_to_dataset(table, tmp_path / "hive", partition_cols=["the user"])
    assert sales.compare_with(f"parquet:{tmp_path}/hive", columns={"user": "the user"}).is_equal


def test_what_folders_do_not_say_is_an_error(sales: hr.types.PipelineHandle, tmp_path: Path) -> None:
    table = hive(sales, tmp_path / "hive", "spent")
    (only_path,) = table.iterdir()
    (table / "spent=1.5").mkdir()
    (file,) = only_path.iterdir()
    whole = pq.read_table(file, partitioning=None)
    pq.write_table(whole.slice(0, 1), table / "spent=1.5" / "1.parquet")
    assert sales.compare_with(f"parquet:{table}").twice == 1  # a number, if no whole one
    (table / "spent=1.5").rename(table / "spent=much")
    with pytest.raises(
        ComparedColumnsError, match="'much', of a folder spent=VALUE, is no int, which it is for readers"
    ):
        sales.compare_with(f"parquet:{table}")
    (table / "spent=much").rename(table / "spent=%FF")
    with pytest.raises(ComparedTableError, match=r"a folder of spent=%FF/1\.parquet is no percent-encoded UTF-8"):
        sales.compare_with(f"parquet:{table}")
    (table / "spent=%FF").rename(table / "else")
    with pytest.raises(ComparedTableError, match=r"else/1\.parquet is in no folder spent=VALUE, as other files are"):
        sales.compare_with(f"parquet:{table}")
