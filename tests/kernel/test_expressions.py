"""Expressions on Arrow columns give what the reference gives, value for value and error for error."""

import math
import re
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from itertools import compress, product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import OPERANDS, DecimalOverflowError, IntegerOverflowError, ValueOverflowError
from headrace.kernel.expressions.evaluation import column_apart, evaluate_column
from headrace.kernel.expressions.evaluation import evaluate as evaluate_columns
from headrace.model.expressions.columns import coalesce, concat, greatest, if_else, least
from headrace.model.expressions.data_types import DataType
from headrace.model.expressions.expr import Binary, Expr, Function, Literal, col, lit, render
from headrace.model.expressions.methods import TimeUnit
from headrace.model.expressions.typing import columns_of, type_of
from headrace.model.triggers.custom import CustomTrigger, TriggerElement, TriggerMoment
from headrace.model.triggers.data_driven import compile_pattern
from headrace.program.columns import Call
from headrace_lab.reference import evaluate
from tests.kernel.columns import SPECIAL, VALUES, are_alike, arrow, python
from tests.kernel.expression_trees import KINDS, PARTS, trees
from tests.reference.strategies import examples

SCHEMA = {f"{kind.value}{i}": kind for kind in DataType for i in (0, 1)}
COLUMNS_OF_KIND: dict[DataType, tuple[Expr, Expr]] = {k: (col(f"{k.value}0"), col(f"{k.value}1")) for k in DataType}
(N, M), (X, Y), (S, U), (B, C), (T, V), (D, E), (P, Q) = (
    COLUMNS_OF_KIND[getattr(DataType, kind)]
    for kind in ("INT", "FLOAT", "STRING", "BOOL", "TIMESTAMP", "DATE", "DECIMAL")
)
NULL = Literal(None)
HOUR, NOON = timedelta(hours=1), datetime(2013, 1, 1, 12, tzinfo=UTC)

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
        for left, right in (*COLUMNS_OF_KIND.values(), (N, Y), (X, M), (NULL, S))
    ],
    *[Binary(op, left, right) for op in sorted(Binary.BOOLEAN) for left, right in ((B, C), (B, NULL), (NULL, NULL))],
    N % 7,
    N % lit(-1),
    X % 2.5,
    N / 3,
    N + 2.5,
    ~B,
    ~NULL,
    *[left.is_null() for left, _ in COLUMNS_OF_KIND.values()],
    *[coalesce(left, right) for left, right in COLUMNS_OF_KIND.values()],
    *[least(left, right) for left, right in (*COLUMNS_OF_KIND.values(), (N, Y), (X, M), (X, NULL))],
    *[greatest(left, right) for left, right in (*COLUMNS_OF_KIND.values(), (N, Y), (X, M), (NULL, T))],
    *[if_else(B, left, right) for left, right in (*COLUMNS_OF_KIND.values(), (N, Y), (lit(1), lit(2.5)), (S, NULL))],
    if_else(Literal(None, DataType.BOOL), N, M),
    coalesce(NULL, N, X),
    least(N, 3, M),
    greatest(NULL, NULL),
    greatest(X, -0.0, 0.0),
    N.abs(),
    X.abs(),
    S.lower(),
    S.upper(),
    concat(S, "-", U),
    concat(S, NULL),
    S.crc32(),
    T.plus(hours=1),
    T.plus(days=M),
    T.date(),
    *[
        Binary(op, left, right)
        for op in sorted(Binary.ARITHMETIC)
        for left, right in ((P, Q), (P, N), (M, P), (P, NULL))
    ],
    *[Binary(op, left, right) for op in sorted(Binary.COMPARISON) for left, right in ((P, N), (M, P))],
    P * Decimal("1.19"),
    P / 3,
    P % Decimal("0.05"),
    P.abs(),
    -P,
    P.round(),
    *[number.round(digits) for number in (N, X, P) for digits in (0, 2, 9, 15)],
    NULL.round(2),
    D - E,
    D - date(2000, 2, 29),
    date(2000, 2, 29) - D,
    D - NULL,
    P.floor(),
    P.ceil(),
    P.is_in([Decimal("0.01"), 3]),
    D.is_in([date.min]),
    COLUMNS_OF_KIND[DataType.BYTES][0].is_in([b"a"]),
    P.between(0, Q),
    *[getattr(D, part)() for part in ("year", "month", "day", "weekday")],
    D.year("America/New_York"),
    D + timedelta(days=30),
    D - timedelta(days=30),
    T + timedelta(days=1),
    least(P, 3, Q),
    greatest(N, P),
    if_else(B, P, N),
    coalesce(P, 0),
    D.plus(days=1),
    D.plus(days=N),
    date(1970, 1, 1) <= D,
    least(D, date(2000, 2, 29)),
    if_else(D < E, D, NULL),
    Function("plus_us", (T, M)),
    if_else(T >= V, T, lit(None)),
    *[1 - N, 10 / X, 7 % N, 2.5 * N, 1 + X, True & B, C | False, -N, -X, +X],
    *[-NULL, NULL.length(), NULL.round(), NULL.year(), NULL.truncate("day")],
    *[S.strip(), S.length(), S.replace("a", "bé"), S.replace("-", "")],
    *[S.substring(*places) for places in ((0,), (1, 2), (-2,), (-2, 1), (3, 0), (2**62, 2**62), (-(2**63), 2))],
    *[S.contains("a"), S.contains("\U0001f600"), S.starts_with("st"), S.ends_with("ße")],
    *[S.matches(regex) for regex in ("^a", "[^a-z]", r"\W$", r"^.{1,3}$", r"\d+", "(a|é)?-", r"\b")],
    *[S.regexp_extract(r"(a|é)?(-|.\b)", group) for group in (0, 1, 2)],
    *[S.regexp_extract(r"^(.*?)(?:(a)|b)+$", group) for group in (1, 2)],
    *[S.regexp_replace("[a-c]|é", "<\\\\\\0>"), S.regexp_replace("(a)?(.)$", r"\2\1"), S.regexp_replace("a", "")],
    *[
        getattr(number, name)()
        for number in (N, X, P, NULL, N.cast(float) / 1e17, X.abs())
        for name in ("sqrt", "ln", "log10", "exp")
    ],
    *[
        left.power(right)
        for left, right in (
            (X, Y),
            (N, 2),
            (lit(2), N),
            (P, Decimal("0.5")),
            (X, N % 5),
            (X, NULL),
            (NULL, NULL),
            (N, 0.5),
        )
    ],
    *[N.log(base) for base in (2, 10, 3, 1, 0, -2, 0.5, math.inf, math.nan, M, X, NULL)],
    *[X.log(2), X.log(X), P.log(Decimal(7)), lit(1000).log(N), NULL.log(2)],
    *[getattr(left, name)(right) for name in ("bit_and", "bit_or", "bit_xor") for left, right in ((N, M), (N, 6))],
    *[getattr(N, name)(bits) for name in ("shift_left", "shift_right") for bits in (0, 1, 40, 62)],
    *[NULL.bit_and(1), N.bit_or(NULL), NULL.shift_left(1), NULL.md5()],
    *[getattr(left, name)() for left in (S, COLUMNS_OF_KIND[DataType.BYTES][0]) for name in ("md5", "sha256")],
    *[concat('{"a":', S, "}").json_field("a", kind) for kind in (str, int, float, bool)],
    *[concat('{"a":', N.cast(str), "}").json_field("a", kind) for kind in (int, float)],
    *[concat('{"a":', X.cast(str), "}").json_field("a", float), NULL.json_field("a", str)],
    *[S.split("a").item(place) for place in (0, 1, -1, 2**62)],
    *[S.split("-").length(), concat(S, "-", U).split("-").contains("a"), NULL.item(0), NULL.split(",").item(0)],
    *[concat(S, "-", U, "-").split("-").slice(*places).item(0) for places in ((1,), (-2,), (-2, 1), (1, 0), (9, 1))],
    *[S.is_in(["a", "é"]), N.is_in([7]), N.is_in([2**53, 2.5]), X.is_in([0, 7]), X.is_in([math.nan]), B.is_in([True])],
    *[N.between(0, 7), X.between(N, 1e7), S.between("a", U), NULL.is_in([1])],
    *[number.round() for number in (N, X)],
    *[number.floor() for number in (N, X)],
    *[number.ceil() for number in (N, X)],
    *[T + HOUR, T - HOUR, HOUR + T, T.plus(milliseconds=N % 5), T == NOON, T.is_in([NOON]), NOON < T],
    *[time.strftime("%Y-%m-%d %H:%M:%S.%f %b%%", zone) for time in (T, D) for zone in ("UTC", "America/New_York")],
    *[time.strftime("%y|%j|%I|%p") for time in (T, D)],
    *[T.strftime(text).strptime(text) for text in ("%y%m%d %I%p", "%j/%Y %I:%M:%S %p", "%Y%j", "%y")],
    *[concat(S, N.cast(str)).strptime(text) for text in ("%y", "%Y-%j", "%j%y", "%I%p%y", "%p%I %y")],
    *[concat(lit(str(day)), " 2012").strptime("%j %Y") for day in (0, 1, 60, 366, 367)],
    *[concat(lit(f"{hour} {half}"), " 69").strptime("%I %p %y") for hour in (0, 1, 12, 13) for half in ("am", "Pm")],
    *[NULL.strftime("%Y"), NULL.strptime("%Y"), T.strftime("é%H", "Asia/Kathmandu")],
    *[T.strftime(text, "Europe/Berlin").strptime(text) for text in ("%Y%m%d", "%b %d %Y, %H:%M:%S.%f", "%Y")],
    *[concat(N.cast(str), "/", M.cast(str)).strptime("%Y/%m"), concat(S, "2012").strptime("%b%Y"), S.strptime("%Y")],
    *[getattr(T, part)(zone) for part in PARTS for zone in ("UTC", "America/New_York")],
    *[T.truncate(unit, zone) for unit in TimeUnit for zone in ("UTC", "Australia/Lord_Howe")],
]


