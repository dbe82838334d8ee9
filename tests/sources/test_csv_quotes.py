"""Records of CSV end where Python's ``csv`` says, whatever is in quotes, and wherever a file is cut into shares."""

import bz2
import csv
import gzip
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import DataType, FileSource, field
from headrace.errors import UnreadableFileError
from headrace.ext.formats import WHOLE_FILE, RequiredColumns, ScannedRecords, Span, read_file
from headrace_lab.sizes import find_size, set_sizes
from tests.reference.strategies import examples

SOURCE = FileSource("landing", "csv", {"a": DataType.STRING, "b": DataType.STRING, "c": DataType.STRING})
CSV = SOURCE.file_format
FIELDS = "not 3 fields, as the header has"
REASONS = {
    FIELDS,
    "a quote is not closed on its line",
    "a quote is not closed before the file ends",
    "quotes with a line break in them do not enclose their field",
}
ENCLOSED_RECORD = r'(?:"(?:[^"]|"")*"|[^",]*)(?:,(?:"(?:[^"]|"")*"|[^",]*))*'
"""A record whose quotes enclose fields: of these Python and Headrace make the same."""

_SPREAD = r'(?:"(?:[^"]|"")*"[ \t]*|[^",\r\n][^,\r\n]*|)'
SPREAD = f"{_SPREAD}(?:,{_SPREAD})*"
"""A record on several lines that is accepted."""

LETTERS = ['"', '"', ",", ",", "\n", "\r\n", "\r", "x", " ", "\0", "\ufeff", "\u00e9", '""', ',"', '",', '"\n', "a,b,c"]
ENDINGS = ["\n", "\r\n", "\r", "\n\n"]
ANYTHING = st.lists(st.sampled_from(LETTERS), max_size=40).map("".join)
"""Some text, with all that means something to a reader of CSV."""

VALUES = st.lists(st.sampled_from(LETTERS), max_size=6).map("".join)
QUOTED_VALUES = VALUES.map(lambda value: '"' + value.replace('"', '""') + '"')
PLAIN = st.lists(st.sampled_from(["x", " ", "\0", "\u00e9", "7"]), max_size=4).map("".join)
RECORDS = st.lists(st.one_of(QUOTED_VALUES, PLAIN), min_size=3, max_size=3).map(",".join)
WHOLE = st.lists(st.tuples(RECORDS, st.sampled_from(ENDINGS)), max_size=8).map(
    lambda lines: "".join(line + ending for line, ending in lines)
)
"""Text as RFC 4180 writes it, with any line breaks."""


@dataclass(frozen=True)
class Record:
    """What Python's ``csv`` makes of a record: its text, the number of its line in the file, and its fields."""

    text: str
    line: int
    fields: list[str]


def records_of(text: str) -> list[Record]:
    """The records of ``text``, which its header, repeats of it and blank lines are not."""
    lines = re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", text)
    reader, records, begin = csv.reader(lines), [], 0
    for fields in reader:
        records.append(Record("".join(lines[begin : reader.line_num]).rstrip("\r\n"), begin, fields))
        begin = reader.line_num
    return [record for record in records if record.text.strip(" \t\r") and record.text != records[0].text]


def rows(read: Sequence[ScannedRecords]) -> list[tuple[object, ...]]:
    """The records with all that is known of them."""
    return [
        row
        for part in read
        for row in zip(
            part.position.tolist(),
            part.unparsed.to_pylist(),
            part.raw(np.arange(len(part))).to_pylist(),
            *(values.to_pylist() for values in part.columns.values()),
            strict=True,
        )
    ]


def read(data: bytes, span: Span = WHOLE_FILE, path: str = "x.csv") -> ScannedRecords:
    return read_file(data, SOURCE, RequiredColumns(), path, span)


