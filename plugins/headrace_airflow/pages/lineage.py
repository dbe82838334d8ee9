"""What a pipeline reads of others, its readers, and the graph of all, as far as a user may see these.

``LineageGraphs`` has which pipelines read which over all roots that are served, in one consistent cut.
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
from headrace.model.time import to_instant
from headrace.read.lineage.cut import KeptCatalogs, PlacedPipeline, RootStores, UnseenReader
from headrace.read.lineage.lineage import ReaderProgress, neighbours_of
from headrace.read.lineage.waits import LineageOverview, WaitKind, lineage_overview
from headrace.runs.reporting.results import redact_secrets
from headrace.runs.reporting.summary import PipelineSummary
from headrace_airflow.markdown import text_for_page
from headrace_airflow.pages.listing import Place, editable_by, problems_for, visible_to, with_dags
from headrace_airflow.pages.opened_roots import OpenedRoot, OpenedRoots, RootSummaries
from headrace_snapshots.store import ObjectStore


class UnservedRootError(FixConfigError, code="config.unserved_root"):
    """A pipeline lies under a root that this Airflow does not serve, so no page of it opens that."""


def neighbours(roots: OpenedRoots, root: OpenedRoot, pipeline: str, user: BaseUser) -> dict[str, Any]:
    """How far ``pipeline`` has come with what it ``reads``, and how far its ``readers`` have, as a JSON value; those
    furthest behind first. ``hidden`` is how many there are besides whose DAGs ``user`` may not read.
    """

    neighbourhood = neighbours_of(RootStores(root.store, opened_by(roots)), pipeline)
    others = [one.upstream for one in neighbourhood.reads] + [one.reader for one in neighbourhood.readers]
    others += [one.upstream if one.reader.name == pipeline else one.reader for one in neighbourhood.unseen]
    places = {other: place_under(roots, root, other) for other in others}
    visible = visible_to(user, {place for place in places.values() if place is not None})

    def may_see(other: PlacedPipeline) -> bool:
        return places[other] is None or places[other] in visible

    def name_fields(other: PlacedPipeline) -> dict[str, Any]:
        place = places[other]
        if place is None:
            return {"pipeline": redact_secrets(str(other)), "has_page": False}
        return {"pipeline": roots.root_named(place[0]).root.qualified_name(place[1]), "has_page": True}

    own = PlacedPipeline("", pipeline)
    return {
        "reads": [
            *(
                {**name_fields(one.upstream), **line_of(one)}
                for one in worst_first(neighbourhood.reads)
                if may_see(one.upstream)
            ),
            *(
                {**name_fields(one.upstream), "lag": text_for_page(one.why), "is_well": False}
                for one in neighbourhood.unseen
                if one.reader == own and may_see(one.upstream)
            ),
        ],
        "readers": [
            *(
                {**name_fields(one.reader), **line_of(one)}
                for one in worst_first(neighbourhood.readers)
                if may_see(one.reader)
            ),
            *(
                {**name_fields(one.reader), "lag": text_for_page(one.why), "is_well": False}
                for one in neighbourhood.unseen
                if one.reader != own and may_see(one.reader)
            ),
        ],
        "hidden": sum(not may_see(other) for other in places),
    }


def opened_by(roots: OpenedRoots) -> Callable[[str], ObjectStore]:
    """Opens the store of a root that is served, by its URI; raises UnservedRootError for others."""

    def open_root_store(uri: str) -> ObjectStore:
        served_root = roots.root_at(uri)
        if served_root is None:
            raise UnservedRootError(f"this Airflow does not serve {uri}")
        return served_root.store

    return open_root_store


def place_under(roots: OpenedRoots, root: OpenedRoot, other: PlacedPipeline) -> Place | None:
    """Under which served root a pipeline lies; None: under none."""
    served_root = roots.root_at(other.root) if other.root else root
    return None if served_root is None else (served_root.root.name, other.name)


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
        "is_well": _lag_rank(one) == (0, 0),
    }


def worst_first(readings: Iterable[ReaderProgress]) -> list[ReaderProgress]:
    """Sort readings: those that are furthest behind come first."""
    return sorted(readings, key=_lag_rank, reverse=True)


def _lag_rank(one: ReaderProgress) -> tuple[int, int]:
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
        cut = self._recent_cut()
        places = {place for place in cut.places.values() if place is not None}
        return _VisibleCut(cut, self._roots, visible_to(user, places), editable_by(user, places)).to_json(
            problems_for(with_dags(user), cut.summaries)
        )

    def _recent_cut(self) -> _Cut:
        last = self._cut
        if not self._lock.acquire(blocking=last is None):
            assert last is not None, "it waits for the first one"
            return last  # somebody takes a newer one
        try:
            if self._cut is None or time.monotonic() - self._cut.taken > _KEPT_SECONDS:
                self._cut = self._take_cut()
            return self._cut
        finally:
            self._lock.release()

    def _take_cut(self) -> _Cut:
        summaries = self._told_apart(self._roots.summaries())
        places: dict[PlacedPipeline, Place | None] = {}
        if not summaries.read:
            return _Cut(time.monotonic(), summaries, LineageOverview({}, (), (), (), {}), places)
        roots_by_name = {root.name: self._roots.root_named(root.name) for root, _ in summaries.read}
        own = next(iter(roots_by_name.values()))
        stores = KeptCatalogs(own.store, opened_by(self._roots))
        for root, cached_summaries in summaries.read:
            uri = roots_by_name[root.name].store.uri
            places |= {stores.place_pipeline(uri, name): (root.name, name) for name in cached_summaries.summaries}
        overview = lineage_overview(stores, places, to_instant(datetime.now(UTC)))
        return _Cut(time.monotonic(), summaries, overview, places | self._other_places(own, overview, places))

    def _told_apart(self, summaries: RootSummaries) -> RootSummaries:
        """Keep the roots whose URI no other has: a reader knows another root by its URI alone."""
        read, problems = [], dict(summaries.problems)
        for root, cached_summaries in summaries.read:
            opened_root = self._roots.root_named(root.name)
            if self._roots.root_at(opened_root.store.uri) is opened_root:
                read.append((root, cached_summaries))
            else:
                problems[root.name] = UnservedRootError(f"several roots have the URI {shown(root.location)}")
        return RootSummaries(read, problems)

    def _other_places(
        self, own: OpenedRoot, overview: LineageOverview, places: Mapping[PlacedPipeline, Place | None]
    ) -> dict[PlacedPipeline, Place | None]:
        """Where pipelines lie that have no summary."""
        return {placed: place_under(self._roots, own, placed) for placed in overview.heads if placed not in places}


@dataclass(frozen=True)
class _VisibleCut:
    """A cut as somebody sees it who may read the DAGs of ``visible`` pipelines, and edit those of ``editable``."""

    cut: _Cut
    roots: OpenedRoots
    visible: set[Place]
    editable: set[Place]

    def to_json(self, problems: list[dict[str, str]]) -> dict[str, Any]:
        ends = [(one.upstream, one.reader) for one in self.cut.edges]
        others = {other for pair in ends for other in pair if any(map(self._is_visible, pair))}
        visible_places = {placed for placed in self.cut.places if self._is_visible(placed)}
        visible_places |= {other for other in others if self.cut.places[other] is None}
        return {
            "age": round(time.monotonic() - self.cut.taken, 1),
            "pipelines": [self._pipeline_json(placed) for placed in sorted(visible_places, key=self._display_name)],
            "inputs": [self._input_json(one) for one in self.cut.edges if {one.upstream, one.reader} <= visible_places],
            "hidden": len(others - visible_places),
            "problems": problems,
        }

    @cached_property
    def _summaries(self) -> dict[Place, PipelineSummary]:
        """What summaries say, by place."""
        read = self.cut.summaries.read
        return {
            (root.name, name): one
            for root, cached_summaries in read
            for name, one in cached_summaries.summaries.items()
        }

    def _is_visible(self, placed: PlacedPipeline) -> bool:
        return self.cut.places[placed] in self.visible

    def _display_name(self, placed: PlacedPipeline) -> str:
        place = self.cut.places[placed]
        return (
            redact_secrets(str(placed))
            if place is None
            else self.roots.root_named(place[0]).root.qualified_name(place[1])
        )

    def _pipeline_json(self, placed: PlacedPipeline) -> dict[str, Any]:
        head, place, problem = self.cut.seen.heads[placed], self.cut.places[placed], self.cut.seen.problems.get(placed)
        summary = None if place is None else self._summaries.get(place)
        return {
            "pipeline": self._display_name(placed),
            "has_page": place is not None,
            "epoch": head.epoch,
            "snapshot": head.snapshot,
            "published": None if summary is None else summary.published,
            "published_epoch": None if summary is None else summary.published_epoch,
            "in_flight": [*self._in_flight(placed)],
            "problem": None if problem is None else text_for_page(problem),
        }

    def _in_flight(self, placed: PlacedPipeline) -> Iterator[str]:
        for wait in self.cut.seen.waits:
            if wait.pipeline == placed and wait.kind in _OWN_WAITS:
                is_told = wait.kind is not WaitKind.PARKED or self.cut.places[placed] in self.editable
                why = text_for_page(wait.why) if is_told else "an output stands"  # its error may quote a record
                yield f"{wait.kind}: {why}"

    def _input_json(self, one: ReaderProgress | UnseenReader) -> dict[str, Any]:
        names = {"pipeline": self._display_name(one.reader), "upstream": self._display_name(one.upstream)}
        if isinstance(one, ReaderProgress):
            return {**names, **line_of(one)}
        return {**names, "lag": text_for_page(one.why), "is_well": False}
