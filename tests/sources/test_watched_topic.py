"""A watcher of a real topic: the trigger that Airflow's triggerer runs, with its connection from Airflow."""

import asyncio
import json
import os
import secrets
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.errors import PipelineError
from headrace.runs.client.handle import PipelineHandle
from headrace.sources.landed.files import Lander
from headrace.sources.landing import Landing
from headrace_snapshots.store import open_store
from scripts.kafka import PASSWORD, USER, Kafka
from tests.sources.kafka_topics import Topics

SECONDS = 60


def orders(topic: str, **more: Any) -> hr.Pipeline:
    source = hr.kafka(topic, {"shop": str, "at": datetime}, connection="events", **more)
    return hr.Pipeline(
        "orders",
        source.event_time("at", bound="1h"),
        key="shop",
        what={"n": hr.count()},
        where=hr.FixedWindows("1d"),
        when=hr.on_update(),
        schedule=hr.on_files("1s"),
        executor="local",
    )


def record(shop: str) -> dict[str, str]:
    return {"shop": shop, "at": "2026-05-01T00:00:00Z"}


class WatchedPipeline:
    """The trigger of a pipeline, made of what Airflow keeps of it; ``notes`` is what people see of the watcher."""

    def __init__(self, pipeline: hr.Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
        from headrace.pipeline.loading.registry import RegisteredPipeline
        from headrace_airflow.roots import Root, RootedPipeline
        from headrace_airflow.run_ids import landed_asset
        from headrace_airflow.watching import trigger
        from headrace_airflow.watching.watch import Runs

        rooted_pipeline = RootedPipeline(Root.of_environment(), RegisteredPipeline(pipeline, Path(__file__)))
        (watcher,) = landed_asset(rooted_pipeline, pipeline.schedule.poll_interval).watchers  # type: ignore[union-attr]
        name, arguments = watcher.trigger.serialize()
        self.arguments_json = json.dumps(arguments)
        self.notes: list[dict[str, Any]] = []
        self.trigger = getattr(trigger, name.rpartition(".")[2])(**json.loads(self.arguments_json))

        async def note(_: Any, state: dict[str, Any]) -> None:
            self.notes.append(state)

        # there is no supervisor to ask about runs, and to keep a state
        monkeypatch.setattr(trigger.PendingWorkTrigger, "_count_runs", lambda _: Runs(0, 0))
        monkeypatch.setattr(trigger.PendingWorkTrigger, "_store_state", note)

    def event(self) -> dict[str, Any]:
        """The first event that the trigger fires."""

        async def first() -> dict[str, Any]:
            events: AsyncIterator[Any] = self.trigger.run()
            return dict((await asyncio.wait_for(anext(events), SECONDS)).payload)

        return asyncio.run(first())

    def finds(self) -> dict[str, int]:
        """How many records the trigger finds now."""
        work = self.trigger._find_pending_work()
        return {} if work is None else dict(work.records)

    def failure(self) -> str:
        """What people see of the first look that fails."""

        async def look() -> str:
            watching = asyncio.create_task(anext(self.trigger.run()))
            while not self.notes:
                assert not watching.done()
                await asyncio.sleep(0.05)
            watching.cancel()
            return str(self.notes[0]["error"])

        return asyncio.run(asyncio.wait_for(look(), SECONDS))


CLASS = "headrace.connectors.kafka.definition:KafkaSource"
STORED_FIELDS = {"connection": "events", "on_lost": "fail"}


def test_triggers_that_older_versions_have_stored_watch_the_same() -> None:
    from headrace_airflow.watching import trigger

    fields: dict[str, Any] = {"root": "", "pipeline": "orders", "inputs": {}, "poll_seconds": 1.0}
    older = trigger.PendingWorkTrigger(
        **fields, topics={"source": ["sales", "events", "never", "skip"], "b": ["b", "c"]}
    )
    assert older.sources == {
        "source": [CLASS, {"topic": "sales", "connection": "events", "land": "never", "on_lost": "skip"}, ["events"]],
        "b": [CLASS, {"topic": "b", "connection": "c"}, ["c"]],
    }
    name, arguments = older.serialize()
    assert trigger.PendingWorkTrigger(**arguments).serialize() == (name, arguments)


@pytest.fixture
def of_airflow(broker: Kafka, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """The fields of Airflow's connection ``events``, which has a password."""
    monkeypatch.setenv("HEADRACE_ROOT", tmp_path.as_uri())
    host, _, port = broker.with_password.partition(":")
    return {"conn_type": "kafka", "host": host, "port": int(port), "login": USER, "password": PASSWORD}


def runs(pipeline: hr.Pipeline, root: Path) -> PipelineHandle:
    return hr.open(root.as_uri(), create=True)[pipeline]


@pytest.mark.parametrize("land", ["always", "never"])
def test_records_of_a_topic_start_a_run_once(
    topics: Topics,
    of_airflow: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    land: str,
) -> None:
    topic = f"topic.{secrets.token_hex(4)}"
    topics.make(topic, 2)
    pipeline = orders(topic, land=land)
    with monkeypatch.context() as airflow:
        airflow.delenv("HEADRACE_CONN_EVENTS")
        airflow.setenv("AIRFLOW_CONN_EVENTS", json.dumps(of_airflow))
        watched_source = WatchedPipeline(pipeline, monkeypatch)
        assert json.loads(watched_source.arguments_json)["sources"] == {
            "source": [CLASS, {**STORED_FIELDS, "topic": topic, "land": land}, ["events"]]
        }
        assert watched_source.finds() == {}
        for partition in range(2):
            topics.send_json(topic, [record("a"), record("b")], partition)
        event = watched_source.event()
        assert event == {"snapshot": None, "files": {}, "timer_is_due": False, "records": {"source": 4}}
        assert "HEADRACE_CONN_EVENTS" not in os.environ
    handle = runs(pipeline, tmp_path)
    handle.run()
    assert watched_source.finds() == {}
    topics.send_json(topic, [record("a")], 0)
    assert watched_source.finds() == {"source": 1}
    if land == "always":  # a lander is killed once it has claimed
        with monkeypatch.context() as killed_patch:
            killed_patch.setattr(Lander, "_complete_range", lambda *_, **__: 0)
            Landing(pipeline, open_store(tmp_path.as_uri())).land_all({})
        assert watched_source.finds() == {"source": 1}
    handle.run()
    assert watched_source.finds() == {}
    topics.remove(topic)
    topics.make(topic, 2)
    topics.send_json(topic, [record("a")], 0)
    assert watched_source.event()["problem"].startswith("data.topic_replaced: ")
    assert PASSWORD not in watched_source.arguments_json
    assert PASSWORD not in json.dumps(watched_source.notes)


def test_a_watcher_that_is_not_let_in_says_so_and_no_password(
    topics: Topics, of_airflow: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    topic = f"topic.{secrets.token_hex(4)}"
    topics.make(topic)
    monkeypatch.delenv("HEADRACE_CONN_EVENTS")
    watched_source = WatchedPipeline(orders(topic), monkeypatch)
    assert watched_source.failure().startswith("config.connection: there is no Airflow connection events")
    monkeypatch.setenv("AIRFLOW_CONN_EVENTS", json.dumps({**of_airflow, "password": f"not-{PASSWORD}"}))
    watched_source = WatchedPipeline(orders(topic), monkeypatch)
    assert watched_source.failure().startswith("config.kafka_refused: connection events (kafka://")
    for text in (watched_source.arguments_json, caplog.text, json.dumps(watched_source.notes)):
        assert PASSWORD not in text


def test_what_only_a_run_can_ask_has_no_watcher() -> None:
    source = hr.spark_source("orders:Orders", {"shop": str, "at": datetime})
    with pytest.raises(PipelineError, match=r"watches files, topics and sources .* reads orders:Orders"):
        hr.Pipeline(
            "orders",
            source.event_time("at", bound="1h"),
            key="shop",
            what={"n": hr.count()},
            where=hr.FixedWindows("1d"),
            schedule=hr.on_files(),
        )
