"""What must hold of any scenario: the life of a window's panes (semantics 5) and the invariants of retraction (9.1)."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby, pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.model.accumulation import Accumulation, Firing, Timing
from headrace.model.triggers import Trigger
from headrace.model.windows import Sessions, Window, WindowFn
from headrace_lab.reference import Contents, DropCause, Element, Operator, Output
from headrace_lab.reference.elements import Pane
from headrace_lab.reference.windows import assign
from tests.reference.strategies import (
    BEHAVIOURS,
    EMITS_ALL,
    FIXED_LIKE,
    SESSIONS,
    TRIGGERS,
    Step,
    examples,
    operator,
    scripts,
    summing,
)

Place = tuple[tuple[Any, ...], Window]
FOREVER: dict[str, Any] = {"allowed_lateness": None}


def run(steps: Iterable[Step], window_operator: Operator) -> list[Output]:
    return [step(window_operator) for step in steps]


def without_retractions(panes: Iterable[Pane]) -> list[Pane]:
    return [pane for pane in panes if not pane.is_retraction]


class Live:
    """Panes emitted and not withdrawn, maintained by the records alone."""

    def __init__(self) -> None:
        self.panes: dict[Place, Pane] = {}

    def apply(self, record: Pane) -> None:
        place = (record.key, record.window)
        if record.is_retraction:
            assert self.panes.pop(place, None) == replace(record, is_retraction=False), "I4: withdraws one live pane"
        else:
            assert place not in self.panes, "I1: one live pane per (key, window)"
            self.panes[place] = record

    def replace(self, record: Pane) -> None:
        """A pane that takes the place of another without withdrawing it."""
        self.panes[record.key, record.window] = record


@examples(90)
@given(FIXED_LIKE | SESSIONS, TRIGGERS, st.sampled_from(Accumulation), BEHAVIOURS, scripts())
def test_life_of_a_window(
    where: WindowFn, when: Trigger, accumulation: Accumulation, behaviour: dict[str, Any], steps: list[Step]
) -> None:
    window_operator = operator(where, when, accumulation, behaviour)
    panes = [pane for output in run(steps, window_operator) for pane in without_retractions(output.panes)]
    by_window = sorted(panes, key=lambda pane: (pane.key, pane.window))
    for (_, window), pane_group in groupby(by_window, key=lambda pane: (pane.key, pane.window)):
        for life in lives(list(pane_group)):
            assert [pane.index for pane in life] == list(range(len(life)))
            assert [pane.is_first for pane in life] == [True] + [False] * (len(life) - 1)
            assert not any(pane.is_last for pane in life[:-1])
            assert_sequence([pane.timing for pane in life])
            late_or_on_time = [pane for pane in life if pane.timing is not Timing.EARLY]
            assert [pane.nonspeculative_index for pane in late_or_on_time] == list(range(len(late_or_on_time)))
            assert all(pane.nonspeculative_index == -1 for pane in life if pane.timing is Timing.EARLY)
            assert all(pane.timestamp <= window.max_timestamp for pane in life)


def lives(panes: list[Pane]) -> list[list[Pane]]:
    """A session that was merged away, or closed, may come again with the same bounds: then its index restarts."""
    starts = [i for i, pane in enumerate(panes) if pane.index == 0] + [len(panes)]
    return [panes[a:b] for a, b in zip([0, *starts], starts, strict=False) if a < b]


def assert_sequence(timings: list[Timing]) -> None:
    """EARLY* ON_TIME? LATE*"""
    order = [Timing.EARLY, Timing.ON_TIME, Timing.LATE]
    assert timings == sorted(timings, key=order.index)
    assert timings.count(Timing.ON_TIME) <= 1


@examples(90)
@given(FIXED_LIKE | SESSIONS, TRIGGERS, BEHAVIOURS, scripts())
def test_retracting_is_accumulating_with_what_it_replaces_withdrawn(
    where: WindowFn, when: Trigger, behaviour: dict[str, Any], steps: list[Step]
) -> None:
    live = Live()
    retracting = run(steps, operator(where, when, Accumulation.RETRACTING, behaviour))
    accumulating = run(steps, operator(where, when, Accumulation.ACCUMULATING, behaviour))
    for withdrawn, plain in zip(retracting, accumulating, strict=True):
        assert without_retractions(withdrawn.panes) == list(plain.panes)
        assert withdrawn.drops == plain.drops
        for record in withdrawn.panes:
            live.apply(record)


@examples(90)
@given(FIXED_LIKE | SESSIONS, TRIGGERS, BEHAVIOURS, scripts())
def test_eliding_what_is_unchanged_leaves_the_same_to_be_seen(
    where: WindowFn, when: Trigger, behaviour: dict[str, Any], steps: list[Step]
) -> None:
    all_live, few_live = Live(), Live()
    everything = run(steps, operator(where, when, Accumulation.RETRACTING, behaviour, parity))
    eliding = {**behaviour, "elide_unchanged": True}
    for full, fewer in zip(
        everything, run(steps, operator(where, when, Accumulation.RETRACTING, eliding, parity)), strict=True
    ):
        for record in full.panes:
            all_live.apply(record)
        for previous, record in pairwise([None, *fewer.panes]):
            repeats = previous is not None and previous.is_retraction and content(previous) == content(record)
            assert not repeats or merged_meanwhile(fewer.panes, record)
            few_live.apply(record)
        assert {*map(content, all_live.panes.values())} == {*map(content, few_live.panes.values())}
        assert len(fewer.panes) <= len(full.panes)
        assert fewer.drops == full.drops


def parity(contents: Contents) -> tuple[Any, ...]:
    """A value that new elements may well leave as it is."""
    return (summing(contents)[0] % 2,)


def content(pane: Pane) -> tuple[Any, ...]:
    return pane.key, pane.window, pane.values, pane.timestamp


def merged_meanwhile(panes: Iterable[Pane], record: Pane) -> bool:
    """Whether ``record`` replaces another window's pane too."""
    return any(p.is_retraction and p.key == record.key and p.window != record.window for p in panes)


