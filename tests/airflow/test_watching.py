"""A real Airflow whose runs start by themselves when files land: under two roots on MinIO, each with a user of its own,
whose keys an Airflow connection has. No process of Airflow has keys in its environment.
"""

import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest
from minio import MinioAdmin
from minio.credentials import StaticProvider
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

import headrace as hr
from headrace.ext.stores import reached_by
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store import open_store
from scripts import minio_server
from scripts.airflow_api import AirflowApi
from scripts.airflow_env import LocalAirflow
from tests.airflow.runs import SELDOM
from tests.airflow.subprocesses import write_pipeline
from tests.airflow.test_secrets import all_of
from tests.distributions import write_distribution
from tests.sources.test_conformance import DISTRIBUTION_FOLDER, DailyWorld

pytestmark = [pytest.mark.airflow, pytest.mark.s3]
T = TypeVar("T")

_SECONDS = 300
_SALES = "headrace://sales.clicks/landed"


@dataclass(frozen=True)
class WatchedRoot:
    """A root with the pipeline ``clicks``, which ``dag`` processes, and the keys of its user."""

    uri: str
    dag: str
    keys: Mapping[str, str]

    def use_credentials(self) -> AbstractContextManager[None]:
        """Inside, this process opens stores as the user of the root."""
        return reached_by(self.keys)

    def land(self, name: str, minute: int) -> None:
        """One file with one click."""
        moment = datetime(2026, 11, 20, tzinfo=UTC) + timedelta(minutes=minute)
        line = json.dumps({"user": "ada", "at": moment.isoformat()})
        with self.use_credentials():
            open_store(self.uri).write(f"landing/clicks/{name}.jsonl", f"{line}\n".encode())

    def ref(self, name: str) -> str | None:
        """The snapshot of that name."""
        with self.use_credentials():
            return Catalog(open_store(self.uri), "clicks").head().refs.get(name)

    def clicks(self) -> int:
        """How many clicks readers see."""
        if self.ref("published") is None:
            return 0
        with self.use_credentials():
            return int(hr.open(self.uri)["clicks"].current().to_arrow()["clicks"].to_pandas().sum())

    def connection(self) -> dict[str, str]:
        """The Airflow connection of its store."""
        login, password = self.keys["AWS_ACCESS_KEY_ID"], self.keys["AWS_SECRET_ACCESS_KEY"]
        extra = {"endpoint_url": self.keys["AWS_ENDPOINT_URL"], "region_name": self.keys["AWS_REGION"]}
        return {"conn_type": "aws", "login": login, "password": password, "extra": json.dumps(extra)}


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[WatchedRoot, WatchedRoot]]:
    """The root of the environment, and the root ``sales``: a bucket and a user of MinIO each."""
    server = minio_server.start(tmp_path_factory.mktemp("buckets") / "minio")
    try:
        admin = MinioAdmin(
            endpoint=server.endpoint.removeprefix("http://"),
            credentials=StaticProvider(server.access_key, server.secret_key),
            secure=False,
        )
        made_roots = []
        for name, dag in (("clicks", "headrace_clicks_process"), ("sales", "headrace_sales.clicks_process")):
            minio_server.client(server).make_bucket(name)
            secret = secrets.token_hex(20)
            admin.user_add(name, secret)
            admin.policy_add(name, policy=all_of(name))
            admin.policy_set(name, user=name)
            keys = {**server.environment(), "AWS_ACCESS_KEY_ID": name, "AWS_SECRET_ACCESS_KEY": secret}
            made_roots.append(WatchedRoot(f"s3://{name}/root", dag, keys))
        yield made_roots[0], made_roots[1]
    finally:
        minio_server.stop(server)


@pytest.fixture(scope="module")
def own(roots: tuple[WatchedRoot, WatchedRoot]) -> WatchedRoot:
    """The root of the environment."""
    return roots[0]


@pytest.fixture(scope="module")
def sales(roots: tuple[WatchedRoot, WatchedRoot]) -> WatchedRoot:
    """The root ``sales``, whose connection nobody has made."""
    return roots[1]


_PIPELINE_FILE = """
from datetime import datetime
import headrace as hr
from acme_headrace.daily_table import DailyTable

said = hr.Pipeline(
    "said",
    DailyTable({database!r}, "said", {{"text": str, "at": datetime}}).event_time("at", bound="1h"),
    key="text",
    what={{"n": hr.count()}},
    where=hr.FixedWindows("1d"),
    when=hr.on_update(),
    executor="local",
    schedule=hr.on_files("2s"),
)
"""


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> DailyWorld:
    """The table of a source of another distribution, which the pipeline ``said`` reads."""
    return DailyWorld(tmp_path_factory.mktemp("days") / "said.db")


@pytest.fixture(scope="module")
def airflow(
    own: WatchedRoot, sales: WatchedRoot, days: DailyWorld, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalAirflow]:
    """An Airflow with a pipeline in each root that is watched; each of its epochs reads one file. And one that reads a
    source of another distribution.
    """
    folder: Path = tmp_path_factory.mktemp("watched")
    for name in ("pipelines", "sales"):
        (folder / name).mkdir()
        options = 'executor="local", schedule=hr.on_files("2s")'
        write_pipeline(folder / name, "clicks", source="max_files=1", options=options, most=None)
    (folder / "pipelines" / "said.py").write_text(_PIPELINE_FILE.format(database=str(days.database)))
    write_distribution((DISTRIBUTION_FOLDER / "pyproject.toml").read_text(), folder / "site")
    (folder / "roots.toml").write_text(
        f'[[root]]\nname = "sales"\nuri = "{sales.uri}"\npipelines = ["sales"]\nstore = "sales_s3"\n'
    )
    environment = {
        "HEADRACE_PIPELINES": str(folder / "pipelines"),
        "HEADRACE_ROOTS": str(folder / "roots.toml"),
        "HEADRACE_STORE_CONN": "own_s3",
        "PYTHONPATH": os.pathsep.join([str(folder / "site"), str(DISTRIBUTION_FOLDER)]),
        "AIRFLOW_CONN_OWN_S3": json.dumps(own.connection()),
        **SELDOM,
    }
    local = LocalAirflow(folder / "home", own.uri, environment, triggerer=True)
    try:
        local.start()
        yield local
    finally:
        local.stop()


