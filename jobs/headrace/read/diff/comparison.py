"""What differs between two snapshots: their manifests compared, and their rows."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb

from headrace.program import columns as c
from headrace.read.diff.current_files import current_files, files_of, fold_of_current
from headrace.read.diff.differences import (
    ColumnsDiff,
    OutputDiff,
    Pair,
    ReadersDiff,
    SnapshotDiff,
    SnapshotName,
    StageDiff,
    clocks_between,
    code_that_differs,
    inputs_between,
    logs_between,
    watermarks_between,
)
from headrace.read.diff.row_changes import ComparedTable, RecordFold, RowCounts, shared_columns
from headrace.read.snapshots.progress import StoredProgress, inputs_read
from headrace.read.views.columns import View, ViewColumns
from headrace.read.views.database import database, working_folder
from headrace.read.views.row_files import NamedFile, brought
from headrace_snapshots.ancestry import Link
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.filelog import FileLog
from headrace_snapshots.format.files import InputFile, LoggedFile
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.table_names import IDS, INPUTS, UNNAMED

_PANE = ("pane_time", "timing", "pane_index", "nonspeculative_index", "is_first", "is_last", "epoch")
"""What a row of ``current`` says of its pane."""


def diff(catalog: Catalog, before: Manifest | None, after: Manifest | None, *, limit: int) -> SnapshotDiff:
    """What a reader would see change from ``before`` to ``after`` (None: no snapshot yet), and what lies under it; at
    most ``limit`` rows are given, all are counted.

    Reads the state and ``current`` of both. Memory is that of readers (HEADRACE_READ_MEMORY). Raises BrokenObjectError,
    ReadResourcesError.
    """
    ancestor = _ancestor(catalog, before, after)
    progress = [None if side is None else StoredProgress.of(side) for side in (before, after)]
    read = Pair(*(None if side is None else inputs_read(side) for side in (before, after)))
    with _Tables.opened(catalog, before, after) as tables:
        return SnapshotDiff(
            pipeline=catalog.pipeline,
            snapshots=Pair(*(None if side is None else SnapshotName.of(side) for side in (before, after))),
            ancestor=None if ancestor is None else SnapshotName.of_link(ancestor),
            definition=Pair(*(None if side is None else side.fingerprint for side in (before, after))),
            code=code_that_differs(before, after),
            clocks=clocks_between(*progress),
            inputs=inputs_between(read, *(_inputs_since(catalog, side, ancestor) for side in (before, after))),
            stages=tuple(
                tables.stage(number, *watermarks) for number, watermarks in enumerate(watermarks_between(*progress))
            ),
            ids=tables.ids(),
            logs=logs_between(before, after, lambda log: _files_since(catalog, log, ancestor)),
            output=tables.output(limit),
        )


def diff_for_readers(catalog: Catalog, before: Manifest | None, after: Manifest | None, *, limit: int) -> ReadersDiff:
    """What ``diff`` says of ``current``, clocks and input; reads no state, which takes as long again."""
    ancestor = _ancestor(catalog, before, after)
    read = Pair(*(None if side is None else inputs_read(side) for side in (before, after)))
    with _Tables.opened(catalog, before, after, frozenset({UNNAMED.current})) as tables:
        return ReadersDiff(
            clocks=clocks_between(*(None if side is None else StoredProgress.of(side) for side in (before, after))),
            inputs=inputs_between(read, *(_inputs_since(catalog, side, ancestor) for side in (before, after))),
            output=tables.output(limit),
        )


def _ancestor(catalog: Catalog, before: Manifest | None, after: Manifest | None) -> Link | None:
    """The newest snapshot that is, or came before, both, also one that has expired: its epoch is all that is needed."""
    if before is None or after is None:
        return None
    return catalog.common_ancestor(before.snapshot_id, after.snapshot_id)


def _files_since(catalog: Catalog, log: FileLog, ancestor: Link | None) -> Iterator[LoggedFile]:
    """The files that came to ``log`` after ``ancestor``."""
    for record in catalog.files(log, None if ancestor is None else ancestor.epoch):
        yield from record.files


def _inputs_since(catalog: Catalog, manifest: Manifest | None, ancestor: Link | None) -> list[InputFile]:
    """The files that were read up to ``manifest`` and not by ``ancestor``."""
    if manifest is None:
        return []
    files = _files_since(catalog, manifest.logs[INPUTS], ancestor)
    return [file for file in files if isinstance(file, InputFile)]


@dataclass(frozen=True)
class _Tables:
    """The layered tables of both snapshots, in a database; ``local``: where the files are, by path."""

    connection: duckdb.DuckDBPyConnection
    before: Manifest | None
    after: Manifest | None
    local: Mapping[str, Path]

    @classmethod
    @contextmanager
    def opened(
        cls, catalog: Catalog, before: Manifest | None, after: Manifest | None, only: frozenset[str] | None = None
    ) -> Iterator["_Tables"]:
        """With all files verified: those of all tables, or of some ``only``."""
        sides = [side for side in (before, after) if side is not None]
        named = [(side, name) for side in sides for name in side.tables if only is None or name in only]
        files = {file.path: file for side, name in named for file in files_of(side, name)}
        with working_folder() as folder:
            local = dict(zip(files, brought(catalog.store, [*files.values()], folder), strict=True))
            with database(folder, [*local.values()], is_for_us=True) as connection:
                yield cls(connection, before, after, local)

    def stage(self, number: int, input_watermark: Pair[str], output_watermark: Pair[str]) -> StageDiff:
        """Stage ``number``, whose state is a table: key and window, the epoch that wrote the row, what it holds."""
        table = UNNAMED.state(number)
        rows, is_comparable = self._state(table, f"{c.STATUS} = {c.DELETED}")
        return StageDiff(table, input_watermark, output_watermark, rows, is_comparable)

    def ids(self) -> RowCounts:
        """Remembered ids, those that are about to be forgotten among them."""
        return self._state(IDS, "false")[0]

    def _state(self, table: str, gone: str) -> tuple[RowCounts, bool]:
        """How many rows of ``table`` became what, and whether both sides have the same columns, which that takes."""
        before, after = self._paths(self.before, table), self._paths(self.after, table)
        left, right = (shared_columns(files) for files in (before, after))
        fold = _fold_of_state([*(left or right)], gone)
        if left and right and left != right:
            number = fold.number(self.connection, before)
            return RowCounts.apart(number, _fold_of_state([*right], gone).number(self.connection, after)), False
        values = tuple(name for name in (left or right) if name not in {c.HASH, *fold.identity, *fold.place})
        return ComparedTable(before, after, fold, values).counts(self.connection), True

    def output(self, limit: int) -> OutputDiff:
        """``current``."""
        schemas = [ViewColumns.from_json(side.schema) for side in (self.before, self.after) if side is not None]
        if not schemas:
            return OutputDiff(RowCounts())
        left, right = schemas[0], schemas[-1]
        shared = tuple(name for name, kind in left.values.items() if right.values.get(name) == kind)
        fold = fold_of_current(left, (*shared, *_PANE))
        if left.keys != right.keys:
            other = fold_of_current(right, _PANE)
            before, after = current_files(self.before, self.local, fold), current_files(self.after, self.local, other)
            rows = RowCounts.apart(fold.number(self.connection, before), other.number(self.connection, after))
            return OutputDiff(rows, (), _columns_apart(left, right), is_comparable=False)
        before, after = current_files(self.before, self.local, fold), current_files(self.after, self.local, fold)
        compared = ComparedTable(before, after, fold, shared, _PANE)
        rows = compared.counts(self.connection)
        first = compared.first(self.connection, limit, left.order(View.CURRENT))
        return OutputDiff(rows, tuple(first), _columns_apart(left, right))

    def _paths(self, manifest: Manifest | None, table: str) -> list[NamedFile]:
        return [] if manifest is None else [NamedFile(self.local[file.path]) for file in files_of(manifest, table)]


def _fold_of_state(names: Sequence[str], gone: str) -> RecordFold:
    """What stands before the epoch that wrote a row says what it is of; there is nothing to fold without columns."""
    identity = names[: names.index(c.EPOCH)] if names else []
    return RecordFold(tuple(name for name in identity if name != c.HASH), (c.EPOCH,), gone)


def _columns_apart(left: ViewColumns, right: ViewColumns) -> ColumnsDiff:
    """Columns with their types that only one side has."""
    own, other = (
        {name: str(side.schema(View.CURRENT).field(name).type) for name in (*side.keys, *side.values)}
        for side in (left, right)
    )
    return ColumnsDiff(
        {name: kind for name, kind in own.items() if other.get(name) != kind},
        {name: kind for name, kind in other.items() if own.get(name) != kind},
    )
