"""The DAGs of decisions: one for each kind, whatever the number of pipelines, so that the list of DAGs stays short."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

from airflow.sdk import DAG, Param, chain
from airflow.sdk.api.datamodels._generated import DagRunType  # the type that DAG asks for

from headrace.pipeline.schedules import split_id
from headrace_airflow.decisions.kinds import KINDS, Decision
from headrace_airflow.decisions.maintain import MaintainOperator
from headrace_airflow.decisions.operators import (
    REHEARSE,
    ApproveOperator,
    DecisionOperator,
    PromoteOperator,
    RehearsalOperator,
)
from headrace_airflow.decisions.reasons import APPROVE
from headrace_airflow.failures import RETRIES
from headrace_airflow.families.form_of_dag import has_form
from headrace_airflow.forms import LENGTH_PATTERN
from headrace_airflow.roots.root import Root

PROMOTE: Final = "promote"
MAINTAIN: Final = "maintain"
_KINDS: Final = {kind.name: kind for kind in KINDS}
_NAMES: Final = (*_KINDS, PROMOTE, MAINTAIN)
_COMMANDS: Final = {MAINTAIN: "`headrace expire` and `headrace fsck`"}
_START: Final = datetime(2026, 1, 1, tzinfo=UTC)


def decision_dags(root: Root, pipelines: Sequence[str]) -> dict[str, DAG]:
    """The DAGs of all kinds for ``root`` by DAG id, with ``pipelines`` to choose from; none without any."""
    dags = [_built(root, name, pipelines) for name in _NAMES] if pipelines else []
    return {dag.dag_id: dag for dag in dags}


def decision_of(dag_id: str) -> tuple[str, str] | None:
    """The name of the root and the kind of decision that a DAG id names; None where it names none."""
    split = split_id(dag_id)
    return split if split is not None and split[1] in _NAMES else None


def decision_dag(root: Root, name: str) -> DAG:
    """The DAG of that kind for one of its tasks, for which the form has been checked."""
    return _built(root, name, None)


def _built(root: Root, name: str, pipelines: Sequence[str] | None) -> DAG:
    own = {PROMOTE: _promote_dag, MAINTAIN: _maintain_dag}.get(name)
    dag = _decision_dag(root, _KINDS[name], pipelines) if own is None else own(root, pipelines)
    dag.validate()  # type: ignore[no-untyped-call]
    return dag


def _decision_dag(root: Root, kind: Decision, pipelines: Sequence[str] | None) -> DAG:
    params = {"pipeline": _pipeline(pipelines), **kind.params(), "reason": _reason(required=kind.needs_reason)}
    with _dag(root, kind.name, kind.about, params) as dag:
        DecisionOperator(task_id=kind.name, root=root, decision=kind, names=tuple(params))
    return dag


def _promote_dag(root: Root, pipelines: Sequence[str] | None) -> DAG:
    about = (
        "Make a branch main and published, once a person has seen what readers will see change. Or replace rows of "
        "main by those of the branch, as a patch; then main goes on as it is, and the branch stays."
    )
    params = {
        "pipeline": _pipeline(pipelines),
        "branch": Param(type="string", minLength=1, title="Branch", description="A branch whose audit succeeded."),
        "patch": Param(
            False,
            type="boolean",
            title="Patch",
            description="Replace only rows of windows that have expired on both; main goes on as it is.",
        ),
        "approve": Param(
            True,
            type="boolean",
            title="Ask before",
            description="Wait until a person has seen what would change and approves it; else promote at once.",
        ),
        "reason": _reason(required=False),
    }
    with _dag(root, PROMOTE, about, params) as dag:
        chain(
            RehearsalOperator(task_id=REHEARSE, root=root, names=tuple(params)),
            ApproveOperator(
                task_id=APPROVE, root=root, subject="Promote {{ params.branch }} of {{ params.pipeline }}?"
            ),
            PromoteOperator(task_id="promote", root=root),
        )
    return dag


def _maintain_dag(root: Root, pipelines: Sequence[str] | None) -> DAG:
    about = (
        "Look after what one pipeline has stored, or all: let old snapshots go, with all that only they need, and "
        "check that everything is there that snapshots, readers and runs need. Each run deletes what the one before "
        "it marked, so readers have time until then, and a failed run is not tried again at once. It runs beside all "
        "others."
    )
    choice: dict[str, Any] = {} if pipelines is None else {"enum": [None, *pipelines]}
    params = {
        "pipeline": Param(
            None,
            type=["null", "string"],
            title="Pipeline",
            description="Empty: all. Of those without a retention nothing expires then, unless you say what to keep.",
            **choice,
        ),
        "expire": _switch("Expire", "Let old snapshots go.", on=True),
        "keep_last": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            title="Keep the last",
            description="How many of the newest published snapshots to keep. Empty: as the pipeline says, else 100.",
        ),
        "keep_for": Param(
            None,
            type=["null", "string"],
            pattern=LENGTH_PATTERN,
            title="Keep for",
            description="Also keep snapshots younger than this, such as 30d. Empty: as the pipeline says.",
        ),
        "keep_tags": Param(
            "as the pipeline says",
            type="string",
            enum=["as the pipeline says", "yes", "no"],
            title="Keep tags",
            description="Whether tagged snapshots stay; else the tags of those that expire are dropped.",
        ),
        "check": _switch("Check", "Look whether everything is there.", on=True),
        "deep": _switch("Deep", "When checking, read data files, too, and compare their checksums."),
        "repair": _switch("Repair", "When checking, make again what can be; have what no snapshot ever named deleted."),
        "dry_run": _switch("Dry run", "Only say in the log what would happen."),
    }
    with _dag(root, MAINTAIN, about, params) as dag:
        MaintainOperator(task_id="maintain", root=root, names=tuple(params), retries=0)
    return dag


def _switch(title: str, description: str, *, on: bool = False) -> Param:
    return Param(on, type="boolean", title=title, description=description)


@contextmanager
def _dag(root: Root, name: str, about: str, params: dict[str, Any]) -> Iterator[DAG]:
    command = _COMMANDS.get(name, f"`headrace {name}`")
    dag = DAG(
        dag_id=root.named(name),
        description=about,
        doc_md=f"{about}\n\nThe same on the command line: {command}.",
        schedule=None,
        start_date=_START,
        catchup=False,
        default_args=RETRIES,
        tags=["headrace", "decision", *root.tags],
        allowed_run_types=[DagRunType.MANUAL, DagRunType.OPERATOR_TRIGGERED],
        auto_register=False,  # the file in dags/ names them
    )
    with has_form(dag, params):
        yield dag


def _pipeline(pipelines: Sequence[str] | None) -> Param:
    choice: dict[str, Any] = {} if pipelines is None else {"enum": [*pipelines]}
    return Param(type="string", title="Pipeline", description="Which one it is about.", **choice)


def _reason(*, required: bool) -> Param:
    about = "Who decided it and why, for those who read the log of the pipeline later."
    if required:
        return Param(type="string", minLength=3, title="Reason", description=about)
    return Param(None, type=["null", "string"], title="Reason", description=about)
