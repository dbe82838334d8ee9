"""Tables of PostgreSQL as sinks: one that holds rows, one that holds what happened, and how both are read.

Rows of any table are read as text: COPY gives CSV, and Arrow reads it as it comes (``rows_as_text``).
"""

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from psycopg import sql
from psycopg.errors import ProgramLimitExceeded
from pyarrow import csv

from headrace.connectors.postgres import target
from headrace.ext import sinks as sink_ports
from headrace.model.expressions.data_types import ValueType
from headrace.sinks.failures import check_columns

if TYPE_CHECKING:
    import psycopg


_BLOCK_BYTES: Final = 2**24
"""A row is no longer than that."""


class _CopyText(io.RawIOBase):
    """What COPY gives, as a file."""

    def __init__(self, copy: "psycopg.Copy") -> None:
        self._copy, self._left = copy, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview") -> int:  # type: ignore[override] # what io gives is one
        if not self._left:
            self._left = memoryview(self._copy.read())
        number = min(len(buffer), len(self._left))
        buffer[:number] = self._left[:number]
        self._left = self._left[number:]
        return number


@contextmanager
def rows_as_text(server: "psycopg.Connection", table: str, columns: Sequence[str]) -> Iterator[pa.RecordBatchReader]:
    """``columns`` of a ``table`` as PostgreSQL writes them, times in UTC. Raises SinkRefusedError."""
    with target.read_transaction(server):
        table_name = sql.Identifier(*table.split(".", 1))
        description = server.execute(sql.SQL("select * from {} limit 0").format(table_name)).description or ()
        check_columns(table, columns, [column.name for column in description])
        texts = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(name)) for name in columns)
        query = sql.SQL("copy (select {} from {}) to stdout (format csv)").format(texts, table_name)
        names = [*columns]
        with server.cursor() as cursor, cursor.copy(query) as copy:
            text = io.BufferedReader(_CopyText(copy))
            if not text.peek(1):  # Arrow takes no table without a row
                yield pa.RecordBatchReader.from_batches(pa.schema([(name, pa.string()) for name in names]), iter(()))
                return
            yield csv.open_csv(
                text,
                csv.ReadOptions(column_names=names, use_threads=False, block_size=_BLOCK_BYTES),
                csv.ParseOptions(newlines_in_values=True),
                csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )


