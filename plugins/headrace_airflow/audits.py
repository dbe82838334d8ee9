"""What the catalog and the stored audits say about what readers do not see yet."""

from headrace.audit.range import UnpublishedRange, unpublished_range
from headrace.audit.store import AuditFailedError, AuditOutcome, failure_message, read_audit
from headrace.pipeline.pipeline import Pipeline
from headrace.runs.publishing.publish import AuditMissingError
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store import open_store


def range_of(pipeline: str, root: str, branch: str) -> UnpublishedRange | None:
    """What the audit of ``branch`` is about, as the catalog has it now; None when that is nothing."""
    return unpublished_range(Catalog(open_store(root), pipeline), branch)


def stored_audit(pipeline: Pipeline, root: str, unpublished: UnpublishedRange) -> AuditOutcome | None:
    """The stored audit of exactly that range, if it held the output against the expectations of today."""
    outcome = read_audit(open_store(root), pipeline.name, unpublished.after, unpublished.until)
    return outcome if outcome is not None and outcome.covers(pipeline.expectations) else None


def check_audit(pipeline: str, unpublished: UnpublishedRange, outcome: AuditOutcome | None) -> None:
    """Raise AuditFailedError with the failed expectations, AuditMissingError when there is no audit of the range."""
    if outcome is None:
        raise AuditMissingError(f"there is no audit of {unpublished} of {pipeline}, although one has just been made")
    if not outcome.success:
        raise AuditFailedError(failure_message(outcome))
