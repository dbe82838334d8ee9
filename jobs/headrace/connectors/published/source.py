"""Another pipeline as a source: the port of sources over its catalog and its files.

What there is to read of an upstream since the snapshot that was consumed, as steps from one to the next.

The elements of a step: panes of the upstream with their signs, in the order in which they were emitted.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.connectors.published.definition import PublishedSource
from headrace.errors import RestoreError
from headrace.ext import sources as source_ports
from headrace.kernel.columns import arrow_type
from headrace.model.accumulation import EVENT_TIME
from headrace.model.expressions.data_types import DataType, ValueType
from headrace.model.time import GLOBAL_WINDOW_END, MIN_INSTANT, Instant, instant
from headrace.pipeline.endpoints import Source
from headrace.pipeline.upstream_source import IS_RETRACTION, OF_PANES, PANE_TIME
from headrace.read import upstream
from headrace.read.diff.layered_tables import LaterPanes, current_files, files_of, fold_of_current
from headrace.read.snapshots.progress import discards, has_panes
from headrace.read.views.columns import View, ViewColumns
from headrace.read.views.database import database, identifier, no_rows, quoted, sql_types, working_folder
from headrace.read.views.row_files import PLACE, SIGN, brought, signs_of
from headrace_snapshots.datafiles import verify
from headrace_snapshots.errors import RefusedError
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.format.manifest import UNNAMED, Manifest
from headrace_snapshots.format.output_view import come_to
from headrace_snapshots.store import ObjectStore

if TYPE_CHECKING:
    from headrace.formats.file_format import RequiredColumns, ScannedRecords, Span


@dataclass(frozen=True)
class StepElements:
    """The elements of steps along ``read``: the columns that its source reads, as they are called upstream."""

    read: upstream.ReadPipeline

    @property
    def types(self) -> dict[str, ValueType]:
        """The columns of panes that are read, with their types."""
        own = {field.place: field.type for field in self.read.source.fields.values()}
        return {**own, **OF_PANES}

    def of(self, step: upstream.UpstreamStep) -> pa.Table:
        """The elements of ``step``. Raises MissingSnapshotError, BrokenObjectError."""
        begin, end = (None if side is None else self.read.manifest(side) for side in (step.begin, step.end))
        if step.kind in (upstream.StepKind.PANES, upstream.StepKind.AGAIN):
            assert end is not None
            return self._panes(end, -1 if begin is None else come_to(begin, ""))
        if any(discards(side) for side in (begin, end) if side is not None):
            return self._taken_back(begin, end)
        return self._difference(begin, end)

    def _panes(self, end: Manifest, since: int) -> pa.Table:
        """Panes and retractions of the epochs after ``since``."""
        types = {**self.types, **dict.fromkeys(PLACE, DataType.INT)}
        schema = pa.schema([(name, arrow_type(kind)) for name, kind in types.items()])
        tables = [schema.empty_table(), *self._tables(end, since, schema)]
        rows = pa.concat_tables(tables)
        return rows.take(pc.sort_indices(rows, [(name, "ascending") for name in PLACE])).select([*self.types])

    def _tables(self, end: Manifest, since: int, schema: pa.Schema) -> Iterator[pa.Table]:
        later = LaterPanes.of(self.read.catalog, end, since)
        for epoch, file in later.by_epoch:
            names = later.columns.names(View.PANES, epoch)
            places = {name: _place(later.columns, name) for name in schema.names}
            then = {name: None if place is None else names.get(place, place) for name, place in places.items()}
            content = pa.BufferReader(verify(self.read.store, file))
            columns = [name for name in dict.fromkeys(then.values()) if name is not None]
            yield _in_form(pq.read_table(content, columns=columns, use_threads=False), then, schema)

    def _taken_back(self, begin: Manifest | None, end: Manifest | None) -> pa.Table:
        """Each pane of one line beyond what both have the other way round, then those of the other line."""
        since = self.read.common(begin, end)
        back = [] if begin is None else [_inverse(self._panes(begin, since))]
        on = [] if end is None else [self._panes(end, since)]
        return pa.concat_tables([*back, *on])

    def _difference(self, begin: Manifest | None, end: Manifest | None) -> pa.Table:
        """Rows of one snapshot that the other does not have, withdrawn; then those that are new. A withdrawal whose row
        has not come is one less of it.
        """
        sides = [side for side in (begin, end) if side is not None]
        files = {file.path: file for side in sides for file in files_of(side, UNNAMED.current)}
        with working_folder() as folder:
            local = dict(zip(files, brought(self.read.store, [*files.values()], folder), strict=True))
            with database(folder, [*local.values()], is_for_us=True) as connection:
                before, after = (self._signs(side, local) for side in (begin, end))
                columns = quoted(self._shown)
                apart = (
                    f"select {columns}, sum({SIGN})::bigint as {SIGN} from "
                    f"({after} union all select {columns}, -{SIGN} from ({before})) group by {columns}"
                )
                changes = f"select {columns}, {SIGN} < 0 as {IS_RETRACTION}, unnest(range(abs({SIGN}))) from ({apart})"
                table = connection.sql(f"{changes} order by {IS_RETRACTION} desc, {columns}").to_arrow_table()
        schema = pa.schema([(name, arrow_type(kind)) for name, kind in self.types.items()])
        return _in_form(table, {name: name for name in schema.names}, schema)

    @property
    def _shown(self) -> dict[str, ValueType]:
        """The columns that are read of a row, beside its sign."""
        return {name: kind for name, kind in self.types.items() if name != IS_RETRACTION}

    def _signs(self, manifest: Manifest | None, local: Mapping[str, Path]) -> str:
        """The rows of a snapshot with their signs (SQL). A column that had not come by then is NULL."""
        shown = self._shown
        if manifest is None or not files_of(manifest, UNNAMED.current):
            return no_rows({**shown, SIGN: DataType.INT})
        columns = ViewColumns.from_json(manifest.schema)
        places = {name: _place(columns, name) for name in shown}
        there = [*dict.fromkeys(place for place in places.values() if place is not None)]
        fold = fold_of_current(columns, there)
        signs = signs_of(fold.rows(current_files(manifest, local, fold)), there, columns)
        selected = (
            f"{f'cast(null as {kind})' if (place := places[name]) is None else identifier(place)} as {identifier(name)}"
            for name, kind in sql_types(shown).items()
        )
        return f"select {', '.join(selected)}, {SIGN} from ({signs})"


def _place(columns: ViewColumns, name: str) -> str | None:
    """What a snapshot calls the column that is read as ``name``; None: it has none. Of a row the event time says when
    it is, where it has no column of its own of that name.
    """
    known = columns.types(View.CURRENT)
    if columns.are_rows and name in OF_PANES and name not in known:
        return EVENT_TIME
    return name if name in known else None


def _in_form(table: pa.Table, names: Mapping[str, str | None], schema: pa.Schema) -> pa.Table:
    """``table`` in the form of ``schema``, whose columns it calls by ``names``; None: it has no such column."""
    columns = [
        pa.nulls(table.num_rows, field.type) if (name := names[field.name]) is None else table[name].cast(field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _inverse(panes: pa.Table) -> pa.Table:
    place = panes.schema.get_field_index(IS_RETRACTION)
    return panes.set_column(place, IS_RETRACTION, pc.invert(panes[IS_RETRACTION]))


def with_times(panes: pa.Table) -> pa.Table:
    """``panes`` with a time where readers see none, since it is beyond the calendar: at the end of a global window."""
    place = panes.schema.get_field_index(PANE_TIME)
    times = panes[PANE_TIME]
    last = pa.scalar(int(GLOBAL_WINDOW_END) - 1, pa.int64()).cast(times.type)
    return panes.set_column(place, PANE_TIME, pc.fill_null(times, last))


class UpstreamExpiredError(RestoreError, code="restore.upstream_expired"):
    """The snapshot of another pipeline that a reader has consumed is gone, so nobody can say what has changed since."""


@dataclass(frozen=True)
class StepEnumerator(source_ports.SplitEnumerator):
    """Finds the steps of ``read``."""

    read: upstream.ReadPipeline

    def unread(
        self, position: source_ports.SourcePosition, read: Collection[str] | None = None
    ) -> Iterator[source_ports.SourceSplit]:
        """The steps to what is published now. ``read`` says nothing: what counts is where one has come to.

        Raises UpstreamExpiredError, UpstreamPanesError.
        """
        at, published = upstream.UpstreamPosition.from_mark(position.mark), self.read.published()
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

    def _consumed(self, at: upstream.UpstreamPosition | None) -> Manifest | None:
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

    def _begun(self, end: Manifest, *, is_again: bool) -> Iterator[source_ports.SourceSplit]:
        """The steps of a reader that has nothing of the upstream (again: any more, since that had gone back)."""
        if not discards(end):
            kind = upstream.StepKind.DIFFERENCE if is_again else upstream.StepKind.ROWS
            yield self._split(kind, None, end, sum(file.bytes for file in files_of(end, UNNAMED.current)))
            return
        if is_again:
            yield self._difference(None, end)
        else:
            self._check_panes([end], -1)
            yield from self._along(None, end, MIN_INSTANT)

    def _along(self, before: Manifest | None, end: Manifest, reached: Instant) -> Iterator[source_ports.SourceSplit]:
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
            is_behind = before is not None and upstream.output_watermark(before) < reached
            kind = upstream.StepKind.AGAIN if is_patched or is_behind else upstream.StepKind.PANES
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

    def _difference(self, before: Manifest | None, end: Manifest | None) -> source_ports.SourceSplit:
        sides = [side for side in (before, end) if side is not None]
        files = {file.path: file for side in sides for file in files_of(side, UNNAMED.current)}
        if any(map(discards, sides)):
            self._check_panes(sides, self.read.common(before, end))
        return self._split(upstream.StepKind.DIFFERENCE, before, end, sum(file.bytes for file in files.values()))

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

    def _split(
        self, kind: upstream.StepKind, before: Manifest | None, end: Manifest | None, size: int
    ) -> source_ports.SourceSplit:
        begin = None if before is None else before.snapshot_id
        if end is None:
            return upstream.UpstreamStep(self._name, kind, begin, None, -1).to_split(size, "")
        return upstream.UpstreamStep(self._name, kind, begin, end.snapshot_id, end.epoch).to_split(
            size, end.fingerprint
        )

    @property
    def _name(self) -> str:
        return self.read.source.upstream

    def after(
        self, position: source_ports.SourcePosition, splits: Sequence[source_ports.SourceSplit]
    ) -> source_ports.SourcePosition:
        """The position once ``splits`` have been read. Their watermarks were asked for before."""
        if not splits:
            return position
        source = self.read.source
        begun = upstream.UpstreamPosition.begun(self.read.store.uri, source.pipeline, source.output)
        at = upstream.UpstreamPosition.from_mark(position.mark) or begun
        for split in splits:
            step = upstream.UpstreamStep.of(split)
            at = at.moved(split.etag, step.end, step.epoch, self._watermark(step))
        return position.passed(at.to_mark(), splits)

    def watermarks(self, split: source_ports.SourceSplit) -> Mapping[str, Instant]:
        """The output watermark of the snapshot at which the step ends. Raises SplitGoneError."""
        return {"": self._watermark(upstream.UpstreamStep.of(split))}

    def _watermark(self, step: upstream.UpstreamStep) -> Instant:
        if step.end is None:
            return MIN_INSTANT
        try:
            return upstream.output_watermark(self.read.manifest(step.end))
        except upstream.GONE as error:
            where = f"{self.read.source}, snapshot {step.end}"
            raise source_ports.SplitGoneError(where, f"is gone ({error})", self.read.begins_again) from error

    def is_correction(self, split: source_ports.SourceSplit) -> bool:
        """Whether the step takes back, or repeats."""
        return upstream.UpstreamStep.of(split).kind.counts_again

    def is_lost(self, split: source_ports.SourceSplit, unread: Mapping[str, source_ports.SourceSplit]) -> bool:
        """Never: who is at an older snapshot finds what has changed since."""
        return False

    def missing(self, splits: Iterable[source_ports.SourceSplit]) -> Iterator[tuple[source_ports.SourceSplit, str]]:
        """Steps of which a snapshot has expired upstream."""
        for split in splits:
            step = upstream.UpstreamStep.of(split)
            gone = [side for side in (step.begin, step.end) if side is not None and self.read.known(side) is None]
            if gone:
                yield split, f"is gone: snapshot {gone[0]} of {self.read.source.upstream} has expired"

    def newest(self, position: source_ports.SourcePosition) -> Instant | None:
        """When the snapshot that is published now was made, unless that is where one has come to."""
        at, published = upstream.UpstreamPosition.from_mark(position.mark), self.read.published()
        if published is None or (at is not None and at.snapshot == published):
            return None
        return instant(datetime.fromisoformat(self.read.manifest(published).created_at))

    def explain(self) -> str:
        """Where nothing is published."""
        return f"nothing is published yet of {self.read.source.upstream} under {self.read.store.uri}"


@dataclass(frozen=True)
class StepReader(source_ports.SourceReader):
    """Reads steps along ``pipeline``."""

    pipeline: upstream.ReadPipeline

    def read(self, split: source_ports.SourceSplit, span: "Span", required: "RequiredColumns") -> "ScannedRecords":
        """The panes of a step, each at its number. Raises SplitGoneError."""
        import numpy as np
        import pyarrow as pa

        from headrace.formats.fields import as_json
        from headrace.formats.file_format import ScannedRecords

        del span, required  # it is read whole, and whether it has all columns was looked at when it was planned
        source = self.pipeline.source
        try:
            panes = with_times(StepElements(self.pipeline).of(upstream.UpstreamStep.of(split)))
        except upstream.GONE as error:
            raise source_ports.SplitGoneError(
                f"{source}, {split.path}", f"is gone ({error})", self.pipeline.begins_again
            ) from error
        flat = {name: panes[field.place].combine_chunks() for name, field in source.fields.items()}
        rows = panes.num_rows
        return ScannedRecords(flat, pa.nulls(rows, pa.string()), np.arange(rows), lambda chosen: as_json(flat, chosen))


class PublishedConnector(source_ports.SourceConnector):
    """Other pipelines."""

    format: ClassVar[int] = upstream.FORMAT
    repeats: ClassVar[bool] = False

    def open(self, source: Source, root: ObjectStore) -> source_ports.OpenSource:
        """``source`` below ``root``, or where it says."""
        return self.open_for("", source, root)

    def open_for(self, pipeline: str, source: Source, root: ObjectStore) -> source_ports.OpenSource:
        """The same, for the reader ``pipeline``."""
        assert isinstance(source, PublishedSource)
        read = upstream.ReadPipeline(source, root, pipeline)
        return source_ports.OpenSource(StepEnumerator(read), StepReader(read))


CONNECTOR: Final = PublishedConnector()
