"""A topic that somebody made again, one whose deliveries are lost, and one that gets partitions."""

import json
import secrets
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from headrace.ext.sinks import ChangeSource, FillReason
from headrace.testing.connectors.worlds import SinkDeployment, order
from tests.sinks.delivered import DeliveredSales, deliver_sales
from tests.sinks.worlds import KafkaWorld
from tests.sources.kafka_topics import Topics


@pytest.fixture
def of_kafka(topics: Topics, tmp_path: Path) -> DeliveredSales:
    topic = f"sales.{secrets.token_hex(4)}"
    topics.make(topic, 2)
    return deliver_sales(SinkDeployment(KafkaWorld(topics.address, topic), tmp_path))


def signs(delivery: DeliveredSales) -> list[tuple[int, int]]:
    world = delivery.deployment.world
    assert isinstance(world, KafkaWorld)
    return [(record["_change"], record["_sign"]) for record in world.records()]


@pytest.mark.parametrize("more", [False, True])
def test_a_topic_that_was_made_anew_gets_all_rows(topics: Topics, of_kafka: DeliveredSales, more: bool) -> None:
    world = of_kafka.deployment.world
    assert isinstance(world, KafkaWorld)
    if more:
        of_kafka.more()
    topics.remove(world.topic)
    topics.make(world.topic, 3)
    delivery = of_kafka.deployment.deliver(of_kafka.sales)
    assert (delivery.source, delivery.reason) == (ChangeSource.ALL_ROWS, FillReason.CHANGED)
    assert "was made again" in delivery.describe()
    assert signs(of_kafka) == [(4, 0), (5, 1), (6, 1), (7, 1)]
    assert of_kafka.deployment.deliver(of_kafka.sales).source is None


def test_where_the_topic_of_what_is_held_is_lost_all_before_is_void(topics: Topics, of_kafka: DeliveredSales) -> None:
    world = of_kafka.deployment.world
    assert isinstance(world, KafkaWorld)
    numbers_before = [number for number, _ in signs(of_kafka)]
    topics.remove(f"headrace.deliveries.{world.topic}")
    delivery = of_kafka.deployment.deliver(of_kafka.sales)
    assert delivery.source is ChangeSource.ALL_ROWS
    (number, sign), *rows = signs(of_kafka)[len(numbers_before) :]
    assert sign == 0
    assert number > max(numbers_before)
    assert rows == [(number + n, 1) for n in (1, 2, 3)]
    assert of_kafka.deployment.deliver(of_kafka.sales).source is None


def test_keys_stay_in_their_partitions_where_a_topic_gets_more(topics: Topics, of_kafka: DeliveredSales) -> None:
    world, deployment = of_kafka.deployment.world, of_kafka.deployment
    assert isinstance(world, KafkaWorld)

    def places() -> dict[bytes, set[int]]:
        by_key: dict[bytes, set[int]] = {}
        for number, key, _ in topics.committed_records(world.topic):
            by_key.setdefault(bytes(key or b""), set()).add(number)
        return by_key

    places_before = places()
    topics.divide(world.topic, 7)
    deployment.land("2", *(order(user, 10) for user in ("ann", "bob", "cyd", "dee", "eve", "fay", "gus")))
    deployment.handle(of_kafka.sales).run()
    deployment.deliver(of_kafka.sales)
    places_after = places()
    assert all(len(numbers) == 1 for numbers in places_after.values())
    assert {key: places_after[key] for key in places_before} == places_before
    assert {number for numbers in places_after.values() for number in numbers} <= {0, 1}
    deployment.deliver(of_kafka.sales, refill=True)  # all before is void, in each partition: keys may go elsewhere
    assert {number for key, numbers in places().items() if key != b"{}" for number in numbers} - {0, 1}
    assert of_kafka.is_right()


def test_deliveries_that_were_killed_have_left_no_records(topics: Topics, tmp_path: Path) -> None:
    """The first delivery that comes to its end begins at 1, and voids nothing: its topic has offsets, and no record."""
    topic = f"sales.{secrets.token_hex(4)}"
    topics.make(topic, 2)

    async def abort_call(producer: AIOKafkaProducer) -> None:
        for _ in range(2):
            await producer.begin_transaction()
            for number in range(20):
                await producer.send_and_wait(topic, b"{}", str(number).encode())
            await producer.abort_transaction()

    topics.produce(abort_call, transactional_id="somebody")
    held_delivery = deliver_sales(SinkDeployment(KafkaWorld(topics.address, topic), tmp_path))
    assert signs(held_delivery) == [(1, 1), (2, 1), (3, 1)]


def test_records_of_others_are_void_for_who_reads_ours(topics: Topics, tmp_path: Path) -> None:
    """Nobody knows what they led to."""
    topic = f"sales.{secrets.token_hex(4)}"
    topics.make(topic)
    topics.send_json(topic, [{"_change": 7, "_sign": 1}] * 3)
    deliver_sales(SinkDeployment(KafkaWorld(topics.address, topic), tmp_path))
    numbers = [json.loads(value or b"")["_change"] for _, _, value in topics.committed_records(topic)][3:]
    assert numbers == [4, 5, 6, 7]


def test_what_an_older_version_noted_gets_an_identity_with_the_next_delivery(
    topics: Topics, of_kafka: DeliveredSales
) -> None:
    """It has neither the topic's id, nor how many partitions that had, nor a time."""
    world = of_kafka.deployment.world
    assert isinstance(world, KafkaWorld)
    deliveries = f"headrace.deliveries.{world.topic}"
    newest = json.loads(topics.committed_records(deliveries)[-1][2] or b"")
    known_by_name = {name: newest.pop(name) for name in ("identity", "at", "partitions")}
    topics.send(deliveries, [(world.topic.encode(), json.dumps(newest).encode())])
    delivery = of_kafka.deployment.deliver(of_kafka.sales)
    assert (delivery.source, delivery.at) == (None, None)
    of_kafka.more()
    assert of_kafka.deployment.deliver(of_kafka.sales).source is ChangeSource.PANES
    assert of_kafka.is_right()
    newest = json.loads(topics.committed_records(deliveries)[-1][2] or b"")
    assert (newest["identity"], newest["partitions"]) == (known_by_name["identity"], known_by_name["partitions"])


def test_two_deliveries_at_once_both_end_well(of_kafka: DeliveredSales) -> None:
    """One that begins fences the other, which looks again. So does one whose broker does not know how it ended."""
    of_kafka.more()
    with ThreadPoolExecutor() as pool:
        ends = [*pool.map(of_kafka.deployment.deliver, [of_kafka.sales] * 2)]
    assert sorted(end.written for end in ends) == [0, 1]
    assert {end.after for end in ends} == {ends[0].after}
    assert of_kafka.is_right()
