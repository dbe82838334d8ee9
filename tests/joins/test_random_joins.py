"""Random pipelines with joins give what the reference gives, computed in the run's own process and by Spark."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import cycle

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from headrace.distribute.epoch import Attempts
from headrace.distribute.local import LocalEngine, Threads
from headrace.distribute.tasks.engine import TasksEngine
from headrace.distribute.tasks.plan import TaskEnvironment
from headrace.runs.executors.on_local import LocalExecution
from headrace_lab.sizes import set_sizes
from tests.distribute.blobs import OverBlobs
from tests.joins.random_joins import join_scenarios, output_join_scenarios
from tests.process.executors import computing
from tests.process.random_runs import SCHEDULES, Schedule, check
from tests.reference.scenarios import Scenario
from tests.reference.strategies import examples
from tests.rows.random_rows import check_rows


@dataclass(frozen=True)
class Cut:
    """How finely a run is cut: ``tasks`` at once, with an exchange of ``blobs`` between them or none; how many bytes of
    input a task reads, a part of keys or of a join gets, and how many wait in memory for the next level.
    """

    tasks: int
    blobs: bool
    share_bytes: int
    part_bytes: int
    join_part_bytes: int
    held_bytes: int

    def set_sizes(self) -> AbstractContextManager[None]:
        """Inside, epochs are cut so."""
        return set_sizes(
            task_bytes=1,
            least_of_a_file=64,
            most_of_a_share=self.share_bytes,
            most_of_a_part=self.part_bytes,
            join_part_bytes=self.join_part_bytes,
            held_bytes=self.held_bytes,
        )


CUTS = st.lists(
    st.builds(
        Cut,
        st.integers(1, 3),
        st.sampled_from([False, False, True]),
        st.sampled_from([200, 2**24]),
        st.sampled_from([150, 2**25]),
        st.sampled_from([100, 2**23]),
        st.sampled_from([0, 500, 2**28]),
    ),
    min_size=1,
    max_size=4,
)


@contextmanager
def cutting(cuts: Sequence[Cut]) -> Iterator[None]:
    """Inside, runs are cut by ``cuts`` in turn: each goes on from the state that other parts have left."""
    turns = cycle(cuts)

    def engine(side: LocalExecution, attempts: Attempts) -> TasksEngine:
        cut = next(turns)
        cuts_of_runs.enter_context(cut.set_sizes())
        if cut.blobs:
            work = TaskEnvironment.from_pipeline(side.pipeline, side.store, side.landing)
            return OverBlobs(work, attempts, cut.tasks)
        local_engine = LocalEngine(side.pipeline, side.store, side.landing, attempts)
        local_engine.runner = Threads(local_engine.work, cut.tasks)
        return local_engine

    with computing(engine), ExitStack() as cuts_of_runs:
        yield


def in_slices() -> AbstractContextManager[None]:
    """Inside, a join has many slices of all that it does, and layers are merged all the time, in many slices."""
    return set_sizes(
        join_left_rows=2,
        join_right_rows=2,
        join_piece_rows=2,
        join_samples=2,
        join_fold_rows=2,
        join_anchor_rows=2,
        join_long_part=1,
        join_shared_by=1,
        merge_range_bytes=2,
        merge_samples=2,
        merge_step_rows=2,
        fanout=2,
    )


def check_joined(scenario: Scenario, schedule: Schedule, executors: list[str], spark: object = None) -> None:
    """Rows as rows, panes as panes. A batch of lookups is refused."""
    pipeline = scenario.pipeline
    if any(join.by_arrival for join in pipeline.joins_of_inputs):
        schedule = replace(schedule, mode="micro-batch")
    (check_rows if pipeline.rows or pipeline.outputs else check)(scenario, schedule, executors, spark)


@pytest.mark.slow
@given(join_scenarios(), SCHEDULES, CUTS, st.booleans())
@settings(examples(60, fewest=5), suppress_health_check=list(HealthCheck))
def test_joined_rows_are_those_of_the_reference(
    scenario: Scenario, schedule: Schedule, cuts: list[Cut], is_sliced: bool
) -> None:
    with cutting(cuts), in_slices() if is_sliced else nullcontext():
        check_joined(scenario, schedule, ["local"])


@pytest.mark.slow
@given(output_join_scenarios(), SCHEDULES, CUTS, st.booleans())
@settings(examples(40, fewest=3), suppress_health_check=list(HealthCheck))
def test_joined_outputs_are_those_of_the_reference(
    scenario: Scenario, schedule: Schedule, cuts: list[Cut], is_sliced: bool
) -> None:
    with cutting(cuts), in_slices() if is_sliced else nullcontext():
        check_rows(scenario, schedule, ["local"])


@pytest.mark.spark
@given(join_scenarios(), SCHEDULES)
@settings(examples(2), suppress_health_check=list(HealthCheck))
def test_joined_rows_on_spark_are_those_of_the_reference(
    spark: SparkSession, scenario: Scenario, schedule: Schedule
) -> None:
    check_joined(scenario, schedule, ["spark", "local"], spark)
