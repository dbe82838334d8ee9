"""What every expression can be asked for: methods of numbers, of text, of time, and aggregates.

Aggregates are methods too: ``col("delay").max()`` (semantics, section 8). NULL values are left out, as in SQL. Days,
weeks and years may begin elsewhere than in the calendar: windows and truncated times have the same options.
"""

import re
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, cast

from headrace.model.arguments import Arguments, as_expression, method_keywords
from headrace.model.combiners import Aggregate, Combiner, CustomCombiner, Outer
from headrace.model.expressions.data_types import IN_JSON, data_type
from headrace.model.expressions.regex import Captures, RegexError, check_replacement, to_captures, to_re2
from headrace.model.time import SHOWN, format_parts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from headrace.model.expressions.data_types import DataType, Scalar
    from headrace.model.expressions.expr import Expr, Operand


class Weekday(StrEnum):
    """The days of a week."""

    MONDAY = "monday"
    TUESDAY = "tuesday"
    WEDNESDAY = "wednesday"
    THURSDAY = "thursday"
    FRIDAY = "friday"
    SATURDAY = "saturday"
    SUNDAY = "sunday"


MIDNIGHT = "00:00"
_CLOCK = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]")


def day_beginning(given: Arguments, clock: str) -> str:
    """The time of clocks at which days begin. Raises PipelineError."""
    if not isinstance(clock, str) or not _CLOCK.fullmatch(clock):
        raise given.wrong("day_begins", clock, 'write a time of clocks such as "06:00"')
    return clock


def week_beginning(given: Arguments, day: Weekday | str, unit: str) -> Weekday:
    """The day with which weeks begin. Raises PipelineError, also where another ``unit`` has no use for it."""
    weekday = given.choice("week_begins", day, Weekday)
    if weekday is not Weekday.MONDAY and unit != "week":
        raise given.wrong("week_begins", day, f"it is about weeks, and these are {unit}s")
    return weekday


def year_beginning(given: Arguments, month: int, unit: str, *, is_of_months: bool) -> int:
    """The month with which years begin. Raises PipelineError, also where a ``unit`` is not made of months."""
    first_month = given.whole("year_begins", month, least=1)
    if first_month > 12:
        raise given.wrong("year_begins", month, "write the number of a month, 1 to 12")
    if first_month > 1 and not is_of_months:
        raise given.wrong("year_begins", month, f"it is about months, and these are {unit}s")
    return first_month


def after_midnight(clock: str) -> timedelta:
    """How long after midnight clocks show ``clock``."""
    hours, minutes = map(int, clock.split(":"))
    return timedelta(hours=hours, minutes=minutes)


MOST_DIGITS = 15
"""Digits after the point that a number can be rounded to."""


@method_keywords
class NumberMethods:
    """Functions of a number."""

    if TYPE_CHECKING:

        def _apply(self, name: str, *constants: Scalar) -> Expr: ...

        def _beside(self, name: str, operand: Operand) -> Expr: ...

    def abs(self) -> "Expr":
        """The absolute value of this number."""
        return self._apply("abs")

    def round(self, digits: int | None = None) -> "Expr":
        """The nearest int, or the even one of two that are equally near, as Python's ``round``; NULL where 64 bits do
        not hold it. With ``digits``, from 0 to 15, a number of this type with so many after the point, half to even.

        A float is rounded as the number that it is, which is seldom the one that was written: 2.675 is a little less
        than that, and ``.round(2)`` is 2.67. Decimals are exact.
        """
        if digits is None:
            return self._apply("round")
        given = Arguments("round")
        if given.whole("digits", digits, least=0) > MOST_DIGITS:
            raise given.wrong("digits", digits, f"write at most {MOST_DIGITS}: a float has no more")
        return self._apply("round_to", digits)

    def floor(self) -> "Expr":
        """The largest int that is not above this number; NULL where 64 bits do not hold it."""
        return self._apply("floor")

    def ceil(self) -> "Expr":
        """The smallest int that is not below this number; NULL where 64 bits do not hold it."""
        return self._apply("ceil")

    def sqrt(self) -> "Expr":
        """The square root of this number, a float; NULL of a negative one."""
        return self._apply("sqrt")

    def ln(self) -> "Expr":
        """The natural logarithm of this number, a float; NULL of zero and of a negative one.

        The last bit of ``ln``, ``log10``, ``exp`` and ``power`` is that of the machine's C library.
        """
        return self._apply("ln")

    def log10(self) -> "Expr":
        """The logarithm of this number to base 10, a float; NULL of zero and of a negative one."""
        return self._apply("log10")

    def exp(self) -> "Expr":
        """e to the power of this number, a float; infinity where that is too large for one."""
        return self._apply("exp")

    def power(self, exponent: "Operand") -> "Expr":
        """This number to the power of ``exponent``, a float, also of ints; infinity where that is too large for one.

        NULL of zero to a negative power, and of a negative number to one that is not whole.
        """
        return self._beside("power", exponent)

    def bit_and(self, other: "Operand") -> "Expr":
        """The bits that both this int and ``other`` have; of 64, negative ints in two's complement."""
        return self._beside("bit_and", other)

    def bit_or(self, other: "Operand") -> "Expr":
        """The bits that this int or ``other`` has."""
        return self._beside("bit_or", other)

    def bit_xor(self, other: "Operand") -> "Expr":
        """The bits that one of this int and ``other`` has, and not both."""
        return self._beside("bit_xor", other)

    def shift_left(self, bits: int) -> "Expr":
        """The bits of this int, 0 to 62 places higher; what leaves 64 bits is lost."""
        return self._apply("shift_left", _shift(Arguments("shift_left"), bits))

    def shift_right(self, bits: int) -> "Expr":
        """The bits of this int, 0 to 62 places lower; it keeps its sign."""
        return self._apply("shift_right", _shift(Arguments("shift_right"), bits))


