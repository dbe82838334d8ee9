"""Rows that are final: their windows have expired, so that no record can change them any more.

Between two snapshots these are the rows whose windows have expired meanwhile, and those of windows that had expired
before and are others now, by a patch or since the output was computed again.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headrace.connections import Connection
from headrace.errors import FixConfigError
from headrace.ext.sinks import ID, ChangeSource, FinalRows
from headrace.model.expressions.data_types import DataType
from headrace.model.expressions.value_types import ValueType
from headrace.model.panes import WINDOW_END
from headrace.model.time import MAX_INSTANT, Instant
from headrace.read.diff.changes import BATCH_ROWS, StoredChanges, changes_between, delivered_columns
from headrace.read.snapshots.last_stage import LastStage
from headrace.read.views.columns import ViewColumns
from headrace.read.views.compaction import GONE
from headrace.read.views.database import identifier, literal, quoted
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.manifest import Manifest

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

_FINAL: Final = "headrace_final"


class NeverFinalError(FixConfigError, code="config.never_final"):
    """Windows of the pipeline never expire, so none of its rows is ever final."""


@dataclass(frozen=True)
class StoredFinalRows(FinalRows):
    """Final rows that are read by queries, each a part of them."""

    parts: "Sequence[_Part]" = field(repr=False)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        from headrace.read.views.arrow_types import zoneless_rows

        for batch in self.batches():
            yield from zoneless_rows(batch)

    def batches(self) -> "Iterator[pa.RecordBatch]":
        """The rows."""
        from headrace.read.views.arrow_types import named_as, schema_of

        schema = schema_of(self.columns)
        for part in self.parts:
            for batch in part.database.sql(part.query).to_arrow_reader(BATCH_ROWS):
                if batch.num_rows:
                    yield named_as(batch, schema)


@dataclass(frozen=True)
class _Part:
    """A query of rows in a database that is open as long as the context that gave the rows."""

    database: "duckdb.DuckDBPyConnection"
    query: str
    number: int


@contextmanager
def final_rows_between(
    catalog: Catalog, before: str | None, after: Manifest, sink: str, connection: Connection | None
) -> Iterator[StoredFinalRows]:
    """The final rows of ``after`` that a ``sink`` which has those of ``before`` lacks. Their ids are of the pipeline
    and the sink, whatever its output is called. Raises NeverFinalError, BrokenObjectError, ReadResourcesError.
    """
    start = None if before is None else catalog.manifest(before)
    until, since = _final_until(catalog, after), None if start is None else _final_until(catalog, start)
    view = ViewColumns.from_json(after.schema)
    columns = {ID: DataType.STRING, **delivered_columns(view)}
    of = f"{catalog.pipeline}./{sink}"  # as it was when outputs had no names
    parts = []
    with ExitStack() as stack:
        if since is None or until > since:
            changes = stack.enter_context(changes_between(catalog, None, after))
            met = _ended_by(until) + ("" if since is None else f" and not ({_ended_by(since)})")
            parts.append(_part(changes, met, view, of))
        if since is not None:
            changes = stack.enter_context(changes_between(catalog, before, after))
            if changes.source is not ChangeSource.ALL_ROWS:
                parts.append(_part(changes, f"not {GONE} and {_ended_by(since)}", view, of))
        number = sum(part.number for part in parts)
        yield StoredFinalRows(sink, before, after.snapshot_id, columns, number, connection, parts)


def _final_until(catalog: Catalog, manifest: Manifest) -> Instant:
    """Windows that end no later than that have expired."""
    stage = LastStage.of(manifest)
    if stage is None or stage.lateness is None:
        raise NeverFinalError(
            f"windows of pipeline {catalog.pipeline} never expire (allowed_lateness=None), so no row is ever final: "
            "give it an allowed lateness, or another sink, which can take back"
        )
    return stage.expired_until(manifest)


def _ended_by(until: Instant) -> str:
    """SQL: whether a window has expired. One without an end does at the end of the input alone."""
    if until >= MAX_INSTANT:
        return "true"
    return f"coalesce(epoch_us({identifier(WINDOW_END)}) <= {int(until)}, false)"


def _part(changes: StoredChanges, condition: str, view: ViewColumns, of: str) -> _Part:
    shown = delivered_columns(view)
    texts = " || ".join(_text(name, shown[name]) for name in view.identity)
    id_ = f"substr(sha256({literal(of)} || {texts}), 1, 32) as {ID}"
    database = changes.database
    database.execute(
        f"create temp table {_FINAL} as select {id_}, {quoted(shown)} from {changes.table} where {condition}"
    )
    ((number,),) = database.sql(f"select count(*) from {_FINAL}").fetchall()
    return _Part(database, f"from {_FINAL} order by {quoted([WINDOW_END, *view.identity])}", int(number))


def _text(name: str, kind: ValueType) -> str:
    """SQL: a column of the identity as text from which no other value makes the same."""
    column = identifier(name)
    match kind:
        case DataType.TIMESTAMP:
            text = f"cast(epoch_us({column}) as varchar)"
        case DataType.BYTES:
            text = f"hex({column})"
        case _:
            text = f"cast({column} as varchar)"
    return f"coalesce('/' || length({text}) || ':' || {text}, '/-')"
