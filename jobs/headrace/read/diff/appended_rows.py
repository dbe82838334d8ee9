"""What targets get of ``current`` that only append: what happened to it, in order, or rows once they are final.

``panes_apart`` is for pipelines that discard, whose rows of ``current`` are not all that was given: each pane counts by
itself. A target holds the sum of panes. So a move back is the inverse of the panes that are given up. A move to another
line is first the inverse of the panes that only the old one has, newest first. The panes that only the new one has
follow.

``records_between`` tells what happened, change by change and in order. Between an ancestor and what follows it these
are the panes and retractions of each epoch. Where ``published`` went back or to another line, it depends on what a pane
holds:

* A pipeline that discards takes back the panes that are given up (``SummedPanes``). The sum of all records is then that
  of the panes that readers see.
* Else the rows that differ count: each is withdrawn as it was, and put in place as it is. Then the newest record of a
  key and window says what its row is. The sum is what readers see, if panes withdraw what they replace
  (``retracting``).

``final_rows_between`` gives rows whose windows have expired, so that no record can change them any more. Between two
snapshots these are the rows whose windows have expired meanwhile. Rows of windows that had expired before come too if
they are others now, by a patch or since the output was computed again.

``window_news`` says which windows of what readers see are complete, and which of them have other rows since that was
said last. It serves those who do something once for each window, such as a DAG that Airflow runs for each partition.

A window is complete once the watermark that comes to the last aggregation has passed its end. Late data, a promotion, a
patch or a rollback may give a complete window other rows: then it is corrected.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from headrace.connections import Connection
from headrace.errors import FixConfigError
from headrace.ext.sinks import EPOCH, ID, NUMBER, SIGN, ChangeRecords, ChangeSource, FillReason, FinalRows
from headrace.model import time
from headrace.model.accumulation import WINDOW_END, WINDOW_START
from headrace.model.expressions.data_types import DataType, ValueType
from headrace.model.windows import CalendarWindows, FixedWindows, Window, WindowFn, unshift_windows, window_at
from headrace.read.diff import changes as diff_changes
from headrace.read.diff.layered_tables import LaterPanes
from headrace.read.snapshots.progress import LastStage, common_epoch, complete_until, has_discarding_panes, has_panes
from headrace.read.views.columns import Folding, ViewColumns
from headrace.read.views.database import sql_columns, sql_identifier, sql_literal, without_rows
from headrace.read.views.row_files import IS_RETRACTION, PLACE, open_database_of
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.output_view import UnknownOutputError
from headrace_snapshots.names import PUBLISHED

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from headrace.read.pipeline_reader import PipelineReader


_IS_NEW, _EPOCH, _SEQUENCE = (f"_headrace_{name}" for name in ("is_new", "epoch", "sequence"))
"""Columns beside those of users, whose names do not begin so."""


def panes_apart(
    catalog: Catalog, old_manifest: Manifest | None, new_manifest: Manifest, *, unknown: FillReason
) -> "SummedPanes":
    """What leads a target from ``old_manifest`` to ``new_manifest``, which discards. If panes between have expired, or
    the target holds others, all panes that are left. ``unknown``: why ``old_manifest`` is None.
    """
    columns = diff_changes.delivered_columns(ViewColumns.from_json(new_manifest.schema))
    since_epoch = -1 if old_manifest is None else common_epoch(catalog, old_manifest, new_manifest, columns)
    reason = unknown if old_manifest is None else _reason_to_fill(catalog, old_manifest, new_manifest, since_epoch)
    if old_manifest is None or reason is not None:
        return SummedPanes(new_manifest, None, LaterPanes.from_manifest(catalog, new_manifest, -1), reason)
    withdrawn, added_panes = (
        LaterPanes.from_manifest(catalog, side, since_epoch) for side in (old_manifest, new_manifest)
    )
    return SummedPanes(new_manifest, withdrawn, added_panes)


def panes_taken_back(catalog: Catalog, old_manifest: Manifest) -> "SummedPanes | None":
    """What leads a target from ``old_manifest``, which discards, to nothing; None if some of its panes have expired."""
    if not has_panes(catalog, old_manifest, -1):
        return None
    return SummedPanes(old_manifest, LaterPanes.from_manifest(catalog, old_manifest, -1), None)


def _reason_to_fill(
    catalog: Catalog, old_manifest: Manifest, new_manifest: Manifest, since_epoch: int
) -> FillReason | None:
    """Why panes after epoch ``since_epoch`` do not lead from the one to the other, if they do not."""
    if not has_discarding_panes(old_manifest):
        return FillReason.ACCUMULATION
    if not diff_changes.are_alike(old_manifest, new_manifest):
        return FillReason.COLUMNS
    return (
        None
        if all(has_panes(catalog, side, since_epoch) for side in (old_manifest, new_manifest))
        else FillReason.EXPIRED
    )


class SummedPanes(diff_changes.RecordOrigin):
    """First the ``withdrawn_panes``, each the other way round, then the ``added_panes``."""

    def __init__(
        self,
        manifest: Manifest,
        withdrawn: LaterPanes | None,
        added_panes: LaterPanes | None,
        reason: FillReason | None = None,
    ) -> None:
        super().__init__(manifest)
        self.withdrawn_panes, self.added_panes, self.reason = withdrawn, added_panes, reason
        self.kind = ChangeSource.PANES if reason is None else ChangeSource.ALL_PANES

    @property
    def files(self) -> list[DataFile]:
        return [file for panes in (self.withdrawn_panes, self.added_panes) if panes is not None for file in panes.files]

    def _query_file_records(
        self, connection: "duckdb.DuckDBPyConnection", local: Mapping[str, Path]
    ) -> diff_changes.RecordQuery | None:
        del connection
        parts = [
            self._panes_query(panes, local, is_new=is_new)
            for panes, is_new in ((self.withdrawn_panes, False), (self.added_panes, True))
            if panes is not None and panes.files
        ]
        order = [_IS_NEW, _EPOCH, _SEQUENCE, *self.columns.identity]
        return diff_changes.RecordQuery(" union all ".join(parts), order) if parts else None

    def _panes_query(self, panes: LaterPanes, local: Mapping[str, Path], *, is_new: bool) -> str:
        epoch, sequence = PLACE
        sign, place = (1, "") if is_new else (-1, "-")  # the newest pane is the first to be taken back
        sign_columns = (
            f"case when {IS_RETRACTION} then {-sign} else {sign} end as {SIGN}, "
            f"{epoch if is_new else 'null::bigint'} as {EPOCH}, "
            f"{is_new} as {_IS_NEW}, {place}{epoch} as {_EPOCH}, {place}{sequence} as {_SEQUENCE}"
        )
        return f"select {sign_columns}, {sql_columns(self.shown_columns)} from {panes.panes_sql(local, self.fold)}"


_CHANGE_COLUMNS: Final[Mapping[str, DataType]] = {NUMBER: DataType.INT, SIGN: DataType.INT, EPOCH: DataType.INT}
_RECORDS: Final = "headrace_records"
_FILLS: Final = (ChangeSource.ALL_ROWS, ChangeSource.ALL_PANES)


@dataclass(frozen=True)
class StoredChangeRecords(ChangeRecords):
    """Records in a ``table`` of a ``database``, ordered by ``order``; open as long as the context that gave them."""

    database: "duckdb.DuckDBPyConnection" = field(kw_only=True)
    order: tuple[str, ...] = field(default=(), kw_only=True)
    table: ClassVar[str] = _RECORDS

    def batches(self) -> "Iterator[pa.RecordBatch]":
        """All records in order, which is the same each time."""
        import pyarrow as pa

        from headrace.read.views.arrow_types import named_as, schema_of

        schema, number = schema_of(self.columns), self.first
        if self.restarts:
            yield _restart_record(schema, number)
            number += 1
        if not self.added + self.withdrawn:
            return
        names = [name for name in self.columns if name != NUMBER]
        query = f"select {sql_columns(names)} from {_RECORDS} order by {sql_columns(self.order)}"
        for batch in self.database.sql(query).to_arrow_reader(diff_changes.BATCH_ROWS):
            if batch.num_rows:
                numbers = pa.array(range(number, number + batch.num_rows), pa.int64())
                number += batch.num_rows
                yield named_as(pa.RecordBatch.from_arrays([numbers, *batch.columns], names=[*self.columns]), schema)


def _restart_record(schema: "pa.Schema", number: int) -> "pa.RecordBatch":
    import pyarrow as pa

    values = {NUMBER: number, SIGN: 0}
    arrays = [pa.array([values.get(field.name)], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@contextmanager
def records_between(
    catalog: Catalog, old_id: str | None, new_manifest: Manifest | None, *, after_number: int, restarts: bool
) -> Iterator[StoredChangeRecords]:
    """What leads a target from ``old_id`` (None: from nothing, or from what is not known) to ``new_manifest`` (None:
    without a row). Records count from ``after_number``; ``restarts``: a first one says if ``old_id`` does not serve.

    Memory is that of readers (HEADRACE_READ_MEMORY). Raises BrokenObjectError, ReadResourcesError.
    """
    source = _record_origin(catalog, old_id, new_manifest)
    if source is None:
        with without_rows() as connection:
            first, reason = after_number + 1, FillReason.UNPUBLISHED
            yield StoredChangeRecords(
                ChangeSource.ALL_ROWS,
                old_id,
                None,
                _CHANGE_COLUMNS,
                first,
                restarts,
                0,
                0,
                reason=reason,
                database=connection,
            )
        return
    columns = {**_CHANGE_COLUMNS, **diff_changes.delivered_columns(source.columns)}
    with open_database_of(catalog.store, source.files) as (connection, local):
        records = source.query_records(connection, local)
        number_added, withdrawn = (0, 0) if records is None else _prepare_changes(connection, source, records)
        yield StoredChangeRecords(
            source.kind,
            old_id,
            None if new_manifest is None else new_manifest.snapshot_id,
            columns,
            after_number + 1,
            restarts and source.kind in _FILLS,
            number_added,
            withdrawn,
            reason=source.reason,
            database=connection,
            order=() if records is None else (*records.order,),
            identity=source.columns.id or (*source.columns.identity,),
        )


def _record_origin(
    catalog: Catalog, start_id: str | None, end_manifest: Manifest | None
) -> diff_changes.RecordOrigin | None:
    start = None if start_id is None else diff_changes.still_there(catalog, start_id)
    is_summed = start is not None and has_discarding_panes(start)
    if end_manifest is None and start is not None:
        return panes_taken_back(catalog, start) if is_summed else diff_changes.DifferingRows(start, None)
    if end_manifest is None:
        return None
    if has_discarding_panes(end_manifest):
        return panes_apart(catalog, start, end_manifest, unknown=diff_changes.reason_unknown(start_id))
    return (
        diff_changes.AllRows(end_manifest, FillReason.ACCUMULATION)
        if is_summed
        else diff_changes.origin_of(catalog, start_id, end_manifest)
    )


def _prepare_changes(
    connection: "duckdb.DuckDBPyConnection", source: diff_changes.RecordOrigin, records: diff_changes.RecordQuery
) -> tuple[int, int]:
    """How many rows come and go, once the records lie ready. All rows are a view, which need not fit into memory."""
    kind = "view" if source.kind in _FILLS else "table"
    connection.execute(f"create temp {kind} {_RECORDS} as {records.query}")
    ((number_added, withdrawn),) = connection.sql(
        f"select count(*) filter ({SIGN} > 0), count(*) filter ({SIGN} < 0) from {_RECORDS}"
    ).fetchall()
    return int(number_added), int(withdrawn)


_FINAL: Final = "headrace_final"


class NeverFinalError(FixConfigError, code="config.never_final"):
    """Windows of the pipeline never expire, so none of its rows is ever final."""


@dataclass(frozen=True)
class StoredFinalRows(FinalRows):
    """Final rows that are read by queries, each a part of them."""

    parts: "Sequence[_RowsQuery]" = field(repr=False)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        from headrace.read.views.arrow_types import zoneless_rows

        for batch in self.batches():
            yield from zoneless_rows(batch)

    def batches(self) -> "Iterator[pa.RecordBatch]":
        """The rows."""
        from headrace.read.views.arrow_types import named_as, schema_of

        schema = schema_of(self.columns)
        for part in self.parts:
            for batch in part.database.sql(part.query).to_arrow_reader(diff_changes.BATCH_ROWS):
                if batch.num_rows:
                    yield named_as(batch, schema)


@dataclass(frozen=True)
class _RowsQuery:
    """A query of rows in a database that is open as long as the context that gave the rows."""

    database: "duckdb.DuckDBPyConnection"
    query: str
    number: int


@contextmanager
def final_rows_between(
    catalog: Catalog, old_id: str | None, new_manifest: Manifest, sink: str, connection: Connection | None
) -> Iterator[StoredFinalRows]:
    """The final rows of ``new_manifest`` that a ``sink`` which has those of ``old_id`` lacks. Their ids are of the
    pipeline and the sink, whatever its output is called. Raises NeverFinalError, BrokenObjectError, ReadResourcesError.
    """
    start = None if old_id is None else catalog.manifest(old_id)
    until_time, since_time = (
        _final_until(catalog, new_manifest),
        None if start is None else _final_until(catalog, start),
    )
    view = ViewColumns.from_json(new_manifest.schema)
    columns = {ID: DataType.STRING, **diff_changes.delivered_columns(view)}
    id_prefix = f"{catalog.pipeline}./{sink}"  # as it was when outputs had no names
    parts = []
    with ExitStack() as stack:
        if since_time is None or until_time > since_time:
            changes = stack.enter_context(diff_changes.changes_between(catalog, None, new_manifest))
            newly_final = _ended_by(until_time) + ("" if since_time is None else f" and not ({_ended_by(since_time)})")
            parts.append(_make_part(changes, newly_final, view, id_prefix))
        if since_time is not None:
            changes = stack.enter_context(diff_changes.changes_between(catalog, old_id, new_manifest))
            if changes.source is not ChangeSource.ALL_ROWS:
                parts.append(_make_part(changes, f"not {IS_RETRACTION} and {_ended_by(since_time)}", view, id_prefix))
        number = sum(part.number for part in parts)
        yield StoredFinalRows(sink, old_id, new_manifest.snapshot_id, columns, number, connection, parts)


def _final_until(catalog: Catalog, manifest: Manifest) -> time.Instant:
    """Windows that end no later than that have expired."""
    stage = LastStage.from_manifest(manifest)
    if stage is not None and stage.gives_rows:
        if ViewColumns.from_json(manifest.schema).folding is Folding.NOTHING:
            return time.MAX_INSTANT
        raise NeverFinalError(
            f"rows of pipeline {catalog.pipeline} can be withdrawn at any time, so none is ever final: give it another "
            "sink, which can take back"
        )
    if stage is None or stage.lateness is None:
        raise NeverFinalError(
            f"windows of pipeline {catalog.pipeline} never expire (allowed_lateness=None), so no row is ever final: "
            "give it an allowed lateness, or another sink, which can take back"
        )
    return stage.expired_until(manifest)


def _ended_by(end_time: time.Instant) -> str:
    """SQL: whether a window has expired. One without an end does at the end of the input alone."""
    if end_time >= time.MAX_INSTANT:
        return "true"
    return f"coalesce(epoch_us({sql_identifier(WINDOW_END)}) <= {int(end_time)}, false)"


def _make_part(changes: diff_changes.StoredChanges, condition: str, view: ViewColumns, id_prefix: str) -> _RowsQuery:
    columns = diff_changes.delivered_columns(view)
    texts = " || ".join(_identity_text(name, columns[name]) for name in (view.id or view.identity))
    id_ = f"substr(sha256({sql_literal(id_prefix)} || {texts}), 1, 32) as {ID}"
    database = changes.database
    database.execute(
        f"create temp table {_FINAL} as select {id_}, {sql_columns(columns)} from {changes.table} where {condition}"
    )
    ((number,),) = database.sql(f"select count(*) from {_FINAL}").fetchall()
    return _RowsQuery(database, f"from {_FINAL} order by {sql_columns([view.extent[1], *view.identity])}", int(number))


def _identity_text(name: str, kind: ValueType) -> str:
    """SQL: a column of the identity as text from which no other value makes the same."""
    column = sql_identifier(name)
    match kind:
        case DataType.TIMESTAMP:
            text = f"cast(epoch_us({column}) as varchar)"
        case DataType.BYTES:
            text = f"hex({column})"
        case _:
            text = f"cast({column} as varchar)"
    return f"coalesce('/' || length({text}) || ':' || {text}, '/-')"


MOST_QUIET = 10_000
"""Complete windows of a news without a row in them are named up to so many; if there are more, only those with rows are
named.
"""


@dataclass(frozen=True)
class AnnouncedWindows:
    """What was announced last: ``snapshot`` (None: nothing), whose windows were complete ``until`` then."""

    snapshot: str | None
    until: time.Instant

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """The inverse of ``to_json``."""
        return cls(value["snapshot"], time.parse_instant(value["until"]))

    def to_json(self) -> dict[str, Any]:
        """A JSON value."""
        return {"snapshot": self.snapshot, "until": time.render(self.until)}


@dataclass(frozen=True)
class WindowNews:
    """Windows that are ``completed`` since, and those that were complete and are ``corrected``, oldest first; what is
    ``announced`` with them. ``is_guess``: nobody knows any more what was announced before, and every complete window is
    among them, if there is any.
    """

    completed: tuple[Window, ...]
    corrected: tuple[Window, ...]
    announced: AnnouncedWindows
    is_guess: bool = False

    def partition_keys(self) -> list[str]:
        """The windows' names as partitions: when they begin, in UTC, as Airflow has it (``2026-11-20T09:00:00``)."""
        starts = {window.start for window in (*self.completed, *self.corrected)}
        return [time.iso_8601(start).removesuffix("Z") for start in sorted(starts)]