class PostgresTable(target.PostgresTarget, sink_ports.OpenSink):
    """A table of rows, which holds ``current``: a change deletes rows and writes others over those that are there."""

    def apply(
        self, changes: sink_ports.Changes, before: sink_ports.SinkState | None, after: sink_ports.SinkState
    ) -> sink_ports.AppliedCounts:
        with self._long_keys(changes), target.write_transaction(self._connection):
            self._lock_table(before)
            if changes.source is sink_ports.ChangeSource.ALL_ROWS:
                counts = self._refill_table(changes, before, after)
            else:
                assert before is not None  # it holds the rows that change
                self._check_as_seen(before)
                self._identify_to_replicas()
                counts = self._change_rows(changes)
            self._store_state(after)
            return counts

    @contextmanager
    def _long_keys(self, changes: sink_ports.Changes) -> Iterator[None]:
        """Inside, a key that is too long for the index is named."""
        try:
            yield
        except ProgramLimitExceeded as error:
            key = target.long_key(changes.rows(), {name: changes.columns[name] for name in changes.identity})
            if key is None:
                raise
            raise sink_ports.UndeliverableError(
                f"table {self._name} of {self._place}: {key.describe()}. PostgreSQL has no place for more than "
                f"{target.INDEX_BYTES:,} in an entry of an index, once it has compressed each column "
                f"({error.diag.message_primary}). {key.rows:,} rows that are to be delivered have keys as long, before "
                "that. Nothing was delivered to this sink, and nothing will be, until one of these is done. Deliver to "
                "a table of changes, which has no such index (changes=True, and another name); leave such records out "
                "by a filter, or make the key shorter, and backfill"
            ) from None

    def _refill_table(
        self, changes: sink_ports.Changes, old_state: sink_ports.SinkState | None, new_state: sink_ports.SinkState
    ) -> sink_ports.AppliedCounts:
        """All rows again, in a table that has the columns."""
        if old_state is None or self._table_identity() is None:
            self._create_table(changes)
            number_written = self._copy(self._table, changes.rows, changes.columns)
            self._index_by(changes.identity)  # sorted once; in a table that others read, it would lock them out
            return sink_ports.AppliedCounts(0, number_written)
        self._check_own(old_state)
        self._identify_to_replicas()
        stay = {
            name: kind
            for name, kind in changes.columns.items()
            if old_state.columns.get(name) == new_state.columns[name]
        }
        staging_table = self._create_staging_table(stay)
        self._check_columns(staging_table, changes.identity)
        self._execute("drop table {staged}", staged=staging_table)
        # not truncate, which locks readers out, and would look as if somebody else had emptied the table
        number_removed = self._execute("delete from {table}").rowcount
        if self._has_own_code():
            self._check_gone("select count(*) from {table}")
        if old_state.columns != new_state.columns or (
            changes.identity and self._indexed_columns() != {*changes.identity}
        ):
            self._alter_columns(old_state.columns, new_state.columns, changes)
        number_written = self._copy(self._table, changes.rows, changes.columns) if changes.columns else 0
        return sink_ports.AppliedCounts(number_removed, number_written)

    def _check_own(self, old_state: sink_ports.SinkState) -> None:
        """Raise SinkRefusedError if the table is not the one that ``old_state`` was delivered to. A table restored from
        a dump of ours has our index, and is accepted.
        """
        now = self._table_identity()
        is_another = (
            None not in (now, old_state.identity) and str(now).split("/")[0] != str(old_state.identity).split("/")[0]
        )
        if is_another and not self._indexed_columns():
            raise sink_ports.SinkRefusedError(
                f"table {self._name} of {self._place} is another one than was delivered to, and no delivery made it: "
                "drop it, and the next delivery makes it again; or name another table. Headrace writes only tables "
                "that it made"
            )

    def _create_table(self, changes: sink_ports.Changes) -> None:
        self._check_absent()
        # a row that is written over has room beside it, and its index stays as it is: half the time of an upsert
        self._execute(
            "create table {table} ({columns}) with (fillfactor = 80)",
            columns=sql.SQL(", ").join(self._column_declaration(name, kind) for name, kind in changes.columns.items()),
        )
        self._execute("alter table {table} replica identity full")

    def _identify_to_replicas(self) -> None:
        """Let rows be changed that a publication sends on (``for all tables``): there is no primary key, since windows
        may be NULL. Tables that an older version made do not say so, and what others have said stays.
        """
        query = (
            "select from pg_class where oid = to_regclass(%s) and relreplident = 'd' and exists (select from "
            "pg_publication) and not exists (select from pg_index where indrelid = pg_class.oid and indisprimary)"
        )
        if self._execute(query, (self._table.as_string(self._connection),)).fetchone() is not None:
            self._execute("alter table {table} replica identity full")

    def _alter_columns(
        self, held_columns: Mapping[str, str], wanted_columns: Mapping[str, str], changes: sink_ports.Changes
    ) -> None:
        """The columns of ``changes`` in place of ``held_columns``, in a table without rows. Columns that somebody else
        added stay.
        """
        self._execute("drop index if exists {index}", index=self._index)
        for name in held_columns:
            if wanted_columns.get(name) != held_columns[name]:
                self._execute("alter table {table} drop column {column}", column=sql.Identifier(name))
        for name, kind in changes.columns.items():
            if held_columns.get(name) != wanted_columns[name]:
                self._execute("alter table {table} add column {column}", column=self._column_declaration(name, kind))
        self._index_by(changes.identity)

    def _change_rows(self, changes: sink_ports.Changes) -> sink_ports.AppliedCounts:
        staging_table = self._create_staging_table(changes.columns)
        self._check_columns(staging_table, changes.identity)
        self._copy(staging_table, changes.removed, {name: changes.columns[name] for name in changes.identity})
        number_removed = self._delete(staging_table, changes.identity)
        self._execute("truncate {staged}", staged=staging_table)
        number_written = self._copy(staging_table, changes.rows, changes.columns)
        others = [name for name in changes.columns if name not in changes.identity]
        # which unnamed rows meet is for the unique index to say, in which NULL is a value
        sets = sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in others)
        number_taken = self._execute(
            "insert into {table} ({names}) select {names} from {staged} on conflict ({identity}) do {update}",
            names=target.names_of(changes.columns),
            staged=staging_table,
            identity=target.names_of(changes.identity),
            update=sql.SQL("update set {}").format(sets) if others else sql.SQL("nothing"),
        ).rowcount
        # rows that are there already may count for nothing, as with PostgreSQL's suppress_redundant_updates_trigger
        if others and number_taken != number_written and self._lacks_rows(staging_table, changes.columns):
            self._check_taken(number_taken, number_written)
        self._execute("drop table {staged}", staged=staging_table)
        return sink_ports.AppliedCounts(number_removed, number_written)

    def _create_staging_table(self, columns: Mapping[str, ValueType]) -> sql.Identifier:
        """A table of this session, which has ``columns``."""
        name = sql.Identifier("headrace_staged")
        self._execute(
            "create temporary table {staged} ({columns})",
            staged=name,
            columns=sql.SQL(", ").join(self._column_declaration(column, kind) for column, kind in columns.items()),
        )
        return name

    def _delete(self, staging_table: sql.Identifier, identity: Sequence[str]) -> int:
        """Remove the staged rows. Where a column is NULL is said in the condition, so that the index serves each."""
        number_removed, has_own_code = 0, self._has_own_code()
        for nulls in self._null_patterns(staging_table, identity):
            same = sql.SQL(" and ").join(
                sql.SQL("t.{0} is null and s.{0} is null" if name in nulls else "t.{0} = s.{0}").format(
                    sql.Identifier(name)
                )
                for name in identity
            )
            number_removed += self._execute(
                "delete from {table} t using {staged} s where {same}", staged=staging_table, same=same
            ).rowcount
            if has_own_code:
                self._check_gone(
                    "select count(*) from {table} t, {staged} s where {same}", staged=staging_table, same=same
                )
        return number_removed

    def _lacks_rows(self, staging_table: sql.Identifier, columns: Iterable[str]) -> bool:
        """Whether the table has not all staged rows, as they are."""
        query = "select exists (select {names} from {staged} except select {names} from {table})"
        ((lacks,),) = self._execute(query, names=target.names_of(columns), staged=staging_table).fetchall()
        return bool(lacks)

    def _has_own_code(self) -> bool:
        """Whether the table has, or once had, a trigger or a rule."""
        query = "select from pg_class where oid = to_regclass(%s) and (relhastriggers or relhasrules)"
        return self._execute(query, (self._table.as_string(self._connection),)).fetchone() is not None

    def _check_gone(self, count_query: str, **parts: sql.Composable) -> None:
        """Raise SinkRefusedError if rows are still there that were deleted."""
        ((number,),) = self._execute(count_query, (), **parts).fetchall()
        if number:
            raise sink_ports.SinkRefusedError(
                f"table {self._name} of {self._place} has a trigger or a rule that kept {number:,} rows from being "
                "deleted. Nothing was delivered: drop it, or let it delete every row"
            )

    def _null_patterns(self, staging_table: sql.Identifier, identity: Sequence[str]) -> Iterable[frozenset[str]]:
        """Which columns are NULL together in some staged row."""
        flags = sql.SQL(", ").join(sql.SQL("{} is null").format(sql.Identifier(name)) for name in identity)
        rows = self._execute("select distinct {flags} from {staged}", flags=flags, staged=staging_table).fetchall()
        return [frozenset(name for name, is_null in zip(identity, row, strict=True) if is_null) for row in rows]

    def _index_by(self, identity: Sequence[str]) -> None:
        query = "select indrelid::regclass::text from pg_index where indexrelid = to_regclass(%s)"
        for (other,) in self._execute(query, (self._index.as_string(self._connection),)).fetchall():
            raise sink_ports.SinkRefusedError(
                f"the index of table {self._name} of {self._place} is at table {other}, which seems to be the same "
                f"under a new name. Nothing was delivered: drop {other}, or give its index {self._index_name} another "
                "name, and the next delivery makes the table again"
            )
        self._execute(
            "create unique index {index} on {table} ({identity}) nulls not distinct",
            index=sql.Identifier(self._index_name),
            identity=target.names_of(identity),
        )

    def _indexed_columns(self) -> set[str]:
        """The columns of the unique index, if it is at this table."""
        rows = self._execute(
            "select attname from pg_index join pg_attribute on attrelid = indrelid and attnum = any (indkey) "
            "where indexrelid = to_regclass(%s) and indrelid = to_regclass(%s)",
            tuple(name.as_string(self._connection) for name in (self._index, self._table)),
        ).fetchall()
        return {name for (name,) in rows}


