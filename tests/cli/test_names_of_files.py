"""Pipelines that are run from files of their own: no command loses them, and what a command advises can be typed."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from headrace.cli.main import app
from headrace.cli.output import as_typed
from headrace.pipeline.loading.registry import REFERENCES, resolve_pipeline
from tests.cli.deployments import PIPELINE_FILE, Deployment, pane


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    folder = tmp_path / "a folder"
    folder.mkdir()
    made_deployment = Deployment(folder)
    made_deployment.commit(panes=[pane("ann", 1, 2)])
    return made_deployment


def headrace(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def test_a_pipeline_that_has_run_under_the_root_is_listed_though_it_is_not_registered(deployment: Deployment) -> None:
    listed_result = headrace("pipelines", "--root", deployment.root, "--format", "json")
    rows: dict[str, dict[str, Any]] = {row["name"]: row for row in json.loads(listed_result.stdout)}
    assert (rows["clicks"]["main"], rows["clicks"]["source"]) == (0, None)
    assert rows["aircraft_sessions"]["source"] is not None
    assert "clicks" in headrace("pipelines", "--root", deployment.root).stdout
    assert "clicks" not in headrace("pipelines").stdout, "without a root nothing is known of it"


def test_what_has_run_is_found_by_its_name_where_no_definition_is_needed(deployment: Deployment) -> None:
    snapshot = deployment.catalog.head().refs["main"]
    assert snapshot in headrace("log", "clicks", "--root", deployment.root).stdout
    assert "epoch" in headrace("show", "clicks", snapshot, "--root", deployment.root).stdout
    refused_result = headrace("log", "clocks", "--root", deployment.root)
    assert refused_result.exit_code == 10
    assert "there is no pipeline 'clocks'" in refused_result.stderr


def test_plan_advises_commands_that_can_be_typed(deployment: Deployment) -> None:
    file = Path(deployment.reference)
    file.write_text(PIPELINE_FILE.replace('FixedWindows("1h")', 'FixedWindows("2h")'))
    assert file.read_text() != PIPELINE_FILE
    result = headrace("plan", deployment.reference, "--root", deployment.root)
    assert result.exit_code == 0, result.output
    (advised_text,) = re.findall(r"`(headrace backfill [^`]*)`", result.stdout)
    _, command, reference, *_ = shlex.split(advised_text)
    assert (command, reference) == ("backfill", deployment.reference)
    assert resolve_pipeline(reference).name == "clicks"
    refused_result = headrace("run", deployment.reference, "--root", deployment.root, "--executor", "local")
    assert f"headrace backfill {shlex.quote(deployment.reference)}" in refused_result.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("`headrace plan clicks` says", "`headrace plan 'a b.py'` says"),
        ("headrace replay-late clicks --root x", "headrace replay-late 'a b.py' --root x"),
        ("headrace run clicks.py, headrace run clicks_more, clicks", None),
        ("headrace log 'clicks'", None),
    ],
)
def test_only_the_names_of_pipelines_in_commands_are_those_that_were_typed(
    text: str, message: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(REFERENCES, "clicks", "a b.py")
    assert as_typed(text) == (message or text)