def _values(expr: Expr, record: dict[str, Any]) -> Any:
    try:
        return evaluate(expr, record, SCHEMA)
    except ValueOverflowError as error:
        return error


def _columns(records: list[dict[str, Any]]) -> dict[str, pa.Array]:
    names = records[0] if records else ()
    return {name: arrow([record[name] for record in records], SCHEMA[name]) for name in names}


def assert_overflows_as_the_reference(expr: Expr, records: list[dict[str, Any]], expected: list[Any]) -> None:
    """All records at once: NULL, and why, where one is an error to the reference; of the others its values."""
    try:
        values, overflows = column_apart(expr, _columns(records), SCHEMA, len(records))
    except ValueOverflowError:  # constants alone
        assert all(isinstance(value, ValueOverflowError) for value in expected)
        return
    for row, (value, want) in enumerate(zip(python(values), expected, strict=True)):
        why = [(overflow.why, overflow.error) for overflow in overflows if overflow.rows[row]]
        if isinstance(want, ValueOverflowError):
            assert (why[0], value) == ((str(want).removesuffix(OPERANDS), type(want)), None)
        else:
            assert not why
            assert are_alike(value, want)


def assert_as_the_reference(expr: Expr, records: list[dict[str, Any]]) -> None:
    """Where a record is an error to the reference, it is one; the others give the same values, in one column."""
    expected = [_values(expr, record) for record in records]
    if records:
        assert_overflows_as_the_reference(expr, records, expected)
    is_good = [not isinstance(value, ValueOverflowError) for value in expected]
    good = list(compress(records, is_good))
    bad = [each for each, good_one in zip(zip(records, expected, strict=True), is_good, strict=True) if not good_one]
    for record, error in bad[:3]:
        with pytest.raises(
            type(error), match=r"leaves (64 bits|38 digits.*); cast its operands to float|leaves the years 1 to 9999"
        ):
            evaluate_column(expr, _columns([record]), SCHEMA, 1)
    if good:
        result = python(evaluate_column(expr, _columns(good), SCHEMA, len(good)))
        expected = list(compress(expected, is_good))
        assert all(map(are_alike, result, expected)), [
            x for x in zip(good, result, expected, strict=True) if not are_alike(*x[1:])
        ]
    for record in good[:2]:  # constants stay scalars
        scalars = {name: values[0] for name, values in _columns([record]).items()}
        (one,) = python(evaluate_column(expr, scalars, SCHEMA, 1))
        assert are_alike(one, evaluate(expr, record, SCHEMA))


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


