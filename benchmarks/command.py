"""``headrace run`` as users call it, in a deployment of its own, and when it says that it has committed."""

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import payments
from benchmarks.comparison import ended
from benchmarks.ours import folded
from benchmarks.payments import PAYMENTS
from benchmarks.runs import Results
from benchmarks.workloads import Workload
from headrace.read.snapshots.snapshot_refs import snapshot_at
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.manifest import UNNAMED, Manifest
from headrace_snapshots.names import MAIN
from headrace_snapshots.store import open_store

COMMAND = Path(sys.executable).with_name("headrace")
FILE = Path(payments.__file__)
_COMMITTED = "epoch "
"""A line on stderr that begins so is told at a commit, of the run's first epoch first."""


@dataclass(frozen=True)
class Deployment:
    """A root, and the files that have landed there."""

    root: str
    landed: list[Path] = field(default_factory=list)

    def land(self, files: Iterable[Path]) -> None:
        """Put files where the pipeline reads, after those that are there."""
        store = open_store(self.root)
        for file in files:
            store.write(f"{PAYMENTS.source.path}/part-{len(self.landed):05d}.parquet", file.read_bytes())
            self.landed.append(file)

    def head(self) -> Manifest:
        """The newest snapshot."""
        manifest = snapshot_at(Catalog(open_store(self.root), PAYMENTS.name), MAIN).manifest
        assert manifest is not None
        return manifest

    def results(self, folder: Path) -> Results:
        """What the newest snapshot has, copied to ``folder``."""
        store = open_store(self.root)
        folder.mkdir()
        copies: list[Path] = []
        for file in itertools.chain.from_iterable(layer.files for layer in self.head().tables[UNNAMED.current]):
            copies.append(folder / f"{len(copies):05d}.parquet")
            copies[-1].write_bytes(store.read(file.path))
        return Results(folded(PAYMENTS, Workload.LIVE_KEYS, list(map(str, copies))))


def commit_seconds(executor: str, root: str, settings: Mapping[str, str]) -> float:
    """Run the command to its end: seconds from its start to its first commit.

    ``settings`` are variables of its environment. Raises SystemExit with what it said when it fails or commits nothing.
    """
    command = [str(COMMAND), "run", str(FILE), "--root", root, "--executor", executor]
    environment = {**os.environ, **settings}
    told: list[str] = []
    committed: float | None = None
    started = time.monotonic()
    with (
        subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
        ) as process,
        ended(process),
    ):
        assert process.stderr is not None
        for line in process.stderr:
            if committed is None and line.startswith(_COMMITTED):
                committed = time.monotonic() - started
            told.append(line)
    if process.returncode or committed is None:
        raise SystemExit(f"{''.join(told[-20:])}\n{' '.join(command)}: exit code {process.returncode}")
    return committed
