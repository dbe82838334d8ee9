"""Random pipelines with joins give what the reference gives, computed in the run's own process and by Spark."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.distribute.spark.application import SparkSession
from headrace.distribute.tasks import background, joins
from headrace.kernel.joins import step
from headrace.state import migration
from headrace_snapshots.format import files
from tests.joins.random_joins import join_scenarios, output_join_scenarios
from tests.process.random_runs import SCHEDULES, Schedule, check
from tests.reference.scenarios import Scenario
from tests.reference.strategies import examples
from tests.rows.random_rows import check_rows

CUTS = (
    *((step, name) for name in ("LEFT_ROWS", "RIGHT_ROWS", "PIECE_ROWS", "_SAMPLES")),
    (joins, "FOLD_ROWS"),
    *((migration, name) for name in ("RANGE_BYTES", "_SAMPLES")),
    (background, "STEP_ROWS"),
    (files, "FANOUT"),
)
"""What makes many pieces of what a part of a join does, and merges layers all the time, in many pieces."""


def check_joined(scenario: Scenario, schedule: Schedule, executors: list[str], spark: object = None) -> None:
    """Rows as rows, panes as panes."""
    pipeline = scenario.pipeline
    (check_rows if pipeline.rows or pipeline.outputs else check)(scenario, schedule, executors, spark)


@pytest.mark.slow
@given(join_scenarios(), SCHEDULES, st.booleans())
@settings(examples(60, fewest=10), suppress_health_check=list(HealthCheck))
def test_joined_rows_are_those_of_the_reference(scenario: Scenario, schedule: Schedule, is_cut: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for module, name in CUTS if is_cut else ():
            patch.setattr(module, name, 2)
        check_joined(scenario, schedule, ["local"])


@pytest.mark.slow
@given(output_join_scenarios(), SCHEDULES, st.booleans())
@settings(examples(40, fewest=4), suppress_health_check=list(HealthCheck))
def test_joined_outputs_are_those_of_the_reference(scenario: Scenario, schedule: Schedule, is_cut: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for module, name in CUTS if is_cut else ():
            patch.setattr(module, name, 2)
        check_rows(scenario, schedule, ["local"])


@pytest.mark.spark
@given(join_scenarios(), SCHEDULES)
@settings(examples(2), suppress_health_check=list(HealthCheck))
def test_joined_rows_on_spark_are_those_of_the_reference(
    spark: SparkSession, scenario: Scenario, schedule: Schedule
) -> None:
    check_joined(scenario, schedule, ["spark", "local"], spark)
