"""Rows from and to plain values on the driver: for conformance cases and tests, whose data is small."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as f

from headrace.engine.delta import EVENT_TIME
from headrace.engine.emission import EMITS
from headrace.engine.step import Step
from headrace.engine.types import DataFrame, SparkSession
from headrace.model.expr import DataType, Schema
from headrace.model.panes import Pane, Timing
from headrace.model.time import Instant
from headrace.model.windows import Window
from headrace.program import columns as c

_ARROW = {
    DataType.STRING: pa.string(),
    DataType.INT: pa.int64(),
    DataType.FLOAT: pa.float64(),
    DataType.BOOL: pa.bool_(),
    DataType.TIMESTAMP: pa.timestamp("us", "UTC"),
}


def element_rows(
    spark: SparkSession, schema: Schema, elements: Sequence[tuple[Mapping[str, Any], Instant, int]]
) -> DataFrame:
    """Elements as rows for ``elements.judge``: their columns, event time (granules) and sign (1, or -1 to withdraw).

    Timestamps among the columns are Instants.
    """
    columns: dict[str, pa.Array] = {
        name: pa.array([row.get(name) for row, _, _ in elements], _ARROW[kind]) for name, kind in schema.items()
    }
    columns[EVENT_TIME] = pa.array([at for _, at, _ in elements], pa.int64())
    columns[c.ORDER] = pa.array(range(len(elements)), pa.int64())
    columns[c.SIGN] = pa.array([sign for _, _, sign in elements], pa.int64())
    return spark.createDataFrame(pa.table(columns))


def emitted(step: Step) -> list[Pane]:
    """What a step emitted, retractions included, ordered by the emitting window's (end, start), then key, as a step's
    output is (semantics 3.2).
    """
    plan = step.changes.plan
    rows = step.rows.where(f.size(EMITS) > 0).select(c.WINDOW_END, c.WINDOW_START, *plan.keys, EMITS).collect()
    names = list(plan.accumulators)
    panes: list[Pane] = []
    for row in sorted(rows, key=lambda row: tuple(row[: 2 + len(plan.keys)])):
        key = tuple(row[name] for name in plan.keys)
        panes += [_pane(key, names, record) for record in row[EMITS]]
    return panes


def _pane(key: tuple[Any, ...], names: Sequence[str], record: Any) -> Pane:
    return Pane(
        key=key,
        window=Window(Instant(record["window_start"]), Instant(record["window_end"])),
        values=tuple(tuple(v) if isinstance(v := record[name], list) else v for name in names),
        timestamp=Instant(record["pane_time"]),
        timing=Timing(record["timing"]),
        index=record["pane_index"],
        nonspeculative_index=record["nonspeculative_index"],
        is_first=record["is_first"],
        is_last=record["is_last"],
        is_retraction=record["is_retraction"],
    )
