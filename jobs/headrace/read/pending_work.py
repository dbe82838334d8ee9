"""What a run of a pipeline would find to do, seen from outside: files and records that no run has read, a due timer.

``SplitWatch`` looks at a source beside files. What landers have claimed says how far they have come, and the source
what there is behind that. A watcher loads no pipeline: it makes the source again from its class and fields.

``WorkFinder`` looks at all of a pipeline, again and again. What main has read is the position from which it looks, so
it keeps none of its own.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from itertools import islice
from time import monotonic
from typing import Any, Final

from headrace.connections import Connection, use_connections
from headrace.errors import FixConfigError, FixDataError, RestoreError
from headrace.ext.sources import ENOUGH, SOURCES, OpenSource, SourcePosition, SourceSplit
from headrace.model.expressions.data_types import DataType
from headrace.model.time import Instant
from headrace.pipeline.endpoints import Source
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.sources import FilesSource, NameOrder
from headrace.read.snapshots.progress import progress_of, without_copies
from headrace.read.snapshots.read_names import ReadNames
from headrace.sources.file_planning import KnownNames, list_unread, open_source, unread_names
from headrace.sources.landed.ranges import LandingPlace
from headrace.sources.landing import landed_first
from headrace.sources.progress import PipelineProgress
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.names import MAIN
from headrace_snapshots.store import ObjectStore


class UnwatchedSourceError(FixConfigError, code="config.unwatched_source"):
    """A watcher cannot make a source again."""


@dataclass(frozen=True)
class WatchedSource:
    """A source as text. ``source_type`` is its class, ``module:Class``; ``arguments`` are its own fields as JSON
    values, where tuples are lists; ``connections`` are those that it names.
    """

    source_type: str
    arguments: Mapping[str, Any]
    connections: tuple[str, ...] = ()

    @classmethod
    def from_source(cls, source: Source) -> "WatchedSource":
        """A ``source``. Raises PipelineError if a field of it is no JSON value."""
        kind = type(source)
        own = json.loads(json.dumps(source.watched_fields()))
        return cls(f"{kind.__module__}:{kind.__qualname__}", own, tuple(source.connections))

    def build_source(self) -> Source:
        """The source, with a column that nobody reads. Raises UnwatchedSourceError if its class is not there."""
        module, _, name = self.source_type.partition(":")
        try:
            source_type = getattr(import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise UnwatchedSourceError(
                f"the triggerer cannot import {self.source_type} ({error}): install the package of this source there"
            ) from error
        arguments = {argument: _as_tuples(value) for argument, value in self.arguments.items()}
        source = source_type(**arguments, schema={"unread": DataType.INT})
        assert isinstance(source, Source)
        return source


def watched_sources(pipeline: Pipeline) -> dict[str, WatchedSource]:
    """The inputs of ``pipeline`` that are watched and no files, by name."""
    sources = {one.name: one.source for one in pipeline.inputs}
    return {
        name: WatchedSource.from_source(source)
        for name, source in sources.items()
        if source.is_watched and not isinstance(source, FilesSource)
    }


@dataclass(frozen=True)
class Unread:
    """How much of a source was not read: so many ``splits``, or ``records`` where it counts these."""

    splits: int = 0
    records: int = 0


class SplitWatch:
    """Looks how much of the source that input ``name`` of ``pipeline`` reads was not read; ``connect`` gives the
    connections that it names. A look opens the source and asks it.
    """

    def __init__(
        self, store: ObjectStore, pipeline: str, name: str, source: WatchedSource, connect: Callable[[str], Connection]
    ) -> None:
        self._store = store
        self._place = LandingPlace(store, pipeline, name)
        self._watched_source = source
        self._connect = connect

    def count_unread(self, position: SourcePosition) -> Unread:
        """How much a run would read that continues from ``position``; where a lander was killed at least 1. Raises what
        the source raises, MissingConnectionError, UnwatchedSourceError.
        """
        source = self._watched_source.build_source()
        with use_connections(self._connect(name) for name in source.connections):  # no others: a registry is for runs
            source_access = SOURCES[source.kind].open_for(self._place.pipeline, source, self._store)
            return Unread(
                **{source_access.enumerator.counts: _count_unread(source, source_access, self._place, position)}
            )


def _count_unread(source: Source, source_access: OpenSource, place: LandingPlace, position: SourcePosition) -> int:
    """How much a run from ``position`` would read; at least 1 if landers claimed at ``place`` what no run read."""
    count = source_access.enumerator.count_unread
    lander, landed_source = landed_first(source, source_access, place)
    if lander is None:
        return count(position)
    newest = place.newest_range(position.mark)
    new = count(SourcePosition("" if newest is None else newest.after))
    if new or newest is None:
        return new
    is_unread = next(landed_source.enumerator.unread(position), None) is not None
    is_broken_off = newest.is_landed and len(place.files_of(newest)) < len(newest.splits)
    return int(is_unread or (is_broken_off and _is_behind(place, newest.number, position)))


def _is_behind(place: LandingPlace, number: int, position: SourcePosition) -> bool:
    """Whether range ``number`` has files behind the position."""
    landed_file = place.landed_file(position.mark)
    return landed_file is None or landed_file.range < number or landed_file.number < landed_file.last


def _as_tuples(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_as_tuples, value))
    return {key: _as_tuples(one) for key, one in value.items()} if isinstance(value, dict) else value


_BRIEF: Final = 1.0
_PAUSE: Final = 9
"""A look at all names that takes more seconds than the first is followed by a pause of so many times as long."""


@dataclass(frozen=True)
class WatchedInput:
    """Where an input lands, and which files count; ``is_ordered``: they land in the order of their names."""

    path: str
    suffixes: tuple[str, ...] = ()
    is_ordered: bool = False


@dataclass(frozen=True)
class UnreadFiles:
    """Files of one input that no run has read: their number (``ENOUGH`` or more if it is that), bytes, the last one."""

    files: int
    bytes: int
    last: str


@dataclass(frozen=True)
class PendingWork:
    """What a run that continues from ``snapshot`` (None: there is none) would find to do.

    ``records``: of topics about how many offsets were not read, by input; ``splits``: of other sources how many splits.
    ``problem``: what stands against a run, and what it would say where people look for it. Two that are equal are about
    the same work.
    """

    snapshot: str | None
    files: Mapping[str, UnreadFiles] = field(default_factory=dict)
    is_due: bool = False
    problem: str | None = None
    records: Mapping[str, int] = field(default_factory=dict)
    splits: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """A JSON object, for the event that announces it."""
        fields = {
            "snapshot": self.snapshot,
            "files": {name: one.files for name, one in self.files.items()},
            "timer_is_due": self.is_due,
        }
        if self.records:
            fields["records"] = dict(self.records)
        if self.splits:
            fields["splits"] = dict(self.splits)
        return fields if self.problem is None else {**fields, "problem": self.problem}


def watched_inputs(pipeline: Pipeline) -> dict[str, WatchedInput]:
    """The inputs of ``pipeline`` that are files, by name."""
    sources = {one.name: one.source for one in pipeline.inputs}
    return {
        name: WatchedInput(source.path, source.suffixes, source.names is NameOrder.ORDERED)
        for name, source in sources.items()
        if isinstance(source, FilesSource)
    }


class WorkFinder:
    """Looks what there is to do for ``pipeline``, whose snapshots are in ``store``. For one thread.

    A look costs a listing of the log, and one of each input; where its names are said to ascend, from where main has
    read on. It costs a manifest only where main has moved. ``others`` are the inputs that are no files, by name.
    """

    def __init__(
        self,
        store: ObjectStore,
        pipeline: str,
        inputs: Mapping[str, WatchedInput],
        others: "Mapping[str, SplitWatch] | None" = None,
    ) -> None:
        self._others = others or {}
        self._catalog = Catalog(store, pipeline)
        self._places = {name: _WatchedPlace(*open_source(store, one.path), one) for name, one in inputs.items()}
        self._known_progress: tuple[Manifest | None, PipelineProgress] = (None, PipelineProgress())
        self._names: ReadNames | None = None

    def find_work(self, now: Instant) -> PendingWork | None:
        """What a run would find to do ``now``; None if nothing. Raises what the store raises, and FixConfigError."""
        snapshot: str | None = None
        try:
            snapshot = self._catalog.head().refs.get(MAIN)
            manifest, progress = self._progress_at(snapshot)
            files = {name: new for name in self._places if (new := self._unread_files(name, manifest, progress))}
            offsets = progress.offsets
            others = {
                name: watch.count_unread(offsets.get(name, SourcePosition())) for name, watch in self._others.items()
            }
            records = {name: unread.records for name, unread in others.items() if unread.records}
            splits = {name: unread.splits for name, unread in others.items() if unread.splits}
        except (FixDataError, RestoreError) as error:
            return PendingWork(snapshot, problem=f"{error.code}: {error}")
        is_due = snapshot is not None and progress.is_due(now)
        work = PendingWork(snapshot, files, is_due, records=records, splits=splits)
        return work if files or records or splits or is_due else None

    def _progress_at(self, snapshot: str | None) -> tuple[Manifest | None, PipelineProgress]:
        known_manifest = self._known_progress[0]
        if snapshot != (None if known_manifest is None else known_manifest.snapshot_id):
            manifest = None if snapshot is None else self._catalog.manifest(snapshot)
            progress = PipelineProgress() if manifest is None else progress_of(self._catalog, manifest)
            self._known_progress = manifest, progress
            self._names = None if manifest is None else ReadNames.from_manifest(self._catalog, manifest)
        return self._known_progress

    def _unread_files(self, name: str, manifest: Manifest | None, progress: PipelineProgress) -> UnreadFiles | None:
        place, offsets = self._places[name], progress.offsets.get(name, SourcePosition())
        snapshot = None if manifest is None else manifest.snapshot_id
        load_names = KnownNames if self._names is None else partial(self._names.of_input, name)
        if place.is_due():
            start = monotonic()
            last = self._first_unread(
                name, manifest, unread_names(place.store, place.prefix, load_names(), place.watched_input.suffixes)
            )
            place.record_look(start, snapshot, last)
            return last
        if snapshot == place.snapshot and place.last is not None:
            return place.last
        return self._first_unread(
            name,
            manifest,
            list_unread(place.store, place.prefix, offsets, place.watched_input.suffixes, load_names),
        )

    def _first_unread(self, name: str, manifest: Manifest | None, splits: Iterator[SourceSplit]) -> UnreadFiles | None:
        while page := [*islice(splits, ENOUGH)]:
            if files := without_copies(self._catalog, manifest, {name: page}).get(name):
                return UnreadFiles(len(files), sum(file.size for file in files), files[-1].path)
        return None


class _WatchedPlace:
    """Where an input lands, and when all of its names were last listed. Listing many names takes a while. For nine
    times as long after it, only names that sort behind all that was read are looked for.
    """

    def __init__(self, store: ObjectStore, prefix: str, watched_input: WatchedInput) -> None:
        self.store, self.prefix, self.watched_input = store, prefix, watched_input
        self.snapshot: str | None = None
        self.last: UnreadFiles | None = None
        self._next = 0.0

    def is_due(self) -> bool:
        """Whether all names are to be listed now."""
        return not self.watched_input.is_ordered and monotonic() >= self._next

    def record_look(self, start: float, snapshot: str | None, last: UnreadFiles | None) -> None:
        """Take in that a look that had ``start`` ended with ``last``, beside what ``snapshot`` had read."""
        end = monotonic()
        self._next = end + (_PAUSE * (end - start) if end - start > _BRIEF else 0)
        self.snapshot, self.last = snapshot, last
