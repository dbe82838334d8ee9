"""Random pipelines in runs over files, computed by so many tasks in this process, with and without an exchange between
them; each run continues from the state that another number of tasks has left.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.distribute.epoch import Attempts
from headrace.distribute.local import LocalEngine, Threads
from headrace.distribute.tasks.engine import TasksEngine
from headrace.distribute.tasks.plan import TaskEnvironment
from headrace.pipeline.scheduling import ExecutorDecision
from headrace.runs.executors.on_local import LocalExecution
from headrace.runs.options import Mode
from headrace_lab.sizes import set_sizes
from tests.distribute.blobs import OverBlobs
from tests.process.executors import SparkStandIn, computing
from tests.process.random_runs import SCHEDULES, Schedule, check
from tests.process.wider import wider_scenarios
from tests.reference.scenarios import Scenario
from tests.reference.strategies import examples


@dataclass(frozen=True)
class Cut:
    """How many tasks a run has at each level, of how many rows they compute an epoch at a time, whether an exchange
    lies between levels, and how many bytes wait in memory for the next one where none does.
    """

    tasks: int
    rows: int
    blobs: bool
    held_bytes: int


CUTS = st.lists(
    st.builds(Cut, st.integers(1, 4), st.sampled_from([1, 4, 2**16]), st.booleans(), st.sampled_from([0, 500, 2**28])),
    min_size=1,
    max_size=4,
)


class AllThreads(Threads):
    """Shares even the smallest work."""

    def task_count(self, size: int) -> int:
        return self.most


@pytest.mark.slow  # a run is some tenths of a second, and these are many
@given(wider_scenarios(), SCHEDULES, CUTS)
@settings(examples(40, fewest=4), suppress_health_check=list(HealthCheck))
def test_runs_by_any_tasks_give_what_the_reference_gives(
    scenario: Scenario, schedule: Schedule, cuts: list[Cut]
) -> None:
    turns = cycle(cuts)

    def engine(side: LocalExecution, attempts: Attempts) -> TasksEngine:
        cut = next(turns)
        cuts_of_runs.enter_context(set_sizes(slice_rows=cut.rows, held_bytes=cut.held_bytes))
        if cut.blobs:
            return OverBlobs(
                TaskEnvironment.from_pipeline(side.pipeline, side.store, side.landing), attempts, cut.tasks
            )
        local_engine = LocalEngine(side.pipeline, side.store, side.landing, attempts)
        local_engine.runner = AllThreads(local_engine.work, cut.tasks)
        return local_engine

    # layers are merged all the time, folds have several parts, files of a few records are cut into pieces, and few keys
    # into parts; a file of few rows has prefixes of their hashes
    small = set_sizes(
        fanout=2,
        fold_bytes=4000,
        merge_slice_rows=4,
        least_of_a_file=64,
        most_of_a_share=256,
        most_of_a_part=300,
        prefix_rows=1,
    )
    with computing(engine), small, ExitStack() as cuts_of_runs:
        check(scenario, schedule, ["local"])


@pytest.mark.slow  # as above
@given(wider_scenarios(), st.integers(1, 3))
@settings(examples(40, fewest=7), suppress_health_check=list(HealthCheck))
def test_runs_that_change_their_executor_give_what_the_reference_gives(scenario: Scenario, epochs: int) -> None:
    turns = cycle([True, *[True] * epochs, False])  # the plan asks first, and then so many epochs

    def fitting(*_: object) -> ExecutorDecision:
        return ExecutorDecision("local" if next(turns) else "spark", "by lot")

    merging = set_sizes(fanout=2)  # layers are being merged when a run changes it
    with pytest.MonkeyPatch.context() as patch, SparkStandIn.stand_in(), merging:
        patch.setattr("headrace.runs.executors.choice.fitting_executor", fitting)
        check(scenario, Schedule([False] * 5, Mode.MICRO_BATCH), ["auto"])
