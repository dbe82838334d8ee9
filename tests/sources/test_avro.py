"""Messages in Avro: decoded as the library fastavro writes them, whatever their schema; and what is none is told."""

import io
import json
import struct
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from types import GenericAlias
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.connectors.kafka.definition import KafkaSource
from headrace.errors import PipelineError
from headrace.formats.avro_datums import Data
from headrace.formats.avro_messages import NO_SCHEMA, AvroSchemaError, read_avro, record_of, schema_ids
from headrace.formats.file_format import RequiredColumns, ScannedRecords
from headrace.model.expressions.columns import fields_of
from headrace.model.expressions.data_types import in_words
from headrace.read.views.arrow_types import python_rows


def record(**fields: Any) -> dict[str, Any]:
    """A schema with these fields."""
    return {"type": "record", "name": "r", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


def encode_datum(schema: Any, value: Any) -> bytes:
    """One datum."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def frame_datum(number: int, datum: bytes) -> bytes:
    """A message as Confluent's serializers write it."""
    return struct.pack(">bI", 0, number) + datum


def columns(**types: Any) -> Any:
    """Where columns are."""
    source: KafkaSource = hr.kafka("t", types, connection="c")
    return {name: field for name, field in fields_of(source.schema).items() if name in types}


def scan_messages(
    messages: Sequence[bytes | None], schemas: Any, fields: Any, required_columns: RequiredColumns | None = None
) -> ScannedRecords:
    """``messages``, of one schema or of several by number."""
    several = {number: record_of(json.dumps(one)) for number, one in schemas.items()} if 1 in schemas else None
    known_record = record_of(json.dumps(schemas)) if several is None else several
    values = pa.array(messages, pa.binary())
    return read_avro(values, np.arange(len(messages)), fields, required_columns or RequiredColumns(), known_record)


def rows(records: ScannedRecords) -> list[dict[str, Any]]:
    """Rows as readers have them: a time outside of the years 1 to 9999 is text, for Python has none."""
    return python_rows(pa.table(dict(records.columns)))


# --- values


WIDE = record(
    flag="boolean",
    few="int",
    many="long",
    half="float",
    whole="double",
    text="string",
    octets="bytes",
    code={"type": "fixed", "name": "code", "size": 3},
    suit={"type": "enum", "name": "suit", "symbols": ["CLUBS", "HEARTS"]},
    day={"type": "int", "logicalType": "date"},
    at={"type": "long", "logicalType": "timestamp-millis"},
    since={"type": "long", "logicalType": "timestamp-micros"},
    local={"type": "long", "logicalType": "local-timestamp-micros"},
    price={"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4},
    cost={"type": "fixed", "name": "cost", "size": 9, "logicalType": "decimal", "precision": 18, "scale": 2},
    user={
        "type": "record",
        "name": "user",
        "fields": [{"name": "id", "type": "long"}, {"name": "n", "type": "string"}],
    },
    maybe=["null", "string"],
    tags={"type": "array", "items": "string"},
    sizes=["null", {"type": "array", "items": ["null", "long"]}],
    more={"type": "map", "values": "double"},
    mixed=["null", "string", "long"],
)
READ = columns(
    flag=bool,
    few=int,
    many=int,
    half=float,
    whole=float,
    text=str,
    octets=bytes,
    code=bytes,
    suit=str,
    day=date,
    at=datetime,
    since=datetime,
    local=datetime,
    price=Decimal,
    cost=Decimal,
    user=hr.field("user.id", int),
    maybe=str,
    tags=list[str],
    sizes=list[int],
)
MOMENTS = st.datetimes(datetime(1901, 1, 1), datetime(2200, 1, 1)).map(lambda time: time.replace(tzinfo=UTC))
VALUES = st.fixed_dictionaries(
    {
        "flag": st.booleans(),
        "few": st.integers(-(2**31), 2**31 - 1),
        "many": st.integers(-(2**63), 2**63 - 1),
        "half": st.floats(width=32, allow_nan=False),
        "whole": st.floats(allow_nan=False),
        "text": st.text(max_size=5),
        "octets": st.binary(max_size=5),
        "code": st.binary(min_size=3, max_size=3),
        "suit": st.sampled_from(["CLUBS", "HEARTS"]),
        "day": st.dates(date(1, 1, 1), date(9999, 12, 31)),
        "at": MOMENTS.map(lambda time: time.replace(microsecond=time.microsecond // 1000 * 1000)),
        "since": MOMENTS,
        "local": MOMENTS.map(lambda time: time.replace(tzinfo=None)),
        "price": st.integers(-(10**20) + 1, 10**20 - 1).map(lambda digits: Decimal(digits).scaleb(-4)),
        "cost": st.integers(-(10**18) + 1, 10**18 - 1).map(lambda digits: Decimal(digits).scaleb(-2)),
        "user": st.fixed_dictionaries({"id": st.integers(-5, 300), "n": st.text(max_size=3)}),
        "maybe": st.none() | st.text(max_size=4),
        "tags": st.lists(st.text(max_size=3), max_size=4),
        "sizes": st.none() | st.lists(st.none() | st.integers(-9, 2**40), max_size=3),
        "more": st.dictionaries(st.text(max_size=2), st.floats(allow_nan=False), max_size=3),
        "mixed": st.none() | st.text(max_size=2) | st.integers(0, 5),
    }
)


def expected(value: Mapping[str, Any]) -> dict[str, Any]:
    """A value as columns have it."""
    read = {name: value[name] for name in READ if name != "user"}
    return {**read, "user": value["user"]["id"], "local": value["local"].replace(tzinfo=UTC)}


@settings(max_examples=60)
@given(st.lists(VALUES, min_size=1, max_size=8))
def test_data_are_what_they_were(values: list[dict[str, Any]]) -> None:
    records = scan_messages([encode_datum(WIDE, value) for value in values], WIDE, READ)
    assert records.unparsed.null_count == len(values), records.unparsed
    for row, value in zip(rows(records), values, strict=True):
        assert {**row, "price": row["price"].quantize(Decimal("0.0001"))} == expected(value)


@settings(max_examples=200)
@given(VALUES, st.data())
def test_a_datum_that_is_damaged_is_a_dead_letter_and_no_other_one(value: dict[str, Any], data: st.DataObject) -> None:
    """Cut, longer, or with other bytes: what cannot be is told, and the messages beside it are what they were."""
    whole = encode_datum(WIDE, value)
    damage = data.draw(st.sampled_from(["cut", "longer", "other"]))
    if damage == "cut":
        wrong = whole[: data.draw(st.integers(0, len(whole) - 1))]
    elif damage == "longer":
        wrong = whole + data.draw(st.binary(min_size=1, max_size=9))
    else:
        place = data.draw(st.integers(0, len(whole) - 1))
        wrong = whole[:place] + data.draw(st.binary(min_size=1, max_size=10)) + whole[place + 1 :]
    records = scan_messages([whole, wrong, whole], WIDE, READ)
    reasons = records.unparsed.to_pylist()
    assert (reasons[0], reasons[2]) == (None, None)
    assert damage == "other" or reasons[1] == "not Avro of its schema"
    first, second, third = rows(records)
    assert first == third
    assert {**first, "price": first["price"].quantize(Decimal("0.0001"))} == expected(value)
    if reasons[1] is not None:
        assert {*second.values()} == {None}


def test_a_timestamp_outside_of_the_years_of_a_calendar_is_a_value_and_such_a_date_is_a_dead_letter() -> None:
    """Times are what 64 bits hold, as in files; days are those of the years 1 to 9999."""
    kinds = {"day": "date", "at": "timestamp-millis", "since": "timestamp-micros"}
    schema = record(
        **{name: {"type": "long" if name != "day" else "int", "logicalType": kinds[name]} for name in kinds}
    )
    numbers = [(0, 10**15, -(10**18)), (10**7, 0, 0), (0, 2**62, 0), (0, 0, 2**63 - 2)]
    plain_schema = record(day="int", at="long", since="long")
    messages = [encode_datum(plain_schema, dict(zip(kinds, one, strict=True))) for one in numbers]
    records = scan_messages(messages, schema, columns(day=date, at=datetime, since=datetime))
    assert [reason is None for reason in records.unparsed.to_pylist()] == [True, False, False, True]
    known_row, *dead_rows, latest_row = rows(records)
    assert known_row == {"day": date(1970, 1, 1), "at": "+33658-09-27T01:46:40Z", "since": "-29719-04-05T22:13:20Z"}
    assert [{*row.values()} for row in dead_rows] == [{None}, {None}]
    assert latest_row["since"] == "+294247-01-10T04:00:54.775806Z"


def test_an_array_in_blocks_with_their_sizes_and_one_without_end() -> None:
    schema = record(n={"type": "array", "items": "int"})
    blocks = bytes([3, 4, 2, 4, 2, 6, 0])  # -2 items in 2 bytes: 1 and 2; then one item, 3
    records = scan_messages([blocks, bytes([0]), b"\xfe\xff\xff\xff\x0f", bytes([2])], schema, columns(n=list[int]))
    assert records.unparsed.to_pylist() == [None, None, *["not Avro of its schema"] * 2]
    assert records.columns["n"].to_pylist() == [[1, 2, 3], [], None, None]


def test_only_what_is_wanted_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers: list[int] = []
    monkeypatch.setattr("headrace.formats.avro_datums.slice_bytes", lambda *_: numbers.append(1))
    schema = record(a="string", b="bytes", n="int")
    records = scan_messages([encode_datum(schema, {"a": "x", "b": b"y", "n": 5})], schema, columns(n=int))
    assert (rows(records), numbers) == ([{"n": 5}], [])


# --- schemas


def test_messages_of_several_schemas_are_read_by_theirs() -> None:
    first, second = record(n="int"), record(s="string", n="long", x=["null", "string"])
    messages = [
        frame_datum(1, encode_datum(first, {"n": 1})),
        frame_datum(2, encode_datum(second, {"s": "é", "n": 2, "x": "y"})),
        b"\x01\x00\x00\x00\x01\x02",
        None,
        frame_datum(1, encode_datum(first, {"n": 3})),
        b"\x00\x00",
    ]
    required_columns = RequiredColumns(columns={"x": "key", "gone": "key", "n": "key"})
    records = scan_messages(messages, {1: first, 2: second}, columns(n=int, s=str, x=str, gone=str), required_columns)
    assert records.unparsed.to_pylist() == [None, None, NO_SCHEMA, NO_SCHEMA, None, NO_SCHEMA]
    assert records.columns["n"].to_pylist() == [1, 2, None, None, 3, None]
    assert records.columns["s"].to_pylist() == [None, "é", None, None, None, None]
    assert records.lacks == {"gone": None}
    assert records.raw(np.array([2])).to_pylist() == [messages[2]]
    assert schema_ids(pa.array(messages, pa.binary()).slice(1, 3)).tolist() == [2, -1, -1]


def test_a_field_of_another_type_makes_its_messages_dead_letters() -> None:
    first, second = record(n="int", user="string"), record(n="string", user={**record(id="int"), "name": "user"})
    fields = columns(n=int, id=hr.field("user.id", int))
    messages = [
        frame_datum(1, encode_datum(first, {"n": 1, "user": "x"})),
        frame_datum(2, encode_datum(second, {"n": "x", "user": {"id": 1}})),
    ]
    records = scan_messages(messages, {1: first, 2: second}, fields)
    assert records.unparsed.to_pylist() == ["column id (user.id): not an int", "column n: not an int"]
    union_schema = record(n=["string", "long"])
    assert scan_messages([encode_datum(union_schema, {"n": 5})], union_schema, columns(n=int)).unparsed.to_pylist() == [
        "column n: not an int"
    ]


def test_values_that_do_not_fit_are_dead_letters() -> None:
    schema = record(s="string", at={"type": "long", "logicalType": "timestamp-millis"})
    wrong = [b"\x02\xff\x00", encode_datum(schema, {"s": "x", "at": 2**60})]
    records = scan_messages(wrong, schema, columns(s=str, at=datetime))
    assert records.unparsed.to_pylist() == ["column s: not UTF-8", "column at: not a timestamp"]


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ('"string"', "it is no record"),
        ("[", "it is no schema of Avro"),
        ('{"type": "record", "name": "r"}', "it is no schema of Avro"),
        (json.dumps(record(a="nothing")), "names a type 'nothing', which it does not define"),
        (json.dumps({**record(a=["null", "r"]), "namespace": "x"}), "type x.r is in itself"),
    ],
)
def test_a_schema_that_is_none_is_told(schema: str, why: str) -> None:
    with pytest.raises(AvroSchemaError, match=why):
        record_of(schema)


def test_types_are_known_by_their_names() -> None:
    code = {"type": "fixed", "name": "code", "size": 2}
    schema = {**record(a=code, b="code", c="x.code"), "namespace": "x"}
    records = scan_messages([b"aabbcc"], schema, columns(b=bytes, c=bytes))
    assert rows(records) == [{"b": b"bb", "c": b"cc"}]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (hr.avro, "give either the connection of a registry, or the schema"),
        (lambda: hr.avro(registry="a", schema=record(a="int")), "give either"),
        (lambda: hr.avro(registry="A b"), "write the name of a connection"),
        (lambda: hr.avro(schema="{"), "it is no JSON"),
        (lambda: hr.avro(schema={"type": "enum"}), "columns are fields of a record"),
        (lambda: hr.kafka("t", {"n": int}, connection="c", values="avro"), "values"),  # type: ignore[arg-type]
    ],
)
def test_mistakes_are_found_when_the_source_is_written(wrong: Any, why: str) -> None:
    with pytest.raises(PipelineError, match=why):
        wrong()


