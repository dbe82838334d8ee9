"""Publish: what of main may be seen, output by output, and the move of what readers see. No Spark.

``publishable_epochs`` says which outputs may be published, and how far: a pure function of audits and of what is
computed of what. An output is never published beyond what it is computed of: else readers would see sums of rows whose
audit failed.

``publish_audited`` moves what readers see to what was audited: the stored audit of exactly the range decides, nothing
else. By ``release`` a person lets readers see what an audit did not pass.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import msgspec

from headrace.audit.store import AuditOutcome, audit_error, read_audit
from headrace.errors import FixConfigError, FixDataError, RetryError
from headrace.model.time import render
from headrace.read.snapshots.epoch_history import summed_counts
from headrace.read.snapshots.progress import StoredProgress
from headrace.runs.reporting.results import AuditReference, OutputResult, RunAction, RunResult
from headrace.runs.reporting.results import now as timestamp
from headrace.runs.reporting.summary import renew_summary
from headrace_snapshots.catalog import Catalog, Link
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format.codec import JSON, BrokenObjectError
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.output_view import output_names, parked_in, seen_by, upstream_of
from headrace_snapshots.log import Entry
from headrace_snapshots.names import MAIN, PUBLISHED, published_of
from headrace_snapshots.output_catalog import seen_catalog
from headrace_snapshots.protocol.moves import Kind
from headrace_snapshots.store import open_store

NOTHING_YET = -1


class OutputVersions(msgspec.Struct, frozen=True):
    """``published_epoch``: the epoch that readers of an output see. ``passed_epochs``: epochs of main after it up to
    which an audit from there on succeeded. ``upstream_names``: the outputs that it is computed of; none: of records.
    """

    published_epoch: int = NOTHING_YET
    passed_epochs: frozenset[int] = msgspec.field(default_factory=frozenset)
    upstream_names: tuple[str, ...] = ()


def publishable_epochs(outputs: Mapping[str, OutputVersions]) -> dict[str, int]:
    """The epoch that readers of each output may see. It is the newest up to which its audit succeeded, and that readers
    of all its upstream outputs see as well. Where that is nothing new, the epoch that they see.
    """
    epochs: dict[str, int] = {}

    def reachable_epoch(output: str) -> int:
        if output not in epochs:
            versions = outputs[output]
            upstream_epochs = [reachable_epoch(name) for name in versions.upstream_names if name in outputs]
            allowed_epochs = [
                epoch for epoch in versions.passed_epochs if all(epoch <= bound for bound in upstream_epochs)
            ]
            epochs[output] = max([versions.published_epoch, *allowed_epochs])
        return epochs[output]

    for output in outputs:
        reachable_epoch(output)
    return {output: epochs[output] for output in outputs}


def held_back(outputs: Mapping[str, OutputVersions], wanted_epoch: int) -> dict[str, tuple[str, ...]]:
    """Outputs that passed up to ``wanted_epoch`` and may not be published so far, with the upstream ones to blame."""
    publishable = publishable_epochs(outputs)
    return {
        output: tuple(name for name in versions.upstream_names if publishable.get(name, wanted_epoch) < wanted_epoch)
        for output, versions in outputs.items()
        if wanted_epoch in versions.passed_epochs and publishable[output] < wanted_epoch
    }


class AuditMissingError(RetryError, code="retry.audit_missing"):
    """The range that would be published has no stored audit."""


class NothingToPublishError(FixDataError, code="data.nothing_to_publish"):
    """There is no snapshot yet."""


class UpstreamUnpublishedError(FixDataError, code="data.upstream_unpublished"):
    """An output whose audit is good is computed of one that is not published so far."""


@dataclass(frozen=True)
class PlannedPublish:
    """``head`` is the snapshot of main that is to be published; ``published_ids`` is what readers see of each of
    its outputs. ``audits``: that of exactly (published, head] of each output, as far as it is stored. ``earlier``: good
    audits up to snapshots before ``head``, by epoch, of outputs that are computed of others. ``asked_outputs``: the
    outputs that are to be published. ``gone_outputs``: what readers still see of outputs that ``head`` has not.
    """

    catalog: Catalog = field(repr=False)
    head: Manifest
    published_ids: Mapping[str, str | None]
    audits: Mapping[str, AuditOutcome | None]
    asked_outputs: frozenset[str]
    earlier: Mapping[str, Mapping[int, AuditOutcome]] = field(default_factory=dict)
    gone_outputs: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_head(cls, catalog: Catalog, head: str, output: str | None = None) -> "PlannedPublish":
        """Plans to publish main as it is now, at ``head``: one ``output``, or all (None). Raises UnknownOutputError."""
        manifest = catalog.manifest(head)
        if output is not None:
            seen_by(manifest, output)
        published_ids = published_of(catalog.head().refs)
        outputs = output_names(manifest)
        audits = {
            name: None
            if published_ids.get(name) == head
            else read_audit(catalog.store, catalog.pipeline, published_ids.get(name), head, name)
            for name in outputs
        }
        asked_outputs = outputs if output is None else [output]
        return cls._from_manifest(
            catalog, manifest, {name: published_ids.get(name) for name in outputs}, audits, asked_outputs
        )

    @classmethod
    def after_audits(cls, catalog: Catalog, head: str, audits: Mapping[str, AuditOutcome | None]) -> "PlannedPublish":
        """Plans to publish main as it was audited, up to ``head``. An output without an audit had nothing to audit.
        One of ``head`` that the pipeline has not, or calls otherwise, is left to the next epoch: its readers see what
        they see.
        """
        manifest = catalog.manifest(head)
        published_ids = {output: head if audit is None else audit.from_snapshot for output, audit in audits.items()}
        if left := [output for output in output_names(manifest) if output not in published_ids]:
            seen_ids = published_of(catalog.head().refs)
            published_ids = {**{output: seen_ids.get(output) for output in left}, **published_ids}
        return cls._from_manifest(catalog, manifest, published_ids, audits, audits)

    @classmethod
    def _from_manifest(
        cls,
        catalog: Catalog,
        head: Manifest,
        published_ids: Mapping[str, str | None],
        audits: Mapping[str, AuditOutcome | None],
        asked_outputs: Iterable[str],
    ) -> "PlannedPublish":
        refs = catalog.head().refs if any(published_ids) else {}
        gone_outputs = {
            output: snapshot_id for output, snapshot_id in published_of(refs).items() if output not in published_ids
        }
        planned_publish = cls(catalog, head, published_ids, audits, frozenset(asked_outputs), gone_outputs=gone_outputs)
        return (
            planned_publish
            if not any(upstream_of(head).values())
            else replace(planned_publish, earlier=planned_publish._earlier_audits())
        )

    @property
    def has_names(self) -> bool:
        return any(self.published_ids)

    def publish(self, run_id: str) -> Entry | None:
        """Move all that may move, by one entry of the log, which names the run; None if that is nothing.

        Raises PublishConflictError if readers see something else meanwhile; RefusedError.
        """
        moves = self.moves
        if not moves:
            return None
        expected = {output: self.published_ids[output] for output in self._deciding_outputs(moves)}
        return self.catalog.publish_outputs(
            {**moves, **dict.fromkeys(self.gone_outputs)},
            {**expected, **self.gone_outputs},
            self._log_detail(moves),
            run_id,
        )

    @property
    def moves(self) -> dict[str, str]:
        """The snapshot that readers of each output may see that see an older one, or none, now."""
        epochs = {
            output: epoch
            for output, epoch in publishable_epochs(self._versions).items()
            if output in self.asked_outputs
        }
        return {
            output: self._passed_audits(output)[epoch].to_snapshot
            for output, epoch in epochs.items()
            if epoch != self._versions[output].published_epoch
        }

    def check_publishable(self, *, may_wait: bool = False) -> None:
        """Raise what keeps an output that is asked for from being published up to ``head``: AuditFailedError,
        AuditMissingError, UpstreamUnpublishedError. ``may_wait``: not the last.
        """
        due = [output for output in self.published_ids if output in self.asked_outputs and self._is_due(output)]
        failed_audits = [
            audit for output in due if (audit := self.audits.get(output)) is not None and not audit.success
        ]
        if failed_audits:
            raise audit_error(*failed_audits)
        missing = [output for output in due if self.audits.get(output) is None]
        if missing:
            ranges = " and of ".join(self._range_text(output) for output in missing)
            raise AuditMissingError(f"there is no audit of {ranges}; run the process DAG again")
        for output, upstream_names in held_back(self._versions, self.head.epoch).items():
            if output in self.asked_outputs and not may_wait and self.audits.keys() & {*upstream_names}:
                raise self._held_back(output, upstream_names)

    @property
    def notes(self) -> list[str]:
        """For people: outputs that are asked for and parked, or whose audit is good and that wait for others."""
        held_outputs = held_back(self._versions, self.head.epoch)
        parked_names = sorted(self._parked_outputs & self.asked_outputs)
        parked_notes = (f"output {output} is parked: it is published once it has caught up" for output in parked_names)
        waiting = (
            str(self._held_back(output, upstream_names))
            for output, upstream_names in held_outputs.items()
            if output in self.asked_outputs
        )
        return [*parked_notes, *waiting]

    def _held_back(self, output: str, upstream_names: Iterable[str]) -> UpstreamUnpublishedError:
        names = " and ".join(upstream_names)
        return UpstreamUnpublishedError(
            f"output {output} of {self.head.pipeline} is computed of {names}, of which readers do not see epoch "
            f"{self.head.epoch} yet: it is published with {names}"
        )

    @property
    def _versions(self) -> dict[str, OutputVersions]:
        upstream_by_output = upstream_of(self.head)
        return {
            output: OutputVersions(
                self._epoch_of_snapshot(snapshot_id),
                frozenset(self._passed_audits(output)),
                upstream_by_output.get(output, ()),
            )
            for output, snapshot_id in self.published_ids.items()
        }

    def _passed_audits(self, output: str) -> dict[int, AuditOutcome]:
        audit = self.audits.get(output)
        good = dict(self.earlier.get(output, {}))
        if audit is not None and audit.success:
            good[self.head.epoch] = audit
        return good if output in self.asked_outputs - self._parked_outputs else {}

    def _earlier_audits(self) -> dict[str, dict[int, AuditOutcome]]:
        """Good audits up to what readers see of other outputs: an output follows what it is computed of."""
        epoch_by_snapshot = {
            snapshot: self._epoch_of_snapshot(snapshot)
            for snapshot in self.published_ids.values()
            if snapshot is not None
        }
        return {
            output: {
                epoch: audit
                for snapshot, epoch in epoch_by_snapshot.items()
                if epoch > self._epoch_of_snapshot(self.published_ids[output])
                and (audit := self._stored_audit(output, snapshot)) is not None
                and audit.success
            }
            for output, upstream_names in upstream_of(self.head).items()
            if upstream_names
        }

    def _stored_audit(self, output: str, until_snapshot: str) -> AuditOutcome | None:
        return read_audit(self.catalog.store, self.catalog.pipeline, self.published_ids[output], until_snapshot, output)

    def _epoch_of_snapshot(self, snapshot: str | None) -> int:
        return NOTHING_YET if snapshot is None else self.catalog.link(snapshot).epoch

    @property
    def _parked_outputs(self) -> frozenset[str]:
        """Outputs that stand still: readers see nothing new of them, whatever their audit says."""
        return frozenset(parked_in(self.head))

    def _is_due(self, output: str) -> bool:
        return self.published_ids[output] != self.head.snapshot_id and output not in self._parked_outputs

    def _deciding_outputs(self, moves: Iterable[str]) -> list[str]:
        """The outputs that move, and those above them: what readers see of these was reckoned with."""
        upstream_by_output, deciding = upstream_of(self.head), [*moves]
        for output in deciding:
            # what is added is walked, too: the list grows under the loop
            deciding += [
                upstream_name for upstream_name in upstream_by_output.get(output, ()) if upstream_name not in deciding
            ]
        return deciding

    def _range_text(self, output: str) -> str:
        output_text = f" of output {output}" if output else ""
        begin = self.published_ids[output] or "the beginning"
        return f"({begin}, {self.head.snapshot_id}] of {self.head.pipeline}{output_text}"

    def _log_detail(self, moves: Mapping[str, str]) -> dict[str, JSON]:
        """For the log: the audits that were trusted."""
        paths = {
            output: audit.path
            for output, snapshot in moves.items()
            for audit in self._passed_audits(output).values()
            if audit.to_snapshot == snapshot
        }
        return {"audits": paths, "success": True} if self.has_names else {"audit": paths[""], "success": True}


def publish_audited(
    pipeline: str,
    root: str,
    *,
    last_announced: str | None,
    run_id: str = "publish",
    expected_snapshot: str | None = None,
    output: str | None = None,
    may_wait: bool = False,
) -> RunResult:
    """Publish of main what the stored audit of exactly (published, main] found good; nothing happens if that is
    published already. ``output``: of one alone, where outputs have names.

    ``last_announced`` is the published snapshot that the caller knows of, None: of none. ``epochs`` and ``counts`` of
    the result are over all that became visible since then. It may be by this publish, by one whose caller died before
    it could tell, or by a person's release.

    ``expected_snapshot`` refuses to publish anything else than the snapshot that the caller has in mind.
    Raises AuditMissingError, AuditFailedError, NothingToPublishError, UpstreamUnpublishedError, UnknownOutputError.
    What is good of several outputs is published before an error of the others is raised. ``may_wait``: an output whose
    audit is good and that waits for what it is computed of is a warning of the result, no error.
    """
    started_at = timestamp()
    catalog = Catalog(open_store(root), pipeline)
    head = catalog.head().refs.get(MAIN)
    if head is None:
        raise NothingToPublishError(f"pipeline {pipeline} has no snapshot under {root}; run its process DAG first")
    if expected_snapshot is not None and head != expected_snapshot:
        raise AuditMissingError(
            f"main of {pipeline} is at {head}, not at {expected_snapshot} any more: another run moved it; "
            "its own publish will follow, or run this DAG again"
        )
    planned_publish = PlannedPublish.from_head(catalog, head, output)
    if planned_publish.publish(run_id) is not None:
        renew_summary(catalog)
    planned_publish.check_publishable(may_wait=may_wait)
    if output is None and planned_publish.has_names:
        output_catalog, published_id = catalog, catalog.published_by_all(catalog.head().refs)
    else:
        output_catalog = seen_catalog(catalog, output or "")
        published_id = output_catalog.head().refs.get(PUBLISHED)
    if published_id is None:
        raise NothingToPublishError(
            f"nothing of pipeline {pipeline} is published yet: {'; '.join(planned_publish.notes)}"
        )
    unheard = list(_became_visible(output_catalog, published_id, last_announced))
    result = published_result(
        output_catalog.manifest(published_id),
        unheard,
        planned_publish.audits.get(output or ""),
        action="publish",
        run_id=run_id,
        started_at=started_at,
        outputs=output_results(catalog, planned_publish.audits) if planned_publish.has_names else None,
    )
    return replace(result, warnings=tuple(planned_publish.notes))


def published_result(
    head: Manifest,
    visible: Sequence[Manifest],
    outcome: AuditOutcome | None,
    *,
    action: RunAction,
    run_id: str,
    started_at: str,
    outputs: Mapping[str, OutputResult] | None = None,
) -> RunResult:
    """The result of ``action``, after which readers see ``head``; the epochs that became ``visible``, newest first."""
    return RunResult(
        run_id=run_id,
        pipeline=head.pipeline,
        action=action,
        status="succeeded",
        started_at=started_at,
        finished_at=timestamp(),
        epochs=tuple(reversed([manifest.epoch for manifest in visible])),
        snapshot=head.snapshot_id,
        epoch=head.epoch,
        published=head.snapshot_id,
        audit=None if outcome is None else audit_reference(outcome),
        counts=summed_counts(visible),
        watermark=render(StoredProgress.from_manifest(head).watermark),
        outputs=outputs or {},
    )


def publish_range(
    catalog: Catalog, outcome: AuditOutcome, run_id: str, unchanged_outputs: Collection[str] = ()
) -> None:
    """Move ``published`` of an output over the audited range by one catalog entry, which names the run; and of outputs
    that are where it begins, and are unchanged in it (``unchanged_outputs``). Raises AuditFailedError,
    PublishConflictError, RefusedError.
    """
    if not outcome.success:
        raise audit_error(outcome)
    output = outcome.output
    audits: dict[str, JSON] = {"audits": {output: outcome.path}} if output else {"audit": outcome.path}
    moved_outputs = (output, *unchanged_outputs)
    snapshots, expected = (
        dict.fromkeys(moved_outputs, outcome.to_snapshot),
        dict.fromkeys(moved_outputs, outcome.from_snapshot),
    )
    catalog.publish_outputs(snapshots, expected, {**audits, "success": True}, run_id)


def last_published_by(catalog: Catalog, run_id_begin: str) -> AuditOutcome | None:
    """The audit that let readers see what they see, if a run did that whose id begins so. None: somebody else was the
    last to move ``published``, or the audit is gone. Raises AuditDamagedError.
    """
    entry = catalog.last_move(PUBLISHED)
    if entry is None or entry.kind is not Kind.PUBLISH:
        return None
    if not str((entry.detail or {}).get("owner", "")).startswith(run_id_begin):  # logs of earlier versions say none
        return None
    begin, end = entry.moves[PUBLISHED]
    return None if end is None else read_audit(catalog.store, catalog.pipeline, begin, end, catalog.output)


def output_results(catalog: Catalog, audits: Mapping[str, AuditOutcome | None]) -> dict[str, OutputResult]:
    """What readers see of each output of main now, and whether it is parked. It has the audit that was made of the
    output or trusted, if there was one.
    """
    refs = catalog.head().refs
    if MAIN not in refs:
        return {}
    published_ids, manifest = published_of(refs), catalog.manifest(refs[MAIN])
    parked_chains = StoredProgress.from_manifest(manifest).parked
    return {
        output: OutputResult(
            published_ids.get(output), None if outcome is None else audit_reference(outcome), parked_chains.get(output)
        )
        for output in output_names(manifest)
        for outcome in (audits.get(output),)
    }


def _became_visible(catalog: Catalog, until_id: str, since_id: str | None) -> Iterator[Manifest]:
    """The snapshots up to ``until_id`` that are neither ``since_id`` nor before it, newest first."""
    common: Link | None = None
    if since_id is not None:
        with suppress(MissingSnapshotError, BrokenObjectError):  # it may be one of a root that was emptied since
            common = catalog.common_ancestor(since_id, until_id)
    return catalog.ancestry(until_id, until=None if common is None else common.snapshot_id)


def audit_reference(outcome: AuditOutcome) -> AuditReference:
    """The audit as a run's result names it."""
    return AuditReference(outcome.success, outcome.from_snapshot, outcome.to_snapshot, outcome.path)


