"""Output patch: rows of a branch replace those of main in windows that have expired, and nothing else changes.

Theory of operation: a window that has expired on main (semantics 5.2) is over there: its state is
gone, and what would still come for it is dropped. So its row of ``current`` may be replaced without the engine knowing.
A patch is epoch n+1 of main, with the clocks, inputs and state of epoch n. Its panes are, for each row that is
replaced, the retraction of what stands (sequence 0) and the new pane (sequence 1: late, the last of its window, one
index up); a row that the branch does not have is only retracted. The same files are the top layer of ``current``, so
that compaction need not know of patches. Rows are copied: nothing of the branch is needed afterwards.
``Manifest.patch`` says what was patched last.

*Which rows.* Those whose values differ and whose windows have expired on main and on the branch. One that is still
open on either stays. So does what a patch has made of a row since the branch was forked, unless all elements of the
window were read after the fork: else the branch has, in part or whole, what was replaced. (Of a second aggregation
nobody can tell so simply, and all of that stays; where windows merge, such a branch is refused.) A branch that began
with nothing computed everything.

*Why it is refused.* In discarding mode a row of ``current`` is only the last pane, no result to be replaced. Without
a limit of lateness nothing expires. Another definition's rows mean something else. Where windows merge, a row may have
become part of one that is still open, here or there: replacing the one without the other would lose or double
what is in both. Of windows of a user's own nobody knows that. And what is refused for a cut-over: a branch without a
good audit, behind main, or with what main has given up.

*Order.* The patch checks everything before it claims main, which fences main's writer; it stores files after that, so
that no expiry takes them for garbage. The patch is audited before it is committed: one that fails is never on main.
Commit and publish are two entries of the log: between them main has a whole patch, and readers have none; the next run
of the pipeline publishes it, and so does the same patch done again.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from headrace.audit.range import audited_files, released_panes
from headrace.audit.run import Audited, run_audit
from headrace.audit.store import AuditFailedError, AuditOutcome, read_audit
from headrace.errors import FixConfigError, HeadraceError, RetryError
from headrace.installed import require
from headrace.model.accumulation import Accumulation
from headrace.model.time import MAX_INSTANT, MIN_INSTANT, Instant
from headrace.pipeline.identity import fingerprint
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.quality import Expectation
from headrace.read.snapshots.progress import LastStage, StoredProgress, epoch_without_reading
from headrace.read.views.columns import ViewColumns
from headrace.runs.publishing.audits import RefusalCheck, begin_change, find_refusals, making_change, refuse
from headrace.runs.publishing.promotion import BranchFacts, PatchedSinceError
from headrace.runs.publishing.publish import output_results, publish_range, published_result
from headrace.runs.reporting.results import RunError, RunResult
from headrace.runs.reporting.results import now as timestamp
from headrace_snapshots.catalog import Catalog, Head, Link
from headrace_snapshots.errors import MissingSnapshotError, PublishConflictError
from headrace_snapshots.format.files import FileRecord, Layer
from headrace_snapshots.format.manifest import Manifest, OutputTables, Patch, file_stem
from headrace_snapshots.format.output_view import called_before, outputs_of, parked_in, seen_by, upstream_of
from headrace_snapshots.names import MAIN, published_of, published_ref
from headrace_snapshots.output_catalog import seen_catalog

if TYPE_CHECKING:
    from headrace.read.diff.comparison import OutputDiff
    from headrace.read.diff.layered_tables import RowChange, RowCounts
    from headrace.read.patch_rows import Left, PatchRows


@dataclass(frozen=True)
class PatchOutput:
    """A patch of an ``output`` ("": the one without a name) by the branch that the ``facts`` are of. ``whole`` is the
    newest snapshot of main, ``main`` what the output sees of it.
    """

    facts: BranchFacts
    whole: Manifest
    output: str = ""

    def __str__(self) -> str:
        of = f" of output {self.output}" if self.output else ""
        rows = f"replace rows{of} by those of branch {self.facts.branch} where windows have expired on both"
        return f"{rows}, as epoch {self.whole.epoch + 1} of main; the branch stays"

    @classmethod
    def of(cls, catalog: Catalog, now: Head, branch: str, output: str = "") -> "PatchOutput":
        """Raises UnknownBranchError, UnpublishedError where main has nothing, UnknownOutputError; UnpatchableError
        where outputs have names and none is named, or the output is read by others or parked.
        """
        facts = BranchFacts.of(catalog, now, branch)
        whole = _main(catalog, facts.main)
        for side in (whole, facts.head):
            _check_output(side, output, f"promote {{}} {branch}")
        return cls(facts, whole, output)

    @property
    def catalog(self) -> Catalog:
        """The pipeline's catalog, as the output sees it."""
        return seen_catalog(self.facts.catalog, self.output)

    @cached_property
    def main(self) -> Manifest:
        """The newest snapshot of main, as the output sees it."""
        return seen_by(self.whole, self.output)

    @cached_property
    def branch(self) -> Manifest:
        """The newest snapshot of the branch, as the output sees it."""
        return seen_by(self.facts.head, self.output)

    @property
    def published(self) -> str | None:
        """What readers of the output see."""
        return self.facts.seen.get(self.output)

    @property
    def patch(self) -> Patch:
        """What the manifest says of it."""
        return Patch(self.main.epoch + 1, self.facts.branch, self.branch.snapshot_id, self.output)

    @cached_property
    def base(self) -> Link | None:
        """The newest snapshot of both main and the branch, also one that has expired; None if they began apart."""
        return self.catalog.common_ancestor(self.main.snapshot_id, self.branch.snapshot_id)

    @cached_property
    def stage(self) -> LastStage:
        """What both definitions say of the last aggregation."""
        last = LastStage.of(self.main)
        assert last is not None  # as _check_definition has seen
        return last

    @property
    def expected(self) -> list[Expectation]:
        """What was expected of the branch."""
        audit = self.facts.audits[self.output]
        return [] if audit is None else [finding.expectation for finding in audit.findings]

    def checks(self) -> Iterator[RefusalCheck]:
        """What may stand against it whatever its rows are, the first that is to be said first."""
        of_definition = (OtherDefinitionError, UnpatchableError)
        yield RefusalCheck(self._check_definition, of_definition, is_relied_on=True)
        yield RefusalCheck(self._check_published, (UnpublishedError,))
        yield self.facts.audit_check([self.output])
        yield self.facts.fork_check()
        yield self.facts.behind_check(self.main.snapshot_id)
        if not self.has_nothing_new:  # nobody can tell which rows would stay
            yield RefusalCheck(self._check_patches, (PatchedSinceError,), is_relied_on=True)

    def row_check(self, rows: "PatchRows") -> RefusalCheck:
        """Whether the ``rows`` are closed."""
        return RefusalCheck(partial(_check_unsettled, self, rows), (OpenWindowsError,))

    @property
    def has_nothing_new(self) -> bool:
        """Whether the branch has nothing that main has not seen."""
        return self.base is not None and self.base.snapshot_id == self.branch.snapshot_id

    def left_unpublished(self) -> AuditOutcome | None:
        """The good audit of this very patch, if it was committed and its writer ended before it could publish it."""
        done, published = self.main.patch, self.published
        if done != self.patch.replace(epoch=self.main.epoch) or published != self.main.parent:
            return None
        return read_audit(self.catalog.store, self.catalog.pipeline, published, self.main.snapshot_id, self.output)

    @contextmanager
    def differing(self) -> "Iterator[PatchRows | None]":
        """The rows that differ, None if the branch has nothing that main has not seen."""
        from headrace.read.patch_rows import Compared, differing  # with DuckDB

        if self.has_nothing_new:
            yield None
            return
        compared = Compared(
            self.main,
            self.branch,
            self._patches,
            self._known,
            self.stage.expired_until(self.main),
            self.stage.expired_until(self.branch),
            self.stage.table,
            self.stage.merging,
        )
        with differing(self.catalog, compared) as rows:
            yield rows

    @property
    def _known(self) -> Instant:
        """Windows that begin later have only elements that were read after the fork, as far as that can be told."""
        if self.base is None or self.base.manifest is None or not self.stage.is_first:
            return MAX_INSTANT
        newest = StoredProgress.of(self.base.manifest).newest
        return MIN_INSTANT if newest is None else newest

    @cached_property
    def _patches(self) -> list[int]:
        """The epochs of main after the fork that are patches. Raises PatchedSinceError."""
        patches: list[int] = []
        newest, names = self.main, {self.output, *called_before(self.whole, self.output)}
        while self.base is not None and newest.patch is not None and newest.patch.epoch > self.base.epoch:
            if newest.patch.output in names:
                patches.append(newest.patch.epoch)
            at = self.catalog.ancestor_at(newest.snapshot_id, newest.patch.epoch - 1)
            before = None if at is None else self._kept(at)
            if before is None:
                raise PatchedSinceError(
                    f"branch {self.facts.branch} of {self.catalog.pipeline} was forked before main was patched, and "
                    f"what came before the patch in epoch {newest.patch.epoch} has expired: it cannot be told any more "
                    "which rows were patched since the fork. Backfill from the beginning, with a new branch"
                )
            newest = before
        if patches and self.stage.merging is not None:
            raise PatchedSinceError(
                f"branch {self.facts.branch} of {self.catalog.pipeline} was forked before main was patched in epoch "
                f"{patches[0]}, and its windows merge: it may have parts of what was replaced. Backfill from the "
                "beginning, with a new branch"
            )
        return patches

    def _kept(self, snapshot_id: str) -> Manifest | None:
        """None if it has expired: younger manifests name it all the same."""
        try:
            return self.catalog.manifest(snapshot_id)
        except MissingSnapshotError:
            return None

    def _check_patches(self) -> None:
        """Raise PatchedSinceError if main was patched since the fork, and nobody can tell which rows to leave."""
        _ = self._patches

    def _check_definition(self) -> None:
        """Raise OtherDefinitionError or UnpatchableError, by what the manifests say of the definition."""
        name = self.catalog.pipeline
        if self.main.fingerprint != self.branch.fingerprint:
            raise OtherDefinitionError(
                f"branch {self.facts.branch} of {name} was made by another definition than main: its rows mean "
                "something else. Promote it without --patch, or run main with the current definition and backfill "
                "again"
            )
        _check_last_stage(self.main)

    def _check_published(self) -> None:
        if self.published != self.main.snapshot_id:
            raise UnpublishedError(
                f"main of {self.catalog.pipeline} is at {self.main.snapshot_id} (epoch {self.main.epoch}), and readers "
                f"are at {self.published or 'nothing'}: the patch would show them more than itself. Run the "
                "pipeline, which audits and publishes main, then patch it"
            )


