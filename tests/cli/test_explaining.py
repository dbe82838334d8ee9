"""Commands that help to understand a pipeline's snapshots."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from headrace.cli.commands import app
from tests.cli.deployments import Deployment, pane


@pytest.fixture
def written(tmp_path: Path) -> Deployment:
    found = Deployment(tmp_path)
    found.commit(panes=[pane("ann", 1, 2)])
    found.commit(panes=[pane("bob", 1, 3)])
    return found


def headrace(deployment: Deployment, command: str, *arguments: str) -> Result:
    return CliRunner().invoke(app, [command, deployment.reference, *arguments, "--root", deployment.root])


def test_log_draws_the_snapshots(written: Deployment) -> None:
    head, parent = written.head.snapshot_id, written.head.parent  # type: ignore[union-attr]
    told = headrace(written, "log", "--graph")
    assert told.exit_code == 0, told.output
    first, second = told.stdout.splitlines()
    assert first.startswith(f"* {head} (main) 20")
    assert first.endswith("epoch 1 on main")
    assert second.startswith(f"* {parent} 20")
    as_json = json.loads(headrace(written, "log", "--graph", "--format", "json").stdout)
    assert as_json["edges"] == [[head, parent]]
    assert (
        len(json.loads(headrace(written, "log", "--graph", "--limit", "1", "--format", "json").stdout)["snapshots"])
        == 1
    )