@pytest.mark.parametrize("window", [3, find_size("line_window_bytes").value])
@given(text=st.one_of(ANYTHING, WHOLE), header=st.sampled_from(["a,b,c\n", '"a",b,"c"\r\n']))
@examples(300)
def test_records_begin_and_end_where_python_says(text: str, header: str, window: int) -> None:
    with set_sizes(line_window_bytes=window):
        records = read((header + text).encode())
    expected = records_of(header + text)
    assert records.position.tolist() == [record.line for record in expected]
    texts = [record.text.encode() for record in expected]
    assert records.raw(np.arange(len(records))).to_pylist() == texts
    columns = zip(*(column.to_pylist() for column in records.columns.values()), strict=True)
    for record, reason, values in zip(expected, records.unparsed.to_pylist(), columns, strict=True):
        if re.fullmatch(ENCLOSED_RECORD, record.text) and not record.text.startswith("\ufeff"):
            fits = len(record.fields) == 3
            assert reason == (None if fits else FIELDS)
            assert list(values) == ([field or None for field in record.fields] if fits else [None] * 3)
        elif reason is None:  # a line break is in quotes that enclose their field
            assert not re.search(r"[\r\n]", record.text) or re.fullmatch(SPREAD, record.text)
            assert record.text.count('"') % 2 == 0
        else:
            assert reason in REASONS


@pytest.mark.parametrize("window", [3, find_size("line_window_bytes").value])
@given(text=st.one_of(ANYTHING, WHOLE), part_count=st.integers(2, 9), stride=st.integers(1, 3))
@examples(300)
def test_shares_begin_outside_quotes(text: str, part_count: int, stride: int, window: int) -> None:
    data = ("a,b,c\n" + text).encode()
    with set_sizes(line_window_bytes=window):
        pieces = [
            read(data, Span(first, min(first + stride, part_count), part_count))
            for first in range(0, part_count, stride)
        ]
    assert rows(pieces) == rows([read(data)])


@pytest.mark.parametrize(("ending", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress)])
def test_compressed_files_have_the_same_records(ending: str, pack: Callable[[bytes], bytes]) -> None:
    data = b'\xef\xbb\xbf"a",b,c\r\n' + b'1,"x\r\n9,9,9\r\n",2\r\n\r\n3,4,5\r' * 3
    assert rows([read(pack(data), path=f"x.csv{ending}")]) == rows([read(data)])
    assert read(data).columns["b"].to_pylist() == ["x\r\n9,9,9\r\n", "4"] * 3


def test_a_header_holds_line_breaks() -> None:
    data = b'\n"a\nb",c\n1,2\n"a\nb",c\n3,4\n'
    source = FileSource("landing", "csv", {"x": field("a\nb", str), "c": DataType.STRING})
    records = read_file(data, source, RequiredColumns(), "x")
    assert (records.columns["x"].to_pylist(), records.position.tolist()) == (["1", "3"], [3, 6])


def test_a_header_whose_quote_is_never_closed_is_none() -> None:
    for count in (1, 100_000):
        with pytest.raises(UnreadableFileError, match=r"a quote in its header is not closed|does not end within"):
            read(b'a,"b,c\n' + b"1,2,3\n4,5,6\n" * count)


@given(st.lists(st.lists(VALUES, min_size=2, max_size=2), max_size=6), st.sampled_from(["ab", "a"]))
@examples(200)
def test_what_is_written_reads_back_equal(records: list[list[str]], names: str) -> None:
    source = FileSource("landing", "csv", dict.fromkeys(names, DataType.STRING))
    values = [dict(zip(names, record, strict=False)) for record in [*records, [*names]]]
    content = CSV.written(values, source.fields)
    found_records = read_file(content, source, RequiredColumns(), "x")
    assert found_records.unparsed.null_count == len(found_records)
    columns = [found_records.columns[name].to_pylist() for name in names]
    assert [*zip(*columns, strict=True)] == [tuple(record[name] or None for name in names) for record in values]
    lines = found_records.raw(np.arange(len(found_records))).to_pylist()
    records_again = read_file(
        CSV.copied(lines, source.fields, CSV.header(content, "x")), source, RequiredColumns(), "x"
    )
    assert rows([records_again]) == rows([found_records])


@given(ANYTHING)
@examples(200)
def test_what_lands_again_is_read_as_it_was(text: str) -> None:
    records = read(("a,b,c\n" + text).encode())
    lines = [line for line in records.raw(np.arange(len(records))).to_pylist() if CSV.stands_alone(line)]
    records_again = read(CSV.copied(lines, SOURCE.fields, b"a,b,c"))
    kept_rows = [row[1:] for row in rows([records]) if CSV.stands_alone(row[2])]
    assert [row[1:] for row in rows([records_again])] == kept_rows
    assert len(records) - len(kept_rows) == records.unparsed.to_pylist().count(
        "a quote is not closed before the file ends"
    )
