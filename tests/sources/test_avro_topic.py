"""A real topic whose values are Avro, with their schemas in a real registry."""

import io
import json
import secrets
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import fastavro
import pytest

import headrace as hr
from headrace.connectors.kafka import messages as reading
from headrace.connectors.kafka.definition import RegistryRefusedError, RegistryUnreachableError
from headrace.errors import HeadraceError
from headrace.pipeline.endpoints import Source
from headrace.runs.client.handle import PipelineHandle
from headrace.testing.connectors import SourceConformance, SourceWorld
from headrace_lab.sizes import set_sizes
from scripts.airflow_env import free_port
from scripts.schema_registry import SchemaRegistry
from tests.sources.kafka_topics import Topics
from tests.sources.test_kafka import COLUMNS, TopicWorld
from tests.wire import open_wire

AVRO = hr.avro(registry="schemas")
TIME_TYPE = {"type": "long", "logicalType": "timestamp-micros"}
FIRST = {
    "type": "record",
    "name": "order",
    "fields": [{"name": "user", "type": ["null", "string"]}, {"name": "at", "type": TIME_TYPE}],
}
SECOND = {**FIRST, "fields": [*FIRST["fields"], {"name": "amount", "type": "int", "default": 1}]}
NUMBERS = {
    "type": "record",
    "name": "numbered",
    "fields": [
        {"name": "number", "type": "long"},
        {"name": "said", "type": {"type": "record", "name": "said", "fields": [{"name": "text", "type": "string"}]}},
        {"name": "at", "type": TIME_TYPE},
    ],
}


def message(number: int, schema: Any, value: Mapping[str, Any]) -> bytes:
    """A value as Confluent's serializers write it."""
    stream = io.BytesIO(struct.pack(">bI", 0, number))
    stream.seek(0, io.SEEK_END)
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return stream.getvalue()


@pytest.fixture
def name() -> str:
    return f"topic.{secrets.token_hex(4)}"


@dataclass
class KeptTopicWorld(TopicWorld):
    """One that keeps its records, in Avro, and is read where it is."""

    schema: int = 0

    @property
    def source(self) -> Source:
        return hr.kafka(self.topic, COLUMNS, connection="events", land="never", values=AVRO)

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        rows = [{**row, "said": {"text": row["text"]}} for row in records]
        self._send([message(self.schema, NUMBERS, row) for row in rows])

    def append_unreadable(self) -> None:
        self._send([struct.pack(">bI", 0, self.schema) + b"\2\2\xff\0"])  # its text is none

    def lose(self) -> None:
        self.topics.delete_before(self.topic, self.first, 1)

    def alter(self) -> None:
        self.topics.remove(self.topic)
        self.topics.make(self.topic, 2)
        for _ in range(10):
            self.append_unreadable()

    @property
    def first(self) -> int:
        return 1


class TestKeptTopic(SourceConformance):
    executors = ("local",)

    @pytest.fixture
    def world(self, topics: Topics, schemas: SchemaRegistry, name: str) -> SourceWorld:
        topics.make(name, 2)
        return KeptTopicWorld(topics, name, schema=schemas.register(f"{name}-value", NUMBERS))


def orders(root: Path, topic: str, **options: Any) -> PipelineHandle:
    """Orders of each user, and what they spent."""
    source = hr.kafka(
        topic, {"user": str, "at": datetime, "amount": int}, connection="events", **{"values": AVRO, **options}
    )
    pipeline = hr.Pipeline(
        "orders",
        source.event_time("at", bound="1h"),
        key="user",
        what={"orders": hr.count(), "spent": hr.col("amount").sum()},
        where=hr.FixedWindows("1d"),
        when=hr.on_update(),
        executor="local",
    )
    return hr.open(root.as_uri(), create=True)[pipeline]


def read(handle: PipelineHandle, ref: str = "main") -> dict[str, tuple[int, int | None]]:
    return {row["user"]: (row["orders"], row["spent"]) for row in handle.read("current", at=ref).to_json()}


