"""Random pipelines over landed files, in runs that go on from each other's snapshots: the reference gives the same
panes for the epochs that were recorded, and so does a replay.

CI runs a seeded part; ``make fuzz EXAMPLES=1000`` runs as many fresh ones as one has patience for.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from headrace.engine.session import interpreting
from headrace.engine.types import SparkSession
from headrace.entrypoints.options import Mode, RunOptions
from headrace.entrypoints.process import process
from headrace.entrypoints.reading import read
from headrace.entrypoints.recorded import recorded_epochs
from headrace.model.panes import Pane
from headrace.model.time import GLOBAL_WINDOW_END, MIN_INSTANT, Instant, instant, render, to_datetime
from headrace.pipeline import Pipeline
from headrace.pipeline.inputs import OWN
from headrace.reference import DropCause, Epoch, run_pipeline
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store import open_store
from tests.engine.differential import same
from tests.reference.scenarios import Scenario, scenarios
from tests.reference.strategies import examples

pytestmark = pytest.mark.spark


@dataclass(frozen=True)
class Schedule:
    """After which bundles a run is started; in batch mode after the last one only."""

    runs: Sequence[bool]
    mode: Mode


SCHEDULES = st.builds(
    Schedule,
    st.lists(st.booleans(), min_size=5, max_size=5),
    st.sampled_from([Mode.MICRO_BATCH, Mode.BATCH]),
)


@given(scenarios(), SCHEDULES)
@settings(examples(3), suppress_health_check=list(HealthCheck))
def test_runs_give_what_the_reference_gives(spark: SparkSession, scenario: Scenario, schedule: Schedule) -> None:
    pipeline = scenario.pipeline
    note(f"{pipeline!r}")
    with TemporaryDirectory() as folder:
        root = Path(folder)
        landed = run(interpreting(spark), pipeline, root, scenario.epochs, schedule)
        catalog = Catalog(open_store(root.as_uri()), pipeline.name)
        head = catalog.head().refs.get("main")
        if head is None:  # nothing landed, nothing was due
            return
        recorded = recorded_epochs(catalog, head)
        epochs = [
            Epoch(
                epoch.processing_time,
                [row for file in epoch.files.get(OWN, ()) for row in landed[Path(file.path).name]],
                epoch.is_last,
                epoch.signals,
            )
            for epoch in recorded
        ]
        note(f"{epochs!r}")
        expected = run_pipeline(pipeline, epochs)
        found = panes(pipeline, root, "main", len(epochs))
        manifests = list(catalog.ancestry(head))[::-1]
        for number, (result, manifest) in enumerate(zip(expected, manifests, strict=True)):
            assert_same(found[number], by_window(rendered(pane) for pane in result.panes))
            causes = [drop.cause for drop in result.drops]
            assert manifest.progress["watermark"] == render(result.watermark)
            assert manifest.counts["duplicates"] == causes.count(DropCause.DUPLICATE)
            assert manifest.counts["rejected"] == len(result.rejected)
        if schedule.mode is Mode.MICRO_BATCH:
            replayed = RunOptions("replay", mode=Mode.REPLAY, branch="again")
            process(pipeline, root.as_uri(), replayed, spark=interpreting(spark))
            for again, once in zip(panes(pipeline, root, "again", len(epochs)), found, strict=True):
                assert_same(again, once)


def run(
    spark: SparkSession, pipeline: Pipeline, root: Path, epochs: Sequence[Epoch], schedule: Schedule
) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """Lands the records of each epoch as a file and runs now and then; records by file."""
    landed: dict[str, Sequence[Mapping[str, Any]]] = {}
    clock = MIN_INSTANT
    landing = root / pipeline.source.path
    landing.mkdir()
    for number, epoch in enumerate(epochs):
        clock = Instant(max(clock, epoch.processing_time))
        name = f"{number:04}.json"
        if epoch.records:
            landed[name] = [finite(row) for row in epoch.records]
            (landing / name).write_text("".join(f"{json.dumps(written(row))}\n" for row in landed[name]))
        is_last = number == len(epochs) - 1
        is_batch = schedule.mode is Mode.BATCH
        if is_last or (schedule.runs[number] and not is_batch):
            limit = None if is_batch else 1
            signals = tuple(epoch.signals)
            options = RunOptions(f"run-{number}", mode=schedule.mode, files_per_epoch=limit, signals=signals)
            process(pipeline, root.as_uri(), options, spark=spark, now=lambda: moment(clock))  # noqa: B023 - run at once
    return landed


def finite(row: Mapping[str, Any]) -> dict[str, Any]:
    """A record as JSON can tell it: that knows no NaN and no infinity."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}


def written(row: Mapping[str, Any]) -> dict[str, Any]:
    """A record as a producer writes it."""
    return {
        name: moment(value).isoformat() if name == "at" and value is not None else value for name, value in row.items()
    }


def moment(at: int) -> datetime:
    """An instant as a time in UTC."""
    found = to_datetime(Instant(at))
    assert found is not None
    return found


Windows = dict[Any, list[tuple[Any, ...]]]


def panes(pipeline: Pipeline, root: Path, branch: str, epochs: int) -> list[Windows]:
    """What readers see of each epoch, by (key, window) and in order."""
    found: list[list[tuple[Any, ...]]] = [[] for _ in range(epochs)]
    table = read(pipeline, root.as_uri(), "panes", branch)
    for row in sorted(table.to_pylist(), key=lambda row: (row["epoch"], row["sequence"])):
        key = tuple(row[name] for name in pipeline.stages[-1].key_types)
        values = tuple(plain(row[name]) for name in pipeline.stages[-1].aggregation.what)
        times = [
            None if row[name] is None else instant(row[name]) for name in ("window_start", "window_end", "pane_time")
        ]
        about = [row[name] for name in ("timing", "pane_index", "nonspeculative_index", "is_first", "is_last")]
        found[row["epoch"]].append((key, *times, *about, row["is_retraction"], values))
    return [by_window(rows) for rows in found]


def rendered(pane: Pane) -> tuple[Any, ...]:
    """A pane as ``panes`` gives it: readers see NULL for times without end."""
    ends = (*pane.window, pane.timestamp)
    times = [at if MIN_INSTANT < at < GLOBAL_WINDOW_END - 1 else None for at in ends]
    about = (pane.timing.value, pane.index, pane.nonspeculative_index, pane.is_first, pane.is_last, pane.is_retraction)
    return (pane.key, *times, *about, tuple(plain(value) for value in pane.values))


def plain(value: Any) -> Any:
    """Lists and structs as tuples."""
    if isinstance(value, dict):
        return tuple(plain(part) for part in value.values())
    if isinstance(value, list | tuple):
        return tuple(plain(part) for part in value)
    return value


def by_window(rows: Any) -> Windows:
    """Rows by key and window, in order."""
    found: Windows = {}
    for row in rows:
        found.setdefault(row[:3], []).append(row)
    return found


def assert_same(found: Windows, expected: Windows) -> None:
    """The same rows in each window, in order."""
    assert found.keys() == expected.keys(), (found, expected)
    for place, rows in expected.items():
        assert same(tuple(found[place]), tuple(rows)), (place, found[place], rows)
