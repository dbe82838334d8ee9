"""What docker/compose.yaml describes, started from packages: PostgreSQL, MinIO, a Spark master, two workers, Airflow.

One DAG run goes through all of it, to a commit and a publish.

On a machine without PostgreSQL Airflow keeps its SQLite, and the test's name says so.
"""

import json
import runpy
import secrets
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import headrace as hr
from headrace.ext.stores import open_store
from headrace_airflow import processes
from scripts.airflow_env import LocalAirflow
from scripts.minio_server import Server, find_or_build, start, stop
from scripts.postgres_server import Postgres, binaries
from tests.airflow.subprocesses import write_pipeline
from tests.reading import read
from tests.spark_cluster import SparkCluster
from tests.tooling.test_bucket_users import PASSWORDS, USERS, make_bucket
from tests.tooling.test_compose import DOCKER

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3, pytest.mark.slow, pytest.mark.topology]

ROOT = "s3://headrace/root"
START = datetime(2026, 11, 20, tzinfo=UTC)
MINUTES = 10
DATABASE = "PostgreSQL" if binaries() else "SQLite: no PostgreSQL here"


@pytest.fixture
def minio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A MinIO with the bucket, and the keys of the user who may use it, which this process has and hands on."""
    find_or_build()
    server = start(tmp_path / "minio")
    try:
        bucket = make_bucket(server)
        assert bucket.returncode == 0, bucket.stderr
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", USERS["BUCKET_USER"])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", PASSWORDS["BUCKET_USER_PASSWORD"])
        yield server
    finally:
        stop(server)


@pytest.fixture
def cluster(tmp_path: Path, minio: Server) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path / "cluster") as started_cluster:
        started_cluster.add_workers(2)
        yield started_cluster


@pytest.fixture
def postgres() -> Iterator[Postgres | None]:
    with Postgres(secrets.token_hex(16)) if binaries() else nullcontext() as database:
        yield database


@pytest.fixture
def airflow(tmp_path: Path, cluster: SparkCluster, postgres: Postgres | None) -> Iterator[LocalAirflow]:
    """An Airflow with one pipeline, whose applications go to the cluster."""
    folder = tmp_path / "pipelines"
    folder.mkdir()
    write_pipeline(folder, "clicks")
    environment = {
        "SPARK_CONF_DIR": str(cluster.defaults.parent),
        **{name: cluster.environment()[name] for name in ("SPARK_LOCAL_IP", "PYSPARK_PYTHON")},
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": cluster.url}),
        "HEADRACE_PIPELINES": str(folder),
        "HEADRACE_DRIVER_MEMORY": "1g",
        **({"PYTHONPATH": str(DOCKER)} if processes.can_confine() else {}),  # as in the compose file
        **({"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": postgres.url} if postgres else {}),
    }
    local = LocalAirflow(tmp_path / "airflow", ROOT, environment)
    try:
        local.start()
        yield local
    finally:
        local.stop()


@pytest.mark.parametrize("database", [DATABASE])
def test_a_dag_run_commits_and_publishes(
    database: str, airflow: LocalAirflow, cluster: SparkCluster, postgres: Postgres | None, tmp_path: Path
) -> None:
    times = [START + timedelta(minutes=minute) for minute in range(MINUTES)]
    for number, part in enumerate((times[:6], times[6:])):
        lines = "".join(json.dumps({"user": "ada", "at": time.isoformat()}) + "\n" for time in part)
        open_store(ROOT).write(f"landing/clicks/part-{number}.jsonl", lines.encode())

    dag = "headrace_clicks_process"
    airflow.api.wait_for_dag(dag, 120)
    ended_wait = airflow.api.wait_for_run(dag, airflow.api.trigger(dag), 600)
    log = "\n".join(airflow.api.log(dag, ended_wait.run_id, "process"))
    assert set(ended_wait.tasks.values()) == {"success"}, log

    catalog = hr.open(ROOT)["clicks"].catalog
    refs = catalog.head().refs
    assert refs["published"] == refs["main"]
    (event,) = airflow.api.asset_events(dag, ended_wait.run_id)
    assert event["snapshot"] == refs["published"]
    clicks = runpy.run_path(str(tmp_path / "pipelines" / "clicks.py"))["clicks"]
    rows = read(clicks, ROOT).to_pylist()
    assert sorted((row["window_start"], row["clicks"]) for row in rows) == [(time, 1) for time in times]

    state = cluster.state()
    assert [application["state"] for application in state["completedapps"]] == ["FINISHED"]
    assert [worker["coresused"] for worker in state["workers"]] == [0, 0]
    if postgres is not None:
        assert postgres.rows("select dag_id, state from dag_run") == [(dag, "success")]
    assert (postgres is None) is database.startswith("SQLite")
