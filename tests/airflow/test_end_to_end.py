"""A real Airflow (migrate, api-server, scheduler, dag-processor), real Spark applications, and runs without Spark,
driven through REST.
"""

import ipaddress
import json
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import httpx
import psutil
import pytest
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

import headrace as hr
from headrace.ext.stores import ObjectStore, open_store
from scripts.airflow_api import AirflowApi, EndedRun
from scripts.airflow_env import LocalAirflow, running, stop
from tests.airflow.conftest import DisturbedAirflow
from tests.airflow.runs import wait_for_success, wait_until_asked
from tests.airflow.subprocesses import write_pipeline

pytestmark = pytest.mark.airflow
T = TypeVar("T")

_DAG_SECONDS = 300
_RUN_SECONDS = 900
_SPARK = "executor spark: the pipeline's own"
_OWN_FRAMES = 2
"""Frames of Headrace's own that an error leaves in a task's log: who reads it wants the message."""
_PROCESS_SECONDS = 120
LOCAL: dict[str, object] = {"executor": "local"}


@pytest.fixture(scope="module")
def pipelines(disturbed_airflow: DisturbedAirflow) -> Path:
    return disturbed_airflow.pipelines


@pytest.fixture(scope="module")
def airflow(disturbed_airflow: DisturbedAirflow) -> LocalAirflow:
    return disturbed_airflow.airflow


def land(store: ObjectStore, pipeline: str, name: str, minutes: range, *bad: str) -> None:
    """One file with a click of one user in each minute, and lines that are no records."""
    start = datetime(2026, 11, 20, tzinfo=UTC)
    lines = [json.dumps({"user": "ada", "at": (start + timedelta(minutes=m)).isoformat()}) for m in minutes]
    store.write(f"landing/{pipeline}/{name}", "\n".join([*lines, *bad, ""]).encode())


def run_to_end(api: AirflowApi, dag_id: str, conf: dict[str, object] | None = None) -> EndedRun:
    """A run of ``dag_id``, ended."""
    api.wait_for_dag(dag_id, _DAG_SECONDS)
    return api.wait_for_run(dag_id, api.trigger(dag_id, conf), _RUN_SECONDS)


def log(api: AirflowApi, run: EndedRun, task: str) -> str:
    """The log of the last try of ``task``."""
    return "\n".join(api.log(run.dag_id, run.run_id, task))


def family() -> list[psutil.Process]:
    """All that this process has started, and what that has started."""
    return psutil.Process().children(recursive=True)


def drivers() -> list[psutil.Process]:
    """Spark drivers at work: a port for Python, one for executors, one for blocks."""
    return [one for one in family() if len(listening(one)) > 2]


def listening(process: psutil.Process) -> set[str]:
    """Address and port of every socket on which a process waits for others."""
    try:
        connections = process.net_connections("inet")
    except psutil.NoSuchProcess:
        return set()
    waiting = [one.laddr for one in connections if one.status == psutil.CONN_LISTEN]
    return {f"{address.ip.removeprefix('::ffff:')} {address.port}" for address in waiting}


def a_driver_runs() -> None:
    """Wait until a Spark driver is at work."""
    wait_for_value(drivers)


def wait_for_value(find_value: Callable[[], T]) -> T:
    """What ``find`` gives as soon as that is something."""
    patient = Retrying(
        stop=stop_after_delay(_PROCESS_SECONDS), wait=wait_fixed(0.5), retry=retry_if_result(lambda f: not f)
    )
    return patient(find_value)


