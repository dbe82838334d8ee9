"""What differs between two snapshots as one output sees them: their manifests and rows compared, as values for people.

The output may have another name in either snapshot (``compared_sides``).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from operator import attrgetter
from pathlib import Path
from typing import Any, Generic, TypeVar

import duckdb

from headrace.model.accumulation import FIRING_COLUMNS
from headrace.model.time import NEVER, Instant, render
from headrace.program import columns as c
from headrace.read.diff import layered_tables
from headrace.read.diff.layered_tables import RowSets
from headrace.read.shown_values import JsonFields
from headrace.read.snapshots.progress import InputRead, StoredProgress, inputs_read
from headrace.read.snapshots.snapshot_refs import At, snapshot_at
from headrace.read.views.columns import LOG_OF_VIEW, View, ViewColumns
from headrace.read.views.row_files import NamedFile, open_database_of
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.catalog_reader import Link
from headrace_snapshots.format.files import DataFile, FileLog, InputFile, LoggedFile
from headrace_snapshots.format.manifest import IDS, INPUTS, UNNAMED, Manifest
from headrace_snapshots.format.output_view import UnknownOutputError, called_on, output_names, seen_by
from headrace_snapshots.names import MAIN
from headrace_snapshots.output_catalog import OutputCatalog, seen_catalog


def compared_sides(catalog: Catalog, old_ref: At, new_ref: At) -> tuple[Manifest | None, Manifest | None]:
    """What the output of ``catalog`` has at ``old_ref`` and ``new_ref``; None where there is no snapshot yet. One of
    them may know it by another name, which the names that the other has recorded tell.

    Raises UnknownOutputError if neither has it, and what ``snapshot_at`` does.
    """
    sides = [_manifest_of_side(catalog, side_at) for side_at in (old_ref, new_ref)]
    if isinstance(catalog, OutputCatalog):
        for number, side_at in enumerate((old_ref, new_ref)):
            side, other = sides[number], sides[1 - number]
            if not isinstance(side, Manifest) and isinstance(other, Manifest):
                sides[number] = _by_other_name(catalog, side_at, other.snapshot_id, side)
    for side in sides:
        if isinstance(side, UnknownOutputError):
            raise side
    left, right = (side if isinstance(side, Manifest) else None for side in sides)
    return left, right


def _manifest_of_side(catalog: Catalog, side_at: At) -> Manifest | UnknownOutputError | None:
    try:
        manifest = snapshot_at(catalog, side_at).manifest
        return None if manifest is None else seen_by(manifest, UNNAMED.output)
    except UnknownOutputError as error:
        return error


def _by_other_name(
    catalog: OutputCatalog, side_at: At, known_in: str, failure: UnknownOutputError | None
) -> Manifest | UnknownOutputError | None:
    """What is at ``side_at`` of the output that has the name of ``catalog`` in the snapshot ``known_in``."""
    whole, known_manifest = catalog.whole, catalog.whole.manifest(known_in)
    known_name = catalog.called_at(known_in)
    own_manifest = snapshot_at(whole, side_at if failure is not None else MAIN).manifest
    if own_manifest is None or known_name not in output_names(known_manifest):
        return failure
    own_name = called_on(own_manifest, known_manifest)[known_name]
    if own_name is None:  # it came later, and has the name since
        own_name = next(
            (name for name, name_then in called_on(known_manifest, own_manifest).items() if name_then == known_name),
            None,
        )
    return (
        failure
        if own_name is None or own_name == known_name
        else _manifest_of_side(seen_catalog(whole, own_name), side_at)
    )


T = TypeVar("T")
S = TypeVar("S")
Sides = tuple[Manifest | None, Manifest | None]
"""The snapshots before and after; None: there is none yet."""


@dataclass(frozen=True)
class Pair(JsonFields, Generic[T]):
    """Something in both snapshots; None where one does not have it."""

    before: T | None
    after: T | None

    @classmethod
    def of_sides(cls, read: Callable[[S], T | None], old_side: S | None, new_side: S | None) -> "Pair[T]":
        """What ``read`` gives of each side that there is."""
        return cls(*(None if side is None else read(side) for side in (old_side, new_side)))

    @property
    def differs(self) -> bool:
        """Whether it is not the same in both."""
        return self.before != self.after


@dataclass(frozen=True)
class SnapshotName(JsonFields):
    """Which snapshot it is. ``branch`` and ``created_at``: None if it has expired, or its manifest is broken."""

    snapshot: str
    epoch: int
    branch: str | None = None
    created_at: str | None = None

    @classmethod
    def from_manifest(cls, manifest: Manifest) -> "SnapshotName":
        return cls(manifest.snapshot_id, manifest.epoch, manifest.branch, manifest.created_at)

    @classmethod
    def of_link(cls, link: Link) -> "SnapshotName":
        """Names the snapshot of ``link``, as far as its manifest is left."""
        return cls(link.snapshot_id, link.epoch) if link.manifest is None else cls.from_manifest(link.manifest)


@dataclass(frozen=True)
class InputDiff:
    """How far an input has come in both, and the paths of files in which they differ. A file was read by one side only,
    or had other content when the other side read it.
    """

    read: Pair[InputRead]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    other_content: tuple[str, ...]

    @property
    def watermark(self) -> Pair[str]:
        """ISO 8601 in UTC."""
        return Pair.of_sides(attrgetter("watermark"), self.read.before, self.read.after)

    def to_json(self) -> dict[str, Any]:
        """A JSON value."""
        names = ("files", "bytes", "watermark")
        figures = {name: Pair.of_sides(attrgetter(name), self.read.before, self.read.after).to_json() for name in names}
        files = {name: [*getattr(self, name)] for name in ("only_before", "only_after", "other_content")}
        return {**figures, **files}


@dataclass(frozen=True)
class StageDiff(JsonFields):
    """The watermarks of a stage, ISO 8601, and the rows of its state. ``is_comparable``: whether both are state of one
    form; if not, all rows of one are removed and all of the other added.
    """

    table: str
    input_watermark: Pair[str]
    output_watermark: Pair[str]
    state: layered_tables.RowCounts
    is_comparable: bool = True


@dataclass(frozen=True)
class LogDiff(JsonFields):
    """Rows of all files of a log, and how many of them are in files that only one has."""

    rows: Pair[int]
    only_before: int
    only_after: int


@dataclass(frozen=True)
class ColumnsDiff(JsonFields):
    """Columns of ``current`` that only one has, with their types."""

    only_before: Mapping[str, str] = field(default_factory=dict)
    only_after: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class OutputDiff(JsonFields):
    """What a reader of ``current`` would see change; rows are compared by the columns that both have. ``first`` are
    some of those that were added, removed or changed, by window and key. ``is_comparable``: whether both have the same
    key, or rows of the same columns; if not, all rows of one are removed and all of the other added.
    """

    rows: layered_tables.RowCounts
    first: tuple[layered_tables.RowChange, ...] = ()
    columns: ColumnsDiff = ColumnsDiff()
    is_comparable: bool = True


@dataclass(frozen=True, repr=False)
class SnapshotDiff(JsonFields):
    """All of it. ``ancestor`` is the newest snapshot that is, or came before, both."""

    pipeline: str
    snapshots: Pair[SnapshotName]
    ancestor: SnapshotName | None
    definition: Pair[str]
    code: tuple[str, ...]
    clocks: Mapping[str, Pair[str]]
    inputs: Mapping[str, InputDiff]
    stages: tuple[StageDiff, ...]
    ids: layered_tables.RowCounts
    logs: Mapping[str, LogDiff]
    output: OutputDiff

    def to_json(self) -> dict[str, Any]:
        """A JSON value: what ``headrace diff --format json`` prints."""
        own = super().to_json()
        return {"pipeline": own.pop("pipeline"), **own.pop("snapshots"), **own}

    def __repr__(self) -> str:
        sides = (self.snapshots.before, self.snapshots.after)
        text_before, text_after = ("nothing" if side is None else side.snapshot for side in sides)
        rows = ", ".join(f"{number:,} {name}" for name, number in self.output.rows.to_json().items())
        return f"<diff of {self.pipeline} from {text_before} to {text_after}; rows of current: {rows}>"


@dataclass(frozen=True)
class ReadersDiff(JsonFields):
    """What readers see change, and how far clocks and input have come for it."""

    clocks: Mapping[str, Pair[str]]
    inputs: Mapping[str, InputDiff]
    output: OutputDiff


def code_that_differs(old_manifest: Manifest | None, new_manifest: Manifest | None) -> tuple[str, ...]:
    """The names of users' own code that only one has, or has otherwise."""
    left, right = ({} if side is None else side.code for side in (old_manifest, new_manifest))
    return tuple(sorted(name for name in {*left, *right} if left.get(name) != right.get(name)))


