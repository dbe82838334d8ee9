"""The benchmarks run, on tiny data, and both sides come to the same results. What they measure is no matter here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import data

REPOSITORY = Path(__file__).resolve().parents[2]


def run(module: str, *arguments: str, folder: Path) -> str:
    """Standard output of a benchmark."""
    common = ["--repeats", "1", "--cores", "1", "--memory", "1g", "--folder", str(folder)]
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments, *common]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_same_parameters_give_the_same_events(tmp_path: Path) -> None:
    parameters = data.Events(rows=3000, keys=50, files=4)
    first, second = (data.events(tmp_path / name, parameters) for name in ("one", "two"))
    assert [path.read_bytes() for path in data.paths(first)] == [path.read_bytes() for path in data.paths(second)]
    assert len(data.paths(first)) == 4


@pytest.mark.spark
def test_throughput_compares_itself_with_structured_streaming(tmp_path: Path) -> None:
    shape = ["--workload", "sessions", "--rows", "3000", "--keys", "100", "--epochs", "2"]
    report = json.loads(run("throughput", *shape, "--format", "json", folder=tmp_path))
    assert report["agrees"] is True
    assert report["compared"]["ours"]["results"] > 100
    assert report["ratio"]["min"] <= report["ratio"]["median"] <= report["ratio"]["max"]
    assert len(report["ours"]["epochs"][0]) == len(report["peer"]["epochs"][0]) == 2
    assert report["ours"]["cpu_seconds"][0] > 0
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


@pytest.mark.spark
def test_throughput_compares_itself_with_the_plain_query(tmp_path: Path) -> None:
    shape = ["--workload", "sliding", "--rows", "3000", "--keys", "100", "--epochs", "2", "--against", "spark_batch"]
    text = run("throughput", *shape, "--format", "text", folder=tmp_path)
    assert "sliding ours" in text
    assert "sliding spark_batch" in text
    assert "agrees" in text


@pytest.mark.spark
def test_epochs_without_data_with_live_keys(tmp_path: Path) -> None:
    report = json.loads(run("empty_epoch", "--keys", "100", "--epochs", "2", "--format", "json", folder=tmp_path))
    (entry,) = report["results"]
    assert entry["agrees"] is True
    assert entry["compared"]["ours"]["results"] == 100
    assert entry["ours"]["extra"][0]["idle_run_seconds"] > 0
