"""The rows of data files, each held against its length and checksum as it is read."""

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from headrace.read.views.local_files import has_parts, little_to_wait_for
from headrace.read.views.pruning import ALL, Needed
from headrace_snapshots.datafiles import check, verify
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.store import ObjectStore

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.kernel.renamed_columns import Names

READERS = 8
_ALL: "Mapping[str, Names]" = {}


def check_files(store: ObjectStore, named: Iterable[DataFile]) -> None:
    """Hold data files against their lengths and checksums, whose rows nobody needs. Raises BrokenObjectError."""
    with ThreadPoolExecutor(READERS, thread_name_prefix="read") as readers:
        for _ in readers.map(lambda file: check(store, file), named):
            pass


def tables(
    store: ObjectStore,
    named: Iterable[DataFile],
    columns: "pa.Schema",
    names: "Mapping[str, Names]" = _ALL,
    needed: Needed = ALL,
) -> "Iterator[pa.Table]":
    """The rows of each of the data files, which call columns by ``names``, by path, if not by their name. Where only
    some are ``needed``, a large file that says where these are is not read whole, and other rows may be missing.

    Raises BrokenObjectError when a file is missing or not what was written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from headrace.kernel.renamed_columns import as_now, names_there

    def load(file: DataFile) -> "pa.Table":
        own = names.get(file.path, {})
        rows = None
        if not needed.is_all and has_parts(file):
            from headrace.state.datafiles.chunks import some_rows

            rows = some_rows(store, file, needed.may_be_in)
        if rows is None:
            content = pq.ParquetFile(pa.BufferReader(verify(store, file)))
            rows = content.read(names_there(columns, own), use_threads=False)
        return rows if rows.schema.equals(columns) else as_now(rows, columns, own)

    files = [*named]
    if little_to_wait_for(store, files):
        yield from map(load, files)
        return
    with ThreadPoolExecutor(READERS, thread_name_prefix="read") as readers:
        yield from readers.map(load, files)
