"""What the DAGs of decisions and of maintenance are made of."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

from airflow.sdk import DAG, Param
from airflow.sdk.api.datamodels._generated import DagRunType  # the type that DAG asks for

from headrace.pipeline.deployment.timetables import Times
from headrace_airflow.failures import RETRIES
from headrace_airflow.families.form_of_dag import has_form
from headrace_airflow.families.options import run_types, times
from headrace_airflow.roots.root import Root

_START: Final = datetime(2026, 1, 1, tzinfo=UTC)


@contextmanager
def new_root_dag(
    root: Root,
    name: str,
    about: str,
    params: dict[str, Any],
    *,
    command: str,
    tags: Sequence[str] = ("decision",),
    schedule: Times | None = None,
) -> Iterator[DAG]:
    """The DAG ``name`` of all pipelines of ``root``, to which all tasks belong that are made inside. ``command`` does
    the same on the command line.
    """
    at_once: dict[str, Any] = {} if schedule is None else {"max_active_runs": 1}
    dag = DAG(
        dag_id=root.named(name),
        description=about,
        doc_md=f"{about}\n\nThe same on the command line: {command}.",
        schedule=schedule if schedule is None or isinstance(schedule, str) else times(schedule),
        start_date=_START,
        catchup=False,
        default_args=RETRIES,
        tags=["headrace", *tags, *root.tags],
        allowed_run_types=[*run_types(schedule), DagRunType.MANUAL, DagRunType.OPERATOR_TRIGGERED],
        auto_register=False,  # the file in dags/ names them
        **at_once,
    )
    with has_form(dag, params):
        yield dag


def switch(title: str, description: str, *, on: bool = False) -> Param:
    """A field that is on or off."""
    return Param(on, type="boolean", title=title, description=description)
