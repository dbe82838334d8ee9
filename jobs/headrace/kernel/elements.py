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
from headrace.kernel.lists import holders
from headrace.kernel.stage import CompiledStage
from headrace.kernel.types import own_arrow_type
from headrace.model.expressions.data_types import DataType, Schema
from headrace.model.expressions.expr import Expr
from headrace.model.expressions.value_types import ListType
from headrace.pipeline.loops.step import StepTerm
from headrace.program import columns as c

Columns = Mapping[str, pa.Array]

_SIZES = {DataType.BOOL: 1, DataType.DECIMAL: 16}


def judge(stage: CompiledStage, rows: Columns, rejects: pa.Array | None = None) -> dict[str, pa.Array]:
    """``rows`` judged for ``stage``: they have the columns of ``Stage.schema``, ``_event_time`` in granules, perhaps
    ``_sign`` and ``_size``. ``rejects`` says why some of them take no part already.

    A row whose key is NULL is rejected.
    """
    rows = with_size(stage, rows)
    return {**decide(stage, rows, rejects), **inputs_of(stage, rows)}


def decide(stage: CompiledStage, rows: Columns, rejects: pa.Array | None = None) -> dict[str, pa.Array]:
    """Which ``rows`` (``with_size``) take part, with their keys: what ``judge`` gives but for ``inputs_of``."""
    aggregation, typed, length = stage.stage.aggregation, _types(stage), len(rows[c.EVENT_TIME])
    keys = {name: column(expr, rows, typed, length) for name, expr in aggregation.key.items()}
    record_keys = {name: keys[name] for name in stage.record_keys}
    judged = {c.REJECT: _null_key(record_keys, rejects, length), c.EVENT_TIME: rows[c.EVENT_TIME]}
    judged[c.ADMITTED] = _admitted(aggregation.filter, rows, typed, length)
    for term in stage.stage.terms:
        judged[c.REJECT] = _wrong_term(term, keys[term.name], judged)
    return {**judged, **keys}


def inputs_of(stage: CompiledStage, rows: Columns) -> dict[str, pa.Array]:
    """What aggregates, triggers and users' own objects read of ``rows`` (``with_size``), and whether each of them
    withdraws another one.
    """
    typed, length = _types(stage), len(rows[c.EVENT_TIME])
    judged: dict[str, pa.Array] = {}
    if stage.stage.withdrawable:
        judged[c.SIGN] = rows[c.SIGN] if c.SIGN in rows else pa.repeat(pa.scalar(1, pa.int64()), length)
    if stage.reads_records:
        judged[c.RECORD] = _records(stage, rows)
    return {**judged, **{name: column(expr, rows, typed, length) for name, expr in stage.inputs}}


def with_size(stage: CompiledStage, rows: Columns) -> Columns:
    """``rows`` with the size of each element, where ``stage`` reads it."""
    if not stage.reads_size or c.SIZE in rows:
        return rows
    return {**rows, c.SIZE: element_size(rows, stage.stage.schema, len(rows[c.EVENT_TIME]))}


def _types(stage: CompiledStage) -> Schema:
    return {**stage.stage.schema, c.SIZE: DataType.INT}


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


def _wrong_term(term: StepTerm, values: pa.Array, judged: Columns) -> pa.Array:
    """Why a row takes no part: what the step of a loop reads of it is NULL, or makes values better on the way."""
    reason, admitted = judged[c.REJECT], judged[c.ADMITTED]
    if values.null_count:
        reason = pc.if_else(pc.and_(pc.and_(values.is_null(), admitted), reason.is_null()), term.of_null, reason)
    if term.sign:
        nothing = pa.scalar(0, pa.int64()).cast(values.type)
        is_wrong = (pc.less if term.sign > 0 else pc.greater)(values, nothing).fill_null(False)
        reason = pc.if_else(pc.and_(pc.and_(is_wrong, admitted), reason.is_null()), term.of_wrong_sign, reason)
    return reason


def _records(stage: CompiledStage, rows: Columns) -> pa.Array:
    """Rows as users' own objects see them: timestamps are Instants (granules)."""
    values = [rows[name].cast(own_arrow_type(kind)) for name, kind in stage.stage.schema.items()]
    return pa.StructArray.from_arrays(values, fields=list(stage.record_type))


def takes_part(judged: Columns) -> NDArray[np.bool_]:
    """Which judged rows are neither rejected nor filtered, and have an event time."""
    takes = pc.and_(pc.and_(judged[c.REJECT].is_null(), judged[c.ADMITTED]), judged[c.EVENT_TIME].is_valid())
    taken: NDArray[np.bool_] = takes.to_numpy(zero_copy_only=False)
    return taken


def element_size(rows: Columns, schema: Schema, length: int) -> pa.Array:
    """Bytes of each element (semantics 9.5): 8 for a number, timestamp or date, 16 for a decimal, 1 for a bool, their
    length for bytes and strings in UTF-8, nothing for NULL; a list is as large as its items.
    """
    total = pa.repeat(pa.scalar(0, pa.int64()), length)
    for name, kind in schema.items():
        values = rows[name]
        if isinstance(kind, ListType):
            sizes = _sizes(pc.list_flatten(values), kind.item).to_numpy()
            size = pa.array(np.bincount(holders(values), sizes, minlength=length).astype(np.int64))
        else:
            size = _sizes(values, kind)
        total = pc.add(total, size)
    return total


def _sizes(values: pa.Array, kind: DataType) -> pa.Array:
    if kind in (DataType.STRING, DataType.BYTES):
        return pc.binary_length(values).cast(pa.int64()).fill_null(0)
    return pc.multiply(pc.is_valid(values).cast(pa.int64()), _SIZES.get(kind, 8))
