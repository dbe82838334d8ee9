"""The rows that an audit looks at, as a table in this process: what Spark's frames are where there is no Spark."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.read.columns import View, ViewColumns
from headrace.read.rows import tables
from headrace.read.views import newest_rows
from headrace_snapshots.format.files import DataFile
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
        """It is held already."""

    def unpersist(self) -> None:
        """It is let go with its owner."""

    def to_pandas(self) -> Any:
        """As pandas sees it: integers and booleans stay what they are beside NULLs."""
        import pandas as pd

        kinds = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype(), pa.string(): pd.StringDtype()}
        return self.table.to_pandas(types_mapper=kinds.get)


def audit_frames(
    store: ObjectStore, columns: ViewColumns, panes: Sequence[DataFile], current: Sequence[DataFile], since: int
) -> tuple[ArrowFrame, ArrowFrame]:
    """The panes of a range, and the rows of ``current`` that epochs after ``since`` wrote. Raises BrokenObjectError."""
    found = []
    for view, files in ((View.PANES, panes), (View.CURRENT, current)):
        schema = columns.schema(view)
        found.append(pa.concat_tables([schema.empty_table(), *tables(store, files, schema)]))
    newest = newest_rows(found[1], columns)
    changed = newest.filter(pc.greater(newest.column("epoch"), since))
    return ArrowFrame(found[0]), ArrowFrame(changed)
