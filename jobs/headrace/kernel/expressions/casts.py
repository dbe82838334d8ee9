"""Casts: dates and values of other types as one another, text read as values, and values spelled as text.

Dates are days since 1970, of the years 1 to 9999. The calendar of a time zone is asked once for each day that rows are
on.

Timestamps are read as tools write them, beside the form that Arrow reads. They may be RFC 3339 with ``t`` and ``z``,
and have a comma before the fraction, or a zone behind a blank. They may be ISO 8601 without dashes and colons, and have
24:00 for the end of a day. Each is spelled as the form that is read.

A clean column of text costs one cast of Arrow's. That may fail, or read what is not ours to read (``0x1F`` is an int to
Arrow). Only then are the texts that follow our rules told apart first. ``headrace_lab.reference`` has the same rules in
its own words.
"""

from collections.abc import Callable, Sequence
from datetime import date
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.kernel.columns import ARROW_TYPES, DATE, DECIMAL, TIMESTAMP, Ints, arrow_scalar, as_numpy, true_mask
from headrace.kernel.expressions import decimals
from headrace.kernel.expressions.string_bytes import text_of
from headrace.model.expressions.data_types import DataType
from headrace.model.time import GLOBAL_WINDOW_END, MIN_INSTANT
from headrace.model.windows import CalendarWindows, number_of, start_of

_LONG = pa.int64()
_FIRST_DAY, _LAST_CALENDAR_DAY = (day.toordinal() - date(1970, 1, 1).toordinal() for day in (date.min, date.max))
_FURTHEST = 4_000_000
"""More days than there are between any two dates."""


def days_of(dates: Any) -> Any:
    """The days of a column (or scalar) of dates since 1970."""
    return dates.cast(pa.int32()).cast(_LONG)


def is_date(days: Any) -> Any:
    """Which days since 1970 are dates."""
    return pc.and_(
        pc.greater_equal(days, arrow_scalar(_FIRST_DAY)), pc.less_equal(days, arrow_scalar(_LAST_CALENDAR_DAY))
    )


def to_dates(days: Any) -> Any:
    """Days since 1970, all of which are dates, as such."""
    return days.cast(pa.int32()).cast(DATE)


def in_calendar(dates: pa.Array) -> pa.Array:
    """``dates``, which Arrow has of other years too, with NULL for those."""
    return pc.if_else(is_date(days_of(dates)), dates, pa.scalar(None, DATE))


def date_of(timestamps: pa.Array) -> pa.Array:
    """The days of timestamps in UTC; NULL for one that no date is."""
    return in_calendar(timestamps.cast(TIMESTAMP).cast(DATE))


def plus_days(dates: Any, days: Any) -> Any:
    """``dates`` moved by ``days``. Raises OverflowError for one that leaves the calendar."""
    clipped_days = pc.max_element_wise(
        pc.min_element_wise(days, _FURTHEST, skip_nulls=False), -_FURTHEST, skip_nulls=False
    )
    moved_days = pc.add(days_of(dates), clipped_days)
    if pc.all(is_date(moved_days)).as_py() is False:
        raise OverflowError
    return to_dates(moved_days)


_DAY_LENGTH = 86_400_000_000
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_known_start = lru_cache(maxsize=1 << 16)(start_of)


