"""A recovery in Airflow as workers carry it out: what is given up comes first, and a person may be asked. A run that
meets broken state starts one by itself, once.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.airflow.subprocesses import TWO_PIPELINES, python, write_pipeline

pytestmark = pytest.mark.slow  # importing Airflow takes seconds

STEPS = """
import logging, types
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import structlog
from airflow.providers.standard.operators import hitl
from airflow.sdk.bases.operator import ExecutorSafeguard
from airflow.sdk.exceptions import TaskAwaitingInput
from headrace.pipeline.loading.registry import find_registered
from headrace.runs.recovery_target import recovery_targets, way_back
from headrace_airflow.dags import asked_for
from headrace_airflow.families import recovery_tasks
from headrace_snapshots.protocol.moves import BeginDelivery

ExecutorSafeguard.test_mode = True
dags, shown, started, existing = asked_for(), [], [], set()
hitl.upsert_hitl_detail = lambda **asked: shown.append(asked["body"])
catalog = hr.open(root)["clicks"].catalog

def start_once(dag, run_id, conf):
    # Airflow's own answer: a run of one id is made once
    if (dag, run_id) in existing:
        return False
    existing.add((dag, run_id))
    started.append([dag, run_id, conf])
    return True

recovery_tasks.start_once = start_once
YES = {"chosen_options": ["Approve"], "responded_by_user": {"id": "1", "name": "bob"}}

def step(family, task, xcoms={}, run_id="run", **form):
    dag = dags[f"headrace_clicks_{family}"]
    params = {**{name: param.value for name, param in dag.params.items()}, **form}
    ti = types.SimpleNamespace(
        xcom_pull=lambda task_ids: xcoms.get(task_ids), dag_id=dag.dag_id, run_id=run_id, task_id=task, try_number=1,
        id=uuid4(), xcom_push=lambda **_: None,
    )
    run = types.SimpleNamespace(conf=form, triggering_user_name="ada", run_after=datetime.now(UTC), run_type="manual")
    shown.clear()
    with structlog.testing.capture_logs() as events:
        try:
            found = {"xcom": dag.get_task(task).execute(
                {"params": params, "dag_run": run, "ti": ti, "task_instance": ti}
            )}
        except (Exception, TaskAwaitingInput) as error:
            found = {"raised": type(error).__name__, "message": str(error)}
    said = [event["event"] % tuple(event.get("positional_args", ())) for event in events]
    return {**found, "shown": "".join(shown), "log": said, "refs": dict(catalog.head().refs)}

"""
"""Runs tasks of the DAGs of the pipeline ``clicks`` under ``root``, as a worker does: what they return or raise, what
they say and show, and where the branches are then.
"""

SCRIPT = (
    TWO_PIPELINES
    + STEPS
    + """
def entries():
    return [entry.to_json() for entry in catalog.entries() if entry.kind.value == "rollback"]

def broken(snapshot):
    # what only this snapshot's state has, and not the one before it, is damaged
    manifest = catalog.manifest(snapshot)
    older = set() if manifest.parent is None else paths(catalog.manifest(manifest.parent))
    for path in paths(manifest) - older:
        (Path(urlsplit(root).path) / path).write_bytes(b"damaged")

def paths(manifest):
    return {file.path for layers in manifest.tables.values() for layer in layers for file in layer.files}

line = [manifest.snapshot_id for manifest in catalog.ancestry(catalog.head().refs["main"])]
answers = {"line": line, "targets": [target.to_json() for target in recovery_targets(catalog, 20)]}
looked = answers["rehearse"] = step("recover", "rehearse", snapshot=line[-1])
left = {"rehearse": looked["xcom"]}
catalog.record_delivery(BeginDelivery("", "mail", catalog.head().refs["published"]))
answers["delivered"] = step("recover", "rehearse", snapshot=line[-1])
answers["given up"] = step("recover", "rehearse", snapshot=line[-1], give_up_delivered=True)
answers["delivered meanwhile"] = step("recover", "recover", left, snapshot=line[-1], when="at once", run_id="no")
for when in ("at once", "when approved", "never"):
    answers[f"approve {when}"] = step("recover", "approve", left, snapshot=line[-1], when=when)
