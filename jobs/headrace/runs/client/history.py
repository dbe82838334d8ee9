"""What people do with what a pipeline has stored: its history, what of it is let go, and whether it is whole.

``PipelineHistory`` has the moves of snapshots: publish, name, go back and replace. ``PipelineStorage`` tells how late
data was.
"""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

from headrace.model.arguments import Arguments
from headrace.read.pipeline_reader import Definition, PipelineReader
from headrace.read.snapshots.snapshot_refs import At, NoSnapshotError, named_id, snapshot_at
from headrace_snapshots.names import BEGINNING, MAIN, is_published, output_of, published_ref, ref_of
from headrace_snapshots.output_catalog import seen_catalog, would_give_up

if TYPE_CHECKING:
    from headrace.observe.lateness import LatenessPlot
    from headrace.pipeline.pipeline import Pipeline
    from headrace.runs.publishing.patch import PatchRehearsal
    from headrace.runs.publishing.promotion import Rehearsal
    from headrace.runs.reporting.results import RunResult
    from headrace_snapshots.catalog import Catalog
    from headrace_snapshots.expiry import Expired
    from headrace_snapshots.fsck import FsckReport
    from headrace_snapshots.gc_roots import Keep
    from headrace_snapshots.log import Entry
    from headrace_snapshots.output_catalog import GivenUp


class PipelineStorage(PipelineReader):
    """A pipeline's results, and a method for each command that looks after what it has stored."""

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

        >>> handle.keeping(keep_last=10, keep_for="30d")
        Keep(last=10, younger=datetime.timedelta(days=30), tags=True)
        """
        from headrace.runs.maintenance import rule_of

        arguments = Arguments("expire")
        if keep_last is not None:
            keep_last = arguments.whole_number("keep_last", keep_last, least=1)
        if keep_tags is not None:
            keep_tags = arguments.flag("keep_tags", keep_tags)
        if not (keep_for is None or isinstance(keep_for, str | timedelta)):
            raise arguments.refusal("keep_for", keep_for, 'write a length of time, such as "30d"')
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

        >>> handle.expire(keep_last=1, dry_run=True).marked.objects
        3
        >>> handle.expire(keep_last=1).kept
        1
        """
        from headrace.runs.maintenance import expire_snapshots

        keep = self.keeping(pipeline, keep_last=keep_last, keep_for=keep_for, keep_tags=keep_tags)
        return expire_snapshots(self._catalog, keep, dry_run=Arguments("expire").flag("dry_run", dry_run))

    def drop_reader(self, name: str, *, root: str | None = None) -> list[str]:
        """Keep nothing any more for a reader, a pipeline that reads this one, which is gone for good; the names of what
        ended. If it is not gone, its next run says again what it needs. ``root`` is the root below which the reader
        was; it must be given where readers of that name are below several. Raises UnknownReaderError.

        >>> handle.drop_reader("airports")
        ['airports.source']
        """
        from headrace.runs.upstream_holds import drop_reader

        return drop_reader(self._catalog, name, root)

    def fsck(self, *, deep: bool = False, repair: bool = False) -> "FsckReport":
        """Check that everything is there that snapshots, readers and runs need. What is not is in the answer, no error.

        ``deep`` reads data files too, and compares their checksums. ``repair`` makes again what it can: files of state
        from this machine's cache, the hint, the list of what is to be deleted. Objects that no snapshot ever named are
        deleted once their writers are gone. It moves no branch.

        >>> handle.fsck(deep=True).problems
        ()
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

        >>> handle.plot().lateness["behind"]
        {50: '0s', 90: '2h 30m', 99: '2h 30m', 100: '2h 30m'}
        """
        from headrace.observe.lateness import plot_lateness

        epochs = Arguments("plot").whole_number("epochs", epochs, least=1)
        catalog = self._catalog if output is None else self[output].catalog
        return plot_lateness(catalog, at, epochs, None if out is None else Path(out))


ROLLED_BACK_BY_HAND = "rolled back by hand"


