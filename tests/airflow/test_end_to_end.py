"""A real Airflow (migrate, api-server, scheduler, dag-processor) and real Spark applications, driven through REST."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import psutil
import pytest

from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store import ObjectStore, open_store
from scripts.airflow_api import AirflowApi, EndedRun
from scripts.airflow_env import LocalAirflow, running
from tests.airflow.subprocesses import write_pipeline

pytestmark = pytest.mark.airflow

_DAG_SECONDS = 120
_RUN_SECONDS = 900


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAirflow]:
    """An Airflow with three pipelines: one that works, one without a budget for dead letters, one that expects less."""
    folder = tmp_path_factory.mktemp("airflow")
    pipelines = folder / "pipelines"
    pipelines.mkdir()
    write_pipeline(pipelines, "clicks")
    write_pipeline(pipelines, "strict", source="max_rejected=0,")
    write_pipeline(pipelines, "modest", most=1)
    local = LocalAirflow(folder / "home", (folder / "root").as_uri(), {"HEADRACE_PIPELINES": str(pipelines)})
    try:
        local.start()
        yield local
    finally:
        local.stop()


def land(store: ObjectStore, pipeline: str, name: str, minutes: range, *bad: str) -> None:
    """One file with a click of one user in each minute, and lines that are no records."""
    start = datetime(2026, 11, 20, tzinfo=UTC)
    lines = [json.dumps({"user": "ada", "at": (start + timedelta(minutes=m)).isoformat()}) for m in minutes]
    store.write(f"landing/{pipeline}/{name}", "\n".join([*lines, *bad, ""]).encode())


def run(api: AirflowApi, dag_id: str, conf: dict[str, object] | None = None) -> EndedRun:
    """A run of ``dag_id``, ended."""
    api.wait_for_dag(dag_id, _DAG_SECONDS)
    return api.wait_for_run(dag_id, api.trigger(dag_id, conf), _RUN_SECONDS)


def log(api: AirflowApi, ended: EndedRun, task: str) -> str:
    """The log of the last try of ``task``."""
    return "\n".join(api.log(ended.dag_id, ended.run_id, task))


def test_runs_hand_over_state_and_announce_what_they_publish(airflow: LocalAirflow) -> None:
    store = open_store(airflow.root)
    land(store, "clicks", "a.jsonl", range(10))
    first = run(airflow.api, "headrace_clicks_process")
    assert first.state == "success", log(airflow.api, first, "process")
    (event,) = airflow.api.asset_events(first.dag_id, first.run_id)
    assert set(event) == {"epoch", "snapshot", "rows", "watermark"}
    assert event["epoch"] == 0
    assert event["watermark"] == "2026-11-20T00:08:00Z"

    land(store, "clicks", "b.jsonl", range(10, 20))
    second = run(airflow.api, "headrace_clicks_process", {"max_epochs": 1})
    assert second.state == "success", log(airflow.api, second, "process")
    (event,) = airflow.api.asset_events(second.dag_id, second.run_id)
    assert event["epoch"] == 1

    nothing_new = run(airflow.api, "headrace_clicks_process")
    assert nothing_new.state == "success"
    assert nothing_new.tasks["publish"] == "skipped"
    assert airflow.api.asset_events(nothing_new.dag_id, nothing_new.run_id) == []


def test_a_failing_run_says_why_in_the_tasks_log(airflow: LocalAirflow) -> None:
    land(open_store(airflow.root), "strict", "a.jsonl", range(3), "this is no JSON")
    ended = run(airflow.api, "headrace_strict_process")
    assert (ended.state, ended.tasks["process"]) == ("failed", "failed")
    text = log(airflow.api, ended, "process")
    assert "AirflowFailException: data" in text
    assert "max_rejected" in text


def test_a_failed_audit_names_the_expectation_and_publishes_nothing(airflow: LocalAirflow) -> None:
    land(open_store(airflow.root), "modest", "a.jsonl", range(3))
    land(open_store(airflow.root), "modest", "b.jsonl", range(3))
    ended = run(airflow.api, "headrace_modest_process")
    assert ended.tasks == {
        "preconditions": "success", "process": "success", "audit": "failed", "publish": "upstream_failed",
    }  # fmt: skip
    assert "expect_column_values_to_be_between" in log(airflow.api, ended, "audit")
    assert airflow.api.asset_events(ended.dag_id, ended.run_id) == []


def test_recover_and_backfill(airflow: LocalAirflow) -> None:
    catalog = Catalog(open_store(airflow.root), "clicks")
    newest, oldest = catalog.ancestry(catalog.head().refs["main"])
    assert (oldest.epoch, newest.epoch) == (0, 1)

    recovered = run(airflow.api, "headrace_clicks_recover", {"snapshot": oldest.snapshot_id, "reason": "a test"})
    assert recovered.state == "success", log(airflow.api, recovered, "recover")
    (event,) = airflow.api.asset_events(recovered.dag_id, recovered.run_id)
    assert event["epoch"] == 1
    assert event["snapshot"] not in {oldest.snapshot_id, newest.snapshot_id}
    assert event["watermark"] == newest.progress["watermark"]
    assert event["rows"]["input_files"] == 1  # what readers got beyond the snapshot, to which they went back

    backfilled = run(airflow.api, "headrace_clicks_backfill")
    assert backfilled.state == "success", log(airflow.api, backfilled, "replay")
    (cut_over,) = airflow.api.asset_events(backfilled.dag_id, backfilled.run_id)
    assert cut_over["snapshot"] != event["snapshot"]
    assert cut_over["watermark"] == event["watermark"]
    assert cut_over["rows"]["input_files"] == 2


def test_a_missing_pool_fails_the_run_at_once_and_says_what_to_do(airflow: LocalAirflow) -> None:
    airflow.api.delete_pool("headrace_strict")
    ended = run(airflow.api, "headrace_strict_process")
    assert ended.tasks["preconditions"] == "failed"
    text = log(airflow.api, ended, "preconditions")
    assert "there is no pool headrace_strict" in text
    assert "python -m headrace_airflow.pools create" in text


def test_stopping_leaves_no_process(airflow: LocalAirflow) -> None:  # the last test: it stops what the others use
    state = running(airflow.home)
    assert state is not None
    assert [one.name for one in state.processes] == ["api-server", "scheduler", "dag-processor"]
    leaders = [psutil.Process(one.pid) for one in state.processes]
    family = [*leaders, *(child for leader in leaders for child in leader.children(recursive=True))]
    airflow.stop()
    assert running(airflow.home) is None
    assert [process for process in family if process.is_running()] == []
