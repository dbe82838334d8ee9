"""What readers see beside a table of another system, which is named as KIND:TABLE."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.connections import connection as connection_named
from headrace.errors import FixConfigError
from headrace.pipeline.sinks import SINKS
from headrace.read.diff.table_comparison import ComparedColumns, TableComparison, compare_with_table
from headrace.read.pipeline_reader import PipelineReader
from headrace.read.snapshots.snapshot_refs import At, snapshot_at
from headrace.read.views.database import check_room, working_folder
from headrace.sinks.open_sink import check_columns
from headrace_snapshots.format.output_view import seen_by
from headrace_snapshots.format.table_names import UNNAMED
from headrace_snapshots.store import open_store

if TYPE_CHECKING:
    import pyarrow as pa

PARQUET = "parquet"


class ComparedTableError(FixConfigError):
    """What a comparison names is no table."""

    code = "config.compared_table"


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
    also of a store (``parquet:s3://bucket/folder``), which is reached as roots are.

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
        return compare_with_table(catalog, manifest, columns, lambda names: _parquet(name, names), limit=limit)
    system = SINKS[kind]
    if connection is None:
        raise ComparedTableError(f"say how {table} is reached: --connection NAME, as in HEADRACE_CONN_NAME")
    reached = connection_named(connection)

    def rows(names: Sequence[str]) -> "AbstractContextManager[pa.RecordBatchReader]":
        return system.read(name, names, reached)

    return compare_with_table(catalog, manifest, columns, rows, limit=limit)


@contextmanager
def _parquet(path: str, names: Sequence[str]) -> "Iterator[pa.RecordBatchReader]":
    from pyarrow import dataset

    with _local(path) as there:
        files = dataset.dataset(there, format="parquet")
        check_columns(path, names, files.schema.names)
        yield files.scanner(columns=[*names]).to_reader()


@contextmanager
def _local(path: str) -> Iterator[str | list[str]]:
    """Where the file, or the files in the folder, ``path`` can be read: copies, if it is an address of a store."""
    if "://" not in path:
        if not Path(path).exists():
            raise ComparedTableError(f"there is no file or folder {path}")
        yield path
        return
    address, _, name = path.rstrip("/").rpartition("/")
    store = open_store(address)
    files = [info for info in store.list(name) if info.path == name or _is_in(name, info.path)]
    if not files:
        raise ComparedTableError(f"there is no file or folder {path}")
    with working_folder() as folder:
        check_room(sum(info.size for info in files), folder)
        copies = [folder / f"{number:06}.parquet" for number in range(len(files))]
        for info, copy in zip(files, copies, strict=True):
            copy.write_bytes(store.read(info.path))
        yield [*map(str, copies)]


def _is_in(folder: str, path: str) -> bool:
    """Whether a file is one of the table in ``folder``: names with . or _ first are not, as in local folders."""
    below = path.removeprefix(f"{folder}/")
    return below != path and not any(part.startswith((".", "_")) for part in below.split("/"))
