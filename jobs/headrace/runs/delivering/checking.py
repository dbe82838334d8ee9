"""What sinks and other tables hold beside what readers see: each row is read and compared, and nothing is written.

``check_sinks`` holds sinks against what they say that they hold. ``compare_published`` takes a table of another system,
which is named as KIND:TABLE. ``parquet_rows`` reads a table of Parquet files: a file or a folder, also of a store.
Folders may say values of columns, as Hive's do.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from headrace.connections import Connection, connection
from headrace.connections import connection as connection_named
from headrace.errors import FixConfigError
from headrace.ext.sinks import SINKS, OpenChangeLog, OpenReceiver, OpenSink, OpenTarget, SinkState, StoredRecords
from headrace.model.expressions.data_types import DataType, NestedType, PairsType, ValueType, in_words
from headrace.pipeline.endpoints import Sink
from headrace.pipeline.pipeline import Pipeline
from headrace.read.diff import target_comparison
from headrace.read.diff.changes import delivered_columns, still_there
from headrace.read.pipeline_reader import PipelineReader
from headrace.read.shown_values import JsonFields
from headrace.read.snapshots.snapshot_refs import At, snapshot_at
from headrace.read.views.columns import ViewColumns
from headrace.read.views.database import check_room, open_database, working_folder
from headrace.runs.delivering.deliver import chosen_sinks, is_same_place
from headrace.sinks.failures import check_columns, named_failures
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.manifest import UNNAMED, Manifest
from headrace_snapshots.format.output_view import seen_by
from headrace_snapshots.names import PUBLISHED
from headrace_snapshots.output_catalog import OutputCatalog
from headrace_snapshots.store import open_store

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import dataset


@dataclass(frozen=True)
class SinkCheck(JsonFields):
    """What a ``sink`` of an ``output`` holds, beside the ``snapshot`` that was delivered to it last. That was ``at`` a
    time in ISO 8601 (None: it is not known). ``published``: what readers see. ``others``: what somebody else has done
    to it since, as far as that can be seen.

    ``comparison`` is None where nothing was compared; ``reason`` says why.
    """

    pipeline: str
    output: str
    sink: str
    snapshot: str | None
    at: str | None
    published: str | None
    others: str | None
    comparison: target_comparison.TableComparison | None
    reason: str | None

    @property
    def is_right(self) -> bool | None:
        """Whether it holds what was delivered, row by row; None if that was not compared."""
        return None if self.comparison is None else self.comparison.is_equal

    def to_json(self) -> dict[str, Any]:
        """A JSON value."""
        return {**super().to_json(), "is_right": self.is_right}

    def describe(self) -> str:
        """What it holds, in a line."""
        when = "" if self.at is None else f" at {self.at}"
        begins = f"sink {self.sink} was last written by us{when} with {self.snapshot or 'nothing'}"
        if self.snapshot is None and self.at is None:
            begins = f"sink {self.sink} was never written by us"
        published_text = "" if self.snapshot == self.published else f" (readers see {self.published or 'nothing'})"
        others = "" if self.others is None else f", and {self.others} since"
        comparison = self.comparison
        if comparison is None:
            return f"{begins}{published_text}{others}: not compared, {self.reason}"
        if comparison.is_equal:
            return f"{begins}{published_text}{others}: it holds these {comparison.ours:,} rows"
        fills = "headrace deliver --refill fills it again"
        return f"{begins}{published_text}{others}: of {comparison.ours:,} rows {_differences_text(comparison)}. {fills}"


def _differences_text(comparison: target_comparison.TableComparison) -> str:
    differ = (
        f"{comparison.only_ours:,} rows are missing, {comparison.only_theirs:,} are none of ours, "
        f"{comparison.different:,} have other values, {comparison.twice:,} are there twice"
    )
    if comparison.overdrawn:
        differ += f", {comparison.overdrawn:,} are withdrawn that are not there"
    return f"{differ}, {comparison.unreadable:,} cannot be read" if comparison.unreadable else differ


def check_sinks(
    catalog: Catalog, pipeline: Pipeline, *, output: str | None = None, names: Sequence[str] = (), limit: int = 20
) -> tuple[SinkCheck, ...]:
    """Compare what sinks of ``pipeline`` hold with what was delivered; the first ``limit`` differing rows are given.

    Raises UnknownSinkError, UnknownOutputError, MissingConnectionError, SinkRefusedError, SinkUnreachableError.
    """
    return tuple(
        _check_sink(OutputCatalog(catalog, name) if name else catalog, name, sink, limit)
        for name, sink in chosen_sinks(pipeline, output, names)
    )


_HANDED_OVER: Final = "what was handed over is not there to be looked at"
_MOVING: Final = "others deliver to it again and again meanwhile"
_SNAPSHOT_EXPIRED: Final = "that snapshot has expired, and the next delivery fills it again"
_NOT_READ: Final = "the code of this sink has no {}, which would read what the target holds"
_MOST_LOOKS: Final = 3
"""So often a target is compared that is delivered to meanwhile."""


def _check_sink(catalog: Catalog, output: str, sink: Sink, limit: int) -> SinkCheck:
    published_id = catalog.head().refs.get(PUBLISHED)
    nothing = SinkCheck(catalog.pipeline, output, sink.name, None, None, published_id, None, None, _HANDED_OVER)
    if sink.gets_final_rows:
        return nothing
    sink_connection = connection(sink.connection, kind=sink.kind) if sink.connection else Connection("", "")
    with named_failures(sink, sink_connection), SINKS[sink.kind].open(sink, sink_connection) as target:
        if isinstance(target, OpenReceiver):
            return nothing
        return _TargetLook(catalog, sink, sink_connection, limit).check_target(target, nothing)


@dataclass(frozen=True)
class _TargetLook:
    """A look at what a ``sink`` holds, at its ``connection``."""

    catalog: Catalog
    sink: Sink
    connection: Connection
    limit: int

    def check_target(self, target: OpenTarget, nothing: SinkCheck) -> SinkCheck:
        """What a ``target`` holds beside what the last delivery left, which may come while it is read."""
        check = nothing
        for _ in range(_MOST_LOOKS):
            sink_state = target.held()
            others = None if sink_state is None else target.intervention(sink_state)
            snapshot, delivered_at = (None, None) if sink_state is None else (sink_state.snapshot, sink_state.at)
            check = replace(
                nothing, snapshot=snapshot, at=delivered_at, others=None if others is None else others.words
            )
            comparison = self._compare_target(target, sink_state)
            if isinstance(comparison, str):
                return replace(check, reason=comparison)
            # a difference counts only if no delivery came while it was read
            if comparison.is_equal or target.held() == sink_state:
                return replace(check, comparison=comparison, reason=None)
        return replace(check, reason=_MOVING)

    def _compare_target(
        self, target: OpenTarget, sink_state: SinkState | None
    ) -> target_comparison.TableComparison | str:
        """What a target has beside what was delivered, or why that is not compared."""
        manifest = self._delivered_manifest(sink_state)
        if isinstance(manifest, str):
            return manifest
        assert sink_state is not None
        columns = delivered_columns(ViewColumns.from_json(manifest.schema))
        try:
            if isinstance(target, OpenChangeLog):
                return self._compare_records(manifest, target.records(columns), sink_state.number)
            assert isinstance(target, OpenSink)
            return self._compare_rows(manifest, self._read(target, columns), sink_state.number)
        except target_comparison.ComparedColumnsError as error:
            return str(error)

    def _delivered_manifest(self, sink_state: SinkState | None) -> Manifest | str:
        """The snapshot that is held; or why there is none to compare with."""
        if sink_state is None or sink_state.snapshot is None:
            return "nothing was delivered"
        if sink_state.pipeline != self.catalog.pipeline or not is_same_place(sink_state.root, self.catalog.store.uri):
            return f"it holds rows of {sink_state.pipeline} under {sink_state.root}"
        return still_there(self.catalog, sink_state.snapshot) or _SNAPSHOT_EXPIRED

    def _compare_records(
        self, manifest: Manifest, records: AbstractContextManager[StoredRecords] | None, number: int | None
    ) -> target_comparison.TableComparison | str:
        if records is None:
            return _NOT_READ.format("records()")
        if number is None:
            return "it holds rows, and is to hold changes"
        return target_comparison.compare_with_records(
            self.catalog, manifest, records, last_number=number, limit=self.limit
        )

    def _compare_rows(
        self, manifest: Manifest, rows: "AbstractContextManager[pa.RecordBatchReader] | None", number: int | None
    ) -> target_comparison.TableComparison | str:
        if rows is None:
            return _NOT_READ.format("rows()")
        if number is not None:
            return "it holds changes, and is to hold rows"
        return target_comparison.compare_with_table(
            self.catalog, manifest, target_comparison.ComparedColumns(), lambda _: rows, limit=self.limit
        )

    def _read(
        self, target: OpenSink, columns: Mapping[str, ValueType]
    ) -> "AbstractContextManager[pa.RecordBatchReader] | None":
        table = self.sink.table_of_rows
        return target.rows(columns) if table is None else SINKS[self.sink.kind].read(table, [*columns], self.connection)


_NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
_NO_TABLE: Final = "there is no file or folder with files at {}"


class ComparedTableError(FixConfigError, code="config.compared_table"):
    """What a comparison names is no table."""


@contextmanager
def parquet_rows(path: str, columns: Mapping[str, ValueType]) -> "Iterator[pa.RecordBatchReader]":
    """The ``columns`` of the table at ``path``. Columns that its folders name (``shop=007``) and its files lack are
    text, which must be values of the given types. Raises ComparedTableError, ComparedColumnsError, SinkRefusedError.
    """
    import pyarrow as pa
    from pyarrow import dataset

    with _local_files(path) as names:
        files = dataset.dataset([*names], format="parquet")
        values = {file: _values_in_folders(path, name) for file, name in names.items()}
        partition_columns = {column for own in values.values() for column in own} - {*files.schema.names}
        check_columns(path, [*columns], [*files.schema.names, *sorted(partition_columns)])
        for column in [column for column in columns if column in partition_columns]:
            if lacking := [names[file] for file, own in values.items() if column not in own]:
                raise ComparedTableError(f"{path}: {lacking[0]} is in no folder {column}=VALUE, as other files are")
            _check_texts(path, column, columns[column], [own[column] for own in values.values()])
        rows = dataset.FileSystemDataset.from_paths(
            [*names],
            schema=pa.schema([*files.schema, *(pa.field(column, pa.string()) for column in sorted(partition_columns))]),
            format=dataset.ParquetFileFormat(),
            filesystem=files.filesystem,
            partitions=[
                _partition_condition({column: own[column] for column in own if column in partition_columns})
                for own in values.values()
            ],
        )
        yield rows.scanner(columns=[*columns]).to_reader()


def _partition_condition(values: Mapping[str, str | None]) -> "dataset.Expression":
    """What holds of all rows of a file whose folders say ``values``."""
    from pyarrow import dataset

    columns = [(dataset.field(column), text) for column, text in values.items()]
    return reduce(and_, [one.is_null() if text is None else one == text for one, text in columns], dataset.scalar(True))


def _values_in_folders(path: str, name: str) -> dict[str, str | None]:
    """What the folders of the file ``name`` say of columns: NAME=VALUE, percent-encoded."""
    try:
        parts = [folder.partition("=") for folder in name.split("/")[:-1] if "=" in folder]
        return {
            unquote(column, errors="strict"): None if value == _NULL_PARTITION else unquote(value, errors="strict")
            for column, _, value in parts
        }
    except UnicodeDecodeError as error:
        raise ComparedTableError(f"{path}: a folder of {name} is no percent-encoded UTF-8 ({error})") from error


def _check_texts(path: str, column: str, kind: ValueType, texts: Sequence[str | None]) -> None:
    """Raise ComparedColumnsError if one of the ``texts`` of a column is no value of its type."""
    if kind is DataType.STRING or isinstance(kind, NestedType | PairsType):
        return
    unread = f"text is not null and {target_comparison.text_as('text', kind)} is null"
    query = f"select text from (select unnest(?) as text) where {unread} order by text limit 1"
    with working_folder() as folder, open_database(folder, is_for_us=True) as connection:
        row = connection.execute(query, [[*texts]]).fetchone()
    if row is not None:
        raise target_comparison.ComparedColumnsError(
            f"{path}: {row[0]!r}, of a folder {column}=VALUE, is no {in_words(kind)}, which it is for readers. Move "
            "that folder elsewhere, or name a column of the files (--column OURS=THEIRS)"
        )


@contextmanager
def _local_files(path: str) -> Iterator[Mapping[str, str]]:
    """Where the files of the table can be read, by name below ``path``: copies, if that is in a store."""
    if "://" not in path:
        names = _files_below(path)
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


def _files_below(path: str) -> dict[str, str]:
    """The files in a local folder, or that one file."""
    from pyarrow.fs import FileSelector, LocalFileSystem

    if Path(path).is_file():
        return {path: Path(path).name}
    file_infos = LocalFileSystem().get_file_info(FileSelector(path, recursive=True)) if Path(path).is_dir() else ()
    files = {info.path: Path(info.path).relative_to(path).as_posix() for info in file_infos if info.is_file}
    return {file: name for file, name in sorted(files.items()) if _is_in(name)}


def _is_in(name: str) -> bool:
    """Whether a file in a folder is one of the table: names with . or _ first are not."""
    return not any(part.startswith((".", "_")) for part in name.split("/"))


PARQUET = "parquet"


def compare_published(
    reader: PipelineReader,
    ref: At,
    table: str,
    *,
    connection: str | None,
    columns: target_comparison.ComparedColumns,
    limit: int,
) -> target_comparison.TableComparison:
    """Compare what readers see of a pipeline or an output with a ``table``. It is ``postgres:reports.sales``,
    ``delta:reports/sales``, or ``iceberg:reports.sales`` of a ``connection``. It may be ``parquet:PATH``, a file or a
    folder, also of a store (``parquet:s3://bucket/folder``), which is reached as roots are. Folders may say values of
    columns, as Hive's do (``shop=007``).

    Raises UnknownOutputError for a pipeline with several, ComparedTableError, ComparedColumnsError,
    MissingConnectionError, NotRegisteredError, SinkRefusedError, SinkUnreachableError.
    """
    kind, _, name = table.partition(":")
    if not name:
        raise ComparedTableError(f"{table!r} names no table: write KIND:TABLE, as in postgres:reports.sales")
    catalog = reader.catalog
    manifest = snapshot_at(catalog, ref).manifest
    if manifest is None:
        raise ComparedTableError(f"readers of {reader.name} see nothing so far: there is nothing to compare")
    seen_by(manifest, UNNAMED.output)
    if kind == PARQUET:
        return target_comparison.compare_with_table(
            catalog, manifest, columns, lambda theirs: parquet_rows(name, theirs), limit=limit
        )
    system = SINKS[kind]
    if connection is None:
        raise ComparedTableError(f"say how {table} is reached: --connection NAME, as in HEADRACE_CONN_NAME")
    table_connection = connection_named(connection, kind=kind)

    def read_table(theirs: Mapping[str, ValueType]) -> "AbstractContextManager[pa.RecordBatchReader]":
        return system.read(name, [*theirs], table_connection)

    return target_comparison.compare_with_table(catalog, manifest, columns, read_table, limit=limit)
