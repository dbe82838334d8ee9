"""Expressions on Arrow columns give what the reference gives, value for value and error for error."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import IntegerOverflowError
from headrace.kernel.expressions import column
from headrace.kernel.expressions import evaluate as evaluate_columns
from headrace.model.custom_triggers import CustomTrigger, TriggerElement, TriggerMoment
from headrace.model.expr import (
    Binary,
    DataType,
    Expr,
    Function,
    Literal,
    abs_,
    cast,
    coalesce,
    col,
    columns_of,
    concat,
    crc32,
    greatest,
    if_,
    least,
    lit,
    lower,
    render,
    upper,
)
from headrace.model.patterns import compile_pattern
from headrace.program.lets import Call
from headrace.reference import evaluate
from tests.kernel.columns import SPECIAL, VALUES, alike, arrow, python
from tests.reference.strategies import examples

SCHEMA = {f"{kind.value}{i}": kind for kind in DataType for i in (0, 1)}
OF: dict[DataType, tuple[Expr, Expr]] = {k: (col(f"{k.value}0"), col(f"{k.value}1")) for k in DataType}
(N, M), (X, Y), (S, U), (B, C), (T, V) = (
    OF[kind] for kind in (DataType.INT, DataType.FLOAT, DataType.STRING, DataType.BOOL, DataType.TIMESTAMP)
)
NULL = Literal(None)

EXPRESSIONS: list[Expr] = [
    *[Binary(op, left, right) for op in sorted(Binary.ARITHMETIC) for left, right in ((N, M), (X, Y), (N, Y), (X, M))],
    *[
        Binary(op, left, right)
        for op in sorted(Binary.ARITHMETIC)
        for left, right in ((N, NULL), (NULL, NULL), (X, lit(0.0)))
    ],
    *[
        Binary(op, left, right)
        for op in sorted(Binary.COMPARISON)
        for left, right in (*OF.values(), (N, Y), (X, M), (NULL, S))
    ],
    *[Binary(op, left, right) for op in sorted(Binary.BOOLEAN) for left, right in ((B, C), (B, NULL), (NULL, NULL))],
    N % 7,
    N % lit(-1),
    X % 2.5,
    N / 3,
    N + 2.5,
    ~B,
    ~NULL,
    *[left.is_null() for left, _ in OF.values()],
    *[coalesce(left, right) for left, right in OF.values()],
    *[least(left, right) for left, right in (*OF.values(), (N, Y), (X, M), (X, NULL))],
    *[greatest(left, right) for left, right in (*OF.values(), (N, Y), (X, M), (NULL, T))],
    *[if_(B, left, right) for left, right in (*OF.values(), (N, Y), (lit(1), lit(2.5)), (S, NULL))],
    if_(Literal(None, DataType.BOOL), N, M),
    coalesce(NULL, N, X),
    least(N, 3, M),
    greatest(X, -0.0, 0.0),
    abs_(N),
    abs_(X),
    lower(S),
    upper(S),
    concat(S, "-", U),
    concat(S, NULL),
    crc32(S),
    T.plus(hours=1),
    Function("plus_us", (T, M)),
    if_(T >= V, T, lit(None)),
]


def _values(expr: Expr, record: dict[str, Any]) -> Any:
    try:
        return evaluate(expr, record, SCHEMA)
    except IntegerOverflowError:
        return IntegerOverflowError


def _columns(records: list[dict[str, Any]]) -> dict[str, pa.Array]:
    names = records[0] if records else ()
    return {name: arrow([record[name] for record in records], SCHEMA[name]) for name in names}


def assert_as_the_reference(expr: Expr, records: list[dict[str, Any]]) -> None:
    """Where a record is an error to the reference, it is one; the others give the same values, in one column."""
    wanted = [_values(expr, record) for record in records]
    good = [record for record, value in zip(records, wanted, strict=True) if value is not IntegerOverflowError]
    bad = [record for record, value in zip(records, wanted, strict=True) if value is IntegerOverflowError]
    for record in bad[:3]:
        with pytest.raises(IntegerOverflowError, match="leaves 64 bits; cast its operands to float"):
            column(expr, _columns([record]), SCHEMA, 1)
    if good:
        found = python(column(expr, _columns(good), SCHEMA, len(good)))
        wanted = [value for value in wanted if value is not IntegerOverflowError]
        assert all(map(alike, found, wanted)), [x for x in zip(good, found, wanted, strict=True) if not alike(*x[1:])]
    for record in good[:2]:  # constants stay scalars
        scalars = {name: values[0] for name, values in _columns([record]).items()}
        (one,) = python(column(expr, scalars, SCHEMA, 1))
        assert alike(one, evaluate(expr, record, SCHEMA))


@pytest.mark.parametrize("expr", EXPRESSIONS, ids=render)
def test_every_expression_gives_what_the_reference_gives(expr: Expr) -> None:
    names = sorted(columns_of(expr))
    several = product(*(SPECIAL[SCHEMA[name]] for name in names))
    assert_as_the_reference(expr, [dict(zip(names, values, strict=True)) for values in several])


@examples(150)
@given(st.data())
def test_random_values_give_what_the_reference_gives(data: st.DataObject) -> None:
    expr = data.draw(st.sampled_from(EXPRESSIONS))
    record = st.fixed_dictionaries({name: VALUES[SCHEMA[name]] for name in sorted(columns_of(expr))})
    assert_as_the_reference(expr, data.draw(st.lists(record, min_size=1, max_size=5)))


def test_integers_that_leave_64_bits_are_errors() -> None:
    for overflow in (N * 4, N + 2**62, lit(-(2**62)) - N - 1, abs_(Literal(-(2**63)) + N * 0)):
        with pytest.raises(IntegerOverflowError, match="leaves 64 bits; cast its operands to float"):
            column(overflow, {"int0": pa.array([1, 2**62])}, SCHEMA, 2)


def test_a_column_that_rows_lack_is_an_error() -> None:
    with pytest.raises(KeyError, match="int0"):
        evaluate_columns(N + 1, {})


def test_constants_stay_scalars_until_a_column_meets_them() -> None:
    found = evaluate_columns(if_(lit(3) % 2 == 1, concat("a", "b"), crc32(lit("c"))), {})
    assert isinstance(found, pa.Scalar)
    assert found.as_py() == "ab"
    assert column(lit(2) + 1, {}, {}, 3).to_pylist() == [3, 3, 3]
    assert column(NULL, {}, {}, 2).to_pylist() == [None, None]


def test_a_constant_condition_takes_its_branch_as_it_is() -> None:
    numbers = pa.array([1, 2])
    assert evaluate_columns(if_(lit(True), N, M), {"int0": numbers, "int1": numbers}) is numbers


def test_slices_of_columns_are_columns() -> None:
    texts = pa.array(["left out", "12", None, "a longer text than that", ""])[1:4]
    wanted = [None if text is None else zlib.crc32(text.encode()) for text in texts.to_pylist()]
    assert evaluate_columns(crc32(S), {"string0": texts}).to_pylist() == wanted
    assert column(cast(S, DataType.INT), {"string0": texts}, SCHEMA, 3).to_pylist() == [12, None, None]


@examples(60)
@given(
    st.sampled_from(["ab", "a(b|c)*d", "a{3,5}", "[^a]a.a"]),
    st.lists(st.tuples(st.integers(0, 100), st.none() | st.lists(st.integers(0, 15), max_size=200)), max_size=5),
)
def test_a_pattern_walks_over_the_codes_of_every_row(pattern: str, found: list[tuple[int, list[int] | None]]) -> None:
    letters = sorted({letter for letter in pattern if letter.isalpha()})
    transitions = compile_pattern(pattern, letters).transitions
    width = len(transitions[0])
    starts = [start % len(transitions) for start, _ in found]
    seen = [None if codes is None else [code % width for code in codes] for _, codes in found]
    wanted = [
        reduce(lambda at, code: transitions[at][code], codes or (), start)
        for start, codes in zip(starts, seen, strict=True)
    ]
    moves = Literal(",".join(str(to) for row in transitions for to in row))
    walk = Function("walk", (col("at"), col("codes"), moves, Literal(width)))
    rows = {"at": pa.array(starts, pa.int64()), "codes": pa.array(seen, pa.list_(pa.int64()))}
    assert evaluate_columns(walk, rows).to_pylist() == wanted


@dataclass(frozen=True)
class Doubling(CustomTrigger):
    """Ready at an even number that it keeps."""

    @property
    def state_types(self) -> dict[str, DataType]:
        return {"n": DataType.INT}

    def create(self) -> dict[str, Any]:
        return {"n": 0}

    def on_element(self, state: Mapping[str, Any], element: TriggerElement, moment: TriggerMoment) -> dict[str, Any]:
        return {"n": state["n"] + element.record["n"]}

    def ready(self, state: Mapping[str, Any], moment: TriggerMoment) -> bool:
        return bool(state["n"] % 2 == 0)


def test_users_triggers_are_called_with_whole_columns_and_their_fields_are_columns() -> None:
    window = (Literal(0), Literal(10), Literal(5), Literal(False))
    elements = pa.array([[{"at": 1, "record": {"n": 3}}, {"at": 2, "record": {"n": 4}}], None, []])
    rows = {"n": pa.array([1, 2, 3]), "called": pa.array([True, False, True]), "elements": elements}
    ready = Call("ready", (col("called"), *window, Literal(False), col("n")), Doubling())
    assert evaluate_columns(ready, rows).to_pylist() == [False, False, False]
    heard = Call("on_element", (col("called"), *window, Literal(False), col("n"), col("elements")), Doubling())
    state = Function("field", (heard, Literal("s0")))
    assert evaluate_columns(state, rows).to_pylist() == [8, None, 3]
