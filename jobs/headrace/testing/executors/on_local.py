"""Epochs of a test on the kernel, in this process: the executor ``local`` itself, over a store in memory."""

from dataclasses import replace

import pyarrow as pa

from headrace.distribute.epoch import Attempt
from headrace.distribute.local.engine import LocalEngine
from headrace.ext.sources import SOURCES, OpenSource, SourceSplit
from headrace.ext.stores import ObjectStore
from headrace.model.accumulation import WINDOW_END, WINDOW_START, Timing
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.source import Source
from headrace.read.views.arrow_types import python_rows
from headrace.read.views.columns import View, ViewColumns
from headrace.read.views.row_files import tables
from headrace.sources.landing import Landing
from headrace.state.datafiles.cache import RowsInMemory
from headrace.testing.executors.interface import LATE_COLUMNS, REJECTED_COLUMNS, GivenEpoch, StepOutput
from headrace.testing.files import stand_in
from headrace.testing.results import PaneRow, Row, TimeSpan
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.format.table_names import REJECTED, UNNAMED, OutputTables
from headrace_snapshots.store.memory import MemoryStore

OUTPUT = "output"
"""The column of dead letters that says which output could not take one."""


class LocalTestExecutor:
    """An ``output`` of a pipeline on the kernel."""

    def __init__(self, pipeline: Pipeline, output: str = UNNAMED.output) -> None:
        self._store = MemoryStore()
        self._names = OutputTables(output)
        self._columns = ViewColumns.of(pipeline.by_output[output])
        landing = _Landing(pipeline, self._store)
        self._engine = LocalEngine(pipeline, self._store, landing, _attempt, RowsInMemory())

    def compute(self, epoch: GivenEpoch) -> StepOutput:
        """The next epoch."""
        files = {}
        for name, file in epoch.files.items():
            path = f"landing/{name}/{epoch.number:06}.{stand_in(file.input.source).format}"
            info = self._store.write(path, file.content)
            files[name] = [SourceSplit(info.path, info.size, info.etag)]
        self._engine.pass_watermark(epoch.watermarks)
        computed = self._engine.compute(files, epoch.processing_time, is_last=epoch.is_last, signals=epoch.signals)
        logs = computed.written.logs
        late = [*self._columns.late_keys, *LATE_COLUMNS]
        given = computed.progress.chains[self._names.output].watermark
        return StepOutput(
            panes=[self._pane(epoch.number, row) for row in self._rows(View.PANES, logs[self._names.panes])],
            late=[{name: row[name] for name in late} for row in self._rows(View.LATE, logs[self._names.late])],
            rejected=[{name: row[name] for name in REJECTED_COLUMNS} for row in self._rejected(logs[REJECTED])],
            watermark=computed.progress.watermark if given is None else given,
            ahead=sum(record.records for record in computed.progress.ahead),
        )

    def _rows(self, view: View, files: tuple[DataFile, ...]) -> list[Row]:
        rows = [row for table in tables(self._store, files, self._columns.schema(view)) for row in _python_rows(table)]
        return sorted(rows, key=lambda row: row["sequence"]) if view is View.PANES else rows

    def _rejected(self, files: tuple[DataFile, ...]) -> list[Row]:
        schema = self._columns.schema(View.REJECTED)
        if self._names == UNNAMED:
            return self._rows(View.REJECTED, files)
        named = schema.append(pa.field(OUTPUT, pa.string()))
        rows: list[Row] = [row for table in tables(self._store, files, named) for row in _python_rows(table)]
        return [row for row in rows if row[OUTPUT] == self._names.output]

    def _pane(self, number: int, row: Row) -> PaneRow:
        return PaneRow(
            step=number,
            key={name: row[name] for name in self._columns.keys},
            window=TimeSpan(row["window_start"], row["window_end"]),
            values={name: _value(row[name]) for name in self._columns.values},
            timing=Timing(row["timing"]),
            index=row["pane_index"],
            is_retraction=row["is_retraction"],
            is_first=row["is_first"],
            is_last=row["is_last"],
            time=row["pane_time"],
        )


class _Landing(Landing):
    """Inputs in a store of the test's, wherever the pipeline's own files land."""

    def _open(self, name: str, source: Source, root: ObjectStore) -> OpenSource:
        files = replace(stand_in(source), path=f"landing/{name}")  # type: ignore[type-var]
        return SOURCES["files"].open(files, root)


def _python_rows(table: pa.Table) -> list[Row]:
    """Rows with aware times; of panes and windows one beyond the years that Python has is None, as in
    ``testing.times.real``.
    """
    times = {WINDOW_START, WINDOW_END, "pane_time", "event_time"}
    rows = python_rows(table)
    return [
        {name: None if name in times and isinstance(value, str) else value for name, value in row.items()}
        for row in rows
    ]


def _attempt(epoch: int) -> Attempt:
    return Attempt(f"epoch-{epoch}", f"data/{epoch:06}")


def _value(value: object) -> object:
    """Pairs as tuples."""
    if isinstance(value, list):
        return [tuple(item.values()) if isinstance(item, dict) else item for item in value]
    return value
