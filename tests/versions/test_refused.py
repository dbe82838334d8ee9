"""What would take versions for rows is refused when a pipeline is built, each with what to write (semantics 14.10)."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.errors import PipelineError
from headrace.testing import TemporaryDeployment, rows, run
from headrace.testing.suite import Verdict, find_tests, run_tests

SCHEMA: dict[str, Any] = {"id": int, "version": int, "city": str, "gone": bool, "at": datetime}


def feed(versions: Any = None, schema: dict[str, Any] = SCHEMA, **reading: Any) -> hr.Input:
    source = hr.json("landing/customers", schema, versions=versions or hr.upserts("id", "version"), **reading)
    return source.event_time("at", bound="1h")


def topic(versions: Any = None, **more: Any) -> hr.Input:
    source = hr.kafka("customers", SCHEMA, connection="events", versions=versions or hr.upserts("id"))
    return source.event_time("at", bound="1h", **more)


def envelopes(time_column: Any = "changed_at", **more: Any) -> hr.Input:
    versions = hr.debezium_versions("source.ts_ms", key="id")
    return hr.json("landing/customers", {"id": int, "city": str, "at": datetime}, versions=versions).event_time(
        time_column, bound="1h", **more
    )


def newest(given_input: hr.Input | None = None, **parts: Any) -> hr.Pipeline:
    return hr.Pipeline("customers", given_input or feed(), **{"key": "id", "take": hr.newest(), **parts})


def counting_parts(**parts: Any) -> dict[str, Any]:
    return {"what": {"n": hr.count()}, "where": hr.GlobalWindows(), "when": hr.on_update(), **parts}


OTHER = feed(hr.upserts("id")).named("other")
EXAMPLE = hr.BatchFunction("cleaning:words", SCHEMA, deterministic=True)


def joined_orders(join: Any) -> hr.Pipeline:
    orders = hr.json("landing/orders", {"id": int, "ordered_at": datetime}).event_time("ordered_at", bound="1h")
    return hr.Pipeline("orders", orders, join=[join], rows=["id"])


MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "an aggregation": (
        lambda: hr.Pipeline("customers", feed(), **counting_parts(key="city")),
        "Keep the newest of each row in",
    ),
    "an output": (
        lambda: hr.Pipeline("customers", feed(), outputs={"n": hr.Output(key="city", **counting_parts())}),
        "of versions, of which a row has as many as it was changed",
    ),
    "top": (lambda: newest(take=hr.top(3, by="version")), "take: these would be taken of versions"),
    "distinct": (lambda: newest(take=hr.distinct()), "take: these would be taken of versions"),
    "another key": (lambda: newest(key="city"), "versions are of the row of id"),
    "more of a key": (lambda: newest(key=["id", "city"]), "versions are of the row of id"),
    "another order": (
        lambda: newest(take=hr.newest("at")),
        "of the versions of its source the greatest version counts",
    ),
    "a filter": (lambda: newest(filter=col("city") == "oslo"), "would leave the one before it standing"),
    "a filter of all": (
        lambda: hr.Pipeline(
            "customers", feed(), outputs={"c": hr.Rows(key="id", take=hr.newest())}, filter=col("city") == "oslo"
        ),
        "would leave the one before it standing",
    ),
    "a loop": (
        lambda: hr.Pipeline(
            "customers",
            feed(),
            key=["version", "id"],
            where=hr.GlobalWindows(),
            when=hr.on_update(),
            loop=hr.Loop(start=col("vertex"), step=col("value"), combine="least"),
        ),
        "that would be computed of versions",
    ),
    "a union": (lambda: newest(union=[OTHER]), "not all inputs have the same versions="),
    "a union with records": (
        lambda: newest(union=[hr.json("landing/more", SCHEMA).event_time("at", bound="1h").named("more")]),
        "not all inputs have the same versions=",
    ),
    "a union of topics": (lambda: newest(topic(), union=[topic().named("more")]), "which says nothing of another one"),
    "a changelog, too": (lambda: feed(changelog=col("version")), "a source has one of the two"),
    "something else": (lambda: feed("upserts"), 'write upserts("id") or debezium_versions('),
    "what is made of records": (lambda: newest(feed(transform=EXAMPLE)), "cleaning:words makes others of it"),
    "exploded": (
        lambda: newest(feed(schema={**SCHEMA, "tags": list[str]}, explode="tags")),
        "explode= makes others of it",
    ),
    "versions that are joined": (
        lambda: newest(join=[hr.as_of(OTHER, "id", columns={"other": "city"})]),
        "join: a version that meets nothing would leave the one before it standing",
    ),
    "a join of another key": (lambda: hr.as_of(OTHER, "city"), "it has versions of the row of id; join on just that"),
    "a join of some versions": (
        lambda: hr.as_of(OTHER, "id", where=col("city") == "oslo"),
        "would leave the one before it standing",
    ),
    "a join in another order": (
        lambda: hr.as_of(feed().named("other"), "id", order="at"),
        "of the versions of its source the greatest version counts",
    ),
    "a join within": (
        lambda: joined_orders(hr.within(OTHER, "id", between=("0s", "1h"))),
        "within would meet several of one",
    ),
    "a join with the next": (
        lambda: joined_orders(hr.next_event(OTHER, "id", within="1h")),
        "would meet several of one",
    ),
    "no key": (lambda: hr.upserts([]), "name the columns that tell rows apart"),
    "a key that is not there": (lambda: newest(feed(hr.upserts("ident")), key="id"), "the key is 'ident'"),
    "a list as a key": (
        lambda: newest(feed(hr.upserts("tags"), {**SCHEMA, "tags": list[str]}), key="id"),
        "the key is 'tags', which is a list",
    ),
    "a column of the same name": (
        lambda: newest(feed(schema={**SCHEMA, "is_tombstone": bool})),
        "it adds a column 'is_tombstone', which the schema has, too",
    ),
    "no condition": (lambda: newest(feed(hr.upserts("id", "version", deleted=col("version")))), "deleted is int"),
    "an order that is not there": (lambda: newest(feed(hr.upserts("id", "vers"))), "'vers'"),
    "tombstones without a split": (lambda: newest(topic(split="city")), "event_time(split) reads 'city'"),
    "tombstones without an id": (
        lambda: newest(topic(), deduplicate=hr.Deduplicate("version", "1d")),
        "deduplicate reads 'version', which a version that deletes a row does not have",
    ),
    "an envelope's event time": (lambda: newest(envelopes("at")), "event_time(at) reads 'at'"),
    "an envelope in CSV": (
        lambda: newest(
            hr.csv("landing/c", {"id": int}, versions=hr.debezium_versions("ts_ms", key="id")).event_time(
                "changed_at", bound="1h"
            )
        ),
        "a CSV file has no objects",
    ),
    "no time of Debezium's": (lambda: hr.debezium_versions("updated_at", key="id"), "ts_ms, ts_us, ts_ns are known"),
    "a list as an order": (
        lambda: hr.debezium_versions("ts_ms", key="id", order=hr.field("source.pos", list[int])),
        "a list of int has no order",
    ),
    "what a topic has lost": (
        lambda: hr.kafka("c", {"id": int}, connection="events", versions=hr.upserts("id"), on_lost="skip"),
        "which begins again in a topic that replaces this one",
    ),
    "an offset of a value": (
        lambda: hr.kafka(
            "c", {"id": int, "kafka_offset": hr.field("offset", int)}, connection="events", versions=hr.upserts("id")
        ),
        "kafka_offset is a field of the value",
    ),
    "an upsert as a changelog": (
        lambda: hr.json("landing/customers", SCHEMA, changelog="upsert"),
        'versions=upserts("id") of the source in its place',
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_what_would_take_versions_for_rows_is_refused(name: str) -> None:
    wrong, why = MISTAKES[name]
    with pytest.raises(PipelineError) as error:
        wrong()
    assert why in str(error.value)


@pytest.mark.parametrize(
    "build_pipeline",
    [
        lambda: newest(take=hr.newest("version")),
        lambda: newest(key={"customer": col("id")}),
        lambda: newest(filter=col("id") > 3),
        lambda: newest(where=hr.FixedWindows("1h")),
        lambda: newest(union=[feed().named("more")]),
        lambda: newest(topic(hr.upserts("id", "version")), union=[topic(hr.upserts("id", "version")).named("more")]),
        lambda: newest(feed(hr.upserts(["id", "city"])), key=["city", "id"]),
        lambda: newest(topic(hr.upserts("id", "version"))),
        lambda: newest(topic(), deduplicate=hr.Deduplicate("kafka_offset", "1d")),
        lambda: newest(feed(hr.upserts("id")), take=hr.newest("version")),
    ],
)
def test_what_takes_the_newest_of_each_row_is_taken(build_pipeline: Callable[[], hr.Pipeline]) -> None:
    take = build_pipeline().take
    assert isinstance(take, type(hr.newest()))
    assert take.unless is not None


def test_rows_have_the_columns_of_the_schema_alone() -> None:
    assert [*newest().value_types] == [*SCHEMA]
    assert [*newest(topic()).value_types] == [*SCHEMA]
    assert [*newest(envelopes()).value_types] == ["id", "city", "at"]
    named_pipeline = newest(envelopes(), rows=["city", "changed_at", "change_order"])
    assert [*named_pipeline.value_types] == ["id", "city", "changed_at", "change_order"]


def test_rows_leave_out_what_newest_calls_deleted_beside_tombstones() -> None:
    given_input = feed(hr.upserts("id", "version", deleted=col("gone")))
    definition = newest(given_input, take=hr.newest(deleted=col("city") != "oslo"), rows=["city"])

    def customer(id_: int, version: int, city: str, *, is_gone: bool = False) -> dict[str, Any]:
        return {"id": id_, "version": version, "city": city, "gone": is_gone, "at": "2026-05-01T09:00:00Z"}

    result = run(
        definition,
        [
            rows(customer(1, 1, "oslo"), customer(2, 1, "oslo"), customer(3, 1, "oslo")),
            rows(customer(1, 2, "rome"), customer(2, 2, "oslo", is_gone=True)),
        ],
    )
    assert [row.values for row in result.current] == [{"id": 3, "city": "oslo"}]


@pytest.mark.parametrize("executor", ["local", "reference"])
def test_versions_are_rows_themselves_and_can_be_counted_as_such(executor: Any) -> None:
    definition = hr.Pipeline(
        "customers",
        feed(hr.upserts("id", "version", deleted=col("gone"))),
        outputs={
            "history": hr.Rows(["id", "version", "city", "is_tombstone"]),
            "changes": hr.Output(of="history", key="id", **counting_parts()),
        },
    )
    moment = "2026-05-01T09:00:00Z"
    versions = [
        {"id": 1, "version": 1, "city": "oslo", "at": moment},
        {"id": 1, "version": 2, "gone": True, "at": moment},
    ]
    history = run(definition, [rows(*versions)], output="history", executor=executor)
    assert [row["is_tombstone"] for row in history.current] == [False, True]
    changes = run(definition, [rows(*versions)], output="changes", executor=executor)
    assert [(pane["id"], pane["n"]) for pane in changes.current] == [(1, 2)]


def test_check_says_what_versions_are() -> None:
    text = str(hr.check(newest(feed(hr.upserts("id", "version", deleted=col("gone"))))))
    description = (
        "versions: each record is a version of the row of id; it is gone where gone; the greatest version counts"
    )
    assert description in text
    assert "the newest row by version, unless is_tombstone" in text
    assert "each is a version of the row of id from source.ts_ms on; the greatest change_order counts" in str(
        hr.check(newest(envelopes()))
    )
    (note,) = hr.check(newest(feed(hr.upserts("id")))).pipelines[0].notes
    assert note.startswith("input source: of two versions of a row with one event time the deletion counts")
    assert not [one for one in hr.check(newest(topic())).pipelines[0].notes if "one event time" in one]
    assert "versions:" not in str(hr.check(newest(hr.json("landing/c", SCHEMA).event_time("at", bound="1h"))))


def test_versions_that_mean_something_else_are_a_replay(tmp_path: Path) -> None:
    deployment = TemporaryDeployment(tmp_path)
    pipeline_before = newest(feed(hr.upserts("id", "version")), executor="local")
    deployment.land(pipeline_before, {"id": 1, "version": 1, "city": "oslo", "at": "2026-05-01T09:00:00Z"})
    deployment.run(pipeline_before)
    handle = hr.open(deployment.root)
    assert "versions=" not in str(handle[pipeline_before].plan())
    pipeline_after = newest(feed(hr.upserts("id", "version", deleted=col("gone"))), executor="local")
    text = str(handle[pipeline_after].plan())
    assert "versions= of input 'source' has changed" in text
    assert "headrace run refuses" in text


def test_yaml(tmp_path: Path) -> None:
    (tmp_path / "customers.py").write_text(
        "from datetime import datetime\n\nimport headrace as hr\n\n"
        "schema = {'id': int, 'city': str, 'at': datetime}\n"
        "topic = hr.kafka('customers', schema, connection='events', versions=hr.upserts('id'))\n"
        "customers = hr.Pipeline('customers', topic.event_time('at', bound='1h'), key='id', take=hr.newest())\n"
    )
    (tmp_path / "customers.test.yaml").write_text(
        "tests:\n  - name: a message without a value\n    given:\n"
        "      - rows: [{id: 1, city: oslo, at: 13:05}, {id: 2, city: rome, at: 13:05}]\n"
        "      - rows: [{id: 1, is_tombstone: true, kafka_timestamp: 13:06}, {id: 2, city: bern, at: 13:04}]\n"
        "    expect:\n      current: [{id: 2, city: bern}]\n"
    )
    (passed_test,) = run_tests(find_tests(tmp_path))
    assert passed_test.verdict is Verdict.PASSED


@pytest.mark.parametrize("executor", ["local", "reference"])
def test_rows_meet_the_version_that_held(executor: Any) -> None:
    """Order and tombstones are those of the source, also of messages without a value."""
    customers = hr.kafka("customers", SCHEMA, connection="events", versions=hr.upserts("id")).event_time(
        "at", bound="1h"
    )
    orders = hr.json("landing/orders", {"order": int, "customer": int, "ordered_at": datetime})
    join = hr.as_of(customers.named("customers"), {"customer": "id"}, outer=True, lateness="1d")
    assert [*join.columns] == ["version", "city", "gone"]
    definition = hr.Pipeline(
        "orders", orders.event_time("ordered_at", bound="1h"), join=[join], rows=["order", "city"], executor="local"
    )

    def order(number: int, time: str) -> dict[str, Any]:
        return {"order": number, "customer": 1, "ordered_at": f"2026-05-01T{time}:00Z"}

    def version(city: str, time: str, offset: int) -> dict[str, Any]:
        return {"id": 1, "city": city, "at": f"2026-05-01T{time}:00Z", "kafka_offset": offset}

    tombstone = {"id": 1, "is_tombstone": True, "kafka_timestamp": "2026-05-01T11:00:00Z"}
    result = run(
        definition,
        [
            rows(order(1, "09:30"), order(2, "10:30"), order(3, "11:30")),
            rows(version("oslo", "09:00", 1), version("rome", "10:00", 3), of="customers"),
            rows(version("zzz", "10:00", 2), tombstone, of="customers"),
        ],
        executor=executor,
    )
    assert sorted((row["order"], row["city"]) for row in result.current) == [(1, "oslo"), (2, "rome"), (3, None)]
