"""One pipeline on both executors: the reference interpreter, and the engine's operators on Spark."""

from collections.abc import Sequence

from headrace.engine.elements import judge
from headrace.engine.operator import EMPTY, Operator, run_stages
from headrace.engine.source_clock import SourceClock
from headrace.engine.types import SparkSession
from headrace.engine.values import element_rows, emitted
from headrace.model.panes import Pane
from headrace.model.time import MAX_INSTANT
from headrace.model.watermarks import SplitFacts
from headrace.pipeline import Pipeline
from headrace.reference import Epoch, evaluate

PARTITIONS = 2


def run_on_spark(spark: SparkSession, pipeline: Pipeline, epochs: Sequence[Epoch]) -> list[tuple[list[Pane], int]]:
    """Per epoch the panes of the last stage (in order per key and emitting window) and the late drops of all stages."""
    operators = [Operator(stage, PARTITIONS) for stage in pipeline.stages]
    first, expr = operators[0], pipeline.event_time.expr
    clock = SourceClock(pipeline.event_time)
    results = []
    for number, epoch in enumerate(epochs):
        timed = [(r, evaluate(expr, r, pipeline.schema)) for r in epoch.records if expr is not None]
        accepted = [(record, at, 1) for record, at in timed if at is not None]
        taken = EMPTY
        if accepted:
            taken = first.take_in(judge(first.plan, element_rows(spark, pipeline.schema, accepted)))
        clock = clock.after(
            {"": SplitFacts(taken.accounting.max_event_time)} if accepted else {}, epoch.processing_time, ()
        )
        stages = run_stages(
            operators,
            number,
            taken,
            processing_time=epoch.processing_time,
            watermark=MAX_INSTANT if epoch.is_last else clock.watermark,
            signals=epoch.signals,
        )
        last = stages[-1]
        panes = emitted(last.step) if last.step is not None and last.has_panes else []
        results.append((panes, sum(stage.late for stage in stages)))
    return results
