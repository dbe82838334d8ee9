"""NaN is above every number, and readers find it: the statistics of a file of Parquet do not count it."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace import col
from headrace.types import PipelineHandle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAN = float("nan")
EVENT_TIME = datetime(2026, 5, 1, 9, tzinfo=UTC)
SCHEMA: dict[str, Any] = {
    "id": int,
    "rate": float,
    "place": {"lat": float},
    "rates": list[float],
    "by_name": dict[str, float],
    "at": datetime,
}


def land(root: Path, name: str, rates: dict[int, float]) -> None:
    """Land a record for each id, whose numbers are all its rate."""
    folder = root / "landing" / "rates"
    folder.mkdir(parents=True, exist_ok=True)
    numbers = [*rates.values()]
    table = pa.table(
        {
            "id": [*rates],
            "rate": numbers,
            "place": [{"lat": number} for number in numbers],
            "rates": [[number] for number in numbers],
            "by_name": pa.array([[("a", number)] for number in numbers], pa.map_(pa.string(), pa.float64())),
            "at": pa.array([EVENT_TIME.replace(minute=int(name))] * len(numbers), pa.timestamp("us", tz="UTC")),
        }
    )
    pq.write_table(table, folder / f"{name}.parquet")


def newest_rates(root: Path) -> PipelineHandle:
    """The newest row of each id, which no run has computed yet."""
    newest = hr.Pipeline(
        "newest",
        hr.parquet("landing/rates", SCHEMA).event_time("at", bound="1h"),
        rows=["rate", "place", "rates", "by_name"],
        key="id",
        take=hr.newest(),
        id="id",
        executor="local",
    )
    return hr.open(root.as_uri(), create=True)[newest]


@pytest.fixture
def old_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are written as by Headrace before 0.3: with statistics of floats."""
    write_parquet = pq.ParquetWriter

    def with_statistics(*arguments: Any, **options: Any) -> pq.ParquetWriter:
        return write_parquet(*arguments, **{**options, "write_statistics": True})

    monkeypatch.setattr(pq, "ParquetWriter", with_statistics)


@pytest.mark.parametrize(
    "where",
    [
        "rate > 5",
        "rate = 'nan'",
        "isnan(rate)",
        "not rate <= 2",
        "rate > 5 or id = 9",
        col("rate") > 5.0,
        ~(col("rate") <= 2.0),
        "place.lat > 5",
        col("place").field("lat") > 5.0,
        "rates[1] > 5",
        "by_name['a'] > 5",
    ],
    ids=str,
)
def test_a_condition_finds_nan(tmp_path: Path, where: Any) -> None:
    land(tmp_path, "1", {1: NAN, 2: 1.0, 3: 2.0})
    results = newest_rates(tmp_path)
    results.run()
    for view in (results.current, results.panes):
        assert view(where=where, columns=["id"]).to_arrow().to_pylist() == [{"id": 1}]


def test_a_condition_on_the_one_number_beside_nan_leaves_nan_out(tmp_path: Path) -> None:
    land(tmp_path, "1", {1: NAN, 2: 1.0})
    results = newest_rates(tmp_path)
    results.run()
    assert results.current(where="rate = 1", columns=["id"]).to_arrow().to_pylist() == [{"id": 2}]


def test_the_greatest_of_a_relation_is_nan(tmp_path: Path) -> None:
    land(tmp_path, "1", {1: NAN, 2: 1.0, 3: 2.0})
    results = newest_rates(tmp_path)
    results.run()
    ((greatest,),) = results.current().to_duckdb().aggregate("isnan(max(rate))").fetchall()
    assert greatest


def test_a_diff_sees_that_a_number_is_no_nan_any_more(tmp_path: Path) -> None:
    land(tmp_path, "1", {1: NAN, 2: 1.0})
    results = newest_rates(tmp_path)
    results.run()
    results.tag("before")
    land(tmp_path, "2", {1: 1.0})
    results.run()
    diff = results.diff("before", "published")
    assert diff.output is not None
    assert diff.output.rows.changed == 1


@pytest.mark.parametrize("view", ["current", "panes"])
def test_engines_that_read_the_files_find_it(tmp_path: Path, view: str) -> None:
    land(tmp_path, "1", {1: NAN, 2: 1.0, 3: 2.0})
    results = newest_rates(tmp_path)
    results.run()
    names = results.files(view)
    assert duckdb.execute(f"select id from read_parquet({names}) where rate > 5").fetchall() == [(1,)]
    assert duckdb.execute(f"select id from read_parquet({names}) where place.lat > 5").fetchall() == [(1,)]
    group = pq.ParquetFile(names[0]).metadata.row_group(0)
    bounds = {
        group.column(place).path_in_schema: group.column(place).is_stats_set for place in range(group.num_columns)
    }
    assert bounds["id"]
    assert not bounds["rate"]


@pytest.mark.usefixtures("old_files")
@pytest.mark.parametrize("where", ["rate > 5", "not rate <= 2", "place.lat > 5", col("rate") > 5.0], ids=str)
def test_a_condition_finds_nan_in_files_of_older_versions(tmp_path: Path, where: Any) -> None:
    land(tmp_path, "1", {1: NAN, 2: 1.0, 3: 2.0})
    results = newest_rates(tmp_path)
    results.run()
    figures = pq.ParquetFile(results.files("panes")[0]).metadata.row_group(0).column(1).statistics
    assert (figures.min, figures.max) == (1.0, 2.0)
    for view in (results.current, results.panes):
        assert view(where=where, columns=["id"]).to_arrow().to_pylist() == [{"id": 1}]


@pytest.mark.spark
@pytest.mark.usefixtures("old_files")
def test_on_spark_a_filter_finds_nan_in_files_of_older_versions(spark: "SparkSession", tmp_path: Path) -> None:
    land(tmp_path, "1", {1: NAN, 2: 1.0, 3: 2.0})
    results = newest_rates(tmp_path)
    results.run()
    frame = results.panes().to_spark(spark)
    for where in ("rate > 5", "rate = double('NaN')", "not rate <= 2", "place.lat > 5"):
        assert [row.id for row in frame.where(where).collect()] == [1], where
