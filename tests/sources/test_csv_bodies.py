"""A CSV file whose records are of another dialect than its header lets see is refused, with the option to write."""

import pytest

import headrace as hr
from headrace.errors import DialectError
from headrace.ext.formats import WHOLE_FILE, RequiredColumns, ScannedRecords, Span, read_file

COLUMNS = {"id": int, "city": str, "street": str}
HEADER = b"id,city,street\n"
SOURCE = hr.csv("landing", COLUMNS)


def read(
    body: bytes, span: Span = WHOLE_FILE, source: hr.FileSource = SOURCE, rules: int | None = None
) -> ScannedRecords:
    return read_file(HEADER + body, source, RequiredColumns(), "landing/1.csv", span, rules=rules)


def records(count: int, form: str = "{},Oslo,Gate\n", encoding: str = "utf-8") -> bytes:
    return "".join(form.format(number) for number in range(count)).encode(encoding)


CP1252 = "{},Tromsø,Straße\n"
QUOTED_LINE = "{},'Oslo, N','a; b'\n"
ESCAPED_LINE = '{},"Oslo \\", N","a"\n'

WRONG = {
    "an encoding": (records(500, CP1252, "cp1252"), 'write encoding="cp1252"', {"encoding": "cp1252"}),
    "now and then": (
        records(9) + records(2, CP1252, "cp1252") + records(9),
        "2 of its first 20 records are not UTF-8",
        {"encoding": "cp1252"},
    ),
    "an encoding that is unknown": (
        records(30, "{},\x81,x\n", "latin-1"),
        "write encoding= in the source",
        {"encoding": "latin-1"},
    ),
    "a quote": (records(500, QUOTED_LINE), 'write quote="\'"', {"quote": "'"}),
    "an escape": (records(500, ESCAPED_LINE), 'write escape="\\\\"', {"escape": "\\"}),
    "a delimiter": (records(500, "{};Oslo;Gate\n"), 'with delimiter=";", by which the header names no column', None),
}
PARTLY = {
    "few records": records(19, CP1252, "cp1252"),
    "few of another encoding": records(95) + records(5, CP1252, "cp1252"),
    "more that are UTF-8": records(20, CP1252, "cp1252") + records(21, CP1252),
    "half of another delimiter": records(30) + records(30, "{};Oslo;Gate\n"),
    "nothing that fits all": records(30, "{};Oslo;Gate\n") + records(1, "{};Oslo\n"),
    "fields are missing": records(500, "{},Oslo\n"),
    "a beginning that is right": records(5000) + records(5000, CP1252, "cp1252"),
}


@pytest.mark.parametrize("name", WRONG)
def test_another_dialect_is_said_of_the_file(name: str) -> None:
    body, why, options = WRONG[name]
    with pytest.raises(DialectError) as error:
        read(body)
    assert why in str(error.value)
    assert error.value.code == "data.csv_dialect"
    if options is not None:
        assert read(body, source=hr.csv("landing", COLUMNS, **options)).unparsed.null_count == body.count(b"\n")


@pytest.mark.parametrize("name", WRONG)
def test_every_piece_says_the_same(name: str) -> None:
    body, why, _ = WRONG[name]
    for first in range(4):
        with pytest.raises(DialectError) as error:
            read(body, Span(first, first + 1, 4))
        assert why in str(error.value)


@pytest.mark.parametrize("name", PARTLY)
def test_what_is_bad_in_part_stays_dead_letters(name: str) -> None:
    found_records = read(PARTLY[name])
    assert len(found_records) == PARTLY[name].count(b"\n")
    assert 0 < found_records.unparsed.null_count < len(found_records) or name in (
        "few records",
        "fields are missing",
        "nothing that fits all",
    )
    pieces = [read(PARTLY[name], Span(first, first + 1, 4)) for first in range(4)]
    assert sum(len(piece) for piece in pieces) == len(found_records)


def test_what_is_recorded_is_read_as_it_was() -> None:
    body = WRONG["an encoding"][0]
    assert read(body, rules=0).unparsed.to_pylist() == ["not UTF-8"] * 500
