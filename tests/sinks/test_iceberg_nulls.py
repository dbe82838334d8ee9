"""Lists and maps of structs that are NULL stay NULL in a table of Iceberg: pyiceberg writes and reads them as empty."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

import headrace as hr
from headrace.types import PipelineHandle
from tests.sinks.worlds import IcebergWorld

pytestmark = pytest.mark.slow
ITEM = {"sku": "a", "qty": 1}
ROWS: list[dict[str, Any]] = [
    {"id": 1, "items": None, "by_name": None, "nested": None},
    {"id": 2, "items": [], "by_name": {}, "nested": []},
    {"id": 3, "items": [ITEM, None], "by_name": {"x": ITEM, "y": None}, "nested": [[ITEM], None, []]},
    {"id": 4, "items": None, "by_name": {"x": ITEM}, "nested": [None]},
]


def carts(root: Path) -> PipelineHandle:
    item = {"sku": str, "qty": int}
    schema = {"id": int, "items": list[item], "by_name": dict[str, item], "nested": list[list[item]]}  # type: ignore[valid-type]
    pipeline = hr.Pipeline(
        "carts",
        hr.json("landing/carts", schema).arrival_time(),
        rows=["id", "items", "by_name", "nested"],
        id="id",
        executor="local",
        sinks=[hr.iceberg("reports.sales", connection="lake", partition_by=None)],
    )
    return hr.open(root.as_uri(), create=True)[pipeline]


def land(root: Path, name: str, *rows: dict[str, Any]) -> None:
    folder = root / "landing" / "carts"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


def rows_by_duckdb(lake: IcebergWorld) -> list[dict[str, Any]]:
    """As readers of Parquet see them."""
    with lake.catalog() as catalog:
        files = catalog.load_table("reports.sales").inspect.files().to_pylist()
    paths = [file["file_path"].removeprefix("file://") for file in files]
    query = f"select id, items, by_name, nested from read_parquet({paths}) order by id"
    with duckdb.connect() as database:
        table = database.sql(query).to_arrow_table()
    return [{**row, "by_name": None if row["by_name"] is None else dict(row["by_name"])} for row in table.to_pylist()]


def test_null_is_not_empty_in_files_that_are_written(tmp_path: Path, lake: IcebergWorld) -> None:
    land(tmp_path, "1", *ROWS)
    results = carts(tmp_path)
    results.run()
    results.deliver()
    assert rows_by_duckdb(lake) == ROWS
    (check,) = results.check_sinks()
    assert check.is_right, check.describe()


def test_rows_that_stay_beside_one_that_goes_keep_their_nulls(tmp_path: Path, lake: IcebergWorld) -> None:
    land(tmp_path, "1", *ROWS)
    results = carts(tmp_path)
    results.run()
    results.tag("all")
    land(tmp_path, "2", {**ROWS[1], "id": 5})
    results.run()
    results.deliver()
    results.rollback(to="all", message="without the fifth")
    results.deliver()
    assert rows_by_duckdb(lake) == ROWS
    (check,) = results.check_sinks()
    assert check.is_right, check.describe()


def test_a_comparison_reads_null_as_it_is(tmp_path: Path, lake: IcebergWorld) -> None:
    land(tmp_path, "1", *ROWS)
    results = carts(tmp_path)
    results.run()
    results.deliver()
    target = ["--against", "iceberg:reports.sales", "--connection", "lake", "--root", tmp_path.as_uri()]
    # a process of its own, which delivers nothing
    subprocess.run(
        [sys.executable, "-c", "from headrace.cli.main import main; main()", "diff", "carts", "published", *target],
        check=True,
    )
