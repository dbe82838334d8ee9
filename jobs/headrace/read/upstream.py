"""Another pipeline as its readers follow it: how far one has come, the steps it takes, and the catalog that it reads.

``UpstreamPosition`` is the snapshot that a reader has consumed, as its manifests record it. Manifests, one of each
pipeline, are a consistent cut if each records of its upstream no more than the other one holds.

``UpstreamStep`` leads from one published snapshot to another, as a split whose name says all. ``ReadPipeline`` is the
catalog that is read, as its output sees it, and says whether what it gives can be read.
"""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, Final

from headrace.errors import FixConfigError
from headrace.ext.sources import SourcePosition, SourceSplit
from headrace.model.accumulation import Accumulation
from headrace.model.expressions.data_types import in_words
from headrace.model.time import MIN_INSTANT, Instant, render
from headrace.pipeline.sources import OF_PANES, PANE_TIME, PUBLISHED_KIND, UpstreamSource
from headrace.read.snapshots.progress import common_epoch
from headrace.read.views.columns import Folding, View, ViewColumns
from headrace.sources.progress import in_calendar, instant_of, instants_of
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format.codec import BrokenObjectError, Fields, MalformedError
from headrace_snapshots.format.manifest import POSITION, Manifest
from headrace_snapshots.format.output_view import UnknownOutputError, come_to, goes_on, seen_by
from headrace_snapshots.names import MAIN, NOTHING, PUBLISHED, SNAPSHOT
from headrace_snapshots.output_catalog import seen_catalog
from headrace_snapshots.store import ObjectStore, open_store

FORMAT = 1


@dataclass(frozen=True)
class UpstreamPosition:
    """The published ``snapshot`` of an ``output`` of a ``pipeline`` under ``root`` that a reader has consumed. It has
    its ``epoch``, output ``watermark`` and the ``fingerprint`` of the output. None and -1: the upstream has gone back
    to its beginning. ``reached``: the greatest of all watermarks consumed so far.
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
    def from_beginning(cls, root: str, pipeline: str, output: str) -> "UpstreamPosition":
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

    def with_consumed(
        self, fingerprint: str, snapshot: str | None, epoch: int, watermark: Instant
    ) -> "UpstreamPosition":
        """The position after another snapshot was consumed."""
        highest_watermark = max(self.reached, watermark)
        return replace(
            self,
            fingerprint=fingerprint,
            snapshot=snapshot,
            epoch=epoch,
            watermark=watermark,
            reached=highest_watermark,
        )

    def to_mark(self) -> str:
        """The text of a position of the source."""
        times = {"watermark": render(in_calendar(self.watermark)), "reached": render(in_calendar(self.reached))}
        return json.dumps({**vars(self), **times}, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_mark(cls, mark: str) -> "UpstreamPosition | None":
        """The inverse of ``to_mark``; None at the beginning. Raises MalformedError."""
        return None if not mark else cls._from_fields(Fields(json.loads(mark), "position.at"))

    @classmethod
    def _from_fields(cls, fields: Fields) -> "UpstreamPosition":
        text = {name: fields.text(name) for name in ("root", "pipeline", "output", "fingerprint")}
        return cls(
            **text,
            snapshot=fields.optional_text("snapshot"),
            epoch=fields.integer("epoch"),
            watermark=instant_of(fields, "watermark"),
            reached=instant_of(fields, "reached"),
        )


def stored_places(manifest: Manifest) -> dict[str, str]:
    """Where a snapshot's definition says that other pipelines are, by input: their names, below roots that it names."""
    inputs = manifest.definition.get("inputs", ())
    return {input_["name"]: input_["path"] for input_ in inputs if input_.get("kind") == PUBLISHED_KIND}


def upstreams_of(manifest: Manifest, root: str) -> dict[str, UpstreamPosition]:
    """What a snapshot that lies under ``root`` has consumed of other pipelines, by input. Raises BrokenObjectError.

    A position says the root that it was read under. One whose definition names none is under ``root``, which may
    have another name since. Somebody may have moved it, or brought it back from a backup.
    """
    inputs: Mapping[str, Mapping[str, object]] = manifest.progress.get("inputs", {})
    is_beside = {name: "/" not in place for name, place in stored_places(manifest).items()}
    positions: dict[str, UpstreamPosition] = {}
    try:
        for name, read in inputs.items():
            if POSITION not in read:
                continue
            offsets = SourcePosition.from_json(Fields(dict(read), f"progress.inputs.{name}"))
            position = UpstreamPosition.from_mark(offsets.mark) if offsets.kind == PUBLISHED_KIND else None
            if position is not None:
                positions[name] = replace(position, root=root) if is_beside.get(name) else position
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


