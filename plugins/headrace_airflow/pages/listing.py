"""Who may see what; the list of all pipelines that a user may see, and their graph: which pipelines read which.

Who may read a pipeline's DAG sees it (``visible_to``), and who may edit that its values (``editable_by``).

``dag_runs_of`` asks Airflow's own database which DAG run a run of Headrace belongs to, ``pipeline_deadlines`` for the
deadlines of those that have not ended.

``pipeline_list`` is over all roots, those that need a person first. ``neighbours`` are what a pipeline reads of others,
and its readers. ``LineageGraphs`` has which pipelines read which over all roots that are served, in one consistent cut.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from operator import attrgetter
from typing import Any, Final

import msgspec
from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.base_auth_manager import ResourceMethod
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagDetails
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.deadline import Deadline
from airflow.utils.session import create_session
from airflow.utils.state import State
from fastapi import HTTPException, status
from sqlalchemy import func, select

from headrace.errors import FixConfigError
from headrace.ext.stores import shown
from headrace.model.time import to_instant
from headrace.pipeline.scheduling import DagOwner, owner_of
from headrace.pipeline.scheduling import dag_id as dag_id_of
from headrace.read.lineage.cut import KeptCatalogs, PlacedPipeline, RootStores, UnseenReader
from headrace.read.lineage.lineage import ReaderProgress, neighbours_of
from headrace.read.lineage.waits import LineageOverview, WaitKind, lineage_overview
from headrace.runs.reporting.results import redact_secrets
from headrace.runs.reporting.summary import PipelineState, PipelineSummary, urgent_first
from headrace_airflow.markdown import text_for_page, told_of
from headrace_airflow.pages.opened_roots import OpenedRoot, OpenedRoots, RootSummaries
from headrace_airflow.run_ids import run_id_begin
from headrace_snapshots.store import ObjectStore


def owner_behind(dag_id: str) -> DagOwner:
    """Root and pipeline of the DAG of that id. Raises HTTPException (404) for a DAG that is none of Headrace's."""
    owner = owner_of(dag_id)
    if owner is None:
        raise HTTPException(status.HTTP_404_NOT_FOUND, f"{dag_id} is no DAG of a Headrace pipeline")
    return owner


def may_edit(dag_id: str, user: BaseUser) -> bool:
    """Whether ``user`` may edit a DAG, and so see the values of its pipeline."""
    details = DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))
    return bool(get_auth_manager().is_authorized_dag(method="PUT", details=details, user=user))


Place = tuple[str, str]
"""The names of a root and of a pipeline under it."""


def editable_by(user: BaseUser, pipelines: Collection[Place]) -> set[Place]:
    """Keep the ``pipelines`` whose values ``user`` may see."""
    return _authorized_pipelines(user, pipelines, "PUT")


def visible_to(user: BaseUser, pipelines: Collection[Place]) -> set[Place]:
    """Keep the ``pipelines`` whose process DAG ``user`` may read."""
    return _authorized_pipelines(user, pipelines, "GET")


def with_dags(user: BaseUser) -> set[Place]:
    """The pipelines whose process DAG is there, and may be read by ``user``."""
    owners = (owner_of(allowed_id) for allowed_id in get_auth_manager().get_authorized_dag_ids(user=user))
    return {(owner.root, owner.pipeline) for owner in owners if owner is not None and owner.family == "process"}


def _authorized_pipelines(user: BaseUser, pipelines: Collection[Place], method: ResourceMethod) -> set[Place]:
    names = {dag_id_of(name, "process", root): (root, name) for root, name in pipelines}
    allowed_ids = get_auth_manager().filter_authorized_dag_ids(dag_ids={*names}, user=user, method=method)
    return {names[allowed_id] for allowed_id in allowed_ids}


_RUNS_LOOKED_AT: Final = 5_000
"""DAG runs among which that of a run is looked for: the newest."""


@dataclass(frozen=True)
class DagRunName:
    """A DAG run, as Airflow's UI finds it."""

    dag_id: str
    run_id: str


@dataclass(frozen=True)
class RunDeadline:
    """When a DAG run that has not ended is to have ended by; ``is_missed``: its alert has been given."""

    at: str
    is_missed: bool


