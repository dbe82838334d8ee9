"""How far a reader has come with an upstream: the snapshot that it has consumed, as its manifests record it.

A set of manifests, one of each pipeline, is a consistent cut if each records of its upstream no more than the other one
holds.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from headrace.ext.sources import SourcePosition
from headrace.model.time import MIN_INSTANT, Instant, render
from headrace.pipeline.following.upstream_source import PUBLISHED_KIND
from headrace.sources.stored_times import in_calendar, instant_of, instants_of
from headrace_snapshots.format.codec import BrokenObjectError, Fields, MalformedError
from headrace_snapshots.format.manifest import POSITION, Manifest

FORMAT = 1


@dataclass(frozen=True)
class UpstreamPosition:
    """The published ``snapshot`` of an ``output`` of a ``pipeline`` under ``root`` that a reader has consumed, its
    ``epoch``, output ``watermark`` and the ``fingerprint`` of the output. None and -1: the upstream has gone back to
    its beginning. ``reached``: the greatest of all watermarks consumed so far.
    """

    root: str
    pipeline: str
    output: str
    fingerprint: str
    snapshot: str | None
    epoch: int
    watermark: Instant
    reached: Instant

    @classmethod
    def begun(cls, root: str, pipeline: str, output: str) -> "UpstreamPosition":
        """The position of a reader that has consumed nothing yet."""
        return cls(root, pipeline, output, "", None, -1, MIN_INSTANT, MIN_INSTANT)

    @property
    def upstream(self) -> tuple[str, str, str]:
        """What is read, however much of it was consumed."""
        return self.root, self.pipeline, self.output

    @property
    def is_behind(self) -> bool:
        """Whether the upstream is behind what the reader had consumed of it before."""
        return self.watermark < self.reached

    @property
    def name(self) -> str:
        """The pipeline, and its output."""
        return f"{self.pipeline}.{self.output}" if self.output else self.pipeline

    def moved(self, fingerprint: str, snapshot: str | None, epoch: int, watermark: Instant) -> "UpstreamPosition":
        """The position after another snapshot was consumed."""
        reached = max(self.reached, watermark)
        return replace(
            self, fingerprint=fingerprint, snapshot=snapshot, epoch=epoch, watermark=watermark, reached=reached
        )

    def to_mark(self) -> str:
        """The text of a position of the source."""
        times = {"watermark": render(in_calendar(self.watermark)), "reached": render(in_calendar(self.reached))}
        return json.dumps({**vars(self), **times}, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_mark(cls, mark: str) -> "UpstreamPosition | None":
        """The inverse of ``to_mark``; None at the beginning. Raises MalformedError."""
        return None if not mark else cls._of(Fields(json.loads(mark), "position.at"))

    @classmethod
    def _of(cls, fields: Fields) -> "UpstreamPosition":
        text = {name: fields.text(name) for name in ("root", "pipeline", "output", "fingerprint")}
        return cls(
            **text,
            snapshot=fields.optional_text("snapshot"),
            epoch=fields.integer("epoch"),
            watermark=instant_of(fields, "watermark"),
            reached=instant_of(fields, "reached"),
        )


def upstreams_of(manifest: Manifest) -> dict[str, UpstreamPosition]:
    """What a snapshot has consumed of other pipelines, by input. Raises BrokenObjectError."""
    inputs: Mapping[str, Mapping[str, object]] = manifest.progress.get("inputs", {})
    positions: dict[str, UpstreamPosition] = {}
    try:
        for name, read in inputs.items():
            if POSITION not in read:
                continue
            offsets = SourcePosition.from_json(Fields(dict(read), f"progress.inputs.{name}"))
            position = UpstreamPosition.from_mark(offsets.mark) if offsets.kind == PUBLISHED_KIND else None
            if position is not None:
                positions[name] = position
    except MalformedError as error:
        raise BrokenObjectError(
            f"snapshot {manifest.snapshot_id} of {manifest.pipeline} does not say what it has read of others: {error}"
        ) from error
    return positions


def output_watermark(manifest: Manifest) -> Instant:
    """The output watermark that a snapshot of one output leaves. Raises BrokenObjectError."""
    try:
        outputs = instants_of(Fields(dict(manifest.progress), "progress"), "output_watermarks")
    except MalformedError as error:
        raise BrokenObjectError(f"snapshot {manifest.snapshot_id} of {manifest.pipeline}: {error}") from error
    return outputs[-1] if outputs else MIN_INSTANT
