"""Marks: the lists of objects that are to be deleted, of which the catalog's head names the one that counts.

``{pipeline}/marks/{entry}-{id}.json`` is written before the log entry of that number, which names it; when another
entry gets the number, nobody will ever name that mark.
"""

from collections.abc import Mapping
from typing import ClassVar

from headrace_snapshots.format.codec import BrokenObjectError, JsonRecord, StoredObject
from headrace_snapshots.layout import ObjectKind, entry_number, folder, kind_of, manifest_path, mark_path
from headrace_snapshots.store import ObjectNotFoundError, ObjectStore, is_there


class Batch(JsonRecord, frozen=True):
    """Objects that may be deleted once none of ``writers`` (generations by branch) can commit; by size in bytes."""

    writers: Mapping[str, int]
    objects: Mapping[str, int]


class DeletionList(StoredObject, frozen=True, omit_defaults=True):
    """What is to be deleted, by who might still need it. ``facts``: what the expiry has read, for the next one (see
    ``facts``); None in marks of before.
    """

    KIND: ClassVar = "mark"

    id: str
    batches: tuple[Batch, ...]
    facts: str | None = None

    def __contains__(self, path: object) -> bool:
        return any(path in batch.objects for batch in self.batches)

    @property
    def format(self) -> int:
        """The second, which came with expiry."""
        return 2


class Marks:
    """The marks of ``pipeline``."""

    def __init__(self, store: ObjectStore, pipeline: str) -> None:
        self._store, self._pipeline = store, pipeline

    def new_id(self, entry: int, unique: str) -> str:
        """The id of a mark that entry ``entry`` is to name."""
        return f"{entry:020d}-{unique}"

    def read(self, mark: str) -> DeletionList:
        """Raises BrokenObjectError, also if it is gone: the next expiry does without, and marks everything again."""
        where = f"{self._store.uri}/{self.path(mark)}"
        try:
            listed = DeletionList.from_bytes(self._store.read(self.path(mark)), where)
        except ObjectNotFoundError as error:
            raise BrokenObjectError(f"{where} is missing: `headrace expire` makes another") from error
        if listed.id != mark:
            raise BrokenObjectError(f"{where} is mark {listed.id}, not {mark}: `headrace expire` makes another")
        return listed

    def write(self, mark: DeletionList) -> None:
        """Before the entry that names it."""
        self._store.write(self.path(mark.id), mark.to_bytes())

    def is_kept(self, mark: str, snapshot: str) -> bool:
        """Whether ``snapshot`` is there, and not in the mark: then the catalog's next entry may give it a ref."""
        path = manifest_path(self._pipeline, snapshot)
        return path not in self.read(mark) and is_there(self._store, path)

    def dead(self, last_entry: int, mark: str | None) -> list[str]:
        """The paths of marks that count no more, or never will: their numbers are given, and not to an entry of theirs.

        ``mark`` is what the entry ``last_entry``, the newest, names.
        """
        paths = [info.path for info in self._store.list(folder(self._pipeline, ObjectKind.MARKS))]
        marks = [path for path in paths if kind_of(self._pipeline, path) is ObjectKind.MARKS]
        return [path for path in marks if path != self.path(mark or "") and _entry(path) <= last_entry]

    def path(self, mark: str) -> str:
        """Where the mark is."""
        return mark_path(self._pipeline, mark)


def _entry(path: str) -> int:
    number = entry_number(path.rpartition("/")[2])
    return -1 if number is None else number
