"""Random histories of rows: whatever the order and the cuts, what stands are the newest versions, as SQL tells them."""

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.testing import TemporaryDeployment, rows, run
from tests.reference.strategies import examples

Record = dict[str, Any]

SCHEMA: Mapping[str, Any] = {"id": int, "version": int, "city": str, "amount": int, "gone": bool, "at": datetime}
FEED = hr.json("landing/customers", SCHEMA, versions=hr.upserts("id", "version", deleted=col("gone")))
UNORDERED_FEED = hr.json("landing/customers", SCHEMA, versions=hr.upserts(["id"], deleted=col("gone")))

_NEWEST = """
    select id, city, amount from (
        select *, row_number() over (partition by id order by {order} "at" desc, coalesce(gone, false) desc,
            version desc nulls last, city desc nulls last, amount desc nulls last, gone desc nulls last) as place
        from versions
    ) where place = 1 and gone is not true
"""


def pipeline(source: hr.FileSource) -> hr.Pipeline:
    """The newest rows, and what is computed of them."""
    return hr.Pipeline(
        "customers",
        source.event_time("at", bound="1h"),
        outputs={
            "customers": hr.Rows(["version", "city", "amount", "gone", "at"], key="id", take=hr.newest(), id="id"),
            "by_city": hr.Output(
                of="customers",
                key={"city": hr.coalesce(col("city"), "none")},
                what={"n": hr.count(), "total": col("amount").sum(), "largest": col("amount").max()},
                where=hr.GlobalWindows(),
                when=hr.on_update(),
                how=hr.retracting(None),
            ),
            "busy": hr.Rows(["id", "city"], of="customers", filter=col("amount") > 0),
        },
        executor="local",
    )


def history(chance: random.Random, length: int = 24) -> list[Record]:
    """Versions of few rows: ties of orders and times, NULL in all of it, deletions, versions that come again."""
    records = [
        {
            "id": chance.randrange(4),
            "version": chance.choice([None, 1, 2, 3, 4, 5]),
            "city": chance.choice(["oslo", "rome", "", None]),
            "amount": chance.choice([None, -5, 0, 7, 4 * 10**17]),
            "gone": chance.choice([False, False, True, None]),
            "at": f"2026-05-01T{chance.randrange(10, 14)}:{chance.randrange(3):02}:00Z",
        }
        for _ in range(length)
    ]
    records += chance.sample(records, 4)
    chance.shuffle(records)
    return records


def cut(records: Sequence[Record], chance: random.Random) -> list[Sequence[Record]]:
    ends = sorted(chance.sample(range(1, len(records)), 4))
    return [records[begin:end] for begin, end in zip([0, *ends], [*ends, len(records)], strict=True)]


def newest_in_sql(records: Sequence[Record], order: str) -> list[tuple[Any, ...]]:
    """The rows that stand, as DuckDB finds them in all versions."""
    columns = 'id bigint, version bigint, city varchar, amount bigint, gone boolean, "at" varchar'
    with duckdb.connect() as connection:
        connection.execute(f"create table versions ({columns})")
        connection.executemany(
            "insert into versions values (?, ?, ?, ?, ?, ?)", [[record[name] for name in SCHEMA] for record in records]
        )
        return sorted(connection.execute(_NEWEST.format(order=order)).fetchall(), key=repr)


def of_rows(rows: Sequence[Any]) -> list[tuple[Any, ...]]:
    return sorted(((row["id"], row["city"], row["amount"]) for row in rows), key=repr)


SEEDS = st.integers(0, 2**32)
EXECUTORS = pytest.mark.parametrize("executor", ["local", "reference"])
Executor = Literal["local", "reference"]


@EXECUTORS
@given(seed=SEEDS)
@settings(examples(80, fewest=4))
def test_what_stands_are_the_newest_versions(seed: int, executor: Executor) -> None:
    chance = random.Random(seed)
    source, order = chance.choice([(FEED, "version desc nulls last,"), (UNORDERED_FEED, "")])
    records = history(chance)
    expected = newest_in_sql(records, order)
    definition = pipeline(source)
    steps = [rows(*part) for part in cut(records, chance)]
    assert of_rows(run(definition, steps, executor=executor, output="customers").current) == expected
    by_city = run(definition, steps, executor=executor, output="by_city").current
    totals: Counter[str] = Counter()
    for _, city, amount in expected:
        totals["none" if city is None else city] += amount or 0
    counts = Counter("none" if city is None else city for _, city, _ in expected)
    assert {row["city"]: row["n"] for row in by_city if row["n"]} == counts
    assert {row["city"]: row["total"] or 0 for row in by_city if row["n"]} == totals
    busy = run(definition, steps, executor=executor, output="busy").current
    assert sorted((row["id"], row["city"]) for row in busy) == sorted(
        (id_, c) for id_, c, n in expected if (n or 0) > 0
    )


