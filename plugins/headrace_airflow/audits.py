"""What the catalog and the stored audits say about what readers do not see yet."""

from dataclasses import dataclass

from headrace.audit.store import AuditFailedError, AuditOutcome, failure_message, read_audit
from headrace.pipeline.graph import Pipeline
from headrace.runs.options import MAIN
from headrace.runs.publish import PUBLISHED, AuditMissingError
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store import open_store


@dataclass(frozen=True)
class Unpublished:
    """The snapshots after ``after`` (None: from the beginning) up to and with ``until``."""

    after: str | None
    until: str

    def __str__(self) -> str:
        return f"({self.after or 'the beginning'}, {self.until}]"


def unpublished_range(pipeline: str, root: str, branch: str) -> Unpublished | None:
    """(published, main], or all of any other branch, as the catalog has it now; None when that is nothing."""
    refs = Catalog(open_store(root), pipeline).head().refs
    head, published = refs.get(branch), refs.get(PUBLISHED) if branch == MAIN else None
    return None if head is None or head == published else Unpublished(published, head)


def stored_audit(pipeline: Pipeline, root: str, unpublished: Unpublished) -> AuditOutcome | None:
    """The stored audit of exactly that range, if it held the output against the expectations of today."""
    outcome = read_audit(open_store(root), pipeline.name, unpublished.after, unpublished.until)
    return outcome if outcome is not None and outcome.covers(pipeline.expectations) else None


def check_audit(pipeline: str, unpublished: Unpublished, outcome: AuditOutcome | None) -> None:
    """Raise AuditFailedError with the failed expectations, AuditMissingError when there is no audit of the range."""
    if outcome is None:
        raise AuditMissingError(f"there is no audit of {unpublished} of {pipeline}, although one has just been made")
    if not outcome.success:
        raise AuditFailedError(failure_message(outcome))
