"""An Iceberg table that holds ``current``: its columns, its data files, and the commit that takes a change.

One commit takes a change, and makes one snapshot, which says which of ours it is. Files with rows that change are
written again without them, and rows come in files beside these. Files of other days are not looked at. A commit is
tried once, and only goes through if the main branch is where it was when the table was opened.

The newest of our snapshots in the line of the main branch says what the table holds. So a table that somebody has taken
back is found where it is, and a compaction does not change what it holds.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import wraps
from itertools import count, takewhile
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationException,
)
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, GreaterThanOrEqual, IsNull, LessThan, Or
from pyiceberg.io.fileformat import FileFormatFactory
from pyiceberg.io.pyarrow import (
    ArrowProjectionVisitor,
    ArrowScan,
    ParquetFormatModel,
    ParquetFormatWriter,
    _dataframe_to_data_files,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.table.snapshots import Operation, ancestors_of
from pyiceberg.table.update.snapshot import ManageSnapshots
from pyiceberg.transforms import DayTransform, HourTransform, MonthTransform, Transform, YearTransform
from sqlalchemy.exc import IntegrityError

from headrace.ext import sinks as sink_ports
from headrace.model.expressions import data_types
from headrace.model.expressions.data_types import PRECISION, SCALE, DataType, ValueType

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.io import OutputFile
    from pyiceberg.io.fileformat import DataFileStatistics
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask, Table, Transaction
    from pyiceberg.table.snapshots import Snapshot
    from pyiceberg.typedef import Properties


_ICEBERG_TYPES: Final[Mapping[DataType, types.IcebergType]] = {
    DataType.STRING: types.StringType(),
    DataType.INT: types.LongType(),
    DataType.FLOAT: types.DoubleType(),
    DataType.BOOL: types.BooleanType(),
    DataType.TIMESTAMP: types.TimestamptzType(),
    DataType.DATE: types.DateType(),
    DataType.BYTES: types.BinaryType(),
    DataType.DECIMAL: types.DecimalType(PRECISION, SCALE),
}
_TRANSFORMS: Final[Mapping[str, Transform[int, int]]] = {
    "year": YearTransform(),
    "month": MonthTransform(),
    "day": DayTransform(),
    "hour": HourTransform(),
}
_FIRST_PARTITION_FIELD: Final = 1000
_NUMBERS_OF_A_COLUMN: Final = 10
"""How many numbers are set aside for a column and its parts, at least."""


def iceberg_type(kind: data_types.ValueType, number: int = 1) -> types.IcebergType:
    """The type of a column, whose parts have numbers from ``number`` on: a catalog gives them others."""
    match kind:
        case data_types.PairsType(left, right):
            parts, numbers = zip(("left", "right"), (left, right), strict=True), count(number + 3)
            pair = types.StructType(
                *(
                    types.NestedField(number + n, name, _nested_type(part, numbers))
                    for n, (name, part) in enumerate(parts, 1)
                )
            )
            return types.ListType(number, pair, element_required=False)
        case data_types.ListType() | data_types.StructType() | data_types.MapType():
            return _nested_type(kind, count(number))
    return _ICEBERG_TYPES[kind]


def _nested_type(kind: data_types.ColumnType, numbers: Iterator[int]) -> types.IcebergType:
    """The type of a column, or of a part of it, whose own parts have the next ``numbers``."""
    match kind:
        case data_types.ListType(item):
            return types.ListType(next(numbers), _nested_type(item, numbers), element_required=False)
        case data_types.StructType(fields):
            numbered_fields = [(next(numbers), name, own) for name, own in fields]
            return types.StructType(
                *(types.NestedField(number, name, _nested_type(own, numbers)) for number, name, own in numbered_fields)
            )
        case data_types.MapType(value):
            key, own = next(numbers), next(numbers)
            return types.MapType(key, types.StringType(), own, _nested_type(value, numbers), value_required=False)
    return _ICEBERG_TYPES[kind]


def iceberg_schema(columns: Mapping[str, data_types.ValueType]) -> Schema:
    """A schema of ``columns``, for a new table."""
    fields, number = [], 1
    for name, kind in columns.items():
        fields.append(types.NestedField(number, name, iceberg_type(kind, number + 1)))
        number += max(_NUMBERS_OF_A_COLUMN, _count_parts(kind) + 1)
    return Schema(*fields)


def _count_parts(kind: data_types.ValueType) -> int:
    """How many numbers the parts of a column of ``kind`` need at most."""
    match kind:
        case data_types.StructType(fields):
            return sum(1 + _count_parts(own) for _, own in fields)
        case data_types.MapType(value):
            return 2 + _count_parts(value)
        case data_types.ListType(item) if not data_types.is_list_of_values(kind):
            return 1 + _count_parts(item)
        case data_types.PairsType(left, right):
            return 3 + _count_parts(left) + _count_parts(right)
    return 1


def make_partition_spec(schema: Schema, time_unit: str | None, begin: str) -> PartitionSpec:
    """How a new table is partitioned, whose column ``begin`` says when a row begins."""
    if time_unit is None:
        return PartitionSpec()
    source = schema.find_field(begin).field_id
    return PartitionSpec(PartitionField(source, _FIRST_PARTITION_FIELD, _TRANSFORMS[time_unit], f"{begin}_{time_unit}"))


def is_same(left: types.IcebergType, right: types.IcebergType) -> bool:
    """Whether two columns are of one type, whatever numbers their parts have."""
    match left, right:
        case types.ListType(), types.ListType():
            return is_same(left.element_type, right.element_type)
        case types.MapType(), types.MapType():
            return is_same(left.key_type, right.key_type) and is_same(left.value_type, right.value_type)
        case types.StructType(), types.StructType():
            pairs = list(zip(left.fields, right.fields, strict=False))
            return len(left.fields) == len(right.fields) and all(
                mine.name == other.name and is_same(mine.field_type, other.field_type) for mine, other in pairs
            )
    return bool(left == right)


_HELD_PROPERTY: Final = "headrace.held"
_FLOATS: Final = (types.DoubleType, types.FloatType)
_CHUNK_ROWS: Final = 500_000
"""How many rows are in memory at a time; each day of these is a file."""

_REFUSED_COMMITS: Final = (CommitFailedException, TableAlreadyExistsError, ValidationException)
"""What a catalog raises that has not taken a commit. After any other error nobody knows whether it was taken."""


def rows_of(table: "Table", task: "FileScanTask", columns: Sequence[str] = ("*",)) -> pa.Table:
    """The rows of one file, without those that other engines have marked as deleted."""
    schema = table.schema() if tuple(columns) == ("*",) else table.schema().select(*columns)
    return ArrowScan(table.metadata, table.io, schema, AlwaysTrue()).to_table([task])


def read_columns(table: "Table", columns: Sequence[str]) -> pa.RecordBatchReader:
    """All rows of a table, a batch at a time."""
    return table.scan(selected_fields=tuple(columns)).to_arrow_batch_reader()


class _WriterWithoutFloatBounds(ParquetFormatWriter):  # type: ignore[misc] # pyiceberg's types say Any
    """A writer that leaves out the least and the greatest float: they say nothing of NaN, which is above them."""

    def __init__(self, output_file: "OutputFile", file_schema: Schema, properties: "Properties") -> None:
        numbers = parquet_path_to_id_mapping(file_schema)
        floats = {number for number in numbers.values() if isinstance(file_schema.find_type(number), _FLOATS)}
        names = (file_schema.find_column_name(number) for number in floats)
        no_metrics = {f"{TableProperties.METRICS_MODE_COLUMN_CONF_PREFIX}.{name}": "none" for name in names}
        super().__init__(output_file, file_schema, {**properties, **no_metrics})
        if floats:
            bounded_paths = [path for path, number in numbers.items() if number not in floats]
            self._parquet_writer_kwargs["write_statistics"] = bounded_paths

    def close(self) -> "DataFileStatistics":
        bounds = super().close().column_aggregates
        for number in [*bounds]:
            try:
                bounds[number].max_as_bytes()
            except UnicodeEncodeError:  # behind U+D7FF it looks for a next character, and finds a surrogate
                del bounds[number]
        return self._result


class _WithoutFloatBounds(ParquetFormatModel):  # type: ignore[misc] # pyiceberg's types say Any
    """Parquet as pyiceberg writes it. Files of our tables have no bounds of floats."""

    def create_writer(
        self, output_file: "OutputFile", file_schema: Schema, properties: "Properties"
    ) -> ParquetFormatWriter:
        writer = _WriterWithoutFloatBounds if _HELD_PROPERTY in properties else ParquetFormatWriter
        return writer(output_file, file_schema, properties)


# there is no setting for it, and `register` takes no second one
FileFormatFactory._registry[FileFormat.PARQUET] = _WithoutFloatBounds()


def _keep_nulls(project: "Callable[..., pa.Array | None]") -> "Callable[..., pa.Array | None]":
    """``project`` of pyiceberg's, which makes lists and maps of structs of their offsets alone: NULL becomes empty."""

    @wraps(project)
    def project_with_nulls(
        visitor: ArrowProjectionVisitor, kind: types.IcebergType, values: pa.Array | None, *parts: pa.Array | None
    ) -> pa.Array | None:
        projected_values = project(visitor, kind, values, *parts)
        if values is None or projected_values is None or projected_values.null_count == values.null_count:
            return projected_values
        places = pa.array(np.arange(len(values)))
        return projected_values.take(pc.if_else(values.is_valid(), places, None))

    return project_with_nulls


