"""Process: drain what has landed, epoch by epoch, commit each as a global snapshot, then audit and (if asked) publish.

The composition root of the main job: it ties the source, the engine, the catalog and the audit together and decides
nothing about windows or storage itself. A run with nothing to do starts no JVM.
"""

from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Self

from headrace.audit.range import audited_files, unseen
from headrace.audit.releases import released_panes
from headrace.audit.run import Audited, expectations_checked, run_audit
from headrace.audit.store import AuditDamagedError, AuditOutcome, read_audit
from headrace.errors import FixConfigError
from headrace.model.time import instant, render
from headrace.model.triggers import Signal
from headrace.pipeline.executors import Executor, ExecutorDecision
from headrace.pipeline.identity.fingerprint import fingerprint
from headrace.pipeline.loading.code_digests import changed_code
from headrace.pipeline.pipeline import Pipeline
from headrace.read.definition_changes import Action, named
from headrace.read.definition_plan import Plan, columns_after, plan
from headrace.read.roots import check_root
from headrace.read.snapshots.damage import ways_out
from headrace.read.snapshots.progress import StoredProgress, progress_of, unread_files
from headrace.read.snapshots.publish_check import damage_under
from headrace.read.snapshots.reprocessed_copies import AGAIN, left_out
from headrace.read.views.row_files import check_files
from headrace.runs.backfill.backfill_plan import MainsReading, Rereading, reread
from headrace.runs.backfill.replay import Replay, begun, next_number, open_replay
from headrace.runs.commits import Committer, attempts_of
from headrace.runs.executors.choice import (
    WorkEstimate,
    check_installed,
    choose,
    input_bytes,
    work_of_audit,
    work_of_run,
)
from headrace.runs.executors.interface import Engine, ExecutorSide
from headrace.runs.modes import Mode
from headrace.runs.options import RunOptions, RunOptionsError
from headrace.runs.publishing.publish import publish_range, reference
from headrace.runs.reporting.data_warnings import noticed
from headrace.runs.reporting.listener import Listener, Watched, number_of, watched
from headrace.runs.reporting.results import RunResult
from headrace.runs.reporting.results import now as timestamp
from headrace.runs.reporting.tally import Tally
from headrace.runs.restore import restore
from headrace.sources.file_planning import Offsets
from headrace.sources.input_diagnostics import instead_of_input
from headrace.sources.landing import ByInput, Landing, counted
from headrace.sources.landing_places import check_places
from headrace.sources.progress import PipelineProgress, WatermarkHold
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.datafiles import check as check_file
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.files import DataFile, InputFile
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.refs import MAIN, PUBLISHED
from headrace_snapshots.store import open_store


class ChangedPipelineError(FixConfigError):
    """The state of the snapshot was made by another definition of the pipeline."""

    code = "config.changed_pipeline"


class ChangedCodeError(FixConfigError):
    """Code of the user's own has changed since the snapshot, and the run is strict."""

    code = "config.changed_code"


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
    clock = now or (lambda: datetime.now(UTC))
    with _Run(pipeline, root, options, watched(listener), clock, spark) as run:
        return run.execute()


def check_goes_on(pipeline: Pipeline, manifest: Manifest, *, allow_new_aggregates: bool) -> None:
    """Raise ChangedPipelineError unless ``pipeline`` can use the state of ``manifest``. ``allow_new_aggregates``: also
    where aggregates start empty for it, which is for people to say.
    """
    found = plan(pipeline, manifest)
    if found.action is Action.REPLAY:
        raise ChangedPipelineError(
            f"{_changed(found)}. Its state means something else now (`headrace plan` says of which aggregations). "
            f"Run `headrace backfill {pipeline.name}` (or the backfill DAG), which replays all input into a new branch "
            "and cuts over; or take the change back"
        )
    if found.starting_empty and not allow_new_aggregates:
        raise ChangedPipelineError(f"{_changed(found)}. Choose for {', '.join(found.starting_empty)}: {found.choice}")


