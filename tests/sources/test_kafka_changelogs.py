"""Change data in a real topic: envelopes as Debezium writes them, in JSON and in Avro, landed and not."""

import io
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import fastavro
import pytest
from hypothesis import HealthCheck, given, settings

import headrace as hr
from headrace.connectors.kafka.offsets import NewPartitions, OffsetRange
from headrace.ext.sources import SourceSplit
from headrace.model.changelog import SIGN
from headrace.model.time import to_instant
from headrace.read.snapshots.epoch_history import recorded_epochs
from headrace.runs.client.handle import PipelineHandle
from headrace.sources.landed.ranges import LandingPlace
from headrace.testing import rows, run
from headrace_lab.reference import Epoch, run_outputs
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store import ObjectStore, open_store
from tests.changelogs.test_histories import PARTS, SCHEMA, Change, History, Row, histories
from tests.process.random_runs import assert_same, by_window, panes, shown_pane
from tests.reference.strategies import examples
from tests.sources.kafka_topics import Message, Topics

ROW = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "shop", "type": ["null", "string"]},
        {"name": "amount", "type": ["null", "long"]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "share", "type": "double"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", ROW], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {
            "name": "source",
            "type": {"type": "record", "name": "Source", "fields": [{"name": "lsn", "type": ["null", "long"]}]},
        },
        {"name": "op", "type": "string"},
    ],
}
_SCHEMA = fastavro.parse_schema(json.loads(json.dumps(ENVELOPE)))