def is_alive(pid: int) -> bool:
    """Whether that process runs."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def read_if_there(file: Path) -> str:
    """The text of ``file``, nothing if there is none."""
    return file.read_text() if file.exists() else ""


def test_runs_hand_over_state_and_announce_what_they_publish(airflow: LocalAirflow) -> None:
    store = open_store(airflow.root)
    land(store, "clicks", "a.jsonl", range(10))
    first = run_to_end(airflow.api, "headrace_clicks_process", LOCAL)
    assert first.state == "success", log(airflow.api, first, "process")
    assert "executor local: asked for" in log(airflow.api, first, "process")
    (event,) = airflow.api.asset_events(first.dag_id, first.run_id)
    assert set(event) == {"epoch", "snapshot", "counts", "watermark", "page"}
    page = f"/dags/headrace_clicks_process/plugin/headrace_dag?view=history&snapshot={event['snapshot']}"
    assert event["page"].endswith(page)
    assert event["epoch"] == 0
    assert event["watermark"] == "2026-11-20T00:08:00Z"

    land(store, "clicks", "b.jsonl", range(10, 20))
    second = run_to_end(airflow.api, "headrace_clicks_process", {"max_epochs": 1, **LOCAL})
    assert second.state == "success", log(airflow.api, second, "process")
    (event,) = airflow.api.asset_events(second.dag_id, second.run_id)
    assert event["epoch"] == 1

    nothing_new = run_to_end(airflow.api, "headrace_clicks_process", LOCAL)
    assert nothing_new.state == "success"
    assert nothing_new.tasks["publish"] == "skipped"
    assert airflow.api.asset_events(nothing_new.dag_id, nothing_new.run_id) == []


def test_a_failing_run_says_why_and_a_person_may_mark_it_as_successful(airflow: LocalAirflow) -> None:
    land(open_store(airflow.root), "strict", "a.jsonl", range(3), "this is no JSON")
    ended_run = run_to_end(airflow.api, "headrace_strict_process")
    assert (ended_run.state, ended_run.tasks["process"]) == ("failed", "failed")
    text = log(airflow.api, ended_run, "process")
    assert "TypedTaskError: data" in text
    assert "Retry policy decision" in text, "it failed at once"
    assert "max_rejected" in text

    airflow.api.mark(ended_run.dag_id, ended_run.run_id, "process", "success")
    marked_run = airflow.api.wait_for_run(ended_run.dag_id, ended_run.run_id, _RUN_SECONDS)
    assert marked_run.tasks == {
        "preconditions": "success", "process": "success", "audit": "success", "publish": "skipped",
    }, log(airflow.api, marked_run, "publish")  # fmt: skip


def test_a_failed_audit_names_the_expectation_and_publishes_nothing(airflow: LocalAirflow) -> None:
    land(open_store(airflow.root), "modest", "a.jsonl", range(3))
    land(open_store(airflow.root), "modest", "b.jsonl", range(3))
    ended_run = run_to_end(airflow.api, "headrace_modest_process")
    assert ended_run.tasks == {
        "preconditions": "success", "process": "success", "audit": "failed", "publish": "upstream_failed",
    }  # fmt: skip
    assert "executor local: auto: " in log(airflow.api, ended_run, "process")
    text = log(airflow.api, ended_run, "audit")
    assert "FAILED: expect_column_values_to_be_between" in text
    assert 'user="' in text  # which rows
    assert text.count("headrace_airflow/") <= _OWN_FRAMES, text
    *_, last = [line for line in text.splitlines() if line and not line.startswith("::")]
    page = f"{airflow.url}/dags/headrace_modest_process/plugin/headrace_dag?view=quality"
    assert last == f"What failed, and what can be done about it: {page}"
    assert text.rstrip().endswith(f"::endgroup::\n{last}\n::endgroup::"), "nothing folds it"
    assert airflow.api.asset_events(ended_run.dag_id, ended_run.run_id) == []


def test_recover_and_backfill(airflow: LocalAirflow) -> None:
    catalog = hr.open(airflow.root)["clicks"].catalog
    newest, oldest = catalog.ancestry(catalog.head().refs["main"])
    assert (oldest.epoch, newest.epoch) == (0, 1)

    going_back: dict[str, object] = {"snapshot": oldest.snapshot_id, "when": "at once", "reason": "a test"}
    recovered_run = run_to_end(airflow.api, "headrace_clicks_recover", {**going_back, **LOCAL})
    assert recovered_run.state == "success", log(airflow.api, recovered_run, "recover")
    (event,) = airflow.api.asset_events(recovered_run.dag_id, recovered_run.run_id)
    assert event["epoch"] == 1
    assert event["snapshot"] not in {oldest.snapshot_id, newest.snapshot_id}
    assert event["watermark"] == newest.progress["watermark"]
    assert event["counts"]["input_files"] == 1  # what readers got beyond the snapshot, to which they went back

    backfilled_run = run_to_end(airflow.api, "headrace_clicks_backfill")
    assert backfilled_run.state == "success", log(airflow.api, backfilled_run, "replay")
    assert _SPARK in log(airflow.api, backfilled_run, "replay")
    (cut_over,) = airflow.api.asset_events(backfilled_run.dag_id, backfilled_run.run_id)
    assert cut_over["snapshot"] != event["snapshot"]
    assert cut_over["watermark"] == event["watermark"]
    assert cut_over["counts"]["input_files"] == 2


def test_damage_that_readers_see_starts_one_recovery_which_asks_and_then_mends_it(airflow: LocalAirflow) -> None:
    store = open_store(airflow.root)
    for number in range(2):
        land(store, "damaged", f"{number}.jsonl", range(number * 10, number * 10 + 10))
        assert run_to_end(airflow.api, "headrace_damaged_process").state == "success"
    catalog = hr.open(airflow.root)["damaged"].catalog
    newest, oldest = catalog.ancestry(catalog.head().refs["published"])
    files = [
        {f.path for layers in one.tables.values() for layer in layers for f in layer.files} for one in (newest, oldest)
    ]
    for path in files[0] - files[1]:
        (Path(airflow.root.removeprefix("file://")) / path).write_bytes(b"damaged")

    land(store, "damaged", "2.jsonl", range(20, 30))
    failed_run = [run_to_end(airflow.api, "headrace_damaged_process") for _ in range(2)]
    assert [one.state for one in failed_run] == ["failed", "failed"]
    assert "restore.below_published" in log(airflow.api, failed_run[0], "process")
    recovery, run_id = "headrace_damaged_recover", f"broken__{newest.snapshot_id}"
    assert f"started run {run_id} of {recovery}, back to {oldest.snapshot_id}" in log(
        airflow.api, failed_run[0], "process"
    )
    assert f"run {run_id} of {recovery} was started for this snapshot before" in log(
        airflow.api, failed_run[1], "process"
    )
    assert [one["dag_run_id"] for one in airflow.api.runs(recovery)] == [run_id]

    wait_until_asked(airflow, recovery, run_id, "approve")
    assert catalog.head().refs["published"] == newest.snapshot_id, "nothing moves before somebody approves"
    assert "readers lose 1 epoch with " in "\n".join(airflow.api.log(recovery, run_id, "approve"))
    airflow.api.approve(recovery, run_id, "approve")
    recovered_run = wait_for_success(airflow.api, recovery, run_id, _RUN_SECONDS)
    assert recovered_run.tasks["publish"] == "success"
    manifest = catalog.manifest(catalog.head().refs["published"])
    assert manifest.progress["watermark"] == "2026-11-20T00:28:00Z", "all three files are in what readers see"
    rollback = next(entry for entry in catalog.entries() if entry.kind == "rollback")
    assert f"restore.below_published in {failed_run[0].dag_id}/" in rollback.message
    assert rollback.message.endswith("approved by admin")


def test_a_run_that_a_person_ends_is_gone_with_all_that_it_started(airflow: LocalAirflow, pipelines: Path) -> None:
    airflow.api.wait_for_dag("headrace_waiting_process", _DAG_SECONDS)
    run_id = airflow.api.trigger("headrace_waiting_process")
    pids = [int(pid) for pid in wait_for_value(lambda: read_if_there(pipelines / "pids")).split()]
    assert [is_alive(pid) for pid in pids] == [True, True]
    airflow.api.mark("headrace_waiting_process", run_id, "process", "failed")
    wait_for_value(lambda: not any(map(is_alive, pids)))
    ended_run = airflow.api.wait_for_run("headrace_waiting_process", run_id, _RUN_SECONDS)
    assert ended_run.tasks["process"] == "failed"


@pytest.fixture(scope="module")
def killed_run(airflow: LocalAirflow, pipelines: Path) -> tuple[str, list[int]]:
    """A run whose worker was killed, and the processes that the worker has left."""
    (pipelines / "pids").unlink(missing_ok=True)
    run_id = airflow.api.trigger("headrace_waiting_process")
    application, *_ = pids = [int(pid) for pid in wait_for_value(lambda: read_if_there(pipelines / "pids")).split()]
    (pipelines / "pids").unlink()
    task = psutil.Process(application).parent()
    assert task is not None
    supervisor = task.parent()
    assert supervisor is not None
    assert "airflow" in " ".join(supervisor.cmdline())
    supervisor.kill()
    return run_id, [task.pid, *pids]


@pytest.fixture(scope="module")
def newcomer(pipelines: Path) -> None:
    """A pipeline that comes while Airflow is up."""
    write_pipeline(pipelines, "newcomer")


@pytest.mark.usefixtures("killed_run", "newcomer")  # Airflow needs a minute to see that, in which others can be tested
def test_the_next_run_announces_what_a_person_released(airflow: LocalAirflow) -> None:
    catalog = hr.open(airflow.root)["modest"].catalog
    released_snapshot = catalog.head().refs["main"]
    catalog.release(released_snapshot, "ada: the expectation was too narrow")
    ended_run = run_to_end(airflow.api, "headrace_modest_process")
    assert ended_run.state == "success", log(airflow.api, ended_run, "publish")
    (event,) = airflow.api.asset_events(ended_run.dag_id, ended_run.run_id)
    assert (event["snapshot"], event["counts"]["input_files"]) == (released_snapshot, 2)


@pytest.mark.usefixtures("newcomer")
def test_a_pipeline_that_comes_while_airflow_is_up_runs(airflow: LocalAirflow) -> None:
    land(open_store(airflow.root), "newcomer", "a.jsonl", range(3))
    ended_run = run_to_end(airflow.api, "headrace_newcomer_process", LOCAL)
    assert ended_run.state == "success", log(airflow.api, ended_run, "process")
    assert "audit of (the beginning, " in log(airflow.api, ended_run, "audit")
    assert airflow.api.pools()["headrace_newcomer"] == 1


def test_a_form_that_names_a_flag_as_branch_is_refused(airflow: LocalAirflow) -> None:
    with pytest.raises(httpx.HTTPStatusError) as error:
        airflow.api.trigger("headrace_clicks_process", {"branch": "--full-sweep"})
    assert error.value.response.is_client_error
    assert "--full-sweep" in error.value.response.text


def test_nobody_gets_in_without_a_password_or_beyond_a_role(airflow: LocalAirflow) -> None:
    airflow.api.wait_for_dag("headrace_clicks_process", _DAG_SECONDS)
    with httpx.Client(base_url=airflow.url, timeout=60) as anybody:
        assert anybody.get("/auth/token").is_client_error
        assert anybody.get("/auth/token/login").is_client_error
        assert anybody.get("/api/v2/dags").status_code == 401
        assert anybody.post("/auth/token", json={"username": "admin", "password": "admin"}).status_code == 401
    with closing(airflow.api_as("looks")) as looks, closing(airflow.api_as("runs")) as runs:
        assert "default_pool" in looks.pools()
        with pytest.raises(httpx.HTTPStatusError, match="403"):
            looks.trigger("headrace_clicks_process")
        with pytest.raises(httpx.HTTPStatusError, match="403"):
            runs.delete_pool("default_pool")
        with pytest.raises(httpx.HTTPStatusError, match="400"):  # may do it, and is told what is wrong with it
            runs.trigger("headrace_clicks_process", {"max_epochs": 0})


@pytest.mark.parametrize("path", ["/", "/auth/token", "/api/v2/monitor/health", "/execution/health/ping"])
def test_a_request_under_a_foreign_name_is_refused(airflow: LocalAirflow, path: str) -> None:
    for host, is_refused in (
        (f"127.0.0.1:{airflow.port}", False),
        ("rebound.example", True),
        ("127.0.0.1.nip.io", True),
    ):
        answer = httpx.get(f"{airflow.url}{path}", headers={"Host": host}, timeout=60)
        assert (answer.text == "Invalid host header") is is_refused, (host, answer)


def test_a_run_whose_worker_was_killed_is_not_running_for_long(
    airflow: LocalAirflow, killed_run: tuple[str, list[int]]
) -> None:
    run_id, pids = killed_run
    wait_for_value(lambda: airflow.api.first_try_state("headrace_waiting_process", run_id, "process") != "running")
    wait_for_value(lambda: not any(map(is_alive, pids)))
    airflow.api.mark("headrace_waiting_process", run_id, "process", "failed")
    assert airflow.api.wait_for_run("headrace_waiting_process", run_id, _RUN_SECONDS).state == "failed"


def test_passwords_are_for_their_owner_alone(airflow: LocalAirflow) -> None:
    holders = [file for file in airflow.home.rglob("*") if file.is_file() and airflow.passwords["admin"] in text(file)]
    assert [(file.name, file.stat().st_mode & 0o777) for file in holders] == [("passwords.json", 0o600)]


def text(file: Path) -> str:
    return file.read_text(errors="replace")


def test_all_listen_on_loopback_alone_and_stopping_leaves_no_process_behind_a_scheduler_that_died(
    airflow: LocalAirflow,
) -> None:
    # the last test: it stops what the others use
    land(open_store(airflow.root), "clicks", "d.jsonl", range(30, 40))
    airflow.api.trigger("headrace_clicks_process")
    a_driver_runs()
    addresses = {address for process in family() for address in listening(process)}
    assert len(addresses) > 3  # the API server, and three of the driver
    assert {address for address in addresses if not ipaddress.ip_address(address.split()[0]).is_loopback} == set()
    state = running(airflow.home)
    assert state is not None
    assert state.url == airflow.url
    everything = family()
    (scheduler,) = (one for one in psutil.Process().children() if "scheduler" in " ".join(one.cmdline()))
    scheduler.kill()
    scheduler.wait()
    assert stop(airflow.home)
    assert running(airflow.home) is None
    assert [one for one in everything if one.is_running() and one.status() != psutil.STATUS_ZOMBIE] == []
    assert not stop(airflow.home)