class OtherDefinitionError(FixConfigError, code="config.other_definition"):
    """A branch and main were not made by the same definition, so their rows do not mean the same."""


def check_before(catalog: Catalog, pipeline: Pipeline, output: str) -> None:
    """Raise what stands against a patch of an ``output`` by whatever branch ``pipeline`` computes as it is written, as
    ``PatchOutput.of`` and its check of the definition do.
    """
    whole, name = _main(catalog, catalog.head().refs.get(MAIN)), catalog.pipeline
    _check_output(whole, output, "backfill {}")
    main = seen_by(whole, output)
    if output not in pipeline.by_output or fingerprint(pipeline.by_output[output]) != main.fingerprint:
        raise OtherDefinitionError(
            f"pipeline {name} as it is written now is another definition than that of main: its rows mean something "
            f"else. Take the change back; or `headrace backfill {'.'.join(filter(None, [name, output]))} --promote` "
            "computes all rows again"
        )
    _check_last_stage(main)


class UnpublishedError(RetryError, code="retry.unpublished"):
    """Main has epochs that readers have not seen, which a patch would make visible with itself."""


def _main(catalog: Catalog, snapshot_id: str | None) -> Manifest:
    if snapshot_id is None:
        raise UnpublishedError(f"main of {catalog.pipeline} has no snapshot yet, so there is nothing to patch")
    return catalog.manifest(snapshot_id)


