"""Process: drain what has landed, epoch by epoch, commit each as a global snapshot, then audit and (if asked) publish.

The composition root of the main job. A run plans (``run_plan``), which moves nothing; claims the branch and restores
it; computes and commits the planned epochs (``epochs``). A run with nothing to do starts no JVM.
"""

from collections.abc import Callable, Iterable, Set
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Self

from headrace.audit.limit_checks import check_limits
from headrace.audit.limits import LimitFinding
from headrace.audit.range import UnpublishedRange, audited_files, unpublished_range
from headrace.audit.releases import released_panes
from headrace.audit.run import Audited, expectations_checked, run_audit
from headrace.audit.store import (
    AuditDamagedError,
    AuditOutcome,
    failing,
    read_audit,
    stale_error,
    with_limits,
)
from headrace.audit.usual.audit import UsualAudit
from headrace.audit.usual.findings import UsualFinding
from headrace.model.time import render
from headrace.pipeline.executors import EXECUTORS, ExecutorDecision
from headrace.pipeline.expectations import ExpectationView
from headrace.pipeline.identity.fingerprint import fingerprint
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.quality.limits import Severity
from headrace.read.definition_plan import columns_after
from headrace.read.definition_plan import plan as definition_plan
from headrace.read.snapshots.damage import ways_out
from headrace.read.snapshots.progress import StoredProgress
from headrace.read.snapshots.publish_check import damage_under
from headrace.read.snapshots.reprocessed_copies import left_out
from headrace.read.views.row_files import check_files
from headrace.runs.backfill.replay import replay_head
from headrace.runs.commits import Committer, attempts_of
from headrace.runs.context import RunContext
from headrace.runs.continuation import check_continues, definition_change
from headrace.runs.epochs import commit_epochs
from headrace.runs.executors.choice import work_of_audit
from headrace.runs.executors.interface import Engine, ExecutorSide
from headrace.runs.options import RunOptions
from headrace.runs.publishing.publish import publish_range, reference
from headrace.runs.reporting.data_warnings import noticed
from headrace.runs.reporting.listener import Listener, number_of, watched
from headrace.runs.reporting.results import RunResult
from headrace.runs.reporting.results import now as timestamp
from headrace.runs.reporting.tally import Tally
from headrace.runs.restore import restore
from headrace.runs.run_plan import RunPlan, plan_run, planned_epochs, restored_plan
from headrace.sources.progress import PipelineProgress
from headrace_snapshots.datafiles import check as check_file
from headrace_snapshots.format.files import DataFile, InputFile
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.output_view import seen_by
from headrace_snapshots.refs import PUBLISHED
from headrace_snapshots.store import open_store


def process(
    pipeline: Pipeline,
    root: str,
    options: RunOptions,
    *,
    listener: Listener | None = None,
    spark: Any = None,
    now: Callable[[], datetime] | None = None,
) -> RunResult:
    """Drain, audit, publish. ``now`` is the processing-time clock; ``spark`` a session to use instead of one of its
    own.

    Raises typed errors; what was committed before an error stays committed. A ``listener`` that fails ends nothing.
    """
    context = RunContext.of(pipeline, options, open_store(root), watched(listener), now or _wall_clock)
    with _Run(context, spark) as run:
        return run.execute()


def audit(
    pipeline: Pipeline,
    root: str,
    options: RunOptions,
    *,
    listener: Listener | None = None,
    spark: Any = None,
) -> RunResult:
    """Audit what the branch holds beyond ``published`` and keep the result, without taking in anything new.

    Nothing happens if the stored audit of exactly that range stands. A failed expectation is in the result, no error.
    """
    context = RunContext.of(pipeline, options, open_store(root), watched(listener), _wall_clock)
    with _Run(context, spark) as run:
        return replace(run.result(run.audited()), action="audit")


def _wall_clock() -> datetime:
    return datetime.now(UTC)