@given(seed=SEEDS)
@settings(examples(20, fewest=2))
def test_runs_over_files_give_the_same_however_they_are_cut(seed: int) -> None:
    chance = random.Random(seed)
    records = history(chance)
    definition = pipeline(FEED)
    expected = newest_in_sql(records, "version desc nulls last,")
    for batch in (False, True):
        chance.shuffle(records)
        with TemporaryDirectory() as folder:
            deployment = TemporaryDeployment(Path(folder))
            for part in cut(records, chance):
                deployment.land(definition, *part)
                if not batch:
                    deployment.run(definition)
            deployment.run(definition, batch=batch)
            assert of_rows(deployment_rows(deployment, definition)) == expected
            handle = hr.open(deployment.root)[definition]
            handle.run(mode="replay", from_branch="main", branch="again")
            for name in definition.outputs:
                difference = handle[name].diff("main", "again").output.rows.to_json()
                assert [difference[kind] for kind in ("added", "removed", "changed")] == [0, 0, 0]


def deployment_rows(deployment: TemporaryDeployment, pipeline: hr.Pipeline) -> list[Record]:
    rows_: list[Record] = hr.open(deployment.root)[pipeline]["customers"].current().to_json()
    return rows_


@pytest.mark.spark
def test_runs_on_spark_give_the_same(tmp_path: Path) -> None:
    chance = random.Random(99)
    records = history(chance, 60)
    definition = pipeline(FEED)
    deployment = TemporaryDeployment(tmp_path)
    for part in cut(records, chance):
        deployment.land(definition, *part)
    deployment.run(definition, executor="spark", files_per_epoch=2)
    assert of_rows(deployment_rows(deployment, definition)) == newest_in_sql(records, "version desc nulls last,")


@given(seed=SEEDS)
@settings(examples(60))
def test_windows_have_the_newest_version_in_each_under_late_records(seed: int) -> None:
    """The kernel and the reference agree on each pane: what is late, withdrawn, and comes again."""
    chance = random.Random(seed)
    definition = hr.Pipeline(
        "hours",
        FEED.event_time("at", bound="30m"),
        key="id",
        rows=["city", "amount"],
        take=hr.newest(),
        where=hr.FixedWindows("1h"),
        when=hr.on_update(),
        how=hr.retracting("1h"),
        executor="local",
    )
    steps = [rows(*part) for part in cut(history(chance, 40), chance)]
    found_result, expected_result = (run(definition, steps, executor=executor) for executor in ("local", "reference"))
    assert [sorted(map(repr, map(pane_values, one.panes))) for one in found_result.steps] == [
        sorted(map(repr, map(pane_values, one.panes))) for one in expected_result.steps
    ]
    assert len(found_result.late) == len(expected_result.late)


def pane_values(pane: Any) -> tuple[Any, ...]:
    return (pane.values["id"], pane.values["city"], pane.values["amount"], pane.is_retraction)


# --- Debezium


def table_history(chance: random.Random) -> tuple[list[Record], dict[int, Record]]:
    """Envelopes of what happens to a table with a primary key, and its rows at the end. PostgreSQL sends no old rows:
    of a deletion the key alone.
    """
    table: dict[int, Record] = {}
    envelopes: list[Record] = []
    moment = 1_777_626_000_000
    for lsn in range(100, 140):
        id_, moment = chance.randrange(4), moment + chance.randrange(3)
        source = {"lsn": lsn, "ts_ms": moment}
        if id_ in table and chance.random() < 0.3:
            table.pop(id_)
            envelopes.append(
                {"op": "d", "before": {"id": id_, "city": None, "amount": 0}, "after": None, "source": source}
            )
            continue
        op = "u" if id_ in table else chance.choice("cr")
        table[id_] = {"id": id_, "city": chance.choice(["oslo", "rome", None]), "amount": chance.randrange(9)}
        envelopes.append({"op": op, "before": None, "after": table[id_], "source": source})
    return envelopes, table


@EXECUTORS
@given(seed=SEEDS)
@settings(examples(60))
def test_envelopes_without_old_rows_give_the_table(seed: int, executor: Executor) -> None:
    chance = random.Random(seed)
    envelopes, table = table_history(chance)
    envelopes += chance.sample(envelopes, 9)  # Debezium may send them again
    chance.shuffle(envelopes)
    versions = hr.debezium_versions("source.ts_ms", key="id")
    source = hr.json("landing/customers", {"id": int, "city": str, "amount": int}, versions=versions)
    definition = hr.Pipeline("customers", source.event_time("changed_at", bound="1h"), key="id", take=hr.newest())
    result = run(definition, [rows(*part) for part in cut(envelopes, chance)], executor=executor)
    assert {row["id"]: row.values for row in result.current} == table
    assert [row.time.timestamp() * 1000 for row in result.current] == [
        max(one["source"]["ts_ms"] for one in envelopes if one["after"] is table[row["id"]]) for row in result.current
    ]


