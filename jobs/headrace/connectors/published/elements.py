"""The elements of a step: panes of the upstream with their signs, in the order in which they were emitted."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.kernel.types import arrow_type
from headrace.model.expressions.data_types import ValueType
from headrace.model.time import GLOBAL_WINDOW_END
from headrace.pipeline.upstream_source import IS_RETRACTION, OF_PANES, PANE_TIME
from headrace.read.diff.current_files import current_files, files_of, fold_of_current
from headrace.read.diff.later_panes import LaterPanes
from headrace.read.snapshots.progress import discards
from headrace.read.upstream import ReadPipeline, StepKind, UpstreamStep
from headrace.read.views.columns import View, ViewColumns
from headrace.read.views.database import database, identifier, no_rows, quoted, sql_types, working_folder
from headrace.read.views.row_files import PLACE, brought, newest_of
from headrace_snapshots.datafiles import verify
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.output_view import come_to
from headrace_snapshots.format.table_names import UNNAMED


@dataclass(frozen=True)
class StepElements:
    """The elements of steps along ``read``: the columns that its source reads, as they are called upstream."""

    read: ReadPipeline

    @property
    def types(self) -> dict[str, ValueType]:
        """The columns of panes that are read, with their types."""
        own = {field.place: field.type for field in self.read.source.fields.values()}
        return {**own, **OF_PANES}

    def of(self, step: UpstreamStep) -> pa.Table:
        """The elements of ``step``. Raises MissingSnapshotError, BrokenObjectError."""
        begin, end = (None if side is None else self.read.manifest(side) for side in (step.begin, step.end))
        if step.kind in (StepKind.PANES, StepKind.AGAIN):
            assert end is not None
            return self._panes(end, -1 if begin is None else come_to(begin, ""))
        if any(discards(side) for side in (begin, end) if side is not None):
            return self._taken_back(begin, end)
        return self._difference(begin, end)

    def _panes(self, end: Manifest, since: int) -> pa.Table:
        """Panes and retractions of the epochs after ``since``."""
        order = {name: pa.int64() for name in PLACE}
        schema = pa.schema([*((name, arrow_type(kind)) for name, kind in self.types.items()), *order.items()])
        tables = [schema.empty_table(), *self._tables(end, since, schema)]
        rows = pa.concat_tables(tables)
        return rows.take(pc.sort_indices(rows, [(name, "ascending") for name in PLACE])).select([*self.types])

    def _tables(self, end: Manifest, since: int, schema: pa.Schema) -> Iterator[pa.Table]:
        later = LaterPanes.of(self.read.catalog, end, since)
        for epoch, file in later.by_epoch:
            names = later.columns.names(View.PANES, epoch)
            then = {name: names.get(name, name) for name in schema.names}
            content = pa.BufferReader(verify(self.read.store, file))
            columns = [name for name in then.values() if name is not None]
            yield _in_form(pq.read_table(content, columns=columns, use_threads=False), then, schema)

    def _taken_back(self, begin: Manifest | None, end: Manifest | None) -> pa.Table:
        """Each pane of one line beyond what both have the other way round, then those of the other line."""
        since = self.read.common(begin, end)
        back = [] if begin is None else [_inverse(self._panes(begin, since))]
        on = [] if end is None else [self._panes(end, since)]
        return pa.concat_tables([*back, *on])

    def _difference(self, begin: Manifest | None, end: Manifest | None) -> pa.Table:
        """Rows that readers saw at one snapshot and do not see at the other, withdrawn; then those that are new."""
        sides = [side for side in (begin, end) if side is not None]
        files = {file.path: file for side in sides for file in files_of(side, UNNAMED.current)}
        with working_folder() as folder:
            local = dict(zip(files, brought(self.read.store, [*files.values()], folder), strict=True))
            with database(folder, [*local.values()], is_for_us=True) as connection:
                before, after = (self._rows(side, local) for side in (begin, end))
                columns = quoted(name for name in self.types if name != IS_RETRACTION)
                connection.execute(f"create temp table headrace_before as {before}")
                connection.execute(f"create temp table headrace_after as {after}")
                apart = " union all ".join(
                    f"(select {columns}, {sign} as {IS_RETRACTION} from "
                    f"(select {columns} from headrace_{one} except all select {columns} from headrace_{other}))"
                    for one, other, sign in (("before", "after", "true"), ("after", "before", "false"))
                )
                rows = connection.sql(f"select * from ({apart}) order by {IS_RETRACTION} desc, {columns}")
                table = rows.to_arrow_table()
        schema = pa.schema([(name, arrow_type(kind)) for name, kind in self.types.items()])
        return _in_form(table, {name: name for name in schema.names}, schema)

    def _rows(self, manifest: Manifest | None, local: Mapping[str, Path]) -> str:
        """The rows that readers see at a snapshot (SQL). A column that had not come by then is NULL."""
        shown = {name: kind for name, kind in self.types.items() if name != IS_RETRACTION}
        if manifest is None or not files_of(manifest, UNNAMED.current):
            return no_rows(shown)
        columns = ViewColumns.from_json(manifest.schema)
        known = columns.types(View.CURRENT)
        there = [name for name in shown if name in known]
        fold = fold_of_current(columns, there)
        rows = newest_of(fold.rows(current_files(manifest, local, fold)), there, columns.identity)
        later = sql_types({name: kind for name, kind in shown.items() if name not in known})
        nulls = "".join(f", cast(null as {kind}) as {identifier(name)}" for name, kind in later.items())
        return f"select *{nulls} from ({rows})" if nulls else rows


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
