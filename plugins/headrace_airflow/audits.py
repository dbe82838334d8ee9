"""What the catalog and the stored audits say about what readers do not see yet, output by output."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from headrace.audit.limit_checks import check_limits
from headrace.audit.limits import LimitFinding
from headrace.audit.range import UnpublishedRange, going_on, unpublished_ranges
from headrace.audit.store import AuditOutcome, audit_error, failing, read_audit, stale_error, with_limits
from headrace.pipeline.pipeline import Pipeline
from headrace.runs.publishing.planned_publish import AuditMissingError
from headrace.runs.publishing.publish import last_published_by
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.output_catalog import seen_catalog
from headrace_snapshots.refs import MAIN
from headrace_snapshots.store import open_store


@dataclass(frozen=True)
class BranchAudit:
    """What is to be audited of one output of a branch, as the catalog has it now: ``unpublished`` is None when that is
    nothing. ``pipeline`` and ``catalog`` are as that output has them.

    ``published``: the audit by which a run has let readers see all of it. ``limits`` is what was found beside its
    limits: then, or if there is none, just now. ``stands_still``: the branch has nothing new of the output, since it is
    parked there, or has not begun.
    """

    pipeline: Pipeline
    unpublished: UnpublishedRange | None
    published: AuditOutcome | None
    limits: tuple[LimitFinding, ...]
    stands_still: bool
    catalog: Catalog = field(repr=False)

    @classmethod
    def of(
        cls, pipeline: Pipeline, root: str, branch: str, run_id_begin: str, output: str | None = None
    ) -> "list[BranchAudit]":
        """Asks the catalog about one ``output``, or all, and the landing prefix if a limit is about it.
        ``run_id_begin``: with what the ids of runs begin whose audit counts as ``published``.
        """
        catalog = Catalog(open_store(root), pipeline.name)
        names = [*pipeline.by_output] if output is None else [output]
        catalogs = {name: seen_catalog(catalog, name) for name in names}
        moving = going_on(catalog, branch, names)
        unpublished = dict.fromkeys(names) | unpublished_ranges(catalog, branch, moving)
        published = {
            name: last_published_by(own, run_id_begin) if unpublished[name] is None and branch == MAIN else None
            for name, own in catalogs.items()
        }
        unknown = {name: epochs for name, epochs in unpublished.items() if published[name] is None}
        limits = check_limits(pipeline, catalog, branch, unknown, lambda: datetime.now(UTC)) if unknown else {}
        return [
            cls(
                pipeline.by_output[name],
                unpublished[name],
                made,
                limits[name] if made is None else made.limits,
                name not in moving,
                catalogs[name],
            )
            for name, made in published.items()
        ]

    def stored(self) -> AuditOutcome | None:
        """The stored audit of exactly that range, if it held the output against the expectations of today, and
        against history by the checks of today; with the limits as they are found now.
        """
        assert self.unpublished is not None
        store, name = self.catalog.store, self.pipeline.name
        outcome = read_audit(store, name, self.unpublished.after, self.unpublished.until, self.catalog.output)
        if outcome is None or not outcome.covers(self.pipeline.expectations, self.pipeline.usual):
            return None
        return with_limits(store, outcome, self.limits)

    @property
    def output(self) -> str:
        """The output, "" if it has no name."""
        return self.catalog.output


WAYS_OUT: Final = (
    "Land a correction and trigger a new run; or choose on the page: Release… lets readers see these rows, Backfill… "
    "computes them again, History has Roll back"
)


def check_audits(audits: Sequence[tuple[BranchAudit, AuditOutcome | None]]) -> None:
    """Raise AuditFailedError with the failed expectations, LimitExceededError with the limits that are exceeded,
    AuditMissingError when there is no audit of a range; StaleDataError if nothing is to be audited and a limit fails
    for that.
    """
    if failed := [outcome for _, outcome in audits if outcome is not None and not outcome.success]:
        raise audit_error(*failed, ways_out=WAYS_OUT)
    for audit, outcome in audits:
        if audit.unpublished is not None and outcome is None:
            raise AuditMissingError(
                f"there is no audit of {audit.unpublished} of {audit.pipeline.name}, although one has just been made"
            )
        if audit.unpublished is None and (stale := failing(audit.limits)):
            raise stale_error(audit.pipeline.name, stale)
