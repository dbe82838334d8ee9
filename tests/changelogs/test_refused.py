"""What is refused when a pipeline with a changelog is built, each with the reason (semantics 14.9)."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.errors import PipelineError
from tests.own_triggers import Jump

SCHEMA: dict[str, Any] = {"id": int, "shop": str, "amount": int, "gone": bool, "at": datetime}
SIGN = hr.if_else(col("gone"), -1, 1)
FUNCTION = hr.SparkFunction("cleaning:words", SCHEMA, deterministic=True)


def source(changelog: Any = SIGN, schema: dict[str, Any] = SCHEMA, **reading: Any) -> hr.FileSource:
    return hr.json("landing/orders", schema, changelog=changelog, **reading)


def build(given_input: hr.Input | None = None, **parts: Any) -> hr.Pipeline:
    given_input = given_input or source().event_time("at", bound="1h")
    what = {"n": hr.count()}
    return hr.Pipeline("orders", given_input, **{"key": "shop", "what": what, "where": hr.FixedWindows("1h"), **parts})


def when(trigger: hr.Trigger, **parts: Any) -> hr.Pipeline:
    return build(when=trigger, **parts)


def pipeline_of(file_source: hr.FileSource) -> hr.Pipeline:
    return build(file_source.event_time("at", bound="1h"))


MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "accumulating": (lambda: build(how=hr.accumulating()), "the row of a window would stand whose records are all"),
    "discarding": (lambda: build(how=hr.discarding()), "a pane has only what came since the one before it"),
    "the last ones": (lambda: build(how=hr.retracting(keep_last=3)), "leave out keep_last"),
    "sessions": (lambda: build(where=hr.Sessions("1h")), "may have linked two sessions"),
    "data driven": (
        lambda: when(hr.Repeatedly(hr.DataDriven({"total": col("amount").sum()}, col("total") > 9))),
        "DataDriven looks at what elements hold",
    ),
    "punctuation": (lambda: when(hr.Repeatedly(hr.AfterPunctuation(col("gone")))), "AfterPunctuation looks at"),
    "pattern": (lambda: when(hr.Repeatedly(hr.AfterPattern("a", {"a": col("gone")}))), "AfterPattern looks at"),
    "own trigger": (lambda: when(hr.Repeatedly(Jump(3, "amount"))), "Jump looks at"),
    "finishing": (
        lambda: when(hr.AfterWatermark(), how=hr.retracting("1d"), allow_finishing=True),
        "a trigger that finishes closes its window",
    ),
    "arrival": (lambda: build(source().arrival_time()), "a withdrawal would come to another window"),
    "loop": (
        lambda: build(
            key=["amount", "id"],
            what=None,
            loop=hr.Loop(start=col("vertex"), step=col("value"), combine="least"),
        ),
        "the values of a loop hold each other up",
    ),
    "an output": (
        lambda: hr.Pipeline(
            "orders",
            source().event_time("at", bound="1h"),
            outputs={"visits": hr.Output(key="shop", what={"n": hr.count()}, where=hr.Sessions("1h"))},
        ),
        "output visits",
    ),
    "a further input": (
        lambda: build(
            hr.json("landing/more", SCHEMA).event_time("at", bound="1h"),
            union=[source().event_time("at", bound="1h").named("orders")],
            how=hr.discarding(),
        ),
        "records can be withdrawn",
    ),
    "upserts": (lambda: source("upsert"), "an upsert says what a row is, and not what it was"),
    "unwrapped": (
        lambda: source(hr.debezium_envelope(), {**SCHEMA, "op": hr.field("__op", str)}),
        "records have whose envelope is gone",
    ),
    "upserts of a topic": (
        lambda: hr.kafka("orders", SCHEMA, connection="events", changelog="upsert"),
        "an upsert says what a row is, and not what it was",
    ),
    "a topic's records without their envelope": (
        lambda: hr.kafka(
            "orders",
            {**SCHEMA, "was": hr.field("__deleted", str)},
            connection="events",
            changelog=hr.debezium_envelope(),
        ),
        "records have whose envelope is gone",
    ),
    "what Kafka says of both rows": (
        lambda: hr.kafka(
            "orders",
            {**SCHEMA, "kafka_offset": int},
            connection="events",
            changelog=hr.debezium_envelope(shared=["kafka_offset"]),
        ),
        "shared names 'kafka_offset', which is no column of the records",
    ),
    "a constant": (lambda: source(hr.lit(1)), "it is the same for all records"),
    "no int": (lambda: pipeline_of(source("gone")), "it is bool, and must be int"),
    "nowhere": (lambda: pipeline_of(source("amout")), "amout"),
    "no text": (
        lambda: source(hr.delta_change_type(), {**SCHEMA, "kind": hr.field("_change_type", int)}),
        "the schema has _change_type as int",
    ),
    "shared and gone": (lambda: source(hr.debezium_envelope(shared=["lsn"])), "shared names 'lsn'"),
    "all shared": (lambda: source(hr.debezium_envelope(shared=[*SCHEMA])), "the schema has none of the rows"),
    "an envelope in CSV": (
        lambda: pipeline_of(hr.csv("landing/orders", SCHEMA, changelog=hr.debezium_envelope())),
        "a CSV file has no objects",
    ),
    "Spark code behind Delta's": (
        lambda: pipeline_of(source(hr.delta_change_type(), transform=FUNCTION)),
        "cleaning:words makes others of them",
    ),
    "Spark code that is not deterministic": (
        lambda: pipeline_of(source(transform=hr.SparkFunction("cleaning:words", SCHEMA, deterministic=False))),
        "nobody could find again what it made of a record",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_what_cannot_take_back_is_refused(name: str) -> None:
    wrong, why = MISTAKES[name]
    with pytest.raises(PipelineError) as error:
        wrong()
    assert why in str(error.value)


@pytest.mark.parametrize(
    "build_pipeline",
    [
        build,
        lambda: build(source().arrival_time(), where=hr.GlobalWindows(), when=hr.on_update()),
        lambda: pipeline_of(source(hr.delta_change_type(), {**SCHEMA, "kind": hr.field("_change_type", str)})),
        lambda: pipeline_of(source(transform=FUNCTION)),
        lambda: build(then=[hr.Aggregation(what={"all": col("n").sum()}, where=hr.CalendarWindows("day"))]),
    ],
)
def test_what_can_take_back_is_taken(build_pipeline: Callable[[], hr.Pipeline]) -> None:
    assert build_pipeline().stages[0].withdrawable


def test_check_says_what_records_are() -> None:
    text = str(hr.check(pipeline_of(source(hr.debezium_envelope(shared=["id"])))))
    assert "changes: Debezium's envelopes: each withdraws the row before, and adds the row after" in text
    assert "changes: a record adds a row where if_else(gone, -1, 1) is 1, and withdraws one" in str(hr.check(build()))
    assert "changes: rows of Delta's change feed" in str(hr.check(pipeline_of(source(hr.delta_change_type()))))
    assert "changes:" not in str(hr.check(pipeline_of(source(None))))
