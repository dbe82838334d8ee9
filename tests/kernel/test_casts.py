"""Casts of columns give what the reference gives, text above all."""

import math
from datetime import date
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import PipelineError
from headrace.kernel.expressions.evaluation import evaluate, evaluate_column
from headrace.model.expressions.data_types import DataType
from headrace.model.expressions.expr import col
from headrace.model.expressions.typing import type_of
from headrace.program.columns import settle_casts
from headrace_lab.reference import evaluate as evaluate_record
from tests.kernel.columns import SPECIAL, VALUES, are_alike, arrow, python
from tests.reference.strategies import examples

NUMBERS = ["7", "+7", "-7", "007", "-0", "1_0", "0x1F", "٣", "", "+", "9223372036854775807", "9223372036854775808"]
NUMBERS += ["-9223372036854775808", "-9223372036854775809", "0" * 30 + "5", "9" * 5000, "0" * 5000 + "1", "1.5", "1."]
FLOATS = [".5", "1e3", "1E+3", "-1e-3", "1e400", "-1e400", "1e-400", "nan", "NaN", "-nan", "nan(1)", "inf", "+INF"]
FLOATS += ["-infinity", "infin", "\u0131nf", "1d", "2f", "1e", "e1", ".", "0x1p3", "1,5", "0.1", "12345678901234567890"]
BOOLS = ["t", "TRUE", "y", "Yes", "1", "f", "False", "n", "NO", "0", "maybe", "on", "tru", "\u017f"]
TIMES = ["2013-01-01", "2013-01-01T05", "2013-01-01 05:07", "2013-01-01T05:07:09", "2013-01-01T05:07:09.5", "10:30"]
TIMES += ["2013-01-01T05:07:09.123456789Z", "2013-01-01 05:07+02", "2013-01-01T05-0230", "2013-01-01T05:07:09-02:30"]
TIMES += [
    "2013-02-29",
    "2012-02-29",
    "1900-02-29",
    "2000-02-29",
    "2013-04-31",
    "2013-13-01",
    "2013-00-01",
    "2013-01-00",
]
TIMES += ["0000-01-01", "0001-01-01", "0001-01-01T00+10", "9999-12-31T23:59:59.999999-10:00", "2013-01-01T24:00:00"]
TIMES += [
    "2013-01-01T23:60",
    "2013-01-01T23:59:60",
    "20130101",
    "2013-W01-1",
    "2013-01",
    "2013",
    "2013-01-01Z",
    "1-1-1",
]
TIMES += ["2013-01-01T05:07:09,5", "2013-01-01T05:07:09.", "2013-01-01t05:07", "2013-01-01T05:07z", "2013-01-01T05+25"]
TIMES += ["2013-01-01T05+02:75", "2013-01-01T05:07:09+02:00:30", "2013-01-01T05:07:09 Europe/Berlin", "2013-01-01T"]
TEXTS = [text for each in (NUMBERS, FLOATS, BOOLS, TIMES) for text in each]


def cast_values(values: list[Any], source: DataType, target: DataType) -> list[Any]:
    return python(evaluate_column(col("v").cast(target), {"v": arrow(values, source)}, {"v": source}, len(values)))


def assert_as_the_reference(values: list[Any], source: DataType, target: DataType) -> None:
    try:
        type_of(col("v").cast(target), {"v": source})
    except PipelineError as error:
        assert f"a {source} cannot be cast to {target}" in str(error)
        return
    results = cast_values(values, source, target)
    expected = [evaluate_record(col("v").cast(target), {"v": value}, {"v": source}) for value in values]
    assert all(map(are_alike, results, expected)), [
        x for x in zip(values, results, expected, strict=True) if not are_alike(*x[1:])
    ]
    assert len(results) == len(expected)


