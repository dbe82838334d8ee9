"""Random deployments of pipelines that read pipelines: what is landed, run, taken back and promoted in between; and one
pipeline with the same stages, over all input.
"""

import json
import random
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import headrace as hr
from headrace import col
from headrace.model.accumulation import How
from headrace.read.snapshots.snapshot_refs import UnknownBranchError
from headrace.runs.client.handle import PipelineHandle
from headrace.runs.epochs import UpstreamMovedError
from headrace.runs.recovery_target import ReadersCannotFollowError
from headrace_snapshots.names import MAIN

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
DISORDER = 20
"""Minutes by which records are out of order, at most: what the first pipeline allows for, so that nothing is late."""

FINE = hr.AfterWatermark(early=hr.AfterCount(1), late=hr.AfterCount(1))
AT_END = hr.Default()
UPSTREAM: Mapping[str, tuple[hr.Trigger, How]] = {
    "retracting": (FINE, hr.retracting("1h")),
    "elided": (FINE, hr.retracting("1h", elide_unchanged=True)),
    "discarding": (FINE, hr.discarding("1h")),
    "accumulating": (AT_END, hr.accumulating("0s")),
    "for ever": (FINE, hr.retracting(None)),
}

CLICKS = hr.json("landing/clicks", {"k": str, "v": int, "at": datetime}).event_time("at", bound=f"{DISORDER}m")
FIRST = {"s": col("v").sum(), "n": hr.count()}
SECOND = {"s": col("s").sum(), "m": col("n").sum()}


def of_panes(kind: str) -> dict[str, Any]:
    """The aggregates of panes; which is the greatest depends, where panes are discarded, on how input is cut."""
    return SECOND if kind == "discarding" else {**SECOND, "top": col("s").max()}


THIRD = {"all": col("s").sum(), "rows": hr.count()}


def pipelines(kind: str, lateness: str | None, executor: str = "local", **roots: str | None) -> list[hr.Pipeline]:
    """A chain of three: of records, of that one's panes, and of those of the second."""
    when, how = UPSTREAM[kind]
    first = hr.Pipeline(
        "first", CLICKS, key="k", what=FIRST, where=hr.FixedWindows("10m"), when=when, how=how, executor=executor
    )
    second = hr.Pipeline(
        "second",
        hr.published("first", first, root=roots.get("first")),
        key="k",
        what=of_panes(kind),
        where=hr.FixedWindows("1h"),
        when=FINE,
        how=hr.retracting(lateness),
        executor=executor,
    )
    third = hr.Pipeline(
        "third",
        hr.published("second", {"s": int}, root=roots.get("second"), max_files=2),
        what=THIRD,
        where=hr.FixedWindows("2h"),
        when=FINE,
        how=hr.retracting(lateness),
        executor=executor,
    )
    return [first, second, third]


def as_one(kind: str, lateness: str | None) -> hr.Pipeline:
    """The same stages in one pipeline, each an output of its own."""
    when, how = UPSTREAM[kind]
    late_parts = {"when": FINE, "how": hr.retracting(lateness)}
    return hr.Pipeline(
        "one",
        CLICKS,
        executor="local",
        outputs={
            "first": hr.Output(key="k", what=FIRST, where=hr.FixedWindows("10m"), when=when, how=how),
            "second": hr.Output(of="first", key="k", what=of_panes(kind), where=hr.FixedWindows("1h"), **late_parts),
            "third": hr.Output(of="second", what=THIRD, where=hr.FixedWindows("2h"), **late_parts),
        },
    )


def rows(handle: Any) -> list[tuple[Any, ...]]:
    """Key, window and values of what readers see."""
    table = handle.current().to_arrow()
    names = [name for name in table.schema.names if name not in PANE]
    return sorted(tuple(row[name] for name in names) for row in table.to_pylist())


PANE = {
    "pane_time", "timing", "pane_index", "nonspeculative_index", "is_first", "is_last", "is_retraction", "epoch",
    "sequence",
}  # fmt: skip


