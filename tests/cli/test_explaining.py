"""Commands that help to understand a pipeline's snapshots."""

import json
import runpy
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headrace.cli.main import app
from headrace.testing.deployment import TemporaryDeployment as Live
from tests.cli.deployments import PIPELINE_FILE, Deployment, pane


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    made_deployment = Deployment(tmp_path)
    made_deployment.commit(panes=[pane("ann", 1, 2)])
    made_deployment.commit(panes=[pane("bob", 1, 3)])
    return made_deployment


def headrace(deployment: Deployment, command: str, *arguments: str) -> Result:
    return CliRunner().invoke(app, [command, deployment.reference, *arguments, "--root", deployment.root])


def test_log_draws_the_snapshots(deployment: Deployment) -> None:
    head, parent = deployment.head.snapshot_id, deployment.head.parent  # type: ignore[union-attr]
    result = headrace(deployment, "log", "--graph")
    assert result.exit_code == 0, result.output
    first, second = result.stdout.splitlines()
    assert first.startswith(f"* {head} (main) 20")
    assert first.endswith("epoch 1 on main")
    assert second.startswith(f"* {parent} 20")
    as_json = json.loads(headrace(deployment, "log", "--graph", "--format", "json").stdout)
    assert as_json["edges"] == [[head, parent]]
    assert (
        len(json.loads(headrace(deployment, "log", "--graph", "--limit", "1", "--format", "json").stdout)["snapshots"])
        == 1
    )


@pytest.fixture
def live(tmp_path: Path) -> Live:
    """A click at 10:10 that fired early, and one of each of two users at 12:05; main ends after them."""
    (tmp_path / "clicks.py").write_text(PIPELINE_FILE)
    deployment, clicks = Live(tmp_path / "root"), runpy.run_path(str(tmp_path / "clicks.py"))["clicks"]
    for records in ([("ann", "10:10")], [("ann", "12:05"), ("bob", "12:05")]):
        deployment.land(
            clicks, *({"user": user, "at": f"2026-03-01T{time}:00Z", "amount": 1} for user, time in records)
        )
        deployment.run(clicks, at="2026-03-01T13:00:00Z")
    return deployment


def run_command(live: Live, command: str, *arguments: str) -> Result:
    reference = str(live.folder.parent / "clicks.py")
    return CliRunner().invoke(app, [command, reference, *arguments, "--root", live.root], env={"COLUMNS": "10000"})


@pytest.mark.slow
def test_read_shows_the_state_of_open_windows_and_says_what_it_is(live: Live) -> None:
    result = run_command(live, "read", "--view", "state", "--where", "\"user\" = 'bob'")
    assert result.exit_code == 0, result.output
    assert "early: 1 more element (0 of 1 so far)" in result.stdout
    assert "None of it is a result" in result.stderr
    rows = json.loads(run_command(live, "read", "--view", "state", "--format", "json").stdout)
    assert [(row["user"], row["window_start"], row["_panes"]) for row in rows] == [
        ("ann", "2026-03-01T10:00:00Z", 2),
        ("ann", "2026-03-01T12:00:00Z", 1),
        ("bob", "2026-03-01T12:00:00Z", 1),
    ]
    assert run_command(live, "read", "--view", "state", "--stage", "2").exit_code == 10
    assert run_command(live, "read", "--stage", "1").exit_code == 10
    assert "engine's own" in run_command(live, "files", "--view", "state").stderr


@pytest.mark.slow
def test_explain_says_what_a_window_waits_for(live: Live) -> None:
    result = run_command(live, "explain", "--key", "bob", "--window", "2026-03-01T12:00:00Z")
    assert result.exit_code == 0, result.output
    assert "window [2026-03-01T12:00:00Z, 2026-03-01T13:00:00Z): open, has fired 1 pane" in result.stdout
    assert (
        "waits for the watermark to pass 2026-03-01T13:00:00Z (it stands at 2026-03-01T11:55:00Z, held" in result.stdout
    )
    (window,) = json.loads(run_command(live, "explain", "--key", "bob", "--format", "json").stdout)["windows"]
    assert window["waits_for"].startswith("early: 1 more element (0 of 1 so far); or on time: the watermark to pass")
    assert window["so_far"] == {"clicks": 1, "amount": 1}
    assert [part["part"] for part in window["trigger"]["parts"]] == ["early", "on time", "late"]
    assert [pane["epoch"] for pane in window["last_panes"]] == [1]
    assert (
        run_command(live, "explain", "--key", "bob", "--at", "published").stdout
        == run_command(live, "explain", "--key", "bob", "--at", "main").stdout
    )


def test_plan_says_what_a_run_would_do_and_does_nothing(live: Live) -> None:
    kept_result = run_command(live, "plan")
    assert kept_result.exit_code == 0, kept_result.output
    assert kept_result.stdout.splitlines()[1:] == ["aggregation 1: keep", "headrace run continues from this snapshot"]
    stages = run_command(live, "run", "--dry-run").stdout.splitlines()
    assert stages
    assert run_command(live, "plan", "--stages").stdout.splitlines() == [*kept_result.stdout.splitlines(), *stages]
    with_run = json.loads(run_command(live, "plan", "--stages", "--format", "json").stdout)
    assert with_run["action"] == "keep"
    assert [stage["does"] for stage in with_run["run"]["stages"]] == stages
    assert run_command(live, "plan", "--stages", "--at", "published").exit_code == 2
    file = live.folder.parent / "clicks.py"
    file.write_text(PIPELINE_FILE.replace("hr.AfterCount(1), late", "hr.AfterCount(2), late"))
    files = sorted(path for path in live.folder.rglob("*") if path.is_file())
    lines = run_command(live, "plan").stdout.splitlines()
    assert lines[1:3] == [
        "  aggregation 1: when (trigger) has changed",
        "aggregation 1: replay (when (trigger) has changed)",
    ]
    assert lines[3].startswith(f"headrace run refuses (config.changed_pipeline). `headrace backfill {file} --promote`")
    document = json.loads(run_command(live, "plan", "--format", "json").stdout)
    assert (document["action"], document["epoch"]) == ("replay", 1)
    assert document["changes"] == [{"part": "when (trigger)", "change": "has changed", "stage": 1, "action": "replay"}]
    assert files == sorted(path for path in live.folder.rglob("*") if path.is_file())
    for command in (("run", "--executor", "local"), ("plan", "--stages")):
        refused_result = run_command(live, *command)
        assert refused_result.exit_code == 10
        assert "when (trigger) has changed (aggregation 1)" in refused_result.stderr
