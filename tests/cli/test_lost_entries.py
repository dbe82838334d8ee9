"""The last entry of the log is lost, after each command: whoever comes next is told, and gets no older answers."""

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import headrace as hr
from tests.cli.test_upkeep import Live

pytestmark = pytest.mark.slow


@pytest.fixture
def live(tmp_path: Path) -> Live:
    deployment = Live(tmp_path)
    deployment.land_and_run(0)
    deployment.land_and_run(1)
    return deployment


def first(live: Live) -> str:
    return [manifest.snapshot_id for manifest in live.catalog.ancestry(live.catalog.head().refs["main"])][-1]


def entry(live: Live, number: int) -> Path:
    return live.folder / f"clicks/log/{number:020}.json"


COMMANDS: dict[str, Callable[[Live], list[str]]] = {
    "run": lambda live: ["run", "--executor", "local"],
    "run without publishing": lambda live: ["run", "--executor", "local", "--no-publish"],
    "run of a branch": lambda live: ["run", "--executor", "local", "--branch", "trial", "--no-publish"],
    "tag": lambda live: ["tag", "then"],
    "fork": lambda live: ["fork", "main", "trial"],
    "rollback": lambda live: ["rollback", "--to", first(live)],
    "recover": lambda live: ["recover", first(live), "--executor", "local"],
    "backfill": lambda live: ["backfill", "--executor", "local"],
    "backfill and promote": lambda live: ["backfill", "--executor", "local", "--promote"],
    "expire": lambda live: ["expire", "--keep-last", "1"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_last_entry_of_a_command_is_missed(live: Live, command: str) -> None:
    if command.startswith("run"):
        landing = live.folder / "landing" / "clicks"
        (landing / "002.jsonl").write_text((landing / "001.jsonl").read_text())
    entry_before = live.catalog.head().entry
    result = live.headrace(*COMMANDS[command](live))
    assert result.exit_code == 0, result.output
    last = live.catalog.head().entry
    assert last > entry_before
    entry_file = entry(live, last)
    content = entry_file.read_bytes()
    entry_file.unlink()
    for text_later in (["run", "--executor", "local"], ["read"], ["tag", "later"]):
        told_result = live.headrace(*text_later)
        assert told_result.exit_code == 40
        assert "the log of clicks is damaged" in " ".join(told_result.stderr.split())
    assert live.headrace("fsck").exit_code == 40
    entry_file.write_bytes(content)
    assert live.headrace("fsck").exit_code == 0
    assert live.headrace("read").exit_code == 0


@pytest.mark.parametrize("entries", [1, 2, 3])
def test_fsck_knows_it_from_what_else_is_stored(live: Live, entries: int) -> None:
    """Also where the hint is late, as that of a run is which was killed."""
    assert hr.open(live.root)["clicks"].fsck().problems == ()
    last = live.catalog.head().entry
    content = {"entry": last - entries}
    digest = hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()
    hint = {"format": 1, "kind": "log-hint", "sha256": digest, "content": content}
    assert json.loads((live.folder / "clicks/log-hint.json").read_text()).keys() == hint.keys()
    (live.folder / "clicks/log-hint.json").write_text(json.dumps(hint))
    for number in range(last - entries + 1, last + 1):
        entry(live, number).unlink()
    assert live.headrace("read").exit_code == 0, "nobody knows"
    result = live.headrace("fsck")
    assert result.exit_code == 40
    assert re.search(
        rf"the log ends at entry {last - entries}, but .*(runs/|audits/|under entry)", join_lines(result.output)
    )
    assert live.headrace("fsck", "--repair").exit_code == 40, "nobody can make it again"
    live.land_and_run(2)
    for _ in range(3):
        assert live.headrace("expire").exit_code == 0
    result = live.headrace("fsck")
    assert result.exit_code == 0, result.output


def join_lines(output: str) -> str:
    return re.sub(r"[\s│]+", " ", output)


def test_fsck_finds_nothing_missing_in_what_people_did(live: Live) -> None:
    """Rolled back, dropped, promoted, expired: every snapshot that anything names is one that the log knows."""
    begin = first(live)
    steps = (
        ["rollback", "--to", begin],
        ["run", "--executor", "local"],
        ["fork", "main", "trial"],
        ["run", "--executor", "local", "--branch", "trial", "--no-publish"],
        ["drop", "trial"],
        ["tag", "then", begin],
        ["backfill", "--executor", "local", "--promote"],
        ["expire", "--keep-last", "1"],
        ["recover", "main", "--executor", "local"],
        ["rollback", "--to", "beginning"],
        ["expire", "--keep-last", "1"],
        ["run", "--executor", "local"],
        ["expire", "--keep-last", "1", "--drop-tags"],
        ["expire", "--keep-last", "1"],
    )
    for step in steps:
        result = live.headrace(*step)
        assert result.exit_code == 0, (step, result.output)
        report = hr.open(live.root)["clicks"].fsck()
        assert report.problems == (), step
