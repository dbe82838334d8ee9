"""State rows of several layers as one: the newest of each (key, window), and which of them an epoch's delta touches.

Rows of a layer stand in the order of (hash, window). The row of the newest layer counts among several of one (key,
window).

``match_rows`` tells which state rows and rows of the delta become one window, with what becomes of them (semantics 2.4,
3.1, 3.5, 12.15). ``rows_with_signal`` finds those that a signal of the epoch touches.
"""

from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import IntEnum
from functools import cached_property, reduce
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.kernel.columns import ARROW_TYPES, Groups, Ints, as_numpy
from headrace.kernel.keys import group_by_key
from headrace.kernel.stage import CompiledStage
from headrace.kernel.windows import merged_windows
from headrace.model.expressions.data_types import DataType
from headrace.model.expressions.typing import constant_to_json
from headrace.model.triggers import Signal
from headrace.program import columns as c

Hashes = NDArray[np.uint64]

NONE: Mapping[str, pa.Scalar] = {}
"""No columns."""


def newest_rows(stage: CompiledStage, layers: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """The row of the newest layer for each (key, window); ``layers`` stand oldest first."""
    if len(layers) == 1:
        return layers[0]
    rows = concat_rows(stage.state_schema, layers)
    if not rows.num_rows:
        return rows
    keys = [rows.column(name) for name in stage.keys]
    window = (as_numpy(rows.column(name)) for name in (c.WINDOW_START, c.WINDOW_END))
    groups = group_by_key(as_numpy(rows.column(c.HASH)), keys, *window)
    if groups.order is None and len(groups) == rows.num_rows:
        return rows
    # rows of a group stand as their layers do, so the last one is of the newest
    last = groups.offsets[1:] - 1
    return rows.take(pa.array(last if groups.order is None else groups.order[last]))


def present_rows(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows that do not say that a window is gone."""
    is_there = as_numpy(rows.column(c.STATUS)) != c.STATUS_GONE
    return rows if is_there.all() else rows.filter(pa.array(is_there))


def concat_rows(schema: pa.Schema, batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    nonempty = [batch for batch in batches if batch.num_rows]
    if len(nonempty) == 1:
        return nonempty[0]
    if not nonempty:
        return no_rows(schema)
    return pa.concat_batches(nonempty)


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def remaining_rows(stage: CompiledStage, layers: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
    """The newest of rows looked up in ``layers``, oldest first. Rows of windows that are gone are left out."""
    batches = [rows for rows in layers if rows.num_rows]
    if not batches:
        return no_rows(stage.state_schema)
    return present_rows(newest_rows(stage, batches))


def distinct_hashes(hashes: Sequence[Hashes]) -> Hashes:
    """All hashes, ascending, each once. (``np.unique`` takes twenty times as long for 64 bits.)"""
    ascending = np.sort(np.concatenate(hashes))
    distinct: Hashes = ascending[np.append(True, ascending[1:] != ascending[:-1])[: len(ascending)]]
    return distinct


def hashes_of(layer: pa.RecordBatch, which: NDArray[np.bool_]) -> Hashes:
    """The hashes of some rows of a layer."""
    hashes: Hashes = as_numpy(layer.column(c.HASH))[which]
    return hashes


def rows_of(layer: pa.RecordBatch, wanted_hashes: Hashes, constant: Mapping[str, pa.Scalar] = NONE) -> pa.RecordBatch:
    """The rows of a layer with one of the ascending ``wanted_hashes``. What is ``constant`` in all rows is not read."""
    own = as_numpy(layer.column(c.HASH))
    if not len(own):
        return layer
    wanted_hashes = wanted_hashes[wanted_hashes.searchsorted(own[0]) : wanted_hashes.searchsorted(own[-1], "right")]
    if not len(wanted_hashes):
        return layer.slice(0, 0)
    rows = _found_one_by_one(own, wanted_hashes) if len(wanted_hashes) < len(own) else _found_by_all(own, wanted_hashes)
    if len(rows) in (0, len(own)):
        return layer.slice(0, len(rows))
    read = [name for name in layer.schema.names if name not in constant]
    # one row after another from all over the memory: it is what a lookup costs
    layer_rows = layer.select(read).take(pa.array(rows))
    if not constant:
        return layer_rows
    columns = dict(zip(read, layer_rows.columns, strict=True))
    return pa.RecordBatch.from_arrays(
        [columns[name] if name in columns else pa.repeat(constant[name], len(rows)) for name in layer.schema.names],
        schema=layer.schema,
    )


def _found_one_by_one(own: Hashes, hashes: Hashes) -> Ints:
    low: Ints = own.searchsorted(hashes)
    is_there = own[np.minimum(low, len(own) - 1)] == hashes
    low, hashes = low[is_there], hashes[is_there]
    high = low + 1
    more = np.flatnonzero(own[np.minimum(high, len(own) - 1)] == hashes)  # keys with several windows
    if not len(more):
        return low
    high[more] = np.searchsorted(own, hashes[more], "right")
    sizes = high - low
    begins = np.cumsum(sizes) - sizes
    places: Ints = np.arange(int(sizes.sum())) - np.repeat(begins - low, sizes)
    return places


def _found_by_all(own: Hashes, hashes: Hashes) -> Ints:
    places = np.searchsorted(hashes, own)
    return np.flatnonzero(hashes[np.minimum(places, len(hashes) - 1)] == own)


# --- signals (semantics 9.3)

_TEXT_READERS: Mapping[DataType, Callable[[str], Any]] = {
    DataType.DATE: date.fromisoformat,
    DataType.BYTES: b64decode,
    DataType.DECIMAL: Decimal,
}
_KEY_PARTS = {DataType.INT: int, DataType.BOOL: bool, DataType.TIMESTAMP: int}
"""What is not written as text in the key of a signal."""


def windows_with_signal(
    stage: CompiledStage, rows: "dict[str, pa.Array]", name: str, signals: Sequence[Signal]
) -> NDArray[np.bool_]:
    """Which windows of ``rows`` receive a signal of that ``name``."""
    receives = [_is_for(stage, rows, signal) for signal in signals if signal.name == name]
    nobody = np.zeros(len(rows[c.WINDOW_START]), np.bool_)
    return reduce(np.logical_or, receives, nobody)


def rows_with_signal(stage: CompiledStage, layer: pa.RecordBatch, signals: Sequence[Signal]) -> NDArray[np.bool_]:
    """Which rows of a layer are of open windows that receive one of ``signals``."""
    names = stage.trigger.signals
    rows = {name: layer.column(name) for name in stage.identity}
    is_open: NDArray[np.bool_] = as_numpy(layer.column(c.STATUS)) == c.STATUS_OPEN
    flags = [windows_with_signal(stage, rows, name, signals) for name in names]
    receives: NDArray[np.bool_] = reduce(np.logical_or, flags, np.zeros(layer.num_rows, np.bool_))
    return is_open & receives


def _is_for(stage: CompiledStage, rows: "dict[str, pa.Array]", signal: Signal) -> NDArray[np.bool_]:
    matching = np.ones(len(rows[c.WINDOW_START]), np.bool_)
    if (key := signal.written_key) is not None:
        kinds = stage.stage.key_types
        if len(key) != len(kinds):
            return ~matching
        for part, (name, kind) in zip(key, kinds.items(), strict=True):
            matching &= _is_part(rows[name], part, kind)
    if signal.window is not None:
        for column, bound in zip((c.WINDOW_START, c.WINDOW_END), signal.window, strict=True):
            matching &= as_numpy(rows[column]) == int(bound)
    return matching


def _is_part(column: pa.Array, part: Any, kind: DataType) -> NDArray[np.bool_]:
    """Which rows of a ``column`` of the key have that ``part`` of the key of a signal."""
    if part is None:
        return as_numpy(column.is_null())
    if type(part) is not _KEY_PARTS.get(kind, str):
        return np.zeros(len(column), np.bool_)
    return as_numpy(pc.equal(column, _of_written(part, kind)).fill_null(False))


def _of_written(part: Any, kind: DataType) -> pa.Scalar:
    """A part of the key of a signal as a value; NULL if it is not written as one."""
    try:
        value = _TEXT_READERS[kind](part) if kind in _TEXT_READERS else part
        return pa.scalar(value if constant_to_json(value) == part else None, ARROW_TYPES[kind])
    except (ValueError, ArithmeticError):
        return pa.scalar(None, ARROW_TYPES[kind])


class _Kind(IntEnum):
    """What a row's group is: open and new windows that became one, a closed one, or a window left as it is."""

    MERGED = 0
    CLOSED = 1
    SPARED = 2


@dataclass(frozen=True)
class Sides:
    """State rows (the newest of each window, none of them deleted) and rows of the delta, one below the other."""

    state: pa.RecordBatch
    delta: pa.RecordBatch

    def shared_column(self, name: str) -> pa.Array:
        """A column that both have."""
        return pa.concat_arrays([self.state.column(name), self.delta.column(name)])

    @property
    def hashes(self) -> NDArray[np.uint64]:
        return np.concatenate([as_numpy(side.column(c.HASH)) for side in (self.state, self.delta)])

    def window_bounds(self) -> tuple[Ints, Ints]:
        """The start and the end of each row's window."""
        start, end = (
            np.concatenate([as_numpy(side.column(name)) for side in (self.state, self.delta)])
            for name in (c.WINDOW_START, c.WINDOW_END)
        )
        return start, end

    @cached_property
    def is_open(self) -> NDArray[np.bool_]:
        """Which rows are open windows of the state."""
        return self._has_status(c.STATUS_OPEN)

    @cached_property
    def is_closed(self) -> NDArray[np.bool_]:
        """Which rows are of closed windows, which drop what comes."""
        return self._has_status(c.STATUS_CLOSED)

    def _has_status(self, status: int) -> NDArray[np.bool_]:
        flags = np.zeros(self.state.num_rows + self.delta.num_rows, np.bool_)
        flags[: self.state.num_rows] = as_numpy(self.state.column(c.STATUS)) == status
        return flags

    @cached_property
    def is_new(self) -> NDArray[np.bool_]:
        """Which rows are of the delta."""
        flags = np.ones(self.state.num_rows + self.delta.num_rows, np.bool_)
        flags[: self.state.num_rows] = False
        return flags


class MatchedWindows(msgspec.Struct, frozen=True):
    """Rows of both sides by the window that they become. ``start`` and ``end`` have an entry for each group."""

    groups: Groups
    start: Ints
    end: Ints


def match_rows(stage: CompiledStage, sides: Sides) -> MatchedWindows:
    """The groups of rows that become one window each, in the order of (hash, window)."""
    hashes, keys = sides.hashes, [sides.shared_column(name) for name in stage.keys]
    start, end = sides.window_bounds()
    if not stage.merging:
        groups = group_by_key(hashes, keys, start, end)
        first = groups.first_rows
        return MatchedWindows(groups, start[first], end[first])
    kind = np.where(sides.is_closed, int(_Kind.CLOSED), int(_Kind.MERGED))
    by_key = group_by_key(hashes, keys)
    key = by_key.of_each
    # closed windows stay what they are: they take no part in merging (3.5)
    part = np.flatnonzero(~sides.is_closed)
    result_start, result_end = start.copy(), end.copy()
    became = merged_windows(stage.where, key[part], start[part], end[part], sides.is_new[part])
    result_start[part], result_end[part] = became
    if stage.may_finish and sides.is_closed.any():
        _spare_closed_windows(sides, kind, key, (start, end), (result_start, result_end))
    groups = group_by_key(hashes, keys, result_start, result_end, kind)
    first = groups.first_rows
    return MatchedWindows(groups, result_start[first], result_end[first])


def _spare_closed_windows(
    sides: Sides, kind: Ints, key: Ints, own: tuple[Ints, Ints], result: tuple[Ints, Ints]
) -> None:
    """Keep merges from giving exactly a closed window. New elements of such a merge belong to the closed window, which
    drops them, and open windows stay as they are (3.1c, 3.5, 12.15).
    """
    groups = group_by_key(key.astype(np.uint64), [], *result)
    is_closed = sides.is_closed if groups.order is None else sides.is_closed[groups.order]
    has_closed_window = groups.reduce(np.maximum, is_closed.astype(np.int8), 0) > 0
    meets = has_closed_window[groups.of_each]
    is_spared = meets & sides.is_open
    kind[meets] = int(_Kind.CLOSED)
    kind[is_spared] = int(_Kind.SPARED)
    for column, own_bounds in zip(result, own, strict=True):
        column[is_spared] = own_bounds[is_spared]
