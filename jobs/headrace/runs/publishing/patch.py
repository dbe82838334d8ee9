"""Output patch: rows of a branch replace those of main in windows that have expired, and nothing else changes.

Theory of operation: a window that has expired on main (semantics 5.2) is over there. Its state is gone, and what would
still come for it is dropped. So its row of ``current`` may be replaced without the engine knowing. A patch is epoch n+1
of main, with the clocks, inputs and state of epoch n. Its panes are, for each row that is replaced, the retraction of
what stands (sequence 0) and the new pane. The new pane has sequence 1, is late, the last of its window, and one index
up; a row that the branch does not have is only retracted. The same files are the top layer of ``current``, so that
compaction need not know of patches. Rows are copied: nothing of the branch is needed afterwards. ``Manifest.patch``
says what was patched last.

*Which rows.* A patch replaces rows whose values differ and whose windows have expired on main and on the branch. One
that is still open on either stays. So does what a patch has made of a row since the fork, unless all elements of the
window were read after the fork. Otherwise the branch has, in part or whole, what was replaced. (Of a second
aggregation, a join, or panes of another output nobody can tell so simply, and all of that stays. Where windows merge,
such a branch is refused.) A branch that began with nothing computed everything.

*Rows* (semantics 15.7) are multisets (``read/patch_rows``). Rows of groups are over with their window. Rows of records
have no state, and none is late: main may give a row again of whatever it reads yet. So the branch is taken as far as
main has read too, and what main refused and could still take is in the way. Where duplicates are told, a record is
dropped that is older than the ids which are remembered: then rows are over with those.

Joined rows (16) are over once they stand for good: by their event time alone, behind the watermark and the lateness of
the last join. What main still keeps for its joins belongs to later rows. All rows of one moment are replaced together.

*Why it is refused.* In discarding mode a row of ``current`` is only the last pane, no result to be replaced. Without a
limit of lateness nothing expires, nor do groups for all time, and rows of panes may still be withdrawn. Another
definition's rows mean something else. Where windows merge, a row may have become part of a row that is still open, on
main or on the branch. Replacing one without the other would lose or double what is in both. Nobody knows that for
windows of a user's own. And what is refused for a cut-over: a branch without a good audit, behind main, or with what
main has given up.

*Order.* The patch checks everything before it claims main, which fences main's writer; it stores files after that, so
that no expiry takes them for garbage. The patch is audited before it is committed: one that fails is never on main.
Commit and publish are two entries of the log: between them main has a whole patch, and readers have none; the next run
of the pipeline publishes it, and so does the same patch done again.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

from headrace.audit.limits import find_shared_ids
from headrace.audit.range import UnpublishedRange, audited_files, released_panes
from headrace.audit.run import AuditSubject, run_audit
from headrace.audit.store import AuditFailedError, AuditOutcome, LimitExceededError, read_audit
from headrace.errors import FixConfigError, HeadraceError, RetryError
from headrace.installed import require_extra
from headrace.model.accumulation import Accumulation
from headrace.model.expressions.data_types import DataType
from headrace.model.time import MAX_INSTANT, MIN_INSTANT, Instant
from headrace.pipeline.identity import fingerprint
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.quality import Expectation
from headrace.read.snapshots.progress import LastStage, RowOrigin, StoredProgress, epoch_without_reading
from headrace.read.upstream import upstreams_of
from headrace.read.views.columns import ViewColumns
from headrace.runs.plan import CutOver
from headrace.runs.publishing.audits import (
    MadeBefore,
    MadeChange,
    RefusalCheck,
    Refusals,
    files_main_read,
    files_read,
    making_change,
    raise_first_refusal,
)
from headrace.runs.publishing.promotion import BranchFacts, PatchedSinceError, is_repeatable
from headrace.runs.publishing.publish import publish_range
from headrace.runs.reporting.results import RunError
from headrace.runs.reporting.results import now as timestamp
from headrace.sources.landed.files import landed_as
from headrace_snapshots.catalog import Catalog, Link
from headrace_snapshots.errors import MissingSnapshotError, PublishConflictError
from headrace_snapshots.format.files import DataFile, FileRecord, InputFile
from headrace_snapshots.format.manifest import INPUTS, REJECTED, Manifest, OutputTables, Patch, file_stem
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
        output_text = f" of output {self.output}" if self.output else ""
        stage = LastStage.from_manifest(self.main)
        is_over = "both have read the records" if stage and stage.is_never_late else "windows have expired on both"
        if stage and stage.made_of is RowOrigin.JOINED:
            is_over = "they stand for good on both"
        rows = f"replace rows{output_text} by those of branch {self.facts.branch} where {is_over}"
        return f"{rows}, as epoch {self.whole.epoch + 1} of main; the branch stays"

    @classmethod
    def from_branch(cls, catalog: Catalog, cut_over: CutOver) -> Self:
        """Raises UnknownBranchError, UnpublishedError where main has nothing, UnknownOutputError; UnpatchableError
        where outputs have names and none is named, or the output is read by others or parked.
        """
        facts, output = BranchFacts.from_branch(catalog, catalog.head(), cut_over.branch), cut_over.output or ""
        whole = _main_manifest(catalog, facts.main)
        for side in (whole, facts.head):
            _check_output(side, output, f"promote {{}} {cut_over.branch}")
        return cls(facts, whole, output)

    @classmethod
    def made_before(cls, catalog: Catalog, cut_over: CutOver) -> MadeBefore | None:
        """The same patch, if it was committed and its writer ended before it could publish it."""
        patching = cls.from_branch(catalog, cut_over)
        patch_made, published_id, main = patching.main.patch, patching.published_snapshot, patching.main
        if patch_made != patching.patch.replace(epoch=main.epoch) or published_id != main.parent:
            return None
        left = read_audit(catalog.store, catalog.pipeline, published_id, main.snapshot_id, patching.output)
        if left is None:
            return None
        return MadeBefore(_made_change(patching.whole, left), lambda run_id: _publish_patch(catalog, left, run_id))

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
        """The newest snapshot of the branch, as the output sees it; where nothing is late, the newest that has read no
        file which main has not: main will make rows of that.
        """
        stage = LastStage.from_manifest(self.main)
        whole = self.facts.head if stage is None or not stage.is_never_late else self._without_unread()
        return seen_by(whole, self.output)

    @property
    def published_snapshot(self) -> str | None:
        """What readers of the output see."""
        return self.facts.published_ids.get(self.output)

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
        last = LastStage.from_manifest(self.main)
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
        if self.stage.is_never_late:
            yield RefusalCheck(self._check_same_input, (BranchAheadError,), is_relied_on=True)
            yield RefusalCheck(self._check_dead_letters, (UnpatchableError,))
        if not self.has_nothing_new:  # nobody can tell which rows would stay
            yield RefusalCheck(self._check_patches, (PatchedSinceError,), is_relied_on=True)

    def make(self, run_id: str, message: str) -> MadeChange:
        """Replace the rows, and publish. Its epochs are those of the patch: none where nothing differs, as when it is
        done again. Raises OpenWindowsError, AuditFailedError, PublishConflictError, FencedError.
        """
        catalog = self.facts.catalog
        if self.expected:
            require_extra("quality", f"the audit of a patch of {catalog.pipeline}")
        start = time.monotonic()
        with self.open_differing_rows() as rows:
            if rows is None or not (numbers := rows.row_counts()).differing:
                with making_change(catalog):
                    return _made_change(self.whole, None)
            raise_first_refusal([self.row_check(rows)])
            with making_change(catalog):
                manifest, outcome = _Commit(self, rows, numbers, run_id, start, message).commit_patch()
                _publish_patch(catalog, outcome, run_id)
        return _made_change(manifest, outcome)

    def rehearse(self, limit: int) -> "PatchRehearsal":
        """What it would do. At most ``limit`` of the rows that readers would see change are given. Raises what a reader
        of ``current`` does.
        """
        from headrace.read.diff.comparison import OutputDiff
        from headrace.read.diff.layered_tables import RowCounts
        from headrace.read.pipeline_reader import PipelineReader

        branch, refusals = self.facts.branch, Refusals().and_of(self.checks())
        if not refusals.is_over:
            with self.open_differing_rows() as rows:
                if rows is not None:
                    errors = refusals.and_of([self.row_check(rows)]).errors
                    difference = OutputDiff(rows.row_counts(), tuple(rows.first_changes(limit)))
                    return PatchRehearsal(branch, difference, rows.left_counts(), errors, str(self), self.output)
        whole = PipelineReader(self.facts.catalog)
        count = (whole[self.output] if self.output else whole).current(at=self.main.snapshot_id).count()
        no_difference = OutputDiff(RowCounts(count, count))
        return PatchRehearsal(branch, no_difference, {}, refusals.errors, str(self), self.output)

    def row_check(self, rows: "PatchRows") -> RefusalCheck:
        """Whether the ``rows`` are closed."""
        return RefusalCheck(partial(_check_unsettled, self, rows), (OpenWindowsError,))

    @property
    def has_nothing_new(self) -> bool:
        """Whether the branch has nothing that main has not seen."""
        return self.base is not None and self.base.snapshot_id == self.branch.snapshot_id

    @contextmanager
    def open_differing_rows(self) -> "Iterator[PatchRows | None]":
        """The rows that differ, None if the branch has nothing that main has not seen."""
        from headrace.read.patch_rows import PatchComparison, PatchRows, RowsPatch, open_differing_rows  # with DuckDB

        if self.has_nothing_new:
            yield None
            return
        comparison = PatchComparison(self.main, self.branch, self._patches, self._newest_time_at_fork, self.stage)
        with open_differing_rows(self.catalog, comparison, RowsPatch if self.stage.gives_rows else PatchRows) as rows:
            yield rows

    def _without_unread(self) -> Manifest:
        """The newest snapshot of the branch before it read a file that main has not; its last, if it has read none."""
        catalog, head = self.facts.catalog, self.facts.head
        main_read, repeating = files_main_read(catalog, self.whole.snapshot_id, head), {*self._repeating}
        for record in catalog.file_records(head.logs[INPUTS]):
            files = (file for file in record.files if isinstance(file, InputFile) and file.input in repeating)
            if all(landed_as(catalog.pipeline, file) in main_read[file.input] for file in files):
                continue
            id_before = catalog.ancestor_at(head.snapshot_id, record.epoch - 1) if record.epoch else None
            return head if id_before is None else catalog.manifest(id_before)
        return head

    @property
    def _repeating(self) -> list[str]:
        """The inputs whose splits main and the branch read under the same names."""
        return [
            name
            for name, mark in StoredProgress.from_manifest(self.facts.head).marks.items()
            if is_repeatable(mark.kind)
        ]

    def _check_same_input(self) -> None:
        """Raise BranchAheadError unless main and what is taken of the branch have read the same."""
        catalog, name, branch = self.facts.catalog, self.catalog.pipeline, self.facts.branch
        main_read, branch_read = (
            files_main_read(catalog, self.whole.snapshot_id, self.branch),
            files_read(catalog, self.branch),
        )
        repeating = {*self._repeating}
        differing_paths = sorted(path for input_ in repeating for path in main_read[input_] ^ branch_read[input_])
        main, of_branch = (_positions_read(side, catalog.store.uri) for side in (self.whole, self.branch))
        elsewhere = sorted(input_ for input_ in of_branch.keys() - repeating if main.get(input_) != of_branch[input_])
        if differing_paths or elsewhere:
            what = f"file {differing_paths[0]}" if differing_paths else f"input {elsewhere[0]}"
            raise BranchAheadError(
                f"branch {branch} of {name} has read what main has not before, or beside, {what}, and its rows cannot "
                f"be told from others. Main would give them once more. `headrace run {name}` reads it, then patch again"
            )

    def _check_dead_letters(self) -> None:
        """Raise UnpatchableError if rows of the branch may be of records that main refused by another definition, and
        would now take. Such records may land again, and would be rows twice.
        """
        catalog, since_epoch = self.facts.catalog, -1 if self.base is None else self.base.epoch
        refused_records = self._dead_letters(self.whole, since_epoch, self._is_of_other_definition)
        records_of_branch = (
            refused_records - self._dead_letters(self.facts.head, since_epoch) if refused_records else refused_records
        )
        if records_of_branch:
            input_, file, position = min(records_of_branch, key=str)
            raise UnpatchableError(
                f"main of {catalog.pipeline} refused {len(records_of_branch)} records, such as {position} of {file} "
                "(input "
                f"{input_}), by the definition that it had then; branch {self.facts.branch} takes them. They may land "
                "on main again, and would be rows twice. Only the whole branch can be promoted (without --patch)"
            )

    def _dead_letters(
        self, manifest: Manifest, since_epoch: int, of_epoch: Callable[[int], bool] = lambda epoch: True
    ) -> set[tuple[Any, ...]]:
        """Input, file and position of each dead letter in the line of ``manifest`` after epoch ``since_epoch``."""
        from headrace.read.views.arrow_types import schema_of
        from headrace.read.views.row_files import read_tables

        catalog, place = self.facts.catalog, schema_of(_PLACE_OF_RECORD)
        records = [
            record
            for record in catalog.file_records(manifest.logs[REJECTED], since_epoch=since_epoch)
            if of_epoch(record.epoch)
        ]
        files = [file for record in records for file in record.files if isinstance(file, DataFile)]
        return {tuple(row.values()) for rows in read_tables(catalog.store, files, place) for row in rows.to_pylist()}

    def _is_of_other_definition(self, epoch: int) -> bool:
        """Whether main may have had another definition in an epoch."""
        snapshot_id = self.facts.catalog.ancestor_at(self.whole.snapshot_id, epoch)
        manifest = None if snapshot_id is None else self._manifest_if_kept(snapshot_id)
        return manifest is None or manifest.fingerprint != self.whole.fingerprint

    @property
    def _newest_time_at_fork(self) -> Instant:
        """Windows that begin later have only elements that were read after the fork, as far as that can be told."""
        if self.base is None or self.base.manifest is None or not self.stage.is_first:
            return MAX_INSTANT
        newest = StoredProgress.from_manifest(self.base.manifest).newest
        return MIN_INSTANT if newest is None else newest

    @cached_property
    def _patches(self) -> list[int]:
        """The epochs of main after the fork that are patches. Raises PatchedSinceError."""
        patches: list[int] = []
        newest, names = self.main, {self.output, *called_before(self.whole, self.output)}
        while self.base is not None and newest.patch is not None and newest.patch.epoch > self.base.epoch:
            if newest.patch.output in names:
                patches.append(newest.patch.epoch)
            id_before = self.catalog.ancestor_at(newest.snapshot_id, newest.patch.epoch - 1)
            manifest_before = None if id_before is None else self._manifest_if_kept(id_before)
            if manifest_before is None:
                raise PatchedSinceError(
                    f"branch {self.facts.branch} of {self.catalog.pipeline} was forked before main was patched, and "
                    f"what came before the patch in epoch {newest.patch.epoch} has expired. It cannot be told any more "
                    "which rows were patched since the fork. Backfill from the beginning, with a new branch"
                )
            newest = manifest_before
        if patches and self.stage.merging is not None:
            raise PatchedSinceError(
                f"branch {self.facts.branch} of {self.catalog.pipeline} was forked before main was patched in epoch "
                f"{patches[0]}, and its windows merge: it may have parts of what was replaced. Backfill from the "
                "beginning, with a new branch"
            )
        return patches

    def _manifest_if_kept(self, snapshot_id: str) -> Manifest | None:
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
        if self.published_snapshot != self.main.snapshot_id:
            raise UnpublishedError(
                f"main of {self.catalog.pipeline} is at {self.main.snapshot_id} (epoch {self.main.epoch}), and readers "
                f"are at {self.published_snapshot or 'nothing'}: the patch would show them more than itself. Run the "
                "pipeline, which audits and publishes main, then patch it"
            )


def _positions_read(manifest: Manifest, root: str) -> dict[str, object]:
    """How far a snapshot under ``root`` has read its inputs. Another pipeline counts by the snapshot that
    was consumed. How far it had ever come says nothing of the rows.
    """
    upstreams = upstreams_of(manifest, root).items()
    consumed_snapshots = {name: (position.upstream, position.snapshot) for name, position in upstreams}
    return {**StoredProgress.from_manifest(manifest).marks, **consumed_snapshots}


class OtherDefinitionError(FixConfigError, code="config.other_definition"):
    """A branch and main were not made by the same definition, so their rows do not mean the same."""


def check_before(catalog: Catalog, pipeline: Pipeline, output: str) -> None:
    """Raise what stands against a patch of an ``output`` by any branch that ``pipeline`` computes as it is written.
    ``PatchOutput.of`` and its check of the definition raise the same.
    """
    whole, name = _main_manifest(catalog, catalog.head().refs.get(MAIN)), catalog.pipeline
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


def _main_manifest(catalog: Catalog, snapshot_id: str | None) -> Manifest:
    if snapshot_id is None:
        raise UnpublishedError(f"main of {catalog.pipeline} has no snapshot yet, so there is nothing to patch")
    return catalog.manifest(snapshot_id)


class UnpatchableError(FixConfigError, code="config.unpatchable"):
    """A pipeline whose results cannot be replaced row by row, or of which no window ever expires."""


class BranchAheadError(RetryError, code="retry.branch_ahead"):
    """The branch has read what main has not, so main will give the same rows."""


_PLACE_OF_RECORD = {"input": DataType.STRING, "file": DataType.STRING, "position": DataType.INT}


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
    if readers := [reader for reader, upstream_names in upstream_of(side).items() if output in upstream_names]:
        raise UnpatchableError(
            f"output {output} of {name} is read by {', '.join(readers)}, which would not hear of a patch: promote the "
            f"whole branch, `headrace {command.format(name)}{' --promote' if command.startswith('backfill') else ''}`"
        )


def _check_last_stage(main: Manifest) -> None:
    name, stage = main.pipeline, LastStage.from_manifest(main)
    if stage is None:
        raise OtherDefinitionError(
            f"main of {name} is at snapshot {main.snapshot_id}, which an older version of Headrace wrote and which "
            "does not say its definition. Run the pipeline once, then patch it"
        )
    if stage.made_of is RowOrigin.ALL_TIME:
        raise UnpatchableError(
            f"{name} gives rows of groups for all time (without where=), any of which may change with the next record. "
            "Only a whole branch can be promoted (without --patch)"
        )
    if stage.made_of is RowOrigin.PANES:
        raise UnpatchableError(
            f"{name} gives rows of panes, and what gives these may still withdraw them: only a whole branch can be "
            "promoted (without --patch)"
        )
    if stage.own is not None:
        raise UnpatchableError(
            f"windows of {name} are of your own class {stage.own}, and Headrace does not know whether they merge. "
            "Only a whole branch can be promoted (without --patch)"
        )
    if stage.accumulation is Accumulation.DISCARDING:
        raise UnpatchableError(
            f"{name} accumulates in mode DISCARDING: a row of current is only the last pane of its window, and no "
            "result that can be replaced. Only a whole branch can be promoted (without --patch)"
        )
    if stage.lateness is None and stage.made_of is RowOrigin.JOINED:
        raise UnpatchableError(
            f"a join of {name} has no limit of lateness: none of its rows ever stands for good, so there is nothing to "
            "patch. Only a whole branch can be promoted (without --patch)"
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
    number, first = rows.count_unsettled()
    if first is not None:
        raise OpenWindowsError(
            f"{number} rows that a patch by branch {patching.facts.branch} of {patching.catalog.pipeline} would "
            f"change overlap windows of their keys that are still open, such as {_row_key_text(first)}. They may "
            "become part of these windows. Try again once those have expired"
        )


def _row_key_text(row: "RowChange") -> str:
    return ", ".join(f"{name} = {'NULL' if value is None else value}" for name, value in row.key.items())


@dataclass(frozen=True)
class PatchRehearsal:
    """What a patch by ``branch`` would change for readers, and how many rows that differ would stay as they are (by
    why). ``refusals`` say why it would be refused; none: it would not be. ``change``: what it would do, in a sentence.
    ``of``: the name of the output that is patched, "" of the only one.
    """

    branch: str
    output: "OutputDiff"
    left: "dict[Left, int]"
    refusals: tuple[HeadraceError, ...]
    change: str = ""
    of: str = ""

    gone: ClassVar[tuple[str, ...]] = ()

    @property
    def outputs(self) -> "Mapping[str, OutputDiff]":
        """What would change, by the name of the output."""
        return {self.of: self.output}

    def to_json(self) -> dict[str, Any]:
        """A JSON value, as far as ``output`` has one."""
        refusals = [asdict(RunError.of(refusal)) for refusal in self.refusals]
        left = {reason.value: number for reason, number in self.left.items()}
        return {"branch": self.branch, "refusals": refusals, "output": self.output.to_json(), "left": left}


def _publish_patch(catalog: Catalog, outcome: AuditOutcome, run_id: str) -> None:
    """Publish the patch, and with it the other outputs that readers see up to there: nothing of them changes. Nothing
    is left to do where a run has continued from the patch, and published both.
    """
    published_ids = published_of(catalog.head().refs)
    others = [
        output
        for output in published_ids
        if published_ids[output] == outcome.from_snapshot and output != outcome.output
    ]
    try:
        publish_range(catalog, outcome, run_id, others)
    except PublishConflictError:
        published_id = catalog.head().refs.get(published_ref(outcome.output))
        if published_id is None or not catalog.is_ancestor(outcome.to_snapshot, published_id):
            raise


@dataclass(frozen=True)
class _Commit:
    """The patch of ``rows``, of which ``numbers`` differ, as an epoch of main that began at ``start`` (seconds)."""

    patching: PatchOutput
    rows: "PatchRows"
    numbers: "RowCounts"
    run_id: str
    start: float
    message: str

    def commit_patch(self) -> tuple[Manifest, AuditOutcome]:
        """Claim main, store the files, audit them, commit. Raises PublishConflictError if main has moved,
        AuditFailedError, FencedError.
        """
        from headrace.state.files import put_rows  # with Arrow

        catalog, main = self.patching.facts.catalog, self.patching.whole
        names = OutputTables(self.patching.output)
        time_computed, counts_before = time.monotonic(), catalog.store.requests.snapshot()
        claim = catalog.claim(MAIN, owner=self.run_id)
        if claim.snapshot_id != main.snapshot_id:
            raise PublishConflictError(
                f"main of {catalog.pipeline} was moved from {main.snapshot_id} to {claim.snapshot_id} while its patch "
                "was computed: run the command again"
            )
        epoch, snapshot_id = self.patching.patch.epoch, catalog.new_snapshot_id()
        prefix = catalog.data_prefix(epoch, snapshot_id)
        files = put_rows(catalog.store, f"{prefix}/{file_stem(names.panes)}-patch", self.rows.patch_records(epoch))
        layers = self.rows.layers_after(catalog.store, f"{prefix}/{file_stem(names.current)}-patch", files, epoch)
        panes = catalog.append_record(main.logs[names.panes], FileRecord(epoch, files))
        continuing = replace(
            main.continuing,
            tables={**main.tables, names.current: layers},
            logs={**main.logs, names.panes: panes},
            patch=self.patching.patch,
        )
        of_epoch = epoch_without_reading(
            claim,
            snapshot_id,
            timestamp(),
            _patch_counts(main, self.numbers, names),
            timings={"compute_seconds": time_computed - self.start, "write_seconds": time.monotonic() - time_computed},
            requests=catalog.store.requests.since(counts_before),
        )
        manifest = Manifest.next_of(main, continuing=continuing, epoch=of_epoch)
        outcome = self._audit_patch(seen_by(manifest, self.patching.output))
        catalog.commit(claim, manifest, self.message)
        return manifest, outcome

    def _audit_patch(self, manifest: Manifest) -> AuditOutcome:
        """The audit of the patch. Raises AuditFailedError."""
        from headrace.audit.arrow_frames import arrow_frame  # with DuckDB

        catalog, columns = self.patching.catalog, ViewColumns.from_json(manifest.schema)
        patch_files = audited_files(catalog, manifest.parent, manifest)
        own = UnpublishedRange(manifest.parent, manifest.snapshot_id)
        ids = (find_shared_ids(catalog, own, manifest, columns),) if columns.id else ()
        outcome = run_audit(
            store=catalog.store,
            pipeline=catalog.pipeline,
            from_snapshot=manifest.parent,
            to_snapshot=manifest.snapshot_id,
            subject=AuditSubject(
                self.patching.expected,
                lambda view, released_rows: arrow_frame(catalog.store, columns, view, patch_files, released_rows),
                lambda: [*released_panes(catalog, columns)],
                columns.identity,
            ),
            limits=ids,
            output=self.patching.output,
        )
        if not outcome.success:
            failures = [finding.describe() for finding in outcome.failed]
            failures += [limit.describe() for limit in outcome.exceeded]
            docs = f". Data docs: {outcome.path}/docs" if outcome.failed else ""
            raise (AuditFailedError if outcome.failed else LimitExceededError)(
                f"pipeline {catalog.pipeline}: {len(failures)} of {len(outcome.findings) + len(ids)} expectations "
                f"failed on what a patch by branch {self.patching.facts.branch} would write, and nothing was patched: "
                f"{'; '.join(failures)}{docs}"
            )
        return outcome


def _patch_counts(main: Manifest, rows: "RowCounts", names: OutputTables) -> dict[str, int]:
    """Counts of an epoch that only has panes of an output, by the names that every epoch has."""
    panes, retractions = rows.added + rows.changed, rows.removed + rows.changed
    own = {"panes": panes, "panes_late": panes, "retractions": retractions}
    return {
        **dict.fromkeys(main.counts, 0),
        **own,
        **{names.qualified_name(name): count for name, count in own.items()},
    }


def _made_change(manifest: Manifest, outcome: AuditOutcome | None) -> MadeChange:
    visible = [] if outcome is None else [manifest]
    audits = {} if outcome is None else {outcome.output: outcome}
    return MadeChange("patch", manifest, visible, manifest.snapshot_id, outcome, audits)
