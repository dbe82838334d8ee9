"""The rows of data files: opened where they lie, held against their checksums, as SQL, and folded into ``current``.

``rows_of`` is a query over many files, some of which call columns otherwise. ``local_paths`` gives data files as DuckDB
can open them: where they are if the root is local; else copies, or of the rows that are needed. Each is held against
its length and checksum first. ``newest_of`` folds: of a key and window the newest counts, unless withdrawn.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from headrace.read.views.columns import Folding, ViewColumns
from headrace.read.views.conditions import ALL, NeededRows
from headrace.read.views.database import (
    check_room,
    in_memory,
    open_database,
    sql_columns,
    sql_identifier,
    sql_literal,
    working_folder,
)
from headrace.this_process import Size
from headrace_snapshots.datafiles import check_data_file, local_copy, read_verified
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.store import LocalStore, ObjectStore

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from headrace.kernel.columns import Names


@dataclass(frozen=True)
class NamedFile:
    """A file that can be read at ``path``. ``names``: what it calls columns, where that is not their name, in pairs."""

    path: Path
    names: tuple[tuple[str, str | None], ...] = ()

    @classmethod
    def from_path(cls, path: Path, names: "Names", columns: Sequence[str]) -> "NamedFile":
        """Keeps only the renames of these ``columns``."""
        return cls(path, tuple((name, names[name]) for name in columns if name in names))


def rows_of(files: Sequence[NamedFile], types: Mapping[str, str]) -> str:
    """The rows of ``files``, at least one (SQL). Where some have other names for columns, only those of ``types``."""
    by_names: dict[tuple[tuple[str, str | None], ...], list[Path]] = {}
    for file in files:
        by_names.setdefault(file.names, []).append(file.path)
    if [*by_names] == [()]:
        return parquet_rows_sql(by_names[()])
    selects = (
        f"select {_column_selects(dict(names), types)} from {parquet_rows_sql(paths)}"
        for names, paths in by_names.items()
    )
    return f"({' union all '.join(selects)})"


def _column_selects(names: "Names", types: Mapping[str, str]) -> str:
    def column_select(name: str, kind: str) -> str:
        old_name = names.get(name, name)
        return f"{f'cast(null as {kind})' if old_name is None else sql_identifier(old_name)} as {sql_identifier(name)}"

    return ", ".join(column_select(name, kind) for name, kind in types.items())


_LITERALLY = str.maketrans({character: f"[{character}]" for character in "[*?"})


def parquet_rows_sql(files: Sequence[Path]) -> str:
    """The rows of ``files``, of which there is one at least (SQL).

    DuckDB takes NaN for the greatest number, and statistics of Parquet leave it out. So they must not bound floats.
    """
    names = ", ".join(sql_literal(escape_pattern(str(file))) for file in files)
    return f"read_parquet([{names}], can_have_nan = true)"


def escape_pattern(path: str) -> str:
    """``path`` for DuckDB, which takes some characters of a path for a pattern."""
    return path.translate(_LITERALLY)


SMALL_BYTES: Final = Size(2**18)
"""Bytes of a file that is read with one request, whatever is needed of it."""

_FILES_UNDERWAY, _SMALL_FILES_UNDERWAY = 4, 16
"""Files on their way at a time: each of up to 128 MB is held in memory until it is on the disk."""

Result = TypeVar("Result")


def local_paths(
    store: ObjectStore, files: Sequence[DataFile], folder: Path, needed_rows: NeededRows = ALL
) -> list[Path]:
    """Where each of ``files`` can be read, verified: the file itself if ``store`` is local, else a copy in ``folder``.
    A large file that says where its rows are gives a copy of the ``needed_rows``; a file whose path DuckDB would take
    for a pattern gives a link.

    Raises BrokenObjectError, and ReadResourcesError where there is no room for copies.
    """
    copies = [folder / f"{number:06}.parquet" for number in range(len(files))]
    parts = [] if needed_rows.is_all else [pair for pair in zip(files, copies, strict=True) if has_parts(pair[0])]
    cut = {path for path in _at_once(store, partial(_write_needed_rows, store, needed_rows), parts) if path is not None}
    whole = [(file, path) for file, path in zip(files, copies, strict=True) if path not in cut]
    if whole and not isinstance(store, LocalStore):
        check_room(sum(file.bytes for file, _ in whole), folder)
    paths = dict(zip(copies, copies, strict=True))
    read = _at_once(store, partial(_whole_file, store), whole)
    paths.update(zip((path for _, path in whole), read, strict=True))
    return [*paths.values()]


@contextmanager
def open_database_of(
    store: ObjectStore, files: Iterable[DataFile]
) -> "Iterator[tuple[duckdb.DuckDBPyConnection, dict[str, Path]]]":
    """A database, for statements without text of a user's, that can read ``files``; and where each is, by its path in
    ``store``. Raises what ``local_paths`` raises.
    """
    by_path = {file.path: file for file in files}
    with working_folder() as folder:
        local = dict(zip(by_path, local_paths(store, [*by_path.values()], folder), strict=True))
        with open_database(folder, [*local.values()], is_for_us=True) as connection:
            yield connection, local


def _at_once(
    store: ObjectStore, function: Callable[[tuple[DataFile, Path]], Result], pairs: Sequence[tuple[DataFile, Path]]
) -> Iterable[Result]:
    """What ``function`` gives for each of ``pairs``: in threads, unless there is little to wait for."""
    if little_to_wait_for(store, [file for file, _ in pairs]):
        return [*map(function, pairs)]
    threads = _SMALL_FILES_UNDERWAY if all(file.bytes < SMALL_BYTES.value for file, _ in pairs) else _FILES_UNDERWAY
    with ThreadPoolExecutor(threads, thread_name_prefix="read") as pool:
        return [*pool.map(function, pairs)]


def _whole_file(store: ObjectStore, pair: tuple[DataFile, Path]) -> Path:
    file, path = pair
    own = local_copy(store, file, path)
    if own != path and escape_pattern(str(own)) != str(own):  # DuckDB takes it for one that stands for many
        path.symlink_to(own)  # of files that it may open, DuckDB knows no patterns
        return path
    return own


def little_to_wait_for(store: ObjectStore, files: Iterable[DataFile]) -> bool:
    """Whether ``files`` are read as fast one after another: they are small, and on this machine."""
    return isinstance(store, LocalStore) and all(file.bytes < SMALL_BYTES.value for file in files)


def has_parts(file: DataFile) -> bool:
    """Whether ``file`` says where its rows are, and is too large to be read whole for some of them."""
    return file.footer is not None and file.bytes >= SMALL_BYTES.value


def _write_needed_rows(store: ObjectStore, needed_rows: NeededRows, pair: tuple[DataFile, Path]) -> Path | None:
    """The path, where the ``needed_rows`` of the file can be read; None if it is as well to read all of it.

    Raises BrokenObjectError.
    """
    import pyarrow.parquet as pq

    from headrace.state.chunks import some_rows

    file, path = pair
    rows = some_rows(store, file, needed_rows.may_be_in)
    if rows is None:
        return None
    pq.write_table(rows, path, compression="none")
    return path


READERS = 8
_OWN_NAMES: "Mapping[str, Names]" = {}


def check_files(store: ObjectStore, files: Iterable[DataFile]) -> None:
    """Hold data files against their lengths and checksums, whose rows nobody needs. Raises BrokenObjectError."""
    with ThreadPoolExecutor(READERS, thread_name_prefix="read") as readers:
        for _ in readers.map(lambda file: check_data_file(store, file), files):
            pass


def read_tables(
    store: ObjectStore,
    named_files: Iterable[DataFile],
    columns: "pa.Schema",
    names: "Mapping[str, Names]" = _OWN_NAMES,
    needed_rows: NeededRows = ALL,
) -> "Iterator[pa.Table]":
    """The rows of each of the data files, which call columns by ``names``, by path, if not by their name. Where only
    some are needed (``needed_rows``), a large file that says where these are is not read whole, and other rows may be
    missing.

    Raises BrokenObjectError when a file is missing or not what was written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from headrace.kernel.columns import as_now, names_there

    def load_table(file: DataFile) -> "pa.Table":
        own = names.get(file.path, {})
        rows = None
        if not needed_rows.is_all and has_parts(file):
            from headrace.state.chunks import some_rows

            rows = some_rows(store, file, needed_rows.may_be_in)
        if rows is None:
            content = pq.ParquetFile(pa.BufferReader(read_verified(store, file)))
            rows = content.read(names_there(columns, own), use_threads=False)
        return rows if rows.schema.equals(columns) else as_now(rows, columns, own)

    files = [*named_files]
    if little_to_wait_for(store, files):
        yield from map(load_table, files)
        return
    with ThreadPoolExecutor(READERS, thread_name_prefix="read") as readers:
        yield from readers.map(load_table, files)


