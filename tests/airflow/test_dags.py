"""The DAGs of registered pipelines: what they are made of, what parsing them imports, what a broken file does."""

from pathlib import Path
from typing import Any

import pytest

from tests.airflow.subprocesses import REPOSITORY, python, write_pipeline

pytestmark = pytest.mark.slow  # importing Airflow takes seconds

ENGINES = (
    *("pyspark", "great_expectations", "pandas", "pyarrow", "numpy", "duckdb", "boto3", "minio"),
    *("headrace.kernel", "headrace.distribute.tasks", "headrace.distribute.local", "headrace.audit.run"),
    *("headrace_snapshots.store.s3", "headrace.runs.process", "headrace.runs.client"),
)
PARSE = f"""
import json, sys
from airflow.dag_processing.dagbag import DagBag
from headrace import installed
bag = DagBag(dag_folder={str(REPOSITORY / "dags")!r})
def about(dag):
    return {{
        "schedule": dag.schedule, "catchup": dag.catchup, "max_active_runs": dag.max_active_runs,
        "tags": sorted(dag.tags), "params": sorted(dag.params), "run_types": sorted(dag.allowed_run_types),
        "defaults": {{name: param.value for name, param in dag.params.items()}},
        "executor": dag.params.get_param("executor").schema if "executor" in dag.params else None,
        "signals": dag.params.get_param("signals").description if "signals" in dag.params else None,
        "tasks": {{t.task_id: {{"pool": t.pool, "retries": t.retries, "after": sorted(t.upstream_task_ids),
                  "policy": type(t.retry_policy).__name__,
                  "form": sorted(t.params), "outlets": [a.name for a in t.outlets]}} for t in dag.tasks}},
    }}
print(json.dumps({{
    "dags": {{k: about(v) for k, v in bag.dags.items()}},
    "errors": bag.import_errors,
    "looked": [installed._declared_at.cache_info().misses, len(sys.path)],
    "heavy": [m for m in {ENGINES!r} if m in sys.modules],
}}, default=str))
"""

PARSE_FOR = f"""
import json, os
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.definitions._internal.dag_parsing_context import _airflow_parsing_context_manager as parsing_for
found = {{{{}}}}
for dag_id in {{ids}}:
    with parsing_for(dag_id):  # as a task that starts does it
        bag = DagBag(dag_folder={str(REPOSITORY / "dags")!r})
    found[dag_id] = {{{{"dags": list(bag.dags), "errors": bag.import_errors, "asked": os.path.exists({{asked!r}})}}}}
print(json.dumps(found))
"""

IMPORTED_AFTER = f"""
import json, sys
sys.argv = ["airflow", {{command!r}}]
import headrace_plugin, airflow.dag_processing.dagbag
from airflow.sdk.definitions._internal.dag_parsing_context import _airflow_parsing_context_manager as parsing_for
before = {{{{*sys.modules}}}}
with parsing_for("headrace_clicks_process"):
    bag = airflow.dag_processing.dagbag.DagBag(dag_folder={str(REPOSITORY / "dags")!r})
print(json.dumps({{{{
    "dags": list(bag.dags), "heavy": [name for name in {ENGINES!r} if name in before],
    "of headrace": [name for name in sys.modules if name.startswith("headrace") and name not in before],
}}}}))
"""


