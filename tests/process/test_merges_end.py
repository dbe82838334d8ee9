"""What is merged beside the epochs ends with the run: when a run has ended, nobody writes for it any more."""

import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError
from pathlib import Path

import pytest

from headrace.distribute.epoch import Attempts
from headrace.distribute.local import LocalEngine, Threads, available_cores
from headrace.distribute.process import BackgroundThread, Stop
from headrace.distribute.tasks.background import MergePlan
from headrace.distribute.tasks.exchange import ReceivedMessage
from headrace.errors import HeadraceError
from headrace.runs.executors.on_local import LocalExecution
from headrace.runs.options import RunOptions
from headrace.runs.process import process
from tests.process.clicks import CLICKS, land
from tests.process.executors import computing

SECONDS = 60.0


def test_work_goes_on_until_it_is_ended() -> None:
    background, results = BackgroundThread[list[int]]("work"), list[int]()
    began = threading.Event()

    def work(stop: Stop) -> list[int]:
        for piece in stop.check_each(iter(int, 1)):  # without an end of its own
            results.append(piece)
            began.set()
        return results

    background.begin(work)
    assert began.wait(SECONDS)
    assert (background.is_running, background.is_done) == (True, False)
    background.close()
    results_written = len(results)
    assert (background.is_running, len(results)) == (False, results_written)
    background.begin(lambda stop: [*stop.check_each([1, 2])])
    assert background.take_result() == [1, 2]


def test_what_waits_elsewhere_is_called_and_what_begins_too_late_does_not_begin() -> None:
    stop, calls = Stop(), list[str]()
    with stop.call_on_stop(lambda: calls.append("while")):
        stop.set()
    assert calls == ["while"]
    with pytest.raises(CancelledError), stop.call_on_stop(lambda: calls.append("after")):
        calls.append("begun")
    assert calls == ["while"]


class HoldingThreads(Threads):
    """Threads whose first merge takes away the input of the next epochs, and waits for its end before it writes."""

    root: Path
    ended: list[bool]

    def run_merge(self, plan: MergePlan, stop: Stop) -> Sequence[ReceivedMessage]:
        for file in sorted((self.root / "landing" / "clicks").iterdir())[-2:]:
            file.unlink(missing_ok=True)
        is_told = threading.Event()
        with stop.call_on_stop(is_told.set):
            self.ended.append(is_told.wait(SECONDS))
        return super().run_merge(plan, stop)


@pytest.mark.slow
def test_a_merge_ends_with_the_run_that_failed(tmp_path: Path) -> None:
    HoldingThreads.root, HoldingThreads.ended = tmp_path, []

    def make_holding_engine(run: LocalExecution, attempts: Attempts) -> LocalEngine:
        engine = LocalEngine(run.pipeline, run.store, run.landing, attempts)
        engine.runner = HoldingThreads(engine.work, available_cores())
        return engine

    land(tmp_path, 0, 24)
    with computing(make_holding_engine), pytest.raises(HeadraceError, match="landing/clicks"):
        process(CLICKS, tmp_path.as_uri(), RunOptions("fails", executor="local"))
    assert HoldingThreads.ended == [True], "the run ended without the merge"
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("merge")]
    assert not [*tmp_path.rglob("*-merged-*")]
    land(tmp_path, 22, 24)
    process(CLICKS, tmp_path.as_uri(), RunOptions("again", executor="local"))
    assert [*tmp_path.rglob("*-merged-*")], "what the first run began is done by the next one"
