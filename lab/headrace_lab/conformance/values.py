"""The elements of cases as rows, and panes as they are stored as values."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa

from headrace.kernel.columns import arrow_type
from headrace.model.accumulation import Timing
from headrace.model.expressions.data_types import Schema
from headrace.model.time import GLOBAL_WINDOW_END, MIN_INSTANT, Instant
from headrace.model.windows import Window
from headrace.program import columns as c
from headrace.read.views.columns import ViewColumns
from headrace_lab.reference.elements import Pane

Row = Mapping[str, Any]


def element_rows(
    schema: Schema, elements: Sequence[tuple[Mapping[str, Any], Instant, int]], sizes: Sequence[int] | None = None
) -> dict[str, pa.Array]:
    """Elements as rows for a stage (``kernel.elements.judge``): their columns, event time (granules) and sign (1, or -1
    to withdraw); ``sizes`` are their bytes where these are not those of their columns.

    Timestamps among the columns are Instants.
    """
    columns = {
        name: pa.array([row.get(name) for row, _, _ in elements], arrow_type(kind)) for name, kind in schema.items()
    }
    columns[c.EVENT_TIME] = pa.array([event_time for _, event_time, _ in elements], pa.int64())
    columns[c.SIGN] = pa.array([sign for _, _, sign in elements], pa.int64())
    return columns if sizes is None else {**columns, c.SIZE: pa.array(sizes, pa.int64())}


def stored_panes(files: Iterable[pa.Table], columns: ViewColumns) -> list[Pane]:
    """The panes of the last stage in an epoch, retractions included; each file has those of some windows. They are
    ordered by the emitting window's (end, start), then key, as a step's output is (semantics 3.2).
    """
    windows = [rows for file in files for rows in _by_window(file)]

    def place(rows: Sequence[Row]) -> Any:  # the window that emitted them is as wide as they are together
        return max(map(_end, rows)), min(map(_start, rows)), tuple(rows[0][name] for name in columns.keys)

    return [_pane(row, columns) for rows in sorted(windows, key=place) for row in rows]


def _by_window(panes: pa.Table) -> list[list[Row]]:
    """What each window emitted, which stands together in a file, numbered from 0."""
    for name in ("window_start", "window_end", "pane_time"):
        panes = panes.set_column(panes.schema.get_field_index(name), name, panes.column(name).cast(pa.int64()))
    group_number = 0
    numbered_rows = []
    for row in panes.to_pylist():
        group_number += row["sequence"] == 0
        numbered_rows.append((group_number, row))
    return [[row for _, row in rows] for _, rows in groupby(numbered_rows, key=lambda numbered_row: numbered_row[0])]


def _pane(row: Row, columns: ViewColumns) -> Pane:
    pane_time = row["pane_time"]
    return Pane(
        key=tuple(row[name] for name in columns.keys),
        window=Window(_start(row), _end(row)),
        values=tuple(plain_value(row[name]) for name in columns.values),
        timestamp=Instant(GLOBAL_WINDOW_END - 1 if pane_time is None else pane_time),
        timing=Timing(row["timing"]),
        index=row["pane_index"],
        nonspeculative_index=row["nonspeculative_index"],
        is_first=row["is_first"],
        is_last=row["is_last"],
        is_retraction=row["is_retraction"],
    )


def _start(row: Row) -> Instant:
    start = row["window_start"]
    return MIN_INSTANT if start is None else Instant(start)


def _end(row: Row) -> Instant:
    end = row["window_end"]
    return GLOBAL_WINDOW_END if end is None else Instant(end)


def plain_value(value: Any) -> Any:
    """A value of a pane, lists and pairs as tuples."""
    if isinstance(value, list):
        return tuple(tuple(item.values()) if isinstance(item, dict) else item for item in value)
    return value
