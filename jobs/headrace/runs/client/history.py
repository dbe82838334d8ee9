"""What people do with what a pipeline has stored: its history, what of it is let go, and whether it is whole.

What a pipeline has stored: what of it is let go, whether it is whole, and how late its data was.

What people do with the history of a pipeline's snapshots: they publish, name, go back and replace.
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

    def drop_reader(self, name: str) -> list[str]:
        """Keep nothing any more for a reader, a pipeline that reads this one, which is gone for good; the names of what
        ended. If it is not gone, its next run says again what it needs. Raises UnknownReaderError.
        """
        from headrace.runs.upstream_holds import drop_reader

        return drop_reader(self._catalog, name)

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
        from headrace.observe.lateness import plot

        epochs = Arguments("plot").whole("epochs", epochs, least=1)
        catalog = self._catalog if output is None else self[output].catalog
        return plot(catalog, at, epochs, None if out is None else Path(out))


BY_HAND = "rolled back by hand"


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
        """The URI of the root."""
        return self._catalog.store.uri

    def release(self, snapshot: str, *, message: str, output: str | None = None) -> "Entry":
        """Publish a snapshot whose audit failed: a person's decision, recorded with its reason, the ``message``. Where
        readers see a newer one they stay, and a rollback to the snapshot takes them back to it from then on.

        ``output``: of one of several; by default of all that are behind. Outputs that are computed of it, and whose
        audits are good, follow with the next publish. Raises UpstreamUnpublishedError for one that is computed of
        another that readers do not see so far.
        """
        from headrace.runs.publishing.publish import release

        return self._moved(release(self._catalog, self._id_of(snapshot), message, output))

    def publish(self, output: str | None = None) -> "RunResult":
        """Publish of main what its stored audits found good: of one ``output``, or of all. Nothing is audited.

        Raises AuditMissingError, AuditFailedError, NothingToPublishError, UpstreamUnpublishedError.
        """
        from headrace.runs.publishing.publish import publish_audited

        refs = self._catalog.head().refs
        shown = self._catalog.published_by_all(refs) if output is None else refs.get(published_ref(output))
        return publish_audited(self.name, self.root, last_announced=shown, run_id=self._new_run_id(), output=output)

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
        self,
        *,
        to: str,
        branch: str = MAIN,
        message: str = BY_HAND,
        dry_run: Literal[False] = False,
        give_up_delivered: bool = False,
    ) -> "Entry": ...

    @overload
    def rollback(
        self,
        *,
        to: str,
        branch: str = MAIN,
        message: str = BY_HAND,
        dry_run: Literal[True],
        give_up_delivered: bool = False,
    ) -> "GivenUp": ...

    def rollback(
        self,
        *,
        to: str,
        branch: str = MAIN,
        message: str = BY_HAND,
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
        """
        arguments, catalog = Arguments("rollback"), self._catalog
        to, branch = arguments.text("to", to, BEGINNING), arguments.text("branch", branch, MAIN)
        dry_run = arguments.flag("dry_run", dry_run)
        to_id = None if to == BEGINNING else named_id(catalog, catalog.known_head(), to)
        give_up = arguments.flag("give_up_delivered", give_up_delivered)
        given_up = would_give_up(catalog, branch, to_id, give_up_delivered=give_up)
        if not dry_run:
            return self._moved(
                catalog.rollback(branch, given_up.to, message, patches=given_up.patches, give_up_delivered=give_up)
            )
        moved = {output_of(ref): after for ref, (_, after) in given_up.moves.items() if is_published(ref)}
        if not moved:
            return given_up
        from headrace.audit.range import ended_by

        ended = (line for output, after in moved.items() for line in ended_by(seen_catalog(catalog, output), after))
        return replace(given_up, told=(*given_up.told, *dict.fromkeys(ended)))

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
        """Make ``branch`` main and published, if its whole audit succeeded and it has read all that main has. As a
        ``patch`` only its rows of windows that have expired on both replace those of main, which goes on as it is;
        the branch stays. Where nothing differs nothing happens, and the result has no epochs. ``message`` says in
        the log who decided it, and why. Of a branch that has computed one ``output`` again main adopts that, and what
        is computed of it; the next run audits and publishes it. A branch that lacks what was handed over to a sink that
        cannot take back (``hr.final_rows``) is promoted only with ``give_up_delivered``.

        ``dry_run`` moves nothing, and gives what readers would see change (at most ``limit`` rows; all are counted) and
        the errors that would be raised. Raises UnknownBranchError, AuditMissingError, AuditFailedError,
        BranchBehindError, ForkGivenUpError, PatchedSinceError; ClockAheadError for a whole branch; for a patch
        UnpatchableError, OtherDefinitionError, UnpublishedError, OpenWindowsError; for one output NotAdoptableError,
        DeliveredError.
        """
        arguments = Arguments("promote")
        branch, limit = arguments.text("branch", branch, "trial"), arguments.whole("limit", limit, least=0)
        dry_run = arguments.flag("dry_run", dry_run)
        if not arguments.flag("patch", patch):
            give_up = arguments.flag("give_up_delivered", give_up_delivered)
            if output is not None:
                from headrace.runs.publishing import adoption as adopting

                output = arguments.text("output", output, "daily")
                if dry_run:
                    return adopting.rehearse_adoption(
                        self._catalog, branch, output, limit=limit, give_up_delivered=give_up
                    )
                return adopting.adopt(
                    self._catalog,
                    branch,
                    output,
                    run_id=self._new_run_id(),
                    message=message,
                    give_up_delivered=give_up,
                )
            if dry_run:
                from headrace.runs.publishing.promotion import rehearse

                return rehearse(self._catalog, branch, limit=limit, give_up_delivered=give_up)
            from headrace.runs.publishing import promotion

            return promotion.promote(
                self._catalog, branch, run_id=self._new_run_id(), message=message, give_up_delivered=give_up
            )
        from headrace.runs.publishing import patch as patching  # with what reads rows

        if dry_run:
            return patching.rehearse_patch(self._catalog, branch, output=output or "", limit=limit)
        return patching.patch(self._catalog, branch, run_id=self._new_run_id(), output=output or "", message=message)

    def _moved(self, entry: "Entry") -> "Entry":
        """``entry``, after which the summary of the pipeline is written again."""
        from headrace.runs.reporting.summary import renew_summary

        renew_summary(self._catalog)
        return entry

    def _id_of(self, snapshot: str) -> str:
        return named_id(self._catalog, self._catalog.head(), snapshot)

    def _new_run_id(self) -> str:
        from headrace.runs.client.recording import new_run_id

        return new_run_id(self._started_by)
