"""Whatever is written in a file: what is looked at alone is read as in a block of others, and nothing is an error that
is not typed. Random texts of kinds that are hard to read, against the other path and against Python's own rules.
"""

import base64
import binascii
import bz2
import gzip
import io
import json
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from types import GenericAlias
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import FileSource
from headrace.errors import HeadraceError
from headrace.formats import csv_dialect, json_lines
from headrace.formats.fields import decode_base64
from headrace.formats.file_format import RequiredColumns, ScannedRecords, read_file
from headrace.formats.lines import Quotes
from headrace.kernel.expressions.casts import read_text
from headrace.model.expressions.data_types import DataType, Schema
from headrace_lab.sizes import set_sizes
from tests.reference.strategies import examples

SCHEMA = {kind.value: kind for kind in DataType}
DIGITS = st.builds(
    lambda first, count, last: f"{first}{'7' * count}{last}",
    st.sampled_from(["0", "1", "9", "10", "00"]),
    st.sampled_from([0, 1, 8, 9, 17, 18, 19, 28, 29, 37, 38, 308, 309, 400, 4299, 5000]),
    st.sampled_from(["", "0", "8"]),
)
NUMBERS = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "", "-", "+"]),
    DIGITS,
    st.one_of(st.just(""), st.just("."), DIGITS.map(".{}".format)),
    st.one_of(st.just(""), st.builds("{}{}{}".format, st.sampled_from("eE"), st.sampled_from(["", "+", "-"]), DIGITS)),
)
TIMES = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(
        ["2026-01-01", "2024-02-29", "2026-02-29", "0000-01-01", "0001-01-01", "9999-12-31", "10000-01-01"]
    ),
    st.sampled_from(["", "T00", " 23:59", "T23:59:59", "T23:59:60", "T24:00", "T23:59:59.999999999999", "T1:2"]),
    st.sampled_from(["", "", "Z", "z", "+14:00", "-23:59", "+24:00", "+0130", " Z"]),
    st.sampled_from(["", " ", "\u3000", "\x1c", "x"]),
)
WORDS = st.sampled_from(
    [
        "",
        "t",
        "Yes",
        "null",
        "nan",
        "-inf",
        "infinit",
        "0x1F",
        "1_0",
        ".5",
        "5.",
        "-0",
        "nan(1)",
        "\u0665",
        "a\0b",
        "\ufeff1",
    ]
)
BASE64 = st.one_of(
    st.binary(max_size=9).map(lambda octets: base64.b64encode(octets).decode()), st.text("ABQgwz09+/= -", max_size=9)
)
TEXTS = st.one_of(NUMBERS, TIMES, WORDS, BASE64, st.text("a\u00e9\U0001f600\\\"/[]{}, \t'", max_size=9))
ESCAPES = st.sampled_from([r"\u0041", r"\u0000", r"\ud83d\ude00", r"\ud800", r"\\ud800", r"\"", r"\x", "[" * 700])
STRINGS = st.one_of(TEXTS.map(lambda text: text.replace("\\", "\\\\").replace('"', r"\"")), ESCAPES)
ATOMS = st.one_of(
    NUMBERS, STRINGS.map('"{}"'.format), st.sampled_from(["true", "null", "NaN", "-Infinity", "{}", "nul"])
)
JSON = st.one_of(
    ATOMS,
    st.lists(ATOMS, max_size=2).map(lambda values: f"[{','.join(values)}]"),
    st.sampled_from([10, 590, 600, 700, 2000]).map(lambda deep: "[" * deep + "]" * deep),
)
NUMERIC = [name for name in SCHEMA if name in {"int", "float", "decimal"}]
MEMBERS = st.one_of(
    st.tuples(st.sampled_from([*SCHEMA, "other"]), JSON),
    st.tuples(st.sampled_from(NUMERIC), st.one_of(NUMBERS, DIGITS)),
)
OBJECTS = st.lists(MEMBERS, max_size=4).map(
    lambda fields: "{" + ",".join(f'"{name}":{value}' for name, value in fields) + "}"
)
LINES = st.builds(
    "{}{}{}".format, st.sampled_from(["", "", " "]), OBJECTS, st.sampled_from(["", "", "\t", "x", "{}", ","])
)


