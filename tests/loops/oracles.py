"""What a loop must come to, computed of all edges at once by the textbook: union-find and Bellman-Ford."""

from collections.abc import Iterable, Mapping
from typing import Any


def components(edges: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """The least vertex of the connected component of each vertex, by union-find."""
    parent: dict[Any, Any] = {}

    def root(vertex: Any) -> Any:
        parent.setdefault(vertex, vertex)
        while parent[vertex] != vertex:
            parent[vertex] = vertex = parent[parent[vertex]]
        return vertex

    for one, other in edges:
        least, greatest = sorted((root(one), root(other)))
        parent[greatest] = least
    return {vertex: root(vertex) for vertex in [*parent]}


def distances(edges: Iterable[tuple[Any, Any, Any]], starts: Mapping[Any, Any]) -> dict[Any, Any]:
    """The length of the shortest path to each vertex that can be reached, by Bellman-Ford: as many passes over all
    edges as there are vertices, and one more that must change nothing. ``starts``: where paths begin, at what length.
    """
    known_edges = [*edges]
    vertices = {vertex for one, other, _ in known_edges for vertex in (one, other)}
    shortest = {vertex: length for vertex, length in starts.items() if vertex in vertices}
    for _ in vertices:
        for one, other, weight in known_edges:
            if one in shortest and shortest[one] + weight < shortest.get(other, float("inf")):
                shortest[other] = shortest[one] + weight
    assert all(shortest[one] + weight >= shortest[other] for one, other, weight in known_edges if one in shortest)
    return shortest


def reachable_vertices(edges: Iterable[tuple[Any, Any]], starts: Iterable[Any]) -> set[Any]:
    """The vertices that a path leads to, by a search from ``starts``."""
    known_edges = [*edges]
    seen_vertices = {*starts} & {vertex for edge in known_edges for vertex in edge}
    waiting = [*seen_vertices]
    while waiting:
        vertex = waiting.pop()
        further = {other for one, other in known_edges if one == vertex} - seen_vertices
        seen_vertices |= further
        waiting += further
    return seen_vertices
