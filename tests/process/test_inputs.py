"""Several inputs, joins and duplicates, from landed files to panes, held to the reference."""

import json
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace import (
    AfterCount,
    AfterWatermark,
    DataType,
    Deduplicate,
    FileSource,
    FixedWindows,
    Input,
    Pipeline,
    Punctuated,
    SlidingWindows,
    col,
    count,
    retracting,
)
from headrace.model.event_time import BoundedOutOfOrderness, EventTime, Monotonic
from headrace.model.time import Duration, Instant, render, to_datetime, to_instant
from headrace.runs.options import RunOptions
from headrace.sources.landing import DeadLetterBudgetError
from headrace_lab.reference import DropCause, Epoch, EpochResult, run_pipeline
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.store import open_store
from tests.building import pipeline
from tests.process.executors import ExecutorUnderTest
from tests.reading import read

SECOND = Duration(1_000_000)
START = to_instant(datetime(2026, 1, 1, tzinfo=UTC))
EARLY_AND_LATE = AfterWatermark(early=AfterCount(1), late=AfterCount(1))

ORDERS = {"id": DataType.STRING, "user": DataType.STRING, "at": DataType.TIMESTAMP, "amount": DataType.INT}
CLICKS = {"click": DataType.STRING, "who": DataType.STRING, "day": DataType.TIMESTAMP, "cents": DataType.STRING}
COLUMNS = {"id": col("click"), "user": col("who"), "amount": col("cents").cast(DataType.INT) * -1}


def build(**changes: Any) -> Pipeline:
    parts: dict[str, Any] = {
        "name": "inputs",
        "source": FileSource("landing/orders", "json", ORDERS),
        "event_time": EventTime(col("at"), BoundedOutOfOrderness(5 * SECOND)),
        "key": {"user": col("user")},
        "where": FixedWindows(10 * SECOND),
        "when": EARLY_AND_LATE,
        "how": retracting(2 * SECOND),
        "what": {"total": col("amount").sum(), "ids": col("id").collect(), "n": count()},
        "union": (
            Input(
                FileSource("landing/clicks", "json", CLICKS),
                EventTime(col("day"), Monotonic(), split=col("who")),
                "clicks",
                COLUMNS,
            ),
        ),
    }
    return pipeline(**{**parts, **changes})


ASSERTING = Input(
    FileSource("landing/clicks", "json", {**CLICKS, "up_to": DataType.TIMESTAMP}),
    EventTime(col("day"), Punctuated(col("up_to"))),
    "clicks",
    COLUMNS,
)
PIPELINES = {
    "united": build(),
    "once": build(
        deduplicate=Deduplicate(col("id"), 8 * SECOND),
        filter=col("amount") != 3,
        where=SlidingWindows(10 * SECOND, 5 * SECOND),
    ),
    "joined": build(
        what={"pairs": col("order").pairs(col("click"), "both")},
        source=FileSource("landing/orders", "json", {**ORDERS, "order": DataType.INT, "click": DataType.INT}),
        union=(
            Input(
                FileSource("landing/clicks", "json", CLICKS),
                EventTime(col("day"), Monotonic()),
                "clicks",
                {"user": col("who"), "click": col("cents").cast(DataType.INT), "id": col("click")},
            ),
        ),
    ),
    "asserted": build(union=(ASSERTING,)),
}


