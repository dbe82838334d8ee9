"""Feeds of newest rows in a real topic: upserts, envelopes of Debezium, and messages without a value."""

import io
import json
import random
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import fastavro
import pytest
from aiokafka import AIOKafkaProducer

import headrace as hr
from headrace.errors import PartitionsAddedError
from headrace.ext.sources import Source
from headrace.testing import rows, run
from headrace.testing.connectors import VersionsConformance, VersionsWorld
from headrace.testing.steps import UnitTestError
from scripts.schema_registry import SchemaRegistry
from tests.sources.kafka_topics import Message, Topics
from tests.sources.test_avro_topic import message


@dataclass
class FeedWorld(VersionsWorld):
    """A compacted topic with two partitions. Of a row that is gone it has a message without a value."""

    topics: Topics
    topic: str

    @property
    def source(self) -> Source:
        columns = {"number": int, "text": str, "at": datetime}
        return hr.kafka(self.topic, columns, connection="events", versions=hr.upserts("number"))

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        self._send(records, [json.dumps({**row, "at": row["at"].isoformat()}).encode() for row in records])

    def delete(self, records: Sequence[Mapping[str, Any]]) -> None:
        self._send(records, [None] * len(records))

    def _send(self, records: Sequence[Mapping[str, Any]], values: Sequence[bytes | None]) -> None:
        async def in_order(producer: AIOKafkaProducer) -> None:
            for row, value in zip(records, values, strict=True):
                number, milliseconds = row["number"], int(row["at"].timestamp() * 1000)
                await producer.send_and_wait(self.topic, value, key(number), number % 2, timestamp_ms=milliseconds)

        self.topics.produce(in_order)


class TestFeed(VersionsConformance):
    @pytest.fixture
    def world(self, topics: Topics) -> FeedWorld:
        name = f"topic.{secrets.token_hex(4)}"
        topics.make(name, 2, cleanup_policy="compact")
        return FeedWorld(topics, name)


SCHEMA: Mapping[str, Any] = {"id": int, "city": str, "at": datetime}
TIME = "2026-05-01T09:00:00Z"


@pytest.fixture
def topic(topics: Topics) -> str:
    name = f"topic.{secrets.token_hex(4)}"
    topics.make(name, 2)
    return name


def customers(
    root: Path, topic: str, versions: Any = None, schema: Any = SCHEMA, **more: Any
) -> hr.types.PipelineHandle:
    time_column = more.pop("at", "at")
    source = hr.kafka(topic, schema, connection="events", versions=versions or hr.upserts("id"), **more)
    pipeline = hr.Pipeline(
        "customers",
        source.event_time(time_column, bound="1h"),
        outputs={
            "customers": hr.Rows(key="id", take=hr.newest(), id="id"),
            "by_city": hr.Output(
                of="customers",
                key="city",
                what={"n": hr.count()},
                where=hr.GlobalWindows(),
                when=hr.on_update(),
                how=hr.retracting(None),
            ),
        },
        executor="local",
    )
    return hr.open(root.as_uri(), create=True)[pipeline]


def standing(handle: hr.types.PipelineHandle, output: str = "customers", *columns: str) -> list[dict[str, Any]]:
    rows_ = handle[output].current(columns=[*columns] or ["id", "city"]).to_json()
    return sorted(rows_, key=repr)


def upsert(id_: Any, city: str | None, time: str = TIME) -> bytes:
    return json.dumps({"id": id_, "city": city, "at": time}).encode()


def key(id_: int) -> bytes:
    return str(id_).encode()