def test_ten_bytes_are_the_most_that_a_number_has() -> None:
    limits = np.array([12])
    number, places = Data(b"\xff" * 12, limits).read_integers(np.array([0]), np.array([0]))
    assert places.tolist() == [10]
    assert number.tolist() == [-(2**63)]


# --- what a review found


def test_arrays_of_what_is_no_scalar_are_no_column_whatever_their_items_have() -> None:
    inner = {
        "type": "record",
        "name": "i",
        "fields": [{"name": "id", "type": ["null", "int"]}, {"name": "z", "type": "int"}],
    }
    schema = record(
        user={"type": "array", "items": inner},
        lists={"type": "array", "items": {"type": "array", "items": "int"}},
        n="int",
    )
    value = {"user": [{"id": None, "z": 1}, {"id": 5, "z": 1}], "lists": [[], [1]], "n": 3}
    message = encode_datum(schema, value)
    for fields in (columns(user=list[int]), columns(id=hr.field("user.id", int)), columns(lists=list[int])):
        (reason,) = scan_messages([message], schema, fields).unparsed.to_pylist()
        assert "not a" in reason
    assert rows(scan_messages([message], schema, columns(n=int))) == [{"n": 3}]


@pytest.mark.parametrize(
    ("kind", "value", "read"),
    [
        ({"type": "string", "logicalType": "decimal", "precision": 10, "scale": 2}, "12", str),
        ({"type": "double", "logicalType": "decimal", "precision": 10}, 1.5, float),
        ({"type": "bytes", "logicalType": "decimal"}, b"x", bytes),
        ({"type": "bytes", "logicalType": "decimal", "precision": 0}, b"x", bytes),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3}, b"x", bytes),
        ({"type": "bytes", "logicalType": "decimal", "precision": 39}, b"x", bytes),
    ],
)
def test_a_logical_type_that_does_not_fit_means_nothing(kind: Any, value: Any, read: Any) -> None:
    plain = {"type": kind["type"]}
    records = scan_messages([encode_datum(record(a=plain), {"a": value})], record(a=kind), columns(a=read))
    assert rows(records) == [{"a": value}]


