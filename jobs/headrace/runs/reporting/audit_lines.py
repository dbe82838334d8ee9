"""What summaries say of audits, and of each output of a pipeline that has several."""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

import msgspec

from headrace.audit.range import unpublished_range
from headrace.audit.store import AuditOutcome, read_audit
from headrace.read.snapshots.output_positions import output_positions
from headrace.runs.reporting.quoted_values import parked_without_values
from headrace.sources.chain_clocks import Parked
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.entry import Entry
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.output_catalog import seen_catalog
from headrace_snapshots.protocol import Head
from headrace_snapshots.refs import MAIN, PUBLISHED, is_published

_LOOKED_AT: Final = 100
"""Entries of the log that are looked through for the newest that moved ``published``."""


class AuditLine(msgspec.Struct, frozen=True):
    """The newest audit: of what ``published`` does not show yet, else of what it moved over last. ``failed`` are
    expectations and checks against history, ``exceeded`` the limits that hold the range back.
    """

    success: bool
    finished_at: str
    after: str | None
    until: str
    expectations: int
    failed: tuple[str, ...]
    exceeded: tuple[str, ...] = ()


class OutputLine(msgspec.Struct, frozen=True):
    """One output of several: what readers see of it, how many epochs of main they do not see, its newest audit, and why
    it stands still (None: it goes on).
    """

    name: str
    published: str | None
    published_epoch: int | None
    unpublished: int
    audit: AuditLine | None
    parked: Parked | None = None

    @property
    def without_values(self) -> "OutputLine":
        """The same without a message that may quote values."""
        return msgspec.structs.replace(self, parked=parked_without_values(self.parked))


def output_lines(catalog: Catalog, head: Head, main: Manifest, before: Iterable[OutputLine]) -> tuple[OutputLine, ...]:
    """A line for each output of ``main`` that has a name. ``before``: those of an older summary."""
    lines_before = {line.name: line for line in before}
    lines = []
    for at in output_positions(catalog, head.refs, main):
        line_before = lines_before.get(at.name)
        audit = newest_audit(seen_catalog(catalog, at.name), None if line_before is None else line_before.audit)
        lines.append(OutputLine(at.name, at.published, at.published_epoch, at.unpublished, audit, at.parked))
    return tuple(lines)


def worst(outputs: Sequence[OutputLine]) -> AuditLine | None:
    """The audits of all outputs as one: what failed, and of which output."""
    audits = [(line.name, line.audit) for line in outputs if line.audit is not None]
    if not audits:
        return None
    _, gravest = max(audits, key=lambda named: (not named[1].success, bool(named[1].failed), named[1].finished_at))
    failing = [(name, audit) for name, audit in audits if not audit.success]
    return msgspec.structs.replace(
        gravest,
        expectations=sum(audit.expectations for _, audit in audits),
        failed=tuple(f"{name}: {failed}" for name, audit in failing for failed in audit.failed),
        exceeded=tuple(f"{name}: {exceeded}" for name, audit in failing for exceeded in audit.exceeded),
    )


def newest_audit(catalog: Catalog, before: AuditLine | None) -> AuditLine | None:
    """The audit of what is not published yet; if nobody has made one, the newest that is known, such as ``before``."""
    unpublished = unpublished_range(catalog, MAIN)
    outcome = (
        None
        if unpublished is None
        else read_audit(catalog.store, catalog.pipeline, unpublished.after, unpublished.until, catalog.output)
    )
    if outcome is not None:
        return _line_of(outcome)
    if before is not None and before.until == catalog.head().refs.get(PUBLISHED):
        return before
    entry = last_publish(catalog)
    after, until = (None, None) if entry is None else entry.moves.get(PUBLISHED, (None, None))
    if until is not None:
        outcome = read_audit(catalog.store, catalog.pipeline, after, until, catalog.output)
    return None if outcome is None else _line_of(outcome)


def last_publish(catalog: Catalog) -> Entry | None:
    """The newest entry that moved what readers see, if that is not long ago."""
    newest = islice(catalog.entries(), _LOOKED_AT)
    return next((entry for entry in newest if any(map(is_published, entry.moves))), None)


def _line_of(outcome: AuditOutcome) -> AuditLine:
    return AuditLine(
        success=outcome.success,
        finished_at=outcome.finished_at,
        after=outcome.from_snapshot,
        until=outcome.to_snapshot,
        expectations=len(outcome.findings) + (0 if outcome.usual is None else len(outcome.usual.findings)),
        failed=(
            *(finding.expectation.describe() for finding in outcome.failed),
            *(finding.describe() for finding in outcome.unusual),
        ),
        exceeded=tuple(finding.describe() for finding in outcome.exceeded),
    )
