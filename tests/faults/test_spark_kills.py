"""Runs on Spark that lose a process some time after their first commit: the driver, its JVM or a Python worker; on a
standalone cluster an executor, or a worker with all that runs on it.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

import headrace as hr
from headrace.ext.stores import open_store
from headrace_lab.catalog_checks import check_catalog
from tests.faults.scenarios import PIPELINES, land, results
from tests.faults.works import drain
from tests.spark_cluster import SparkCluster

pytestmark = [pytest.mark.slow, pytest.mark.spark]
KILLS = int(os.environ.get("HEADRACE_SPARK_KILLS", "2"))
SEED = os.environ.get("HEADRACE_KILLS_SEED", "1")
SECONDS = 300.0
LASTS = 1.5
"""Seconds after the first commit: kills come until then."""

DRIVER = """
import sys
from headrace.runs.options import RunOptions
from headrace.runs.process import process
from tests.faults.scenarios import PIPELINES
process(PIPELINES[sys.argv[1]], sys.argv[2], RunOptions("run", executor="spark", publish=True))
"""
ON_THIS_MACHINE = ("java", "spark.daemon", "driver")
"""Words of the command lines of processes below the driver; where there is none, it is the driver."""
ON_A_CLUSTER = ("executor", "worker")
KINDS = (*ON_THIS_MACHINE, *ON_A_CLUSTER)
PATH = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
SUBMIT_OPTIONS = ("--conf", "spark.executor.memory=512m")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster | None]:
    """One with two workers, if so many kills need it."""
    if len(ON_THIS_MACHINE) >= KILLS:
        yield None
        return
    with SparkCluster(tmp_path_factory.mktemp("cluster") / "nodes", {"PYTHONPATH": PATH}) as nodes:
        nodes.add_workers(2)
        yield nodes


def start_run(name: str, root: Path, cluster: SparkCluster | None) -> "subprocess.Popen[bytes]":
    """A run in a session of its own, on ``cluster`` or on this machine."""
    file = root.with_suffix(".py")
    file.write_text(DRIVER)
    program = [sys.executable] if cluster is None else [*cluster.submit, *SUBMIT_OPTIONS]
    environment = {**os.environ} if cluster is None else cluster.environment()
    with root.with_suffix(".log").open("wb") as log:
        return subprocess.Popen(
            [*program, file, name, root.as_uri()],
            env={**environment, "PYTHONPATH": PATH, "SPARK_LOCAL_DIRS": str(root.with_suffix(".spark"))},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def wait_for_a_commit(name: str, root: Path, running: "subprocess.Popen[bytes]") -> None:
    catalog, deadline = hr.open(root.as_uri(), create=True)[PIPELINES[name]].catalog, time.monotonic() + SECONDS
    while "main" not in catalog.head().refs:
        assert running.poll() is None, root.with_suffix(".log").read_text()[-3000:]
        assert time.monotonic() < deadline, "no epoch was committed in time"
        time.sleep(0.02)  # polls a condition with a deadline


def words(process: psutil.Process) -> str:
    """How its command line begins; nothing if it has just ended."""
    try:
        return " ".join(process.cmdline()[:4])
    except psutil.Error:
        return ""


def kill(kind: str, running: "subprocess.Popen[bytes]", cluster: SparkCluster | None) -> None:
    """Kill a process of that kind, if the run has not ended by now."""
    if running.poll() is not None:
        return
    if cluster is None:
        driver = psutil.Process(running.pid)
        victims = [process for process in driver.children(recursive=True) if kind in words(process)]
        (victims or [driver])[-1].kill()
    elif kind == "executor":
        cluster.kill_executors(cluster.workers[0])
    else:
        cluster.kill(cluster.workers[0])


def test_kills_on_spark(cluster: SparkCluster | None, tmp_path: Path) -> None:
    dice = random.Random(SEED)
    for number in range(KILLS):
        name, kind = dice.choice([*PIPELINES]), KINDS[number % len(KINDS)]
        nodes = cluster if kind in ON_A_CLUSTER else None
        root, undisturbed_root = tmp_path / f"{number}", tmp_path / f"{number} undisturbed"
        for folder in (root, undisturbed_root):
            land(folder)
        drain(PIPELINES[name], undisturbed_root.as_uri())
        running = start_run(name, root, nodes)
        try:
            wait_for_a_commit(name, root, running)
            time.sleep(dice.random() * LASTS)  # the random time
            kill(kind, running, nodes)
            running.wait(SECONDS)
        finally:
            with suppress(ProcessLookupError):  # nothing of it is left
                os.killpg(running.pid, signal.SIGKILL)
            running.wait()
        print(f"kill {number}: {name}, {kind}; the run ended with {running.returncode}")
        if nodes is not None:
            assert running.returncode == 0, "the cluster has another worker"
            nodes.add_workers(2 - len(nodes.workers))
        drain(PIPELINES[name], root.as_uri())
        assert results(PIPELINES[name], root.as_uri()) == results(PIPELINES[name], undisturbed_root.as_uri()), (
            name,
            kind,
        )
        check_catalog(open_store(root.as_uri()), name)
