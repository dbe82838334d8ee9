"""What a run tells people: a line for each epoch, and at the end where to look for what it dropped."""

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.cli.main import app
from headrace.model.time import parse_instant
from headrace.runs.reporting.listener import LineListener, Where, epoch_line, result_lines
from headrace.runs.reporting.results import RunResult, from_json
from headrace.sources.progress import PipelineProgress
from tests.cli.deployments import Deployment
from tests.manifests import new_manifest
from tests.stored_progress import progress_fields

WHERE = Where("my clicks.py", "file:///deployments/a b")
EPOCH = new_manifest(
    snapshot_id="6b0f730a198345c5",
    pipeline="clicks",
    fingerprint={},
    branch="main",
    epoch=7,
    parent=None,
    generation=1,
    created_at="2026-01-05T00:00:00Z",
    progress=progress_fields(PipelineProgress(watermark=parse_instant("2026-01-04T18:39:00Z"))),
    tables={},
    logs={},
    counts={
        "input_files": 2, "records": 1204, "accepted": 1190, "rejected": 1, "filtered": 9, "late_dropped": 4,
        "rejected_panes": 0, "duplicates": 0, "panes": 310, "retractions": 7,
    },
    timings={"read_seconds": 1.25, "fire_seconds": 0.5, "write_seconds": 2.0},
    requests={},
)  # fmt: skip
RESULT = RunResult(
    "r1", "clicks", "process", "succeeded", "2026-01-05T00:00:00Z", "2026-01-05T00:01:00Z",
    epochs=(6, 7), snapshot=EPOCH.snapshot_id, epoch=7, published=EPOCH.snapshot_id,
    counts={"records": 2000, "input_files": 3, "panes": 400}, watermark="2026-01-04T18:39:00Z",
)  # fmt: skip


def test_an_epoch_tells_rows_panes_drops_watermark_and_seconds() -> None:
    reported_lines: list[str] = []
    listener = LineListener(reported_lines.append)
    listener.planned(1200)
    listener.committed(EPOCH)
    listener.warned("a clock is ahead")
    assert reported_lines == [
        "1,200 new files",
        "epoch 7: 1,204 records of 2 files, 310 panes, 7 retractions, 4 late, 1 rejected, 9 filtered, "
        "watermark 2026-01-04T18:39:00Z, 3.8 s, snapshot 6b0f730a198345c5",
        "warning: a clock is ahead",
    ]
    assert reported_lines[1] == epoch_line(EPOCH)


def test_an_ending_says_what_readers_see() -> None:
    assert list(result_lines(RESULT, WHERE)) == [
        "2 epochs: 2,000 records of 3 files, 400 panes, 0 retractions, 0 late, 0 rejected",
        "branch main: snapshot 6b0f730a198345c5 (epoch 7), watermark 2026-01-04T18:39:00Z",
        "published: snapshot 6b0f730a198345c5, all of branch main",
    ]
    unpublished_lines = list(result_lines(replace(RESULT, published=None, branch="trial"), WHERE))
    assert unpublished_lines[1].startswith("branch trial: snapshot 6b0f730a198345c5")
    assert unpublished_lines[2] == "published: nothing yet"
    older = list(result_lines(replace(RESULT, published="5d8f73"), WHERE))
    assert older[2] == "published: snapshot 5d8f73, not what branch main has"


def test_a_run_that_found_nothing_says_so() -> None:
    nothing = replace(RESULT, epochs=(), counts={}, snapshot=None, epoch=None, published=None, watermark=None)
    assert list(result_lines(nothing, WHERE)) == [
        "0 epochs: there was nothing new to process",
        "branch main has no snapshot yet",
        "published: nothing yet",
    ]


@pytest.mark.parametrize(
    ("counts", "view"),
    [({"late_dropped": 4}, "late"), ({"rejected": 3, "rejected_panes": 1}, "rejected")],
)
def test_dropped_rows_are_announced_with_the_command_that_shows_them(counts: dict[str, int], view: str) -> None:
    result = replace(RESULT, counts={**RESULT.counts, **counts})
    (line,) = [line for line in result_lines(result, WHERE) if f"--view {view}" in line]
    assert line.startswith("4 records ")
    assert shlex.split(line.partition(": ")[2]) == [
        "headrace", "read", WHERE.reference, "--root", WHERE.root, "--view", view, "--where", "epoch between 6 and 7",
    ]  # fmt: skip
    (elsewhere,) = [line for line in result_lines(replace(result, published=None), WHERE) if f"--view {view}" in line]
    assert "--at main" in elsewhere


def test_warnings_come_last() -> None:
    result = replace(RESULT, counts={**RESULT.counts, "rejected": 1}, warnings=("a clock is ahead", "much came late"))
    assert list(result_lines(result, WHERE))[-2:] == ["warning: a clock is ahead", "warning: much came late"]


@pytest.mark.slow
def test_the_command_line_tells_the_same(tmp_path: Path) -> None:
    """What is stored of a run is told as the lines above: on stderr meanwhile, on stdout at the end."""
    deployment = Deployment(tmp_path)
    landing = tmp_path / "root" / "landing" / "clicks"
    landing.mkdir(parents=True)
    for number in range(2):
        row = {"user": "ann", "at": f"2026-01-01T0{number}:00:00Z", "amount": 1}
        (landing / f"{number}.jsonl").write_text(f"{json.dumps(row)}\nno record\n")
    arguments = ["run", deployment.reference, "--root", deployment.root, "--executor", "local"]
    outcome = CliRunner().invoke(app, [*arguments, "--files-per-epoch", "1"])
    assert outcome.exit_code == 0, outcome.output
    manifests = [*deployment.catalog.ancestry(deployment.catalog.head().refs["main"])][::-1]
    assert outcome.stderr.splitlines() == ["2 new files", *map(epoch_line, manifests)]
    (info,) = deployment.store.list("clicks/runs/")
    result = from_json(deployment.store.read(info.path))
    assert outcome.stdout.splitlines() == list(result_lines(result, Where(deployment.reference, deployment.root)))
    assert len(manifests) == len(result.epochs) == 2
