"""What people see of outputs: in results, summaries, commands and plans; most of all of one that is parked."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import headrace as hr
from headrace import col
from headrace.cli.main import app
from headrace.runs.reporting import results
from headrace.runs.reporting.summary import PipelineState, read_summary
from headrace_snapshots.format.output_view import UnknownOutputError
from headrace_snapshots.store import open_store
from tests.process.clicks import land
from tests.process.fragile import breaking, land_with_ids
from tests.process.outputs import DAILY, HOURLY, SHOP, VISITS

FIRST, FILES = 5, 8
"""The epoch in which the output fails, and how many files there are."""


def show_output(root: Path, *arguments: str) -> str:
    result = CliRunner().invoke(app, [*arguments, "--root", root.as_uri()])
    assert result.exit_code == 0, result.stderr
    return result.stdout


def row(output: str, name: str) -> list[str]:
    (line,) = (line for line in output.splitlines() if line.strip("│ ").split()[:1] == [name])
    return [cell.strip() for cell in line.strip("│").split("│")]


def test_a_parked_output_is_told_everywhere(tmp_path: Path) -> None:
    shop, mended_path = breaking(tmp_path / "mended"), tmp_path / "mended"
    land_with_ids(tmp_path, 0, 3)
    handle = hr.open(tmp_path.as_uri(), create=True)[shop]
    assert handle.run(publish=True).parked == {}
    summary = read_summary(open_store(tmp_path.as_uri()), "shop")
    assert summary is not None
    assert (summary.state, summary.worst_output, "worst_output" in summary.to_json()) == ("published", None, False)
    assert "parked" not in show_output(tmp_path, "pipelines")

    land_with_ids(tmp_path, 3, FILES)
    result = handle.run(publish=True)
    assert {*result.parked} == {"visits"}
    assert (result.parked["visits"].since, result.parked["visits"].code) == (FIRST, "config.pipeline")
    assert results.from_json(results.to_json(result)).parked == result.parked
    positions = handle.output_positions()
    assert {name: (one.published_epoch, one.unpublished) for name, one in positions.items()} == {
        "hourly": (7, 0), "visits": (2, 5), "daily": (7, 0)
    }  # fmt: skip
    assert positions["visits"].parked == result.parked["visits"]

    summary = read_summary(open_store(tmp_path.as_uri()), "shop")
    assert summary is not None
    assert summary.state is PipelineState.PARKED
    assert summary.to_json()["worst_output"] == "visits"
    assert {line.name: line.parked for line in summary.outputs} == {
        "hourly": None, "visits": result.parked["visits"], "daily": None
    }  # fmt: skip

    why = f"since epoch {FIRST}: "
    name, _, _, main, published_epoch, watermark, parked_text = row(show_output(tmp_path, "pipelines"), "shop.visits")
    assert (name, main, published_epoch, watermark) == ("shop.visits", "7", "2", "-")
    assert parked_text.startswith(why)
    listed_pipelines = {one["name"]: one for one in json.loads(show_output(tmp_path, "pipelines", "--format", "json"))}[
        "shop"
    ]
    assert {one["name"]: one["published_epoch"] for one in listed_pipelines["outputs"]} == {
        "hourly": 7,
        "visits": 2,
        "daily": 7,
    }
    of_main = show_output(tmp_path, "show", "shop", "main")
    assert row(of_main, "visits")[1::2] == ["4", "2", row(of_main, "visits")[5]]
    assert row(of_main, "visits")[5].startswith(why)
    assert row(of_main, "hourly")[1] == "7"
    snapshot_before = next(m.snapshot_id for m in handle.catalog.ancestry(str(result.snapshot)) if m.epoch == FIRST - 1)
    assert row(show_output(tmp_path, "show", "shop", snapshot_before), "visits")[5] == "-"
    log_cells = row(show_output(tmp_path, "log", "shop"), "visits")
    assert log_cells[1:3] == ["2", "5"]
    assert log_cells[3].startswith(why)

    mended_path.touch()
    assert handle.run(publish=True).parked == {}
    summary = read_summary(open_store(tmp_path.as_uri()), "shop")
    assert summary is not None
    assert summary.state is PipelineState.PUBLISHED


def test_a_plan_names_the_output_and_says_what_becomes_of_it(tmp_path: Path) -> None:
    land(tmp_path, 0, 1)
    two = replace(SHOP, outputs={"hourly": HOURLY, "visits": VISITS})
    hr.open(tmp_path.as_uri(), create=True)[two].run()
    reader = hr.open(tmp_path.as_uri())["shop"]
    renamed_output = replace(HOURLY, formerly="hourly")
    other = {"by_hour": renamed_output, "visits": replace(VISITS, filter=col("price") > 4), "daily": DAILY}
    plans = reader.plans(replace(SHOP, outputs=other))
    first, run = next(iter(plans["visits"].lines())), plans["visits"].run
    assert first.startswith("output visits of shop as it is written now, against snapshot ")
    assert run.startswith("headrace run parks output visits on main")
    assert "the other outputs go on" in run
    assert "headrace backfill shop.visits --promote" in run
    assert plans["by_hour"].run == "headrace run continues output by_hour from this snapshot"
    assert "(epoch 0), which lacks it" in next(iter(plans["daily"].lines()))
    assert "of all that was read before" in plans["daily"].run
    assert str(reader["visits"].plan(two)).startswith("output visits of shop")


def test_where_outputs_have_names_each_has_a_plan(tmp_path: Path) -> None:
    land(tmp_path, 0, 1)
    two = replace(SHOP, outputs={"hourly": HOURLY, "visits": VISITS})
    handle = hr.open(tmp_path.as_uri(), create=True)[two]
    handle.run()
    words = r"a plan for each of its outputs hourly, visits: plans\(\) gives them all"
    with pytest.raises(UnknownOutputError, match=words):
        handle.plan()
    assert handle.plans() == {name: handle[name].plan() for name in two.outputs}
