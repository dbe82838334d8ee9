"""A topic of changes: what a consumer reads of it, and what stands against delivering to it."""

import asyncio
import json
import secrets
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka import errors as kafka_errors

import headrace as hr
from headrace.connections import connection
from headrace.errors import DeadLetterBudgetError, HeadraceError, PipelineError
from headrace.ext.sinks import SinkRefusedError, SinkUnreachableError
from headrace.formats.fields import as_json
from headrace.runs.client.handle import PipelineHandle
from headrace.sinks.failures import SinkTakenError
from headrace.testing.connectors import ChangeLogConformance
from headrace_lab.sizes import set_sizes
from scripts.airflow_env import free_port
from tests.sinks.worlds import KafkaWorld
from tests.sources.kafka_topics import Topics

SCHEMA: Mapping[str, Any] = {
    "shop": str, "at": datetime, "price": Decimal, "share": float, "day": date, "octets": bytes, "n": int, "ok": bool
}  # fmt: skip


class TestKafka(ChangeLogConformance):
    """The kit, but for values: JSON has fewer types, and below is what each becomes."""

    test_a_value_arrives_as_it_is_or_is_refused = None
    test_a_list_arrives_as_it_is_or_is_refused = None
    test_a_key_arrives_as_it_is_or_is_refused = None

    @pytest.fixture
    def world(self, topics: Topics) -> KafkaWorld:
        topic = f"sales.{secrets.token_hex(4)}"
        topics.make(topic, 3)
        return KafkaWorld(topics.address, topic)


@pytest.fixture
def topic(topics: Topics) -> str:
    name = f"sales.{secrets.token_hex(4)}"
    topics.make(name, 3)
    return name


def handle_of(root: Path, topic: str, **options: Any) -> PipelineHandle:
    pipeline = hr.Pipeline(
        options.pop("name", "sales"),
        hr.json("landing/sales", dict(SCHEMA)).event_time("at", bound="0s"),
        key="shop",
        what={
            "n": hr.col("n").sum(),
            "price": hr.col("price").max(),
            "share": hr.col("share").max(),
            "day": hr.col("day").max(),
            "ok": hr.col("ok").max(),
            "all": hr.col("n").collect(),
            "octets": hr.col("octets").max(),
            "last": hr.col("at").max(),
        },
        where=hr.GlobalWindows(),
        when=hr.on_update(),
        how=hr.retracting(),
        sinks=[hr.kafka_sink(topic, connection="events")],
        executor="local",
        **options,
    )
    return hr.open(root.as_uri(), create=True)[pipeline]


def land(root: Path, name: str, *rows: Mapping[str, Any]) -> None:
    folder = root / "landing" / "sales"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("".join(json.dumps({"at": "2026-05-01T00:00:00Z", **row}) + "\n" for row in rows))


def messages(topic: str) -> list[tuple[int, Any, Any]]:
    """Partition, key and value of each committed record."""
    address = connection("events")
    committed_records = Topics(f"{address.host}:{address.port}").committed_records(topic)
    rows = [(number, json.loads(key or b""), json.loads(value or b"")) for number, key, value in committed_records]
    return sorted(rows, key=lambda one: (one[2]["_change"], one[0]))


def test_a_record_says_what_its_row_is(topic: str, tmp_path: Path) -> None:
    handle = handle_of(tmp_path, topic)
    row = {"shop": "Ås", "price": "12.50", "day": "2026-05-01", "octets": "/wA=", "n": 7, "ok": True}
    land(tmp_path, "1", {**row, "share": 0.5})
    handle.run()
    handle.deliver()
    ((partition, key, value),) = messages(topic)
    window = {"window_start": None, "window_end": None}
    assert key == {"shop": "Ås", **window}
    values = {"n": 7, "price": "12.5", "share": 0.5, "day": "2026-05-01", "ok": True, "all": [7], "octets": "/wA="}
    assert value == {
        "_change": 1, "_sign": 1, "_epoch": None, "shop": "Ås", **window, **values, "last": "2026-05-01T00:00:00Z"
    }  # fmt: skip
    land(tmp_path, "2", {**row, "n": 1, "share": 0.25})
    handle.run()
    handle.deliver()
    _, withdrawn, addition = messages(topic)
    assert withdrawn[:2] == addition[:2] == (partition, key), "what becomes of a row stays in order"
    assert [(one["_sign"], one["_epoch"], one["n"]) for _, _, one in (withdrawn, addition)] == [(-1, 1, 7), (1, 1, 8)]


OCTETS = pa.struct([("left", pa.binary()), ("right", pa.decimal128(38, 9))])


