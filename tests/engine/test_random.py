"""Random pipelines, inputs and cuts into epochs: the Spark engine gives what the reference gives, pane for pane.

CI runs a seeded part; ``make fuzz EXAMPLES=1000`` runs as many fresh ones as one has patience for.
"""

import math
from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings

from headrace.engine.session import interpreting
from headrace.engine.types import SparkSession
from headrace.model.panes import Pane
from headrace.reference import run_pipeline
from tests.engine.differential import run_on_spark
from tests.reference.scenarios import Scenario, scenarios
from tests.reference.strategies import examples

pytestmark = pytest.mark.spark


def same(left: Any, right: Any) -> bool:
    """Floats to a relative error, the rest exactly (semantics 12.4)."""
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-9)
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def by_window(panes: list[Pane]) -> dict[Any, list[Pane]]:
    grouped = defaultdict(list)
    for pane in panes:
        grouped[pane.key, pane.window].append(pane)
    return dict(grouped)


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
    pipeline = replace(scenario.pipeline, deduplicate=None)  # which the engine does not run yet
    note(f"{pipeline!r}")
    expected = run_pipeline(pipeline, scenario.epochs)
    found = run_on_spark(interpreting(spark), pipeline, scenario.epochs)
    for reference, (panes, late) in zip(expected, found, strict=True):
        assert_same_panes(panes, list(reference.panes))
        assert late == sum(drop.cause == "late" for drop in reference.drops)
