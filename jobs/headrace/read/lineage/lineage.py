"""Where pipelines that read each other have come, in one consistent cut: all of them, or what is near one.

``neighbours_of`` is what the page of one pipeline shows: what it reads of others, and its readers. Readers are here
those that hold something. So it costs a listing, and a head for each neighbour, however many pipelines there are.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

from headrace.errors import HeadraceError
from headrace.model.time import render
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.validation import read_beside
from headrace.read.lineage import cut as lineage_cut
from headrace.read.pipeline_reader import PIPELINES_AT_ONCE
from headrace.read.shown_values import JsonFields, html_table
from headrace.read.snapshots.snapshot_refs import At, snapshot_at
from headrace.read.upstream import UpstreamPosition, upstreams_of
from headrace.sources.progress import in_calendar
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.holds import holds_of
from headrace_snapshots.names import MAIN, PUBLISHED, published_ref
from headrace_snapshots.store import ObjectStore, do_all


@dataclass(frozen=True)
class PipelineHead:
    """The newest snapshot of a pipeline's main, and what it has consumed of others, by input; with ``head_as_defined``
    also where those inputs begin of which it has consumed nothing. None: it has none yet. ``refs``: all names of
    snapshots at that moment.
    """

    snapshot: str | None
    epoch: int | None
    consumed: Mapping[str, UpstreamPosition]
    refs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ReaderProgress(JsonFields):
    """How far the input ``name`` of a ``reader`` has come with an ``output`` of an ``upstream``. ``consumed`` is the
    snapshot that it has consumed, ``published`` the one that is published now. ``is_in_line``: the one leads to the
    other; if not, what was consumed is not published any more, and the reader's next run takes it back; None: it has
    expired, and nobody can tell.
    """

    reader: lineage_cut.PlacedPipeline
    name: str
    upstream: lineage_cut.PlacedPipeline
    output: str
    consumed: str | None
    consumed_epoch: int
    watermark: str
    published: str | None
    published_epoch: int | None
    is_in_line: bool | None

    @property
    def lag(self) -> str:
        """How far behind the reader is, in words."""
        if self.is_in_line is None:
            return "what it has read is gone upstream: the next run may stop (restore.upstream_expired)"
        if not self.is_in_line:
            return "the upstream has moved: the next run takes it back"
        if self.published_epoch is None:
            return "nothing is published"
        if self.published == self.consumed:
            return "up to date"
        epochs = self.published_epoch - self.consumed_epoch
        return f"{epochs:,} epoch{'s' if epochs != 1 else ''} behind"

    def to_json(self) -> dict[str, Any]:
        """A JSON value."""
        return {**super().to_json(), "lag": self.lag}


@dataclass(frozen=True)
class Dependent(JsonFields):
    """A snapshot of a ``reader`` that has consumed a snapshot, or what came of it: ``since`` is the first one."""

    reader: lineage_cut.PlacedPipeline
    since: str
    epoch: int


@dataclass(frozen=True)
class Dependents(JsonFields):
    """What has consumed the ``snapshot`` of a ``pipeline``: readers, each before those that read it. ``searched`` says
    where they were looked for.
    """

    pipeline: str
    snapshot: str
    readers: tuple[Dependent, ...]
    searched: lineage_cut.KnownReaders


@dataclass(frozen=True, repr=False)
class Lineage:
    """The ``heads`` of pipelines, each before those that it reads, in one consistent cut; and how far each input that
    is another pipeline has come. ``searched`` says where readers were looked for.
    """

    heads: Mapping[lineage_cut.PlacedPipeline, PipelineHead]
    readings: tuple[ReaderProgress, ...]
    searched: lineage_cut.KnownReaders

    def rows(self) -> list[dict[str, Any]]:
        """Rows of a table: an input that is another pipeline each, then pipelines that read none."""
        rows = [
            {
                "pipeline": str(one.reader),
                "snapshot": self.heads[one.reader].snapshot,
                "epoch": self.heads[one.reader].epoch,
                "reads": f"{one.upstream}.{one.output}" if one.output else str(one.upstream),
                "up to": one.consumed,
                "published": one.published,
                "lag": one.lag,
            }
            for one in self.readings
        ]
        reading = {one.reader for one in self.readings}
        rows += [
            {**dict.fromkeys(_TABLE_COLUMNS), "pipeline": str(name), "snapshot": head.snapshot, "epoch": head.epoch}
            for name, head in self.heads.items()
            if name not in reading
        ]
        rows += [
            {**dict.fromkeys(_TABLE_COLUMNS), "pipeline": str(one.reader), "reads": str(one.upstream), "lag": one.why}
            for one in self.searched.unseen
        ]
        return rows

    def to_json(self) -> dict[str, Any]:
        """A JSON value: the cut, how far inputs have come, and where readers were looked for."""
        heads = {str(name): {"snapshot": head.snapshot, "epoch": head.epoch} for name, head in self.heads.items()}
        readings = [one.to_json() for one in self.readings]
        return {"cut": heads, "readings": readings, "searched": self.searched.to_json()}

    def lines(self) -> Iterator[str]:
        """In words: a line for each of the ``rows``, and what nobody could look at."""
        for row in self.rows():
            epoch = "" if row["epoch"] is None else f" (epoch {row['epoch']:,})"
            reads = "reads no other pipeline" if row["reads"] is None else f"reads {row['reads']}: {row['lag']}"
            yield f"{row['pipeline']}{epoch} {reads}"
        yield from self.searched.limits

    def __repr__(self) -> str:
        return "\n".join(self.lines()) or "no pipelines"

    def _repr_html_(self) -> str:
        return html_table(_TABLE_COLUMNS, self.rows(), "pipelines")


_TABLE_COLUMNS = ["pipeline", "snapshot", "epoch", "reads", "up to", "published", "lag"]


def read_lineage(
    store: ObjectStore, names: Iterable[str], roots: Iterable[str] = (), definitions: Collection[Pipeline] = ()
) -> Lineage:
    """The pipelines ``names`` under the root of ``store``, those that they read, and those that read them, also under
    other ``roots`` (``known_readers``). What they read is what their ``definitions`` say; without one, their newest
    snapshots. Definitions that read pipelines beside them are there before they have run.

    Raises UpstreamCycleError, MissingRootError, BrokenObjectError.
    """
    stores = lineage_cut.KeptCatalogs(store)
    readers_found = lineage_cut.known_readers(store, with_defined_readers(names, definitions), roots)
    heads = heads_of(stores, readers_found.pipelines, as_defined(stores, definitions))

    def reading_progress(reading: tuple[lineage_cut.PlacedPipeline, str, UpstreamPosition]) -> ReaderProgress:
        reader, name, position = reading
        upstream = stores.place_pipeline(position.root, position.pipeline)
        return progress_of(stores, reader, name, position, heads[upstream].refs)

    readings = [(reader, *input_read) for reader, head in heads.items() for input_read in head.consumed.items()]
    return Lineage(heads, tuple(do_all(store, reading_progress, readings, PIPELINES_AT_ONCE)), readers_found)


def with_defined_readers(names: Iterable[str], definitions: Iterable[Pipeline]) -> dict[str, None]:
    """The ``names``, and those of the ``definitions`` that read others beside them. A pipeline that only reads what is
    under other roots may be meant for any root.
    """
    return dict.fromkeys(chain(names, (one.name for one in definitions if read_beside(one))))


def as_defined(
    stores: lineage_cut.RootStores, definitions: Iterable[Pipeline]
) -> Callable[[lineage_cut.PlacedPipeline], PipelineHead]:
    """Gives the heads of pipelines with all that they read, by their ``definitions`` where these are known."""
    definition_by_place = {lineage_cut.PlacedPipeline("", one.name): one for one in definitions}
    return lambda place: head_as_defined(stores, place, definition_by_place.get(place))


def heads_of(
    stores: lineage_cut.RootStores,
    names: Iterable[lineage_cut.PlacedPipeline],
    read: Callable[[lineage_cut.PlacedPipeline], PipelineHead] | None = None,
) -> dict[lineage_cut.PlacedPipeline, PipelineHead]:
    """The heads of pipelines and of those that they read, in one consistent cut: each before those that it reads. What
    they read is what they have consumed, unless ``read`` gives heads that say more.

    Raises UpstreamCycleError, BrokenObjectError.
    """
    read = read or partial(head_of, stores)

    def upstream_pipelines(head: PipelineHead) -> list[lineage_cut.PlacedPipeline]:
        return [stores.place_pipeline(position.root, position.pipeline) for position in head.consumed.values()]

    read_all = partial(do_all, stores.own, read, at_once=PIPELINES_AT_ONCE)
    cut = lineage_cut.consistent_cut(names, read_all, upstream_pipelines)
    return {
        name: cut[name]
        for name in lineage_cut.upstream_last({name: upstream_pipelines(head) for name, head in cut.items()})
    }


def head_of(stores: lineage_cut.RootStores, pipeline: lineage_cut.PlacedPipeline) -> PipelineHead:
    """The head of one pipeline. Raises BrokenObjectError."""
    root = stores.store_of(pipeline.root).uri
    return _read_head(stores, pipeline, lambda main: {} if main is None else upstreams_of(main, root))


def head_as_defined(
    stores: lineage_cut.RootStores, pipeline: lineage_cut.PlacedPipeline, definition: Pipeline | None = None
) -> PipelineHead:
    """The same with all that the pipeline reads, by its ``definition`` if that is known (``positions_of``)."""
    return _read_head(stores, pipeline, lambda main: lineage_cut.positions_of(stores, pipeline, main, definition))


def _read_head(
    stores: lineage_cut.RootStores,
    place: lineage_cut.PlacedPipeline,
    read: Callable[[Manifest | None], Mapping[str, UpstreamPosition]],
) -> PipelineHead:
    catalog = stores.catalog(place)
    refs = catalog.head().refs
    snapshot = refs.get(MAIN)
    manifest = None if snapshot is None else catalog.manifest(snapshot)
    return PipelineHead(snapshot, None if manifest is None else manifest.epoch, read(manifest), refs)


def progress_of(
    stores: lineage_cut.RootStores,
    reader: lineage_cut.PlacedPipeline,
    name: str,
    position: UpstreamPosition,
    upstream_refs: Mapping[str, str] | None = None,
) -> ReaderProgress:
    """How far a ``reader`` has come, whose input ``name`` has consumed what ``position`` says. ``upstream_refs``: all
    names of snapshots of the upstream in the cut; None: they are read.
    """
    upstream = stores.place_pipeline(position.root, position.pipeline)
    catalog = stores.catalog(upstream, position.output)
    if upstream_refs is None:
        published_id = catalog.head().refs.get(PUBLISHED)
    else:
        published_id = upstream_refs.get(published_ref(position.output))
    return ReaderProgress(
        reader,
        name,
        upstream,
        position.output,
        position.snapshot,
        position.epoch,
        render(in_calendar(position.watermark)),
        published_id,
        None if published_id is None else catalog.manifest(published_id).epoch,
        _leads_to(catalog, position.snapshot, published_id),
    )


def _leads_to(catalog: Catalog, snapshot: str | None, published_id: str | None) -> bool | None:
    """Whether ``published_id`` came of the ``snapshot``; None if that has expired, so nobody can tell."""
    if snapshot == published_id or published_id is None:
        return snapshot == published_id
    try:
        return snapshot is None or catalog.is_ancestor(snapshot, published_id)
    except MissingSnapshotError:
        return None


def find_dependents(
    store: ObjectStore, names: Iterable[str], upstream_catalog: Catalog, ref: At, roots: Iterable[str] = ()
) -> Dependents:
    """The first snapshot of each reader that has consumed the snapshot ``ref`` of pipeline ``upstream_catalog`` under
    the root of ``store``, or what came of it. Raises what ``read_lineage`` and read.snapshots.snapshot_refs.snapshot_at
    raise.
    """
    stores = lineage_cut.RootStores(store)
    snapshot = snapshot_at(upstream_catalog, ref).manifest
    if snapshot is None:
        return Dependents(
            upstream_catalog.pipeline, "", (), lineage_cut.known_readers(store, [upstream_catalog.pipeline], roots)
        )
    readers_found = lineage_cut.known_readers(store, names, roots)
    first = {lineage_cut.PlacedPipeline("", upstream_catalog.pipeline): snapshot.snapshot_id}
    dependent: list[Dependent] = []
    for reader, head in [*heads_of(stores, readers_found.pipelines).items()][::-1]:
        if head.snapshot is None or reader in first:
            continue
        dependent_since = _first_dependent(stores, reader, head.snapshot, first)
        if dependent_since is not None:
            first[reader] = dependent_since.since
            dependent.append(dependent_since)
    return Dependents(upstream_catalog.pipeline, snapshot.snapshot_id, tuple(dependent), readers_found)


def _first_dependent(
    stores: lineage_cut.RootStores,
    reader: lineage_cut.PlacedPipeline,
    head: str,
    first: Mapping[lineage_cut.PlacedPipeline, str],
) -> Dependent | None:
    """The first snapshot of a ``reader`` that has consumed the ``first`` of one that it reads, or a later one."""
    first_dependent: Dependent | None = None
    for link in stores.catalog(reader).lineage(head):
        manifest = link.manifest
        if manifest is None:
            break
        positions = upstreams_of(manifest, stores.store_of(reader.root).uri).values()
        if not any(_has_consumed(stores, position, first) for position in positions):
            break
        first_dependent = Dependent(reader, link.snapshot_id, manifest.epoch)
    return first_dependent


def _has_consumed(
    stores: lineage_cut.RootStores, position: UpstreamPosition, first: Mapping[lineage_cut.PlacedPipeline, str]
) -> bool:
    upstream = stores.place_pipeline(position.root, position.pipeline)
    wanted_id = first.get(upstream)
    if wanted_id is None or position.snapshot is None:
        return False
    return position.snapshot == wanted_id or stores.catalog(upstream).is_ancestor(wanted_id, position.snapshot)


@dataclass(frozen=True)
class Neighbours:
    """How far a pipeline has come with those that it ``reads``, and how far those have come that are its ``readers``.
    ``unseen``: of both those of which nobody can tell from here.
    """

    reads: tuple[ReaderProgress, ...]
    readers: tuple[ReaderProgress, ...]
    unseen: tuple[lineage_cut.UnseenReader, ...]


def neighbours_of(stores: lineage_cut.RootStores, name: str) -> Neighbours:
    """The neighbours of pipeline ``name`` under the root that ``stores`` begin with. Heads of readers are read before
    its own, and its own before those of what it reads. So all are of one consistent cut. Raises BrokenObjectError.
    """
    own = lineage_cut.PlacedPipeline("", name)
    holds, damaged_holds = holds_of(stores.own, name)
    unseen = [lineage_cut.UnseenReader.of_damaged(hold, own) for hold in damaged_holds]
    readers: list[ReaderProgress] = []
    for reader in dict.fromkeys(stores.place_pipeline(hold.root, hold.pipeline) for hold in holds):
        try:
            readers += [one for one in _progress_of_inputs(stores, reader) if one.upstream == own]
        except HeadraceError as error:
            unseen.append(lineage_cut.UnseenReader(reader, own, f"how far it has come is not known: {error}"))
    reads: list[ReaderProgress] = []
    for input_name, position in head_of(stores, own).consumed.items():
        try:
            reads.append(progress_of(stores, own, input_name, position))
        except HeadraceError as error:
            upstream = stores.place_pipeline(position.root, position.pipeline)
            unseen.append(lineage_cut.UnseenReader(own, upstream, f"what is published of it is not known: {error}"))
    return Neighbours(tuple(reads), tuple(readers), tuple(unseen))


def _progress_of_inputs(stores: lineage_cut.RootStores, reader: lineage_cut.PlacedPipeline) -> Iterator[ReaderProgress]:
    for name, position in head_of(stores, reader).consumed.items():
        yield progress_of(stores, reader, name, position)
