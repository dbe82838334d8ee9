"""What clocks and calendars of a time zone show, over columns of timestamps (``model.windows``).

Offsets are Python's, which is asked once for each day of the years that rows are in: the zones of other libraries may
be of another version, and end in 2037.
"""

from bisect import bisect_left
from calendar import isleap
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.kernel.columns import TIMESTAMP, Ints, as_numpy
from headrace.kernel.expressions.casts import BLANKS, Datum, begun, each
from headrace.model.expressions.methods import Skipped, TimeUnit, Twice
from headrace.model.time import MONTHS, SHOWN, format_parts
from headrace.model.windows import periods

_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND, _MINUTE, _HOUR, _DAY = 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000
_FIRST = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_LAST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_EDGE = 2 * _DAY  # where local times may be outside the years 1 to 9999; no clock is set there
_CLOCK_UNITS = {TimeUnit.MINUTE: _MINUTE, TimeUnit.HOUR: _HOUR}

Bools = NDArray[np.bool_]


def part(name: str, time: Datum, zone: str) -> Datum:
    """The part ``name`` of what clocks in ``zone`` show at ``time``; NULL outside the years 1 to 9999."""

    def of(times: pa.Array) -> pa.Array:
        at, known = _instants(times)
        shown, known = _local(at, known, zone)
        return pa.array(PARTS[name](shown), pa.int64(), mask=~known)

    value: Datum = each(of)(time)
    return value


def spell(time: Datum, text: str, zone: str) -> Datum:
    """What clocks in ``zone`` show at ``time``, in the format ``text``; NULL outside the years 1 to 9999."""

    def of(times: pa.Array) -> pa.Array:
        at, known = _instants(times)
        shown, known = _local(at, known, zone)
        parts = [_SPELLED[part](shown) if part in SHOWN else part for part in format_parts(text)]
        spelled = pc.binary_join_element_wise(pa.repeat("", len(shown)), *parts, "")
        return pc.if_else(pa.array(known), spelled, pa.scalar(None, pa.string()))

    spelled: Datum = each(of)(time)
    return spelled


def read_format(strings: pa.Array, text: str) -> pa.Array:
    """The moments that ``strings`` say in the format ``text``; NULL where one says none."""
    parts = format_parts(text)
    pattern = "".join(f"(?P<{part[1]}>{_READ[part]})" if part in _READ else _escaped(part) for part in parts)
    fields = pc.extract_regex(pc.utf8_trim(strings, characters=BLANKS), rf"^{pattern}\z")

    def number(part: str, least: int = 0) -> Ints:
        field = _field(fields, part) if part in parts else None
        return np.full(len(strings), least, np.int64) if field is None else as_numpy(_NUMBERS.get(part, _digits)(field))

    year, day, offset = number("%Y"), number("%d", 1), number("%z")
    month = number("%b") if "%b" in parts else number("%m", 1)
    months = (np.clip(year, 1, 9999) - 1970) * 12 + np.clip(month, 1, 12) - 1
    first, after = (moved.astype("M8[M]").astype("M8[D]").astype(np.int64) for moved in (months, months + 1))
    clock = [number(part) for part in ("%H", "%M", "%S")]
    into = sum(amount * unit for amount, unit in zip(clock, (_HOUR, _MINUTE, _SECOND), strict=True)) + number("%f")
    at = (first + day - 1) * _DAY + into - offset
    known = as_numpy(fields.is_valid()) & (year > 0) & (month > 0) & (month < 13) & (day > 0) & (day <= after - first)
    known &= (clock[0] < 24) & (clock[1] < 60) & (clock[2] < 60) & (abs(offset) < _DAY) & (at >= _FIRST) & (at <= _LAST)
    return pa.array(np.where(known, at, 0), pa.int64(), mask=~known).cast(TIMESTAMP)


def _field(fields: pa.Array, part: str) -> pa.Array:
    """What was read of a directive, "" where nothing was."""
    return pc.struct_field(fields, part[1]).fill_null("")


def _digits(field: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(field, ""), "0", field).cast(pa.int64())


def _month_number(field: pa.Array) -> pa.Array:
    names = pa.array([name.lower() for name in MONTHS], pa.string())
    return pc.add(pc.index_in(pc.ascii_lower(field), value_set=names).fill_null(-1), 1).cast(pa.int64())


