"""Random pipelines in runs over files, computed by Spark and in the run's own process.

CI runs a seeded part; ``make fuzz EXAMPLES=1000`` runs as many fresh ones as one has patience for.
"""

import pytest
from hypothesis import HealthCheck, given, settings
from pyspark.sql import SparkSession

from tests.process.random_runs import SCHEDULES, Schedule, check, check_cut
from tests.process.several import LAST, cut_chains, several_outputs
from tests.process.wider import wider_scenarios
from tests.reference.scenarios import Scenario, scenarios
from tests.reference.strategies import examples

A_FEW = 5
"""Examples in CI: each is several runs, of which many make a pipeline anew."""


@pytest.mark.slow
@given(wider_scenarios(), SCHEDULES)
@settings(examples(30, fewest=A_FEW), suppress_health_check=list(HealthCheck))
def test_runs_without_a_jvm_give_what_the_reference_gives(scenario: Scenario, schedule: Schedule) -> None:
    check(scenario, schedule, ["local"])


@pytest.mark.slow
@given(several_outputs(wider_scenarios()), SCHEDULES)
@settings(examples(20, fewest=A_FEW), suppress_health_check=list(HealthCheck))
def test_outputs_side_by_side_give_what_the_reference_gives(scenario: Scenario, schedule: Schedule) -> None:
    check(scenario, schedule, ["local"])


@pytest.mark.slow
@given(several_outputs(wider_scenarios(), lower_count=1), SCHEDULES)
@settings(examples(12, fewest=A_FEW), suppress_health_check=list(HealthCheck))
def test_outputs_that_read_others_give_what_the_reference_gives(scenario: Scenario, schedule: Schedule) -> None:
    check(scenario, schedule, ["local"])


@pytest.mark.slow
@given(cut_chains(), SCHEDULES)
@settings(examples(20, fewest=A_FEW), suppress_health_check=list(HealthCheck))
def test_a_chain_cut_into_outputs_gives_what_it_gives_whole(
    scenarios: tuple[Scenario, Scenario], schedule: Schedule
) -> None:
    check_cut(*scenarios, schedule, LAST)


@pytest.mark.spark
@given(several_outputs(scenarios()), SCHEDULES)
@settings(examples(2), suppress_health_check=list(HealthCheck))
def test_outputs_on_spark_give_what_the_reference_gives(
    spark: SparkSession, scenario: Scenario, schedule: Schedule
) -> None:
    check(scenario, schedule, ["spark", "local"], spark)


@pytest.mark.spark
@given(scenarios(), SCHEDULES)
@settings(examples(3), suppress_health_check=list(HealthCheck))
def test_runs_on_spark_give_what_the_reference_gives(
    spark: SparkSession, scenario: Scenario, schedule: Schedule
) -> None:
    check(scenario, schedule, ["spark", "local"], spark)
