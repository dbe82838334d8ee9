"""Random graphs, in the shapes that loops find hard or easy, and cut into epochs in any order."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from hypothesis import strategies as st

Pairs = list[tuple[int, int]]


@dataclass(frozen=True)
class Edge:
    """An edge ``a`` -> ``b`` of a ``weight``, at an event time in seconds."""

    a: str
    b: str
    weight: int
    at: int


@dataclass(frozen=True)
class Shape:
    """A graph by its pairs of vertices; ``rounds`` that it can need at most, whatever comes first."""

    name: str
    pairs: Pairs


def path(length: int) -> Pairs:
    """A long way: one round for each edge."""
    return [*pairwise(range(length + 1))]


def ring(length: int) -> Pairs:
    """A way that comes back."""
    return [*path(length), (length, 0)]


def grid(width: int, height: int) -> Pairs:
    """Many ways of the same length."""
    right = [(y * width + x, y * width + x + 1) for y in range(height) for x in range(width - 1)]
    edges_down = [(y * width + x, (y + 1) * width + x) for y in range(height - 1) for x in range(width)]
    return right + edges_down


def star(leaves: int) -> Pairs:
    """A hub."""
    return [(0, leaf) for leaf in range(1, leaves + 1)]


def bridge_cliques(size: int) -> Pairs:
    """Two cliques and an edge between them."""
    cliques = [(low + a, low + b) for low in (0, size) for a in range(size) for b in range(a)]
    return [*cliques, (size - 1, size)]


_SHAPES: st.SearchStrategy[Pairs] = st.one_of(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=14),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=20),
    st.builds(path, st.integers(1, 14)),
    st.builds(ring, st.integers(1, 9)),
    st.builds(grid, st.integers(1, 4), st.integers(1, 4)),
    st.builds(star, st.integers(1, 12)),
    st.builds(bridge_cliques, st.integers(1, 4)),
)


@dataclass(frozen=True)
class Cut:
    """Edges in epochs. ``runs`` says after which of them a run ends."""

    epochs: Sequence[Sequence[Edge]]
    runs: Sequence[bool]


@st.composite
def cuts(draw: st.DrawFn, times: int = 0, weights: int = 9) -> Cut:
    """A graph, or two on the same vertices, whose edges come in any order and direction, some of them twice.

    Event times lie in 0 to ``times`` seconds, weights in 0 to ``weights``.
    """
    pairs = [pair for shape in draw(st.lists(_SHAPES, min_size=1, max_size=2)) for pair in shape]
    names = draw(st.permutations(range(40)))
    edges = [
        Edge(f"v{names[a]:02}", f"v{names[b]:02}", draw(st.integers(0, weights)), draw(st.integers(0, times)))
        for a, b in pairs
    ]
    arrivals = draw(st.permutations([*edges, *draw(_some_of(edges))]))
    turned_edges = [Edge(e.b, e.a, e.weight, e.at) if draw(st.booleans()) else e for e in arrivals]
    ends = sorted(draw(st.lists(st.integers(0, len(turned_edges)), max_size=5)))
    epochs = [turned_edges[start:end] for start, end in pairwise([0, *ends, len(turned_edges)])]
    runs = draw(st.lists(st.booleans(), min_size=len(epochs), max_size=len(epochs)))
    return Cut(epochs, runs)


def _some_of(edges: Sequence[Edge]) -> st.SearchStrategy[list[Edge]]:
    return st.lists(st.sampled_from(edges), max_size=2) if edges else st.just([])
