"""One consistent cut over pipelines that read each other, in several roots; their inputs, and their readers.

``consistent_cut`` is taken while all pipelines run. It follows the rule of Chandy and Lamport, with snapshots as
markers. The head of a pipeline is read before the heads of those that it reads. What a head has consumed of another
pipeline was published before that head was committed. So a head of the other one that is read later has it, unless the
other one has gone back.

``positions_of`` tells which inputs of a pipeline are pipelines, and how far each has come, also where nothing was read.

``known_readers`` finds the readers of pipelines, as far as they can be known. A pipeline knows its readers by what they
hold, and a reader that may not write there holds nothing. So roots are looked through as well: the one that is asked
about, those that are named, and those that the environment names. A reader under any other root, without a hold, is
seen by nobody.
"""

import os
import tomllib
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self, TypeVar

from headrace.errors import FixConfigError, HeadraceError
from headrace.ext.stores import shown
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.sources import upstream_sources
from headrace.pipeline.validation import UpstreamCycleError
from headrace.read.pipeline_reader import PIPELINES_AT_ONCE, check_root, has_run, pipelines_under
from headrace.read.shown_values import JsonFields
from headrace.read.upstream import UpstreamPosition, stored_places, upstreams_of
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.holds import DamagedHold, holds_of
from headrace_snapshots.output_catalog import seen_catalog
from headrace_snapshots.store import ObjectStore, do_all, open_store


@dataclass(frozen=True, order=True)
class PlacedPipeline:
    """A pipeline under a ``root``; the root is "" where it is the one that was asked about."""

    root: str
    name: str

    def __str__(self) -> str:
        return f"{self.root}/{self.name}" if self.root else self.name

    def to_json(self) -> str:
        """A JSON value."""
        return str(self)


@dataclass(frozen=True)
class RootStores:
    """The stores of the roots that pipelines lie in: the ``own`` one, and those that ``open_uri`` opens."""

    own: ObjectStore
    open_uri: Callable[[str], ObjectStore] = open_store

    def store_of(self, root: str) -> ObjectStore:
        """The store of a placed pipeline's root."""
        return self.open_uri(root) if root else self.own

    def place_pipeline(self, root: str, name: str) -> PlacedPipeline:
        """The pipeline ``name`` under the root whose URI that is."""
        return PlacedPipeline("" if root == self.own.uri else root, name)

    def catalog(self, pipeline: PlacedPipeline, output: str = "") -> Catalog:
        """A pipeline's catalog, for readers of the ``output``."""
        return seen_catalog(Catalog(self.store_of(pipeline.root), pipeline.name), output)


@dataclass(frozen=True)
class KeptCatalogs(RootStores):
    """Stores whose catalogs are kept: what one of them has read of what never changes is read once."""

    catalogs: dict[PlacedPipeline, Catalog] = field(default_factory=dict)

    def catalog(self, pipeline: PlacedPipeline, output: str = "") -> Catalog:
        """A pipeline's catalog, for readers of the ``output``."""
        if pipeline not in self.catalogs:
            self.catalogs[pipeline] = Catalog(self.store_of(pipeline.root), pipeline.name)
        return seen_catalog(self.catalogs[pipeline], output)


N = TypeVar("N", bound=Hashable)
H = TypeVar("H")


def consistent_cut(
    names: Iterable[N],
    read: Callable[[Sequence[N]], Sequence[H]],
    upstream: Callable[[H], Collection[N]],
    expected: Mapping[N, Collection[N]] = MappingProxyType({}),
) -> dict[N, H]:
    """The heads of the pipelines ``names``, and of those that they read, in however many steps. Each is read, by
    ``read``, after the heads of the pipelines that read it. ``read`` gives the heads of several, which do not read each
    other as far as anybody knows. ``upstream``: the pipelines that a head has read; ``expected``: those that it may
    have, so they are read later.

    Which pipeline reads which is found on the way. If a pipeline turns out to be read by one that did not come before
    it, it is read again. Raises UpstreamCycleError for pipelines that read each other in a circle.
    """
    cut: dict[N, H] = {}
    waiting = dict.fromkeys(names)
    while waiting:
        edges = {name: [*upstream(head)] for name, head in cut.items()}
        upstream_names = _all_upstream(waiting, {**expected, **edges})
        # readers first: the head of an upstream that is read later has what they have consumed
        ready = [name for name in waiting if name not in upstream_names]
        if not ready and expected:  # it may be of former days
            expected = {}
            continue
        if not ready:
            circle = [*_find_circle(next(name for name in cut if name in _all_upstream([name], edges)), edges)]
            raise UpstreamCycleError.from_cycle(circle)
        cut |= zip(ready, read(ready), strict=True)
        waiting = dict.fromkeys(name for name in waiting if name in upstream_names)
        waiting |= dict.fromkeys(name for one in ready for name in upstream(cut[one]))
    return cut


