"""Who may see what, and the list of all pipelines that a user may see, with Airflow's runs of them.

A pipeline is seen by those who may read its DAG (``visible_to``), its values by those who may edit that
(``editable_by``).

``dag_runs_of`` asks Airflow's own database which DAG run a run of Headrace belongs to, ``pipeline_deadlines`` for the
deadlines of those that have not ended.

``pipeline_list`` is over all roots, those that need a person first.
"""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
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

from headrace.model.time import to_instant
from headrace.pipeline.scheduling import DagOwner, owner_of
from headrace.pipeline.scheduling import dag_id as dag_id_of
from headrace.runs.reporting.summary import PipelineState, PipelineSummary, urgent_first
from headrace_airflow.markdown import text_for_page, told_of
from headrace_airflow.pages.opened_roots import OpenedRoots, RootSummaries
from headrace_airflow.run_ids import run_id_begin


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
    still has it: people delete DAG runs, and a run from a command line has none.
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
    for dag_id, is_missed, time in sorted(rows, key=lambda row: not row[1]):
        owner = owner_of(dag_id)
        if owner is not None and owner.family == "process":
            deadlines.setdefault((owner.root, owner.pipeline), RunDeadline(_iso_time(time), bool(is_missed)))
    return deadlines


def _iso_time(time: datetime) -> str:
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC).isoformat().replace("+00:00", "Z")


def pipeline_list(roots: OpenedRoots, user: BaseUser) -> dict[str, Any]:
    """The list as a JSON value, with what is wrong with roots that are missing and of which ``user`` may read a DAG."""
    root_summaries, visible_pipelines = roots.summaries(), with_dags(user)
    summaries = {
        (root.name, name): one
        for root, cached_summaries in root_summaries.read
        for name, one in cached_summaries.summaries.items()
    }
    roots_read = {root.name: root for root, _ in root_summaries.read}
    visible_summaries = {place: summaries[place] for place in visible_to(user, summaries)}
    waiting = {place: _never_ran(place[1]) for place in visible_pipelines - summaries.keys() if place[0] in roots_read}
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


def problems_for(there: Collection[Place], answered: RootSummaries) -> list[dict[str, str]]:
    """What is wrong with roots that are missing, and of which a user may read a DAG: those ``there``."""
    missing = {root for root, _ in there} - {root.name for root, _ in answered.read}
    return [{"root": root, "message": text_for_page(str(_root_problem(root, answered)))} for root in sorted(missing)]


def deadline_to_json(deadline: RunDeadline | None) -> dict[str, Any] | None:
    """A JSON value of a pipeline's next deadline, if it has one."""
    return None if deadline is None else asdict(deadline)


def _root_problem(root: str, root_summaries: RootSummaries) -> BaseException | str:
    problem = root_summaries.problems.get(root)
    return "it is not declared any more, or what declares it is wrong" if problem is None else problem


def _never_ran(name: str) -> PipelineSummary:
    return PipelineSummary(pipeline=name, made_at="", entry=-1, state=PipelineState.EMPTY)
