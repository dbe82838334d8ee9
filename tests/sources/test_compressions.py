"""What a file of text is, its first bytes say and not its name; and what a file checks itself by is checked."""

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import FileSource
from headrace.errors import UnreadableFileError
from headrace.ext.formats import JSON, WHOLE_FILE, RequiredColumns, Span, read_file
from tests.reference.strategies import examples

SCHEMA = {"id": str, "v": int}
LINES = b'{"id": "1", "v": 10}\n{"id": "2", "v": 20}\n'
ROWS = [("1", 10), ("2", 20)]


def rows(data: bytes, name: str = "file", kind: str = "json", span: Span = WHOLE_FILE) -> list[tuple[Any, Any]]:
    records = read_file(data, FileSource("landing", kind, SCHEMA), RequiredColumns(), name, span)
    assert records.unparsed.null_count == len(records)
    return [*zip(records.columns["id"].to_pylist(), records.columns["v"].to_pylist(), strict=True)]


def reason(data: bytes, name: str = "file", kind: str = "json") -> str:
    with pytest.raises(UnreadableFileError) as error:
        rows(data, name, kind)
    return error.value.reason


def by_arrow(codec: str) -> Callable[[bytes], bytes]:
    def pack(content: bytes) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codec) as stream:
            stream.write(content)
        return bytes(sink.getvalue())

    return pack


def zip_contents(*contents: bytes, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    with zipfile.ZipFile(sink := io.BytesIO(), "w", method) as archive:
        for number, content in enumerate(contents):
            archive.writestr(f"{number}.json", content)
    return sink.getvalue()


def tar_content(content: bytes) -> bytes:
    with tarfile.open(fileobj=(sink := io.BytesIO()), mode="w") as archive:
        info = tarfile.TarInfo("a.json")
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    return sink.getvalue()


PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bz2": bz2.compress,
    "zstd": by_arrow("zstd"),
    "lz4": by_arrow("lz4"),
    "xz": lzma.compress,
    "zip": zip_contents,
    "zip, stored": lambda content: zip_contents(content, method=zipfile.ZIP_STORED),
    "zip, bz2": lambda content: zip_contents(content, method=zipfile.ZIP_BZIP2),
}
NAMES = ["a.JSON.GZ", "a.gzip", "a.json.gz.1", "a-2024-01-01-00", "a.zstd", "a.json", "a.gz", "a.lz4", "a.xz", "a.zip"]


@pytest.mark.parametrize("packing", PACKINGS)
def test_a_file_is_what_its_first_bytes_say(packing: str) -> None:
    for name in NAMES:
        content = PACKINGS[packing](LINES)
        assert rows(content, name) == ROWS
        assert rows(PACKINGS[packing](b"id,v\n1,10\n2,20\n"), name, "csv") == ROWS
        pieces = [rows(content, name, span=Span(number, number + 1, 3)) for number in range(3)]
        assert [row for piece in pieces for row in piece] == ROWS
    assert JSON.is_divisible("a.json") and not any(JSON.is_divisible(name) for name in ("a.gz", "a.GZ", "a.gz.1"))


@pytest.mark.parametrize("packing", ["gzip", "bz2", "zstd", "lz4", "xz"])
def test_streams_one_behind_the_other_are_one_file(packing: str) -> None:
    lines = LINES.splitlines(keepends=True)
    assert rows(b"".join(map(PACKINGS[packing], lines))) == ROWS


PACKINGS_WITH_CHECKSUM = {
    "gzip": gzip.compress(LINES),
    "bz2": bz2.compress(LINES),
    "xz": lzma.compress(LINES),
    "zip": zip_contents(LINES),
    "zip, stored": zip_contents(LINES, method=zipfile.ZIP_STORED),
    "zstd": bytes.fromhex(
        "28b52ffd242a150100d07b226964223a202231222c202276223a2031307d0a3232307d0a02008088484c26c5d88fc0"
    ),
    "lz4": bytes.fromhex(
        "04224d186440a723000000f4067b226964223a202231222c202276223a2031307d0a150013321500502032307d0a00000000638bc280"
    ),
}
"""Files with a checksum; of zstd and lz4 as their commands write them."""


