"""Tasks of the generated DAGs against a real catalog and real Spark applications, without an Airflow that runs.

``spark-submit`` is a script that counts and then runs submit.py itself, in which everything is real.
"""

import json
import os
import stat
import sys
from typing import Any

import pytest

from tests.airflow.subprocesses import TASKS, python, write_pipeline

pytestmark = pytest.mark.spark

SPARK_SUBMIT = """#!/bin/sh
echo "$@" >> "$SUBMITTED"
while [ "${{1##*/}}" != submit.py ]; do shift; done
exec {python} "$@"
"""

STORY = (
    TASKS
    + """
land("b.jsonl", 1)
land("c.jsonl", 2)
done = {"processed": execute("process", "process")}
done["audit that is stored"] = execute("process", "audit")
land("d.jsonl", 3)
import headrace as hr
from headrace.pipeline.loading.registry import resolve_pipeline
hr.open(os.environ["HEADRACE_ROOT"])[resolve_pipeline("clicks")].run(publish=False, executor="local")
done["forgotten"] = forget_audits()
done["audit that is missing"] = execute("process", "audit")
done["audit again"] = execute("process", "audit")
land("a.jsonl", 4)
done["without a sweep"] = execute("process", "process")
done["with a sweep"] = execute("process", "process", full_sweep=True, executor="local")
done["submitted"] = Path(os.environ["SUBMITTED"]).read_text().splitlines()
print(json.dumps(done))
"""
)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What each task of the story returned or raised, and how many applications it submitted."""
    folder = tmp_path_factory.mktemp("tasks")
    write_pipeline(folder, "clicks", source='look_back=1, names="ordered",')
    binary = folder / "bin" / "spark-submit"
    binary.parent.mkdir()
    binary.write_text(SPARK_SUBMIT.format(python=sys.executable))
    binary.chmod(binary.stat().st_mode | stat.S_IXUSR)
    environment = {
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "SUBMITTED": str(folder / "submitted"),
        "HEADRACE_PIPELINES": str(folder),
        "HEADRACE_ROOT": (folder / "root").as_uri(),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
    }
    return python(STORY, folder / "airflow", environment)


def test_an_audit_that_is_stored_needs_no_application(answers: Any) -> None:
    assert (answers["processed"]["xcom"]["epochs"], answers["processed"]["submitted"]) == (1, 1)
    answer = answers["audit that is stored"]
    assert answer["submitted"] == 0
    assert answer["xcom"] == {"from": None, "to": answers["processed"]["xcom"]["snapshot"], "success": True}


def test_an_audit_that_is_missing_is_made_by_an_application_of_its_own(answers: Any) -> None:
    assert answers["forgotten"] > 0
    answer = answers["audit that is missing"]
    assert answer["submitted"] == 1
    assert answer["xcom"]["from"] == answers["processed"]["xcom"]["snapshot"]
    assert answers["audit again"] == {**answer, "submitted": 0}


def test_spark_starts_beside_all_imports_where_there_is_input(answers: Any) -> None:
    assert [line.endswith(" --start-spark") for line in answers["submitted"]] == [True, False, False], answers[
        "submitted"
    ]


def test_the_form_asks_for_a_full_sweep(answers: Any) -> None:
    assert "xcom" in answers["without a sweep"], answers["without a sweep"]
    assert answers["without a sweep"]["xcom"]["epochs"] == 0
    swept = answers["with a sweep"]["xcom"]
    assert (swept["epochs"], swept["counts"]["input_files"]) == (1, 1)
