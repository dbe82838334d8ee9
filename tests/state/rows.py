"""State rows for tests: of a stage whose rows hold strings, decimals and lists of panes, as random ones and as many."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from headrace import DataType, discarding
from headrace.kernel.keys import hash_keys
from headrace.kernel.stage import CompiledStage
from headrace.kernel.step import in_order
from headrace.model.time import NEVER
from headrace.program import columns as c
from headrace.state.sorted_file import SortedFile, StateLayer
from tests.building import change_pipeline
from tests.process.clicks import CLICKS

STAGE = CompiledStage(CLICKS.stages[0])
"""Of a key that is a string; its rows remember panes."""

HOUR = 3_600_000_000

_SOURCE = replace(CLICKS.source, schema={**CLICKS.source.schema, "user": DataType.INT})
COUNTS = CompiledStage(change_pipeline(CLICKS, source=_SOURCE, how=discarding(timedelta(days=1))).stages[0])
"""Of a key that is an integer, without panes: for many rows."""


class Row(NamedTuple):
    """What of a state row matters to layers."""

    key: str
    start: int
    status: int = c.STATUS_OPEN
    due_event: int = int(NEVER)
    due_time: int = int(NEVER)
    hold: int | None = None


DUES = st.integers(0, 9) | st.just(int(NEVER))
ROWS = st.builds(
    Row,
    key=st.sampled_from([f"key {number}" for number in range(12)]),
    start=st.integers(0, 4),
    status=st.sampled_from([c.STATUS_OPEN, c.STATUS_OPEN, c.STATUS_CLOSED, c.STATUS_GONE]),
    due_event=DUES,
    due_time=DUES,
    hold=st.none() | st.integers(0, 9),
)
BATCHES = st.lists(ROWS, max_size=40, unique_by=lambda row: (row.key, row.start))
"""Rows of one layer."""


def batch(rows: Sequence[Row], epoch: int = 0, bits: int = 64) -> pa.RecordBatch:
    """``rows`` as an epoch writes them; only the top ``bits`` of their hashes are not zero."""
    keys = pa.array([row.key for row in rows], pa.string())
    hashes = hash_keys([keys]) >> np.uint64(64 - bits) << np.uint64(64 - bits)
    return _batch(STAGE, keys, hashes, rows, epoch)


def _batch(stage: CompiledStage, keys: pa.Array, hashes: Any, rows: Sequence[Row], epoch: int) -> pa.RecordBatch:
    live = stage.state_schema.field(c.LIVE).type
    arrays_by_column = {
        c.HASH: pa.array(hashes),
        "user": keys,
        c.WINDOW_START: pa.array([row.start * HOUR for row in rows], pa.int64()),
        c.WINDOW_END: pa.array([(row.start + 1) * HOUR for row in rows], pa.int64()),
        c.EPOCH: pa.array([epoch] * len(rows), pa.int64()),
        c.STATUS: pa.array([row.status for row in rows], pa.int32()),
        c.DUE_EVENT: pa.array([row.due_event for row in rows], pa.int64()),
        c.DUE_TIME: pa.array([row.due_time for row in rows], pa.int64()),
        c.HOLD: pa.array([row.hold for row in rows], pa.int64()),
        c.LIVE: pa.array([[{"timing": row.key}] * (row.start % 5) for row in rows], live),
    }
    columns = [arrays_by_column.get(field.name, pa.nulls(len(rows), field.type)) for field in stage.state_schema]
    return in_order(pa.RecordBatch.from_arrays(columns, schema=stage.state_schema))


def many(first: int, last: int, step: int = 1, epoch: int = 0) -> pa.RecordBatch:
    """Rows of the integer keys ``first`` to ``last``, exclusive: one window each, of a stage that counts."""
    keys = np.arange(first, last, step)
    start = (keys % 24) * HOUR
    arrays = {
        c.HASH: hash_keys([pa.array(keys)]),
        "user": keys,
        c.WINDOW_START: start,
        c.WINDOW_END: start + HOUR,
        c.EPOCH: np.full(len(keys), epoch),
        c.STATUS: np.full(len(keys), c.STATUS_OPEN, np.int32),
        c.DUE_EVENT: start + HOUR,
        c.DUE_TIME: np.full(len(keys), int(NEVER)),
        c.HOLD: start + HOUR - 1,
    }
    order = np.argsort(arrays[c.HASH])
    columns = {name: pa.array(values[order]) for name, values in arrays.items()}
    filled_array = pa.array(keys[order])
    others = {f.name: filled_array.cast(f.type) for f in COUNTS.state_schema if f.type != pa.bool_()}
    schema = COUNTS.state_schema
    nothing = {f.name: pa.nulls(len(keys), f.type) for f in schema}
    return pa.RecordBatch.from_arrays([{**nothing, **others, **columns}[f.name] for f in schema], schema=schema)


def layer(rows: pa.RecordBatch, epoch: int = 0, files: int = 1) -> StateLayer:
    """``rows`` as a layer of so many files."""
    size = -(-rows.num_rows // files) or 1
    runs = tuple(SortedFile(rows.slice(begin, size)) for begin in range(0, rows.num_rows, size))
    return StateLayer(runs, epoch, epoch)


def concat_pieces(pieces: Sequence[pa.RecordBatch], schema: pa.Schema = STAGE.state_schema) -> pa.RecordBatch:
    """Pieces, one below the other."""
    return pa.concat_batches(pieces) if pieces else pa.RecordBatch.from_pylist([], schema)