def dag_runs_of(run_ids: Collection[str]) -> dict[str, DagRunName]:
    """The DAG run behind each of the ``run_ids`` that tasks gave their runs (``run_ids.run_id_of``), as far as Airflow
    still has it. People delete DAG runs, and a run from a command line has none.
    """
    dags = {".".join(run_id.split(".")[:parts]) for run_id in run_ids for parts in (1, 2)}  # a root's name has a dot
    with create_session() as session:
        newest = select(DagRun.dag_id, DagRun.run_id).where(DagRun.dag_id.in_(dags)).order_by(DagRun.id.desc())
        known_runs = [DagRunName(*row) for row in session.execute(newest.limit(_RUNS_LOOKED_AT))]
    by_begin: dict[str, list[DagRunName]] = {}
    for name in known_runs:
        by_begin.setdefault(run_id_begin(name.dag_id, name.run_id), []).append(name)
    dag_runs: dict[str, DagRunName] = {}
    for run_id in run_ids:
        parts = [position for position, character in enumerate(run_id, start=1) if character == "."]
        begins = [run_id[:position] for position in reversed(parts)] + [run_id[:-9]]
        names = next((by_begin[begin] for begin in begins if begin in by_begin), [])
        if len(names) == 1:  # of two with names that are equally long and cut off nobody knows which
            dag_runs[run_id] = names[0]
    return dag_runs


def pipeline_deadlines() -> Mapping[Place, RunDeadline]:
    """The next deadline of each pipeline whose process DAG has a run with one; a missed one first."""
    deadline_query = (
        select(DagRun.dag_id, Deadline.missed, func.min(Deadline.deadline_time))
        .join(DagRun, Deadline.dagrun_id == DagRun.id)
        .where(DagRun.state.in_(State.unfinished_dr_states))
        .group_by(DagRun.dag_id, Deadline.missed)
    )
    with create_session() as session:
        rows = session.execute(deadline_query).all()
    deadlines: dict[Place, RunDeadline] = {}
    for dag_id, is_missed, due in sorted(rows, key=lambda row: not row[1]):
        owner = owner_of(dag_id)
        if owner is not None and owner.family == "process":
            deadlines.setdefault((owner.root, owner.pipeline), RunDeadline(_iso_time(due), bool(is_missed)))
    return deadlines


def _iso_time(moment: datetime) -> str:
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC).isoformat().replace("+00:00", "Z")


def pipeline_list(roots: OpenedRoots, user: BaseUser) -> dict[str, Any]:
    """The list as a JSON value, with what is wrong with roots that are missing and of which ``user`` may read a DAG."""
    root_summaries, visible_pipelines = roots.summaries(), with_dags(user)
    summaries = root_summaries.by_place
    roots_read = {root.name: root for root, _ in root_summaries.read}
    visible_summaries = {place: summaries[place] for place in visible_to(user, summaries)}
    waiting = {
        (root, name): PipelineSummary(pipeline=name, made_at="", entry=-1, state=PipelineState.EMPTY)
        for root, name in visible_pipelines - summaries.keys()
        if root in roots_read
    }
    now, editable = to_instant(datetime.now(UTC)), editable_by(user, visible_summaries)
    deadlines = {
        roots_read[root].qualified_name(name): due
        for (root, name), due in pipeline_deadlines().items()
        if root in roots_read
    }
    rows = [
        msgspec.structs.replace(
            one if place in editable else one.without_values, pipeline=roots_read[place[0]].qualified_name(place[1])
        ).as_of(now)
        for place, one in (visible_summaries | waiting).items()
    ]
    missed_pipelines = {name for name, deadline in deadlines.items() if deadline.is_missed}
    return {
        "age": round(max((cached_summaries.age for _, cached_summaries in root_summaries.read), default=0.0), 1),
        "pipelines": [
            {**told_of(one.line_to_json()), "deadline": deadline_to_json(deadlines.get(one.pipeline))}
            for one in urgent_first(rows, now, missed_pipelines)
        ],
        "problems": problems_for(visible_pipelines, root_summaries),
    }


def problems_for(visible_places: Collection[Place], summaries: RootSummaries) -> list[dict[str, str]]:
    """What is wrong with roots that are missing, and of which a user may read a DAG (``visible_places``)."""
    missing = {root for root, _ in visible_places} - {root.name for root, _ in summaries.read}
    return [{"root": root, "message": text_for_page(str(_root_problem(root, summaries)))} for root in sorted(missing)]


def deadline_to_json(deadline: RunDeadline | None) -> dict[str, Any] | None:
    """A JSON value of a pipeline's next deadline, if it has one."""
    return None if deadline is None else asdict(deadline)


def _root_problem(root: str, root_summaries: RootSummaries) -> BaseException | str:
    problem = root_summaries.problems.get(root)
    return "it is not declared any more, or what declares it is wrong" if problem is None else problem


