"""A pipeline whose main drops late clicks, and branches that have them: what patches are tried on."""

import json
import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import headrace as hr
from headrace import col
from headrace.runs.option_values import parse_span
from headrace.runs.options import RunOptions
from headrace.runs.publishing.patch import PatchRehearsal
from headrace.runs.reporting.results import RunResult
from headrace_lab.actions import backfill
from headrace_lab.catalog_checks import check_catalog
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.fsck import fsck
from headrace_snapshots.store import open_store
from tests.reading import read

START = datetime(2026, 1, 1, tzinfo=UTC)
Row = tuple[Any, ...]


CLICKS = hr.json("landing/clicks", {"user": str, "at": datetime, "price": int}, max_files=1).event_time(
    "at", bound="0s"
)


def pipeline(**parts: Any) -> hr.Pipeline:
    """Clicks per user and hour, an epoch for each file; what is late by more than half an hour is dropped."""
    common: dict[str, Any] = {
        "key": "user",
        "what": {"clicks": hr.count(), "spent": col("price").sum()},
        "where": hr.FixedWindows("1h"),
        "when": hr.AfterWatermark(early=hr.AfterCount(1), late=hr.AfterCount(1)),
        "how": hr.retracting("30m"),
        "executor": "local",
    }
    return hr.Pipeline("clicks", CLICKS, **{**common, **parts})


def of_rows(**parts: Any) -> hr.Pipeline:
    """The same clicks as rows."""
    return hr.Pipeline("clicks", CLICKS, executor="local", **parts)


class Live:
    """A pipeline under a root of its own."""

    def __init__(self, folder: Path, pipeline: hr.Pipeline) -> None:
        self.folder, self.pipeline, self.root = folder, pipeline, folder.as_uri()
        self.catalog = Catalog(open_store(self.root), pipeline.name)
        self._files = 0
        (folder / "landing" / "clicks").mkdir(parents=True, exist_ok=True)

    def copy_to(self, folder: Path) -> "Live":
        """The same, under another root."""
        shutil.copytree(self.folder, folder)
        copy = Live(folder, self.pipeline)
        copy._files = self._files
        return copy

    def land(self, *clicks: tuple[str, float, int]) -> Path:
        """A file of clicks: users, hours after START, prices."""
        self._files += 1
        return self.write(self._files, *clicks)

    def write(self, file: int, *clicks: tuple[str, float, int]) -> Path:
        lines = [
            json.dumps({"user": user, "at": (START + timedelta(hours=hours)).isoformat(), "price": price})
            for user, hours, price in clicks
        ]
        path = self.folder / "landing" / "clicks" / f"{file:04}.jsonl"
        path.write_text("\n".join(lines) + "\n")
        return path

    def process(self, *, publish: bool = True, branch: str = "main", **options: Any) -> RunResult:
        handle = hr.open(self.root, create=True)[self.pipeline]
        return handle.run(executor="local", publish=publish, branch=branch, **options)

    def backfill(self, branch: str = "fix", *, first_hour: float | None = None, **options: Any) -> RunResult:
        span = None if first_hour is None else parse_span((START + timedelta(hours=first_hour)).isoformat(), None)
        return backfill(
            self.pipeline, self.root, RunOptions("fill", executor="local", branch=branch, span=span, **options)
        )

    @property
    def history(self) -> Any:
        return hr.open(self.root)[self.pipeline.name]

    def patch(self, branch: str = "fix") -> RunResult:
        result: RunResult = self.history.promote(branch, patch=True)
        return result

    def rehearse(self, branch: str = "fix") -> PatchRehearsal:
        rehearsal: PatchRehearsal = self.history.promote(branch, patch=True, dry_run=True)
        return rehearsal

    def refs(self) -> Mapping[str, str]:
        return dict(self.catalog.head().refs)

    def current(self, branch: str = "published") -> list[Row]:
        return values(self.pipeline, read(self.pipeline, self.root, "current", branch).to_pylist())

    def panes(self, branch: str = "published") -> list[dict[str, Any]]:
        found_rows: list[dict[str, Any]] = read(self.pipeline, self.root, "panes", branch).to_pylist()
        return found_rows

    def check(self) -> None:
        """All that must hold of any root, and: the panes folded are what readers of ``current`` see."""
        newest: dict[Row, dict[str, Any]] = {}
        for pane in self.panes():
            place = (*(pane[name] for name in self.pipeline.key_types), pane["window_start"], pane["window_end"])
            if place not in newest or recency(pane) > recency(newest[place]):
                newest[place] = pane
        assert values(self.pipeline, [p for p in newest.values() if not p["is_retraction"]]) == self.current()
        check_catalog(self.catalog.store, self.pipeline.name)
        assert fsck(self.catalog, deep=True).damage == ()


def recency(pane: Mapping[str, Any]) -> tuple[int, int]:
    return pane["epoch"], pane["sequence"]


def values(pipeline: hr.Pipeline, rows: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Rows without what is said of their panes."""
    column_names = [*pipeline.key_types, "window_start", "window_end", *pipeline.value_types]
    return sorted(tuple(row[name] for name in column_names) for row in rows)


def hour(row: Row) -> int:
    """When the window of a row begins."""
    hour_number: int = (row[1] - START) // timedelta(hours=1)
    return hour_number


def late_for_main(folder: Path) -> Live:
    """Two clicks of the first hour came too late for main; a backfill in one epoch, branch ``fix``, has them."""
    live = Live(folder, pipeline())
    live.land(("ann", 0.1, 1), ("bob", 0.2, 10))
    live.land(("ann", 5.5, 1), ("bob", 5.6, 1))
    live.land(("ann", 0.5, 100), ("cyd", 0.6, 1000))
    assert live.process().counts["late_dropped"] == 2
    live.backfill()
    return live


SESSIONS = pipeline(where=hr.Sessions("1h"))
ROWS = hr.Pipeline("clicks", CLICKS, rows=["user", "price"], executor="local")
