"""What cannot be meant is refused where it is written, with what to write instead."""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.errors import PipelineError

N, T = col("n"), col("t")

MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "a capital M": (lambda: hr.FixedWindows("1M"), r"minutes or as months: write .1m. for minutes"),
    "a capital M after others": (lambda: hr.Sessions("1h 30 M"), "minutes or as months"),
    "a capital M before others": (lambda: hr.Sessions("1.5M 3s"), "minutes or as months"),
    "nothing between ints": (lambda: N.between(9, 1), r"between\(high=1\): it is below low=9"),
    "nothing between an int and a float": (lambda: N.between(9, 1.5), "is below low=9"),
    "nothing between literals": (lambda: N.between(hr.lit(9), hr.lit(1)), "swap them"),
    "nothing between days": (lambda: N.between(date(2013, 1, 2), date(2013, 1, 1)), "swap them"),
    "nothing between texts": (lambda: N.between("b", "a"), "swap them"),
    "nothing between times": (
        lambda: T.between(datetime(2013, 1, 2, tzinfo=UTC), datetime(2013, 1, 1, tzinfo=UTC)),
        "swap them",
    ),
    "31 million windows": (lambda: hr.SlidingWindows("365d", "1s"), "would be in 31,536,000 windows"),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_it_is_refused(what: str) -> None:
    build, why = MISTAKES[what]
    with pytest.raises(PipelineError, match=why):
        build()


def test_what_is_near_to_it_is_not() -> None:
    minutes = ["1m", "1 min", "1 Minute", "1MIN", "60S"]
    assert {hr.FixedWindows(text) for text in minutes} == {hr.FixedWindows(timedelta(minutes=1))}
    assert hr.FixedWindows("4H 30Min") == hr.FixedWindows("4h 30m")
    for condition in (N.between(1, 1), N.between(1, col("m")), N.between(Decimal(1), 2)):
        assert condition is not None
    assert hr.SlidingWindows("365d", "1h").size
