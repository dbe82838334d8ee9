"""Timestamps as tools write them, beside the form that Arrow reads: RFC 3339 with ``t`` and ``z``, a comma before the
fraction, a zone behind a blank, ISO 8601 without dashes and colons, 24:00 for the end of a day.

Each is spelled as the form that is read; ``headrace_lab.reference`` has the same rules in its own words.
"""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_DAY: Final = 86_400_000_000
_END: Final = (
    r"(?:[.,](?P<fraction>[0-9]+))?"
    r"(?:(?P<utc>(?: [+-]00:?00)? ?(?:UTC|GMT|[Zz]))| ?(?P<offset>[+-][0-9]{2}(?::?[0-9]{2})?))?$"
)
_EXTENDED: Final = (
    r"^(?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ](?P<hour>[0-9]{2})"
    rf"(?P<minute>(?::[0-9]{{2}})?)(?P<second>(?::[0-9]{{2}})?){_END}"
)
_BASIC: Final = (
    r"^(?P<year>[0-9]{4})(?P<month>[0-9]{2})(?P<day>[0-9]{2})[Tt](?P<hour>[0-9]{2})"
    rf"(?P<minute>(?:[0-9]{{2}})?)(?P<second>(?:[0-9]{{2}})?){_END}"
)
_LAST_DAY: Final = "9999-12-31"


def respelled(text: pa.Array) -> tuple[pa.Array, pa.Array]:
    """``text`` in the form that is read, NULL where it is no time; and which of it says the end of a day: it is spelled
    as the beginning of that day.
    """
    spelled, ends_a_day = _extended(text)
    if spelled.null_count > text.null_count:
        basic, ends_a_basic_day = _basic(text)
        spelled, ends_a_day = pc.coalesce(spelled, basic), pc.coalesce(ends_a_day, ends_a_basic_day)
    return spelled, ends_a_day


def a_day_later(instants: pa.Array, which: pa.Array) -> pa.Array:
    """Microseconds, a day later where ``which`` says so."""
    return pc.if_else(which.fill_null(False), pc.add(instants, _DAY), instants)


def _extended(text: pa.Array) -> tuple[pa.Array, pa.Array]:
    parts = pc.extract_regex(text, _EXTENDED)
    return _joined(parts, *(pc.struct_field(parts, part) for part in ("day", "hour", "minute", "second")))


def _basic(text: pa.Array) -> tuple[pa.Array, pa.Array]:
    parts = pc.extract_regex(text, _BASIC)
    year, month, day, hour, minute, second = (
        pc.struct_field(parts, part) for part in ("year", "month", "day", "hour", "minute", "second")
    )
    return _joined(
        parts, pc.binary_join_element_wise(year, month, day, "-"), hour, _behind(":", minute), _behind(":", second)
    )


def _joined(
    parts: pa.Array, day: pa.Array, hour: pa.Array, minute: pa.Array, second: pa.Array
) -> tuple[pa.Array, pa.Array]:
    fraction, utc, offset = (pc.struct_field(parts, part) for part in ("fraction", "utc", "offset"))
    zone = pc.if_else(pc.equal(utc, ""), offset, "Z")
    into = pc.binary_join_element_wise(minute, second, pc.ascii_trim(fraction, characters="0"), "")
    ends_a_day = pc.and_(pc.equal(hour, "24"), pc.equal(pc.ascii_trim(into, characters=":0"), ""))
    ends_a_day = pc.and_(ends_a_day, pc.not_equal(day, _LAST_DAY))
    hour = pc.if_else(ends_a_day, "00", hour)
    time = pc.binary_join_element_wise(day, "T", hour, minute, second, _behind(".", fraction), zone, "")
    return time, ends_a_day


def _behind(mark: str, digits: pa.Array) -> pa.Array:
    """``digits`` with a ``mark`` before them, if there are any."""
    return pc.if_else(pc.equal(digits, ""), "", pc.binary_join_element_wise(mark, digits, ""))