def window_news(
    reader: "PipelineReader",
    where: WindowFn | None,
    last_announcement: AnnouncedWindows | None,
    *,
    at_first: int | None = None,
) -> WindowNews:
    """What is new of the windows that readers of ``reader`` see since the ``last_announcement`` (None: there was none).
    Windows of ``where`` count also if they have no row, where they follow one another. ``at_first``: if nothing was
    announced so far, only so many, the newest.

    Windows without an end are never complete. Raises what readers raise.
    """
    catalog = reader.catalog
    published_id = catalog.head().refs.get(PUBLISHED)
    published_manifest = None if published_id is None else catalog.manifest(published_id)
    complete_time = time.Instant(time.MIN_INSTANT) if published_manifest is None else complete_until(published_manifest)
    now = AnnouncedWindows(published_id, complete_time)
    since_time = time.Instant(time.MIN_INSTANT) if last_announcement is None else last_announcement.until
    completed_windows = {
        *_completed_windows(reader, published_id, since_time, complete_time),
        *_regular_windows(where, since_time, complete_time),
    }
    corrected_windows, is_guess = set[Window](), False
    if last_announcement is not None and last_announcement.snapshot != published_id:
        touched_windows, is_guess = _touched_windows(catalog, last_announcement, published_manifest)
        corrected_windows = {window for window in touched_windows if window.end <= since_time} - completed_windows
    first = sorted(completed_windows)
    if last_announcement is None and at_first is not None:
        first = first[max(0, len(first) - at_first) :]
    return WindowNews(tuple(first), tuple(sorted(corrected_windows)), now, is_guess)


