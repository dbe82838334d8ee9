"""Airflow's services inside its image, with command, user, variables, and memory as compose.yaml has them.

They come up healthy by their own health checks. A watcher in the triggerer starts a run in each of two roots when a
file lands. One is the root of the environment, whose bucket the triggerer may only read. The other is declared by
HEADRACE_ROOTS, with keys that an Airflow connection has. Code of users, which looks for Airflow's secrets while it is
parsed and while it runs, finds none. Other than in compose.yaml the database is SQLite, and all are on this machine's
loopback.
"""

import json
import re
import secrets
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Final

import tenacity

import headrace as hr
from headrace.ext.stores import reached_by
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store import open_store
from scripts import sessions
from scripts.airflow_api import AirflowApi, NotReadyError
from scripts.airflow_env import free_port
from scripts.image_container import CheckFailedError, Container, give, memory_of, new_folder, services
from scripts.images import REPOSITORY
from scripts.minio_server import Server, client
from scripts.nosy_code import NOSY

_LASTING: Final = ("airflow-api-server", "airflow-scheduler", "airflow-dag-processor", "airflow-triggerer")
_VARIABLE: Final = re.compile(r"\$\$|\$\{(\w+)(?::?[-?]([^}]*))?\}")
_ADMIN: Final = "AIRFLOW_ADMIN_PASSWORD"
_SECONDS: Final = 600.0
_ROOTS: Final = {"s3://headrace/root": "headrace_clicks_process", "s3://sales/root": "headrace_sales.clicks_process"}
_ROOTS_TOML: Final = '[[root]]\nname = "sales"\nuri = "s3://sales/root"\npipelines = ["sales"]\nstore = "sales_s3"\n'

_CLICKS: Final = """
from datetime import datetime
import headrace as hr

clicks = hr.Pipeline(
    "clicks",
    hr.json("landing/clicks", {"user": str, "at": datetime}).event_time("at", bound="1m"),
    key="user",
    what={"clicks": hr.count()},
    where=hr.FixedWindows("1m"),
    when=hr.on_update(),
    how=hr.retracting(allowed_lateness="1h"),
    executor="local",
    schedule=hr.on_files("2s"),
)
"""


@dataclass(frozen=True)
class _Deployment:
    """What stands for docker/.env, and for the addresses of compose.yaml on this machine."""

    values: Mapping[str, str]
    addresses: Mapping[str, str]
    more: Mapping[str, str]

    def environment(self, service: Mapping[str, Any]) -> dict[str, str]:
        """The variables of a service."""
        return {**{name: self.filled_in(str(value)) for name, value in service["environment"].items()}, **self.more}

    def filled_in(self, text: str) -> str:
        """``text`` of compose.yaml, as compose and this machine would have it."""
        text = _VARIABLE.sub(lambda match: self._value(match[1], match[2]), text)
        for name, address in self.addresses.items():
            text = text.replace(name, address)
        return text

    def _value(self, name: str | None, default: str | None) -> str:
        return "$" if name is None else self.values.get(name, default or "")


def check(spark: Container, airflow: Container, server: Server) -> None:
    """Raises CheckFailedError, or what waits in vain raises."""
    folder = new_folder(airflow.folder / "services")
    pipelines = airflow.folder / "pipelines-of-services"
    (pipelines / "sales").mkdir(parents=True)
    for place in (pipelines, pipelines / "sales"):
        (place / "clicks.py").write_text(_CLICKS + NOSY.format(seen=f"/data/{folder.name}/seen"))
    (pipelines / "roots.toml").write_text(_ROOTS_TOML)
    give(pipelines)
    database = f"sqlite:////data/{folder.name}/{_make_mark()}/../airflow.db?timeout=30"
    (folder / database.split("/")[-3]).mkdir()
    deployment = _deployment(server, database)
    services_by_name = services()
    spark.run("headrace-make-bucket", **deployment.environment(services_by_name["bucket"]))
    client(server).make_bucket("sales")
    containers = {
        name: replace(airflow, pipelines=pipelines, memory=memory_of(service))
        for name, service in services_by_name.items()
        if name.startswith("airflow-")
    }
    migration = services_by_name["airflow-migration"]
    containers["airflow-migration"].run(*migration["command"], **deployment.environment(migration))
    with ExitStack() as running:
        for name in _LASTING:
            service, log = services_by_name[name], airflow.folder / f"{name}.log"
            process = containers[name].start(*service["command"], log=log, **deployment.environment(service))
            running.callback(sessions.end, process, politely=10)
            if name == "airflow-api-server":  # others wait for it, as in compose.yaml
                _until_healthy(containers[name], service, deployment)
        for name in _LASTING[1:]:
            _until_healthy(containers[name], services_by_name[name], deployment)
        api = AirflowApi(deployment.filled_in("http://airflow-api-server:8080"), "admin", deployment.values[_ADMIN])
        running.callback(api.close)
        _check_watchers(api, server)
    seen_lines = {*(folder / "seen").read_text().splitlines()}
    if seen_lines != {"parses 0", "runs 0"}:
        raise CheckFailedError(
            f"code of users finds Airflow's secrets, or was not run: {', '.join(sorted(seen_lines))}"
        )
    print("Airflow's services are healthy, watch two roots, and keep their secrets")


