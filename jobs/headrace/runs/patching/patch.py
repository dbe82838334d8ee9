"""Output patch: rows of a branch replace those of main in windows that have expired, and nothing else of main changes.

Theory of operation ------------------- A window that has expired on main (semantics 5.2) is over there: its state is
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
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from headrace.audit.range import audited_files
from headrace.audit.releases import released_panes
from headrace.audit.run import Audited, run_audit
from headrace.audit.store import AuditFailedError, AuditOutcome
from headrace.errors import HeadraceError
from headrace.extras import require
from headrace.read.snapshots.progress import epoch_without_reading
from headrace.read.views.columns import ViewColumns
from headrace.runs.patching.plan import PatchOutput
from headrace.runs.publishing.publish import output_results, publish_range, published_result
from headrace.runs.publishing.refusals import begin_change, find_refusals, making_change, refuse
from headrace.runs.reporting.results import RunError, RunResult
from headrace.runs.reporting.results import now as timestamp
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import PublishConflictError
from headrace_snapshots.format.filelog import FileRecord
from headrace_snapshots.format.files import Layer
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.output_view import outputs_of, seen_by
from headrace_snapshots.format.table_names import OutputTables, file_stem
from headrace_snapshots.refs import MAIN, published_of, published_ref

if TYPE_CHECKING:
    from headrace.read.diff.differences import OutputDiff
    from headrace.read.diff.row_changes import RowCounts
    from headrace.read.patch_rows import Left, PatchRows


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
    from headrace.read.diff.differences import OutputDiff
    from headrace.read.diff.row_changes import RowCounts
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
        from headrace.state.datafiles.files import put_rows  # with Arrow

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
