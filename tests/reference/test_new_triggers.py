"""Triggers that Beam lacks, in whole pipelines: data-driven, patterns, signals (semantics 9.3, 9.6, 12.7)."""

from typing import Any

import pytest

from headrace import (
    AfterCount,
    AfterEach,
    AfterPattern,
    AfterSignal,
    AfterWatermark,
    Aggregation,
    DataDriven,
    DataType,
    FileSource,
    FixedWindows,
    OrFinally,
    Pipeline,
    Repeatedly,
    Sessions,
    Signal,
    Trigger,
    col,
    count,
    discarding,
)
from headrace.errors import PipelineError
from headrace.model.event_time import BoundedOutOfOrderness, EventTime
from headrace.model.time import Instant
from headrace.model.windows import Window
from headrace_lab.reference import Epoch, PipelineRun
from tests.building import pipeline

X = col("x")


def build(when: Trigger, **changes: Any) -> Pipeline:
    schema = {"user": DataType.STRING, "at": DataType.TIMESTAMP, "x": DataType.INT}
    parts: dict[str, Any] = {
        "name": "triggers",
        "source": FileSource("nowhere", "json", schema),
        "event_time": EventTime(col("at"), BoundedOutOfOrderness("1000us")),
        "key": {"user": col("user")},
        "where": FixedWindows("100us"),
        "when": when,
        "how": discarding("0s"),
        "what": {"all": X.collect()},
        "allow_finishing": True,
    }
    return pipeline(**{**parts, **changes})


