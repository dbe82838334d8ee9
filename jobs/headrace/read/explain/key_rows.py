"""The rows of one key in views of the output, read from the files that may have some."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernel.types import ARROW_TYPES
from headrace.model.expressions.data_types import DataType
from headrace.model.expressions.expr import Expr, col, lit
from headrace.read.views.arrow_types import python_rows
from headrace.read.views.columns import View, ViewColumns
from headrace.read.views.conditions import RowCondition
from headrace.read.views.row_files import tables
from headrace.read.views.sources import OutputFiles
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.manifest import Manifest


@dataclass(frozen=True)
class KeyRows:
    """The rows of ``key``, whose columns are of ``types``, that epochs from ``since`` on wrote."""

    catalog: Catalog
    manifest: Manifest
    key: Mapping[str, Any]
    types: Mapping[str, DataType]
    since: int

    def of(self, view: View, columns: Sequence[str]) -> list[dict[str, Any]]:
        """The rows in a view, of these columns, in the order of emission. Raises BrokenObjectError."""
        source = self._source(view)
        order = [name for name in source.order if name not in self.key]
        read = {*columns, *order, *self.key}
        schema = pa.schema([field for field in source.columns if field.name in read])
        files = tables(self.catalog.store, source.wanted_files, schema, source.names, source.needed)
        rows = pa.concat_tables([schema.empty_table(), *(table.filter(self._is_wanted(table)) for table in files)])
        return python_rows(rows.sort_by([(name, "ascending") for name in order]).select(columns))

    def _source(self, view: View) -> OutputFiles:
        """Leaves files out that have no such rows."""
        source = OutputFiles(self.catalog, self.manifest, view, ViewColumns.from_json(self.manifest.schema), None)
        conditions: list[Expr] = [col(name) == lit(value) for name, value in self.key.items()]
        return source.where(RowCondition(reduce(and_, conditions, col("epoch") >= lit(self.since)), source))

    def _is_wanted(self, rows: pa.Table) -> pa.ChunkedArray:
        """Which of ``rows`` are of the key, and not too old."""
        same = [
            pc.equal(rows.column(name), pa.scalar(value, ARROW_TYPES[self.types[name]]))
            for name, value in self.key.items()
        ]
        return reduce(pc.and_, same, pc.greater_equal(rows.column("epoch"), self.since))
