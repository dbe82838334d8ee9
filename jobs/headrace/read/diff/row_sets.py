"""Rows of two snapshots beside each other, where these are rows as they are, and not what aggregations give.

They are multisets, and signs add up: what both snapshots have in the same files cancels out. Where nothing is withdrawn
each row stands by itself. Else those count that are equal to one which only one side has a record of.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.read.diff.layered_tables import (
    ChangeKind,
    RecordFold,
    RowChange,
    RowCounts,
    fold_of_current,
)
from headrace.read.views.arrow_types import python_rows
from headrace.read.views.columns import Folding, View, ViewColumns
from headrace.read.views.database import open_database, sql_columns, sql_identifier, working_folder
from headrace.read.views.row_files import PLACE, NamedFile, local_paths, number_standing, same_identity, standing_of
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.format.manifest import UNNAMED, Manifest
from headrace_snapshots.store import ObjectStore

if TYPE_CHECKING:
    import duckdb

_TOUCHED, _BEFORE, _AFTER = (f"headrace_rows_{name}" for name in ("touched", "before", "after"))
_SHARED: Final = "headrace_rows_shared"
_NO_ROWS: Final = "limit 0"


@dataclass(frozen=True)
class RowSets:
    """The files of ``current`` on either side, whose records ``fold`` reads; ``columns`` say how they are folded."""

    before: Sequence[NamedFile]
    after: Sequence[NamedFile]
    fold: RecordFold
    columns: ViewColumns

    def compare(self, connection: "duckdb.DuckDBPyConnection") -> bool:
        """Put what may differ of either side into a table of ``connection``; False if both are made of the same
        files.
        """
        for table in (_TOUCHED, _BEFORE, _AFTER):
            connection.execute(f"drop table if exists {table}")
        sides = {_BEFORE: (self.before, self.after), _AFTER: (self.after, self.before)}
        differing_files = sorted({*self.before} ^ {*self.after}, key=str)
        if not differing_files:
            return False
        is_summed = self.columns.folding is Folding.SUMMED
        if is_summed:
            connection.execute(
                f"create temp table {_TOUCHED} as select distinct {sql_columns(self.columns.identity)} "
                f"from {self.fold.records_sql(differing_files)}"
            )
        for table, (own, other) in sides.items():
            files = [*own] if is_summed else sorted({*own} - {*other}, key=str)
            connection.execute(
                f"create temp table {table} as {self._standing_query(files or differing_files, there=bool(files))}"
            )
        return True

    def _standing_query(self, files: Sequence[NamedFile], *, there: bool) -> str:
        rows = self.fold.records_sql(files)
        if self.columns.folding is Folding.SUMMED:
            same = same_identity("f", "t", self.columns.identity)
            rows = f"(select f.* from {rows} f semi join {_TOUCHED} t on {same})"
        names = dict.fromkeys((*self.columns.identity, *PLACE))
        return f"{standing_of(rows, [*names], self.columns)}{'' if there else f' {_NO_ROWS}'}"

    def changes_query(self, shown: Sequence[str], gone: str) -> str:
        """A query of what a table that is known by ``ViewColumns.known_by`` gets, once they are compared: rows with
        ``shown`` columns that come or are others, and those that go; as column ``gone`` which is which.
        """
        known_by = self.columns.known_by
        same_row, same_key = (same_identity("a", "b", names) for names in (shown, known_by))
        nulls = ", ".join(f"b.{sql_identifier(name)}" for name in shown)
        return (
            f"select {', '.join(f'a.{sql_identifier(name)}' for name in shown)}, false as {gone} from {_AFTER} a "
            f"anti join {_BEFORE} b on {same_row} "
            f"union all select {nulls}, true as {gone} from {_BEFORE} b anti join {_AFTER} a on {same_key}"
        )

    def times_before(self) -> str:
        """A query of the event times of rows that went, or became others, once they are compared."""
        return f"select {sql_identifier(self.columns.extent[0])} from {_BEFORE}"

    def withdrawn_query(self, shown: Sequence[str]) -> str:
        """A query of the rows that go, one for each time, once they are compared."""
        return self._difference_query(_BEFORE, _AFTER, shown)

    def put_in_place(self, shown: Sequence[str]) -> str:
        """A query of the rows that come, one for each time, once they are compared."""
        return self._difference_query(_AFTER, _BEFORE, shown)

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
            _count_query(connection, query) for query in (self.withdrawn_query(content), self.put_in_place(content))
        )
        number_changed = min(number_removed, number_added, self._count_changed(connection))
        return RowCounts(
            count_before,
            count_before + number_added - number_removed,
            number_added - number_changed,
            number_removed - number_changed,
            number_changed,
        )

    def _count_before(self, connection: "duckdb.DuckDBPyConnection") -> int:
        if not self.before:
            return 0
        return _count_query(
            connection, number_standing(self.fold.records_sql(self.before), self.columns), is_number=True
        )

    def _count_changed(self, connection: "duckdb.DuckDBPyConnection") -> int:
        """How many ids both sides have, with other rows."""
        return _count_query(connection, self._changed_ids_query()) if self.columns.id else 0

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
        if {*self.before} == {*self.after}:
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
        same = same_identity("f", "t", ids)
        touched_ids = f"(select distinct {sql_columns(ids)} from {self._rows_sql(self.panes, local)})"
        rows = f"(select f.* from {self._rows_sql(self._current, local)} f semi join {touched_ids} t on {same})"
        return standing_of(rows, identity, self.columns)

    @property
    def _current(self) -> list[tuple[DataFile, int]]:
        layers = self.manifest.tables.get(UNNAMED.current, ())
        return [(file, layer.last_epoch) for layer in layers for file in layer.files]

    def _rows_sql(self, files: Sequence[tuple[DataFile, int]], local: Mapping[str, Path]) -> str:
        fold = fold_of_current(self.columns, ())
        names = ((local[file.path], self.columns.names_in_epoch(View.PANES, epoch)) for file, epoch in files)
        return fold.records_sql([NamedFile.from_path(path, epoch, [*fold.types]) for path, epoch in names])


def rows_with_shared_ids(store: ObjectStore, rows: RowsOfEpochs, decided: Sequence[RowsOfEpochs] = ()) -> list[int]:
    """How many ids that ``rows`` have are those of several of them; then, for each of ``decided``, how many are left of
    which some row is not among those that its epochs left with the id. Raises BrokenObjectError.
    """
    if not rows.panes:
        return [0]
    files = {file.path: file for side in (rows, *decided) for file in side.files}
    with working_folder() as folder:
        local = dict(zip(files, local_paths(store, [*files.values()], folder), strict=True))
        with open_database(folder, [*local.values()], is_for_us=True) as connection:
            return [_count_shared_ids(connection, rows, query) for query in _shared_id_queries(rows, decided, local)]


def _shared_id_queries(
    rows: RowsOfEpochs, decided_rows: Sequence[RowsOfEpochs], local: Mapping[str, Path]
) -> Iterator[str]:
    """Queries of the rows that share their id, then of those that each of ``decided_rows`` leaves of them."""
    ids, content = sql_columns(rows.columns.id), sql_columns(rows.columns.identity)
    yield f"select * from ({rows.standing_query(local)}) qualify count(*) over (partition by {ids}) > 1"
    same = same_identity("s", "o", rows.columns.id)
    for side in decided_rows:
        others = f"select * from {_SHARED} except all select {content} from ({side.standing_query(local)})"
        yield f"select s.* from {_SHARED} s semi join ({others}) o on {same}"


def _count_shared_ids(connection: "duckdb.DuckDBPyConnection", rows: RowsOfEpochs, query: str) -> int:
    """How many ids the rows of ``query`` have, which become the table that the next one reads."""
    connection.execute(f"create or replace temp table {_SHARED} as {query}")
    return _count_query(connection, f"select distinct {sql_columns(rows.columns.id)} from {_SHARED}")


def _row_change(row: dict[str, object]) -> RowChange:
    kind = ChangeKind(str(row.pop("_headrace_kind")))
    return RowChange(kind, row, {} if kind is ChangeKind.REMOVED else None, {} if kind is ChangeKind.ADDED else None)


def _count_query(connection: "duckdb.DuckDBPyConnection", query: str, *, is_number: bool = False) -> int:
    ((number,),) = connection.sql(query if is_number else f"select count(*) from ({query})").fetchall()
    return int(number)
