"""Promotion: a branch becomes main and published, by one catalog entry. The end of a backfill, or a person's decision.

It is refused while the branch has no good audit of all that readers have not seen, and while main has read files that
the branch has not, so that nothing visible is lost. It is also refused when it would bring back what main had and has
left, and while its clock is ahead of the real one. A branch that was forked before main was patched (``runs/patching``)
is refused too: what it was forked with lacks the patch. So is one whose input has ended (a batch): main would drop all
that comes later.

What main had is known by ids of snapshots (``Head.past``), not by names of branches, which are used again. So a branch
of a branch may become main: all that it continues from, down to main's line, comes with it.

What a promotion would change for readers, and what is against it; nothing moves.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from headrace.audit import store as audit_store
from headrace.audit.range import last_published
from headrace.errors import FixConfigError, HeadraceError, RetryError
from headrace.ext.sources import SOURCES
from headrace.model.time import MAX_INSTANT, instant, render
from headrace.read.snapshots.progress import ListingPosition, StoredProgress, takes_patches
from headrace.read.snapshots.snapshot_refs import UnknownBranchError
from headrace.runs.publishing import audits as publishing_audits
from headrace.runs.publishing.publish import AuditMissingError, output_results, published_result
from headrace.runs.reporting.results import RunError, RunResult
from headrace.runs.reporting.results import now as timestamp
from headrace_snapshots.catalog import Catalog, Head, Link
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format import output_view
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.log import Entry
from headrace_snapshots.names import MAIN, published_of
from headrace_snapshots.output_catalog import seen_catalog
from headrace_snapshots.protocol import Kind, Past
from headrace_snapshots.store import open_store

if TYPE_CHECKING:
    from headrace.read.diff.comparison import OutputDiff, SnapshotDiff


class ClockAheadError(FixConfigError, code="config.clock_ahead"):
    """A branch whose clock is ahead of the real one: main would wait until that catches up."""


class BranchBehindError(RetryError, code="retry.branch_behind"):
    """Main has taken in input that the branch has not."""


class InputEndedError(FixConfigError, code="config.input_ended"):
    """A branch whose watermark is at the end of time, as a batch leaves it: main would drop all later input."""


class ForkGivenUpError(FixConfigError, code="config.fork_given_up"):
    """A branch that continues from a snapshot that main does not have any more."""


class PartialBranchError(FixConfigError, code="config.partial_branch"):
    """A branch that has not computed all of its outputs."""


class PatchedSinceError(FixConfigError, code="config.patched_since"):
    """Main was patched after the branch had been forked from it: the patch would be lost."""


BY_AUDIT = (
    AuditMissingError,
    audit_store.AuditFailedError,
    audit_store.AuditDamagedError,
    audit_store.AuditFormatError,
)
"""Refusals of a branch without a good audit of what would become visible."""


def cut_over(pipeline: str, root: str, branch: str, *, run_id: str = "cut_over", message: str = "") -> RunResult:
    """``promote``, for a pipeline under ``root``."""
    return promote(Catalog(open_store(root), pipeline), branch, run_id=run_id, message=message)


def promote(
    catalog: Catalog, branch: str, *, run_id: str, message: str = "", give_up_delivered: bool = False
) -> RunResult:
    """Make ``branch`` main and published, if the audit of all that it has and readers have not succeeded, and it has
    taken in all that main has. ``message`` says in the log who decided it, and why. ``give_up_delivered``: also if it
    lacks what was handed over to sinks that cannot take back; else DeliveredError.

    ``epochs`` and ``rows`` of the result are those that become visible. When the branch was promoted already nothing
    happens, and the result is the first one's again, for a caller that died before it could tell.
    Raises UnknownBranchError, PartialBranchError, AuditMissingError, AuditFailedError, ClockAheadError,
    InputEndedError, ForkGivenUpError, BranchBehindError; PublishConflictError if main or the branch moves meanwhile. No
    Spark.
    """
    started_at = timestamp()
    now = catalog.head()
    done = _promoted_before(catalog, branch)
    if done is None:
        facts = BranchFacts.of(catalog, now, branch)
        publishing_audits.begin_change(PromoteBranch(facts, give_up_delivered))
    else:
        seen = published_of(done.refs_before)
        facts = BranchFacts(catalog, branch, catalog.manifest(done.refs[MAIN]), None, seen, now)
    visible = list(catalog.ancestry(facts.head.snapshot_id, until=facts.base))
    audits = facts.audits
    with publishing_audits.making_change(catalog):
        if done is None:
            catalog.promote(
                branch,
                expected_main=facts.main,
                expected=facts.head.snapshot_id,
                message=message,
                give_up_delivered=give_up_delivered,
            )
    return published_result(
        facts.head,
        visible,
        audits.get(""),
        action="cut_over",
        run_id=run_id,
        started_at=started_at,
        outputs=output_results(catalog, audits) if any(audits) else None,
    )


def check_before(catalog: Catalog, branch: str, begin: Manifest | None) -> None:
    """Raise what would stand against the promotion of ``branch`` whatever is computed there, before that is done.

    ``begin``: what a new branch begins with; None: with nothing.
    """
    now = catalog.head()
    if branch in now.generations:
        begin = catalog.manifest(now.refs[branch]) if branch in now.refs else None
    publishing_audits.check_begins_with(catalog, now, branch, begin)
    if begin is not None:
        facts = BranchFacts(catalog, branch, begin, now.refs.get(MAIN), published_of(now.refs), now)
        publishing_audits.refuse(facts.checks_that_stay(is_there=branch in now.generations))


@dataclass(frozen=True)
class BranchFacts:
    """What is known of ``branch``, whose newest snapshot is ``head`` and which is to become main's, in part or as a
    whole, as the log stands at ``now``: what ``main`` is, and what readers see of each output (``seen``).
    """

    catalog: Catalog
    branch: str
    head: Manifest
    main: str | None
    seen: Mapping[str, str]
    now: Head

    @classmethod
    def of(cls, catalog: Catalog, now: Head, branch: str) -> "BranchFacts":
        """Raises UnknownBranchError unless there is such a branch beside main, with a snapshot."""
        if branch not in now.refs or branch not in now.generations or branch == MAIN:
            others = sorted(name for name in now.refs if name in now.generations and name != MAIN)
            raise UnknownBranchError(
                f"pipeline {catalog.pipeline} has no snapshot on a branch {branch!r} beside main; "
                f"branches: {', '.join(others) or 'none'}"
            )
        head = catalog.manifest(now.refs[branch])
        return cls(catalog, branch, head, now.refs.get(MAIN), published_of(now.refs), now)

    @property
    def past(self) -> Past:
        """What main had and has not any more."""
        return self.now.past

    @property
    def published(self) -> str | None:
        """What readers see of the output without a name."""
        return self.seen.get("")

    @cached_property
    def called(self) -> Mapping[str, str | None]:
        """What main calls each output of the branch, as the promotion maps them; None: it has none such."""
        main = None if self.main is None else next(self.catalog.readable(self.main), None)
        return (
            {name: name for name in output_view.output_names(self.head)}
            if main is None
            else output_view.called_on(main, self.head)
        )

    @property
    def gone(self) -> tuple[str, ...]:
        """The outputs whose readers would see nothing any more."""
        return tuple(sorted({*self.seen} - {*self.called.values()}))

    @cached_property
    def bases(self) -> Mapping[str, str | None]:
        """The newest snapshot of the branch that readers of each output have seen: what comes after it becomes
        visible.
        """
        return {
            output: last_published(self.catalog, self.head.snapshot_id, self.seen.get(output))
            for output in output_view.output_names(self.head)
        }

    @property
    def base(self) -> str | None:
        """The oldest of ``bases``."""
        if None in self.bases.values():
            return None
        snapshots = {snapshot for snapshot in self.bases.values() if snapshot is not None}
        return min(snapshots, key=lambda snapshot: self.catalog.link(snapshot).epoch)

    @cached_property
    def audits(self) -> Mapping[str, audit_store.AuditOutcome | None]:
        """The audit of all that becomes visible of each output; None if there is none, or nothing to audit."""
        store, pipeline, head = self.catalog.store, self.catalog.pipeline, self.head.snapshot_id
        return {
            output: None if base == head else audit_store.read_audit(store, pipeline, base, head, output)
            for output, base in self.bases.items()
        }

    @property
    def audit(self) -> audit_store.AuditOutcome | None:
        """The audit of the output without a name."""
        return self.audits.get("")

    def checks_that_stay(self, *, is_there: bool = True) -> Iterator[publishing_audits.RefusalCheck]:
        """Checks whose outcome stays, whatever the branch still computes. ``is_there``: the branch has begun."""
        yield publishing_audits.RefusalCheck(self._check_clock, (ClockAheadError,))
        yield publishing_audits.RefusalCheck(self._check_goes_on, (InputEndedError,))
        yield self.fork_check()
        if self.main is not None:
            patched = partial(_check_patched, self.catalog, self.head, self.main, self.branch, is_there=is_there)
            yield publishing_audits.RefusalCheck(patched, (PatchedSinceError,))

    def audit_check(
        self, outputs: Collection[str] | None = None, *, is_relied_on: bool = False
    ) -> publishing_audits.RefusalCheck:
        """Whether all that becomes visible has a good audit; of ``outputs``, if only these do."""
        return publishing_audits.RefusalCheck(partial(self._check_audit, outputs), BY_AUDIT, is_relied_on)

    def fork_check(self) -> publishing_audits.RefusalCheck:
        """Whether the branch would bring back snapshots that main had and has left."""
        return publishing_audits.RefusalCheck(self._check_fork, (ForkGivenUpError,))

    def behind_check(self, main: str) -> publishing_audits.RefusalCheck:
        """Whether the branch has read what ``main`` has."""
        caught_up = partial(_check_caught_up, self.catalog, self.head, main, self.branch)
        return publishing_audits.RefusalCheck(caught_up, (BranchBehindError,))

    def check_whole(self) -> None:
        """Raise PartialBranchError unless all outputs have come to the end of the branch."""
        if standing := sorted(output_view.parked_in(self.head)):
            name = self.catalog.pipeline
            raise PartialBranchError(
                f"branch {self.branch} of {name} has not computed {', '.join(standing)} up to its end, and readers of "
                f"all outputs would see it. `headrace promote {name}.OUTPUT {self.branch}` lets main adopt one output"
            )

    def _check_audit(self, outputs: Collection[str] | None) -> None:
        """Raise AuditMissingError or AuditFailedError unless all that becomes visible has a good audit; of ``outputs``,
        if only these do.
        """
        head, pipeline = self.head.snapshot_id, self.catalog.pipeline
        audits = {output: made for output, made in self.audits.items() if outputs is None or output in outputs}
        missing = [output for output, made in audits.items() if made is None and self.bases[output] != head]
        if missing:
            of = f" of {', '.join(missing)}" if any(missing) else ""
            raise AuditMissingError(
                f"branch {self.branch} of {pipeline} at {head} has no audit{of}; run the backfill again, "
                f"or `headrace run {pipeline} --branch {self.branch}`, which audits it"
            )
        failed = [made for made in audits.values() if made is not None and not made.success]
        if failed:
            raise audit_store.audit_error(*failed)

    def _check_clock(self) -> None:
        clock = StoredProgress.of(self.head).processing_time
        if clock > instant(datetime.now(UTC)):
            raise ClockAheadError(
                f"branch {self.branch} of {self.catalog.pipeline} is a replay whose clock stands at {render(clock)}, "
                "in the future: clocks never go back, so main would do nothing by processing time until then. Replay "
                "with an earlier --clock, or run a backfill"
            )

    def _check_goes_on(self) -> None:
        if StoredProgress.of(self.head).watermark != MAX_INSTANT or self._has_ended():
            return
        name = self.catalog.pipeline
        raise InputEndedError(
            f"branch {self.branch} of {name} was made by a batch (--mode batch): its watermark stands at the end of "
            "time, so main would drop everything that comes later as late. "
            + ("" if self.main is None else f"`headrace promote {name} {self.branch} --patch` takes its results; ")
            + f"`headrace backfill {name} --promote` computes everything again in a way that main can continue from"
        )

    def _has_ended(self) -> bool:
        """Whether main drops all that comes already, as far as that can be told."""
        if self.main is None:
            return False
        main = next(self.catalog.readable(self.main), None)
        return main is not None and StoredProgress.of(main).watermark == MAX_INSTANT

    def _check_fork(self) -> None:
        """Raise ForkGivenUpError if the branch would bring back snapshots that main had and has left."""
        catalog, head = self.catalog, self.head.snapshot_id
        common = None if self.main is None else catalog.common_ancestor(head, self.main)
        lost = self._left_by_main(common)
        if lost is None:
            return
        replaced = [promotion for promotion in self.past.replaced if self._is_behind(lost.snapshot_id, promotion.main)]
        reason = "main was rolled back, or another branch was promoted"
        if replaced:
            reason = f"another branch was promoted (entry {replaced[0].entry} of the log)"
        raise ForkGivenUpError(
            f"branch {self.branch} of {catalog.pipeline} continues from snapshot {lost.snapshot_id} (epoch "
            f"{lost.epoch}), which main does not have any more: {reason}. Run the backfill again, with a new branch"
        )

    def _is_behind(self, snapshot_id: str, main: str) -> bool:
        """Whether ``main`` continues from that snapshot; no if it cannot be read."""
        with suppress(BrokenObjectError, MissingSnapshotError):
            return self.catalog.is_ancestor(snapshot_id, main)
        return False

    def _left_by_main(self, common: Link | None) -> Link | None:
        """The newest ancestor of the branch that main had and has not; ``common`` is the newest that it has."""
        catalog, head = self.catalog, self.head.snapshot_id
        first = catalog.successor(common, head)
        lost = catalog.given_up(self.past, head)
        if lost is not None and lost.epoch > (-1 if common is None else common.epoch):
            return lost
        parting = None if first is None else first.manifest
        if parting is not None and parting.branch == MAIN:
            return first
        if parting is None or parting.generation >= self.past.since:
            return None
        if parting.branch == self.branch:  # an old log does not tell what main had: the name is all there is
            return None
        line = catalog.ancestry(head, until=None if common is None else common.snapshot_id)
        return next((catalog.link(link.snapshot_id) for link in line if link.branch != self.branch), None)


@dataclass(frozen=True)
class PromoteBranch:
    """Make the branch that the ``facts`` are of main and published. ``give_up_delivered``: what sinks have got that
    cannot take back is not against it.
    """

    facts: BranchFacts
    give_up_delivered: bool = False

    def __str__(self) -> str:
        branch, head, main = self.facts.branch, self.facts.head, self.facts.main
        instead = "" if main is None else f" in place of snapshot {main}"
        return (
            f"make branch {branch}, at snapshot {head.snapshot_id} (epoch {head.epoch}), main{instead}, and publish it"
        )

    def checks(self) -> Iterator[publishing_audits.RefusalCheck]:
        """What may stand against it, the first that is to be said first."""
        facts = self.facts
        yield publishing_audits.RefusalCheck(facts.check_whole, (PartialBranchError,))
        yield facts.audit_check()
        yield from facts.checks_that_stay()
        if facts.main is not None:
            yield facts.behind_check(facts.main)
        if not self.give_up_delivered:
            lacks = partial(publishing_audits.check_has, facts.catalog, facts.now, facts.branch, facts.head)
            yield publishing_audits.RefusalCheck(lacks, (publishing_audits.DeliveredError,))


def _promoted_before(catalog: Catalog, branch: str) -> Entry | None:
    """The entry that made ``branch`` main, if nothing but commits has moved main since, and no other branch has had the
    name since.
    """
    return publishing_audits.made_before(
        catalog,
        branch,
        made=lambda entry: MAIN in entry.moves and entry.detail == {"branch": branch},
        decides=lambda entry: MAIN in entry.moves and entry.kind is not Kind.COMMIT,
    )


def _check_patched(catalog: Catalog, manifest: Manifest, old_main: str, branch: str, *, is_there: bool) -> None:
    """Raise PatchedSinceError if ``branch`` continues from a snapshot of main that lacks main's newest patch, as far as
    that can still be told: a main whose newest snapshots are broken is what a backfill replaces. ``is_there``: the
    branch has begun.
    """
    main = next(catalog.readable(old_main), None)
    begun = catalog.common_ancestor(old_main, manifest.snapshot_id)
    if main is None or main.patch is None or begun is None:  # who begins with nothing computes what was patched
        return
    if main.patch.epoch <= begun.epoch:
        return
    name, since = catalog.pipeline, f"snapshot {begun.snapshot_id} (epoch {begun.epoch})"
    lost = f"main was patched in epoch {main.patch.epoch}, by branch {main.patch.branch}: readers would lose the patch"
    output = output_view.called_now(main, main.patch.output)
    keeps = (
        f"`headrace promote {f'{name}.{output}' if output else name} {branch} --patch`, which keeps what was patched"
    )
    is_patchable = output is not None and takes_patches(output_view.seen_by(main, output))
    if is_there:
        way_on = f"Promote it with {keeps}; or backfill" if is_patchable else "Backfill"
        raise PatchedSinceError(
            f"branch {branch} of {name} continues from {since}, and {lost}. {way_on} from the beginning, with a new "
            "branch"
        )
    raise PatchedSinceError(
        f"a backfill of {name} that is promoted and begins with {since} lacks what came later, and {lost}. Backfill "
        "from the beginning, without --from" + (f"; or without --promote, and then {keeps}" if is_patchable else "")
    )


def _check_caught_up(catalog: Catalog, manifest: Manifest, old_main: str, branch: str) -> None:
    """Raise BranchBehindError if main has read files that ``branch``, which is at ``manifest``, has not, by name.

    Inputs that the branch does not have any more do not count, nor those of a source that does not give the same again:
    of either side, since one that has read nothing does not say what its source is.
    """
    branch_read, main_read = (
        publishing_audits.files_read(catalog, manifest),
        publishing_audits.files_main_read(catalog, old_main, manifest),
    )
    branch_marks, main_marks = StoredProgress.of(manifest).marks, _marks_of_main(catalog, old_main)
    missing = [
        path
        for name, mark in branch_marks.items()
        if all(_repeats(known.kind) for known in (mark, main_marks.get(name, mark)))
        for path in publishing_audits.lacking(catalog.pipeline, branch_read[name], main_read[name])
    ]
    if missing:
        raise BranchBehindError(
            f"branch {branch} of {catalog.pipeline} has not read {len(missing)} files that main has, such as "
            f"{missing[0]}. Run the backfill again with branch {branch}; it goes on where it stopped. Files "
            "that are gone from where they landed have to be put back before"
        )


def _marks_of_main(catalog: Catalog, old_main: str) -> Mapping[str, ListingPosition]:
    """Where the newest snapshot of main that is not broken has come to in its inputs."""
    for manifest in catalog.readable(old_main):
        with suppress(BrokenObjectError):
            return StoredProgress.of(manifest).marks
    return {}


def _repeats(kind: str) -> bool:
    return (connector := SOURCES.get(kind)) is None or connector.repeats


@dataclass(frozen=True)
class Rehearsal:
    """What a promotion of ``branch`` would change for readers of each output, and why it would be refused: by nothing,
    if by none. ``diffs``: by the branch's names, each beside what readers see now by whatever name main has for it.
    ``gone``: outputs whose readers would see nothing any more, as the branch has none such. ``change``: what it would
    do, in a sentence.
    """

    branch: str
    diffs: "Mapping[str, SnapshotDiff]"
    refusals: tuple[HeadraceError, ...]
    gone: tuple[str, ...] = ()
    change: str = ""

    @property
    def diff(self) -> "SnapshotDiff":
        """What would change of the output without a name. Raises UnknownOutputError if outputs have names."""
        if "" not in self.diffs:
            raise output_view.UnknownOutputError(
                f"branch {self.branch} has the outputs {', '.join(self.diffs)}: look at the difference of one of them"
            )
        return self.diffs[""]

    def to_json(self) -> dict[str, Any]:
        """A JSON value, as far as each difference has one."""
        refusals = [asdict(RunError.of(refusal)) for refusal in self.refusals]
        diffs = {output: diff.to_json() for output, diff in self.diffs.items()}
        return {
            "branch": self.branch,
            "refusals": refusals,
            **({"diff": diffs[""]} if "" in diffs else {"outputs": diffs}),
            **({"gone": [*self.gone]} if self.gone else {}),
        }


@dataclass(frozen=True)
class ReadersRehearsal:
    """What of a ``Rehearsal`` readers see: the rows of each output that change, without the state that lies under them,
    which takes longer to read.
    """

    outputs: "Mapping[str, OutputDiff]"
    refusals: tuple[HeadraceError, ...]

    def to_json(self) -> dict[str, Any]:
        """A JSON value, as far as each difference has one."""
        refusals = [asdict(RunError.of(refusal)) for refusal in self.refusals]
        outputs = {output: changed.to_json() for output, changed in self.outputs.items()}
        return {"refusals": refusals, **({"output": outputs[""]} if "" in outputs else {"outputs": outputs})}


def rehearse(catalog: Catalog, branch: str, *, limit: int = 20, give_up_delivered: bool = False) -> Rehearsal:
    """What ``promote`` would do; moves nothing. At most ``limit`` of the rows that readers would see change are given.
    ``give_up_delivered``: what sinks have got that cannot take back is not against it.

    Raises UnknownBranchError, and what a reader of ``current`` does.
    """
    facts = BranchFacts.of(catalog, catalog.head(), branch)
    change = PromoteBranch(facts, give_up_delivered)
    refusals = publishing_audits.find_refusals(change).errors
    return Rehearsal(
        branch, differences(facts, output_view.output_names(facts.head), limit), refusals, facts.gone, str(change)
    )


def rehearse_for_readers(catalog: Catalog, branch: str, *, limit: int = 20) -> ReadersRehearsal:
    """``rehearse``, as far as readers see it."""
    from headrace.read.diff.comparison import diff_for_readers

    facts = BranchFacts.of(catalog, catalog.head(), branch)
    refusals = publishing_audits.find_refusals(PromoteBranch(facts)).errors
    sides = _sides(facts, output_view.output_names(facts.head))
    return ReadersRehearsal({name: diff_for_readers(*side, limit=limit).output for name, side in sides}, refusals)


def differences(facts: BranchFacts, outputs: Iterable[str], limit: int) -> "dict[str, SnapshotDiff]":
    """What readers of ``outputs`` see now beside what the branch has."""
    from headrace.read.diff.comparison import diff  # with DuckDB, which a cut-over does not need

    return {output: diff(*sides, limit=limit) for output, sides in _sides(facts, outputs)}


def _sides(
    facts: BranchFacts, outputs: Iterable[str]
) -> Iterator[tuple[str, tuple[Catalog, Manifest | None, Manifest | None]]]:
    """Each of ``outputs``, with its catalog, what readers see of it now by main's name of it, and what the branch
    has.
    """
    for output in outputs:
        own, then = seen_catalog(facts.catalog, output), facts.called[output]
        shown = None if then is None else facts.seen.get(then)
        before = None if then is None or shown is None else seen_catalog(facts.catalog, then).manifest(shown)
        yield output, (own, before, output_view.seen_by(facts.head, output))
