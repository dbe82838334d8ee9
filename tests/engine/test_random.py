"""Random pipelines, inputs and cuts into epochs: the Spark engine gives what the reference gives, pane for pane.

CI runs a seeded part; ``make fuzz EXAMPLES=1000`` runs as many fresh ones as one has patience for.
"""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, note, settings

from headrace.engine.session import interpreting
from headrace.engine.types import SparkSession
from headrace.model.panes import Pane
from headrace.reference import run_pipeline
from tests.engine.differential import by_window, run_on_spark, same
from tests.reference.scenarios import Scenario, scenarios
from tests.reference.strategies import examples

pytestmark = pytest.mark.spark


def assert_same_panes(found: list[Pane], expected: list[Pane]) -> None:
    left, right = by_window(found), by_window(expected)
    assert left.keys() == right.keys(), (found, expected)
    for place, panes in right.items():
        others = left[place]
        assert [replace(p, values=()) for p in others] == [replace(p, values=()) for p in panes], (others, panes)
        assert all(same(a.values, b.values) for a, b in zip(others, panes, strict=True)), (others, panes)


@given(scenarios())
@settings(examples(8), suppress_health_check=list(HealthCheck))
def test_spark_gives_what_the_reference_gives(spark: SparkSession, scenario: Scenario) -> None:
    pipeline = replace(scenario.pipeline, deduplicate=None)  # operators come behind it
    note(f"{pipeline!r}")
    expected = run_pipeline(pipeline, scenario.epochs)
    found = run_on_spark(interpreting(spark), pipeline, scenario.epochs)
    for reference, (panes, late) in zip(expected, found, strict=True):
        assert_same_panes(panes, list(reference.panes))
        assert late == sum(drop.cause == "late" for drop in reference.drops)