@pytest.mark.slow
@examples(400)
@given(st.data())
def test_random_trees_give_what_the_reference_gives(data: st.DataObject) -> None:
    expr = data.draw(trees(data.draw(st.sampled_from(KINDS)), 3))
    type_of(expr, SCHEMA)
    record = st.fixed_dictionaries({name: VALUES[SCHEMA[name]] for name in sorted(columns_of(expr))})
    assert_as_the_reference(expr, data.draw(st.lists(record, min_size=1, max_size=5)))


@pytest.fixture(scope="module")
def every_character() -> list[str]:
    return [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (S.lower(), str.lower),
        (S.upper(), str.upper),
        (S.strip(), str.strip),
        (S.length(), len),
        (S.substring(-2, 1), lambda text: text[-2:][:1]),
        (S.matches(r"\w"), lambda text: re.search(r"\w", text, re.ASCII) is not None),
        (S.matches(r"[^\S\n]"), lambda text: any(character in " \t\v\f\r" for character in text)),
        (S.matches("^a?.b?$"), lambda text: "\n" not in text),
        (S.matches("[\U0001f600-\U0010ffff]"), lambda text: max(text) >= "\U0001f600"),
    ],
)
def test_every_character_is_what_python_says(
    expr: Expr, expected: Callable[[str], Any], every_character: list[str]
) -> None:
    some = [*every_character[:0x3000], *every_character[0x3000::7]]
    for texts in (every_character, [f"a{character}b" for character in some]):
        assert evaluate_columns(expr, {"string0": pa.array(texts)}).to_pylist() == list(map(expected, texts))


