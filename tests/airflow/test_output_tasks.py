"""Each output with a name has tasks that audit and publish it, and an asset: what runs and decisions tell of each.

Real tasks and runs, without an Airflow that runs: its events alone are lists, one for each asset.
"""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.subprocesses import TASKS, python, write_pipeline

pytestmark = pytest.mark.slow  # importing Airflow takes seconds

SHOP = """
from datetime import datetime
import headrace as hr

per_minute = {"where": hr.FixedWindows("1m"), "when": hr.on_update(), "how": hr.retracting("1h")}
orders = hr.json("landing/shop", {"user": str, "at": datetime}).event_time("at", bound="1m")
shop = hr.Pipeline(
    "shop",
    orders,
    outputs={
        "hourly": hr.Output(key=None, what={"orders": hr.count()}, **per_minute),
        "visits": hr.Output(
            key="user", what={"orders": hr.count()}, limits=hr.Limits(rejected="1%"), **per_minute,
            sinks=[hr.postgres("public.visits", connection="warehouse")],
        ),
        "daily": hr.Output(
            of="hourly", key=None, what={"orders": hr.col("orders").sum()}, **per_minute,
            sinks=[hr.postgres("public.daily", connection="warehouse")],
        ),
    },
    executor="local",
)
"""

STORY = (
    TASKS
    + """
import logging
from collections import defaultdict
from airflow.sdk import AssetAlias
from headrace.pipeline.loading.registry import resolve_pipeline
from headrace_airflow.dags import asked_for
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.output_view import parked_in
import headrace as hr

dags = asked_for()

def about(dag):
    return {task.task_id: {"after": sorted(task.upstream_task_ids), "pool": task.pool, "rule": str(task.trigger_rule),
        "outlets": [getattr(one, "uri", one.name) for one in task.outlets]} for task in dag.tasks}

def waits(dag):
    return sorted([asset.name, asset.uri] for asset in dag.timetable.asset_condition.objects)

announced = defaultdict(list)  # what events say of each asset, oldest first

class Events:
    def __getitem__(self, asset):
        newest = [types.SimpleNamespace(extra=extra) for extra in announced[asset.uri][::-1]]
        events = types.SimpleNamespace(limit=lambda count: newest[:count])
        events.ascending = lambda _: events
        return events

class Outlets(dict):
    def __missing__(self, outlet):
        self[outlet] = events = types.SimpleNamespace(extra=None, told=[])
        events.add = lambda asset, extra: events.told.append((asset.uri, extra))
        return events

def told(outlets):
    of = {}
    for outlet, events in outlets.items():
        of |= dict(events.told)
        if events.extra is not None:
            assert not isinstance(outlet, AssetAlias)
            of[outlet.uri] = events.extra
    for uri, extra in of.items():
        announced[uri].append(extra)
    return {uri.removeprefix("headrace://"): [extra["snapshot"], extra["counts"].get("panes")]
            for uri, extra in of.items()}

def refs():
    own = Catalog(store, "shop").head().refs
    return {"main": own.get("main")} | {name: own.get(f"published/{name}") for name in ("hourly", "visits", "daily")}

def run(*tasks, name, family="process", **form):
    outlets = Outlets()
    context = {"inlet_events": Events(), "outlet_events": outlets}
    done = {task: execute(family, task, "shop", run_id=name, context=context, **form) for task in tasks}
    return {"tasks": done, "told": told(outlets), **refs()}

def decide(kind, run_id=None, **form):
    outlets = Outlets()
    dag = dags[f"headrace_{kind}"]
    dag_run = types.SimpleNamespace(conf=form, triggering_user_name="ada", run_after=datetime.now(UTC))
    ti = types.SimpleNamespace(
        dag_id=dag.dag_id, run_id=run_id or kind, task_id=kind, try_number=1, id=uuid.uuid4()
    )
    context = {"params": form, "dag_run": dag_run, "ti": ti, "outlet_events": outlets}
    dag.get_task(kind).execute(context)
    return {"told": told(outlets), **refs()}

NAMES = ("hourly", "visits", "daily")
AUDITS, PUBLISHES = [f"audit.{name}" for name in NAMES], [f"publish.{name}" for name in NAMES]
ALL = ("process", *AUDITS, *PUBLISHES, "publish")
done = {
    "dags": {dag_id: about(dag) for dag_id, dag in dags.items() if dag_id.startswith(("headrace_shop", "headrace_cl"))},
    "waits": {name: waits(dags[name]) for name in ("headrace_shop_deliver", "headrace_clicks_process")},
}
land("1.jsonl", 1, "shop")
done["all"] = run(*ALL, name="all")
done["again"] = run("audit.visits", *PUBLISHES, "publish", name="all")
land("2.jsonl", 2, "shop")
done["without visits"] = run(*ALL, name="without", without=["visits"])
land("3.jsonl", 3, "shop")
done["caught up"] = run(*ALL, name="caught up")
land("4.jsonl", 4, "shop", json.dumps({"user": None, "at": "2026-11-20T00:04:00Z"}))
done["bad"] = run("process", *AUDITS, "publish.hourly", "publish.daily", name="bad")
land("5.jsonl", 5, "shop")
hr.open(os.environ["HEADRACE_ROOT"])[resolve_pipeline("shop")].run(publish=False)
forget_audits("shop")
done["audited alone"] = run("audit.hourly", "publish.daily", "publish.hourly", name="alone")
done["released"] = decide("release", pipeline="shop", snapshot=None, output="visits", reason="seen with finance")
done["followed"] = run("process", "audit.daily", "publish.daily", "publish", name="followed")
hr.open(os.environ["HEADRACE_ROOT"])[resolve_pipeline("shop")].backfill(branch="again")
done["cut over"] = run("cut_over", name="cut", family="backfill", branch="again", promote="at once", patch=False)
form = {"family": "backfill", "output": "visits", "branch": "alone", "promote": "at once"}
done["one"] = run("replay", "audit", "approve", "cut_over", name="one", **form, patch=False)
done["then"] = decide("release", "then", pipeline="shop", snapshot=None, output="visits", reason="its limit is strict")
done["forms"] = [
    execute("backfill", "preconditions", "shop", context={"outlet_events": Outlets()}, **form)["message"]
    for form in ({"patch": True}, {"output": "visits", "to": "2026-11-20T00:00:00Z"})
]
done["patch"] = run("replay", "audit", "approve", "cut_over", name="patch", **{**form, "branch": "rows"}, patch=True)
form |= {"branch": "behind", "patch": True, "files_per_epoch": 1}
run("replay", name="behind", **form)
manifest = lambda name: hr.open(os.environ["HEADRACE_ROOT"])["shop"].show(name)
before = manifest("behind")
for minute in (6, 7):
    land(f"{minute}.jsonl", minute, "shop")
    run("process", name=f"on {minute}")
step = run("cut_over", name="behind", **form)
after = manifest("behind")
parked = [parked_in(one) for one in (before, after)]
land("8.jsonl", 8, "shop")
told_lines, stored = [], lambda: {found.path: found.etag for found in store.list("")}
handler = logging.Handler()
handler.emit = lambda record: told_lines.append(record.getMessage())
logger = logging.getLogger("headrace_airflow.operators")
logger.addHandler(handler)
logger.setLevel(logging.INFO)
begun, count = stored(), refs()
dry = [
    run("process", "publish", "publish.visits", name="dry", dry_run=True, without=["daily"]),
    run("replay", name="dry", **{**form, "branch": "dry"}, dry_run=True),
]
done["dry"] = {"steps": dry, "lines": told_lines, "is_as_before": begun == stored()}
done["behind"] = {**step, "parked": parked, "epochs": after.epoch - before.epoch}
print(json.dumps(done))
"""
)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the DAGs are made of; what tasks returned or raised, what readers see then and which events there were."""
    folder: Path = tmp_path_factory.mktemp("outputs")
    (folder / "pipelines").mkdir()
    (folder / "pipelines" / "shop.py").write_text(SHOP)
    follows = 'schedule=hr.on_assets(["headrace://shop/hourly/published", "headrace://shop/published"])'
    write_pipeline(folder / "pipelines", "clicks", options=follows, most=None)
    environment = {
        "PATH": os.environ["PATH"],
        "SUBMITTED": str(folder / "submitted"),
        "HEADRACE_PIPELINES": str(folder / "pipelines"),
        "HEADRACE_ROOT": (folder / "root").as_uri(),
    }
    return python(STORY, folder / "airflow", environment)


NAMES = ("hourly", "visits", "daily")
URIS = {**{name: f"shop/{name}/published" for name in NAMES}, "": "shop/published"}


@pytest.mark.parametrize(("family", "computes"), [("process", "process"), ("recover", "recover")])
def test_each_output_has_an_audit_and_a_publish_of_its_own(answers: Any, family: str, computes: str) -> None:
    tasks = answers["dags"][f"headrace_shop_{family}"]
    for name in NAMES:
        assert tasks[f"audit.{name}"]["after"] == [computes]
        assert tasks[f"publish.{name}"]["after"] == [f"audit.{name}"]
    assert tasks["publish"]["after"] == sorted(f"publish.{name}" for name in NAMES)
    assert tasks["publish"]["rule"] == "TriggerRule.NONE_FAILED", (
        "a run fails if an output does, and not if one is skipped"
    )
    assert {task for task, task_fields in tasks.items() if task_fields["pool"] == "headrace_shop"} == {
        computes, "publish", *(f"{kind}.{name}" for kind in ("audit", "publish") for name in NAMES)
    }  # fmt: skip
    outlets = {
        name.removeprefix("publish").removeprefix("."): tasks[name]["outlets"] for name in tasks if "publish" in name
    }
    made_assets = {name: [f"headrace://{uri}"] for name, uri in URIS.items()}
    assert outlets == (made_assets if family == "process" else {key: ["headrace_shop_moved"] for key in made_assets})


def test_an_output_without_a_name_keeps_its_tasks(answers: Any) -> None:
    tasks = answers["dags"]["headrace_clicks_process"]
    assert {name: task["after"] for name, task in tasks.items()} == {
        "preconditions": [], "process": ["preconditions"], "audit": ["process"], "publish": ["audit"],
    }  # fmt: skip
    assert [*tasks] == ["preconditions", "process", "audit", "publish"], "in the order in which they run"


def test_sinks_wait_for_the_outputs_that_have_some(answers: Any) -> None:
    assert answers["waits"]["headrace_shop_deliver"] == [
        [f"headrace_shop/{name}", f"headrace://shop/{name}/published"] for name in ("daily", "visits")
    ]


def test_who_follows_an_output_or_a_pipeline_waits_for_the_asset_that_gets_events(answers: Any) -> None:
    assert answers["waits"]["headrace_clicks_process"] == [
        ["headrace_shop", "headrace://shop/published"],
        ["headrace_shop/hourly", "headrace://shop/hourly/published"],
    ]


def events(step: Any) -> dict[str, str]:
    """The snapshot that an event of each asset told of, by output."""
    outputs = {uri: name for name, uri in URIS.items()}
    return {outputs[uri]: snapshot for uri, (snapshot, _) in step["told"].items()}


def test_a_run_tells_of_each_output_once_and_counts_what_is_its_own(answers: Any) -> None:
    first, second_answer = answers["all"], answers["again"]
    assert events(first) == dict.fromkeys(URIS, first["main"])
    assert [first["told"][URIS[name]][1] for name in ("hourly", "")] == [1, 3], "panes"
    assert second_answer["told"] == {}
    assert second_answer["tasks"]["audit.visits"]["xcom"] == {"from": None, "to": first["main"], "success": True}


def test_an_output_that_is_parked_has_nothing_to_audit_and_holds_up_no_other(answers: Any) -> None:
    step, answer_before = answers["without visits"], answers["all"]
    assert step["tasks"]["audit.visits"]["xcom"] == {}
    assert events(step) == dict.fromkeys(("hourly", "daily"), step["main"])
    assert step["visits"] == answer_before["main"]
    assert [step["tasks"][name]["raised"] for name in ("publish.visits", "publish")] == ["AirflowSkipException"] * 2
    answer_after = answers["caught up"]
    assert events(answer_after) == dict.fromkeys(URIS, answer_after["main"])
    assert answer_after["tasks"]["publish.visits"]["xcom"]["epochs"] == 2, "what it has missed is told, too"


def test_an_audit_that_fails_holds_back_its_output_alone(answers: Any) -> None:
    bad, answer_before = answers["bad"], answers["caught up"]
    assert "data.limit_exceeded: pipeline shop.visits" in bad["tasks"]["audit.visits"]["message"]
    assert bad["visits"] == answer_before["main"]
    assert events(bad) == dict.fromkeys(("hourly", "daily"), bad["main"])


def test_a_task_of_one_output_has_its_audit_made_and_publishes_it_alone(answers: Any) -> None:
    lone_audit, answer_before = answers["audited alone"], answers["bad"]
    audited_result = lone_audit["tasks"]["audit.hourly"]["xcom"]
    assert (audited_result["from"], audited_result["to"]) == (answer_before["main"], lone_audit["main"])
    assert lone_audit["tasks"]["publish.daily"]["raised"] == "AirflowSkipException", (
        "it waits for what it is computed of"
    )
    assert events(lone_audit) == {"hourly": lone_audit["main"]}
    assert lone_audit["daily"] == answer_before["main"]


def test_a_decision_tells_of_the_outputs_that_it_moves(answers: Any) -> None:
    released_answer, answer_before = answers["released"], answers["bad"]
    assert events(released_answer) == {"visits": released_answer["main"], "": answer_before["main"]}, (
        "daily is where it was"
    )
    assert events(answers["followed"]) == {"daily": released_answer["main"], "": released_answer["main"]}


def test_a_cut_over_tells_of_all_outputs(answers: Any) -> None:
    assert events(answers["cut over"]) == dict.fromkeys(URIS, answers["cut over"]["main"])


def test_one_output_is_computed_again_and_adopted_and_published_later(answers: Any) -> None:
    answer_before, one, next_answer = answers["cut over"], answers["one"], answers["then"]
    assert [task for task, step in one["tasks"].items() if "raised" in step] == []
    assert one["main"] != answer_before["main"]
    assert {name: one[name] for name in NAMES} == {name: answer_before[name] for name in NAMES}
    assert (events(one), events(next_answer)["visits"]) == ({}, one["main"])


def test_a_form_that_asks_one_output_for_too_much_or_too_little_is_refused(answers: Any) -> None:
    of_all, range_of_one = answers["forms"]
    assert "a patch is of one output: choose one of hourly, visits, daily" in of_all
    assert "all of them: leave out to; or choose no output, or a patch" in range_of_one


def test_one_output_is_patched(answers: Any) -> None:
    patched_tasks = answers["patch"]["tasks"]
    assert [task for task, step in patched_tasks.items() if "raised" in step] == ["cut_over"]
    assert (
        "nothing differs in windows that have expired: branch rows patches nothing"
        in patched_tasks["cut_over"]["message"]
    )


def test_a_branch_that_main_has_overtaken_catches_up_as_the_form_says(answers: Any) -> None:
    answer_behind = answers["behind"]
    assert "patches nothing" in answer_behind["tasks"]["cut_over"]["message"]
    assert answer_behind["epochs"] == 2, "of one file each"
    assert {*answer_behind["parked"][0]} == {"hourly", "daily"}, "a patch of visits computes visits alone"
    assert answer_behind["parked"][1] == answer_behind["parked"][0], "and so it does when it catches up"


def test_a_dry_run_tells_its_stages_and_does_nothing(answers: Any) -> None:
    process, backfill = answers["dry"]["steps"]
    assert {step["raised"] for step in (*process["tasks"].values(), *backfill["tasks"].values())} == {
        "AirflowSkipException"
    }
    assert (process["told"], backfill["told"], answers["dry"]["is_as_before"]) == ({}, {}, True)
    main = process["main"]
    lines = answers["dry"]["lines"]
    assert lines[0] == f"claim branch main, at snapshot {main}: nobody else writes it then"
    assert "compute epochs: landing/shop/8.jsonl of source" in lines
    assert "begin branch dry with nothing: all input is read again" in lines
    assert lines[-1] == (
        "replace rows of output visits by those of branch dry where windows have expired on both; publish that"
    )
