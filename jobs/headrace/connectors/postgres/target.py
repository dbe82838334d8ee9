"""What PostgreSQL's tables of rows and of changes have in common: sessions, types, rows, and what is at the target.

Values mean what we say in a session, whatever the environment, the role, the database and the server have set:
PGCLIENTENCODING, PGOPTIONS, ``alter role ... set``, ``alter database ... set``, postgresql.conf. What other people's
triggers may go by (search_path, TimeZone) is left as it is where we write.

A row beside a table says what the table holds (``PostgresTarget``). One transaction takes a change: it locks that row
and compares it, changes the table, and writes that row again. So readers see one published state or the next, and two
deliveries take turns. A delivery that went out from another snapshot than the table holds changes nothing.
"""

import hashlib
import io
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import psycopg
from psycopg import sql
from psycopg.errors import CharacterNotInRepertoire, UndefinedTable, UntranslatableCharacter

from headrace.connections import Connection
from headrace.ext.sinks import Intervention, OpenTarget, SinkMovedError, SinkRefusedError, SinkState, UndeliverableError
from headrace.model.expressions.data_types import DataType, ListType, ValueType, is_list_of_values
from headrace.read.views.database import sql_identifier, without_rows

if TYPE_CHECKING:
    import pyarrow as pa


_CONNECT_SECONDS: Final = 10

_WRITING: Final = (
    "set local array_nulls to on",  # else NULL in a list is a text
    "set local standard_conforming_strings to on",
    "set local datestyle to 'ISO, YMD'",
    "set local row_security to off",  # else rows that a policy hides are left out without a word
)
_READING: Final = (
    *_WRITING,
    "set local timezone to 'UTC'",
    "set local intervalstyle to 'postgres'",
    "set local extra_float_digits to 1",
    "set local bytea_output to 'hex'",
)


def connect(connection: Connection) -> psycopg.Connection:
    """A session whose texts are UTF-8 on the way, also if the environment or the connection says otherwise."""
    own: dict[str, Any] = {
        "connect_timeout": _CONNECT_SECONDS,
        "application_name": "headrace",
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
    }
    if connection.host:
        own["hostaddr"] = ""  # PGHOSTADDR would lead to another server than the one that is named
    server = psycopg.connect(
        host=connection.host or None,
        port=connection.port,
        user=connection.user or None,
        dbname=connection.database or None,
        password=connection.password or None,
        **{**own, **connection.options, "client_encoding": "utf8"},
    )
    # a delivery compares inside of its transaction what others have committed meanwhile
    server.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    return server


@contextmanager
def write_transaction(server: psycopg.Connection) -> Iterator[None]:
    """A transaction whose input means what it says."""
    with server.transaction():
        server.execute("; ".join(_WRITING).encode())
        yield


@contextmanager
def read_transaction(server: psycopg.Connection) -> Iterator[None]:
    """A transaction that sees one version of all rows, writes nothing, and whose values have one text."""
    with server.transaction():
        server.execute("set transaction isolation level repeatable read, read only")
        server.execute("; ".join(_READING).encode())
        yield


_LOSSLESS_ENCODINGS: Final = ("UTF8", "SQL_ASCII")
"""Encodings of databases that keep what they get as UTF-8: the second one keeps any bytes."""

_TEXTS_OF_A_QUERY: Final = 10_000


