"""Columns that lie elsewhere in the records than their names say, and lists: what each format reads, and refuses."""

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from types import GenericAlias
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace import FileSource
from headrace.errors import FileColumnsError, MissingColumnError, PipelineError
from headrace.ext.formats import FORMATS, WHOLE_FILE, RequiredColumns, ScannedRecords, SourceField, Span, read_file
from headrace.kernel.columns import arrow_type
from headrace.model.expressions.columns import ColumnType, SourceColumns
from tests.reference.strategies import examples

COLUMNS: Mapping[str, Any] = {
    "id": hr.field("_id", int),
    "user": hr.field("user.name", str),
    "mail": hr.field(["user", "e.mail"], str),
    "tags": list[str],
    "at": hr.field("seen.at", list[datetime]),
    "price": hr.field("seen.price", Decimal),
}
"""A column of each kind: another name, in an object (beside another one), a list, a list in an object."""

WHOLE = {"_id": 1, "user": {"name": "ann", "e.mail": "a@b"}, "tags": ["x", None], "seen": {"at": [], "price": "1.5"}}


def read(
    data: bytes, columns: Mapping[str, Any] = COLUMNS, format_: str = "json", span: Span = WHOLE_FILE
) -> ScannedRecords:
    source = FileSource("landing", format_, columns)
    return read_file(data, source, RequiredColumns(columns={}, fields=source.fields), "file", span)


def record(**values: Any) -> bytes:
    return json.dumps({**WHOLE, **values}).encode()


def rows(scan: ScannedRecords) -> list[dict[str, Any]]:
    return [{name: column[row].as_py() for name, column in scan.columns.items()} for row in range(len(scan))]


GOOD_LINES: list[tuple[bytes, Mapping[str, Any]]] = [
    (record(), {"id": 1, "user": "ann", "mail": "a@b", "tags": ["x", None], "at": [], "price": Decimal("1.5")}),
    (b"{}", {"id": None, "user": None, "mail": None, "tags": None, "at": None, "price": None}),
    (record(user=None), {"id": 1, "user": None, "mail": None}),
    (record(user={}), {"user": None, "mail": None}),
    (record(user={"name": None, "other": [{}]}), {"user": None}),
    (record(tags=[]), {"tags": []}),
    (record(tags=None), {"tags": None}),
    (record()[:-1] + b', "user": {"name": "bob"}}', {"user": "bob", "mail": None}),
    (record()[:-1] + b', "user": null}', {"user": None, "mail": None}),
    (record()[:-1] + b', "tags": 3, "tags": ["y"]}', {"tags": ["y"]}),
    (record().replace(b'"user"', b'"us\\u0065r"'), {"user": "ann"}),
    (record(**{"user.name": "zoe"}), {"user": "ann"}),
    (record(seen={"at": ["2013-01-01", None]}), {"at": [datetime.fromisoformat("2013-01-01T00:00:00Z"), None]}),
]
BAD_LINES = [
    (record(_id="1"), "column id (_id): not an int"),
    (record(user="ann"), "column user (user.name): user is not an object"),
    (record(user=["ann"]), "column user (user.name): user is not an object"),
    (record(user={"name": {"first": "ann"}}), "column user (user.name): not a string"),
    (record(tags="x"), "column tags: not a list of string"),
    (record(tags=["x", 1]), "column tags: not a list of string"),
    (record(tags=[["x"]]), "column tags: not a list of string"),
    (record(tags={"x": 1}), "column tags: not a list of string"),
    (record(seen={"at": ["2013-01-01", "soon"]}), "column at (seen.at): not a list of timestamp"),
    (record(seen={"at": [0]}), "column at (seen.at): not a list of timestamp"),
    (record(seen={"price": 1e40}), "column price (seen.price): not a decimal"),
    (record(seen={"at": ["soon"], "price": "x"}), "column at (seen.at): not a list of timestamp"),
    (record(seen=3), "column at (seen.at): seen is not an object"),
    (b"[" + record() + b"]", "not a JSON object"),
]