def _all_upstream(names: Collection[N], edges: Mapping[N, Collection[N]]) -> set[N]:
    """What the pipelines ``names`` read, in one step or more."""
    upstream_names: set[N] = set()
    front = [*names]
    while front:
        new = {upstream_name for name in front for upstream_name in edges.get(name, ())} - upstream_names
        upstream_names |= new
        front = [*new]
    return upstream_names


def _find_circle(start: N, edges: Mapping[N, Collection[N]]) -> Iterator[N]:
    """A circle that leads to ``start``, or that ``start`` leads to: the names in it, the first one twice."""
    path = [start]
    while True:
        upstream_name = next(name for name in edges[path[-1]] if name in _all_upstream([name], edges))
        if upstream_name in path:
            yield from (*path[path.index(upstream_name) :], upstream_name)
            return
        path.append(upstream_name)


def upstream_last(edges: Mapping[N, Collection[N]]) -> list[N]:
    """The names of ``edges``, each before those that it reads."""
    # whoever reads a pipeline has all of its upstreams, and one more
    return sorted(edges, key=lambda name: len(_all_upstream([name], edges)), reverse=True)


def positions_of(
    stores: RootStores, pipeline: PlacedPipeline, manifest: Manifest | None, definition: Pipeline | None = None
) -> dict[str, UpstreamPosition]:
    """What a snapshot of a pipeline (None: it has none yet) has consumed of others, by input. Inputs of which it has
    consumed nothing have the position where they begin. Inputs are those of the ``definition``, which may read others
    by now; None: as the snapshot says. Raises BrokenObjectError.
    """
    consumed_positions = {} if manifest is None else upstreams_of(manifest, stores.store_of(pipeline.root).uri)
    if definition is None:
        places = {} if manifest is None else stored_places(manifest)
        start_positions = {
            name: _start_position(stores, pipeline, place)
            for name, place in places.items()
            if name not in consumed_positions
        }
        return start_positions | consumed_positions
    positions = {
        name: _start_position(stores, pipeline, source.place)
        for name, source in upstream_sources(definition.inputs).items()
    }
    read = {name: one for name, one in consumed_positions.items() if name in positions}
    return positions | {name: one for name, one in read.items() if one.upstream == positions[name].upstream}


def _start_position(stores: RootStores, reader: PlacedPipeline, place: str) -> UpstreamPosition:
    root, _, upstream = place.rpartition("/")
    pipeline, _, output = upstream.partition(".")
    store = stores.open_uri(root) if root else stores.store_of(reader.root)
    return UpstreamPosition.from_beginning(store.uri, pipeline, output)


READER_ROOTS: Final = "HEADRACE_READER_ROOTS"
"""Names roots, with spaces between them."""

SERVED_ROOTS: Final = "HEADRACE_ROOTS"
"""Names the file that declares the roots that Airflow serves."""

_OWN_KEYS: Final = ("store", "endpoint")


@dataclass(frozen=True)
class UnseenReader(JsonFields):
    """A ``reader`` that holds something of ``upstream``, and ``why`` nobody can look from here how far it has come."""

    reader: PlacedPipeline
    upstream: PlacedPipeline
    why: str

    @classmethod
    def of_damaged(cls, hold: DamagedHold, upstream: PlacedPipeline) -> Self:
        """A reader whose hold on ``upstream`` cannot be read; under which root it is, is not known then."""
        return cls(PlacedPipeline("", hold.reader), upstream, str(hold.wrong))


@dataclass(frozen=True)
class KnownReaders:
    """The ``pipelines`` under the ``roots`` that were looked through, and those elsewhere that hold something of these,
    in however many steps. ``unseen``: of the latter those that cannot be looked at. ``unlooked``: roots that the
    environment names and that could not be looked through, each with why.
    """

    pipelines: tuple[PlacedPipeline, ...]
    roots: tuple[str, ...]
    unseen: tuple[UnseenReader, ...]
    unlooked: tuple[str, ...]

    @property
    def limits(self) -> tuple[str, ...]:
        """Where readers may be that are not among the pipelines, for people."""
        return (
            f"readers were looked for under {', '.join(self.roots)}, and elsewhere by what they hold; a reader under "
            f"another root that cannot put its hold is not seen: --reader-root or {READER_ROOTS} names its root",
            *(f"readers were not looked for under {one}" for one in self.unlooked),
        )

    def to_json(self) -> dict[str, Any]:
        """A JSON value: where was looked, and what could not be."""
        unseen = [one.to_json() for one in self.unseen]
        return {"roots": [*self.roots], "unseen": unseen, "unlooked": [*self.unlooked]}


