"""The deployment under a root, for Python: results by name, and moves in the history of their snapshots."""

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, overload

from headrace.model.arguments import Arguments
from headrace.read.deployment import Deployment, PipelineReader
from headrace.read.roots import check_root
from headrace.read.snapshots.snapshot_refs import At, NoSnapshotError, named_id, snapshot_at
from headrace_snapshots.format.entry import Entry
from headrace_snapshots.patches import GivenUp, would_give_up
from headrace_snapshots.refs import BEGINNING, MAIN, PUBLISHED
from headrace_snapshots.store import open_store

if TYPE_CHECKING:
    from headrace.runs.patching.patch import PatchRehearsal
    from headrace.runs.publishing.promotion import Rehearsal
    from headrace.runs.reporting.results import RunResult
    from headrace_snapshots.fsck import FsckReport
    from headrace_snapshots.gc.expiry import Expired

BY_HAND = "rolled back by hand"


def open(root: str) -> "OpenDeployment":  # noqa: A001 (read as hr.open)
    """The results under ``root``: ``file:///folder`` or ``s3://bucket/prefix``.

    Raises MissingRootError when there is no such root, FixConfigError for a URI that cannot be one.
    """
    store = open_store(Arguments("open").text("root", root, "file:///data/headrace"))
    check_root(store)
    return OpenDeployment(store)


class OpenDeployment(Deployment):
    """The pipelines that have run under a root, by name. What there is is looked up each time."""

    def __getitem__(self, name: str) -> "PipelineHandle":
        """The results of pipeline ``name``. Raises UnknownResultsError."""
        return PipelineHandle(self._catalog(name))


class PipelineHandle(PipelineReader):
    """The results of one pipeline, and moves in the history of its snapshots.

    A move is one entry of the catalog's log, which the method gives; what was there before stays in the store. Any of
    them raises RefusedError when it does not fit what is there.
    """

    def fork(self, snapshot: At, name: str) -> Entry:
        """Make a branch ``name`` at a snapshot (named as ``at`` is), for runs beside main: `headrace run --branch`.

        Raises UnknownBranchError, NoSnapshotError.
        """
        found = snapshot_at(self._catalog, snapshot).manifest
        if found is None:
            raise NoSnapshotError(f"{snapshot} of pipeline {self.name} has no snapshot yet, so nothing can be forked")
        return self._catalog.fork(name, found.snapshot_id)

    def rollback(self, *, to: str, branch: str = MAIN, message: str = BY_HAND) -> Entry:
        """Move ``branch`` back to a snapshot: an id, a branch, a tag, or "beginning". ``published`` moves with main if
        it is newer. Whoever writes the branch is fenced, and the next run reads again what came after. Main may also go
        back to what it was before a promotion. The ``detail`` of the entry has the output ``patches`` that main loses,
        which no run makes again: `headrace rollback --dry-run` says what does.
        """
        given_up = self.rehearse_rollback(to=to, branch=branch)
        return self._catalog.rollback(branch, given_up.to, message, patches=given_up.patches)

    def rehearse_rollback(self, *, to: str, branch: str = MAIN) -> GivenUp:
        """What ``rollback`` would move, the output patches that main would lose, and the releases that would end;
        nothing is done.

        Raises RefusedError, as the rollback would.
        """
        catalog = self._catalog
        to_id = None if to == BEGINNING else named_id(catalog, catalog.known_head(), to)
        given_up = would_give_up(catalog, branch, to_id)
        if PUBLISHED not in given_up.moves:
            return given_up
        from headrace.audit.releases import ended_by

        return replace(given_up, told=(*given_up.told, *ended_by(catalog, given_up.moves[PUBLISHED][1])))

    @overload
    def promote(self, branch: str, *, patch: bool = False, dry_run: Literal[False] = False) -> "RunResult": ...

    @overload
    def promote(
        self, branch: str, *, patch: Literal[False] = False, dry_run: Literal[True], limit: int = 20
    ) -> "Rehearsal": ...

    @overload
    def promote(
        self, branch: str, *, patch: Literal[True], dry_run: Literal[True], limit: int = 20
    ) -> "PatchRehearsal": ...

    def promote(
        self, branch: str, *, patch: bool = False, dry_run: bool = False, limit: int = 20
    ) -> "RunResult | Rehearsal | PatchRehearsal":
        """Make ``branch`` main and published, if its whole audit succeeded and it has read all that main has. As a
        ``patch`` only its rows of windows that have expired on both replace those of main, which goes on as it is;
        the branch stays. Where nothing differs nothing happens, and the result has no epochs.

        ``dry_run`` moves nothing, and gives what readers would see change (at most ``limit`` rows; all are counted) and
        the errors that would be raised. Raises UnknownBranchError, AuditMissingError, AuditFailedError,
        BranchBehindError, ForkGivenUpError, PatchedSinceError; ClockAheadError for a whole branch; for a patch
        UnpatchableError, OtherDefinitionError, UnpublishedError, OpenWindowsError.
        """
        from headrace.runs.patching import patch as patching  # with what reads rows
        from headrace.runs.publishing import promotion

        limit = Arguments("promote").whole("limit", limit, least=0)
        if patch:
            if dry_run:
                return patching.rehearse_patch(self._catalog, branch, limit=limit)
            return patching.patch(self._catalog, branch, run_id="patch")
        if dry_run:
            return promotion.rehearse(self._catalog, branch, limit=limit)
        return promotion.promote(self._catalog, branch, run_id="promote")

    def expire(
        self,
        *,
        keep_last: int = 100,
        keep_for: str | timedelta | None = None,
        keep_tags: bool = True,
        dry_run: bool = False,
    ) -> "Expired":
        """Let old snapshots go, with all that only they need, and what killed runs left behind. What this marks, the
        next call deletes.

        Kept are branches and tags, all of main that is not published, the ``keep_last`` newest published snapshots, and
        those younger than ``keep_for``, such as "30d". Without ``keep_tags`` tags of what is not kept are dropped.
        ``dry_run`` only says what would happen. Raises KeepError, and RestoreError when something kept is damaged.
        """
        from headrace.runs.maintenance import expire, keeping

        return expire(self._catalog, keeping(keep_last, keep_for, tags=keep_tags), dry_run=dry_run)

    def fsck(self, *, deep: bool = False, repair: bool = False) -> "FsckReport":
        """Check that everything is there that snapshots, readers and runs need. What is not is in the answer, no error.

        ``deep`` reads data files too, and compares their checksums. ``repair`` makes again what can be: files of state
        from the local cache of this machine, the hint, the list of what is to be deleted; and has what no snapshot ever
        named deleted once its writers are gone. It moves no branch.
        """
        from headrace.runs.maintenance import check

        return check(self._catalog, deep=deep, repair=repair)
