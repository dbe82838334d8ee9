"""The panes that a snapshot names of epochs after another one, and the files that have them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.read.diff.row_changes import RecordFold
from headrace.read.views.columns import View, ViewColumns
from headrace.read.views.row_files import NamedFile
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.table_names import UNNAMED


@dataclass(frozen=True)
class LaterPanes:
    """Files of panes, each with the epoch that wrote it, of a snapshot with ``columns``."""

    columns: ViewColumns
    by_epoch: Sequence[tuple[int, DataFile]]

    @classmethod
    def of(cls, catalog: Catalog, manifest: Manifest, since: int) -> "LaterPanes":
        """What a snapshot names of later epochs than ``since`` (-1: of all)."""
        log = manifest.logs.get(UNNAMED.panes)
        records = [] if log is None else catalog.files(log, since_epoch=since)
        by_epoch = [(record.epoch, file) for record in records for file in record.files if isinstance(file, DataFile)]
        return cls(ViewColumns.from_json(manifest.schema), by_epoch)

    @property
    def files(self) -> list[DataFile]:
        """The files, oldest epoch first."""
        return [file for _, file in self.by_epoch]

    def rows(self, local: Mapping[str, Path], fold: RecordFold) -> str:
        """The panes (SQL) in the columns of ``fold``, if there are files, which are where ``local`` says."""
        named = [
            NamedFile.of(local[file.path], self.columns.names(View.PANES, epoch), [*fold.types])
            for epoch, file in self.by_epoch
        ]
        return fold.rows(named)
