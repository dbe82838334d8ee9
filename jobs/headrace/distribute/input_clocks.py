"""Where the clocks of the inputs go in an epoch, by what records said. A pipeline has them once."""

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.distribute.watermark_inputs import InputObservations
from headrace.model.time import MAX_INSTANT, Instant
from headrace.pipeline.pipeline import Pipeline
from headrace.sources import source_clock as sources
from headrace.sources.landing import ByInput, Landing
from headrace.sources.progress import InputProgress, WatermarkHold
from headrace.sources.source_clock import SourceClock, slowest_of


@dataclass(frozen=True)
class WatermarkUpdate:
    """The clocks of the inputs after an epoch, and ``combined`` as one; the ``hold`` that they do not pass."""

    inputs: Mapping[str, SourceClock]
    combined: sources.SourceWatermarks
    is_last: bool = False
    hold: WatermarkHold | None = None

    @property
    def watermark(self) -> Instant:
        """The watermark of the source: +inf after the last epoch."""
        if self.is_last:
            return MAX_INSTANT
        # beyond all inputs' holds: main may have been where none of its inputs was idle, or all
        return self.combined.watermark if self.hold is None else min(self.combined.watermark, self.hold.watermark)


def watermark_update(
    clocks: Mapping[str, SourceClock],
    observations: InputObservations,
    now: Instant,
    percentiles: tuple[float, ...],
    *,
    is_last: bool,
    hold: WatermarkHold | None = None,
) -> WatermarkUpdate:
    """The ``clocks`` of all inputs after an epoch at ``now`` whose records say ``observations``, and that is held to
    ``hold``.
    """
    after = {
        name: clock.after(
            observations.facts.get(name, {}), now, percentiles, None if hold is None else hold.of_input(name)
        )
        for name, clock in clocks.items()
    }
    return WatermarkUpdate(after, slowest_of(after, now, percentiles), is_last, hold)


def source_clocks(pipeline: Pipeline, inputs: Mapping[str, InputProgress]) -> dict[str, SourceClock]:
    """The clocks of inputs that have come as far as ``inputs`` say."""
    return {input_.name: SourceClock.of(input_.event_time, inputs[input_.name]) for input_ in pipeline.inputs}


def inputs_after(
    landing: Landing, inputs: Mapping[str, InputProgress], files: ByInput, clocks: WatermarkUpdate
) -> dict[str, InputProgress]:
    """How far ``inputs`` have come after an epoch that read ``files`` and moved their clocks."""
    progress = {}
    for name in landing.enumerators:
        clock = clocks.inputs[name]
        offsets = landing.after(name, inputs[name].offsets, files.get(name, ()))
        progress[name] = InputProgress(offsets, clock.splits, clock.watermark, clock.percentiles)
    return progress
