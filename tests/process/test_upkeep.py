"""Real runs on the executor local, with expiry: what they leave and what they cost stays the same.

HEADRACE_EPOCHS=10000 (make test-long) runs as many epochs; figures are compared at a tenth of them and at the end.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from statistics import median

import pytest

import headrace as hr
from headrace import col
from headrace.runs.client.handle import PipelineHandle
from headrace.runs.maintenance import check, expire_snapshots, keep_rule
from headrace.runs.options import RunOptions
from headrace.runs.process import process
from headrace.runs.reporting.results import write_run_result
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.files import RADIX
from headrace_snapshots.store import open_store

EPOCHS = int(os.environ.get("HEADRACE_EPOCHS", "300"))
EPOCHS_A_RUN, EVERY, KEEP_LAST = 10, 30, 5
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
    """After an expiry; objects and bytes are those without the names of input files, seconds those of the CPU."""

    epochs: int
    objects: int
    bytes: int
    requests: Mapping[str, int]
    seconds: Mapping[str, float]

    def __str__(self) -> str:
        costs = ", ".join(f"{name} {n} requests {self.seconds[name]:.3f} s" for name, n in self.requests.items())
        return f"{self.epochs:6,} epochs: {self.objects} objects, {self.bytes:,} bytes; {costs}"

    @classmethod
    def typical(cls, all_figures: Sequence["Figures"]) -> "Figures":
        """The medians of some that follow each other."""
        costs = all_figures[0].requests
        return cls(
            all_figures[-1].epochs,
            int(median(each.objects for each in all_figures)),
            int(median(each.bytes for each in all_figures)),
            {name: int(median(each.requests[name] for each in all_figures)) for name in costs},
            {name: median(each.seconds[name] for each in all_figures) for name in costs},
        )


class Deployment:
    """Files land a few at a time; a run takes each as an epoch."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, folder.as_uri()
        self.epochs = 0
        self.requests: dict[str, int] = {}
        self.seconds: dict[str, float] = {}
        (folder / "landing" / "clicks").mkdir(parents=True)

    def run(self) -> None:
        """Land files, and run until all are read."""
        for number in range(self.epochs, self.epochs + EPOCHS_A_RUN):
            moment = START + timedelta(minutes=number)
            rows = [{"user": user, "at": moment.isoformat(), "amount": number} for user in ("ann", "bob")]
            path = self.folder / "landing" / "clicks" / f"{number:08d}.jsonl"
            path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        self.epochs += EPOCHS_A_RUN
        options = RunOptions(run_id=f"run-{self.epochs}", executor="local", publish=True)
        with self.measure_time("run"):
            result = process(clicks, self.root, options)
        assert len(result.epochs) == EPOCHS_A_RUN
        write_run_result(open_store(self.root), result)
        epochs = islice(self.catalog().ancestry(str(result.snapshot)), EPOCHS_A_RUN)
        self.requests["run"] = sum(sum(manifest.requests.values()) for manifest in epochs)

    def catalog(self) -> Catalog:
        return Catalog(open_store(self.root), "clicks")

    def look(self) -> None:
        """As `headrace log`, `show` and `read` do."""
        looks: dict[str, Callable[[Catalog], object]] = {
            "log": Catalog.list_entries,
            "show": lambda catalog: catalog.manifest(catalog.head().refs["main"]),
            "read": lambda catalog: PipelineHandle(catalog).current().to_arrow(),
            "panes": lambda catalog: PipelineHandle(catalog).panes().to_arrow(),
        }
        for name, look in looks.items():
            catalog = self.catalog()
            with self.measure_time(name):
                assert look(catalog)
            self.requests[name] = sum(catalog.store.requests.snapshot().values())
        current = PipelineHandle(self.catalog()).current().to_arrow()
        assert {row["clicks"] for row in current.to_pylist()} == {self.epochs}

    @contextmanager
    def measure_time(self, name: str) -> Iterator[None]:
        began = time.process_time()
        yield
        self.seconds[name] = time.process_time() - began

    def figures(self) -> Figures:
        files = [path for path in (self.folder / "clicks").rglob("*") if path.is_file() and path.parent.name != "index"]
        folders = sum(path.is_dir() for path in (self.folder / "clicks").rglob("*"))
        size = sum(path.stat().st_size for path in files)
        return Figures(self.epochs, len(files) + folders, size, dict(self.requests), dict(self.seconds))


@pytest.mark.slow
def test_nothing_grows_from_run_to_run(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path)
    figures: list[Figures] = []
    while deployment.epochs < EPOCHS:
        deployment.run()
        if deployment.epochs % EVERY == 0:
            expire_snapshots(deployment.catalog(), keep_rule(KEEP_LAST))
            deployment.look()
            figures.append(deployment.figures())
    steady = max(len(figures) // 10, 3 * RADIX.value // EVERY)  # a leaf goes with the last of its records
    span = max(len(figures) // 10, 3)
    early, late = Figures.typical(figures[steady:][:span]), Figures.typical(figures[-span:])
    step = max(len(figures) // 20, 1)
    print("", *map(str, figures[step - 1 :: step]), f"early {early}", f"late  {late}", sep="\n")
    leaf = 2 * RADIX.value + 100  # files of panes and their folders, and results of runs up to a hundred
    assert late.objects <= early.objects + leaf
    assert late.bytes <= early.bytes * 1.5 + 200_000
    for name, requests in early.requests.items():
        assert late.requests[name] <= requests * 1.2 + (RADIX.value if name == "panes" else 5), name
        if EPOCHS >= 1000:  # else too few to tell anything of time
            assert late.seconds[name] <= early.seconds[name] * 2 + 0.05, name
    assert check(deployment.catalog(), deep=True).problems == ()
