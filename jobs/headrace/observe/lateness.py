"""Quantiles of lateness: what a bound of out-of-orderness and an allowed lateness would have had to be."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import accumulate

from headrace.model.time import Duration, Instant, is_finite
from headrace.observe.history import EpochFigures

SHARES = (50, 90, 99, 100)
"""Quantiles, in percent."""


def behind(epochs: Iterable[EpochFigures]) -> Mapping[Duration, int]:
    """How many elements of ``epochs`` lay how far behind the newest event time of the epochs before their own (rounded
    up to two digits; those of the first epoch do not count). A bound of so much would have made none of them late.
    """
    found: Counter[Duration] = Counter()
    for epoch in epochs:
        found.update(epoch.behind)
    return found


def too_late(epochs: Iterable[EpochFigures], rows: Iterable[tuple[int, Instant]]) -> Mapping[Duration, int]:
    """How many late rows there are (each its epoch, the last moment of its window) by how far the watermark had passed
    its window. An allowed lateness of so much would have kept it.
    """
    watermarks = {epoch.epoch: epoch.watermark for epoch in epochs}
    stood = ((watermarks.get(epoch - 1), last) for epoch, last in rows)
    return Counter(
        Duration(watermark - last) for watermark, last in stood if watermark is not None and is_finite(watermark)
    )


def quantiles(values: Mapping[Duration, int]) -> Mapping[int, Duration]:
    """The least of ``values``, which are counted, that so many percent of them do not exceed, for each of SHARES;
    nothing of no values.
    """
    ordered = sorted(values)
    reached = list(accumulate(values[value] for value in ordered))
    return {share: ordered[bisect_left(reached, reached[-1] * share / 100)] for share in SHARES} if ordered else {}
