"""The manifest of a global snapshot: everything that one needs to continue from it, to read it and to explain it."""

from collections.abc import Mapping
from typing import ClassVar, Self

from headrace_snapshots.format.codec import JSON, NewerFormatError
from headrace_snapshots.format.filelog import FileLog
from headrace_snapshots.format.files import Layer
from headrace_snapshots.format.record import JsonRecord, StoredObject
from headrace_snapshots.format.skips import Skip

OUTPUTS = "outputs"
"""Under what schema, progress and definition have what is of each output, where outputs have names."""

ADOPTED = "adopted"
"""The epoch from which on the rows of an output are those of a branch, which was computed for it; in its schema."""

FORMERLY = "formerly"
"""What an output was called before, newest name first, "" where it had none; in its schema."""

INPUT_WATERMARK = "input_watermark"
"""The watermark that comes to an output that reads others, or what a loop makes, in its progress."""


RESERVED = frozenset({"position", "summaries"})
"""Fields of format 3 that no version writes yet, beside ``upstream`` of an input in ``progress``."""

POSITION = "position"
"""Of an input in ``progress``: how far it was read, where its source is not files."""


class Patch(JsonRecord, frozen=True, omit_defaults=True):
    """An output patch: the ``epoch`` of main that it is, and the branch and its snapshot that the rows are of; of which
    ``output``, where they have names.
    """

    epoch: int
    branch: str
    snapshot: str
    output: str = ""


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

    @classmethod
    def from_json(cls, value: JSON) -> Self:
        """Read what ``to_json`` wrote. Raises MalformedError; NewerFormatError for a field that is reserved."""
        reserved = {*RESERVED} & {*value}
        progress = value.get("progress") or {}
        if any("upstream" in input_ for input_ in (progress.get("inputs") or {}).values()):
            reserved.add("upstream")
        if reserved:
            raise NewerFormatError(
                f"snapshot {value.get('snapshot_id')} has {', '.join(sorted(reserved))}, which this Headrace does not "
                "know: upgrade it"
            )
        return super().from_json(value)

    @property
    def format(self) -> int:
        """The third where outputs have names, in which an older reader would find no rows where it looks for them; and
        where an input has a position, of which it knows nothing.
        """
        inputs: Mapping[str, JSON] = self.progress.get("inputs") or {}
        return 3 if OUTPUTS in self.schema or any(POSITION in read for read in inputs.values()) else 1

    @property
    def is_patch(self) -> bool:
        """Whether it is an output patch: it read no input, and changed no state."""
        return self.patch is not None and self.patch.epoch == self.epoch
