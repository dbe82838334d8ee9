"""Graphs that barriers flow through: tasks, channels, where a snapshot begins, and which channels close a loop. Random
ones from a seed, the one of the paper's evaluation, and those of a file.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

from headrace.errors import FixConfigError


class GraphError(FixConfigError, code="config.graph"):
    """A graph through which no barrier could reach every task."""


@dataclass(frozen=True)
class Graph:
    """``tasks`` numbered from 0 and channels (from task, to task), which are called by their number too.

    A snapshot begins at ``starts``; if none are named, at the tasks without inputs. Raises GraphError unless every task
    can be reached from there.
    """

    tasks: int
    channels: tuple[tuple[int, int], ...]
    starts: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.tasks < 1:
            raise GraphError("the graph has no task")
        for number, ends in enumerate(self.channels):
            if not all(0 <= task < self.tasks for task in ends):
                raise GraphError(f"channel {number} joins tasks {ends}: the graph has tasks 0 to {self.tasks - 1}")
        if not all(0 <= task < self.tasks for task in self.starts):
            raise GraphError(f"a snapshot starts at {self.starts}: the graph has tasks 0 to {self.tasks - 1}")
        if not self.starts:
            object.__setattr__(self, "starts", tuple(t for t in range(self.tasks) if not self.inputs[t]))
        reached_tasks = {task for task, _ in _visits(self)}
        if unreached_tasks := sorted({*range(self.tasks)} - reached_tasks):
            raise GraphError(
                f"no barrier reaches task {unreached_tasks[0]} ({len(unreached_tasks)} in all): "
                "name a task to start at, from which channels lead there"
            )

    @cached_property
    def inputs(self) -> tuple[tuple[int, ...], ...]:
        """The channels into each task."""
        return self._ends(1)

    @cached_property
    def outputs(self) -> tuple[tuple[int, ...], ...]:
        """The channels out of each task."""
        return self._ends(0)

    @cached_property
    def back_edges(self) -> frozenset[int]:
        """The channels that lead to a task on the path of a depth-first search from the starts: one in each loop.

        Without them the graph has no loop. The task at the other end is reached by other channels alone, from the task
        that they lead to. So a barrier never comes round before it went out.
        """
        return frozenset(channel for _, channel in _visits(self) if channel is not None)

    def _ends(self, end: int) -> tuple[tuple[int, ...], ...]:
        ends: list[list[int]] = [[] for _ in range(self.tasks)]
        for number, channel in enumerate(self.channels):
            ends[channel[end]].append(number)
        return tuple(map(tuple, ends))


def _visits(graph: Graph) -> Iterator[tuple[int, int | None]]:
    """Every task that is reached, each once, and beside the task on the path every channel that leads back to it."""
    path: set[int] = set()
    visited_numbers: set[int] = set()
    for start in graph.starts:
        if start in visited_numbers:
            continue
        visited_numbers.add(start)
        path.add(start)
        yield start, None
        stack = [(start, iter(graph.outputs[start]))]
        while stack:
            task, channels = stack[-1]
            channel = next(channels, None)
            if channel is None:
                stack.pop()
                path.discard(task)
                continue
            _, target = graph.channels[channel]
            if target in path:
                yield target, channel
            elif target not in visited_numbers:
                visited_numbers.add(target)
                path.add(target)
                yield target, None
                stack.append((target, iter(graph.outputs[target])))


_WINDOW = 10
"""Inputs of a task come from this part of the tasks, those just before it: about 20 tasks in a row, however many."""


def random_dataflow(tasks: int, loops: int, random: Random) -> Graph:
    """A tenth of the tasks are sources; each other one has one to three inputs; ``loops`` channels lead back."""
    sources = max(1, tasks // 10)
    channels: list[tuple[int, int]] = []
    outputs: list[list[int]] = [[] for _ in range(tasks)]
    for task in range(min(sources, tasks), tasks):
        window = range(max(0, task - max(_WINDOW, tasks // _WINDOW)), task)
        for source in random.sample(window, min(len(window), random.randint(1, 3))):
            channels.append((source, task))
            outputs[source].append(task)
    inner = range(sources, tasks)
    for _ in range(loops if inner else 0):
        end = start = random.choice(inner)
        for _ in range(random.randint(0, 4)):
            end = random.choice(outputs[end]) if outputs[end] else end
        channels.append((end, start))
    return Graph(tasks, tuple(channels))


def random_processes(tasks: int, random: Random) -> Graph:
    """A ring with as many chords: every process is reached from each. Snapshots begin at one to three of them."""
    ring = [*range(tasks)]
    random.shuffle(ring)
    channels = [(ring[n - 1], ring[n]) for n in range(tasks)]
    channels += [(random.randrange(tasks), random.randrange(tasks)) for _ in range(tasks)]
    return Graph(tasks, tuple(channels), tuple(random.sample(range(tasks), random.randint(1, min(3, tasks)))))


OPERATORS = 6


def shuffled_operators(nodes: int, fan_out: int | None = None) -> Graph:
    """Six operators with a task on each node, as in the evaluation of Carbone et al. (arXiv:1506.08603, figure 5).

    Between every second pair of them, three times in all, there is a full shuffle: each task sends to all of the next
    operator. Elsewhere a task sends to the one on its own node. With ``fan_out`` it sends to so many in a shuffle:
    first to its neighbours, then to ones farther away. The three together mix ``fan_out``³ nodes.
    """
    targets_per_task = min(nodes, fan_out or nodes)
    channels = []
    for operator in range(OPERATORS - 1):
        step = targets_per_task ** (operator // 2) if targets_per_task < nodes else 1
        offsets = [0] if operator % 2 else [number * step for number in range(targets_per_task)]
        for node in range(nodes):
            start, ends = (
                operator * nodes + node,
                ((operator + 1) * nodes + (node + offset) % nodes for offset in offsets),
            )
            channels += [(start, end) for end in ends]
    return Graph(OPERATORS * nodes, tuple(channels))


def graph_in(file: Path) -> Graph:
    """The graph of a JSON file: ``{"tasks": ["a", "b"], "channels": [["a", "b"]], "starts": ["a"]}``.

    Tasks may be a number too, and are then called 0, 1 and so on; starts may be left out. Raises GraphError.
    """
    try:
        document: Any = json.loads(file.read_text(encoding="utf-8"))
        tasks = document["tasks"]
        names = range(tasks) if isinstance(tasks, int) else tasks
        number = {name: place for place, name in enumerate(names)}
        channels = tuple((number[start], number[end]) for start, end in document["channels"])
        return Graph(len(names), channels, tuple(number[name] for name in document.get("starts", ())))
    except OSError as error:
        raise GraphError(f"{file} cannot be read: {error.strerror}") from error
    except KeyError as error:
        raise GraphError(f"{file}: {error} is missing: write tasks and channels, and name tasks that exist") from error
    except (TypeError, ValueError) as error:
        raise GraphError(f'{file} is no graph: {error}. Write {{"tasks": 2, "channels": [[0, 1]]}}') from error
