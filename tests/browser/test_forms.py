"""What people do in Airflow's UI: they submit the form of every DAG of a pipeline, untouched and filled; materialize
the asset; read why a file has no DAGs.
"""

from contextlib import suppress
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any

import psutil
import pytest

import headrace as hr
from headrace.ext.stores import open_store
from scripts.airflow_api import EndedRun
from scripts.airflow_env import LocalAirflow
from tests.airflow.runs import wait_for_success
from tests.airflow.test_end_to_end import family as started
from tests.airflow.test_end_to_end import land, listening
from tests.browser.airflow_ui import AirflowUi, TriggerForm
from tests.browser.deployment import ASKING_PIPELINE as NAME

pytestmark = [pytest.mark.airflow, pytest.mark.browser]

_DAG_SECONDS = 300
_RUN_SECONDS = 600
DEFAULT_CONFS = {
    "process": {
        "max_epochs": None, "files_per_epoch": None, "bytes_per_epoch": None, "branch": "main", "full_sweep": False,
        "strict": False, "allow_new_aggregates": False, "create": False, "executor": None, "signals": [],
        "dry_run": False,
    },
    "backfill": {
        "from": None, "to": None, "promote": "at once", "patch": False, "files_per_epoch": None,
        "bytes_per_epoch": None, "branch": None, "executor": None, "dry_run": False, "reason": None,
    },
    "recover": {
        "when": "when approved", "give_up_delivered": False, "with_readers": False, "executor": None, "reason": None,
    },
}  # fmt: skip
"""What a form says that nobody has touched."""


def dag_of(family: str) -> str:
    """The DAG of a family of the pipeline whose forms are filled."""
    return f"headrace_{NAME}_{family}"


def stored_refs(airflow: LocalAirflow) -> dict[str, str]:
    """The branches of the pipeline, and what readers see of it."""
    return dict(hr.open(airflow.root)[NAME].catalog.head().refs)


def newest(airflow: LocalAirflow, family: str) -> dict[str, Any]:
    """The last run of a DAG, as Airflow's API tells it."""
    return airflow.api.runs(dag_of(family))[-1]


def wait_for_end(airflow: LocalAirflow, family: str, run: dict[str, Any]) -> EndedRun:
    """That run, ended well."""
    return wait_for_success(airflow.api, dag_of(family), run["dag_run_id"], _RUN_SECONDS)


def submit_form(airflow: LocalAirflow, ui: AirflowUi, family: str, fields: dict[str, object]) -> tuple[Any, EndedRun]:
    """The configuration of a run that somebody triggered by its form, and how the run ended."""
    form = TriggerForm(ui, dag_of(family))
    form.fill(fields)
    form.submit()
    ui.leave()
    run = newest(airflow, family)
    return run["conf"], wait_for_end(airflow, family, run)


def test_files_that_block_or_raise_anything_take_no_dag_away_and_are_told(
    airflow: LocalAirflow, admin: AirflowUi
) -> None:
    admin.go("")
    admin.click("//button[contains(., 'Import Error')]")
    admin.click("//*[contains(text(), 'headrace_broken_files.py')]")
    admin.find("//*[contains(text(), 'a_block.py:3: it has not ended after 5 s')]")
    assert "b_stop.py:1: KeyboardInterrupt" in admin.text()


def test_nothing_that_the_home_page_shows_is_red(airflow: LocalAirflow, admin: AirflowUi) -> None:
    admin.go("")
    colour = {
        name: admin.find(f"//*[normalize-space(text())='{name}']").value_of_css_property("background-color")
        for name in ("MetaDatabase", "Scheduler", "Triggerer", "Dag Processor")
    }
    assert len(set(colour.values())) == 1, colour


def test_a_triggerer_listens_no_more_than_the_others(airflow: LocalAirflow) -> None:
    commands: dict[psutil.Process, str] = {}
    for one in started():
        with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            commands[one] = " ".join(one.cmdline())
    ours = [one for one, command in commands.items() if "airflow" in command]
    assert any("triggerer" in commands[one] for one in ours)
    addresses = {address for one in ours for address in listening(one)}
    assert {address for address in addresses if not ip_address(address.split()[0]).is_loopback} == set()


@pytest.mark.parametrize("family", ["process", "backfill"])
def test_a_form_that_nobody_has_touched_is_a_run(airflow: LocalAirflow, admin: AirflowUi, family: str) -> None:
    if family == "process":
        land(open_store(airflow.root), NAME, "a.jsonl", range(10))
    conf, _ = submit_form(airflow, admin, family, {})
    assert conf == DEFAULT_CONFS[family]


def test_the_form_of_a_recovery_asks_for_a_snapshot_and_for_nothing_else(
    airflow: LocalAirflow, admin: AirflowUi
) -> None:
    form = TriggerForm(admin, dag_of("recover"))
    assert form.required_labels() == ["Snapshot"]
    assert not form.is_ready()
    snapshot = stored_refs(airflow)["published"]
    conf, _ = submit_form(airflow, admin, "recover", {"Snapshot": snapshot, "When": "at once"})
    assert conf == {**DEFAULT_CONFS["recover"], "snapshot": snapshot, "when": "at once"}