def test_numbers_that_json_has_no_word_for_are_text() -> None:
    """In records: rows of what was computed have no NaN that JSON could land."""
    floats = pa.array([0.5, float("nan"), float("inf"), float("-inf"), None])
    lists = pa.array([[1.0, float("nan")], None, [], [None], [2.0]])
    documents = [json.loads(row) for row in as_json({"f": floats, "l": lists}, np.arange(5), for_all=True).to_pylist()]
    assert [row["f"] for row in documents] == [0.5, "NaN", "Infinity", "-Infinity", None]
    assert [row["l"] for row in documents] == [[1.0, "NaN"], None, [], [None], [2.0]]


def test_pairs_are_objects_whose_values_are_those_of_columns() -> None:
    pair = pa.struct([("left", pa.float64()), ("right", pa.timestamp("us", "UTC"))])
    pairs = pa.array([[{"left": float("nan"), "right": 0}, {"left": None, "right": None}], None], pa.list_(pair))
    octets = pa.array([[{"left": b"a", "right": Decimal("1.5")}], []], pa.list_(OCTETS))
    documents = [json.loads(row) for row in as_json({"p": pairs, "o": octets}, np.arange(2), for_all=True).to_pylist()]
    assert documents[0]["p"] == [{"left": "NaN", "right": "1970-01-01T00:00:00Z"}, {"left": None, "right": None}]
    assert [row["o"] for row in documents] == [[{"left": "YQ==", "right": "1.5"}], []]
    assert documents[1]["p"] is None


def test_what_is_void_is_said_in_every_partition(topic: str, tmp_path: Path) -> None:
    handle = handle_of(tmp_path, topic)
    for name in "12345":
        land(tmp_path, name, {"shop": name, "n": 1})
        handle.run()
        if name == "1":
            handle.deliver()
        handle.expire(keep_last=1)
    handle_of(tmp_path, topic).deliver()
    void = [(partition, key, value["_change"]) for partition, key, value in messages(topic) if value["_sign"] == 0]
    assert void == [(0, {}, 2), (1, {}, 2), (2, {}, 2)]
    assert sorted(value["shop"] for _, _, value in messages(topic) if value["_change"] > 2) == [*"12345"]


def test_another_pipeline_is_told_and_may_take_over(topic: str, tmp_path: Path) -> None:
    land(tmp_path, "1", {"shop": "a", "n": 1})
    for name in ("sales", "others"):
        handle_of(tmp_path, topic, name=name).run()
    handle_of(tmp_path, topic).deliver()
    others = handle_of(tmp_path, topic, name="others")
    with pytest.raises(SinkTakenError, match=r"holds rows of sales under (\S+), not of others under \1: name another"):
        others.deliver()
    others.deliver(take_over=True)
    assert [value["_sign"] for _, _, value in messages(topic)] == [1, 0, 0, 0, 1]
    assert others.deliver()[0].source is None


def test_a_delivery_that_was_overtaken_commits_nothing(topic: str, topics: Topics, tmp_path: Path) -> None:
    """Its transaction is open as the next one begins."""
    handle = handle_of(tmp_path, topic)
    land(tmp_path, "1", {"shop": "a", "n": 1})
    handle.run()

    async def overtaken() -> None:
        zombie = AIOKafkaProducer(bootstrap_servers=topics.address, transactional_id=f"headrace.{topic}")
        await zombie.start()
        try:
            await zombie.begin_transaction()
            await zombie.send_and_wait(topic, b'{"_change": 1}', b"{}")
            await asyncio.to_thread(handle.deliver)
            with pytest.raises(Exception, match=r"(?i)fence|epoch"):
                await zombie.commit_transaction()
        finally:
            await zombie.stop()

    asyncio.run(overtaken())
    assert [value["_sign"] for _, _, value in messages(topic)] == [1]


