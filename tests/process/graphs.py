"""Graphs whose edges land in files, and what a plain computation over all of them gives."""

import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import headrace as hr
from headrace import col

START = datetime(2026, 1, 1, tzinfo=UTC)

Edge = tuple[int, int, int]
"""From, to, weight."""


@dataclass(frozen=True)
class DatedEdge:
    """An edge, so many minutes after the start."""

    edge: Edge
    minute: int


def links() -> hr.Input:
    """The edges of a graph."""
    schema = {"a": int, "b": int, "w": int, "at": datetime}
    return hr.json("landing/links", schema, max_files=1).event_time("at", bound="10m")


def components(name: str = "graph", *, rounds: int | None = 64, **parts: Any) -> hr.Pipeline:
    """Connected components: the least vertex that can be reached."""
    loop = hr.Loop(start=col("vertex"), step=col("value"), combine="least", both_ways=True, rounds=rounds)
    return _pipeline(name, loop, parts)


def distances(name: str = "graph", *, rounds: int | None = 64, **parts: Any) -> hr.Pipeline:
    """How far it is from vertex 0."""
    start = hr.if_else(col("vertex") == 0, 0, None)
    loop = hr.Loop(start=start, step=col("value") + col("w"), combine="least", rounds=rounds)
    return _pipeline(name, loop, parts)


def _pipeline(name: str, loop: hr.Loop, parts: Mapping[str, Any]) -> hr.Pipeline:
    common = {
        "key": ["a", "b"],
        "where": hr.GlobalWindows(),
        "when": hr.Repeatedly(hr.AfterCount(1)),
        "how": hr.retracting(),
    }
    return hr.Pipeline(name, links(), loop=loop, **{**common, **parts})


def land(root: Path, number: int, edges: Iterable[DatedEdge]) -> None:
    """A file of ``edges``."""
    folder = root / "landing" / "links"
    folder.mkdir(parents=True, exist_ok=True)
    records = [
        {"a": a, "b": b, "w": w, "at": (START + timedelta(minutes=edge.minute)).isoformat()}
        for edge in edges
        for a, b, w in [edge.edge]
    ]
    (folder / f"{number:04}.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))


def random_graph(dice: random.Random, *, files: int = 5, vertices: int = 30, most: int = 12) -> list[list[DatedEdge]]:
    """Edges by file, an hour apart."""
    return [
        [
            DatedEdge((dice.randrange(vertices), dice.randrange(vertices), dice.randrange(10)), 60 * file + minute)
            for minute in range(dice.randrange(most))
        ]
        for file in range(files)
    ]


def least_reachable(edges: Sequence[Edge]) -> dict[int, int]:
    """The least vertex of the component of each, by union-find."""
    parent: dict[int, int] = {}

    def root(vertex: int) -> int:
        parent.setdefault(vertex, vertex)
        while parent[vertex] != vertex:
            vertex = parent[vertex]
        return vertex

    for a, b, _ in edges:
        one, other = sorted((root(a), root(b)))
        parent[other] = one
    return {vertex: root(vertex) for vertex in parent}


def shortest(edges: Sequence[Edge]) -> dict[int, int]:
    """The distance of each vertex that can be reached from 0, by Bellman and Ford."""
    known_lengths = {0: 0} if any(0 in edge[:2] for edge in edges) else {}
    for _ in range(len(edges) + 1):
        for a, b, w in edges:
            if a in known_lengths and known_lengths[a] + w < known_lengths.get(b, known_lengths[a] + w + 1):
                known_lengths[b] = known_lengths[a] + w
    return known_lengths


Oracle = Callable[[Sequence[Edge]], Mapping[int, int]]
KINDS: Mapping[str, tuple[Callable[..., hr.Pipeline], Oracle]] = {
    "components": (components, least_reachable),
    "distances": (distances, shortest),
}


def by_hour(edges: Iterable[DatedEdge]) -> dict[datetime, list[Edge]]:
    """Edges by the hour that they are in."""
    hours: defaultdict[datetime, list[Edge]] = defaultdict(list)
    for edge in edges:
        hours[START + timedelta(hours=edge.minute // 60)].append(edge.edge)
    return hours