@pytest.fixture(scope="module")
def parsed_dags(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A folder with a scheduled pipeline, a file that raises, and one that repeats a name, parsed by Airflow."""
    folder = tmp_path_factory.mktemp("pipelines")
    write_pipeline(folder, "clicks", options='schedule="@hourly"')
    awaiting = write_pipeline(folder, "awaiting", options='executor="local", retention=hr.Retention()')
    nightly = 'backfill=hr.Backfill("0 3 * * *", last="7d", patch=True)'
    nightly += ', retention=hr.Retention(keep_last=7, keep_for="2d 6h")'
    write_pipeline(folder, "corrected", options=nightly)
    waits = 'hr.AfterAny(hr.AfterSignal("go"), hr.AfterSignal("ask"))'
    awaiting.write_text(awaiting.read_text().replace("early=hr.AfterCount(1)", f"early={waits}"))
    (folder / "broken.py").write_text("raise ZeroDivisionError('a mistake of mine')\n")
    (folder / "exits.py").write_text("import sys\n\nsys.exit()\n")
    write_pipeline(folder, "often", options='schedule="0 25 * * *"')
    write_pipeline(folder, "refused", options="description=5")
    (folder / "zz_again.py").write_text((folder / "clicks.py").read_text())
    (folder / "blocks.py").write_text("import time\n\ntime.sleep(300)\n")
    (folder / "a_stop.py").write_text("raise KeyboardInterrupt\n")
    environment = {"HEADRACE_PIPELINES": str(folder), "HEADRACE_IMPORT_LIMIT": "2s"}
    return python(PARSE, tmp_path_factory.mktemp("airflow"), environment)


DECISIONS = ("release", "rollback", "drop", "tag", "fork", "replay", "maintain", "promote")


def of_pipelines(parsed_dags: Any) -> dict[str, Any]:
    """The DAGs that belong to one pipeline each: not those of decisions."""
    return {name: dag for name, dag in parsed_dags["dags"].items() if "decision" not in dag["tags"]}


def test_every_pipeline_has_three_dags_and_all_have_one_for_each_decision(parsed_dags: Any) -> None:
    names = ("clicks", "awaiting", "corrected", "aircraft_sessions", "busy_aircraft", "flights_departures")
    families = ("process", "recover", "backfill")
    own = {f"headrace_{name}_{family}" for name in names for family in families}
    own.add("headrace_maintain-daily")  # for all whose retention has that schedule
    assert set(parsed_dags["dags"]) == own | {f"headrace_{name}" for name in DECISIONS}


@pytest.mark.parametrize("decision", DECISIONS)
def test_a_decision_asks_for_a_pipeline_and_a_reason_and_is_made_by_hand(parsed_dags: Any, decision: str) -> None:
    dag = parsed_dags["dags"][f"headrace_{decision}"]
    assert {"pipeline", *(() if decision == "maintain" else ("reason",))} <= {*dag["params"]}
    assert dag["schedule"] is None
    assert dag["run_types"] == ["manual", "operator_triggered"]


def test_parsing_imports_no_engine(parsed_dags: Any) -> None:
    assert parsed_dags["heavy"] == []


def test_parsing_looks_for_entry_points_once_in_each_place_whatever_the_number_of_pipelines(parsed_dags: Any) -> None:
    places_looked_at, places = parsed_dags["looked"]
    assert places_looked_at <= places + 2, "each place once; folders on the path may come and change meanwhile"


def test_tasks_do_not_copy_the_form_of_their_dag(parsed_dags: Any) -> None:
    assert not any(task["form"] for dag in parsed_dags["dags"].values() for task in dag["tasks"].values())


def test_broken_files_are_import_errors_that_name_them(parsed_dags: Any) -> None:
    (error,) = parsed_dags["errors"].values()
    assert "broken.py:1: ZeroDivisionError: a mistake of mine" in error
    assert "exits.py:3: SystemExit" in error
    assert "blocks.py:3: it has not ended after 2 s" in error
    assert "a_stop.py:1: KeyboardInterrupt" in error
    assert "often.py:8: PipelineError: Pipeline often(schedule='0 25 * * *'): hour 25 is not between 0 and 23" in error
    assert "refused.py:8: PipelineError: Pipeline refused(description=5)" in error
    assert "zz_again.py: pipeline clicks is also defined in" in error


def test_a_task_builds_its_own_dag_and_does_not_wait_for_the_files_of_others(tmp_path: Path) -> None:
    write_pipeline(tmp_path, "clicks", options="retention=hr.Retention()")
    write_pipeline(tmp_path, "other")
    write_pipeline(tmp_path, "wrong").write_text("# wrong\nraise ZeroDivisionError('a mistake of mine')\n")
    answer_path = str(tmp_path / "asked")
    (tmp_path / "a_block.py").write_text(f"import time\nopen({answer_path!r}, 'w').close()\ntime.sleep(300)\n")
    ours = [f"headrace_clicks_{family}" for family in ("process", "recover", "backfill")]
    ours.append("headrace_maintain-daily")
    others = ["reports", "headrace_clicks_nothing", "headrace_process"]
    environment = {"HEADRACE_PIPELINES": str(tmp_path), "HEADRACE_IMPORT_LIMIT": "2s"}
    script = PARSE_FOR.format(ids=[*ours, *others, "headrace_wrong_process"], asked=answer_path)
    found_answer = python(script, tmp_path / "airflow", environment)
    assert [found_answer[dag_id]["dags"] for dag_id in ours] == [[dag_id] for dag_id in ours]
    assert [found_answer[dag_id]["errors"] for dag_id in [*ours, *others]] == [{}] * 7
    assert not any(found_answer[dag_id]["asked"] for dag_id in ours)
    assert [found_answer[dag_id]["dags"] for dag_id in others] == [[]] * 3
    (error,) = found_answer["headrace_wrong_process"]["errors"].values()
    assert "there is no pipeline 'wrong'" in error
    assert "wrong.py:2: ZeroDivisionError: a mistake of mine" in error


def test_one_run_at_a_time_and_no_catching_up(parsed_dags: Any) -> None:
    for name, dag in of_pipelines(parsed_dags).items():
        assert dag["max_active_runs"] == (16 if name.endswith("_recover") else 1), "a recovery may wait for a person"
        assert not dag["catchup"]
        assert "headrace" in dag["tags"]
        assert "backfill" not in dag["run_types"]


def test_what_has_a_schedule_is_scheduled_and_nothing_else(parsed_dags: Any) -> None:
    schedules = {name: dag["schedule"] for name, dag in parsed_dags["dags"].items() if dag["schedule"]}
    nightly = {"headrace_corrected_backfill": "0 3 * * *", "headrace_maintain-daily": "@daily"}
    assert schedules == {"headrace_clicks_process": "@hourly", **nightly}
    scheduled_dags = {name for name, dag in parsed_dags["dags"].items() if "scheduled" in dag["run_types"]}
    assert scheduled_dags == schedules.keys()


@pytest.mark.parametrize(
    ("family", "tasks", "params"),
    [
        (
            "process",
            ["preconditions", "process", "audit", "publish"],
            {
                "max_epochs",
                "files_per_epoch",
                "bytes_per_epoch",
                "branch",
                "full_sweep",
                "strict",
                "allow_new_aggregates",
                "create",
                "executor",
                "dry_run",
            },
        ),
        (
            "recover",
            ["preconditions", "rehearse", "approve", "recover", "audit", "publish"],
            {"snapshot", "when", "give_up_delivered", "with_readers", "executor", "reason"},
        ),
        (
            "backfill",
            ["preconditions", "replay", "audit", "approve", "cut_over"],
            {
                "from",
                "to",
                "promote",
                "patch",
                "files_per_epoch",
                "bytes_per_epoch",
                "branch",
                "executor",
                "reason",
                "dry_run",
            },
        ),
    ],
)
def test_tasks_of_a_family(parsed_dags: Any, family: str, tasks: list[str], params: set[str]) -> None:
    dag = parsed_dags["dags"][f"headrace_clicks_{family}"]
    befores: list[list[str]] = [[], *([task] for task in tasks[:-1])]
    assert {name: task["after"] for name, task in dag["tasks"].items()} == dict(zip(tasks, befores, strict=True))
    assert set(dag["params"]) == params
    outlet = "headrace_clicks" if family == "process" else "headrace_clicks_moved"
    assert dag["tasks"][tasks[-1]]["outlets"] == [outlet]


def test_a_pipeline_that_waits_for_signals_can_be_given_them_in_the_form(parsed_dags: Any) -> None:
    assert "signals" in parsed_dags["dags"]["headrace_awaiting_process"]["params"]
    assert "ask, go" in parsed_dags["dags"]["headrace_awaiting_process"]["signals"]


def test_the_form_offers_every_executor_and_names_the_pipelines_own(parsed_dags: Any) -> None:
    offered_executors = {name: dag["executor"] for name, dag in of_pipelines(parsed_dags).items() if dag["executor"]}
    assert all(offer["enum"] == [None, "spark", "local", "auto"] for offer in offered_executors.values())
    shown_values = {name: offer["values_display"]["None"] for name, offer in offered_executors.items()}
    assert shown_values["headrace_clicks_process"] == "as the pipeline says (spark)"
    assert shown_values["headrace_awaiting_recover"] == "as the pipeline says (local)"


def test_who_writes_main_holds_the_pool(parsed_dags: Any) -> None:
    holders = {
        f"{dag_id.removeprefix('headrace_clicks_')}.{name}"
        for dag_id, dag in parsed_dags["dags"].items()
        for name, task in dag["tasks"].items()
        if task["pool"] == "headrace_clicks"
    }
    assert holders == {
        "process.process", "process.audit", "process.publish",
        "recover.recover", "recover.audit", "recover.publish",
        "backfill.cut_over",
    }  # fmt: skip


def test_every_task_is_retried_but_one_that_would_delete_what_it_has_just_marked(parsed_dags: Any) -> None:
    retries = {(name, task["retries"]) for dag in parsed_dags["dags"].values() for name, task in dag["tasks"].items()}
    assert {name for name, times in retries if times != 2} == {"maintain"}
    assert {task["policy"] for dag in parsed_dags["dags"].values() for task in dag["tasks"].values()} == {
        "TypedRetries"
    }


def test_the_form_of_a_backfill_promotes_as_the_pipeline_says(parsed_dags: Any) -> None:
    defaults = {name: parsed_dags["dags"][f"headrace_{name}_backfill"]["defaults"] for name in ("clicks", "corrected")}
    assert {name: (form["promote"], form["patch"]) for name, form in defaults.items()} == {
        "clicks": ("at once", False), "corrected": ("at once", True),
    }  # fmt: skip


def test_what_a_task_imports_is_there_in_the_process_that_it_is_forked_from(tmp_path: Path) -> None:
    write_pipeline(tmp_path, "clicks")
    environment = {"HEADRACE_PIPELINES": str(tmp_path), "PYTHONPATH": str(REPOSITORY / "plugins")}
    forked_answer, served_answer = (
        python(IMPORTED_AFTER.format(command=command), tmp_path / command, environment)
        for command in ("scheduler", "api-server")
    )
    assert forked_answer == {"dags": ["headrace_clicks_process"], "heavy": [], "of headrace": []}
    assert served_answer["dags"] == forked_answer["dags"]
    assert "headrace_airflow.families.own" in served_answer["of headrace"], "nothing is forked from an API server"


def test_retentions_of_one_schedule_share_a_dag(parsed_dags: Any) -> None:
    dag = parsed_dags["dags"]["headrace_maintain-daily"]
    assert (dag["tags"], dag["defaults"]) == (["headrace", "retention"], {"dry_run": False})
    assert [*dag["tasks"]] == ["maintain"]


STORED_LATER = """
import json, os, sys
from pathlib import Path
sys.argv = ["airflow", "dag-processor"]
from airflow.utils.db import initdb
initdb()
import headrace_plugin
from airflow.dag_processing.collection import update_dag_parsing_results_in_db
from airflow.dag_processing.dagbag import BundleDagBag
from airflow.models.dag import DagModel
from airflow.models.dagbundle import DagBundleModel
from airflow.models.dagcode import DagCode
from airflow.models.errors import ParseImportError
from airflow.serialization.serialized_objects import LazyDeserializedDAG
from airflow.utils.session import create_session
from sqlalchemy import select

dags, name = Path({dags!r}), "headrace_pipelines.py"
bag = BundleDagBag(dag_folder=dags / name, bundle_path=dags, bundle_name="dags-folder")
parsed = [LazyDeserializedDAG.from_dag(dag) for dag in bag.dags.values()]
os.unlink(os.environ["GONE"])
with create_session() as session:
    session.merge(DagBundleModel(name="dags-folder"))
    session.flush()
    update_dag_parsing_results_in_db(
        "dags-folder", None, parsed, dict(), 1.0, set(), session, files_parsed={{("dags-folder", name)}}
    )
    session.flush()
    dags = session.scalars(select(DagModel))
    print(json.dumps({{
        "stale": [dag.dag_id for dag in dags if dag.is_stale or dag.has_import_errors],
        "errors": [error.stacktrace for error in session.scalars(select(ParseImportError))],
        "codes": {{code.dag_id: code.source_code for code in session.scalars(select(DagCode))}},
    }}))
"""


def test_a_pipelines_file_that_goes_after_it_was_parsed_takes_no_other_dags_along(tmp_path: Path) -> None:
    files = tmp_path / "pipelines"
    files.mkdir()
    for name in ("clicks", "goes"):
        write_pipeline(files, name)
    environment = {
        "HEADRACE_PIPELINES": str(files),
        "PYTHONPATH": str(REPOSITORY / "plugins"),
        "GONE": str(files / "goes.py"),
    }
    stored_answer = python(STORED_LATER.format(dags=str(REPOSITORY / "dags")), tmp_path / "home", environment)
    assert (stored_answer["stale"], stored_answer["errors"]) == ([], [])
    assert "clicks per minute" in stored_answer["codes"]["headrace_clicks_process"]
    assert f"{files / 'goes.py'} is gone" in stored_answer["codes"]["headrace_goes_process"]


RENDER_SCRIPT = """
import json
from airflow.serialization.helpers import serialize_template_field
from headrace_airflow.dags import build_dags
from headrace_airflow.roots import Root

def rendered(family, task_id, **form):
    dag = build_dags(Root.of_environment()).dags[f"headrace_clicks_{family}"]
    task = dag.get_task(task_id)
    task.render_template_fields({"params": {**{name: param.value for name, param in dag.params.items()}, **form}})
    return {name: serialize_template_field(getattr(task, name), name) for name in task.template_fields}

print(json.dumps({
    "untouched": [rendered("process", task) for task in ("process", "audit")],
    "filled": rendered("process", "process", max_epochs=3, full_sweep=True, branch="{{ 7 * 7 }}"),
    "backfill": rendered("backfill", "replay", **{"from": "2026-11-01", "reason": None}),
    "recover": rendered("recover", "recover", snapshot="published"),
    "nothing": rendered("process", "process", branch=None),
}))
"""


def test_rendered_templates_show_what_the_form_asked_for_and_no_nulls(tmp_path: Path) -> None:
    write_pipeline(tmp_path, "clicks", options='airflow=hr.airflow(conn_id="my_spark", env={"TZ": "UTC"})')
    environment = {
        "HEADRACE_PIPELINES": str(tmp_path),
        "PYTHONPATH": str(REPOSITORY / "plugins"),
        "AWS_SECRET_ACCESS_KEY": "of-the-worker",
        "AIRFLOW_CONN_MY_SPARK": "spark://ada:of-the-connection@master:7077",
    }
    shown_answer = python(RENDER_SCRIPT, tmp_path / "home", environment)
    assert shown_answer["untouched"] == [{"asked": "branch: main\n", "env_vars": {"TZ": "UTC"}}] * 2
    requested_lines = {
        name: shown_answer[name]["asked"].splitlines() for name in ("filled", "backfill", "recover", "nothing")
    }
    assert requested_lines == {
        "filled": ["max_epochs: 3", "branch: {{ 7 * 7 }}", "full_sweep: True"],
        "backfill": ["from: 2026-11-01", "promote: at once"],
        "recover": ["snapshot: published", "when: when approved"],
        "nothing": ["nothing but what the pipeline says"],
    }
    assert "of-the" not in str(shown_answer)