def in_avro(envelope: Mapping[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, _SCHEMA, envelope)
    return stream.getvalue()


def in_json(envelope: Mapping[str, Any]) -> bytes:
    return json.dumps(
        envelope, default=lambda value: value.isoformat() if isinstance(value, datetime) else str(value)
    ).encode()


@dataclass(frozen=True)
class Form:
    """How a topic has envelopes, and whether they are landed."""

    written: Callable[[Mapping[str, Any]], bytes]
    reading: Mapping[str, Any]


FORMS = {
    "JSON, landed": Form(in_json, {}),
    "JSON, kept": Form(in_json, {"land": "never"}),
    "Avro, landed": Form(in_avro, {"values": hr.avro(schema=ENVELOPE)}),
    "Avro, kept": Form(in_avro, {"values": hr.avro(schema=ENVELOPE), "land": "never"}),
}


def envelope(change: Change, *, snapshot: bool = False, lsn: int = 0) -> dict[str, Any]:
    change_before, change_after = change
    op = "u" if change_before and change_after else "d" if change_before else "r" if snapshot else "c"
    return {"before": change_before, "after": change_after, "source": {"lsn": lsn}, "op": op}


def source(topic: str, form: Form, columns: Mapping[str, Any] = SCHEMA, **more: Any) -> Any:
    changelog = hr.debezium_envelope(**more)
    return hr.kafka(topic, columns, connection="events", changelog=changelog, **form.reading)


def partition_of(change: Change) -> int:
    row = change[1] or change[0]
    assert row is not None
    return int(row["id"]) % 2


def messages(changes: Sequence[Change], form: Form) -> list[Message]:
    """Messages with the key of the row; behind each deletion a tombstone."""
    sent_messages: list[Message] = []
    for number, change in enumerate(changes):
        sent_messages.append((b"key", form.written(envelope(change, snapshot=number % 2 == 0))))
        if change[1] is None:
            sent_messages.append((b"key", None))
    return sent_messages


def signed_rows(change: Change) -> list[dict[str, Any]]:
    """The rows of a change with their signs, as the reference reads them."""
    rows_ = zip(change, (-1, 1), strict=True)
    return [
        {**row, "at": to_instant(row["at"]), SIGN: sign, "kafka_partition": 0} for row, sign in rows_ if row is not None
    ]


@pytest.mark.parametrize("form", ["JSON, landed", "Avro, kept"])
def test_epochs_give_what_the_reference_gives_of_their_changes(topics: Topics, form: str) -> None:
    chosen_form = FORMS[form]

    @given(histories(), PARTS)
    @settings(examples(2), suppress_health_check=list(HealthCheck))
    def check(history: History, parts: Mapping[str, Any]) -> None:
        if isinstance(parts["where"], hr.GlobalWindows):
            parts = {**parts, "then": ()}  # no day has the end of time
        topic = f"topic.{secrets.token_hex(4)}"
        topics.make(topic, 2)
        when = source(topic, chosen_form).event_time("at", bound="30d", split="shop")
        pipeline = hr.Pipeline("orders", when, key="shop", how=hr.retracting("30d"), executor="local", **parts)
        logs: dict[int, list[Change | None]] = {0: [], 1: []}
        with TemporaryDirectory() as folder:
            handle = hr.open(Path(folder).as_uri(), create=True)[pipeline]
            for changes in filter(None, history.epochs):
                for partition, log in logs.items():
                    own = [change for change in changes if partition_of(change) == partition]
                    topics.send(topic, messages(own, chosen_form), partition)
                    log += [message for change in own for message in (change, *([None] if change[1] is None else []))]
                handle.run()
            check_epochs(pipeline, Path(folder), topic, logs)
            assert handle.read("rejected", at="main").to_json() == []

    check()


def check_epochs(pipeline: hr.Pipeline, root: Path, topic: str, logs: Mapping[int, Sequence[Change | None]]) -> None:
    """The panes of each epoch are those of the reference, over the changes that it has recorded."""
    store = open_store(root.as_uri())
    catalog = Catalog(store, pipeline.name)
    epochs = []
    for stored_epoch in recorded_epochs(catalog, str(catalog.head().refs["main"])):
        ranges = [range_of(store, split.path) for splits in stored_epoch.files.values() for split in splits]
        changes = [logs[one.partition][one.begin : one.end] for one in ranges if one is not None]
        records = [row for part in changes for change in part if change is not None for row in signed_rows(change)]
        epochs.append(Epoch(stored_epoch.processing_time, records, stored_epoch.is_last, stored_epoch.signals))
    (value_alone,) = pipeline.by_output.values()
    assert sum(len(epoch.records) for epoch in epochs) > 0
    ran = panes(value_alone, root, "main", len(epochs), "")
    for epoch, result in zip(ran, run_outputs(pipeline, epochs)[""], strict=True):
        assert_same(epoch, by_window(shown_pane(pane) for pane in result.panes))


def range_of(store: ObjectStore, path: str) -> OffsetRange | None:
    """The offsets that a recorded split has; None: it says how many partitions there are."""
    place = LandingPlace(store, "orders", "source")
    file = place.landed_file(path)
    split = SourceSplit(path, 0, "") if file is None else place.claimed_range(file.range).splits[file.number]
    return OffsetRange.from_split(split) if NewPartitions.from_split(split) is None else None


# --- what is no change


def row(number: int, shop: str | None, amount: int) -> Row:
    moment = datetime(2026, 1, 1, 10, tzinfo=UTC)
    return {"id": number, "shop": shop, "amount": amount, "price": Decimal("1.50"), "share": 0.5, "at": moment}


COLUMNS: Mapping[str, Any] = {**SCHEMA, "lsn": hr.field("source.lsn", int), "kafka_offset": int, "kafka_key": str}


def orders(root: Path, topic: str, form: Form) -> PipelineHandle:
    given_input = source(topic, form, COLUMNS, shared=["lsn"]).event_time("at", bound="1h", split="shop")
    pipeline = hr.Pipeline(
        "orders",
        given_input,
        key="shop",
        what={"n": hr.count(), "total": hr.col("amount").sum(), "newest": hr.col("kafka_offset").max()},
        where=hr.FixedWindows("1h"),
        when=hr.on_update(),
        how=hr.retracting("1h"),
        deduplicate=hr.Deduplicate("lsn", "7d"),
        executor="local",
    )
    return hr.open(root.as_uri(), create=True)[pipeline]


OLD = ": the database must send old rows (in PostgreSQL ALTER TABLE ... REPLICA IDENTITY FULL)"


@pytest.mark.parametrize("form", FORMS)
def test_a_record_that_says_nothing_is_a_dead_letter_and_a_tombstone_is_none(
    topics: Topics, tmp_path: Path, form: str
) -> None:
    encoding, topic = FORMS[form], f"topic.{secrets.token_hex(4)}"
    topics.make(topic)

    def message_of(lsn: int, change: Change, **more: Any) -> bytes:
        return encoding.written({**envelope(change, lsn=lsn), **more})

    update = message_of(4, (row(2, "a", 7), row(2, None, 8)))
    values = [
        message_of(1, (None, row(1, "a", 5)), op="r"),
        message_of(2, (None, row(2, "a", 7))),
        message_of(2, (None, row(2, "a", 7))),  # Debezium may send it twice
        None,
        update,
        message_of(5, (None, row(1, "a", 6)), op="u"),
        message_of(6, (None, None), op="t"),
        message_of(7, (row(1, "a", 5), None)),
        None,
        b"\xff\xff\xff",
    ]
    topics.send(topic, [(b"k", value) for value in values])
    handle = orders(tmp_path, topic, encoding)
    result = handle.run()
    assert handle.read("current", at="main").to_json() == []  # one was withdrawn, the other has no shop now
    letters = [(letter["position"], letter["reason"]) for letter in handle.read("rejected", at="main").to_json()]
    broken_text = "not Avro of its schema" if "values" in encoding.reading else "not UTF-8"
    assert sorted(letters) == [
        (4, "key is null: shop"),
        (5, f"before is null, which op u and d need{OLD}"),
        (6, "op is none of c, r, u, d"),
        (9, broken_text),
    ]
    assert (result.counts["rejected"], result.counts["duplicates"]) == (4, 1)
    (half,) = [one for one in handle.read("rejected", at="main").to_arrow().to_pylist() if one["position"] == 4]
    if "values" in encoding.reading:
        shown_content = half["raw"].encode() if half["raw_bytes"] is None else half["raw_bytes"]
        assert shown_content == update
    else:
        assert (json.loads(half["raw"])["op"], json.loads(half["raw"])["before"]) == ("c", None)
    topics.send(
        topic, [(b"k", message_of(8, (None, row(3, "b", 1)))), (b"\xff", message_of(9, (None, row(4, "b", 1))))]
    )
    handle.run()
    (shop,) = handle.read("current", at="main").to_json()
    assert (shop["shop"], shop["n"], shop["newest"]) == ("b", 1, 10)
    handle.run(mode="replay", from_branch="main", branch="again")
    difference = handle.diff("main", "again").output.rows.to_json()
    assert [difference[kind] for kind in ("added", "removed", "changed")] == [0, 0, 0]


def test_unit_tests_write_envelopes_and_what_kafka_says_beside_them() -> None:
    given_source = source("orders", FORMS["JSON, landed"], {"id": int, "shop": str, "kafka_offset": int})
    pipeline = hr.Pipeline(
        "orders",
        given_source.arrival_time(),
        key="shop",
        what={"n": hr.count(), "newest": hr.col("kafka_offset").max()},
        where=hr.GlobalWindows(),
        when=hr.on_update(),
    )
    old, new = {"id": 1, "shop": "a"}, {"id": 1, "shop": "b"}
    result = run(
        pipeline,
        [
            rows({"op": "c", "after": old, "kafka_offset": 1}),
            rows({"op": "u", "before": old, "after": new, "kafka_offset": 2}),
        ],
    )
    assert [(pane.key["shop"], pane.values) for pane in result.current] == [("b", {"n": 1, "newest": 2})]
