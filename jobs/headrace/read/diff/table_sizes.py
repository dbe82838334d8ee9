"""How many rows the layered tables of a snapshot stand for. Manifests count a row once for each layer that has it; here
the newest of each counts, as where rows are read. No definition is needed for that.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from headrace.program import columns as c
from headrace.read.diff.current_files import current_files, files_of, fold_of_current
from headrace.read.diff.row_changes import RecordFold
from headrace.read.views.columns import ViewColumns
from headrace.read.views.database import database, working_folder
from headrace.read.views.local_files import brought
from headrace.read.views.parquet_sql import NamedFile
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.table_names import UNNAMED
from headrace_snapshots.store import ObjectStore

MOST_BYTES: Final = 2**24
"""Of tables whose files are longer, nobody waits for the count."""

_OPEN: Final = RecordFold((c.HASH, c.WINDOW_START, c.WINDOW_END), (c.EPOCH,), f"{c.STATUS} <> {c.OPEN}")
"""Rows of state become open windows: the hash stands for the key, which older files may call otherwise."""


def current_rows(store: ObjectStore, manifest: Manifest) -> int | None:
    """Rows of ``current`` of ``manifest``, which is as an output sees it. None where its files are longer than
    MOST_BYTES. Raises BrokenObjectError.
    """
    fold = fold_of_current(ViewColumns.from_json(manifest.schema), ())
    return _number(store, files_of(manifest, UNNAMED.current), fold, lambda local: current_files(manifest, local, fold))


def open_windows(store: ObjectStore, manifest: Manifest, stage: int) -> int | None:
    """Open windows of the aggregation ``stage``, counted from 0. None, and an error, as of ``current_rows``."""
    files = files_of(manifest, UNNAMED.state(stage))
    return _number(store, files, _OPEN, lambda local: [NamedFile(path) for path in local.values()])


def _number(
    store: ObjectStore,
    files: Sequence[DataFile],
    fold: RecordFold,
    named: Callable[[Mapping[str, Path]], Sequence[NamedFile]],
) -> int | None:
    if sum(file.bytes for file in files) > MOST_BYTES:
        return None
    with working_folder() as folder:
        local = dict(zip((file.path for file in files), brought(store, files, folder), strict=True))
        with database(folder, [*local.values()], is_for_us=True) as connection:
            return fold.number(connection, named(local))
