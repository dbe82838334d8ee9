"""Layered tables of two snapshots: their files, panes of later epochs, and the rows that they do not have in common.

``ComparedTable`` finds these rows by DuckDB in bounded memory. A row that both have comes from records that both name.
So only identities count of which a file has a record that just one of the two names. Neighbours are compared at the
cost of what lies between them.

``RowSets`` compares where results are rows as they are, and not what aggregations give. They are multisets, and signs
add up: what both snapshots have in the same files cancels out. Where nothing is withdrawn each row stands by itself.
Else those count that are equal to one which only one side has a record of.

``current_rows`` and ``open_windows`` count the rows that the layered tables of a snapshot stand for. Manifests count a
row in each layer; here the newest counts, as where rows are read. No definition is needed.

``LaterPanes`` are the panes that a snapshot names of epochs after another one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.program import columns as c
from headrace.read.shown_values import JsonFields
from headrace.read.views import row_files
from headrace.read.views.arrow_types import python_rows
from headrace.read.views.columns import Folding, View, ViewColumns
from headrace.read.views.database import pack_struct, query_number, sql_columns, sql_identifier, sql_types
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.format.manifest import UNNAMED, Manifest
from headrace_snapshots.store import ObjectStore

_IS_THERE, KIND, OLD_ROW, NEW_ROW, _IN_BEFORE, _IN_AFTER, _IS_GONE = (
    f"_headrace_{name}" for name in ("there", "kind", "before", "after", "in_before", "in_after", "gone")
)
"""Columns beside those of the table, whose names do not begin so."""


class ChangeKind(StrEnum):
    """What became of a row. REISSUED: its values are the same, what is said of its pane is not."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    REISSUED = "reissued"


@dataclass(frozen=True)
class RowCounts(JsonFields):
    """Rows of a table before and after, and how many became what."""

    before: int = 0
    after: int = 0
    added: int = 0
    removed: int = 0
    changed: int = 0
    reissued: int = 0

    @classmethod
    def from_incomparable(cls, old_count: int, new_count: int) -> "RowCounts":
        """Counts rows that cannot be compared: those of one side as removed, those of the other as added."""
        return cls(old_count, new_count, added=new_count, removed=old_count)

    @classmethod
    def from_rows_as_they_are(
        cls, old_count: int, added_count: int, removed_count: int, of_ids_in_both: int
    ) -> "RowCounts":
        """Counts rows that come and go: where a row with the same id does both, it counts as one that has changed."""
        changed_count = min(added_count, removed_count, of_ids_in_both)
        return cls(
            old_count,
            old_count + added_count - removed_count,
            added_count - changed_count,
            removed_count - changed_count,
            changed_count,
        )

    @property
    def differing(self) -> int:
        """Rows that have other values, or are in one of both alone."""
        return self.added + self.removed + self.changed


@dataclass(frozen=True)
class RowChange(JsonFields):
    """A row that differs: key and window, and its other columns before and after; None where it was not there."""

    kind: ChangeKind
    key: Mapping[str, Any]
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None


@dataclass(frozen=True)
class RecordFold:
    """How records become rows: of those of one ``identity`` the one of the greatest ``place`` counts, unless
    ``is_gone`` (SQL) is true of it. ``types``: the columns, and their types in SQL, that are looked at where files have
    other names. ``rows_as_they_are``: the columns of records that are rows, and are not folded so.
    """

    identity: tuple[str, ...]
    place: tuple[str, ...]
    is_gone: str
    types: Mapping[str, str] = field(default_factory=dict)
    rows_as_they_are: ViewColumns | None = None

    def records_sql(self, files: Sequence[row_files.NamedFile]) -> str:
        return row_files.rows_of(files, self.types)

    def count_rows(self, connection: duckdb.DuckDBPyConnection, files: Sequence[row_files.NamedFile]) -> int:
        """How many rows there are in ``files``."""
        if not files:
            return 0
        if self.rows_as_they_are is not None:
            query = row_files.number_standing(self.records_sql(files), self.rows_as_they_are)
        else:
            query = row_files.number_of(self.records_sql(files), self.identity, place=self.place, is_gone=self.is_gone)
        return query_number(connection, query)


