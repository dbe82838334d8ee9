"""Branches of which runs of Airflow are not done: something computes them, or a person is asked about them."""

from collections.abc import Iterator
from typing import Any

from airflow.sdk.api.datamodels._generated import TerminalTIState

from headrace_airflow.decisions.dags import PROMOTE
from headrace_airflow.roots.root import RootedPipeline
from headrace_airflow.run_ids import branch_of_run

_OVER = frozenset(state.value for state in TerminalTIState)


def awaited_branches(rooted: RootedPipeline) -> set[str]:
    """The branches of a pipeline that its backfills are at work on or ask about, and those that somebody is asked to
    promote: however long ago that began. It is asked in a task.
    """
    backfill, promote = rooted.dag_id("backfill"), rooted.root.named(PROMOTE)
    names = {str(form.get("branch") or branch_of_run(run)) for run, form in _open_runs(backfill)}
    asked = (form for _, form in _open_runs(promote) if form.get("pipeline") == rooted.name)
    return names | {str(form["branch"]) for form in asked}


def _open_runs(dag_id: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The runs of a DAG with a task that is not over, by their id, and what the form of each was given."""
    from airflow.sdk.execution_time import task_runner  # not for who parses DAGs
    from airflow.sdk.execution_time.comms import GetDagRun

    for run_id, states in task_runner.RuntimeTaskInstance.get_task_states(dag_id).items():
        if any(state not in _OVER for state in states.values()):
            run = task_runner.SUPERVISOR_COMMS.send(GetDagRun(dag_id=dag_id, run_id=run_id))
            yield run_id, getattr(run, "conf", None) or {}
