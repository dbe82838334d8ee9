"""What the catalog and the stored audits say about what readers do not see yet."""

from dataclasses import dataclass, field
from datetime import UTC, datetime

from headrace.audit.limit_checks import check_limits
from headrace.audit.limits import LimitFinding
from headrace.audit.range import UnpublishedRange, unpublished_range
from headrace.audit.store import AuditOutcome, audit_error, failing, read_audit, stale_error, with_limits
from headrace.pipeline.pipeline import Pipeline
from headrace.runs.publishing.publish import AuditMissingError
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store import open_store


@dataclass(frozen=True)
class BranchAudit:
    """What is to be audited of a branch, as the catalog has it now: ``unpublished`` is None when that is nothing.

    ``limits`` is what was found beside the pipeline's limits just now.
    """

    pipeline: Pipeline
    unpublished: UnpublishedRange | None
    limits: tuple[LimitFinding, ...]
    catalog: Catalog = field(repr=False)

    @classmethod
    def of(cls, pipeline: Pipeline, root: str, branch: str) -> "BranchAudit":
        """Asks the catalog, and the landing prefix if a limit is about it."""
        catalog = Catalog(open_store(root), pipeline.name)
        unpublished = unpublished_range(catalog, branch)
        limits = check_limits(pipeline, catalog, branch, unpublished, lambda: datetime.now(UTC))
        return cls(pipeline, unpublished, limits, catalog)

    def stored(self) -> AuditOutcome | None:
        """The stored audit of exactly that range, if it held the output against the expectations of today, and
        against history by the checks of today; with the limits as they are found now.
        """
        assert self.unpublished is not None
        store, name = self.catalog.store, self.pipeline.name
        outcome = read_audit(store, name, self.unpublished.after, self.unpublished.until)
        if outcome is None or not outcome.covers(self.pipeline.expected, self.pipeline.usual):
            return None
        return with_limits(store, outcome, self.limits)

    def check(self, outcome: AuditOutcome | None) -> None:
        """Raise AuditFailedError with the failed expectations, LimitExceededError with the limits that are exceeded,
        AuditMissingError when there is no audit of the range; StaleDataError if nothing is to be audited and a limit
        fails for that.
        """
        if self.unpublished is None:
            if stale := failing(self.limits):
                raise stale_error(self.pipeline.name, stale)
        elif outcome is None:
            raise AuditMissingError(
                f"there is no audit of {self.unpublished} of {self.pipeline.name}, although one has just been made"
            )
        elif not outcome.success:
            raise audit_error(outcome)
