"""``python -m scripts.image_checks``: run real pipelines inside the images that ``scripts.images`` built.

No engine of containers is needed. Commands run in a chroot, on this machine's network, as the services of compose.yaml.
They run not as root, without capabilities, the image read-only, memory where it says. What is checked: both images give
the same results with both executors; Airflow finds the DAGs and no import error, and a DAG run publishes; Airflow's
services are healthy as compose.yaml has them, start runs where files land, and keep code of users from their secrets; a
master and workers of the one image run an application that the other submits, from and to MinIO as the user of the
bucket; a run reads a topic of Kafka where it is; nothing of this machine stayed in an image.
"""

import contextlib
import hashlib
import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import tenacity

from scripts import image_services, image_topic, minio_server, sessions
from scripts.airflow_env import free_port
from scripts.image_container import USER, CheckFailedError, Container, container, give, new_folder
from scripts.images import CERTIFICATES, NAMES, REPOSITORY, ImagesError, exists, image, require

PIPELINE = "/pipelines/flights_departures.py"
DAGS = "headrace_flights_departures"
BUCKET = "headrace"
_BUCKET_USERS = {"BUCKET_USER": "headrace", "BUCKET_READER": "headrace-reader"}
_SMALL = {"HEADRACE_DRIVER_MEMORY": "1g", "HEADRACE_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
_OF_THIS_MACHINE = ("proxy", "cert", "index_url", "find_links")
_LEFT_BY_A_BUILD = ("run/secrets/*", "root/.cache/*", "etc/pip.conf", "root/.config", "opt/uv", "opt/install.sh")


def check_results(containers: Sequence[Container]) -> None:
    """Both executors of all images give the same rows."""
    answers: dict[str, list[dict[str, Any]]] = {}
    for one in containers:
        for executor in ("local", "spark"):
            _say(f"{one.name}: a run by the executor {executor}")
            root = new_folder(one.folder / f"{one.name}-{executor}")
            _land(root.as_uri())
            where = {"HEADRACE_ROOT": f"file:///data/{root.name}", **_SMALL}
            one.run("headrace", "run", PIPELINE, "--executor", executor, **where)
            answers[f"{one.name}, {executor}"] = _rows(one, **where)
    _require_equal(answers)


def check_airflow(airflow: Container) -> None:
    """Airflow in the image finds the DAGs of the pipelines, and no import error; a run of one publishes its rows."""
    _say("Airflow's DAGs")
    home = new_folder(airflow.folder / "airflow")
    (home / "logs").mkdir()
    give(home)
    where = {"AIRFLOW_HOME": f"/data/{home.name}", "HEADRACE_PIPELINES": "/pipelines"}
    airflow.run("airflow", "db", "migrate", **where)
    airflow.run("airflow", "dag-processor", "--num-runs", "1", PYTHONPATH="/opt/headrace/isolation", **where)
    airflow.run("airflow", "dags", "list-import-errors", **where)  # fails when there are any
    output = airflow.run("airflow", "dags", "list", "--output", "json", **where)
    dags = {each["dag_id"] for each in json.loads(output.splitlines()[-1])}  # after what it logs
    missing = {f"{DAGS}_{kind}" for kind in ("process", "recover", "backfill")} - dags
    if missing:
        raise CheckFailedError(f"Airflow has no DAG {', '.join(sorted(missing))}; it has {', '.join(sorted(dags))}")
    _check_dag_run(airflow, where)


def _check_dag_run(airflow: Container, where: Mapping[str, str]) -> None:
    """The tasks of one DAG run in the image, beside its API server, by spark-submit as Airflow's connection says."""
    _say("a DAG run")
    root = new_folder(airflow.folder / "dag-run")
    _land(root.as_uri())
    port = free_port()
    variables = {
        **where,
        **_SMALL,
        "HEADRACE_ROOT": f"file:///data/{root.name}",
        "HEADRACE_LOGS": f"{where['AIRFLOW_HOME']}/logs/spark",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[1]"}),
    }
    log = airflow.folder / "api-server.log"
    address = ("--host", "127.0.0.1", "--port", str(port), "--workers", "1")
    server = airflow.start("airflow", "api-server", *address, log=log, **variables)
    try:
        _wait_for_airflow(server, log, port)
        airflow.run("airflow", "dags", "test", f"{DAGS}_process", **variables)  # fails when a task does
    finally:
        sessions.end(server)
    published_rows = _rows(airflow, ref="published", **variables)
    local = new_folder(airflow.folder / "beside-the-dag-run")
    _land(local.as_uri())
    local_variables = {"HEADRACE_ROOT": f"file:///data/{local.name}"}
    airflow.run("headrace", "run", PIPELINE, "--executor", "local", **local_variables)
    _require_equal(
        {"what a DAG run published": published_rows, "the executor local": _rows(airflow, **local_variables)}
    )


def check_services(spark: Container, airflow: Container) -> None:
    """Airflow's services as compose.yaml has them, with two roots in MinIO."""
    _say("Airflow's services, and MinIO")
    server = minio_server.start(airflow.folder / "minio-of-services")
    try:
        image_services.check(spark, airflow, server)
    finally:
        minio_server.stop(server)


def check_cluster(spark: Container, airflow: Container) -> None:
    """A master and two workers of the Spark image run what the Airflow image submits, with state in MinIO."""
    _say("a cluster, and MinIO")
    server = minio_server.start(spark.folder / "minio")
    try:
        passwords = {f"{user}_PASSWORD": secrets.token_hex(20) for user in _BUCKET_USERS}
        output = spark.run("headrace-make-bucket", BUCKET=BUCKET, **server.environment(), **_BUCKET_USERS, **passwords)
        print(output.strip())
        s3 = server.environment() | {
            "AWS_ACCESS_KEY_ID": _BUCKET_USERS["BUCKET_USER"],
            "AWS_SECRET_ACCESS_KEY": passwords["BUCKET_USER_PASSWORD"],
        }
        os.environ.update(s3)
        _land(f"s3://{BUCKET}/root")
        secret = {"SPARK_AUTH_SECRET": secrets.token_hex(32)}
        with contextlib.ExitStack() as running:
            master = _start_master(spark, secret, running)
            for number in (1, 2):
                _start_worker(spark, number, master, {**secret, **s3}, running)
            _wait_for_workers(master, 2)
            settings = (
                f"spark.master {master.url}\nspark.driver.host 127.0.0.1\nspark.driver.bindAddress 127.0.0.1\n"
                f"spark.executor.memory 512m\nspark.driver.memory 1g\nspark.ui.enabled false\n"
            )
            root = f"s3://{BUCKET}/root"
            application = ["process", "--pipeline", PIPELINE, "--root", root, "--run-id", "check"]
            environment = {**secret, **s3, "SPARK_DEFAULTS": settings}
            airflow.run(
                "spark-submit", "/opt/headrace/jobs/headrace/application/submit.py", *application, **environment
            )
            if not master.state()["completedapps"]:
                raise CheckFailedError(f"no application ran on the cluster: {master.state()}")
        rows = _rows(airflow, HEADRACE_ROOT=root, **s3)
    finally:
        minio_server.stop(server)
    local = new_folder(spark.folder / "beside-the-cluster")
    _land(local.as_uri())
    where = {"HEADRACE_ROOT": f"file:///data/{local.name}"}
    spark.run("headrace", "run", PIPELINE, "--executor", "local", **where)
    _require_equal({"the cluster": rows, "the executor local": _rows(spark, **where)})


def check_topic(spark: Container) -> None:
    """A run in the Spark image reads a topic where it is, without landing it."""
    _say(f"{spark.name}: a topic that is not landed")
    image_topic.check(spark, **_SMALL)


def check_kubernetes(spark: Container) -> None:
    """The command with which Spark on Kubernetes starts an executor gets as far as asking for its driver."""
    _say("an executor of Kubernetes")
    nobody = f"127.0.0.1:{free_port()}"
    variables = {
        "SPARK_JAVA_OPT_0": "-Dspark.ui.enabled=false",
        "SPARK_JAVA_OPT_1": "-Dspark.driver.port=1",
        "SPARK_EXECUTOR_MEMORY": "256m",
        "SPARK_DRIVER_URL": f"spark://CoarseGrainedScheduler@{nobody}",
        "SPARK_EXECUTOR_ID": "1",
        "SPARK_EXECUTOR_CORES": "1",
        "SPARK_APPLICATION_ID": "spark-check",
        "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_NAME": "check-1",
    }
    try:
        spark.run("executor", **variables)
    except CheckFailedError as error:
        if f"Failed to connect to /{nobody}" not in str(error):
            raise
    else:
        raise CheckFailedError("an executor without a driver ended as if all was well")


def check_traces(one: Container) -> None:
    """Nothing of this machine's network stayed in the image, and it runs as nobody in particular."""
    _say(f"{one.name}: traces of the build")
    if one.run("id", "-u").strip() != str(USER):
        raise CheckFailedError(f"{one.name} does not run as user {USER}")
    for place in ("/", "/opt/headrace", "/opt/headrace/.venv/bin", "/usr/local/bin"):
        if one.run("sh", "-c", 'touch "$0/new" 2>/dev/null && echo written || true', place):
            raise CheckFailedError(f"{one.name} can write to {place}")
    variables = [line.partition("=")[0].lower() for line in one.run("env").splitlines()]
    if mine := [name for name in variables if any(part in name for part in _OF_THIS_MACHINE)]:
        raise CheckFailedError(f"{one.name} sets {', '.join(mine)}")
    if left := [pattern for pattern in _LEFT_BY_A_BUILD if any(one.root.glob(pattern))]:
        raise CheckFailedError(f"{one.name} holds what belongs to a build: {', '.join(left)}")
    if CERTIFICATES.is_file() and _digest(one.root / CERTIFICATES.relative_to("/")) == _digest(CERTIFICATES):
        print(f"{one.name} has the same CA certificates as this machine: whether one came from here cannot be told")


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@dataclass(frozen=True)
class Master:
    """Where a master is."""

    port: int
    web_port: int
    processes: "dict[Path, subprocess.Popen[bytes]]" = field(default_factory=dict)
    """Its own and those of its workers, by their logs."""

    @property
    def url(self) -> str:
        """The master's URL for applications and workers."""
        return f"spark://127.0.0.1:{self.port}"

    def state(self) -> dict[str, Any]:
        """What it says of itself."""
        answer = httpx.get(f"http://127.0.0.1:{self.web_port}/json/", timeout=10)
        answer.raise_for_status()
        state: dict[str, Any] = answer.json()
        return state


def _start_master(spark: Container, variables: Mapping[str, str], running: contextlib.ExitStack) -> Master:
    master = Master(free_port(), free_port())
    ports = {"SPARK_MASTER_PORT": str(master.port), "SPARK_MASTER_WEBUI_PORT": str(master.web_port)}
    log = spark.folder / "master.log"
    master.processes[log] = spark.start("master", log=log, SPARK_MASTER_HOST="127.0.0.1", **ports, **variables)
    running.callback(sessions.end, master.processes[log])
    _wait_for_workers(master, 0)
    return master


def _start_worker(
    spark: Container, number: int, master: Master, variables: Mapping[str, str], running: contextlib.ExitStack
) -> None:
    own = new_folder(spark.folder / f"worker-{number}")
    log = spark.folder / f"worker-{number}.log"
    master.processes[log] = spark.start(
        "worker",
        log=log,
        SPARK_MASTER_URL=master.url,
        SPARK_WORKER_CORES="1",
        SPARK_WORKER_MEMORY="1g",
        SPARK_WORKER_WEBUI_PORT=str(free_port()),
        SPARK_WORKER_DIR=f"/data/{own.name}",
        SPARK_LOCAL_DIRS=f"/data/{own.name}",
        **variables,
    )
    running.callback(sessions.end, master.processes[log])


_PATIENTLY = tenacity.Retrying(
    retry=tenacity.retry_if_exception_type((httpx.HTTPError, ValueError, CheckFailedError)),  # no JSON while it starts
    stop=tenacity.stop_after_delay(300),
    wait=tenacity.wait_fixed(0.5),
    reraise=True,
)


@_PATIENTLY.wraps
def _wait_for_airflow(server: "subprocess.Popen[bytes]", log: Path, port: int) -> None:
    _require_running(server, log)
    httpx.get(f"http://127.0.0.1:{port}/api/v2/monitor/health", timeout=10).raise_for_status()


@_PATIENTLY.wraps
def _wait_for_workers(master: Master, number: int) -> None:
    for log, process in master.processes.items():
        _require_running(process, log)
    if (alive := master.state()["aliveworkers"]) != number:
        raise CheckFailedError(f"{alive} workers are alive, not {number}")


def _require_running(process: "subprocess.Popen[bytes]", log: Path) -> None:
    if process.poll() is not None:
        log_text = log.read_text(errors="replace")[-6000:]
        raise ImagesError(f"{log.name}: it ended with {process.returncode}\n{log_text}")


def _land(root: str) -> None:
    options = ["--root", root, "--instalment", "1", "--of", "20", "--files", "40"]
    subprocess.run([sys.executable, "-m", "scripts.land_flights", *options], cwd=REPOSITORY, check=True)
    if root.startswith("file://"):
        give(Path(root.removeprefix("file://")))


def _rows(one: Container, ref: str = "main", **variables: str) -> list[dict[str, Any]]:
    """All that was processed, published or not (or what stands at ``ref``), in an order of its own."""
    output = one.run("headrace", "read", PIPELINE, "--at", ref, "--format", "json", **variables)
    rows: list[dict[str, Any]] = json.loads(output)
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


def _require_equal(answers: Mapping[str, list[dict[str, Any]]]) -> None:
    (first, expected), *others = answers.items()
    if not expected:
        raise CheckFailedError(f"{first} gave no rows")
    for name, rows in others:
        if rows != expected:
            raise CheckFailedError(f"{name} gave other rows than {first}: {len(rows)} and {len(expected)}")
    print(f"the same {len(expected)} rows: {'; '.join(answers)}")


def _say(what: str) -> None:
    print(f"checking {what}", file=sys.stderr, flush=True)


def main() -> int:
    """Exit code 0 when all checks pass."""
    try:
        require("buildah")
        if missing := [image(name) for name in NAMES if not exists(image(name))]:
            raise ImagesError(f"there is no image {' and no '.join(missing)}: run `make images`")
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-images-")))
            give(folder)
            spark, airflow = (stack.enter_context(container(name, folder)) for name in NAMES)
            for one in (spark, airflow):
                check_traces(one)
            check_kubernetes(spark)
            check_topic(spark)
            check_airflow(airflow)
            check_services(spark, airflow)
            check_results((spark, airflow))
            check_cluster(spark, airflow)
    except (ImagesError, minio_server.MinioUnavailableError) as error:
        print(error, file=sys.stderr)
        return 1
    print("the images do what they are for")
    return 0


if __name__ == "__main__":
    sys.exit(main())
