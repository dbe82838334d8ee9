"""One pipeline on both executors: the reference interpreter, and the engine's operators on Spark."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from headrace.engine.elements import judge
from headrace.engine.operator import EMPTY, Operator, run_stages
from headrace.engine.types import SparkSession
from headrace.engine.values import element_rows, emitted
from headrace.model.panes import Pane
from headrace.model.time import MIN_INSTANT, Instant
from headrace.pipeline import Pipeline
from headrace.pipeline.inputs import OWN
from headrace.reference import Epoch, evaluate
from headrace.reference.intake import Intake, Taken

PARTITIONS = 2


def run_on_spark(spark: SparkSession, pipeline: Pipeline, epochs: Sequence[Epoch]) -> list[tuple[list[Pane], int]]:
    """Per epoch the panes of the last stage (in order per key and emitting window) and the late drops of all stages.

    Watermarks are those of the reference: what is compared is what operators make of them.
    """
    operators = [Operator(stage, PARTITIONS) for stage in pipeline.stages]
    first, expr = operators[0], pipeline.event_time.expr
    intake = Intake(pipeline, first.plan.trigger.percentiles)
    clock, results = MIN_INSTANT, []
    for number, epoch in enumerate(epochs):
        clock = Instant(max(clock, epoch.processing_time))
        timed = [(r, evaluate(expr, r, pipeline.schema)) for r in epoch.records if expr is not None]
        accepted = [(record, at, 1) for record, at in timed if at is not None]
        taken = EMPTY
        if accepted:
            taken = first.take_in(judge(first.plan, element_rows(spark, pipeline.schema, accepted)))
        intake.take(OWN, epoch.records, clock, Taken())
        intake.advance(clock, epoch.is_last)
        stages = run_stages(
            operators,
            number,
            taken,
            processing_time=clock,
            watermark=intake.watermark,
            percentiles=intake.percentiles,
            signals=epoch.signals,
            is_batch=epoch.is_last and number == 0,
        )
        last = stages[-1]
        panes = emitted(last.step) if last.step is not None and last.has_panes else []
        results.append((panes, sum(stage.late for stage in stages)))
    return results


def by_window(panes: Iterable[Pane]) -> dict[Any, list[Pane]]:
    """Panes of each (key, window) in order: retractions are ordered only within their own window."""
    grouped = defaultdict(list)
    for pane in panes:
        grouped[pane.key, pane.window].append(pane)
    return dict(grouped)


def same(left: Any, right: Any, tolerance: float = 1e-9) -> bool:
    """Floats to a relative error (near 0 an absolute one of ``tolerance``), the rest exactly (semantics 12.4)."""
    if isinstance(left, float) and isinstance(right, float):
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        return math.isclose(left, right, rel_tol=1e-9, abs_tol=tolerance)
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(same(a, b, tolerance) for a, b in zip(left, right, strict=True))
    return bool(left == right)
