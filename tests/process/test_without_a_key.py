"""Pipelines of one group of all: without a key they compute what they do under a key that is the same everywhere."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import col
from tests.process.executors import LOCAL, ExecutorUnderTest, on_both
from tests.reading import read

FLIGHTS = hr.json("landing/flights", {"origin": str, "at": datetime, "delay": int}).event_time("at", bound="0s")
EARLY = hr.AfterWatermark(early=hr.AfterCount(1), late=hr.AfterCount(1))
HOURLY = hr.FixedWindows("1h")
TWO_DAYS = hr.retracting("2d")


def pipelines(key: Any) -> dict[str, hr.Pipeline]:
    """Each with ``key`` where there is one of all."""
    totals = {"flights": hr.count(), "delays": col("delay").collect(), "total": col("delay").sum()}
    per_hour = hr.Aggregation(
        key=key, what={"origins": hr.count(), "total": col("total").sum()}, where=HOURLY, how=TWO_DAYS
    )
    return {
        "fixed": hr.Pipeline("flights", FLIGHTS, key=key, what=totals, where=HOURLY, when=EARLY, how=TWO_DAYS),
        "sessions": hr.Pipeline(
            "flights", FLIGHTS, key=key, what=totals, where=hr.Sessions("8m"), when=EARLY, how=TWO_DAYS
        ),
        "chain": hr.Pipeline(
            "flights", FLIGHTS, key="origin", what=totals, where=HOURLY, when=EARLY, how=TWO_DAYS, then=[per_hour]
        ),
    }


def land(root: Path, number: int) -> None:
    folder = root / "landing/flights"
    folder.mkdir(parents=True, exist_ok=True)
    minutes = [number * 50 + step * 11 % 70 for step in range(12)]
    records = [
        {
            "origin": "EWR" if minute % 3 else "JFK",
            "at": f"2026-01-01T{minute // 60:02}:{minute % 60:02}:00Z",
            "delay": minute,
        }
        for minute in minutes
    ]
    (folder / f"{number}.json").write_text("".join(json.dumps(record) + "\n" for record in records))


def run(executor: ExecutorUnderTest, pipeline: hr.Pipeline, root: Path) -> None:
    for number in range(3):
        land(root, number)
        executor.run(pipeline, root.as_uri())


def rows(pipeline: hr.Pipeline, root: Path, view: str) -> list[dict[str, Any]]:
    left_out = {"all", "epoch", "processing_time", "sequence", "snapshot"}
    found_rows = read(pipeline, root.as_uri(), view=view).to_pylist()
    return sorted(({name: row[name] for name in row if name not in left_out} for row in found_rows), key=repr)


@on_both
@pytest.mark.parametrize("name", ["fixed", "sessions", "chain"])
def test_one_group_of_all_is_a_key_that_is_the_same_everywhere(
    executor: ExecutorUnderTest, name: str, tmp_path: Path
) -> None:
    keyless_pipeline, constant = pipelines(None)[name], pipelines({"all": hr.lit("all")})[name]
    run(executor, keyless_pipeline, tmp_path / "none")
    run(LOCAL, constant, tmp_path / "all")
    for view in ("current", "panes"):
        found_rows = rows(keyless_pipeline, tmp_path / "none", view)
        assert found_rows == rows(constant, tmp_path / "all", view)
        assert found_rows