class PipelineHistory(PipelineStorage):
    """A pipeline's results, and a method for each move in the history of its snapshots.

    A move is one entry of the catalog's log, which the method gives; what was there before stays in the store. It
    raises RefusedError when it does not fit what is there.
    """

    def __init__(self, catalog: "Catalog", definition: "Pipeline | None" = None, *, started_by: str = "python") -> None:
        """``started_by`` begins the names of runs."""
        super().__init__(catalog, definition)
        self._started_by = started_by

    @property
    def root(self) -> str:
        """The URI of the root.

        >>> handle.root
        'file:///...'
        """
        return self._catalog.store.uri

    def release(self, snapshot: str, *, message: str, output: str | None = None) -> "Entry":
        """Publish a snapshot whose audit failed: a person's decision, recorded with its reason, the ``message``. Where
        readers see a newer one they stay, and a rollback to the snapshot takes them back to it from then on.

        ``output``: of one of several; by default of all that are behind. Outputs that are computed of it, and whose
        audits are good, follow with the next publish. Raises UpstreamUnpublishedError for one that is computed of
        another that readers do not see so far.

        >>> _ = handle.run(publish=False)
        >>> handle.release("main", message="a strike: few flights are right").message
        'a strike: few flights are right'
        """
        from headrace.runs.publishing.publish import release

        return self._renew_summary_after(release(self._catalog, self._id_of(snapshot), message, output))

    def publish(self, output: str | None = None) -> "RunResult":
        """Publish of main what its stored audits found good: of one ``output``, or of all. Nothing is audited.

        Raises AuditMissingError, AuditFailedError, NothingToPublishError, UpstreamUnpublishedError.

        >>> _ = handle.run(publish=False)
        >>> handle.publish()
        <publish of delays succeeded: 1 epochs; main at ... (epoch 2); published: ...; 0 warnings>
        """
        from headrace.runs.publishing.publish import publish_audited

        refs = self._catalog.head().refs
        last_announced = self._catalog.published_by_all(refs) if output is None else refs.get(published_ref(output))
        return publish_audited(
            self.name, self.root, last_announced=last_announced, run_id=self._new_run_id(), output=output
        )

    def tag(self, name: str, snapshot: str = MAIN, *, message: str = "") -> "Entry":
        """Give a snapshot a name that stays: to read it, to roll back to it, to replay it.

        ``snapshot`` is an id, a branch or a tag. ``message`` stands in the entry of the log.

        >>> handle.tag("march", message="the books are closed").message
        'tagged epoch 1 as march: the books are closed'
        >>> handle.current(at="march").count()
        3
        """
        return self._renew_summary_after(self._catalog.tag(name, self._id_of(snapshot), message))

    def drop(self, name: str, *, message: str = "") -> "Entry":
        """Drop a branch or a tag. Its snapshots stay in the store. The entry says which branches and tags stand.

        >>> _ = handle.tag("march")
        >>> sorted(handle.drop("march").refs)
        ['main', 'published']
        """
        head = self._catalog.head()
        return self._renew_summary_after(self._catalog.drop(ref_of(name, head.refs, head.generations) or name, message))

    def fork(self, snapshot: At, name: str, *, message: str = "") -> "Entry":
        """Make a branch ``name`` at a snapshot (named as ``at`` is), for runs beside main: ``run(branch=name)``.

        Raises UnknownBranchError, NoSnapshotError.

        >>> handle.fork("published", "trial").message
        'forked trial at epoch 1'
        >>> handle.run(branch="trial").branch
        'trial'
        """
        manifest = snapshot_at(self._catalog, snapshot).manifest
        if manifest is None:
            raise NoSnapshotError(f"{snapshot} of pipeline {self.name} has no snapshot yet, so nothing can be forked")
        return self._renew_summary_after(self._catalog.fork(name, manifest.snapshot_id, message))

    @overload
    def rollback(
        self,
        *,
        to: str,
        branch: str = MAIN,
        message: str = ROLLED_BACK_BY_HAND,
        dry_run: Literal[False] = False,
        give_up_delivered: bool = False,
    ) -> "Entry": ...

    @overload
    def rollback(
        self,
        *,
        to: str,
        branch: str = MAIN,
        message: str = ROLLED_BACK_BY_HAND,
        dry_run: Literal[True],
        give_up_delivered: bool = False,
    ) -> "GivenUp": ...

    def rollback(
        self,
        *,
        to: str,
        branch: str = MAIN,
        message: str = ROLLED_BACK_BY_HAND,
        dry_run: bool = False,
        give_up_delivered: bool = False,
    ) -> "Entry | GivenUp":
        """Move ``branch`` back to a snapshot: an id, a branch, a tag, or "beginning". ``published`` moves with main if
        it is newer: to the newest snapshot at or before that which was published, or which a person has released. A run
        that writes the branch is fenced, and the next run reads again what came after. Main may also go back to what it
        was before a promotion. The ``detail`` of the entry has the output ``patches`` that main loses, which no run
        makes again.

        ``dry_run`` moves nothing, and gives what would move, the patches that would be lost with what makes each again,
        and the releases that would end. It raises RefusedError, as the rollback would.

        Below what was handed over to a sink that cannot take back (``hr.final_rows``) only with ``give_up_delivered``.

        >>> before = handle.show("main").parent
        >>> sorted(handle.rollback(to=before, dry_run=True).moves)
        ['main', 'published']
        >>> handle.rollback(to=before, message="wrong prices").message
        'wrong prices'
        """
        arguments, catalog = Arguments("rollback"), self._catalog
        to, branch = arguments.text("to", to, BEGINNING), arguments.text("branch", branch, MAIN)
        dry_run = arguments.flag("dry_run", dry_run)
        to_id = None if to == BEGINNING else named_id(catalog, catalog.known_head(), to)
        give_up = arguments.flag("give_up_delivered", give_up_delivered)
        given_up = would_give_up(catalog, branch, to_id, give_up_delivered=give_up)
        if not dry_run:
            return self._renew_summary_after(
                catalog.rollback(branch, given_up.to, message, patches=given_up.patches, give_up_delivered=give_up)
            )
        moves = {output_of(ref): target_id for ref, (_, target_id) in given_up.moves.items() if is_published(ref)}
        if not moves:
            return given_up
        from headrace.audit.range import ended_by

        lines = (
            line for output, target_id in moves.items() for line in ended_by(seen_catalog(catalog, output), target_id)
        )
        return replace(given_up, told=(*given_up.told, *dict.fromkeys(lines)))

    @overload
    def promote(
        self,
        branch: str,
        *,
        output: str | None = None,
        patch: bool = False,
        dry_run: Literal[False] = False,
        message: str = "",
        give_up_delivered: bool = False,
    ) -> "RunResult": ...

    @overload
    def promote(
        self,
        branch: str,
        *,
        output: str | None = None,
        patch: Literal[False] = False,
        dry_run: Literal[True],
        limit: int = 20,
        give_up_delivered: bool = False,
    ) -> "Rehearsal": ...

    @overload
    def promote(
        self,
        branch: str,
        *,
        output: str | None = None,
        patch: Literal[True],
        dry_run: Literal[True],
        limit: int = 20,
        give_up_delivered: bool = False,
    ) -> "PatchRehearsal": ...

    def promote(
        self,
        branch: str,
        *,
        output: str | None = None,
        patch: bool = False,
        dry_run: bool = False,
        limit: int = 20,
        message: str = "",
        give_up_delivered: bool = False,
    ) -> "RunResult | Rehearsal | PatchRehearsal":
        """Make ``branch`` main and published, if its whole audit succeeded and it has read all that main has. With
        ``patch`` only its rows of windows that have expired on both replace those of main, which continues; the branch
        stays. Where nothing differs nothing happens, and the result has no epochs. ``message`` says in the log who
        decided it, and why. From a branch that has computed one ``output`` again, main adopts that output, and what is
        computed of it; the next run audits and publishes it. A branch that lacks what was handed over to a sink that
        cannot take back (``hr.final_rows``) is promoted only with ``give_up_delivered``.

        ``dry_run`` moves nothing, and gives what readers would see change (at most ``limit`` rows; all are counted) and
        the errors that would be raised. Raises UnknownBranchError, AuditMissingError, AuditFailedError,
        BranchBehindError, ForkGivenUpError, PatchedSinceError; ClockAheadError for a whole branch; for a patch
        UnpatchableError, OtherDefinitionError, UnpublishedError, OpenWindowsError; for one output NotAdoptableError,
        DeliveredError.

        >>> _ = handle.backfill(branch="corrected")
        >>> handle.promote("corrected", dry_run=True).refusals
        ()
        >>> handle.promote("corrected", message="delays of cancelled flights left out")
        <cut_over of delays succeeded: ...>
        """
        from headrace.runs.client.recording import make_change, rehearse_change
        from headrace.runs.plan import CutOver

        arguments = Arguments("promote")
        branch, limit = arguments.text("branch", branch, "trial"), arguments.whole_number("limit", limit, least=0)
        dry_run = arguments.flag("dry_run", dry_run)
        patches = arguments.flag("patch", patch)
        if not patches and output is not None:
            output = arguments.text("output", output, "daily")
        change = CutOver(branch, output, patches, arguments.flag("give_up_delivered", give_up_delivered))
        if dry_run:
            return rehearse_change(self._catalog, change, limit)
        return make_change(self._catalog, change, run_id=self._new_run_id(), message=message)

    def _renew_summary_after(self, entry: "Entry") -> "Entry":
        """``entry``, after which the summary of the pipeline is written again."""
        from headrace.runs.reporting.summary import renew_summary

        renew_summary(self._catalog)
        return entry

    def _id_of(self, snapshot: str) -> str:
        return named_id(self._catalog, self._catalog.head(), snapshot)

    def _new_run_id(self) -> str:
        from headrace.runs.client.recording import new_run_id

        return new_run_id(self._started_by)
