"""Rows judged for a stage: the columns that its delta is made of, whether rows come from a source or are panes.

A judged row has ``_reject`` (why it takes no part, NULL if it does), ``_event_time`` (int64, granules), ``_admitted``
(whether the filter is TRUE), and the key columns. It has the inputs of aggregates and triggers
(``CompiledStage.inputs``), and ``_sign`` where elements can be withdrawn, ``_record`` for users' own window functions
and triggers. Rows stand in their order of arrival.
"""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.kernel.expressions.evaluation import column
from headrace.kernel.stage import CompiledStage
from headrace.model.expressions.data_types import DataType, Schema
from headrace.model.expressions.expr import Expr
from headrace.program import columns as c

Columns = Mapping[str, pa.Array]

_SIZES = {DataType.BOOL: 1, DataType.DECIMAL: 16}


def judge(stage: CompiledStage, rows: Columns, rejects: pa.Array | None = None) -> dict[str, pa.Array]:
    """``rows`` judged for ``stage``: they have the columns of ``Stage.schema``, ``_event_time`` in granules, perhaps
    ``_sign`` and ``_size``. ``rejects`` says why some of them take no part already.

    A row whose key is NULL is rejected.
    """
    schema, aggregation = stage.stage.schema, stage.stage.aggregation
    length = len(rows[c.EVENT_TIME])
    rows = dict(rows)
    if stage.reads_size and c.SIZE not in rows:
        rows[c.SIZE] = element_size(rows, schema, length)
    typed = {**schema, c.SIZE: DataType.INT}
    keys = {name: column(expr, rows, typed, length) for name, expr in aggregation.key.items()}
    judged = {c.REJECT: _null_key(keys, rejects, length), c.EVENT_TIME: rows[c.EVENT_TIME]}
    judged[c.ADMITTED] = _admitted(aggregation.filter, rows, typed, length)
    if stage.stage.withdrawable:
        judged[c.SIGN] = rows[c.SIGN] if c.SIGN in rows else pa.repeat(pa.scalar(1, pa.int64()), length)
    if stage.reads_records:
        judged[c.RECORD] = _records(stage, rows)
    inputs = {name: column(expr, rows, typed, length) for name, expr in stage.inputs}
    return {**judged, **keys, **inputs}


def _admitted(condition: Expr | None, rows: Columns, schema: Schema, length: int) -> pa.Array:
    if condition is None:
        return pa.repeat(pa.scalar(True), length)
    return column(condition, rows, schema, length).fill_null(False)


def _null_key(keys: Columns, rejects: pa.Array | None, length: int) -> pa.Array:
    """Why a row takes no part: the first column of its key that is NULL, unless something was wrong before."""
    reason = pa.nulls(length, pa.string()) if rejects is None else rejects
    for name, values in keys.items():
        if values.null_count:
            reason = pc.if_else(pc.and_(values.is_null(), reason.is_null()), f"key is null: {name}", reason)
    return reason


def _records(stage: CompiledStage, rows: Columns) -> pa.Array:
    """Rows as users' own objects see them: timestamps are Instants (granules)."""
    values = [
        rows[name].cast(pa.int64()) if kind is DataType.TIMESTAMP else rows[name]
        for name, kind in stage.stage.schema.items()
    ]
    return pa.StructArray.from_arrays(values, fields=list(stage.record_type))


def takes_part(judged: Columns) -> NDArray[np.bool_]:
    """Which judged rows are neither rejected nor filtered, and have an event time."""
    takes = pc.and_(pc.and_(judged[c.REJECT].is_null(), judged[c.ADMITTED]), judged[c.EVENT_TIME].is_valid())
    taken: NDArray[np.bool_] = takes.to_numpy(zero_copy_only=False)
    return taken


def element_size(rows: Columns, schema: Schema, length: int) -> pa.Array:
    """Bytes of each element (semantics 9.5): 8 for a number, timestamp or date, 16 for a decimal, 1 for a bool, their
    length for bytes and strings in UTF-8, nothing for NULL.
    """
    total = pa.repeat(pa.scalar(0, pa.int64()), length)
    for name, kind in schema.items():
        values = rows[name]
        if kind in (DataType.STRING, DataType.BYTES):
            size = pc.binary_length(values).cast(pa.int64()).fill_null(0)
        else:
            size = pc.multiply(pc.is_valid(values).cast(pa.int64()), _SIZES.get(kind, 8))
        total = pc.add(total, size)
    return total
