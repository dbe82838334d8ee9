"""A part of a stage in an epoch, and the rounds of a loop: computed, result by result, and stored.

A result of a stage (``state.layers``) is stored before the next one is computed; panes go to the stage below.

One task has all parts of the graph of a loop (semantics 13), since a micro-batch touches little of it. In the barrier
protocol it is a task with two inputs. Edges come on one, and what goes round on the other, its back-edge. A bundle of
edges is a record, and so is what a round sends. Its barrier comes after the last round, when it takes its part of the
snapshot; what is on the back-edge then comes ahead of the barrier that goes round, and is logged. The next epoch
delivers first what was logged.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headrace.distribute.chain import Chain, ChainState, StageClocks
from headrace.distribute.tasks import tables, task_results
from headrace.distribute.tasks.exchange import ShuffleInput, build_shuffle_input, deltas_of, shuffle_elements
from headrace.distribute.tasks.map_side import Bundles
from headrace.distribute.tasks.plan import EpochPlan, EpochTask, address_bundles, of_chain
from headrace.distribute.views import dead_panes
from headrace.distribute.watermark_inputs import WatermarkUpdate, combine_observations, watermark_update
from headrace.ext.stores import do_both
from headrace.kernel.columns import as_numpy
from headrace.kernel.delta import judge_rows
from headrace.kernel.rows import TASK_BITS, counts_of_rows, rows_of_groups
from headrace.kernel.stage import CompiledStage
from headrace.kernel.state import Hashes
from headrace.kernel.step import Counts, EmittedPanes, StageResult, in_emitted_order
from headrace.model.time import MIN_INSTANT, NEVER, Instant
from headrace.pipeline.endpoints import BatchFunction
from headrace.program import columns as c
from headrace.program.firing import FiringClocks
from headrace.state.chunks import key_group_ranges
from headrace.state.file_cache import RunWriter
from headrace.state.files import ParquetWriter
from headrace.state.layers import Layers, StageEpoch, one_below_the_other
from headrace.state.sorted_file import SortedFile
from headrace_snapshots.format.files import DataFile, Layer
from headrace_snapshots.format.manifest import REJECTED
from headrace_snapshots.protocol import barriers

if TYPE_CHECKING:
    from headrace.kernel.loops import Messages


def output_of(stage: CompiledStage, watermark: Instant, holds: "list[Instant]") -> Instant:
    """O = min(W, every hold) (semantics 7.1) of a stage at ``watermark`` whose parts have these earliest ``holds``.

    Where each window fires when W passes its end and holds are at the ends, nothing can hold it back.
    """
    if stage.stamps_elements or not stage.trigger.ready_past_end:
        return Instant(min([watermark, *holds]))
    return watermark


def input_clocks(
    plan: EpochPlan, shares: tuple[task_results.TaskResult, ...], percentiles: tuple[float, ...] = ()
) -> WatermarkUpdate:
    """The clocks of the inputs after the epoch, by the results of all ``shares`` of the input."""
    outputs = task_results.outputs_of(shares, task_results.ShareOutput)
    observations = combine_observations(share.observations for share in outputs)
    return watermark_update(
        plan.clocks,
        observations.and_known(plan.marks),
        plan.processing_time,
        percentiles,
        is_last=plan.is_last,
        hold=plan.hold,
    )


def source_step(
    plan: EpochPlan,
    chain: Chain,
    state: ChainState,
    shares: tuple[task_results.TaskResult, ...],
    loop: Sequence[task_results.LoopOutput] = (),
) -> tuple[FiringClocks, StageClocks]:
    """The step of the first stage of a ``chain`` that takes records, and its clocks after it. Its watermark passes no
    window in which something is in flight in its ``loop``. ``shares`` are the results of all tasks of the input.
    """
    stage = chain.stages[0]
    clocks = input_clocks(plan, shares, tuple(stage.trigger.percentiles))
    holds = [output.hold for output in loop]
    if holds and plan.hold is not None:
        holds.append(plan.hold.given_to(chain.names.output))
    watermark = chain.behind_joins(Instant(min([clocks.watermark, *holds])))
    return state.clocks[0].advance_to(stage, plan.processing_time, watermark, clocks.combined.percentiles)


def step_to(
    plan: EpochPlan, chain: Chain, state: ChainState, number: int, watermark: Instant
) -> tuple[FiringClocks, StageClocks]:
    """The step to ``watermark`` of a stage that takes panes, and its clocks after it."""
    return state.clocks[number].advance_to(chain.stages[number], plan.processing_time, watermark, {})


def handed_down(plan: EpochPlan, chain: Chain, number: int, upstream: tuple[task_results.TaskResult, ...]) -> Instant:
    """The watermark that comes to a stage from the one before it in its chain, whose parts gave ``upstream``."""
    outputs = [part.hold for part in task_results.outputs_of(upstream, task_results.StageOutput)]
    limit = [] if plan.hold is None else [plan.hold.output_limit(number - 1, chain.names.output)]
    return Instant(min([*outputs, *limit]))


def map_side_of(upstream: tuple[task_results.TaskResult, ...]) -> tuple[task_results.TaskResult, ...]:
    """The results of the map side, which is the first level: that above, or one that the level above has heard of."""
    return upstream[0].history[0] if upstream[0].history else upstream


class StagePart(msgspec.Struct, frozen=True):
    """One part of a stage, the chain's ``number``, in an epoch."""

    task: EpochTask
    number: int

    @property
    def stage(self) -> CompiledStage:
        return self.task.chain.stages[self.number]

    @property
    def step(self) -> int:
        return self.task.job.step_of(self.task.of_chain, self.number)

    @property
    def clocks_before(self) -> StageClocks:
        return self.task.state.clocks[self.number]

    @property
    def table(self) -> str:
        return self.task.chain.tables[self.number]

    @property
    def is_last(self) -> bool:
        """Whether its panes are those of the output."""
        return self.number == len(self.task.chain.stages) - 1

    @property
    def hands_on_in_order(self) -> bool:
        """Whether its panes are stored with their order, for a later job."""
        if self.stage.stage.gives_rows:  # which say by themselves in which order they left
            return False
        if self.is_last:
            return self.task.of_chain in self.task.work.handed_on_in_order
        return self.task.chain.goes_through_spark(self.number + 1)

    def run(
        self, upstream: task_results.UpstreamResults, rows: list[pa.RecordBatch]
    ) -> tuple[task_results.StageOutput, Bundles]:
        """Compute and store its epoch; the level above passed on ``upstream`` and sent ``rows``."""
        clocks, clocks_after = self._step_clocks(upstream)
        epoch = self._stage_epoch(clocks, rows)
        outputs = _PartOutputs.from_layers(self, epoch.layers, clocks_after)
        for result in epoch.compute_results():
            outputs.store(result)
            del result  # so that it takes no memory while the next one is computed
        shuffle_input, rejected_files = self._shuffle_below(outputs.emitted_panes)
        output = replace(
            outputs.finish_output(), panes_accounting=shuffle_input.aggregated.accounting, rejected=rejected_files
        )
        return output, address_bundles(
            self.task.plan, self.task.job, self.step + 1, self.task.of_chain, shuffle_input.parts
        )

    def _step_clocks(self, upstream: task_results.UpstreamResults) -> tuple[FiringClocks, StageClocks]:
        """The step of the stage, and its clocks after it, by what the level ``upstream`` gave."""
        plan, chain, state = self.task.plan, self.task.chain, self.task.state
        own: tuple[task_results.TaskResult, ...] = ()
        if self.step:
            own = of_chain(plan, self.task.job, self.step - 1, self.task.of_chain, upstream.results)
        if self.step and self.number:
            return step_to(plan, chain, state, self.number, handed_down(plan, chain, self.number, own))
        if plan.job:
            watermark = plan.watermarks[self.task.of_chain]
            watermark = watermark if self.number else chain.behind_joins(watermark)
            return step_to(plan, chain, state, self.number, watermark)
        loop = task_results.outputs_of(own, task_results.LoopOutput)
        return source_step(plan, chain, state, map_side_of(upstream.results), loop)

    def _stage_epoch(self, clocks: FiringClocks, rows: list[pa.RecordBatch]) -> StageEpoch:
        plan, stage = self.task.plan, self.stage
        layers = tables.open_own(self.task, self.task.state.tables[self.table], stage.state_schema, self.task.parts)
        return StageEpoch(
            plan.epoch,
            Layers(stage, layers),
            deltas_of(stage, rows, self.clocks_before.watermark, self.task.output_watermark(self.number)),
            clocks,
            key_group_ranges(self.task.parts)[self.task.number],
            self.clocks_before.output_watermark if stage.stamps_merged else MIN_INSTANT,
            plan.signals,
            plan.is_batch,
        )

    def _shuffle_below(self, emitted_panes: Sequence[EmittedPanes]) -> tuple[ShuffleInput, task_results.Files]:
        """The panes as elements of the stage below, and where those that have no key there are stored."""
        if not emitted_panes:
            return ShuffleInput(), ()
        plan, number = self.task.plan, self.number + 1
        stage = self.task.chain.stages[number]
        panes = in_emitted_order(emitted_panes)
        if isinstance(function := stage.stage.aggregation.transform, BatchFunction):
            panes = self._apply_function(function, panes)
        judged_rows = judge_rows(stage, panes.elements)
        shuffle_input = shuffle_elements(self.task, number, judged_rows, panes.order)
        origin, output = f"aggregation {number}", self.task.chain.names.output
        dead = dead_panes(stage, origin, panes.elements, judged_rows, plan.epoch, output=output)
        return shuffle_input, self.task.store_rows(f"{REJECTED}-{number}", dead)

    def _apply_function(self, function: BatchFunction, panes: EmittedPanes) -> EmittedPanes:
        """What ``function`` makes of ``panes``: each row at the time of its pane, with its sign, in its place."""
        work, epoch = self.task.work, self.task.plan.epoch
        pane_batch = pa.RecordBatch.from_pydict({name: panes.elements[name] for name in self.stage.stage.pane_schema})

        def places_of(first: int, last: int) -> str:
            return f"panes {first} to {last} that aggregation {self.number + 1} emits in epoch {epoch}"

        from headrace.sources.flat_maps import ROW, apply_function  # which few pipelines need

        result = apply_function(function, work.landing.batch_call(function), pane_batch, places_of)
        rows = result.column(ROW)
        elements = {name: result.column(name) for name in function.returns}
        elements |= {name: panes.elements[name].take(rows) for name in (c.EVENT_TIME, c.SIGN)}
        return EmittedPanes(elements, {name: values.take(rows) for name, values in panes.order.items()})