@pytest.mark.parametrize("land", ["always", "never"])
def test_the_newest_rows_of_a_topic_follow_its_offsets(topics: Topics, topic: str, tmp_path: Path, land: str) -> None:
    """A random history of each key, in which event times say nothing: the last message counts."""
    chance, table = random.Random(5), dict[int, str]()
    handle = customers(tmp_path, topic, land=land)
    for _ in range(4):
        logs: dict[int, list[Message]] = {0: [], 1: []}
        for _ in range(15):
            id_ = chance.randrange(6)
            if chance.random() < 0.3:
                table.pop(id_, None)
                logs[id_ % 2].append((key(id_), None))
            else:
                table[id_] = chance.choice(["oslo", "rome", "bonn"])
                time = f"2026-05-0{chance.randrange(1, 9)}T09:00:00Z"
                logs[id_ % 2].append((key(id_), upsert(id_, table[id_], time)))
        for partition, messages in logs.items():
            topics.send(topic, messages, partition)
        handle.run()
        assert standing(handle) == sorted(({"id": id_, "city": city} for id_, city in table.items()), key=repr)
        counts = [{"city": city, "n": [*table.values()].count(city)} for city in sorted({*table.values()})]
        assert [one for one in standing(handle, "by_city", "city", "n") if one["n"]] == counts
    assert handle["customers"].read("rejected", at="main").to_json() == []
    handle.run(mode="replay", from_branch="main", branch="again")
    difference = handle["customers"].diff("main", "again").output.rows.to_json()
    assert [difference[kind] for kind in ("added", "removed", "changed")] == [0, 0, 0]


KEYS: dict[str, tuple[Any, bytes, bool]] = {
    "a number": (int, b"7", True),
    "an object": (int, b'{"id": 7}', True),
    "an object with its schema": (int, b'{"schema": {"type": "struct"}, "payload": {"id": 7}}', True),
    "a value with its schema": (int, b'{"schema": {"type": "int32"}, "payload": 7}', True),
    "text": (str, b"7", True),
    "text of a word": (str, b"a b", True),
    "text in JSON": (str, b'"a b"', True),
    "text of an object": (str, b'{"id": "a b"}', True),
    "no number": (int, b"seven", False),
    "a fraction": (int, b"7.5", False),
    "another object": (int, b'{"ident": 7}', False),
    "null": (int, b"null", False),
    "null with its schema": (str, b'{"schema": {"type": "string"}, "payload": null}', False),
    "bytes": (str, b"\xff", False),
    "Avro": (str, b"\0\0\0\0\1\6a b", False),
    "an abyss": (int, b"[" * 100_000, False),
    "two members": (int, b'7, "id": 8', False),
}


@pytest.mark.parametrize("name", KEYS)
def test_the_key_of_a_message_without_a_value_says_which_row_it_deletes(
    topics: Topics, topic: str, tmp_path: Path, name: str
) -> None:
    kind, key_bytes, is_read = KEYS[name]
    id_ = 7 if kind is int else "7" if name == "text" else "a b"
    handle = customers(tmp_path, topic, schema={**SCHEMA, "id": kind})
    topics.send(topic, [(key_bytes, upsert(id_, "oslo"))], 0)
    handle.run()
    assert standing(handle) == [{"id": id_, "city": "oslo"}]
    topics.send(topic, [(key_bytes, None)], 0)
    handle.run()
    assert standing(handle) == ([] if is_read else [{"id": id_, "city": "oslo"}])
    letters = handle["customers"].read("rejected", at="main").to_json()
    assert [letter["reason"] for letter in letters] == ([] if is_read else ["no value, and its key does not say id"])


@pytest.mark.parametrize("kind", [str, bytes])
def test_the_key_of_the_message_may_be_that_of_the_row_as_it_is(
    topics: Topics, topic: str, tmp_path: Path, kind: type
) -> None:
    schema = {"city": str, "kafka_key": kind, "kafka_timestamp": datetime}
    source = hr.kafka(topic, schema, connection="events", versions=hr.upserts("kafka_key"))
    own_pipeline = hr.Pipeline(
        "customers",
        source.event_time("kafka_timestamp", bound="1h"),
        key="kafka_key",
        take=hr.newest(),
        executor="local",
    )
    assert [*own_pipeline.value_types] == ["kafka_key", "city"]
    handle = hr.open(tmp_path.as_uri(), create=True)[own_pipeline]
    one, two = upsert(1, "oslo"), upsert(2, "rome")
    topics.send(topic, [(b"a b", one), (b"b", two), (b"a b", None)], 0)
    handle.run()
    (row,) = handle.current().to_arrow().to_pylist()
    assert (row["kafka_key"], row["city"]) == ("b" if kind is str else b"b", "rome")


