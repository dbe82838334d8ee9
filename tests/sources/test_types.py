"""What is a value of a type in each format, and what makes its record a dead letter (docs/judging.md)."""

import io
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import DataType, FileSource, ListType
from headrace.errors import FileColumnsError
from headrace.ext.formats import RequiredColumns, ScannedRecords, read_file
from headrace.model.expressions.data_types import StructType
from tests.corpus.typed import BAD, COLUMNS, OTHERS, TEXTS, WrittenValue
from tests.kernel.columns import VALUES, arrow, python
from tests.reference.strategies import examples

KINDS = list(TEXTS)
NOUNS = {
    DataType.STRING: "a string",
    DataType.INT: "an int",
    DataType.FLOAT: "a float",
    DataType.BOOL: "a bool",
    DataType.TIMESTAMP: "a timestamp",
    DataType.DATE: "a date",
    DataType.BYTES: "base64",
    DataType.DECIMAL: "a decimal",
}
"""What dead letters call the values that a column takes."""


def read(data: bytes, kind: DataType, format_: str) -> ScannedRecords:
    return read_file(data, FileSource("landing", format_, {"v": kind}), RequiredColumns(), "file")


def assert_values(scanned_records: ScannedRecords, kind: DataType, expected: list[Any]) -> None:
    reason = f"column v: not {NOUNS[kind]}"
    assert scanned_records.unparsed.to_pylist() == [reason if value is BAD else None for value in expected]
    assert scanned_records.columns["v"].to_pylist() == [None if value is BAD else value for value in expected]


def json_lines(values: list[WrittenValue]) -> bytes:
    return "".join(f'{{"v": {each.json}}}\n' for each in values).encode()


def csv_lines(values: list[WrittenValue]) -> bytes:
    return ("v,w\n" + "".join(f"{each.csv},\n" for each in values)).encode()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_texts(kind: DataType) -> None:
    for format_, lines in (("json", json_lines), ("csv", csv_lines)):
        values = [each for each in TEXTS[kind] if (each.json if format_ == "json" else each.csv) is not None]
        assert_values(read(lines(values), kind, format_), kind, [each.value for each in values])
        for each in values:
            assert_values(read(lines([each]), kind, format_), kind, [each.value])
        good = [each for each in values if each.value is not BAD]
        assert_values(read(lines(good), kind, format_), kind, [each.value for each in good])


@pytest.mark.parametrize("kind", KINDS)
def test_parquet(kind: DataType) -> None:
    for column, expected in COLUMNS[kind]:
        records = read(parquet(column), kind, "parquet")
        assert_values(records, kind, expected)
        assert [*json.loads(records.raw(np.arange(1))[0].as_py())] == ["v"]
    for column in OTHERS[kind]:
        with pytest.raises(FileColumnsError, match=f"its column v is .*, and the source says {kind}"):
            read(parquet(column), kind, "parquet")


def parquet(column: pa.Array) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table({"v": column}), buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", KINDS)
@examples(30)
@given(data=st.data())
def test_what_parquet_holds_is_told_as_json_and_read_again(kind: DataType, data: st.DataObject) -> None:
    values = data.draw(st.lists(VALUES[kind], min_size=1, max_size=8))
    records = read(parquet(arrow(values, kind)), kind, "parquet")
    raw = b"\n".join(records.raw(np.arange(len(values))).to_pylist())
    records_again = read(raw, kind, "json")
    assert records_again.unparsed.null_count == len(values)
    assert python(records_again.columns["v"]) == python(records.columns["v"]) == values


@pytest.mark.parametrize(
    ("storage", "kind", "values"),
    [
        (pa.uuid(), DataType.BYTES, [b"0123456789abcdef", None]),
        (pa.json_(), DataType.STRING, ['{"a": 1}', None]),
    ],
    ids=str,
)
def test_logical_types_of_parquet_are_read_as_what_is_stored(
    storage: pa.BaseExtensionType, kind: DataType, values: list[Any]
) -> None:
    column = pa.ExtensionArray.from_storage(storage, pa.array(values, storage.storage_type))
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), column)
    content = io.BytesIO()
    pq.write_table(pa.table({"v": column, "items": lists}), content)
    source = FileSource("landing", "parquet", {"v": kind, "items": ListType(kind)})
    records = read_file(content.getvalue(), source, RequiredColumns(), "file")
    assert records.columns["v"].to_pylist() == values
    assert records.columns["items"].to_pylist() == [[value] for value in values]
    with pytest.raises(FileColumnsError, match="its column v is extension"):
        read_file(content.getvalue(), source, RequiredColumns(), "file", rules=1)
    other = FileSource("landing", "parquet", {"v": DataType.INT})
    with pytest.raises(FileColumnsError, match="its column v is extension"):
        read_file(content.getvalue(), other, RequiredColumns(), "file")


@pytest.mark.parametrize("rules", [None, 1])
def test_a_uuid_that_is_not_read_may_be_beside_what_is_by_older_rules_too(rules: int | None) -> None:
    number = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0123456789abcdef"], pa.binary(16)))
    place = pa.StructArray.from_arrays([pa.array([1]), number], ["x", "number"])
    places = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), place)
    content = io.BytesIO()
    pq.write_table(pa.table({"place": place, "places": places}), content)
    kind = StructType((("x", DataType.INT),))
    source = FileSource("landing", "parquet", {"place": kind, "places": ListType(kind)})
    records = read_file(content.getvalue(), source, RequiredColumns(), "file", rules=rules)
    assert records.columns["place"].to_pylist() == [{"x": 1}]
    assert records.columns["places"].to_pylist() == [[{"x": 1}]]


def test_a_uuid_in_a_struct_is_refused_by_older_rules_where_it_is_read() -> None:
    number = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0123456789abcdef"], pa.binary(16)))
    content = io.BytesIO()
    pq.write_table(pa.table({"place": pa.StructArray.from_arrays([number], ["number"])}), content)
    source = FileSource("landing", "parquet", {"place": StructType((("number", DataType.BYTES),))})
    read = read_file(content.getvalue(), source, RequiredColumns(), "file")
    assert read.columns["place"].to_pylist() == [{"number": b"0123456789abcdef"}]
    with pytest.raises(FileColumnsError, match="its column place is struct"):
        read_file(content.getvalue(), source, RequiredColumns(), "file", rules=1)
