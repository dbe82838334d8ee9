"""Instants and durations of the model: integers, one unit (a *granule*), with room for -inf and +inf.

A granule is one microsecond in every real pipeline; a conformance case may call it what it likes. Instants count from
1970-01-01T00:00:00 UTC. The infinities are far enough inside 64 bits that a sum of an instant and a duration cannot
wrap.
"""

from datetime import UTC, datetime, timedelta
from typing import NewType

Instant = NewType("Instant", int)
"""A point in time: granules since 1970-01-01T00:00:00 UTC. Event time and processing time both use it."""

Duration = NewType("Duration", int)
"""A length of time in granules, never negative unless a docstring says so."""

MIN_INSTANT = Instant(-(2**61))
"""-inf: before every element. The watermark starts here."""

MAX_INSTANT = Instant(2**61)
"""+inf: the watermark of a finished input."""

GLOBAL_WINDOW_END = Instant(2**61 - 1_000)
"""End of the global window; below +inf, so that a watermark of +inf passes it (semantics 1.5)."""

NEVER = Instant(2**62)
"""Later than every watermark, +inf included: the expiry of a window that never expires."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def duration(value: timedelta) -> Duration:
    """Microseconds in ``value``."""
    return Duration(value // _MICROSECOND)


def instant(value: datetime) -> Instant:
    """Microseconds since 1970 UTC of an aware ``value``.

    Raises ValueError for a naive datetime: which zone it is in cannot be guessed.
    """
    if value.tzinfo is None:
        raise ValueError(f"{value.isoformat()} has no time zone; say which one it is in")
    return Instant((value - _EPOCH) // _MICROSECOND)


def to_datetime(value: Instant) -> datetime | None:
    """The UTC datetime of a real instant, None for -inf and +inf (and the ends of the global window)."""
    if not is_finite(value):
        return None
    return _EPOCH + value * _MICROSECOND


def is_finite(value: Instant) -> bool:
    """Whether ``value`` is neither an infinity nor an end of the global window."""
    return MIN_INSTANT < value < GLOBAL_WINDOW_END


def render(value: Instant) -> str:
    """``value`` for people: ISO 8601 in UTC, ``-inf`` or ``+inf``."""
    if value <= MIN_INSTANT:
        return "-inf"
    if value >= GLOBAL_WINDOW_END:
        return "+inf"
    return (_EPOCH + value * _MICROSECOND).isoformat().replace("+00:00", "Z")


def parse(text: str) -> Instant:
    """The instant that ``render`` wrote. Raises ValueError for anything else."""
    if text == "-inf":
        return MIN_INSTANT
    if text == "+inf":
        return MAX_INSTANT
    return instant(datetime.fromisoformat(text.replace("Z", "+00:00")))