# of files that are written and of those that are read
ArrowProjectionVisitor.list = _keep_nulls(ArrowProjectionVisitor.list)
ArrowProjectionVisitor.map = _keep_nulls(ArrowProjectionVisitor.map)


def _floor_days(make_transform: "Callable[..., Callable[[pa.Array], pa.Array]]") -> "Callable[..., Any]":
    """``make_transform`` of pyiceberg's, which rounds the last second of a day before 1970 up, to the next day."""

    @wraps(make_transform)
    def make_floored(day: DayTransform, source: types.IcebergType) -> "Callable[[pa.Array], pa.Array]":
        transform = make_transform(day, source)
        if isinstance(source, types.DateType):
            return transform
        return lambda times: transform(pc.floor_temporal(times, unit="day"))

    return make_floored


DayTransform.pyarrow_transform = _floor_days(DayTransform.pyarrow_transform)


class WrittenFiles:
    """Files of new rows, removed if it is certain that no commit names them; one may once ``is_committing``."""

    def __init__(self, transaction: "Transaction") -> None:
        self.files: list[DataFile] = []
        self.is_committing = False
        self._metadata = transaction.table_metadata
        self._io = transaction._table.io
        self._schema = schema_to_pyarrow(self._metadata.schema(), include_field_ids=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: TracebackType | None) -> None:
        if error is not None and (not self.is_committing or isinstance(error, _REFUSED_COMMITS)):
            for file in self.files:
                self._io.delete(file.file_path)

    def add(self, batches: Iterable[pa.RecordBatch]) -> int:
        """Write rows, with NULL in columns that they do not have. How many these are."""
        number, chunk, size = 0, [], 0
        for batch in batches:
            chunk.append(batch)
            size += batch.num_rows
            number += batch.num_rows
            if size >= _CHUNK_ROWS:
                self._write(chunk)
                chunk, size = [], 0
        if size:
            self._write(chunk)
        return number

    def _write(self, chunk: Sequence[pa.RecordBatch]) -> None:
        rows = pa.Table.from_batches(chunk)
        arrays = [
            rows.column(field.name).cast(field.type)
            if field.name in rows.column_names
            else pa.nulls(rows.num_rows, field.type)
            for field in self._schema
        ]
        for field, array in zip(self._schema, arrays, strict=True):
            if array.null_count and not field.nullable:
                raise sink_ports.UndeliverableError(
                    f"column {field.name!r} has NULL, and the table says that it is required. Nothing was delivered; "
                    "make the column optional"
                )
        whole = pa.Table.from_arrays(arrays, schema=self._schema)
        self.files.extend(_dataframe_to_data_files(self._metadata, whole, self._io))


