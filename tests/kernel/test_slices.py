"""Sliding windows that are aggregated by slice first give what their elements give one by one."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from headrace import (
    AfterAny,
    AfterBytes,
    AfterPattern,
    DataDriven,
    DataType,
    Default,
    FixedWindows,
    How,
    Pipeline,
    Repeatedly,
    SlidingWindows,
    Trigger,
    accumulating,
    col,
    count,
    discarding,
    retracting,
)
from headrace.kernel.delta import AggregatedBundle, aggregate_rows, judge_rows
from headrace.kernel.stage import CompiledStage
from headrace.kernel.windows import assign_windows, slice_starts
from headrace.model.expressions.expr import Aggregate
from headrace.model.time import Instant
from headrace.model.windows import ShiftedOutputTime
from headrace_lab.conformance.values import element_rows
from headrace_lab.reference import run_pipeline
from tests.building import lengths
from tests.kernel import plain_scenarios as plain
from tests.kernel.differential import check, run_on_kernel
from tests.kernel.further_scenarios import build, downstream
from tests.own_combiners import Longest, Span
from tests.own_triggers import Jump
from tests.reference.scenarios import ROWS, Scenario, scenarios
from tests.reference.strategies import examples

SLIDING = st.builds(SlidingWindows, lengths(1, 40), lengths(1, 12), lengths(-5, 15))
MOMENTS = st.integers(-50, 100) | st.integers(-(2**61) + 100, 2**61 - 2000)

SMALL: Mapping[str, Aggregate] = {
    "n": count(),
    "total": col("value").sum(),
    "low": col("value").min(),
    "last": col("value").last(),
    "two": col("value").top(2),
    "around": col("value").approx_distinct(),
    "variance": col("value").variance(),
    "span": col("value").combine(Span()),
    "word": col("user").combine(Longest()),
}
OWN_SUM = DataDriven({"n": count(), "most": col("value").max()}, (col("n") > 2) & (col("most") > 5))
HOWS: Mapping[str, tuple[Trigger, How]] = {
    "plain": (Default(), accumulating("4us")),
    "measured": (Repeatedly(AfterAny(AfterBytes(60), OWN_SUM)), discarding("9us")),
    "earliest": (Default(), accumulating("4us", timestamp="earliest")),
    "latest": (Default(), accumulating(None, timestamp="latest")),
}


OVERLAPPING = SlidingWindows("10us", "5us")
PIPELINE = replace(build(OVERLAPPING, *HOWS["plain"]), what=SMALL)


def both(
    pipeline: Pipeline, rows: list[Any], watermark: int, old_watermark: int, number: int = 0
) -> list[AggregatedBundle]:
    """What ``rows`` are as a bundle of a stage, by slice and one by one."""
    bundles = []
    for by_slice in (True, False):
        stage = CompiledStage(pipeline.stages[number])
        if by_slice:
            assert stage.slides is not None
        else:
            vars(stage)["slides"] = None
        judgements = judge_rows(stage, element_rows(stage.stage.schema, rows))
        bundles.append(aggregate_rows(stage, judgements, Instant(watermark), Instant(old_watermark)))
    return bundles


def check_same(by_slice: AggregatedBundle, one_by_one: AggregatedBundle) -> None:
    assert by_slice.accounting == one_by_one.accounting
    assert (by_slice.late is None) == (one_by_one.late is None)
    if by_slice.late is not None and one_by_one.late is not None:
        for name in ("row", "start", "end", "is_first"):
            np.testing.assert_array_equal(getattr(by_slice.late, name), getattr(one_by_one.late, name))
    if by_slice.delta is None or one_by_one.delta is None:
        assert by_slice.delta is one_by_one.delta is None
        return
    by_slice.delta.validate(full=True)
    assert by_slice.delta.schema == one_by_one.delta.schema
    assert by_slice.delta.to_pylist() == one_by_one.delta.to_pylist()


@examples(300)
@given(SLIDING, st.lists(MOMENTS, max_size=8))
def test_times_of_a_slice_are_in_the_windows_of_its_start(where: SlidingWindows, times: list[int]) -> None:
    instants = np.array(times, np.int64)
    starts = slice_starts(where, instants)
    assert (starts <= instants).all()
    own, of_start = (assign_windows(where, pa.array(each), {}, {}) for each in (instants, starts))
    for name in ("row", "start", "end", "is_first"):
        np.testing.assert_array_equal(getattr(own, name), getattr(of_start, name))


ELEMENTS = st.lists(
    st.tuples(
        st.fixed_dictionaries(
            {"user": st.sampled_from(["ann", "bob", "eve"]), "value": st.none() | st.integers(-9, 9)}
        ),
        st.integers(0, 60),
        st.just(1),
    ),
    min_size=1,
    max_size=60,
)


@pytest.mark.parametrize("name", HOWS)
@given(SLIDING.filter(lambda where: where.size > where.period), ELEMENTS, st.integers(-20, 90), st.integers(-5, 70))
@settings(examples(80), suppress_health_check=list(HealthCheck))
def test_a_delta_is_the_same_by_slice(
    name: str, where: SlidingWindows, rows: list[Any], watermark: int, old_watermark: int
) -> None:
    when, how = HOWS[name]
    small_pipeline = replace(build(ShiftedOutputTime(where, "3us"), when, how), what=SMALL)
    check_same(*both(small_pipeline, rows, watermark, old_watermark))


@given(SLIDING.filter(lambda where: where.size > where.period), st.data(), st.integers(-20, 90))
@settings(examples(60), suppress_health_check=list(HealthCheck))
def test_so_is_one_with_retractions(where: SlidingWindows, data: st.DataObject, watermark: int) -> None:
    upper = build(FixedWindows("10us"), Default(), retracting("25us"))
    lower = replace(
        downstream(Default(), retracting("25us")), where=where, what={"n": count(), "t": col("total").sum()}
    )
    chain = replace(upper, then=(lower,))
    schema = chain.stages[1].schema
    names = [name for name, kind in schema.items() if kind is DataType.INT]
    element = st.tuples(
        st.fixed_dictionaries({"user": st.sampled_from(["ann", "bob"]), **dict.fromkeys(names, st.integers(-9, 9))}),
        st.integers(0, 60),
        st.sampled_from([1, 1, -1]),
    )
    check_same(*both(chain, data.draw(st.lists(element, min_size=1, max_size=40)), watermark, 0, number=1))


@pytest.mark.parametrize(
    "parts",
    [
        {"what": {"all": col("value").collect()}},
        {"how": accumulating("4us", keep_last=3)},
        {"when": Repeatedly(AfterPattern("ab", {"a": col("value") > 1, "b": col("value") > 2}))},
        {"when": Repeatedly(Jump(3))},
        {"where": SlidingWindows("10us", "10us")},
        {"where": FixedWindows("10us")},
    ],
    ids=["bag", "keep_last", "pattern", "own_trigger", "apart", "fixed"],
)
def test_what_slices_would_not_help_is_not_sliced(parts: dict[str, Any]) -> None:
    assert CompiledStage(PIPELINE.stages[0]).slides == OVERLAPPING
    assert CompiledStage(replace(PIPELINE, **parts).stages[0]).slides is None


def test_the_span_of_what_is_accepted_leaves_out_what_is_filtered() -> None:
    """As many windows as rows: one row is in two windows, and another is filtered out."""
    filtered_pipeline = replace(PIPELINE, filter=col("value") > 0)
    rows = [({"user": "ann", "value": value}, time, 1) for value, time in ((1, 20), (0, 90))]
    for bundle in both(filtered_pipeline, rows, 0, 0):
        assert (bundle.accounting.min_accepted, bundle.accounting.max_accepted) == (20, 20)


@given(scenarios(), SLIDING, st.lists(st.lists(ROWS, max_size=40), min_size=1, max_size=3))
@settings(examples(100), suppress_health_check=list(HealthCheck))
def test_random_sliding_windows_give_what_the_reference_gives(
    scenario: Scenario, where: SlidingWindows, bundles: list[list[Any]]
) -> None:
    pipeline = replace(scenario.pipeline, where=where, deduplicate=None)
    note(f"{pipeline!r}")
    old = scenario.epochs[0]
    epochs = [
        replace(old, processing_time=Instant(old.processing_time + i), records=rows, is_last=i == len(bundles) - 1)
        for i, rows in enumerate(bundles)
    ]
    expected = run_pipeline(pipeline, epochs)
    for outcome, reference in zip(run_on_kernel(pipeline, epochs), expected, strict=True):
        check(outcome, reference)


def test_float_sums_are_those_of_the_reference() -> None:
    float_pipeline = plain.build(SlidingWindows("12us", "5us", "1us"), Default(), accumulating("4us"))
    float_pipeline = replace(
        float_pipeline, what={"share": (col("value") / 7).sum(), "mean": (col("value") / 7).mean()}
    )
    epochs = plain.random_epochs(5)
    for outcome, reference in zip(
        run_on_kernel(float_pipeline, epochs), run_pipeline(float_pipeline, epochs), strict=True
    ):
        check(outcome, reference)