def records(scanned_records: ScannedRecords) -> list[tuple[Any, ...]]:
    """Records with their reasons, of NaN and -0.0 as they are written."""
    plain = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in scanned_records.columns.values()]
    return list(
        zip(scanned_records.unparsed.to_pylist(), *(map(repr, column.to_pylist()) for column in plain), strict=True)
    )


@contextmanager
def none_in_blocks() -> Iterator[None]:
    """Every line is looked at alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_lines._JsonReading, "_may_be_whole", lambda reading: np.zeros(len(reading.lines), np.bool_))
        judge = csv_dialect.JudgedLines.from_lines
        patch.setattr(
            csv_dialect.JudgedLines,
            "from_lines",
            lambda *arguments: replace(judge(*arguments), is_plain=arguments[0].is_utf8 & False),
        )
        yield


def assert_one_way(head: str, lines: list[str], good: str, schema: Schema, format_: str) -> None:
    """That ``lines`` are read alone as with others and as one by one."""
    source = FileSource("landing", format_, schema)

    def read(*some: str) -> list[tuple[Any, ...]]:
        return records(
            read_file((head + "\n".join(some)).encode("utf-8", "surrogatepass"), source, RequiredColumns(), "file")
        )

    each = [record for line in lines for record in read(line, "no record")[:-1]]
    assert read(*lines, "no record")[:-1] == each
    assert read(good, *lines, "no record")[1:-1] == each
    with none_in_blocks():
        assert read(*lines, "no record")[:-1] == each


@pytest.mark.slow
@examples(150)
@given(st.lists(LINES, min_size=1, max_size=3), st.sets(st.sampled_from(list(SCHEMA)), min_size=1))
def test_a_line_of_json_is_read_alone_as_in_a_block(lines: list[str], names: set[str]) -> None:
    schema = {name: kind for name, kind in SCHEMA.items() if name in names}
    assert_one_way("", [line for line in lines if line.strip(" \t")], "{}", schema, "json")


MAPS: dict[str, Any] = {
    "m": dict[str, int],
    "d": dict[str, Decimal],
    "mm": dict[str, dict[str, str]],
    "ms": GenericAlias(dict, (str, {"x": int, "m": dict[str, float]})),
    "s": {"m": dict[str, bool], "x": int},
    "ls": GenericAlias(list, ({"x": int, "m": dict[str, float], "l": list[str]},)),
    "ml": dict[str, list[dict[str, int]]],
    "ll": GenericAlias(list, (GenericAlias(list, ({"m": dict[str, str]},)),)),
}
KEYS = st.one_of(
    st.sampled_from(["m", "x", "k", "v", "", *MAPS, r"\u006d", r"\"", r"\\", "a:{", "}],[", r"\ud800", "\u00e9"]),
    st.text("abcdefgh", min_size=1, max_size=2),
).map('"{}"'.format)
BLANKS = st.sampled_from(["", "", "", " ", "\t"])


def objects(keys: st.SearchStrategy[str], values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    members = st.builds("{}{}{}:{}{}".format, BLANKS, keys, BLANKS, BLANKS, values)
    return st.builds("{{{}{}}}".format, st.lists(members, max_size=3).map(",".join), BLANKS)


def texts_of(kind: Any) -> st.SearchStrategy[str]:
    """What a column of ``kind`` takes, in the main."""
    odd = st.one_of(ATOMS, st.sampled_from(['[{"k":"a","v":1}]', "[]", "[null]", "{ }"]))
    match kind:
        case dict():
            good = st.tuples(*(texts_of(own) for own in kind.values())).map(
                lambda values: (
                    f"{{{','.join(f'{json.dumps(name)}:{own}' for name, own in zip(kind, values, strict=True))}}}"
                )
            )
        case type() as plain:
            good = {
                int: st.integers(-3, 2**63).map(str),
                float: st.floats(allow_nan=False, allow_infinity=False).map(repr),
                Decimal: st.sampled_from(["1", "-0", "1.5", '"2.50"', "1e2"]),
                str: STRINGS.map('"{}"'.format),
                bool: st.sampled_from(["true", "false"]),
            }[plain]
        case _ if kind.__origin__ is list:
            items = st.lists(st.builds("{}{}{}".format, BLANKS, texts_of(kind.__args__[0]), BLANKS), max_size=3)
            good = items.map(lambda values: f"[{','.join(values)}]")
        case _:
            good = objects(KEYS, texts_of(kind.__args__[1]))
    return st.integers(0, 19).flatmap(lambda number: odd if number == 0 else st.just("null") if number == 1 else good)


def spoil(line: str, place: int, length: int, new: str) -> str:
    place %= len(line)
    return line[:place] + new + line[place + length :]


RECORDS = objects(
    st.sampled_from([*MAPS, "other", r"\u006d"]).map('"{}"'.format), st.one_of(*map(texts_of, MAPS.values()))
)
WHOLE_RECORDS = texts_of(MAPS)
SPOILED_RECORDS = st.builds(
    spoil, WHOLE_RECORDS, st.integers(0, 999), st.integers(0, 2), st.sampled_from(["", *'{}[]:,"\\1'])
)


@examples(400, 40)
@given(
    st.lists(st.one_of(WHOLE_RECORDS, WHOLE_RECORDS, RECORDS, SPOILED_RECORDS), min_size=1, max_size=4),
    st.sets(st.sampled_from(list(MAPS)), min_size=1),
)
def test_a_line_with_maps_is_read_alone_as_in_a_block(lines: list[str], names: set[str]) -> None:
    schema = {name: kind for name, kind in MAPS.items() if name in names}
    assert_one_way("", [line for line in lines if line.strip(" \t")], "{}", schema, "json")


MAP_LINES = [
    r'{"m":{"a":1,"b":null},"t":"say \"{\" \\","o":{"m":{"x":1}}}',
    r' { "m" : {"\u0161" : 1 , "a:{" : 2} , "mm":{"x":{},"y":{"z":"\u0161"},"w":null} }',
    '{"s":{"m":{"a":true}},"ms":{"a":{"x":1,"m":{"b":-0.0}},"b":null}}',
    '{"m":null}',
    '{"m":{}}',
    r'{"ls":[{"m":{"a":2},"x":1,"l":["{}",null]}, null ,{}],"ml":{"a":[{"z":1,"y":2},null,{}],"b":null},'
    r'"ll":[[{"m":{"a":"]"}},null],null,[]]}',
    "{}",
]


@pytest.fixture
def judged_lines(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The lines that are looked at by themselves."""
    lines: list[bytes] = []
    judge = json_lines._judge_line

    def note_line(line: bytes, *more: Any) -> Any:
        lines.append(line)
        return judge(line, *more)

    monkeypatch.setattr(json_lines, "_judge_line", note_line)
    return lines