def test_a_filled_form_of_a_run(airflow: LocalAirflow, admin: AirflowUi) -> None:
    land(open_store(airflow.root), NAME, "b.jsonl", range(10, 20))
    filled_fields = {
        "Epochs at most": 1, "Files per epoch at most": 2, "Bytes per epoch at most": 1_000_000, "Branch": "main",
        "Full sweep": True, "Strict": True, "Added aggregates start empty": True, "Create": True,
        "Executor": "auto: ", "Signals": ['go=["ada"]', "ask"],
    }  # fmt: skip
    conf, _ = submit_form(airflow, admin, "process", filled_fields)
    assert conf == {
        "max_epochs": 1, "files_per_epoch": 2, "bytes_per_epoch": 1_000_000, "branch": "main", "full_sweep": True,
        "strict": True, "allow_new_aggregates": True, "create": True, "executor": "auto",
        "signals": ['go=["ada"]', "ask"], "dry_run": False,
    }  # fmt: skip


def test_a_filled_form_of_a_backfill(airflow: LocalAirflow, admin: AirflowUi) -> None:
    start, end = datetime(2026, 11, 20, 0, 12, tzinfo=UTC), datetime(2026, 11, 20, 0, 15, tzinfo=UTC)
    filled_fields = {
        "From": start, "To": end, "Promote": "never: ", "Patch": False, "Files per epoch at most": 1,
        "Bytes per epoch at most": 1_000, "Branch": "mine", "Executor": "local: ", "Reason": "a test",
    }  # fmt: skip
    conf, run = submit_form(airflow, admin, "backfill", filled_fields)
    assert (datetime.fromisoformat(conf.pop("from")), datetime.fromisoformat(conf.pop("to"))) == (start, end)
    assert conf == {
        "promote": "never", "patch": False, "files_per_epoch": 1, "bytes_per_epoch": 1_000, "branch": "mine",
        "executor": "local", "dry_run": False, "reason": "a test",
    }  # fmt: skip
    assert run.tasks["cut_over"] == "skipped"
    assert "mine" in stored_refs(airflow)


def test_a_filled_form_of_a_recovery(airflow: LocalAirflow, admin: AirflowUi) -> None:
    snapshot = stored_refs(airflow)["published"]
    filled_fields = {
        "Snapshot": snapshot, "When": "never: ", "With readers": True, "Executor": "local: ", "Reason": "a test",
    }  # fmt: skip
    conf, run = submit_form(airflow, admin, "recover", filled_fields)
    expected = {"snapshot": snapshot, "when": "never", "with_readers": True, "executor": "local", "reason": "a test"}
    assert conf == {"give_up_delivered": False, **expected}
    assert (run.tasks["rehearse"], run.tasks["recover"]) == ("success", "skipped")


def test_the_form_that_looks_after_all_pipelines(airflow: LocalAirflow, admin: AirflowUi) -> None:
    airflow.api.wait_for_dag("headrace_maintain", _DAG_SECONDS)
    filled_fields = {"Pipeline": NAME, "Keep the last": 5, "Keep for": "2d", "Keep tags": "no", "Deep": True}
    for fields, pipeline in (({}, None), (filled_fields, NAME)):
        form = TriggerForm(admin, "headrace_maintain")
        form.fill(fields)
        form.submit()
        admin.leave()
        run = airflow.api.runs("headrace_maintain")[-1]
        assert run["conf"]["pipeline"] == pipeline
        wait_for_success(airflow.api, "headrace_maintain", run["dag_run_id"], _RUN_SECONDS)
        assert "nothing is missing" in "\n".join(airflow.api.log("headrace_maintain", run["dag_run_id"], "maintain"))
    assert run["conf"]["keep_tags"] == "no"
    form = TriggerForm(admin, "headrace_maintain")
    form.fill({"Keep for": "abc"})
    assert "'abc' does not match" in form.read_refusal()


@pytest.mark.parametrize(
    ("family", "filled_fields", "message"),
    [
        ("process", {"Branch": "not a name"}, "'not a name' does not match"),
        ("recover", {"Snapshot": "two words"}, "'two words' does not match"),
    ],
)
def test_a_field_that_makes_no_sense_is_refused_in_the_form(
    airflow: LocalAirflow, admin: AirflowUi, family: str, filled_fields: dict[str, object], message: str
) -> None:
    runs_before = len(airflow.api.runs(dag_of(family)))
    form = TriggerForm(admin, dag_of(family))
    form.fill(filled_fields)
    assert message in form.read_refusal()
    assert len(airflow.api.runs(dag_of(family))) == runs_before


def test_the_asset_is_materialized_by_the_dag_that_processes(airflow: LocalAirflow, admin: AirflowUi) -> None:
    land(open_store(airflow.root), NAME, "c.jsonl", range(20, 30))
    admin.go("assets")
    admin.click(f"//a[normalize-space()='headrace_{NAME}']")
    materialize = "//label[.//*[normalize-space(text())='Materialize']]"
    admin.opens("//button[@aria-label='Create Event']", materialize)
    admin.click(materialize)
    runs_before = len(airflow.api.runs(dag_of("process")))
    admin.click("//*[@role='dialog']//button[normalize-space()='Trigger']")
    run = admin.wait_for(
        lambda: newest(airflow, "process") if len(airflow.api.runs(dag_of("process"))) > runs_before else None,
        "a run that materializes",
    )
    admin.leave()
    assert run["run_type"] == "asset_materialization"
    ended_run = wait_for_end(airflow, "process", run)
    (event,) = airflow.api.asset_events(ended_run.dag_id, ended_run.run_id)
    assert event["snapshot"] == stored_refs(airflow)["published"]
