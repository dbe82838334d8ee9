"""The results of the tasks of an epoch for a chain of aggregations, put together: its clocks, its tables, its files."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from headrace.distribute.chain import Chain, ChainState
from headrace.distribute.epoch import StageOutcome
from headrace.distribute.stage_clocks import StageClocks
from headrace.distribute.tasks.plan import EpochPlan
from headrace.distribute.tasks.stages import handed_down, output_of, source_step, step_to
from headrace.distribute.tasks.tables import layers_after
from headrace.distribute.tasks.task_results import (
    BundleOutput,
    Files,
    LoopOutput,
    PanesOutput,
    StageOutput,
    Stored,
    TaskResult,
)
from headrace.kernel.delta import Accounting
from headrace.kernel.step import Counts
from headrace.model.time import NEVER, Instant
from headrace_snapshots.format.files import Layer


@dataclass(frozen=True)
class ChainOutcome:
    """The ``chain`` of that ``number``, which was in ``state``, in an epoch whose tasks, level by level, passed on the
    results in ``levels``, as far as they have run; those of other chains are left out. ``bundles``: what became of
    records in its first stage. ``upstream``: what became of the chains whose panes it takes.
    """

    number: int
    chain: Chain
    state: ChainState
    plan: EpochPlan
    levels: Sequence[tuple[TaskResult, ...]]
    bundles: Sequence[BundleOutput]
    upstream: "Sequence[ChainOutcome]" = ()

    @cached_property
    def stages(self) -> list[list[StageOutput]]:
        """The parts of each stage."""
        levels = [[task.output for task in level if isinstance(task.output, StageOutput)] for level in self.levels]
        return [parts for parts in levels if parts]

    @cached_property
    def loop(self) -> tuple[TaskResult, ...]:
        """What its loop came to, from one task; none without a loop."""
        levels = (level for level in self.levels if isinstance(level[0].output, LoopOutput))
        return next(levels, ())

    @property
    def in_flight(self) -> Files:
        """What goes round its loop and has not arrived."""
        return tuple(file for result in self.loop for file in _of_loop(result).in_flight)

    @property
    def parts(self) -> list[StageOutput]:
        """The parts of all stages."""
        return [part for stage in self.stages for part in stage]

    @cached_property
    def panes_taken(self) -> dict[int, list[PanesOutput]]:
        """What became of panes that were read from files, by the stage that they came to."""
        taken, stage = {}, 0
        for level in self.levels:
            panes = [task.output for task in level if isinstance(task.output, PanesOutput)]
            if panes:
                taken[stage] = panes
            stage += isinstance(level[0].output, StageOutput)
        return taken

    @property
    def tables(self) -> dict[str, tuple[Layer, ...]]:
        """The layers of its tables of state after the epoch."""
        tables = {}
        for table, clocks, stage in zip(self.chain.tables, self.clocks, self.stages, strict=True):
            old, tops = self.state.tables[table], [part.state for part in stage]
            tables[table] = layers_after(old, clocks.watermark, self.plan.epoch, tops)
        if self.chain.loop is not None:
            names, watermark, epoch = self.chain.names, self.clocks[0].watermark, self.plan.epoch
            tops = [_of_loop(result).edges for result in self.loop]
            tables[names.edges] = layers_after(self.state.tables[names.edges], watermark, epoch, tops)
            tables[names.in_flight] = layers_after((), watermark, epoch, [Stored(self.in_flight, NEVER)])
        return tables

    @cached_property
    def clocks(self) -> tuple[StageClocks, ...]:
        """Clocks of each stage after the epoch."""
        hold = self.plan.hold
        clocks = []
        for number, after in enumerate(self._entered):
            output = self._outputs[number]
            if hold is not None:
                limit = hold.output(number, self.chain.names.output)
                output = Instant(max(after.output_watermark, min(output, limit)))
            clocks.append(after.with_output(output))
        return tuple(clocks)

    @property
    def is_held(self) -> bool:
        """Whether windows would let output watermarks go further than the epoch is held to, or a loop its own."""
        outputs = any(free > clocks.output_watermark for free, clocks in zip(self._outputs, self.clocks, strict=True))
        return outputs or (self.chain.loop is not None and self._entering_free > self.clocks[0].watermark)

    @property
    def _entering_free(self) -> Instant:
        """The watermark of the first stage, were the epoch held to nothing."""
        return replace(self, plan=replace(self.plan, hold=None))._entering(0).watermark

    def watermark_for(self, stage: int) -> Instant:
        """The watermark that comes to a ``stage`` that takes panes: the output watermark of the one before it, or the
        least of those of the chains upstream.
        """
        if stage:
            return self.clocks[stage - 1].output_watermark
        return min(above.clocks[-1].output_watermark for above in self.upstream)

    def elements_of(self, stage: int) -> Files:
        """The files of the panes of a ``stage`` with the order in which they were emitted, where that is stored."""
        return tuple(file for part in self.stages[stage] for file in part.elements)

    @cached_property
    def _entered(self) -> list[StageClocks]:
        """The clocks of the stages after the epoch, but for their outputs."""
        return [self._entering(number) for number in range(len(self.stages))]

    def _entering(self, number: int) -> StageClocks:
        plan, chain, state = self.plan, self.chain, self.state
        if number:
            own = [level for level in self.levels if isinstance(level[0].output, StageOutput)][number - 1]
            return step_to(plan, chain, state, number, handed_down(plan, chain, number, own))[1]
        if chain.upstream:
            return step_to(plan, chain, state, number, self.watermark_for(number))[1]
        return source_step(plan, chain, state, self.levels[0], self.loop)[1]

    @cached_property
    def _outputs(self) -> list[Instant]:
        """The output watermarks of the stages as windows let them go."""
        stages = zip(self.chain.stages, self._entered, self.stages, strict=False)
        return [output_of(stage, after.watermark, [part.hold for part in parts]) for stage, after, parts in stages]

    @cached_property
    def outcomes(self) -> tuple[StageOutcome, ...]:
        """What became of each stage."""
        accounted = [Accounting.of_all([*(bundle.accounting for bundle in self.bundles), *self._taken(0)])]
        for number, stage in enumerate(self.stages[:-1], 1):
            accounted.append(Accounting.of_all([*(part.panes_accounting for part in stage), *self._taken(number)]))
        return tuple(
            StageOutcome(
                accounting,
                Counts.of_all(part.counts for part in stage),
                sum(part.changed for part in stage),
                takes_panes=bool(number or self.upstream),
            )
            for number, (accounting, stage) in enumerate(zip(accounted, self.stages, strict=True))
        )

    def _taken(self, stage: int) -> list[Accounting]:
        taken = (panes.accounting.get(self.number) for panes in self.panes_taken.get(stage, ()))
        return [accounting for accounting in taken if accounting is not None]

    @property
    def panes(self) -> Files:
        """Pane files of the last stage."""
        return tuple(file for part in self.stages[-1] for file in part.panes)

    @property
    def late(self) -> Files:
        """Late rows."""
        return tuple(file for bundle in self.bundles for file in bundle.late)

    @property
    def logs(self) -> dict[str, Files]:
        """The files of the epoch by the log of its own that they go to."""
        return {self.chain.names.panes: self.panes, self.chain.names.late: self.late}

    @property
    def due_event(self) -> Instant:
        """A lower bound of the watermark at which the chain wants its next activation."""
        return min(part.due_event for part in self.parts)

    @property
    def rejected(self) -> Files:
        """Records that others can take and it cannot, then panes."""
        logs = [bundle.rejected for bundle in self.bundles]
        logs += [part.rejected for part in self.parts]
        taken = (panes for of_stage in self.panes_taken.values() for panes in of_stage)
        logs += [panes.rejected.get(self.number, ()) for panes in taken]
        return tuple(file for files in logs for file in files)


def _of_loop(result: TaskResult) -> LoopOutput:
    assert isinstance(result.output, LoopOutput)
    return result.output
