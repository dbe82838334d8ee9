"""CSV that is not written as RFC 4180 says: options of the source read it, and a file of another dialect is named."""

import csv
import io
from datetime import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.errors import DialectError, MissingColumnError, PipelineError, UnreadableFileError
from headrace.ext.formats import WHOLE_FILE, RequiredColumns, ScannedRecords, Span, read_file
from headrace.testing import fingerprint
from tests.reference.strategies import examples

SCHEMA: dict[str, Any] = {"id": str, "amount": float, "note": str}


def read(data: bytes, span: Span = WHOLE_FILE, schema: dict[str, Any] | None = None, **options: Any) -> ScannedRecords:
    return read_file(data, hr.csv("landing", schema or SCHEMA, **options), RequiredColumns(), "x", span)


def values(records: ScannedRecords) -> list[tuple[Any, ...]]:
    assert records.unparsed.null_count == len(records), records.unparsed.to_pylist()
    return [*zip(*(column.to_pylist() for column in records.columns.values()), strict=True)]


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ('id;amount;note\na;1.5;"x;y"\n', {"delimiter": ";"}, [("a", 1.5, "x;y")]),
        ("id;amount;note\na;1,5;1.234,5\n", {"delimiter": ";", "decimal": ","}, [("a", 1.5, "1.234,5")]),
        ('id,amount,note\na,"1,5",b\n', {"decimal": ","}, [("a", 1.5, "b")]),
        (
            "id;amount;note\na;1.234,5;b\nb;-1.234.567;b\nc;12;\n",
            {"delimiter": ";", "decimal": ",", "thousands": "."},
            [("a", 1234.5, "b"), ("b", -1234567.0, "b"), ("c", 12.0, None)],
        ),
        ("id\tamount\tnote\n\t\t\na\t\tb\n", {"delimiter": "\t"}, [(None, None, None), ("a", None, "b")]),
        ('id|amount|note\n"a\nb"|1|c\n', {"delimiter": "|"}, [("a\nb", 1.0, "c")]),
        ("id,amount,note\n'a,''\n',1,\"b\n", {"quote": "'"}, [("a,'\n", 1.0, '"b')]),
        ('id,amount,note\n"a,1,b\nb",2,\n', {"quote": None}, [('"a', 1.0, "b"), ('b"', 2.0, None)]),
        ('id,amount,note\n"a\\"\n,b",1,\\,c\\\\\n', {"escape": "\\"}, [('a"\n,b', 1.0, ",c\\")]),
        ('id,amount,note\na\\\nb,1,"\\""" "\n', {"escape": "\\"}, [("a\nb", 1.0, '"" ')]),
        (
            "id,amount,note\na\\\nb,1,c\nd,2,e\\\r\n\nf,3,g\n",
            {"escape": "\\"},
            [("a\nb", 1.0, "c"), ("d", 2.0, "e\r"), ("f", 3.0, "g")],
        ),
        ("Report\n\nid,amount,note\na,1,b\n", {"skip_lines": 2}, [("a", 1.0, "b")]),
        ('"Report\r\nid,amount,note\ra,1,b\n', {"skip_lines": 1}, [("a", 1.0, "b")]),
        (
            'id,amount,note\nNA,\\N,"NA"\nNAN,1, NA\n',
            {"nulls": ["NA", "\\N"]},
            [(None, None, None), ("NAN", 1.0, " NA")],
        ),
    ],
)
def test_options_say_how_files_are_written(text: str, options: dict[str, Any], expected: list[tuple[Any, ...]]) -> None:
    assert values(read(text.encode(), **options)) == expected
    part_count = len(text.encode()) + 10
    pieces = [read(text.encode(), Span(number, number + 1, part_count), **options) for number in range(part_count)]
    assert [row for piece in pieces for row in values(piece)] == expected
    whole_positions = read(text.encode(), **options).position.tolist()
    assert [position for piece in pieces for position in piece.position.tolist()] == whole_positions


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1", "utf-16", "utf-16-le", "utf-16-be", "shift_jis", "gb18030"])
def test_encodings_are_read_whole_and_in_pieces(encoding: str) -> None:
    note = "\u3042,\n\u8868" if encoding in ("shift_jis", "gb18030") else "\u00fc,\n\u00e9"
    text = "Titel\nid,amount,note\n" + f'a,1.5,"{note}"\n' * 20
    data = text.encode(encoding)
    for content in (data, *([data[2:]] if encoding == "utf-16" else [])):  # with a byte order mark, and without
        records = read(content, encoding=encoding, skip_lines=1)
        assert values(records) == [("a", 1.5, note)] * 20
        assert records.position.tolist() == [*range(2, 42, 2)]
        pieces = [read(content, Span(n, n + 1, 7), encoding=encoding, skip_lines=1) for n in range(7)]
        assert [row for piece in pieces for row in values(piece)] == values(records)
        assert np.concatenate([piece.position for piece in pieces]).tolist() == records.position.tolist()


