"""What a copy of ``current`` has to become, as batches of rows: for targets that follow what is published.

A copy that is at an ancestor needs the newest pane of each key and window between, and reads only these. A copy on
another line (after a rollback or a promotion) needs what differs between the two snapshots. So does one from before the
output was adopted from a branch. So does one at an ancestor that is kept, as by a tag, where panes between have
expired. One that is at no snapshot that is still there, or has other columns, is filled again.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from headrace.ext import sinks
from headrace.ext.sinks import EPOCH, SIGN, Changes, FillReason
from headrace.model.accumulation import WINDOW_END, WINDOW_START
from headrace.model.expressions.data_types import ValueType
from headrace.moved import redirect_names
from headrace.read.diff import layered_tables
from headrace.read.diff.layered_tables import RowSets
from headrace.read.snapshots.progress import has_panes, is_patched
from headrace.read.views.columns import Folding, View, ViewColumns
from headrace.read.views.database import (
    no_rows,
    sql_columns,
    sql_identifier,
    without_rows,
)
from headrace.read.views.row_files import IS_RETRACTION, PLACE, newest_of, open_database_of, same_identity, standing_of
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.format.manifest import UNNAMED, Manifest
from headrace_snapshots.format.output_view import UnknownOutputError, come_to, goes_on

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

__getattr__ = redirect_names(__name__)

BATCH_ROWS = 100_000
_CHANGES_TABLE = "headrace_changes"
_COPY_TABLE = "headrace_copied"
_ROW_COLUMN = "_headrace_row"


@dataclass(frozen=True)
class StoredChanges(Changes):
    """Changes that are read from a ``database``, where a ``table`` has their rows. It is open as long as the context
    that gave them. ``begins_before`` (SQL): when rows began that are replaced, where that may be another time.
    """

    database: "duckdb.DuckDBPyConnection" = field(kw_only=True)
    begins_before: str | None = field(default=None, kw_only=True)
    table: ClassVar[str] = _CHANGES_TABLE

    def removed(self) -> "Iterator[pa.RecordBatch]":
        """The identities of rows that are there no more."""
        yield from self._query_batches(self.identity, IS_RETRACTION)

    def rows(self, ordered_by: Sequence[str] = ()) -> "Iterator[pa.RecordBatch]":
        """The rows that are new or have other values, with all ``columns``."""
        order = f" order by {sql_columns(ordered_by)}" if ordered_by else ""
        yield from self._query_batches(self.columns, f"not {IS_RETRACTION}{order}")

    def days(self) -> list[int | None]:
        """The days on which windows that change begin: days since 1970, and None for windows without a beginning."""
        day = f"date_diff('day', date '1970-01-01', cast({sql_identifier(self.begin)} as date))"
        begins = f"select {sql_identifier(self.begin)} from {_CHANGES_TABLE}"
        begins += "" if self.begins_before is None else f" union all {self.begins_before}"
        rows = self.database.sql(f"select distinct {day} as day from ({begins}) order by day").fetchall()
        return [day for (day,) in rows]

    def changed_windows(self) -> list[tuple[int, int]]:
        """The windows that change and have both ends: microseconds since 1970 UTC. Rows have none."""
        if self.begin != WINDOW_START:
            return []
        ends = [f"epoch_us({sql_identifier(name)})" for name in (WINDOW_START, WINDOW_END)]
        has_window = " and ".join(f"{sql_identifier(name)} is not null" for name in (WINDOW_START, WINDOW_END))
        if not self.columns:  # nothing is published
            return []
        windows = self.database.sql(
            f"select distinct {', '.join(ends)} from {_CHANGES_TABLE} where {has_window} order by all"
        )
        return [(int(start), int(end)) for start, end in windows.fetchall()]

    def met_by(self, copied: "pa.Table") -> tuple[int, int]:
        """How many rows of a copy change or go, and how many of these go. It has the columns of ``identity``."""
        same = same_identity("r", "c", self.identity)
        with self._register_copy(copied):
            ((number_met, number_gone),) = self.database.sql(
                f"select count(*), count(*) filter (c.{IS_RETRACTION}) from {_COPY_TABLE} r "
                f"join {_CHANGES_TABLE} c on {same}"
            ).fetchall()
        return number_met, number_gone

    def untouched(self, copied: "pa.Table") -> "pa.Table":
        """The rows of a copy that neither change nor go, in order: as they are, whatever types other columns have."""
        import pyarrow as pa

        same = same_identity("r", "c", self.identity)
        numbered_copy = copied.select([*self.identity]).append_column(
            _ROW_COLUMN, pa.array(range(len(copied)), pa.int64())
        )
        with self._register_copy(numbered_copy):
            kept_rows = self.database.sql(
                f"select r.{_ROW_COLUMN} from {_COPY_TABLE} r anti join {_CHANGES_TABLE} c on {same} order by 1"
            )
            return copied.take(kept_rows.to_arrow_table().column(0))

    @contextmanager
    def _register_copy(self, copy: "pa.Table") -> Iterator[None]:
        self.database.register(_COPY_TABLE, copy)
        try:
            yield
        finally:
            self.database.unregister(_COPY_TABLE)

    def _query_batches(self, columns: Collection[str], condition: str) -> "Iterator[pa.RecordBatch]":
        if not columns:  # nothing is published
            return
        query = f"select {sql_columns(columns)} from {_CHANGES_TABLE} where {condition}"
        for batch in self.database.sql(query).to_arrow_reader(BATCH_ROWS):
            if batch.num_rows:
                yield batch


def delivered_columns(columns: ViewColumns) -> dict[str, ValueType]:
    """Key, window and values of records of ``current``, in order; rows have their columns and event time."""
    types = columns.column_types(View.CURRENT)
    if columns.are_rows:
        return {name: types[name] for name in columns.identity}
    return {name: types[name] for name in (*columns.keys, WINDOW_START, WINDOW_END, *columns.values)}


def table_columns(columns: ViewColumns) -> dict[str, ValueType]:
    """What a copy of ``current`` has: the same, and by what rows are known that have no id."""
    types = columns.column_types(View.CURRENT)
    return {**delivered_columns(columns), **{name: types[name] for name in columns.known_by}}


@contextmanager
def changes_between(catalog: Catalog, old_id: str | None, new_manifest: Manifest | None) -> Iterator[StoredChanges]:
    """What a copy at snapshot ``old_id`` (None: at nothing known) lacks to be ``new_manifest`` (None: without a row).

    Memory is that of readers (HEADRACE_READ_MEMORY). Raises BrokenObjectError, ReadResourcesError.
    """
    if new_manifest is None:
        with without_rows() as connection:
            connection.execute(
                f"create or replace temp table {_CHANGES_TABLE} as select false as {IS_RETRACTION} limit 0"
            )
            yield StoredChanges(
                sinks.ChangeSource.ALL_ROWS, old_id, None, {}, (), reason=FillReason.UNPUBLISHED, database=connection
            )
        return
    source = origin_of(catalog, old_id, new_manifest)
    columns = ViewColumns.from_json(new_manifest.schema)
    with open_database_of(catalog.store, source.files) as (connection, local):
        source.prepare_changes(connection, local)
        yield StoredChanges(
            source.kind,
            old_id,
            new_manifest.snapshot_id,
            table_columns(columns),
            columns.known_by,
            reason=source.reason,
            database=connection,
            begin=columns.extent[0],
            begins_before=source.begins_before,
        )


def origin_of(catalog: Catalog, old_id: str | None, new_manifest: Manifest) -> "ChangeOrigin":
    """What changes from ``old_id`` to ``new_manifest`` are read from."""
    start = None if old_id is None else still_there(catalog, old_id)
    if start is None:
        return AllRows(new_manifest, reason_unknown(old_id))
    if not are_alike(start, new_manifest):
        return AllRows(new_manifest, FillReason.COLUMNS)
    if not _adds_up(start, new_manifest) and _goes_on(start, new_manifest) and _is_line(catalog, start, new_manifest):
        return _NewestPanes(catalog, start, new_manifest)
    return DifferingRows(start, new_manifest)


def _adds_up(old_manifest: Manifest, new_manifest: Manifest) -> bool:
    """Whether rows of ``new_manifest`` are what is left of several records, of which some may lie far back. So it is
    with rows that can be withdrawn, and with rows that a patch has withdrawn since ``old_manifest``.
    """
    folding = ViewColumns.from_json(new_manifest.schema).folding
    return folding is Folding.SUMMED or (
        folding is Folding.NOTHING and is_patched(new_manifest, come_to(old_manifest, ""))
    )


def reason_unknown(old_id: str | None) -> FillReason:
    """Why nothing can be told of ``old_id``, which is not there."""
    return FillReason.FIRST if old_id is None else FillReason.EXPIRED


def _goes_on(old_manifest: Manifest, new_manifest: Manifest) -> bool:
    """Whether rows of ``old_manifest`` that no epoch since has touched are what they were. They are not if columns
    have got the names of others meanwhile, or were gone and have come again.
    """
    columns = ViewColumns.from_json(new_manifest.schema)
    old_names = columns.names_in_epoch(View.CURRENT, come_to(old_manifest, ""))
    return goes_on(old_manifest, new_manifest, "") and not any(name in old_names for name in delivered_columns(columns))


def _is_line(catalog: Catalog, old_manifest: Manifest, new_manifest: Manifest) -> bool:
    """Whether ``new_manifest`` continues from ``old_manifest``, and names all panes since."""
    is_later = catalog.is_ancestor(old_manifest.snapshot_id, new_manifest.snapshot_id)
    return is_later and has_panes(catalog, new_manifest, come_to(old_manifest, ""))


def still_there(catalog: Catalog, snapshot: str) -> Manifest | None:
    """The manifest of a snapshot; None if it has expired, though remembered: its files and later panes may be gone."""
    if not catalog.is_stored(snapshot):
        return None
    try:
        return catalog.manifest(snapshot)
    except (MissingSnapshotError, BrokenObjectError, UnknownOutputError):
        return None


def are_alike(old_manifest: Manifest, new_manifest: Manifest) -> bool:
    """Whether rows of two snapshots have the same columns and key."""
    left, right = (ViewColumns.from_json(side.schema) for side in (old_manifest, new_manifest))
    same_rows = (left.folding, left.id) == (right.folding, right.id)
    return same_rows and delivered_columns(left) == delivered_columns(right) and {*left.keys} == {*right.keys}


@dataclass(frozen=True)
class RecordQuery:
    """A query of records: ``SIGN``, ``EPOCH``, and the columns of rows; and by what they are in order."""

    query: str
    order: Sequence[str]


class RecordOrigin(ABC):
    """Where records of what leads to a snapshot are read from, in the columns of ``manifest``."""

    kind: sinks.ChangeSource
    reason: FillReason | None = None

    def __init__(self, manifest: Manifest) -> None:
        self.columns = ViewColumns.from_json(manifest.schema)
        self.shown_columns = delivered_columns(self.columns)

    @property
    @abstractmethod
    def files(self) -> list[DataFile]:
        """All files that are read."""

    def query_records(self, connection: "duckdb.DuckDBPyConnection", local: Mapping[str, Path]) -> "RecordQuery | None":
        """The changes one by one, also those of a row that changes several times; None if there are none."""
        return self._query_file_records(connection, local) if self.files else None

    @abstractmethod
    def _query_file_records(
        self, connection: "duckdb.DuckDBPyConnection", local: Mapping[str, Path]
    ) -> "RecordQuery | None":
        """The same, where there are files."""

    @property
    def fold(self) -> layered_tables.RecordFold:
        return layered_tables.fold_of_current(self.columns, [*self.shown_columns])

    @property
    def in_table(self) -> list[str]:
        return [*table_columns(self.columns)]


class ChangeOrigin(RecordOrigin):
    """Where changes to a snapshot are read from. ``begins_before``: when rows began that are replaced (SQL)."""

    begins_before: str | None = None

    def prepare_changes(self, connection: "duckdb.DuckDBPyConnection", local: Mapping[str, Path]) -> None:
        """Make the table of changes; ``local`` says where each file is."""
        if not self.files or not self._create_changes_table(connection, local):
            nothing = f"select *, false as {IS_RETRACTION} from ({no_rows(table_columns(self.columns))})"
            connection.execute(f"create temp table {_CHANGES_TABLE} as {nothing}")
        elif self.columns.id:
            self._check_ids(connection)

    def _check_ids(self, connection: "duckdb.DuckDBPyConnection") -> None:
        """Raise UndeliverableError if two rows that come have the same id."""
        ids = sql_columns(self.columns.id)
        duplicates_query = (
            f"select {ids} from {_CHANGES_TABLE} where not {IS_RETRACTION} "
            f"group by {ids} having count(*) > 1 order by all limit 1"
        )
        for row in connection.sql(duplicates_query).fetchall():
            id_text = ", ".join(f"{name}={value!r}" for name, value in zip(self.columns.id, row, strict=True))
            raise sinks.UndeliverableError(
                f"two rows have the same id ({id_text}), and a table has one row of each. Nothing was delivered: "
                "correct id= or the input, or deliver to a table of changes"
            )

    @abstractmethod
    def _create_changes_table(self, connection: "duckdb.DuckDBPyConnection", local: Mapping[str, Path]) -> bool:
        """Make the table of changes of the files; False if there are none, and no table."""


class AllRows(ChangeOrigin):
    """All rows."""

    kind = sinks.ChangeSource.ALL_ROWS

    def __init__(self, new_manifest: Manifest, reason: FillReason) -> None:
        super().__init__(new_manifest)
        self.manifest, self.reason = new_manifest, reason

    @property
    def files(self) -> list[DataFile]:
        return layered_tables.files_of(self.manifest, UNNAMED.current)

    def _create_changes_table(self, connection: "duckdb.DuckDBPyConnection", local: Mapping[str, Path]) -> bool:
        rows = self._current_rows_query(local, self.in_table)
        # a view: rows pass once, and need not fit into the database
        connection.execute(f"create temp view {_CHANGES_TABLE} as select *, false as {IS_RETRACTION} from ({rows})")
        return True

    def _query_file_records(self, connection: "duckdb.DuckDBPyConnection", local: Mapping[str, Path]) -> RecordQuery:
        del connection
        rows_query = self._current_rows_query(local, [*self.shown_columns])
        query = f"select 1 as {SIGN}, null::bigint as {EPOCH}, * from ({rows_query})"
        return RecordQuery(query, self.columns.identity)

    def _current_rows_query(self, local: Mapping[str, Path], columns: Sequence[str]) -> str:
        files = layered_tables.current_files(self.manifest, local, self.fold)
        return standing_of(self.fold.records_sql(files), columns, self.columns)


class _NewestPanes(ChangeOrigin):
    """The newest pane of each key and window after an ancestor."""

    kind = sinks.ChangeSource.PANES

    def __init__(self, catalog: Catalog, old_manifest: Manifest, new_manifest: Manifest) -> None:
        super().__init__(new_manifest)
        self.panes = layered_tables.LaterPanes.from_manifest(catalog, new_manifest, come_to(old_manifest, ""))

    @property
    def files(self) -> list[DataFile]:
        return self.panes.files

    def _create_changes_table(self, connection: "duckdb.DuckDBPyConnection", local: Mapping[str, Path]) -> bool:
        panes = self.panes.panes_sql(local, self.fold)
        newest = newest_of(panes, [*self.in_table, IS_RETRACTION], self.fold.identity, is_gone="false")
        if self.columns.are_rows:  # each of which stands
            newest = f"select {sql_columns([*self.in_table, IS_RETRACTION])} from {panes}"
        connection.execute(f"create temp table {_CHANGES_TABLE} as {newest}")
        return True

    def _query_file_records(self, connection: "duckdb.DuckDBPyConnection", local: Mapping[str, Path]) -> RecordQuery:
        del connection
        epoch, sequence = PLACE
        sign_columns = f"case when {IS_RETRACTION} then -1 else 1 end as {SIGN}, {epoch} as {EPOCH}, {sequence}"
        query = (
            f"select {sign_columns}, {sql_columns(self.shown_columns)} from {self.panes.panes_sql(local, self.fold)}"
        )
        return RecordQuery(query, [EPOCH, sequence, *self.columns.identity])


class DifferingRows(ChangeOrigin):
    """Rows of two snapshots that are not the same."""

    kind = sinks.ChangeSource.DIFFERENCE

    def __init__(self, old_manifest: Manifest, new_manifest: Manifest | None) -> None:
        super().__init__(old_manifest if new_manifest is None else new_manifest)
        self.sides = (old_manifest, new_manifest)

    @property
    def files(self) -> list[DataFile]:
        sides = [side for side in self.sides if side is not None]
        return [
            *{file.path: file for side in sides for file in layered_tables.files_of(side, UNNAMED.current)}.values()
        ]

    def _create_changes_table(self, connection: "duckdb.DuckDBPyConnection", local: Mapping[str, Path]) -> bool:
        if self.columns.are_rows:
            sets = self._row_sets(local)
            is_apart = sets.compare(connection)
            if is_apart:
                connection.execute(
                    f"create temp table {_CHANGES_TABLE} as {sets.changes_query(self.in_table, IS_RETRACTION)}"
                )
                self.begins_before = sets.times_before()
            return is_apart
        table = self._compared_table(local)
        if not table.compare(connection):
            return False
        kinds = (layered_tables.ChangeKind.ADDED, layered_tables.ChangeKind.REMOVED, layered_tables.ChangeKind.CHANGED)
        connection.execute(f"create temp table {_CHANGES_TABLE} as {table.after_of(kinds, IS_RETRACTION)}")
        return True

    def _query_file_records(
        self, connection: "duckdb.DuckDBPyConnection", local: Mapping[str, Path]
    ) -> RecordQuery | None:
        if self.columns.are_rows:
            sets = self._row_sets(local)
            is_apart, columns = sets.compare(connection), [*self.shown_columns]
            withdrawn, put_in_place = sets.withdrawn_query(columns), sets.put_in_place(columns)
        else:
            table = self._compared_table(local)
            is_apart = table.compare(connection)
            withdrawn, put_in_place = table.withdrawn_query(), table.put_in_place()
        if not is_apart:
            return None
        parts = (
            f"select {sign} as {SIGN}, null::bigint as {EPOCH}, * from ({rows})"
            for sign, rows in ((-1, withdrawn), (1, put_in_place))
        )
        # what is taken back comes first
        return RecordQuery(" union all ".join(parts), [SIGN, *self.columns.identity])

    def _row_sets(self, local: Mapping[str, Path]) -> RowSets:
        files_before, files_after = (
            layered_tables.current_files(manifest, local, self.fold) for manifest in self.sides
        )
        return RowSets(files_before, files_after, self.fold, self.columns)

    def _compared_table(self, local: Mapping[str, Path]) -> layered_tables.ComparedTable:
        files_before, files_after = (
            layered_tables.current_files(manifest, local, self.fold) for manifest in self.sides
        )
        return layered_tables.ComparedTable(files_before, files_after, self.fold, tuple(self.columns.values))