def clocks_between(old_progress: StoredProgress | None, new_progress: StoredProgress | None) -> dict[str, Pair[str]]:
    """Clocks that are not those of one stage or input, ISO 8601 in UTC; a deadline that there is not is None."""

    def clock_texts(progress: StoredProgress | None) -> dict[str, str | None]:
        if progress is None:
            return {}
        return {
            "watermark": render(progress.watermark),
            "processing_time": render(progress.processing_time),
            "newest_event_time": None if progress.newest is None else render(progress.newest),
            "next_event_time_deadline": _deadline_text(progress.chain.due_event),
            "next_processing_time_deadline": _deadline_text(progress.chain.due_time),
        }

    left, right = clock_texts(old_progress), clock_texts(new_progress)
    return {name: Pair(left.get(name), right.get(name)) for name in {**left, **right}}


def watermarks_between(
    old_progress: StoredProgress | None, new_progress: StoredProgress | None
) -> list[tuple[Pair[str], Pair[str]]]:
    """Input and output watermark of each stage: what goes into a stage is what the one above gives."""

    def watermark_texts(progress: StoredProgress | None) -> list[tuple[str, str]]:
        if progress is None:
            return []
        own_watermark, outputs = progress.watermark_of(progress.chain), progress.chain.output_watermarks
        every = [render(mark) for mark in (own_watermark, *outputs)]
        return [*pairwise(every)]

    none = (None, None)
    return [
        (Pair(left[0], right[0]), Pair(left[1], right[1]))
        for left, right in zip_longest(watermark_texts(old_progress), watermark_texts(new_progress), fillvalue=none)
    ]


