"""Views that are read when their rows are asked for, and never whole unless one asks for that; rows of them shown."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, overload

from headrace.installed import require_extra, require_library
from headrace.model.arguments import Arguments, Suggesting, short_repr
from headrace.model.expressions.expr import Expr
from headrace.read.views import database
from headrace.read.views.columns import Folding
from headrace.read.views.conditions import QueryError, RowCondition, order_by
from headrace.read.views.sources import OutputFiles, RowSource
from headrace.this_process import Size
from headrace_snapshots.format.manifest import Manifest

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from headrace.distribute.spark.application import DataFrame, SparkSession


@dataclass(frozen=True, repr=False)
class RowsShown(Suggesting, Sequence[Mapping[str, Any]]):
    """The first rows of a view: a sequence of mappings by column. Times are in UTC, and do not say so.

    ``number`` is how many rows the view has, None where only reading would tell; ``view`` names view and snapshot.
    """

    columns: tuple[str, ...]
    rows: tuple[Mapping[str, Any], ...]
    number: int | None
    view: str

    @overload
    def __getitem__(self, index: int) -> Mapping[str, Any]: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Mapping[str, Any]]: ...

    def __getitem__(self, index: int | slice) -> Mapping[str, Any] | Sequence[Mapping[str, Any]]:
        return self.rows[index]

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return "\n".join([f"<{self._caption_text()}>", *map(str, self.rows)])

    def _repr_html_(self) -> str:
        from headrace.read.shown_values import html_table  # of notebooks

        return html_table(self.columns, self.rows, self._caption_text())

    def _caption_text(self) -> str:
        number_shown, number = len(self.rows), self.number
        if number_shown == number:
            return f"{self.view}: {'its only row' if number_shown == 1 else f'all {number_shown:,} rows'}"
        first = "the first" if number_shown == 1 else f"the first {number_shown:,}"
        if number is None:
            return f"{self.view}: {first} row{'' if number_shown == 1 else 's'}"
        return f"{self.view}: {first} of {number:,} rows"


BATCH_ROWS = 8_192
HTML_ROWS: Final = 10
HTML_BYTES: Final = Size(16 * 2**20)
"""Rows that a notebook shows of a view, and about how many bytes may be read for them."""

_ZONE_SUFFIX = " WITH TIME ZONE"
_PYTHON_TIMES = {
    "DATE": ("0001-01-01", "9999-12-31"),
    "TIMESTAMP": ("0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"),
    f"TIMESTAMP{_ZONE_SUFFIX}": ("0001-01-01 00:00:00+00", "9999-12-31 23:59:59.999999+00"),
}
"""The first and the last that Python has, by the type in DuckDB."""


class LazyView(Suggesting):
    """Rows of one snapshot. What is asked for is read then; the snapshot stays the one that it was made for.

    Data files are checked against the lengths and checksums of the manifest before anything is read from them. The
    exception is to_spark over a local root. Any method that reads raises BrokenObjectError for a damaged file, naming
    it. It raises QueryError for a condition that fails over some rows, and ReadResourcesError where neither memory nor
    the disk has room.

    >>> view = hr.open(root)["delays"].current(columns=["airport", "flights"])
    >>> view.to_json()
    [{'airport': 'ATL', 'flights': 2}, {'airport': 'JFK', 'flights': 1}, {'airport': 'ATL', 'flights': 1}]
    """

    def __init__(
        self,
        name: str,
        source: RowSource,
        manifest: Manifest | None,
        *,
        where: str | Expr | None = None,
        columns: Sequence[str] | None = None,
    ) -> None:
        self._name, self._source, self.manifest = name, source, manifest
        self._condition = RowCondition(where, source)
        self._condition.check()
        self._columns = _chosen_columns(columns, source.column_names)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, in order.

        >>> view.columns
        ('airport', 'flights')
        """
        return tuple(self._columns)

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of the columns of the key.

        >>> view.keys
        ('airport',)
        """
        return tuple(self._source.keys)

    @property
    def schema(self) -> "pa.Schema":
        """The columns, with their Arrow types; timestamps are in UTC.

        >>> view.schema
        airport: string
        flights: int64
        """
        import pyarrow as pa

        return pa.schema([self._source.columns.field(name) for name in self._columns])

    def batches(self, *, order: str | None = None, limit: int | None = None) -> "Iterator[pa.RecordBatch]":
        """The rows, some at a time, as Arrow record batches: by window and key, or in the order of emission.

        ``order`` is another one, as SQL writes it (``"delay desc"``). ``limit`` is the most rows to give. Sorting and
        folding take up to HEADRACE_READ_MEMORY and go on on the local disk (TMPDIR).

        >>> [batch.num_rows for batch in view.batches(order="flights desc", limit=2)]
        [2]
        """
        from headrace.read.views.arrow_types import named_as

        if limit is not None:
            Arguments("batches").whole_number("limit", limit, least=0)
        order_sql, schema = self._checked_order(order), self.schema
        with self._open_rows(order=order_sql) as rows, self._condition.explain_errors(order):
            relation = self._ordered_relation(rows, database.sql_columns(self._columns), order_sql, limit)
            for batch in relation.to_arrow_reader(BATCH_ROWS):
                yield named_as(batch, schema)

    def first(self, limit: int, *, order: str | None = None) -> tuple[list[dict[str, Any]], int]:
        """The first rows in the order of ``batches``, and how many rows there are. Rows are Python's values by column;
        times are in UTC, and do not say so. It does without Arrow, and so starts sooner than all that gives rows.

        >>> view.first(1, order="flights desc")
        ([{'airport': 'ATL', 'flights': 2}], 3)
        """
        Arguments("first").whole_number("limit", limit, least=0)
        order_sql = self._checked_order(order)
        with self._open_rows(order=order_sql) as rows, self._condition.explain_errors(order):
            rows_fetched = self._fetch_rows(rows, order_sql, limit)
            return rows_fetched, len(rows_fetched) if len(rows_fetched) < limit else _count_rows(rows)

    def head(self, n: int = 5) -> RowsShown:
        """The first ``n`` rows in the order of ``batches``, with Python's values; a notebook shows them as a table.

        Only the files that have these rows are read, except for ``current`` and ``state``, and where there is a
        condition.

        >>> view.head(2)
        <current of delays at ... (epoch 1): the first 2 rows>
        {'airport': 'ATL', 'flights': 2}
        {'airport': 'JFK', 'flights': 1}
        """
        n = Arguments("head").whole_number("n", n, least=0)
        source = self._source_of_first_rows(n)
        with self._open_rows(source) as rows, self._condition.explain_errors():
            rows_fetched = self._fetch_rows(rows, None, n)
        row_count = self._source.rows if self._condition.where is None else None
        return RowsShown(
            self.columns,
            tuple(rows_fetched),
            row_count if len(rows_fetched) == n else len(rows_fetched),
            self._name_and_snapshot(),
        )

    def count(self) -> int:
        """How many rows there are; without a condition manifests know it of all views but ``current``.

        >>> view.count()
        3
        """
        if self._condition.where is None and self._source.rows is not None:
            return self._source.rows
        with self._open_rows() as rows, self._condition.explain_errors():
            return _count_rows(rows)

    def __len__(self) -> int:
        return self.count()

    def __bool__(self) -> bool:  # else ``if view:`` would count the rows
        return True

    def to_json(self) -> list[dict[str, Any]]:
        """All rows, in memory, as JSON values that `headrace read --format json` prints: times and dates in ISO 8601
        (in UTC), bytes in base64, decimals as text. ``first`` gives Python's values.

        >>> view.to_json()[0]
        {'airport': 'ATL', 'flights': 2}
        """
        from headrace.read.shown_values import json_value
        from headrace.read.views.arrow_types import zoneless_rows

        return [
            {name: json_value(value) for name, value in row.items()}
            for batch in self.batches()
            for row in zoneless_rows(batch)
        ]

    def to_arrow(self) -> "pa.Table":
        """All rows, in memory, ordered as in ``batches``.

        >>> view.to_arrow().column("flights").to_pylist()
        [2, 1, 1]
        """
        import pyarrow as pa

        return pa.Table.from_batches(self.batches(), self.schema)

    def to_pandas(self) -> "pd.DataFrame":
        """All rows, in memory, ordered as in ``batches``. Raises QueryError for a struct or a map with a time outside
        of the years 1 to 9999. Both are Python's values in pandas, and Python has no such time.

        A column of ints with NULL is of floats, as always in pandas. It is ``Int64`` if it has an int that floats do
        not hold.

        >>> view.to_pandas().shape
        (3, 2)
        """
        require_library("pandas", "a pandas DataFrame")
        from headrace.read.views.arrow_types import column_beyond_python, pandas_frame

        rows = self.to_arrow()
        if (column := column_beyond_python(rows)) is not None:
            raise QueryError(
                f"column {column} has a time outside of the years 1 to 9999 in a struct or a map, and pandas has no "
                "such value. Leave the column out with columns=, or read it with to_arrow() or to_polars()"
            )
        return pandas_frame(rows)

    def to_polars(self) -> "pl.DataFrame":
        """All rows, in memory, ordered as in ``batches``. Raises NotInstalledError without polars.

        >>> view.to_polars().shape
        (3, 2)
        """
        require_library("polars", "a polars DataFrame")
        import polars as pl

        return pl.DataFrame(self.to_arrow())

    def to_duckdb(self, connection: "duckdb.DuckDBPyConnection | None" = None) -> "duckdb.DuckDBPyRelation":
        """A DuckDB relation over the files, in no order, for ``connection`` or one of its own (with times in UTC).

        A local root is read where it is. Files of another are copied to the local disk (TMPDIR) now, and stay as long
        as the process. There is one copy, however often they are asked for.

        >>> view.to_duckdb().aggregate("airport, sum(flights)").order("airport").fetchall()
        [('ATL', 3), ('JFK', 1)]
        """
        import duckdb

        using = database.in_utc(duckdb.connect()) if connection is None else connection
        # a connection of one's own may take constants of SQL for others than ours does
        is_ours = connection is None or not isinstance(self._condition.where, str)
        source = self._source.where(self._condition) if is_ours else self._source
        with database.working_folder() as folder:
            files = [database.keep_file(path, folder) for path in source.fetch_files(folder)]
        rows = source.relation(using, files)
        return self._condition.apply_to(using, rows).project(database.sql_columns(self._columns))

    def to_spark(self, spark: "SparkSession") -> "DataFrame":
        """A Spark DataFrame over the files, in no order. Spark itself reads the files of a local root, against the
        checksums of their pages alone; its Python workers read those of S3, verified.

        Raises QueryError for a condition in SQL: that of DuckDB is not that of Spark.

        >>> view.to_spark(spark).groupBy("airport").sum("flights").count()
        2
        """
        require_extra("spark", "a Spark DataFrame")
        from headrace.distribute.spark import frames

        source, where = self._source, self._condition.where
        if not isinstance(source, OutputFiles):
            return frames.of_table(spark, self.to_arrow())
        if isinstance(where, str):
            raise QueryError(
                f"where={where!r} is DuckDB's SQL, which Spark may understand otherwise: give an expression, such as "
                'col("flights") > 30, or filter the DataFrame'
            )
        files_with_names = [(file, source.names[file.path]) for file in source.data_files]
        is_summed = source.definition.folding is Folding.SUMMED
        frame = frames.of_files(
            spark, source.catalog.store, files_with_names, source.columns, source.identity, is_summed=is_summed
        )
        if where is not None:
            frame = frames.filter_rows(spark, frame, source.columns, where)
        return frame.select(*map(frames.column_named, self._columns))

    def files(self, *, verify: bool = False) -> list[str]:
        """Paths (of a local root) or URIs of the Parquet files, oldest first, whatever the condition.

        Files of ``current`` hold panes still to be folded: the newest of a key and window counts. ``verify`` holds each
        against its length and checksum first: reads all of them, and raises BrokenObjectError for one that is damaged.
        Raises QueryError if files are older than a renamed or added column: a reader of the files as they are would
        miss it.

        >>> view.files(verify=True)
        ['.../delays/data/....parquet']
        """
        if verify:
            self._source.verify()
        return self._source.file_locations()

    def __repr__(self) -> str:
        condition_text = "" if self._condition.where is None else ", those that fulfil the condition"
        return (
            f"<{self._name_and_snapshot()}: {self._source.describe()}{condition_text}; columns "
            f"{', '.join(self._columns)}>"
        )

    def _repr_html_(self) -> str:
        """The first rows; a view that takes long to read has a note, since nobody has asked for its rows."""
        if self._source_of_first_rows(HTML_ROWS).bytes_to_read > HTML_BYTES.value:
            from headrace.read.shown_values import html_note  # of notebooks

            return html_note(f"{self!r} is read when you ask for its rows, such as .head()")
        return self.head(HTML_ROWS)._repr_html_()

    def _name_and_snapshot(self) -> str:
        manifest = self.manifest
        snapshot_text = "no snapshot yet" if manifest is None else f"{manifest.snapshot_id} (epoch {manifest.epoch})"
        return f"{self._name} at {snapshot_text}"

    def _source_of_first_rows(self, rows: int) -> RowSource:
        """What has to be read for the first ``rows``."""
        if self._condition.where is None:
            return self._source.with_first_rows(rows)
        return self._source.where(self._condition)

    @contextmanager
    def _open_rows(
        self, source: RowSource | None = None, *, order: str | None = None
    ) -> "Iterator[duckdb.DuckDBPyRelation]":
        """The rows (of ``source``, by default all) that fulfil the condition. With text of a user's, a condition or an
        ``order``, the database can open nothing but their files.
        """
        source = self._source.where(self._condition) if source is None else source
        with database.working_folder() as folder:
            files = source.fetch_files(folder)
            with self._open_database(folder, files, order) as connection:
                rows = source.relation(connection, files)
                with self._condition.explain_errors():
                    rows_kept = self._condition.apply_to(connection, rows)
                yield rows_kept

    def _open_database(
        self, folder: Path, files: Sequence[Path], order: str | None
    ) -> "AbstractContextManager[duckdb.DuckDBPyConnection]":
        """One of its own where there are files and text of a user's, or an expression, for which it gets a function."""
        where = self._condition.where
        if files or isinstance(where, Expr):
            return database.open_database(folder, files, is_for_us=where is None and order is None)
        return database.without_rows()

    def _fetch_rows(self, rows: "duckdb.DuckDBPyRelation", order: str | None, limit: int) -> list[dict[str, Any]]:
        """Rows as Python's values. DuckDB gives times beyond those of Python as it likes, and takes some for infinity.
        Rows with such times come by way of Arrow, without which the others start sooner.
        """
        if (selected_columns := _python_times(rows, self._columns)) is not None:
            rows_fetched = self._ordered_relation(rows, selected_columns, order, limit).fetchall()
            if not any(is_beyond for *_, is_beyond in rows_fetched):
                return [dict(zip(self._columns, row[:-1], strict=True)) for row in rows_fetched]
        from headrace.read.views.arrow_types import zoneless_rows

        table = self._ordered_relation(rows, _numbered_columns(self._columns), order, limit).to_arrow_table()
        return zoneless_rows(table.rename_columns(self._columns))

    def _ordered_relation(
        self, rows: "duckdb.DuckDBPyRelation", selected_columns: str, order: str | None, limit: int | None
    ) -> "duckdb.DuckDBPyRelation":
        view_order = database.sql_columns(self._source.order)
        statement = (
            f"select {selected_columns} from view order by {view_order if order is None else f'{order}, {view_order}'}"
        )
        statement += "" if limit is None else f" limit {int(limit)}"
        return _query_rows(rows, statement)

    def _checked_order(self, order: str | None) -> str | None:
        """``order`` as SQL that can stand in a statement. Raises QueryError."""
        if order is None:
            return None
        if not isinstance(order, str) or not order.strip():
            raise QueryError(f"order={short_repr(order)} is not an order: write SQL such as 'delay desc'")
        order_sql = order_by(order, self._source.column_names)
        with database.without_rows() as connection, self._condition.explain_errors(order):
            self._ordered_relation(
                self._source.no_rows(connection), database.sql_columns(self._columns), order_sql, None
            ).fetchall()
        return order_sql


