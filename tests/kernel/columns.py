"""Random columns for tests of the kernel, with all that is special to their types."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from headrace.kernel.types import ARROW_TYPES
from headrace.model.expr import DataType

_FLOATS = (0.0, -0.0, 1.0, -2.5, 7.0, 1e-5, 1e7, 2.0**53, 2.0**63, -(2.0**63), 1e300, math.nan, math.inf, -math.inf)
_STRINGS = ("", "a", "A", "b", "é", "straße", "ΑΣ", "İx", "-", "\ue000", "12345678", "\U0001f600")
SPECIAL: Mapping[DataType, tuple[Any, ...]] = {
    DataType.INT: (None, 0, 1, -1, 7, -3, 2**53 + 1, 2**62, 2**63 - 1, -(2**63)),
    DataType.FLOAT: (None, *_FLOATS),
    DataType.STRING: (None, *_STRINGS),
    DataType.BOOL: (None, True, False),
    DataType.TIMESTAMP: (None, 0, -1, 1_500_000, 1_363_000_000_250_000, -(10**15)),
}
VALUES: Mapping[DataType, st.SearchStrategy[Any]] = {
    DataType.INT: st.sampled_from(SPECIAL[DataType.INT]) | st.integers(-(2**63), 2**63 - 1),
    DataType.FLOAT: st.sampled_from(SPECIAL[DataType.FLOAT]) | st.floats(),
    DataType.STRING: st.sampled_from(SPECIAL[DataType.STRING]) | st.text(max_size=20),
    DataType.BOOL: st.sampled_from(SPECIAL[DataType.BOOL]),
    DataType.TIMESTAMP: st.sampled_from(SPECIAL[DataType.TIMESTAMP])
    | st.integers(-62_000_000_000_000_000, 253_000_000_000_000_000),
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


def alike(found: Any, wanted: Any) -> bool:
    """Whether two values are the same in type and every bit, but for which NaN it is."""
    if isinstance(wanted, float) and isinstance(found, float):
        both = math.isnan(found) and math.isnan(wanted)
        return both or (found == wanted and math.copysign(1, found) == math.copysign(1, wanted))
    return type(found) is type(wanted) and bool(found == wanted)
