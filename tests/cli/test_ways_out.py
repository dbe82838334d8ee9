"""Whoever meets damage is told commands; each of them is tried, and after it everything works."""

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace_lab.sizes import set_sizes
from tests.cli.test_upkeep import Live

pytestmark = pytest.mark.slow
RUNS = 6
USES = (["read"], ["read", "--view", "panes"], ["expire", "--keep-last", "2"], ["run", "--executor", "local"])


@dataclass(frozen=True)
class DamagedRoot:
    """A deployment, and an object of it that is not what was written."""

    live: Live
    copy: Path

    def as_it_was_damaged(self) -> Live:
        shutil.rmtree(self.live.folder)
        shutil.copytree(self.copy, self.live.folder)
        return self.live


@pytest.fixture(scope="module", autouse=True)
def small_nodes() -> Iterator[None]:
    """Few records make a node."""
    with set_sizes(log_radix=4):
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, small_nodes: None) -> Path:
    """The root of six published epochs, one that is not, and a file that is still to be read."""
    deployment = Live(tmp_path_factory.mktemp("ways-out"))
    for number in range(RUNS):
        deployment.land_and_run(number)
    _land(deployment, RUNS)
    assert deployment.headrace("run", "--executor", "local", "--no-publish").exit_code == 0
    _land(deployment, RUNS + 1)
    return deployment.folder


@pytest.fixture
def live(whole: Path, tmp_path: Path) -> Live:
    """A copy of that root."""
    deployment = Live(tmp_path)
    shutil.copytree(whole, deployment.folder)
    return deployment


def _land(live: Live, number: int) -> None:
    landing = live.folder / "landing" / "clicks"
    (landing / f"{number:03}.jsonl").write_text((landing / "000.jsonl").read_text().replace("ann", f"u{number}"))


def _line(live: Live) -> list[str]:
    """Snapshots of main, newest first."""
    return [manifest.snapshot_id for manifest in live.catalog.ancestry(live.catalog.head().refs["main"])]


def _node(log: str) -> Callable[[Live], str]:
    def path(live: Live) -> str:
        published_manifest = live.catalog.manifest(live.catalog.head().refs["published"])
        return f"clicks/index/{published_manifest.logs[log].levels[0].refs[0].id}.json"

    return path


def manifest(snapshot: str) -> str:
    return f"clicks/manifests/{snapshot}.json"


VICTIMS: dict[str, Callable[[Live], str]] = {
    "the manifest of published": lambda live: manifest(live.catalog.head().refs["published"]),
    "the manifest of main": lambda live: manifest(_line(live)[0]),
    "an older manifest": lambda live: manifest(_line(live)[3]),
    **{f"a node of {log}": _node(log) for log in ("panes", "late", "rejected", "inputs")},
}


def _swap(file: Path) -> None:
    """Another object of the same kind in its place."""
    other = next(path for path in sorted(file.parent.iterdir()) if path != file)
    file.write_bytes(other.read_bytes())


DAMAGES: dict[str, Callable[[Path], None]] = {
    "cut": lambda file: file.write_bytes(file.read_bytes()[:100]),
    "swapped": _swap,
    "deleted": Path.unlink,
}


def commands(text: str) -> Iterator[list[str]]:
    for found_text in re.findall(r"`headrace ([a-z]+) [^\s`]*clicks[^\s`]*([^`]*)`", " ".join(text.split())):
        yield [found_text[0], *found_text[1].split()]


ONLY_DAMAGE = {"a node of late": "cut", "a node of rejected": "swapped"}
"""What is damaged in one way: both logs are read as that of panes is, which is damaged in each."""


@pytest.mark.parametrize(
    ("victim", "damage"),
    [(victim, damage) for victim in VICTIMS for damage in DAMAGES if ONLY_DAMAGE.get(victim, damage) == damage],
)
def test_each_command_that_is_named_works(live: Live, victim: str, damage: str, tmp_path: Path) -> None:
    DAMAGES[damage](live.folder / VICTIMS[victim](live))
    copy = tmp_path / "damaged"
    shutil.copytree(live.folder, copy)
    damaged_root = DamagedRoot(live, copy)
    uses_by_command: dict[tuple[str, ...], str] = {}
    for use in USES:
        result = damaged_root.as_it_was_damaged().headrace(*use)
        if result.exit_code == 0:
            continue
        assert result.exit_code == 40, result.output
        named_commands = [*commands(result.stderr)]
        assert named_commands, f"{use} names no command: {result.stderr}"
        uses_by_command |= {tuple(command): " ".join(use) for command in named_commands}
    for command, use in uses_by_command.items():
        _works(damaged_root.as_it_was_damaged(), [*command], use)
    assert uses_by_command


def _works(live: Live, command: list[str], use: str) -> None:
    """After ``command`` a run is right, and so are readers and an expiry."""
    if command[0] == "backfill":
        command += ["--promote", "--executor", "local"]
    result = live.headrace(*command)
    assert result.exit_code == 0, f"named by {use}: {command}: {result.stderr}"
    for later_command in (["run", "--executor", "local"], *USES[:3]):
        result = live.headrace(*later_command)
        assert result.exit_code == 0, f"named by {use}: {later_command} behind {command}: {result.stderr}"
    hours = [row for row in live.read() if row["window_start"] >= "2026"]  # the others may be late, as epochs are cut
    assert len(hours) == RUNS + 2, "an hour of each run, and two more users"


@pytest.mark.parametrize("damage", ["cut", "deleted"])
def test_a_run_says_what_readers_will_miss(live: Live, damage: str) -> None:
    """Of what older epochs wrote, which the run itself does not read; at the latest when its turn has come."""
    published_manifest = live.catalog.manifest(live.catalog.head().refs["published"])
    DAMAGES[damage](live.folder / published_manifest.tables["current"][0].files[0].path)
    result = live.headrace("run", "--executor", "local")
    assert result.exit_code == 0
    text = " ".join(result.stderr.split())
    assert "warning: readers will miss this" in text
    assert [command[0] for command in commands(text)] == ["rollback", "backfill"]
    assert live.headrace("read").exit_code == 40
