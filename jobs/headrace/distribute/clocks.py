"""Where the clocks of a pipeline go in an epoch: those of its inputs by what records said, those of a stage by what is
above it. The same wherever it is worked out: in every task of a stage, and where the epoch is committed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headrace.distribute.watermark_inputs import InputObservations
from headrace.kernel.stage import CompiledStage
from headrace.model.time import MAX_INSTANT, MIN_INSTANT, Instant
from headrace.pipeline.pipeline import Pipeline
from headrace.program.firing import FiringClocks
from headrace.sources import source_clock as sources
from headrace.sources.file_planning import advance
from headrace.sources.landing import ByInput
from headrace.sources.progress import InputProgress, PipelineProgress, WatermarkHold
from headrace.sources.source_clock import SourceClock, slowest_of


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
        passed: dict[float, tuple[Instant, Instant]] = {}
        reached = dict(self.percentiles)
        for q in sorted(stage.trigger.percentiles):
            old = self.percentiles.get(q, MIN_INSTANT)
            reached[q] = Instant(max(old, percentiles.get(q, old)))
            passed[q] = (Instant(max(old, self.watermark)), Instant(max(reached[q], after.watermark)))
        step = FiringClocks(
            watermark_before=self.watermark,
            watermark_after=after.watermark,
            previous_processing_time=self.processing_time,
            processing_time=after.processing_time,
            percentiles=passed,
        )
        return step, replace(after, percentiles=reached)

    def with_output(self, output_watermark: Instant) -> "StageClocks":
        """These, with another output watermark."""
        return replace(self, output_watermark=output_watermark)


@dataclass(frozen=True)
class WatermarkUpdate:
    """The clocks of the inputs after an epoch, and what they come to together; the ``hold`` that they do not pass."""

    inputs: Mapping[str, SourceClock]
    together: sources.SourceWatermarks
    is_last: bool = False
    hold: WatermarkHold | None = None

    @property
    def watermark(self) -> Instant:
        """The watermark of the source: +inf after the last epoch."""
        if self.is_last:
            return MAX_INSTANT
        # beyond all inputs' holds: main may have been where none of its inputs was idle, or all
        return self.together.watermark if self.hold is None else min(self.together.watermark, self.hold.watermark)


def moved(
    clocks: Mapping[str, SourceClock],
    found: InputObservations,
    now: Instant,
    wanted: Iterable[float],
    *,
    is_last: bool,
    hold: WatermarkHold | None = None,
) -> WatermarkUpdate:
    """The ``clocks`` of all inputs after an epoch at ``now`` in which records said what was ``found``, and that is held
    to ``hold``.
    """
    percentiles = tuple(wanted)
    after = {
        name: clock.after(found.facts.get(name, {}), now, percentiles, None if hold is None else hold.of_input(name))
        for name, clock in clocks.items()
    }
    return WatermarkUpdate(after, slowest_of(after, now, percentiles), is_last, hold)


def source_clocks(pipeline: Pipeline, inputs: Mapping[str, InputProgress]) -> dict[str, SourceClock]:
    """The clocks of inputs that have come as far as ``inputs`` say."""
    return {each.name: SourceClock.of(each.event_time, inputs[each.name]) for each in pipeline.inputs}


def stage_clocks(
    progress: PipelineProgress, stages: Sequence[CompiledStage], clocks: Mapping[str, SourceClock]
) -> tuple[StageClocks, ...]:
    """The clocks of ``stages`` as ``progress`` left them, and the ``clocks`` of the inputs."""
    if not progress.output_watermarks:
        return tuple(StageClocks() for _ in stages)
    outputs = progress.output_watermarks
    first, *others = (
        StageClocks(watermark, progress.processing_time, output)
        for watermark, output in zip((progress.watermark, *outputs), outputs, strict=False)
    )
    wanted = stages[0].trigger.percentiles
    percentiles = {q: min(clock.percentile(q) for clock in clocks.values()) for q in wanted}
    return (replace(first, percentiles=percentiles), *others)


def inputs_after(
    pipeline: Pipeline, inputs: Mapping[str, InputProgress], files: ByInput, clocks: WatermarkUpdate
) -> dict[str, InputProgress]:
    """How far ``inputs`` have come after an epoch that read ``files`` and moved their clocks."""
    found = {}
    for each in pipeline.inputs:
        name, clock = each.name, clocks.inputs[each.name]
        offsets = advance(inputs[name].offsets, files.get(name, ()), each.source.look_back)
        found[name] = InputProgress(offsets, clock.splits, clock.watermark, clock.percentiles)
    return found
