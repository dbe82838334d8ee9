"""Graphs to simulate: random ones from a seed, and those of a file."""

import json
from pathlib import Path
from random import Random
from typing import Any

from headrace_snapshots.protocol.graph import Graph, GraphError

_WINDOW = 10
"""Inputs of a task come from this part of the tasks, those just before it: about 20 tasks in a row, however many."""


def random_dataflow(tasks: int, loops: int, random: Random) -> Graph:
    """A tenth of the tasks are sources; each other one has one to three inputs; ``loops`` channels lead back."""
    sources = max(1, tasks // 10)
    channels: list[tuple[int, int]] = []
    outputs: list[list[int]] = [[] for _ in range(tasks)]
    for task in range(min(sources, tasks), tasks):
        window = range(max(0, task - max(_WINDOW, tasks // _WINDOW)), task)
        for before in random.sample(window, min(len(window), random.randint(1, 3))):
            channels.append((before, task))
            outputs[before].append(task)
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


def graph_in(file: Path) -> Graph:
    """The graph of a JSON file: ``{"tasks": ["a", "b"], "channels": [["a", "b"]], "starts": ["a"]}``.

    Tasks may be a number too, and are then called 0, 1 and so on; starts may be left out. Raises GraphError.
    """
    try:
        found: Any = json.loads(file.read_text(encoding="utf-8"))
        tasks = found["tasks"]
        names = range(tasks) if isinstance(tasks, int) else tasks
        number = {name: place for place, name in enumerate(names)}
        channels = tuple((number[start], number[end]) for start, end in found["channels"])
        return Graph(len(names), channels, tuple(number[name] for name in found.get("starts", ())))
    except OSError as error:
        raise GraphError(f"{file} cannot be read: {error.strerror}") from error
    except KeyError as error:
        raise GraphError(f"{file}: {error} is missing: write tasks and channels, and name tasks that exist") from error
    except (TypeError, ValueError) as error:
        raise GraphError(f'{file} is no graph: {error}. Write {{"tasks": 2, "channels": [[0, 1]]}}') from error
