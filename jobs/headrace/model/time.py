"""Instants and durations of the model: integers, one unit (a *granule*), with room for -inf and +inf.

A granule is one microsecond in every real pipeline; a conformance case may call it what it likes. Instants count from
1970-01-01T00:00:00 UTC. The infinities are far enough inside 64 bits that a sum of an instant and a duration cannot
wrap.
"""

import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Final, NewType

Instant = NewType("Instant", int)
"""A point in time: granules since 1970-01-01T00:00:00 UTC. Event time and processing time both use it."""


class Duration(int):
    """A length of time in granules, never negative unless a docstring says so.

    A class of its own, so that a bare number, whose unit nobody knows, is not taken for one. Multiples of one are one.
    """

    __slots__ = ()

    def __mul__(self, other: int) -> "Duration":
        return Duration(int(self) * other)

    __rmul__ = __mul__

    def __repr__(self) -> str:
        return repr(render_duration(self))


MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
"""What ``%b`` stands for, wherever a process runs."""

SHOWN_DIRECTIVES: Final = {
    **{"%Y": 4, "%y": 2, "%m": 2, "%b": 3, "%d": 2, "%j": 3},
    **{"%H": 2, "%I": 2, "%p": 2, "%M": 2, "%S": 2, "%f": 6},
}
"""Directives of times in text, and how many characters each writes; ``%%`` is the sign, and ``%z`` is only read."""


def format_parts(text: str) -> list[str]:
    """The directives of ``text`` and what stands between them. Raises ValueError for other directives."""
    parts = re.findall(r"%.?|[^%]+", text, re.DOTALL)
    for part in parts:
        if part.startswith("%") and part not in (*SHOWN_DIRECTIVES, "%%", "%z"):
            raise ValueError(f"{part} is no directive; there are {' '.join(SHOWN_DIRECTIVES)} %z %%")
    return ["%" if part == "%%" else part for part in parts]


MIN_INSTANT = Instant(-(2**61))
"""-inf: before every element. The watermark starts here."""

MAX_INSTANT = Instant(2**61)
"""+inf: the watermark of a finished input."""

GLOBAL_WINDOW_END = Instant(2**61 - 1_000)
"""End of the global window; below +inf, so that a watermark of +inf passes it (semantics 1.5)."""

EARLIEST, LATEST = Instant(-2_208_988_800_000_000), Instant(253_370_764_799_999_999)
"""The range of event times and marks, the years 1900 to 9998. Times outside are mistakes (9999-12-31 mostly means
never), and would move the watermark there.
"""

NEVER = Instant(2**62)
"""Later than every watermark, +inf included: the expiry of a window that never expires."""

LONGEST_WINDOW = Duration(365_242 * 86_400_000_000)
"""The longest window and gap: a thousand years, so that they mostly end within the years that have names."""

LONGEST = Duration(2**61)
"""The longest length of time, some 73,000 years: sums with instants stay inside 64 bits."""

UNITS: Final = {
    "days": 86_400_000_000,
    "hours": 3_600_000_000,
    "minutes": 60_000_000,
    "seconds": 1_000_000,
    "milliseconds": 1_000,
    "microseconds": 1,
}
"""The microseconds in each."""

_LETTERS: Final = {"w": 7 * UNITS["days"], **dict(zip(("d", "h", "m", "s", "ms", "us"), UNITS.values(), strict=True))}
_UNIT_WORDS: Final = {
    **{
        f"{word}{s}": unit
        for word, unit in (("week", "w"), ("day", "d"), ("hour", "h"), ("minute", "m"))
        for s in ("", "s")
    },
    **{f"{word}{s}": unit for word, unit in (("second", "s"), ("min", "m"), ("sec", "s")) for s in ("", "s")},
}
_MONTH = re.compile(r"(\d+(?:\.\d+)?)\s*M(?![A-Za-z])")
_LENGTH_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)\s*")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