@pytest.mark.slow
def test_a_text_of_every_character_has_a_case(every_character: list[str]) -> None:
    text = "".join(every_character)
    texts = ["É", text, "É", None]
    lowered_texts = ["é", text.lower(), "é", None]
    assert evaluate_columns(S.lower(), {"string0": pa.array(texts)}).to_pylist() == lowered_texts


@examples(60)
@given(
    st.integers(0, 15),
    st.lists(
        st.builds(lambda whole, digits: (whole + 0.5) / 10**digits, st.integers(-(10**7), 10**7), st.integers(0, 16))
        | st.integers(-(10**9), 10**9).map(lambda cents: cents / 1000)
        | st.floats(),
        max_size=20,
    ),
)
def test_floats_beside_the_middle_of_two_numbers_are_rounded_as_python_does(digits: int, numbers: list[float]) -> None:
    neighbours = [neighbour for number in numbers for neighbour in (number, math.nextafter(number, math.inf), -number)]
    values = evaluate_columns(X.round(digits), {"float0": pa.array(neighbours, pa.float64())}).to_pylist()
    assert all(map(are_alike, values, [round(number, digits) for number in neighbours]))


def test_integers_that_leave_64_bits_are_errors() -> None:
    for overflow in (N * 4, N + 2**62, lit(-(2**62)) - N - 1, (Literal(-(2**63)) + N * 0).abs()):
        with pytest.raises(IntegerOverflowError, match="leaves 64 bits; cast its operands to float"):
            evaluate_column(overflow, {"int0": pa.array([1, 2**62])}, SCHEMA, 2)


@pytest.mark.parametrize("overflow", [P * P, P * P * -1, P.round(2), P.round(0)], ids=str)
def test_a_decimal_that_does_not_fit_is_an_error_before_rows_that_fit(overflow: Expr) -> None:
    largest = Decimal("99999999999999999999999999999.999999999")
    values = pa.array([largest, Decimal("1.000000000")], pa.decimal128(38, 9))
    with pytest.raises(DecimalOverflowError, match="leaves 38 digits"):
        evaluate_column(overflow, {"decimal0": values}, SCHEMA, 2)


def test_a_column_that_rows_lack_is_an_error() -> None:
    with pytest.raises(KeyError, match="int0"):
        evaluate_columns(N + 1, {})


def test_constants_stay_scalars_until_a_column_meets_them() -> None:
    values = evaluate_columns(if_else(lit(3) % 2 == 1, concat("a", "b"), lit("c").crc32()), {})
    assert isinstance(values, pa.Scalar)
    assert values.as_py() == "ab"
    assert evaluate_column(lit(2) + 1, {}, {}, 3).to_pylist() == [3, 3, 3]
    assert evaluate_column(NULL, {}, {}, 2).to_pylist() == [None, None]


