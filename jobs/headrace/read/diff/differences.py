"""What two snapshots of a pipeline do not have in common, as values: for people and, by ``to_json``, for machines."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from typing import Any, Generic, TypeVar

from headrace.model.time import NEVER, Instant, render
from headrace.read.diff.row_changes import RowChange, RowCounts
from headrace.read.snapshots.progress import InputRead, StoredProgress
from headrace.read.views.columns import LOG_OF_VIEW
from headrace_snapshots.ancestry import Link
from headrace_snapshots.format.filelog import FileLog
from headrace_snapshots.format.files import DataFile, InputFile, LoggedFile
from headrace_snapshots.format.manifest import Manifest

T = TypeVar("T")


@dataclass(frozen=True)
class Pair(Generic[T]):
    """Something in both snapshots; None where one does not have it."""

    before: T | None
    after: T | None

    @property
    def differs(self) -> bool:
        """Whether it is not the same in both."""
        return self.before != self.after

    def to_json(self) -> dict[str, Any]:
        """A JSON value, for what is one itself."""
        return {"before": self.before, "after": self.after}


@dataclass(frozen=True)
class SnapshotName:
    """Which snapshot it is. ``branch`` and ``created_at``: None if it has expired, or its manifest is broken."""

    snapshot: str
    epoch: int
    branch: str | None = None
    created_at: str | None = None

    @classmethod
    def of(cls, manifest: Manifest) -> "SnapshotName":
        """Names the snapshot of ``manifest``."""
        return cls(manifest.snapshot_id, manifest.epoch, manifest.branch, manifest.created_at)

    @classmethod
    def of_link(cls, link: Link) -> "SnapshotName":
        """Names the snapshot of ``link``, as far as its manifest is left."""
        return cls(link.snapshot_id, link.epoch) if link.manifest is None else cls.of(link.manifest)

    def to_json(self) -> dict[str, Any]:
        """A JSON value."""
        return dict(vars(self))


@dataclass(frozen=True)
class InputDiff:
    """How far an input has come in both, and files by path that only one has read, or that were other files when the
    other read them.
    """

    read: Pair[InputRead]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    other_content: tuple[str, ...]

    @property
    def watermark(self) -> Pair[str]:
        """ISO 8601 in UTC."""
        before, after = self.read.before, self.read.after
        return Pair(None if before is None else before.watermark, None if after is None else after.watermark)

    def to_json(self) -> dict[str, Any]:
        """A JSON value."""
        before, after = self.read.before, self.read.after
        figures = {
            name: Pair(getattr(before, name, None), getattr(after, name, None)).to_json()
            for name in ("files", "bytes", "watermark")
        }
        files = {name: [*getattr(self, name)] for name in ("only_before", "only_after", "other_content")}
        return {**figures, **files}


@dataclass(frozen=True)
class StageDiff:
    """The watermarks of a stage, ISO 8601, and the rows of its state. ``is_comparable``: whether both are state of one
    form; if not, all rows of one are removed and all of the other added.
    """

    table: str
    input_watermark: Pair[str]
    output_watermark: Pair[str]
    state: RowCounts
    is_comparable: bool = True

    def to_json(self) -> dict[str, Any]:
        """A JSON value."""
        return {
            "table": self.table,
            "input_watermark": self.input_watermark.to_json(),
            "output_watermark": self.output_watermark.to_json(),
            "state": self.state.to_json(),
            "is_comparable": self.is_comparable,
        }


@dataclass(frozen=True)
class LogDiff:
    """Rows of all files of a log, and how many of them are in files that only one has."""

    rows: Pair[int]
    only_before: int
    only_after: int

    def to_json(self) -> dict[str, Any]:
        """A JSON value."""
        return {"rows": self.rows.to_json(), "only_before": self.only_before, "only_after": self.only_after}


@dataclass(frozen=True)
class ColumnsDiff:
    """Columns of ``current`` that only one has, with their types."""

    only_before: Mapping[str, str] = field(default_factory=dict)
    only_after: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """A JSON value."""
        return {"only_before": dict(self.only_before), "only_after": dict(self.only_after)}


@dataclass(frozen=True)
class OutputDiff:
    """What a reader of ``current`` would see change; rows are compared by the columns that both have. ``first`` are
    some of those that were added, removed or changed, by window and key. ``is_comparable``: whether rows of both have
    the same key; if not, all rows of one are removed and all of the other added.
    """

    rows: RowCounts
    first: tuple[RowChange, ...] = ()
    columns: ColumnsDiff = ColumnsDiff()
    is_comparable: bool = True

    def to_json(self) -> dict[str, Any]:
        """A JSON value."""
        return {
            "rows": self.rows.to_json(),
            "first": [row.to_json() for row in self.first],
            "columns": self.columns.to_json(),
            "is_comparable": self.is_comparable,
        }


@dataclass(frozen=True, repr=False)
class SnapshotDiff:
    """All of it. ``ancestor`` is the newest snapshot that is, or came before, both."""

    pipeline: str
    snapshots: Pair[SnapshotName]
    ancestor: SnapshotName | None
    definition: Pair[str]
    code: tuple[str, ...]
    clocks: Mapping[str, Pair[str]]
    inputs: Mapping[str, InputDiff]
    stages: tuple[StageDiff, ...]
    ids: RowCounts
    logs: Mapping[str, LogDiff]
    output: OutputDiff

    def to_json(self) -> dict[str, Any]:
        """A JSON value: what ``headrace diff --format json`` prints."""
        before, after = self.snapshots.before, self.snapshots.after
        return {
            "pipeline": self.pipeline,
            "before": None if before is None else before.to_json(),
            "after": None if after is None else after.to_json(),
            "ancestor": None if self.ancestor is None else self.ancestor.to_json(),
            "definition": self.definition.to_json(),
            "code": [*self.code],
            "clocks": {name: pair.to_json() for name, pair in self.clocks.items()},
            "inputs": {name: difference.to_json() for name, difference in self.inputs.items()},
            "stages": [stage.to_json() for stage in self.stages],
            "ids": self.ids.to_json(),
            "logs": {name: difference.to_json() for name, difference in self.logs.items()},
            "output": self.output.to_json(),
        }

    def __repr__(self) -> str:
        sides = (self.snapshots.before, self.snapshots.after)
        before, after = ("nothing" if side is None else side.snapshot for side in sides)
        rows = ", ".join(f"{number:,} {name}" for name, number in self.output.rows.to_json().items())
        return f"<diff of {self.pipeline} from {before} to {after}; rows of current: {rows}>"


@dataclass(frozen=True)
class ReadersDiff:
    """What readers see change, and how far clocks and input have come for it."""

    clocks: Mapping[str, Pair[str]]
    inputs: Mapping[str, InputDiff]
    output: OutputDiff

    def to_json(self) -> dict[str, Any]:
        """A JSON value."""
        return {
            "clocks": {name: pair.to_json() for name, pair in self.clocks.items()},
            "inputs": {name: difference.to_json() for name, difference in self.inputs.items()},
            "output": self.output.to_json(),
        }


def code_that_differs(before: Manifest | None, after: Manifest | None) -> tuple[str, ...]:
    """The names of users' own code that only one has, or has otherwise."""
    left, right = ({} if side is None else side.code for side in (before, after))
    return tuple(sorted(name for name in {*left, *right} if left.get(name) != right.get(name)))


