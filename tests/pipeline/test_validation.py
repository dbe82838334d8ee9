"""What is refused when a pipeline is built, and what its fingerprint tells apart."""

from datetime import timedelta
from typing import Any

import pytest

from headrace import (
    AfterAll,
    AfterAny,
    AfterBytes,
    AfterCount,
    AfterEach,
    AfterPercentileWatermark,
    AfterProcessingTime,
    AfterPunctuation,
    AfterSynchronizedProcessingTime,
    AfterWatermark,
    Aggregation,
    Always,
    DataType,
    Default,
    FileSource,
    FixedWindows,
    GlobalWindows,
    How,
    Never,
    OrFinally,
    Pipeline,
    Repeatedly,
    Sessions,
    ShiftedOutputTime,
    Trigger,
    accumulating,
    col,
    count,
    discarding,
    expect,
    lit,
    retracting,
)
from headrace.errors import PipelineError
from headrace.model.accumulation import Accumulation, TimestampCombiner
from headrace.model.event_time import BoundedOutOfOrderness, EventTime
from headrace.pipeline.identity import fingerprint
from tests.building import pipeline

SCHEMA = {
    "user": DataType.STRING,
    "at": DataType.TIMESTAMP,
    "amount": DataType.INT,
    "share": DataType.FLOAT,
    "end": DataType.BOOL,
}


def build(**changes: Any) -> Pipeline:
    parts: dict[str, Any] = {
        "name": "clicks",
        "source": FileSource("nowhere", "json", SCHEMA),
        "event_time": EventTime(col("at"), BoundedOutOfOrderness("5us")),
        "key": {"user": col("user")},
        "where": FixedWindows("10us"),
        "when": Default(),
        "how": discarding("0s"),
        "what": {"n": count()},
    }
    return pipeline(**{**parts, **changes})


