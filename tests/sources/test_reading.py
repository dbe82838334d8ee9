"""Files read in this process are judged as the corpus says (docs/judging.md), record by record."""

import gzip
import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import DataType, FileSource, col
from headrace.errors import LargeFileError, UnreadableFileError
from headrace.ext.formats import RequiredColumns, ScannedRecords, read_file
from headrace_lab.sizes import set_sizes
from tests.corpus import SCHEMA, BrokenFile, Line, csv_lines, files, json_lines, positions
from tests.reference.strategies import examples

REQUIRED_COLUMNS = RequiredColumns({"event time": col("time"), "key user": col("user")})
JUDGED_LATER = ("event time", "key is null")
"""Reasons that judging finds, not reading."""

LINES = {
    "json": (b"", json_lines.LINES),
    "csv": (csv_lines.HEADER.encode() + b"\n", csv_lines.LINES),
}


def read(data: bytes, kind: str, path: str = "file") -> ScannedRecords:
    return read_file(data, FileSource("landing", kind, SCHEMA), REQUIRED_COLUMNS, path)


def values(records: ScannedRecords, row: int) -> Mapping[str, Any]:
    """A record, its times in microseconds."""
    columns = {n: c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for n, c in records.columns.items()}
    return {name: column[row].as_py() for name, column in columns.items()}


def check(records: ScannedRecords, row: int, line: Line) -> None:
    reason = records.unparsed[row].as_py()
    if line.reason is None or line.reason.startswith(JUDGED_LATER):
        assert reason is None, line
        record = values(records, row)
        assert {name: record[name] for name in line.values} == dict(line.values), line
    else:
        assert reason == line.reason, line
        assert set(values(records, row).values()) == {None}, line


@pytest.mark.parametrize("kind", LINES)
@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"])
def test_lines_of_one_file(kind: str, ending: bytes) -> None:
    head, lines = LINES[kind]
    content = head.replace(b"\n", ending) + ending.join(line.text.removesuffix(b"\r") for line in lines)
    records = read(content, kind)
    assert records.position.tolist() == positions(lines, bool(head))
    for row, line in enumerate(lines):
        check(records, row, line)
    assert records.raw(records.position[:0]).to_pylist() == []


@pytest.mark.parametrize("kind", LINES)
def test_a_line_alone_is_judged_as_among_others(kind: str) -> None:
    """But for several records: a file that has no other line is unreadable."""
    head, lines = LINES[kind]
    for line in lines:
        if line.name.startswith("two on") or line.name in ("two with a comma", "two with a blank"):
            with pytest.raises(UnreadableFileError, match="its only line has 2 records one behind the other"):
                read(line.text, kind)
        else:
            check(read(head + line.text, kind), 0, line)


@pytest.mark.parametrize("ending", [b"", b"\n", b"\r\n", b"\n\n"])
@pytest.mark.parametrize("line", csv_lines.UNCLOSED_QUOTES, ids=lambda line: line.name)
def test_a_quote_that_is_never_closed_makes_one_dead_letter(line: Line, ending: bytes) -> None:
    head, lines = LINES["csv"]
    records = read(head + b"".join(line.text + b"\n" for line in lines) + line.text + ending, "csv")
    assert len(records) == len(lines) + 1
    check(records, len(lines), line)
    assert records.raw(np.array([len(lines)])).to_pylist() == [line.text]


@given(st.lists(st.integers(0, 10_000), max_size=40))
@examples(20)
def test_whichever_lines_stand_together(numbers: list[int]) -> None:
    for kind, (head, texts) in LINES.items():
        some = [texts[0], *(texts[number % len(texts)] for number in numbers)]
        records = read(head + b"\n".join(line.text for line in some), kind)
        assert len(records) == len(some)
        for row, line in enumerate(some):
            check(records, row, line)


BROKEN_FILES = [
    (kind, file) for group in (files.FAILING_ON_OPEN, files.TORN_FILES) for kind, some in group.items() for file in some
]


@pytest.mark.parametrize(("kind", "bad_file"), BROKEN_FILES, ids=lambda value: getattr(value, "name", str(value)))
def test_files_that_are_dead_letters_as_a_whole(kind: str, bad_file: BrokenFile) -> None:
    with pytest.raises(UnreadableFileError) as error:
        read(bad_file.content, kind, bad_file.file)
    assert bad_file.reason in error.value.reason


def test_compressed_text() -> None:
    line = json_lines.record(n=1).encode()
    assert values(read(gzip.compress(line), "json", "a.json.gz"), 0)["n"] == 1


def test_blank_lines_are_no_records_and_count() -> None:
    records = read(b"\xef\xbb\xbfa\n\n \t\nb\r\rc", "json")
    assert records.raw(np.arange(3)).to_pylist() == [b"a", b"b", b"c"]
    assert records.position.tolist() == [0, 3, 5]


def parquet(column: pa.Array, kind: DataType) -> ScannedRecords:
    buffer = io.BytesIO()
    pq.write_table(pa.table({"v": column}), buffer)
    return read_file(buffer.getvalue(), FileSource("landing", "parquet", {"v": kind}), RequiredColumns(), "file")


def test_a_large_integer_in_a_float_column_is_the_nearest_float() -> None:
    assert parquet(pa.array([2**53 + 1, -(2**63)]), DataType.FLOAT).columns["v"].to_pylist() == [2.0**53, -(2.0**63)]


@pytest.mark.parametrize("kind", [pa.timestamp("ms"), pa.date32()])
def test_a_time_that_microseconds_do_not_hold_is_a_dead_letter(kind: pa.DataType) -> None:
    records = parquet(pa.array([2**31 - 1 if kind == pa.date32() else 2**60, 1, None], kind), DataType.TIMESTAMP)
    assert records.unparsed.to_pylist() == ["column v: not a timestamp", None, None]
    assert records.columns["v"].is_valid().to_pylist() == [False, True, False]


def test_a_time_beyond_the_calendar_can_be_shown() -> None:
    records = parquet(pa.array([2**60], pa.timestamp("us")), DataType.TIMESTAMP)
    assert records.raw(np.arange(1)).to_pylist() == [b'{"v": "+38504-08-17T21:30:06.846976Z"}']


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ('x"y,z"', ['x"y', 'z"']),
        ('"x" y,"z"', ['"x" y', "z"]),
        ('"a,b"c,d', ['"a,b"c', "d"]),
        ('"a""b"c,d', ['"a"b"c', "d"]),
        ('"a"\t,b', ["a", "b"]),
        ('""a"",b', ['""a""', "b"]),
        ('""",b",c', ['",b', "c"]),
        ('x,"a"""""', ["x", 'a""']),
    ],
)
def test_quotes_that_enclose_no_field_are_part_of_it(line: str, fields: list[str]) -> None:
    source = FileSource("landing", "csv", {"a": DataType.STRING, "b": DataType.STRING})
    records = read_file(f'a,b\n"1","2"\n{line}\n3,4\n'.encode(), source, RequiredColumns(), "file")
    assert records.unparsed.to_pylist() == [None] * 3
    assert [records.columns[name].to_pylist() for name in "ab"] == [["1", fields[0], "3"], ["2", fields[1], "4"]]


@set_sizes(line_bytes=100)
def test_more_text_than_offsets_count_is_an_error() -> None:
    with pytest.raises(LargeFileError, match="holds 103 bytes"):
        read(b"{}\n" * 34 + b"\n", "json")