answers["unapproved"] = step("recover", "recover", left, snapshot=line[-1], when="when approved")
answers["not rehearsed"] = step("recover", "recover", {}, snapshot=line[-1], when="at once")
answers["recover"] = step(
    "recover", "recover", {**left, "approve": YES}, snapshot=line[-1], when="when approved", give_up_delivered=True
)
from headrace.runs.reporting.results import read_run_result
answers["result"] = read_run_result(store, "clicks", answers["recover"]["xcom"]["run_id"]).to_json()
for task in ("rehearse", "approve", "recover"):
    answers[f"{task} again"] = step("recover", task, left, snapshot=line[-1], when="when approved")
answers["entries"] = entries()
answers["outdated"] = step(
    "recover", "recover", {**left, "approve": YES}, run_id="late", snapshot=line[-1], when="when approved"
)
hr.open(root)[resolve_pipeline("clicks")].run()

# the newest snapshot, which readers see, is damaged
seen = catalog.head().refs["published"]
broken(seen)
land(store, "clicks", "new.jsonl", range(30, 40))
answers["seen"] = seen
answers["broken target"] = step("recover", "rehearse", snapshot=seen, run_id="other")
answers["below published"] = step("process", "process")
answers["below published again"] = step("process", "process", run_id="next")
answers["asked"] = started.copy()

# readers see what is before the damaged snapshot
hr.open(root)["clicks"].rollback(to=catalog.manifest(seen).parent, message="readers go back")
hr.open(root)[resolve_pipeline("clicks")].run()
before = catalog.head().refs["published"]
land(store, "clicks", "newest.jsonl", range(40, 50))
hr.open(root)[resolve_pipeline("clicks")].run(publish=False)
refs = dict(catalog.head().refs)
head = refs["main"]
assert head != before == refs["published"], refs
broken(head)
answers["before"], answers["way"] = before, vars(way_back(catalog, find_registered("clicks").pipeline))
started.clear()

def stopped(self, context):
    raise recovery_tasks.TypedTaskError(RunError("restore.broken_object", "restore", "a merge met a broken file"))

from headrace.runs.reporting.results import RunError
# a fault that the run itself does not mend: where its restore finds the damage, it falls back without any recovery
recovery_tasks.HeadraceOperator.act = stopped
answers["merge"] = step("process", "process", run_id="merge")
answers["merge again"] = step("process", "process", run_id="merge again")
answers["on a branch"] = step("process", "process", run_id="branch", branch="mine")
answers["at once"], answers["head"] = started.copy(), head
for path in [found.path for found in store.list("landing/clicks/") if "newest" in found.path]:
    store.delete(path)
answers["input gone"] = vars(way_back(catalog, find_registered("clicks").pipeline))
print(json.dumps(answers, default=str))
"""
)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What each step gave, and where the branches were after it."""
    folder: Path = tmp_path_factory.mktemp("recovery")
    (folder / "pipelines").mkdir()
    for name, most in (("clicks", None), ("orders", 1)):
        write_pipeline(folder / "pipelines", name, options='executor="local"', most=most)
    environment = {"HEADRACE_ROOT": (folder / "root").as_uri(), "HEADRACE_PIPELINES": str(folder / "pipelines")}
    return python(SCRIPT, folder / "home", environment)


def test_targets_are_the_newest_snapshots_and_say_what_readers_lose(answers: Any) -> None:
    assert [target["snapshot"] for target in answers["targets"]] == answers["line"]
    assert [target["keeps_readers"] for target in answers["targets"]] == [True, False, False]
    assert [target["problem"] for target in answers["targets"]] == [None, None, None]


def test_a_recovery_says_first_what_is_given_up_and_moves_nothing(answers: Any) -> None:
    newest, *_, oldest = answers["line"]
    rehearsed_answer = answers["rehearse"]
    whole, *reported_lines = rehearsed_answer["xcom"]["said"]
    assert rehearsed_answer["xcom"]["snapshot"] == oldest
    assert whole.startswith(f"snapshot {oldest} is whole")
    assert f"main moves from {newest} to {oldest}" in reported_lines
    assert any(line.startswith("2 epochs with ") and line.endswith("computed again") for line in reported_lines)
    assert any(line.startswith("readers lose 2 epochs with ") for line in reported_lines)
    stages = [line for line in reported_lines if line.startswith("stage ")]
    assert stages[0].startswith(f"stage 1: move branch main back from snapshot {newest} to {oldest}")
    assert any("compute epochs: again what was read before" in line for line in stages)
    assert rehearsed_answer["log"] == rehearsed_answer["xcom"]["said"]
    assert rehearsed_answer["refs"]["main"] == newest


