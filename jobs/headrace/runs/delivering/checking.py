"""What sinks hold beside what they say that they hold: each row is read and compared, and nothing is written."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headrace.connections import Connection, connection
from headrace.model.expressions.value_types import ValueType
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.sinks import SINKS, Sink
from headrace.read.diff.changes import still_there
from headrace.read.diff.table_comparison import ComparedColumns, TableComparison, compare_with_table
from headrace.runs.delivering.deliver import chosen_sinks, is_same_place
from headrace.sinks.open_sink import Held, OpenReceiver, named_failures
from headrace_snapshots.catalog import Catalog
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
        differ = (
            f"{compared.only_ours:,} rows are missing, {compared.only_theirs:,} are none of ours, "
            f"{compared.different:,} have other values, {compared.twice:,} are there twice"
        )
        return f"{begins}{behind}{others}: of {compared.ours:,} rows {differ}. headrace deliver --refill fills it again"


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


def _check(catalog: Catalog, output: str, sink: Sink, limit: int) -> SinkCheck:
    published = catalog.head().refs.get(PUBLISHED)
    if not sink.connection:
        return SinkCheck(catalog.pipeline, output, sink.name, None, None, published, None, None, _HANDED_OVER)
    reached = connection(sink.connection, kind=sink.kind)
    held, others, reason = None, None, _HANDED_OVER
    with named_failures(sink, reached), SINKS[sink.kind].open(sink, reached) as target:
        if not isinstance(target, OpenReceiver):
            held = target.held()
            others = None if held is None else target.intervention(held)
            reason = _not_comparable(catalog, sink, held)
    about = (None, None) if held is None else (held.snapshot, held.at)
    words = None if others is None else others.words
    compared = None
    if not reason:
        assert held is not None
        assert held.snapshot is not None
        compared = _compared(catalog, sink, reached, held.snapshot, limit)
    return SinkCheck(catalog.pipeline, output, sink.name, *about, published, words, compared, reason or None)


def _not_comparable(catalog: Catalog, sink: Sink, held: Held | None) -> str:
    """Why what a sink holds is not compared; "" if it is."""
    if sink.table_of_rows is None:
        return "it holds no rows that could be read as a table"
    if held is None or held.snapshot is None:
        return "nothing was delivered"
    if held.pipeline != catalog.pipeline or not is_same_place(held.root, catalog.store.uri):
        return f"it holds rows of {held.pipeline} under {held.root}"
    if still_there(catalog, held.snapshot) is None:
        return "that snapshot has expired, and the next delivery fills it again"
    return ""


def _compared(catalog: Catalog, sink: Sink, reached: Connection, snapshot: str, limit: int) -> TableComparison:
    table = sink.table_of_rows
    assert table is not None

    def rows(theirs: Mapping[str, ValueType]) -> "AbstractContextManager[pa.RecordBatchReader]":
        return SINKS[sink.kind].read(table, [*theirs], reached)

    return compare_with_table(catalog, catalog.manifest(snapshot), ComparedColumns(), rows, limit=limit)
