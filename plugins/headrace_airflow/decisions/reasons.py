"""What forms of decisions ask of people, and what the log of a pipeline says of a decision: who made it, why, and in
which run of Airflow.

By the run an attempt finds what an attempt before it has done. A task may be killed after it has acted and before
Airflow knows, or cleared; what the run decided happens once all the same.
"""

import logging
from datetime import datetime, timedelta
from typing import Final

from airflow.sdk import Context, Param
from airflow.sdk.api.datamodels._generated import DagRunType  # the type that DAG asks for

from headrace.errors import FixConfigError
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.entry import Entry

APPROVE: Final = "approve"
"""The task that asks a person."""

REASON: Final = "reason"
"""The field of a form for it."""

NOT_GIVEN: Final = "no reason given"
"""What the log of a pipeline has instead."""

WANTED: Final = (
    f"This run gives no reason, and the log of the pipeline has {NOT_GIVEN!r}. From 0.4.0 on its form requires one: "
    f"who decided it, and why (the field {REASON!r})"
)
"""What people are told who gave none: released forms take an empty one, and that stays until then."""

_log = logging.getLogger("airflow.task")
_APPROVED: Final = ["Approve"]
_CLOCKS_DIFFER: Final = timedelta(hours=1)


class NotApprovedError(FixConfigError, code="config.not_approved"):
    """A run acts only after a person has approved it, and Airflow knows of no such answer."""


class NotRehearsedError(FixConfigError, code="config.not_rehearsed"):
    """A run acts only after its first look has said what changes by it."""


class RehearsalOutdatedError(FixConfigError, code="config.rehearsal_outdated"):
    """What was said to change is no longer so: what it was said of has moved since."""


def reason_field(*, required: bool = False) -> Param:
    """The field of each form of a decision. ``required``: it cannot be submitted without one."""
    about = "Who decided it and why, for those who read the log of the pipeline later."
    if required:
        return Param(type="string", minLength=3, title="Reason", description=about)
    wanted = f"{about} Please give one: a run without one warns, and from 0.4.0 on it is required."
    return Param(None, type=["null", "string"], title="Reason", description=wanted)


def unreasoned(context: Context) -> list[str]:
    """``WANTED`` if a person began this run and gave no reason; else nothing. It belongs into the run's result."""
    return [] if _given(context) or not _is_by_a_person(context) else [WANTED]


def told_if_unreasoned(context: Context) -> list[str]:
    """The same, said in the task's log as well."""
    missing = unreasoned(context)
    for warning in missing:
        _log.warning("%s", warning)
    return missing


def reason_of(context: Context) -> str:
    """The reason that the form gives, who triggered the run, and which run it is."""
    given = _given(context) or (NOT_GIVEN if _is_by_a_person(context) else "")
    user = getattr(context.get("dag_run"), "triggering_user_name", None)
    return " ".join(part for part in (given, f"({user}, {_where(context)}" if user else f"({_where(context)}") if part)


def decided(context: Context, *, asks: bool) -> str:
    """``reason_of``, and who approved it. Raises NotApprovedError if the form ``asks`` a person, and none approved."""
    if not asks:
        return reason_of(context)
    answer = context["ti"].xcom_pull(task_ids=APPROVE) or {}
    if answer.get("chosen_options") != _APPROVED:
        raise NotApprovedError(
            f"the form says that a person is asked first, and nobody has approved it: clear the task {APPROVE}, which "
            "asks again"
        )
    by = answer.get("responded_by_user") or {}
    return f"{reason_of(context)}, approved by {by.get('name') or by.get('id')}"


def earlier_try(catalog: Catalog, context: Context) -> Entry | None:
    """The entry of the log that an earlier try of a task of this run has left; None if none has."""
    run = context["dag_run"]
    marker, begun = _where(context), run.run_after - _CLOCKS_DIFFER
    for entry in catalog.entries():
        if datetime.fromisoformat(entry.at) < begun:
            return None
        if marker in entry.message:
            return entry
    return None


def done_already(entry: Entry) -> str:
    """What a task says that finds what an earlier try has done."""
    return f"done by an earlier try of this run: entry {entry.number} of the log ({entry.message})"


def _given(context: Context) -> str:
    return str(context["params"].get(REASON) or "").strip()


def _is_by_a_person(context: Context) -> bool:
    """Whether this run is none that a schedule began."""
    return getattr(context.get("dag_run"), "run_type", None) != DagRunType.SCHEDULED


def _where(context: Context) -> str:
    task = context["ti"]
    return f"in Airflow: {task.dag_id}/{task.run_id})"
