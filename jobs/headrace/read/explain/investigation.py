"""Finding out why the windows of a key have fired or not: from its state, its panes, and what was dropped as late.

The rows of one key in views of the output, read from the files that may have some.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, reduce
from operator import and_
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernel.keys import hashes
from headrace.kernel.state import remaining, rows_of
from headrace.kernel.types import ARROW_TYPES
from headrace.kernel.windows.assignment import assigned
from headrace.model.accumulation import WINDOW_END, WINDOW_START
from headrace.model.arguments import shown
from headrace.model.expressions.data_types import DataType
from headrace.model.expressions.expr import Expr, col, lit, render
from headrace.model.time import GLOBAL_WINDOW_END, MIN_INSTANT, Instant, instant, iso_8601, parse
from headrace.model.windows import GLOBAL_WINDOW, CustomWindows, Window
from headrace.program import columns as c
from headrace.read.explain.explanation import (
    Explanation,
    Holding,
    WindowExplained,
    WindowStatus,
    newest_withheld,
    withheld,
)
from headrace.read.explain.waiting import Readiness, StageState
from headrace.read.keys import ExplainError, Given, time_from_text, typed_key
from headrace.read.views.arrow_types import python_rows
from headrace.read.views.columns import View, ViewColumns
from headrace.read.views.conditions import RowCondition
from headrace.read.views.open_windows import values_so_far
from headrace.read.views.row_files import tables
from headrace.read.views.sources import OutputFiles
from headrace.state.key_groups import KeyGroupRange, groups_of
from headrace.state.layer_reader import some_of
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.table_names import REJECTED


@dataclass(frozen=True)
class KeyRows:
    """The rows of ``key``, whose columns are of ``types``, that epochs from ``since`` on wrote."""

    catalog: Catalog
    manifest: Manifest
    key: Mapping[str, Any]
    types: Mapping[str, DataType]
    since: int

    def of(self, view: View, columns: Sequence[str]) -> list[dict[str, Any]]:
        """The rows in a view, of these columns, in the order of emission. Raises BrokenObjectError."""
        source = self._source(view)
        order = [name for name in source.order if name not in self.key]
        read = {*columns, *order, *self.key}
        schema = pa.schema([field for field in source.columns if field.name in read])
        files = tables(self.catalog.store, source.wanted_files, schema, source.names, source.needed)
        rows = pa.concat_tables([schema.empty_table(), *(table.filter(self._is_wanted(table)) for table in files)])
        return python_rows(rows.sort_by([(name, "ascending") for name in order]).select(columns))

    def _source(self, view: View) -> OutputFiles:
        """Leaves files out that have no such rows."""
        source = OutputFiles(self.catalog, self.manifest, view, ViewColumns.from_json(self.manifest.schema), None)
        conditions: list[Expr] = [col(name) == lit(value) for name, value in self.key.items()]
        return source.where(RowCondition(reduce(and_, conditions, col("epoch") >= lit(self.since)), source))

    def _is_wanted(self, rows: pa.Table) -> pa.ChunkedArray:
        """Which of ``rows`` are of the key, and not too old."""
        same = [
            pc.equal(rows.column(name), pa.scalar(value, ARROW_TYPES[self.types[name]]))
            for name, value in self.key.items()
        ]
        return reduce(pc.and_, same, pc.greater_equal(rows.column("epoch"), self.since))


SHOWN_PANES, SHOWN_WINDOWS = 5, 20
_WINDOW = (WINDOW_START, WINDOW_END)
_ABOUT_PANES = ("timing", "pane_index", "is_retraction", "epoch")


def explain(
    state: StageState, key: Given = None, window: str | datetime | None = None, epochs: int | None = None
) -> Explanation:
    """Why the windows of ``key`` have fired or not: all that are still known, or those at the time ``window``: their
    start, or any time in them. Panes and late rows are those of the newest ``epochs``. Raises ExplainError.
    """
    whose = f"aggregation {state.number} of {state.pipeline.name}"
    named = typed_key(state.stage.stage.key_types, key, whose)
    since = 0 if epochs is None else max(0, state.manifest.epoch + 1 - epochs)
    return _Asked(state, named, None if window is None else _instant(window), since).explanation()


@dataclass(frozen=True)
class _Asked:
    state: StageState
    key: Mapping[str, Any]
    at: Instant | None
    since: int
    """The first epoch whose panes and late rows are looked at."""

    def explanation(self) -> Explanation:
        state, manifest = self.state, self.state.manifest
        windows = sorted(self._windows(), key=lambda window: (window.window.end, window.window.start))
        over = [window for window in windows if window.status in (WindowStatus.EXPIRED, WindowStatus.MERGED)]
        earlier = over[:-SHOWN_WINDOWS] if self.at is None else []
        rejected = manifest.logs.get(REJECTED)
        return Explanation(
            pipeline=state.pipeline.name,
            snapshot=manifest.snapshot_id,
            epoch=manifest.epoch,
            stage=state.number,
            key=_as_printed(state.stage.stage.key_types, self.key),
            watermark=state.clocks.watermark,
            held_back_by=state.held_back,
            held_since=state.held_since,
            processing_time=state.clocks.processing_time,
            rejected=0 if rejected is None else rejected.rows,
            windows=[window for window in windows if window not in earlier],
            earlier=len(earlier),
            since=self.since,
        )

    def _windows(self) -> Iterator[WindowExplained]:
        """Windows of the state, and windows that are gone."""
        known = [*self._known()]
        yield from known
        there = [window.window for window in known]
        late = [window for window in self._late_windows if not any(_contains(outer, window) for outer in there)]
        gone = {*self._panes, *late, *self._assigned()} - {*there}
        yield from (self._gone(window) for window in gone if self._is_asked(window))

    def _is_asked(self, window: Window) -> bool:
        return self.at is None or window.start <= self.at < window.end

    def _known(self) -> Iterator[WindowExplained]:
        """The windows that are in the state."""
        state = self.state
        rows = self._rows()
        held = "" if state.held_back is None else f", held back by {state.held_back}"
        is_open = rows.filter(pc.equal(rows.column(c.STATUS), c.OPEN))
        readiness = Readiness(state.stage)
        so_far = values_so_far(state.stage, is_open)
        values = python_rows(pa.RecordBatch.from_pydict(so_far))
        verdicts = zip(withheld(state.stage, is_open, so_far), newest_withheld(state.stage, is_open), strict=True)
        of_open, newest = {}, {}
        lefts = is_open.column(c.NET).fill_null(0).to_pylist() if state.stage.counts_net else [None] * len(is_open)
        for facts, own, (holding, pane), left in zip(
            readiness.facts(is_open, state.clocks, held), values, verdicts, lefts, strict=True
        ):
            window = Window(Instant(facts.row[c.WINDOW_START]), facts.end)
            of_open[window] = Holding(own, facts.row[c.NEW], readiness.condition(facts), holding, left)
            newest[window] = pane
        for row in rows.select([c.WINDOW_START, c.WINDOW_END, c.STATUS, c.INDEX]).to_pylist():
            window = Window(Instant(row[c.WINDOW_START]), Instant(row[c.WINDOW_END]))
            if self._is_asked(window):
                status = WindowStatus.OPEN if window in of_open else WindowStatus.CLOSED
                explained = self._explained(window, status, row[c.INDEX], of_open.get(window))
                yield replace(explained, withheld=newest.get(window))

    def _gone(self, window: Window) -> WindowExplained:
        """A window that is not in the state."""
        panes = self._panes.get(window, [])
        emitted = sum(not pane["is_retraction"] for pane in panes)
        if self.state.clocks.watermark > self.state.stage.expiry(window.end):
            status = WindowStatus.EXPIRED
        else:
            status = WindowStatus.MERGED if panes else WindowStatus.ABSENT
        return self._explained(window, status, emitted, None)

    def _explained(self, window: Window, status: WindowStatus, panes: int, holding: Holding | None) -> WindowExplained:
        late, having = self._late_windows, self.state.stage.stage.aggregation.having
        return WindowExplained(
            window=window,
            status=status,
            expiry=self.state.stage.expiry(window.end),
            panes=panes,
            last_panes=self._panes.get(window, [])[-SHOWN_PANES:],
            late=None if self.state.number > 1 else _within(late, window),
            holding=holding,
            having=None if having is None else render(having),
        )

    def _rows(self) -> pa.RecordBatch:
        """The rows of the key's windows."""
        state = self.state
        stage, schema = state.stage, state.stage.state_schema
        hashed = hashes([*self._key_columns.values()], 1)
        groups = groups_of(hashed)
        assert groups is not None
        held = [
            rows
            for layer in state.layers
            for rows in some_of(state.catalog.store, schema, layer, KeyGroupRange(*groups))
        ]
        rows = remaining(stage, (rows_of(rows, np.asarray(hashed)) for rows in held))
        for name, column in self._key_columns.items():
            rows = rows.filter(pc.equal(rows.column(name), column[0]))
        return rows

    def _assigned(self) -> list[Window]:
        """The windows that an element of the time that is asked about would be in, as far as that is known."""
        where = self.state.stage.where
        if self.at is None or isinstance(where, CustomWindows) or where.merges:
            return []
        times = pa.array([self.at], pa.int64())
        windows = assigned(where, times, self._key_columns, self.state.stage.stage.key_types)
        return [
            Window(Instant(start), Instant(end))
            for start, end in zip(windows.start.tolist(), windows.end.tolist(), strict=True)
        ]

    @cached_property
    def _key_columns(self) -> dict[str, pa.Array]:
        kinds = self.state.stage.stage.key_types
        return {name: pa.array([value], ARROW_TYPES[kinds[name]]) for name, value in self.key.items()}

    @cached_property
    def _panes(self) -> dict[Window, list[dict[str, Any]]]:
        """The panes of the key, by window, in the order of emission; none but of the last aggregation."""
        if self.state.number < len(self.state.pipeline.stages):
            return {}
        names = [*self.state.stage.stage.value_types]
        panes: dict[Window, list[dict[str, Any]]] = {}
        for row in self._of_key.of(View.PANES, [*_WINDOW, *_ABOUT_PANES, *names]):
            values = {name: row[name] for name in names}
            others = {name: value for name, value in row.items() if name not in values}
            panes.setdefault(_window(others), []).append({**others, "values": values})
        return panes

    @cached_property
    def _late_windows(self) -> dict[Window, int]:
        """How many elements of the key were dropped as late, by their windows; none but of the first aggregation."""
        return Counter() if self.state.number > 1 else Counter(map(_window, self._of_key.of(View.LATE, _WINDOW)))

    @property
    def _of_key(self) -> KeyRows:
        """The rows of the key in views of the output."""
        types = self.state.stage.stage.key_types
        return KeyRows(self.state.catalog, self.state.manifest, self.key, types, self.since)