@dataclass(frozen=True)
class ComparedTable:
    """A table before and after: the files of each, and the columns that count. A row is changed if one of ``values``
    differs, and reissued if one of ``others`` does. Both sides have them all, with one type.
    """

    old_files: Sequence[row_files.NamedFile]
    new_files: Sequence[row_files.NamedFile]
    fold: RecordFold
    values: tuple[str, ...]
    others: tuple[str, ...] = ()

    def row_counts(self, connection: duckdb.DuckDBPyConnection) -> RowCounts:
        """How many rows became what; ``first_changes`` has some of them afterwards."""
        count_before = self.fold.count_rows(connection, self.old_files)
        if not self.compare(connection):
            return RowCounts(count_before, count_before)
        kinds = dict(connection.sql(f"select {KIND}, count(*) from differing group by all").fetchall())
        count_after = count_before + kinds.get(ChangeKind.ADDED, 0) - kinds.get(ChangeKind.REMOVED, 0)
        return RowCounts(count_before, count_after, **kinds)

    def compare(self, connection: duckdb.DuckDBPyConnection) -> bool:
        """Put what differs into a table of ``connection``; False if both sides are made of the same files."""
        connection.execute("drop table if exists differing")
        if not (differing_files := {*self.old_files} ^ {*self.new_files}):
            return False
        connection.execute(
            f"create or replace temp table touched as select distinct {sql_columns(self.fold.identity)} "
            f"from {self.fold.records_sql(sorted(differing_files, key=str))}"
        )
        connection.execute(f"create or replace temp table candidates as {self._candidates_query()}")
        connection.execute(f"create temp table differing as {self._differing_query()}")
        return True

    def after_of(self, kinds: Sequence[ChangeKind], gone_column: str) -> str:
        """A query of rows that became one of ``kinds``, as they are afterwards, once they are compared. It has the
        identity, the values, and in column ``gone_column`` whether the row is gone.
        """
        values = ", ".join(f"{NEW_ROW}.{name} as {name}" for name in map(sql_identifier, self.values))
        kind_list = ", ".join(f"'{kind}'" for kind in kinds)
        columns = ", ".join(filter(None, (sql_columns(self.fold.identity), values)))
        is_gone = f"{KIND} = '{ChangeKind.REMOVED}' as {sql_identifier(gone_column)}"
        return f"select {columns}, {is_gone} from differing where {KIND} in ({kind_list})"

    def withdrawn_query(self) -> str:
        """A query of rows that were removed, or have other values, as they were, once they are compared."""
        return self._as_in(OLD_ROW, (ChangeKind.REMOVED, ChangeKind.CHANGED))

    def put_in_place(self) -> str:
        """A query of rows that were added, or have other values, as they are, once they are compared."""
        return self._as_in(NEW_ROW, (ChangeKind.ADDED, ChangeKind.CHANGED))

    def _as_in(self, side: str, kinds: Sequence[ChangeKind]) -> str:
        values = ", ".join(f"{side}.{name} as {name}" for name in map(sql_identifier, self.values))
        kind_list = ", ".join(f"'{kind}'" for kind in kinds)
        columns = ", ".join(filter(None, (sql_columns(self.fold.identity), values)))
        return f"select {columns} from differing where {KIND} in ({kind_list})"

    def first_changes(self, connection: duckdb.DuckDBPyConnection, limit: int, order: Sequence[str]) -> list[RowChange]:
        """The first ``limit`` of the rows that were added, removed or changed, once they are counted."""
        if {*self.old_files} == {*self.new_files}:
            return []
        rows = connection.sql(
            f"select * from differing where {KIND} <> '{ChangeKind.REISSUED}' order by {sql_columns(order)} limit "
            f"{limit}"
        )
        return read_changes(rows, self.fold.identity)

    def _differing_query(self) -> str:
        """A query of rows that are not the same: identity, kind, and the other columns of either side."""
        keys = ", ".join(f"n.{name} as {name}" for name in map(sql_identifier, self.fold.identity))
        kinds = (
            f"case when a.rowid is null and b.rowid is null then null when a.rowid is null then '{ChangeKind.ADDED}' "
            f"when b.rowid is null then '{ChangeKind.REMOVED}' "
            f"when {_differs_sql(self.values)} then '{ChangeKind.CHANGED}' "
            f"when {_differs_sql(self.others)} then '{ChangeKind.REISSUED}' end"
        )
        both, place = [*self.values, *self.others], row_files.row_of(self.fold.place)
        newest = ", ".join(
            f"arg_max(rowid, {place}) filter (where {side}) as {side}" for side in (_IN_BEFORE, _IN_AFTER)
        )
        return (
            f"select {keys}, {kinds} as {KIND}, {_packed_struct('a', both)} as {OLD_ROW}, "
            f"{_packed_struct('b', both)} as {NEW_ROW} "
            f"from candidates b right join (candidates a right join "
            f"(select {sql_columns(self.fold.identity)}, {newest} from candidates group by "
            f"{sql_columns(self.fold.identity)}) n "
            f"on a.rowid = n.{_IN_BEFORE} and not a.{_IS_GONE}) on b.rowid = n.{_IN_AFTER} and not b.{_IS_GONE} "
            f"where {KIND} is not null"
        )

    def _candidates_query(self) -> str:
        """A query of the records of what was touched, and which side has each: every file is read once."""
        files_before, files_after = {*self.old_files}, {*self.new_files}
        columns = sql_columns(dict.fromkeys([*self.fold.identity, *self.values, *self.others, *self.fold.place]))
        parts = [
            (files_before & files_after, "true", "true"),
            (files_before - files_after, "true", "false"),
            (files_after - files_before, "false", "true"),
        ]
        same = row_files.same_identity("f", "t", self.fold.identity)
        selects = (
            f"select {columns}, ({self.fold.is_gone}) as {_IS_GONE}, "
            f"{in_before} as {_IN_BEFORE}, {in_after} as {_IN_AFTER} "
            f"from {self.fold.records_sql(sorted(files, key=str))} f semi join touched t on {same}"
            for files, in_before, in_after in parts
            if files
        )
        return " union all ".join(selects)


