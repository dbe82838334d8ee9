"""Random columns for tests of the kernel, with all that is special to their types."""

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from headrace.kernel.columns import ARROW_TYPES
from headrace.model.expressions.data_types import DataType, of_billionths
from headrace_lab.sizes import set_sizes

_FLOATS = (0.0, -0.0, 1.0, -2.5, 7.0, 1e-5, 1e7, 2.0**53, 2.0**63, -(2.0**63), 1e300, math.nan, math.inf, -math.inf)
_STRINGS = ("", "a", "A", "b", "é", "straße", "ΑΣ", "İx", "-", "\ue000", "12345678", "\U0001f600")
_DECIMALS = ("0", "1", "-1", "0.01", "-2.5", "3", "1e-9", "-1.5e-8", "5e-9", "0.333333333", "1e14", "12345678901.5")
_DECIMALS += ("9223372036854775807.9", "-9223372036854775808.9", "9223372036854775808", "1e28", f"{10**38 - 1}e-9")
_DECIMALS += (f"-{10**38 - 1}e-9",)
SPECIAL: Mapping[DataType, tuple[Any, ...]] = {
    DataType.INT: (None, 0, 1, -1, 7, -3, 2**53 + 1, 2**62, 2**63 - 1, -(2**63)),
    DataType.FLOAT: (None, *_FLOATS),
    DataType.STRING: (None, *_STRINGS),
    DataType.BOOL: (None, True, False),
    DataType.TIMESTAMP: (None, 0, -1, 1_500_000, 1_363_000_000_250_000, -(10**15), 2**61, -(2**61)),
    DataType.DATE: (
        None,
        date(1970, 1, 1),
        date(1969, 12, 31),
        date(2012, 2, 29),
        date(2000, 1, 1),
        date.min,
        date.max,
    ),
    DataType.BYTES: (None, b"", b"a", b"\x00", b"\xff\xfe", "\u20ac".encode(), b"\xed\xa0\x80", b"12345678", b"1.5"),
    DataType.DECIMAL: (None, *map(Decimal, _DECIMALS)),
}
VALUES: Mapping[DataType, st.SearchStrategy[Any]] = {
    DataType.INT: st.sampled_from(SPECIAL[DataType.INT]) | st.integers(-(2**63), 2**63 - 1),
    DataType.FLOAT: st.sampled_from(SPECIAL[DataType.FLOAT]) | st.floats(),
    DataType.STRING: st.sampled_from(SPECIAL[DataType.STRING]) | st.text(max_size=20),
    DataType.BOOL: st.sampled_from(SPECIAL[DataType.BOOL]),
    DataType.TIMESTAMP: st.sampled_from(SPECIAL[DataType.TIMESTAMP])
    | st.integers(-62_000_000_000_000_000, 253_000_000_000_000_000),
    DataType.DATE: st.sampled_from(SPECIAL[DataType.DATE]) | st.dates(),
    DataType.BYTES: st.sampled_from(SPECIAL[DataType.BYTES])
    | st.binary(max_size=20)
    | st.text(max_size=9).map(str.encode),
    DataType.DECIMAL: st.sampled_from(SPECIAL[DataType.DECIMAL])
    | st.integers(-(10**38) + 1, 10**38 - 1).map(of_billionths)
    | st.integers(-(10**6), 10**6).map(lambda cents: of_billionths(cents * 10**7)),
}
"""Values of each type, NULL among them."""


def arrow(values: Sequence[Any], kind: DataType) -> pa.Array:
    """The Arrow column of Python's ``values``, timestamps being Instants."""
    if kind is DataType.TIMESTAMP:
        return pa.array(values, pa.int64()).cast(ARROW_TYPES[kind])
    return pa.array(values, ARROW_TYPES[kind])


def python(column: pa.Array) -> list[Any]:
    """The values of ``column`` as the reference has them."""
    return (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()


def are_alike(actual: Any, expected: Any) -> bool:
    """Whether two values are the same in type and every bit, but for which NaN it is."""
    if isinstance(expected, float) and isinstance(actual, float):
        both = math.isnan(actual) and math.isnan(expected)
        return both or (actual == expected and math.copysign(1, actual) == math.copysign(1, expected))
    return type(actual) is type(expected) and bool(actual == expected)


def numbering_all_keys() -> AbstractContextManager[None]:
    """Inside, keys get numbers even of a few rows that all have another one."""
    return set_sizes(numbered_key_rows=1, rows_of_a_key=0, numbers_of_a_row=1000)
