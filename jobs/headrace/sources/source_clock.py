"""How far the sources of a pipeline have come: the watermarks that follow from splits (semantics 9.2, 12.9, 12.11).

``newest_read`` is the newest event time of all records that were read, whatever became of them: filtered, rejected,
duplicates, dropped by a user's own code. A backfill of a range begins before anything as new as the range was read.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

import msgspec

from headrace.model import event_time as model_event_time
from headrace.model.time import MAX_INSTANT, MIN_INSTANT, NEVER, Instant
from headrace.pipeline.pipeline import Pipeline
from headrace.sources.progress import EpochClocks, HeldBack, InputHold, InputProgress

NOT_SAID = MAX_INSTANT
"""In the place of the newest event time where a manifest does not have it: those of before it was recorded."""


def newest_read(pipeline: Pipeline, clocks: EpochClocks) -> Instant | None:
    """No record that was read up to there is newer; None if none was read.

    Manifests of before this was recorded know it of the records in windows. If others may have been dropped unseen, it
    is as late as it may be.
    """
    if clocks.newest_read != NOT_SAID:
        return clocks.newest_read
    if not _can_drop_records(pipeline):
        return clocks.newest
    return max(input_.event_time.latest_watermark(clocks.processing_time) for input_ in pipeline.inputs)


def _can_drop_records(pipeline: Pipeline) -> bool:
    is_filtered = any(output_pipeline.filter is not None for output_pipeline in pipeline.of_records.values())
    return is_filtered or any(input_.source.is_flat_mapped for input_ in pipeline.inputs)


@dataclass(frozen=True)
class SourceClock:
    """Splits and watermarks of one input after an epoch."""

    event_time: model_event_time.EventTime
    splits: Mapping[str, model_event_time.Split] = field(default_factory=dict)
    watermark: Instant = MIN_INSTANT
    percentiles: Mapping[float, Instant] = field(default_factory=dict)

    @classmethod
    def from_progress(cls, event_time: model_event_time.EventTime, progress: InputProgress) -> Self:
        """The clock of an input that has come as far as ``progress``."""
        return cls(event_time, progress.splits, progress.watermark, progress.percentiles)

    def percentile_watermark(self, q: float) -> Instant:
        """The watermark of the fastest ``q`` % of the input, never below the watermark."""
        return Instant(max(self.watermark, self.percentiles.get(q, MIN_INSTANT)))

    def after_epoch(
        self,
        facts: Mapping[str, model_event_time.SplitFacts],
        processing_time: Instant,
        quantiles: Iterable[float],
        hold: InputHold | None = None,
    ) -> Self:
        """The clock after an epoch with ``facts``; ``quantiles`` are the percentile watermarks that triggers look at.
        ``hold``: what its watermarks do not pass.
        """
        splits = model_event_time.update_splits(self.splits, facts, processing_time)
        strategy = self.event_time.watermark
        percentiles = dict(self.percentiles)
        if isinstance(strategy, model_event_time.BoundedOutOfOrderness):
            for q in quantiles:
                old = percentiles.get(q, MIN_INSTANT)
                new_percentile = strategy.percentile_after(q, splits, processing_time, old)
                percentiles[q] = (
                    new_percentile if hold is None else Instant(max(old, min(new_percentile, hold.percentile_limit(q))))
                )
        watermark_after = strategy.watermark_after(splits, processing_time, self.watermark)
        latest = self.event_time.latest_watermark(processing_time)  # 12.14
        limit = latest if hold is None else min(latest, hold.watermark)
        watermark = Instant(max(self.watermark, min(watermark_after, limit)))
        return replace(self, splits=splits, watermark=watermark, percentiles=percentiles)

    def idle_deadline(self, processing_time: Instant) -> Instant:
        """The processing time at which the next split becomes idle, NEVER if none does."""
        strategy = self.event_time.watermark
        if not isinstance(strategy, model_event_time.SplitStrategy):
            return NEVER
        return strategy.idle_deadline(self.splits, processing_time)

    def is_idle(self, processing_time: Instant) -> bool:
        """Whether all its splits are idle: then it holds back no other input."""
        return self.event_time.watermark.is_idle(self.splits, processing_time)

    def slowest_split(self, processing_time: Instant) -> str | None:
        """The split that holds it back, None if there is none."""
        strategy = self.event_time.watermark
        if not isinstance(strategy, model_event_time.SplitStrategy):
            return None
        return strategy.slowest(self.splits, processing_time)


class SourceWatermarks(msgspec.Struct, frozen=True):
    """The least of all inputs: watermark (of those that are not idle), percentile watermarks, the processing time at
    which a split falls idle; and who holds the watermark back. ``by_time``: as far as the watermark goes without any
    record, by the passing of time, which is what inputs by time of arrival go by; -inf if there are none.
    """

    watermark: Instant = MIN_INSTANT
    percentiles: Mapping[float, Instant] = msgspec.field(default_factory=dict)
    idle_deadline: Instant = MIN_INSTANT
    held_back_by: HeldBack | None = None
    by_time: Instant = MIN_INSTANT


def slowest_of(
    clocks: Mapping[str, SourceClock], processing_time: Instant, percentiles: Iterable[float]
) -> SourceWatermarks:
    """What ``clocks`` of all inputs come to together (12.9); ``percentiles`` are the percentile watermarks asked
    for.
    """
    speaking = {name: clock for name, clock in clocks.items() if not clock.is_idle(processing_time)} or clocks
    slowest = min(speaking, key=lambda name: speaking[name].watermark)
    split = speaking[slowest].slowest_split(processing_time)
    since_time = None if split is None else speaking[slowest].splits[split].since
    return SourceWatermarks(
        speaking[slowest].watermark,
        {q: min(clock.percentile_watermark(q) for clock in clocks.values()) for q in percentiles},
        min(clock.idle_deadline(processing_time) for clock in clocks.values()),
        HeldBack(slowest, split, since_time),
        _by_time(speaking.values()),
    )


def _by_time(clocks: Collection[SourceClock]) -> Instant:
    watermarks = [
        clock.watermark for clock in clocks if not isinstance(clock.event_time.watermark, model_event_time.Ingestion)
    ]
    return MIN_INSTANT if len(watermarks) == len(clocks) else min(watermarks, default=NEVER)
