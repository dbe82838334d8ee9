"""Columns may be called anything that a pipeline accepts: results are those of plain names."""

from collections.abc import Mapping, Sequence
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
    Input,
    Pipeline,
    Repeatedly,
    col,
    discarding,
    lit,
)
from headrace.errors import PipelineError
from headrace.model.event_time import EventTime, Monotonic
from headrace.model.time import Duration, Instant
from headrace_lab.reference import Epoch, run_pipeline
from tests.kernel.differential import check, run_on_kernel
from tests.reference.naming import NAMES, UNTAKEN, rename_columns
from tests.reference.scenarios import Scenario, scenarios
from tests.reference.strategies import examples, nasty_names

GROUP = "group"
GROUPS = len(UNTAKEN) // 5
"""Of words that are in one pipeline: far from each other in their order, so that case is not all that differs."""


@given(scenarios(), nasty_names(NAMES, UNTAKEN))
@settings(examples(150), suppress_health_check=list(HealthCheck))
def test_random_pipelines_give_the_same_whatever_their_columns_are_called(
    scenario: Scenario, names: Mapping[str, str]
) -> None:
    try:
        renamed_scenario = rename_columns(
            Scenario(replace(scenario.pipeline, deduplicate=None), scenario.epochs), names
        )
    except PipelineError:  # names that differ in case only
        assume(False)
        raise
    note(f"{renamed_scenario.pipeline!r}")
    expected = run_pipeline(renamed_scenario.pipeline, renamed_scenario.epochs)
    for result, reference in zip(
        run_on_kernel(renamed_scenario.pipeline, renamed_scenario.epochs), expected, strict=True
    ):
        check(result, reference)


def in_turns(keys: Sequence[str], aggregates: Sequence[str]) -> Pipeline:
    """Early panes, then those of the watermark's step, reach a stage that keeps the last one."""
    schema = {"user": DataType.STRING, "at": DataType.TIMESTAMP, "x": DataType.INT}
    return Pipeline(
        "turns",
        Input(FileSource("nowhere", "json", schema), EventTime(col("at"), Monotonic())),
        key={key: col("user") for key in keys},
        what={aggregate: col("x").sum() for aggregate in aggregates},
        where=FixedWindows(Duration(10)),
        when=AfterWatermark(early=AfterCount(2)),
        how=discarding(),
        then=[
            Aggregation(
                key={GROUP: lit("all")},
                what={name: col(name).collect() for name in (*keys, *aggregates)},
                where=GlobalWindows(),
                when=Repeatedly(AfterCount(1)),
                how=discarding(keep_last=1),
            )
        ],
        allow_finishing=True,
    )


def last_of(keys: Sequence[str], aggregates: Sequence[str]) -> list[tuple[object, ...]]:
    """The values of the last pane, on the kernel and as the reference gives them."""
    rows = [{"user": user, "at": time, "x": time} for user, time in [("b", 15), ("b", 16), ("a", 1)]]
    pipeline, epochs = in_turns(keys, aggregates), [Epoch(Instant(100), rows)]
    results = [run_on_kernel(pipeline, epochs)[-1].panes, run_pipeline(pipeline, epochs)[-1].panes]
    return [panes[-1].values for panes in results]


def test_a_key_called_moment_changes_nothing() -> None:
    assert last_of(["moment"], ["total"]) == last_of(["user"], ["total"]) == [(("a",), (1,))] * 2


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_whatever_word_of_the_code_a_column_is_called(part: int) -> None:
    """Each word is that of a key, and that of an aggregate, among some others."""
    groups = [[word for word in UNTAKEN[number::GROUPS] if word != GROUP] for number in range(GROUPS)]
    for keys, others in [*zip(groups, groups[1:] + groups[:1], strict=True)][part::8]:
        aggregates = [word for word in others if word.lower() not in map(str.lower, keys)]
        expected = (*[("a",)] * len(keys), *[(1,)] * len(aggregates))
        assert last_of(keys, aggregates) == [expected] * 2, (keys, aggregates)