STAY = "readers see a newer snapshot and stay there; a rollback to this one takes them back to it from now on"
"""What a release says that moves nothing."""


class NothingToReleaseError(FixConfigError, code="config.nothing_to_release"):
    """Readers of all outputs see the snapshot already."""


def release(catalog: Catalog, snapshot: str, message: str, output: str | None = None) -> Entry:
    """Let readers see ``snapshot`` of an ``output``, or of all that are behind it, for the reason ``message``. Where
    readers see what came after it nothing moves, and a rollback may take them there.

    Raises UpstreamUnpublishedError if it is computed of an output not published so far, UnknownOutputError,
    RefusedError.
    """
    manifest = catalog.manifest(snapshot)
    published_ids = published_of(catalog.head().refs)
    if output is not None:
        seen_by(manifest, output)
        upstream_names = upstream_of(manifest).get(output, ())
        unreleased_names = [name for name in upstream_names if not _is_seen(catalog, published_ids.get(name), snapshot)]
        if unreleased_names:
            raise UpstreamUnpublishedError(
                f"output {output} of {catalog.pipeline} is computed of {' and '.join(unreleased_names)}, of which "
                f"readers do not see {snapshot}: release that first, `headrace release "
                f"{catalog.pipeline}.{unreleased_names[0]} {snapshot}`; or all together, `headrace release "
                f"{catalog.pipeline} {snapshot}`"
            )
        return catalog.release(snapshot, message, [output])
    outputs = output_names(manifest)
    if any(outputs):
        moving_outputs = tuple(name for name in outputs if published_ids.get(name) != snapshot)
        if not moving_outputs:
            raise NothingToReleaseError(f"readers of all outputs of {catalog.pipeline} see {snapshot} already")
        outputs = (
            tuple(name for name in moving_outputs if not _is_seen(catalog, published_ids.get(name), snapshot))
            or moving_outputs
        )
    return catalog.release(snapshot, message, outputs)


def _is_seen(catalog: Catalog, published_id: str | None, snapshot: str) -> bool:
    return published_id is not None and catalog.is_ancestor(snapshot, published_id)
