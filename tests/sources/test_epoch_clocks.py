"""Watermarks, percentile watermarks and splits of landed records are those of the reference, epoch by epoch, also when
an epoch continues from what a manifest says.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from headrace import (
    AfterAny,
    AfterWatermark,
    DataType,
    FileSource,
    FixedWindows,
    Input,
    Pipeline,
    Punctuated,
    col,
    count,
    discarding,
)
from headrace.distribute.local import LocalEngine
from headrace.ext.sources import SourceSplit
from headrace.model.event_time import BoundedOutOfOrderness, EventTime, Monotonic, SplitStrategy
from headrace.model.time import MIN_INSTANT, Duration, Instant, parse_instant, render
from headrace.model.triggers import Trigger
from headrace.model.triggers.elementary import AfterPercentileWatermark
from headrace.pipeline.endpoints import OWN
from headrace.runs.commits import attempts_of
from headrace.sources.landing import Landing
from headrace.sources.progress import PipelineProgress
from headrace.sources.source_clock import SourceClock
from headrace_lab.reference.intake import EpochInput, Intake
from headrace_lab.reference.source_clock import SourceClock as ReferenceClock
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.codec import Fields
from headrace_snapshots.store.local import MemoryStore
from tests.building import change_pipeline
from tests.reference.strategies import examples

Record = dict[str, Any]

START = parse_instant("2026-01-01T00:00:00Z")
BASE = Pipeline(
    name="clocks",
    input=Input(
        FileSource(
            "landing",
            "json",
            {
                "user": DataType.STRING,
                "site": DataType.STRING,
                "n": DataType.INT,
                "at": DataType.TIMESTAMP,
                "until": DataType.TIMESTAMP,
            },
        ),
        EventTime(col("at"), Monotonic()),
    ),
    key={"user": col("user")},
    where=FixedWindows(timedelta(days=400)),
    when=AfterWatermark(),
    how=discarding("0s"),
    what={"n": count()},
)


@dataclass(frozen=True)
class Epoch:
    """Files of records, how long after the epoch before it runs, and whether a restore comes before it."""

    files: tuple[tuple[Record, ...], ...]
    pause: int
    restored: bool
    is_last: bool = False


@dataclass(frozen=True)
class Scenario:
    pipeline: Pipeline
    epochs: tuple[Epoch, ...]


def percentile(*percentiles: float) -> Trigger:
    leaves = [AfterPercentileWatermark(q) for q in percentiles]
    return AfterWatermark(early=AfterAny(*leaves) if len(leaves) > 1 else leaves[0])


@cache
def epochs_of(unit: int) -> st.SearchStrategy[list[Epoch]]:
    """Of files whose times are multiples of ``unit``."""
    time = st.integers(-10, 30).map(lambda n: Instant(START + n * unit))
    record = st.fixed_dictionaries(
        {
            "user": st.sampled_from(["ann", "bob", "bob", None]),
            "site": st.sampled_from(["x", "x", "y", "z", None]),
            "at": st.one_of(time, time, time, st.none()),
        },
        optional={"n": st.integers(0, 2), "until": st.none() | time},
    )
    file = st.lists(record, max_size=8).map(tuple)
    pause = st.integers(0, 4).map(lambda n: n * 1_000_000)
    epoch = st.builds(Epoch, st.lists(file, max_size=2).map(tuple), pause, st.booleans())
    return st.lists(epoch, min_size=2, max_size=5)


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    """Times are a few multiples of a unit, so that they meet bounds, timeouts and each other."""
    unit = draw(st.sampled_from([1, 1_000, 3_600_000_000]))
    idle = draw(st.none() | st.integers(1, 6))
    timeout = None if idle is None else Duration(idle * 1_000_000)
    bound = draw(st.integers(0, 6)) * unit + draw(st.sampled_from([0, 0, 1, 7]))
    strategy: SplitStrategy = draw(
        st.sampled_from(
            [
                BoundedOutOfOrderness(Duration(bound), timeout),
                BoundedOutOfOrderness(Duration(bound), timeout),
                Monotonic(timeout),
                Punctuated(col("until"), timeout),
            ]
        )
    )
    expected = draw(st.sampled_from([(), (), (50,), (75, 99.5), (100,)]))
    pipeline = change_pipeline(
        BASE,
        event_time=EventTime(
            col("at"),
            strategy,
            draw(st.sampled_from([None, col("site"), col("site")])),
            draw(st.sampled_from([Duration(86_400_000_000), None, Duration(0), Duration(8 * unit)])),
        ),
        when=percentile(*expected) if expected else BASE.when,
        filter=draw(st.sampled_from([None, col("n") > 0])),
    )
    return Scenario(pipeline, tuple(draw(epochs_of(unit))))


def record_of(site: str | None, time: int | None, **more: Any) -> Record:
    return {"user": "ann", "site": site, "n": 1, "at": None if time is None else START + time, **more}


YEARS = Duration(300_000_000_000_007)
"""A bound of nine years: floats are too coarse for lags in hundredths of it."""

LONG_LAGS = Scenario(
    change_pipeline(
        BASE, event_time=EventTime(col("at"), BoundedOutOfOrderness(YEARS), col("site")), when=percentile(50.0, 99.0)
    ),
    (
        Epoch(((record_of("x", 0),),), 0, False),
        Epoch(
            (tuple(record_of("x", -(n * YEARS // 100) - more) for n in range(1, 100, 7) for more in (0, 1)),), 1, True
        ),
    ),
)
SPLITS = Scenario(
    change_pipeline(
        BASE,
        event_time=EventTime(col("at"), BoundedOutOfOrderness("100us", "3000000us"), col("site")),
        when=percentile(50.0),
        filter=col("n") > 0,
    ),
    (
        Epoch(((record_of("x", 500), record_of("y", 10)), (record_of(None, 300, n=0), record_of("z", None))), 0, False),
        Epoch(((record_of("x", 420), record_of("x", 650), record_of("y", 11), record_of("z", 5)),), 2_000_000, True),
        Epoch(((record_of("x", 640),),), 2_000_000, True),
        Epoch((), 1_000_000, True),
        Epoch(((record_of("y", 12, user=None), record_of("y", 40)),), 0, False),
    ),
)
AHEAD_SCENARIO = Scenario(
    change_pipeline(
        BASE, event_time=EventTime(col("at"), BoundedOutOfOrderness("100us"), col("site")), filter=col("n") > 0
    ),
    (
        Epoch(((record_of("x", 500), record_of("y", 10), record_of("z", YEARS)),), 0, False),
        Epoch(
            (
                (record_of("x", YEARS, n=0), record_of("y", 86_400_000_001), record_of("x", 420)),
                (record_of("y", YEARS, user=None),),
            ),
            0,
            False,
        ),
        Epoch(((record_of("x", 86_400_000_001), record_of("y", 86_400_000_001)),), 1_000_000, True),
    ),
)
CONTROLS = Scenario(
    change_pipeline(BASE, event_time=EventTime(col("at"), Punctuated(col("until"), "3000000us"), col("site"))),
    (
        Epoch(((record_of("x", 5), record_of("y", None, until=START + 9)),), 0, False),
        Epoch(((record_of("x", None, until=START + 4, user=None), record_of("y", None)),), 1_000_000, True),
        Epoch(((record_of("x", 7), record_of("y", 1, until=START + 2)),), 2_000_000, True),
        Epoch((), 3_000_000, True),
        Epoch(((record_of("x", 8),),), 0, True, is_last=True),
    ),
)


def assert_same(
    source_clock: SourceClock, expected: ReferenceClock, percentiles: Collection[float], where: str
) -> None:
    # without a trigger that looks at them nobody counts lags; the reference does
    splits = expected.splits
    if not percentiles:
        splits = {name: replace(split, lags={}) for name, split in splits.items()}
    assert source_clock.splits == splits, where
    assert source_clock.watermark == expected.watermark, (
        f"{where}: {render(source_clock.watermark)}, {render(expected.watermark)}"
    )
    assert {q: source_clock.percentiles.get(q, MIN_INSTANT) for q in percentiles} == expected.percentiles, where


class Expected:
    """The reference's clock of the same epochs."""

    def __init__(self, pipeline: Pipeline, percentiles: Collection[float]) -> None:
        self.intake = Intake(pipeline, percentiles)
        self.clock = self.intake._inputs[OWN].clock

    def run(self, epoch: Epoch, now: Instant) -> int:
        """How many records were ahead."""
        inputs = {"": EpochInput()}
        self.intake.take(OWN, [record for records in epoch.files for record in records], now, inputs)
        self.intake.advance(now, epoch.is_last)
        return len(inputs[""].ahead)


