"""Fields of structs, values of maps and items of lists on Arrow columns: the kernel gives what the reference gives."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace import col
from headrace.kernel.columns import arrow_type
from headrace.kernel.expressions.evaluation import evaluate_column
from headrace.model.expressions.columns import least
from headrace.model.expressions.data_types import ColumnType, DataType, ListType, MapType, StructType
from headrace.model.expressions.expr import Expr, Literal
from headrace.model.expressions.typing import kind_of
from headrace_lab.reference.evaluate import evaluate
from tests.kernel.columns import SPECIAL, VALUES, are_alike, arrow, python
from tests.reference.strategies import examples

KEYS = ("a", "b", "é", "", "a.b", "A")
FIELDS = ("a", "b", "a.b", "é", "1")


def structs(inner: st.SearchStrategy[ColumnType]) -> st.SearchStrategy[ColumnType]:
    fields = st.lists(st.sampled_from(FIELDS), min_size=1, max_size=3, unique=True)
    return fields.flatmap(
        lambda names: st.tuples(*(inner for _ in names)).map(
            lambda own: StructType(tuple(zip(names, own, strict=True)))
        )
    )


PLAIN = st.sampled_from(list(DataType))
KINDS: st.SearchStrategy[ColumnType] = st.recursive(
    PLAIN | PLAIN.map(ListType), lambda inner: structs(inner) | inner.map(MapType), max_leaves=5
)
OBJECT_KINDS = structs(KINDS) | KINDS.map(MapType)


def values_of(kind: ColumnType) -> st.SearchStrategy[Any]:
    """Values of ``kind``, NULL among them."""
    match kind:
        case ListType(item):
            return st.none() | st.lists(values_of(item), max_size=3)
        case StructType(fields):
            return st.none() | st.fixed_dictionaries({name: values_of(own) for name, own in fields})
        case MapType(value):
            return st.none() | st.dictionaries(st.sampled_from(KEYS), values_of(value), max_size=3)
    return st.sampled_from(SPECIAL[kind]) | VALUES[kind]


def stored_column(values: Sequence[Any], kind: ColumnType, hidden_values: Sequence[Any]) -> pa.Array:
    """A column of ``values``, in which each NULL hides one of the ``hidden_values`` ones, if there are any."""
    if isinstance(kind, DataType):
        return arrow(values, kind)
    hides = [value for value in hidden_values if value is not None]
    shown_values = [hides[row % len(hides)] if value is None and hides else value for row, value in enumerate(values)]
    mask = pa.array([value is None for value in values], pa.bool_())
    if isinstance(kind, StructType):
        parts = [
            stored_column(
                [None if value is None else value[name] for value in shown_values],
                own,
                [value[name] for value in hides],
            )
            for name, own in kind.fields
        ]
        return pa.StructArray.from_arrays(parts, names=[name for name, _ in kind.fields], mask=mask)
    items = [list((value or {}).items()) if isinstance(kind, MapType) else value or [] for value in shown_values]
    flat = [item for part in items for item in part]
    offsets = pa.array([sum(map(len, items[:row])) for row in range(len(items) + 1)], pa.int32())
    if isinstance(kind, ListType):
        return pa.ListArray.from_arrays(offsets, arrow(flat, kind.item), mask=mask)
    keys, own = pa.array([key for key, _ in flat], pa.string()), [value for _, value in flat]
    return pa.MapArray.from_arrays(offsets, keys, stored_column(own, kind.value, own), mask=mask)


@st.composite
def paths(draw: st.DrawFn, kind: ColumnType, expr: Expr) -> Expr:
    """What leads from ``expr``, of ``kind``, to a value in it, or what is questions of something on the way."""
    while not isinstance(kind, DataType):
        questions = [expr.is_null()]
        match kind:
            case StructType(fields):
                name, kind = draw(st.sampled_from(fields))
                expr = expr.field(name)
                questions.append(expr.is_not_null())
            case MapType(value):
                questions += [expr.length() + 1, ~expr.contains(draw(st.sampled_from(KEYS[:3])))]
                expr, kind = expr.item(draw(st.sampled_from(KEYS))), value
            case ListType(item):
                questions.append(expr.length())
                expr, kind = expr.item(draw(st.integers(-3, 3))), item
        if draw(st.integers(0, 4)) == 0:
            return draw(st.sampled_from(questions))
    return draw(st.sampled_from([expr, least(expr, None, expr), expr.is_null()]))


@examples(600)
@given(data=st.data())
def test_what_is_in_a_column(data: st.DataObject) -> None:
    kind = data.draw(OBJECT_KINDS)
    values = data.draw(st.lists(values_of(kind), max_size=6))
    hidden_values = data.draw(st.lists(values_of(kind), max_size=2))
    cut = data.draw(st.integers(0, len(values)))
    column, values = stored_column(values, kind, hidden_values)[cut:], values[cut:]
    assert column.type == arrow_type(kind)
    schema = {"v": kind}
    for expr in (data.draw(paths(kind, col("v"))) for _ in range(3)):
        expected = [evaluate(expr, {"v": value}, schema) for value in values]
        values_read = evaluate_column(expr, {"v": column}, schema, len(values))
        assert values_read.type == arrow_type(kind_of(expr, schema))  # type: ignore[arg-type]
        assert all(map(are_alike, python(values_read), expected))


def test_a_part_of_nothing_is_nothing() -> None:
    for expr in (Literal(None).field("a"), Literal(None).item("a"), Literal(None).item(0)):
        assert evaluate_column(expr, {}, {}, 2).to_pylist() == [None, None]
        assert evaluate(expr, {}, {}) is None


def test_a_column_without_rows() -> None:
    schema = {"v": StructType((("m", MapType(DataType.INT)),))}
    column = pa.array([], arrow_type(schema["v"]))
    path = col("v").field("m")
    for expr in (path.item("a"), path.length(), path.contains("a"), path.is_null()):
        assert len(evaluate_column(expr, {"v": column}, schema, 0)) == 0
