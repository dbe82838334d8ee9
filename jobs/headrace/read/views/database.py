"""DuckDB as readers use it: what it may take of memory and of the disk, and what it may open.

It is imported where rows are read: it takes as long to import as all that only looks at snapshots.
"""

import atexit
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from headrace.errors import FixConfigError
from headrace.model.expressions.data_types import ValueType
from headrace.pipeline.queries import left_open_in_a_fork, sql_type
from headrace.this_process import shown_size, size_in

if TYPE_CHECKING:
    import duckdb

MEMORY_VARIABLE = "HEADRACE_READ_MEMORY"
DEFAULT_MEMORY = 2**30
_BY_THREAD = 2**27
_ONE_THREAD_BYTES: Final = 2**21
"""Bytes of files that one thread reads as fast as several."""
_FEW_ROWS: Final = 100_000

DISK_VARIABLE = "HEADRACE_READ_DISK"
_OF_WHAT_IS_FREE = 0.9


class ReadResourcesError(FixConfigError, code="config.read_resources"):
    """Neither memory nor the local disk had room for what was read."""


@contextmanager
def open_database(
    folder: Path, files: Sequence[Path] = (), *, is_for_us: bool = False
) -> "Iterator[duckdb.DuckDBPyConnection]":
    """A database that can open ``files`` and nothing else; what does not fit into memory goes to ``folder``.

    ``is_for_us``: no text of a user's is in its statements. Then small files are read in a database of the process that
    opens whatever it is told. Making another takes as long as reading a hundred thousand rows.
    """
    limit = size_in(MEMORY_VARIABLE) or DEFAULT_MEMORY
    if is_for_us and sum(file.stat().st_size for file in files) <= _ONE_THREAD_BYTES:
        with _of_process(os.getpid(), limit).cursor() as connection, _resource_errors(limit, folder):
            yield _configure_connection(connection)
        return
    threads = max(1, min(os.cpu_count() or 1, limit // _BY_THREAD))
    with _connect_with_limits(limit, threads, folder) as connection, _resource_errors(limit, folder):
        connection.execute(f"set allowed_paths = [{', '.join(sql_literal(str(file)) for file in files)}]")
        connection.execute("set enable_external_access = false")
        yield _configure_connection(connection)


def _connect_with_limits(limit: int, threads: int, folder: Path) -> "duckdb.DuckDBPyConnection":
    import duckdb

    config: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": f"{limit}B",
        "threads": str(threads),
        "temp_directory": str(folder / "spilled"),
        "preserve_insertion_order": "false",
        # joins keep the side that the statement names second: in ``compaction`` the narrow one, whatever DuckDB guesses
        "disabled_optimizers": "build_side_probe_side",
    }
    return duckdb.connect(config=config)


def _configure_connection(connection: "duckdb.DuckDBPyConnection") -> "duckdb.DuckDBPyConnection":
    """``connection``, in UTC; its progress would go to stdout where Python has no script."""
    connection.execute("set enable_progress_bar = false")
    return in_utc(connection)


@cache
def _of_process(_process: int, limit: int) -> "duckdb.DuckDBPyConnection":
    """The database of a process for its own questions of small files, each of which is another one's next time. It has
    no threads, which a process that is forked would lack.
    """
    connection = _connect_with_limits(limit, 1, _kept_folder())
    connection.execute("set enable_external_file_cache = false")
    return left_open_in_a_fork(connection)


@contextmanager
def without_rows() -> "Iterator[duckdb.DuckDBPyConnection]":
    """A database for questions about SQL, and for rows that are in no file. It opens none; a process makes one, since
    that takes as long as twenty questions.
    """
    with _empty_database(os.getpid()).cursor() as connection:
        yield in_utc(connection)


@contextmanager
def in_memory(rows: int) -> "Iterator[duckdb.DuckDBPyConnection]":
    """A database for questions about so many ``rows`` of Arrow tables, with all cores if they are many."""
    if rows <= _FEW_ROWS:
        with without_rows() as connection:
            yield connection
        return
    import duckdb

    with duckdb.connect(config={"enable_external_access": "false"}) as connection:
        yield in_utc(connection)


@cache
def _empty_database(_process: int) -> "duckdb.DuckDBPyConnection":
    """The database of a process. It has no threads, which a process that is forked would lack."""
    import duckdb

    return left_open_in_a_fork(duckdb.connect(config={"enable_external_access": "false", "threads": "1"}))


def in_utc(connection: "duckdb.DuckDBPyConnection") -> "duckdb.DuckDBPyConnection":
    """``connection``, which shows times in UTC from now on."""
    connection.execute("set TimeZone = 'UTC'")
    return connection


@contextmanager
def working_folder() -> Iterator[Path]:
    """A folder for what one reader keeps on the local disk."""
    with TemporaryDirectory(prefix="headrace-read-") as folder:
        yield Path(folder)


@cache
def _kept_folder() -> Path:
    folder = TemporaryDirectory(prefix="headrace-read-")
    atexit.register(folder.cleanup)
    return Path(folder.name)


def keep_file(file: Path, folder: Path) -> Path:
    """Where ``file`` can be read as long as this process lasts. That is where it is, unless it is in ``folder``, which
    goes, and no link. Otherwise it moves to one folder of the process, which has one file of any content.
    """
    if file.is_symlink() or not file.is_relative_to(folder):
        return file.resolve()
    with file.open("rb") as content:
        kept_file = _kept_folder() / f"{hashlib.file_digest(content, 'sha256').hexdigest()}.parquet"
    kept_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # who tidies up may have taken it away
    if kept_file.exists():
        file.unlink()
        return kept_file
    return file.replace(kept_file)


def check_room(needed_bytes: int, folder: Path) -> None:
    """Raise ReadResourcesError if copies of ``needed_bytes`` below ``folder`` are more than HEADRACE_READ_DISK allows.
    The default is nine tenths of the free space: a full disk stops more than one reader.
    """
    size_limit = size_in(DISK_VARIABLE)
    room = int(shutil.disk_usage(folder).free * _OF_WHAT_IS_FREE) if size_limit is None else size_limit
    if needed_bytes > room:
        raise ReadResourcesError(
            f"this read copies {shown_size(needed_bytes)} to the local disk first, and may use {shown_size(room)} "
            "under "
            f"{folder.parent} ({DISK_VARIABLE} sets another limit, TMPDIR names another folder). Engines of your own "
            "read the files where they are: files() names them"
        )


@contextmanager
def _resource_errors(limit: int, folder: Path) -> Iterator[None]:
    import duckdb

    try:
        yield
    except (duckdb.OutOfMemoryException, duckdb.IOException) as error:
        raise ReadResourcesError(
            f"reading ran out of room: {str(error).splitlines()[0]}. It may use {limit:,} bytes of memory "
            f"({MEMORY_VARIABLE} sets the limit), and spills to {folder.parent} (TMPDIR names another folder)"
        ) from error


def sql_types(columns: Mapping[str, ValueType]) -> dict[str, str]:
    """The types of ``columns``, as DuckDB writes them."""
    return {name: sql_type(kind) for name, kind in columns.items()}


def no_rows(columns: Mapping[str, ValueType]) -> str:
    """A query of ``columns`` that finds nothing."""
    nulls = (f"null::{kind} as {sql_identifier(name)}" for name, kind in sql_types(columns).items())
    return f"select {', '.join(nulls)} where false"


def sql_literal(text: str) -> str:
    """``text`` as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


def pack_struct(values: Mapping[str, str]) -> str:
    """A struct of ``values`` (SQL) by the names of its fields."""
    return f"struct_pack({', '.join(f'{sql_identifier(name)} := {value}' for name, value in values.items())})"


def query_number(connection: "duckdb.DuckDBPyConnection", query: str) -> int:
    """The number that a ``query`` finds."""
    ((number,),) = connection.sql(query).fetchall()
    return int(number)


def sql_columns(names: Iterable[str]) -> str:
    """Names of columns, one after another, as SQL writes them."""
    return ", ".join(map(sql_identifier, names))


def sql_identifier(name: str) -> str:
    """``name`` as SQL writes it where it names something."""
    return '"' + name.replace('"', '""') + '"'
