"""Publish: move what readers see to what was audited, or what a person has released.

Publish: move what readers see to what was audited. No Spark: the stored audit of exactly the range decides,
nothing else.

Release: a person lets readers see what an audit did not pass.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from headrace.audit.store import AuditOutcome, audit_error, read_audit
from headrace.errors import FixConfigError
from headrace.model.time import render
from headrace.observe.history import totals
from headrace.read.snapshots.progress import StoredProgress
from headrace.runs.publishing.planned_publish import (
    AuditMissingError,
    NothingToPublishError,
    PlannedPublish,
    UpstreamUnpublishedError,
)
from headrace.runs.reporting.results import Action, AuditReference, OutputResult, RunResult
from headrace.runs.reporting.results import now as timestamp
from headrace.runs.reporting.summary_renewal import renew_summary
from headrace_snapshots.catalog import Catalog, Link
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format.codec import JSON, BrokenObjectError
from headrace_snapshots.format.entry import Entry
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.output_view import output_names, seen_by, upstream_of
from headrace_snapshots.output_catalog import seen_catalog
from headrace_snapshots.protocol import Kind
from headrace_snapshots.refs import MAIN, PUBLISHED, published_of
from headrace_snapshots.store import open_store


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
    the result are over all that became visible since then, by this publish, by one whose caller died before it could
    tell, or by a person's release.

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
    planned = PlannedPublish.of(catalog, head, output)
    if planned.publish(run_id) is not None:
        renew_summary(catalog)
    planned.check(may_wait=may_wait)
    if output is None and planned.has_names:
        seen, shown = catalog, catalog.published_by_all(catalog.head().refs)
    else:
        seen = seen_catalog(catalog, output or "")
        shown = seen.head().refs.get(PUBLISHED)
    if shown is None:
        raise NothingToPublishError(f"nothing of pipeline {pipeline} is published yet: {'; '.join(planned.notes)}")
    unheard = list(_became_visible(seen, shown, last_announced))
    result = published_result(
        seen.manifest(shown),
        unheard,
        planned.audits.get(output or ""),
        action="publish",
        run_id=run_id,
        started_at=started_at,
        outputs=output_results(catalog, planned.audits) if planned.has_names else None,
    )
    return replace(result, warnings=tuple(planned.notes))


def published_result(
    head: Manifest,
    visible: Sequence[Manifest],
    outcome: AuditOutcome | None,
    *,
    action: Action,
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
        audit=None if outcome is None else reference(outcome),
        counts=totals(visible),
        watermark=render(StoredProgress.of(head).watermark),
        outputs=outputs or {},
    )


def publish_range(catalog: Catalog, outcome: AuditOutcome, run_id: str, unchanged: Collection[str] = ()) -> None:
    """Move ``published`` of an output over the audited range by one catalog entry, which names the run; and of outputs
    that are where it begins, and are ``unchanged`` in it. Raises AuditFailedError, PublishConflictError, RefusedError.
    """
    if not outcome.success:
        raise audit_error(outcome)
    output = outcome.output
    audits: dict[str, JSON] = {"audits": {output: outcome.path}} if output else {"audit": outcome.path}
    moved = (output, *unchanged)
    snapshots, expected = dict.fromkeys(moved, outcome.to_snapshot), dict.fromkeys(moved, outcome.from_snapshot)
    catalog.publish_outputs(snapshots, expected, {**audits, "success": True}, run_id)


def last_published_by(catalog: Catalog, run_id_begin: str) -> AuditOutcome | None:
    """The audit that let readers see what they see, if a run did that whose id begins so. None: somebody else was the
    last to move ``published``, or the audit is gone. Raises AuditDamagedError.
    """
    entry = catalog.last_move(PUBLISHED)
    if entry is None or entry.kind is not Kind.PUBLISH or not _owner(entry).startswith(run_id_begin):
        return None
    after, until = entry.moves[PUBLISHED]
    return None if until is None else read_audit(catalog.store, catalog.pipeline, after, until, catalog.output)


def _owner(entry: Entry) -> str:
    """The run that appended it; empty in logs of earlier versions."""
    return str((entry.detail or {}).get("owner", ""))


def output_results(catalog: Catalog, audits: Mapping[str, AuditOutcome | None]) -> dict[str, OutputResult]:
    """What readers see of each output of main now, the audit that was made of it or trusted, if there was one, and
    whether it is parked.
    """
    refs = catalog.head().refs
    if MAIN not in refs:
        return {}
    seen, manifest = published_of(refs), catalog.manifest(refs[MAIN])
    parked = StoredProgress.of(manifest).parked
    return {
        output: OutputResult(seen.get(output), None if outcome is None else reference(outcome), parked.get(output))
        for output in output_names(manifest)
        for outcome in (audits.get(output),)
    }


def _became_visible(catalog: Catalog, until: str, since: str | None) -> Iterator[Manifest]:
    """The snapshots up to ``until`` that are neither ``since`` nor before it, newest first."""
    common: Link | None = None
    if since is not None:
        with suppress(MissingSnapshotError, BrokenObjectError):  # it may be one of a root that was emptied since
            common = catalog.common_ancestor(since, until)
    return catalog.ancestry(until, until=None if common is None else common.snapshot_id)


def reference(outcome: AuditOutcome) -> AuditReference:
    """The audit as a run's result names it."""
    return AuditReference(outcome.success, outcome.from_snapshot, outcome.to_snapshot, outcome.path)


STAY = "readers see a newer snapshot and stay there; a rollback to this one takes them back to it from now on"
"""What a release says that moves nothing."""


class NothingToReleaseError(FixConfigError, code="config.nothing_to_release"):
    """Readers of all outputs see the snapshot already."""


def release(catalog: Catalog, snapshot: str, message: str, output: str | None = None) -> Entry:
    """Let readers see ``snapshot`` of an ``output``, or of all that are behind it, for the reason ``message``. Where
    readers see what came after it nothing moves, and a rollback may take them there.

    Raises UpstreamUnpublishedError if the output is computed of one that readers do not see so far, UnknownOutputError,
    RefusedError.
    """
    manifest = catalog.manifest(snapshot)
    seen = published_of(catalog.head().refs)
    if output is not None:
        seen_by(manifest, output)
        above = upstream_of(manifest).get(output, ())
        behind = [name for name in above if not _is_seen(catalog, seen.get(name), snapshot)]
        if behind:
            raise UpstreamUnpublishedError(
                f"output {output} of {catalog.pipeline} is computed of {' and '.join(behind)}, of which readers do not "
                f"see {snapshot}: release that first, `headrace release {catalog.pipeline}.{behind[0]} {snapshot}`; or "
                f"all together, `headrace release {catalog.pipeline} {snapshot}`"
            )
        return catalog.release(snapshot, message, [output])
    outputs = output_names(manifest)
    if any(outputs):
        there = tuple(name for name in outputs if seen.get(name) != snapshot)
        if not there:
            raise NothingToReleaseError(f"readers of all outputs of {catalog.pipeline} see {snapshot} already")
        outputs = tuple(name for name in there if not _is_seen(catalog, seen.get(name), snapshot)) or there
    return catalog.release(snapshot, message, outputs)


def _is_seen(catalog: Catalog, shown: str | None, snapshot: str) -> bool:
    return shown is not None and catalog.is_ancestor(snapshot, shown)