class ReaderRootsError(FixConfigError, code="config.reader_roots"):
    """The file that declares roots cannot be read, so nobody knows where readers may be."""


def known_readers(store: ObjectStore, names: Iterable[str], roots: Iterable[str] = ()) -> KnownReaders:
    """The pipelines ``names`` under the root of ``store`` with all that may read them. Readers are under further
    ``roots``, under roots that the environment names, or hold something.

    Raises MissingRootError for one of ``roots`` that does not exist, ReaderRootsError, BrokenObjectError.
    """
    stores_by_root = {store.uri: store}
    unread_roots = []
    for root in roots:
        other = open_store(root)
        check_root(other)
        stores_by_root.setdefault(other.uri, other)
    for root, why in _roots_of_environment():
        try:
            if why is not None:
                raise ReaderRootsError(why)
            other = open_store(root)
            check_root(other)
            stores_by_root.setdefault(other.uri, other)
        except HeadraceError as error:
            if root not in stores_by_root:
                unread_roots.append(f"{shown(root)}: {error}")
    own = RootStores(store)
    pipelines = [PlacedPipeline("", name) for name in names]
    for uri, other in [*stores_by_root.items()][1:]:
        pipelines += [own.place_pipeline(uri, name) for name in pipelines_under(other)]
    known_pipelines, unseen = _with_holders(own, pipelines)
    return KnownReaders(tuple(known_pipelines), tuple(stores_by_root), tuple(unseen), tuple(unread_roots))


def _with_holders(
    stores: RootStores, pipelines: Iterable[PlacedPipeline]
) -> tuple[dict[PlacedPipeline, None], list[UnseenReader]]:
    known_pipelines = dict.fromkeys(pipelines)
    unseen: dict[PlacedPipeline, UnseenReader] = {}
    waiting = [*known_pipelines]
    while waiting:
        holds_by_pipeline = do_all(
            stores.own,
            lambda pipeline: holds_of(stores.store_of(pipeline.root), pipeline.name),
            waiting,
            PIPELINES_AT_ONCE,
        )
        readers: list[PlacedPipeline] = []
        for pipeline, (readable, damaged_holds) in zip(waiting, holds_by_pipeline, strict=True):
            for one in (UnseenReader.of_damaged(hold, pipeline) for hold in damaged_holds):
                if one.reader not in known_pipelines:
                    unseen[one.reader] = one
            for reader in dict.fromkeys(stores.place_pipeline(hold.root, hold.pipeline) for hold in readable):
                if reader in known_pipelines or reader in unseen:
                    continue
                why = _why_unseen(stores, reader, pipeline)
                if why is None:
                    known_pipelines[reader] = None
                    readers.append(reader)
                else:
                    unseen[reader] = UnseenReader(reader, pipeline, why)
        waiting = readers
    return known_pipelines, [*unseen.values()]


def _why_unseen(stores: RootStores, reader: PlacedPipeline, upstream: PlacedPipeline) -> str | None:
    try:
        if has_run(stores.store_of(reader.root), reader.name):
            return None
    except HeadraceError as error:
        return f"its root cannot be looked at from here ({error.code}: {error})"
    return (
        "nothing of it is there, seen from here. Do this where its root can be reached; if it is gone for good, "
        f"`headrace drop {upstream.name} {reader.name} --reader` ends what it holds"
    )


def _roots_of_environment() -> Iterator[tuple[str, str | None]]:
    """Roots that variables name; with why they are not looked through, if they are not."""
    for root in os.environ.get(READER_ROOTS, "").split():
        yield root, None
    roots_file = os.environ.get(SERVED_ROOTS)
    if not roots_file:
        return
    try:
        tables = tomllib.loads(Path(roots_file).read_text(encoding="utf-8")).get("root", [])
        entries = [(table["uri"], any(table.get(key) for key in _OWN_KEYS)) for table in tables]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ReaderRootsError(
            f"{SERVED_ROOTS} names {roots_file}, which declares roots where readers may be, and it cannot be read "
            f"({type(error).__name__}: {error}): correct it, or unset {SERVED_ROOTS}"
        ) from error
    for uri, has_own_keys in entries:
        why = f"Airflow reaches it in a way of its own ({roots_file}): name it where its keys are set" * has_own_keys
        yield uri, why or None
