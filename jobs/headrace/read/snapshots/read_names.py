"""The names of files that were read up to a snapshot, and of copies that were landed again.

``ReadNames`` has them as the log of inputs does. Names files have the names of the first files of a long log; the log
itself has the others. Names files repeat what the log says: if one is lost, the log is read.

``left_out`` finds copies of late records and dead letters that lie where the pipeline reads and are no input. The
original files hold these records as well. So a copy is input only for a run that continues from the snapshot that
dropped its records. A backfill, batch or rollback reads the original files and ignores the copies. So does any other
pipeline that reads there: each record counts once.

The log of the view says which snapshots dropped what. An expiry removes that log up to the oldest kept snapshot, whose
own log still has it. Once that snapshot has expired too, nobody can say whether such a file is input.
"""

import logging
from collections.abc import Iterable, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath
from typing import Self

import msgspec

from headrace.ext.sources import SourceSplit
from headrace.read.views.columns import LOG_OF_VIEW, View
from headrace.sources.file_planning import KnownNames
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.datafiles import read_verified
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.files import DataFile, FileLog, InputFile, LoggedNames
from headrace_snapshots.format.manifest import INPUTS, Manifest
from headrace_snapshots.names import AGAIN_PREFIX, relanded_file

_READERS = 8
_logger = logging.getLogger(__name__)
NO_NAMES = LoggedNames(0, ())


@dataclass
class NamesSeen:
    """What a run saw of known names. Files in ``confirmed_splits``, by input and name, have the content that they had,
    under another ETag, and are given as they are now. ``lost_paths`` are paths of names files.
    """

    confirmed_splits: dict[str, dict[str, SourceSplit]] = field(default_factory=dict)
    lost_paths: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class ReadNames:
    """The names in ``log``, of inputs. Reads nothing before it is asked."""

    catalog: Catalog
    log: FileLog
    names_seen: NamesSeen = field(default_factory=NamesSeen)

    @classmethod
    def from_manifest(cls, catalog: Catalog, manifest: Manifest, names_seen: NamesSeen | None = None) -> "ReadNames":
        """Has those of the files that were read up to ``manifest``."""
        return cls(catalog, manifest.logs[INPUTS], NamesSeen() if names_seen is None else names_seen)

    def of_input(self, name: str) -> KnownNames:
        """The names of input ``name``. Raises BrokenObjectError if the log is damaged."""
        recent = {file.path: file for file in self._recent.get(name, ())}
        return KnownNames(recent, self._read[1].get(name, ()), self.names_seen.confirmed_splits.setdefault(name, {}))

    def paths(self, name: str) -> set[str]:
        """All of them of input ``name``, as the log has them: for sources whose splits are few."""
        return {file.path for file in logged_splits(self.catalog, self.log, 0).get(name, ())}

    @cached_property
    def names(self) -> LoggedNames:
        """What names files have, where they are whole."""
        return self._read[0]

    @cached_property
    def _recent(self) -> Mapping[str, list[SourceSplit]]:
        return logged_splits(self.catalog, self.log, self.names.of)

    @cached_property
    def _read(self) -> tuple[LoggedNames, Mapping[str, list[bytes]]]:
        names = self.log.names or NO_NAMES
        if not names.files:
            return names, {}
        try:
            with ThreadPoolExecutor(_READERS) as pool:
                contents = pool.map(lambda one: read_verified(self.catalog.store, one.file), names.files)
                by_input: dict[str, list[bytes]] = {}
                for one, data in zip(names.files, contents, strict=True):
                    by_input.setdefault(one.input, []).append(data)
        except BrokenObjectError as error:
            _logger.warning("%s. Or do nothing: the log of inputs says the same, and is stored so again", error)
            self.names_seen.lost_paths.update(one.file.path for one in names.files)
            return NO_NAMES, {}
        return names, by_input


