"""What a branch recorded of its epochs: the files that each read, when it ran, which signals it heard; and its figures.

That and the pipeline decide all that an epoch does, so it is what a replay needs. What kept snapshots have read of what
was landed, and which inputs no definition has any more, is told here too.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from pathlib import PurePosixPath
from typing import Final, Protocol, Self

import msgspec

from headrace.errors import FixConfigError
from headrace.ext.sources import SourceSplit
from headrace.model.time import MAX_INSTANT, Duration, Instant, to_instant
from headrace.model.triggers import Signal
from headrace.read.snapshots.progress import StoredProgress, input_file, watermarks_of
from headrace.sources.landing import ByInput
from headrace.sources.progress import WatermarkHold
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.files import InputFile, LoggedFile
from headrace_snapshots.format.manifest import INPUTS, Manifest
from headrace_snapshots.format.output_view import outputs_of
from headrace_snapshots.names import MAIN, LandedFile, ObjectKind, landed_file, landed_folder, object_folder
from headrace_snapshots.store import ObjectInfo


class ExpiredError(FixConfigError, code="config.expired"):
    """The epochs that are asked for have expired."""


@dataclass(frozen=True)
class RecordedEpoch:
    """An epoch as it ran, or is to run. It has its files by input in the order of their arrival, its processing time,
    and its signals. ``is_last``: the input ends with it. ``held_to``: what it was held to.

    ``reached``: the watermarks that it left, None where nobody can say any more. ``is_ahead``: some of its records lay
    too far ahead of its processing time to move a watermark (12.14).
    """

    files: ByInput
    processing_time: Instant
    signals: tuple[Signal, ...] = ()
    is_last: bool = False
    held_to: WatermarkHold | None = None
    reached: WatermarkHold | None = None
    is_ahead: bool = False


def recorded_epochs(catalog: Catalog, snapshot_id: str, ancestor_id: str | None = None) -> list[RecordedEpoch]:
    """The epochs of ``snapshot_id`` and of all before it, down to but without its ancestor ``ancestor_id``, oldest
    first. Output patches are left out where the only output has no name. A request for each of them, several at once.

    Raises ExpiredError, MissingSnapshotError, BrokenObjectError.
    """
    return [epoch for _, epoch in epochs_since(catalog, snapshot_id, ancestor_id)]


def epochs_since(catalog: Catalog, snapshot_id: str, ancestor_id: str | None) -> list[tuple[Manifest, RecordedEpoch]]:
    """The epochs after ``ancestor_id`` (None: the beginning) up to ``snapshot_id``, oldest first, with their manifests.
    Where outputs have names, patches are among them, as epochs in which nothing comes. So an output that is computed
    again keeps the numbers of all epochs. Raises what ``recorded_epochs`` raises.
    """
    manifests = {manifest.epoch: manifest for manifest in catalog.whole_ancestry(snapshot_id, ancestor_id)}
    files = _files_since(catalog, manifests, ancestor_id)
    _check_kept(catalog, snapshot_id, manifests, ancestor_id)
    return [
        (manifests[epoch], _recorded_epoch(manifests[epoch], files.get(epoch, {})))
        for epoch in sorted(manifests)
        if not manifests[epoch].is_patch or outputs_of(manifests[epoch])
    ]


def what_was_read(catalog: Catalog, snapshot_id: str, ancestor_id: str | None = None) -> list[RecordedEpoch]:
    """``recorded_epochs``, and the files of epochs whose manifests have expired or cannot be read. They come as if they
    had run with the next epoch of which a manifest is left, be that a patch. Where they ended nobody knows, unless a
    patch came next, which has the clocks of the epoch before it. Raises MissingSnapshotError, BrokenObjectError.
    """
    manifests = catalog.readable_since(snapshot_id, ancestor_id)
    files = _files_since(catalog, manifests, ancestor_id)
    epochs: list[RecordedEpoch] = []
    next_known: RecordedEpoch | None = None
    for epoch in sorted({*manifests, *files}, reverse=True):
        own_files = files.get(epoch, {})
        if epoch in manifests:
            next_known = _recorded_epoch(manifests[epoch], own_files)
            if manifests[epoch].is_patch:
                continue
            recorded_epoch = next_known
            next_known = replace(recorded_epoch, reached=None)
        else:
            assert next_known is not None, "the newest manifest names all files"
            recorded_epoch = RecordedEpoch(own_files, next_known.processing_time, reached=next_known.reached)
            next_known = replace(next_known, reached=None)
        epochs.append(recorded_epoch)
    return epochs[::-1]


def _files_since(catalog: Catalog, manifests: Mapping[int, Manifest], until_id: str | None) -> dict[int, ByInput]:
    """The files that were read after ``until_id``, by epoch, as the newest of ``manifests`` names them."""
    if not manifests:
        return {}
    since_epoch = -1 if until_id is None else catalog.manifest(until_id).epoch
    records = catalog.file_records(manifests[max(manifests)].logs[INPUTS], since_epoch=since_epoch)
    return {record.epoch: _by_input(record.files) for record in records}


def _check_kept(catalog: Catalog, snapshot_id: str, manifests: Mapping[int, Manifest], until_id: str | None) -> None:
    first = 0 if until_id is None else catalog.manifest(until_id).epoch + 1
    if manifests and (number_expired := max(manifests) + 1 - first - len(manifests)):
        raise ExpiredError(
            f"{number_expired} of the epochs up to snapshot {snapshot_id} of {catalog.pipeline} have expired, with "
            "their records of files, clocks and signals. Replay what has landed, under a clock of your own (--clock), "
            "or run a backfill"
        )


def _by_input(files: Iterable[LoggedFile]) -> ByInput:
    by_input: dict[str, list[SourceSplit]] = {}
    for file in files:
        if isinstance(file, InputFile):
            by_input.setdefault(file.input, []).append(input_file(file))
    return by_input


def _recorded_epoch(manifest: Manifest, files: ByInput) -> RecordedEpoch:
    progress = StoredProgress.from_manifest(manifest)
    return RecordedEpoch(
        files=files,
        processing_time=progress.processing_time,
        signals=progress.signals,
        is_last=progress.watermark == MAX_INSTANT,  # no record can take it there
        held_to=progress.held_to,
        reached=watermarks_of(manifest),
        is_ahead=bool(progress.ahead),
    )


_BEFORE_ALL_FILES: Final = LandedFile(-1, 0, 0)

A_DAY: Final = 24 * 60 * 60 * 1_000_000
"""Main has gone on for so long, in microseconds, without an input where nothing was landed since: it has left. A new
input is landed before the first snapshot has it. Both times are the store's: a run's clock may be days ahead.
"""


class _KeptSnapshot(msgspec.Struct, frozen=True):
    """A kept snapshot: when it came, and up to which file it has read its inputs, by folder (None: nothing)."""

    came_at: int
    files: Mapping[str, LandedFile | None]


class LandedReading(msgspec.Struct, frozen=True):
    """What the kept snapshots have read; ``main``: the head of main. ``begins``: some branch has no snapshot yet, so it
    has read nothing, and of which definition it is nobody knows.
    """

    readers: tuple[_KeptSnapshot, ...]
    main: _KeptSnapshot | None
    begins: bool

    @classmethod
    def from_snapshots(cls, catalog: Catalog, kept_ids: Collection[str]) -> Self:
        """What the snapshots ``kept_ids`` have read. Raises BrokenObjectError."""
        head = catalog.known_head()
        main = head.refs.get(MAIN)
        manifests = catalog.store.list(object_folder(catalog.pipeline, ObjectKind.MANIFESTS))
        write_times = {PurePosixPath(info.path).stem: info.modified for info in manifests}
        readers = {
            snapshot: _landed_reader(catalog.pipeline, catalog.manifest(snapshot), write_times.get(snapshot))
            for snapshot in kept_ids
        }
        begins = bool(head.generations.keys() - head.refs.keys())
        return cls(tuple(readers.values()), None if main is None else readers.get(main), begins)

    def has_left(self, where: str, objects: Sequence[ObjectInfo]) -> bool:
        """Whether the input whose folder has these ``objects`` is in no definition any more that main goes on with."""
        if self.begins or self.main is None or where in self.main.files:
            return False
        return all(info.modified is not None and info.modified + A_DAY < self.main.came_at for info in objects)

    def is_read(self, where: str) -> bool:
        """Whether a kept snapshot has the input with that folder."""
        return any(where in reader.files for reader in self.readers)

    def read_by_all(self, where: str, *, has_left: bool) -> LandedFile:
        """Up to which file all have read; if the input ``has_left``, all that came before the last that has it."""
        if self.begins:
            return _BEFORE_ALL_FILES
        readers = self.readers
        if has_left:
            last = max(reader.came_at for reader in readers if where in reader.files)
            readers = tuple(reader for reader in readers if reader.came_at <= last)
        return min((reader.files.get(where) or _BEFORE_ALL_FILES for reader in readers), default=_BEFORE_ALL_FILES)

    def furthest_file(self, where: str) -> LandedFile | None:
        """The last file that a snapshot has read; None if none has read any."""
        return max((file for reader in self.readers if (file := reader.files.get(where)) is not None), default=None)


def before_range(catalog: Catalog, where: str, number: int) -> str | None:
    """The newest snapshot of main that has read nothing of range ``number`` of the input with that folder; None where
    it has begun with it. Raises BrokenObjectError.
    """
    main = catalog.head().refs.get(MAIN)
    for link in catalog.lineage(main) if main is not None else ():
        if link.manifest is not None:
            file = _landed_reader(catalog.pipeline, link.manifest).files.get(where)
            if file is None or file.range < number:
                return link.snapshot_id
    return None


def _landed_reader(pipeline: str, manifest: Manifest, write_time: int | None = None) -> _KeptSnapshot:
    """``write_time``: when the store had the manifest, by the clock that also says when records were landed. A manifest
    that was copied came when it was made.
    """
    marks = StoredProgress.from_manifest(manifest).marks
    files = {landed_folder(pipeline, name): landed_file(pipeline, mark.path) for name, mark in marks.items()}
    creation_time = int(to_instant(datetime.fromisoformat(manifest.created_at)))
    return _KeptSnapshot(creation_time if write_time is None else min(creation_time, write_time), files)


class EpochFigures(msgspec.Struct, frozen=True):
    """One epoch. Instants are microseconds UTC (``watermark`` may be -inf); the event times are those of the elements
    that it accepted (None: none); ``counts`` are the manifest's. ``behind`` counts elements by how far they lay behind
    the newest event time of their input in the files before their own; for epochs before 0.2.0, in the epochs before.
    """

    epoch: int
    snapshot: str
    processing_time: Instant
    watermark: Instant
    min_event_time: Instant | None
    max_event_time: Instant | None
    counts: Mapping[str, int]
    behind: Mapping[Duration, int] = msgspec.field(default_factory=dict)

    @classmethod
    def from_manifest(cls, manifest: Manifest) -> "EpochFigures":
        """The figures of ``manifest``. Raises BrokenObjectError."""
        progress = StoredProgress.from_manifest(manifest)
        lag_counts = progress.behind if progress.behind_by_file is None else progress.behind_by_file
        return cls(
            epoch=manifest.epoch,
            snapshot=manifest.snapshot_id,
            processing_time=progress.processing_time,
            watermark=progress.watermark,
            min_event_time=progress.min_event_time,
            max_event_time=progress.max_event_time,
            counts=manifest.counts,
            behind={Duration(lag): count for lag, count in lag_counts.items()},
        )


def last_epoch_figures(catalog: Catalog, snapshot: str, limit: int) -> list[EpochFigures]:
    """The last ``limit`` epochs up to ``snapshot``, oldest first. One request per epoch."""
    newest_first = islice(catalog.ancestry(snapshot, until=None), limit)
    return [EpochFigures.from_manifest(manifest) for manifest in newest_first][::-1]


class CountedEpoch(Protocol):
    """An epoch with its counts by name: a manifest, or figures made of one."""

    @property
    def counts(self) -> Mapping[str, int]:
        """How many records, rows and files there were."""


def summed_counts(epochs: Iterable[CountedEpoch]) -> dict[str, int]:
    """Counts summed over ``epochs``."""
    sums: dict[str, int] = {}
    for epoch in epochs:
        for name, count in epoch.counts.items():
            sums[name] = sums.get(name, 0) + count
    return sums


SUMMARY: Sequence[tuple[str, str]] = (
    ("records", "records read"),
    ("accepted", "elements accepted"),
    ("filtered", "filtered out"),
    ("rejected", "rejected (dead letters)"),
    ("late_dropped", "dropped as late"),
    ("closed_dropped", "dropped, window closed"),
    ("panes_early", "early panes"),
    ("panes_on_time", "on-time panes"),
    ("panes_late", "late panes"),
    ("retractions", "retractions"),
)
"""Counts that answer how late the data is, with words for people."""
