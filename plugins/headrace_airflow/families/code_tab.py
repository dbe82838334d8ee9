"""The tab "Code" of a pipeline's DAGs shows the pipeline's own file, not the line in ``dags/`` that makes them.

Airflow shows the file that ``fileloc`` names. It sets that itself when it has executed a file of ``dags/``, so only a
cluster policy comes after it; the distribution names this module as one (entry point ``airflow.policy``). All else
(tasks, callbacks, import errors, which DAGs are gone) goes by ``relative_fileloc``, which stays as Airflow sets it.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from airflow.policies import hookimpl

if TYPE_CHECKING:  # every process of Airflow imports this module when it starts
    from airflow.sdk import DAG

_SOURCE: Final = "headrace_source"


def shows(dag: "DAG", file: Path) -> None:
    """Have the tab "Code" of ``dag`` show ``file``, if that can be read as Airflow will read it.

    Where it could not, Airflow would count it as an import error of all DAGs.
    """
    try:
        file.read_text()  # in the encoding of the locale, as Airflow does
    except (OSError, UnicodeDecodeError):
        return
    setattr(dag, _SOURCE, str(file.resolve()))


@hookimpl
def dag_policy(dag: "DAG") -> None:
    """Called by Airflow for each DAG that it has found in a file."""
    source = getattr(dag, _SOURCE, None)
    if source is not None:
        dag.fileloc = source