def inputs_between(
    read: Pair[Mapping[str, InputRead]], old_files: Sequence[InputFile], new_files: Sequence[InputFile]
) -> dict[str, InputDiff]:
    """``old_files`` and ``new_files``: the files that each read since the common ancestor."""
    left, right = ({(file.input, file.path): file for file in files} for files in (old_files, new_files))
    counts = read.before or {}, read.after or {}
    inputs = {}
    for name in {**counts[0], **counts[1]}:
        ours, theirs = ({path for input_name, path in side if input_name == name} for side in (left, right))
        other = (path for path in ours & theirs if not _is_same(left[name, path], right[name, path]))
        inputs[name] = InputDiff(
            Pair(counts[0].get(name), counts[1].get(name)),
            tuple(sorted(ours - theirs)),
            tuple(sorted(theirs - ours)),
            tuple(sorted(other)),
        )
    return inputs


def logs_between(
    old_manifest: Manifest | None, new_manifest: Manifest | None, files_since: Callable[[FileLog], Iterable[LoggedFile]]
) -> dict[str, LogDiff]:
    """Panes, late records and dead letters of each. ``files_since``: files of a log after the common ancestor."""

    def log_of(manifest: Manifest | None, name: str) -> FileLog:
        return (None if manifest is None else manifest.logs.get(name)) or FileLog.empty()

    def rows_of(manifest: Manifest | None, name: str) -> int | None:
        return None if manifest is None or name not in manifest.logs else manifest.logs[name].rows

    def rows_apart(name: str) -> tuple[int, int]:
        ours, theirs = (
            {file.path: file.rows for file in files_since(log_of(side, name)) if isinstance(file, DataFile)}
            for side in (old_manifest, new_manifest)
        )
        return (
            sum(rows for path, rows in ours.items() if path not in theirs),
            sum(rows for path, rows in theirs.items() if path not in ours),
        )

    return {
        str(view): LogDiff(Pair(rows_of(old_manifest, name), rows_of(new_manifest, name)), *rows_apart(name))
        for view, name in LOG_OF_VIEW.items()
    }