def test_what_is_no_character_of_the_encoding_is_a_dead_letter_that_lands_as_it_was() -> None:
    source = hr.csv("landing", SCHEMA, encoding="cp1252", skip_lines=1)
    data = b"x\nid,amount,note\na,1,\x81\nb,2,\xe9\n"
    records = read_file(data, source, RequiredColumns(), "x")
    assert records.unparsed.to_pylist() == ["not cp1252", None]
    form = source.file_format
    assert form.copied(records.raw(np.arange(2)).to_pylist(), source.fields, form.header(data, "x")) == b"\n" + data[2:]
    with pytest.raises(UnreadableFileError, match="it is not utf-16-le"):
        read("id,amount,note\n".encode("utf-16-le")[:-1], encoding="utf-16-le")


@pytest.mark.parametrize(
    ("text", "options", "advice"),
    [
        ("id;amount;note\na;1;b\n", {}, 'delimiter=";"'),
        ("id\tamount\tnote\na\t1\tb\n", {}, 'delimiter="\\t"'),
        ("id,amount,note\na,1,b\n", {"delimiter": ";"}, 'delimiter=","'),
        ("'id','amount'\n'a',1\n", {}, 'quote="\'"'),
        ("'id';'amount'\n'a';1\n", {}, 'delimiter=";", quote="\'"'),
        ("Report of May\n\nid,amount,note\na,1,b\n", {}, "skip_lines=2"),
        ("id,amount,note\na,1,b\n".encode("utf-16-le"), {}, 'encoding="utf-16-le"'),
        ("id,amount,note\na,1,b\n".encode("utf-16-be"), {}, 'encoding="utf-16-be"'),
        ("id;amount\na;1\n".encode("utf-16"), {}, 'encoding="utf-16"'),
    ],
)
@pytest.mark.parametrize("missing", ["fail", "null"])
def test_a_file_of_another_dialect_is_refused_with_the_option_that_reads_it(
    text: str | bytes, options: dict[str, Any], advice: str, missing: str
) -> None:
    source = hr.csv("landing", SCHEMA, missing=missing, **options)
    required_columns = RequiredColumns(columns={"id": "the key"} if missing == "fail" else {}, fields=source.fields)
    data = text.encode() if isinstance(text, str) else text
    if advice == "skip_lines=2" and missing == "null":
        return  # its first line may be a header of other columns
    with pytest.raises(DialectError) as error:
        read_file(data, source, required_columns, "x")
    assert advice in error.value.reason
    assert error.value.code == "data.csv_dialect"


@pytest.mark.parametrize(
    "text", ["other;names\n1;2\n", "id;amount,note\n1,2\n", "x\n1\n", "id,amount;note\na,1\n", "amount\n1\n"]
)
def test_files_without_the_columns_are_of_no_other_dialect(text: str) -> None:
    assert len(read(text.encode())) == 1


def test_a_value_that_is_a_name_makes_no_preamble() -> None:
    required_columns = RequiredColumns(columns={"amount": "an aggregate"}, fields=hr.csv("landing", SCHEMA).fields)
    with pytest.raises(MissingColumnError, match="lacks column amount"):
        read_file(b"id,note\na,amount\n", hr.csv("landing", SCHEMA), required_columns, "x")


