"""Promotion: a branch becomes main and published, by one catalog entry. The end of a backfill, or a person's decision.

It is refused while the branch has no good audit of all that readers have not seen. Nor may main have read files that
the branch has not: nothing visible is lost. It is also refused when it would bring back what main had and has left, and
while its clock is ahead of the real one. A branch that was forked before main was patched (``runs/publishing/patch``)
is refused too: what it was forked with lacks the patch. So is one whose input has ended (a batch): main would drop all
that comes later.

What main had is known by ids of snapshots (``Head.past``), not by names of branches, which are used again. So a branch
of a branch may become main: all that it continues from, down to main's line, comes with it.

``Rehearsal`` says what a promotion would change for readers, and what is against it; nothing moves.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Self

from headrace.audit import store as audit_store
from headrace.audit.range import last_published
from headrace.errors import FixConfigError, HeadraceError, RetryError
from headrace.ext.sources import SOURCES
from headrace.model.time import MAX_INSTANT, render, to_instant
from headrace.read.snapshots.progress import ListingPosition, StoredProgress, takes_patches
from headrace.read.snapshots.snapshot_refs import UnknownBranchError
from headrace.runs.plan import CutOver
from headrace.runs.publishing import audits as publishing_audits
from headrace.runs.publishing.publish import AuditMissingError
from headrace.runs.reporting.results import RunError
from headrace_snapshots.catalog import Catalog, Link
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format import output_view
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.log import Entry
from headrace_snapshots.names import MAIN, published_of
from headrace_snapshots.output_catalog import seen_catalog
from headrace_snapshots.protocol.moves import Head, Kind, Past

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
        publishing_audits.raise_first_refusal(facts.checks_that_stay(is_there=branch in now.generations))


@dataclass(frozen=True)
class BranchFacts:
    """What is known of ``branch``, whose newest snapshot is ``head`` and which is to become main's, in part or as a
    whole. The log stands at ``now``. ``main`` is what main is, ``published_ids`` what readers see of each output.
    """

    catalog: Catalog
    branch: str
    head: Manifest
    main: str | None
    published_ids: Mapping[str, str]
    now: Head

    @classmethod
    def from_branch(cls, catalog: Catalog, now: Head, branch: str) -> "BranchFacts":
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
    def published_snapshot(self) -> str | None:
        """What readers see of the output without a name."""
        return self.published_ids.get("")

    @cached_property
    def names_on_main(self) -> Mapping[str, str | None]:
        """What main calls each output of the branch, as the promotion maps them; None: it has none such."""
        main = None if self.main is None else next(self.catalog.readable_manifests(self.main), None)
        return (
            {name: name for name in output_view.output_names(self.head)}
            if main is None
            else output_view.called_on(main, self.head)
        )

    @property
    def gone_outputs(self) -> tuple[str, ...]:
        """The outputs whose readers would see nothing any more."""
        return tuple(sorted({*self.published_ids} - {*self.names_on_main.values()}))

    @cached_property
    def bases(self) -> Mapping[str, str | None]:
        """The newest snapshot of the branch that readers of each output have seen; what follows becomes visible."""
        return {
            output: last_published(self.catalog, self.head.snapshot_id, self.published_ids.get(output))
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

    def made_change(self) -> publishing_audits.MadeChange:
        """What a promotion of the branch comes to."""
        visible, head = [*self.catalog.ancestry(self.head.snapshot_id, until=self.base)], self.head
        return publishing_audits.MadeChange("cut_over", head, visible, head.snapshot_id, self.audit, self.audits)

    def checks_that_stay(self, *, is_there: bool = True) -> Iterator[publishing_audits.RefusalCheck]:
        """Checks whose outcome stays, whatever the branch still computes. ``is_there``: the branch has begun."""
        yield publishing_audits.RefusalCheck(self._check_clock, (ClockAheadError,))
        yield publishing_audits.RefusalCheck(self._check_goes_on, (InputEndedError,))
        yield self.fork_check()
        if self.main is not None:
            check_patched = partial(_check_patched, self.catalog, self.head, self.main, self.branch, is_there=is_there)
            yield publishing_audits.RefusalCheck(check_patched, (PatchedSinceError,))

    def audit_check(
        self, outputs: Collection[str] | None = None, *, is_relied_on: bool = False
    ) -> publishing_audits.RefusalCheck:
        """Whether all that becomes visible has a good audit; only ``outputs`` count, if they are given."""
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
        """Raise AuditMissingError or AuditFailedError unless all that becomes visible has a good audit; only
        ``outputs`` count, if they are given.
        """
        head, pipeline = self.head.snapshot_id, self.catalog.pipeline
        audits = {output: audit for output, audit in self.audits.items() if outputs is None or output in outputs}
        missing = [output for output, audit in audits.items() if audit is None and self.bases[output] != head]
        if missing:
            outputs_text = f" of {', '.join(missing)}" if any(missing) else ""
            raise AuditMissingError(
                f"branch {self.branch} of {pipeline} at {head} has no audit{outputs_text}; run the backfill again, "
                f"or `headrace run {pipeline} --branch {self.branch}`, which audits it"
            )
        failed_audits = [audit for audit in audits.values() if audit is not None and not audit.success]
        if failed_audits:
            raise audit_store.audit_error(*failed_audits)

    def _check_clock(self) -> None:
        clock = StoredProgress.from_manifest(self.head).processing_time
        main = None if self.main is None else next(self.catalog.readable_manifests(self.main), None)
        is_ahead_of_main = main is None or clock > StoredProgress.from_manifest(main).processing_time
        if is_ahead_of_main and clock > to_instant(datetime.now(UTC)):
            raise ClockAheadError(
                f"branch {self.branch} of {self.catalog.pipeline} has a clock that stands at {render(clock)}, in the "
                "future. A replay leaves it so, and a run on a machine whose clock is ahead. Clocks never go back, so "
                "main would do nothing by processing time until then. Replay with an earlier --clock, or run a "
                "backfill into another branch"
            )

    def _check_goes_on(self) -> None:
        if StoredProgress.from_manifest(self.head).watermark != MAX_INSTANT or self._has_ended():
            return
        name = self.catalog.pipeline
        raise InputEndedError(
            f"branch {self.branch} of {name} was made by a batch (--mode batch). Its watermark stands at the end of "
            "time, so main would drop everything that comes later as late. "
            + ("" if self.main is None else f"`headrace promote {name} {self.branch} --patch` takes its results; ")
            + f"`headrace backfill {name} --promote` computes everything again in a way that main can continue from"
        )

    def _has_ended(self) -> bool:
        """Whether main drops all that comes already, as far as that can be told."""
        if self.main is None:
            return False
        main = next(self.catalog.readable_manifests(self.main), None)
        return main is not None and StoredProgress.from_manifest(main).watermark == MAX_INSTANT

    def _check_fork(self) -> None:
        """Raise ForkGivenUpError if the branch would bring back snapshots that main had and has left."""
        catalog, head = self.catalog, self.head.snapshot_id
        common = None if self.main is None else catalog.common_ancestor(head, self.main)
        lost_link = self._left_by_main(common)
        if lost_link is None:
            return
        replacements = [
            promotion for promotion in self.past.replaced if self._is_behind(lost_link.snapshot_id, promotion.main)
        ]
        reason = "main was rolled back, or another branch was promoted"
        if replacements:
            reason = f"another branch was promoted (entry {replacements[0].entry} of the log)"
        raise ForkGivenUpError(
            f"branch {self.branch} of {catalog.pipeline} continues from snapshot {lost_link.snapshot_id} (epoch "
            f"{lost_link.epoch}), which main does not have any more: {reason}. Run the backfill again, with a new "
            "branch"
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
        lost_link = catalog.given_up(self.past, head)
        if lost_link is not None and lost_link.epoch > (-1 if common is None else common.epoch):
            return lost_link
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

    @classmethod
    def from_branch(cls, catalog: Catalog, cut_over: CutOver) -> Self:
        """Raises UnknownBranchError."""
        return cls(BranchFacts.from_branch(catalog, catalog.head(), cut_over.branch), cut_over.give_up_delivered)

    @classmethod
    def made_before(cls, catalog: Catalog, cut_over: CutOver) -> publishing_audits.MadeBefore | None:
        """What it came to, as it was then."""
        entry_before = _promoted_before(catalog, cut_over.branch)
        if entry_before is None:
            return None
        published_ids, head = published_of(entry_before.refs_before), catalog.manifest(entry_before.refs[MAIN])
        return publishing_audits.MadeBefore(
            BranchFacts(catalog, cut_over.branch, head, None, published_ids, catalog.head()).made_change()
        )

    def __str__(self) -> str:
        branch, head, main = self.facts.branch, self.facts.head, self.facts.main
        replaced_text = "" if main is None else f" in place of snapshot {main}"
        return (
            f"make branch {branch}, at snapshot {head.snapshot_id} (epoch {head.epoch}), main{replaced_text}, and "
            "publish it"
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

    def make(self, run_id: str, message: str) -> publishing_audits.MadeChange:
        """Make the branch main and published, by one entry. Raises PublishConflictError if main or the branch moved."""
        facts = self.facts
        change = facts.made_change()
        with publishing_audits.making_change(facts.catalog):
            facts.catalog.promote(
                facts.branch,
                expected_main=facts.main,
                expected=facts.head.snapshot_id,
                message=message,
                give_up_delivered=self.give_up_delivered,
            )
        return change

    def rehearse(self, limit: int) -> "Rehearsal":
        """What it would do. At most ``limit`` of the rows that readers would see change are given."""
        return rehearse_outputs(
            self, self.facts, output_view.output_names(self.facts.head), limit, self.facts.gone_outputs
        )


def _promoted_before(catalog: Catalog, branch: str) -> Entry | None:
    """The entry that made ``branch`` main, if only commits moved main since, and no other branch had the name."""
    return publishing_audits.entry_made_before(
        catalog,
        branch,
        makes_change=lambda entry: MAIN in entry.moves and entry.detail == {"branch": branch},
        decides=lambda entry: MAIN in entry.moves and entry.kind is not Kind.COMMIT,
    )


def _check_patched(catalog: Catalog, manifest: Manifest, old_main: str, branch: str, *, is_there: bool) -> None:
    """Raise PatchedSinceError if ``branch`` continues from a snapshot that lacks main's newest patch, if that is known.
    A main whose newest snapshots are broken is replaced by a backfill. ``is_there``: the branch has begun.
    """
    main = next(catalog.readable_manifests(old_main), None)
    fork = catalog.common_ancestor(old_main, manifest.snapshot_id)
    if main is None or main.patch is None or fork is None:  # who begins with nothing computes what was patched
        return
    if main.patch.epoch <= fork.epoch:
        return
    name, fork_text = catalog.pipeline, f"snapshot {fork.snapshot_id} (epoch {fork.epoch})"
    loss_text = (
        f"main was patched in epoch {main.patch.epoch}, by branch {main.patch.branch}: readers would lose the patch"
    )
    output = output_view.called_now(main, main.patch.output)
    keeps = (
        f"`headrace promote {f'{name}.{output}' if output else name} {branch} --patch`, which keeps what was patched"
    )
    is_patchable = output is not None and takes_patches(output_view.seen_by(main, output))
    if is_there:
        way_on = f"Promote it with {keeps}; or backfill" if is_patchable else "Backfill"
        raise PatchedSinceError(
            f"branch {branch} of {name} continues from {fork_text}, and {loss_text}. {way_on} from the beginning, with "
            "a new branch"
        )
    raise PatchedSinceError(
        f"a backfill of {name} that is promoted and begins with {fork_text} lacks what came later, and {loss_text}. "
        "Backfill "
        "from the beginning, without --from" + (f"; or without --promote, and then {keeps}" if is_patchable else "")
    )


def _check_caught_up(catalog: Catalog, manifest: Manifest, old_main: str, branch: str) -> None:
    """Raise BranchBehindError if main has read files that ``branch``, which is at ``manifest``, has not, by name.

    Inputs that the branch does not have any more do not count, nor those of a source that does not give the same again.
    Both sides are asked for their source, since one that has read nothing does not say what it is.
    """
    branch_read, main_read = (
        publishing_audits.files_read(catalog, manifest),
        publishing_audits.files_main_read(catalog, old_main, manifest),
    )
    branch_marks, main_marks = StoredProgress.from_manifest(manifest).marks, _marks_of_main(catalog, old_main)
    missing: list[str] = []
    inputs = publishing_audits.inputs_of_main(catalog, old_main, manifest.definition, branch_marks)
    for name, former in inputs.items():
        marks = (branch_marks[name], main_marks.get(former.name, branch_marks[name]))
        if all(is_repeatable(mark.kind) for mark in marks):
            missing += publishing_audits.lacking_paths(
                catalog.pipeline, branch_read[name], main_read[former.name], has_moved=former.has_moved
            )
    if missing:
        raise BranchBehindError(
            f"branch {branch} of {catalog.pipeline} has not read {len(missing)} files that main has, such as "
            f"{missing[0]}. Run the backfill again with branch {branch}; it goes on where it stopped. Files "
            "that are gone from where they landed have to be put back before"
        )


def _marks_of_main(catalog: Catalog, old_main: str) -> Mapping[str, ListingPosition]:
    """Where the newest snapshot of main that is not broken has come to in its inputs."""
    for manifest in catalog.readable_manifests(old_main):
        with suppress(BrokenObjectError):
            return StoredProgress.from_manifest(manifest).marks
    return {}


def is_repeatable(kind: str) -> bool:
    """Whether a source of that kind gives the same splits again, as far as that is known."""
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
    def outputs(self) -> "Mapping[str, OutputDiff]":
        """What readers would see change of each output."""
        return {output: difference.output for output, difference in self.diffs.items()}

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
    """What of a ``Rehearsal`` readers see: rows of outputs that change, without state, which takes longer to read."""

    outputs: "Mapping[str, OutputDiff]"
    refusals: tuple[HeadraceError, ...]

    def to_json(self) -> dict[str, Any]:
        """A JSON value, as far as each difference has one."""
        refusals = [asdict(RunError.of(refusal)) for refusal in self.refusals]
        outputs = {output: difference.to_json() for output, difference in self.outputs.items()}
        return {"refusals": refusals, **({"output": outputs[""]} if "" in outputs else {"outputs": outputs})}


def rehearse_outputs(
    change: publishing_audits.ReadersChange,
    facts: BranchFacts,
    outputs: Iterable[str],
    limit: int,
    gone_outputs: tuple[str, ...] = (),
) -> Rehearsal:
    """What ``change`` would do to readers of ``outputs``. Raises what a reader of ``current`` does."""
    refusals = publishing_audits.Refusals().and_of(change.checks()).errors
    return Rehearsal(facts.branch, _differences(facts, outputs, limit), refusals, gone_outputs, str(change))


def rehearse_for_readers(catalog: Catalog, branch: str, *, limit: int = 20) -> ReadersRehearsal:
    """What a promotion of ``branch`` would do, as far as readers see it; moves nothing."""
    from headrace.read.diff.comparison import diff_for_readers

    facts = BranchFacts.from_branch(catalog, catalog.head(), branch)
    refusals = publishing_audits.Refusals().and_of(PromoteBranch(facts).checks()).errors
    sides = _compared_sides(facts, output_view.output_names(facts.head))
    return ReadersRehearsal({name: diff_for_readers(*side, limit=limit).output for name, side in sides}, refusals)


def _differences(facts: BranchFacts, outputs: Iterable[str], limit: int) -> "dict[str, SnapshotDiff]":
    """What readers of ``outputs`` see now beside what the branch has."""
    from headrace.read.diff.comparison import diff_snapshots  # with DuckDB, which a cut-over does not need

    return {output: diff_snapshots(*sides, limit=limit) for output, sides in _compared_sides(facts, outputs)}


def _compared_sides(
    facts: BranchFacts, outputs: Iterable[str]
) -> Iterator[tuple[str, tuple[Catalog, Manifest | None, Manifest | None]]]:
    """Each of ``outputs``: its catalog, what readers see of it by main's name of it, and what the branch has."""
    for output in outputs:
        own, former_name = seen_catalog(facts.catalog, output), facts.names_on_main[output]
        published_id = None if former_name is None else facts.published_ids.get(former_name)
        published_manifest = (
            None
            if former_name is None or published_id is None
            else seen_catalog(facts.catalog, former_name).manifest(published_id)
        )
        yield output, (own, published_manifest, output_view.seen_by(facts.head, output))