def read_maps(lines: list[str]) -> list[tuple[Any, ...]]:
    source = FileSource("landing", "json", MAPS)
    return records(read_file("\n".join(lines).encode(), source, RequiredColumns(), "file"))


def test_lines_with_maps_are_read_as_a_block(judged_lines: list[bytes]) -> None:
    found_maps = read_maps(MAP_LINES)
    assert judged_lines == []
    assert [record[:2] for record in found_maps] == [
        (None, repr(value)) for value in ([("a", 1), ("b", None)], [("a:{", 2), ("š", 1)], None, None, [], None, None)
    ]
    assert found_maps[1][3] == repr([("w", None), ("x", []), ("y", [("z", "š")])])
    assert found_maps[2][4:6] == (
        repr([("a", {"x": 1, "m": [("b", 0.0)]}), ("b", None)]),
        repr({"m": [("a", True)], "x": None}),
    )
    assert found_maps[5][6:] == (
        repr([{"x": 1, "m": [("a", 2.0)], "l": ["{}", None]}, None, {"x": None, "m": None, "l": None}]),
        repr([("a", [[("y", 2), ("z", 1)], None, []]), ("b", None)]),
        repr([[{"m": [("a", "]")]}, None], None, []]),
    )


@pytest.mark.parametrize(
    "line",
    [
        '{"m":[]}',
        '{"m":[{"k":"a","v":1}]}',
        '{"m":{ }}',
        '{"m":{null}}',
        '{"m":{"a":1]}',
        '{"m":{"a":1}',
        '{"m":{"a":"b":2,"c"}}',
        r'{"\u006d":{"a":1}}',
        '{"mm":{"a":[{"k":"a","v":"b"}]}}',
        '{"m":{"a":1}}{"m":{"b":2}}',
        '{"m":{"a":1},"m":{"b":2}}',
        '{"m":{"a":1,}}',
        '{"m":{,"a":1}}',
        '{"m":{"a",1}}',
        '{"m":{"a":1,"b"}}',
        '{"ls":{"m":{"a":1}}}',
        '{"ml":{"a":[[{"k":"a","v":1}]]}}',
        '{"ll":[[{"m":[{"k":"a","v":"b"}]}]]}',
        '{"ls":[{"m":{"a":1}],"x":[}]}',
    ],
)
def test_a_line_that_may_say_something_else_is_judged(line: str, judged_lines: list[bytes]) -> None:
    assert read_maps([MAP_LINES[0], line, MAP_LINES[1]])[0::2] == read_maps(MAP_LINES[:2])
    assert judged_lines == [line.encode()]


