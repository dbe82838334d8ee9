"""expire and fsck on a command line, over real runs of the executor local."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from headrace.cli.main import app
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.holds import ReaderHold, drop_holds
from headrace_snapshots.store import open_store
from tests.cli.deployments import PIPELINE_FILE

RUNS = 5


class Live:
    """A pipeline whose input lands file by file."""

    def __init__(self, folder: Path) -> None:
        self.reference = str(folder / "clicks.py")
        Path(self.reference).write_text(PIPELINE_FILE)
        self.folder = folder / "root"
        self.root = self.folder.as_uri()
        self.catalog = Catalog(open_store(self.root), "clicks")

    def land_and_run(self, number: int) -> None:
        """An hour's click, one that comes a week late, and a line that is none."""
        landing = self.folder / "landing" / "clicks"
        landing.mkdir(parents=True, exist_ok=True)
        late = {"user": "ann", "at": "2025-12-20T00:00:00Z", "amount": number}
        row = {"user": "ann", "at": f"2026-01-01T{number:02}:00:00Z", "amount": number}
        (landing / f"{number:03}.jsonl").write_text(f"{json.dumps(row)}\n{json.dumps(late)}\nnothing\n")
        assert self.headrace("run", "--executor", "local").exit_code == 0

    def headrace(self, command: str, *arguments: str) -> Result:
        return CliRunner().invoke(app, [command, self.reference, *arguments, "--root", self.root])

    def run_json(self, command: str, *arguments: str) -> Any:
        result = self.headrace(command, *arguments, "--format", "json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def files(self) -> set[str]:
        return {str(path.relative_to(self.folder)) for path in (self.folder / "clicks").rglob("*") if path.is_file()}

    def read(self, *arguments: str) -> Any:
        return self.run_json("read", *arguments)


@pytest.fixture(scope="module")
def live_after_runs(tmp_path_factory: pytest.TempPathFactory) -> Live:
    """Some runs, each of which published."""
    deployment = Live(tmp_path_factory.mktemp("upkeep"))
    for number in range(RUNS):
        deployment.land_and_run(number)
    return deployment


@pytest.mark.slow
def test_from_runs_to_nothing_that_is_not_needed(live_after_runs: Live) -> None:
    live = live_after_runs
    ids = [manifest.snapshot_id for manifest in live.catalog.ancestry(live.catalog.head().refs["main"])][::-1]
    assert live.headrace("tag", "first", ids[0]).exit_code == 0
    (live.folder / "clicks" / "data" / "00000003-0123456789abcdef").mkdir()
    (live.folder / "clicks" / "data" / "00000003-0123456789abcdef" / "panes.parquet").write_bytes(b"?")
    views = {ref: live.read("--view", "panes", "--at", ref) for ref in (ids[0], ids[-1], ids[-2])}
    files_before = live.files()

    dry = live.run_json("expire", "--keep-last", "2", "--dry-run")
    assert live.files() == files_before
    assert dry["dry_run"]
    assert dry["marked"]["kinds"]["manifests"]["objects"] == RUNS - 3
    assert dry["marked"]["bytes"] == sum(kind["bytes"] for kind in dry["marked"]["kinds"].values())
    expiry = live.run_json("expire", "--keep-last", "2")
    assert expiry["marked"] == dry["marked"]
    one = {"objects": 1, "bytes": 1}
    assert expiry["waiting"] == {**one, "kinds": {"data": one}}
    assert files_before <= live.files(), "nothing is deleted at first"

    result = live.headrace("tag", "too-late", ids[1])
    assert result.exit_code == 10
    assert "has expired" in result.output
    swept = live.run_json("expire", "--keep-last", "2")
    assert swept["swept"] == expiry["marked"]
    assert {path for path in files_before if any(each in path for each in ids[1:3]) and "/runs/" not in path}, (
        "there were"
    )
    gone_paths = {path for path in live.files() if "/manifests/" in path and any(each in path for each in ids[1:3])}
    assert not gone_paths
    assert {ref: live.read("--view", "panes", "--at", ref) for ref in views} == views, "who is kept reads what it read"
    assert live.headrace("rollback", "--to", ids[1]).exit_code == 40

    live.land_and_run(RUNS)  # another run has the branch: what was killed is certainly dead
    live.land_and_run(RUNS + 1)
    live.run_json("expire", "--keep-last", "2")
    live.run_json("expire", "--keep-last", "2")
    assert not (live.folder / "clicks" / "data" / "00000003-0123456789abcdef").exists(), "nor the folder"
    epochs = {row["epoch"] for row in live.read("--view", "panes")}
    assert epochs >= {RUNS, RUNS + 1}
    assert sum(row["clicks"] for row in live.read()) == RUNS + 3, (
        "current has all of it, the first late click too, which nothing was ahead of"
    )
    report = live.run_json("fsck", "--deep")
    assert report["problems"] == []
    assert report["unknown"] == []

    result_back = live.headrace("rollback", "--to", "first")
    assert result_back.exit_code == 0, result_back.output
    assert live.headrace("run", "--executor", "local").exit_code == 0
    assert sum(row["clicks"] for row in live.read()) == RUNS + 3, "all input is read again"
    replay = live.headrace("run", "--mode", "replay", "--branch", "again", "--executor", "local")
    assert replay.exit_code == 0, replay.output


@pytest.mark.slow
def test_a_replay_of_what_has_expired_is_refused(tmp_path: Path) -> None:
    live = Live(tmp_path)
    for number in range(3):
        live.land_and_run(number)
    for _ in range(2):
        live.run_json("expire", "--keep-last", "1")
    result = live.headrace("run", "--mode", "replay", "--branch", "again", "--executor", "local")
    assert result.exit_code == 10
    assert "2 of the epochs" in result.output
    assert live.headrace("backfill", "--executor", "local").exit_code == 0


def test_what_is_damaged_has_an_exit_code(tmp_path: Path) -> None:
    live = Live(tmp_path)
    live.land_and_run(0)
    path = next((live.folder / "clicks" / "data").rglob("*.parquet"))
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert live.headrace("fsck").exit_code == 0, "lengths are as they were"
    said_result = live.headrace("fsck", "--deep")
    assert said_result.exit_code == 40
    assert path.name in said_result.output
    assert "rollback clicks" in said_result.output or "no snapshot of main is whole" in said_result.output
    path.write_bytes(data)
    audit = next((live.folder / "clicks" / "audits").rglob("result.json"))
    audit.unlink()
    document = json.loads(live.headrace("fsck", "--format", "json").stdout)
    assert [problem["path"] for problem in document["problems"]] == [str(audit.relative_to(live.folder))]
    result = next((live.folder / "clicks" / "runs").iterdir())
    result.write_text(result.read_text().replace("process", "prozess"))
    assert result.name in live.headrace("fsck").output


@pytest.mark.parametrize(
    "words", [("--keep-last", "0"), ("--keep-for", "long"), ("--keep-for", "30"), ("--keep-for", "-1d")]
)
def test_a_rule_that_keeps_nothing_is_refused(live_after_runs: Live, words: tuple[str, str]) -> None:
    files_before = live_after_runs.files()
    assert live_after_runs.headrace("expire", *words).exit_code in {2, 10}
    assert live_after_runs.files() == files_before


def test_an_expiry_says_why_it_keeps_what_for_readers(live_after_runs: Live) -> None:
    line = [
        manifest.snapshot_id
        for manifest in live_after_runs.catalog.ancestry(live_after_runs.catalog.head().refs["main"])
    ]
    readers = {"daily": line[1::-1], "weekly": line[1:2]}
    for reader, snapshots in readers.items():
        ReaderHold("file:///elsewhere", reader, "source", "", tuple(snapshots)).put(
            live_after_runs.catalog.store, "clicks"
        )
    printed_output = live_after_runs.headrace("expire", "--keep-last", "1", "--dry-run").output
    text = " ".join(printed_output.replace("│", " ").split())
    assert "readers that are behind weekly.source (1 snapshot to read, the first of 20" in text
    assert "what readers keep daily.source: snapshots of these were computed from it" in text
    assert text.count("headrace drop") == 1
    for reader in readers:
        drop_holds(live_after_runs.catalog.store, "clicks", reader)
    assert "readers" not in live_after_runs.headrace("expire", "--keep-last", "1", "--dry-run").output
