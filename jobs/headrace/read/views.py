"""Reading a pipeline's output without Spark: the files that a manifest names, and the rows of a view as an Arrow table.

Only files of the manifest are read, so that what a killed epoch left behind changes nothing. State is never read.
Rows are loaded into memory; for more, give ``files`` to a reader of your own and fold ``current`` by ``CURRENT``.
"""

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import unquote

import duckdb
import pyarrow as pa

from headrace.errors import FixConfigError
from headrace.pipeline.fingerprint import fingerprint
from headrace.pipeline.graph import Pipeline
from headrace.read.branches import manifest_of
from headrace.read.columns import View, ViewColumns
from headrace.read.damage import ways_out
from headrace.read.rows import tables
from headrace_snapshots.catalog import PUBLISHED, Catalog
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.store import open_store

_logger = logging.getLogger(__name__)


class QueryError(FixConfigError):
    """A view that does not exist, or a condition or an order that does not fit it."""

    code = "config.query"


CURRENT = """
select * exclude (_newest) from (
  select *, row_number() over (partition by {identity} order by epoch desc, sequence desc) as _newest from rows
) where _newest = 1 and not is_retraction"""
"""How ``current`` is folded from its files; ``identity``: the key columns and the two ends of the window."""


def view(name: str) -> View:
    """The view of that name. Raises QueryError."""
    if name not in list(View):
        raise QueryError(f"there is no view {name!r}; there are {', '.join(View)}")
    return View(name)


def schema(pipeline: Pipeline, view: View | str) -> pa.Schema:
    """Columns of a view as ``pipeline`` is defined now, timestamps in UTC."""
    return ViewColumns.of(pipeline).schema(View(view))


def files(
    pipeline: Pipeline,
    root: str,
    view: View | str = View.CURRENT,
    branch: str = PUBLISHED,
    *,
    tell: Callable[[str], None] = _logger.warning,
) -> list[str]:
    """Paths (of a local root) or URIs of a view's Parquet files, oldest first; none for a branch without snapshots.

    The files of ``current`` are panes still to be folded (see CURRENT). ``tell`` hears what ``read`` tells.
    Raises UnknownBranchError.
    """
    catalog = Catalog(open_store(root), pipeline.name)
    manifest = _told(pipeline, manifest_of(catalog, branch), tell)
    return [_absolute(root, file.path) for file in _files_of(catalog, View(view), manifest)]


def read(
    pipeline: Pipeline,
    root: str,
    view: View | str = View.CURRENT,
    branch: str = PUBLISHED,
    *,
    tell: Callable[[str], None] = _logger.warning,
) -> pa.Table:
    """The rows of a view as of the head of ``branch``, ordered by window and key, or by epoch.

    Their columns are those of the definition that made the snapshot. ``tell`` hears when that is another one than
    ``pipeline`` as it is now.
    Raises UnknownBranchError, and BrokenObjectError when a file is missing or not what the manifest says.
    """
    view, catalog = View(view), Catalog(open_store(root), pipeline.name)
    manifest = _told(pipeline, manifest_of(catalog, branch), tell)
    columns = ViewColumns.of(pipeline) if manifest is None else ViewColumns.from_json(manifest.schema)
    schema = columns.schema(view)
    with ways_out(catalog, branch):
        rows = pa.concat_tables(
            [schema.empty_table(), *tables(catalog.store, _files_of(catalog, view, manifest), schema)]
        )
    order = _quoted(columns.order(view))
    if view is View.CURRENT:
        rows = newest_rows(rows, columns)
    return _sql(rows, f"select * from rows order by {order}")


def newest_rows(rows: pa.Table, columns: ViewColumns) -> pa.Table:
    """``current``, folded from the rows of its files."""
    return _sql(rows, CURRENT.format(identity=_quoted(columns.identity)))


def changed_since(pipeline: Pipeline, manifest: Manifest) -> str | None:
    """What there is to know if ``pipeline`` is defined otherwise now than when the snapshot was made; else None."""
    if manifest.fingerprint == fingerprint(pipeline):
        return None
    return (
        f"pipeline {pipeline.name} has changed since snapshot {manifest.snapshot_id} (epoch {manifest.epoch}): its "
        "columns, and what they mean, are still those of the definition that made it"
    )


def _told(pipeline: Pipeline, manifest: Manifest | None, tell: Callable[[str], None]) -> Manifest | None:
    if manifest is not None and (changed := changed_since(pipeline, manifest)):
        tell(f"{changed}. The backfill DAG makes them anew from all input")
    return manifest


def query(rows: pa.Table, where: str | None = None, order: str | None = None, limit: int | None = None) -> pa.Table:
    """The rows that fulfil ``where``, in ``order``, at most ``limit``: SQL expressions over the columns, as in DuckDB.

    Raises QueryError saying what does not fit.
    """
    parts = ["select * from rows"]
    parts += [f"where {where}"] if where else []
    parts += [f"order by {order}"] if order else []
    parts += [f"limit {int(limit)}"] if limit is not None else []
    try:
        return _sql(rows, " ".join(parts))
    except duckdb.Error as error:
        names = ", ".join(rows.schema.names)
        raise QueryError(f"{str(error).splitlines()[0]}; the columns are {names}") from error


def _files_of(catalog: Catalog, view: View, manifest: Manifest | None) -> list[DataFile]:
    if manifest is None:
        return []
    if view is View.CURRENT:
        return [file for layer in manifest.tables.get("current", ()) for file in layer.files]
    log = manifest.logs.get(view)
    records = () if log is None else catalog.files(log)
    return [file for record in records for file in record.files if isinstance(file, DataFile)]


def _absolute(root: str, path: str) -> str:
    if root.startswith("file://"):
        return str(Path(unquote(root.removeprefix("file://"))) / path)
    return f"{root.rstrip('/')}/{path}"


def _quoted(names: Iterable[str]) -> str:
    return ", ".join('"' + name.replace('"', '""') + '"' for name in names)


def _sql(rows: pa.Table, statement: str) -> pa.Table:
    """``statement`` over the table ``rows``, in a database of its own that can reach nothing else."""
    with duckdb.connect(config={"enable_external_access": "false"}) as connection:
        connection.register("rows", rows)
        return connection.sql(statement).to_arrow_table().cast(rows.schema)
