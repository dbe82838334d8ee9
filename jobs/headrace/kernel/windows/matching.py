"""What an epoch brings beside what is stored: which state rows and which rows of the delta become one window, with what
becomes of them (semantics 2.4, 3.1, 3.5, 12.15).
"""

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.kernel.grouping import Groups, Ints
from headrace.kernel.keys import grouped
from headrace.kernel.stage import CompiledStage
from headrace.kernel.windows.assignment import merged_windows
from headrace.program import columns as c


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

    def both(self, name: str) -> pa.Array:
        """A column that both have."""
        return pa.concat_arrays([self.state.column(name), self.delta.column(name)])

    @property
    def hashes(self) -> NDArray[np.uint64]:
        """The hash of each row's key."""
        return np.concatenate([side.column(c.HASH).to_numpy() for side in (self.state, self.delta)])

    def window(self) -> tuple[Ints, Ints]:
        """The start and the end of each row's window."""
        start, end = (
            np.concatenate([side.column(name).to_numpy() for side in (self.state, self.delta)])
            for name in (c.WINDOW_START, c.WINDOW_END)
        )
        return start, end

    @cached_property
    def is_open(self) -> NDArray[np.bool_]:
        """Which rows are open windows of the state."""
        return self._has_status(c.OPEN)

    @cached_property
    def is_closed(self) -> NDArray[np.bool_]:
        """Which rows are closed markers."""
        return self._has_status(c.CLOSED)

    def _has_status(self, status: int) -> NDArray[np.bool_]:
        flags = np.zeros(self.state.num_rows + self.delta.num_rows, np.bool_)
        flags[: self.state.num_rows] = self.state.column(c.STATUS).to_numpy() == status
        return flags

    @cached_property
    def is_new(self) -> NDArray[np.bool_]:
        """Which rows are of the delta."""
        flags = np.ones(self.state.num_rows + self.delta.num_rows, np.bool_)
        flags[: self.state.num_rows] = False
        return flags


@dataclass(frozen=True)
class Matched:
    """Rows of both sides by the window that they become. ``start`` and ``end`` have an entry for each group."""

    groups: Groups
    start: Ints
    end: Ints


def match(stage: CompiledStage, sides: Sides) -> Matched:
    """The groups of rows that become one window each, in the order of (hash, window)."""
    hashed, keys = sides.hashes, [sides.both(name) for name in stage.keys]
    start, end = sides.window()
    if not stage.merging:
        groups = grouped(hashed, keys, start, end)
        first = groups.first_rows
        return Matched(groups, start[first], end[first])
    kind = np.where(sides.is_closed, int(_Kind.CLOSED), int(_Kind.MERGED))
    by_key = grouped(hashed, keys)
    key = by_key.of_each
    # closed windows stay what they are: they take no part in merging (3.5)
    part = np.flatnonzero(~sides.is_closed)
    result_start, result_end = start.copy(), end.copy()
    became = merged_windows(stage.where, key[part], start[part], end[part], sides.is_new[part])
    result_start[part], result_end[part] = became
    if stage.may_finish and sides.is_closed.any():
        _spare(sides, kind, key, (start, end), (result_start, result_end))
    groups = grouped(hashed, keys, result_start, result_end, kind)
    first = groups.first_rows
    return Matched(groups, result_start[first], result_end[first])


def _spare(sides: Sides, kind: Ints, key: Ints, own: tuple[Ints, Ints], result: tuple[Ints, Ints]) -> None:
    """A merge that gives exactly a closed window does not happen: its new elements belong to the closed window, which
    drops them, and what is open stays as it is (3.1c, 3.5, 12.15).
    """
    groups = grouped(key.astype(np.uint64), [], *result)
    is_closed = sides.is_closed if groups.order is None else sides.is_closed[groups.order]
    closed = groups.reduce(np.maximum, is_closed.astype(np.int8), 0) > 0
    meets = closed[groups.of_each]
    spared = meets & sides.is_open
    kind[meets] = int(_Kind.CLOSED)
    kind[spared] = int(_Kind.SPARED)
    for column, before in zip(result, own, strict=True):
        column[spared] = before[spared]