class Script:
    """A run whose epochs are lists of x, at times 0, 1, 2 ... of one user."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.run = PipelineRun(pipeline)
        self.time = 0

    def __call__(self, *values: int, signals: tuple[Signal, ...] = (), user: str = "ann") -> list[Any]:
        rows = []
        for value in values:
            rows.append({"user": user, "at": self.time, "x": value})
            self.time += 1
        result = self.run.run(Epoch(Instant(0), rows, signals=signals))
        return [pane.values[0] for pane in result.panes]


TOTAL = DataDriven({"total": X.sum(), "n": count()}, (col("total") >= 10) & (col("n") >= 2))


def test_a_data_driven_trigger_looks_at_all_since_its_own_last_reset() -> None:
    step = Script(build(Repeatedly(TOTAL)))
    assert step(12) == [], "one element only"
    assert step(1) == [(1, 12)]
    assert step(9) == []
    assert step(-5, 5, 1) == [(-5, 1, 5, 9)]


def test_until_keeps_its_progress_across_panes() -> None:
    step = Script(build(OrFinally(Repeatedly(AfterCount(1)), TOTAL)))
    assert step(4) == [(4,)]
    assert step(4) == [(4,)]
    assert step(2) == [(2,)]
    assert step(1) == [], "closed: 4 + 4 + 2 was enough"


def test_early_progress_is_lost_when_a_data_driven_trigger_has_fired() -> None:
    step = Script(build(AfterEach(TOTAL, DataDriven({"least": X.min(), "most": X.max()}, col("most") > col("least")))))
    assert step(50, 1) == [(1, 50)]
    assert step(3) == []
    assert step(3) == []
    assert step(4) == [(3, 3, 4)]


def test_what_was_true_only_within_a_bundle_does_not_count() -> None:
    step = Script(build(Repeatedly(DataDriven({"mean": X.mean()}, col("mean") > 5.0))))
    assert step(9, 1) == []
    assert step(9) == [(1, 9, 9)]


def test_data_driven_progress_adds_up_when_sessions_merge() -> None:
    run = PipelineRun(build(Repeatedly(TOTAL), where=Sessions("10us")))
    rows = [{"user": "ann", "at": time, "x": 4} for time in (0, 15, 8)]
    panes = [run.run(Epoch(Instant(0), [row])).panes for row in rows]
    assert [[pane.values for pane in some] for some in panes] == [[], [], [((4, 4, 4),)]]


PATTERN = AfterPattern("ab+c", {"a": X > 5, "b": X > 3, "c": X <= 3})


def test_a_pattern_spans_bundles_and_an_element_may_satisfy_several_predicates() -> None:
    step = Script(build(Repeatedly(PATTERN)))
    assert step(9) == []
    assert step(4) == []
    assert step(3) == [(3, 4, 9)]
    assert step(3, 9, 9, 1, 8) == [(1, 3, 8, 9, 9)], "what comes behind a match in its bundle joins the pane"
    assert step(4, 1) == [], "the search starts anew behind the pane: the 8 before it does not count"
    assert step(9, 3) == [], "a run without b"
    assert step(9, 5, 5, 5, 0) == [(0, 1, 3, 4, 5, 5, 5, 9, 9)]


def test_a_merge_restarts_a_pattern_and_loses_no_data() -> None:
    run = PipelineRun(build(Repeatedly(PATTERN), where=Sessions("10us")))
    rows = [{"user": "ann", "at": time, "x": x} for time, x in ((0, 9), (1, 4), (2, 3))]
    for row in rows:
        assert not run.run(Epoch(Instant(0), [row])).panes
    rows_later = [{"user": "ann", "at": 3 + i, "x": x} for i, x in enumerate((9, 4, 3))]
    assert [pane.values for pane in run.run(Epoch(Instant(0), rows_later)).panes] == [((3, 3, 4, 4, 9, 9),)]


GO = AfterSignal("go")


def test_a_signal_fires_the_windows_that_are_open_and_no_later_ones() -> None:
    step = Script(build(Repeatedly(GO)))
    assert step(1) == []
    assert step(signals=(Signal("stop"),)) == []
    assert step(2, signals=(Signal("go"),)) == [(1, 2)], "behind the bundle"
    assert step(3) == []
    assert step(signals=(Signal("go"), Signal("go"))) == [(3,)], "signals of one epoch are one step"


def test_a_signal_may_be_for_one_key_or_one_window() -> None:
    step = Script(build(Repeatedly(GO)))
    step(1)
    step(2, user="bob")
    assert step(signals=(Signal("go", key=("cid",)),)) == []
    assert step(signals=(Signal("go", window=Window(Instant(100), Instant(200))),)) == []
    assert step(signals=(Signal("go", key=("bob",), window=Window(Instant(0), Instant(100))),)) == [(2,)]
    assert step(signals=(Signal("go", key=("ann",)),)) == [(1,)]


def test_a_finished_signal_trigger_closes_its_window() -> None:
    step = Script(build(GO))
    step(1)
    assert step(signals=(Signal("go"),)) == [(1,)]
    assert step(2, signals=(Signal("go"),)) == []


def test_a_signal_before_its_turn_is_not_heard_where_windows_do_not_merge() -> None:
    step = Script(build(AfterEach(AfterCount(2), GO)))
    step(1)
    assert step(signals=(Signal("go"),)) == []
    assert step(2) == [(1, 2)]
    assert step(3) == []
    assert step(signals=(Signal("go"),)) == [(3,)]


def test_every_aggregation_hears_signals_behind_its_bundle() -> None:
    aggregation_behind = Aggregation(
        key={"all": col("n")},
        where=FixedWindows("1000us"),
        when=Repeatedly(GO),
        how=discarding("0s"),
        what={"users": count()},
    )
    run = PipelineRun(build(AfterWatermark(early=GO), what={"n": count()}, then=(aggregation_behind,)))
    rows = [{"user": user, "at": 1, "x": 0} for user in "abc"]
    result = run.run(Epoch(Instant(0), rows, signals=(Signal("go"),)))
    assert [(pane.key, pane.values) for pane in result.panes] == [((1,), (3,))]


@pytest.mark.parametrize(
    ("when", "message"),
    [
        (DataDriven({"n": count()}, col("n")), "DataDriven is int, not bool"),
        (DataDriven({"n": count()}, col("x") > 1), "no column 'x'"),
        (DataDriven({"n": col("user").sum()}, col("n") > 1), "needs a number"),
        (AfterPattern("a", {"a": X}), "AfterPattern, 'a', is int"),
    ],
)
def test_predicates_are_checked(when: Trigger, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        build(when)


def test_data_driven_triggers_take_combiners_of_fixed_size_only() -> None:
    with pytest.raises(PipelineError, match="cannot look at collect"):
        DataDriven({"all": X.collect()}, col("all"))
