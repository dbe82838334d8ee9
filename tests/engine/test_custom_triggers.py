"""Triggers that users write, on Spark: anywhere in a tree they fire as in the reference."""

import pytest

from headrace.engine.errors import spark_errors
from headrace.engine.session import interpreting
from headrace.engine.types import SparkSession
from headrace.errors import PipelineError
from headrace.model.time import Instant
from headrace.pipeline import (
    AfterAll,
    AfterAny,
    AfterCount,
    AfterEach,
    AfterProcessingTime,
    AfterWatermark,
    FixedWindows,
    How,
    OrFinally,
    Repeatedly,
    Sessions,
    SlidingWindows,
    Trigger,
    WindowFn,
    accumulating,
    discarding,
    retracting,
)
from headrace.reference import Epoch
from tests.engine.differential import run_on_spark
from tests.engine.test_differential_whole import GO, Validity, _behind, build, check, random_epochs
from tests.own_triggers import Jump, Poll, Refusing, Reminder, Rising

pytestmark = pytest.mark.spark

SCENARIOS: dict[str, tuple[WindowFn, Trigger, How]] = {
    "early_and_late": (
        FixedWindows(15),
        AfterWatermark(early=Jump(25), late=AfterAny(Jump(5), AfterCount(3))),
        retracting(25),
    ),
    "until": (Sessions(6), OrFinally(Repeatedly(Jump(25)), Reminder(20)), accumulating(20)),
    "each": (SlidingWindows(12, 6), AfterEach(Jump(15), Rising(2), AfterWatermark()), accumulating(20)),
    "all_of_any": (
        Sessions(6),
        Repeatedly(AfterAny(AfterCount(4), AfterAll(Jump(10), AfterProcessingTime(4)), GO)),
        discarding(20),
    ),
    "heard": (
        FixedWindows(15),
        OrFinally(AfterWatermark(early=Poll(2), late=AfterAny(Poll(1), AfterCount(3))), AfterAll(GO, AfterCount(9))),
        retracting(25),
    ),
    "heard_by_sessions": (Sessions(6), AfterEach(Poll(3), AfterAny(Poll(0), AfterWatermark())), accumulating(20)),
    "own_windows": (Validity(10), AfterEach(Jump(10), Reminder(), AfterWatermark()), retracting(20)),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_engine_equals_reference(spark: SparkSession, name: str) -> None:
    seed = sum(name.encode())
    check(interpreting(spark), build(*SCENARIOS[name]), random_epochs(seed), f"{name}, seed {seed}")


def test_panes_and_their_retractions_are_elements_to_it(spark: SparkSession) -> None:
    then = (_behind(AfterWatermark(early=Jump(20, "total")), accumulating(25)),)
    above = (FixedWindows(10), AfterWatermark(AfterProcessingTime(5), AfterCount(1)), retracting(25))
    check(interpreting(spark), build(*above, then=then), random_epochs(11), "behind")


def test_what_its_code_raises_is_an_error_that_names_it(spark: SparkSession) -> None:
    pipeline = build(FixedWindows(15), Repeatedly(Refusing(3)), discarding(25))
    epochs = [Epoch(Instant(0), [{"user": "ann", "at": Instant(1), "value": value}]) for value in (1, 13)]
    expected = r"^Refusing\(by=3, column='value'\) could not look at an element: ValueError\('bad luck'\)$"
    with pytest.raises(PipelineError, match=expected), spark_errors():
        run_on_spark(interpreting(spark), pipeline, epochs)
