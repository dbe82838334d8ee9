"""Open windows: what their state holds, what they wait for, and the view of them.

``StageState`` is the state of one aggregation in a snapshot: its windows, and the clocks under which they wait.

``condition`` says of each node of a trigger whether it is ready, and what would make it so. Whether it is ready is
asked of the program that epochs run (``Readiness``); here are only the words.

``OpenWindows`` is the view ``state``: what open windows hold, have emitted, and wait for. It is no result: readers who
rely on it would rely on what may still change.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, singledispatch
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.distribute.chain import Chain, StageClocks
from headrace.distribute.watermark_inputs import source_clocks
from headrace.errors import FixConfigError
from headrace.kernel.columns import TIMESTAMP, to_timestamps
from headrace.kernel.expressions.evaluation import evaluate
from headrace.kernel.firing import aggregate_results
from headrace.kernel.stage import CompiledStage
from headrace.kernel.state import newest_rows, present_rows
from headrace.model.accumulation import WINDOW_END, WINDOW_START
from headrace.model.expressions.columns import coalesce
from headrace.model.expressions.expr import Expr, col
from headrace.model.time import END_OF_CALENDAR, NEVER, Instant
from headrace.model.triggers import Trigger
from headrace.model.triggers.composites import AfterAll, AfterAny, AfterEach, AfterWatermark, OrFinally, Repeatedly
from headrace.model.triggers.elementary import WAITS_FOR_ELEMENT, WATERMARK_PASSES, TriggerProgress, missing
from headrace.model.triggers.elementary import condition as condition_of
from headrace.pipeline.identity import fingerprint
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.rows import BUCKET
from headrace.program import columns as c
from headrace.program.columns import Program
from headrace.program.triggers.leaves import DataNode
from headrace.program.triggers.node import Moment, Node, columns
from headrace.read.definition_plan import describe_changes, plan_definition_change
from headrace.read.snapshots.progress import StoredProgress, progress_of
from headrace.read.snapshots.snapshot_refs import ways_out
from headrace.read.views.columns import STATE
from headrace.read.views.conditions import QueryError
from headrace.read.views.row_files import parquet_rows_sql
from headrace.sources.source_clock import SourceClock
from headrace.state.chunks import KeyGroupRange, key_group_ranges
from headrace.state.file_cache import LayerCache, RowCache
from headrace.state.layers import open_rows
from headrace.this_process import Size
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.files import Layer
from headrace_snapshots.format.manifest import UNNAMED, Manifest

if TYPE_CHECKING:
    import duckdb

    from headrace.kernel.joins.sides import CompiledJoins
    from headrace.read.views.conditions import RowCondition


PART_ROWS: Final = Size(200_000)
PART_BYTES: Final = 16 * 2**20
"""Rows, and bytes of their files, that are looked at at a time."""


class StateDefinitionError(FixConfigError, code="config.state_definition"):
    """State can be read only with the definition of the pipeline that made it."""


@dataclass(frozen=True)
class StageState:
    """The state of aggregation ``number``, counted from 1, of a pipeline at ``manifest``, which ``pipeline`` made."""

    catalog: Catalog
    manifest: Manifest
    pipeline: Pipeline
    number: int

    def __post_init__(self) -> None:
        check_number(self.pipeline, self.number)
        if self.manifest.fingerprint != fingerprint(self.pipeline):
            change_text = describe_changes(plan_definition_change(self.pipeline, self.manifest).changes)
            raise StateDefinitionError(
                f"pipeline {self.pipeline.name} has changed since snapshot {self.manifest.snapshot_id} (epoch "
                f"{self.manifest.epoch}): {change_text}. Its state can be read only by the definition that made it: "
                "take the change back to look at it"
            )

    @cached_property
    def stage(self) -> CompiledStage:
        return CompiledStage(self.pipeline.stages[self.number - 1])

    @property
    def clocks(self) -> StageClocks:
        """Its clocks behind the snapshot's epoch."""
        return self._all_clocks[self.number - 1]

    @cached_property
    def _inputs(self) -> Mapping[str, SourceClock]:
        return source_clocks(self.pipeline, progress_of(self.catalog, self.manifest).inputs)

    @cached_property
    def _chain(self) -> Chain:
        return Chain.from_pipeline(self.pipeline)

    @cached_property
    def _all_clocks(self) -> tuple[StageClocks, ...]:
        return self._chain.stage_clocks(progress_of(self.catalog, self.manifest), self._inputs)

    @property
    def joins(self) -> "CompiledJoins | None":
        """The joins above its first aggregation, None if there are none."""
        return self._chain.joins

    @property
    def watermark_above_joins(self) -> Instant:
        """The watermark that comes to the first of them; where outputs are joined a lower bound of it."""
        if not self.pipeline.upstream:
            return self.progress.watermark
        return self._chain.before_joins(self._all_clocks[0].watermark)

    def watermark_of(self, name: str) -> Instant:
        """The watermark of the input of that name."""
        return self._inputs[name].watermark

    @cached_property
    def progress(self) -> StoredProgress:
        """All clocks of the snapshot."""
        return StoredProgress.from_manifest(self.manifest)

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Its table, oldest layer first."""
        return self.manifest.tables.get(UNNAMED.state_table(self.number - 1), ())

    @property
    def bytes(self) -> int:
        return sum(layer.bytes for layer in self.layers)

    @property
    def parts(self) -> tuple[KeyGroupRange, ...]:
        """All keys, in parts that fit into memory."""
        rows = sum(layer.rows for layer in self.layers)
        return key_group_ranges(1 + max(rows // PART_ROWS.value, self.bytes // PART_BYTES))

    def read_windows(self, cache: RowCache, part: KeyGroupRange) -> pa.RecordBatch:
        """The rows of the windows of ``part``, open and closed. Raises BrokenObjectError."""
        schema = self.stage.state_schema
        row_layers = [open_rows(cache, self.catalog.store, schema, layer, part) for layer in self.layers]
        return present_rows(newest_rows(self.stage, [run.rows for layer in row_layers for run in layer.runs]))

    @property
    def held_back(self) -> str | None:
        """Who holds the watermark of the aggregation back, in words; None where nobody is known to."""
        outputs = self.progress.chain.output_watermarks
        watermarks = (self.progress.watermark_of(self.progress.chain), *outputs)
        for number in range(self.number, 1, -1):  # of aggregation n it is what n - 1 lets through
            if outputs and watermarks[number - 1] < watermarks[number - 2]:
                return f"windows of aggregation {number - 1} that wait"
        return "what is in flight in the loop" if self._waits_for_loop else self.inputs_held_back

    @property
    def inputs_held_back(self) -> str | None:
        """Who holds the watermark of the inputs back, in words; None where nobody is known to."""
        held_to = self.progress.held_to
        if held_to is not None and self.progress.watermark >= held_to.watermark:
            return "main, whose watermark a backfill does not pass"
        holder = self.progress.held_back_by
        if holder is None:
            return None
        (event_time,) = [input_.event_time for input_ in self.pipeline.inputs if input_.name == holder.input]
        split = "" if holder.split is None or event_time.split is None else f"split {holder.split!r} of "
        return f"{split}input {holder.input!r}"

    @property
    def held_since(self) -> Instant | None:
        """The processing time at which the one who holds the inputs' watermark back last moved it on. None if nobody
        holds it back, or if that does not hold back what the aggregation goes by.
        """
        holder = None if self._waits_for_loop else self.progress.held_back_by
        return None if holder is None else holder.since

    @property
    def _waits_for_loop(self) -> bool:
        """Whether something is in flight in a window that the inputs have passed (13.5)."""
        if self.pipeline.loop is None or not self.manifest.tables.get(UNNAMED.in_flight):
            return False
        return self._all_clocks[0].watermark < min(clock.watermark for clock in self._inputs.values())


def check_number(pipeline: Pipeline, number: int) -> None:
    """Raise StateDefinitionError unless ``pipeline`` has an aggregation of that number."""
    there_are = len(pipeline.stages)
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= there_are:
        raise StateDefinitionError(
            f"stage={number!r} is none of the aggregations of {pipeline.name}: they are counted from 1 to {there_are}"
        )


def check_windows(pipeline: Pipeline) -> None:
    """Raise StateDefinitionError if ``pipeline`` has no windows."""
    if pipeline.stages[0].is_stateless:
        kept_text = "what its joins keep is said by `headrace explain`" if pipeline.join else "nothing is kept"
        raise StateDefinitionError(
            f"pipeline {pipeline.name} gives rows as they are: there are no windows, {kept_text}, and nothing waits. "
            "Read its views, such as panes"
        )


_TRIGGER_TEXTS: Mapping[type[Trigger], str] = {
    AfterWatermark: "around the end of the window",
    Repeatedly: "again and again",
    AfterAny: "any of these",
    AfterAll: "all of these at the same moment",
    AfterEach: "each of these in turn",
    OrFinally: "the first of these, until the other ends it",
}
"""A trigger that has parts, where these are told one by one."""


@dataclass(frozen=True)
class TriggerCondition:
    """A node of a trigger. ``is_met``: it is ready, or has fired for good; ``waits_for``: what would make it ready,
    None if it is met or nobody asks it now; ``part``: what it is of the node above it, if that has parts of its own.
    """

    condition: str
    is_met: bool
    waits_for: str | None
    parts: tuple["TriggerCondition", ...] = ()
    part: str = ""

    def to_json(self) -> dict[str, Any]:
        """A JSON value."""
        return {
            **({"part": self.part} if self.part else {}),
            "condition": self.condition,
            "is_met": self.is_met,
            "waits_for": self.waits_for,
            "parts": [part.to_json() for part in self.parts],
        }


@dataclass(frozen=True)
class WindowFacts:
    """What is known of one window: its row of state, the clocks, which nodes are ready, which have finished,
    what data-driven ones have seen (``totals``). ``holder_text``: who holds the watermark back, in words.
    """

    row: Mapping[str, Any]
    clocks: StageClocks
    ready_by_node: Mapping[str, bool]
    finished_by_node: Mapping[str, bool]
    totals: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    holder_text: str = ""

    @property
    def end(self) -> Instant:
        return Instant(self.row[c.WINDOW_END])

    def is_met(self, node: Node) -> bool:
        """Whether ``node`` is ready, or has fired for good."""
        return self.ready_by_node[node.path] or self.finished_by_node[node.path]

    @property
    def passed_end(self) -> bool:
        """Whether the watermark has passed the end of the window."""
        return self.clocks.watermark > self.end - 1

    def trigger_progress(self, node: Node) -> TriggerProgress:
        """What is known of ``node``."""
        clocks = self.clocks
        times = (self.end, clocks.watermark, clocks.processing_time, clocks.percentiles)
        return TriggerProgress(node.state_values(self.row), self.totals.get(node.path, {}), *times, self.holder_text)


@dataclass(frozen=True)
class Questions:
    """A program, and its results: of each node by its path whether it is ready, has finished, has seen what."""

    program: Program
    ready_by_node: Mapping[str, Expr]
    finished_by_node: Mapping[str, Expr]
    totals: Mapping[str, Mapping[str, Expr]]


@dataclass(frozen=True)
class Readiness:
    """The trigger of ``stage``, to be asked of rows of its state."""

    stage: CompiledStage

    @cached_property
    def _questions(self) -> Questions:
        program, root = Program(), self.stage.trigger
        end = col(c.WINDOW_END) - 1
        percentiles = {q: col(f"{c.PERCENTILE_AFTER}{i}") > end for i, q in enumerate(sorted(root.percentiles))}
        moment = Moment(col(c.WATERMARK_AFTER) > end, col(c.PROCESSING_TIME), percentiles)
        state, nodes = columns(root), [*_all_nodes(root)]
        return Questions(
            program,
            {node.path: node.is_ready(program, state, moment) for node in nodes},
            {node.path: node.is_finished(state) for node in nodes},
            {node.path: node.results for node in nodes if isinstance(node, DataNode)},
        )

    @property
    def _decisive(self) -> list[str]:
        """The columns that all answers depend on."""
        return [c.WINDOW_START, c.WINDOW_END, *(field.name for field in self.stage.trigger.fields)]

    def describe_waits(self, rows: pa.RecordBatch, clocks: StageClocks) -> list[str]:
        """What each of ``rows``, which are state of open windows, waits for; worked out once for all that are alike."""
        decisive_rows = list(zip(*(rows.column(name).to_pylist() for name in self._decisive), strict=True))
        first: dict[tuple[Any, ...], int] = {}
        for number, decisive in enumerate(decisive_rows):
            first.setdefault(decisive, number)
        window_facts = self.facts_of_windows(
            rows.select([*self._decisive, c.NEW]).take(pa.array([*first.values()], pa.int64())), clocks
        )
        reasons = dict(zip(first, (waits_for(self.trigger_condition(facts)) for facts in window_facts), strict=True))
        return [reasons[decisive] for decisive in decisive_rows]

    def facts_of_windows(
        self, rows: pa.RecordBatch, clocks: StageClocks, holder_text: str = ""
    ) -> Iterator[WindowFacts]:
        """What is known of each of ``rows``, which are state of open windows, under ``clocks``."""
        questions_asked = self._questions
        known_columns: dict[str, Any] = {name: rows.column(name) for name in rows.schema.names}
        times = {c.WATERMARK_AFTER: clocks.watermark, c.PROCESSING_TIME: clocks.processing_time}
        for i, q in enumerate(sorted(self.stage.trigger.percentiles)):
            times[f"{c.PERCENTILE_AFTER}{i}"] = max(clocks.percentiles.get(q, clocks.watermark), clocks.watermark)
        known_columns |= {name: pa.scalar(int(time), pa.int64()) for name, time in times.items()}
        for name, expr in questions_asked.program.lets.items():
            known_columns[name] = evaluate(expr, known_columns)

        def answer_questions(questions: Mapping[str, Expr]) -> list[dict[str, Any]]:
            """The answers for each row, by the names of the questions."""
            answers = [_values_by_row(evaluate(expr, known_columns), rows.num_rows) for expr in questions.values()]
            return [dict(zip(questions, of_row, strict=True)) for of_row in zip(*answers, strict=True)]

        ready_answers, finished_answers = (
            answer_questions({name: coalesce(expr, False) for name, expr in questions.items()})
            for questions in (questions_asked.ready_by_node, questions_asked.finished_by_node)
        )
        totals = {path: answer_questions(results) for path, results in questions_asked.totals.items()}
        for number, row in enumerate(rows.select([*self._decisive, c.NEW]).to_pylist()):
            totals_here = {path: of_rows[number] for path, of_rows in totals.items()}
            yield WindowFacts(row, clocks, ready_answers[number], finished_answers[number], totals_here, holder_text)

    def trigger_condition(self, facts: WindowFacts) -> TriggerCondition:
        """The whole trigger of a window."""
        return condition(self.stage.stage.when, self.stage.trigger, facts)


def waits_for(tree: TriggerCondition) -> str:
    """What a whole trigger waits for."""
    return tree.waits_for or WAITS_FOR_ELEMENT


@singledispatch
def condition(trigger: Trigger, node: Node, facts: WindowFacts) -> TriggerCondition:
    """``trigger``, compiled to ``node``, in a window of which ``facts`` are known."""
    return _condition_without_parts(trigger, node, facts)


def _condition_without_parts(trigger: Trigger, node: Node, facts: WindowFacts) -> TriggerCondition:
    is_met = facts.is_met(node)
    return TriggerCondition(
        condition_of(trigger), is_met, None if is_met else missing(trigger, facts.trigger_progress(node))
    )


@condition.register
def _(trigger: AfterWatermark, node: Node, facts: WindowFacts) -> TriggerCondition:
    if not trigger.children:
        return _condition_without_parts(trigger, node, facts)
    has_passed = bool(facts.row[f"{node.path}_late_phase"])
    end = None if has_passed or facts.passed_end else missing(trigger, facts.trigger_progress(node))
    on_time = TriggerCondition(WATERMARK_PASSES, facts.passed_end, end, part="on time")
    nodes = iter(node.children)
    parts = [on_time]
    if trigger.early is not None:
        early = condition(trigger.early, next(nodes), facts)
        parts.insert(0, _as_part(early, "early", is_asked=not has_passed))
    if trigger.late is not None:
        parts.append(_as_part(condition(trigger.late, next(nodes), facts), "late", is_asked=has_passed))
    waiting = [f"{part.part}: {part.waits_for}" for part in parts if part.waits_for]
    return TriggerCondition(
        _TRIGGER_TEXTS[AfterWatermark], facts.is_met(node), "; or ".join(waiting) or None, tuple(parts)
    )


@condition.register
def _(trigger: Repeatedly, node: Node, facts: WindowFacts) -> TriggerCondition:
    part = condition(trigger.trigger, node.children[0], facts)
    return TriggerCondition(_TRIGGER_TEXTS[Repeatedly], facts.ready_by_node[node.path], part.waits_for, (part,))


@condition.register
def _(trigger: AfterAny, node: Node, facts: WindowFacts) -> TriggerCondition:
    return _of_several(trigger, node, facts, trigger.triggers, ", or ")


@condition.register
def _(trigger: AfterAll, node: Node, facts: WindowFacts) -> TriggerCondition:
    return _of_several(trigger, node, facts, trigger.triggers, ", and at the same moment ")


@condition.register
def _(trigger: OrFinally, node: Node, facts: WindowFacts) -> TriggerCondition:
    main, until_condition = (
        condition(part, child, facts) for part, child in zip(trigger.children, node.children, strict=True)
    )
    until_condition = _as_part(until_condition, "for the last time", is_asked=True)
    waiting = [part.waits_for for part in (main, until_condition) if part.waits_for]
    return _composite_condition(trigger, node, facts, ", or ".join(waiting), (main, until_condition))


@condition.register
def _(trigger: AfterEach, node: Node, facts: WindowFacts) -> TriggerCondition:
    parts: list[TriggerCondition] = []
    is_asked = True
    for number, (part, child) in enumerate(zip(trigger.triggers, node.children, strict=True), start=1):
        parts.append(_as_part(condition(part, child, facts), f"number {number}", is_asked=is_asked))
        is_asked = is_asked and facts.finished_by_node[child.path]
    return _composite_condition(
        trigger, node, facts, next((p.waits_for for p in parts if p.waits_for), None), tuple(parts)
    )


def _of_several(
    trigger: Trigger, node: Node, facts: WindowFacts, triggers: Iterable[Trigger], joint: str
) -> TriggerCondition:
    parts = tuple(condition(part, child, facts) for part, child in zip(triggers, node.children, strict=True))
    waiting = joint.join(part.waits_for for part in parts if part.waits_for)
    return _composite_condition(trigger, node, facts, waiting, parts)


def _composite_condition(
    trigger: Trigger, node: Node, facts: WindowFacts, waiting: str | None, parts: tuple[TriggerCondition, ...]
) -> TriggerCondition:
    is_met = facts.is_met(node)
    return TriggerCondition(_TRIGGER_TEXTS[type(trigger)], is_met, None if is_met else waiting or None, parts)


def _as_part(tree: TriggerCondition, part: str, *, is_asked: bool) -> TriggerCondition:
    """``tree`` as a part of the node above it; what nobody asks now waits for nothing."""
    return replace(tree if is_asked else _without_waits(tree), part=part)


def _without_waits(tree: TriggerCondition) -> TriggerCondition:
    """``tree``, and its parts, without what they wait for."""
    return replace(tree, waits_for=None, parts=tuple(map(_without_waits, tree.parts)))


def _all_nodes(root: Node) -> Iterator[Node]:
    yield root
    for child in root.children:
        yield from _all_nodes(child)


def _values_by_row(value: Any, length: int) -> list[Any]:
    return [value.as_py()] * length if isinstance(value, pa.Scalar) else list(value.to_pylist())


ROWS_TAKEN = "_rows_taken"
STAGE, NEW, PANES, NOT_EARLY = "_stage", "_new_elements", "_panes", "_panes_not_early"
WAITS_FOR, DUE_WATERMARK, DUE_TIME, EPOCH = "_waits_for", "_due_watermark", "_due_time", "_epoch"


_NO_LIMIT = 2**62


def state_columns(pipeline: Pipeline, number: int) -> pa.Schema:
    """The columns of the view for aggregation ``number``: key, aggregates so far, window, and what Headrace says of it,
    whose names begin with _. Rows of groups have ``_rows_taken`` in the place of aggregates: how many leave.

    ``_stage`` is the number of the aggregation; ``_new_elements`` counts what came since the last pane, ``_panes``
    those that the window has emitted, and ``_panes_not_early`` those among them on time or late; ``_waits_for`` says
    what its trigger waits for, in words; ``_due_watermark`` and ``_due_time`` are the watermark and the processing time
    at which the window is asked next, whatever comes; ``_epoch`` is the epoch that changed it last.
    """
    panes = CompiledStage(pipeline.stages[number - 1]).pane_schema
    own = pipeline.stages[number - 1]
    values = [(ROWS_TAKEN, pa.int64())] if own.gives_rows else [panes.field(name) for name in own.value_types]
    return pa.schema(
        [
            *(panes.field(name) for name in own.key_types if name != BUCKET),
            *values,
            (WINDOW_START, TIMESTAMP),
            (WINDOW_END, TIMESTAMP),
            (STAGE, pa.int64()),
            (NEW, pa.int64()),
            (PANES, pa.int64()),
            (NOT_EARLY, pa.int64()),
            (WAITS_FOR, pa.string()),
            (DUE_WATERMARK, TIMESTAMP),
            (DUE_TIME, TIMESTAMP),
            (EPOCH, pa.int64()),
        ]
    )


def open_only(windows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of state that belong to open windows."""
    return windows.filter(pc.equal(windows.column(c.STATUS), c.STATUS_OPEN))


