"""A real Airflow whose runs start by themselves when files land."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import pytest
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

import headrace as hr
from headrace_airflow.watching.trigger import STATE_KEY
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store import open_store
from scripts.airflow_env import LocalAirflow
from tests.airflow.subprocesses import write_pipeline

pytestmark = pytest.mark.airflow
T = TypeVar("T")

_SECONDS = 120
_DAG = "headrace_clicks_process"


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAirflow]:
    """An Airflow with a pipeline that is watched; each of its epochs reads one file."""
    folder = tmp_path_factory.mktemp("watched")
    (folder / "pipelines").mkdir()
    options = 'executor="local", schedule=hr.on_files("2s")'
    write_pipeline(folder / "pipelines", "clicks", source="max_files=1", options=options)
    environment = {"HEADRACE_PIPELINES": str(folder / "pipelines")}
    local = LocalAirflow(folder / "home", (folder / "root").as_uri(), environment, triggerer=True)
    try:
        local.start()
        yield local
    finally:
        local.stop()


def until(found: Callable[[], T], seconds: float = _SECONDS) -> T:
    """What ``found`` gives as soon as that is something."""
    patient = Retrying(stop=stop_after_delay(seconds), wait=wait_fixed(0.1), retry=retry_if_result(lambda f: not f))
    return patient(found)


def land(airflow: LocalAirflow, name: str, minute: int) -> None:
    """One file with one click."""
    at = datetime(2026, 11, 20, tzinfo=UTC) + timedelta(minutes=minute)
    line = json.dumps({"user": "ada", "at": at.isoformat()})
    open_store(airflow.root).write(f"landing/clicks/{name}.jsonl", f"{line}\n".encode())


def clicks(airflow: LocalAirflow) -> int:
    """How many clicks readers see."""
    if not Catalog(open_store(airflow.root), "clicks").head().refs.get("published"):
        return 0
    return int(hr.open(airflow.root)["clicks"].current().to_arrow()["clicks"].to_pandas().sum())


def ended(airflow: LocalAirflow, number: int) -> list[str] | None:
    """How each run began, once there are so many and all have succeeded."""
    runs = airflow.api.runs(_DAG)
    assert not [run for run in runs if run["state"] == "failed"]
    is_over = len(runs) >= number and all(run["state"] == "success" for run in runs)
    return [run["run_type"] for run in runs] if is_over else None


def test_files_start_runs_by_themselves(airflow: LocalAirflow) -> None:
    airflow.api.wait_for_dag(_DAG, _SECONDS)
    for number in range(4):
        land(airflow, f"{number:02}", number)
    catalog = Catalog(open_store(airflow.root), "clicks")
    until(lambda: catalog.known_head().refs.get("main"))  # the run has listed what it reads
    land(airflow, "late", 4)
    until(lambda: clicks(airflow) == 5)
    assert until(lambda: ended(airflow, 2)) == ["asset_triggered"] * 2
    state = airflow.api.asset_state("headrace://clicks/landed")[STATE_KEY]
    assert (state["state"], state["files"]) == ("announced", {"source": 1})
    assert "pipeline clicks has work: {'snapshot': None, " in (airflow.home / "logs" / "triggerer.log").read_text()


def test_a_triggerer_that_is_started_again_misses_nothing(airflow: LocalAirflow) -> None:
    airflow.kill("triggerer")
    land(airflow, "later", 10)
    airflow.revive("triggerer")
    until(lambda: clicks(airflow) == 6)
    assert until(lambda: ended(airflow, 3)) == ["asset_triggered"] * 3


def test_the_tab_code_shows_the_file_of_the_pipeline_and_dags_stay(airflow: LocalAirflow) -> None:
    file = airflow.environment()["HEADRACE_PIPELINES"] + "/clicks.py"
    for dag_id in (_DAG, "headrace_clicks_recover", "headrace_clicks_backfill"):
        assert airflow.api.source(dag_id) == Path(file).read_text()
    assert "asked_for" in airflow.api.source("headrace_maintain")
    parsed = airflow.api.dag(_DAG)["last_parsed_time"]
    Path(file).write_text(Path(file).read_text() + "# changed\n")
    until(lambda: airflow.api.source(_DAG).endswith("# changed\n"))
    dag = until(lambda: (found := airflow.api.dag(_DAG))["last_parsed_time"] > parsed and found)
    assert (dag["is_stale"], dag["fileloc"], dag["relative_fileloc"]) == (False, file, "headrace_pipelines.py")
    assert airflow.api.import_errors() == {}