def test_a_message_has_no_row_to_delete_without_a_key_and_none_in_order_without_a_version(
    topics: Topics, topic: str, tmp_path: Path
) -> None:
    schema = {**SCHEMA, "version": int}
    handle = customers(tmp_path, topic, hr.upserts("id", "version"), schema)
    topics.send(topic, [(b"1", upsert(1, "oslo")), (b"", None), (b"1", None)], 0)
    handle.run()
    assert standing(handle) == [{"id": 1, "city": "oslo"}]
    letters = sorted(
        (one["position"], one["reason"]) for one in handle["customers"].read("rejected", at="main").to_json()
    )
    assert letters == [
        (1, "no value, and its key does not say id"),
        (2, "no value, and versions go by version, which its key does not say: leave order= out of versions="),
    ]


def test_a_row_is_gone_at_the_time_of_the_message(topics: Topics, topic: str, tmp_path: Path) -> None:
    source = hr.kafka(topic, {**SCHEMA, "kafka_timestamp": datetime}, connection="events", versions=hr.upserts("id"))
    history = hr.Pipeline(
        "history",
        source.event_time("at", bound="1h"),
        rows=["id", "city", "is_tombstone", "kafka_timestamp"],
        executor="local",
    )
    handle = hr.open(tmp_path.as_uri(), create=True)[history]
    topics.send(topic, [(b"1", upsert(1, "oslo")), (b"1", None)], 0)
    handle.run()
    version, tombstone = sorted(handle.current().to_json(), key=lambda row: bool(row["is_tombstone"]))
    assert version["event_time"].startswith("2026-05-01")
    assert (tombstone["id"], tombstone["city"], tombstone["is_tombstone"]) == (1, None, True)
    assert tombstone["event_time"] == tombstone["kafka_timestamp"]


def envelope(op: str, id_: int, city: str | None, lsn: int) -> bytes:
    """As Debezium's connector for PostgreSQL writes it with the default replica identity."""
    source = {
        "connector": "postgresql",
        "db": "shop",
        "table": "customers",
        "lsn": lsn,
        "ts_ms": 1_777_626_000_000 + lsn,
    }
    row = {"id": id_, "city": city}
    old_row = {"id": id_, "city": ""} if op == "d" else None  # of the old row the key alone
    row_after = None if op == "d" else row
    value = {"before": old_row, "after": row_after, "source": source, "op": op, "ts_ms": 1_777_626_009_999}
    return json.dumps({"schema": {"type": "struct"}, "payload": value}).encode()


def debezium_key(id_: int) -> bytes:
    return json.dumps({"schema": {"type": "struct"}, "payload": {"id": id_}}).encode()


def test_envelopes_without_old_rows_are_versions_and_survive_compaction(
    topics: Topics, topic: str, tmp_path: Path
) -> None:
    """Of a row that is gone a compacted topic may have the message without a value alone."""
    versions = hr.debezium_versions("source.ts_ms", key="id", within="payload")
    handle = customers(tmp_path, topic, versions, {"id": int, "city": str}, at="changed_at")

    def message_of(op: str, id_: int, city: str | None, lsn: int) -> Message:
        return debezium_key(id_), envelope(op, id_, city, lsn)

    first: Sequence[Message] = [
        message_of("r", 1, "oslo", 1),
        message_of("c", 2, "rome", 2),
        message_of("c", 3, "bonn", 3),
    ]
    topics.send(topic, first, 0)
    handle.run()
    assert standing(handle) == [{"id": 1, "city": "oslo"}, {"id": 2, "city": "rome"}, {"id": 3, "city": "bonn"}]
    topics.send(
        topic,
        [
            message_of("u", 1, "bern", 4),
            message_of("d", 2, None, 5),
            (debezium_key(2), None),
            (debezium_key(3), None),
            message_of("t", 1, None, 9),
        ],
        0,
    )
    handle.run()
    assert standing(handle) == [{"id": 1, "city": "bern"}]
    assert standing(handle, "by_city", "city") == [{"city": "bern"}]
    (letter,) = handle["customers"].read("rejected", at="main").to_json()
    assert letter["reason"] == "op is none of c, r, u, d"


ROW = {
    "type": "record",
    "name": "Value",
    "fields": [{"name": "id", "type": "int"}, {"name": "city", "type": ["null", "string"]}],
}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", ROW]},
        {"name": "after", "type": ["null", "Value"]},
        {
            "name": "source",
            "type": {"type": "record", "name": "Source", "fields": [{"name": "ts_us", "type": ["null", "long"]}]},
        },
        {"name": "op", "type": "string"},
    ],
}


