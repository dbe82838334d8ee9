"""Values of one type as another (``model.expressions.expr``), and the case of strings."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernel.expressions import decimals
from headrace.kernel.expressions.dates import date_of
from headrace.kernel.expressions.text_casts import read_text, spelled
from headrace.kernel.expressions.utf8 import text_of
from headrace.kernel.types import ARROW_TYPES, DATE, DECIMAL, TIMESTAMP
from headrace.model.expressions.data_types import DataType

Datum = Any
"""A ``pa.Array``, or a ``pa.Scalar`` that stands for a column of equal values."""

_BEYOND = 2.0**63
_PRIVATE = range(0xE000, 0xF900)  # characters that have no case, and none of which decides the case of others


def broadcast(values: Sequence[Datum]) -> list[pa.Array]:
    """Columns of one length; of one row if all of them are scalars."""
    length = next((len(v) for v in values if isinstance(v, pa.Array)), 1)
    return [pa.repeat(v, length) if isinstance(v, pa.Scalar) else v for v in values]


def each(function: Callable[..., pa.Array]) -> Callable[..., Datum]:
    """``function`` of columns for scalars as well: of scalars alone it gives one."""

    def over(*values: Datum) -> Datum:
        result = function(*broadcast(values))
        return result if any(isinstance(v, pa.Array) for v in values) else result[0]

    return over


def cast(value: Datum, to: DataType) -> Datum:  # noqa: PLR0911 (a line for each type)
    """``value`` as ``to``: NULL for a string that does not read as one, and for a number that does not fit.

    A number is microseconds where a timestamp is.
    """
    if value.type == ARROW_TYPES[to]:
        return value
    if value.type == pa.null():
        return value.cast(ARROW_TYPES[to])
    if value.type == pa.string():
        if to is DataType.BYTES:
            return value.cast(pa.binary())
        return each(partial(read_text, kind=to, is_iso_alone=True))(value)
    if value.type == DATE:
        return pc.cast(value, ARROW_TYPES[to])
    if value.type == pa.binary():
        return each(text_of)(value)
    if value.type == DECIMAL:
        return each(_OF_DECIMALS[to])(value)
    of_time = value.type == TIMESTAMP and to not in (DataType.STRING, DataType.DATE)
    return each(_CASTS[to])(value.cast(pa.int64()) if of_time else value)


def whole(values: pa.Array) -> pa.Array:
    """Without fractions; NULL where 64 bits do not hold that."""
    if values.type != pa.float64():
        return values.cast(pa.int64())
    fits = pc.and_(pc.greater_equal(values, -_BEYOND), pc.less(values, _BEYOND))  # NaN does not
    return pc.cast(pc.trunc(pc.if_else(fits, values, pa.scalar(None, pa.float64()))), pa.int64())


_CASTS: dict[DataType, Callable[[pa.Array], pa.Array]] = {
    DataType.STRING: spelled,
    DataType.INT: whole,
    DataType.FLOAT: lambda values: pc.cast(values, pa.float64(), safe=False),
    DataType.BOOL: lambda values: pc.not_equal(values, 0),
    DataType.TIMESTAMP: lambda values: whole(values).cast(TIMESTAMP),
    DataType.DATE: date_of,
    DataType.DECIMAL: lambda numbers: (
        decimals.of_floats(numbers) if numbers.type == pa.float64() else decimals.of_ints(numbers)
    ),
}
_OF_DECIMALS: dict[DataType, Callable[[pa.Array], pa.Array]] = {
    DataType.STRING: decimals.spelled,
    DataType.INT: decimals.to_ints,
    DataType.FLOAT: decimals.to_floats,
}


def cased(change: Callable[[str], str], of_ascii: Callable[[pa.Array], pa.Array]) -> Callable[[pa.Array], pa.Array]:
    """Strings with their case changed: as Python does it, since libraries know different versions of Unicode.

    All of them are changed as one text, parted by a character that is in none of them.
    """

    def changed(strings: pa.Array) -> pa.Array:
        if pc.all(pc.string_is_ascii(strings)).as_py() is not False:
            return of_ascii(strings)
        return pc.if_else(strings.is_valid(), whole_text(strings.fill_null("")), pa.scalar(None, pa.string()))

    def whole_text(known: pa.Array) -> pa.Array:
        lists = pa.ListArray.from_arrays(np.array([0, len(known)], np.int32), known)
        all_text = pc.binary_join(lists, "")[0].as_py()
        if (part := next((c for c in map(chr, _PRIVATE) if c not in all_text), None)) is not None:
            text = pa.scalar(change(pc.binary_join(lists, part)[0].as_py()))
            return pc.split_pattern(text, part).values
        half = len(known) // 2  # all of these characters are in them
        return pa.concat_arrays(map(whole_text, (known[:half], known[half:]))) if half else pa.array([change(all_text)])

    return changed
