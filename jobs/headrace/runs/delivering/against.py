"""What readers see beside a table of another system, also of Parquet files.

A table of Parquet files: a file or a folder, also of a store. Folders may say values of columns, as Hive's do.

What readers see beside a table of another system, which is named as KIND:TABLE.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import reduce
from operator import and_
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from headrace.connections import connection as connection_named
from headrace.errors import FixConfigError
from headrace.ext.sinks import SINKS
from headrace.model.expressions.data_types import DataType, ListType, PairsType, ValueType, in_words
from headrace.read.diff.table_comparison import (
    ComparedColumns,
    ComparedColumnsError,
    TableComparison,
    compare_with_table,
    text_as,
)
from headrace.read.pipeline_reader import PipelineReader
from headrace.read.snapshots.snapshot_refs import At, snapshot_at
from headrace.read.views.database import check_room, database, working_folder
from headrace.sinks.failures import check_columns
from headrace_snapshots.format.output_view import seen_by
from headrace_snapshots.format.table_names import UNNAMED
from headrace_snapshots.store import open_store

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import dataset


_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_NO_TABLE: Final = "there is no file or folder with files at {}"


class ComparedTableError(FixConfigError, code="config.compared_table"):
    """What a comparison names is no table."""


@contextmanager
def parquet_rows(path: str, columns: Mapping[str, ValueType]) -> "Iterator[pa.RecordBatchReader]":
    """The ``columns`` of the table at ``path``. Those that its folders name (``shop=007``) and its files lack are text,
    which must be values of the given types. Raises ComparedTableError, ComparedColumnsError, SinkRefusedError.
    """
    import pyarrow as pa
    from pyarrow import dataset

    with _local(path) as names:
        files = dataset.dataset([*names], format="parquet")
        values = {file: _values_in_folders(path, name) for file, name in names.items()}
        named = {column for own in values.values() for column in own} - {*files.schema.names}
        check_columns(path, [*columns], [*files.schema.names, *sorted(named)])
        for column in [column for column in columns if column in named]:
            if lacking := [names[file] for file, own in values.items() if column not in own]:
                raise ComparedTableError(f"{path}: {lacking[0]} is in no folder {column}=VALUE, as other files are")
            _check_texts(path, column, columns[column], [own[column] for own in values.values()])
        rows = dataset.FileSystemDataset.from_paths(
            [*names],
            schema=pa.schema([*files.schema, *(pa.field(column, pa.string()) for column in sorted(named))]),
            format=dataset.ParquetFileFormat(),
            filesystem=files.filesystem,
            partitions=[_held({column: own[column] for column in own if column in named}) for own in values.values()],
        )
        yield rows.scanner(columns=[*columns]).to_reader()


def _held(values: Mapping[str, str | None]) -> "dataset.Expression":
    """What holds of all rows of a file whose folders say ``values``."""
    from pyarrow import dataset

    columns = [(dataset.field(column), text) for column, text in values.items()]
    return reduce(and_, [one.is_null() if text is None else one == text for one, text in columns], dataset.scalar(True))


def _values_in_folders(path: str, name: str) -> dict[str, str | None]:
    """What the folders of the file ``name`` say of columns: NAME=VALUE, percent-encoded."""
    try:
        parts = [folder.partition("=") for folder in name.split("/")[:-1] if "=" in folder]
        return {
            unquote(column, errors="strict"): None if value == _NULL else unquote(value, errors="strict")
            for column, _, value in parts
        }
    except UnicodeDecodeError as error:
        raise ComparedTableError(f"{path}: a folder of {name} is no percent-encoded UTF-8 ({error})") from error


def _check_texts(path: str, column: str, kind: ValueType, texts: Sequence[str | None]) -> None:
    """Raise ComparedColumnsError if one of the ``texts`` of a column is no value of its type."""
    if kind is DataType.STRING or isinstance(kind, ListType | PairsType):
        return
    unread = f"text is not null and {text_as('text', kind)} is null"
    query = f"select text from (select unnest(?) as text) where {unread} order by text limit 1"
    with working_folder() as folder, database(folder, is_for_us=True) as connection:
        row = connection.execute(query, [[*texts]]).fetchone()
    if row is not None:
        raise ComparedColumnsError(
            f"{path}: {row[0]!r}, of a folder {column}=VALUE, is no {in_words(kind)}, which it is for readers. Move "
            "that folder elsewhere, or name a column of the files (--column OURS=THEIRS)"
        )


@contextmanager
def _local(path: str) -> Iterator[Mapping[str, str]]:
    """Where the files of the table can be read, each with its name below ``path``: copies, if that is an address of a
    store.
    """
    if "://" not in path:
        names = _below(path)
        if not names:
            raise ComparedTableError(_NO_TABLE.format(path))
        yield names
        return
    address, _, table = path.rstrip("/").rpartition("/")
    store = open_store(address)
    files = {
        info: info.path.removeprefix(f"{table}/")
        for info in store.list(table)
        if info.path == table or (info.path.startswith(f"{table}/") and _is_in(info.path.removeprefix(f"{table}/")))
    }
    if not files:
        raise ComparedTableError(_NO_TABLE.format(path))
    with working_folder() as folder:
        check_room(sum(info.size for info in files), folder)
        copies = {info: folder / f"{number:06}.parquet" for number, info in enumerate(files)}
        for info, copy in copies.items():
            copy.write_bytes(store.read(info.path))
        yield {str(copies[info]): name for info, name in files.items()}


def _below(path: str) -> dict[str, str]:
    """The files in a local folder, or that one file."""
    from pyarrow.fs import FileSelector, LocalFileSystem

    if Path(path).is_file():
        return {path: Path(path).name}
    walked = LocalFileSystem().get_file_info(FileSelector(path, recursive=True)) if Path(path).is_dir() else ()
    files = {info.path: Path(info.path).relative_to(path).as_posix() for info in walked if info.is_file}
    return {file: name for file, name in sorted(files.items()) if _is_in(name)}


def _is_in(name: str) -> bool:
    """Whether a file in a folder is one of the table: names with . or _ first are not."""
    return not any(part.startswith((".", "_")) for part in name.split("/"))


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