class UnpatchableError(FixConfigError, code="config.unpatchable"):
    """A pipeline whose results cannot be replaced row by row, or of which no window ever expires."""


def _check_output(side: Manifest, output: str, command: str) -> None:
    """Raise UnknownOutputError or UnpatchableError if ``output`` is none of ``side`` that can be patched by itself.
    ``command``: what people have called, of some pipeline or output.
    """
    name, names = side.pipeline, outputs_of(side)
    if names and not output:
        raise UnpatchableError(
            f"pipeline {name} has the outputs {', '.join(sorted(names))}, and a patch is of one of them: `headrace "
            f"{command.format(f'{name}.{min(names)}')} --patch`"
        )
    seen_by(side, output)
    if output in parked_in(side):
        raise UnpatchableError(
            f"output {output} of {name} is parked at snapshot {side.snapshot_id} of branch {side.branch}: mend it "
            f"first, `headrace run {name}` says why"
        )
    if readers := [reader for reader, above in upstream_of(side).items() if output in above]:
        raise UnpatchableError(
            f"output {output} of {name} is read by {', '.join(readers)}, which would not hear of a patch: promote the "
            f"whole branch, `headrace {command.format(name)}{' --promote' if command.startswith('backfill') else ''}`"
        )


def _check_last_stage(main: Manifest) -> None:
    name, stage = main.pipeline, LastStage.of(main)
    if stage is None:
        raise OtherDefinitionError(
            f"main of {name} is at snapshot {main.snapshot_id}, which an older version of Headrace wrote and which "
            "does not say its definition: run the pipeline once, then patch it"
        )
    if stage.gives_rows:
        raise UnpatchableError(
            f"{name} gives rows, which are not patched yet: only a whole branch can be promoted (without --patch)"
        )
    if stage.own is not None:
        raise UnpatchableError(
            f"windows of {name} are of your own class {stage.own}, and Headrace does not know whether they merge: "
            "only a whole branch can be promoted (without --patch)"
        )
    if stage.accumulation is Accumulation.DISCARDING:
        raise UnpatchableError(
            f"{name} accumulates in mode DISCARDING: a row of current is only the last pane of its window, and no "
            "result that can be replaced. Only a whole branch can be promoted (without --patch)"
        )
    if stage.lateness is None:
        raise UnpatchableError(
            f"{name} has no limit of lateness (allowed_lateness=None): none of its windows ever expires, so there is "
            "nothing to patch. Only a whole branch can be promoted (without --patch)"
        )


