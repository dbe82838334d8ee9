"""How late the elements of a run were, as ``headrace plot`` tells it."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from click.testing import CliRunner

from headrace.cli.main import app
from headrace.pipeline.loading.registry import resolve
from headrace.runs.options import RunOptions
from tests.airflow.subprocesses import write_pipeline
from tests.process.executors import Executed

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_one_straggler_does_not_decide_the_quantiles(executor: Executed, tmp_path: Path) -> None:
    """Of a hundred elements behind the newest one, 99 lay a minute behind it and one an hour."""
    reference = str(write_pipeline(tmp_path, "clicks"))
    times = [[NOON], [NOON - timedelta(minutes=1)] * 99 + [NOON - timedelta(hours=1)]]
    landing = tmp_path / "landing" / "clicks"
    landing.mkdir(parents=True)
    for number, epoch in enumerate(times):
        lines = [json.dumps({"user": "u", "at": time.isoformat()}) for time in epoch]
        (landing / f"{number}.json").write_text("\n".join(lines))
    executor.process(resolve(reference), tmp_path.as_uri(), RunOptions("run", files_per_epoch=1))
    told = CliRunner().invoke(app, ["plot", reference, "--root", tmp_path.as_uri(), "--format", "json"])
    assert told.exit_code == 0, told.output
    behind = json.loads(told.stdout)["lateness_seconds"]["behind"]
    assert behind["100%"] == 3600
    assert behind["90%"] == 60
