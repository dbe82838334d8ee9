"""The rows that an audit looks at as a table in this process, where there is no Spark; figures of its columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headrace.audit.range import AuditedFiles, ReleasedPanes
from headrace.distribute.column_figures import LONGEST_TEXT, BlamedRows
from headrace.pipeline.quality import ExpectationView
from headrace.read.views.columns import View as ReadersView
from headrace.read.views.columns import ViewColumns
from headrace.read.views.row_files import newest_rows, read_tables, rows_without
from headrace_snapshots.store import ObjectStore


@dataclass(frozen=True)
class ArrowFrame:
    """A table with what an audit asks of a frame: it takes the place of a frame of Spark's."""

    table: pa.Table

    @property
    def columns(self) -> list[str]:
        return list(self.table.column_names)

    def count(self) -> int:
        return int(self.table.num_rows)

    def persist(self) -> None:
        """Does nothing: the table is in memory."""

    def unpersist(self) -> None:
        """Does nothing: the table goes with its owner."""


def arrow_frame(
    store: ObjectStore,
    columns: ViewColumns,
    view: ExpectationView,
    audited: AuditedFiles,
    released: Sequence[ReleasedPanes] = (),
) -> ArrowFrame:
    """The rows of ``view`` that an audit looks at, without those that are ``released``. Raises BrokenObjectError."""
    rows = _audited_rows(store, columns, view, audited)
    if view is ExpectationView.CURRENT:
        newest = newest_rows(rows, columns)
        rows = newest.filter(pc.greater(newest.column("epoch"), audited.since))
    if released:
        panes = pa.concat_tables(
            [_audited_rows(store, release.columns, ExpectationView.PANES, release.files) for release in released]
        )
        rows = rows_without(rows, panes, columns.decided_columns)
    return ArrowFrame(rows)


def _audited_rows(
    store: ObjectStore, columns: ViewColumns, view: ExpectationView, audited_files: AuditedFiles
) -> pa.Table:
    schema = columns.arrow_schema(ReadersView(view))
    return pa.concat_tables(
        [
            schema.empty_table(),
            *read_tables(store, audited_files.files[view], schema, audited_files.column_names(view, columns)),
        ]
    )


@dataclass(frozen=True)
class ArrowColumns:
    """Columns of ``table``."""

    table: pa.Table

    def missing_counts(self, columns: Sequence[str]) -> Mapping[str, int]:
        """How many values of each are NULL, or floats that are not finite."""
        return {name: int(pc.sum(_is_missing(self.table.column(name))).as_py() or 0) for name in columns}

    def is_text(self, column: str) -> bool:
        """Whether it is text or a boolean, and no number."""
        kind = self.table.schema.field(column).type
        return bool(pa.types.is_string(kind) or pa.types.is_boolean(kind))

    def most_frequent(self, column: str, number: int) -> list[tuple[str, int]]:
        """The most frequent texts and how often they come; the first in order of those that are as frequent."""
        texts = pa.table({"text": _column_as_text(self.table.column(column)).drop_null()})
        counts = texts.group_by("text").aggregate([("text", "count")])
        best = counts.sort_by([("text_count", "descending"), ("text", "ascending")]).slice(0, number)
        return [(row["text"], row["text_count"]) for row in best.to_pylist()]

    def at_ranks(self, column: str, places: Sequence[int]) -> Mapping[int, float]:
        """The finite numbers at ``places`` (from 1 on) when they are sorted."""
        values = self.table.column(column)
        finite = values.filter(pc.invert(_is_missing(values)))
        ordered_numbers = finite.take(pc.array_sort_indices(finite.combine_chunks()))
        return {place: float(ordered_numbers[place - 1].as_py()) + 0.0 for place in places}  # no negative zero

    def first_rows(self, condition: BlamedRows, order: Sequence[str], number: int) -> pa.Table:
        """The first rows in ``order`` that fulfil ``condition``: the columns of both."""
        names = [*dict.fromkeys((*order, condition.column))]
        blamed_rows = self.table.select(names).filter(_is_blamed(self.table.column(condition.column), condition))
        first = pc.sort_indices(blamed_rows, [(name, "ascending") for name in order])
        return blamed_rows.take(first.slice(0, number))


def _is_missing(values: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_floating(values.type):
        return pc.invert(pc.fill_null(pc.is_finite(values), False))
    return pc.is_null(values)


def _column_as_text(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.utf8_slice_codeunits(values.cast(pa.string()), 0, LONGEST_TEXT)


def _is_blamed(values: pa.ChunkedArray, condition: BlamedRows) -> pa.ChunkedArray:
    match condition.blamed:
        case "missing":
            return _is_missing(values)
        case "text":
            return pc.equal(_column_as_text(values), condition.value)
    compare = pc.greater if condition.blamed == "above" else pc.less
    return pc.and_(pc.invert(_is_missing(values)), compare(values.cast(pa.float64()), condition.value))