def calendar_windows(where: CalendarWindows, times: Ints) -> tuple[Ints, Ints]:
    """Start and end of the window of each instant; the last one that begins within the calendar ends with time, and has
    what is dated beyond it, too. Raises ValueError for an instant before the year 1.
    """
    bounds = np.append(
        _starts_around_days(where, pc.unique(pa.array(times // _DAY_LENGTH)).to_pylist()), int(GLOBAL_WINDOW_END)
    )
    place = np.minimum(np.searchsorted(bounds, times, side="right"), len(bounds) - 1)
    if len(times) and place.min() == 0:
        raise ValueError("an instant before the year 1 is in no calendar window")
    return bounds[place - 1], bounds[place]


def window_starts(where: CalendarWindows, times: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    """When the window of each instant began, and whether the calendar knows that."""
    bounds = _starts_around_days(where, pc.unique(pa.array(times // _DAY_LENGTH)).to_pylist())
    place = np.searchsorted(bounds, times, side="right")
    return np.append(bounds, 0)[place - 1], place > 0


def _starts_around_days(where: CalendarWindows, days: list[int]) -> Ints:
    """Where windows begin around these ``days`` in UTC. Clocks show the day before, the same or the next. They may show
    the end of a window again when the next one has begun. Where days begin after midnight it may be one before these.
    """
    numbers: set[int] = set()
    earliest = -2 if where.day_shift else -1
    for day in days:
        nearby_numbers = [
            number_of(where, date.fromordinal(_clamp_ordinal(_clamp_ordinal(day + _EPOCH_ORDINAL) + shift)))
            for shift in (earliest, 1)
        ]
        numbers.update(range(nearby_numbers[0], nearby_numbers[1] + 3))
    return np.array(sorted({start for number in numbers for start in _known_starts(where, number)}), np.int64)


def _clamp_ordinal(ordinal: int) -> int:
    return min(max(ordinal, date.min.toordinal()), date.max.toordinal())


def _known_starts(where: CalendarWindows, number: int) -> list[int]:
    try:
        return [_known_start(where, number)]
    except (ValueError, OverflowError):  # beyond the calendar
        return []


_DAY_MICROSECONDS: Final = 86_400_000_000
_TIME_END_PATTERN: Final = (
    r"(?:[.,](?P<fraction>[0-9]+))?"
    r"(?:(?P<utc>(?: [+-]00:?00)? ?(?:UTC|GMT|[Zz]))| ?(?P<offset>[+-][0-9]{2}(?::?[0-9]{2})?))?$"
)
_EXTENDED_FORMAT: Final = (
    r"^(?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ](?P<hour>[0-9]{2})"
    rf"(?P<minute>(?::[0-9]{{2}})?)(?P<second>(?::[0-9]{{2}})?){_TIME_END_PATTERN}"
)
_BASIC: Final = (
    r"^(?P<year>[0-9]{4})(?P<month>[0-9]{2})(?P<day>[0-9]{2})[Tt](?P<hour>[0-9]{2})"
    rf"(?P<minute>(?:[0-9]{{2}})?)(?P<second>(?:[0-9]{{2}})?){_TIME_END_PATTERN}"
)
_LAST_DAY: Final = "9999-12-31"


def normalize_time_text(text: pa.Array) -> tuple[pa.Array, pa.Array]:
    """``text`` in the form that is read, NULL where it is no time; and which of it says the end of a day: it is spelled
    as the beginning of that day.
    """
    time_text, ends_a_day = _read_extended_format(text)
    if time_text.null_count > text.null_count:
        basic, ends_a_basic_day = _read_basic_format(text)
        time_text, ends_a_day = pc.coalesce(time_text, basic), pc.coalesce(ends_a_day, ends_a_basic_day)
    return time_text, ends_a_day


def a_day_later(instants: pa.Array, which: pa.Array) -> pa.Array:
    """Microseconds, a day later where ``which`` says so."""
    return pc.if_else(which.fill_null(False), pc.add(instants, arrow_scalar(_DAY_MICROSECONDS)), instants)


def _read_extended_format(text: pa.Array) -> tuple[pa.Array, pa.Array]:
    parts = pc.extract_regex(text, _EXTENDED_FORMAT)
    return _join_time_parts(parts, *(pc.struct_field(parts, part) for part in ("day", "hour", "minute", "second")))


def _read_basic_format(text: pa.Array) -> tuple[pa.Array, pa.Array]:
    parts = pc.extract_regex(text, _BASIC)
    year, month, day, hour, minute, second = (
        pc.struct_field(parts, part) for part in ("year", "month", "day", "hour", "minute", "second")
    )
    return _join_time_parts(
        parts,
        pc.binary_join_element_wise(year, month, day, arrow_scalar("-")),
        hour,
        _prefix_digits(":", minute),
        _prefix_digits(":", second),
    )


def _join_time_parts(
    parts: pa.Array, day: pa.Array, hour: pa.Array, minute: pa.Array, second: pa.Array
) -> tuple[pa.Array, pa.Array]:
    fraction, utc, offset = (pc.struct_field(parts, part) for part in ("fraction", "utc", "offset"))
    zone = pc.if_else(pc.equal(utc, arrow_scalar("")), offset, arrow_scalar("Z"))
    within_hour = pc.binary_join_element_wise(minute, second, pc.ascii_trim(fraction, characters="0"), arrow_scalar(""))
    ends_a_day = pc.and_(
        pc.equal(hour, arrow_scalar("24")), pc.equal(pc.ascii_trim(within_hour, characters=":0"), arrow_scalar(""))
    )
    ends_a_day = pc.and_(ends_a_day, pc.not_equal(day, arrow_scalar(_LAST_DAY)))
    hour = pc.if_else(ends_a_day, arrow_scalar("00"), hour)
    time = pc.binary_join_element_wise(
        day, arrow_scalar("T"), hour, minute, second, _prefix_digits(".", fraction), zone, arrow_scalar("")
    )
    return time, ends_a_day


def _prefix_digits(mark: str, digits: pa.Array) -> pa.Array:
    """``digits`` with a ``mark`` before them, if there are any."""
    return pc.if_else(
        pc.equal(digits, arrow_scalar("")),
        arrow_scalar(""),
        pc.binary_join_element_wise(arrow_scalar(mark), digits, arrow_scalar("")),
    )


BLANKS = "".join(c for c in map(chr, range(0x3001)) if c.isspace())  # all there are: what Python's strip takes away
_INTEGER = r"^[+-]?0*[0-9]{1,19}$"
_FLOAT = r"^(?i:[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|inf(inity)?|nan))$"
_TRUE = ("t", "true", "y", "yes", "1")
_FALSE = ("f", "false", "n", "no", "0")

_LEAP = r"([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)"
_DATE = (
    r"([0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)"
    rf"|02-(0[1-9]|1[0-9]|2[0-8]))|{_LEAP}-02-29)"
)
_HOUR, _SIXTIETH = r"([01][0-9]|2[0-3])", r"[0-5][0-9]"
_TIME = rf"{_HOUR}(:{_SIXTIETH}(:{_SIXTIETH}(\.[0-9]+)?)?)?"
_ZONE = rf"(Z|[+-]{_HOUR}(:?{_SIXTIETH})?)"
_INSTANT = rf"^{_DATE}([T ]{_TIME}{_ZONE}?)?$"
_WITH_ZONE = rf"^.{{10}}[T ].*{_ZONE}$"
_FIRST_DAYS = -62_135_596_800_000_000 + 2 * 86_400_000_000  # year 1, and the two days that its zones may reach into


def read_text(text: pa.Array, kind: DataType, *, is_iso_alone: bool = False) -> pa.Array:
    """The strings ``text`` as ``kind``, NULL where one does not read as that. Blanks around it do not matter.

    Integers are digits with a sign; floats may have a fraction, an exponent, or be inf or nan; booleans are t, true, y,
    yes, 1 and f, false, n, no, 0 in any case; timestamps are ISO 8601: a date with or without a time, UTC unless they
    name another zone, and what tools write for that (``text_instants``); dates are such dates alone; decimals are
    floats without inf and nan that need no more digits than there are. ``is_iso_alone``: what tools write for
    timestamps is none.
    """
    if kind is DataType.STRING:
        return text
    try:
        values = _CLEAN[kind](text)
    except pa.ArrowInvalid:
        values = None
    if values is not None:
        return values
    trimmed_text = pc.utf8_trim(text, characters=BLANKS)
    return _iso_instants(trimmed_text) if is_iso_alone and kind is DataType.TIMESTAMP else _READERS[kind](trimmed_text)


def _contains_any(text: pa.Array, characters: str) -> bool:
    """Whether one of these characters, which are ASCII, is anywhere in the memory of ``text``."""
    data = text.buffers()[2]
    octets = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return any((octets == ord(character)).any() for character in characters)


def _clean_integers(text: pa.Array) -> pa.Array | None:
    integers = pc.cast(text, pa.int64())
    return None if _contains_any(text, "xX") else integers


def _clean_floats(text: pa.Array) -> pa.Array | None:
    floats = pc.cast(text, pa.float64())
    return None if _contains_any(text, "(") else floats


def _clean_instants(text: pa.Array) -> pa.Array | None:
    non_null = text.drop_null()
    has_zone = len(non_null) > 0 and pc.match_substring_regex(non_null[:1], _WITH_ZONE)[0].as_py()
    instants = pc.cast(text, TIMESTAMP if has_zone else pa.timestamp("us")).cast(pa.int64())
    earliest = pc.min(instants).as_py()
    return instants.cast(TIMESTAMP) if earliest is None or earliest > _FIRST_DAYS else None  # Arrow knows a year 0


def _clean_dates(text: pa.Array) -> pa.Array:
    return in_calendar(pc.cast(text, DATE))


def _clean_decimals(text: pa.Array) -> pa.Array | None:
    longest = pc.max(pc.binary_length(text)).as_py() or 0
    return None if longest > decimals.SHORT or _contains_any(text, "eE") else pc.cast(text, DECIMAL)


def _judged_integers(text: pa.Array) -> pa.Array:
    text = _null_unless_matching(text, _INTEGER)
    negative = true_mask(pc.starts_with(text, "-"))
    # without a sign 64 bits hold all of 19 digits: Arrow refuses a column for one number that does not fit
    digits = as_numpy(pc.cast(pc.ascii_ltrim(text, characters="+-"), pa.uint64()).fill_null(0))
    fits = digits <= np.uint64(2**63 - 1) + negative.astype(np.uint64)
    values = np.where(negative, np.uint64(0) - digits, digits).view(np.int64)
    return pa.array(values, mask=~(fits & true_mask(text.is_valid())))


def _judged_floats(text: pa.Array) -> pa.Array:
    return pc.cast(_null_unless_matching(text, _FLOAT), pa.float64())


def _judged_bools(text: pa.Array) -> pa.Array:
    lower_text = pc.ascii_lower(text)
    is_false = pc.if_else(
        pc.is_in(lower_text, pa.array(_FALSE, pa.string())), arrow_scalar(False), pa.scalar(None, pa.bool_())
    )
    return pc.if_else(pc.is_in(lower_text, pa.array(_TRUE, pa.string())), arrow_scalar(True), is_false)


def _judged_instants(text: pa.Array) -> pa.Array:
    odd = pc.invert(pc.match_substring_regex(text, _INSTANT)).fill_null(False)
    if not pc.any(odd).as_py():
        return _iso_instants(text)
    others, ends_a_day = normalize_time_text(text.filter(odd))
    end_of_day_times = a_day_later(_iso_instants(others).cast(pa.int64()), ends_a_day).cast(TIMESTAMP)
    return pc.replace_with_mask(_iso_instants(text), odd, end_of_day_times)


def _iso_instants(text: pa.Array) -> pa.Array:
    text = _null_unless_matching(text, _INSTANT)
    text = pc.if_else(pc.starts_with(text, "0000"), pa.scalar(None, pa.string()), text)
    # Arrow reads no fraction of more digits, and in one cast no texts with a zone beside such without
    text = pc.replace_substring_regex(text, r"(\.[0-9]{6})[0-9]+", r"\1")
    has_zone = pc.match_substring_regex(text, _WITH_ZONE)
    nothing = pa.scalar(None, pa.string())
    local = pc.cast(pc.if_else(has_zone, nothing, text), pa.timestamp("us")).cast(TIMESTAMP)
    return pc.coalesce(pc.cast(pc.if_else(has_zone, text, nothing), TIMESTAMP), local)


def _judged_dates(text: pa.Array) -> pa.Array:
    return _clean_dates(_null_unless_matching(text, rf"^{_DATE}$"))


def _null_unless_matching(text: pa.Array, pattern: str) -> pa.Array:
    return pc.if_else(pc.match_substring_regex(text, pattern), text, pa.scalar(None, pa.string()))


_CLEAN: dict[DataType, Callable[[pa.Array], pa.Array | None]] = {
    DataType.INT: _clean_integers,
    DataType.FLOAT: _clean_floats,
    DataType.BOOL: lambda text: None,
    DataType.TIMESTAMP: _clean_instants,
    DataType.DATE: _clean_dates,
    DataType.DECIMAL: _clean_decimals,
}
_READERS: dict[DataType, Callable[[pa.Array], pa.Array]] = {
    DataType.INT: _judged_integers,
    DataType.FLOAT: _judged_floats,
    DataType.BOOL: _judged_bools,
    DataType.TIMESTAMP: _judged_instants,
    DataType.DATE: _judged_dates,
    DataType.DECIMAL: decimals.parse_decimals,
}


def to_strings(values: pa.Array) -> pa.Array:
    """``values`` of any type as strings: floats as the JVM writes doubles, timestamps in UTC without trailing
    zeros, NULL outside the years 1 to 9999."""
    if values.type == TIMESTAMP:
        return _spelled_instants(values)
    return _spelled_floats(values) if values.type == pa.float64() else pc.cast(values, pa.string())


def _spelled_instants(values: pa.Array) -> pa.Array:
    number = values.cast(pa.int64())
    infinite = pc.or_(
        pc.less_equal(number, arrow_scalar(int(MIN_INSTANT))),
        pc.greater_equal(number, arrow_scalar(int(GLOBAL_WINDOW_END))),
    )
    text = pc.cast(number.cast(pa.timestamp("us")), pa.string())
    trimmed_text = pc.ascii_rtrim(pc.ascii_rtrim(text, characters="0"), characters=".")
    calendar_text = pc.if_else(date_of(values).is_valid(), trimmed_text, pa.scalar(None, pa.string()))
    return pc.if_else(infinite, arrow_scalar(""), calendar_text)


def _spelled_floats(values: pa.Array) -> pa.Array:
    """Plain from 0.001 to 10,000,000, scientific (``1.0E7``) elsewhere; with the fewest digits that tell it apart."""
    text = pc.cast(values, pa.string())
    for arrows, ours in (("nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity")):
        text = pc.if_else(pc.equal(text, arrows), ours, text)
    size = pc.abs(values)
    plain = pc.or_(
        pc.equal(size, arrow_scalar(0.0)),
        pc.and_(pc.greater_equal(size, arrow_scalar(1e-3)), pc.less(size, arrow_scalar(1e7))),
    )
    whole = pc.and_(plain, pc.invert(pc.match_substring(text, ".")))
    text = pc.if_else(whole, pc.binary_join_element_wise(text, arrow_scalar(".0"), arrow_scalar("")), text)
    scientific = pc.and_(pc.is_finite(values), pc.invert(plain)).fill_null(False)
    return _with_scientific(text, scientific)


def _with_scientific(text: pa.Array, is_scientific: pa.Array) -> pa.Array:
    if not pc.any(is_scientific).as_py():
        return text
    pattern = r"^(?P<sign>-?)(?P<whole>[0-9]+)(?:\.(?P<fraction>[0-9]+))?(?:e(?P<exponent>[+-]?[0-9]+))?$"
    parts = pc.extract_regex(text.filter(is_scientific), pattern)
    sign, whole, fraction, exponent = (
        pc.struct_field(parts, part) for part in ("sign", "whole", "fraction", "exponent")
    )
    digits = pc.binary_join_element_wise(whole, fraction, arrow_scalar(""))
    significant = pc.ascii_ltrim(digits, characters="0")
    zeros = pc.subtract(pc.binary_length(digits), pc.binary_length(significant))
    shift = pc.cast(
        pc.ascii_ltrim(pc.if_else(pc.equal(exponent, arrow_scalar("")), arrow_scalar("0"), exponent), characters="+"),
        pa.int32(),
    )
    power = pc.subtract(pc.add(shift, pc.subtract(pc.binary_length(whole), arrow_scalar(1))), zeros)
    rest = pc.ascii_rtrim(pc.utf8_slice_codeunits(significant, 1), characters="0")
    rest = pc.if_else(pc.equal(rest, arrow_scalar("")), arrow_scalar("0"), rest)
    first = pc.utf8_slice_codeunits(significant, 0, 1)
    mantissa = pc.binary_join_element_wise(
        sign, first, arrow_scalar("."), rest, arrow_scalar("E"), pc.cast(power, pa.string()), arrow_scalar("")
    )
    return pc.replace_with_mask(text, is_scientific, mantissa)


Datum = Any
"""A ``pa.Array``, or a ``pa.Scalar`` that stands for a column of equal values."""

_INT_LIMIT = 2.0**63
_PRIVATE = range(0xE000, 0xF900)  # characters that have no case, and none of which decides the case of others


def broadcast_columns(values: Sequence[Datum]) -> list[pa.Array]:
    """Columns of one length; the length is 1 if all are scalars."""
    length = next((len(v) for v in values if isinstance(v, pa.Array)), 1)
    return [pa.repeat(v, length) if isinstance(v, pa.Scalar) else v for v in values]


def accept_scalars(function: Callable[..., pa.Array]) -> Callable[..., Datum]:
    """``function`` of columns for scalars as well: of scalars alone it gives one."""

    def apply_to_values(*values: Datum) -> Datum:
        result = function(*broadcast_columns(values))
        return result if any(isinstance(v, pa.Array) for v in values) else result[0]

    return apply_to_values


def cast_value(value: Datum, target_type: DataType) -> Datum:  # noqa: PLR0911 (a line for each type)
    """``value`` as ``target_type``: NULL for a string that does not read as one, and for a number that does not fit.

    A number is microseconds where a timestamp is.
    """
    if value.type == ARROW_TYPES[target_type]:
        return value
    if value.type == pa.null():
        return value.cast(ARROW_TYPES[target_type])
    if value.type == pa.string():
        if target_type is DataType.BYTES:
            return value.cast(pa.binary())
        return accept_scalars(partial(read_text, kind=target_type, is_iso_alone=True))(value)
    if value.type == DATE:
        return pc.cast(value, ARROW_TYPES[target_type])
    if value.type == pa.binary():
        return accept_scalars(text_of)(value)
    if value.type == DECIMAL:
        return accept_scalars(_OF_DECIMALS[target_type])(value)
    of_time = value.type == TIMESTAMP and target_type not in (DataType.STRING, DataType.DATE)
    return accept_scalars(_CASTS[target_type])(value.cast(pa.int64()) if of_time else value)


def truncate_to_ints(values: pa.Array) -> pa.Array:
    """Without fractions; NULL where 64 bits do not hold that."""
    if values.type != pa.float64():
        return values.cast(pa.int64())
    lowest, limit = arrow_scalar(-_INT_LIMIT), arrow_scalar(_INT_LIMIT)
    fits = pc.and_(pc.greater_equal(values, lowest), pc.less(values, limit))  # NaN does not
    return pc.cast(pc.trunc(pc.if_else(fits, values, pa.scalar(None, pa.float64()))), pa.int64())


_CASTS: dict[DataType, Callable[[pa.Array], pa.Array]] = {
    DataType.STRING: to_strings,
    DataType.INT: truncate_to_ints,
    DataType.FLOAT: lambda values: pc.cast(values, pa.float64(), safe=False),
    DataType.BOOL: lambda values: pc.not_equal(values, arrow_scalar(0)),
    DataType.TIMESTAMP: lambda values: truncate_to_ints(values).cast(TIMESTAMP),
    DataType.DATE: date_of,
    DataType.DECIMAL: lambda numbers: (
        decimals.of_floats(numbers) if numbers.type == pa.float64() else decimals.of_ints(numbers)
    ),
}
_OF_DECIMALS: dict[DataType, Callable[[pa.Array], pa.Array]] = {
    DataType.STRING: decimals.spell_decimals,
    DataType.INT: decimals.to_ints,
    DataType.FLOAT: decimals.to_floats,
}


def change_case(
    change: Callable[[str], str], of_ascii: Callable[[pa.Array], pa.Array]
) -> Callable[[pa.Array], pa.Array]:
    """Strings with their case changed: as Python does it, since libraries know different versions of Unicode.

    All of them are changed as one text, parted by a character that is in none of them.
    """

    def change_strings(strings: pa.Array) -> pa.Array:
        if pc.all(pc.string_is_ascii(strings)).as_py() is not False:
            return of_ascii(strings)
        return pc.if_else(strings.is_valid(), whole_text(strings.fill_null("")), pa.scalar(None, pa.string()))

    def whole_text(texts: pa.Array) -> pa.Array:
        lists = pa.ListArray.from_arrays(np.array([0, len(texts)], np.int32), texts)
        all_text = pc.binary_join(lists, arrow_scalar(""))[0].as_py()
        if (part := next((c for c in map(chr, _PRIVATE) if c not in all_text), None)) is not None:
            text = pa.scalar(change(pc.binary_join(lists, part)[0].as_py()))
            return pc.split_pattern(text, part).values
        half = len(texts) // 2  # all of these characters are in them
        return pa.concat_arrays(map(whole_text, (texts[:half], texts[half:]))) if half else pa.array([change(all_text)])

    return change_strings
