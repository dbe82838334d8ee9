"""Promotion: a branch becomes main and published, by one catalog entry. The end of a backfill, or a person's decision.

It is refused while the branch has no good audit of all that readers have not seen, while main has read files that the
branch has not (so that nothing that was visible is lost), when main does not go on any more from where the branch was
forked, and while its clock is ahead of the real one. A branch that was forked before main was patched
(``runs/patching``) is refused too: what it was forked with lacks the patch.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from headrace.audit.range import seen
from headrace.audit.store import (
    AuditDamagedError,
    AuditFailedError,
    AuditFormatError,
    AuditOutcome,
    failure_message,
    read_audit,
)
from headrace.errors import FixConfigError, HeadraceError, RetryError
from headrace.model.time import instant, render
from headrace.read.at import UnknownBranchError
from headrace.read.progress import StoredProgress
from headrace.runs.files_read import files_main_read, files_read, lacking
from headrace.runs.publish import AuditMissingError, published_result
from headrace.runs.results import RunError, RunResult
from headrace.runs.results import now as timestamp
from headrace_snapshots.catalog import Catalog, Head
from headrace_snapshots.format.entry import Entry
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.protocol import Kind
from headrace_snapshots.refs import MAIN, PUBLISHED
from headrace_snapshots.store import open_store

if TYPE_CHECKING:
    from headrace.read.differences import SnapshotDiff

_SEARCHED = 1000
"""Entries of the log: an attempt that comes again comes soon."""


class ClockAheadError(FixConfigError):
    """A branch whose clock is ahead of the real one: main would wait until that catches up."""

    code = "config.clock_ahead"


class BranchBehindError(RetryError):
    """Main has taken in input that the branch has not."""

    code = "retry.branch_behind"


class ForkGivenUpError(FixConfigError):
    """A branch that goes on from a snapshot that main does not have any more."""

    code = "config.fork_given_up"


class PatchedSinceError(FixConfigError):
    """Main was patched after the branch had been forked from it: the patch would be lost."""

    code = "config.patched_since"


REFUSALS = (
    AuditMissingError,
    AuditFailedError,
    AuditDamagedError,
    AuditFormatError,
    ClockAheadError,
    ForkGivenUpError,
    PatchedSinceError,
    BranchBehindError,
)
"""What stands against a promotion, as opposed to what goes wrong while one looks."""


@dataclass(frozen=True)
class Rehearsal:
    """What a promotion of ``branch`` would change for readers, and why it would be refused: by nothing, if by none."""

    branch: str
    diff: "SnapshotDiff"
    refusals: tuple[HeadraceError, ...]

    def to_json(self) -> dict[str, Any]:
        """A JSON value, as far as ``diff`` has one."""
        refusals = [asdict(RunError.of(each)) for each in self.refusals]
        return {"branch": self.branch, "refusals": refusals, "diff": self.diff.to_json()}


def cut_over(pipeline: str, root: str, branch: str, *, run_id: str = "cut_over") -> RunResult:
    """``promote``, for a pipeline under ``root``."""
    return promote(Catalog(open_store(root), pipeline), branch, run_id=run_id)


def promote(catalog: Catalog, branch: str, *, run_id: str) -> RunResult:
    """Make ``branch`` main and published, if the audit of all that it has and readers have not succeeded, and it has
    taken in all that main has.

    ``epochs`` and ``rows`` of the result are those that become visible. When the branch was promoted already nothing
    happens, and the result is that of then, for the sake of a caller that died before it could tell.
    Raises UnknownBranchError, AuditMissingError, AuditFailedError, ClockAheadError, ForkGivenUpError,
    BranchBehindError. No Spark.
    """
    started_at = timestamp()
    now = catalog.head()
    done = None if branch in now.generations else _promoted_before(catalog, now, branch)
    if done is None:
        planned = Planned.of(catalog, now, branch)
        for check in planned.checks():
            check()
    else:
        planned = Planned(catalog, branch, catalog.manifest(done.refs[MAIN]), None, done.moves[PUBLISHED][0])
    visible = list(catalog.ancestry(planned.head.snapshot_id, until=planned.base))
    outcome = planned.audit
    if done is None:
        catalog.promote(branch, expected_main=planned.main)
    return published_result(planned.head, visible, outcome, action="cut_over", run_id=run_id, started_at=started_at)


def rehearse(catalog: Catalog, branch: str, *, limit: int = 20) -> Rehearsal:
    """What ``promote`` would do; moves nothing. At most ``limit`` of the rows that readers would see change are given.

    Raises UnknownBranchError, and what a reader of ``current`` does.
    """
    from headrace.read.diff import diff  # with DuckDB, which a cut-over does not need

    planned = Planned.of(catalog, catalog.head(), branch)
    refusals = []
    for check in planned.checks():
        try:
            check()
        except REFUSALS as error:
            refusals.append(error)
    before = None if planned.published is None else catalog.manifest(planned.published)
    return Rehearsal(branch, diff(catalog, before, planned.head, limit=limit), tuple(refusals))


@dataclass(frozen=True)
class Planned:
    """A promotion of ``branch``, whose newest snapshot is ``head``, over what ``main`` and ``published`` are."""

    catalog: Catalog
    branch: str
    head: Manifest
    main: str | None
    published: str | None

    @classmethod
    def of(cls, catalog: Catalog, now: Head, branch: str) -> "Planned":
        """Raises UnknownBranchError unless there is such a branch beside main, with a snapshot."""
        if branch not in now.refs or branch not in now.generations or branch == MAIN:
            others = sorted(name for name in now.refs if name in now.generations and name != MAIN)
            raise UnknownBranchError(
                f"pipeline {catalog.pipeline} has no snapshot on a branch {branch!r} beside main; "
                f"branches: {', '.join(others) or 'none'}"
            )
        head = catalog.manifest(now.refs[branch])
        return cls(catalog, branch, head, now.refs.get(MAIN), now.refs.get(PUBLISHED))

    @cached_property
    def base(self) -> str | None:
        """The newest snapshot of the branch that readers have seen: what comes after it becomes visible."""
        return seen(self.catalog, self.head.snapshot_id, self.published)

    @cached_property
    def audit(self) -> AuditOutcome | None:
        """That of all that becomes visible; None if there is none, or nothing to audit."""
        if self.base == self.head.snapshot_id:
            return None
        return read_audit(self.catalog.store, self.catalog.pipeline, self.base, self.head.snapshot_id)

    def checks(self) -> Iterator[Callable[[], None]]:
        """What each may raise one of REFUSALS, the first that is to be said first."""
        yield self.check_audit
        yield self._check_clock
        if self.main is not None:
            yield partial(check_fork, self.catalog, self.head, self.main, self.branch)
            yield partial(_check_patched, self.catalog, self.head, self.main, self.branch)
            yield partial(check_caught_up, self.catalog, self.head, self.main, self.branch)

    def check_audit(self) -> None:
        """Raise AuditMissingError or AuditFailedError unless all that becomes visible has a good audit."""
        outcome = self.audit
        if outcome is None and self.base != self.head.snapshot_id:
            pipeline = self.catalog.pipeline
            raise AuditMissingError(
                f"branch {self.branch} of {pipeline} at {self.head.snapshot_id} has no audit; run the backfill again, "
                f"or `headrace run {pipeline} --branch {self.branch}`, which audits it"
            )
        if outcome is not None and not outcome.success:
            raise AuditFailedError(failure_message(outcome))

    def _check_clock(self) -> None:
        clock = StoredProgress.of(self.head).processing_time
        if clock > instant(datetime.now(UTC)):
            raise ClockAheadError(
                f"branch {self.branch} of {self.catalog.pipeline} is a replay whose clock stands at {render(clock)}, "
                "which is still to come: clocks never go back, so main would do nothing by processing time until then. "
                "Replay with an earlier --clock, or run a backfill"
            )


def _promoted_before(catalog: Catalog, now: Head, branch: str) -> Entry | None:
    """The entry that made ``branch`` main, if nothing but commits has moved main since."""
    for entry in islice(catalog.entries(before=now.entry + 1), _SEARCHED):
        if MAIN in entry.moves and entry.kind is not Kind.COMMIT:
            return entry if entry.detail == {"branch": branch} else None
    return None


def check_fork(catalog: Catalog, manifest: Manifest, old_main: str, branch: str) -> None:
    """Raise ForkGivenUpError if ``branch`` would bring back snapshots that main has given up since it was forked."""
    kept = seen(catalog, manifest.snapshot_id, old_main)
    first = catalog.successor(None if kept is None else catalog.link(kept), manifest.snapshot_id)
    if first is not None and first.manifest is not None and first.manifest.branch == branch:
        return  # and so is all that follows
    other = next((m for m in catalog.ancestry(manifest.snapshot_id, until=kept) if m.branch != branch), None)
    if other is not None:
        raise ForkGivenUpError(
            f"branch {branch} of {catalog.pipeline} goes on from snapshot {other.snapshot_id} (epoch {other.epoch}), "
            "which main does not have any more: main was rolled back, or another backfill was cut over to meanwhile. "
            "Run the backfill again, with a new branch"
        )


def _check_patched(catalog: Catalog, manifest: Manifest, old_main: str, branch: str) -> None:
    """Raise PatchedSinceError if ``branch`` goes on from a snapshot of main that lacks main's newest patch, as far as
    that can still be told: a main whose newest snapshots are broken is what a backfill replaces.
    """
    readable = (link.manifest for link in catalog.lineage(old_main) if link.manifest is not None)
    main = next(readable, None)
    begun = seen(catalog, manifest.snapshot_id, old_main)
    if main is None or main.patch is None or begun is None:  # who begins with nothing computes what was patched
        return
    epoch = catalog.link(begun).epoch
    if main.patch.epoch > epoch:
        raise PatchedSinceError(
            f"branch {branch} of {catalog.pipeline} goes on from snapshot {begun} (epoch {epoch}), and main was "
            f"patched in epoch {main.patch.epoch}, by branch {main.patch.branch}: readers would lose the patch. "
            "Promote it with --patch, which keeps what was patched; or backfill from the beginning, with a new branch"
        )


def check_caught_up(catalog: Catalog, manifest: Manifest, old_main: str, branch: str) -> None:
    """Raise BranchBehindError if main has read files that ``branch``, which is at ``manifest``, has not, by name.

    Inputs that the branch does not have any more do not count.
    """
    taken, wanted = files_read(catalog, manifest), files_main_read(catalog, old_main, manifest)
    behind = [path for name in StoredProgress.of(manifest).marks for path in lacking(taken[name], wanted[name])]
    if behind:
        raise BranchBehindError(
            f"branch {branch} of {catalog.pipeline} has not read {len(behind)} files that main has, such as "
            f"{behind[0]}. Run the backfill again with branch {branch}; it goes on where it stopped. Files "
            "that are gone from where they landed have to be put back before"
        )