def order(number: int, user: str | None, amount: int | None = None) -> bytes:
    """With the second schema if it has an amount."""
    value = {"user": user, "at": 1_760_000_000_000_000, **({} if amount is None else {"amount": amount})}
    return message(number, FIRST if amount is None else SECOND, value)


def test_a_schema_grows_and_what_has_landed_needs_no_registry(
    topics: Topics, schemas: SchemaRegistry, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.make(name)
    first = schemas.register(f"{name}-value", FIRST)
    handle = orders(tmp_path, name)
    topics.send(name, [(None, order(first, "ada")), (None, order(first, None)), (None, b"{}")])
    handle.run()
    assert read(handle) == {"ada": (1, 0)}
    second = schemas.register(f"{name}-value", SECOND)
    assert second != first
    topics.send(name, [(None, order(first, "bob")), (None, order(second, "bob", 5)), (None, order(second, "ada", 7))])
    handle.run()
    assert read(handle) == {"ada": (2, 7), "bob": (2, 5)}
    reasons = sorted(row["reason"] for row in handle.read("rejected", at="main").to_json())
    assert reasons == ["key is null: user", "no Avro message of a schema registry"]
    monkeypatch.delenv("HEADRACE_CONN_SCHEMAS")
    monkeypatch.setenv("HEADRACE_CONN_SCHEMAS", f"http://127.0.0.1:{free_port()}")
    reading._known_schemas.clear()
    handle.run(mode="replay", from_branch="main", branch="again")
    assert read(handle, "again") == read(handle)


def test_a_registry_that_does_not_answer_loses_nothing(
    topics: Topics, schemas: SchemaRegistry, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.make(name)
    first = schemas.register(f"{name}-value", FIRST)
    topics.send(name, [(None, order(first, "ada"))])
    handle = orders(tmp_path, name)
    reading._known_schemas.clear()
    with monkeypatch.context() as patch:
        patch.setenv("HEADRACE_CONN_SCHEMAS", f"http://ada:opensesame@127.0.0.1:{free_port()}")
        with pytest.raises(RegistryUnreachableError, match=r"connection schemas .* does not answer") as error:
            handle.run()
        assert "opensesame" not in str(error.value)
        patch.setenv("HEADRACE_CONN_SCHEMAS", "kafka://127.0.0.1:1")
        with pytest.raises(RegistryRefusedError, match="needs http://host:port"):
            handle.run()
    topics.send(name, [(None, order(999_999, "bob"))])
    handle.run()
    (letter,) = handle.read("rejected", at="main").to_json()
    assert letter["reason"] == "schema 999999, which the registry does not have"
    assert read(handle) == {"ada": (1, 0)}
    reading._known_schemas.clear()
    topics.send(name, [(None, order(first, "bob"))])
    monkeypatch.delenv("HEADRACE_CONN_SCHEMAS")
    with pytest.raises(HeadraceError, match="HEADRACE_CONN_SCHEMAS"):
        handle.run()


def test_a_schema_of_another_kind_stops_no_other_message(
    topics: Topics, schemas: SchemaRegistry, name: str, tmp_path: Path
) -> None:
    topics.make(name)
    draft = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}
    other = schemas.register(f"{name}-json", draft, "JSON")
    text = schemas.register(f"{name}-text", "string")
    own = schemas.register(f"{name}-value", FIRST)
    handle = orders(tmp_path, name)
    topics.send(name, [(None, struct.pack(">bI", 0, number) + b"{}") for number in (other, text)])
    topics.send(name, [(None, order(own, "ada"))])
    handle.run()
    assert read(handle) == {"ada": (1, 0)}
    reasons = sorted(row["reason"] for row in handle.read("rejected", at="main").to_json())
    assert reasons == sorted(f"schema {number}, which is no record in Avro" for number in (other, text))


def test_what_landed_before_the_source_was_said_to_be_avro_is_read(
    topics: Topics, schemas: SchemaRegistry, name: str, tmp_path: Path
) -> None:
    topics.make(name)
    own = schemas.register(f"{name}-value", FIRST)
    topics.send(name, [(None, order(own, "ada"))])
    orders(tmp_path, name, values=None).run()
    handle = orders(tmp_path, name)
    handle.backfill(branch="again")
    assert read(handle, "again") == {"ada": (1, 0)}


def test_all_values_may_have_the_schema_of_the_definition(topics: Topics, name: str, tmp_path: Path) -> None:
    topics.make(name)
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(dict(SECOND)), {"user": "ada", "at": 0, "amount": 3})
    topics.send(name, [(None, stream.getvalue()), (b"gone", None)])
    source = hr.kafka(
        name, {"user": str, "amount": int, "kafka_offset": int}, connection="events", values=hr.avro(schema=SECOND)
    )
    pipeline = hr.Pipeline(
        "orders",
        source.arrival_time(),
        key="user",
        what={"spent": hr.col("amount").sum(), "last": hr.col("kafka_offset").max()},
        where=hr.GlobalWindows(),
        when=hr.on_update(),
        executor="local",
    )
    handle = hr.open(tmp_path.as_uri(), create=True)[pipeline]
    handle.run()
    (row,) = handle.read("current", at="main").to_json()
    assert (row["user"], row["spent"], row["last"]) == ("ada", 3, 0)
    (letter,) = handle.read("rejected", at="main").to_json()
    assert letter["reason"] == "no value"