_NEWEST = '"_headrace_newest"'
PLACE = ("epoch", "sequence")
IS_RETRACTION = "is_retraction"


def newest_of(
    rows: str,
    columns: Sequence[str],
    identity: Sequence[str],
    *,
    place: Sequence[str] = PLACE,
    is_gone: str = IS_RETRACTION,
) -> str:
    """A query of ``columns`` of the live records among ``rows`` (SQL), which it reads twice. The record of the greatest
    ``place`` counts for each identity, unless ``is_gone`` (SQL).

    The first time finds where the newest record of each ``identity`` is, so that no wide row waits for another.
    """
    same = f"{same_identity('r', 'n', identity)} and {row_of(place, 'r.')} = n.{_NEWEST}"
    row_columns = ", ".join(f"r.{sql_identifier(name)}" for name in columns)
    return (
        f"select {row_columns} from {rows} r semi join "
        f"(select {sql_columns(identity)}, max({row_of(place)}) as {_NEWEST} from {rows} group by "
        f"{sql_columns(identity)}) n "
        f"on {same} where not ({is_gone})"
    )


def standing_of(rows: str, columns: Sequence[str], view_columns: ViewColumns) -> str:
    """A query of ``columns`` of what stands among ``rows`` (SQL), whose columns are ``view_columns``."""
    match view_columns.folding:
        case Folding.NEWEST:
            return newest_of(rows, columns, view_columns.identity)
        case Folding.SUMMED:
            return summed_of(rows, columns, view_columns.identity)
    return f"select {sql_columns(columns)} from {rows}"