def test_lines_of_json_alone_and_together() -> None:
    lines = [*((line, None, values) for line, values in GOOD_LINES), *((line, why, {}) for line, why in BAD_LINES)]
    for line, reason, values in lines:
        records_alone = read(line)
        assert records_alone.unparsed.to_pylist() == [reason], line
        (row,) = rows(records_alone)
        assert {name: row[name] for name in values} == dict(values), line
    records_together = read(b"\n".join(line for line, _, _ in lines))
    assert records_together.unparsed.to_pylist() == [reason for _, reason, _ in lines]
    for row, (line, reason, values) in zip(rows(records_together), lines, strict=True):
        assert {name: row[name] for name in values} == dict(values), line
        assert reason is None or {*row.values()} == {None}
    assert records_together.raw(np.arange(len(lines))).to_pylist() == [line for line, _, _ in lines]


def test_a_column_that_no_record_has_is_looked_for_where_it_lies() -> None:
    source = FileSource("landing", "json", COLUMNS)
    required_columns = RequiredColumns(
        columns={"user": "the key", "id": "the filter", "tags": "x"}, fields=source.fields
    )
    records = read_file(b'{"user": {"nam": 1}, "id": 3, "tags": null}', source, required_columns, "file")
    assert records.lacks == {"user": "nam", "id": "id"}


# --- CSV


def table(header: list[str], *lines: list[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *lines])
    return text.getvalue().encode()


HEADER = ["_id", "user.name", "tags", "user.e.mail", "seen.at", "seen.price"]


def test_csv_has_names_with_dots_and_lists_as_json() -> None:
    records = read(
        table(
            HEADER,
            ["1", "ann", '["x", null]', "a@b", '["2013-01-01T00:00:00Z"]', "1.5"],
            ["", "", "", "", "", ""],
            ["1", "ann", "x", "", "", ""],
            ["1", "ann", '[1], "x": [2]', "", "", ""],
            ["1", "ann", '["\\ud800"]', "", "", ""],
            ["1", "ann", " [ ] ", "", '["soon"]', ""],
            ["x", "ann", "", "", "", ""],
        ),
        format_="csv",
    )
    lists = "column tags: not a list of string"
    assert records.unparsed.to_pylist() == [
        None,
        None,
        lists,
        lists,
        lists,
        "column at (seen.at): not a list of timestamp",
        "column id (_id): not an int",
    ]
    assert rows(records)[0] == {
        "id": 1,
        "user": "ann",
        "mail": "a@b",
        "tags": ["x", None],
        "at": [datetime.fromisoformat("2013-01-01T00:00:00Z")],
        "price": Decimal("1.5"),
    }
    assert {*rows(records)[1].values()} == {None}


@pytest.mark.parametrize("format_", ["csv", "parquet"])
def test_a_column_that_a_file_lacks_is_named_as_the_file_would(format_: str) -> None:
    source = FileSource("landing", format_, {"id": hr.field("_id", int), "user": hr.field("user.name", str)})
    required_columns = RequiredColumns(columns={"id": "the key", "user": "the filter"}, fields=source.fields)
    if format_ == "csv":
        content = table(["_id", "user.nam"], ["1", "ann"])
    else:
        content = parquet_bytes(pa.table({"_id": [1], "user": [{"nam": "ann"}]}))
    with pytest.raises(MissingColumnError, match=r"lacks column user\.name \(user in the source\).*'user\.nam'"):
        read_file(content, source, required_columns, "file")
    table_twice = pa.table([pa.array([1]), pa.array([2])], ["_id", "_id"])
    content = table(["_id", "_id"], ["1", "1"]) if format_ == "csv" else parquet_bytes(table_twice)
    with pytest.raises(FileColumnsError, match="names column _id 2 times"):
        read_file(content, source, RequiredColumns(), "file")


# --- Parquet


def parquet_bytes(rows_: pa.Table) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(rows_, buffer, row_group_size=2)
    return buffer.getvalue()


def test_parquet_has_objects_and_lists() -> None:
    objects = pa.StructArray.from_arrays(
        [pa.array(["ann", "bob", None]), pa.array(["a", None, "c"])],
        names=["name", "e.mail"],
        mask=pa.array([False, True, False]),
    )
    times = pa.array([[1, None], None, []], pa.large_list(pa.timestamp("ns")))
    struct = pa.StructArray.from_arrays([times], names=["at"])
    content = parquet_bytes(
        pa.table({"_id": pa.array([1, 2, 3], pa.int8()), "user": objects, "tags": [["x"], [], None], "seen": struct})
    )
    records = read(content, format_="parquet")
    assert records.unparsed.null_count == 3
    assert {name: column.to_pylist() for name, column in records.columns.items() if name != "at"} == {
        "id": [1, 2, 3],
        "user": ["ann", None, None],
        "mail": ["a", None, "c"],
        "tags": [["x"], [], None],
        "price": [None] * 3,
    }
    assert records.columns["at"].cast(pa.list_(pa.int64())).to_pylist() == [[0, None], None, []]
    assert json.loads(records.raw(np.arange(1))[0].as_py()) == {
        "id": 1,
        "user": "ann",
        "mail": "a",
        "tags": ["x"],
        "at": ["1970-01-01T00:00:00Z", None],
        "price": None,
    }
    halves = [read(content, format_="parquet", span=Span(number, number + 1, 2)) for number in range(2)]
    assert [row for half in halves for row in rows(half)] == rows(records)


