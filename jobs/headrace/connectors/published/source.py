"""Another pipeline as a source: the port of sources over its catalog and its files.

A step is what there is to read from one snapshot of the upstream to the next, beginning with the one that was consumed.
Its elements are panes of the upstream with their signs, in the order in which they were emitted.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
from headrace.model.time import GLOBAL_WINDOW_END, MIN_INSTANT, Instant, to_instant
from headrace.pipeline.endpoints import Source
from headrace.pipeline.sources import IS_RETRACTION, OF_PANES, PANE_TIME
from headrace.read import upstream
from headrace.read.diff.layered_tables import LaterPanes, current_files, files_of, fold_of_current
from headrace.read.snapshots.progress import has_discarding_panes, has_panes, is_patched
from headrace.read.views.columns import Folding, View, ViewColumns
from headrace.read.views.database import no_rows, open_database, sql_columns, sql_identifier, sql_types, working_folder
from headrace.read.views.row_files import PLACE, SIGN, local_paths, signs_of
from headrace_snapshots.datafiles import read_verified
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

    def read_step(self, step: upstream.UpstreamStep) -> pa.Table:
        """The elements of ``step``. Raises MissingSnapshotError, BrokenObjectError."""
        begin, end = (None if side is None else self.read.manifest(side) for side in (step.begin, step.end))
        if step.kind in (upstream.StepKind.PANES, upstream.StepKind.AGAIN):
            assert end is not None
            return self._read_panes(end, -1 if begin is None else come_to(begin, ""))
        if any(has_discarding_panes(side) for side in (begin, end) if side is not None):
            return self._taken_back(begin, end)
        return self._difference_rows(begin, end)

    def _read_panes(self, end: Manifest, since_epoch: int) -> pa.Table:
        """Panes and retractions of the epochs after ``since_epoch``."""
        types = {**self.types, **dict.fromkeys(PLACE, DataType.INT)}
        schema = pa.schema([(name, arrow_type(kind)) for name, kind in types.items()])
        tables = [schema.empty_table(), *self._pane_tables(end, since_epoch, schema)]
        rows = pa.concat_tables(tables)
        return rows.take(pc.sort_indices(rows, [(name, "ascending") for name in PLACE])).select([*self.types])

    def _pane_tables(self, end: Manifest, since_epoch: int, schema: pa.Schema) -> Iterator[pa.Table]:
        later_panes = LaterPanes.from_manifest(self.read.catalog, end, since_epoch)
        for epoch, file in later_panes.by_epoch:
            names = later_panes.columns.names_in_epoch(View.PANES, epoch)
            places = {name: _snapshot_column(later_panes.columns, name) for name in schema.names}
            names_then = {name: None if place is None else names.get(place, place) for name, place in places.items()}
            content = pa.BufferReader(read_verified(self.read.store, file))
            columns = [name for name in dict.fromkeys(names_then.values()) if name is not None]
            yield _in_form(pq.read_table(content, columns=columns, use_threads=False), names_then, schema)

    def _taken_back(self, begin: Manifest | None, end: Manifest | None) -> pa.Table:
        """Each pane of one line beyond what both have the other way round, then those of the other line."""
        since_epoch = self.read.common_epoch(begin, end)
        tables_taken_back = [] if begin is None else [_invert_retractions(self._read_panes(begin, since_epoch))]
        tables_added = [] if end is None else [self._read_panes(end, since_epoch)]
        return pa.concat_tables([*tables_taken_back, *tables_added])

    def _difference_rows(self, begin: Manifest | None, end: Manifest | None) -> pa.Table:
        """Rows of one snapshot that the other does not have, withdrawn; then those that are new. A withdrawal whose row
        has not come is one less of it.
        """
        sides = [side for side in (begin, end) if side is not None]
        files = {file.path: file for side in sides for file in files_of(side, UNNAMED.current)}
        with working_folder() as folder:
            local = dict(zip(files, local_paths(self.read.store, [*files.values()], folder), strict=True))
            with open_database(folder, [*local.values()], is_for_us=True) as connection:
                begin_query, end_query = (self._signed_rows_query(side, local) for side in (begin, end))
                columns = sql_columns(self._row_columns)
                difference_query = (
                    f"select {columns}, sum({SIGN})::bigint as {SIGN} from "
                    f"({end_query} union all select {columns}, -{SIGN} from ({begin_query})) group by {columns}"
                )
                changes = (
                    f"select {columns}, {SIGN} < 0 as {IS_RETRACTION}, unnest(range(abs({SIGN}))) from "
                    f"({difference_query})"
                )
                table = connection.sql(f"{changes} order by {IS_RETRACTION} desc, {columns}").to_arrow_table()
        schema = pa.schema([(name, arrow_type(kind)) for name, kind in self.types.items()])
        return _in_form(table, {name: name for name in schema.names}, schema)

    @property
    def _row_columns(self) -> dict[str, ValueType]:
        """The columns that are read of a row, beside its sign."""
        return {name: kind for name, kind in self.types.items() if name != IS_RETRACTION}

    def _signed_rows_query(self, manifest: Manifest | None, local: Mapping[str, Path]) -> str:
        """The rows of a snapshot with their signs (SQL). A column that had not come by then is NULL."""
        shown_types = self._row_columns
        if manifest is None or not files_of(manifest, UNNAMED.current):
            return no_rows({**shown_types, SIGN: DataType.INT})
        columns = ViewColumns.from_json(manifest.schema)
        places = {name: _snapshot_column(columns, name) for name in shown_types}
        existing_columns = [*dict.fromkeys(place for place in places.values() if place is not None)]
        fold = fold_of_current(columns, existing_columns)
        signs = signs_of(fold.records_sql(current_files(manifest, local, fold)), existing_columns, columns)
        selected_columns = (
            f"{f'cast(null as {kind})' if (place := places[name]) is None else sql_identifier(place)} as "
            f"{sql_identifier(name)}"
            for name, kind in sql_types(shown_types).items()
        )
        return f"select {', '.join(selected_columns)}, {SIGN} from ({signs})"


def _snapshot_column(columns: ViewColumns, name: str) -> str | None:
    """What a snapshot calls the column read as ``name``, or None. Rows without it give event times for pane times."""
    known_types = columns.column_types(View.CURRENT)
    if columns.are_rows and name in OF_PANES and name not in known_types:
        return EVENT_TIME
    return name if name in known_types else None


def _in_form(table: pa.Table, names: Mapping[str, str | None], schema: pa.Schema) -> pa.Table:
    """``table`` in the form of ``schema``, whose columns it calls by ``names``; None: it has no such column."""
    columns = [
        pa.nulls(table.num_rows, field.type) if (name := names[field.name]) is None else table[name].cast(field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _invert_retractions(panes: pa.Table) -> pa.Table:
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
        position_read, published_id = upstream.UpstreamPosition.from_mark(position.mark), self.read.published_snapshot()
        begin = None if position_read is None else position_read.snapshot
        if published_id == begin:
            return
        end = None if published_id is None else self.read.manifest(published_id)
        if end is not None:
            self.read.check_snapshot(end)
        begin_manifest = self._consumed_snapshot(position_read)
        if begin_manifest is None and end is not None and (position_read is None or position_read.snapshot is None):
            yield from self._initial_splits(end, is_again=position_read is not None)
        elif begin_manifest is not None and end is not None and self.read.is_line(begin_manifest, end):
            yield from self._splits_along_line(
                begin_manifest, end, MIN_INSTANT if position_read is None else position_read.reached
            )
        else:
            yield self._difference_split(begin_manifest, end)

    def _consumed_snapshot(self, position_read: upstream.UpstreamPosition | None) -> Manifest | None:
        """The snapshot that was consumed; None at the beginning."""
        if position_read is None or position_read.snapshot is None:
            return None
        manifest = self.read.manifest_if_kept(position_read.snapshot)
        if manifest is None:
            raise UpstreamExpiredError(
                f"{self.read.source}: snapshot {position_read.snapshot} (epoch {position_read.epoch}), which was read "
                f"last, is gone, so what has changed since cannot be told. {self.read.begins_again}"
            )
        return manifest

    def _initial_splits(self, end: Manifest, *, is_again: bool) -> Iterator[source_ports.SourceSplit]:
        """The steps of a reader that has nothing of the upstream (again: any more, since that had gone back)."""
        if not has_discarding_panes(end):
            kind = upstream.StepKind.DIFFERENCE if is_again else upstream.StepKind.ROWS
            yield self._make_split(kind, None, end, sum(file.bytes for file in files_of(end, UNNAMED.current)))
            return
        if is_again:
            yield self._difference_split(None, end)
        else:
            self._check_panes([end], -1)
            yield from self._splits_along_line(None, end, MIN_INSTANT)

    def _splits_along_line(
        self, begin_manifest: Manifest | None, end: Manifest, reached_watermark: Instant
    ) -> Iterator[source_ports.SourceSplit]:
        """A step to each kept snapshot of a line, oldest first; watermarks have come to ``reached_watermark``."""
        sizes = self._pane_bytes(end, begin_manifest)
        for manifest in self._snapshots_between(begin_manifest, end):
            since_epoch = -1 if begin_manifest is None else come_to(begin_manifest, "")
            has_gap = begin_manifest is not None and manifest.parent != begin_manifest.snapshot_id
            if has_gap and not has_panes(self.read.catalog, manifest, since_epoch):
                yield self._difference_split(begin_manifest, manifest)
                begin_manifest = manifest
                continue
            size = sum(own for epoch, own in sizes.items() if since_epoch < epoch <= come_to(manifest, ""))
            was_patched = begin_manifest is not None and is_patched(manifest, since_epoch)
            is_behind = begin_manifest is not None and upstream.output_watermark(begin_manifest) < reached_watermark
            kind = upstream.StepKind.AGAIN if was_patched or is_behind else upstream.StepKind.PANES
            is_appended = ViewColumns.from_json(manifest.schema).folding is Folding.NOTHING
            if was_patched and is_appended:  # their readers may go by how a row came, which a withdrawal does not say
                yield self._difference_split(begin_manifest, manifest)
            else:
                yield self._make_split(kind, begin_manifest, manifest, size)
            begin_manifest = manifest

    def _snapshots_between(self, begin_manifest: Manifest | None, end: Manifest) -> list[Manifest]:
        if begin_manifest is None:
            return self.read.catalog.whole_ancestry(end.snapshot_id)[::-1]
        try:
            return self.read.catalog.whole_ancestry(end.snapshot_id, begin_manifest.snapshot_id)[::-1]
        except RefusedError:  # the line goes on past it since some of what lies between has expired
            return [end]

    def _pane_bytes(self, end: Manifest, begin_manifest: Manifest | None) -> Mapping[int, int]:
        """Bytes of panes by epoch, of those after ``begin_manifest``."""
        since_epoch = -1 if begin_manifest is None else come_to(begin_manifest, "")
        records = self.read.catalog.file_records(end.logs[UNNAMED.panes], since_epoch=since_epoch)
        return {
            record.epoch: sum(file.bytes for file in record.files if isinstance(file, DataFile)) for record in records
        }

    def _difference_split(self, begin_manifest: Manifest | None, end: Manifest | None) -> source_ports.SourceSplit:
        sides = [side for side in (begin_manifest, end) if side is not None]
        files = {file.path: file for side in sides for file in files_of(side, UNNAMED.current)}
        if any(map(has_discarding_panes, sides)):
            self._check_panes(sides, self.read.common_epoch(begin_manifest, end))
        return self._make_split(
            upstream.StepKind.DIFFERENCE, begin_manifest, end, sum(file.bytes for file in files.values())
        )

    def _check_panes(self, sides: Iterable[Manifest], since_epoch: int) -> None:
        """Raise UpstreamExpiredError if panes after epoch ``since_epoch`` have expired of an upstream whose rows do
        not have what they had.
        """
        for side in sides:
            if not has_panes(self.read.catalog, side, since_epoch):
                raise UpstreamExpiredError(
                    f"{self.read.source}: panes after epoch {since_epoch} of snapshot {side.snapshot_id} have expired, "
                    "and where panes are discarded rows do not have what they had. Read a pipeline that is retracting()"
                )

    def _make_split(
        self, kind: upstream.StepKind, begin_manifest: Manifest | None, end: Manifest | None, size: int
    ) -> source_ports.SourceSplit:
        begin = None if begin_manifest is None else begin_manifest.snapshot_id
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
        start_position = upstream.UpstreamPosition.from_beginning(self.read.store.uri, source.pipeline, source.output)
        read_position = upstream.UpstreamPosition.from_mark(position.mark) or start_position
        upstream_position = replace(read_position, root=start_position.root)  # its root may have been moved
        for split in splits:
            step = upstream.UpstreamStep.from_split(split)
            upstream_position = upstream_position.with_consumed(
                split.etag, step.end, step.epoch, self._step_watermark(step)
            )
        return position.passed(upstream_position.to_mark(), splits)

    def watermarks(self, split: source_ports.SourceSplit) -> Mapping[str, Instant]:
        """The output watermark of the snapshot at which the step ends. Raises SplitGoneError."""
        return {"": self._step_watermark(upstream.UpstreamStep.from_split(split))}

    def _step_watermark(self, step: upstream.UpstreamStep) -> Instant:
        if step.end is None:
            return MIN_INSTANT
        try:
            return upstream.output_watermark(self.read.manifest(step.end))
        except upstream.GONE_ERRORS as error:
            where = f"{self.read.source}, snapshot {step.end}"
            raise source_ports.SplitGoneError(where, f"is gone ({error})", self.read.begins_again) from error

    def is_correction(self, split: source_ports.SourceSplit) -> bool:
        """Whether the step takes back, or repeats."""
        return upstream.UpstreamStep.from_split(split).kind.counts_again

    def is_lost(self, split: source_ports.SourceSplit, unread: Mapping[str, source_ports.SourceSplit]) -> bool:
        """Never: who is at an older snapshot finds what has changed since."""
        return False

    def missing(self, splits: Iterable[source_ports.SourceSplit]) -> Iterator[tuple[source_ports.SourceSplit, str]]:
        """Steps of which a snapshot has expired upstream."""
        for split in splits:
            step = upstream.UpstreamStep.from_split(split)
            snapshots_gone = [
                side for side in (step.begin, step.end) if side is not None and self.read.manifest_if_kept(side) is None
            ]
            if snapshots_gone:
                yield split, f"is gone: snapshot {snapshots_gone[0]} of {self.read.source.upstream} has expired"

    def newest(self, position: source_ports.SourcePosition) -> Instant | None:
        """When the snapshot that is published now was made, unless that is where one has come to."""
        position_read, published_id = upstream.UpstreamPosition.from_mark(position.mark), self.read.published_snapshot()
        if published_id is None or (position_read is not None and position_read.snapshot == published_id):
            return None
        return to_instant(datetime.fromisoformat(self.read.manifest(published_id).created_at))

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
            panes = with_times(StepElements(self.pipeline).read_step(upstream.UpstreamStep.from_split(split)))
        except upstream.GONE_ERRORS as error:
            raise source_ports.SplitGoneError(
                f"{source}, {split.path}", f"is gone ({error})", self.pipeline.begins_again
            ) from error
        flat = {name: panes[field.place].combine_chunks() for name, field in source.fields.items()}
        rows = panes.num_rows
        return ScannedRecords(
            flat, pa.nulls(rows, pa.string()), np.arange(rows), lambda rows_chosen: as_json(flat, rows_chosen)
        )


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
