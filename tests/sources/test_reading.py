"""Files read in this process are judged as the corpus says (docs/judging.md), record by record."""

import gzip
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.expr import col
from headrace.pipeline import FileFormat, FileSource
from headrace.sources.errors import UnreadableFileError
from headrace.sources.lines import cut
from headrace.sources.reading import read_file
from headrace.sources.scanned import Scanned
from tests.corpus import SCHEMA, BrokenFile, Line, csv_lines, files, json_lines
from tests.reference.strategies import examples

REQUIRED = {"event time": col("time"), "key user": col("user")}
JUDGED_LATER = ("event time", "key is null")
"""Reasons that judging finds, not reading."""

OF_GZIP = {"EOFException": "it is no whole gzip file", "not a gzip file": "it is no whole gzip file"}
"""Where the reason is told in the words of the library that decompresses."""

ACCEPTED_HERE = {"a repeated name, first of another type"}
"""What Spark's parser rejects: here the last of a repeated name counts, whatever the others were."""

LINES = {
    FileFormat.JSON: (b"", json_lines.LINES),
    FileFormat.CSV: (csv_lines.HEADER.encode() + b"\n", csv_lines.LINES),
}


def read(data: bytes, kind: FileFormat, path: str = "file") -> Scanned:
    return read_file(data, FileSource("landing", kind, SCHEMA), REQUIRED, path)


def values(found: Scanned, row: int) -> Mapping[str, Any]:
    """A record, its times in microseconds."""
    columns = {n: c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for n, c in found.columns.items()}
    return {name: column[row].as_py() for name, column in columns.items()}


def check(found: Scanned, row: int, line: Line) -> None:
    reason = found.unparsed[row].as_py()
    if line.reason is None or line.reason.startswith(JUDGED_LATER) or line.name in ACCEPTED_HERE:
        assert reason is None, line
        record = values(found, row)
        assert {name: record[name] for name in line.values} == dict(line.values), line
    else:
        assert reason == line.reason, line
        assert set(values(found, row).values()) == {None}, line


@pytest.mark.parametrize("kind", LINES)
@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"])
def test_lines_of_one_file(kind: FileFormat, ending: bytes) -> None:
    head, lines = LINES[kind]
    content = (head + b"\n".join(line.text.removesuffix(b"\r") for line in lines)).replace(b"\n", ending)
    found = read(content, kind)
    assert found.position.tolist() == [number + bool(head) for number in range(len(lines))]
    for row, line in enumerate(lines):
        check(found, row, line)
    assert found.raw(found.position[:0]).to_pylist() == []


@pytest.mark.parametrize("kind", LINES)
def test_a_line_alone_is_judged_as_among_others(kind: FileFormat) -> None:
    head, lines = LINES[kind]
    for line in lines:
        check(read(head + line.text, kind), 0, line)


@given(st.lists(st.integers(0, 10_000), max_size=40))
@examples(20)
def test_whichever_lines_stand_together(picked: list[int]) -> None:
    for kind, (head, lines) in LINES.items():
        some = [lines[number % len(lines)] for number in picked]
        found = read(head + b"\n".join(line.text for line in some), kind)
        assert len(found) == len(some)
        for row, line in enumerate(some):
            check(found, row, line)


BROKEN = [(kind, file) for group in (files.OPENED, files.TORN) for kind, some in group.items() for file in some]


@pytest.mark.parametrize(("kind", "broken"), BROKEN, ids=lambda value: getattr(value, "name", str(value)))
def test_files_that_are_dead_letters_as_a_whole(kind: FileFormat, broken: BrokenFile) -> None:
    with pytest.raises(UnreadableFileError) as caught:
        read(broken.content, kind, broken.file)
    assert OF_GZIP.get(broken.reason, broken.reason) in caught.value.reason


def test_compressed_text() -> None:
    line = json_lines.record(n=1).encode()
    assert values(read(gzip.compress(line), FileFormat.JSON, "a.json.gz"), 0)["n"] == 1


def test_blank_lines_are_no_records_and_count() -> None:
    lines = cut(b"\xef\xbb\xbfa\n\n \t\nb\r\rc")
    assert lines.text.to_pylist() == [b"a", b"b", b"c"]
    assert lines.position.tolist() == [0, 3, 5]
