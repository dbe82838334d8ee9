"""Another pipeline as a source: the port of sources over its catalog and its files.

What there is to read of an upstream since the snapshot that was consumed, as steps from one to the next.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, Final

from headrace.connectors.published.definition import PublishedSource
from headrace.errors import RestoreError
from headrace.ext.sources import (
    OpenSource,
    SourceConnector,
    SourcePosition,
    SourceReader,
    SourceSplit,
    SplitEnumerator,
    SplitGoneError,
)
from headrace.model.time import MIN_INSTANT, Instant, instant
from headrace.pipeline.source import Source
from headrace.read.diff.current_files import files_of
from headrace.read.snapshots.named_panes import has_panes
from headrace.read.snapshots.progress import discards
from headrace.read.upstream import (
    FORMAT,
    GONE,
    ReadPipeline,
    StepKind,
    UpstreamPosition,
    UpstreamStep,
    output_watermark,
)
from headrace_snapshots.errors import RefusedError
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.output_view import come_to
from headrace_snapshots.format.table_names import UNNAMED
from headrace_snapshots.store import ObjectStore

if TYPE_CHECKING:
    from headrace.formats.file_format import RequiredColumns, ScannedRecords, Span


class UpstreamExpiredError(RestoreError, code="restore.upstream_expired"):
    """The snapshot of another pipeline that a reader has consumed is gone, so nobody can say what has changed since."""


@dataclass(frozen=True)
class StepEnumerator(SplitEnumerator):
    """Finds the steps of ``read``."""

    read: ReadPipeline

    def unread(self, position: SourcePosition, read: Collection[str] | None = None) -> Iterator[SourceSplit]:
        """The steps to what is published now. ``read`` says nothing: what counts is where one has come to.

        Raises UpstreamExpiredError, UpstreamPanesError.
        """
        at, published = UpstreamPosition.from_mark(position.mark), self.read.published()
        begin = None if at is None else at.snapshot
        if published == begin:
            return
        end = None if published is None else self.read.manifest(published)
        if end is not None:
            self.read.check(end)
        before = self._consumed(at)
        if before is None and end is not None and (at is None or at.snapshot is None):
            yield from self._begun(end, is_again=at is not None)
        elif before is not None and end is not None and self.read.is_line(before, end):
            yield from self._along(before, end, MIN_INSTANT if at is None else at.reached)
        else:
            yield self._difference(before, end)

    def _consumed(self, at: UpstreamPosition | None) -> Manifest | None:
        """The snapshot that was consumed; None at the beginning."""
        if at is None or at.snapshot is None:
            return None
        manifest = self.read.known(at.snapshot)
        if manifest is None:
            raise UpstreamExpiredError(
                f"{self.read.source}: snapshot {at.snapshot} (epoch {at.epoch}), which was read last, is gone, so what "
                f"has changed since cannot be told. {self.read.begins_again}"
            )
        return manifest

    def _begun(self, end: Manifest, *, is_again: bool) -> Iterator[SourceSplit]:
        """The steps of a reader that has nothing of the upstream (again: any more, since that had gone back)."""
        if not discards(end):
            kind = StepKind.DIFFERENCE if is_again else StepKind.ROWS
            yield self._split(kind, None, end, sum(file.bytes for file in files_of(end, UNNAMED.current)))
            return
        if is_again:
            yield self._difference(None, end)
        else:
            self._check_panes([end], -1)
            yield from self._along(None, end, MIN_INSTANT)

    def _along(self, before: Manifest | None, end: Manifest, reached: Instant) -> Iterator[SourceSplit]:
        """A step to each snapshot of a line that is kept, oldest first. Watermarks have ``reached`` so far before."""
        sizes = self._sizes(end, before)
        for manifest in self._line(before, end):
            since = -1 if before is None else come_to(before, "")
            has_gap = before is not None and manifest.parent != before.snapshot_id
            if has_gap and not has_panes(self.read.catalog, manifest, since):
                yield self._difference(before, manifest)
                before = manifest
                continue
            size = sum(own for epoch, own in sizes.items() if since < epoch <= come_to(manifest, ""))
            patch = manifest.patch
            is_patched = before is not None and patch is not None and since < patch.epoch <= manifest.epoch
            is_behind = before is not None and output_watermark(before) < reached
            kind = StepKind.AGAIN if is_patched or is_behind else StepKind.PANES
            yield self._split(kind, before, manifest, size)
            before = manifest

    def _line(self, before: Manifest | None, end: Manifest) -> list[Manifest]:
        if before is None:
            return self.read.catalog.whole_ancestry(end.snapshot_id)[::-1]
        try:
            return self.read.catalog.whole_ancestry(end.snapshot_id, before.snapshot_id)[::-1]
        except RefusedError:  # the line goes on past it since some of what lies between has expired
            return [end]

    def _sizes(self, end: Manifest, before: Manifest | None) -> Mapping[int, int]:
        """Bytes of panes by epoch, of those after ``before``."""
        since = -1 if before is None else come_to(before, "")
        records = self.read.catalog.files(end.logs[UNNAMED.panes], since_epoch=since)
        return {
            record.epoch: sum(file.bytes for file in record.files if isinstance(file, DataFile)) for record in records
        }

    def _difference(self, before: Manifest | None, end: Manifest | None) -> SourceSplit:
        sides = [side for side in (before, end) if side is not None]
        files = {file.path: file for side in sides for file in files_of(side, UNNAMED.current)}
        if any(map(discards, sides)):
            self._check_panes(sides, self.read.common(before, end))
        return self._split(StepKind.DIFFERENCE, before, end, sum(file.bytes for file in files.values()))

    def _check_panes(self, sides: Iterable[Manifest], since: int) -> None:
        """Raise UpstreamExpiredError if panes after epoch ``since`` have expired of an upstream whose rows do not have
        what they had.
        """
        for side in sides:
            if not has_panes(self.read.catalog, side, since):
                raise UpstreamExpiredError(
                    f"{self.read.source}: panes after epoch {since} of snapshot {side.snapshot_id} have expired, and "
                    "where panes are discarded rows do not have what they had. Read a pipeline that is retracting()"
                )

    def _split(self, kind: StepKind, before: Manifest | None, end: Manifest | None, size: int) -> SourceSplit:
        begin = None if before is None else before.snapshot_id
        if end is None:
            return UpstreamStep(self._name, kind, begin, None, -1).to_split(size, "")
        return UpstreamStep(self._name, kind, begin, end.snapshot_id, end.epoch).to_split(size, end.fingerprint)

    @property
    def _name(self) -> str:
        return self.read.source.upstream

    def after(self, position: SourcePosition, splits: Sequence[SourceSplit]) -> SourcePosition:
        """The position once ``splits`` have been read. Their watermarks were asked for before."""
        if not splits:
            return position
        source = self.read.source
        begun = UpstreamPosition.begun(self.read.store.uri, source.pipeline, source.output)
        at = UpstreamPosition.from_mark(position.mark) or begun
        for split in splits:
            step = UpstreamStep.of(split)
            at = at.moved(split.etag, step.end, step.epoch, self._watermark(step))
        return position.passed(at.to_mark(), splits)

    def watermarks(self, split: SourceSplit) -> Mapping[str, Instant]:
        """The output watermark of the snapshot at which the step ends. Raises SplitGoneError."""
        return {"": self._watermark(UpstreamStep.of(split))}

    def _watermark(self, step: UpstreamStep) -> Instant:
        if step.end is None:
            return MIN_INSTANT
        try:
            return output_watermark(self.read.manifest(step.end))
        except GONE as error:
            where = f"{self.read.source}, snapshot {step.end}"
            raise SplitGoneError(where, f"is gone ({error})", self.read.begins_again) from error

    def is_correction(self, split: SourceSplit) -> bool:
        """Whether the step takes back, or repeats."""
        return UpstreamStep.of(split).kind.counts_again

    def is_lost(self, split: SourceSplit, unread: Mapping[str, SourceSplit]) -> bool:
        """Never: who is at an older snapshot finds what has changed since."""
        return False

    def missing(self, splits: Iterable[SourceSplit]) -> Iterator[tuple[SourceSplit, str]]:
        """Steps of which a snapshot has expired upstream."""
        for split in splits:
            step = UpstreamStep.of(split)
            gone = [side for side in (step.begin, step.end) if side is not None and self.read.known(side) is None]
            if gone:
                yield split, f"is gone: snapshot {gone[0]} of {self.read.source.upstream} has expired"

    def newest(self, position: SourcePosition) -> Instant | None:
        """When the snapshot that is published now was made, unless that is where one has come to."""
        at, published = UpstreamPosition.from_mark(position.mark), self.read.published()
        if published is None or (at is not None and at.snapshot == published):
            return None
        return instant(datetime.fromisoformat(self.read.manifest(published).created_at))

    def explain(self) -> str:
        """Where nothing is published."""
        return f"nothing is published yet of {self.read.source.upstream} under {self.read.store.uri}"


@dataclass(frozen=True)
class StepReader(SourceReader):
    """Reads steps along ``pipeline``."""

    pipeline: ReadPipeline

    def read(self, split: SourceSplit, span: "Span", required: "RequiredColumns") -> "ScannedRecords":
        """The panes of a step, each at its number. Raises SplitGoneError."""
        import numpy as np
        import pyarrow as pa

        from headrace.connectors.published.elements import StepElements, with_times
        from headrace.formats.fields import as_json
        from headrace.formats.file_format import ScannedRecords

        del span, required  # it is read whole, and whether it has all columns was looked at when it was planned
        source = self.pipeline.source
        try:
            panes = with_times(StepElements(self.pipeline).of(UpstreamStep.of(split)))
        except GONE as error:
            raise SplitGoneError(f"{source}, {split.path}", f"is gone ({error})", self.pipeline.begins_again) from error
        flat = {name: panes[field.place].combine_chunks() for name, field in source.fields.items()}
        rows = panes.num_rows
        return ScannedRecords(flat, pa.nulls(rows, pa.string()), np.arange(rows), lambda chosen: as_json(flat, chosen))


class PublishedConnector(SourceConnector):
    """Other pipelines."""

    format: ClassVar[int] = FORMAT
    repeats: ClassVar[bool] = False

    def open(self, source: Source, root: ObjectStore) -> OpenSource:
        """``source`` below ``root``, or where it says."""
        return self.open_for("", source, root)

    def open_for(self, pipeline: str, source: Source, root: ObjectStore) -> OpenSource:
        """The same, for the reader ``pipeline``."""
        assert isinstance(source, PublishedSource)
        read = ReadPipeline(source, root, pipeline)
        return OpenSource(StepEnumerator(read), StepReader(read))


CONNECTOR: Final = PublishedConnector()
