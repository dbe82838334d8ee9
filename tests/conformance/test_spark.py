"""Cases of the conformance files on Spark, in the application of the tests."""

import json
from pathlib import Path

import pytest

from headrace.distribute.spark.application import SparkSession
from headrace.model.accumulation import Accumulation
from headrace.model.windows import FixedWindows, GlobalWindows, Sessions, SlidingWindows
from headrace.pipeline.rows import Distinct, Every, Newest, Top
from headrace_lab.conformance.on_spark import SparkExecutor, representatives
from headrace_lab.conformance.runner import CaseStatus, run_file
from headrace_lab.conformance.schema import is_dialect, read_case

CASES = Path(__file__).parent / "cases"
OWN = ("own_columns", "own_having", "own_joins", "own_nested", "own_outputs", "own_rows")
# the paper's figures run on Spark in tests/observe, most of our own cases by `headrace conformance`
FILES = sorted(
    f for f in CASES.glob("*.json") if f.stem in OWN or (not f.name.startswith("own_") and f.stem != "paper_figures")
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The cases of all those files in one."""
    cases = [case for each in FILES for case in json.loads(each.read_text())["cases"]]
    whole = tmp_path / "cases.json"
    whole.write_text(json.dumps({"schema_version": 1, "cases": cases}))
    return whole


def test_of_each_kind_one_goes_through_the_exchanges_of_spark(file: Path) -> None:
    raws = json.loads(file.read_text())["cases"]
    cases = [read_case(raw) for raw in raws if not is_dialect(raw) and raw.get("window", {}).get("type") != "custom"]
    job_cases = representatives(cases)
    first = {(type(case.stages[0].where), len(case.stages)) for case in job_cases}
    assert {(FixedWindows, 1), (SlidingWindows, 1), (Sessions, 1), (GlobalWindows, 1), (FixedWindows, 2)} <= first
    assert {case.stages[0].how.accumulation for case in job_cases} == set(Accumulation)
    assert {len(case.outputs) for case in job_cases if case.outputs} >= {3, 4}, "unions, and a diamond"
    assert {case.stages[0].how.accumulation for case in job_cases if case.stages[0].having is not None} >= {
        *Accumulation
    }
    of_rows = [case.stages[0].rows for case in job_cases if case.stages[0].rows is not None]
    assert {type(rows.take) for rows in of_rows if rows.join is None} == {type(None), Newest, Top, Distinct, Every}
    assert [rows.join is not None for rows in of_rows].count(True) == 2, "of inputs, and of outputs"
    assert [rows.value_type is not None for rows in of_rows].count(True) == 1, "nested values"
    assert len(job_cases) < len(cases) / 5


@pytest.mark.spark
def test_cases_pass_on_spark(spark: SparkSession, file: Path) -> None:
    """Those that go through the exchanges of Spark, and a tenth of the others: a task of Spark has the executor that
    passes all of them in ``test_local.py``.
    """
    raws = [raw for raw in json.loads(file.read_text())["cases"] if not is_dialect(raw)]
    job_names = {case.name for case in representatives([read_case(raw) for raw in raws])}
    in_tasks = [raw["name"] for raw in raws if raw["name"] not in job_names]
    names = job_names.union(in_tasks[::10])
    cases = [raw for raw in raws if raw["name"] in names]
    assert {case.name for case in representatives([read_case(raw) for raw in cases])} == job_names
    file.write_text(json.dumps({"schema_version": 1, "cases": cases}))
    results = run_file(file, SparkExecutor(spark))
    assert len(results) == len(names)
    wrong = [f"{r.name}: {r.status} {r.reason}" for r in results if r.required and r.status is not CaseStatus.PASSED]
    assert not wrong, "\n".join(wrong)
