"""Rows put into groups, and what numpy folds over each group."""

from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Ints = NDArray[np.int64]
T = TypeVar("T", bound=np.generic)


@dataclass(frozen=True)
class Groups:
    """Groups of rows. ``order`` names the rows group by group, those of one group in their own order (None: they stand
    so already); group ``i`` is ``order[offsets[i]:offsets[i + 1]]``, and may be empty.
    """

    offsets: Ints
    order: Ints | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def sizes(self) -> Ints:
        """How many rows each group has."""
        return np.diff(self.offsets)

    @cached_property
    def of_row(self) -> Ints:
        """The group of each row, in the order of ``arranged``."""
        return np.repeat(np.arange(len(self), dtype=np.int64), self.sizes)

    def arranged(self, column: pa.Array) -> pa.Array:
        """``column`` with the rows of each group together."""
        return column if self.order is None else column.take(pa.array(self.order))

    def first(self, column: pa.Array) -> pa.Array:
        """The value of the first row of each group, none of which is empty."""
        starts = self.offsets[:-1]
        return column.take(pa.array(starts if self.order is None else self.order[starts]))

    def reduce(self, fold: np.ufunc, values: NDArray[T], empty: object) -> NDArray[T]:
        """``fold`` over the values of each group, which are arranged; ``empty`` for a group without rows."""
        filled = self.sizes > 0
        result = np.full(len(self), empty, dtype=values.dtype)
        if filled.any():
            result[filled] = fold.reduceat(values, self.offsets[:-1][filled])
        return result


def of_sorted(begins: NDArray[np.bool_], order: Ints | None = None) -> Groups:
    """Groups of rows that stand in order, ``begins`` TRUE where a group does (of the first row always)."""
    starts = np.flatnonzero(begins).astype(np.int64)
    return Groups(np.append(starts, np.int64(len(begins))), order)


def of_lists(lists: pa.Array) -> tuple[pa.Array, Groups]:
    """The items of all lists, and the group of each list; NULL is a list without items."""
    if lists.null_count:
        lists = lists.fill_null([])
    offsets = lists.offsets.to_numpy().astype(np.int64)
    return lists.flatten(), Groups(offsets - offsets[0])


def to_lists(items: pa.Array, groups: Groups) -> pa.Array:
    """A list of its items for each group; ``items`` are arranged."""
    return pa.ListArray.from_arrays(pa.array(groups.offsets.astype(np.int32)), items)
