"""Random pipelines and steps: the kernel gives what the reference gives."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from headrace import DataType
from headrace.ext.sources import Instant
from headrace.testing import PaneRow, Step, StepResults, run, together, watermark
from headrace_lab.reference import Epoch
from headrace_lab.reference.evaluate import Record
from tests.panes import same
from tests.process.random_runs import finite
from tests.process.wider import wider_scenarios
from tests.reference.scenarios import Scenario
from tests.reference.strategies import examples


def moment(microseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)


def as_rows(records: Iterable[Record], schema: Mapping[str, Any], format_: str) -> tuple[dict[str, Any], ...]:
    """Records as users write them."""
    told_records = records if format_ == "parquet" else map(finite, records)
    return tuple(
        {
            name: moment(value) if value is not None and schema[name] is DataType.TIMESTAMP else value
            for name, value in row.items()
        }
        for row in told_records
    )


def as_steps(scenario: Scenario) -> list[Step]:
    """Its epochs, under a clock that does not go back."""
    clocks = accumulate((epoch.processing_time for epoch in scenario.epochs), max)
    return [as_step(scenario, epoch, now) for epoch, now in zip(scenario.epochs, clocks, strict=True)]


def as_step(scenario: Scenario, epoch: Epoch, now: Instant) -> Step:
    sources = {each.name: each.source for each in scenario.pipeline.inputs}
    parts = {"source": epoch.records, **epoch.union}
    return Step(
        {name: as_rows(records, sources[name].types, sources[name].format) for name, records in parts.items()},
        processing_time=now,
        signals=tuple(each for each in epoch.signals if each.name in scenario.pipeline.signals),
        is_last=epoch.is_last,
    )


def plain(pane: PaneRow) -> tuple[Any, ...]:
    values = tuple(_plain(value) for value in pane.values.values())
    attributes = (pane.timing, pane.index, pane.is_retraction, pane.is_first, pane.is_last, pane.time)
    return (*pane.key.values(), pane.window, *attributes, *values)


def by_window(outcome: StepResults) -> tuple[Any, ...]:
    """The panes of each (key, window) in order."""
    panes_by_window: dict[Any, list[Any]] = {}
    for pane in outcome.panes:
        panes_by_window.setdefault((*pane.key.values(), pane.window), []).append(plain(pane))
    return tuple((place, tuple(panes)) for place, panes in sorted(panes_by_window.items(), key=repr))


def _plain(value: Any) -> Any:
    return tuple(_plain(each) for each in value) if isinstance(value, list | tuple) else value


def accounts(outcome: StepResults) -> tuple[Any, ...]:
    late = [{name: value for name, value in row.items() if name not in ("input", "raw")} for row in outcome.late]
    rejected_rows = [{name: value for name, value in row.items() if name != "raw"} for row in outcome.rejected]
    order = repr
    return (outcome.watermark, outcome.ahead, sorted(late, key=order), sorted(rejected_rows, key=order))


@pytest.mark.slow
@given(wider_scenarios(), st.lists(st.tuples(st.integers(0, 5), st.integers(-10, 70)), max_size=3))
@settings(examples(15), suppress_health_check=list(HealthCheck))
def test_the_kernel_gives_what_the_reference_gives(scenario: Scenario, watermarks: list[tuple[int, int]]) -> None:
    steps = as_steps(scenario)
    for place, mark in watermarks:
        step = min(place, len(steps) - 1)
        steps[step] = together(steps[step], watermark(moment(mark)))
    note(f"{scenario.pipeline!r} {steps!r}")
    result, expected = (run(scenario.pipeline, steps, executor=name) for name in ("local", "reference"))
    for one, other in zip(result.steps, expected.steps, strict=True):
        assert same(by_window(one), by_window(other)), (one.panes, other.panes)
        assert accounts(one) == accounts(other)
        assert [(p.key, p.window) for p in one.current] == [(p.key, p.window) for p in other.current]
