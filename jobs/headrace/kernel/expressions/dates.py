"""Dates of the kernel: days since 1970, of the years 1 to 9999."""

from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernel.types import DATE, TIMESTAMP

_LONG = pa.int64()
_FIRST, _LAST = (day.toordinal() - date(1970, 1, 1).toordinal() for day in (date.min, date.max))
_FURTHEST = 4_000_000
"""More days than there are between any two dates."""


def days_of(dates: Any) -> Any:
    """The days of a column (or scalar) of dates since 1970."""
    return dates.cast(pa.int32()).cast(_LONG)


def is_date(days: Any) -> Any:
    """Which days since 1970 are dates."""
    return pc.and_(pc.greater_equal(days, _FIRST), pc.less_equal(days, _LAST))


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
    near = pc.max_element_wise(pc.min_element_wise(days, _FURTHEST, skip_nulls=False), -_FURTHEST, skip_nulls=False)
    moved = pc.add(days_of(dates), near)
    if pc.all(is_date(moved)).as_py() is False:
        raise OverflowError
    return to_dates(moved)
