"""``headrace simulate``: the last line, JSON, the exit code."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.cli.main import app
from headrace_lab.commands.simulate import SimulationOptionError

EXIT_DONE, FAILED_CASES = 0, 1


@pytest.mark.parametrize("protocol", ["aligned", "unaligned", "chandy-lamport", "synchronous", "at-least-once"])
def test_the_last_line_sums_up(protocol: str) -> None:
    result = CliRunner().invoke(app, ["simulate", "--tasks", "12", "--protocol", protocol, "--task-losses", "1"])
    assert result.exit_code == EXIT_DONE, result.output
    last = result.stdout.splitlines()[-1]
    assert last.startswith(f"{protocol}, 12 tasks, seed 0: ")
    assert last.endswith("1 restores; all properties hold")


def test_what_is_lost_of_what_tasks_and_coordinator_say_is_sent_again() -> None:
    result = CliRunner().invoke(app, ["simulate", "--tasks", "40", "--lost-messages", "0.1", "--format", "json"])
    assert result.exit_code == EXIT_DONE, result.output
    totals = json.loads(result.stdout)["totals"]
    assert totals["resent"] > totals["complete"] >= 3


def test_a_property_that_fails_is_named_and_gives_exit_code_one() -> None:
    result = CliRunner().invoke(app, ["simulate", "--tasks", "12", "--records", "60", "--without", "fifo"])
    assert result.exit_code == FAILED_CASES
    assert "FAILED: feasibility" in result.stdout.splitlines()[-1]


def test_json_of_a_graph_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "graph.json"
    file.write_text('{"tasks": ["in", "a", "b"], "channels": [["in", "a"], ["a", "b"], ["b", "a"]]}')
    result = CliRunner().invoke(app, ["simulate", "--graph", str(file), "--seed", "3", "--format", "json"])
    document = json.loads(result.stdout)
    assert result.exit_code == EXIT_DONE
    assert document["holds"] is True
    assert (document["totals"]["tasks"], document["totals"]["back_edges"]) == (3, 1)
    assert [each["name"] for each in document["properties"]][:2] == ["termination", "feasibility"]


@pytest.mark.parametrize("kind", ["termination", "deadlock", "token-loss"])
def test_a_stable_property_is_detected(kind: str) -> None:
    arguments = ["simulate", "--detect", kind, "--tasks", "12", "--seed", "7"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == EXIT_DONE, result.output
    last = result.stdout.splitlines()[-1]
    assert last.startswith(f"{kind}, 12 processes, seed 7: detected by ")
    assert last.endswith("at last of 12 processes; all properties hold")
    document = json.loads(CliRunner().invoke(app, [*arguments, "--format", "json"]).stdout)
    assert (document["detected"][-1], document["totals"]["processes"], document["holds"]) == (12, 12, True)


def test_detection_needs_channels_that_are_first_in_first_out() -> None:
    arguments = ["--detect", "token-loss", "--tasks", "9", "--without", "fifo"]
    result = CliRunner().invoke(app, ["simulate", *arguments])
    assert result.exit_code == FAILED_CASES
    assert "FAILED: reachability, stability" in result.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    "other", [["--protocol", "aligned"], ["--task-losses", "1"], ["--without", "back-edges"], ["--detect", "deadlocks"]]
)
def test_options_that_do_not_go_together_are_an_error(other: list[str]) -> None:
    result = CliRunner().invoke(app, ["simulate", "--detect", "deadlock", *other])
    assert result.exit_code not in {EXIT_DONE, FAILED_CASES}
    assert SimulationOptionError.code in result.output
    assert "--detect" in result.output