def _fraction(field: pa.Array) -> pa.Array:
    return pc.utf8_slice_codeunits(pc.ascii_rpad(field, 6, "0"), 0, 6).cast(pa.int64())


def _offset(field: pa.Array) -> pa.Array:
    """Microseconds before UTC; a day where it is no offset."""
    digits = pc.if_else(pc.is_in(field, pa.array(["Z", ""])), "+0000", pc.replace_substring(field, ":", ""))
    hours, minutes = (_digits(pc.utf8_slice_codeunits(digits, start, start + 2)) for start in (1, 3))
    size = pc.add(pc.multiply(hours, _HOUR), pc.multiply(minutes, _MINUTE))
    size = pc.if_else(pc.less(minutes, 60), size, _DAY)
    return pc.if_else(pc.starts_with(digits, "-"), pc.negate(size), size)


def _escaped(text: str) -> str:
    return "".join(rf"\x{{{ord(character):x}}}" for character in text)


def truncate(time: Datum, unit: str, zone: str, *beginnings: Any) -> Datum:
    """When the ``unit`` of ``time`` began in ``zone``; NULL outside the years 1 to 9999. ``beginnings``: as in
    ``periods``.
    """

    def of(times: pa.Array) -> pa.Array:
        at, known = _instants(times)
        shown, known = _local(at, known, zone)
        at = np.where(known, at, 0)
        if (size := _CLOCK_UNITS.get(TimeUnit(unit))) is not None:
            start = _clock_start(at, shown % size, zone)
            known &= start >= _FIRST
        else:
            start, is_in_calendar = begun(periods(TimeUnit(unit), zone, *beginnings), at)
            known &= is_in_calendar
        return pa.array(start, pa.int64(), mask=~known).cast(TIMESTAMP)

    truncated: Datum = each(of)(time)
    return truncated


def local_to_utc(time: Datum, zone: str, twice: str, skipped: str) -> Datum:
    """When clocks in ``zone`` show what UTC shows at ``time``; NULL outside the years 1 to 9999.

    It is one of two moments, by the offsets of the day before and the day after: what clocks show twice is both, what
    they skip is neither.
    """

    def of(times: pa.Array) -> pa.Array:
        shown, known = _instants(times)
        if zone != "UTC":
            before, after = (_offsets(np.clip(shown + shift, _FIRST, _LAST), zone)[0] for shift in (-_DAY, _DAY))
            first, second = (_checked(shown - offset, offset, zone) for offset in (before, after))
            is_twice, is_skipped = first[1] & second[1] & (before != after), ~(first[1] | second[1])
            second_counts = ~first[1] & second[1] | is_twice & (Twice(twice) is Twice.SECOND)
            shown = np.where(second_counts, second[0], first[0])
            known &= ~is_twice | (Twice(twice) is not Twice.NULL)
            known &= ~is_skipped | (Skipped(skipped) is not Skipped.NULL)
            known &= (shown >= _FIRST) & (shown <= _LAST)
        return pa.array(shown, pa.int64(), mask=~known).cast(TIMESTAMP)

    moments: Datum = each(of)(time)
    return moments


def _checked(at: Ints, offset: Ints, zone: str) -> tuple[Ints, Bools]:
    """``at``, and whether clocks are ``offset`` before UTC then."""
    return at, _offsets(np.clip(at, _FIRST, _LAST), zone)[0] == offset


def _instants(times: pa.Array) -> tuple[Ints, Bools]:
    """Microseconds, and which of them are of the years 1 to 9999 in UTC; 1970 stands for others."""
    at = as_numpy(times.cast(pa.int64()).fill_null(_LAST + 1))
    known = (at >= _FIRST) & (at <= _LAST)
    return np.where(known, at, 0), known


def _local(at: Ints, known: Bools, zone: str) -> tuple[Ints, Bools]:
    """What clocks show, as microseconds since they showed 1970, and which of it is of the years 1 to 9999."""
    shown = at if zone == "UTC" else at + _offsets(at, zone)[0]
    known = known & (shown >= _FIRST) & (shown <= _LAST)
    return np.where(known, shown, 0), known


