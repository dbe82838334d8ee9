"""Sums of floats that another output takes back: on both executors what is left is as if the others had never come."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import col
from tests.process.executors import ExecutorUnderTest, on_both

pytestmark = pytest.mark.slow  # whole runs

EVERY_UPDATE: dict[str, Any] = {"where": hr.GlobalWindows(), "when": hr.on_update(), "how": hr.retracting()}
SCHEMA = {"id": str, "shop": str, "weight": float, "at": datetime}
PIPELINE = hr.Pipeline(
    "scales",
    hr.json("landing/scales", SCHEMA, max_files=1).event_time("at", bound="1h"),
    outputs={
        "newest": hr.Output(key=["id", "shop"], what={"weight": col("weight").last()}, **EVERY_UPDATE),
        "total": hr.Output(
            of="newest",
            key="shop",
            what={"sum": col("weight").sum(), "mean": col("weight").mean(), "n": hr.count()},
            **EVERY_UPDATE,
        ),
    },
)
STEPS = [
    ((1e17, 1.0), (1e17, 5e16)),
    ((2.0, None), (3.0, 1.5)),
    ((1e308, 1e308), (float("inf"), float("inf"))),
    ((0.1, 0.2), (0.1 + 0.2, (0.1 + 0.2) / 2)),
    ((None, 1e-300), (0.1, 0.05)),
]
"""The weights of two things, where they change, and the sum and the mean then."""


@on_both
def test_a_sum_is_that_of_the_newest_values_whatever_they_were_before(
    executor: ExecutorUnderTest, tmp_path: Path
) -> None:
    folder = tmp_path / "landing" / "scales"
    folder.mkdir(parents=True)
    for number, (weights, expected_values) in enumerate(STEPS):
        lines = [
            json.dumps({"id": f"{thing}", "shop": "a", "weight": weight, "at": f"2026-11-20T00:{number:02}:00Z"})
            for thing, weight in enumerate(weights)
            if weight is not None
        ]
        (folder / f"{number}.jsonl").write_text("\n".join(lines))
        executor.run(PIPELINE, tmp_path.as_uri(), publish=False)
        (row,) = hr.open(tmp_path.as_uri())["scales"]["total"].current(at="main").to_arrow().to_pylist()
        assert (row["sum"], row["mean"], row["n"]) == (*expected_values, 2)
