"""Process: drain what has landed, epoch by epoch, commit each as a global snapshot, then audit and (if asked) publish.

The composition root of the main job. A run plans its stages (``plan``), which moves nothing, and performs them here,
one after the other. A run with nothing to do starts no JVM.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from headrace.audit.run import expectations_checked
from headrace.audit.store import failing_limits, stale_error
from headrace.ext.executors import EXECUTORS, Engine, Execution
from headrace.model.time import render
from headrace.pipeline.identity import fingerprint
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.scheduling import LOCAL, ExecutorDecision
from headrace.read.definition_plan import plan_definition_change as definition_plan
from headrace.read.snapshots.progress import StoredProgress
from headrace.read.snapshots.read_names import left_out
from headrace.read.snapshots.snapshot_refs import damage_under, ways_out
from headrace.runs import plan as run_plan
from headrace.runs.commits import Committer, NamesFiles, attempts_of
from headrace.runs.epochs import RunContext, check_counted, commit_epochs
from headrace.runs.executors.choice import FittingExecution, WorkEstimate
from headrace.runs.options import Mode, RunOptions
from headrace.runs.parking import NOTHING, CaughtUp, catch_up, check_held, check_none_parked, standing_at
from headrace.runs.publishing.audits import Auditor, BranchAudits
from headrace.runs.publishing.publish import PlannedPublish, audit_reference, output_results
from headrace.runs.reporting.listener import GuardedListener, Listener, wrap_listener
from headrace.runs.reporting.results import RunResult, Tally, data_warnings
from headrace.runs.reporting.results import now as timestamp
from headrace.runs.restore import RestoredRun, definition_change, merges_to_continue, restore_head
from headrace.runs.upstream_holds import hold_upstreams
from headrace.sources.progress import PipelineProgress
from headrace_snapshots.catalog import Claim
from headrace_snapshots.datafiles import check_data_file as check_file
from headrace_snapshots.errors import PublishConflictError, RefusedError
from headrace_snapshots.format.files import DataFile, InputFile, UnfinishedMerge
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.output_view import output_names, seen_by
from headrace_snapshots.store import ObjectInfo, open_store

if TYPE_CHECKING:
    from headrace.sources.landed.files import LandedPortions

_logger = logging.getLogger(__name__)


def process(
    pipeline: Pipeline,
    root: str,
    options: RunOptions,
    *,
    listener: Listener | None = None,
    spark: Any = None,
    now: Callable[[], datetime] | None = None,
) -> RunResult:
    """Drain, audit, publish. ``now`` is the processing-time clock; ``spark`` a session in place of its own.

    Raises typed errors; what was committed before an error stays committed. A ``listener`` that fails ends nothing.
    """
    return perform_run(prepared_process(open_run(pipeline, root, options, wrap_listener(listener), now)), spark)


def open_run(
    pipeline: Pipeline,
    root: str,
    options: RunOptions,
    listener: GuardedListener,
    now: Callable[[], datetime] | None = None,
) -> RunContext:
    """A run of any action, which is still to be prepared. ``now`` is its processing-time clock."""
    return RunContext.from_options(pipeline, options, open_store(root), listener, now or wall_clock)


def prepared_process(run: RunContext) -> run_plan.PreparedRun:
    """A run of ``process``, before it is planned."""
    return run_plan.PreparedRun(run, run_plan.plan_run, "process")


def prepared_audit(run: RunContext) -> run_plan.PreparedRun:
    """An audit of what the branch has beyond ``published``, before it is planned. It keeps its result, and reads no
    input.

    Nothing happens if the stored audit of exactly that range stands. A failed expectation is in the result, no error.
    """
    return run_plan.PreparedRun(run, lambda run: (run_plan.AuditBranch(run.options.branch),), "audit")


def perform_run(prepared_run: run_plan.PreparedRun, spark: Any = None) -> RunResult:
    """Plan a run, and perform its stages, one after the other."""
    with _Run(prepared_run, spark) as run:
        return run.execute()


def wall_clock() -> datetime:
    """The processing time of runs."""
    return datetime.now(UTC)


class _Run:
    """One run: performs its stages on an executor that it holds meanwhile."""

    def __init__(self, prepared_run: run_plan.PreparedRun, spark: Any) -> None:
        context = prepared_run.context
        self.prepared_run, self.context, self.spark = prepared_run, context, spark
        self.pipeline, self.options, self.store = context.pipeline, context.options, context.store
        self.catalog, self.listener, self.warn = context.catalog, context.listener, context.warn
        self.started_at = timestamp()
        self.tally = Tally()
        self.executor: ExecutorDecision | None = None
        self._side: Execution | None = None
        self._connections, self._checking = ExitStack(), ExitStack()
        self._portions: LandedPortions | None = None
        self._check_allowed: Callable[[], None] = lambda: None
        self._claim: Claim | None = None
        self._counted_requests: Mapping[str, int] = {}
        self._restored_run: RestoredRun | None = None
        self._caught_up = NOTHING
        self._audits = BranchAudits({}, {})
        self._forked_from: str | None = None
        self._given_up: list[str] = []
        self._made_snapshots: dict[str, int] = {}

    def __enter__(self) -> Self:
        self._connections.enter_context(self.context.landing.keep_connected())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of what the run holds. An error that ends the run is kept with what its executor said."""
        try:
            self._checking.close()
            self.catalog.settle_hint()
            if self._side is not None:
                self._side.close(error)
        finally:
            self._connections.__exit__(kind, error, trace)

    def execute(self) -> RunResult:
        """Perform the stages of the plan, and what is planned from their results. What they came to."""
        with ways_out(self.catalog, self.options.branch):
            stages = self.prepared_run.plan(self.context)
            while stages:
                stage, *later_stages = stages
                stages = self.perform(stage, tuple(later_stages))
        return self._run_result()

    def perform(
        self, stage: run_plan.RunStage, next_stages: tuple[run_plan.RunStage, ...]
    ) -> tuple[run_plan.RunStage, ...]:
        """Do what ``stage`` says. What comes next: the ``next_stages``, unless only its result can tell."""
        _logger.info("%s", stage)
        match stage:
            case run_plan.ForkBranch() | run_plan.ContinueBranch():
                return self._begin_branch(stage, next_stages)
            case run_plan.MoveBack():
                return self._move_back(stage, next_stages)
            case run_plan.TakeReadersBack():
                from headrace.runs.recovery_target import take_readers_back  # with what follows who has read what

                self._given_up += take_readers_back(self.catalog, self.options)
            case run_plan.LandRecords():
                return run_plan.stages_after_landing(self.context, stage, self._land_records(stage))
            case run_plan.TakeBranch():
                self._take_branch(stage)
            case run_plan.RestoreState():
                return self._restore_state(stage, next_stages)
            case run_plan.CatchUpOutputs():
                self._caught_up = self._catch_up()
            case run_plan.ComputeEpochs():
                self._compute_epochs(stage)
            case run_plan.AuditBranch():
                self._audits = self._audit_branch(stage)
            case run_plan.PublishAudited():
                self._publish_outputs(self._audits)
        return next_stages

    def _begin_branch(
        self, stage: run_plan.ForkBranch | run_plan.ContinueBranch, later_stages: tuple[run_plan.RunStage, ...]
    ) -> tuple[run_plan.RunStage, ...]:
        """Begin a branch, or go on with it. What comes next: another plan if an expiry has marked the snapshot."""
        if isinstance(stage, run_plan.ForkBranch):
            from headrace.runs.backfill.branches import fork_branch

            if not fork_branch(self.catalog, stage.branch, stage.point):
                return self.prepared_run.plan(self.context)
            self._forked_from = stage.point.snapshot
        else:
            self._forked_from = stage.begun
        return later_stages

    def _move_back(
        self, stage: run_plan.MoveBack, later_stages: tuple[run_plan.RunStage, ...]
    ) -> tuple[run_plan.RunStage, ...]:
        """Move a branch back. What comes next: if somebody else moved it meanwhile, rereading what that had read."""
        from headrace.runs.recovery_target import move_back

        moved_branch = move_back(self.catalog, stage, give_up_delivered=self.options.give_up_delivered)
        self._given_up += moved_branch.warnings
        if moved_branch.given_up == stage.given_up:
            return later_stages
        self.options = replace(self.options, as_read_by=moved_branch.given_up)
        self.context = replace(self.context, options=self.options)
        readers = (stage_behind for stage_behind in later_stages if isinstance(stage_behind, run_plan.TakeReadersBack))
        return (*readers, *run_plan.plan_from(self.context, stage.snapshot))

    def _land_records(self, stage: run_plan.LandRecords) -> Mapping[str, int]:
        """Land records. About how many bytes are left, by input, to land beside epochs. Raises what sources raise."""
        landing, options = self.context.landing, self.options
        if stage.all_at_once:
            landing.land_all(stage.offsets)
            return {}
        self._portions = landing.land_first(stage.offsets, options.files_per_epoch, options.bytes_per_epoch)
        return dict(self._portions.left)

    def _publish_outputs(self, audits: BranchAudits) -> None:
        """Publish what audits passed of each output. Raises what holds others back, unless the verdict is deferred."""
        is_deferred = self.options.defer_verdict
        heads = {outcome.to_snapshot for outcome in audits.outcomes.values() if outcome is not None}
        if not heads:
            if (stale := failing_limits(audits.all_limits)) and not is_deferred:
                raise stale_error(self.pipeline.name, stale)
            return
        (head,) = heads
        planned_publish = PlannedPublish.after_audits(self.catalog, head, audits.outcomes)
        if planned_publish.moves:
            for problem in damage_under(self.catalog, self.catalog.manifest(head)):
                self.warn(f"readers will miss this: {problem}")
        try:
            planned_publish.publish(self.options.run_id)
        except (PublishConflictError, RefusedError) as error:
            if not is_deferred:
                raise
            self.listener.noted(f"this run publishes nothing, since somebody was quicker: {error}")
        for note in planned_publish.notes:
            self.listener.noted(note)
        if not is_deferred:
            planned_publish.check_publishable()

    def _take_branch(self, stage: run_plan.TakeBranch) -> None:
        """Claim the branch, and look meanwhile whether the audit could be made."""
        self._check_allowed = self._checking.enter_context(expectations_checked(self.pipeline))
        self._claim = self.catalog.claim(stage.branch, owner=self.options.run_id)
        if stage.replay is not None:  # who wrote the branch until now may have gone on meanwhile
            from headrace.runs.backfill.replay import replay_head

            replay_head(self.catalog, self.pipeline, stage.branch, self._claim.snapshot_id, stage.replay)

    def _restore_state(
        self, stage: run_plan.RestoreState, later_stages: tuple[run_plan.RunStage, ...]
    ) -> tuple[run_plan.RunStage, ...]:
        """Restore what was claimed; what comes next from there."""
        claim = self._claim
        assert claim is not None, "a branch is taken before it is restored"
        self.executor = stage.executor
        self.side.begin()
        # from here on: the first epoch is charged for what the restore asks for
        self._counted_requests = self.store.requests.snapshot()
        self._restored_run = restore_head(
            self.catalog,
            claim,
            self.context.checked_manifest,
            self._verify_state_file,
            self._missing_files,
            progress=self.context.progress,
        )
        if self._restored_run.warning is not None:
            self.warn(self._restored_run.warning)
        later_stages = run_plan.stages_after_restoring(
            self.context, later_stages, claim.snapshot_id, self._restored_run
        )
        for epochs in (stage for stage in later_stages if isinstance(stage, run_plan.ComputeEpochs)):
            hold_upstreams(self.context, epochs.reads)
        return later_stages

    def _catch_up(self) -> CaughtUp:
        assert self._restored_run is not None, "outputs stand at a snapshot"
        assert self._restored_run.head is not None, "outputs stand at a snapshot"
        return catch_up(self.context, self.side, self._restored_run.head)

    def _compute_epochs(self, stage: run_plan.ComputeEpochs) -> None:
        """Compute and commit the epochs of ``stage``."""
        restored_run, caught_up = self._restored_run, self._caught_up
        assert restored_run is not None, "a branch is restored before its epochs are computed"
        progress = standing_at(self.context, restored_run.head, caught_up)
        merges = merges_to_continue(self.catalog, self.pipeline, restored_run.head, self._verify_state_file)
        engine = self.side.engine(attempts_of(self.catalog))
        committer = Committer(
            engine,
            self.catalog,
            restored_run.claim,
            restored_run.head,
            self._record_commit,
            request=self.options.request,
            counted_requests=self._counted_requests,
            check_allowed=self._check_allowed,
            missed_epochs=caught_up.epochs,
            stood_at=caught_up.parked_since,
            standing={*progress.parked},
            names=NamesFiles(self.catalog, {*self.context.landing.files}, self.context.names),
            merges=merges,
        )
        try:
            self._restore_engine(engine, restored_run.head, progress, caught_up, merges)
            is_due = bool(caught_up.parked_since)
            epochs = run_plan.planned_epochs(
                self.context, stage, engine, restored_run.head, portions=self._portions, is_due=is_due
            )
            accept = partial(check_counted, self.context)
            with self.listener.following(engine.find_level):
                commit_epochs(committer, epochs, isolates=self.options.parks, check=self._check_parked, accept=accept)
            hold_upstreams(self.context, stage.reads)  # an expiry may have trimmed it meanwhile
        finally:
            # first, since what it folds runs on the engine
            committer.close()
            engine.close()
        self._checking.close()

    def _record_commit(self, manifest: Manifest) -> None:
        self.tally.add_epoch(manifest)
        self._made_snapshots[manifest.snapshot_id] = manifest.epoch
        self.listener.committed(manifest)

    def _verify_state_file(
        self, manifest: Manifest, table: str, file: DataFile, info: ObjectInfo | None = None
    ) -> None:
        """State of another definition has not the columns of this one: it is read when it is migrated."""
        if manifest.fingerprint == fingerprint(self.pipeline):
            self.side.verify(table, file, info)
        else:
            check_file(self.store, file)

    def _missing_files(self, manifest: Manifest | None, files: Iterable[InputFile]) -> list[str]:
        """The paths of those ``files`` that a run from ``manifest`` would not find as they were when they were read."""
        read = [*files]
        copies = left_out(self.catalog, manifest, (file.path for file in read))
        new_files = self.context.new_files(manifest, full_sweep=True)
        return self.context.landing.missing_paths((file for file in read if file.path not in copies), new_files)

    def _check_parked(self, engine: Engine) -> None:
        """Raise OutputHeldError once epochs have gone on for too long without some output; where an output that fails
        ends the run, the error with which it was parked.
        """
        if self.options.parks:
            check_held(self.context, engine.progress, engine.epoch)
        elif self.options.mode is Mode.MICRO_BATCH:
            check_none_parked(self.context, engine.progress)

    def _restore_engine(
        self,
        engine: Engine,
        head: Manifest | None,
        progress: PipelineProgress,
        caught_up: CaughtUp,
        merges: Mapping[str, Sequence[UnfinishedMerge]],
    ) -> None:
        if self.options.parks:
            for output, where in progress.parked.items():
                self.warn(f"output {output} is parked {where.describe()}")
        if head is None:
            engine.restore(-1, progress, {}, {})
            return
        outputs = {name: own for name, own in self.pipeline.by_output.items() if name in output_names(head)}
        plans = {name: definition_plan(own, seen_by(head, name)) for name, own in outputs.items()}
        for output, difference in plans.items():
            if difference.changes and output not in progress.parked:
                self.listener.noted(f"{definition_change(difference, output)}; its state is migrated")
        columns = {name: difference.columns for name, difference in plans.items() if name not in caught_up.parked_since}
        tables = {**head.tables, **caught_up.tables}
        engine.restore(head.epoch, progress, tables, columns, snapshot=head.snapshot_id, merges=merges)

    @property
    def side(self) -> Execution:
        """The run's side of the executor that was chosen, from first use on."""
        if self._side is None:
            self._side = self._new_side()
        return self._side

    def _new_side(self) -> Execution:
        assert self.executor is not None, "the plan or the audit has decided"
        if self.context.is_auto and self.executor.name == LOCAL:
            return FittingExecution(self.context, self.spark, self._set_executor)
        return EXECUTORS[self.executor.name].open(self.context, self.spark)

    def _set_executor(self, decision: ExecutorDecision) -> None:
        self.executor = decision

    def _audit_branch(self, stage: run_plan.AuditBranch) -> BranchAudits:
        """The audits of what the branch has and readers have not; made now where they are not stored."""
        self.executor = self.executor or stage.executor  # the epochs may have changed it
        return Auditor(self.context, self._side_for, self._made_snapshots).audit_outputs()

    def _side_for(self, work: Callable[[], WorkEstimate]) -> Execution:
        if self.executor is None:
            self.executor = self.context.choose_executor(work)
        return self.side

    def _run_result(self) -> RunResult:
        """What the run did, and where the branch and ``published`` are now."""
        audits = self._audits
        refs = self.catalog.head().refs
        head = refs.get(self.options.branch)
        manifest = None if head is None else self.catalog.manifest(head)
        unnamed_audit = audits.outcomes.get("")
        return RunResult(
            run_id=self.options.run_id,
            pipeline=self.pipeline.name,
            action=self.prepared_run.action,
            status="succeeded",
            started_at=self.started_at,
            finished_at=timestamp(),
            epochs=tuple(self.tally.epochs),
            snapshot=head,
            epoch=None if manifest is None else manifest.epoch,
            published=self.catalog.published_by_all(refs),
            audit=None if unnamed_audit is None else audit_reference(unnamed_audit),
            counts=dict(self.tally.counts),
            watermark=None if manifest is None else render(StoredProgress.from_manifest(manifest).watermark),
            branch=self.options.branch,
            warnings=(
                *self._given_up,
                *self.context.warnings,
                *data_warnings(self.tally, self.pipeline.limits),
                *self.listener.warnings(),
            ),
            executor=self.executor,
            forked_from=self._forked_from,
            limits=audits.all_limits,
            usual=audits.usual,
            outputs=output_results(self.catalog, audits.outcomes) if self.pipeline.has_names else {},
        )
