"""The graph that barriers flow through: tasks, channels, where a snapshot begins, and which channels close a loop."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from headrace.errors import FixConfigError


class GraphError(FixConfigError):
    """A graph through which no barrier could reach every task."""

    code = "config.graph"


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
        reached = {task for task, _ in _visits(self)}
        if lost := sorted({*range(self.tasks)} - reached):
            raise GraphError(
                f"no barrier reaches task {lost[0]} ({len(lost)} in all): name a task to start at, from which "
                "channels lead there"
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

        Without them the graph has no loop. The task at the other end is reached from the one that they lead to by other
        channels alone, so a barrier never comes round before it went out.
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
    visited: set[int] = set()
    for start in graph.starts:
        if start in visited:
            continue
        visited.add(start)
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
            _, to = graph.channels[channel]
            if to in path:
                yield to, channel
            elif to not in visited:
                visited.add(to)
                path.add(to)
                yield to, None
                stack.append((to, iter(graph.outputs[to])))