@pytest.mark.parametrize("packing", PACKINGS_WITH_CHECKSUM)
def test_a_whole_file_is_read(packing: str) -> None:
    assert rows(PACKINGS_WITH_CHECKSUM[packing]) == ROWS


@given(st.sampled_from([*PACKINGS_WITH_CHECKSUM]), st.integers(0, 10**6), st.sampled_from(["flip", "cut", "add"]))
@examples(3_000, 300)
def test_a_damaged_file_is_right_or_unreadable(packing: str, place: int, damage: str) -> None:
    whole = PACKINGS_WITH_CHECKSUM[packing]
    position = place // 8 % len(whole)
    if damage == "flip":
        data = whole[:position] + bytes([whole[position] ^ 1 << place % 8]) + whole[position + 1 :]
    else:
        data = whole[: max(position, 10)] if damage == "cut" else whole + bytes([place % 256]) * (1 + position)
    result = read_or_none(data)
    assert result in (None, ROWS)


def read_or_none(data: bytes) -> list[tuple[Any, Any]] | None:
    """The rows of a file that is called as one of its kind; None if it is unreadable."""
    try:
        return rows(data, "a.json.gzip")
    except UnreadableFileError:
        return None


def test_what_is_packed_twice_or_holds_files_is_refused() -> None:
    assert reason(gzip.compress(gzip.compress(LINES))).startswith("it is a gzip file in a gzip file")
    assert reason(zip_contents(gzip.compress(LINES))).startswith("it is a gzip file in a zip file")
    assert reason(gzip.compress(tar_content(LINES))).startswith("it is a tar archive in a gzip file")
    assert reason(tar_content(LINES)).startswith("it is a tar archive")
    assert "it holds 2 files, and one is read" in reason(zip_contents(LINES, LINES))
    assert "it holds 0 files" in reason(zip_contents())


def test_an_archive_holds_nothing_but_its_file() -> None:
    one, other = zip_contents(LINES), zip_contents(b'{"id": "3", "v": 30}\n', method=zipfile.ZIP_STORED)
    for archive in (one + other, other + one, b"PK\3\4" + one, one + b"{}\n"):
        assert "is not a whole zip file" in reason(archive)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"Obj\x01" + b"x" * 30, "an Avro file"),
        (b"ARROW1\0\0" + b"x" * 30, "an Arrow file"),
        (b"ORC" + b"x" * 30 + b"ORC\x10", "an ORC file"),
        (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
        (b"\xff\x06\x00\x00sNaPpYxx", "a framed snappy file"),
        (b"\x02\x21\x4c\x18xx", "an lz4 file of the old format"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "a document of Office"),
    ],
)
def test_what_holds_no_lines_is_refused(data: bytes, what: str) -> None:
    for kind in ("json", "csv"):
        assert reason(data, kind=kind).startswith(f"it is {what}")


def test_a_file_of_another_format_says_which() -> None:
    pq.write_table(pa.table({"id": ["1"]}), sink := io.BytesIO())
    assert reason(sink.getvalue()).startswith("it is a Parquet file")
    assert reason(gzip.compress(sink.getvalue()), "a.parquet.gz", "parquet") == (
        "it has no Parquet footer: it is a gzip file"
    )
    assert reason(gzip.compress(sink.getvalue())).startswith("it is a Parquet file in a gzip file")


def test_a_name_alone_makes_nothing_of_text() -> None:
    assert rows(LINES, "orders.br") == rows(LINES, "a.zip") == rows(LINES, "ORC") == ROWS
    assert rows(b"PAR1,id,v\n0,1,10\n0,2,20\n", "a.csv", "csv") == ROWS
    assert reason(LINES, "a.json.gz").startswith("it is not a whole gzip file")
    assert reason(b"\0\0\0\x2a\x28\xf0" + LINES, "a.json.snappy").startswith("it is no text, and no compression")


