"""Airflow in processes of its own: importing it warns, and it keeps what the environment said at its first import."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.airflow.zygote import run_script

REPOSITORY = Path(__file__).resolve().parents[2]

PIPELINE = '''
"""A pipeline for tests: clicks per minute."""
from datetime import datetime
import headrace as hr
from headrace import col

clicks = hr.json("landing/{name}", {{"user": str, "at": datetime}}, {source}).event_time("at", bound="1m")
{variable} = hr.Pipeline(
    "{name}",
    clicks,
    key="user",
    what={{"clicks": hr.count()}},
    where=hr.FixedWindows("1m"),
    when=hr.AfterWatermark(early=hr.AfterCount(1), late=hr.AfterCount(1)),
    how=hr.retracting(allowed_lateness="1h"),
    expectations=[{expected}],
    {options}
)
'''

TASKS = """
import json, os, types, uuid
from datetime import UTC, datetime
from pathlib import Path
from airflow.sdk.bases.operator import ExecutorSafeguard
from headrace.runs.reporting.results import read_run_result
from headrace_airflow.dags import build_dags
from headrace_airflow.roots import Root
from headrace_snapshots.store import open_store

ExecutorSafeguard.test_mode = True
store = open_store(os.environ["HEADRACE_ROOT"])

def verdict(error, policy):
    found = policy.evaluate(error, 1, 3).action.value
    return type(error).__name__ if found == "default" else found

def execute(family, task_id, pipeline="clicks", due=None, run_id=None, context=None, **form):
    # a task is made anew for every attempt, as in a worker
    dag = build_dags(Root.of_environment()).dags[f"headrace_{pipeline}_{family}"]
    task = dag.get_task(task_id)
    run_id = run_id or ("manual" if due is None else f"scheduled__{due.isoformat()}")
    ti = types.SimpleNamespace(dag_id=dag.dag_id, run_id=run_id, task_id=task_id, try_number=1, id=uuid.uuid4())
    run_type = "manual" if due is None else "scheduled"
    run = types.SimpleNamespace(run_type=run_type, run_after=due or datetime.now(UTC))
    params = {**{name: param.value for name, param in dag.params.items()}, **form}
    before = submitted()
    try:
        found = {"xcom": task.execute({"ti": ti, "params": params, "dag_run": run, **(context or {})})}
    except Exception as error:
        found = {"raised": verdict(error, task.retry_policy), "message": str(error)}
    found["submitted"] = submitted() - before
    xcom = found.get("xcom") or {}
    if xcom.get("executor"):
        result = read_run_result(store, pipeline, xcom["run_id"])
        found["reason"], found["warnings"] = result.executor.reason, result.warnings
    return found

def submitted():
    file = Path(os.environ["SUBMITTED"])
    return len(file.read_text().splitlines()) if file.exists() else 0

def land(name, minute, pipeline="clicks", bad=""):
    click = {"user": "ada", "at": f"2026-11-20T00:{minute:02}:00Z"}
    store.write(f"landing/{pipeline}/{name}", (json.dumps(click) + "\\n" + bad).encode())

def forget_audits(pipeline="clicks"):
    audits = [found.path for found in store.list(f"{pipeline}/audits/")]
    for path in audits:
        store.delete(path)
    return len(audits)
"""
"""Runs tasks of generated DAGs as a worker does: what they return, or what becomes of them by their policy of retries
(``fail``, ``retry``, else what they raise), how many applications they submit. Those of a run of the schedule are told
when it was ``due``. ``context`` is what Airflow gives a task besides.
"""


TWO_PIPELINES = """
import json, os

import headrace as hr
from headrace.errors import HeadraceError
from headrace.pipeline.loading.registry import resolve_pipeline
from headrace_snapshots.store import open_store
from tests.airflow.test_end_to_end import land

root = os.environ["HEADRACE_ROOT"]
store = open_store(root)
for number in range(3):
    for name in ("clicks", "orders"):
        bad = ["oops"] if name == "clicks" else []
        land(store, name, f"{number}.jsonl", range(number * 7, number * 7 + 10), *bad)
        try:
            hr.open(root, create=True)[resolve_pipeline(name)].run()
        except HeadraceError as error:
            assert error.code == "data.audit_failed", error
"""
"""Runs the registered pipelines ``clicks`` and ``orders`` three times each; an audit holds back what ``orders`` has.
``clicks`` has three dead letters.
"""


def write_warning(context: Mapping[str, Any]) -> None:
    """Write what limits warn of to the file ``WARNED``, a line each: what a pipeline's ``on_warning`` may name."""
    with Path(os.environ["WARNED"]).open("a") as file:
        file.writelines(f"{warning}\n" for warning in context["headrace_warnings"])


def write_failure(context: Mapping[str, Any]) -> None:
    """Write whose retention failed, and by which error, to the file ``FAILED``: what ``on_failure`` may name."""
    with Path(os.environ["FAILED"]).open("a") as file:
        file.write(f"{context['headrace_pipeline']} {context['exception'].error.code}\n")


_EXPECTED = 'hr.expect("column_values_to_be_between", column="clicks", min_value=1, max_value={most})'


def write_pipeline(folder: Path, name: str, *, source: str = "", options: str = "", most: int | None = 100) -> Path:
    """A pipeline file; ``source`` and ``options`` are further arguments of FileSource and Pipeline.

    ``most`` None: nothing is expected, and no run of it imports Great Expectations, which is most of a short one.
    """
    file = folder / f"{name}.py"
    expected = "" if most is None else _EXPECTED.format(most=most)
    file.write_text(PIPELINE.format(variable=name, name=name, source=source, options=options, expected=expected))
    return file


SHOP = """
from datetime import datetime
import headrace as hr
from headrace import col

PER_USER = {"key": "user", "what": {"n": hr.count()}, "when": hr.on_update(), "how": hr.retracting("1h")}
shop = hr.Pipeline(
    "shop",
    hr.json("landing/shop", {"user": str, "at": datetime}).event_time("at", bound="1m"),
    outputs={
        "hourly": hr.Output(**PER_USER, where=hr.FixedWindows("1m")),
        "visits": hr.Output(**PER_USER, where=hr.Sessions("1m")),
        "daily": hr.Output(
            of="hourly", **PER_USER | {"what": {"n": col("n").sum()}}, where=hr.CalendarWindows("day")
        ),
    },
    executor="local",
)
"""


def write_shop(folder: Path) -> Path:
    """The file of a pipeline with three outputs, one of which reads another."""
    file = folder / "shop.py"
    file.write_text(SHOP)
    return file


def python(script: str, home: Path, environment: Mapping[str, str]) -> Any:
    """What ``script`` prints as JSON on its last line, run with an Airflow of its own in ``home``."""
    variables = {**os.environ, "AIRFLOW_HOME": str(home), "AIRFLOW__CORE__LOAD_EXAMPLES": "False", **environment}
    ended_script = run_script(script, variables)
    assert ended_script.returncode == 0, ended_script.stderr[-4000:]
    return json.loads(ended_script.stdout.splitlines()[-1])
