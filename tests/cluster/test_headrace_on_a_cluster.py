"""Headrace on a real standalone cluster over MinIO: workers come, go and die, caches are lost, and the numbers stay.

The keys of the store are in the driver's environment alone: executors get them with their tasks.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
import tenacity

import headrace as hr
from headrace.ext.stores import open_store
from headrace_lab.catalog_checks import check_catalog
from scripts.minio_server import Server, client, find_or_build, start, stop
from tests.process.clicks import CLICKS, records, truth
from tests.reading import read
from tests.spark_cluster import SparkCluster

pytestmark = [pytest.mark.spark, pytest.mark.s3, pytest.mark.slow]

REPOSITORY = Path(__file__).parents[2]
CLICKS_FILE = f"{REPOSITORY}/tests/process/clicks.py:clicks"

NUMBERS = """
from pyspark.sql import functions as f

from words import PARITY

class Numbers:
    def __init__(self, session):
        self.session = session

    def ends(self, begin):
        return ["1000"]

    def read(self, begin, end):
        parity = f.udf(lambda number: PARITY[number % 2], "string")
        at = f.timestamp_seconds(f.lit(1_777_777_777) + f.col("id"))
        numbers = self.session.spark.range(int(begin or 0), int(end), 1, 3)
        return numbers.select(parity("id").alias("is"), at.alias("at"))
"""

NUMBERS_FILE = """
from datetime import datetime

import headrace as hr

numbers = hr.Pipeline(
    "numbers",
    hr.spark_source("numbers_read:Numbers", {"is": str, "at": datetime}).event_time("at", bound="1h"),
    key="is",
    what={"n": hr.count()},
    where=hr.FixedWindows("1d"),
    when=hr.on_update(),
)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A MinIO with a bucket."""
    find_or_build()
    result = start(tmp_path_factory.mktemp("cluster") / "minio")
    client(result).make_bucket("tests")
    try:
        yield result
    finally:
        stop(result)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A cluster with two workers, which are started without the keys of the store and have a cache each."""
    with (
        pytest.MonkeyPatch.context() as patch,
        SparkCluster(tmp_path_factory.mktemp("cluster") / "cluster") as started_cluster,
    ):
        for name in _of_this_process():
            patch.delenv(name)
        started_cluster.add_workers(2)
        yield started_cluster


@pytest.fixture
def cluster(tmp_path: Path, server: Server, nodes: SparkCluster, monkeypatch: pytest.MonkeyPatch) -> SparkCluster:
    """This process has the keys, and what it starts as a driver."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    return nodes


def _of_this_process() -> list[str]:
    return [name for name in os.environ if name.startswith("AWS_") or name == "HEADRACE_CACHE"]


@pytest.fixture
def root(request: pytest.FixtureRequest) -> str:
    return f"s3://tests/{request.node.name}"


def land(root: str, first: int, last: int) -> None:
    for file in range(first, last):
        lines = "".join(json.dumps(record) + "\n" for record in records(file))
        open_store(root).write(f"landing/clicks/part-{file:05d}.jsonl", lines.encode())


def driver(
    cluster: SparkCluster, root: str, run_id: str, tasks: int, pipeline: str = CLICKS_FILE
) -> "subprocess.Popen[str]":
    command = [
        *cluster.submit,
        "--conf",
        "spark.executor.memory=512m",
        REPOSITORY / "jobs/headrace/application/submit.py",
        "process",
    ]
    command += ["--pipeline", pipeline, "--root", root, "--run-id", run_id]
    return subprocess.Popen(
        [*command, "--executor", "spark"],
        env={**cluster.environment(), "HEADRACE_TASKS": str(tasks)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_for_output(job: "subprocess.Popen[str]") -> str:
    try:
        text, _ = job.communicate(timeout=300)
    finally:
        job.kill()
    assert job.returncode == 0, text[-8000:]
    return text


def epoch(root: str) -> int:
    """The last that is committed, -1 if none is."""
    catalog = hr.open(root, create=True)[CLICKS].catalog
    head = catalog.head().refs.get("main")
    return -1 if head is None else catalog.manifest(head).epoch


def current(root: str) -> dict[tuple[str, datetime], tuple[int, int]]:
    rows = read(CLICKS, root, "current", "main").to_pylist()
    return {(row["user"], row["window_start"]): (row["clicks"], row["spent"]) for row in rows}


def test_workers_land_what_a_source_reads_with_code_that_they_do_not_have(
    cluster: SparkCluster, server: Server, root: str, tmp_path: Path
) -> None:
    (tmp_path / "numbers_read.py").write_text(NUMBERS)
    (tmp_path / "words.py").write_text('PARITY = ("even", "odd")\n')
    (tmp_path / "numbers.py").write_text(NUMBERS_FILE)
    job = driver(cluster, root, "landing", tasks=2, pipeline=str(tmp_path / "numbers.py"))
    assert server.secret_key not in wait_for_output(job)
    rows = hr.open(root)["numbers"].read("current", at="main").to_json()
    assert {row["is"]: row["n"] for row in rows} == {"even": 500, "odd": 500}
    written_paths = [info.path for info in open_store(root).list("numbers/landed/source/_written/")]
    assert len(written_paths) == 3
    check_catalog(open_store(root), "numbers")


def test_workers_go_on_with_what_others_left_and_one_may_die_in_the_middle(
    cluster: SparkCluster, server: Server, root: str
) -> None:
    land(root, 0, 5)
    job = driver(cluster, root, "two", tasks=2)
    try:
        tenacity.Retrying(
            retry=tenacity.retry_if_result(lambda is_reached: not is_reached),
            stop=tenacity.stop_after_delay(240),
            wait=tenacity.wait_fixed(0.2),
        )(lambda: epoch(root) >= 1 or job.poll() is not None)
        cluster.kill(cluster.workers[0])
        killed_at = epoch(root)
    finally:
        output = wait_for_output(job)
    assert 1 <= killed_at < 4
    assert epoch(root) == 4
    assert current(root) == truth(5)
    assert server.secret_key not in output
    cluster.stop(cluster.workers[0])
    cluster.add_workers(1)  # its cache is empty
    land(root, 5, 7)
    wait_for_output(driver(cluster, root, "another", tasks=3))
    assert current(root) == truth(7)
    check_catalog(open_store(root), CLICKS.name)
    logs = "".join(file.read_text(errors="replace") for file in cluster.folder.rglob("stderr"))
    assert server.secret_key not in logs
