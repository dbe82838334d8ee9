"""Rounds of the reference beside union-find and Bellman-Ford: whatever the cuts and bounds, an epoch that leaves
nothing in flight has the answer for all edges so far.
"""

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st

from headrace_lab.reference.loop import Edge, Functions, Graph
from tests.loops.graphs import Cut, cuts, grid
from tests.loops.graphs import Edge as Given
from tests.loops.oracles import components, distances, reachable_vertices
from tests.reference.strategies import examples

ROUNDS = st.sampled_from([1, 2, 3, None])
BEGIN = "v00"

COMPONENTS = Functions(lambda vertex: vertex, lambda value, edge: value, operator.lt)
PATHS = Functions(lambda vertex: 0 if vertex == BEGIN else None, lambda value, edge: value + edge.reads[0], operator.lt)
REACHABILITY = Functions(lambda vertex: vertex == BEGIN, lambda value, edge: value, operator.gt)
"""The loops, and what each must come to."""


def reverse_edge(edge: Given) -> Given:
    return Given(edge.b, edge.a, edge.weight, edge.at)


def both(edges: Sequence[Given]) -> list[Given]:
    return [*edges, *map(reverse_edge, edges)]


def _components(edges: Sequence[Given]) -> Mapping[str, Any]:
    return components((edge.a, edge.b) for edge in edges)


def _paths(edges: Sequence[Given]) -> Mapping[str, Any]:
    return distances(((edge.a, edge.b, edge.weight) for edge in edges), {BEGIN: 0})


def _reachable_by_vertex(edges: Sequence[Given]) -> Mapping[str, Any]:
    reached_vertices = reachable_vertices(((edge.a, edge.b) for edge in edges), [BEGIN])
    return {vertex: vertex in reached_vertices for edge in edges for vertex in (edge.a, edge.b)}


LOOPS: Mapping[str, tuple[Functions, bool, Callable[[Sequence[Given]], Mapping[str, Any]]]] = {
    "components": (COMPONENTS, True, _components),
    "paths": (PATHS, False, _paths),
    "reached": (REACHABILITY, False, _reachable_by_vertex),
}
by_loop = pytest.mark.parametrize("name", LOOPS)


def epochs(cut: Cut, *, both_ways: bool) -> Iterator[list[Edge]]:
    for edges in cut.epochs:
        yield [Edge(edge.a, edge.b, (edge.weight,)) for edge in (both(edges) if both_ways else edges)]


@by_loop
@given(data=st.data(), cut=cuts(), rounds=ROUNDS)
@settings(examples(150))
def test_an_epoch_with_nothing_in_flight_has_the_answer(
    name: str, data: st.DataObject, cut: Cut, rounds: int | None
) -> None:
    functions, both_ways, answer = LOOPS[name]
    graph, given_so_far = Graph(functions), list[Given]()
    for given_now, edges in zip(cut.epochs, epochs(cut, both_ways=both_ways), strict=True):
        values_before = dict(graph.values)
        changed_values = graph.epoch(edges, rounds)
        given_so_far += given_now
        expected = answer(given_so_far)
        assert graph.values == {**values_before, **changed_values}
        if not graph.in_flight:
            assert graph.values == expected
        _check_between(graph, values_before, expected)
        if data.draw(st.booleans(), label="crash"):  # all that is left is what a snapshot has of it
            graph = Graph(functions, deepcopy(graph.edges), dict(graph.values), dict(graph.in_flight))
    while graph.in_flight:
        assert graph.epoch([], rounds)
    assert graph.values == answer(given_so_far)
    assert graph.epoch([], rounds) == {}


def _check_between(graph: Graph, old_values: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Values only get better, are never better than the answer, and what is in flight is better than them."""
    is_better = graph.functions.is_better
    assert graph.values.keys() <= expected.keys()
    for vertex, value in graph.values.items():
        assert vertex not in old_values or not is_better(old_values[vertex], value)
        assert not is_better(value, expected[vertex])
    for vertex, value in graph.in_flight.items():
        assert vertex not in graph.values or is_better(value, graph.values[vertex])


@by_loop
@given(cut=cuts(), rounds=st.integers(1, 3))
@settings(examples(60))
def test_with_no_bound_nothing_is_ever_in_flight_and_the_cuts_do_not_show(name: str, cut: Cut, rounds: int) -> None:
    functions, both_ways, _ = LOOPS[name]
    whole, cut_up, bounded_graph = Graph(functions), Graph(functions), Graph(functions)
    for edges in epochs(cut, both_ways=both_ways):
        cut_up.epoch(edges, None)
        assert not cut_up.in_flight
        bounded_graph.epoch(edges, rounds)
    whole.epoch([edge for edges in epochs(cut, both_ways=both_ways) for edge in edges], None)
    while bounded_graph.in_flight:
        bounded_graph.epoch([], rounds)
    assert whole.values == cut_up.values == bounded_graph.values


def test_a_round_is_a_step_along_all_edges() -> None:
    graph = Graph(COMPONENTS)
    line = [Edge("a", "b"), Edge("b", "c"), Edge("c", "d")]
    assert graph.epoch(line, 1) == {"a": "a", "b": "b", "c": "c", "d": "d"}
    assert graph.in_flight == {"b": "a", "c": "b", "d": "c"}
    assert graph.epoch([], 1) == {"b": "a", "c": "b", "d": "c"}
    assert graph.in_flight == {"c": "a", "d": "b"}
    assert graph.epoch([Edge("d", "e")], 2) == {"c": "a", "d": "a", "e": "b"}
    assert graph.in_flight == {"e": "a"}
    assert graph.epoch([], 5) == {"e": "a"}
    assert not graph.in_flight


def test_a_long_way_ends() -> None:
    graph = Graph(COMPONENTS)
    pairs = [(f"{a:05}", f"{b:05}") for a, b in grid(600, 3)]
    edges = [Edge(*ends) for a, b in pairs for ends in ((a, b), (b, a))]
    graph.epoch(edges, 64)
    epochs_more = 0
    while graph.in_flight:
        graph.epoch([], 64)
        epochs_more += 1
    assert epochs_more > 5
    assert {*graph.values.values()} == {"00000"}


class Forgetful(Graph):
    """What is in flight at a barrier is thrown away."""

    def epoch(self, edges: Any, rounds: int | None) -> Mapping[Any, Any]:
        self.in_flight = {}
        return super().epoch(edges, rounds)


@by_loop
def test_a_loop_that_throws_away_what_is_in_flight_comes_to_something_else(name: str) -> None:
    functions, both_ways, answer = LOOPS[name]

    def is_wrong(cut: Cut) -> bool:
        graph = Forgetful(functions)
        for edges in epochs(cut, both_ways=both_ways):
            graph.epoch(edges, 1)
        for _ in range(50):
            graph.epoch([], 1)
        return graph.values != answer([edge for edges in cut.epochs for edge in edges])

    assert is_wrong(find(cuts(), is_wrong, settings=settings(examples(500), max_examples=500)))