def test_envelopes_in_avro_are_versions(topics: Topics, topic: str, tmp_path: Path) -> None:
    versions = hr.debezium_versions("source.ts_us", key="id")
    schema = {"id": int, "city": str}
    values = hr.avro(schema=ENVELOPE)
    handle = customers(tmp_path, topic, versions, schema, values=values, at="changed_at", land="never")

    def send_message(op: str, old_row: Any, new_row: Any, time: int | None = 1_777_626_000_000_001) -> bytes:
        stream = io.BytesIO()
        value = {"before": old_row, "after": new_row, "source": {"ts_us": time}, "op": op}
        fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(json.dumps(ENVELOPE))), value)
        return stream.getvalue()

    one, two = {"id": 1, "city": "oslo"}, {"id": 2, "city": "rome"}
    envelopes = [
        send_message("c", None, one),
        send_message("c", None, two),
        send_message("u", None, two, None),
        send_message("d", one, None),
        send_message("u", one, None),
    ]
    topics.send(topic, [(b'{"id": 1}', value) for value in envelopes], 0)
    handle.run()
    (row,) = handle["customers"].current(columns=["id", "city", "event_time"]).to_json()
    assert row == {"id": 2, "city": "rome", "event_time": "2026-05-01T09:00:00.000001Z"}
    letters = sorted(
        (one["position"], one["reason"]) for one in handle["customers"].read("rejected", at="main").to_json()
    )
    assert letters == [(2, "source.ts_us is no time"), (4, "after is null, which op c and r and u need")]


@pytest.mark.spark
def test_rows_are_deleted_on_spark(topics: Topics, topic: str, tmp_path: Path) -> None:
    handle = customers(tmp_path, topic)
    topics.send(topic, [(b"1", upsert(1, "oslo")), (b"2", upsert(2, "rome")), (b"1", None)], 0)
    handle.run(executor="spark")
    assert standing(handle) == [{"id": 2, "city": "rome"}]


def test_a_field_of_the_envelope_may_order_versions_of_a_topic(topics: Topics, topic: str, tmp_path: Path) -> None:
    versions = hr.debezium_versions("source.ts_ms", key="id", within="payload", order="source.lsn")
    handle = customers(tmp_path, topic, versions, {"id": int, "city": str}, at="changed_at")
    envelopes = [envelope("u", 1, "bern", 4), envelope("c", 1, "oslo", 1), envelope("d", 2, None, 7), None]
    topics.send(topic, [(b"any", value) for value in envelopes], 0)
    topics.send(topic, [(b"any", envelope("c", 2, "rome", 2))], 1)
    handle.run()
    assert standing(handle) == [{"id": 1, "city": "bern"}]
    assert handle["customers"].read("rejected", at="main").to_json() == []


def test_partitions_that_are_added_stop_what_goes_by_offsets(topics: Topics, topic: str, tmp_path: Path) -> None:
    """A row whose key moves to another partition begins at a small offset there."""
    handle = customers(tmp_path, topic)
    topics.send(topic, [(b"1", upsert(1, "oslo")), (b"1", upsert(1, "rome"))], 0)
    handle.run()
    topics.divide(topic, 3)
    topics.send(topic, [(b"1", upsert(1, "bern"))], 2)
    with pytest.raises(PartitionsAddedError, match="it has 3 partitions, and had 2"):
        handle.run()
    assert standing(handle) == [{"id": 1, "city": "rome"}]
    by_time = hr.upserts("id", "kafka_timestamp")
    handle = customers(tmp_path, topic, by_time, {**SCHEMA, "kafka_timestamp": datetime})
    handle.backfill(promote=True)
    assert standing(handle) == [{"id": 1, "city": "bern"}]


def test_a_topic_that_has_no_more_partitions_is_read_on(topics: Topics, topic: str, tmp_path: Path) -> None:
    """The partition without messages is known from the first run on."""
    handle = customers(tmp_path, topic)
    topics.send(topic, [(b"1", upsert(1, "oslo"))], 0)
    handle.run()
    topics.send(topic, [(b"2", upsert(2, "rome"))], 1)
    handle.run()
    assert standing(handle) == [{"id": 1, "city": "oslo"}, {"id": 2, "city": "rome"}]


