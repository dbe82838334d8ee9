"""Figures 6 and 7 of the paper on asynchronous barrier snapshots: as drawn, and as the simulator gives them."""

import json
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from headrace_snapshots.protocol.barriers import Protocol
from scripts.abs_evaluation import Run, RunMeasure, evaluate_runs, runs
from scripts.abs_figures import FOLDER, MEASURED_FILE, PAGE, PICTURES, SIMULATED_FILE, draw, main, page

MeasuredRuns = Sequence[Mapping[str, Any]]


@pytest.fixture(scope="module")
def numbers() -> dict[str, MeasuredRuns]:
    document: dict[str, MeasuredRuns] = json.loads((FOLDER / SIMULATED_FILE).read_text(encoding="utf-8"))
    return document


def overheads(runs: MeasuredRuns, base: float, protocol: str) -> list[float]:
    return [run["seconds"] / base - 1 for run in runs if run["protocol"] == protocol]


@pytest.mark.slow
def test_page_and_pictures_are_those_of_the_numbers(tmp_path: Path) -> None:
    for name in (SIMULATED_FILE, MEASURED_FILE):
        if (FOLDER / name).is_file():
            (tmp_path / name).write_bytes((FOLDER / name).read_bytes())
    draw(tmp_path)
    for name in (PAGE, *PICTURES):
        assert (tmp_path / name).read_text("utf-8") == (FOLDER / name).read_text("utf-8"), "make figures"


def test_the_page_shows_every_picture_and_every_number(numbers: dict[str, MeasuredRuns]) -> None:
    text = page(numbers, None)
    assert re.findall(r"!\[[^\]]+\]\((\w+\.svg)\)", text) == [*PICTURES]
    assert all(f"{run['seconds']:.1f} s" in text for value in numbers.values() for run in value)
    assert "`make bench-abs` does" in text


def test_what_the_engine_took_stands_beside() -> None:
    some = [
        {"epochs": 1, "seconds": 10.0, "cpu_seconds": 20.0},
        {"epochs": 4, "seconds": 11.5, "cpu_seconds": 21.0},
    ]
    engine_figures = {"rows": 1_000_000, "keys": 5, "executor": "local", "machine": {"cores": 2}, "runs": some}
    none = {"protocol": "none", "nodes": 5, "interval": 0, "seconds": 1.0, "snapshots": 0}
    text = page({"intervals": [none], "nodes": [], "more_nodes": []}, engine_figures)
    assert "1,000,000 rows of 5 keys on the executor `local`, 2 cores" in text
    assert "| 1 | 10.0 | 0.0 % | 20.0 | 0.0 % | 10.0 s |\n| 4 | 11.5 | 15.0 % | 21.0 | 5.0 % | 2.9 s |" in text


def test_synchronous_snapshots_cost_more_the_more_often_and_abs_hardly_anything(
    numbers: dict[str, MeasuredRuns],
) -> None:
    base, *intervals = numbers["intervals"]
    synchronous = overheads(intervals, base["seconds"], "synchronous")
    assert synchronous == sorted(synchronous, reverse=True)
    assert synchronous[0] > 1
    assert max(overheads(intervals, base["seconds"], "aligned")) < 0.03


def test_run_time_halves_with_twice_the_nodes(numbers: dict[str, MeasuredRuns]) -> None:
    for protocol in ("none", "aligned"):
        seconds = [run["seconds"] for run in numbers["nodes"] if run["protocol"] == protocol]
        assert [more / less for less, more in pairwise(seconds)] == pytest.approx([0.5] * 3, abs=0.02)


def test_as_much_work_for_each_node_takes_as_long_on_ten_thousand(numbers: dict[str, MeasuredRuns]) -> None:
    seconds = [run["seconds"] for run in numbers["more_nodes"]]
    assert numbers["more_nodes"][-1]["nodes"] == 10_000
    assert max(seconds) / min(seconds) < 1.05


@pytest.mark.slow
@pytest.mark.parametrize(("figure", "place"), [("intervals", -1), ("nodes", -1), ("more_nodes", 1)])
def test_the_simulator_gives_the_committed_numbers(figure: str, place: int, numbers: dict[str, MeasuredRuns]) -> None:
    assert RunMeasure.from_run(runs()[figure][place]).to_json() == numbers[figure][place], "make figures"


@pytest.mark.slow
def test_runs_are_measured_in_their_order() -> None:
    small = [Run(nodes, Protocol.SYNCHRONOUS, 1, 2_000_000) for nodes in (2, 1)]
    measurements = [measure for _, measure in evaluate_runs({"some": small}, 2)]
    assert [(each.nodes, each.protocol, each.interval) for each in measurements] == [
        (2, "synchronous", 1),
        (1, "synchronous", 1),
    ]
    assert all(each.snapshots for each in measurements)


@pytest.mark.slow
def test_the_command_draws_what_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / SIMULATED_FILE).write_bytes((FOLDER / SIMULATED_FILE).read_bytes())
    main(["--draw-only", "--out", str(tmp_path)])
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([SIMULATED_FILE, PAGE, *PICTURES])
    assert "3 figures" in capsys.readouterr().out