def test_a_delivery_to_another_topic_that_did_not_end_hides_nothing(
    topic: str, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its transaction stays open for minutes, with what that topic would hold."""
    topics.make(other := f"other.{secrets.token_hex(4)}")
    land(tmp_path, "1", {"shop": "a", "n": 1})
    others = handle_of(tmp_path, other, name="others")
    for handle in (others, own := handle_of(tmp_path, topic)):
        handle.run()
    own.deliver()
    with monkeypatch.context() as broken_patch:

        async def lose_answer(_: AIOKafkaProducer) -> None:
            raise kafka_errors.KafkaConnectionError("the commit is lost")

        broken_patch.setattr(AIOKafkaProducer, "commit_transaction", lose_answer)
        with pytest.raises(SinkUnreachableError, match="the commit is lost"):
            others.deliver()
    for name in "23":
        land(tmp_path, name, {"shop": "a", "n": 1})
        own.run()
        own.deliver()
    assert [value["_change"] for _, _, value in messages(topic)] == [1, 2, 3, 4, 5]
    assert messages(other) == []
    others.deliver()
    assert [value["_change"] for _, _, value in messages(other)] == [1]


def test_what_stands_against_it_is_told(
    topic: str, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(tmp_path, "1", {"shop": "a", "n": 1})
    missing = handle_of(tmp_path, f"none.{secrets.token_hex(4)}")
    missing.run()
    with pytest.raises(SinkRefusedError, match=r"there is no topic none\..*Make it, with the partitions"):
        missing.deliver()
    with pytest.raises(SinkRefusedError, match="says what another topic holds"):
        handle_of(tmp_path, f"headrace.deliveries.{topic}").deliver()
    small = f"small.{secrets.token_hex(4)}"
    topics.make(small, 1, max_message_bytes="200")
    check_refusal(handle_of(tmp_path, small), "data.undeliverable")
    assert messages(small) == []
    monkeypatch.setenv("HEADRACE_CONN_EVENTS", "postgresql://ada:opensesame@127.0.0.1:1/x")
    check_refusal(handle_of(tmp_path, topic), "config.sink_refused")
    with set_sizes(kafka_patience_at_first=0.1):
        monkeypatch.setenv("HEADRACE_CONN_EVENTS", f"kafka://ada:opensesame@127.0.0.1:{free_port()}")
        with pytest.raises(SinkUnreachableError):
            handle_of(tmp_path, topic).deliver()


def check_refusal(handle: PipelineHandle, code: str) -> None:
    with pytest.raises(HeadraceError) as error:
        handle.deliver()
    assert error.value.code == code
    assert "opensesame" not in str(error.value)


def test_a_topic_of_changes_is_read_as_signed_input(topic: str, tmp_path: Path) -> None:
    """What another pipeline makes of the records is what readers see."""
    handle = handle_of(tmp_path, topic)
    for name, n in (("1", 5), ("2", 6)):
        land(tmp_path, name, {"shop": "a", "n": n}, {"shop": "b", "n": 1})
        handle.run()
        handle.deliver()
    source = hr.kafka(topic, {"shop": str, "n": int, "sign": hr.field("_sign", int)}, connection="events")
    pipeline_again = hr.Pipeline(
        "again",
        source.arrival_time(),
        key="shop",
        what={"n": (hr.col("n") * hr.col("sign")).sum()},
        where=hr.GlobalWindows(),
        when=hr.on_update(),
        executor="local",
    )
    copy = hr.open(tmp_path.as_uri())[pipeline_again]
    copy.run()
    rows = [{row["shop"]: row["n"] for row in one.read("current", at="main").to_json()} for one in (handle, copy)]
    assert rows[0] == rows[1] == {"a": 11, "b": 2}


def test_a_pipeline_that_reads_changes_follows_moves_and_stops_where_all_before_are_void(
    topics: Topics, topic: str, tmp_path: Path
) -> None:
    handle = handle_of(tmp_path, topic)
    reading = reading_handle(tmp_path, "reading", topic)

    def expect_same() -> None:
        handle.deliver()
        reading.run()
        rows = handle.current(columns=["shop", "n"]).to_arrow().to_pylist()
        read_rows = reading.current(columns=["shop", "n"]).to_arrow().to_pylist()
        assert sorted(map(repr, rows)) == sorted(map(repr, read_rows))

    for name, n in (("1", 5), ("2", 6)):
        land(tmp_path, name, {"shop": "a", "n": n}, {"shop": name, "n": 1})
        handle.run()
        expect_same()
    handle.rollback(to="beginning", message="all of it")
    expect_same()
    handle.run()
    expect_same()
    handle.deliver(refill=True)
    with pytest.raises(DeadLetterBudgetError, match="event time is null"):
        reading.run()
    new_topic = f"{topic}.again"
    topics.make(new_topic, 2)
    handle, reading = handle_of(tmp_path, new_topic), reading_handle(tmp_path, "reading_again", new_topic)
    expect_same()


def reading_handle(root: Path, name: str, topic: str) -> PipelineHandle:
    """A pipeline with a row for each row that the changes in ``topic`` lead to."""
    source = hr.kafka(
        topic,
        {"shop": str, "n": int, "last": datetime, "sign": hr.field("_sign", int)},
        connection="events",
        changelog=hr.col("sign"),
        max_rejected=0,
    )
    pipeline = hr.Pipeline(name, source.event_time("last", bound="1d"), rows=["shop", "n"], executor="local")
    return hr.open(root.as_uri())[pipeline]


@pytest.mark.parametrize("wrong", ["", "a b", "x" * 201, 5])
def test_a_topic_has_a_name(wrong: Any) -> None:
    with pytest.raises(PipelineError, match=r"kafka_sink\(topic="):
        hr.kafka_sink(wrong, connection="events")
