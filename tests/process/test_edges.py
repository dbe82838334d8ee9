"""Pipelines at the edge of what is allowed: odd names, marks beyond the calendar, windows open as input ends."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import headrace as hr
from headrace import (
    AfterCount,
    DataType,
    FileSource,
    FixedWindows,
    GlobalWindows,
    Pipeline,
    Punctuated,
    Repeatedly,
    accumulating,
    col,
    count,
    retracting,
)
from headrace.testing import TemporaryDeployment
from tests.building import change_pipeline
from tests.process.clicks import CLICKS, FILES, USERS, land, records, truth
from tests.process.executors import ExecutorUnderTest
from tests.reading import read

NOW = datetime(2026, 2, 1, tzinfo=UTC)


def run(executor: ExecutorUnderTest, pipeline: Pipeline, root: Path, **options: Any) -> hr.types.RunResult:
    result: hr.types.RunResult = TemporaryDeployment(root).run(
        pipeline, executor=executor.executor, at=NOW, publish=False, **options
    )
    return result


def test_a_column_may_have_a_name_that_is_short_for_something(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    pipeline = replace(CLICKS, key={"p": col("user")}, what={"newest": count()})
    land(tmp_path, 0, 2)
    run(executor, pipeline, tmp_path)
    rows = read(pipeline, tmp_path.as_uri(), "current", "main").to_pylist()
    assert {(row["p"], row["window_start"]): row["newest"] for row in rows} == {
        place: clicks for place, (clicks, _) in truth(2).items()
    }


def test_what_is_asserted_beyond_the_calendar_is_a_dead_letter(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    kinds = {"user": DataType.STRING, "at": DataType.TIMESTAMP, "price": DataType.INT, "until": DataType.TIMESTAMP}
    asserting = change_pipeline(
        CLICKS,
        source=FileSource("landing", "json", kinds),
        event_time=CLICKS.source.event_time("at", watermark=Punctuated(col("until"))).event_time,
    )
    lines: list[Mapping[str, Any]] = [
        {"user": "u", "at": "2026-01-01T00:00:00Z", "until": "2026-01-01T02:00:00Z"},
        {"until": "9999-12-31T23:59:59-10:00"},
        {"user": "u", "at": "2026-01-01T00:00:00Z", "until": "0001-01-01T00:00:00Z"},
    ]
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "a.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = run(executor, asserting, tmp_path)
    assert result.watermark == "2026-01-01T02:00:00Z"
    dead = read(asserting, tmp_path.as_uri(), "rejected", "main").to_pylist()
    reason = "asserted watermark is outside the years 1900 to 9998"
    assert [(row["position"], row["reason"]) for row in dead] == [(1, reason), (2, reason)]


def test_lateness_may_be_longer_than_time(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    pipeline = replace(CLICKS, how=accumulating(timedelta.max))
    land(tmp_path)
    run(executor, pipeline, tmp_path)
    rows = read(pipeline, tmp_path.as_uri(), "current", "main").to_pylist()
    assert {(row["user"], row["window_start"]) for row in rows} == {*truth(FILES)}


def test_a_window_that_never_expires_gives_its_pane_when_input_ends(
    executor: ExecutorUnderTest, tmp_path: Path
) -> None:
    when = Repeatedly(AfterCount(FILES * USERS * 4 + 1))
    how = accumulating(allowed_lateness=None)
    pipeline = replace(CLICKS, where=GlobalWindows(), when=when, how=how, allow_finishing=True)
    land(tmp_path)
    result = run(executor, pipeline, tmp_path, batch=True)
    assert (result.status, result.watermark, result.counts["panes"]) == ("succeeded", "+inf", USERS)


def test_one_mistaken_date_is_named_and_makes_nothing_late(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    land(tmp_path, 0, 2)
    wild = {"user": "u0", "at": "9998-06-01T00:00:00Z", "price": 7}
    (tmp_path / "landing" / "clicks" / "part-00000-a.jsonl").write_text(f"\n{json.dumps(wild)}\n")
    result = run(executor, CLICKS, tmp_path)
    assert (result.counts["records"], result.counts["accepted"], result.counts["late_dropped"]) == (161, 161, 0)
    latest = max(datetime.fromisoformat(str(record["at"])) for record in records(1))
    assert datetime.fromisoformat(str(result.watermark)) == latest - timedelta(minutes=10)
    (warning,) = result.warnings
    assert "file landing/clicks/part-00000-a.jsonl record 1, dated 9998-06-01T00:00:00Z" in warning
    assert "max_ahead" in warning
    rows = read(CLICKS, tmp_path.as_uri(), "current", "main").to_pylist()
    assert len(rows) == len(truth(2)) + 1


def test_a_run_that_drops_much_as_late_says_so_last(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    prompt = change_pipeline(
        CLICKS,
        how=retracting(),
        where=FixedWindows(timedelta(minutes=15)),
        event_time=CLICKS.source.event_time("at", bound="0s").event_time,
    )
    land(tmp_path, 0, 2)
    result = run(executor, prompt, tmp_path)
    assert result.counts["late_dropped"] > 1.6
    assert result.warnings[-1].startswith(f"{result.counts['late_dropped']} late drops of 160 records, more than 1%.")
