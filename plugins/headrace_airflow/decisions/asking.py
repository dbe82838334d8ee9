"""A task that shows a person what would happen, and waits for an answer."""

from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Context

from headrace_airflow.decisions.proposals import Proposal
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
