"""Holds what a pipeline's catalog and landing prefix say against its limits. Starts nothing, and reads no rows.

Limits of records are about the epochs that readers have not seen, together: the range that an audit is of. A record
that a person has released does not count again where its file is read again, after a recovery for one. Ages are about
main alone: a branch is computed again, or compared, and nobody waits for it.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Final

from headrace.audit.limits import LimitFinding, Measured, age_finding, share_findings
from headrace.audit.range import UnpublishedRange
from headrace.audit.released_epochs import counts_of, released_again
from headrace.model.time import MIN_INSTANT, Instant, instant, render
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.quality.limits import Limits
from headrace.read.snapshots.progress import StoredProgress
from headrace.sources.landing import Landing
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.output_catalog import seen_catalog
from headrace_snapshots.refs import MAIN

_LOOKED_AT: Final = 100
"""Epochs that are looked through for the newest that read a file, where a store does not say when files landed."""


def check_limits(
    pipeline: Pipeline,
    catalog: Catalog,
    branch: str,
    unpublished: Mapping[str, UnpublishedRange | None],
    now: Callable[[], datetime],
) -> dict[str, tuple[LimitFinding, ...]]:
    """What a run on ``branch`` shows beside each limit, by output; of records only if something is ``unpublished``.

    ``now`` is asked for ages alone: a replay has no wall clock. Raises BrokenObjectError, MissingSnapshotError, and
    what listing the landing prefix raises.
    """
    ages = tuple(_ages(pipeline, catalog, now)) if branch == MAIN and pipeline.limits is not None else ()
    limits = {output: alone.limits for output, alone in pipeline.by_output.items()}
    return {
        output: (*_shares(limits[output], seen_catalog(catalog, output), epochs), *ages)
        for output, epochs in unpublished.items()
    }


# --- records ----------------------------------------------------------------------------------------------------------


def _shares(limits: Limits | None, catalog: Catalog, unpublished: UnpublishedRange | None) -> list[LimitFinding]:
    """What became of records, beside each limit."""
    if limits is None or unpublished is None:
        return []
    counts = counts_of(catalog, unpublished)
    findings = share_findings(limits, counts)
    if all(finding.severity is None for finding in findings):
        return findings
    released = [*released_again(catalog, unpublished)]
    if not released:
        return findings
    for epochs in released:
        counts.subtract(epochs.counts)
    left = Counter({name: max(0, count) for name, count in counts.items()})
    return share_findings(limits, left, [epochs.entry for epochs in released])


# --- ages -------------------------------------------------------------------------------------------------------------


def _ages(pipeline: Pipeline, catalog: Catalog, clock: Callable[[], datetime]) -> Iterator[LimitFinding]:
    assert pipeline.limits is not None
    now = instant(clock())
    head = catalog.head().refs.get(MAIN)
    manifest = None if head is None else catalog.manifest(head)
    if (limit := pipeline.limits.watermark_age) is not None:
        yield age_finding("watermark_age", limit, _watermark(manifest), now)
    if (limit := pipeline.limits.newest_file) is not None:
        yield age_finding("newest_file", limit, _newest_file(pipeline, catalog, manifest), now)


def _watermark(manifest: Manifest | None) -> Measured:
    if manifest is None:
        return Measured(MIN_INSTANT, "of any input")
    progress = StoredProgress.of(manifest)
    held, at = progress.held_back_by, render(progress.watermark)
    if held is None:
        return Measured(progress.watermark, f"which is at {at}")
    # without its split, whose name comes from records: what is found goes to logs, alerts and pages for all
    return Measured(progress.watermark, f"which is at {at}, held back by input {held.input}")


def _newest_file(pipeline: Pipeline, catalog: Catalog, manifest: Manifest | None) -> Measured:
    """When the newest file landed, of the input where that is longest ago."""
    marks = {} if manifest is None else StoredProgress.of(manifest).marks
    landed = Landing(pipeline, catalog.store).newest_landed({name: mark.path for name, mark in marks.items()})
    read = None if None not in landed.values() else _newest_read(catalog, manifest)
    times = {name: at if at is not None else read for name, at in landed.items()}
    name = min(times, key=lambda input_name: times[input_name] or MIN_INSTANT)
    at = times[name]
    if at is None:
        return Measured(MIN_INSTANT, f"of input {name}")
    return Measured(at, f"of input {name}, landed at {render(at)}")


def _newest_read(catalog: Catalog, manifest: Manifest | None) -> Instant | None:
    """When an epoch last read a file, or longer ago than that; None if none has."""
    if manifest is None:
        return None
    oldest = manifest
    for oldest in islice(catalog.ancestry(manifest.snapshot_id), _LOOKED_AT):
        if oldest.counts.get("input_files", 0):
            break
    return StoredProgress.of(oldest).processing_time
