"""Stable properties, detected on recorded states: what the theorem says holds, and what it stands on."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from headrace_lab.simulation import Detection, Processes, StableProperty, behaviour, detect, random_processes
from headrace_lab.simulation.behaviours import DiffusingComputation, Say, TokenPassing, WaitForGraph, Waiting, both_ways
from headrace_lab.simulation.graphs import Graph
from headrace_lab.simulation.processes import GlobalState, ProcessBehaviour, ProcessStep

EVERY = pytest.mark.parametrize("kind", [*StableProperty])


def failed_properties(detection: Detection) -> dict[str, str]:
    return {each.name: each.problems[0] for each in detection.properties if not each.holds}


def failures(kind: StableProperty, *, is_fifo: bool) -> dict[str, str]:
    """What fails of sixty runs."""
    problems: dict[str, str] = {}
    for seed in range(60):
        doing = behaviour(kind, random_processes(8, Random(seed)), 10)
        problems |= failed_properties(detect(Processes(doing, seed, 15, is_fifo=is_fifo)))
    return problems


def detect_run(doing: ProcessBehaviour, seed: int) -> Detection:
    detection = detect(Processes(doing, seed, every=10))
    assert not failed_properties(detection)
    return detection


@examples(deadline=None)
@given(st.sampled_from(StableProperty), st.integers(1, 10), st.integers(0, 10_000), st.integers(1, 40))
def test_what_the_theorem_says_holds_of_every_interleaving(
    kind: StableProperty, processes: int, seed: int, every: int
) -> None:
    doing = behaviour(kind, random_processes(processes, Random(seed)), 6)
    assert not failed_properties(detect(Processes(doing, seed, every)))


@EVERY
def test_recorded_states_are_often_ones_that_never_were(kind: StableProperty) -> None:
    doing = behaviour(kind, random_processes(8, Random(2)), 20)
    run = Processes(doing, 2, every=10)
    run.run()
    assert any(each.recorded not in {each.start, each.end} for each in run.snapshots)
    assert run.snapshots[-1].start == run.snapshots[-1].end == run.state


@pytest.mark.slow
@EVERY
def test_channels_that_are_not_first_in_first_out_end_the_theorem(kind: StableProperty) -> None:
    assert not failures(kind, is_fifo=True)
    assert {"reachability", "stability"} <= {*failures(kind, is_fifo=False)}


@EVERY
def test_ten_processes_and_the_same_seed_are_the_same_run(kind: StableProperty) -> None:
    doing = behaviour(kind, random_processes(10, Random(1)), 5)
    assert detect_run(doing, 3) == detect_run(doing, 3)
    assert detect_run(doing, 3) != detect_run(doing, 4)


def test_a_computation_has_terminated_once_and_is_found_at_last() -> None:
    detection = detect_run(DiffusingComputation(random_processes(8, Random(1)), 80), 1)
    assert detection.detected[0] == 0
    assert detection.detected[-1] == 8
    assert [*detection.detected] == sorted(detection.detected)


def test_work_on_its_way_is_not_the_end() -> None:
    doing = DiffusingComputation(Graph(2, ((0, 1), (1, 0)), (0,)), 5)
    assert not doing.holds_of(GlobalState((0, 0), ((3,), ())))
    assert not doing.holds_of(GlobalState((0, 3), ((), ())))
    assert doing.holds_of(GlobalState((0, 0), ((), ()))) == {0, 1}


def test_waits_that_close_a_circle_are_found_of_those_in_it_and_of_those_that_wait_for_it() -> None:
    doing = WaitForGraph(both_ways(Graph(4, ((0, 1), (1, 2), (2, 0), (3, 0)), (3,))), 1)
    circle = (Waiting(0, (), 0), Waiting(1, (), 0), Waiting(2, (), 0))
    runs, waits = Waiting(None, (), 0), Waiting(3, (), 0)
    empty: tuple[tuple[Say, ...], ...] = ((),) * 8
    assert doing.holds_of(GlobalState((*circle, runs), empty)) == {0, 1, 2}
    assert doing.holds_of(GlobalState((*circle, waits), empty)) == {0, 1, 2, 3}
    assert not doing.holds_of(GlobalState((circle[0], circle[1], runs, waits), empty)), "2 will grant"
    on_its_way = (*empty[:6], (Say.GRANT,), ())
    assert not doing.holds_of(GlobalState((*circle, waits), on_its_way)), "2 has its grant, and will grant"


def test_requests_in_an_order_never_close_a_circle() -> None:
    for seed in range(20):
        graph = both_ways(random_processes(8, Random(seed)))
        detection = detect_run(WaitForGraph(graph, 5, is_ordered=True), seed)
        assert not any(detection.detected)
        assert detection.totals["events"] >= 8 * 5
        assert any(detect_run(WaitForGraph(graph, 5), seed).detected)


def test_a_token_is_lost_only_where_it_is() -> None:
    graph = random_processes(6, Random(3))
    assert not any(detect_run(TokenPassing(graph, 60, after=None), 3).detected)
    detection = detect_run(TokenPassing(graph, 60, after=30), 3)
    assert (detection.detected[0], detection.detected[-1]) == (0, 6)
    assert not TokenPassing(graph, 60, after=None).holds_of(GlobalState((None,) * 6, ((0,), *((),) * 11)))


# Properties that look like the stable ones and are not


@dataclass(frozen=True)
class _EverybodyIsIdle(DiffusingComputation):
    def holds_of(self, state: GlobalState) -> frozenset[int]:
        return super().holds_of(state._replace(channels=((),) * len(state.channels)))


@dataclass(frozen=True)
class _NobodyHasIt(TokenPassing):
    def holds_of(self, state: GlobalState) -> frozenset[int]:
        return super().holds_of(state._replace(channels=((),) * len(state.channels)))


@dataclass(frozen=True)
class _GrantsAreNotLookedAt(WaitForGraph):
    def holds_of(self, state: GlobalState) -> frozenset[int]:
        return super().holds_of(state._replace(channels=((),) * len(state.channels)))


WITHOUT_CHANNELS: list[Callable[[Graph], ProcessBehaviour]] = [
    lambda graph: _EverybodyIsIdle(graph, 30),
    lambda graph: _NobodyHasIt(graph, 60, after=None),
    lambda graph: _GrantsAreNotLookedAt(both_ways(graph), 5),
]


@pytest.mark.slow
@pytest.mark.parametrize("doing", WITHOUT_CHANNELS, ids=["termination", "token-loss", "deadlock"])
def test_without_the_contents_of_channels_what_is_found_may_not_hold(
    doing: Callable[[Graph], ProcessBehaviour],
) -> None:
    problems: dict[str, str] = {}
    for seed in range(60):
        run = Processes(doing(random_processes(6, Random(seed))), seed, every=7)
        problems |= failed_properties(detect(run))
    assert "stability" in problems
    assert "reachability" not in problems, "the recorded state is right; what is asked of it is wrong"


class _Forgetful(TokenPassing):
    """A process that makes a second token: losing one is not for ever, so the loss is not stable."""

    def act(self, process: int, state: int | None, random: Random) -> ProcessStep | None:
        if state is None and process == 0 and random.random() < 0.5:
            return ProcessStep(self.passes)
        return super().act(process, state, random)


def test_a_loss_that_is_made_good_is_not_stable() -> None:
    problems = {}
    for seed in range(60):
        run = Processes(_Forgetful(random_processes(4, Random(seed)), 8, after=1), seed, every=3)
        problems |= failed_properties(detect(run))
    assert {*problems} == {"stability", "detection"}
