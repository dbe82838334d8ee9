"""What comes in: duplicates, several inputs, and joins of them (semantics 12.9, 12.10)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import (
    AfterCount,
    AfterWatermark,
    Aggregation,
    DataType,
    Deduplicate,
    Default,
    FileSource,
    FixedWindows,
    Input,
    Pipeline,
    col,
    count,
    discarding,
    lit,
    retracting,
)
from headrace.errors import PipelineError
from headrace.model.event_time import BoundedOutOfOrderness, EventTime, Monotonic
from headrace.model.time import Instant
from headrace.testing import fingerprint
from headrace_lab.reference import DropCause, Epoch, RejectedRecord, run_pipeline
from tests.building import pipeline
from tests.reference.strategies import examples

SCHEMA = {"id": DataType.STRING, "user": DataType.STRING, "at": DataType.TIMESTAMP, "amount": DataType.INT}


def build(**changes: Any) -> Pipeline:
    parts: dict[str, Any] = {
        "name": "inputs",
        "source": FileSource("nowhere", "json", SCHEMA),
        "event_time": EventTime(col("at"), BoundedOutOfOrderness("5us")),
        "key": {"user": col("user")},
        "where": FixedWindows("10us"),
        "when": Default(),
        "how": discarding("100us"),
        "what": {"amounts": col("amount").collect()},
    }
    return pipeline(**{**parts, **changes})


def row(name: str | None, time: int, amount: int, user: str = "ann") -> dict[str, Any]:
    return {"id": name, "at": time, "amount": amount, "user": user}


def epoch(time: int, *rows: dict[str, Any], is_last: bool = False, **union: Any) -> Epoch:
    return Epoch(Instant(time), rows, is_last, union=union)


DEDUPLICATING_PIPELINE = build(deduplicate=Deduplicate(col("id"), horizon="10us"))


def test_the_first_to_arrive_wins_in_and_across_epochs() -> None:
    first, second, third = run_pipeline(
        DEDUPLICATING_PIPELINE,
        [
            epoch(0, row("a", 3, 1), row("b", 9, 2), row("a", 3, 3), row("a", 1, 4, "bob")),
            epoch(1, row("b", 9, 5), row("c", 4, 6)),
            epoch(2, is_last=True),
        ],
    )
    assert [(d.element.record["amount"], d.window, d.cause) for d in (*first.drops, *second.drops)] == [
        (3, None, DropCause.DUPLICATE),
        (4, None, DropCause.DUPLICATE),
        (5, None, DropCause.DUPLICATE),
    ]
    assert [(pane.key, pane.values) for pane in third.panes] == [(("ann",), ((1, 2, 6),))]


def test_ids_are_forgotten_behind_the_horizon_and_what_comes_then_is_late() -> None:
    results = run_pipeline(
        DEDUPLICATING_PIPELINE,
        [
            epoch(0, row("a", 10, 1)),
            epoch(1, row("x", 25, 2)),
            epoch(2, row("a", 10, 3), row("x", 26, 4)),
            epoch(3, row("a", 10, 5), row("a", 11, 6), row("b", 10, 7)),
        ],
    )
    assert [result.watermark for result in results] == [5, 20, 21, 21]
    causes = [[(d.element.record["amount"], d.cause.value) for d in result.drops] for result in results]
    assert causes == [[], [], [(3, "duplicate"), (4, "duplicate")], [(5, "late"), (7, "late")]]


def test_duplicates_and_filtered_records() -> None:
    pipeline = build(deduplicate=Deduplicate(col("id"), "10us"), filter=col("amount") > 0)
    (result,) = run_pipeline(pipeline, [epoch(0, row("a", 1, -1), row("a", 2, 1), row("a", 30, 2), is_last=True)])
    assert [pane.values for pane in result.panes] == [((1,),)], "what is filtered is not remembered"


def test_a_record_without_an_id_is_a_dead_letter() -> None:
    (result,) = run_pipeline(DEDUPLICATING_PIPELINE, [epoch(0, row(None, 90, 1), row("a", 7, 1))])
    assert result.rejected == (RejectedRecord(row(None, 90, 1), "id"),)
    assert result.watermark == 2


@examples(100)
@given(
    st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 9)), max_size=12),
    st.lists(st.integers(0, 12), max_size=4),
)
def test_every_id_counts_once_however_input_is_cut(pairs: list[tuple[str, int]], cuts: list[int]) -> None:
    rows = [row(name, ord(name) % 10, amount) for name, amount in pairs]
    marks = sorted({0, *cuts, len(rows)})
    parts = [rows[a:b] for a, b in zip(marks, [*marks[1:], len(rows)], strict=True)]
    pipeline = build(deduplicate=Deduplicate(col("id"), "100us"), what={"n": count()}, where=FixedWindows("1000us"))
    results = run_pipeline(pipeline, [epoch(i, *part, is_last=part is parts[-1]) for i, part in enumerate(parts)])
    assert sum(pane.values[0] for result in results for pane in result.panes) == len({name for name, _ in pairs})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Deduplicate(col("id"), "-1us"), "negative"),
        (lambda: build(deduplicate=Deduplicate(col("amount") / 2, "1us")), "is float"),
        (lambda: build(deduplicate=Deduplicate(col("name"), "1us")), "no column 'name'"),
    ],
)
def test_duplicates_that_cannot_be_told(make: Any, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        make()


# --- several inputs ---------------------------------------------------------------------------------------------------

REFUNDS = Input(
    FileSource(
        "refunds",
        "csv",
        {"user": DataType.STRING, "day": DataType.TIMESTAMP, "cents": DataType.STRING},
    ),
    EventTime(col("day"), Monotonic()),
    "refunds",
    columns={"amount": col("cents").cast(DataType.INT) * -1, "id": lit("refund")},
)
SUMS: dict[str, Any] = {"total": col("amount").sum(), "ids": col("id").collect()}


def refund(day: int | None, cents: str, user: str = "ann") -> dict[str, Any]:
    return {"day": day, "cents": cents, "user": user}


def test_inputs_are_united_and_the_slowest_is_the_watermark() -> None:
    pipeline = build(union=(REFUNDS,), what=SUMS)
    results = run_pipeline(
        pipeline,
        [
            epoch(0, row("a", 3, 50), row("b", 40, 7)),
            epoch(1, refunds=[refund(4, "20"), refund(None, "1")]),
            epoch(2, refunds=[refund(12, "30")]),
            epoch(3, refunds=[refund(50, "30", "bob")]),
        ],
    )
    assert [result.watermark for result in results] == [-(2**61), 4, 12, 35]
    assert [[pane.values for pane in result.panes] for result in results] == [
        [],
        [],
        [(30, ("a", "refund"))],
        [(-30, ("refund",))],
    ]
    assert results[1].rejected == (RejectedRecord(refund(None, "1"), "event_time"),)


def test_an_idle_input_holds_back_no_other_until_it_speaks_again() -> None:
    patient = Input(REFUNDS.source, EventTime(col("day"), Monotonic(idle_timeout="10us")), "refunds", REFUNDS.columns)
    pipeline = build(union=(patient,), what=SUMS)
    results = run_pipeline(
        pipeline,
        [
            epoch(0, row("a", 3, 50), row("b", 40, 7)),
            epoch(1, refunds=[refund(4, "20")]),
            epoch(10),
            epoch(11),
            epoch(12, refunds=[refund(6, "1"), refund(36, "1")]),
            epoch(30, row("c", 60, 1)),
        ],
    )
    assert [result.watermark for result in results] == [-(2**61), 4, 4, 35, 35, 55]


def test_duplicates_are_told_across_inputs() -> None:
    pipeline = build(union=(REFUNDS,), what=SUMS, deduplicate=Deduplicate(col("id"), "10us"))
    (result,) = run_pipeline(
        pipeline, [epoch(0, row("refund", 1, 1), is_last=True, refunds=[refund(2, "5"), refund(3, "6")])]
    )
    assert [pane.values for pane in result.panes] == [(1, ("refund",))]
    assert [drop.element.record["amount"] for drop in result.drops] == [-5, -6]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (Input(REFUNDS.source, REFUNDS.event_time, "more", {"price": col("cents")}), "gives price"),
        (Input(REFUNDS.source, REFUNDS.event_time, "more", {"amount": col("cents")}), "as string"),
        (Input(REFUNDS.source, EventTime(col("at"), Monotonic()), "more"), "no column 'at'"),
        (
            Input(
                FileSource("x", "csv", {"user": DataType.INT, "t": DataType.TIMESTAMP}),
                EventTime(col("t"), Monotonic()),
                "more",
            ),
            "'user' as int",
        ),
        (Input(REFUNDS.source, REFUNDS.event_time, ""), "name of its own"),
    ],
)
def test_inputs_that_do_not_fit(other: Input, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        build(union=(other,))
    with pytest.raises(PipelineError, match="name of its own"):
        build(union=(REFUNDS, REFUNDS))


def test_fingerprints_tell_inputs_and_deduplication() -> None:
    pipelines = [
        build(),
        DEDUPLICATING_PIPELINE,
        build(deduplicate=Deduplicate(col("id"), "11us")),
        build(union=(REFUNDS,)),
        build(union=(Input(REFUNDS.source, REFUNDS.event_time, "refunds"),)),
    ]
    assert len({fingerprint(pipeline) for pipeline in pipelines}) == len(pipelines)


# --- joins ------------------------------------------------------------------------------------------------------------

CLICKS = Input(
    FileSource("clicks", "json", {"user": DataType.STRING, "at": DataType.TIMESTAMP, "page": DataType.STRING}),
    EventTime(col("at"), BoundedOutOfOrderness("5us")),
    "clicks",
)


def joined_clicks(outer: str) -> Pipeline:
    return build(
        source=FileSource("orders", "json", {**SCHEMA, "page": DataType.STRING}),
        union=(CLICKS,),
        when=AfterWatermark(late=AfterCount(1)),
        how=retracting("100us"),
        what={"pairs": col("amount").pairs(col("page"), outer)},
    )


def test_a_windowed_join_pairs_what_has_the_same_key_and_window() -> None:
    click = {"user": "ann", "at": 2, "page": "/"}
    results = run_pipeline(
        joined_clicks("left"),
        [
            epoch(0, row("a", 1, 5), row("b", 1, 6), row("c", 20, 7), clicks=[{"user": "bob", "at": 30, "page": "/b"}]),
            epoch(1, clicks=[click, {**click, "page": "/x"}]),
        ],
    )
    assert [[(p.is_retraction, *p.values) for p in result.panes] for result in results] == [
        [(False, ((5, None), (6, None)))],
        [(True, ((5, None), (6, None))), (False, ((5, "/"), (5, "/x"), (6, "/"), (6, "/x")))],
    ]


def test_retractions_of_either_side_change_the_pairs() -> None:
    second = Aggregation(
        key={"all": lit("all")},
        where=FixedWindows("10us"),
        when=AfterWatermark(early=AfterCount(1), late=AfterCount(1)),
        how=retracting("100us"),
        what={"pairs": col("orders").pairs(col("users"))},
    )
    early = AfterWatermark(early=AfterCount(1), late=AfterCount(1))
    pipeline = build(
        when=early,
        how=retracting("100us"),
        what={"orders": col("amount").sum(), "users": count()},
        then=(second,),
    )
    results = run_pipeline(pipeline, [epoch(0, row("a", 1, 5)), epoch(1, row("b", 2, 6))])
    assert [pane.values for pane in results[-1].panes] == [(((5, 1),),), (((11, 2),),)]
