"""NaN is above every number, and readers of what sinks write find it: statistics of files do not count it."""

import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from pyiceberg.expressions import BooleanExpression, EqualTo, GreaterThan, IsNaN, NotEqualTo

import headrace as hr
from headrace import col
from headrace.connectors.delta import table as delta_table
from headrace.types import PipelineHandle
from tests.read.test_nan import NAN, SCHEMA, land
from tests.sinks.worlds import IcebergWorld

pytestmark = pytest.mark.slow
DELTA = "lake/reports/newest"
CONDITIONS = {
    "rate > 5": [1],
    "rate <> 1": [1, 3],
    "rate = 1": [2],
    "isnan(rate)": [1],
    "rate >= 2": [1, 3],
    "place['lat'] > 5": [1],
}


def newest_rates(root: Path, sink: Any) -> PipelineHandle:
    newest = hr.Pipeline(
        "newest",
        hr.parquet("landing/rates", SCHEMA).event_time("at", bound="1h"),
        rows=["rate", "place", "rates", "by_name"],
        key="id",
        take=hr.newest(),
        id="id",
        executor="local",
        sinks=[sink],
    )
    return hr.open(root.as_uri(), create=True)[newest]


def deliver(root: Path, sink: Any) -> PipelineHandle:
    results = newest_rates(root, sink)
    results.run()
    results.deliver()
    return results


