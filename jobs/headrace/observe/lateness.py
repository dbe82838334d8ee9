"""Quantiles of lateness: what a bound of out-of-orderness and an allowed lateness would have had to be."""

from collections.abc import Iterable, Mapping, Sequence
from math import ceil

from headrace.model.time import Duration, Instant, is_finite
from headrace.observe.history import EpochFigures

SHARES = (50, 90, 99, 100)
"""Quantiles, in percent."""


def behind(epochs: Sequence[EpochFigures]) -> list[Duration]:
    """Of each of ``epochs`` (oldest first) behind the first: how far its furthest element lay behind the newest event
    time before it, zero if none did. A bound of so much would have made none of them late.
    """
    found: list[Duration] = []
    newest: Instant | None = None
    for epoch in epochs:
        if epoch.min_event_time is None or epoch.max_event_time is None:
            continue
        if newest is not None:
            found.append(Duration(max(0, newest - epoch.min_event_time)))
        newest = epoch.max_event_time if newest is None else max(newest, epoch.max_event_time)
    return found


def too_late(epochs: Iterable[EpochFigures], rows: Iterable[tuple[int, Instant]]) -> list[Duration]:
    """Of each late row (its epoch, the last moment of its window): how far the watermark had passed its window. An
    allowed lateness of so much would have kept it.
    """
    watermarks = {epoch.epoch: epoch.watermark for epoch in epochs}
    stood = ((watermarks.get(epoch - 1), last) for epoch, last in rows)
    return [Duration(watermark - last) for watermark, last in stood if watermark is not None and is_finite(watermark)]


def quantiles(values: Sequence[Duration]) -> Mapping[int, Duration]:
    """The least value that so many percent of ``values`` do not exceed, for each of SHARES; nothing of no values."""
    ordered = sorted(values)
    return {share: ordered[max(0, ceil(len(ordered) * share / 100) - 1)] for share in SHARES} if ordered else {}
