"""What crosses an exchange arrives as it was sent, or not at all; and tasks that run twice."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.distribute.epoch import Attempt
from headrace.distribute.tasks.engine import MAX_RUNS, TasksEngine
from headrace.distribute.tasks.exchange import ReceivedMessage, TornExchangeError, message_batches, receive_messages
from headrace.distribute.tasks.levels import level_below, map_level
from headrace.distribute.tasks.plan import EpochPlan, TaskEnvironment
from headrace.distribute.tasks.task_results import DisagreementError
from headrace.errors import RetryError
from headrace.ext.sources import SourceSplit
from headrace.model.time import Instant
from headrace.pipeline.endpoints import OWN
from headrace.sources.file_planning import VanishedFileError
from headrace.sources.landing import Landing
from headrace_lab.conformance.blobs import Blobs, numbers
from headrace_lab.sizes import set_sizes
from headrace_snapshots.store import open_store
from tests.process.clicks import CLICKS, land

ROWS = pa.RecordBatch.from_pydict({"n": pa.array(range(1000), pa.int64()), "text": ["x" * 50] * 1000})
NOON = Instant(1_767_268_800_000_000)


def for_part(rows: Iterable[pa.RecordBatch], part: int) -> list[pa.RecordBatch]:
    return [row for row in rows if row.column("part")[0].as_py() == part]


@set_sizes(blob_bytes=1000)
def test_rows_cross_in_blobs_of_bounded_size_whatever_the_order() -> None:
    messages = list(message_batches(7, 3, {"found": 1}, b"content", {1: ROWS}))
    assert max(len(row.column("blob")[0].as_py()) for row in messages) <= 1000
    (message,) = receive_messages(reversed(for_part(messages, 1)), 0)
    assert (message.task, message.result, message.rows) == (7, {"found": 1}, ROWS)
    (others,) = receive_messages(for_part(messages, 2), 0)
    assert (others.result, others.rows, others.digest) == ({"found": 1}, None, message.digest)


@set_sizes(blob_bytes=1000)
def test_a_blob_that_is_missing_or_of_another_run_is_noticed() -> None:
    messages = list(message_batches(0, 1, None, b"one", {0: ROWS}))
    other = list(message_batches(0, 1, None, b"other", {0: ROWS}))
    for rows in (messages[:-1], messages[1:], [*messages[:-1], other[-1]]):
        with pytest.raises(TornExchangeError):
            receive_messages(rows, 1)


def test_a_task_that_says_nothing_is_missed() -> None:
    with pytest.raises(TornExchangeError, match="task 1 of 2 sent nothing"):
        receive_messages(list(message_batches(0, 1, None, b"", {})), 2)


class TwoRuns(Blobs):
    """Tasks of which the first of the map side runs twice, the second time over other input, as if the first attempt's
    answer was lost after half of the parts had it. ``times``: in how many runs of the epoch that happens.
    """

    times = MAX_RUNS
    runs = 0

    def run_epoch(self, plan: EpochPlan) -> Sequence[ReceivedMessage]:
        type(self).runs += 1
        shares = numbers(0, len(plan.shares))
        first_messages = list(map_level(self.work, plan, shares))
        plan_twice = (
            self._over_other_input(plan) if self.runs <= self.times else plan
        )  # the same, with files of other names
        second_messages = list(map_level(self.work, plan_twice, shares))
        (number,) = plan.parts
        messages_of_both = [
            *for_part(first_messages, 0),
            *(row for part in range(1, number) for row in for_part(second_messages, part)),
        ]
        assert [len(chain.stages) for chain in self.work.chains] == [1]
        parts = [for_part(messages_of_both, part) for part in range(number)]
        return receive_messages([row for part in parts for row in level_below(self.work, plan, 0, part)], number)

    def _over_other_input(self, plan: EpochPlan) -> EpochPlan:
        """The plan, whose first file lacks its first record."""
        (first, *others), *shares = plan.shares
        store = self.work.store
        _, *lines = store.read(first.file.path).splitlines(keepends=True)
        info = store.write(f"elsewhere/{self.runs}.jsonl", b"".join(lines))
        file = SourceSplit(info.path, info.size, info.etag)
        return replace(plan, shares=((replace(first, file=file), *others), *shares))


def engine(root: Path, runner: Callable[[TaskEnvironment, int], Blobs], parts: int = 2) -> TasksEngine:
    store = open_store(root.as_uri())
    work = TaskEnvironment.from_pipeline(CLICKS, store, Landing(CLICKS, store))
    return TasksEngine(work, lambda epoch: Attempt(f"attempt-{epoch}", f"data/{epoch}"), runner(work, parts))


@pytest.fixture
def runs() -> Iterable[type[TwoRuns]]:
    yield TwoRuns
    TwoRuns.runs, TwoRuns.times = 0, MAX_RUNS


def test_parts_that_heard_different_runs_of_a_task_fail_the_epoch(tmp_path: Path, runs: type[TwoRuns]) -> None:
    land(tmp_path, 0, 1)
    made_engine = engine(tmp_path, runs)
    with pytest.raises(DisagreementError) as error:
        made_engine.compute({OWN: made_engine.landing.new_files({})[OWN]}, NOON)
    assert isinstance(error.value, RetryError)
    assert (runs.runs, made_engine.epoch) == (MAX_RUNS, -1)


def test_an_epoch_is_run_again_until_its_tasks_agree(tmp_path: Path, runs: type[TwoRuns]) -> None:
    land(tmp_path, 0, 1)
    runs.times = 1
    made_engine = engine(tmp_path, runs)
    computed_epoch = made_engine.compute({OWN: made_engine.landing.new_files({})[OWN]}, NOON)
    assert (runs.runs, computed_epoch.counts["accepted"]) == (2, 80)


def test_a_task_that_runs_twice_and_says_the_same_changes_nothing(tmp_path: Path, runs: type[TwoRuns]) -> None:
    land(tmp_path, 0, 1)
    runs.times = 0
    made_engine = engine(tmp_path, runs)
    computed_epoch = made_engine.compute({OWN: made_engine.landing.new_files({})[OWN]}, NOON)
    assert (runs.runs, computed_epoch.counts["accepted"]) == (1, 80)


class Forgetful(Blobs):
    """What one task of the map side passed on does not come to the driver."""

    def run_epoch(self, plan: EpochPlan) -> Sequence[ReceivedMessage]:
        first, *others = super().run_epoch(plan)
        (shares,) = first.result.history
        return [replace(first, result=replace(first.result, history=(shares[1:],))), *others]


def test_a_level_acknowledges_an_epoch_when_all_of_its_tasks_did(tmp_path: Path) -> None:
    land(tmp_path, 0, 2)
    for runner, expected in ((Blobs, {0, 1}), (Forgetful, {1})):
        made_engine = engine(tmp_path, runner)
        computed_epoch = made_engine.compute({OWN: made_engine.landing.new_files({})[OWN]}, NOON)
        assert (made_engine.levels, computed_epoch.acknowledged_levels) == (2, expected)


def test_a_typed_error_of_a_task_is_raised_where_the_epoch_is_driven(tmp_path: Path) -> None:
    land(tmp_path, 0, 1)
    made_engine = engine(tmp_path, Blobs, parts=3)
    files = made_engine.landing.new_files({})[OWN]
    (tmp_path / files[0].path).unlink()
    with pytest.raises(VanishedFileError, match=files[0].path):
        made_engine.compute({OWN: files}, NOON)
    assert made_engine.epoch == -1