def test_the_least_number_of_nanoseconds_is_no_time_of_2262() -> None:
    versions = hr.debezium_versions("ts_ns", key="id")
    source = hr.json("landing/customers", {"id": int}, versions=versions)
    definition = hr.Pipeline("customers", source.event_time("changed_at", bound="1h"), key="id", take=hr.newest())
    moments = {1: -(2**63), 2: -1, 3: 1_999}
    envelopes = [
        {"op": "c", "after": {"id": id_}, "ts_ns": moment, "source": {"lsn": id_}} for id_, moment in moments.items()
    ]
    result = run(definition, [rows(*envelopes)])
    assert {row["id"]: row.time.isoformat() for row in result.current} == {
        2: "1969-12-31T23:59:59.999999+00:00",
        3: "1970-01-01T00:00:00.000001+00:00",
    }
    assert ["event time" in row["reason"] for row in result.rejected] == [True]


def test_envelopes_in_files_of_parquet_are_the_same(tmp_path: Path) -> None:
    envelopes, table = table_history(random.Random(3))
    schema = {"id": int, "city": str, "amount": int}
    definition = hr.Pipeline(
        "customers",
        hr.parquet("landing/customers", schema, versions=hr.debezium_versions("source.ts_ms", key="id")).event_time(
            "changed_at", bound="1h"
        ),
        key="id",
        take=hr.newest(),
        executor="local",
    )
    (tmp_path / "landing" / "customers").mkdir(parents=True)
    lines = tmp_path / "envelopes.jsonl"
    lines.write_text("".join(json.dumps(envelope) + "\n" for envelope in envelopes))
    target = tmp_path / "landing" / "customers" / "1.parquet"
    duckdb.sql(f"copy (select * from read_json('{lines}')) to '{target}' (format parquet)")
    TemporaryDeployment(tmp_path).run(definition)
    found_table = hr.open(tmp_path.as_uri())[definition].current(columns=[*schema]).to_json()
    assert {row["id"]: row for row in found_table} == table


# --- topics

TOPIC = hr.Pipeline(
    "customers",
    hr.kafka(
        "customers", {"id": int, "city": str, "at": datetime}, connection="events", versions=hr.upserts("id")
    ).event_time("at", bound="1h"),
    outputs={"customers": hr.Rows(["city"], key="id", take=hr.newest(), id="id")},
)


def messages(chance: random.Random) -> list[Record]:
    """A partition of a topic, in which the times of rows say nothing."""
    sent_messages = []
    for offset in range(30):
        moment = f"2026-05-01T{chance.randrange(10, 20)}:00:00Z"
        if chance.random() < 0.3:
            row: Record = {"is_tombstone": True, "kafka_timestamp": moment}
        else:
            row = {"city": chance.choice(["oslo", "rome", None]), "at": moment}
        sent_messages.append({"id": chance.randrange(5), "kafka_offset": offset, **row})
    return sent_messages


def compact_messages(messages: Sequence[Record], end: int, chance: random.Random) -> list[Record]:
    """What Kafka may leave of messages: the last of each key, and what is not compacted yet; old tombstones go."""
    last = {message["id"]: message["kafka_offset"] for message in messages[:end]}
    head = [message for message in messages[:end] if last[message["id"]] == message["kafka_offset"]]
    return [*(one for one in head if "city" in one or chance.random() < 0.5), *messages[end:]]


@EXECUTORS
@given(seed=SEEDS)
@settings(examples(60, fewest=4))
def test_compaction_changes_nothing(seed: int, executor: Executor) -> None:
    chance = random.Random(seed)
    sent_messages = messages(chance)
    table = {message["id"]: message.get("city") for message in sent_messages if "city" in message}
    for id_ in [*table]:
        *_, last = (message for message in sent_messages if message["id"] == id_)
        if "city" not in last:
            del table[id_]
    left = compact_messages(sent_messages, chance.randrange(30), chance)
    for messages_given in (sent_messages, left):
        steps = (
            [rows(*part) for part in cut(messages_given, chance)]
            if len(messages_given) > 5
            else [rows(*messages_given)]
        )
        current = run(TOPIC, steps, executor=executor, output="customers").current
        assert {row["id"]: row["city"] for row in current} == table
