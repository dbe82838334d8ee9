"""What the coordinator and tasks tell each other comes once, twice or not at all, as often as it should."""

from collections import Counter
from random import Random

import pytest

from headrace_lab.simulation.control import Control
from headrace_lab.simulation.graphs import Graph
from headrace_lab.simulation.settings import Settings
from headrace_lab.simulation.timeline import Timeline


def arrivals(
    loss_rate: float, tries: int, messages: int = 4_000, *, is_sure: bool = False
) -> tuple[list[int], Control]:
    """Which messages of one line came, in that order; one is sent every 1,000 µs."""
    timeline, moments = Timeline(), list[int]()
    settings = Settings(Graph(1, ()), lost_messages=loss_rate, tries=tries, delay=500)
    control = Control(settings, timeline, Random(7))
    for number in range(messages):
        timeline.call_after(
            1_000 * number, lambda n=number: control.send("a line", moments.append, n, is_sure=is_sure), control=True
        )
    timeline.run()
    return moments, control


def test_without_losses_each_comes_once_and_nothing_is_sent_again() -> None:
    arrival, control = arrivals(0.0, 10)
    assert (arrival, control.resent) == ([*range(4_000)], 0)


@pytest.mark.parametrize(("loss_rate", "tries"), [(0.1, 1), (0.3, 2), (0.5, 3)])
def test_a_message_of_which_every_try_is_lost_never_comes(loss_rate: float, tries: int) -> None:
    arrival, control = arrivals(loss_rate, tries)
    missing = 1 - len({*arrival}) / 4_000
    assert missing == pytest.approx(loss_rate**tries, abs=0.02)
    assert (control.resent > 0) is (tries > 1)
    assert max(Counter(arrival).values()) <= tries


def test_one_whose_confirmation_is_lost_comes_twice() -> None:
    arrival, _ = arrivals(0.1, 2)
    total_twice = sum(count == 2 for count in Counter(arrival).values())
    assert total_twice / 4_000 == pytest.approx(0.9 * 0.1 * 0.9, abs=0.02)


def test_the_first_of_each_come_in_the_order_in_which_they_were_said() -> None:
    arrival, _ = arrivals(0.5, 10)
    first = [*dict.fromkeys(arrival)]
    assert first == sorted(first)
    assert len(first) > 3_900


def test_what_is_sure_comes_once_whatever_is_lost() -> None:
    assert arrivals(0.5, 1, is_sure=True)[0] == [*range(4_000)]
