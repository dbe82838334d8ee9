"""Random pipelines, inputs and cuts into epochs: the kernel gives what the reference gives, pane for pane."""

from dataclasses import replace

from hypothesis import HealthCheck, given, note, settings

from headrace_lab.reference import run_pipeline
from tests.kernel.differential import check, run_on_kernel
from tests.reference.scenarios import Scenario, scenarios
from tests.reference.strategies import examples


@given(scenarios())
@settings(examples(200), suppress_health_check=list(HealthCheck))
def test_the_kernel_gives_what_the_reference_gives(scenario: Scenario) -> None:
    pipeline = replace(scenario.pipeline, deduplicate=None)  # operators come behind it
    note(f"{pipeline!r}")
    expected = run_pipeline(pipeline, scenario.epochs)
    for result, reference in zip(run_on_kernel(pipeline, scenario.epochs), expected, strict=True):
        check(result, reference)
