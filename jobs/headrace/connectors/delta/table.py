"""A Delta table that holds ``current``: what its log says since our last commit, and the commit that takes a change.

One commit takes a change, and says with it which snapshot the table holds. The snapshot is the version of an
application transaction, which stays in the table's state whatever is compacted, vacuumed or forgotten of its log. The
metadata of a column, in the schema, says whose rows these are, and their columns. It changes only where all rows are
replaced, in the same commit. A commit is tried once: if the table has got another one since it was opened, it is
refused.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa
from deltalake import (
    ColumnProperties,
    CommitProperties,
    DeltaTable,
    Transaction,
    WriterProperties,
    write_deltalake,
)
from deltalake.exceptions import DeltaError, TableNotFoundError

from headrace.ext import sinks as sink_ports
from headrace.kernel.columns import holds_type
from headrace.model.expressions.data_types import ValueType
from headrace.model.time import whole_seconds
from headrace.read.views.arrow_types import named_as, schema_of
from headrace.read.views.database import sql_identifier

if TYPE_CHECKING:
    from deltalake import Field


_LEAVES_ROWS: Final = (
    *("OPTIMIZE", "REORG", "CLUSTER BY", "VACUUM START", "VACUUM END", "FSCK", "COMPUTE STATS"),
    *("UPGRADE PROTOCOL", "ADD FEATURE", "SET TBLPROPERTIES", "UNSET TBLPROPERTIES"),
    *("ADD CONSTRAINT", "DROP CONSTRAINT", "UPDATE TABLE METADATA", "UPDATE FIELD METADATA"),
    *("ADD COLUMN", "ADD COLUMNS", "CHANGE COLUMN", "CHANGE COLUMNS", "RENAME COLUMN"),
)
"""Operations after which the rows of a table are what they were."""

_RESTORE: Final = "RESTORE"


@dataclass(frozen=True)
class TableLog:
    """Commits at ``version`` of a table: those of others since our last one, newest first, as far as the log goes; and
    ours, None if it is gone.
    """

    version: int
    theirs: Sequence[Mapping[str, Any]]
    ours: Mapping[str, Any] | None

    @classmethod
    def from_table(cls, table: DeltaTable, mark: str) -> Self:
        """The log of ``table``; commits of ours have a ``mark``."""
        theirs: list[dict[str, Any]] = []
        for limit in (10, None):  # ours is the newest, as a rule
            theirs = []
            for commit in table.history(limit):
                if commit.get(mark) is not None:
                    return cls(table.version(), theirs, commit)
                theirs.append(commit)
        return cls(table.version(), theirs, None)

    @property
    def was_restored(self) -> bool:
        """Whether somebody has taken the table back: it holds an older snapshot than the transaction says."""
        return any(commit.get("operation") == _RESTORE for commit in self.theirs)

    @property
    def last_commit_time(self) -> str | None:
        """When our last commit was."""
        return None if self.ours is None else _commit_time(self.ours)

    @property
    def theirs_in_words(self) -> str | None:
        """What others have done to the rows; None if nothing."""
        changing = [commit for commit in self.theirs if commit.get("operation") not in _LEAVES_ROWS]
        if not changing:
            return None
        number = "a commit of others" if len(changing) == 1 else f"{len(changing)} commits of others, the last one"
        operation = changing[0].get("operation", "without a name")
        return f"got {number} ({operation} at {_commit_time(changing[0]) or 'some time'})"


def _commit_time(commit: Mapping[str, Any]) -> str | None:
    milliseconds = commit.get("timestamp")
    if milliseconds is None:
        return None
    return whole_seconds(datetime.fromtimestamp(milliseconds / 1000, UTC))


_SNAPSHOT_PROPERTY: Final = "headrace.snapshot"
_HELD_PROPERTY: Final = "headrace.held"
_GONE_COLUMN: Final = "_headrace_gone"
_NO_SNAPSHOT: Final = 0
_BOUNDED_PROPERTY: Final = "delta.dataSkippingStatsColumns"
_NUMBER_BOUNDED_PROPERTY: Final = "delta.dataSkippingNumIndexedCols"
_BOUNDED_BY_DEFAULT: Final = 32
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UNSAFE: Final = frozenset(" ,;{}()\n\t=")
"""What no reader of Delta takes in the name of a column, unless the table maps names."""


class DeltaTarget(sink_ports.OpenSink):
    """A table at ``location``. It is looked at once, when it is asked what it holds."""

    def __init__(self, location: str, options: dict[str, str], place: str) -> None:
        self._location, self._options, self._place = location, options, place
        self._table: DeltaTable | None = None
        self._log: TableLog | None = None

    def held(self) -> sink_ports.SinkState | None:
        try:
            self._table = DeltaTable(self._location, storage_options=self._options)
        except TableNotFoundError:
            self._table = None
            return None
        return self._stored_state(self._table)

    def intervention(self, held: sink_ports.SinkState) -> sink_ports.Intervention | None:
        """Commits of others that its log still has, but for those that leave all rows as they are."""
        table = self._table
        assert table is not None
        words = self._log_of(table).theirs_in_words
        if words is None:
            return None
        return sink_ports.Intervention(
            words, is_mended={field.name for field in table.schema().fields} == {*held.columns}
        )

    def apply(
        self, changes: sink_ports.Changes, before: sink_ports.SinkState | None, after: sink_ports.SinkState
    ) -> sink_ports.AppliedCounts:
        if (None if self._table is None else self._stored_state(self._table)) != before:
            raise sink_ports.SinkMovedError(
                f"table {self._place} does not hold what this delivery goes out from; deliver again"
            )
        _check_names(changes.columns)
        if changes.source is sink_ports.ChangeSource.ALL_ROWS:
            return self._refill_table(changes, before, after)
        return self._change_rows(changes, after)

    def _stored_state(self, table: DeltaTable) -> sink_ports.SinkState | None:
        note = next(filter(None, (field.metadata.get(_HELD_PROPERTY) for field in table.schema().fields)), None)
        version = table.transaction_version(_SNAPSHOT_PROPERTY)
        if note is None or version is None:
            return None
        log = self._log_of(table)
        snapshot = None if version == _NO_SNAPSHOT or log.was_restored else _id_of(version)
        return sink_ports.SinkState(**json.loads(note), snapshot=snapshot, at=log.last_commit_time)

    def _log_of(self, table: DeltaTable) -> TableLog:
        if self._log is None or self._log.version != table.version():
            self._log = TableLog.from_table(table, _SNAPSHOT_PROPERTY)
        return self._log

    def _refill_table(
        self, changes: sink_ports.Changes, old_state: sink_ports.SinkState | None, new_state: sink_ports.SinkState
    ) -> sink_ports.AppliedCounts:
        if self._table is not None and old_state is None:
            raise sink_ports.SinkRefusedError(
                f"table {self._place} is there already, and no delivery made it: name another path, or remove this "
                "table. Headrace writes only tables that it made"
            )
        state_fields = {
            name: value for name, value in asdict(new_state).items() if name not in ("snapshot", "at", "identity")
        }
        schema = self._with_state_note(self._target_schema(changes, old_state, new_state), json.dumps(state_fields))
        rows = _Stream(schema, _pad_batches(changes.rows(), schema, changes.columns))
        number_removed = 0 if self._table is None else self._table.count()
        properties = _commit_properties(new_state)
        with rows.reraise_error():
            if self._table is None:
                self._create_table(rows.reader, properties)
            else:
                _set_bounded(self._table, schema, self._place)
                write_deltalake(
                    self._table,
                    rows.reader,
                    mode="overwrite",
                    schema_mode="overwrite",
                    commit_properties=properties,
                    writer_properties=_writer_properties(schema),
                )
        return sink_ports.AppliedCounts(number_removed, rows.number)

    def _create_table(self, rows: pa.RecordBatchReader, properties: CommitProperties) -> None:
        try:
            write_deltalake(
                self._location,
                rows,
                mode="error",
                storage_options=self._options,
                commit_properties=properties,
                configuration=_stated_bounds(_bounded_columns(rows.schema)) if _has_unbounded(rows.schema) else None,
                writer_properties=_writer_properties(rows.schema),
            )
        except DeltaError as error:
            if not DeltaTable.is_deltatable(self._location, self._options):
                raise
            raise sink_ports.SinkMovedError(
                f"table {self._place} was not there when this delivery began, and is now: another one came between. "
                "The next delivery continues from there"
            ) from error

    def _target_schema(
        self, changes: sink_ports.Changes, old_state: sink_ports.SinkState | None, new_state: sink_ports.SinkState
    ) -> pa.Schema:
        """The columns of ``changes``, and those that somebody else added; where nothing is published, as they are."""
        if self._table is None:
            return schema_of(changes.columns)
        own_schema = pa.schema(self._table.schema().to_arrow())
        if not changes.columns:
            return own_schema
        ours = {*(() if old_state is None else old_state.columns), *new_state.columns}
        return pa.schema([*schema_of(changes.columns), *(field for field in own_schema if field.name not in ours)])

    def _with_state_note(self, schema: pa.Schema, state_note: str) -> pa.Schema:
        first, *others = schema
        return pa.schema(
            [first.with_metadata({_HELD_PROPERTY: state_note}), *(field.remove_metadata() for field in others)]
        )

    def _change_rows(self, changes: sink_ports.Changes, new_state: sink_ports.SinkState) -> sink_ports.AppliedCounts:
        table = self._table
        assert table is not None  # it holds the rows that change
        schema = schema_of(changes.columns)
        self._check_columns(table.schema().fields, schema)
        rows = _Stream(schema.append(pa.field(_GONE_COLUMN, pa.bool_())), _flagged_rows(changes, schema))
        others = [name for name in changes.columns if name not in changes.identity]
        own_schema = pa.schema(table.schema().to_arrow())
        with rows.reraise_error():
            _set_bounded(table, own_schema, self._place)
            version = table.version()
            merger = table.merge(
                rows.reader,
                " and ".join(
                    f"(t.{name} is not distinct from s.{name})" for name in map(sql_identifier, changes.identity)
                ),
                source_alias="s",
                target_alias="t",
                commit_properties=_commit_properties(new_state),
                writer_properties=_writer_properties(own_schema),
            )
            merger = merger.when_matched_delete(f"s.{_GONE_COLUMN}")
            if others:
                merger = merger.when_matched_update(_from_source(others), predicate=f"not s.{_GONE_COLUMN}")
            merger = merger.when_not_matched_insert(_from_source(changes.columns), predicate=f"not s.{_GONE_COLUMN}")
            counts = merger.execute()
        if table.version() == version:  # a merge that finds nothing to do makes no commit
            with rows.reraise_error():
                nothing = pa.RecordBatchReader.from_batches(own_schema, iter(()))
                write_deltalake(table, nothing, mode="append", commit_properties=_commit_properties(new_state))
        return sink_ports.AppliedCounts(counts["num_target_rows_deleted"], rows.number)

    def _check_columns(self, existing_fields: "Sequence[Field]", wanted_schema: pa.Schema) -> None:
        from deltalake import Schema

        types = {field.name: field.type for field in existing_fields}
        for field in Schema.from_arrow(wanted_schema).fields:
            if types.get(field.name) != field.type:
                is_now = f"is {types[field.name]} now" if field.name in types else "is there no more"
                raise sink_ports.SinkRefusedError(
                    f"column {field.name} of table {self._place} {is_now}: somebody else changed it. Put it back as it "
                    f"was ({field.type}), or remove the table, and the next delivery makes it again"
                )


def _check_names(columns: Iterable[str]) -> None:
    for name in columns:
        if _UNSAFE & {*name} or name.startswith("__delta"):
            raise sink_ports.UndeliverableError(
                f"column {name!r} has a name that Delta does not take (none of blank , ; {{ }} ( ) = tab newline): "
                "rename it in the output that has this sink. Nothing was delivered"
            )


# --- statistics -------------------------------------------------------------------------------------------------------
# Readers skip files by the least and the greatest value of a column. Those of floats say nothing of NaN, which is above
# them. The log has those of decimals as floats, which may lie on the wrong side of a value. So there are none of both.
# The property comes with it: without, readers take what is missing for NULL. Bounds within a file have decimals as they
# are, and stay.


def _bounded_columns(schema: pa.Schema) -> list[str]:
    """The columns of which files state the least and the greatest value. Spark changes no table whose property names a
    column without an order: flags, bytes, or several values.
    """
    return [name for name in _ordered_columns(schema) if not pa.types.is_decimal(schema.field(name).type)]


def _ordered_columns(schema: pa.Schema) -> list[str]:
    return [field.name for field in schema if _has_order(field.type) and _PLAIN.fullmatch(field.name)]


def _has_order(kind: pa.DataType) -> bool:
    unordered_kinds = (pa.types.is_floating, pa.types.is_nested, pa.types.is_boolean, pa.types.is_binary)
    return not any(is_one(kind) for is_one in (*unordered_kinds, pa.types.is_large_binary, pa.types.is_binary_view))


def _has_unbounded(schema: pa.Schema) -> bool:
    return any(holds_type(field.type, _is_unbounded) for field in schema)


def _is_unbounded(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _writer_properties(schema: pa.Schema) -> WriterProperties:
    if not _has_unbounded(schema):
        return WriterProperties(compression="SNAPPY")
    with_bounds = dict.fromkeys(_ordered_columns(schema), ColumnProperties(statistics_enabled="PAGE"))
    without_bounds = ColumnProperties(statistics_enabled="NONE")
    return WriterProperties(
        compression="SNAPPY", default_column_properties=without_bounds, column_properties=with_bounds
    )


def _stated_bounds(names: Sequence[str]) -> dict[str, str]:
    return {_BOUNDED_PROPERTY: ",".join(names)} if names else {_NUMBER_BOUNDED_PROPERTY: "0"}


def _set_bounded(table: DeltaTable, schema: pa.Schema, place: str) -> None:
    """Let ``table``, which gets rows of ``schema``, bound no floats and no decimals; it may be of a version that did.
    Raises SinkMovedError.

    No column is added to those that it bounds: readers would take what older files do not say of it for NULL, and lose
    rows.
    """
    is_stated = _BOUNDED_PROPERTY in table.metadata().configuration
    if not _has_unbounded(schema) and not is_stated:
        return
    old_names = _bounded_so_far(table)
    properties = _stated_bounds([name for name in _bounded_columns(schema) if name in old_names])
    if properties.items() <= table.metadata().configuration.items():
        return
    version = table.version()
    table.alter.set_table_properties(properties)
    if table.version() != version + 1:  # it goes on from additions of others, which nobody has looked at
        raise sink_ports.SinkMovedError(
            f"table {place} got another commit while this delivery set a property of it. No row was changed; the next "
            "delivery continues from there"
        )


def _bounded_so_far(table: DeltaTable) -> set[str]:
    """The columns of which all files of ``table`` state the least and the greatest value."""
    configuration = table.metadata().configuration
    own_schema = pa.schema(table.schema().to_arrow())
    if _BOUNDED_PROPERTY in configuration:
        return {*(configuration[_BOUNDED_PROPERTY] or "").split(",")} & {*own_schema.names}
    most = int(configuration.get(_NUMBER_BOUNDED_PROPERTY) or _BOUNDED_BY_DEFAULT)
    ends = accumulate(_count_leaves(field.type) for field in own_schema)
    return {name for name, end in zip(own_schema.names, ends, strict=True) if most < 0 or end <= most}


def _count_leaves(kind: pa.DataType) -> int:
    """How many columns of Parquet a column is."""
    return sum(_count_leaves(kind.field(place).type) for place in range(kind.num_fields)) or 1


def _from_source(names: Iterable[str]) -> dict[str, str]:
    return {sql_identifier(name): f"s.{sql_identifier(name)}" for name in names}


# --- the snapshot as a number -----------------------------------------------------------------------------------------


def _commit_properties(new_state: sink_ports.SinkState) -> CommitProperties:
    """What the commit says: our snapshot. It is tried once."""
    version = _NO_SNAPSHOT if new_state.snapshot is None else _version_of(new_state.snapshot)
    return CommitProperties(
        app_transactions=[Transaction(_SNAPSHOT_PROPERTY, version)],
        custom_metadata={_SNAPSHOT_PROPERTY: new_state.snapshot or "", "headrace.pipeline": new_state.pipeline},
        # a commit that is tried again would go out from what it has not looked at
        max_commit_retries=0,
    )


def _version_of(snapshot: str) -> int:
    """An id of 64 bits as the signed number that transactions have."""
    return int.from_bytes(bytes.fromhex(snapshot), "big", signed=True)


def _id_of(version: int) -> str:
    return version.to_bytes(8, "big", signed=True).hex()


# --- rows -------------------------------------------------------------------------------------------------------------


class _Stream:
    """Batches on their way into Delta, which asks for them by Arrow's C interface: an error would lose its type there,
    so it is kept. ``number``: how many rows were written, which are not those that go.
    """

    def __init__(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        self.number = 0
        self._error: BaseException | None = None
        self._batches = batches
        self.reader = pa.RecordBatchReader.from_batches(schema, self._count_rows())

    def _count_rows(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._batches:
                number_gone = batch.column(_GONE_COLUMN).true_count if _GONE_COLUMN in batch.schema.names else 0
                self.number += batch.num_rows - number_gone
                yield batch
        except BaseException as error:
            self._error = error
            raise

    @contextmanager
    def reraise_error(self) -> Iterator[None]:
        """Inside, what stops the stream is raised as it was."""
        try:
            yield
        except BaseException:
            if self._error is not None:
                raise self._error from None
            raise


def _pad_batches(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, columns: Mapping[str, ValueType]
) -> Iterator[pa.RecordBatch]:
    """All rows, with NULL in columns of others."""
    own = schema_of(columns)
    for batch in batches:
        yield _pad_batch(named_as(batch, own), schema)


def _flagged_rows(changes: sink_ports.Changes, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows that go, of which only the identity is there, and those that come."""
    flag = pa.field(_GONE_COLUMN, pa.bool_())
    identity = pa.schema([schema.field(name) for name in changes.identity])
    for batch in changes.removed():
        yield _pad_batch(named_as(batch, identity), schema).append_column(flag, pa.repeat(True, batch.num_rows))
    for batch in changes.rows():
        yield named_as(batch, schema).append_column(flag, pa.repeat(False, batch.num_rows))


def _pad_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    arrays = [
        batch.column(field.name) if field.name in batch.schema.names else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