def _completed_windows(
    reader: "PipelineReader", snapshot: str | None, since_time: time.Instant, until_time: time.Instant
) -> Iterator[Window]:
    """Windows of rows of ``snapshot`` that end after ``since_time``, and at ``until_time`` or before."""
    if snapshot is None or until_time <= since_time:
        return iter(())
    bounds = [
        f"{WINDOW_END} {sign} make_timestamptz({int(bound)})"
        for sign, bound in ((">", since_time), ("<=", until_time))
        if time.is_finite(bound)
    ]
    condition = " and ".join([f"{WINDOW_START} is not null", f"{WINDOW_END} is not null", *bounds])
    rows = reader.current(at=snapshot, where=condition, columns=[WINDOW_START, WINDOW_END]).to_arrow()
    return _read_windows(rows.group_by([WINDOW_START, WINDOW_END]).aggregate([]))


def _read_windows(rows: "pa.Table") -> Iterator[Window]:
    import pyarrow as pa

    ends = (rows.column(name).cast(pa.timestamp("us", "UTC")).cast(pa.int64()) for name in (WINDOW_START, WINDOW_END))
    for start, end in zip(*(column.to_pylist() for column in ends), strict=True):
        yield Window(time.Instant(start), time.Instant(end))


def _touched_windows(
    catalog: Catalog, announcement: AnnouncedWindows, new_manifest: Manifest | None
) -> tuple[Iterable[Window], bool]:
    """The windows whose rows are not those of the ``announcement``; and whether nobody knows which, so that all are."""
    if new_manifest is None:  # all of them are gone
        assert announcement.snapshot is not None
        try:
            start_id, new_manifest = None, catalog.manifest(announcement.snapshot)
        except (MissingSnapshotError, BrokenObjectError, UnknownOutputError):
            return (), True
    else:
        start_id = announcement.snapshot
    with diff_changes.changes_between(catalog, start_id, new_manifest) as changes:
        windows = [Window(time.Instant(start), time.Instant(end)) for start, end in changes.changed_windows()]
        return windows, start_id is not None and changes.source is ChangeSource.ALL_ROWS


def _regular_windows(where: WindowFn | None, since_time: time.Instant, until_time: time.Instant) -> Iterator[Window]:
    """The windows that end between, where those of all keys are the same and follow one another."""
    inner = None if where is None else unshift_windows(where)
    follow = isinstance(inner, CalendarWindows) or (isinstance(inner, FixedWindows) and inner.phase is None)
    if inner is None or not follow or not (time.is_finite(since_time) and time.is_finite(until_time)):
        return
    window = window_at(inner, since_time)
    for _ in range(MOST_QUIET):
        if window is None or window.end > until_time or window.end >= time.GLOBAL_WINDOW_END:
            return
        if window.end > since_time:
            yield window
        window = window_at(inner, window.end)
