"""How many tasks of an epoch run beside each other, if somebody has said so."""

import os

from headrace.errors import FixConfigError

TASKS_VARIABLE = "HEADRACE_TASKS"


class TasksSettingError(FixConfigError, code="config.tasks"):
    """HEADRACE_TASKS is not a number of tasks."""


def stated_tasks() -> int | None:
    """What HEADRACE_TASKS says, None if it is not set. Raises TasksSettingError."""
    stated = os.environ.get(TASKS_VARIABLE)
    if not stated:
        return None
    if not stated.isdecimal() or int(stated) < 1:
        raise TasksSettingError(f"{TASKS_VARIABLE}={stated}: write a number, 1 or more")
    return int(stated)
