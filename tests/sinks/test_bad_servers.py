"""Servers of sinks that break off at any answer, stop answering, or are none: an error that says what to do, and
afterwards nothing is lost and nothing is there twice.
"""

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

import headrace as hr
from headrace.ext.sinks import SinkMovedError, SinkRefusedError, SinkUnreachableError
from headrace.testing.connectors.worlds import SinkDeployment, order
from headrace_lab.sizes import set_sizes
from scripts.iceberg_rest import IcebergRest
from tests.sinks.warehouse import Warehouse
from tests.sinks.worlds import DeltaWorld, IcebergWorld, KafkaWorld, PostgresWorld
from tests.sources.kafka_topics import Topics
from tests.wire import Wire, open_wire

pytestmark = pytest.mark.slow

A_PAGE = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 18\r\n\r\n<html>hello</html>"
NOISE = b"\x00\xff\x07" * 40
MOST = 60
"""So many answers a delivery of two rows has at most."""


@dataclass
class BadServer:
    """A target behind a wire, with sales that were delivered and some that were not."""

    wire: Wire
    deployment: SinkDeployment
    sales: hr.Pipeline
    turns: int = 0

    def deliver(self) -> None:
        self.deployment.deliver(self.sales)

    def is_equal(self) -> bool:
        return self.deployment.held(self.sales) == self.deployment.published(self.sales)

    def change(self) -> None:
        """Something to deliver: a row that is there, and a new one."""
        self.turns += 1
        self.deployment.land(f"{self.turns:03}", order("ann", 5), order(f"bob-{self.turns}", 10))
        self.deployment.handle(self.sales).run()


@pytest.fixture
def postgres(warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BadServer]:
    world = PostgresWorld(warehouse.uri, warehouse.schema)
    with open_wire(warehouse.uri) as wire:
        uri = f"{wire.instead_of(warehouse.uri)}?connect_timeout=2"
        monkeypatch.setenv("HEADRACE_CONN_WAREHOUSE", uri)
        yield begin_delivery(BadServer(wire, deployment := SinkDeployment(world, tmp_path), deployment.sales()))


@pytest.fixture
def iceberg(iceberg_rest: IcebergRest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BadServer]:
    world = IcebergWorld(iceberg_rest.uri, f"n{secrets.token_hex(4)}")
    with open_wire(iceberg_rest.uri) as wire:
        monkeypatch.setenv("HEADRACE_CONN_LAKE", wire.instead_of(iceberg_rest.uri))
        begun_with = begin_delivery(BadServer(wire, deployment := SinkDeployment(world, tmp_path), deployment.sales()))
        with set_sizes(iceberg_rest_seconds=(1.0, 2.0)):
            yield begun_with


@pytest.fixture
def iceberg_sql(warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BadServer]:
    (lake := tmp_path / "lake").mkdir()
    files = f"?warehouse={lake.as_uri()}"
    world = IcebergWorld(f"{warehouse.uri}{files}", warehouse.schema)
    with open_wire(warehouse.uri) as wire:
        monkeypatch.setenv("HEADRACE_CONN_LAKE", f"{wire.instead_of(warehouse.uri)}{files}")
        begun_with = begin_delivery(BadServer(wire, deployment := SinkDeployment(world, tmp_path), deployment.sales()))
        with set_sizes(iceberg_connect_seconds=2):
            yield begun_with


@pytest.fixture
def delta(minio: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BadServer]:
    world = DeltaWorld(f"tests/{secrets.token_hex(4)}", minio)
    with open_wire(minio) as wire:
        uri = f"{world.uri(f'http://{wire.address}')}&retry_timeout=1s&max_retries=1&timeout=1s"
        monkeypatch.setenv("HEADRACE_CONN_LAKE", uri)
        yield begin_delivery(BadServer(wire, deployment := SinkDeployment(world, tmp_path), deployment.sales()))


