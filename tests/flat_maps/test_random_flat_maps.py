"""Random pipelines over what was made of records give what the reference gives for that, epoch by epoch."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import headrace as hr
from headrace import col
from headrace.errors import PipelineError
from headrace_lab.reference.evaluate import Record
from headrace_lab.sizes import set_sizes
from tests.changelogs.signed_scenarios import signed_scenarios
from tests.flat_maps.functions import copies
from tests.process.executors import SparkStandIn
from tests.process.random_runs import SCHEDULES, RecordFunction, Schedule, check
from tests.process.wider import wider_scenarios
from tests.reference.scenarios import Scenario
from tests.reference.strategies import examples
from tests.rows.random_rows import check_rows, row_scenarios


def repeat_record(record: Record) -> Sequence[Record]:
    """What the batch function ``repeat_rows`` makes of a record."""
    x = record.get("x")
    return [record if x is None else {**record, "x": x + number} for number in range(copies(x))]


def _through_a_function(source: Any) -> Any:
    function = hr.BatchFunction("tests.flat_maps.functions:repeat_rows", source.types, deterministic=True)
    return replace(source, transform=function)


def explode_tags(record: Record) -> Sequence[Record]:
    """A record for each of its tags."""
    return [{**record, "tags": tag} for tag in record.get("tags") or ()]


def _explode_source(source: Any) -> Any:
    return replace(source, explode="tags")


_OF_TAGS = st.sampled_from([None, col("tags") > 1, col("tags").is_null()])


@st.composite
def flat_scenarios(draw: st.DrawFn, whole: st.SearchStrategy[Scenario]) -> tuple[Scenario, RecordFunction]:
    """A scenario of ``whole`` over others that are made of its records, and how."""
    scenario = draw(whole)
    pipeline = scenario.pipeline
    explodes = "tags" in pipeline.schema and draw(st.booleans())
    more = {"filter": draw(_OF_TAGS)} if explodes and not pipeline.outputs else {}
    try:
        of_source = _explode_source if explodes else _through_a_function
        inputs = [replace(input_, source=of_source(input_.source)) for input_ in pipeline.inputs]
        definition = replace(pipeline, input=inputs[0], union=tuple(inputs[1:]), **more)
    except PipelineError:
        assume(False)
        raise
    return Scenario(definition, scenario.epochs), explode_tags if explodes else repeat_record


def repeat_pane(pane: Record) -> Sequence[Record]:
    """What the batch function ``repeat_panes`` makes of a pane."""
    return [{**pane, "n": number} for number in range(copies(pane["n"]))]


@st.composite
def between_stages(draw: st.DrawFn, whole: st.SearchStrategy[Scenario]) -> Scenario:
    """A scenario of ``whole`` whose second aggregation reads what a function makes of panes."""
    scenario = draw(whole)
    pipeline = scenario.pipeline
    assume(pipeline.then)
    second, *more = pipeline.then
    function = hr.BatchFunction(PANE_FUNCTION, pipeline.stages[0].pane_schema, deterministic=True)
    parts = {name: getattr(second, name) for name in ("key", "what", "where", "when", "how", "filter", "having")}
    try:
        next_stages = (hr.Aggregation(**parts, transform=function), *more)
        return Scenario(replace(pipeline, then=next_stages), scenario.epochs)
    except PipelineError:
        assume(False)
        raise


PANE_FUNCTION = "tests.flat_maps.functions:repeat_panes"
_BETWEEN_STAGES = between_stages(wider_scenarios() | signed_scenarios())
Flat = tuple[Scenario, RecordFunction]
_WIDER, _SIGNED_FLAT = flat_scenarios(wider_scenarios()), flat_scenarios(signed_scenarios())
_ROWS = flat_scenarios(row_scenarios())


@pytest.mark.slow
@given(_WIDER | _SIGNED_FLAT, SCHEDULES)
@settings(examples(30, fewest=4), suppress_health_check=list(HealthCheck))
def test_aggregations_are_those_of_the_reference(flat: Flat, schedule: Schedule) -> None:
    check(flat[0], schedule, ["local"], make_records=flat[1])


@pytest.mark.slow
@given(_ROWS, SCHEDULES)
@settings(examples(15, fewest=4), suppress_health_check=list(HealthCheck))
def test_rows_are_those_of_the_reference(flat: Flat, schedule: Schedule) -> None:
    check_rows(flat[0], schedule, ["local"], make_records=flat[1])


@pytest.mark.slow
@given(_WIDER | _SIGNED_FLAT, SCHEDULES)
@settings(examples(30, fewest=4), suppress_health_check=list(HealthCheck))
def test_many_tasks_give_what_the_reference_gives(flat: Flat, schedule: Schedule) -> None:
    in_pieces = set_sizes(least_of_a_file=64, most_of_a_share=256)  # files of a few records are cut
    with SparkStandIn.stand_in(), in_pieces:
        check(flat[0], schedule, ["spark", "local"], make_records=flat[1])


@pytest.mark.slow
@given(_BETWEEN_STAGES, SCHEDULES)
@settings(examples(30, fewest=6), suppress_health_check=list(HealthCheck))
def test_what_is_made_of_panes_is_that_of_the_reference(scenario: Scenario, schedule: Schedule) -> None:
    check(scenario, schedule, ["local"], functions={PANE_FUNCTION: repeat_pane})


@pytest.mark.spark
@given(_BETWEEN_STAGES, SCHEDULES)
@settings(examples(1), suppress_health_check=list(HealthCheck))
def test_what_is_made_of_panes_on_spark_is_that_of_the_reference(
    spark: SparkSession, scenario: Scenario, schedule: Schedule
) -> None:
    check(scenario, schedule, ["spark", "local"], spark, functions={PANE_FUNCTION: repeat_pane})


@pytest.mark.spark
@given(_WIDER | _SIGNED_FLAT, SCHEDULES)
@settings(examples(2), suppress_health_check=list(HealthCheck))
def test_aggregations_on_spark_are_those_of_the_reference(spark: SparkSession, flat: Flat, schedule: Schedule) -> None:
    check(flat[0], schedule, ["spark", "local"], spark, make_records=flat[1])
