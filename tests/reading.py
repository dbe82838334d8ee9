"""Views as tests compare them: whole, as Arrow tables, of a pipeline that may have no snapshot yet."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa

from headrace.pipeline.pipeline import Pipeline
from headrace.read.pipeline_reader import PipelineReader
from headrace.read.views.columns import View, ViewColumns
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.names import PUBLISHED
from headrace_snapshots.store import open_store


def read(
    pipeline: Pipeline, root: str, view: View | str = View.CURRENT, branch: str = PUBLISHED, output: str = ""
) -> pa.Table:
    """The rows of a view of ``pipeline`` under ``root`` at ``branch``; of several outputs of one."""
    catalog = Catalog(open_store(root), pipeline.name)
    reader = PipelineReader(catalog)[output] if output else PipelineReader(catalog, pipeline)
    return reader.read(view, at=branch).to_arrow()


def zoneless_rows(rows: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """Rows as Python's values, their times without the zone, which is UTC."""
    columns: Sequence[tuple[str, list[Any]]] = [
        (name, [value.replace(tzinfo=None) if isinstance(value, datetime) else value for value in column.to_pylist()])
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    ]
    return [{name: values[number] for name, values in columns} for number in range(rows.num_rows)]


def schema(pipeline: Pipeline, view: View | str) -> pa.Schema:
    """The columns of a view as ``pipeline`` is defined now."""
    return ViewColumns.from_pipeline(pipeline).arrow_schema(View(view))
