"""What sinks hold beside what they say that they hold: each row is read and compared, and nothing is written."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from headrace.connections import Connection, connection
from headrace.ext.sinks import SINKS, OpenChangeLog, OpenReceiver, OpenSink, OpenTarget, SinkState, StoredRecords
from headrace.model.expressions.data_types import ValueType
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.sink import Sink
from headrace.read.diff.changes import delivered_columns, still_there
from headrace.read.diff.record_comparison import compare_with_records
from headrace.read.diff.table_comparison import (
    ComparedColumns,
    ComparedColumnsError,
    TableComparison,
    compare_with_table,
)
from headrace.read.views.columns import ViewColumns
from headrace.runs.delivering.deliver import chosen_sinks, is_same_place
from headrace.sinks.failures import named_failures
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.output_catalog import OutputCatalog
from headrace_snapshots.refs import PUBLISHED

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class SinkCheck:
    """What a ``sink`` of an ``output`` holds beside the ``snapshot`` that was delivered to it last, ``at`` a time in
    ISO 8601 (None: it is not known). ``published``: what readers see. ``others``: what somebody else has done to it
    since, as far as that can be seen.

    ``comparison`` is None where nothing was compared; ``reason`` says why.
    """

    pipeline: str
    output: str
    sink: str
    snapshot: str | None
    at: str | None
    published: str | None
    others: str | None
    comparison: TableComparison | None
    reason: str | None

    @property
    def is_right(self) -> bool | None:
        """Whether it holds what was delivered, row by row; None if that was not compared."""
        return None if self.comparison is None else self.comparison.is_equal

    def to_json(self) -> dict[str, Any]:
        """A JSON value."""
        compared = None if self.comparison is None else self.comparison.to_json()
        own = {name: getattr(self, name) for name in ("pipeline", "output", "sink", "snapshot", "at", "published")}
        return {**own, "others": self.others, "comparison": compared, "reason": self.reason, "is_right": self.is_right}

    def describe(self) -> str:
        """What it holds, in a line."""
        when = "" if self.at is None else f" at {self.at}"
        begins = f"sink {self.sink} was last written by us{when} with {self.snapshot or 'nothing'}"
        if self.snapshot is None and self.at is None:
            begins = f"sink {self.sink} was never written by us"
        behind = "" if self.snapshot == self.published else f" (readers see {self.published or 'nothing'})"
        others = "" if self.others is None else f", and {self.others} since"
        compared = self.comparison
        if compared is None:
            return f"{begins}{behind}{others}: not compared, {self.reason}"
        if compared.is_equal:
            return f"{begins}{behind}{others}: it holds these {compared.ours:,} rows"
        fills = "headrace deliver --refill fills it again"
        return f"{begins}{behind}{others}: of {compared.ours:,} rows {_differing(compared)}. {fills}"


def _differing(compared: TableComparison) -> str:
    differ = (
        f"{compared.only_ours:,} rows are missing, {compared.only_theirs:,} are none of ours, "
        f"{compared.different:,} have other values, {compared.twice:,} are there twice"
    )
    if compared.overdrawn:
        differ += f", {compared.overdrawn:,} are withdrawn that are not there"
    return f"{differ}, {compared.unreadable:,} cannot be read" if compared.unreadable else differ


def check_sinks(
    catalog: Catalog, pipeline: Pipeline, *, output: str | None = None, names: Sequence[str] = (), limit: int = 20
) -> tuple[SinkCheck, ...]:
    """Compare what the sinks of ``pipeline`` hold with what was delivered to them; the first ``limit`` rows that differ
    are given.

    Raises UnknownSinkError, UnknownOutputError, MissingConnectionError, SinkRefusedError, SinkUnreachableError.
    """
    return tuple(
        _check(OutputCatalog(catalog, name) if name else catalog, name, sink, limit)
        for name, sink in chosen_sinks(pipeline, output, names)
    )


_HANDED_OVER: Final = "what was handed over is not there to be looked at"
_MOVING: Final = "others deliver to it again and again meanwhile"
_EXPIRED: Final = "that snapshot has expired, and the next delivery fills it again"
_NOT_READ: Final = "the code of this sink has no {}, which would read what the target holds"
_LOOKS: Final = 3
"""So often a target is compared that is delivered to meanwhile."""


def _check(catalog: Catalog, output: str, sink: Sink, limit: int) -> SinkCheck:
    published = catalog.head().refs.get(PUBLISHED)
    nothing = SinkCheck(catalog.pipeline, output, sink.name, None, None, published, None, None, _HANDED_OVER)
    if sink.gets_final_rows:
        return nothing
    reached = connection(sink.connection, kind=sink.kind) if sink.connection else Connection("", "")
    with named_failures(sink, reached), SINKS[sink.kind].open(sink, reached) as target:
        if isinstance(target, OpenReceiver):
            return nothing
        return _Look(catalog, sink, reached, limit).at(target, nothing)


@dataclass(frozen=True)
class _Look:
    """A look at what a ``sink`` holds, which is ``reached`` there."""

    catalog: Catalog
    sink: Sink
    reached: Connection
    limit: int

    def at(self, target: OpenTarget, nothing: SinkCheck) -> SinkCheck:
        """What a ``target`` holds beside what the last delivery left, which may come while it is read."""
        check = nothing
        for _ in range(_LOOKS):
            held = target.held()
            others = None if held is None else target.intervention(held)
            snapshot, at = (None, None) if held is None else (held.snapshot, held.at)
            check = replace(nothing, snapshot=snapshot, at=at, others=None if others is None else others.words)
            compared = self._compared(target, held)
            if isinstance(compared, str):
                return replace(check, reason=compared)
            if compared.is_equal or target.held() == held:
                return replace(check, comparison=compared, reason=None)
        return replace(check, reason=_MOVING)

    def _compared(self, target: OpenTarget, held: SinkState | None) -> TableComparison | str:
        """What a target has beside what was delivered, or why that is not compared."""
        manifest = self._delivered(held)
        if isinstance(manifest, str):
            return manifest
        assert held is not None
        columns = delivered_columns(ViewColumns.from_json(manifest.schema))
        try:
            if isinstance(target, OpenChangeLog):
                return self._records(manifest, target.records(columns), held.number)
            assert isinstance(target, OpenSink)
            return self._rows(manifest, self._read(target, columns), held.number)
        except ComparedColumnsError as error:
            return str(error)

    def _delivered(self, held: SinkState | None) -> Manifest | str:
        """The snapshot that is held; or why there is none to compare with."""
        if held is None or held.snapshot is None:
            return "nothing was delivered"
        if held.pipeline != self.catalog.pipeline or not is_same_place(held.root, self.catalog.store.uri):
            return f"it holds rows of {held.pipeline} under {held.root}"
        return still_there(self.catalog, held.snapshot) or _EXPIRED

    def _records(
        self, manifest: Manifest, records: AbstractContextManager[StoredRecords] | None, number: int | None
    ) -> TableComparison | str:
        if records is None:
            return _NOT_READ.format("records()")
        if number is None:
            return "it holds rows, and is to hold changes"
        return compare_with_records(self.catalog, manifest, records, until=number, limit=self.limit)

    def _rows(
        self, manifest: Manifest, rows: "AbstractContextManager[pa.RecordBatchReader] | None", number: int | None
    ) -> TableComparison | str:
        if rows is None:
            return _NOT_READ.format("rows()")
        if number is not None:
            return "it holds changes, and is to hold rows"
        return compare_with_table(self.catalog, manifest, ComparedColumns(), lambda _: rows, limit=self.limit)

    def _read(
        self, target: OpenSink, columns: Mapping[str, ValueType]
    ) -> "AbstractContextManager[pa.RecordBatchReader] | None":
        table = self.sink.table_of_rows
        return target.rows(columns) if table is None else SINKS[self.sink.kind].read(table, [*columns], self.reached)