def second(**changes: Any) -> Aggregation:
    parts: dict[str, Any] = {
        "key": {"n": col("n")},
        "where": FixedWindows("20us"),
        "when": None,
        "how": discarding("0s"),
        "what": {"users": count()},
    }
    return Aggregation(**{**parts, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "Clicks"}, "lower case"),
        ({"event_time": EventTime(col("user"), BoundedOutOfOrderness("5us"))}, "event time is string"),
        ({"event_time": EventTime(col("at"), BoundedOutOfOrderness("5us"), split=col("amount"))}, "split is int"),
        ({"filter": col("amount")}, "filter is int"),
        ({"key": {"share": col("share")}}, "is a float"),
        ({"key": {"all": lit(None)}}, "always NULL"),
        ({"key": {"_user": col("user")}}, "belong to Headrace"),
        ({"what": {}}, 'write .* such as {"flights": count'),
        ({"what": {"window_end": count()}}, "pane column"),
        ({"what": {"user": count()}}, "both a key and an aggregate"),
        ({"what": {"User": count()}}, "'user' and 'User' differ only in case"),
        ({"what": {"Epoch": count()}}, "pane column"),
        ({"key": {"a.b": col("user")}}, "no dots, backticks or NUL"),
        ({"what": {"a`b": count()}}, "no dots, backticks or NUL"),
        ({"what": {"a\0b": count()}}, "no dots, backticks or NUL"),
        ({"key": {"a\udc80": col("user")}}, "no dots, backticks or NUL"),
        ({"what": {"": count()}}, "not empty"),
        ({"key": {"File": col("user")}}, "column of late records"),
        ({"what": {"total": col("user").sum()}}, "needs a number"),
        ({"what": {"total": col("price").sum()}}, "no column 'price'"),
        ({"where": "hourly"}, "write windows such as"),
        ({"when": "hourly"}, "write a trigger such as"),
        ({"when": None}, "no trigger before it"),
        ({"how": "hourly"}, r"write retracting\(\"2d\"\)"),
        ({"where": GlobalWindows()}, "never fires"),
        ({"when": Repeatedly(AfterPunctuation(col("amount")))}, "is int, not bool"),
    ],
)
def test_mistakes_are_told(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        build(**changes)


EARLY = AfterWatermark(early=AfterCount(1))
ON_TIME = AfterWatermark()
FOREVER = Repeatedly(AfterCount(2))


@pytest.mark.parametrize(
    "trigger",
    [
        Default(),
        Never(),
        Always(),
        FOREVER,
        AfterWatermark(early=AfterBytes(10), late=AfterAny(AfterCount(1), AfterSynchronizedProcessingTime())),
        Repeatedly(AfterPercentileWatermark(90)),
        Repeatedly(AfterPunctuation(col("end"))),
        OrFinally(FOREVER, Never()),
        AfterEach(AfterCount(1), FOREVER),
    ],
)
def test_triggers_that_never_finish_suit_any_lateness(trigger: Trigger) -> None:
    build(when=trigger, how=discarding("50us"))
    build(when=trigger, how=discarding(None))


@pytest.mark.parametrize(
    "trigger",
    [
        ON_TIME,
        EARLY,
        AfterAll(AfterCount(3), ON_TIME),
        AfterAny(Default(), AfterEach(ON_TIME, AfterCount(1))),
        AfterEach(AfterCount(1), AfterCount(1), ON_TIME),
        OrFinally(FOREVER, ON_TIME),
    ],
)
def test_triggers_that_finish_at_the_end_of_the_window_suit_no_lateness(trigger: Trigger) -> None:
    build(when=trigger, how=discarding("0s"))
    with pytest.raises(PipelineError, match="within the allowed lateness"):
        build(when=trigger, how=discarding("1us"))
    build(when=trigger, how=discarding("1us"), allow_finishing=True)


@pytest.mark.parametrize(
    "trigger",
    [
        AfterCount(3),
        AfterBytes(3),
        AfterPunctuation(col("end")),
        AfterProcessingTime("5us"),
        AfterPercentileWatermark(50),
        AfterAny(AfterCount(3), ON_TIME),
        AfterAll(AfterCount(3), EARLY),
        AfterEach(AfterCount(1), AfterCount(2)),
        OrFinally(FOREVER, AfterCount(9)),
    ],
)
def test_triggers_that_finish_before_are_refused(trigger: Trigger) -> None:
    with pytest.raises(PipelineError, match="can finish"):
        build(when=trigger)
    build(when=trigger, allow_finishing=True)


@pytest.mark.parametrize("timestamp", TimestampCombiner)
def test_every_timestamp_of_panes_can_be_chosen(timestamp: TimestampCombiner) -> None:
    build(how=discarding("0s", timestamp=timestamp))


@pytest.mark.parametrize(
    ("lower_aggregation", "message"),
    [
        (second(key={"user": col("amount")}), "aggregation 2 .* no column 'amount'"),
        (second(key={"share": col("n") / 2}), "aggregation 2 .* is a float"),
        (second(key={"n": col("n")}, what={"n": count()}), "both a key and an aggregate"),
        (second(filter=col("n")), "filter is int"),
        (second(where=GlobalWindows()), "never fires"),
        (second(when=AfterCount(1)), "can finish"),
        (second(when=Repeatedly(AfterPunctuation(col("end")))), "no column 'end'"),
    ],
)
def test_every_aggregation_of_a_chain_is_checked(lower_aggregation: Aggregation, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        build(then=(lower_aggregation,))


def test_a_list_of_the_aggregation_above_is_no_key() -> None:
    with pytest.raises(PipelineError, match="a list of int is no value"):
        build(what={"n": count(), "all": col("amount").collect()}, then=(second(key={"all": col("all")}),))


def test_retractions_may_not_reach_windows_that_merge() -> None:
    with pytest.raises(PipelineError, match="never split"):
        build(how=retracting(), then=(second(where=Sessions("5us")),))
    with pytest.raises(PipelineError, match="aggregation 2 withdraws"):
        build(
            then=(
                second(how=retracting()),
                second(key={"n": col("users")}, where=ShiftedOutputTime(Sessions("5us"), "1us")),
            )
        )
    build(where=Sessions("5us"), how=retracting(), then=(second(),))
    build(then=(second(where=Sessions("5us")),))


def test_accumulating_panes_may_not_be_counted_again_and_again() -> None:
    refined_after_watermark = AfterWatermark(early=AfterCount(1), late=AfterCount(1))
    with pytest.raises(PipelineError, match="count a pane and its refinements"):
        build(when=refined_after_watermark, how=accumulating("0s"), then=(second(),))
    with pytest.raises(PipelineError, match="aggregation 1 accumulates"):
        build(how=accumulating("10us"), then=(second(),))
    build(when=refined_after_watermark, how=accumulating("0s"), then=(second(),), allow_double_counting=True)
    build(when=refined_after_watermark, how=accumulating("0s"))
    build(how=accumulating("0s"), then=(second(),)), "one pane per window: nothing is counted twice"


def test_unchanged_panes_can_be_elided_only_where_panes_are_withdrawn() -> None:
    with pytest.raises(PipelineError, match="write retracting"):
        How(Accumulation.ACCUMULATING, elide_unchanged=True)


def test_a_fingerprint_tells_computations_apart_and_nothing_else() -> None:
    plain = fingerprint(build())
    changed_pipelines = [
        build(where=FixedWindows("11us")),
        build(when=AfterWatermark()),
        build(what={"n": col("amount").count()}),
        build(filter=col("end")),
        build(how=retracting("0s")),
        build(how=retracting("0s", elide_unchanged=True)),
        build(then=(second(),)),
        build(then=(second(what={"users": count(), "most": col("n").max()}),)),
        build(then=(second(when=Repeatedly(AfterCount(3))),)),
    ]
    assert len({plain, *map(fingerprint, changed_pipelines)}) == len(changed_pipelines) + 1
    assert (
        fingerprint(build(description="x", schedule="@daily", expectations=(expect("column_to_exist", column="n"),)))
        == plain
    )
    assert fingerprint(build(executor="auto")) == plain
    assert fingerprint(build(where=FixedWindows(timedelta(microseconds=10)))) == plain