class StepKind(StrEnum):
    """What a step reads: the ``rows`` that readers see, to begin with; the ``panes`` between two snapshots of one
    line; the same ``again``, while the upstream is behind what was consumed of it, or patched rows of windows that had
    expired; the ``difference`` between snapshots of two lines.
    """

    ROWS = "rows"
    PANES = "panes"
    AGAIN = "again"
    DIFFERENCE = "difference"

    @property
    def counts_again(self) -> bool:
        """Whether it takes back, or repeats, what was counted before."""
        return self in (StepKind.AGAIN, StepKind.DIFFERENCE)


_KIND_PATTERN = "|".join(StepKind)
_STEP_NAME = re.compile(
    rf"(?P<upstream>[^/]+)/(?P<epoch>\d{{8,}})-(?P<kind>{_KIND_PATTERN})-(?P<begin>{SNAPSHOT}|{NOTHING})--(?P<end>{SNAPSHOT}|{NOTHING})"
)


@dataclass(frozen=True)
class UpstreamStep:
    """The step of ``kind`` from ``begin`` to ``end``, of ``epoch``; None: the beginning, where nothing is published."""

    upstream: str
    kind: StepKind
    begin: str | None
    end: str | None
    epoch: int

    def to_split(self, size: int, fingerprint: str) -> SourceSplit:
        """The split that has its name; ``fingerprint`` is that of the upstream at its end."""
        name = f"{max(self.epoch, 0):08d}-{self.kind}-{self.begin or NOTHING}--{self.end or NOTHING}"
        return SourceSplit(f"{self.upstream}/{name}", size, fingerprint)

    @classmethod
    def from_split(cls, split: SourceSplit) -> "UpstreamStep":
        """What a split stands for. Raises ValueError."""
        match = _STEP_NAME.fullmatch(split.path)
        if match is None:
            raise ValueError(f"{split.path!r} names no step along an upstream")
        begin, end = (None if match[side] == NOTHING else match[side] for side in ("begin", "end"))
        epoch = int(match["epoch"]) if end is not None else -1
        return cls(match["upstream"], StepKind(match["kind"]), begin, end, epoch)


GONE_ERRORS = (MissingSnapshotError, BrokenObjectError, UnknownOutputError)
"""What is raised for a snapshot that is not there any more, or not of that output."""

_AT_WINDOW_END = ("default", "after watermark")

_OF_RECORDS: Final[Mapping[Folding, Collection[str]]] = {
    Folding.NEWEST: ("epoch", "sequence"),
    Folding.SUMMED: ("timing", "epoch", "sequence"),
    Folding.NOTHING: (),
}
"""Columns that a withdrawal has otherwise than what it withdraws. ``timing`` is one of aggregations, too, which readers
may go by: it could always be read there.
"""


class UpstreamPanesError(FixConfigError, code="config.upstream_panes"):
    """What another pipeline publishes cannot be read as it is declared, or would count twice."""


