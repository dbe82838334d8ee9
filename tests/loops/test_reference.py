"""Loops in whole pipelines on the reference: windows, lateness, dead letters, bounds, beside plain computations."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.errors import IntegerOverflowError
from headrace.model.accumulation import Timing
from headrace.model.time import Instant, is_finite
from headrace_lab.reference import DropCause, Epoch, EpochResult, PipelineRun, fold_current, run_pipeline
from headrace_lab.reference.elements import Pane
from tests.loops.graphs import Cut, Edge, cuts
from tests.loops.pipelines import LOOPS, SECOND, answers, epochs, links, pipeline, record, scenarios
from tests.reference.scenarios import Scenario
from tests.reference.strategies import examples

ROUNDS = st.sampled_from([1, 2, 3, None])
by_loop = pytest.mark.parametrize("name", LOOPS)


def place_of_pane(pane: Pane) -> tuple[int | None, Any]:
    """The start of the window of ``pane`` in seconds, and its vertex."""
    return (pane.window.start // SECOND if is_finite(pane.window.start) else None), pane.key[0]


def current(results: Sequence[EpochResult]) -> dict[tuple[int | None, Any], Any]:
    """The newest value of each vertex of each window."""
    folded_panes = fold_current(pane for result in results for pane in result.panes)
    return {place_of_pane(pane): pane.values[0] for pane in folded_panes.values()}


def panes_in_words(result: EpochResult) -> list[str]:
    """The panes of an epoch in words."""
    return [
        f"{'-' if pane.is_retraction else ''}{pane.key[0]} {pane.values[0]} {pane.timing.value}"
        for pane in result.panes
    ]


@by_loop
@pytest.mark.parametrize("width", [None, 10])
@given(cut=cuts(times=35), rounds=ROUNDS)
@settings(examples(60))
def test_each_epoch_with_nothing_in_flight_shows_the_answer(
    name: str, width: int | None, cut: Cut, rounds: int | None
) -> None:
    known_loop = LOOPS[name]
    where = hr.GlobalWindows() if width is None else hr.FixedWindows(f"{width}s")
    run = PipelineRun(pipeline(known_loop.with_rounds(rounds), where=where, input=links("100s")))
    results: list[EpochResult] = []
    so_far: list[Edge] = []
    for epoch, edges in zip(epochs(cut), cut.epochs, strict=True):
        results.append(run.run(epoch))
        so_far += edges
        if not results[-1].in_flight:
            assert current(results) == answers(known_loop, so_far, width)
    while results[-1].in_flight:
        results.append(run.run(Epoch(Instant(100 * SECOND))))
        assert results[-1].panes
    assert current(results) == answers(known_loop, so_far, width)
    assert not run.run(Epoch(Instant(200 * SECOND))).panes


@by_loop
@given(cut=cuts(times=35), rounds=ROUNDS)
@settings(examples(40))
def test_the_end_of_the_input_leaves_nothing_in_flight(name: str, cut: Cut, rounds: int | None) -> None:
    known_loop = LOOPS[name]
    definition = pipeline(
        known_loop.with_rounds(rounds), where=hr.FixedWindows("10s"), when=hr.AfterWatermark(), input=links("100s")
    )
    given_all = [edge for edges in cut.epochs for edge in edges]
    whole = run_pipeline(definition, [Epoch(Instant(0), [*map(record, given_all)], is_last=True)])
    *epochs_before, last = epochs(cut)
    parts = run_pipeline(definition, [*epochs_before, Epoch(last.processing_time, last.records, is_last=True)])
    for results in (whole, parts):
        assert not results[-1].in_flight
        assert current(results) == answers(known_loop, given_all, 10)
        panes = [pane for result in results for pane in result.panes]
        assert {(pane.timing, pane.is_retraction, pane.is_last) for pane in panes} <= {(Timing.ON_TIME, False, True)}


@given(scenarios())
@settings(examples(150))
def test_readers_never_see_a_value_get_worse_nor_one_of_the_wrong_edges(scenario: Scenario) -> None:
    definition = scenario.pipeline
    assert definition.loop is not None
    if definition.then:
        return
    is_better = (lambda one, other: one < other) if definition.loop.keeps_least else (lambda one, other: one > other)
    newest: dict[Any, Pane] = {}
    for result in run_pipeline(definition, scenario.epochs):
        for pane in result.panes:
            place = (pane.key, pane.window)
            if pane.is_retraction:
                assert newest[place].values == pane.values
            else:
                assert place not in newest or not is_better(newest[place].values[0], pane.values[0])
                newest[place] = pane


def test_a_window_is_not_on_time_while_something_is_in_flight() -> None:
    path = [Edge("a", "b", 1, 1), Edge("b", "c", 1, 2)]
    definition = pipeline(
        hr.Loop(start=col("vertex"), step=col("value"), combine="least", rounds=2),
        where=hr.FixedWindows("10s"),
        when=hr.on_update(),
        how=hr.retracting("5s"),
    )
    first, second, third = run_pipeline(
        definition,
        [
            Epoch(Instant(0), [record(edge) for edge in [*path, Edge("x", "y", 1, 40)]]),
            Epoch(Instant(1)),
            Epoch(Instant(2), [record(Edge("a", "b", 1, 3))]),
        ],
    )
    assert panes_in_words(first) == ["a a EARLY", "b a EARLY", "c b EARLY", "x x EARLY", "y x EARLY"]
    assert {(vertex, value) for (vertex, _), value in first.in_flight.items()} == {("c", "a")}
    assert (first.watermark, first.output_watermarks) == (10 * SECOND - 1, (10 * SECOND - 1,))
    assert panes_in_words(second) == [
        *("-c b EARLY", "c a EARLY"),
        *("-a a EARLY", "a a ON_TIME", "-b a EARLY", "b a ON_TIME", "-c a EARLY", "c a ON_TIME"),
    ]
    assert second.output_watermarks == (40 * SECOND,)
    assert [(drop.cause, drop.is_late) for drop in third.drops] == [(DropCause.LATE, True)]
    assert not third.panes


def test_an_edge_behind_the_watermark_counts_until_its_window_expires() -> None:
    definition = pipeline(
        LOOPS["components"].with_rounds(1), where=hr.FixedWindows("10s"), when=hr.on_update(), how=hr.retracting("20s")
    )
    run = PipelineRun(definition)
    run.run(Epoch(Instant(0), [record(Edge("b", "c", 0, 1)), record(Edge("x", "y", 0, 25))]))
    run.run(Epoch(Instant(1)))
    late = run.run(Epoch(Instant(2), [record(Edge("a", "b", 0, 2))]))
    assert panes_in_words(late) == ["a a LATE"]
    assert run.run(Epoch(Instant(3), [record(Edge("x", "y", 0, 60))])).output_watermarks == (25 * SECOND,)
    last = run.run(Epoch(Instant(4)))
    assert panes_in_words(last)[:2] == ["-c b ON_TIME", "c a LATE"]
    dropped_result = run.run(Epoch(Instant(5), [record(Edge("0", "a", 0, 2))]))
    assert [(drop.element.key[:2], drop.cause) for drop in dropped_result.drops] == [(("0", "a"), DropCause.LATE)]


@pytest.mark.parametrize(("horizon", "dropped_record"), [("1s", 1), ("1m", 0)])
def test_duplicates_are_told_by_the_watermark_of_the_source(horizon: str, dropped_record: int) -> None:
    """What is in flight keeps the window open, and no id longer."""
    definition = pipeline(
        LOOPS["components"].with_rounds(1),
        where=hr.FixedWindows("10s"),
        deduplicate=hr.Deduplicate(hr.concat(col("a"), col("b")), horizon),
    )
    way = [record(Edge(a, b, 0, 1)) for a, b in ("ab", "bc", "cd")]
    _, second = run_pipeline(
        definition,
        [Epoch(Instant(0), [*way, record(Edge("x", "y", 0, 40))]), Epoch(Instant(1), [record(Edge("0", "a", 0, 2))])],
    )
    assert second.watermark == 10 * SECOND - 1
    assert [drop.cause for drop in second.drops] == [DropCause.LATE] * dropped_record
    assert ("0 0 EARLY" in panes_in_words(second)) != bool(dropped_record)


def test_edges_that_no_loop_can_go_over_are_dead_letters_and_say_nothing() -> None:
    rows = [
        record(Edge("v00", "b", -1, 50)),
        {**record(Edge("v00", "b", 1, 50)), "weight": None},
        {**record(Edge("v00", "b", 1, 50)), "b": None},
        record(Edge("v00", "b", 2, 1)),
    ]
    (result,) = run_pipeline(pipeline(LOOPS["paths"].with_rounds()), [Epoch(Instant(0), rows)])
    assert [rejection.column for rejection in result.rejected] == [
        "the step of the loop descends: weight",
        "the step of the loop is null: weight",
        "b",
    ]
    assert result.watermark == SECOND
    assert panes_in_words(result) == ["b 2 EARLY", "v00 0 EARLY"]


def test_the_filter_comes_before_the_weight_is_asked() -> None:
    rows = [record(Edge("v00", "b", -1, 50)), record(Edge("v00", "c", 1, 1))]
    (result,) = run_pipeline(
        pipeline(LOOPS["paths"].with_rounds(), filter=col("weight") > 0), [Epoch(Instant(0), rows)]
    )
    assert not result.rejected
    assert result.watermark == 50 * SECOND
    assert panes_in_words(result) == ["c 1 EARLY", "v00 0 EARLY"]


def test_a_path_that_leaves_the_integers_is_an_error() -> None:
    far = 2**62
    rows = [record(Edge("v00", "b", far, 1)), record(Edge("b", "c", far, 1))]
    with pytest.raises(IntegerOverflowError, match=r"value [+] weight"):
        run_pipeline(pipeline(LOOPS["paths"].with_rounds()), [Epoch(Instant(0), rows)])
