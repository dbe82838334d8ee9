"""Topics of a real broker: every record once, whatever becomes of landers, runs, the broker and the topic."""

import asyncio
import gc
import io
import json
import re
import secrets
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

import fastavro
import numpy as np
import pytest
from aiokafka import AIOKafkaProducer
from click.testing import CliRunner

import headrace as hr
from headrace.cli.main import app
from headrace.connectors.kafka.client import MOST_BYTES
from headrace.connectors.kafka.definition import (
    KafkaRefusedError,
    KafkaSource,
    KafkaUnreachableError,
    RecordsLostError,
    TopicReplacedError,
)
from headrace.connectors.kafka.offsets import NewPartitions, OffsetRange, TopicPosition, in_turns
from headrace.connectors.kafka.source import KAFKA
from headrace.connectors.kafka.source import MOST_BYTES as SPLIT_BYTES
from headrace.errors import PipelineError
from headrace.ext.sources import SourcePosition, SourceSplit
from headrace.formats.file_format import WHOLE_FILE, RequiredColumns, ScannedRecords
from headrace.pipeline.endpoints import Source
from headrace.runs.client.handle import PipelineHandle
from headrace.runs.reporting.listener import Silent
from headrace.sources.landed.ranges import LandedDamagedError
from headrace.sources.landing import Landing
from headrace.testing.connectors import SourceConformance, SourceWorld
from headrace_lab.sizes import set_sizes
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.store import open_store
from headrace_snapshots.store.local import MemoryStore
from scripts.kafka import PASSWORD, USER, Kafka
from tests.kafka_broker import RunningBroker
from tests.sources import test_landed_damage as damage
from tests.sources.kafka_topics import Message, Topics

COLUMNS: Mapping[str, Any] = {"number": int, "text": hr.field("said.text", str), "at": datetime}


@pytest.fixture
def name() -> str:
    return f"topic.{secrets.token_hex(4)}"


@dataclass
class TopicWorld(SourceWorld):
    """A topic with two partitions, which get records in turns."""

    topics: Topics
    topic: str
    sent: int = 0

    @property
    def source(self) -> Source:
        return hr.kafka(self.topic, COLUMNS, connection="events")

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        rows = [{**row, "said": {"text": row["text"]}, "at": row["at"].isoformat()} for row in records]
        self._send([json.dumps(row).encode() for row in rows])

    def append_unreadable(self) -> None:
        self._send([b'{"number": "many", "said": {"text": "x"}, "at": "2026-05-02T00:00:00Z"}'])

    def _send(self, values: Sequence[bytes]) -> None:
        async def in_turns(producer: AIOKafkaProducer) -> None:
            for value in values:
                self.sent += 1
                await producer.send(self.topic, value, partition=self.sent % 2)

        self.topics.produce(in_turns)


class TestTopic(SourceConformance):
    executors = ("local",)

    @pytest.fixture
    def world(self, topics: Topics, name: str) -> SourceWorld:
        topics.make(name, 2)
        return TopicWorld(topics, name)


def source(topic: str, **reading: Any) -> KafkaSource:
    columns = reading.pop("columns", {"n": int, "at": datetime})
    return hr.kafka(topic, columns, connection="events", **reading)


def plan_splits(kafka_source: KafkaSource, mark: str = "") -> list[SourceSplit]:
    return [*KAFKA.open(kafka_source, MemoryStore()).enumerator.unread(SourcePosition(mark))]


def unread(kafka_source: KafkaSource, mark: str = "") -> list[SourceSplit]:
    """Without what says that partitions are new."""
    return [split for split in plan_splits(kafka_source, mark) if NewPartitions.from_split(split) is None]


def read(kafka_source: KafkaSource, mark: str = "") -> list[ScannedRecords]:
    reader = KAFKA.open(kafka_source, MemoryStore()).reader
    return [reader.read(split, WHOLE_FILE, RequiredColumns()) for split in unread(kafka_source, mark)]


def numbers(kafka_source: KafkaSource) -> list[int]:
    return [number for records in read(kafka_source) for number in records.columns["n"].to_pylist()]


def as_json(*values: int) -> list[Message]:
    return [(None, json.dumps({"n": value, "at": "2026-05-01T00:00:00Z"}).encode()) for value in values]


