"""The results of the tasks of an epoch, put together: of inputs and ids here, of aggregations in ``chain_outcome``."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from headrace.distribute.epoch import StageOutcome
from headrace.distribute.input_clocks import WatermarkUpdate, watermark_update
from headrace.distribute.tasks.chain_outcome import ChainOutcome
from headrace.distribute.tasks.plan import EpochPlan
from headrace.distribute.tasks.tables import layers_after
from headrace.distribute.tasks.task_environment import TaskEnvironment
from headrace.distribute.tasks.task_results import Files, IdsOutput, PanesOutput, ShareOutput, TaskResult, summed
from headrace.distribute.watermark_inputs import InputObservations, combined
from headrace.kernel.delta import Accounting
from headrace.model.time import NEVER, Instant
from headrace.sources.chain_clocks import ChainClocks
from headrace.sources.progress import WatermarkHold
from headrace_snapshots.format.files import Layer
from headrace_snapshots.format.table_names import IDS, REJECTED


@dataclass(frozen=True)
class EpochOutcome:
    """An epoch whose tasks, level by level, passed on the results in ``levels``."""

    plan: EpochPlan
    work: TaskEnvironment
    levels: Sequence[tuple[TaskResult, ...]]

    @cached_property
    def chain(self) -> ChainOutcome:
        """What became of the chain of aggregations."""
        return ChainOutcome(self.work.chain, self.plan, self.levels)

    @cached_property
    def shares(self) -> list[ShareOutput]:
        """Results of the map tasks."""
        return [result.output for result in self.levels[0] if isinstance(result.output, ShareOutput)]

    @cached_property
    def id_parts(self) -> list[IdsOutput]:
        """The parts of the ids, none where duplicates are not told."""
        return [result.output for result in self.levels[1] if isinstance(result.output, IdsOutput)]

    @cached_property
    def observations(self) -> InputObservations:
        """What all records say."""
        return combined(share.observations for share in self.shares)

    @cached_property
    def input_clocks(self) -> WatermarkUpdate:
        """The clocks of the inputs after the epoch."""
        return self._input_clocks(self.plan.hold)

    def _input_clocks(self, hold: WatermarkHold | None) -> WatermarkUpdate:
        plan, percentiles = self.plan, tuple(self.work.chain.stages[0].trigger.percentiles)
        return watermark_update(
            plan.clocks, self.observations, plan.processing_time, percentiles, is_last=plan.is_last, hold=hold
        )

    @cached_property
    def held_to(self) -> WatermarkHold | None:
        """What the epoch was held to, where its watermarks would have gone further; None where nothing was held."""
        hold, clocks = self.plan.hold, self.input_clocks
        if hold is None or self.plan.is_last:
            return None
        free = self._input_clocks(None)
        is_held = (free.inputs, free.watermark) != (clocks.inputs, clocks.watermark) or self.chain.is_held
        return hold if is_held else None

    @property
    def clocks(self) -> ChainClocks:
        """What is stored of the clocks of the chain."""
        parts, idle = self.chain.parts, self.input_clocks.combined.idle_deadline
        return ChainClocks(
            output_watermarks=tuple(clocks.output_watermark for clocks in self.chain.clocks),
            due_event=min(part.due_event for part in parts),
            due_time=min(self._due_by_time, idle, *(part.due_time for part in parts)),
        )

    @property
    def _due_by_time(self) -> Instant:
        """A lower bound of the processing time at which, without any record, the watermark passes what some window
        waits for; NEVER if it does not, or is held: what is held goes on with an epoch that is held to something else.
        """
        if self.held_to is not None:
            return NEVER
        source = self.input_clocks.combined
        awaited = [part.due_event for part in self.chain.parts]
        # a later stage may wait for less, which its own input watermark has not passed: time does not help it on
        due = min((at for at in awaited if at >= source.watermark), default=NEVER)
        return Instant(due + 1) if due < source.by_time else NEVER

    @property
    def acknowledged(self) -> frozenset[int]:
        """The levels all of whose tasks passed something on, and so have stored their part of the epoch."""
        return frozenset(at for at, level in enumerate(self.levels) if len(level) >= self._tasks_of(at))

    def _tasks_of(self, level: int) -> int:
        """How many there are at least: a user's own code may make more."""
        if level == 0:
            return len(self.plan.shares)
        return 1 if isinstance(self.levels[level][0].output, PanesOutput) else self.plan.parts

    def outcomes(self) -> tuple[StageOutcome, ...]:
        """What became of each stage."""
        read = [share.accounting for share in self.shares] + [part.accounting for part in self.id_parts]
        return self.chain.outcomes(Accounting.of_all(read))

    @property
    def tables(self) -> dict[str, tuple[Layer, ...]]:
        """The layers of all tables of state after the epoch."""
        tables = self.chain.tables
        if self.work.pipeline.deduplicate is not None:
            watermark, tops = self.chain.clocks[0].watermark, [part.ids for part in self.id_parts]
            tables[IDS] = layers_after(self.plan.ids, watermark, self.plan.epoch, tops)
        return tables

    def logs(self) -> dict[str, Files]:
        """The files of the epoch by the log that they go to."""
        names = self.work.chain.names
        return {names.panes: self.chain.panes, names.late: self._late, REJECTED: self._rejected}

    @property
    def _late(self) -> Files:
        late = [share.late for share in self.shares] + [part.late for part in self.id_parts]
        return tuple(file for files in late for file in files)

    @property
    def _rejected(self) -> Files:
        """Dead letters: records, then panes."""
        return (*(file for share in self.shares for file in share.rejected), *self.chain.rejected)

    def requests(self) -> dict[str, int]:
        """Storage requests of all tasks, by kind."""
        return summed(result.requests for level in self.levels for result in level)