def _query_rows(rows: "duckdb.DuckDBPyRelation", statement: str) -> "duckdb.DuckDBPyRelation":
    """``statement`` over ``rows``, which it calls ``view``."""
    relation = rows.query("view", statement)
    assert relation is not None  # it selects
    return relation


def _numbered_columns(columns: Sequence[str]) -> str:
    """``columns`` under names of their own, so that an order is one of the columns as they are."""
    return ", ".join(f"{database.sql_identifier(name)} as _headrace_{number}" for number, name in enumerate(columns))


def _python_times(rows: "duckdb.DuckDBPyRelation", columns: Sequence[str]) -> str | None:
    """``columns`` as ``_numbered_columns`` has them, but times without their zone, for which DuckDB would ask Python
    for a library. A time that Python does not have is NULL; last, whether the row has one. None: there are times inside
    of lists.
    """
    kinds = {name: str(kind) for name, kind in zip(rows.columns, rows.types, strict=True)}
    selected_columns, beyond_conditions = [], ["false"]
    for number, column in enumerate(columns):
        name, kind = database.sql_identifier(column), kinds[column]
        if kind in _PYTHON_TIMES:
            first, last = (f"'{moment}'::{kind}" for moment in _PYTHON_TIMES[kind])
            is_beyond = f"coalesce({name} not between {first} and {last}, false)"
            beyond_conditions.append(is_beyond)
            name = f"case when {is_beyond} then null else {name} end::{kind.removesuffix(_ZONE_SUFFIX)}"
        elif any(time in kind for time in _PYTHON_TIMES):
            return None
        selected_columns.append(f"{name} as _headrace_{number}")
    return ", ".join([*selected_columns, f"{' or '.join(beyond_conditions)} as _headrace_beyond"])


def _count_rows(rows: "duckdb.DuckDBPyRelation") -> int:
    ((count,),) = _query_rows(rows, "select count(*) from view").fetchall()
    return int(count)


def _chosen_columns(columns: Sequence[str] | None, existing_columns: Sequence[str]) -> list[str]:
    if columns is None:
        return list(existing_columns)
    is_list = isinstance(columns, list | tuple) and all(isinstance(name, str) for name in columns)
    if not is_list or not columns:
        raise QueryError(f"columns={short_repr(columns)} is not a list of names, such as {[*existing_columns[:2]]}")
    unknown = [name for name in columns if name not in existing_columns]
    if unknown:
        raise QueryError(f"there is no column {unknown[0]!r}; the columns are {', '.join(existing_columns)}")
    if len(set(columns)) < len(columns):
        raise QueryError(f"columns={columns!r} names a column twice")
    return list(columns)