def test_a_decimal_may_have_more_bytes_than_its_digits_need() -> None:
    schema = record(d={"type": "fixed", "name": "d", "size": 20, "logicalType": "decimal", "precision": 38, "scale": 2})
    data = [number.to_bytes(20, "big", signed=True) for number in (125, -125, 2**140, -(2**127) - 1)]
    records = scan_messages(data, schema, columns(d=Decimal))
    assert [None if row["d"] is None else float(row["d"]) for row in rows(records)] == [1.25, -1.25, None, None]
    assert records.unparsed.to_pylist()[2:] == ["not Avro of its schema"] * 2


@pytest.mark.parametrize(
    "wrong",
    [
        b"\x80" * 10 + b"\x04",
        b"\xfe" + b"\xff" * 8 + b"\x7f\x04",
    ],
)
def test_a_number_of_more_than_64_bits_is_none(wrong: bytes) -> None:
    assert scan_messages([wrong], record(a="long", b="long"), columns(a=int)).unparsed.to_pylist() == [
        "not Avro of its schema"
    ]


def test_a_block_of_the_least_number_of_items_is_none() -> None:
    schema = record(n={"type": "array", "items": "int"})
    records = scan_messages([b"\xff" * 9 + b"\x01" + b"\x00"], schema, columns(n=list[int]))
    assert records.unparsed.to_pylist() == ["not Avro of its schema"]


