"""The driver of an epoch whose work is done by tasks: it tells them what to do, and puts their results together.

It holds no rows: clocks, and which files the layers of state are in. ``compute`` is called from one thread, epoch by
epoch; ``compact_current`` may run beside it in another.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Final, Protocol

from headrace.distribute.chain import ChainState, StageClocks, with_downstream, with_upstream
from headrace.distribute.epoch import Attempts, ComputedEpoch, RecomputedEpoch
from headrace.distribute.process import Stop
from headrace.distribute.tasks.background import NO_MERGES, FoldPlan, Merger, Merges, growth_of_input
from headrace.distribute.tasks.epoch_outcome import EpochOutcome, JobResults
from headrace.distribute.tasks.exchange import ReceivedMessage
from headrace.distribute.tasks.plan import (
    EpochPlan,
    TaskEnvironment,
    count_parts,
    divide_for_joins,
    divide_into_shares,
    job_of,
    shared_out,
    with_whole_files,
)
from headrace.distribute.tasks.task_results import DisagreementError, MergedLayers, UpstreamResults
from headrace.distribute.watermark_inputs import count_behind, inputs_after, source_clocks, sum_counts
from headrace.formats.file_format import DividedFileError
from headrace.kernel.columns import Names
from headrace.model.time import Instant
from headrace.model.triggers import Signal
from headrace.pipeline.identity import Formerly
from headrace.pipeline.scheduling import LevelProgress
from headrace.sources.file_planning import ChangedFileError
from headrace.sources.landing import ByInput, check_budgets
from headrace.sources.progress import ChainClocks, InputProgress, ParkedChain, PipelineProgress, WatermarkHold, later_of
from headrace.sources.source_clock import newest_read
from headrace.state.chunks import GROUPS
from headrace.state.files import WrittenState
from headrace.this_process import Size
from headrace_snapshots.format.files import DataFile, Layer, UnfinishedMerge
from headrace_snapshots.format.manifest import IDS, file_stem

MAX_RUNS = 3
"""How often an epoch is run before a disagreement of its tasks is an error."""

NOT_RENAMED: Mapping[str, Sequence[Formerly]] = {}

FOLD_BYTES: Final = Size(2**23)
"""What a task of a fold merges, at most about, as it is stored: some ten times as much once it is decoded."""


class TaskRunner(Merger, Protocol):
    """Where tasks run; merges and folds run beside epochs, in threads of their own."""

    def run_epoch(self, plan: EpochPlan) -> Sequence[ReceivedMessage]:
        """What the tasks of the last level say."""

    def find_level(self) -> LevelProgress | None:
        """Where the epoch under way is, as far as it can be told; None between epochs. Asked from other threads."""

    def run_fold(self, plan: FoldPlan, stop: Stop) -> Sequence[ReceivedMessage]:
        """What the tasks of a fold say. Raises an error soon after ``stop`` was set."""


class TasksEngine:
    """The state of one pipeline between epochs, held by files; ``attempts`` gives each epoch a name.

    Once for all that it computes there are the ``inputs``, the layers of remembered ``ids``, and ``progress``. The
    ``states`` are those of its chains of aggregations. Layers of all tables are merged together, one merge at a time.
    """

    def __init__(self, work: TaskEnvironment, attempts: Attempts, runner: TaskRunner) -> None:
        self.work, self.attempts, self.runner = work, attempts, runner
        self.pipeline, self.store, self.landing = work.pipeline, work.store, work.landing
        self.inputs = {input_.name: InputProgress() for input_ in self.pipeline.inputs}
        self.states = tuple(chain.initial_state() for chain in work.chains)
        self.ids: tuple[Layer, ...] = ()
        self.merges = Merges(runner)
        self.formerly_by_output: Mapping[str, Sequence[Formerly]] = NOT_RENAMED
        self.progress = PipelineProgress()
        self.epoch = -1
        self.snapshot: str | None = None

    @property
    def levels(self) -> int:
        """How many levels of tasks an epoch has, those of each chain apart."""
        return self.work.levels

    @property
    def tables(self) -> dict[str, tuple[Layer, ...]]:
        own = {table: layers for state in self.states for table, layers in state.tables.items()}
        return {**own, **({IDS: self.ids} if self.work.tells_ids else {})}

    def _set_state(self, clocks: Iterable[tuple[StageClocks, ...]], tables: Mapping[str, Sequence[Layer]]) -> None:
        """Let the stages of each chain be at ``clocks``, and all layers be those of ``tables``."""
        chains = zip(self.work.chains, clocks, strict=True)
        self.states = tuple(chain.state_at_clocks(own, tables) for chain, own in chains)
        self.ids = tuple(tables.get(IDS, ()))

    def restore(
        self,
        epoch: int,
        progress: PipelineProgress,
        tables: Mapping[str, Sequence[Layer]],
        renamed: Mapping[str, Sequence[Formerly]] = NOT_RENAMED,
        *,
        snapshot: str | None = None,
        merges: Mapping[str, Sequence[UnfinishedMerge]] = NO_MERGES,
    ) -> None:
        """Continue from a ``snapshot``: its epoch, its progress, the layers of its tables, the ``merges`` that go on.
        ``renamed``: what the columns of the stages of an output are called there, if another definition made it; the
        first epoch migrates their state.
        """
        self.formerly_by_output = renamed
        self.epoch, self.progress, self.snapshot = epoch, progress, snapshot
        self.inputs = {**self.inputs, **progress.inputs}
        self.merges.close()
        self.merges = Merges(self.runner, merges)
        clocks = source_clocks(self.pipeline, self.inputs)
        self._set_state([chain.stage_clocks(progress, clocks) for chain in self.work.chains], tables)

    def find_level(self) -> LevelProgress | None:
        return self.runner.find_level()

    def close(self) -> None:
        """End what runs beside the epochs, and wait until it writes nothing more."""
        self.merges.close()

    def pass_watermark(self, watermarks: Mapping[str, Instant]) -> None:
        """Let these inputs' watermarks be at least so far; the next epoch moves those of the stages."""
        for name, watermark in watermarks.items():
            progress = self.inputs[name]
            self.inputs[name] = replace(progress, watermark=Instant(max(progress.watermark, watermark)))

    def compute(
        self,
        files: ByInput,
        processing_time: Instant,
        *,
        is_last: bool = False,
        signals: Sequence[Signal] = (),
        wait_for_merges: bool = True,
        hold: WatermarkHold | None = None,
        recorded: bool = False,
        isolates: bool = False,
        again: RecomputedEpoch | None = None,
    ) -> ComputedEpoch:
        """The next epoch over ``files`` (none: a timer epoch) at ``processing_time`` (semantics 12.1); if it
        ``is_last``, the watermark goes to +inf after it, and a first epoch is a batch. ``signals`` came since the
        epoch before. Its files are stored when it returns. ``wait_for_merges``: no epoch may come after it soon, so it
        waits for the step of merges beside it, which were for nothing else. ``hold``: watermarks that it does not
        pass, whatever records say. Files that change before they are read are read as they have become, unless they are
        to be those that were ``recorded``. ``isolates``: an output that fails by itself is parked, and the others go
        on while there are any. ``again``: it is computed for some outputs only, which are behind the others.

        Raises ChangingFileError if they change each time; ChangedFileError for a recorded one.
        """
        start = time.monotonic()
        attempt = self.attempts(self.epoch + 1)
        parked_chains = self._parked_chains(again)
        if again is not None:
            self.ids = again.ids
        self._migrate_state(attempt.prefix, parked_chains)
        live = [state for number, state in enumerate(self.states) if number not in parked_chains]
        tables_to_merge = {table: layers for state in live for table, layers in state.tables.items()}
        tables_to_merge |= {IDS: self.ids} if self.work.tells_ids and again is None else {}
        # before the epoch, so that the merge runs beside it
        self.merges.begin_step(
            attempt.prefix,
            tables_to_merge,
            self._least_watermark(live),
            self._watermarks_of_sides(),
            epoch=self.epoch,
            growth=growth_of_input(_count_bytes(files), self.progress.epoch_bytes),
        )

        def plan_epoch(files: ByInput) -> EpochPlan:
            size = _count_bytes(files)
            id_parts = count_parts(self.runner.task_count(size + _total_bytes(self.tables)), size)
            parts = shared_out(id_parts, [_total_bytes(state.tables) for state in self.states])
            return EpochPlan(
                prefix=attempt.prefix,
                epoch=self.epoch + 1,
                # processing time does not go back, whatever this machine's clock says
                processing_time=Instant(max(self.progress.processing_time, processing_time)),
                shares=divide_into_shares(self.pipeline, self.landing, files, self.runner.task_count(size)),
                parts=parts if self.runner.is_elsewhere else divide_for_joins(self.work.chains, parts, size),
                id_parts=id_parts,
                clocks=source_clocks(self.pipeline, self.inputs),
                ids=self.ids,
                states=self.states,
                watermark=self.progress.watermark,
                newest=self.progress.newest,
                signals=tuple(signals),
                is_last=is_last,
                hold=hold,
                marks=self.landing.watermarks(files),
                parked_numbers=parked_chains,
                # the error of the only output is that of the run
                isolates=isolates and len(live) > 1,
                recomputed_epoch=again,
                read_only=self._read_only(again),
            )

        files, outcome = self._run_until_read(files, plan_epoch, is_recorded=recorded)
        # before anything that the epoch came to is taken over
        observations = outcome.observations
        check_budgets(self.pipeline, outcome.plan.epoch, observations.rejected, observations.sample)
        tables = self.merges.adopt_finished(outcome.tables, wait=wait_for_merges)
        self._set_state(outcome.stage_clocks, tables)
        self.progress = self._come_to(files, outcome)
        self.epoch, self.snapshot = outcome.plan.epoch, attempt.snapshot_id
        return ComputedEpoch(
            attempt=attempt,
            epoch=self.epoch,
            files=files,
            chains=outcome.stage_outcomes(),
            progress=self.progress,
            timings={"compute_seconds": time.monotonic() - start},
            signals=outcome.plan.signals,
            acknowledged_levels=outcome.acknowledged_levels,
            wait_for_merges=wait_for_merges,
            written=self._collect_written(outcome),
            parked=tuple(self.work.chains[n].names.output for n in sorted(outcome.left_out | outcome.plan.read_only)),
        )

    def _least_watermark(self, live: Sequence[ChainState]) -> Instant:
        """The watermark of the first stage of ``live`` chains, or of one behind it: something may be in flight."""
        chains = zip(self.work.chains, self.states, strict=True)
        loop_states = [state for chain, state in chains if chain.loop is not None]
        return min(state.clocks[0].watermark for state in (live[0], *loop_states))

    def _watermarks_of_sides(self) -> dict[str, Instant]:
        """The watermark of the first join of each chain that joins outputs, or one behind it, by table of a side."""
        return {
            table: chain.before_joins(state.clocks[0].watermark)
            for chain, state in zip(self.work.chains, self.states, strict=True)
            if chain.upstream
            for sides in chain.sides
            for table in sides
        }

    def _parked_chains(self, recomputed_epoch: RecomputedEpoch | None) -> frozenset[int]:
        """The numbers of the chains that take no part. What is computed again needs what it reads to be computed."""
        names = [chain.names.output for chain in self.work.chains]
        parked_chains = frozenset(number for number, name in enumerate(names) if name in self.progress.parked)
        if recomputed_epoch is None:
            return with_downstream(self.work.chains, parked_chains)
        needed_chains = with_upstream(self.work.chains, {names.index(name) for name in recomputed_epoch.outputs})
        return with_downstream(self.work.chains, parked_chains | ({*range(len(names))} - needed_chains))

    def _read_only(self, recomputed_epoch: RecomputedEpoch | None) -> frozenset[int]:
        """The numbers of the chains that are computed for others alone."""
        if recomputed_epoch is None:
            return frozenset()
        own = {
            number for number, chain in enumerate(self.work.chains) if chain.names.output in recomputed_epoch.outputs
        }
        return with_upstream(self.work.chains, own) - own

    def _run_until_read(
        self, files: ByInput, plan_files: Callable[[ByInput], EpochPlan], *, is_recorded: bool
    ) -> tuple[ByInput, EpochOutcome]:
        """Run the epoch that ``plan_files`` makes of ``files``; give the files and the outcome. Files that changed
        before they were read are given as they became, unless ``is_recorded``.
        """
        for current in [files] if is_recorded else self.landing.reading_attempts(files):
            try:
                return current, self._run_jobs(plan_files(current))
            except ChangedFileError:
                if is_recorded:
                    raise
        raise AssertionError("unreachable")

    def _migrate_state(self, prefix: str, parked_chains: Set[int]) -> None:
        """Give state that another definition left the columns of this one, in files of this epoch. The epoch makes them
        part of a snapshot; otherwise they are garbage. State of ``parked_chains`` stays as it is.
        """
        tables = self.tables
        for number, chain in enumerate(self.work.chains):
            if number in parked_chains:
                continue
            formerly = self.formerly_by_output.get(chain.names.output, ())
            for table, stage, old_stage in zip(chain.tables, chain.stages, formerly, strict=False):
                from headrace.state.migration import StateNames, migrate_layers  # only where names have changed

                if (names := StateNames.from_former_names(stage, old_stage)).differ:
                    files = f"{prefix}/{file_stem(table)}-migrated"
                    tables[table] = migrate_layers(self.work.store, self.work.rows, names, tables[table], files)
        self._set_state([state.clocks for state in self.states], tables)
        self.formerly_by_output = NOT_RENAMED

    def _collect_written(self, outcome: EpochOutcome) -> WrittenState:
        requests = self.merges.take_requests()
        if self.runner.is_elsewhere:
            requests = sum_counts([requests, outcome.request_counts()])
        return WrittenState(self.tables, outcome.log_files(), requests, self.merges.merges_by_table)

    def _run_jobs(self, plan: EpochPlan) -> EpochOutcome:
        """Run the epoch of ``plan``, job after job. Raises the error of an output if no other is left."""
        outcome = EpochOutcome(self.work, (self._run_job(plan),))
        for _ in self.work.jobs[1:]:
            next_plan = outcome.next_plan(self.runner.task_count)
            results = self._run_job(next_plan) if job_of(self.work, next_plan).stages else JobResults(next_plan, ())
            outcome = EpochOutcome(self.work, (*outcome.jobs, results))
        if len(outcome.left_out) == len(self.work.chains):
            raise next(iter(outcome.errors.values())).rebuild_error()
        return outcome

    def _run_job(self, plan: EpochPlan) -> JobResults:
        """Run a job: again if its tasks disagree, and with every file as a whole if a piece of one cannot be read."""
        disagreements = 0
        while True:
            last_level = UpstreamResults.from_messages(self.runner.run_epoch(plan))
            if last_level.error is None:
                return JobResults(plan, last_level.history_for_task(0))
            error = last_level.error.rebuild_error()
            disagreements += isinstance(error, DisagreementError)
            if isinstance(error, DividedFileError) and plan.shares != with_whole_files(plan).shares:
                plan = with_whole_files(plan)
            elif not isinstance(error, DisagreementError) or disagreements == MAX_RUNS:
                raise error

    def _come_to(self, files: ByInput, outcome: EpochOutcome) -> PipelineProgress:
        self.inputs = inputs_after(self.landing, self.inputs, files, outcome.input_clocks)
        newest = self.progress.newest_of(input_.name for input_ in self.pipeline.inputs)
        newest_by_input, behind_by_file = count_behind(outcome.observations.files, newest)
        accepted_rows = outcome.accounting
        held_back_by = None if outcome.plan.is_last else outcome.input_clocks.combined.held_back_by
        return PipelineProgress(
            inputs=self.inputs,
            epoch_bytes=_count_bytes(files),
            watermark=outcome.watermark,
            processing_time=outcome.plan.processing_time,
            chains=self._chain_clocks(outcome),
            min_event_time=accepted_rows.min_accepted,
            max_event_time=accepted_rows.max_accepted,
            held_back_by=held_back_by,
            ahead=outcome.observations.ahead,
            lacking=outcome.observations.lacking,
            rejects=outcome.observations.rejects if len(self.pipeline.inputs) > 1 else (),
            newest=later_of(self.progress.newest, outcome.observations.newest),
            newest_read=later_of(newest_read(self.pipeline, self.progress), outcome.observations.newest_read),
            behind=outcome.observations.lags,
            newest_by_input=newest_by_input,
            behind_by_file=behind_by_file,
            held_to=outcome.held_to,
        )

    def _chain_clocks(self, outcome: EpochOutcome) -> dict[str, ChainClocks]:
        """What is stored of each chain: of those that are left out where they were, and why."""
        clocks = {**outcome.clocks}
        for number in sorted(outcome.left_out):  # each after those that it reads
            output = self.work.chains[number].names.output
            clocks[output] = self.progress.chains.get(output, ChainClocks())
            upstream_names = outcome.left_out_above(number)
            if number in outcome.errors:
                error = outcome.errors[number].rebuild_error()
                code, message = error.code, str(error)
                if upstream_names:
                    message = f"output {upstream_names[0]}, which it reads, has failed: {message}"
            elif clocks[output].parked is None and outcome.plan.recomputed_epoch is None:
                reason = clocks[upstream_names[0]].parked
                assert reason is not None
                code, message = reason.code, f"output {upstream_names[0]}, which it reads, is parked: {reason.message}"
            else:
                continue
            parked_chain = ParkedChain(self.epoch, self.snapshot, code, message, self.epoch + 1)
            clocks[output] = replace(clocks[output], parked=parked_chain)
        return {chain.names.output: clocks[chain.names.output] for chain in self.work.chains}

    def compact_current(
        self,
        layers: Sequence[Layer],
        prefix: str,
        *,
        bottom: bool,
        names: Mapping[str, Names],
        stop: Stop,
        output: str = "",
        parts: int = 1,
        numbers: range = range(1),
    ) -> tuple[tuple[DataFile, ...], ...]:
        """Merge layers of ``current`` of an ``output``, those ``numbers`` of so many ``parts`` of the keys; files call
        columns by ``names``, by path. The newest record of every (key, window) stays; retractions go when nothing is
        below. Gives the files of each part. Raises an error soon after ``stop`` was set.
        """
        chain = next(number for number, chain in enumerate(self.work.chains) if chain.names.output == output)
        files = tuple(file for layer in layers for file in layer.files)
        plan = FoldPlan(prefix, files, parts, numbers, bottom, names, chain)
        folds = UpstreamResults.from_messages(self.runner.run_fold(plan, stop))
        if folds.error is not None:
            raise folds.error.rebuild_error()
        outputs = (result.output for result in folds.results)
        return tuple(output.files for output in outputs if isinstance(output, MergedLayers))

    def parts_of_fold(self, size: int) -> int:
        """How many parts of the keys layers of ``current`` of so many bytes are folded in."""
        return max(self.runner.task_count(size), min(1 + size // FOLD_BYTES.value, GROUPS))


def _total_bytes(tables: Mapping[str, Sequence[Layer]]) -> int:
    return sum(layer.bytes for layers in tables.values() for layer in layers)


def _count_bytes(files: ByInput) -> int:
    return sum(file.size for splits in files.values() for file in splits)
