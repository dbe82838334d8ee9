"""The rows that an audit looks at, as a table in this process: what Spark's frames are where there is no Spark."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.audit.range import AuditedFiles
from headrace.audit.releases import ReleasedPanes
from headrace.pipeline.expectations import ExpectationView
from headrace.read.views.columns import View as ReadersView
from headrace.read.views.columns import ViewColumns
from headrace.read.views.compaction import newest_rows, rows_without
from headrace.read.views.row_files import tables
from headrace_snapshots.store import ObjectStore


@dataclass(frozen=True)
class ArrowFrame:
    """A table with what an audit asks of a frame."""

    table: pa.Table

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self.table.column_names)

    def count(self) -> int:
        """How many rows there are."""
        return int(self.table.num_rows)

    def persist(self) -> None:
        """Does nothing: the table is in memory."""

    def unpersist(self) -> None:
        """Does nothing: the table goes with its owner."""

    def to_pandas(self) -> Any:
        """A pandas frame: integers and booleans stay what they are beside NULLs."""
        import pandas as pd

        kinds = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype(), pa.string(): pd.StringDtype()}
        return self.table.to_pandas(types_mapper=kinds.get)


def arrow_frame(
    store: ObjectStore,
    columns: ViewColumns,
    view: ExpectationView,
    audited: AuditedFiles,
    released: Sequence[ReleasedPanes] = (),
) -> ArrowFrame:
    """The rows of ``view`` that an audit looks at, without those that are ``released``. Raises BrokenObjectError."""
    rows = _rows(store, columns, view, audited)
    if view is ExpectationView.CURRENT:
        newest = newest_rows(rows, columns)
        rows = newest.filter(pc.greater(newest.column("epoch"), audited.since))
    if released:
        panes = pa.concat_tables(
            [_rows(store, release.columns, ExpectationView.PANES, release.files) for release in released]
        )
        rows = rows_without(rows, panes, columns.decided)
    return ArrowFrame(rows)


def _rows(store: ObjectStore, columns: ViewColumns, view: ExpectationView, audited: AuditedFiles) -> pa.Table:
    schema = columns.schema(ReadersView(view))
    return pa.concat_tables(
        [schema.empty_table(), *tables(store, audited.files[view], schema, audited.names(view, columns))]
    )
