"""When in processing time: triggers (semantics, section 4; Dataflow paper, section 2.3).

A trigger is a tree of these frozen values. Executors give each node its state; the meaning of every node is the table
in semantics 4.2. ``may_finish`` says whether the node can finish and so close the window for good (4.8).
"""

from dataclasses import dataclass
from datetime import timedelta

from headrace.errors import PipelineError
from headrace.model.time import Duration, duration


def _granules(value: timedelta | int) -> Duration:
    return duration(value) if isinstance(value, timedelta) else Duration(value)


class Trigger:
    """A node of a trigger tree."""

    @property
    def children(self) -> tuple["Trigger", ...]:
        """Direct sub-triggers, in order."""
        return ()

    @property
    def may_finish(self) -> bool:
        """Whether this node can finish; a finished root closes its window and later elements are dropped."""
        return True


@dataclass(frozen=True)
class Default(Trigger):
    """Fires when the watermark passes the end of the window and for every later bundle; never finishes."""

    @property
    def may_finish(self) -> bool:
        return False


@dataclass(frozen=True)
class AfterWatermark(Trigger):
    """Fires once when the watermark passes the end of the window.

    ``early`` fires before it and ``late`` after it, each implicitly repeated; with ``late`` it never finishes.
    """

    early: Trigger | None = None
    late: Trigger | None = None

    @property
    def children(self) -> tuple[Trigger, ...]:
        return tuple(t for t in (self.early, self.late) if t is not None)

    @property
    def may_finish(self) -> bool:
        return self.late is None


@dataclass(frozen=True)
class AfterCount(Trigger):
    """Fires once ``count`` elements have come since its last reset. Bundles are atomic: a pane may hold more."""

    count: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise PipelineError(f"AfterCount needs at least 1 element, not {self.count}")


@dataclass(frozen=True, init=False)
class AfterProcessingTime(Trigger):
    """Fires once the processing-time clock reaches the first element's time plus ``delay``, rounded up to the next
    multiple of ``align`` (shifted by ``align_offset``) when that is given. Its precision is the schedule's interval."""

    delay: Duration
    align: Duration | None
    align_offset: Duration

    def __init__(
        self, delay: timedelta | int = 0, align: timedelta | int | None = None, align_offset: timedelta | int = 0
    ) -> None:
        if _granules(delay) < 0:
            raise PipelineError(f"the delay of AfterProcessingTime must not be negative: {delay}")
        if align is not None and _granules(align) <= 0:
            raise PipelineError(f"the alignment of AfterProcessingTime must be longer than zero, not {align}")
        object.__setattr__(self, "delay", _granules(delay))
        object.__setattr__(self, "align", None if align is None else _granules(align))
        object.__setattr__(self, "align_offset", _granules(align_offset))


@dataclass(frozen=True)
class Repeatedly(Trigger):
    """Fires whenever ``trigger`` fires and starts it again when it finishes; never finishes itself."""

    trigger: Trigger

    @property
    def children(self) -> tuple[Trigger, ...]:
        return (self.trigger,)

    @property
    def may_finish(self) -> bool:
        return False
