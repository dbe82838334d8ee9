"""Random pipelines with loops in runs over files: panes and accounts are those of the reference, and a replay has the
same ones.
"""

import pytest
from hypothesis import HealthCheck, given, settings
from pyspark.sql import SparkSession

from tests.loops.pipelines import scenarios, several
from tests.process.random_runs import SCHEDULES, Schedule, check
from tests.reference.scenarios import Scenario
from tests.reference.strategies import examples


@pytest.mark.slow
@given(scenarios(), SCHEDULES)
@settings(examples(60), suppress_health_check=list(HealthCheck))
def test_loops_without_a_jvm_give_what_the_reference_gives(scenario: Scenario, schedule: Schedule) -> None:
    check(scenario, schedule, ["local"])


@pytest.mark.slow
@given(several(), SCHEDULES)
@settings(examples(12, fewest=4), suppress_health_check=list(HealthCheck))
def test_loops_beside_other_outputs_give_what_the_reference_gives(scenario: Scenario, schedule: Schedule) -> None:
    check(scenario, schedule, ["local"])


@pytest.mark.spark
@given(scenarios(), SCHEDULES)
@settings(examples(3), suppress_health_check=list(HealthCheck))
def test_loops_on_spark_give_what_the_reference_gives(
    spark: SparkSession, scenario: Scenario, schedule: Schedule
) -> None:
    check(scenario, schedule, ["spark", "local"], spark)