def test_odd_types_harm_no_other_field() -> None:
    names = [{"type": "fixed", "name": f"f{number}", "size": 1} for number in range(140)]
    schema = record(
        none=["null"],
        many=["null", *names],
        e={"type": "array", "items": {"type": "enum", "name": "e", "symbols": []}},
        n="int",
    )
    records = scan_messages([bytes([0, 0, 0, 6])], schema, columns(n=int, none=int))
    assert rows(records) == [{"n": 3, "none": None}]
    assert scan_messages([bytes([0, 0, 0, 6])], schema, columns(many=bytes)).unparsed.to_pylist() == [
        "column many: not base64"
    ]
    empty = record(
        a={"type": "array", "items": {"type": "record", "name": "x", "fields": [{"name": "x", "type": "null"}]}},
        n="int",
    )
    assert rows(scan_messages([bytes([10, 0, 2])], empty, columns(n=int))) == [{"n": 1}]


def test_a_long_array_is_read_in_time_that_depends_on_it_alone() -> None:
    schema = record(n={"type": "array", "items": "int"})
    messages = [
        encode_datum(schema, {"n": [*range(2000)]}),
        *[encode_datum(schema, {"n": [number]}) for number in range(2000)],
    ]
    records = scan_messages(messages, schema, columns(n=list[int]))
    assert [len(values) for values in records.columns["n"].to_pylist()] == [2000, *[1] * 2000]