def rows_of(number: int, seed: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Records of both inputs in one epoch, some of them without what they need."""
    dice = random.Random(f"{seed} {number}")

    def random_time() -> int:
        return START + (number * 6 + dice.randint(-24, 9)) * SECOND

    orders = [
        {
            "id": dice.choice([*"abcdefgh", f"o{number}", None]),
            "user": dice.choice(["ann", "bob", "eve"]),
            "at": dice.choice([random_time(), random_time(), random_time(), None])
            if dice.random() < 0.2
            else random_time(),
            "amount": dice.randint(1, 9),
            "order": dice.randint(1, 5),
        }
        for _ in range(dice.randint(0, 6))
    ]
    clicks = [
        {
            "click": dice.choice([*"abcdefgh", f"c{number}"]),
            "who": dice.choice(["ann", "bob"]),
            "day": random_time() if dice.random() < 0.9 else None,
            "cents": str(dice.randint(1, 9)),
            "up_to": random_time() if dice.random() < 0.3 else None,
        }
        for _ in range(dice.randint(0, 5))
    ]
    return orders, clicks


def land(folder: Path, number: int, rows: list[dict[str, Any]]) -> None:
    def text(name: str, value: Any) -> Any:
        is_time = name in ("at", "day", "up_to") and value is not None
        return to_datetime(Instant(value)).isoformat() if is_time else value

    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({name: text(name, value) for name, value in row.items()}) for row in rows]
    (folder / f"{number:04}.json").write_text("".join(f"{line}\n" for line in lines))


def expected(pipeline: Pipeline, results: list[EpochResult]) -> list[Counter[Any]]:
    return [
        Counter(
            (pane.key, *pane.window, pane.index, pane.timing.value, pane.is_retraction, pane.timestamp, pane.values)
            for pane in result.panes
        )
        for result in results
    ]


def panes_by_epoch(pipeline: Pipeline, root: Path, epochs: int) -> list[Counter[Any]]:
    panes: list[Counter[Any]] = [Counter() for _ in range(epochs)]
    for row in read(pipeline, root.as_uri(), "panes", "main").to_pylist():
        values = tuple(_plain(row[name]) for name in pipeline.what)
        ends = (to_instant(row["window_start"]), to_instant(row["window_end"]))
        seen_pane = (row["pane_index"], row["timing"], row["is_retraction"], to_instant(row["pane_time"]), values)
        panes[row["epoch"]][(row["user"],), *ends, *seen_pane] += 1
    return panes


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return tuple((v["left"], v["right"]) if isinstance(v, dict) else v for v in value)
    return value


def lineage(pipeline: Pipeline, root: Path) -> list[Manifest]:
    catalog = Catalog(open_store(root.as_uri()), pipeline.name)
    return list(reversed(list(catalog.ancestry(catalog.head().refs["main"]))))


@pytest.mark.parametrize("name", PIPELINES)
def test_landed_files_of_all_inputs_give_what_the_reference_gives(
    executor: ExecutorUnderTest, tmp_path: Path, name: str
) -> None:
    pipeline, epochs, clock = PIPELINES[name], 9, datetime(2026, 1, 2, tzinfo=UTC)
    records_by_epoch = [rows_of(number, seed=len(name)) for number in range(epochs)]
    for number, (orders, clicks) in enumerate(records_by_epoch):
        land(tmp_path / "landing/orders", number, orders)
        land(tmp_path / "landing/clicks", number, clicks)
    for limit in (4, None):  # the second run continues from the snapshot of the first
        executor.process(
            pipeline,
            tmp_path.as_uri(),
            RunOptions(f"run-{limit}", files_per_epoch=1, max_epochs=limit),
            now=lambda: clock,
        )
    results = run_pipeline(
        pipeline, [Epoch(to_instant(clock), orders, union={"clicks": c}) for orders, c in records_by_epoch]
    )
    manifests = lineage(pipeline, tmp_path)
    assert [m.progress["watermark"] for m in manifests] == [render(result.watermark) for result in results]
    for number, (ours, theirs) in enumerate(
        zip(panes_by_epoch(pipeline, tmp_path, epochs), expected(pipeline, results), strict=True)
    ):
        assert ours == theirs, number
    counts = [(m.counts["duplicates"], m.counts["late_dropped"], m.counts["rejected"]) for m in manifests]
    assert counts == [(*_drops(result), len(result.rejected)) for result in results]
    late = read(pipeline, tmp_path.as_uri(), "late", "main")
    assert late.num_rows == sum(count for _, count, _ in counts)
    dead = read(pipeline, tmp_path.as_uri(), "rejected", "main").to_pylist()
    assert Counter(row["input"] for row in dead)["clicks"] == sum(
        "cents" in rejection.record for result in results for rejection in result.rejected
    )
    assert sum(late for _, late, _ in counts) > 2
    assert pipeline.deduplicate is None or sum(duplicates for duplicates, _, _ in counts) > 2


def _drops(result: EpochResult) -> tuple[int, int]:
    causes = Counter(drop.cause for drop in result.drops)
    return causes[DropCause.DUPLICATE], causes[DropCause.LATE]


def test_an_idle_input_holds_back_no_other_and_the_manifest_says_who_does(
    executor: ExecutorUnderTest, tmp_path: Path
) -> None:
    waits = Monotonic(idle_timeout=60 * SECOND)
    pipeline = build(union=(Input(build().union[0].source, EventTime(col("day"), waits), "clicks", COLUMNS),))
    begin = datetime(2026, 1, 2, tzinfo=UTC)
    epochs = []

    def run(seconds: int, orders: list[int], clicks: list[int]) -> None:
        number, moment = len(epochs), begin + timedelta(seconds=seconds)
        ours = [{"id": "o", "user": "ann", "at": START + second * SECOND, "amount": 1} for second in orders]
        theirs = [{"click": "c", "who": "ann", "day": START + second * SECOND, "cents": "1"} for second in clicks]
        if ours:
            land(tmp_path / "landing/orders", number, ours)
        if theirs:
            land(tmp_path / "landing/clicks", number, theirs)
        options = RunOptions(f"run-{number}")
        executor.process(pipeline, tmp_path.as_uri(), options, now=lambda: moment)
        epochs.append(Epoch(to_instant(moment), ours, union={"clicks": theirs}))

    run(0, [40], [])
    run(10, [], [12])
    run(70, [], [])
    run(80, [], [13, 36])
    run(300, [90], [])
    manifests, results = lineage(pipeline, tmp_path), run_pipeline(pipeline, epochs)
    assert [m.progress["watermark"] for m in manifests] == [render(result.watermark) for result in results]
    assert [result.watermark for result in results[1:]] == [START + seconds * SECOND for seconds in (12, 35, 35, 85)]
    assert panes_by_epoch(pipeline, tmp_path, len(epochs)) == expected(pipeline, results)
    moments = [render(to_instant(begin + timedelta(seconds=seconds))) for seconds in (10, 0, 80, 300)]
    assert [m.progress["held_back_by"] for m in manifests] == [
        {"input": "clicks", "split": None, "since": None},
        {"input": "clicks", "split": "", "since": moments[0]},
        {"input": "source", "split": "", "since": moments[1]},
        {"input": "source", "split": "", "since": moments[1]},
        {"input": "source", "split": "", "since": moments[3]},
    ]


def test_a_budget_is_held_input_by_input(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    strict = FileSource("landing/clicks", "json", CLICKS, max_rejected=1)
    pipeline = build(union=(Input(strict, EventTime(col("day"), Monotonic()), "clicks", COLUMNS),))
    for number in range(3):
        land(tmp_path / "landing/orders", number, [{"id": "a", "user": "ann", "at": None, "amount": 1}])
    land(tmp_path / "landing/clicks", 0, [{"click": "x", "who": None, "day": START, "cents": "1"}])
    options = RunOptions("modest", files_per_epoch=1)
    assert executor.process(pipeline, tmp_path.as_uri(), options).counts["rejected"] == 4
    land(tmp_path / "landing/clicks", 1, [{"click": "x", "who": None, "day": START, "cents": "1"}] * 2)
    with pytest.raises(DeadLetterBudgetError, match=r"2 records of input clicks and max_rejected is 1.*0001\.json"):
        executor.process(pipeline, tmp_path.as_uri(), options)