def read_changes(rows: duckdb.DuckDBPyRelation, identity: Sequence[str]) -> list[RowChange]:
    """The changes that ``rows`` say: columns of the ``identity``, the kind of change, and the others of either side."""
    return [
        RowChange(
            ChangeKind(row[KIND]),
            {name: row[name] for name in identity},
            None if row[KIND] == ChangeKind.ADDED else row[OLD_ROW],
            None if row[KIND] == ChangeKind.REMOVED else row[NEW_ROW],
        )
        for row in python_rows(rows.to_arrow_table())
    ]


def shared_columns(files: Sequence[row_files.NamedFile]) -> dict[str, pa.DataType]:
    """Names and types that all ``files`` have, none without files. Layers from before an aggregate went have more."""
    schemas = [{field.name: field.type for field in pq.read_schema(file.path)} for file in files]
    first, *others = schemas or [{}]
    return {name: kind for name, kind in first.items() if all(other.get(name) == kind for other in others)}


def _differs_sql(columns: Sequence[str]) -> str:
    differ = " or ".join(f"a.{name} is distinct from b.{name}" for name in map(sql_identifier, columns))
    return f"({differ or 'false'})"


def _packed_struct(side: str, columns: Sequence[str]) -> str:
    """``columns`` of one side as one struct."""
    return pack_struct({name: f"{side}.{sql_identifier(name)}" for name in columns}) if columns else "null"


def files_of(manifest: Manifest, table: str) -> list[DataFile]:
    """All files of a table, oldest layer first."""
    return [file for layer in manifest.tables.get(table, ()) for file in layer.files]


def fold_of_current(columns: ViewColumns, others: Sequence[str]) -> RecordFold:
    """A fold to ``current`` over key, window and ``others``; a fold of rows is over all their columns."""
    types = sql_types(columns.column_types(View.CURRENT))
    names = dict.fromkeys((*columns.identity, *others, *row_files.PLACE, row_files.IS_RETRACTION))
    as_they_are = columns if columns.are_rows else None
    known_types = {name: types[name] for name in names}
    return RecordFold(tuple(columns.identity), row_files.PLACE, row_files.IS_RETRACTION, known_types, as_they_are)


def current_files(manifest: Manifest | None, local: Mapping[str, Path], fold: RecordFold) -> list[row_files.NamedFile]:
    """The ``local`` files of ``current``, each with its names for the columns of ``fold``; none without a manifest."""
    if manifest is None:
        return []
    columns = ViewColumns.from_json(manifest.schema)
    return [
        row_files.NamedFile.from_path(
            local[file.path], columns.names_in_epoch(View.CURRENT, layer.last_epoch), [*fold.types]
        )
        for layer in manifest.tables.get(UNNAMED.current, ())
        for file in layer.files
    ]