def test_no_message_is_no_record_and_a_schema_that_cannot_be_read_says_so() -> None:
    assert len(scan_messages([], record(n="int"), columns(n=int))) == 0
    found_avro = read_avro(pa.array([frame_datum(7, b"x")]), np.arange(1), columns(n=int), RequiredColumns(), {7: None})
    assert found_avro.unparsed.to_pylist() == ["schema 7, which is no record in Avro"]
    with pytest.raises(AvroSchemaError):
        record_of(json.dumps(record(a="int")).replace('"int"', "[" * 5000 + "]" * 5000))


def test_records_are_structs_and_maps_are_maps() -> None:
    address = {"type": "record", "name": "s", "fields": [*record(city=["null", "string"], n="long")["fields"]]}
    schema = record(id="string", a=["null", address], m={"type": "map", "values": ["null", "long"]})
    values = [
        {"id": "1", "a": {"city": "Oslo", "n": 3}, "m": {"b": 1, "a": None}},
        {"id": "2", "a": None, "m": {}},
        {"id": "3", "a": {"city": None, "n": 1}, "m": {"c": 5}},
    ]
    text_twice = encode_datum(schema, {"id": "4", "a": None, "m": {"x": 1, "y": 2}}).replace(b"y", b"x")
    fields = columns(id=str, a={"city": str, "q": str}, m=dict[str, int])
    records = scan_messages([*(encode_datum(schema, value) for value in values), text_twice], schema, fields)
    assert records.columns["a"].to_pylist() == [{"city": "Oslo", "q": None}, None, {"city": None, "q": None}, None]
    assert records.columns["m"].to_pylist() == [[("a", None), ("b", 1)], [], [("c", 5)], None]
    assert records.unparsed.to_pylist() == [None] * 3 + ["column m: not a map of string to int that has each key once"]


