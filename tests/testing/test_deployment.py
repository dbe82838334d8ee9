"""The fixture ``deployment``: land, run, read, as in earnest."""

import subprocess
import sys
from pathlib import Path

import pytest

import headrace as hr
from headrace.testing import TemporaryDeployment, UnitTestError
from headrace.testing.plugin import deployment  # noqa: F401 (a fixture; the plugin brings it where Headrace is installed)
from tests.testing.pipelines import SCHEMA, delays, flight


@pytest.mark.slow
def test_a_pipeline_runs_over_what_landed_and_goes_on(deployment: TemporaryDeployment) -> None:  # noqa: F811
    pipeline = delays()
    (first,) = deployment.land(pipeline, flight("13:05", 5), flight("13:10", 9))
    result = deployment.run(pipeline, at="13:15")
    assert result.status == "succeeded"
    assert result.executor.name == "local"
    assert [(row["flights"], row["worst"]) for row in deployment.read(pipeline)] == [(2, 9)]
    (second,) = deployment.land(pipeline, flight("13:20", 30), '{"origin": null, "at": "1970-01-01T13:00:00Z"}')
    assert first < second
    deployment.run(pipeline, at="13:30")
    assert [(row["flights"], row["worst"]) for row in deployment.read(pipeline)] == [(3, 30)]
    assert [row["is_retraction"] for row in deployment.read(pipeline, view="panes")] == [False, True, False]
    assert [row["reason"] for row in deployment.read(pipeline, view="rejected")] == ["key is null: origin"]
    assert deployment.root.startswith("file://")


def test_files_land_as_they_are(deployment: TemporaryDeployment, tmp_path: Path) -> None:  # noqa: F811
    pipeline = delays(input=hr.csv("landing/flights", SCHEMA).event_time("at", bound="1h"))
    file = tmp_path / "flights.csv"
    file.write_text("at,origin,delay\n1970-01-01T13:05:00Z,LGA,7\n")
    deployment.land(pipeline, file, {"origin": "JFK", "at": "13:05", "delay": 1})
    deployment.run(pipeline, at="14:00", batch=True)
    assert [(row["origin"], row["worst"]) for row in deployment.read(pipeline)] == [("JFK", 1), ("LGA", 7)]


@pytest.mark.slow
def test_signals_reach_a_run(deployment: TemporaryDeployment) -> None:  # noqa: F811
    pipeline = delays(when=hr.AfterWatermark(early=hr.AfterSignal("go"), late=hr.AfterCount(1)))
    deployment.land(pipeline, flight("13:05"))
    deployment.run(pipeline, at="13:15")
    assert not deployment.read(pipeline)
    assert deployment.read(pipeline, at="main", columns=["flights"]) == []
    deployment.run(pipeline, at="13:16", signals=["go"])
    assert len(deployment.read(pipeline)) == 1


def test_what_cannot_land_says_why(deployment: TemporaryDeployment, tmp_path: Path) -> None:  # noqa: F811
    with pytest.raises(UnitTestError, match=r"land\(of='weather'\): pipeline delays has the inputs source"):
        deployment.land(delays(), {}, of="weather")
    with pytest.raises(UnitTestError, match="there is no file"):
        deployment.land(delays(), tmp_path / "none.json")
    elsewhere = delays(input=hr.json("s3://bucket/flights", SCHEMA).event_time("at", bound="1h"))
    with pytest.raises(UnitTestError, match="not below the root of a deployment"):
        deployment.land(elsewhere, {})


@pytest.mark.slow
def test_the_plugin_costs_nothing_until_it_is_used() -> None:
    mine = "m for m in sys.modules if m.startswith(('headrace', 'pyarrow', 'click'))"
    code = f"import sys, headrace.testing.plugin; print(*sorted({mine}))"
    loaded_parts = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    tables = ["headrace.built_in", "headrace.own_parts"]  # which import nothing
    assert loaded_parts == ["headrace", *tables, "headrace.testing", "headrace.testing.plugin"]
