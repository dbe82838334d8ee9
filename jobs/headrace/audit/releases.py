"""Releases that hold: rows, and epochs that were computed again, of which a person has decided.

Releases that hold: which rows a person has let readers see although an audit failed on them.

A release is an entry of the log that moved ``published`` over a range. It is a decision about rows: a row of another
range with the same key, window and values was decided too, so a recovery, a backfill or a patch that computes it again
need not ask again. A decision ends when a person rolls ``published`` back to before it. A rollback that is followed by
a replay of what it gave up (a recovery, a fallback to a whole snapshot) does not end it.

The rows of a release are read from its snapshot, so it holds for as long as that snapshot is kept, and while its entry
is among the last ones of the log, which are looked through only when an audit fails.

A release holds for an audited range where the range has read all files of the released one, after a recovery for one.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from headrace.audit.range import AuditedFiles, UnpublishedRange, audited_files
from headrace.model.time import is_finite
from headrace.pipeline.expectations import ExpectationView
from headrace.read.snapshots.progress import StoredProgress
from headrace.read.views.columns import ViewColumns
from headrace.read.views.row_files import check_files
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.entry import Entry
from headrace_snapshots.format.files import InputFile
from headrace_snapshots.format.output_view import UnknownOutputError
from headrace_snapshots.format.table_names import INPUTS
from headrace_snapshots.protocol import Kind
from headrace_snapshots.refs import PUBLISHED
from headrace_snapshots.seen_snapshots import newest_entries

MOST_ENTRIES: Final = 2_000
"""So many of the newest entries of the log are looked through for releases."""


@dataclass(frozen=True)
class AuditRelease:
    """A person's decision, by log entry ``entry``: readers may see what ``snapshot`` has and ``after`` has not."""

    entry: int
    message: str
    after: str | None
    snapshot: str

    def __str__(self) -> str:
        return f"entry {self.entry} ({self.message})"


@dataclass(frozen=True)
class ReleasedPanes:
    """The panes of a released range: their files, and the columns of the definition that wrote them."""

    release: AuditRelease
    files: AuditedFiles
    columns: ViewColumns


def releases_that_hold(catalog: Catalog) -> list[AuditRelease]:
    """The releases among the last ``MOST_ENTRIES`` of the log that nobody has rolled back below, newest first."""
    held: list[AuditRelease] = []
    back_to: list[str | None] = []
    for entry in newest_entries(catalog, catalog.known_head().entry - MOST_ENTRIES + 1):
        before, after = entry.moves.get(PUBLISHED, (None, None))
        if ends_releases(entry):
            back_to.append(after)
        elif entry.kind is Kind.RELEASE and after is not None and _is_below_all(catalog, after, back_to):
            held.append(AuditRelease(entry.number, entry.message, before, after))
    return held


def ended_by(catalog: Catalog, published: str | None) -> Iterator[str]:
    """For people: the releases that end when a person takes readers back to ``published`` (None: nothing)."""
    for release in releases_that_hold(catalog):
        if not _is_below_all(catalog, release.snapshot, [published]):
            yield (
                f"the release by log {release} ends: if its rows are computed again, an audit decides on them, or "
                "another `headrace release`"
            )


def ends_releases(entry: Entry) -> bool:
    """Whether ``entry`` took back what readers saw, for good: a rollback that no replay follows."""
    return entry.kind is Kind.ROLLBACK and PUBLISHED in entry.moves and not (entry.detail or {}).get("replayed")


def _is_below_all(catalog: Catalog, snapshot: str, heads: Iterable[str | None]) -> bool:
    try:
        return all(head is not None and catalog.is_ancestor(snapshot, head) for head in heads)
    except (MissingSnapshotError, BrokenObjectError):
        return False


def released_panes(catalog: Catalog, columns: ViewColumns) -> Iterator[ReleasedPanes]:
    """The panes of each release that holds, if it can still be read and its panes have ``columns``."""
    for release in releases_that_hold(catalog):
        try:
            manifest = catalog.manifest(release.snapshot)
            files = audited_files(catalog, release.after, manifest)
            check_files(catalog.store, files.files[ExpectationView.PANES])
        except (MissingSnapshotError, BrokenObjectError, UnknownOutputError):  # nobody knows its rows any more
            continue
        own = ViewColumns.from_json(manifest.schema)
        if (own.keys, own.values) == (columns.keys, columns.values):
            yield ReleasedPanes(release, files, own)


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
