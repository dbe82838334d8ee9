"""Which rows of a layered table two snapshots do not have in common, found by DuckDB in bounded memory.

A row that both have comes from records that both name, so only identities count of which a file has a record that just
one of the two names: neighbours are compared at the cost of what lies between them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

import duckdb

from headrace.read.views.arrow_types import python_rows
from headrace.read.views.compaction import newest_of, number_of, same_identity
from headrace.read.views.database import identifier, quoted
from headrace.read.views.sources import NamedFile, parquet, rows_of

_THERE, _KIND, _BEFORE, _AFTER = (f"_headrace_{name}" for name in ("there", "kind", "before", "after"))
"""Columns beside those of the table, whose names do not begin so."""


class ChangeKind(StrEnum):
    """What became of a row. REISSUED: its values are the same, what is said of its pane is not."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    REISSUED = "reissued"


@dataclass(frozen=True)
class RowCounts:
    """Rows of a table before and after, and how many became what."""

    before: int = 0
    after: int = 0
    added: int = 0
    removed: int = 0
    changed: int = 0
    reissued: int = 0

    @classmethod
    def apart(cls, before: int, after: int) -> "RowCounts":
        """Counts rows that cannot be compared: those of one side as removed, those of the other as added."""
        return cls(before, after, added=after, removed=before)

    @property
    def differing(self) -> int:
        """Rows that have other values, or are in one of both alone."""
        return self.added + self.removed + self.changed

    def to_json(self) -> dict[str, int]:
        """A JSON value."""
        return asdict(self)


@dataclass(frozen=True)
class RowChange:
    """A row that is not the same: its key and window, and its other columns before and after; None where there was, or
    is, no such row.
    """

    kind: ChangeKind
    key: Mapping[str, Any]
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None

    def to_json(self) -> dict[str, Any]:
        """A JSON value, but for times, bytes and decimals."""
        return {"kind": self.kind.value, **asdict(self), "key": dict(self.key)}


@dataclass(frozen=True)
class RecordFold:
    """How records become rows: of those of one ``identity`` the one of the greatest ``place`` counts, unless it is
    ``gone`` (SQL). ``types``: the columns, and their types in SQL, that are looked at where files have other names.
    """

    identity: tuple[str, ...]
    place: tuple[str, ...]
    gone: str
    types: Mapping[str, str] = field(default_factory=dict)

    def rows(self, files: Sequence[NamedFile]) -> str:
        """The records in ``files`` (SQL)."""
        return rows_of(files, self.types)

    def number(self, connection: duckdb.DuckDBPyConnection, files: Sequence[NamedFile]) -> int:
        """How many rows there are in ``files``."""
        if not files:
            return 0
        query = number_of(self.rows(files), self.identity, place=self.place, gone=self.gone)
        ((rows,),) = connection.sql(query).fetchall()
        return int(rows)


@dataclass(frozen=True)
class ComparedTable:
    """A table before and after: the files of each, and the columns that count: a row is changed if one of ``values`` is
    another, reissued if one of ``others`` is. Both sides have them all, with one type.
    """

    before: Sequence[NamedFile]
    after: Sequence[NamedFile]
    fold: RecordFold
    values: tuple[str, ...]
    others: tuple[str, ...] = ()

    def counts(self, connection: duckdb.DuckDBPyConnection) -> RowCounts:
        """How many rows became what; ``first`` has some of them afterwards."""
        before, after = (self.fold.number(connection, files) for files in (self.before, self.after))
        connection.execute("drop table if exists differing")
        if not (apart := {*self.before} ^ {*self.after}):
            return RowCounts(before, after)
        connection.execute(
            f"create or replace temp table touched as select distinct {quoted(self.fold.identity)} "
            f"from {self.fold.rows(sorted(apart, key=str))}"
        )
        connection.execute(f"create temp table differing as {self._differing()}")
        kinds = connection.sql(f"select {_KIND}, count(*) from differing group by all").fetchall()
        return RowCounts(before, after, **dict(kinds))

    def first(self, connection: duckdb.DuckDBPyConnection, limit: int, order: Sequence[str]) -> list[RowChange]:
        """The first ``limit`` of the rows that were added, removed or changed, once they are counted."""
        if {*self.before} == {*self.after}:
            return []
        rows = connection.sql(
            f"select * from differing where {_KIND} <> '{ChangeKind.REISSUED}' order by {quoted(order)} limit {limit}"
        )
        return [
            RowChange(
                ChangeKind(row[_KIND]),
                {name: row[name] for name in self.fold.identity},
                None if row[_KIND] == ChangeKind.ADDED else row[_BEFORE],
                None if row[_KIND] == ChangeKind.REMOVED else row[_AFTER],
            )
            for row in python_rows(rows.to_arrow_table())
        ]

    def _differing(self) -> str:
        """A query of rows that are not the same: identity, kind, and the other columns of either side."""
        keys = ", ".join(f"coalesce(a.{name}, b.{name}) as {name}" for name in map(identifier, self.fold.identity))
        kinds = (
            f"case when a.{_THERE} is null then '{ChangeKind.ADDED}' "
            f"when b.{_THERE} is null then '{ChangeKind.REMOVED}' "
            f"when {_unlike(self.values)} then '{ChangeKind.CHANGED}' "
            f"when {_unlike(self.others)} then '{ChangeKind.REISSUED}' end"
        )
        both = [*self.values, *self.others]
        return (
            f"select {keys}, {kinds} as {_KIND}, {_packed('a', both)} as {_BEFORE}, {_packed('b', both)} as {_AFTER} "
            f"from ({self._side(self.before)}) a full join ({self._side(self.after)}) b "
            f"on {same_identity('a', 'b', self.fold.identity)} where {_KIND} is not null"
        )

    def _side(self, files: Sequence[NamedFile]) -> str:
        """The rows of one side that may differ."""
        columns = [*self.fold.identity, *self.values, *self.others]
        if not files:
            rows = f"(select * from {self.fold.rows([*self.before, *self.after])} limit 0)"
        else:
            same = same_identity("f", "t", self.fold.identity)
            rows = f"(select f.* from {self.fold.rows(files)} f semi join touched t on {same})"
        newest = newest_of(rows, columns, self.fold.identity, place=self.fold.place, gone=self.fold.gone)
        return f"select *, true as {_THERE} from ({newest})"


def columns_of(connection: duckdb.DuckDBPyConnection, files: Sequence[NamedFile]) -> dict[str, str]:
    """Names and types of the columns of ``files``; none without files."""
    if not files:
        return {}
    relation = connection.sql(f"select * from {parquet([file.path for file in files[:1]])} limit 0")
    return dict(zip(relation.columns, map(str, relation.types), strict=True))


def _unlike(columns: Sequence[str]) -> str:
    differ = " or ".join(f"a.{name} is distinct from b.{name}" for name in map(identifier, columns))
    return f"({differ or 'false'})"


def _packed(side: str, columns: Sequence[str]) -> str:
    """``columns`` of one side as one struct."""
    if not columns:
        return "null"
    return "struct_pack(" + ", ".join(f"{name} := {side}.{name}" for name in map(identifier, columns)) + ")"
