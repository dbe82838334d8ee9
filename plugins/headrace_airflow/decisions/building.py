"""What the DAGs of decisions and of maintenance are made of, and the task that asks a person.

A task that shows a person what would happen, and waits for an answer.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Context, Param
from airflow.sdk.api.datamodels._generated import DagRunType  # the type that DAG asks for

from headrace.pipeline.deployment import Times
from headrace_airflow.decisions.proposals import Proposal
from headrace_airflow.failures import RETRIES
from headrace_airflow.families.dag_family import has_form
from headrace_airflow.families.options import run_types, times
from headrace_airflow.roots.root import Root
from headrace_airflow.roots.store import reaching_store


class AskingOperator(ApprovalOperator):
    """Waits until a person approves or rejects its ``proposal``; what comes next is skipped if it is rejected.

    Each try asks, whatever was answered before: Airflow 3.3 fails a task whose answer comes before its worker has
    ended, and loses the answer.
    """

    def __init__(self, *, root: Root, **kwargs: Any) -> None:
        super().__init__(execution_timeout=None, **kwargs)  # how long a task may take says nothing of a person
        self.root = root

    def proposal(self, context: Context) -> Proposal | None:
        """What the person is shown; None if nobody is to be asked."""
        raise NotImplementedError

    def execute(self, context: Context) -> Any:
        """Who approved it; None where nobody was asked."""
        with reaching_store(self.root):
            shown = self.proposal(context)
        if shown is None:
            return None
        for line in shown.lines:
            self.log.info("%s", line)
        self.body = shown.markdown
        return super().execute(context)


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