MOST_BYTES: Final = 2**24
"""The most bytes of files in a table whose rows are counted while somebody waits."""

_OPEN_WINDOWS: Final = RecordFold((c.HASH, c.WINDOW_START, c.WINDOW_END), (c.EPOCH,), f"{c.STATUS} <> {c.STATUS_OPEN}")
"""Rows of state become open windows: the hash stands for the key, which older files may call otherwise."""


def current_rows(store: ObjectStore, manifest: Manifest) -> int | None:
    """Rows of ``current`` as an output sees it; None if its files exceed MOST_BYTES. Raises BrokenObjectError."""
    fold = fold_of_current(ViewColumns.from_json(manifest.schema), ())
    return _count_folded_rows(
        store, files_of(manifest, UNNAMED.current), fold, lambda local: current_files(manifest, local, fold)
    )


def open_windows(store: ObjectStore, manifest: Manifest, stage: int) -> int | None:
    """Open windows of the aggregation ``stage``, counted from 0. None, and an error, as of ``current_rows``."""
    files = files_of(manifest, UNNAMED.state_table(stage))
    return _count_folded_rows(
        store, files, _OPEN_WINDOWS, lambda local: [row_files.NamedFile(path) for path in local.values()]
    )


def _count_folded_rows(
    store: ObjectStore,
    files: Sequence[DataFile],
    fold: RecordFold,
    name_files: Callable[[Mapping[str, Path]], Sequence[row_files.NamedFile]],
) -> int | None:
    if sum(file.bytes for file in files) > MOST_BYTES:
        return None
    with row_files.open_database_of(store, files) as (connection, local):
        return fold.count_rows(connection, name_files(local))


@dataclass(frozen=True)
class LaterPanes:
    """Files of panes, each with the epoch that wrote it, of a snapshot with ``columns``."""

    columns: ViewColumns
    by_epoch: Sequence[tuple[int, DataFile]]

    @classmethod
    def from_manifest(cls, catalog: Catalog, manifest: Manifest, since_epoch: int) -> "LaterPanes":
        """What a snapshot names of later epochs than ``since_epoch`` (-1: of all)."""
        log = manifest.logs.get(UNNAMED.panes)
        records = [] if log is None else catalog.file_records(log, since_epoch=since_epoch)
        by_epoch = [(record.epoch, file) for record in records for file in record.files if isinstance(file, DataFile)]
        return cls(ViewColumns.from_json(manifest.schema), by_epoch)

    @property
    def files(self) -> list[DataFile]:
        """The files, oldest epoch first."""
        return [file for _, file in self.by_epoch]

    def panes_sql(self, local: Mapping[str, Path], fold: RecordFold) -> str:
        """The panes (SQL) in the columns of ``fold``, if there are files, which are where ``local`` says."""
        named_files = [
            row_files.NamedFile.from_path(
                local[file.path], self.columns.names_in_epoch(View.PANES, epoch), [*fold.types]
            )
            for epoch, file in self.by_epoch
        ]
        return fold.records_sql(named_files)


_ROWS_TOUCHED, _ROWS_BEFORE, _ROWS_AFTER = (f"headrace_rows_{name}" for name in ("touched", "before", "after"))
_ROWS_SHARED: Final = "headrace_rows_shared"
_NO_ROWS: Final = "limit 0"