class OpenWindowsError(RetryError, code="retry.open_windows"):
    """Rows that would be patched overlap windows that are still open, and may become part of them."""


def _check_unsettled(patching: PatchOutput, rows: "PatchRows") -> None:
    """Raise OpenWindowsError if some of the ``rows`` may become part of windows that are still open."""
    number, first = rows.unsettled()
    if first is not None:
        raise OpenWindowsError(
            f"{number} rows that a patch by branch {patching.facts.branch} of {patching.catalog.pipeline} would "
            "change overlap windows of their keys that are still open, and may become part of them, such as "
            f"{_said(first)}. Try again once those have expired"
        )


def _said(row: "RowChange") -> str:
    return ", ".join(f"{name} = {value}" for name, value in row.key.items())


@dataclass(frozen=True)
class PatchRehearsal:
    """What a patch by ``branch`` would change for readers, how many rows that differ would stay as they are (by why),
    and why it would be refused: by nothing, if by none. ``change``: what it would do, in a sentence.
    """

    branch: str
    output: "OutputDiff"
    left: "dict[Left, int]"
    refusals: tuple[HeadraceError, ...]
    change: str = ""

    def to_json(self) -> dict[str, Any]:
        """A JSON value, as far as ``output`` has one."""
        refusals = [asdict(RunError.of(refusal)) for refusal in self.refusals]
        left = {reason.value: number for reason, number in self.left.items()}
        return {"branch": self.branch, "refusals": refusals, "output": self.output.to_json(), "left": left}


