"""Random pipelines over records of both signs: runs on both executors, and replays, give what the reference gives."""

import pytest
from hypothesis import HealthCheck, given, settings
from pyspark.sql import SparkSession

from tests.changelogs.signed_scenarios import signed_scenarios
from tests.process.random_runs import SCHEDULES, Schedule, check
from tests.process.several import several_outputs
from tests.reference.scenarios import Scenario
from tests.reference.strategies import examples


@pytest.mark.slow
@given(signed_scenarios(), SCHEDULES)
@settings(examples(10), suppress_health_check=list(HealthCheck))
def test_runs_without_a_jvm_give_what_the_reference_gives(scenario: Scenario, schedule: Schedule) -> None:
    check(scenario, schedule, ["local"])


@pytest.mark.slow
@given(several_outputs(signed_scenarios(), 1, signed_scenarios()), SCHEDULES)
@settings(examples(4), suppress_health_check=list(HealthCheck))
def test_outputs_side_by_side_give_what_the_reference_gives(scenario: Scenario, schedule: Schedule) -> None:
    check(scenario, schedule, ["local"])


@pytest.mark.spark
@given(signed_scenarios(), SCHEDULES)
@settings(examples(1), suppress_health_check=list(HealthCheck))
def test_runs_on_spark_give_what_the_reference_gives(
    spark: SparkSession, scenario: Scenario, schedule: Schedule
) -> None:
    check(scenario, schedule, ["spark", "local"], spark)