@dataclass(frozen=True)
class RowSets:
    """The files of ``current`` on either side, whose records ``fold`` reads; ``columns`` say how they are folded."""

    old_files: Sequence[row_files.NamedFile]
    new_files: Sequence[row_files.NamedFile]
    fold: RecordFold
    columns: ViewColumns

    def compare(self, connection: "duckdb.DuckDBPyConnection") -> bool:
        """Make tables of what may differ on either side; False if both are made of the same files."""
        for table in (_ROWS_TOUCHED, _ROWS_BEFORE, _ROWS_AFTER):
            connection.execute(f"drop table if exists {table}")
        sides = {_ROWS_BEFORE: (self.old_files, self.new_files), _ROWS_AFTER: (self.new_files, self.old_files)}
        differing_files = sorted({*self.old_files} ^ {*self.new_files}, key=str)
        if not differing_files:
            return False
        is_summed = self.columns.folding is Folding.SUMMED
        if is_summed:
            connection.execute(
                f"create temp table {_ROWS_TOUCHED} as select distinct {sql_columns(self.columns.identity)} "
                f"from {self.fold.records_sql(differing_files)}"
            )
        for table, (own, other) in sides.items():
            files = [*own] if is_summed else sorted({*own} - {*other}, key=str)
            connection.execute(
                f"create temp table {table} as {self._standing_query(files or differing_files, has_files=bool(files))}"
            )
        return True

    def _standing_query(self, files: Sequence[row_files.NamedFile], *, has_files: bool) -> str:
        rows = self.fold.records_sql(files)
        if self.columns.folding is Folding.SUMMED:
            same = row_files.same_identity("f", "t", self.columns.identity)
            rows = f"(select f.* from {rows} f semi join {_ROWS_TOUCHED} t on {same})"
        names = dict.fromkeys((*self.columns.identity, *row_files.PLACE))
        return f"{row_files.standing_of(rows, [*names], self.columns)}{'' if has_files else f' {_NO_ROWS}'}"

    def changes_query(self, shown_columns: Sequence[str], gone_column: str) -> str:
        """A query of the changes to a table that is known by ``ViewColumns.known_by``, once they are compared. It has
        rows of ``shown_columns`` that are new or have changed, and rows that go; column ``gone_column`` tells them
        apart.
        """
        known_by = self.columns.known_by
        same_row, same_key = (row_files.same_identity("a", "b", names) for names in (shown_columns, known_by))
        nulls = ", ".join(f"b.{sql_identifier(name)}" for name in shown_columns)
        return (
            f"select {', '.join(f'a.{sql_identifier(name)}' for name in shown_columns)}, false as {gone_column} "
            f"from {_ROWS_AFTER} a anti join {_ROWS_BEFORE} b on {same_row} "
            f"union all select {nulls}, true as {gone_column} "
            f"from {_ROWS_BEFORE} b anti join {_ROWS_AFTER} a on {same_key}"
        )

    def times_before(self) -> str:
        """A query of the event times of rows that went, or became others, once they are compared."""
        return f"select {sql_identifier(self.columns.extent[0])} from {_ROWS_BEFORE}"

    def withdrawn_query(self, shown_columns: Sequence[str]) -> str:
        """A query of the rows that go, one for each time, once they are compared."""
        return self._difference_query(_ROWS_BEFORE, _ROWS_AFTER, shown_columns)

    def put_in_place(self, shown_columns: Sequence[str]) -> str:
        """A query of the rows that come, one for each time, once they are compared."""
        return self._difference_query(_ROWS_AFTER, _ROWS_BEFORE, shown_columns)

    @staticmethod
    def _difference_query(table: str, other: str, columns: Sequence[str]) -> str:
        return f"select {sql_columns(columns)} from {table} except all select {sql_columns(columns)} from {other}"

    def row_counts(self, connection: "duckdb.DuckDBPyConnection") -> RowCounts:
        """How many rows there are, come and go; once that is asked, ``first_changes`` can be."""
        count_before = self._count_before(connection)
        if not self.compare(connection):
            return RowCounts(count_before, count_before)
        content = self.columns.identity
        number_removed, number_added = (
            _count_rows_of(connection, query) for query in (self.withdrawn_query(content), self.put_in_place(content))
        )
        of_ids_in_both = _count_rows_of(connection, self._changed_ids_query()) if self.columns.id else 0
        return RowCounts.from_rows_as_they_are(count_before, number_added, number_removed, of_ids_in_both)

    def _count_before(self, connection: "duckdb.DuckDBPyConnection") -> int:
        if not self.old_files:
            return 0
        return query_number(connection, row_files.number_standing(self.fold.records_sql(self.old_files), self.columns))

    def _changed_ids_query(self) -> str:
        """A query of ids that go with one row and come with another."""
        content, ids = self.columns.identity, sql_columns(self.columns.id)
        sides = (
            f"select {ids} from ({query})" for query in (self.withdrawn_query(content), self.put_in_place(content))
        )
        return " intersect ".join(sides)

    def first_changes(
        self, connection: "duckdb.DuckDBPyConnection", limit: int, order: Sequence[str]
    ) -> list[RowChange]:
        """The first ``limit`` of the rows that come or go, by the columns of ``order``, once they are counted."""
        if {*self.old_files} == {*self.new_files}:
            return []
        content = self.columns.identity
        parts = (
            f"select '{kind}' as _headrace_kind, * from ({query})"
            for kind, query in (
                (ChangeKind.REMOVED, self.withdrawn_query(content)),
                (ChangeKind.ADDED, self.put_in_place(content)),
            )
        )
        columns = [name for name in order if name in content] or content
        rows = connection.sql(
            f"select * from ({' union all '.join(parts)}) order by {sql_columns(columns)}, 1 limit {limit}"
        )
        return [_row_change(row) for row in python_rows(rows.to_arrow_table())]


