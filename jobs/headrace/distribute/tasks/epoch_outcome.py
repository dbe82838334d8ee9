"""The results of the tasks of an epoch, put together: of inputs and ids here, of aggregations in ``chain_outcome``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from headrace.distribute.epoch import StageOutcome
from headrace.distribute.input_clocks import WatermarkUpdate, watermark_update
from headrace.distribute.tasks.chain_outcome import ChainOutcome
from headrace.distribute.tasks.parts import of_chain
from headrace.distribute.tasks.plan import EpochPlan
from headrace.distribute.tasks.tables import layers_after
from headrace.distribute.tasks.task_environment import TaskEnvironment
from headrace.distribute.tasks.task_results import (
    Files,
    IdsOutput,
    PanesOutput,
    ShareOutput,
    StageOutput,
    TaskResult,
    summed,
)
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
    def chains(self) -> tuple[ChainOutcome, ...]:
        """What became of each chain of aggregations."""
        bundles = [share.chains for share in self.shares] + [part.chains for part in self.id_parts]
        return tuple(
            ChainOutcome(
                chain, state, self.plan, self._levels_of(number), [by_chain[number] for by_chain in bundles if by_chain]
            )
            for number, (chain, state) in enumerate(zip(self.work.chains, self.plan.states, strict=True))
        )

    def _levels_of(self, chain: int) -> list[tuple[TaskResult, ...]]:
        """The levels of the chain with that number, and those that all chains have in common."""
        return [own for level in self._by_chain if (own := level.get(chain, level.get(None)))]

    @cached_property
    def _by_chain(self) -> list[Mapping[int | None, tuple[TaskResult, ...]]]:
        """The levels: of stages the tasks of each chain, of others all under None."""
        levels: list[Mapping[int | None, tuple[TaskResult, ...]]] = []
        stage = 0
        for level in self.levels:
            if not isinstance(level[0].output, StageOutput):
                levels.append({None: level})
                continue
            own = {n: of_chain(self.plan, self.work.chains, stage, n, level) for n in range(len(self.work.chains))}
            levels.append({number: tasks for number, tasks in own.items() if tasks})
            stage += 1
        return levels

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
        plan, percentiles = self.plan, tuple(self.work.percentiles)
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
        is_held = (free.inputs, free.watermark) != (clocks.inputs, clocks.watermark)
        return hold if is_held or any(chain.is_held for chain in self.chains) else None

    @property
    def clocks(self) -> dict[str, ChainClocks]:
        """What is stored of the clocks of each chain, by its output."""
        return {outcome.chain.names.output: self._clocks(outcome) for outcome in self.chains}

    def _clocks(self, chain: ChainOutcome) -> ChainClocks:
        idle = self.input_clocks.combined.idle_deadline
        return ChainClocks(
            output_watermarks=tuple(clocks.output_watermark for clocks in chain.clocks),
            due_event=chain.due_event,
            due_time=min(self._due_by_time(chain), idle, *(part.due_time for part in chain.parts)),
        )

    def _due_by_time(self, chain: ChainOutcome) -> Instant:
        """A lower bound of the processing time at which, without any record, the watermark passes what some window
        waits for; NEVER if it does not, or is held: what is held goes on with an epoch that is held to something else.
        """
        if self.held_to is not None:
            return NEVER
        source = self.input_clocks.combined
        awaited = [part.due_event for part in chain.parts]
        # a later stage may wait for less, which its own input watermark has not passed: time does not help it on
        due = min((at for at in awaited if at >= source.watermark), default=NEVER)
        return Instant(due + 1) if due < source.by_time else NEVER

    @property
    def acknowledged(self) -> frozenset[int]:
        """The levels all of whose tasks passed something on, and so have stored their part of the epoch; those of each
        chain apart, as ``TaskEnvironment.levels`` counts them.
        """
        levels = [(chain, tasks) for level in self._by_chain for chain, tasks in level.items()]
        return frozenset(at for at, (chain, tasks) in enumerate(levels) if len(tasks) >= self._tasks_of(chain, tasks))

    def _tasks_of(self, chain: int | None, tasks: tuple[TaskResult, ...]) -> int:
        """How many there are at least: a user's own code may make more."""
        if chain is not None:
            return self.plan.parts[chain]
        if isinstance(tasks[0].output, IdsOutput):
            return self.plan.id_parts
        return 1 if isinstance(tasks[0].output, PanesOutput) else len(self.plan.shares)

    @property
    def accepted(self) -> Accounting:
        """What became of records in the first stages of all chains, added up; its times are those of all accepted."""
        return Accounting.of_all(outcome.outcomes[0].accounting for outcome in self.chains)

    def outcomes(self) -> dict[str, tuple[StageOutcome, ...]]:
        """What became of each stage of each chain, by its output."""
        return {outcome.chain.names.output: outcome.outcomes for outcome in self.chains}

    @property
    def tables(self) -> dict[str, tuple[Layer, ...]]:
        """The layers of all tables of state after the epoch."""
        tables = {table: layers for outcome in self.chains for table, layers in outcome.tables.items()}
        if self.work.tells_ids:
            watermark, tops = self.chains[0].clocks[0].watermark, [part.ids for part in self.id_parts]
            tables[IDS] = layers_after(self.plan.ids, watermark, self.plan.epoch, tops)
        return tables

    def logs(self) -> dict[str, Files]:
        """The files of the epoch by the log that they go to."""
        own = {log: files for outcome in self.chains for log, files in outcome.logs.items()}
        return {**own, REJECTED: self._rejected}

    @property
    def _rejected(self) -> Files:
        """Dead letters: records, then panes."""
        panes = (file for outcome in self.chains for file in outcome.rejected)
        return (*(file for share in self.shares for file in share.rejected), *panes)

    def requests(self) -> dict[str, int]:
        """Storage requests of all tasks, by kind."""
        return summed(result.requests for level in self.levels for result in level)
