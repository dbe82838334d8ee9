"""A run on a machine whose clock is a year ahead: the next runs say so, and a backfill or a rollback puts it right."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import headrace as hr
from headrace.runs.options import RunOptions
from headrace.runs.process import process

pytestmark = pytest.mark.slow  # whole runs

LEAP = timedelta(days=365)
WAITING = hr.Repeatedly(hr.AfterProcessingTime("1s"))


def make_pipeline(when: hr.Trigger = WAITING, deduplicate: hr.Deduplicate | None = None) -> hr.Pipeline:
    sales = hr.json("landing", {"id": int, "shop": str, "at": datetime}, max_files=1).event_time("at", bound="1m")
    return hr.Pipeline(
        "sales",
        sales,
        key="shop",
        what={"n": hr.count()},
        where=hr.GlobalWindows(),
        when=when,
        how=hr.retracting(None),
        deduplicate=deduplicate,
        executor="local",
    )


def land(root: Path, number: int) -> None:
    (root / "landing").mkdir(exist_ok=True)
    record = {"id": number, "shop": "oslo", "at": "2026-05-01T09:00:00Z"}
    (root / "landing" / f"{number}.json").write_text(json.dumps(record) + "\n")


def run_ahead(root: Path, pipeline: hr.Pipeline) -> None:
    """Runs at a right clock, and then at one that is a year ahead."""
    for number, lead in enumerate((timedelta(), LEAP)):
        land(root, number)
        process(pipeline, root.as_uri(), RunOptions(f"run-{number}"), now=lambda: datetime.now(UTC) + lead)  # noqa: B023


def test_a_run_says_that_the_clock_before_it_was_ahead(tmp_path: Path) -> None:
    pipeline = make_pipeline()
    run_ahead(tmp_path, pipeline)
    land(tmp_path, 2)
    sales = hr.open(tmp_path.as_uri())[pipeline]
    (warning,) = sales.run().warnings
    assert f"{datetime.now(UTC) + LEAP:%Y-%m-%d}" in warning
    assert "`headrace backfill sales --promote`" in warning
    assert "`headrace rollback sales --to SNAPSHOT`" in warning


@pytest.mark.parametrize("deduplicate", [None, hr.Deduplicate("id", "7d")])
def test_a_backfill_puts_a_clock_right_that_was_ahead(tmp_path: Path, deduplicate: hr.Deduplicate | None) -> None:
    pipeline = make_pipeline(hr.on_update(), deduplicate)
    run_ahead(tmp_path, pipeline)
    sales = hr.open(tmp_path.as_uri())[pipeline]
    assert sales.backfill(promote=True).status == "succeeded"
    land(tmp_path, 2)
    assert sales.run().warnings == ()
    assert [row["n"] for row in sales.current().to_json()] == [3]


def test_a_backfill_of_arrivals_keeps_their_times_and_becomes_main(tmp_path: Path) -> None:
    pipeline = hr.Pipeline(
        "sales",
        hr.json("landing", {"shop": str}, max_files=1).arrival_time(),
        key="shop",
        what={"n": hr.count()},
        where=hr.CalendarWindows("month"),
        when=hr.on_update(),
        how=hr.retracting(None),
        executor="local",
    )
    run_ahead(tmp_path, pipeline)
    sales = hr.open(tmp_path.as_uri())[pipeline]
    rows = sales.current(at="main").to_json()
    assert len(rows) == 2, "one for each clock"
    assert sales.backfill(promote=True).status == "succeeded"
    assert [row["window_start"] for row in sales.current().to_json()] == [row["window_start"] for row in rows]