def _clock_start(at: Ints, into: Ints, zone: str) -> Ints:
    """``into`` before ``at``, or when clocks were set if that was later."""
    start: Ints = at - into
    if zone == "UTC":
        return start
    offset, since = _offsets(at, zone)
    was_set = _offsets(np.maximum(start, _FIRST), zone)[0] != offset
    return np.where(was_set, since, start)


def _offsets(at: Ints, zone: str) -> tuple[Ints, Ints]:
    """How far clocks in ``zone`` are before UTC, and since when, if it is not for long."""
    years = np.unique(_year(at))
    asked = np.union1d(years, np.maximum(years - 1, 1))
    changes = [change for year in asked.tolist() for change in _changes(zone, year)]
    since, offset = np.array(changes, np.int64).reshape(-1, 2).T
    changed = np.flatnonzero(np.diff(offset, prepend=offset[:1] + 1))
    since, offset = since[changed], offset[changed]
    place = np.searchsorted(since, at, side="right") - 1
    return offset[place], since[place]


@lru_cache(maxsize=1 << 14)
def _changes(zone: str, year: int) -> list[tuple[int, int]]:
    """When the offset of ``zone`` changes in ``year`` of UTC, and what it is then; the first is when the year begins.

    No zone has ever changed it twice within a day.
    """
    clock = ZoneInfo(zone)

    def offset(at: int) -> int:
        moment = _EPOCH + min(max(at, _FIRST + _EDGE), _LAST - _EDGE) * _MICROSECOND
        return (moment.astimezone(clock).utcoffset() or timedelta()) // _MICROSECOND

    begin = (datetime(year, 1, 1, tzinfo=UTC) - _EPOCH) // _MICROSECOND
    changes = [(begin, offset(begin))]
    for day in range(begin, begin + (365 + isleap(year)) * _DAY, _DAY):
        after = offset(day + _DAY)
        if after != changes[-1][1]:
            when = bisect_left(range(day, day + _DAY), True, key=lambda at: offset(at) == after)
            changes.append((day + when, after))
    return changes


def _year(shown: Ints) -> Ints:
    return shown.view("M8[us]").astype("M8[Y]").astype(np.int64) + 1970


def _month(shown: Ints) -> Ints:
    return shown.view("M8[us]").astype("M8[M]").astype(np.int64) % 12 + 1


def _day(shown: Ints) -> Ints:
    moment = shown.view("M8[us]")
    days: Ints = (moment.astype("M8[D]") - moment.astype("M8[M]").astype("M8[D]")).astype(np.int64) + 1
    return days


PARTS: Mapping[str, Callable[[Ints], Ints]] = {
    "year": _year,
    "month": _month,
    "day": _day,
    "weekday": lambda shown: (shown // _DAY + 3) % 7 + 1,
    "hour": lambda shown: shown // _HOUR % 24,
    "minute": lambda shown: shown // _MINUTE % 60,
    "second": lambda shown: shown // _SECOND % 60,
}
"""Parts of local time, of microseconds since clocks showed 1970."""


def _padded(value: Callable[[Ints], Ints], width: int) -> Callable[[Ints], pa.Array]:
    return lambda shown: pc.ascii_lpad(pa.array(value(shown)).cast(pa.string()), width, "0")


_NAMES = {"%Y": "year", "%m": "month", "%d": "day", "%H": "hour", "%M": "minute", "%S": "second"}
_SPELLED: Mapping[str, Callable[[Ints], pa.Array]] = {
    **{part: _padded(PARTS[name], SHOWN[part]) for part, name in _NAMES.items()},
    "%f": _padded(lambda shown: shown % _SECOND, SHOWN["%f"]),
    "%b": lambda shown: pa.array(MONTHS, pa.string()).take(pa.array(_month(shown) - 1)),
}
_READ = {
    "%Y": "[0-9]{4}",
    **dict.fromkeys(("%m", "%d", "%H", "%M", "%S"), "[0-9]{1,2}"),
    "%f": "[0-9]{1,9}",
    "%b": "[A-Za-z]{3}",
    "%z": "Z|[+-][0-9]{2}:?[0-9]{2}",
}
_NUMBERS = {"%b": _month_number, "%f": _fraction, "%z": _offset}
