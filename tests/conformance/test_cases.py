"""Every conformance case of the repository on the reference interpreter."""

from functools import cache
from pathlib import Path

import pytest

from headrace.conformance.command import CaseResult, Status, run_file
from headrace.conformance.on_reference import ReferenceExecutor

CASES = Path(__file__).parent / "cases"
FILES = sorted(CASES.glob("*.json"))


@cache
def _results() -> list[CaseResult]:
    return [result for file in FILES for result in run_file(file, ReferenceExecutor())]


@pytest.mark.parametrize("result", _results(), ids=lambda result: result.name)
def test_case_passes_or_is_of_a_dialect(result: CaseResult) -> None:
    assert result.status is Status.PASSED or not result.required, result.reason


def test_names_are_unique_and_the_set_is_whole() -> None:
    names = [result.name for result in _results()]
    assert len(names) == len(set(names))
    assert len([name for name in names if not name.startswith("own_")]) == 116
    assert len([name for name in names if name.startswith("own_")]) >= 60
