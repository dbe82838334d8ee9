"""A consistent cut over pipelines that read each other, taken while all of them run.

It is the rule of Chandy and Lamport, with snapshots as markers: the head of a pipeline is read before the heads of
those that it reads. What a head has consumed of another pipeline was published before that head was committed. So a
head of the other one that is read later has it, unless the other one has gone back.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from typing import TypeVar

from headrace.pipeline.checks.circles import UpstreamCycleError

N = TypeVar("N", bound=Hashable)
H = TypeVar("H")


def consistent_cut(names: Iterable[N], read: Callable[[N], H], upstream: Callable[[H], Collection[N]]) -> dict[N, H]:
    """The heads of the pipelines ``names``, and of those that they read, in however many steps: each as ``read`` gives
    it, after those of the pipelines that read it. ``upstream``: the pipelines that a head has read.

    Which of them read which is found on the way: what turns out to be read by a pipeline that came after it is read
    again. Raises UpstreamCycleError for pipelines that read each other in a circle.
    """
    cut: dict[N, H] = {}
    waiting = dict.fromkeys(names)
    while waiting:
        edges = {name: [*upstream(head)] for name, head in cut.items()}
        behind = _behind(waiting, edges)
        name = next((name for name in waiting if name not in behind), None)
        if name is None:
            circle = [*_circle(next(iter(waiting)), edges)]
            raise UpstreamCycleError.along(circle)
        del waiting[name]
        cut[name] = read(name)
        waiting |= dict.fromkeys(upstream(cut[name]))
    return cut


def _behind(names: Collection[N], edges: Mapping[N, Collection[N]]) -> set[N]:
    """What the pipelines ``names`` read, in one step or more."""
    behind: set[N] = set()
    front = [*names]
    while front:
        new = {above for name in front for above in edges.get(name, ())} - behind
        behind |= new
        front = [*new]
    return behind


def _circle(start: N, edges: Mapping[N, Collection[N]]) -> Iterator[N]:
    """A circle that leads to ``start``, or that ``start`` leads to: the names in it, the first one twice."""
    path = [start]
    while True:
        above = next(name for name in edges[path[-1]] if name in _behind([name], edges))
        if above in path:
            yield from (*path[path.index(above) :], above)
            return
        path.append(above)


def upstream_last(edges: Mapping[N, Collection[N]]) -> list[N]:
    """The names of ``edges``, each before those that it reads."""
    return sorted(edges, key=lambda name: len(_behind([name], edges)), reverse=True)
