"""Random pipelines with joins give what the reference gives, computed in the run's own process and by Spark."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from headrace_lab.sizes import set_sizes
from tests.joins.random_joins import join_scenarios, output_join_scenarios
from tests.process.random_runs import SCHEDULES, Schedule, check
from tests.reference.scenarios import Scenario
from tests.reference.strategies import examples
from tests.rows.random_rows import check_rows


def in_pieces() -> AbstractContextManager[None]:
    """Inside, a join has many pieces of all that it does, and layers are merged all the time, in many pieces."""
    return set_sizes(
        join_left_rows=2,
        join_right_rows=2,
        join_piece_rows=2,
        join_samples=2,
        join_fold_rows=2,
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
@given(join_scenarios(), SCHEDULES, st.booleans())
@settings(examples(60, fewest=10), suppress_health_check=list(HealthCheck))
def test_joined_rows_are_those_of_the_reference(scenario: Scenario, schedule: Schedule, is_cut: bool) -> None:
    with in_pieces() if is_cut else nullcontext():
        check_joined(scenario, schedule, ["local"])


@pytest.mark.slow
@given(output_join_scenarios(), SCHEDULES, st.booleans())
@settings(examples(40, fewest=4), suppress_health_check=list(HealthCheck))
def test_joined_outputs_are_those_of_the_reference(scenario: Scenario, schedule: Schedule, is_cut: bool) -> None:
    with in_pieces() if is_cut else nullcontext():
        check_rows(scenario, schedule, ["local"])


@pytest.mark.spark
@given(join_scenarios(), SCHEDULES)
@settings(examples(2), suppress_health_check=list(HealthCheck))
def test_joined_rows_on_spark_are_those_of_the_reference(
    spark: SparkSession, scenario: Scenario, schedule: Schedule
) -> None:
    check_joined(scenario, schedule, ["spark", "local"], spark)
