"""The tab "Code" of a pipeline's DAGs shows the pipeline's own file, not the line in ``dags/`` that makes them.

Airflow shows the file that ``fileloc`` names. It sets that itself when it has executed a file of ``dags/``, so only a
cluster policy comes after it; the distribution names this module as one (entry point ``airflow.policy``). All else
(tasks, callbacks, import errors, which DAGs are gone) goes by ``relative_fileloc``, which stays as Airflow sets it.
"""

import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from airflow.policies import hookimpl

if TYPE_CHECKING:  # every process of Airflow imports this module when it starts
    from airflow.sdk import DAG

_SOURCE: Final = "headrace_source"


def show_in_code_tab(dag: "DAG", file: Path) -> None:
    """Have the tab "Code" of ``dag`` show ``file``, if that can be read as Airflow will read it.

    Where it could not, Airflow would count it as an import error of all DAGs.
    """
    try:
        status = file.stat()
    except OSError:
        return
    if _is_text(file, status.st_mtime_ns, status.st_ctime_ns):
        setattr(dag, _SOURCE, os.path.abspath(file))  # noqa: PTH100 - through links, which may lead to a newer file by then


@lru_cache(1)  # the DAGs of a pipeline follow each other
def _is_text(file: Path, _modified_at: int, _changed_at: int) -> bool:
    try:
        file.read_text()  # in the encoding of the locale, as Airflow does
    except (OSError, UnicodeDecodeError):
        return False
    return True


def outlive_removal() -> None:
    """In the process that stores what was parsed: a pipeline's file that is gone by then takes no other DAGs along.

    Airflow would count it as an import error of the file in ``dags/``, and so of all DAGs. The DAGs of the file go with
    the next parse.
    """
    from airflow.models.dagcode import DagCode

    read: Callable[[str], str] = DagCode.get_code_from_file

    def code_of(file: str) -> str:
        try:
            return read(file)
        except (OSError, UnicodeDecodeError):
            if not _is_of_a_pipeline(Path(file)):
                raise
            return f"# {file} is gone since Airflow has parsed it. Its DAGs go when Airflow parses again.\n"

    DagCode.get_code_from_file = staticmethod(code_of)  # type: ignore[method-assign]


def _is_of_a_pipeline(file: Path) -> bool:
    from headrace_airflow.roots import served_roots

    folders = (folder for root in served_roots().roots for folder in root.folders.folders)
    return any(file.parent == folder.absolute() for folder in folders)


@hookimpl
def dag_policy(dag: "DAG") -> None:
    """Called by Airflow for each DAG that it has found in a file."""
    source = getattr(dag, _SOURCE, None)
    if source is not None:
        dag.fileloc = source
