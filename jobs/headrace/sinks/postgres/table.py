"""A table of PostgreSQL that holds ``current``: a change deletes rows and writes others over those that are there."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from psycopg import sql
from psycopg.errors import ProgramLimitExceeded

from headrace.ext.sinks import (
    AppliedCounts,
    Changes,
    ChangeSource,
    OpenSink,
    SinkRefusedError,
    SinkState,
    UndeliverableError,
)
from headrace.model.expressions.data_types import ValueType
from headrace.sinks.postgres.rows import INDEX_BYTES, long_key
from headrace.sinks.postgres.session import writing
from headrace.sinks.postgres.target import PostgresTarget, names_of


class PostgresTable(PostgresTarget, OpenSink):
    """A table of rows."""

    def apply(self, changes: Changes, before: SinkState | None, after: SinkState) -> AppliedCounts:
        with self._long_keys(changes), writing(self._connection):
            self._lock(before)
            if changes.source is ChangeSource.ALL_ROWS:
                applied = self._fill(changes, before, after)
            else:
                assert before is not None  # it holds the rows that change
                self._check_as_seen(before)
                self._identify_to_replicas()
                applied = self._change(changes)
            self._store(after)
            return applied

    @contextmanager
    def _long_keys(self, changes: Changes) -> Iterator[None]:
        """Inside, a key that is too long for the index is named."""
        try:
            yield
        except ProgramLimitExceeded as error:
            key = long_key(changes.rows(), {name: changes.columns[name] for name in changes.identity})
            if key is None:
                raise
            raise UndeliverableError(
                f"table {self._name} of {self._place}: {key.describe()}, and PostgreSQL has no place for more than "
                f"{INDEX_BYTES:,} in an entry of an index, once it has compressed each column "
                f"({error.diag.message_primary}). {key.rows:,} rows that are to be delivered have keys as long, before "
                "that. Nothing was delivered to this sink, and nothing will be, until one of these is done: deliver to "
                "a table of changes, which has no such index (changes=True, and another name); leave such records out "
                "by a filter, or make the key shorter, and backfill"
            ) from None

    def _fill(self, changes: Changes, before: SinkState | None, after: SinkState) -> AppliedCounts:
        """All rows again, in a table that has the columns."""
        if before is None or self._identity() is None:
            self._create(changes)
            written = self._copy(self._table, changes.rows, changes.columns)
            self._index_by(changes.identity)  # sorted once; in a table that others read, it would lock them out
            return AppliedCounts(0, written)
        self._check_own(before)
        self._identify_to_replicas()
        stay = {name: kind for name, kind in changes.columns.items() if before.columns.get(name) == after.columns[name]}
        staged = self._stage(stay)
        self._check_columns(staged)
        self._execute("drop table {staged}", staged=staged)
        removed = self._execute("delete from {table}").rowcount
        if before.columns != after.columns or (changes.identity and self._indexed() != {*changes.identity}):
            self._alter(before.columns, after.columns, changes)
        written = self._copy(self._table, changes.rows, changes.columns) if changes.columns else 0
        return AppliedCounts(removed, written)

    def _check_own(self, before: SinkState) -> None:
        """Raise SinkRefusedError if another table has the name than the one that ``before`` was delivered to: one that
        a dump of ours was restored into has our index.
        """
        now = self._identity()
        is_another = None not in (now, before.identity) and str(now).split("/")[0] != str(before.identity).split("/")[0]
        if is_another and not self._indexed():
            raise SinkRefusedError(
                f"table {self._name} of {self._place} is another one than was delivered to, and no delivery made it: "
                "drop it, and the next delivery makes it again; or name another table. Headrace writes only tables "
                "that it made"
            )

    def _create(self, changes: Changes) -> None:
        self._check_absent()
        # a row that is written over has room beside it, and its index stays as it is: half the time of an upsert
        self._execute(
            "create table {table} ({columns}) with (fillfactor = 80)",
            columns=sql.SQL(", ").join(self._declared(name, kind) for name, kind in changes.columns.items()),
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

    def _alter(self, held: Mapping[str, str], wanted: Mapping[str, str], changes: Changes) -> None:
        """The columns of ``changes`` in place of those that are ``held``, in a table without rows. Those that somebody
        else added stay.
        """
        self._execute("drop index if exists {index}", index=sql.Identifier(*self._schema, self._index_name))
        for name in held:
            if wanted.get(name) != held[name]:
                self._execute("alter table {table} drop column {column}", column=sql.Identifier(name))
        for name, kind in changes.columns.items():
            if held.get(name) != wanted[name]:
                self._execute("alter table {table} add column {column}", column=self._declared(name, kind))
        self._index_by(changes.identity)

    def _change(self, changes: Changes) -> AppliedCounts:
        staged = self._stage(changes.columns)
        self._check_columns(staged)
        self._copy(staged, changes.removed, {name: changes.columns[name] for name in changes.identity})
        removed = self._delete(staged, changes.identity)
        self._execute("truncate {staged}", staged=staged)
        written = self._copy(staged, changes.rows, changes.columns)
        others = [name for name in changes.columns if name not in changes.identity]
        # which unnamed rows meet is for the unique index to say, in which NULL is a value
        sets = sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in others)
        self._execute(
            "insert into {table} ({names}) select {names} from {staged} on conflict ({identity}) do {update}",
            names=names_of(changes.columns),
            staged=staged,
            identity=names_of(changes.identity),
            update=sql.SQL("update set {}").format(sets) if others else sql.SQL("nothing"),
        )
        self._execute("drop table {staged}", staged=staged)
        return AppliedCounts(removed, written)

    def _stage(self, columns: Mapping[str, ValueType]) -> sql.Identifier:
        """A table of this session, which has ``columns``."""
        name = sql.Identifier("headrace_staged")
        self._execute(
            "create temporary table {staged} ({columns})",
            staged=name,
            columns=sql.SQL(", ").join(self._declared(column, kind) for column, kind in columns.items()),
        )
        return name

    def _delete(self, staged: sql.Identifier, identity: Sequence[str]) -> int:
        """Remove the staged rows. Where a column is NULL is said in the condition, so that the index serves each."""
        removed = 0
        for nulls in self._nulls(staged, identity):
            same = sql.SQL(" and ").join(
                sql.SQL("t.{0} is null and s.{0} is null" if name in nulls else "t.{0} = s.{0}").format(
                    sql.Identifier(name)
                )
                for name in identity
            )
            removed += self._execute(
                "delete from {table} t using {staged} s where {same}", staged=staged, same=same
            ).rowcount
        return removed

    def _nulls(self, staged: sql.Identifier, identity: Sequence[str]) -> Iterable[frozenset[str]]:
        """Which columns are NULL together in some staged row."""
        flags = sql.SQL(", ").join(sql.SQL("{} is null").format(sql.Identifier(name)) for name in identity)
        rows = self._execute("select distinct {flags} from {staged}", flags=flags, staged=staged).fetchall()
        return [frozenset(name for name, is_null in zip(identity, row, strict=True) if is_null) for row in rows]

    def _index_by(self, identity: Sequence[str]) -> None:
        self._execute(
            "create unique index {index} on {table} ({identity}) nulls not distinct",
            index=sql.Identifier(self._index_name),
            identity=names_of(identity),
        )

    def _indexed(self) -> set[str]:
        """The columns of the unique index."""
        rows = self._execute(
            "select attname from pg_index join pg_attribute on attrelid = indrelid and attnum = any (indkey) "
            "where indexrelid = to_regclass(%s)",
            (sql.Identifier(*self._schema, self._index_name).as_string(self._connection),),
        ).fetchall()
        return {name for (name,) in rows}
