"""The manifest of a global snapshot: everything that one needs to go on from it, to read it and to explain it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace_snapshots.format.codec import JSON, Fields, decode, encode
from headrace_snapshots.format.filelog import FileLog
from headrace_snapshots.format.files import Layer
from headrace_snapshots.format.skips import Skip

KIND = "manifest"


@dataclass(frozen=True)
class Patch:
    """An output patch: the ``epoch`` of main that it is, and the branch and its snapshot that the rows are of."""

    epoch: int
    branch: str
    snapshot: str

    def to_json(self) -> JSON:
        """A JSON object."""
        return {"epoch": self.epoch, "branch": self.branch, "snapshot": self.snapshot}

    @classmethod
    def from_json(cls, fields: Fields) -> "Patch":
        """Read what ``to_json`` wrote. Raises MalformedError."""
        return cls(fields.integer("epoch"), fields.text("branch"), fields.text("snapshot"))


@dataclass(frozen=True)
class Manifest:
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

    snapshot_id: str
    pipeline: str
    fingerprint: str
    branch: str
    epoch: int
    parent: str | None
    generation: int
    created_at: str
    progress: Mapping[str, JSON]
    schema: Mapping[str, JSON] = field(default_factory=dict)
    tables: Mapping[str, tuple[Layer, ...]] = field(default_factory=dict)
    logs: Mapping[str, FileLog] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    timings: Mapping[str, float] = field(default_factory=dict)
    requests: Mapping[str, int] = field(default_factory=dict)
    code: Mapping[str, str] = field(default_factory=dict)
    skips: tuple[Skip, ...] = ()
    definition: Mapping[str, JSON] = field(default_factory=dict)
    patch: Patch | None = None

    @property
    def is_patch(self) -> bool:
        """Whether it is an output patch: it read no input, and changed no state."""
        return self.patch is not None and self.patch.epoch == self.epoch

    def to_json(self) -> JSON:
        """A JSON object."""
        own: dict[str, JSON] = {
            "snapshot_id": self.snapshot_id,
            "pipeline": self.pipeline,
            "fingerprint": self.fingerprint,
            "branch": self.branch,
            "epoch": self.epoch,
            "parent": self.parent,
            "generation": self.generation,
            "created_at": self.created_at,
            "progress": dict(self.progress),
            "schema": dict(self.schema),
            "tables": {name: [layer.to_json() for layer in layers] for name, layers in self.tables.items()},
            "logs": {name: log.to_json() for name, log in self.logs.items()},
            "counts": dict(self.counts),
            "timings": dict(self.timings),
            "requests": dict(self.requests),
            "code": dict(self.code),
        }
        own |= {"skips": [skip.to_json() for skip in self.skips]} if self.skips else {}
        own |= {} if self.patch is None else {"patch": self.patch.to_json()}
        return {**own, "definition": dict(self.definition)} if self.definition else own

    @classmethod
    def from_json(cls, fields: Fields) -> "Manifest":
        """Read what ``to_json`` wrote. Raises MalformedError."""
        return cls(
            snapshot_id=fields.text("snapshot_id"),
            pipeline=fields.text("pipeline"),
            fingerprint=fields.text("fingerprint"),
            branch=fields.text("branch"),
            epoch=fields.integer("epoch"),
            parent=fields.optional_text("parent"),
            generation=fields.integer("generation"),
            created_at=fields.text("created_at"),
            progress=fields.fields("progress").value,
            schema=fields.fields("schema").value,
            tables=fields.mapping("tables", lambda tables, name: tables.items(name, Layer.from_json)),
            logs=fields.mapping("logs", lambda logs, name: FileLog.from_json(logs.fields(name))),
            counts=fields.mapping("counts", Fields.integer),
            timings=fields.mapping("timings", Fields.number),
            requests=fields.mapping("requests", Fields.integer),
            code=fields.mapping("code", Fields.text),
            skips=fields.items("skips", Skip.from_json) if "skips" in fields.value else (),
            definition=fields.fields("definition").value if "definition" in fields.value else {},
            patch=None if (patch := fields.optional_fields("patch")) is None else Patch.from_json(patch),
        )

    def to_bytes(self) -> bytes:
        """The object to store."""
        return encode(KIND, self.to_json())

    @classmethod
    def from_bytes(cls, data: bytes, name: str) -> "Manifest":
        """The manifest in object ``name``. Raises BrokenObjectError or NewerFormatError."""
        return decode(KIND, data, name, cls.from_json)
