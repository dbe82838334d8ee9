"""A table of PostgreSQL that gets what happened to ``current``, and nothing else: each change is a row, which stays.

Deliveries take turns, so numbers become visible in their order: who has read up to one reads on from there and misses
nothing.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from psycopg import sql

from headrace.ext.sinks import NUMBER, SIGN, ChangeRecords, OpenChangeLog, SinkRefusedError, SinkState, StoredRecords
from headrace.model.expressions.data_types import ValueType
from headrace.sinks.postgres.reading import rows_as_text
from headrace.sinks.postgres.rows import column_type
from headrace.sinks.postgres.session import writing
from headrace.sinks.postgres.target import PostgresTarget


class PostgresChanges(PostgresTarget, OpenChangeLog):
    """A table of changes."""

    def append(self, records: ChangeRecords, before: SinkState | None, after: SinkState) -> None:
        with writing(self._connection):
            self._lock(before)
            if before is None or self._identity() is None:
                self._create(records)
            else:
                if not records.restarts:
                    self._check_as_seen(before)
                self._widen(before, after, records)
            self._copy(self._table, records.batches, records.columns)
            self._store(after)

    @contextmanager
    def records(self, columns: Mapping[str, ValueType]) -> Iterator[StoredRecords]:
        with rows_as_text(self._connection, self._name, [NUMBER, SIGN, *columns]) as rows:
            yield StoredRecords(rows)

    def _create(self, records: ChangeRecords) -> None:
        self._check_absent()
        self._execute(
            "create table {table} ({columns}, primary key ({number}))",
            columns=sql.SQL(", ").join(self._declared(name, kind) for name, kind in records.columns.items()),
            number=sql.Identifier(NUMBER),
        )

    def _widen(self, before: SinkState, after: SinkState, records: ChangeRecords) -> None:
        """Add the columns that are new. Those of older changes stay."""
        if before.columns == after.columns:
            return
        there = dict(
            self._execute(
                "select attname, format_type(atttypid, atttypmod) from pg_attribute where attrelid = %s::regclass "
                "and attnum > 0 and not attisdropped",
                (self._table.as_string(self._connection),),
            ).fetchall()
        )
        for name, kind in records.columns.items():
            if name not in there:
                self._execute("alter table {table} add column {column}", column=self._declared(name, kind))
            elif there[name].replace(" ", "") != column_type(name, kind).replace(" ", ""):
                raise SinkRefusedError(
                    f"column {name!r} of table {self._name} of {self._place} has type {there[name]}, and changes "
                    f"from now on have {column_type(name, kind)}: those that are there stay as they are: name another "
                    "table, or give the column another name"
                )
