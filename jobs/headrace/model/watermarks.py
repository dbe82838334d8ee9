"""How far event time has come: watermark strategies of a source (semantics 1.2 and 12.11)."""

from dataclasses import dataclass
from datetime import timedelta

from headrace.errors import PipelineError
from headrace.model.time import MIN_INSTANT, Duration, Instant, duration


@dataclass(frozen=True, init=False)
class BoundedOutOfOrderness:
    """A split's watermark is its largest event time minus ``bound``; the source's is the minimum over its splits."""

    bound: Duration

    def __init__(self, bound: timedelta | int) -> None:
        granules = duration(bound) if isinstance(bound, timedelta) else Duration(bound)
        if granules < 0:
            raise PipelineError(f"the bound of BoundedOutOfOrderness must not be negative: {bound}")
        object.__setattr__(self, "bound", granules)

    def watermark(self, previous: Instant, split_maxima: list[Instant]) -> Instant:
        """The source's watermark given the largest event time of every known split; never below ``previous``."""
        if not split_maxima:
            return previous
        return Instant(max(previous, MIN_INSTANT, min(split_maxima) - self.bound))