@dataclass
class _PartOutputs:
    """What has become of the results of a ``part`` so far: ``state`` and ``panes`` are stored as they come; what goes
    below is kept, for the next stage (``emitted_panes``) or for a later job (``elements``). ``layers`` are those that
    still count at ``clocks_after``, the clocks after the epoch.
    """

    part: StagePart
    layers: Layers
    clocks_after: StageClocks
    state: RunWriter
    panes: ParquetWriter
    counts: Counts | None = None
    changed: int = 0
    rows: int = 0
    emitted_panes: list[EmittedPanes] = field(default_factory=list)
    elements: list[pa.RecordBatch] = field(default_factory=list)

    @classmethod
    def from_layers(cls, part: StagePart, layers: Layers, clocks_after: StageClocks) -> "_PartOutputs":
        """Nothing is stored yet on top of ``layers``."""
        task = part.task
        number_expired = tables.expired_prefix(task.state.tables[part.table], clocks_after.watermark)
        state = tables.run_writer(task.work, task.plan.prefix, part.table, task.number)
        left = Layers(layers.stage, layers.layers[number_expired:])
        return cls(part, left, clocks_after, state, task.pane_writer(part.task.chain.names.panes))

    def store(self, result: StageResult) -> None:
        part = self.part
        self.changed += result.changes.num_rows
        if part.stage.stage.gives_rows:
            # numbered apart from the rows of other tasks
            rows = rows_of_groups(result, first=(part.task.number << TASK_BITS) + self.rows)
            self.rows += rows.num_rows
            self.counts = Counts.of_all([self.counts, counts_of_rows(rows, result.counts)])
            self.panes.add_rows(rows)
        else:
            self.counts = Counts.of_all([self.counts, result.counts])
            if part.is_last:
                self.panes.add_rows(result.pane_rows())
        if part.hands_on_in_order:
            self.elements.append(tables.leaving_panes(result))
        elif not part.is_last and len(result.emission.row):
            self.emitted_panes.append(result.emitted_elements())
        self.state.add(self.layers.changes_to_keep(result.changes))

    def finish_output(self) -> task_results.StageOutput:
        part, clocks_after = self.part, self.clocks_after
        runs, panes = do_both(part.task.work.store, self.state.finish, self.panes.finish)
        layers_after = self.layers.with_layer([stored_run.run for stored_run in runs], part.task.plan.epoch)
        due_event, due_time = layers_after.next_due(clocks_after.watermark, clocks_after.processing_time)
        hold = clocks_after.watermark
        if part.stage.stamps_elements or not part.stage.trigger.ready_past_end:
            hold = layers_after.earliest_hold(clocks_after.watermark)
        return task_results.StageOutput(
            counts=self.counts,
            changed=self.changed,
            hold=hold,
            due_event=due_event,
            due_time=due_time,
            state=task_results.StoredLayer(tables.files_of(runs), layers_after.layers[-1].expires)
            if runs
            else task_results.StoredLayer(),
            panes=panes,
            elements=part.task.store_rows(f"elements-{part.number}", one_below_the_other(self.elements)),
        )


