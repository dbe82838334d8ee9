"""Panes that go no further since their key is NULL in the aggregation behind them: dead letters like records."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headrace import AfterCount, Aggregation, GlobalWindows, Pipeline, Repeatedly, col, count, retracting
from headrace.model.expressions.columns import if_else
from headrace.model.time import to_instant
from headrace.runs.options import RunOptions
from headrace_lab.reference import Epoch, run_pipeline
from tests.process.clicks import CLICKS, land, records
from tests.process.executors import ExecutorUnderTest, on_both
from tests.reading import read

NOW = datetime(2026, 2, 1, tzinfo=UTC)
FILES = 3


def aggregation_by(key: Mapping[str, Any]) -> Aggregation:
    return Aggregation(
        key=key, where=GlobalWindows(), when=Repeatedly(AfterCount(1)), how=retracting(), what={"users": count()}
    )


MODEST = aggregation_by({"spent": if_else(col("spent") < 40, col("spent"), None), "user": col("user")})
EVEN = aggregation_by({"even": if_else(col("spent") % 2 == 0, col("spent"), None)})


@on_both
def test_panes_with_a_null_key_are_dead_letters_of_every_later_aggregation(
    executor: ExecutorUnderTest, tmp_path: Path
) -> None:
    pipeline = replace(CLICKS, then=(MODEST, EVEN))
    land(tmp_path, 0, FILES)
    with_null = [{"user": None, "at": "2026-01-01T00:00:00Z", "price": 1}]
    (tmp_path / "landing/clicks" / "part-00001a.jsonl").write_text(json.dumps(with_null[0]) + "\n")
    result = executor.process(pipeline, tmp_path.as_uri(), RunOptions("run"), now=lambda: NOW)
    dead = read(pipeline, tmp_path.as_uri(), "rejected", "main").to_pylist()
    rejected_counts = Counter(
        (row["epoch"], row["input"], row["reason"], *essence(json.loads(row["raw"]))) for row in dead
    )
    assert rejected_counts == Counter(expected(pipeline, [records(0), records(1), with_null, records(2)]))
    assert {row["input"] for row in dead} == {"source", "aggregation 1", "aggregation 2"}
    assert all((row["file"] is None) == (row["input"] != "source") for row in dead)
    signs = Counter(json.loads(row["raw"])["is_retraction"] for row in dead if row["input"] == "aggregation 1")
    assert signs[False] > signs[True] > 0, "what is withdrawn was a dead letter, too"
    assert (result.counts["rejected"], result.counts["rejected_panes"]) == (1, len(dead) - 1)


def expected(pipeline: Pipeline, files: list[list[dict[str, Any]]]) -> list[tuple[Any, ...]]:
    """What the reference rejects."""
    given_rows = [[{**row, "at": to_instant(datetime.fromisoformat(row["at"]))} for row in rows] for rows in files]
    results = run_pipeline(pipeline, [Epoch(to_instant(NOW), rows) for rows in given_rows])
    return [
        (
            epoch,
            f"aggregation {rejection.stage}" if rejection.stage else "source",
            f"key is null: {rejection.column}",
            *essence(rejection.record),
        )
        for epoch, result in enumerate(results)
        for rejection in result.rejected
    ]


def essence(record: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(record.get(name) for name in ("user", "price", "clicks", "spent", "users"))
