"""Every conformance case of the repository on the kernel in this process."""

from pathlib import Path

import pytest

from headrace.conformance.command import Status, run_file
from headrace.conformance.on_local import LocalExecutor

QUICK = ("windows", "retractions", "session_merges", "lateness_and_triggers", "combiners")
FILES = [
    pytest.param(file, id=file.stem, marks=[] if file.stem in QUICK else [pytest.mark.slow])
    for file in sorted((Path(__file__).parent / "cases").glob("*.json"))
]


@pytest.mark.parametrize("file", FILES)
def test_cases_pass_on_the_kernel(file: Path) -> None:
    results = run_file(file, LocalExecutor())
    wrong = [f"{r.name}: {r.status} {r.reason}" for r in results if r.required and r.status is not Status.PASSED]
    assert not wrong, "\n".join(wrong)
