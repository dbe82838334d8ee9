"""The DAGs of decisions: one for each kind, whatever the number of pipelines, so that the list of DAGs stays short."""

from collections.abc import Sequence
from typing import Any, Final

from airflow.sdk import DAG, Param, chain

from headrace.pipeline.schedules import MAINTAIN, is_retention, split_id
from headrace_airflow.decisions.building import new_root_dag
from headrace_airflow.decisions.kinds import KINDS, Decision
from headrace_airflow.decisions.maintenance_dags import maintain_dag, retention_dag
from headrace_airflow.decisions.operators import (
    REHEARSE,
    ApproveOperator,
    DecisionOperator,
    PromoteOperator,
    RehearsalOperator,
)
from headrace_airflow.decisions.reasons import APPROVE, REASON, reason_field
from headrace_airflow.forms import option_fields
from headrace_airflow.roots.root import Root

PROMOTE: Final = "promote"
_KINDS: Final = {kind.name: kind for kind in KINDS}
_NAMES: Final = (*_KINDS, PROMOTE, MAINTAIN)


def decision_dags(root: Root, pipelines: Sequence[str]) -> dict[str, DAG]:
    """The DAGs of all kinds for ``root`` by DAG id, with ``pipelines`` to choose from; none without any."""
    dags = [_built(root, name, pipelines) for name in _NAMES] if pipelines else []
    return {dag.dag_id: dag for dag in dags}


def decision_of(dag_id: str) -> tuple[str, str] | None:
    """The name of the root and the kind of decision that a DAG id names; None where it names none."""
    split = split_id(dag_id)
    return split if split is not None and (split[1] in _NAMES or is_retention(split[1])) else None


def decision_dag(root: Root, name: str) -> DAG:
    """The DAG of that kind for one of its tasks, for which the form has been checked."""
    return retention_dag(root, name) if is_retention(name) else _built(root, name, None)


def _built(root: Root, name: str, pipelines: Sequence[str] | None) -> DAG:
    own = {PROMOTE: _promote_dag, MAINTAIN: maintain_dag}.get(name)
    dag = _decision_dag(root, _KINDS[name], pipelines) if own is None else own(root, pipelines)
    dag.validate()  # type: ignore[no-untyped-call]
    return dag


def _decision_dag(root: Root, kind: Decision, pipelines: Sequence[str] | None) -> DAG:
    params = {"pipeline": _pipeline(pipelines), **kind.params(), REASON: reason_field(required=kind.needs_reason)}
    with new_root_dag(root, kind.name, kind.about, params, command=f"`headrace {kind.name}`") as dag:
        DecisionOperator(task_id=kind.name, root=root, decision=kind, names=tuple(params))
    return dag


def _promote_dag(root: Root, pipelines: Sequence[str] | None) -> DAG:
    about = (
        "Make a branch main and published, once a person has seen what readers will see change. Or replace rows of "
        "main by those of the branch, as a patch; then main goes on as it is, and the branch stays. Or let main adopt "
        "one output of the branch, which the next run publishes."
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
        "output": Param(
            None,
            type=["null", "string"],
            title="Output",
            description="One of several: which the patch is of, or which main adopts from a branch that has computed "
            "it again. Empty: the whole branch.",
        ),
        "approve": Param(
            True,
            type="boolean",
            title="Ask before",
            description="Wait until a person has seen what would change and approves it; else promote at once.",
        ),
        **option_fields(PROMOTE),
        REASON: reason_field(),
    }
    with new_root_dag(root, PROMOTE, about, params, command="`headrace promote`") as dag:
        chain(
            RehearsalOperator(task_id=REHEARSE, root=root, names=tuple(params)),
            ApproveOperator(
                task_id=APPROVE, root=root, subject="Promote {{ params.branch }} of {{ params.pipeline }}?"
            ),
            PromoteOperator(task_id="promote", root=root),
        )
    return dag


def _pipeline(pipelines: Sequence[str] | None) -> Param:
    choice: dict[str, Any] = {} if pipelines is None else {"enum": [*pipelines]}
    return Param(type="string", title="Pipeline", description="Which one it is about.", **choice)
