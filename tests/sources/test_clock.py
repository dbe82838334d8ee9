"""How far event time has come, as records and clocks say."""

from dataclasses import dataclass

from headrace.model.event_time import EventTime, SplitFacts, SplitStrategy
from headrace.model.expressions.expr import col
from headrace.model.time import MIN_INSTANT, Duration, Instant
from headrace.sources.source_clock import SourceClock


@dataclass(frozen=True)
class Eager(SplitStrategy):
    """Says that nothing comes any more up to well behind what has come."""

    idle_timeout = None

    def lower_bound(self, mark: Instant) -> Instant:
        return Instant(mark + 1000)


def test_no_strategy_takes_the_watermark_further_ahead_than_the_input_may() -> None:
    clock = SourceClock(EventTime(col("at"), Eager(), max_ahead=Duration(10)))
    assert clock.watermark == MIN_INSTANT
    clock = clock.after_epoch({"": SplitFacts(Instant(5))}, Instant(20), ())
    assert clock.watermark == 30
    assert clock.after_epoch({}, Instant(15), ()).watermark == 30
