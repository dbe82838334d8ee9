"""Graphs: back-edges, reachability, files."""

import json
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_lab.simulation import graph_in, random_dataflow, random_processes, shuffled_operators
from headrace_lab.simulation.graphs import Graph, GraphError
from headrace_lab.simulation.workload import Workload


def has_loop(graph: Graph, without_numbers: frozenset[int]) -> bool:
    """Whether tasks are left when those without inputs are taken away again and again."""
    left = {number: ends for number, ends in enumerate(graph.channels) if number not in without_numbers}
    while True:
        ends = {end for _, end in left.values()}
        fewer = {number: channel for number, channel in left.items() if channel[0] in ends}
        if len(fewer) == len(left):
            return bool(left)
        left = fewer


@given(st.integers(1, 30), st.integers(0, 10), st.integers(0, 1000))
def test_without_back_edges_there_is_no_loop_and_with_any_of_them_there_is_one(
    tasks: int, loops: int, seed: int
) -> None:
    for graph in (random_dataflow(tasks, loops, Random(seed)), random_processes(tasks, Random(seed))):
        assert not has_loop(graph, graph.back_edges)
        assert all(has_loop(graph, graph.back_edges - {channel}) for channel in graph.back_edges)


@pytest.mark.slow
def test_a_chain_of_tasks_is_no_matter_how_long() -> None:
    graph = Graph(50_000, tuple((task, task + 1) for task in range(49_999)))
    assert graph.starts == (0,)
    assert not graph.back_edges


def test_a_task_that_no_barrier_reaches_is_named() -> None:
    with pytest.raises(GraphError, match=r"no barrier reaches task 1 \(2 in all\)"):
        Graph(3, ((1, 2), (2, 1)))
    assert Graph(3, ((1, 2), (2, 1)), (0, 1)).back_edges == {1}


@pytest.mark.parametrize(("channels", "starts"), [(((0, 2),), ()), (((-1, 0),), ()), ((), (5,))])
def test_tasks_that_there_are_not_are_named(channels: tuple[tuple[int, int], ...], starts: tuple[int, ...]) -> None:
    with pytest.raises(GraphError, match="the graph has tasks 0 to 1"):
        Graph(2, channels, starts)


def test_operators_are_joined_by_three_full_shuffles_and_two_ways_on_one_node() -> None:
    graph = shuffled_operators(10)
    assert (graph.tasks, len(graph.channels)) == (60, 3 * 10 * 10 + 2 * 10)
    assert graph.starts == tuple(range(10))
    assert [len(graph.inputs[task]) for task in (0, 10, 20, 30, 40, 50)] == [0, 10, 1, 10, 1, 10]


@pytest.mark.parametrize(("nodes", "fan_out"), [(1, 4), (3, 4), (4, 4), (10, 4), (200, 5)])
def test_a_smaller_fan_out_joins_everybody_with_as_many_others(nodes: int, fan_out: int) -> None:
    graph = shuffled_operators(nodes, fan_out)
    most = min(nodes, fan_out)
    assert [len(graph.inputs[task]) for task in range(nodes, 2 * nodes)] == [most] * nodes
    ways = {0}
    for _ in range(5):
        ways = {graph.channels[channel][1] for task in ways for channel in graph.outputs[task]}
    assert len(ways) == min(nodes, fan_out**3)


@pytest.mark.parametrize("nodes", [10, 32, 40])
def test_a_shuffle_gives_every_task_about_as_many_records(nodes: int) -> None:
    graph, each = shuffled_operators(nodes), 200
    counts = [count for count, _ in Workload(graph, graph.back_edges, each).finish()]
    for operator in range(6):
        some = counts[operator * nodes : (operator + 1) * nodes]
        assert sum(some) == nodes * each
        assert max(abs(count - each) for count in some) < 6 * each**0.5


def test_a_file_names_tasks_or_counts_them(tmp_path: Path) -> None:
    file = tmp_path / "graph.json"
    file.write_text(json.dumps({"tasks": ["in", "map", "out"], "channels": [["in", "map"], ["map", "out"]]}))
    assert graph_in(file) == Graph(3, ((0, 1), (1, 2)))
    file.write_text(json.dumps({"tasks": 2, "channels": [[0, 1], [1, 0]], "starts": [1]}))
    assert graph_in(file) == Graph(2, ((0, 1), (1, 0)), (1,))


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"tasks": 2}', '{"tasks": 2, "channels": [[0]]}', '{"tasks": ["a"], "channels": [["a", "b"]]}'],
)
def test_what_is_no_graph_is_named_with_its_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "graph.json"
    file.write_text(text)
    with pytest.raises(GraphError, match=r"graph\.json"):
        graph_in(file)