# --- registries that break off, stall, or are none


BUSY = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 3600\r\nContent-Length: 0\r\n\r\n"
MISTAKES: Sequence[Mapping[str, Any]] = [
    *({"answers": answers, "stalls": stalls} for answers in (0, 1) for stalls in (False, True)),
    {"says": b"\0\xff\7" * 40},
    {"says": BUSY},
]


def test_a_registry_that_is_bad_at_any_answer_loses_and_doubles_nothing(
    topics: Topics, schemas: SchemaRegistry, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two schemas are two answers, of which each is cut or does not come; one run after the other goes on."""
    topics.make(name)
    numbers = [schemas.register(f"{name}-{one}", schema) for one, schema in enumerate((FIRST, SECOND))]
    topics.send(name, [(None, order(numbers[0], "ada")), (None, order(numbers[1], "ada", 7))])
    handle = orders(tmp_path, name)
    with set_sizes(registry_tries=1, registry_seconds=0.5):
        with open_wire(schemas.uri) as wire:
            monkeypatch.setenv("HEADRACE_CONN_SCHEMAS", wire.instead_of(schemas.uri))
            for how in MISTAKES:
                reading._known_schemas.clear()
                wire.breaks(**how)
                with pytest.raises(RegistryUnreachableError, match="connection schemas"):
                    handle.run()
                assert wire.is_broken is ("answers" in how)
            wire.breaks()
            handle.run()
        assert read(handle) == {"ada": (2, 7)}
        assert handle.read("rejected", at="main").to_json() == []


# --- what no registry that is right says


ANSWERS: Mapping[str, tuple[int, str, type[HeadraceError], str]] = {
    "no JSON": (200, "<html>", RegistryRefusedError, "no schema registry"),
    "another JSON": (200, "[]", RegistryRefusedError, "no schema registry"),
    "not let in": (401, "", RegistryRefusedError, "does not let in"),
    "nobody": (404, "no such page", RegistryRefusedError, "no schema registry"),
    "elsewhere": (302, "", RegistryRefusedError, "no schema registry"),
    "out of order": (500, "", RegistryUnreachableError, "answers with 500"),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_that_is_wrong_is_told(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    status, body, error, why = ANSWERS[answer]
    authorizations: list[str | None] = []

    class Wrong(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            authorizations.append(self.headers["Authorization"])
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Wrong)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        address = f"http://ada:open%20sesame@127.0.0.1:{server.server_port}/some/where"
        monkeypatch.setenv("HEADRACE_CONN_SCHEMAS", address)
        with set_sizes(registry_tries=1), pytest.raises(error, match=why) as error_info:
            reading.fetch_schemas(reading.connection("schemas"), [7])
    finally:
        server.shutdown()
        server.server_close()
    assert "sesame" not in str(error_info.value)
    assert {*authorizations} == {"Basic YWRhOm9wZW4gc2VzYW1l"}
