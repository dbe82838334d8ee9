"""A watcher of a source of another distribution: the trigger that Airflow's triggerer runs."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.connections import MissingConnectionError
from headrace.errors import PipelineError
from headrace.pipeline.endpoints import Source
from headrace.sources.landed.files import Lander
from headrace.sources.landing import Landing
from headrace.testing.connectors import SourceWorld
from headrace_snapshots.store import open_store
from tests.distributions import write_distribution
from tests.sources.test_conformance import DISTRIBUTION_FOLDER, DailyWorld, OutboxWorld
from tests.sources.test_watched_topic import WatchedPipeline

pytestmark = pytest.mark.airflow


def counting_pipeline(source: Source) -> hr.Pipeline:
    return hr.Pipeline(
        "said",
        source.event_time("at", bound="1h"),
        key="text",
        what={"n": hr.count()},
        where=hr.FixedWindows("1d"),
        when=hr.on_update(),
        schedule=hr.on_files("1s"),
        executor="local",
    )


def record(number: int) -> dict[str, Any]:
    return {"number": number, "text": "a", "at": datetime(2026, 5, 1, tzinfo=UTC)}


@pytest.fixture(autouse=True)
def installed_distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The distribution is installed, and its root is the environment's."""
    write_distribution((DISTRIBUTION_FOLDER / "pyproject.toml").read_text(), tmp_path / "site")
    for folder in (DISTRIBUTION_FOLDER, tmp_path / "site"):
        monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("HEADRACE_ROOT", (tmp_path / "root").as_uri())


def splits_found(watched_pipeline: WatchedPipeline) -> dict[str, int]:
    work = watched_pipeline.trigger._find_pending_work()
    return {} if work is None else dict(work.splits)


@pytest.mark.parametrize("world_of", [DailyWorld, OutboxWorld])
def test_a_source_of_ones_own_is_watched(
    world_of: Callable[[Path], SourceWorld], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of(tmp_path / "said.db")
    pipeline = counting_pipeline(world.source)
    handle = hr.open((tmp_path / "root").as_uri(), create=True)[pipeline]
    watched_pipeline = WatchedPipeline(pipeline, monkeypatch)
    assert splits_found(watched_pipeline) == {}
    world.append([record(1)])
    event = {"snapshot": None, "files": {}, "timer_is_due": False, "splits": {"source": 1}}
    assert watched_pipeline.event() == event
    handle.run()
    assert splits_found(watched_pipeline) == {}, "it is read"
    world.append([record(2)])
    assert splits_found(watched_pipeline) == {"source": 1}
    if not pipeline.source.is_durable:  # a lander is killed once it has claimed
        with monkeypatch.context() as killed_patch:
            killed_patch.setattr(Lander, "_complete_range", lambda *_, **__: 0)
            Landing(pipeline, open_store((tmp_path / "root").as_uri())).land_all({})
        assert splits_found(watched_pipeline) == {"source": 1}
    handle.run()
    assert splits_found(watched_pipeline) == {}


@dataclass(frozen=True)
class ConnectedTable(Source):
    """A source that names a connection, and has a tuple."""

    tables: tuple[str, ...]
    schema: Any
    kind = "daily_table"

    place = property(lambda self: "/".join(map(str, self.tables)))  # type: ignore[assignment]
    is_watched = property(lambda _: True)  # type: ignore[assignment]
    connections = property(lambda _: ("tables",))  # type: ignore[assignment]


def test_a_watcher_knows_its_connections_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace import connections
    from headrace_airflow.connection import find_connection

    monkeypatch.setenv("AIRFLOW_CONN_TABLES", json.dumps({"conn_type": "postgres", "host": "db", "password": "hidden"}))
    watched_pipeline = WatchedPipeline(
        counting_pipeline(ConnectedTable(("a", "b"), {"text": str, "at": datetime})), monkeypatch
    )
    assert json.loads(watched_pipeline.arguments_json)["sources"] == {
        "source": [f"{__name__}:ConnectedTable", {"tables": ["a", "b"]}, ["tables"]]
    }
    with connections.use_connections([find_connection("tables")]):
        assert connections.connection("tables").password == "hidden"
    with pytest.raises(MissingConnectionError):
        connections.connection("tables")
    assert "HEADRACE_CONN_TABLES" not in os.environ


def test_a_watched_source_that_no_watcher_could_make_again_is_refused() -> None:
    source = ConnectedTable((Path("a"),), {"text": str, "at": datetime})  # type: ignore[arg-type]
    with pytest.raises(PipelineError, match=r"its field tables is tuple\. A watcher makes the source again from text"):
        counting_pipeline(source)


def test_a_triggerer_without_the_package_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    watched_pipeline = WatchedPipeline(
        counting_pipeline(ConnectedTable(("a",), {"text": str, "at": datetime})), monkeypatch
    )
    monkeypatch.setenv("AIRFLOW_CONN_TABLES", json.dumps({"conn_type": "postgres", "host": "db"}))
    watched_pipeline.trigger.sources["source"][0] = "acme_gone.tables:Table"
    assert watched_pipeline.failure().startswith(
        "config.unwatched_source: the triggerer cannot import acme_gone.tables:Table"
    )