class PostgresChanges(target.PostgresTarget, sink_ports.OpenChangeLog):
    """A table of changes, which gets what happened to ``current``, and nothing else: each change is a row, which stays.

    Deliveries take turns, so numbers become visible in their order: a reader that has read up to one reads on from
    there and misses nothing.
    """

    def append(
        self, records: sink_ports.ChangeRecords, before: sink_ports.SinkState | None, after: sink_ports.SinkState
    ) -> None:
        with target.write_transaction(self._connection):
            self._lock_table(before)
            if before is None or self._table_identity() is None:
                self._create_table(records)
            else:
                if not records.restarts:
                    self._check_as_seen(before)
                self._widen_table(before, after, records)
            # a trigger may be what reads the changes, and keeps them nowhere
            self._copy(self._table, records.batches, records.columns, takes_all=False)
            self._store_state(after)

    @contextmanager
    def records(self, columns: Mapping[str, ValueType]) -> Iterator[sink_ports.StoredRecords]:
        with rows_as_text(self._connection, self._name, [sink_ports.NUMBER, sink_ports.SIGN, *columns]) as rows:
            yield sink_ports.StoredRecords(rows)

    def _create_table(self, records: sink_ports.ChangeRecords) -> None:
        self._check_absent()
        self._execute(
            "create table {table} ({columns}, primary key ({number}))",
            columns=sql.SQL(", ").join(self._column_declaration(name, kind) for name, kind in records.columns.items()),
            number=sql.Identifier(sink_ports.NUMBER),
        )

    def _widen_table(
        self, old_state: sink_ports.SinkState, new_state: sink_ports.SinkState, records: sink_ports.ChangeRecords
    ) -> None:
        """Add the columns that are new. Columns of older changes stay."""
        if old_state.columns == new_state.columns:
            return
        table_types = dict(
            self._execute(
                "select attname, format_type(atttypid, atttypmod) from pg_attribute where attrelid = %s::regclass "
                "and attnum > 0 and not attisdropped",
                (self._table.as_string(self._connection),),
            ).fetchall()
        )
        for name, kind in records.columns.items():
            if name not in table_types:
                self._execute("alter table {table} add column {column}", column=self._column_declaration(name, kind))
            elif table_types[name].replace(" ", "") != target.column_type(kind).replace(" ", ""):
                raise sink_ports.SinkRefusedError(
                    f"column {name!r} of table {self._name} of {self._place} has type {table_types[name]}, and changes "
                    f"from now on have {target.column_type(kind)}. Those that are there stay as they are: name "
                    "another table, or give the column another name"
                )
