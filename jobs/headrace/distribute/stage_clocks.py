"""Where the clocks of a stage go in an epoch, by what is above it. The same wherever it is worked out: in every task of
the stage, and where the epoch is committed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from headrace.kernel.stage import CompiledStage
from headrace.model.time import MIN_INSTANT, Instant
from headrace.program.firing import FiringClocks


@dataclass(frozen=True)
class StageClocks:
    """The clocks of one stage between two epochs: its watermark and that of its output, processing time, and the
    watermarks of the fastest q % of the input that its trigger looks at (semantics 9.2).
    """

    watermark: Instant = MIN_INSTANT
    processing_time: Instant = MIN_INSTANT
    output_watermark: Instant = MIN_INSTANT
    percentiles: Mapping[float, Instant] = field(default_factory=dict)

    def advanced(
        self, stage: CompiledStage, processing_time: Instant, watermark: Instant, percentiles: Mapping[float, Instant]
    ) -> "tuple[FiringClocks, StageClocks]":
        """The step of an epoch to ``watermark``, and the clocks after it, but for the output watermark, which its
        windows decide. Clocks never go back.
        """
        after = replace(
            self,
            watermark=Instant(max(self.watermark, watermark)),
            processing_time=Instant(max(self.processing_time, processing_time)),
        )
        steps: dict[float, tuple[Instant, Instant]] = {}
        reached = dict(self.percentiles)
        for q in sorted(stage.trigger.percentiles):
            old = self.percentiles.get(q, MIN_INSTANT)
            reached[q] = Instant(max(old, percentiles.get(q, old)))
            steps[q] = (Instant(max(old, self.watermark)), Instant(max(reached[q], after.watermark)))
        step = FiringClocks(
            watermark_before=self.watermark,
            watermark_after=after.watermark,
            previous_processing_time=self.processing_time,
            processing_time=after.processing_time,
            percentiles=steps,
        )
        return step, replace(after, percentiles=reached)

    def with_output(self, output_watermark: Instant) -> "StageClocks":
        """These, with another output watermark."""
        return replace(self, output_watermark=output_watermark)