@pytest.mark.slow
@pytest.mark.parametrize("target", list(DataType))
def test_texts_are_read_as_the_reference_reads_them(target: DataType) -> None:
    padded_texts = [
        f"{prefix}{text}{suffix}" for text in TEXTS for prefix, suffix in (("", ""), (" ", "\t"), ("\x1f", "\u2003"))
    ]
    assert_as_the_reference([*padded_texts, None], DataType.STRING, target)
    for text in padded_texts:  # alone, it may be a clean column
        assert_as_the_reference([text, None], DataType.STRING, target)


@pytest.mark.parametrize("target", list(DataType))
@pytest.mark.parametrize("source", list(DataType))
def test_values_are_cast_as_the_reference_casts_them(source: DataType, target: DataType) -> None:
    assert_as_the_reference(list(SPECIAL[source]), source, target)
    assert_as_the_reference([], source, target)


_DIGITS = st.from_regex(r"[+-]?[0-9]{1,22}", fullmatch=True)
_DECIMALS = st.from_regex(r"[+-]?[0-9]{0,5}(\.[0-9]{0,20})?(e[+-]?[0-9]{1,3})?", fullmatch=True)
_MOMENTS = st.from_regex(
    r"[0-2][0-9]{3}-[01][0-9]-[0-3][0-9]"
    r"([T ][0-2][0-9](:[0-6][0-9](:[0-6][0-9](\.[0-9]{1,9})?)?)?(Z|[+-][0-2][0-9]:?[0-6][0-9])?)?",
    fullmatch=True,
)


@pytest.mark.slow
@examples(200)
@given(st.sampled_from(list(DataType)), st.lists(st.none() | _DIGITS | _DECIMALS | _MOMENTS | st.text(), max_size=4))
def test_random_texts_are_read_as_the_reference_reads_them(target: DataType, texts: list[str | None]) -> None:
    assert_as_the_reference(texts, DataType.STRING, target)


@pytest.mark.slow
@examples(200)
@given(st.data())
def test_random_values_are_cast_as_the_reference_casts_them(data: st.DataObject) -> None:
    source, target = data.draw(st.sampled_from(list(DataType))), data.draw(st.sampled_from(list(DataType)))
    assert_as_the_reference(data.draw(st.lists(VALUES[source], max_size=4)), source, target)


@pytest.mark.parametrize(("source", "value", "expected"), [(DataType.STRING, "12", 12), (DataType.FLOAT, -2.9, -2)])
def test_casts_need_no_schema_once_they_are_settled(source: DataType, value: Any, expected: int) -> None:
    expr = settle_casts(col("v").cast(DataType.INT), {"v": source})
    assert evaluate(expr, {"v": arrow([value], source)}).to_pylist() == [expected]


def test_a_few_texts_and_what_they_are() -> None:
    assert cast_values(["12", " 12 ", "1.5", "x"], DataType.STRING, DataType.INT) == [12, 12, None, None]
    assert cast_values(["1e3", "inf"], DataType.STRING, DataType.FLOAT) == [1000.0, math.inf]
    assert cast_values(["2013-01-01T02:00:00+02:00"], DataType.STRING, DataType.TIMESTAMP) == [1_356_998_400_000_000]
    assert cast_values([1e7, 0.001, -12345678.9], DataType.FLOAT, DataType.STRING) == [
        "1.0E7",
        "0.001",
        "-1.23456789E7",
    ]
    assert cast_values([1_500_000], DataType.TIMESTAMP, DataType.STRING) == ["1970-01-01 00:00:01.5"]
    assert cast_values(["2013-01-01", "2013-01-01T00:00:00"], DataType.STRING, DataType.DATE) == [
        date(2013, 1, 1),
        None,
    ]
    assert cast_values([date(2013, 1, 1)], DataType.DATE, DataType.TIMESTAMP) == [1_356_998_400_000_000]
    assert cast_values([-1, 2**61], DataType.TIMESTAMP, DataType.DATE) == [date(1969, 12, 31), None]
    assert isinstance(evaluate(col("v").cast(DataType.INT), {"v": pa.scalar("7")}), pa.Scalar)
