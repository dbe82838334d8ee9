"""The last line of the log of a task that failed: where the page is that shows why, below what Airflow prints of the
error, unfolded. Airflow asks each plugin when a task has failed, so callbacks of users stay what they are.
"""

import logging
from typing import Any

from airflow.listeners import hookimpl

_log = logging.getLogger("airflow.task")


@hookimpl
def on_task_instance_failed(previous_state: Any, task_instance: Any, error: Any) -> None:
    """Say where to look if the error names a page; Airflow's own group of what follows a task is closed first."""
    del previous_state, task_instance
    if page := getattr(error, "page", ""):
        _log.info("::endgroup::")
        _log.error("What failed, and what can be done about it: %s", page)
