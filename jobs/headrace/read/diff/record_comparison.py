"""What readers see beside the records of a target that only appends: what consumers make of them.

Of pipelines that discard or retract all records are summed, row by row. Of others the newest record of each key and
window says what its row is; so it is of a topic from which a compaction has taken older ones. Records pass through
DuckDB, which spills what does not fit into memory.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

from headrace.ext.sinks import NUMBER, RECORD_AT, RECORD_MISREAD, RECORD_PLACE, SIGN, StoredRecords
from headrace.model.accumulation import Accumulation
from headrace.model.expressions.data_types import DataType, ListType, PairsType, ValueType
from headrace.read.diff.change_records import StoredChangeRecords, records_between
from headrace.read.diff.changes import delivered_columns
from headrace.read.diff.table_comparison import (
    THEIR_BATCHES,
    THERE,
    UNREAD,
    ComparedColumns,
    TableComparison,
    comparable,
    count_rows,
    counted_sides,
    differing,
    read_as,
    with_whole_times,
)
from headrace.read.snapshots.named_panes import has_panes
from headrace.read.snapshots.progress import LastStage
from headrace.read.views.arrow_types import zoneless_rows
from headrace.read.views.columns import ViewColumns
from headrace.read.views.database import identifier, no_rows, quoted, sql_types
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.manifest import Manifest

if TYPE_CHECKING:
    import duckdb

_EXPIRED: Final = "panes that it holds have expired, so what the sum of its changes should be is not known"
_SUMMED: Final = (Accumulation.DISCARDING, Accumulation.RETRACTING)


def compare_with_records(
    catalog: Catalog,
    manifest: Manifest,
    theirs: AbstractContextManager[StoredRecords],
    *,
    until: int,
    limit: int = 20,
) -> TableComparison | str:
    """Compare what readers see of ``manifest`` with records up to number ``until``, which led there; or why that cannot
    be done. ``theirs`` are the records, with the columns that a delivery has.

    Memory is that of readers (HEADRACE_READ_MEMORY). Raises ComparedColumnsError, BrokenObjectError,
    ReadResourcesError, and what ``theirs`` raises.
    """
    stage = LastStage.of(manifest)
    accumulation = Accumulation.ACCUMULATING if stage is None else stage.accumulation
    if accumulation is Accumulation.DISCARDING and not has_panes(catalog, manifest, -1):
        return _EXPIRED
    view = ViewColumns.from_json(manifest.schema)
    columns = delivered_columns(view)
    with (
        records_between(catalog, None, manifest, after_number=0, restarts=False) as ours,
        theirs as stored,
    ):
        compared = _Comparison(ours, columns, view.identity, limit)
        compared.load(stored)
        lacking = compared.lacking(until)
        is_summed = accumulation in _SUMMED
        if lacking and stored.is_compacted and accumulation is Accumulation.RETRACTING:
            is_summed = False
        comparison = compared.sums() if is_summed else compared.newest()
        gone = compared.gone(stored.begins) if lacking else {}
        return _said_of(gone, lacking) if gone and _is_explained(comparison) else comparison


def _is_explained(comparison: TableComparison) -> bool:
    """Whether all that differs may be so since first records are gone."""
    others = comparison.only_theirs or comparison.different or comparison.twice or comparison.unreadable
    return not comparison.is_equal and not others


def _said_of(gone: Mapping[int, int], lacking: int) -> str:
    places = ", ".join(f"partition {place} begins at offset {at:,}" for place, at in gone.items())
    return (
        f"its retention has removed some of the {lacking:,} changes that are there no more and that its rows need "
        f"({places}). headrace deliver --refill sends all rows again"
    )


class _Comparison:
    """Records of one target in a database of its own."""

    def __init__(
        self, ours: StoredChangeRecords, columns: Mapping[str, ValueType], identity: list[str], limit: int
    ) -> None:
        self.database: duckdb.DuckDBPyConnection = ours.database
        self._columns, self._identity, self._limit = columns, identity, limit
        self._snapshot = ours.after or ""
        self._ours = ours.table
        if not ours.order:  # there are no files
            self._make("view", self._ours, f"select 1 as {SIGN}, * from ({no_rows(columns)})")

    def load(self, stored: StoredRecords) -> None:
        """Read all records. Those before a change of sign 0 in their part are void."""
        read = with_whole_times(stored.batches)
        optional = {RECORD_PLACE: DataType.INT, RECORD_AT: DataType.INT, RECORD_MISREAD: DataType.BOOL}
        more = {name: kind for name, kind in optional.items() if name in read.schema.names}
        columns = {NUMBER: DataType.INT, SIGN: DataType.INT, **self._columns, **more}
        with comparable(columns, ComparedColumns(), read.schema):
            self.database.register(THEIR_BATCHES, read)
            self._make("table", "stored", _typed(columns, read_as(columns, ComparedColumns(), read.schema)))
        self.database.unregister(THEIR_BATCHES)
        last = f"max({RECORD_AT}) as at, max({NUMBER}) as number"
        voids = f"{SIGN} = 0 and not {UNREAD}"
        self._make("table", "voids", f"select {RECORD_PLACE} as place, {last} from stored where {voids} group by all")
        self._make(
            "view",
            "live",
            f"select s.* from stored s left join voids v on s.{RECORD_PLACE} = v.place "
            f"where (v.at is null or s.{RECORD_AT} > v.at) and ({UNREAD} or {SIGN} <> 0)",
        )

    def lacking(self, until: int) -> int:
        """How many of the numbers up to ``until`` are not there, though no change has made them void."""
        begin = count_rows(self.database, "select coalesce(max(number), 0) from voids")
        ours = f"not {UNREAD} and {NUMBER} > {begin} and {NUMBER} <= {until}"
        there = count_rows(self.database, f"select count(distinct {NUMBER}) from live where {ours}")
        return until - begin - there

    def gone(self, begins: Mapping[int, int]) -> dict[int, int]:
        """Choose those of the parts whose first records are gone that lack what is not void."""
        void = {place for (place,) in self.database.sql("select place from voids").fetchall()}
        return {place: at for place, at in begins.items() if place not in void}

    def newest(self) -> TableComparison:
        """Rows are what the newest record of each identity says, in the part where that stands."""
        identity = quoted(self._identity)
        newest = (
            f"select {RECORD_PLACE}, max({RECORD_AT}) as {RECORD_AT} from live where not {UNREAD} "
            f"group by {RECORD_PLACE}, {identity}"
        )
        self._make(
            "table",
            "theirs",
            f"select {quoted(self._columns)}, false as {UNREAD} from live l semi join ({newest}) n "
            f"on l.{RECORD_PLACE} = n.{RECORD_PLACE} and l.{RECORD_AT} = n.{RECORD_AT} where {SIGN} > 0",
        )
        self._make("view", "ours", f"select {quoted(self._columns)}, true as {THERE} from {self._ours}")
        self._make("table", "compared", differing(self._columns, self._identity, 0.0))
        again = f"select {NUMBER} from live where not {UNREAD} group by {NUMBER} having count(*) > 1"
        same_number = count_rows(self.database, f"select count(*) from ({again})")
        sides = counted_sides(self.database, self._snapshot, self._identity, self._limit)
        return sides.with_more(twice=same_number, unreadable=self._unreadable())

    def sums(self) -> TableComparison:
        """Rows are there as often as the sum of their signs says."""
        columns = quoted(self._columns)
        both_sides = (
            f"select {columns}, {SIGN} as ours, 0 as theirs from {self._ours} union all "
            f"select {columns}, 0 as ours, {SIGN} as theirs from live where not {UNREAD}"
        )
        self._make(
            "table",
            "summed",
            f"select {columns}, sum(ours)::bigint as _headrace_ours, sum(theirs)::bigint as _headrace_theirs "
            f"from ({both_sides}) group by {columns} having sum(ours) <> 0 or sum(theirs) <> 0",
        )
        o, t = "_headrace_ours", "_headrace_theirs"
        sums = ", ".join(
            f"coalesce(sum({number}), 0)::bigint"
            for number in (
                f"greatest({o}, 0)",
                f"greatest({t}, 0)",
                f"greatest({o} - greatest({t}, 0), 0)",
                f"case when {o} <= 0 then greatest({t}, 0) end",
                f"case when {o} > 0 then greatest({t} - {o}, 0) end",
                f"greatest(-{t}, 0)",
            )
        )
        ((ours, theirs, missing, strange, twice, overdrawn),) = self.database.sql(
            f"select {sums} from summed"
        ).fetchall()
        packed = "struct_pack(" + ", ".join(f"{name} := {name}" for name in map(identifier, self._columns)) + ")"
        first = self.database.sql(
            f"select case when {o} > 0 then {packed} end as ours, case when {t} > 0 then {packed} end as theirs, "
            f"{o} as ours_times, {t} as theirs_times, case when {t} < 0 then {packed} end as overdrawn from summed "
            f"where {o} <> {t} order by {quoted(self._identity)}, {o}, {t} limit {self._limit}"
        )
        return TableComparison(
            self._snapshot,
            ours,
            theirs,
            missing,
            strange,
            0,
            twice,
            self._unreadable(),
            zoneless_rows(first.to_arrow_table()),
            overdrawn,
        )

    def _unreadable(self) -> int:
        return count_rows(self.database, f"select count(*) from live where {UNREAD}")

    def _make(self, kind: str, name: str, query: str) -> None:
        self.database.execute(f"create temp {kind} {name} as {query}")


def _typed(columns: Mapping[str, ValueType], read: str) -> str:
    """SQL: what was ``read``, each value in the type of its column, and whether a record is none of ours."""
    types = sql_types(columns)
    plain = {name: kind for name, kind in columns.items() if not isinstance(kind, ListType | PairsType)}
    values = [
        f"try_cast({identifier(name)} as {types[name]}) as {identifier(name)}" if name in plain else identifier(name)
        for name in columns
        if name != RECORD_MISREAD
    ]
    # a cast rounds
    other = [
        f"try_cast({identifier(name)} as {types[name]}) is distinct from {identifier(name)}"
        for name, kind in plain.items()
        if kind in (DataType.INT, DataType.DATE)
    ]
    misread = [UNREAD, *other, f"{NUMBER} is null", f"{SIGN} is null", f"{SIGN} not in (-1, 0, 1)"]
    if RECORD_MISREAD in columns:
        misread.append(RECORD_MISREAD)
    places = [] if RECORD_PLACE in columns else [f"0 as {RECORD_PLACE}", f"try_cast({NUMBER} as bigint) as {RECORD_AT}"]
    return f"select {', '.join([*values, *places])}, coalesce({' or '.join(misread)}, true) as {UNREAD} from ({read})"
