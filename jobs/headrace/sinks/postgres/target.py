"""What a table of PostgreSQL and a table of changes have in common: a row beside them that says what each holds.

One transaction takes a change: it locks that row and compares it, changes the table, and writes that row again. So
readers see one published state or the next, two deliveries take turns, and one that went out from another snapshot than
the table holds changes nothing.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from psycopg import sql
from psycopg.errors import CharacterNotInRepertoire, UndefinedTable, UntranslatableCharacter

from headrace.ext.sinks import (
    Intervention,
    OpenTarget,
    SinkMovedError,
    SinkRefusedError,
    SinkState,
    UndeliverableError,
)
from headrace.model.expressions.data_types import ValueType
from headrace.sinks.postgres.encodings import ServerEncoding
from headrace.sinks.postgres.rows import column_type, csv_of
from headrace.sinks.postgres.session import writing

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa

_DELIVERIES: Final = "headrace_deliveries"
"""The table of what each table holds, in the same schema."""

_HELD: Final = ("root", "pipeline", "output", "snapshot", "columns", "number", "identity")
_ADDED: Final = {"number": "bigint", "identity": "text"}
"""Columns of the table of deliveries that one of an older version lacks."""


class PostgresTarget(OpenTarget):
    """A table, named with its schema or without."""

    def __init__(self, connection: "psycopg.Connection", table: str, place: str) -> None:
        self._connection, self._name, self._place = connection, table, place
        schema, _, own = table.rpartition(".")
        self._schema = [schema] if schema else []
        self._table = sql.Identifier(*self._schema, own)
        # one name in a schema: those of tables may be as long as a name can be
        self._index_name = f"headrace_{hashlib.sha256(own.encode()).hexdigest()[:16]}"
        self._deliveries = sql.Identifier(*self._schema, _DELIVERIES)
        self._own_name = own
        self._encoding = ServerEncoding(connection)

    def held(self) -> SinkState | None:
        with writing(self._connection):
            try:
                with self._connection.transaction():
                    return self._held()
            except UndefinedTable:
                return None

    def intervention(self, held: SinkState) -> Intervention | None:
        """Rows that others have changed one by one cannot be seen."""
        with writing(self._connection):
            return self._intervention(held)

    # --- which snapshot it holds --------------------------------------------------------------------------------------

    def _held(self, *, lock: bool = False) -> SinkState | None:
        # not by name: who made the table with an older version has no column for the number
        query = f"select to_jsonb(d) from {{deliveries}} d where table_name = %s{' for update' if lock else ''}"
        row = self._execute(query, (self._own_name,)).fetchone()
        # a row without columns is one that another delivery has begun, and has not come to an end
        if row is None or row[0]["columns"] is None:
            return None
        return SinkState(**{name: row[0].get(name) for name in _HELD}, at=row[0].get("delivered_at"))

    def _identity(self) -> str | None:
        """The table (oid) and where its rows are (relfilenode); None if it is not there. Partitions come and go."""
        query = (
            "select oid || case when relkind = 'p' then '' else '/' || pg_relation_filenode(oid) end "
            "from pg_class where oid = to_regclass(%s)"
        )
        row = self._execute(query, (self._table.as_string(self._connection),)).fetchone()
        return None if row is None else str(row[0])

    def _intervention(self, held: SinkState) -> Intervention | None:
        now = self._identity()
        if now is None:
            return Intervention("was dropped")
        if held.identity is None or now == held.identity:
            return None
        if now.split("/")[0] != held.identity.split("/")[0]:
            return Intervention("was made again")
        return Intervention("was emptied, or rewritten as a whole (truncate, vacuum full, cluster)")

    def _check_as_seen(self, before: SinkState) -> None:
        """Raise SinkMovedError if somebody else has done something to the table since that was looked at; from here on
        nobody does, until the transaction ends.
        """
        if self._identity() is not None:
            self._execute("lock table {table} in row exclusive mode")
        if (others := self._intervention(before)) is not None:
            raise SinkMovedError(
                f"table {self._name} of {self._place} {others.words} while it was delivered to. Nothing was changed; "
                "the next delivery fills it again"
            )

    def _add_columns(self) -> None:
        """Columns that the table of deliveries lacks, if an older version made it. Where it has them, the statement
        would wait for other deliveries.
        """
        there = "select attname from pg_attribute where attrelid = to_regclass(%s) and attnum > 0 and not attisdropped"
        names = [name for (name,) in self._execute(there, (self._deliveries.as_string(self._connection),)).fetchall()]
        for name, kind in _ADDED.items():
            if names and name not in names:
                statement = f"alter table {{deliveries}} add column if not exists {name} {kind}"
                self._execute(statement)

    def _lock(self, before: SinkState | None) -> None:
        """Let no other delivery into this table until the transaction ends. Raises SinkMovedError."""
        self._add_columns()
        if before is None:
            self._execute("select pg_advisory_xact_lock(hashtext(%s))", (_DELIVERIES,))  # two may create it at once
            self._execute(
                "create table if not exists {deliveries} (table_name text primary key, root text, pipeline text, "
                "output text, snapshot text, columns json, delivered_at timestamp with time zone, number bigint, "
                "identity text)"
            )
            self._execute("insert into {deliveries} (table_name) values (%s) on conflict do nothing", (self._own_name,))
        now = self._held(lock=True)
        if now != before:
            holds = "nothing" if now is None else f"snapshot {now.snapshot} of {now.pipeline}"
            raise SinkMovedError(
                f"table {self._name} of {self._place} holds {holds}, and did not when this delivery began: another one "
                "came between. Nothing was changed; the next delivery continues from there"
            )

    def _store(self, after: SinkState) -> None:
        """Write what the table holds from now on."""
        self._execute(
            "update {deliveries} set root = %s, pipeline = %s, output = %s, snapshot = %s, columns = %s, "
            "delivered_at = now(), number = %s, identity = %s where table_name = %s",
            (*after.owner, after.snapshot, json.dumps(after.columns), after.number, self._identity(), self._own_name),
        )

    # --- rows ---------------------------------------------------------------------------------------------------------

    def _check_absent(self) -> None:
        exists = self._execute("select to_regclass(%s)", (self._table.as_string(self._connection),)).fetchone()
        if exists != (None,):
            raise SinkRefusedError(
                f"table {self._name} of {self._place} is there already, and no delivery made it: name another table, "
                "or drop this one. Headrace writes only tables that it made"
            )

    def _check_columns(self, like: sql.Identifier) -> None:
        """Raise SinkRefusedError if somebody has dropped columns that table ``like`` has, or given them other types."""
        changed = self._execute(
            "select wanted.attname, format_type(wanted.atttypid, wanted.atttypmod), "
            "format_type(has.atttypid, has.atttypmod) from pg_attribute wanted left join pg_attribute has "
            "on has.attrelid = to_regclass(%s) and has.attname = wanted.attname and not has.attisdropped "
            "where wanted.attrelid = to_regclass(%s) and wanted.attnum > 0 and "
            "(wanted.atttypid, wanted.atttypmod) is distinct from (has.atttypid, has.atttypmod) order by 1",
            tuple(name.as_string(self._connection) for name in (self._table, like)),
        ).fetchall()
        if changed:
            changes = ", ".join(
                f"{name} is gone" if has is None else f"{name} is {has}, and was {was}" for name, was, has in changed
            )
            raise SinkRefusedError(
                f"the columns of table {self._name} of {self._place} were changed: {changes}. Put them back; "
                f"or drop the table and its row in {_DELIVERIES}, and the next delivery makes it again"
            )

    def _copy(
        self,
        into: sql.Identifier,
        batches: "Callable[[], Iterator[pa.RecordBatch]]",
        columns: Mapping[str, ValueType],
    ) -> int:
        """Copy rows in, and count them. Raises UndeliverableError for a text that would not be what it is."""
        statement = sql.SQL("copy {} ({}) from stdin (format csv)").format(into, names_of(columns))
        number, characters = 0, set[str]()
        try:
            with self._connection.transaction(), self._connection.cursor() as cursor, cursor.copy(statement) as copy:
                for rows, text in csv_of(batches(), columns):
                    copy.write(text)
                    number += rows
                    if not self._encoding.is_whole:
                        characters.update(text.decode())
        except (CharacterNotInRepertoire, UntranslatableCharacter):
            self._check_texts(batches, columns)
            raise
        if not self._encoding.keeps("".join(sorted(characters))):
            self._check_texts(batches, columns)
        return number

    def _check_texts(self, batches: "Callable[[], Iterator[pa.RecordBatch]]", columns: Mapping[str, ValueType]) -> None:
        lost = self._encoding.first_lost(batches(), columns)
        if lost is not None:
            raise self._unheld(f"column {lost[0]!r}", lost[1])

    def _unheld(self, what: str, text: str) -> UndeliverableError:
        if "\x00" in text:
            return UndeliverableError(
                f"{what} has {text!r:.100}, and PostgreSQL holds no text with U+0000 (0x00). Nothing was delivered; "
                "take that character out of the records"
            )
        return UndeliverableError(
            f"{what} has {text!r:.100}, which {self._place} cannot hold: its encoding is {self._encoding.name}. "
            "Nothing was delivered; name a database whose encoding is UTF8"
        )

    def _declared(self, name: str, kind: ValueType) -> sql.Composable:
        if not self._encoding.keeps(name):
            raise self._unheld("the name of a column", name)
        return sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(column_type(name, kind)))

    def _execute(
        self, statement: str, values: Sequence[object] = (), **parts: sql.Composable
    ) -> "psycopg.Cursor[tuple[Any, ...]]":
        named = {"table": self._table, "deliveries": self._deliveries, **parts}
        if values:  # a % in a name is no place for one
            named = {name: sql.SQL(part.as_string(self._connection).replace("%", "%%")) for name, part in named.items()}
        return self._connection.execute(sql.SQL(statement).format(**named), values or None)


def names_of(names: Iterable[str]) -> sql.Composable:
    return sql.SQL(", ").join(map(sql.Identifier, names))