@dataclass
class Chain:
    """A deployment of ``pipelines`` whose roots are folders; what is done to it next is ``random``."""

    folders: list[Path]
    made: list[hr.Pipeline]
    random: random.Random
    now: int = 0
    landed: int = 0
    moved: int = 0
    done: list[str] = field(default_factory=list)

    @property
    def handles(self) -> list[PipelineHandle]:
        return [
            hr.open(folder.as_uri(), create=True)[pipeline]
            for folder, pipeline in zip(self.folders, self.made, strict=True)
        ]

    def land(self) -> None:
        folder = self.folders[0] / "landing" / "clicks"
        folder.mkdir(parents=True, exist_ok=True)
        for _ in range(self.random.randint(1, 2)):
            self.landed += 1
            self.now += self.random.randint(1, 30)
            lines = [
                {
                    "k": self.random.choice("abc"),
                    "v": self.random.randint(-5, 9),
                    "at": (BEGIN + timedelta(minutes=self.now - self.random.randint(0, DISORDER - 1))).isoformat(),
                }
                for _ in range(self.random.randint(1, 6))
            ]
            (folder / f"{self.landed:05}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    def step(self, *, heavy: bool = True) -> None:
        number = self.random.randrange(3)
        acts = [self.land, *[self.run_all] * 2, lambda: self.run(number), lambda: self.roll_back(number)]
        if heavy:
            acts += [lambda: self.promote(number), lambda: self.expire(number)]
        self.random.choice(acts)()

    def run_all(self) -> None:
        self.land()
        for number in range(3):
            self.run(number)

    def run(self, number: int) -> None:
        """A run; where an upstream has moved too far, what its error says is done."""
        self.done.append(f"run {number}")
        handle = self.handles[number]
        try:
            handle.run(max_epochs=self.random.choice([None, None, 1]))
        except UpstreamMovedError as error:
            self.moved += 1
            text = str(error)
            self.done.append(text)
            if "headrace recover" in text:
                handle.recover(text.partition("headrace recover ")[2].split("`")[0].split()[1])
            else:
                self.promote(number)

    def roll_back(self, number: int) -> None:
        catalog = self.handles[number]._catalog
        head = catalog.head().refs.get(MAIN)
        if head is None:
            return
        line = [link.snapshot_id for link in catalog.lineage(head)]
        target = "beginning" if len(line) == 1 or self.random.random() < 0.1 else self.random.choice(line[1:5])
        self.done.append(f"back {number} {line.index(target) if target in line else target}")
        self.handles[number].rollback(to=target)

    def promote(self, number: int) -> None:
        self.done.append(f"backfill {number}")
        if self.handles[number]._catalog.head().refs.get(MAIN) is not None:
            with suppress(UnknownBranchError):  # nothing is published of what it reads
                self.handles[number].backfill(promote=True)

    def expire(self, number: int) -> None:
        self.done.append(f"expire {number}")
        for _ in range(2):
            self.handles[number].expire(keep_last=self.random.randint(1, 3))

    def recover_with_readers(self) -> None:
        """The first pipeline, or the second, goes back with its readers, unless one of them cannot follow."""
        number = self.random.choice([0, 0, 1])
        catalog = self.handles[number]._catalog
        head = catalog.head().refs.get(MAIN)
        line = [] if head is None else [link.snapshot_id for link in catalog.lineage(head)]
        if len(line) > 1:
            target = self.random.choice(line[1:5])
            self.done.append(f"recover {number} {line.index(target)}")
            with suppress(ReadersCannotFollowError):
                self.handles[number].recover(target, with_readers=True)

    def travel(self) -> None:
        """Input that goes on, so that windows expire, and upstreams that go back meanwhile."""
        for _ in range(3):
            self.run_all()
            self.now += 70
        for _ in range(4):
            self.roll_back(0 if self.random.random() < 0.7 else 1)
            if self.random.random() < 0.5:
                self.run(1)
                self.run(2)
            self.run_all()
            self.now += self.random.randint(0, 100)

    def drain(self) -> None:
        """Runs until all have read all."""
        for number in range(3):
            self.run(number)
            self.handles[number].run()

    def expected(self, folder: Path, kind: str, lateness: str | None) -> dict[str, list[tuple[Any, ...]]]:
        """The rows of one pipeline over all input, by output."""
        with suppress(FileExistsError):
            (folder / "landing").symlink_to(self.folders[0] / "landing", target_is_directory=True)
        handle = hr.open(folder.as_uri(), create=True)[as_one(kind, lateness)]
        handle.run(files_per_epoch=1)
        names = ["second", "third"] if kind == "discarding" else ["first", "second", "third"]
        return {name: rows(handle[name]) for name in names}