def _shift(given: Arguments, bits: int) -> int:
    if given.whole("bits", bits, least=0) > 62:
        raise given.wrong("bits", bits, "write at most 62: an int has 63 bits and its sign")
    return bits


@method_keywords
class TextMethods:
    """Functions of a string. Lengths and places count characters (Unicode code points), places from 0."""

    if TYPE_CHECKING:

        def _apply(self, name: str, *constants: Scalar) -> Expr: ...

    def lower(self) -> "Expr":
        """This string in lower case, as Python's ``str.lower`` has it."""
        return self._apply("lower")

    def upper(self) -> "Expr":
        """This string in upper case, as Python's ``str.upper`` has it: "ß" becomes "SS"."""
        return self._apply("upper")

    def strip(self) -> "Expr":
        """This string without the white space around it."""
        return self._apply("strip")

    def to_timestamp(self) -> "Expr":
        """The moment that this string says as sources read columns of timestamps: ISO 8601, RFC 3339, and what tools
        write for them (``2013-01-01 05:00:00,123 +0100``, ``20130101T050000Z``); NULL if it says none.

        ``cast(datetime)`` reads less: ISO 8601 with dashes and colons.
        """
        return self._apply("to_timestamp")

    def strptime(self, format: str) -> "Expr":  # noqa: A002 (the word of the domain)
        """The moment that this string says in a ``format`` such as "%d/%m/%Y %H:%M"; NULL if it says none.

        ``%Y`` has four digits; ``%m %d %H %M %S`` one or two; ``%f`` up to nine of a fraction, of which six count;
        ``%b`` is an English month (Jan) in any case; ``%z`` is Z, +0100 or +01:00. Other characters stand for
        themselves, and blanks around all of it do not matter. It is of UTC without ``%z``; ``local_to_utc`` makes that
        another zone.
        """
        given = Arguments("strptime")
        parts = _directives(given, format)
        if "%Y" not in parts or len(set(parts)) < len(parts) or {"%m", "%b"} <= set(parts):
            raise given.wrong("format", format, "name the year, %Y, and each part once")
        return self._apply("strptime", format)

    def length(self) -> "Expr":
        """How many characters this string has, or items this list."""
        return self._apply("length")

    def substring(self, start: int, length: int | None = None) -> "Expr":
        """``length`` characters from place ``start`` on, or all; fewer where the string ends before.

        Places count from 0, so ``substring(0, 2)`` is the first two characters. A negative ``start`` counts from the
        end: ``substring(-3)`` is the last three, or all if there are fewer.
        """
        return self._apply("substring", *_part(Arguments("substring"), start, length, "character"))

    def contains(self, text: "Scalar | datetime") -> "Expr":
        """Whether ``text`` is anywhere in this string; or whether an item of this list equals it, then of any type.

        Items that are NULL equal nothing.
        """
        if text is None or isinstance(text, str):
            Arguments("contains").text("text", text, "delayed")
        return self._apply("contains", text)

    def starts_with(self, text: str) -> "Expr":
        """Whether this string begins with ``text``."""
        return self._apply("starts_with", Arguments("starts_with").text("text", text, "UA"))

    def ends_with(self, text: str) -> "Expr":
        """Whether this string ends with ``text``."""
        return self._apply("ends_with", Arguments("ends_with").text("text", text, ".html"))

    def matches(self, regex: str) -> "Expr":
        r"""Whether ``regex`` matches anywhere in this string; ``^`` and ``$`` stand for its ends.

        It may have characters, ``.``, classes (``[a-z]``, ``\d \w \s`` of ASCII), groups, ``|``, ``* + ? {2,5}`` and
        ``\b``; not look-around, back-references or flags. Case counts: ``.lower().matches(...)`` ignores it.
        """
        Arguments("matches").text("regex", regex, "^[A-Z]{2}[0-9]+$")
        try:
            to_re2(regex)
        except RegexError as error:
            raise Arguments("matches").wrong("regex", regex, str(error)) from None
        return self._apply("matches", regex)

    def replace(self, old: str, new: str) -> "Expr":
        """This string with ``new`` wherever ``old`` is in it, from left to right."""
        Arguments("replace").text("old", old, "-")
        if not isinstance(new, str) or new:
            Arguments("replace").text("new", new, "-")
        return self._apply("replace", old, new)

    def regexp_extract(self, regex: str, group: int) -> "Expr":
        r"""What the ``group`` of ``regex`` matched where this string first has it: 1 is the first (...), 0 all of it.

        NULL where ``regex`` matches nowhere, "" where the group took no part. It may have what ``matches`` takes, also
        lazy repetitions (``.*?``) and groups (``(?:...)`` counts as none); what is repeated has a character at least.
        """
        given = Arguments("regexp_extract")
        captures = _captures(given, regex)
        if given.whole("group", group, least=0) > captures.groups:
            raise given.wrong("group", group, f"the pattern has {captures.groups} groups, and 0 is all that it matches")
        return self._apply("regexp_extract", regex, group)

    def regexp_replace(self, regex: str, new: str) -> "Expr":
        r"""This string with ``new`` wherever ``regex`` matches, from left to right.

        In ``new``, ``\1`` is what the first group matched, ``\0`` all of it, ``\\`` a backslash. ``regex`` as for
        ``regexp_extract``; it may not match nothing, as ``a*`` does.
        """
        given = Arguments("regexp_replace")
        captures = _captures(given, regex)
        if captures.may_be_empty:
            raise given.wrong("regex", regex, "it matches where nothing is: write a+ for a*")
        if not isinstance(new, str) or new:
            given.text("new", new, "-")
        try:
            check_replacement(new, captures.groups)
        except RegexError as error:
            raise given.wrong("new", new, str(error)) from None
        return self._apply("regexp_replace", regex, new)

    def json_field(self, path: "str | Sequence[str | int]", type: "type | DataType") -> "Expr":  # noqa: A002
        """The value at ``path`` in this string, which holds JSON: text, an int, a float or a bool, as ``type`` says.

        "user.id" is ``id`` in the object ``user``; a sequence has one name for each level, or the place of an item in a
        list, from the end if negative: ``["items", 0, "price"]``. Of members with one name the last counts. NULL where
        that leads nowhere, to a value of another type (an int is a float, too) or one that the type does not hold, and
        where the string is no JSON, or nested deeper than 500 levels.
        """
        given = Arguments("json_field")
        if (kind := data_type(given, "type", type)) not in IN_JSON:
            raise given.wrong("type", type, "write str, int, float or bool, and cast what is read")
        return self._apply(f"json_{kind.value}", *_steps(given, path))

    def split(self, separator: str) -> "Expr":
        """The parts of this string between each ``separator``, a list: of "a,,b" the parts are "a", "" and "b".

        A string without the separator is its only part. ``item``, ``slice``, ``length`` and ``contains`` read lists.
        """
        return self._apply("split", Arguments("split").text("separator", separator, ","))

    def md5(self) -> "Expr":
        """MD5 of this string in UTF-8, or of bytes, as 32 hexadecimal digits; not for secrets."""
        return self._apply("md5")

    def sha256(self) -> "Expr":
        """SHA-256 of this string in UTF-8, or of bytes, as 64 hexadecimal digits."""
        return self._apply("sha256")

    def crc32(self) -> "Expr":
        """CRC-32 of this string in UTF-8, an int from 0 to 2^32 - 1: a hash that every executor computes alike."""
        return self._apply("crc32")