class ServerEncoding:
    """The encoding of the database that ``server`` is connected to, which is asked itself what it keeps.

    No database holds texts with U+0000. One that is not UTF-8 does not hold characters that its encoding lacks, or
    takes for others (EUC_JP has one wave for two).
    """

    def __init__(self, server: psycopg.Connection) -> None:
        self._server = server
        self.name = server.info.parameter_status("server_encoding") or ""
        self.is_whole = self.name in _LOSSLESS_ENCODINGS

    def can_encode(self, text: str) -> bool:
        """Whether ``text`` comes back as it is."""
        if self.is_whole or text.isascii():
            return "\x00" not in text
        octets = text.encode()
        query = "select convert_to(convert_from(%(octets)s, 'UTF8'), 'UTF8') = %(octets)s"
        try:
            with self._server.transaction():
                row = self._server.execute(query, {"octets": octets}).fetchone()
        except psycopg.DataError:
            return False
        return row == (True,)

    def first_lost(
        self, batches: "Iterator[pa.RecordBatch]", columns: Mapping[str, ValueType]
    ) -> tuple[str, str] | None:
        """The column and the text of a value that does not come back as it is; None if all do."""
        names = [name for name, kind in columns.items() if DataType.STRING in (kind, getattr(kind, "item", None))]
        for batch in batches:
            for name in names:
                texts = _distinct_texts(batch, name, columns[name])
                for start in range(0, len(texts), _TEXTS_OF_A_QUERY):
                    if (lost_text := self._find_lost_text(texts[start : start + _TEXTS_OF_A_QUERY])) is not None:
                        return name, lost_text
        return None

    def _find_lost_text(self, texts: Sequence[str]) -> str | None:
        """One of the ``texts`` that is not kept, found by halves."""
        if self.can_encode("\n".join(texts)):
            return None
        while len(texts) > 1:
            first, second = texts[: len(texts) // 2], texts[len(texts) // 2 :]
            texts = second if self.can_encode("\n".join(first)) else first
        return texts[0]


def _distinct_texts(batch: "pa.RecordBatch", name: str, kind: ValueType) -> list[str]:
    """The different texts of a column."""
    import pyarrow.compute as pc

    column = batch.column(name)
    flat = pc.list_flatten(column) if is_list_of_values(kind) else column
    return [text for text in flat.unique().to_pylist() if text is not None]


TYPES: Mapping[DataType, str] = {
    DataType.STRING: "text",
    DataType.INT: "bigint",
    DataType.FLOAT: "double precision",
    DataType.BOOL: "boolean",
    DataType.TIMESTAMP: "timestamp with time zone",
    DataType.DATE: "date",
    DataType.BYTES: "bytea",
    DataType.DECIMAL: "numeric(38, 9)",
}


INDEX_BYTES: Final = 2704
"""The longest entry of an index, once each of its columns is compressed."""


def column_type(kind: ValueType) -> str:
    """The type of a column in PostgreSQL: structs, maps, and lists of other than values are JSON there."""
    match kind:
        case ListType(DataType() as item):
            return f"{TYPES[item]}[]"
        case DataType():
            return TYPES[kind]
    return TYPES[DataType.STRING]


@dataclass(frozen=True)
class LongKey:
    """A key that is too long for an index: the bytes of each column of text or octets, and how it begins. ``rows`` have
    one as long, before anything is compressed.
    """

    lengths: Mapping[str, int]
    begins: str
    rows: int

    def describe(self) -> str:
        """Which columns, and how long they are."""
        parts = [(name, length) for name, length in self.lengths.items() if length]
        if len(parts) == 1:
            ((name, length),) = parts
            return f"column {name!r} has a key of {length:,} bytes ({self.begins})"
        columns = " and ".join(f"{name!r} ({length:,})" for name, length in parts)
        return f"columns {columns} have a key of {sum(self.lengths.values()):,} bytes together ({self.begins})"


def long_key(batches: "Iterator[pa.RecordBatch]", columns: Mapping[str, ValueType]) -> LongKey | None:
    """The key that stays longest in an index on ``columns``, each compressed by itself; None if none is too long."""
    import pyarrow as pa
    import pyarrow.compute as pc

    of_bytes = [name for name, kind in columns.items() if kind in (DataType.STRING, DataType.BYTES)]
    others = 8 + 16 * len(columns)  # what an entry has beside its bytes, or more
    rows, greatest = 0, 0
    longest: tuple[bytes | None, ...] | None = None
    for batch in batches:
        values = [batch.column(name).cast(pa.large_binary()) for name in of_bytes]
        total = sum((pc.fill_null(pc.binary_length(column), 0).to_numpy() for column in values), start=0)
        long_rows = np.flatnonzero(np.asarray(total) > INDEX_BYTES - others)
        rows += len(long_rows)
        for key in zip(*(column.take(pa.array(long_rows)).to_pylist() for column in values), strict=True):
            packed_size = sum(min(len(part), len(zlib.compress(part, 1))) for part in key if part is not None)
            if packed_size > greatest:
                longest, greatest = key, packed_size
    if longest is None:
        return None
    first = next(part for part in longest if part)
    lengths = {name: len(part or b"") for name, part in zip(of_bytes, longest, strict=True)}
    return LongKey(lengths, f"{first[:40].decode(errors='replace')!r}...", rows)


def csv_of(batches: "Iterator[pa.RecordBatch]", columns: Mapping[str, ValueType]) -> Iterator[tuple[int, bytes]]:
    """The rows of each batch as CSV that COPY reads, in the order of ``columns``, and how many these are. NULL is
    nothing, everything else is quoted; Python sees no row.
    """
    import pyarrow as pa
    from pyarrow import csv

    texts = ", ".join(
        f"{_text_expression(sql_identifier(name), kind)} as {sql_identifier(name)}" for name, kind in columns.items()
    )
    options = csv.WriteOptions(include_header=False, quoting_style="all_valid")
    with without_rows() as connection:
        for batch in batches:
            connection.register("batch", pa.table(_without_objects(batch, columns)))
            lines = connection.sql(f"select {texts} from batch").to_arrow_table()
            connection.unregister("batch")
            text = io.BytesIO()
            csv.write_csv(lines, text, options)
            yield batch.num_rows, text.getvalue()


def _without_objects(batch: "pa.RecordBatch", columns: Mapping[str, ValueType]) -> "dict[str, pa.Array]":
    """The columns of ``batch``; structs, maps, and lists of other than values as JSON."""
    from headrace.formats.fields import json_texts

    return {
        name: batch.column(name)
        if isinstance(kind, DataType) or is_list_of_values(kind)
        else json_texts(batch.column(name))
        for name, kind in columns.items()
    }


def _text_expression(column: str, kind: ValueType) -> str:
    """SQL of DuckDB: a column as PostgreSQL writes it."""
    match kind:
        case ListType(DataType() as item):
            value = f"replace(replace({_text_expression('item', item)}, '\\', '\\\\'), '\"', '\\\"')"
            items = f"list_transform({column}, lambda item: coalesce('\"' || {value} || '\"', 'NULL'))"
            return f"'{{' || array_to_string({items}, ',') || '}}'"
        case DataType.BYTES:
            return f"'\\x' || hex({column})"
        case DataType.TIMESTAMP:
            # microseconds since 1970, which neither era nor zone nor rounding can touch
            return f"strftime({column} at time zone 'UTC', '%Y-%m-%d %H:%M:%S.%f+00')"
    return f"cast({column} as varchar)"


_DELIVERIES: Final = "headrace_deliveries"
"""The table of what each table holds, in the same schema."""

_HELD_COLUMNS: Final = ("root", "pipeline", "output", "snapshot", "columns", "number", "identity")
_ADDED_COLUMNS: Final = {"number": "bigint", "identity": "text"}
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
        self._index = sql.Identifier(*self._schema, self._index_name)
        self._deliveries = sql.Identifier(*self._schema, _DELIVERIES)
        self._own_name = own
        self._encoding = ServerEncoding(connection)

    def held(self) -> SinkState | None:
        with write_transaction(self._connection):
            try:
                with self._connection.transaction():
                    return self._stored_state()
            except UndefinedTable:
                return None

    def intervention(self, held: SinkState) -> Intervention | None:
        """Rows that others have changed one by one cannot be seen."""
        with write_transaction(self._connection):
            return self._find_intervention(held)

    # --- which snapshot it holds --------------------------------------------------------------------------------------

    def _stored_state(self, *, lock: bool = False) -> SinkState | None:
        # not by name: who made the table with an older version has no column for the number
        query = f"select to_jsonb(d) from {{deliveries}} d where table_name = %s{' for update' if lock else ''}"
        row = self._execute(query, (self._own_name,)).fetchone()
        # a row without columns is one that another delivery has begun, and has not come to an end
        if row is None or row[0]["columns"] is None:
            return None
        return SinkState(**{name: row[0].get(name) for name in _HELD_COLUMNS}, at=row[0].get("delivered_at"))

    def _table_identity(self) -> str | None:
        """The table (oid) and where its rows are (relfilenode); None if it is not there. Partitions come and go."""
        query = (
            "select oid || case when relkind = 'p' then '' else '/' || pg_relation_filenode(oid) end "
            "from pg_class where oid = to_regclass(%s)"
        )
        row = self._execute(query, (self._table.as_string(self._connection),)).fetchone()
        return None if row is None else str(row[0])

    def _find_intervention(self, sink_state: SinkState) -> Intervention | None:
        now = self._table_identity()
        if now is None:
            return Intervention("was dropped")
        if sink_state.identity is None or now == sink_state.identity:
            return None
        if now.split("/")[0] != sink_state.identity.split("/")[0]:
            return Intervention("was made again")
        return Intervention("was emptied, or rewritten as a whole (truncate, vacuum full, cluster)")

    def _check_as_seen(self, old_state: SinkState) -> None:
        """Raise SinkMovedError if somebody else has done something to the table since that was looked at; from here on
        nobody does, until the transaction ends.
        """
        if self._table_identity() is not None:
            # it keeps those off who would truncate, rewrite or drop the table, and lets readers and writers of rows in
            self._execute("lock table {table} in row exclusive mode")
        if (others := self._find_intervention(old_state)) is not None:
            raise SinkMovedError(
                f"table {self._name} of {self._place} {others.words} while it was delivered to. Nothing was changed; "
                "the next delivery fills it again"
            )

    def _add_columns(self) -> None:
        """Columns that the table of deliveries lacks, if an older version made it. Where it has them, the statement
        would wait for other deliveries.
        """
        columns_query = (
            "select attname from pg_attribute where attrelid = to_regclass(%s) and attnum > 0 and not attisdropped"
        )
        names = [
            name for (name,) in self._execute(columns_query, (self._deliveries.as_string(self._connection),)).fetchall()
        ]
        for name, kind in _ADDED_COLUMNS.items():
            if names and name not in names:
                statement = f"alter table {{deliveries}} add column if not exists {name} {kind}"
                self._execute(statement)

    def _lock_table(self, old_state: SinkState | None) -> None:
        """Let no other delivery into this table until the transaction ends. Raises SinkMovedError."""
        self._add_columns()
        if old_state is None:
            self._execute("select pg_advisory_xact_lock(hashtext(%s))", (_DELIVERIES,))  # two may create it at once
            self._execute(
                "create table if not exists {deliveries} (table_name text primary key, root text, pipeline text, "
                "output text, snapshot text, columns json, delivered_at timestamp with time zone, number bigint, "
                "identity text)"
            )
            self._execute("insert into {deliveries} (table_name) values (%s) on conflict do nothing", (self._own_name,))
        now = self._stored_state(lock=True)
        if now != old_state:
            holds = "nothing" if now is None else f"snapshot {now.snapshot} of {now.pipeline}"
            raise SinkMovedError(
                f"table {self._name} of {self._place} holds {holds}, and did not when this delivery began: another one "
                "came between. Nothing was changed; the next delivery continues from there"
            )

    def _store_state(self, new_state: SinkState) -> None:
        """Write what the table holds from now on."""
        self._execute(
            "update {deliveries} set root = %s, pipeline = %s, output = %s, snapshot = %s, columns = %s, "
            "delivered_at = now(), number = %s, identity = %s where table_name = %s",
            (
                *new_state.owner,
                new_state.snapshot,
                json.dumps(new_state.columns),
                new_state.number,
                self._table_identity(),
                self._own_name,
            ),
        )

    # --- rows ---------------------------------------------------------------------------------------------------------

    def _check_absent(self) -> None:
        exists = self._execute("select to_regclass(%s)", (self._table.as_string(self._connection),)).fetchone()
        if exists != (None,):
            raise SinkRefusedError(
                f"table {self._name} of {self._place} is there already, and no delivery made it: name another table, "
                "or drop this one. Headrace writes only tables that it made"
            )

    def _check_columns(self, like: sql.Identifier, identity: Sequence[str]) -> None:
        """Raise SinkRefusedError if somebody has dropped columns that table ``like`` has, or given them other types. So
        it is with a collation of the ``identity`` by which different texts are equal: one key would take the place of
        another.
        """
        changed_columns = self._execute(
            "select wanted.attname, format_type(wanted.atttypid, wanted.atttypmod), "
            "format_type(has.atttypid, has.atttypmod) || coalesce(' collate ' || quote_ident(collname), '') "
            "from pg_attribute wanted left join pg_attribute has "
            "on has.attrelid = to_regclass(%s) and has.attname = wanted.attname and not has.attisdropped "
            "left join pg_collation on pg_collation.oid = has.attcollation and not collisdeterministic "
            "and wanted.attname = any (%s) "
            "where wanted.attrelid = to_regclass(%s) and wanted.attnum > 0 and (collname is not null or "
            "(wanted.atttypid, wanted.atttypmod) is distinct from (has.atttypid, has.atttypmod)) order by 1",
            (self._table.as_string(self._connection), [*identity], like.as_string(self._connection)),
        ).fetchall()
        if changed_columns:
            changes = ", ".join(
                f"{name} is gone" if has is None else f"{name} is {has}, and was {was}"
                for name, was, has in changed_columns
            )
            raise SinkRefusedError(
                f"the columns of table {self._name} of {self._place} were changed: {changes}. Put them back; "
                f"or drop the table and its row in {_DELIVERIES}, and the next delivery makes it again"
            )

    def _copy(
        self,
        target_table: sql.Identifier,
        batches: "Callable[[], Iterator[pa.RecordBatch]]",
        columns: Mapping[str, ValueType],
        *,
        takes_all: bool = True,
    ) -> int:
        """Copy rows in, and count them. Raises UndeliverableError for a text that would not be what it is, and
        SinkRefusedError if a table that ``takes_all`` has not.
        """
        statement = sql.SQL("copy {} ({}) from stdin (format csv)").format(target_table, names_of(columns))
        number, characters = 0, set[str]()
        try:
            with self._connection.transaction(), self._connection.cursor() as cursor:
                with cursor.copy(statement) as copy:
                    for rows, text in csv_of(batches(), columns):
                        copy.write(text)
                        number += rows
                        if not self._encoding.is_whole:
                            # every character once, for one question at the end in place of one for each batch
                            characters.update(text.decode())
                if takes_all:
                    self._check_taken(cursor.rowcount, number)
        except (CharacterNotInRepertoire, UntranslatableCharacter):
            self._check_texts(batches, columns)
            raise
        if not self._encoding.can_encode("".join(sorted(characters))):
            self._check_texts(batches, columns)
        return number

    def _check_taken(self, number_taken: int, number: int) -> None:
        """Raise SinkRefusedError if only ``number_taken`` rows of ``number`` are in the table."""
        if number_taken != number:
            raise SinkRefusedError(
                f"table {self._name} of {self._place} has a trigger or a rule that kept {number - number_taken:,} of "
                f"{number:,} rows out. Nothing was delivered: drop it, or let it take every row"
            )

    def _check_texts(self, batches: "Callable[[], Iterator[pa.RecordBatch]]", columns: Mapping[str, ValueType]) -> None:
        lost_value = self._encoding.first_lost(batches(), columns)
        if lost_value is not None:
            raise self._undeliverable_error(f"column {lost_value[0]!r}", lost_value[1])

    def _undeliverable_error(self, what: str, text: str) -> UndeliverableError:
        if "\x00" in text:
            return UndeliverableError(
                f"{what} has {text!r:.100}, and PostgreSQL holds no text with U+0000 (0x00). Nothing was delivered; "
                "take that character out of the records"
            )
        return UndeliverableError(
            f"{what} has {text!r:.100}, which {self._place} cannot hold: its encoding is {self._encoding.name}. "
            "Nothing was delivered; name a database whose encoding is UTF8"
        )

    def _column_declaration(self, name: str, kind: ValueType) -> sql.Composable:
        if not self._encoding.can_encode(name):
            raise self._undeliverable_error("the name of a column", name)
        return sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(column_type(kind)))

    def _execute(
        self, statement: str, values: Sequence[object] = (), **parts: sql.Composable
    ) -> "psycopg.Cursor[tuple[Any, ...]]":
        all_parts = {"table": self._table, "deliveries": self._deliveries, **parts}
        if values:  # a % in a name is no place for one
            all_parts = {
                name: sql.SQL(part.as_string(self._connection).replace("%", "%%")) for name, part in all_parts.items()
            }
        return self._connection.execute(sql.SQL(statement).format(**all_parts), values or None)


def names_of(names: Iterable[str]) -> sql.Composable:
    return sql.SQL(", ").join(map(sql.Identifier, names))