def test_lines_that_would_be_too_long_with_entries_are_judged(judged_lines: list[bytes]) -> None:
    by_block = read_maps(MAP_LINES)
    size = len("\n".join(MAP_LINES)) + 20
    with set_sizes(line_bytes=size):
        assert read_maps(MAP_LINES) == by_block
    assert len(judged_lines) == len(MAP_LINES)


def is_closed(line: str) -> bool:
    """Whether no quote goes on into the next line."""
    return not Quotes().are_open_behind(line.encode("utf-8", "surrogatepass"))


FIELDS = st.one_of(
    TEXTS.map(lambda text: text.replace(",", "")),
    TEXTS.map(lambda text: '"' + text.replace('"', '""') + '"'),
    st.builds('{}"{}'.format, WORDS, TEXTS),
)


@pytest.mark.slow
@examples(150)
@given(
    st.lists(st.sampled_from(list(SCHEMA)), min_size=1, max_size=3, unique=True),
    st.lists(st.lists(FIELDS, min_size=1, max_size=3).map(",".join), min_size=1, max_size=3),
)
def test_a_line_of_csv_is_read_alone_as_in_a_block(names: list[str], lines: list[str]) -> None:
    head, schema = ",".join(names), {name: SCHEMA[name] for name in names}
    lines = [line for line in lines if line.strip(" \t") and line != head and is_closed(line)]
    assert_one_way(f"{head}\n", lines, "x" + "," * (len(names) - 1), schema, "csv")


def int_of(text: str) -> int | None:
    number = int(text) if re.fullmatch(r"[+-]?0*[0-9]{1,19}", text) else None
    return number if number is not None and -(2**63) <= number < 2**63 else None


def decimal_of(text: str) -> Decimal | None:
    parts = re.fullmatch(r"([+-]?)([0-9]*)\.?([0-9]*)(?:[eE]([+-]?[0-9]+))?", text)
    if parts is None or not parts[2] + parts[3]:
        return None
    digits = (parts[2] + parts[3]).lstrip("0")
    kept_text = digits.rstrip("0")
    power = int(parts[4] or 0) - len(parts[3]) + len(digits) - len(kept_text) if len(parts[4] or "") < 4000 else 0
    if not kept_text:
        return Decimal(0)
    if len(parts[4] or "") >= 4000 or power < -9 or len(kept_text) + power > 29:
        return None
    return Decimal(f"{parts[1]}{kept_text}e{power}")


def bytes_of(text: str) -> bytes | None:
    try:
        content = base64.b64decode(text.encode(), validate=True)
    except (binascii.Error, ValueError):
        return None
    return content if base64.b64encode(content).decode() == text else None


def float_of(text: str) -> float | None:
    match = re.fullmatch(r"(?i)[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|inf(inity)?|nan)", text)
    return float(text) if match else None


def plain(value: Any) -> Any:
    """NaN as what equals itself."""
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