def _deployment(server: Server, database: str) -> _Deployment:
    """Secrets as docker/start makes them, with a mark by which they can be found in memory."""
    example = (REPOSITORY / "docker" / ".env.example").read_text()
    values = {name: secrets.token_hex(20) for name in re.findall(r"^(\w+)=$", example, re.MULTILINE)}
    values |= {name: _make_mark() for name in ("AIRFLOW_API_SECRET", "AIRFLOW_JWT_SECRET")}
    values["AIRFLOW_FERNET_KEY"] = f"{_make_mark()}{'A' * 10}="
    values |= {"MINIO_ROOT_USER": server.access_key, "MINIO_ROOT_PASSWORD": server.secret_key}
    values["HEADRACE_ROOTS"] = "/pipelines/roots.toml"
    port, health = str(free_port()), str(free_port())
    addresses = {
        "http://minio:9000": server.endpoint,
        '"host": "airflow-api-server", "port": 8080': f'"host": "127.0.0.1", "port": {port}',
        "airflow-api-server:8080": f"127.0.0.1:{port}",
        "localhost:8080": f"127.0.0.1:{port}",
        "127.0.0.1:8080": f"127.0.0.1:{port}",
        "localhost:8974": f"127.0.0.1:{health}",
    }
    more = {
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database,
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": port,
        "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_SERVER_PORT": health,
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(free_port()),
        "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(free_port()),
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "5",
    }
    return _Deployment(values, addresses, more)


def _make_mark() -> str:
    return f"confined-{secrets.token_hex(12)}"


def _until_healthy(container: Container, service: Mapping[str, Any], deployment: _Deployment) -> None:
    """Wait until the health check of a service succeeds, run where it runs."""
    how, *words = service["healthcheck"]["test"]
    words = [deployment.filled_in(word) for word in words]
    command = ["sh", "-c", words[0]] if how == "CMD-SHELL" else words
    for attempt in _patiently(CheckFailedError):
        with attempt:
            container.run(*command, **deployment.environment(service))


def _check_watchers(api: AirflowApi, server: Server) -> None:
    """A file that lands starts a run in each root, once the DAG is not paused and its keys are there."""
    extra = {"endpoint_url": server.endpoint, "region_name": "us-east-1"}
    keys = {"conn_type": "aws", "login": server.access_key, "password": server.secret_key, "extra": json.dumps(extra)}
    api.add_connection("sales_s3", **keys)
    for root, dag in _ROOTS.items():
        api.wait_for_dag(dag, _SECONDS)
        api.pause(dag, is_paused=False)
        with reached_by(server.environment()):
            click = {"user": "ada", "at": "2026-11-20T00:00:00Z"}
            open_store(root).write("landing/clicks/a.jsonl", f"{json.dumps(click)}\n".encode())
    for root, dag in _ROOTS.items():
        for attempt in _patiently(NotReadyError):
            with attempt, reached_by(server.environment()):
                if "published" not in Catalog(open_store(root), "clicks").head().refs:
                    raise NotReadyError(f"nothing is published in {root}; runs of {dag}: {api.runs(dag)}")
        with reached_by(server.environment()):
            rows = hr.open(root)["clicks"].current().to_arrow().to_pylist()
        if [row["clicks"] for row in rows] != [1]:
            raise CheckFailedError(f"{root} has other rows than landed: {rows}")
    if errors := api.import_errors():
        raise CheckFailedError(f"DAG files have import errors: {errors}")


def _patiently(what: type[Exception]) -> tenacity.Retrying:
    return tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(what),
        stop=tenacity.stop_after_delay(_SECONDS),
        wait=tenacity.wait_fixed(1),
        reraise=True,
    )