class UnservedRootError(FixConfigError, code="config.unserved_root"):
    """A pipeline lies under a root that this Airflow does not serve, so no page of it opens that."""


def neighbours(roots: OpenedRoots, root: OpenedRoot, pipeline: str, user: BaseUser) -> dict[str, Any]:
    """How far ``pipeline`` has come with what it ``reads``, and how far its ``readers`` have, as a JSON value;
    neighbours furthest behind come first. ``hidden`` is how many there are besides whose DAGs ``user`` may not read.
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

    def shown_lines(
        progresses: Iterable[ReaderProgress], unseen: Iterable[UnseenReader], side: str
    ) -> list[dict[str, Any]]:
        """Lines of the pipelines on one ``side``: those whose lag is known, the worst first, and the others."""
        other = attrgetter(side)
        return [
            *({**name_fields(other(one)), **line_of(one)} for one in worst_first(progresses) if may_see(other(one))),
            *(
                {**name_fields(other(one)), "lag": text_for_page(one.why), "is_well": False}
                for one in unseen
                if may_see(other(one))
            ),
        ]

    own, unseen = PlacedPipeline("", pipeline), neighbourhood.unseen
    return {
        "reads": shown_lines(neighbourhood.reads, [one for one in unseen if one.reader == own], "upstream"),
        "readers": shown_lines(neighbourhood.readers, [one for one in unseen if one.reader != own], "reader"),
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

    taken_at: float
    summaries: RootSummaries
    overview: LineageOverview
    places: Mapping[PlacedPipeline, Place | None]

    @property
    def edges(self) -> Iterator[ReaderProgress | UnseenReader]:
        yield from worst_first(self.overview.readings)
        yield from self.overview.unseen


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
            if self._cut is None or time.monotonic() - self._cut.taken_at > _KEPT_SECONDS:
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
        others = {other: place_under(self._roots, own, other) for other in overview.heads if other not in places}
        return _Cut(time.monotonic(), summaries, overview, places | others)

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
        visible_places = {pipeline for pipeline in self.cut.places if self._is_visible(pipeline)}
        visible_places |= {other for other in others if self.cut.places[other] is None}
        return {
            "age": round(time.monotonic() - self.cut.taken_at, 1),
            "pipelines": [self._pipeline_json(pipeline) for pipeline in sorted(visible_places, key=self._display_name)],
            "inputs": [self._input_json(one) for one in self.cut.edges if {one.upstream, one.reader} <= visible_places],
            "hidden": len(others - visible_places),
            "problems": problems,
        }

    @cached_property
    def _summaries(self) -> dict[Place, PipelineSummary]:
        return self.cut.summaries.by_place

    def _is_visible(self, pipeline: PlacedPipeline) -> bool:
        return self.cut.places[pipeline] in self.visible

    def _display_name(self, pipeline: PlacedPipeline) -> str:
        place = self.cut.places[pipeline]
        return (
            redact_secrets(str(pipeline))
            if place is None
            else self.roots.root_named(place[0]).root.qualified_name(place[1])
        )

    def _pipeline_json(self, pipeline: PlacedPipeline) -> dict[str, Any]:
        head, place, problem = (
            self.cut.overview.heads[pipeline],
            self.cut.places[pipeline],
            self.cut.overview.problems.get(pipeline),
        )
        summary = None if place is None else self._summaries.get(place)
        return {
            "pipeline": self._display_name(pipeline),
            "has_page": place is not None,
            "epoch": head.epoch,
            "snapshot": head.snapshot,
            "published": None if summary is None else summary.published,
            "published_epoch": None if summary is None else summary.published_epoch,
            "in_flight": [*self._in_flight(pipeline)],
            "problem": None if problem is None else text_for_page(problem),
        }

    def _in_flight(self, pipeline: PlacedPipeline) -> Iterator[str]:
        for wait in self.cut.overview.waits:
            if wait.pipeline == pipeline and wait.kind in _OWN_WAITS:
                is_told = wait.kind is not WaitKind.PARKED or self.cut.places[pipeline] in self.editable
                why = text_for_page(wait.why) if is_told else "an output stands"  # its error may quote a record
                yield f"{wait.kind}: {why}"

    def _input_json(self, one: ReaderProgress | UnseenReader) -> dict[str, Any]:
        names = {"pipeline": self._display_name(one.reader), "upstream": self._display_name(one.upstream)}
        if isinstance(one, ReaderProgress):
            return {**names, **line_of(one)}
        return {**names, "lag": text_for_page(one.why), "is_well": False}