NOT_TEXT = pa.ListArray.from_arrays([0, 1, 2], pa.array([b"\xff", b"y"]).view(pa.string()))


@pytest.mark.parametrize(
    ("column", "kind", "reasons", "values"),
    [
        (pa.array([[1, 2], None], pa.list_(pa.int8(), 2)), list[int], [None, None], [[1, 2], None]),
        (pa.array([[1], []], pa.large_list(pa.uint32())), list[float], [None, None], [[1.0], []]),
        (pa.array([[], None], pa.list_(pa.null())), list[str], [None, None], [[], None]),
        (pa.array([[None], None], pa.list_(pa.null())), list[str], [None, None], [[None], None]),
        (
            pa.array([["a"], ["a"]], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
            list[str],
            [None] * 2,
            [["a"], ["a"]],
        ),
        (NOT_TEXT, list[str], ["column v: not UTF-8", None], [None, ["y"]]),
        (
            pa.array([[1, 2**60], [1]], pa.list_(pa.timestamp("ms"))),
            list[datetime],
            ["column v: not a list of timestamp", None],
            [None, [datetime.fromisoformat("1970-01-01T00:00:00.001Z")]],
        ),
    ],
)
def test_lists_of_parquet(column: pa.Array, kind: Any, reasons: list[str | None], values: list[Any]) -> None:
    records = read(parquet_bytes(pa.table({"v": column})), {"v": kind}, "parquet")
    assert records.unparsed.to_pylist() == reasons
    assert records.columns["v"].to_pylist() == values


@pytest.mark.parametrize(
    ("column", "kind", "why"),
    [
        (pa.array([["x"]]), list[int], "its column v is list<.*string>, and the source says list of int"),
        (pa.array(["x"]), list[str], "its column v is string, and the source says list of string"),
        (pa.array([["x"]]), str, "its column v is list<.*>, and the source says string"),
        (pa.array(["x"]), hr.field("v.x", str), "its column v is string, and the source says that x is in it"),
        (pa.array([{"x": 1}]), hr.field("v.x", str), r"its column v\.x is int64, and the source says string"),
    ],
)
def test_parquet_of_other_types(column: pa.Array, kind: Any, why: str) -> None:
    with pytest.raises(FileColumnsError, match=why):
        read(parquet_bytes(pa.table({"v": column})), {"w" if isinstance(kind, SourceField) else "v": kind}, "parquet")


# --- the same in all formats, however columns lie

KINDS = {
    hr.DataType.STRING: st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=5)
    | st.sampled_from(["", "[", '"', ",", "null"]),
    hr.DataType.INT: st.integers(-(2**63), 2**63 - 1),
    hr.DataType.FLOAT: st.floats(allow_nan=False, allow_infinity=False),
    hr.DataType.BOOL: st.booleans(),
    hr.DataType.DATE: st.dates(),
    hr.DataType.BYTES: st.binary(max_size=4),
    hr.DataType.DECIMAL: st.decimals("-1e20", "1e20", places=9),
}
PLACES = st.sampled_from([(), ("_{}",), ("in", "{}"), ("in", "deep", "{}"), ("in", "a.b", "{}"), ("out", "{}")])
"""Where a column lies; its name stands in the place of {}."""


@dataclass(frozen=True)
class Case:
    columns: SourceColumns
    records: list[dict[str, Any]]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    columns: dict[str, ColumnType | SourceField] = {"n": hr.DataType.INT}  # CSV has no line without a value
    values: dict[str, st.SearchStrategy[Any]] = {"n": st.just(0)}
    for number in range(draw(st.integers(1, 5))):
        name, scalar = f"c{number}", draw(st.sampled_from([*KINDS]))
        kind = draw(st.sampled_from([scalar, hr.ListType(scalar)]))
        items = KINDS[scalar]
        values[name] = st.none() | (items if kind is scalar else st.lists(items | st.none(), max_size=3))
        path = tuple(part.format(name) for part in draw(PLACES))
        columns[name] = SourceField(path, kind) if path else kind
    return Case(columns, draw(st.lists(st.fixed_dictionaries(values), max_size=6)))


