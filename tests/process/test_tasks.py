"""Random pipelines in runs over files, computed by tasks of so many shares and parts, in this process; each run goes on
from the state that another executor, or another number of tasks, has left.
"""

from dataclasses import dataclass
from itertools import cycle

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.distribute.epoch import Attempts
from headrace.distribute.local.epochs import LocalEngine
from headrace.distribute.tasks.engine import TasksEngine
from headrace.distribute.tasks.here import Here
from headrace.distribute.tasks.work import Work
from headrace.pipeline import Executor
from headrace.runs.executors.on_local import OnLocal
from tests.process.random_runs import SCHEDULES, Schedule, check
from tests.process.wider import wider_scenarios
from tests.reference.scenarios import Scenario
from tests.reference.strategies import examples


@dataclass(frozen=True)
class Cut:
    """How the tasks of a run are cut; None: it is no run by tasks."""

    shares: int
    parts: int


CUTS = st.lists(st.one_of(st.none(), st.builds(Cut, st.integers(1, 3), st.integers(1, 4))), min_size=1, max_size=4)


class InThisProcess(TasksEngine):
    """Tasks without Spark."""

    executor = "tasks"

    def in_background(self, run):  # type: ignore[no-untyped-def]
        """``run`` itself."""
        return run


@pytest.mark.slow  # a run is some tenths of a second, and these are many
@given(wider_scenarios(), SCHEDULES, CUTS)
@settings(examples(40), suppress_health_check=list(HealthCheck))
def test_runs_by_any_tasks_give_what_the_reference_gives(
    scenario: Scenario, schedule: Schedule, cuts: list[Cut | None]
) -> None:
    turns = cycle(cuts)

    def engine(side: OnLocal, attempts: Attempts) -> LocalEngine | TasksEngine:
        cut = next(turns)
        if cut is None:
            return LocalEngine(side.pipeline, side.store, side.landing, attempts)
        runner = Here(cut.shares, cut.parts)
        return InThisProcess(Work.of(side.pipeline, side.store, side.landing), attempts, runner)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OnLocal, "engine", engine)
        check(scenario, schedule, [Executor.LOCAL])
