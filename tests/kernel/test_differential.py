"""The kernel equals the reference interpreter, pane for pane, for every kind of window, trigger and accumulation."""

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from headrace import (
    AfterAll,
    AfterAny,
    AfterCount,
    AfterEach,
    AfterProcessingTime,
    AfterWatermark,
    Default,
    FixedWindows,
    How,
    OrFinally,
    Pipeline,
    Repeatedly,
    Sessions,
    SlidingWindows,
    Trigger,
    accumulating,
    col,
    discarding,
    retracting,
)
from headrace.errors import IntegerOverflowError, PipelineError
from headrace.model.time import Instant, to_instant
from headrace.model.windows import CalendarWindows, WindowFn
from headrace_lab.reference import Epoch, run_pipeline
from tests.kernel import further_scenarios as further
from tests.kernel import plain_scenarios as plain
from tests.kernel.columns import numbering_all_keys
from tests.kernel.differential import check, run_on_kernel
from tests.kernel.further_scenarios import GO, Greedy, build, downstream, random_epochs, random_record
from tests.own_triggers import Jump, Poll, Refusing, Reminder, Rising
from tests.own_windows import Validity

OWN_TRIGGERS: dict[str, tuple[WindowFn, Trigger, How]] = {
    "early_and_late": (
        FixedWindows("15us"),
        AfterWatermark(early=Jump(25), late=AfterAny(Jump(5), AfterCount(3))),
        retracting("25us"),
    ),
    "until": (Sessions("6us"), OrFinally(Repeatedly(Jump(25)), Reminder(20)), accumulating("20us")),
    "each": (SlidingWindows("12us", "6us"), AfterEach(Jump(15), Rising(2), AfterWatermark()), accumulating("20us")),
    "all_of_any": (
        Sessions("6us"),
        Repeatedly(AfterAny(AfterCount(4), AfterAll(Jump(10), AfterProcessingTime("4us")), GO)),
        discarding("20us"),
    ),
    "heard": (
        FixedWindows("15us"),
        OrFinally(AfterWatermark(early=Poll(2), late=AfterAny(Poll(1), AfterCount(3))), AfterAll(GO, AfterCount(9))),
        retracting("25us"),
    ),
    "heard_by_sessions": (
        Sessions("6us"),
        AfterEach(Poll(3), AfterAny(Poll(0), AfterWatermark())),
        accumulating("20us"),
    ),
    "own_windows": (Validity(10), AfterEach(Jump(10), Reminder(), AfterWatermark()), retracting("20us")),
}


def compare(pipeline: Pipeline, epochs: Sequence[Epoch]) -> None:
    expected = run_pipeline(pipeline, epochs)
    assert any(result.panes for result in expected), "the scenario must emit something"
    for number, (outcome, reference) in enumerate(zip(run_on_kernel(pipeline, epochs), expected, strict=True)):
        try:
            check(outcome, reference)
        except AssertionError as error:
            raise AssertionError(f"epoch {number}") from error


@pytest.mark.parametrize("name", plain.SCENARIOS)
def test_plain(name: str) -> None:
    compare(plain.build(*plain.SCENARIOS[name]), plain.random_epochs(sum(name.encode())))


@pytest.mark.slow
@pytest.mark.parametrize("name", further.SCENARIOS)
def test_further(name: str) -> None:
    compare(build(*further.SCENARIOS[name]), random_epochs(sum(name.encode())))


@pytest.mark.parametrize("name", further.SCENARIOS)
def test_further_where_keys_have_numbers(name: str) -> None:
    with numbering_all_keys():
        compare(build(*further.SCENARIOS[name]), random_epochs(sum(name.encode())))


@pytest.mark.slow
@pytest.mark.parametrize("name", further.CHAINS)
def test_panes_arrive_in_the_order_of_their_emission(name: str) -> None:
    compare(further.CHAINS[name], random_epochs(sum(name.encode())))


