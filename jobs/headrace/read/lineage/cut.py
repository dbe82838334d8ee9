"""A consistent cut over pipelines that read each other, in several roots; and their inputs that are pipelines.

A consistent cut over pipelines that read each other, taken while all of them run.

It is the rule of Chandy and Lamport, with snapshots as markers: the head of a pipeline is read before the heads of
those that it reads. What a head has consumed of another pipeline was published before that head was committed. So a
head of the other one that is read later has it, unless the other one has gone back.

The inputs of a pipeline that are other pipelines, and how far each has come: also where nothing was read yet.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from headrace.pipeline.checks.graph_checks import UpstreamCycleError
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.upstream_source import PUBLISHED_KIND, upstream_sources
from headrace.read.upstream import UpstreamPosition, upstreams_of
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.output_catalog import seen_catalog
from headrace_snapshots.store import ObjectStore, open_store


@dataclass(frozen=True, order=True)
class PlacedPipeline:
    """A pipeline under a ``root``; the root is "" where it is the one that was asked about."""

    root: str
    name: str

    def __str__(self) -> str:
        return f"{self.root}/{self.name}" if self.root else self.name


@dataclass(frozen=True)
class RootStores:
    """The stores of the roots that pipelines lie in: the ``own`` one, and those that are ``opened`` by their URIs."""

    own: ObjectStore
    opened: Callable[[str], ObjectStore] = open_store

    def of(self, root: str) -> ObjectStore:
        """The store of a placed pipeline's root."""
        return self.opened(root) if root else self.own

    def placed(self, root: str, name: str) -> PlacedPipeline:
        """The pipeline ``name`` under the root whose URI that is."""
        return PlacedPipeline("" if root == self.own.uri else root, name)

    def catalog(self, at: PlacedPipeline, output: str = "") -> Catalog:
        """A pipeline's catalog, for readers of the ``output``."""
        return seen_catalog(Catalog(self.of(at.root), at.name), output)


@dataclass(frozen=True)
class KeptCatalogs(RootStores):
    """Stores whose catalogs are kept: what one of them has read of what never changes is read once."""

    kept: dict[PlacedPipeline, Catalog] = field(default_factory=dict)

    def catalog(self, at: PlacedPipeline, output: str = "") -> Catalog:
        """A pipeline's catalog, for readers of the ``output``."""
        if at not in self.kept:
            self.kept[at] = Catalog(self.of(at.root), at.name)
        return seen_catalog(self.kept[at], output)


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


def positions_of(
    stores: RootStores, at: PlacedPipeline, manifest: Manifest | None, definition: Pipeline | None = None
) -> dict[str, UpstreamPosition]:
    """What a snapshot of a pipeline (None: it has none yet) has consumed of others, by input, and where those inputs
    begin of which it has consumed nothing. Inputs are those of the ``definition``, which may read others by now; None:
    as the snapshot says. Raises BrokenObjectError.
    """
    consumed = {} if manifest is None else upstreams_of(manifest)
    if definition is None:
        places = {} if manifest is None else _stored_places(manifest)
        begun = {name: _begun(stores, at, place) for name, place in places.items() if name not in consumed}
        return begun | consumed
    positions = {name: _begun(stores, at, source.place) for name, source in upstream_sources(definition).items()}
    read = {name: one for name, one in consumed.items() if name in positions}
    return positions | {name: one for name, one in read.items() if one.upstream == positions[name].upstream}


def _stored_places(manifest: Manifest) -> dict[str, str]:
    inputs = manifest.definition.get("inputs", ())
    return {given["name"]: given["path"] for given in inputs if given.get("kind") == PUBLISHED_KIND}


def _begun(stores: RootStores, reader: PlacedPipeline, place: str) -> UpstreamPosition:
    root, _, upstream = place.rpartition("/")
    pipeline, _, output = upstream.partition(".")
    store = stores.opened(root) if root else stores.of(reader.root)
    return UpstreamPosition.begun(store.uri, pipeline, output)