def _steps(given: Arguments, path: object) -> list[str | int]:
    """The names and places that lead to a value in JSON, from the outermost."""
    steps = path.split(".") if isinstance(path, str) else path
    if not isinstance(steps, list | tuple) or not steps:
        raise given.wrong("path", path, 'write the names that lead to it, such as "user.id" or ["items", 0, "price"]')
    return [
        _place(given, "path", step, "item") if isinstance(step, int) else given.text("path", step, "user.id")
        for step in steps
    ]


def _directives(given: Arguments, text: str) -> list[str]:
    try:
        parts = format_parts(given.text("format", text, "%Y-%m-%d"))
    except ValueError as error:
        raise given.wrong("format", text, str(error)) from None
    return [part for part in parts if part in (*SHOWN, "%z")]


def _captures(given: Arguments, regex: str) -> Captures:
    given.text("regex", regex, "id=([0-9]+)")
    try:
        return to_captures(regex)
    except RegexError as error:
        raise given.wrong("regex", regex, str(error)) from None


def _place(given: Arguments, name: str, place: int, what: str) -> int:
    if isinstance(place, bool) or not isinstance(place, int) or not -(2**63) <= place < 2**63:
        raise given.wrong(name, place, f"write a whole number: 0 is the first {what}, -1 the last")
    return place


