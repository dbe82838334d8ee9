"""What readers of a pipeline in other pipelines still need of it: one small object each, which the reader puts.

A reader puts its hold before it reads a snapshot, and again once it has committed what it made of that. So a hold is
only ever behind: it may keep a snapshot for too long, and never lets one go too early. It is in no entry of the log:
nobody but an expiry asks for it.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.sealed import sealed, unsealed
from headrace_snapshots.layout import ObjectKind, folder, kind_of, reader_path
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


def holds(store: ObjectStore, upstream: str) -> list[ReaderHold]:
    """The holds of all readers of the pipeline ``upstream``. Raises BrokenObjectError: who needs what is not known."""
    return [hold for path in _paths(store, upstream) if (hold := hold_at(store, path)) is not None]


def _paths(store: ObjectStore, upstream: str) -> list[str]:
    listed = (info.path for info in store.list(folder(upstream, ObjectKind.READERS)))
    return [path for path in listed if kind_of(upstream, path) is ObjectKind.READERS]


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
        raise BrokenObjectError(
            f"{store.uri}/{path}, in which a reader says what it needs, cannot be read: {error}. The next run of the "
            "reader puts another; if the reader is gone, delete the object"
        ) from error


def dropped(store: ObjectStore, upstream: str, reader: str) -> list[ReaderHold]:
    """End the holds of a ``reader``, named as pipeline or as pipeline.input; those that there were."""
    there = [hold for hold in holds(store, upstream) if reader in (hold.pipeline, hold.name)]
    for hold in there:
        store.delete(hold.path(upstream))
    return there


def held(readers: Iterable[ReaderHold]) -> Iterator[str]:
    """The snapshots that some of ``readers`` need."""
    for reader in readers:
        yield from reader.snapshots
