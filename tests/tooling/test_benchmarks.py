"""The benchmarks run, on tiny data, and both sides come to the same results. What they measure is no matter here."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks import data
from benchmarks.cost import Cost, Prices, always_on
from benchmarks.curves import CURVES, FOLDER, NUMBERS, picture
from benchmarks.engines import module_of, requirements
from benchmarks.landing import paths
from benchmarks.workloads import Side

REPOSITORY = Path(__file__).resolve().parents[2]


def run(module: str, *arguments: str, folder: Path) -> str:
    """Standard output of a benchmark."""
    common = ["--repeats", "1", "--cores", "1", "--memory", "1g", "--folder", str(folder)]
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments, *common]
    result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.slow
def test_the_same_parameters_give_the_same_events(tmp_path: Path) -> None:
    parameters = data.Events(rows=3000, keys=50, files=4)
    first, second = (data.events(tmp_path / name, parameters) for name in ("one", "two"))
    assert [path.read_bytes() for path in paths(first)] == [path.read_bytes() for path in paths(second)]
    assert len(paths(first)) == 4


@pytest.mark.spark
def test_throughput_compares_itself_with_structured_streaming(tmp_path: Path) -> None:
    shape = ["--workload", "sessions", "--rows", "3000", "--keys", "100", "--epochs", "2"]
    report = json.loads(run("throughput", *shape, "--format", "json", folder=tmp_path))
    assert report["agrees"] is True
    assert report["compared"]["ours"]["results"] > 100
    assert report["ratio"]["min"] <= report["ratio"]["median"] <= report["ratio"]["max"]
    assert len(report["ours"]["epochs"][0]) == len(report["peer"]["epochs"][0]) == 2
    assert report["ours"]["cpu_seconds"][0] > 0
    for side in (report["ours"], report["peer"]):
        # a process imports and starts Spark before its first look at the input, which its first commit ends
        first = side["start_seconds"][0] + side["first_epoch_seconds"][0]
        assert first < side["first_commit_seconds"][0] < side["start_seconds"][0] + side["wall_seconds"][0] + 60
        assert 10**8 < side["peak_memory_bytes"][0] < 10**10
    assert report["memory_ratio"]["median"] > 0
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


@pytest.mark.slow
def test_what_snapshots_cost_is_told_of_the_same_results(tmp_path: Path) -> None:
    figures_file = tmp_path / "abs_measured.json"
    shape = ["--rows", "3000", "--keys", "100", "--files", "4", "--epochs", "1", "4", "--out", str(figures_file)]
    report = json.loads(run("abs", *shape, "--format", "json", folder=tmp_path))
    assert json.loads(figures_file.read_text()) == report
    assert report["agrees"] is True
    assert [each["epochs"] for each in report["runs"]] == [1, 4]
    assert report["runs"][0]["overhead"] == 0
    first, cut = (each["seconds"] for each in report["runs"])
    assert report["runs"][1]["overhead"] == pytest.approx(cut / first - 1, rel=0.1, abs=0.01)


@pytest.mark.slow
def test_epochs_of_different_sizes_are_an_error(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.abs", "--files", "10", "--epochs", "1", "4", "--folder", str(tmp_path)]
    result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert result.returncode == 2
    assert "10 files cannot be cut into 4 epochs" in result.stderr


@pytest.mark.slow
def test_snapshots_change_no_results(tmp_path: Path) -> None:
    shape = ["--stores", "local", "--rows", "3000", "--keys", "100", "--epochs", "3"]
    report = json.loads(run("snapshots", *shape, "--format", "json", folder=tmp_path))
    (result,) = report["results"]
    assert result["agrees"] is True
    none, beside_run, awaited_run = (result["sides"][side] for side in ("none", "beside", "awaited"))
    assert [len(side["epochs"][0]) for side in (none, beside_run, awaited_run)] == [3, 3, 3]
    assert none["overhead"]["median"] == 0
    expected = beside_run["wall_seconds"][0] / none["wall_seconds"][0] - 1
    assert beside_run["overhead"]["median"] == pytest.approx(expected, rel=0.1, abs=0.01)


@pytest.mark.slow
def test_bytes_written_against_bytes_changed(tmp_path: Path) -> None:
    shape = ["--keys", "400", "--changed", "20", "--epochs", "18"]
    report = json.loads(run("rewriting", *shape, "--format", "json", folder=tmp_path))
    hot, uniform = report["results"]
    assert hot["agrees"] is True
    assert uniform["agrees"] is True
    for result in (hot, uniform):
        size = result["bytes"]
        assert min(size.values()) > 0
        assert result["ratios"]["state"] == pytest.approx(
            (size["changed"] + size["merged"]) / size["changed"], abs=0.01
        )
    # layers of other keys do not become smaller together
    assert uniform["bytes"]["merged"] > hot["bytes"]["merged"]


@pytest.mark.slow
def test_the_command_from_its_start_to_its_commit(tmp_path: Path) -> None:
    shape = ["--executors", "local", "--rows", "50"]
    report = json.loads(run("cold_start", *shape, "--format", "json", folder=tmp_path))
    (entry,) = report["results"]
    assert report["agrees"] is True
    assert entry["seconds"][0] > 0
    assert entry["requests_of_epoch"][0]["put"] > 0


@pytest.mark.s3
@pytest.mark.slow
def test_the_command_reads_its_live_keys_from_minio(tmp_path: Path) -> None:
    shape = ["--executors", "local", "--rows", "50", "--keys", "20000", "--store", "minio"]
    report = json.loads(run("cold_start", *shape, "--format", "json", folder=tmp_path))
    (moved_traffic,) = report["results"][0]["traffic"]
    assert report["agrees"] is True
    assert moved_traffic["requests"]["GetObject"] > 0
    assert moved_traffic["requests"]["PutObject"] > 0
    assert moved_traffic["read_bytes"] > 20_000 * 4 > moved_traffic["written_bytes"] > 50 * 4


@pytest.mark.slow
def test_cleaned_rows_are_those_of_the_floor(tmp_path: Path) -> None:
    shape = ["--workload", "cleaned", "--rows", "500", "--executor", "local", "--against", "duckdb"]
    report = json.loads(run("rows", *shape, "--format", "json", folder=tmp_path))
    assert report["agrees"] is True
    assert report["ours"][0]["found"][0] == 400


@pytest.mark.spark
def test_the_top_rows_of_each_hour_are_those_of_structured_streaming(tmp_path: Path) -> None:
    shape = ["--workload", "tops", "--rows", "500", "--files", "3", "--executor", "local"]
    report = json.loads(run("rows", *shape, "--format", "json", folder=tmp_path))
    assert report["agrees"] is True
    assert 100 < report["ours"][0]["found"][0] <= 300


def test_a_look_for_new_names_among_many(tmp_path: Path) -> None:
    shape = ["--names", "2100", "--new", "7", "--stores", "local", "--folder", str(tmp_path)]
    command = [sys.executable, "-m", "benchmarks.names", *shape]
    result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    looks = [json.loads(line) for line in result.stdout.splitlines()]
    new_counts = {look["how"]: look["new"] for look in looks}
    assert new_counts == {"first": 2_107, "any": 7, "old": 7, "ordered": 0}
    assert all(10 < look["peak_mb"] < 1_000 for look in looks)


def test_runs_with_seals_and_without(tmp_path: Path) -> None:
    shape = ["--runs", "1", "--messages", "1200", "--stores", "local", "--folder", str(tmp_path)]
    command = [sys.executable, "-m", "benchmarks.seals", *shape]
    result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    requests = json.loads(result.stdout)
    assert requests["sealed"]["create"] == requests["unsealed"]["create"] + 1
    assert requests["sealed"]["get"] > requests["unsealed"]["get"]
    assert requests["sealed"]["list"] == requests["unsealed"]["list"]


@pytest.mark.slow
def test_throughput_compares_itself_with_another_engine(tmp_path: Path) -> None:
    shape = ["--rows", "3000", "--keys", "100", "--epochs", "2", "--against", "polars", "--executor", "local"]
    report = json.loads(run("throughput", *shape, "--format", "json", folder=tmp_path))
    assert report["agrees"] is True
    assert report["compared"]["peer"]["sum_of_payments"] == "3000"
    for side in (report["ours"], report["peer"]):
        # all that the process took, its start with it, beside what came after the first look at the input
        assert side["process_seconds"][0] > side["wall_seconds"][0]
        assert side["process_cpu_seconds"][0] > side["cpu_seconds"][0]


@pytest.mark.slow
def test_another_engine_refuses_a_workload_that_it_has_not(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="polars computes tumbling windows alone"):
        run("throughput", "--against", "polars", "--workload", "sessions", folder=tmp_path)


@pytest.mark.parametrize("engine", [Side.FLINK, Side.PATHWAY, Side.BYTEWAX])
def test_an_engine_states_one_version_and_that_it_is_measured_outside(engine: Side) -> None:
    module = module_of(engine)
    assert module is not None
    lines = requirements(REPOSITORY / f"{module.replace('.', '/')}.py")
    assert "==" in lines[0]
    assert any(each.startswith("psutil") for each in lines)  # what a run counts CPU with


def test_curves_have_five_points_each_and_their_picture_names_the_axes() -> None:
    numbers = json.loads((FOLDER / NUMBERS).read_text())
    assert {name: [point["at"] for point in curve["points"]] for name, curve in numbers.items()} == {
        name: [*curve.at] for name, curve in CURVES.items()
    }
    svg = picture(numbers)
    assert all(f">{curve.axis}</text>" in svg for curve in CURVES.values())


def test_a_run_costs_what_its_requests_and_its_task_cost() -> None:
    requests = {"PutObject": 8.0, "ListObjectsV2": 2.0, "GetObject": 5.0, "DeleteObject": 9.0}
    prices = Prices(put=1.0, get=0.1, stored_gb_month=2.0, cpu_hour=3600.0, memory_gb_hour=0.0, least_seconds=60.0)
    dollars = Cost(1000, requests, 0, 5e8, cpu_seconds=1.0, wall_seconds=2.0).dollars(prices)
    assert dollars == pytest.approx(
        {"requests": 10.5, "task_by_the_second": 2.0, "task_billed": 60.0, "stored_a_month": 1.0}
    )
    assert always_on(Prices(node_hour=1.0, nodes=3, kpu_hour=2.0, kpus=1)) == {"nodes": 2190.0, "managed_flink": 1460.0}


def test_repeated_events_are_the_same_events_later(tmp_path: Path) -> None:
    parameters = data.Events(rows=2000, keys=20, files=2)
    paths_once, more = paths(data.events(tmp_path, parameters)), paths(data.repeated(tmp_path, parameters, 3))
    assert len(more) == 6
    first, second = (pq.read_table(file) for file in (paths_once[0], more[2]))
    assert first.drop_columns("at").equals(second.drop_columns("at"))
    shifts = {
        new_time - old_time
        for old_time, new_time in zip(first["at"].to_pylist(), second["at"].to_pylist(), strict=True)
    }
    (span,) = shifts
    assert max(row for file in paths_once for row in pq.read_table(file)["at"].to_pylist()) - data_start() <= span


def data_start() -> datetime:
    return datetime.fromtimestamp(data.START / data.SECOND, UTC)


@pytest.mark.slow
@pytest.mark.parametrize("side", ["left", "right"])
def test_joins_are_those_of_a_query_over_all_files(side: str, tmp_path: Path) -> None:
    other = "right" if side == "left" else "left"
    shape = [
        f"--{other}",
        "2000",
        f"--new-{side}",
        "300",
        f"--new-{other}",
        "20",
        "--epochs",
        "2",
        "--executor",
        "local",
    ]
    shape += [f"--{side}", "200"]
    report = json.loads(run("joins", "--join", "as_of", *shape, "--format", "json", folder=tmp_path))
    assert report["agrees"] is True
    assert report["compared"]["ours"]["results"] > 100
    assert len(report["ours"]["epochs"][0]) == 2
