"""A user's own window function as columns (semantics 2.6), in Arrow batches."""

from collections.abc import Collection, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import types as t

from headrace.engine.types import SparkColumn
from headrace.engine.vectorised import vectorised
from headrace.errors import PipelineError
from headrace.model.custom import user_code
from headrace.model.time import Instant
from headrace.model.windows import CustomWindows, MergeGroup, Window

START, END, STAMP = "start", "end", "stamp"

_LONG = t.LongType()
_WINDOW = t.StructType([t.StructField(START, _LONG), t.StructField(END, _LONG)])
_ASSIGNED = t.ArrayType(t.StructType([*_WINDOW.fields, t.StructField(STAMP, _LONG)]))
_ARROW_WINDOW = pa.struct([(START, pa.int64()), (END, pa.int64())])
_ARROW_ASSIGNED = pa.list_(pa.struct([(START, pa.int64()), (END, pa.int64()), (STAMP, pa.int64())]))


def assigned_windows(where: CustomWindows, event_time: SparkColumn, record: SparkColumn) -> SparkColumn:
    """The windows of each element in order, each with the timestamp that the element lends its pane there; NULL where
    ``event_time`` is. ``record`` is a struct whose timestamps are Instants.
    """

    def assign(times: pa.Array, records: pa.Array) -> pa.Array:
        found = [
            None if at is None else _windows_of(where, Instant(at), value)
            for at, value in zip(times.to_pylist(), records.to_pylist(), strict=True)
        ]
        return pa.array(found, _ARROW_ASSIGNED)

    return vectorised(where, assign, _ASSIGNED)(event_time, record)


def merged_window(where: CustomWindows, own: SparkColumn, windows: SparkColumn) -> SparkColumn:
    """What the window ``own`` becomes among the open and new ``windows`` of its key (structs of start and end); itself
    where these are NULL.
    """

    def merge(owns: pa.Array, all_windows: pa.Array) -> pa.Array:
        became: dict[tuple[Window, ...], Mapping[Window, Window]] = {}
        found = []
        for window, others in zip(owns.to_pylist(), all_windows.to_pylist(), strict=True):
            key = tuple(_window(other) for other in others or ())
            if key not in became:
                became[key] = _results(where, key) if key else {}
            itself = _window(window)
            start, end = became[key].get(itself, itself)
            found.append({START: start, END: end})
        return pa.array(found, _ARROW_WINDOW)

    return vectorised(where, merge, _WINDOW)(own, windows)


def output_times(where: CustomWindows, times: SparkColumn, window: SparkColumn) -> SparkColumn:
    """The timestamps that elements at ``times`` lend the pane of ``window`` (a struct of start and end)."""

    def move(lists: pa.Array, windows: pa.Array) -> pa.Array:
        with user_code(where, "give the output times of elements"):
            found = [
                None if several is None else [where.output_time(Instant(at), _window(window)) for at in several]
                for several, window in zip(lists.to_pylist(), windows.to_pylist(), strict=True)
            ]
            return pa.array(found, pa.list_(pa.int64()))

    return vectorised(where, move, t.ArrayType(_LONG))(times, window)


def moves_output_times(where: CustomWindows) -> bool:
    """Whether elements may lend their panes another timestamp than their own."""
    return type(where).output_time is not CustomWindows.output_time


def _windows_of(where: CustomWindows, at: Instant, record: Mapping[str, Any]) -> list[dict[str, int]]:
    try:
        windows = sorted(set(where.assign(at, record)))
        return [{START: w.start, END: w.end, STAMP: where.output_time(at, w)} for w in windows]
    except Exception as error:
        raise PipelineError(f"{where!r} could not assign windows to an element at {at}: {error!r}") from error


def _results(where: CustomWindows, windows: Collection[Window]) -> Mapping[Window, Window]:
    """What became of each window that merged."""
    try:
        groups = list(where.merge(windows))
    except Exception as error:
        raise PipelineError(f"{where!r} could not merge windows of a key: {error!r}") from error
    became: dict[Window, Window] = {}
    for sources, result in groups:
        if not sources.isdisjoint(became) or not sources <= set(windows):
            raise PipelineError(f"{where!r} merged a window twice, or one that it was not given: {sorted(sources)}")
        if result in windows and result not in sources:
            raise PipelineError(f"{where!r} merged {sorted(sources)} into {result}, another window of the key")
        became.update(dict.fromkeys(MergeGroup(sources, result).sources, result))
    return became


def _window(value: Mapping[str, int]) -> Window:
    return Window(Instant(value[START]), Instant(value[END]))