def values_so_far(stage: CompiledStage, windows: pa.RecordBatch) -> dict[str, pa.Array]:
    """Aggregates of open ``windows``; discarding: since the last pane; rows of groups: how many are taken."""
    rows = {name: windows.column(name) for name in windows.schema.names}
    every = np.arange(windows.num_rows)
    so_far = aggregate_results(stage, rows, every, np.zeros(len(every), np.bool_))
    if stage.stage.gives_rows:
        return {ROWS_TAKEN: pc.list_value_length(so_far[c.ROWS]).cast(pa.int64())}
    return {name: values.cast(stage.pane_type.field(name).type) for name, values in so_far.items()}


@dataclass(frozen=True)
class OpenWindows:
    """The rows of the view. ``state`` is None where there is no snapshot; ``ref``: by what it was found."""

    catalog: Catalog
    pipeline: Pipeline
    number: int
    state: StageState | None
    ref: str | None

    @cached_property
    def columns(self) -> pa.Schema:
        return state_columns(self.pipeline, self.number)

    @property
    def column_names(self) -> Sequence[str]:
        return [*self.columns.names]

    @property
    def keys(self) -> Sequence[str]:
        return [name for name in self.pipeline.stages[self.number - 1].key_types if name != BUCKET]

    @property
    def order(self) -> Sequence[str]:
        """By window and key."""
        return [WINDOW_START, *self.keys, WINDOW_END]

    rows = None
    identity = None

    @property
    def bytes_to_read(self) -> int:
        """The length of all files of state."""
        return 0 if self.state is None else self.state.bytes

    def with_first_rows(self, rows: int) -> "OpenWindows":
        """All of them: they are worked out."""
        del rows
        return self

    def where(self, condition: "RowCondition") -> "OpenWindows":
        """All of them: they are worked out."""
        del condition
        return self

    def describe(self) -> str:
        """What they are not."""
        return "open windows, which may still change and are no results"

    def file_locations(self) -> list[str]:
        """Raise QueryError: there are none for other readers."""
        raise QueryError(
            f"the files of {STATE} are the engine's own; `headrace read --view {STATE}` shows what they hold"
        )

    def verify(self) -> None:
        """Nothing: there are none for other readers."""

    def fetch_files(self, folder: Path) -> list[Path]:
        """The rows as files of ``folder``, worked out a part of the keys at a time; files of state are verified."""
        if self.state is None:
            return []
        paths = []
        cache = LayerCache(folder / "state", _NO_LIMIT)
        with ways_out(self.catalog, self.ref or ""):
            for number, part in enumerate(self.state.parts):
                windows = open_only(self.state.read_windows(cache, part))
                if windows.num_rows:
                    paths.append(folder / f"{number:06}.parquet")
                    pq.write_table(pa.Table.from_batches([self._view_rows(windows)]), paths[-1])
        return paths

    def relation(self, connection: "duckdb.DuckDBPyConnection", files: Sequence[Path]) -> "duckdb.DuckDBPyRelation":
        """The rows, as ``fetch_files`` wrote them."""
        if not files:
            return self.no_rows(connection)
        return connection.sql(f"select * from {parquet_rows_sql(files)}")

    def no_rows(self, connection: "duckdb.DuckDBPyConnection") -> "duckdb.DuckDBPyRelation":
        """An empty batch with the types of the view."""
        return connection.from_arrow(self.columns.empty_table())

    def _view_rows(self, windows: pa.RecordBatch) -> pa.RecordBatch:
        assert self.state is not None
        stage = self.state.stage
        columns = {name: windows.column(name) for name in stage.record_keys}
        columns |= values_so_far(stage, windows)
        columns |= {
            WINDOW_START: to_timestamps(windows.column(c.WINDOW_START)),
            WINDOW_END: to_timestamps(windows.column(c.WINDOW_END)),
            STAGE: pa.repeat(pa.scalar(self.number, pa.int64()), windows.num_rows),
            NEW: windows.column(c.NEW),
            PANES: windows.column(c.INDEX),
            NOT_EARLY: windows.column(c.NONSPECULATIVE),
            WAITS_FOR: pa.array(Readiness(stage).describe_waits(windows, self.state.clocks), pa.string()),
            DUE_WATERMARK: _in_calendar(pc.add(windows.column(c.DUE_EVENT), 1)),
            DUE_TIME: _in_calendar(windows.column(c.DUE_TIME)),
            EPOCH: windows.column(c.EPOCH),
        }
        schema = self.columns
        return pa.RecordBatch.from_arrays([columns[field.name].cast(field.type) for field in schema], schema=schema)


def _in_calendar(dues: pa.Array) -> pa.Array:
    """When rows are due, NULL for never, and for what no calendar names."""
    return to_timestamps(pc.if_else(pc.less_equal(dues, int(END_OF_CALENDAR)), dues, int(NEVER)))
