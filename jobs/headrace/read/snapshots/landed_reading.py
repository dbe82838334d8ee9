"""What kept snapshots have read of what was landed, and which inputs no definition has any more."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Self

from headrace.model.time import instant
from headrace.read.snapshots.progress import StoredProgress
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.layout import LandedFile, landed_file, landed_folder
from headrace_snapshots.refs import MAIN
from headrace_snapshots.store import ObjectInfo

_BEGINNING: Final = LandedFile(-1, 0, 0)

A_DAY: Final = 24 * 60 * 60 * 1_000_000
"""Main has gone on for so long, in microseconds, without an input where nothing was landed since: it has left. Clocks
of stores and runs may differ, and a new input is landed before the first snapshot has it.
"""


@dataclass(frozen=True)
class _Reader:
    """A kept snapshot: when it came, and up to which file it has read its inputs, by folder (None: nothing)."""

    came: int
    files: Mapping[str, LandedFile | None]


@dataclass(frozen=True)
class LandedReading:
    """What the kept snapshots have read; ``main``: the head of main. ``begins``: some branch has no snapshot yet, so it
    has read nothing, and of which definition it is nobody knows.
    """

    readers: tuple[_Reader, ...]
    main: _Reader | None
    begins: bool

    @classmethod
    def of(cls, catalog: Catalog, kept: Collection[str]) -> Self:
        """What the snapshots with these ids have read. Raises BrokenObjectError."""
        head = catalog.known_head()
        main = head.refs.get(MAIN)
        readers = {snapshot: _reader(catalog.pipeline, catalog.manifest(snapshot)) for snapshot in kept}
        begins = bool(head.generations.keys() - head.refs.keys())
        return cls(tuple(readers.values()), None if main is None else readers.get(main), begins)

    def has_left(self, where: str, objects: Sequence[ObjectInfo]) -> bool:
        """Whether the input whose folder has these ``objects`` is in no definition any more that main goes on with."""
        if self.begins or self.main is None or where in self.main.files:
            return False
        return all(info.modified is not None and info.modified + A_DAY < self.main.came for info in objects)

    def is_read(self, where: str) -> bool:
        """Whether a kept snapshot has the input with that folder."""
        return any(where in reader.files for reader in self.readers)

    def read_by_all(self, where: str, *, has_left: bool) -> LandedFile:
        """Up to which file every snapshot has read, or where the input ``has_left``, every one that came before the
        last that has it.
        """
        if self.begins:
            return _BEGINNING
        readers = self.readers
        if has_left:
            last = max(reader.came for reader in readers if where in reader.files)
            readers = tuple(reader for reader in readers if reader.came <= last)
        return min((reader.files.get(where) or _BEGINNING for reader in readers), default=_BEGINNING)

    def furthest(self, where: str) -> LandedFile | None:
        """The last file that a snapshot has read; None if none has read any."""
        return max((file for reader in self.readers if (file := reader.files.get(where)) is not None), default=None)


def before_range(catalog: Catalog, where: str, number: int) -> str | None:
    """The newest snapshot of main that has read nothing of range ``number`` of the input with that folder; None where
    it has begun with it. Raises BrokenObjectError.
    """
    main = catalog.head().refs.get(MAIN)
    for link in catalog.lineage(main) if main is not None else ():
        if link.manifest is not None:
            file = _reader(catalog.pipeline, link.manifest).files.get(where)
            if file is None or file.range < number:
                return link.snapshot_id
    return None


def _reader(pipeline: str, manifest: Manifest) -> _Reader:
    marks = StoredProgress.of(manifest).marks
    files = {landed_folder(pipeline, name): landed_file(pipeline, mark.path) for name, mark in marks.items()}
    return _Reader(int(instant(datetime.fromisoformat(manifest.created_at))), files)