END_OF_CALENDAR = Instant((datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND)
"""The last instant for which Python has a datetime, in the year 9999."""

BEGIN_OF_CALENDAR = Instant((datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND)
"""The first one, in the year 1."""

_CYCLE = 146_097 * 86_400_000_000
"""The microseconds of 400 years, after which the calendar repeats."""

_SIGNED_YEAR = re.compile(r"([+-]\d{4,})(-\d\d-\d\dT.*)")


def to_duration(value: timedelta) -> Duration:
    """Microseconds in ``value``."""
    return Duration(value // _MICROSECOND)


def parse_duration(text: str) -> Duration:
    """The length of time that ``text`` says. It has numbers with a unit each (w, d, h, m or min, s, ms, us), as in "4h
    30m". One minus before all of them makes it negative. Raises ValueError, saying what is wrong.
    """
    if month := _MONTH.search(text):
        raise ValueError(
            f'{month[0]!r} may be meant as minutes or as months: write "{month[1]}m" for minutes, days for months '
            '("30d"), or CalendarWindows("month") for windows of a month'
        )
    clean_text = text.strip().lower()
    rest = clean_text.removeprefix("-").lstrip()
    if not rest:
        raise ValueError("it is empty")
    total = Fraction(0)
    while rest:
        part = _LENGTH_PART.match(rest)
        if part is None:
            is_number = re.fullmatch(r"\d+(\.\d+)?", rest)
            raise ValueError(f"{rest!r} has no unit" if is_number else f"{rest!r} cannot be read")
        total += Fraction(part[1]) * _unit_length(part[2])
        rest = rest[part.end() :]
    if total.denominator != 1:
        raise ValueError("it is not a whole number of microseconds")
    return Duration(-total.numerator if clean_text.startswith("-") else total.numerator)


def _unit_length(word: str) -> int:
    unit = _UNIT_WORDS.get(word.removesuffix("s"), word)
    granules = _LETTERS.get(unit)
    if granules is None:
        raise ValueError(f"{word!r} is not a unit; the units are {', '.join(_LETTERS)}")
    return granules


def render_duration(value: Duration) -> str:
    """``value`` as ``parse_duration`` reads it, in the largest units: "4h 30m"."""
    parts, rest = [], abs(int(value))
    for unit, granules in _LETTERS.items():
        if unit != "w" or rest % granules == 0:
            amount, rest = divmod(rest, granules)
            parts += [f"{amount}{unit}"] if amount else []
    return ("-" if value < 0 else "") + (" ".join(parts) or "0s")


def to_instant(value: datetime) -> Instant:
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
    return iso_8601(value)


def whole_seconds(moment: datetime) -> str:
    """A time in UTC, in ISO 8601, without a fraction of its last second."""
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def iso_8601(value: int) -> str:
    """Microseconds since 1970 UTC in ISO 8601. Years outside of 1 to 9999, for which Python has no datetime, have a
    sign: ``+10183-07-15T00:00:00Z``; year 0 is the one before year 1.
    """
    if BEGIN_OF_CALENDAR <= value <= END_OF_CALENDAR:
        return (_EPOCH + value * _MICROSECOND).isoformat().replace("+00:00", "Z")
    cycles = value // _CYCLE
    moment = _EPOCH + (value - cycles * _CYCLE) * _MICROSECOND
    year = moment.year + 400 * cycles
    return f"{'-' if year < 0 else '+'}{abs(year):04}{moment.isoformat()[4:]}".replace("+00:00", "Z")


def parse_instant(text: str) -> Instant:
    """The instant that ``render`` wrote. Raises ValueError for anything else."""
    if text == "-inf":
        return MIN_INSTANT
    if text == "+inf":
        return MAX_INSTANT
    year_match = _SIGNED_YEAR.fullmatch(text)
    if year_match is None:
        return to_instant(datetime.fromisoformat(text.replace("Z", "+00:00")))
    cycles, year = divmod(int(year_match[1]) - 1970, 400)
    moment = datetime.fromisoformat(f"{year + 1970}{year_match[2]}".replace("Z", "+00:00"))
    return Instant(to_instant(moment) + cycles * _CYCLE)