def logged_splits(catalog: Catalog, log: FileLog, known_count: int) -> dict[str, list[SourceSplit]]:
    """The files of ``log`` after its first so many, by input, oldest first."""
    files: dict[str, list[SourceSplit]] = {}
    for record in catalog.files_beyond(log, known_count):
        for file in record.files:
            if isinstance(file, InputFile):
                files.setdefault(file.input, []).append(SourceSplit(file.path, file.size, file.etag, file.digest))
    return files


def landed_from(path: str, view: View) -> str | None:
    """The epoch and the snapshot whose ``view`` records a file holds, by its name; None if it was not landed again."""
    file = relanded_file(path)
    return file.dropped if file is not None and file.view == view else None


def dropped_files(catalog: Catalog, manifest: Manifest | None, view: View) -> dict[str, list[DataFile]]:
    """The files of the ``view`` by epoch and snapshot (as data files are named), oldest first."""
    files: dict[str, list[DataFile]] = {}
    log = None if manifest is None else manifest.logs.get(LOG_OF_VIEW[view])  # late records are each output's own
    for record in () if log is None else catalog.file_records(log):
        for file in record.files:
            if isinstance(file, DataFile):
                files.setdefault(PurePosixPath(file.path).parent.name, []).append(file)
    return files


class DroppedBefore(msgspec.Struct, frozen=True):
    """The epochs and snapshots that dropped records, up to some snapshot. Epochs below ``first`` are unknown by now."""

    named: Set[str]
    first: int = 0

    @classmethod
    def from_manifest(cls, catalog: Catalog, manifest: Manifest, view: View) -> Self:
        """Files with records of the ``view`` up to ``manifest``. Files that its log has let go count, too, as far as
        the oldest kept snapshot of its line names them.
        """
        names, horizon = set(dropped_files(catalog, manifest, view)), catalog.head().horizon
        if horizon is None or not horizon.floor:
            return cls(names)
        oldest = catalog.ancestor_at(manifest.snapshot_id, horizon.floor)
        if oldest is not None:
            with suppress(BrokenObjectError, MissingSnapshotError):  # then nobody can tell
                names |= set(dropped_files(catalog, catalog.manifest(oldest), view))
        return cls(names, min([horizon.floor, *map(_epoch_of_folder, names)]))


class LeftOut(msgspec.Struct, frozen=True):
    """Landed copies that are no input for a run that continues from a snapshot. It reads the records of ``copies`` in
    the original files; nobody can say whether it does so for ``unknown``.
    """

    copies: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()

    def __contains__(self, path: object) -> bool:
        return path in self.copies or path in self.unknown


def left_out(catalog: Catalog, manifest: Manifest | None, paths: Iterable[str]) -> LeftOut:
    """The input files among ``paths`` that a run from ``manifest`` leaves out (None: from the beginning)."""
    copies: set[str] = set()
    unknown: set[str] = set()
    named_again = [path for path in paths if PurePosixPath(path).name.startswith(AGAIN_PREFIX)]
    for view in (View.LATE, View.REJECTED):
        epoch_by_path = {path: epoch for path in named_again if (epoch := landed_from(path, view)) is not None}
        known_epochs = dropped_files(catalog, manifest, view) if epoch_by_path else {}
        unknown_copies = {path: epoch for path, epoch in epoch_by_path.items() if epoch not in known_epochs}
        if manifest is not None and any(_epoch_of_folder(epoch) <= manifest.epoch for epoch in unknown_copies.values()):
            dropped_before = DroppedBefore.from_manifest(catalog, manifest, view)
            unknown_copies = {
                path: epoch for path, epoch in unknown_copies.items() if epoch not in dropped_before.named
            }
            unknown |= {
                path for path, epoch in unknown_copies.items() if _epoch_of_folder(epoch) < dropped_before.first
            }
        copies |= unknown_copies.keys()
    return LeftOut(frozenset(copies - unknown), frozenset(unknown))


def _epoch_of_folder(name: str) -> int:
    """The number of an epoch in the name of its folder of data files."""
    return int(name[:8])