@dataclass(frozen=True)
class RowsOfEpochs:
    """What stands in ``manifest``, which is as an output sees it, and which of it some epochs touched: ``panes`` are
    the files that these wrote. ``columns`` are what rows have, by their present names, and the id that is to be unique.
    """

    manifest: Manifest
    columns: ViewColumns
    panes: Sequence[tuple[DataFile, int]]

    @property
    def files(self) -> list[DataFile]:
        """All files whose rows are looked at."""
        return [file for file, _ in (*self.panes, *self._current)]

    def standing_query(self, local: Mapping[str, Path]) -> str:
        """A query of what stands with an id that rows of the epochs have; files are where they are ``local``."""
        ids, identity = self.columns.id, self.columns.identity
        same = row_files.same_identity("f", "t", ids)
        touched_ids = f"(select distinct {sql_columns(ids)} from {self._rows_sql(self.panes, local)})"
        rows = f"(select f.* from {self._rows_sql(self._current, local)} f semi join {touched_ids} t on {same})"
        return row_files.standing_of(rows, identity, self.columns)

    @property
    def _current(self) -> list[tuple[DataFile, int]]:
        layers = self.manifest.tables.get(UNNAMED.current, ())
        return [(file, layer.last_epoch) for layer in layers for file in layer.files]

    def _rows_sql(self, files: Sequence[tuple[DataFile, int]], local: Mapping[str, Path]) -> str:
        fold = fold_of_current(self.columns, ())
        names = ((local[file.path], self.columns.names_in_epoch(View.PANES, epoch)) for file, epoch in files)
        return fold.records_sql([row_files.NamedFile.from_path(path, epoch, [*fold.types]) for path, epoch in names])


def rows_with_shared_ids(
    store: ObjectStore, rows: RowsOfEpochs, decided_rows: Sequence[RowsOfEpochs] = ()
) -> list[int]:
    """How many ids that ``rows`` have are those of several of them; then, for each of ``decided_rows``, how many are
    left of which some row is not among those that its epochs left with the id. Raises BrokenObjectError.
    """
    if not rows.panes:
        return [0]
    files = (file for side in (rows, *decided_rows) for file in side.files)
    with row_files.open_database_of(store, files) as (connection, local):
        return [_count_shared_ids(connection, rows, query) for query in _shared_id_queries(rows, decided_rows, local)]


def _shared_id_queries(
    rows: RowsOfEpochs, decided_rows: Sequence[RowsOfEpochs], local: Mapping[str, Path]
) -> Iterator[str]:
    """Queries of the rows that share their id, then of those that each of ``decided_rows`` leaves of them."""
    ids, content = sql_columns(rows.columns.id), sql_columns(rows.columns.identity)
    yield f"select * from ({rows.standing_query(local)}) qualify count(*) over (partition by {ids}) > 1"
    same = row_files.same_identity("s", "o", rows.columns.id)
    for side in decided_rows:
        others = f"select * from {_ROWS_SHARED} except all select {content} from ({side.standing_query(local)})"
        yield f"select s.* from {_ROWS_SHARED} s semi join ({others}) o on {same}"


def _count_shared_ids(connection: "duckdb.DuckDBPyConnection", rows: RowsOfEpochs, query: str) -> int:
    """How many ids the rows of ``query`` have, which become the table that the next one reads."""
    connection.execute(f"create or replace temp table {_ROWS_SHARED} as {query}")
    return _count_rows_of(connection, f"select distinct {sql_columns(rows.columns.id)} from {_ROWS_SHARED}")


def _row_change(row: dict[str, object]) -> RowChange:
    kind = ChangeKind(str(row.pop("_headrace_kind")))
    return RowChange(kind, row, {} if kind is ChangeKind.REMOVED else None, {} if kind is ChangeKind.ADDED else None)


def _count_rows_of(connection: "duckdb.DuckDBPyConnection", query: str) -> int:
    return query_number(connection, f"select count(*) from ({query})")
