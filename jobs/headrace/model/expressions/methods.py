"""What every expression can be asked for: methods of numbers, of text, of time, and aggregates.

Aggregates are methods too: ``col("delay").max()`` (semantics, section 8). NULL values are left out, as in SQL. Days,
weeks and years may begin elsewhere than in the calendar: windows and truncated times have the same options.
"""

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from headrace.model.arguments import (
    MIDNIGHT,
    Arguments,
    Weekday,
    as_expression,
    day_beginning,
    method_keywords,
    week_beginning,
    year_beginning,
)
from headrace.model.combiners import Combiner, CustomCombiner, Outer
from headrace.model.expressions.data_types import IN_JSON, data_type
from headrace.model.expressions.regex import Captures, RegexError, check_replacement, to_captures, to_re2
from headrace.model.time import SHOWN_DIRECTIVES, format_parts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from headrace.model.expressions.data_types import DataType, Scalar


Expr = TypeVar("Expr")
Aggregate = TypeVar("Aggregate")
"""What the methods give: the classes of these names, of which ``Expr`` inherits them (``model.expressions.expr``)."""

MOST_DIGITS = 15
"""Digits after the point that a number can be rounded to."""


class ExpressionMethods(Generic[Expr]):
    """What the methods of all expressions are written with."""

    if TYPE_CHECKING:

        def _apply_function(self, name: str, *constants: Scalar) -> Expr: ...

        def _apply_binary(self, name: str, operand: Expr | Scalar | datetime) -> Expr: ...


@method_keywords
class NumberMethods(ExpressionMethods[Expr]):
    """Functions of a number."""

    def abs(self) -> "Expr":
        """The absolute value of this number. ``col("n").abs()`` of ``-3`` is ``3``."""
        return self._apply_function("abs")

    def round(self, digits: int | None = None) -> "Expr":
        """The nearest int, or the even one of two that are equally near, as Python's ``round``; NULL where 64 bits do
        not hold it. With ``digits``, from 0 to 15, a number of this type with so many after the point, half to even.

        A float is rounded as the number that it is, which is seldom the one that was written. So 2.675 is a little less
        than that, and ``.round(2)`` is 2.67. Decimals are exact.
        ``col("x").round(1)`` of ``2.25`` is ``2.2``.
        """
        if digits is None:
            return self._apply_function("round")
        arguments = Arguments("round")
        if arguments.whole_number("digits", digits, least=0) > MOST_DIGITS:
            raise arguments.refusal("digits", digits, f"write at most {MOST_DIGITS}: a float has no more")
        return self._apply_function("round_to", digits)

    def floor(self) -> "Expr":
        """The largest int that is not above this number; NULL where 64 bits do not hold it.
        ``col("x").floor()`` of ``-1.5`` is ``-2``.
        """
        return self._apply_function("floor")

    def ceil(self) -> "Expr":
        """The smallest int that is not below this number; NULL where 64 bits do not hold it.
        ``col("x").ceil()`` of ``-1.5`` is ``-1``.
        """
        return self._apply_function("ceil")

    def sqrt(self) -> "Expr":
        """The square root of this number, a float; NULL of a negative one. ``col("n").sqrt()`` of ``9`` is ``3.0``."""
        return self._apply_function("sqrt")

    def ln(self) -> "Expr":
        """The natural logarithm of this number, a float; NULL of zero and of a negative one.

        The last bit of ``ln``, ``log10``, ``log``, ``exp`` and ``power`` is that of the machine's C library.
        ``col("x").ln()`` of ``1.0`` is ``0.0``.
        """
        return self._apply_function("ln")

    def log10(self) -> "Expr":
        """The logarithm of this number to base 10, a float; NULL of zero and of a negative one.
        ``col("n").log10()`` of ``1000`` is ``3.0``.
        """
        return self._apply_function("log10")

    def log(self, base: "Expr | Scalar | datetime") -> "Expr":
        """The logarithm of this number to ``base``, a float; NULL of zero and of a negative one, and to such a base, or
        to 1.
        ``col("n").log(2)`` of ``8`` is ``3.0``.
        """
        return self._apply_binary("log", base)

    def exp(self) -> "Expr":
        """e to the power of this number, a float; infinity where that is too large for one.
        ``col("n").exp()`` of ``0`` is ``1.0``.
        """
        return self._apply_function("exp")

    def power(self, exponent: "Expr | Scalar | datetime") -> "Expr":
        """This number to the power of ``exponent``, a float, also of ints; infinity where that is too large for one.

        NULL of zero to a negative power, and of a negative number to one that is not whole.
        ``col("n").power(3)`` of ``2`` is ``8.0``.
        """
        return self._apply_binary("power", exponent)

    def bit_and(self, other: "Expr | Scalar | datetime") -> "Expr":
        """The bits that both this int and ``other`` have; there are 64 bits, negative ints in two's complement.
        ``col("n").bit_and(6)`` of ``12`` is ``4``.
        """
        return self._apply_binary("bit_and", other)

    def bit_or(self, other: "Expr | Scalar | datetime") -> "Expr":
        """The bits that this int or ``other`` has. ``col("n").bit_or(6)`` of ``12`` is ``14``."""
        return self._apply_binary("bit_or", other)

    def bit_xor(self, other: "Expr | Scalar | datetime") -> "Expr":
        """The bits that one of this int and ``other`` has, and not both.
        ``col("n").bit_xor(6)`` of ``12`` is ``10``.
        """
        return self._apply_binary("bit_xor", other)

    def shift_left(self, bits: int) -> "Expr":
        """The bits of this int, 0 to 62 places higher; what leaves 64 bits is lost.
        ``col("n").shift_left(2)`` of ``3`` is ``12``.
        """
        return self._apply_function("shift_left", _checked_shift(Arguments("shift_left"), bits))

    def shift_right(self, bits: int) -> "Expr":
        """The bits of this int, 0 to 62 places lower; it keeps its sign.
        ``col("n").shift_right(1)`` of ``-3`` is ``-2``.
        """
        return self._apply_function("shift_right", _checked_shift(Arguments("shift_right"), bits))


