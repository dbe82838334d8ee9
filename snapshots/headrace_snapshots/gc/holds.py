"""What readers of a pipeline in other pipelines still need of it: one small object each, which the reader puts.

A reader puts its hold before it reads a snapshot, and again once it has committed what it made of that. So a hold is
only ever behind: it may keep a snapshot for too long, and never lets one go too early. It is in no entry of the log:
nobody but an expiry asks for it.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from headrace_snapshots.format.codec import BrokenObjectError, sealed, unsealed
from headrace_snapshots.layout import ObjectKind, folder, reader_at, reader_path
from headrace_snapshots.store import ObjectNotFoundError, ObjectStore

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
        return reader_path(upstream, self.pipeline, self.root, self.input)

    def put(self, store: ObjectStore, upstream: str) -> None:
        """Keep it. Raises what the store raises."""
        document = {"format": FORMAT, "kind": "reader", **asdict(self), "snapshots": [*self.snapshots]}
        store.write(self.path(upstream), sealed(document))


@dataclass(frozen=True)
class DamagedHold:
    """The hold at ``path``, which ``reader`` has put, and what is ``wrong`` with it."""

    path: str
    reader: str
    wrong: BrokenObjectError


def holds(store: ObjectStore, upstream: str) -> list[ReaderHold]:
    """The holds of all readers of the pipeline ``upstream``. Raises BrokenObjectError: who needs what is not known."""
    readable, damaged = holds_of(store, upstream)
    if damaged:
        raise damaged[0].wrong
    return readable


def holds_of(store: ObjectStore, upstream: str) -> tuple[list[ReaderHold], list[DamagedHold]]:
    """The holds of all readers of the pipeline ``upstream``, and those that cannot be read."""
    readable: list[ReaderHold] = []
    damaged: list[DamagedHold] = []
    for path in (info.path for info in store.list(folder(upstream, ObjectKind.READERS))):
        reader = reader_at(upstream, path)
        try:
            hold = None if reader is None else hold_at(store, path)
            readable += [] if hold is None else [hold]
        except BrokenObjectError as error:
            damaged += [] if reader is None else [DamagedHold(path, reader, error)]
    return readable, damaged


def hold_at(store: ObjectStore, path: str) -> ReaderHold | None:
    """The hold at ``path``; None if there is none. Raises BrokenObjectError."""
    try:
        fields: dict[str, Any] = unsealed(json.loads(store.read(path)))
        if fields["format"] != FORMAT:
            raise ValueError(f"it has format {fields['format']}, and this Headrace knows {FORMAT}")
        text = {name: str(fields[name]) for name in ("root", "pipeline", "input", "output")}
        return ReaderHold(**text, snapshots=tuple(map(str, fields["snapshots"])))
    except ObjectNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        upstream = path.partition("/")[0]
        reader = reader_at(upstream, path) or "a reader"
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


def dropped(store: ObjectStore, upstream: str, reader: str) -> list[str]:
    """End the holds of a ``reader``, named as pipeline or as pipeline.input; the names of those that there were. Of one
    that cannot be read only the pipeline is known.
    """
    readable, damaged = holds_of(store, upstream)
    ended = {hold.path(upstream): hold.name for hold in readable if reader in (hold.pipeline, hold.name)}
    ended |= {hold.path: hold.reader for hold in damaged if reader == hold.reader}
    for path in ended:
        store.delete(path)
    return [*ended.values()]


def held(readers: Iterable[ReaderHold]) -> Iterator[str]:
    """The snapshots that some of ``readers`` need."""
    for reader in readers:
        yield from reader.snapshots