def clocks_between(before: StoredProgress | None, after: StoredProgress | None) -> dict[str, Pair[str]]:
    """Clocks that are not those of one stage or input, ISO 8601 in UTC; a deadline that there is not is None."""

    def said(progress: StoredProgress | None) -> dict[str, str | None]:
        if progress is None:
            return {}
        return {
            "watermark": render(progress.watermark),
            "processing_time": render(progress.processing_time),
            "newest_event_time": None if progress.newest is None else render(progress.newest),
            "next_event_time_deadline": _deadline(progress.chain.due_event),
            "next_processing_time_deadline": _deadline(progress.chain.due_time),
        }

    left, right = said(before), said(after)
    return {name: Pair(left.get(name), right.get(name)) for name in {**left, **right}}


def watermarks_between(
    before: StoredProgress | None, after: StoredProgress | None
) -> list[tuple[Pair[str], Pair[str]]]:
    """Input and output watermark of each stage: what goes into a stage is what the one above gives."""

    def said(progress: StoredProgress | None) -> list[tuple[str, str]]:
        if progress is None:
            return []
        given, outputs = progress.watermark_of(progress.chain), progress.chain.output_watermarks
        every = [render(mark) for mark in (given, *outputs)]
        return [*pairwise(every)]

    none = (None, None)
    return [
        (Pair(left[0], right[0]), Pair(left[1], right[1]))
        for left, right in zip_longest(said(before), said(after), fillvalue=none)
    ]


def inputs_between(
    read: Pair[Mapping[str, InputRead]], before: Sequence[InputFile], after: Sequence[InputFile]
) -> dict[str, InputDiff]:
    """``before`` and ``after``: the files that each read since the common ancestor."""
    left, right = ({(file.input, file.path): file for file in files} for files in (before, after))
    counts = read.before or {}, read.after or {}
    inputs = {}
    for name in {**counts[0], **counts[1]}:
        ours, theirs = ({path for at, path in side if at == name} for side in (left, right))
        other = (path for path in ours & theirs if not _is_same(left[name, path], right[name, path]))
        inputs[name] = InputDiff(
            Pair(counts[0].get(name), counts[1].get(name)),
            tuple(sorted(ours - theirs)),
            tuple(sorted(theirs - ours)),
            tuple(sorted(other)),
        )
    return inputs


def logs_between(
    before: Manifest | None, after: Manifest | None, files_since: Callable[[FileLog], Iterable[LoggedFile]]
) -> dict[str, LogDiff]:
    """What each has of panes, late records and dead letters. ``files_since``: the files of a log that the common
    ancestor, which both continue from, has not.
    """

    def log_of(manifest: Manifest | None, name: str) -> FileLog:
        return (None if manifest is None else manifest.logs.get(name)) or FileLog.empty()

    def rows_of(manifest: Manifest | None, name: str) -> int | None:
        return None if manifest is None or name not in manifest.logs else manifest.logs[name].rows

    def rows_apart(name: str) -> tuple[int, int]:
        ours, theirs = (
            {file.path: file.rows for file in files_since(log_of(side, name)) if isinstance(file, DataFile)}
            for side in (before, after)
        )
        return (
            sum(rows for path, rows in ours.items() if path not in theirs),
            sum(rows for path, rows in theirs.items() if path not in ours),
        )

    return {
        str(view): LogDiff(Pair(rows_of(before, name), rows_of(after, name)), *rows_apart(name))
        for view, name in LOG_OF_VIEW.items()
    }


def _is_same(one: InputFile, other: InputFile) -> bool:
    """Whether it had the same content; ETags are compared only where there are no digests of both."""
    if one.digest is not None and other.digest is not None:
        return (one.size, one.digest) == (other.size, other.digest)
    return (one.size, one.etag) == (other.size, other.etag)


def _deadline(due: Instant) -> str | None:
    return None if due >= NEVER else render(due)
