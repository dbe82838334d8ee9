"""What Airflow finds in ``dags/``: the DAGs that it asks for; and pipeline files that cannot be used, as an import
error of a file that has no DAGs.
"""

from collections.abc import Mapping

from airflow.sdk import DAG, get_parsing_context

from headrace.errors import FixConfigError
from headrace_airflow.dags import broken_files, built, built_for
from headrace_airflow.decisions.dags import decision_dag, decision_dags


class BrokenPipelineFilesError(FixConfigError):
    """Pipeline files that cannot be used, each with the reason."""

    code = "config.broken_pipeline_files"


def asked_for() -> Mapping[str, DAG]:
    """The DAGs of every registered pipeline, and those of decisions, by DAG id; for a task that starts, only the one
    that it belongs to.

    So a task neither builds the DAGs of others nor waits for their files. It raises what is wrong with its own.
    """
    dag_id = get_parsing_context().dag_id
    if dag_id is None:
        found = built()
        return {**found.dags, **decision_dags(found.pipelines)}
    dag = decision_dag(dag_id) or built_for(dag_id)
    return {} if dag is None else {dag_id: dag}


def raise_broken() -> None:
    """Raise BrokenPipelineFilesError naming every broken file; nothing when there is none, and not for one DAG."""
    if get_parsing_context().dag_id is None and (broken := broken_files()):
        raise BrokenPipelineFilesError("\n".join(broken.values()))
