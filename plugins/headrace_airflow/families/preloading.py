"""What every task of Headrace imports, imported once by the processes that Airflow forks tasks and parsing from.

It costs a task a quarter of a second of CPU. Pipelines of users are not among it: a task loads its own as it is then.
Nothing here starts a thread, since a fork has only one.
"""

import sys
from importlib import import_module
from typing import Final

from headrace_airflow.families.code_tab import outlive_removal

_PARSING: Final = "dag-processor"
_FORKING: Final = ("scheduler", "dag-processor", "celery", "standalone")
"""The commands of Airflow whose processes do."""

_IMPORTED: Final = (
    "headrace_airflow.dags",
    "headrace_airflow.families.own",
    "headrace.runs.executors.own",
    "headrace.connectors.files.definition",  # of nearly all pipelines
)


def preload() -> None:
    """Import it if this is such a process; in the one that stores what was parsed, mind files that go meanwhile."""
    if sys.argv[1:2] and sys.argv[1] in _FORKING:
        for module in _IMPORTED:
            import_module(module)
    if sys.argv[1:2] == [_PARSING]:
        outlive_removal()
