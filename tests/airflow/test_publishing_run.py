"""The run of the task *process* audits and publishes; the tasks after it show, announce, and do what it has not done.

Real runs without Spark in processes that are killed at chosen places, without an Airflow that runs: its events alone
are a list. ``tests/airflow/test_end_to_end.py`` has them from a real one.
"""

import os
from typing import Any

import pytest

from tests.airflow.subprocesses import TASKS, python, write_pipeline

pytestmark = pytest.mark.slow  # importing Airflow takes seconds

DIES = """
import os, signal, sys
from pathlib import Path
where = Path(os.environ["DIES"])
if sys.argv[0].endswith("submit.py") and where.exists():
    from headrace.runs.publishing import audits
    from headrace.runs.publishing.publish import PlannedPublish
    publishes = PlannedPublish.publish
    def die(*_, **__):
        os.kill(os.getpid(), signal.SIGKILL)
    def publish_and_die(*given, **named):
        publishes(*given, **named)
        die()
    match where.read_text():
        case "before the audit": audits.run_audit = die
        case "before publishing": PlannedPublish.publish = die
        case "after publishing": PlannedPublish.publish = publish_and_die
"""
"""What a pipeline's file adds: the process that computes kills itself where the file ``DIES`` says."""

STORY = (
    TASKS
    + """
from headrace.pipeline.loading.registry import resolve_pipeline
from headrace_snapshots.catalog import Catalog
import headrace as hr

announced = []  # what the asset's events say, oldest first

class Events:
    def __getitem__(self, _): return self
    def ascending(self, _): return self
    def limit(self, count): return [types.SimpleNamespace(extra=extra) for extra in announced[::-1][:count]]

class Outlets(dict):
    def __missing__(self, outlet):
        self[outlet] = types.SimpleNamespace(extra=None)
        return self[outlet]

def run(*tasks, name, pipeline="clicks", **form):
    outlets = Outlets()
    context = {"inlet_events": Events(), "outlet_events": outlets}
    done = {task: execute("process", task, pipeline, run_id=name, context=context, **form) for task in tasks}
    told = [event.extra for event in outlets.values() if event.extra is not None]
    announced.extend(told)
    catalog = Catalog(store, pipeline)
    refs, entry = catalog.head().refs, catalog.last_move("published")
    return {
        "tasks": done,
        "main": refs.get("main"),
        "published": refs.get("published"),
        "announced": [extra["snapshot"] for extra in told],
        "counted": sum(extra["counts"]["records"] for extra in told),
        "published by": None if entry is None else (entry.detail or {}).get("owner"),
    }

minute = 0
def more(pipeline="clicks", bad=""):
    global minute
    minute += 1
    land(f"{minute:03}.jsonl", minute, pipeline, bad)

dies = Path(os.environ["DIES"])
done, ALL = {}, ("process", "audit", "publish")
more()
done["undisturbed"] = run(*ALL, name="undisturbed")
done["again"] = run(*ALL, name="undisturbed")
done["nothing new"] = run(*ALL, name="nothing")
for place in ("before the audit", "before publishing", "after publishing"):
    more()
    dies.write_text(place)
    done[place] = run("process", name=place)
    dies.unlink()
    done[f"{place}, marked"] = run("audit", "publish", name=place)
    done[f"{place}, cleared"] = run(*ALL, name=place)
more()
dies.write_text("before publishing")
done["to be retried"] = run("process", name="retry")
dies.unlink()
done["retried"] = run(*ALL, name="retry")
more()
done["on a branch"] = run(*ALL, name="branch", branch="mine")
done["on main beside it"] = run(*ALL, name="main")
more()
hr.open(os.environ["HEADRACE_ROOT"])[resolve_pipeline("clicks")].run(publish=False)
done["not published on the command line"] = run("audit", "publish", name="shell")
rows = hr.open(os.environ["HEADRACE_ROOT"])["clicks"].read("current", at="published").to_arrow().to_pylist()
done["clicks"] = sorted([row["window_start"].minute, row["clicks"]] for row in rows)
announced.clear()
more("limited", "no JSON")
done["bad"] = run(*ALL[:2], name="bad", pipeline="limited")
Catalog(store, "limited").release(done["bad"]["main"], "ada: a test")
done["bad, released, cleared"] = run(*ALL, name="bad", pipeline="limited")
more("limited")
done["good after bad"] = run(*ALL, name="good", pipeline="limited")
print(json.dumps(done))
"""
)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What tasks returned or raised, what readers see then, which events the asset had, step by step of the story."""
    folder = tmp_path_factory.mktemp("publishing")
    clicks = write_pipeline(folder, "clicks", options='executor="local"', most=None)
    clicks.write_text(clicks.read_text() + DIES)
    write_pipeline(folder, "limited", options='executor="local", limits=hr.Limits(rejected="1%")', most=None)
    environment = {
        "PATH": os.environ["PATH"],
        "SUBMITTED": str(folder / "submitted"),
        "DIES": str(folder / "dies"),
        "HEADRACE_PIPELINES": str(folder),
        "HEADRACE_ROOT": (folder / "root").as_uri(),
    }
    return python(STORY, folder / "airflow", environment)


def test_the_run_publishes_what_its_audit_finds_good_and_the_log_names_it(answers: Any) -> None:
    first = answers["undisturbed"]
    processed_result = first["tasks"]["process"]["xcom"]
    assert processed_result["published"] == processed_result["snapshot"] == first["published"] == first["main"]
    assert first["published by"] == processed_result["run_id"]
    assert first["tasks"]["audit"]["xcom"] == {"from": None, "to": first["main"], "success": True}
    assert (first["announced"], first["counted"]) == ([first["main"]], 1)


def test_a_run_that_is_cleared_shows_its_audit_again_and_announces_nothing_twice(answers: Any) -> None:
    second_answer = answers["again"]
    assert second_answer["main"] == answers["undisturbed"]["main"]
    assert second_answer["tasks"]["audit"] == answers["undisturbed"]["tasks"]["audit"]
    assert second_answer["tasks"]["publish"]["raised"] == "AirflowSkipException"


def test_a_run_that_finds_nothing_shows_no_audit_of_another(answers: Any) -> None:
    assert answers["nothing new"]["tasks"]["audit"]["xcom"] == {}
    assert answers["nothing new"]["announced"] == []


@pytest.mark.parametrize("place", ["before the audit", "before publishing", "after publishing"])
def test_what_a_killed_run_has_not_done_the_tasks_after_it_do(answers: Any, place: str) -> None:
    killed_answer, marked_answer, cleared_answer = (
        answers[place],
        answers[f"{place}, marked"],
        answers[f"{place}, cleared"],
    )
    assert killed_answer["tasks"]["process"]["raised"] == "retry"
    assert (killed_answer["main"] == killed_answer["published"]) == (place == "after publishing")
    assert marked_answer["published"] == marked_answer["main"] == killed_answer["main"]
    audited_result = marked_answer["tasks"]["audit"]["xcom"]
    assert (audited_result["to"], audited_result["success"]) == (killed_answer["main"], True)
    assert (marked_answer["announced"], marked_answer["counted"]) == ([killed_answer["main"]], 1)
    assert (cleared_answer["main"], cleared_answer["published"], cleared_answer["announced"]) == (
        killed_answer["main"],
        killed_answer["main"],
        [],
    )
    assert cleared_answer["tasks"]["audit"]["xcom"] == audited_result


def test_another_try_publishes_what_the_killed_one_has_committed(answers: Any) -> None:
    answer_before, answer_after = answers["to be retried"], answers["retried"]
    assert answer_before["published"] != answer_before["main"] == answer_after["main"] == answer_after["published"]
    assert answer_after["published by"] == answer_after["tasks"]["process"]["xcom"]["run_id"]
    assert answer_after["announced"] == [answer_after["main"]]


def test_a_run_on_a_branch_publishes_nothing(answers: Any) -> None:
    branch, answer_before = answers["on a branch"], answers["retried"]
    assert branch["tasks"]["process"]["xcom"]["epochs"] > 0
    assert (branch["main"], branch["published"]) == (answer_before["main"], answer_before["published"])
    assert branch["tasks"]["publish"]["raised"] == "AirflowSkipException"
    assert answers["on main beside it"]["published"] == answers["on main beside it"]["main"] != answer_before["main"]


def test_the_tasks_after_it_publish_what_a_person_has_left_unpublished(answers: Any) -> None:
    left = answers["not published on the command line"]
    assert left["tasks"]["audit"]["xcom"]["to"] == left["main"] == left["published"]
    assert left["announced"] == [left["main"]]


def test_readers_see_every_click_once(answers: Any) -> None:
    minutes = len(answers["clicks"])
    assert minutes == 7
    assert answers["clicks"] == [[minute, 1] for minute in range(1, minutes + 1)]


def test_what_the_audit_finds_bad_is_held_back_and_the_task_audit_says_so(answers: Any) -> None:
    bad = answers["bad"]
    assert bad["tasks"]["process"]["xcom"]["published"] is bad["published"] is None
    assert bad["tasks"]["audit"]["raised"] == "fail"
    assert "data.limit_exceeded" in bad["tasks"]["audit"]["message"]
    released_answer = answers["bad, released, cleared"]
    assert released_answer["published by"] is None
    assert released_answer["tasks"]["audit"]["xcom"] == {}
    assert released_answer["announced"] == [released_answer["main"]] == [bad["main"]]
    good = answers["good after bad"]
    assert good["published"] == good["main"] != bad["main"]
    assert good["tasks"]["audit"]["xcom"]["from"] == bad["main"]
