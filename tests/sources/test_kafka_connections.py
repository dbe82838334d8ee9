"""How often a run connects to a real broker, and that nothing stays connected: one client for each connection."""

import secrets
from asyncio import BaseEventLoop
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.connectors.kafka.source import CLIENTS
from headrace.errors import FixDataError
from headrace_lab.sizes import set_sizes
from tests.sources.kafka_topics import Message, Topics

PARTITIONS, SPLITS = 2, 20


@pytest.fixture
def transports(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The transports of all connections that were opened since."""
    transports: list[Any] = []
    connect = BaseEventLoop.create_connection

    async def count_call(self: BaseEventLoop, *arguments: Any, **more: Any) -> Any:
        transport, protocol = await connect(self, *arguments, **more)  # type: ignore[misc]
        transports.append(transport)
        return transport, protocol

    monkeypatch.setattr(BaseEventLoop, "create_connection", count_call)
    with set_sizes(kafka_split_offsets=10):
        yield transports


def messages(last: bytes) -> list[Message]:
    """As many as make ``SPLITS`` splits of a partition; the ``last`` of them ends them."""
    return [(None, b'{"n": 1}')] * (10 * SPLITS - 1) + [(None, last)]


def numbers(root: Path, topic: str, land: str) -> Any:
    source = hr.kafka(topic, {"n": int}, connection="events", land=land, max_files=5, max_rejected=0)
    pipeline = hr.Pipeline(
        "numbers",
        source.arrival_time(),
        key={"all": hr.lit(1)},
        what={"n": hr.count()},
        where=hr.GlobalWindows(),
        when=hr.on_update(),
        executor="local",
    )
    return hr.open(root.as_uri(), create=True)[pipeline]


@pytest.mark.parametrize("land", ["always", "never"])
def test_a_run_connects_once_however_many_splits_it_reads(
    topics: Topics, tmp_path: Path, transports: list[Any], land: str
) -> None:
    topic = f"topic.{secrets.token_hex(4)}"
    topics.make(topic, PARTITIONS)
    for partition in range(PARTITIONS):
        topics.send(topic, messages(b'{"n": 1}'), partition)
    transports.clear()
    handle = numbers(tmp_path, topic, land)
    result = handle.run()
    (row,) = handle.read("current", at="main").to_json()
    assert row["n"] == 10 * SPLITS * PARTITIONS
    assert len(result.epochs) >= SPLITS * PARTITIONS // 5
    assert 0 < len(transports) <= 2, "what a client asks first, and the broker itself"
    assert all(transport.is_closing() for transport in transports)


@pytest.mark.parametrize("land", ["always", "never"])
def test_nothing_stays_connected_where_a_task_fails(
    topics: Topics, tmp_path: Path, transports: list[Any], land: str
) -> None:
    topic = f"topic.{secrets.token_hex(4)}"
    topics.make(topic)
    topics.send(topic, messages(b"no object"))
    transports.clear()
    with pytest.raises(FixDataError, match="rejects 1 records"):
        numbers(tmp_path, topic, land).run()
    assert 0 < len(transports) <= 2
    assert all(transport.is_closing() for transport in transports)
    with CLIENTS._staying.shared_exit_stack() as stack:
        assert (stack, CLIENTS._clients) == (None, [])