_SNAPSHOT_PROPERTY: Final = "headrace.snapshot"
_TAG_PREFIX: Final = "headrace-"
_TAG_MILLISECONDS: Final = 30 * 24 * 3600 * 1000
_DAY_MICROSECONDS: Final = 24 * 3600 * 1_000_000
_ROW_COUNTS: Final = ("added-records", "deleted-records", "added-delete-files", "removed-delete-files")
"""The entries of a snapshot's summary that tell of rows."""
_RANGES: Final = 50
"""How many ranges of days are asked for one by one: more are one range."""


class IcebergTarget(sink_ports.OpenSink):
    """A table of a ``catalog``. It is looked at once, when it is asked what it holds."""

    def __init__(self, catalog: "Catalog", identifier: str, place: str, partition_by: str | None) -> None:
        self._catalog, self._identifier, self._place = catalog, tuple(identifier.split(".")), place
        self._partition_by = partition_by
        self._table: Table | None = None

    def held(self) -> sink_ports.SinkState | None:
        try:
            self._table = self._catalog.load_table(self._identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            self._table = None
            return None
        return _stored_state(self._table)

    def intervention(self, held: sink_ports.SinkState) -> sink_ports.Intervention | None:
        """Snapshots of others in the line of its main branch, but for those that leave all rows as they are."""
        table = self._table
        assert table is not None
        theirs = [snapshot for snapshot in _since_ours(table) if _changes_rows(snapshot)]
        if held.identity not in (None, str(table.metadata.table_uuid)):
            return sink_ports.Intervention("was made again")
        if not theirs or held.snapshot is None:
            return None
        newest = theirs[0]
        operation = "commit" if newest.summary is None else newest.summary.operation.value
        time_text = datetime.fromtimestamp(newest.timestamp_ms / 1000, UTC).isoformat(timespec="seconds")
        number = "a snapshot of others" if len(theirs) == 1 else f"{len(theirs)} snapshots of others, the last one"
        words = f"got {number} ({operation} at {time_text.replace('+00:00', 'Z')})"
        return sink_ports.Intervention(
            words, is_mended={field.name for field in table.schema().fields} == {*held.columns}
        )

    def apply(
        self, changes: sink_ports.Changes, before: sink_ports.SinkState | None, after: sink_ports.SinkState
    ) -> sink_ports.AppliedCounts:
        if (None if self._table is None else _stored_state(self._table)) != before:
            raise sink_ports.SinkMovedError(
                f"table {self._place} does not hold what this delivery goes out from; deliver again"
            )
        if self._table is None:
            return self._create_table(changes, after)
        if before is None:
            raise sink_ports.SinkRefusedError(
                f"table {self._place} is there already, and no delivery made it: name another table, or drop this one. "
                "Headrace writes only tables that it made"
            )
        # a commit that is tried again would go out from what it has not looked at
        self._table.metadata.properties["commit.retry.num-retries"] = "0"
        if changes.source is sink_ports.ChangeSource.ALL_ROWS:
            return self._refill_table(self._table, changes, before, after)
        return self._apply_changes(self._table, changes, after)

    def _create_table(self, changes: sink_ports.Changes, new_state: sink_ports.SinkState) -> sink_ports.AppliedCounts:
        with suppress(IntegrityError):  # an SQL catalog looks, then inserts: somebody has made the namespace between
            self._catalog.create_namespace_if_not_exists(self._identifier[:-1])
        schema = iceberg_schema(changes.columns)
        transaction = self._catalog.create_table_transaction(
            self._identifier,
            schema,
            partition_spec=make_partition_spec(schema, self._partition_by, changes.begin),
            properties={_HELD_PROPERTY: json.dumps(asdict(new_state))},
        )
        with WrittenFiles(transaction) as written_files:
            number = written_files.add(changes.rows(ordered_by=[changes.begin]))
            _commit_snapshot(transaction, new_state, (), written_files)
        return sink_ports.AppliedCounts(0, number)

    def _refill_table(
        self,
        table: "Table",
        changes: sink_ports.Changes,
        old_state: sink_ports.SinkState,
        new_state: sink_ports.SinkState,
    ) -> sink_ports.AppliedCounts:
        """All rows again, in a table that has the columns. Columns that somebody else added stay."""
        tasks = list(table.scan().plan_files())
        number_removed = table.scan().count()
        transaction = table.transaction()
        if changes.columns:
            columns_gone = _replaced_columns(table, old_state.columns, changes.columns)
            self._check_partitions(table, columns_gone)
            _alter_columns(transaction, table, columns_gone, changes.columns)
        transaction.set_properties({_HELD_PROPERTY: json.dumps(asdict(new_state))})
        with WrittenFiles(transaction) as written_files:
            begin = [changes.begin] if changes.columns else []
            number = written_files.add(changes.rows(ordered_by=begin))
            _commit_snapshot(transaction, new_state, [task.file for task in tasks], written_files)
        return sink_ports.AppliedCounts(number_removed, number)

    def _check_partitions(self, table: "Table", columns_gone: Collection[str]) -> None:
        """Raise SinkRefusedError if what the table is partitioned by goes: its partitions stay what they were made."""
        for part in table.spec().fields:
            name = table.schema().find_column_name(part.source_id)
            if name in columns_gone:
                raise sink_ports.SinkRefusedError(
                    f"table {self._place} is partitioned by {name}, a column that goes (rows have an event time, "
                    "aggregations have windows). Drop the table, and the next delivery makes it again; or name another"
                )

    def _apply_changes(
        self, table: "Table", changes: sink_ports.Changes, new_state: sink_ports.SinkState
    ) -> sink_ports.AppliedCounts:
        self._check_columns(table, changes.columns)
        transaction = table.transaction()
        replaced_files: list[DataFile] = []
        number_removed = 0
        days = changes.days()
        with WrittenFiles(transaction) as written_files:
            for task in table.scan(_days_filter(days, changes.begin)).plan_files() if days else ():
                rows_met, rows_gone = changes.met_by(rows_of(table, task, changes.identity))
                if not rows_met:
                    continue
                replaced_files.append(task.file)
                number_removed += rows_gone
                # a file all of whose rows go needs no copy; where deletes are marked beside it, its count does not tell
                if task.delete_files or rows_met < task.file.record_count:
                    written_files.add([*changes.untouched(rows_of(table, task)).to_batches()])
            number = written_files.add(changes.rows(ordered_by=[changes.begin]))
            _commit_snapshot(transaction, new_state, replaced_files, written_files)
        return sink_ports.AppliedCounts(number_removed, number)

    def _check_columns(self, table: "Table", wanted_types: Mapping[str, ValueType]) -> None:
        table_types = {field.name: field.field_type for field in table.schema().fields}
        for name, kind in wanted_types.items():
            expected = iceberg_type(kind)
            if name not in table_types or not is_same(table_types[name], expected):
                is_now = f"is {table_types[name]} now" if name in table_types else "is there no more"
                raise sink_ports.SinkRefusedError(
                    f"column {name} of table {self._place} {is_now}: somebody else changed it. Put it back as it was "
                    f"({expected}), or drop the table, and the next delivery makes it again"
                )


def _stored_state(table: "Table") -> sink_ports.SinkState | None:
    if (current := table.current_snapshot()) is not None:
        for snapshot in ancestors_of(current, table.metadata):
            if (note := _snapshot_note(snapshot)) is not None:
                return sink_ports.SinkState(**json.loads(note))
    # our snapshots have expired, or are none of this line: whose table it is says the table
    note = table.properties.get(_HELD_PROPERTY)
    return None if note is None else sink_ports.SinkState(**{**json.loads(note), "snapshot": None})


def _snapshot_note(snapshot: "Snapshot") -> str | None:
    """What one of our snapshots says that the table holds; None of others."""
    return None if snapshot.summary is None else snapshot.summary.additional_properties.get(_HELD_PROPERTY)


def _since_ours(table: "Table") -> Iterator["Snapshot"]:
    """Snapshots of others since our newest one, newest first."""
    if (current := table.current_snapshot()) is not None:
        yield from takewhile(lambda snapshot: _snapshot_note(snapshot) is None, ancestors_of(current, table.metadata))


def _changes_rows(snapshot: "Snapshot") -> bool:
    """Whether rows are others after it: a compaction replaces files, and no rows."""
    if snapshot.summary is None:
        return True
    numbers = [snapshot.summary.additional_properties.get(name, "0") for name in _ROW_COUNTS]
    return snapshot.summary.operation is not Operation.REPLACE and {*numbers} != {"0"}


def _replaced_columns(table: "Table", held_columns: Collection[str], columns: Mapping[str, ValueType]) -> list[str]:
    """The table's columns that ``columns`` replace: ``held_columns`` not wanted any more, and those of other types."""
    table_types = {field.name: field.field_type for field in table.schema().fields}
    stay = {
        name for name, kind in columns.items() if name in table_types and is_same(table_types[name], iceberg_type(kind))
    }
    return [name for name in table_types if name not in stay and (name in held_columns or name in columns)]


def _alter_columns(
    transaction: "Transaction", table: "Table", columns_gone: Collection[str], columns: Mapping[str, ValueType]
) -> None:
    """Drop ``columns_gone`` and add ``columns``, where the table has or lacks them. A table that somebody has taken
    back may have newer columns, since only its rows went back.
    """
    table_columns = {field.name for field in table.schema().fields}
    new_columns = [name for name in columns if name in columns_gone or name not in table_columns]
    if not columns_gone and not new_columns:
        return
    with transaction.update_schema(allow_incompatible_changes=True) as update:
        for name in columns_gone:
            update.delete_column((name,))
        for name in new_columns:
            update.add_column((name,), iceberg_type(columns[name]))


def _days_filter(days: Sequence[int | None], begin: str) -> BooleanExpression:
    """Rows that begin, as the column ``begin`` says, on one of ``days`` (since 1970)."""
    known_days = {day for day in days if day is not None}
    known_days |= {day + 1 for day in known_days if day < 0}  # where older versions have put its last second
    starts = sorted(day for day in known_days if day - 1 not in known_days)
    ends = sorted(day + 1 for day in known_days if day + 1 not in known_days)
    if len(starts) > _RANGES:
        starts, ends = starts[:1], ends[-1:]
    terms: list[BooleanExpression] = [
        And(GreaterThanOrEqual(begin, start * _DAY_MICROSECONDS), LessThan(begin, end * _DAY_MICROSECONDS))
        for start, end in zip(starts, ends, strict=True)
    ]
    if None in days:
        terms.append(IsNull(begin))
    first, *others = terms
    return Or(first, *others) if others else first


def _commit_snapshot(
    transaction: "Transaction",
    new_state: sink_ports.SinkState,
    replaced_files: "Sequence[DataFile]",
    written_files: WrittenFiles,
) -> None:
    """One snapshot without ``replaced_files`` and with ``written_files``, and a tag for it."""
    new_state = replace(new_state, identity=str(transaction.table_metadata.table_uuid))
    properties = {_HELD_PROPERTY: json.dumps(asdict(new_state)), _SNAPSHOT_PROPERTY: new_state.snapshot or ""}
    update = transaction.update_snapshot(snapshot_properties=properties)
    with update.overwrite() if replaced_files else update.fast_append() as snapshot:
        for file in replaced_files:
            snapshot.delete_data_file(file)
        for file in written_files.files:
            snapshot.append_data_file(file)
    if new_state.snapshot is not None:
        with ManageSnapshots(transaction) as references:
            references.create_tag(snapshot.snapshot_id, f"{_TAG_PREFIX}{new_state.snapshot}", _TAG_MILLISECONDS)
    # from here on a commit may name the files, whatever answer comes
    written_files.is_committing = True
    transaction.commit_transaction()
