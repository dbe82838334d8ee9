"""Names that follow from a task of Airflow: of its runs, of what they are for, of the branch of a backfill."""

import hashlib
import re

from airflow.sdk import Context

_LONGEST = 200
"""Characters of the id of a run."""

_DIGEST = 8


def run_id_of(context: Context) -> str:
    """A run id that no other attempt of any task has."""
    task = context["ti"]
    return _plain_name(f"{task.dag_id}.{task.run_id}.{task.task_id}.{task.try_number}", _LONGEST, unique=str(task.id))


def run_id_begin(dag_id: str, run_id: str, task_id: str = "") -> str:
    """With what the run ids of all attempts of all tasks of a DAG run begin, or of one of its tasks."""
    task = f"{task_id}." if task_id else ""
    return _plain(f"{dag_id}.{run_id}.{task}")[: _LONGEST - _DIGEST - 1]


def request_of(context: Context, task_id: str | None = None) -> str:
    """What every attempt of a task is for: a name that no other task of any DAG run has. ``task_id``: one of this run,
    if not the task itself.
    """
    task = context["ti"]
    name = f"{task.dag_id}.{task.run_id}.{task_id or task.task_id}"
    return _plain_name(name, _LONGEST, unique=name)


def backfill_branch(context: Context) -> str:
    """The branch that the form of a backfill names, or the DAG run's own: the same in every task and every attempt."""
    if named := context["params"].get("branch"):
        return str(named)
    return branch_of_run(context["ti"].run_id)


def branch_of_run(run_id: str) -> str:
    """The branch of a backfill whose form names none."""
    return _plain_name(f"backfill-{run_id}", 100, unique=run_id)


def _plain_name(text: str, length: int, unique: str) -> str:
    """``text`` in at most ``length`` plain characters, told apart from others alike by ``unique``."""
    digest = hashlib.sha256(unique.encode()).hexdigest()[:_DIGEST]
    return f"{_plain(text)[: length - _DIGEST - 1]}-{digest}"


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text)
