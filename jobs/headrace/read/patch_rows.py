"""The rows of ``current`` that differ between main and a branch, and the records of an output patch that replaces them.

``runs/publishing/patch`` has the theory. DuckDB finds the rows, in bounded memory.

``RowsPatch`` is for results that are rows: a multiset, so that what differs is how often each row is there. Signs add
up: a row is given, or withdrawn, as often as the branch has it more often, or less often, than main. Where rows can be
withdrawn anyway the records of the patch are a further layer of ``current``, as those of any epoch. Where they cannot,
all records of ``current`` stand: files of main are written again there without the rows that the patch withdraws. Rows
that it gives are added. So no reader has to add anything up after a patch. The log of panes has both, with their signs.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.model.accumulation import EVENT_TIME, FIRING_COLUMNS, WINDOW_END, WINDOW_START, Timing
from headrace.model.time import GLOBAL_WINDOW_END, MIN_INSTANT, Instant
from headrace.program import columns as c
from headrace.read.diff.layered_tables import (
    KIND,
    NEW_ROW,
    OLD_ROW,
    ChangeKind,
    LaterPanes,
    RowChange,
    RowCounts,
    files_of,
    read_changes,
)
from headrace.read.snapshots.progress import LastStage, RowOrigin
from headrace.read.views.arrow_types import python_rows
from headrace.read.views.columns import Folding, View, ViewColumns
from headrace.read.views.database import (
    no_rows,
    pack_struct,
    query_number,
    sql_columns,
    sql_identifier,
    sql_literal,
    sql_types,
)
from headrace.read.views.row_files import (
    IS_RETRACTION,
    PLACE,
    SIGN,
    NamedFile,
    newest_of,
    number_standing,
    open_database_of,
    parquet_rows_sql,
    rows_of,
    same_identity,
    signs_of,
    standing_of,
)
from headrace.state.files import put_rows
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.files import DataFile, Layer
from headrace_snapshots.format.manifest import UNNAMED, Manifest
from headrace_snapshots.store import ObjectStore

_LIVE, _IS_THERE, FATE = (f"_headrace_{name}" for name in ("live", "there", "fate"))
"""Columns and tables beside those of users, whose names do not begin so."""
BATCH_ROWS = 8_192
PATCHED_FATE = "patched"
"""The fate of a row that the patch changes."""


@dataclass(frozen=True)
class PatchComparison:
    """What is compared. ``patches`` are those epochs of main since the fork that are patches; what they made of windows
    that begin no later than ``newest_time_at_fork`` stays: the branch did not compute these, or not of all their
    elements. ``stage`` is the last one of both.
    """

    main: Manifest
    branch: Manifest
    patches: Collection[int]
    newest_time_at_fork: Instant
    stage: LastStage

    @property
    def expired_until(self) -> Instant:
        """Windows that end no later have expired on main."""
        return self.stage.expired_until(self.main)

    @property
    def expired_on_branch(self) -> Instant:
        """Windows that end no later have expired on the branch."""
        return self.stage.expired_until(self.branch)


class Left(StrEnum):
    """Why a row that differs stays as it is on main."""

    OPEN_ON_MAIN = "open on main"
    OPEN_ON_BRANCH = "open on the branch"
    PATCHED_SINCE = "patched since the branch was forked"


PatchRowsType = TypeVar("PatchRowsType", bound="PatchRows")


@contextmanager
def open_differing_rows(
    catalog: Catalog, comparison: PatchComparison, rows_type: type[PatchRowsType]
) -> Iterator[PatchRowsType]:
    """The rows that differ, as a ``rows_type`` finds them, as long as the context lasts. All files are verified. Raises
    BrokenObjectError, ReadResourcesError.
    """
    sides, stage = (comparison.main, comparison.branch), comparison.stage
    tables = [UNNAMED.current, *([stage.table] if stage.merging is not None else [])]
    patched_panes = rows_type.of_patches(catalog, comparison)
    files = [*(file for side in sides for name in tables for file in files_of(side, name)), *patched_panes.files]
    with open_database_of(catalog.store, files) as (connection, local):
        rows = rows_type(connection, comparison, local, patched_panes)
        rows.find_differing()
        yield rows


@dataclass(frozen=True)
class PatchRows:
    """Rows that differ, in a database; ``local``: where the files are, by path. ``patched_panes``: what is read of the
    panes of patches since the fork.
    """

    connection: duckdb.DuckDBPyConnection
    comparison: PatchComparison
    local: Mapping[str, Path]
    patched_panes: LaterPanes

    @classmethod
    def of_patches(cls, catalog: Catalog, comparison: PatchComparison) -> LaterPanes:
        """The panes of patches since the fork that are needed to tell which rows they made: none, as rows say it."""
        del catalog
        return LaterPanes(ViewColumns.from_json(comparison.main.schema), ())

    @property
    def columns(self) -> ViewColumns:
        """Columns of main; the branch has the same, both being of one definition."""
        return ViewColumns.from_json(self.comparison.main.schema)

    @property
    def _types(self) -> dict[str, str]:
        return sql_types(self.columns.column_types(View.CURRENT))

    @property
    def _identity(self) -> list[str]:
        return self.columns.identity

    @property
    def _keys(self) -> list[str]:
        return [*self.columns.keys]

    def find_differing(self) -> None:
        """Fill the table ``open_differing_rows``. It has the identity, what becomes of the row (its fate) and the kind
        of change. It has the record of main and the one that the patch would write; either may be NULL.
        """
        main, branch = (self._current_files(side) for side in (self.comparison.main, self.comparison.branch))
        differing_files = sorted({*main} ^ {*branch}, key=str)
        self.connection.execute(
            f"create temp table touched as select distinct {sql_columns(self._identity)} from "
            f"{self._records_sql(differing_files)}"
        )
        self.connection.execute(f"create temp table main_side as {self._newest_query(main, is_gone='false')}")
        self.connection.execute(f"create temp table branch_side as {self._newest_query(branch)}")
        self.connection.execute(f"create temp table differing as {self._differing_query()}")

    def row_counts(self) -> RowCounts:
        """Rows of ``current`` before and after the patch, and how many became what."""
        kinds = self._count_by(KIND, f"{FATE} = '{PATCHED_FATE}'")
        current = self._current_files(self.comparison.main)
        newest = newest_of(self._records_sql(current), self._identity, self._identity)
        count_before = query_number(self.connection, f"select count(*) from ({newest})")
        count_after = count_before + kinds.get(ChangeKind.ADDED, 0) - kinds.get(ChangeKind.REMOVED, 0)
        return RowCounts(count_before, count_after, **kinds)

    def left_counts(self) -> dict[Left, int]:
        """How many rows that differ stay as they are, and why."""
        return {Left(fate): number for fate, number in self._count_by(FATE, f"{FATE} <> '{PATCHED_FATE}'").items()}

    def first_changes(self, limit: int) -> list[RowChange]:
        """The first ``limit`` of the rows that the patch changes, by window and key."""
        return self._row_changes("differing", f"where {FATE} = '{PATCHED_FATE}'", limit)

    def count_unsettled(self) -> tuple[int, RowChange | None]:
        """How many of them overlap a window of their key that is still open, and the first of these. Where no windows
        merge none is in the way of another.
        """
        merging = self.comparison.stage.merging
        if merging is None:
            return 0, None
        keys = self._keys
        least = "<=" if merging.touching else "<"
        start, end = bound_in_granules(WINDOW_START, "d"), bound_in_granules(WINDOW_END, "d")
        overlap = f"{start} {least} o.{c.WINDOW_END} and o.{c.WINDOW_START} {least} {end}"
        if keys:
            overlap += f" and {same_identity('d', 'o', keys)}"
        self.connection.execute(
            f"create or replace temp table unsettled as select * from differing d where {FATE} = '{PATCHED_FATE}' "
            f"and exists (select 1 from ({self._open_windows_query()}) o where {overlap})"
        )
        first = self._row_changes("unsettled", "", 1)
        return query_number(self.connection, "select count(*) from unsettled"), first[0] if first else None

    def patch_records(self, epoch: int) -> "Iterator[pa.RecordBatch]":
        """The panes of the patch, as ``epoch``: of each row the retraction of what stands, then the new pane."""
        schema = self.columns.arrow_schema(View.PANES)
        order = sql_columns(self.columns.row_order(View.PANES))
        query = (
            f"select {sql_columns(schema.names)} from (select {self._record_fields(OLD_ROW, True, epoch, 0)} from "
            "differing "
            f"where {FATE} = '{PATCHED_FATE}' and {_LIVE} "
            f"union all select {self._record_fields(NEW_ROW, False, epoch, 1)} "
            f"from differing where {FATE} = '{PATCHED_FATE}' and {_IS_THERE}) order by {order}"
        )
        for batch in self.connection.sql(query).to_arrow_reader(BATCH_ROWS):
            yield batch.cast(schema)

    def layers_after(self, store: ObjectStore, name: str, files: tuple[DataFile, ...], epoch: int) -> tuple[Layer, ...]:
        """The layers of ``current`` after the patch, whose records are in ``files``; ``name``: of further ones."""
        del store, name
        return (*self.comparison.main.tables.get(UNNAMED.current, ()), Layer.from_files(files, epoch, epoch))

    def _count_by(self, group_column: str, condition: str) -> dict[str, int]:
        query = f"select {group_column}, count(*) from differing where {condition} group by all"
        return dict(self.connection.sql(query).fetchall())

    def _row_changes(self, table: str, condition: str, limit: int) -> list[RowChange]:
        columns = [*self.columns.values, *FIRING_COLUMNS]

        order = sql_columns(self.columns.row_order(View.CURRENT))
        old_row, new_row = (
            f"{pack_struct({name: _struct_field(side, name) for name in columns})} as {side}"
            for side in (OLD_ROW, NEW_ROW)
        )
        rows = self.connection.sql(
            f"select {sql_columns(self._identity)}, {KIND}, {old_row}, {new_row} from {table} {condition} "
            f"order by {order} limit {limit}"
        )
        return read_changes(rows, self._identity)

    def _current_files(self, manifest: Manifest | None) -> list[NamedFile]:
        """The files of ``current`` of a side, each with the names that it has for columns."""
        if manifest is None:
            return []
        columns = ViewColumns.from_json(manifest.schema)
        return [
            NamedFile.from_path(
                self.local[file.path], columns.names_in_epoch(View.CURRENT, layer.last_epoch), [*self._types]
            )
            for layer in manifest.tables.get(UNNAMED.current, ())
            for file in layer.files
        ]

    def _records_sql(self, files: Sequence[NamedFile]) -> str:
        if not files:
            return f"({no_rows(self.columns.column_types(View.CURRENT))})"
        return rows_of(files, self._types)

    def _newest_query(self, files: Sequence[NamedFile], *, is_gone: str = "is_retraction") -> str:
        """A query of the newest records of a side that may differ."""
        same = same_identity("f", "t", self._identity)
        rows = f"(select f.* from {self._records_sql(files)} f semi join touched t on {same})"
        return newest_of(rows, [*self._types], self._identity, is_gone=is_gone)

    def _differing_query(self) -> str:
        """A query of the rows that differ."""
        identity = ", ".join(f"coalesce(m.{name}, b.{name}) as {name}" for name in map(sql_identifier, self._identity))
        live, is_there = f"coalesce(m.{_LIVE}, false)", f"coalesce(b.{_IS_THERE}, false)"
        unlike = " or ".join(f"m.{name} is distinct from b.{name}" for name in map(sql_identifier, self.columns.values))
        kind = (
            f"case when not {live} then '{ChangeKind.ADDED}' when not {is_there} then '{ChangeKind.REMOVED}' "
            f"else '{ChangeKind.CHANGED}' end"
        )
        differing = (
            f"select {identity}, {live} as {_LIVE}, {is_there} as {_IS_THERE}, {kind} as {KIND}, "
            f"{pack_struct(self._values_of('m'))} as {OLD_ROW}, {self._new_pane()} as {NEW_ROW} "
            f"from (select *, not is_retraction as {_LIVE} from main_side) m "
            f"full join (select *, true as {_IS_THERE} from branch_side) b "
            f"on {same_identity('m', 'b', self._identity)} "
            f"where ({live} or {is_there}) and (not ({live} and {is_there}) or {unlike or 'false'})"
        )
        return f"select d.*, {self._fate_expression()} as {FATE} from ({differing}) d"

    def _values_of(self, side: str) -> dict[str, str]:
        return {name: f"{side}.{sql_identifier(name)}" for name in self._types if name not in self._identity}

    def _new_pane(self) -> str:
        """What the patch writes of a row of the branch: a late pane, the last of its window, one index up."""
        is_new = "m.pane_index is null"
        own = {
            "timing": sql_literal(Timing.LATE),
            "pane_index": "coalesce(m.pane_index + 1, 0)",
            "nonspeculative_index": "coalesce(m.nonspeculative_index + 1, 0)",
            "is_first": is_new,
            "is_last": "true",
            "is_retraction": "false",
        }
        return pack_struct({**self._values_of("b"), **own})

    def _fate_expression(self) -> str:
        comparison = self.comparison
        begin, end = self._span_bounds()
        fates = (
            f"case when {end} > {comparison.expired_until} then '{Left.OPEN_ON_MAIN}' "
            f"when {end} > {comparison.expired_on_branch} then '{Left.OPEN_ON_BRANCH}'"
        )
        if self.comparison.patches:
            is_known = f"{begin} <= {comparison.newest_time_at_fork}"
            fates += f" when {is_known} and {self._is_of_patch()} then '{Left.PATCHED_SINCE}'"
        return f"{fates} else '{PATCHED_FATE}' end"

    def _span_bounds(self) -> tuple[str, str]:
        """When what a row ``d`` is of begins and ends (SQL)."""
        return bound_in_granules(WINDOW_START, "d"), bound_in_granules(WINDOW_END, "d")

    def _is_of_patch(self) -> str:
        """Whether a patch since the fork may have made row ``d`` what it is, or may have withdrawn it (SQL)."""
        patches = ", ".join(map(str, sorted(self.comparison.patches)))
        return f"(not {_LIVE} or {_struct_field(f'd.{OLD_ROW}', 'epoch')} in ({patches}))"

    def _open_windows_query(self) -> str:
        """A query of windows that may still change on main or on the branch: keys, and the window in granules."""
        keys, expired_until = self._keys, min(self.comparison.expired_until, self.comparison.expired_on_branch)
        window = [c.WINDOW_START, c.WINDOW_END]
        selected_columns = sql_columns([*keys, *window])
        parts = []
        for side in (self.comparison.main, self.comparison.branch):
            files = [NamedFile(self.local[file.path]) for file in files_of(side, self.comparison.stage.table)]
            if files:
                identity, place = [*keys, *window], [c.EPOCH]
                rows = rows_of(files, {})
                newest = newest_of(rows, identity, identity, place=place, is_gone=f"{c.STATUS} = {c.STATUS_GONE}")
                parts.append(f"select {selected_columns} from ({newest}) where {c.WINDOW_END} > {expired_until}")
            live = standing_of(
                self._records_sql(self._current_files(side)), [*keys, WINDOW_START, WINDOW_END], self.columns
            )
            window_columns = ", ".join(
                [*map(sql_identifier, keys), f"{bound_in_granules(WINDOW_START)} as {c.WINDOW_START}"]
            )
            parts.append(
                f"select {window_columns}, {bound_in_granules(WINDOW_END)} as {c.WINDOW_END} from ({live}) "
                f"where {bound_in_granules(WINDOW_END)} > {expired_until}"
            )
        return " union all ".join(parts)

    def _record_fields(self, side: str, is_retraction: bool, epoch: int, sequence: int) -> str:
        """The columns of a record of the patch, of one side of a row that differs."""
        own = {
            "is_retraction": str(is_retraction).lower(),
            "epoch": f"{epoch}::bigint",
            "sequence": f"{sequence}::bigint",
        }
        names = [name for name in self._types if name not in self._identity]
        fields = (f"{own.get(name) or _struct_field(side, name)} as {sql_identifier(name)}" for name in names)
        return ", ".join([*map(sql_identifier, self._identity), *fields])


def _struct_field(struct: str, name: str) -> str:
    return f"struct_extract({struct}, {sql_literal(name)})"


def bound_in_granules(name: str, table: str = "") -> str:
    """A window's bound as an instant (SQL); NULL is that of the global window."""
    bound = f"{table}.{name}" if table else name
    default_bound = int(GLOBAL_WINDOW_END if name == WINDOW_END else MIN_INSTANT)
    return f"coalesce(epoch_us({bound}), {default_bound})"


