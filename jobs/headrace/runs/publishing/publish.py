"""Publish: move what readers see to what was audited. No Spark: the stored audit of exactly the range decides,
nothing else.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress

from headrace.audit.store import AuditOutcome, audit_error, read_audit
from headrace.errors import FixDataError, RetryError
from headrace.model.time import render
from headrace.observe.history import totals
from headrace.read.snapshots.progress import StoredProgress
from headrace.runs.reporting.results import Action, AuditReference, RunResult
from headrace.runs.reporting.results import now as timestamp
from headrace.runs.reporting.summary_renewal import renew_summary
from headrace_snapshots.catalog import Catalog, Link
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.refs import MAIN, PUBLISHED
from headrace_snapshots.store import open_store


class AuditMissingError(RetryError):
    """The range that would be published has no stored audit."""

    code = "retry.audit_missing"


class NothingToPublishError(FixDataError):
    """There is no snapshot yet."""

    code = "data.nothing_to_publish"


def stored_audit(pipeline: str, root: str) -> AuditOutcome | None:
    """The stored audit of exactly (published, main] as they are now; None when there is none, or nothing to audit."""
    store = open_store(root)
    refs = Catalog(store, pipeline).head().refs
    head, published = refs.get(MAIN), refs.get(PUBLISHED)
    if head is None or head == published:
        return None
    return read_audit(store, pipeline, published, head)


def publish_audited(
    pipeline: str,
    root: str,
    *,
    last_announced: str | None,
    run_id: str = "publish",
    expected_snapshot: str | None = None,
) -> RunResult:
    """Publish main if the stored audit of (published, main] succeeded; nothing happens if that is published already.

    ``last_announced`` is the published snapshot that the caller knows of, None: of none. ``epochs`` and ``counts`` of
    the result are over all that became visible since then, by this publish, by one whose caller died before it could
    tell, or by a person's release.

    ``expected_snapshot`` refuses to publish anything else than the snapshot that the caller has in mind.
    Raises AuditMissingError, AuditFailedError, NothingToPublishError.
    """
    started_at = timestamp()
    store = open_store(root)
    catalog = Catalog(store, pipeline)
    refs = catalog.head().refs
    head, published = refs.get(MAIN), refs.get(PUBLISHED)
    if head is None:
        raise NothingToPublishError(f"pipeline {pipeline} has no snapshot under {root}; run its process DAG first")
    if expected_snapshot is not None and head != expected_snapshot:
        raise AuditMissingError(
            f"main of {pipeline} is at {head}, not at {expected_snapshot} any more: another run moved it; "
            "its own publish will follow, or run this DAG again"
        )
    outcome = None
    if head != published:
        outcome = read_audit(store, pipeline, published, head)
        if outcome is None:
            raise AuditMissingError(
                f"there is no audit of ({published or 'the beginning'}, {head}] of {pipeline}; "
                "run the process DAG again"
            )
        publish_range(catalog, outcome)
        renew_summary(catalog)
    manifest = catalog.manifest(head)
    unheard = list(_became_visible(catalog, head, last_announced))
    return published_result(manifest, unheard, outcome, action="publish", run_id=run_id, started_at=started_at)


def published_result(
    head: Manifest,
    visible: Sequence[Manifest],
    outcome: AuditOutcome | None,
    *,
    action: Action,
    run_id: str,
    started_at: str,
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
    )


def publish_range(catalog: Catalog, outcome: AuditOutcome) -> None:
    """Move ``published`` over the audited range by one catalog entry. Raises AuditFailedError."""
    if not outcome.success:
        raise audit_error(outcome)
    catalog.publish(
        outcome.to_snapshot, expected_published=outcome.from_snapshot, detail={"audit": outcome.path, "success": True}
    )


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
