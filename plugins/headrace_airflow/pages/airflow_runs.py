"""What Airflow's own database says of DAG runs: which of them a run of Headrace belongs to, and the deadlines of those
that have not ended.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from airflow.models.dagrun import DagRun
from airflow.models.deadline import Deadline
from airflow.utils.session import create_session
from airflow.utils.state import State
from sqlalchemy import func, select

from headrace.pipeline.schedules import owner_of
from headrace_airflow.pages.access import Place
from headrace_airflow.run_ids import run_id_begin

_LOOKED_AT: Final = 5_000
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
        known = [DagRunName(*row) for row in session.execute(newest.limit(_LOOKED_AT))]
    by_begin: dict[str, list[DagRunName]] = {}
    for name in known:
        by_begin.setdefault(run_id_begin(name.dag_id, name.run_id), []).append(name)
    dag_runs: dict[str, DagRunName] = {}
    for run_id in run_ids:
        parts = [at for at, character in enumerate(run_id, start=1) if character == "."]
        begins = [run_id[:at] for at in reversed(parts)] + [run_id[:-9]]
        names = next((by_begin[begin] for begin in begins if begin in by_begin), [])
        if len(names) == 1:  # of two with names that are equally long and cut off nobody knows which
            dag_runs[run_id] = names[0]
    return dag_runs


def pipeline_deadlines() -> Mapping[Place, RunDeadline]:
    """The next deadline of each pipeline whose process DAG has a run with one; a missed one first."""
    asked = (
        select(DagRun.dag_id, Deadline.missed, func.min(Deadline.deadline_time))
        .join(DagRun, Deadline.dagrun_id == DagRun.id)
        .where(DagRun.state.in_(State.unfinished_dr_states))
        .group_by(DagRun.dag_id, Deadline.missed)
    )
    with create_session() as session:
        rows = session.execute(asked).all()
    deadlines: dict[Place, RunDeadline] = {}
    for dag_id, missed, at in sorted(rows, key=lambda row: not row[1]):
        owner = owner_of(dag_id)
        if owner is not None and owner.family == "process":
            deadlines.setdefault((owner.root, owner.pipeline), RunDeadline(_iso(at), bool(missed)))
    return deadlines


def _iso(at: datetime) -> str:
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC).isoformat().replace("+00:00", "Z")
