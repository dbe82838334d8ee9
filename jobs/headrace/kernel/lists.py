"""Columns of lists, by their items."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernel.grouping import Ints, valid


def holders(lists: pa.Array) -> Ints:
    """The number of the list that holds each item of ``pc.list_flatten(lists)``, which leaves out what NULLs hide."""
    return np.repeat(np.arange(len(lists), dtype=np.int64), _lengths(lists))


def with_items(lists: pa.Array, read: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """``lists`` with what ``read`` makes of all their items; a list is NULL if one of its items becomes NULL that was
    not.
    """
    items = pc.list_flatten(lists)
    made = read(items)
    is_null = ~valid(lists)
    is_null[holders(lists)[valid(items) & ~valid(made)]] = True
    offsets = pa.array(np.append(0, np.cumsum(_lengths(lists))), pa.int32())
    return pa.ListArray.from_arrays(offsets, made, mask=pa.array(is_null))


def _lengths(lists: pa.Array) -> Ints:
    lengths: Ints = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
    return lengths