def _part(given: Arguments, start: int, length: int | None, what: str) -> "list[Scalar]":
    """Where a part begins and, unless it goes to the end, how long it is."""
    return [_place(given, "start", start, what), *([] if length is None else [given.whole("length", length, least=0)])]


@method_keywords
class ListMethods:
    """Functions of a list: of a column that holds one, or of ``split``. Places count from 0."""

    if TYPE_CHECKING:

        def _apply(self, name: str, *constants: Scalar) -> Expr: ...

    def item(self, place: int) -> "Expr":
        """The item at ``place``, from the end if that is negative (-1: the last); NULL where there is none."""
        return self._apply("item", _place(Arguments("item"), "place", place, "item"))

    def slice(self, start: int, length: int | None = None) -> "Expr":
        """The list of ``length`` items from place ``start`` on, or all, as ``substring`` takes characters."""
        return self._apply("slice", *_part(Arguments("slice"), start, length, "item"))


class TimeUnit(StrEnum):
    """What a timestamp can be truncated to. A week begins on Monday, if nothing else is said."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    QUARTER = "quarter"
    YEAR = "year"


class Twice(StrEnum):
    """Which moment a local time is that clocks show twice, or none."""

    FIRST = "first"
    SECOND = "second"
    NULL = "null"


class Skipped(StrEnum):
    """Which moment a local time is that clocks never show: as much later as it is skipped by, or none."""

    LATER = "later"
    NULL = "null"


@method_keywords
class TimeMethods:
    """Functions of a timestamp, as clocks and calendars show it in a ``zone`` such as "Europe/Berlin".

    NULL where that is not in the years 1 to 9999.
    """

    if TYPE_CHECKING:

        def _apply(self, name: str, *constants: Scalar) -> Expr: ...

    def year(self, zone: str = "UTC") -> "Expr":
        """The year."""
        return self._apply("year", Arguments("year").zone("zone", zone))

    def month(self, zone: str = "UTC") -> "Expr":
        """The month, 1 to 12."""
        return self._apply("month", Arguments("month").zone("zone", zone))

    def day(self, zone: str = "UTC") -> "Expr":
        """The day of the month, 1 to 31."""
        return self._apply("day", Arguments("day").zone("zone", zone))

    def weekday(self, zone: str = "UTC") -> "Expr":
        """The day of the week, 1 (Monday) to 7 (Sunday)."""
        return self._apply("weekday", Arguments("weekday").zone("zone", zone))

    def hour(self, zone: str = "UTC") -> "Expr":
        """The hour of the day, 0 to 23."""
        return self._apply("hour", Arguments("hour").zone("zone", zone))

    def minute(self, zone: str = "UTC") -> "Expr":
        """The minute of the hour, 0 to 59."""
        return self._apply("minute", Arguments("minute").zone("zone", zone))

    def second(self, zone: str = "UTC") -> "Expr":
        """The second of the minute, 0 to 59, without its fraction."""
        return self._apply("second", Arguments("second").zone("zone", zone))

    def strftime(self, format: str, zone: str = "UTC") -> "Expr":  # noqa: A002 (the word of the domain)
        """This time in a ``format`` such as "%Y-%m-%d %H:%M", of a date at midnight.

        ``%Y`` has four digits, ``%m %d %H %M %S`` two, ``%f`` six, ``%b`` is an English month (Jan), ``%%`` the sign.
        Nothing depends on the language of the machine.
        """
        given = Arguments("strftime")
        if "%z" in _directives(given, format):
            raise given.wrong("format", format, "%z is only read; write the zone as text")
        return self._apply("strftime", format, given.zone("zone", zone))

    def local_to_utc(
        self, zone: str, twice: Twice | str = Twice.FIRST, skipped: Skipped | str = Skipped.LATER
    ) -> "Expr":
        """The moment at which clocks in ``zone`` show this time: of a text without a zone, which is read as UTC.

        When clocks are set back they show an hour ``twice``: "first", "second", or "null" of it is meant. When they are
        set forward they skip one: 02:30 is 03:30 then ("later"), or NULL ("null"). A record whose event time is NULL is
        a dead letter.
        """
        given = Arguments("local_to_utc")
        return self._apply(
            "local_to_utc",
            given.zone("zone", zone),
            given.choice("twice", twice, Twice).value,
            given.choice("skipped", skipped, Skipped).value,
        )

    def truncate(
        self,
        unit: TimeUnit | str,
        zone: str = "UTC",
        day_begins: str = MIDNIGHT,
        week_begins: Weekday | str = Weekday.MONDAY,
        year_begins: int = 1,
    ) -> "Expr":
        """The moment when the ``unit`` began ("minute", "hour", "day", "week", "month", "quarter" or "year").

        A day that clocks begin late begins when they do, and one whose midnight they show twice at the first, as
        calendar windows do. Of an hour that clocks show twice, each is one of its own.

        Days may begin at another time of clocks (``day_begins="06:00"``), also the first day of longer units, weeks on
        another day (``week_begins="sunday"``), years in another month (``year_begins=4``), also for quarters.
        """
        given = Arguments("truncate")
        unit = given.choice("unit", unit, TimeUnit)
        zone = given.zone("zone", zone)
        clock = day_beginning(given, day_begins)
        if clock != MIDNIGHT and unit in (TimeUnit.MINUTE, TimeUnit.HOUR):
            raise given.wrong("day_begins", clock, f"it is about days, and these are {unit}s")
        of_months = unit in (TimeUnit.MONTH, TimeUnit.QUARTER, TimeUnit.YEAR)
        weekday = week_beginning(given, week_begins, unit).value
        month = year_beginning(given, year_begins, unit, is_of_months=of_months)
        beginnings = (clock, weekday, month)
        is_usual = beginnings == (MIDNIGHT, Weekday.MONDAY.value, 1)  # which is said by nothing, as ever
        return self._apply("truncate", unit.value, zone, *(() if is_usual else beginnings))


@method_keywords
class Aggregations:
    """What every expression can be asked for over the elements of a key and window."""

    def count(self) -> Aggregate:
        """How many values there are."""
        return _aggregate(self, Combiner.COUNT)

    def sum(self) -> Aggregate:
        """The sum of the values; 0 if there are none. A sum that leaves its type (64 bits, 38 digits) is an error."""
        return _aggregate(self, Combiner.SUM)

    def min(self) -> Aggregate:
        """The smallest value."""
        return _aggregate(self, Combiner.MIN)

    def max(self) -> Aggregate:
        """The largest value."""
        return _aggregate(self, Combiner.MAX)

    def mean(self) -> Aggregate:
        """The arithmetic mean, a float; of decimals a decimal, rounded half to even."""
        return _aggregate(self, Combiner.MEAN)

    def variance(self) -> Aggregate:
        """The population variance (the mean square distance from the mean), a float."""
        return _aggregate(self, Combiner.VARIANCE)

    def first(self) -> Aggregate:
        """The value of the earliest event time, in whatever order elements arrive; of several the smallest."""
        return _aggregate(self, Combiner.FIRST)

    def last(self) -> Aggregate:
        """The value of the latest event time, in whatever order elements arrive; of several the largest."""
        return _aggregate(self, Combiner.LAST)

    def max_by(self, by: "Expr") -> Aggregate:
        """The value where ``by`` is largest; of several the largest. An element that lacks either is left out."""
        return _aggregate(self, Combiner.MAX_BY, other=_operand(Arguments("max_by"), "by", by))

    def min_by(self, by: "Expr") -> Aggregate:
        """The value where ``by`` is smallest; of several the smallest. An element that lacks either is left out."""
        return _aggregate(self, Combiner.MIN_BY, other=_operand(Arguments("min_by"), "by", by))

    def list_agg(self, k: int, by: "Expr") -> Aggregate:
        """The first ``k`` values in the order of ``by``, smallest first, then of the values, as a list. An element that
        lacks either is left out.
        """
        given = Arguments("list_agg")
        return _aggregate(self, Combiner.LIST_AGG, k=given.whole("k", k, least=1), other=_operand(given, "by", by))

    def map_agg(self, value: "Expr") -> Aggregate:
        """One pair for each of these values, in their order, with ``value``; of several of one the largest."""
        return _aggregate(self, Combiner.MAP_AGG, other=_operand(Arguments("map_agg"), "value", value))

    def bool_and(self) -> Aggregate:
        """Whether all values are TRUE; NULL if there are none."""
        return _aggregate(self, Combiner.BOOL_AND)

    def bool_or(self) -> Aggregate:
        """Whether a value is TRUE; NULL if there are none."""
        return _aggregate(self, Combiner.BOOL_OR)

    def mode(self) -> Aggregate:
        """The most frequent value; of several the smallest. All different values are kept."""
        return _aggregate(self, Combiner.MODE)

    def collect(self) -> Aggregate:
        """Every value, as a sorted list: a bag, since the model promises no order (semantics 8.2)."""
        return _aggregate(self, Combiner.COLLECT)

    def top(self, k: int) -> Aggregate:
        """The ``k`` largest values as a list, largest first, equal ones as often as they came."""
        return _aggregate(self, Combiner.TOP, k=Arguments("top").whole("k", k, least=1))

    def distinct(self) -> Aggregate:
        """How many different values there are, exactly."""
        return _aggregate(self, Combiner.DISTINCT)

    def approx_distinct(self) -> Aggregate:
        """How many different values there are, to a relative error of 5 %, in bounded state."""
        return _aggregate(self, Combiner.APPROX_DISTINCT)

    def quantile(self, q: float) -> Aggregate:
        """A value at or below which a part ``q`` (0 to 1) of all values lies, to a rank error of 2 %.

        It is one of the values (nearest rank), so integers give an integer.
        """
        return _aggregate(self, Combiner.QUANTILE, q=Arguments("quantile").number("q", q, most=1))

    def pairs(self, other: "Expr", outer: Outer | str = "none") -> Aggregate:
        """Every value with every value of ``other`` of the key and window, as a sorted list of pairs: a windowed join
        (semantics 12.9).

        An element has the one or the other, and NULL does not count as a value: unite two inputs, give each a
        column of its own, and group by what they are joined on. ``outer`` ("left", "right", "both") keeps the values
        of a side whose other side is empty, paired with NULL.
        """
        given = Arguments("pairs")
        read, how = _operand(given, "other", other), given.choice("outer", outer, Outer)
        return _aggregate(self, Combiner.PAIRS, other=read, outer=how)

    def quantiles(self, qs: "Sequence[float]") -> Aggregate:
        """What ``quantile`` gives of each of ``qs``, as a list in their order; all come of one state."""
        given = Arguments("quantiles")
        if not isinstance(qs, list | tuple) or not qs:
            raise given.wrong("qs", qs, "write a list of numbers from 0 to 1, [0.5, 0.9, 0.99]")
        return _aggregate(self, Combiner.QUANTILES, qs=tuple(float(given.number("qs", q, most=1)) for q in qs))

    def combine(self, combiner: CustomCombiner) -> Aggregate:
        """``combiner``, an object of your own class, over every value."""
        given = Arguments("combine")
        write = "an object of your own: subclass CustomCombiner as a frozen dataclass"
        custom = given.instance("combiner", combiner, CustomCombiner, write)  # type: ignore[type-abstract]
        return _aggregate(self, Combiner.CUSTOM, custom=custom)


def _operand(given: Arguments, name: str, value: "Expr") -> "Expr":
    if isinstance(value, Aggregations):
        return value
    raise given.wrong(name, value, f"not an expression; write {as_expression(value)}")


def _aggregate(value: Aggregations, combiner: Combiner, **options: Any) -> Aggregate:
    return Aggregate(combiner, cast("Expr", value), **options)