@pytest.mark.slow
@pytest.mark.parametrize("name", OWN_TRIGGERS)
def test_users_triggers(name: str) -> None:
    compare(build(*OWN_TRIGGERS[name]), random_epochs(sum(name.encode())))


@pytest.mark.slow
def test_panes_and_their_retractions_are_elements_to_a_users_trigger() -> None:
    lower_aggregations = (downstream(AfterWatermark(early=Jump(20, "total")), accumulating("25us")),)
    upper_parts = (FixedWindows("10us"), AfterWatermark(AfterProcessingTime("5us"), AfterCount(1)), retracting("25us"))
    compare(build(*upper_parts, aggregations=lower_aggregations), random_epochs(11))


@pytest.mark.slow
def test_calendar_windows_fire() -> None:
    hour = 3_600_000_000
    start = to_instant(datetime(2018, 11, 3, tzinfo=UTC))  # clocks go forward at midnight of November 4
    rng = random.Random(5)
    epochs = []
    for number in range(3):
        records = [random_record(rng, key, 0) | {"at": Instant(start + rng.randrange(40 * hour))} for key in range(30)]
        epochs.append(Epoch(Instant(number), records, is_last=number == 2))
    days = CalendarWindows("day", "America/Sao_Paulo")
    compare(build(days, AfterWatermark(late=AfterCount(1)), accumulating("8h"), 20 * hour), epochs)


def test_what_a_users_trigger_raises_is_an_error_that_names_it() -> None:
    pipeline = build(FixedWindows("15us"), Repeatedly(Refusing(3)), discarding("25us"))
    epochs = [Epoch(Instant(0), [{"user": "ann", "at": Instant(1), "value": value}]) for value in (1, 13)]
    expected = r"^Refusing\(by=3, column='value'\) could not look at an element: ValueError\('bad luck'\)$"
    with pytest.raises(PipelineError, match=expected):
        run_on_kernel(pipeline, epochs)


def test_windows_of_a_user_that_break_their_contract_are_refused() -> None:
    pipeline = build(Greedy(10), Default(), discarding("20us"))
    with pytest.raises(PipelineError, match="another window of the key"):
        run_on_kernel(pipeline, random_epochs(1, epochs=1, keys=5))


def test_sums_that_leave_64_bits_are_errors_of_the_data() -> None:
    pipeline = build(*further.SCENARIOS["data_fixed"])
    records = [{"user": "u1", "at": Instant(1), "value": 2**62} for _ in range(2)]
    with pytest.raises(IntegerOverflowError, match="64 bits") as error:
        run_on_kernel(pipeline, [Epoch(Instant(0), records)])
    assert error.value.remedy == "fix_data"


def test_a_pane_that_is_nan_again_is_elided() -> None:
    eliding = build(FixedWindows("15us"), Repeatedly(AfterCount(1)), retracting("25us", elide_unchanged=True))
    pipeline = replace(eliding, what={"share": further.SHARE.sum()})
    shares = [math.nan, 1.0]
    epochs = [Epoch(Instant(0), [{"user": "ann", "at": Instant(1), "share": share}]) for share in shares]
    compare(pipeline, epochs)
    assert [len(result.panes) for result in run_on_kernel(pipeline, epochs)] == [1, 0]


def test_a_list_of_other_values_is_not_elided() -> None:
    """Of the panes above one is withdrawn and another comes: as many values as before."""
    now = Repeatedly(AfterCount(1))
    lower = replace(downstream(now, retracting("25us", elide_unchanged=True)), what={"all": col("total").collect()})
    pipeline = build(FixedWindows("15us"), now, retracting("25us"), aggregations=(lower,))
    epochs = [Epoch(Instant(0), [{"user": "ann", "at": Instant(1), "value": value}]) for value in (1, 2)]
    compare(pipeline, epochs)
    values = [[pane.values for pane in result.panes] for result in run_on_kernel(pipeline, epochs)]
    assert values == [[((1,),)], [((1,),), ((3,),)]]
