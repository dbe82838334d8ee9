"""Every conformance case of the repository through the levels of tasks and the blobs between them, in this process."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.distribute.tasks.levels import RowBatches
from headrace.distribute.tasks.plan import EpochPlan, TaskEnvironment
from headrace_lab.conformance import on_local
from headrace_lab.conformance.on_local import LocalExecutor
from headrace_lab.conformance.on_tasks import map_elements
from headrace_lab.conformance.runner import CaseStatus, run_file
from tests.conformance.test_cases import land_joined_outputs

QUICK = ("retractions", "session_merges", "two_stages")
FILES = [
    pytest.param(file, id=file.stem, marks=[] if file.stem in QUICK else [pytest.mark.slow])
    for file in sorted((Path(__file__).parent / "cases").glob("*.json"))
]


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_cases_pass_through_tasks(file: Path) -> None:
    results = run_file(file, LocalExecutor())
    wrong = [f"{r.name}: {r.status} {r.reason}" for r in results if r.required and r.status is not CaseStatus.PASSED]
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
def test_joins_of_outputs_pass_as_joins_of_inputs_do(tmp_path: Path) -> None:
    results = run_file(land_joined_outputs(tmp_path), LocalExecutor())
    assert [f"{r.name}: {r.status} {r.reason}" for r in results if r.status is not CaseStatus.PASSED] == []


def test_elements_of_a_step_go_from_several_tasks_to_several_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    messages: set[tuple[int, int, int]] = set()

    def watch_call(work: TaskEnvironment, plan: EpochPlan, numbers: RowBatches) -> Iterator[pa.RecordBatch]:
        for blob in map_elements(work, plan, numbers):
            ((part, task, number),) = zip(*(blob.column(index).to_pylist() for index in range(3)), strict=True)
            if number:  # rows, not only what the task found
                messages.add((plan.epoch, task, part))
            yield blob

    monkeypatch.setattr(on_local, "map_elements", watch_call)
    file = Path(__file__).parent / "cases" / "own_exchange.json"
    (result,) = run_file(file, LocalExecutor(), pattern="own_many_keys_from_many_shares")
    assert result.status is CaseStatus.PASSED, result.reason
    tasks = {(task, part) for epoch, task, part in messages if epoch == 1}
    assert {task for task, _ in tasks} == {0, 1, 2}
    assert len({part for _, part in tasks}) > 1
