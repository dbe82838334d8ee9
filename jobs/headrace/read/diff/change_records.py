"""What happened to ``current`` between two published states, in order; or the panes of it, where each counts by itself.

Panes that lead a target from one published state to another where each pane counts by itself: of pipelines that
discard, whose rows of ``current`` are not all that was given.

A target holds the sum of panes. So a move back is the inverse of the panes that are given up, and a move to another
line that of the panes which only the old one has, newest first, and then the panes which only the new one has.

What happened to ``current`` between two published states, change by change and in order: for targets that can only
append.

Between an ancestor and what follows it these are the panes and retractions of each epoch. Where ``published`` went back
or to another line, it depends on what a pane holds. Of a pipeline that discards each pane counts by itself: those that
are given up are taken back (``summed_panes``), and the sum of all records is that of the panes that readers see. Else
the rows that differ are: each is withdrawn as it was, and put in place as it is. Then the newest record of a key and
window says what its row is; and the sum is what readers see, if panes withdraw what they replace (``retracting``).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from headrace.ext.sinks import EPOCH, NUMBER, SIGN, ChangeRecords, ChangeSource, FillReason
from headrace.model.expressions.data_types import DataType
from headrace.read.diff.changes import (
    BATCH_ROWS,
    AllRows,
    DifferingRows,
    RecordOrigin,
    RecordQuery,
    are_alike,
    delivered_columns,
    origin_of,
    reason_unknown,
    still_there,
)
from headrace.read.diff.later_panes import LaterPanes
from headrace.read.snapshots.named_panes import common_epoch, has_panes
from headrace.read.snapshots.progress import discards
from headrace.read.views.columns import ViewColumns
from headrace.read.views.database import quoted, without_rows
from headrace.read.views.row_files import GONE, PLACE
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.format.manifest import Manifest

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa


_IS_NEW, _EPOCH, _SEQUENCE = (f"_headrace_{name}" for name in ("is_new", "epoch", "sequence"))
"""Columns beside those of users, whose names do not begin so."""


def panes_apart(catalog: Catalog, before: Manifest | None, after: Manifest, *, unknown: FillReason) -> "SummedPanes":
    """What leads a target from ``before`` to ``after``, which discards. If some of the panes between have expired, or
    the target holds others, these are all panes that are left. ``unknown``: why ``before`` is None, if it is.
    """
    shown = delivered_columns(ViewColumns.from_json(after.schema))
    since = -1 if before is None else common_epoch(catalog, before, after, shown)
    reason = unknown if before is None else _reason_to_fill(catalog, before, after, since)
    if before is None or reason is not None:
        return SummedPanes(after, None, LaterPanes.of(catalog, after, -1), reason)
    withdrawn, added = (LaterPanes.of(catalog, side, since) for side in (before, after))
    return SummedPanes(after, withdrawn, added)


def panes_taken_back(catalog: Catalog, before: Manifest) -> "SummedPanes | None":
    """What leads a target from ``before``, which discards, to nothing; None if some of its panes have expired."""
    if not has_panes(catalog, before, -1):
        return None
    return SummedPanes(before, LaterPanes.of(catalog, before, -1), None)


def _reason_to_fill(catalog: Catalog, before: Manifest, after: Manifest, since: int) -> FillReason | None:
    """Why panes after epoch ``since`` do not lead from the one to the other, if they do not."""
    if not discards(before):
        return FillReason.ACCUMULATION
    if not are_alike(before, after):
        return FillReason.COLUMNS
    return None if all(has_panes(catalog, side, since) for side in (before, after)) else FillReason.EXPIRED


class SummedPanes(RecordOrigin):
    """Panes that are ``withdrawn``, each the other way round, and then those that are ``added``."""

    def __init__(
        self, shown: Manifest, withdrawn: LaterPanes | None, added: LaterPanes | None, reason: FillReason | None = None
    ) -> None:
        super().__init__(shown)
        self.withdrawn, self.added, self.reason = withdrawn, added, reason
        self.kind = ChangeSource.PANES if reason is None else ChangeSource.ALL_PANES

    @property
    def files(self) -> list[DataFile]:
        return [file for panes in (self.withdrawn, self.added) if panes is not None for file in panes.files]

    def _records(self, connection: "duckdb.DuckDBPyConnection", local: Mapping[str, Path]) -> RecordQuery | None:
        del connection
        parts = [
            self._part(panes, local, is_new=is_new)
            for panes, is_new in ((self.withdrawn, False), (self.added, True))
            if panes is not None and panes.files
        ]
        order = [_IS_NEW, _EPOCH, _SEQUENCE, *self.columns.identity]
        return RecordQuery(" union all ".join(parts), order) if parts else None

    def _part(self, panes: LaterPanes, local: Mapping[str, Path], *, is_new: bool) -> str:
        epoch, sequence = PLACE
        sign, place = (1, "") if is_new else (-1, "-")  # the newest pane is the first to be taken back
        about = (
            f"case when {GONE} then {-sign} else {sign} end as {SIGN}, "
            f"{epoch if is_new else 'null::bigint'} as {EPOCH}, "
            f"{is_new} as {_IS_NEW}, {place}{epoch} as {_EPOCH}, {place}{sequence} as {_SEQUENCE}"
        )
        return f"select {about}, {quoted(self.shown)} from {panes.rows(local, self.fold)}"


_ABOUT: Final[Mapping[str, DataType]] = {NUMBER: DataType.INT, SIGN: DataType.INT, EPOCH: DataType.INT}
_RECORDS: Final = "headrace_records"
_FILLS: Final = (ChangeSource.ALL_ROWS, ChangeSource.ALL_PANES)


@dataclass(frozen=True)
class StoredChangeRecords(ChangeRecords):
    """Records that are read from a ``database``, where a ``table`` has them, in an ``order`` of its columns. It is open
    as long as the context that gave them.
    """

    database: "duckdb.DuckDBPyConnection" = field(kw_only=True)
    order: tuple[str, ...] = field(default=(), kw_only=True)
    table: ClassVar[str] = _RECORDS

    def batches(self) -> "Iterator[pa.RecordBatch]":
        """All records in order, which is the same each time."""
        import pyarrow as pa

        from headrace.read.views.arrow_types import named_as, schema_of

        schema, number = schema_of(self.columns), self.first
        if self.restarts:
            yield _restart(schema, number)
            number += 1
        if not self.added + self.withdrawn:
            return
        names = [name for name in self.columns if name != NUMBER]
        query = f"select {quoted(names)} from {_RECORDS} order by {quoted(self.order)}"
        for batch in self.database.sql(query).to_arrow_reader(BATCH_ROWS):
            if batch.num_rows:
                numbers = pa.array(range(number, number + batch.num_rows), pa.int64())
                number += batch.num_rows
                yield named_as(pa.RecordBatch.from_arrays([numbers, *batch.columns], names=[*self.columns]), schema)


def _restart(schema: "pa.Schema", number: int) -> "pa.RecordBatch":
    import pyarrow as pa

    values = {NUMBER: number, SIGN: 0}
    arrays = [pa.array([values.get(field.name)], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@contextmanager
def records_between(
    catalog: Catalog, before: str | None, after: Manifest | None, *, after_number: int, restarts: bool
) -> Iterator[StoredChangeRecords]:
    """What leads a target from ``before`` (None: from nothing, or from what is not known) to ``after`` (None: without a
    row). Records count on from ``after_number``; ``restarts``: if ``before`` does not serve, a first one says so.

    Memory is that of readers (HEADRACE_READ_MEMORY). Raises BrokenObjectError, ReadResourcesError.
    """
    source = _source(catalog, before, after)
    if source is None:
        with without_rows() as connection:
            first, reason = after_number + 1, FillReason.UNPUBLISHED
            yield StoredChangeRecords(
                ChangeSource.ALL_ROWS, before, None, _ABOUT, first, restarts, 0, 0, reason=reason, database=connection
            )
        return
    columns = {**_ABOUT, **delivered_columns(source.columns)}
    with source.database(catalog) as (connection, local):
        records = source.records(connection, local)
        added, withdrawn = (0, 0) if records is None else _prepared(connection, source, records)
        yield StoredChangeRecords(
            source.kind,
            before,
            None if after is None else after.snapshot_id,
            columns,
            after_number + 1,
            restarts and source.kind in _FILLS,
            added,
            withdrawn,
            reason=source.reason,
            database=connection,
            order=() if records is None else (*records.order,),
        )


def _source(catalog: Catalog, before: str | None, after: Manifest | None) -> RecordOrigin | None:
    start = None if before is None else still_there(catalog, before)
    is_summed = start is not None and discards(start)
    if after is None and start is not None:
        return panes_taken_back(catalog, start) if is_summed else DifferingRows(start, None)
    if after is None:
        return None
    if discards(after):
        return panes_apart(catalog, start, after, unknown=reason_unknown(before))
    return AllRows(after, FillReason.ACCUMULATION) if is_summed else origin_of(catalog, before, after)


def _prepared(connection: "duckdb.DuckDBPyConnection", source: RecordOrigin, records: RecordQuery) -> tuple[int, int]:
    """How many rows come and go, once the records lie ready. All rows are a view, which need not fit into memory."""
    kind = "view" if source.kind in _FILLS else "table"
    connection.execute(f"create temp {kind} {_RECORDS} as {records.query}")
    ((added, withdrawn),) = connection.sql(
        f"select count(*) filter ({SIGN} > 0), count(*) filter ({SIGN} < 0) from {_RECORDS}"
    ).fetchall()
    return int(added), int(withdrawn)
