"""The plan of a run: what it finds to do without moving anything, and what is left of it once the branch is claimed."""

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headrace.pipeline.endpoints import OWN
from headrace.runs import process as processing
from headrace.runs.epochs import RunContext
from headrace.runs.options import Mode, RunOptions
from headrace.runs.plan import AuditBranch, ComputeEpochs, RestoreState, RunStage, TakeBranch, look_ahead, plan_run
from headrace.runs.process import process
from headrace.runs.reporting.listener import wrap_listener
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store import ObjectStore, open_store
from headrace_snapshots.testing import FaultyStore, Operation, disturb_stores
from tests.process.clicks import CLICKS, land
from tests.process.test_process import current, truth

WRITES = {"write", "create", "delete"}


def refusing(root: Path) -> ObjectStore:
    """The store of ``root``, in which nothing can be written."""

    def refuse(operation: Operation) -> None:
        assert operation.kind not in WRITES, f"a plan writes {operation.path}"

    return FaultyStore(open_store(root.as_uri()), refuse)


def plan_stages(root: Path, options: RunOptions) -> tuple[RunStage, ...]:
    return plan_run(
        RunContext.from_options(CLICKS, options, refusing(root), wrap_listener(None), lambda: datetime.now(UTC))
    )


def options(run_id: str, **more: object) -> RunOptions:
    return RunOptions(run_id, executor="local", **more)  # type: ignore[arg-type]


def epochs_of(stages: tuple[RunStage, ...]) -> ComputeEpochs:
    """The epochs of a plan that computes some, after it has claimed and restored a branch."""
    taken_branch, restored_state, epochs, *_ = stages
    assert isinstance(taken_branch, TakeBranch)
    assert isinstance(restored_state, RestoreState)
    assert isinstance(epochs, ComputeEpochs)
    assert taken_branch.snapshot == restored_state.snapshot == epochs.snapshot
    assert (restored_state.executor.name, restored_state.executor.reason) == ("local", "asked for")
    return epochs


def names(epochs: ComputeEpochs) -> list[str]:
    return [file.path.rpartition("/")[2] for file in (epochs.files or {}).get(OWN, ())]


def sentences(stages: tuple[RunStage, ...]) -> list[str]:
    return [str(stage) for stage in stages]


def test_a_plan_names_what_is_new_and_writes_nothing(tmp_path: Path) -> None:
    land(tmp_path, 0, 2)
    stages = plan_stages(tmp_path, options("first"))
    first = epochs_of(stages)
    assert first.snapshot is None
    assert names(first) == ["part-00000.jsonl", "part-00001.jsonl"]
    assert sentences(stages) == [
        "claim branch main, which is empty: nobody else writes it then",
        "begin with nothing, on executor local: asked for",
        "compute epochs: landing/clicks/part-00000.jsonl, landing/clicks/part-00001.jsonl of source",
        "audit what branch main has and readers have not seen",
    ]
    ran = process(CLICKS, tmp_path.as_uri(), options("first"))
    (nothing,) = plan_stages(tmp_path, options("second"))
    assert isinstance(nothing, AuditBranch)
    land(tmp_path, 2, 3)
    third = plan_stages(tmp_path, options("third", publish=True))
    assert names(epochs_of(third)) == ["part-00002.jsonl"]
    assert epochs_of(third).snapshot == ran.snapshot
    assert sentences(third)[1] == f"restore snapshot {ran.snapshot}, on executor local: asked for"
    assert sentences(third)[-1] == "let readers see what the audit of branch main finds good"
    assert third == plan_stages(tmp_path, options("third", publish=True)), "a plan is a value"


def test_a_run_performs_the_stages_of_its_plan(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    land(tmp_path, 0, 2)
    root, given_options = tmp_path.as_uri(), options("first", publish=True)
    stages = look_ahead(
        processing.prepared_process(processing.open_run(CLICKS, root, given_options, wrap_listener(None)))
    ).stages
    assert stages == plan_stages(tmp_path, given_options)
    with caplog.at_level(logging.INFO, logger=processing.__name__):
        process(CLICKS, root, given_options)
    assert caplog.messages == sentences(stages)
    assert len(stages) == 5


def test_a_plan_of_a_replay_has_its_own_files(tmp_path: Path) -> None:
    land(tmp_path, 0, 2)
    process(CLICKS, tmp_path.as_uri(), options("first"))
    found_epochs = epochs_of(plan_stages(tmp_path, options("again", mode=Mode.REPLAY, branch="again")))
    assert (found_epochs.snapshot, found_epochs.files) == (None, None)
    assert found_epochs.replay is not None
    assert found_epochs.replay.files_left(None) == 2


def test_a_broken_head_is_left_to_the_restoring(tmp_path: Path) -> None:
    land(tmp_path, 0, 1)
    ran = process(CLICKS, tmp_path.as_uri(), options("first"))
    (tmp_path / "clicks" / "manifests" / f"{ran.snapshot}.json").write_bytes(b"{")
    stages = plan_stages(tmp_path, options("second"))
    found_epochs = epochs_of(stages)
    assert (found_epochs.snapshot, found_epochs.files) == (ran.snapshot, None)
    assert sentences(stages)[2] == "compute epochs of what is new after the newest whole snapshot"


def before_the_first(kind: str, prefix: str, do: Callable[[], object]) -> Callable[[Operation], None]:
    """A plan of faults: ``do`` before the first operation of ``kind`` below a path."""
    left = [do]

    def plan(operation: Operation) -> None:
        if left and operation.kind == kind and operation.path.startswith(prefix):
            left.pop()()

    return plan


def test_what_another_run_read_after_the_plan_is_not_read_again(tmp_path: Path) -> None:
    """It takes the branch and drains all input just before this run claims what it has planned from."""
    land(tmp_path, 0, 2)
    root = tmp_path.as_uri()
    others: list[Any] = []

    def run_other() -> None:
        others.append(process(CLICKS, root, options("other")))

    with disturb_stores(before_the_first("create", "clicks/log/", run_other)):
        ran = process(CLICKS, root, options("this"))
    assert len(others) == 1, "the other run came between"
    assert ran.epochs == ()
    assert Catalog(open_store(root), CLICKS.name).manifest(str(ran.snapshot)).epoch == 1
    assert current(CLICKS, tmp_path) == truth(2)
