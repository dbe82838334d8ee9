"""Epochs that a person has released and that were computed again: what they counted was decided already.

A release holds for an audited range where the range has read all files of the released one, after a recovery for one.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from headrace.audit.range import UnpublishedRange
from headrace.audit.releases import releases_that_hold
from headrace.model.time import is_finite
from headrace.read.snapshots.progress import StoredProgress
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.files import InputFile
from headrace_snapshots.format.output_view import UnknownOutputError
from headrace_snapshots.format.table_names import INPUTS


@dataclass(frozen=True)
class ReleasedEpochs:
    """What log entry ``entry`` released: the counts of its epochs together, and how far the watermark went meanwhile,
    in microseconds (None: nobody can say).
    """

    entry: int
    counts: Counter[str]
    passed: int | None


def released_again(catalog: Catalog, unpublished: UnpublishedRange) -> Iterator[ReleasedEpochs]:
    """The releases that hold and whose files the ``unpublished`` epochs have all read again."""
    taken: set[tuple[str, str]] = set()
    audited: frozenset[tuple[str, str]] | None = None
    for release in releases_that_hold(catalog):
        released = UnpublishedRange(release.after, release.snapshot)
        # it has expired, or is lost, or had other outputs: nobody knows its records
        with suppress(MissingSnapshotError, BrokenObjectError, UnknownOutputError):
            counts, files = counts_of(catalog, released), _files(catalog, released)
            audited = _files(catalog, unpublished) if audited is None else audited
            if files and files <= audited - taken:
                taken |= files
                yield ReleasedEpochs(release.entry, counts, passed(catalog, released))


def counts_of(catalog: Catalog, epochs: UnpublishedRange) -> Counter[str]:
    """The counts of ``epochs`` together."""
    counts: Counter[str] = Counter()
    for manifest in catalog.whole_ancestry(epochs.until, until=epochs.after):
        counts.update(manifest.counts)
    return counts


def passed(catalog: Catalog, epochs: UnpublishedRange) -> int | None:
    """How far the watermark went within ``epochs``, in microseconds; None if it stood, or began or ended with them."""
    if epochs.after is None:
        return None
    begin, end = (StoredProgress.of(catalog.manifest(at)).watermark for at in (epochs.after, epochs.until))
    return end - begin if is_finite(begin) and is_finite(end) and end > begin else None


def _files(catalog: Catalog, epochs: UnpublishedRange) -> frozenset[tuple[str, str]]:
    """The files that ``epochs`` read, by input and path."""
    since = -1 if epochs.after is None else catalog.manifest(epochs.after).epoch
    records = catalog.files(catalog.manifest(epochs.until).logs[INPUTS], since_epoch=since)
    return frozenset(
        (file.input, file.path) for record in records for file in record.files if isinstance(file, InputFile)
    )
