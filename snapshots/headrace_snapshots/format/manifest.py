"""The manifest of a global snapshot: everything that one needs to continue from it, to read it and to explain it."""

from collections.abc import Mapping
from typing import ClassVar

from headrace_snapshots.format.codec import JSON
from headrace_snapshots.format.filelog import FileLog
from headrace_snapshots.format.files import Layer
from headrace_snapshots.format.record import JsonRecord, StoredObject
from headrace_snapshots.format.skips import Skip


class Patch(JsonRecord, frozen=True):
    """An output patch: the ``epoch`` of main that it is, and the branch and its snapshot that the rows are of."""

    epoch: int
    branch: str
    snapshot: str


class Manifest(StoredObject, frozen=True, omit_defaults=True, weakref=True):
    """One snapshot. Immutable once stored.

    ``progress`` is the engine's own (offsets, splits, watermark, clocks, next deadline), and so is ``schema``, the
    columns of what readers see; ``tables`` are layered
    tables, oldest layer first; ``logs`` are file logs; ``counts`` are rows by what became of them, of this epoch
    alone; ``timings`` are seconds; ``requests`` are storage requests by kind. ``created_at`` is ISO 8601 in UTC.
    ``code`` are digests of users' own code (Spark functions, own objects) by its name. ``skips`` are ancestors, newest
    first, by which others are found fast; the catalog gives them at the commit. ``definition`` is what ``fingerprint``
    is a digest of. Older manifests have neither. ``patch`` is the newest output patch up to here, None if there was
    none.
    """

    KIND: ClassVar = "manifest"

    snapshot_id: str
    pipeline: str
    fingerprint: str
    branch: str
    epoch: int
    parent: str | None
    generation: int
    created_at: str
    progress: Mapping[str, JSON]
    schema: Mapping[str, JSON]
    tables: Mapping[str, tuple[Layer, ...]]
    logs: Mapping[str, FileLog]
    counts: Mapping[str, int]
    timings: Mapping[str, float]
    requests: Mapping[str, int]
    code: Mapping[str, str]
    skips: tuple[Skip, ...] = ()
    definition: Mapping[str, JSON] = {}
    patch: Patch | None = None

    @property
    def is_patch(self) -> bool:
        """Whether it is an output patch: it read no input, and changed no state."""
        return self.patch is not None and self.patch.epoch == self.epoch
