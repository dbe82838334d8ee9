"""What the first task of a run says of a form that Airflow let through, before anything is done."""

import json
from typing import Any

import pytest

from tests.airflow.subprocesses import python, write_pipeline

pytestmark = pytest.mark.slow  # importing Airflow takes seconds

CHECK = """
import json, os, types
from headrace_airflow.failures import TypedTaskError
from headrace_airflow.dags import asked_for
from airflow.sdk.bases.operator import ExecutorSafeguard
ExecutorSafeguard.test_mode = True

def accepted(dag, conf):
    for name, value in conf.items():
        if name in dag.params:
            dag.params[name] = value  # Airflow, when a run is triggered
    values = {name: dag.params.get_param(name).resolve() for name in dag.params}
    run = types.SimpleNamespace(conf=conf)
    (first,) = dag.roots
    try:
        first.execute({"params": values, "dag_run": run, "ti": types.SimpleNamespace(run_id="manual")})
    except TypedTaskError as error:
        return "first task", str(error)

def check(family, conf):
    try:
        dags = asked_for()
        return accepted(dags.get(f"headrace_awaiting_{family}") or dags[f"headrace_{family}"], conf)
    except Exception as error:
        return "trigger", str(error)

print(json.dumps([check(family, conf) for family, conf in json.loads(os.environ["FORMS"])]))
"""

WRONG: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "unknown": ("process", {"max_epoch": 3}, "first task", "names 'max_epoch', which this DAG does not know; did you"),
    "meant": ("process", {"max_epoch": 3}, "first task", "did you mean 'max_epochs'? it knows max_epochs, files_per"),
    "nothing near": (
        "recover",
        {"snapshot": "x", "zebra": None},
        "first task",
        "names 'zebra', which this DAG does not know; it knows",
    ),
    "recover": ("recover", {"snapshot": "x", "snapshots": 1}, "first task", "did you mean 'snapshot'?"),
    "backfill": ("backfill", {"until": "2026-01-01"}, "first task", "does not know; it knows from, to, promote"),
    "order": (
        "backfill",
        {"from": "2026-11-20T00:00:00Z", "to": "2026-11-19T00:00:00Z"},
        "first task",
        "the range from 2026-11-20T00:00:00Z to 2026-11-19T00:00:00Z is empty: its end must be later than its start",
    ),
    "empty": (
        "backfill",
        {"from": "2026-11-20T00:00:00Z", "to": "2026-11-20T00:00:00+00:00"},
        "first task",
        "is empty: its end must be later",
    ),
    "patch": ("backfill", {"patch": True, "promote": "never"}, "first task", "the form says never to promote"),
    "promotion": ("backfill", {"promote": True}, "trigger", "True is not of type 'string'"),
    "zone": ("backfill", {"from": "2026-11-20T00:00:00"}, "first task", "or a time with its zone like 2026-01-01T06"),
    "newline": ("process", {"branch": "mine\n"}, "trigger", "'mine\\n' does not match"),
    "newline of a backfill": ("backfill", {"branch": "mine\n"}, "trigger", "'mine\\n' does not match"),
    "published": ("process", {"branch": "published"}, "first task", "branch 'published' is what readers see"),
    "length": ("maintain", {"keep_for": "abc"}, "trigger", "'abc' does not match"),
    "length with a newline": ("maintain", {"keep_for": "30d\n"}, "trigger", "does not match"),
    "unit": ("maintain", {"keep_for": "30x"}, "first task", "keep_for='30x' is not a length of time"),
    "capital": ("maintain", {"keep_for": "1M"}, "first task", "keep_for='1M' is not a length of time"),
    "number": ("process", {"max_epochs": "3"}, "trigger", "'3' is not of type"),
    "signal": ("process", {"signals": ["og"]}, "first task", "waits for a signal 'og'; it waits for: ask, go"),
    "signal's key": (
        "process",
        {"signals": ["go=u1"]},
        "first task",
        'write a name, or a name and a key like go=["u1"]',
    ),
}


@pytest.fixture(scope="module")
def refusals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Who refused each form, and why."""
    folder = tmp_path_factory.mktemp("pipelines")
    awaiting = write_pipeline(folder, "awaiting", options="retention=hr.Retention()")
    waits = 'hr.AfterAny(hr.AfterSignal("go"), hr.AfterSignal("ask"))'
    awaiting.write_text(awaiting.read_text().replace("early=hr.AfterCount(1)", f"early={waits}"))
    forms = json.dumps([(family, conf) for family, conf, *_ in WRONG.values()])
    environment = {"HEADRACE_PIPELINES": str(folder), "HEADRACE_ROOT": (folder / "root").as_uri(), "FORMS": forms}
    answers = python(CHECK, tmp_path_factory.mktemp("airflow"), environment)
    assert not (folder / "root").exists()
    return dict(zip(WRONG, answers, strict=True))


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_with_a_form_is_told_before_anything_is_done(refusals: dict[str, Any], case: str) -> None:
    _, _, who, why = WRONG[case]
    assert refusals[case] is not None, "the form was taken"
    assert (refusals[case][0], why in refusals[case][1]) == (who, True), refusals[case]
    if who == "first task":
        assert refusals[case][1].startswith("config.form: ")
        assert refusals[case][1].endswith("Nothing was done. Trigger a new run with correct values.")
