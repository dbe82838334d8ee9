"""The files of a layered table, and how many rows they stand for.

The files of a layered table that a manifest names, and how those of ``current`` become rows.

How many rows the layered tables of a snapshot stand for. Manifests count a row once for each layer that has it; here
the newest of each counts, as where rows are read. No definition is needed for that.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from headrace.program import columns as c
from headrace.read.diff.row_changes import RecordFold
from headrace.read.views.columns import View, ViewColumns
from headrace.read.views.database import database, sql_types, working_folder
from headrace.read.views.row_files import GONE, PLACE, NamedFile, brought
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.table_names import UNNAMED
from headrace_snapshots.store import ObjectStore


def files_of(manifest: Manifest, table: str) -> list[DataFile]:
    """All files of a table, oldest layer first."""
    return [file for layer in manifest.tables.get(table, ()) for file in layer.files]


def fold_of_current(columns: ViewColumns, others: Sequence[str]) -> RecordFold:
    """A fold to ``current`` over key, window and ``others``."""
    types = sql_types(columns.types(View.CURRENT))
    names = dict.fromkeys((*columns.identity, *others, *PLACE, GONE))
    return RecordFold(tuple(columns.identity), PLACE, GONE, {name: types[name] for name in names})


def current_files(manifest: Manifest | None, local: Mapping[str, Path], fold: RecordFold) -> list[NamedFile]:
    """The files of ``current`` where they are ``local``, each with the names that it has for the columns of ``fold``;
    none without a manifest.
    """
    if manifest is None:
        return []
    columns = ViewColumns.from_json(manifest.schema)
    return [
        NamedFile.of(local[file.path], columns.names(View.CURRENT, layer.last_epoch), [*fold.types])
        for layer in manifest.tables.get(UNNAMED.current, ())
        for file in layer.files
    ]


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
