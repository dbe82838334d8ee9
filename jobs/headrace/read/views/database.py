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
from headrace.model.expressions.data_types import PRECISION, SCALE, DataType, ListType, PairsType, ValueType
from headrace.this_process import shown_size, size_in

if TYPE_CHECKING:
    import duckdb

MEMORY_VARIABLE = "HEADRACE_READ_MEMORY"
DEFAULT_MEMORY = 2**30
_BY_THREAD = 2**27
_SMALL: Final = 2**21
"""Bytes of files that one thread reads as fast as several."""
_FEW_ROWS: Final = 100_000

DISK_VARIABLE = "HEADRACE_READ_DISK"
_OF_WHAT_IS_FREE = 0.9


class ReadResourcesError(FixConfigError, code="config.read_resources"):
    """Neither memory nor the local disk had room for what was read."""


@contextmanager
def database(
    folder: Path, files: Sequence[Path] = (), *, is_for_us: bool = False
) -> "Iterator[duckdb.DuckDBPyConnection]":
    """A database that can open ``files`` and nothing else; what does not fit into memory goes to ``folder``.

    ``is_for_us``: no text of a user's is in its statements. Then small files are read in one that the process has, and
    that opens whatever it is told: making another takes as long as reading a hundred thousand rows.
    """
    limit = size_in(MEMORY_VARIABLE) or DEFAULT_MEMORY
    if is_for_us and sum(file.stat().st_size for file in files) <= _SMALL:
        with _of_process(os.getpid(), limit).cursor() as connection, _resources(limit, folder):
            yield _quiet(connection)
        return
    threads = max(1, min(os.cpu_count() or 1, limit // _BY_THREAD))
    with _made(limit, threads, folder) as connection, _resources(limit, folder):
        connection.execute(f"set allowed_paths = [{', '.join(literal(str(file)) for file in files)}]")
        connection.execute("set enable_external_access = false")
        yield _quiet(connection)


def _made(limit: int, threads: int, folder: Path) -> "duckdb.DuckDBPyConnection":
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


def _quiet(connection: "duckdb.DuckDBPyConnection") -> "duckdb.DuckDBPyConnection":
    """``connection``, in UTC; its progress would go to stdout where Python has no script."""
    connection.execute("set enable_progress_bar = false")
    return in_utc(connection)


@cache
def _of_process(_process: int, limit: int) -> "duckdb.DuckDBPyConnection":
    """The database of a process for its own questions of small files, each of which is another one's next time. It has
    no threads, which a process that is forked would lack.
    """
    connection = _made(limit, 1, _kept_folder())
    connection.execute("set enable_external_file_cache = false")
    return _left_open_in_a_fork(connection)


def _left_open_in_a_fork(connection: "duckdb.DuckDBPyConnection") -> "duckdb.DuckDBPyConnection":
    """``connection``, which a process that is forked from this one never closes: it would crash at its end."""
    import ctypes  # here, since it takes longer than all that only looks at snapshots

    held = ctypes.py_object(connection)
    os.register_at_fork(after_in_child=lambda: ctypes.pythonapi.Py_IncRef(held))
    return connection


@contextmanager
def without_rows() -> "Iterator[duckdb.DuckDBPyConnection]":
    """A database for questions about SQL, and for rows that are in no file. It opens none; a process makes one, since
    that takes as long as twenty questions.
    """
    with _empty(os.getpid()).cursor() as connection:
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
def _empty(_process: int) -> "duckdb.DuckDBPyConnection":
    """The database of a process. It has no threads, which a process that is forked would lack."""
    import duckdb

    return _left_open_in_a_fork(duckdb.connect(config={"enable_external_access": "false", "threads": "1"}))


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


def kept(file: Path, folder: Path) -> Path:
    """Where ``file`` can be read as long as this process lasts: where it is, if that is not in ``folder``, which goes,
    or only a link in it; else it moves to one folder of the process, in which there is one file of any content.
    """
    if file.is_symlink() or not file.is_relative_to(folder):
        return file.resolve()
    with file.open("rb") as content:
        named = _kept_folder() / f"{hashlib.file_digest(content, 'sha256').hexdigest()}.parquet"
    named.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # who tidies up may have taken it away
    if named.exists():
        file.unlink()
        return named
    return file.replace(named)


def check_room(needed: int, folder: Path) -> None:
    """Raise ReadResourcesError if copies of ``needed`` bytes below ``folder`` are more than HEADRACE_READ_DISK allows,
    by default nine tenths of what is free there: a disk that is full stops more than one reader.
    """
    stated = size_in(DISK_VARIABLE)
    room = int(shutil.disk_usage(folder).free * _OF_WHAT_IS_FREE) if stated is None else stated
    if needed > room:
        raise ReadResourcesError(
            f"this read copies {shown_size(needed)} to the local disk first, and may use {shown_size(room)} under "
            f"{folder.parent} ({DISK_VARIABLE} sets another limit, TMPDIR names another folder). Engines of your own "
            "read the files where they are: files() names them"
        )


@contextmanager
def _resources(limit: int, folder: Path) -> Iterator[None]:
    import duckdb

    try:
        yield
    except (duckdb.OutOfMemoryException, duckdb.IOException) as error:
        raise ReadResourcesError(
            f"reading ran out of room: {str(error).splitlines()[0]}. It may use {limit:,} bytes of memory "
            f"({MEMORY_VARIABLE} sets the limit), and spills to {folder.parent} (TMPDIR names another folder)"
        ) from error


_TYPES: Final = {
    DataType.STRING: "VARCHAR",
    DataType.INT: "BIGINT",
    DataType.FLOAT: "DOUBLE",
    DataType.BOOL: "BOOLEAN",
    DataType.TIMESTAMP: "TIMESTAMP WITH TIME ZONE",
    DataType.DATE: "DATE",
    DataType.BYTES: "BLOB",
    DataType.DECIMAL: f"DECIMAL({PRECISION},{SCALE})",
}


def sql_types(columns: Mapping[str, ValueType]) -> dict[str, str]:
    """The types of ``columns``, as DuckDB writes them."""
    return {name: _type(kind) for name, kind in columns.items()}


def no_rows(columns: Mapping[str, ValueType]) -> str:
    """A query of ``columns`` that finds nothing."""
    nulls = (f"null::{kind} as {identifier(name)}" for name, kind in sql_types(columns).items())
    return f"select {', '.join(nulls)} where false"


def _type(kind: ValueType) -> str:
    match kind:
        case ListType(item):
            return f"{_TYPES[item]}[]"
        case PairsType(left, right):
            return f'STRUCT("left" {_TYPES[left]}, "right" {_TYPES[right]})[]'
    return _TYPES[kind]


def literal(text: str) -> str:
    """``text`` as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


def quoted(names: Iterable[str]) -> str:
    """Names of columns, one after another, as SQL writes them."""
    return ", ".join(map(identifier, names))


def identifier(name: str) -> str:
    """``name`` as SQL writes it where it names something."""
    return '"' + name.replace('"', '""') + '"'
