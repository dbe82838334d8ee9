"""Columns as numpy sees them, without Arrow's own way there: that imports pandas."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.kernel.columns import arrow_scalar, as_numpy

TYPES = [pa.bool_(), pa.int8(), pa.int32(), pa.int64(), pa.uint64(), pa.float32(), pa.float64()]


@given(kind=st.sampled_from(TYPES), values=st.lists(st.integers(0, 1), max_size=40), data=st.data())
def test_a_piece_of_a_column_is_what_arrow_gives(kind: pa.DataType, values: list[int], data: st.DataObject) -> None:
    begin, end = sorted(data.draw(st.tuples(*[st.integers(0, len(values))] * 2)))
    column = pa.array(values, pa.int8()).cast(kind).slice(begin, end - begin)
    for shape in (column, pa.chunked_array([column, column], kind), pa.chunked_array([], kind)):
        numbers, expected = as_numpy(shape), shape.to_numpy(*[False] * isinstance(shape, pa.Array))
        assert numbers.dtype == expected.dtype
        assert numbers.tolist() == expected.tolist()


def test_others_look_at_the_same_memory() -> None:
    column = pa.array([1, 2, 3])
    assert np.shares_memory(as_numpy(column), as_numpy(column.slice(1)))
    with pytest.raises(ValueError, match="read-only"):
        as_numpy(column)[0] = 5


@pytest.mark.parametrize("values", [[1, None], [True, None], ["text"]])
def test_what_numpy_has_no_place_for_is_refused(values: list[object]) -> None:
    with pytest.raises(pa.ArrowInvalid, match="zero_copy"):
        as_numpy(pa.array(values))


@pytest.mark.parametrize("value", [True, 3, 2.5, "text", b"octets"])
def test_a_constant_has_the_type_that_arrow_would_find(value: bool | float | str | bytes) -> None:
    assert arrow_scalar(value).equals(pa.scalar(value))
