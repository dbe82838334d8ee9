"""Columns that have one value in all rows of a file, as most columns of state have.

They are neither decoded nor stored in the cache: their value is. What looks at such a column finds an array that files
share, of the same value. So it takes memory once.
"""

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

_SHARED_BYTES = 64 * 2**20
"""What arrays that nobody may be looking at take together."""


class _SharedArrays:
    """Arrays of one value each, of which files have slices. Those that were not asked for longest are forgotten here,
    and stay as long as a file has them. Safe for many threads.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._arrays: OrderedDict[tuple[pa.DataType, pa.Scalar], pa.Array] = OrderedDict()
        self._lock = threading.Lock()

    def repeat_value(self, value: pa.Scalar, length: int) -> pa.Array:
        """An array of ``length`` times ``value``."""
        key = value.type, value
        with self._lock:
            array = self._arrays.get(key)
            if array is None or len(array) < length:
                array = self._arrays[key] = pa.repeat(value, _capacity(length))
                self._forget_oldest()
            self._arrays.move_to_end(key)
        return array[:length]

    def _forget_oldest(self) -> None:
        total = sum(array.nbytes for array in self._arrays.values())
        while total > self._limit and len(self._arrays) > 1:
            total -= self._arrays.popitem(last=False)[1].nbytes


_SHARED: Final = _SharedArrays(_SHARED_BYTES)


def repeat_value(value: pa.Scalar, length: int) -> pa.Array:
    """An array of ``length`` times ``value``, whose memory others share that have the same value."""
    return _SHARED.repeat_value(value, length)


_NUMBERS: Final = [np.arange(0, dtype=np.uint32)]


def row_numbers(length: int) -> NDArray[np.uint32]:
    """The numbers of so many rows, whose memory others share."""
    longest = _NUMBERS[0]
    if len(longest) < length:
        longest = _NUMBERS[0] = np.arange(_capacity(length), dtype=np.uint32)
        longest.setflags(write=False)
    return longest[:length]


def _capacity(length: int) -> int:
    """For how many rows an array is made: files are of about one size, and one array is to do for all."""
    return int(1 << (length - 1).bit_length()) if length else 0


def constant_values(rows: pa.RecordBatch, known: Mapping[str, pa.Scalar]) -> dict[str, pa.Scalar]:
    """The values of those columns of whole numbers, times and truths that have one in all ``rows``, if there are
    several. ``known``: some that are known to be.
    """
    if rows.num_rows < 2:
        return {}
    return {
        field.name: rows.column(field.name)[0]
        for field in rows.schema
        if field.name in known or (_is_exact(field.type) and _is_one(rows.column(field.name)))
    }


def _is_exact(kind: pa.DataType) -> bool:
    """Whether equal values are the same ones, and of one size: 0.0 and -0.0 are equal, and not the same."""
    return bool(pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_temporal(kind))


def _is_one(column: pa.Array) -> bool:
    if column.null_count:
        return bool(column.null_count == len(column))
    first = column[0]
    return bool(column[-1] == first and pc.all(pc.equal(column, first)).as_py())


def stated_constants(parquet_file: pq.ParquetFile, schema: pa.Schema) -> dict[str, pa.Scalar]:
    """The values of those columns that have one in all rows, as the statistics of a file say that was verified; of
    whole numbers and truths that are stored as ``schema`` says.
    """
    metadata, stored = parquet_file.metadata, parquet_file.schema_arrow
    # a column of structs or lists is several of Parquet's
    places = {metadata.schema.column(place).path: place for place in range(metadata.num_columns)}
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    values: dict[str, pa.Scalar] = {}
    for field in schema:
        place = places.get(field.name)
        kind = field.type
        if place is None or not (pa.types.is_signed_integer(kind) or pa.types.is_boolean(kind)):
            continue
        if groups and stored.field(field.name).type == kind:
            is_one, value = _stated_value([group.column(place) for group in groups])
            if is_one:
                values[field.name] = pa.scalar(value, kind)
    return values


def _stated_value(chunks: Sequence[Any]) -> tuple[bool, Any]:
    """Whether all ``chunks`` of a column have one value, and that; None if it is NULL."""
    values: set[Any] = set()
    for chunk in chunks:
        stated = chunk.statistics
        if stated is None or not stated.has_null_count:
            return False, None
        if stated.null_count == chunk.num_values:
            values.add(None)
        elif stated.null_count or not stated.has_min_max:
            return False, None
        else:
            values |= {stated.min, stated.max}
        if len(values) > 1:
            return False, None
    return len(values) == 1, next(iter(values), None)
