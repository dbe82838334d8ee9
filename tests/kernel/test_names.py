"""Columns may be called anything that a pipeline accepts: results are those of plain names."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, note, settings

from headrace import (
    AfterCount,
    AfterWatermark,
    Aggregation,
    DataType,
    FileSource,
    FixedWindows,
    GlobalWindows,
    Pipeline,
    Repeatedly,
    col,
    discarding,
    lit,
)
from headrace.errors import PipelineError
from headrace.model.time import Duration, Instant
from headrace.model.watermarks import Monotonic
from headrace.pipeline.event_time import EventTime
from headrace.pipeline.sources import Input
from headrace.reference import Epoch, run_pipeline
from tests.kernel.differential import check, run_on_kernel
from tests.reference.naming import NAMES, UNTAKEN, renamed
from tests.reference.scenarios import Scenario, scenarios
from tests.reference.strategies import examples, nasty_names


@given(scenarios(), nasty_names(NAMES, UNTAKEN))
@settings(examples(150), suppress_health_check=list(HealthCheck))
def test_random_pipelines_give_the_same_whatever_their_columns_are_called(
    scenario: Scenario, names: Mapping[str, str]
) -> None:
    try:
        called = renamed(Scenario(replace(scenario.pipeline, deduplicate=None), scenario.epochs), names)
    except PipelineError:  # names that differ in case only
        assume(False)
        raise
    note(f"{called.pipeline!r}")
    expected = run_pipeline(called.pipeline, called.epochs)
    for result, reference in zip(run_on_kernel(called.pipeline, called.epochs), expected, strict=True):
        check(result, reference)


def in_turns(key: str, aggregate: str) -> Pipeline:
    """Early panes, then those of the watermark's step, reach a stage that keeps the last one."""
    schema = {"user": DataType.STRING, "at": DataType.TIMESTAMP, "x": DataType.INT}
    return Pipeline(
        "turns",
        Input(FileSource("nowhere", "json", schema), EventTime(col("at"), Monotonic())),
        key={key: col("user")},
        what={aggregate: col("x").sum()},
        where=FixedWindows(Duration(10)),
        when=AfterWatermark(early=AfterCount(2)),
        how=discarding(),
        then=[
            Aggregation(
                key={"group": lit("all")},
                what={"who": col(key).collect(), aggregate: col(aggregate).collect()},
                where=GlobalWindows(),
                when=Repeatedly(AfterCount(1)),
                how=discarding(keep_last=1),
            )
        ],
        allow_finishing=True,
    )


def last_of(key: str, aggregate: str) -> list[tuple[object, ...]]:
    """The values of the last pane, on the kernel and as the reference gives them."""
    rows = [{"user": user, "at": at, "x": at} for user, at in [("b", 15), ("b", 16), ("a", 1)]]
    pipeline, epochs = in_turns(key, aggregate), [Epoch(Instant(100), rows)]
    results = [run_on_kernel(pipeline, epochs)[-1].panes, run_pipeline(pipeline, epochs)[-1].panes]
    return [panes[-1].values for panes in results]


def test_a_key_called_moment_changes_nothing() -> None:
    assert last_of("moment", "total") == last_of("user", "total") == [(("a",), (1,))] * 2


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_whatever_word_of_the_code_a_column_is_called(part: int) -> None:
    for key, aggregate in zip(UNTAKEN[part::8], UNTAKEN[part + 1 :: 8], strict=False):
        if not {"who", "group"} & {key, aggregate} and key.lower() != aggregate.lower():
            assert last_of(key, aggregate) == [(("a",), (1,))] * 2, (key, aggregate)