_MORE, _RANK = "_headrace_more", "_headrace_rank"
"""Columns beside those of users, whose names do not begin so."""
_FATE_IS_PATCHED = f"{FATE} = '{PATCHED_FATE}'"


class RowsPatch(PatchRows):
    """Rows that one side has more often than the other. They say the window of their group, if they have one."""

    @classmethod
    def of_patches(cls, catalog: Catalog, comparison: PatchComparison) -> LaterPanes:
        """All of them: no row that stands says that equal ones were withdrawn."""
        since_epoch = min(comparison.patches, default=comparison.main.epoch) - 1
        later_panes = LaterPanes.from_manifest(catalog, comparison.main, since_epoch)
        return LaterPanes(
            later_panes.columns, [(epoch, file) for epoch, file in later_panes.by_epoch if epoch in comparison.patches]
        )

    def find_differing(self) -> None:
        """Fill the table ``differing``: a row, how much more often the branch has it, and what becomes of it. What both
        have in the same files cancels out.
        """
        if self.comparison.patches:
            patched_ids = f"select distinct {sql_columns(self._unit)} from {self._records_sql(self._of_patches)}"
            self.connection.execute(f"create temp table of_patches as {patched_ids}")
        identity = sql_columns(self._identity)
        main, branch = (
            signs_of(self._records_sql(files), self._identity, self.columns) for files in self._files_of_one_side
        )
        both = f"select {identity}, -{SIGN} as {SIGN} from ({main}) union all select {identity}, {SIGN} from ({branch})"
        sums = (
            f"select {identity}, sum({SIGN})::bigint as {_MORE} from ({both}) group by {identity} having {_MORE} <> 0"
        )
        self.connection.execute(
            f"create temp table differing as select d.*, {self._fate_expression()} as {FATE} from ({sums}) d"
        )

    def row_counts(self) -> RowCounts:
        """Rows of ``current`` before and after the patch, and how many come and go. A row has changed if it goes and
        another one with its id comes.
        """
        current = self._current_files(self.comparison.main)
        count_before = query_number(self.connection, number_standing(self._records_sql(current), self.columns))
        number_added, number_removed = (
            query_number(
                self.connection,
                f"select coalesce(sum({sign}{_MORE}), 0) from differing where {_FATE_IS_PATCHED} and {sign}{_MORE} > 0",
            )
            for sign in ("", "-")
        )
        of_ids_in_both = query_number(self.connection, f"select count(*) from ({self._ids_of_both()})")
        return RowCounts.from_rows_as_they_are(count_before, number_added, number_removed, of_ids_in_both)

    def patch_records(self, epoch: int) -> Iterator[pa.RecordBatch]:
        """The rows that the patch withdraws, and then those that it gives, as ``epoch``."""
        return self._read_records(self._patch_records_query(epoch))

    def layers_after(self, store: ObjectStore, name: str, files: tuple[DataFile, ...], epoch: int) -> tuple[Layer, ...]:
        """The layers of ``current`` after the patch: where nothing is added up, without the rows that are withdrawn."""
        if self.columns.folding is Folding.SUMMED:
            return super().layers_after(store, name, files, epoch)
        self._find_withdrawn()
        kept_layers = [
            self._without_withdrawn(store, name, layer)
            for layer in self.comparison.main.tables.get(UNNAMED.current, ())
        ]
        new_files = put_rows(
            store,
            f"{name}-rows",
            self._read_records(f"select * from ({self._patch_records_query(epoch)}) where not {IS_RETRACTION}"),
        )
        return tuple(layer for layer in (*kept_layers, Layer.from_files(new_files, epoch, epoch)) if layer.rows)

    @property
    def _keys(self) -> list[str]:
        return [*self.comparison.stage.keys]

    @property
    def _unit(self) -> list[str]:
        """What a patch leaves or takes as a whole: a group, or all rows of one moment. Some of these may be versions of
        one row, as of a record that has other content by now.
        """
        is_grouped = self.comparison.stage.made_of is RowOrigin.GROUPS
        return [*self._keys, WINDOW_START, WINDOW_END] if is_grouped else [EVENT_TIME]

    @property
    def _files_of_one_side(self) -> tuple[list[NamedFile], list[NamedFile]]:
        """The files of ``current`` that only main has, and those that only the branch has."""
        main, branch = (self._current_files(side) for side in (self.comparison.main, self.comparison.branch))
        return sorted({*main} - {*branch}, key=str), sorted({*branch} - {*main}, key=str)

    @property
    def _of_patches(self) -> list[NamedFile]:
        """The files of panes of patches since the fork."""
        return [
            NamedFile.from_path(self.local[file.path], self.columns.names_in_epoch(View.PANES, epoch), [*self._types])
            for epoch, file in self.patched_panes.by_epoch
        ]

    def _span_bounds(self) -> tuple[str, str]:
        if self.comparison.stage.made_of is RowOrigin.GROUPS:
            return super()._span_bounds()
        granule = bound_in_granules(EVENT_TIME, "d")
        return granule, f"({granule} + 1)"

    def _is_of_patch(self) -> str:
        return f"exists (select 1 from of_patches p where {same_identity('p', 'd', self._unit)})"

    def _count_by(self, group_column: str, condition: str) -> dict[str, int]:
        query = f"select {group_column}, sum(abs({_MORE}))::bigint from differing where {condition} group by all"
        return dict(self.connection.sql(query).fetchall())

    def _ids_of_both(self) -> str:
        """A query of ids of which one row goes and another one comes."""
        if not self.columns.id:
            return "select 1 limit 0"
        ids = sql_columns(self.columns.id)
        sides = (f"select {ids} from differing where {_FATE_IS_PATCHED} and {_MORE} {sign} 0" for sign in "<>")
        return " intersect ".join(sides)

    def _row_changes(self, table: str, condition: str, limit: int) -> list[RowChange]:
        order = [EVENT_TIME, *self._identity]
        rows = self.connection.sql(
            f"select {sql_columns(self._identity)}, {_MORE} from (select *, unnest(range(abs({_MORE}))) from {table} "
            f"{condition}) order by {sql_columns(order)}, {_MORE} limit {limit}"
        )
        return [_row_change(row) for row in python_rows(rows.to_arrow_table())]

    def _patch_records_query(self, epoch: int) -> str:
        """A query of the records of the patch: withdrawals first, each with a number of its own."""
        identity = sql_columns(self._identity)
        number = f"row_number() over (order by {_MORE} < 0 desc, {identity}) - 1"
        record = {
            "timing": sql_literal(Timing.LATE),
            IS_RETRACTION: f"{_MORE} < 0",
            "epoch": f"{epoch}::bigint",
            "sequence": f"({number})::bigint",
        }
        own = ", ".join(f"{value} as {sql_identifier(name)}" for name, value in record.items())
        repeated_rows = f"select *, unnest(range(abs({_MORE}))) from differing where {_FATE_IS_PATCHED}"
        return f"select {identity}, {own} from ({repeated_rows}) order by sequence"

    def _read_records(self, records: str) -> Iterator[pa.RecordBatch]:
        schema = self.columns.arrow_schema(View.PANES)
        query = f"select {sql_columns(schema.names)} from ({records}) order by sequence"
        for batch in self.connection.sql(query).to_arrow_reader(BATCH_ROWS):
            yield batch.cast(schema)

    def _find_withdrawn(self) -> None:
        """Fill the table ``withdrawn`` with epoch and sequence of main's records that go, the newest of equal ones."""
        identity = ", ".join(f"f.{sql_identifier(name)}" for name in self._identity)
        newest = f"row_number() over (partition by {identity} order by f.epoch desc, f.sequence desc) as {_RANK}"
        rows_gone = f"(select * from differing where {_FATE_IS_PATCHED} and {_MORE} < 0)"
        main, _ = self._files_of_one_side
        ranked_records = (
            f"select f.epoch, f.sequence, {newest}, -d.{_MORE} as {_MORE} from {self._records_sql(main)} f "
            f"join {rows_gone} d on {same_identity('f', 'd', self._identity)}"
        )
        self.connection.execute(
            f"create temp table withdrawn as select epoch, sequence from ({ranked_records}) where {_RANK} <= {_MORE}"
        )

    def _without_withdrawn(self, store: ObjectStore, name: str, layer: Layer) -> Layer:
        """``layer`` without the rows that are withdrawn; itself where it has none of them."""
        files: list[DataFile] = []
        for file in layer.files:
            path = self.local[file.path]
            meets = f"{parquet_rows_sql([path])} f %s join withdrawn w on {same_identity('f', 'w', PLACE)}"
            if not query_number(self.connection, f"select count(*) from {meets % 'semi'}"):
                files.append(file)
                continue
            file_schema = pa.schema([(field.name, field.type) for field in pq.read_schema(path)])
            rest = self.connection.sql(f"select f.* from {meets % 'anti'}").to_arrow_reader(BATCH_ROWS)
            stem = f"{name}-{layer.first_epoch}-{len(files)}"
            files += put_rows(store, stem, (batch.cast(file_schema) for batch in rest))
        is_whole = tuple(files) == layer.files
        return layer if is_whole else Layer.from_files(tuple(files), layer.first_epoch, layer.last_epoch, layer.expires)


def _row_change(row: dict[str, object]) -> RowChange:
    comes = int(str(row.pop(_MORE))) > 0
    kind = ChangeKind.ADDED if comes else ChangeKind.REMOVED
    return RowChange(kind, row, None if comes else {}, {} if comes else None)
