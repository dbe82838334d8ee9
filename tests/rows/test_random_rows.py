"""Random pipelines of rows give what the reference gives, computed in the run's own process and by Spark."""

import pytest
from hypothesis import HealthCheck, given, settings
from pyspark.sql import SparkSession

from tests.process.random_runs import SCHEDULES, Schedule
from tests.reference.scenarios import Scenario
from tests.reference.strategies import examples
from tests.rows.random_rows import check_rows, group_scenarios, row_scenarios


@pytest.mark.slow
@given(row_scenarios(), SCHEDULES)
@settings(examples(20, fewest=4), suppress_health_check=list(HealthCheck))
def test_rows_are_those_of_the_reference(scenario: Scenario, schedule: Schedule) -> None:
    check_rows(scenario, schedule, ["local"])


@pytest.mark.slow
@given(row_scenarios(is_signed=True), SCHEDULES)
@settings(examples(20, fewest=4), suppress_health_check=list(HealthCheck))
def test_rows_of_records_of_both_signs_are_those_of_the_reference(scenario: Scenario, schedule: Schedule) -> None:
    check_rows(scenario, schedule, ["local"])


@pytest.mark.spark
@given(row_scenarios(), SCHEDULES)
@settings(examples(2), suppress_health_check=list(HealthCheck))
def test_rows_on_spark_are_those_of_the_reference(spark: SparkSession, scenario: Scenario, schedule: Schedule) -> None:
    check_rows(scenario, schedule, ["spark", "local"], spark)


@pytest.mark.spark
@given(row_scenarios(is_signed=True), SCHEDULES)
@settings(examples(1), suppress_health_check=list(HealthCheck))
def test_signed_rows_on_spark_are_those_of_the_reference(
    spark: SparkSession, scenario: Scenario, schedule: Schedule
) -> None:
    check_rows(scenario, schedule, ["spark", "local"], spark)


@pytest.mark.slow
@given(group_scenarios(), SCHEDULES)
@settings(examples(20, fewest=4), suppress_health_check=list(HealthCheck))
def test_rows_of_groups_are_those_of_the_reference(scenario: Scenario, schedule: Schedule) -> None:
    check_rows(scenario, schedule, ["local"])


@pytest.mark.slow
@given(group_scenarios(is_signed=True), SCHEDULES)
@settings(examples(20, fewest=4), suppress_health_check=list(HealthCheck))
def test_rows_of_groups_of_both_signs_are_those_of_the_reference(scenario: Scenario, schedule: Schedule) -> None:
    check_rows(scenario, schedule, ["local"])


@pytest.mark.spark
@given(group_scenarios(), SCHEDULES)
@settings(examples(2), suppress_health_check=list(HealthCheck))
def test_rows_of_groups_on_spark_are_those_of_the_reference(
    spark: SparkSession, scenario: Scenario, schedule: Schedule
) -> None:
    check_rows(scenario, schedule, ["spark", "local"], spark)


@pytest.mark.slow
@given(group_scenarios(is_computed=True), SCHEDULES)
@settings(examples(20, fewest=4), suppress_health_check=list(HealthCheck))
def test_computed_rows_are_those_of_the_reference(scenario: Scenario, schedule: Schedule) -> None:
    check_rows(scenario, schedule, ["local"])


@pytest.mark.slow
@given(group_scenarios(is_signed=True, is_computed=True), SCHEDULES)
@settings(examples(20, fewest=4), suppress_health_check=list(HealthCheck))
def test_computed_rows_of_both_signs_are_those_of_the_reference(scenario: Scenario, schedule: Schedule) -> None:
    check_rows(scenario, schedule, ["local"])


@pytest.mark.spark
@given(group_scenarios(is_signed=True, is_computed=True), SCHEDULES)
@settings(examples(1), suppress_health_check=list(HealthCheck))
def test_computed_rows_on_spark_are_those_of_the_reference(
    spark: SparkSession, scenario: Scenario, schedule: Schedule
) -> None:
    check_rows(scenario, schedule, ["spark", "local"], spark)
