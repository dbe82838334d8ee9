"""Why the windows of a key have fired or not: from its state, its panes and what was dropped as late, in words.

``Withheld`` says which rows ``having`` withholds (semantics 9.10), and why. ``KeyRows`` reads the rows of one key in
views of the output from the files that may have some.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from functools import cached_property, reduce
from operator import and_
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernel.columns import ARROW_TYPES, Ints, of_lists, to_timestamps
from headrace.kernel.expressions.evaluation import evaluate_column as evaluated
from headrace.kernel.keys import hash_keys
from headrace.kernel.stage import CompiledStage
from headrace.kernel.state import remaining_rows, rows_of
from headrace.kernel.windows import assign_windows
from headrace.model import time as model_time
from headrace.model.accumulation import WINDOW_END, WINDOW_START
from headrace.model.arguments import short_repr
from headrace.model.expressions.data_types import DataType, Schema
from headrace.model.expressions.expr import Column, Literal, col, lit, render
from headrace.model.expressions.expr import render as render_expression
from headrace.model.expressions.typing import columns_of
from headrace.model.time import render as render_instant
from headrace.model.triggers.elementary import WAITS_FOR_ELEMENT
from headrace.model.windows import GLOBAL_WINDOW, CustomWindows, Window
from headrace.program import columns as c
from headrace.read.joined_rows import AskedRows, JoinExplained, equals_value, explain_joins
from headrace.read.open_windows import Readiness, StageState, TriggerCondition, values_so_far
from headrace.read.shown_values import JsonFields, json_value
from headrace.read.views.arrow_types import ExplainError, GivenKey, python_rows, time_from_text, typed_key
from headrace.read.views.columns import View, ViewColumns
from headrace.read.views.conditions import RowCondition, of_key
from headrace.read.views.row_files import read_tables
from headrace.read.views.sources import OutputFiles
from headrace.state.chunks import KeyGroupRange, groups_of
from headrace.state.layers import some_of
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.manifest import REJECTED, Manifest

Columns = Mapping[str, pa.Array]


@dataclass(frozen=True)
class Withheld(JsonFields):
    """Why a row does not leave: the ``condition``, which is false or NULL of it, and the ``values`` that it reads."""

    condition: str
    is_null: bool
    values: Mapping[str, Any]

    def __str__(self) -> str:
        read = ", ".join(f"{name} = {value}" for name, value in self.values.items())
        return f"having {self.condition} is {'NULL' if self.is_null else 'false'}{f' of {read}' if read else ''}"


def withheld_reasons(stage: CompiledStage, windows: pa.RecordBatch, so_far: Columns) -> list[Withheld | None]:
    """Why a row of what each of the open ``windows`` holds ``so_far`` would not leave; None: it would."""
    window = {WINDOW_START: windows.column(c.WINDOW_START), WINDOW_END: windows.column(c.WINDOW_END)}
    return _having_verdicts(stage, {**_key_arrays(stage, windows), **so_far, **window}, windows.num_rows)


def newest_withheld(stage: CompiledStage, windows: pa.RecordBatch) -> list[Withheld | None]:
    """Why the newest remembered pane of each open window did not leave; None: it did, or none is remembered."""
    verdicts: list[Withheld | None] = [None] * windows.num_rows
    if stage.stage.aggregation.having is None or not stage.remembers:
        return verdicts
    panes, groups = of_lists(windows.column(c.LIVE))
    row: Ints = groups.of_row
    keys = {name: values.take(pa.array(row)) for name, values in _key_arrays(stage, windows).items()}
    values = {name: panes.field(name) for name in (*stage.stage.value_types, WINDOW_START, WINDOW_END)}
    for number, verdict in zip(row.tolist(), _having_verdicts(stage, {**keys, **values}, len(panes)), strict=True):
        verdicts[number] = verdict
    return verdicts


def _key_arrays(stage: CompiledStage, windows: pa.RecordBatch) -> dict[str, pa.Array]:
    return {name: windows.column(name) for name in stage.keys}


def _having_verdicts(stage: CompiledStage, rows: Columns, length: int) -> list[Withheld | None]:
    condition = stage.stage.aggregation.having
    if condition is None:
        return [None] * length
    window_columns = {name: to_timestamps(rows[name]) for name in (WINDOW_START, WINDOW_END)}
    row = {**rows, **window_columns}
    answers = evaluated(condition, row, stage.stage.pane_schema, length).to_pylist()
    names = sorted(columns_of(condition))
    read = python_rows(pa.RecordBatch.from_pydict({name: row[name] for name in names})) if names else [{}] * length
    return [
        None if answer else Withheld(render_expression(condition), answer is None, values)
        for answer, values in zip(answers, read, strict=True)
    ]


class WindowStatus(StrEnum):
    """What has become of a window: it waits; its trigger has finished; the watermark has passed its lateness; a larger
    window took it in; or nothing of it was ever there.
    """

    OPEN = "open"
    CLOSED = "closed"
    EXPIRED = "expired"
    MERGED = "merged"
    ABSENT = "absent"


@dataclass(frozen=True)
class Holding:
    """What an open window has: aggregates ``so_far``, how many elements no pane has shown, its trigger; why a row of
    ``so_far`` would not leave. ``left``: how many elements are not withdrawn, None where none can be.
    """

    so_far: Mapping[str, Any]
    new_elements: int
    trigger: TriggerCondition
    withheld: Withheld | None = None
    left: int | None = None


@dataclass(frozen=True)
class WindowExplained:
    """One window of the key. ``panes`` counts what it has emitted, ``last_panes`` are the newest of them that readers
    got (only of the last aggregation); ``late`` counts elements of it that were dropped since it had expired, None
    where nobody keeps them. It expires once the watermark exceeds ``expiry``, NEVER if it does not. ``withheld``: why
    its newest pane did not leave; ``having``: the condition that panes leave by.
    """

    window: Window
    status: WindowStatus
    expiry: model_time.Instant
    panes: int
    last_panes: Sequence[Mapping[str, Any]] = ()
    late: int | None = None
    holding: Holding | None = None
    withheld: Withheld | None = None
    having: str | None = None

    def lines(self) -> Iterator[str]:
        """In words."""
        firing_text = "" if self.status is WindowStatus.ABSENT else f": {self.status}, {self._describe_firing()}"
        yield f"window {window_text(self.window)}{firing_text}"
        if self.withheld is not None:
            yield f"  readers do not see its newest pane: {self.withheld}"
        if self.holding is not None:
            yield from _indent_lines(_describe_holding(self.holding))
        yield from _indent_lines(self._describe_end())
        for pane in self.last_panes:
            kind = "withdrawn" if pane["is_retraction"] else str(pane["timing"]).lower().replace("_", " ")
            values = ", ".join(f"{name} = {value}" for name, value in pane["values"].items())
            what = f"pane {pane['pane_index']}" if "pane_index" in pane else "row"
            yield f"  {what}, {kind}, of epoch {pane['epoch']}: {values}"
        if self.late:
            elements = "element was" if self.late == 1 else "elements were"
            yield f"  {self.late:,} {elements} dropped: too late for it (headrace read --view late)"

    def _describe_firing(self) -> str:
        if not self.panes:
            if self.status is WindowStatus.OPEN:
                return "has not fired"
            return "without a pane" if self.having is None else f"without a pane of which having {self.having} was true"
        return f"has fired {self.panes:,} pane{'s' if self.panes > 1 else ''}"

    def _describe_end(self) -> Iterator[str]:
        expires = "never" if self.expiry >= model_time.NEVER else f"once the watermark passes {self._expiry_text()}"
        match self.status:
            case WindowStatus.OPEN:
                gives = ": it gives what no pane has shown by then; elements after that are late"
                yield f"expires {expires}{'' if self.expiry >= model_time.NEVER else gives}"
            case WindowStatus.CLOSED:
                yield (
                    "its trigger has finished: elements that still come for it are dropped, and it is forgotten "
                    f"{expires}"
                )
            case WindowStatus.EXPIRED:
                yield f"the watermark has passed {self._expiry_text()}: elements that still come for it are late"
            case WindowStatus.MERGED:
                yield "it is part of a larger window now"
            case WindowStatus.ABSENT:
                yield "no element of this key has come into it"

    def _expiry_text(self) -> str:
        expiry = model_time.Instant(self.expiry + 1)
        return (
            "the year 9999"
            if model_time.END_OF_CALENDAR < expiry < model_time.GLOBAL_WINDOW_END
            else render_instant(expiry)
        )

    def to_json(self) -> dict[str, Any]:
        """A JSON value."""
        holding = self.holding
        own: dict[str, Any] = {
            "window_start": _time_text(self.window.start),
            "window_end": _time_text(self.window.end),
            "status": self.status.value,
            "expires": _time_text(model_time.Instant(self.expiry + 1)),
            "panes": self.panes,
            "last_panes": json_value(self.last_panes),
            "late": self.late,
        }
        if self.having is not None:
            own |= {"having": self.having, "withheld": None if self.withheld is None else self.withheld.to_json()}
        if holding is None:
            return own
        holding_fields: dict[str, Any] = {"so_far": json_value(holding.so_far), "new_elements": holding.new_elements}
        holding_fields |= {} if holding.left is None else {"left": holding.left}
        return {
            **own,
            **holding_fields,
            "waits_for": holding.trigger.waits_for or WAITS_FOR_ELEMENT,
            "trigger": holding.trigger.to_json(),
        }


@dataclass(frozen=True, repr=False)
class Explanation:
    """What a snapshot knows of the windows of a ``key``. ``held_back_by``: who holds the watermark back, in words,
    and ``held_since`` when an input last moved it on, in processing time;
    ``rejected``: how many records of all keys are dead letters; ``earlier``: how many windows that have expired, or are
    part of others, are left out; ``since``: the first epoch whose panes and late records were looked at.

    ``joins``: those above the first aggregation, with the rows that they keep of the key. Where joined rows leave as
    they are it ``has_windows`` not, and ``key`` is columns of rows.
    """

    pipeline: str
    snapshot: str
    epoch: int
    stage: int
    key: Mapping[str, Any]
    watermark: model_time.Instant
    held_back_by: str | None
    held_since: model_time.Instant | None
    processing_time: model_time.Instant
    rejected: int
    windows: Sequence[WindowExplained]
    earlier: int = 0
    since: int = 0
    joins: Sequence[JoinExplained] = ()
    has_windows: bool = True

    def lines(self) -> Iterator[str]:
        """In words."""
        key_parts = (f"{name} = {'NULL' if value is None else value}" for name, value in self.key.items())
        key = ", ".join(key_parts) or ("no key" if self.has_windows else "all of them")
        what = f"aggregation {self.stage}" if self.has_windows else "joined rows"
        yield f"{self.pipeline} at snapshot {self.snapshot} (epoch {self.epoch}), {what}: {key}"
        holder = "" if self.held_back_by is None else f", held back by {self.held_back_by}"
        since_text = "" if self.held_since is None else f"; it last moved on at {render_instant(self.held_since)}"
        yield f"the watermark stands at {render_instant(self.watermark)}{holder}{since_text}"
        yield f"the newest epoch ran at {render_instant(self.processing_time)}"
        for lines in (*(join.lines() for join in self.joins), *(window.lines() for window in self.windows)):
            yield ""
            yield from lines
        if self.earlier:
            yield ""
            yield f"{self.earlier:,} windows before them are over; ask for one of them by a time in it"
        if self.since and self.has_windows:
            yield ""
            yield (
                f"panes and late records of epochs before {self.since:,} are left out; ask for a window by a time in it"
            )
        if not self.windows and not self.since and self.has_windows:
            yield ""
            yield "no element with this key has ever come into a window"
        is_known = any(join.rows for join in self.joins) or any(window.holding for window in self.windows)
        if self.rejected and not is_known:
            yield ""
            records = "1 record" if self.rejected == 1 else f"{self.rejected:,} records"
            yield f"{records} of all keys could not be used (headrace read --view rejected)"

    def to_json(self) -> dict[str, Any]:
        """A JSON value: what ``headrace explain --format json`` prints."""
        return {
            "pipeline": self.pipeline,
            "snapshot": self.snapshot,
            "epoch": self.epoch,
            "stage": self.stage,
            "key": json_value(self.key),
            "watermark": render_instant(self.watermark),
            "held_back_by": self.held_back_by,
            "held_since": None if self.held_since is None else render_instant(self.held_since),
            "processing_time": render_instant(self.processing_time),
            "rejected": self.rejected,
            "earlier": self.earlier,
            "since": self.since,
            "windows": [window.to_json() for window in self.windows],
            **({"joins": [join.to_json() for join in self.joins]} if self.joins else {}),
        }

    def __repr__(self) -> str:
        return "\n".join(self.lines())


def window_text(window: Window) -> str:
    """A window as people write it."""
    start, end = (render_instant(bound) if model_time.is_finite(bound) else "" for bound in (window.start, window.end))
    return f"[{start}, {end})" if start or end else "of all time"


def _time_text(time: model_time.Instant) -> str | None:
    return render_instant(time) if model_time.is_finite(time) and time <= model_time.END_OF_CALENDAR else None


def _describe_holding(holding: Holding) -> Iterator[str]:
    values = ", ".join(f"{name} = {value}" for name, value in holding.so_far.items())
    elements = "1 element" if holding.new_elements == 1 else f"{holding.new_elements:,} elements"
    new = f"{elements} that no pane has shown yet" if holding.new_elements else "nothing new since the last pane"
    yield f"holds {values}; {new}"
    if holding.left == 0:
        yield "as many elements were withdrawn as came: when it fires it gives no pane"
    if holding.left is not None and holding.left < 0:
        yield f"{-holding.left:,} more withdrawn than came: they are still to come, or the feed is not whole"
    if holding.withheld is not None:
        yield f"a pane of that would not leave: {holding.withheld}"
    yield "its trigger:"
    yield from _indent_lines(_condition_lines(holding.trigger))
    if holding.trigger.waits_for is None:
        yield f"  waits for {WAITS_FOR_ELEMENT}"


def _condition_lines(condition: TriggerCondition) -> Iterator[str]:
    """A node and its parts: [x] is met, [ ] is not."""
    part = f"{condition.part}: " if condition.part else ""
    yield f"[{'x' if condition.is_met else ' '}] {part}{condition.condition}"
    if condition.waits_for is not None and not condition.parts:
        yield f"    waits for {condition.waits_for}"
    for child in condition.parts:
        yield from (f"    {line}" for line in _condition_lines(child))


def _indent_lines(lines: Iterator[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)


@dataclass(frozen=True)
class KeyRows:
    """Rows of ``key`` (``types``) of epochs from ``since_epoch`` on, maybe only in windows with ``event_time``."""

    catalog: Catalog
    manifest: Manifest
    key: Mapping[str, Any]
    types: Mapping[str, DataType]
    since_epoch: int
    event_time: model_time.Instant | None = None

    def read_rows(self, view: View, columns: Sequence[str]) -> list[dict[str, Any]]:
        """The rows in a view, of these columns, in the order of emission. Raises BrokenObjectError."""
        source = self._pruned_files(view)
        order = [name for name in source.order if name not in self.key]
        read = {*columns, *order, *self.key}
        schema = pa.schema([field for field in source.columns if field.name in read])
        files = read_tables(self.catalog.store, source.wanted_files, schema, source.names, source.needed_rows)
        rows = pa.concat_tables([schema.empty_table(), *(table.filter(self._is_wanted(table)) for table in files)])
        return python_rows(rows.sort_by([(name, "ascending") for name in order]).select(columns))

    def _pruned_files(self, view: View) -> OutputFiles:
        """Leaves files out that have no such rows."""
        source = OutputFiles(self.catalog, self.manifest, view, ViewColumns.from_json(self.manifest.schema), None)
        conditions = of_key(self.key)
        if self.event_time is not None:
            time = Literal(self.event_time, DataType.TIMESTAMP)
            conditions += [col(WINDOW_START) <= time, col(WINDOW_END) > time]
        return source.where(RowCondition(reduce(and_, conditions, col("epoch") >= lit(self.since_epoch)), source))

    def _is_wanted(self, rows: pa.Table) -> pa.ChunkedArray:
        """Which of ``rows`` are of the key, and not too old."""
        same = [
            equals_value(rows.column(name), pa.scalar(value, ARROW_TYPES[self.types[name]]))
            for name, value in self.key.items()
        ]
        return reduce(pc.and_, same, pc.greater_equal(rows.column("epoch"), self.since_epoch))


SHOWN_PANES, SHOWN_WINDOWS = 5, 20
_WINDOW = (WINDOW_START, WINDOW_END)
_ABOUT_PANES = ("timing", "pane_index", "is_retraction", "epoch")


def explain_windows(
    state: StageState, key: GivenKey = None, window: str | datetime | None = None, epochs: int | None = None
) -> Explanation:
    """Why the windows of ``key`` have fired or not: all that are still known, or those at the time ``window``. That is
    their start, or any time in them, and files that hold only panes of other windows are not read. Panes and late rows
    are those of the newest ``epochs``. Where joined rows leave as they are, ``key`` is columns of them, and ``window``
    the event time of some. Raises ExplainError.
    """
    time = None if window is None else _parse_window_time(window)
    if state.stage.stage.is_stateless:
        return _explain_joined_rows(state, key, time)
    whose = f"aggregation {state.number} of {state.pipeline.name}"
    of_stage = state.stage.stage
    if of_stage.aggregation.takes_each:
        raise ExplainError(
            f"{whose} gives rows without a key, each of which waits for the watermark by itself: "
            "`headrace read --view state` shows how many wait, and for what"
        )
    typed_columns = typed_key(of_stage.key_types, key, whose, null_keys=of_stage.null_keys)
    since_epoch = 0 if epochs is None else max(0, state.manifest.epoch + 1 - epochs)
    return _KeyToExplain(state, typed_columns, time, since_epoch).explanation()


def _explain_joined_rows(state: StageState, key: GivenKey, time: model_time.Instant | None) -> Explanation:
    """What joined rows that leave as they are wait for."""
    assert state.joins is not None
    columns = state.joins.joins[0].left
    typed_columns = _columns_asked(state, columns, key)
    asked_rows = AskedRows(typed_columns, time, None if time is None else model_time.Instant(time + 1))
    explanation = _explanation(state, _as_printed(columns, typed_columns), [], explain_joins(state, asked_rows))
    return replace(explanation, has_windows=False)


def _columns_asked(state: StageState, columns: Schema, key: GivenKey) -> dict[str, Any]:
    """The columns of joined rows by which some are asked for: by their names, or those of ``id`` in their order."""
    text = key[0] if isinstance(key, list) and len(key) == 1 else key
    if isinstance(text, str) and text[:1] == "{":
        with suppress(ValueError):
            key = json.loads(text)
    if key is None or key == []:
        return {}
    rows = state.stage.stage.aggregation.rows
    ids = [rows[name] for name in state.pipeline.id]
    names = [*key] if isinstance(key, Mapping) else [expr.name for expr in ids if isinstance(expr, Column)]
    plain = {name: kind for name, kind in columns.items() if isinstance(kind, DataType)}
    kinds = {name: plain[name] for name in names if name in plain}
    whose = f"joined rows of {state.pipeline.name}"
    if not kinds or len(kinds) < len(names):
        raise ExplainError(
            f"key={short_repr(key)} does not name {whose}: write values by the names of columns, such as "
            f'{{"{next(iter(plain), "id")}": ...}}; they have {", ".join(plain)}'
        )
    return typed_key(kinds, key, whose, null_keys=True)


def _explanation(
    state: StageState, key: Mapping[str, Any], windows: Sequence[WindowExplained], joins: Sequence[JoinExplained]
) -> Explanation:
    manifest = state.manifest
    rejected_log = manifest.logs.get(REJECTED)
    return Explanation(
        pipeline=state.pipeline.name,
        snapshot=manifest.snapshot_id,
        epoch=manifest.epoch,
        stage=state.number,
        key=key,
        watermark=state.clocks.watermark,
        held_back_by=state.held_back,
        held_since=state.held_since,
        processing_time=state.clocks.processing_time,
        rejected=0 if rejected_log is None else rejected_log.rows,
        windows=windows,
        joins=joins,
    )


@dataclass(frozen=True)
class _KeyToExplain:
    state: StageState
    key: Mapping[str, Any]
    event_time: model_time.Instant | None
    since_epoch: int
    """The first epoch whose panes and late rows are looked at."""

    def explanation(self) -> Explanation:
        windows = sorted(self._explain_all(), key=lambda window: (window.window.end, window.window.start))
        closed_windows = [window for window in windows if window.status in (WindowStatus.EXPIRED, WindowStatus.MERGED)]
        earlier = closed_windows[:-SHOWN_WINDOWS] if self.event_time is None else []
        of_key = _as_printed(self.state.stage.stage.key_types, self.key)
        shown_windows = [window for window in windows if window not in earlier]
        joins = explain_joins(self.state, self._left_rows()) if self.state.number == 1 else []
        return replace(
            _explanation(self.state, of_key, shown_windows, joins), earlier=len(earlier), since=self.since_epoch
        )

    def _left_rows(self) -> AskedRows | None:
        """The rows of joins that are of the key, in the windows that are asked about; None: nobody can tell which."""
        joins, values = self.state.joins, dict[str, Any]()
        for name, expr in self.state.stage.stage.aggregation.key.items():
            if joins is None or not isinstance(expr, Column) or expr.name not in joins.joins[0].left:
                return None
            values[expr.name] = self.key[name]
        windows = self._assigned_windows()
        if not windows:
            return AskedRows(values)
        return AskedRows(values, min(window.start for window in windows), max(window.end for window in windows))

    def _explain_all(self) -> Iterator[WindowExplained]:
        """Windows of the state, and windows that are gone."""
        stored_windows = [*self._explain_stored()]
        yield from stored_windows
        stored_spans = [window.window for window in stored_windows]
        late = [window for window in self._late_windows if not any(_contains(outer, window) for outer in stored_spans)]
        gone_windows = {*self._panes, *late, *self._assigned_windows()} - {*stored_spans}
        yield from (self._explain_gone(window) for window in gone_windows if self._is_asked(window))

    def _is_asked(self, window: Window) -> bool:
        return self.event_time is None or window.start <= self.event_time < window.end

    def _explain_stored(self) -> Iterator[WindowExplained]:
        """The windows that are in the state."""
        state = self.state
        rows = self._state_rows()
        holder_text = "" if state.held_back is None else f", held back by {state.held_back}"
        is_open = rows.filter(pc.equal(rows.column(c.STATUS), c.STATUS_OPEN))
        readiness = Readiness(state.stage)
        so_far = values_so_far(state.stage, is_open)
        values = python_rows(pa.RecordBatch.from_pydict(so_far))
        verdicts = zip(
            withheld_reasons(state.stage, is_open, so_far), newest_withheld(state.stage, is_open), strict=True
        )
        of_open, newest = {}, {}
        lefts = is_open.column(c.NET).fill_null(0).to_pylist() if state.stage.counts_net else [None] * len(is_open)
        for facts, own, (holding, pane), left in zip(
            readiness.facts_of_windows(is_open, state.clocks, holder_text), values, verdicts, lefts, strict=True
        ):
            window = Window(model_time.Instant(facts.row[c.WINDOW_START]), facts.end)
            of_open[window] = Holding(own, facts.row[c.NEW], readiness.trigger_condition(facts), holding, left)
            newest[window] = pane
        for row in rows.select([c.WINDOW_START, c.WINDOW_END, c.STATUS, c.INDEX]).to_pylist():
            window = Window(model_time.Instant(row[c.WINDOW_START]), model_time.Instant(row[c.WINDOW_END]))
            if self._is_asked(window):
                status = WindowStatus.OPEN if window in of_open else WindowStatus.CLOSED
                explained_window = self._explain_window(window, status, row[c.INDEX], of_open.get(window))
                yield replace(explained_window, withheld=newest.get(window))

    def _explain_gone(self, window: Window) -> WindowExplained:
        """A window that is not in the state."""
        panes = self._panes.get(window, [])
        panes_emitted = sum(not pane["is_retraction"] for pane in panes)
        if self.state.clocks.watermark > self.state.stage.expiry_watermark(window.end):
            status = WindowStatus.EXPIRED
        else:
            status = WindowStatus.MERGED if panes else WindowStatus.ABSENT
        return self._explain_window(window, status, panes_emitted, None)

    def _explain_window(
        self, window: Window, status: WindowStatus, panes: int, holding: Holding | None
    ) -> WindowExplained:
        having_condition = self.state.stage.stage.aggregation.having
        late = None
        if self.state.number == 1:
            late = sum(count for own, count in self._late_windows.items() if _contains(window, own))
        return WindowExplained(
            window=window,
            status=status,
            expiry=self.state.stage.expiry_watermark(window.end),
            panes=panes,
            last_panes=self._panes.get(window, [])[-SHOWN_PANES:],
            late=late,
            holding=holding,
            having=None if having_condition is None else render(having_condition),
        )

    def _state_rows(self) -> pa.RecordBatch:
        state = self.state
        stage, schema = state.stage, state.stage.state_schema
        hashes = hash_keys([*self._key_columns.values()], 1)
        groups = groups_of(hashes)
        assert groups is not None
        batches = some_of(state.catalog.store, schema, state.layers, KeyGroupRange(*groups))
        rows = remaining_rows(stage, (rows_of(rows, np.asarray(hashes)) for rows in batches))
        for name, column in self._key_columns.items():
            rows = rows.filter(equals_value(rows.column(name), column[0]))
        return rows

    def _assigned_windows(self) -> list[Window]:
        """The windows that an element of the time that is asked about would be in, as far as that is known."""
        where = self.state.stage.where
        if self.event_time is None or isinstance(where, CustomWindows) or where.merges:
            return []
        times = pa.array([self.event_time], pa.int64())
        windows = assign_windows(where, times, self._key_columns, self.state.stage.stage.key_types)
        return [
            Window(model_time.Instant(start), model_time.Instant(end))
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
        stage = self.state.stage.stage
        names = [name for name in stage.value_types if name not in _WINDOW]
        pane_columns = [name for name in _ABOUT_PANES if not stage.gives_rows or name != "pane_index"]
        has_windows = not stage.gives_rows or stage.shows_windows
        panes: dict[Window, list[dict[str, Any]]] = {}
        # of windows that are not asked for nothing is said; windows of users' own code may have no ends
        time = None if isinstance(self.state.stage.where, CustomWindows) or not has_windows else self.event_time
        for row in replace(self._of_key, event_time=time).read_rows(
            View.PANES, [*(_WINDOW if has_windows else ()), *pane_columns, *names]
        ):
            values = {name: row[name] for name in names}
            of_no_window = {} if has_windows else dict.fromkeys(_WINDOW)
            others = of_no_window | {name: value for name, value in row.items() if name not in values}
            panes.setdefault(_pop_window(others), []).append({**others, "values": values})
        return panes

    @cached_property
    def _late_windows(self) -> dict[Window, int]:
        """How many elements of the key were dropped as late, by their windows; none but of the first aggregation."""
        return (
            Counter()
            if self.state.number > 1
            else Counter(map(_pop_window, self._of_key.read_rows(View.LATE, _WINDOW)))
        )

    @property
    def _of_key(self) -> KeyRows:
        """The rows of the key in views of the output."""
        types = self.state.stage.stage.key_types
        return KeyRows(self.state.catalog, self.state.manifest, self.key, types, self.since_epoch)


def _contains(window: Window, other: Window) -> bool:
    return window.start <= other.start and other.end <= window.end


def _pop_window(row: dict[str, Any]) -> Window:
    """The window of a row of a view, which is taken out of it."""
    start, end = row.pop(WINDOW_START), row.pop(WINDOW_END)
    if start is None and end is None:
        return GLOBAL_WINDOW
    return Window(
        model_time.MIN_INSTANT if start is None else _as_instant(start),
        model_time.GLOBAL_WINDOW_END if end is None else _as_instant(end),
    )


def _as_printed(kinds: Schema, key: Mapping[str, Any]) -> Mapping[str, Any]:
    """``key`` with a time that Python has no datetime for as text."""
    times = {name: value for name, value in key.items() if kinds[name] is DataType.TIMESTAMP and isinstance(value, int)}
    return {**key, **{name: model_time.iso_8601(value) for name, value in times.items()}}


def _as_instant(time: datetime | str) -> model_time.Instant:
    """A time of a row (``python_rows``)."""
    return model_time.parse_instant(time) if isinstance(time, str) else model_time.to_instant(time)


def _parse_window_time(window: str | datetime) -> model_time.Instant:
    try:
        time = time_from_text(window) if isinstance(window, str) else window
        return model_time.to_instant(time) if isinstance(time, datetime) else model_time.Instant(time)
    except (ValueError, TypeError) as error:
        raise ExplainError(
            f"window={short_repr(window)} is not a time: write a time in it, or its start, with a time zone, such as "
            "2026-11-21T10:00:00Z"
        ) from error
