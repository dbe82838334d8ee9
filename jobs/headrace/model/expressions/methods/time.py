"""What every expression can be asked for that is a timestamp."""

from enum import StrEnum
from typing import TYPE_CHECKING

from headrace.model.arguments import Arguments
from headrace.model.beginnings import MIDNIGHT, Weekday, day_beginning, week_beginning, year_beginning
from headrace.model.suggestions import method_keywords

if TYPE_CHECKING:
    from headrace.model.expressions.data_types import Scalar
    from headrace.model.expressions.expr import Expr


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
