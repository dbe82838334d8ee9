"""A broker that breaks off at any answer, stops answering, or is none: an error that says what to do, and afterwards
every record counts once.
"""

import secrets
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
import tenacity

import headrace as hr
from headrace.errors import KafkaRefusedError, KafkaUnreachableError
from headrace_lab.sizes import set_sizes
from scripts.kafka import Kafka
from tests.sources.kafka_topics import Topics
from tests.sources.test_kafka import as_json, source
from tests.wire import Wire, open_wire

pytestmark = pytest.mark.slow

MOST = 200
"""So many answers a run over two partitions has at most."""


@dataclass
class BadBroker:
    """A topic behind a wire, and a pipeline that counts its records."""

    wire: Wire
    topics: Topics
    topic: str
    handle: hr.types.PipelineHandle
    step: int
    """From one answer at which it breaks off to the next one: a run that reads the topic where it is has many."""
    sent: int = 0

    def send(self) -> None:
        for partition in (0, 1):
            self.topics.send(self.topic, as_json(*range(self.sent, self.sent + 5)), partition)
            self.sent += 5

    def count_records(self) -> int:
        return sum(row["records"] for row in self.handle.read("current", at="main").to_json())


@pytest.fixture(params=["always", "never"])
def bad(
    request: pytest.FixtureRequest, broker: Kafka, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[BadBroker]:
    topic = f"topic.{secrets.token_hex(4)}"
    topics.make(topic, 2)
    with set_sizes(kafka_request_ms=1000, kafka_patience=0.2, kafka_patience_at_first=0.2):
        pipeline = hr.Pipeline(
            "counted",
            source(topic, land=request.param).event_time("at", bound="1h"),
            what={"records": hr.count()},
            where=hr.FixedWindows("1d"),
            when=hr.on_update(),
            executor="local",
        )
        with open_wire(broker.address, is_named_in_answers=True) as wire:
            monkeypatch.setenv("HEADRACE_CONN_EVENTS", f"kafka://{wire.address}")
            handle = hr.open((tmp_path / "root").as_uri(), create=True)[pipeline]
            yield BadBroker(wire, topics, topic, handle, 1 if request.param == "always" else 4)


def test_a_broker_that_breaks_off_at_any_answer_loses_and_doubles_nothing(bad: BadBroker) -> None:
    bad.send()
    for answers in range(0, MOST, bad.step):
        bad.wire.breaks(answers=answers)
        try:
            bad.handle.run()
        except KafkaUnreachableError as error:
            assert "connection events (kafka://127.0.0.1" in str(error)
            assert bad.wire.is_broken
        else:
            break
        if answers % 8 == 4 and bad.step == 1:
            bad.send()
    assert 5 < answers < MOST - 4
    bad.wire.breaks()
    bad.send()
    bad.handle.run()
    assert bad.count_records() == bad.sent


@set_sizes(kafka_patience_at_first=30)
def test_a_run_waits_for_a_broker_that_starts_again(bad: BadBroker) -> None:
    bad.send()
    bad.wire.breaks(answers=0)
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(bad.handle.run)
        tenacity.Retrying(
            stop=tenacity.stop_after_delay(30),
            wait=tenacity.wait_fixed(0.01),
            retry=tenacity.retry_if_result(lambda is_broken: not is_broken),
        )(lambda: bad.wire.is_broken)
        bad.wire.breaks()
        run.result()
    assert bad.count_records() == bad.sent


@pytest.mark.parametrize("answers", [0, 2, 4, 6])
def test_a_broker_that_stops_answering_is_given_up(bad: BadBroker, answers: int) -> None:
    bad.send()
    bad.wire.breaks(answers=answers, stalls=True)
    began = time.monotonic()
    with pytest.raises(KafkaUnreachableError, match="connection events"):
        bad.handle.run()
    assert time.monotonic() - began < 30
    bad.wire.breaks()
    bad.handle.run()
    assert bad.count_records() == bad.sent


@pytest.mark.parametrize("says", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00\xff\x07" * 40], ids=["a page", "noise"])
def test_what_is_another_server_is_said(bad: BadBroker, says: bytes) -> None:
    bad.send()
    bad.wire.breaks(says=says)
    with pytest.raises((KafkaRefusedError, KafkaUnreachableError), match="connection events"):
        bad.handle.run()
    bad.wire.breaks()
    bad.handle.run()
    assert bad.count_records() == bad.sent
