"""The kernel equals the reference interpreter, pane for pane, for every kind of window, trigger and accumulation."""

import pytest

from headrace.pipeline import Pipeline
from headrace.reference import Epoch, run_pipeline
from tests.engine import test_differential as plain
from tests.engine import test_differential_whole as whole
from tests.kernel.differential import run_on_kernel
from tests.kernel.test_random import check


def compare(pipeline: Pipeline, epochs: list[Epoch]) -> None:
    expected = run_pipeline(pipeline, epochs)
    assert any(result.panes for result in expected), "the scenario must emit something"
    for number, (found, reference) in enumerate(zip(run_on_kernel(pipeline, epochs), expected, strict=True)):
        try:
            check(found, reference)
        except AssertionError as error:
            raise AssertionError(f"epoch {number}") from error


@pytest.mark.parametrize("name", plain.SCENARIOS)
def test_plain(name: str) -> None:
    compare(plain.build(*plain.SCENARIOS[name]), plain.random_epochs(sum(name.encode())))


@pytest.mark.parametrize("name", whole.SCENARIOS)
def test_whole(name: str) -> None:
    compare(whole.build(*whole.SCENARIOS[name]), whole.random_epochs(sum(name.encode())))


@pytest.mark.parametrize("name", whole.CHAINS)
def test_chains(name: str) -> None:
    for pipeline in whole.CHAINS[name]:
        compare(pipeline, whole.random_epochs(sum(name.encode())))
