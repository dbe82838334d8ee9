"""What the app behind the pages answers, to whom: Airflow's own API server in a process, with its users and roles."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.subprocesses import TWO_PIPELINES, python, write_pipeline, write_shop

pytestmark = pytest.mark.airflow

SCRIPT = (
    TWO_PIPELINES
    + """
sales = os.environ["SALES"]
land(open_store(sales), "clicks", "0.jsonl", range(5))
hr.open(sales, create=True)[resolve_pipeline(os.environ["SALES_CLICKS"])].run()

TIMERS = "headrace_timers_process"
import logging
logging.disable(logging.CRITICAL)
from airflow.utils.db import initdb
initdb()
from airflow.models.dag import DagModel
from airflow.models.dagbundle import DagBundleModel
from airflow.utils.session import create_session
land(store, "shop", "0.jsonl", range(4))
shop = hr.open(root, create=True)[resolve_pipeline("shop")]
shop.run()
land(store, "shop", "1.jsonl", range(4, 9))
shop.run(without=["visits"])
with create_session() as session:
    session.add(DagBundleModel(name="dags"))
    session.flush()
    for name in ("clicks", "sales.clicks", "sales.waits", "risk.clicks", "gone.clicks"):
        session.add(DagModel(dag_id=f"headrace_{name}_process", bundle_name="dags", fileloc="x", is_paused=False))
from datetime import UTC, datetime
from airflow.models.dagrun import DagRun
from airflow.models.deadline import Deadline
from airflow.sdk.definitions.callback import SyncCallback
from headrace.application.submit import main
from headrace.runs.publishing.publish import publish_audited
from headrace_airflow.run_ids import run_id_begin

with create_session() as session:
    for number in range(2):
        run = DagRun(dag_id=TIMERS, run_id=f"manual__{number}.5:00", run_type="manual", state="running")
        session.add(run)
        session.flush()
        late = Deadline(datetime(2026, 11, 25, number, tzinfo=UTC), SyncCallback("os.getcwd"), run.id, None)
        late.missed = number == 1
        session.add(late)
land(store, "timers", "0.jsonl", range(10))
till = json.dumps({"user": "ada", "at": "2026-11-20T00:00:00Z", "n": 2**62})
store.write("landing/tills/0.jsonl", "\\n".join([till, till, till, ""]).encode())
run_id = run_id_begin("headrace_tills_process", "manual__1.5:00", "process") + "1-0123abcd"
assert not main(["process", "--pipeline", "tills", "--root", root, "--run-id", run_id, "--executor=local"])
from headrace.runs.reporting.results import update_note
seen = hr.open(root)["clicks"].show("published")
for name, snapshot in (("hour", seen.snapshot_id), ("day", seen.parent)):
    sink = hr.postgres(name, connection="warehouse")
    update_note(store, "clicks", "", sink, lambda held: held.with_delivery(snapshot, seen.epoch, 5, 2, entry=9))
for task in ("process", "audit"):
    run_id = run_id_begin(TIMERS, "manual__1.5:00", task) + "1-0123abcd"
    assert not main([task, "--pipeline", "timers", "--root", root, "--run-id", run_id, "--executor=local"])
publish_audited("timers", root, last_announced=None)
far = hr.open(os.environ["FAR"], create=True)
follows = resolve_pipeline("follows")
for reader in (hr.open(root)[follows], hr.open(sales)[follows], far[follows]):
    reader.run()
from airflow.api_fastapi.app import create_app
from fastapi.testclient import TestClient

def answers(asked):
    found = []
    with TestClient(create_app(apps="core")) as client:
        tokens = {}
        for user, path in asked:
            headers = {}
            if user:
                if user not in tokens:
                    login = {"username": user, "password": user}
                    tokens[user] = client.post("/auth/token", json=login).json()["access_token"]
                headers = {"Authorization": f"Bearer {tokens[user]}"}
            answer = client.get(f"/headrace/{path}", headers=headers)
            client.cookies.clear()
            is_json = answer.headers.get("content-type", "").startswith("application/json")
            said = [answer.headers.get("content-security-policy"), answer.text]
            found.append([answer.status_code, answer.json() if is_json else said])
    return found