class _Run:
    """One run: plans it, performs the plan on an executor that it holds meanwhile, audits what the branch has then."""

    def __init__(self, context: RunContext, spark: Any) -> None:
        self.context, self.spark = context, spark
        self.pipeline, self.options, self.store = context.pipeline, context.options, context.store
        self.catalog, self.listener, self.warn = context.catalog, context.listener, context.warn
        self.started_at = timestamp()
        self.tally = Tally()
        self.executor: ExecutorDecision | None = None
        self.limits: tuple[LimitFinding, ...] = ()
        self._side: ExecutorSide | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Let go of what the run holds. An error that ends the run is kept with what its executor said."""
        self.catalog.settle()
        if self._side is not None:
            self._side.close(error)

    def execute(self) -> RunResult:
        with ways_out(self.catalog, self.options.branch):
            plan = plan_run(self.context)
            self.executor = plan.executor
            if plan.has_epochs:
                with expectations_checked(self.pipeline) as allowed:
                    self._perform(plan, allowed)
        outcome = self.audited()
        if self.options.publish and outcome is not None:
            for problem in damage_under(self.catalog, self.catalog.manifest(outcome.to_snapshot)):
                self.warn(f"readers will miss this: {problem}")
            publish_range(self.catalog, outcome)
        if self.options.publish and outcome is None and (stale := failing(self.limits)):
            raise stale_error(self.pipeline.name, stale)
        return self.result(outcome)

    def _perform(self, plan: RunPlan, allowed: Callable[[], None]) -> None:
        """Claim and restore the branch, then compute and commit what the plan comes to from there. ``allowed`` raises
        if nothing may be committed.
        """
        claim = self.catalog.claim(self.options.branch, owner=self.options.run_id)
        if plan.replay is not None:  # who wrote the branch until now may have gone on meanwhile
            replay_head(self.catalog, self.pipeline, self.options.branch, claim.snapshot_id, plan.replay)
        self.side.begin()
        counted = self.store.requests.snapshot()
        restored = restore(self.catalog, claim, self.context.checked, self._verify, self._gone)
        if restored.warning is not None:
            self.warn(restored.warning)
        plan = restored_plan(self.context, plan, claim.snapshot_id, restored)
        engine = self.side.engine(attempts_of(self.catalog))
        committer = Committer(
            engine,
            self.catalog,
            restored.claim,
            restored.head,
            self._committed,
            request=self.options.request,
            counted=counted,
            allowed=allowed,
        )
        try:
            self._restore_engine(engine, restored.head)
            commit_epochs(committer, planned_epochs(self.context, plan, engine, restored.head))
        finally:
            committer.close()
            engine.close()

    def _committed(self, manifest: Manifest) -> None:
        self.tally.add(manifest)
        self.listener.committed(manifest)

    def _verify(self, manifest: Manifest, table: str, file: DataFile) -> None:
        """State of another definition has not the columns of this one: it is read when it is migrated."""
        if manifest.fingerprint == fingerprint(self.pipeline):
            self.side.verify(table, file)
        else:
            check_file(self.store, file)

    def _gone(self, manifest: Manifest | None, files: Iterable[InputFile]) -> list[str]:
        """The paths of those ``files`` that a run from ``manifest`` would not find as they were when they were read."""
        read = [*files]
        copies = left_out(self.catalog, manifest, (file.path for file in read))
        listed = self.context.new_files(manifest, full_sweep=True)
        return self.context.landing.gone((file for file in read if file.path not in copies), listed)

    def _restore_engine(self, engine: Engine, head: Manifest | None) -> None:
        if head is None:
            engine.restore(-1, PipelineProgress(), {}, {})
            return
        plans = {name: definition_plan(own, seen_by(head, name)) for name, own in self.pipeline.by_output.items()}
        for output, difference in plans.items():
            if difference.changes:
                self.listener.noted(f"{definition_change(difference, output)}; its state is migrated")
        columns = {output: difference.columns for output, difference in plans.items()}
        engine.restore(head.epoch, self.context.progress(head), head.tables, columns)

    @property
    def side(self) -> ExecutorSide:
        """The run's side of the executor that was chosen, from first use on."""
        if self._side is None:
            self._side = self._new_side()
        return self._side

    def _new_side(self) -> ExecutorSide:
        assert self.executor is not None, "the plan or the audit has decided"
        return EXECUTORS[self.executor.name].side(self.context, self.spark)

    def audited(self) -> AuditOutcome | None:
        """The audit of what the branch has and readers have not; run now if it is not stored. None if there is nothing
        to audit.
        """
        with ways_out(self.catalog, self.options.branch):
            return self._audited()

    def _audited(self) -> AuditOutcome | None:
        unpublished = unpublished_range(self.catalog, self.options.branch)
        self._look_at_limits(unpublished)
        if unpublished is None:
            return None
        published, head = unpublished.after, unpublished.until
        stored = self._stored_audit(published, head)
        if stored is not None and stored.covers(self.pipeline.expected, self.pipeline.usual):
            return with_limits(self.store, stored, self.limits)
        if count := sum(map(len, self.pipeline.expected.values())) + len(self.pipeline.usual):
            self.listener.noted(f"auditing {unpublished}: {number_of(count, 'expectation')}")
        before = None if stored is None else stored.usual
        usual = UsualAudit.of(self.pipeline.usual, self.catalog, unpublished, before, self.warn)
        if self.executor is None:
            self.executor = self.context.decide(lambda: work_of_audit(self.catalog, published, head))
        with self.side.errors():
            outcome = self._run_audit(unpublished, usual)
        self._tell_of(outcome)
        return outcome

    def _look_at_limits(self, unpublished: UnpublishedRange | None) -> None:
        """Hold what the branch has beside the pipeline's limits, and tell of those that are exceeded."""
        self.limits = check_limits(self.pipeline, self.catalog, self.options.branch, unpublished, self.context.now)
        for finding in self.limits:
            if finding.severity is Severity.FAIL:
                self.listener.noted(finding.line())
            elif finding.severity is Severity.WARN or finding.released:
                self.warn(finding.describe())

    def _tell_of(self, outcome: AuditOutcome) -> None:
        """Show the rows that fail, and warn of what holds only because a person has released rows."""
        for finding in outcome.failed:
            for line in finding.lines():
                self.listener.noted(line)
        for finding in outcome.findings:
            if finding.success and finding.released:
                self.warn(f"{finding.describe()}: readers still see what a person has released")
        for compared in () if outcome.usual is None else outcome.usual.findings:
            self._tell_beside_history(compared)

    def _tell_beside_history(self, finding: UsualFinding) -> None:
        """Show what is not as usual, and what is not judged yet; warn as the check says."""
        if finding.severity is Severity.WARN:
            self.warn(finding.describe())
        elif finding.success and finding.released:
            self.warn(f"{finding.describe()}: readers still see what a person has released")
        elif finding.severity is Severity.FAIL or not finding.is_judged:
            self.listener.noted(finding.line())
        for line in finding.row_lines():
            self.listener.noted(line)

    def _stored_audit(self, published: str | None, head: str) -> AuditOutcome | None:
        """None also for one that is not what was written: the audit can be had again, whatever it said."""
        try:
            return read_audit(self.store, self.pipeline.name, published, head)
        except AuditDamagedError as error:
            self.warn(f"{error} (as this run does)")
            return None

    def _run_audit(self, unpublished: UnpublishedRange, usual: UsualAudit | None) -> AuditOutcome:
        published, head = unpublished.after, unpublished.until
        manifest = self.catalog.manifest(head)
        check_continues(self.pipeline, manifest, allow_new_aggregates=True)  # nothing starts here
        self.context.check_code(manifest)
        outputs = self.pipeline.by_output
        usual_views = set() if usual is None else usual.views
        return run_audit(
            store=self.store,
            pipeline=self.pipeline.name,
            from_snapshot=published,
            to_snapshot=head,
            audited={
                output: self._audited_output(output, alone, published, manifest, usual_views)
                for output, alone in outputs.items()
            },
            limits=self.limits,
            usual=usual,
        )

    def _audited_output(
        self, output: str, alone: Pipeline, published: str | None, manifest: Manifest, views: Set[ExpectationView]
    ) -> Audited:
        """What is audited of an ``output``; its ``views`` are looked at whatever is expected of them."""
        seen = seen_by(manifest, output)
        columns = columns_after(alone, seen)
        audited = audited_files(self.catalog, published, seen)
        expected = {expectation.view for expectation in alone.expectations} | views
        for view, files in audited.files.items():
            if view not in expected:  # nobody looks into them, and they are published all the same
                check_files(self.store, files)
        return Audited(
            alone.expectations,
            lambda view, released: self.side.audit_frame(view, audited, columns, released),
            lambda: [*released_panes(self.catalog, columns, output)],
            columns.identity,
        )

    def result(self, outcome: AuditOutcome | None) -> RunResult:
        """What the run did, and where the branch and ``published`` are now."""
        refs = self.catalog.head().refs
        head = refs.get(self.options.branch)
        manifest = None if head is None else self.catalog.manifest(head)
        return RunResult(
            run_id=self.options.run_id,
            pipeline=self.pipeline.name,
            action="process",
            status="succeeded",
            started_at=self.started_at,
            finished_at=timestamp(),
            epochs=tuple(self.tally.epochs),
            snapshot=head,
            epoch=None if manifest is None else manifest.epoch,
            published=refs.get(PUBLISHED),
            audit=None if outcome is None else reference(outcome),
            counts=dict(self.tally.counts),
            watermark=None if manifest is None else render(StoredProgress.of(manifest).watermark),
            branch=self.options.branch,
            warnings=(*self.context.warnings, *noticed(self.tally, self.pipeline.limits), *self.listener.warnings()),
            executor=self.executor,
            limits=self.limits,
            usual=() if outcome is None or outcome.usual is None else outcome.usual.without_values,
        )
