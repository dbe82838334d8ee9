"""Views as tests compare them: whole, as Arrow tables, of a pipeline that may have no snapshot yet."""

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
    """Rows as Python's values, maps as dicts, times without the zone, which is UTC."""
    return [
        {name: _without_zone(value) for name, value in row.items()} for row in rows.to_pylist(maps_as_pydicts="strict")
    ]


def _without_zone(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_zone(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_without_zone(item) for item in value]
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


def schema(pipeline: Pipeline, view: View | str) -> pa.Schema:
    """The columns of a view as ``pipeline`` is defined now."""
    return ViewColumns.from_pipeline(pipeline).arrow_schema(View(view))