def check(scenario: Scenario) -> None:
    """Whether every epoch moves the clock as in the reference."""
    store = MemoryStore()
    attempts = attempts_of(Catalog(store, scenario.pipeline.name))
    engine = LocalEngine(scenario.pipeline, store, Landing(scenario.pipeline, store), attempts)
    wanted_percentiles = engine.work.percentiles
    expected, now = Expected(scenario.pipeline, wanted_percentiles), START
    for number, epoch in enumerate(scenario.epochs):
        now = Instant(now + epoch.pause)
        if epoch.restored:  # the state of windows is not what this is about
            written_document = json.loads(
                json.dumps({**engine.progress.to_json(), **engine.progress.reading_to_json()})
            )
            recent = {name: each.recent for name, each in engine.progress.offsets.items()}
            engine.restore(engine.epoch, PipelineProgress.from_json(Fields(written_document, "progress"), recent), {})
        engine.compute({OWN: land(store, epoch, number)}, now, is_last=epoch.is_last)
        records_ahead = expected.run(epoch, now)
        found_progress = engine.progress
        assert sum(each.records for each in found_progress.ahead) == records_ahead
        clock = replace(
            SourceClock.from_progress(scenario.pipeline.event_time, found_progress.inputs[OWN]),
            watermark=found_progress.watermark,
        )
        assert_same(clock, expected.clock, wanted_percentiles, f"epoch {number}")


@given(scenarios())
@settings(examples(60), suppress_health_check=list(HealthCheck))
def test_random_epochs_move_the_clock_as_the_reference_does(scenario: Scenario) -> None:
    note(f"{scenario.pipeline.event_time!r}, {scenario.pipeline.when!r}")
    check(scenario)


@pytest.mark.parametrize("name", ["splits", "controls", "long lags", "ahead"])
def test_these_epochs_move_the_clock_as_the_reference_does(name: str) -> None:
    check({"splits": SPLITS, "controls": CONTROLS, "long lags": LONG_LAGS, "ahead": AHEAD_SCENARIO}[name])


def land(store: MemoryStore, epoch: Epoch, number: int) -> list[SourceSplit]:
    def format_record(record: Record) -> Record:
        times = {name: render(record[name]) for name in ("at", "until") if record.get(name) is not None}
        return {**record, **times}

    splits = []
    for part, records in enumerate(epoch.files):
        text = "".join(json.dumps(format_record(record)) + "\n" for record in records)
        info = store.write(f"landing/{number}-{part}.jsonl", text.encode())
        splits.append(SourceSplit(info.path, info.size, info.etag))
    return splits