SOURCE: Final = 0
BACK_EDGE: Final = 1
BACK_EDGES: Final = (BACK_EDGE,)
"""The inputs of the role; what comes on the second has gone round."""

_STATE_WINDOW: Final = (c.WINDOW_START, c.WINDOW_END)


def turn_rounds(task: EpochTask, rows: Sequence[pa.RecordBatch]) -> tuple[task_results.LoopOutput, Bundles]:
    """Turn the rounds of an epoch of the loop of the task's chain; ``rows`` are records grouped as edges. What the loop
    makes of them goes to the parts of the first stage.
    """
    return _Turning(task).run(rows)


class _Turning:
    """The task of a loop in one epoch, driven by its role in the protocol."""

    def __init__(self, task: EpochTask) -> None:
        from headrace.kernel.loops import NewEdges, Rounds  # which few pipelines need

        self.task, self.plan, self.chain = task, task.plan, task.chain
        assert self.chain.loop is not None
        self.loop = self.chain.loop
        self.opened_runs: list[SortedFile] = []
        self.new_edges = NewEdges(self.loop.no_edges)
        self.rounds = Rounds(self.loop, self._read_edges, self._read_values)
        self.role = barriers.Task(barriers.RULES[barriers.Protocol.ALIGNED], (SOURCE, BACK_EDGE), BACK_EDGES)
        self.snapshot = barriers.SnapshotId(0, self.plan.epoch)
        self.logged_batches = [self.loop.no_messages]
        self.has_taken_state = self.goes_round = self.is_acknowledged = False

    def run(self, rows: Sequence[pa.RecordBatch]) -> tuple[task_results.LoopOutput, Bundles]:
        """Deliver what was in flight and what is new, turn rounds, and take part in the snapshot."""
        messages, rounds_done = self._first_messages(rows), 0
        # the last epoch turns until nothing is left: what were in flight after it would never arrive
        while len(messages) and (self.plan.is_last or rounds_done != self.loop.loop.rounds):
            self._receive_event(barriers.Record(BACK_EDGE))
            changed_places = self.rounds.deliver(messages)
            messages, rounds_done = self.rounds.send(changed_places), rounds_done + 1
        left = self.rounds.improving_rows(messages)
        self._receive_event(barriers.Barrier(SOURCE, self.snapshot))
        if left.num_rows:
            self._receive_event(barriers.Record(BACK_EDGE), left)
        if self.goes_round:
            self._receive_event(barriers.Barrier(BACK_EDGE, self.snapshot))
        output = self._store_output(rounds_done)
        for run in self.opened_runs:
            run.let_go()
        return output, self._element_bundles()

    def _first_messages(self, rows: Sequence[pa.RecordBatch]) -> "Messages":
        in_flight = self._in_flight()
        deltas = deltas_of(self.loop.edges, rows, self.task.state.clocks[0].watermark, MIN_INSTANT)
        for _ in deltas:
            self._receive_event(barriers.Record(SOURCE))
        if deltas:
            self.new_edges = self.loop.edges_of(pa.concat_batches(deltas))
        return self.rounds.first_messages(in_flight, self.new_edges)

    def _receive_event(self, event: barriers.TaskEvent, messages: pa.RecordBatch | None = None) -> None:
        """Do what the role says to ``event``. What is delivered after the state was taken is the next epoch's."""
        for effect in self.role.receive(event):
            match effect:
                case barriers.TakeState():
                    self.has_taken_state = True
                case barriers.Forward():
                    self.goes_round = True
                case barriers.Log():
                    assert messages is not None
                    self.logged_batches.append(messages)
                case barriers.Acknowledge():
                    self.is_acknowledged = True
                case barriers.Deliver():
                    pass
                case _:  # it waits for a barrier that nothing brings round
                    return

    def _store_output(self, rounds_done: int) -> task_results.LoopOutput:
        """The part of the snapshot, stored. Where the role did not acknowledge it, the epoch is not committed."""
        logged_messages = pa.concat_batches(self.logged_batches)
        ends, windows = self.new_edges.rows.column(c.WINDOW_END), logged_messages.column(c.WINDOW_END)
        edges = self._store_rows(self.chain.names.edges, self.new_edges.rows)
        expires = self.loop.stage.expiry_watermark(pc.max(ends).as_py())
        return task_results.LoopOutput(
            edges=task_results.StoredLayer(edges, expires) if edges else task_results.StoredLayer(),
            in_flight=self._store_rows(self.chain.names.in_flight, logged_messages),
            hold=Instant(pc.min(windows).as_py() - 1) if len(windows) else NEVER,
            rounds=rounds_done,
            is_acknowledged=self.has_taken_state and self.is_acknowledged,
        )

    def _element_bundles(self) -> Bundles:
        stage, task = self.loop.stage, self.task
        judged_rows = judge_rows(stage, self.loop.to_elements(self.rounds.changed_vertices()))
        shuffle_input = build_shuffle_input(
            stage, judged_rows, None, task.state.clocks[0].watermark, MIN_INSTANT, share=0, number=task.parts
        )
        assert not shuffle_input.aggregated.accounting.late, "a window has expired while something was in flight in it"
        step = task.job.step_of(task.of_chain, 0)
        return address_bundles(self.plan, task.job, step, task.of_chain, shuffle_input.parts)

    def _table_layers(self, table: str) -> tuple[Layer, ...]:
        return self.task.state.tables[table]

    def _open_files(self, table: str, schema: pa.Schema) -> list[tuple[SortedFile, ...]]:
        """The files of each layer. On Spark another machine may have stored them: each is read here once."""
        layers = [layer.runs for layer in tables.open_layers(self.task.work, self._table_layers(table), schema, 0, 1)]
        self.opened_runs += [run for layer in layers for run in layer]
        return layers

    @cached_property
    def _all_edges(self) -> list[SortedFile]:
        """Stored edges, and those of the epoch."""
        layers = self._open_files(self.chain.names.edges, self.loop.edge_schema)
        return [*(run for layer in layers for run in layer), SortedFile(self.new_edges.rows)]

    @cached_property
    def _value_layers(self) -> list[tuple[SortedFile, ...]]:
        return self._open_files(self.chain.tables[0], self.loop.stage.state_schema)

    def _store_rows(self, table: str, rows: pa.RecordBatch) -> tuple[DataFile, ...]:
        batches = [rows] if rows.num_rows else []
        return tables.files_of(tables.put_batches(self.task.work, self.plan.prefix, table, 0, batches))

    def _in_flight(self) -> pa.RecordBatch:
        runs = self._open_files(self.chain.names.in_flight, self.loop.message_schema)
        return pa.concat_batches([self.loop.no_messages, *(run.rows for layer in runs for run in layer)])

    def _read_edges(self, hashes: Hashes) -> Iterator[pa.RecordBatch]:
        """Edges out of vertices with one of these hashes."""
        return (run.rows_of(hashes) for run in self._all_edges)

    def _read_values(self, hashes: Hashes) -> Iterator[pa.RecordBatch]:
        """Stored values of vertices of which some have one of these hashes, as messages, oldest layer first."""
        stage, loop = self.loop.stage, self.loop
        names = [c.HASH, *stage.identity, c.STATUS, loop.value_part]
        for layer in self._value_layers:
            batches = [rows for run in layer if (rows := run.rows_of(hashes, names)).num_rows]
            if not batches:
                continue
            rows = pa.concat_batches(batches)
            values, is_open = rows.column(loop.value_part), as_numpy(rows.column(c.STATUS)) == c.STATUS_OPEN
            if not is_open.all():
                values = pc.if_else(pa.array(is_open), values, pa.scalar(None, values.type))
            keys, window = ([rows.column(name) for name in names] for names in (stage.keys, _STATE_WINDOW))
            columns = [rows.column(c.HASH), *keys, values, *window]
            yield pa.RecordBatch.from_arrays(columns, schema=loop.message_schema)
