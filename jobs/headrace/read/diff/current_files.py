"""The files of a layered table that a manifest names, and how those of ``current`` become rows."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from headrace.read.diff.row_changes import RecordFold
from headrace.read.views.columns import View, ViewColumns
from headrace.read.views.compaction import GONE, PLACE
from headrace.read.views.database import sql_types
from headrace.read.views.parquet_sql import NamedFile
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.table_names import UNNAMED


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