ITEM = {
    "type": "record",
    "name": "item",
    "fields": [
        *record(
            sku=["null", "string"],
            marks=["null", {"type": "map", "values": ["null", "double"]}],
            either=["null", "string", "long"],
            inner=["null", {"type": "record", "name": "inner", "fields": record(n=["null", "long"])["fields"]}],
            grid=["null", {"type": "array", "items": ["null", {"type": "array", "items": "int"}]}],
        )["fields"]
    ],
}
NESTED_SCHEMA = record(
    items=["null", {"type": "array", "items": ["null", ITEM]}],
    by_name={"type": "map", "values": ["null", "item"]},
)
ITEM_TYPE: Any = {
    "sku": str,
    "inner": {"n": int, "other": str},
    "marks": dict[str, float],
    "grid": list[list[int]],
    "absent": bool,
}
NESTED_COLUMNS = columns(items=GenericAlias(list, (ITEM_TYPE,)), by_name=GenericAlias(dict, (str, ITEM_TYPE)))
ITEMS = st.none() | st.fixed_dictionaries(
    {
        "sku": st.none() | st.text(max_size=3),
        "marks": st.none() | st.dictionaries(st.text(max_size=2), st.none() | st.sampled_from([0.0, 1.5]), max_size=3),
        "either": st.none() | st.text(max_size=2) | st.integers(0, 5),
        "inner": st.none() | st.fixed_dictionaries({"n": st.none() | st.integers(-5, 300)}),
        "grid": st.none() | st.lists(st.none() | st.lists(st.integers(-9, 9), max_size=2), max_size=2),
    }
)


def expected_item(value: dict[str, Any] | None) -> dict[str, Any] | None:
    if value is None:
        return None
    inner, marks = value["inner"], value["marks"]
    return {
        "sku": value["sku"],
        "inner": inner and {**inner, "other": None},
        "marks": None if marks is None else sorted(marks.items()),
        "grid": value["grid"],
        "absent": None,
    }


@settings(max_examples=60)
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "items": st.none() | st.lists(ITEMS, max_size=3),
                "by_name": st.dictionaries(st.text(max_size=2), ITEMS, max_size=3),
            }
        ),
        min_size=1,
        max_size=5,
    )
)
def test_lists_and_maps_of_records_are_columns(values: list[dict[str, Any]]) -> None:
    scan = scan_messages([encode_datum(NESTED_SCHEMA, value) for value in values], NESTED_SCHEMA, NESTED_COLUMNS)
    assert scan.unparsed.null_count == len(values), scan.unparsed
    assert scan.columns["items"].to_pylist() == [
        None if value["items"] is None else [*map(expected_item, value["items"])] for value in values
    ]
    assert scan.columns["by_name"].to_pylist() == [
        [(name, expected_item(value["by_name"][name])) for name in sorted(value["by_name"])] for value in values
    ]


def test_a_list_of_records_of_another_type_is_no_column() -> None:
    message = encode_datum(NESTED_SCHEMA, {"items": [], "by_name": {}})
    for kind in ({"either": str}, {"sku": int}, {"absent": int}, {"grid": list[str]}):
        fields = columns(items=GenericAlias(list, (kind,)))
        scan = scan_messages([message], NESTED_SCHEMA, fields)
        assert scan.unparsed.to_pylist() == [f"column items: not a {in_words(fields['items'].type)}"]