@examples(60)
@given(SESSIONS, EMITS_ALL, scripts())
def test_live_sessions_never_overlap_once_the_merged_one_fired(
    where: Sessions, when: Trigger, steps: list[Step]
) -> None:
    live = Live()
    for output in run(steps, operator(where, when, Accumulation.RETRACTING, FOREVER)):
        for record in output.panes:
            live.apply(record)
            if record.is_retraction:
                continue
            others = [w for key, w in live.panes if key == record.key and w != record.window]
            assert all(w.end <= record.window.start or record.window.end <= w.start for w in others), "I1"


def sums(elements: Iterable[tuple[Element, Window]]) -> dict[Place, int]:
    totals: dict[Place, int] = defaultdict(int)
    for element, window in elements:
        totals[element.key, window] += element.value
    return dict(totals)


def place_elements(where: WindowFn, steps: Iterable[Step]) -> list[tuple[Element, Window]]:
    """Every (element, window) of a script."""
    return [(e, w) for step in steps for e in step.elements for w in assign(where, e.timestamp)]


def leave_out_dropped(pairs: list[tuple[Element, Window]], outputs: Iterable[Output]) -> list[tuple[Element, Window]]:
    left = list(pairs)
    for output in outputs:
        for drop in output.drops:
            left.remove((drop.element, drop.window))
    return left


@examples(90)
@given(FIXED_LIKE, TRIGGERS, BEHAVIOURS, scripts())
def test_at_the_end_the_survivors_are_the_batch_result_of_what_was_accepted(
    where: WindowFn, when: Trigger, behaviour: dict[str, Any], steps: list[Step]
) -> None:
    live = Live()
    outputs = run(steps, operator(where, when, Accumulation.RETRACTING, behaviour))
    for output in outputs:
        for record in output.panes:
            live.apply(record)
    found_by_place = {place: pane.values[0] for place, pane in live.panes.items()}
    assert found_by_place == sums(leave_out_dropped(place_elements(where, steps), outputs)), "I3"


