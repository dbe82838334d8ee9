"""Times as tests write them: aware datetimes, ISO text (UTC unless it says otherwise), or short times such as "13:00",
which are of one day, 1970-01-01 UTC.
"""

import re
from datetime import UTC, date, datetime

from headrace.model.arguments import shown
from headrace.model.suggestions import keywords
from headrace.model.time import (
    BEGIN_OF_CALENDAR,
    END_OF_CALENDAR,
    MAX_INSTANT,
    MIN_INSTANT,
    Instant,
    instant,
    iso_8601,
    to_datetime,
)
from headrace.testing.errors import UnitTestError

BASE_DAY = date(1970, 1, 1)
"""The day of short times."""

_SHORT = re.compile(r"([01]?\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,6})?)?")
_HOW = (
    'write a time such as "13:00" (of 1970-01-01, UTC), ISO text such as "2013-01-01T13:00:00Z", or an aware datetime'
)

BEGINNING, END = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
"""A watermark of -inf, and of +inf."""


def spelled(text: str) -> str:
    """``text`` with its day, if it is a short time."""
    if not _SHORT.fullmatch(text):
        return text
    return f"{BASE_DAY.isoformat()}T{text.zfill(len(text) + (text.index(':') == 1))}Z"


def moment(value: object, what: str) -> Instant:
    """The instant that ``value`` says. Raises UnitTestError, naming ``what`` it is of."""
    try:
        if isinstance(value, datetime):
            return instant(value)
        if isinstance(value, str):
            read = datetime.fromisoformat(spelled(value.strip()))
            return instant(read if read.tzinfo else read.replace(tzinfo=UTC))
    except ValueError as error:
        raise UnitTestError(f"{what} is {shown(value)}: {error}; {_HOW}") from None
    raise UnitTestError(f"{what} is {shown(value)}; {_HOW}")


@keywords
def at(value: str | datetime) -> datetime:
    """A time of a test as an aware datetime: ``at("13:00")`` is 13:00 UTC on 1970-01-01."""
    time = to_datetime(moment(value, "at(...)"))
    assert time is not None
    return time


def watermark_time(value: Instant) -> datetime:
    """A watermark as results show it: ``BEGINNING`` for -inf, ``END`` for +inf."""
    if value <= MIN_INSTANT:
        return BEGINNING
    return END if value > END_OF_CALENDAR else to_datetime(value) or END


def expected_watermark(value: object) -> datetime:
    """The inverse, of what a test writes: a time, "-inf" or "+inf". Raises UnitTestError."""
    if value in ("-inf", "+inf", "inf"):
        return watermark_time(MIN_INSTANT if value == "-inf" else MAX_INSTANT)
    return watermark_time(moment(value, "the expected watermark"))


def text_of(value: datetime | None) -> str:
    """``value`` as tests write it: short on their day."""
    if value is None:
        return "∞"
    if value in (BEGINNING, END):
        return "-inf" if value == BEGINNING else "+inf"
    time = value.astimezone(UTC)
    if time.date() == BASE_DAY:
        return time.strftime("%H:%M") if not (time.second or time.microsecond) else time.time().isoformat()
    return time.isoformat().replace("+00:00", "Z")


def real(value: Instant) -> datetime | None:
    """``value`` for people, None where there is no end, or none that Python has a datetime for."""
    return to_datetime(value) if BEGIN_OF_CALENDAR <= value <= END_OF_CALENDAR else None


def shown_time(value: Instant) -> datetime | str:
    """A time that is a key or an aggregate: text as ``iso_8601`` gives it, where Python has no datetime for it."""
    return real(value) or iso_8601(value)