@dataclass(frozen=True)
class ReadPipeline:
    """What ``source`` names, below ``root`` or elsewhere, for ``reader`` ("": nobody). Making one makes no request."""

    source: UpstreamSource
    root: ObjectStore
    reader: str = ""

    @cached_property
    def store(self) -> ObjectStore:
        """The store of the pipeline that is read."""
        return self.root if self.source.root is None else open_store(self.source.root)

    @cached_property
    def catalog(self) -> Catalog:
        """Its catalog, for readers of the output."""
        return seen_catalog(Catalog(self.store, self.source.pipeline), self.source.output)

    @property
    def begins_again(self) -> str:
        """What its reader does where what it has consumed is gone."""
        compute_text = (
            f"`headrace backfill {self.reader} --promote` computes {self.reader}" if self.reader else "Compute it"
        )
        return f"{compute_text} again from what is published now"

    def published_snapshot(self) -> str | None:
        """What readers see; None: nothing. Raises UnknownOutputError if the pipeline has only other outputs."""
        published_id = self.catalog.head().refs.get(PUBLISHED)
        if published_id is None:
            whole = Catalog(self.store, self.source.pipeline)
            main = whole.head().refs.get(MAIN)
            if main is not None:
                seen_by(whole.manifest(main), self.source.output)
        return published_id

    def manifest(self, snapshot: str) -> Manifest:
        """A snapshot as the output sees it. Raises MissingSnapshotError, BrokenObjectError, UnknownOutputError."""
        manifest = self.catalog.manifest(snapshot)
        return manifest if self.source.output else seen_by(manifest, "")

    def manifest_if_kept(self, snapshot: str | None) -> Manifest | None:
        """The same; None where it is not there any more, or None was given."""
        try:
            return None if snapshot is None else self.manifest(snapshot)
        except GONE_ERRORS:
            return None

    def is_line(self, old_manifest: Manifest, new_manifest: Manifest) -> bool:
        """Whether ``new_manifest`` is ``old_manifest`` and what came since. Rows that no epoch between has touched are
        the same then, also in the columns that are read.
        """
        old_names = ViewColumns.from_json(new_manifest.schema).names_in_epoch(View.CURRENT, come_to(old_manifest, ""))
        is_same = goes_on(old_manifest, new_manifest, "") and not any(
            field.place in old_names for field in self.source.fields.values()
        )
        return is_same and self.catalog.is_ancestor(old_manifest.snapshot_id, new_manifest.snapshot_id)

    def common_epoch(self, one: Manifest | None, other: Manifest | None) -> int:
        """The last epoch that two lines have in common, as it is read; -1: none. None is the beginning."""
        if one is None or other is None:
            return -1
        return common_epoch(self.catalog, one, other, [field.place for field in self.source.fields.values()])

    def check_snapshot(self, manifest: Manifest) -> None:
        """Raise UpstreamPanesError for missing columns, other types, or panes of a window that would all count."""
        where = f"{self.source} (snapshot {manifest.snapshot_id})"
        columns = ViewColumns.from_json(manifest.schema)
        self._check_times(where, columns)
        self._check_signed(where, columns)
        types = columns.column_types(View.PANES)
        for name, field in self.source.fields.items():
            if name in OF_PANES:
                continue
            kind = types.get(field.place)
            if kind is None:
                has = ", ".join(f"{column} ({in_words(kind)})" for column, kind in types.items())
                raise UpstreamPanesError(f"{where} has no column {field.named(name)}; it has {has}")
            if kind != field.type:
                raise UpstreamPanesError(
                    f"{where} has column {field.named(name)} as {in_words(kind)}, and it is declared as "
                    f"{in_words(field.type)}: write what it is"
                )
        if _counts_twice(_last_stage(manifest)):
            raise UpstreamPanesError(
                f"{where} accumulates, and a window may have several panes: all of them would count. Write "
                f"retracting() or discarding() into {self.source.upstream} (semantics 7.6)"
            )

    def _check_signed(self, where: str, columns: ViewColumns) -> None:
        """Raise UpstreamPanesError if a column is read that a withdrawal has otherwise than what it withdraws."""
        for name, field in self.source.fields.items():
            if field.place in _OF_RECORDS[columns.folding]:
                raise UpstreamPanesError(
                    f"{where} can be withdrawn, and column {field.named(name)} of a withdrawal says how that came: "
                    f"by {field.place} what it withdraws would still count. Leave it out of the schema"
                )

    @staticmethod
    def _check_times(where: str, columns: ViewColumns) -> None:
        """Raise UpstreamPanesError if rows have a column of a name that has another meaning for their readers."""
        for name, kind in columns.values.items():
            if name == PANE_TIME:
                raise UpstreamPanesError(
                    f"{where} has a column {name} of its own, and readers know the event time of rows by that name: "
                    "name it otherwise there"
                )
            if OF_PANES.get(name, kind) is not kind:
                raise UpstreamPanesError(
                    f"{where} has a column {name} of its own as {in_words(kind)}, and for readers it is a "
                    f"{in_words(OF_PANES[name])}: name it otherwise there"
                )


def _last_stage(manifest: Manifest) -> Mapping[str, Any]:
    """The definition of the stage that gives what readers see; empty in manifests that do not have it."""
    stages = manifest.definition.get("stages") or [{}]
    last: Mapping[str, Any] = stages[-1]
    return last


def _counts_twice(stage: Mapping[str, Any]) -> bool:
    how = stage.get("how", {})
    if how.get("accumulation") != Accumulation.ACCUMULATING:
        return False
    when = stage.get("when", {})
    waits_for_the_end = when.get("is") in _AT_WINDOW_END and "early" not in when
    return not waits_for_the_end or how.get("allowed_lateness", 0) != 0
