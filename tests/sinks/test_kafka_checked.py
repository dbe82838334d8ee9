"""``deliver --check`` of topics: what consumers make of their records beside what readers see."""

import json
import secrets
from pathlib import Path
from typing import Any

import pytest

from headrace.model.expressions.data_types import DataType
from headrace.testing.connectors.worlds import SinkDeployment, order
from headrace_lab.sizes import set_sizes
from tests.sinks.checked import KINDS, MODES, counts, delivered_twice, values_are_right
from tests.sinks.delivered import DeliveredSales
from tests.sinks.worlds import KafkaWorld
from tests.sources.kafka_topics import Topics

pytestmark = pytest.mark.slow


def in_topic(topics: Topics, folder: Path, accumulation: str, partitions: int = 2) -> DeliveredSales:
    topic = f"sales.{secrets.token_hex(4)}"
    topics.make(topic, partitions)
    return delivered_twice(SinkDeployment(KafkaWorld(topics.address, topic), folder), accumulation)


def topic_of(delivery: DeliveredSales) -> str:
    world = delivery.deployment.world
    assert isinstance(world, KafkaWorld)
    return world.topic


def of_user(topics: Topics, delivery: DeliveredSales, user: str) -> tuple[bytes, bytes]:
    """The newest record about somebody."""
    pairs = [
        (key, value)
        for _, key, value in topics.committed_records(topic_of(delivery))
        if key and f'"{user}"'.encode() in key
    ]
    key, value = pairs[-1]
    assert key is not None
    assert value is not None
    return key, value


@pytest.mark.parametrize("accumulation", MODES)
def test_a_topic_leads_to_what_readers_see(topics: Topics, tmp_path: Path, accumulation: str) -> None:
    held_rows = in_topic(topics, tmp_path, accumulation)
    assert counts(held_rows) == {}
    assert held_rows.check().is_right
    held_rows.deployment.deliver(held_rows.sales, refill=True)
    assert held_rows.check().is_right
    topics.divide(topic_of(held_rows), 5)
    held_rows.deployment.deliver(held_rows.sales, refill=True)
    held_rows.more()
    held_rows.deployment.deliver(held_rows.sales)
    assert held_rows.check().is_right


@pytest.mark.parametrize(
    ("accumulation", "differs"),
    [("retracting", {"twice": 1}), ("accumulating", {"twice": 1}), ("discarding", {"twice": 1})],
)
def test_a_record_that_is_sent_again_is_named(
    topics: Topics, tmp_path: Path, accumulation: str, differs: dict[str, int]
) -> None:
    held_rows = in_topic(topics, tmp_path, accumulation, partitions=1)
    topics.send(topic_of(held_rows), [of_user(topics, held_rows, "bob")])
    assert counts(held_rows) == differs
    assert held_rows.check().is_right is False
    assert "1 are there twice" in held_rows.check().describe()


@pytest.mark.parametrize(("accumulation", "differs"), [("accumulating", "different"), ("retracting", "only_theirs")])
def test_what_others_send_is_named(topics: Topics, tmp_path: Path, accumulation: str, differs: str) -> None:
    held_rows = in_topic(topics, tmp_path, accumulation, partitions=1)
    key, value = of_user(topics, held_rows, "bob")
    other = {**json.loads(value), "_change": 99, "spent": 1}
    topics.send(topic_of(held_rows), [(key, json.dumps(other).encode()), (b"x", b"\xff{"), (key, b"[1]")])
    assert counts(held_rows) == {differs: 1, "unreadable": 2}
    assert "2 cannot be read" in held_rows.check().describe()
    held_rows.deployment.deliver(held_rows.sales, refill=True)
    assert held_rows.check().is_right


@pytest.mark.parametrize("accumulation", MODES)
def test_a_topic_whose_retention_has_removed_what_its_rows_need_is_not_compared(
    topics: Topics, tmp_path: Path, accumulation: str
) -> None:
    held_rows = in_topic(topics, tmp_path, accumulation, partitions=1)
    topics.delete_before(topic_of(held_rows), 0, 2)
    check = held_rows.check()
    assert (check.is_right, check.comparison) == (None, None), check.to_json()
    assert "its retention has removed" in check.describe()
    assert "partition 0 begins at offset 2" in check.describe()
    held_rows.deployment.deliver(held_rows.sales, refill=True)
    assert held_rows.check().is_right  # all that is gone was void
    key, value = of_user(topics, held_rows, "bob")
    topics.send(topic_of(held_rows), [(key, json.dumps({**json.loads(value), "_change": 99, "orders": 5}).encode())])
    assert held_rows.check().is_right is False


def test_a_topic_of_many_records_is_read_in_parts(
    topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headrace.connectors.kafka import target

    read: list[int] = []
    run_query = target._run_query

    def count_call(connection: Any, table: Any, query: str) -> Any:
        read.append(table.num_rows)
        return run_query(connection, table, query)

    monkeypatch.setattr(target, "_run_query", count_call)
    with set_sizes(kafka_target_offsets=500):
        topic = f"sales.{secrets.token_hex(4)}"
        topics.make(topic, 1)
        deployment = SinkDeployment(KafkaWorld(topics.address, topic), tmp_path)
        sales = deployment.sales()
        deployment.land("1", *(order(f"u{number}", number % 600, number) for number in range(3000)))
        deployment.handle(sales).run()
        deployment.deliver(sales)
        delivery = DeliveredSales(deployment, sales)
        assert delivery.check().is_right
        assert sum(read) == 3000
        assert max(read) <= 500


@pytest.mark.parametrize("kind", KINDS)
def test_values_of_each_type_are_what_they_were(topics: Topics, tmp_path: Path, kind: DataType) -> None:
    topic = f"values.{secrets.token_hex(4)}"
    topics.make(topic, 2)
    values_are_right(SinkDeployment(KafkaWorld(topics.address, topic), tmp_path), kind)
