"""What an expiry asks beside the catalog: marks of objects that are to be deleted, and holds of readers.

``Marks`` are lists of objects, of which the catalog's head names the one that counts.
``{pipeline}/marks/{entry}-{id}.json`` is written before the log entry of that number, which names it; when another
entry gets the number, nobody will ever name that mark.

``ReaderHold`` is what a reader in another pipeline still needs of a pipeline: one small object, which the reader puts.
A reader puts its hold before it reads a snapshot, and again once it has committed what it made of that. So a hold is
only ever behind: it may keep a snapshot for too long, and never lets one go too early. It is in no entry of the log:
nobody but an expiry asks for it.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import msgspec

from headrace_snapshots import names as object_names
from headrace_snapshots.format.codec import BrokenObjectError, JsonRecord, StoredObject, seal_fields, unseal_fields
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
            deletion_list = DeletionList.from_bytes(self._store.read(self.path(mark)), where)
        except ObjectNotFoundError as error:
            raise BrokenObjectError(f"{where} is missing: `headrace expire` makes another") from error
        if deletion_list.id != mark:
            raise BrokenObjectError(f"{where} is mark {deletion_list.id}, not {mark}: `headrace expire` makes another")
        return deletion_list

    def write(self, mark: DeletionList) -> None:
        """Before the entry that names it."""
        self._store.write(self.path(mark.id), mark.to_bytes())

    def is_kept(self, mark: str, snapshot: str) -> bool:
        """Whether ``snapshot`` is there, and not in the mark: then the catalog's next entry may give it a ref."""
        path = object_names.manifest_path(self._pipeline, snapshot)
        return path not in self.read(mark) and is_there(self._store, path)

    def dead_paths(self, last_entry: int, mark: str | None) -> list[str]:
        """The paths of marks that count no more, or never will: their numbers are given, and not to an entry of theirs.

        ``mark`` is what the entry ``last_entry``, the newest, names.
        """
        paths = [
            info.path
            for info in self._store.list(object_names.object_folder(self._pipeline, object_names.ObjectKind.MARKS))
        ]
        marks = [path for path in paths if object_names.kind_of(self._pipeline, path) is object_names.ObjectKind.MARKS]
        return [path for path in marks if path != self.path(mark or "") and _entry_number(path) <= last_entry]

    def path(self, mark: str) -> str:
        return object_names.mark_path(self._pipeline, mark)


def _entry_number(path: str) -> int:
    number = object_names.entry_number(path.rpartition("/")[2])
    return -1 if number is None else number


FORMAT = 1


@dataclass(frozen=True)
class ReaderHold:
    """The ``snapshots`` of a pipeline that another one has consumed and can still be asked to read again, oldest first.
    That one is ``pipeline`` under ``root``, and reads an ``output`` ("": the only one) as its ``input``.
    """

    root: str
    pipeline: str
    input: str
    output: str
    snapshots: tuple[str, ...]

    @property
    def name(self) -> str:
        """What people, and `headrace drop`, call the reader."""
        return f"{self.pipeline}.{self.input}"

    def path(self, upstream: str) -> str:
        """Where it is below the folder of the pipeline that is read."""
        return object_names.reader_path(upstream, self.pipeline, self.root, self.input)

    def put(self, store: ObjectStore, upstream: str) -> None:
        """Keep it. Raises what the store raises."""
        document = {"format": FORMAT, "kind": "reader", **asdict(self), "snapshots": [*self.snapshots]}
        store.write(self.path(upstream), seal_fields(document))


class DamagedHold(msgspec.Struct, frozen=True):
    """The hold at ``path``, which ``reader`` has put, and what is ``wrong`` with it."""

    path: str
    reader: str
    wrong: BrokenObjectError


def read_holds(store: ObjectStore, upstream: str) -> list[ReaderHold]:
    """The holds of all readers of the pipeline ``upstream``. Raises BrokenObjectError: who needs what is not known."""
    readable, damaged_holds = holds_of(store, upstream)
    if damaged_holds:
        raise damaged_holds[0].wrong
    return readable


def holds_of(store: ObjectStore, upstream: str) -> tuple[list[ReaderHold], list[DamagedHold]]:
    """The holds of all readers of the pipeline ``upstream``, and those that cannot be read."""
    readable: list[ReaderHold] = []
    damaged_holds: list[DamagedHold] = []
    for path in (
        info.path for info in store.list(object_names.object_folder(upstream, object_names.ObjectKind.READERS))
    ):
        reader = object_names.reader_at(upstream, path)
        try:
            hold = None if reader is None else hold_at(store, path)
            readable += [] if hold is None else [hold]
        except BrokenObjectError as error:
            damaged_holds += [] if reader is None else [DamagedHold(path, reader, error)]
    return readable, damaged_holds


def hold_at(store: ObjectStore, path: str) -> ReaderHold | None:
    """The hold at ``path``; None if there is none. Raises BrokenObjectError."""
    try:
        fields: dict[str, Any] = unseal_fields(json.loads(store.read(path)))
        if fields["format"] != FORMAT:
            raise ValueError(f"it has format {fields['format']}, and this Headrace knows {FORMAT}")
        text = {name: str(fields[name]) for name in ("root", "pipeline", "input", "output")}
        return ReaderHold(**text, snapshots=tuple(map(str, fields["snapshots"])))
    except ObjectNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        upstream = path.partition("/")[0]
        reader = object_names.reader_at(upstream, path) or "a reader"
        raise BrokenObjectError(
            f"{store.uri}/{path}, in which {reader} says what it needs of {upstream}, cannot be read: {error}. "
            f"{mended_by(upstream, reader)}"
        ) from error


def mended_by(upstream: str, reader: str) -> str:
    """What puts a hold of ``reader`` that cannot be read again, or ends it."""
    return (
        f"`headrace expire {reader}` puts it again, and so does the next run of {reader} that reads something; if "
        f"{reader} is gone for good, `headrace drop {upstream} {reader} --reader` ends it"
    )


def drop_holds(store: ObjectStore, upstream: str, reader: str, root: str | None = None) -> list[str]:
    """End the holds of a ``reader``, named as pipeline or as pipeline.input, or those alone that it has put from a
    ``root``; the names of those that there were. Only the pipeline is known of one that cannot be read.
    """
    readable, damaged_holds = holds_of(store, upstream)
    names_by_path = {
        hold.path(upstream): hold.name
        for hold in readable
        if reader in (hold.pipeline, hold.name) and root in (None, hold.root)
    }
    names_by_path |= {hold.path: hold.reader for hold in damaged_holds if reader == hold.reader and root is None}
    for path in names_by_path:
        store.delete(path)
    return [*names_by_path.values()]


def held_snapshots(readers: Iterable[ReaderHold]) -> Iterator[str]:
    """The snapshots that some of ``readers`` need."""
    for reader in readers:
        yield from reader.snapshots
