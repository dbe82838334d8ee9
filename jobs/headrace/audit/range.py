"""What an audit is about: the snapshots that readers have not seen, their rows, and those that a person has released.

A ``Frame`` has rows that an audit looks at: one of Spark's, or a table in this process. ``shown_value`` gives values of
rows as they are kept with a finding, and shown to people.

An ``UnpublishedRange`` has the snapshots that readers have not seen, ``AuditedFiles`` what their epochs wrote.

A release is an entry of the log that moved ``published`` over a range although an audit failed on its rows. It is a
decision about rows: a row of another range with the same key, window and values was decided too. So a recovery, a
backfill or a patch that computes it again need not ask again. A decision ends when a person rolls ``published`` back to
before it. A rollback does not end it if a replay follows of what it gave up (a recovery, a fallback to a whole
snapshot).

The rows of a release are read from its snapshot, so it holds for as long as that snapshot is kept. It also holds only
while its entry is among the last ones of the log, which are looked through only when an audit fails.

``ReleasedEpochs`` were released and then computed again: what they counted was decided already. A release holds for an
audited range that has read all files of the released one, after a recovery for one.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from headrace.model.time import is_finite, render, to_instant
from headrace.pipeline.quality import ExpectationView
from headrace.read.snapshots.progress import StoredProgress
from headrace.read.views.columns import ViewColumns
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.catalog_reader import newest_entries
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.files import DataFile, InputFile
from headrace_snapshots.format.manifest import INPUTS, UNNAMED, Manifest
from headrace_snapshots.format.output_view import UnknownOutputError, news_since, output_names, parked_in
from headrace_snapshots.log import Entry
from headrace_snapshots.names import MAIN, PUBLISHED, published_ref
from headrace_snapshots.output_catalog import seen_catalog
from headrace_snapshots.protocol.moves import Kind

if TYPE_CHECKING:
    from headrace.kernel.columns import Names


class Frame(Protocol):
    """Rows that are scanned several times."""

    @property
    def columns(self) -> Sequence[str]: ...

    def count(self) -> int:
        """How many rows there are."""

    def persist(self) -> Any:
        """Hold them: they are scanned again."""

    def unpersist(self) -> Any:
        """Let them go."""


FAILING_ROWS: Final = 5
"""The number of rows to blame that are kept."""

_LONGEST_VALUE: Final = 200

ShownRow = Mapping[str, str | int | float | bool | None]
"""A row for people: values by column, times as ISO 8601 in UTC."""


def shown_value(value: Any) -> str | int | float | bool | None:
    """One of Python's values as it is kept and shown: times in UTC, long text cut."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, datetime):
        return render(to_instant(value.replace(tzinfo=UTC) if value.tzinfo is None else value))
    text = str(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


class UnpublishedRange(msgspec.Struct, frozen=True):
    """What a branch has and readers have not: the snapshots after ``after`` (None: the beginning) up to ``until``."""

    after: str | None
    until: str

    def __str__(self) -> str:
        return f"({self.after or 'the beginning'}, {self.until}]"


def unpublished_range(catalog: Catalog, branch: str) -> UnpublishedRange | None:
    """What an audit of ``branch`` is about, as the catalog has it now; None when that is nothing.

    On main that is all beyond ``published``. On another branch it is all beyond what the branch and ``published`` have
    in common, which was audited when it was published.
    """
    return _range_after_ref(catalog, branch, catalog.head().refs, PUBLISHED)


def unpublished_ranges(catalog: Catalog, branch: str, outputs: Iterable[str]) -> dict[str, UnpublishedRange | None]:
    """``unpublished_range`` of each of the ``outputs``, as the catalog has all of them now."""
    refs = catalog.head().refs
    return {
        output: _range_after_ref(seen_catalog(catalog, output), branch, refs, published_ref(output))
        for output in outputs
    }


def _range_after_ref(
    catalog: Catalog, branch: str, refs: Mapping[str, str], published_by: str
) -> UnpublishedRange | None:
    head, published_id = refs.get(branch), refs.get(published_by)
    if head is None:
        return None
    begin = published_id if branch == MAIN else last_published(catalog, head, published_id)
    return None if begin == head else UnpublishedRange(begin, head)


def going_on(catalog: Catalog, branch: str, outputs: Iterable[str]) -> list[str]:
    """The ``outputs`` that the head of ``branch`` has and that are not parked there: what others have is not new. All
    where it has no snapshot.
    """
    head = catalog.head().refs.get(branch)
    if head is None:
        return [*outputs]
    manifest = catalog.manifest(head)
    present_outputs = {*output_names(manifest)} - {*parked_in(manifest)}
    return [output for output in outputs if output in present_outputs]


def last_published(catalog: Catalog, head: str, published_id: str | None) -> str | None:
    """The newest snapshot in the line of ``head`` that readers of ``published_id`` have seen; None: nothing of it. None
    also if it has expired: nobody can tell any more what came after it, and all that is left counts as unseen.
    """
    common = None if published_id is None else catalog.common_ancestor(published_id, head)
    return None if common is None or isinstance(common.problem, MissingSnapshotError) else common.snapshot_id


@dataclass(frozen=True)
class AuditedFiles:
    """Files by view: those of panes, and those of ``current`` with rows that epochs after ``since`` wrote. The files of
    ``current`` all count, since what they hide is not what changed. ``epochs``: which one wrote a file, by its path.
    """

    files: Mapping[ExpectationView, Sequence[DataFile]]
    since: int
    epochs: Mapping[str, int]

    @property
    def panes(self) -> list[tuple[DataFile, int]]:
        """The files of panes, each with the epoch that wrote it."""
        return [(file, self.epochs[file.path]) for file in self.files[ExpectationView.PANES]]

    def column_names(self, view: ExpectationView, columns: "ViewColumns") -> "dict[str, Names]":
        """What the files of ``view`` call its ``columns``, by their paths."""
        from headrace.read.views.columns import View as ReadersView  # with Arrow, which parsing DAGs does without

        return {
            file.path: columns.names_in_epoch(ReadersView(view), self.epochs[file.path]) for file in self.files[view]
        }


def audited_files(catalog: Catalog, published_id: str | None, head: Manifest) -> AuditedFiles:
    """What an audit of (``published_id``, ``head``] may look at. An output that was parked brings new rows from epochs
    that readers have seen, once it has caught up. So does an output that was computed again, with all epochs.
    """
    published_manifest = None if published_id is None else catalog.manifest(published_id)
    since_epoch = news_since(published_manifest, head, head.schema.get("output", ""))
    records = catalog.file_records(head.logs[UNNAMED.panes], since_epoch=since_epoch)
    panes = [(file, record.epoch) for record in records for file in record.files if isinstance(file, DataFile)]
    layers = [layer for layer in head.tables[UNNAMED.current] if layer.last_epoch > since_epoch]
    current = [(file, layer.last_epoch) for layer in layers for file in layer.files]
    files = {ExpectationView.PANES: [file for file, _ in panes], ExpectationView.CURRENT: [file for file, _ in current]}
    return AuditedFiles(files, since_epoch, {file.path: epoch for file, epoch in (*panes, *current)})


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
    releases: list[AuditRelease] = []
    back_to: list[str | None] = []
    for entry in newest_entries(catalog, catalog.known_head().entry - MOST_ENTRIES + 1):
        old_id, new_id = entry.moves.get(PUBLISHED, (None, None))
        if ends_releases(entry):
            back_to.append(new_id)
        elif entry.kind is Kind.RELEASE and new_id is not None and _is_below_all(catalog, new_id, back_to):
            releases.append(AuditRelease(entry.number, entry.message, old_id, new_id))
    return releases


def ended_by(catalog: Catalog, published_id: str | None) -> Iterator[str]:
    """For people: the releases that end when a person takes readers back to ``published_id`` (None: nothing)."""
    for release in releases_that_hold(catalog):
        if not _is_below_all(catalog, release.snapshot, [published_id]):
            yield (
                f"the release by log {release} ends: if its rows are computed again, an audit decides on them, or "
                "another `headrace release`"
            )


def describe_released(what: str, entries: Sequence[int]) -> str:
    """For people: what a finding leaves out since these log ``entries`` released it, to be put behind it."""
    return f" (without {what} log entry {' and '.join(map(str, entries))} released)" if entries else ""


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
    from headrace.read.views.row_files import check_files  # with SQL, for the few that look into rows

    for release in releases_that_hold(catalog):
        try:
            manifest = catalog.manifest(release.snapshot)
            files = audited_files(catalog, release.after, manifest)
            check_files(catalog.store, files.files[ExpectationView.PANES])
        except (MissingSnapshotError, BrokenObjectError, UnknownOutputError):  # nobody knows its rows any more
            continue
        own = ViewColumns.from_json(manifest.schema)
        if (own.keys, own.values, own.are_rows) == (columns.keys, columns.values, columns.are_rows):
            yield ReleasedPanes(release, files, own)


class ReleasedEpochs(msgspec.Struct, frozen=True):
    """What log entry ``entry`` released: the counts of its epochs together, and how far the watermark went meanwhile,
    in microseconds (None: nobody can say).
    """

    entry: int
    counts: Counter[str]
    passed: int | None


def released_again(catalog: Catalog, unpublished_range: UnpublishedRange) -> Iterator[ReleasedEpochs]:
    """The releases that hold and whose files the epochs of ``unpublished_range`` have all read again."""
    files_taken: set[tuple[str, str]] = set()
    files_audited: frozenset[tuple[str, str]] | None = None
    for release in releases_that_hold(catalog):
        released_range = UnpublishedRange(release.after, release.snapshot)
        # it has expired, or is lost, or had other outputs: nobody knows its records
        with suppress(MissingSnapshotError, BrokenObjectError, UnknownOutputError):
            counts, files = counts_of(catalog, released_range), _files_read(catalog, released_range)
            files_audited = _files_read(catalog, unpublished_range) if files_audited is None else files_audited
            if files and files <= files_audited - files_taken:
                files_taken |= files
                yield ReleasedEpochs(release.entry, counts, watermark_advance(catalog, released_range))


def counts_of(catalog: Catalog, epochs: UnpublishedRange) -> Counter[str]:
    """The counts of ``epochs`` together."""
    counts: Counter[str] = Counter()
    for manifest in catalog.whole_ancestry(epochs.until, until=epochs.after):
        counts.update(manifest.counts)
    return counts


def watermark_advance(catalog: Catalog, epochs: UnpublishedRange) -> int | None:
    """How far the watermark went within ``epochs``, in microseconds; None if it stood, or began or ended with them."""
    if epochs.after is None:
        return None
    begin, end = (
        StoredProgress.from_manifest(catalog.manifest(snapshot_id)).watermark
        for snapshot_id in (epochs.after, epochs.until)
    )
    return end - begin if is_finite(begin) and is_finite(end) and end > begin else None


def _files_read(catalog: Catalog, epochs: UnpublishedRange) -> frozenset[tuple[str, str]]:
    """The files that ``epochs`` read, by input and path."""
    since_epoch = -1 if epochs.after is None else catalog.manifest(epochs.after).epoch
    records = catalog.file_records(catalog.manifest(epochs.until).logs[INPUTS], since_epoch=since_epoch)
    return frozenset(
        (file.input, file.path) for record in records for file in record.files if isinstance(file, InputFile)
    )