with open(os.environ["ASKED"]) as file:
    print(json.dumps(answers(json.load(file))))
"""
)

DAG = "api/dags/headrace_orders_process"
CLICKS = "api/dags/headrace_clicks_process"
SAL = "sal"
"""A user who may read one root (``per_root``)."""

SALES = "api/dags/headrace_sales.clicks_process"
SALES_FOLLOWS = "api/dags/headrace_sales.follows_process"
RISK = "api/dags/headrace_risk.clicks_process"
ONE_ROOT = (
    "api/pipelines",
    "api/lineage",
    SALES,
    f"{SALES}/history",
    f"{SALES}/explain?key=ada",
    CLICKS,
    f"{CLICKS}/history",
    RISK,
)
DOCS = f"{DAG}/audits/main/docs/current?after=published"
TIMERS = "api/dags/headrace_timers_process"
TILLS = "api/dags/headrace_tills_process"
"""A pipeline with two outputs, one of which is parked by an error that quotes a key."""

FOLLOWS = "api/dags/headrace_follows_process"
"""A pipeline that reads clicks; it runs under three roots."""

SHOP = "api/dags/headrace_shop_process"
"""A pipeline with three outputs, one of which is parked."""

LARGE = f"{TILLS}/panes?key=ada&output=counts"
VALUES = (
    LARGE,
    f"{DAG}/rows/current?at=main",
    f"{DAG}/explain?key=ada",
    DOCS,
    f"{DAG}/panes/keys",
    f"{DAG}/panes?key=ada",
    f"{SHOP}/rows/current?at=main&output=hourly",
    f"{SHOP}/panes?key=ada&output=visits",
    f"{SHOP}/panes/keys?output=daily",
    f"{SHOP}/explain?key=ada&output=hourly",
)
OTHERS = (
    "api/pipelines",
    "api/lineage",
    f"{CLICKS}/lineage",
    f"{FOLLOWS}/lineage",
    DAG,
    CLICKS,
    f"{CLICKS}/graph",
    SHOP,
    f"{SHOP}/graph",
    f"{SHOP}/audits",
    f"{SHOP}/lateness?output=hourly",
    f"{SHOP}/diff?before=published&after=main&output=hourly",
    f"{DAG}/history",
    f"{DAG}/epochs",
    f"{DAG}/epochs/runs",
    TIMERS,
    f"{TIMERS}/epochs/runs",
    f"{DAG}/graph",
    f"{DAG}/lateness",
    f"{DAG}/audits",
    f"{DAG}/diff?before=published&after=main",
    f"{DAG}/snapshots/main",
    f"{DAG}/rehearsals/release?snapshot=main",
    f"{DAG}/rehearsals/rollback?to=beginning",
    f"{DAG}/recovery-targets",
    f"{DAG}/rehearsals/recover?to=published",
    f"{DAG}/runs/manual",
    TILLS,
    f"{TILLS}/runs/manual__1.5:00",
    f"{TIMERS}/runs/manual__1.5:00",
    f"{TIMERS}/runs/manual__1.5:00?task_id=process",
    f"{TIMERS}/runs/manual__1.5:00?task_id=proc",
    "static/console.js",
    "static/ui.js",
)
WRONG = {
    "static/app.py": 404,
    "static/..%2Fapp.py": 404,
    "openapi.json": 404,
    "docs": 404,
    "api/dags/tutorial/history": 404,
    f"{DAG}/rows/nonsense": 400,
    f"{DAG}/snapshots/gone": 400,
    f"{DAG}/history?limit=0": 422,
    f"{DAG}/explain": 400,
    f"{DAG}/audits/main/docs/current": 404,
    f"{DAG}/audits/main/docs/panes?after=published": 404,
    f"{DAG}/audits/main/docs/result": 422,
    f"{DAG}/audits/..%2Fmain/docs/current": 404,
    f"{DAG}/audits/gone/docs/current": 400,
    f"{DAG}/panes": 400,
    f"{DAG}/panes?key=ada&epochs=0": 422,
    f"{CLICKS}/rows/rejected?at=main": 200,
    f"{SHOP}/rows/current?at=main": 400,
    f"{SHOP}/rows/current?at=main&output=gone": 400,
    f"{SHOP}/rows/current?at=main&output=..%2F": 422,
    f"{SHOP}/lateness": 400,
    f"{SHOP}/diff?before=published&after=main": 400,
}

_TILLS = """
from datetime import datetime
import headrace as hr
from headrace import col