@pytest.fixture
def kafka(topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BadServer]:
    world = KafkaWorld(topics.address, f"sales.{secrets.token_hex(4)}")
    topics.make(world.topic)
    with open_wire(topics.address, is_named_in_answers=True) as wire:
        monkeypatch.setenv("HEADRACE_CONN_EVENTS", f"kafka://{wire.address}")
        begun_with = begin_delivery(BadServer(wire, deployment := SinkDeployment(world, tmp_path), deployment.sales()))
        with set_sizes(
            kafka_patience=0.2,
            kafka_patience_at_first=0.2,
            kafka_request_ms=1000,
            kafka_target_patience=2.0,
            kafka_end_seconds=0.2,
        ):
            yield begun_with


def begin_delivery(server: BadServer) -> BadServer:
    server.change()
    server.deliver()
    server.change()
    return server


@pytest.fixture
def bad(request: pytest.FixtureRequest) -> BadServer:
    server: BadServer = request.getfixturevalue(request.param)
    return server


# by the id of Kafka's a test shares its process with others of a broker (tests/schedule.py)
SERVERS = ("postgres", "iceberg", "iceberg_sql", "delta", pytest.param("kafka", id="broker"))
postgres_alone = pytest.mark.parametrize("bad", ["postgres"], indirect=True)
each_server = pytest.mark.parametrize("bad", SERVERS, indirect=True)


@pytest.mark.connectors
@pytest.mark.s3
@each_server
def test_a_server_that_breaks_off_at_any_answer_has_one_state_or_the_other(bad: BadServer) -> None:
    rows_before = bad.deployment.held(bad.sales)
    for answers in range(MOST):
        bad.wire.breaks(answers=answers)
        try:
            bad.deliver()
        except (SinkUnreachableError, SinkMovedError) as error:
            assert "connection" in str(error)
            assert bad.wire.is_broken
            assert bad.deployment.held(bad.sales) == rows_before or bad.is_equal()
        else:
            break
    assert 1 < answers < MOST - 1
    bad.wire.breaks()
    bad.change()
    bad.deliver()
    assert bad.is_equal()


@pytest.mark.connectors
@pytest.mark.s3
@each_server
@pytest.mark.parametrize("answers", [0, 2, 6])
@set_sizes(postgres_look_seconds=0.2)
def test_a_server_that_stops_answering_is_given_up(bad: BadServer, answers: int) -> None:
    bad.wire.breaks(answers=answers, stalls=True)
    began = time.monotonic()
    with suppress(SinkMovedError):
        try:
            bad.deliver()
        except SinkUnreachableError as error:
            assert "connection" in str(error)
        else:
            assert not bad.wire.is_broken, "it has fewer answers"
    assert time.monotonic() - began < 30
    bad.wire.breaks()
    bad.deliver()
    assert bad.is_equal()


@pytest.mark.connectors
@pytest.mark.s3
@each_server
@pytest.mark.parametrize("says", [A_PAGE, NOISE], ids=["a page", "noise"])
def test_what_is_another_server_is_said(bad: BadServer, says: bytes) -> None:
    bad.wire.breaks(says=says)
    with pytest.raises((SinkRefusedError, SinkUnreachableError), match="connection"):
        bad.deliver()
    bad.wire.breaks()
    bad.deliver()
    assert bad.is_equal()


@pytest.mark.connectors
@postgres_alone
def test_a_server_that_works_long_is_waited_for(
    bad: BadServer, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another transaction holds what the delivery waits for, for longer than all looks together."""
    from headrace.sinks import postgres_watch as watch

    looks: list[bool] = []
    answers = watch._is_answering

    def count_call(connect: Callable[[], object]) -> bool:
        looks.append(answers(connect))  # type: ignore[arg-type]
        if len(looks) == 5:
            blocking.rollback()
        return looks[-1]

    import psycopg

    with set_sizes(postgres_look_seconds=0.1):
        monkeypatch.setattr(watch, "_is_answering", count_call)
        with psycopg.connect(warehouse.uri) as blocking:
            blocking.execute(f"lock table {warehouse.schema}.headrace_deliveries in access exclusive mode")
            bad.deliver()
        assert looks[:5] == [True] * 5
        assert bad.is_equal()
