"""What clocks and calendars of a time zone show, over columns of timestamps (``model.windows``).

Offsets are Python's, which is asked once for each day of the years that rows are in. The zones of other libraries may
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
from headrace.kernel.expressions.casts import BLANKS, Datum, accept_scalars, window_starts
from headrace.model.expressions.methods import Skipped, TimeUnit, Twice
from headrace.model.time import MONTHS, SHOWN_DIRECTIVES, format_parts
from headrace.model.windows import periods_of_unit

_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND, _MINUTE, _HOUR, _DAY = 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000
_FIRST_INSTANT = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_LAST_INSTANT = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_EDGE = 2 * _DAY  # where local times may be outside the years 1 to 9999; no clock is set there
_CENTURY = 69
"""Years of two digits from here on are of the last century, as POSIX has it."""
_HALVES = ("AM", "PM")
_CLOCK_UNITS = {TimeUnit.MINUTE: _MINUTE, TimeUnit.HOUR: _HOUR}

Bools = NDArray[np.bool_]


def clock_part(name: str, time: Datum, zone: str) -> Datum:
    """The part ``name`` of what clocks in ``zone`` show at ``time``; NULL outside the years 1 to 9999."""

    def part_of_times(times: pa.Array) -> pa.Array:
        instants, in_calendar = _to_instants(times)
        clock_times, in_calendar = _to_local_time(instants, in_calendar, zone)
        return pa.array(PARTS[name](clock_times), pa.int64(), mask=~in_calendar)

    value: Datum = accept_scalars(part_of_times)(time)
    return value


def format_time(time: Datum, text: str, zone: str) -> Datum:
    """What clocks in ``zone`` show at ``time``, in the format ``text``; NULL outside the years 1 to 9999."""

    def format_times(times: pa.Array) -> pa.Array:
        instants, in_calendar = _to_instants(times)
        clock_times, in_calendar = _to_local_time(instants, in_calendar, zone)
        parts = [_SPELLERS[part](clock_times) if part in SHOWN_DIRECTIVES else part for part in format_parts(text)]
        formatted_times = pc.binary_join_element_wise(pa.repeat("", len(clock_times)), *parts, "")
        return pc.if_else(pa.array(in_calendar), formatted_times, pa.scalar(None, pa.string()))

    formatted_time: Datum = accept_scalars(format_times)(time)
    return formatted_time


def read_format(strings: pa.Array, text: str) -> pa.Array:
    """The moments that ``strings`` say in the format ``text``; NULL where one says none."""
    parts = format_parts(text)
    pattern = "".join(
        f"(?P<{part[1]}>{_PART_PATTERNS[part]})" if part in _PART_PATTERNS else _escape_regex(part) for part in parts
    )
    fields = pc.extract_regex(pc.utf8_trim(strings, characters=BLANKS), rf"^{pattern}\z")

    def read_number(part: str, least: int = 0) -> Ints:
        if part not in parts:
            return np.full(len(strings), least, np.int64)
        return as_numpy(_PART_READERS.get(part, _parse_digits)(pc.struct_field(fields, part[1]).fill_null("")))

    year = read_number("%Y") if "%Y" in parts else _of_century(read_number("%y"))
    day, offset = read_number("%j" if "%j" in parts else "%d", 1), read_number("%z")
    month = read_number("%b") if "%b" in parts else read_number("%m", 1)
    months = (np.clip(year, 1, 9999) - 1970) * 12 + np.clip(month, 1, 12) - 1
    ends = (months, months + (12 if "%j" in parts else 1))
    first, next_month = (end_month.astype("M8[M]").astype("M8[D]").astype(np.int64) for end_month in ends)
    clock = [read_number(part) for part in ("%H", "%M", "%S")]
    if "%I" in parts:
        clock[0] = _of_twelve(read_number("%I"), read_number("%p"))
    within_day = sum(
        amount * unit for amount, unit in zip(clock, (_HOUR, _MINUTE, _SECOND), strict=True)
    ) + read_number("%f")
    instants = (first + day - 1) * _DAY + within_day - offset
    is_valid = (
        as_numpy(fields.is_valid()) & (year > 0) & (month > 0) & (month < 13) & (day > 0) & (day <= next_month - first)
    )
    is_valid &= (
        (clock[0] < 24)
        & (clock[1] < 60)
        & (clock[2] < 60)
        & (abs(offset) < _DAY)
        & (instants >= _FIRST_INSTANT)
        & (instants <= _LAST_INSTANT)
    )
    return pa.array(np.where(is_valid, instants, 0), pa.int64(), mask=~is_valid).cast(TIMESTAMP)


def _parse_digits(field: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(field, ""), "0", field).cast(pa.int64())


def _of_century(year: Ints) -> Ints:
    """Years of two digits as those of 1969 to 2068."""
    return np.where(year < _CENTURY, 2000, 1900) + year


def _of_twelve(hour: Ints, is_after_noon: Ints) -> Ints:
    """Hours of a clock of twelve as those of the day; a day where a clock has no such hour."""
    return np.where((hour > 0) & (hour <= 12), hour % 12 + 12 * is_after_noon, 24)


def _after_noon(field: pa.Array) -> pa.Array:
    return pc.equal(pc.ascii_lower(field), "pm").cast(pa.int64())


def _month_number(field: pa.Array) -> pa.Array:
    names = pa.array([name.lower() for name in MONTHS], pa.string())
    return pc.add(pc.index_in(pc.ascii_lower(field), value_set=names).fill_null(-1), 1).cast(pa.int64())


def _parse_fraction(field: pa.Array) -> pa.Array:
    return pc.utf8_slice_codeunits(pc.ascii_rpad(field, 6, "0"), 0, 6).cast(pa.int64())


def _parse_offset(field: pa.Array) -> pa.Array:
    """Microseconds before UTC; a day where it is no offset."""
    digits = pc.if_else(pc.is_in(field, pa.array(["Z", ""])), "+0000", pc.replace_substring(field, ":", ""))
    hours, minutes = (_parse_digits(pc.utf8_slice_codeunits(digits, start, start + 2)) for start in (1, 3))
    size = pc.add(pc.multiply(hours, _HOUR), pc.multiply(minutes, _MINUTE))
    size = pc.if_else(pc.less(minutes, 60), size, _DAY)
    return pc.if_else(pc.starts_with(digits, "-"), pc.negate(size), size)


def _escape_regex(text: str) -> str:
    return "".join(rf"\x{{{ord(character):x}}}" for character in text)


def truncate_time(time: Datum, unit: str, zone: str, *beginnings: Any) -> Datum:
    """When the ``unit`` of ``time`` began in ``zone``; NULL outside years 1-9999. ``beginnings`` as in ``periods``."""

    def truncate_times(times: pa.Array) -> pa.Array:
        instants, in_calendar = _to_instants(times)
        clock_times, in_calendar = _to_local_time(instants, in_calendar, zone)
        instants = np.where(in_calendar, instants, 0)
        if (size := _CLOCK_UNITS.get(TimeUnit(unit))) is not None:
            start = _clock_start(instants, clock_times % size, zone)
            in_calendar &= start >= _FIRST_INSTANT
        else:
            start, is_in_calendar = window_starts(periods_of_unit(TimeUnit(unit), zone, *beginnings), instants)
            in_calendar &= is_in_calendar
        return pa.array(start, pa.int64(), mask=~in_calendar).cast(TIMESTAMP)

    unit_starts: Datum = accept_scalars(truncate_times)(time)
    return unit_starts


def local_to_utc(time: Datum, zone: str, if_twice: str, if_skipped: str) -> Datum:
    """When clocks in ``zone`` show what UTC shows at ``time``; NULL outside the years 1 to 9999.

    It is one of two moments, by the offsets of the day before and the day after. Times that clocks show twice are both;
    times that they skip are neither.
    """

    def convert_times(times: pa.Array) -> pa.Array:
        clock_times, in_calendar = _to_instants(times)
        if zone != "UTC":
            offset_before, offset_after = (
                _zone_offsets(np.clip(clock_times + shift, _FIRST_INSTANT, _LAST_INSTANT), zone)[0]
                for shift in (-_DAY, _DAY)
            )
            first, second = (
                _check_offset(clock_times - offset, offset, zone) for offset in (offset_before, offset_after)
            )
            is_twice, is_skipped = first[1] & second[1] & (offset_before != offset_after), ~(first[1] | second[1])
            second_counts = ~first[1] & second[1] | is_twice & (Twice(if_twice) is Twice.SECOND)
            clock_times = np.where(second_counts, second[0], first[0])
            in_calendar &= ~is_twice | (Twice(if_twice) is not Twice.NULL)
            in_calendar &= ~is_skipped | (Skipped(if_skipped) is not Skipped.NULL)
            in_calendar &= (clock_times >= _FIRST_INSTANT) & (clock_times <= _LAST_INSTANT)
        return pa.array(clock_times, pa.int64(), mask=~in_calendar).cast(TIMESTAMP)

    moments: Datum = accept_scalars(convert_times)(time)
    return moments


def _check_offset(instants: Ints, offset: Ints, zone: str) -> tuple[Ints, Bools]:
    """``instants``, and whether clocks are ``offset`` before UTC then."""
    return instants, _zone_offsets(np.clip(instants, _FIRST_INSTANT, _LAST_INSTANT), zone)[0] == offset


def _to_instants(times: pa.Array) -> tuple[Ints, Bools]:
    """Microseconds, and which of them are of the years 1 to 9999 in UTC; 1970 stands for others."""
    instants = as_numpy(times.cast(pa.int64()).fill_null(_LAST_INSTANT + 1))
    in_calendar = (instants >= _FIRST_INSTANT) & (instants <= _LAST_INSTANT)
    return np.where(in_calendar, instants, 0), in_calendar


def _to_local_time(instants: Ints, in_calendar: Bools, zone: str) -> tuple[Ints, Bools]:
    """What clocks show, as microseconds since they showed 1970, and which of it is of the years 1 to 9999."""
    clock_times = instants if zone == "UTC" else instants + _zone_offsets(instants, zone)[0]
    in_calendar = in_calendar & (clock_times >= _FIRST_INSTANT) & (clock_times <= _LAST_INSTANT)
    return np.where(in_calendar, clock_times, 0), in_calendar


def _clock_start(instants: Ints, time_since_start: Ints, zone: str) -> Ints:
    """``time_since_start`` before ``instants``, or when clocks were set if that was later."""
    start: Ints = instants - time_since_start
    if zone == "UTC":
        return start
    offset, set_at = _zone_offsets(instants, zone)
    was_set = _zone_offsets(np.maximum(start, _FIRST_INSTANT), zone)[0] != offset
    return np.where(was_set, set_at, start)


def _zone_offsets(instants: Ints, zone: str) -> tuple[Ints, Ints]:
    """How far clocks in ``zone`` are before UTC, and since when, if it is not for long."""
    years = np.unique(_year(instants))
    # clocks may have been set just before a year began
    years_to_look_up = np.union1d(years, np.maximum(years - 1, 1))
    changes = [change for year in years_to_look_up.tolist() for change in _offset_changes(zone, year)]
    change_times, offset = np.array(changes, np.int64).reshape(-1, 2).T
    is_change = np.flatnonzero(np.diff(offset, prepend=offset[:1] + 1))
    change_times, offset = change_times[is_change], offset[is_change]
    place = np.searchsorted(change_times, instants, side="right") - 1
    return offset[place], change_times[place]


@lru_cache(maxsize=1 << 14)
def _offset_changes(zone: str, year: int) -> list[tuple[int, int]]:
    """When the offset of ``zone`` changes in ``year`` of UTC, and what it is then; the first is when the year begins.

    No zone has ever changed it twice within a day.
    """
    clock = ZoneInfo(zone)

    def offset_at(instant: int) -> int:
        moment = _EPOCH + min(max(instant, _FIRST_INSTANT + _EDGE), _LAST_INSTANT - _EDGE) * _MICROSECOND
        return (moment.astimezone(clock).utcoffset() or timedelta()) // _MICROSECOND

    begin = (datetime(year, 1, 1, tzinfo=UTC) - _EPOCH) // _MICROSECOND
    changes = [(begin, offset_at(begin))]
    for day in range(begin, begin + (365 + isleap(year)) * _DAY, _DAY):
        next_offset = offset_at(day + _DAY)
        if next_offset != changes[-1][1]:
            when = bisect_left(range(day, day + _DAY), True, key=lambda instant: offset_at(instant) == next_offset)
            changes.append((day + when, next_offset))
    return changes


def _year(clock_times: Ints) -> Ints:
    return clock_times.view("M8[us]").astype("M8[Y]").astype(np.int64) + 1970


def _month(clock_times: Ints) -> Ints:
    return clock_times.view("M8[us]").astype("M8[M]").astype(np.int64) % 12 + 1


def _day_of_month(clock_times: Ints) -> Ints:
    moment = clock_times.view("M8[us]")
    days: Ints = (moment.astype("M8[D]") - moment.astype("M8[M]").astype("M8[D]")).astype(np.int64) + 1
    return days


def _day_of_year(clock_times: Ints) -> Ints:
    moment = clock_times.view("M8[us]")
    days: Ints = (moment.astype("M8[D]") - moment.astype("M8[Y]").astype("M8[D]")).astype(np.int64) + 1
    return days


PARTS: Mapping[str, Callable[[Ints], Ints]] = {
    "year": _year,
    "month": _month,
    "day": _day_of_month,
    "weekday": lambda clock_times: (clock_times // _DAY + 3) % 7 + 1,
    "hour": lambda clock_times: clock_times // _HOUR % 24,
    "minute": lambda clock_times: clock_times // _MINUTE % 60,
    "second": lambda clock_times: clock_times // _SECOND % 60,
}
"""Parts of local time, of microseconds since clocks showed 1970."""


def _zero_pad(value: Callable[[Ints], Ints], width: int) -> Callable[[Ints], pa.Array]:
    return lambda clock_times: pc.ascii_lpad(pa.array(value(clock_times)).cast(pa.string()), width, "0")


_PART_OF_DIRECTIVE = {"%Y": "year", "%m": "month", "%d": "day", "%H": "hour", "%M": "minute", "%S": "second"}
_SPELLERS: Mapping[str, Callable[[Ints], pa.Array]] = {
    **{part: _zero_pad(PARTS[name], SHOWN_DIRECTIVES[part]) for part, name in _PART_OF_DIRECTIVE.items()},
    "%f": _zero_pad(lambda clock_times: clock_times % _SECOND, SHOWN_DIRECTIVES["%f"]),
    "%y": _zero_pad(lambda clock_times: _year(clock_times) % 100, SHOWN_DIRECTIVES["%y"]),
    "%j": _zero_pad(_day_of_year, SHOWN_DIRECTIVES["%j"]),
    "%I": _zero_pad(lambda clock_times: (clock_times // _HOUR - 1) % 12 + 1, SHOWN_DIRECTIVES["%I"]),
    "%p": lambda clock_times: pa.array(_HALVES, pa.string()).take(pa.array(clock_times // (12 * _HOUR) % 2)),
    "%b": lambda clock_times: pa.array(MONTHS, pa.string()).take(pa.array(_month(clock_times) - 1)),
}
_PART_PATTERNS = {
    "%Y": "[0-9]{4}",
    "%y": "[0-9]{2}",
    **dict.fromkeys(("%m", "%d", "%H", "%I", "%M", "%S"), "[0-9]{1,2}"),
    "%j": "[0-9]{1,3}",
    "%p": "[AaPp][Mm]",
    "%f": "[0-9]{1,9}",
    "%b": "[A-Za-z]{3}",
    "%z": "Z|[+-][0-9]{2}:?[0-9]{2}",
}
_PART_READERS = {"%b": _month_number, "%p": _after_noon, "%f": _parse_fraction, "%z": _parse_offset}
