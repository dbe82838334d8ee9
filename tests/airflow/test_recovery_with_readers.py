"""A recovery in Airflow that takes readers back, too: where they go is said and approved first, and held against what
they have done meanwhile.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.airflow.subprocesses import python, write_pipeline
from tests.airflow.test_recovery import STEPS

pytestmark = pytest.mark.slow  # importing Airflow takes seconds

READER = """
import headrace as hr
from headrace import col

def reading(name, root=None):
    return hr.Pipeline(
        name,
        hr.published("clicks", {"user": str, "clicks": int}, root=root),
        key="user",
        what={"clicks": col("clicks").sum()},
        where=hr.FixedWindows("1h"),
        when=hr.on_update(),
        how=hr.retracting("1d"),
        executor="local",
    )

daily = reading("daily")
"""

SCRIPT = (
    """
import json, os, shutil
from runpy import run_path

import headrace as hr
from headrace.pipeline.loading.registry import resolve_pipeline
from headrace_snapshots.store import open_store
from tests.airflow.test_end_to_end import land

root = os.environ["HEADRACE_ROOT"]
store = open_store(root)
reading = run_path(os.environ["HEADRACE_PIPELINES"] + "/daily.py")["reading"]

def grow(number, *readers):
    land(store, "clicks", f"{number}.jsonl", range(number * 7, number * 7 + 10))
    for name in ("clicks", *readers):
        hr.open(root, create=True)[resolve_pipeline(name)].run()

for number in range(3):
    grow(number, "daily")
"""
    + STEPS
    + """
from headrace_airflow.run_ids import request_of

def recover(task, xcoms={}, run_id="run", **form):
    return {**step("recover", task, xcoms, run_id, snapshot=to, **form), "daily": line_of("daily")[0]}

def line_of(name):
    catalog = hr.open(root)[name].catalog
    return [manifest.snapshot_id for manifest in catalog.ancestry(catalog.head().refs["main"])]

def rolled_back(name):
    return [entry.message for entry in hr.open(root)[name].catalog.entries() if entry.kind.value == "rollback"]

READERS = {"with_readers": True}
line, daily = line_of("clicks"), line_of("daily")
to = line[1]
answers = {"line": line, "daily": daily}
answers["alone"] = recover("rehearse")
answers["rehearse"] = looked = recover("rehearse", **READERS)
left = {"rehearse": looked["xcom"], "approve": YES}
answers["approve"] = recover("approve", left, **READERS)
answers["rehearsed alone"] = recover("recover", {**left, "rehearse": answers["alone"]["xcom"]}, **READERS)

# a reader goes back and on, and there is a reader that nobody was shown
hr.open(root)["daily"].rollback(to=daily[2], message="a person's")
hr.open(root)[resolve_pipeline("daily")].run()
answers["reader moved"] = recover("recover", left, **READERS)
left = {"rehearse": recover("rehearse", **READERS)["xcom"], "approve": YES}
answers["reader came"] = recover("recover", {**left, "rehearse": {**left["rehearse"], "readers": {}}}, **READERS)
answers["looked again"] = left["rehearse"]

# both read on while a person looks at it, and a try ends once it has taken clicks back
grow(3, "daily")
grown = line_of("daily")
ti = types.SimpleNamespace(dag_id="headrace_clicks_recover", run_id="run", task_id="recover")
catalog.rollback("main", to, f"recovery {request_of({'ti': ti})}: why", replayed=True)
answers["half"] = {"daily": grown, "rolled back": rolled_back("daily")}
answers["recover"] = recover("recover", left, **READERS)
answers["rolled back"] = rolled_back("daily")
hr.open(root)[resolve_pipeline("daily")].run()
answers["read on"] = hr.open(root)["daily"].current().to_arrow().num_rows
answers["recover again"] = recover("recover", left, **READERS)
answers["rolled back again"] = rolled_back("daily")

# a whole one, in one go
grow(4, "daily")
to = line_of("clicks")[1]
left = {"rehearse": recover("rehearse", run_id="whole", **READERS)["xcom"]}
grow(5, "daily")
answers["whole"] = recover("recover", left, run_id="whole", when="at once", **READERS)
answers["whole to"] = left["rehearse"]

# none of the reader's snapshots is from before it
hr.open(root)["daily"].rollback(to="beginning", message="a person's")
hr.open(root)[resolve_pipeline("daily")].run()
grow(6, "daily")
to = line[2]
answers["cannot follow"] = recover("rehearse", run_id="no", **READERS)
answers["whole again"] = recover("recover", left, run_id="whole", when="at once", **READERS)

