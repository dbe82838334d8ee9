"""Random scenarios for the reference: trigger trees, windows, elements, steps; and how many of them to try.

Seeded by default. ``HEADRACE_EXAMPLES=10000`` tries that many fresh ones of each property.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from headrace import if_else
from headrace.model.accumulation import Accumulation, Firing, How, TimestampCombiner
from headrace.model.combiners import Combiner
from headrace.model.expressions.data_types import DataType
from headrace.model.expressions.expr import Aggregate, Column, Expr, col, count
from headrace.model.time import MAX_INSTANT, Instant
from headrace.model.triggers import Signal, Trigger
from headrace.model.triggers.composites import AfterAll, AfterAny, AfterEach, AfterWatermark, OrFinally, Repeatedly
from headrace.model.triggers.data_driven import AfterPattern, AfterPunctuation, DataDriven
from headrace.model.triggers.elementary import (
    AfterBytes,
    AfterCount,
    AfterPercentileWatermark,
    AfterProcessingTime,
    AfterSignal,
    AfterSynchronizedProcessingTime,
    Always,
    Default,
    Never,
)
from headrace.model.windows import FixedWindows, GlobalWindows, Sessions, SlidingWindows, WindowFn
from headrace_lab.reference import Contents, Element, Grouping, Operator, Output, combine
from tests.building import lengths
from tests.own_triggers import Jump, Poll, Reminder

_WANTED_EXAMPLES = os.environ.get("HEADRACE_EXAMPLES")


_FEWEST = 6


def examples(whole: int, fewest: int = _FEWEST) -> settings:
    """A fifteenth of ``whole`` seeded examples (``fewest``, or all of them, if that is less), a few with the profile of
    ``make test-unit``, as many fresh ones as ``HEADRACE_EXAMPLES`` says (``make fuzz``).
    """
    few = settings.get_current_profile_name() == "unit"
    number = min(whole, settings().max_examples) if few else max(min(whole, fewest), whole // 15)
    return settings(
        max_examples=int(_WANTED_EXAMPLES or number),
        derandomize=_WANTED_EXAMPLES is None,
        deadline=None,
        database=None,
        print_blob=_WANTED_EXAMPLES is not None,
    )


FIXED_LIKE: st.SearchStrategy[WindowFn] = st.one_of(
    st.builds(FixedWindows, lengths(1, 20), lengths(-5, 25)),
    st.builds(SlidingWindows, lengths(1, 20), lengths(2, 12), lengths(-5, 15)),
    st.just(GlobalWindows()),
)
SESSIONS = st.builds(Sessions, lengths(1, 12), st.booleans())


def leaves(condition: Expr, number: Column) -> st.SearchStrategy[Trigger]:
    """Leaves of trigger trees; data-driven ones look at a bool and an int of the elements."""
    several = {"n": count(), "number": number.sum(), "ends": if_else(condition, 1, None).count()}
    return st.one_of(
        st.sampled_from(
            [
                Default(),
                Never(),
                Always(),
                AfterWatermark(),
                AfterSynchronizedProcessingTime(),
                AfterPunctuation(condition),
                AfterPunctuation(number.is_in([1, 4]) | (7 % number == 1)),
                AfterPattern("ab", {"a": condition, "b": ~condition}),
                AfterPattern("a.|b+c", {"a": condition, "b": number > 2, "c": ~condition}),
                DataDriven(several, col("ends") * 2 > col("n")),
                DataDriven(several, (col("number") > 3) | (col("n") >= 3)),
                DataDriven(several, col("number").between(2, 6) & (-(col("n") / 2)).floor().is_in([-1, -2])),
                AfterSignal("go"),
            ]
        ),
        st.builds(Jump, st.integers(0, 4), st.just(number.name)),
        st.builds(Poll, st.integers(0, 3)),
        st.builds(Reminder, st.integers(0, 3), st.just(number.name)),
        st.builds(AfterCount, st.integers(1, 4)),
        st.builds(AfterBytes, st.integers(1, 30)),
        st.builds(AfterPercentileWatermark, st.just(50.0)),
        st.builds(AfterProcessingTime, lengths(0, 10), st.none() | lengths(1, 10), lengths(0, 5)),
    )


def _composites(inner: st.SearchStrategy[Trigger]) -> st.SearchStrategy[Trigger]:
    several = st.lists(inner, min_size=2, max_size=3)
    return st.one_of(
        st.builds(Repeatedly, inner),
        st.builds(AfterWatermark, st.none() | inner, st.none() | inner),
        st.builds(OrFinally, inner, inner),
        several.map(lambda triggers: AfterAny(*triggers)),
        several.map(lambda triggers: AfterAll(*triggers)),
        several.map(lambda triggers: AfterEach(*triggers)),
    )


def triggers(condition: Expr, number: Column) -> st.SearchStrategy[Trigger]:
    """Any tree of the vocabulary, finishing ones included."""
    return st.recursive(leaves(condition, number), _composites, max_leaves=5)


LEAVES = leaves(col("end"), col("number"))
TRIGGERS = triggers(col("end"), col("number"))
"""Those over elements of this module."""

EMITS_ALL: st.SearchStrategy[Trigger] = st.one_of(
    st.just(Default()), st.just(Always()), st.builds(AfterWatermark, st.none() | LEAVES, st.just(AfterCount(1)))
)
"""Triggers that never finish, and that have fired for everything once the watermark is at +inf."""

BEHAVIOURS = st.builds(
    lambda lateness, on_time, closing, timestamp: {
        "allowed_lateness": lateness,
        "on_time": on_time,
        "closing": closing,
        "timestamp": timestamp,
    },
    lengths(0, 30),
    st.sampled_from(Firing),
    st.sampled_from(Firing),
    st.sampled_from(TimestampCombiner),
)


def nasty_names(names: Sequence[str], words: Sequence[str]) -> st.SearchStrategy[Mapping[str, str]]:
    """Another of ``words`` for each of ``names``."""
    some = st.lists(st.sampled_from(words), min_size=len(names), max_size=len(names), unique=True)
    return some.map(lambda other_names: dict(zip(names, other_names, strict=True)))


def elements(retractions: bool = False) -> st.SearchStrategy[Element]:
    """Elements of two keys around time 0; values differ in sum for almost every subset."""
    return st.builds(
        lambda key, time, value, end, size, sign: Element(
            (key,), Instant(time), value, sign, {"end": end, "number": value % 5}, size
        ),
        st.sampled_from("ab"),
        st.integers(-20, 60),
        st.integers(1, 1000),
        st.booleans(),
        st.integers(0, 20),
        st.booleans() if retractions else st.just(False),
    )


@dataclass(frozen=True)
class Step:
    """One epoch of an operator: what ``Operator.step`` takes."""

    elements: tuple[Element, ...]
    processing_time: Instant
    watermark: Instant
    percentile: Instant
    signals: tuple[Signal, ...] = ()

    def __call__(self, operator: Operator) -> Output:
        return operator.step(
            self.elements,
            processing_time=self.processing_time,
            watermark=self.watermark,
            percentiles={50.0: self.percentile},
            signals=self.signals,
        )


_BUNDLES = st.lists(elements(), max_size=5)
_SIGNALS = st.sampled_from([(), (Signal("go"),), (Signal("go", key=("a",)),), (Signal("stop"), Signal("go"))])


@st.composite
def scripts(draw: st.DrawFn) -> list[Step]:
    """Epochs with random bundles and clocks, late elements included; the last one ends the input."""
    times = sorted(draw(st.lists(st.integers(0, 60), min_size=1, max_size=6)))
    marks = sorted(draw(st.lists(st.integers(-25, 80), min_size=len(times), max_size=len(times))))
    steps = [
        Step(
            tuple(draw(_BUNDLES)),
            Instant(time),
            Instant(mark),
            Instant(mark + draw(st.integers(0, 20))),
            draw(_SIGNALS),
        )
        for time, mark in zip(times, marks, strict=True)
    ]
    return [*steps, Step((), Instant(times[-1]), MAX_INSTANT, MAX_INSTANT)]


def summing(contents: Contents) -> tuple[Any, ...]:
    """One aggregate, the sum."""
    return (combine(Aggregate(Combiner.SUM), contents.net),)


SCHEMA = {"end": DataType.BOOL, "number": DataType.INT}


def operator(
    where: WindowFn,
    when: Trigger,
    accumulation: Accumulation,
    behaviour: Mapping[str, Any],
    extract: Callable[[Contents], tuple[Any, ...]] = summing,
) -> Operator:
    """An operator that sums."""
    return Operator(Grouping(where, when, How(accumulation, **behaviour), extract, SCHEMA))
