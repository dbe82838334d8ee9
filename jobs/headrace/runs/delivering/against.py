"""What readers see beside a table of another system, which is named as KIND:TABLE."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from headrace.connections import connection as connection_named
from headrace.ext.sinks import SINKS
from headrace.model.expressions.value_types import ValueType
from headrace.read.diff.table_comparison import ComparedColumns, TableComparison, compare_with_table
from headrace.read.pipeline_reader import PipelineReader
from headrace.read.snapshots.snapshot_refs import At, snapshot_at
from headrace.runs.delivering.parquet_table import ComparedTableError, parquet_rows
from headrace_snapshots.format.output_view import seen_by
from headrace_snapshots.format.table_names import UNNAMED

if TYPE_CHECKING:
    import pyarrow as pa

PARQUET = "parquet"


def compare(
    reader: PipelineReader,
    at: At,
    table: str,
    *,
    connection: str | None,
    columns: ComparedColumns,
    limit: int,
) -> TableComparison:
    """Compare what readers see of a pipeline or an output with a ``table``: ``postgres:reports.sales``,
    ``delta:reports/sales``, ``iceberg:reports.sales`` of a ``connection``, or ``parquet:PATH``, a file or a folder,
    also of a store (``parquet:s3://bucket/folder``), which is reached as roots are. Folders may say values of columns,
    as Hive's do (``shop=007``).

    Raises UnknownOutputError for a pipeline with several, ComparedTableError, ComparedColumnsError,
    MissingConnectionError, NotRegisteredError, SinkRefusedError, SinkUnreachableError.
    """
    kind, _, name = table.partition(":")
    if not name:
        raise ComparedTableError(f"{table!r} names no table: write KIND:TABLE, as in postgres:reports.sales")
    catalog = reader.catalog
    manifest = snapshot_at(catalog, at).manifest
    if manifest is None:
        raise ComparedTableError(f"readers of {reader.name} see nothing so far: there is nothing to compare")
    seen_by(manifest, UNNAMED.output)
    if kind == PARQUET:
        return compare_with_table(catalog, manifest, columns, lambda theirs: parquet_rows(name, theirs), limit=limit)
    system = SINKS[kind]
    if connection is None:
        raise ComparedTableError(f"say how {table} is reached: --connection NAME, as in HEADRACE_CONN_NAME")
    reached = connection_named(connection, kind=kind)

    def rows(theirs: Mapping[str, ValueType]) -> "AbstractContextManager[pa.RecordBatchReader]":
        return system.read(name, [*theirs], reached)

    return compare_with_table(catalog, manifest, columns, rows, limit=limit)
