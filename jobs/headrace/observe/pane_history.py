"""The panes of one key as the Dataflow paper draws them, and the keys of which there are panes.

A picture shows over which window and in which epoch each pane was emitted, and where the watermark stood.

Only the newest epochs are looked at, and of them only files of panes. So 100,000 epochs take as long as a hundred.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import islice
from operator import and_
from typing import Any, Final

import pyarrow as pa

from headrace.model.accumulation import WINDOW_END, WINDOW_START
from headrace.model.expressions.expr import col, lit
from headrace.model.time import GLOBAL_WINDOW_END, MIN_INSTANT, Instant, render
from headrace.read.shown_values import JsonFields, as_json
from headrace.read.snapshots.progress import StoredProgress
from headrace.read.views.arrow_types import ExplainError, GivenKey, python_rows, typed_key
from headrace.read.views.columns import View, ViewColumns
from headrace.read.views.conditions import of_key
from headrace.read.views.lazy_view import LazyView
from headrace.read.views.row_files import read_tables
from headrace.read.views.sources import OutputFiles
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.format.manifest import UNNAMED, Manifest
from headrace_snapshots.format.output_view import seen_by

_MOST_ROWS: Final = 500_000
"""Rows of panes that are looked through for keys; the file in which they end is looked through to its end."""

_WINDOW = (WINDOW_START, WINDOW_END)
_PANE_COLUMNS = ("timing", "pane_index", "is_retraction", "epoch", "sequence")
_NEWEST_FIRST = (
    f"{WINDOW_END} desc nulls first, {WINDOW_START} desc nulls first, epoch desc, sequence desc"  # NULL: the global end
)


@dataclass(frozen=True)
class KnownKeys:
    """Keys of which the newest epochs have panes: for each the JSON text that ``PaneHistory.of_key`` takes, and a label
    for people; sorted by label. ``columns``: those of the key. ``has_more``: there may be others.
    """

    columns: tuple[str, ...]
    keys: tuple[tuple[str, str], ...]
    has_more: bool

    def to_json(self) -> dict[str, Any]:
        """A JSON value."""
        return {
            "columns": [*self.columns],
            "keys": [{"key": key, "label": label} for key, label in self.keys],
            "has_more": self.has_more,
        }


@dataclass(frozen=True)
class DrawnPane:
    """A pane, or the retraction of one, and where it stands in the picture. It is drawn over its window, from the end
    of epoch ``after`` to that of ``epoch``, which emitted it. ``after`` is the epoch of the pane before it, of its
    window or of one that was merged into it; else the epoch before the first that took in elements of the window's
    time, of any key.
    """

    start: Instant
    end: Instant
    after: int
    epoch: int
    timing: str
    index: int
    is_retraction: bool
    values: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """A JSON value but for the values. The ends of the global window are None."""
        return {
            "window_start": None if self.start <= MIN_INSTANT else render(self.start),
            "window_end": None if self.end >= GLOBAL_WINDOW_END else render(self.end),
            "after": self.after,
            "epoch": self.epoch,
            "timing": self.timing,
            "pane_index": self.index,
            "is_retraction": self.is_retraction,
            "values": dict(self.values),
        }


@dataclass(frozen=True)
class EpochClock:
    """When an epoch ran, where it left the watermark; ``low``, ``high``: its event times, None without any."""

    epoch: int
    processing_time: Instant
    watermark: Instant
    low: Instant | None
    high: Instant | None

    @classmethod
    def from_manifest(cls, manifest: Manifest) -> "EpochClock":
        """Reads the clocks of ``manifest``. Raises BrokenObjectError."""
        progress = StoredProgress.from_manifest(manifest)
        outputs = progress.chain.output_watermarks
        input_watermark = (progress.watermark_of(progress.chain), *outputs)[max(0, len(outputs) - 1)]
        low, high = progress.min_event_time, progress.max_event_time
        return cls(manifest.epoch, progress.processing_time, input_watermark, low, high)

    def took_in(self, start: Instant, end: Instant) -> bool:
        """Whether it may have taken in elements of that time."""
        return self.low is not None and self.high is not None and self.low < end and start <= self.high

    def to_json(self) -> dict[str, Any]:
        """A JSON value."""
        return {
            "epoch": self.epoch,
            "processing_time": render(self.processing_time),
            "watermark": render(self.watermark),
        }


@dataclass(frozen=True)
class KeyPanes(JsonFields):
    """The panes of one key that the newest epochs emitted, by window, oldest first; the epochs' clocks, oldest first.
    ``has_more``: panes of older windows were left out.
    """

    columns: tuple[str, ...]
    epochs: tuple[EpochClock, ...]
    panes: tuple[DrawnPane, ...]
    has_more: bool


@dataclass(frozen=True)
class PaneHistory:
    """The panes of the newest ``limit`` epochs up to ``head``. Raises BrokenObjectError where files are damaged, and
    UnknownOutputError for a pipeline with several outputs.
    """

    catalog: Catalog
    head: Manifest
    limit: int

    def __post_init__(self) -> None:
        seen_by(self.head, UNNAMED.output)  # which says what to name where there are several outputs

    def newest_keys(self, most: int) -> KnownKeys:
        """The keys that there are, at most ``most``: those with the newest panes. Reads the columns of the key."""
        types = self._columns.keys
        if self._columns.are_rows:  # which have no key
            return KnownKeys((), (), has_more=False)
        if not types:
            return KnownKeys((), (("null", "all elements"),), has_more=False)
        files, is_all = self._newest_files()
        schema = pa.schema([self._columns.arrow_schema(View.PANES).field(name) for name in types])
        labels: dict[str, str] = {}
        names = {file.path: self._columns.names_in_epoch(View.PANES, epoch) for epoch, file in files}
        for table in read_tables(self.catalog.store, [file for _, file in files], schema, names):
            for row in python_rows(table.group_by([*types]).aggregate([])):
                labels.setdefault(json.dumps(row, default=as_json, sort_keys=True), _key_label(row))
            if len(labels) > most:
                break
        newest = sorted([*labels.items()][:most], key=lambda one: one[1])
        return KnownKeys(tuple(types), tuple(newest), has_more=len(labels) > most or not is_all)

    def of_key(self, key: GivenKey, most: int) -> KeyPanes:
        """Panes of a key, at most ``most`` rows: whole windows, the newest of them; if the newest alone has more, its
        newest panes. Raises ExplainError.
        """
        if self._columns.are_rows:
            raise ExplainError(f"pipeline {self.catalog.pipeline} gives rows as they are, which have no key")
        key_columns = typed_key(self._columns.keys, key, f"pipeline {self.catalog.pipeline}", null_keys=True)
        where = reduce(and_, of_key(key_columns), col("epoch") >= lit(self._clocks[0].epoch))
        values = (*self._columns.values,)
        source = OutputFiles(self.catalog, self.head, View.PANES, self._columns, None)
        view = LazyView("panes", source, self.head, where=where, columns=[*_WINDOW, *_PANE_COLUMNS, *values])
        rows = [
            row for batch in view.batches(order=_NEWEST_FIRST, limit=most + 1) for row in _rows_with_instants(batch)
        ]
        return KeyPanes(values, self._clocks, tuple(self._drawn_panes(_whole_windows(rows, most))), len(rows) > most)

    @cached_property
    def _columns(self) -> ViewColumns:
        return ViewColumns.from_json(self.head.schema)

    @cached_property
    def _clocks(self) -> tuple[EpochClock, ...]:
        newest = islice(self.catalog.ancestry(self.head.snapshot_id), self.limit)
        return tuple(EpochClock.from_manifest(manifest) for manifest in newest)[::-1]

    def _newest_files(self) -> tuple[list[tuple[int, DataFile]], bool]:
        """Files of panes with the epochs that wrote them, newest first, and whether these are all of the epochs."""
        files: list[tuple[int, DataFile]] = []
        rows = 0
        for record in self.catalog.newest_files(self.head.logs[UNNAMED.panes]):
            if record.epoch < self._clocks[0].epoch:
                break
            for file in record.files:
                if rows >= _MOST_ROWS:
                    return files, False
                assert isinstance(file, DataFile)
                files.append((record.epoch, file))
                rows += file.rows
        return files, True

    def _drawn_panes(self, rows: Iterable[dict[str, Any]]) -> Iterator[DrawnPane]:
        """The panes of ``rows``, in the order of epochs, and then of windows."""
        last: dict[tuple[Instant, Instant], int] = {}
        order = ("epoch", WINDOW_START, WINDOW_END, "sequence")
        for row in sorted(rows, key=lambda one: tuple(one[name] for name in order)):
            start, end, epoch = row[WINDOW_START], row[WINDOW_END], row["epoch"]
            epochs_before = [
                epoch_of_span for (low, high), epoch_of_span in last.items() if start <= low and high <= end
            ]
            if not row["is_retraction"]:
                last[start, end] = epoch
            yield DrawnPane(
                start=start,
                end=end,
                after=min(max(epochs_before), epoch - 1) if epochs_before else self._before_first(start, end, epoch),
                epoch=epoch,
                timing=row["timing"],
                index=row["pane_index"],
                is_retraction=row["is_retraction"],
                values={name: row[name] for name in self._columns.values},
            )

    def _before_first(self, start: Instant, end: Instant, emission_epoch: int) -> int:
        """The epoch before the first that took in elements of that time, at latest before ``emission_epoch``."""
        first = next((clock.epoch for clock in self._clocks if clock.took_in(start, end)), emission_epoch)
        return min(first, emission_epoch) - 1


def _rows_with_instants(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows as Python's values, windows as instants."""
    ends = {WINDOW_START: MIN_INSTANT, WINDOW_END: GLOBAL_WINDOW_END}
    windows = {name: batch.column(name).cast(pa.int64()).to_pylist() for name in ends}
    rows = python_rows(batch.drop_columns([*ends]))
    for name, instants in windows.items():
        for row, instant in zip(rows, instants, strict=True):
            row[name] = ends[name] if instant is None else Instant(instant)
    return rows


def _whole_windows(rows: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """At most ``most`` of ``rows``, sorted by window, without a window cut short, unless it is the only one."""
    if len(rows) <= most:
        return rows
    cut = [rows[most][name] for name in _WINDOW]
    whole = [row for row in rows[:most] if [row[name] for name in _WINDOW] != cut]
    return whole or rows[:most]


def _key_label(key: Mapping[str, Any]) -> str:
    """A key for people."""
    values = [
        value if isinstance(value, str) else "NULL" if value is None else json.dumps(value, default=as_json)
        for value in key.values()
    ]
    return ", ".join(values) if len(values) == 1 else ", ".join(map("{} = {}".format, key, values))