ARRAYS = {
    "an array over several lines": b'[\n{"id": "1", "v": 10},\n{"id": "2", "v": 20}\n]\n',
    "an array that begins with its first record": b'[{"id": "1", "v": 10},\n{"id": "2", "v": 20}]',
    "one with its lines as a printer makes them": b'[\r\n  {\r\n    "id": "1"\r\n  }\r\n]\r\n',
    "an array on one line": b'[{"id": "1", "v": 10}, {"id": "2", "v": 20}]\n',
    "one of many": b"[" + b",".join([b'{"id": "1", "v": 10}'] * 5_000) + b"]",
    "one behind good lines": LINES + b' [{"id": "1", "v": 10}, {"id": "2", "v": 20}]\n',
    "a record over several lines": b'{\n  "id": "1",\n  "v": 10\n}\n',
    "records in an object": b'{"records": [\n{"id": "1", "v": 10},\n{"id": "2", "v": 20}\n]}\n',
    "one behind the other": LINES.replace(b"\n", b""),
    "one behind the other, with commas": LINES.replace(b"\n", b", "),
    "UTF-16": LINES.decode().encode("utf-16"),
    "UTF-16 without a mark": LINES.decode().encode("utf-16-be"),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_json_of_which_a_line_is_no_record_is_refused_as_a_file(name: str) -> None:
    source = FileSource("landing", "json", SCHEMA)
    assert reason(ARRAYS[name]) == reason(gzip.compress(ARRAYS[name]))
    refusals = 0
    for number in range(3):
        try:
            read_file(ARRAYS[name], source, RequiredColumns(), "file", Span(number, number + 1, 3))
        except UnreadableFileError:
            refusals += 1
    assert refusals > 0


def test_a_line_that_is_no_record_alone_stays_a_dead_letter() -> None:
    for odd in (b"[1, 2]", b'[{"id": "1"}]', b"[]", b"[", b'{"id": ', b"[,", b'{"id": "1"}{"id": "2"}', b" [x"):
        records = read_file(LINES + odd, FileSource("landing", "json", SCHEMA), RequiredColumns(), "file")
        assert records.unparsed.to_pylist() == [None, None, "not a JSON object"], odd
    records = read_file(b'{"id": "1"},\n{"id": "2"},', FileSource("landing", "json", SCHEMA), RequiredColumns(), "file")
    assert records.unparsed.to_pylist() == ["not a JSON object"] * 2


def test_what_was_recorded_is_read_by_the_rules_that_it_was_read_by() -> None:
    source = FileSource("landing", "json", {"id": str, "at": datetime})
    lines = b'{"id": "1", "at": "20130101T050000Z"}\n{"id": "2", "at": "2013-01-01T05:00:00Z"}\n'

    def judge_lines(data: bytes, name: str, rules: int | None) -> list[str | None]:
        return list(read_file(data, source, RequiredColumns(), name, rules=rules).unparsed.to_pylist())

    for rules in (1, None):
        assert judge_lines(lines, "a", rules) == [None, None] == judge_lines(gzip.compress(lines), "a.GZ", rules)
    assert (
        judge_lines(lines, "a", 0)
        == ["column at: not a timestamp", None]
        == judge_lines(gzip.compress(lines), "a.gz", 0)
    )
    assert set(judge_lines(gzip.compress(lines), "a.GZ", 0)) <= {"not UTF-8", "not a JSON object"}
    array = b'[\n{"id": "1"},\n{"id": "2"}\n]'
    assert [reason is None for reason in judge_lines(array, "a", 0)] == [False, False, True, False]
    text = FileSource("landing", "csv", {"id": str, "at": datetime})
    dated_records = read_file(b"id,at\n1,20130101T050000Z\n", text, RequiredColumns(), "a", rules=0)
    assert dated_records.unparsed.to_pylist() == ["column at: not a timestamp"]


def test_lines_that_would_make_a_file_unreadable_do_not_land_again() -> None:
    for line in (b"[", b"{", b'[{"id": "1"}, {"id": "2"}]', b'{"id": "1"}{"id": "2"}', gzip.compress(LINES)[:20]):
        assert not JSON.stands_alone(line), line
    for line in (b'{"id": 1}', b"[1]", b"torn", b'{"id": "1"', b'{"id": "1"},', b""):
        assert JSON.stands_alone(line), line
