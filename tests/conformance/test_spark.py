"""Every case of the conformance file on the Spark engine, in the application of the tests."""

from pathlib import Path

import pytest

from headrace.conformance.command import Status, run_file
from headrace.conformance.on_spark import SparkExecutor
from headrace.distribute.spark.types import SparkSession

pytestmark = pytest.mark.spark

CASES = Path(__file__).parent / "cases"
# the paper's figures run on Spark in tests/observe, our own cases by `headrace conformance`
FILES = sorted(f for f in CASES.glob("*.json") if not f.name.startswith("own_") and f.stem != "paper_figures")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_cases_pass_on_spark(spark: SparkSession, file: Path) -> None:
    results = run_file(file, SparkExecutor(spark))
    wrong = [f"{r.name}: {r.status} {r.reason}" for r in results if r.required and r.status is not Status.PASSED]
    assert not wrong, "\n".join(wrong)