def test_a_deletion_that_comes_late_is_dropped_as_late(topics: Topics, tmp_path: Path) -> None:
    topic = f"topic.{secrets.token_hex(4)}"
    topics.make(topic, 2, retention_ms="-1")  # times of May would be too old
    schema = {**SCHEMA, "kafka_timestamp": datetime}
    source = hr.kafka(topic, schema, connection="events", versions=hr.upserts("id"))
    hours = hr.Pipeline(
        "hours",
        source.event_time("kafka_timestamp", bound="0s"),
        key="id",
        rows=["city"],
        take=hr.newest(),
        where=hr.FixedWindows("1h"),
        when=hr.on_update(),
        how=hr.retracting("0s"),
        executor="local",
    )
    handle = hr.open(tmp_path.as_uri(), create=True)[hours]

    def send(id_: int, value: bytes | None, hours: int) -> None:
        milliseconds = 1_777_626_000_000 + hours * 3_600_000
        for partition in (0, 1):
            topics.produce(
                lambda producer, target=partition: producer.send_and_wait(
                    topic, value, key(id_), target, timestamp_ms=milliseconds
                )
            )
        handle.run()

    send(1, upsert(1, "oslo"), 0)
    send(3, upsert(3, "oslo"), 2)
    send(1, None, 0)
    assert [row["id"] for row in sorted(handle.current(at="main").to_json(), key=repr)] == [1, 3]
    late = handle.read("late", at="main").to_json()
    assert [(row["id"], row["raw"]) for row in late] == [(1, None)] * 2


def test_keys_in_avro_say_which_row_is_gone(
    topics: Topics, topic: str, schemas: SchemaRegistry, tmp_path: Path
) -> None:
    value = {
        "type": "record",
        "name": "customer",
        "fields": [{"name": "id", "type": "int"}, {"name": "city", "type": "string"}, {"name": "at", "type": "string"}],
    }
    of_key = {"type": "record", "name": "key", "fields": [{"name": "id", "type": "int"}]}
    numbers = schemas.register(f"{topic}-value", value), schemas.register(f"{topic}-key", of_key)
    handle = customers(
        tmp_path, topic, schema={**SCHEMA, "at": hr.field("time", str), "kafka_timestamp": datetime},
        values=hr.avro(registry="schemas"), at="kafka_timestamp",
    )  # fmt: skip
    keys = [message(numbers[1], of_key, {"id": id_}) for id_ in (1, 2)]
    values = [message(numbers[0], value, {"id": id_, "city": "oslo", "at": TIME}) for id_ in (1, 2)]
    topics.send(topic, [*zip(keys, values, strict=True)], 0)
    handle.run()
    topics.send(topic, [(keys[0], None)], 0)
    handle.run()
    assert standing(handle) == [{"id": 2, "city": "oslo"}]
    assert handle["customers"].read("rejected", at="main").to_json() == []


def feed() -> hr.Pipeline:
    source = hr.kafka("customers", SCHEMA, connection="events", versions=hr.upserts("id"))
    return hr.Pipeline("customers", source.event_time("at", bound="1h"), key="id", take=hr.newest(), rows=["city"])


@pytest.mark.parametrize("executor", ["local", "reference"])
def test_unit_tests_say_that_a_message_has_no_value_and_have_offsets(executor: Any) -> None:
    first, second = {"id": 1, "city": "oslo", "at": TIME}, {"id": 1, "city": "bonn", "at": "2026-05-01T08:00:00Z"}
    tombstone = {"id": 2, "is_tombstone": True, "kafka_timestamp": "2026-05-01T10:00:00Z"}
    result = run(feed(), [rows(first, {**first, "id": 2}), rows(second, tombstone)], executor=executor)
    assert [row.values for row in result.current] == [{"id": 1, "city": "bonn"}]
    earlier = {**second, "kafka_offset": 0}
    result = run(feed(), [rows(first), rows(earlier)], executor=executor)
    assert [row.values for row in result.current] == [{"id": 1, "city": "oslo"}]


def test_unit_tests_need_the_time_of_a_message_without_a_value() -> None:
    with pytest.raises(UnitTestError, match="write kafka_timestamp"):
        run(feed(), [rows({"id": 2, "is_tombstone": True})])