@examples(60)
@given(FIXED_LIKE, TRIGGERS, BEHAVIOURS, scripts())
def test_discarding_panes_add_up_to_the_same(
    where: WindowFn, when: Trigger, behaviour: dict[str, Any], steps: list[Step]
) -> None:
    outputs = run(steps, operator(where, when, Accumulation.DISCARDING, behaviour))
    totals: dict[Place, int] = defaultdict(int)
    for output in outputs:
        for pane in output.panes:
            totals[pane.key, pane.window] += pane.values[0]
    assert dict(totals) == sums(leave_out_dropped(place_elements(where, steps), outputs))


@examples(60)
@given(SESSIONS, EMITS_ALL, scripts())
def test_at_the_end_sessions_are_those_of_a_batch(where: Sessions, when: Trigger, steps: list[Step]) -> None:
    live = Live()
    for output in run(steps, operator(where, when, Accumulation.RETRACTING, FOREVER)):
        assert not output.drops
        for record in output.panes:
            live.apply(record)
    everything = [element for step in steps for element in step.elements]
    assert {place: pane.values[0] for place, pane in live.panes.items()} == naive_sessions(where, everything)


def naive_sessions(where: Sessions, elements: Iterable[Element]) -> dict[Place, int]:
    """Sort by key and time and cut at the gaps."""
    totals: dict[Place, int] = {}
    ordered_elements = sorted(elements, key=lambda e: (e.key, e.timestamp))
    for key, own in groupby(ordered_elements, key=lambda e: e.key):
        session: list[Element] = []
        for element in [*own, None]:
            if session and (element is None or is_apart(where, session[-1], element)):
                first, last = session[0].timestamp, session[-1].timestamp
                totals[key, Window(first, last + where.gap)] = sum(e.value for e in session)  # type: ignore[arg-type]
                session = []
            if element is not None:
                session.append(element)
    return totals


def is_apart(where: Sessions, element_before: Element, element_after: Element) -> bool:
    distance = element_after.timestamp - element_before.timestamp
    return distance > where.gap or (distance == where.gap and not where.touching_merges)


@examples(60)
@given(FIXED_LIKE, TRIGGERS, BEHAVIOURS, scripts(), st.data())
def test_withdrawn_input_leaves_no_trace(
    where: WindowFn, when: Trigger, behaviour: dict[str, Any], steps: list[Step], data: st.DataObject
) -> None:
    """Inputs that are retracted later in the script: what survives is the batch result of the rest."""
    rewritten: list[Step] = []
    elements: list[Element] = []
    for step in steps:
        withdrawn = data.draw(st.lists(st.sampled_from(elements), unique_by=id, max_size=3)) if elements else []
        elements = [e for e in elements if not any(e is w for w in withdrawn)] + list(step.elements)
        rewritten.append(replace(step, elements=(*step.elements, *[replace(e, is_retraction=True) for e in withdrawn])))
    live = Live()
    outputs = run(rewritten, operator(where, when, Accumulation.RETRACTING, behaviour))
    for output in outputs:
        for record in output.panes:
            live.apply(record)
        assert all(d.element.is_retraction == (d.cause is DropCause.RETRACTION) for d in output.drops)
    remaining: dict[Place, Counter[int]] = defaultdict(Counter)
    for element, window in leave_out_dropped(place_elements(where, rewritten), outputs):
        remaining[element.key, window][element.value] += -1 if element.is_retraction else 1
    expected = {p: sum(v * n for v, n in bag.items()) for p, bag in remaining.items() if sum(bag.values())}
    assert {place: pane.values[0] for place, pane in live.panes.items()} == expected


@examples(60)
@given(FIXED_LIKE | SESSIONS, TRIGGERS, BEHAVIOURS, scripts())
def test_output_watermark_is_monotone_and_on_time_panes_are_ahead_of_it(
    where: WindowFn, when: Trigger, behaviour: dict[str, Any], steps: list[Step]
) -> None:
    """7.2: a pane that was held for comes no later than the watermark that it held."""
    window_operator = operator(where, when, Accumulation.DISCARDING, {**behaviour, "on_time": Firing.IF_NON_EMPTY})
    for step in steps:
        output_watermark_before = window_operator.output_watermark
        for pane in step(window_operator).panes:
            assert pane.timing is not Timing.ON_TIME or pane.timestamp >= output_watermark_before
        assert (
            output_watermark_before
            <= window_operator.output_watermark
            <= max(window_operator.clocks.watermark, output_watermark_before)
        )
