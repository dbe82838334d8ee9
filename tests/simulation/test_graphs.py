"""Graphs: back-edges, reachability, files."""

import json
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_snapshots.protocol.graph import Graph, GraphError
from headrace_snapshots.simulation import graph_in, random_dataflow, random_processes


def has_loop(graph: Graph, without: frozenset[int]) -> bool:
    """Whether tasks are left when those without inputs are taken away again and again."""
    left = {number: ends for number, ends in enumerate(graph.channels) if number not in without}
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
