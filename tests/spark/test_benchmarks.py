"""Benchmarks against Spark's own ways come to the same results, on tiny data. Each peer is a session of the tests' JVM.
That each side has a process of its own is tested in ``tests/tooling/test_benchmarks.py``.
"""

import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks import comparison, ours, peers, restart
from benchmarks.runs import Measured, Run
from benchmarks.workloads import Side
from headrace.state.file_cache import default_cache

pytestmark = pytest.mark.spark
_PROCESS_MEASURED = comparison.measured

Command = Callable[..., str]
"""Runs a benchmark of that name by its arguments: what it prints."""


@pytest.fixture(autouse=True)
def peer_sessions(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A peer's session has its settings of SQL, and its end ends no JVM."""

    def start_session(run: Run) -> SparkSession:
        session = spark.newSession()
        streaming = peers.STREAMING if run.side is Side.STRUCTURED_STREAMING else {}
        for name, value in {**peers.CONF, **streaming, "spark.sql.shuffle.partitions": str(run.cores)}.items():
            if name.startswith("spark.sql."):
                session.conf.set(name, value)
        monkeypatch.setattr(session, "stop", lambda: None)
        return session

    monkeypatch.setattr(peers, "session", start_session)
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """In this process, both sides with it."""
    monkeypatch.setattr(comparison, "measured", _measure_here)

    def run(module: str, *arguments: str) -> str:
        common = ["--repeats", "1", "--cores", "1", "--memory", "1g", "--folder", str(tmp_path), "--executor", "local"]
        monkeypatch.setattr(sys, "argv", [module, *arguments, *common])
        import_module(f"benchmarks.{module}").main()
        return capsys.readouterr().out

    return run


def _measure_here(run: Run) -> Measured:
    run.work.mkdir(parents=True, exist_ok=True)
    side = ours if run.side is Side.OURS else peers
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADRACE_CACHE", str(run.cache))
        default_cache.cache_clear()  # a process has one for all its runs, and this one other tests after it
        try:
            run_figures: Measured = side.measure(replace(run, launched=time.time()))
        finally:
            default_cache.cache_clear()
        return run_figures


def test_throughput_compares_itself_with_the_plain_query(command: Command) -> None:
    shape = ["--workload", "sliding", "--rows", "3000", "--keys", "100", "--epochs", "2", "--against", "spark_batch"]
    text = command("throughput", *shape, "--format", "text")
    assert "sliding ours" in text
    assert "sliding spark_batch" in text
    assert "agrees" in text


def test_epochs_without_data_with_live_keys(command: Command) -> None:
    shape = ["--workload", "newest", "--keys", "100", "--epochs", "2"]
    (entry,) = json.loads(command("empty_epoch", *shape, "--format", "json"))["results"]
    assert entry["agrees"] is True
    assert entry["compared"]["ours"]["results"] == 100
    assert entry["ours"]["extra"][0]["idle_run_seconds"] > 0


def test_a_restart_goes_on_from_what_the_process_before_left(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure_ours_apart(run: Run) -> Measured:
        return _PROCESS_MEASURED(run) if run.side is Side.OURS else _measure_here(run)

    monkeypatch.setattr(restart, "measured", measure_ours_apart)
    shape = ["--keys", "300", "--changed", "20", "--caches", "empty"]
    (entry,) = json.loads(command("restart", *shape, "--format", "json"))["results"]
    assert entry["agrees"] is True
    assert entry["compared"]["ours"]["results"] == 300
    assert entry["compared"]["ours"]["sum_of_payments"] == "320"
    assert len(entry["ours"]["epochs"][0]) == len(entry["peer"]["epochs"][0]) == 1
    (told_extra,) = entry["ours"]["extra"]
    assert 0 < told_extra["claim_to_restored_seconds"] < told_extra["start_to_restored_seconds"]
    assert told_extra["start_to_restored_seconds"] < entry["ours"]["first_commit_seconds"][0]
    assert len(entry["ours"]["first_commit_seconds"]) == len(entry["peer"]["first_commit_seconds"]) == 1


def test_joins_of_an_interval_are_those_of_structured_streaming(command: Command) -> None:
    shape = ["--right", "2000", "--new-left", "300", "--epochs", "2"]
    report = json.loads(command("joins", *shape, "--format", "json"))
    assert report["agrees"] is True
    assert report["compared"]["ours"]["results"] > 100
    assert len(report["ours"]["epochs"][0]) == len(report["peer"]["epochs"][0]) == 2