def wait_for_value(find_value: Callable[[], T], seconds: float = _SECONDS) -> T:
    """What ``find`` gives as soon as that is something."""
    patient = Retrying(stop=stop_after_delay(seconds), wait=wait_fixed(1), retry=retry_if_result(lambda f: not f))
    return patient(find_value)


def run_types(api: AirflowApi, dag: str, number: int) -> list[str] | None:
    """How each run began, once there are so many and all have succeeded."""
    runs = api.runs(dag)
    assert not [run for run in runs if run["state"] == "failed"]
    is_over = len(runs) >= number and all(run["state"] == "success" for run in runs)
    return [run["run_type"] for run in runs] if is_over else None


def watcher(api: AirflowApi, uri: str) -> Any:
    """What the watcher of an asset has said last."""
    return api.asset_state(uri).get("headrace_watcher") or {}


def triggerer_log(airflow: LocalAirflow) -> str:
    """All that the triggerer has logged."""
    return (airflow.home / "logs" / "triggerer.log").read_text()


def test_files_start_runs_by_themselves(airflow: LocalAirflow, own: WatchedRoot) -> None:
    airflow.api.wait_for_dag(own.dag, _SECONDS)
    for number in range(4):
        own.land(f"{number:02}", number)
    wait_for_value(lambda: own.ref("main"))  # the run has listed what it reads
    own.land("late", 4)
    wait_for_value(lambda: own.clicks() == 5)
    assert wait_for_value(lambda: run_types(airflow.api, own.dag, 2)) == ["asset_triggered"] * 2
    state = watcher(airflow.api, "headrace://clicks/landed")
    assert (state["state"], state["files"]) == ("announced", {"source": 1})
    assert "pipeline clicks has work: {'snapshot': None, " in triggerer_log(airflow)


def test_a_named_root_is_watched_once_its_connection_is_there_and_while_its_dag_is_not_paused(
    airflow: LocalAirflow, sales: WatchedRoot
) -> None:
    api = airflow.api
    wait_for_value(lambda: "config.store_connection" in watcher(api, _SALES).get("error", ""))
    assert "pipeline sales.clicks cannot be watched, and is tried again: config.store_connection" in triggerer_log(
        airflow
    )
    sales.land("00", 0)
    api.add_connection("sales_s3", **sales.connection())
    wait_for_value(lambda: sales.clicks() == 1)
    assert wait_for_value(lambda: run_types(api, sales.dag, 1)) == ["asset_triggered"]

    api.pause(sales.dag)
    api.parse(sales.dag)
    sales.land("01", 1)
    wait_for_value(lambda: not api.asset(_SALES)["watchers"])
    sales.land("02", 2)
    assert len(api.runs(sales.dag)) == 1
    api.pause(sales.dag, is_paused=False)
    api.parse(sales.dag)
    wait_for_value(lambda: sales.clicks() == 3)
    assert wait_for_value(lambda: run_types(api, sales.dag, 2)) == ["asset_triggered"] * 2
    assert api.import_errors() == {}


def test_a_source_of_ones_own_starts_runs(airflow: LocalAirflow, own: WatchedRoot, days: DailyWorld) -> None:
    dag = "headrace_said_process"
    airflow.api.wait_for_dag(dag, _SECONDS)
    days.append([{"number": 1, "text": "a", "at": datetime(2026, 11, 20, tzinfo=UTC)}])
    assert wait_for_value(lambda: run_types(airflow.api, dag, 1)) == ["asset_triggered"]
    with own.use_credentials():
        assert hr.open(own.uri)["said"].current(at="main").to_arrow()["n"].to_pylist() == [1]


def test_a_triggerer_that_is_started_again_misses_nothing(airflow: LocalAirflow, own: WatchedRoot) -> None:
    airflow.kill("triggerer")
    own.land("later", 10)
    airflow.revive("triggerer")
    wait_for_value(lambda: own.clicks() == 6)
    assert wait_for_value(lambda: run_types(airflow.api, own.dag, 3)) == ["asset_triggered"] * 3


def test_the_tab_code_shows_the_file_of_the_pipeline_and_dags_stay(airflow: LocalAirflow, own: WatchedRoot) -> None:
    file = airflow.environment()["HEADRACE_PIPELINES"] + "/clicks.py"
    for dag_id in (own.dag, "headrace_clicks_recover", "headrace_clicks_backfill"):
        assert airflow.api.source(dag_id) == Path(file).read_text()
    assert "asked_for" in airflow.api.source("headrace_maintain")
    parsed_time = airflow.api.dag(own.dag)["last_parsed_time"]
    Path(file).write_text(Path(file).read_text() + "# changed\n")
    airflow.api.parse(own.dag)
    wait_for_value(lambda: airflow.api.source(own.dag).endswith("# changed\n"))
    dag = wait_for_value(
        lambda: (newest_dag := airflow.api.dag(own.dag))["last_parsed_time"] > parsed_time and newest_dag
    )
    assert (dag["is_stale"], dag["fileloc"], dag["relative_fileloc"]) == (False, file, "headrace_pipelines.py")
    assert airflow.api.import_errors() == {}
