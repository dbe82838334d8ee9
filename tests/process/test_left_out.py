"""Runs that go on without an output (``--without``): those that read it stand with it, and all catch up together."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.read.snapshots.progress import StoredProgress
from headrace.runs import parking
from headrace.runs.option_kinds import RunOptionsError
from headrace_lab.catalog_checks import check_catalog
from headrace_lab.sizes import set_sizes

pytestmark = pytest.mark.slow  # whole runs

EARLY: dict[str, Any] = {"when": hr.on_update(), "how": hr.retracting("2d")}
ORDERS = hr.json("landing/o", {"shop": str, "price": int, "at": datetime}, max_files=1).event_time("at", bound="10m")
HOURS = hr.Output(key="shop", what={"sales": col("price").sum()}, where=hr.FixedWindows("1h"), **EARLY)
DAYS = hr.Output(of="hours", key="shop", what={"sales": col("sales").sum()}, where=hr.CalendarWindows("day"), **EARLY)
MONTHS = hr.Output(of="days", key=None, what={"n": hr.count()}, where=hr.CalendarWindows("month"), **EARLY)
NUMBER = hr.Output(key=None, what={"n": hr.count()}, where=hr.FixedWindows("1h"), **EARLY)
OUTPUTS = {"hours": HOURS, "days": DAYS, "all": MONTHS, "number": NUMBER}
SHOP = hr.Pipeline("s", ORDERS, executor="local", outputs=OUTPUTS)


class Root:
    """A root where a file lands before each run."""

    def __init__(self, folder: Path, pipeline: hr.Pipeline = SHOP) -> None:
        self.folder, self.files, self.pipeline = folder, 0, pipeline
        (folder / "landing/o").mkdir(parents=True)
        self.handle = hr.open(folder.as_uri(), create=True)[pipeline]

    def run(self, *omitted_names: str) -> list[str]:
        """Lands a file and runs; the outputs that are parked then."""
        self.files += 1
        record = {"shop": "oslo", "price": self.files, "at": f"2026-05-01T{self.files:02}:00:00Z"}
        (self.folder / f"landing/o/{self.files:04}.json").write_text(json.dumps(record) + "\n")
        return sorted(self.handle.run(without=list(omitted_names), publish=False).parked)

    def stands(self) -> dict[str, int]:
        """The epoch at which outputs stand that are parked."""
        return {
            name: position.epoch
            for name, position in StoredProgress.from_manifest(self.handle.show("main")).parked.items()
        }

    def rows(self) -> dict[str, list[str]]:
        """What there is of each output: current rows, and all panes."""
        return {
            f"{output} {view}": sorted(map(str, getattr(self.handle[output], view)(at="main").to_arrow().to_pylist()))
            for output in self.pipeline.outputs
            for view in ("current", "panes")
        }

    def check(self, folder: Path) -> None:
        """All is as if no run had left anything out."""
        whole = Root(folder, self.pipeline)
        for _ in range(self.files):
            whole.run()
        assert self.stands() == {}
        assert self.rows() == whole.rows()
        check_catalog(self.handle.catalog.store, "s")


def test_what_reads_an_output_that_is_left_out_stands_with_it(tmp_path: Path) -> None:
    root = Root(tmp_path / "root")
    root.run()
    for _ in range(3):
        assert root.run("hours") == ["all", "days", "hours"]
        assert root.stands() == dict.fromkeys(("all", "days", "hours"), 0)
    assert root.run("days") == ["all", "days"], "hours have caught up, and are not left out any more"
    assert root.run("days") == ["all", "days"]
    assert root.stands() == dict.fromkeys(("all", "days"), 0)
    assert root.run() == []
    root.check(tmp_path / "whole")


def test_an_output_that_is_ahead_of_what_it_reads_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As 0.1.2 left it: what reads an output that was left out twice had caught up with the run before."""
    root = Root(tmp_path / "root")
    root.run()
    with monkeypatch.context() as older_version:
        older_version.setattr(parking, "left_out", lambda run: frozenset(run.options.without))
        root.run("hours")
        root.run("hours")
    assert root.stands() == {"hours": 0, "days": 1, "all": 1}
    assert root.run("hours") == ["all", "days", "hours"]
    assert root.stands() == {"hours": 0, "days": 1, "all": 1}
    assert root.run() == []
    root.check(tmp_path / "whole")


def test_something_is_left_to_compute(tmp_path: Path) -> None:
    definition = hr.Pipeline("s", ORDERS, executor="local", outputs={"hours": HOURS, "days": DAYS})
    root = Root(tmp_path, definition)
    root.run()
    with pytest.raises(RunOptionsError, match=r"all others read what would be left out \(hours\)"):
        root.run("hours")
    assert root.run("days") == ["days"]
    assert root.run() == []


@set_sizes(parked_epochs=2)
def test_what_stands_with_an_output_that_is_left_out_holds_no_run(tmp_path: Path) -> None:
    root = Root(tmp_path)
    root.run()
    for _ in range(3):
        assert root.run("hours") == ["all", "days", "hours"]
    assert root.handle.run(without=["hours"], publish=False).epochs == (), "nothing is due but what is left out"
    assert root.run() == []
