"""The clock of a replay: what it shows at each epoch, and how people write one."""

from dataclasses import dataclass
from datetime import UTC, datetime

from headrace.model.time import Duration, Instant, parse_duration, to_instant
from headrace.runs.option_kinds import RunOptionsError

_LAST_INSTANT = to_instant(datetime.max.replace(tzinfo=UTC))


@dataclass(frozen=True)
class ReplayClock:
    """A processing-time clock that ticks once an epoch: it shows ``start``, then ``step`` more each time.

    Raises RunOptionsError.
    """

    start: Instant
    step: Duration

    def __post_init__(self) -> None:
        if self.step <= 0:
            raise RunOptionsError("the step of a replay's clock must be longer than zero")

    def time_at(self, tick: int) -> Instant:
        """What it shows at tick number ``tick``, counted from 0. Raises RunOptionsError after the year 9999."""
        moment = Instant(self.start + tick * self.step)
        if moment > _LAST_INSTANT:
            raise RunOptionsError(f"the clock of the replay passes the year 9999 at tick {tick}: take a smaller step")
        return moment

    def ticks_at(self, moment: Instant) -> bool:
        """Whether it ever shows ``moment``."""
        return moment >= self.start and (moment - self.start) % self.step == 0

    def first_tick_from(self, due: Instant) -> int:
        """The first tick at or after ``due``."""
        return max(0, -((self.start - due) // self.step))


def parse_clock(start: str | None, step: str | None) -> ReplayClock | None:
    """A clock as the command line writes it: a time with its zone in ISO 8601, and a step like 30s, 5m, 1h or 1d.

    Raises RunOptionsError.
    """
    if start is None and step is None:
        return None
    if start is None or step is None:
        raise RunOptionsError("a clock of a replay needs both where it starts and its step: --clock and --clock-step")
    try:
        begin = to_instant(datetime.fromisoformat(start))
    except ValueError as error:
        raise RunOptionsError(f"clock {start!r}: write a time with its zone like 2026-01-01T00:00:00Z") from error
    try:
        return ReplayClock(begin, parse_duration(step))
    except ValueError as error:
        raise RunOptionsError(f"step {step!r} of a clock: {error}; write a length of time such as 5m") from None