SIGN: Final = "_headrace_sign"
_SIGN_OF_RECORD: Final = f"case when {IS_RETRACTION} then -1 else 1 end"


def signs_of(rows: str, columns: Sequence[str], view_columns: ViewColumns) -> str:
    """A query of ``columns`` and ``SIGN``, which add up to what stands of the records among ``rows`` (SQL); where these
    are summed, less the withdrawals whose rows have not come.
    """
    if view_columns.folding is Folding.SUMMED:
        return f"select {sql_columns(columns)}, {_SIGN_OF_RECORD} as {SIGN} from {rows}"
    return f"select *, 1 as {SIGN} from ({standing_of(rows, columns, view_columns)})"


_SUM, _RANK = '"_headrace_sum"', '"_headrace_rank"'


def summed_of(rows: str, columns: Sequence[str], identity: Sequence[str]) -> str:
    """A query of ``columns`` of those ``rows`` (SQL) that stand. Equal rows stand as often as they were put there more
    often than withdrawn; the oldest are taken.
    """
    same = sql_columns(identity)
    rank_column = f"row_number() over (partition by {same}, {IS_RETRACTION} order by {sql_columns(PLACE)}) as {_RANK}"
    sum_column = f"sum({_SIGN_OF_RECORD}) over (partition by {same}) as {_SUM}"
    stands = f"not {IS_RETRACTION} and {_RANK} <= {_SUM}"
    return f"select {sql_columns(columns)} from (select *, {rank_column}, {sum_column} from {rows}) where {stands}"


def number_standing(rows: str, view_columns: ViewColumns) -> str:
    """A query of how many rows ``standing_of`` finds, which reads ``rows`` once and little of them."""
    match view_columns.folding:
        case Folding.NEWEST:
            return number_of(rows, view_columns.identity)
        case Folding.SUMMED:
            sums = f"select sum({_SIGN_OF_RECORD}) as n from {rows} group by {sql_columns(view_columns.identity)}"
            return f"select coalesce(sum(greatest(n, 0)), 0)::bigint from ({sums})"
    return f"select count(*) from {rows}"


def number_of(rows: str, identity: Sequence[str], *, place: Sequence[str] = PLACE, is_gone: str = IS_RETRACTION) -> str:
    """A query of how many rows ``newest_of`` finds, which reads ``rows`` once and little of them."""
    newest = f"max({{'place': {row_of(place)}, 'gone': {is_gone}}}) as newest"
    return f"select count(*) from (select {newest} from {rows} group by {sql_columns(identity)}) where not newest.gone"


def same_identity(left: str, right: str, identity: Sequence[str]) -> str:
    """SQL: join condition on the identity columns of ``left`` and ``right``."""
    return " and ".join(f"{left}.{name} is not distinct from {right}.{name}" for name in map(sql_identifier, identity))


def row_of(names: Sequence[str], prefix: str = "") -> str:
    """``names`` as one value, which is compared by the first of them, then by the next (SQL)."""
    return "{" + ", ".join(f"{sql_literal(name)}: {prefix}{sql_identifier(name)}" for name in names) + "}"


def newest_rows(rows: "pa.Table", columns: ViewColumns) -> "pa.Table":
    """``current`` of the records of ``rows``, in memory."""
    with in_memory(rows.num_rows) as connection:
        connection.register("rows", rows)
        query = standing_of("rows", rows.schema.names, columns)
        return connection.sql(query).to_arrow_table().cast(rows.schema)


def rows_without(rows: "pa.Table", others: "pa.Table", columns: Sequence[str]) -> "pa.Table":
    """The ``rows`` that are not among ``others`` by ``columns``; NULL is NULL and NaN is NaN."""
    with in_memory(rows.num_rows + others.num_rows) as connection:
        connection.register("rows", rows)
        connection.register("others", others)
        query = f"select r.* from rows r anti join others o on {same_identity('r', 'o', columns)}"
        return connection.sql(query).to_arrow_table().cast(rows.schema)
