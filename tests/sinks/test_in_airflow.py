"""In a real Airflow a sink follows a publish and a rollback by itself, by keys of an Airflow connection."""

import json
from pathlib import Path

import pytest
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from scripts.airflow_env import LocalAirflow
from tests.airflow.runs import wait_for_success
from tests.airflow.subprocesses import write_pipeline
from tests.sinks.warehouse import Warehouse

pytestmark = pytest.mark.airflow
SECONDS = 300
DELIVER = "headrace_clicks_deliver"


def test_a_sink_follows_what_readers_see(warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = f'sinks=[hr.postgres("{warehouse.schema}.clicks", connection="warehouse")]'
    folder = tmp_path / "pipelines"
    folder.mkdir()
    write_pipeline(folder, "clicks", options=f'executor="local", {sink}', most=None)
    monkeypatch.delenv("HEADRACE_CONN_WAREHOUSE")
    host, _, rest = warehouse.uri.rpartition("@")
    login, _, password = host.removeprefix("postgresql://").partition(":")
    address, _, database = rest.partition("/")
    server, _, port = address.partition(":")
    connection = {"conn_type": "postgres", "host": server, "port": int(port), "schema": database, "login": login}
    environment = {
        "HEADRACE_PIPELINES": str(folder),
        "AIRFLOW_CONN_WAREHOUSE": json.dumps({**connection, "password": password}),
    }
    root = tmp_path / "root"
    (root / "landing" / "clicks").mkdir(parents=True)
    airflow = LocalAirflow(tmp_path / "home", root.as_uri(), environment)

    def rows() -> list[tuple[object, ...]]:
        there = warehouse.server.rows(f"select to_regclass('{warehouse.schema}.clicks') is not null") == [(True,)]
        return warehouse.rows('"user", clicks', "clicks") if there else []

    def until(expected: list[tuple[object, ...]]) -> None:
        patient = Retrying(stop=stop_after_delay(SECONDS), wait=wait_fixed(0.5), retry=retry_if_result(bool))
        patient(lambda: rows() != expected)

    def land(name: str, *users: str) -> None:
        lines = [json.dumps({"user": user, "at": "2026-11-20T00:00:00Z"}) for user in users]
        (root / "landing" / "clicks" / name).write_text("\n".join(lines) + "\n")

    def process() -> None:
        dag_id = "headrace_clicks_process"
        wait_for_success(airflow.api, dag_id, airflow.api.trigger(dag_id), SECONDS)

    try:
        airflow.start()
        for dag_id in (DELIVER, "headrace_clicks_process", "headrace_rollback"):
            airflow.api.wait_for_dag(dag_id, SECONDS)
        airflow.api.pause(DELIVER, is_paused=False)
        land("1.json", "ada", "bob", "bob")
        process()
        until([("ada", 1), ("bob", 2)])
        land("2.json", "ada", "cyd")
        process()
        until([("ada", 2), ("bob", 2), ("cyd", 1)])
        form = {"pipeline": "clicks", "to": "beginning", "branch": None, "dry_run": False, "reason": "a wrong file"}
        wait_for_success(airflow.api, "headrace_rollback", airflow.api.trigger("headrace_rollback", form), SECONDS)
        until([])
        (run, *_) = airflow.api.runs(DELIVER)
        text = "\n".join(airflow.api.log(DELIVER, run["dag_run_id"], f"{warehouse.schema}.clicks"))
        assert password not in text
        assert "sink" in text
    finally:
        airflow.stop()
