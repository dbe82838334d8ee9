"""Whether a source beside files has something that no run has read, seen from outside: what landers have claimed says
how far they have come, and the source what there is behind that.

A watcher loads no pipeline. It makes the source again from what is written of it: its class and its own fields.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from headrace.connections import Connection, knowing
from headrace.errors import FixConfigError
from headrace.ext.sources import SOURCES, OpenSource, SourcePosition
from headrace.model.expressions.data_types import DataType
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.source import Source
from headrace.pipeline.sources import FileSource
from headrace.sources.landed.ranges import LandingPlace
from headrace.sources.landing import landed_first
from headrace_snapshots.store import ObjectStore


class UnwatchedSourceError(FixConfigError, code="config.unwatched_source"):
    """A watcher cannot make a source again."""


@dataclass(frozen=True)
class WatchedSource:
    """A source as text: ``source_type`` is its class, ``module:Class``, ``arguments`` its own fields as JSON values,
    where tuples are lists, and ``connections`` those that it names.
    """

    source_type: str
    arguments: Mapping[str, Any]
    connections: tuple[str, ...] = ()

    @classmethod
    def of(cls, source: Source) -> "WatchedSource":
        """A ``source``. Raises PipelineError if a field of it is no JSON value."""
        kind = type(source)
        own = json.loads(json.dumps(source.watched_fields()))
        return cls(f"{kind.__module__}:{kind.__qualname__}", own, tuple(source.connections))

    def source(self) -> Source:
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
        name: WatchedSource.of(source)
        for name, source in sources.items()
        if source.is_watched and not isinstance(source, FileSource)
    }


@dataclass(frozen=True)
class Unread:
    """How much of a source was not read: so many ``splits``, or ``records`` where it counts these."""

    splits: int = 0
    records: int = 0


class SplitWatch:
    """Looks how much of the source that input ``name`` of ``pipeline`` reads was not read; ``reached`` gives the
    connections that it names. A look opens the source and asks it.
    """

    def __init__(
        self, store: ObjectStore, pipeline: str, name: str, watched: WatchedSource, reached: Callable[[str], Connection]
    ) -> None:
        self._store = store
        self._place = LandingPlace(store, pipeline, name)
        self._watched = watched
        self._reached = reached

    def unread(self, position: SourcePosition) -> Unread:
        """How much a run would read that continues from ``position``; where a lander was killed at least 1. Raises what
        the source raises, MissingConnectionError, UnwatchedSourceError.
        """
        source = self._watched.source()
        with knowing(self._reached(name) for name in source.connections):  # no others: a registry is for runs
            opened = SOURCES[source.kind].open_for(self._place.pipeline, source, self._store)
            return Unread(**{opened.enumerator.counts: _count_unread(source, opened, self._place, position)})


def _count_unread(source: Source, opened: OpenSource, place: LandingPlace, position: SourcePosition) -> int:
    """How much of a ``source`` a run would read that continues from ``position``; at least 1 if landers have claimed at
    ``place`` what no run has read.
    """
    count = opened.enumerator.count_unread
    lander, landed = landed_first(source, opened, place)
    if lander is None:
        return count(position)
    newest = place.newest(position.mark)
    new = count(SourcePosition("" if newest is None else newest.after))
    if new or newest is None:
        return new
    is_unread = next(landed.enumerator.unread(position), None) is not None
    is_broken_off = newest.is_landed and len(place.files_of(newest)) < len(newest.splits)
    return int(is_unread or (is_broken_off and _is_behind(place, newest.number, position)))


def _is_behind(place: LandingPlace, number: int, position: SourcePosition) -> bool:
    """Whether range ``number`` has files behind the position."""
    known = place.file(position.mark)
    return known is None or known.range < number or known.number < known.last


def _as_tuples(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_as_tuples, value))
    return {key: _as_tuples(one) for key, one in value.items()} if isinstance(value, dict) else value
