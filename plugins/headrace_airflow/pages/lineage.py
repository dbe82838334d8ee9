"""What a pipeline reads of others, its readers, and the graph of all, as far as a user may see these.

Which pipelines read which, over all roots that are served: as far as a user may see them, in one consistent cut.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser

from headrace.errors import FixConfigError
from headrace.ext.stores import shown
from headrace.model.time import instant
from headrace.read.lineage.cut import KeptCatalogs, PlacedPipeline, RootStores, UnseenReader
from headrace.read.lineage.lineage import ReaderProgress, neighbours_of
from headrace.read.lineage.waits import LineageOverview, WaitKind, overview
from headrace.runs.reporting.results import redacted
from headrace.runs.reporting.summary import PipelineSummary
from headrace_airflow.markdown import told
from headrace_airflow.pages.listing import Place, editable_by, problems_for, visible_to, with_dags
from headrace_airflow.pages.opened_roots import OpenedRoot, OpenedRoots, RootSummaries
from headrace_snapshots.store import ObjectStore


class UnservedRootError(FixConfigError, code="config.unserved_root"):
    """A pipeline lies under a root that this Airflow does not serve, so no page of it opens that."""


def neighbours(roots: OpenedRoots, root: OpenedRoot, pipeline: str, user: BaseUser) -> dict[str, Any]:
    """How far ``pipeline`` has come with what it ``reads``, and how far its ``readers`` have, as a JSON value; those
    furthest behind first. ``hidden`` is how many there are besides whose DAGs ``user`` may not read.
    """

    seen = neighbours_of(RootStores(root.store, opened_by(roots)), pipeline)
    others = [one.upstream for one in seen.reads] + [one.reader for one in seen.readers]
    others += [one.upstream if one.reader.name == pipeline else one.reader for one in seen.unseen]
    places = {other: place_under(roots, root, other) for other in others}
    visible = visible_to(user, {place for place in places.values() if place is not None})

    def may_see(other: PlacedPipeline) -> bool:
        return places[other] is None or places[other] in visible

    def named(other: PlacedPipeline) -> dict[str, Any]:
        place = places[other]
        if place is None:
            return {"pipeline": redacted(str(other)), "has_page": False}
        return {"pipeline": roots.named(place[0]).root.qualified(place[1]), "has_page": True}

    own = PlacedPipeline("", pipeline)
    return {
        "reads": [
            *({**named(one.upstream), **line_of(one)} for one in worst_first(seen.reads) if may_see(one.upstream)),
            *(
                {**named(one.upstream), "lag": told(one.why), "is_well": False}
                for one in seen.unseen
                if one.reader == own and may_see(one.upstream)
            ),
        ],
        "readers": [
            *({**named(one.reader), **line_of(one)} for one in worst_first(seen.readers) if may_see(one.reader)),
            *(
                {**named(one.reader), "lag": told(one.why), "is_well": False}
                for one in seen.unseen
                if one.reader != own and may_see(one.reader)
            ),
        ],
        "hidden": sum(not may_see(other) for other in places),
    }


def opened_by(roots: OpenedRoots) -> Callable[[str], ObjectStore]:
    """Opens the store of a root that is served, by its URI; raises UnservedRootError for others."""

    def opened(uri: str) -> ObjectStore:
        at = roots.at(uri)
        if at is None:
            raise UnservedRootError(f"this Airflow does not serve {uri}")
        return at.store

    return opened


def place_under(roots: OpenedRoots, root: OpenedRoot, other: PlacedPipeline) -> Place | None:
    """Under which served root a pipeline lies; None: under none."""
    at = roots.at(other.root) if other.root else root
    return None if at is None else (at.root.name, other.name)


def line_of(one: ReaderProgress) -> dict[str, Any]:
    """How far one input has come, as a JSON value."""
    return {
        "input": one.name,
        "output": one.output,
        "consumed": one.consumed,
        "consumed_epoch": None if one.consumed is None else one.consumed_epoch,
        "published": one.published,
        "published_epoch": one.published_epoch,
        "lag": one.lag,
        "is_well": _behind(one) == (0, 0),
    }


def worst_first(readings: Iterable[ReaderProgress]) -> list[ReaderProgress]:
    """Sort readings: those that are furthest behind come first."""
    return sorted(readings, key=_behind, reverse=True)


def _behind(one: ReaderProgress) -> tuple[int, int]:
    """Whether its next run has to take something back, or may stop; and how many epochs it is behind."""
    if not one.is_in_line:
        return 1, 0
    return 0, 0 if one.published_epoch is None else one.published_epoch - one.consumed_epoch


_KEPT_SECONDS: Final = 5.0
"""So long all who look share one cut."""

_OWN_WAITS: Final = frozenset({WaitKind.PUBLISH, WaitKind.PARKED, WaitKind.TIMER, WaitKind.HELD, WaitKind.SINK})
"""What a pipeline itself has in flight. What it has not read of others is the lag of its inputs."""


@dataclass(frozen=True)
class _Cut:
    """All pipelines at one moment, and where each lies; None: under a root that is not served."""

    taken: float
    summaries: RootSummaries
    seen: LineageOverview
    places: Mapping[PlacedPipeline, Place | None]

    @property
    def edges(self) -> Iterator[ReaderProgress | UnseenReader]:
        yield from worst_first(self.seen.readings)
        yield from self.seen.unseen


class LineageGraphs:
    """The graph of all pipelines, for each user what that user may see of it."""

    def __init__(self, roots: OpenedRoots) -> None:
        self._roots = roots
        self._lock = threading.Lock()
        self._cut: _Cut | None = None

    def seen_by(self, user: BaseUser) -> dict[str, Any]:
        """The graph as a JSON value: pipelines, and how far each input that is another one has come, those furthest
        behind first. ``hidden``: how many there are at the other ends of inputs whose DAGs ``user`` may not read.

        Raises what is wrong with the root if there is only one; UpstreamCycleError.
        """
        cut = self._recent()
        places = {place for place in cut.places.values() if place is not None}
        return _Seen(cut, self._roots, visible_to(user, places), editable_by(user, places)).to_json(
            problems_for(with_dags(user), cut.summaries)
        )

    def _recent(self) -> _Cut:
        last = self._cut
        if not self._lock.acquire(blocking=last is None):
            assert last is not None, "it waits for the first one"
            return last  # somebody takes a newer one
        try:
            if self._cut is None or time.monotonic() - self._cut.taken > _KEPT_SECONDS:
                self._cut = self._taken()
            return self._cut
        finally:
            self._lock.release()

    def _taken(self) -> _Cut:
        summaries = self._told_apart(self._roots.summaries())
        places: dict[PlacedPipeline, Place | None] = {}
        if not summaries.read:
            return _Cut(time.monotonic(), summaries, LineageOverview({}, (), (), (), {}), places)
        opened = {root.name: self._roots.named(root.name) for root, _ in summaries.read}
        own = next(iter(opened.values()))
        stores = KeptCatalogs(own.store, opened_by(self._roots))
        for root, cached in summaries.read:
            uri = opened[root.name].store.uri
            places |= {stores.placed(uri, name): (root.name, name) for name in cached.summaries}
        seen = overview(stores, places, instant(datetime.now(UTC)))
        return _Cut(time.monotonic(), summaries, seen, places | self._others(own, seen, places))

    def _told_apart(self, summaries: RootSummaries) -> RootSummaries:
        """Keep the roots whose URI no other has: a reader knows another root by its URI alone."""
        read, problems = [], dict(summaries.problems)
        for root, cached in summaries.read:
            opened = self._roots.named(root.name)
            if self._roots.at(opened.store.uri) is opened:
                read.append((root, cached))
            else:
                problems[root.name] = UnservedRootError(f"several roots have the URI {shown(root.location)}")
        return RootSummaries(read, problems)

    def _others(
        self, own: OpenedRoot, seen: LineageOverview, places: Mapping[PlacedPipeline, Place | None]
    ) -> dict[PlacedPipeline, Place | None]:
        """Where pipelines lie that have no summary."""
        return {at: place_under(self._roots, own, at) for at in seen.heads if at not in places}


@dataclass(frozen=True)
class _Seen:
    """A cut as somebody sees it who may read the DAGs of ``visible`` pipelines, and edit those of ``editable``."""

    cut: _Cut
    roots: OpenedRoots
    visible: set[Place]
    editable: set[Place]

    def to_json(self, problems: list[dict[str, str]]) -> dict[str, Any]:
        ends = [(one.upstream, one.reader) for one in self.cut.edges]
        others = {other for pair in ends for other in pair if any(map(self._is_visible, pair))}
        seen = {at for at in self.cut.places if self._is_visible(at)}
        seen |= {other for other in others if self.cut.places[other] is None}
        return {
            "age": round(time.monotonic() - self.cut.taken, 1),
            "pipelines": [self._pipeline(at) for at in sorted(seen, key=self._name)],
            "inputs": [self._input(one) for one in self.cut.edges if {one.upstream, one.reader} <= seen],
            "hidden": len(others - seen),
            "problems": problems,
        }

    @cached_property
    def _summaries(self) -> dict[Place, PipelineSummary]:
        """What summaries say, by place."""
        read = self.cut.summaries.read
        return {(root.name, name): one for root, cached in read for name, one in cached.summaries.items()}

    def _is_visible(self, at: PlacedPipeline) -> bool:
        return self.cut.places[at] in self.visible

    def _name(self, at: PlacedPipeline) -> str:
        place = self.cut.places[at]
        return redacted(str(at)) if place is None else self.roots.named(place[0]).root.qualified(place[1])

    def _pipeline(self, at: PlacedPipeline) -> dict[str, Any]:
        head, place, problem = self.cut.seen.heads[at], self.cut.places[at], self.cut.seen.problems.get(at)
        summary = None if place is None else self._summaries.get(place)
        return {
            "pipeline": self._name(at),
            "has_page": place is not None,
            "epoch": head.epoch,
            "snapshot": head.snapshot,
            "published": None if summary is None else summary.published,
            "published_epoch": None if summary is None else summary.published_epoch,
            "in_flight": [*self._in_flight(at)],
            "problem": None if problem is None else told(problem),
        }

    def _in_flight(self, at: PlacedPipeline) -> Iterator[str]:
        for wait in self.cut.seen.waits:
            if wait.pipeline == at and wait.kind in _OWN_WAITS:
                is_told = wait.kind is not WaitKind.PARKED or self.cut.places[at] in self.editable
                why = told(wait.why) if is_told else "an output stands"  # its error may quote a record
                yield f"{wait.kind}: {why}"

    def _input(self, one: ReaderProgress | UnseenReader) -> dict[str, Any]:
        names = {"pipeline": self._name(one.reader), "upstream": self._name(one.upstream)}
        if isinstance(one, ReaderProgress):
            return {**names, **line_of(one)}
        return {**names, "lag": told(one.why), "is_well": False}
