"""Why windows of a key have fired or not, and rows that ``having`` withholds, in words and as JSON.

Rows that ``having`` withholds (semantics 9.10): which they are, and why.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pyarrow as pa

from headrace.kernel.expressions.evaluation import column
from headrace.kernel.grouping import Ints, of_lists
from headrace.kernel.stage import CompiledStage
from headrace.kernel.types import timestamps
from headrace.model.accumulation import WINDOW_END, WINDOW_START
from headrace.model.expressions.expr import render as render_expression
from headrace.model.expressions.trees import columns_of
from headrace.model.time import END_OF_CALENDAR, GLOBAL_WINDOW_END, NEVER, Instant, is_finite
from headrace.model.time import render as render_instant
from headrace.model.triggers.trigger import ASKED
from headrace.model.windows import Window
from headrace.program import columns as c
from headrace.read.explain.waiting import TriggerCondition
from headrace.read.shown_values import json_value
from headrace.read.views.arrow_types import python_rows

Columns = Mapping[str, pa.Array]


@dataclass(frozen=True)
class Withheld:
    """Why a row does not leave: the ``condition``, which is false or NULL of it, and the ``values`` that it reads."""

    condition: str
    is_null: bool
    values: Mapping[str, Any]

    def __str__(self) -> str:
        read = ", ".join(f"{name} = {value}" for name, value in self.values.items())
        return f"having {self.condition} is {'NULL' if self.is_null else 'false'}{f' of {read}' if read else ''}"

    def to_json(self) -> dict[str, Any]:
        """A JSON value."""
        return {"condition": self.condition, "is_null": self.is_null, "values": json_value(self.values)}


def withheld(stage: CompiledStage, windows: pa.RecordBatch, so_far: Columns) -> list[Withheld | None]:
    """Why a row of what each of the open ``windows`` holds ``so_far`` would not leave; None: it would."""
    window = {WINDOW_START: windows.column(c.WINDOW_START), WINDOW_END: windows.column(c.WINDOW_END)}
    return _verdicts(stage, {**_keys(stage, windows), **so_far, **window}, windows.num_rows)


def newest_withheld(stage: CompiledStage, windows: pa.RecordBatch) -> list[Withheld | None]:
    """Why the newest pane of each of the open ``windows``, as far as they remember it, did not leave; None: it did,
    there is none, or panes are not remembered.
    """
    verdicts: list[Withheld | None] = [None] * windows.num_rows
    if stage.stage.aggregation.having is None or not stage.remembers:
        return verdicts
    panes, groups = of_lists(windows.column(c.LIVE))
    row: Ints = groups.of_row
    keys = {name: values.take(pa.array(row)) for name, values in _keys(stage, windows).items()}
    values = {name: panes.field(name) for name in (*stage.stage.value_types, WINDOW_START, WINDOW_END)}
    for number, verdict in zip(row.tolist(), _verdicts(stage, {**keys, **values}, len(panes)), strict=True):
        verdicts[number] = verdict
    return verdicts


def _keys(stage: CompiledStage, windows: pa.RecordBatch) -> dict[str, pa.Array]:
    return {name: windows.column(name) for name in stage.keys}


def _verdicts(stage: CompiledStage, rows: Columns, length: int) -> list[Withheld | None]:
    condition = stage.stage.aggregation.having
    if condition is None:
        return [None] * length
    stamped = {name: timestamps(rows[name]) for name in (WINDOW_START, WINDOW_END)}
    row = {**rows, **stamped}
    answers = column(condition, row, stage.stage.pane_schema, length).to_pylist()
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
    expiry: Instant
    panes: int
    last_panes: Sequence[Mapping[str, Any]] = ()
    late: int | None = None
    holding: Holding | None = None
    withheld: Withheld | None = None
    having: str | None = None

    def lines(self) -> Iterator[str]:
        """In words."""
        fired = "" if self.status is WindowStatus.ABSENT else f": {self.status}, {self._fired()}"
        yield f"window {written(self.window)}{fired}"
        if self.withheld is not None:
            yield f"  readers do not see its newest pane: {self.withheld}"
        if self.holding is not None:
            yield from _indented(_held(self.holding))
        yield from _indented(self._ended())
        for pane in self.last_panes:
            kind = "withdrawn" if pane["is_retraction"] else str(pane["timing"]).lower().replace("_", " ")
            values = ", ".join(f"{name} = {value}" for name, value in pane["values"].items())
            yield f"  pane {pane['pane_index']}, {kind}, of epoch {pane['epoch']}: {values}"
        if self.late:
            elements = "element was" if self.late == 1 else "elements were"
            yield f"  {self.late:,} {elements} dropped: too late for it (headrace read --view late)"

    def _fired(self) -> str:
        if not self.panes:
            if self.status is WindowStatus.OPEN:
                return "has not fired"
            return "without a pane" if self.having is None else f"without a pane of which having {self.having} was true"
        return f"has fired {self.panes:,} pane{'s' if self.panes > 1 else ''}"

    def _ended(self) -> Iterator[str]:
        expires = "never" if self.expiry >= NEVER else f"once the watermark passes {self._expires()}"
        match self.status:
            case WindowStatus.OPEN:
                gives = ": it gives what no pane has shown by then; elements after that are late"
                yield f"expires {expires}{'' if self.expiry >= NEVER else gives}"
            case WindowStatus.CLOSED:
                yield (
                    "its trigger has finished: elements that still come for it are dropped, and it is forgotten "
                    f"{expires}"
                )
            case WindowStatus.EXPIRED:
                yield f"the watermark has passed {self._expires()}: elements that still come for it are late"
            case WindowStatus.MERGED:
                yield "it is part of a larger window now"
            case WindowStatus.ABSENT:
                yield "no element of this key has come into it"

    def _expires(self) -> str:
        at = Instant(self.expiry + 1)
        return "the year 9999" if END_OF_CALENDAR < at < GLOBAL_WINDOW_END else render_instant(at)

    def to_json(self) -> dict[str, Any]:
        """A JSON value."""
        holding = self.holding
        own: dict[str, Any] = {
            "window_start": _time(self.window.start),
            "window_end": _time(self.window.end),
            "status": self.status.value,
            "expires": _time(Instant(self.expiry + 1)),
            "panes": self.panes,
            "last_panes": json_value(self.last_panes),
            "late": self.late,
        }
        if self.having is not None:
            own |= {"having": self.having, "withheld": None if self.withheld is None else self.withheld.to_json()}
        if holding is None:
            return own
        held: dict[str, Any] = {"so_far": json_value(holding.so_far), "new_elements": holding.new_elements}
        held |= {} if holding.left is None else {"left": holding.left}
        return {**own, **held, "waits_for": holding.trigger.waits_for or ASKED, "trigger": holding.trigger.to_json()}


@dataclass(frozen=True, repr=False)
class Explanation:
    """What a snapshot knows of the windows of a ``key``. ``held_back_by``: who holds the watermark back, in words,
    and ``held_since`` when an input last moved it on, in processing time;
    ``rejected``: how many records of all keys are dead letters; ``earlier``: how many windows that have expired, or are
    part of others, are left out; ``since``: the first epoch whose panes and late records were looked at.
    """

    pipeline: str
    snapshot: str
    epoch: int
    stage: int
    key: Mapping[str, Any]
    watermark: Instant
    held_back_by: str | None
    held_since: Instant | None
    processing_time: Instant
    rejected: int
    windows: Sequence[WindowExplained]
    earlier: int = 0
    since: int = 0

    def lines(self) -> Iterator[str]:
        """In words."""
        key = ", ".join(f"{name} = {value}" for name, value in self.key.items()) or "no key"
        yield f"{self.pipeline} at snapshot {self.snapshot} (epoch {self.epoch}), aggregation {self.stage}: {key}"
        holder = "" if self.held_back_by is None else f", held back by {self.held_back_by}"
        since = "" if self.held_since is None else f"; it last moved on at {render_instant(self.held_since)}"
        yield f"the watermark stands at {render_instant(self.watermark)}{holder}{since}"
        yield f"the newest epoch ran at {render_instant(self.processing_time)}"
        for window in self.windows:
            yield ""
            yield from window.lines()
        if self.earlier:
            yield ""
            yield f"{self.earlier:,} windows before them are over; ask for one of them by a time in it"
        if self.since:
            yield ""
            yield (
                f"panes and late records of epochs before {self.since:,} are left out; ask for a window by a time in it"
            )
        if not self.windows and not self.since:
            yield ""
            yield "no element with this key has ever come into a window"
        if self.rejected and all(window.holding is None for window in self.windows):
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
        }

    def __repr__(self) -> str:
        return "\n".join(self.lines())


def written(window: Window) -> str:
    """A window as people write it."""
    start, end = (render_instant(at) if is_finite(at) else "" for at in (window.start, window.end))
    return f"[{start}, {end})" if start or end else "of all time"


def _time(at: Instant) -> str | None:
    return render_instant(at) if is_finite(at) and at <= END_OF_CALENDAR else None


def _held(holding: Holding) -> Iterator[str]:
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
    yield from _indented(_tree(holding.trigger))
    if holding.trigger.waits_for is None:
        yield f"  waits for {ASKED}"


def _tree(condition: TriggerCondition) -> Iterator[str]:
    """A node and its parts: [x] is met, [ ] is not."""
    part = f"{condition.part}: " if condition.part else ""
    yield f"[{'x' if condition.is_met else ' '}] {part}{condition.condition}"
    if condition.waits_for is not None and not condition.parts:
        yield f"    waits for {condition.waits_for}"
    for child in condition.parts:
        yield from (f"    {line}" for line in _tree(child))


def _indented(lines: Iterator[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)
