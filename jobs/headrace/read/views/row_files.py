"""The rows of data files, each held against its length and checksum as it is read."""

import io
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

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
    store: ObjectStore, named: Iterable[DataFile], columns: "pa.Schema", names: "Mapping[str, Names]" = _ALL
) -> "Iterator[pa.Table]":
    """The rows of each of the data files, which call columns by ``names``, by path, if not by their name. Raises
    BrokenObjectError when one is missing or not what was written.
    """
    import pyarrow.parquet as pq

    from headrace.kernel.renamed_columns import as_now, names_there

    def load(file: DataFile) -> "pa.Table":
        own = names.get(file.path, {})
        table = pq.read_table(io.BytesIO(verify(store, file)), columns=names_there(columns, own))
        return as_now(table, columns, own)

    with ThreadPoolExecutor(READERS, thread_name_prefix="read") as readers:
        yield from readers.map(load, named)
