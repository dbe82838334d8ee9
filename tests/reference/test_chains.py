"""Pipelines of several aggregations: what flows between them, and the invariants of retraction behind them (9.1)."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace import (
    AfterBytes,
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    Aggregation,
    Always,
    DataType,
    Default,
    FileSource,
    FixedWindows,
    GlobalWindows,
    How,
    Pipeline,
    Repeatedly,
    Sessions,
    SlidingWindows,
    Trigger,
    accumulating,
    col,
    count,
    discarding,
    retracting,
)
from headrace.model.event_time import BoundedOutOfOrderness, EventTime
from headrace.model.time import MAX_INSTANT, Instant
from headrace.model.windows import Window, WindowFn
from headrace_lab.reference import Epoch, EpochResult, RejectedRecord, fold_current, run_pipeline
from headrace_lab.reference.elements import Pane
from headrace_lab.reference.windows import assign
from tests.building import pipeline
from tests.reference.strategies import FIXED_LIKE, SESSIONS, examples
from tests.reference.test_invariants import Live

SCHEMA = {"user": DataType.STRING, "at": DataType.TIMESTAMP, "amount": DataType.INT}
Row = dict[str, Any]

USERS_PER_TOTAL = Aggregation(
    key={"total": col("total")},
    where=FixedWindows("20us"),
    when=None,
    how=retracting(None),
    what={"n": count(), "users": col("user").collect()},
)


def build(*aggregations: Aggregation, **changes: Any) -> Pipeline:
    parts: dict[str, Any] = {
        "name": "totals",
        "source": FileSource("nowhere", "json", SCHEMA),
        "event_time": EventTime(col("at"), BoundedOutOfOrderness("5us")),
        "key": {"user": col("user")},
        "where": FixedWindows("10us"),
        "when": AfterWatermark(early=AfterCount(1), late=AfterCount(1)),
        "how": retracting(None),
        "what": {"total": col("amount").sum()},
        "then": aggregations,
    }
    return pipeline(**{**parts, **changes})


def row(time: int, amount: int | None, user: str = "ann") -> Row:
    return {"at": time, "amount": amount, "user": user}


def epoch(time: int, *rows: Row, is_last: bool = False) -> Epoch:
    return Epoch(Instant(time), rows, is_last)


def brief(result: EpochResult) -> list[tuple[Any, ...]]:
    return [("-" if p.is_retraction else "+", *p.key, p.window.start, *p.values) for p in result.panes]


def test_a_changed_total_moves_its_user_to_another_key() -> None:
    first, second, third = run_pipeline(
        build(USERS_PER_TOTAL),
        [epoch(0, row(1, 5), row(2, 5, "bob")), epoch(1, row(3, 2)), epoch(2, is_last=True)],
    )
    assert brief(first) == [("+", 5, 0, 2, ("ann", "bob"))]
    assert sorted(brief(second)) == [
        ("+", 5, 0, 1, ("bob",)),
        ("+", 7, 0, 1, ("ann",)),
        ("-", 5, 0, 2, ("ann", "bob")),
    ]
    current = fold_current(pane for result in (first, second, third) for pane in result.panes)
    assert {key: pane.values for (key, _), pane in current.items()} == {(5,): (1, ("bob",)), (7,): (1, ("ann",))}


def test_a_group_whose_members_all_left_is_withdrawn_and_comes_again_with_the_next_index() -> None:
    results = run_pipeline(build(USERS_PER_TOTAL), [epoch(0, row(1, 5)), epoch(1, row(2, 2)), epoch(2, row(3, -2))])
    assert [brief(result) for result in results] == [
        [("+", 5, 0, 1, ("ann",))],
        [("-", 5, 0, 1, ("ann",)), ("+", 7, 0, 1, ("ann",))],
        [("+", 5, 0, 1, ("ann",)), ("-", 7, 0, 1, ("ann",))],
    ]
    assert results[2].panes[0].index == 1


def test_a_stage_reads_keys_aggregates_and_the_window_of_the_panes_above() -> None:
    per_window = Aggregation(
        key={"start": col("window_start")},
        where=FixedWindows("100us"),
        when=None,
        how=discarding(),
        what={"most": col("total").max(), "end": col("window_end").max()},
        filter=col("user") != "bob",
    )
    (result,) = run_pipeline(
        build(per_window, when=Default(), how=discarding("0s")),
        [epoch(0, row(1, 5), row(12, 7), row(13, 99, "bob"), is_last=True)],
    )
    assert brief(result) == [("+", 0, 0, 5, 10), ("+", 10, 0, 7, 20)]


def test_the_ends_of_the_global_window_are_null_behind_it() -> None:
    per_start = Aggregation(
        key={"start": col("window_start")}, where=FixedWindows("10us"), when=None, how=discarding(), what={"n": count()}
    )
    (result,) = run_pipeline(
        build(per_start, where=GlobalWindows(), when=Repeatedly(AfterCount(1)), how=discarding("0s")),
        [epoch(0, row(1, 5))],
    )
    assert not result.panes
    assert result.rejected == (
        RejectedRecord({"user": "ann", "total": 5, "window_start": None, "window_end": None}, "start", stage=1),
    )


def test_a_pane_without_the_next_key_goes_no_further_and_neither_does_its_retraction() -> None:
    per_low = Aggregation(
        key={"low": col("low")}, where=FixedWindows("20us"), when=None, how=retracting(None), what={"n": count()}
    )
    results = run_pipeline(
        build(per_low, what={"low": col("amount").max()}), [epoch(0, row(1, None)), epoch(1, row(2, 3))]
    )
    assert [[r.record["low"] for r in result.rejected] for result in results] == [[None], [None]]
    assert [brief(result) for result in results] == [[], [("+", 3, 0, 1)]]


def test_the_second_aggregation_judges_lateness_by_the_output_watermark_of_the_first() -> None:
    hourly = Aggregation(
        key={"user": col("user")},
        where=FixedWindows("20us"),
        when=None,
        how=discarding(),
        what={"sum": col("total").sum()},
    )
    pipeline = build(hourly, when=Default(), how=discarding("0s"))
    results = run_pipeline(pipeline, [epoch(0, row(1, 1)), epoch(1, row(18, 2)), epoch(2, row(26, 4))])
    assert [result.watermark for result in results] == [-4, 13, 21]
    assert [result.output_watermarks for result in results] == [(-4, -4), (13, 13), (21, 21)]
    assert [brief(result) for result in results] == [[], [], [("+", "ann", 0, 3)]]


def test_the_allowed_lateness_behind_an_aggregation_is_at_least_its_own() -> None:
    pipeline = build(USERS_PER_TOTAL, how=retracting("30us"))
    daily = Aggregation(
        key={"user": col("user")}, where=FixedWindows("20us"), when=None, how=retracting("7us"), what={"n": count()}
    )
    stages = build(daily, daily, how=retracting("30us")).stages
    assert [stage.aggregation.how.allowed_lateness for stage in stages] == [30, 30, 30]
    assert pipeline.stages[1].aggregation.how.allowed_lateness is None


def test_a_stage_without_a_trigger_continues_the_one_above() -> None:
    pipeline = build(USERS_PER_TOTAL, when=Repeatedly(AfterCount(5)))
    assert pipeline.stages[1].when == Repeatedly(AfterCount(1))


# --- invariants -------------------------------------------------------------------------------------------------------


ROWS = st.builds(row, st.integers(-20, 60), st.none() | st.integers(-2, 2), st.sampled_from("abc"))
BUNDLES = st.lists(st.lists(ROWS, max_size=5), min_size=1, max_size=4)


@st.composite
def inputs(draw: st.DrawFn) -> list[Epoch]:
    """Rows of few users and amounts, so that totals meet; in any order, cut anywhere; the last epoch ends the input."""
    parts = draw(BUNDLES)
    return [Epoch(Instant(i), part, is_last=i == len(parts) - 1) for i, part in enumerate(parts)]


def two_stages(
    where: WindowFn, when: Trigger, window_fn_below: WindowFn, lower_trigger: Trigger | None, how: How
) -> Pipeline:
    second = Aggregation(
        key=USERS_PER_TOTAL.key, where=window_fn_below, when=lower_trigger, how=how, what=USERS_PER_TOTAL.what
    )
    return build(second, where=where, when=when)


def groups(where: WindowFn, rows: Iterable[Row]) -> dict[tuple[str, Window], list[Row]]:
    """Rows per user and window, computed at once."""
    rows_by_place: dict[tuple[str, Window], list[Row]] = defaultdict(list)
    for r in sorted(rows, key=lambda r: (r["user"], r["at"])):
        if isinstance(where, Sessions):
            own = [w for (user, w) in rows_by_place if user == r["user"] and overlaps(where, w, r["at"])]
            window = Window(own[0].start, r["at"] + where.gap) if own else Window(r["at"], r["at"] + where.gap)
            rows_by_place[r["user"], window] = [*(rows_by_place.pop((r["user"], own[0])) if own else []), r]
        else:
            for window in assign(where, r["at"]):
                rows_by_place[r["user"], window].append(r)
    return rows_by_place


def overlaps(where: Sessions, window: Window, time: int) -> bool:
    return time < window.end or (where.touching_merges and time == window.end)


def expected(where: WindowFn, window_fn_below: WindowFn, epochs: Sequence[Epoch]) -> dict[Any, tuple[Any, ...]]:
    """The second aggregation over the final totals of the first."""
    rows = [dict(record) for epoch in epochs for record in epoch.records]
    users: dict[Any, list[str]] = defaultdict(list)
    for (user, window), own in groups(where, rows).items():
        total = sum(r["amount"] or 0 for r in own)
        for lower in assign(window_fn_below, window.max_timestamp):
            users[(total,), lower].append(user)
    return {place: (len(names), tuple(sorted(names))) for place, names in users.items()}


EARLY: st.SearchStrategy[Trigger] = st.one_of(
    st.builds(AfterCount, st.integers(1, 3)),
    st.builds(AfterBytes, st.integers(1, 40)),
    st.just(AfterProcessingTime("1us")),
)
EMITS_ALL: st.SearchStrategy[Trigger] = st.one_of(
    st.just(Default()), st.just(Always()), st.builds(AfterWatermark, st.none() | EARLY, st.just(AfterCount(1)))
)
CHAINS = (FIXED_LIKE | SESSIONS, EMITS_ALL, FIXED_LIKE, st.none() | EMITS_ALL)


def is_allowed(window_fn_below: WindowFn, trigger: Trigger | None) -> bool:
    return not isinstance(window_fn_below, GlobalWindows) or trigger not in (None, Default())


@examples(150)
@given(*CHAINS, inputs())
def test_retractions_through_a_chain(
    where: WindowFn, when: Trigger, lower_windows: WindowFn, lower_trigger: Trigger | None, epochs: list[Epoch]
) -> None:
    if not is_allowed(where, when) or not is_allowed(lower_windows, lower_trigger):
        return
    live = Live()
    newest_panes: dict[Any, Pane] = {}
    withdrawing = run_pipeline(two_stages(where, when, lower_windows, lower_trigger, retracting(None)), epochs)
    refining = run_pipeline(two_stages(where, when, lower_windows, lower_trigger, accumulating(None)), epochs)
    for result, plain in zip(withdrawing, refining, strict=True):
        assert not result.drops
        for record in result.panes:
            live.apply(record)  # I1 and I4
        newest_panes.update(((pane.key, pane.window), pane) for pane in plain.panes)
        current = {place: pane.values for place, pane in newest_panes.items() if pane.values[0] != 0}
        assert {place: pane.values for place, pane in live.panes.items()} == current, "I2"
    assert {place: pane.values for place, pane in live.panes.items()} == expected(where, lower_windows, epochs), "I3"
    assert withdrawing[-1].output_watermarks == (MAX_INSTANT, MAX_INSTANT)


@examples(60)
@given(FIXED_LIKE, FIXED_LIKE, inputs())
def test_discarding_panes_add_up_through_a_chain(where: WindowFn, lower_windows: WindowFn, epochs: list[Epoch]) -> None:
    sums = Aggregation(
        key={"user": col("user")},
        where=lower_windows,
        when=Repeatedly(AfterCount(2)),
        how=discarding("1000us"),
        what={"sum": col("total").sum()},
    )
    results = run_pipeline(build(sums, where=where, when=Repeatedly(AfterCount(2)), how=discarding("1000us")), epochs)
    totals: dict[Any, int] = defaultdict(int)
    for result in results:
        for pane in result.panes:
            totals[pane.key[0], pane.window] += pane.values[0]
    rows = [record for epoch in epochs for record in epoch.records]
    by_hand: dict[Any, int] = defaultdict(int)
    for r in rows:
        for window in assign(where, r["at"]):
            for lower in assign(lower_windows, window.max_timestamp):
                by_hand[r["user"], lower] += r["amount"] or 0
    assert {k: v for k, v in totals.items() if v} == {k: v for k, v in by_hand.items() if v}


def test_sliding_panes_reach_every_window_behind_them() -> None:
    sums = Aggregation(
        key={"user": col("user")},
        where=SlidingWindows("40us", "20us"),
        when=None,
        how=discarding(),
        what={"sum": col("total").sum()},
    )
    (result,) = run_pipeline(build(sums, when=Default(), how=discarding("0s")), [epoch(0, row(21, 5), is_last=True)])
    assert brief(result) == [("+", "ann", 0, 5), ("+", "ann", 20, 5)]
