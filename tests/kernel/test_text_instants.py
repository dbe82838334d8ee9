"""Timestamps as tools write them: read by the kernel as by the reference, whatever stands beside them."""

from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.kernel.expressions.casts import read_text
from headrace.kernel.expressions.evaluation import evaluate_column
from headrace.model.expressions.data_types import DataType
from headrace.model.expressions.expr import col, lit
from headrace.model.time import to_instant
from headrace_lab.reference.evaluate import evaluate
from tests.reference.strategies import examples

NOON = to_instant(datetime(2013, 1, 1, 12, tzinfo=UTC))
MILLI, HOUR, DAY = 1_000, 3_600_000_000, 86_400_000_000

READ = {
    "2013-01-01T12:00:00Z": NOON,
    "2013-01-01t12:00:00z": NOON,
    "2013-01-01 12:00:00z": NOON,
    "2013-01-01T12:00:00,123": NOON + 123 * MILLI,
    "2013-01-01 12:00:00,123456789 +0100": NOON - HOUR + 123_456,
    "2013-01-01 12:00:00 +0100": NOON - HOUR,
    "2013-01-01 12:00:00 -05:30": NOON + 5 * HOUR + HOUR // 2,
    "2013-01-01 12:00:00 UTC": NOON,
    "2013-01-01 12:00:00.5 UTC": NOON + 500 * MILLI,
    "2013-01-01T12:00:00UTC": NOON,
    "2013-01-01 12:00:00 GMT": NOON,
    "2013-01-01 12:00:00 +0000 UTC": NOON,  # of Go
    "2013-01-01 12:00 Z": NOON,
    "20130101T120000Z": NOON,
    "20130101T120000": NOON,
    "20130101T1200": NOON,
    "20130101T12Z": NOON,
    "20130101t120000.25z": NOON + 250 * MILLI,
    "20130101T120000,25+0100": NOON - HOUR + 250 * MILLI,
    "20130101T120000 +01:00": NOON - HOUR,
    "2013-01-01T24:00:00Z": NOON + DAY // 2,
    "2013-01-01T24:00": NOON + DAY // 2,
    "2012-12-31 24:00:00.000+00:00": NOON - DAY // 2,
    "20121231T240000Z": NOON - DAY // 2,
    "2013-01-01T24:00:00+12:00": NOON,
}

NOT_READ = [
    "2013-01-01T24:00:01Z",
    "2013-01-01T24:01Z",
    "2013-01-01T24:00:00.001Z",
    "9999-12-31T24:00:00Z",
    "2013-01-01 UTC",
    "2013-01-01z",
    "2013-01-01 +0100",
    "2013-01-01T12:00:00 +01:00Z",
    "2013-01-01T12:00:00 +0100 UTC",
    "2013-01-01T12:00:00  UTC",
    "2013-01-01T12:00:00 utc",
    "2013-01-01T12:00:00 CET",
    "2013-01-01T12:00:00,",
    "2013-01-01T12:00,5",
    "2013-01-01T120000Z",
    "20130101T12:00:00Z",
    "20130101T12000Z",
    "20130101 120000Z",
    "20130101",
    "20130101120000",
    "20130230T120000Z",
    "00000101T120000Z",
    "2013-W01-2T12:00:00Z",
    "2013-001T12:00:00Z",
    "2013-01-01T12:00:60Z",
    "2013-01-01T12:00:00+24:00",
    "2013-01-01T12:00:00\u221201:00",
]


def by_kernel(texts: list[str]) -> list[int | None]:
    return list(read_text(pa.array(texts, pa.string()), DataType.TIMESTAMP).cast(pa.int64()).to_pylist())


def by_reference(text: str) -> int | None:
    value: int | None = evaluate(lit(text).to_timestamp(), {}, {})
    return value


def cast_by_kernel(texts: list[str]) -> list[int | None]:
    rows = {"text": pa.array(texts, pa.string())}
    of_type = evaluate_column(col("text").cast(DataType.TIMESTAMP), rows, {"text": DataType.STRING}, len(texts))
    return list(of_type.cast(pa.int64()).to_pylist())


def cast_by_reference(text: str) -> int | None:
    value: int | None = evaluate(lit(text).cast(DataType.TIMESTAMP), {}, {})
    return value


@pytest.mark.parametrize("text", READ)
def test_what_tools_write_is_read(text: str) -> None:
    assert by_kernel([text]) == [READ[text]] == [by_reference(text)]
    assert by_kernel([text, f"  {text}\t", "x", None]) == [READ[text], READ[text], None, None]


BY_0_1 = ["2013-01-01T12:00:00Z"]
"""What ``cast`` reads of these, as 0.1 did: definitions mean what they meant."""


@pytest.mark.parametrize("text", READ)
def test_a_cast_reads_what_it_always_read(text: str) -> None:
    expected = READ[text] if text in BY_0_1 else None
    assert cast_by_kernel([text, "x"]) == [expected, None]
    assert cast_by_reference(text) == expected


@pytest.mark.parametrize("text", NOT_READ)
def test_what_is_no_timestamp_is_none(text: str) -> None:
    assert by_kernel([text, "2013-01-01T12:00:00Z"]) == [None, NOON]
    assert by_reference(text) is None


