"""Lists on Arrow columns: the kernel gives what the reference gives, for items of every type."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import col
from headrace.errors import PipelineError
from headrace.kernel.columns import arrow_type, with_items
from headrace.kernel.delta import element_size
from headrace.kernel.expressions.evaluation import evaluate_column
from headrace.model.expressions.data_types import DataType, ListType
from headrace.model.expressions.expr import Expr, Function, Literal
from headrace.model.expressions.typing import type_of
from headrace_lab.reference.evaluate import evaluate
from headrace_lab.reference.stages import element_size as size_of
from tests.kernel.columns import SPECIAL, VALUES, are_alike, arrow, python
from tests.reference.strategies import examples

V = col("v")


def lists(values: list[list[Any] | None], kind: DataType, hidden_items: list[list[Any]]) -> pa.Array:
    """A column of lists, in which a NULL hides items."""
    stored_lists = [hidden_items[row] if value is None else value for row, value in enumerate(values)]
    offsets = [0]
    for items in stored_lists:
        offsets.append(offsets[-1] + len(items))
    mask = pa.array([value is None for value in values], pa.bool_())
    items = arrow([item for part in stored_lists for item in part], kind)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items, mask=mask)


@pytest.mark.parametrize("kind", list(DataType))
@examples(30)
@given(data=st.data())
def test_what_reads_a_list(kind: DataType, data: st.DataObject) -> None:
    item = st.sampled_from(SPECIAL[kind]) | VALUES[kind]
    values = data.draw(st.lists(st.none() | st.lists(item, max_size=4), max_size=6))
    hidden_items = data.draw(st.lists(st.lists(item, max_size=2), min_size=len(values), max_size=len(values)))
    needle = data.draw(item.filter(lambda value: value is not None))
    cut = data.draw(st.integers(0, len(values)))
    array, values = lists(values, kind, hidden_items)[cut:], values[cut:]
    schema = {"v": ListType(kind)}
    contains = Function("contains", (V, Literal(needle, kind)))
    part = V.slice(data.draw(st.integers(-4, 4)), data.draw(st.none() | st.integers(0, 3)))
    read = (V.item(data.draw(st.integers(-4, 4))), part.item(0), part.length(), part.is_null(), part.item(-1).is_null())
    for expr in (V.length(), V.is_null(), contains, ~contains, V.length() + 1, *read):
        expected = [evaluate(expr, {"v": value}, schema) for value in values]
        assert all(map(are_alike, python(evaluate_column(expr, {"v": array}, schema, len(values))), expected))
    sizes = element_size({"v": array}, schema, len(values))
    assert sizes.to_pylist() == [size_of({"v": value}, schema) for value in values]


def test_constants_of_a_number_beside_lists_of_another() -> None:
    stored_array = pa.array([[1.0], [2.5], [None], None], pa.list_(pa.float64()))
    schema = {"v": ListType(DataType.FLOAT)}
    assert evaluate_column(V.contains(1), {"v": stored_array}, schema, 4).to_pylist() == [True, False, False, None]


def test_a_list_is_null_once_an_item_becomes_it() -> None:
    stored_array = pa.array([["a", None], ["", "b"], [], None, ["c"]])
    array = with_items(stored_array, lambda items: pc.if_else(pc.equal(items, ""), None, items))
    assert array.to_pylist() == [["a", None], None, [], None, ["c"]]
    assert array.type == arrow_type(ListType(DataType.STRING))


@pytest.mark.parametrize(
    ("expr", "why"),
    [
        (V, "in v: a list of int is no value; length, contains, item, slice and is_null read a list"),
        (V.slice(1), "a list of int is no value"),
        (col("s").split(","), "a list of string is no value"),
        (col("s").item(0), "item takes a list or a map, found string"),
        (col("n").split(","), "split takes string, found int"),
        (V == 3, "list of int and int are not compared, only two of one type"),
        (V.slice(1) > V, "a list of int has no order, only == and != compare it"),
        (V.item("x"), "the items of a list have places, not names"),
        (V.lower(), "lower does not take a list of int"),
        (V.cast(str), "cast_string does not take a list of int"),
        (V.contains("x"), "different types: int, string"),
        (col("s").contains(3), "contains takes string, found int"),
        (V.is_in([3]), "is_in does not take a list of int"),
    ],
)
def test_what_does_not_read_lists(expr: Expr, why: str) -> None:
    with pytest.raises(PipelineError, match=why):
        type_of(expr, {"v": ListType(DataType.INT), "s": DataType.STRING, "n": DataType.INT})
