"""The pipeline that is read: its catalog, as its output that is read sees it, and whether what it gives can be read."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from headrace.errors import FixConfigError
from headrace.model.accumulation import Accumulation
from headrace.model.expressions.data_types import in_words
from headrace.pipeline.following.upstream_source import OF_PANES, UpstreamSource
from headrace.read.snapshots.named_panes import common_epoch
from headrace.read.views.columns import View, ViewColumns
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.output_view import UnknownOutputError, come_to, goes_on, seen_by
from headrace_snapshots.output_catalog import seen_catalog
from headrace_snapshots.refs import MAIN, PUBLISHED
from headrace_snapshots.store import ObjectStore, open_store

GONE = (MissingSnapshotError, BrokenObjectError, UnknownOutputError)
"""What is raised for a snapshot that is not there any more, or not of that output."""

_ENDS = ("default", "after watermark")


class UpstreamPanesError(FixConfigError, code="config.upstream_panes"):
    """What another pipeline publishes cannot be read as it is declared, or would count twice."""


@dataclass(frozen=True)
class ReadPipeline:
    """What ``source`` names, where it is not elsewhere below ``root``, for the pipeline ``reader`` ("": for nobody).
    Making one makes no request.
    """

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
        again = f"`headrace backfill {self.reader} --promote` computes {self.reader}" if self.reader else "Compute it"
        return f"{again} again from what is published now"

    def published(self) -> str | None:
        """The snapshot that readers see now; None: nothing is published. Raises UnknownOutputError if that is so
        because the pipeline has other outputs.
        """
        published = self.catalog.head().refs.get(PUBLISHED)
        if published is None:
            whole = Catalog(self.store, self.source.pipeline)
            main = whole.head().refs.get(MAIN)
            if main is not None:
                seen_by(whole.manifest(main), self.source.output)
        return published

    def manifest(self, snapshot: str) -> Manifest:
        """A snapshot as the output sees it. Raises MissingSnapshotError, BrokenObjectError, UnknownOutputError."""
        manifest = self.catalog.manifest(snapshot)
        return manifest if self.source.output else seen_by(manifest, "")

    def known(self, snapshot: str | None) -> Manifest | None:
        """The same; None where it is not there any more, or None was given."""
        try:
            return None if snapshot is None else self.manifest(snapshot)
        except GONE:
            return None

    def is_line(self, before: Manifest, after: Manifest) -> bool:
        """Whether ``after`` is ``before`` and what came since: rows that no epoch between has touched are what they
        were, in the columns that are read, too.
        """
        called = ViewColumns.from_json(after.schema).names(View.CURRENT, come_to(before, ""))
        is_same = goes_on(before, after, "") and not any(field.place in called for field in self.source.fields.values())
        return is_same and self.catalog.is_ancestor(before.snapshot_id, after.snapshot_id)

    def common(self, one: Manifest | None, other: Manifest | None) -> int:
        """The last epoch that two lines have in common, as it is read; -1: none. None is the beginning."""
        if one is None or other is None:
            return -1
        return common_epoch(self.catalog, one, other, [field.place for field in self.source.fields.values()])

    def check(self, manifest: Manifest) -> None:
        """Raise UpstreamPanesError if a snapshot lacks a column, has one of another type, or gives panes of which a
        window's would all count.
        """
        where = f"{self.source} (snapshot {manifest.snapshot_id})"
        types = ViewColumns.from_json(manifest.schema).types(View.PANES)
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
    waits_for_the_end = when.get("is") in _ENDS and "early" not in when
    return not waits_for_the_end or how.get("allowed_lateness", 0) != 0
