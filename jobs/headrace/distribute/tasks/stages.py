"""A part of a stage: its share of the delta meets its layers, its panes go to the stage below.

Where there is much to do, a slice of the keys at a time, so that memory does not grow with what an epoch touches, nor
with how many windows are due at once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from headrace.distribute.chain import Chain, ChainState
from headrace.distribute.input_clocks import watermark_update
from headrace.distribute.side_outputs import dead_panes
from headrace.distribute.stage_clocks import StageClocks
from headrace.distribute.tasks.map_side import Bundles
from headrace.distribute.tasks.panes import leaving
from headrace.distribute.tasks.parts import addressed, of_chain
from headrace.distribute.tasks.plan import EpochPlan
from headrace.distribute.tasks.shuffle.shuffle_input import ShuffleInput, bundle, deltas_of
from headrace.distribute.tasks.tables import expired_prefix, files_of, open_own, put_table
from headrace.distribute.tasks.task_environment import EpochTask
from headrace.distribute.tasks.task_results import (
    Files,
    LoopOutput,
    ShareOutput,
    StageOutput,
    Stored,
    TaskResult,
    UpstreamResults,
    summed,
)
from headrace.distribute.watermark_inputs import combined
from headrace.kernel.elements import judge
from headrace.kernel.stage import CompiledStage
from headrace.kernel.state import distinct
from headrace.kernel.step import Counts, Emitted, StageResult, in_emitted_order, step
from headrace.model.time import MIN_INSTANT, Instant
from headrace.program import columns as c
from headrace.program.firing import FiringClocks
from headrace.state.datafiles.files import ParquetWriter
from headrace.state.key_groups import parts
from headrace.state.layers import Layers
from headrace_snapshots.format.table_names import REJECTED

NO_FILES: Files = ()

SLICE_ROWS = 2**16
"""Of so many rows an epoch is computed at a time, about: each takes 600 bytes meanwhile, and state and panes are stored
slice by slice.
"""


def output_of(stage: CompiledStage, watermark: Instant, holds: "list[Instant]") -> Instant:
    """O = min(W, every hold) (semantics 7.1) of a stage at ``watermark`` whose parts have these earliest ``holds``.

    Where each window fires when W passes its end and holds are at the ends, nothing can hold it back.
    """
    if stage.stamps_elements or not stage.trigger.ready_past_end:
        return Instant(min([watermark, *holds]))
    return watermark


def source_step(
    plan: EpochPlan,
    chain: Chain,
    state: ChainState,
    shares: tuple[TaskResult, ...],
    loop: tuple[TaskResult, ...] = (),
) -> tuple[FiringClocks, StageClocks]:
    """The step of the first stage of a ``chain`` that takes records, and its clocks after it, by the results of all
    ``shares`` of the input. Its watermark passes no window in which something is in flight in its ``loop``.
    """
    stage = chain.stages[0]
    outputs = [result.output for result in shares]
    observations = combined(share.observations for share in outputs if isinstance(share, ShareOutput))
    percentiles = tuple(stage.trigger.percentiles)
    observations = observations.and_known(plan.marks)
    clocks = watermark_update(
        plan.clocks, observations, plan.processing_time, percentiles, is_last=plan.is_last, hold=plan.hold
    )
    holds = [result.output.hold for result in loop if isinstance(result.output, LoopOutput)]
    if holds and plan.hold is not None:
        holds.append(plan.hold.given_to(chain.names.output))
    watermark = Instant(min([clocks.watermark, *holds]))
    return state.clocks[0].advanced(stage, plan.processing_time, watermark, clocks.combined.percentiles)


def step_to(
    plan: EpochPlan, chain: Chain, state: ChainState, number: int, watermark: Instant
) -> tuple[FiringClocks, StageClocks]:
    """The step to ``watermark`` of a stage that takes panes, and its clocks after it."""
    return state.clocks[number].advanced(chain.stages[number], plan.processing_time, watermark, {})


def handed_down(plan: EpochPlan, chain: Chain, number: int, upstream: tuple[TaskResult, ...]) -> Instant:
    """The watermark that comes to a stage from the one before it in its chain, whose parts gave ``upstream``."""
    parts = [result.output for result in upstream]
    outputs = [part.hold for part in parts if isinstance(part, StageOutput)]
    limit = [] if plan.hold is None else [plan.hold.output(number - 1, chain.names.output)]
    return Instant(min([*outputs, *limit]))


def map_side_of(upstream: tuple[TaskResult, ...]) -> tuple[TaskResult, ...]:
    """The results of the map side, which is the first level: that above, or one that the level above has heard of."""
    return upstream[0].history[0] if upstream[0].history else upstream


@dataclass(frozen=True)
class _Part:
    """One part of a stage in an epoch."""

    task: EpochTask
    number: int

    @property
    def plan(self) -> EpochPlan:
        return self.task.plan

    @property
    def chain(self) -> Chain:
        return self.task.chain

    @property
    def stage(self) -> CompiledStage:
        return self.chain.stages[self.number]

    @property
    def step(self) -> int:
        """Its step in the job."""
        return self.task.job.step_of(self.task.of_chain, self.number)

    @property
    def before(self) -> StageClocks:
        """The clocks before the epoch."""
        return self.task.state.clocks[self.number]

    @property
    def table(self) -> str:
        return self.chain.tables[self.number]

    @property
    def is_last(self) -> bool:
        return self.number == len(self.chain.stages) - 1

    def run(self, upstream: UpstreamResults, rows: list[pa.RecordBatch]) -> tuple[StageOutput, Bundles]:
        plan, stage = self.plan, self.stage
        clocks, after = self._clocks(upstream)
        deltas = deltas_of(stage, rows, self.before.watermark, self.task.output_watermark(self.number))
        stored_layers = self.task.state.tables[self.table]
        layers = Layers(stage, open_own(self.task, stored_layers, stage.state_schema, self.task.parts))
        left = Layers(stage, layers.layers[expired_prefix(stored_layers, after.watermark) :])
        output = _SliceOutputs(self.task.putting(self.chain.names.panes))
        changes = (left.kept(result.changes) for result in self._results(layers, deltas, clocks, output))
        stored = put_table(self.task, self.table, changes)
        grown = left.grown([piece.run for piece in stored], plan.epoch)
        due_event, due_time = grown.next_due(after.watermark, after.processing_time)
        hold = after.watermark
        if stage.stamps_elements or not stage.trigger.ready_past_end:
            hold = grown.earliest_hold(after.watermark)
        shuffled, rejected = self._below(output.emitted)
        result = StageOutput(
            counts=output.counts(),
            changed=output.changed,
            hold=hold,
            due_event=due_event,
            due_time=due_time,
            state=Stored(files_of(stored), grown.layers[-1].expires) if stored else Stored(),
            panes=output.panes.done(),
            panes_accounting=shuffled.aggregated.accounting,
            rejected=rejected,
            elements=self.task.put(f"elements-{self.number}", _concatenated(output.leaving)),
        )
        return result, addressed(plan, self.task.job, self.step + 1, self.task.of_chain, shuffled.parts)

    def _clocks(self, upstream: UpstreamResults) -> tuple[FiringClocks, StageClocks]:
        """The step of the stage, and its clocks after it, by what the level ``upstream`` gave."""
        plan, chain, state = self.plan, self.chain, self.task.state
        own: tuple[TaskResult, ...] = ()
        if self.step:
            own = of_chain(plan, self.task.job, self.step - 1, self.task.of_chain, upstream.results)
        if self.step and self.number:
            return step_to(plan, chain, state, self.number, handed_down(plan, chain, self.number, own))
        if plan.job:
            return step_to(plan, chain, state, self.number, plan.watermarks[self.task.of_chain])
        return source_step(plan, chain, state, map_side_of(upstream.results), own)

    def _results(
        self, layers: Layers, deltas: Sequence[pa.RecordBatch], clocks: FiringClocks, output: "_SliceOutputs"
    ) -> Iterator[StageResult]:
        """The step of the part, slice by slice; what is not state is added to ``output``."""
        for slice_layers, delta in self._slices(layers, deltas, clocks):
            result = self._step(slice_layers, delta, clocks)
            if result is None:
                continue
            output.slice_counts.append(result.counts)
            output.changed += result.changes.num_rows
            if self.is_last:
                output.panes.add(result.panes())
                if self.task.of_chain in self.task.work.handed_on_in_order:
                    output.leaving.append(leaving(result))
            elif self.chain.goes_through_spark(self.number + 1):
                output.leaving.append(leaving(result))
            elif len(result.emission.row):
                output.emitted.append(result.emitted())
            yield result

    def _slices(
        self, layers: Layers, deltas: Sequence[pa.RecordBatch], clocks: FiringClocks
    ) -> Iterator[tuple[Layers, pa.RecordBatch | None]]:
        rows = sum(delta.num_rows for delta in deltas) + layers.most_found(clocks, self.plan.signals)
        slices = parts(self.task.parts)[self.task.number].cut(-(-rows // SLICE_ROWS)) if rows > SLICE_ROWS else ()
        if not slices:
            yield layers, _concatenated(deltas)
        for keys in slices:
            spans = [keys.span(delta.column(c.HASH).to_numpy()) for delta in deltas]
            cut = [delta.slice(span.start, span.stop - span.start) for delta, span in zip(deltas, spans, strict=True)]
            yield layers.within(keys), _concatenated([rows for rows in cut if rows.num_rows])

    def _step(self, layers: Layers, delta: pa.RecordBatch | None, clocks: FiringClocks) -> StageResult | None:
        plan, stage = self.plan, self.stage
        touched = np.zeros(0, np.uint64) if delta is None else distinct([delta.column(c.HASH).to_numpy()])
        state = layers.lookup(touched, clocks, plan.signals)
        return step(
            stage,
            state,
            delta,
            clocks,
            plan.epoch,
            output_watermark=self.before.output_watermark if stage.stamps_merged else MIN_INSTANT,
            signals=plan.signals,
            is_batch=plan.is_batch,
        )

    def _below(self, emitted: Sequence[Emitted]) -> tuple[ShuffleInput, Files]:
        """The panes as elements of the stage below, and where those that have no key there are stored."""
        if not emitted:
            return ShuffleInput(), NO_FILES
        plan, number = self.plan, self.number + 1
        stage = self.chain.stages[number]
        panes = in_emitted_order(emitted)
        judged = judge(stage, panes.elements)
        shuffled = bundle(
            stage,
            judged,
            panes.order if stage.is_ordered else None,
            self.task.state.clocks[number].watermark,
            self.task.output_watermark(number),
            share=self.task.number,
            number=self.task.parts,
        )
        above, output = f"aggregation {number}", self.chain.names.output
        dead = dead_panes(stage, above, panes.elements, judged, plan.epoch, output=output)
        return shuffled, self.task.put(f"{REJECTED}-{number}", dead)


@dataclass
class _SliceOutputs:
    """The output of the slices of a part so far, besides state: panes, which are stored as they come, or what goes on
    to the stage below, itself or through a user's own code.
    """

    panes: ParquetWriter
    slice_counts: list[Counts] = field(default_factory=list)
    changed: int = 0
    emitted: list[Emitted] = field(default_factory=list)
    leaving: list[pa.RecordBatch] = field(default_factory=list)

    def counts(self) -> Counts | None:
        """Counts of all slices; None if no slice had anything to look at."""
        return Counts(**summed(vars(counts) for counts in self.slice_counts)) if self.slice_counts else None


def _concatenated(pieces: Sequence[pa.RecordBatch]) -> pa.RecordBatch | None:
    """Pieces, one below the other; None if there are none."""
    if len(pieces) < 2:
        return pieces[0] if pieces else None
    return pa.concat_batches(pieces)


def step_part(
    task: EpochTask, number: int, upstream: UpstreamResults, rows: list[pa.RecordBatch]
) -> tuple[StageOutput, Bundles]:
    """One epoch of a part of stage ``number``; the level above passed on ``upstream`` and sent ``rows``."""
    return _Part(task, number).run(upstream, rows)