def _checked_shift(arguments: Arguments, bits: int) -> int:
    if arguments.whole_number("bits", bits, least=0) > 62:
        raise arguments.refusal("bits", bits, "write at most 62: an int has 63 bits and its sign")
    return bits


@method_keywords
class TextMethods(ExpressionMethods[Expr]):
    """Functions of a string. Lengths and places count characters (Unicode code points), places from 0."""

    def lower(self) -> "Expr":
        """This string in lower case, as Python's ``str.lower`` has it.
        ``col("text").lower()`` of ``"JFK"`` is ``"jfk"``.
        """
        return self._apply_function("lower")

    def upper(self) -> "Expr":
        """This string in upper case, as Python's ``str.upper`` has it: "ß" becomes "SS".
        ``col("text").upper()`` of ``"jfk"`` is ``"JFK"``.
        """
        return self._apply_function("upper")

    def strip(self) -> "Expr":
        """This string without the white space around it. ``col("text").strip()`` of ``" a b "`` is ``"a b"``."""
        return self._apply_function("strip")

    def to_timestamp(self) -> "Expr":
        """The moment that this string says as sources read columns of timestamps: ISO 8601, RFC 3339, and what tools
        write for them (``2013-01-01 05:00:00,123 +0100``, ``20130101T050000Z``); NULL if it says none.

        ``cast(datetime)`` reads less: ISO 8601 with dashes and colons.
        ``col("text").to_timestamp()`` of ``"20260301T103000Z"`` is ``"2026-03-01T10:30:00Z"``.
        """
        return self._apply_function("to_timestamp")

    def strptime(self, format: str) -> "Expr":  # noqa: A002 (the word of the domain)
        """The moment that this string says in a ``format`` such as "%d/%m/%Y %H:%M"; NULL if it says none.

        ``%Y`` has four digits, ``%y`` two, of 1969 to 2068; ``%m %d %H %M %S`` one or two; ``%j`` is the day of the
        year in place of both; ``%I`` with ``%p``, AM or PM, is the hour of a clock of twelve; ``%f`` up to nine of a
        fraction, of which six count; ``%b`` is an English month (Jan) in any case; ``%z`` is Z, +0100 or +01:00. Other
        characters stand for themselves, and blanks around all of it do not matter. It is of UTC without ``%z``;
        ``local_to_utc`` makes that another zone.
        ``col("text").strptime("%d/%m/%Y")`` of ``"01/03/2026"`` is ``"2026-03-01T00:00:00Z"``.
        """
        arguments = Arguments("strptime")
        parts = _format_directives(arguments, format)
        several = [both for both in _EXCLUSIVE_DIRECTIVES if len(both & {*parts}) > 1]
        if not {"%Y", "%y"} & {*parts} or len({*parts}) < len(parts) or several:
            raise arguments.refusal("format", format, "name the year, %Y or %y, and each part once")
        if ("%I" in parts) != ("%p" in parts):
            raise arguments.refusal("format", format, "the hour of a clock of twelve is %I with %p, AM or PM")
        return self._apply_function("strptime", format)

    def length(self) -> "Expr":
        """How many characters this string has, items this list, or keys this map.
        ``col("text").length()`` of ``"Oslo"`` is ``4``.
        """
        return self._apply_function("length")

    def substring(self, start: int, length: int | None = None) -> "Expr":
        """``length`` characters from place ``start`` on, or all; fewer where the string ends before.

        Places count from 0, so ``substring(0, 2)`` is the first two characters. A negative ``start`` counts from the
        end: ``substring(-3)`` is the last three, or all if there are fewer.
        ``col("text").substring(0, 2)`` of ``"Oslo"`` is ``"Os"``.
        """
        return self._apply_function("substring", *part_bounds(Arguments("substring"), start, length, "character"))

    def contains(self, text: "Scalar | datetime") -> "Expr":
        """Whether ``text`` is anywhere in this string, an item of this list, then of any type, or a key of this map.

        Items that are NULL equal nothing.
        ``col("text").contains("sl")`` of ``"Oslo"`` is ``True``.
        """
        if text is None or isinstance(text, str):
            Arguments("contains").text("text", text, "delayed")
        return self._apply_function("contains", text)

    def starts_with(self, text: str) -> "Expr":
        """Whether this string begins with ``text``. ``col("text").starts_with("Os")`` of ``"Oslo"`` is ``True``."""
        return self._apply_function("starts_with", Arguments("starts_with").text("text", text, "UA"))

    def ends_with(self, text: str) -> "Expr":
        """Whether this string ends with ``text``. ``col("text").ends_with("lo")`` of ``"Oslo"`` is ``True``."""
        return self._apply_function("ends_with", Arguments("ends_with").text("text", text, ".html"))

    def matches(self, regex: str) -> "Expr":
        r"""Whether ``regex`` matches anywhere in this string; ``^`` and ``$`` stand for its ends.

        It may have characters, ``.``, classes (``[a-z]``, ``\d \w \s`` of ASCII), groups, ``|``, ``* + ? {2,5}`` and
        ``\b``; not look-around, back-references or flags. Case counts: ``.lower().matches(...)`` ignores it.
        ``col("text").matches("^[A-Z]{3}$")`` of ``"JFK"`` is ``True``.
        """
        Arguments("matches").text("regex", regex, "^[A-Z]{2}[0-9]+$")
        try:
            to_re2(regex)
        except RegexError as error:
            raise Arguments("matches").refusal("regex", regex, str(error)) from None
        return self._apply_function("matches", regex)

    def replace(self, old: str, new: str) -> "Expr":
        """This string with ``new`` wherever ``old`` is in it, from left to right.
        ``col("text").replace("-", "")`` of ``"a-b-c"`` is ``"abc"``.
        """
        Arguments("replace").text("old", old, "-")
        if not isinstance(new, str) or new:
            Arguments("replace").text("new", new, "-")
        return self._apply_function("replace", old, new)

    def regexp_extract(self, regex: str, group: int) -> "Expr":
        r"""What the ``group`` of ``regex`` matched where this string first has it: 1 is the first (...), 0 all of it.

        NULL where ``regex`` matches nowhere, "" where the group took no part. It may have what ``matches`` takes, also
        lazy repetitions (``.*?``) and groups (``(?:...)`` counts as none); what is repeated has a character at least.
        ``col("text").regexp_extract("id=([0-9]+)", 1)`` of ``"id=42"`` is ``"42"``.
        """
        arguments = Arguments("regexp_extract")
        captures = _regex_captures(arguments, regex)
        if arguments.whole_number("group", group, least=0) > captures.groups:
            raise arguments.refusal(
                "group", group, f"the pattern has {captures.groups} groups, and 0 is all that it matches"
            )
        return self._apply_function("regexp_extract", regex, group)

    def regexp_replace(self, regex: str, new: str) -> "Expr":
        r"""This string with ``new`` wherever ``regex`` matches, from left to right.

        In ``new``, ``\1`` is what the first group matched, ``\0`` all of it, ``\\`` a backslash. ``regex`` as for
        ``regexp_extract``; it may not match nothing, as ``a*`` does.
        ``col("text").regexp_replace("[0-9]+", "#")`` of ``"a1b22"`` is ``"a#b#"``.
        """
        arguments = Arguments("regexp_replace")
        captures = _regex_captures(arguments, regex)
        if captures.may_be_empty:
            raise arguments.refusal("regex", regex, "it matches where nothing is: write a+ for a*")
        if not isinstance(new, str) or new:
            arguments.text("new", new, "-")
        try:
            check_replacement(new, captures.groups)
        except RegexError as error:
            raise arguments.refusal("new", new, str(error)) from None
        return self._apply_function("regexp_replace", regex, new)

    def json_field(self, path: "str | Sequence[str | int]", type: "type | DataType") -> "Expr":  # noqa: A002
        """The value at ``path`` in this string, which holds JSON: text, an int, a float or a bool, as ``type`` says.

        "user.id" is ``id`` in the object ``user``; a sequence has one name for each level, or the place of an item in a
        list, from the end if negative: ``["items", 0, "price"]``. The last one counts among members with one name. It
        is NULL where the path leads nowhere, to another type (an int is a float, too), or to a value beyond the type.
        It is also NULL where the string is no JSON, or nested deeper than 500 levels.
        ``col("text").json_field("user.id", int)`` of ``'{"user": {"id": 7}}'`` is ``7``.
        """
        arguments = Arguments("json_field")
        if (kind := data_type(arguments, "type", type)) not in IN_JSON:
            raise arguments.refusal("type", type, "write str, int, float or bool, and cast what is read")
        return self._apply_function(f"json_{kind.value}", *_json_steps(arguments, path))

    def split(self, separator: str) -> "Expr":
        """The parts of this string between each ``separator``, a list: of "a,,b" the parts are "a", "" and "b".

        A string without the separator is its only part. ``item``, ``slice``, ``length`` and ``contains`` read lists.
        ``col("text").split(",")`` of ``"a,,b"`` is ``["a", "", "b"]``.
        """
        return self._apply_function("split", Arguments("split").text("separator", separator, ","))

    def md5(self) -> "Expr":
        """MD5 of this string in UTF-8, or of bytes, as 32 hexadecimal digits; not for secrets.
        ``col("text").md5().substring(0, 4)`` of ``"a"`` is ``"0cc1"``.
        """
        return self._apply_function("md5")

    def sha256(self) -> "Expr":
        """SHA-256 of this string in UTF-8, or of bytes, as 64 hexadecimal digits.
        ``col("text").sha256().substring(0, 4)`` of ``"a"`` is ``"ca97"``.
        """
        return self._apply_function("sha256")

    def crc32(self) -> "Expr":
        """CRC-32 of this string in UTF-8, an int from 0 to 2^32 - 1: a hash that every executor computes alike.
        ``col("text").crc32()`` of ``"a"`` is ``3904355907``.
        """
        return self._apply_function("crc32")


