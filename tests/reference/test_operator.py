"""Rules of one operator that the conformance cases do not reach."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pytest

from headrace.errors import PipelineError
from headrace.model.accumulation import How, TimestampCombiner, discarding, retracting
from headrace.model.time import GLOBAL_WINDOW_END, Instant
from headrace.model.triggers import Trigger
from headrace.model.triggers.composites import AfterEach, Repeatedly
from headrace.model.triggers.elementary import AfterCount, AfterProcessingTime, Default
from headrace.model.windows import (
    CustomWindows,
    FixedWindows,
    MergeGroup,
    Sessions,
    ShiftedOutputTime,
    Window,
    WindowFn,
)
from headrace_lab.reference import Chain, DropCause, Element, Grouping, Operator, collect
from headrace_lab.reference.elements import Pane


def window(start: int, end: int) -> Window:
    return Window(Instant(start), Instant(end))


def element(time: int, **more: Any) -> Element:
    return Element(("k",), Instant(time), time, **more)


def operator(where: WindowFn, when: Trigger, how: How) -> Operator:
    return Operator(Grouping(where, when, how, collect))


def brief(panes: Iterable[Pane]) -> list[tuple[Any, ...]]:
    return [(tuple(pane.window), *pane.values) for pane in panes]


def test_a_merge_that_would_give_a_closed_window_drops_what_is_new_and_leaves_what_is_open() -> None:
    window_operator = operator(Sessions("10us"), AfterCount(3), discarding("100us"))
    assert brief(window_operator.step([element(1), element(2), element(3)]).panes) == [((1, 13), (1, 2, 3))]
    assert window_operator.step([element(2)]).panes == (), "[2, 12) is another window than the closed [1, 13)"
    output = window_operator.step([element(1), element(3)])
    assert [(drop.window, drop.cause) for drop in output.drops] == [(window(1, 13), DropCause.CLOSED)] * 2
    assert brief(window_operator.step([element(4), element(5)]).panes) == [((2, 15), (2, 4, 5))]


def test_a_processing_time_part_stays_finished_only_if_it_was_in_every_merged_window() -> None:
    when = AfterEach(AfterProcessingTime("10us"), AfterCount(2))
    window_operator = operator(Sessions("10us"), when, discarding("100us"))
    window_operator.step([element(1)], processing_time=Instant(0))
    assert brief(window_operator.step(processing_time=Instant(10)).panes) == [((1, 11), (1,))]
    window_operator.step([element(15)], processing_time=Instant(12))
    assert window_operator.step([element(8)], processing_time=Instant(13)).panes == (), (
        "two came, but the deadline is pending again"
    )
    assert brief(window_operator.step(processing_time=Instant(22)).panes) == [((1, 25), (15, 8))]
    assert window_operator.step([element(9)]).panes == ()
    (last,) = window_operator.step([element(10)]).panes
    assert (last.values, last.is_last) == (((9, 10),), True)


def test_clocks_never_go_back() -> None:
    window_operator = operator(FixedWindows("10us"), Repeatedly(AfterProcessingTime("5us")), discarding("0s"))
    window_operator.step(watermark=Instant(0), processing_time=Instant(100), percentiles={50.0: Instant(7)})
    window_operator.step(
        [element(1)], watermark=Instant(-5), processing_time=Instant(3), percentiles={50.0: Instant(2)}
    )
    assert (
        window_operator.clocks.watermark,
        window_operator.clocks.processing_time,
        window_operator.clocks.percentile(50.0),
    ) == (0, 100, 7)
    assert window_operator.clocks.percentile(90.0) == window_operator.clocks.watermark
    assert brief(window_operator.step(processing_time=Instant(105)).panes) == [((0, 10), (1,))]


def test_retractions_cannot_reach_windows_that_merge() -> None:
    window_operator = operator(Sessions("10us"), Default(), retracting())
    with pytest.raises(PipelineError, match="never split"):
        window_operator.step([element(1, is_retraction=True)])
    upper = Grouping(FixedWindows("10us"), Default(), retracting(), collect)
    with pytest.raises(PipelineError, match="do not merge"):
        Chain([upper, window_operator.grouping], [lambda pane: [element(pane.timestamp)]])


@dataclass(frozen=True)
class UntilTheNext(CustomWindows):
    """What was said holds until something else is said (ValidityWindows of the Streaming Systems book)."""

    @property
    def merges(self) -> bool:
        return True

    def assign(self, timestamp: Instant, record: Mapping[str, Any]) -> Iterable[Window]:
        del record
        return [Window(timestamp, GLOBAL_WINDOW_END)]

    def merge(self, windows: Collection[Window]) -> Iterable[MergeGroup]:
        """Each window is cut at the start of the next."""
        starts = sorted({w.start for w in windows})
        for start, following in pairwise([*starts, GLOBAL_WINDOW_END]):
            sources = frozenset(w for w in windows if w.start == start)
            yield MergeGroup(sources, Window(start, min(following, *(w.end for w in sources), GLOBAL_WINDOW_END)))


def test_custom_windows_may_shrink_when_they_merge() -> None:
    window_operator = operator(UntilTheNext(), Default(), discarding("0s"))
    window_operator.step([element(0), element(20)])
    window_operator.step([element(10)])
    assert brief(window_operator.step(watermark=Instant(20)).panes) == [((0, 10), (0,)), ((10, 20), (10,))]


@dataclass(frozen=True)
class Absorbing(CustomWindows):
    """Once there are three windows of a key, the earliest swallows the others and stays as it is."""

    @property
    def merges(self) -> bool:
        return True

    def assign(self, timestamp: Instant, record: Mapping[str, Any]) -> Iterable[Window]:
        del record
        return [window(timestamp, timestamp + 10)]

    def merge(self, windows: Collection[Window]) -> Iterable[MergeGroup]:
        return [MergeGroup(frozenset(windows), min(windows))] if len(windows) > 2 else []


def test_pane_counters_go_on_if_the_result_is_one_of_the_merged_windows() -> None:
    window_operator = operator(Absorbing(), Repeatedly(AfterCount(1)), retracting("0s"))
    assert [pane.index for pane in window_operator.step([element(5)]).panes] == [0]
    assert [pane.index for pane in window_operator.step([element(30)]).panes] == [0]
    *withdrawn, pane_again = window_operator.step([element(50)]).panes
    assert [(pane.window, pane.is_retraction) for pane in withdrawn] == [(window(5, 15), True), (window(30, 40), True)]
    assert (pane_again.window, pane_again.index, pane_again.values) == (window(5, 15), 1, ((5, 30, 50),))


@dataclass(frozen=True)
class Careless(CustomWindows):
    """Merges into a window that is open already and was not given as a source."""

    @property
    def merges(self) -> bool:
        return True

    def assign(self, timestamp: Instant, record: Mapping[str, Any]) -> Iterable[Window]:
        del record
        return [window(timestamp, timestamp + 1)]

    def merge(self, windows: Collection[Window]) -> Iterable[MergeGroup]:
        first, *rest = sorted(windows)
        return [MergeGroup(frozenset({w}), first) for w in rest]


def test_custom_windows_that_break_the_merge_contract_are_told() -> None:
    window_operator = operator(Careless(), Default(), discarding("0s"))
    with pytest.raises(PipelineError, match="another window of the key"):
        window_operator.step([element(1), element(5)])


@dataclass(frozen=True)
class PerKind(CustomWindows):
    """Windows of a length that the record names; one of an unknown kind is in none."""

    def assign(self, timestamp: Instant, record: Mapping[str, Any]) -> Iterable[Window]:
        size = {"hour": 60, "minute": 1}.get(record.get("kind", ""))
        return [] if size is None else [window(timestamp - timestamp % size, timestamp - timestamp % size + size)]


def test_custom_windows_may_read_the_record() -> None:
    window_operator = operator(PerKind(), Default(), discarding("0s"))
    kinds = [("hour", 61), ("minute", 62), ("week", 63), ("hour", 90)]
    window_operator.step([element(time, record={"kind": kind}) for kind, time in kinds])
    assert brief(window_operator.step(watermark=Instant(120)).panes) == [((62, 63), (62,)), ((60, 120), (61, 90))]


@pytest.mark.parametrize("inner", [FixedWindows("10us"), Sessions("10us"), PerKind()])
def test_a_shifted_output_time_moves_panes_and_nothing_else(inner: WindowFn) -> None:
    how = discarding("0s", timestamp=TimestampCombiner.EARLIEST)
    shifted_operator = operator(ShiftedOutputTime(inner, "4us"), Default(), how)
    plain = operator(inner, Default(), how)
    for window_operator in (plain, shifted_operator):
        window_operator.step([element(time, record={"kind": "hour"}) for time in (13, 11, 25)], watermark=Instant(5))
    pane_before, pane_after = (
        window_operator.step(watermark=Instant(200)).panes for window_operator in (plain, shifted_operator)
    )
    assert [replace(pane, timestamp=pane.timestamp + 4) for pane in pane_before] == list(pane_after)


def test_an_output_time_is_not_shifted_back() -> None:
    with pytest.raises(PipelineError, match="negative"):
        ShiftedOutputTime(FixedWindows("10us"), "-1us")
