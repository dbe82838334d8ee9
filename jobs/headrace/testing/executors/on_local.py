"""Epochs of a test on the kernel, in this process: the executor ``local`` itself, over a store in memory."""

from headrace.distribute.epoch import Attempt
from headrace.distribute.local.engine import LocalEngine
from headrace.model.panes import Timing
from headrace.pipeline.pipeline import Pipeline
from headrace.read.views.columns import View, ViewColumns
from headrace.read.views.row_files import tables
from headrace.sources.file_planning import LandedFile
from headrace.sources.landing import Landing, Place
from headrace.state.datafiles.cache import RowsInMemory
from headrace.testing.executors.interface import LATE_COLUMNS, REJECTED_COLUMNS, GivenEpoch, StepOutput
from headrace.testing.results import PaneRow, Row, TimeSpan
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.format.table_names import REJECTED, UNNAMED
from headrace_snapshots.store.memory import MemoryStore
from headrace_snapshots.store.port import ObjectStore


class LocalTestExecutor:
    """A pipeline on the kernel."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._store = MemoryStore()
        self._columns = ViewColumns.of(pipeline)
        landing = _Landing(pipeline, self._store)
        self._engine = LocalEngine(pipeline, self._store, landing, _attempt, RowsInMemory())

    def compute(self, epoch: GivenEpoch) -> StepOutput:
        """The next epoch."""
        files = {}
        for name, file in epoch.files.items():
            path = f"landing/{name}/{epoch.number:06}.{file.input.source.format}"
            info = self._store.write(path, file.content)
            files[name] = [LandedFile(info.path, info.size, info.etag)]
        self._engine.pass_watermark(epoch.watermarks)
        computed = self._engine.compute(files, epoch.processing_time, is_last=epoch.is_last, signals=epoch.signals)
        logs = computed.written.logs
        late = [*self._columns.late_keys, *LATE_COLUMNS]
        return StepOutput(
            panes=[self._pane(epoch.number, row) for row in self._rows(View.PANES, logs[UNNAMED.panes])],
            late=[{name: row[name] for name in late} for row in self._rows(View.LATE, logs[UNNAMED.late])],
            rejected=[
                {name: row[name] for name in REJECTED_COLUMNS} for row in self._rows(View.REJECTED, logs[REJECTED])
            ],
            watermark=computed.progress.watermark,
            ahead=sum(record.records for record in computed.progress.ahead),
        )

    def _rows(self, view: View, files: tuple[DataFile, ...]) -> list[Row]:
        rows = [row for table in tables(self._store, files, self._columns.schema(view)) for row in table.to_pylist()]
        return sorted(rows, key=lambda row: row["sequence"]) if view is View.PANES else rows

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

    def __init__(self, pipeline: Pipeline, store: ObjectStore) -> None:
        self.places = {given.name: Place(store, f"landing/{given.name}", given.source) for given in pipeline.inputs}


def _attempt(epoch: int) -> Attempt:
    return Attempt(f"epoch-{epoch}", f"data/{epoch:06}")


def _value(value: object) -> object:
    """Pairs as tuples."""
    if isinstance(value, list):
        return [tuple(item.values()) if isinstance(item, dict) else item for item in value]
    return value