def _within(late: Mapping[Window, int], window: Window) -> int:
    """The ``late`` elements whose own window lies in ``window``."""
    return sum(count for own, count in late.items() if _contains(window, own))


def _contains(window: Window, other: Window) -> bool:
    return window.start <= other.start and other.end <= window.end


def _window(row: dict[str, Any]) -> Window:
    """The window of a row of a view, which is taken out of it."""
    start, end = row.pop(WINDOW_START), row.pop(WINDOW_END)
    if start is None and end is None:
        return GLOBAL_WINDOW
    return Window(MIN_INSTANT if start is None else _at(start), GLOBAL_WINDOW_END if end is None else _at(end))


def _as_printed(kinds: Mapping[str, DataType], key: Mapping[str, Any]) -> Mapping[str, Any]:
    """``key`` with a time that Python has no datetime for as text."""
    times = {name: value for name, value in key.items() if kinds[name] is DataType.TIMESTAMP and isinstance(value, int)}
    return {**key, **{name: iso_8601(value) for name, value in times.items()}}


def _at(time: datetime | str) -> Instant:
    """A time of a row (``python_rows``)."""
    return parse(time) if isinstance(time, str) else instant(time)


def _instant(window: str | datetime) -> Instant:
    try:
        time = time_from_text(window) if isinstance(window, str) else window
        return instant(time) if isinstance(time, datetime) else Instant(time)
    except (ValueError, TypeError) as error:
        raise ExplainError(
            f"window={shown(window)} is not a time: write a time in it, or its start, with a time zone, such as "
            "2026-11-21T10:00:00Z"
        ) from error
