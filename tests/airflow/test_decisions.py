"""What people decide in Airflow: each decision as a worker carries it out, and what the pipeline's log says then."""

from pathlib import Path
from typing import Any

import pytest

from tests.airflow.subprocesses import TWO_PIPELINES, python, write_pipeline

pytestmark = pytest.mark.slow  # importing Airflow takes seconds

SCRIPT = (
    TWO_PIPELINES
    + """
import types
from collections import defaultdict

clicks = hr.open(root)["clicks"]
first = [*clicks.catalog.ancestry(clicks.show().snapshot_id)][-1].snapshot_id

from airflow.sdk.bases.operator import ExecutorSafeguard
from headrace_airflow.dag_files import asked_for

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

def decide(kind, task=None, approval=None, /, **form):
    dag = dags[f"headrace_{kind}"]
    run = types.SimpleNamespace(conf=form, triggering_user_name="ada")
    ti = types.SimpleNamespace(xcom_pull=lambda task_ids: approval)
    events = Events()
    try:
        found = {"xcom": dag.get_task(task or kind).execute(
            {"params": form, "dag_run": run, "ti": ti, "outlet_events": events}
        )}
    except Exception as error:
        found = {"raised": type(error).__name__, "message": str(error)}
    handle = hr.open(root)[form["pipeline"]]
    return {
        **found,
        "events": [event for each in events.values() for event in each.added],
        "entry": handle.catalog.log(limit=1)[0].to_json(),
    }

DAY = ("2026-11-20", "2026-11-21")
answers = {
    "misspelt": decide("release", pipeline="orders", snapshoot="main", reason="seen"),
    "release": decide("release", pipeline="orders", snapshot=None, reason="seen with finance"),
    "rollback rehearsed": decide("rollback", pipeline="clicks", to=first, branch=None, dry_run=True, reason="a try"),
    "tag": decide("tag", pipeline="clicks", name="good", snapshot=None, reason="month end"),
    "fork": decide("fork", pipeline="clicks", name="trial", snapshot="good", reason=None),
    "drop": decide("drop", pipeline="clicks", name="trial", reason="not needed"),
    "replay": decide("replay", pipeline="clicks", records="rejected", input=None, to=None, at=None, reason=None),
    "maintain": decide("maintain", pipeline="clicks", deep=True, repair=False, reason=None),
    "unknown": decide("maintain", pipeline="orders", deep=False, repair=False, reason=None),
}
hr.open(root)[resolve("clicks")].backfill(start=DAY[0], end=DAY[1], branch="again")
answers |= {
    "rehearse": decide("promote", "rehearse", pipeline="clicks", branch="again", patch=False, approve=True, reason="x"),
    "promote": decide(
        "promote", "promote", {"responded_by_user": {"id": "1", "name": "bob"}},
        pipeline="clicks", branch="again", patch=False, approve=True, reason="late files",
    ),
    "rehearse gone": decide(
        "promote", "rehearse", pipeline="clicks", branch="gone", patch=False, approve=True, reason=None
    ),
    "rollback": decide("rollback", pipeline="clicks", to=first, branch=None, dry_run=False, reason="a wrong file"),
    "rollback again": decide("rollback", pipeline="clicks", to="nothing", branch=None, dry_run=False, reason="oops"),
}
print(json.dumps({"answers": answers, "first": first}, default=str))
"""
)


@pytest.fixture(scope="module")
def decided(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What each decision gave, which events it made, and the newest entry of the log after it."""
    folder: Path = tmp_path_factory.mktemp("decisions")
    (folder / "pipelines").mkdir()
    for name, most in (("clicks", 100), ("orders", 1)):
        write_pipeline(folder / "pipelines", name, options='executor="local"', most=most)
    environment = {"HEADRACE_ROOT": (folder / "root").as_uri(), "HEADRACE_PIPELINES": str(folder / "pipelines")}
    found = python(SCRIPT, folder / "home", environment)
    return {**found["answers"], "first": found["first"]}


def test_a_release_is_recorded_with_its_reason_and_announced(decided: Any) -> None:
    found = decided["release"]
    assert found["entry"]["kind"] == "release"
    assert found["entry"]["message"] == "seen with finance (ada, in Airflow)"
    assert found["events"] == [["headrace_orders", found["xcom"]["published"]]]


def test_a_misspelt_field_does_nothing(decided: Any) -> None:
    found = decided["misspelt"]
    assert "snapshot" in found["message"].partition("did you mean")[2]
    assert found["entry"]["kind"] != "release"


def test_a_rehearsed_rollback_moves_nothing_and_says_what_it_would(decided: Any) -> None:
    found = decided["rollback rehearsed"]
    assert found["entry"]["kind"] == "publish"
    assert [line for line in found["xcom"]["said"] if line.startswith("main would move from")]
    assert not found["events"]


def test_a_tag_a_fork_and_a_drop_are_entries_of_the_log(decided: Any) -> None:
    assert decided["tag"]["entry"]["message"].endswith("as good: month end (ada, in Airflow)")
    assert decided["fork"]["entry"]["kind"] == "fork"
    assert decided["drop"]["entry"]["message"] == "dropped trial: not needed (ada, in Airflow)"


def test_dead_letters_land_again(decided: Any) -> None:
    assert "records: 3" in decided["replay"]["xcom"]["said"]


def test_a_check_says_that_nothing_is_missing(decided: Any) -> None:
    assert decided["maintain"]["xcom"]["said"][-1] == "nothing is missing"


def test_a_promotion_is_rehearsed_as_a_table_and_names_who_approved_it(decided: Any) -> None:
    assert decided["rehearse"]["xcom"].startswith("Readers would see")
    found = decided["promote"]
    assert found["entry"]["message"] == "promoted again: late files (ada, in Airflow), approved by bob"
    assert found["events"] == [["headrace_clicks", found["xcom"]["published"]]]


def test_a_promotion_that_would_be_refused_asks_nobody(decided: Any) -> None:
    assert "gone" in decided["rehearse gone"]["message"]


def test_a_rollback_moves_what_readers_see_and_announces_it(decided: Any) -> None:
    found = decided["rollback"]
    assert found["entry"]["message"] == "a wrong file (ada, in Airflow)"
    assert found["events"] == [["headrace_clicks", decided["first"]]]
    assert "raised" in decided["rollback again"]
