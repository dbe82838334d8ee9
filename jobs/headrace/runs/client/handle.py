"""One pipeline under a root, for Python: its results, and a method for each command of ``headrace``."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

from headrace.model.arguments import Arguments
from headrace.read.definitions import Definition
from headrace.read.pipeline_reader import PipelineReader
from headrace.read.snapshots.snapshot_refs import At, NoSnapshotError, named_id, snapshot_at
from headrace_snapshots.patches import would_give_up
from headrace_snapshots.refs import BEGINNING, MAIN, PUBLISHED, ref_of

if TYPE_CHECKING:
    from headrace.model.triggers import Signal
    from headrace.observe.plot import LatenessPlot
    from headrace.pipeline.pipeline import Pipeline
    from headrace.runs.patching.patch import PatchRehearsal
    from headrace.runs.publishing.promotion import Rehearsal
    from headrace.runs.reporting.listener import Listener
    from headrace.runs.reporting.results import RunResult
    from headrace.runs.reprocessing.late import LandedLate
    from headrace.runs.reprocessing.rejected import LandedRejected
    from headrace_snapshots.catalog import Catalog
    from headrace_snapshots.format.entry import Entry
    from headrace_snapshots.fsck import FsckReport
    from headrace_snapshots.gc.expiry import Expired
    from headrace_snapshots.gc.gc_roots import Keep
    from headrace_snapshots.patches import GivenUp

BY_HAND = "rolled back by hand"


class PipelineHandle(PipelineReader):
    """One pipeline under a root: its results, and a method for each command of ``headrace``.

    A method gives as a value what the command prints, and raises the error that the command reports. It prints nothing:
    what a run does while it lasts is told to its ``listener``, which may be ``print``. Ctrl-C ends it; what was
    committed stays.

    Methods that need the definition take it as ``pipeline``: a Pipeline, its file (``path/to/file.py[:name]``) or a
    registered name. Without it they take the pipeline that the handle was asked for with (``hr.open(root)[pipeline]``),
    else the registered one of this name. All others need no definition.

    A move in the history of snapshots is one entry of the catalog's log, which the method gives; what was there before
    stays in the store. It raises RefusedError when it does not fit what is there.
    """

    def __init__(
        self,
        catalog: "Catalog",
        definition: "Pipeline | None" = None,
        *,
        create: bool = False,
        started_by: str = "python",
    ) -> None:
        """``create``: runs make a root that does not exist, even if there is no input. ``started_by`` begins the names
        of runs.
        """
        super().__init__(catalog, definition)
        self._create, self._started_by = create, started_by

    @property
    def root(self) -> str:
        """The URI of the root."""
        return self._catalog.store.uri

    # --- runs ---------------------------------------------------------------------------------------------------------

    def run(
        self,
        pipeline: Definition | None = None,
        *,
        max_epochs: int | None = None,
        files_per_epoch: int | None = None,
        bytes_per_epoch: int | None = None,
        executor: str | None = None,
        mode: str = "micro-batch",
        branch: str = MAIN,
        from_branch: str | None = None,
        clock: str | datetime | None = None,
        clock_step: str | None = None,
        signals: "Sequence[str | Signal]" = (),
        publish: bool | None = None,
        full_sweep: bool = False,
        strict: bool = False,
        allow_new_aggregates: bool = False,
        listener: "Listener | Callable[[str], None] | None" = None,
    ) -> "RunResult":
        """Process what has landed, audit it, publish it. Or replay it on a branch of its own.

        ``executor`` is "spark", "local" or "auto"; ``mode`` is "micro-batch", "batch" or "replay". ``publish``: by
        default on main, unless it replays. ``from_branch``, ``clock`` and ``clock_step`` are for replays; all else is
        as the options of ``headrace run`` are.
        """
        from headrace.runs.client.arguments import checked, told_to
        from headrace.runs.client.recording import run_recorded
        from headrace.runs.modes import Mode
        from headrace.runs.options import RunOptions, parse_clock

        opts = checked(
            "run",
            max_epochs=max_epochs,
            files_per_epoch=files_per_epoch,
            bytes_per_epoch=bytes_per_epoch,
            executor=executor,
            mode=mode,
            branch=branch,
            signals=signals,
            publish=publish,
            full_sweep=full_sweep,
            strict=strict,
        )
        replayed = checked("run", from_branch=from_branch, clock=clock, clock_step=clock_step)
        if publish is None:
            opts["publish"] = opts["branch"] == MAIN and opts["mode"] is not Mode.REPLAY
        options = RunOptions(
            self._new_run_id(),
            **opts,
            from_branch=replayed["from_branch"],
            clock=parse_clock(replayed["clock"], replayed["clock_step"]),
            allow_new_aggregates=Arguments("run").flag("allow_new_aggregates", allow_new_aggregates),
            create=self._create,
        )
        definition = self._needed_definition(pipeline, "run")
        return run_recorded("process", definition, self.root, options, told_to(listener))

    def backfill(
        self,
        pipeline: Definition | None = None,
        *,
        start: str | date | None = None,
        end: str | date | None = None,
        branch: str | None = None,
        promote: bool = False,
        files_per_epoch: int | None = None,
        bytes_per_epoch: int | None = None,
        executor: str | None = None,
        listener: "Listener | Callable[[str], None] | None" = None,
    ) -> "RunResult":
        """Read input again into a branch with the pipeline as it is now, audit it, and ``promote`` it if asked.

        Windows from ``start`` up to ``end`` are computed: days in UTC, or times with their zone; by default all. The
        result names the ``branch``. A backfill that was stopped goes on with it.
        """
        from headrace.runs.client.arguments import checked, told_to
        from headrace.runs.client.recording import backfill_recorded
        from headrace.runs.options import RunOptions, parse_span

        opts = checked("backfill", files_per_epoch=files_per_epoch, bytes_per_epoch=bytes_per_epoch, executor=executor)
        range_and_branch = checked("backfill", start=start, end=end, branch=branch, promote=promote)
        options = RunOptions(
            self._new_run_id(),
            branch=range_and_branch["branch"] or MAIN,
            span=parse_span(range_and_branch["start"], range_and_branch["end"]),
            promotes=bool(range_and_branch["promote"]),
            **opts,
        )
        definition = self._needed_definition(pipeline, "backfill")
        return backfill_recorded(definition, self.root, options, told_to(listener), started_by=self._started_by)

    def recover(
        self,
        snapshot: str,
        pipeline: Definition | None = None,
        *,
        executor: str | None = None,
        publish: bool = True,
        listener: "Listener | Callable[[str], None] | None" = None,
    ) -> "RunResult":
        """Move main back to a snapshot, read everything after it again, audit it, and ``publish`` it.

        If what readers see is newer than the snapshot, it moves back too, until the new results are published.
        """
        from headrace.runs.client.arguments import checked, told_to
        from headrace.runs.client.recording import run_recorded
        from headrace.runs.options import RunOptions

        opts = checked("recover", executor=executor, publish=publish)
        to = self._id_of(Arguments("recover").text("snapshot", snapshot, "3f0c9a7be2d14c55"))
        definition = self._needed_definition(pipeline, "recover")
        options = RunOptions(self._new_run_id(), snapshot=to, **opts)
        return run_recorded("recover", definition, self.root, options, told_to(listener))

    def replay_late(
        self, pipeline: Definition | None = None, *, to: str | None = None, at: At = PUBLISHED
    ) -> "LandedLate":
        """Land the records that came too late once more, as files of the source's format; each only once.

        ``to`` is the landing prefix: a path below the root, or a URI; by default that of the source, below ROOT/late.
        """
        from headrace.runs.reprocessing.late import land_late

        return land_late(self._needed_definition(pipeline, "replay_late"), self.root, to=to, at=at)

    def replay_rejected(
        self,
        pipeline: Definition | None = None,
        *,
        input: str | None = None,  # noqa: A002 (as --input)
        to: str | None = None,
        at: At = PUBLISHED,
    ) -> "LandedRejected":
        """Land dead letters (of one ``input``, or of all) once more as they were, each only once, to be read by a
        pipeline that can read them now.

        ``to`` is the landing prefix: a path below the root, or a URI; by default that of each input, below
        ROOT/rejected.
        """
        from headrace.runs.reprocessing.rejected import land_rejected

        definition = self._needed_definition(pipeline, "replay_rejected")
        return land_rejected(definition, self.root, of=input, to=to, at=at)

    # --- moves in the history of snapshots ----------------------------------------------------------------------------

    def release(self, snapshot: str, *, message: str) -> "Entry":
        """Publish a snapshot whose audit failed: a person's decision, recorded with its reason, the ``message``."""
        return self._moved(self._catalog.release(self._id_of(snapshot), message))

    def tag(self, name: str, snapshot: str = MAIN, *, message: str = "") -> "Entry":
        """Give a snapshot a name that stays: to read it, to roll back to it, to replay it."""
        return self._moved(self._catalog.tag(name, self._id_of(snapshot), message))

    def drop(self, name: str, *, message: str = "") -> "Entry":
        """Drop a branch or a tag. Its snapshots stay in the store. The entry says which branches and tags stand."""
        head = self._catalog.head()
        return self._moved(self._catalog.drop(ref_of(name, head.refs, head.generations) or name, message))

    def fork(self, snapshot: At, name: str, *, message: str = "") -> "Entry":
        """Make a branch ``name`` at a snapshot (named as ``at`` is), for runs beside main: ``run(branch=name)``.

        Raises UnknownBranchError, NoSnapshotError.
        """
        manifest = snapshot_at(self._catalog, snapshot).manifest
        if manifest is None:
            raise NoSnapshotError(f"{snapshot} of pipeline {self.name} has no snapshot yet, so nothing can be forked")
        return self._moved(self._catalog.fork(name, manifest.snapshot_id, message))

    @overload
    def rollback(
        self, *, to: str, branch: str = MAIN, message: str = BY_HAND, dry_run: Literal[False] = False
    ) -> "Entry": ...

    @overload
    def rollback(self, *, to: str, branch: str = MAIN, message: str = BY_HAND, dry_run: Literal[True]) -> "GivenUp": ...

    def rollback(
        self, *, to: str, branch: str = MAIN, message: str = BY_HAND, dry_run: bool = False
    ) -> "Entry | GivenUp":
        """Move ``branch`` back to a snapshot: an id, a branch, a tag, or "beginning". ``published`` moves with main if
        it is newer. A run that writes the branch is fenced, and the next run reads again what came after. Main may also
        go back to what it was before a promotion. The ``detail`` of the entry has the output ``patches`` that main
        loses, which no run makes again.

        ``dry_run`` moves nothing, and gives what would move, the patches that would be lost with what makes each again,
        and the releases that would end. It raises RefusedError, as the rollback would.
        """
        arguments, catalog = Arguments("rollback"), self._catalog
        to, branch = arguments.text("to", to, BEGINNING), arguments.text("branch", branch, MAIN)
        dry_run = arguments.flag("dry_run", dry_run)
        to_id = None if to == BEGINNING else named_id(catalog, catalog.known_head(), to)
        given_up = would_give_up(catalog, branch, to_id)
        if not dry_run:
            return self._moved(catalog.rollback(branch, given_up.to, message, patches=given_up.patches))
        if PUBLISHED not in given_up.moves:
            return given_up
        from headrace.audit.releases import ended_by

        return replace(given_up, told=(*given_up.told, *ended_by(catalog, given_up.moves[PUBLISHED][1])))

    @overload
    def promote(
        self, branch: str, *, patch: bool = False, dry_run: Literal[False] = False, message: str = ""
    ) -> "RunResult": ...

    @overload
    def promote(
        self, branch: str, *, patch: Literal[False] = False, dry_run: Literal[True], limit: int = 20
    ) -> "Rehearsal": ...

    @overload
    def promote(
        self, branch: str, *, patch: Literal[True], dry_run: Literal[True], limit: int = 20
    ) -> "PatchRehearsal": ...

    def promote(
        self, branch: str, *, patch: bool = False, dry_run: bool = False, limit: int = 20, message: str = ""
    ) -> "RunResult | Rehearsal | PatchRehearsal":
        """Make ``branch`` main and published, if its whole audit succeeded and it has read all that main has. As a
        ``patch`` only its rows of windows that have expired on both replace those of main, which goes on as it is;
        the branch stays. Where nothing differs nothing happens, and the result has no epochs. ``message`` says in
        the log who decided it, and why.

        ``dry_run`` moves nothing, and gives what readers would see change (at most ``limit`` rows; all are counted) and
        the errors that would be raised. Raises UnknownBranchError, AuditMissingError, AuditFailedError,
        BranchBehindError, ForkGivenUpError, PatchedSinceError; ClockAheadError for a whole branch; for a patch
        UnpatchableError, OtherDefinitionError, UnpublishedError, OpenWindowsError.
        """
        from headrace.runs.publishing import promotion

        arguments = Arguments("promote")
        branch, limit = arguments.text("branch", branch, "trial"), arguments.whole("limit", limit, least=0)
        dry_run = arguments.flag("dry_run", dry_run)
        if not arguments.flag("patch", patch):
            if dry_run:
                return promotion.rehearse(self._catalog, branch, limit=limit)
            return promotion.promote(self._catalog, branch, run_id=self._new_run_id(), message=message)
        from headrace.runs.patching import patch as patching  # with what reads rows

        if dry_run:
            return patching.rehearse_patch(self._catalog, branch, limit=limit)
        return patching.patch(self._catalog, branch, run_id=self._new_run_id(), message=message)

    # --- storage, and how late data is --------------------------------------------------------------------------------

    def keeping(
        self,
        pipeline: Definition | None = None,
        *,
        keep_last: int | None = None,
        keep_for: str | timedelta | None = None,
        keep_tags: bool | None = None,
    ) -> "Keep":
        """What ``expire`` keeps: each as given, else as the retention of the pipeline says, else the last 100 published
        snapshots, and tags.

        Raises KeepError without ``keep_last`` where nobody knows the retention, since no definition is known.
        """
        from headrace.runs.maintenance import rule_of

        arguments = Arguments("expire")
        if keep_last is not None:
            keep_last = arguments.whole("keep_last", keep_last, least=1)
        if keep_tags is not None:
            keep_tags = arguments.flag("keep_tags", keep_tags)
        if not (keep_for is None or isinstance(keep_for, str | timedelta)):
            raise arguments.wrong("keep_for", keep_for, 'write a length of time, such as "30d"')
        definition = self.definition() if pipeline is None else self._needed_definition(pipeline, "expire")
        return rule_of(self.name, definition, last=keep_last, younger=keep_for, tags=keep_tags)

    def expire(
        self,
        pipeline: Definition | None = None,
        *,
        keep_last: int | None = None,
        keep_for: str | timedelta | None = None,
        keep_tags: bool | None = None,
        dry_run: bool = False,
    ) -> "Expired":
        """Let old snapshots go, with all that only they need, and what killed runs left behind. What this marks, the
        next call deletes.

        Kept are branches and tags, all of main that is not published, the ``keep_last`` newest published snapshots, and
        those younger than ``keep_for``, such as "30d"; what is left out is as the pipeline's retention says. Without
        ``keep_tags`` tags of what is not kept are dropped. ``dry_run`` only says what would happen. Raises KeepError,
        and RestoreError when something kept is damaged.
        """
        from headrace.runs.maintenance import expire

        keep = self.keeping(pipeline, keep_last=keep_last, keep_for=keep_for, keep_tags=keep_tags)
        return expire(self._catalog, keep, dry_run=Arguments("expire").flag("dry_run", dry_run))

    def fsck(self, *, deep: bool = False, repair: bool = False) -> "FsckReport":
        """Check that everything is there that snapshots, readers and runs need. What is not is in the answer, no error.

        ``deep`` reads data files too, and compares their checksums. ``repair`` makes again what can be: files of state
        from the local cache of this machine, the hint, the list of what is to be deleted; and has what no snapshot ever
        named deleted once its writers are gone. It moves no branch.
        """
        from headrace.runs.maintenance import check

        arguments = Arguments("fsck")
        return check(self._catalog, deep=arguments.flag("deep", deep), repair=arguments.flag("repair", repair))

    def plot(
        self, *, out: str | Path | None = None, at: At = MAIN, epochs: int = 200, output: str | None = None
    ) -> "LatenessPlot":
        """How late the data of the newest ``epochs`` was, with quantiles for choosing bound and allowed lateness; drawn
        into the file ``out`` (PNG, SVG or PDF) if there is one. ``output``: which of several. Raises NotInstalledError
        without matplotlib.
        """
        from headrace.observe.plot import plot

        epochs = Arguments("plot").whole("epochs", epochs, least=1)
        catalog = self._catalog if output is None else self[output].catalog
        return plot(catalog, at, epochs, None if out is None else Path(out))

    def _moved(self, entry: "Entry") -> "Entry":
        """``entry``, after which the summary of the pipeline is written again."""
        from headrace.runs.reporting.summary_renewal import renew_summary

        renew_summary(self._catalog)
        return entry

    def _id_of(self, snapshot: str) -> str:
        return named_id(self._catalog, self._catalog.head(), snapshot)

    def _new_run_id(self) -> str:
        from headrace.runs.client.recording import new_run_id

        return new_run_id(self._started_by)