@pytest.fixture
def delta(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("HEADRACE_CONN_LAKE", (tmp_path / "lake").as_uri())
    return hr.delta("reports/newest", connection="lake")


def ids_of_delta(table: DeltaTable, condition: str) -> list[int]:
    rows = QueryBuilder().register("t", table).execute(f"select id from t where {condition} order by id").read_all()
    return [row["id"] for row in pa.table(rows).to_pylist()]


def ids_of_files(paths: list[str], condition: str) -> list[int]:
    rows = duckdb.sql(f"select id from read_parquet({paths}) where {condition} order by id").fetchall()
    return [number for (number,) in rows]


def check_delta(tmp_path: Path, expected: dict[str, list[int]]) -> None:
    table = DeltaTable(tmp_path / DELTA)
    for condition, ids in expected.items():
        assert ids_of_delta(table, condition) == ids, condition
        assert ids_of_files(table.file_uris(), condition) == ids, condition


def test_readers_of_a_delta_table_find_nan(tmp_path: Path, delta: Any) -> None:
    land(tmp_path, "1", {1: NAN, 2: 1.0, 3: 2.0})
    deliver(tmp_path, delta)
    check_delta(tmp_path, CONDITIONS)
    greatest = QueryBuilder().register("t", DeltaTable(tmp_path / DELTA)).execute("select max(rate) as m from t")
    assert repr(pa.table(greatest.read_all()).to_pylist()) == "[{'m': nan}]"


def test_rows_that_change_in_a_delta_table_are_found(tmp_path: Path, delta: Any) -> None:
    land(tmp_path, "1", {1: 7.0, 2: 1.0, 3: 2.0})
    results = deliver(tmp_path, delta)
    land(tmp_path, "2", {1: NAN})
    results.run()
    results.deliver()
    check_delta(tmp_path, CONDITIONS)


def test_a_filter_of_arrow_over_a_delta_table_loses_no_number(tmp_path: Path, delta: Any) -> None:
    land(tmp_path, "1", {1: NAN, 2: 1.0, 3: 2.0})
    deliver(tmp_path, delta)
    dataset = DeltaTable(tmp_path / DELTA).to_pyarrow_dataset()
    assert sorted(dataset.to_table(filter=ds.field("rate") >= 1).column("id").to_pylist()) == [2, 3]
    assert dataset.to_table(filter=ds.field("rate").is_nan()).column("id").to_pylist() == [1]


def test_a_delta_table_still_states_the_bounds_of_other_columns(tmp_path: Path, delta: Any) -> None:
    land(tmp_path, "1", {1: NAN, 2: 1.0})
    deliver(tmp_path, delta)
    (log,) = (tmp_path / DELTA / "_delta_log").glob("*.json")
    (file,) = [json.loads(line)["add"] for line in log.read_text().splitlines() if '"add"' in line]
    statistics = json.loads(file["stats"])
    assert statistics["minValues"]["id"] == 1
    assert "rate" not in statistics["minValues"]
    footer = pq.read_metadata(DeltaTable(tmp_path / DELTA).file_uris()[0])
    assert footer.row_group(0).column(0).compression == "SNAPPY"


def test_a_delta_table_names_only_columns_that_spark_bounds() -> None:
    kinds = {"flag": pa.bool_(), "raw": pa.binary(), "many": pa.list_(pa.int64()), "rate": pa.float64()}
    kinds |= {
        "id": pa.int64(),
        "at": pa.timestamp("us", "UTC"),
        "day": pa.date32(),
        "name": pa.string(),
        "sum": pa.decimal128(38, 9),
    }
    assert delta_table._bounded_columns(pa.schema(kinds)) == ["id", "at", "day", "name"]


def test_a_delta_table_of_an_older_version_is_mended_by_what_it_gets(tmp_path: Path, delta: Any) -> None:
    land(tmp_path, "1", {1: NAN, 2: 1.0, 3: 2.0})
    results = deliver(tmp_path, delta)
    table = DeltaTable(tmp_path / DELTA)
    with_bounds = table.to_pyarrow_table()
    table.alter.set_table_properties({"delta.dataSkippingStatsColumns": "id,rate"})
    version = table.transaction_version("headrace.snapshot")
    write_deltalake(table, with_bounds, mode="overwrite")
    assert version is not None
    assert ids_of_delta(DeltaTable(tmp_path / DELTA), "rate > 5") == []
    results.deliver(refill=True)
    check_delta(tmp_path, CONDITIONS)


def ids_by_arrow(tmp_path: Path, column: str, least: int) -> list[int]:
    dataset = DeltaTable(tmp_path / DELTA).to_pyarrow_dataset()
    return sorted(dataset.to_table(filter=ds.field(column) >= least).column("id").to_pylist())


def deliver_columns(root: Path, sink: Any, rows: dict[str, hr.Expr], *, computes_again: bool = False) -> None:
    newest = hr.Pipeline(
        "newest",
        hr.parquet("landing/rates", SCHEMA).event_time("at", bound="1h"),
        rows=rows,
        key="id",
        take=hr.newest(),
        id="id",
        executor="local",
        sinks=[sink],
    )
    results = hr.open(root.as_uri(), create=True)[newest]
    if computes_again:
        results.backfill(promote=True)
    else:
        results.run()
    results.deliver()


def test_a_filter_of_arrow_loses_no_row_by_a_column_that_came_later(tmp_path: Path, delta: Any) -> None:
    wider = {"rate": col("rate"), "size": col("id") * 10}
    land(tmp_path, "1", {1: NAN, 2: 1.0, 3: 2.0})
    deliver_columns(tmp_path, delta, {"rate": col("rate")})
    deliver_columns(tmp_path, delta, wider, computes_again=True)
    assert ids_by_arrow(tmp_path, "size", 20) == [2, 3]
    land(tmp_path, "2", {4: 5.0})
    deliver_columns(tmp_path, delta, wider)
    assert ids_by_arrow(tmp_path, "size", 20) == [2, 3, 4]


def test_a_filter_of_arrow_loses_no_row_of_an_older_table_with_many_columns(
    tmp_path: Path, delta: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = {"rate": col("rate"), **{f"c{number}": col("id") * 10 for number in range(40)}}
    land(tmp_path, "1", {1: NAN, 2: 1.0, 3: 2.0})
    with monkeypatch.context() as older:  # as by Headrace before 0.3: bounds of the first 32 columns
        older.setattr(delta_table, "_has_unbounded", lambda _: False)
        deliver_columns(tmp_path, delta, rows)
    land(tmp_path, "2", {4: 5.0})
    deliver_columns(tmp_path, delta, rows)
    assert [ids_by_arrow(tmp_path, name, 20) for name in ("c0", "c39")] == [[2, 3, 4], [2, 3, 4]]
    assert ids_of_delta(DeltaTable(tmp_path / DELTA), "c39 >= 20") == [2, 3, 4]


ICEBERG: dict[BooleanExpression, list[int]] = {
    IsNaN("rate"): [1],
    NotEqualTo("rate", 1.0): [1, 3],
    EqualTo("rate", 1.0): [2],
    GreaterThan("rate", 1.5): [3],  # pyiceberg takes NaN for greater than nothing
}


def test_readers_of_an_iceberg_table_find_nan(tmp_path: Path, lake: IcebergWorld) -> None:
    sink = hr.iceberg("reports.newest", connection="lake", partition_by=None)
    land(tmp_path, "1", {1: NAN, 2: 1.0, 3: 2.0})
    deliver(tmp_path, sink)
    with lake.catalog() as catalog:
        table = catalog.load_table("reports.newest")
        for condition, ids in ICEBERG.items():
            matching = table.scan(row_filter=condition, selected_fields=("id",)).to_arrow().column("id").to_pylist()
            assert sorted(matching) == ids, condition
        files = table.inspect.files().to_pylist()
        assert [file["readable_metrics"]["rate"]["upper_bound"] for file in files] == [None]
        assert [file["readable_metrics"]["id"]["upper_bound"] for file in files] == [3]
        paths = [file["file_path"].removeprefix("file://") for file in files]
    for condition, ids in CONDITIONS.items():
        assert ids_of_files(paths, condition) == ids, condition


def test_files_of_other_tables_of_iceberg_keep_their_bounds(tmp_path: Path, lake: IcebergWorld) -> None:
    rows = pa.table({"rate": [1.0, 2.0]})
    with lake.catalog() as catalog:
        catalog.create_namespace_if_not_exists("theirs")
        table = catalog.create_table("theirs.rates", rows.schema)
        table.append(rows)
        ((file,),) = [table.inspect.files().to_pylist()]
    assert file["readable_metrics"]["rate"]["upper_bound"] == 2.0
    footer = pq.read_metadata(file["file_path"].removeprefix("file://"))
    assert footer.row_group(0).column(0).statistics.max == 2.0
