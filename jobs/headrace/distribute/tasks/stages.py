"""A part of a stage in an epoch: it is computed (``state.stage_epoch``), result by result, and each result is stored
before the next one is computed; panes go to the stage below.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from headrace.distribute.chain import Chain, ChainState, StageClocks
from headrace.distribute.side_outputs import dead_panes
from headrace.distribute.tasks.exchange import ShuffleInput, bundle, deltas_of
from headrace.distribute.tasks.map_side import Bundles
from headrace.distribute.tasks.parts import addressed, of_chain
from headrace.distribute.tasks.plan import EpochPlan
from headrace.distribute.tasks.tables import expired_prefix, files_of, leaving, open_own, run_writer
from headrace.distribute.tasks.task_environment import EpochTask
from headrace.distribute.tasks.task_results import (
    Files,
    LoopOutput,
    ShareOutput,
    StageOutput,
    Stored,
    TaskResult,
    UpstreamResults,
)
from headrace.distribute.watermark_inputs import combined, watermark_update
from headrace.kernel.elements import judge
from headrace.kernel.stage import CompiledStage
from headrace.kernel.step import Counts, Emitted, StageResult, in_emitted_order
from headrace.model.time import MIN_INSTANT, Instant
from headrace.program.firing import FiringClocks
from headrace.state.datafiles.files import ParquetWriter
from headrace.state.datafiles.writer import RunWriter
from headrace.state.key_groups import parts
from headrace.state.layers import Layers
from headrace.state.stage_epoch import StageEpoch, one_below_the_other
from headrace_snapshots.format.table_names import REJECTED


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
class StagePart:
    """One part of a stage, the chain's ``number``, in an epoch."""

    task: EpochTask
    number: int

    @property
    def stage(self) -> CompiledStage:
        """The stage."""
        return self.task.chain.stages[self.number]

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
        """The table of its state."""
        return self.task.chain.tables[self.number]

    @property
    def is_last(self) -> bool:
        """Whether its panes are those of the output."""
        return self.number == len(self.task.chain.stages) - 1

    @property
    def hands_on_in_order(self) -> bool:
        """Whether its panes are stored with their order, for a later job."""
        if self.is_last:
            return self.task.of_chain in self.task.work.handed_on_in_order
        return self.task.chain.goes_through_spark(self.number + 1)

    def run(self, upstream: UpstreamResults, rows: list[pa.RecordBatch]) -> tuple[StageOutput, Bundles]:
        """Compute and store its epoch; the level above passed on ``upstream`` and sent ``rows``."""
        clocks, after = self._clocks(upstream)
        epoch = self._epoch(clocks, rows)
        outputs = _PartOutputs.begun(self, epoch.layers, after)
        for result in epoch.results():
            outputs.store(result)
            del result  # so that it takes no memory while the next one is computed
        below, rejected = self._below(outputs.emitted)
        output = replace(outputs.done(), panes_accounting=below.aggregated.accounting, rejected=rejected)
        return output, addressed(self.task.plan, self.task.job, self.step + 1, self.task.of_chain, below.parts)

    def _clocks(self, upstream: UpstreamResults) -> tuple[FiringClocks, StageClocks]:
        """The step of the stage, and its clocks after it, by what the level ``upstream`` gave."""
        plan, chain, state = self.task.plan, self.task.chain, self.task.state
        own: tuple[TaskResult, ...] = ()
        if self.step:
            own = of_chain(plan, self.task.job, self.step - 1, self.task.of_chain, upstream.results)
        if self.step and self.number:
            return step_to(plan, chain, state, self.number, handed_down(plan, chain, self.number, own))
        if plan.job:
            return step_to(plan, chain, state, self.number, plan.watermarks[self.task.of_chain])
        return source_step(plan, chain, state, map_side_of(upstream.results), own)

    def _epoch(self, clocks: FiringClocks, rows: list[pa.RecordBatch]) -> StageEpoch:
        """What there is to compute."""
        plan, stage = self.task.plan, self.stage
        layers = open_own(self.task, self.task.state.tables[self.table], stage.state_schema, self.task.parts)
        return StageEpoch(
            plan.epoch,
            Layers(stage, layers),
            deltas_of(stage, rows, self.before.watermark, self.task.output_watermark(self.number)),
            clocks,
            parts(self.task.parts)[self.task.number],
            self.before.output_watermark if stage.stamps_merged else MIN_INSTANT,
            plan.signals,
            plan.is_batch,
        )

    def _below(self, emitted: Sequence[Emitted]) -> tuple[ShuffleInput, Files]:
        """The panes as elements of the stage below, and where those that have no key there are stored."""
        if not emitted:
            return ShuffleInput(), ()
        plan, number = self.task.plan, self.number + 1
        stage = self.task.chain.stages[number]
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
        above, output = f"aggregation {number}", self.task.chain.names.output
        dead = dead_panes(stage, above, panes.elements, judged, plan.epoch, output=output)
        return shuffled, self.task.put(f"{REJECTED}-{number}", dead)


@dataclass
class _PartOutputs:
    """What has become of the results of a ``part`` so far: ``state`` and ``panes`` are stored as they come; what goes
    below is kept, for the next stage (``emitted``) or for a later job (``elements``). ``layers`` are those that still
    count at the clocks ``after`` the epoch.
    """

    part: StagePart
    layers: Layers
    after: StageClocks
    state: RunWriter
    panes: ParquetWriter
    counts: Counts | None = None
    changed: int = 0
    emitted: list[Emitted] = field(default_factory=list)
    elements: list[pa.RecordBatch] = field(default_factory=list)

    @classmethod
    def begun(cls, part: StagePart, layers: Layers, after: StageClocks) -> "_PartOutputs":
        """Nothing is stored yet on top of ``layers``."""
        task = part.task
        expired = expired_prefix(task.state.tables[part.table], after.watermark)
        state = run_writer(task.work, task.plan.prefix, part.table, task.number)
        left = Layers(layers.stage, layers.layers[expired:])
        return cls(part, left, after, state, task.putting(part.task.chain.names.panes))

    def store(self, result: StageResult) -> None:
        """Store ``result``, and count it."""
        part = self.part
        self.counts = Counts.of_all([self.counts, result.counts])
        self.changed += result.changes.num_rows
        if part.is_last:
            self.panes.add(result.panes())
        if part.hands_on_in_order:
            self.elements.append(leaving(result))
        elif not part.is_last and len(result.emission.row):
            self.emitted.append(result.emitted())
        self.state.add(self.layers.kept(result.changes))

    def done(self) -> StageOutput:
        """What all results came to."""
        part, after = self.part, self.after
        runs = self.state.done()
        grown = self.layers.grown([stored.run for stored in runs], part.task.plan.epoch)
        due_event, due_time = grown.next_due(after.watermark, after.processing_time)
        hold = after.watermark
        if part.stage.stamps_elements or not part.stage.trigger.ready_past_end:
            hold = grown.earliest_hold(after.watermark)
        return StageOutput(
            counts=self.counts,
            changed=self.changed,
            hold=hold,
            due_event=due_event,
            due_time=due_time,
            state=Stored(files_of(runs), grown.layers[-1].expires) if runs else Stored(),
            panes=self.panes.done(),
            elements=part.task.put(f"elements-{part.number}", one_below_the_other(self.elements)),
        )
