"""Days, weeks and months of local time over columns: the calendar is asked once for each day that rows are on."""

from datetime import date
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.kernel.grouping import Ints
from headrace.model.calendar import CalendarWindows, number_of, start_of
from headrace.model.time import GLOBAL_WINDOW_END

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
