"""Every conformance case of the repository on the reference interpreter."""

import json
from pathlib import Path

import pytest

from headrace_lab.conformance.on_reference import ReferenceExecutor
from headrace_lab.conformance.runner import CaseStatus, run_file

FILES = sorted((Path(__file__).parent / "cases").glob("*.json"))


def land_joined_outputs(folder: Path) -> Path:
    """A file of the cases of joins with each side as an output of rows, which changes nothing (16.8). There are no
    lookups of outputs.
    """
    whole = json.loads((Path(__file__).parent / "cases" / "own_joins.json").read_text())
    cases = [case for case in whole["cases"] if case["join"]["type"] != "lookup"]
    whole["cases"] = [{**case, "join": {**case["join"], "outputs": True}} for case in cases]
    path = folder / "joined_outputs.json"
    path.write_text(json.dumps(whole))
    return path


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_cases_pass_or_are_of_a_dialect(file: Path) -> None:
    results = run_file(file, ReferenceExecutor())
    wrong = [f"{r.name}: {r.status} {r.reason}" for r in results if r.required and r.status is not CaseStatus.PASSED]
    assert not wrong, "\n".join(wrong)


def test_joins_of_outputs_pass_as_joins_of_inputs_do(tmp_path: Path) -> None:
    results = run_file(land_joined_outputs(tmp_path), ReferenceExecutor())
    assert [f"{r.name}: {r.status} {r.reason}" for r in results if r.status is not CaseStatus.PASSED] == []


def test_names_are_unique_and_the_set_is_whole() -> None:
    names = [case["name"] for file in FILES for case in json.loads(file.read_text())["cases"]]
    assert len(names) == len(set(names))
    assert len([name for name in names if not name.startswith("own_")]) == 116
    assert len([name for name in names if name.startswith("own_")]) >= 60