OF = {"key": "user", "where": hr.FixedWindows("1m"), "when": hr.on_update()}
tills = hr.Pipeline(
    "tills",
    hr.json("landing/tills", {"user": str, "at": datetime, "n": int}).event_time("at", bound="1m"),
    outputs={
        "sums": hr.Output(what={"n": col("n").sum()}, **OF),
        "counts": hr.Output(
            what={"n": hr.count(), "most": (col("n") + 1).max(), "large": (col("n").cast(float) * 1e300).max()}, **OF
        ),
    },
    executor="local",
)
"""

_FOLLOWS = """
import os
import headrace as hr
from headrace import col

follows = hr.Pipeline(
    "follows",
    hr.published("clicks", {"user": str, "clicks": int}, root=os.environ["HEADRACE_ROOT"]),
    key="user",
    what={"all": col("clicks").sum()},
    where=hr.FixedWindows("1h"),
    when=hr.on_update(),
    how=hr.retracting("1d"),
    executor="local",
)
"""

USUAL = """[
    hr.usual_volume(within=2, min_versions=1),
    hr.usual_distribution("user", distance=0.2, view="panes", severity="warn", min_versions=1, min_rows=1),
    hr.usual_distribution("clicks", distance=0.2, severity="warn", min_versions=1, min_rows=1),
]"""

Answers = dict[tuple[str | None, str], tuple[int, Any]]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """Status and body of what each user was answered, by user (None: nobody) and path."""
    folder: Path = tmp_path_factory.mktemp("pages")
    (folder / "pipelines").mkdir()
    for name, most in (("clicks", 100), ("orders", 1)):
        file = write_pipeline(folder / "pipelines", name, options=f'executor="local", usual={USUAL}', most=most)
    file.write_text(file.read_text().replace('bound="1m"', 'bound="1m", split=col("user")'))  # orders: a value in names
    timers = write_pipeline(folder / "pipelines", "timers", options='executor="local"')
    timers.write_text(timers.read_text().replace("early=hr.AfterCount(1)", 'early=hr.AfterProcessingTime("1d")'))
    write_shop(folder / "pipelines")
    (folder / "pipelines" / "tills.py").write_text(_TILLS)
    (folder / "pipelines" / "follows.py").write_text(_FOLLOWS)
    users = (None, "vic", "ada")
    requests = [(user, path) for user in users for path in (*OTHERS, *VALUES)] + [("ada", path) for path in WRONG]
    requests += [(SAL, path) for path in (*ONE_ROOT, f"{SALES_FOLLOWS}/lineage")] + [
        ("ada", path) for path in (CLICKS, SALES, RISK)
    ]
    (folder / "asked.json").write_text(json.dumps(requests))
    (folder / "passwords.json").write_text(json.dumps({"vic": "vic", "ada": "ada", SAL: SAL}))
    (folder / "sales").mkdir()
    write_pipeline(folder / "sales", "clicks", options='executor="local"')
    sales = (folder / "sales-root").as_uri()
    (folder / "roots.toml").write_text(
        f'[[root]]\nname = "sales"\nuri = "{sales}"\npipelines = ["sales"]\n'
        '[[root]]\nname = "risk"\nuri = "s3://risk/root"\npipelines = ["risk"]\nstore = "absent"\n'
    )
    environment = {
        "HEADRACE_ROOT": (folder / "root").as_uri(),
        "HEADRACE_PIPELINES": str(folder / "pipelines"),
        "HEADRACE_ROOTS": str(folder / "roots.toml"),
        "SALES": sales,
        "FAR": (folder / "far").as_uri(),
        "SALES_CLICKS": str(folder / "sales" / "clicks.py"),
        "ASKED": str(folder / "asked.json"),
        "AIRFLOW__CORE__AUTH_MANAGER": "tests.airflow.per_root.AuthManagerOfRoots",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"vic:viewer,ada:user,{SAL}:user",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(folder / "passwords.json"),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False",
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(Path(__file__).parents[2] / "plugins"),
    }
    found_answer = python(SCRIPT, folder / "home", environment)
    return {(user, path): (status, body) for (user, path), (status, body) in zip(requests, found_answer, strict=True)}


@pytest.mark.parametrize("path", [*OTHERS, *VALUES])
def test_nobody_is_answered_who_is_not_logged_in(answers: Answers, path: str) -> None:
    assert answers[None, path][0] == 401


@pytest.mark.parametrize("path", OTHERS)
def test_viewers_and_editors_are_answered(answers: Answers, path: str) -> None:
    assert [answers[user, path][0] for user in ("vic", "ada")] == [200, 200]


@pytest.mark.parametrize("path", VALUES)
def test_values_are_for_those_who_may_edit_the_dag(answers: Answers, path: str) -> None:
    assert answers["ada", path][0] == 200
    status, body = answers["vic", path]
    assert (status, body["detail"]) == (403, "keys, rows and records are shown to those who may edit the DAG")


def test_no_answer_to_a_viewer_has_a_value_of_a_row(answers: Answers) -> None:
    for path in OTHERS:
        text = re.sub(r"[0-9a-f]{8,}", "ID", json.dumps(answers["vic", path][1]))  # an id may have any three letters
        assert "ada" not in text.replace("metadata", ""), path
    assert "ada" in json.dumps(answers["ada", f"{DAG}/audits"][1])


def test_figures_beside_history_are_for_all_and_rows_to_blame_for_editors(answers: Answers) -> None:
    audits_of_viewer, audits_of_editor = answers["vic", f"{DAG}/audits"][1], answers["ada", f"{DAG}/audits"][1]
    assert [[one["observed"] for one in audit["usual"]] for audit in audits_of_viewer] == [
        [one["observed"] for one in audit["usual"]] for audit in audits_of_editor
    ]
    volume, users, clicks = audits_of_editor[0]["usual"]
    assert (volume["kind"], users["check"]) == ("volume", "usual_distribution('user', distance=0.2) on panes")
    assert (clicks["severity"], clicks["is_judged"], clicks["versions"]) == ("warn", True, 1)
    assert clicks["said"].startswith("distribution of clicks (current): ")
    assert {row["user"] for row in clicks["failing"]} == {"ada"}
    assert all(one["failing"] == [] for audit in audits_of_viewer for one in audit["usual"])
    assert (audits_of_viewer[0]["docs"], audits_of_editor[0]["docs"]) == ([], ["current"])


def test_decisions_say_what_readers_see_before_and_after(answers: Answers) -> None:
    page = answers["ada", DAG][1]
    fields_before = {"snapshot": page["published"], "epoch": page["published_epoch"]}
    main = {"snapshot": page["snapshot"], "epoch": page["epoch"]}
    released_answer, rolled_back, recovered_answer = (
        answers["ada", f"{DAG}/rehearsals/{request_path}"][1]["readers"]
        for request_path in ("release?snapshot=main", "rollback?to=beginning", "recover?to=published")
    )
    assert released_answer == {"": {"before": fields_before, "after": main}}
    assert rolled_back == {"": {"before": fields_before, "after": None}}
    assert recovered_answer == {"": {"before": fields_before, "after": fields_before}}
    next_, *earlier = answers["ada", f"{DAG}/audits"][1]
    assert (next_["is_next"], next_["success"], [one["is_next"] for one in earlier]) == (True, False, [False])


def test_data_docs_run_nothing_and_load_nothing(answers: Answers) -> None:
    policy, page = answers["ada", DOCS][1]
    assert policy.startswith("sandbox; default-src 'none'; ")
    assert "script" not in policy
    assert "Expectation" in page


@pytest.mark.parametrize(("path", "status"), WRONG.items())
def test_what_cannot_be_answered_says_why(answers: Answers, path: str, status: int) -> None:
    found_status, body = answers["ada", path]
    assert found_status == status
    if status == 400:
        assert {"code", "remedy", "message"} <= body["error"].keys()


def test_pipelines_that_need_a_person_come_first(answers: Answers) -> None:
    body = answers["vic", "api/pipelines"][1]
    assert [(one["pipeline"], one["state"]) for one in body["pipelines"]] == [
        ("shop", "parked"), ("tills", "parked"), ("orders", "audit failed"), ("timers", "published"),
        ("sales.waits", "empty"),
        ("clicks", "published"), ("follows", "published"), ("sales.clicks", "published"),
        ("sales.follows", "published"),
    ]  # fmt: skip
    assert body["age"] < 10


def test_a_page_has_what_a_pipeline_reads_and_who_reads_it(answers: Answers) -> None:
    clicks, follows = answers["vic", f"{CLICKS}/lineage"][1], answers["vic", f"{FOLLOWS}/lineage"][1]
    assert (clicks["reads"], clicks["hidden"], follows["readers"], follows["hidden"]) == ([], 0, [], 0)
    (upstream,) = follows["reads"]
    assert (upstream["pipeline"], upstream["has_page"], upstream["is_well"]) == ("clicks", True, True)
    assert (upstream["lag"], upstream["consumed_epoch"], upstream["published_epoch"]) == ("up to date", 2, 2)
    readers = {one["pipeline"]: one for one in clicks["readers"]}
    far = next(name for name in readers if name.endswith("/far/follows"))
    assert readers.keys() == {"follows", "sales.follows", far}
    assert [readers[name]["has_page"] for name in ("follows", "sales.follows", far)] == [True, True, False]
    assert "does not serve" in readers[far]["lag"]
    assert readers["sales.follows"]["lag"] == upstream["lag"]
    of_sales = answers[SAL, f"{SALES_FOLLOWS}/lineage"][1]
    assert (of_sales["reads"], of_sales["hidden"]) == ([], 1), "whose page they may not read"


def test_the_graph_has_all_pipelines_and_what_is_in_flight(answers: Answers) -> None:
    graph = answers["vic", "api/lineage"][1]
    known_pipelines = {one["pipeline"]: one for one in graph["pipelines"]}
    far = next(name for name in known_pipelines if name.endswith("/far/follows"))
    assert known_pipelines.keys() == {
        "clicks", "orders", "timers", "tills", "shop", "follows", "sales.clicks", "sales.follows", far
    }  # fmt: skip
    assert [name for name, one in known_pipelines.items() if not one["has_page"]] == [far]
    published_epochs = {name: one["published_epoch"] for name, one in known_pipelines.items()}
    assert (published_epochs["clicks"], published_epochs["orders"], published_epochs[far]) == (
        known_pipelines["clicks"]["epoch"],
        0,
        None,
    )
    assert "does not serve" in known_pipelines[far]["problem"]
    inputs = {one["pipeline"]: one for one in graph["inputs"]}
    assert inputs.keys() == {"follows", "sales.follows", far}
    assert {one["upstream"] for one in inputs.values()} == {"clicks"}
    assert (inputs["sales.follows"]["lag"], inputs["sales.follows"]["is_well"]) == ("up to date", True)
    assert not inputs[far]["is_well"]
    (held_back,) = known_pipelines["orders"]["in_flight"]
    assert held_back.startswith("publish: readers of orders see less than epoch 2 ")
    assert known_pipelines["clicks"]["in_flight"] == []
    assert graph["hidden"] == 0
    assert [problem["root"] for problem in graph["problems"]] == ["gone", "risk"]


def test_why_an_output_is_parked_is_for_those_who_may_edit(answers: Answers) -> None:
    lines_by_user = {
        user: next(one for one in answers[user, "api/lineage"][1]["pipelines"] if one["pipeline"] == "tills")[
            "in_flight"
        ]
        for user in ("vic", "ada")
    }
    assert "parked: an output stands" in lines_by_user["vic"]
    assert any(line.startswith("parked: output sums stands, ") for line in lines_by_user["ada"])


def test_roots_that_cannot_be_read_are_named_above_the_others(answers: Answers) -> None:
    gone_root, risk = answers["vic", "api/pipelines"][1]["problems"]
    assert (gone_root["root"], risk["root"]) == ("gone", "risk")
    assert "not declared any more" in gone_root["message"]
    assert "there is no Airflow connection absent" in risk["message"]
    assert "as the store of root risk" in risk["message"]
    assert answers["ada", RISK][1]["error"]["code"] == "config.store_connection"


def test_pipelines_of_one_name_have_pages_of_their_own(answers: Answers) -> None:
    clicks, sales = answers["ada", CLICKS][1], answers["ada", SALES][1]
    assert [(one["pipeline"], one["totals"]["records"]) for one in (clicks, sales)] == [
        ("clicks", 33), ("sales.clicks", 5)
    ]  # fmt: skip


def test_who_may_read_one_root_sees_nothing_of_others(answers: Answers) -> None:
    answers_found = {path: answers[SAL, path] for path in ONE_ROOT}
    statuses = [answers_found[path][0] for path in ONE_ROOT]
    assert statuses == [200, 200, 200, 200, 200, 403, 403, 403]
    body = answers_found["api/pipelines"][1]
    assert [one["pipeline"] for one in body["pipelines"]] == ["sales.waits", "sales.clicks", "sales.follows"]
    assert body["problems"] == []
    assert "clicks at snapshot" in answers_found[f"{SALES}/explain?key=ada"][1]["lines"][0]
    graph = answers_found["api/lineage"][1]
    assert [one["pipeline"] for one in graph["pipelines"]] == ["sales.clicks", "sales.follows"]
    assert (graph["inputs"], graph["hidden"], graph["problems"]) == ([], 1, []), (
        "sales.follows reads one of another root"
    )


def test_a_summary_has_shares_clocks_and_the_audit(answers: Answers) -> None:
    listed_pipelines = {one["pipeline"]: one for one in answers["vic", "api/pipelines"][1]["pipelines"]}
    orders, clicks = listed_pipelines["orders"], listed_pipelines["clicks"]
    assert (orders["published_epoch"], orders["epoch"], orders["unpublished"]) == (0, 2, 2)
    assert orders["audit"]["success"] is False
    assert (orders["run"]["status"], orders["run"]["error_code"]) == ("failed", "data.audit_failed")
    assert (clicks["totals"]["records"], clicks["totals"]["rejected"]) == (33, 3)
    assert clicks["watermark"] == "2026-11-20T00:22:00Z"
    assert clicks["held_back_by"] == "source"
    assert clicks["epochs"] == []
    assert [epoch["epoch"] for epoch in answers["vic", DAG][1]["epochs"]] == [0, 1, 2]


def test_who_may_edit_sees_the_split_that_holds_back(answers: Answers) -> None:
    assert {user: answers[user, DAG][1]["held_back_by"] for user in ("vic", "ada")} == {
        "vic": "source", "ada": "source, split ada"
    }  # fmt: skip
    (orders,) = (one for one in answers["ada", "api/pipelines"][1]["pipelines"] if one["pipeline"] == "orders")
    assert orders["held_back_by"] == "source, split ada"


def test_deadlines_of_timers_windows_and_airflow_are_told(answers: Answers) -> None:
    timers = answers["vic", TIMERS][1]
    assert timers["deadline"] == {"at": "2026-11-25T01:00:00Z", "is_missed": True}
    assert timers["fires_at"] > timers["epochs"][-1]["processing_time"]
    assert timers["fires_after"].startswith("2026-11-20T00:0")
    clicks = answers["vic", CLICKS][1]
    assert (clicks["deadline"], clicks["fires_at"]) == (None, None)
    assert clicks["newest_file_at"] == clicks["epochs"][-1]["processing_time"]
    assert (clicks["newest_event_time"], clicks["published_watermark"]) == (
        "2026-11-20T00:23:00Z", "2026-11-20T00:22:00Z"
    )  # fmt: skip


def test_an_epoch_names_the_dag_run_that_made_it(answers: Answers) -> None:
    run = {"dag_id": "headrace_timers_process", "run_id": "manual__1.5:00"}
    assert answers["vic", f"{TIMERS}/epochs/runs"][1]["0"]["dag_run"] == run
    assert answers["vic", TIMERS][1]["dag_run"] == run
    by_hand = answers["vic", f"{DAG}/epochs/runs"][1]
    assert [(epoch, entries["dag_run"]) for epoch, entries in by_hand.items()] == [
        ("0", None),
        ("1", None),
        ("2", None),
    ]
    assert len({entry["run"] for entry in by_hand.values()}) == 3


def test_a_task_has_its_own_results(answers: Answers) -> None:
    of_run = f"{TIMERS}/runs/manual__1.5:00"
    results = [len(answers["vic", f"{of_run}{task}"][1]) for task in ("", "?task_id=process", "?task_id=proc")]
    assert results == [2, 1, 0]


def test_panes_of_a_key_stand_over_their_windows(answers: Answers) -> None:
    keys = answers["ada", f"{DAG}/panes/keys"][1]
    assert (keys["columns"], keys["keys"]) == (["user"], [{"key": '{"user": "ada"}', "label": "ada"}])
    panes = answers["ada", f"{DAG}/panes?key=ada"][1]
    assert [clock["epoch"] for clock in panes["epochs"]] == [0, 1, 2]
    first = panes["panes"][0]
    assert (first["window_start"], first["after"], first["epoch"]) == ("2026-11-20T00:00:00Z", -1, 0)
    assert first["values"] == {"clicks": 1}


def test_numbers_that_browsers_do_not_hold_are_text(answers: Answers) -> None:
    values = answers["ada", LARGE][1]["panes"][0]["values"]
    assert values == {"n": 3, "most": str(2**62 + 1), "large": "Infinity"}


def test_a_graph_has_figures_of_inputs_aggregations_and_views(answers: Answers) -> None:
    body = answers["vic", f"{CLICKS}/graph"][1]
    (given_input,) = body["inputs"]
    assert (given_input["name"], given_input["files"], given_input["last_files"], given_input["holds_back"]) == (
        "source",
        3,
        1,
        True,
    )
    assert given_input["watermark"] == body["stages"][0]["watermark"] == "2026-11-20T00:22:00Z"
    assert (given_input["splits"], given_input["slowest"], body["ids"]) == (0, [], None)
    assert (body["counts"]["records"], body["counts"]["rejected"], body["logs"]["rejected"]) == (11, 1, 3)
    assert body["stages"][0]["state"]["rows"] > 0
    assert body["logs"]["panes"] == body["current"]["rows"] > body["current"]["live"] > 0


def test_a_list_names_the_worst_output_and_a_page_says_how_each_is(answers: Answers) -> None:
    listed_pipelines = answers["vic", "api/pipelines"][1]["pipelines"]
    assert [one.get("worst_output") for one in listed_pipelines[:3]] == ["visits", "sums", None]
    for shop in (listed_pipelines[0], answers["vic", SHOP][1]):
        lines = {one["name"]: (one["published_epoch"], one["unpublished"]) for one in shop["outputs"]}
        assert lines == {"hourly": (1, 0), "visits": (0, 1), "daily": (1, 0)}
        (parked_output,) = (one["parked"] for one in shop["outputs"] if one["parked"])
        assert (parked_output["since"], parked_output["code"]) == (1, "left_out")


def test_messages_that_quote_a_key_are_for_editors(answers: Answers) -> None:
    for path in (TILLS, f"{TILLS}/runs/manual__1.5:00", "api/pipelines"):
        assert "key user='ada'" in json.dumps(answers["ada", path][1]), path
    (result,) = answers["vic", f"{TILLS}/runs/manual__1.5:00"][1]
    for shown_outputs in (answers["vic", TILLS][1]["outputs"], result["outputs"]):
        assert "may quote values" in json.dumps(shown_outputs)


def test_sinks_are_told_as_the_root_knows_them(answers: Answers) -> None:
    for user in ("vic", "ada"):
        day, hour = answers[user, CLICKS][1]["sinks"]
        assert (day["sink"], day["is_current"], day["written"], day["removed"]) == ("day", False, 5, 2)
        assert (hour["sink"], hour["is_current"], hour["epoch"], hour["error_code"]) == ("hour", True, 2, None)
        assert "warehouse" not in json.dumps([day, hour])
    assert answers["vic", DAG][1]["sinks"] == []


def test_a_graph_has_figures_of_each_output(answers: Answers) -> None:
    body = answers["vic", f"{SHOP}/graph"][1]
    assert (body["inputs"][0]["files"], body["counts"]["records"], "stages" in body) == (2, 5, False)
    outputs = {one["name"]: one for one in body["outputs"]}
    assert {name: one["of"] for name, one in outputs.items()} == {"hourly": [], "visits": [], "daily": ["hourly"]}
    assert [outputs[name]["logs"]["panes"] > 0 for name in outputs] == [True, True, True]
    assert outputs["hourly"]["counts"]["panes_early"] == 5
    assert outputs["hourly"]["stages"][0]["watermark"] > outputs["visits"]["stages"][0]["watermark"]
    assert outputs["visits"]["current"]["rows"] < outputs["hourly"]["current"]["rows"]


def test_rows_panes_and_explanations_are_of_the_output_that_is_asked_for(answers: Answers) -> None:
    rows = answers["ada", f"{SHOP}/rows/current?at=main&output=hourly"][1]
    assert (rows["total"], {row["n"] for row in rows["rows"]}) == (9, {1})
    panes = answers["ada", f"{SHOP}/panes?key=ada&output=visits"][1]["panes"]
    assert {pane["epoch"] for pane in panes} == {0}
    assert answers["ada", f"{SHOP}/panes/keys?output=daily"][1]["keys"] == [{"key": '{"user": "ada"}', "label": "ada"}]
    lines = answers["ada", f"{SHOP}/explain?key=ada&output=hourly"][1]["lines"]
    assert any("[2026-11-20T00:08:00Z, 2026-11-20T00:09:00Z)" in line for line in lines)
    assert "hourly" in answers["ada", f"{SHOP}/lateness"][1]["error"]["message"]


def test_a_difference_shows_rows_to_editors_and_numbers_to_all(answers: Answers) -> None:
    path = f"{DAG}/diff?before=published&after=main"
    seen_output, edited_output = answers["vic", path][1]["output"], answers["ada", path][1]["output"]
    assert seen_output["rows"] == edited_output["rows"]
    assert sum(seen_output["rows"].values()) > 0
    assert not seen_output["first"]
    assert edited_output["first"]


def test_dead_letters_come_with_their_reason(answers: Answers) -> None:
    body = answers["ada", f"{CLICKS}/rows/rejected?at=main"][1]
    assert body["total"] == 3
    assert {row["raw"] for row in body["rows"]} == {"oops"}


def test_an_explanation_is_in_words(answers: Answers) -> None:
    lines = answers["ada", f"{DAG}/explain?key=ada"][1]["lines"]
    assert lines[0].startswith("orders at snapshot")
    assert any("held back by" in line for line in lines)
