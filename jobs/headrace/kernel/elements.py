"""Rows judged for a stage: the columns that its delta is made of, whether rows come from a source or are panes.

A judged row has ``_reject`` (why it takes no part, NULL if it does), ``_event_time`` (int64, granules), ``_admitted``
(whether the filter is TRUE), and the key columns. It has the inputs of aggregates and triggers
(``CompiledStage.inputs``), and ``_sign`` where elements can be withdrawn, ``_record`` for users' own window functions
and triggers. Rows stand in their order of arrival.
"""

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.errors import OPERANDS
from headrace.kernel.expressions.overflowing import Overflow, RowOverflowsError, column_apart
from headrace.kernel.grouping import holders
from headrace.kernel.stage import CompiledStage
from headrace.kernel.types import own_arrow_type
from headrace.model.expressions.data_types import DataType, ListType, Schema
from headrace.model.expressions.expr import Expr
from headrace.model.time import Instant, render
from headrace.pipeline.loop_step import StepTerm
from headrace.program import columns as c

Columns = Mapping[str, pa.Array]

_SIZES = {DataType.BOOL: 1, DataType.DECIMAL: 16}


def judge(stage: CompiledStage, rows: Columns, rejects: pa.Array | None = None) -> dict[str, pa.Array]:
    """``rows`` judged for ``stage``: they have the columns of ``Stage.schema``, ``_event_time`` in granules, perhaps
    ``_sign`` and ``_size``. ``rejects`` says why some of them take no part already.

    A row whose key is NULL is rejected.
    """
    rows = with_size(stage, rows)
    try:
        decided = decide(stage, rows, rejects)
        return {**decided, **inputs_of(stage, rows, decided)}
    except RowOverflowsError as overflows:
        raise overflows.error from None


def decide(stage: CompiledStage, rows: Columns, rejects: pa.Array | None = None) -> dict[str, pa.Array]:
    """Which ``rows`` (``with_size``) take part, with their keys: what ``judge`` gives but for ``inputs_of``."""
    aggregation, typed, length = stage.stage.aggregation, _types(stage), len(rows[c.EVENT_TIME])
    apart = {name: column_apart(expr, rows, typed, length) for name, expr in aggregation.key.items()}
    keys = {name: values for name, (values, _) in apart.items()}
    reject = pa.nulls(length, pa.string()) if rejects is None else rejects
    for name in stage.record_keys:
        reject = rejecting(reject, f"key {name}", apart[name][1])
        reject = _null_key(name, keys[name], reject)
    judged = {c.REJECT: reject, c.EVENT_TIME: rows[c.EVENT_TIME]}
    admitted, overflows = _admitted(aggregation.filter, rows, typed, length)
    _check_overflows("its filter", overflows, reject.is_null(), {**judged, **keys})
    judged[c.ADMITTED] = admitted
    for term in stage.stage.terms:
        values, of_term = apart[term.name]
        judged[c.REJECT] = rejecting(judged[c.REJECT], "value of the edge", of_term, among=admitted)
        judged[c.REJECT] = _wrong_term(term, values, judged)
    return {**judged, **keys}


def inputs_of(stage: CompiledStage, rows: Columns, decided: Columns) -> dict[str, pa.Array]:
    """What aggregates, triggers and users' own objects read of ``rows`` (``with_size``), and whether each of them
    withdraws another one. Of rows that take no part, as ``decide`` has ``decided``, it may be NULL.

    Raises RowOverflowsError for the first row that takes part and has a value that its type does not hold.
    """
    typed, length = _types(stage), len(rows[c.EVENT_TIME])
    judged: dict[str, pa.Array] = {}
    if stage.stage.withdrawable:
        judged[c.SIGN] = rows[c.SIGN] if c.SIGN in rows else pa.repeat(pa.scalar(1, pa.int64()), length)
    if stage.reads_records:
        judged[c.RECORD] = _records(stage, rows)
    for name, expr in stage.inputs:
        judged[name], overflows = column_apart(expr, rows, typed, length)
        _check_overflows("what is aggregated of it", overflows, pa.array(takes_part(decided)), decided)
    return judged


def rejecting(reason: pa.Array, what: str, overflows: Iterable[Overflow], among: pa.Array | None = None) -> pa.Array:
    """``reason``, or where there is none yet and an expression overflows (in rows ``among`` these), which one does."""
    for overflow in overflows:
        wrong = pc.and_(pa.array(overflow.rows), reason.is_null())
        wrong = wrong if among is None else pc.and_(wrong, among)
        reason = pc.if_else(wrong, pa.scalar(f"{what}: {overflow.why}"), reason)
    return reason


def _check_overflows(what: str, overflows: Iterable[Overflow], counting: pa.Array, judged: Columns) -> None:
    for overflow in overflows:
        row = overflow.among(counting.to_numpy(zero_copy_only=False))
        if row is not None:
            keys = {name: values[row].as_py() for name, values in judged.items() if not name.startswith("_")}
            key = ", ".join(f"{name}={value!r}" for name, value in keys.items())
            at = judged[c.EVENT_TIME][row].as_py()
            where = f"{what} (key {key or 'none'}{'' if at is None else f', event time {render(Instant(at))}'})"
            raise RowOverflowsError(row, overflow.error(f"{where}: {overflow.why}{OPERANDS}"))


def with_size(stage: CompiledStage, rows: Columns) -> Columns:
    """``rows`` with the size of each element, where ``stage`` reads it."""
    if not stage.reads_size or c.SIZE in rows:
        return rows
    return {**rows, c.SIZE: element_size(rows, stage.stage.schema, len(rows[c.EVENT_TIME]))}


def _types(stage: CompiledStage) -> Schema:
    return {**stage.stage.schema, c.SIZE: DataType.INT}


def _admitted(
    condition: Expr | None, rows: Columns, schema: Schema, length: int
) -> tuple[pa.Array, tuple[Overflow, ...]]:
    if condition is None:
        return pa.repeat(pa.scalar(True), length), ()
    values, overflows = column_apart(condition, rows, schema, length)
    return values.fill_null(False), overflows


def _null_key(name: str, values: pa.Array, reason: pa.Array) -> pa.Array:
    """``reason``, or where there is none yet, that the part ``name`` of a key is NULL."""
    if not values.null_count:
        return reason
    return pc.if_else(pc.and_(values.is_null(), reason.is_null()), f"key is null: {name}", reason)


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