def patch(catalog: Catalog, branch: str, *, run_id: str, output: str = "", message: str = "") -> RunResult:
    """Replace rows of main by those of ``branch`` where windows have expired on both, and publish. The branch stays.
    ``message`` says in the log who decided it, and why. ``output``: of which, where outputs have names.

    ``epochs`` and ``rows`` of the result are those of the patch: none where nothing differs, as when it is done again.
    Raises UnknownBranchError, UnpatchableError, OtherDefinitionError, AuditMissingError, AuditFailedError,
    ForkGivenUpError, PatchedSinceError, BranchBehindError, UnpublishedError, OpenWindowsError, PublishConflictError.
    """
    started_at = timestamp()
    patching = PatchOutput.of(catalog, catalog.head(), branch, output)
    if (left := patching.left_unpublished()) is not None:
        with making_change(catalog):
            _publish(catalog, left, run_id)
        return _result(catalog, patching.whole, left, run_id, started_at)
    begin_change(patching)
    if patching.expected:
        require("quality", f"the audit of a patch of {catalog.pipeline}")
    begun = time.monotonic()
    with patching.differing() as rows:
        if rows is None or not (numbers := rows.counts()).differing:
            with making_change(catalog):
                return _result(catalog, patching.whole, None, run_id, started_at)
        refuse([patching.row_check(rows)])
        with making_change(catalog):
            manifest, outcome = _Commit(patching, rows, numbers, run_id, begun, message).done()
            _publish(catalog, outcome, run_id)
    return _result(catalog, manifest, outcome, run_id, started_at)


def _publish(catalog: Catalog, outcome: AuditOutcome, run_id: str) -> None:
    """Publish the patch, and with it the other outputs that readers see up to there: nothing of them changes. Nothing
    is left to do where a run has continued from the patch, and published both.
    """
    seen = published_of(catalog.head().refs)
    others = [output for output in seen if seen[output] == outcome.from_snapshot and output != outcome.output]
    try:
        publish_range(catalog, outcome, run_id, others)
    except PublishConflictError:
        published = catalog.head().refs.get(published_ref(outcome.output))
        if published is None or not catalog.is_ancestor(outcome.to_snapshot, published):
            raise


def rehearse_patch(catalog: Catalog, branch: str, *, output: str = "", limit: int = 20) -> PatchRehearsal:
    """What ``patch`` would do; moves nothing. At most ``limit`` of the rows that readers would see change are given.

    Raises UnknownBranchError, UnpublishedError where main has no snapshot, and what a reader of ``current`` does.
    """
    from headrace.read.diff.comparison import OutputDiff
    from headrace.read.diff.layered_tables import RowCounts
    from headrace.read.pipeline_reader import PipelineReader

    patching = PatchOutput.of(catalog, catalog.head(), branch, output)
    refusals = find_refusals(patching)
    if not refusals.is_over:
        with patching.differing() as rows:
            if rows is not None:
                errors = refusals.and_of([patching.row_check(rows)]).errors
                changed = OutputDiff(rows.counts(), tuple(rows.first(limit)))
                return PatchRehearsal(branch, changed, rows.left(), errors, str(patching))
    whole = PipelineReader(catalog)
    count = (whole[output] if output else whole).current(at=patching.main.snapshot_id).count()
    return PatchRehearsal(branch, OutputDiff(RowCounts(count, count)), {}, refusals.errors, str(patching))


