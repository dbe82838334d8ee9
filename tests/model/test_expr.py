"""Expressions as users write them: operators, what is refused, and the JSON that fingerprints are made of."""

import json
import math
import operator
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import headrace as hr
from headrace import DataType, Expr, col, lit
from headrace.errors import PipelineError
from headrace.model.expressions.expr import render
from headrace.model.expressions.typing import output_type, to_json, type_of

A, S, TIME, B = col("a"), col("s"), col("at"), col("b")
NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)
SCHEMA = {"a": DataType.INT, "s": DataType.STRING, "at": DataType.TIMESTAMP, "b": DataType.BOOL}


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (24 * A, "(24 * a)"),
        (1 - A, "(1 - a)"),
        (10 / A, "(10 / a)"),
        (7 % A, "(7 % a)"),
        (1 + A, "(1 + a)"),
        (-A, "-a"),
        (+A, "a"),
        (True & B, "(True and b)"),
        (False | ~B, "(False or ~b)"),
        (A > 3, "(a > 3)"),
        (TIME + timedelta(hours=1), "at.plus(microseconds=3600000000)"),
        (timedelta(hours=-1) + TIME, "at.plus(microseconds=-3600000000)"),
        (TIME - timedelta(microseconds=1), "at.plus(microseconds=-1)"),
        (A.is_not_null(), "a.is_not_null()"),
        (hr.if_else(B, A, 2), "if_else(b, a, 2)"),
        (hr.case((B, A), (A > 3, 2)), "if_else(b, a, if_else((a > 3), 2, None))"),
        (S.cast(int).abs(), "s.cast(int).abs()"),
        (A.between(1, 5), "((a >= 1) and (a <= 5))"),
        (S.substring(0, 2), "s.substring(0, 2)"),
    ],
)
def test_operators_take_constants_on_either_side(expr: Expr, expected: str) -> None:
    assert render(expr) == expected


