"""A user's own window function over columns (semantics 2.6): its methods are called, row by row or key by key."""

from collections.abc import Collection, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.errors import PipelineError
from headrace.kernel.grouping import Ints
from headrace.model.custom import user_code
from headrace.model.time import Instant
from headrace.model.windows import CustomWindows, MergeGroup, Window


def assigned_windows(where: CustomWindows, times: pa.Array, records: pa.Array | None) -> tuple[Ints, Ints, Ints, Ints]:
    """How many windows each row has, none where its time is NULL; then of all of them, in order, start, end and the
    timestamp that the row gives its pane there.
    """
    known = [{}] * len(times) if records is None else records.to_pylist()
    with user_code(where, "assign windows to an element"):
        placed = [
            [] if at is None else _windows_of(where, Instant(at), record)
            for at, record in zip(times.to_pylist(), known, strict=True)
        ]
    counts = np.array([len(windows) for windows in placed], np.int64)
    rows = np.array([window for windows in placed for window in windows], np.int64).reshape(-1, 3)
    return counts, rows[:, 0], rows[:, 1], rows[:, 2]


def _windows_of(where: CustomWindows, at: Instant, record: Mapping[str, Any]) -> list[tuple[int, int, int]]:
    return [(w.start, w.end, where.output_time(at, w)) for w in sorted(set(where.assign(at, record)))]


def output_times(where: CustomWindows, times: Ints, start: Ints, end: Ints) -> Ints:
    """The timestamps that elements at ``times`` give the panes of their windows."""
    if type(where).output_time is CustomWindows.output_time:
        return times
    with user_code(where, "give the output times of elements"):
        several = zip(times.tolist(), start.tolist(), end.tolist(), strict=True)
        return np.array([where.output_time(Instant(at), _window(a, b)) for at, a, b in several], np.int64)


def merged_custom(where: CustomWindows, key: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """What the window of each row becomes among those of its ``key``; rows stand in the order of (key, window)."""
    result = start.copy(), end.copy()
    bounds = [0, *(np.flatnonzero(np.diff(key)) + 1).tolist(), len(key)]
    for a, b in pairwise(bounds) if len(key) else ():
        windows = [_window(*ends) for ends in zip(start[a:b].tolist(), end[a:b].tolist(), strict=True)]
        results = _results(where, list(dict.fromkeys(windows)))
        if results:
            merged = np.array([results.get(window, window) for window in windows], np.int64)
            result[0][a:b], result[1][a:b] = merged[:, 0], merged[:, 1]
    return result


def _results(where: CustomWindows, windows: Collection[Window]) -> Mapping[Window, Window]:
    """What became of each window that merged. Raises PipelineError if the function breaks its contract (2.6)."""
    with user_code(where, "merge windows of a key"):
        groups = [MergeGroup(frozenset(sources), result) for sources, result in where.merge(windows)]
    results: dict[Window, Window] = {}
    for sources, result in groups:
        if not sources.isdisjoint(results) or not sources <= set(windows):
            raise PipelineError(f"{where!r} merged a window twice, or one that it was not given: {sorted(sources)}")
        if result in windows and result not in sources:
            raise PipelineError(f"{where!r} merged {sorted(sources)} into {result}, another window of the key")
        results.update(dict.fromkeys(sources, result))
    return results


def _window(start: int, end: int) -> Window:
    return Window(Instant(start), Instant(end))
