"""The results of the tasks of an epoch for a chain of aggregations, put together: its clocks, its tables, its files."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from headrace.distribute.chain import Chain, ChainState
from headrace.distribute.epoch import StageOutcome
from headrace.distribute.stage_clocks import StageClocks
from headrace.distribute.tasks.plan import EpochPlan
from headrace.distribute.tasks.stages import entering, output_of
from headrace.distribute.tasks.tables import layers_after
from headrace.distribute.tasks.task_results import BundleOutput, Files, PanesOutput, StageOutput, TaskResult, summed
from headrace.kernel.delta import Accounting
from headrace.kernel.step import Counts
from headrace.model.time import Instant
from headrace_snapshots.format.files import Layer


@dataclass(frozen=True)
class ChainOutcome:
    """A ``chain``, which was in ``state``, in an epoch whose tasks, level by level, passed on the results in
    ``levels``; those of other chains are left out. ``bundles``: what became of records in its first stage.
    """

    chain: Chain
    state: ChainState
    plan: EpochPlan
    levels: Sequence[tuple[TaskResult, ...]]
    bundles: Sequence[BundleOutput]

    @cached_property
    def stages(self) -> list[list[StageOutput]]:
        """The parts of each stage."""
        levels = [[task.output for task in level if isinstance(task.output, StageOutput)] for level in self.levels]
        return [parts for parts in levels if parts]

    @property
    def parts(self) -> list[StageOutput]:
        """The parts of all stages."""
        return [part for stage in self.stages for part in stage]

    @cached_property
    def transformed(self) -> dict[int, list[PanesOutput]]:
        """What users' own code made of panes, by the stage that they came to."""
        transformed, stage = {}, 0
        for level in self.levels:
            panes = [task.output for task in level if isinstance(task.output, PanesOutput)]
            if panes:
                transformed[stage] = panes
            stage += isinstance(level[0].output, StageOutput)
        return transformed

    @property
    def tables(self) -> dict[str, tuple[Layer, ...]]:
        """The layers of its tables of state after the epoch."""
        tables = {}
        for table, clocks, stage in zip(self.chain.tables, self.clocks, self.stages, strict=True):
            old, tops = self.state.tables[table], [part.state for part in stage]
            tables[table] = layers_after(old, clocks.watermark, self.plan.epoch, tops)
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
        """Whether windows would let output watermarks go further than the epoch is held to."""
        return any(free > clocks.output_watermark for free, clocks in zip(self._outputs, self.clocks, strict=True))

    @cached_property
    def _entered(self) -> list[StageClocks]:
        """The clocks of the stages after the epoch, but for their outputs."""
        upstream = [self.levels[0], *(level for level in self.levels if isinstance(level[0].output, StageOutput))]
        numbers = range(len(self.chain.stages))
        return [entering(self.plan, self.chain, self.state, number, upstream[number])[1] for number in numbers]

    @cached_property
    def _outputs(self) -> list[Instant]:
        """The output watermarks of the stages as windows let them go."""
        stages = zip(self.chain.stages, self._entered, self.stages, strict=True)
        return [output_of(stage, after.watermark, [part.hold for part in parts]) for stage, after, parts in stages]

    @cached_property
    def outcomes(self) -> tuple[StageOutcome, ...]:
        """What became of each stage."""
        accounted = [Accounting.of_all(bundle.accounting for bundle in self.bundles)]
        for number, stage in enumerate(self.stages[:-1], 1):
            transformed = [panes.accounting for panes in self.transformed.get(number, ())]
            accounted.append(Accounting.of_all([*(part.panes_accounting for part in stage), *transformed]))
        return tuple(
            StageOutcome(accounting, _sum(part.counts for part in stage), sum(part.changed for part in stage))
            for accounting, stage in zip(accounted, self.stages, strict=True)
        )

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
        """Dead letters among panes."""
        logs = [part.rejected for part in self.parts]
        logs += [panes.rejected for transformed in self.transformed.values() for panes in transformed]
        return tuple(file for files in logs for file in files)


def _sum(counts: Iterable[Counts | None]) -> Counts | None:
    counted = [count for count in counts if count is not None]
    return Counts(**summed(vars(count) for count in counted)) if counted else None
