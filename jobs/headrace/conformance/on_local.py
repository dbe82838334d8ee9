"""The kernel in this process as an executor of conformance cases."""

from collections.abc import Iterator, Mapping, Sequence

from headrace.conformance.cases import Case
from headrace.conformance.on_operators import EpochOutcome, StageElement, replay_case
from headrace.conformance.replay import Replay
from headrace.distribute.local.operator import NOTHING, Operator, run_stages
from headrace.distribute.local.values import element_rows, emitted
from headrace.model.time import Instant
from headrace.pipeline.graph import Stage


class LocalExecutor:
    """Runs cases one after another."""

    def replay(self, cases: Sequence[Case]) -> Iterator[Replay]:
        return (replay_case(_OnLocal, case) for case in cases)


class _OnLocal:
    """The stages of a case as operators in this process."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self._operators = [Operator(stage) for stage in stages]

    def run(
        self,
        epoch: int,
        elements: Sequence[StageElement],
        *,
        processing_time: Instant,
        watermark: Instant,
        percentiles: Mapping[float, Instant],
        is_batch: bool,
    ) -> EpochOutcome:
        first, bundle = self._operators[0], NOTHING
        if elements:
            rows = [(element.record, element.timestamp, element.sign) for element in elements]
            sizes = [element.size for element in elements]
            bundle = first.take_in(element_rows(first.stage.schema, rows, sizes))
        done = run_stages(
            self._operators,
            epoch,
            bundle,
            processing_time=processing_time,
            watermark=watermark,
            percentiles=percentiles,
            is_batch=is_batch,
        )
        dropped = {
            "late": sum(stepped.accounting.late for stepped in done),
            "closed": sum(stepped.outcome.closed for stepped in done),
            "retraction": sum(stepped.outcome.dropped_retractions for stepped in done),
        }
        return EpochOutcome(emitted(done[-1].result), dropped)

    def output_watermarks(self) -> tuple[Instant, ...]:
        return tuple(operator.output_watermark for operator in self._operators)
