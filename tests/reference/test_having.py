"""What leaves by ``having``: the panes of the pipeline without it, filtered; no row stands that does not fulfil it
(semantics 9.10).
"""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import assume, given

from headrace import Pipeline
from headrace.model.accumulation import Accumulation
from headrace_lab.reference import run_pipeline
from headrace_lab.reference.elements import Pane
from headrace_lab.reference.pipeline import fold_current
from headrace_lab.reference.stages import lets_out
from tests.reference.scenarios import Scenario, scenarios
from tests.reference.strategies import examples


def panes_of(pipeline: Pipeline, scenario: Scenario) -> list[Pane]:
    return [pane for result in run_pipeline(pipeline, scenario.epochs) for pane in result.panes]


def without_retractions(panes: Sequence[Pane]) -> list[Pane]:
    return [pane for pane in panes if not pane.is_retraction]


@examples(150)
@given(scenarios(stages=1))
def test_having_filters_what_leaves_and_nothing_else_knows_of_it(scenario: Scenario) -> None:
    pipeline = scenario.pipeline
    assume(pipeline.having is not None)
    (stage,) = pipeline.stages
    without_panes = panes_of(replace(pipeline, having=None), scenario)
    left = panes_of(pipeline, scenario)
    fulfil = [pane for pane in without_panes if lets_out(stage, pane)]
    if pipeline.how.accumulation is Accumulation.ACCUMULATING:
        assert repr(without_retractions(left)) == repr(fulfil), "as text, in which NaN equals itself"
    else:
        assert repr(left) == repr(fulfil)


@examples(150)
@given(scenarios(stages=1))
def test_current_is_what_it_would_be_without_having_filtered(scenario: Scenario) -> None:
    pipeline = scenario.pipeline
    assume(pipeline.having is not None and pipeline.how.accumulation is not Accumulation.DISCARDING)
    (stage,) = pipeline.stages
    kept_panes, all_panes = [], []
    for mine, other in zip(
        run_pipeline(pipeline, scenario.epochs),
        run_pipeline(replace(pipeline, having=None), scenario.epochs),
        strict=True,
    ):
        kept_panes += mine.panes
        all_panes += other.panes
        expected = {place: pane for place, pane in fold_current(all_panes).items() if lets_out(stage, pane)}
        assert repr(sorted(fold_current(kept_panes).items(), key=repr)) == repr(sorted(expected.items(), key=repr))


@examples(100)
@given(scenarios(stages=1))
def test_a_row_is_withdrawn_once_and_only_if_it_left(scenario: Scenario) -> None:
    pipeline = scenario.pipeline
    standing: dict[object, Pane] = {}
    for pane in panes_of(pipeline, scenario):
        place = (pane.key, pane.window)
        if pane.is_retraction:
            assert repr(standing.pop(place, None)) == repr(replace(pane, is_retraction=False))
        else:
            standing[place] = pane