def _changed(found: Plan) -> str:
    at = f"snapshot {found.snapshot} (epoch {found.epoch})"
    return f"pipeline {found.pipeline} has changed since {at}: {named(found.changes)}"


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
    with _Run(pipeline, root, options, watched(listener), lambda: datetime.now(UTC), spark) as run:
        return replace(run.result(run.audited()), action="audit")


@dataclass
class _Run:
    """One run: its storage, its catalog, its executor."""

    pipeline: Pipeline
    root: str
    options: RunOptions
    listener: Watched
    now: Callable[[], datetime]
    given_session: Any

    def __post_init__(self) -> None:
        self.store = open_store(self.root)
        self.landing = Landing(self.pipeline, self.store)
        self.catalog = Catalog(self.store, self.pipeline.name)
        self.started_at = timestamp()
        self.warnings: list[str] = []
        self.tally = Tally()
        self._again: MainsReading | None = None
        self._looked: tuple[str | None, ByInput] | None = None
        self._replay: Replay | None = None
        self.choice: ExecutorDecision | None = None
        self._side: ExecutorSide | None = None

    @property
    def executor(self) -> Executor:
        """The one that is taken, or as long as there is no choice, that is asked for."""
        return self.options.executor or self.pipeline.executor if self.choice is None else self.choice.name

    def _choose(self, work: Callable[[], WorkEstimate]) -> None:
        """Settle which executor the run takes, once."""
        if self.choice is None:
            is_open = self.executor is Executor.AUTO
            self.choice = choose(self.pipeline, self.options.executor, work, self.options.reason)
            check_installed(self.pipeline, self.choice.name)
            if is_open:
                self.listener.noted(f"executor {self.choice.name}: {self.choice.reason}")

    @property
    def side(self) -> ExecutorSide:
        """The run's side of the executor that was chosen, from first use on."""
        if self._side is None:
            self._side = self._new_side()
        return self._side

    def _new_side(self) -> ExecutorSide:
        if self.executor is Executor.LOCAL:
            from headrace.runs.executors.on_local import LocalExecution

            return LocalExecution(self.pipeline, self.store, self.landing)
        from headrace.runs.executors.on_spark import SparkExecution  # Spark is imported only by those who run on it

        return SparkExecution(
            self.pipeline, self.store, self.landing, self.options.run_id, self.listener, self.given_session
        )

    def warn(self, warning: str) -> None:
        """Tell ``warning`` now, and again in the result."""
        self.warnings.append(warning)
        self.listener.warned(warning)

    def checked(self, manifest: Manifest) -> Manifest:
        """``manifest``, if the run can continue from it. Raises ChangedPipelineError; if strict, ChangedCodeError."""
        check_goes_on(self.pipeline, manifest, allow_new_aggregates=self.options.allow_new_aggregates)
        self._check_code(manifest)
        return manifest

    def _check_code(self, manifest: Manifest) -> None:
        if changed := changed_code(self.pipeline, manifest.code):
            what = (
                f"the code of {', '.join(changed)} has changed since snapshot {manifest.snapshot_id} (epoch "
                f"{manifest.epoch}): results so far were made by the code as it was"
            )
            if self.options.strict:
                raise ChangedCodeError(
                    f"{what}. Take the change back, run `headrace backfill {self.pipeline.name}` (or the backfill DAG)"
                    ", or leave out --strict"
                )
            warning = f"{what}. A backfill computes them all again"
            if warning not in self.warnings:
                self.warn(warning)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Let go of what the run holds. An error that ends the run is kept with what its executor said."""
        self.catalog.settle()
        if self._side is not None:
            self._side.close(error)

    def execute(self) -> RunResult:
        self._read_as(self.options.as_read_by)
        with ways_out(self.catalog, self.options.branch):
            if self._has_work():
                with expectations_checked(self.pipeline) as allowed:
                    self._drain_input(allowed)
        outcome = self.audited()
        if self.options.publish and outcome is not None:
            for problem in damage_under(self.catalog, self.catalog.manifest(outcome.to_snapshot)):
                self.warn(f"readers will miss this: {problem}")
            publish_range(self.catalog, outcome)
        return self.result(outcome)

    def _progress(self, manifest: Manifest | None) -> PipelineProgress:
        return PipelineProgress() if manifest is None else progress_of(self.catalog, manifest)

    def _begun(self, replay: Replay, snapshot: str | None) -> Manifest | None:
        return begun(self.catalog, self.options.branch, snapshot, replay, fingerprint(self.pipeline))

    def _has_work(self) -> bool:
        head = self.catalog.head()
        check_places(self.pipeline, self.store, is_first=head.entry < 0)
        snapshot = head.refs.get(self.options.branch)
        if self.options.mode is Mode.REPLAY:
            self._replay = open_replay(self.catalog, self.options, self.landing)
            begun = self._begun(self._replay, snapshot)
            left = self._replay.bytes_left(begun)
            self._choose(lambda: WorkEstimate.after(begun, left))
            return self._replay.epoch(next_number(begun), self._progress(begun)) is not None
        try:
            manifest = None if snapshot is None else self.checked(self.catalog.manifest(snapshot))
            progress = self._progress(manifest)
        except (BrokenObjectError, MissingSnapshotError):
            self._choose(lambda: work_of_run(self.catalog, self.landing, snapshot, full_sweep=True))
            return True  # restoring names what is broken, and falls back
        files = self._new_files(manifest, self.options.full_sweep)
        self._looked = (snapshot, files)
        self._choose(lambda: WorkEstimate.after(manifest, input_bytes(files)))
        self._warn_of_nothing(files, progress)
        found = bool(files or self._unheard(manifest)) or progress.is_due(instant(self.now()), self._hold)
        if found and self.options.mode is Mode.BATCH:
            self._check_batch(snapshot)
        return found

    def _warn_of_nothing(self, files: ByInput, progress: PipelineProgress) -> None:
        """Name inputs that never had a file. Raises MissingRootError if there is neither input nor a root."""
        if not files and not self.options.create:
            check_root(self.store)
        for name, place in self.landing.places.items():
            if name not in files and not progress.offsets.get(name, Offsets()).files:
                self.warn(instead_of_input(name, place))

    def _unheard(self, manifest: Manifest | None) -> tuple[Signal, ...]:
        """The signals to take after ``manifest``: none if an attempt before this one has committed them."""
        heard = None if manifest is None else StoredProgress.of(manifest).signals_of
        return self.options.signals if heard is None or heard != self.options.request else ()

    def _new_files(self, manifest: Manifest | None, sweep: bool) -> ByInput:
        """What has landed and was not read by ``manifest`` or before; ``sweep``: also where nobody looks any more."""
        progress, told = self._progress(manifest), self._warn_of_landed_again
        return unread_files(self.catalog, self.landing, manifest, progress, full_sweep=sweep, told=told)

    def _warn_of_landed_again(self, paths: Set[str]) -> None:
        """Name files of which nobody knows whether they are input."""
        files = "1 file" if len(paths) == 1 else f"{len(paths):,} files"
        warning = (
            f"{files} of records that landed again, such as {min(paths)}, are not read: the snapshots that dropped the "
            "records have expired, so Headrace cannot tell whether they count already. If they do not, give the files "
            f"names that do not begin with {AGAIN}; else take them away"
        )
        if warning not in self.warnings:
            self.warn(warning)

    def _gone(self, manifest: Manifest | None, files: Iterable[InputFile]) -> list[str]:
        """The paths of those ``files`` that a run from ``manifest`` would not find as they were when they were read."""
        read = [*files]
        copies = left_out(self.catalog, manifest, (file.path for file in read))
        return self.landing.gone((f for f in read if f.path not in copies), self._new_files(manifest, True))

    def _drain_input(self, allowed: Callable[[], None]) -> None:
        claim = self.catalog.claim(self.options.branch, owner=self.options.run_id)
        if self._replay is not None:
            self._begun(self._replay, claim.snapshot_id)  # who wrote the branch until now may have gone on meanwhile

        def on_commit(manifest: Manifest) -> None:
            self.tally.add(manifest)
            self.listener.committed(manifest)

        self.side.begin()
        sweep = self.options.full_sweep
        counted = self.store.requests.snapshot()
        fallen_from = claim.snapshot_id
        restored = restore(self.catalog, claim, self.checked, self._verify, self._gone)
        claim, head = restored.claim, restored.head
        if restored.warning is not None:
            self.warn(restored.warning)
            sweep = True  # files that a full sweep had found are below the mark of older snapshots too
            if self._again is None and self.options.mode is Mode.MICRO_BATCH:
                self._read_as(fallen_from)
        files = self._listed(head, sweep) if self._replay is None else {}
        engine = self.side.engine(attempts_of(self.catalog))
        committer = Committer(
            engine,
            self.catalog,
            claim,
            head,
            on_commit,
            request=self.options.request,
            counted=counted,
            allowed=allowed,
        )
        try:
            self._epochs(committer, files)
            committer.drain()
        finally:
            committer.close()
            engine.close()

    def _verify(self, manifest: Manifest, table: str, file: DataFile) -> None:
        """State of another definition has not the columns of this one: it is read when it is migrated."""
        if manifest.fingerprint == fingerprint(self.pipeline):
            self.side.verify(table, file)
        else:
            check_file(self.store, file)

    def _listed(self, head: Manifest | None, sweep: bool) -> ByInput:
        """The files to read after ``head``: those of the first look if they are still what it would find."""
        snapshot = None if head is None else head.snapshot_id
        looked, self._looked = self._looked, None
        if looked is not None and (looked[0], self.options.full_sweep) == (snapshot, sweep):
            return looked[1]
        return self._new_files(head, sweep)

    def _epochs(self, committer: Committer, files: ByInput) -> None:
        engine, head = committer.engine, committer.head
        self._restore(engine, head)
        if self._replay is not None:
            self.listener.planned(self._replay.files_left(head))
            self._replay.run(committer, self.options.max_epochs)
            return
        if self.options.mode is Mode.BATCH:
            self._batch(committer, files)
            return
        self.listener.planned(counted(files))
        limit = self.options.max_epochs
        again, hold = self._recorded(head, files), self._hold
        done, files = again.run(committer, self.landing.taken, limit), again.rest
        signals = self._unheard(head if self._again is None else self._again.head)
        while limit is None or done < limit:
            clock = instant(self.now())
            batch, files = self._cut(files)
            if not batch and not signals and not engine.progress.is_due(clock, hold):
                return
            done += 1
            settles = not files or done == limit
            committer.submit(engine.compute(batch, clock, signals=signals, settles=settles, hold=hold))
            signals = ()

    def _restore(self, engine: Engine, head: Manifest | None) -> None:
        if head is None:
            engine.restore(-1, PipelineProgress(), {})
            return
        found = plan(self.pipeline, head)
        if found.changes:
            self.listener.noted(f"{_changed(found)}; its state is migrated")
        engine.restore(head.epoch, self._progress(head), head.tables, found.columns)

    def _cut(self, files: ByInput) -> tuple[ByInput, ByInput]:
        return self.landing.next_epoch(files, self.options.files_per_epoch, self.options.bytes_per_epoch)

    def _read_as(self, snapshot: str | None) -> None:
        """Let input that ``snapshot`` has read be read again as it was."""
        self._again = None if snapshot is None else MainsReading.of(self.catalog, self.pipeline, snapshot)

    @property
    def _hold(self) -> WatermarkHold | None:
        """What input is held to that was never read: where main is, if main goes on beside this branch."""
        is_beside = self.options.as_read_by is not None and self.options.branch != MAIN
        return self._again.hold if is_beside and self._again is not None else None

    def _recorded(self, head: Manifest | None, files: ByInput) -> Rereading:
        """The ``files`` that are to be read as main read them, in epochs; and the rest."""
        if self._again is None:
            return Rereading((), files)
        limits = {"max_files": self.options.files_per_epoch, "max_bytes": self.options.bytes_per_epoch}
        return reread(self.pipeline, self._again.since(head), files, self._again.begun(head), **limits)

    def _check_batch(self, snapshot: str | None) -> None:
        if snapshot is not None:
            raise RunOptionsError(
                f"mode batch takes all input at once, and branch {self.options.branch} is at snapshot {snapshot} "
                "already: name a new branch, or an empty root"
            )

    def _batch(self, committer: Committer, files: ByInput) -> None:
        """All of ``files`` as one epoch that ends the input."""
        self._check_batch(None if committer.head is None else committer.head.snapshot_id)  # somebody may have been here
        clock = instant(self.now())
        committer.submit(
            committer.engine.compute(self.landing.taken(files), clock, is_last=True, signals=self.options.signals)
        )

    def audited(self) -> AuditOutcome | None:
        """The audit of what the branch has and readers have not; run now if it is not stored. None if there is nothing
        to audit.
        """
        with ways_out(self.catalog, self.options.branch):
            return self._audited()

    def _audited(self) -> AuditOutcome | None:
        found = unseen(self.catalog, self.options.branch)
        if found is None:
            return None
        published, head = found.after, found.until
        stored = self._stored_audit(published, head)
        if stored is not None and stored.covers(self.pipeline.expectations):
            return stored
        if count := len(self.pipeline.expectations):
            self.listener.noted(f"auditing {found}: {number_of(count, 'expectation')}")
        self._choose(lambda: work_of_audit(self.catalog, published, head))
        with self.side.errors():
            outcome = self._run_audit(published, head)
        self._tell_of(outcome)
        return outcome

    def _tell_of(self, outcome: AuditOutcome) -> None:
        """Show the rows that fail, and warn of what holds only because a person has released rows."""
        for finding in outcome.failed:
            for line in finding.lines():
                self.listener.noted(line)
        for finding in outcome.findings:
            if finding.success and finding.released:
                self.warn(f"{finding.describe()}: what a person has released stays visible")

    def _stored_audit(self, published: str | None, head: str) -> AuditOutcome | None:
        """None also for one that is not what was written: the audit can be had again, whatever it said."""
        try:
            return read_audit(self.store, self.pipeline.name, published, head)
        except AuditDamagedError as error:
            self.warn(f"{error} (as this run does)")
            return None

    def _run_audit(self, published: str | None, head: str) -> AuditOutcome:
        manifest = self.catalog.manifest(head)
        check_goes_on(self.pipeline, manifest, allow_new_aggregates=True)  # nothing starts here
        self._check_code(manifest)
        columns = columns_after(self.pipeline, manifest)
        audited = audited_files(self.catalog, published, manifest)
        expected = {expectation.view for expectation in self.pipeline.expectations}
        for view, files in audited.files.items():
            if view not in expected:  # nobody looks into them, and they are published all the same
                check_files(self.store, files)
        return run_audit(
            store=self.store,
            pipeline=self.pipeline.name,
            expectations=self.pipeline.expectations,
            from_snapshot=published,
            to_snapshot=head,
            audited=Audited(
                lambda view, released: self.side.audit_frame(view, audited, columns, released),
                lambda: [*released_panes(self.catalog, columns)],
                columns.identity,
            ),
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
            warnings=(*self.warnings, *noticed(self.tally), *self.listener.warnings()),
            executor=self.choice,
        )