ORACLES: dict[DataType, Callable[[str], Any]] = {
    DataType.INT: int_of,
    DataType.FLOAT: float_of,
    DataType.DECIMAL: decimal_of,
    DataType.BYTES: bytes_of,
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*ORACLES, DataType.BOOL, DataType.TIMESTAMP, DataType.DATE])
@examples(60)
@given(texts=st.lists(TEXTS, min_size=1, max_size=4))
def test_a_text_says_what_it_says_whatever_stands_beside_it(kind: DataType, texts: list[str]) -> None:
    def read(*some: str | None) -> list[str]:
        array = pa.array(some, pa.string())
        text = decode_base64(array) if kind is DataType.BYTES else read_text(array, kind)
        return list(map(repr, (text.cast(pa.int64()) if pa.types.is_timestamp(text.type) else text).to_pylist()))

    each = [read(text)[0] for text in texts]
    for others in ((), ("no value",), ("2026-01-01T00:00:00Z",), ("2026-01-01",), (None,), ("1",), (" 1.5e1 ",)):
        assert read(*others, *texts)[len(others) :] == each
    if kind in ORACLES:
        trimmed_texts = [text.strip(" \t\n\r\v\f") if kind is DataType.BYTES else text.strip() for text in texts]
        expected = [ORACLES[kind](text) for text in trimmed_texts]
        array = pa.array(texts, pa.string())
        values = (decode_base64(array) if kind is DataType.BYTES else read_text(array, kind)).to_pylist()
        assert list(map(plain, values)) == list(map(plain, expected))


TABLE = pa.table(
    {
        "string": ["a", "\u00e9", None, "d"] * 20,
        "int": pa.array([1, 2, 3, None] * 20),
        "float": [1.5, None, 2.5, 3.5] * 20,
        "bool": [True, False, None, True] * 20,
        "timestamp": pa.array([0, 1, -1, None] * 20, pa.timestamp("us", "UTC")),
        "date": pa.array([1, 2, 3, None] * 20, pa.date32()),
        "bytes": [b"a", b"b", None, b"\xff"] * 20,
        "decimal": pa.array([Decimal("1.5")] * 80, pa.decimal128(20, 3)),
    }
)
TEXT = b"".join(b'{"string":"a%d","int":%d,"float":1.5,"timestamp":"2026-01-01"}\n' % (n, n) for n in range(50))
WRITE_OPTIONS: list[dict[str, Any]] = [
    {},
    {"compression": "none", "use_dictionary": False, "data_page_version": "2.0"},
    {"compression": "gzip", "row_group_size": 10, "version": "1.0"},
    {"use_deprecated_int96_timestamps": True, "store_schema": False},
]


def parquet(table: pa.Table, **options: Any) -> bytes:
    pq.write_table(table, sink := io.BytesIO(), **options)
    return sink.getvalue()


FILES = [
    *(("parquet", "file", parquet(TABLE, **options)) for options in WRITE_OPTIONS),
    ("json", "file.gz", gzip.compress(TEXT)),
    ("json", "file.bz2", bz2.compress(TEXT)),
    ("json", "file.zst", pa.compress(TEXT, "zstd", asbytes=True)),
    ("json", "file", TEXT),
    ("csv", "file", b"string,int,float,timestamp\n" + b"a,1,1.5,2026-01-01\n" * 30),
]


@pytest.mark.slow
@examples(150)
@given(
    st.sampled_from(FILES),
    st.lists(
        st.tuples(st.floats(0, 1), st.integers(0, 4), st.one_of(st.just(b""), st.binary(min_size=1, max_size=4))),
        min_size=1,
        max_size=4,
    ),
)
def test_a_damaged_file_is_read_or_is_a_typed_error(
    file: tuple[str, str, bytes], damage: list[tuple[float, int, bytes]]
) -> None:
    format_, path, data = file
    for place, removed_bytes, put_bytes in damage:
        start = int(place * len(data))
        data = data[:start] + put_bytes + data[start + removed_bytes :]
    try:
        found_records = read_file(data, FileSource("landing", format_, SCHEMA), RequiredColumns(), path)
    except HeadraceError:
        return
    assert len(found_records.raw(np.arange(len(found_records)))) == len(found_records)


def test_timestamps_of_96_bits_are_those_of_all_years() -> None:
    times = [-62_135_596_800_000_000, -1, 0, 1, 253_402_300_799_999_999]
    table = pa.table({"timestamp": pa.array(times, pa.timestamp("us", "UTC"))})
    data = parquet(table, use_deprecated_int96_timestamps=True, store_schema=False)
    assert pq.ParquetFile(io.BytesIO(data)).schema.column(0).physical_type == "INT96"
    source = FileSource("landing", "parquet", {"timestamp": DataType.TIMESTAMP})
    timestamp = read_file(data, source, RequiredColumns(), "file").columns["timestamp"]
    assert timestamp.cast(pa.int64()).to_pylist() == times