IN_AVRO = {
    "type": "record",
    "name": "numbered",
    "fields": [
        {"name": "n", "type": "int"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}


def as_avro(*values: int) -> list[Message]:
    """The same records."""
    moment = datetime(2026, 5, 1, tzinfo=UTC)
    data = [io.BytesIO() for _ in values]
    for stream, value in zip(data, values, strict=True):
        fastavro.schemaless_writer(stream, fastavro.parse_schema(IN_AVRO), {"n": value, "at": moment})
    return [(None, stream.getvalue()) for stream in data]


# --- what a record is


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_batches_give_keys_values_headers_and_times(topics: Topics, name: str, compression: str | None) -> None:
    topics.make(name, retention_ms="-1")  # it goes by what the records say

    async def send(producer: AIOKafkaProducer) -> None:
        for number in range(50):
            await producer.send(
                name,
                json.dumps({"n": number, "at": "2026-05-01T00:00:00Z"}).encode(),
                f"user-{number}".encode() if number % 3 else None,
                timestamp_ms=1_777_777_777_000 + number,
                headers=[("kind", b"a"), ("bad", b"\xff"), ("none", None)][: number % 4],  # type: ignore[list-item]
            )

    topics.produce(send, compression_type=compression, linger_ms=50)
    given_source = source(
        name,
        columns={
            "n": int,
            "kafka_partition": int,
            "kafka_offset": int,
            "kafka_timestamp": datetime,
            "kafka_key": str,
            "kafka_headers": list[str],
        },
    )
    (records,) = read(given_source)
    rows = {column: values.to_pylist() for column, values in records.columns.items()}
    assert rows["n"] == rows["kafka_offset"] == [*range(50)]
    assert {*rows["kafka_partition"]} == {0}
    assert [round(time.timestamp() * 1000) for time in rows["kafka_timestamp"]] == [
        1_777_777_777_000 + n for n in range(50)
    ]
    assert rows["kafka_key"] == [f"user-{n}" if n % 3 else None for n in range(50)]
    assert rows["kafka_headers"][:5] == [None, ["kind=a"], ["kind=a", "bad"], ["kind=a", "bad", "none"], None]


def test_a_message_that_is_no_record_is_a_dead_letter_with_its_offset(topics: Topics, name: str) -> None:
    topics.make(name)
    topics.send(name, [*as_json(1), (b"k", None), (b"k", b""), (None, b"\xff"), (b"\xff", b'{"n": 5}'), *as_json(6)])
    (records,) = read(source(name, columns={"n": int, "kafka_key": str}))
    assert records.unparsed.to_pylist() == [
        None,
        "no value",
        "not a JSON object",
        "not UTF-8",
        "column kafka_key: not UTF-8",
        None,
    ]
    assert records.position.tolist() == [*range(6)]
    assert records.columns["n"].to_pylist() == [1, None, None, None, None, 6]
    (octets,) = read(source(name, columns={"kafka_key": bytes}))
    assert octets.columns["kafka_key"].to_pylist() == [None, b"k", b"k", None, b"\xff", None]
    assert octets.unparsed.null_count == 6


def test_a_time_that_no_timestamp_holds_is_a_dead_letter_where_it_is_asked_for(topics: Topics, name: str) -> None:
    topics.make(name, message_timestamp_after_max_ms=str(2**63 - 1), retention_ms="-1")  # the first is months old

    async def send(producer: AIOKafkaProducer) -> None:
        for milliseconds in (1_777_777_777_000, 1_777_777_777_000_000_000):  # who writes nanoseconds there
            await producer.send_and_wait(name, as_json(1)[0][1], timestamp_ms=milliseconds)

    topics.produce(send)
    (records,) = read(source(name, columns={"n": int, "kafka_timestamp": datetime}))
    assert records.unparsed.to_pylist() == [None, "column kafka_timestamp: not a timestamp"]
    assert records.columns["n"].to_pylist() == [1, None]
    (others,) = read(source(name, columns={"n": int}))
    assert others.columns["n"].to_pylist() == [1, 1]


def test_what_an_aborted_transaction_sent_counts_for_nothing(topics: Topics, name: str) -> None:
    topics.make(name)

    async def send(producer: AIOKafkaProducer) -> None:
        for number in range(6):
            await producer.begin_transaction()
            for part in range(3):
                await producer.send_and_wait(name, as_json(10 * number + part)[0][1])
            await (producer.commit_transaction() if number % 2 else producer.abort_transaction())

    topics.produce(send, transactional_id=name)
    assert numbers(source(name)) == [10 * number + part for number in (1, 3, 5) for part in range(3)]


def test_records_of_a_transaction_that_is_not_over_wait(topics: Topics, name: str) -> None:
    topics.make(name)
    topics.send(name, as_json(1))
    visible_numbers = []

    async def send(producer: AIOKafkaProducer) -> None:
        async with producer.transaction():
            await producer.send_and_wait(name, as_json(2)[0][1])
            visible_numbers.append(await asyncio.to_thread(numbers, source(name)))

    topics.produce(send, transactional_id=name)
    assert visible_numbers == [[1]]
    assert numbers(source(name)) == [1, 2]


# --- what becomes of a topic


def test_a_partition_that_is_added_is_read_from_its_beginning(topics: Topics, name: str) -> None:
    topics.make(name)
    topics.send(name, as_json(1))
    enumerator = KAFKA.open(source(name), MemoryStore()).enumerator
    first = plan_splits(source(name))
    position = enumerator.after(SourcePosition(), first)
    topics.divide(name, 3)
    assert plan_splits(source(name), position.mark) == []
    topics.send(name, as_json(2), 2)
    second = plan_splits(source(name), position.mark)
    paths = [split.path for split in (*first, *second)]
    assert paths == [
        f"{name}/begins/partitions/0-1",
        f"{name}/0/0-1",
        f"{name}/begins/partitions/1-3",
        f"{name}/2/0-1",
    ]
    position_after = enumerator.after(position, second)
    topics.send(name, as_json(3), 1)
    assert [split.path for split in plan_splits(source(name), position_after.mark)] == [f"{name}/1/0-1"]
    assert [*enumerator.missing((*first, *second))] == []


def test_a_position_from_before_topics_said_how_many_partitions_they_have() -> None:
    position_before = TopicPosition.parse('{"next":{"0":5},"topic_id":"t"}')
    assert position_before == TopicPosition("t", {0: 5}, 0)
    splits_read_after = position_before.with_splits_read(
        [SourceSplit("orders/partitions/0-3", 100, "t"), SourceSplit("orders/2/0-7", 700, "t")]
    )
    assert splits_read_after == TopicPosition.parse(splits_read_after.mark) == TopicPosition("t", {0: 5, 2: 7}, 3)
    # those of 0.1.0 do not say where partitions begin
    new_partitions = NewPartitions(3, 6, {4: 9, 5: 12})
    assert new_partitions.split_path("orders") == "orders/begins/4=9/5=12/partitions/3-6"
    new = SourceSplit(new_partitions.split_path("orders"), 100, "t")
    assert NewPartitions.from_split(new) == new_partitions
    assert splits_read_after.with_splits_read([new]).next == {0: 5, 2: 7, 3: 0, 4: 9, 5: 12}
    for topic in ("begins", "partitions"):
        for some in (NewPartitions(0, 2), NewPartitions(0, 2, {}), NewPartitions(0, 2, {1: 3, 4: 0})):
            assert NewPartitions.from_split(SourceSplit(some.split_path(topic), 100, "t")) == some
    # another topic of that name has nothing of what the one before had
    assert splits_read_after.with_splits_read([SourceSplit("orders/1/0-2", 200, "u")]) == TopicPosition("u", {1: 2}, 0)
    # a topic may be called so
    assert TopicPosition().with_splits_read([SourceSplit("partitions/2/0-7", 700, "t")]) == TopicPosition(
        "t", {2: 7}, 0
    )


def at_hours(*hours: int) -> list[Message]:
    return [(None, json.dumps({"n": hour, "at": f"2026-05-01T{hour:02}:30:00Z"}).encode()) for hour in hours]


@pytest.mark.parametrize("land", ["always", "never"])
def test_a_partition_without_a_record_holds_the_watermark_back(
    topics: Topics, name: str, tmp_path: Path, land: str
) -> None:
    topics.make(name, 2)
    given_input = source(name, land=land).event_time("at", bound="0s")
    pipeline = hr.Pipeline(
        "hours", given_input, key={"all": hr.lit(1)}, what={"n": hr.count()}, where=hr.FixedWindows("1h")
    )
    handle = hr.open((tmp_path / "root").as_uri(), create=True)[pipeline]

    def rows() -> dict[int, int]:
        shown_rows = handle.read("current", at="main").to_arrow().to_pylist()
        return {row["window_start"].hour: row["n"] for row in shown_rows}

    topics.send(name, at_hours(10, 12), 0)
    handle.run(executor="local")
    assert rows() == {}, "partition 1 may begin with anything"
    topics.send(name, at_hours(1, 10, 11), 1)
    handle.run(executor="local")
    assert rows() == {1: 1, 10: 2}

    topics.divide(name, 3)
    topics.send(name, at_hours(20), 0)
    topics.send(name, at_hours(20), 1)
    handle.run(executor="local")
    assert rows() == {1: 1, 10: 2}, "partition 2 may go on where the others are"
    topics.send(name, at_hours(11, 20), 2)
    handle.run(executor="local")
    assert rows() == {1: 1, 10: 2, 11: 2, 12: 1}
    handle.run(executor="local", mode="replay", from_branch="main", branch="again")
    difference = handle.diff("main", "again").output.rows.to_json()
    assert [difference[kind] for kind in ("added", "removed", "changed")] == [0, 0, 0]


def test_a_partition_without_a_record_is_left_out_once_it_is_idle(topics: Topics, name: str, tmp_path: Path) -> None:
    topics.make(name, 2)
    when = source(name).event_time("at", bound="0s", idle="30m")
    pipeline = hr.Pipeline("hours", when, key={"all": hr.lit(1)}, what={"n": hr.count()}, where=hr.FixedWindows("1h"))
    handle = hr.open((tmp_path / "root").as_uri(), create=True)[pipeline]
    for hours in ((10,), (12,)):
        topics.send(name, at_hours(*hours), 0)
        handle.run(executor="local")
    assert handle.read("current", at="main").to_json() == [], "it has been silent for some seconds"
    shown_result = CliRunner().invoke(app, ["show", "hours", "main", "--root", (tmp_path / "root").as_uri()])
    assert re.search(r"held_back_by +.*split 1\b", shown_result.stdout), shown_result.output
    began = {"clock": "2026-05-02T00:00:00Z", "files_per_epoch": 2}  # what says that there are partitions is a split
    for step, epoch in (("5m", 2), ("40m", 1)):  # an epoch of its own when it becomes idle; or the next one finds it so
        handle.run(executor="local", mode="replay", clock_step=step, branch=f"each_{step}", **began)
        rows = handle.read("current", at=f"each_{step}").to_arrow().to_pylist()
        assert [(row["window_start"].hour, row["epoch"]) for row in rows] == [(10, epoch)]


@pytest.mark.parametrize("split", ["shop", None])
def test_a_topic_with_other_splits_waits_for_none_that_has_said_nothing(
    topics: Topics, name: str, tmp_path: Path, split: str | None
) -> None:
    topics.make(name, 2)
    columns = {"n": int, "at": datetime, "shop": str}
    read_by = source(name, columns=columns)
    given_input = read_by.arrival_time() if split is None else read_by.event_time("at", bound="0s", split=split)
    pipeline = hr.Pipeline(
        "hours", given_input, key={"all": hr.lit(1)}, what={"n": hr.count()}, where=hr.FixedWindows("1h")
    )
    handle = hr.open((tmp_path / "root").as_uri(), create=True)[pipeline]
    topics.send_json(name, [{"n": 1, "shop": "a", "at": f"2026-05-01T{hour}:00:00Z"} for hour in (10, 12)], 0)
    result = handle.run(executor="local")
    assert result.watermark is not None
    assert result.watermark.startswith("2026-")


def test_a_topic_that_was_replaced_is_another_one(topics: Topics, name: str) -> None:
    topics.make(name)
    topics.send(name, as_json(1, 2))
    enumerator = KAFKA.open(source(name), MemoryStore()).enumerator
    splits = unread(source(name))
    position = enumerator.after(SourcePosition(), splits)
    topics.remove(name)
    topics.make(name)
    topics.send(name, as_json(3, 4, 5))
    with pytest.raises(TopicReplacedError, match=rf"topic {name} of connection events: it was replaced: .*on_lost="):
        unread(source(name), position.mark)
    assert [how for _, how in enumerator.missing(splits)] == ["has changed: the topic was replaced"]
    with pytest.raises(TopicReplacedError, match=rf"topic {name} of connection events: {name}/0/0-2.*on_lost="):
        KAFKA.open(source(name), MemoryStore()).reader.read(splits[0], WHOLE_FILE, RequiredColumns())
    assert [split.path for split in unread(source(name, on_lost="skip"), position.mark)] == [f"{name}/0/0-3"]


def test_records_that_are_gone_before_they_were_read_are_named(topics: Topics, name: str) -> None:
    topics.make(name)
    topics.send(name, as_json(*range(10)))
    splits = unread(source(name))
    enumerator = KAFKA.open(source(name), MemoryStore()).enumerator
    topics.send(name, as_json(*range(10, 20)))
    topics.delete_before(name, 0, 15)
    with pytest.raises(RecordsLostError, match="offsets 10 to 14 of partition 0 were deleted before they were read"):
        unread(source(name), enumerator.after(SourcePosition(), splits).mark)
    with pytest.raises(RecordsLostError, match=r"connection events .*partition 0: offsets 0 to 9 are gone.*on_lost="):
        KAFKA.open(source(name), MemoryStore()).reader.read(splits[0], WHOLE_FILE, RequiredColumns())
    skipping = source(name, on_lost="skip")
    assert [split.path for split in unread(skipping, enumerator.after(SourcePosition(), splits).mark)] == [
        f"{name}/0/15-20"
    ]
    assert len(KAFKA.open(skipping, MemoryStore()).reader.read(splits[0], WHOLE_FILE, RequiredColumns())) == 0


@pytest.mark.parametrize("land", ["always", "never"])
@pytest.mark.parametrize("how", ["known and empty", "emptied before", "added since"])
def test_records_of_a_partition_that_nobody_has_read_are_missed_too(
    topics: Topics, name: str, tmp_path: Path, how: str, land: str
) -> None:
    topics.make(name, 1 if how == "added since" else 2)
    if how == "emptied before":
        topics.send(name, as_json(8, 9), 1)
        topics.delete_before(name, 1, 2)
    first = 2 if how == "emptied before" else 0

    def handle(on_lost: str = "fail") -> PipelineHandle:
        given_input = source(name, land=land, on_lost=on_lost).event_time("at", bound="1h")
        numbers = {"numbers": hr.col("n").collect()}
        when = hr.Repeatedly(hr.AfterCount(1))
        pipeline = hr.Pipeline(
            "all",
            given_input,
            what=numbers,
            where=hr.GlobalWindows(),
            when=when,
            how=hr.retracting(allowed_lateness=None),
        )
        return hr.open((tmp_path / "root").as_uri(), create=True)[pipeline]

    topics.send(name, as_json(1, 2), 0)
    handle().run(executor="local")
    if how == "added since":
        topics.divide(name, 2)
    topics.send(name, as_json(3, 4, 5), 1)
    topics.delete_before(name, 1, first + 2)
    with pytest.raises(RecordsLostError, match=f"offsets {first} to {first + 1} of partition 1 were deleted before"):
        handle().run(executor="local")
    handle("skip").run(executor="local")
    (row,) = handle().current(at="main").to_json()
    assert row["numbers"] == [1, 2, 5]
    topics.send(name, as_json(6), 1)
    handle().run(executor="local")
    assert handle().current(at="main").to_json()[0]["numbers"] == [1, 2, 5, 6]


@pytest.mark.parametrize(
    ("how", "error", "numbers"),
    [("deleted", RecordsLostError, [1, 2, 5, 6]), ("replaced", TopicReplacedError, [1, 2, 6])],
)
def test_what_a_lander_that_was_killed_had_claimed_and_is_gone(
    topics: Topics, tmp_path: Path, how: str, error: type[PipelineError], numbers: list[int]
) -> None:
    name, root = f"topic.{secrets.token_hex(4)}", tmp_path / "root"
    topics.make(name)

    def pipeline(on_lost: str = "fail") -> hr.Pipeline:
        given_input = source(name, on_lost=on_lost).event_time("at", bound="1h")
        what = {"numbers": hr.col("n").collect()}
        return hr.Pipeline(
            "all", given_input, what=what, where=hr.GlobalWindows(), when=hr.on_update(), executor="local"
        )

    def handle(on_lost: str = "fail") -> PipelineHandle:
        return hr.open(root.as_uri(), create=True)[pipeline(on_lost)]

    topics.send(name, as_json(1, 2))
    handle().run()
    paths_before = {*root.rglob("*.parquet")}
    topics.send(name, as_json(3, 4, 5))
    Landing(pipeline(), open_store(root.as_uri())).land_all({})
    (landed_path,) = {*root.rglob("*.parquet")} - paths_before
    seal = max(root.rglob("*.seal.json"))
    seal.unlink()
    landed_path.unlink()  # as if it had been killed between the claim and this
    if how == "deleted":
        topics.delete_before(name, 0, 4)
    else:
        topics.remove(name)
        topics.make(name)
    topics.send(name, as_json(6))
    with pytest.raises(error, match=r"connection events.* on_lost="):
        handle().run()
    handle("skip").run()
    (row,) = handle().current(at="main").to_json()
    assert row["numbers"] == numbers
    assert handle().fsck().damage == ()


def test_what_is_damaged_of_a_landed_topic_is_said_and_lands_again(topics: Topics, name: str, tmp_path: Path) -> None:
    topics.make(name, 2)
    uri = (tmp_path / "root").as_uri()
    handle = hr.open(uri, create=True)[
        hr.Pipeline(
            "counting",
            source(name).event_time("at", bound="1h"),
            key="n",
            what={"sum": hr.col("n").sum()},
            where=hr.FixedWindows("1d"),
            when=hr.on_update(),
            executor="local",
        )
    ]
    for number in (1, 10, 100):
        for partition in range(2):
            topics.send(name, as_json(number), partition)
        handle.run()
    store, landed_text = open_store(uri), "counting/landed/source/"

    def total() -> int:
        return sum(row["sum"] for row in handle.read("current", at="main").to_json())

    damage.older(store, "file", 2)
    with pytest.raises(LandedDamagedError, match="has another content than when it was landed"):
        handle.backfill(promote=True)
    damage.cut_object(store, "claim", 2)
    damage.cut_object(store, "seal", 2)
    with pytest.raises(BrokenObjectError, match="fsck counting"):
        handle.run()
    assert len(handle.fsck(deep=True).damage) == 1
    damage.follow(handle, store, landed_text)
    assert total() == 22
    handle.run()
    assert total() == 222
    assert handle.fsck(deep=True).damage == ()


@pytest.mark.parametrize("land", ["always", "never"])
def test_partitions_that_a_replaced_topic_has_no_more_hold_nothing_back(
    topics: Topics, name: str, tmp_path: Path, land: str
) -> None:
    topics.make(name, 3)

    def run(on_lost: str) -> str | None:
        given_input = source(name, land=land, on_lost=on_lost).event_time("at", bound="0s")
        pipeline = hr.Pipeline(
            "hours", given_input, what={"n": hr.count()}, where=hr.FixedWindows("1h"), when=hr.AfterWatermark()
        )
        handle = hr.open((tmp_path / "root").as_uri(), create=True)[pipeline]
        return handle.run(executor="local").watermark

    for partition in range(3):
        topics.send(name, at_hours(1, 5), partition)
    assert run("fail") == "2026-05-01T05:30:00Z"
    topics.remove(name)
    topics.make(name)
    topics.send(name, at_hours(6, 10), 0)
    assert run("skip") == "2026-05-01T10:30:00Z"
    topics.divide(name, 2)
    topics.send(name, at_hours(12), 0)
    topics.send(name, at_hours(11), 1)
    assert run("fail") == "2026-05-01T11:30:00Z", "one that is there again is waited for"


def test_a_compacted_topic_gives_what_is_left(topics: Topics, name: str) -> None:
    topics.make(
        name, cleanup_policy="compact", min_cleanable_dirty_ratio="0.001", segment_ms="1", max_compaction_lag_ms="100"
    )
    for number in range(30):
        topics.send(name, [(b"k%d" % (number % 3), as_json(number)[0][1])])
    topics.send(name, [(b"last", as_json(99)[0][1])])

    def is_compacted() -> bool:
        return len(numbers(source(name))) < 20

    import tenacity

    tenacity.Retrying(
        stop=tenacity.stop_after_delay(60),
        wait=tenacity.wait_fixed(0.2),
        retry=tenacity.retry_if_result(lambda is_: not is_),
    )(is_compacted)
    (split,) = unread(source(name))
    assert split.path == f"{name}/0/0-31"
    left = numbers(source(name))
    assert left == sorted(left)
    assert {27, 28, 29, 99} <= {*left}


@pytest.fixture(scope="module")
def session(running_broker: RunningBroker) -> Iterator[None]:
    """What runs on Spark shares one session: each would start its own, with Python workers of its own. They have the
    environment in which the session began.
    """
    from headrace.distribute.spark.session import spark_session

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADRACE_CONN_EVENTS", f"kafka://{running_broker.broker().address}")
        started_session = spark_session("topics", conf={"spark.log.level": "ERROR"})
    yield
    started_session.stop()


@pytest.mark.spark
@pytest.mark.usefixtures("session")
@pytest.mark.parametrize("land", ["always", "never"])
def test_landed_and_kept_topics_give_the_same_on_spark(topics: Topics, name: str, tmp_path: Path, land: str) -> None:
    """The topic has a partition without a record. What is kept is Avro."""
    values, encode = (None, as_json) if land == "always" else (hr.avro(schema=IN_AVRO), as_avro)
    topics.make(name, 3)
    pipeline = hr.Pipeline(
        "numbers",
        source(name, land=land, values=values).event_time("at", bound="1h"),
        key={"rest": hr.col("n") % 3},
        what={"numbers": hr.count(), "sum": hr.col("n").sum()},
        where=hr.FixedWindows("1d"),
        when=hr.on_update(),
    )
    handle = hr.open((tmp_path / "root").as_uri(), create=True)[pipeline]
    for begin, executor in ((0, "spark"), (30, "local")):
        topics.send(name, encode(*range(begin, begin + 20)), 0)
        topics.send(name, encode(*range(begin + 20, begin + 30)), 1)
        handle.run(executor=executor)
    rows = {row["rest"]: (row["numbers"], row["sum"]) for row in handle.read("current", at="main").to_json()}
    assert rows == {rest: (20, sum(range(rest, 60, 3))) for rest in range(3)}
    handle.run(executor="spark", mode="replay", from_branch="main", branch="again")
    difference = handle.diff("main", "again").output.rows.to_json()
    assert [difference[kind] for kind in ("added", "removed", "changed")] == [0, 0, 0]


# --- in turns


def test_partitions_go_on_in_equal_parts_of_what_they_have() -> None:
    lags = [OffsetRange(0, 100, 1_100), OffsetRange(1, 0, 10), OffsetRange(2, 5, 505)]
    pieces = [*in_turns(lags, 200)]
    assert [piece.partition for piece in pieces[:6]] == [0, 1, 2, 0, 1, 2]
    for lag in lags:
        own = [piece for piece in pieces if piece.partition == lag.partition]
        assert own[0].begin == lag.begin
        assert own[-1].end == lag.end
        assert all(one.end == other.begin for one, other in pairwise(own))
        assert max(one.end - one.begin for one in own) <= 200


# --- the connection


def test_a_password_is_asked_for_and_never_told(
    broker: Kafka, topics: Topics, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.make(name)
    topics.send(name, as_json(1))
    monkeypatch.setenv("HEADRACE_CONN_EVENTS", f"kafka://{USER}:{quote(PASSWORD, safe='')}@{broker.with_password}")
    assert numbers(source(name)) == [1]
    monkeypatch.setenv(
        "HEADRACE_CONN_EVENTS", f"kafka://{USER}:wrong-{quote(PASSWORD, safe='')}@{broker.with_password}"
    )
    with pytest.raises(KafkaRefusedError, match="HEADRACE_CONN_EVENTS right") as error:
        numbers(source(name))
    assert PASSWORD not in str(error.value)


def test_over_tls_and_by_scram(broker: Kafka, topics: Topics, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    topics.make(name)
    topics.send(name, as_json(1))
    options = f"tls=true&mechanism=SCRAM-SHA-512&cafile={quote(str(broker.certificate))}"
    place = f"{USER}:{quote(PASSWORD, safe='')}@{broker.encrypted_address}"
    monkeypatch.setenv("HEADRACE_CONN_EVENTS", f"kafka://{place}?{options}")
    assert numbers(source(name)) == [1]
    for uri, why in (
        (f"kafka://{USER}:wrong@{broker.encrypted_address}?{options}", "HEADRACE_CONN_EVENTS right"),
        (f"kafka://{place}?tls=true&mechanism=SCRAM-SHA-512", "certificate"),
        (f"kafka://{place}?tls=true&cafile=/no/such.pem", "No such file"),
    ):
        monkeypatch.setenv("HEADRACE_CONN_EVENTS", uri)
        with pytest.raises(KafkaRefusedError, match=why) as error:
            numbers(source(name))
        assert PASSWORD not in str(error.value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()  # asyncio of Python 3.11.2 leaves the socket of a handshake that was refused


def test_what_cannot_be_reached_or_is_not_there_is_said(
    topics: Topics, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KafkaRefusedError, match=f"there is no topic {name}"):
        numbers(source(name))
    with set_sizes(kafka_patience_at_first=0.1):
        monkeypatch.setenv("HEADRACE_CONN_EVENTS", "kafka://127.0.0.1:1")
        with pytest.raises(KafkaUnreachableError, match=r"connection events \(kafka://127\.0\.0\.1:1/\)"):
            numbers(source(name))
        monkeypatch.setenv("HEADRACE_CONN_EVENTS", "postgresql://127.0.0.1:1")
        with pytest.raises(KafkaRefusedError, match="needs kafka://"):
            numbers(source(name))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("tsl=true", "option 'tsl' is not known; it takes tls, cafile"),
        ("tls=on", "tls is 'on': write true or false"),
        ("cafile=/ca.pem", "cafile is for tls=true"),
        ("mechanism=SCRAM", "mechanism is 'SCRAM': write one of PLAIN, SCRAM-SHA-256"),
    ],
)
def test_a_password_is_not_sent_in_clear_text_by_an_option_that_is_misspelled(
    monkeypatch: pytest.MonkeyPatch, options: str, why: str
) -> None:
    monkeypatch.setenv("HEADRACE_CONN_EVENTS", f"kafka://user:secret@127.0.0.1:1?{options}")
    with pytest.raises(KafkaRefusedError, match=why) as error:
        unread(source("orders"))
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"land": "sometimes"}, 'land=\'sometimes\'.*"always" or "never"'),
        ({"on_lost": "ignore"}, "on_lost"),
        ({"columns": {"kafka_offset": str}}, "kafka_offset.*Kafka says it as int"),
        ({"max_files": 0}, "max_files"),
    ],
)
def test_mistakes_are_found_when_the_source_is_written(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(PipelineError, match=why):
        source("orders", **wrong)


# --- what a run lands at once


@pytest.mark.parametrize("land", ["always", "never"])
@set_sizes(kafka_split_offsets=10)
def test_a_run_lands_as_much_at_once_as_an_epoch_takes(topics: Topics, name: str, tmp_path: Path, land: str) -> None:
    """The topic has 12 splits beside the one that says which partitions there are; an epoch takes three."""
    topics.make(name, 2)
    for partition in range(2):
        topics.send(name, as_json(*range(60)), partition)
    pipeline = hr.Pipeline(
        "numbers",
        source(name, land=land, max_files=3).event_time("at", bound="1h"),
        key={"all": hr.lit(1)},
        what={"n": hr.count(), "sum": hr.col("n").sum()},
        where=hr.GlobalWindows(),
        when=hr.on_update(),
        executor="local",
    )
    handle = hr.open(tmp_path.as_uri(), create=True)[pipeline]
    landed_path = tmp_path / "numbers" / "landed" / "source"

    def count_claimed_splits() -> int:
        return sum(
            len(json.loads(one.read_text())["content"]["splits"]) for one in landed_path.glob("_ranges/*[0-9].json")
        )

    splits_ahead: list[int] = []

    class CountingListener(Silent):
        def committed(self, manifest: Manifest) -> None:
            splits_ahead.append(count_claimed_splits() - 3 * (manifest.epoch + 1))

    result = handle.run(max_epochs=1)
    assert (len(result.epochs), count_claimed_splits()) == (1, 3), "what the next runs read is not landed"
    result = handle.run(listener=CountingListener())
    assert (len(result.epochs), count_claimed_splits()) == (4, 13), "all that was there when it began"
    assert {*splits_ahead} <= {*range(-2, 4)}, "no more than what the epoch being computed reads"
    (row,) = handle.read("current", at="main").to_json()
    assert (row["n"], row["sum"]) == (120, 2 * sum(range(60)))
    handle.run(mode="replay", from_branch="main", branch="again")
    difference = handle.diff("main", "again").output.rows.to_json()
    assert [difference[kind] for kind in ("added", "removed", "changed")] == [0, 0, 0]
    handle.backfill(branch="whole", files_per_epoch=50)
    assert [row["n"] for row in handle.read("current", at="whole").to_json()] == [120]


# --- what is large


def test_a_record_that_is_larger_than_what_is_asked_for_at_once(topics: Topics, name: str, tmp_path: Path) -> None:
    topics.make(name, max_message_bytes="50000000")
    large = json.dumps({"n": 2, "at": "2026-05-01T00:00:00Z", "text": "x" * 36_000_000}).encode()
    assert len(large) > 2 * MOST_BYTES
    topics.send(name, as_json(1))
    topics.send(name, [(None, large)], max_request_size=50_000_000)
    topics.send(name, as_json(3))
    (records,) = read(source(name, columns={"n": int, "text": str}))
    assert records.columns["n"].to_pylist() == [1, 2, 3]
    assert [len(text or "") for text in records.columns["text"].to_pylist()] == [0, 36_000_000, 0]


@pytest.mark.parametrize(("small", "large"), [(0, 3_000), (2_000, 3_000), (0, 150)])
def test_a_range_is_as_long_as_its_records_let_it_be(topics: Topics, name: str, small: int, large: int) -> None:
    """Also where few are new, and where those that come first are small."""
    topics.make(name)
    text = "x" * (150_000_000 // large)
    topics.send(name, [*as_json(*range(small)), *[(None, json.dumps({"text": text}).encode())] * large])
    ranges = [OffsetRange.from_split(split) for split in unread(source(name))]
    assert sum(one.end - one.begin for one in ranges) == small + large
    most = max(one.end - max(one.begin, small) for one in ranges)
    assert most * len(text) < 3 * SPLIT_BYTES
    assert len(ranges) < 12, "and no shorter"


@pytest.mark.parametrize("values", [None, hr.avro(schema=IN_AVRO)])
def test_many_messages_become_columns_part_by_part(topics: Topics, name: str, values: Any) -> None:
    topics.make(name)
    written_as_json = as_json if values is None else as_avro
    topics.send(name, [*written_as_json(*range(7)), (b"k", None), (b"k", b"\xff"), *written_as_json(*range(7, 12))])
    given_source = source(name, values=values, columns={"n": int, "kafka_key": str})
    (whole,) = read(given_source)
    with set_sizes(kafka_message_bytes=64):
        (parts,) = read(given_source)
        assert parts.columns == whole.columns
        assert parts.unparsed == whole.unparsed
        assert parts.position.tolist() == whole.position.tolist() == [*range(14)]
        rows = np.array([13, 0, 8, 7])
        assert parts.raw(rows) == whole.raw(rows)
        assert parts.lacks == whole.lacks
