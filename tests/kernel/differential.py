"""One pipeline on the kernel's operators in this process, beside the reference interpreter."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from headrace import Pipeline
from headrace.model.time import MIN_INSTANT, Instant
from headrace.pipeline.endpoints import OWN
from headrace_lab.conformance.values import element_rows
from headrace_lab.reference import Epoch, EpochResult, evaluate
from headrace_lab.reference.elements import Pane
from headrace_lab.reference.intake import EpochInput, Intake
from tests.kernel.operators import NOTHING, Operator, emitted_panes, run_stages
from tests.panes import by_window, same


@dataclass(frozen=True)
class EpochOutcome:
    """What an epoch gave: panes of the last stage, drops of all stages by cause, output watermarks."""

    panes: list[Pane]
    drops: Counter[str]
    output_watermarks: list[Instant]


def run_on_kernel(pipeline: Pipeline, epochs: Sequence[Epoch]) -> list[EpochOutcome]:
    """Per epoch what the operators give; the watermarks of sources are those of the reference."""
    operators = [Operator(stage) for stage in pipeline.stages]
    first, expr = operators[0], pipeline.event_time.expr
    intake = Intake(pipeline, first.compiled_stage.trigger.percentiles)
    clock, results = MIN_INSTANT, []
    for number, epoch in enumerate(epochs):
        clock = Instant(max(clock, epoch.processing_time))
        timed_pairs = [(r, evaluate(expr, r, pipeline.schema)) for r in epoch.records if expr is not None]
        accepted_rows = [(record, time, 1) for record, time in timed_pairs if time is not None]
        bundle = first.take_in(element_rows(pipeline.schema, accepted_rows)) if accepted_rows else NOTHING
        intake.take(OWN, epoch.records, clock, {"": EpochInput()})
        intake.advance(clock, epoch.is_last)
        stages = run_stages(
            operators,
            number,
            bundle,
            processing_time=clock,
            watermark=intake.watermark,
            percentiles=intake.percentiles,
            signals=epoch.signals,
            is_batch=epoch.is_last and number == 0,
        )
        drops: Counter[str] = Counter()
        for stage in stages:
            outcome = stage.outcome
            drops.update(
                late=stage.accounting.late, closed=outcome.dropped_elements, retraction=outcome.dropped_retractions
            )
        marks = [operator.output_watermark for operator in operators]
        results.append(EpochOutcome(emitted_panes(stages[-1].result), +drops, marks))
    return results


def check(outcome: EpochOutcome, expected: EpochResult) -> None:
    """Whether an epoch gave what the reference gives: panes, drops but for duplicates, and output watermarks."""
    left, right = by_window(outcome.panes), by_window(expected.panes)
    assert left.keys() == right.keys(), (outcome.panes, expected.panes)
    for place, panes in right.items():
        others = left[place]
        assert [replace(p, values=()) for p in others] == [replace(p, values=()) for p in panes], (others, panes)
        assert all(same(a.values, b.values) for a, b in zip(others, panes, strict=True)), (others, panes)
    assert outcome.drops == Counter(drop.cause.value for drop in expected.drops if drop.cause != "duplicate")
    assert outcome.output_watermarks == list(expected.output_watermarks)