def test_numbers_are_read_as_the_dialect_says_and_in_no_other_way() -> None:
    texts = ["1,5", "1.234", "1.234,5", "12.34", "1.2345", "1,234.5", "1,5e3", ",5", "x", "", " 1,5 ", "1.234.5"]
    text = "v;w\n" + "".join(f"{text};{text}\n" for text in texts)
    options: dict[str, Any] = {"schema": {"v": Decimal, "w": str}, "delimiter": ";", "decimal": ","}
    records = read(text.encode(), **options, thousands=".")
    good = {"1,5": "1.5", "1.234": "1234", "1.234,5": "1234.5", "1,5e3": "1500", ",5": "0.5", " 1,5 ": "1.5", "": None}
    expected = [None if good.get(text) is None else Decimal(good[text] or "") for text in texts]
    assert records.columns["v"].to_pylist() == expected
    reasons = [None if text in good else "column v: not a decimal" for text in texts]
    assert records.unparsed.to_pylist() == reasons
    ungrouped_values = read(text.encode(), **options).columns["v"].to_pylist()
    assert ungrouped_values == [None if "." in text else value for text, value in zip(texts, expected, strict=True)]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"delimiter": ";;"}, "write one character"),
        ({"delimiter": "a"}, "numbers and words"),
        ({"delimiter": '"'}, "delimiter is that already"),
        ({"quote": "\u00ab"}, "write one character"),
        ({"quote": None, "escape": "\\"}, "without quotes"),
        ({"encoding": "utf-9"}, "no such encoding"),
        ({"encoding": "rot13"}, "no such encoding"),
        ({"skip_lines": -1}, "skip_lines"),
        ({"nulls": "NA"}, "write a list"),
        ({"nulls": ["\\N"], "escape": "\\"}, "[Ll]eave one of them out"),
        ({"decimal": ";"}, "write"),
        ({"decimal": ",", "thousands": ","}, "write one of"),
        ({"delimeter": ";"}, "delimiter"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(PipelineError, match=problem):
        hr.csv("landing", SCHEMA, **options)


def test_only_csv_has_a_dialect() -> None:
    dialect = hr.csv("landing", SCHEMA, delimiter=";").dialect
    with pytest.raises(PipelineError, match="only CSV has"):
        hr.FileSource("landing", "json", SCHEMA, dialect=dialect)
    assert hr.csv("landing", SCHEMA, delimiter=",") == hr.csv("landing", SCHEMA)


DIALECTS: list[dict[str, Any]] = [
    {},
    {"delimiter": ";", "decimal": ","},
    {"delimiter": "\t", "quote": "'"},
    {"delimiter": "|", "escape": "\\", "skip_lines": 2},
    {"encoding": "utf-16", "delimiter": ","},
    {"encoding": "cp1252", "decimal": ","},
]
LETTERS = ["'", '"', ",", ";", "\t", "|", "\n", "\r", "\\", "x", " ", "\u00e9", "na"]
TEXTS = st.lists(st.sampled_from(LETTERS), max_size=5).map("".join)


@pytest.mark.parametrize("options", DIALECTS, ids=str)
@given(st.lists(st.tuples(TEXTS, st.floats(-1e9, 1e9), TEXTS), max_size=5))
@examples(100)
def test_what_is_written_in_a_dialect_reads_back_equal(options: dict[str, Any], records: list[Any]) -> None:
    source = hr.csv("landing", SCHEMA, **options)
    content = source.file_format.written([dict(zip(SCHEMA, record, strict=True)) for record in records], source.fields)
    expected = [(one or None, amount, other or None) for one, amount, other in records]
    found_records = read(content, **options)
    assert values(found_records) == expected
    lines = found_records.raw(np.arange(len(found_records))).to_pylist()
    copied_content = source.file_format.copied(lines, source.fields, source.file_format.header(content, "x"))
    assert values(read(copied_content, **options)) == expected


@pytest.mark.parametrize("options", DIALECTS[:4], ids=str)
@given(st.lists(st.lists(TEXTS, min_size=2, max_size=2), max_size=5), st.integers(1, 5))
@examples(100)
def test_what_python_writes_in_a_dialect_is_read(options: dict[str, Any], records: list[Any], part_count: int) -> None:
    skip_lines = options.get("skip_lines", 0)
    text = io.StringIO()
    writer = csv.writer(
        text,
        delimiter=options.get("delimiter", ","),
        quotechar=options.get("quote", '"'),
        escapechar=options.get("escape"),
        doublequote="escape" not in options,
        quoting=csv.QUOTE_ALL,
    )
    writer.writerows([["a", "b"], *records])
    data = (skip_lines * 'no "record\n' + text.getvalue()).encode()
    schema = {"a": str, "b": str}
    pieces = [read(data, Span(n, n + 1, part_count), schema, **options) for n in range(part_count)]
    expected = [(a or None, b or None) for a, b in records if [a, b] != ["a", "b"]]
    assert [row for piece in pieces for row in values(piece)] == expected
    whole_positions = read(data, schema=schema, **options).position.tolist()
    assert [position for piece in pieces for position in piece.position.tolist()] == whole_positions


ESCAPED_TEXTS = st.lists(
    st.sampled_from(['"', ",", "\n", "\r\n", "\r", "x", " ", "\\", "\\\\", "\\\r\n", '",']), max_size=40
).map("".join)


@given(ESCAPED_TEXTS, st.integers(2, 7))
@examples(300)
def test_pieces_of_a_file_with_escapes_say_what_all_of_it_says(text: str, part_count: int) -> None:
    data = ("id,note\n" + text).encode()
    schema = {"id": str, "note": str}

    def record_rows(records: ScannedRecords) -> list[tuple[Any, ...]]:
        columns = [records.position, records.raw(np.arange(len(records))), records.unparsed, *records.columns.values()]
        return [*zip(*(column.tolist() for column in columns), strict=True)]

    pieces = [read(data, Span(n, n + 1, part_count), schema, escape="\\") for n in range(part_count)]
    assert [record for piece in pieces for record in record_rows(piece)] == record_rows(
        read(data, schema=schema, escape="\\")
    )


def test_an_option_is_part_of_what_a_definition_means() -> None:
    def pipeline_with(**options: Any) -> hr.Pipeline:
        source = hr.csv("landing", {"id": str, "at": datetime}, **options)
        parts: dict[str, Any] = {"what": {"n": hr.count()}, "where": hr.GlobalWindows(), "when": hr.on_update()}
        return hr.Pipeline("p", source.event_time("at", bound="1h"), key="id", how=hr.accumulating(), **parts)

    usual = fingerprint(pipeline_with())
    assert usual == fingerprint(pipeline_with(delimiter=",", nulls=[])) != fingerprint(pipeline_with(nulls=["NA"]))
    (checked_pipeline,) = hr.check(pipeline_with(delimiter=";", nulls=["NA"])).pipelines
    lines = [line for part in checked_pipeline.parts for line in part.lines]
    assert "written with delimiter ';', nulls ('NA',)" in lines