def _json_steps(arguments: Arguments, path: object) -> list[str | int]:
    """The names and places that lead to a value in JSON, from the outermost."""
    steps = path.split(".") if isinstance(path, str) else path
    if not isinstance(steps, list | tuple) or not steps:
        raise arguments.refusal(
            "path", path, 'write the names that lead to it, such as "user.id" or ["items", 0, "price"]'
        )
    return [
        checked_place(arguments, "path", step, "item")
        if isinstance(step, int)
        else arguments.text("path", step, "user.id")
        for step in steps
    ]


def _format_directives(arguments: Arguments, text: str) -> list[str]:
    try:
        parts = format_parts(arguments.text("format", text, "%Y-%m-%d"))
    except ValueError as error:
        raise arguments.refusal("format", text, str(error)) from None
    return [part for part in parts if part in (*SHOWN_DIRECTIVES, "%z")]


_EXCLUSIVE_DIRECTIVES = ({"%Y", "%y"}, {"%m", "%b", "%j"}, {"%d", "%j"}, {"%H", "%I"})
"""Directives of which a time that is read has one at most."""


def _regex_captures(arguments: Arguments, regex: str) -> Captures:
    arguments.text("regex", regex, "id=([0-9]+)")
    try:
        return to_captures(regex)
    except RegexError as error:
        raise arguments.refusal("regex", regex, str(error)) from None


