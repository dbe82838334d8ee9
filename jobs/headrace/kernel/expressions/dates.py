"""Dates of the kernel, and the calendar over columns.

Dates of the kernel: days since 1970, of the years 1 to 9999.

Days, weeks and months of local time over columns: the calendar is asked once for each day that rows are on.
"""

from datetime import date
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.kernel.grouping import Ints
from headrace.kernel.types import DATE, TIMESTAMP
from headrace.model.calendar import CalendarWindows, number_of, start_of
from headrace.model.time import GLOBAL_WINDOW_END

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


_DAY = 86_400_000_000
_EPOCH = date(1970, 1, 1).toordinal()
_known_start = lru_cache(maxsize=1 << 16)(start_of)


def calendar_windows(where: CalendarWindows, at: Ints) -> tuple[Ints, Ints]:
    """Start and end of the window of each instant; the last one that begins within the calendar ends with time, and has
    what is dated beyond it, too. Raises ValueError for an instant before the year 1.
    """
    bounds = np.append(_bounds(where, pc.unique(pa.array(at // _DAY)).to_pylist()), int(GLOBAL_WINDOW_END))
    place = np.minimum(np.searchsorted(bounds, at, side="right"), len(bounds) - 1)
    if len(at) and place.min() == 0:
        raise ValueError("an instant before the year 1 is in no calendar window")
    return bounds[place - 1], bounds[place]


def begun(where: CalendarWindows, at: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    """When the window of each instant began, and whether the calendar knows that."""
    bounds = _bounds(where, pc.unique(pa.array(at // _DAY)).to_pylist())
    place = np.searchsorted(bounds, at, side="right")
    return np.append(bounds, 0)[place - 1], place > 0


def _bounds(where: CalendarWindows, days: list[int]) -> Ints:
    """Where windows begin around these ``days`` in UTC: clocks show the day before, the same or the next, and may show
    the end of a window again when the next one has begun. Where days begin after midnight it may be one before these.
    """
    numbers: set[int] = set()
    earliest = -2 if where.day_shift else -1
    for day in days:
        near = [number_of(where, date.fromordinal(_clamped(_clamped(day + _EPOCH) + shift))) for shift in (earliest, 1)]
        numbers.update(range(near[0], near[1] + 3))
    return np.array(sorted({start for number in numbers for start in _starts(where, number)}), np.int64)


def _clamped(ordinal: int) -> int:
    return min(max(ordinal, date.min.toordinal()), date.max.toordinal())


def _starts(where: CalendarWindows, number: int) -> list[int]:
    try:
        return [_known_start(where, number)]
    except (ValueError, OverflowError):  # beyond the calendar
        return []