def _is_same(one: InputFile, other: InputFile) -> bool:
    """Whether it had the same content; ETags are compared only where there are no digests of both."""
    if one.digest is not None and other.digest is not None:
        return (one.size, one.digest) == (other.size, other.digest)
    return (one.size, one.etag) == (other.size, other.etag)


def _deadline_text(due: Instant) -> str | None:
    return None if due >= NEVER else render(due)


def diff_snapshots(
    catalog: Catalog, old_manifest: Manifest | None, new_manifest: Manifest | None, *, limit: int
) -> SnapshotDiff:
    """What a reader would see change from ``old_manifest`` to ``new_manifest`` (None: no snapshot yet), and what lies
    under it; at most ``limit`` rows are given, all are counted.

    Reads the state and ``current`` of both. Memory is that of readers (HEADRACE_READ_MEMORY). Raises BrokenObjectError,
    ReadResourcesError.
    """
    sides = (old_manifest, new_manifest)
    ancestor = _common_ancestor(catalog, old_manifest, new_manifest)
    progress = Pair.of_sides(StoredProgress.from_manifest, *sides)
    read = Pair.of_sides(inputs_read, *sides)
    with _Tables.open_verified(catalog, sides) as tables:
        return SnapshotDiff(
            pipeline=catalog.pipeline,
            snapshots=Pair.of_sides(SnapshotName.from_manifest, *sides),
            ancestor=None if ancestor is None else SnapshotName.of_link(ancestor),
            definition=Pair.of_sides(attrgetter("fingerprint"), *sides),
            code=code_that_differs(old_manifest, new_manifest),
            clocks=clocks_between(progress.before, progress.after),
            inputs=inputs_between(read, *(_inputs_since(catalog, side, ancestor) for side in sides)),
            stages=tuple(
                tables.compare_stage(number, *watermarks)
                for number, watermarks in enumerate(watermarks_between(progress.before, progress.after))
            ),
            ids=tables.compare_ids(),
            logs=logs_between(old_manifest, new_manifest, lambda log: _files_since(catalog, log, ancestor)),
            output=tables.compare_output(limit),
        )


def diff_for_readers(
    catalog: Catalog, old_manifest: Manifest | None, new_manifest: Manifest | None, *, limit: int
) -> ReadersDiff:
    """What ``diff_snapshots`` says of ``current``, clocks and input; reads no state, which takes as long again."""
    sides = (old_manifest, new_manifest)
    ancestor = _common_ancestor(catalog, old_manifest, new_manifest)
    progress = Pair.of_sides(StoredProgress.from_manifest, *sides)
    read = Pair.of_sides(inputs_read, *sides)
    with _Tables.open_verified(catalog, sides, UNNAMED.current) as tables:
        return ReadersDiff(
            clocks=clocks_between(progress.before, progress.after),
            inputs=inputs_between(read, *(_inputs_since(catalog, side, ancestor) for side in sides)),
            output=tables.compare_output(limit),
        )


def _common_ancestor(catalog: Catalog, old_manifest: Manifest | None, new_manifest: Manifest | None) -> Link | None:
    """The newest snapshot that is, or came before, both, also one that has expired: its epoch is all that is needed."""
    if old_manifest is None or new_manifest is None:
        return None
    return catalog.common_ancestor(old_manifest.snapshot_id, new_manifest.snapshot_id)