DAYS = [
    "2013-01-01",
    "20130101",
    "2012-02-29",
    "2013-02-29",
    "20120229",
    "9999-12-31",
    "0001-01-01",
    "1899-12-31",
    "2013-1-1",
]
SEPARATORS = ["T", "t", " ", "", "  ", "T "]
HOURS = ["12", "00", "23", "24", "1", "25"]
MORE = [
    "",
    *[
        ":00",
        ":00:00",
        "00",
        "0000",
        ":30:59",
        "3059",
        ":60",
        ":00:60",
        ":0",
        ":00:00.0",
        ":00:00,0",
        "0000.5",
        ":30:00,9999999",
    ],
]
ZONES = ["", " UTC", " GMT", " +0100", " -05", " +0000 UTC", " +00:00 Z", " CET", " "]
ZONES += ["Z", "z", "UTC", "+01:00", "+0000", "+24:00", "-"]

TEXTS = st.builds("{}{}{}{}{}".format, *(st.sampled_from(choice) for choice in (DAYS, SEPARATORS, HOURS, MORE, ZONES)))


@given(st.lists(TEXTS, min_size=1, max_size=20))
@examples(2_000, 200)
def test_columns_are_read_as_the_reference_reads_each(texts: list[str]) -> None:
    assert by_kernel(texts) == [by_reference(text) for text in texts]
    assert cast_by_kernel(texts) == [cast_by_reference(text) for text in texts]


def test_a_column_of_odd_forms_is_read_without_a_look_at_each() -> None:
    many = pa.array(["2013-01-01 12:00:00,123 +0100", "20130101T120000Z"] * 50_000)
    read = read_text(many, DataType.TIMESTAMP)
    assert read.null_count == 0
    assert pc.count_distinct(read).as_py() == 2


FORMATS = {
    "%d/%m/%Y %H:%M": {
        "01/01/2013 12:00": NOON,
        " 1/1/2013 12:0\n": NOON,
        "31/04/2013 12:00": None,
        "29/02/2013 12:00": None,
        "01/13/2013 12:00": None,
        "01/01/2013 24:00": None,
        "01/01/2013 12:60": None,
        "00/01/2013 12:00": None,
        "01/01/2013 12:00Z": None,
        "01-01-2013 12:00": None,
        "01/01/13 12:00": None,
        "\u06601/01/2013 12:00": None,
    },
    "%d/%b/%Y:%H:%M:%S %z": {  # of web servers
        "01/Jan/2013:12:00:00 +0000": NOON,
        "1/jAN/2013:12:00:00 +01:30": NOON - HOUR - HOUR // 2,
        "1/Jan/2013:12:00:00 Z": NOON,
        "31/Dec/2012:12:00:00 -2400": None,
        "01/Jan/2013:12:00:00 -0060": None,
        "01/Jab/2013:12:00:00 Z": None,
        "31/Dec/9999:23:59:59 -0001": None,
        "01/Jan/0001:00:00:00 +0001": None,
        "01/Jan/2013:12:00:60 Z": None,
    },
    "%Y%m%d.%f": {"20130101.5": NOON - DAY // 2 + 500 * MILLI, "20130101.1234567": NOON - DAY // 2 + 123_456},
    "%Y": {"2013": NOON - DAY // 2, "0000": None, "": None},
    "[%Y] (.*)%%": {"[2013] (.*)%": NOON - DAY // 2, "[2013] x%": None},
}


@pytest.mark.parametrize("pattern", FORMATS)
def test_times_in_a_format(pattern: str) -> None:
    texts, schema = [*FORMATS[pattern], None], {"s": DataType.STRING}
    expr = col("s").strptime(pattern)
    expected = [*FORMATS[pattern].values(), None]
    assert [evaluate(expr, {"s": text}, schema) for text in texts] == expected
    assert evaluate_column(expr, {"s": pa.array(texts)}, schema, len(texts)).cast(pa.int64()).to_pylist() == expected


_FIELDS = st.one_of(
    st.integers(0, 61).map(str),
    st.integers(0, 61).map("{:02}".format),
    st.sampled_from(["2012", "9999", "0000", "Feb"]),
)


@examples(200)
@given(
    st.permutations(["%m", "%d", "%H", "%M", "%S", "%f", "%z"]),
    st.sampled_from(["", " ", "-", "."]),
    st.lists(st.tuples(st.lists(_FIELDS, min_size=7, max_size=7), st.sampled_from(["", "Z", "+0130"])), min_size=1),
)
def test_random_formats_read_what_the_reference_reads(
    parts: list[str], mark: str, fields_and_zones: list[tuple[list[str], str]]
) -> None:
    parts = ["%Y", *parts[:5]]
    texts = [mark.join(["2012", *fields[:4]]) + mark + zone for fields, zone in fields_and_zones]
    expr, schema = col("s").strptime(mark.join(parts)), {"s": DataType.STRING}
    expected = [evaluate(expr, {"s": text}, schema) for text in texts]
    assert evaluate_column(expr, {"s": pa.array(texts)}, schema, len(texts)).cast(pa.int64()).to_pylist() == expected


def test_times_are_written_in_a_format() -> None:
    times, schema = (
        pa.array([NOON + 5_000_007, None, 2**61], pa.int64()).cast(pa.timestamp("us", "UTC")),
        {"t": DataType.TIMESTAMP},
    )
    for pattern, zone, expected in (
        ("%d/%b/%Y:%H:%M:%S", "UTC", "01/Jan/2013:12:00:05"),
        ("%Y-%m-%dT%H:%M:%S.%f", "Asia/Kathmandu", "2013-01-01T17:45:05.000007"),
        ("100%% é", "UTC", "100% é"),
    ):
        assert evaluate_column(col("t").strftime(pattern, zone), {"t": times}, schema, 3).to_pylist() == [
            expected,
            None,
            None,
        ]
