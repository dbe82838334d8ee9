"""The cluster that tests run on is a real one: separate workers, authenticated, on loopback, and it ends as a whole."""

import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
import tenacity

from tests.spark_cluster import LOOPBACK, Node, SparkCluster

pytestmark = [pytest.mark.spark, pytest.mark.slow]

JOB = """
import sys
from pathlib import Path

import pyarrow as pa
import tenacity
from pyspark import TaskContext
from pyspark.sql import SparkSession

folder = Path(sys.argv[1])


def hold(batches):
    '''Say that this task runs and on which worker, then wait until the test lets all tasks go.'''
    task = TaskContext.get()
    worker = next(part for part in Path.cwd().parts if part.startswith("worker-"))
    (folder / f"{task.partitionId()}.{worker}.{task.attemptNumber()}").touch()
    released = (folder / "go").exists
    tenacity.Retrying(
        retry=tenacity.retry_if_result(lambda there: not there),
        stop=tenacity.stop_after_delay(400),
        wait=tenacity.wait_fixed(0.05),
    )(released)
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"id": batch["id"], "worker": [worker] * len(batch)})


spark = SparkSession.builder.appName("smoke").config("spark.executor.memory", "512m").getOrCreate()
rows = spark.range(100, numPartitions=4).mapInArrow(hold, "id long, worker string").collect()
print("ids", sorted(row.id for row in rows) == list(range(100)))
print("workers", *sorted({row.worker for row in rows}), flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def end_of_cluster() -> Iterator[ExitStack]:
    """What ends the cluster, at the latest behind the last test."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, end_of_cluster: ExitStack) -> SparkCluster:
    """A master without workers, one for all tests here: its JVM takes seconds of a core. The last test ends it."""
    return end_of_cluster.enter_context(SparkCluster(tmp_path_factory.mktemp("cluster") / "cluster"))


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """The folder in which tasks leave a file when they start, and wait for one called ``go``."""
    folder = tmp_path / "tasks"
    folder.mkdir()
    return folder


def driver(cluster: SparkCluster, tasks: Path, defaults: Path | None = None) -> "subprocess.Popen[str]":
    """A job on the cluster; ``defaults`` replaces the file with all that a driver needs."""
    program = tasks.with_name("job.py")
    program.write_text(JOB)
    return subprocess.Popen(
        [sys.executable, program, tasks],
        env={
            **cluster.environment(),
            "PYSPARK_SUBMIT_ARGS": f"--properties-file {defaults or cluster.defaults} pyspark-shell",
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def running_on(tasks: Path) -> set[str]:
    """The workers on which tasks have started."""
    return {file.name.split(".")[1] for file in tasks.glob("*.worker-*")}


def wait_until(condition: Callable[[], bool]) -> None:
    tenacity.Retrying(
        retry=tenacity.retry_if_result(lambda is_there: not is_there),
        stop=tenacity.stop_after_delay(240),
        wait=tenacity.wait_fixed(0.1),
    )(condition)


def read_lines(job: "subprocess.Popen[str]") -> list[str]:
    """The two lines that a job prints; then it waits, and its executors with it."""
    assert job.stdout is not None
    assert job.stderr is not None
    lines = [job.stdout.readline().strip() for _ in range(2)]
    assert all(lines), job.stderr.read()[-8000:]
    return lines


def is_alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def listening(nodes: list[Node]) -> set[str]:
    """The addresses on which processes of ``nodes`` listen."""
    return {
        connection.laddr.ip.removeprefix("::ffff:")
        for node in nodes
        for process in node.family
        for connection in process.net_connections(kind="tcp")
        if connection.status == psutil.CONN_LISTEN
    }


def test_who_does_not_know_the_secret_is_turned_away(cluster: SparkCluster, tasks: Path) -> None:
    lines = [
        line for line in cluster.defaults.read_text().splitlines() if not line.startswith("spark.authenticate.secret")
    ]
    guessing_defaults = tasks.with_name("guessing.conf")
    guessing_defaults.write_text("\n".join([*lines, "spark.authenticate.secret guessed"]))
    job = driver(cluster, tasks, guessing_defaults)
    try:
        assert job.stderr is not None
        said_lines = next(
            (line for line in job.stderr if "Authentication failed" in line or "SaslException" in line), None
        )
        assert said_lines is not None
        assert not cluster.state()["activeapps"]
    finally:
        job.kill()
        job.communicate()


def test_a_job_survives_the_death_of_a_worker_uses_one_that_comes_and_leaves_nothing_behind(
    cluster: SparkCluster, end_of_cluster: ExitStack, tasks: Path
) -> None:
    first, second = cluster.add_workers(2)
    job = driver(cluster, tasks)
    try:
        wait_until(lambda: running_on(tasks) == {"worker-1", "worker-2"} or job.poll() is not None)
        assert listening(cluster.workers) == {LOOPBACK}
        (executor,) = cluster.executors(first)
        cluster.kill(first)
        assert not is_alive(executor)
        assert not first.family
        (third,) = cluster.add_workers(1)
        wait_until(lambda: "worker-3" in running_on(tasks) or job.poll() is not None)
        (tasks / "go").touch()
        assert read_lines(job) == ["ids True", "workers worker-2 worker-3"]
        cluster.stop(second)
        assert cluster.workers == [third]
        assert cluster.state()["aliveworkers"] == 1
        left = third.family
        assert len(left) > 2  # the worker, an executor, its Python
    finally:
        job.kill()
        job.communicate()
    end_of_cluster.close()
    assert not [process for process in left if is_alive(process)]
    assert stat.S_IMODE(cluster.defaults.stat().st_mode) == 0o600
