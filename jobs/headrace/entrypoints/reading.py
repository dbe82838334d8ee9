"""Reading a pipeline's output without Spark: the files that a manifest names, and the rows of a view as an Arrow table.

Only files of the manifest are read, so that what a killed epoch left behind changes nothing. State is never read.
Rows are loaded into memory; for more, give ``files`` to a reader of your own and fold ``current`` by ``CURRENT``.
"""

import io
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from pathlib import Path
from urllib.parse import unquote

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.entrypoints.options import UnknownBranchError
from headrace.errors import FixConfigError
from headrace.model.expr import DataType
from headrace.model.panes import WINDOW_END, WINDOW_START
from headrace.model.value_types import ListType, PairsType, ValueType
from headrace.pipeline.graph import Pipeline
from headrace_snapshots.catalog import MAIN, PUBLISHED, Catalog
from headrace_snapshots.datafiles import verify
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.store import ObjectStore, open_store

READERS = 8


class View(StrEnum):
    """What can be read of a snapshot.

    ``current``: the latest pane per key and window after retractions; ``panes``: every pane and retraction;
    ``late``: elements that were dropped because their window had expired; ``rejected``: dead letters.
    """

    CURRENT = "current"
    PANES = "panes"
    LATE = "late"
    REJECTED = "rejected"


class QueryError(FixConfigError):
    """A view that does not exist, or a condition or an order that does not fit it."""

    code = "config.query"


_TIME = pa.timestamp("us", "UTC")
_TYPES = {
    DataType.STRING: pa.string(),
    DataType.INT: pa.int64(),
    DataType.FLOAT: pa.float64(),
    DataType.BOOL: pa.bool_(),
    DataType.TIMESTAMP: _TIME,
}
_WINDOW = [(WINDOW_START, _TIME), (WINDOW_END, _TIME)]
_PANE_INFO = [
    *_WINDOW,
    ("pane_time", _TIME),
    ("timing", pa.string()),
    ("pane_index", pa.int64()),
    ("nonspeculative_index", pa.int64()),
    ("is_first", pa.bool_()),
    ("is_last", pa.bool_()),
    ("is_retraction", pa.bool_()),
    ("epoch", pa.int64()),
    ("sequence", pa.int64()),
]
_ORIGIN = [("reason", pa.string()), ("input", pa.string()), ("file", pa.string())]
_RAW = [("raw", pa.string()), ("epoch", pa.int64())]

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
    """Columns of a view, timestamps in UTC."""
    keys = [(name, _TYPES[kind]) for name, kind in pipeline.key_types.items()]
    match View(view):
        case View.CURRENT | View.PANES:
            values = [(name, _arrow_type(kind)) for name, kind in pipeline.value_types.items()]
            return pa.schema([*keys, *values, *_PANE_INFO])
        case View.LATE:
            first = [(name, _TYPES[kind]) for name, kind in pipeline.stages[0].key_types.items()]
            return pa.schema([*first, ("event_time", _TIME), *_WINDOW, *_ORIGIN, *_RAW])
        case View.REJECTED:
            return pa.schema(
                [
                    ("input", pa.string()),
                    ("file", pa.string()),
                    ("position", pa.int64()),
                    ("reason", pa.string()),
                    *_RAW,
                ]
            )


def column_types(columns: Mapping[str, DataType]) -> pa.Schema:
    """The Arrow types of columns as sources declare them."""
    return pa.schema([(name, _TYPES[kind]) for name, kind in columns.items()])


def _arrow_type(kind: ValueType) -> pa.DataType:
    match kind:
        case ListType(item):
            return pa.list_(_TYPES[item])
        case PairsType(left, right):
            return pa.list_(pa.struct([("left", _TYPES[left]), ("right", _TYPES[right])]))
    return _TYPES[kind]


def files(pipeline: Pipeline, root: str, view: View | str = View.CURRENT, branch: str = PUBLISHED) -> list[str]:
    """Paths (of a local root) or URIs of a view's Parquet files, oldest first; none for a branch without snapshots.

    The files of ``current`` are panes still to be folded (see CURRENT).
    Raises UnknownBranchError.
    """
    return [_absolute(root, file.path) for file in _files_of(Catalog(open_store(root), pipeline.name), view, branch)]


def read(pipeline: Pipeline, root: str, view: View | str = View.CURRENT, branch: str = PUBLISHED) -> pa.Table:
    """The rows of a view as of the head of ``branch``, ordered by window and key, or by epoch.

    Raises UnknownBranchError, and BrokenObjectError when a file is missing or not what the manifest says.
    """
    store = open_store(root)
    named = _files_of(Catalog(store, pipeline.name), view, branch)
    columns = schema(pipeline, view)
    rows = pa.concat_tables([columns.empty_table(), *tables(store, named, columns)])
    order = _quoted(_order(pipeline, View(view)))
    if View(view) is View.CURRENT:
        identity = _quoted([*pipeline.key_types, WINDOW_START, WINDOW_END])
        return _sql(rows, f"{CURRENT.format(identity=identity)} order by {order}")
    return _sql(rows, f"select * from rows order by {order}")


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


def manifest_of(catalog: Catalog, branch: str) -> Manifest | None:
    """The manifest at the head of a branch or tag, None if ``main`` or ``published`` has no snapshot yet.

    Raises UnknownBranchError.
    """
    refs = catalog.head().refs
    if branch in refs:
        return catalog.manifest(refs[branch])
    if branch in (MAIN, PUBLISHED):
        return None
    raise UnknownBranchError(f"there is no branch or tag {branch!r}; there are {', '.join(sorted(refs)) or 'none'}")


def _files_of(catalog: Catalog, view: View | str, branch: str) -> list[DataFile]:
    manifest = manifest_of(catalog, branch)
    if manifest is None:
        return []
    if View(view) is View.CURRENT:
        return [file for layer in manifest.tables.get("current", ()) for file in layer.files]
    log = manifest.logs.get(View(view))
    records = () if log is None else catalog.files(log)
    return [file for record in records for file in record.files if isinstance(file, DataFile)]


def _absolute(root: str, path: str) -> str:
    if root.startswith("file://"):
        return str(Path(unquote(root.removeprefix("file://"))) / path)
    return f"{root.rstrip('/')}/{path}"


def tables(store: ObjectStore, named: Iterable[DataFile], columns: pa.Schema) -> Iterator[pa.Table]:
    """The rows of each of the data files. Raises BrokenObjectError when one is missing or not what was written."""

    def load(file: DataFile) -> pa.Table:
        return pq.read_table(io.BytesIO(verify(store, file)), columns=columns.names).cast(columns)

    with ThreadPoolExecutor(READERS, thread_name_prefix="read") as readers:
        yield from readers.map(load, named)


def _order(pipeline: Pipeline, view: View) -> list[str]:
    match view:
        case View.CURRENT:
            return [WINDOW_START, *pipeline.key_types, WINDOW_END]
        case View.PANES:
            return ["epoch", *pipeline.key_types, WINDOW_START, WINDOW_END, "sequence"]
        case View.LATE:
            return ["epoch", "event_time", *pipeline.key, WINDOW_START]
        case View.REJECTED:
            return ["epoch", "file", "position"]


def _quoted(names: Iterable[str]) -> str:
    return ", ".join('"' + name.replace('"', '""') + '"' for name in names)


def _sql(rows: pa.Table, statement: str) -> pa.Table:
    """``statement`` over the table ``rows``, in a database of its own that can reach nothing else."""
    with duckdb.connect(config={"enable_external_access": "false"}) as connection:
        connection.register("rows", rows)
        return connection.sql(statement).to_arrow_table().cast(rows.schema)