@dataclass(frozen=True)
class _Commit:
    """The patch made of ``rows``, of which ``numbers`` differ, as an epoch of main. ``begun``: when its time began."""

    patching: PatchOutput
    rows: "PatchRows"
    numbers: "RowCounts"
    run_id: str
    begun: float
    message: str

    def done(self) -> tuple[Manifest, AuditOutcome]:
        """Claim main, store the files, audit them, commit. Raises PublishConflictError if main has moved,
        AuditFailedError, FencedError.
        """
        from headrace.state.files import put_rows  # with Arrow

        catalog, main = self.patching.facts.catalog, self.patching.whole
        names = OutputTables(self.patching.output)
        computed, counted = time.monotonic(), catalog.store.requests.snapshot()
        claim = catalog.claim(MAIN, owner=self.run_id)
        if claim.snapshot_id != main.snapshot_id:
            raise PublishConflictError(
                f"main of {catalog.pipeline} was moved from {main.snapshot_id} to {claim.snapshot_id} while its patch "
                "was computed: run the command again"
            )
        epoch, snapshot_id = self.patching.patch.epoch, catalog.new_snapshot_id()
        prefix = catalog.data_prefix(epoch, snapshot_id)
        files = put_rows(catalog.store, f"{prefix}/{file_stem(names.panes)}-patch", self.rows.records(epoch))
        layer = Layer.of(files, epoch, epoch)
        panes = catalog.append_record(main.logs[names.panes], FileRecord(epoch, files))
        continuing = replace(
            main.continuing,
            tables={**main.tables, names.current: (*main.tables.get(names.current, ()), layer)},
            logs={**main.logs, names.panes: panes},
            patch=self.patching.patch,
        )
        of_epoch = epoch_without_reading(
            claim,
            snapshot_id,
            timestamp(),
            _counts(main, self.numbers, names),
            timings={"compute_seconds": computed - self.begun, "write_seconds": time.monotonic() - computed},
            requests=catalog.store.requests.since(counted),
        )
        manifest = Manifest.next_of(main, continuing=continuing, epoch=of_epoch)
        outcome = self._audited(seen_by(manifest, self.patching.output))
        catalog.commit(claim, manifest, self.message)
        return manifest, outcome

    def _audited(self, manifest: Manifest) -> AuditOutcome:
        """The audit of the patch. Raises AuditFailedError."""
        from headrace.audit.arrow_frames import arrow_frame  # with DuckDB

        catalog, columns = self.patching.catalog, ViewColumns.from_json(manifest.schema)
        audited = audited_files(catalog, manifest.parent, manifest)
        outcome = run_audit(
            store=catalog.store,
            pipeline=catalog.pipeline,
            from_snapshot=manifest.parent,
            to_snapshot=manifest.snapshot_id,
            audited=Audited(
                self.patching.expected,
                lambda view, released: arrow_frame(catalog.store, columns, view, audited, released),
                lambda: [*released_panes(catalog, columns)],
                columns.identity,
            ),
            output=self.patching.output,
        )
        if not outcome.success:
            failures = "; ".join(finding.describe() for finding in outcome.failed)
            raise AuditFailedError(
                f"pipeline {catalog.pipeline}: {len(outcome.failed)} of {len(outcome.findings)} expectations failed on "
                f"what a patch by branch {self.patching.facts.branch} would write, and nothing was patched: "
                f"{failures}. Data docs: {outcome.path}/docs"
            )
        return outcome


def _counts(main: Manifest, rows: "RowCounts", names: OutputTables) -> dict[str, int]:
    """Counts of an epoch that only has panes of an output, by the names that every epoch has."""
    panes, retractions = rows.added + rows.changed, rows.removed + rows.changed
    own = {"panes": panes, "panes_late": panes, "retractions": retractions}
    return {**dict.fromkeys(main.counts, 0), **own, **{names.named(name): count for name, count in own.items()}}


def _result(
    catalog: Catalog, manifest: Manifest, outcome: AuditOutcome | None, run_id: str, started_at: str
) -> RunResult:
    visible = [] if outcome is None else [manifest]
    outputs = None
    if outputs_of(manifest):
        audits = {} if outcome is None else {outcome.output: outcome}
        outputs = output_results(catalog, audits)
    return published_result(
        manifest, visible, outcome, action="patch", run_id=run_id, started_at=started_at, outputs=outputs
    )