def test_a_person_is_asked_unless_the_form_says_otherwise(answers: Any) -> None:
    request = answers["approve when approved"]
    assert request["raised"] == "TaskAwaitingInput"
    assert "* readers lose 2 epochs" in request["shown"]
    assert "* stage 1: move branch main back" in request["shown"]
    assert answers["approve at once"]["xcom"] is None
    assert answers["approve never"]["raised"] == "AirflowSkipException"


def test_nothing_moves_that_nobody_has_approved_or_looked_at(answers: Any) -> None:
    assert answers["unapproved"]["message"].startswith("config.not_approved: ")
    assert answers["not rehearsed"]["message"].startswith("config.not_rehearsed: ")
    assert answers["not rehearsed"]["refs"]["main"] == answers["line"][0]


def test_what_was_delivered_is_given_up_if_the_form_says_so(answers: Any) -> None:
    for refused_name in ("delivered", "delivered meanwhile"):
        assert "--give-up-delivered goes there all the same" in answers[refused_name]["message"]
        assert answers[refused_name]["refs"]["delivering/mail"] == answers["line"][0]
    assert any("sink mail" in line for line in answers["given up"]["xcom"]["said"])
    assert answers["recover"]["refs"]["delivering/mail"] == answers["line"][-1]


def test_a_recovery_goes_back_once_and_its_cleared_tasks_ask_nobody(answers: Any) -> None:
    recovered_answer = answers["recover"]
    assert recovered_answer["xcom"]["epochs"] > 0
    assert recovered_answer["refs"]["main"] not in answers["line"]
    assert any("approved by bob" in line for line in recovered_answer["log"])
    assert answers["rehearse again"]["xcom"]["said"][0].startswith("done by an earlier try of this run: entry ")
    assert answers["approve again"]["xcom"] is None
    assert answers["recover again"]["refs"]["main"] == recovered_answer["refs"]["main"]
    assert len(answers["entries"]) == 1


def test_a_recovery_without_a_reason_warns_in_its_log_and_its_result(answers: Any) -> None:
    (entry,) = answers["entries"]
    assert "no reason given (ada, in Airflow: headrace_clicks_recover/run), approved by bob" in entry["message"]
    assert [line for line in answers["result"]["warnings"] if "From 0.4.0 on its form requires one" in line]
    assert [line for line in answers["recover"]["log"] if "From 0.4.0 on its form requires one" in line]


def test_a_recovery_whose_figures_are_no_longer_so_is_refused(answers: Any) -> None:
    outdated_answer = answers["outdated"]
    assert outdated_answer["message"].startswith("config.rehearsal_outdated: ")
    assert outdated_answer["refs"] == answers["recover again"]["refs"]


def test_a_snapshot_that_is_damaged_is_refused_before_anything_moves(answers: Any) -> None:
    refused_answer = answers["broken target"]
    assert refused_answer["message"].startswith("restore.target_broken: ")
    assert refused_answer["refs"]["main"] == answers["seen"]


def test_broken_state_that_readers_see_asks_a_person_once(answers: Any) -> None:
    assert answers["below published"]["message"].startswith("restore.below_published: ")
    ((dag, run_id, conf),) = answers["asked"]
    assert (dag, run_id) == ("headrace_clicks_recover", f"broken__{answers['seen']}")
    assert conf["when"] == "when approved"
    assert any("It waits until a person approves" in line for line in answers["below published"]["log"])
    assert any("was started for this snapshot before" in line for line in answers["below published again"]["log"])


def test_broken_state_that_readers_do_not_see_is_recovered_once_by_itself(answers: Any) -> None:
    assert answers["way"]["is_safe"]
    ((dag, run_id, conf),) = answers["at once"]
    assert (dag, run_id) == ("headrace_clicks_recover", f"broken__{answers['head']}")
    assert (conf["snapshot"], conf["when"]) == (answers["before"], "at once")
    assert answers["merge"]["message"].startswith("restore.broken_object: ")
    assert any("readers lose nothing" in line for line in answers["merge"]["log"])
    assert any("was started for this snapshot before" in line for line in answers["merge again"]["log"])


def test_a_recovery_is_not_started_by_itself_where_input_is_gone(answers: Any) -> None:
    assert not answers["input gone"]["is_safe"]
    assert "newest.jsonl" in answers["input gone"]["reason"]
