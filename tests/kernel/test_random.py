"""Random pipelines, inputs and cuts into epochs: the kernel gives what the reference gives, pane for pane."""

from collections import Counter
from dataclasses import replace

from hypothesis import HealthCheck, given, note, settings

from headrace.reference import EpochResult, run_pipeline
from tests.engine.differential import by_window, same
from tests.kernel.differential import Found, run_on_kernel
from tests.reference.scenarios import Scenario, scenarios
from tests.reference.strategies import examples


def check(found: Found, expected: EpochResult) -> None:
    left, right = by_window(found.panes), by_window(expected.panes)
    assert left.keys() == right.keys(), (found.panes, expected.panes)
    for place, panes in right.items():
        others = left[place]
        assert [replace(p, values=()) for p in others] == [replace(p, values=()) for p in panes], (others, panes)
        assert all(same(a.values, b.values) for a, b in zip(others, panes, strict=True)), (others, panes)
    assert found.drops == Counter(drop.cause.value for drop in expected.drops if drop.cause != "duplicate")
    assert found.output_watermarks == list(expected.output_watermarks)


@given(scenarios())
@settings(examples(200), suppress_health_check=list(HealthCheck))
def test_the_kernel_gives_what_the_reference_gives(scenario: Scenario) -> None:
    pipeline = replace(scenario.pipeline, deduplicate=None)  # operators come behind it
    note(f"{pipeline!r}")
    expected = run_pipeline(pipeline, scenario.epochs)
    for result, reference in zip(run_on_kernel(pipeline, scenario.epochs), expected, strict=True):
        check(result, reference)