# one under another root that is gone
other = root + "-other"
hr.open(other, create=True)[reading("far", root)].run()
shutil.rmtree(Path(urlsplit(other).path))
to = line_of("clicks")[0]
answers["unseen"] = recover("rehearse", run_id="no", **READERS)
print(json.dumps(answers, default=str))
"""
)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What each step gave, and where both pipelines were after it."""
    folder: Path = tmp_path_factory.mktemp("recovery")
    (folder / "pipelines").mkdir()
    write_pipeline(folder / "pipelines", "clicks", options='executor="local"', most=None)
    (folder / "pipelines" / "daily.py").write_text(READER)
    environment = {"HEADRACE_ROOT": (folder / "root").as_uri(), "HEADRACE_PIPELINES": str(folder / "pipelines")}
    return python(SCRIPT, folder / "home", environment)


def test_where_readers_go_is_said_first_and_nothing_moves(answers: Any) -> None:
    reported_lines = answers["rehearse"]["xcom"]["said"]
    assert not [line for line in answers["alone"]["xcom"]["said"] if "reader daily" in line]
    (daily,) = [line for line in reported_lines if line.startswith("reader daily: ")]
    assert f"main moves from {answers['daily'][0]} to {answers['daily'][1]}; 1 epoch with " in daily
    assert any(line.startswith("readers were looked for under ") for line in reported_lines)
    assert answers["rehearse"]["log"] == reported_lines
    assert (answers["rehearse"]["refs"]["main"], answers["rehearse"]["daily"]) == (
        answers["line"][0],
        answers["daily"][0],
    )


def test_the_person_who_approves_sees_where_readers_go(answers: Any) -> None:
    request = answers["approve"]
    assert request["raised"] == "TaskAwaitingInput"
    assert f"* reader daily: main moves from {answers['daily'][0]} to {answers['daily'][1]}" in request["shown"]
    assert "* readers were looked for under " in request["shown"]


def test_readers_that_nobody_was_shown_go_nowhere(answers: Any) -> None:
    assert answers["rehearsed alone"]["message"].startswith("config.not_rehearsed: ")
    for refused_name in ("reader moved", "reader came"):
        assert answers[refused_name]["message"].startswith("config.rehearsal_outdated: "), refused_name
        assert answers[refused_name]["refs"]["main"] == answers["line"][0]
    assert f"reader daily is at {answers['reader moved']['daily']} " in answers["reader moved"]["message"]
    assert "nobody knew of it" in answers["reader came"]["message"]


def test_another_try_takes_back_the_readers_that_the_first_had_left(answers: Any) -> None:
    target = answers["looked again"]["readers"]["daily"]["to"]
    assert answers["half"]["rolled back"] == ["a person's"]
    assert answers["recover"]["xcom"]["epochs"] > 0
    assert answers["recover"]["daily"] == target != answers["half"]["daily"][0]
    newest, *_ = answers["rolled back"]
    assert newest.startswith("recovery of clicks with its readers, ")
    assert "in Airflow: headrace_clicks_recover/run)" in newest
    assert answers["recover"]["refs"]["published"] == answers["line"][1], "an audit comes first"
    assert answers["read on"] > 0


def test_a_try_after_it_is_done_leaves_readers_where_they_are(answers: Any) -> None:
    assert "raised" not in answers["recover again"]
    assert answers["rolled back again"] == answers["rolled back"]
    assert answers["recover again"]["refs"]["main"] == answers["recover"]["refs"]["main"]


def test_readers_that_went_on_meanwhile_go_back_as_was_said(answers: Any) -> None:
    places = answers["whole to"]["readers"]["daily"]
    assert answers["whole"]["xcom"]["epochs"] > 0
    assert answers["whole"]["daily"] == places["to"] != places["head"]
    assert any(f"reader daily has gone back to {places['to']}" in line for line in answers["whole"]["log"])


def test_a_reader_that_cannot_follow_stops_it_before_anybody_is_asked(answers: Any) -> None:
    refused_answer = answers["cannot follow"]
    assert refused_answer["message"].startswith("restore.readers_cannot_follow: ")
    assert "headrace backfill daily --promote" in refused_answer["message"]
    assert any(line.startswith("reader daily: cannot follow: ") for line in refused_answer["log"])
    assert "raised" not in answers["whole again"], "what has gone back needs no reader that follows"


def test_a_reader_that_nobody_can_look_at_stops_it(answers: Any) -> None:
    refused_answer = answers["unseen"]
    assert refused_answer["message"].startswith("restore.readers_cannot_follow: ")
    assert "-other/far: cannot follow: " in "".join(refused_answer["log"])