def _files_since(catalog: Catalog, log: FileLog, ancestor: Link | None) -> Iterator[LoggedFile]:
    """The files that came to ``log`` after ``ancestor``."""
    for record in catalog.file_records(log, None if ancestor is None else ancestor.epoch):
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
    sides: Sides
    local: Mapping[str, Path]

    @classmethod
    @contextmanager
    def open_verified(cls, catalog: Catalog, sides: Sides, only_table: str | None = None) -> Iterator["_Tables"]:
        """With all files verified: those of all tables, or of ``only_table``."""
        named_tables = [(side, name) for side in sides if side is not None for name in side.tables]
        files = (
            file
            for side, name in named_tables
            if only_table in (None, name)
            for file in layered_tables.files_of(side, name)
        )
        with open_database_of(catalog.store, files) as (connection, local):
            yield cls(connection, sides, local)

    def compare_stage(self, number: int, input_watermark: Pair[str], output_watermark: Pair[str]) -> StageDiff:
        """Stage ``number``, whose state is a table: key and window, the epoch that wrote the row, what it holds."""
        table = UNNAMED.state_table(number)
        rows, is_comparable = self._compare_table(table, f"{c.STATUS} = {c.STATUS_GONE}")
        return StageDiff(table, input_watermark, output_watermark, rows, is_comparable)

    def compare_ids(self) -> layered_tables.RowCounts:
        """Remembered ids, those that are about to be forgotten among them."""
        return self._compare_table(IDS, "false")[0]

    def _compare_table(self, table: str, gone_condition: str) -> tuple[layered_tables.RowCounts, bool]:
        """How many rows of ``table`` became what, and whether both sides have the same columns, which that takes."""
        files_before, files_after = (self._table_files(side, table) for side in self.sides)
        left, right = (layered_tables.shared_columns(files) for files in (files_before, files_after))
        fold = _fold_of_state([*(left or right)], gone_condition)
        if left and right and left != right:
            number = fold.count_rows(self.connection, files_before)
            return layered_tables.RowCounts.from_incomparable(
                number, _fold_of_state([*right], gone_condition).count_rows(self.connection, files_after)
            ), False
        values = tuple(name for name in (left or right) if name not in {c.HASH, *fold.identity, *fold.place})
        return layered_tables.ComparedTable(files_before, files_after, fold, values).row_counts(self.connection), True

    def compare_output(self, limit: int) -> OutputDiff:
        """``current``. Rows as they are compare where both sides have the same columns, others by the same key."""
        schemas = [ViewColumns.from_json(side.schema) for side in self.sides if side is not None]
        if not schemas:
            return OutputDiff(layered_tables.RowCounts())
        left, right = schemas[0], schemas[-1]
        are_rows = left.are_rows or right.are_rows
        shared_columns = tuple(name for name, kind in left.values.items() if right.values.get(name) == kind)
        others = () if are_rows else (*shared_columns, *FIRING_COLUMNS)
        folds = [layered_tables.fold_of_current(side, others) for side in (left, right)]
        if are_rows:
            is_comparable = (left.folding, left.values) == (right.folding, right.values)
        elif is_comparable := left.keys == right.keys:
            folds[1] = folds[0]
        files = [
            layered_tables.current_files(side, self.local, fold) for side, fold in zip(self.sides, folds, strict=True)
        ]
        columns = _columns_apart(left, right)
        if not is_comparable:
            numbers = (fold.count_rows(self.connection, own) for fold, own in zip(folds, files, strict=True))
            return OutputDiff(layered_tables.RowCounts.from_incomparable(*numbers), (), columns, is_comparable=False)
        comparison: RowSets | layered_tables.ComparedTable = (
            RowSets(files[0], files[1], folds[1], right)
            if are_rows
            else layered_tables.ComparedTable(files[0], files[1], folds[0], shared_columns, FIRING_COLUMNS)
        )
        rows = comparison.row_counts(self.connection)
        order = (right if are_rows else left).row_order(View.CURRENT)
        return OutputDiff(rows, tuple(comparison.first_changes(self.connection, limit, order)), columns)

    def _table_files(self, manifest: Manifest | None, table: str) -> list[NamedFile]:
        files = [] if manifest is None else layered_tables.files_of(manifest, table)
        return [NamedFile(self.local[file.path]) for file in files]


def _fold_of_state(names: Sequence[str], gone_condition: str) -> layered_tables.RecordFold:
    """What stands before the epoch that wrote a row says what it is of; there is nothing to fold without columns."""
    identity = names[: names.index(c.EPOCH)] if names else []
    return layered_tables.RecordFold(tuple(name for name in identity if name != c.HASH), (c.EPOCH,), gone_condition)


def _columns_apart(left: ViewColumns, right: ViewColumns) -> ColumnsDiff:
    """Columns with their types that only one side has."""
    own, other = (
        {name: str(side.arrow_schema(View.CURRENT).field(name).type) for name in (*side.keys, *side.values)}
        for side in (left, right)
    )
    return ColumnsDiff(
        {name: kind for name, kind in own.items() if other.get(name) != kind},
        {name: kind for name, kind in other.items() if own.get(name) != kind},
    )
