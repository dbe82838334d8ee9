"""Real runs on the executor local, with expiry: what they leave and what they cost stays the same.

HEADRACE_EPOCHS=10000 (make test-long) runs as many epochs; figures are compared at a tenth of them and at the end.
"""

import json
import os
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import headrace as hr
from headrace import col
from headrace.pipeline.executors import Executor
from headrace.runs.options import RunOptions
from headrace.runs.process import process
from headrace.runs.results import write
from headrace.runs.upkeep import check, expire, keeping
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.filelog import RADIX
from headrace_snapshots.store import open_store

EPOCHS = int(os.environ.get("HEADRACE_EPOCHS", "300"))
EPOCHS_A_RUN, EVERY, KEPT = 10, 30, 5
START = datetime(2026, 1, 1, tzinfo=UTC)

clicks = hr.Pipeline(
    "clicks",
    hr.json("landing/clicks", {"user": str, "at": datetime, "amount": int}, max_files=1).event_time("at", bound="10m"),
    key="user",
    what={"clicks": hr.count(), "amount": col("amount").sum()},
    where=hr.GlobalWindows(),
    when=hr.Repeatedly(hr.AfterCount(1)),
    executor="local",
)


@dataclass(frozen=True)
class Figures:
    """After an expiry, without the names of input files; ``seconds`` are those of a run in the middle of some."""

    objects: int
    bytes: int
    run_requests: int
    read_requests: int
    seconds: float


class Deployment:
    """Files land a few at a time; a run takes each as an epoch."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, folder.as_uri()
        self.epochs, self.runs = 0, 0
        self.seconds: list[float] = []
        (folder / "landing" / "clicks").mkdir(parents=True)

    def run(self) -> int:
        """The requests of its newest epoch."""
        for number in range(self.epochs, self.epochs + EPOCHS_A_RUN):
            at = START + timedelta(minutes=number)
            rows = [{"user": user, "at": at.isoformat(), "amount": number} for user in ("ann", "bob")]
            path = self.folder / "landing" / "clicks" / f"{number:08d}.jsonl"
            path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        self.epochs, self.runs = self.epochs + EPOCHS_A_RUN, self.runs + 1
        began = time.monotonic()
        options = RunOptions(run_id=f"run-{self.runs}", executor=Executor.LOCAL, publish=True)
        result = process(clicks, self.root, options)
        self.seconds.append(time.monotonic() - began)
        assert len(result.epochs) == EPOCHS_A_RUN
        write(open_store(self.root), result)
        return sum(self.catalog().manifest(str(result.snapshot)).requests.values())

    def catalog(self) -> Catalog:
        return Catalog(open_store(self.root), "clicks")

    def figures(self, run_requests: int) -> Figures:
        files = [path for path in (self.folder / "clicks").rglob("*") if path.is_file() and path.parent.name != "index"]
        folders = sum(path.is_dir() for path in (self.folder / "clicks").rglob("*"))
        opened = hr.open(self.root)["clicks"]
        store = opened._catalog.store  # its requests
        assert {row["clicks"] for row in opened.current().to_arrow().to_pylist()} == {self.epochs}
        assert opened.panes().to_arrow().num_rows
        assert opened._catalog.log()
        return Figures(
            len(files) + folders,
            sum(path.stat().st_size for path in files),
            run_requests,
            sum(store.requests.snapshot().values()),
            sorted(self.seconds[-9:])[len(self.seconds[-9:]) // 2],
        )


@pytest.mark.slow
def test_nothing_grows_from_run_to_run(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path)
    found: list[Figures] = []
    for number in range(1, EPOCHS // EPOCHS_A_RUN + 1):
        requests = deployment.run()
        if number % (EVERY // EPOCHS_A_RUN) == 0:
            expire(deployment.catalog(), keeping(KEPT))
            found.append(deployment.figures(requests))
    steady = max(len(found) // 10, 3 * RADIX // EVERY)  # a leaf goes with the last of its 64 records
    early, late = found[steady], found[-1]
    print(f"\nafter {(steady + 1) * EVERY} epochs: {early}\nafter {deployment.epochs} epochs: {late}")
    leaf = 2 * RADIX + 100  # files of panes and their folders, and results of runs up to a hundred
    assert late.objects <= early.objects + leaf
    assert late.bytes <= early.bytes * 1.5 + 200_000
    assert late.run_requests <= early.run_requests * 2
    assert late.read_requests <= early.read_requests + 2 * RADIX
    assert late.seconds <= early.seconds * 3 + 1
    assert check(deployment.catalog(), deep=True).problems == ()