@pytest.mark.parametrize(
    ("mistake", "hint"),
    [
        (lambda: A == None, r"write a\.is_null\(\)"),  # noqa: E711
        (lambda: A != None, r"write a\.is_not_null\(\)"),  # noqa: E711
        (lambda: A > None, r"write a\.is_null\(\)"),
        (lambda: A.between(None, 3), r"write a\.is_null\(\)"),
        (lambda: 0 < A < 3, r"\.between\(\)"),
        (lambda: (A > 0) and (A < 3), "& | ~ instead of and"),
        (lambda: not B, "& | ~ instead of and"),
        (lambda: 1 if B else 2, r"hr\.if_else\(\)"),
        (lambda: S in ["x", "y"], r"\.is_in\(\)"),
        (lambda: "x" in S, r'\.contains\("text"\)'),
        (lambda: list(S), r"\.substring\(\)"),
        (lambda: S[0:2], r"\.substring\(start, length\)"),
        (lambda: A // 2, r"\(a / b\)\.floor\(\)"),
        (lambda: 2**A, r"a \* a"),
        (lambda: abs(A), r"\.abs\(\)"),
        (lambda: round(A), r"\.round\(\)"),
        (lambda: math.floor(A), r"\.floor\(\)"),
        (lambda: len(S), r"\.length\(\)"),
        (lambda: int(S), r"\.cast\(int\)"),
        (lambda: datetime(2013, 1, 1) < TIME, "tzinfo=UTC"),
        (lambda: A + object(), "cannot stand in an expression"),
        (lambda: A + 2**63, "leaves 64 bits"),
        (lambda: S == "\ud800", "surrogate"),
        (lambda: timedelta(1) < TIME, "added to a timestamp"),
        (lambda: timedelta(1) - TIME, "added to a timestamp"),
        (lambda: col(""), r"col\(''\)"),
        (lambda: col(3), r"col\(3\)"),
        (hr.coalesce, "at least one"),
        (lambda: hr.if_else(B, [], 2), "cannot stand"),
        (hr.case, "it has no branch"),
        (lambda: hr.case(B, A), "a branch is a condition and its value"),
        (lambda: hr.case((True, A)), "a branch is a condition and its value"),
        (lambda: hr.count().where(True), "where"),
        (lambda: S.cast("integer"), r"cast\(to='integer'\): write one of str, int"),
        (lambda: S.cast(list), "write one of"),
        (TIME.plus, r"plus\(minutes=15\)"),
        (lambda: TIME.plus(hour=1), r"plus\(hour=1\): did you mean 'hours'\? write one"),
        (lambda: TIME.plus(days=10**9), r"plus\(days=1000000000\): it is longer"),
        (lambda: TIME + timedelta.max, "longer than 70,000 years"),
        (lambda: TIME.plus(hours=1.5), r"plus\(hours=1\.5\): write a whole number"),
        (lambda: S.substring("a"), r"substring\(start='a'\): write a whole number"),
        (lambda: S.substring(0, -1), r"substring\(length=-1\)"),
        (lambda: S.contains(S), r"Column\(name='.*'\) cannot stand in an expression"),
        (lambda: S.starts_with(""), r"starts_with\(text=''\)"),
        (lambda: S.ends_with(None), r"ends_with\(text=None\)"),
        (lambda: S.replace("", "a"), r"replace\(old=''\)"),
        (lambda: S.replace("a", None), r"replace\(new=None\)"),
        (lambda: S.matches("a("), r"matches\(regex='a\('\): a group is not closed"),
        (lambda: S.is_in("abc"), r"is_in\(values='abc'\): write a list"),
        (lambda: S.is_in([]), "at least one value"),
        (lambda: S.is_in(["a", None]), r"\.is_null\(\) for a missing one"),
        (lambda: S.is_in([A]), "cannot stand|constants"),
        (lambda: TIME.hour("Mars/Olympus"), r"hour\(zone='Mars/Olympus'\): there is no such time zone"),
        (lambda: TIME.truncate("fortnight"), r'truncate\(unit=\'fortnight\'\): write one of "minute"'),
    ],
)
def test_what_an_expression_cannot_do_is_an_error_that_says_what_to_write(
    mistake: Callable[[], object], hint: str
) -> None:
    with pytest.raises(PipelineError, match=hint):
        mistake()


@pytest.mark.parametrize(
    ("expr", "hint"),
    [
        (TIME > "2013-01-01", r"in \(at > '2013-01-01'\).*write the time as a datetime.*cast\(datetime\)"),
        (S + "x", r"write concat\(a, b\)"),
        (TIME + 1, r"write a timedelta, or \.plus\(minutes=\.\.\.\)"),
        (TIME - TIME, "cast both to int"),
        (A & (A > 1), "put each comparison beside & in parentheses"),
        (-S, "negate takes int or float"),
        (A.length(), r"in a\.length\(\): length takes string, found int"),
        (S.year(), "year takes timestamp or date, found string"),
        (A.is_in(["x"]), "different types: int, string"),
        (A + timedelta(1), "takes timestamp"),
    ],
)
def test_operands_that_do_not_fit_are_errors_that_say_what_to_write(expr: Expr, hint: str) -> None:
    with pytest.raises(PipelineError, match=hint):
        type_of(expr, SCHEMA)


def _constants(*values: object) -> list[Any]:
    kinds = {int: "int", str: "string", float: "float"}
    return [["literal", value, kinds[type(value)]] for value in values]


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda: S.regexp_extract("(a)", 2), "the pattern has 1 groups"),
        (lambda: S.regexp_extract("(?:a)", 1), "the pattern has 0 groups"),
        (lambda: S.regexp_extract("(?=a)", 0), "look-around"),
        (lambda: S.regexp_replace("a*", "b"), "matches where nothing is"),
        (lambda: S.regexp_replace("^", "b"), "matches where nothing is"),
        (lambda: S.regexp_replace("(a)", r"\2"), "names no group of the pattern"),
        (lambda: S.regexp_replace("(a)", "C:\\"), "names no group of the pattern"),
        (lambda: S.regexp_replace("()" * 9 + "(a)", "\\"), "names no group of the pattern"),
        (lambda: S.split(""), "split"),
        (lambda: A.shift_left(63), "write at most 62"),
        (lambda: A.quantiles(0.5), "write a list of numbers from 0 to 1"),
        (lambda: A.quantiles([0.5, 1.5]), "quantiles"),
        (lambda: A.max_by("b"), r'write hr.col\("b"\)'),
        (lambda: A.list_agg(0, B), "list_agg"),
        (lambda: output_type(A.bool_and(), SCHEMA), "needs a boolean, found int; write a comparison"),
        (lambda: output_type(S.quantiles([0.5]), SCHEMA), "needs a number, found string"),
        (lambda: output_type(A.max_by(col("nowhere")), SCHEMA), "there is no column 'nowhere'"),
        (lambda: output_type(A.list_agg(2, lit(None)), SCHEMA), "bare NULL"),
        (lambda: TIME.strftime("%A"), "%A is no directive; there are %Y %y %m"),
        (lambda: TIME.strftime("100%"), "% is no directive"),
        (lambda: TIME.strftime("%H %z"), "%z is only read"),
        (lambda: TIME.strftime("%H", "Mars"), "zone"),
        (lambda: S.strptime("%d.%m."), "name the year"),
        (lambda: S.strptime("%Y %m %Y"), "each part once"),
        (lambda: S.strptime("%Y %m %b"), "each part once"),
        (lambda: S.strptime("%Y %y"), "each part once"),
        (lambda: S.strptime("%Y %j %d"), "each part once"),
        (lambda: S.strptime("%y %H %I %p"), "each part once"),
        (lambda: S.strptime("%y %I"), "%I with %p"),
        (lambda: S.strptime("%y %p"), "%I with %p"),
        (lambda: A**2, r"\.power\(2\), which is a float"),
        (lambda: S[0], r"\.item\(place\) of a list, "),
    ],
)
def test_what_is_refused_when_it_is_written(call: Callable[[], object], why: str) -> None:
    with pytest.raises(PipelineError, match=why):
        call()


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (A, ["column", "a"]),
        (lit(1), ["literal", 1, "int"]),
        (lit(1.0), ["literal", 1.0, "float"]),
        (lit(True), ["literal", True, "bool"]),
        (lit("x"), ["literal", "x", "string"]),
        (lit(None), ["literal", None, None]),
        (lit(NOON), ["literal", 1_357_041_600_000_000, "timestamp"]),
        (S.regexp_extract("(a)", 1), ["function", "regexp_extract", ["column", "s"], *_constants("(a)", 1)]),
        (S.regexp_replace("a", "b"), ["function", "regexp_replace", ["column", "s"], *_constants("a", "b")]),
        (A.power(2), ["function", "power", ["column", "a"], *_constants(2)]),
        (A.log(2), ["function", "log", ["column", "a"], *_constants(2)]),
        (A.bit_and(A), ["function", "bit_and", ["column", "a"], ["column", "a"]]),
        (A.shift_right(3), ["function", "shift_right", ["column", "a"], *_constants(3)]),
        (TIME.strftime("%Y"), ["function", "strftime", ["column", "at"], *_constants("%Y", "UTC")]),
        (S.strptime("%Y"), ["function", "strptime", ["column", "s"], *_constants("%Y")]),
        (A.item(-1), ["function", "item", ["column", "a"], *_constants(-1)]),
        (A.item("x"), ["function", "item", ["column", "a"], *_constants("x")]),
        (A.field("x"), ["function", "field", ["column", "a"], *_constants("x")]),
        (A.slice(1, 2), ["function", "slice", ["column", "a"], *_constants(1, 2)]),
        (A + 1, ["binary", "+", ["column", "a"], ["literal", 1, "int"]]),
        (B & True, ["binary", "and", ["column", "b"], ["literal", True, "bool"]]),
        (S.cast(int), ["function", "cast_int", ["column", "s"]]),
        (hr.if_else(B, 1, A), ["function", "if", ["column", "b"], ["literal", 1, "int"], ["column", "a"]]),
        (TIME + timedelta(seconds=1), ["function", "plus_us", ["column", "at"], ["literal", 1_000_000, "int"]]),
        (
            TIME.truncate("day", "Europe/Berlin"),
            [
                "function",
                "truncate",
                ["column", "at"],
                ["literal", "day", "string"],
                ["literal", "Europe/Berlin", "string"],
            ],
        ),
    ],
)
def test_the_json_of_an_expression_never_changes(expr: Expr, expected: list[Any]) -> None:
    assert to_json(expr) == expected
    assert json.dumps(to_json(expr)) == json.dumps(expected)


def test_every_method_has_its_own_json() -> None:
    texts = ("lower", "upper", "strip", "length", "crc32", "md5", "sha256", "sqrt", "ln", "log10", "exp")
    times = ("year", "month", "day", "weekday", "hour", "minute", "second")
    for name in (*texts, "abs", "round", "floor", "ceil", *times):
        assert to_json(operator.methodcaller(name)(A))[:2] == ["function", name]
    for name in ("contains", "starts_with", "ends_with", "matches", "split"):
        assert to_json(operator.methodcaller(name, "x")(A)) == [
            "function",
            name,
            ["column", "a"],
            ["literal", "x", "string"],
        ]
