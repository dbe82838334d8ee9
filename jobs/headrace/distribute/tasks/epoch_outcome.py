"""The results of the tasks of an epoch, put together: of inputs and ids, and each chain's clocks, tables and files."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import msgspec

from headrace.distribute.chain import Chain, ChainState, Job, StageClocks, upstream_of
from headrace.distribute.epoch import StageOutcome
from headrace.distribute.tasks import plan as task_plan
from headrace.distribute.tasks import task_results
from headrace.distribute.tasks.stages import handed_down, input_clocks, output_of, source_step, step_to
from headrace.distribute.tasks.tables import layers_after
from headrace.distribute.watermark_inputs import (
    InputObservations,
    WatermarkUpdate,
    combine_observations,
    sum_counts,
    watermark_update,
)
from headrace.kernel.delta import Accounting
from headrace.kernel.step import Counts
from headrace.model.time import NEVER, Instant
from headrace.sources.progress import ChainClocks, WatermarkHold
from headrace_snapshots.format.files import Layer
from headrace_snapshots.format.manifest import IDS, REJECTED


@dataclass(frozen=True)
class ChainOutcome:
    """The ``chain`` of that ``number``, which was in ``state``, in one epoch. ``levels`` has the results that the tasks
    have passed on so far, level by level. Results of other chains are left out. ``bundles``: what became of records in
    its first stage. ``upstream``: what became of the chains whose panes it takes.
    """

    number: int
    chain: Chain
    state: ChainState
    plan: task_plan.EpochPlan
    levels: Sequence[tuple[task_results.TaskResult, ...]]
    bundles: Sequence[task_results.BundleOutput]
    upstream: "Sequence[ChainOutcome]" = ()

    @cached_property
    def stages(self) -> list[list[task_results.StageOutput]]:
        """The parts of each stage; where rows leave as they are, who gave them."""
        if self.chain.is_stateless:
            return [[task_results.StageOutput(counts=own.counts, panes=own.rows) for own in self._rows]]
        levels = [task_results.outputs_of(level, task_results.StageOutput) for level in self.levels]
        return [parts for parts in levels if parts]

    @property
    def _rows(self) -> list[task_results.BundleOutput]:
        """What left as rows of records, or of panes."""
        panes_by_stage = [panes.rows for of_stage in self.panes_taken.values() for panes in of_stage]
        return [
            *self.bundles,
            *(rows[self.number] for rows in panes_by_stage if self.number in rows),
            *self._joined_rows,
        ]

    @property
    def _join_parts(self) -> list[task_results.JoinOutput]:
        return [part for join in self.joins for part in join]

    @property
    def _joined_rows(self) -> list[task_results.BundleOutput]:
        """What left as rows of the last join."""
        parts = self.joins[-1] if self.joins else ()
        return [task_results.BundleOutput(part.accounting, rows=part.rows, counts=part.counts) for part in parts]

    @cached_property
    def loop(self) -> list[task_results.LoopOutput]:
        """What its loop came to, from one task; none without a loop."""
        return [output for level in self.levels for output in task_results.outputs_of(level, task_results.LoopOutput)]

    @cached_property
    def joins(self) -> list[list[task_results.JoinOutput]]:
        """The parts of each of its joins."""
        levels = [task_results.outputs_of(level, task_results.JoinOutput) for level in self.levels]
        return [parts for parts in levels if parts]

    def _watermark_before(self, join: int) -> Instant:
        """The watermark that comes to one of its joins after the epoch."""
        assert self.chain.joins is not None
        if self.upstream:
            floor = min(output.state.clocks[-1].output_watermark for output in self.upstream)
            watermark = max(floor, self.watermark_for(0))
        else:
            watermark = max(self.plan.watermark, input_clocks(self.plan, self.levels[0]).watermark)
        return self.chain.watermark_before(self.chain.joins.joins[join], Instant(watermark))

    @property
    def in_flight(self) -> task_results.Files:
        """What goes round its loop and has not arrived."""
        return tuple(file for output in self.loop for file in output.in_flight)

    @property
    def parts(self) -> list[task_results.StageOutput]:
        return [part for stage in self.stages for part in stage]

    @cached_property
    def panes_taken(self) -> dict[int, list[task_results.PanesOutput]]:
        """What became of panes that were read from files, by the stage that they came to."""
        panes_by_stage, stage = {}, 0
        for level in self.levels:
            if panes := task_results.outputs_of(level, task_results.PanesOutput):
                panes_by_stage[stage] = panes
            stage += isinstance(level[0].output, task_results.StageOutput)
        return panes_by_stage

    @property
    def tables(self) -> dict[str, tuple[Layer, ...]]:
        """The layers of its tables of state after the epoch."""
        tables = {}
        for table, clocks, stage in zip(
            self.chain.tables, self.clocks, self.stages, strict=not self.chain.is_stateless
        ):
            old, tops = self.state.tables[table], [part.state for part in stage]
            tables[table] = layers_after(old, clocks.watermark, self.plan.epoch, tops)
        for number, ((left, right), parts) in enumerate(zip(self.chain.sides, self.joins, strict=False)):
            watermark, epoch = self._watermark_before(number), self.plan.epoch
            tables[left] = layers_after(self.state.tables[left], watermark, epoch, [part.left for part in parts])
            tables[right] = layers_after(self.state.tables[right], watermark, epoch, [part.right for part in parts])
        if self.chain.loop is not None:
            names, watermark, epoch = self.chain.names, self.clocks[0].watermark, self.plan.epoch
            tops = [output.edges for output in self.loop]
            tables[names.edges] = layers_after(self.state.tables[names.edges], watermark, epoch, tops)
            tables[names.in_flight] = layers_after(
                (), watermark, epoch, [task_results.StoredLayer(self.in_flight, NEVER)]
            )
        return tables

    @cached_property
    def clocks(self) -> tuple[StageClocks, ...]:
        hold = self.plan.hold
        clocks = []
        for number, clocks_entered in enumerate(self._clocks_after):
            output = self._outputs[number]
            if hold is not None:
                limit = hold.output_limit(number, self.chain.names.output)
                output = Instant(max(clocks_entered.output_watermark, min(output, limit)))
            clocks.append(replace(clocks_entered, output_watermark=output))
        return tuple(clocks)

    @property
    def is_held(self) -> bool:
        """Whether windows would let output watermarks go further than the epoch is held to, or a loop its own."""
        outputs = any(free > clocks.output_watermark for free, clocks in zip(self._outputs, self.clocks, strict=True))
        return outputs or (self.chain.loop is not None and self._entering_free > self.clocks[0].watermark)

    @property
    def _entering_free(self) -> Instant:
        """The watermark of the first stage, were the epoch held to nothing."""
        return replace(self, plan=replace(self.plan, hold=None))._stage_clocks(0).watermark

    def watermark_for(self, stage: int) -> Instant:
        """The watermark that comes to a ``stage`` that takes panes: the output watermark of the stage before it. For
        the first it is the least of the chains upstream, and comes to the joins before the stage.
        """
        if stage > 0:
            return self.clocks[stage - 1].output_watermark
        return min(upstream.clocks[-1].output_watermark for upstream in self.upstream)

    def elements_of(self, stage: int) -> task_results.Files:
        """The files of the panes of a ``stage`` with the order in which they were emitted, where that is stored."""
        return tuple(file for part in self.stages[stage] for file in part.elements)

    @cached_property
    def _clocks_after(self) -> list[StageClocks]:
        """The clocks of the stages after the epoch, but for their outputs."""
        return [self._stage_clocks(number) for number in range(len(self.stages))]

    def _stage_clocks(self, number: int) -> StageClocks:
        plan, chain, state = self.plan, self.chain, self.state
        if number:
            own = [level for level in self.levels if isinstance(level[0].output, task_results.StageOutput)][number - 1]
            return step_to(plan, chain, state, number, handed_down(plan, chain, number, own))[1]
        if chain.upstream:
            return step_to(plan, chain, state, number, chain.behind_joins(self.watermark_for(number)))[1]
        return source_step(plan, chain, state, self.levels[0], self.loop)[1]

    @cached_property
    def _outputs(self) -> list[Instant]:
        """The output watermarks of the stages as windows let them go."""
        stages = zip(self.chain.stages, self._clocks_after, self.stages, strict=False)
        return [
            output_of(stage, clocks_after.watermark, [part.hold for part in parts])
            for stage, clocks_after, parts in stages
        ]

    @cached_property
    def outcomes(self) -> tuple[StageOutcome, ...]:
        accountings = [Accounting.of_all([*(bundle.accounting for bundle in self.bundles), *self._pane_accounting(0)])]
        for number, stage in enumerate(self.stages[:-1], 1):
            accountings.append(
                Accounting.of_all([*(part.panes_accounting for part in stage), *self._pane_accounting(number)])
            )
        return tuple(
            StageOutcome(
                accounting,
                Counts.of_all(part.counts for part in stage),
                sum(part.changed for part in stage) + (0 if number else sum(part.changed for part in self._join_parts)),
                takes_panes=bool(number or self.upstream),
                joined_rejected=0 if number else sum(part.dead for part in self._join_parts),
            )
            for number, (accounting, stage) in enumerate(zip(accountings, self.stages, strict=True))
        )

    def _pane_accounting(self, stage: int) -> list[Accounting]:
        panes_taken = self.panes_taken.get(stage, ())
        accountings = (panes.accounting.get(self.number) for panes in panes_taken)
        rows = [panes.rows[self.number].accounting for panes in panes_taken if self.number in panes.rows]
        return [*(accounting for accounting in accountings if accounting is not None), *rows]

    @property
    def panes(self) -> task_results.Files:
        """Pane files of the last stage."""
        return tuple(file for part in self.stages[-1] for file in part.panes)

    @property
    def late(self) -> task_results.Files:
        return tuple(file for bundle in self.bundles for file in bundle.late)

    @property
    def logs(self) -> dict[str, task_results.Files]:
        """The files of the epoch by the log of its own that they go to."""
        return {self.chain.names.panes: self.panes, self.chain.names.late: self.late}

    @property
    def due_event(self) -> Instant:
        """A lower bound of the watermark at which the chain wants its next activation."""
        return min((part.due_event for part in self.parts), default=NEVER)

    @property
    def dead_letters(self) -> task_results.Files:
        """Records that others can take and it cannot, then panes."""
        logs = [bundle.rejected for bundle in (self._rows if self.chain.is_stateless else self.bundles)]
        logs += [part.rejected for part in self._join_parts]
        logs += [part.rejected for part in self.parts]
        all_panes = (panes for of_stage in self.panes_taken.values() for panes in of_stage)
        logs += [panes.rejected.get(self.number, ()) for panes in all_panes]
        return tuple(file for files in logs for file in files)


class JobResults(msgspec.Struct, frozen=True):
    """A job of an epoch as planned, and what its tasks passed on by level; no levels if all its chains are parked."""

    plan: task_plan.EpochPlan
    levels: tuple[tuple[task_results.TaskResult, ...], ...]


@dataclass(frozen=True)
class EpochOutcome:
    """An epoch whose ``jobs`` have run, or the first of them."""

    work: task_plan.TaskEnvironment
    jobs: tuple[JobResults, ...]

    @property
    def plan(self) -> task_plan.EpochPlan:
        """The plan of the first job."""
        return self.jobs[0].plan

    @property
    def levels(self) -> list[tuple[task_results.TaskResult, ...]]:
        return [level for job in self.jobs for level in job.levels]

    @cached_property
    def errors(self) -> Mapping[int, task_results.Failure]:
        """Why chains that took part have no outcome, by number: they have failed, or one that they read has."""
        errors = task_results.errors_of(self.levels)
        for number, chain in enumerate(self.work.chains):
            upstream_errors = [
                errors[upstream_number]
                for upstream_number in upstream_of(self.work.chains, chain)
                if upstream_number in errors
            ]
            if upstream_errors and number not in self.plan.parked_numbers:
                errors.setdefault(number, upstream_errors[0])
        return errors

    def left_out_above(self, number: int) -> list[str]:
        """The outputs that the chain of that number reads and that are left out."""
        chains = self.work.chains
        return [
            chains[upstream_number].names.output
            for upstream_number in upstream_of(chains, chains[number])
            if upstream_number in self.left_out
        ]

    @cached_property
    def left_out(self) -> frozenset[int]:
        """The chains that are as they were before the epoch: they were parked, or failed."""
        return self.plan.parked_numbers | {*self.errors}

    @cached_property
    def by_number(self) -> Mapping[int, ChainOutcome]:
        """What became of each chain that is not left out. A chain whose jobs have not run has no answers."""
        bundles = [share.chains for share in self.shares] + [part.chains for part in self.id_parts]
        outcomes: dict[int, ChainOutcome] = {}
        for number, (chain, state) in enumerate(zip(self.work.chains, self.plan.states, strict=True)):
            if number not in self.left_out:
                outcomes[number] = ChainOutcome(
                    number=number,
                    chain=chain,
                    state=state,
                    plan=self.plan,
                    levels=self._levels_of(number),
                    bundles=[by_chain[number] for by_chain in bundles if number in by_chain],
                    upstream=[outcomes[upstream_number] for upstream_number in upstream_of(self.work.chains, chain)],
                )
        return outcomes

    @property
    def chains(self) -> tuple[ChainOutcome, ...]:
        """What became of the chains that are not left out."""
        return tuple(self.by_number.values())

    @property
    def _chains_to_store(self) -> list[ChainOutcome]:
        """Chains whose panes and dead letters are not stored yet."""
        return [outcome for outcome in self.chains if outcome.number not in self.plan.read_only]

    @property
    def stage_clocks(self) -> tuple[tuple[StageClocks, ...], ...]:
        """The clocks of the stages of all chains after the epoch."""
        return tuple(
            self.by_number[number].clocks if number in self.by_number else state.clocks
            for number, state in enumerate(self.plan.states)
        )

    @property
    def watermark(self) -> Instant:
        """The watermark of the source. The first stage of each chain that takes records and is not left out has the
        same, unless something is in flight in its loop.
        """
        return Instant(max(self.plan.watermark, self.input_clocks.watermark))

    def _levels_of(self, chain: int) -> list[tuple[task_results.TaskResult, ...]]:
        """The levels of the chain with that number, and those before them in the same jobs."""
        jobs = [levels for job, levels in zip(self.work.jobs, self._by_chain, strict=False) if chain in job.stages]
        return [own for levels in jobs for level in levels if (own := level.get(chain, level.get(None)))]

    @cached_property
    def _by_chain(self) -> "list[list[Mapping[int | None, tuple[task_results.TaskResult, ...]]]]":
        """The levels of each job: of stages each chain's tasks, none of a parked one; others: all tasks under None."""
        return [self._by_chain_in(job) for job in self.jobs]

    def _by_chain_in(self, results: JobResults) -> list[Mapping[int | None, tuple[task_results.TaskResult, ...]]]:
        plan, whole, live = results.plan, self.work.jobs[results.plan.job], task_plan.job_of(self.work, results.plan)
        # levels of stages come last, one for each step; those before them serve all chains
        shared_levels = len(results.levels) - live.steps if results.levels else 1
        tasks = [*results.levels[shared_levels:], *[()] * (whole.steps - live.steps)]
        levels: list[Mapping[int | None, tuple[task_results.TaskResult, ...]]] = [
            {None: level} for level in results.levels[:shared_levels] or [()]
        ]
        for step, level in enumerate(tasks):
            levels.append(
                {number: task_plan.of_chain(plan, live, step, number, level) for number in whole.chains_at(step)}
            )
        return levels

    def next_plan(self, tasks: Callable[[int], int]) -> task_plan.EpochPlan:
        """The plan of the job after those that have run; ``tasks`` says how many share so many bytes."""
        job_plan = replace(self.plan, job=len(self.jobs), parked_numbers=self.left_out)
        job = task_plan.job_of(self.work, job_plan)
        watermarks = {chain: self.by_number[chain].watermark_for(own.start) for chain, own in job.stages.items()}
        return replace(job_plan, watermarks=watermarks, elements=tuple(self._element_files(job, tasks)))

    def _element_files(self, job: Job, tasks: Callable[[int], int]) -> Iterator[task_plan.PaneFiles]:
        begin = [self.by_number[chain] for chain, own in job.stages.items() if own.start <= 0]
        for upstream_number in sorted(
            {upstream_number.number for outcome in begin for upstream_number in outcome.upstream}
        ):
            outcome = self.by_number[upstream_number]
            in_order = upstream_number in self.work.handed_on_in_order and not outcome.chain.stages[-1].stage.gives_rows
            files = outcome.elements_of(len(outcome.stages) - 1) if in_order else outcome.panes
            yield from task_plan.pane_shares(upstream_number, files, tasks(sum(file.bytes for file in files)))
        for chain, own in job.stages.items():
            if own.start > 0:  # a user's own code shares them out
                yield from (
                    task_plan.PaneFiles(chain, (file,)) for file in self.by_number[chain].elements_of(own.start - 1)
                )

    @cached_property
    def shares(self) -> list[task_results.ShareOutput]:
        """Results of the map tasks."""
        return task_results.outputs_of(self.jobs[0].levels[0], task_results.ShareOutput)

    @cached_property
    def id_parts(self) -> list[task_results.IdsOutput]:
        """The parts of the ids, none where duplicates are not told."""
        levels = self.jobs[0].levels[1:2]  # none where all are rows
        return [part for level in levels for part in task_results.outputs_of(level, task_results.IdsOutput)]

    @cached_property
    def observations(self) -> InputObservations:
        """What all records say, and what their sources know."""
        return combine_observations(share.observations for share in self.shares).and_known(self.plan.marks)

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
        return {outcome.chain.names.output: self._chain_clocks(outcome) for outcome in self.chains}

    def _chain_clocks(self, chain: ChainOutcome) -> ChainClocks:
        idle = self.input_clocks.combined.idle_deadline
        rest = [self.plan.processing_time] if chain.in_flight else []
        return ChainClocks(
            watermark=chain.clocks[0].watermark if chain.upstream or chain.chain.loop or chain.chain.joins else None,
            output_watermarks=tuple(clocks.output_watermark for clocks in chain.clocks),
            due_event=chain.chain.before_joins(chain.due_event),
            due_time=min(self._due_by_time(chain), idle, *rest, *(part.due_time for part in chain.parts)),
        )

    def _due_by_time(self, chain: ChainOutcome) -> Instant:
        """A lower bound of the processing time at which, without any record, the watermark passes what some window
        waits for; NEVER if it does not, or is held: what is held goes on with an epoch that is held to something else.
        """
        if self.held_to is not None:
            return NEVER
        source = self.input_clocks.combined
        due_times = [chain.chain.before_joins(part.due_event) for part in chain.parts]
        # a later stage may wait for less, which its own input watermark has not passed: time does not help it on
        due = min((time for time in due_times if time >= source.watermark), default=NEVER)
        return Instant(due + 1) if due < source.by_time else NEVER

    @property
    def acknowledged_levels(self) -> frozenset[int]:
        """The levels all of whose tasks passed something on, and so have stored their part of the epoch. Each chain has
        levels of its own, as ``TaskEnvironment.levels`` counts them. A chain that is left out has nothing to store.
        """
        jobs = zip(self.jobs, self._by_chain, strict=True)
        levels = [(job.plan, *own) for job, levels in jobs for level in levels for own in level.items()]
        whole = [c in self.left_out or self._is_whole(plan, c, tasks) for plan, c, tasks in levels]
        return frozenset(level for level, is_whole in enumerate(whole) if is_whole)

    def _is_whole(
        self, plan: task_plan.EpochPlan, chain: int | None, tasks: tuple[task_results.TaskResult, ...]
    ) -> bool:
        if tasks and isinstance(tasks[0].output, task_results.LoopOutput):
            return tasks[0].output.is_acknowledged
        return len(tasks) >= self._tasks_of(plan, chain, tasks)

    def _tasks_of(
        self, plan: task_plan.EpochPlan, chain: int | None, tasks: tuple[task_results.TaskResult, ...]
    ) -> int:
        """How many there are at least: a user's own code may make more."""
        if chain is not None:
            return plan.parts[chain]
        if not task_plan.job_of(self.work, plan).stages:
            return 0
        if tasks and isinstance(tasks[0].output, task_results.IdsOutput):
            return plan.id_parts
        return task_plan.tasks_of_first_level(self.work, plan)

    @property
    def accounting(self) -> Accounting:
        """What became of records in the first stages of all chains that take them; times are those of all accepted."""
        return Accounting.of_all(own.outcomes[0].accounting for own in self.chains if not own.upstream)

    def stage_outcomes(self) -> dict[str, tuple[StageOutcome, ...]]:
        """What became of each stage of each chain, by its output."""
        return {outcome.chain.names.output: outcome.outcomes for outcome in self._chains_to_store}

    @property
    def tables(self) -> dict[str, tuple[Layer, ...]]:
        tables = {table: layers for state in self.plan.states for table, layers in state.tables.items()}
        tables |= {table: layers for outcome in self.chains for table, layers in outcome.tables.items()}
        if self.work.tells_ids:
            tops = [part.ids for part in self.id_parts]
            tables[IDS] = layers_after(self.plan.ids, self.watermark, self.plan.epoch, tops)
        return tables

    def log_files(self) -> dict[str, task_results.Files]:
        """The files of the epoch by the log that they go to."""
        own = {log: files for outcome in self._chains_to_store for log, files in outcome.logs.items()}
        return {**own, REJECTED: self._dead_letters}

    @property
    def _dead_letters(self) -> task_results.Files:
        """Dead letters: records that nobody can take; records, then panes, that an output cannot take."""
        own = (file for outcome in self._chains_to_store for file in outcome.dead_letters)
        return (*(file for share in self.shares for file in share.rejected), *own)

    def request_counts(self) -> dict[str, int]:
        return sum_counts(result.requests for level in self.levels for result in level)
