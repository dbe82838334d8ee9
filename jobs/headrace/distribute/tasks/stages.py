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
    IdsOutput,
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


def entering(
    plan: EpochPlan, chain: Chain, state: ChainState, number: int, upstream: tuple[TaskResult, ...]
) -> tuple[FiringClocks, StageClocks]:
    """The step of stage ``number`` of a ``chain`` in this epoch, and its clocks after it, by the results of the
    ``upstream`` level, as far as they are the chain's.
    """
    stage, before = chain.stages[number], state.clocks[number]
    if number and number == plan.first_stage:
        upstream = plan.upstream
    if number == 0:
        shares = [result.output for result in _shares(upstream)]
        observations = combined(share.observations for share in shares if isinstance(share, ShareOutput))
        percentiles = tuple(stage.trigger.percentiles)
        clocks = watermark_update(
            plan.clocks, observations, plan.processing_time, percentiles, is_last=plan.is_last, hold=plan.hold
        )
        return before.advanced(stage, plan.processing_time, clocks.watermark, clocks.combined.percentiles)
    parts = [result.output for result in upstream]
    outputs = [part.hold for part in parts if isinstance(part, StageOutput)]
    limit = [] if plan.hold is None else [plan.hold.output(number - 1, chain.names.output)]
    return before.advanced(stage, plan.processing_time, Instant(min([*outputs, *limit])), {})


def _shares(upstream: tuple[TaskResult, ...]) -> tuple[TaskResult, ...]:
    """The results of the map side: the level above, or the one above that which tells duplicates."""
    return upstream[0].history[0] if isinstance(upstream[0].output, IdsOutput) else upstream


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
        clocks, after = entering(plan, self.chain, self.task.state, self.number, self._upstream(upstream))
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
        return result, addressed(plan, self.task.work.chains, self.number + 1, self.task.of_chain, shuffled.parts)

    def _upstream(self, upstream: UpstreamResults) -> tuple[TaskResult, ...]:
        """The results of the level upstream, as far as they are the chain's: of the map side all."""
        if self.number == self.plan.first_stage:
            return upstream.results
        return of_chain(self.plan, self.task.work.chains, self.number - 1, self.task.of_chain, upstream.results)

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
        dead = dead_panes(stage, number, panes.elements, judged, plan.epoch, output=self.chain.names.output)
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
