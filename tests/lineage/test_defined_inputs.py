"""What pipelines read by their definitions, before a run has read any of it: in the graph, in flight, in circles."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import headrace as hr
from headrace import col
from headrace.cli.main import app
from headrace.errors import UpstreamCycleError
from tests.process.chains import FINE

NOW = datetime(2026, 1, 2, tzinfo=UTC)
HOURLY: dict[str, Any] = {
    "key": "k",
    "what": {"s": col("s").sum()},
    "where": hr.FixedWindows("1h"),
    "when": FINE,
    "how": hr.retracting(None),
    "executor": "local",
}


def files(name: str) -> hr.Input:
    return hr.json(f"landing/{name}", {"k": str, "s": int, "at": datetime}).event_time("at", bound="20m")


def published_input(name: str) -> hr.Input:
    return hr.published(name, {"k": str, "s": int})


Q = hr.Pipeline("q", files("q"), **HOURLY)
P = hr.Pipeline("p", files("p"), union=[published_input("q").named("q")], **HOURLY)
R = hr.Pipeline("r", published_input("q"), **HOURLY)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Files of both pipelines that read some; that which reads the other has run before that one."""
    for name in "pq":
        land(tmp_path, name)
    run(tmp_path, P)
    run(tmp_path, Q)
    return tmp_path


def land(root: Path, name: str) -> None:
    folder = root / "landing" / name
    folder.mkdir(parents=True, exist_ok=True)
    number = len([*folder.iterdir()])
    (folder / f"{number}.jsonl").write_text(json.dumps({"k": "a", "s": 1, "at": f"2026-01-01T00:0{number}:00Z"}))


def open_handle(root: Path, pipeline: hr.Pipeline) -> hr.types.PipelineHandle:
    return hr.open(root.as_uri())[pipeline]


def run(root: Path, pipeline: hr.Pipeline) -> None:
    open_handle(root, pipeline).run()


def in_flight(root: Path, *definitions: hr.Pipeline) -> set[tuple[str, str]]:
    waits = hr.open(root.as_uri()).waits(definitions, now=NOW)
    assert waits.is_quiet is not any(wait.kind.is_in_flight for wait in waits.waits)
    assert waits.unlooked == () or len(definitions) < 3
    return {(wait.pipeline.name, str(wait.kind)) for wait in waits.waits if wait.kind.is_in_flight}


def lags(root: Path, *definitions: hr.Pipeline) -> dict[tuple[str, str], str]:
    lineage = hr.open(root.as_uri()).lineage(definitions)
    return {(one.reader.name, one.upstream.name): one.lag for one in lineage.readings}


def test_what_nobody_has_read_yet_is_in_flight_until_it_is_read(root: Path) -> None:
    every = (P, Q, R)
    assert in_flight(root, *every) == {("p", "published"), ("r", "published")}
    assert lags(root, *every) == {("p", "q"): "1 epoch behind", ("r", "q"): "1 epoch behind"}
    run(root, P)
    assert in_flight(root, *every) == {("r", "published")}
    run(root, R)
    assert in_flight(root, *every) == set()
    assert set(lags(root, *every).values()) == {"up to date"}


def test_without_definitions_it_is_what_snapshots_say_that_they_read(root: Path) -> None:
    assert in_flight(root) == {("p", "published")}
    assert lags(root) == {("p", "q"): "1 epoch behind"}


def test_what_a_definition_reads_no_more_is_waited_for_no_more(root: Path) -> None:
    run(root, P)
    land(root, "q")
    run(root, Q)
    pipeline_alone = hr.Pipeline("p", files("p"), **HOURLY)
    assert in_flight(root, pipeline_alone) == set()
    assert lags(root, pipeline_alone) == {}
    assert lags(root, P) == {("p", "q"): "1 epoch behind"}


def test_one_that_has_not_run_is_there_with_what_it_reads(tmp_path: Path) -> None:
    land(tmp_path, "q")
    assert lags(tmp_path, R, Q) == {("r", "q"): "nothing is published"}
    assert in_flight(tmp_path, R, Q) == {("q", "files")}, "what it reads is looked at, too"
    elsewhere = hr.Pipeline("r", hr.published("q", {"k": str, "s": int}, root="file:///other"), **HOURLY)
    assert lags(tmp_path, elsewhere, Q) == {}, "nobody knows under which root it runs"


def test_a_circle_of_definitions_is_named(root: Path) -> None:
    circle = (hr.Pipeline("x", published_input("y"), **HOURLY), hr.Pipeline("y", published_input("x"), **HOURLY))
    for look in (in_flight, lags):
        with pytest.raises(UpstreamCycleError, match=r"x reads y reads x|y reads x reads y"):
            look(root, *circle)
    run(root, P)
    turned_pipeline = hr.Pipeline("q", published_input("p"), **HOURLY)
    with pytest.raises(UpstreamCycleError, match="reads"):
        lags(root, P, turned_pipeline)
    assert lags(root, hr.Pipeline("p", files("p"), **HOURLY), turned_pipeline) == {("q", "p"): "2 epochs behind"}


FILE = """
from tests.lineage.test_defined_inputs import P, Q, R
"""


def headrace(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments])


def test_the_command_goes_by_the_registered_definitions(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = root / "pipelines"
    folder.mkdir()
    (folder / "all.py").write_text(FILE)
    monkeypatch.setenv("HEADRACE_PIPELINES", str(folder))
    stuck = headrace("lineage", "--stuck", "--root", root.as_uri(), "--format", "json")
    assert stuck.exit_code == 1
    waits = json.loads(stuck.stdout)
    assert {one["pipeline"] for one in waits["waits"] if one["kind"] == "published"} == {"p", "r"}
    assert waits["unlooked"] == []
    shown_document = json.loads(headrace("lineage", "--root", root.as_uri(), "--format", "json").stdout)
    assert {(one["reader"], one["upstream"], one["consumed"]) for one in shown_document["readings"]} == {
        ("p", "q", None),
        ("r", "q", None),
    }
