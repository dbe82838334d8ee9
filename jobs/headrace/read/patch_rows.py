"""The rows of ``current`` that differ between main and a branch, and the records of an output patch that replaces those
of main (``runs/publishing/patch`` has the theory). DuckDB finds them, in bounded memory.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from headrace.model.accumulation import WINDOW_END, WINDOW_START, Timing
from headrace.model.time import GLOBAL_WINDOW_END, MIN_INSTANT, Instant
from headrace.program import columns as c
from headrace.read.diff.layered_tables import ChangeKind, RowChange, RowCounts, files_of
from headrace.read.snapshots.progress import MergingWindows
from headrace.read.views.arrow_types import python_rows
from headrace.read.views.columns import View, ViewColumns
from headrace.read.views.database import database, identifier, literal, no_rows, quoted, sql_types, working_folder
from headrace.read.views.row_files import NamedFile, brought, newest_of, rows_of, same_identity
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.manifest import UNNAMED, Manifest

if TYPE_CHECKING:
    import pyarrow as pa


PANE = ("pane_time", "timing", "pane_index", "nonspeculative_index", "is_first", "is_last", "epoch")
"""What is said of a pane in a row that is shown."""

_BEFORE, _AFTER, _LIVE, _THERE = (f"_headrace_{name}" for name in ("before", "after", "live", "there"))
_FATE, _KIND = (f"_headrace_{name}" for name in ("fate", "kind"))
"""Columns and tables beside those of users, whose names do not begin so."""
_BATCH_ROWS = 8_192
_PATCHED = "patched"


@dataclass(frozen=True)
class Compared:
    """What is compared. ``patches`` are those epochs of main since the fork that are patches; what they made of windows
    that begin no later than ``known`` stays: the branch did not compute these, or not of all their elements. Windows
    that end no later than ``expired`` have expired on main, and ``expired_on_branch`` there. ``table`` has the state of
    the last aggregation, and ``merging`` says what windows merge there, None if none do.
    """

    main: Manifest
    branch: Manifest
    patches: Collection[int]
    known: Instant
    expired: Instant
    expired_on_branch: Instant
    table: str
    merging: MergingWindows | None


class Left(StrEnum):
    """Why a row that differs stays as it is on main."""

    OPEN_ON_MAIN = "open on main"
    OPEN_ON_BRANCH = "open on the branch"
    PATCHED_SINCE = "patched since the branch was forked"


@contextmanager
def differing(catalog: Catalog, compared: Compared) -> "Iterator[PatchRows]":
    """The rows that differ, as long as the context lasts. All files are verified. Raises BrokenObjectError,
    ReadResourcesError.
    """
    sides = (compared.main, compared.branch)
    tables = [UNNAMED.current, *([compared.table] if compared.merging is not None else [])]
    files = {file.path: file for side in sides for name in tables for file in files_of(side, name)}
    with working_folder() as folder:
        local = dict(zip(files, brought(catalog.store, [*files.values()], folder), strict=True))
        with database(folder, [*local.values()], is_for_us=True) as connection:
            rows = PatchRows(connection, compared, local)
            rows.find()
            yield rows


@dataclass(frozen=True)
class PatchRows:
    """Rows that differ, in a database; ``local``: where the files are, by path."""

    connection: duckdb.DuckDBPyConnection
    compared: Compared
    local: Mapping[str, Path]

    @property
    def columns(self) -> ViewColumns:
        """Columns of main; the branch has the same, both being of one definition."""
        return ViewColumns.from_json(self.compared.main.schema)

    @property
    def _types(self) -> dict[str, str]:
        return sql_types(self.columns.types(View.CURRENT))

    @property
    def _identity(self) -> list[str]:
        return self.columns.identity

    def find(self) -> None:
        """Fill the table ``differing``: identity, what becomes of the row (its fate) and the kind of change, and the
        record of main and that which the patch would write, of which either may be NULL.
        """
        main, branch = (self._current(side) for side in (self.compared.main, self.compared.branch))
        apart = sorted({*main} ^ {*branch}, key=str)
        self.connection.execute(
            f"create temp table touched as select distinct {quoted(self._identity)} from {self._rows(apart)}"
        )
        self.connection.execute(f"create temp table main_side as {self._newest(main, gone='false')}")
        self.connection.execute(f"create temp table branch_side as {self._newest(branch)}")
        self.connection.execute(f"create temp table differing as {self._differing()}")

    def counts(self) -> RowCounts:
        """Rows of ``current`` before and after the patch, and how many became what."""
        kinds = self._numbers(_KIND, f"{_FATE} = '{_PATCHED}'")
        current = self._current(self.compared.main)
        ((before,),) = self.connection.sql(
            f"select count(*) from ({newest_of(self._rows(current), self._identity, self._identity)})"
        ).fetchall()
        after = before + kinds.get(ChangeKind.ADDED, 0) - kinds.get(ChangeKind.REMOVED, 0)
        return RowCounts(before, after, **kinds)

    def left(self) -> dict[Left, int]:
        """How many rows that differ stay as they are, and why."""
        return {Left(fate): number for fate, number in self._numbers(_FATE, f"{_FATE} <> '{_PATCHED}'").items()}

    def first(self, limit: int) -> list[RowChange]:
        """The first ``limit`` of the rows that the patch changes, by window and key."""
        return self._changes("differing", f"where {_FATE} = '{_PATCHED}'", limit)

    def unsettled(self) -> tuple[int, RowChange | None]:
        """How many of them overlap a window of their key that is still open, and the first of these. Where no windows
        merge none is in the way of another.
        """
        merging = self.compared.merging
        if merging is None:
            return 0, None
        keys = [*self.columns.keys]
        least = "<=" if merging.touching else "<"
        start, end = _granules(WINDOW_START, "d"), _granules(WINDOW_END, "d")
        overlap = f"{start} {least} o.{c.WINDOW_END} and o.{c.WINDOW_START} {least} {end}"
        if keys:
            overlap += f" and {same_identity('d', 'o', keys)}"
        self.connection.execute(
            f"create or replace temp table unsettled as select * from differing d where {_FATE} = '{_PATCHED}' "
            f"and exists (select 1 from ({self._open()}) o where {overlap})"
        )
        ((number,),) = self.connection.sql("select count(*) from unsettled").fetchall()
        first = self._changes("unsettled", "", 1)
        return int(number), first[0] if first else None

    def records(self, epoch: int) -> "Iterator[pa.RecordBatch]":
        """The panes of the patch, as ``epoch``: of each row the retraction of what stands, then the new pane."""
        schema = self.columns.schema(View.PANES)
        order = quoted(self.columns.order(View.PANES))
        query = (
            f"select {quoted(schema.names)} from (select {self._fields(_BEFORE, True, epoch, 0)} from differing "
            f"where {_FATE} = '{_PATCHED}' and {_LIVE} union all select {self._fields(_AFTER, False, epoch, 1)} "
            f"from differing where {_FATE} = '{_PATCHED}' and {_THERE}) order by {order}"
        )
        for batch in self.connection.sql(query).to_arrow_reader(_BATCH_ROWS):
            yield batch.cast(schema)

    def _numbers(self, by: str, condition: str) -> dict[str, int]:
        query = f"select {by}, count(*) from differing where {condition} group by all"
        return dict(self.connection.sql(query).fetchall())

    def _changes(self, table: str, condition: str, limit: int) -> list[RowChange]:
        shown = [*self.columns.values, *PANE]

        def packed(side: str) -> str:
            fields = ", ".join(f"{identifier(name)} := {_field(side, name)}" for name in shown)
            return f"struct_pack({fields}) as {side}"

        order = quoted(self.columns.order(View.CURRENT))
        rows = self.connection.sql(
            f"select {quoted(self._identity)}, {_KIND}, {packed(_BEFORE)}, {packed(_AFTER)} from {table} {condition} "
            f"order by {order} limit {limit}"
        )
        return [
            RowChange(
                ChangeKind(row[_KIND]),
                {name: row[name] for name in self._identity},
                None if row[_KIND] == ChangeKind.ADDED else row[_BEFORE],
                None if row[_KIND] == ChangeKind.REMOVED else row[_AFTER],
            )
            for row in python_rows(rows.to_arrow_table())
        ]

    def _current(self, manifest: Manifest | None) -> list[NamedFile]:
        """The files of ``current`` of a side, each with the names that it has for columns."""
        if manifest is None:
            return []
        columns = ViewColumns.from_json(manifest.schema)
        return [
            NamedFile.of(self.local[file.path], columns.names(View.CURRENT, layer.last_epoch), [*self._types])
            for layer in manifest.tables.get(UNNAMED.current, ())
            for file in layer.files
        ]

    def _rows(self, files: Sequence[NamedFile]) -> str:
        """The records in ``files`` (SQL)."""
        if not files:
            return f"({no_rows(self.columns.types(View.CURRENT))})"
        return rows_of(files, self._types)

    def _newest(self, files: Sequence[NamedFile], *, gone: str = "is_retraction") -> str:
        """A query of the newest records of a side that may differ."""
        same = same_identity("f", "t", self._identity)
        rows = f"(select f.* from {self._rows(files)} f semi join touched t on {same})"
        return newest_of(rows, [*self._types], self._identity, gone=gone)

    def _differing(self) -> str:
        """A query of the rows that differ."""
        identity = ", ".join(f"coalesce(m.{name}, b.{name}) as {name}" for name in map(identifier, self._identity))
        live, there = f"coalesce(m.{_LIVE}, false)", f"coalesce(b.{_THERE}, false)"
        unlike = " or ".join(f"m.{name} is distinct from b.{name}" for name in map(identifier, self.columns.values))
        kind = (
            f"case when not {live} then '{ChangeKind.ADDED}' when not {there} then '{ChangeKind.REMOVED}' "
            f"else '{ChangeKind.CHANGED}' end"
        )
        differing = (
            f"select {identity}, {live} as {_LIVE}, {there} as {_THERE}, {kind} as {_KIND}, "
            f"{self._packed('m')} as {_BEFORE}, {self._new_pane()} as {_AFTER} "
            f"from (select *, not is_retraction as {_LIVE} from main_side) m "
            f"full join (select *, true as {_THERE} from branch_side) b on {same_identity('m', 'b', self._identity)} "
            f"where ({live} or {there}) and (not ({live} and {there}) or {unlike or 'false'})"
        )
        return f"select d.*, {self._fate()} as {_FATE} from ({differing}) d"

    def _packed(self, side: str) -> str:
        names = (name for name in self._types if name not in self._identity)
        return "struct_pack(" + ", ".join(f"{identifier(name)} := {side}.{identifier(name)}" for name in names) + ")"

    def _new_pane(self) -> str:
        """What the patch writes of a row of the branch: a late pane, the last of its window, one index up."""
        is_new = "m.pane_index is null"
        own = {
            "timing": literal(Timing.LATE),
            "pane_index": "coalesce(m.pane_index + 1, 0)",
            "nonspeculative_index": "coalesce(m.nonspeculative_index + 1, 0)",
            "is_first": is_new,
            "is_last": "true",
            "is_retraction": "false",
        }
        fields = {name: f"b.{identifier(name)}" for name in self._types if name not in self._identity}
        return "struct_pack(" + ", ".join(f"{identifier(n)} := {v}" for n, v in {**fields, **own}.items()) + ")"

    def _fate(self) -> str:
        compared, end = self.compared, _granules(WINDOW_END, "d")
        fates = (
            f"case when {end} > {compared.expired} then '{Left.OPEN_ON_MAIN}' "
            f"when {end} > {compared.expired_on_branch} then '{Left.OPEN_ON_BRANCH}'"
        )
        if self.compared.patches:  # a row that is not there any more may be one that a patch has withdrawn
            patches = ", ".join(map(str, sorted(self.compared.patches)))
            fates += (
                f" when {_granules(WINDOW_START, 'd')} <= {self.compared.known} "
                f"and (not {_LIVE} or {_field(f'd.{_BEFORE}', 'epoch')} in ({patches})) then '{Left.PATCHED_SINCE}'"
            )
        return f"{fates} else '{_PATCHED}' end"

    def _open(self) -> str:
        """A query of windows that may still change on main or on the branch: keys, and the window in granules."""
        keys, until = [*self.columns.keys], min(self.compared.expired, self.compared.expired_on_branch)
        window = [c.WINDOW_START, c.WINDOW_END]
        wanted = quoted([*keys, *window])
        parts = []
        for side in (self.compared.main, self.compared.branch):
            files = [NamedFile(self.local[file.path]) for file in files_of(side, self.compared.table)]
            if files:
                identity, place = [*keys, *window], [c.EPOCH]
                rows = rows_of(files, {})
                there = newest_of(rows, identity, identity, place=place, gone=f"{c.STATUS} = {c.DELETED}")
                parts.append(f"select {wanted} from ({there}) where {c.WINDOW_END} > {until}")
            live = newest_of(self._rows(self._current(side)), self._identity, self._identity)
            named = ", ".join([*map(identifier, keys), f"{_granules(WINDOW_START)} as {c.WINDOW_START}"])
            parts.append(
                f"select {named}, {_granules(WINDOW_END)} as {c.WINDOW_END} from ({live}) "
                f"where {_granules(WINDOW_END)} > {until}"
            )
        return " union all ".join(parts)

    def _fields(self, side: str, is_retraction: bool, epoch: int, sequence: int) -> str:
        """The columns of a record of the patch, of one side of a row that differs."""
        own = {
            "is_retraction": str(is_retraction).lower(),
            "epoch": f"{epoch}::bigint",
            "sequence": f"{sequence}::bigint",
        }
        fields = (own.get(name) or _field(side, name) for name in self._types if name not in self._identity)
        names = (name for name in self._types if name not in self._identity)
        return ", ".join(
            [*map(identifier, self._identity), *(f"{v} as {identifier(n)}" for n, v in zip(names, fields, strict=True))]
        )


def _field(struct: str, name: str) -> str:
    return f"struct_extract({struct}, {literal(name)})"


def _granules(name: str, of: str = "") -> str:
    """A window's bound as an instant (SQL); NULL is that of the global window."""
    at = f"{of}.{name}" if of else name
    unbounded = int(GLOBAL_WINDOW_END if name == WINDOW_END else MIN_INSTANT)
    return f"coalesce(epoch_us({at}), {unbounded})"
