"""The view ``state``: what open windows hold, have emitted, and wait for. No result: readers who rely on it would rely
on what may still change.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.kernel.firing.pane_values import results
from headrace.kernel.stage import CompiledStage
from headrace.kernel.types import TIMESTAMP, timestamps
from headrace.model.accumulation import WINDOW_END, WINDOW_START
from headrace.model.time import END_OF_CALENDAR, NEVER
from headrace.pipeline.pipeline import Pipeline
from headrace.program import columns as c
from headrace.read.explain.waiting import Readiness, StageState
from headrace.read.snapshots.damage import ways_out
from headrace.read.views.columns import STATE
from headrace.read.views.conditions import QueryError
from headrace.read.views.database import literal
from headrace.state.datafiles.cache import LayerCache
from headrace_snapshots.catalog import Catalog

STAGE, NEW, PANES, NOT_EARLY = "_stage", "_new_elements", "_panes", "_panes_not_early"
WAITS_FOR, DUE_WATERMARK, DUE_TIME, EPOCH = "_waits_for", "_due_watermark", "_due_time", "_epoch"

if TYPE_CHECKING:
    import duckdb

    from headrace.read.views.conditions import RowCondition

_NO_LIMIT = 2**62


def state_columns(pipeline: Pipeline, number: int) -> pa.Schema:
    """The columns of the view for aggregation ``number``: key, aggregates so far, window, and what Headrace says of it,
    whose names begin with _.

    ``_stage`` is the number of the aggregation; ``_new_elements`` counts what came since the last pane, ``_panes``
    those that the window has emitted, and ``_panes_not_early`` those among them on time or late; ``_waits_for`` says
    what its trigger waits for, in words; ``_due_watermark`` and ``_due_time`` are the watermark and the processing time
    at which the window is asked next, whatever comes; ``_epoch`` is the epoch that changed it last.
    """
    panes = CompiledStage(pipeline.stages[number - 1]).pane_schema
    own = pipeline.stages[number - 1]
    named = [*own.key_types, *own.value_types]
    return pa.schema(
        [
            *(panes.field(name) for name in named),
            (WINDOW_START, TIMESTAMP),
            (WINDOW_END, TIMESTAMP),
            (STAGE, pa.int64()),
            (NEW, pa.int64()),
            (PANES, pa.int64()),
            (NOT_EARLY, pa.int64()),
            (WAITS_FOR, pa.string()),
            (DUE_WATERMARK, TIMESTAMP),
            (DUE_TIME, TIMESTAMP),
            (EPOCH, pa.int64()),
        ]
    )


def open_only(windows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of state that belong to open windows."""
    return windows.filter(pc.equal(windows.column(c.STATUS), c.OPEN))


def values_so_far(stage: CompiledStage, windows: pa.RecordBatch) -> dict[str, pa.Array]:
    """The aggregates of what open ``windows`` hold: in discarding mode, of what came since the last pane."""
    rows = {name: windows.column(name) for name in windows.schema.names}
    every = np.arange(windows.num_rows)
    so_far = results(stage, rows, every, np.zeros(len(every), np.bool_))
    return {name: values.cast(stage.pane_type.field(name).type) for name, values in so_far.items()}


@dataclass(frozen=True)
class OpenWindows:
    """The rows of the view. ``state`` is None where there is no snapshot; ``ref``: by what it was found."""

    catalog: Catalog
    pipeline: Pipeline
    number: int
    state: StageState | None
    ref: str | None

    @cached_property
    def columns(self) -> pa.Schema:
        """``state_columns``."""
        return state_columns(self.pipeline, self.number)

    @property
    def column_names(self) -> Sequence[str]:
        """Names of ``columns``."""
        return [*self.columns.names]

    @property
    def keys(self) -> Sequence[str]:
        """The columns of the aggregation's key."""
        return [*self.pipeline.stages[self.number - 1].key_types]

    @property
    def order(self) -> Sequence[str]:
        """By window and key."""
        return [WINDOW_START, *self.keys, WINDOW_END]

    rows = None
    identity = None

    @property
    def bytes_to_read(self) -> int:
        """The length of all files of state."""
        return 0 if self.state is None else self.state.bytes

    def beginning(self, rows: int) -> "OpenWindows":
        """All of them: they are worked out."""
        del rows
        return self

    def where(self, condition: "RowCondition") -> "OpenWindows":
        """All of them: they are worked out."""
        del condition
        return self

    def describe(self) -> str:
        """What they are not."""
        return "open windows, which may still change and are no results"

    def files(self) -> list[str]:
        """Raise QueryError: there are none for other readers."""
        raise QueryError(
            f"the files of {STATE} are the engine's own; `headrace read --view {STATE}` shows what they hold"
        )

    def verify(self) -> None:
        """Nothing: there are none for other readers."""

    def bring(self, folder: Path) -> list[Path]:
        """The rows as files of ``folder``, worked out a part of the keys at a time; files of state are verified."""
        if self.state is None:
            return []
        paths = []
        cache = LayerCache(folder / "state", _NO_LIMIT)
        with ways_out(self.catalog, self.ref or ""):
            for number, part in enumerate(self.state.parts):
                windows = open_only(self.state.windows(cache, part))
                if windows.num_rows:
                    paths.append(folder / f"{number:06}.parquet")
                    pq.write_table(pa.Table.from_batches([self._shown(windows)]), paths[-1])
        return paths

    def relation(self, connection: "duckdb.DuckDBPyConnection", files: Sequence[Path]) -> "duckdb.DuckDBPyRelation":
        """The rows, as ``bring`` wrote them."""
        if not files:
            return self.no_rows(connection)
        return connection.sql(f"select * from read_parquet([{', '.join(literal(str(file)) for file in files)}])")

    def no_rows(self, connection: "duckdb.DuckDBPyConnection") -> "duckdb.DuckDBPyRelation":
        """An empty batch with the types of the view."""
        return connection.from_arrow(self.columns.empty_table())

    def _shown(self, windows: pa.RecordBatch) -> pa.RecordBatch:
        assert self.state is not None
        stage = self.state.stage
        columns = {name: windows.column(name) for name in stage.keys}
        columns |= values_so_far(stage, windows)
        columns |= {
            WINDOW_START: timestamps(windows.column(c.WINDOW_START)),
            WINDOW_END: timestamps(windows.column(c.WINDOW_END)),
            STAGE: pa.repeat(pa.scalar(self.number, pa.int64()), windows.num_rows),
            NEW: windows.column(c.NEW),
            PANES: windows.column(c.INDEX),
            NOT_EARLY: windows.column(c.NONSPECULATIVE),
            WAITS_FOR: pa.array(Readiness(stage).words(windows, self.state.clocks), pa.string()),
            DUE_WATERMARK: _in_calendar(pc.add(windows.column(c.DUE_EVENT), 1)),
            DUE_TIME: _in_calendar(windows.column(c.DUE_TIME)),
            EPOCH: windows.column(c.EPOCH),
        }
        schema = self.columns
        return pa.RecordBatch.from_arrays([columns[field.name].cast(field.type) for field in schema], schema=schema)


def _in_calendar(dues: pa.Array) -> pa.Array:
    """When rows are due, NULL for never, and for what no calendar names."""
    return timestamps(pc.if_else(pc.less_equal(dues, int(END_OF_CALENDAR)), dues, int(NEVER)))
