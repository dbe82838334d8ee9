"""An engine over ``Blobs``: the tasks of an epoch in this process, with an exchange between levels as on Spark."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from headrace.distribute.epoch import Attempts
from headrace.distribute.tasks.engine import TasksEngine
from headrace.distribute.tasks.plan import TaskEnvironment
from headrace_lab.conformance.blobs import Blobs

P = ParamSpec("P")
R = TypeVar("R")


class OverBlobs(TasksEngine):
    """Runs so many tasks a level."""

    executor = "tasks"

    def __init__(self, work: TaskEnvironment, attempts: Attempts, number: int) -> None:
        super().__init__(work, attempts, Blobs(work, number))

    def in_background(self, run: Callable[P, R]) -> Callable[P, R]:
        """``run`` itself."""
        return run
