"""What Airflow finds in ``dags/``: the DAGs that it asks for; and pipeline files that cannot be used, as an import
error of a file that has no DAGs.
"""

from collections.abc import Mapping

from airflow.sdk import DAG, get_parsing_context

from headrace.errors import FixConfigError
from headrace.pipeline.schedules import owner_of
from headrace_airflow.dags import broken_files, built, built_for
from headrace_airflow.decisions.dags import decision_dag, decision_dags, decision_of
from headrace_airflow.roots.served import ServedRoots, served_roots
from headrace_airflow.roots.store import forget_connections, without_connections


class BrokenPipelineFilesError(FixConfigError, code="config.broken_pipeline_files"):
    """Pipeline files that cannot be used, each with the reason."""


def asked_for() -> Mapping[str, DAG]:
    """The DAGs of every registered pipeline, and those of decisions, by DAG id; for a task that starts, only the one
    that it belongs to.

    So a task neither builds the DAGs of others nor waits for their files. It raises what is wrong with its own.
    """
    dag_id, served = get_parsing_context().dag_id, served_roots()
    if dag_id is not None:
        dag = _asked_for_by_a_task(dag_id, served)
        return {} if dag is None else {dag_id: dag}
    dags: dict[str, DAG] = {}
    with without_connections(served.roots):
        for root in served.roots:
            of_root = built(root)
            dags |= {**of_root.dags, **decision_dags(root, of_root.pipelines)}
    return dags


def _asked_for_by_a_task(dag_id: str, served: ServedRoots) -> DAG | None:
    decision, owner = decision_of(dag_id), owner_of(dag_id)
    name = decision[0] if decision is not None else owner.root if owner is not None else None
    if name is None:
        return None
    root = served.named(name)
    forget_connections(served.roots, but=root.store)
    if decision is not None:
        return decision_dag(root, decision[1])
    return None if owner is None else built_for(root, owner.pipeline, owner.family)


def raise_broken() -> None:
    """Raise BrokenPipelineFilesError naming every broken file; nothing when there is none, and not for one DAG."""
    if get_parsing_context().dag_id is not None:
        return
    served = served_roots()
    with without_connections(served.roots):
        broken = [*served.problems, *(problem for root in served.roots for problem in broken_files(root).values())]
    if broken:
        raise BrokenPipelineFilesError("\n".join(broken))