def expected_value(value: Any, format_: str) -> Any:
    """A value as a file has it: CSV knows no empty one."""
    return None if value in ("", b"") and format_ == "csv" else value


@given(cases())
@examples(60)
def test_what_is_written_is_read_again(case: Case) -> None:
    for format_ in ("json", "csv", "parquet"):
        source = FileSource("landing", format_, case.columns)
        content = FORMATS[format_].written(case.records, source.fields)
        records = read(content, case.columns, format_)
        assert records.unparsed.to_pylist() == [None] * len(case.records)
        assert rows(records) == [
            {n: expected_value(v, format_) for n, v in record_.items()} for record_ in case.records
        ]
        for name, kind in source.types.items():
            assert records.columns[name].type == arrow_type(kind)
        if format_ == "parquet" and case.records:
            raw = records.raw(np.arange(len(records))).to_pylist()
            assert rows(read(FORMATS[format_].copied(raw, source.fields, None), case.columns, format_)) == rows(records)


@given(cases(), st.data())
@examples(60)
def test_a_line_of_json_reads_alike_alone_and_in_any_company(case: Case, data: st.DataObject) -> None:
    source = FileSource("landing", "json", case.columns)
    lines = FORMATS["json"].written(case.records, source.fields).splitlines()
    spoiled_lines = [data.draw(spoil(line)) for line in lines]
    records_together = read(b"\n".join(spoiled_lines), case.columns)
    for number, line in enumerate(spoiled_lines):
        records_alone = read(line, case.columns)
        assert records_alone.unparsed[0] == records_together.unparsed[number]
        assert rows(records_alone)[0] == rows(records_together)[number]


def spoil(line: bytes) -> st.SearchStrategy[bytes]:
    """The line, or one with a value of it in the place of another, or twice."""
    document = json.loads(line)
    names = [*document] or ["x"]

    def change_field(name: str, value: Any, is_double: bool) -> bytes:
        if is_double:
            return line[:-1] + f"{', ' if document else ''}{json.dumps(name)}: {json.dumps(value)}}}".encode()
        return json.dumps({**document, name: value}).encode()

    values = st.sampled_from(
        [*document.values(), 1, 1.5, "x", [], {}, [1, "x"], None, True, {"deep": 3}, "2013-01-01", 10**30]
    )
    return st.just(line) | st.builds(change_field, st.sampled_from(names), values, st.booleans())


# --- as they are written in a pipeline


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"_id": int}, r'names that start with _ belong to Headrace; give the column another name: \{"id": field'),
        ({"a": hr.field("x", int), "b": hr.field("x", int)}, "is the same field as column 'b', 'x': declare only one"),
        ({"x": str, "b": hr.field("x.y", int)}, "lies in the field of column 'x', 'x': declare only one"),
        ({"b": hr.field("x.y", int), "x": str}, "lies in the field of column 'x', 'x': declare only one"),
        ({"a": list[dict]}, "write one of str"),
        ({"a": list[list[dict]]}, "write one of str"),
        ({"a": GenericAlias(list, ({"b": object},))}, "write one of str"),
    ],
)
def test_columns_that_cannot_be(columns: Mapping[str, Any], why: str) -> None:
    with pytest.raises(PipelineError, match=why):
        hr.json("landing", columns)


@pytest.mark.parametrize("path", ["", "a..b", ".a", [], ["a", ""], 3, "\ud800"])
def test_paths_that_lead_nowhere(path: Any) -> None:
    with pytest.raises(PipelineError, match=r"field\(path="):
        hr.field(path, int)


def test_a_field_under_its_own_name_is_its_type() -> None:
    assert hr.json("landing", {"a": hr.field("a", int), "b": list[date]}).schema == {
        "a": hr.DataType.INT,
        "b": hr.ListType(hr.DataType.DATE),
    }


def test_a_column_that_is_there_without_any_value_is_not_taken_for_another_one() -> None:
    required_columns = RequiredColumns(identities={"key user": hr.col("user")})
    with pytest.raises(FileColumnsError, match="no key user; it is there, and of type null"):
        required_columns.check(["user", "usr"], [], "a.parquet", "schema")
