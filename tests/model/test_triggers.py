"""The trigger vocabulary: what can be built, which nodes may finish, and what stands behind a grouping."""

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
    Always,
    Default,
    Never,
    OrFinally,
    Repeatedly,
    Trigger,
    col,
)
from headrace.errors import PipelineError

COUNT = AfterCount(3)
FOREVER = Repeatedly(COUNT)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: AfterCount(0), "at least 1"),
        (lambda: AfterBytes(0), "at least 1"),
        (lambda: AfterPercentileWatermark(0), "percentile"),
        (lambda: AfterPercentileWatermark(100.5), "percentile"),
        (AfterAny, "AfterAny needs"),
        (AfterEach, "AfterEach needs"),
        (lambda: AfterProcessingTime("-1us"), "negative"),
        (lambda: AfterProcessingTime("1us", align="0s"), "align"),
    ],
)
def test_what_cannot_be_meant_is_refused(build: object, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        build()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("trigger", "finishes"),
    [
        (Default(), False),
        (Never(), False),
        (Always(), False),
        (AfterWatermark(), True),
        (AfterWatermark(early=COUNT), True),
        (AfterWatermark(late=COUNT), False),
        (AfterPunctuation(col("end")), True),
        (AfterAny(COUNT, FOREVER), True),
        (AfterAll(COUNT, AfterWatermark()), True),
        (AfterEach(COUNT, AfterWatermark()), True),
        (AfterEach(COUNT, FOREVER), False),
        (OrFinally(FOREVER, AfterWatermark()), True),
        (OrFinally(FOREVER, Never()), False),
    ],
)
def test_which_triggers_may_finish(trigger: Trigger, finishes: bool) -> None:
    assert trigger.may_finish is finishes


SYNC = AfterSynchronizedProcessingTime()


@pytest.mark.parametrize(
    ("trigger", "continuation"),
    [
        (COUNT, AfterCount(1)),
        (AfterBytes(10), AfterCount(1)),
        (AfterProcessingTime("10us"), SYNC),
        (SYNC, SYNC),
        (Default(), Default()),
        (AfterPercentileWatermark(90), AfterPercentileWatermark(90)),
        (AfterWatermark(COUNT, AfterProcessingTime("5us")), AfterWatermark(AfterCount(1), SYNC)),
        (FOREVER, Repeatedly(AfterCount(1))),
        (AfterAny(COUNT, Default()), AfterAny(AfterCount(1), Default())),
        (AfterAll(COUNT, Default()), AfterAll(AfterCount(1), Default())),
        (AfterEach(COUNT, Default()), Repeatedly(AfterAny(AfterCount(1), Default()))),
        (OrFinally(FOREVER, COUNT), Repeatedly(OrFinally(Repeatedly(AfterCount(1)), AfterCount(1)))),
    ],
)
def test_continuation(trigger: Trigger, continuation: Trigger) -> None:
    assert trigger.continuation == continuation


def test_composites_are_values() -> None:
    assert AfterAny(COUNT, Never()) == AfterAny(AfterCount(3), Never())
    assert AfterAny(COUNT, Never()) != AfterAll(COUNT, Never())
    assert AfterAny(COUNT, Never()) != AfterAny(Never(), COUNT)
    assert OrFinally(FOREVER, COUNT).children == (FOREVER, COUNT)
    assert AfterEach(COUNT, Never()).children == (COUNT, Never())
