"""What people decide in Airflow: each decision as a worker carries it out, and what the pipeline's log says then."""

from pathlib import Path
from typing import Any

import pytest

from tests.airflow.subprocesses import TWO_PIPELINES, python, write_pipeline

pytestmark = pytest.mark.slow  # importing Airflow takes seconds

SCRIPT = (
    TWO_PIPELINES
    + """
import logging, types
from collections import defaultdict
from datetime import UTC, datetime
from itertools import count
from uuid import uuid4

from airflow.providers.standard.operators import hitl

clicks = hr.open(root)["clicks"]
first = [*clicks.catalog.ancestry(clicks.show().snapshot_id)][-1].snapshot_id

from airflow.sdk.bases.operator import ExecutorSafeguard
from airflow.sdk.exceptions import TaskAwaitingInput
from headrace_airflow.dags import asked_for

ExecutorSafeguard.test_mode = True
dags = asked_for()

class Events(defaultdict):
    def __init__(self):
        super().__init__(lambda: types.SimpleNamespace(added=[]))
    def __missing__(self, key):
        events = types.SimpleNamespace(added=[])
        events.add = lambda asset, extra: events.added.append([asset.name, extra["snapshot"]])
        self[key] = events
        return events

numbers, now, shown, pushed, warned = count(1), datetime.now(UTC), [], {}, []
noting = logging.Handler(logging.WARNING)
noting.emit = lambda record: warned.append(record.getMessage())
logging.getLogger("airflow.task").addHandler(noting)
hitl.upsert_hitl_detail = lambda **asked: shown.append(asked["body"])  # what people see; there is no Airflow to keep it

def decide(kind, task=None, approval=None, /, run_id=None, **form):
    dag = dags[f"headrace_{kind}"]
    run = types.SimpleNamespace(conf=form, triggering_user_name="ada", run_after=now)
    run_id = run_id or f"run{next(numbers)}"
    ti = types.SimpleNamespace(
        xcom_pull=lambda task_ids, key=None: approval if key is None else pushed.get((run_id, task_ids, key)),
        xcom_push=lambda key, value: pushed.update({(run_id, task or kind, key): value}),
        dag_id=dag.dag_id, run_id=run_id, task_id=task, try_number=1, id=uuid4(),
    )
    shown.clear()
    warned.clear()
    events = Events()
    try:
        found = {"xcom": dag.get_task(task or kind).execute(
            {"params": form, "dag_run": run, "ti": ti, "task_instance": ti, "outlet_events": events}
        )}
    except (Exception, TaskAwaitingInput) as error:
        found = {"raised": type(error).__name__, "message": str(error)}
    handle = hr.open(root)[form["pipeline"]]
    return {
        **found,
        "shown": "".join(shown),
        "warned": "".join(warned),
        "by": f"ada, in Airflow: {dag.dag_id}/{run_id}",
        "events": [event for each in events.values() for event in each.added],
        "entry": handle.catalog.list_entries(limit=1)[0].to_json(),
    }

def twice(kind, **form):
    # and once more in the same run: its task was killed after it had acted, or a person cleared it
    run_id = f"run{next(numbers)}"
    return {**decide(kind, run_id=run_id, **form), "again": decide(kind, run_id=run_id, **form)}

DAY = ("2026-11-20", "2026-11-21")
answers = {
    "misspelt": decide("release", pipeline="orders", snapshoot="main", reason="seen"),
    "release": twice("release", pipeline="orders", output=None, snapshot=None, reason="seen with finance"),
    "release again": decide("release", pipeline="orders", output=None, snapshot=None, reason="two people at once"),
    "rollback rehearsed": decide("rollback", pipeline="clicks", to=first, branch=None, dry_run=True, reason="a try"),
    "tag": twice("tag", pipeline="clicks", name="good", snapshot=None, reason="month end"),
    "fork": twice("fork", pipeline="clicks", name="trial", snapshot="good", reason=None),
    "drop": twice("drop", pipeline="clicks", name="trial", reason="not needed"),
    **{
        f"{kind} without a reason": decide(kind, pipeline="clicks", reason=reason, **form)
        for kind, reason, form in (
            ("fork", " ", {"name": "unreasoned", "snapshot": None}),
            ("tag", None, {"name": "untold", "snapshot": None}),
            ("drop", "", {"name": "untold"}),
            ("replay", None, {"records": "late", "input": None, "to": None, "at": None}),
            ("promote", None, {"branch": "unreasoned", "patch": False, "approve": False}),
        )
    },
    "replay": twice("replay", pipeline="clicks", records="rejected", input=None, to=None, at=None, reason=None),
}
KEPT = {"keep_last": None, "keep_for": None, "keep_tags": "as the pipeline says"}

def maintain(**form):
    asked = {"pipeline": None, "expire": True, "check": True, "deep": False, "repair": False, "dry_run": False, **KEPT}
    dag = dags["headrace_maintain"]
    try:
        return dag.get_task("maintain").execute({"params": {**asked, **form}})
    except Exception as error:
        return str(error)

answers |= {
    "maintain": maintain(),
    "maintain one": maintain(pipeline="clicks", keep_last=1, deep=True, dry_run=True),
    "maintain soon": maintain(keep_for="soon"),
    "maintain nothing": maintain(expire=False, check=False),
    "maintain unknown": maintain(pipeline="clickz"),
}
os.environ["HEADRACE_LOCAL_MEMORY"] = "1MB"
answers["maintain in little memory"] = maintain(pipeline="clicks")
del os.environ["HEADRACE_LOCAL_MEMORY"]
YES = {"chosen_options": ["Approve"], "responded_by_user": {"id": "1", "name": "bob"}}
AGAIN = {"pipeline": "clicks", "branch": "again", "patch": False, "approve": True, "reason": "late files"}
hr.open(root)[resolve_pipeline("clicks")].backfill(start=DAY[0], end=DAY[1], branch="again")
decide("promote", "rehearse", run_id="outdated", **AGAIN)
clicks.drop("again")
hr.open(root)[resolve_pipeline("clicks")].backfill(start=DAY[0], end=DAY[1], branch="again")
answers |= {
    "promote outdated": decide("promote", "promote", YES, run_id="outdated", **AGAIN),
    "promote unseen": decide("promote", "promote", YES, **AGAIN),
    "rehearse": decide("promote", "rehearse", run_id="promotion", **AGAIN),
    "promote unapproved": decide("promote", "promote", None, **AGAIN),
    "promote": decide("promote", "promote", YES, run_id="promotion", **AGAIN),
    **{
        f"{task} after it": decide("promote", task, None, run_id="promotion", **AGAIN)
        for task in ("rehearse", "approve", "promote")
    },
    "rehearse gone": decide(
        "promote", "rehearse", pipeline="clicks", branch="gone", patch=False, approve=True, reason=None
    ),
    "rollback": twice("rollback", pipeline="clicks", to=first, branch=None, dry_run=False, reason="a wrong file"),
    "rollback again": decide("rollback", pipeline="clicks", to="nothing", branch=None, dry_run=False, reason="oops"),
}
for name, minutes in (("ahead.jsonl", range(200, 210)), ("old.jsonl", range(3, 5))):
    land(store, "clicks", name, minutes)
    hr.open(root)[resolve_pipeline("clicks")].run()
hr.open(root)[resolve_pipeline("clicks")].backfill(branch="complete")

import headrace.runs.publishing.patch as patching
publish = patching._publish_patch

def killed(catalog, outcome, run_id):
    raise KeyboardInterrupt

form = {"pipeline": "clicks", "branch": "complete", "patch": True, "approve": False, "reason": "old clicks"}
patching._publish_patch = killed
try:
    decide("promote", "promote", run_id="patched", **form)
    raise AssertionError("the task was to be killed before it could publish")
except KeyboardInterrupt:
    patching._publish_patch = publish
answers["patch"] = decide("promote", "promote", run_id="patched", **form)
answers["patch again"] = decide("promote", "promote", run_id="patched", **form)
answers["patch's commit"] = next(e.to_json() for e in clicks.catalog.entries() if "a patch by branch" in e.message)

def backfilled(branch, **form):
    # the last two tasks of a backfill: a person is asked; nobody has answered; the person approves; both once more
    hr.open(root)[resolve_pipeline("clicks")].backfill(branch=branch)
    land(store, "clicks", f"{branch}.jsonl", range(205, 215))
    hr.open(root)[resolve_pipeline("clicks")].run()  # main goes on meanwhile
    form = {"pipeline": "clicks", "branch": branch, "promote": "when approved", "reason": "a mistake", **form}
    run = {"run_id": branch, **form}
    asked = decide("clicks_backfill", "approve", None, **run)
    refused = decide("clicks_backfill", "cut_over", None, **run)
    approved = decide("clicks_backfill", "cut_over", YES, **run)
    again = [decide("clicks_backfill", task, None, **run) for task in ("approve", "cut_over")]
    return {"asked": asked, "refused": refused, "approved": approved, "again": again}

answers["backfill"] = backfilled("whole", patch=False)
land(store, "clicks", "older.jsonl", range(3, 6))
hr.open(root)[resolve_pipeline("clicks")].run()  # too late, so the branch has more of windows that have expired
answers["patching"] = backfilled("rows", patch=True)
answers["patched"] = [e.to_json() for e in clicks.catalog.entries() if "a patch by branch rows" in e.message]
hr.open(root)[resolve_pipeline("clicks")].backfill(branch="other")
form = {"pipeline": "clicks", "branch": "other", "promote": "when approved", "patch": False, "reason": None}
decide("clicks_backfill", "approve", None, run_id="other", **form)
clicks.drop("other")
hr.open(root)[resolve_pipeline("clicks")].backfill(branch="other")
answers["backfill outdated"] = decide("clicks_backfill", "cut_over", YES, run_id="other", **form)
answers["backfill unseen"] = decide("clicks_backfill", "cut_over", YES, run_id="unseen", **form)
clicks.drop("other")
def asked(branch, task, approval=None):
    form = {"pipeline": "clicks", "branch": branch, "promote": "when approved", "patch": False, "reason": "once more"}
    return decide("clicks_backfill", task, approval, run_id=branch, **form)

def promoted(branch):
    hr.open(root)[resolve_pipeline("clicks")].backfill(branch=branch)
    asked(branch, "approve")
    return asked(branch, "cut_over", YES)

promoted("one")
overtaking = promoted("two")
answers["overtaken"] = {"last": overtaking["entry"], "again": [asked("one", one) for one in ("approve", "cut_over")]}
land(store, "clicks", "yet.jsonl", range(206, 209))
hr.open(root)[resolve_pipeline("clicks")].run()
hr.open(root)[resolve_pipeline("clicks")].backfill(branch="one")  # as its replay does that is cleared with the rest
answers["begun again"] = {
    "stale": asked("one", "cut_over", YES),
    "asked": asked("one", "approve"),
    "unapproved": asked("one", "cut_over"),
    "approved": asked("one", "cut_over", YES),
}
hr.open(root)[resolve_pipeline("clicks")].backfill(branch="one")
clicks.drop("one")  # as another backfill drops what is left behind
answers["begun again and dropped"] = [asked("one", one) for one in ("approve", "cut_over")]
never = {"pipeline": "clicks", "branch": "rows", "promote": "never", "patch": False, "reason": None}
at_once = {**never, "promote": "at once"}
answers["never"] = decide("clicks_backfill", "cut_over", **never)
answers["how long"] = dags["headrace_clicks_backfill"].params.get_param("branch").description
answers["asks nobody"] = decide("clicks_backfill", "approve", **at_once)
print(json.dumps({"answers": answers, "first": first}, default=str))
"""
)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What each decision gave, which events it made, and the newest entry of the log after it."""
    folder: Path = tmp_path_factory.mktemp("decisions")
    (folder / "pipelines").mkdir()
    for name, most in (("clicks", None), ("orders", 1)):
        retention_text = ", retention=hr.Retention(schedule=None)" if name == "orders" else ""
        write_pipeline(folder / "pipelines", name, options='executor="local"' + retention_text, most=most)
    environment = {"HEADRACE_ROOT": (folder / "root").as_uri(), "HEADRACE_PIPELINES": str(folder / "pipelines")}
    found_answer = python(SCRIPT, folder / "home", environment)
    return {**found_answer["answers"], "first": found_answer["first"]}


def test_a_release_of_what_readers_see_says_so_and_ends_well(answers: Any) -> None:
    second_answer, first = answers["release again"], answers["release"]
    seen_snapshot = first["entry"]["refs"]["published"]
    assert second_answer["xcom"]["said"] == [
        f"published already: readers see {seen_snapshot} since an earlier entry of the log"
    ]
    assert second_answer["entry"] == first["entry"]
    assert second_answer["events"] == []


def test_a_release_is_recorded_with_its_reason_and_announced(answers: Any) -> None:
    answer = answers["release"]
    assert answer["entry"]["kind"] == "release"
    assert answer["entry"]["message"] == f"seen with finance ({answer['by']})"
    assert answer["events"] == [["headrace_orders", answer["xcom"]["published"]]]


def test_a_misspelt_field_does_nothing(answers: Any) -> None:
    answer = answers["misspelt"]
    assert "snapshot" in answer["message"].partition("did you mean")[2]
    assert answer["entry"]["kind"] != "release"


def test_a_rehearsed_rollback_moves_nothing_and_says_what_it_would(answers: Any) -> None:
    answer = answers["rollback rehearsed"]
    assert answer["entry"]["kind"] == "publish"
    assert [line for line in answer["xcom"]["said"] if line.startswith("main would move from")]
    assert not answer["events"]


def test_a_tag_a_fork_and_a_drop_are_entries_of_the_log(answers: Any) -> None:
    assert answers["tag"]["entry"]["message"].endswith(f"as good: month end ({answers['tag']['by']})")
    assert answers["fork"]["entry"]["message"].endswith(f": no reason given ({answers['fork']['by']})")
    assert answers["drop"]["entry"]["message"] == f"dropped trial: not needed ({answers['drop']['by']})"


@pytest.mark.parametrize("kind", ["fork", "tag", "drop", "replay", "promote"])
def test_a_decision_without_a_reason_is_made_and_warns_that_one_will_be_required(answers: Any, kind: str) -> None:
    answer = answers[f"{kind} without a reason"]
    assert [line for line in answer["xcom"]["said"] if "From 0.4.0 on its form requires one" in line]
    assert "From 0.4.0 on its form requires one" in answer["warned"]
    if kind != "replay":  # which leaves no entry
        assert f"no reason given ({answer['by']})" in answer["entry"]["message"]


@pytest.mark.parametrize("kind", ["release", "tag", "rollback", "drop"])
def test_a_decision_with_a_reason_warns_of_nothing(answers: Any, kind: str) -> None:
    assert not [line for line in answers[kind]["xcom"]["said"] if "reason" in line and "0.4.0" in line]


@pytest.mark.parametrize("kind", ["release", "tag", "fork", "drop", "rollback"])
def test_a_decision_that_an_earlier_try_has_made_is_made_once(answers: Any, kind: str) -> None:
    first_answer, second_answer = answers[kind], answers[kind]["again"]
    (line,) = second_answer["xcom"]["said"]
    assert line.startswith(f"done by an earlier try of this run: entry {first_answer['entry']['number']} of the log (")
    assert second_answer["entry"] == first_answer["entry"], "nothing moved"
    assert second_answer["events"] == first_answer["events"], (
        "the earlier try may have ended before Airflow had its event"
    )


def test_dead_letters_land_again(answers: Any) -> None:
    assert "records: 3" in answers["replay"]["xcom"]["said"]
    assert "records: 0" in answers["replay"]["again"]["xcom"]["said"]


def test_all_pipelines_are_looked_after_and_nothing_expires_that_nobody_asked_for(answers: Any) -> None:
    never_ran = ["it has not run yet: nothing is stored"]
    ours = {name: lines for name, lines in answers["maintain"].items() if lines != never_ran}
    assert {*ours} == {"clicks", "orders"}
    assert all(lines[-1] == "nothing is missing" for lines in ours.values())
    assert answers["maintain"]["clicks"][0].startswith("nothing expires: it has no retention")
    assert "are deleted" in answers["maintain"]["orders"][0]
    ((name, answer),) = answers["maintain one"].items()
    assert name == "clicks"
    assert "would be marked for the next run" in answer[0]


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("soon", "config.form: keep_for='soon' is not a length of time"),
        ("nothing", "config.form: the form says neither to expire nor to check"),
        ("unknown", "there is no pipeline 'clickz'"),
    ],
)
def test_a_form_that_makes_no_sense_looks_after_nothing(answers: Any, how: str, why: str) -> None:
    assert why in answers[f"maintain {how}"]


def test_pipelines_are_looked_after_in_a_process_of_its_own_whose_memory_is_limited(answers: Any) -> None:
    answer = answers["maintain in little memory"]
    assert answer.startswith("config.local_memory: ")
    assert "look after one pipeline at a time" in answer


def test_a_promotion_is_rehearsed_as_a_table_and_names_who_approved_it(answers: Any) -> None:
    assert answers["rehearse"]["xcom"].startswith("It would make branch")
    answer = answers["promote"]
    assert answer["entry"]["message"] == f"promoted again: late files ({answer['by']}), approved by bob"
    assert answer["events"] == [["headrace_clicks", answer["xcom"]["published"]]]


def test_nothing_is_promoted_that_nobody_has_approved(answers: Any) -> None:
    answer = answers["promote unapproved"]
    assert answer["message"].startswith("config.not_approved: ")
    assert answer["entry"]["kind"] != "promote"


@pytest.mark.parametrize("how", ["promote", "backfill"])
@pytest.mark.parametrize(("seen_state", "why"), [("outdated", "rehearsal_outdated"), ("unseen", "not_rehearsed")])
def test_no_branch_is_promoted_but_the_one_that_was_shown(answers: Any, how: str, seen_state: str, why: str) -> None:
    answer = answers[f"{how} {seen_state}"]
    assert answer["message"].startswith(f"config.{why}: ")
    assert answer["entry"]["kind"] != "promote"


def test_a_promotion_whose_tasks_are_cleared_asks_nobody_and_stays_as_it_is(answers: Any) -> None:
    rehearsed_answer, requested_answer, second_answer = (
        answers[f"{task} after it"] for task in ("rehearse", "approve", "promote")
    )
    assert rehearsed_answer["xcom"].startswith("done by an earlier try of this run: entry ")
    assert requested_answer["xcom"] is None
    assert second_answer["entry"] == answers["promote"]["entry"]
    assert second_answer["events"] == answers["promote"]["events"]


def test_a_promotion_that_would_be_refused_asks_nobody(answers: Any) -> None:
    assert "gone" in answers["rehearse gone"]["message"]


def test_a_patch_whose_task_was_killed_is_published_by_the_next_try_and_made_once(answers: Any) -> None:
    answer, commit = answers["patch"], answers["patch's commit"]
    assert commit["message"].endswith(f", a patch by branch complete: old clicks ({answer['by']})")
    assert answer["entry"]["kind"] == "publish"
    assert answer["events"] == [["headrace_clicks", commit["refs"]["main"]]]
    assert answers["patch again"]["entry"] == answer["entry"]


@pytest.mark.parametrize("how", ["backfill", "patching"])
def test_a_backfill_waits_for_a_person_who_has_seen_what_changes(answers: Any, how: str) -> None:
    answer = answers[how]
    assert answer["asked"]["raised"] == "TaskAwaitingInput"
    assert answer["asked"]["shown"].startswith(
        {"backfill": "It would make branch", "patching": "It would replace rows"}[how]
    )
    assert "Before that the branch catches up" in answer["asked"]["shown"]
    assert answer["refused"]["message"].startswith("config.not_approved: ")
    assert answer["refused"]["entry"] == answer["asked"]["entry"], "nothing moved"
    approvals = f"a mistake ({answer['approved']['by']}), approved by bob"
    if how == "backfill":
        assert answer["approved"]["entry"]["message"] == f"promoted whole: {approvals}"
    else:
        (commit,) = answers["patched"]
        assert commit["message"].endswith(f"a patch by branch rows: {approvals}")
    assert answer["approved"]["events"] == [["headrace_clicks", answer["approved"]["entry"]["refs"]["published"]]]


@pytest.mark.parametrize("how", ["backfill", "patching"])
def test_a_backfill_whose_tasks_are_cleared_asks_nobody_and_stays_as_it_is(answers: Any, how: str) -> None:
    answer = answers[how]
    requested_answer, second_answer = answer["again"]
    assert (requested_answer["xcom"], requested_answer["shown"]) == (None, "")
    assert second_answer["entry"] == answer["approved"]["entry"]
    assert second_answer["events"] == answer["approved"]["events"]


def test_a_backfill_that_another_has_overtaken_stays_so_if_its_tasks_are_cleared(answers: Any) -> None:
    answer = answers["overtaken"]
    assert [one["xcom"] is None for one in answer["again"]] == [True, False], answer
    assert answer["again"][-1]["entry"] == answer["last"], "nothing moved"
    assert answer["again"][-1]["events"] == [["headrace_clicks", answer["last"]["refs"]["published"]]]


def test_a_backfill_that_is_cleared_as_a_whole_asks_again_before_readers_see_what_it_has_computed(answers: Any) -> None:
    answer = answers["begun again"]
    assert answer["stale"]["message"].startswith("config.rehearsal_outdated: ")
    assert answer["asked"]["raised"] == "TaskAwaitingInput"
    assert answer["unapproved"]["message"].startswith("config.not_approved: ")
    assert answer["unapproved"]["entry"] == answer["stale"]["entry"], "nothing moved"
    approval = f"promoted one: once more ({answer['approved']['by']}), approved by bob"
    assert answer["approved"]["entry"]["message"] == approval


def test_a_backfill_whose_branch_is_dropped_after_it_began_again_stays_promoted(answers: Any) -> None:
    approval, cut_over = answers["begun again and dropped"]
    assert approval["xcom"] is None, approval
    assert cut_over["entry"] == approval["entry"], "nothing moved"
    assert cut_over["events"] == [["headrace_clicks", answers["begun again"]["approved"]["entry"]["refs"]["published"]]]


def test_a_backfill_may_ask_nobody_or_leave_its_branch(answers: Any) -> None:
    assert answers["asks nobody"]["xcom"] is None
    assert answers["never"]["raised"] == "AirflowSkipException"
    assert "branch rows stays for you to look at, until it is dropped" in answers["never"]["message"]


def test_the_form_says_how_long_a_branch_stays_that_nobody_promotes(answers: Any) -> None:
    text = answers["how long"]
    assert "not changed for 14 days" in text
    assert "once there are 3 newer ones" in text


def test_a_rollback_moves_what_readers_see_and_announces_it(answers: Any) -> None:
    answer = answers["rollback"]
    assert answer["entry"]["message"] == f"a wrong file ({answer['by']})"
    assert answer["events"] == [["headrace_clicks", answers["first"]]]
    assert "raised" in answers["rollback again"]