def test_a_constant_condition_takes_its_branch_as_it_is() -> None:
    numbers = pa.array([1, 2])
    assert evaluate_columns(if_else(lit(True), N, M), {"int0": numbers, "int1": numbers}) is numbers


@pytest.mark.parametrize("expr", EXPRESSIONS, ids=render)
def test_a_part_of_the_rows_gives_a_part_of_the_values(expr: Expr) -> None:
    small = {DataType.INT: [None, 3, 7, -1, 0]}
    rows = {n: arrow((10 * [*small.get(kind, SPECIAL[kind][:5])])[:10], kind) for n, kind in SCHEMA.items()}
    result = python(evaluate_column(expr, rows, SCHEMA, len(rows["int0"])))
    for start, end in ((2, 5), (1, 1), (0, 0)):
        part = {name: values[start:end] for name, values in rows.items()}
        assert all(map(are_alike, python(evaluate_column(expr, part, SCHEMA, end - start)), result[start:end]))


def test_slices_of_columns_are_columns() -> None:
    texts = pa.array(["left out", "12", None, "a longer text than that", ""])[1:4]
    expected = [None if text is None else zlib.crc32(text.encode()) for text in texts.to_pylist()]
    assert evaluate_columns(S.crc32(), {"string0": texts}).to_pylist() == expected
    assert evaluate_column(S.cast(DataType.INT), {"string0": texts}, SCHEMA, 3).to_pylist() == [12, None, None]


@examples(60)
@given(
    st.sampled_from(["ab", "a(b|c)*d", "a{3,5}", "[^a]a.a"]),
    st.lists(st.tuples(st.integers(0, 100), st.none() | st.lists(st.integers(0, 15), max_size=200)), max_size=5),
)
def test_a_pattern_walks_over_the_codes_of_every_row(pattern: str, walks: list[tuple[int, list[int] | None]]) -> None:
    letters = sorted({letter for letter in pattern if letter.isalpha()})
    transitions = compile_pattern(pattern, letters).transitions
    width = len(transitions[0])
    starts = [start % len(transitions) for start, _ in walks]
    code_lists = [None if codes is None else [code % width for code in codes] for _, codes in walks]
    expected = [
        reduce(lambda state, code: transitions[state][code], codes or (), start)
        for start, codes in zip(starts, code_lists, strict=True)
    ]
    moves = Literal(",".join(str(target) for row in transitions for target in row))
    walk = Function("walk", (col("at"), col("codes"), moves, Literal(width)))
    rows = {"at": pa.array(starts, pa.int64()), "codes": pa.array(code_lists, pa.list_(pa.int64()))}
    assert evaluate_columns(walk, rows).to_pylist() == expected


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
    heard_call = Call("on_element", (col("called"), *window, Literal(False), col("n"), col("elements")), Doubling())
    state = Function("field", (heard_call, Literal("s0")))
    assert evaluate_columns(state, rows).to_pylist() == [8, None, 3]


EDGES = (
    0,
    1,
    -1,
    2,
    3,
    2**31,
    2**32 + 1,
    2**62,
    2**63 - 1,
    2**63 - 2,
    -(2**63),
    -(2**63) + 1,
    3037000499,
    3037000500,
    6074001000,
)


@pytest.mark.parametrize("op", ["+", "-", "*"])
def test_each_row_in_which_integers_overflow_is_found(op: str) -> None:
    pairs = [*product((*EDGES, None), repeat=2)]
    records = [{"int0": left, "int1": right} for left, right in pairs]
    assert_as_the_reference(Binary(op, N, M), records)


def test_a_million_rows_that_overflow_take_no_time_each() -> None:
    rows = {"int0": pa.array(np.full(1_000_000, 2**40)), "int1": pa.array(np.arange(1_000_000) + 2**30)}
    seconds_before = time.process_time()
    values, (overflow,) = column_apart(N * M + 1, rows, SCHEMA, 1_000_000)
    assert (values.null_count, overflow.rows.sum()) == (1_000_000, 1_000_000)
    assert time.process_time() - seconds_before < 5