def checked_place(arguments: Arguments, name: str, place: object, what: str) -> int:
    """A ``place``, from the end if it is negative, that 64 bits hold. Raises the error of ``arguments``."""
    if isinstance(place, bool) or not isinstance(place, int) or not -(2**63) <= place < 2**63:
        raise arguments.refusal(name, place, f"write a whole number: 0 is the first {what}, -1 the last")
    return place


def part_bounds(arguments: Arguments, start: int, length: int | None, what: str) -> "list[Scalar]":
    """Where a part begins and, unless it goes to the end, how long it is."""
    return [
        checked_place(arguments, "start", start, what),
        *([] if length is None else [arguments.whole_number("length", length, least=0)]),
    ]


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
class TimeMethods(ExpressionMethods[Expr]):
    """Functions of a timestamp, as clocks and calendars show it in a ``zone`` such as "Europe/Berlin".

    NULL where that is not in the years 1 to 9999.
    """

    def year(self, zone: str = "UTC") -> "Expr":
        """The year. ``col("at").year()`` of ``"2026-03-01T10:30:00Z"`` is ``2026``."""
        return self._apply_function("year", Arguments("year").time_zone("zone", zone))

    def month(self, zone: str = "UTC") -> "Expr":
        """The month, 1 to 12. ``col("at").month()`` of ``"2026-03-01T10:30:00Z"`` is ``3``."""
        return self._apply_function("month", Arguments("month").time_zone("zone", zone))

    def day(self, zone: str = "UTC") -> "Expr":
        """The day of the month, 1 to 31. ``col("at").day()`` of ``"2026-03-01T10:30:00Z"`` is ``1``."""
        return self._apply_function("day", Arguments("day").time_zone("zone", zone))

    def weekday(self, zone: str = "UTC") -> "Expr":
        """The day of the week, 1 (Monday) to 7 (Sunday).
        ``col("at").weekday()`` of ``"2026-03-01T10:30:00Z"`` is ``7``.
        """
        return self._apply_function("weekday", Arguments("weekday").time_zone("zone", zone))

    def hour(self, zone: str = "UTC") -> "Expr":
        """The hour of the day, 0 to 23. ``col("at").hour("Asia/Tokyo")`` of ``"2026-03-01T10:30:00Z"`` is ``19``."""
        return self._apply_function("hour", Arguments("hour").time_zone("zone", zone))

    def minute(self, zone: str = "UTC") -> "Expr":
        """The minute of the hour, 0 to 59. ``col("at").minute()`` of ``"2026-03-01T10:30:00Z"`` is ``30``."""
        return self._apply_function("minute", Arguments("minute").time_zone("zone", zone))

    def second(self, zone: str = "UTC") -> "Expr":
        """The second of the minute, 0 to 59, without its fraction.
        ``col("at").second()`` of ``"2026-03-01T10:30:05.7Z"`` is ``5``.
        """
        return self._apply_function("second", Arguments("second").time_zone("zone", zone))

    def strftime(self, format: str, zone: str = "UTC") -> "Expr":  # noqa: A002 (the word of the domain)
        """This time in a ``format`` such as "%Y-%m-%d %H:%M", of a date at midnight.

        ``%Y`` has four digits, ``%y %m %d %H %M %S`` two, ``%j`` three, the day of the year, ``%f`` six; ``%I`` is the
        hour of a clock of twelve, ``%p`` AM or PM, ``%b`` an English month (Jan), ``%%`` the sign.
        Nothing depends on the language of the machine.
        ``col("at").strftime("%d %b %Y")`` of ``"2026-03-01T10:30:00Z"`` is ``"01 Mar 2026"``.
        """
        arguments = Arguments("strftime")
        if "%z" in _format_directives(arguments, format):
            raise arguments.refusal("format", format, "%z is only read; write the zone as text")
        return self._apply_function("strftime", format, arguments.time_zone("zone", zone))

    def local_to_utc(
        self, zone: str, twice: Twice | str = Twice.FIRST, skipped: Skipped | str = Skipped.LATER
    ) -> "Expr":
        """The moment at which clocks in ``zone`` show this time: of a text without a zone, which is read as UTC.

        When clocks are set back they show an hour ``twice``: "first", "second", or "null" of it is meant. When they are
        set forward they skip one: 02:30 is 03:30 then ("later"), or NULL ("null"). A record whose event time is NULL is
        a dead letter.
        ``col("at").local_to_utc("Asia/Tokyo")`` of ``"2026-03-01T10:30:00Z"`` is ``"2026-03-01T01:30:00Z"``.
        """
        arguments = Arguments("local_to_utc")
        return self._apply_function(
            "local_to_utc",
            arguments.time_zone("zone", zone),
            arguments.choice("twice", twice, Twice).value,
            arguments.choice("skipped", skipped, Skipped).value,
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
        calendar windows do. Each of two hours that clocks show alike is one of its own.

        Days may begin at another time of clocks (``day_begins="06:00"``), also the first day of longer units. Weeks may
        begin on another day (``week_begins="sunday"``), years in another month (``year_begins=4``), also for quarters.
        ``col("at").truncate("month")`` of ``"2026-03-09T10:30:00Z"`` is ``"2026-03-01T00:00:00Z"``.
        """
        arguments = Arguments("truncate")
        unit = arguments.choice("unit", unit, TimeUnit)
        zone = arguments.time_zone("zone", zone)
        clock = day_beginning(arguments, day_begins)
        if clock != MIDNIGHT and unit in (TimeUnit.MINUTE, TimeUnit.HOUR):
            raise arguments.refusal("day_begins", clock, f"it is about days, and these are {unit}s")
        of_months = unit in (TimeUnit.MONTH, TimeUnit.QUARTER, TimeUnit.YEAR)
        weekday = week_beginning(arguments, week_begins, unit).value
        month = year_beginning(arguments, year_begins, unit, is_of_months=of_months)
        beginnings = (clock, weekday, month)
        is_usual = beginnings == (MIDNIGHT, Weekday.MONDAY.value, 1)  # which is said by nothing, as ever
        return self._apply_function("truncate", unit.value, zone, *(() if is_usual else beginnings))


@method_keywords
class Aggregations(Generic[Expr, Aggregate]):
    """What every expression can be asked for over the elements of a key and window."""

    if TYPE_CHECKING:

        def _make_aggregate(self, combiner: Combiner, **options: Any) -> Aggregate: ...

    def count(self) -> Aggregate:
        """How many values there are. ``col("n").count()`` of ``5, None, 5`` is ``2``."""
        return self._make_aggregate(Combiner.COUNT)

    def sum(self) -> Aggregate:
        """The sum of the values; 0 if there are none. A sum that leaves its type (64 bits, 38 digits) is an error.
        ``col("n").sum()`` of ``5, None, 2`` is ``7``.
        """
        return self._make_aggregate(Combiner.SUM)

    def min(self) -> Aggregate:
        """The smallest value. ``col("n").min()`` of ``5, None, 2`` is ``2``."""
        return self._make_aggregate(Combiner.MIN)

    def max(self) -> Aggregate:
        """The largest value. ``col("n").max()`` of ``5, None, 2`` is ``5``."""
        return self._make_aggregate(Combiner.MAX)

    def mean(self) -> Aggregate:
        """The arithmetic mean, a float; the mean of decimals is a decimal, rounded half to even.
        ``col("n").mean()`` of ``5, None, 2`` is ``3.5``.
        """
        return self._make_aggregate(Combiner.MEAN)

    def variance(self) -> Aggregate:
        """The population variance (the mean square distance from the mean), a float.
        ``col("n").variance()`` of ``1, 3`` is ``1.0``.
        """
        return self._make_aggregate(Combiner.VARIANCE)

    def first(self) -> Aggregate:
        """The value of the earliest event time, in whatever order elements arrive; the smallest of several.
        ``col("n").first()`` of ``at="2026-03-01T10:00:00Z", n=5; at="2026-03-01T09:00:00Z", n=2`` is ``2``.
        """
        return self._make_aggregate(Combiner.FIRST)

    def last(self) -> Aggregate:
        """The value of the latest event time, in whatever order elements arrive; the largest of several.
        ``col("n").last()`` of ``at="2026-03-01T10:00:00Z", n=5; at="2026-03-01T09:00:00Z", n=2`` is ``5``.
        """
        return self._make_aggregate(Combiner.LAST)

    def max_by(self, by: "Expr") -> Aggregate:
        """The value where ``by`` is largest; the largest of several. An element that lacks either is left out.
        ``col("text").max_by(col("n"))`` of ``text="a", n=5; text="b", n=2`` is ``"a"``.
        """
        return self._make_aggregate(Combiner.MAX_BY, other=_checked_operand(Arguments("max_by"), "by", by))

    def min_by(self, by: "Expr") -> Aggregate:
        """The value where ``by`` is smallest; the smallest of several. An element that lacks either is left out.
        ``col("text").min_by(col("n"))`` of ``text="a", n=5; text="b", n=2`` is ``"b"``.
        """
        return self._make_aggregate(Combiner.MIN_BY, other=_checked_operand(Arguments("min_by"), "by", by))

    def list_agg(self, k: int, by: "Expr") -> Aggregate:
        """The first ``k`` values in the order of ``by``, smallest first, then of the values, as a list. An element that
        lacks either is left out.
        ``col("text").list_agg(1, col("n"))`` of ``text="a", n=5; text="b", n=2`` is ``["b"]``.
        """
        arguments = Arguments("list_agg")
        return self._make_aggregate(
            Combiner.LIST_AGG, k=arguments.whole_number("k", k, least=1), other=_checked_operand(arguments, "by", by)
        )

    def map_agg(self, value: "Expr") -> Aggregate:
        """One pair for each of these values, in their order, with ``value``; the largest one where a value has several.
        ``col("text").map_agg(col("n"))`` of ``text="b", n=5; text="a", n=2`` is ``[("a", 2), ("b", 5)]``.
        """
        return self._make_aggregate(Combiner.MAP_AGG, other=_checked_operand(Arguments("map_agg"), "value", value))

    def bool_and(self) -> Aggregate:
        """Whether all values are TRUE; NULL if there are none.
        ``col("flag").bool_and()`` of ``True, False`` is ``False``.
        """
        return self._make_aggregate(Combiner.BOOL_AND)

    def bool_or(self) -> Aggregate:
        """Whether a value is TRUE; NULL if there are none. ``col("flag").bool_or()`` of ``True, False`` is ``True``."""
        return self._make_aggregate(Combiner.BOOL_OR)

    def mode(self) -> Aggregate:
        """The most frequent value; the smallest of several. All different values are kept.
        ``col("n").mode()`` of ``5, 2, 5`` is ``5``.
        """
        return self._make_aggregate(Combiner.MODE)

    def collect(self) -> Aggregate:
        """Every value, as a sorted list: a bag, since the model promises no order (semantics 8.2).
        ``col("n").collect()`` of ``5, 2, 5`` is ``[2, 5, 5]``.
        """
        return self._make_aggregate(Combiner.COLLECT)

    def top(self, k: int) -> Aggregate:
        """The ``k`` largest values as a list, largest first, equal ones as often as they came.
        ``col("n").top(2)`` of ``5, 2, 5`` is ``[5, 5]``.
        """
        return self._make_aggregate(Combiner.TOP, k=Arguments("top").whole_number("k", k, least=1))

    def distinct(self) -> Aggregate:
        """How many different values there are, exactly. ``col("n").distinct()`` of ``5, 2, 5`` is ``2``."""
        return self._make_aggregate(Combiner.DISTINCT)

    def approx_distinct(self) -> Aggregate:
        """How many different values there are, to a relative error of 5 %, in bounded state.
        ``col("n").approx_distinct()`` of ``5, 2, 5`` is ``2``.
        """
        return self._make_aggregate(Combiner.APPROX_DISTINCT)

    def distinct_sketch(self) -> Aggregate:
        """What ``approx_distinct`` counts by, as bytes: ``hr.merge_distinct_sketches`` says how many values differ that
        several of them saw together, of other keys and windows.
        """
        return self._make_aggregate(Combiner.DISTINCT_SKETCH)

    def quantile_sketch(self) -> Aggregate:
        """What ``quantile`` looks into, as bytes: ``hr.merge_quantile_sketches`` gives quantiles of the numbers that
        several of them saw together, of other keys and windows.
        """
        return self._make_aggregate(Combiner.QUANTILE_SKETCH)

    def quantile(self, q: float) -> Aggregate:
        """A value at or below which a part ``q`` (0 to 1) of all values lies, to a rank error of 2 %.

        It is one of the values (nearest rank), so integers give an integer.
        ``col("n").quantile(0.5)`` of ``1, 2, 9`` is ``2``.
        """
        return self._make_aggregate(Combiner.QUANTILE, q=Arguments("quantile").number("q", q, most=1))

    def pairs(self, other: "Expr", outer: Outer | str = "none") -> Aggregate:
        """Every value with every value of ``other`` of the key and window, as a sorted list of pairs: a windowed join
        (semantics 12.9).

        An element has the one or the other, and NULL does not count as a value. Unite two inputs, give each a column of
        its own, and group by what they are joined on. ``outer`` ("left", "right", "both") keeps the values of a side
        whose other side is empty, paired with NULL.
        ``col("n").pairs(col("text"))`` of ``n=5; text="a"; text="b"`` is ``[(5, "a"), (5, "b")]``.
        """
        arguments = Arguments("pairs")
        read, how = _checked_operand(arguments, "other", other), arguments.choice("outer", outer, Outer)
        return self._make_aggregate(Combiner.PAIRS, other=read, outer=how)

    def quantiles(self, qs: "Sequence[float]") -> Aggregate:
        """What ``quantile`` gives of each of ``qs``, as a list in their order; all come of one state.
        ``col("n").quantiles([0.5, 1.0])`` of ``1, 2, 9`` is ``[2, 9]``.
        """
        arguments = Arguments("quantiles")
        if not isinstance(qs, list | tuple) or not qs:
            raise arguments.refusal("qs", qs, "write a list of numbers from 0 to 1, [0.5, 0.9, 0.99]")
        return self._make_aggregate(Combiner.QUANTILES, qs=tuple(float(arguments.number("qs", q, most=1)) for q in qs))

    def combine(self, combiner: CustomCombiner) -> Aggregate:
        """``combiner``, an object of your own class, over every value."""
        arguments = Arguments("combine")
        write = "an object of your own: subclass CustomCombiner as a frozen dataclass"
        custom = arguments.instance("combiner", combiner, CustomCombiner, write)  # type: ignore[type-abstract]
        return self._make_aggregate(Combiner.CUSTOM, custom=custom)


def _checked_operand(arguments: Arguments, name: str, value: "Expr") -> "Expr":
    if isinstance(value, Aggregations):
        return value
    raise arguments.refusal(name, value, f"not an expression; write {as_expression(value)}")
